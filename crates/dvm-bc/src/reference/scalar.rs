//! The scalar meaning of elementwise instructions, on values: one function an instruction.

use super::Math;
use super::value::Value::{self, F32, F64, Int};
use crate::{DType, Opcode};

/// What a scalar function may ask for.
pub(super) struct Scalars<'a> {
    pub(super) math: &'a dyn Math,
    pub(super) op: Opcode,
    pub(super) dtype: DType,
}

/// An integer was divided by zero.
pub(super) struct ZeroDivisor;

pub(super) type Unary = fn(&Scalars<'_>, Value) -> Value;
pub(super) type Predicate = fn(Value) -> bool;
pub(super) type Binary = fn(&Scalars<'_>, Value, Value) -> Value;
pub(super) type Divide = fn(Value, Value) -> Result<Value, ZeroDivisor>;
pub(super) type Compare = fn(Value, Value) -> bool;
pub(super) type Ternary = fn(Value, Value, Value) -> Value;

/// A function of one value: on floats, and on integers.
macro_rules! unary {
    ($v:expr, $x:ident => $float:expr, $i:ident => $int:expr) => {
        match $v {
            F32($x) => F32($float),
            F64($x) => F64($float),
            Int($i) => Int($int),
        }
    };
}

/// A function of two values of one kind. Values of different kinds do not meet: both sources have the instruction's dtype.
macro_rules! binary {
    ($v:expr, $w:expr, ($x:ident, $y:ident) => $float:expr, ($i:ident, $j:ident) => $int:expr) => {
        match ($v, $w) {
            (F32($x), F32($y)) => F32($float),
            (F64($x), F64($y)) => F64($float),
            (Int($i), Int($j)) => Int($int),
            (v, _) => v,
        }
    };
}

pub(super) fn abs(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.abs(), i => i.abs())
}

pub(super) fn neg(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => -x, i => -i)
}

/// Either zero gives +0, NaN gives NaN.
pub(super) fn sign(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else if x == 0.0 { 0.0 } else { x }, i => i.signum())
}

pub(super) fn sqrt(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.sqrt(), i => i)
}

pub(super) fn rsqrt(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => 1.0 / x.sqrt(), i => i)
}

pub(super) fn reciprocal(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => 1.0 / x, i => i)
}

pub(super) fn round(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.round_ties_even(), i => i)
}

pub(super) fn floor(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.floor(), i => i)
}

pub(super) fn ceil(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.ceil(), i => i)
}

pub(super) fn trunc(_: &Scalars<'_>, v: Value) -> Value {
    unary!(v, x => x.trunc(), i => i)
}

pub(super) fn not(s: &Scalars<'_>, v: Value) -> Value {
    match v {
        Int(i) if s.dtype == DType::Bool => Int(1 - i),
        Int(i) => Int(!i),
        v => v,
    }
}

/// A function that is an approximation.
pub(super) fn function(s: &Scalars<'_>, v: Value) -> Value {
    match v {
        F32(x) => F32(s.math.f32(s.op, x)),
        F64(x) => F64(s.math.f64(s.op, x)),
        v => v,
    }
}

pub(super) fn is_nan(v: Value) -> bool {
    v.is_nan()
}

pub(super) fn is_inf(v: Value) -> bool {
    match v {
        F32(x) => x.is_infinite(),
        F64(x) => x.is_infinite(),
        Int(_) => false,
    }
}

pub(super) fn is_finite(v: Value) -> bool {
    !is_nan(v) && !is_inf(v)
}

pub(super) fn add(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, y) => x + y, (i, j) => i.wrapping_add(j))
}

pub(super) fn sub(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, y) => x - y, (i, j) => i.wrapping_sub(j))
}

pub(super) fn mul(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, y) => x * y, (i, j) => i.wrapping_mul(j))
}

pub(super) fn max(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    extreme(v, w, true)
}

pub(super) fn min(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    extreme(v, w, false)
}

/// NaN if either is NaN; +0 is above -0.
fn extreme(v: Value, w: Value, largest: bool) -> Value {
    if v.is_nan() {
        return v;
    }
    if w.is_nan() {
        return w;
    }
    let below = match (v, w) {
        (F32(x), F32(y)) => x.total_cmp(&y).is_lt(),
        (F64(x), F64(y)) => x.total_cmp(&y).is_lt(),
        (Int(i), Int(j)) => i < j,
        _ => false,
    };
    if below == largest { w } else { v }
}

pub(super) fn pow(s: &Scalars<'_>, v: Value, w: Value) -> Value {
    match (v, w) {
        (F32(x), F32(y)) => F32(if y == 2.0 { x * x } else { s.math.pow_f32(x, y) }),
        (F64(x), F64(y)) => F64(if y == 2.0 { x * x } else { s.math.pow_f64(x, y) }),
        (Int(base), Int(e)) => Int(int_pow(base, e)),
        (v, _) => v,
    }
}

/// Wraps in the end: products of residues are residues of products. A negative exponent gives the truncated quotient.
fn int_pow(base: i128, e: i128) -> i128 {
    if e < 0 {
        return match base {
            1 => 1,
            -1 if e % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut power, mut square, mut left) = (1i128, base, e);
    while left > 0 {
        if left % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    power
}

pub(super) fn and(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, _y) => x, (i, j) => i & j)
}

pub(super) fn or(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, _y) => x, (i, j) => i | j)
}

pub(super) fn xor(_: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, _y) => x, (i, j) => i ^ j)
}

/// A shift's count, where the result is not 0.
fn shift(s: &Scalars<'_>, by: i128) -> Option<u32> {
    let width = 8 * s.dtype.size();
    u32::try_from(by).ok().filter(|&n| n < width)
}

pub(super) fn shl(s: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, _y) => x, (i, j) => shift(s, j).map_or(0, |n| i << n))
}

pub(super) fn shr(s: &Scalars<'_>, v: Value, w: Value) -> Value {
    binary!(v, w, (x, _y) => x, (i, j) => shift(s, j).map_or(0, |n| i >> n))
}

/// An integer division, which traps on zero.
macro_rules! divide {
    ($v:expr, $w:expr, ($x:ident, $y:ident) => $float:expr, ($i:ident, $j:ident) => $int:expr) => {
        match ($v, $w) {
            (F32($x), F32($y)) => Ok(F32($float)),
            (F64($x), F64($y)) => Ok(F64($float)),
            (Int(_), Int(0)) => Err(ZeroDivisor),
            (Int($i), Int($j)) => Ok(Int($int)),
            (v, _) => Ok(v),
        }
    };
}

pub(super) fn div(v: Value, w: Value) -> Result<Value, ZeroDivisor> {
    divide!(v, w, (x, y) => x / y, (i, j) => i / j)
}

/// As C's `fmod`: exact, sign of the dividend.
pub(super) fn fmod(v: Value, w: Value) -> Result<Value, ZeroDivisor> {
    divide!(v, w, (x, y) => x % y, (i, j) => i % j)
}

/// As NumPy's `mod`: sign of the divisor.
pub(super) fn rem(v: Value, w: Value) -> Result<Value, ZeroDivisor> {
    divide!(v, w, (x, y) => {
        let m = x % y;
        if m == 0.0 { m.abs().copysign(y) } else if (m < 0.0) != (y < 0.0) { m + y } else { m }
    }, (i, j) => {
        let m = i % j;
        if m != 0 && (m < 0) != (j < 0) { m + j } else { m }
    })
}

/// As NumPy's `floor_divide`: through the exact remainder, so that 1 // 0.1 is 9.
pub(super) fn floordiv(v: Value, w: Value) -> Result<Value, ZeroDivisor> {
    divide!(v, w, (x, y) => {
        if y == 0.0 {
            x / y
        } else {
            let m = x % y;
            let quotient = (x - m) / y;
            let quotient = if m != 0.0 && (m < 0.0) != (y < 0.0) { quotient - 1.0 } else { quotient };
            if quotient == 0.0 {
                quotient.abs().copysign(x / y)
            } else {
                let floor = quotient.floor();
                if quotient - floor > 0.5 { floor + 1.0 } else { floor }
            }
        }
    }, (i, j) => i.div_euclid(j) - i128::from(j < 0 && i.rem_euclid(j) != 0))
}

macro_rules! compare {
    ($($name:ident $op:tt;)*) => { $(
        pub(super) fn $name(v: Value, w: Value) -> bool {
            match (v, w) {
                (F32(x), F32(y)) => x $op y,
                (F64(x), F64(y)) => x $op y,
                (Int(i), Int(j)) => i $op j,
                _ => false,
            }
        }
    )* };
}
compare! { eq ==; ne !=; lt <; le <=; gt >; ge >=; }

/// Rounded once.
pub(super) fn fma(a: Value, b: Value, c: Value) -> Value {
    match (a, b, c) {
        (F32(x), F32(y), F32(z)) => F32(x.mul_add(y, z)),
        (F64(x), F64(y), F64(z)) => F64(x.mul_add(y, z)),
        (Int(i), Int(j), Int(k)) => Int(i.wrapping_mul(j).wrapping_add(k)),
        (a, ..) => a,
    }
}

pub(super) fn clamp(a: Value, low: Value, high: Value) -> Value {
    extreme(extreme(a, low, true), high, false)
}
