//! Functions whose last bits are not fixed by arithmetic alone.

use crate::{DType, Opcode};

/// The functions that are approximations: every unary instruction of class `Exp` or `Special`, and `vpow`.
///
/// A machine whose functions have other last bits plugs them in, and then the interpreter gives exactly its results.
pub trait Math {
    /// A function of one f32. `op` is of class `Exp` or `Special`, form `Unary`.
    fn f32(&self, op: Opcode, x: f32) -> f32;
    /// A function of one f64.
    fn f64(&self, op: Opcode, x: f64) -> f64;
    /// `vpow` of f32, but for `y = 2`, which is `x * x`.
    fn pow_f32(&self, x: f32, y: f32) -> f32;
    /// `vpow` of f64, but for `y = 2`.
    fn pow_f64(&self, x: f64, y: f64) -> f64;
    /// The bits of a NaN of `dtype` that is computed; `None` leaves payload and sign as they come, since nothing fixes them.
    /// Running with two choices shows which results depend on them.
    fn nan(&self, dtype: DType) -> Option<u64> {
        let _ = dtype;
        None
    }
}

/// `libm`'s functions: f64 ones below one unit in the last place, and f32 ones computed in f64 and rounded once.
#[derive(Clone, Copy, Debug, Default)]
pub struct LibMath;

impl Math for LibMath {
    fn f32(&self, op: Opcode, x: f32) -> f32 {
        self.f64(op, x.into()) as f32
    }

    fn f64(&self, op: Opcode, x: f64) -> f64 {
        match op {
            Opcode::VExp => libm::exp(x),
            Opcode::VExp2 => libm::exp2(x),
            Opcode::VLn => libm::log(x),
            Opcode::VLog2 => libm::log2(x),
            Opcode::VLog1p => libm::log1p(x),
            Opcode::VExpm1 => libm::expm1(x),
            Opcode::VSin => libm::sin(x),
            Opcode::VCos => libm::cos(x),
            Opcode::VTan => libm::tan(x),
            Opcode::VTanh => libm::tanh(x),
            Opcode::VErf => libm::erf(x),
            Opcode::VSigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Opcode::VAsin => libm::asin(x),
            Opcode::VAcos => libm::acos(x),
            Opcode::VAtan => libm::atan(x),
            Opcode::VSinh => libm::sinh(x),
            Opcode::VCosh => libm::cosh(x),
            Opcode::VAsinh => libm::asinh(x),
            Opcode::VAcosh => libm::acosh(x),
            Opcode::VAtanh => libm::atanh(x),
            // Not a function of this trait.
            _ => f64::NAN,
        }
    }

    fn pow_f32(&self, x: f32, y: f32) -> f32 {
        libm::pow(x.into(), y.into()) as f32
    }

    fn pow_f64(&self, x: f64, y: f64) -> f64 {
        libm::pow(x, y)
    }
}
