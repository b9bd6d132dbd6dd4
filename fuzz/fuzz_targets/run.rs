//! Bytes as the choices that make and damage a program; where it is accepted, the virtual machine runs it as the reference does.
#![no_main]

use dvm_bc::testing::{Dice, fuzz};
use dvm_vm::testing::Vm;

thread_local! {
    static MACHINE: Vm = Vm::default();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    MACHINE.with(|vm| fuzz::verify_and_run(&mut Dice::bytes(data), vm));
});
