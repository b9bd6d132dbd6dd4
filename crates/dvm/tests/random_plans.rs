//! Random graphs, fused and not, compiled for machines large and tiny, run and compared with the reference evaluator.

#[path = "common/plans.rs"]
mod plans;

use dvm_bc::{Limits, Verified};
use dvm_fuse::FuseOptions;
use dvm_ir::testing::{Config, Rng, random_graph};
use dvm_ir::{Bindings, DimValues};
use dvm_npu::MachineSpec;
use dvm_tile::{Scratch, compile_plan};
use dvm_vm::BuildOptions;

const SEEDS: std::ops::Range<u64> = 0..120;

fn check(fuse: bool) {
    let specs = ["host-ref", "tiny", "tiny-npu", "ascend-910b2", "ascend-950"]
        .map(|s| MachineSpec::named(s).unwrap());
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
                    plans::run_on(2, &plan, bindings, &tensors, spec, &mut scratch, &BuildOptions::default());
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

/// Whatever the symbols are bound to, compiling ends with a program or an error that says why.
#[test]
fn hostile_dims() {
    let specs = ["host-ref", "tiny", "tiny-npu", "ascend-910b2", "ascend-950"]
        .map(|s| MachineSpec::named(s).unwrap());
    let mut scratch = Scratch::default();
    scratch.check(false);
    let mut rng = Rng::new(11);
    let values = [0, 1, 2, 3, 64, 1 << 16, (1 << 31) - 1, 1 << 40, 1 << 52, i64::MAX / 2, i64::MAX];
    let (mut programs, mut errors) = (0, 0);
    for seed in 0..150 {
        let random = random_graph(seed, &Config::default());
        let plan = dvm_fuse::plan(&random.graph, &FuseOptions::default()).unwrap();
        for _ in 0..6 {
            let mut bindings = Bindings::new();
            for (symbol, _) in plan.dims.symbols() {
                bindings.bind(symbol, rng.pick(&values)).unwrap();
            }
            let mut dims = DimValues::default();
            plan.dims.eval_all(&bindings, &mut dims);
            for spec in &specs {
                match compile_plan(&plan, &dims, spec, &mut scratch) {
                    Ok(c) => {
                        programs += 1;
                        let _ = Verified::new(c.program, &Limits::default());
                    }
                    Err(e) => {
                        errors += 1;
                        assert!(!e.to_string().is_empty());
                    }
                }
            }
        }
    }
    assert!(programs > 100 && errors > 100, "{programs} programs, {errors} errors");
}
