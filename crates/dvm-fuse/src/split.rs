//! A graph with controls as ordinary graphs between them.
//!
//! The host executes a control, so memory ends every kernel there. How many values cross is decided here: a node goes to the
//! *last* part that all its users allow. So a part computes what the next control needs and nothing else, and everything
//! after it fuses as one.

use dvm_ir::{Control, Graph, Item, NodeId, Tensor, Value, ValueDef, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::FuseError;

/// What happens between two controls.
#[derive(Clone, Debug)]
pub struct Part {
    /// The nodes as a graph. It has the dims of the whole graph, and no checks: they are the frame's.
    pub graph: Graph,
    /// Value of the whole graph for each input.
    pub inputs: Vec<ValueId>,
    /// Value of the whole graph for each output.
    pub outputs: Vec<ValueId>,
    /// Node of the whole graph for each node.
    pub nodes: Vec<NodeId>,
}

/// A step of a graph with controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes a part.
    Part(usize),
    /// Executes a control.
    Control(usize),
}

/// A graph with controls, split at them.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// Parts, none of them without outputs.
    pub parts: Vec<Part>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// Most dims of all parts together: each has those of the whole graph.
const MAX_DIMS: usize = 1 << 20;

/// Splits a graph that verifies at its controls.
///
/// # Errors
/// When there are too many controls for the size of the graph.
pub fn split(g: &Graph) -> Result<Split, FuseError> {
    let n = g.controls.len();
    if n.saturating_mul(g.dims.len()) > MAX_DIMS {
        return Err(FuseError::Parts { controls: n, dims: g.dims.len() });
    }
    // The part each node belongs to: part i comes before control i, the last one after all of them.
    let mut stage: Vec<Option<usize>> = vec![None; g.nodes.len()];
    let lower = |stage: &mut Vec<Option<usize>>, v: ValueId, to: usize| {
        if let ValueDef::Node(d) = g.value(v).def {
            let s = &mut stage[d.index()];
            *s = Some(s.map_or(to, |s| s.min(to)));
        }
    };
    g.outputs.iter().for_each(|o| lower(&mut stage, o.value, n));
    let items: Vec<Item> = g.sequence().collect();
    for item in items.iter().rev() {
        match *item {
            Item::Control(i) => {
                let c = &g.controls[i];
                for &v in &c.inputs {
                    if !host_knows(g, c, v) {
                        lower(&mut stage, v, i);
                    }
                }
            }
            Item::Node(i) => {
                if let Some(s) = stage[i] {
                    g.nodes[i].inputs.iter().for_each(|&v| lower(&mut stage, v, s));
                }
            }
        }
    }
    // Values that another part, a control or the outside needs.
    let mut crosses = vec![false; g.values.len()];
    g.outputs.iter().for_each(|o| crosses[o.value.index()] = true);
    g.controls.iter().flat_map(|c| &c.inputs).for_each(|v| crosses[v.index()] = true);
    for (i, node) in g.nodes.iter().enumerate() {
        for &v in &node.inputs {
            crosses[v.index()] |= matches!(g.value(v).def, ValueDef::Node(d) if stage[d.index()] != stage[i]);
        }
    }
    let mut nodes: Vec<Vec<usize>> = vec![vec![]; n + 1];
    for (i, s) in stage.iter().enumerate() {
        s.iter().for_each(|&s| nodes[s].push(i));
    }
    let mut out = Split::default();
    for (s, nodes) in nodes.iter().enumerate() {
        if !nodes.is_empty() {
            out.steps.push(Step::Part(out.parts.len()));
            out.parts.push(part(g, s, nodes, &crosses));
        }
        if s < n {
            out.steps.push(Step::Control(s));
        }
    }
    Ok(out)
}

/// Whether the host needs no memory for an operand: a number made from dims, where one is expected.
fn host_knows(g: &Graph, c: &Control, v: ValueId) -> bool {
    let places: &[usize] = match c.kind {
        dvm_ir::ControlKind::If => &[0],
        dvm_ir::ControlKind::Loop { .. } => &[0, 1],
        _ => &[],
    };
    let elsewhere = c.inputs.iter().enumerate().any(|(i, &w)| w == v && !places.contains(&i));
    !elsewhere && g.scalar_dim(v).is_some()
}

fn part(g: &Graph, number: usize, nodes: &[usize], crosses: &[bool]) -> Part {
    let name = if g.controls.is_empty() { g.name.clone() } else { format!("{}.{number}", g.name) };
    let mut p = Part {
        graph: Graph { dims: g.dims.clone(), ..Graph::new(name) },
        inputs: vec![],
        outputs: vec![],
        nodes: nodes.iter().map(|&i| NodeId::new(i)).collect(),
    };
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut seen: FxHashSet<ValueId> = FxHashSet::default();
    let mut constants: Vec<(ValueId, Tensor)> = vec![];
    // Inputs first, so that they are numbered before constants and nodes.
    for &v in nodes.iter().flat_map(|&i| &g.nodes[i].inputs) {
        let Value { def, ty, .. } = g.value(v);
        let inside = matches!(def, ValueDef::Node(d) if p.nodes.binary_search(d).is_ok());
        if inside || !seen.insert(v) {
            continue;
        }
        if let Some(t) = g.constant_of(v) {
            constants.push((v, t.clone()));
            continue;
        }
        map.insert(v, p.graph.input(v.to_string(), ty.dtype, &ty.shape));
        p.inputs.push(v);
    }
    for (v, t) in constants {
        map.insert(v, p.graph.constant(g.value(v).name.clone(), t));
    }
    for &i in nodes {
        let node = &g.nodes[i];
        let inputs: Option<Vec<ValueId>> = node.inputs.iter().map(|v| map.get(v).copied()).collect();
        // Operands come before a node, and from earlier parts only as inputs.
        let Some(inputs) = inputs else { continue };
        let ty = g.value(node.output).ty.clone();
        let v = p.graph.push_typed(node.op.clone(), &inputs, ty, node.name.clone());
        p.graph.values[v.index()].name.clone_from(&g.value(node.output).name);
        map.insert(node.output, v);
        if crosses[node.output.index()] {
            p.graph.output(node.output.to_string(), v);
            p.outputs.push(node.output);
        }
    }
    p
}
