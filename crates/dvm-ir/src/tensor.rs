//! Dense host tensors: what constants hold and what sessions take and return.

use std::sync::Arc;

use bytemuck::Pod;

use crate::{DType, Scalar};

/// A tensor could not be made or read as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Shape and data disagree.
    #[error("shape {shape:?} of {dtype} needs {needs} bytes, got {got}")]
    Length {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes the shape needs.
        needs: usize,
        /// Bytes given.
        got: usize,
    },
    /// The shape's element count or byte size does not fit.
    #[error("shape {shape:?} of {dtype} is too large")]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
    },
    /// Read as another dtype than it has.
    #[error("tensor is {has}, asked for {asked}")]
    DType {
        /// The tensor's.
        has: DType,
        /// The asked one.
        asked: DType,
    },
}

/// A Rust type that is the element of a dtype.
pub trait Element: Pod + PartialEq {
    /// Its dtype.
    const DTYPE: DType;
}
macro_rules! elements { ($($t:ty = $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* } }
elements!(
    f32 = F32,
    f64 = F64,
    half::f16 = F16,
    half::bf16 = BF16,
    i8 = I8,
    u8 = U8,
    i16 = I16,
    u16 = U16,
    i32 = I32,
    u32 = U32,
    i64 = I64,
    u64 = U64
);

/// A dense row-major tensor. Cloning shares the data. Bool is one byte an element, 0 or 1.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    /// 8-byte words, so that any element type can be viewed in place; only the first `bytes` bytes count.
    words: Arc<Vec<u64>>,
    bytes: usize,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype, self.shape)
    }
}

/// Element count of a shape, `None` on overflow.
#[must_use]
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the byte size does not fit `isize`.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let too_large = || TensorError::TooLarge { dtype, shape: shape.to_vec() };
        let bytes = element_count(shape).and_then(|n| n.checked_mul(dtype.size())).ok_or_else(too_large)?;
        if bytes > isize::MAX as usize / 2 {
            return Err(too_large());
        }
        Ok(Tensor { dtype, shape: shape.to_vec(), words: Arc::new(vec![0; bytes.div_ceil(8)]), bytes })
    }
    /// A tensor from little-endian bytes.
    ///
    /// # Errors
    /// When the byte count is not what the shape needs.
    pub fn from_bytes(dtype: DType, shape: &[usize], data: &[u8]) -> Result<Tensor, TensorError> {
        let needs = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if needs != Some(data.len()) {
            let needs = needs.unwrap_or(usize::MAX);
            return Err(TensorError::Length { dtype, shape: shape.to_vec(), needs, got: data.len() });
        }
        let mut t = Tensor::zeros(dtype, shape)?;
        t.bytes_mut().copy_from_slice(data);
        if dtype == DType::Bool {
            t.bytes_mut().iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        Ok(t)
    }
    /// A tensor from elements.
    ///
    /// # Errors
    /// When the element count is not what the shape needs.
    pub fn from_slice<T: Element>(shape: &[usize], data: &[T]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(data))
    }
    /// A bool tensor.
    ///
    /// # Errors
    /// When the element count is not what the shape needs.
    pub fn from_bools(shape: &[usize], data: &[bool]) -> Result<Tensor, TensorError> {
        let bytes: Vec<u8> = data.iter().map(|&b| u8::from(b)).collect();
        Tensor::from_bytes(DType::Bool, shape, &bytes)
    }
    /// A rank-0 tensor.
    #[must_use]
    pub fn scalar(dtype: DType, value: Scalar) -> Tensor {
        let bits = value.to_bits(dtype);
        Tensor { dtype, shape: vec![], words: Arc::new(vec![bits]), bytes: dtype.size() }
    }
    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes / self.dtype.size()
    }
    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
    /// A tensor of a shape alone: what stands for a weight whose elements nobody will ask for, so that a model of any size can be
    /// planned, compiled and timed without its data. [`Tensor::bytes`] is empty; running or evaluating it is an error.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] as [`Tensor::zeros`].
    pub fn shape_only(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let bytes = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        match bytes.filter(|&n| n <= isize::MAX as usize / 2) {
            Some(bytes) => Ok(Tensor { dtype, shape: shape.to_vec(), words: Arc::default(), bytes }),
            None => Err(TensorError::TooLarge { dtype, shape: shape.to_vec() }),
        }
    }
    /// Whether there are elements, as opposed to [`Tensor::shape_only`].
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.words.len() * 8 >= self.bytes
    }
    /// Bytes of the elements, held or not.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }
    /// The data, little-endian, row-major; nothing of a [`Tensor::shape_only`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = bytemuck::cast_slice(&self.words);
        all.get(..self.bytes).unwrap_or_default()
    }
    /// The data for writing; copies it first if it is shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let n = self.bytes;
        let all: &mut [u8] =
            bytemuck::cast_slice_mut(Arc::<Vec<u64>>::make_mut(&mut self.words).as_mut_slice());
        all.get_mut(..n).unwrap_or_default()
    }
    /// The elements.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype (bool is readable as `u8`).
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        if T::DTYPE != self.dtype && !(self.dtype == DType::Bool && T::DTYPE == DType::U8) {
            return Err(TensorError::DType { has: self.dtype, asked: T::DTYPE });
        }
        Ok(bytemuck::cast_slice(self.bytes()))
    }
    /// Element `i` in row-major order. Panics when out of range or without data, like indexing.
    #[must_use]
    pub fn get(&self, i: usize) -> Scalar {
        let s = self.dtype.size();
        let mut le = [0u8; 8];
        le[..s].copy_from_slice(&self.bytes()[i * s..(i + 1) * s]);
        Scalar::from_bits(u64::from_le_bytes(le), self.dtype)
    }
    /// Sets element `i` in row-major order. Panics when out of range, like indexing.
    pub fn set(&mut self, i: usize, value: Scalar) {
        let (s, bits) = (self.dtype.size(), value.to_bits(self.dtype));
        self.bytes_mut()[i * s..(i + 1) * s].copy_from_slice(&bits.to_le_bytes()[..s]);
    }
    /// The memory of a tensor nobody else shares as another tensor, its content arbitrary; `None` where its size does not fit.
    #[must_use]
    pub fn recycle(mut self, dtype: DType, shape: &[usize]) -> Option<Tensor> {
        let bytes = element_count(shape).and_then(|n| n.checked_mul(dtype.size()))?;
        let fits = self.words.len() == bytes.div_ceil(8) && Arc::get_mut(&mut self.words).is_some();
        fits.then(|| Tensor { dtype, shape: shape.to_vec(), words: self.words, bytes })
    }
    /// Whether another tensor has the same memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.words) > 1
    }
    /// The same data under another shape.
    ///
    /// # Errors
    /// When the element counts differ.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        if element_count(shape) != Some(self.len()) {
            return Err(TensorError::Length {
                dtype: self.dtype,
                shape: shape.to_vec(),
                needs: element_count(shape).unwrap_or(usize::MAX).saturating_mul(self.dtype.size()),
                got: self.bytes,
            });
        }
        Ok(Tensor { shape: shape.to_vec(), ..self.clone() })
    }
}
