//! What would have to be known about dims for a boundary to vanish.
//!
//! While regions grow, every question about dims that stays open is noted. Afterwards each is assumed in turn and the graph
//! planned again: what is reported as missing is not a guess, it does remove the boundary.

use dvm_ir::{CheckCond, Graph, Plan};
use rustc_hash::FxHashSet;

use crate::{FuseError, FuseOptions, planned};

/// Nodes that plans of trials may have together: an explanation may take a while, not for ever.
const TRIAL_NODES: usize = 200_000;
/// Most conditions tried.
const MAX_TRIALS: usize = 32;

/// As [`crate::plan`], with [`dvm_ir::plan::Boundary::missing`] filled in. Takes as long as some tens of plans.
///
/// # Errors
/// As [`crate::plan`].
pub fn explained(graph: &Graph, opts: &FuseOptions) -> Result<Plan, FuseError> {
    let done = planned(graph, opts, opts.fuse)?;
    let mut plan = done.plan;
    // Simple conditions first: of a few that are alike, that is what a user would know.
    let mut wishes: Vec<(usize, CheckCond)> =
        done.wishes.into_iter().map(|c| (plan.dims.say_cond(c).len(), c)).collect();
    wishes.sort_by_key(|w| w.0);
    let mut trials = MAX_TRIALS.min(TRIAL_NODES / graph.nodes.len().max(1)).max(1);
    for (_, cond) in wishes {
        if trials == 0 || plan.boundaries.is_empty() {
            break;
        }
        let mut assuming = graph.clone();
        assuming.dims.clone_from(&plan.dims);
        if assuming.assume(cond, "").is_err() {
            continue;
        }
        trials -= 1;
        let Ok(better) = planned(&assuming, opts, false) else { continue };
        let kept = crossings(&better.plan);
        let vanished: Vec<usize> =
            (0..plan.boundaries.len()).filter(|&i| !kept.contains(&crossing(&plan, i))).collect();
        if better.plan.calls.len() >= plan.calls.len() {
            continue;
        }
        vanished.into_iter().for_each(|i| plan.boundaries[i].missing.push(cond));
    }
    Ok(plan)
}

/// What a boundary is between plans of one graph: the buffer and the last node that the reading call computes.
fn crossing(plan: &Plan, boundary: usize) -> (&str, Option<dvm_ir::NodeId>) {
    let b = &plan.boundaries[boundary];
    (&plan.buffers[b.buffer.index()].name, plan.calls[b.to as usize].nodes.last().copied())
}

fn crossings(plan: &Plan) -> FxHashSet<(&str, Option<dvm_ir::NodeId>)> {
    (0..plan.boundaries.len()).map(|i| crossing(plan, i)).collect()
}
