//! Unary elementwise kernels.

use dvm_bc::{DType, Opcode};

use super::{Kernel, SpanFn, define_op, span1};
use crate::Isa;
use crate::elem::{Bits, Elem, with_bits, with_elem};

/// The instantiation of an operation's span loop. The value only names the type.
fn one<T: Copy, O: super::Op1<T, Out: Copy>>(_: O, isa: Isa) -> SpanFn {
    span1::span::<T, O>(isa)
}

/// For operations that do not vectorise.
fn scalar<T: Copy, O: super::Op1<T, Out: Copy>>(_: O) -> SpanFn {
    span1::narrow::<T, O>()
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

trait F64Only: Copy + Into<f64> + From<f64> {}
impl F64Only for f64 {}
macro_rules! f64_table {
    ($($op:ident => $f:expr;)*) => {
        fn f64_maths(op: Opcode) -> Option<SpanFn> {
            Some(match op {
                $(Opcode::$op => scalar::<f64, _>(define_op!(Op1, F64Only, [a], T, { let f: fn(f64) -> f64 = $f; T::from(f(a.into())) })),)*
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
