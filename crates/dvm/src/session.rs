//! A session: one model on one machine, any shapes.
//!
//! A run binds the symbols from its inputs' shapes, looks the program for these dims up (or tiles, encodes, verifies and
//! predecodes it, in microseconds), and launches it. Nothing is planned again and nothing is specialised: sizes 0 and 1
//! are ordinary values.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dvm_bc::{Limits, Verified};
use dvm_ir::{Bindings, DimValues, Plan, Tensor, bind};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch};
use dvm_vm::{ArgRef, Control, Executable, Isa, Pool, Runtime};

use crate::launch::{bytes_of, extents, fit_outputs};
use crate::module::Variant;
use crate::{Error, Module, Options, RunReport};

/// Named outputs of a run, in the model's order.
pub type Outputs = indexmap::IndexMap<String, Tensor>;

/// Runs one [`Module`] for whatever shapes it meets. `Send`; sessions of one module share its weights.
pub struct Session {
    module: Module,
    options: Options,
    spec: MachineSpec,
    runtime: Arc<Runtime>,
    states: Vec<State>,
    workspace: Vec<u64>,
    scratch: Scratch,
    bindings: Bindings,
    values: DimValues,
    /// Planning done by the constructor, not yet reported.
    planned_us: f64,
    cancel: Arc<AtomicBool>,
    report: RunReport,
}

/// Index of a state, and the inputs its graph has.
type Settled<'a> = (usize, Cow<'a, [(String, Tensor)]>);

/// What a session keeps per structural variant of its model.
struct State {
    variant: Arc<Variant>,
    plan: Arc<Plan>,
    /// Encoded programs by bound symbols, least recently used first.
    cache: indexmap::IndexMap<Bindings, Arc<Encoded>, rustc_hash::FxBuildHasher>,
}

/// A program and the plan it belongs to.
pub(crate) struct Ready {
    pub(crate) plan: Arc<Plan>,
    pub(crate) encoded: Arc<Encoded>,
}

/// A program for one set of dims, ready to launch.
pub(crate) struct Encoded {
    pub(crate) exe: Executable,
    pub(crate) args: Vec<ArgBinding>,
    pub(crate) weights: Vec<Option<Arc<Vec<u8>>>>,
    pub(crate) outputs: Vec<Vec<usize>>,
    pub(crate) workspace_bytes: usize,
    pub(crate) bytecode_bytes: usize,
    pub(crate) kernels: usize,
    /// By template.
    pub(crate) tilings: Vec<dvm_tile::Tiling>,
    pub(crate) kernel_ids: Vec<dvm_ir::plan::KernelId>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("module", &self.module)
            .field("target", &self.spec.target.name)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session with its own worker threads.
    ///
    /// # Errors
    /// Never for a model without structural inputs that was loaded without error, except for fusion errors.
    pub fn new(module: &Module, options: Options) -> Result<Session, Error> {
        let runtime = Arc::new(Runtime::new(Arc::new(Pool::new(options.thread_count()))));
        Session::with_runtime(module, options, runtime)
    }
    /// A session on a runtime that is shared with others, so that they do not oversubscribe the cores.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_runtime(module: &Module, options: Options, runtime: Arc<Runtime>) -> Result<Session, Error> {
        let spec = options.machine();
        let mut session = Session {
            module: module.clone(),
            options,
            spec,
            runtime,
            states: vec![],
            workspace: vec![],
            scratch: Scratch::default(),
            bindings: Bindings::new(),
            values: DimValues::default(),
            planned_us: 0.0,
            cancel: Arc::default(),
            report: RunReport::default(),
        };
        if module.structural().is_empty() {
            // The run that follows reports it.
            session.planned_us = session.state(&[])?.1;
        }
        Ok(session)
    }
    /// The runtime, to be shared with other sessions.
    #[must_use]
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
    /// The model.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// The options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }
    /// The machine programs are compiled for.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }
    /// Setting this flag, from any thread, stops the run in progress (and every later one until it is cleared).
    #[must_use]
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }
    /// What the last run did and cost.
    #[must_use]
    pub fn last_run(&self) -> &RunReport {
        &self.report
    }

    /// Index of the state for these inputs, made on first use.
    fn state(&mut self, inputs: &[(String, Tensor)]) -> Result<(usize, f64), Error> {
        let variant = self.module.variant(inputs, &[])?;
        if let Some(i) = self.states.iter().position(|s| Arc::ptr_eq(&s.variant, &variant)) {
            return Ok((i, 0.0));
        }
        let (plan, plan_us) = variant.plan(self.options.fuse)?;
        if self.states.len() >= self.options.cache.max(1) {
            self.states.remove(0);
        }
        self.states.push(State { variant, plan, cache: indexmap::IndexMap::default() });
        Ok((self.states.len() - 1, plan_us))
    }

    /// Runs the model. Inputs come in any order; shapes may be any that are consistent with the model's symbols.
    ///
    /// # Errors
    /// Inputs that do not fit the signature, dims that violate a fact the graph relies on, a data-dependent trap (an index out
    /// of range, an integer division by zero), or too much memory. No output of a failed run is returned.
    pub fn run<N: Into<String>>(
        &mut self,
        inputs: impl IntoIterator<Item = (N, Tensor)>,
    ) -> Result<Outputs, Error> {
        let inputs: Vec<(String, Tensor)> = inputs.into_iter().map(|(n, t)| (n.into(), t)).collect();
        let mut outputs = Outputs::new();
        self.run_into(&inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Session::run`], into tensors that are reused where dtype and shape still fit.
    ///
    /// # Errors
    /// As [`Session::run`]; the outputs are then empty.
    pub fn run_into(&mut self, inputs: &[(String, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let result = self.run_inner(inputs, outputs);
        if result.is_err() {
            outputs.clear();
        }
        result
    }

    /// Makes the program for these inputs' shapes ready without running it; [`Session::last_run`] then holds its cost.
    ///
    /// # Errors
    /// As [`Session::run`], without the traps.
    pub fn prepare(&mut self, inputs: &[(String, Tensor)]) -> Result<(), Error> {
        self.compiled(inputs).map(drop)
    }
    /// The program for these inputs, with its cost in the report.
    pub(crate) fn compiled(&mut self, inputs: &[(String, Tensor)]) -> Result<Ready, Error> {
        let (at, inputs) = self.settle(inputs)?;
        let (ready, report) = self.ready(at, &inputs)?;
        self.report = report;
        Ok(ready)
    }
    /// Forgets every encoded program. Plans and packed weights stay.
    pub fn forget_programs(&mut self) {
        self.states.iter_mut().for_each(|s| s.cache.clear());
    }

    fn run_inner(&mut self, inputs: &[(String, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let (at, inputs) = self.settle(inputs)?;
        let (ready, mut report) = self.ready(at, &inputs)?;
        let ordered = bind::in_order(bind::plan_inputs(&ready.plan), &inputs)?;
        self.launch(&ready, &ordered, outputs, &mut report)?;
        self.report = report;
        Ok(())
    }

    /// The state for these inputs, and the inputs its graph still has.
    fn settle<'a>(&mut self, inputs: &'a [(String, Tensor)]) -> Result<Settled<'a>, Error> {
        let (at, plan_us) = self.state(inputs)?;
        self.planned_us += plan_us;
        let all = self.module.structural().is_empty();
        Ok((at, if all { Cow::Borrowed(inputs) } else { self.states[at].variant.remaining(inputs).into() }))
    }

    /// The program for these inputs, from the cache or encoded now.
    fn ready(&mut self, at: usize, inputs: &[(String, Tensor)]) -> Result<(Ready, RunReport), Error> {
        let plan = self.states[at].plan.clone();
        let mut report = RunReport { plan_us: std::mem::take(&mut self.planned_us), ..RunReport::default() };
        let ordered = bind::in_order(bind::plan_inputs(&plan), inputs)?;
        let given = ordered.iter().map(|&t| bind::Given::from(t));
        let pairs = bind::plan_inputs(&plan).zip(given);
        let start = Instant::now();
        bind::bind(&plan.dims, &plan.checks, pairs, &mut self.bindings, &mut self.values)?;
        report.dims = plan
            .dims
            .symbols()
            .filter_map(|(s, name)| Some((name.to_string(), self.bindings.get(s)?)))
            .collect();
        let encoded = if let Some(encoded) = self.states[at].cache.shift_remove(&self.bindings) {
            report.cache_hit = true;
            encoded
        } else {
            let mut packing_us = 0.0;
            let encoded = Arc::new(self.encode(at, &plan, &mut packing_us)?);
            report.compile_us = start.elapsed().as_secs_f64() * 1e6 - packing_us;
            report.plan_us += packing_us;
            encoded
        };
        report.kernels = encoded.kernels;
        report.bytecode_bytes = encoded.bytecode_bytes;
        let cache = &mut self.states[at].cache;
        while cache.len() >= self.options.cache.max(1) {
            cache.shift_remove_index(0);
        }
        cache.insert(self.bindings.clone(), encoded.clone());
        Ok((Ready { plan, encoded }, report))
    }

    /// Tiles, encodes, verifies and predecodes the plan for bound dims.
    fn encode(&mut self, at: usize, plan: &Plan, packing_us: &mut f64) -> Result<Encoded, Error> {
        let _span = tracing::debug_span!("encode", model = self.module.name()).entered();
        self.scratch.check(self.options.check);
        let compiled = dvm_tile::compile_plan(plan, &self.values, &self.spec, &mut self.scratch)?;
        let outputs = plan
            .outputs
            .iter()
            .map(|o| extents(&plan.dims, &o.name, &o.shape, &self.values))
            .collect::<Result<Vec<_>, _>>()?;
        let bytecode_bytes = code_bytes(&compiled.program);
        let kernels = compiled.program.steps.iter().map(|s| s.units.len()).sum();
        let verified =
            Verified::new(compiled.program, &Limits::default()).map_err(|e| Error::Verify(e.to_string()))?;
        let exe = Executable::new(verified, Isa::detect()).map_err(|e| Error::Launch(e.to_string()))?;
        let mut weights = Vec::with_capacity(compiled.arg_buffers.len());
        for binding in &compiled.arg_buffers {
            weights.push(match *binding {
                ArgBinding::Constant { index, pack: Some(pack) } => {
                    let (data, us) = self.states[at].variant.packed(plan, index, pack)?;
                    *packing_us += us;
                    Some(data)
                }
                _ => None,
            });
        }
        let workspace_bytes = usize::try_from(compiled.workspace_bytes).unwrap_or(usize::MAX);
        Ok(Encoded {
            exe,
            args: compiled.arg_buffers,
            weights,
            outputs,
            workspace_bytes,
            bytecode_bytes,
            kernels,
            tilings: compiled.tilings,
            kernel_ids: compiled.kernels,
        })
    }

    fn launch(
        &mut self,
        Ready { plan, encoded }: &Ready,
        inputs: &[&Tensor],
        outputs: &mut Outputs,
        report: &mut RunReport,
    ) -> Result<(), Error> {
        let out = |(o, s): (&dvm_ir::plan::PlanOutput, &Vec<usize>)| {
            s.iter().fold(o.dtype.size(), |n, &d| n.saturating_mul(d))
        };
        let io =
            inputs.iter().map(|t| t.bytes().len()).chain(plan.outputs.iter().zip(&encoded.outputs).map(out));
        let needs = io.fold(encoded.workspace_bytes, usize::saturating_add) as u64;
        if needs > self.options.max_bytes {
            let step = format!("`{}` with its inputs and outputs", plan.name);
            return Err(Error::Memory { step, needs, limit: self.options.max_bytes });
        }
        fit_outputs(plan, &encoded.outputs, outputs)?;
        let words = encoded.workspace_bytes.div_ceil(8);
        if self.workspace.len() < words {
            self.workspace = vec![0; words];
        }
        let mut workspace = Some(bytes_of(&mut self.workspace[..words], encoded.workspace_bytes));
        let mut outs: Vec<Option<&mut [u8]>> = outputs.values_mut().map(|t| Some(t.bytes_mut())).collect();
        let mut args: Vec<ArgRef<'_>> = Vec::with_capacity(encoded.args.len());
        let mut weight_bytes = 0;
        for (binding, packed) in encoded.args.iter().zip(&encoded.weights) {
            let lost = || Error::Launch("an output or the workspace is bound to two arguments".into());
            args.push(match *binding {
                ArgBinding::Input(i) => ArgRef::In(inputs[i as usize].bytes()),
                ArgBinding::Output(i) => ArgRef::Out(outs[i as usize].take().ok_or_else(lost)?),
                ArgBinding::Constant { index, pack } => {
                    let plain = plan.constants[index as usize].bytes();
                    let data = packed.as_deref().filter(|_| pack.is_some()).map_or(plain, Vec::as_slice);
                    weight_bytes += data.len();
                    ArgRef::In(data)
                }
                ArgBinding::Workspace => ArgRef::Out(workspace.take().ok_or_else(lost)?),
                ArgBinding::Ring => ArgRef::Ring,
            });
        }
        let start = Instant::now();
        let deadline = self.options.timeout.map(|t| start + t);
        let control = Control { cancel: Some(&self.cancel), deadline };
        self.runtime
            .launch_with(&encoded.exe, &mut args, control)
            .map_err(|e| Error::Launch(e.to_string()))?;
        report.run_us = start.elapsed().as_secs_f64() * 1e6;
        report.launches = 1;
        report.peak_bytes = needs as usize + weight_bytes;
        Ok(())
    }
}

/// Size of the encoded instructions of a program.
pub(crate) fn code_bytes(program: &dvm_bc::Program) -> usize {
    let sections = program.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections);
    sections.map(|s| s.code.words().len() * 8).sum()
}
