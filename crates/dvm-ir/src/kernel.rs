//! The fused-kernel form: what fusion produces and tiling consumes.
//!
//! A kernel is a straight-line SSA body over one iteration space. Each value has a *mask*: the axes it varies along
//! (its extent along the others is 1, and it is broadcast where a consumer needs it). Reductions drop axes from the mask,
//! later ops broadcast the result back; how many passes over memory that takes is decided when dims are known.
//! All dims refer to the [`crate::DimTable`] of the plan (or graph) that owns the kernel.

use smallvec::SmallVec;

use crate::{BinaryOp, DType, Dim, Scalar, UnaryOp, entity};

entity!(
    /// A value of a kernel body.
    KValue, "%");

/// A set of axes of a kernel's iteration space (bit i is axis i, outermost first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisSet(pub u32);

impl AxisSet {
    /// No axis.
    pub const EMPTY: AxisSet = AxisSet(0);
    /// The first `n` axes.
    #[must_use]
    pub const fn first(n: usize) -> AxisSet {
        AxisSet(((1u64 << n) - 1) as u32)
    }
    /// One axis.
    #[must_use]
    pub const fn one(axis: usize) -> AxisSet {
        AxisSet(1 << axis)
    }
    /// Whether the axis is in the set.
    #[must_use]
    pub const fn has(self, axis: usize) -> bool {
        self.0 >> axis & 1 == 1
    }
    /// Union.
    #[must_use]
    pub const fn or(self, o: AxisSet) -> AxisSet {
        AxisSet(self.0 | o.0)
    }
    /// Difference.
    #[must_use]
    pub const fn minus(self, o: AxisSet) -> AxisSet {
        AxisSet(self.0 & !o.0)
    }
    /// Whether no axis is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Most axes of a kernel.
pub const MAX_AXES: usize = 24;

/// An affine address in an operand: `offset + sum(index(axis) * stride(axis))`, in elements. A stride of 0 is a
/// broadcast; a stride may be a dim that becomes 0 or natural only when bound (late broadcast).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Offset in elements.
    pub offset: Dim,
    /// Stride per axis of the iteration space; its length is the number of axes.
    pub strides: SmallVec<[Dim; 6]>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Length in elements of the whole buffer.
    pub len: Dim,
    /// Written rather than read.
    pub write: bool,
    /// Reads a constant as the right operand of a matmul, so that it can be packed once; see [`KOp::MatMul`].
    pub packable: bool,
}

/// Reductions a kernel can hold (composites are decomposed before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KReduce {
    /// Sum; f16 and bf16 tiles are summed in f32, the result has the value's dtype.
    Sum,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Product.
    Prod,
    /// Logical or.
    Any,
    /// Logical and.
    All,
}

impl KReduce {
    /// Name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KReduce::Sum => "sum",
            KReduce::Max => "max",
            KReduce::Min => "min",
            KReduce::Prod => "prod",
            KReduce::Any => "any",
            KReduce::All => "all",
        }
    }
}

/// An op of a kernel body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KOp {
    /// An element of an operand.
    Load {
        /// Operand index.
        operand: u32,
        /// Address.
        access: Access,
    },
    /// `operand[access + wrap(index) * stride]`; traps when the index is outside `-limit..limit`.
    Gather {
        /// Operand index.
        operand: u32,
        /// Address without the gathered axis.
        access: Access,
        /// Index value (i32 or i64).
        index: KValue,
        /// Stride of the gathered axis in elements.
        stride: Dim,
        /// Extent of the gathered axis.
        limit: Dim,
    },
    /// A scalar.
    Const(Scalar),
    /// A scalar that is the value of a dim.
    DimConst(Dim),
    /// `base + sum(index(axis) * stride(axis))` as a value of the dtype.
    Iota {
        /// Start and steps.
        access: Access,
    },
    /// Elementwise.
    Unary(UnaryOp, KValue),
    /// Elementwise; operands have one dtype.
    Binary(BinaryOp, KValue, KValue),
    /// a*b + c.
    Fma(KValue, KValue, KValue),
    /// cond ? a : b.
    Select(KValue, KValue, KValue),
    /// min(max(x, lo), hi).
    Clamp(KValue, KValue, KValue),
    /// Conversion to the value's dtype.
    Cast(KValue),
    /// Reduction over axes of the operand's mask.
    Reduce(KReduce, KValue, AxisSet),
    /// Index (i64) of the extreme along one axis.
    ArgReduce {
        /// Maximum rather than minimum.
        max: bool,
        /// Last of equals.
        last: bool,
        /// Operand.
        x: KValue,
        /// Axis.
        axis: u8,
    },
    /// Running sum along one axis; the mask is unchanged. Alone in its kernel but for loads, casts and stores.
    CumSum {
        /// Operand.
        x: KValue,
        /// Axis.
        axis: u8,
        /// Leave the element out.
        exclusive: bool,
        /// From the end.
        reverse: bool,
    },
    /// `sum over k of a(.., m, k) * b(.., k, n)`; at most one in a kernel, and then it is the first op. Axes: the last two
    /// axes of the iteration space are m and n, all before are batch axes; `k` is not an axis of the space. The value's
    /// dtype is the dtype of the product after rounding (accumulation is f32, f64 or integer); its mask is all axes.
    MatMul {
        /// Left operand index.
        a: u32,
        /// Its address over (batch.., m, n); the n stride is 0.
        a_access: Access,
        /// Its stride along k.
        a_k: Dim,
        /// Right operand index.
        b: u32,
        /// Its address over (batch.., m, n); the m stride is 0.
        b_access: Access,
        /// Its stride along k.
        b_k: Dim,
        /// Extent of k.
        k: Dim,
    },
    /// `sum over k of a(.., m, k) * b(.., k, n)` where `a` is computed: the second product of an attention. At most one in a
    /// kernel. Its last three axes are then m, k and n: a [`KOp::MatMul`] runs over (batch.., m, k) and its value lacks n, `a`
    /// lacks n too and is broadcast along m and k where it lacks them, the result lacks k. Rounded as a matmul is.
    Contract {
        /// Left operand.
        a: KValue,
        /// Right operand index.
        b: u32,
        /// Its address over (batch.., m, k, n); the m stride is 0.
        b_access: Access,
    },
}

/// A value of a kernel body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KInst {
    /// Op.
    pub op: KOp,
    /// Dtype of the result.
    pub dtype: DType,
    /// Axes the result varies along: the axes of non-zero stride for loads and iotas, the union of the operands' masks
    /// less what is reduced for everything else. It may be wider, and then broadcasts: `copy` with a wider mask is how a
    /// broadcast value is stored or reduced over an axis it lacks.
    pub mask: AxisSet,
}

/// A value written to an operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KStore {
    /// Operand index.
    pub operand: u32,
    /// Address; strides of axes outside the value's mask are 0, and the map is injective over the mask (an axis of extent 1
    /// may have any stride).
    pub access: Access,
    /// Value.
    pub value: KValue,
}

/// A fused region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Name for people and snapshots.
    pub name: String,
    /// Extents of the iteration space, outermost first.
    pub axes: Vec<Dim>,
    /// Parameters.
    pub operands: Vec<Operand>,
    /// Body in SSA order; `KValue` i is `body[i]`.
    pub body: Vec<KInst>,
    /// Stores.
    pub stores: Vec<KStore>,
}

impl Kernel {
    /// The matmul, when this is a cube kernel.
    #[must_use]
    pub fn matmul(&self) -> Option<&KOp> {
        self.body.first().map(|i| &i.op).filter(|o| matches!(o, KOp::MatMul { .. }))
    }
    /// The product of a computed left operand, if there is one.
    #[must_use]
    pub fn contraction(&self) -> Option<KValue> {
        self.body.iter().position(|i| matches!(i.op, KOp::Contract { .. })).map(KValue::new)
    }
    /// Number of trailing axes that are rows and columns of products: 3 with a [`KOp::Contract`], 2 with a [`KOp::MatMul`] alone.
    #[must_use]
    pub fn matrix_axes(&self) -> usize {
        match (self.contraction(), self.matmul()) {
            (Some(_), _) => 3,
            (None, Some(_)) => 2,
            (None, None) => 0,
        }
    }
}
