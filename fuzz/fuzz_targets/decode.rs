//! Bytes as a bundle and as code.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dvm_bc::testing::fuzz::decode(data);
});
