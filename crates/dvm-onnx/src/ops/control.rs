//! Branches whose condition is known.

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, unsupported};

pub(super) const ROWS: &[OpRow] = &[op!("If", 1, branch, "the condition must fold to a constant")];

fn branch(c: &mut Cx<'_, '_>) -> Outs {
    let cond = c.input(0)?;
    let taken = match c.consts(cond) {
        Ok(v) => v.first().copied().unwrap_or(0) != 0,
        Err(Fail::Unsupported(_)) => return unsupported("the condition is computed at run time"),
        Err(e) => return Err(e),
    };
    let graph = c.graph_attr(if taken { "then_branch" } else { "else_branch" })?;
    c.imp.branch(graph)
}
