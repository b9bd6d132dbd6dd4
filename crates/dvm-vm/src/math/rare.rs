//! Functions computed lane by lane in f64 and rounded once: too rare in models to be worth a polynomial.

use super::cheap::function;
use super::drive::{Binary, Unary};
use super::lanes::Lanes;

macro_rules! through_f64 {
    ($($name:ident = $f:path;)*) => { $(
        function!($name: Unary, x => x.map(|x| $f(f64::from(x)) as f32));
    )* };
}

through_f64! {
    Asin = libm::asin;
    Acos = libm::acos;
    Atan = libm::atan;
    Sinh = libm::sinh;
    Cosh = libm::cosh;
    Asinh = libm::asinh;
    Acosh = libm::acosh;
    Atanh = libm::atanh;
}
through_f64! {
    Exp = libm::exp;
    Exp2 = libm::exp2;
    Ln = libm::log;
    Log2 = libm::log2;
    Log1p = libm::log1p;
    Expm1 = libm::expm1;
    Sin = libm::sin;
    Cos = libm::cos;
    Tan = libm::tan;
    Tanh = libm::tanh;
    Erf = libm::erf;
}
function!(Sigmoid: Unary, x => x.map(|x| (1.0 / (1.0 + libm::exp(-f64::from(x)))) as f32));
function!(Pow: Binary, a, b => a.map2(b, |a, b| libm::pow(f64::from(a), f64::from(b)) as f32));
