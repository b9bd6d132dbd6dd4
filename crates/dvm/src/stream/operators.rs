//! Operators, and what may stand on either side of one: tensors, references to them, numbers.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use dvm_ir::{BinaryOp, Scalar, UnaryOp};

use super::Tensor;
use crate::Error;

/// An operand: a tensor or a number, which takes the dtype of the tensors it meets.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

/// What can be an operand of an op: a tensor, a reference to one, or a number.
pub trait Operand {
    /// The operand.
    fn arg(&self) -> Arg<'_>;
}

impl Operand for Tensor {
    fn arg(&self) -> Arg<'_> {
        Arg::Tensor(self)
    }
}
impl Operand for &Tensor {
    fn arg(&self) -> Arg<'_> {
        Arg::Tensor(self)
    }
}
impl Operand for Arg<'_> {
    fn arg(&self) -> Arg<'_> {
        *self
    }
}

macro_rules! numbers {
    ($($t:ty = $kind:ident as $as:ty),*) => { $(
        impl Operand for $t {
            fn arg(&self) -> Arg<'_> {
                Arg::Scalar(Scalar::$kind(*self as $as))
            }
        }
    )* };
}

macro_rules! operator {
    ($trait:ident $method:ident $op:ident, $l:ty, $r:ty) => {
        impl $trait<$r> for $l {
            type Output = Result<Tensor, Error>;
            fn $method(self, other: $r) -> Result<Tensor, Error> {
                Tensor::binary(self.arg(), BinaryOp::$op, other.arg())
            }
        }
    };
}

macro_rules! operators {
    (scalar $t:ty) => {
        operators!(pair Tensor, $t);
        operators!(pair &Tensor, $t);
        operators!(pair $t, Tensor);
        operators!(pair $t, &Tensor);
    };
    (pair $l:ty, $r:ty) => {
        operator!(Add add Add, $l, $r);
        operator!(Sub sub Sub, $l, $r);
        operator!(Mul mul Mul, $l, $r);
        operator!(Div div Div, $l, $r);
    };
    (bits $l:ty, $r:ty) => {
        operator!(BitAnd bitand And, $l, $r);
        operator!(BitOr bitor Or, $l, $r);
        operator!(BitXor bitxor Xor, $l, $r);
    };
    (tensors $(($l:ty, $r:ty)),*) => { $(
        operators!(pair $l, $r);
        operators!(bits $l, $r);
    )* };
}

operators!(tensors(Tensor, Tensor), (Tensor, &Tensor), (&Tensor, Tensor), (&Tensor, &Tensor));
numbers!(f32 = Float as f64, f64 = Float as f64, i32 = Int as i64, i64 = Int as i64);
// One float and one integer type, so that a literal has one meaning.
operators!(scalar f64);
operators!(scalar i64);

impl Neg for &Tensor {
    type Output = Result<Tensor, Error>;
    fn neg(self) -> Self::Output {
        self.unary(UnaryOp::Neg)
    }
}
impl Neg for Tensor {
    type Output = Result<Tensor, Error>;
    fn neg(self) -> Self::Output {
        self.unary(UnaryOp::Neg)
    }
}
impl Not for &Tensor {
    type Output = Result<Tensor, Error>;
    fn not(self) -> Self::Output {
        self.unary(UnaryOp::Not)
    }
}
impl Not for Tensor {
    type Output = Result<Tensor, Error>;
    fn not(self) -> Self::Output {
        self.unary(UnaryOp::Not)
    }
}
