//! The product for any element type and panel width, in plain Rust.

use half::{bf16, f16};

use super::Mmad;

/// An element of a left operand multiplied by one of a right operand.
pub(super) trait MulAdd<B>: Copy {
    /// Accumulator.
    type Acc: Copy;
    const ZERO: Self::Acc;
    fn mul_add(self, b: B, acc: Self::Acc) -> Self::Acc;
}

macro_rules! floats {
    ($($a:ty, $b:ty, $widen:expr;)*) => { $(
        impl MulAdd<$b> for $a {
            type Acc = $a;
            const ZERO: $a = 0.0;
            #[inline(always)]
            fn mul_add(self, b: $b, acc: $a) -> $a { <$a>::mul_add(self, $widen(b), acc) }
        }
    )* };
}
floats! {
    f32, f32, |b| b;
    f32, f16, f16::to_f32;
    f32, bf16, |b: bf16| f32::from_bits(u32::from(b.to_bits()) << 16);
    f64, f64, |b| b;
}

macro_rules! integers {
    ($($t:ty => $acc:ty;)*) => { $(
        impl MulAdd<$t> for $t {
            type Acc = $acc;
            const ZERO: $acc = 0;
            #[inline(always)]
            fn mul_add(self, b: $t, acc: $acc) -> $acc {
                acc.wrapping_add((self as $acc).wrapping_mul(b as $acc))
            }
        }
    )* };
}
integers! { i8 => i32; u8 => i32; i16 => i32; u16 => i32; i32 => i32; i64 => i64; }

/// Columns computed together.
const COLS: usize = 16;
/// Rows computed together.
const ROWS: usize = 4;

/// See [`Mmad`].
pub(super) unsafe fn mmad<A: MulAdd<B>, B: Copy>(p: &Mmad) {
    // SAFETY: the caller's promise.
    unsafe { blocks::<A, B>(p) }
}

/// Walks blocks that lie in one panel of either operand.
#[inline(always)]
pub(super) unsafe fn blocks<A: MulAdd<B>, B: Copy>(p: &Mmad) {
    let mut j = 0;
    while j < p.n {
        let in_panel = j % p.right.width;
        let cols = COLS.min(p.right.width - in_panel).min(p.n - j);
        // SAFETY: column j is in a panel that exists.
        let b = unsafe { p.right.ptr.cast::<B>().add(j / p.right.width * p.right.panel_stride + in_panel) };
        let mut i = 0;
        while i < p.m {
            let in_panel = i % p.left.width;
            let rows = ROWS.min(p.left.width - in_panel).min(p.m - i);
            let at =
                (i / p.left.width) as isize * p.left.panel_stride + in_panel as isize * p.left.line_stride;
            // SAFETY: row i of the left operand, element (i, j) of the accumulator; `rows` and `cols` stay inside.
            unsafe {
                let a = p.left.ptr.cast::<A>().offset(at);
                let acc = p.acc.cast::<A::Acc>().add(i * p.pitch + j);
                if rows == ROWS && cols == COLS {
                    block::<A, B>(p, acc, a, b, ROWS, COLS);
                } else {
                    block::<A, B>(p, acc, a, b, rows, cols);
                }
            }
            i += rows;
        }
        j += cols;
    }
}

#[inline(always)]
unsafe fn block<A: MulAdd<B>, B: Copy>(
    p: &Mmad,
    acc: *mut A::Acc,
    a: *const A,
    b: *const B,
    rows: usize,
    cols: usize,
) {
    let mut c = [[A::ZERO; COLS]; ROWS];
    if p.accumulate {
        for (i, c) in c.iter_mut().enumerate().take(rows) {
            for (j, c) in c.iter_mut().enumerate().take(cols) {
                // SAFETY: i < rows, j < cols.
                *c = unsafe { *acc.add(i * p.pitch + j) };
            }
        }
    }
    for kk in 0..p.k {
        for (i, c) in c.iter_mut().enumerate().take(rows) {
            // SAFETY: i < rows, kk < k.
            let x = unsafe { *a.offset(i as isize * p.left.line_stride + kk as isize * p.left.k_stride) };
            for (j, c) in c.iter_mut().enumerate().take(cols) {
                // SAFETY: kk < k, j < cols.
                *c = x.mul_add(unsafe { *b.add(kk * p.right.width + j) }, *c);
            }
        }
    }
    for (i, c) in c.iter().enumerate().take(rows) {
        for (j, c) in c.iter().enumerate().take(cols) {
            // SAFETY: i < rows, j < cols.
            unsafe { *acc.add(i * p.pitch + j) = *c };
        }
    }
}
