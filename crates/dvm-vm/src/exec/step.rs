//! Executes one resolved operation on a worker's frame.
//!
//! Nothing here is checked again: each block names the rules of the crate's page ("Why it is safe") that cover it, and those the
//! verifier's functions. What depends on data (indices, counts, divisors) is checked here.

use dvm_bc::{DType, Init};

use super::frame::{Frame, Panel};
use super::{Addr, Ew, Executable, From, NOT_STICKY, Op, OpKind, Place};
use crate::cube::{Left, Mmad, Pack, Right};
use crate::error::{Fault, TrapKind};
use crate::kernels::binary;
use crate::kernels::part::PartSum;
use crate::kernels::reduce::{Reduction, What};
use crate::kernels::scan::{ArgReduction, Running};
use crate::kernels::shape::{self, Direction, Stride};

/// Elements of a strip: operands and results of a few instructions fit L1.
pub(super) const STRIP: usize = 512;

impl Frame {
    #[inline(always)]
    pub(super) fn at(&self, p: Place) -> *mut u8 {
        self.bases[p.base as usize].wrapping_add(p.off as usize)
    }

    #[inline(always)]
    fn affine(&self, exe: &Executable, first: u32, count: u16) -> i64 {
        exe.strides[first as usize..first as usize + count as usize].iter().fold(0i64, |s, &(e, stride)| {
            s.wrapping_add(i64::from(self.index[e as usize]).wrapping_mul(stride))
        })
    }

    #[inline(always)]
    pub(super) fn address(&self, exe: &Executable, a: Addr) -> *mut u8 {
        let offset = a.offset.wrapping_add(self.affine(exe, a.first, a.count));
        self.slots[a.slot as usize].wrapping_offset(offset as isize)
    }

    #[inline(always)]
    fn operand(&self, exe: &Executable, from: From) -> *mut u8 {
        match from {
            From::Argument(addr) => self.address(exe, addr),
            From::Local(place) => self.at(place),
        }
    }

    /// Whether an accumulating operation starts afresh here.
    #[inline(always)]
    pub(super) fn fresh(&self, init: Init) -> bool {
        match init {
            Init::Accumulate => false,
            Init::Always => true,
            Init::First => self.walked == 0,
        }
    }

    /// Whether a sticky load finds its data still in place; remembers where it loads from.
    #[inline(always)]
    fn stuck(&mut self, sticky: u32, p: *const u8, mask: u32) -> bool {
        if sticky == NOT_STICKY {
            return false;
        }
        let now = (p as usize, self.last & mask);
        std::mem::replace(&mut self.sticky[sticky as usize], now) == now
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// A data-dependent trap.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    #[inline]
    pub(super) unsafe fn step(&mut self, exe: &Executable, op: &Op) -> Result<(), Fault> {
        let last = self.last;
        match op.kind {
            OpKind::Elementwise { first, count, ref fold } => {
                let ews = &exe.ews[first as usize..(first + count) as usize];
                // SAFETY: rules local, argument (bound operands), apart.
                unsafe {
                    match ews {
                        [ew] if ew.part.len == 0 => self.whole(ew),
                        _ => self.strips(ews, fold.as_ref()),
                    }
                }
            }
            // Taken apart by the section's loop.
            OpKind::ByRows { .. } => {}
            OpKind::Divide { ew, dtype } => {
                // SAFETY: rules local, apart; divisors are looked at first.
                unsafe { self.divide(&exe.ews[ew as usize], dtype, op.index)? };
            }
            OpKind::Bind { base, addr } => self.bases[base as usize] = self.address(exe, addr),
            OpKind::Rows { local, addr, rows, cols, pitch, size, dir, sticky } => {
                let (local, arg) = (self.at(local), self.address(exe, addr));
                if self.stuck(sticky, arg, rows.mask | cols.mask) {
                    return Ok(());
                }
                let size = size as usize;
                let (r, bytes) = (rows.get(last), cols.get(last) * size);
                let (step, pitch) = (cols.body as isize * size as isize, pitch as isize);
                let (src, dst, src_step, dst_step) = match dir {
                    Direction::Scatter => (local, arg, step, pitch),
                    Direction::Gather => (arg, local, pitch, step),
                };
                // SAFETY: rules local, argument, aligned, races.
                unsafe { copy_rows(dst, src, some(r, bytes), bytes, dst_step, src_step) };
            }
            OpKind::FillRows { addr, bits, rows, cols, pitch, size } => {
                let arg = self.address(exe, addr);
                let n = cols.get(last);
                for r in 0..some(rows.get(last), n) as isize {
                    // SAFETY: rules argument, aligned, races.
                    unsafe { shape::fill(u32::from(size), arg.wrapping_offset(r * pitch as isize), bits, n) };
                }
            }
            OpKind::View { local, addr, loops, size, dir, sticky } => {
                let (local, arg) = (self.at(local), self.address(exe, addr));
                let (strides, n, mask) = self.loops(exe, loops);
                if self.stuck(sticky, arg, mask) {
                    return Ok(());
                }
                // SAFETY: rules local, argument, aligned, races.
                unsafe { shape::view(u32::from(size), local, arg, &strides[..n], dir) };
            }
            OpKind::LocalView { dst, src, loops, size } => {
                let (strides, n, _) = self.loops(exe, loops);
                // SAFETY: rules local (`strided`), apart.
                unsafe {
                    shape::view(
                        u32::from(size),
                        self.at(dst),
                        self.at(src),
                        &strides[..n],
                        Direction::Gather,
                    );
                }
            }
            OpKind::RowsByIndex { local, addr, ref by, dir } => {
                // SAFETY: rules local, argument, aligned, races; indices are checked.
                unsafe { self.rows_by_index(exe, (local, addr), by, dir, op.index)? };
            }
            OpKind::ElemsByIndex { local, addr, ref by, steps, dir } => {
                // SAFETY: rules local, argument, aligned, races; indices are checked.
                unsafe { self.elems_by_index(exe, (local, addr), by, steps, dir, op.index)? };
            }
            OpKind::Compress { src, addr, mask, count, rows, cols, stride, limit, init, size } => {
                let (places, counts) = ((mask, count), (rows, cols));
                // SAFETY: rules local, argument, aligned, races; the count is checked.
                unsafe {
                    self.compress(exe, (src, addr), places, counts, stride, limit, init, size, op.index)?;
                }
            }
            OpKind::AccStore { cast, relu, addr, pitch } => {
                // SAFETY: rules local, argument, aligned, races.
                unsafe { self.acc_store(exe, cast, relu, addr, pitch) };
            }
            OpKind::Sort { key, value, dtype, rows, cols, descending } => {
                // SAFETY: rules local, apart.
                unsafe { self.sort(dtype, (key, value), (rows, cols), descending) };
            }
            OpKind::ClearPad { dst, bits, rows, cols, pitch, size } => {
                // SAFETY: rules local, counts (`pitch`).
                unsafe { self.clear_pad(dst, bits, (rows, cols), pitch, size) };
            }
            OpKind::Iota { dst, dtype, base, strides, row_step, col_step, rows, cols } => {
                let mut d = self.at(dst);
                let mut v = base.wrapping_add(self.affine(exe, strides.0, strides.1));
                let n = cols.get(last);
                for _ in 0..some(rows.get(last), n) {
                    // SAFETY: rules local.
                    unsafe { shape::iota(dtype, d, v, col_step, n) };
                    d = d.wrapping_add(cols.body as usize * dtype.size() as usize);
                    v = v.wrapping_add(row_step);
                }
            }
            OpKind::Reduce { dst, src, what, dtype, outer, red, inner, init } => {
                let (from, to) = self.rows;
                let outer_n = some(outer.get(last).min(to).saturating_sub(from), inner.get(last));
                let r = Reduction {
                    what,
                    dtype,
                    isa: exe.isa,
                    outer: outer_n,
                    red: red.get(last),
                    inner: inner.get(last),
                    outer_pitch: red.body as usize * inner.body as usize,
                    inner_pitch: inner.body as usize,
                    plane: if what == What::Sum && init != Init::Always {
                        outer.body as usize * inner.body as usize
                    } else {
                        0
                    },
                    fresh: self.fresh(init),
                };
                let size = dtype.size() as usize;
                let src = self.at(src).wrapping_add(from * r.outer_pitch * size);
                let dst = self.at(dst).wrapping_add(from * r.inner_pitch * size);
                // SAFETY: rules local, apart.
                unsafe { r.run(dst, src) };
            }
            OpKind::PartSum {
                dst,
                lanes,
                src,
                dtype,
                outer,
                red,
                inner,
                init,
                base,
                strides,
                across,
                totals,
            } => {
                let r = PartSum {
                    dtype,
                    isa: exe.isa,
                    outer: some(outer.get(last), inner.get(last)),
                    red: red.get(last),
                    inner: inner.get(last),
                    outer_pitch: red.body as usize * inner.body as usize,
                    inner_pitch: inner.body as usize,
                    plane: outer.body as usize * inner.body as usize,
                    fresh: self.fresh(init),
                    across,
                    totals,
                    index: base.wrapping_add(self.affine(exe, strides.0, strides.1)),
                };
                // SAFETY: rules local, apart.
                unsafe { r.run(self.at(dst), self.at(lanes), self.at(src)) };
            }
            OpKind::ArgReduce {
                index,
                value,
                src,
                dtype,
                largest,
                last: of_equals_last,
                outer,
                red,
                inner,
                init,
                base,
                strides,
            } => {
                let r = ArgReduction {
                    dtype,
                    largest,
                    last: of_equals_last,
                    outer: some(outer.get(last), inner.get(last)),
                    red: red.get(last),
                    inner: inner.get(last),
                    outer_pitch: red.body as usize * inner.body as usize,
                    inner_pitch: inner.body as usize,
                    fresh: self.fresh(init),
                    base: base.wrapping_add(self.affine(exe, strides.0, strides.1)),
                };
                // SAFETY: rules local, apart.
                unsafe { r.run(self.at(index).cast(), self.at(value), self.at(src)) };
            }
            OpKind::CumSum { dst, carry, src, dtype, outer, red, inner, init, exclusive, reverse } => {
                let r = Running {
                    dtype,
                    outer: some(outer.get(last), inner.get(last)),
                    red: red.get(last),
                    inner: inner.get(last),
                    outer_pitch: red.body as usize * inner.body as usize,
                    inner_pitch: inner.body as usize,
                    fresh: self.fresh(init),
                    exclusive,
                    reverse,
                };
                // SAFETY: rules local, apart.
                unsafe { r.run(self.at(dst), self.at(carry), self.at(src)) };
            }
            OpKind::Pack { pack, panel, local, from, lines, k, line_stride, k_stride, width, sticky } => {
                let (local, arg) = (self.at(local), self.operand(exe, from));
                let panel_stride = width as usize * k.body as usize;
                let (n, steps) = (lines.get(last), k.get(last));
                self.panels[panel as usize] = Panel {
                    ptr: local,
                    width,
                    stride: panel_stride as isize,
                    k_stride: 0,
                    lines: n,
                    k: steps,
                };
                if self.stuck(sticky, arg, lines.mask | k.mask) || steps == 0 {
                    return Ok(());
                }
                let what = Pack {
                    lines: n,
                    k: steps,
                    line_stride: line_stride as isize,
                    k_stride: k_stride as isize,
                    width: width as usize,
                    panel_stride,
                };
                // SAFETY: rules panel, argument, aligned; local (`strided`) where it was computed.
                unsafe { pack(local, arg, &what) };
            }
            OpKind::BindPanel { panel, from, lines, k, panel_stride, k_stride, width } => {
                self.panels[panel as usize] = Panel {
                    ptr: self.operand(exe, from),
                    width,
                    stride: panel_stride as isize,
                    k_stride: k_stride as isize,
                    lines: lines.get(last),
                    k: k.get(last),
                };
            }
            OpKind::Mmad { mmad, acc, a, b, m, n, k, init } => {
                let (left, right) = (self.panels[a as usize], self.panels[b as usize]);
                let what = Mmad {
                    acc: self.at(acc),
                    pitch: n.body as usize,
                    left: match left.width {
                        0 => Left::strided(left.ptr, left.stride, left.k_stride),
                        w => Left::packed(left.ptr, w as usize, left.stride as usize),
                    },
                    right: Right {
                        ptr: right.ptr,
                        width: right.width as usize,
                        panel_stride: right.stride as usize,
                    },
                    m: m.get(last),
                    n: n.get(last),
                    k: k.get(last),
                    accumulate: !self.fresh(init),
                };
                // Cheap against a product, and independent of how the verifier argues about panels.
                assert!(
                    what.m <= left.lines && what.n <= right.lines && what.k <= left.k && what.k <= right.k,
                    "a matrix product larger than its operands"
                );
                if what.m > 0 && what.n > 0 {
                    // SAFETY: rules panel, local, apart; m, n and k were compared above.
                    unsafe { mmad(&what) };
                }
            }
        }
        Ok(())
    }

    /// The loops of a view for this tile, how many, and the extents their counts depend on.
    fn loops(
        &self,
        exe: &Executable,
        (first, count): (u32, u8),
    ) -> ([Stride; dvm_bc::MAX_LOOPS], usize, u32) {
        let mut out = [Stride::default(); dvm_bc::MAX_LOOPS];
        let mut mask = 0;
        for (o, l) in out.iter_mut().zip(&exe.loops[first as usize..first as usize + count as usize]) {
            *o = Stride {
                count: l.count.get(self.last),
                strided: l.strided as isize,
                dense: l.dense as isize,
            };
            mask |= l.count.mask;
        }
        (out, count as usize, mask)
    }

    /// Pointers of row `r`.
    #[inline(always)]
    fn row(&self, ew: &Ew, r: usize) -> [*mut u8; 4] {
        std::array::from_fn(|i| self.at(ew.place[i]).wrapping_add(r * ew.row_step[i] as usize))
    }

    /// First row, number of rows and elements of a row, with the rows joined to one where they are contiguous.
    pub(super) fn spans(&self, ew: &Ew, flat: bool) -> (usize, usize, usize) {
        let (first, to) = self.rows;
        let cols = ew.cols.get(self.last);
        let rows = some(ew.rows.get(self.last).min(to).saturating_sub(first), cols);
        if flat && (cols == ew.cols.body as usize || rows <= 1) {
            (first, rows.min(1), cols * rows)
        } else {
            (first, rows, cols)
        }
    }

    /// One elementwise operation over its whole tile.
    unsafe fn whole(&self, ew: &Ew) {
        let (first, rows, cols) = self.spans(ew, ew.flat);
        for r in first..first + rows {
            let [a, b, c, d] = self.row(ew, r);
            // SAFETY: rules local, argument (bound operands), apart.
            unsafe { ew.span(d, &[a, b, c], cols) };
        }
    }

    /// An integer division: looks for a zero divisor first.
    unsafe fn divide(&self, ew: &Ew, dtype: DType, instruction: u32) -> Result<(), Fault> {
        let (rows, cols) = (ew.rows.get(self.last), ew.cols.get(self.last));
        for r in 0..some(rows, cols) {
            let [a, b, c, d] = self.row(ew, r);
            let vector = |i: usize| ew.steps >> i & 1 != 0;
            let n = if vector(1) { cols } else { cols.min(1) };
            // SAFETY: rules local, argument (bound operands), apart; b was looked at.
            unsafe {
                if let Some(i) = binary::find_zero(dtype, b, n) {
                    let value = binary::read_int(dtype, a, if vector(0) { i } else { 0 });
                    let element = (r * cols + i) as u64;
                    return Err(Fault { kind: TrapKind::DivideByZero, instruction, element, value });
                }
                ew.span(d, &[a, b, c], cols);
            }
        }
        Ok(())
    }
}

/// `rows`, or none where they are empty: time is spent on elements only.
#[inline(always)]
pub(super) fn some(rows: usize, width: usize) -> usize {
    if width == 0 { 0 } else { rows }
}

/// Copies rows; joined where both sides are contiguous.
///
/// # Safety
/// Both sides are valid for `rows` rows of `bytes`, and do not overlap.
#[inline]
unsafe fn copy_rows(
    dst: *mut u8,
    src: *const u8,
    rows: usize,
    bytes: usize,
    dst_step: isize,
    src_step: isize,
) {
    // SAFETY: by the caller.
    unsafe {
        if rows > 1 && dst_step == bytes as isize && src_step == bytes as isize {
            std::ptr::copy_nonoverlapping(src, dst, rows * bytes);
            return;
        }
        for r in 0..rows as isize {
            std::ptr::copy_nonoverlapping(
                src.wrapping_offset(r * src_step),
                dst.wrapping_offset(r * dst_step),
                bytes,
            );
        }
    }
}
