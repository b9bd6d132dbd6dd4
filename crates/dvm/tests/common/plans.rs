//! From a plan to values: compile, verify, bind, launch.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use dvm_bc::{Limits, Verified, layout::pack_panels};
use dvm_ir::{Bindings, DType, DimValues, Plan, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch, compile_plan};
use dvm_vm::{ArgRef, BuildOptions, Executable, Pool, Runtime};

/// The outputs of a plan for inputs in order on a pool of so many workers, or what went wrong.
pub(crate) fn run_on(
    workers: usize,
    plan: &Plan,
    bindings: &Bindings,
    inputs: &[Tensor],
    spec: &MachineSpec,
    scratch: &mut Scratch,
    options: &BuildOptions,
) -> Result<Vec<Tensor>, String> {
    let mut values = DimValues::default();
    plan.dims.eval_all(bindings, &mut values);
    // Reported below, with the seed.
    scratch.check(false);
    let compiled = compile_plan(plan, &values, spec, scratch).map_err(|e| format!("compile: {e}"))?;
    let program = Verified::new(compiled.program.clone(), &Limits::default()).map_err(|e| {
        let tilings: Vec<String> = compiled.tilings.iter().map(ToString::to_string).collect();
        format!("verify: {e}\n{}\n{}", tilings.join("\n"), plan)
    })?;
    let hazards = dvm_npu::hazard::prove(&program);
    if !hazards.is_sound() {
        return Err(format!("{hazards}\n{}", dvm_bc::disasm(&program)));
    }
    let exe = Executable::with_options(program, options).map_err(|e| e.to_string())?;
    let mut outputs = vec![];
    for o in &plan.outputs {
        let shape: Vec<usize> = o.shape.iter().map(|&d| values.extent(d).unwrap() as usize).collect();
        outputs.push(Tensor::zeros(o.dtype, &shape).unwrap());
    }
    // Rubbish in what nobody wrote yet shows reads before writes.
    let n = compiled.workspace_bytes as usize;
    let mut workspace = Tensor::zeros(DType::U8, &[n + 64]).unwrap();
    let words = workspace.bytes_mut();
    words.fill(0x7f);
    let skip = words.as_ptr().align_offset(64);
    let mut workspace = Some(&mut words[skip..skip + n]);
    let packed: Vec<Option<Tensor>> = compiled
        .arg_buffers
        .iter()
        .map(|b| match b {
            ArgBinding::Constant { index, pack: Some(p) } => {
                let t = &plan.constants[*index as usize];
                let bytes = pack_panels(t.bytes(), t.dtype().size() as u32, &p.matrices, p.nr).unwrap();
                Some(Tensor::from_bytes(DType::U8, &[bytes.len()], &bytes).unwrap())
            }
            _ => None,
        })
        .collect();
    let mut out = outputs.iter_mut().map(Some).collect::<Vec<_>>();
    let mut args = vec![];
    for (b, packed) in compiled.arg_buffers.iter().zip(&packed) {
        args.push(match b {
            ArgBinding::Input(i) => ArgRef::In(inputs[*i as usize].bytes()),
            ArgBinding::Output(i) => ArgRef::Out(out[*i as usize].take().unwrap().bytes_mut()),
            ArgBinding::Constant { index, .. } => match packed {
                Some(p) => ArgRef::In(p.bytes()),
                None => ArgRef::In(plan.constants[*index as usize].bytes()),
            },
            ArgBinding::Workspace => ArgRef::Out(workspace.take().unwrap()),
            ArgBinding::Ring => ArgRef::Ring,
        });
    }
    let runtime = Runtime::new(Arc::new(Pool::new(workers)));
    runtime.launch(&exe, &mut args).map_err(|e| format!("launch: {e}"))?;
    drop(args);
    Ok(outputs)
}
