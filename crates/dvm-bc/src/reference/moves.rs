//! Instructions that move elements: loads, stores, views, gathers, fills, iota.

use super::tile::{Cx, wrap_index};
use super::value::Value;
use super::{Address, Fault, TrapKind};
use crate::{
    ClearPad, CompressStore, DType, FillStore, GatherElems, GatherLoad, Iota, Load, LocalView, Loop,
    RemovePad, ScatterElems, ScatterStore, Shape, Store, ViewLoad, ViewStore,
};

impl Cx<'_> {
    fn copy(&mut self, to: Address, from: Address) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let bits = self.load(from, dtype)?;
        self.store(to, dtype, bits)
    }

    fn size(&self) -> i64 {
        i64::from(self.inst.dtype.size())
    }

    pub(super) fn exec_load(&mut self, o: &Load) -> Result<(), Fault> {
        let (dst, src, size) = (self.local(o.dst), self.mem(&o.src)?, self.size());
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                let tile = dst.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(tile, src.step(r, o.pitch).step(c, size))?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_store(&mut self, o: &Store) -> Result<(), Fault> {
        let (dst, src, size) = (self.mem(&o.dst)?, self.local(o.src), self.size());
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                let tile = src.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(dst.step(r, o.pitch).step(c, size), tile)?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_fill_store(&mut self, o: &FillStore) -> Result<(), Fault> {
        let (dst, size) = (self.mem(&o.dst)?, self.size());
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                self.store(dst.step(r, o.pitch).step(c, size), self.inst.dtype, o.value)?;
            }
        }
        Ok(())
    }

    /// Calls `f` with the dense and the strided address of each element. `unit` is the bytes that a stride of 1 means.
    fn strided(
        &mut self,
        dense: Address,
        strided: Address,
        loops: &[Loop],
        unit: i64,
        f: &mut dyn FnMut(&mut Self, Address, Address) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some((outer, inner)) = loops.split_first() else { return f(self, dense, strided) };
        let pitch = inner.iter().fold(self.size(), |n, l| n.saturating_mul(i64::from(l.count.body)));
        for i in 0..self.count(outer.count) {
            let (d, s) = (dense.step(i, pitch), strided.step(i, outer.stride.saturating_mul(unit)));
            self.strided(d, s, inner, unit, f)?;
        }
        Ok(())
    }

    pub(super) fn exec_view_load(&mut self, o: &ViewLoad) -> Result<(), Fault> {
        let (dst, src) = (self.local(o.dst), self.mem(&o.src)?);
        self.strided(dst, src, &o.loops, 1, &mut |cx, dense, strided| cx.copy(dense, strided))
    }

    pub(super) fn exec_view_store(&mut self, o: &ViewStore) -> Result<(), Fault> {
        let (dst, src) = (self.mem(&o.dst)?, self.local(o.src));
        self.strided(src, dst, &o.loops, 1, &mut |cx, dense, strided| cx.copy(strided, dense))
    }

    pub(super) fn exec_local_view(&mut self, o: &LocalView) -> Result<(), Fault> {
        let (dst, src, size) = (self.local(o.dst), self.local(o.src), self.size());
        self.strided(dst, src, &o.loops, size, &mut |cx, dense, strided| cx.copy(dense, strided))
    }

    /// The index of an element, within the limit.
    fn index(&mut self, at: Address, dtype: DType, limit: u64, element: u64) -> Result<u64, Fault> {
        let i = self.value(at, dtype)?.as_i64();
        wrap_index(i, limit, element)
    }

    pub(super) fn exec_gather_load(&mut self, o: &GatherLoad) -> Result<(), Fault> {
        let (dst, src, index) = (self.local(o.dst), self.mem(&o.src)?, self.local(o.index));
        let (size, wide) = (self.size(), i64::from(o.index_dtype.size()));
        for r in 0..self.count(o.rows) {
            let i = self.index(index.step(r, wide), o.index_dtype, o.limit, r)?;
            for c in 0..self.count(o.cols) {
                let tile = dst.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(tile, src.step(i, o.stride).step(c, size))?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_gather_elems(&mut self, o: &GatherElems) -> Result<(), Fault> {
        let (dst, src, index) = (self.local(o.dst), self.mem(&o.src)?, self.local(o.index));
        let (size, wide) = (self.size(), i64::from(o.index_dtype.size()));
        let (rows, cols, pitch) = (self.count(o.rows), self.count(o.cols), i64::from(o.cols.body));
        for r in 0..rows {
            for c in 0..cols {
                let at = index.step(r, wide * pitch).step(c, wide);
                let i = self.index(at, o.index_dtype, o.limit, r * cols + c)?;
                let from = src.step(i, o.stride).step(r, o.row_stride).step(c, o.col_stride);
                self.copy(dst.step(r, size * pitch).step(c, size), from)?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_scatter_store(&mut self, o: &ScatterStore) -> Result<(), Fault> {
        let (dst, src, index) = (self.mem(&o.dst)?, self.local(o.src), self.local(o.index));
        let (size, wide) = (self.size(), i64::from(o.index_dtype.size()));
        for r in 0..self.count(o.rows) {
            let i = self.index(index.step(r, wide), o.index_dtype, o.limit, r)?;
            for c in 0..self.count(o.cols) {
                let tile = src.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(dst.step(i, o.stride).step(c, size), tile)?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_scatter_elems(&mut self, o: &ScatterElems) -> Result<(), Fault> {
        let (dst, src, index) = (self.mem(&o.dst)?, self.local(o.src), self.local(o.index));
        let (size, wide) = (self.size(), i64::from(o.index_dtype.size()));
        let (rows, cols, pitch) = (self.count(o.rows), self.count(o.cols), i64::from(o.cols.body));
        for r in 0..rows {
            for c in 0..cols {
                let at = index.step(r, wide * pitch).step(c, wide);
                let i = self.index(at, o.index_dtype, o.limit, r * cols + c)?;
                let to = dst.step(i, o.stride).step(r, o.row_stride).step(c, o.col_stride);
                self.copy(to, src.step(r, size * pitch).step(c, size))?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_compress_store(&mut self, o: &CompressStore) -> Result<(), Fault> {
        let (dst, src, size) = (self.mem(&o.dst)?, self.local(o.src), self.size());
        let (mask, cell) = (self.local(o.mask), self.local(o.count));
        let mut count = if self.fresh(o.init) { 0 } else { self.load(cell, DType::I64)? as i64 };
        for r in 0..self.count(o.rows) {
            if self.load(mask.step(r, 1), DType::Bool)? == 0 {
                continue;
            }
            let row = match u64::try_from(count) {
                Ok(row) if row < o.limit => row,
                _ => {
                    let kind = TrapKind::IndexOutOfRange { limit: o.limit };
                    return Err(Fault::Trap { kind, element: r, value: count });
                }
            };
            for c in 0..self.count(o.cols) {
                let tile = src.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(dst.step(row, o.stride).step(c, size), tile)?;
            }
            count += 1;
        }
        self.store(cell, DType::I64, count as u64)
    }

    /// A tile from a source whose element (r, c) is `r * steps.0 + c * steps.1` elements from its start.
    pub(super) fn exec_shape(&mut self, o: &Shape, steps: (i64, i64)) -> Result<(), Fault> {
        let (dst, src, size) = (self.local(o.dst), self.local(o.src), self.size());
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                let to = dst.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(to, src.step(r, size * steps.0).step(c, size * steps.1))?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_clear_pad(&mut self, o: &ClearPad) -> Result<(), Fault> {
        let (dst, size) = (self.local(o.dst), self.size());
        let pitch = size.saturating_mul(i64::try_from(o.pitch).unwrap_or(i64::MAX));
        for r in 0..self.count(o.rows) {
            for c in self.count(o.cols)..o.pitch {
                self.store(dst.step(r, pitch).step(c, size), self.inst.dtype, o.value)?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_remove_pad(&mut self, o: &RemovePad) -> Result<(), Fault> {
        let (dst, src, size) = (self.local(o.dst), self.local(o.src), self.size());
        let pitch = size.saturating_mul(i64::try_from(o.pitch).unwrap_or(i64::MAX));
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                let to = dst.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.copy(to, src.step(r, pitch).step(c, size))?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_iota(&mut self, o: &Iota) -> Result<(), Fault> {
        let (dst, size) = (self.local(o.dst), self.size());
        let base = o.base.wrapping_add(self.point.affine(&o.strides));
        for r in 0..self.count(o.rows) {
            for c in 0..self.count(o.cols) {
                let row = base.wrapping_add((r as i64).wrapping_mul(o.row_step));
                let v = row.wrapping_add((c as i64).wrapping_mul(o.col_step));
                let at = dst.step(r, size * i64::from(o.cols.body)).step(c, size);
                self.put(at, self.inst.dtype, Value::Int(v.into()))?;
            }
        }
        Ok(())
    }
}
