//! Ops that move elements.

use super::{Infer, Result_};
use crate::{CheckCond, Dim, PadMode, TensorType};

impl Infer<'_> {
    fn like(&self, shape: Vec<Dim>) -> TensorType {
        TensorType { dtype: self.dtype(0), shape }
    }

    pub(super) fn reshape(&mut self, shape: &[Dim]) -> Result_<TensorType> {
        let shape = self.extents(shape)?;
        if shape != self.shape(0) {
            let operand = self.operands[0];
            let (from, to) = (self.dims.product(&operand.shape), self.dims.product(&shape));
            let shown = |s: &[Dim]| self.dims.display_shape(s).to_string();
            let what = format!("element count of {} and {}", shown(&operand.shape), shown(&shape));
            self.ensure(CheckCond::Equal(from, to), what)?;
        }
        Ok(self.like(shape))
    }
    pub(super) fn transpose(&mut self, perm: &[usize]) -> Result_<TensorType> {
        let rank = self.shape(0).len();
        let mut seen = vec![false; rank];
        let fits = perm.len() == rank
            && perm.iter().all(|&p| seen.get_mut(p).is_some_and(|s| !std::mem::replace(s, true)));
        self.require(fits, format_args!("{perm:?} is not a permutation of {rank} axes"))?;
        Ok(self.like(perm.iter().map(|&p| self.shape(0)[p]).collect()))
    }
    pub(super) fn expand(&mut self, shape: &[Dim]) -> Result_<TensorType> {
        let shape = self.extents(shape)?;
        let operand = self.operands[0];
        self.expands(&operand.shape, &shape, "expand")?;
        Ok(self.like(shape))
    }
    fn per_axis(&self, lens: &[usize]) -> Result_<usize> {
        let rank = self.shape(0).len();
        let fits = lens.iter().all(|&n| n == rank);
        self.require(fits, format_args!("attributes of {lens:?} entries for {rank} axes"))?;
        Ok(rank)
    }
    pub(super) fn slice(&mut self, start: &[Dim], len: &[Dim], step: &[i64]) -> Result_<TensorType> {
        let rank = self.per_axis(&[start.len(), len.len(), step.len()])?;
        let shape = self.extents(len)?;
        for axis in 0..rank {
            let extent = self.shape(0)[axis];
            self.require(step[axis] != 0, format_args!("step 0 on axis {axis}"))?;
            if (start[axis], step[axis]) == (Dim::ZERO, 1) && len[axis] == extent {
                continue;
            }
            let step = self.dims.constant(step[axis]);
            self.walk_in_bounds(axis, start[axis], &[(len[axis], step)], extent)?;
        }
        Ok(self.like(shape))
    }
    /// Requires `start + sum(i * step)`, i below its count, to stay within `0..extent` unless a count is 0.
    fn walk_in_bounds(&mut self, axis: usize, start: Dim, loops: &[(Dim, Dim)], extent: Dim) -> Result_<()> {
        let (mut low, mut high, mut empty) = (start, start, Dim::ZERO);
        for &(count, step) in loops {
            let steps = self.dims.sub(count, Dim::ONE);
            let span = self.dims.mul(steps, step);
            let end = if self.dims.as_const(step).is_some_and(|s| s < 0) { &mut low } else { &mut high };
            *end = self.dims.add(*end, span);
            let none = self.dims.eq(count, Dim::ZERO);
            empty = self.dims.max(empty, none);
        }
        let low = self.dims.select(empty, Dim::ZERO, low);
        let after = self.dims.add(high, Dim::ONE);
        let after = self.dims.select(empty, Dim::ZERO, after);
        self.ensure(CheckCond::AtMost(Dim::ZERO, low), format_args!("first element of axis {axis}"))?;
        self.ensure(CheckCond::AtMost(after, extent), format_args!("last element of axis {axis}"))
    }
    pub(super) fn window(
        &mut self,
        axis: usize,
        count: Dim,
        size: Dim,
        stride: i64,
        dilation: i64,
    ) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.require(
            stride >= 1 && dilation >= 1,
            format_args!("stride {stride} and dilation {dilation} must be positive"),
        )?;
        self.extent(count, "number of windows")?;
        self.extent(size, "window size")?;
        let (by, apart) = (self.dims.constant(stride), self.dims.constant(dilation));
        let extent = self.shape(0)[axis];
        self.walk_in_bounds(axis, Dim::ZERO, &[(count, by), (size, apart)], extent)?;
        let mut shape = self.shape(0).to_vec();
        shape.splice(axis..=axis, [count, size]);
        Ok(self.like(shape))
    }
    pub(super) fn concat(&mut self, axis: usize) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.same_dtypes(0..self.operands.len())?;
        let mut shape = self.shape(0).to_vec();
        for i in 1..self.operands.len() {
            let other = self.operands[i];
            let same = other.shape.len() == shape.len();
            self.require(same, format_args!("operand {i} has another rank than operand 0"))?;
            for (j, &d) in other.shape.iter().enumerate().filter(|&(j, _)| j != axis) {
                let what = format!("axis {j} of {} and {}", self.name(0), self.name(i));
                shape[j] = self.unify(shape[j], d, what)?;
            }
        }
        let joined: Vec<Dim> = self.operands.iter().map(|t| t.shape[axis]).collect();
        shape[axis] = self.dims.sum(&joined);
        Ok(self.like(shape))
    }
    pub(super) fn pad(&mut self, before: &[Dim], after: &[Dim], mode: PadMode) -> Result_<TensorType> {
        let rank = self.per_axis(&[before.len(), after.len()])?;
        let mut shape = Vec::with_capacity(rank);
        for axis in 0..rank {
            let extent = self.shape(0)[axis];
            let sum = self.dims.add(extent, before[axis]);
            let sum = self.dims.add(sum, after[axis]);
            self.extent(sum, format_args!("extent of axis {axis}"))?;
            shape.push(sum);
            let most = match mode {
                PadMode::Constant => continue,
                PadMode::Wrap => extent,
                PadMode::Reflect => self.dims.sub(extent, Dim::ONE),
                // One element is enough for any number of copies of it.
                PadMode::Edge => Dim::ONE,
            };
            for (what, pad) in [("before", before[axis]), ("after", after[axis])] {
                // Cropping (a negative pad) needs nothing.
                let pad = self.dims.max(pad, Dim::ZERO);
                if pad == Dim::ZERO {
                    continue;
                }
                let cond = match mode {
                    PadMode::Edge => {
                        let any = self.dims.min(pad, most);
                        CheckCond::AtMost(any, extent)
                    }
                    _ => CheckCond::AtMost(pad, most),
                };
                self.ensure(cond, format_args!("{} padding {what} axis {axis}", mode.name()))?;
            }
        }
        Ok(self.like(shape))
    }
    pub(super) fn gather(&mut self, axis: usize) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.index_dtype(1)?;
        let mut shape = self.shape(0).to_vec();
        shape.splice(axis..=axis, self.shape(1).iter().copied());
        Ok(self.like(shape))
    }
    pub(super) fn gather_elements(&mut self, axis: usize) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.index_dtype(1)?;
        let (x, index) = (self.operands[0], self.operands[1]);
        self.require(x.shape.len() == index.shape.len(), "the index must have the rank of the data")?;
        for (i, (&d, &e)) in x.shape.iter().zip(&index.shape).enumerate() {
            if i != axis {
                self.ensure(CheckCond::AtMost(e, d), format_args!("axis {i} of the index"))?;
            }
        }
        Ok(self.like(index.shape.clone()))
    }
}
