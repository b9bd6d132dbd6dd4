//! Values computed from constants alone, where the importer must know them.
//!
//! Constants are folded by the compiler later on; here only what decides shapes or structure is evaluated, and only while it
//! is small.

use dvm_ir::{Graph, Tensor, ValueDef, ValueId};

/// Most nodes and elements that are evaluated for one answer.
const MAX_NODES: usize = 512;
const MAX_ELEMENTS: i64 = 1 << 16;

/// The tensor of a value that depends on no input. `None` when it does, is large, or cannot be computed.
pub(crate) fn constant_value(graph: &Graph, v: ValueId) -> Option<Tensor> {
    let mut needed = vec![false; v.index() + 1];
    needed[v.index()] = true;
    let mut nodes = 0;
    // Values are numbered in a topological order.
    for i in (0..=v.index()).rev() {
        if !needed[i] {
            continue;
        }
        let value = &graph.values[i];
        let count = value.ty.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(graph.dims.as_const(d)?))?;
        if count > MAX_ELEMENTS {
            return None;
        }
        match value.def {
            ValueDef::Input(_) | ValueDef::Control(..) => return None,
            ValueDef::Const(_) => {}
            ValueDef::Node(n) => {
                nodes += 1;
                if nodes > MAX_NODES {
                    return None;
                }
                for operand in &graph.nodes[n.index()].inputs {
                    *needed.get_mut(operand.index())? = true;
                }
            }
        }
    }
    let mut part = Graph { dims: graph.dims.clone(), ..Graph::new("constant") };
    let mut id = vec![None; v.index() + 1];
    for i in (0..=v.index()).filter(|&i| needed[i]) {
        id[i] = Some(match graph.values[i].def {
            ValueDef::Input(_) | ValueDef::Control(..) => return None,
            ValueDef::Const(c) => part.constant(None, graph.constants[c.index()].clone()),
            ValueDef::Node(n) => {
                let node = &graph.nodes[n.index()];
                let operands = node.inputs.iter().map(|o| id[o.index()]).collect::<Option<Vec<_>>>()?;
                part.push_typed(node.op.clone(), &operands, graph.values[i].ty.clone(), None)
            }
        });
    }
    part.output("value", id[v.index()]?);
    let none: [(&str, Tensor); 0] = [];
    dvm_ir::eval::eval_graph(&part, &none).ok()?.pop()
}
