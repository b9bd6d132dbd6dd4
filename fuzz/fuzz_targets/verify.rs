//! Bytes as the choices that make and damage a program, which is verified.
#![no_main]

use dvm_bc::testing::{Dice, fuzz};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::verify(&mut Dice::bytes(data));
});
