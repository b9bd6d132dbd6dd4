//! Reductions.
//!
//! The order of a float sum is part of the instruction set ([`dvm_bc::Reduce`]), so that no tiling, no SIMD level and no
//! number of cores changes a bit. Other reductions are order-free or sequential.

use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y};
use dvm_bc::{DType, Opcode};

use super::half::{narrow, widen};
use super::{CHUNK, Chunk};
use crate::Isa;
use crate::elem::{Elem, with_elem};

/// What is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Sum,
    Max,
    Min,
    Prod,
    Any,
    All,
}

impl What {
    pub(crate) fn of(op: Opcode) -> What {
        match op {
            Opcode::VSum => What::Sum,
            Opcode::VRedMax => What::Max,
            Opcode::VRedMin => What::Min,
            Opcode::VProd => What::Prod,
            Opcode::VAny => What::Any,
            _ => What::All,
        }
    }
}

/// A reduction resolved for a tile. All counts are actual; pitches are in elements and come from the bodies.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) what: What,
    pub(crate) dtype: DType,
    pub(crate) isa: Isa,
    pub(crate) outer: usize,
    pub(crate) red: usize,
    pub(crate) inner: usize,
    /// Elements between consecutive `o` in the source.
    pub(crate) outer_pitch: usize,
    /// `inner.body`: elements between consecutive r in the source and consecutive o in the result.
    pub(crate) inner_pitch: usize,
    /// Elements between the two planes of a sum's state; 0 where the result is plain.
    pub(crate) plane: usize,
    /// Start from the neutral value.
    pub(crate) fresh: bool,
}

/// Most columns handled at a time across rows.
const COLS: usize = CHUNK;

impl Reduction {
    /// # Safety
    /// `src` and `dst` are valid for the reads and writes the counts and pitches imply, aligned, and do not overlap.
    pub(crate) unsafe fn run(&self, dst: *mut u8, src: *const u8) {
        // SAFETY: by the caller.
        unsafe {
            with_elem!(self.dtype, T => self.native::<T>(dst.cast(), src.cast()), half => self.halves(dst, src));
        }
    }

    unsafe fn native<T: Elem>(&self, dst: *mut T, src: *const T) {
        let read = |buf: *mut T, p: *const T, n: usize| {
            // SAFETY: p is valid for n reads and buf for n writes.
            unsafe { std::ptr::copy_nonoverlapping(p, buf, n) }
        };
        for o in 0..self.outer {
            // SAFETY: o < outer; the loops below stay inside the counts.
            unsafe {
                let s = src.add(o * self.outer_pitch);
                let d = dst.add(o * self.inner_pitch);
                if self.inner_pitch == 1 {
                    let (hi, lo) = match self.what {
                        What::Sum => self.sum_x(self.state(d), s),
                        _ => (self.fold_x(if self.fresh { self.neutral() } else { *d }, s), T::ZERO),
                    };
                    self.put(d, hi, lo);
                } else {
                    let mut c = 0;
                    while c < self.inner {
                        let n = (self.inner - c).min(COLS);
                        self.columns::<T, T>(d.add(c), s.add(c), n, read);
                        c += n;
                    }
                }
            }
        }
    }

    /// Halves are reduced in f32; only a plain result is rounded to the dtype.
    unsafe fn halves(&self, dst: *mut u8, src: *const u8) {
        let wide = Reduction { dtype: DType::F32, ..*self };
        let (widen, narrow) = (widen(self.dtype, self.isa), narrow(self.dtype, self.isa));
        let read = |buf: *mut f32, p: *const u16, n: usize| {
            // SAFETY: p is valid for n halves and buf for n f32.
            unsafe { widen(buf.cast(), p.cast(), n) }
        };
        // A sum's state planes are f32; every other result is of the dtype.
        let state = self.plane != 0 && self.what == What::Sum;
        let mut acc = Chunk::new();
        let acc: *mut f32 = acc.ptr().cast();
        let mut block = [0.0f32; SUM_BLOCK_X as usize];
        for o in 0..self.outer {
            // SAFETY: o < outer; columns stay inside the counts; acc holds CHUNK values.
            unsafe {
                let s = src.cast::<u16>().add(o * self.outer_pitch);
                if self.inner_pitch == 1 {
                    let d32 = dst.cast::<f32>().add(o);
                    let d16 = dst.add(o * 2);
                    if !state && !self.fresh {
                        widen(acc.cast(), d16, 1);
                    }
                    let at = if state { d32 } else { acc };
                    // Blocks are widened whole, so the order is that of the f32 reduction.
                    let mut fresh = self.fresh;
                    let mut r = 0;
                    loop {
                        let n = (self.red - r).min(block.len());
                        widen(block.as_mut_ptr().cast(), s.add(r).cast(), n);
                        let piece = Reduction { red: n, fresh, ..wide };
                        // A plain sum of several blocks needs its low part kept between them.
                        if self.what == What::Sum && !state {
                            let before = if fresh { (0.0, 0.0) } else { (*at, *at.add(1)) };
                            let (hi, lo) = piece.sum_x(before, block.as_ptr());
                            at.write(hi);
                            at.add(1).write(lo);
                        } else if self.what == What::Sum {
                            let (hi, lo) = piece.sum_x(piece.state(at), block.as_ptr());
                            piece.put(at, hi, lo);
                        } else {
                            let from = if fresh { piece.neutral() } else { *at };
                            at.write(piece.fold_x(from, block.as_ptr()));
                        }
                        fresh = false;
                        r += n;
                        if r >= self.red {
                            break;
                        }
                    }
                    if !state {
                        let v = if self.what == What::Sum { *acc + *acc.add(1) } else { *acc };
                        acc.write(v);
                        narrow(d16, acc.cast(), 1);
                    }
                } else {
                    let mut c = 0;
                    while c < self.inner {
                        let n = (self.inner - c).min(COLS);
                        let at = o * self.inner_pitch + c;
                        if state {
                            wide.columns::<f32, u16>(dst.cast::<f32>().add(at), s.add(c), n, read);
                        } else {
                            let d = dst.cast::<u16>().add(at).cast::<u8>();
                            if !self.fresh {
                                widen(acc.cast(), d, n);
                            }
                            wide.columns::<f32, u16>(acc, s.add(c), n, read);
                            narrow(d, acc.cast(), n);
                        }
                        c += n;
                    }
                }
            }
        }
    }

    /// The state at `d`, or the neutral one.
    unsafe fn state<T: Elem>(&self, d: *const T) -> (T, T) {
        if self.fresh || self.plane == 0 {
            (T::ZERO, T::ZERO)
        } else {
            // SAFETY: a state has two planes.
            unsafe { (*d, *d.add(self.plane)) }
        }
    }

    unsafe fn put<T: Elem>(&self, d: *mut T, hi: T, lo: T) {
        // SAFETY: a state has two planes, a plain result one.
        unsafe {
            if self.what != What::Sum {
                d.write(hi);
            } else if self.plane == 0 {
                d.write(hi.add(lo));
            } else {
                d.write(hi);
                d.add(self.plane).write(lo);
            }
        }
    }

    fn neutral<T: Elem>(&self) -> T {
        match self.what {
            What::Sum | What::Any => T::ZERO,
            What::Max => T::LOWEST,
            What::Min => T::HIGHEST,
            What::Prod | What::All => T::ONE,
        }
    }

    #[inline(always)]
    fn step<T: Elem>(what: What, a: T, v: T) -> T {
        match what {
            What::Sum => a.add(v),
            What::Max => a.max(v),
            What::Min => a.min(v),
            What::Prod => a.mul(v),
            What::Any => {
                if a.truth() || v.truth() {
                    T::ONE
                } else {
                    T::ZERO
                }
            }
            What::All => {
                if a.truth() && v.truth() {
                    T::ONE
                } else {
                    T::ZERO
                }
            }
        }
    }

    /// Adds a contiguous row to a compensated sum.
    unsafe fn sum_x<T: Elem>(&self, (mut hi, mut lo): (T, T), s: *const T) -> (T, T) {
        let block = SUM_BLOCK_X as usize;
        let mut r = 0;
        while r < self.red {
            let n = (self.red - r).min(block);
            // SAFETY: r + n <= red. T is f32 where the dtype is.
            let t = unsafe {
                if self.dtype == DType::F32 {
                    let f = crate::math::sum_x_f32(self.isa);
                    T::from_bits64(u64::from(f(s.add(r).cast(), n).to_bits()))
                } else {
                    lanes(s.add(r), n)
                }
            };
            (hi, lo) = T::two_sum(hi, lo, t);
            r += n;
        }
        (hi, lo)
    }

    /// Folds a contiguous row into `acc`.
    unsafe fn fold_x<T: Elem>(&self, mut acc: T, s: *const T) -> T {
        if self.dtype == DType::F32 && matches!(self.what, What::Max | What::Min) {
            let f = if self.what == What::Max {
                crate::math::max_x_f32(self.isa)
            } else {
                crate::math::min_x_f32(self.isa)
            };
            let block = SUM_BLOCK_X as usize;
            let mut r = 0;
            while r < self.red {
                let n = (self.red - r).min(block);
                // SAFETY: r + n <= red and T is f32.
                let v = unsafe { T::from_bits64(u64::from(f(s.add(r).cast(), n).to_bits())) };
                acc = Self::step(self.what, acc, v);
                r += n;
            }
            return acc;
        }
        // One loop per operation, so that each can be vectorised.
        macro_rules! each {
            ($($w:ident),*) => {
                match self.what { $(What::$w => {
                    for r in 0..self.red {
                        // SAFETY: r < red.
                        acc = Self::step(What::$w, acc, unsafe { *s.add(r) });
                    }
                })* }
            };
        }
        each!(Sum, Max, Min, Prod, Any, All);
        acc
    }

    /// Reduces `n` columns across rows. `src` elements are `S`, read as `T` by `read` where the types differ.
    unsafe fn columns<T: Elem, S>(
        &self,
        d: *mut T,
        s: *const S,
        n: usize,
        read: impl Fn(*mut T, *const S, usize),
    ) {
        let mut bufs = [Chunk::new(), Chunk::new(), Chunk::new(), Chunk::new()];
        let [b_row, b_acc, b_hi, b_lo] = &mut bufs;
        let (row, acc): (*mut T, *mut T) = (b_row.ptr().cast(), b_acc.ptr().cast());
        let (hi, lo): (*mut T, *mut T) = (b_hi.ptr().cast(), b_lo.ptr().cast());
        let native = size_of::<S>() == size_of::<T>();
        let block = if self.what == What::Sum { SUM_BLOCK_Y as usize } else { usize::MAX };
        // SAFETY: n <= CHUNK elements fit the buffers; r < red, and columns stay inside the caller's counts.
        unsafe {
            for c in 0..n {
                let (h, l) = match self.what {
                    What::Sum => self.state(d.add(c)),
                    _ => (if self.fresh { self.neutral() } else { *d.add(c) }, T::ZERO),
                };
                hi.add(c).write(h);
                lo.add(c).write(l);
            }
            let mut r = 0;
            while r < self.red {
                let end = r + (self.red - r).min(block);
                if self.what == What::Sum && self.dtype == DType::F32 && native {
                    // T is f32.
                    let p = s.add(r * self.inner_pitch).cast();
                    crate::math::sum_y_f32(self.isa)(acc.cast(), p, end - r, n, self.inner_pitch);
                    crate::math::two_sum_f32(self.isa)(hi.cast(), lo.cast(), acc.cast(), n);
                    r = end;
                    continue;
                }
                let into = if self.what == What::Sum { acc } else { hi };
                if self.what == What::Sum {
                    super::splat(acc, T::ZERO, n);
                }
                for r in r..end {
                    let p = s.add(r * self.inner_pitch);
                    let p: *const T = if native {
                        p.cast()
                    } else {
                        read(row, p, n);
                        row
                    };
                    macro_rules! each {
                        ($($w:ident),*) => {
                            match self.what { $(What::$w => {
                                for c in 0..n {
                                    into.add(c).write(Self::step(What::$w, *into.add(c), *p.add(c)));
                                }
                            })* }
                        };
                    }
                    each!(Sum, Max, Min, Prod, Any, All);
                }
                if self.what == What::Sum {
                    for c in 0..n {
                        let (h, l) = T::two_sum(*hi.add(c), *lo.add(c), *acc.add(c));
                        hi.add(c).write(h);
                        lo.add(c).write(l);
                    }
                }
                r = end;
            }
            for c in 0..n {
                self.put(d.add(c), *hi.add(c), *lo.add(c));
            }
        }
    }
}

/// The sum of at most a block in 64 lanes and a fixed tree.
///
/// # Safety
/// `s` is valid for `n` reads.
unsafe fn lanes<T: Elem>(s: *const T, n: usize) -> T {
    let mut lane = [T::ZERO; 64];
    for i in 0..n {
        // SAFETY: i < n.
        lane[i % 64] = lane[i % 64].add(unsafe { *s.add(i) });
    }
    let mut w = 32;
    while w > 0 {
        for i in 0..w {
            lane[i] = lane[i].add(lane[i + w]);
        }
        w /= 2;
    }
    lane[0]
}
