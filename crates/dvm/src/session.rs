//! A session: one model on one machine, any shapes.
//!
//! A run binds the symbols from its inputs' shapes, looks the program for these dims up (or tiles, encodes, verifies and
//! predecodes it, in microseconds), and launches it. Nothing is planned again and nothing is specialised: sizes 0 and 1
//! are ordinary values.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dvm_ir::{Bindings, DimTable, DimValues, Plan, Tensor, bind};
use dvm_npu::MachineSpec;
use dvm_vm::{Pool, Runtime};

use crate::cold::Work;
use crate::engine::{Encoded, Engine, Programs};
use crate::flow::{FlowState, Run};
use crate::launch::fit_outputs;
use crate::module::Variant;
use crate::{Error, Module, Options, RunReport};

/// Named outputs of a run, in the model's order.
pub type Outputs = indexmap::IndexMap<String, Tensor>;

/// Runs one [`Module`] for whatever shapes it meets. `Send`; sessions of one module share its weights.
pub struct Session {
    module: Module,
    engine: Engine,
    states: Vec<State>,
    bindings: Bindings,
    values: DimValues,
    /// Planning done by the constructor, not yet reported.
    planned_us: f64,
    report: RunReport,
}

/// Index of a state, and the inputs its graph has.
type Settled<'a> = (usize, Cow<'a, [(String, Tensor)]>);

/// What a session keeps per structural variant of its model.
struct State {
    variant: Arc<Variant>,
    body: Body,
}

enum Body {
    /// One program a shape.
    Whole(Programs),
    /// A graph with controls: one program a shape for each part between them.
    Flow(Box<FlowState>),
}

/// A program and the plan it belongs to.
pub(crate) struct Ready {
    pub(crate) plan: Arc<Plan>,
    pub(crate) encoded: Arc<Encoded>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("module", &self.module)
            .field("target", &self.engine.spec.target.name)
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
        let module =
            if options.assume.is_empty() { module.clone() } else { module.assuming(&options.assume)? };
        let mut session = Session {
            module: module.clone(),
            engine: Engine::new(options, runtime),
            states: vec![],
            bindings: Bindings::new(),
            values: DimValues::default(),
            planned_us: 0.0,
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
        &self.engine.runtime
    }
    /// The model.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// The options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.engine.options
    }
    /// The machine programs are compiled for.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.engine.spec
    }
    /// Setting this flag, from any thread, stops the run in progress (and every later one until it is cleared).
    #[must_use]
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.engine.cancel.clone()
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
        let (body, plan_us) = if variant.graph.controls.is_empty() {
            let (plan, plan_us) = variant.plan(self.engine.options.fuse)?;
            (Body::Whole(Programs::new(variant.clone(), plan)), plan_us)
        } else {
            let start = Instant::now();
            let mut state = FlowState::new(variant.flow()?);
            state.plan_parts(self.engine.options.fuse)?;
            (Body::Flow(Box::new(state)), start.elapsed().as_secs_f64() * 1e6)
        };
        if self.states.len() >= self.engine.options.cache.max(1) {
            self.states.remove(0);
        }
        self.states.push(State { variant, body });
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

    /// Makes the program for these inputs' shapes ready without running it; [`Session::last_run`] then holds its cost. Of a
    /// graph with controls, the programs before the first one.
    ///
    /// # Errors
    /// As [`Session::run`], without the traps.
    pub fn prepare(&mut self, inputs: &[(String, Tensor)]) -> Result<(), Error> {
        let (at, inputs) = self.settle(inputs)?;
        let plan_us = std::mem::take(&mut self.planned_us);
        self.report = match &mut self.states[at].body {
            Body::Whole(_) => self.ready(at, &inputs, plan_us)?.1,
            Body::Flow(state) => {
                let mut run = Run::new(&mut self.engine, plan_us);
                state.prepare(&mut run, &inputs)?;
                run.report
            }
        };
        Ok(())
    }
    /// The program for these inputs, with its cost in the report.
    pub(crate) fn compiled(&mut self, inputs: &[(String, Tensor)]) -> Result<Ready, Error> {
        let (at, inputs) = self.settle(inputs)?;
        if let Some(c) = self.states[at].variant.graph.controls.first() {
            return Err(Error::Launch(format!(
                "{c}: a bundle holds one program, and the host executes this between two"
            )));
        }
        let plan_us = std::mem::take(&mut self.planned_us);
        let (ready, report) = self.ready(at, &inputs, plan_us)?;
        self.report = report;
        Ok(ready)
    }
    /// Forgets every encoded program. Plans and packed weights stay.
    pub fn forget_programs(&mut self) {
        for s in &mut self.states {
            match &mut s.body {
                Body::Whole(p) => p.forget(),
                Body::Flow(f) => f.forget(),
            }
        }
    }

    fn run_inner(&mut self, inputs: &[(String, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let (at, inputs) = self.settle(inputs)?;
        let plan_us = std::mem::take(&mut self.planned_us);
        if let Body::Flow(state) = &mut self.states[at].body {
            let mut run = Run::new(&mut self.engine, plan_us);
            outputs.clear();
            state.run_named(&mut run, &inputs, outputs)?;
            self.report = run.report;
            return Ok(());
        }
        if let Some(report) = self.by_groups(at, &inputs, outputs, plan_us)? {
            self.report = report;
            return Ok(());
        }
        let (ready, mut report) = self.ready(at, &inputs, plan_us)?;
        let ordered = bind::in_order(bind::plan_inputs(&ready.plan), &inputs)?;
        self.launch(&ready, &ordered, outputs, &mut report)?;
        self.report = report;
        Ok(())
    }

    /// Runs a plan in groups, one while the next is encoded where they are new; `None` where it runs as a whole.
    fn by_groups(
        &mut self,
        at: usize,
        inputs: &[(String, Tensor)],
        outputs: &mut Outputs,
        plan_us: f64,
    ) -> Result<Option<RunReport>, Error> {
        let Body::Whole(programs) = &mut self.states[at].body else { return Ok(None) };
        if !self.engine.options.overlap || self.engine.runtime.workers() < 2 || !programs.in_groups() {
            return Ok(None);
        }
        let plan = programs.plan.clone();
        let ordered = bind::in_order(bind::plan_inputs(&plan), inputs)?;
        let given = ordered.iter().map(|&t| bind::Given::from(t));
        let start = Instant::now();
        let pairs = bind::plan_inputs(&plan).zip(given);
        bind::bind(&plan.dims, &plan.checks, pairs, &mut self.bindings, &mut self.values)?;
        let Some(groups) = programs.cold(&self.bindings) else { return Ok(None) };
        let mut report = RunReport { plan_us, cache_hit: true, ..RunReport::default() };
        report.dims = named(&plan.dims, &self.bindings);
        let (weights, grouped) = if let Some(grouped) = programs.grouped(&self.bindings) {
            self.engine.fits(&plan, &grouped, &ordered)?;
            fit_outputs(&plan, &grouped.outputs, outputs)?;
            report.bytecode_bytes = grouped.encoded.iter().map(|e| e.bytecode_bytes).sum();
            let deadline = self.engine.options.timeout.map(|t| Instant::now() + t);
            let mut weights = 0;
            for i in 0..grouped.encoded.len() {
                weights += self.engine.launch_group(&grouped, i, &ordered, outputs, deadline, &mut report)?;
            }
            (weights, grouped)
        } else {
            let (spec, check) = (self.engine.spec.clone(), self.engine.options.check);
            let how = (check, self.engine.build_options(), self.engine.options.tiles.clone());
            let work = Work::new(programs.variant.clone(), groups.clone(), self.values.clone(), spec, how);
            let timed = (start, &mut report);
            let (grouped, weights) = self.engine.cold(
                &Arc::new(work),
                (&plan, &groups),
                &self.values,
                &ordered,
                outputs,
                timed,
            )?;
            let grouped = Arc::new(grouped);
            programs.keep(self.engine.options.cache, &self.bindings, grouped.clone());
            (weights, grouped)
        };
        report.peak_bytes = self.engine.fits(&plan, &grouped, &ordered)? + weights;
        Ok(Some(report))
    }

    /// The state for these inputs, and the inputs its graph still has.
    fn settle<'a>(&mut self, inputs: &'a [(String, Tensor)]) -> Result<Settled<'a>, Error> {
        let (at, plan_us) = self.state(inputs)?;
        self.planned_us += plan_us;
        let all = self.module.structural().is_empty();
        Ok((at, if all { Cow::Borrowed(inputs) } else { self.states[at].variant.remaining(inputs).into() }))
    }

    /// The program for these inputs, from the cache or encoded now.
    fn ready(
        &mut self,
        at: usize,
        inputs: &[(String, Tensor)],
        plan_us: f64,
    ) -> Result<(Ready, RunReport), Error> {
        let Body::Whole(programs) = &mut self.states[at].body else {
            return Err(Error::Launch("a graph with controls has no single program".into()));
        };
        let plan = programs.plan.clone();
        let mut report = RunReport { plan_us, cache_hit: true, ..RunReport::default() };
        let ordered = bind::in_order(bind::plan_inputs(&plan), inputs)?;
        let given = ordered.iter().map(|&t| bind::Given::from(t));
        let pairs = bind::plan_inputs(&plan).zip(given);
        let start = Instant::now();
        bind::bind(&plan.dims, &plan.checks, pairs, &mut self.bindings, &mut self.values)?;
        report.dims = named(&plan.dims, &self.bindings);
        let values = &self.values;
        let encoded = programs
            .get(&mut self.engine, &self.bindings, start, &mut report, |_| Ok(Cow::Borrowed(values)))?;
        report.kernels = encoded.kernels;
        report.bytecode_bytes = encoded.bytecode_bytes;
        Ok((Ready { plan, encoded }, report))
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
        let limit = self.engine.options.max_bytes;
        if needs > limit {
            let step = format!("`{}` with its inputs and outputs", plan.name);
            return Err(Error::Memory { step, needs, limit });
        }
        fit_outputs(plan, &encoded.outputs, outputs)?;
        let outs: Vec<Option<&mut [u8]>> = outputs.values_mut().map(|t| Some(t.bytes_mut())).collect();
        let deadline = self.engine.options.timeout.map(|t| Instant::now() + t);
        report.kernels = 0;
        let weight_bytes = self.engine.launch(plan, encoded, inputs, outs, deadline, report)?;
        report.peak_bytes = needs as usize + weight_bytes;
        Ok(())
    }
}

/// Bound symbols by name, in the graph's order.
pub(crate) fn named(dims: &DimTable, bindings: &Bindings) -> Vec<(String, i64)> {
    dims.symbols().filter_map(|(s, name)| Some((name.to_string(), bindings.get(s)?))).collect()
}
