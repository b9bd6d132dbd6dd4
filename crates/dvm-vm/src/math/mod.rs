//! f32 vector maths: elementwise functions, casts and row reductions as function pointers by (opcode, [`Isa`]).
//!
//! Models spend what is not matrix multiplication here, and results must not depend on the machine. So each function
//! is written once over [`lanes::Lanes`] and instantiated portably and for AVX2; all instances give the same bits
//! (NaN payloads excepted). Accuracy is stated, and tested, in units in the last place against correctly rounded
//! values.
//!
//! The tables return plain function pointers, looked up once when a program is predecoded. Pointers need only the
//! alignment of an element. `dst` may equal a source of the same element size; other overlaps are not allowed.

mod accuracy;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod cast;
mod chain;
mod cheap;
mod drive;
mod erf;
mod exp;
mod lanes;
mod log;
mod pow;
mod rare;
mod rows;
mod trig;

use dvm_bc::Opcode;

use crate::Isa;
pub use accuracy::{Accuracy, accuracy, apply_f32};
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::first_lanes;
pub(crate) use cast::{CastFn, SelectFn, cast, select_f32};
pub(crate) use chain::{
    ChainFn, Lanes64, MOST as CHAIN_MOST, SQUARE, Span as ChainSpan, begins as chain_begins, chain,
    chain_sum, code as link_code, fence,
};
use drive::{Binary, Ternary, Unary};
pub(crate) use drive::{BinaryFn, CompareFn, CompareScalarFn, PredicateFn, ScalarFn, TernaryFn, UnaryFn};
pub(crate) use rows::*;

/// The instance of a loop for an instruction-set level.
macro_rules! instance {
    ($isa:expr, $($path:tt)*) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => drive::avx2::$($path)*,
            _ => drive::portable::$($path)*,
        }
    };
}

macro_rules! tables {
    (
        unary { $($uop:ident = $ufun:path,)* }
        binary { $($bop:ident = $bfun:path,)* }
        predicate { $($pop:ident = $pfun:path,)* }
        compare { $($cop:ident = $cfun:path,)* }
        ternary { $($top:ident = $tfun:path,)* }
    ) => {
        /// A function of one f32 operand, or `None` where `op` is not one.
        pub(crate) fn unary_f32(op: Opcode, isa: Isa) -> Option<UnaryFn> {
            let isa = isa.or_portable();
            Some(match op { $(Opcode::$uop => instance!(isa, unary::<$ufun>),)* _ => return None })
        }
        /// A function of two f32 operands, or `None` where `op` is not one.
        pub(crate) fn binary_f32(op: Opcode, isa: Isa) -> Option<BinaryFn> {
            let isa = isa.or_portable();
            Some(match op { $(Opcode::$bop => instance!(isa, binary::<$bfun>),)* _ => return None })
        }
        /// A function of an f32 operand and a scalar: `op(s, a)` if `scalar_left`, else `op(a, s)`.
        pub(crate) fn binary_f32_scalar(op: Opcode, isa: Isa, scalar_left: bool) -> Option<ScalarFn> {
            let isa = isa.or_portable();
            if op == Opcode::VPow && !scalar_left {
                return Some(instance!(isa, power));
            }
            Some(match (op, scalar_left) {
                $(
                    (Opcode::$bop, false) => instance!(isa, scalar_right::<$bfun>),
                    (Opcode::$bop, true) => instance!(isa, scalar_left::<$bfun>),
                )*
                _ => return None,
            })
        }
        /// A test of one f32 operand, giving bytes 0 or 1.
        pub(crate) fn predicate_f32(op: Opcode, isa: Isa) -> Option<PredicateFn> {
            let isa = isa.or_portable();
            Some(match op { $(Opcode::$pop => instance!(isa, predicate::<$pfun>),)* _ => return None })
        }
        /// A comparison of two f32 operands, giving bytes 0 or 1.
        pub(crate) fn compare_f32(op: Opcode, isa: Isa) -> Option<CompareFn> {
            let isa = isa.or_portable();
            Some(match op { $(Opcode::$cop => instance!(isa, compare::<$cfun>),)* _ => return None })
        }
        /// A comparison of an f32 operand and a scalar: `op(s, a)` if `scalar_left`, else `op(a, s)`.
        pub(crate) fn compare_f32_scalar(op: Opcode, isa: Isa, scalar_left: bool) -> Option<CompareScalarFn> {
            let isa = isa.or_portable();
            Some(match (op, scalar_left) {
                $(
                    (Opcode::$cop, false) => instance!(isa, compare_right::<$cfun>),
                    (Opcode::$cop, true) => instance!(isa, compare_left::<$cfun>),
                )*
                _ => return None,
            })
        }
        /// A function of three f32 operands (`select`, whose first operand is bool, is [`select_f32`]).
        pub(crate) fn ternary_f32(op: Opcode, isa: Isa) -> Option<TernaryFn> {
            let isa = isa.or_portable();
            Some(match op { $(Opcode::$top => instance!(isa, ternary::<$tfun>),)* _ => return None })
        }
        /// The scalar form of [`unary_f32`]: the same bits.
        pub(crate) fn scalar_unary_f32(op: Opcode) -> Option<fn(f32) -> f32> {
            Some(match op { $(Opcode::$uop => <$ufun as Unary>::eval::<f32>,)* _ => return None })
        }
        /// The scalar form of [`binary_f32`]: the same bits.
        pub(crate) fn scalar_binary_f32(op: Opcode) -> Option<fn(f32, f32) -> f32> {
            Some(match op { $(Opcode::$bop => <$bfun as Binary>::eval::<f32>,)* _ => return None })
        }
        /// The scalar form of [`ternary_f32`]: the same bits.
        pub(crate) fn scalar_ternary_f32(op: Opcode) -> Option<fn(f32, f32, f32) -> f32> {
            Some(match op { $(Opcode::$top => <$tfun as Ternary>::eval::<f32>,)* _ => return None })
        }
    };
}

tables! {
    unary {
        VCopy = cheap::Copy, VAbs = cheap::Abs, VNeg = cheap::Neg, VSign = cheap::Sign, VSqrt = cheap::Sqrt,
        VRsqrt = cheap::Rsqrt, VReciprocal = cheap::Reciprocal, VRound = cheap::Round, VFloor = cheap::Floor,
        VCeil = cheap::Ceil, VTrunc = cheap::Trunc,
        VExp = exp::Exp, VExp2 = exp::Exp2, VLn = log::Ln, VLog2 = log::Log2, VLog1p = log::Log1p,
        VExpm1 = exp::Expm1, VSin = trig::Sin, VCos = trig::Cos, VTan = trig::Tan, VTanh = exp::Tanh,
        VErf = erf::Erf, VSigmoid = exp::Sigmoid,
        VAsin = rare::Asin, VAcos = rare::Acos, VAtan = rare::Atan, VSinh = rare::Sinh, VCosh = rare::Cosh,
        VAsinh = rare::Asinh, VAcosh = rare::Acosh, VAtanh = rare::Atanh,
    }
    binary {
        VAdd = cheap::Add, VSub = cheap::Sub, VMul = cheap::Mul, VDiv = cheap::Div, VRem = cheap::Rem,
        VFmod = cheap::Fmod, VFloorDiv = cheap::FloorDiv, VPow = pow::Pow, VMax = cheap::Max, VMin = cheap::Min,
    }
    predicate { VIsFinite = cheap::IsFinite, VIsNan = cheap::IsNan, VIsInf = cheap::IsInf, }
    compare {
        VEq = cheap::Eq, VNe = cheap::Ne, VLt = cheap::Lt, VLe = cheap::Le, VGt = cheap::Gt, VGe = cheap::Ge,
    }
    ternary { VFma = cheap::Fma, VClamp = cheap::Clamp, }
}

#[cfg(test)]
mod tests;
