//! Reductions, products, norms.

use dvm_ir::{DType, Op, ReduceOp};

use super::{Axes, axis, sorted};
use crate::Error;
use crate::stream::Tensor;
use crate::stream::operators::{Arg, Operand};
use crate::stream::storage::Shape;

impl Tensor {
    /// A reduction over axes, which are kept with extent 1 or dropped.
    ///
    /// # Errors
    /// An axis does not exist or is given twice, or the dtype does not have the reduction.
    pub fn reduce(&self, op: ReduceOp, axes: impl Axes, keepdims: bool) -> Result<Tensor, Error> {
        self.reduce_sorted(op, sorted(op.name(), &axes, self.rank())?, keepdims)
    }
    fn reduce_sorted(&self, op: ReduceOp, axes: Vec<usize>, keepdims: bool) -> Result<Tensor, Error> {
        let dtype = self.dtype();
        let usual = match op {
            ReduceOp::Any | ReduceOp::All => dtype == DType::Bool,
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod => dtype != DType::Bool,
            _ => dtype.is_float(),
        };
        let ty = usual.then(|| (dtype, kept(self.shape(), &axes, keepdims)));
        self.stream().record(&[Arg::Tensor(self)], None, |_| Op::Reduce { op, axes, keepdims }, ty)
    }
}

/// The shape that a reduction leaves.
fn kept(shape: &[usize], axes: &[usize], keepdims: bool) -> Shape {
    let keep = |(i, &n): (usize, &usize)| match axes.contains(&i) {
        true => keepdims.then_some(1),
        false => Some(n),
    };
    shape.iter().enumerate().filter_map(keep).collect()
}

macro_rules! reductions {
    ($($name:ident $all:ident $op:ident $doc:literal;)*) => { $(
        #[doc = concat!($doc, " over axes, which stay with extent 1; [`Tensor::reduce`] can drop them.")]
        ///
        /// # Errors
        /// An axis does not exist or is given twice, or the dtype does not have the reduction.
        pub fn $name(&self, axes: impl Axes) -> Result<Tensor, Error> {
            self.reduce(ReduceOp::$op, axes, true)
        }
        #[doc = concat!($doc, " over all elements, a rank-0 tensor.")]
        ///
        /// # Errors
        /// The dtype does not have the reduction.
        pub fn $all(&self) -> Result<Tensor, Error> {
            self.reduce_sorted(ReduceOp::$op, (0..self.rank()).collect(), false)
        }
    )* };
}

impl Tensor {
    reductions! {
        sum sum_all Sum "Sum";
        mean mean_all Mean "Arithmetic mean";
        max max_all Max "Maximum, NaN if any element is,";
        min min_all Min "Minimum, NaN if any element is,";
        prod prod_all Prod "Product";
        any any_all Any "Logical or";
        all all_all All "Logical and";
        log_sum_exp log_sum_exp_all LogSumExp "Logarithm of the sum of exponentials";
    }

    /// Index (i64) of the first largest element along an axis, which stays with extent 1.
    ///
    /// # Errors
    /// The axis does not exist or is empty, or the dtype is bool.
    pub fn argmax(&self, along: isize) -> Result<Tensor, Error> {
        let axis = axis("argmax", along, self.rank())?;
        self.arg(axis, Op::ArgMax { axis, keepdims: true, last: false })
    }
    /// Index (i64) of the first smallest element along an axis, which stays with extent 1.
    ///
    /// # Errors
    /// The axis does not exist or is empty, or the dtype is bool.
    pub fn argmin(&self, along: isize) -> Result<Tensor, Error> {
        let axis = axis("argmin", along, self.rank())?;
        self.arg(axis, Op::ArgMin { axis, keepdims: true, last: false })
    }
    fn arg(&self, axis: usize, op: Op) -> Result<Tensor, Error> {
        let usual = self.dtype() != DType::Bool && self.shape()[axis] > 0;
        let ty = usual.then(|| (DType::I64, kept(self.shape(), &[axis], true)));
        self.stream().record(&[Arg::Tensor(self)], None, |_| op, ty)
    }
    /// Running sum along an axis.
    ///
    /// # Errors
    /// The axis does not exist, or the dtype is bool.
    pub fn cumsum(&self, along: isize) -> Result<Tensor, Error> {
        let axis = axis("cumsum", along, self.rank())?;
        let op = Op::CumSum { axis, exclusive: false, reverse: false };
        self.stream().record(&[Arg::Tensor(self)], None, |_| op, None)
    }

    /// Matrix product over the last two axes, batch axes broadcasting. A tensor of rank 1 is a row on the left, a column on
    /// the right; its axis is dropped again.
    ///
    /// # Errors
    /// Rank 0, dtypes or inner extents that differ, or batch axes that do not broadcast.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor, Error> {
        let (row, column) = (self.rank() == 1, other.rank() == 1);
        let a = if row { self.unsqueeze(0)? } else { self.clone() };
        let b = if column { other.unsqueeze(1)? } else { other.clone() };
        let y = a.product(&b, false, false)?;
        match (row, column) {
            (false, false) => Ok(y),
            (true, false) => y.squeeze(-2),
            (false, true) => y.squeeze(-1),
            (true, true) => y.reshape(&[]),
        }
    }
    /// Matrix product with the right operand transposed, `[.., m, k] x [.., n, k]`.
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; both operands have rank 2 or more.
    pub fn matmul_t(&self, other: &Tensor) -> Result<Tensor, Error> {
        self.product(other, false, true)
    }
    /// Matrix product with the left operand transposed, `[.., k, m] x [.., k, n]`.
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; both operands have rank 2 or more.
    pub fn t_matmul(&self, other: &Tensor) -> Result<Tensor, Error> {
        self.product(other, true, false)
    }
    fn product(&self, other: &Tensor, trans_a: bool, trans_b: bool) -> Result<Tensor, Error> {
        let ty = match (self.shape(), other.shape()) {
            (&[ref batch @ .., a0, a1], &[b0, b1]) if self.dtype() == other.dtype() => {
                let (m, ka) = if trans_a { (a1, a0) } else { (a0, a1) };
                let (kb, n) = if trans_b { (b1, b0) } else { (b0, b1) };
                let shape = batch.iter().copied().chain([m, n]).collect();
                (ka == kb && self.dtype() != DType::Bool).then_some((self.dtype(), shape))
            }
            _ => None,
        };
        let args = [Arg::Tensor(self), Arg::Tensor(other)];
        self.stream().record(&args, None, |_| Op::MatMul { trans_a, trans_b }, ty)
    }

    /// Softmax along an axis.
    ///
    /// # Errors
    /// The axis does not exist, or the dtype is no float.
    pub fn softmax(&self, along: isize) -> Result<Tensor, Error> {
        let axis = axis("softmax", along, self.rank())?;
        self.like(Op::Softmax { axis })
    }
    /// Logarithm of softmax.
    ///
    /// # Errors
    /// As [`Tensor::softmax`].
    pub fn log_softmax(&self, along: isize) -> Result<Tensor, Error> {
        let axis = axis("log_softmax", along, self.rank())?;
        self.like(Op::LogSoftmax { axis })
    }
    /// `(x - mean) / sqrt(variance + eps) * scale + bias` over the last axis.
    ///
    /// # Errors
    /// Rank 0, a dtype that is no float or differs, or a scale or bias that does not broadcast to x.
    pub fn layer_norm(&self, scale: impl Operand, bias: impl Operand, eps: f64) -> Result<Tensor, Error> {
        let axis = axis("layer_norm", -1, self.rank())?;
        let args = [Arg::Tensor(self), scale.arg(), bias.arg()];
        self.stream().record(&args, None, |_| Op::LayerNorm { axis, eps }, None)
    }
    /// `x / sqrt(mean(x^2) + eps) * scale` over the last axis.
    ///
    /// # Errors
    /// Rank 0, a dtype that is no float or differs, or a scale that does not broadcast to x.
    pub fn rms_norm(&self, scale: impl Operand, eps: f64) -> Result<Tensor, Error> {
        let axis = axis("rms_norm", -1, self.rank())?;
        let args = [Arg::Tensor(self), scale.arg()];
        self.stream().record(&args, None, |_| Op::RmsNorm { axis, eps }, None)
    }
}
