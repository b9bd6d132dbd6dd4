//! Long runs of the fuzz bodies without a fuzzer: seeds instead of coverage, and a table of how far they came.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dvm_bc::bundle::Bundle;
use dvm_bc::testing::fuzz::{self, Progress};
use dvm_bc::testing::{Dice, program};
use dvm_vm::testing::Vm;

use crate::root;

/// What to run.
pub(crate) struct Options {
    pub(crate) programs: Option<u64>,
    pub(crate) seconds: Option<u64>,
    pub(crate) from: u64,
    pub(crate) jobs: usize,
    /// Of so many programs one is run where it is accepted; the others are verified only.
    pub(crate) run_every: u64,
    pub(crate) trace: bool,
}

const BODIES: [&str; 3] = ["verify and run", "verify", "text and bytes"];

#[derive(Default)]
struct Row {
    programs: u64,
    decoded: u64,
    last_rule: u64,
    accepted: u64,
    ran: u64,
    trapped: u64,
    failed: u64,
    /// The slowest input and how long it took.
    slowest: (Duration, u64),
}

impl Row {
    fn add(&mut self, p: Option<Progress>, took: Duration, seed: u64) {
        self.programs += 1;
        self.slowest = self.slowest.max((took, seed));
        let Some(p) = p else {
            self.failed += 1;
            return;
        };
        self.decoded += u64::from(p.decoded);
        self.last_rule += u64::from(p.last_rule);
        self.accepted += u64::from(p.accepted);
        self.ran += u64::from(p.ran);
        self.trapped += u64::from(p.trapped);
    }

    fn join(&mut self, o: &Row) {
        self.programs += o.programs;
        self.decoded += o.decoded;
        self.last_rule += o.last_rule;
        self.accepted += o.accepted;
        self.ran += o.ran;
        self.trapped += o.trapped;
        self.failed += o.failed;
        self.slowest = self.slowest.max(o.slowest);
    }

    fn print(&self, name: &str) {
        let percent = |n: u64| format!("{n} ({:.1} %)", 100.0 * n as f64 / self.programs.max(1) as f64);
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {:.1} ms (seed {}) |",
            self.programs,
            percent(self.decoded),
            percent(self.last_rule),
            percent(self.accepted),
            self.ran,
            self.trapped,
            self.failed,
            self.slowest.0.as_secs_f64() * 1e3,
            self.slowest.1,
        );
    }
}

/// One input; `None` where a property does not hold, which has been reported.
fn one(vm: &Vm, body: usize, seed: u64) -> Option<Progress> {
    let run = || {
        let mut dice = Dice::Seed(seed);
        match body {
            0 => fuzz::verify_and_run(&mut dice, vm),
            1 => fuzz::verify(&mut dice),
            _ => fuzz::asm_round_trip(&mut dice),
        }
    };
    catch_unwind(AssertUnwindSafe(run))
        .inspect_err(|_| eprintln!("seed {seed} of `{}` failed", BODIES[body]))
        .ok()
}

/// Most bytes this process has held, where the system says.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Runs the bodies and prints the table.
pub(crate) fn fuzz(o: &Options) -> Result<()> {
    let start = Instant::now();
    let most = o.programs.unwrap_or(if o.seconds.is_some() { u64::MAX } else { 100_000 });
    let end = o.seconds.map(|s| start + Duration::from_secs(s));
    let next = AtomicU64::new(0);
    let total = Mutex::new(std::array::from_fn::<Row, 3, _>(|_| Row::default()));
    std::thread::scope(|s| {
        for _ in 0..o.jobs.max(1) {
            s.spawn(|| {
                let vm = Vm::default();
                let mut rows: [Row; 3] = Default::default();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= most || end.is_some_and(|e| Instant::now() >= e) {
                        break;
                    }
                    let seed = o.from.wrapping_add(i);
                    let body = match i {
                        _ if i.is_multiple_of(o.run_every.max(1)) => 0,
                        _ if i % 16 == 1 => 2,
                        _ => 1,
                    };
                    if o.trace {
                        eprintln!("seed {seed}: {}", BODIES[body]);
                    }
                    let began = Instant::now();
                    let progress = one(&vm, body, seed);
                    rows[body].add(progress, began.elapsed(), seed);
                }
                let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                total.iter_mut().zip(&rows).for_each(|(t, r)| t.join(r));
            });
        }
    });
    let rows = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "| body | programs | decoded | reached the last rule | accepted | ran | trapped | failed | slowest |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut all = Row::default();
    for (row, name) in rows.iter().zip(BODIES) {
        row.print(name);
        all.join(row);
    }
    all.print("all");
    let memory = peak_memory().map_or_else(String::new, |b| format!(", at most {} MiB", b >> 20));
    println!("\n{:.0} s{memory}", start.elapsed().as_secs_f64());
    ensure!(all.failed == 0, "{} inputs failed", all.failed);
    Ok(())
}

/// Writes the committed corpus: a few inputs for each target.
pub(crate) fn corpus() -> Result<()> {
    let dir = root().join("fuzz/corpus");
    let bytes = |seed: u64, n: u64| -> Vec<u8> {
        let mut dice = Dice::Seed(seed);
        (0..n).flat_map(|_| dice.word().to_le_bytes()).collect()
    };
    for seed in 0..8u64 {
        let p = program(&mut Dice::Seed(seed)).program;
        let mut text = dvm_bc::disasm(&p).into_bytes();
        if seed % 2 == 1 {
            text = [vec![0], bytes(seed, 96)].concat();
        }
        let bundle = Bundle { programs: vec![p], ..Bundle::default() }.to_bytes()?;
        write(&dir, "decode", seed, &bundle)?;
        write(&dir, "asm", seed, &text)?;
        write(&dir, "verify", seed, &bytes(seed, 96))?;
        write(&dir, "run", seed, &bytes(seed + 100, 96))?;
    }
    Ok(())
}

fn write(dir: &Path, target: &str, seed: u64, bytes: &[u8]) -> Result<()> {
    let dir = dir.join(target);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join(format!("seed-{seed}")), bytes)?;
    Ok(())
}
