//! Float sums in pieces that may end anywhere.
//!
//! The order of a sum ([`dvm_bc::PartSum`]) knows blocks and lanes by the index in the whole reduced extent. A piece that
//! ends inside a block leaves what its lanes have; the next one goes on from there, so that no size of pieces changes a bit.

use dvm_bc::DType;
use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y, SUM_LANES};

use super::half::widen;
use super::{CHUNK, Chunk};
use crate::Isa;
use crate::elem::{Elem, with_types};

const LANES: usize = SUM_LANES as usize;

/// A piece of a sum resolved for a tile; counts and pitches as in [`super::reduce::Reduction`].
#[derive(Clone, Copy)]
pub(crate) struct PartSum {
    pub(crate) dtype: DType,
    pub(crate) isa: Isa,
    pub(crate) outer: usize,
    pub(crate) red: usize,
    pub(crate) inner: usize,
    pub(crate) outer_pitch: usize,
    pub(crate) inner_pitch: usize,
    /// Elements between the two planes of the state.
    pub(crate) plane: usize,
    pub(crate) fresh: bool,
    pub(crate) across: bool,
    pub(crate) totals: bool,
    /// Index of the tile's first element in the whole extent.
    pub(crate) index: i64,
}

impl PartSum {
    /// # Safety
    /// `dst` (two planes), `lanes` (64 or, across, 1 for each result) and `src` are valid for what the counts and pitches imply,
    /// aligned, and disjoint. State and lanes of halves are f32.
    pub(crate) unsafe fn run(&self, dst: *mut u8, lanes: *mut u8, src: *const u8) {
        let block = if self.across { SUM_BLOCK_Y } else { SUM_BLOCK_X } as usize;
        let start = self.index.rem_euclid(block as i64) as usize;
        // SAFETY: by the caller.
        unsafe {
            with_types!(
                self.dtype,
                T => self.native::<T>((dst.cast(), lanes.cast()), src.cast(), (start, block)),
                [F32 f32, F64 f64],
                else => self.halves((dst.cast(), lanes.cast()), src.cast(), (start, block))
            );
        }
    }

    /// Lanes of a result.
    fn width(&self) -> usize {
        if self.across { 1 } else { LANES }
    }

    unsafe fn native<T: Elem>(&self, (dst, held): (*mut T, *mut T), src: *const T, at: (usize, usize)) {
        for o in 0..self.outer {
            let result = o * self.inner_pitch;
            // SAFETY: o < outer.
            unsafe {
                let state = (dst.add(result), held.add(result * self.width()));
                self.row(state, src.add(o * self.outer_pitch), at);
            }
        }
    }

    /// One `o`: `red` rows of `inner` elements.
    unsafe fn row<T: Elem>(&self, (dst, held): (*mut T, *mut T), src: *const T, at: (usize, usize)) {
        if self.fresh {
            for i in 0..self.inner {
                // SAFETY: i < inner; each result has two planes and its lanes.
                unsafe {
                    dst.add(i).write(T::ZERO);
                    dst.add(i + self.plane).write(T::ZERO);
                    for l in 0..self.width() {
                        held.add(i * self.width() + l).write(T::ZERO);
                    }
                }
            }
        }
        // SAFETY: the same places.
        unsafe {
            if self.totals {
                for r in 0..self.red {
                    self.settle(dst, src.add(r * self.inner_pitch));
                }
            } else if self.across {
                self.across(dst, held, src, at);
            } else {
                for i in 0..self.inner {
                    self.along(dst.add(i), held.add(i * LANES), src.add(i), at);
                }
            }
        }
    }

    /// Adds block totals to the states.
    unsafe fn settle<T: Elem>(&self, dst: *mut T, totals: *const T) {
        for i in 0..self.inner {
            // SAFETY: i < inner.
            unsafe {
                let (hi, lo) = (dst.add(i), dst.add(i + self.plane));
                let (h, l) = T::two_sum(*hi, *lo, *totals.add(i));
                hi.write(h);
                lo.write(l);
            }
        }
    }

    unsafe fn across<T: Elem>(&self, dst: *mut T, held: *mut T, src: *const T, at: (usize, usize)) {
        let (mut index, block) = at;
        for r in 0..self.red {
            // SAFETY: r < red and i < inner.
            unsafe {
                let s = src.add(r * self.inner_pitch);
                for i in 0..self.inner {
                    held.add(i).write((*held.add(i)).add(*s.add(i)));
                }
                index += 1;
                if index == block {
                    self.settle(dst, held);
                    for i in 0..self.inner {
                        held.add(i).write(T::ZERO);
                    }
                    index = 0;
                }
            }
        }
    }

    /// One result: elements `inner_pitch` apart.
    unsafe fn along<T: Elem>(&self, dst: *mut T, held: *mut T, src: *const T, at: (usize, usize)) {
        let (mut index, block) = at;
        let step = self.inner_pitch;
        let mut lanes = [T::ZERO; LANES];
        // SAFETY: a result has 64 lanes.
        unsafe { std::ptr::copy_nonoverlapping(held, lanes.as_mut_ptr(), LANES) };
        let mut r = 0;
        while r < self.red {
            let end = r + (self.red - r).min(block - index);
            // To the next multiple of 64, in rows of 64, the rest.
            while r < end {
                let lane = index % LANES;
                let n = (end - r).min(LANES - lane);
                // SAFETY: r + n <= red.
                unsafe {
                    let s = src.add(r * step);
                    if n == LANES && step == 1 {
                        for (l, v) in lanes.iter_mut().enumerate() {
                            *v = v.add(*s.add(l));
                        }
                    } else {
                        for (l, v) in lanes[lane..lane + n].iter_mut().enumerate() {
                            *v = v.add(*s.add(l * step));
                        }
                    }
                }
                (r, index) = (r + n, index + n);
            }
            if index == block {
                let mut width = LANES / 2;
                while width > 0 {
                    for l in 0..width {
                        lanes[l] = lanes[l].add(lanes[l + width]);
                    }
                    width /= 2;
                }
                // SAFETY: a result has two planes.
                unsafe {
                    let (hi, lo) = (dst, dst.add(self.plane));
                    let (h, l) = T::two_sum(*hi, *lo, lanes[0]);
                    hi.write(h);
                    lo.write(l);
                }
                (index, lanes) = (0, [T::ZERO; LANES]);
            }
        }
        // SAFETY: a result has 64 lanes.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), held, LANES) };
    }

    /// Halves are widened run by run; each run is a piece of its own.
    unsafe fn halves(&self, (dst, held): (*mut f32, *mut f32), src: *const u16, at: (usize, usize)) {
        let widen = widen(self.dtype, self.isa);
        let mut chunk = Chunk::new();
        let wide: *mut f32 = chunk.ptr().cast();
        let width = self.width();
        for o in 0..self.outer {
            // Runs along r where results are single, runs of results elsewhere.
            let lone = self.inner_pitch == 1;
            // Without elements the states still start.
            let (steps, most) = if lone { (1, self.red) } else { (self.red.max(1), self.inner) };
            for r in 0..steps {
                let mut c = 0;
                while c < most || (c == 0 && most == 0) {
                    let n = (most - c).min(CHUNK);
                    let (red, inner, seen) = if lone { (n, 1, c) } else { (self.red.min(1), n, r) };
                    let fresh = self.fresh && seen == 0;
                    let piece = PartSum { red, inner, fresh, ..*self };
                    let result = o * self.inner_pitch + if lone { 0 } else { c };
                    // SAFETY: r, c + n and o are inside the counts; a chunk holds n values.
                    unsafe {
                        let from = o * self.outer_pitch + if lone { c } else { r * self.inner_pitch + c };
                        if red > 0 {
                            widen(wide.cast(), src.add(from).cast(), n);
                        }
                        let state = (dst.add(result), held.add(result * width));
                        piece.row(state, wide, ((at.0 + seen) % at.1, at.1));
                    }
                    c += n.max(1);
                }
            }
        }
    }
}
