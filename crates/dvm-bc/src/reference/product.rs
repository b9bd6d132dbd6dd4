//! Matrix products and their packed operands.

use super::scalar::{self, Scalars};
use super::table::cast;
use super::tile::Cx;
use super::value::Value::{self, F32, F64, Int};
use super::{Address, Bound, Fault};
use crate::layout::{acc_dtype, panel_elem_bytes};
use crate::{AccStore, BindB, DType, LoadA, LoadB, Local, Mmad, PackA, Size};

/// A matrix in an argument, as lines (rows of a left operand, columns of a right one) and steps along k.
struct Lines {
    lines: Size,
    k: Size,
    /// Bytes from one line, and from one step, to the next.
    stride: (i64, i64),
    /// Lines of a panel.
    width: u32,
}

/// An operand of a product: packed in local memory, or bound.
struct Packed {
    at: Address,
    /// Bytes from one panel to the next.
    panel_stride: i64,
    width: u32,
    dtype: DType,
}

impl Packed {
    fn element(&self, line: u64, k: u64) -> Address {
        let (size, width) = (i64::from(self.dtype.size()), u64::from(self.width));
        let row = self.at.step(line / width, self.panel_stride).step(k, size * i64::from(self.width));
        row.step(line % width, size)
    }
}

/// The dtype of the elements of a local panel.
fn panel_dtype(dtype: DType) -> DType {
    if panel_elem_bytes(dtype) == dtype.size() { dtype } else { DType::F32 }
}

impl Cx<'_> {
    fn packed(&self, place: Local, width: u32, k: Size) -> Packed {
        let dtype = panel_dtype(self.inst.dtype);
        let panel = i64::from(width) * i64::from(k.body);
        let panel_stride = panel.saturating_mul(i64::from(dtype.size()));
        Packed { at: self.local(place), panel_stride, width, dtype }
    }

    fn mr(&self) -> u32 {
        self.memory.target().panel_mr.max(1)
    }

    fn nr(&self) -> u32 {
        self.memory.target().nr(self.inst.dtype.size()).max(1)
    }

    /// Panels in local memory: missing lines of the last one are zero.
    fn pack(&mut self, place: Local, src: Address, l: &Lines) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        self.memory.bind(place, None);
        let to = self.packed(place, l.width, l.k);
        let lines = self.count(l.lines);
        for line in 0..lines.next_multiple_of(u64::from(l.width)) {
            for kk in 0..self.count(l.k) {
                let v = if line < lines {
                    self.value(src.step(line, l.stride.0).step(kk, l.stride.1), dtype)?
                } else {
                    Value::number(dtype, 0)
                };
                self.put(to.element(line, kk), to.dtype, v)?;
            }
        }
        Ok(())
    }

    pub(super) fn exec_load_a(&mut self, o: &LoadA) -> Result<(), Fault> {
        let stride = (o.row_stride, o.col_stride);
        let lines = Lines { lines: o.m, k: o.k, stride, width: self.mr() };
        let src = self.mem(&o.src)?;
        self.pack(o.dst, src, &lines)
    }

    pub(super) fn exec_load_b(&mut self, o: &LoadB) -> Result<(), Fault> {
        let stride = (o.col_stride, o.row_stride);
        let lines = Lines { lines: o.n, k: o.k, stride, width: self.nr() };
        let src = self.mem(&o.src)?;
        self.pack(o.dst, src, &lines)
    }

    pub(super) fn exec_pack_a(&mut self, o: &PackA) -> Result<(), Fault> {
        let size = i64::from(self.inst.dtype.size());
        let pitch = size.saturating_mul(i64::try_from(o.pitch).unwrap_or(i64::MAX));
        let lines = Lines { lines: o.m, k: o.k, stride: (pitch, size), width: self.mr() };
        let src = self.local(o.src);
        self.pack(o.dst, src, &lines)
    }

    pub(super) fn exec_bind_b(&mut self, o: &BindB) -> Result<(), Fault> {
        let at = self.mem(&o.src)?;
        self.memory.bind(o.dst, Some(Bound { at, panel_stride: o.panel_stride }));
        Ok(())
    }

    pub(super) fn exec_mmad(&mut self, o: &Mmad) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let acc_dtype = acc_dtype(dtype).unwrap_or(dtype);
        let left = self.packed(o.a, self.mr(), o.k);
        let right = match self.memory.bound(o.b) {
            Some(Bound { at, panel_stride }) => Packed { at, panel_stride, width: self.nr(), dtype },
            None => self.packed(o.b, self.nr(), o.k),
        };
        let (acc, size) = (self.local(o.acc), i64::from(acc_dtype.size()));
        for i in 0..self.count(o.m) {
            for j in 0..self.count(o.n) {
                let at = acc.step(i, size * i64::from(o.n.body)).step(j, size);
                let mut sum =
                    if self.fresh(o.init) { Value::number(dtype, 0) } else { self.value(at, acc_dtype)? };
                for k in 0..self.count(o.k) {
                    let a = self.value(left.element(i, k), left.dtype)?;
                    let b = self.value(right.element(j, k), right.dtype)?;
                    sum = multiply_add(a, b, sum, acc_dtype);
                }
                self.put(at, acc_dtype, sum)?;
            }
        }
        Ok(())
    }
}

impl Cx<'_> {
    pub(super) fn exec_acc_store(&mut self, o: &AccStore) -> Result<(), Fault> {
        let (dtype, from) = (self.inst.dtype, o.from);
        let (dst, acc, size) = (self.mem(&o.dst)?, self.local(o.acc), i64::from(from.size()));
        let zero = Value::number(from, 0);
        for i in 0..self.count(o.m) {
            for j in 0..self.count(o.n) {
                let mut bits = self.load(acc.step(i, size * i64::from(o.n.body)).step(j, size), from)?;
                if o.relu {
                    let s = Scalars { math: self.math, op: self.inst.op, dtype: from };
                    bits = scalar::max(&s, Value::of(from, bits), zero).bits(from);
                }
                let to = dst.step(i, o.pitch).step(j, dtype.size().into());
                self.store(to, dtype, cast(self.math, bits, from, dtype))?;
            }
        }
        Ok(())
    }
}

/// One step of the chain: fused on floats, wrapping in the accumulator's dtype on integers.
fn multiply_add(a: Value, b: Value, sum: Value, acc: DType) -> Value {
    match (a, b, sum) {
        (F32(x), F32(y), F32(z)) => F32(x.mul_add(y, z)),
        (F64(x), F64(y), F64(z)) => F64(x.mul_add(y, z)),
        (Int(x), Int(y), Int(z)) => Value::of(acc, Int(x.wrapping_mul(y).wrapping_add(z)).bits(acc)),
        (.., sum) => sum,
    }
}
