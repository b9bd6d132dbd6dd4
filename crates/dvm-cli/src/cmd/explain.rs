//! `dvm explain`.

use std::sync::Arc;

use anyhow::{Context, Result};
use dvm::{Graph, Module, Plan, Stage};
use serde_json::json;

use crate::Outcome;
use crate::args::ExplainArgs;
use crate::cmd::{say, say_json};
use crate::inputs::given;

pub(crate) fn explain(a: &ExplainArgs) -> Result<Outcome> {
    let module = Module::load(&a.model).with_context(|| a.model.display().to_string())?;
    let inputs = given(None, &a.input)?;
    let stages = module.stages(&inputs, &[], true)?;
    let parts = || stages.iter().filter_map(|s| s.part.as_ref());
    if let Some(path) = &a.dot {
        let drawn: Vec<String> = parts().map(|(_, plan)| dvm::to_dot(plan)).collect();
        dvm::npz::write_whole(path, drawn.join("\n").as_bytes())
            .with_context(|| path.display().to_string())?;
    }
    if a.json {
        let part = |(graph, plan): &(Arc<Graph>, Arc<Plan>)| {
            let calls: Vec<_> = plan
                .calls
                .iter()
                .map(|c| {
                    let kernel = &plan.kernels[c.kernel.index()].name;
                    json!({"kernel": kernel, "id": c.kernel.0, "ops": ops(graph, c)})
                })
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
            json!({"version": 1, "calls": calls, "levels": levels, "boundaries": cuts})
        };
        let doc = match stages.as_slice() {
            [Stage { part: Some(one), .. }] => part(one),
            all => {
                let stage = |s: &Stage| {
                    let plan = s.part.as_ref().map(part);
                    json!({"depth": s.depth, "label": s.label, "plan": plan})
                };
                json!({"version": 1, "stages": all.iter().map(stage).collect::<Vec<_>>()})
            }
        };
        say_json(&doc)?;
        return Ok(Outcome::Right);
    }
    for s in &stages {
        match &s.part {
            Some((graph, plan)) => say(&text(plan, &|c| ops(graph, c), a.kernels))?,
            None => say(&format!("{}host: {}\n\n", "  ".repeat(s.depth), s.label))?,
        }
        if s.part.is_some() && stages.len() > 1 {
            say("\n")?;
        }
    }
    Ok(Outcome::Right)
}

/// The ops of a call, with the names of their nodes.
fn ops(graph: &Graph, call: &dvm::plan::Call) -> Vec<String> {
    let text = |n: &dvm::ir::NodeId| {
        let node = &graph.nodes[n.index()];
        match node.name.as_deref().filter(|n| !n.is_empty()) {
            Some(name) => format!("{} {name}", node.op.mnemonic()),
            None => node.op.mnemonic().to_string(),
        }
    };
    call.nodes.iter().map(text).collect()
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
