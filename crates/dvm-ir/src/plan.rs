//! A plan: a graph as levels of fused kernels over buffers, made once and valid for every shape.
//!
//! Kernels are deduplicated: six equal layers share kernels and differ in the buffers of their calls.

use crate::kernel::{Access, KOp};
use crate::{Check, CheckCond, DType, Dim, DimTable, Input, Kernel, NodeId, Shape, Tensor, entity};

entity!(
    /// A distinct kernel of a plan.
    KernelId, "k");
entity!(
    /// A buffer of a plan.
    BufferId, "b");

/// What a buffer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// Input number i.
    Input(u32),
    /// Output number i.
    Output(u32),
    /// Constant number i of the plan.
    Const(u32),
    /// An intermediate.
    Temp,
}

/// A dense piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Name, unique in the plan.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Length in elements.
    pub len: Dim,
    /// What it is.
    pub kind: BufferKind,
}

/// A kernel applied to buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Kernel.
    pub kernel: KernelId,
    /// Per operand of the kernel.
    pub args: Vec<BufferId>,
    /// Nodes of the graph it computes, for explanations.
    pub nodes: Vec<NodeId>,
}

/// What does the same as a call, bit for bit, in several: for shapes and machines where its kernel does not fit local memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The call, as an index into [`Plan::calls`].
    pub call: u32,
    /// Calls that run one after the other instead.
    pub parts: Vec<Call>,
}

/// Kernels that do not depend on each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Calls, as indices into [`Plan::calls`].
    pub calls: Vec<u32>,
}

/// Calls of a level that run on so many cores at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLimit {
    /// Level.
    pub level: u32,
    /// The first call, as a position in [`Level::calls`].
    pub first: u32,
    /// Number of calls, one behind the other.
    pub calls: u32,
    /// Most cores that work on any of them at one time.
    pub cores: u32,
}

/// An output of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOutput {
    /// Name.
    pub name: String,
    /// Dtype.
    pub dtype: DType,
    /// Shape.
    pub shape: Shape,
    /// Buffer that holds it.
    pub buffer: BufferId,
}

/// An input of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanInput {
    /// The graph's input.
    pub input: Input,
    /// Dtype.
    pub dtype: DType,
    /// Shape, to be unified with the bound tensor's.
    pub shape: Shape,
    /// Buffer that holds it.
    pub buffer: BufferId,
}

/// Why a value was written to memory instead of staying in a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Producing call.
    pub from: u32,
    /// Consuming call.
    pub to: u32,
    /// Buffer between them.
    pub buffer: BufferId,
    /// The rule that cut.
    pub reason: String,
    /// Conditions on dims, any of which would have removed it had it been proved. Found where an explanation was asked for.
    pub missing: Vec<CheckCond>,
}

/// A graph as fused kernels.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Name of the graph.
    pub name: String,
    /// Dims of everything in the plan.
    pub dims: DimTable,
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Calls in a topological order.
    pub calls: Vec<Call>,
    /// Levels of independent calls, in order.
    pub levels: Vec<Level>,
    /// Stacked by a user, who wants one program and one launch: not to be cut.
    pub stacked: bool,
    /// Limits in order of levels and calls, none of which share a call.
    pub limits: Vec<CoreLimit>,
    /// Calls that may be made in parts, by rising call.
    pub splits: Vec<Split>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Constants, indexed by [`BufferKind::Const`].
    pub constants: Vec<Tensor>,
    /// Inputs.
    pub inputs: Vec<PlanInput>,
    /// Outputs. Two outputs never share a buffer, and none is an input or a constant.
    pub outputs: Vec<PlanOutput>,
    /// Facts to check when dims are bound.
    pub checks: Vec<Check>,
    /// Why kernels end where they do.
    pub boundaries: Vec<Boundary>,
}

impl Plan {
    /// How a call may be made in parts.
    #[must_use]
    pub fn split_of(&self, call: u32) -> Option<&Split> {
        self.splits.binary_search_by_key(&call, |s| s.call).ok().map(|i| &self.splits[i])
    }

    /// The same plan with every call in parts that may be. Boundaries and core limits, which count calls and levels, are left out.
    #[must_use]
    pub fn in_parts(&self) -> Plan {
        let mut out = Plan {
            calls: vec![],
            levels: vec![],
            splits: vec![],
            boundaries: vec![],
            limits: vec![],
            ..self.clone()
        };
        for level in &self.levels {
            let first = out.levels.len();
            for &c in &level.calls {
                let whole = self.calls.get(c as usize).map_or(&[][..], std::slice::from_ref);
                let parts = self.split_of(c).map_or(whole, |s| &s.parts);
                out.levels.resize((first + parts.len()).max(out.levels.len()), Level::default());
                for (i, part) in parts.iter().enumerate() {
                    out.levels[first + i].calls.push(out.calls.len() as u32);
                    out.calls.push(part.clone());
                }
            }
        }
        out
    }

    /// Every dim that the plan needs the value of.
    #[must_use]
    pub fn mentioned_dims(&self) -> Vec<Dim> {
        let mut used: Vec<Dim> = self.buffers.iter().map(|b| b.len).collect();
        used.extend(self.inputs.iter().flat_map(|i| i.shape.iter().chain(i.input.elements.iter().flatten())));
        used.extend(self.outputs.iter().flat_map(|o| &o.shape));
        used.extend(self.checks.iter().flat_map(|c| c.cond.dims()));
        self.kernels.iter().for_each(|k| k.mentioned_dims(&mut used));
        used.sort_unstable();
        used.dedup();
        used
    }
}

impl Kernel {
    fn mentioned_dims(&self, used: &mut Vec<Dim>) {
        fn access(used: &mut Vec<Dim>, a: &Access) {
            used.push(a.offset);
            used.extend(&a.strides);
        }
        used.extend(&self.axes);
        used.extend(self.operands.iter().map(|o| o.len));
        self.stores.iter().for_each(|s| access(used, &s.access));
        for i in &self.body {
            match &i.op {
                KOp::Load { access: a, .. } | KOp::Iota { access: a } => access(used, a),
                KOp::Gather { access: a, stride, limit, .. } => {
                    access(used, a);
                    used.extend([*stride, *limit]);
                }
                KOp::DimConst(d) => used.push(*d),
                KOp::MatMul { a_access, a_k, b_access, b_k, k, .. } => {
                    access(used, a_access);
                    access(used, b_access);
                    used.extend([*a_k, *b_k, *k]);
                }
                KOp::Contract { b_access, .. } => access(used, b_access),
                KOp::Const(_)
                | KOp::Unary(..)
                | KOp::Binary(..)
                | KOp::Fma(..)
                | KOp::Select(..)
                | KOp::Clamp(..)
                | KOp::Cast(_)
                | KOp::Reduce(..)
                | KOp::ArgReduce { .. }
                | KOp::CumSum { .. } => {}
            }
        }
    }
}
