//! The fuzz bodies on a bounded number of inputs: no panic, no difference, nothing out of bounds.
#![cfg(unix)]

use std::path::Path;

use dvm_bc::testing::Dice;
use dvm_bc::testing::fuzz::{self, Progress};
use dvm_vm::testing::Vm;

#[derive(Default, Debug)]
struct Counts {
    programs: u32,
    decoded: u32,
    last_rule: u32,
    accepted: u32,
    ran: u32,
    trapped: u32,
}

impl Counts {
    fn add(&mut self, p: Progress) {
        self.programs += 1;
        self.decoded += u32::from(p.decoded);
        self.last_rule += u32::from(p.last_rule);
        self.accepted += u32::from(p.accepted);
        self.ran += u32::from(p.ran);
        self.trapped += u32::from(p.trapped);
    }
}

fn each(seeds: std::ops::Range<u64>, mut body: impl FnMut(&mut Dice<'_>) -> Progress) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut Dice::Seed(seed))));
        match done {
            Ok(p) => counts.add(p),
            Err(_) => panic!("seed {seed}"),
        }
    }
    counts
}

/// A machine that has time raises the counts with `DVM_TEST_SCALE`.
fn scale() -> u64 {
    std::env::var("DVM_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

#[test]
fn accepted_programs_run_as_the_reference_says() {
    let vm = Vm::default();
    let n = 2500 * scale();
    let c = each(0..n, |d| fuzz::verify_and_run(d, &vm));
    println!("{c:?}");
    assert!(c.decoded * 10 > c.programs * 8 && c.last_rule * 5 > c.programs, "{c:?}");
    assert!(c.ran * 10 > c.programs && c.trapped > 0, "{c:?}");
}

#[test]
fn every_program_is_judged() {
    let c = each(1 << 32..(1 << 32) + 20_000 * scale(), fuzz::verify);
    println!("{c:?}");
    assert!(c.last_rule * 5 > c.programs, "{c:?}");
}

#[test]
fn text_and_bytes_read_back() {
    let c = each(2 << 32..(2 << 32) + 2000 * scale(), fuzz::asm_round_trip);
    assert!(c.decoded * 10 > c.programs * 9, "{c:?}");
}

/// The committed corpus of the cargo-fuzz targets.
#[test]
fn the_corpus_is_clean() {
    let vm = Vm::default();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in ["decode", "verify", "asm", "run"] {
        let mut n = 0;
        for file in std::fs::read_dir(dir.join(target)).expect("a corpus") {
            let bytes = std::fs::read(file.expect("a file").path()).expect("is read");
            match target {
                "decode" => fuzz::decode(&bytes),
                "verify" => fuzz::verify(&mut Dice::bytes(&bytes)),
                "run" => fuzz::verify_and_run(&mut Dice::bytes(&bytes), &vm),
                _ => match &bytes[..] {
                    [0, rest @ ..] => fuzz::asm_round_trip(&mut Dice::bytes(rest)),
                    text => fuzz::text(text),
                },
            };
            n += 1;
        }
        assert!(n >= 4, "{target}: {n} files");
    }
}
