//! Dense arrays of wide elements, and the one primitive all views are made of: [`Array::strided`].

use super::{Fault, scalar};
use crate::{DType, Scalar, Tensor};

/// Most elements of a value; a graph asking for more is refused rather than left to exhaust memory.
const MAX_ELEMENTS: u128 = 1 << 28;

/// Elements, wide enough for exact arithmetic: any float as f64, any integer or bool as i64 (u64 by its bits).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

/// A dense row-major array whose elements are values of its dtype.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) data: Data,
}

/// Product of extents.
///
/// # Errors
/// More than this evaluator holds.
pub(super) fn count(shape: &[usize]) -> Result<usize, Fault> {
    let too_large = || Fault::TooLarge { shape: shape.to_vec() };
    if shape.contains(&0) {
        return Ok(0);
    }
    let n = shape.iter().try_fold(1u128, |n, &d| n.checked_mul(d as u128)).ok_or_else(too_large)?;
    if n > MAX_ELEMENTS { Err(too_large()) } else { Ok(n as usize) }
}

/// Row-major strides.
pub(super) fn natural_strides(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1i64;
    for (s, &n) in strides.iter_mut().zip(shape).rev() {
        *s = step;
        step = step.saturating_mul(n as i64);
    }
    strides
}

/// The index of flat position `at`.
pub(super) fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &n) in index.iter_mut().zip(shape).rev() {
        (*i, at) = (at % n.max(1), at / n.max(1));
    }
    index
}

/// Shape two shapes broadcast to.
pub(super) fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Fault> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(Fault::Shapes(format!("shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// Visits `offset + sum(index * stride)` for every index of `shape` in row-major order. Steps beyond the last index may
/// wrap around; values at an index do so only if [`extremes`] do not fit.
pub(super) fn walk(shape: &[usize], offset: i64, strides: &[i64], mut visit: impl FnMut(i64)) {
    let Some((&inner, outer)) = shape.split_last() else { return visit(offset) };
    if shape.contains(&0) {
        return;
    }
    let (step, mut row) = (strides[outer.len()], offset);
    let mut index = vec![0usize; outer.len()];
    loop {
        (0..inner as i64).for_each(|i| visit(row.wrapping_add(i.wrapping_mul(step))));
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            row = row.wrapping_add(strides[axis]);
            if index[axis] < outer[axis] {
                break;
            }
            row = row.wrapping_sub(strides[axis].wrapping_mul(outer[axis] as i64));
            index[axis] = 0;
        }
    }
}

impl Array {
    /// From floats that are rounded here.
    pub(super) fn from_f64(dtype: DType, shape: Vec<usize>, mut data: Vec<f64>) -> Array {
        if dtype != DType::F64 {
            data.iter_mut().for_each(|x| *x = scalar::round(*x, dtype));
        }
        Array { dtype, shape, data: Data::Float(data) }
    }
    /// From integers already wrapped to the dtype.
    pub(super) fn from_int(dtype: DType, shape: Vec<usize>, data: Vec<i64>) -> Array {
        Array { dtype, shape, data: Data::Int(data) }
    }
    pub(super) fn from_tensor(t: &Tensor) -> Array {
        macro_rules! floats {
            ($t:ty, $f:expr) => {
                Data::Float(t.as_slice::<$t>().unwrap_or(&[]).iter().map($f).collect())
            };
        }
        macro_rules! ints {
            ($t:ty) => {
                Data::Int(t.as_slice::<$t>().unwrap_or(&[]).iter().map(|&x| x as i64).collect())
            };
        }
        let data = match t.dtype() {
            DType::F32 => floats!(f32, |&x| f64::from(x)),
            DType::F64 => floats!(f64, |&x| x),
            DType::F16 => floats!(half::f16, |x| x.to_f64()),
            DType::BF16 => floats!(half::bf16, |x| x.to_f64()),
            DType::I8 => ints!(i8),
            DType::U8 | DType::Bool => ints!(u8),
            DType::I16 => ints!(i16),
            DType::U16 => ints!(u16),
            DType::I32 => ints!(i32),
            DType::U32 => ints!(u32),
            DType::I64 => ints!(i64),
            DType::U64 => ints!(u64),
        };
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), data }
    }
    pub(super) fn to_tensor(&self) -> Result<Tensor, Fault> {
        let too_large = |_| Fault::TooLarge { shape: self.shape.clone() };
        let mut t = Tensor::zeros(self.dtype, &self.shape).map_err(too_large)?;
        self.write_le(t.bytes_mut());
        Ok(t)
    }
    /// Writes the elements, little-endian.
    fn write_le(&self, out: &mut [u8]) {
        let size = self.dtype.size();
        let cells = out.chunks_exact_mut(size);
        match &self.data {
            Data::Float(v) => cells.zip(v).for_each(|(cell, &x)| {
                cell.copy_from_slice(&Scalar::Float(x).to_bits(self.dtype).to_le_bytes()[..size]);
            }),
            Data::Int(v) => cells.zip(v).for_each(|(cell, &x)| {
                cell.copy_from_slice(&x.to_le_bytes()[..size]);
            }),
        }
    }
    /// A rank-0 array, `value` converted to the dtype.
    pub(super) fn scalar(dtype: DType, value: Scalar) -> Array {
        let data = match value {
            Scalar::Float(x) if dtype.is_float() => Data::Float(vec![scalar::round(x, dtype)]),
            Scalar::Float(x) => Data::Int(vec![scalar::float_to_int(x, dtype)]),
            Scalar::Int(x) if dtype.is_float() => Data::Float(vec![scalar::int_to_float(x.into(), dtype)]),
            Scalar::Int(x) => Data::Int(vec![scalar::wrap(x.into(), dtype)]),
        };
        Array { dtype, shape: vec![], data }
    }
    pub(super) fn len(&self) -> usize {
        match &self.data {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
        }
    }
    pub(super) fn floats(&self) -> Result<&[f64], Fault> {
        match &self.data {
            Data::Float(v) => Ok(v),
            Data::Int(_) => Err(Fault::DType { dtype: self.dtype }),
        }
    }
    pub(super) fn ints(&self) -> Result<&[i64], Fault> {
        match &self.data {
            Data::Int(v) => Ok(v),
            Data::Float(_) => Err(Fault::DType { dtype: self.dtype }),
        }
    }
    /// The elements at `positions`, under another shape.
    pub(super) fn pick(&self, shape: Vec<usize>, positions: &[usize]) -> Array {
        let data = match &self.data {
            Data::Float(v) => Data::Float(positions.iter().map(|&i| v[i]).collect()),
            Data::Int(v) => Data::Int(positions.iter().map(|&i| v[i]).collect()),
        };
        Array { dtype: self.dtype, shape, data }
    }
    /// The elements at `offset + sum(index * stride)` for every index of `shape`.
    ///
    /// # Errors
    /// An address outside the array.
    pub(super) fn strided(&self, shape: &[usize], offset: i64, strides: &[i64]) -> Result<Array, Fault> {
        let n = count(shape)?;
        check_addresses(shape, offset, strides, self.len())?;
        let data = match &self.data {
            Data::Float(v) => {
                let mut out = Vec::with_capacity(n);
                walk(shape, offset, strides, |at| out.push(v[at as usize]));
                Data::Float(out)
            }
            Data::Int(v) => {
                let mut out = Vec::with_capacity(n);
                walk(shape, offset, strides, |at| out.push(v[at as usize]));
                Data::Int(out)
            }
        };
        Ok(Array { dtype: self.dtype, shape: shape.to_vec(), data })
    }
    /// NumPy `broadcast_to`.
    pub(super) fn expand(&self, shape: &[usize]) -> Result<Array, Fault> {
        if self.shape == shape {
            return Ok(self.clone());
        }
        let wrong = || Fault::Shapes(format!("shape {:?} does not expand to {shape:?}", self.shape));
        let lead = shape.len().checked_sub(self.shape.len()).ok_or_else(wrong)?;
        let mut strides = vec![0; lead];
        for ((&n, &to), s) in self.shape.iter().zip(&shape[lead..]).zip(natural_strides(&self.shape)) {
            match n {
                n if n == to => strides.push(s),
                1 => strides.push(0),
                _ => return Err(wrong()),
            }
        }
        self.strided(shape, 0, &strides)
    }
    /// Axis i of the result is axis `perm[i]`.
    pub(super) fn transpose(&self, perm: &[usize]) -> Result<Array, Fault> {
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return Err(Fault::Invalid(format!("{perm:?} is no permutation of {} axes", self.shape.len())));
        }
        let strides = natural_strides(&self.shape);
        let shape: Vec<usize> = perm.iter().map(|&p| self.shape[p]).collect();
        self.strided(&shape, 0, &perm.iter().map(|&p| strides[p]).collect::<Vec<_>>())
    }
    /// Same elements, another shape of as many.
    pub(super) fn reshape(mut self, shape: Vec<usize>) -> Result<Array, Fault> {
        if count(&shape)? != self.len() {
            return Err(Fault::Shapes(format!("shape {:?} does not reshape to {shape:?}", self.shape)));
        }
        self.shape = shape;
        Ok(self)
    }
    /// `axis` checked against the rank.
    pub(super) fn axis(&self, axis: usize) -> Result<usize, Fault> {
        if axis < self.shape.len() {
            return Ok(axis);
        }
        Err(Fault::Invalid(format!("axis {axis} of a value of rank {}", self.shape.len())))
    }
    /// The given axes moved to the end, so that what lies along them is a contiguous run; with the number of runs and
    /// their length.
    pub(super) fn runs(&self, axes: &[usize]) -> Result<(Array, usize, usize), Fault> {
        axes.iter().try_for_each(|&a| self.axis(a).map(|_| ()))?;
        let mut perm: Vec<usize> = (0..self.shape.len()).filter(|a| !axes.contains(a)).collect();
        let kept = perm.len();
        perm.extend_from_slice(axes);
        let moved = self.transpose(&perm)?;
        let (runs, length) = (count(&moved.shape[..kept])?, count(&moved.shape[kept..])?);
        Ok((moved, runs, length))
    }
}

/// Least and greatest value of an affine walk; none of an empty one.
pub(super) fn extremes(shape: &[usize], offset: i64, strides: &[i64]) -> Option<(i128, i128)> {
    if shape.contains(&0) {
        return None;
    }
    let (mut lo, mut hi) = (i128::from(offset), i128::from(offset));
    for (&n, &s) in shape.iter().zip(strides) {
        let reach = (n as i128 - 1).saturating_mul(s.into());
        (lo, hi) = (lo.saturating_add(reach.min(0)), hi.saturating_add(reach.max(0)));
    }
    Some((lo, hi))
}

/// Checks that every address of an affine walk lies in `0..len`.
pub(super) fn check_addresses(
    shape: &[usize],
    offset: i64,
    strides: &[i64],
    len: usize,
) -> Result<(), Fault> {
    match extremes(shape, offset, strides) {
        Some((address, _)) if address < 0 => Err(Fault::OutOfBounds { address, len }),
        Some((_, address)) if address >= len as i128 => Err(Fault::OutOfBounds { address, len }),
        _ => Ok(()),
    }
}

/// The values of an affine walk.
pub(super) fn affine(shape: &[usize], offset: i64, strides: &[i64]) -> Result<Vec<i64>, Fault> {
    let fits = |(lo, hi): (i128, i128)| lo >= i64::MIN.into() && hi <= i64::MAX.into();
    if !extremes(shape, offset, strides).is_none_or(fits) {
        return Err(Fault::Invalid(format!("{offset} + {strides:?} over {shape:?} overflows")));
    }
    let mut values = Vec::with_capacity(count(shape)?);
    walk(shape, offset, strides, |v| values.push(v));
    Ok(values)
}
