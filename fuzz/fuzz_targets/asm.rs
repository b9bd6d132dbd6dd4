//! Bytes as text; or, after a byte that says so, as choices that make a program whose text and bytes read back.
#![no_main]

use dvm_bc::testing::{Dice, fuzz};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => fuzz::asm_round_trip(&mut Dice::bytes(rest)),
        text => fuzz::text(text),
    };
});
