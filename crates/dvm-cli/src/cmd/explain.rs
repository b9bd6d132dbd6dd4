//! `dvm explain`.

use anyhow::{Context, Result};
use dvm::{Module, Plan};
use serde_json::json;

use crate::Outcome;
use crate::args::ExplainArgs;
use crate::cmd::{say, say_json};
use crate::inputs::given;

pub(crate) fn explain(a: &ExplainArgs) -> Result<Outcome> {
    let module = Module::load(&a.model).with_context(|| a.model.display().to_string())?;
    let inputs = given(None, &a.input)?;
    let graph = module.graph(&inputs, &[])?;
    let plan = module.plan(&inputs, &[], true)?;
    if let Some(path) = &a.dot {
        dvm::npz::write_whole(path, dvm::to_dot(&plan).as_bytes())
            .with_context(|| path.display().to_string())?;
    }
    let ops = |call: &dvm::plan::Call| -> Vec<String> {
        call.nodes
            .iter()
            .map(|&n| {
                let node = &graph.nodes[n.index()];
                let name = node.name.as_deref().unwrap_or_default();
                if name.is_empty() {
                    node.op.mnemonic().to_string()
                } else {
                    format!("{} {name}", node.op.mnemonic())
                }
            })
            .collect()
    };
    if a.json {
        let calls: Vec<_> = plan
            .calls
            .iter()
            .map(|c| json!({"kernel": plan.kernels[c.kernel.index()].name, "id": c.kernel.0, "ops": ops(c)}))
            .collect();
        let cuts: Vec<_> = plan
            .boundaries
            .iter()
            .map(|b| {
                let buffer = &plan.buffers[b.buffer.index()].name;
                json!({"from": b.from, "to": b.to, "buffer": buffer, "reason": b.reason})
            })
            .collect();
        let levels: Vec<_> = plan.levels.iter().map(|l| &l.calls).collect();
        say_json(&json!({"version": 1, "calls": calls, "levels": levels, "boundaries": cuts}))?;
        return Ok(Outcome::Right);
    }
    say(&text(&plan, &ops, a.kernels))?;
    Ok(Outcome::Right)
}

fn text(plan: &Plan, ops: &dyn Fn(&dvm::plan::Call) -> Vec<String>, kernels: bool) -> String {
    let mut out = format!(
        "{}: {} calls of {} distinct kernels in {} levels\n\n",
        plan.name,
        plan.calls.len(),
        plan.kernels.len(),
        plan.levels.len()
    );
    for (level, l) in plan.levels.iter().enumerate() {
        for &c in &l.calls {
            let call = &plan.calls[c as usize];
            let kernel = &plan.kernels[call.kernel.index()];
            let space: Vec<String> = kernel.axes.iter().map(|&d| plan.dims.display(d).to_string()).collect();
            out.push_str(&format!(
                "call {c:<4} level {level:<4} {} {} [{}]\n",
                call.kernel,
                kernel.name,
                space.join(", ")
            ));
            out.push_str(&format!("    ops   {}\n", ops(call).join(", ")));
            for b in plan.boundaries.iter().filter(|b| b.from == c) {
                let buffer = &plan.buffers[b.buffer.index()].name;
                out.push_str(&format!("    cut   {buffer} -> call {}: {}\n", b.to, b.reason));
            }
        }
    }
    if kernels {
        for k in &plan.kernels {
            out.push_str(&format!("\n{}", k.display(&plan.dims)));
        }
    }
    out
}
