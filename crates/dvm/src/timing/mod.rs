//! What a model would cost on a machine that is not at hand: compile for bound dims without any tensor, time the launch, and put host and
//! device on one clock. Weights may be extents without data ([`Tensor::shape_only`]).

mod chrome;
mod eager;
mod label;
mod page;
mod schedule;
mod sensitivity;
mod whole;

use std::sync::Arc;
use std::time::Instant;

use dvm_bc::Program;
use dvm_bc::bundle::Note;
use dvm_ir::{Bindings, DimValues, Graph, Plan, Tensor, bind};
use dvm_npu::MachineSpec;
use dvm_tile::{Compiled, Scratch, compile_plan};

use crate::{Error, Module, input_shapes};

pub use chrome::chrome_trace;
pub use dvm_npu::timing::{
    Cause, Constants, CoreTime, L2State, Memory, Options, PipeTime, Roofline, Span, Timing, TimingError,
    Trace, simulate,
};
pub use eager::{Sequence, eager};
pub use label::Labels;
pub use page::html_page;
pub use schedule::{Busy, HostCosts, Launch, Schedule, schedule, steady_us};
pub use sensitivity::{Confidence, Moved, confidence, sensitivity, unit};
pub use whole::{Row, compare, launches_of};

/// A plan compiled for bound dims: one launch.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The source.
    pub graph: Arc<Graph>,
    /// Its kernels.
    pub plan: Arc<Plan>,
    /// The program, and what the tiler decided.
    pub compiled: Compiled,
    /// Bound symbols by name.
    pub dims: Vec<(String, i64)>,
    /// Values of the plan's dims.
    pub values: DimValues,
    /// From bound dims to bytecode on this host, µs; the least of a few repetitions.
    pub compile_us: f64,
    /// Fusion, µs; 0 where it had been done.
    pub plan_us: f64,
}

/// Repetitions of a compile that are timed, and the time after which none is added.
const REPEATS: usize = 5;
const ENOUGH_US: f64 = 200_000.0;

/// Compiles a model for bound dims and a machine. Inputs matter only where they decide the model's structure.
///
/// # Errors
/// Symbols without a value, dims that the model does not allow, a graph with controls (its parts are several programs), or what the
/// compiler refuses.
pub fn prepare(
    module: &Module,
    inputs: &[(String, Tensor)],
    dims: &[(String, i64)],
    spec: &MachineSpec,
    fuse: bool,
) -> Result<Prepared, Error> {
    let variant = module.variant(inputs, dims)?;
    let graph = variant.graph.clone();
    if let Some(c) = graph.controls.first() {
        return Err(Error::Launch(format!("{c}: the host executes this between two launches, one is timed")));
    }
    let (plan, plan_us) = variant.plan(fuse)?;
    // For its messages: everything that a symbol is bound by is there.
    let remaining = variant.remaining(inputs);
    input_shapes(&graph, &remaining, dims)?;
    let mut bindings = crate::launch::bind_given(&graph, &remaining)?;
    for (name, value) in dims {
        // One that an input binds too was compared with it.
        if let Some(symbol) = graph.dims.find_symbol(name) {
            let _ = bindings.bind(symbol, *value);
        }
    }
    let dims = crate::session::named(&graph.dims, &bindings);
    compile(graph, plan, dims, spec, plan_us)
}

fn compile(
    graph: Arc<Graph>,
    plan: Arc<Plan>,
    dims: Vec<(String, i64)>,
    spec: &MachineSpec,
    plan_us: f64,
) -> Result<Prepared, Error> {
    let mut bindings = Bindings::new();
    for (name, value) in &dims {
        // Symbols that the plan lost matter no more.
        if let Some(symbol) = plan.dims.find_symbol(name) {
            let _ = bindings.bind(symbol, *value);
        }
    }
    let mut values = DimValues::default();
    let mut scratch = Scratch::default();
    let mut made: Option<Compiled> = None;
    let (mut compile_us, mut spent) = (f64::INFINITY, 0.0);
    for i in 0..REPEATS {
        // Checked once: checks are no part of a compile.
        scratch.check(dvm_tile::CHECKS && i == 0);
        let start = Instant::now();
        plan.dims.eval_all(&bindings, &mut values);
        bind::test(&plan.dims, &plan.checks, &values)?;
        let compiled = compile_plan(&plan, &values, spec, &mut scratch)?;
        let us = start.elapsed().as_secs_f64() * 1e6;
        (compile_us, spent) = (us.min(compile_us), spent + us);
        made = Some(compiled);
        if spent > ENOUGH_US {
            break;
        }
    }
    let Some(compiled) = made else { return Err(Error::Launch("nothing was compiled".into())) };
    Ok(Prepared { graph, plan, compiled, dims, values, compile_us, plan_us })
}

impl Prepared {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.compiled.program
    }
    /// Bytes of encoded instructions.
    #[must_use]
    pub fn code_bytes(&self) -> usize {
        crate::engine::code_bytes(&self.compiled.program)
    }
    /// What each instruction is for, as bundles keep it.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = vec![];
        for (t, (tiling, kernel)) in self.compiled.tilings.iter().zip(&self.compiled.kernels).enumerate() {
            let kernel = &self.plan.kernels[kernel.index()];
            notes.extend((0..tiling.notes.len()).filter_map(|i| {
                let (template, instruction) = (t as u32, i as u32);
                Some(Note { program: 0, template, instruction, text: tiling.note(kernel, i)? })
            }));
        }
        notes
    }
    /// The graph's ops that each template computes, of the first call that uses it.
    #[must_use]
    pub fn ops(&self) -> Vec<Vec<String>> {
        let first = |k| self.plan.calls.iter().find(|c| c.kernel == k);
        let name = |n: &dvm_ir::NodeId| {
            let Some(node) = self.graph.nodes.get(n.index()) else { return "copy".to_owned() };
            let value = self.graph.value(node.output).name.as_deref();
            match node.name.as_deref().or(value).filter(|n| !n.is_empty()) {
                Some(name) => format!("{} {name}", node.op.mnemonic()),
                None => node.op.mnemonic().to_owned(),
            }
        };
        let ops = |&k| first(k).map_or_else(Vec::new, |c| c.nodes.iter().map(name).collect());
        self.compiled.kernels.iter().map(ops).collect()
    }
}
