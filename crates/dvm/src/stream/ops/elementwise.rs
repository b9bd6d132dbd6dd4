//! One element from one element of each operand.

use dvm_ir::{BinaryOp, DType, Op, UnaryOp};

use crate::Error;
use crate::stream::operators::{Arg, Operand};
use crate::stream::storage::Shape;
use crate::stream::{Stream, Tensor};

/// The shape that shapes broadcast to, `None` where they do not.
fn broadcast(shapes: &[&[usize]]) -> Option<Shape> {
    let rank = shapes.iter().map(|s| s.len()).max()?;
    let mut out = Shape::from_elem(1, rank);
    for s in shapes {
        let lead = rank - s.len();
        for (o, &n) in out[lead..].iter_mut().zip(*s) {
            if *o == 1 {
                *o = n;
            } else if n != 1 && n != *o {
                return None;
            }
        }
    }
    Some(out)
}

/// The type of a binary op in the usual cases; `None` leaves it to the rules of the IR.
fn binary_type(a: &Arg<'_>, op: BinaryOp, b: &Arg<'_>) -> Option<(DType, Shape)> {
    let (dtype, shape) = match (a, b) {
        (Arg::Tensor(x), Arg::Tensor(y)) if x.shape() == y.shape() => {
            (x.dtype(), Shape::from_slice(x.shape()))
        }
        (Arg::Tensor(x), Arg::Tensor(y)) => (x.dtype(), broadcast(&[x.shape(), y.shape()])?),
        (Arg::Tensor(x), _) | (_, Arg::Tensor(x)) => (x.dtype(), Shape::from_slice(x.shape())),
        _ => return None,
    };
    let one = |x: &Arg<'_>| !matches!(x, Arg::Tensor(t) if t.dtype() != dtype);
    let usual = one(a) && one(b) && dtype != DType::Bool && !(op.is_bitwise() && dtype.is_float());
    usual.then_some((if op.is_comparison() { DType::Bool } else { dtype }, shape))
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// The op is not defined for the dtype.
        pub fn $name(&self) -> Result<Tensor, Error> {
            self.unary(UnaryOp::$op)
        }
    )* };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Dtypes that differ or do not have the op, or shapes that do not broadcast.
        pub fn $name(&self, other: impl Operand) -> Result<Tensor, Error> {
            Tensor::binary(Arg::Tensor(self), BinaryOp::$op, other.arg())
        }
    )* };
}

impl Tensor {
    /// An elementwise op.
    ///
    /// # Errors
    /// The op is not defined for the dtype.
    pub fn unary(&self, op: UnaryOp) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let result = if op.is_test() { DType::Bool } else { dtype };
        let usual = dtype.is_float() && op != UnaryOp::Not;
        let ty = usual.then(|| (result, Shape::from_slice(self.shape())));
        self.stream().record(&[Arg::Tensor(self)], None, |_| Op::Unary(op), ty)
    }
    /// An elementwise op of two operands, one of them a tensor.
    ///
    /// # Errors
    /// Dtypes that differ or do not have the op, or shapes that do not broadcast.
    pub fn binary(a: Arg<'_>, op: BinaryOp, b: Arg<'_>) -> Result<Tensor, Error> {
        let ty = binary_type(&a, op, &b);
        stream_of(&[a, b])?.record(&[a, b], None, |_| Op::Binary(op), ty)
    }

    unary! {
        /// Absolute value.
        abs Abs;
        /// -1, 0 or 1.
        sign Sign;
        /// Square root.
        sqrt Sqrt;
        /// 1 / sqrt(x).
        rsqrt Rsqrt;
        /// 1 / x.
        reciprocal Reciprocal;
        /// e^x.
        exp Exp;
        /// 2^x.
        exp2 Exp2;
        /// e^x - 1.
        expm1 Expm1;
        /// Natural logarithm.
        ln Ln;
        /// Base-2 logarithm.
        log2 Log2;
        /// ln(1 + x).
        log1p Log1p;
        /// Sine.
        sin Sin;
        /// Cosine.
        cos Cos;
        /// Tangent.
        tan Tan;
        /// Arc sine.
        asin Asin;
        /// Arc cosine.
        acos Acos;
        /// Arc tangent.
        atan Atan;
        /// Hyperbolic sine.
        sinh Sinh;
        /// Hyperbolic cosine.
        cosh Cosh;
        /// Hyperbolic tangent.
        tanh Tanh;
        /// Inverse hyperbolic sine.
        asinh Asinh;
        /// Inverse hyperbolic cosine.
        acosh Acosh;
        /// Inverse hyperbolic tangent.
        atanh Atanh;
        /// Error function.
        erf Erf;
        /// 1 / (1 + e^-x).
        sigmoid Sigmoid;
        /// Nearest integer, halves to even.
        round Round;
        /// Largest integer not above.
        floor Floor;
        /// Smallest integer not below.
        ceil Ceil;
        /// Integer part.
        trunc Trunc;
        /// Neither infinite nor NaN, as bool.
        is_finite IsFinite;
        /// NaN, as bool.
        is_nan IsNan;
        /// Infinite, as bool.
        is_inf IsInf;
        /// A copy with memory of its own.
        copy Copy;
    }
    binary! {
        /// Remainder with the sign of the divisor.
        rem Rem;
        /// Remainder with the sign of the dividend.
        fmod Fmod;
        /// Floor of the quotient.
        floor_div FloorDiv;
        /// a^b.
        pow Pow;
        /// The larger of the two; NaN if either is.
        maximum Max;
        /// The smaller of the two; NaN if either is.
        minimum Min;
        /// Shift left.
        shl Shl;
        /// Shift right.
        shr Shr;
        /// a == b, as bool.
        eq Eq;
        /// a != b, as bool.
        ne Ne;
        /// a < b, as bool.
        lt Lt;
        /// a <= b, as bool.
        le Le;
        /// a > b, as bool.
        gt Gt;
        /// a >= b, as bool.
        ge Ge;
        /// Logical or bitwise and.
        and And;
        /// Logical or bitwise or.
        or Or;
        /// Logical or bitwise exclusive or.
        xor Xor;
    }
    /// max(x, 0).
    ///
    /// # Errors
    /// The dtype is bool.
    pub fn relu(&self) -> Result<Tensor, Error> {
        self.maximum(0)
    }
    /// x * x.
    ///
    /// # Errors
    /// The dtype is bool.
    pub fn square(&self) -> Result<Tensor, Error> {
        self * self
    }
    /// Exact gelu, x * Phi(x).
    ///
    /// # Errors
    /// The dtype is no float.
    pub fn gelu(&self) -> Result<Tensor, Error> {
        self.like(Op::Gelu { tanh: false })
    }
    /// The tanh approximation of gelu.
    ///
    /// # Errors
    /// The dtype is no float.
    pub fn gelu_tanh(&self) -> Result<Tensor, Error> {
        self.like(Op::Gelu { tanh: true })
    }
    /// x * sigmoid(x).
    ///
    /// # Errors
    /// The dtype is no float.
    pub fn silu(&self) -> Result<Tensor, Error> {
        self.like(Op::Silu {})
    }
    /// An op of a float tensor whose result has the type of the operand.
    pub(super) fn like(&self, op: Op) -> Result<Tensor, Error> {
        let ty = self.dtype().is_float().then(|| (self.dtype(), Shape::from_slice(self.shape())));
        self.stream().record(&[Arg::Tensor(self)], None, |_| op, ty)
    }
    /// Conversion to another dtype; the tensor itself where it has it.
    ///
    /// # Errors
    /// None for a tensor without an earlier failure.
    pub fn cast(&self, to: DType) -> Result<Tensor, Error> {
        if to == self.dtype() {
            return Ok(self.clone());
        }
        let ty = Some((to, Shape::from_slice(self.shape())));
        self.stream().record(&[Arg::Tensor(self)], None, |_| Op::Cast { to }, ty)
    }
    /// `a` where this bool tensor is true, `b` elsewhere. Two numbers give f32 if one of them is a float, i64 otherwise.
    ///
    /// # Errors
    /// This is not bool, dtypes differ, or shapes do not broadcast.
    pub fn select(&self, a: impl Operand, b: impl Operand) -> Result<Tensor, Error> {
        let (a, b) = (a.arg(), b.arg());
        let dtype = [a, b].iter().find_map(|x| match x {
            Arg::Tensor(t) => Some(t.dtype()),
            Arg::Scalar(_) => None,
        });
        let float = |x: Arg<'_>| matches!(x, Arg::Scalar(dvm_ir::Scalar::Float(_)));
        let numbers = if float(a) || float(b) { DType::F32 } else { DType::I64 };
        let shapes = [Arg::Tensor(self), a, b].map(|x| match x {
            Arg::Tensor(t) => Shape::from_slice(t.shape()),
            Arg::Scalar(_) => Shape::new(),
        });
        let scalars = dtype.unwrap_or(numbers);
        let fits = |x: Arg<'_>| !matches!(x, Arg::Tensor(t) if t.dtype() != scalars);
        let ty = (self.dtype() == DType::Bool && fits(a) && fits(b))
            .then(|| broadcast(&[&shapes[0], &shapes[1], &shapes[2]]))
            .flatten()
            .map(|s| (scalars, s));
        self.stream().record(&[Arg::Tensor(self), a, b], Some(scalars), |_| Op::Select {}, ty)
    }
    /// `min(max(x, lo), hi)`, NaN propagating.
    ///
    /// # Errors
    /// Dtypes differ, or the bounds do not broadcast to x.
    pub fn clamp(&self, lo: impl Operand, hi: impl Operand) -> Result<Tensor, Error> {
        let args = [Arg::Tensor(self), lo.arg(), hi.arg()];
        let numbers = args[1..].iter().all(|a| matches!(a, Arg::Scalar(_)));
        let ty =
            (numbers && self.dtype() != DType::Bool).then(|| (self.dtype(), Shape::from_slice(self.shape())));
        self.stream().record(&args, None, |_| Op::Clamp {}, ty)
    }
    /// `a*b + c` in one rounding, this being `a`.
    ///
    /// # Errors
    /// A dtype that is no float or differs, or shapes that do not broadcast.
    pub fn fma(&self, b: impl Operand, c: impl Operand) -> Result<Tensor, Error> {
        self.stream().record(&[Arg::Tensor(self), b.arg(), c.arg()], None, |_| Op::Fma {}, None)
    }
}

/// The stream of the first tensor among operands.
fn stream_of<'a>(args: &[Arg<'a>]) -> Result<&'a Stream, Error> {
    let tensor = args.iter().find_map(|a| match a {
        Arg::Tensor(t) => Some(t.stream()),
        Arg::Scalar(_) => None,
    });
    tensor.ok_or_else(|| Error::Stream("no operand is a tensor".into()))
}
