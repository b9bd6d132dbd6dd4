//! Memory as strides see it, in terms of views: what other systems call `as_strided` and strided stores.
//!
//! A graph has no addresses, so a strided access is taken apart into reshapes, slices, a transpose and an expansion, which fusion folds
//! into addresses again. That works where strides nest (each is a multiple of the next smaller one and the axes do not
//! run into each other), as those of slices, steps, transposes and broadcasts do. Other patterns gather by a constant index.

use crate::{DType, Dim, Graph, IrError, Op, PadMode, Scalar, Tensor, ValueId};

/// One step of a strided access, on a dense tensor of known shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewStep {
    /// Same elements under another shape.
    Reshape(Vec<usize>),
    /// The first index and the extent per axis.
    Slice(Vec<usize>, Vec<usize>),
    /// Axis i of the result is axis `perm[i]`.
    Transpose(Vec<usize>),
    /// Broadcast to a shape.
    Expand(Vec<usize>),
    /// Zeros behind each axis.
    Pad(Vec<usize>),
}

/// Axes of more than one element in order of falling stride, with extents and strides; `None` where they do not nest.
fn nested(shape: &[usize], strides: &[usize]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] != 1 && strides[i] != 0).collect();
    order.sort_by(|&a, &b| strides[b].cmp(&strides[a]));
    let nests = order.windows(2).all(|w| {
        let (outer, inner) = (strides[w[0]], strides[w[1]]);
        outer.is_multiple_of(inner) && shape[w[1]] <= outer / inner
    });
    nests.then_some(order)
}

/// The steps that read `shape` with `strides` from `offset` on in a flat tensor of `len` elements; `None` where only a gather can.
#[must_use]
pub fn strided_view(len: usize, shape: &[usize], strides: &[usize], offset: usize) -> Option<Vec<ViewStep>> {
    if shape.contains(&0) || shape.len() != strides.len() {
        return None;
    }
    let order = nested(shape, strides)?;
    let Some(&first) = order.first() else {
        let steps = [
            ViewStep::Slice(vec![offset], vec![1]),
            ViewStep::Reshape(vec![1; shape.len()]),
            ViewStep::Expand(shape.to_vec()),
        ];
        return (offset < len).then(|| steps.to_vec());
    };
    let mut steps = vec![];
    // Whole runs of the outermost stride.
    let outer = strides[first];
    let runs = len / outer;
    let (mut radices, mut start, mut rest) = (vec![runs], vec![], offset);
    for w in order.windows(2) {
        radices.push(strides[w[0]] / strides[w[1]]);
    }
    let inner = strides[*order.last()?];
    for &i in &order {
        start.push(rest / strides[i]);
        rest %= strides[i];
    }
    let mut lens: Vec<usize> = order.iter().map(|&i| shape[i]).collect();
    let kept = lens.clone();
    if inner > 1 {
        radices.push(inner);
        start.push(rest);
        lens.push(1);
    }
    if start.iter().zip(&lens).zip(&radices).any(|((s, n), r)| s + n > *r) {
        return None;
    }
    if !len.is_multiple_of(outer) {
        steps.push(ViewStep::Slice(vec![0], vec![runs * outer]));
    }
    steps.push(ViewStep::Reshape(radices));
    steps.push(ViewStep::Slice(start, lens));
    steps.push(ViewStep::Reshape(kept));
    let mut by_axis: Vec<usize> = (0..order.len()).collect();
    by_axis.sort_by_key(|&k| order[k]);
    steps.push(ViewStep::Transpose(by_axis));
    let ones: Vec<usize> = (0..shape.len()).map(|i| if order.contains(&i) { shape[i] } else { 1 }).collect();
    steps.push(ViewStep::Reshape(ones));
    steps.push(ViewStep::Expand(shape.to_vec()));
    Some(steps)
}

/// The steps that write a dense tensor of `shape` with `strides` into zeros of `len` elements, flat; `None` where elements would
/// meet or lie outside.
#[must_use]
pub fn strided_store(shape: &[usize], strides: &[usize], len: usize) -> Option<Vec<ViewStep>> {
    if shape.contains(&0) || shape.len() != strides.len() {
        return None;
    }
    let own: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] != 1).collect();
    let mut order = own.clone();
    order.sort_by(|&a, &b| strides[b].cmp(&strides[a]));
    if order.iter().any(|&i| strides[i] == 0) {
        return None;
    }
    let perm: Vec<usize> = order.iter().filter_map(|i| own.iter().position(|o| o == i)).collect();
    let mut steps = vec![ViewStep::Reshape(own.iter().map(|&i| shape[i]).collect())];
    if !perm.is_empty() {
        steps.push(ViewStep::Transpose(perm));
    }
    // From the inside out: the elements of an axis become blocks of its stride, and fill a block of the next axis.
    let mut dims: Vec<usize> = order.iter().map(|&i| shape[i]).collect();
    dims.push(1);
    steps.push(ViewStep::Reshape(dims.clone()));
    let mut content = 1usize;
    for k in (0..order.len()).rev() {
        let stride = strides[order[k]];
        let room = if k == 0 { len } else { strides[order[k - 1]] };
        content = shape[order[k]].checked_sub(1)?.checked_mul(stride)?.checked_add(content)?;
        if content > room {
            return None;
        }
        let rows = room.div_ceil(stride);
        let pad = |dims: &[usize]| {
            let (n, b) = (dims[k], dims[k + 1]);
            (0..dims.len())
                .map(|i| {
                    if i == k {
                        rows - n
                    } else if i == k + 1 {
                        stride - b
                    } else {
                        0
                    }
                })
                .collect()
        };
        let after: Vec<usize> = pad(&dims);
        if after.iter().any(|&p| p > 0) {
            steps.push(ViewStep::Pad(after));
        }
        dims.truncate(k);
        dims.push(rows * stride);
        steps.push(ViewStep::Reshape(dims.clone()));
        if rows * stride != room {
            dims[k] = room;
            steps.push(ViewStep::Slice(vec![0; dims.len()], dims.clone()));
        }
    }
    if order.is_empty() {
        steps.push(ViewStep::Pad(vec![len.checked_sub(1)?]));
    }
    Some(steps)
}

/// The flat index that each element of a strided access has.
#[must_use]
pub fn strided_index(shape: &[usize], strides: &[usize], offset: usize) -> Vec<usize> {
    let mut out = vec![offset];
    for (&n, &s) in shape.iter().zip(strides) {
        out = out.iter().flat_map(|&at| (0..n).map(move |i| at + i * s)).collect();
    }
    out
}

/// Which axis of a product's operands is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupAxis {
    /// Rows of the left operand; group g is multiplied by the g-th matrix of the right one.
    M,
    /// The summed axis; each group gives a product of its own.
    K,
}

impl Graph {
    fn constants(&mut self, shape: &[usize]) -> Vec<Dim> {
        shape.iter().map(|&n| self.dims.constant(n as i64)).collect()
    }
    /// Applies the steps of a strided access to a tensor.
    ///
    /// # Errors
    /// When a step does not fit the shape.
    pub fn view_steps(&mut self, x: ValueId, steps: &[ViewStep]) -> Result<ValueId, IrError> {
        let mut v = x;
        for step in steps {
            v = match step {
                ViewStep::Reshape(s) => {
                    let shape = self.constants(s);
                    self.push(Op::Reshape { shape }, &[v])?
                }
                ViewStep::Slice(start, len) => {
                    let (start, len) = (self.constants(start), self.constants(len));
                    let step = vec![1; len.len()];
                    self.push(Op::Slice { start, len, step }, &[v])?
                }
                ViewStep::Transpose(perm) => self.push(Op::Transpose { perm: perm.clone() }, &[v])?,
                ViewStep::Expand(s) => {
                    let shape = self.constants(s);
                    self.push(Op::Expand { shape }, &[v])?
                }
                ViewStep::Pad(after) => {
                    let after = self.constants(after);
                    let before = vec![Dim::ZERO; after.len()];
                    let zero = if self.dtype(v).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
                    self.push(Op::Pad { before, after, mode: PadMode::Constant, value: zero }, &[v])?
                }
            };
        }
        Ok(v)
    }
    /// Reads `shape` with element `strides` from element `offset` of `x`, whose shape is constant. A stride of 0 is a broadcast.
    ///
    /// # Errors
    /// When x has no constant shape, or an element lies outside it.
    pub fn as_strided(
        &mut self,
        x: ValueId,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<ValueId, IrError> {
        let len = self.constant_len(x)?;
        let flat = self.view_steps(x, &[ViewStep::Reshape(vec![len])])?;
        if let Some(steps) = strided_view(len, shape, strides, offset) {
            return self.view_steps(flat, &steps);
        }
        let index: Vec<i64> = strided_index(shape, strides, offset).into_iter().map(|i| i as i64).collect();
        let index = Tensor::from_slice(shape, &index).map_err(|e| invalid("as_strided", e))?;
        let index = self.constant(None, index);
        self.push(Op::Gather { axis: 0 }, &[flat, index])
    }
    /// Writes `x`, whose shape is constant, with element `strides` into zeros of shape `buffer`. No two elements may meet.
    ///
    /// # Errors
    /// When x has no constant shape, an element lies outside the buffer, or two meet.
    pub fn strided_scatter(
        &mut self,
        x: ValueId,
        buffer: &[usize],
        strides: &[usize],
    ) -> Result<ValueId, IrError> {
        let op = "strided_scatter";
        let (n, len) = (self.constant_len(x)?, buffer.iter().product());
        let dims = self.shape(x).to_vec();
        let shape: Vec<usize> =
            dims.iter().filter_map(|&d| self.dims.as_const(d)).map(|d| d as usize).collect();
        if let Some(steps) = strided_store(&shape, strides, len) {
            let flat = self.view_steps(x, &steps)?;
            return self.view_steps(flat, &[ViewStep::Reshape(buffer.to_vec())]);
        }
        let (mut from, mut hit) = (vec![0i64; len], vec![false; len]);
        for (k, at) in strided_index(&shape, strides, 0).into_iter().enumerate() {
            match hit.get_mut(at) {
                Some(h) if !*h => (*h, from[at]) = (true, k as i64),
                Some(_) => return Err(invalid(op, format!("two elements have place {at}"))),
                None => return Err(invalid(op, format!("place {at} of {len}"))),
            }
        }
        let flat = self.view_steps(x, &[ViewStep::Reshape(vec![n])])?;
        if n == 0 || len == 0 {
            let dtype = self.dtype(x);
            let shape = self.constants(buffer);
            return self.push(Op::Fill { value: Scalar::Int(0), dtype, shape }, &[]);
        }
        let from = Tensor::from_slice(buffer, &from).map_err(|e| invalid(op, e))?;
        let hit = Tensor::from_bools(buffer, &hit).map_err(|e| invalid(op, e))?;
        let (from, hit) = (self.constant(None, from), self.constant(None, hit));
        let moved = self.push(Op::Gather { axis: 0 }, &[flat, from])?;
        let zero = self.scalar(self.dtype(x), 0.0);
        self.push(Op::Select {}, &[hit, moved, zero])
    }
    fn constant_len(&self, x: ValueId) -> Result<usize, IrError> {
        let n = self
            .shape(x)
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(self.dims.as_const(d)?).ok()?));
        n.ok_or_else(|| invalid("strided access", "the shape is not constant"))
    }

    /// `on` where an index along the new axis `axis` is the value of `index` (which may count from the end), `off` elsewhere.
    ///
    /// # Errors
    /// When the index is no integer tensor or the axis does not exist.
    pub fn one_hot(
        &mut self,
        index: ValueId,
        depth: Dim,
        axis: usize,
        (on, off): (f64, f64),
        dtype: DType,
    ) -> Result<ValueId, IrError> {
        let mut shape = self.shape(index).to_vec();
        if axis > shape.len() {
            return Err(invalid("one_hot", format!("axis {axis} of rank {}", shape.len() + 1)));
        }
        let mut places = vec![Dim::ONE; shape.len() + 1];
        places[axis] = depth;
        shape.insert(axis, Dim::ONE);
        let kind = self.dtype(index);
        let zero = self.scalar(kind, 0.0);
        let n = self.push(Op::Dims { values: vec![depth], scalar: true, dtype: kind }, &[])?;
        let wrapped = self.add(index, n)?;
        let negative = self.binary(crate::BinaryOp::Lt, index, zero)?;
        let index = self.select(negative, wrapped, index)?;
        let index = self.reshape(index, &shape)?;
        let range = Op::Range { start: Dim::ZERO, step: Dim::ONE, len: depth, dtype: kind };
        let steps = self.push(range, &[])?;
        let steps = self.reshape(steps, &places)?;
        let hit = self.binary(crate::BinaryOp::Eq, index, steps)?;
        let (on, off) = (self.scalar(dtype, on), self.scalar(dtype, off));
        self.select(hit, on, off)
    }

    /// Products of groups: `ends` are where the groups of an axis end, in order; a group may be empty. Grouped by rows, `x[m, k]` times
    /// `w[g, k, n]` is `[m, n]` (rows past the last end are left out); grouped along k, `x[m, k]` times `w[k, n]` is `[g, m, n]`, where an
    /// empty group gives zeros and what lies past the last end is not read. Transposed operands are `x[k, m]`, `w[g, n, k]` or
    /// `w[n, k]`; `bias` is `[g, n]`.
    ///
    /// # Errors
    /// Ranks, dtypes or extents that do not fit.
    pub fn grouped_matmul(
        &mut self,
        (x, trans_a): (ValueId, bool),
        (w, trans_b): (ValueId, bool),
        ends: &[Dim],
        axis: GroupAxis,
        bias: Option<ValueId>,
    ) -> Result<ValueId, IrError> {
        let mut parts = vec![];
        let mut start = Dim::ZERO;
        for (g, &end) in ends.iter().enumerate() {
            let len = self.dims.sub(end, start);
            let at = self.dims.constant(g as i64);
            let (a, b) = match axis {
                GroupAxis::M => {
                    let a = self.slice_one(x, usize::from(trans_a), start, len)?;
                    let b = self.slice_one(w, 0, at, Dim::ONE)?;
                    let shape = self.shape(b)[1..].to_vec();
                    (a, self.reshape(b, &shape)?)
                }
                GroupAxis::K => {
                    let a = self.slice_one(x, usize::from(!trans_a), start, len)?;
                    (a, self.slice_one(w, usize::from(trans_b), start, len)?)
                }
            };
            let mut y = self.push(Op::MatMul { trans_a, trans_b }, &[a, b])?;
            if let Some(bias) = bias {
                let row = self.slice_one(bias, 0, at, Dim::ONE)?;
                y = self.add(y, row)?;
            }
            if axis == GroupAxis::K {
                let shape = [&[Dim::ONE], self.shape(y)].concat();
                y = self.reshape(y, &shape)?;
            }
            parts.push(y);
            start = end;
        }
        if parts.is_empty() {
            return Err(invalid("grouped_matmul", "no groups"));
        }
        self.concat(&parts, 0)
    }
    fn slice_one(&mut self, x: ValueId, axis: usize, start: Dim, len: Dim) -> Result<ValueId, IrError> {
        let mut lens = self.shape(x).to_vec();
        let mut starts = vec![Dim::ZERO; lens.len()];
        match (starts.get_mut(axis), lens.get_mut(axis)) {
            (Some(s), Some(l)) => (*s, *l) = (start, len),
            _ => return Err(invalid("grouped_matmul", format!("rank {} has no axis {axis}", lens.len()))),
        }
        let step = vec![1; lens.len()];
        self.push(Op::Slice { start: starts, len: lens, step }, &[x])
    }
}

fn invalid(op: &'static str, why: impl std::fmt::Display) -> IrError {
    IrError::Rule { op, node: None, operands: String::new(), rule: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::eval_graph;

    fn ramp(shape: &[usize]) -> Tensor {
        let data: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        Tensor::from_slice(shape, &data).unwrap()
    }

    #[test]
    fn strided_reads() {
        for (from, shape, strides, offset, views) in [
            (&[6, 10][..], &[4, 3][..], &[10, 1][..], 0, true),
            (&[6, 10], &[4, 3], &[10, 2], 1, true),
            (&[6, 10], &[10, 6], &[1, 10], 0, true),
            (&[6, 10], &[2, 6, 3], &[0, 10, 1], 0, true),
            (&[1, 7], &[7, 3], &[1, 0], 0, true),
            (&[20], &[3, 4], &[2, 1], 5, false),
            (&[20], &[3, 2], &[5, 3], 0, false),
            (&[23], &[4, 2], &[5, 2], 0, false),
            (&[5], &[3, 2], &[0, 0], 2, true),
        ] {
            let x = ramp(from);
            let mut g = Graph::new("g");
            let dims: Vec<Dim> = from.iter().map(|&n| g.dims.constant(n as i64)).collect();
            let v = g.input("x", DType::I64, &dims);
            let y = g.as_strided(v, shape, strides, offset).unwrap();
            g.output("y", y);
            let got = eval_graph(&g, &[("x", x)]).unwrap().swap_remove(0);
            let want: Vec<i64> =
                strided_index(shape, strides, offset).into_iter().map(|i| i as i64).collect();
            assert_eq!(got, Tensor::from_slice(shape, &want).unwrap(), "{from:?} {shape:?} {strides:?}");
            let is_view = !g.nodes.iter().any(|n| matches!(n.op, Op::Gather { .. }));
            assert_eq!(is_view, views, "{from:?} {shape:?} {strides:?}");
        }
    }

    #[test]
    fn strided_writes() {
        for (shape, buffer, strides, views) in [
            (&[2, 3][..], &[4, 5][..], &[5, 1][..], true),
            (&[2, 3], &[2, 7], &[7, 2], true),
            (&[2, 3], &[3, 2], &[1, 2], true),
            (&[4, 1, 3], &[6, 2, 3], &[6, 3, 1], true),
            (&[2, 2], &[9], &[5, 3], true),
            (&[3, 4], &[3, 10], &[10, 3], true),
            (&[2, 3], &[9], &[2, 3], true),
            (&[3, 2], &[8], &[2, 3], false),
            (&[1, 1], &[4], &[7, 9], true),
        ] {
            let x = ramp(shape);
            let mut g = Graph::new("g");
            let dims: Vec<Dim> = shape.iter().map(|&n| g.dims.constant(n as i64)).collect();
            let v = g.input("x", DType::I64, &dims);
            let y = g.strided_scatter(v, buffer, strides).unwrap();
            g.output("y", y);
            let got = eval_graph(&g, &[("x", x)]).unwrap().swap_remove(0);
            let mut want = vec![0i64; buffer.iter().product()];
            for (k, at) in strided_index(shape, strides, 0).into_iter().enumerate() {
                want[at] = k as i64;
            }
            assert_eq!(got, Tensor::from_slice(buffer, &want).unwrap(), "{shape:?} {strides:?}");
            let is_view = !g.nodes.iter().any(|n| matches!(n.op, Op::Gather { .. }));
            assert_eq!(is_view, views, "{shape:?} {strides:?}");
        }
    }
}
