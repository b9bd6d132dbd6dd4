//! The programs under review, on every machine: what they compute is what the evaluator says.

#[path = "common/plans.rs"]
mod plans;

use dvm::compare::{Tolerance, compare};
use dvm::testing::CASES;
use dvm_ir::{DimValues, Scalar, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::Scratch;
use dvm_vm::BuildOptions;

/// Elements of a graph's inputs that the evaluator is quick with.
const QUICK: usize = 1 << 18;

fn input(name: &str, dtype: dvm_ir::DType, shape: &[usize]) -> Tensor {
    let mut t = dvm::fill::fill(name, dtype, shape).unwrap();
    // Integers are divisors and indices.
    if !dtype.is_float() {
        (0..t.len()).for_each(|i| t.set(i, Scalar::Int(t.get(i).as_i64().max(1))));
    }
    t
}

#[test]
fn values_on_every_machine() {
    let mut scratch = Scratch::default();
    let (mut problems, mut large) = (vec![], 0);
    for case in CASES {
        for dims in [case.small, case.dims] {
            let reference = MachineSpec::named("host-ref").unwrap();
            let c = case.compile_for(dims, &reference).unwrap_or_else(|e| panic!("{e}"));
            let mut values = DimValues::default();
            c.graph.dims.eval_all(&c.bindings, &mut values);
            let shape = |v| -> Vec<usize> {
                c.graph.shape(v).iter().map(|&d| values.extent(d).unwrap() as usize).collect()
            };
            let shapes: Vec<_> = c.graph.inputs.iter().map(|i| shape(i.value)).collect();
            if shapes.iter().map(|s| s.iter().product::<usize>()).sum::<usize>() > QUICK {
                continue;
            }
            large += usize::from(dims == case.dims);
            let inputs: Vec<(String, Tensor)> = c
                .graph
                .inputs
                .iter()
                .zip(&shapes)
                .map(|(i, s)| (i.name.clone(), input(&i.name, c.graph.dtype(i.value), s)))
                .collect();
            let want = dvm_ir::eval::eval_graph(&c.graph, &inputs).unwrap();
            let tensors: Vec<Tensor> = inputs.into_iter().map(|(_, t)| t).collect();
            for machine in MachineSpec::NAMES {
                let spec = MachineSpec::named(machine).unwrap();
                let options = BuildOptions::default();
                let got = plans::run_on(2, &c.plan, &c.bindings, &tensors, &spec, &mut scratch, &options);
                let mut problem =
                    |what: String| problems.push(format!("{} ({dims}) on {machine}: {what}", case.name));
                match got {
                    Ok(got) => {
                        for ((got, want), out) in got.iter().zip(&want).zip(&c.graph.outputs) {
                            let half = got.dtype().size() == 2;
                            let tol = if half { 2e-2 } else { 1e-4 };
                            if let Err(d) = compare(got, want, Tolerance { rtol: tol, atol: tol }) {
                                problem(format!("{} {d}", out.name));
                            }
                        }
                    }
                    Err(e) => problem(e),
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(large > 20, "{large} cases are compared at the snapshot's dims");
}
