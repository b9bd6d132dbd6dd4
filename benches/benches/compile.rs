//! What a new shape costs: bind, tile, encode, verify, predecode, plan memory. The launch is not part of it.

use criterion::{BenchmarkId, Criterion};
use dvm::Options;
use dvm_benches::{KERNELS, inputs, label};

fn main() -> anyhow::Result<()> {
    let mut c = Criterion::default().configure_from_args();
    for w in KERNELS {
        let mut group = c.benchmark_group(format!("compile/{}", w.name));
        for dims in w.dims {
            let (mut session, _) = w.session(dims, Options::default())?;
            let tensors = inputs(session.module(), dims)?;
            session.prepare(&tensors)?;
            group.bench_function(BenchmarkId::from_parameter(label(dims)), |b| {
                b.iter(|| {
                    session.forget_programs();
                    session.prepare(&tensors)
                });
            });
        }
        group.finish();
    }
    c.final_summary();
    Ok(())
}
