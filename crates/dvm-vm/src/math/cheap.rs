//! Functions of a few instructions: arithmetic, rounding, comparisons, NaN-propagating extremes.

use super::drive::{Binary, Compare, Predicate, Ternary, Unary};
use super::lanes::Lanes;

/// Defines a unit struct implementing one of the function traits for all [`Lanes`].
macro_rules! function {
    ($(#[$doc:meta])* $name:ident: Unary, $x:ident => $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn eval<V: Lanes>($x: V) -> V { $body }
        }
    };
    ($(#[$doc:meta])* $name:ident: Binary, $a:ident, $b:ident => $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Binary for $name {
            #[inline(always)]
            fn eval<V: Lanes>($a: V, $b: V) -> V { $body }
        }
    };
    ($(#[$doc:meta])* $name:ident: Ternary, $a:ident, $b:ident, $c:ident => $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Ternary for $name {
            #[inline(always)]
            fn eval<V: Lanes>($a: V, $b: V, $c: V) -> V { $body }
        }
    };
    ($(#[$doc:meta])* $name:ident: Predicate, $x:ident => $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Predicate for $name {
            #[inline(always)]
            fn eval<V: Lanes>($x: V) -> V::Mask { $body }
        }
    };
    ($(#[$doc:meta])* $name:ident: Compare, $a:ident, $b:ident => $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Compare for $name {
            #[inline(always)]
            fn eval<V: Lanes>($a: V, $b: V) -> V::Mask { $body }
        }
    };
}
pub(crate) use function;

function!(Copy: Unary, x => x);
function!(Abs: Unary, x => x.abs());
function!(Neg: Unary, x => x.neg());
function!(
    /// NumPy's sign: +0 for either zero, NaN for NaN.
    Sign: Unary, x => {
        let zero = V::splat(0.0);
        let one = V::splat(1.0);
        let nonzero = V::select(zero.lt(x), one, V::select(x.lt(zero), one.neg(), x));
        V::select(x.eq(zero), zero, nonzero)
    }
);
function!(Sqrt: Unary, x => x.sqrt());
function!(Rsqrt: Unary, x => V::splat(1.0).div(x.sqrt()));
function!(Reciprocal: Unary, x => V::splat(1.0).div(x));
function!(Round: Unary, x => x.round());
function!(Floor: Unary, x => x.floor());
function!(Ceil: Unary, x => x.ceil());
function!(Trunc: Unary, x => x.trunc());

function!(IsNan: Predicate, x => x.unordered(x));
function!(IsInf: Predicate, x => x.abs().eq(V::splat(f32::INFINITY)));
function!(IsFinite: Predicate, x => x.abs().lt(V::splat(f32::INFINITY)));

function!(Add: Binary, a, b => a.add(b));
function!(Sub: Binary, a, b => a.sub(b));
function!(Mul: Binary, a, b => a.mul(b));
function!(Div: Binary, a, b => a.div(b));
function!(
    /// IEEE 754-2019 `maximum`: NaN wins, and +0 > -0. So it is associative and commutative bit by bit, and a maximum
    /// does not depend on how it was tiled.
    Max: Binary, a, b => {
        // Both operand orders differ only for zeros of unlike sign (`and` gives +0) and for NaN.
        let m = V::and_bits(a.max_raw(b).bits(), b.max_raw(a).bits());
        V::select(a.unordered(b), V::splat(f32::NAN), V::from_bits(m))
    }
);
function!(
    /// IEEE 754-2019 `minimum`: NaN wins, and -0 < +0.
    Min: Binary, a, b => {
        let m = V::or_bits(a.min_raw(b).bits(), b.min_raw(a).bits());
        V::select(a.unordered(b), V::splat(f32::NAN), V::from_bits(m))
    }
);
function!(
    /// C's `fmod`: exact, sign of the dividend.
    Fmod: Binary, a, b => a.map2(b, libm::fmodf)
);
function!(
    /// NumPy's `remainder`: sign of the divisor.
    Rem: Binary, a, b => a.map2(b, |a, b| div_mod(a, b).1)
);
function!(
    /// NumPy's `floor_divide`.
    FloorDiv: Binary, a, b => a.map2(b, |a, b| div_mod(a, b).0)
);

/// Python's and NumPy's `divmod` of floats.
fn div_mod(a: f32, b: f32) -> (f32, f32) {
    let m = libm::fmodf(a, b);
    if b == 0.0 {
        return (a / b, m);
    }
    // `a - m` is a multiple of `b` up to rounding, so the division is close to an integer.
    let mut d = (a - m) / b;
    let m = if m == 0.0 {
        0f32.copysign(b)
    } else if (b < 0.0) != (m < 0.0) {
        d -= 1.0;
        m + b
    } else {
        m
    };
    let q = if d == 0.0 {
        0f32.copysign(a / b)
    } else {
        let f = d.floor();
        if d - f > 0.5 { f + 1.0 } else { f }
    };
    (q, m)
}

function!(Fma: Ternary, a, b, c => a.fma(b, c));
function!(Clamp: Ternary, a, lo, hi => Min::eval(Max::eval(a, lo), hi));

function!(Eq: Compare, a, b => a.eq(b));
function!(Ne: Compare, a, b => V::not_mask(a.eq(b)));
function!(Lt: Compare, a, b => a.lt(b));
function!(Le: Compare, a, b => a.le(b));
function!(Gt: Compare, a, b => b.lt(a));
function!(Ge: Compare, a, b => b.le(a));
