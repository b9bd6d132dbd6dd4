//! Reductions, extremes with an index, running sums, sorting.

use std::cmp::Ordering;

use super::scalar::{self, Scalars};
use super::tile::Cx;
use super::value::Value::{self, F32, F64, Int};
use super::{Address, Fault};
use crate::layout::{SUM_BLOCK_X, SUM_BLOCK_Y, sum_dtype};
use crate::{ArgReduce, CumSum, DType, Init, PartSum, Reduce, Size, SortKv};

/// Lanes of a sum along contiguous elements.
const LANES: usize = 64;

/// A reduction other than a sum: its neutral value, and one step.
#[derive(Clone, Copy)]
pub(super) enum Fold {
    Max,
    Min,
    Prod,
    Any,
    All,
}

/// Where the elements of a source `outer x red x inner` are, and the results.
struct Shape {
    outer: u64,
    red: u64,
    inner: u64,
    /// Elements from one `o` to the next, and from one `r` to the next (which is also from one result row to the next).
    pitch: (i64, i64),
}

impl Cx<'_> {
    fn shape(&self, outer: Size, red: Size, inner: Size) -> Shape {
        Shape {
            outer: self.count(outer),
            red: self.count(red),
            inner: self.count(inner),
            pitch: (i64::from(red.body) * i64::from(inner.body), i64::from(inner.body)),
        }
    }

    fn scalars(&self) -> Scalars<'_> {
        Scalars { math: self.math, op: self.inst.op, dtype: self.inst.dtype }
    }

    fn add(&self, a: Value, b: Value) -> Value {
        wrap(scalar::add(&self.scalars(), a, b), self.inst.dtype)
    }

    pub(super) fn exec_fold(&mut self, o: &Reduce, what: Fold) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let shape = self.shape(o.outer, o.red, o.inner);
        let (dst, src) = (self.local(o.dst), self.local(o.src));
        for (oo, i) in pairs(&shape) {
            let at = shape.result(dst, oo, i, dtype);
            let mut acc = if self.fresh(o.init) { neutral(what, dtype) } else { self.value(at, dtype)? };
            for r in 0..shape.red {
                let v = self.value(shape.element(src, oo, r, i, dtype), dtype)?;
                let s = self.scalars();
                acc = match what {
                    Fold::Max => scalar::max(&s, acc, v),
                    Fold::Min => scalar::min(&s, acc, v),
                    Fold::Prod => wrap(scalar::mul(&s, acc, v), dtype),
                    Fold::Any => Int((acc.truth() || v.truth()).into()),
                    Fold::All => Int((acc.truth() && v.truth()).into()),
                };
            }
            self.put(at, dtype, acc)?;
        }
        Ok(())
    }

    pub(super) fn exec_sum(&mut self, o: &Reduce) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let shape = self.shape(o.outer, o.red, o.inner);
        let (dst, src) = (self.local(o.dst), self.local(o.src));
        let state = sum_dtype(dtype);
        let plane = i64::from(o.outer.body).saturating_mul(i64::from(o.inner.body));
        for (oo, i) in pairs(&shape) {
            let elements = |r| shape.element(src, oo, r, i, dtype);
            let at = shape.result(dst, oo, i, if o.init == Init::Always { dtype } else { state });
            let low = at.step(1, plane.saturating_mul(i64::from(state.size())));
            let zero = Value::number(dtype, 0);
            let (mut hi, mut lo) = if self.fresh(o.init) {
                (zero, zero)
            } else {
                (self.value(at, state)?, self.value(low, state)?)
            };
            let along = o.inner.body == 1;
            let block = u64::from(if along { SUM_BLOCK_X } else { SUM_BLOCK_Y });
            let mut r = 0;
            while r < shape.red {
                let n = block.min(shape.red - r);
                let total = if along {
                    self.tree(n, |k| elements(r + k))?
                } else {
                    let mut sum = zero;
                    for k in 0..n {
                        let v = self.value(elements(r + k), dtype)?;
                        sum = self.add(sum, v);
                    }
                    sum
                };
                (hi, lo) = self.two_sum(hi, lo, total);
                r += n;
            }
            if o.init == Init::Always {
                let v = self.add(hi, lo);
                self.put(at, dtype, v)?;
            } else {
                self.put(at, state, hi)?;
                self.put(low, state, lo)?;
            }
        }
        Ok(())
    }

    /// Lane l adds elements l, l + 64, ..; then the lanes combine in a tree.
    fn tree(&mut self, n: u64, at: impl Fn(u64) -> Address) -> Result<Value, Fault> {
        let dtype = self.inst.dtype;
        let mut lanes = [Value::number(dtype, 0); LANES];
        for k in 0..n {
            let v = self.value(at(k), dtype)?;
            let lane = (k % LANES as u64) as usize;
            lanes[lane] = self.add(lanes[lane], v);
        }
        Ok(self.combine(lanes))
    }

    /// The tree over lanes.
    fn combine(&self, mut lanes: [Value; LANES]) -> Value {
        let mut stride = LANES / 2;
        while stride > 0 {
            for l in 0..stride {
                lanes[l] = self.add(lanes[l], lanes[l + stride]);
            }
            stride /= 2;
        }
        lanes[0]
    }

    pub(super) fn exec_part_sum(&mut self, o: &PartSum) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let shape = self.shape(o.outer, o.red, o.inner);
        let (dst, held, src) = (self.local(o.dst), self.local(o.lanes), self.local(o.src));
        let state = sum_dtype(dtype);
        let size = i64::from(state.size());
        let plane = i64::from(o.outer.body).saturating_mul(i64::from(o.inner.body));
        let (count, block) = if o.across { (1, SUM_BLOCK_Y) } else { (LANES, SUM_BLOCK_X) };
        let start = o.base.wrapping_add(self.point.affine(&o.strides)).rem_euclid(i64::from(block)) as u64;
        let zero = Value::number(dtype, 0);
        for (oo, i) in pairs(&shape) {
            let at = shape.result(dst, oo, i, state);
            let low = at.step(1, plane.saturating_mul(size));
            // A result's lanes are next to each other.
            let row = shape.pitch.1.saturating_mul(count as i64).saturating_mul(size);
            let first = held.step(oo, row).step(i, size * count as i64);
            let (mut hi, mut lo, mut lanes) = (zero, zero, [zero; LANES]);
            if !self.fresh(o.init) {
                (hi, lo) = (self.value(at, state)?, self.value(low, state)?);
                for (l, lane) in lanes.iter_mut().enumerate().take(count) {
                    *lane = self.value(first.step(l as u64, size), state)?;
                }
            }
            let mut index = start;
            for r in 0..shape.red {
                let v = self.value(shape.element(src, oo, r, i, dtype), dtype)?;
                if o.totals {
                    (hi, lo) = self.two_sum(hi, lo, v);
                    continue;
                }
                let lane = index as usize % count;
                lanes[lane] = self.add(lanes[lane], v);
                index += 1;
                if index == u64::from(block) {
                    (hi, lo) = self.two_sum(hi, lo, self.combine(lanes));
                    (index, lanes) = (0, [zero; LANES]);
                }
            }
            self.put(at, state, hi)?;
            self.put(low, state, lo)?;
            for (l, &lane) in lanes.iter().enumerate().take(count) {
                self.put(first.step(l as u64, size), state, lane)?;
            }
        }
        Ok(())
    }

    /// `(hi, lo)` after adding `t`: Knuth's two-sum. Infinities and NaN live in `hi` alone; integers are exact.
    fn two_sum(&self, hi: Value, lo: Value, t: Value) -> (Value, Value) {
        macro_rules! float {
            ($hi:expr, $lo:expr, $t:expr) => {{
                let sum = $hi + $t;
                let part = sum - $hi;
                let error = ($hi - (sum - part)) + ($t - part);
                (sum, if error.is_finite() { $lo + error } else { $lo })
            }};
        }
        match (hi, lo, t) {
            (F32(h), F32(l), F32(t)) => {
                let (h, l): (f32, f32) = float!(h, l, t);
                (F32(h), F32(l))
            }
            (F64(h), F64(l), F64(t)) => {
                let (h, l): (f64, f64) = float!(h, l, t);
                (F64(h), F64(l))
            }
            (hi, lo, t) => (self.add(hi, t), lo),
        }
    }

    pub(super) fn exec_arg_reduce(&mut self, o: &ArgReduce, largest: bool) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let shape = self.shape(o.outer, o.red, o.inner);
        let (index, value, src) = (self.local(o.index), self.local(o.value), self.local(o.src));
        let base = o.base.wrapping_add(self.point.affine(&o.strides));
        for (oo, i) in pairs(&shape) {
            let index = shape.result(index, oo, i, DType::I64);
            let value = shape.result(value, oo, i, dtype);
            let mut best = None;
            if !self.fresh(o.init) {
                best = Some((self.load(index, DType::I64)?, self.load(value, dtype)?));
            }
            for r in 0..shape.red {
                let bits = self.load(shape.element(src, oo, r, i, dtype), dtype)?;
                let v = Value::of(dtype, bits);
                if best.is_none_or(|(_, b)| better(v, Value::of(dtype, b), largest, o.last)) {
                    best = Some((base.wrapping_add(r as i64) as u64, bits));
                }
            }
            // Nothing to choose from: index 0, and the identity.
            let (k, v) = best.unwrap_or_else(|| {
                let v = if largest { Value::lowest(dtype) } else { Value::highest(dtype) };
                (0, v.bits(dtype))
            });
            self.store(index, DType::I64, k)?;
            self.store(value, dtype, v)?;
        }
        Ok(())
    }

    pub(super) fn exec_cum_sum(&mut self, o: &CumSum) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let shape = self.shape(o.outer, o.red, o.inner);
        let (dst, carry, src) = (self.local(o.dst), self.local(o.carry), self.local(o.src));
        let state = sum_dtype(dtype);
        for (oo, i) in pairs(&shape) {
            let carry = shape.result(carry, oo, i, state);
            let mut sum =
                if self.fresh(o.init) { Value::number(dtype, 0) } else { self.value(carry, state)? };
            for k in 0..shape.red {
                let r = if o.reverse { shape.red - 1 - k } else { k };
                let v = self.value(shape.element(src, oo, r, i, dtype), dtype)?;
                let next = self.add(sum, v);
                let out = if o.exclusive { sum } else { next };
                self.put(shape.element(dst, oo, r, i, dtype), dtype, out)?;
                sum = next;
            }
            self.put(carry, state, sum)?;
        }
        Ok(())
    }
}

impl Cx<'_> {
    pub(super) fn exec_sort(&mut self, o: &SortKv) -> Result<(), Fault> {
        let dtype = self.inst.dtype;
        let (key, value) = (self.local(o.key), self.local(o.value));
        let pitch = i64::from(o.cols.body);
        for r in 0..self.count(o.rows) {
            let (keys, values) = (
                key.step(r, pitch * i64::from(dtype.size())),
                value.step(r, pitch * i64::from(DType::I64.size())),
            );
            let at = |base: Address, c: u64, d: DType| base.step(c, d.size().into());
            let mut row = Vec::new();
            for c in 0..self.count(o.cols) {
                row.push((
                    self.load(at(keys, c, dtype), dtype)?,
                    self.load(at(values, c, DType::I64), DType::I64)?,
                ));
            }
            // Stable. NaN is the largest and equal to NaN.
            row.sort_by(|a, b| {
                let (a, b) = if o.descending { (b, a) } else { (a, b) };
                let (x, y) = (Value::of(dtype, a.0), Value::of(dtype, b.0));
                match (x.is_nan(), y.is_nan()) {
                    (false, false) if scalar::lt(x, y) => Ordering::Less,
                    (false, false) if scalar::gt(x, y) => Ordering::Greater,
                    (false, false) => Ordering::Equal,
                    (x, y) => x.cmp(&y),
                }
            });
            for (c, (k, v)) in (0..).zip(row) {
                self.store(at(keys, c, dtype), dtype, k)?;
                self.store(at(values, c, DType::I64), DType::I64, v)?;
            }
        }
        Ok(())
    }
}

impl Shape {
    fn element(&self, base: Address, o: u64, r: u64, i: u64, dtype: DType) -> Address {
        let size = i64::from(dtype.size());
        let step = |n: i64| n.saturating_mul(size);
        base.step(o, step(self.pitch.0)).step(r, step(self.pitch.1)).step(i, size)
    }
    fn result(&self, base: Address, o: u64, i: u64, dtype: DType) -> Address {
        let size = i64::from(dtype.size());
        base.step(o, self.pitch.1.saturating_mul(size)).step(i, size)
    }
}

/// Every result: (o, i).
fn pairs(s: &Shape) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (outer, inner) = (s.outer, s.inner);
    (0..outer).flat_map(move |o| (0..inner).map(move |i| (o, i)))
}

/// An integer that stays in its dtype; other values as they are.
fn wrap(v: Value, dtype: DType) -> Value {
    match v {
        Int(_) => Value::of(dtype, v.bits(dtype)),
        v => v,
    }
}

fn neutral(what: Fold, dtype: DType) -> Value {
    match what {
        Fold::Max => Value::lowest(dtype),
        Fold::Min => Value::highest(dtype),
        Fold::Any => Value::number(dtype, 0),
        Fold::Prod | Fold::All => Value::number(dtype, 1),
    }
}

/// Whether a later `v` replaces `best`. NaN counts as the extreme.
fn better(v: Value, best: Value, largest: bool, last: bool) -> bool {
    if v.is_nan() || best.is_nan() {
        return v.is_nan() && (last || !best.is_nan());
    }
    let strict = if largest { scalar::gt(v, best) } else { scalar::lt(v, best) };
    strict || (last && scalar::eq(v, best))
}
