//! Views: the same elements under another shape or order. Where strides cannot express it, the elements are copied.

use dvm_ir::{DType, Op, PadMode};
use smallvec::SmallVec;

use super::{Axes, axis, sorted};
use crate::Error;
use crate::stream::operators::{Arg, Operand};
use crate::stream::segment::Segment;
use crate::stream::storage::Shape;
use crate::stream::view::ViewOp;
use crate::stream::{Tensor, scalar_tensor};

impl Tensor {
    /// The view, or where strides do not allow one the recorded op.
    fn viewed(&self, op: ViewOp) -> Result<Tensor, Error> {
        if let Some(view) = self.view_of(op.clone()) {
            return Ok(view);
        }
        let ty = Some((self.dtype(), op.shape(self.shape())));
        self.stream().record(&[Arg::Tensor(self)], None, |s| op.to_op(&mut s.graph.dims), ty)
    }
    /// The elements, row-major, under another shape; one extent may be -1. A view where strides allow.
    ///
    /// # Errors
    /// The number of elements differs.
    pub fn reshape(&self, shape: &[isize]) -> Result<Tensor, Error> {
        let bad = || Error::Stream(format!("reshape: {self:?} to {shape:?}"));
        let known = shape.iter().filter(|&&n| n != -1);
        let mut known = known.map(|&n| usize::try_from(n).map_err(|_| bad()));
        let product = known.try_fold(1usize, |p, n| p.checked_mul(n?).ok_or_else(bad))?;
        let rest = match shape.iter().filter(|&&n| n == -1).count() {
            0 => 1,
            1 if product > 0 => self.len() / product,
            1 if self.is_empty() => 0,
            _ => return Err(bad()),
        };
        let to: Shape = shape.iter().map(|&n| usize::try_from(n).unwrap_or(rest)).collect();
        let count = to.iter().try_fold(1usize, |p, &n| p.checked_mul(n));
        if count != Some(self.len()) || to.len() > dvm_ir::MAX_RANK {
            return Err(bad());
        }
        if to.as_slice() == self.shape() {
            return Ok(self.clone());
        }
        self.viewed(ViewOp::Reshape(to))
    }
    /// All elements along one axis.
    ///
    /// # Errors
    /// None for a tensor without an earlier failure.
    pub fn flatten(&self) -> Result<Tensor, Error> {
        self.reshape(&[self.len() as isize])
    }
    /// The last two axes exchanged.
    ///
    /// # Errors
    /// The rank is below 2.
    pub fn t(&self) -> Result<Tensor, Error> {
        self.transpose(-2, -1)
    }
    /// Two axes exchanged.
    ///
    /// # Errors
    /// An axis does not exist.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor, Error> {
        let (a, b) = (axis("transpose", a, self.rank())?, axis("transpose", b, self.rank())?);
        let mut perm: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        perm.swap(a, b);
        self.viewed(ViewOp::Transpose(perm))
    }
    /// Axis i of the result is axis `perm[i]`.
    ///
    /// # Errors
    /// `perm` is no permutation of the axes.
    pub fn permute(&self, perm: &[isize]) -> Result<Tensor, Error> {
        let all = sorted("permute", &perm, self.rank())?;
        if all.len() != self.rank() {
            return Err(Error::Stream(format!(
                "permute: {perm:?} is no permutation of {} axes",
                self.rank()
            )));
        }
        let to = perm.iter().map(|&p| axis("permute", p, self.rank())).collect::<Result<_, _>>()?;
        self.viewed(ViewOp::Transpose(to))
    }
    /// Axes of extent 1 dropped.
    ///
    /// # Errors
    /// An axis does not exist, or its extent is not 1.
    pub fn squeeze(&self, axes: impl Axes) -> Result<Tensor, Error> {
        let drop = sorted("squeeze", &axes, self.rank())?;
        if let Some(&a) = drop.iter().find(|&&a| self.shape()[a] != 1) {
            return Err(Error::Stream(format!("squeeze: axis {a} of {self:?} is not of extent 1")));
        }
        let kept = self.shape().iter().enumerate().filter(|(i, _)| !drop.contains(i)).map(|(_, &n)| n);
        self.viewed(ViewOp::Reshape(kept.collect()))
    }
    /// An axis of extent 1 inserted before an axis; -1 appends it.
    ///
    /// # Errors
    /// The place does not exist.
    pub fn unsqueeze(&self, before: isize) -> Result<Tensor, Error> {
        let at = axis("unsqueeze", before, self.rank() + 1)?;
        let mut shape = Shape::from_slice(self.shape());
        shape.insert(at, 1);
        if shape.len() > dvm_ir::MAX_RANK {
            return Err(Error::Stream(format!("unsqueeze: {self:?} has as many axes as there can be")));
        }
        self.viewed(ViewOp::Reshape(shape))
    }
    /// Axes of extent 1 repeated, right-aligned as in NumPy's `broadcast_to`.
    ///
    /// # Errors
    /// The shape does not broadcast to the new one.
    pub fn expand(&self, shape: &[usize]) -> Result<Tensor, Error> {
        let fits = self.rank() <= shape.len() && shape.len() <= dvm_ir::MAX_RANK && {
            let lead = shape.len() - self.rank();
            self.shape().iter().zip(&shape[lead..]).all(|(&n, &to)| n == to || n == 1)
        };
        if !fits || crate::stream::segment::byte_size(self.dtype(), shape).is_none() {
            return Err(Error::Stream(format!("expand: {self:?} does not broadcast to {shape:?}")));
        }
        if shape == self.shape() {
            return Ok(self.clone());
        }
        self.viewed(ViewOp::Expand(Shape::from_slice(shape)))
    }
    /// `len` elements of an axis from `start` on.
    ///
    /// # Errors
    /// The axis does not exist or is too short.
    pub fn narrow(&self, along: isize, start: usize, len: usize) -> Result<Tensor, Error> {
        let axis = axis("narrow", along, self.rank())?;
        let n = self.shape()[axis];
        if start.checked_add(len).is_none_or(|end| end > n) {
            return Err(Error::Stream(format!(
                "narrow: {len} elements from {start} of axis {axis} of {self:?}"
            )));
        }
        self.sliced(axis, start, len, 1)
    }
    /// A range of an axis as in Python: negative bounds count from the end, bounds beyond it are cut.
    ///
    /// # Errors
    /// The axis does not exist.
    pub fn slice(&self, along: isize, range: impl std::ops::RangeBounds<isize>) -> Result<Tensor, Error> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let start = match range.start_bound() {
            Included(&s) => Some(s),
            Excluded(&s) => Some(s.saturating_add(1)),
            Unbounded => None,
        };
        let end = match range.end_bound() {
            Included(&-1) | Unbounded => None,
            Included(&e) => Some(e.saturating_add(1)),
            Excluded(&e) => Some(e),
        };
        self.slice_step(along, start, end, 1)
    }
    /// Python's `start:end:step` of an axis. With a negative step it runs backwards, from the last element unless `start` is
    /// given.
    ///
    /// # Errors
    /// The axis does not exist, or the step is 0.
    pub fn slice_step(
        &self,
        along: isize,
        start: Option<isize>,
        end: Option<isize>,
        step: isize,
    ) -> Result<Tensor, Error> {
        let axis = axis("slice", along, self.rank())?;
        if step == 0 || step == isize::MIN {
            return Err(Error::Stream(format!("slice: step {step}")));
        }
        let n = self.shape()[axis] as isize;
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let place = |x: isize| (if x < 0 { x.saturating_add(n) } else { x }).clamp(low, high);
        let start = start.map_or(if step > 0 { low } else { high }, place);
        let end = end.map_or(if step > 0 { high } else { low }, place);
        let distance = if step > 0 { end - start } else { start - end };
        let len = if distance > 0 { (distance - 1) / step.abs() + 1 } else { 0 };
        self.sliced(axis, if len == 0 { 0 } else { start as usize }, len as usize, step as i64)
    }
    fn sliced(&self, axis: usize, start: usize, len: usize, step: i64) -> Result<Tensor, Error> {
        let rank = self.rank();
        let (mut starts, mut lens) = (Shape::from_elem(0, rank), Shape::from_slice(self.shape()));
        let mut steps: SmallVec<[i64; 4]> = SmallVec::from_elem(1, rank);
        if (start, len, step) == (0, lens[axis], 1) {
            return Ok(self.clone());
        }
        // One element has no step, and none has no first.
        (starts[axis], lens[axis], steps[axis]) = (start, len, if len > 1 { step } else { 1 });
        self.viewed(ViewOp::Slice { start: starts, len: lens, step: steps })
    }
    /// The elements at an index of an axis, which is dropped; a negative index counts from the end.
    ///
    /// # Errors
    /// The axis or the index does not exist.
    pub fn index(&self, along: isize, at: isize) -> Result<Tensor, Error> {
        let axis = axis("index", along, self.rank())?;
        let n = self.shape()[axis];
        let i = super::axis("index", at, n)
            .map_err(|_| Error::Stream(format!("index: {at} of axis {axis} of {self:?}")))?;
        self.narrow(axis as isize, i, 1)?.squeeze(axis)
    }
    /// Parts of these lengths along an axis.
    ///
    /// # Errors
    /// The axis does not exist, or the lengths do not add up to its extent.
    pub fn split(&self, along: isize, lens: &[usize]) -> Result<Vec<Tensor>, Error> {
        let axis = axis("split", along, self.rank())?;
        let total = lens.iter().try_fold(0usize, |s, &n| s.checked_add(n));
        if total != Some(self.shape()[axis]) {
            return Err(Error::Stream(format!("split: {lens:?} of axis {axis} of {self:?}")));
        }
        let mut start = 0;
        let part = |&n: &usize| {
            let part = self.narrow(axis as isize, start, n);
            start += n;
            part
        };
        lens.iter().map(part).collect()
    }
    /// Tensors joined along an axis.
    ///
    /// # Errors
    /// No tensor, an axis that does not exist, or dtypes or other extents that differ.
    pub fn concat(tensors: &[&Tensor], along: isize) -> Result<Tensor, Error> {
        let [first, ..] = tensors else { return Err(Error::Stream("concat: no tensor".into())) };
        let axis = axis("concat", along, first.rank())?;
        let args: Vec<Arg<'_>> = tensors.iter().map(|t| Arg::Tensor(t)).collect();
        first.stream().record(&args, None, |_| Op::Concat { axis }, None)
    }
    /// Tensors of one shape joined along a new axis.
    ///
    /// # Errors
    /// No tensor, a place that does not exist, or dtypes or shapes that differ.
    pub fn stack(tensors: &[&Tensor], before: isize) -> Result<Tensor, Error> {
        let [first, ..] = tensors else { return Err(Error::Stream("stack: no tensor".into())) };
        let at = axis("stack", before, first.rank() + 1)? as isize;
        let parts = tensors.iter().map(|t| t.unsqueeze(at)).collect::<Result<Vec<_>, _>>()?;
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), at)
    }
    /// Elements added before and after each axis (negative numbers crop).
    ///
    /// # Errors
    /// Not one number per axis, a negative extent, a value that is none of the dtype, or a mode that needs elements where there
    /// are none.
    pub fn pad(
        &self,
        before: &[isize],
        after: &[isize],
        mode: PadMode,
        value: impl Operand,
    ) -> Result<Tensor, Error> {
        let Arg::Scalar(value) = value.arg() else {
            return Err(Error::Stream("pad: the value is a tensor".into()));
        };
        let value = scalar_tensor(value, self.dtype())?.get(0);
        let op = |s: &mut Segment| {
            let dims = &mut s.graph.dims;
            let mut all = |x: &[isize]| x.iter().map(|&n| dims.constant(n as i64)).collect();
            Op::Pad { before: all(before), after: all(after), mode, value }
        };
        self.stream().record(&[Arg::Tensor(self)], None, op, None)
    }
    /// Sliding windows along an axis, which becomes two, `[windows, size]`: element (w, k) is at `w*stride + k*dilation`.
    ///
    /// # Errors
    /// The axis does not exist or is shorter than a window, or a number is 0.
    pub fn unfold(&self, along: isize, size: usize, stride: usize, dilation: usize) -> Result<Tensor, Error> {
        let axis = axis("unfold", along, self.rank())?;
        let span = size.checked_sub(1).and_then(|n| n.checked_mul(dilation)).and_then(|n| n.checked_add(1));
        let count =
            span.and_then(|n| self.shape()[axis].checked_sub(n)).filter(|_| stride > 0 && dilation > 0);
        let Some(count) = count.map(|n| n / stride + 1) else {
            return Err(Error::Stream(format!(
                "unfold: windows of {size}, stride {stride}, dilation {dilation} along axis {axis} of {self:?}"
            )));
        };
        let op = |s: &mut Segment| {
            let (count, size) = (s.dim(count), s.dim(size));
            Op::Window { axis, count, size, stride: stride as i64, dilation: dilation as i64 }
        };
        self.stream().record(&[Arg::Tensor(self)], None, op, None)
    }
    /// A bool tensor: where x is not zero.
    ///
    /// # Errors
    /// None for a tensor without an earlier failure.
    pub fn to_bool(&self) -> Result<Tensor, Error> {
        self.cast(DType::Bool)
    }
}
