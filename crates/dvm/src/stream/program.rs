//! A piece of a segment as a program: planned, tiled, encoded, verified and ready to launch.

use std::sync::Arc;
use std::time::Instant;

use dvm_bc::{Arg, Layout, Limits, Role, Verified};
use dvm_fuse::FuseOptions;
use dvm_ir::kernel::{Access, AxisSet, KInst, KOp, KStore, KValue, Operand};
use dvm_ir::plan::{Buffer, BufferId, BufferKind, Call, KernelId, Level, PlanOutput};
use dvm_ir::{Bindings, DType, Dim, DimTable, DimValues, Graph, Kernel, Plan};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch};
use dvm_vm::{Executable, Isa};
use smallvec::SmallVec;

use super::view::{View, dense};
use crate::Error;
use crate::engine::code_bytes;
use crate::launch::extents;

/// What an argument of a program is bound to.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    Input(u32),
    Output(u32),
    Constant(u32),
    /// A constant packed to panels.
    Packed(Arc<Vec<u8>>),
    Workspace,
    Ring,
    /// The input in whose memory an output is written: the argument of that output.
    Same(usize),
}

/// A part of a storage that an output of the graph is written to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) view: View,
    pub(crate) dtype: DType,
    /// Elements of the whole storage.
    pub(crate) len: usize,
    /// The graph input that is the storage, where the graph reads it.
    pub(crate) input: Option<u32>,
}

/// A program with what its arguments are.
pub(crate) struct Program {
    pub(crate) exe: Executable,
    pub(crate) plan: Plan,
    pub(crate) bindings: Vec<Binding>,
    /// Shapes of the outputs.
    pub(crate) shapes: Vec<Vec<usize>>,
    /// Outputs from this one on are written into storages.
    pub(crate) first_write: usize,
    pub(crate) workspace_bytes: usize,
    pub(crate) bytecode_bytes: usize,
    /// Units over all steps.
    pub(crate) kernels: usize,
    /// The kernel of each template.
    pub(crate) templates: Vec<KernelId>,
    pub(crate) plan_us: f64,
}

/// Memory reused from program to program.
#[derive(Default)]
pub(crate) struct Compiler {
    scratch: Scratch,
    values: DimValues,
}

impl Compiler {
    /// Plans and encodes a graph of constant extents. Its last outputs, one per target, are written to the targets.
    pub(crate) fn compile(
        &mut self,
        graph: &Graph,
        targets: &[Target],
        fuse: bool,
        spec: &MachineSpec,
    ) -> Result<Program, Error> {
        let start = Instant::now();
        let mut plan = dvm_fuse::plan(graph, &FuseOptions { fuse, ..FuseOptions::default() })?;
        let first_write = plan.outputs.len() - targets.len();
        add_writes(&mut plan, first_write, targets);
        let planned = Instant::now();
        plan.dims.eval_all(&Bindings::new(), &mut self.values);
        let mut compiled = dvm_tile::compile_plan(&plan, &self.values, spec, &mut self.scratch)?;
        let mut bindings = bind_constants(&plan, &compiled.arg_buffers)?;
        share_memory(&mut compiled.program, &mut bindings, first_write, targets);
        let named = |o: &PlanOutput| extents(&plan.dims, &o.name, &o.shape, &self.values);
        let shapes = plan.outputs.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        let bytecode_bytes = code_bytes(&compiled.program);
        let kernels = compiled.program.steps.iter().map(|s| s.units.len()).sum();
        let verified =
            Verified::new(compiled.program, &Limits::default()).map_err(|e| Error::Verify(e.to_string()))?;
        let exe = Executable::new(verified, Isa::detect()).map_err(|e| Error::Launch(e.to_string()))?;
        let workspace_bytes = usize::try_from(compiled.workspace_bytes).unwrap_or(usize::MAX);
        let templates = compiled.kernels;
        Ok(Program {
            exe,
            plan,
            bindings,
            shapes,
            first_write,
            workspace_bytes,
            bytecode_bytes,
            kernels,
            templates,
            plan_us: (planned - start).as_secs_f64() * 1e6,
        })
    }
}

/// Stores the outputs that are written to targets as intermediates, and copies them there after everything else has run:
/// what reads the old values comes first.
fn add_writes(plan: &mut Plan, first: usize, targets: &[Target]) {
    if targets.is_empty() {
        return;
    }
    let mut level = Level::default();
    for (i, target) in targets.iter().enumerate() {
        let o = first + i;
        let source = plan.outputs[o].buffer;
        plan.buffers[source.index()].kind = BufferKind::Temp;
        let len = plan.dims.constant(target.len as i64);
        let name = format!("{}.in_place", plan.outputs[o].name);
        let buffer = BufferId::new(plan.buffers.len());
        let kind = BufferKind::Output(o as u32);
        plan.buffers.push(Buffer { name: name.clone(), dtype: target.dtype, len, kind });
        plan.outputs[o] = PlanOutput { name, dtype: target.dtype, shape: vec![len], buffer };
        let kernel = write_kernel(&mut plan.dims, target, len);
        let id = match plan.kernels.iter().position(|k| *k == kernel) {
            Some(k) => KernelId::new(k),
            None => {
                plan.kernels.push(kernel);
                KernelId::new(plan.kernels.len() - 1)
            }
        };
        level.calls.push(plan.calls.len() as u32);
        plan.calls.push(Call { kernel: id, args: vec![source, buffer], nodes: vec![] });
    }
    plan.levels.push(level);
}

/// The kernel that copies a dense tensor into a part of a storage.
fn write_kernel(t: &mut DimTable, target: &Target, len: Dim) -> Kernel {
    let View { shape, offset, strides, .. } = &target.view;
    // (extent, stride of the source, stride of the storage), neighbours that are one axis in both merged.
    let mut axes: SmallVec<[(usize, i64, i64); 4]> = SmallVec::new();
    for ((&n, &s), &d) in shape.iter().zip(&dense(shape)).zip(strides).filter(|x| *x.0.0 != 1) {
        match axes.last_mut() {
            Some(a) if a.1 == s * n as i64 && a.2 == d * n as i64 => *a = (a.0 * n, s, d),
            _ => axes.push((n, s, d)),
        }
    }
    let source_len = shape.iter().product::<usize>();
    let mut at = |x: i64| t.constant(x);
    let from = Access { offset: Dim::ZERO, strides: axes.iter().map(|a| at(a.1)).collect() };
    let to = Access { offset: at(*offset), strides: axes.iter().map(|a| at(a.2)).collect() };
    let operand = |len, write| Operand { dtype: target.dtype, len, write, packable: false };
    let load = KOp::Load { operand: 0, access: from };
    let mask = AxisSet::first(axes.len());
    Kernel {
        name: "write".into(),
        axes: axes.iter().map(|a| at(a.0 as i64)).collect(),
        operands: vec![operand(at(source_len as i64), false), operand(len, true)],
        body: vec![KInst { op: load, dtype: target.dtype, mask }],
        stores: vec![KStore { operand: 1, access: to, value: KValue::new(0) }],
    }
}

fn bind_constants(plan: &Plan, args: &[ArgBinding]) -> Result<Vec<Binding>, Error> {
    let bind = |b: &ArgBinding| {
        Ok(match *b {
            ArgBinding::Input(i) => Binding::Input(i),
            ArgBinding::Output(o) => Binding::Output(o),
            ArgBinding::Workspace => Binding::Workspace,
            ArgBinding::Ring => Binding::Ring,
            ArgBinding::Constant { index, pack: None } => Binding::Constant(index),
            ArgBinding::Constant { index, pack: Some(pack) } => {
                let constant = &plan.constants[index as usize];
                let size = constant.dtype().size() as u32;
                let data = dvm_bc::layout::pack_panels(constant.bytes(), size, &pack.matrices, pack.nr)
                    .map_err(|e| Error::Launch(format!("constant {index}: {e}")))?;
                Binding::Packed(Arc::new(data))
            }
        })
    };
    args.iter().map(bind).collect()
}

/// Declares that outputs written in place have the memory, and with it the rest of the values, of an input.
fn share_memory(
    program: &mut dvm_bc::Program,
    bindings: &mut Vec<Binding>,
    first: usize,
    targets: &[Target],
) {
    for (i, target) in targets.iter().enumerate() {
        let o = (first + i) as u32;
        let Some(output) = bindings.iter().position(|b| matches!(b, Binding::Output(x) if *x == o)) else {
            continue;
        };
        let is_input = |b: &Binding| matches!(b, Binding::Input(x) if Some(*x) == target.input);
        let input = bindings.iter().position(is_input).unwrap_or_else(|| {
            let Arg { dtype, bytes, align, .. } = program.args[output];
            let name = format!("{}.before", program.args[output].name);
            program.args.push(Arg {
                name,
                role: Role::Input,
                dtype,
                bytes,
                align,
                layout: Layout::Plain,
                zero: false,
            });
            bindings.push(Binding::Same(output));
            bindings.len() - 1
        });
        program.args[output].zero = false;
        program.aliases.push((input as u32, output as u32));
        bindings[input] = Binding::Same(output);
    }
}
