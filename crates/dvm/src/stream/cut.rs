//! A long segment as several programs, so that the first runs while the next is encoded.
//!
//! Cuts are made where the fewest values would have to be stored for them, by looking at the ops alone: what runs together does not
//! depend on who waits for it or on how fast the machine is.

use std::sync::Arc;

use dvm_ir::{Graph, Op, ValueDef, ValueId};
use rustc_hash::FxHashMap;

use super::Piece;
use super::program::Target;
use super::storage::Cell;

/// Fewest and most ops of a program, where there is more than one.
const OPS: (usize, usize) = (24, 64);

/// A segment that is to run: its graph without outputs, and what must be kept of it.
pub(crate) struct Whole {
    pub(crate) graph: Graph,
    pub(crate) leaves: Vec<Arc<Cell>>,
    /// Values that somebody can read, in order of definition.
    pub(crate) kept: Vec<(ValueId, Arc<Cell>)>,
    /// Values that are written into storages at the end. A target's input is one of `graph`.
    pub(crate) writes: Vec<(ValueId, Arc<Cell>, Target)>,
}

/// Whether an op is repeated in every program that needs it.
fn is_free(op: &Op) -> bool {
    op.is_view() || matches!(op, Op::Fill { .. } | Op::Range { .. } | Op::Dims { .. })
}

/// Ends of the programs, as node numbers.
fn ends(whole: &Whole) -> Vec<usize> {
    let g = &whole.graph;
    let n = g.nodes.len();
    if n <= OPS.1 {
        return vec![n];
    }
    // Last reader of each value, through ops that are repeated.
    let mut last = vec![0usize; g.values.len()];
    for w in &whole.writes {
        last[w.0.index()] = n;
    }
    for (i, node) in g.nodes.iter().enumerate().rev() {
        let until = if is_free(&node.op) { last[node.output.index()].max(i) } else { i };
        for v in &node.inputs {
            last[v.index()] = last[v.index()].max(until);
        }
    }
    let mut stored = vec![false; g.values.len()];
    whole.kept.iter().for_each(|(v, _)| stored[v.index()] = true);
    // Change of the number of values that a cut before a node would store.
    let mut change = vec![0i64; n + 2];
    for (i, node) in g.nodes.iter().enumerate() {
        let v = node.output.index();
        if !is_free(&node.op) && !stored[v] && last[v] > i {
            change[i + 1] += 1;
            change[(last[v] + 1).min(n + 1)] -= 1;
        }
    }
    let mut cost = vec![0i64; n + 1];
    let mut now = 0;
    for i in 0..=n {
        now += change[i];
        cost[i] = now;
    }
    let (mut ends, mut from) = (vec![], 0);
    while n - from > OPS.1 {
        let range = from + OPS.0..=(from + OPS.1).min(n - 1);
        let end = range.rev().min_by_key(|&i| cost[i]).unwrap_or(n);
        ends.push(end);
        from = end;
    }
    ends.push(n);
    ends
}

struct Cutter<'a> {
    whole: &'a Whole,
    /// Memory of values that a later program reads.
    cells: FxHashMap<ValueId, Arc<Cell>>,
}

/// A program being put together.
struct Part {
    graph: Graph,
    inputs: Vec<Arc<Cell>>,
    map: FxHashMap<ValueId, ValueId>,
    /// Numbers of its nodes in the whole.
    from: usize,
}

/// Pieces in order, numbered from `number` on.
pub(crate) fn cut(whole: Whole, number: u64) -> Vec<Piece> {
    let ends = ends(&whole);
    if let [_] = ends[..] {
        return vec![single(whole, number)];
    }
    let mut cutter = Cutter { whole: &whole, cells: FxHashMap::default() };
    cutter.cells.extend(whole.kept.iter().map(|(v, c)| (*v, c.clone())));
    let mut from = 0;
    for &end in &ends {
        for node in &whole.graph.nodes[from..end] {
            node.inputs.iter().for_each(|&v| cutter.cross(v, from));
        }
        from = end;
    }
    let last_from = ends[ends.len() - 2];
    whole.writes.iter().for_each(|w| cutter.cross(w.0, last_from));
    let (mut pieces, mut from) = (vec![], 0);
    for (k, &end) in ends.iter().enumerate() {
        let writes = if k + 1 == ends.len() { whole.writes.as_slice() } else { &[] };
        pieces.push(cutter.piece(from, end, writes, number + k as u64));
        from = end;
    }
    pieces
}

fn single(whole: Whole, number: u64) -> Piece {
    let Whole { mut graph, leaves, kept, writes } = whole;
    let (mut outputs, mut targets) = (vec![], vec![]);
    for (v, cell) in kept {
        graph.output(format!("o{}", outputs.len()), v);
        outputs.push(cell);
    }
    for (v, cell, target) in writes {
        graph.output(format!("w{}", targets.len()), v);
        outputs.push(cell);
        targets.push(target);
    }
    outputs.iter().for_each(|c| c.set_job(number));
    Piece { number, graph: Arc::new(graph), targets, inputs: leaves, outputs }
}

impl Cutter<'_> {
    /// Notes what a program that starts at a node needs in memory to read a value.
    fn cross(&mut self, v: ValueId, from: usize) {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            let ValueDef::Node(n) = self.whole.graph.value(v).def else { continue };
            if n.index() >= from {
                continue;
            }
            let node = &self.whole.graph.nodes[n.index()];
            if is_free(&node.op) {
                stack.extend_from_slice(&node.inputs);
            } else {
                self.cells.entry(v).or_insert_with(|| Arc::new(Cell::flight(0)));
            }
        }
    }
    fn piece(&self, from: usize, end: usize, writes: &[(ValueId, Arc<Cell>, Target)], number: u64) -> Piece {
        let g = &self.whole.graph;
        let graph = Graph { dims: g.dims.clone(), ..Graph::new(g.name.clone()) };
        let mut part = Part { graph, inputs: vec![], map: FxHashMap::default(), from };
        for i in from..end {
            self.node(&mut part, i);
        }
        let mut outputs: Vec<Arc<Cell>> = vec![];
        for node in &g.nodes[from..end] {
            if let (Some(cell), Some(&v)) = (self.cells.get(&node.output), part.map.get(&node.output)) {
                part.graph.output(format!("o{}", outputs.len()), v);
                outputs.push(cell.clone());
            }
        }
        let mut targets = vec![];
        for (v, cell, target) in writes {
            let v = self.value(&mut part, *v);
            part.graph.output(format!("w{}", targets.len()), v);
            let input = part.inputs.iter().position(|c| Arc::ptr_eq(c, cell)).map(|i| i as u32);
            outputs.push(cell.clone());
            targets.push(Target { input, ..target.clone() });
        }
        outputs.iter().for_each(|c| c.set_job(number));
        Piece { number, graph: Arc::new(part.graph), targets, inputs: part.inputs, outputs }
    }
    /// Adds a node of the whole to a part.
    fn node(&self, part: &mut Part, n: usize) -> ValueId {
        let node = &self.whole.graph.nodes[n];
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&v| self.value(part, v)).collect();
        let ty = self.whole.graph.value(node.output).ty.clone();
        let v = part.graph.push_typed(node.op.clone(), &inputs, ty, None);
        part.map.insert(node.output, v);
        v
    }
    /// A value of the whole in a part.
    fn value(&self, part: &mut Part, v: ValueId) -> ValueId {
        if let Some(&v) = part.map.get(&v) {
            return v;
        }
        let g = &self.whole.graph;
        let cell = match g.value(v).def {
            ValueDef::Const(c) => {
                let to = part.graph.constant(None, g.constants[c.index()].clone());
                part.map.insert(v, to);
                return to;
            }
            ValueDef::Input(i) => &self.whole.leaves[i as usize],
            ValueDef::Node(n) => match self.cells.get(&v) {
                Some(cell) if n.index() < part.from && !is_free(&g.nodes[n.index()].op) => cell,
                _ => return self.node(part, n.index()),
            },
            // What is recorded has no control flow.
            ValueDef::Control(..) => return v,
        };
        let name = format!("i{}", part.inputs.len());
        let to = part.graph.input(name, g.dtype(v), g.shape(v));
        part.inputs.push(cell.clone());
        part.map.insert(v, to);
        to
    }
}
