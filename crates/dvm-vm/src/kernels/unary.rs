//! Unary elementwise kernels.

use dvm_bc::{DType, Opcode};

use super::half::Halves;
use super::{Kernel, SpanFn, define_op, span1};
use crate::Isa;
use crate::elem::{Bits, Elem, with_bits, with_elem};

/// The instantiation of an operation's span loop. The value only names the type.
fn one<T: Copy, O: super::Op1<T, Out: Copy>>(_: O, isa: Isa) -> SpanFn {
    span1::span::<T, O>(isa)
}

macro_rules! table {
    ($fn:ident, $bound:path, $out:ty, { $($op:ident: $a:ident => $body:expr;)* }) => {
        fn $fn<T: $bound>(op: Opcode, isa: Isa) -> Option<SpanFn> {
            Some(match op {
                $(Opcode::$op => one::<T, _>(define_op!(Op1, $bound, [$a], $out, $body), isa),)*
                _ => return None,
            })
        }
    };
}

table!(simple, Elem, T, {
    VAbs: a => a.abs();
    VNeg: a => a.neg();
    VSign: a => a.sign();
    VRound: a => a.round();
    VFloor: a => a.floor();
    VCeil: a => a.ceil();
    VTrunc: a => a.trunc();
});
table!(classify, Elem, u8, {
    VIsFinite: a => u8::from(!a.is_nan() && !a.is_inf());
    VIsNan: a => u8::from(a.is_nan());
    VIsInf: a => u8::from(a.is_inf());
});
table!(bits, Bits, T, { VNot: a => a.not(); });

/// A function of an f64 as a type.
trait F64Fn {
    fn f(x: f64) -> f64;
}
struct Maths<F>(std::marker::PhantomData<F>);
impl<F: F64Fn> super::Op1<f64> for Maths<F> {
    type Out = f64;
    #[inline(always)]
    fn f(a: f64) -> f64 {
        F::f(a)
    }
}

macro_rules! f64_table {
    ($($op:ident => $f:expr;)*) => {
        $(
            struct $op;
            impl F64Fn for $op {
                #[inline(always)]
                fn f(x: f64) -> f64 {
                    let f: fn(f64) -> f64 = $f;
                    f(x)
                }
            }
        )*
        fn f64_maths(op: Opcode) -> Option<SpanFn> {
            Some(match op {
                $(Opcode::$op => span1::narrow::<f64, Maths<$op>>(),)*
                _ => return None,
            })
        }
        /// The function of one f64: the same bits as the kernel's.
        pub(crate) fn scalar_f64(op: Opcode) -> Option<fn(f64) -> f64> {
            Some(match op {
                $(Opcode::$op => <$op as F64Fn>::f,)*
                _ => return None,
            })
        }
    };
}
// `libm` rather than the platform's: the same bits everywhere.
f64_table! {
    VSqrt => f64::sqrt;
    VRsqrt => |x| 1.0 / x.sqrt();
    VReciprocal => |x| 1.0 / x;
    VExp => libm::exp;
    VExp2 => libm::exp2;
    VLn => libm::log;
    VLog2 => libm::log2;
    VLog1p => libm::log1p;
    VExpm1 => libm::expm1;
    VSin => libm::sin;
    VCos => libm::cos;
    VTan => libm::tan;
    VTanh => libm::tanh;
    VErf => libm::erf;
    VSigmoid => |x| 1.0 / (1.0 + libm::exp(-x));
    VAsin => libm::asin;
    VAcos => libm::acos;
    VAtan => libm::atan;
    VSinh => libm::sinh;
    VCosh => libm::cosh;
    VAsinh => libm::asinh;
    VAcosh => libm::acosh;
    VAtanh => libm::atanh;
}

/// The kernel of `op` on `dtype` (f16 and bf16 ask for f32), or `None` where the operation has no meaning there.
pub(crate) fn kernel(op: Opcode, dtype: DType, isa: Isa) -> Option<Kernel> {
    if op == Opcode::VCopy {
        return Some(Kernel::Span(super::shape::copy(dtype.size(), isa)));
    }
    if dtype == DType::F32 {
        if let Some(f) = crate::math::unary_f32(op, isa) {
            return Some(Kernel::Unary(f));
        }
        if let Some(f) = crate::math::predicate_f32(op, isa) {
            return Some(Kernel::Predicate(f));
        }
    }
    if dtype == DType::F64
        && let Some(f) = f64_maths(op)
    {
        return Some(Kernel::Span(f));
    }
    with_bits!(dtype, T => bits::<T>(op, isa), else => None)
        .or_else(
            || with_elem!(dtype, T => simple::<T>(op, isa).or_else(|| classify::<T>(op, isa)), f32 => None, half => None),
        )
        .map(Kernel::Span)
}

/// Whether `op` writes bool.
fn classifies(op: Opcode) -> bool {
    matches!(op, Opcode::VIsFinite | Opcode::VIsNan | Opcode::VIsInf)
}

/// The kernel of `op` on any dtype, and what of it is half precision.
pub(crate) fn choose(op: Opcode, dtype: DType, isa: Isa) -> Option<(Kernel, Halves)> {
    let halves = match op {
        Opcode::VCopy => return kernel(op, dtype, isa).map(|k| (k, Halves::default())),
        _ => Halves::of(dtype, 1, !classifies(op), isa),
    };
    kernel(op, halves.native(dtype), isa).map(|k| (k, halves))
}
