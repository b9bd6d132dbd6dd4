//! Programs that the compiler makes of random graphs: the machine, between guard pages, gives the reference's bits.
#![cfg(unix)]

use dvm_bc::testing::fuzz::compare;
use dvm_bc::{Limits, Role, Verified, disasm, layout::pack_panels};
use dvm_fuse::FuseOptions;
use dvm_ir::DimValues;
use dvm_ir::testing::{Config, random_graph};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch, compile_plan};
use dvm_vm::testing::Vm;

const SEEDS: std::ops::Range<u64> = 0..40;

#[test]
fn compiled_programs_run_as_the_reference_says() {
    let specs = ["host-ref", "tiny", "ascend-910b2"].map(|s| MachineSpec::named(s).unwrap());
    let vm = Vm::default();
    // What is long to interpret is left to the other tests.
    let mut limits = Limits::default();
    limits.elements = 1 << 18;
    let mut scratch = Scratch::default();
    let (mut compared, mut problems) = (0, vec![]);
    for seed in SEEDS {
        let random = random_graph(seed, &Config::default());
        let options = FuseOptions { fuse: seed % 3 != 0, ..FuseOptions::default() };
        let plan = dvm_fuse::plan(&random.graph, &options).unwrap();
        for (i, bindings) in random.bindings.iter().enumerate() {
            let inputs = random.inputs(i, seed);
            let mut values = DimValues::default();
            plan.dims.eval_all(bindings, &mut values);
            for spec in &specs {
                let compiled = compile_plan(&plan, &values, spec, &mut scratch).unwrap();
                let Ok(program) = Verified::new(compiled.program.clone(), &limits) else { continue };
                let args: Vec<Vec<u8>> = compiled
                    .arg_buffers
                    .iter()
                    .zip(&program.args)
                    .map(|(b, arg)| match b {
                        ArgBinding::Input(i) => inputs[*i as usize].1.bytes().to_vec(),
                        ArgBinding::Constant { index, pack: Some(p) } => {
                            let t = &plan.constants[*index as usize];
                            pack_panels(t.bytes(), t.dtype().size() as u32, &p.matrices, p.nr).unwrap()
                        }
                        ArgBinding::Constant { index, .. } => {
                            plan.constants[*index as usize].bytes().to_vec()
                        }
                        _ => {
                            debug_assert!(!matches!(arg.role, Role::Input | Role::Weight), "bound above");
                            vec![0x7f; arg.bytes as usize]
                        }
                    })
                    .collect();
                match compare(&program, &args, &vm) {
                    Ok(Some(_)) => compared += 1,
                    Ok(None) => problems.push(format!("seed {seed}: no kernel\n{}", disasm(&program))),
                    Err(e) => {
                        let name = &spec.target.name;
                        problems.push(format!("seed {seed}, binding {i}, {name}: {e}\n{}", disasm(&program)));
                    }
                }
            }
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems\n{}",
        problems.len(),
        problems[..problems.len().min(3)].join("\n")
    );
    assert!(compared > 100, "{compared} programs");
}
