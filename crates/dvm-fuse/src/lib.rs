//! Fusion: a [`Graph`] becomes a [`Plan`] of kernels, once, from symbols alone.
//!
//! Everything a kernel computes is *pulled*: from each value that must be stored, back through elementwise ops,
//! reductions and views to what is in memory, composing index maps on the way. So views cost nothing, a broadcast that is
//! decided only when dims are bound is a stride, and one emitter serves fused and unfused plans.
//!
//! - `lower` (with `decompose`, `simplify`): composites to primitives, constants, identities, equal ops once, dead code;
//! - `regions`: which nodes share a kernel (greedy growth, acyclic by reachability);
//! - `space`: the iteration space of a region; `emit`: its kernel; `finish`: axis order and merging;
//! - `split`: a graph with controls as ordinary graphs between them;
//! - `stack`: kernels that a user puts side by side or in a row;
//! - `why`: what would have to be known for a boundary to vanish; `dot`, `svg`: pictures;
//! - `schedule`: buffers, kernels shared by equal calls, levels, reasons of the boundaries.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod affine;
mod bits;
mod builder;
mod columns;
mod constants;
mod decompose;
mod dot;
mod emit;
mod finish;
mod lower;
mod memory;
mod plain;
mod regions;
mod reshape;
mod schedule;
mod simplify;
mod space;
mod split;
mod stack;
mod svg;
mod why;
mod wide;

pub use dot::{call_graph, to_dot};
pub use split::{Part, Split, Step, split};
pub use stack::{Stack, StackError, Stacking};
pub use svg::to_svg;
pub use why::explained;

use dvm_ir::{CheckCond, Graph, NodeId, Plan};

/// What bounds a fused kernel. Plain numbers: fusion knows no machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseLimits {
    /// Most ops.
    pub ops: usize,
    /// Most buffers read and written.
    pub operands: usize,
    /// Most values over the whole space that are alive at once.
    pub live: usize,
}

impl Default for FuseLimits {
    fn default() -> FuseLimits {
        FuseLimits { ops: 64, operands: 24, live: 16 }
    }
}

/// How to fuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseOptions {
    /// Bounds of a kernel.
    pub limits: FuseLimits,
    /// Fuse at all; otherwise every primitive op is a kernel of its own (views still fold into addresses).
    pub fuse: bool,
    /// Most times that a node is put into a kernel with others; what comes later is a kernel of its own. `None` for no limit.
    /// Decisions do not look ahead: a lower limit gives a beginning of the same ones.
    pub contractions: Option<usize>,
    /// What becomes of f16 and bf16 values inside a kernel.
    pub half: Half,
}

/// Where f16 and bf16 values are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Half {
    /// Where the graph defines them, fused or not: values never depend on what was fused.
    #[default]
    Rounded,
    /// At stores and casts only: fewer roundings, and values that depend on what was fused.
    Wide,
}

impl Default for FuseOptions {
    fn default() -> FuseOptions {
        FuseOptions { limits: FuseLimits::default(), fuse: true, contractions: None, half: Half::Rounded }
    }
}

/// A graph could not be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    /// A node makes no kernel.
    #[error("{op}: {reason}")]
    Node {
        /// Mnemonic of the primitive op, and its name where it has one.
        op: String,
        /// The node it comes from.
        node: Option<NodeId>,
        /// What is wrong.
        reason: String,
    },
    /// A graph with controls: it is planned in the parts that [`split`] gives.
    #[error("{control}: a plan is made for what is between two controls")]
    Control {
        /// The first control.
        control: String,
    },
    /// A stacking that is not of this graph.
    #[error("the stacking covers {covered} of the graph's {nodes} nodes in order")]
    Stacking {
        /// Nodes it covers.
        covered: usize,
        /// Nodes there are.
        nodes: usize,
    },
    /// Too many parts.
    #[error("{controls} controls split {dims} dims into more parts than are planned")]
    Parts {
        /// Number of controls.
        controls: usize,
        /// Dims of the graph.
        dims: usize,
    },
    /// Nodes that were to share a kernel do not.
    #[error("kernel of nodes {nodes:?}: {reason}")]
    Region {
        /// The nodes they come from.
        nodes: Vec<NodeId>,
        /// What is wrong.
        reason: String,
    },
}

/// Whatever the limits say, no kernel has more ops.
const MAX_OPS: usize = 128;

/// Plans a graph that verifies.
///
/// # Errors
/// When an op makes no kernel, e.g. because it has more axes than a kernel can have.
pub fn plan(graph: &Graph, opts: &FuseOptions) -> Result<Plan, FuseError> {
    planned(graph, opts, false).map(|p| p.plan)
}

/// A node that was put into a kernel with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contraction {
    /// Its primitive op.
    pub op: &'static str,
    /// Nodes of the source graph that it was made of.
    pub nodes: Vec<NodeId>,
}

/// The decisions that make a plan, in order: with [`FuseOptions::contractions`] = n, the first n of them are taken.
///
/// # Errors
/// As [`plan`].
pub fn contractions(graph: &Graph, opts: &FuseOptions) -> Result<Vec<Contraction>, FuseError> {
    planned(graph, opts, false).map(|p| p.contractions)
}

struct Planned {
    plan: Plan,
    contractions: Vec<Contraction>,
    /// Conditions that were asked for and are not known to hold.
    wishes: Vec<CheckCond>,
}

fn planned(graph: &Graph, opts: &FuseOptions, wish: bool) -> Result<Planned, FuseError> {
    if let Some(c) = graph.controls.first() {
        return Err(FuseError::Control { control: c.to_string() });
    }
    // Emission recurses along the ops of a kernel.
    let ops = opts.limits.ops.min(MAX_OPS);
    let opts = &FuseOptions { limits: FuseLimits { ops, ..opts.limits.clone() }, ..opts.clone() };
    let mut p = lower::lower(graph, opts.fuse);
    let mut dims = std::mem::take(&mut p.g.dims);
    if wish {
        dims.record_wishes();
    }
    let regions = regions::grow(&p, &mut dims, opts)?;
    let wishes = dims.take_wishes();
    tracing::debug!(nodes = p.g.nodes.len(), regions = regions.all.len(), "regions grown");
    let contraction = |n: &NodeId| {
        let nodes = p.origin[n.index()].iter().copied().filter(|n| n.0 != u32::MAX).collect();
        Contraction { op: p.g.nodes[n.index()].op.mnemonic(), nodes }
    };
    let contractions = regions.joined.iter().map(contraction).collect();
    let mut plan = schedule::schedule(&p, dims, &regions)?;
    if opts.half == Half::Wide {
        plan.kernels.iter_mut().for_each(wide::widen);
    }
    Ok(Planned { plan, contractions, wishes })
}
