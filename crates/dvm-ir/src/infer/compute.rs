//! Reductions, products and norms.

use super::{Infer, Result_};
use crate::{CheckCond, DType, Dim, ReduceOp, Shape, TensorType};

impl Infer<'_> {
    fn drop_axes(&self, axes: &[usize], keepdims: bool) -> Shape {
        let kept = self.shape(0).iter().enumerate().filter_map(|(i, &d)| match axes.contains(&i) {
            true => keepdims.then_some(Dim::ONE),
            false => Some(d),
        });
        kept.collect()
    }
    pub(super) fn reduce(&mut self, op: ReduceOp, axes: &[usize], keepdims: bool) -> Result_<TensorType> {
        let rank = self.shape(0).len();
        let sorted = axes.windows(2).all(|w| w[0] < w[1]) && axes.last().is_none_or(|&a| a < rank);
        self.require(
            sorted,
            format_args!("axes {axes:?} must be sorted, distinct and below the rank {rank}"),
        )?;
        match op {
            ReduceOp::Any | ReduceOp::All => {
                self.require(self.dtype(0) == DType::Bool, format_args!("{op} needs bool"))?;
            }
            ReduceOp::Mean | ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => {
                self.require(self.dtype(0).is_float(), format_args!("{op} needs a float dtype"))?;
            }
            _ => self.numeric(0)?,
        }
        Ok(TensorType { dtype: self.dtype(0), shape: self.drop_axes(axes, keepdims) })
    }
    pub(super) fn arg_reduce(&mut self, axis: usize, keepdims: bool) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.numeric(0)?;
        let extent = self.shape(0)[axis];
        let shape = self.drop_axes(&[axis], keepdims);
        if self.dims.range(extent).0 < 1 {
            // An empty axis has no extreme, which matters only if somebody asks for one.
            let asked = self.dims.product(&shape);
            let asked = self.dims.min(asked, Dim::ONE);
            self.ensure(CheckCond::AtMost(asked, extent), format_args!("axis {axis} must not be empty"))?;
        }
        Ok(TensorType { dtype: DType::I64, shape })
    }
    pub(super) fn matmul(&mut self, trans_a: bool, trans_b: bool) -> Result_<TensorType> {
        let dtype = self.same_dtypes(0..2)?;
        self.numeric(0)?;
        let (a, b) = (self.operands[0], self.operands[1]);
        let ranks = a.shape.len() >= 2 && b.shape.len() >= 2;
        self.require(ranks, "operands must have rank 2 or more")?;
        let (a_batch, [a0, a1]) = split_last2(&a.shape);
        let (b_batch, [b0, b1]) = split_last2(&b.shape);
        let (m, ka) = if trans_a { (a1, a0) } else { (a0, a1) };
        let (kb, n) = if trans_b { (b1, b0) } else { (b0, b1) };
        let what = format!("inner extents of {} and {}", self.name(0), self.name(1));
        self.unify(ka, kb, what)?;
        let mut shape = self.broadcast_shapes(&[a_batch, b_batch], &[0, 1])?;
        shape.extend([m, n]);
        Ok(TensorType { dtype, shape })
    }
    pub(super) fn norm(&mut self, axis: usize, eps: f64) -> Result_<TensorType> {
        self.axis(axis, 0)?;
        self.float(0)?;
        self.same_dtypes(0..self.operands.len())?;
        self.require(
            eps >= 0.0 && eps.is_finite(),
            format_args!("eps = {eps} must be finite and not negative"),
        )?;
        let x = self.operands[0].clone();
        for i in 1..self.operands.len() {
            let operand = self.operands[i];
            let what = if i == 1 { "scale" } else { "bias" };
            self.expands(&operand.shape, &x.shape, what)?;
        }
        Ok(x)
    }
}

fn split_last2(shape: &[Dim]) -> (&[Dim], [Dim; 2]) {
    let (batch, last) = shape.split_at(shape.len() - 2);
    (batch, [last[0], last[1]])
}
