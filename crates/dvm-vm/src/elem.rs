//! Element arithmetic, one trait for every dtype: the scalar meaning of each instruction.
//!
//! Semantics are NumPy's and ONNX's: integers wrap, `max` and `min` propagate NaN, float to integer truncates and
//! saturates, shifts by the width or more give 0. f16 and bf16 have no impl: they are widened to f32 around a kernel
//! and rounded once per instruction (see [`crate::kernels::half`]).

/// A native element type.
pub(crate) trait Elem: Copy + PartialEq + PartialOrd + Send + Sync + 'static {
    /// Additive identity.
    const ZERO: Self;
    /// Multiplicative identity.
    const ONE: Self;
    /// Identity of `max`: minus infinity or the least value.
    const LOWEST: Self;
    /// Identity of `min`.
    const HIGHEST: Self;
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// Truncates on integers; 0 where the divisor is 0 (which traps before).
    fn div(self, o: Self) -> Self;
    fn floordiv(self, o: Self) -> Self;
    /// Sign of the divisor.
    fn rem(self, o: Self) -> Self;
    /// Sign of the dividend.
    fn fmod(self, o: Self) -> Self;
    fn pow(self, o: Self) -> Self;
    fn max(self, o: Self) -> Self;
    fn min(self, o: Self) -> Self;
    fn fma(self, m: Self, a: Self) -> Self;
    fn abs(self) -> Self;
    fn neg(self) -> Self;
    fn sign(self) -> Self;
    fn round(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn is_nan(self) -> bool;
    fn is_inf(self) -> bool;
    fn truth(self) -> bool;
    fn from_bits64(bits: u64) -> Self;
    fn from_i64(v: i64) -> Self;
    /// Value for trap messages.
    fn to_i64(self) -> i64;
    /// (`hi`, `lo`) after adding `t` to the state of a compensated sum. Exact types leave `lo` at 0.
    fn two_sum(hi: Self, lo: Self, t: Self) -> (Self, Self);
}

/// Integer-only operations.
pub(crate) trait Bits: Elem {
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    fn shl(self, o: Self) -> Self;
    fn shr(self, o: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! int_elem {
    ($($t:ident $signed:literal),*) => { $(
        impl Elem for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;
            #[inline(always)]
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            #[inline(always)]
            fn sub(self, o: Self) -> Self { self.wrapping_sub(o) }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
            #[inline(always)]
            fn div(self, o: Self) -> Self { if o == 0 { 0 } else { self.wrapping_div(o) } }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn floordiv(self, o: Self) -> Self {
                if o == 0 { return 0; }
                let q = self.wrapping_div(o);
                let r = self.wrapping_rem(o);
                if r != 0 && (r < 0) != (o < 0) { q.wrapping_sub(1) } else { q }
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn rem(self, o: Self) -> Self {
                if o == 0 { return 0; }
                let r = self.wrapping_rem(o);
                if r != 0 && (r < 0) != (o < 0) { r.wrapping_add(o) } else { r }
            }
            #[inline(always)]
            fn fmod(self, o: Self) -> Self { if o == 0 { 0 } else { self.wrapping_rem(o) } }
            #[inline]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn pow(self, o: Self) -> Self {
                if o < 0 {
                    // The rounded-toward-zero reciprocal power.
                    return if self == 1 { 1 }
                        else if $signed && self == (0 as $t).wrapping_sub(1) { if o & 1 == 0 { 1 } else { self } }
                        else { 0 };
                }
                let (mut base, mut e, mut acc) = (self, o, 1 as $t);
                while e > 0 {
                    if e & 1 == 1 { acc = acc.wrapping_mul(base); }
                    base = base.wrapping_mul(base);
                    e >>= 1;
                }
                acc
            }
            #[inline(always)]
            fn max(self, o: Self) -> Self { if self > o { self } else { o } }
            #[inline(always)]
            fn min(self, o: Self) -> Self { if self < o { self } else { o } }
            #[inline(always)]
            fn fma(self, m: Self, a: Self) -> Self { self.wrapping_mul(m).wrapping_add(a) }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn abs(self) -> Self { if self < 0 { (0 as $t).wrapping_sub(self) } else { self } }
            #[inline(always)]
            fn neg(self) -> Self { (0 as $t).wrapping_sub(self) }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn sign(self) -> Self { if self > 0 { 1 } else if self < 0 { (0 as $t).wrapping_sub(1) } else { 0 } }
            #[inline(always)]
            fn round(self) -> Self { self }
            #[inline(always)]
            fn floor(self) -> Self { self }
            #[inline(always)]
            fn ceil(self) -> Self { self }
            #[inline(always)]
            fn trunc(self) -> Self { self }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn is_inf(self) -> bool { false }
            #[inline(always)]
            fn truth(self) -> bool { self != 0 }
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self { bits as $t }
            #[inline(always)]
            fn from_i64(v: i64) -> Self { v as $t }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn two_sum(hi: Self, lo: Self, t: Self) -> (Self, Self) { (hi.wrapping_add(t), lo) }
        }
        impl Bits for $t {
            #[inline(always)]
            fn and(self, o: Self) -> Self { self & o }
            #[inline(always)]
            fn or(self, o: Self) -> Self { self | o }
            #[inline(always)]
            fn xor(self, o: Self) -> Self { self ^ o }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn shl(self, o: Self) -> Self { if o < 0 || o as u64 >= $t::BITS as u64 { 0 } else { self << o } }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for signed and unsigned")]
            fn shr(self, o: Self) -> Self { if o < 0 || o as u64 >= $t::BITS as u64 { 0 } else { self >> o } }
            #[inline(always)]
            fn not(self) -> Self { !self }
        }
    )* };
}
int_elem!(i8 true, u8 false, i16 true, u16 false, i32 true, u32 false, i64 true, u64 false);

macro_rules! float_elem {
    ($($t:ident $bits:ident $pow:expr),*) => { $(
        impl Elem for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $t::NEG_INFINITY;
            const HIGHEST: Self = $t::INFINITY;
            #[inline(always)]
            fn add(self, o: Self) -> Self { self + o }
            #[inline(always)]
            fn sub(self, o: Self) -> Self { self - o }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self * o }
            #[inline(always)]
            fn div(self, o: Self) -> Self { self / o }
            #[inline]
            fn floordiv(self, o: Self) -> Self {
                // NumPy's: exact through fmod, so that 1 // 0.1 is 9.
                let m = self % o;
                if o == 0.0 { return self / o; }
                let mut d = (self - m) / o;
                if m != 0.0 && (o < 0.0) != (m < 0.0) { d -= 1.0; }
                if d == 0.0 { return (0.0 as $t).copysign(self / o); }
                let f = d.floor();
                if d - f > 0.5 { f + 1.0 } else { f }
            }
            #[inline]
            fn rem(self, o: Self) -> Self {
                let m = self % o;
                if m != 0.0 { if (o < 0.0) != (m < 0.0) { m + o } else { m } } else { (0.0 as $t).copysign(o) }
            }
            #[inline]
            fn fmod(self, o: Self) -> Self { self % o }
            #[inline]
            fn pow(self, o: Self) -> Self { if o == 2.0 { self * self } else { $pow(self, o) } }
            #[inline(always)]
            fn max(self, o: Self) -> Self {
                // Equal values differ only as zeros, and +0 counts as the greater.
                if self > o { self } else if o > self { o }
                else if self == o { $t::from_bits(self.to_bits() & o.to_bits()) } else { self + o }
            }
            #[inline(always)]
            fn min(self, o: Self) -> Self {
                if self < o { self } else if o < self { o }
                else if self == o { $t::from_bits(self.to_bits() | o.to_bits()) } else { self + o }
            }
            #[inline(always)]
            fn fma(self, m: Self, a: Self) -> Self { self.mul_add(m, a) }
            #[inline(always)]
            fn abs(self) -> Self { $t::abs(self) }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn sign(self) -> Self {
                // Either zero gives +0.
                if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else if self == 0.0 { 0.0 } else { self }
            }
            #[inline(always)]
            fn round(self) -> Self { self.round_ties_even() }
            #[inline(always)]
            fn floor(self) -> Self { $t::floor(self) }
            #[inline(always)]
            fn ceil(self) -> Self { $t::ceil(self) }
            #[inline(always)]
            fn trunc(self) -> Self { $t::trunc(self) }
            #[inline(always)]
            fn is_nan(self) -> bool { $t::is_nan(self) }
            #[inline(always)]
            fn is_inf(self) -> bool { $t::is_infinite(self) }
            #[inline(always)]
            fn truth(self) -> bool { self != 0.0 }
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self { $t::from_bits(bits as $bits) }
            #[inline(always)]
            fn from_i64(v: i64) -> Self { v as $t }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn two_sum(hi: Self, lo: Self, t: Self) -> (Self, Self) {
                let s = hi + t;
                let bb = s - hi;
                let e = (hi - (s - bb)) + (t - bb);
                // Infinities and NaN live in `hi` alone.
                (s, if e.is_finite() { lo + e } else { lo })
            }
        }
    )* };
}
float_elem!(f32 u32 |a: f32, b: f32| libm::pow(f64::from(a), f64::from(b)) as f32, f64 u64 libm::pow);

/// A boolean byte: any non-zero byte is true, results are 0 or 1. Arithmetic is that of 0 and 1 followed by `!= 0`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Bool8(pub(crate) u8);

impl Bool8 {
    #[inline(always)]
    fn n(self) -> u8 {
        u8::from(self.0 != 0)
    }
}
impl PartialEq for Bool8 {
    #[inline(always)]
    fn eq(&self, o: &Bool8) -> bool {
        self.n() == o.n()
    }
}
impl PartialOrd for Bool8 {
    #[inline(always)]
    fn partial_cmp(&self, o: &Bool8) -> Option<std::cmp::Ordering> {
        self.n().partial_cmp(&o.n())
    }
}
macro_rules! bool_ops {
    ($($name:ident($($arg:ident),*) $body:expr;)*) => { $(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            let f: fn(u8 $(, bool_ops!(@u8 $arg))*) -> u8 = $body;
            Bool8(u8::from(f(self.n() $(, $arg.n())*) != 0))
        }
    )* };
    (@u8 $arg:ident) => { u8 };
}
impl Elem for Bool8 {
    const ZERO: Self = Bool8(0);
    const ONE: Self = Bool8(1);
    const LOWEST: Self = Bool8(0);
    const HIGHEST: Self = Bool8(1);
    bool_ops! {
        add(o) |a, b| a | b;
        sub(o) |a, b| a ^ b;
        mul(o) |a, b| a & b;
        div(o) |a, b| a & b;
        floordiv(o) |a, b| a & b;
        rem(o) |_, _| 0;
        fmod(o) |_, _| 0;
        pow(o) |a, b| a | (1 - b);
        max(o) |a, b| a | b;
        min(o) |a, b| a & b;
        fma(m, o) |a, b, c| (a & b) | c;
        abs() |a| a;
        neg() |a| a;
        sign() |a| a;
        round() |a| a;
        floor() |a| a;
        ceil() |a| a;
        trunc() |a| a;
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn is_inf(self) -> bool {
        false
    }
    #[inline(always)]
    fn truth(self) -> bool {
        self.0 != 0
    }
    #[inline(always)]
    fn from_bits64(bits: u64) -> Self {
        Bool8(u8::from(bits as u8 != 0))
    }
    #[inline(always)]
    fn from_i64(v: i64) -> Self {
        Bool8(u8::from(v != 0))
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        i64::from(self.n())
    }
    #[inline(always)]
    fn two_sum(hi: Self, lo: Self, t: Self) -> (Self, Self) {
        (hi.add(t), lo)
    }
}
impl Bits for Bool8 {
    bool_ops! {
        and(o) |a, b| a & b;
        or(o) |a, b| a | b;
        xor(o) |a, b| a ^ b;
        shl(o) |a, b| a & (1 - b);
        shr(o) |a, b| a & (1 - b);
        not() |a| 1 - a;
    }
}

/// Value conversion between native types; `as` has exactly the wanted meaning.
pub(crate) trait CastTo<U> {
    fn cast(self) -> U;
}
macro_rules! casts {
    ($($a:ident)*) => { $( casts!(@from $a: i8 u8 i16 u16 i32 u32 i64 u64 f32 f64); )* };
    (@from $a:ident: $($b:ident)*) => {
        $( impl CastTo<$b> for $a {
            #[inline(always)]
            #[allow(clippy::unnecessary_cast, reason = "generated for every pair")]
            fn cast(self) -> $b { self as $b }
        } )*
        impl CastTo<Bool8> for $a {
            #[inline(always)]
            fn cast(self) -> Bool8 { Bool8(u8::from(self.truth())) }
        }
        impl CastTo<$a> for Bool8 {
            #[inline(always)]
            fn cast(self) -> $a { self.n() as $a }
        }
    };
}
casts!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);
impl CastTo<Bool8> for Bool8 {
    #[inline(always)]
    fn cast(self) -> Bool8 {
        Bool8(self.n())
    }
}

/// Calls a generic body with the native type of one of the listed dtypes.
macro_rules! with_types {
    ($dtype:expr, $t:ident => $body:expr, [$($variant:ident $native:ty),* $(,)?], else => $other:expr) => {
        match $dtype {
            $(dvm_bc::DType::$variant => {
                type $t = $native;
                $body
            })*
            _ => $other,
        }
    };
}

/// Calls a generic body with the native type of a dtype: `with_elem!(dtype, T => body, half => other)`.
///
/// A kernel table that has f32 elsewhere excludes it: `with_elem!(dtype, T => body, f32 => other, half => other)`.
macro_rules! with_elem {
    ($dtype:expr, $t:ident => $body:expr, f32 => $f32:expr, half => $half:expr) => {
        match $dtype {
            dvm_bc::DType::F32 => $f32,
            other => crate::elem::with_types!(
                other,
                $t => $body,
                [F64 f64, I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, Bool crate::elem::Bool8],
                else => $half
            ),
        }
    };
    ($dtype:expr, $t:ident => $body:expr, half => $half:expr) => {
        crate::elem::with_elem!($dtype, $t => $body, f32 => { type $t = f32; $body }, half => $half)
    };
}
/// Like `with_elem!` for the types that have bit operations.
macro_rules! with_bits {
    ($dtype:expr, $t:ident => $body:expr, else => $other:expr) => {
        crate::elem::with_types!(
            $dtype,
            $t => $body,
            [I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, Bool crate::elem::Bool8],
            else => $other
        )
    };
}
pub(crate) use {with_bits, with_elem, with_types};
