//! The eager tensor: a handle to a storage, or to a view of one.

use std::sync::Arc;

use dvm_ir::{BinaryOp, DType, Op, Tensor as HostTensor, TensorError, UnaryOp, ValueId};
use dvm_ir::{Element, Scalar};
use smallvec::SmallVec;

use super::operators::{Arg, Operand};
use super::segment::{Segment, Write, byte_size};
use super::storage::{Cell, Current, Shape, Storage, lock};
use super::view::{View, ViewOp};
use super::{Cause, Core, MAX_BYTES, MAX_OPS, Stream, scalar_tensor};
use crate::Error;

/// A tensor of a [`Stream`]. Cloning gives another handle to the same values; a handle may be sent to another thread.
///
/// Methods whose name ends in `_` update in place; all others give a new tensor, or a view where they only rename
/// elements.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) stream: Stream,
    pub(crate) storage: Arc<Storage>,
    pub(crate) view: Option<Arc<View>>,
}

/// A recorded value with its type.
pub(crate) struct Recorded {
    pub(crate) value: ValueId,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype(), self.shape())
    }
}

impl Tensor {
    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.storage.dtype
    }
    /// Extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.view.as_ref().map_or(&self.storage.shape, |v| &v.shape)
    }
    /// Number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape().len()
    }
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape().iter().fold(1, |n, &d| n.saturating_mul(d))
    }
    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
    /// Whether two tensors share memory.
    #[must_use]
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// The values, row-major, computed now if they were not.
    ///
    /// # Errors
    /// `T` is not the dtype (bool is read as `u8`), or computing the values failed.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        if T::DTYPE != self.dtype() && !(self.dtype() == DType::Bool && T::DTYPE == DType::U8) {
            return Err(TensorError::DType { has: self.dtype(), asked: T::DTYPE }.into());
        }
        Ok(self.to_host()?.as_slice::<T>()?.to_vec())
    }
    /// The value of a tensor of one element, computed now if it was not.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`], and when there is not exactly one element.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        match self.to_vec::<T>()?[..] {
            [x] => Ok(x),
            ref all => Err(Error::Stream(format!("item: {:?} has {} elements, not one", self, all.len()))),
        }
    }
    /// The truth of a tensor of one element: whether it is not zero.
    ///
    /// # Errors
    /// There is not exactly one element, or computing it failed.
    pub fn is_true(&self) -> Result<bool, Error> {
        if self.len() != 1 {
            return Err(Error::Stream(format!("is_true: {self:?} has {} elements, not one", self.len())));
        }
        Ok(match self.to_host()?.get(0) {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(x) => x != 0,
        })
    }
    /// The values as a host tensor, computed now if they were not.
    ///
    /// # Errors
    /// Computing the values failed.
    pub fn to_host(&self) -> Result<HostTensor, Error> {
        let cell = self.settled()?;
        self.stream.0.queue.wait(cell.job());
        let whole = cell.read().map_err(Error::Earlier)?;
        match &self.view {
            None => Ok(whole),
            Some(v) if v.is_whole(&self.storage.shape) => Ok(whole.reshape(&v.shape)?),
            Some(v) => gather(&whole, v),
        }
    }
    /// The memory that holds, or will hold when its job is done, the newest version.
    fn settled(&self) -> Result<Arc<Cell>, Error> {
        let mut core = lock(&self.stream.0.core);
        for _ in 0..2 {
            if let Some(cell) = self.storage.data().filter(|c| !c.is_dirty(core.segment.id)) {
                return Ok(cell);
            }
            // What fails is kept with the values.
            let _ = self.stream.flush_core(&mut core, Cause::HostRead);
        }
        Err(Error::Stream("a flush left a value behind".into()))
    }

    /// The view of this tensor that an op gives, where strides allow.
    pub(crate) fn view_of(&self, op: ViewOp) -> Option<Tensor> {
        let view = match &self.view {
            Some(v) => v.then(op),
            None => View::whole(&self.storage.shape).then(op),
        }?;
        Some(Tensor {
            stream: self.stream.clone(),
            storage: self.storage.clone(),
            view: Some(Arc::new(view)),
        })
    }
    /// The value of a tensor in the segment, after what was written to its memory.
    fn value(&self, segment: &mut Segment) -> Result<ValueId, Error> {
        segment.value(&self.storage, self.view.as_deref())
    }

    // In place.

    /// Replaces the values by those of `src`, which broadcasts to this tensor.
    ///
    /// # Errors
    /// Another dtype, a shape that does not broadcast, or a tensor of which several elements share memory.
    pub fn copy_(&self, src: impl Operand) -> Result<(), Error> {
        self.update(&[src.arg()], |_| Op::Unary(UnaryOp::Copy), "copy_")
    }
    /// Replaces every value by a number.
    ///
    /// # Errors
    /// The number is none of the dtype.
    pub fn fill_(&self, value: impl Operand) -> Result<(), Error> {
        self.copy_(value)
    }
    /// Adds in place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`].
    pub fn add_(&self, other: impl Operand) -> Result<(), Error> {
        self.binary_(BinaryOp::Add, other.arg())
    }
    /// Subtracts in place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`].
    pub fn sub_(&self, other: impl Operand) -> Result<(), Error> {
        self.binary_(BinaryOp::Sub, other.arg())
    }
    /// Multiplies in place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`].
    pub fn mul_(&self, other: impl Operand) -> Result<(), Error> {
        self.binary_(BinaryOp::Mul, other.arg())
    }
    /// Divides in place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`].
    pub fn div_(&self, other: impl Operand) -> Result<(), Error> {
        self.binary_(BinaryOp::Div, other.arg())
    }
    /// Any op of two tensors in place.
    ///
    /// # Errors
    /// As [`Tensor::copy_`], and for comparisons of what is not bool.
    pub fn binary_(&self, op: BinaryOp, other: Arg<'_>) -> Result<(), Error> {
        self.update(&[Arg::Tensor(self), other], |_| Op::Binary(op), op.name())
    }
    /// An op of one tensor in place.
    ///
    /// # Errors
    /// The op is not defined for the dtype, or several elements share memory.
    pub fn unary_(&self, op: UnaryOp) -> Result<(), Error> {
        self.update(&[Arg::Tensor(self)], |_| Op::Unary(op), op.name())
    }
    fn update(&self, args: &[Arg<'_>], op: impl FnOnce(&mut Segment) -> Op, name: &str) -> Result<(), Error> {
        if self.view.as_ref().is_some_and(|v| !v.is_injective()) {
            return Err(Error::Stream(format!(
                "{name} in place: several elements of {self:?} share memory; copy it first"
            )));
        }
        let mut core = lock(&self.stream.0.core);
        let r = self.stream.push(&mut core, args, Some(self.dtype()), op, None)?;
        let (shape, segment) = (Shape::from_slice(self.shape()), &mut core.segment);
        let fits = r.dtype == self.dtype() && r.shape.len() <= shape.len() && {
            let lead = shape.len() - r.shape.len();
            r.shape.iter().zip(&shape[lead..]).all(|(&n, &to)| n == to || n == 1)
        };
        if !fits {
            let got = r.shape.as_slice();
            return Err(Error::Stream(format!("{name} in place: {}{got:?} does not fit {self:?}", r.dtype)));
        }
        let mut v = r.value;
        if r.shape != shape {
            let to = segment.dims(&shape);
            v = segment.node(Op::Expand { shape: to }, &[v], r.dtype, &shape);
        }
        let view = self.view.as_deref();
        if view.is_none_or(|v| v.is_whole(&self.storage.shape)) {
            if shape != self.storage.shape {
                let to = segment.dims(&self.storage.shape);
                v = segment.node(Op::Reshape { shape: to }, &[v], r.dtype, &self.storage.shape);
            }
            segment.set_owner(v, &self.storage);
            segment.bytes = segment.bytes.saturating_add(byte_size(r.dtype, &shape).unwrap_or(0));
            self.stream.keep_bounds(&mut core);
            return Ok(());
        }
        if shape.contains(&0) {
            return Ok(());
        }
        let view = self.view.as_deref().cloned().unwrap_or_else(|| View::whole(&self.storage.shape));
        // A part is written into memory, so there must be memory: what is recorded is flushed, with the value itself kept.
        if self.storage.data().is_none_or(|c| c.is_dirty(core.segment.id)) {
            let kept = Tensor {
                stream: self.stream.clone(),
                storage: core.segment.own(v, r.dtype, shape),
                view: None,
            };
            // What fails is kept with the values.
            let _ = self.stream.flush_core(&mut core, Cause::Alias);
            v = kept.value(&mut core.segment)?;
        }
        let segment = &mut core.segment;
        let cell = self.storage.data().ok_or_else(|| Error::Stream("a flush left a value behind".into()))?;
        if let Some(e) = cell.failure() {
            return Err(Error::Earlier(e));
        }
        cell.set_dirty(segment.id);
        segment.writes.push(Write { storage: self.storage.clone(), cell, view, value: v });
        self.stream.keep_bounds(&mut core);
        Ok(())
    }
}

impl Stream {
    /// Records an op. `ty` is its result where the caller knows; scalars become tensors of `scalars`, or of the dtype of
    /// the first tensor.
    pub(crate) fn record(
        &self,
        args: &[Arg<'_>],
        scalars: Option<DType>,
        op: impl FnOnce(&mut Segment) -> Op,
        ty: Option<(DType, Shape)>,
    ) -> Result<Tensor, Error> {
        let mut core = lock(&self.0.core);
        let r = self.push(&mut core, args, scalars, op, ty)?;
        let storage = core.segment.own(r.value, r.dtype, r.shape);
        self.keep_bounds(&mut core);
        Ok(Tensor { stream: self.clone(), storage, view: None })
    }
    /// Adds an op to the segment.
    pub(super) fn push(
        &self,
        core: &mut Core,
        args: &[Arg<'_>],
        scalars: Option<DType>,
        op: impl FnOnce(&mut Segment) -> Op,
        ty: Option<(DType, Shape)>,
    ) -> Result<Recorded, Error> {
        let mut first = None;
        for arg in args {
            let Arg::Tensor(t) = arg else { continue };
            if !self.same(&t.stream) {
                return Err(Error::Stream(format!("{t:?} belongs to another stream")));
            }
            if t.storage.is_dirty(core.segment.id) {
                // What fails is kept with the values.
                let _ = self.flush_core(core, Cause::Alias);
            }
            first = first.or(Some(t.dtype()));
        }
        let dtype = scalars.or(first).unwrap_or(DType::F32);
        let segment = &mut core.segment;
        let mut ids: SmallVec<[ValueId; 4]> = SmallVec::new();
        for arg in args {
            ids.push(match arg {
                Arg::Tensor(t) => t.value(segment)?,
                Arg::Scalar(s) => segment.scalar(scalar_tensor(*s, dtype)?),
            });
        }
        let op = op(segment);
        let (dtype, shape) = match ty {
            Some(ty) => {
                debug_assert!(
                    segment.infer(&op, &ids).is_ok_and(|t| t == ty),
                    "{op:?}: {:?} is not {ty:?}",
                    segment.infer(&op, &ids)
                );
                ty
            }
            None => segment.infer(&op, &ids)?,
        };
        if byte_size(dtype, &shape).is_none() {
            return Err(TensorError::TooLarge { dtype, shape: shape.to_vec() }.into());
        }
        let value = segment.node(op, &ids, dtype, &shape);
        Ok(Recorded { value, dtype, shape })
    }
    /// Flushes where too much is pending.
    pub(super) fn keep_bounds(&self, core: &mut Core) {
        let cause = if core.segment.graph.nodes.len() >= MAX_OPS {
            Cause::Ops
        } else if core.segment.bytes > MAX_BYTES {
            Cause::Bytes
        } else {
            return;
        };
        // What fails is kept with the values.
        let _ = self.flush_core(core, cause);
    }
    /// A tensor of these values.
    ///
    /// # Errors
    /// The number of values is not what the shape needs.
    pub fn tensor<T: Element>(&self, shape: &[usize], data: &[T]) -> Result<Tensor, Error> {
        Ok(self.upload(HostTensor::from_slice(shape, data)?))
    }
    /// A bool tensor.
    ///
    /// # Errors
    /// As [`Stream::tensor`].
    pub fn bools(&self, shape: &[usize], data: &[bool]) -> Result<Tensor, Error> {
        Ok(self.upload(HostTensor::from_bools(shape, data)?))
    }
    /// A host tensor, whose data are shared until either is changed.
    #[must_use]
    pub fn upload(&self, t: HostTensor) -> Tensor {
        let (dtype, shape) = (t.dtype(), Shape::from_slice(t.shape()));
        let current = std::sync::Mutex::new(Current::Data(Arc::new(Cell::ready(t))));
        Tensor { stream: self.clone(), storage: Arc::new(Storage { dtype, shape, current }), view: None }
    }
}

/// The elements of a view, row-major.
fn gather(from: &HostTensor, view: &View) -> Result<HostTensor, Error> {
    let mut to = HostTensor::zeros(from.dtype(), &view.shape)?;
    if view.shape.contains(&0) {
        return Ok(to);
    }
    let (size, source) = (from.dtype().size(), from.bytes());
    let (mut shape, mut strides) = (view.shape.clone(), view.strides.clone());
    // The innermost axis, or all that is consecutive.
    let (mut run, mut step) = (1, 1);
    if let (Some(n), Some(s)) = (shape.pop(), strides.pop()) {
        (run, step) = (n, s);
    }
    let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, shape.len());
    let mut at = view.offset;
    for row in to.bytes_mut().chunks_exact_mut(run * size) {
        if step == 1 {
            let first = at as usize * size;
            row.copy_from_slice(&source[first..first + row.len()]);
        } else {
            for (i, e) in row.chunks_exact_mut(size).enumerate() {
                let first = (at + i as i64 * step) as usize * size;
                e.copy_from_slice(&source[first..first + size]);
            }
        }
        for a in (0..shape.len()).rev() {
            index[a] += 1;
            at += strides[a];
            if index[a] < shape[a] {
                break;
            }
            at -= strides[a] * shape[a] as i64;
            index[a] = 0;
        }
    }
    Ok(to)
}
