//! The fuzz bodies on a bounded number of inputs: no panic, no difference, nothing out of bounds.
#![cfg(unix)]

use dvm::testing::fuzz::Vm;
use dvm_bc::testing::Dice;
use dvm_bc::testing::fuzz::{self, Progress};

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

#[test]
fn accepted_programs_run_as_the_reference_says() {
    let vm = Vm::default();
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(3000);
    let from: u64 = std::env::var("FROM").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let c = each(from..from + n, |d| fuzz::verify_and_run(d, &vm));
    println!("{c:?}");
}
