//! Elementwise ops and generators.

use super::{Infer, Result_};
use crate::{BinaryOp, CheckCond, DType, Dim, Op, TensorType, UnaryOp};

/// Dtype of the result, or the rule the operand's dtype breaks.
pub(crate) fn unary_dtype(u: UnaryOp, x: DType) -> Result<DType, &'static str> {
    let fits = match u {
        UnaryOp::Copy => Ok(()),
        UnaryOp::Not if x.is_float() => Err("needs bool or an integer dtype"),
        UnaryOp::Not => Ok(()),
        u if u.float_only() && !x.is_float() => Err("needs a float dtype"),
        _ if x == DType::Bool => Err("not defined for bool"),
        _ => Ok(()),
    };
    fits.map(|()| if u.is_test() { DType::Bool } else { x })
}

/// Dtype of the result, or the rule the operands' dtype breaks.
pub(crate) fn binary_dtype(b: BinaryOp, x: DType) -> Result<DType, &'static str> {
    match b {
        BinaryOp::Shl | BinaryOp::Shr if !x.is_int() => Err("needs an integer dtype"),
        b if b.is_bitwise() && x.is_float() => Err("needs bool or an integer dtype"),
        b if b.is_comparison() => Ok(DType::Bool),
        b if !b.is_bitwise() && x == DType::Bool => Err("not defined for bool"),
        _ => Ok(x),
    }
}

impl Infer<'_> {
    pub(super) fn unary(&mut self, u: UnaryOp) -> Result_<TensorType> {
        let dtype = unary_dtype(u, self.dtype(0)).map_err(|rule| self.fail(rule))?;
        Ok(TensorType { dtype, shape: self.shape(0).to_vec() })
    }
    pub(super) fn binary(&mut self, b: BinaryOp) -> Result_<TensorType> {
        let dtype = binary_dtype(b, self.same_dtypes(0..2)?).map_err(|rule| self.fail(rule))?;
        Ok(TensorType { dtype, shape: self.broadcast(&[0, 1])? })
    }
    pub(super) fn ternary(&mut self) -> Result_<TensorType> {
        let dtype = match self.op {
            Op::Select {} => {
                self.require(self.dtype(0) == DType::Bool, "the condition must be bool")?;
                self.same_dtypes(1..3)?
            }
            Op::Fma {} => {
                self.float(0)?;
                self.same_dtypes(0..3)?
            }
            _ => {
                self.numeric(0)?;
                self.same_dtypes(0..3)?
            }
        };
        let shape = self.broadcast(&[0, 1, 2])?;
        if matches!(self.op, Op::Clamp {}) {
            // The bounds broadcast to x, not x to the bounds.
            let x = self.shape(0).to_vec();
            self.require(x.len() == shape.len(), "the bounds must not have more axes than x")?;
            for (i, (&d, &e)) in x.iter().zip(&shape).enumerate() {
                self.ensure(CheckCond::Equal(d, e), format_args!("axis {i} of the bounds"))?;
            }
            return Ok(TensorType { dtype, shape: x });
        }
        Ok(TensorType { dtype, shape })
    }

    pub(super) fn fill(&mut self, dtype: DType, shape: &[Dim]) -> Result_<TensorType> {
        Ok(TensorType { dtype, shape: self.extents(shape)? })
    }
    pub(super) fn range(&mut self, len: Dim, dtype: DType) -> Result_<TensorType> {
        self.require(dtype != DType::Bool, "not defined for bool")?;
        Ok(TensorType { dtype, shape: self.extents(&[len])? })
    }
    pub(super) fn dims_op(&mut self, n: usize, scalar: bool, dtype: DType) -> Result_<TensorType> {
        if scalar {
            self.require(n == 1, format_args!("a scalar of {n} dims"))?;
            return Ok(TensorType { dtype, shape: vec![] });
        }
        let n = i64::try_from(n).map_err(|_| self.fail("too many dims"))?;
        Ok(TensorType { dtype, shape: vec![self.dims.constant(n)] })
    }
}
