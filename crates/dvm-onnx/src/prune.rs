//! Drops what no output needs, and records which inputs' elements the shapes use.

use dvm_ir::{Attr, ConstId, Dim, Graph, NodeId, Value, ValueDef, ValueId};

/// The graph without dead nodes, constants and values. Inputs stay, and so do checks: later shapes may rest on them.
pub(crate) fn prune(mut g: Graph) -> Graph {
    let mut live = vec![false; g.values.len()];
    for o in &g.outputs {
        live[o.value.index()] = true;
    }
    for n in g.nodes.iter().rev() {
        if live[n.output.index()] {
            n.inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    for i in &g.inputs {
        live[i.value.index()] = true;
    }
    let mut new_id = vec![ValueId(0); g.values.len()];
    let mut values: Vec<Value> = vec![];
    let mut node_id = vec![NodeId(0); g.nodes.len()];
    let mut nodes = vec![];
    for (i, n) in std::mem::take(&mut g.nodes).into_iter().enumerate() {
        if live[n.output.index()] {
            node_id[i] = NodeId::new(nodes.len());
            nodes.push(n);
        }
    }
    let mut constants = vec![];
    let old = std::mem::take(&mut g.constants);
    for (i, v) in std::mem::take(&mut g.values).into_iter().enumerate() {
        if !live[i] {
            continue;
        }
        new_id[i] = ValueId::new(values.len());
        let def = match v.def {
            ValueDef::Input(k) => ValueDef::Input(k),
            ValueDef::Const(c) => {
                constants.push(old[c.index()].clone());
                ValueDef::Const(ConstId::new(constants.len() - 1))
            }
            ValueDef::Node(n) => ValueDef::Node(node_id[n.index()]),
        };
        values.push(Value { def, ..v });
    }
    for n in &mut nodes {
        n.inputs.iter_mut().for_each(|v| *v = new_id[v.index()]);
        n.output = new_id[n.output.index()];
    }
    g.inputs.iter_mut().for_each(|i| i.value = new_id[i.value.index()]);
    g.outputs.iter_mut().for_each(|o| o.value = new_id[o.value.index()]);
    (g.nodes, g.values, g.constants) = (nodes, values, constants);
    keep_used_elements(&mut g);
    g
}

/// Elements of inputs that no shape, attribute or check mentions are ordinary data.
fn keep_used_elements(g: &mut Graph) {
    if g.inputs.iter().all(|i| i.elements.is_none()) {
        return;
    }
    let mut used: Vec<Dim> = g.values.iter().flat_map(|v| v.ty.shape.iter().copied()).collect();
    for (_, attr) in g.nodes.iter().flat_map(|n| n.op.attrs()) {
        match attr {
            Attr::Dim(d) => used.push(d),
            Attr::Dims(d) => used.extend(d),
            _ => {}
        }
    }
    used.extend(g.checks.iter().flat_map(|c| c.cond.dims()));
    used.sort_unstable();
    used.dedup();
    // Substituting in a copy leaves no new dims behind.
    let mut scratch = g.dims.clone();
    for input in &mut g.inputs {
        let mentions = |symbol: &Dim| used.iter().any(|&d| scratch.replace(d, *symbol, Dim::ZERO) != d);
        if input.elements.as_ref().is_some_and(|e| !e.iter().any(mentions)) {
            input.elements = None;
        }
    }
}
