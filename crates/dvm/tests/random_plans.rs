//! Random graphs, fused and not, compiled for machines large and tiny, run and compared with the reference evaluator.

#[path = "common/plans.rs"]
mod plans;

use dvm_fuse::FuseOptions;
use dvm_ir::testing::{Config, random_graph};
use dvm_npu::MachineSpec;
use dvm_tile::Scratch;
use dvm_vm::BuildOptions;

const SEEDS: std::ops::Range<u64> = 0..120;

fn check(fuse: bool) {
    let specs = ["host-ref", "tiny", "ascend-910b2"].map(|s| MachineSpec::named(s).unwrap());
    let mut scratch = Scratch::default();
    let mut problems = vec![];
    for seed in SEEDS {
        let random = random_graph(seed, &Config::default());
        let options = FuseOptions { fuse, ..FuseOptions::default() };
        let plan = match dvm_fuse::plan(&random.graph, &options) {
            Ok(p) => p,
            Err(e) => {
                problems.push(format!("seed {seed}: {e}"));
                continue;
            }
        };
        for (i, bindings) in random.bindings.iter().enumerate() {
            let inputs = random.inputs(i, seed);
            // Integers may meet a zero divisor, which is an error everywhere.
            let Ok(want) = dvm_ir::eval::eval_graph(&random.graph, &inputs) else { continue };
            match dvm_ir::eval::eval_plan(&plan, &inputs) {
                Ok(got) if random.difference(&got, &want).is_none() => {}
                Ok(_) => {
                    problems.push(format!("seed {seed}, binding {i}: the plan is wrong"));
                    continue;
                }
                Err(e) => {
                    problems.push(format!("seed {seed}, binding {i}: plan: {e}"));
                    continue;
                }
            }
            let tensors: Vec<_> = inputs.into_iter().map(|(_, t)| t).collect();
            for spec in &specs {
                let got =
                    plans::run_plan(&plan, bindings, &tensors, spec, &mut scratch, &BuildOptions::default());
                let problem = match got {
                    Ok(got) => random.difference(&got, &want),
                    Err(e) => Some(e),
                };
                if let Some(p) = problem {
                    problems.push(format!("seed {seed}, binding {i}, {}: {p}", spec.target.name));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn fused() {
    check(true);
}

#[test]
fn not_fused() {
    check(false);
}
