//! Bodies of branches and loops: graphs of their own, built while the graph around them waits.
//!
//! A body begins with the dims of the graph around it, so that a dim means the same in both; dims it adds stay inside. A value
//! from outside becomes an input of the body when it is first needed as a tensor; constants and known elements do not.

use std::collections::HashMap;
use std::rc::Rc;

use dvm_ir::{ControlKind, DType, Dim, Graph, TensorType, ValueDef, ValueId, result_type};

use crate::error::{Fail, invalid, unsupported};
use crate::import::Importer;
use crate::prune::prune;
use crate::value::V;

/// Most dims that bodies start with, all bodies together.
const MAX_INHERITED: usize = 1 << 21;
/// Most elements of a computed value that are read for use as sizes.
const MAX_READ: i64 = 64;

/// What is set aside while a body is built.
pub(crate) struct Waiting {
    graph: Graph,
    local: Local,
}

/// What belongs to the graph that is being built.
#[derive(Default)]
pub(crate) struct Local {
    /// Values from outside, as values of this graph.
    aliases: HashMap<u32, ValueId>,
    /// Elements of values from outside that this graph reads.
    pub(crate) elems: HashMap<u32, Rc<[Dim]>>,
    /// Values from outside that are inputs, in their order.
    captured: Vec<V>,
}

/// A finished body.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    /// What its last inputs are outside.
    pub(crate) captured: Vec<V>,
}

impl<'m> Importer<'m> {
    /// Nesting of the graph that is being built.
    pub(crate) fn level(&self) -> u32 {
        self.waiting.len() as u32
    }
    /// The graph of a level.
    pub(crate) fn graph_of(&self, level: u32) -> &Graph {
        self.waiting.get(level as usize).map_or(&self.graph, |w| &w.graph)
    }
    pub(crate) fn begin_body(&mut self) -> Result<(), Fail> {
        self.inherited += self.graph.dims.len();
        if self.inherited > MAX_INHERITED {
            return unsupported("too many bodies with too many dims");
        }
        let inner = Graph { dims: self.graph.dims.clone(), ..Graph::new("") };
        let graph = std::mem::replace(&mut self.graph, inner);
        self.waiting.push(Waiting { graph, local: std::mem::take(&mut self.local) });
        Ok(())
    }
    /// Ends the body whose outputs are these values.
    pub(crate) fn end_body(&mut self, outputs: &[V]) -> Result<Built, Fail> {
        let mut failed = None;
        for (i, &v) in outputs.iter().enumerate() {
            match self.materialise(v) {
                Ok(id) => self.graph.output(format!("out{i}"), id),
                Err(e) => failed = Some(e),
            }
        }
        let built = self.leave();
        failed.map_or(Ok(built), Err)
    }
    /// Drops a body that failed.
    pub(crate) fn leave(&mut self) -> Built {
        let mut graph = std::mem::take(&mut self.graph);
        let mut captured = std::mem::take(&mut self.local.captured);
        if let Some(w) = self.waiting.pop() {
            self.graph = w.graph;
            self.local = w.local;
        }
        graph = prune(graph);
        let own = graph.inputs.len() - captured.len();
        let used = drop_unused(&mut graph, own);
        let mut used = used.into_iter();
        captured.retain(|_| used.next().unwrap_or(true));
        Built { graph, captured }
    }
    /// A value from outside in the graph that is being built.
    pub(crate) fn captured_value(&mut self, v: V) -> Result<ValueId, Fail> {
        if let Some(&id) = self.local.aliases.get(&v.0) {
            return Ok(id);
        }
        let val = self.val(v).clone();
        let id = if let Some(t) = val.tensor {
            self.graph.constant(None, t)
        } else if let Some(elems) = val.elems.filter(|_| !val.runtime) {
            self.elements(val.dtype, &val.shape, &elems)?
        } else {
            let name = format!("outer{}", self.local.captured.len());
            self.local.captured.push(v);
            self.graph.input(name, val.dtype, &val.shape)
        };
        self.local.aliases.insert(v.0, id);
        Ok(id)
    }
    /// An input of the body that is being built. Small integer inputs also count as sizes.
    pub(crate) fn body_input(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> V {
        let id = self.graph.input(name, dtype, shape);
        let v = self.of_id(id);
        self.track_elements(v, name);
        v
    }
    /// A name for a new symbol: no other graph may have it, since equal names are one symbol.
    pub(crate) fn fresh(&mut self, base: &str) -> String {
        self.fresh += 1;
        format!("{base}'{}", self.fresh)
    }

    /// Reads a small integer tensor that is computed: its elements become symbols.
    pub(crate) fn read(&mut self, v: V, node: Option<&str>) -> Result<Option<Rc<[Dim]>>, Fail> {
        let val = self.val(v);
        let count = val.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(self.graph.dims.as_const(d)?));
        let (true, Some(n)) = (val.dtype.is_int(), count.filter(|&n| n <= MAX_READ)) else { return Ok(None) };
        let id = self.materialise(v)?;
        let base = self.graph.value(id).name.clone().unwrap_or_else(|| "read".into());
        let mut elements = vec![];
        for i in 0..n {
            let name = self.fresh(&format!("{base}[{i}]"));
            elements.push(self.graph.dims.value_symbol(&name));
        }
        let kind = ControlKind::Read { elements: elements.clone() };
        self.graph.push_control(kind, &[id], vec![], &[], node.map(String::from));
        let elements: Rc<[Dim]> = elements.into();
        if self.val(v).level == self.level() {
            let val = &mut self.vals[v.0 as usize];
            val.elems = Some(elements.clone());
            val.runtime = true;
        } else {
            self.local.elems.insert(v.0, elements.clone());
        }
        Ok(Some(elements))
    }

    /// Adds a control. Extents of results that nothing tells become symbols named after `name`, unless `known` has them.
    pub(crate) fn push_control(
        &mut self,
        kind: ControlKind,
        operands: &[V],
        bodies: Vec<Graph>,
        results: usize,
        name: &str,
        known: impl Fn(usize, usize) -> Option<Dim>,
    ) -> Result<Vec<V>, Fail> {
        let inputs = operands.iter().map(|&v| self.materialise(v)).collect::<Result<Vec<_>, _>>()?;
        let operands: Vec<TensorType> = inputs.iter().map(|&v| self.graph.value(v).ty.clone()).collect();
        let mut types = vec![];
        for i in 0..results {
            let (dtype, dims) =
                result_type(&kind, &bodies, &operands, i, &mut self.graph.dims).map_err(Fail::Unsupported)?;
            let mut shape = vec![];
            for (axis, d) in dims.into_iter().enumerate() {
                shape.push(match known(i, axis).or(d) {
                    Some(d) => d,
                    None => {
                        let symbol = self.fresh(&format!("{name}.{i}.{axis}"));
                        self.graph.dims.symbol(&symbol)
                    }
                });
            }
            types.push(TensorType { dtype, shape });
        }
        let label = Some(name.to_string()).filter(|n| !n.is_empty());
        let results = self.graph.push_control(kind, &inputs, bodies, &types, label);
        Ok(results.into_iter().map(|id| self.of_id(id)).collect())
    }
}

/// Drops inputs from number `own` on that nothing uses; whether each stays.
fn drop_unused(g: &mut Graph, own: usize) -> Vec<bool> {
    let mut used = vec![false; g.values.len()];
    let operands = g.nodes.iter().flat_map(|n| &n.inputs).chain(g.controls.iter().flat_map(|c| &c.inputs));
    operands.chain(g.outputs.iter().map(|o| &o.value)).for_each(|v| used[v.index()] = true);
    let keep: Vec<bool> =
        g.inputs.iter().enumerate().map(|(i, x)| i < own || used[x.value.index()]).collect();
    if keep.iter().all(|&k| k) {
        return keep[own..].to_vec();
    }
    // Values cannot be renumbered one by one: the dropped ones are left to `prune`, as constants that nothing needs.
    let mut number = 0;
    let mut inputs = vec![];
    for (i, x) in std::mem::take(&mut g.inputs).into_iter().enumerate() {
        if keep[i] {
            g.values[x.value.index()].def = ValueDef::Input(number);
            number += 1;
            inputs.push(x);
        } else {
            let c = dvm_ir::ConstId::new(g.constants.len());
            let value = &mut g.values[x.value.index()];
            g.constants.push(dvm_ir::Tensor::scalar(value.ty.dtype, dvm_ir::Scalar::Int(0)));
            value.ty.shape = vec![];
            value.def = ValueDef::Const(c);
        }
    }
    g.inputs = inputs;
    *g = prune(std::mem::take(g));
    keep[own..].to_vec()
}

/// What a loop repeats, in values of the graph around it.
pub(crate) struct Loop<'n> {
    /// Name of the node.
    pub(crate) name: &'n str,
    /// Iterations (i64, rank 0).
    pub(crate) trips: V,
    /// Whether to begin (bool, rank 0).
    pub(crate) begin: V,
    /// Initial values.
    pub(crate) carried: Vec<V>,
    /// Tensors scanned along axis 0.
    pub(crate) scanned: Vec<V>,
    /// Directions of scanned, then of stacked tensors.
    pub(crate) backward: Vec<bool>,
}

/// Inputs of a loop's body.
pub(crate) struct BodyArgs {
    pub(crate) iteration: V,
    pub(crate) condition: V,
    pub(crate) carried: Vec<V>,
    pub(crate) slices: Vec<V>,
}

/// Outputs of a loop's body.
pub(crate) struct BodyOuts {
    pub(crate) go_on: V,
    pub(crate) carried: Vec<V>,
    pub(crate) stacked: Vec<V>,
}

pub(crate) type BodyFn<'b, 'm> = &'b mut dyn FnMut(&mut Importer<'m>, BodyArgs) -> Result<BodyOuts, Fail>;

impl<'m> Importer<'m> {
    /// Adds a loop: the last carried values, then the stacked ones. The body is built again until the shapes of carried
    /// values are found that hold for every iteration: an extent that changes becomes a symbol.
    pub(crate) fn repeat(&mut self, l: &Loop<'_>, body: BodyFn<'_, 'm>) -> Result<Vec<V>, Fail> {
        let mut free: Vec<Vec<bool>> =
            l.carried.iter().map(|&v| vec![false; self.val(v).shape.len()]).collect();
        loop {
            let (problems, counts) = (self.problems.len(), self.op_counts.clone());
            let (outs, built, changed) = self.body_once(l, &mut free, body)?;
            if changed {
                self.problems.truncate(problems);
                self.op_counts = counts;
                continue;
            }
            let (carried, stacked) = (outs.0, outs.1);
            let kind = ControlKind::Loop { carried, scanned: l.scanned.len(), backward: l.backward.clone() };
            if l.backward.len() != l.scanned.len() + stacked {
                return invalid(format!(
                    "{} directions for {} tensors",
                    l.backward.len(),
                    l.scanned.len() + stacked
                ));
            }
            let mut operands = vec![l.trips, l.begin];
            operands.extend(l.carried.iter().chain(&l.scanned).chain(&built.captured));
            let count = self.iterations(l, &built.graph);
            let known = |i: usize, axis: usize| count.filter(|_| i >= carried && axis == 0);
            return self.push_control(kind, &operands, vec![built.graph], carried + stacked, l.name, known);
        }
    }
    /// How many iterations there are, where only the number of trips tells.
    fn iterations(&mut self, l: &Loop<'_>, body: &Graph) -> Option<Dim> {
        let go_on = body.outputs.first()?.value;
        let always = body.constant_of(go_on).is_some_and(|t| t.len() == 1 && t.get(0).as_i64() != 0);
        let begins = self.nd(l.begin).is_some_and(|nd| nd.data == [Dim::ONE]);
        if !begins || !(always || body.inputs.get(1)?.value == go_on) {
            return None;
        }
        let trips = *self.nd(l.trips)?.data.first()?;
        if self.graph.dims.as_const(trips).is_some_and(|n| n > 1 << 40) {
            return None;
        }
        Some(self.graph.dims.max(trips, Dim::ZERO))
    }
    #[allow(clippy::type_complexity, reason = "counts of outputs, the body, whether shapes changed")]
    fn body_once(
        &mut self,
        l: &Loop<'_>,
        free: &mut [Vec<bool>],
        body: BodyFn<'_, 'm>,
    ) -> Result<((usize, usize), Built, bool), Fail> {
        let scanned: Vec<(DType, Vec<Dim>)> = l
            .scanned
            .iter()
            .map(|&v| (self.val(v).dtype, self.val(v).shape.get(1..).unwrap_or_default().to_vec()))
            .collect();
        let mut shapes: Vec<Vec<Dim>> = l.carried.iter().map(|&v| self.val(v).shape.clone()).collect();
        let dtypes: Vec<DType> = l.carried.iter().map(|&v| self.val(v).dtype).collect();
        self.begin_body()?;
        let iteration = self.fresh("iteration");
        let iteration = self.body_input(&iteration, DType::I64, &[]);
        let condition = {
            let id = self.graph.input("condition", DType::Bool, &[]);
            self.of_id(id)
        };
        let mut carried = vec![];
        for (i, shape) in shapes.iter_mut().enumerate() {
            for (axis, d) in shape.iter_mut().enumerate().filter(|(a, _)| free[i][*a]) {
                let symbol = self.fresh(&format!("{}.carried{i}.{axis}", l.name));
                *d = self.graph.dims.symbol(&symbol);
            }
            let name = self.fresh(&format!("carried{i}"));
            carried.push(self.body_input(&name, dtypes[i], shape));
        }
        let mut slices = vec![];
        for (i, (dtype, shape)) in scanned.iter().enumerate() {
            let name = self.fresh(&format!("slice{i}"));
            slices.push(self.body_input(&name, *dtype, shape));
        }
        let outs = match body(self, BodyArgs { iteration, condition, carried, slices }) {
            Ok(outs) => outs,
            Err(e) => {
                self.leave();
                return Err(e);
            }
        };
        let mut changed = false;
        let mut wrong = None;
        for (i, (&v, shape)) in outs.carried.iter().zip(&shapes).enumerate() {
            let out = self.val(v).clone();
            if out.dtype != dtypes[i] || out.shape.len() != shape.len() {
                let dims = &self.graph.dims;
                let text = |dtype, shape: &[Dim]| {
                    dims.display_type(&TensorType { dtype, shape: shape.to_vec() }).to_string()
                };
                let (from, to) = (text(dtypes[i], shape), text(out.dtype, &out.shape));
                wrong = Some(format!("carried value {i} is {from} before an iteration and {to} after it"));
                continue;
            }
            for (axis, (&a, &b)) in shape.iter().zip(&out.shape).enumerate() {
                if !free[i][axis] && self.graph.dims.is_equal(a, b) != dvm_ir::Answer::Proven {
                    free[i][axis] = true;
                    changed = true;
                }
            }
        }
        let all: Vec<V> = std::iter::once(outs.go_on)
            .chain(outs.carried.iter().copied())
            .chain(outs.stacked.iter().copied())
            .collect();
        let counts = (outs.carried.len(), outs.stacked.len());
        let built = self.end_body(&all)?;
        match wrong {
            Some(w) => unsupported(w),
            None if counts.0 != l.carried.len() => {
                invalid(format!("{} values are carried, {} come out", l.carried.len(), counts.0))
            }
            None => Ok((counts, built, changed)),
        }
    }
}
