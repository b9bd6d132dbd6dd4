//! What the last flush became, as text.

use std::fmt::Write;

use super::{Cause, Ran, StreamReport};

/// Kernels with their ops, boundaries with their reasons.
pub(crate) fn text(report: &StreamReport, cause: Cause, ran: &[Ran]) -> String {
    let mut out = format!("flush: {cause}\n{report}\n");
    for (i, Ran { program, graph }) in ran.iter().enumerate() {
        let plan = &program.plan;
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "program {i}: {} kernels, {} B bytecode", program.kernels, program.bytecode_bytes);
        for (l, level) in plan.levels.iter().enumerate() {
            for &c in &level.calls {
                let call = &plan.calls[c as usize];
                let kernel = &plan.kernels[call.kernel.index()];
                let axes: Vec<String> =
                    kernel.axes.iter().map(|&d| plan.dims.display(d).to_string()).collect();
                let ops: Vec<&str> =
                    call.nodes.iter().map(|n| graph.nodes[n.index()].op.mnemonic()).collect();
                let stores: Vec<&str> = call
                    .args
                    .iter()
                    .zip(&kernel.operands)
                    .filter(|(_, o)| o.write)
                    .map(|(b, _)| plan.buffers[b.index()].name.as_str())
                    .collect();
                let _ = writeln!(
                    out,
                    "  call {c}, level {l}: {} [{}] = {} -> {}",
                    kernel.name,
                    axes.join(", "),
                    if ops.is_empty() { "write in place".into() } else { ops.join(", ") },
                    stores.join(", ")
                );
            }
        }
        for b in &plan.boundaries {
            let _ = writeln!(
                out,
                "  {} between call {} and call {}: {}",
                plan.buffers[b.buffer.index()].name,
                b.from,
                b.to,
                b.reason
            );
        }
    }
    out
}
