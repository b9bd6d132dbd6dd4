//! Graphs with controls: the parts between controls run as programs, the host does the rest.
//!
//! A [`Flow`] is what all sessions share: the parts, the order, the bodies, each made when it is first needed. A [`FlowState`]
//! is what a session keeps of it: programs by shape and the values of the run. A body that is repeated with the same shapes
//! finds its frame and its programs as they were: an iteration then only binds pointers.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dvm_fuse::{Step, split};
use dvm_ir::bind::{self, Frame};
use dvm_ir::{
    Bindings, Control, ControlKind, DType, DimValues, Graph, LoopParts, Plan, Scalar, Symbol, Tensor,
    ValueId, nonzero,
};

use crate::engine::{Encoded, Engine, Programs};
use crate::module::{How, Variant};
use crate::session::named;
use crate::{Error, Outputs, RunReport};

/// A graph with controls, split at them.
pub(crate) struct Flow {
    pub(crate) graph: Arc<Graph>,
    pub(crate) parts: Vec<FlowPart>,
    steps: Vec<Step>,
    how: How,
    /// Values that no later step needs, by step.
    dead: Vec<Vec<ValueId>>,
    bodies: Vec<Vec<Body>>,
}

/// What is between two controls.
pub(crate) struct FlowPart {
    pub(crate) variant: Arc<Variant>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

/// A body's plan, and its symbols with those outside that have their names.
type Planned = (Arc<Flow>, Arc<Vec<(Symbol, Symbol)>>);
/// What symbols are bound to.
type Bound = Vec<(Symbol, i64)>;

/// A body, and its symbols that the graph around it has too: (outer, inner).
#[derive(Default)]
struct Body(Mutex<Option<Planned>>);

impl Flow {
    pub(crate) fn new(graph: Arc<Graph>, how: How) -> Result<Flow, Error> {
        let s = split(&graph)?;
        let parts: Vec<FlowPart> = s
            .parts
            .into_iter()
            .map(|p| FlowPart {
                variant: Arc::new(Variant::of(Arc::new(p.graph), how.clone())),
                inputs: p.inputs,
                outputs: p.outputs,
            })
            .collect();
        // A value dies with the last step that reads it, one that nobody reads with the step that makes it.
        let mut last = vec![None; graph.values.len()];
        for (i, step) in s.steps.iter().enumerate() {
            let (reads, makes) = match *step {
                Step::Part(p) => (&parts[p].inputs, &parts[p].outputs),
                Step::Control(c) => (&graph.controls[c].inputs, &graph.controls[c].outputs),
            };
            reads.iter().chain(makes).for_each(|v| last[v.index()] = Some(i));
        }
        graph.outputs.iter().for_each(|o| last[o.value.index()] = None);
        let mut dead = vec![vec![]; s.steps.len()];
        for (v, i) in last.iter().enumerate() {
            i.iter().for_each(|&i| dead[i].push(ValueId::new(v)));
        }
        let bodies =
            graph.controls.iter().map(|c| c.bodies.iter().map(|_| Body::default()).collect()).collect();
        Ok(Flow { graph, parts, steps: s.steps, how, dead, bodies })
    }
    /// Body `b` of control `c`.
    pub(crate) fn body(&self, c: usize, b: usize) -> Result<Planned, Error> {
        let mut slot = self.bodies[c][b].0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*slot {
            return Ok(made.clone());
        }
        let graph = &self.graph.controls[c].bodies[b];
        let shared =
            graph.dims.symbols().filter_map(|(s, n)| Some((self.graph.dims.find_symbol(n)?, s))).collect();
        let made = (Arc::new(Flow::new(Arc::new(graph.clone()), self.how.clone())?), Arc::new(shared));
        *slot = Some(made.clone());
        Ok(made)
    }
}

/// A step of a model, for explanations: what is computed as one program, or what the host does.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Nesting in bodies.
    pub depth: usize,
    /// The graph's name, or the control and its body.
    pub label: String,
    /// The graph and its plan, where something is computed.
    pub part: Option<(Arc<Graph>, Arc<Plan>)>,
}

/// As [`Stage`], explained.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StageNote {
    /// Nesting in bodies.
    pub depth: usize,
    /// The graph's name, or the control and its body.
    pub label: String,
    /// What is computed, where something is.
    pub plan: Option<dvm_ir::Explanation>,
}

impl StageNote {
    /// What is computed as one program, explained.
    pub(crate) fn of(
        variant: &Variant,
        fuse: bool,
        dims: &[(String, i64)],
        depth: usize,
    ) -> Result<StageNote, Error> {
        let plan = variant.explained(fuse)?;
        let mut bindings = Bindings::new();
        for (name, value) in dims {
            if let Some(s) = plan.dims.find_symbol(name) {
                // The first of two values stays.
                let _ = bindings.bind(s, *value);
            }
        }
        let note = plan.explain(&variant.graph, &bindings);
        Ok(StageNote { depth, label: plan.name.clone(), plan: Some(note) })
    }
}

impl Flow {
    /// [`Flow::stages`], explained; symbols are known by name.
    pub(crate) fn notes(
        &self,
        fuse: bool,
        dims: &[(String, i64)],
        depth: usize,
        out: &mut Vec<StageNote>,
    ) -> Result<(), Error> {
        for step in &self.steps {
            match *step {
                Step::Part(p) => {
                    out.push(StageNote::of(&self.parts[p].variant, fuse, dims, depth)?);
                }
                Step::Control(c) => {
                    let control = &self.graph.controls[c];
                    out.push(StageNote { depth, label: control.to_string(), plan: None });
                    for b in 0..control.bodies.len() {
                        if control.bodies.len() > 1 {
                            out.push(StageNote { depth, label: ["then", "else"][b % 2].into(), plan: None });
                        }
                        self.body(c, b)?.0.notes(fuse, dims, depth + 1, out)?;
                    }
                }
            }
        }
        Ok(())
    }
    /// All steps in order, bodies after their control.
    pub(crate) fn stages(&self, fuse: bool, depth: usize, out: &mut Vec<Stage>) -> Result<(), Error> {
        for step in &self.steps {
            match *step {
                Step::Part(p) => {
                    let variant = &self.parts[p].variant;
                    let (plan, _) = variant.plan(fuse)?;
                    let label = plan.name.clone();
                    out.push(Stage { depth, label, part: Some((variant.graph.clone(), plan)) });
                }
                Step::Control(c) => {
                    let control = &self.graph.controls[c];
                    out.push(Stage { depth, label: control.to_string(), part: None });
                    for b in 0..control.bodies.len() {
                        if control.bodies.len() > 1 {
                            let label = ["then", "else"][b % 2].to_string();
                            out.push(Stage { depth, label, part: None });
                        }
                        self.body(c, b)?.0.stages(fuse, depth + 1, out)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a session keeps of a [`Flow`].
pub(crate) struct FlowState {
    flow: Arc<Flow>,
    parts: Vec<Option<PartState>>,
    bodies: Vec<Vec<Option<BodyState>>>,
    frame: Frame,
    /// Symbols and shapes the frame was opened with, while they tell all of it.
    opened: Option<(Bound, Vec<Vec<usize>>)>,
    slots: Vec<Option<Tensor>>,
}

struct BodyState {
    state: Box<FlowState>,
    shared: Arc<Vec<(Symbol, Symbol)>>,
}

struct PartState {
    programs: Programs,
    /// Symbols that the plan depends on: others may change without a new program.
    needs: Vec<Symbol>,
    bound: Bindings,
    next: Bindings,
    encoded: Option<Arc<Encoded>>,
}

/// Most bytes that a run with controls may hold unless the options say otherwise: what data decide could be anything.
const MAX_BYTES: u64 = 4 << 30;
/// Most freed tensors kept for reuse.
const MAX_POOL: usize = 64;

/// One run of a graph with controls.
pub(crate) struct Run<'e> {
    engine: &'e mut Engine,
    pub(crate) report: RunReport,
    deadline: Option<Instant>,
    /// Iterations left.
    left: u64,
    limit: u64,
    /// Bytes of tensors held.
    held: u64,
    pool: Vec<Tensor>,
}

impl<'e> Run<'e> {
    pub(crate) fn new(engine: &'e mut Engine, plan_us: f64) -> Run<'e> {
        let o = &engine.options;
        let limit = if o.max_bytes == u64::MAX { MAX_BYTES } else { o.max_bytes };
        let (deadline, left) = (o.timeout.map(|t| Instant::now() + t), o.max_iterations);
        let report = RunReport { plan_us, cache_hit: true, ..RunReport::default() };
        Run { engine, report, deadline, left, limit, held: 0, pool: vec![] }
    }
    /// Refuses more memory than allowed.
    fn hold(&mut self, bytes: u64, what: &dyn std::fmt::Display) -> Result<(), Error> {
        let needs = self.held.saturating_add(bytes);
        if needs > self.limit {
            return Err(Error::Memory { step: what.to_string(), needs, limit: self.limit });
        }
        self.held = needs;
        self.report.peak_bytes = self.report.peak_bytes.max(needs as usize);
        Ok(())
    }
    /// A tensor of arbitrary content, for writing.
    fn alloc(
        &mut self,
        dtype: DType,
        shape: &[usize],
        what: &dyn std::fmt::Display,
    ) -> Result<Tensor, Error> {
        let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
        self.hold(bytes as u64, what)?;
        let fits = |t: &Tensor| t.bytes().len().div_ceil(8) == bytes.div_ceil(8);
        if let Some(i) = self.pool.iter().rposition(fits)
            && let Some(t) = self.pool.swap_remove(i).recycle(dtype, shape)
        {
            return Ok(t);
        }
        Ok(Tensor::zeros(dtype, shape)?)
    }
    fn release(&mut self, t: Tensor) {
        if t.is_shared() {
            return;
        }
        self.held = self.held.saturating_sub(t.bytes().len() as u64);
        if self.pool.len() < MAX_POOL {
            self.pool.push(t);
        }
    }
    /// Before an iteration.
    fn tick(&mut self) -> Result<(), Error> {
        let limit = self.engine.options.max_iterations;
        self.left = self.left.checked_sub(1).ok_or(Error::Iterations { limit })?;
        if self.engine.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Launch("cancelled between two launches".into()));
        }
        if self.deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(Error::Launch("deadline passed between two launches".into()));
        }
        Ok(())
    }
    /// Element `k` along axis 0.
    fn slice(&mut self, x: &Tensor, k: usize) -> Result<Tensor, Error> {
        let row = &x.shape()[1..];
        let mut t = self.alloc(x.dtype(), row, &"a slice")?;
        let n = t.bytes().len();
        t.bytes_mut().copy_from_slice(&x.bytes()[k * n..(k + 1) * n]);
        Ok(t)
    }
}

impl FlowState {
    pub(crate) fn new(flow: Arc<Flow>) -> FlowState {
        let parts = flow.parts.iter().map(|_| None).collect();
        let bodies = flow.bodies.iter().map(|b| b.iter().map(|_| None).collect()).collect();
        FlowState { flow, parts, bodies, frame: Frame::default(), opened: None, slots: vec![] }
    }
    /// Plans all parts outside bodies.
    pub(crate) fn plan_parts(&mut self, fuse: bool) -> Result<(), Error> {
        (0..self.parts.len()).try_for_each(|p| self.part_state(p, fuse).map(drop))
    }
    /// A part, planned when it is first needed, and the time that took.
    fn part_state(&mut self, p: usize, fuse: bool) -> Result<(&mut PartState, f64), Error> {
        let slot = &mut self.parts[p];
        let mut us = 0.0;
        if slot.is_none() {
            let variant = self.flow.parts[p].variant.clone();
            let (plan, plan_us) = variant.plan(fuse)?;
            us = plan_us;
            let needs = plan.dims.symbols_in(plan.mentioned_dims());
            let programs = Programs::new(variant, plan);
            let (bound, next) = (Bindings::new(), Bindings::new());
            *slot = Some(PartState { programs, needs, bound, next, encoded: None });
        }
        match slot {
            Some(s) => Ok((s, us)),
            None => Err(Error::Launch("a part is missing".into())),
        }
    }
    pub(crate) fn forget(&mut self) {
        for p in self.parts.iter_mut().flatten() {
            p.programs.forget();
            p.encoded = None;
        }
        self.bodies.iter_mut().flatten().flatten().for_each(|b| b.state.forget());
    }

    /// Runs a whole model.
    pub(crate) fn run_named(
        &mut self,
        run: &mut Run<'_>,
        inputs: &[(String, Tensor)],
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let ordered = bind::in_order(bind::graph_inputs(&self.flow.graph), inputs)?;
        let results = self.run(run, &[], ordered.into_iter().cloned().collect())?;
        run.report.dims = named(&self.flow.graph.dims, &self.frame.bindings);
        let names = self.flow.graph.outputs.iter().map(|o| o.name.clone());
        outputs.extend(names.zip(results));
        Ok(())
    }
    /// Makes the programs ready that the inputs alone decide.
    pub(crate) fn prepare(&mut self, run: &mut Run<'_>, inputs: &[(String, Tensor)]) -> Result<(), Error> {
        let flow = self.flow.clone();
        let ordered = bind::in_order(bind::graph_inputs(&flow.graph), inputs)?;
        self.opened = None;
        let given = ordered.iter().map(|&t| bind::Given::from(t));
        self.frame.open(&flow.graph, [], bind::graph_inputs(&flow.graph).zip(given))?;
        run.report.dims = named(&flow.graph.dims, &self.frame.bindings);
        for p in 0..self.parts.len() {
            let (part, _) = self.part_state(p, run.engine.options.fuse)?;
            let needs = part.needs.clone();
            if needs.iter().all(|&s| self.frame.bindings.get(s).is_some()) {
                let encoded = self.encoded(p, run)?;
                run.report.kernels += encoded.kernels;
                run.report.bytecode_bytes += encoded.bytecode_bytes;
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        run: &mut Run<'_>,
        seeds: &[(Symbol, i64)],
        inputs: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, Error> {
        let flow = self.flow.clone();
        let graph = &*flow.graph;
        let same = self.opened.as_ref().is_some_and(|(s, shapes)| {
            s.as_slice() == seeds && shapes.iter().zip(&inputs).all(|(s, t)| s.as_slice() == t.shape())
        });
        if !same {
            self.opened = None;
            let given = inputs.iter().map(bind::Given::from);
            self.frame.open(graph, seeds.iter().copied(), bind::graph_inputs(graph).zip(given))?;
            // Symbols that elements or controls bind may differ in every run.
            if graph.controls.is_empty() && graph.inputs.iter().all(|i| i.elements.is_none()) {
                self.opened = Some((seeds.to_vec(), inputs.iter().map(|t| t.shape().to_vec()).collect()));
            }
        }
        self.slots.clear();
        self.slots.resize(graph.values.len(), None);
        for (i, t) in graph.inputs.iter().zip(inputs) {
            self.slots[i.value.index()] = Some(t);
        }
        for (i, step) in flow.steps.iter().enumerate() {
            match *step {
                Step::Part(p) => self.part(p, run)?,
                Step::Control(c) => self.control(c, run)?,
            }
            for v in &flow.dead[i] {
                if let Some(t) = self.slots[v.index()].take() {
                    run.release(t);
                }
            }
        }
        self.frame.close(graph)?;
        let results = graph.outputs.iter().map(|o| self.value(o.value)).collect::<Result<Vec<_>, _>>()?;
        self.slots.drain(..).flatten().for_each(|t| run.release(t));
        Ok(results)
    }

    /// The program of a part for the symbols bound by now.
    fn encoded(&mut self, p: usize, run: &mut Run<'_>) -> Result<Arc<Encoded>, Error> {
        let start = Instant::now();
        let fuse = run.engine.options.fuse;
        let (_, us) = self.part_state(p, fuse)?;
        run.report.plan_us += us;
        let Some(part) = &mut self.parts[p] else { return Err(Error::Launch("a part is missing".into())) };
        part.next.clear();
        for &s in &part.needs {
            if let Some(v) = self.frame.bindings.get(s) {
                // Cleared before: nothing is bound twice.
                let _ = part.next.bind(s, v);
            }
        }
        if let Some(e) = part.encoded.as_ref().filter(|_| part.next == part.bound) {
            return Ok(e.clone());
        }
        let next = &part.next;
        let encoded = part.programs.get(run.engine, next, start, &mut run.report, |plan| {
            let mut values = DimValues::default();
            plan.dims.eval_all(next, &mut values);
            bind::test(&plan.dims, &plan.checks, &values)?;
            Ok(Cow::Owned(values))
        })?;
        std::mem::swap(&mut part.bound, &mut part.next);
        part.encoded = Some(encoded.clone());
        Ok(encoded)
    }

    fn part(&mut self, p: usize, run: &mut Run<'_>) -> Result<(), Error> {
        let encoded = self.encoded(p, run)?;
        let Some(part) = &self.parts[p] else { return Err(Error::Launch("a part is missing".into())) };
        let plan = part.programs.plan.clone();
        let FlowPart { inputs, outputs, .. } = &self.flow.parts[p];
        let mut made = Vec::with_capacity(outputs.len());
        for (o, shape) in plan.outputs.iter().zip(&encoded.outputs) {
            made.push(run.alloc(o.dtype, shape, &format_args!("`{}` of `{}`", o.name, plan.name))?);
        }
        let workspace = encoded.workspace_bytes as u64;
        run.hold(workspace, &format_args!("`{}`", plan.name))?;
        let lost = |v: &ValueId| Error::Launch(format!("`{}`: {v} has no value", plan.name));
        let given: Vec<&Tensor> = inputs
            .iter()
            .map(|v| self.slots[v.index()].as_ref().ok_or_else(|| lost(v)))
            .collect::<Result<_, _>>()?;
        let views = made.iter_mut().map(|t| Some(t.bytes_mut())).collect();
        run.engine.launch(&plan, &encoded, &given, views, run.deadline, &mut run.report)?;
        run.report.bytecode_bytes = run.report.bytecode_bytes.max(encoded.bytecode_bytes);
        run.held -= workspace;
        for (v, t) in outputs.iter().zip(made) {
            self.slots[v.index()] = Some(t);
        }
        Ok(())
    }

    fn value(&self, v: ValueId) -> Result<Tensor, Error> {
        let found = self.slots[v.index()].as_ref().or_else(|| self.flow.graph.constant_of(v));
        let found = found.filter(|t| t.has_data());
        found.cloned().ok_or_else(|| Error::Launch(format!("{v} has no value")))
    }
    fn values(&self, vs: &[ValueId]) -> Result<Vec<Tensor>, Error> {
        vs.iter().map(|&v| self.value(v)).collect()
    }
    /// An operand that is one number: from the dims where they tell it, else from its tensor.
    fn number(&self, v: ValueId) -> Result<i64, Error> {
        if let Some(d) = self.flow.graph.scalar_dim(v) {
            let (dims, values) = (&self.flow.graph.dims, &self.frame.values);
            return values.get(d).ok_or_else(|| Error::Bind(dims.why_undefined(d, values).to_string()));
        }
        let t = self.value(v)?;
        if t.len() == 1 {
            Ok(t.get(0).as_i64())
        } else {
            Err(Error::Launch(format!("{v} is not one number")))
        }
    }

    fn control(&mut self, i: usize, run: &mut Run<'_>) -> Result<(), Error> {
        let flow = self.flow.clone();
        let c = &flow.graph.controls[i];
        let results = match &c.kind {
            ControlKind::Read { .. } => vec![self.value(c.inputs[0])?],
            ControlKind::NonZero => {
                let x = self.value(c.inputs[0])?;
                let most = (x.len() as u64).saturating_mul(8 * x.shape().len() as u64);
                run.hold(most, c)?;
                let t = nonzero(&x)?;
                run.held = run.held.saturating_sub(most).saturating_add(t.bytes().len() as u64);
                vec![t]
            }
            ControlKind::Host(op) => {
                let args = self.values(&c.inputs)?;
                let most = op.needs(&args);
                run.hold(most, c)?;
                let made = op.run(&args).map_err(|e| Error::Launch(format!("{c}: {e}")))?;
                let bytes = made.iter().fold(0, |n, t| n + t.bytes().len() as u64);
                run.held = run.held.saturating_sub(most).saturating_add(bytes);
                made
            }
            ControlKind::If => {
                let taken = usize::from(self.number(c.inputs[0])? == 0);
                let given = self.values(c.captured(taken))?;
                let (body, seeds) = self.body(i, taken)?;
                let branch = if taken == 0 { "then" } else { "else" };
                body.run(run, &seeds, given).map_err(|e| e.within(c, branch.into()))?
            }
            ControlKind::Loop { .. } => self.repeat(i, c, run)?,
        };
        self.frame.define(&flow.graph, c, &results.iter().collect::<Vec<_>>())?;
        for (v, t) in c.outputs.iter().zip(results) {
            self.slots[v.index()] = Some(t);
        }
        Ok(())
    }
    /// The state of a body and what it inherits.
    fn body(&mut self, c: usize, b: usize) -> Result<(&mut FlowState, Bound), Error> {
        let slot = &mut self.bodies[c][b];
        if slot.is_none() {
            let (flow, shared) = self.flow.body(c, b)?;
            *slot = Some(BodyState { state: Box::new(FlowState::new(flow)), shared });
        }
        let Some(body) = slot else { return Err(Error::Launch("a body is missing".into())) };
        let bindings = &self.frame.bindings;
        let seeds = body.shared.iter().filter_map(|&(outer, inner)| Some((inner, bindings.get(outer)?)));
        Ok((&mut body.state, seeds.collect()))
    }

    fn repeat(&mut self, i: usize, c: &Control, run: &mut Run<'_>) -> Result<Vec<Tensor>, Error> {
        let Some(LoopParts { carried, scanned, stacked }) = c.loop_parts() else {
            return Err(Error::Launch(format!("{c} has fewer results than carried values")));
        };
        let trips = self.number(c.inputs[0])?.max(0);
        let mut go_on = self.number(c.inputs[1])? != 0;
        let asks = c.asks();
        let mut state = self.values(&c.inputs[2..2 + carried])?;
        let slices = self.values(&c.inputs[2 + carried..2 + carried + scanned])?;
        let captured = self.values(c.captured(0))?;
        for (k, x) in slices.iter().enumerate() {
            if x.shape().first().is_none_or(|&n| (n as i64) < trips) {
                let what =
                    format!("{c}: {trips} slices of scanned tensor {k}, whose shape is {:?}", x.shape());
                return Err(Error::Launch(what));
            }
        }
        let mut stacks: Vec<Stack> = c.outputs[carried..].iter().map(|_| Stack::default()).collect();
        let (body, seeds) = self.body(i, 0)?;
        let mut step = 0;
        while go_on && step < trips {
            let place = |e: Error| e.within(c, format!("iteration {step}"));
            run.tick().map_err(place)?;
            // The iteration's number and the condition; the body gives them back.
            run.hold(9, c).map_err(place)?;
            let mut given = Vec::with_capacity(2 + carried + scanned + captured.len());
            given.push(Tensor::scalar(DType::I64, Scalar::Int(step)));
            given.push(Tensor::scalar(DType::Bool, Scalar::Int(1)));
            given.append(&mut state);
            for (k, x) in slices.iter().enumerate() {
                let at = if c.is_backward(k) { trips - 1 - step } else { step };
                given.push(run.slice(x, at as usize).map_err(place)?);
            }
            given.extend_from_slice(&captured);
            let mut out = body.run(run, &seeds, given).map_err(place)?.into_iter();
            let more = out.next().filter(|_| asks);
            go_on = more.is_none_or(|t| t.len() == 1 && t.get(0).as_i64() != 0);
            state.extend(out.by_ref().take(carried));
            for (stack, t) in stacks.iter_mut().zip(out) {
                stack.push(&t, run, c).map_err(place)?;
                run.release(t);
            }
            step += 1;
        }
        for (k, stack) in stacks.into_iter().enumerate().take(stacked) {
            let ty = &self.flow.graph.value(c.outputs[carried + k]).ty;
            let row = stack.row.clone().unwrap_or_else(|| self.frame.row(ty));
            state.push(stack.finish(ty.dtype, &row, step as usize, c.is_backward(scanned + k), run, c)?);
        }
        Ok(state)
    }
}

/// Slices that become one tensor.
#[derive(Default)]
struct Stack {
    bytes: Vec<u8>,
    row: Option<Vec<usize>>,
}

impl Stack {
    fn push(&mut self, t: &Tensor, run: &mut Run<'_>, c: &Control) -> Result<(), Error> {
        match &self.row {
            None => self.row = Some(t.shape().to_vec()),
            Some(row) if row.as_slice() == t.shape() => {}
            Some(row) => {
                return Err(Error::Launch(format!("slices of {row:?} and {:?} are stacked", t.shape())));
            }
        }
        run.hold(t.bytes().len() as u64, c)?;
        self.bytes.extend_from_slice(t.bytes());
        Ok(())
    }
    fn finish(
        self,
        dtype: DType,
        row: &[usize],
        count: usize,
        backward: bool,
        run: &mut Run<'_>,
        c: &Control,
    ) -> Result<Tensor, Error> {
        let shape: Vec<usize> = std::iter::once(count).chain(row.iter().copied()).collect();
        let mut t = run.alloc(dtype, &shape, c)?;
        let size = self.bytes.len() / count.max(1);
        if backward && size > 0 {
            let rows = self.bytes.chunks_exact(size).rev();
            t.bytes_mut().chunks_exact_mut(size).zip(rows).for_each(|(to, from)| to.copy_from_slice(from));
        } else {
            t.bytes_mut().copy_from_slice(&self.bytes);
        }
        run.held = run.held.saturating_sub(self.bytes.len() as u64);
        Ok(t)
    }
}
