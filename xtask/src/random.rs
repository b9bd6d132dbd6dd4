//! Many random graphs against the reference evaluator, with a progress bar, and of each failure the shortest graph that shows it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dvm::testing::random::{Checker, Done};
use indicatif::{ProgressBar, ProgressStyle};

/// What to check.
pub(crate) struct Options {
    pub(crate) graphs: u64,
    /// First seed.
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    /// Ops that each graph is tried to be made of, where not its seed shall say.
    pub(crate) ops: Option<usize>,
    pub(crate) shrink: bool,
}

/// Failures after which nothing more is tried.
const ENOUGH: usize = 20;

/// Checks graphs of consecutive seeds.
pub(crate) fn random(o: &Options) -> Result<()> {
    let start = Instant::now();
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} graphs, {eta} left {msg}")?;
    let bar = ProgressBar::new(o.graphs).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    let next = AtomicU64::new(0);
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let total: Mutex<Done> = Mutex::default();
    let hook = std::panic::take_hook();
    // A panic is a failure with a seed; it is told once, at the end.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..o.jobs.max(1) {
            scope.spawn(|| {
                // Two threads a launch: what depends on their order is to be seen.
                let mut checker = Checker::new(2);
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= o.graphs || locked(&failures).len() >= ENOUGH {
                        break;
                    }
                    let seed = o.seed.wrapping_add(i);
                    if let Err(e) = checker.check(seed, o.ops) {
                        let mut failures = locked(&failures);
                        failures.push((seed, e));
                        bar.set_message(format!("{} failed", failures.len()));
                    }
                    bar.inc(1);
                }
                locked(&total).add(&checker.done());
            });
        }
    });
    bar.finish_and_clear();
    let mut failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_unstable();
    for (seed, problem) in &failures {
        println!("seed {seed}: {problem}");
        let mut again = format!("cargo xtask random --graphs 1 --seed {seed}");
        if let (true, None) = (o.shrink, o.ops)
            && let Some((ops, problem)) = Checker::new(2).shrink(*seed)
        {
            again += &format!(" --ops {ops}");
            println!("  shortest: {problem}\n{}", Checker::text(*seed, Some(ops)));
        }
        println!("  again: {again}\n");
    }
    std::panic::set_hook(hook);
    let done = *locked(&total);
    println!(
        "{} graphs, {} bindings: {} runs as static graphs, {} through a stream, {} of them compared by bits; {} failed; {:.0} s",
        done.graphs,
        done.bindings,
        done.runs,
        done.streams,
        done.same,
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    ensure!(failures.is_empty(), "{} graphs failed", failures.len());
    Ok(())
}

fn locked<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
