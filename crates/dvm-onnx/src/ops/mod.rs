//! The table of ONNX ops, one row an op, by family. The importer, `summary`, the docs and the node-test suite read it.

mod activation;
mod attention;
mod control;
mod conv;
mod create;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod norm;
mod quant;
mod rearrange;
mod recurrent;
mod reduce;
mod resize;
mod scatter;
mod shape;

use crate::cx::{Cx, Outs};

pub(crate) type Handler = fn(&mut Cx<'_, '_>) -> Outs;

/// One ONNX op that is imported.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpRow {
    /// Domain, empty for ONNX's own.
    pub domain: &'static str,
    /// Name.
    pub name: &'static str,
    /// Oldest operator set that has it.
    pub since: i64,
    /// What is left out, if anything.
    pub note: &'static str,
    pub(crate) handler: Handler,
}

/// Ops of one kind.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// Ops.
    pub rows: &'static [OpRow],
}

/// Every op that is imported, by family.
#[must_use]
pub fn table() -> &'static [Family] {
    &[
        Family { name: "elementwise", rows: elementwise::ROWS },
        Family { name: "activations", rows: activation::ROWS },
        Family { name: "reductions", rows: reduce::ROWS },
        Family { name: "shapes", rows: shape::ROWS },
        Family { name: "rearrangement", rows: rearrange::ROWS },
        Family { name: "constants and ranges", rows: create::ROWS },
        Family { name: "gather", rows: index::ROWS },
        Family { name: "scatter, order and selection", rows: scatter::ROWS },
        Family { name: "products", rows: matmul::ROWS },
        Family { name: "convolution and pooling", rows: conv::ROWS },
        Family { name: "attention", rows: attention::ROWS },
        Family { name: "images", rows: resize::ROWS },
        Family { name: "losses", rows: loss::ROWS },
        Family { name: "normalisation", rows: norm::ROWS },
        Family { name: "quantisation", rows: quant::ROWS },
        Family { name: "recurrence", rows: recurrent::ROWS },
        Family { name: "control flow and shapes from data", rows: control::ROWS },
    ]
}

/// A row: `op!("Add", 1, handler)`, with a domain before or a note after.
macro_rules! op {
    ($name:literal, $since:literal, $handler:expr) => {
        $crate::ops::OpRow { domain: "", name: $name, since: $since, note: "", handler: $handler }
    };
    ($name:literal, $since:literal, $handler:expr, $note:literal) => {
        $crate::ops::OpRow { domain: "", name: $name, since: $since, note: $note, handler: $handler }
    };
    ($domain:literal: $name:literal, $handler:expr) => {
        $crate::ops::OpRow { domain: $domain, name: $name, since: 1, note: "", handler: $handler }
    };
}
use op;
