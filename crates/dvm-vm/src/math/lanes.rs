//! The vector interface every kernel is written against, once.
//!
//! A kernel generic over [`Lanes`] computes the same bits with one lane (`f32`, the portable level and the scalar
//! reference), eight (AVX2) or thirty-two ([`Quad`], four vectors in lockstep, which hides latency): an operation
//! here is either exact, correctly rounded, or defined bit by bit. NaN payloads are the one exception; they are
//! nowhere part of a value.

/// One or more f32 lanes, with the 32-bit integer view of each.
///
/// Methods are safe because a wide implementor's values exist only inside kernels whose `#[target_feature]` provides
/// its instructions; everything is `#[inline(always)]` so that those kernels are what gets compiled.
pub(crate) trait Lanes: Copy {
    /// Per-lane truth.
    type Mask: Copy;
    /// The lanes' bits as `i32`.
    type Bits: Copy;

    fn splat(x: f32) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `c - self * b`, rounded once.
    fn fnma(self, b: Self, c: Self) -> Self;
    fn sqrt(self) -> Self;
    /// `self > b ? self : b`, so `b` where either is NaN.
    fn max_raw(self, b: Self) -> Self;
    /// `self < b ? self : b`, so `b` where either is NaN.
    fn min_raw(self, b: Self) -> Self;
    /// To an integer, ties to even.
    fn round(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;

    fn lt(self, b: Self) -> Self::Mask;
    fn le(self, b: Self) -> Self::Mask;
    /// Ordered equality.
    fn eq(self, b: Self) -> Self::Mask;
    /// Where either is NaN.
    fn unordered(self, b: Self) -> Self::Mask;
    fn and_mask(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn or_mask(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn not_mask(a: Self::Mask) -> Self::Mask;
    /// `m ? a : b`.
    fn select(m: Self::Mask, a: Self, b: Self) -> Self;
    /// Whether some lane is set.
    fn any(m: Self::Mask) -> bool;
    /// Whether a slow path that is right for every lane is worth skipping: false only if no lane is set. The portable
    /// level always takes such a path, which keeps its loops free of branches.
    fn worth_checking(m: Self::Mask) -> bool;

    fn bits(self) -> Self::Bits;
    fn from_bits(b: Self::Bits) -> Self;
    fn splat_bits(b: i32) -> Self::Bits;
    fn add_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    fn sub_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    fn and_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    fn or_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    fn xor_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    fn shl_bits<const K: i32>(a: Self::Bits) -> Self::Bits;
    /// Arithmetic shift right.
    fn sra_bits<const K: i32>(a: Self::Bits) -> Self::Bits;
    /// Exact where the integer has at most 24 bits.
    fn bits_to_float(a: Self::Bits) -> Self;
    /// A lane that is not zero.
    fn bits_nonzero(a: Self::Bits) -> Self::Mask;

    /// Applies `f` to each lane: for functions too rare to vectorise, and for rare arguments.
    fn map(self, f: fn(f32) -> f32) -> Self;
    /// Applies `f` to each pair of lanes.
    fn map2(self, b: Self, f: fn(f32, f32) -> f32) -> Self;

    #[inline(always)]
    fn abs(self) -> Self {
        Self::from_bits(Self::and_bits(self.bits(), Self::splat_bits(i32::MAX)))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Self::from_bits(Self::xor_bits(self.bits(), Self::splat_bits(i32::MIN)))
    }
    /// The magnitude of `self` with the sign of `sign`.
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        let s = Self::and_bits(sign.bits(), Self::splat_bits(i32::MIN));
        Self::from_bits(Self::or_bits(self.abs().bits(), s))
    }
    /// `self * b + c` with constants.
    #[inline(always)]
    fn fma_c(self, b: f32, c: f32) -> Self {
        self.fma(Self::splat(b), Self::splat(c))
    }
    /// One Horner step: `self * x + c`.
    #[inline(always)]
    fn horner(self, x: Self, c: f32) -> Self {
        self.fma(x, Self::splat(c))
    }
}

impl Lanes for f32 {
    type Mask = bool;
    type Bits = i32;

    #[inline(always)]
    fn splat(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn add(self, b: f32) -> f32 {
        self + b
    }
    #[inline(always)]
    fn sub(self, b: f32) -> f32 {
        self - b
    }
    #[inline(always)]
    fn mul(self, b: f32) -> f32 {
        self * b
    }
    #[inline(always)]
    fn div(self, b: f32) -> f32 {
        self / b
    }
    #[inline(always)]
    fn fma(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn fnma(self, b: f32, c: f32) -> f32 {
        (-self).mul_add(b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn max_raw(self, b: f32) -> f32 {
        if self > b { self } else { b }
    }
    #[inline(always)]
    fn min_raw(self, b: f32) -> f32 {
        if self < b { self } else { b }
    }
    #[inline(always)]
    fn round(self) -> f32 {
        self.round_ties_even()
    }
    #[inline(always)]
    fn floor(self) -> f32 {
        f32::floor(self)
    }
    #[inline(always)]
    fn ceil(self) -> f32 {
        f32::ceil(self)
    }
    #[inline(always)]
    fn trunc(self) -> f32 {
        f32::trunc(self)
    }
    #[inline(always)]
    fn lt(self, b: f32) -> bool {
        self < b
    }
    #[inline(always)]
    fn le(self, b: f32) -> bool {
        self <= b
    }
    #[inline(always)]
    fn eq(self, b: f32) -> bool {
        self == b
    }
    #[inline(always)]
    fn unordered(self, b: f32) -> bool {
        self.is_nan() || b.is_nan()
    }
    #[inline(always)]
    fn and_mask(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn or_mask(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn not_mask(a: bool) -> bool {
        !a
    }
    #[inline(always)]
    fn select(m: bool, a: f32, b: f32) -> f32 {
        if m { a } else { b }
    }
    #[inline(always)]
    fn any(m: bool) -> bool {
        m
    }
    #[inline(always)]
    fn worth_checking(_: bool) -> bool {
        true
    }
    #[inline(always)]
    fn bits(self) -> i32 {
        self.to_bits() as i32
    }
    #[inline(always)]
    fn from_bits(b: i32) -> f32 {
        f32::from_bits(b as u32)
    }
    #[inline(always)]
    fn splat_bits(b: i32) -> i32 {
        b
    }
    #[inline(always)]
    fn add_bits(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub_bits(a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn and_bits(a: i32, b: i32) -> i32 {
        a & b
    }
    #[inline(always)]
    fn or_bits(a: i32, b: i32) -> i32 {
        a | b
    }
    #[inline(always)]
    fn xor_bits(a: i32, b: i32) -> i32 {
        a ^ b
    }
    #[inline(always)]
    fn shl_bits<const K: i32>(a: i32) -> i32 {
        a << K
    }
    #[inline(always)]
    fn sra_bits<const K: i32>(a: i32) -> i32 {
        a >> K
    }
    #[inline(always)]
    fn bits_to_float(a: i32) -> f32 {
        a as f32
    }
    #[inline(always)]
    fn bits_nonzero(a: i32) -> bool {
        a != 0
    }
    #[inline(always)]
    fn map(self, f: fn(f32) -> f32) -> f32 {
        f(self)
    }
    #[inline(always)]
    fn map2(self, b: f32, f: fn(f32, f32) -> f32) -> f32 {
        f(self, b)
    }
}

/// Four vectors in lockstep: every operation is issued four times, so that four dependency chains overlap.
#[derive(Clone, Copy)]
pub(crate) struct Quad<V>(pub(crate) [V; 4]);

macro_rules! quad {
    ($($name:ident($($arg:ident),*) -> $ret:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> quad!(@ty $ret) {
            quad!(@wrap $ret [
                V::$name(self.0[0], $($arg.0[0]),*),
                V::$name(self.0[1], $($arg.0[1]),*),
                V::$name(self.0[2], $($arg.0[2]),*),
                V::$name(self.0[3], $($arg.0[3]),*),
            ])
        }
    )* };
    (@ty lanes) => { Self };
    (@ty mask) => { [V::Mask; 4] };
    (@wrap lanes $e:expr) => { Quad($e) };
    (@wrap mask $e:expr) => { $e };
}

impl<V: Lanes> Lanes for Quad<V> {
    type Mask = [V::Mask; 4];
    type Bits = [V::Bits; 4];

    quad! {
        add(b) -> lanes; sub(b) -> lanes; mul(b) -> lanes; div(b) -> lanes;
        fma(b, c) -> lanes; fnma(b, c) -> lanes; sqrt() -> lanes;
        max_raw(b) -> lanes; min_raw(b) -> lanes;
        round() -> lanes; floor() -> lanes; ceil() -> lanes; trunc() -> lanes;
        lt(b) -> mask; le(b) -> mask; eq(b) -> mask; unordered(b) -> mask;
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Quad([V::splat(x); 4])
    }
    #[inline(always)]
    fn and_mask(a: Self::Mask, b: Self::Mask) -> Self::Mask {
        zip(a, b, V::and_mask)
    }
    #[inline(always)]
    fn or_mask(a: Self::Mask, b: Self::Mask) -> Self::Mask {
        zip(a, b, V::or_mask)
    }
    #[inline(always)]
    fn not_mask(a: Self::Mask) -> Self::Mask {
        [V::not_mask(a[0]), V::not_mask(a[1]), V::not_mask(a[2]), V::not_mask(a[3])]
    }
    #[inline(always)]
    fn select(m: Self::Mask, a: Self, b: Self) -> Self {
        Quad([
            V::select(m[0], a.0[0], b.0[0]),
            V::select(m[1], a.0[1], b.0[1]),
            V::select(m[2], a.0[2], b.0[2]),
            V::select(m[3], a.0[3], b.0[3]),
        ])
    }
    #[inline(always)]
    fn any(m: Self::Mask) -> bool {
        V::any(V::or_mask(V::or_mask(m[0], m[1]), V::or_mask(m[2], m[3])))
    }
    #[inline(always)]
    fn worth_checking(m: Self::Mask) -> bool {
        V::worth_checking(V::or_mask(V::or_mask(m[0], m[1]), V::or_mask(m[2], m[3])))
    }
    #[inline(always)]
    fn bits(self) -> Self::Bits {
        [self.0[0].bits(), self.0[1].bits(), self.0[2].bits(), self.0[3].bits()]
    }
    #[inline(always)]
    fn from_bits(b: Self::Bits) -> Self {
        Quad([V::from_bits(b[0]), V::from_bits(b[1]), V::from_bits(b[2]), V::from_bits(b[3])])
    }
    #[inline(always)]
    fn splat_bits(b: i32) -> Self::Bits {
        [V::splat_bits(b); 4]
    }
    #[inline(always)]
    fn add_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        zip(a, b, V::add_bits)
    }
    #[inline(always)]
    fn sub_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        zip(a, b, V::sub_bits)
    }
    #[inline(always)]
    fn and_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        zip(a, b, V::and_bits)
    }
    #[inline(always)]
    fn or_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        zip(a, b, V::or_bits)
    }
    #[inline(always)]
    fn xor_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        zip(a, b, V::xor_bits)
    }
    #[inline(always)]
    fn shl_bits<const K: i32>(a: Self::Bits) -> Self::Bits {
        [V::shl_bits::<K>(a[0]), V::shl_bits::<K>(a[1]), V::shl_bits::<K>(a[2]), V::shl_bits::<K>(a[3])]
    }
    #[inline(always)]
    fn sra_bits<const K: i32>(a: Self::Bits) -> Self::Bits {
        [V::sra_bits::<K>(a[0]), V::sra_bits::<K>(a[1]), V::sra_bits::<K>(a[2]), V::sra_bits::<K>(a[3])]
    }
    #[inline(always)]
    fn bits_to_float(a: Self::Bits) -> Self {
        Quad([V::bits_to_float(a[0]), V::bits_to_float(a[1]), V::bits_to_float(a[2]), V::bits_to_float(a[3])])
    }
    #[inline(always)]
    fn bits_nonzero(a: Self::Bits) -> Self::Mask {
        [V::bits_nonzero(a[0]), V::bits_nonzero(a[1]), V::bits_nonzero(a[2]), V::bits_nonzero(a[3])]
    }
    #[inline(always)]
    fn map(self, f: fn(f32) -> f32) -> Self {
        Quad([self.0[0].map(f), self.0[1].map(f), self.0[2].map(f), self.0[3].map(f)])
    }
    #[inline(always)]
    fn map2(self, b: Self, f: fn(f32, f32) -> f32) -> Self {
        Quad([
            self.0[0].map2(b.0[0], f),
            self.0[1].map2(b.0[1], f),
            self.0[2].map2(b.0[2], f),
            self.0[3].map2(b.0[3], f),
        ])
    }
}

#[inline(always)]
fn zip<T: Copy>(a: [T; 4], b: [T; 4], f: impl Fn(T, T) -> T) -> [T; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}
