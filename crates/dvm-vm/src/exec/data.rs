//! Operations whose data decide which elements they touch, and stores that convert.
//!
//! Each block names the rules of the crate's page that cover it. The verifier admits the whole range of an index
//! (`footprint::uses`, dim `limit * stride`); the index itself is checked here.

use dvm_bc::{DType, Init};

use super::frame::Frame;
use super::step::some;
use super::{Addr, Executable, Indexed, Len, Place};
use crate::error::{Fault, TrapKind};
use crate::kernels::shape::{self, Direction};
use crate::kernels::{CHUNK, Chunk, sort};

/// # Safety
/// `p` holds an index of the given width at `i`.
#[inline(always)]
unsafe fn read_index(p: *const u8, wide: bool, i: usize) -> i64 {
    // SAFETY: by the caller.
    unsafe { if wide { *p.cast::<i64>().add(i) } else { i64::from(*p.cast::<i32>().add(i)) } }
}

/// An index counted from the front, or the trap.
#[inline(always)]
fn wrap_index(i: i64, limit: u64, instruction: u32, element: u64) -> Result<i64, Fault> {
    let wrapped = if i < 0 { (i as u64).wrapping_add(limit) } else { i as u64 };
    if wrapped < limit {
        return Ok(wrapped as i64);
    }
    Err(Fault { kind: TrapKind::IndexOutOfRange { limit }, instruction, element, value: i })
}

/// Copies `bytes` between a local and an argument's place.
///
/// # Safety
/// Both are valid for so many bytes and do not overlap.
#[inline(always)]
unsafe fn transfer(dir: Direction, local: *mut u8, arg: *mut u8, bytes: usize) {
    let (dst, src) = if dir == Direction::Gather { (local, arg) } else { (arg, local) };
    // SAFETY: by the caller.
    unsafe { std::ptr::copy_nonoverlapping(src.cast_const(), dst, bytes) };
}

impl Frame {
    /// Rows of an argument picked by an index tile, to or from local memory.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    pub(super) unsafe fn rows_by_index(
        &self,
        exe: &Executable,
        (local, addr): (Place, Addr),
        by: &Indexed,
        dir: Direction,
        instruction: u32,
    ) -> Result<(), Fault> {
        let (mut local, arg, index) = (self.at(local), self.address(exe, addr), self.at(by.index));
        let size = usize::from(by.size);
        let bytes = by.cols.get(self.last) * size;
        for r in 0..by.rows.get(self.last) {
            // SAFETY: rules local (r < rows), argument (the index is below the limit), aligned, races.
            unsafe {
                let i = wrap_index(read_index(index, by.wide, r), by.limit, instruction, r as u64)?;
                transfer(dir, local, arg.wrapping_offset(i.wrapping_mul(by.stride) as isize), bytes);
            }
            local = local.wrapping_add(by.cols.body as usize * size);
        }
        Ok(())
    }

    /// Elements of an argument picked by an index tile, to or from local memory.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    pub(super) unsafe fn elems_by_index(
        &self,
        exe: &Executable,
        (local, addr): (Place, Addr),
        by: &Indexed,
        (row_stride, col_stride): (i64, i64),
        dir: Direction,
        instruction: u32,
    ) -> Result<(), Fault> {
        let (local, arg, index) = (self.at(local), self.address(exe, addr), self.at(by.index));
        let (n, pitch, size) = (by.cols.get(self.last), by.cols.body as usize, usize::from(by.size));
        for r in 0..by.rows.get(self.last) {
            let row = arg.wrapping_offset((r as i64).wrapping_mul(row_stride) as isize);
            for c in 0..n {
                // SAFETY: rules local (r < rows, c < cols), argument (the index is below the limit), aligned, races.
                unsafe {
                    let i = read_index(index, by.wide, r * pitch + c);
                    let i = wrap_index(i, by.limit, instruction, (r * n + c) as u64)?;
                    let off = i.wrapping_mul(by.stride).wrapping_add((c as i64).wrapping_mul(col_stride));
                    let local = local.wrapping_add((r * pitch + c) * size);
                    transfer(dir, local, row.wrapping_offset(off as isize), size);
                }
            }
        }
        Ok(())
    }

    /// Rows that a mask picks, one behind the other in an argument; `count` of them so far.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    pub(super) unsafe fn compress(
        &self,
        exe: &Executable,
        (src, addr): (Place, Addr),
        (mask, count): (Place, Place),
        (rows, cols): (Len, Len),
        stride: i64,
        limit: u64,
        init: Init,
        size: u8,
        instruction: u32,
    ) -> Result<(), Fault> {
        let (src, arg, mask) = (self.at(src), self.address(exe, addr), self.at(mask));
        let (cell, size) = (self.at(count).cast::<i64>(), usize::from(size));
        let bytes = cols.get(self.last) * size;
        // SAFETY: rules local, argument, aligned, races; a count that is not below the limit, whatever wrote it, traps.
        unsafe {
            let mut count = if self.fresh(init) { 0 } else { *cell };
            for r in 0..rows.get(self.last) {
                if *mask.add(r) == 0 {
                    continue;
                }
                if count as u64 >= limit {
                    let kind = TrapKind::IndexOutOfRange { limit };
                    return Err(Fault { kind, instruction, element: r as u64, value: count });
                }
                let to = arg.wrapping_offset(count.wrapping_mul(stride) as isize);
                transfer(Direction::Scatter, src.wrapping_add(r * cols.body as usize * size), to, bytes);
                count += 1;
            }
            cell.write(count);
        }
        Ok(())
    }

    /// An accumulator tile to an argument, through `relu` if there is one.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    pub(super) unsafe fn acc_store(
        &self,
        exe: &Executable,
        cast: u32,
        relu: Option<u32>,
        addr: Addr,
        pitch: i64,
    ) {
        let ew = &exe.ews[cast as usize];
        let relu = relu.map(|r| &exe.ews[r as usize]);
        let (arg, acc) = (self.address(exe, addr), self.at(ew.place[0]));
        let (from, to) = (usize::from(ew.size[0]), usize::from(ew.size[3]));
        let cols = ew.cols.get(self.last);
        let mut buffer = Chunk::new();
        for r in 0..some(ew.rows.get(self.last), cols) {
            let row = arg.wrapping_offset((r as i64).wrapping_mul(pitch) as isize);
            let acc = acc.wrapping_add(r * ew.row_step[0] as usize);
            let mut at = 0;
            while at < cols {
                let n = (cols - at).min(CHUNK);
                let none = std::ptr::null();
                let mut src = acc.wrapping_add(at * from).cast_const();
                // SAFETY: rules local, argument, aligned, races; the buffer holds CHUNK elements of an accumulator.
                unsafe {
                    if let Some(relu) = relu {
                        relu.span(buffer.ptr(), &[src, self.at(relu.place[1]), none], n);
                        src = buffer.ptr();
                    }
                    ew.span(row.wrapping_add(at * to), &[src, none, none], n);
                }
                at += n;
            }
        }
    }

    /// Sorts rows of keys, and values with them.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    pub(super) unsafe fn sort(
        &mut self,
        dtype: DType,
        (key, value): (Place, Place),
        (rows, cols): (Len, Len),
        descending: bool,
    ) {
        let (key, value) = (self.at(key), self.at(value).cast::<i64>());
        let (n, pitch, size) = (cols.get(self.last), cols.body as usize, dtype.size() as usize);
        for r in 0..some(rows.get(self.last), n) {
            let (key, value) = (key.wrapping_add(r * pitch * size), value.wrapping_add(r * pitch));
            // SAFETY: rules local, apart; counts are below 2^28 (encoding).
            unsafe { sort::sort(dtype, key, value, n, descending, &mut self.items) };
        }
    }

    /// A value right of the columns of each row.
    ///
    /// # Safety
    /// The program is verified, and the frame stands in a unit of it.
    pub(super) unsafe fn clear_pad(
        &self,
        dst: Place,
        bits: u64,
        (rows, cols): (Len, Len),
        pitch: u32,
        size: u8,
    ) {
        let (dst, from, pitch) = (self.at(dst), cols.get(self.last), pitch as usize);
        for r in 0..some(rows.get(self.last), pitch) {
            let pad = dst.wrapping_add((r * pitch + from) * usize::from(size));
            // SAFETY: rules local, counts (columns are no more than the pitch).
            unsafe { shape::fill(u32::from(size), pad, bits, pitch.saturating_sub(from)) };
        }
    }
}
