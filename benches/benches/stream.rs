//! What eager tensors cost: an op call, a new segment, and how much of the compile time is hidden behind the runs.

use criterion::{BatchSize, Criterion};
use dvm::stream::Tensor;
use dvm::{Error, Options, Stream};

fn stream(threads: usize, overlap: bool) -> Stream {
    let mut options = Options::default();
    options.threads = Some(threads);
    options.overlap = overlap;
    Stream::new(options)
}

/// Ten ops and their two constants' worth of a chain; `seed` makes its constants new, so that no program is met again.
fn segment(x: &Tensor, y: &Tensor, seed: f64) -> Result<Tensor, Error> {
    let mut v = (x + y)?;
    for i in 0..3 {
        v = (v.sigmoid()? * (seed + f64::from(i)))?;
        v = (v + y)?;
    }
    (v.tanh()? - seed)?.maximum(y)
}

fn main() -> Result<(), Error> {
    let mut c = Criterion::default().configure_from_args();
    let s = stream(1, false);
    let x = s.tensor(&[64, 300], &vec![0.5f32; 64 * 300])?;
    let y = s.tensor(&[64, 300], &vec![0.25f32; 64 * 300])?;
    let mut group = c.benchmark_group("stream");
    // An op call without what the flushes in between cost: 200 calls, then a flush that finds nobody interested.
    type Call = fn(&Tensor, &Tensor) -> Result<Tensor, Error>;
    let calls: [(&str, Call); 6] = [
        ("add", |x, y| x + y),
        ("exp", |x, _| x.exp()),
        ("scale", |x, _| x * 2.0),
        ("sum", |x, _| x.sum(1)),
        ("softmax", |x, _| x.softmax(-1)),
        ("matmul_t", |x, y| x.matmul_t(y)),
    ];
    for (name, call) in calls {
        group.throughput(criterion::Throughput::Elements(200));
        group.bench_function(format!("200 calls/{name}"), |b| {
            b.iter_batched(
                || s.flush(),
                |_| (0..200).try_for_each(|_| call(&x, &y).map(drop)),
                BatchSize::PerIteration,
            );
        });
    }
    let mut seed = 1.0;
    group.throughput(criterion::Throughput::Elements(1));
    let mut least = [f64::MAX; 2];
    for _ in 0..2000 {
        seed += 1.0;
        let v = segment(&x, &y, seed)?;
        s.sync()?;
        let flush = s.last_flush();
        least = [least[0].min(flush.plan_us), least[1].min(flush.compile_us)];
        drop(v);
    }
    println!(
        "a new segment of 12 ops: {:.1} µs, of which fusing {:.1} µs (least of 2000)",
        least[1], least[0]
    );
    group.bench_function("segment met before", |b| {
        b.iter(|| {
            let v = segment(&x, &y, 0.5)?;
            s.sync()?;
            Ok::<_, Error>(v)
        });
    });
    // Ten segments in a row, each on the result of the last.
    for (rows, overlap) in [(64, true), (64, false), (512, true), (512, false)] {
        let s = stream(2, overlap);
        let x = s.tensor(&[rows, 300], &vec![0.5f32; rows * 300])?;
        let y = s.tensor(&[rows, 300], &vec![0.25f32; rows * 300])?;
        let mut runs = vec![];
        for _ in 0..200 {
            let before = s.report();
            let start = std::time::Instant::now();
            let mut v = x.clone();
            for _ in 0..10 {
                seed += 1.0;
                v = segment(&v, &y, seed)?;
                s.flush()?;
            }
            s.sync()?;
            let took = start.elapsed().as_secs_f64() * 1e6;
            let after = s.report();
            let compile = after.compile_us - before.compile_us;
            let exposed = after.exposed_compile_us - before.exposed_compile_us;
            runs.push((exposed / compile, compile, took, after.run_us - before.run_us));
        }
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Where other processes take the cores, the helper is not scheduled in time: the quiet runs tell.
        for (what, i) in [("best", 0), ("tenth", runs.len() / 10), ("median", runs.len() / 2)] {
            let (share, compile, took, run) = runs[i];
            println!(
                "10 segments of {rows} x 300, overlap {overlap}, {what}: {:.0} % of {compile:.0} µs compile time exposed; {took:.0} µs in all, {run:.0} µs of runs",
                share * 100.0
            );
        }
    }
    group.finish();
    c.final_summary();
    Ok(())
}
