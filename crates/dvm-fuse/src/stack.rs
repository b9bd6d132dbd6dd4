//! Kernels that a user puts side by side or in a row, whatever fusion would make of them.
//!
//! Each part is planned by itself, so its values are those of a launch of its own; the parts share one plan, which becomes one
//! program and one launch per shape. `parallel` parts share levels, so they share the cores, with as many cores each as they
//! are given at most; `sequence` parts have levels of their own, one after the other.

use std::collections::HashMap;
use std::ops::Range;

use dvm_ir::plan::{Buffer, BufferId, BufferKind, Call, CoreLimit, KernelId, Level, Plan};
use dvm_ir::{CheckCond, Dim, Graph, Input, Kernel, NodeId, Shape, Symbol, TensorType, ValueDef, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{FuseError, FuseOptions, planned};

/// Graphs stacked by a user. Parts are connected by name: an input takes the output of that name of an earlier step of the
/// sequence around it, if there is one, else the input of that name of the whole.
///
/// ```
/// use dvm_fuse::{FuseOptions, Stack};
/// use dvm_ir::{DType, Graph, UnaryOp};
///
/// let part = |from: &str, op, to: &str| {
///     let mut g = Graph::new(to);
///     let n = g.dims.symbol("n");
///     let x = g.input(from, DType::F32, &[n]);
///     let y = g.unary(op, x)?;
///     g.output(to, y);
///     Ok::<Stack, dvm_ir::IrError>(Stack::kernel(g))
/// };
/// // exp and sin side by side, exp on one core at most; then sqrt of what exp gave.
/// let both = Stack::parallel([part("x", UnaryOp::Exp, "e")?.cores(1), part("x", UnaryOp::Sin, "s")?]);
/// let all = Stack::sequence([both, part("e", UnaryOp::Sqrt, "r")?]);
/// let (graph, stacking) = all.build("both")?;
/// let plan = stacking.plan(&graph, &FuseOptions::default())?;
/// assert_eq!((plan.calls.len(), plan.levels.len()), (3, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack(Node<Box<Graph>>);

#[derive(Clone, Debug)]
enum Parts<T> {
    One(T),
    Parallel(Vec<Node<T>>),
    Sequence(Vec<Node<T>>),
}

/// Parts and the most cores they may have.
#[derive(Clone, Debug)]
struct Node<T> {
    parts: Parts<T>,
    cores: Option<u32>,
}

/// How the nodes of a graph are stacked.
#[derive(Clone, Debug)]
pub struct Stacking(Node<Range<usize>>);

/// Graphs that do not stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A part has controls.
    #[error("part `{part}`: {control}: a part of a stack is one program")]
    Control {
        /// The part.
        part: String,
        /// Its first control.
        control: String,
    },
    /// Two parts read one name as different things.
    #[error("part `{part}`: `{name}` is {wanted} here, but {given} before")]
    Type {
        /// The part.
        part: String,
        /// The input.
        name: String,
        /// Type it declares.
        wanted: String,
        /// Type there is.
        given: String,
    },
    /// Two parts make one name, and it is not the later one that counts.
    #[error("part `{part}`: an output `{name}` is there already")]
    Output {
        /// The part.
        part: String,
        /// The output.
        name: String,
    },
    /// A part reads what a part beside it makes.
    #[error("part `{part}`: `{name}` is made by a part beside it; put them in a sequence")]
    Beside {
        /// The part.
        part: String,
        /// The name.
        name: String,
    },
    /// A dim that has no value in the whole.
    #[error("part `{part}`: the dim `{dim}` overflows or is not known outside of it")]
    Dim {
        /// The part.
        part: String,
        /// The dim.
        dim: String,
    },
    /// A limit of no cores.
    #[error("a part is limited to 0 cores")]
    Cores,
    /// No parts.
    #[error("a stack without parts")]
    Empty,
}

impl Stack {
    /// One graph, fused as far as it can be.
    #[must_use]
    pub fn kernel(graph: Graph) -> Stack {
        Stack(Node { parts: Parts::One(Box::new(graph)), cores: None })
    }
    /// Independent parts side by side: they share the cores, by load. There may be more parts than cores.
    #[must_use]
    pub fn parallel(parts: impl IntoIterator<Item = Stack>) -> Stack {
        Stack(Node { parts: Parts::Parallel(parts.into_iter().map(|p| p.0).collect()), cores: None })
    }
    /// Parts one after the other in one program and one launch.
    #[must_use]
    pub fn sequence(parts: impl IntoIterator<Item = Stack>) -> Stack {
        Stack(Node { parts: Parts::Sequence(parts.into_iter().map(|p| p.0).collect()), cores: None })
    }
    /// Gives this part at most so many cores at one time. Values never depend on it.
    #[must_use]
    pub fn cores(self, most: u32) -> Stack {
        let cores = Some(self.0.cores.map_or(most, |c| c.min(most)));
        Stack(Node { cores, ..self.0 })
    }

    /// The whole as one graph, and how its nodes are stacked. Its outputs are those that no later part reads.
    ///
    /// # Errors
    /// Parts whose inputs and outputs do not fit together.
    pub fn build(self, name: &str) -> Result<(Graph, Stacking), StackError> {
        let mut b = Build {
            g: Graph::new(name),
            defined: HashMap::new(),
            order: vec![],
            read: FxHashSet::default(),
            inputs: HashMap::new(),
        };
        let node = b.node(self.0)?;
        for name in std::mem::take(&mut b.order) {
            if let Some(&v) = b.defined.get(&name)
                && !b.read.contains(&name)
            {
                b.g.output(name, v);
            }
        }
        Ok((b.g, Stacking(node)))
    }
}

struct Build {
    g: Graph,
    /// Outputs of earlier parts that can be read here.
    defined: HashMap<String, ValueId>,
    /// Their names, in order.
    order: Vec<String>,
    /// Those that some part read.
    read: FxHashSet<String>,
    inputs: HashMap<String, ValueId>,
}

impl Build {
    fn node(&mut self, n: Node<Box<Graph>>) -> Result<Node<Range<usize>>, StackError> {
        if n.cores == Some(0) {
            return Err(StackError::Cores);
        }
        let parts = match n.parts {
            Parts::One(g) => Parts::One(self.part(&g)?),
            Parts::Parallel(parts) if !parts.is_empty() => {
                let before = self.defined.clone();
                let mut made: HashMap<String, ValueId> = HashMap::new();
                let mut out = Vec::with_capacity(parts.len());
                for part in parts {
                    self.defined.clone_from(&before);
                    let inputs = self.inputs.clone();
                    out.push(self.node(part)?);
                    let beside = |n: &&String| !inputs.contains_key(*n) && made.contains_key(*n);
                    if let Some(name) = self.inputs.keys().find(beside) {
                        return Err(StackError::Beside { part: self.g.name.clone(), name: name.clone() });
                    }
                    for (name, v) in &self.defined {
                        if before.get(name) != Some(v) && made.insert(name.clone(), *v).is_some() {
                            return Err(StackError::Output { part: self.g.name.clone(), name: name.clone() });
                        }
                    }
                }
                self.defined = before;
                self.defined.extend(made);
                Parts::Parallel(out)
            }
            Parts::Sequence(parts) if !parts.is_empty() => {
                Parts::Sequence(parts.into_iter().map(|p| self.node(p)).collect::<Result<_, _>>()?)
            }
            _ => return Err(StackError::Empty),
        };
        Ok(Node { parts, cores: n.cores })
    }

    /// Adds a graph; the nodes it becomes.
    fn part(&mut self, part: &Graph) -> Result<Range<usize>, StackError> {
        let name = &part.name;
        if let Some(c) = part.controls.first() {
            return Err(StackError::Control { part: name.clone(), control: c.to_string() });
        }
        // Symbols that stand for an axis of what is there already.
        let mut symbols: HashMap<Symbol, Dim> = HashMap::new();
        let source = |b: &Build, i: &Input| b.defined.get(&i.name).or_else(|| b.inputs.get(&i.name)).copied();
        for input in &part.inputs {
            let (Some(v), wanted) = (source(self, input), &part.value(input.value).ty) else { continue };
            let given = &self.g.value(v).ty;
            if given.dtype != wanted.dtype || given.shape.len() != wanted.shape.len() {
                return Err(StackError::Type {
                    part: name.clone(),
                    name: input.name.clone(),
                    wanted: part.dims.display_type(wanted).to_string(),
                    given: self.g.dims.display_type(given).to_string(),
                });
            }
            for (&w, &d) in wanted.shape.iter().zip(&given.shape) {
                if let Some(s) = part.dims.as_symbol(w) {
                    symbols.entry(s).or_insert(d);
                }
            }
        }
        for (s, text) in part.dims.symbols() {
            if symbols.contains_key(&s) {
                continue;
            }
            let is_new = self.g.dims.find_symbol(text).is_none();
            let d =
                if part.dims.is_value(s) { self.g.dims.value_symbol(text) } else { self.g.dims.symbol(text) };
            let (lo, hi) = part.dims.symbol_range(s);
            if let (true, Some(symbol)) = (is_new || lo.is_some() || hi.is_some(), self.g.dims.as_symbol(d)) {
                self.g.dims.assume_range(symbol, lo.unwrap_or(i64::MIN + 1), hi.unwrap_or(i64::MAX));
            }
            symbols.insert(s, d);
        }
        let known = Known { part, symbols };
        let mut map: Vec<Option<ValueId>> = vec![None; part.values.len()];
        for input in &part.inputs {
            let wanted = &part.value(input.value).ty;
            let shape = known.shape(&mut self.g, &wanted.shape)?;
            let v = match source(self, input) {
                Some(v) => {
                    let given: Shape = self.g.shape(v).to_vec();
                    for (axis, (&a, &b)) in shape.iter().zip(&given).enumerate().filter(|(_, (a, b))| a != b)
                    {
                        let what = format!("part `{name}`: axis {axis} of `{}`", input.name);
                        self.g.assume(CheckCond::Equal(a, b), what).map_err(|_| StackError::Type {
                            part: name.clone(),
                            name: input.name.clone(),
                            wanted: part.dims.display_type(wanted).to_string(),
                            given: self.g.dims.display_shape(&given).to_string(),
                        })?;
                    }
                    v
                }
                None => {
                    let v = self.g.input(input.name.clone(), wanted.dtype, &shape);
                    if let Some(elements) = &input.elements {
                        let elements = known.shape(&mut self.g, elements)?;
                        if let Some(i) = self.g.inputs.last_mut() {
                            i.elements = Some(elements);
                        }
                    }
                    self.inputs.insert(input.name.clone(), v);
                    v
                }
            };
            if self.defined.contains_key(&input.name) {
                self.read.insert(input.name.clone());
            }
            map[input.value.index()] = Some(v);
        }
        for c in &part.checks {
            let mut dims = c.cond.dims().into_iter();
            let mut failed = None;
            let cond = c.cond.map(|d| {
                let d = dims.next().unwrap_or(d);
                known.dim(&mut self.g, d).unwrap_or_else(|e| {
                    failed = Some(e);
                    Dim::ZERO
                })
            });
            if let Some(e) = failed {
                return Err(e);
            }
            // A condition that never holds is an error when dims are bound, as it is for the part alone.
            if self.g.assume(cond, c.what.clone()).is_err() {
                self.g.checks.push(dvm_ir::Check { cond, what: c.what.clone() });
            }
        }
        for (i, value) in part.values.iter().enumerate() {
            if let ValueDef::Const(c) = value.def {
                map[i] = Some(self.g.constant(value.name.clone(), part.constants[c.index()].clone()));
            }
        }
        let first = self.g.nodes.len();
        for node in &part.nodes {
            let ty = &part.value(node.output).ty;
            let ty = TensorType { dtype: ty.dtype, shape: known.shape(&mut self.g, &ty.shape)? };
            let mut failed = None;
            let op = node.op.map_dims(|d| {
                known.dim(&mut self.g, d).unwrap_or_else(|e| {
                    failed = Some(e);
                    Dim::ZERO
                })
            });
            if let Some(e) = failed {
                return Err(e);
            }
            let inputs: Vec<ValueId> = node.inputs.iter().filter_map(|v| map[v.index()]).collect();
            let v = self.g.push_typed(op, &inputs, ty, node.name.clone());
            self.g.values[v.index()].name.clone_from(&part.value(node.output).name);
            map[node.output.index()] = Some(v);
        }
        // A value that passes through is computed by a copy, so that a part makes what it says.
        for o in &part.outputs {
            let Some(mut v) = map[o.value.index()] else { continue };
            if !matches!(part.value(o.value).def, ValueDef::Node(_)) {
                let ty = self.g.value(v).ty.clone();
                v = self.g.push_typed(dvm_ir::Op::Unary(dvm_ir::UnaryOp::Copy), &[v], ty, None);
            }
            let unread = self.defined.contains_key(&o.name) && !self.read.contains(&o.name);
            if unread || self.inputs.contains_key(&o.name) {
                return Err(StackError::Output { part: name.clone(), name: o.name.clone() });
            }
            self.read.remove(&o.name);
            self.defined.insert(o.name.clone(), v);
            self.order.retain(|n| *n != o.name);
            self.order.push(o.name.clone());
        }
        Ok(first..self.g.nodes.len())
    }
}

/// Dims of a part in terms of the whole.
struct Known<'a> {
    part: &'a Graph,
    symbols: HashMap<Symbol, Dim>,
}

impl Known<'_> {
    fn dim(&self, g: &mut Graph, d: Dim) -> Result<Dim, StackError> {
        g.dims.import_as(&self.part.dims, d, &self.symbols).ok_or_else(|| StackError::Dim {
            part: self.part.name.clone(),
            dim: self.part.dims.display(d).to_string(),
        })
    }
    fn shape(&self, g: &mut Graph, shape: &[Dim]) -> Result<Shape, StackError> {
        shape.iter().map(|&d| self.dim(g, d)).collect()
    }
}

impl Stacking {
    /// Plans a graph as it is stacked.
    ///
    /// # Errors
    /// As [`crate::plan`], and a graph that this is no stacking of.
    pub fn plan(&self, graph: &Graph, opts: &FuseOptions) -> Result<Plan, FuseError> {
        let mut ranges = vec![];
        leaves(&self.0, &mut ranges);
        let in_order = ranges.windows(2).all(|w| w[0].end == w[1].start);
        let ends = ranges.first().is_some_and(|r| r.start == 0)
            && ranges.last().is_some_and(|r| r.end == graph.nodes.len());
        if !in_order || !ends {
            let covered = ranges.iter().map(Range::len).sum();
            return Err(FuseError::Stacking { covered, nodes: graph.nodes.len() });
        }
        let mut m = Merge {
            graph,
            opts,
            plan: Plan {
                name: graph.name.clone(),
                dims: graph.dims.clone(),
                checks: graph.checks.clone(),
                stacked: true,
                ..Plan::default()
            },
            buffers: FxHashMap::default(),
            constants: FxHashMap::default(),
            kernels: FxHashMap::default(),
            names: FxHashSet::default(),
            read: readers(graph, &ranges),
        };
        m.interface();
        let levels = m.node(&self.0)?;
        for (l, entries) in levels.into_iter().enumerate() {
            let mut level = Level::default();
            for e in entries {
                if let Some(cores) = e.cores {
                    let (first, calls) = (level.calls.len() as u32, e.calls.len() as u32);
                    m.plan.limits.push(CoreLimit { level: l as u32, first, calls, cores });
                }
                level.calls.extend(e.calls);
            }
            m.plan.levels.push(level);
        }
        m.boundaries();
        Ok(m.plan)
    }
}

fn leaves(n: &Node<Range<usize>>, out: &mut Vec<Range<usize>>) {
    match &n.parts {
        Parts::One(r) => out.push(r.clone()),
        Parts::Parallel(parts) | Parts::Sequence(parts) => parts.iter().for_each(|p| leaves(p, out)),
    }
}

/// Values that another part than the one that makes them reads, or that are outputs.
fn readers(g: &Graph, ranges: &[Range<usize>]) -> Vec<bool> {
    let mut read = vec![false; g.values.len()];
    g.outputs.iter().for_each(|o| read[o.value.index()] = true);
    for r in ranges {
        for v in g.nodes[r.clone()].iter().flat_map(|n| &n.inputs) {
            if let ValueDef::Node(n) = g.value(*v).def {
                read[v.index()] |= !r.contains(&n.index());
            }
        }
    }
    read
}

/// Calls of a level that share a limit, if they have one.
struct Entry {
    calls: Vec<u32>,
    cores: Option<u32>,
}

type Levels = Vec<Vec<Entry>>;

struct Merge<'a> {
    graph: &'a Graph,
    opts: &'a FuseOptions,
    plan: Plan,
    /// Buffer of each value of the graph that is stored.
    buffers: FxHashMap<ValueId, BufferId>,
    constants: FxHashMap<ValueId, BufferId>,
    kernels: FxHashMap<Kernel, KernelId>,
    names: FxHashSet<String>,
    read: Vec<bool>,
}

impl Merge<'_> {
    fn buffer(&mut self, name: &str, like: Buffer) -> BufferId {
        let mut unique = name.to_owned();
        let mut n = 1;
        while !self.names.insert(unique.clone()) {
            n += 1;
            unique = format!("{name}.{n}");
        }
        self.plan.buffers.push(Buffer { name: unique, ..like });
        BufferId::new(self.plan.buffers.len() - 1)
    }
    /// Inputs and outputs of the whole.
    fn interface(&mut self) {
        for (i, input) in self.graph.inputs.iter().enumerate() {
            let ty = self.graph.value(input.value).ty.clone();
            let len = self.plan.dims.product(&ty.shape);
            let kind = BufferKind::Input(i as u32);
            let buffer = self.buffer(&input.name, Buffer { name: String::new(), dtype: ty.dtype, len, kind });
            self.buffers.insert(input.value, buffer);
            let (input, dtype, shape) = (input.clone(), ty.dtype, ty.shape);
            self.plan.inputs.push(dvm_ir::plan::PlanInput { input, dtype, shape, buffer });
        }
        for (i, o) in self.graph.outputs.iter().enumerate() {
            let ty = self.graph.value(o.value).ty.clone();
            let len = self.plan.dims.product(&ty.shape);
            let kind = BufferKind::Output(i as u32);
            let buffer = self.buffer(&o.name, Buffer { name: String::new(), dtype: ty.dtype, len, kind });
            self.buffers.insert(o.value, buffer);
            self.plan.outputs.push(dvm_ir::plan::PlanOutput {
                name: o.name.clone(),
                dtype: ty.dtype,
                shape: ty.shape,
                buffer,
            });
        }
    }

    fn node(&mut self, n: &Node<Range<usize>>) -> Result<Levels, FuseError> {
        let mut levels = match &n.parts {
            Parts::One(r) => self.part(r)?,
            Parts::Parallel(parts) => {
                let mut all = Levels::new();
                for p in parts {
                    for (l, entries) in self.node(p)?.into_iter().enumerate() {
                        if all.len() <= l {
                            all.push(vec![]);
                        }
                        all[l].extend(entries);
                    }
                }
                all
            }
            Parts::Sequence(parts) => {
                let mut all = Levels::new();
                for p in parts {
                    all.extend(self.node(p)?);
                }
                all
            }
        };
        // A limit around limits is one for all of them together.
        if let Some(most) = n.cores {
            for entries in &mut levels {
                let calls = entries.drain(..).flat_map(|e| e.calls).collect();
                entries.push(Entry { calls, cores: Some(most) });
            }
        }
        Ok(levels)
    }

    /// Plans some nodes and adds their calls.
    fn part(&mut self, nodes: &Range<usize>) -> Result<Levels, FuseError> {
        let mut sub = Graph { dims: self.plan.dims.clone(), ..Graph::new(self.graph.name.clone()) };
        let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let (mut inputs, mut constants, mut outputs) = (vec![], vec![], vec![]);
        let used = || self.graph.nodes[nodes.clone()].iter().flat_map(|n| &n.inputs);
        for &v in used() {
            let value = self.graph.value(v);
            let inside = matches!(value.def, ValueDef::Node(n) if nodes.contains(&n.index()));
            if inside || map.contains_key(&v) || matches!(value.def, ValueDef::Const(_)) {
                continue;
            }
            map.insert(v, sub.input(v.to_string(), value.ty.dtype, &value.ty.shape));
            inputs.push(v);
        }
        for &v in used() {
            if let (Some(t), false) = (self.graph.constant_of(v), map.contains_key(&v)) {
                map.insert(v, sub.constant(self.graph.value(v).name.clone(), t.clone()));
                constants.push(v);
            }
        }
        for node in &self.graph.nodes[nodes.clone()] {
            let operands: Vec<ValueId> = node.inputs.iter().filter_map(|v| map.get(v).copied()).collect();
            let ty = self.graph.value(node.output).ty.clone();
            let v = sub.push_typed(node.op.clone(), &operands, ty, node.name.clone());
            sub.values[v.index()].name.clone_from(&self.graph.value(node.output).name);
            map.insert(node.output, v);
            if self.read[node.output.index()] {
                sub.output(node.output.to_string(), v);
                outputs.push(node.output);
            }
        }
        let plan = planned(&sub, self.opts, false)?.plan;
        self.plan.dims = plan.dims;
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for b in &plan.buffers {
            let id = match b.kind {
                BufferKind::Input(i) => self.buffers.get(&inputs[i as usize]).copied(),
                BufferKind::Output(o) => self.buffers.get(&outputs[o as usize]).copied(),
                _ => None,
            };
            buffers.push(match (id, &b.kind) {
                (Some(id), _) => id,
                (None, BufferKind::Const(c)) => {
                    let tensor = &plan.constants[*c as usize];
                    let known = constants.iter().find(|v| {
                        self.graph
                            .constant_of(**v)
                            .is_some_and(|t| t.bytes().as_ptr() == tensor.bytes().as_ptr())
                    });
                    match known.and_then(|v| self.constants.get(v)) {
                        Some(&id) => id,
                        None => {
                            self.plan.constants.push(tensor.clone());
                            let kind = BufferKind::Const(self.plan.constants.len() as u32 - 1);
                            let id = self.buffer(&b.name, Buffer { kind, ..b.clone() });
                            known.map(|&v| self.constants.insert(v, id));
                            id
                        }
                    }
                }
                (None, BufferKind::Output(o)) => {
                    let v = outputs[*o as usize];
                    let name = self.graph.value(v).name.clone().unwrap_or_else(|| v.to_string());
                    let id = self.buffer(&name, Buffer { kind: BufferKind::Temp, ..b.clone() });
                    self.buffers.insert(v, id);
                    id
                }
                (None, _) => self.buffer(&b.name, Buffer { kind: BufferKind::Temp, ..b.clone() }),
            });
        }
        let base = self.plan.calls.len() as u32;
        for call in plan.calls {
            let kernel = &plan.kernels[call.kernel.index()];
            let next = KernelId::new(self.plan.kernels.len());
            let id = *self.kernels.entry(kernel.clone()).or_insert(next);
            if id == next {
                self.plan.kernels.push(kernel.clone());
            }
            self.plan.calls.push(Call {
                kernel: id,
                args: call.args.iter().map(|b| buffers[b.index()]).collect(),
                nodes: call.nodes.iter().map(|n| NodeId::new(n.index() + nodes.start)).collect(),
            });
        }
        for mut b in plan.boundaries {
            (b.from, b.to, b.buffer) = (b.from + base, b.to + base, buffers[b.buffer.index()]);
            self.plan.boundaries.push(b);
        }
        let level = |l: Level| {
            let one = |c: &u32| Entry { calls: vec![c + base], cores: None };
            l.calls.iter().map(one).collect()
        };
        Ok(plan.levels.into_iter().map(level).collect())
    }

    /// What goes from part to part.
    fn boundaries(&mut self) {
        let p = &mut self.plan;
        let known: FxHashSet<(u32, u32, BufferId)> =
            p.boundaries.iter().map(|b| (b.from, b.to, b.buffer)).collect();
        let mut writers: FxHashMap<BufferId, Vec<u32>> = FxHashMap::default();
        for (i, call) in p.calls.iter().enumerate() {
            for (b, _) in
                call.args.iter().zip(&p.kernels[call.kernel.index()].operands).filter(|(_, o)| o.write)
            {
                writers.entry(*b).or_default().push(i as u32);
            }
        }
        for (i, call) in p.calls.iter().enumerate() {
            for (b, _) in
                call.args.iter().zip(&p.kernels[call.kernel.index()].operands).filter(|(_, o)| !o.write)
            {
                for &from in writers.get(b).into_iter().flatten() {
                    if !known.contains(&(from, i as u32, *b)) {
                        p.boundaries.push(dvm_ir::plan::Boundary {
                            from,
                            to: i as u32,
                            buffer: *b,
                            reason: "parts of a stack are kernels of their own".into(),
                            missing: vec![],
                        });
                    }
                }
            }
        }
    }
}
