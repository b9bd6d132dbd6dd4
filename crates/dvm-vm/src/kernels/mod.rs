//! Tile kernels: loops over spans of elements, chosen once at predecode.
//!
//! A *span kernel* computes `n` consecutive elements; every operand is either a run of `n` elements or one element
//! that counts for all (bit i of `steps` says which). Row and column broadcasts, pitches and strips are made of spans
//! by the executor, so no kernel knows about tiles.

pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod half;
pub(crate) mod part;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod shape;
pub(crate) mod sort;
pub(crate) mod ternary;
pub(crate) mod unary;

use crate::math::{
    BinaryFn, CastFn, CompareFn, CompareScalarFn, PredicateFn, ScalarFn, SelectFn, TernaryFn, UnaryFn,
};

/// `dst[i] = f(src0[i], src1[i], src2[i])` for i in 0..n; an operand without its bit in `steps` is one element.
///
/// # Safety
/// `dst` is valid for `n` writes and each used source for `n` (or 1) reads of the kernel's element types, aligned. A source
/// either equals `dst` or does not overlap it.
pub(crate) type SpanFn = unsafe fn(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize);

/// A resolved elementwise kernel.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    /// Any operand may be a single element.
    Span(SpanFn),
    /// f32; a run.
    Unary(UnaryFn),
    /// f32; two runs.
    Binary(BinaryFn),
    /// f32; a run and one element.
    ScalarRight(ScalarFn),
    /// f32; one element and a run.
    ScalarLeft(ScalarFn),
    /// f32; three runs.
    Ternary(TernaryFn),
    /// f32 to bool; a run.
    Predicate(PredicateFn),
    /// f32 to bool; two runs.
    Compare(CompareFn),
    /// f32 to bool; a run and one element.
    CompareRight(CompareScalarFn),
    /// f32 to bool; one element and a run.
    CompareLeft(CompareScalarFn),
    /// A run of one dtype to a run of another.
    Cast(CastFn),
    /// bool and two runs of f32.
    Select(SelectFn),
}

/// Elements that are splatted or widened at a time.
pub(crate) const CHUNK: usize = 256;

/// A stack buffer for [`CHUNK`] elements of up to 8 bytes, aligned for vectors.
#[repr(C, align(64))]
pub(crate) struct Chunk(pub(crate) [std::mem::MaybeUninit<u64>; CHUNK]);

impl Chunk {
    pub(crate) const fn new() -> Chunk {
        Chunk([std::mem::MaybeUninit::uninit(); CHUNK])
    }
    pub(crate) fn ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

impl Kernel {
    /// Runs the kernel over a span.
    ///
    /// # Safety
    /// As for [`SpanFn`]. Kernels that want runs get runs: predecode chooses them only so.
    #[inline]
    pub(crate) unsafe fn run(self, dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) {
        let [a, b, c] = *src;
        // SAFETY: the caller's promise is each kernel's.
        unsafe {
            match self {
                Kernel::Span(f) => f(dst, src, steps, n),
                Kernel::Unary(f) => f(dst.cast(), a.cast(), n),
                Kernel::Binary(f) => f(dst.cast(), a.cast(), b.cast(), n),
                Kernel::ScalarRight(f) => f(dst.cast(), a.cast(), *b.cast::<f32>(), n),
                Kernel::ScalarLeft(f) => f(dst.cast(), b.cast(), *a.cast::<f32>(), n),
                Kernel::Ternary(f) => f(dst.cast(), a.cast(), b.cast(), c.cast(), n),
                Kernel::Predicate(f) => f(dst, a.cast(), n),
                Kernel::Compare(f) => f(dst, a.cast(), b.cast(), n),
                Kernel::CompareRight(f) => f(dst, a.cast(), *b.cast::<f32>(), n),
                Kernel::CompareLeft(f) => f(dst, b.cast(), *a.cast::<f32>(), n),
                Kernel::Cast(f) => f(dst, a, n),
                Kernel::Select(f) => f(dst.cast(), a, b.cast(), c.cast(), n),
            }
        }
    }

    /// Whether the kernel wants every source as a run.
    pub(crate) fn wants_runs(self) -> bool {
        !matches!(
            self,
            Kernel::Span(_)
                | Kernel::ScalarRight(_)
                | Kernel::ScalarLeft(_)
                | Kernel::CompareRight(_)
                | Kernel::CompareLeft(_)
        )
    }

    /// Runs the kernel where sources may be single elements that it wants as runs: they are spread over a buffer.
    ///
    /// # Safety
    /// As for [`SpanFn`]; `sizes` are the bytes per element of the sources and the result.
    pub(crate) unsafe fn run_spread(
        self,
        dst: *mut u8,
        src: &[*const u8; 3],
        steps: u32,
        n: usize,
        sizes: &[u8; 4],
        sources: usize,
    ) {
        let mut bufs = [Chunk::new(), Chunk::new(), Chunk::new()];
        let m = n.min(CHUNK);
        let mut ptrs = *src;
        for (i, buf) in bufs.iter_mut().enumerate().take(sources) {
            if steps >> i & 1 == 0 && m > 0 {
                // SAFETY: the buffer holds CHUNK elements; the source is one element.
                unsafe { spread(sizes[i], buf.ptr(), src[i], m) };
                ptrs[i] = buf.ptr();
            }
        }
        let mut at = 0;
        while at < n {
            let m = (n - at).min(CHUNK);
            let mut p = ptrs;
            for i in 0..sources {
                if steps >> i & 1 != 0 {
                    p[i] = p[i].wrapping_add(at * sizes[i] as usize);
                }
            }
            // SAFETY: runs are valid for n elements and at + m <= n; the buffers hold m elements.
            unsafe { self.run(dst.add(at * sizes[3] as usize), &p, 7, m) };
            at += m;
        }
    }
}

/// `n` copies of the element at `src`.
///
/// # Safety
/// `dst` is valid for `n` writes and `src` for one read of `size` bytes.
unsafe fn spread(size: u8, dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: by the caller.
    unsafe {
        match size {
            1 => splat(dst, *src, n),
            2 => splat(dst.cast(), *src.cast::<u16>(), n),
            4 => splat(dst.cast(), *src.cast::<u32>(), n),
            _ => splat(dst.cast(), *src.cast::<u64>(), n),
        }
    }
}

/// # Safety
/// `dst` is valid for `n` writes.
#[inline]
pub(crate) unsafe fn splat<T: Copy>(dst: *mut T, v: T, n: usize) {
    for i in 0..n {
        // SAFETY: i < n.
        unsafe { dst.add(i).write(v) };
    }
}

/// Defines an operation as a type so that a span loop can be instantiated for it.
macro_rules! define_op {
    ($tr:ident, $bound:path, [$($arg:ident),*], $out:ty, $body:expr) => {{
        struct O;
        impl<T: $bound> $crate::kernels::$tr<T> for O {
            type Out = $out;
            #[inline(always)]
            fn f($($arg: T),*) -> $out { $body }
        }
        O
    }};
}
pub(crate) use define_op;

/// A unary operation.
pub(crate) trait Op1<T> {
    type Out;
    fn f(a: T) -> Self::Out;
}
/// A binary operation.
pub(crate) trait Op2<T> {
    type Out;
    fn f(a: T, b: T) -> Self::Out;
}

/// Instantiates a span loop for an ISA: the same body, compiled with and without wide vectors. Nothing is contracted or
/// reassociated, so the bits are the same.
macro_rules! for_isa {
    ($name:ident<$($g:ident $(: $b:path)?),*>) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn wide<$($g $(: $b)?),*>(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) where $($g: Sized),* {
            // SAFETY: the caller's promise is the body's.
            unsafe { body::<$($g),*>(dst, src, steps, n) }
        }
        unsafe fn plain<$($g $(: $b)?),*>(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) {
            // SAFETY: the caller's promise is the body's.
            unsafe { body::<$($g),*>(dst, src, steps, n) }
        }
        /// The span kernel for this ISA.
        pub(crate) fn $name<$($g $(: $b)?),*>(isa: crate::Isa) -> crate::kernels::SpanFn {
            match isa {
                #[cfg(target_arch = "x86_64")]
                crate::Isa::Avx2Fma => wide::<$($g),*>,
                _ => plain::<$($g),*>,
            }
        }
        /// The span kernel where wide vectors do not pay.
        #[allow(dead_code, reason = "not every operation has such kernels")]
        pub(crate) fn narrow<$($g $(: $b)?),*>() -> crate::kernels::SpanFn {
            plain::<$($g),*>
        }
    };
}
pub(crate) use for_isa;

/// `dst[i] = f(i)` for i in 0..n, where `f` reads the sources at i.
///
/// A block is computed before it is written. So the loop vectorises without asking whether `dst` is one of the sources, and
/// in place, which is frequent, is as fast.
///
/// # Safety
/// `dst` is valid for `n` writes; writing elements up to i does not change what `f` reads after i.
#[inline(always)]
pub(crate) unsafe fn blocks<U: Copy>(dst: *mut U, n: usize, f: impl Fn(usize) -> U) {
    const BLOCK: usize = 32;
    let mut i = 0;
    while i + BLOCK <= n {
        let mut block = [std::mem::MaybeUninit::<U>::uninit(); BLOCK];
        for (k, b) in block.iter_mut().enumerate() {
            b.write(f(i + k));
        }
        // SAFETY: i + BLOCK <= n.
        unsafe { dst.add(i).cast::<[std::mem::MaybeUninit<U>; BLOCK]>().write(block) };
        i += BLOCK;
    }
    while i < n {
        // SAFETY: i < n.
        unsafe { dst.add(i).write(f(i)) };
        i += 1;
    }
}

/// `dst[i] = O(a[i])`.
pub(crate) mod span1 {
    use super::{Op1, blocks};
    #[inline(always)]
    unsafe fn body<T: Copy, O: Op1<T, Out: Copy>>(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) {
        let (d, a) = (dst.cast::<O::Out>(), src[0].cast::<T>());
        // SAFETY: by the contract of SpanFn.
        unsafe {
            if steps & 1 != 0 {
                blocks(d, n, |i| O::f(*a.add(i)));
            } else if n > 0 {
                let v = O::f(*a);
                super::splat(d, v, n);
            }
        }
    }
    for_isa!(span<T: Copy, O: super::Op1<T, Out: Copy>>);
}

/// `dst[i] = O(a[i], b[i])`.
pub(crate) mod span2 {
    use super::{Op2, blocks};
    #[inline(always)]
    unsafe fn body<T: Copy, O: Op2<T, Out: Copy>>(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) {
        let (d, a, b) = (dst.cast::<O::Out>(), src[0].cast::<T>(), src[1].cast::<T>());
        if n == 0 {
            return;
        }
        // SAFETY: by the contract of SpanFn.
        unsafe {
            match steps & 3 {
                3 => blocks(d, n, |i| O::f(*a.add(i), *b.add(i))),
                1 => {
                    let v = *b;
                    blocks(d, n, |i| O::f(*a.add(i), v));
                }
                2 => {
                    let v = *a;
                    blocks(d, n, |i| O::f(v, *b.add(i)));
                }
                _ => {
                    let v = O::f(*a, *b);
                    super::splat(d, v, n);
                }
            }
        }
    }
    for_isa!(span<T: Copy, O: super::Op2<T, Out: Copy>>);
}
