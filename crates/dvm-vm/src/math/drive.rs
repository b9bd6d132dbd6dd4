//! The loops around the functions: contiguous runs of elements, one function pointer per (function, level).
//!
//! `dst` may be the same pointer as a source; other overlaps are not allowed.

use super::lanes::Lanes;

/// An elementwise function of one operand.
pub(crate) trait Unary {
    fn eval<V: Lanes>(x: V) -> V;
}
/// An elementwise function of two operands.
pub(crate) trait Binary {
    fn eval<V: Lanes>(a: V, b: V) -> V;
}
/// An elementwise function of three operands.
pub(crate) trait Ternary {
    fn eval<V: Lanes>(a: V, b: V, c: V) -> V;
}
/// A test of one operand.
pub(crate) trait Predicate {
    fn eval<V: Lanes>(x: V) -> V::Mask;
}
/// A test of two operands.
pub(crate) trait Compare {
    fn eval<V: Lanes>(a: V, b: V) -> V::Mask;
}

/// `dst[i] = op(src[i])` for `i < n`. Both hold `n` elements.
pub(crate) type UnaryFn = unsafe fn(dst: *mut f32, src: *const f32, n: usize);
/// `dst[i] = op(a[i], b[i])` for `i < n`. All hold `n` elements.
pub(crate) type BinaryFn = unsafe fn(dst: *mut f32, a: *const f32, b: *const f32, n: usize);
/// `dst[i] = op(a[i], s)` (or `op(s, a[i])`) for `i < n`. Both hold `n` elements.
pub(crate) type ScalarFn = unsafe fn(dst: *mut f32, a: *const f32, s: f32, n: usize);
/// `dst[i] = op(a[i], b[i], c[i])` for `i < n`. All hold `n` elements.
pub(crate) type TernaryFn = unsafe fn(dst: *mut f32, a: *const f32, b: *const f32, c: *const f32, n: usize);
/// `dst[i] = op(src[i]) as u8` for `i < n`. Both hold `n` elements.
pub(crate) type PredicateFn = unsafe fn(dst: *mut u8, src: *const f32, n: usize);
/// `dst[i] = op(a[i], b[i]) as u8` for `i < n`. All hold `n` elements.
pub(crate) type CompareFn = unsafe fn(dst: *mut u8, a: *const f32, b: *const f32, n: usize);
/// `dst[i] = op(a[i], s) as u8` (or `op(s, a[i])`) for `i < n`. Both hold `n` elements.
pub(crate) type CompareScalarFn = unsafe fn(dst: *mut u8, a: *const f32, s: f32, n: usize);

/// The portable loops: one lane at a time, left to the compiler to vectorise where it can.
pub(crate) mod portable {
    use super::super::{cheap::Mul, pow::Pow};
    use super::{Binary, Compare, Predicate, Ternary, Unary};

    macro_rules! each {
        ($n:ident, $i:ident => $body:expr) => {
            for $i in 0..$n {
                // SAFETY: the caller promises `n` elements behind every pointer, and `i < n`.
                unsafe { $body }
            }
        };
    }

    pub(crate) unsafe fn unary<O: Unary>(dst: *mut f32, src: *const f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*src.add(i)));
    }
    pub(crate) unsafe fn binary<O: Binary>(dst: *mut f32, a: *const f32, b: *const f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*a.add(i), *b.add(i)));
    }
    pub(crate) unsafe fn scalar_right<O: Binary>(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*a.add(i), s));
    }
    /// `scalar_right` of [`Pow`], without its cost for squares.
    pub(crate) unsafe fn power(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { if s == 2.0 { binary::<Mul>(dst, a, a, n) } else { scalar_right::<Pow>(dst, a, s, n) } }
    }
    pub(crate) unsafe fn scalar_left<O: Binary>(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(s, *a.add(i)));
    }
    pub(crate) unsafe fn ternary<O: Ternary>(
        dst: *mut f32,
        a: *const f32,
        b: *const f32,
        c: *const f32,
        n: usize,
    ) {
        each!(n, i => *dst.add(i) = O::eval(*a.add(i), *b.add(i), *c.add(i)));
    }
    pub(crate) unsafe fn predicate<O: Predicate>(dst: *mut u8, src: *const f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*src.add(i)) as u8);
    }
    pub(crate) unsafe fn compare<O: Compare>(dst: *mut u8, a: *const f32, b: *const f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*a.add(i), *b.add(i)) as u8);
    }
    pub(crate) unsafe fn compare_right<O: Compare>(dst: *mut u8, a: *const f32, s: f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(*a.add(i), s) as u8);
    }
    pub(crate) unsafe fn compare_left<O: Compare>(dst: *mut u8, a: *const f32, s: f32, n: usize) {
        each!(n, i => *dst.add(i) = O::eval(s, *a.add(i)) as u8);
    }
}

/// The AVX2 loops: four vectors in lockstep, then one vector at a time, the last one masked. Every lane computes the
/// same function, so body and tail agree bit by bit.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use super::super::avx2::Avx2;
    use super::super::lanes::{Lanes, Quad};
    use super::super::{cheap::Mul, pow::Pow};
    use super::{Binary, Compare, Predicate, Ternary, Unary};

    const N: usize = Avx2::N;

    #[inline(always)]
    unsafe fn load4(p: *const f32) -> Quad<Avx2> {
        // SAFETY: the caller promises 4 * N readable elements and AVX2.
        unsafe {
            Quad([Avx2::load(p), Avx2::load(p.add(N)), Avx2::load(p.add(2 * N)), Avx2::load(p.add(3 * N))])
        }
    }

    #[inline(always)]
    unsafe fn store4(p: *mut f32, v: Quad<Avx2>) {
        // SAFETY: the caller promises 4 * N writable elements and AVX2.
        unsafe {
            v.0[0].store(p);
            v.0[1].store(p.add(N));
            v.0[2].store(p.add(2 * N));
            v.0[3].store(p.add(3 * N));
        }
    }

    /// Runs `$wide` at `$i` while a whole quad is left, then `$narrow` with `$left` elements at a time.
    macro_rules! sweep {
        ($n:ident, $i:ident, $left:ident, $wide:expr, $narrow:expr) => {{
            let mut $i = 0;
            while $i + 4 * N <= $n {
                // SAFETY: the caller promises `n` elements behind every pointer, and i + 4 N <= n.
                unsafe { $wide };
                $i += 4 * N;
            }
            while $i < $n {
                let $left = ($n - $i).min(N);
                // SAFETY: as above, with i + left <= n.
                unsafe { $narrow };
                $i += N;
            }
        }};
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn unary<O: Unary>(dst: *mut f32, src: *const f32, n: usize) {
        sweep!(n, i, left, store4(dst.add(i), O::eval(load4(src.add(i)))), {
            O::eval(Avx2::load_first(src.add(i), left)).store_first(dst.add(i), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn binary<O: Binary>(dst: *mut f32, a: *const f32, b: *const f32, n: usize) {
        sweep!(n, i, left, store4(dst.add(i), O::eval(load4(a.add(i)), load4(b.add(i)))), {
            O::eval(Avx2::load_first(a.add(i), left), Avx2::load_first(b.add(i), left))
                .store_first(dst.add(i), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn scalar_right<O: Binary>(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        sweep!(n, i, left, store4(dst.add(i), O::eval(load4(a.add(i)), Quad::splat(s))), {
            O::eval(Avx2::load_first(a.add(i), left), Avx2::splat(s)).store_first(dst.add(i), left)
        });
    }

    /// `scalar_right` of [`Pow`], without its cost for squares.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn power(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { if s == 2.0 { binary::<Mul>(dst, a, a, n) } else { scalar_right::<Pow>(dst, a, s, n) } }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn scalar_left<O: Binary>(dst: *mut f32, a: *const f32, s: f32, n: usize) {
        sweep!(n, i, left, store4(dst.add(i), O::eval(Quad::splat(s), load4(a.add(i)))), {
            O::eval(Avx2::splat(s), Avx2::load_first(a.add(i), left)).store_first(dst.add(i), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn ternary<O: Ternary>(
        dst: *mut f32,
        a: *const f32,
        b: *const f32,
        c: *const f32,
        n: usize,
    ) {
        sweep!(n, i, left, store4(dst.add(i), O::eval(load4(a.add(i)), load4(b.add(i)), load4(c.add(i)))), {
            let (a, b) = (Avx2::load_first(a.add(i), left), Avx2::load_first(b.add(i), left));
            O::eval(a, b, Avx2::load_first(c.add(i), left)).store_first(dst.add(i), left)
        });
    }

    #[inline(always)]
    unsafe fn store_mask4(dst: *mut u8, m: <Quad<Avx2> as Lanes>::Mask) {
        for (k, m) in m.into_iter().enumerate() {
            // SAFETY: the caller promises 4 * N writable bytes.
            unsafe { dst.add(k * N).cast::<u64>().write_unaligned(Avx2::mask_bytes(m).to_le()) };
        }
    }

    #[inline(always)]
    unsafe fn store_mask(dst: *mut u8, m: <Avx2 as Lanes>::Mask, n: usize) {
        let bytes = Avx2::mask_bytes(m).to_le_bytes();
        // SAFETY: the caller promises `n` <= 8 writable bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, n) };
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn predicate<O: Predicate>(dst: *mut u8, src: *const f32, n: usize) {
        sweep!(n, i, left, store_mask4(dst.add(i), O::eval(load4(src.add(i)))), {
            store_mask(dst.add(i), O::eval(Avx2::load_first(src.add(i), left)), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn compare<O: Compare>(dst: *mut u8, a: *const f32, b: *const f32, n: usize) {
        sweep!(n, i, left, store_mask4(dst.add(i), O::eval(load4(a.add(i)), load4(b.add(i)))), {
            let (a, b) = (Avx2::load_first(a.add(i), left), Avx2::load_first(b.add(i), left));
            store_mask(dst.add(i), O::eval(a, b), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn compare_right<O: Compare>(dst: *mut u8, a: *const f32, s: f32, n: usize) {
        sweep!(n, i, left, store_mask4(dst.add(i), O::eval(load4(a.add(i)), Quad::splat(s))), {
            store_mask(dst.add(i), O::eval(Avx2::load_first(a.add(i), left), Avx2::splat(s)), left)
        });
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn compare_left<O: Compare>(dst: *mut u8, a: *const f32, s: f32, n: usize) {
        sweep!(n, i, left, store_mask4(dst.add(i), O::eval(Quad::splat(s), load4(a.add(i)))), {
            store_mask(dst.add(i), O::eval(Avx2::splat(s), Avx2::load_first(a.add(i), left)), left)
        });
    }
}
