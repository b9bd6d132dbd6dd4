//! Drops what no output needs, and records which inputs' elements the shapes use.

use dvm_ir::{ConstId, Control, ControlId, ControlKind, Dim, Graph, Item, NodeId, Value, ValueDef, ValueId};

/// The graph without dead nodes, constants and values. Inputs stay, and so do checks: later shapes may rest on them.
pub(crate) fn prune(mut g: Graph) -> Graph {
    let mut live = vec![false; g.values.len()];
    for o in &g.outputs {
        live[o.value.index()] = true;
    }
    let mut kept = vec![false; g.controls.len()];
    let items: Vec<Item> = g.sequence().collect();
    for item in items.into_iter().rev() {
        let (needed, inputs) = match item {
            Item::Node(i) => (live[g.nodes[i].output.index()], &g.nodes[i].inputs),
            Item::Control(i) => {
                let c = &g.controls[i];
                // What is read becomes symbols, and those are everywhere.
                kept[i] =
                    matches!(c.kind, ControlKind::Read { .. }) || c.outputs.iter().any(|v| live[v.index()]);
                // All results of a control are values of the graph.
                c.outputs.iter().filter(|_| kept[i]).for_each(|v| live[v.index()] = true);
                (kept[i], &c.inputs)
            }
        };
        if needed {
            inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    for i in &g.inputs {
        live[i.value.index()] = true;
    }
    let mut new_id = vec![ValueId(0); g.values.len()];
    let mut values: Vec<Value> = vec![];
    let mut node_id = vec![NodeId(0); g.nodes.len()];
    let mut nodes = vec![];
    let mut controls = vec![];
    let mut control_id = vec![ControlId(0); g.controls.len()];
    let mut before = vec![0; g.nodes.len() + 1];
    for (i, n) in g.nodes.iter().enumerate() {
        before[i + 1] = before[i] + u32::from(live[n.output.index()]);
    }
    for (i, c) in std::mem::take(&mut g.controls).into_iter().enumerate() {
        if kept[i] {
            control_id[i] = ControlId::new(controls.len());
            controls.push(Control { at: before[c.at as usize], ..c });
        }
    }
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
            ValueDef::Control(c, k) => ValueDef::Control(control_id[c.index()], k),
        };
        values.push(Value { def, ..v });
    }
    for n in &mut nodes {
        n.inputs.iter_mut().for_each(|v| *v = new_id[v.index()]);
        n.output = new_id[n.output.index()];
    }
    for v in controls.iter_mut().flat_map(|c| c.inputs.iter_mut().chain(&mut c.outputs)) {
        *v = new_id[v.index()];
    }
    g.inputs.iter_mut().for_each(|i| i.value = new_id[i.value.index()]);
    g.outputs.iter_mut().for_each(|o| o.value = new_id[o.value.index()]);
    (g.nodes, g.values, g.constants, g.controls) = (nodes, values, constants, controls);
    keep_used_elements(&mut g);
    g
}

/// Elements of inputs that no shape, attribute or check mentions are ordinary data.
fn keep_used_elements(g: &mut Graph) {
    if g.inputs.iter().all(|i| i.elements.is_none()) {
        return;
    }
    let mut used = g.mentioned_dims();
    // A body means the same symbols where the names are the same.
    for body in g.controls.iter().flat_map(|c| &c.bodies) {
        body.visit(&mut |b| {
            let names = b.dims.symbols_in(b.mentioned_dims());
            let here = names.into_iter().filter_map(|s| g.dims.find_symbol(b.dims.symbol_name(s)));
            let here: Vec<_> = here.collect();
            let elements = g.inputs.iter().flat_map(|i| i.elements.iter().flatten());
            used.extend(elements.filter(|&&d| g.dims.as_symbol(d).is_some_and(|s| here.contains(&s))));
        });
    }
    // Substituting in a copy leaves no new dims behind.
    let mut scratch = g.dims.clone();
    for input in &mut g.inputs {
        let mentions = |symbol: &Dim| used.iter().any(|&d| scratch.replace(d, *symbol, Dim::ZERO) != d);
        if input.elements.as_ref().is_some_and(|e| !e.iter().any(mentions)) {
            input.elements = None;
        }
    }
}
