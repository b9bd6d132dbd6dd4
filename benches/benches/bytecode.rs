//! What the bytecode itself costs: encoding, verifying and predecoding a template of 40 instructions. The budgets are 2 µs for
//! encoding, and 5 µs for verifying and predecoding together.

use std::time::Instant;

use anyhow::ensure;
use criterion::{BatchSize, Criterion, Throughput};
use dvm_bc::{Limits, Verified};
use dvm_benches::template::{encode, instructions, program};
use dvm_npu::MachineSpec;
use dvm_vm::{Executable, Isa};

/// Least microseconds of a call, over batches of calls whose inputs are made before and whose results are dropped after.
fn least<I, O>(mut make: impl FnMut() -> I, mut call: impl FnMut(I) -> O) -> f64 {
    const BATCH: usize = 16;
    let batch = |_| {
        let inputs: Vec<I> = (0..BATCH).map(|_| make()).collect();
        let mut outputs = Vec::with_capacity(BATCH);
        let started = Instant::now();
        outputs.extend(inputs.into_iter().map(&mut call));
        let took = started.elapsed().as_nanos() as f64 / BATCH as f64;
        drop(outputs);
        took / 1000.0
    };
    (0..2000).map(batch).fold(f64::INFINITY, f64::min)
}

fn main() -> anyhow::Result<()> {
    let target = MachineSpec::named("host-ref")?.target;
    let insts = instructions(&target);
    ensure!(insts.len() == 40, "the template has {} instructions", insts.len());
    let program = program(&target, encode(&insts)?);
    let limits = Limits::default();
    let verified = Verified::new(program.clone(), &limits)?;
    let bytes = 8 * program.templates[0].phases[0].sections[0].code.words().len();
    println!("40 instructions of {} bytes on average", bytes as f64 / 40.0);

    let isa = Isa::detect();
    // Criterion's figures are means; on a machine with neighbours the least of many short batches says more.
    println!("least of many: encode {:.2} µs", least(|| (), |()| encode(&insts)));
    let verify = least(|| program.clone(), |p| Verified::new(p, &limits));
    println!("least of many: verify {verify:.2} µs");
    let predecode = least(|| verified.clone(), |v| Executable::new(v, isa));
    println!("least of many: predecode {predecode:.2} µs, with verify {:.2} µs", verify + predecode);

    let mut c = Criterion::default().configure_from_args();
    let mut group = c.benchmark_group("bytecode/40");
    group.throughput(Throughput::Elements(40));
    group.bench_function("encode", |b| b.iter(|| encode(&insts)));
    group.bench_function("verify", |b| {
        b.iter_batched(|| program.clone(), |p| Verified::new(p, &limits), BatchSize::SmallInput);
    });
    group.bench_function("predecode", |b| {
        b.iter_batched(|| verified.clone(), |v| Executable::new(v, isa), BatchSize::SmallInput);
    });
    group.bench_function("verify+predecode", |b| {
        b.iter_batched(
            || program.clone(),
            |p| Verified::new(p, &limits).map(|v| Executable::new(v, isa)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
    c.final_summary();
    Ok(())
}
