//! What a run costs once its shape is known: every core, warm caches, inputs and outputs reused.

use criterion::{BenchmarkId, Criterion};
use dvm::{Options, Outputs};
use dvm_benches::{KERNELS, label};

fn main() -> anyhow::Result<()> {
    let mut c = Criterion::default().configure_from_args();
    for w in KERNELS {
        let mut group = c.benchmark_group(format!("run/{}", w.name));
        for dims in w.dims {
            let (mut session, inputs) = w.session(dims, Options::default())?;
            let mut outputs = Outputs::new();
            session.run_into(&inputs, &mut outputs)?;
            group.bench_function(BenchmarkId::from_parameter(label(dims)), |b| {
                b.iter(|| session.run_into(&inputs, &mut outputs));
            });
        }
        group.finish();
    }
    c.final_summary();
    Ok(())
}
