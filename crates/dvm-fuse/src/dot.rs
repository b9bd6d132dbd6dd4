//! A plan as a graph of calls, for people to look at and for graph algorithms.

use dvm_ir::Plan;
use petgraph::dot::Dot;
use petgraph::graph::{DiGraph, NodeIndex};

/// The calls of a plan and the buffers between them: an edge leads from the call that writes a buffer to one that reads it.
#[must_use]
pub fn call_graph(plan: &Plan) -> DiGraph<String, String> {
    let mut g = DiGraph::with_capacity(plan.calls.len(), plan.boundaries.len());
    let node = |c: &dvm_ir::plan::Call| {
        let kernel = &plan.kernels[c.kernel.index()];
        let axes: Vec<String> = kernel.axes.iter().map(|&d| plan.dims.display(d).to_string()).collect();
        format!("{} {} [{}]", c.kernel, kernel.name, axes.join(", "))
    };
    let nodes: Vec<NodeIndex> = plan.calls.iter().map(|c| g.add_node(node(c))).collect();
    for b in &plan.boundaries {
        let buffer = &plan.buffers[b.buffer.index()].name;
        let missing: Vec<String> = b.missing.iter().map(|&c| plan.dims.say_cond(c)).collect();
        let missing =
            if missing.is_empty() { String::new() } else { format!(" (not {})", missing.join(", ")) };
        g.add_edge(nodes[b.from as usize], nodes[b.to as usize], format!("{buffer}: {}{missing}", b.reason));
    }
    g
}

/// The plan in Graphviz's language: kernels as nodes, buffers with the reason of the cut as edges.
#[must_use]
pub fn to_dot(plan: &Plan) -> String {
    Dot::new(&call_graph(plan)).to_string()
}

#[cfg(test)]
mod tests {
    use dvm_ir::{BinaryOp, DType, Graph, Op};

    use super::*;
    use crate::{FuseOptions, plan};

    #[test]
    fn calls_are_nodes_and_cuts_are_edges() {
        let mut g = Graph::new("two products");
        let n = g.dims.symbol("n");
        let x = g.input("x", DType::F32, &[n, n]);
        let product = Op::MatMul { trans_a: false, trans_b: false };
        let p = g.push(product.clone(), &[x, x]).unwrap();
        let q = g.push(product, &[p, p]).unwrap();
        let y = g.push(Op::Binary(BinaryOp::Add), &[q, x]).unwrap();
        g.output("y", y);
        let plan = plan(&g, &FuseOptions::default()).unwrap();
        let calls = call_graph(&plan);
        assert_eq!((calls.node_count(), calls.edge_count()), (2, 1));
        assert!(!petgraph::algo::is_cyclic_directed(&calls));
        let dot = to_dot(&plan);
        assert!(
            dot.starts_with("digraph") && dot.contains("matmul_add [n, n]") && dot.contains("->"),
            "{dot}"
        );
    }
}
