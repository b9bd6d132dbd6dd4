//! Tensor ops, declared once.
//!
//! [`ops!`](self) gives each structured op its mnemonic and attributes; from the rows derive the enum, the textual
//! form of attributes and the parser's constructor. Elementwise ops are rows of [`UnaryOp`] and [`BinaryOp`].
//! Composites (softmax, norms, gelu..) have a meaning of their own in the evaluator and are decomposed before fusion.

use std::fmt;

use crate::{DType, Dim, Scalar};

macro_rules! name_enum {
    ($(#[$doc:meta])* $ty:ident { $($(#[doc = $vdoc:literal])* $name:literal $v:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $ty { $($(#[doc = $vdoc])* $v,)* }
        impl $ty {
            /// Every value.
            pub const ALL: &'static [$ty] = &[$($ty::$v,)*];
            /// Name in the text form.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $($ty::$v => $name,)* } }
            /// The value with this name.
            #[must_use]
            pub fn from_name(s: &str) -> Option<$ty> { match s { $($name => Some($ty::$v),)* _ => None } }
            /// What it means.
            #[must_use]
            pub const fn meaning(self) -> &'static str { match self { $($ty::$v => concat!($($vdoc),*).trim_ascii(),)* } }
        }
        impl fmt::Display for $ty { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) } }
    };
}

name_enum! {
    /// Elementwise ops of one tensor. The result has the operand's dtype, except that the `is_*` tests give bool.
    UnaryOp {
        /// The value itself.
        "copy" Copy,
        /// Absolute value (wrapping at the least integer).
        "abs" Abs,
        /// Negation (wrapping).
        "neg" Neg,
        /// -1, 0 or 1; NaN stays NaN.
        "sign" Sign,
        /// Square root.
        "sqrt" Sqrt,
        /// 1 / sqrt(x).
        "rsqrt" Rsqrt,
        /// 1 / x.
        "reciprocal" Reciprocal,
        /// e^x.
        "exp" Exp,
        /// 2^x.
        "exp2" Exp2,
        /// Natural logarithm.
        "ln" Ln,
        /// Base-2 logarithm.
        "log2" Log2,
        /// ln(1 + x).
        "log1p" Log1p,
        /// e^x - 1.
        "expm1" Expm1,
        /// Sine (radians).
        "sin" Sin,
        /// Cosine.
        "cos" Cos,
        /// Tangent.
        "tan" Tan,
        /// Hyperbolic tangent.
        "tanh" Tanh,
        /// Error function.
        "erf" Erf,
        /// 1 / (1 + e^-x).
        "sigmoid" Sigmoid,
        /// Nearest integer, halves to even.
        "round" Round,
        /// Largest integer not above.
        "floor" Floor,
        /// Smallest integer not below.
        "ceil" Ceil,
        /// Integer part.
        "trunc" Trunc,
        /// Neither infinite nor NaN.
        "is_finite" IsFinite,
        /// NaN.
        "is_nan" IsNan,
        /// Infinite.
        "is_inf" IsInf,
        /// Logical not of bool, bitwise not of integers.
        "not" Not,
        /// Arc sine.
        "asin" Asin,
        /// Arc cosine.
        "acos" Acos,
        /// Arc tangent.
        "atan" Atan,
        /// Hyperbolic sine.
        "sinh" Sinh,
        /// Hyperbolic cosine.
        "cosh" Cosh,
        /// Inverse hyperbolic sine.
        "asinh" Asinh,
        /// Inverse hyperbolic cosine.
        "acosh" Acosh,
        /// Inverse hyperbolic tangent.
        "atanh" Atanh,
    }
}

name_enum! {
    /// Elementwise ops of two tensors of one dtype, with NumPy broadcasting. Comparisons give bool.
    BinaryOp {
        /// a + b (wrapping).
        "add" Add,
        /// a - b (wrapping).
        "sub" Sub,
        /// a * b (wrapping).
        "mul" Mul,
        /// a / b; integers truncate toward zero, a zero divisor is an error.
        "div" Div,
        /// Floor of the quotient.
        "floor_div" FloorDiv,
        /// Remainder with the sign of the divisor.
        "rem" Rem,
        /// Remainder with the sign of the dividend.
        "fmod" Fmod,
        /// a^b.
        "pow" Pow,
        /// The larger; NaN if either is.
        "max" Max,
        /// The smaller; NaN if either is.
        "min" Min,
        /// Logical or bitwise and.
        "and" And,
        /// Logical or bitwise or.
        "or" Or,
        /// Logical or bitwise exclusive or.
        "xor" Xor,
        /// Shift left; by the width or more gives 0.
        "shl" Shl,
        /// Shift right (logical for unsigned, arithmetic for signed); by the width or more gives 0.
        "shr" Shr,
        /// a == b.
        "eq" Eq,
        /// a != b.
        "ne" Ne,
        /// a < b.
        "lt" Lt,
        /// a <= b.
        "le" Le,
        /// a > b.
        "gt" Gt,
        /// a >= b.
        "ge" Ge,
    }
}

impl UnaryOp {
    /// Whether the result is bool whatever the operand.
    #[must_use]
    pub const fn is_test(self) -> bool {
        matches!(self, UnaryOp::IsFinite | UnaryOp::IsNan | UnaryOp::IsInf)
    }
    /// Whether the op is defined for float dtypes only.
    #[must_use]
    pub const fn float_only(self) -> bool {
        !matches!(
            self,
            UnaryOp::Copy
                | UnaryOp::Abs
                | UnaryOp::Neg
                | UnaryOp::Sign
                | UnaryOp::Not
                | UnaryOp::Round
                | UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::Trunc
                | UnaryOp::IsFinite
                | UnaryOp::IsNan
                | UnaryOp::IsInf
        )
    }
}
impl BinaryOp {
    /// Whether the result is bool whatever the operands.
    #[must_use]
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
        )
    }
    /// Whether the op is defined for integers and bool only.
    #[must_use]
    pub const fn is_bitwise(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr)
    }
}

name_enum! {
    /// How a reduction combines elements. Sums of f16/bf16 accumulate in f32; an empty sum is 0, product 1, max the
    /// least and min the greatest value of the dtype (∓inf for floats), any false, all true.
    ReduceOp {
        /// Sum.
        "sum" Sum,
        /// Arithmetic mean (composite; NaN when empty).
        "mean" Mean,
        /// Product.
        "prod" Prod,
        /// Maximum; NaN if any element is.
        "max" Max,
        /// Minimum; NaN if any element is.
        "min" Min,
        /// Logical or of bool.
        "any" Any,
        /// Logical and of bool.
        "all" All,
        /// Sum of absolute values (composite).
        "l1" L1,
        /// Square root of the sum of squares (composite).
        "l2" L2,
        /// Sum of squares (composite).
        "sum_square" SumSquare,
        /// Logarithm of the sum (composite).
        "log_sum" LogSum,
        /// Logarithm of the sum of exponentials, computed with the maximum taken out (composite).
        "log_sum_exp" LogSumExp,
    }
}

name_enum! {
    /// How a padded element gets its value.
    PadMode {
        /// A constant.
        "constant" Constant,
        /// The nearest edge element.
        "edge" Edge,
        /// Mirrored without repeating the edge element.
        "reflect" Reflect,
        /// Wrapped around.
        "wrap" Wrap,
    }
}

/// A value of an attribute in the text form.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with all its digits, `inf`, `-inf`, `nan`.
    Float(f64),
    /// A list of integers, `[1, 2]`.
    Ints(Vec<i64>),
    /// A dim expression.
    Dim(Dim),
    /// A list of dim expressions.
    Dims(Vec<Dim>),
    /// A bare word.
    Word(String),
}

/// What kind of value an attribute has; decides how its text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// [`Attr::Bool`].
    Bool,
    /// [`Attr::Int`].
    Int,
    /// [`Attr::Float`].
    Float,
    /// [`Attr::Int`] where it is written without a point, else [`Attr::Float`].
    Scalar,
    /// [`Attr::Ints`].
    Ints,
    /// [`Attr::Dim`].
    Dim,
    /// [`Attr::Dims`].
    Dims,
    /// [`Attr::Word`].
    Word,
}

impl fmt::Display for AttrKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttrKind::Bool => "true or false",
            AttrKind::Int => "an integer",
            AttrKind::Float | AttrKind::Scalar => "a number",
            AttrKind::Ints => "a list of integers",
            AttrKind::Dim => "a dim",
            AttrKind::Dims => "a list of dims",
            AttrKind::Word => "a name",
        })
    }
}

/// A Rust type that is the value of an attribute.
pub trait AttrField: Sized {
    /// Its kind.
    const KIND: AttrKind;
    /// As an attribute.
    fn to_attr(&self) -> Attr;
    /// From an attribute, `None` when it is of another kind.
    fn from_attr(a: &Attr) -> Option<Self>;
}
macro_rules! attr_field {
    ($t:ty, $kind:ident, $self:ident => $to:expr, $($pat:pat => $from:expr),+) => {
        impl AttrField for $t {
            const KIND: AttrKind = AttrKind::$kind;
            fn to_attr(&self) -> Attr { let $self = self; $to }
            fn from_attr(a: &Attr) -> Option<Self> { match a { $($pat => $from,)+ _ => None } }
        }
    };
}
attr_field!(bool, Bool, x => Attr::Bool(*x), Attr::Bool(b) => Some(*b));
attr_field!(i64, Int, x => Attr::Int(*x), Attr::Int(i) => Some(*i));
attr_field!(f64, Float, x => Attr::Float(*x), Attr::Float(f) => Some(*f));
attr_field!(usize, Int, x => Attr::Int(*x as i64), Attr::Int(i) => usize::try_from(*i).ok());
attr_field!(Vec<usize>, Ints, x => Attr::Ints(x.iter().map(|&i| i as i64).collect()),
    Attr::Ints(v) => v.iter().map(|&i| usize::try_from(i).ok()).collect());
attr_field!(Vec<i64>, Ints, x => Attr::Ints(x.clone()), Attr::Ints(v) => Some(v.clone()));
attr_field!(Dim, Dim, x => Attr::Dim(*x), Attr::Dim(d) => Some(*d));
attr_field!(Vec<Dim>, Dims, x => Attr::Dims(x.clone()), Attr::Dims(d) => Some(d.clone()));
attr_field!(DType, Word, x => Attr::Word(x.name().into()), Attr::Word(w) => DType::from_name(w));
attr_field!(PadMode, Word, x => Attr::Word(x.name().into()), Attr::Word(w) => PadMode::from_name(w));
attr_field!(ReduceOp, Word, x => Attr::Word(x.name().into()), Attr::Word(w) => ReduceOp::from_name(w));
attr_field!(Scalar, Scalar, x => match x { Scalar::Float(f) => Attr::Float(*f), Scalar::Int(i) => Attr::Int(*i) },
    Attr::Float(f) => Some(Scalar::Float(*f)), Attr::Int(i) => Some(Scalar::Int(*i)));

/// An attribute of an op.
#[derive(Clone, Copy, Debug)]
pub struct AttrInfo {
    /// Name.
    pub name: &'static str,
    /// Kind.
    pub kind: AttrKind,
    /// What it means.
    pub meaning: &'static str,
}

/// A row of the table of structured ops.
#[derive(Clone, Debug)]
pub struct OpInfo {
    /// Name in the text form.
    pub mnemonic: &'static str,
    /// Least and most operands.
    pub arity: std::ops::RangeInclusive<usize>,
    /// Attributes in declaration order.
    pub attrs: &'static [AttrInfo],
    /// What it computes.
    pub meaning: &'static str,
}

/// An attribute that no [`Op::from_parts`] could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAttr {
    /// The attribute.
    pub name: &'static str,
    /// What it must be.
    pub kind: AttrKind,
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])* $mnemonic:literal $name:ident($arity:expr) {
        $($(#[doc = $fdoc:literal])* $field:ident: $ty:ty),* $(,)?
    })*) => {
        /// A tensor op. Every op has one output.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            /// Elementwise, one operand.
            Unary(UnaryOp),
            /// Elementwise, two operands of one dtype, broadcasting.
            Binary(BinaryOp),
            $($(#[doc = $doc])* $name { $($(#[doc = $fdoc])* $field: $ty,)* },)*
        }

        impl Op {
            /// The structured ops; elementwise ones are the values of [`UnaryOp`] and [`BinaryOp`].
            pub const TABLE: &'static [OpInfo] = &[$(OpInfo {
                mnemonic: $mnemonic,
                arity: $arity,
                attrs: &[$(AttrInfo {
                    name: stringify!($field),
                    kind: <$ty as AttrField>::KIND,
                    meaning: concat!($($fdoc),*).trim_ascii(),
                }),*],
                meaning: concat!($($doc),*).trim_ascii(),
            }),*];

            /// Name in the text form.
            #[must_use]
            pub fn mnemonic(&self) -> &'static str {
                match self { Op::Unary(u) => u.name(), Op::Binary(b) => b.name(), $(Op::$name { .. } => $mnemonic,)* }
            }
            /// Attributes in declaration order.
            #[must_use]
            pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
                match self {
                    Op::Unary(_) | Op::Binary(_) => vec![],
                    $(Op::$name { $($field),* } => vec![$((stringify!($field), $field.to_attr())),*],)*
                }
            }
            /// Least and most operands.
            #[must_use]
            pub fn arity(&self) -> std::ops::RangeInclusive<usize> {
                match self { Op::Unary(_) => 1..=1, Op::Binary(_) => 2..=2, $(Op::$name { .. } => $arity,)* }
            }
            /// The op of this mnemonic whose attributes `get` supplies in declaration order; `None` when there is no such op.
            ///
            /// # Errors
            /// The attribute that `get` lacks, or gives with a value it cannot have.
            pub fn from_parts(
                mnemonic: &str,
                mut get: impl FnMut(&'static str, AttrKind) -> Option<Attr>,
            ) -> Option<Result<Op, BadAttr>> {
                if let Some(u) = UnaryOp::from_name(mnemonic) { return Some(Ok(Op::Unary(u))); }
                if let Some(b) = BinaryOp::from_name(mnemonic) { return Some(Ok(Op::Binary(b))); }
                match mnemonic {
                    $($mnemonic => Some(Op::$name { $($field: {
                        let bad = BadAttr { name: stringify!($field), kind: <$ty as AttrField>::KIND };
                        match get(bad.name, bad.kind).and_then(|a| <$ty as AttrField>::from_attr(&a)) {
                            Some(v) => v,
                            None => return Some(Err(bad)),
                        }
                    },)* }).map(Ok),)*
                    _ => None,
                }
            }
        }
    };
}

ops! {
    /// `a*b + c` in one rounding, three operands of one float dtype, broadcasting.
    "fma" Fma(3..=3) {}
    /// `cond ? a : b`; cond is bool, a and b of one dtype, all broadcasting.
    "select" Select(3..=3) {}
    /// `min(max(x, lo), hi)`, NaN propagating; lo and hi are tensors of x's dtype, broadcasting.
    "clamp" Clamp(3..=3) {}
    /// Conversion: floats round to nearest even, float to integer truncates and saturates (NaN to 0), integers wrap, to
    /// bool is "not zero".
    "cast" Cast(1..=1) { /// New dtype.
        to: DType }
    /// A tensor of `shape` filled with `value`.
    "fill" Fill(0..=0) { /// Value.
        value: Scalar, /// Dtype.
        dtype: DType, /// Shape.
        shape: Vec<Dim> }
    /// `start + i*step` along one axis, shape `[len]`, an integer or float dtype.
    "range" Range(0..=0) { /// First value.
        start: Dim, /// Difference.
        step: Dim, /// Number of values.
        len: Dim, /// Dtype.
        dtype: DType }
    /// A rank-0 or rank-1 tensor of the values of dims.
    "dims" Dims(0..=0) { /// The values.
        values: Vec<Dim>, /// Rank 0 (one value) or rank 1.
        scalar: bool, /// Dtype.
        dtype: DType }
    /// Same elements in row-major order under another shape.
    "reshape" Reshape(1..=1) { /// New shape; the product is the operand's.
        shape: Vec<Dim> }
    /// Axis i of the result is axis `perm[i]` of the operand.
    "transpose" Transpose(1..=1) { /// A permutation.
        perm: Vec<usize> }
    /// NumPy `broadcast_to`: right-aligned, extents equal or 1.
    "expand" Expand(1..=1) { /// New shape.
        shape: Vec<Dim> }
    /// Every axis: `start, start+step, ..`, `len` of them. Steps may be negative.
    "slice" Slice(1..=1) { /// First index per axis.
        start: Vec<Dim>, /// Extent of the result per axis.
        len: Vec<Dim>, /// Step per axis.
        step: Vec<i64> }
    /// Sliding windows along one axis: the axis of extent L is replaced by two, `[count, size]`, whose element (o, k) is at
    /// `o*stride + k*dilation`. A view; convolution and pooling are made of it.
    "window" Window(1..=1) { /// Axis.
        axis: usize, /// Number of windows.
        count: Dim, /// Elements per window.
        size: Dim, /// Distance between windows.
        stride: i64, /// Distance between the elements of a window.
        dilation: i64 }
    /// Joins tensors along an axis.
    "concat" Concat(1..=65536) { /// Axis.
        axis: usize }
    /// Adds `before` and `after` elements per axis (negative crops).
    "pad" Pad(1..=1) { /// Elements before, per axis.
        before: Vec<Dim>, /// Elements after, per axis.
        after: Vec<Dim>, /// How the elements get their value.
        mode: PadMode, /// The constant of `constant` mode.
        value: Scalar }
    /// `x[.., index, ..]` along an axis: the axis is replaced by the axes of the index (i32 or i64). Negative indices count
    /// from the end; an index out of range is an error at run time.
    "gather" Gather(2..=2) { /// Axis of the operand.
        axis: usize }
    /// Element by index along an axis: result has the index's shape, `x[i0, .., index[i0, .., in], .., in]`.
    "gather_elements" GatherElements(2..=2) { /// Axis.
        axis: usize }
    /// Reduction over axes.
    "reduce" Reduce(1..=1) { /// How.
        op: ReduceOp, /// Sorted distinct axes; empty means none.
        axes: Vec<usize>, /// Keep reduced axes with extent 1.
        keepdims: bool }
    /// Index (i64) of the largest element along an axis; an empty axis is an error.
    "argmax" ArgMax(1..=1) { /// Axis.
        axis: usize, /// Keep the axis with extent 1.
        keepdims: bool, /// The last of equals rather than the first.
        last: bool }
    /// Index (i64) of the smallest element along an axis.
    "argmin" ArgMin(1..=1) { /// Axis.
        axis: usize, /// Keep the axis with extent 1.
        keepdims: bool, /// The last of equals rather than the first.
        last: bool }
    /// Running sum along an axis.
    "cumsum" CumSum(1..=1) { /// Axis.
        axis: usize, /// Leave the element itself out.
        exclusive: bool, /// From the end.
        reverse: bool }
    /// Matrix product over the last two axes, batch axes broadcasting: `[.., m, k] x [.., k, n]`. Transposed operands are
    /// `[.., k, m]`, `[.., n, k]`. Both operands have rank 2 or more. Accumulates in f32 (f64 for f64), rounds once.
    "matmul" MatMul(2..=2) { /// The left operand is transposed.
        trans_a: bool, /// The right operand is transposed.
        trans_b: bool }
    /// Softmax along one axis, with the maximum taken out, f32 inside.
    "softmax" Softmax(1..=1) { /// Axis.
        axis: usize }
    /// Logarithm of softmax.
    "log_softmax" LogSoftmax(1..=1) { /// Axis.
        axis: usize }
    /// `(x - mean) / sqrt(variance + eps) * scale [+ bias]` over the axes from `axis` on; f32 inside; scale and bias
    /// broadcast to x.
    "layer_norm" LayerNorm(2..=3) { /// First normalised axis.
        axis: usize, /// Added to the variance.
        eps: f64 }
    /// `x / sqrt(mean(x^2) + eps) * scale` over the axes from `axis` on, f32 inside.
    "rms_norm" RmsNorm(2..=2) { /// First normalised axis.
        axis: usize, /// Added to the mean square.
        eps: f64 }
    /// x * Phi(x), exact (erf) or the tanh approximation.
    "gelu" Gelu(1..=1) { /// The tanh approximation.
        tanh: bool }
    /// x * sigmoid(x).
    "silu" Silu(1..=1) {}
}

impl Op {
    /// Whether the op only renames elements, so that it can be folded into addresses.
    #[must_use]
    pub fn is_view(&self) -> bool {
        matches!(
            self,
            Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::Expand { .. }
                | Op::Slice { .. }
                | Op::Window { .. }
        )
    }
    /// Whether every output element depends on one element of each operand (after broadcasting).
    #[must_use]
    pub fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Unary(_) | Op::Binary(_) | Op::Fma {} | Op::Select {} | Op::Clamp {} | Op::Cast { .. }
        )
    }
}

impl Op {
    /// The op with other dims, e.g. those of another table.
    #[must_use]
    pub fn map_dims(&self, mut f: impl FnMut(Dim) -> Dim) -> Op {
        let mut attrs = self.attrs();
        if !attrs.iter().any(|(_, a)| matches!(a, Attr::Dim(_) | Attr::Dims(_))) {
            return self.clone();
        }
        for (_, a) in &mut attrs {
            match a {
                Attr::Dim(d) => *d = f(*d),
                Attr::Dims(dims) => dims.iter_mut().for_each(|d| *d = f(*d)),
                _ => {}
            }
        }
        let mut attrs = attrs.into_iter();
        let made = Op::from_parts(self.mnemonic(), |_, _| attrs.next().map(|(_, a)| a));
        made.and_then(Result::ok).unwrap_or_else(|| self.clone())
    }
}
