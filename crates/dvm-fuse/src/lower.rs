//! From the source graph to the graph that fusion works on: primitive ops, no dead code, and every value that must live
//! in a memory of its own (outputs, operands of concatenations) defined by an op that can store there.

use dvm_ir::{BinaryOp, Dim, DimTable, Graph, Node, NodeId, Op, Scalar, UnaryOp, ValueDef, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::builder::{Builder, splat};
use crate::columns::{self, Column};
use crate::decompose;

/// The graph that fusion works on. Its dims live beside it so that they can be extended while it is read.
pub(crate) struct Prim {
    pub(crate) g: Graph,
    /// Per node, the nodes of the source graph it was made for.
    pub(crate) origin: Vec<SmallVec<[NodeId; 1]>>,
    /// Per value, the concatenation that it is stored into, the axis, and where it starts along it.
    pub(crate) placed: Vec<Option<(ValueId, usize, Dim)>>,
    /// Per value, whether it is an output.
    pub(crate) output: Vec<bool>,
    /// Per value, the nodes that read it.
    pub(crate) users: Vec<SmallVec<[NodeId; 4]>>,
    /// Per value, the value all elements of a constant have.
    pub(crate) splat: Vec<Option<Scalar>>,
}

/// Ops without operands: they are computed wherever they are needed.
pub(crate) fn is_source(op: &Op) -> bool {
    matches!(op, Op::Fill { .. } | Op::Range { .. } | Op::Dims { .. })
}

/// Lowers a graph that verifies.
pub(crate) fn lower(source: &Graph, fuse: bool) -> Prim {
    let (mut g, origin) = primitives(source);
    let live = live_nodes(&g);
    let groups = if fuse { columns::find(&g, &live) } else { vec![] };
    let dims = std::mem::take(&mut g.dims);
    let named = shell(&g, dims);
    legalise(named, &g, &origin, &live, &groups)
}

/// Name and checks of a graph over these dims, with room for as many values.
fn shell(g: &Graph, dims: DimTable) -> Graph {
    Graph {
        name: g.name.clone(),
        dims,
        values: Vec::with_capacity(g.values.len()),
        nodes: Vec::with_capacity(g.nodes.len()),
        controls: vec![],
        constants: Vec::with_capacity(g.constants.len()),
        inputs: Vec::with_capacity(g.inputs.len()),
        outputs: Vec::with_capacity(g.outputs.len()),
        checks: g.checks.clone(),
    }
}

fn primitives(source: &Graph) -> (Graph, Vec<NodeId>) {
    let mut b = Builder::new(shell(source, source.dims.clone()), source.nodes.len());
    let mut map: Vec<Option<ValueId>> = vec![None; source.values.len()];
    for input in &source.inputs {
        let ty = &source.value(input.value).ty;
        let v = b.g.input(input.name.clone(), ty.dtype, &ty.shape);
        b.g.inputs.last_mut().expect("just added").elements.clone_from(&input.elements);
        map[input.value.index()] = Some(v);
    }
    for (i, value) in source.values.iter().enumerate() {
        if let ValueDef::Const(c) = value.def {
            map[i] = Some(b.constant(value.name.clone(), source.constants[c.index()].clone()));
        }
    }
    for (i, node) in source.nodes.iter().enumerate() {
        b.current = NodeId::new(i);
        let inputs: Vec<ValueId> =
            node.inputs.iter().map(|v| map[v.index()].expect("nodes are in topological order")).collect();
        let out = source.value(node.output);
        let v = decompose::lower(&mut b, &node.op, &inputs, &out.ty);
        let slot = &mut b.g.values[v.index()];
        if slot.name.is_none() {
            slot.name = out.name.clone().or_else(|| node.name.clone());
        }
        map[node.output.index()] = Some(v);
    }
    for o in &source.outputs {
        b.g.output(o.name.clone(), map[o.value.index()].expect("outputs are values of the graph"));
    }
    (b.g, b.origin)
}

fn live_nodes(g: &Graph) -> Vec<bool> {
    let mut live = vec![false; g.values.len()];
    for o in &g.outputs {
        live[o.value.index()] = true;
    }
    let mut nodes = vec![false; g.nodes.len()];
    for (i, n) in g.nodes.iter().enumerate().rev() {
        if live[n.output.index()] {
            nodes[i] = true;
            n.inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    nodes
}

struct Legal {
    p: Prim,
    map: Vec<Option<ValueId>>,
}

impl Legal {
    fn node(&mut self, g: &Graph, node: &Node, inputs: &[ValueId], origin: NodeId) -> ValueId {
        let value = g.value(node.output);
        let v = self.p.g.push_typed(node.op.clone(), inputs, value.ty.clone(), None);
        self.p.g.values[v.index()].name.clone_from(&value.name);
        self.added(v, origin);
        v
    }
    fn copy(&mut self, x: ValueId, origin: NodeId) -> ValueId {
        let ty = self.p.g.value(x).ty.clone();
        let v = self.p.g.push_typed(Op::Unary(UnaryOp::Copy), &[x], ty, None);
        self.added(v, origin);
        v
    }
    fn added(&mut self, v: ValueId, origin: NodeId) {
        self.p.origin.push(SmallVec::from_slice(&[origin]));
        let n = v.index() + 1;
        self.p.placed.resize(n, None);
        self.p.output.resize(n, false);
    }
    /// Makes one matmul of a group; its results become slices of the product.
    fn merge(&mut self, g: &Graph, group: &[Column], origin: &[NodeId]) -> Option<()> {
        let first = &g.nodes[group[0].matmul.index()];
        let Op::MatMul { trans_b, .. } = first.op else { return None };
        let weights: Vec<ValueId> = group.iter().map(|c| c.weight).collect();
        let weight = columns::join(g, &weights, usize::from(!trans_b))?;
        let biases: Option<Vec<ValueId>> = group.iter().map(|c| c.bias).collect();
        let bias = biases.map(|b| columns::join(g, &b, 0));
        if matches!(bias, Some(None)) {
            return None;
        }
        let mut ty = g.value(first.output).ty.clone();
        let axis = ty.shape.len() - 1;
        ty.shape[axis] = self.p.g.dims.constant(weight.shape()[usize::from(!trans_b)] as i64);
        let constant = |l: &mut Legal, t| {
            let v = l.p.g.constant(None, t);
            l.p.placed.push(None);
            l.p.output.push(false);
            v
        };
        let left = self.map[first.inputs[0].index()]?;
        let weight = constant(self, weight);
        let mut all = self.p.g.push_typed(first.op.clone(), &[left, weight], ty.clone(), None);
        self.added(all, origin[group[0].matmul.index()]);
        let sources = group.iter().map(|c| origin[c.matmul.index()]);
        *self.p.origin.last_mut()? = sources.collect();
        if let Some(bias) = bias.flatten() {
            let bias = constant(self, bias);
            all = self.p.g.push_typed(Op::Binary(BinaryOp::Add), &[all, bias], ty.clone(), None);
            self.added(all, origin[group[0].matmul.index()]);
            let adds = group.iter().filter_map(|c| match g.value(c.result).def {
                ValueDef::Node(n) => Some(origin[n.index()]),
                _ => None,
            });
            *self.p.origin.last_mut()? = adds.collect();
        }
        let mut at = Dim::ZERO;
        for c in group {
            let part = g.value(c.result).ty.clone();
            let mut start = vec![Dim::ZERO; axis + 1];
            start[axis] = at;
            at = self.p.g.dims.add(at, part.shape[axis]);
            let op = Op::Slice { start, len: part.shape.clone(), step: vec![1; axis + 1] };
            let v = self.p.g.push_typed(op, &[all], part, None);
            self.added(v, origin[c.matmul.index()]);
            self.map[c.result.index()] = Some(v);
            // The product itself is never looked at again, but must not be made.
            self.map[g.nodes[c.matmul.index()].output.index()] = Some(v);
        }
        Some(())
    }
    /// Whether a value can be stored wherever we want, and is not yet.
    fn is_free(&self, v: ValueId) -> bool {
        let stores = self.p.g.def_node(v).is_some_and(|n| !n.op.is_view() && !is_source(&n.op));
        stores && self.p.placed[v.index()].is_none() && !self.p.output[v.index()]
    }
}

/// `named` is the graph to fill; the dims of `g` are in it.
fn legalise(named: Graph, g: &Graph, origin: &[NodeId], live: &[bool], groups: &[Vec<Column>]) -> Prim {
    let mut is_output = vec![false; g.values.len()];
    g.outputs.iter().for_each(|o| is_output[o.value.index()] = true);
    let (n, m) = (g.values.len(), g.nodes.len());
    let p = Prim {
        g: named,
        origin: Vec::with_capacity(m),
        placed: Vec::with_capacity(n),
        output: Vec::with_capacity(n),
        users: vec![],
        splat: vec![],
    };
    let mut l = Legal { p, map: vec![None; g.values.len()] };
    for input in &g.inputs {
        let ty = &g.value(input.value).ty;
        let v = l.p.g.input(input.name.clone(), ty.dtype, &ty.shape);
        l.p.g.inputs.last_mut().expect("just added").elements.clone_from(&input.elements);
        l.map[input.value.index()] = Some(v);
    }
    let mut uses: Vec<usize> = is_output.iter().map(|&o| usize::from(o)).collect();
    for (n, _) in g.nodes.iter().zip(live).filter(|x| *x.1) {
        n.inputs.iter().for_each(|v| uses[v.index()] += 1);
    }
    for (i, value) in g.values.iter().enumerate() {
        if let (ValueDef::Const(c), true) = (value.def, uses[i] > 0) {
            l.map[i] = Some(l.p.g.constant(value.name.clone(), g.constants[c.index()].clone()));
        }
    }
    l.p.placed.resize(l.p.g.values.len(), None);
    l.p.output.resize(l.p.g.values.len(), false);

    let first: FxHashMap<NodeId, &[Column]> = groups.iter().map(|c| (c[0].matmul, c.as_slice())).collect();
    for (i, node) in g.nodes.iter().enumerate().filter(|&(i, _)| live[i]) {
        if l.map[node.output.index()].is_some() {
            continue;
        }
        if let Some(&group) = first.get(&NodeId::new(i))
            && l.merge(g, group, origin).is_some()
        {
            continue;
        }
        let mut inputs: Vec<ValueId> =
            node.inputs.iter().map(|v| l.map[v.index()].expect("nodes are in topological order")).collect();
        if let Op::Concat { .. } = node.op {
            for (k, x) in inputs.iter_mut().enumerate() {
                // A piece that others read too gets a buffer of its own: readers of a buffer wait for all its writers.
                if uses[node.inputs[k].index()] > 1 || !l.is_free(*x) {
                    *x = l.copy(*x, origin[i]);
                }
            }
        }
        let v = l.node(g, node, &inputs, origin[i]);
        if let Op::Concat { axis } = node.op {
            let mut start = Dim::ZERO;
            for &x in &inputs {
                l.p.placed[x.index()] = Some((v, axis, start));
                let len = l.p.g.shape(x)[axis];
                start = l.p.g.dims.add(start, len);
            }
        }
        l.map[node.output.index()] = Some(v);
        if is_output[node.output.index()] && l.is_free(v) {
            l.p.output[v.index()] = true;
        }
    }
    let mut taken = vec![false; l.p.g.values.len() + g.outputs.len()];
    for o in &g.outputs {
        let mut v = l.map[o.value.index()].expect("outputs are values of the graph");
        if !l.p.output[v.index()] || std::mem::replace(&mut taken[v.index()], true) {
            let origin = match g.value(o.value).def {
                ValueDef::Node(n) => origin[n.index()],
                _ => NodeId(u32::MAX),
            };
            v = l.copy(v, origin);
            l.p.output[v.index()] = true;
        }
        l.p.g.output(o.name.clone(), v);
    }
    let mut p = l.p;
    p.users = vec![SmallVec::new(); p.g.values.len()];
    for (i, n) in p.g.nodes.iter().enumerate() {
        for (k, v) in n.inputs.iter().enumerate() {
            if !n.inputs[..k].contains(v) {
                p.users[v.index()].push(NodeId::new(i));
            }
        }
    }
    p.splat = (0..p.g.values.len()).map(|i| p.g.constant_of(ValueId::new(i)).and_then(splat)).collect();
    p
}
