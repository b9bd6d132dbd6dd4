//! Kernels that move or generate elements: copies, fills, iota, strided views.

use dvm_bc::DType;

use super::{Op1, SpanFn, span1, splat};
use crate::Isa;
use crate::elem::{Elem, with_elem};

struct Same;
impl<T: Copy> Op1<T> for Same {
    type Out = T;
    #[inline(always)]
    fn f(a: T) -> T {
        a
    }
}

/// A span kernel that copies elements of this many bytes.
pub(crate) fn copy(size: u32, isa: Isa) -> SpanFn {
    match size {
        1 => span1::span::<u8, Same>(isa),
        2 => span1::span::<u16, Same>(isa),
        4 => span1::span::<u32, Same>(isa),
        _ => span1::span::<u64, Same>(isa),
    }
}

/// Writes `n` copies of an element given by its bits.
///
/// # Safety
/// `dst` is valid for `n` writes of elements of `size` bytes, aligned.
pub(crate) unsafe fn fill(size: u32, dst: *mut u8, bits: u64, n: usize) {
    // SAFETY: by the caller.
    unsafe {
        match size {
            1 => splat(dst, bits as u8, n),
            2 => splat(dst.cast(), bits as u16, n),
            4 => splat(dst.cast(), bits as u32, n),
            _ => splat(dst.cast(), bits, n),
        }
    }
}

/// `dst[i] = base + i * step`, wrapping.
///
/// # Safety
/// `dst` is valid for `n` writes of `dtype`.
pub(crate) unsafe fn iota(dtype: DType, dst: *mut u8, base: i64, step: i64, n: usize) {
    with_elem!(dtype, T => {
        let d = dst.cast::<T>();
        let mut v = base;
        for i in 0..n {
            // SAFETY: i < n.
            unsafe { d.add(i).write(T::from_i64(v)) };
            v = v.wrapping_add(step);
        }
    }, half => ());
}

/// One strided loop, resolved for a tile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stride {
    /// Iterations.
    pub(crate) count: usize,
    /// Bytes per iteration on the strided side.
    pub(crate) strided: isize,
    /// Bytes per iteration on the dense side.
    pub(crate) dense: isize,
}

/// Which side of a view is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Strided to dense.
    Gather,
    /// Dense to strided.
    Scatter,
}

/// Copies elements between a strided and a dense side, up to four loops, outermost first.
///
/// # Safety
/// Every address the loops reach is valid on both sides, aligned to `size`, and the sides do not overlap.
pub(crate) unsafe fn view(size: u32, dense: *mut u8, strided: *mut u8, loops: &[Stride], dir: Direction) {
    if loops.iter().any(|l| l.count == 0) {
        return;
    }
    // SAFETY: by the caller.
    unsafe {
        match size {
            1 => view_outer::<u8>(dense, strided, loops, dir),
            2 => view_outer::<u16>(dense, strided, loops, dir),
            4 => view_outer::<u32>(dense, strided, loops, dir),
            _ => view_outer::<u64>(dense, strided, loops, dir),
        }
    }
}

unsafe fn view_outer<T: Copy>(dense: *mut u8, strided: *mut u8, loops: &[Stride], dir: Direction) {
    // SAFETY: by the caller of `view`; only in-range iterations form addresses that are used.
    unsafe {
        match loops {
            [] => view_rows::<T>(
                dense,
                strided,
                Stride { count: 1, ..Stride::default() },
                Stride { count: 1, ..Stride::default() },
                dir,
            ),
            [a] => view_rows::<T>(dense, strided, Stride { count: 1, ..Stride::default() }, *a, dir),
            [a, b] => view_rows::<T>(dense, strided, *a, *b, dir),
            [a, rest @ ..] => {
                for i in 0..a.count as isize {
                    view_outer::<T>(
                        dense.wrapping_offset(i * a.dense),
                        strided.wrapping_offset(i * a.strided),
                        rest,
                        dir,
                    );
                }
            }
        }
    }
}

/// The two innermost loops. Rows that are dense on both sides are copied; a transposed pair goes in square blocks so
/// that both sides use whole cache lines.
unsafe fn view_rows<T: Copy>(dense: *mut u8, strided: *mut u8, outer: Stride, inner: Stride, dir: Direction) {
    let size = size_of::<T>() as isize;
    // SAFETY: by the caller of `view`.
    unsafe {
        if inner.strided == size && inner.dense == size {
            for i in 0..outer.count as isize {
                let d = dense.wrapping_offset(i * outer.dense).cast::<T>();
                let s = strided.wrapping_offset(i * outer.strided).cast::<T>();
                match dir {
                    Direction::Gather => std::ptr::copy_nonoverlapping(s.cast_const(), d, inner.count),
                    Direction::Scatter => std::ptr::copy_nonoverlapping(d.cast_const(), s, inner.count),
                }
            }
        } else if inner.strided == 0 && dir == Direction::Gather && inner.dense == size {
            for i in 0..outer.count as isize {
                if inner.count > 0 {
                    let v = *strided.wrapping_offset(i * outer.strided).cast::<T>();
                    splat(dense.wrapping_offset(i * outer.dense).cast::<T>(), v, inner.count);
                }
            }
        } else {
            const BLOCK: usize = 16;
            let mut i0 = 0;
            while i0 < outer.count {
                let i1 = (i0 + BLOCK).min(outer.count);
                let mut j0 = 0;
                while j0 < inner.count {
                    let j1 = (j0 + BLOCK).min(inner.count);
                    for i in i0 as isize..i1 as isize {
                        let d = dense.wrapping_offset(i * outer.dense);
                        let s = strided.wrapping_offset(i * outer.strided);
                        for j in j0 as isize..j1 as isize {
                            let d = d.wrapping_offset(j * inner.dense).cast::<T>();
                            let s = s.wrapping_offset(j * inner.strided).cast::<T>();
                            match dir {
                                Direction::Gather => d.write(*s),
                                Direction::Scatter => s.write(*d),
                            }
                        }
                    }
                    j0 = j1;
                }
                i0 = i1;
            }
        }
    }
}
