//! Tensors from nothing: recorded, and computed where they are used.

use dvm_ir::{DType, Op, Scalar};

use crate::Error;
use crate::stream::operators::{Arg, Operand};
use crate::stream::storage::Shape;
use crate::stream::{Stream, Tensor, scalar_tensor};

impl Stream {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// The shape is too large.
    pub fn zeros(&self, dtype: DType, shape: &[usize]) -> Result<Tensor, Error> {
        self.full(dtype, shape, 0)
    }
    /// A tensor of ones.
    ///
    /// # Errors
    /// The shape is too large.
    pub fn ones(&self, dtype: DType, shape: &[usize]) -> Result<Tensor, Error> {
        self.full(dtype, shape, 1)
    }
    /// A tensor of one value.
    ///
    /// # Errors
    /// The shape is too large, or the value is none of the dtype.
    pub fn full(&self, dtype: DType, shape: &[usize], value: impl Operand) -> Result<Tensor, Error> {
        let Arg::Scalar(value) = value.arg() else {
            return Err(Error::Stream("full: the value is a tensor; expand it".into()));
        };
        let value = scalar_tensor(value, dtype)?.get(0);
        let ty = (shape.len() <= dvm_ir::MAX_RANK).then(|| (dtype, Shape::from_slice(shape)));
        self.record(&[], None, |s| Op::Fill { value, dtype, shape: s.dims(shape) }, ty)
    }
    /// `start, start + step, ..`, `len` numbers of an integer or float dtype.
    ///
    /// # Errors
    /// The dtype is bool, or the numbers are too many.
    pub fn arange(&self, dtype: DType, start: i64, step: i64, len: usize) -> Result<Tensor, Error> {
        let op = |s: &mut crate::stream::segment::Segment| {
            let dims = &mut s.graph.dims;
            let [start, step, len] =
                [start, step, i64::try_from(len).unwrap_or(i64::MAX)].map(|n| dims.constant(n));
            Op::Range { start, step, len, dtype }
        };
        self.record(&[], None, op, None)
    }
    /// A rank-0 tensor.
    ///
    /// # Errors
    /// The value is none of the dtype.
    pub fn scalar(&self, dtype: DType, value: Scalar) -> Result<Tensor, Error> {
        Ok(self.upload(scalar_tensor(value, dtype)?))
    }
}

impl Tensor {
    /// Zeros of this tensor's dtype and shape.
    ///
    /// # Errors
    /// The shape is too large.
    pub fn zeros_like(&self) -> Result<Tensor, Error> {
        self.stream().zeros(self.dtype(), self.shape())
    }
}
