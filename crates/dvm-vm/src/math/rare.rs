//! Functions computed lane by lane in f64 and rounded once: too rare in models to be worth a polynomial.

use super::cheap::function;
use super::drive::Unary;
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
