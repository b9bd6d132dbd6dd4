//! Elements by index.

use dvm_ir::Op;

use super::axis;
use crate::Error;
use crate::stream::Tensor;
use crate::stream::operators::Arg;

impl Tensor {
    /// The elements of an axis at the places that `index` (i32 or i64, any shape) names; the axis becomes the axes of the
    /// index. An index out of range is an error when the value is computed.
    ///
    /// # Errors
    /// The axis does not exist, or the index has another dtype.
    pub fn index_select(&self, along: isize, index: &Tensor) -> Result<Tensor, Error> {
        let axis = axis("index_select", along, self.rank())?;
        self.by_index(index, Op::Gather { axis })
    }
    /// Rows of this table by index: a `[n, d]` table and an index of shape `s` give `s + [d]`.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    pub fn embedding(&self, index: &Tensor) -> Result<Tensor, Error> {
        self.index_select(0, index)
    }
    /// `x[i0, .., index[i0, .., in], .., in]`: an element by index along an axis, with the index's shape.
    ///
    /// # Errors
    /// The axis does not exist, the ranks differ, or the index is larger elsewhere or has another dtype.
    pub fn gather(&self, along: isize, index: &Tensor) -> Result<Tensor, Error> {
        let axis = axis("gather", along, self.rank())?;
        self.by_index(index, Op::GatherElements { axis })
    }
    fn by_index(&self, index: &Tensor, op: Op) -> Result<Tensor, Error> {
        self.stream().record(&[Arg::Tensor(self), Arg::Tensor(index)], None, |_| op, None)
    }
}
