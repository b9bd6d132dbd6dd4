//! What the bytecode itself costs: encoding, verifying and predecoding a template of 40 instructions. The budgets are 2 µs for
//! encoding, and 5 µs for verifying and predecoding together.

use anyhow::ensure;
use criterion::{BatchSize, Criterion, Throughput};
use dvm_bc::{Limits, Verified};
use dvm_benches::template::{encode, instructions, program};
use dvm_npu::MachineSpec;
use dvm_vm::{Executable, Isa};

fn main() -> anyhow::Result<()> {
    let target = MachineSpec::named("host-ref")?.target;
    let insts = instructions(&target);
    ensure!(insts.len() == 40, "the template has {} instructions", insts.len());
    let program = program(&target, encode(&insts)?);
    let limits = Limits::default();
    let verified = Verified::new(program.clone(), &limits)?;
    let bytes = 8 * program.templates[0].phases[0].sections[0].code.words().len();
    println!("40 instructions of {} bytes on average", bytes as f64 / 40.0);

    let mut c = Criterion::default().configure_from_args();
    let mut group = c.benchmark_group("bytecode/40");
    group.throughput(Throughput::Elements(40));
    group.bench_function("encode", |b| b.iter(|| encode(&insts)));
    let isa = Isa::detect();
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
