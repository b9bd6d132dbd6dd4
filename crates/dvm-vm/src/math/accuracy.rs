//! What the f32 functions promise, as data: tests check it, the documentation prints it.

use dvm_bc::Opcode;

use crate::Isa;

/// How far a function of f32 may be from the exact value.
///
/// Errors are in units in the last place of the exact value: 0.5 is what correct rounding gives. f16 and bf16 compute in
/// f32 and round once more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// The function.
    pub op: Opcode,
    /// No argument gives a larger error.
    pub bound: f64,
    /// How it is computed.
    pub method: &'static str,
}

macro_rules! accuracy {
    ($($op:ident $bound:literal $method:literal;)*) => {
        &[$(Accuracy {
            op: Opcode::$op,
            bound: $bound,
            method: $method,
        }),*]
    };
}

const FUNCTIONS: &[Accuracy] = accuracy! {
    VRsqrt 1.5 "1 / sqrt, both correctly rounded";
    VExp 1.25 "n ln 2 + r, degree 6";
    VExp2 1.0 "n + r, degree 6";
    VExpm1 1.75 "n ln 2 + r, degree 7";
    VLn 1.25 "2^e m with m in 2/3..4/3, degree 10";
    VLog2 2.0 "as ln, the leading term in two floats";
    VLog1p 2.0 "as ln of 1 + x, reduced with one rounding";
    VSin 2.0 "n pi/2 + r, degree 9 (8 for cos); beyond 200000 in f64";
    VCos 2.0 "as sin";
    VTan 1.5 "n pi/2 + r in two floats, degree 15; beyond 200000 in f64";
    VTanh 2.0 "expm1(2x) / (expm1(2x) + 2)";
    VErf 1.25 "degree 13 below 0.8, 1 - exp(polynomial) beyond";
    VSigmoid 2.0 "1 / (1 + exp(-x)) through exp(-\\|x\\|)";
    VPow 1.5 "2^(y log2 x), the logarithm in two floats; x * x where y = 2";
    VAsin 0.51 "in f64, rounded once";
    VAcos 0.51 "in f64, rounded once";
    VAtan 0.51 "in f64, rounded once";
    VSinh 0.51 "in f64, rounded once";
    VCosh 0.51 "in f64, rounded once";
    VAsinh 0.51 "in f64, rounded once";
    VAcosh 0.51 "in f64, rounded once";
    VAtanh 0.51 "in f64, rounded once";
};

/// The functions that are not exact in the sense of IEEE 754; those that are missing here are correctly rounded.
#[must_use]
pub fn accuracy() -> &'static [Accuracy] {
    FUNCTIONS
}

/// Applies a function of one f32, or of two where `y` is given, to each element; `None` where `op` is not one or the lengths differ.
/// What programs compute, for measurements.
pub fn apply_f32(op: Opcode, isa: Isa, x: &[f32], y: Option<&[f32]>, dst: &mut [f32]) -> Option<()> {
    let n = dst.len();
    if x.len() != n || y.is_some_and(|y| y.len() != n) {
        return None;
    }
    match y {
        // SAFETY: all have `n` elements.
        None => unsafe { super::unary_f32(op, isa)?(dst.as_mut_ptr(), x.as_ptr(), n) },
        // SAFETY: all have `n` elements.
        Some(y) => unsafe { super::binary_f32(op, isa)?(dst.as_mut_ptr(), x.as_ptr(), y.as_ptr(), n) },
    }
    Some(())
}
