//! Ops that compute or change shapes. On known elements they leave no trace in the graph.

use dvm_ir::{BinaryOp as B, CheckCond, DType, Dim, Op};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::{Nd, V, count};

pub(super) const ROWS: &[OpRow] = &[
    op!("Concat", 4, concat),
    op!("Expand", 8, expand),
    op!("Flatten", 1, flatten),
    op!("Identity", 1, identity),
    op!("Reshape", 5, reshape),
    op!("Shape", 1, shape),
    op!("Size", 1, size),
    op!("Slice", 1, slice),
    op!("Split", 1, split),
    op!("Squeeze", 1, squeeze, "without axes, extents must be known to be 1 or not"),
    op!("Transpose", 1, transpose),
    op!("Unsqueeze", 1, unsqueeze),
];

fn identity(c: &mut Cx<'_, '_>) -> Outs {
    Ok(vec![c.input(0)?])
}

fn shape(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let bound = |i: i64| {
        let n = shape.len() as i64;
        (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n) as usize
    };
    let (start, end) = (bound(c.int_or("start", 0)?), bound(c.int_or("end", i64::MAX)?));
    let part = shape.get(start..end).unwrap_or_default().to_vec();
    Ok(vec![c.imp.of_nd(DType::I64, Nd::vector(part))])
}

fn size(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let n = c.dims().product(&shape);
    Ok(vec![c.imp.of_nd(DType::I64, Nd::scalar(n))])
}

impl Cx<'_, '_> {
    /// A new shape for known or unknown elements.
    pub(super) fn fold_reshape(&mut self, x: V, shape: Vec<Dim>) -> Result<V, Fail> {
        let nd = self.known(x).and_then(|nd| {
            let shape: Option<Vec<usize>> = shape
                .iter()
                .map(|&d| self.dims().as_const(d).and_then(|c| usize::try_from(c).ok()))
                .collect();
            let shape = shape?;
            (count(&shape)? == nd.data.len()).then_some(Nd { shape, data: nd.data })
        });
        let dtype = self.dtype(x);
        self.known_or(dtype, &[x], nd, |c| c.reshape(x, shape))
    }
    fn need_vector(&mut self, v: V, what: &str) -> Result<(), Fail> {
        if self.rank(v) == 1 {
            Ok(())
        } else {
            invalid(format!("the {what} must have rank 1, it has rank {}", self.rank(v)))
        }
    }
}

/// Entries are extents; -1 is what is left, 0 copies the operand's extent (unless `allowzero`). A symbolic extent that
/// happens to be 0 stays 0. An entry that is an input's data may turn out to be any of these; beyond two of them the cases
/// multiply, and a graph for the values at hand is the better answer.
fn reshape(c: &mut Cx<'_, '_>) -> Outs {
    let (x, target) = (c.input(0)?, c.input(1)?);
    let allow_zero = c.flag("allowzero", false)?;
    c.need_vector(target, "shape")?;
    let entries = c.elems(target)?;
    let mut open = entries.clone();
    open.retain(|&t| c.dims().as_const(t).is_none() && c.dims().range(t).0 < 0);
    if open.len() > 2 {
        return Err(Fail::NeedsValues(c.imp.source_inputs(target)));
    }
    let from = c.shape(x);
    let mut shape = Vec::with_capacity(entries.len());
    let mut infer: Option<usize> = None;
    let mut maybe = vec![];
    for (i, &t) in entries.iter().enumerate() {
        let same = from.get(i).copied();
        match c.dims().as_const(t) {
            Some(-1) if infer.is_some() => return invalid("the shape has more than one -1"),
            Some(-1) => {
                infer = Some(i);
                shape.push(Dim::ONE);
            }
            Some(0) if !allow_zero => match same {
                Some(d) => shape.push(d),
                None => return invalid(format!("the 0 at position {i} has no extent to copy")),
            },
            Some(n) if n < -1 => return invalid(format!("extent {n} in the shape")),
            Some(_) => shape.push(t),
            None if c.dims().range(t).0 >= 0 => shape.push(t),
            None => {
                let minus = c.num(-1);
                let is_rest = c.dims().eq(t, minus);
                let known = match same {
                    Some(d) if !allow_zero => {
                        let zero = c.dims().eq(t, Dim::ZERO);
                        c.dims().select(zero, d, t)
                    }
                    _ => t,
                };
                maybe.push((i, is_rest));
                let d = c.dims().select(is_rest, Dim::ONE, known);
                shape.push(c.dims().max(d, Dim::ZERO));
            }
        }
    }
    let total = c.dims().product(&from);
    let given = c.dims().product(&shape);
    if let Some(i) = infer {
        if given == Dim::ZERO {
            return invalid("-1 cannot be inferred beside an extent of 0");
        }
        shape[i] = c.dims().floor_div(total, given);
    }
    for (i, is_rest) in maybe {
        // Through `max`, so that a case distinction stays one factor of the products it enters.
        let dims = c.dims();
        let divisor = dims.max(given, Dim::ONE);
        let rest = dims.floor_div(total, divisor);
        let extent = dims.select(is_rest, rest, shape[i]);
        shape[i] = dims.max(extent, Dim::ZERO);
    }
    Ok(vec![c.fold_reshape(x, shape)?])
}

fn flatten(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let axis = c.int_or("axis", 1)?;
    let rank = shape.len();
    // The axis may be the rank itself.
    let axis = if axis == rank as i64 { rank } else { c.axis(axis, rank)? };
    let (rows, cols) = (c.dims().product(&shape[..axis]), c.dims().product(&shape[axis..]));
    Ok(vec![c.fold_reshape(x, vec![rows, cols])?])
}

fn squeeze(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let axes = match c.consts_or_attr(1, "axes")? {
        Some(axes) => c.axes(&axes, shape.len())?,
        None => {
            let mut ones = vec![];
            for (i, &d) in shape.iter().enumerate() {
                match c.dims().is_equal(d, Dim::ONE) {
                    dvm_ir::Answer::Proven => ones.push(i),
                    dvm_ir::Answer::Disproven => {}
                    // Whether the axis goes decides the rank.
                    dvm_ir::Answer::Unknown => return Err(c.imp.undecided_by(&[d])),
                }
            }
            ones
        }
    };
    for &a in &axes {
        c.assume(CheckCond::Equal(shape[a], Dim::ONE), &format!("axis {a} is squeezed"))?;
    }
    let kept = shape.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).collect();
    Ok(vec![c.fold_reshape(x, kept)?])
}

fn unsqueeze(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let Some(axes) = c.consts_or_attr(1, "axes")? else { return invalid("the axes are missing") };
    let own = c.shape(x);
    let rank = own.len() + axes.len();
    let axes = c.axes(&axes, rank)?;
    let mut own = own.into_iter();
    let shape = (0..rank)
        .map(|i| if axes.contains(&i) { Some(Dim::ONE) } else { own.next() })
        .collect::<Option<Vec<_>>>();
    let Some(shape) = shape else { return invalid("axes do not fit the rank") };
    Ok(vec![c.fold_reshape(x, shape)?])
}

fn transpose(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let perm = match c.ints("perm")? {
        Some(p) => {
            let perm = p.iter().map(|&a| c.axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank) {
                return invalid(format!("{p:?} is not a permutation of {rank} axes"));
            }
            perm
        }
        None => (0..rank).rev().collect(),
    };
    let nd = c.known(x).and_then(|nd| nd.transpose(&perm));
    Ok(vec![c.known_or(c.dtype(x), &[x], nd, |c| c.transpose(x, perm))?])
}

fn concat(c: &mut Cx<'_, '_>) -> Outs {
    let parts = c.inputs()?;
    let Some(&first) = parts.first() else { return invalid("it has no operands") };
    let Some(axis) = c.int("axis")? else { return invalid("attribute `axis` is missing") };
    let axis = c.axis(axis, c.rank(first))?;
    let nd = if c.is_all_known(&parts) {
        let all: Option<Vec<Nd>> = parts.iter().map(|&p| c.known(p)).collect();
        all.and_then(|all| Nd::concat(&all, axis))
    } else {
        None
    };
    if parts.len() == 1 {
        return Ok(vec![first]);
    }
    Ok(vec![c.known_or(c.dtype(first), &parts, nd, |c| c.push(Op::Concat { axis }, &parts))?])
}

fn expand(c: &mut Cx<'_, '_>) -> Outs {
    let (x, target) = (c.input(0)?, c.input(1)?);
    c.need_vector(target, "shape")?;
    let target = c.elems(target)?;
    Ok(vec![c.expand_both(x, &target)?])
}

impl Cx<'_, '_> {
    /// NumPy broadcasting of a value and a shape, either way.
    pub(super) fn expand_both(&mut self, x: V, target: &[Dim]) -> Result<V, Fail> {
        let from = self.shape(x);
        let rank = from.len().max(target.len());
        let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::ONE, |j| s[j]);
        let mut shape = Vec::with_capacity(rank);
        for i in 0..rank {
            let (a, b) = (at(&from, i), at(target, i));
            let Some(d) = self.dims().broadcast(a, b) else {
                let dims = self.dims();
                let (a, b) = (dims.display(a).to_string(), dims.display(b).to_string());
                return invalid(format!("axis {i}: extents {a} and {b} do not broadcast"));
            };
            if b != Dim::ONE && d != a {
                // The target may be 1 where the operand is not.
                self.assume(CheckCond::EqualOrOne(b, d), &format!("axis {i} of the shape"))?;
            }
            shape.push(d);
        }
        let nd = self.known(x).and_then(|nd| {
            let shape: Option<Vec<usize>> = shape
                .iter()
                .map(|&d| self.dims().as_const(d).and_then(|c| usize::try_from(c).ok()))
                .collect();
            nd.broadcast(&shape?)
        });
        let dtype = self.dtype(x);
        self.known_or(dtype, &[x], nd, |c| c.expand(x, shape))
    }
    /// An index that may count from the end, clamped to `lo..=hi` (dims).
    fn clamp_index(&mut self, i: Dim, extent: Dim, lo: Dim, hi: Dim) -> Result<Dim, Fail> {
        const ENDLESS: i64 = 1_000_000_000;
        if let Some(c) = self.dims().as_const(i).filter(|c| !(-ENDLESS + 1..ENDLESS).contains(c)) {
            // A sentinel for "to the end": kept out of the shapes, and checked where an extent could reach it.
            if (-(1 << 62)..1 << 62).contains(&c) {
                let limit = self.num(c.abs());
                self.assume(CheckCond::AtMost(extent, limit), "a slice bound that means the end")?;
            }
            return Ok(if c < 0 { lo } else { hi });
        }
        let dims = self.dims();
        let at = match dims.as_const(i) {
            // Below 0, the wrapped index cannot exceed the extent; from 0 on, it cannot be below `lo`.
            Some(c) if c < 0 => {
                let wrapped = dims.add(i, extent);
                if wrapped == hi {
                    return Ok(hi);
                }
                let at = dims.max(wrapped, lo);
                // Going backwards, the last element is below 0 when there is none.
                return Ok(if hi == extent { at } else { dims.min(at, hi) });
            }
            Some(_) => return Ok(dims.min(i, hi)),
            None => {
                let wrapped = dims.add(i, extent);
                let negative = dims.lt(i, Dim::ZERO);
                dims.select(negative, wrapped, i)
            }
        };
        let at = dims.max(at, lo);
        Ok(dims.min(at, hi))
    }
    /// First index and extent of a slice along an axis.
    fn slice_bounds(&mut self, extent: Dim, start: Dim, end: Dim, step: i64) -> Result<(Dim, Dim), Fail> {
        let minus = self.num(-1);
        let last = self.dims().sub(extent, Dim::ONE);
        let (lo, hi) = if step > 0 { (Dim::ZERO, extent) } else { (minus, last) };
        let start = self.clamp_index(start, extent, if step > 0 { lo } else { Dim::ZERO }, hi)?;
        let end = self.clamp_index(end, extent, lo, hi)?;
        let size = self.num(step.saturating_abs());
        let dims = self.dims();
        let span = if step > 0 { dims.sub(end, start) } else { dims.sub(start, end) };
        let len = dims.ceil_div(span, size);
        Ok((start, dims.max(len, Dim::ZERO)))
    }
}

fn slice(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let rank = shape.len();
    let (starts, ends, axes, steps) = if c.opset < 10 {
        let (Some(s), Some(e)) = (c.ints("starts")?, c.ints("ends")?) else {
            return invalid("starts or ends are missing");
        };
        let s: Vec<Dim> = s.iter().map(|&i| c.num(i)).collect();
        let e: Vec<Dim> = e.iter().map(|&i| c.num(i)).collect();
        (s, e, c.ints("axes")?, None)
    } else {
        let (s, e) = (c.input(1)?, c.input(2)?);
        let axes = c.opt(3).map(|v| c.consts(v)).transpose()?;
        let steps = c.opt(4).map(|v| c.consts(v)).transpose()?;
        (c.elems(s)?, c.elems(e)?, axes, steps)
    };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return invalid("starts, ends, axes and steps have different lengths");
    }
    let mut start = vec![Dim::ZERO; rank];
    let mut len = shape.clone();
    let mut step = vec![1; rank];
    c.axes(&axes, rank)?;
    for (i, &a) in axes.iter().enumerate() {
        let a = c.axis(a, rank)?;
        if steps[i] == 0 {
            return invalid("a step is 0");
        }
        (start[a], len[a]) = c.slice_bounds(shape[a], starts[i], ends[i], steps[i])?;
        // One element at most: the step then does not matter, and a huge one would overflow.
        step[a] = if c.is_const(len[a], 1) || c.is_const(len[a], 0) { 1 } else { steps[i] };
        if c.is_const(len[a], 0) {
            start[a] = Dim::ZERO;
        }
    }
    let nd = c.known(x).and_then(|nd| {
        let s: Option<Vec<i64>> = start.iter().map(|&d| c.dims().as_const(d)).collect();
        let l: Option<Vec<usize>> = len.iter().map(|&d| c.dims().as_const(d).map(|n| n as usize)).collect();
        nd.slice(&s?, &l?, &step)
    });
    Ok(vec![c.known_or(c.dtype(x), &[x], nd, |c| {
        if len == c.shape(x) && step.iter().all(|&s| s == 1) {
            return Ok(x);
        }
        c.push(Op::Slice { start, len, step }, &[x])
    })?])
}

fn split(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let axis = c.axis(c.int_or("axis", 0)?, shape.len())?;
    let extent = shape[axis];
    let outputs = c.node.output.len() as i64;
    let sizes = match c.opt(1) {
        Some(v) => Some(c.elems(v)?),
        None => c.ints("split")?.map(|s| s.into_iter().map(|i| c.num(i)).collect::<Vec<_>>()),
    };
    let sizes = match sizes {
        Some(s) => s,
        None => {
            let n = c.int_or("num_outputs", outputs)?;
            if n < 1 || n != outputs {
                return invalid(format!("{n} parts for {outputs} outputs"));
            }
            let n = c.num(n);
            let dims = c.dims();
            // Chunks of equal size, the last ones shorter.
            let chunk = dims.ceil_div(extent, n);
            let mut rest = extent;
            let mut sizes = vec![];
            for _ in 0..outputs {
                let size = dims.min(chunk, rest);
                rest = dims.sub(rest, size);
                sizes.push(size);
            }
            sizes
        }
    };
    if sizes.len() as i64 != outputs {
        return invalid(format!("{} sizes for {outputs} outputs", sizes.len()));
    }
    let mut sum = Dim::ZERO;
    for &s in &sizes {
        sum = c.dims().add(sum, s);
    }
    c.assume(CheckCond::Equal(sum, extent), "the sizes add up to the extent")?;
    let mut start = Dim::ZERO;
    let mut outs = vec![];
    for size in sizes {
        let nd = c.known(x).and_then(|nd| {
            let (s, l) = (c.dims().as_const(start)?, usize::try_from(c.dims().as_const(size)?).ok()?);
            let mut starts = vec![0; nd.shape.len()];
            let mut lens = nd.shape.clone();
            (starts[axis], lens[axis]) = (s, l);
            nd.slice(&starts, &lens, &vec![1; nd.shape.len()])
        });
        outs.push(c.known_or(c.dtype(x), &[x], nd, |c| c.slice_axis(x, axis, start, size))?);
        start = c.dims().add(start, size);
    }
    Ok(outs)
}

/// Kept here for its shape arithmetic: repeats become an expand between two reshapes.
pub(super) fn tile(c: &mut Cx<'_, '_>) -> Outs {
    let (x, repeats) = (c.input(0)?, c.input(1)?);
    c.need_vector(repeats, "repeats")?;
    let repeats = c.elems(repeats)?;
    let shape = c.shape(x);
    if repeats.len() != shape.len() {
        return invalid(format!("{} repeats for rank {}", repeats.len(), shape.len()));
    }
    let (mut split, mut wide, mut out) = (vec![], vec![], vec![]);
    for (&d, &r) in shape.iter().zip(&repeats) {
        if r != Dim::ONE {
            split.push(Dim::ONE);
            wide.push(r);
        }
        split.push(d);
        wide.push(d);
        out.push(c.dims().mul(d, r));
    }
    let nd = c.known(x).and_then(|nd| {
        let o: Option<Vec<usize>> =
            out.iter().map(|&d| c.dims().as_const(d).and_then(|n| usize::try_from(n).ok())).collect();
        let strides = Nd::strides(&nd.shape);
        let own = nd.shape.clone();
        nd.pick(&o?, |ix| {
            Some(ix.iter().zip(&own).zip(&strides).map(|((&i, &d), &s)| i % d.max(1) * s).sum())
        })
    });
    if out.len() > 16 {
        return unsupported(format!("rank {}", out.len()));
    }
    Ok(vec![c.known_or(c.dtype(x), &[x], nd, |c| {
        let y = c.reshape(x, split)?;
        let y = c.expand(y, wide)?;
        c.reshape(y, out)
    })?])
}

/// `start, start + delta, ..` below `limit`.
pub(super) fn range(c: &mut Cx<'_, '_>) -> Outs {
    let (start, limit, delta) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dtype = c.dtype(start);
    if let (true, Some(v)) = (dtype.is_float(), float_range(c, start, limit, delta)?) {
        return Ok(vec![v]);
    }
    let one = |d: Vec<Dim>| match d.as_slice() {
        [d] => Ok(*d),
        d => invalid(format!("expected one number, got {}", d.len())),
    };
    let (start, limit, delta) = (one(c.elems(start)?)?, one(c.elems(limit)?)?, one(c.elems(delta)?)?);
    let dims = c.dims();
    let (span, step) = match dims.range(delta) {
        (lo, _) if lo > 0 => (dims.sub(limit, start), delta),
        (_, hi) if hi < 0 => (dims.sub(start, limit), dims.neg(delta)),
        (0, 0) => return invalid("the delta is 0"),
        _ => {
            // The sign of the delta is known only at run time.
            let (up, down) = (dims.sub(limit, start), dims.sub(start, limit));
            let (pos, back) = (dims.lt(Dim::ZERO, delta), dims.neg(delta));
            (dims.select(pos, up, down), dims.select(pos, delta, back))
        }
    };
    let len = dims.ceil_div(span, step);
    let len = dims.max(len, Dim::ZERO);
    if let Some(n) = dims.as_const(len).filter(|&n| n <= 64)
        && dims.as_const(start).is_some()
        && dims.as_const(delta).is_some()
    {
        let mut at = start;
        let data = (0..n)
            .map(|_| {
                let d = at;
                at = dims.add(at, delta);
                d
            })
            .collect();
        return Ok(vec![c.imp.of_nd(dtype, Nd::vector(data))]);
    }
    Ok(vec![c.push(Op::Range { start, step: delta, len, dtype }, &[])?])
}

/// Float ranges whose numbers are constants but not all integral: `start + i * delta`, by tensor ops.
fn float_range(c: &mut Cx<'_, '_>, start: V, limit: V, delta: V) -> Result<Option<V>, Fail> {
    if c.is_all_known(&[start, limit, delta])
        && [start, limit, delta].into_iter().all(|v| c.known(v).is_some())
    {
        return Ok(None);
    }
    let value = |c: &mut Cx<'_, '_>, v: V| {
        let t = c.const_tensor(v)?;
        if t.len() == 1 {
            Ok(t.get(0).as_f64())
        } else {
            invalid(format!("expected one number, got {}", t.len()))
        }
    };
    let (s, l, d) = (value(c, start)?, value(c, limit)?, value(c, delta)?);
    let len = ((l - s) / d).ceil().max(0.0);
    if !len.is_finite() || len > 1e15 {
        return invalid(format!("a range of {len} values"));
    }
    let len = c.num(len as i64);
    let dtype = c.dtype(start);
    let i = c.iota(len, dtype)?;
    let scaled = c.with(B::Mul, i, d)?;
    Ok(Some(c.with(B::Add, scaled, s)?))
}
