//! What an ONNX value is while a graph is being imported.
//!
//! A value may be a tensor of the graph, a constant not yet in the graph, known elements (dims), or several of these. Only
//! what is used as a tensor enters the graph: shape subgraphs leave no trace.

use std::rc::Rc;

use dvm_ir::{DType, Dim, Tensor, ValueId};

/// A value of the import, an index into [`Importer::vals`](crate::import::Importer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct V(pub(crate) u32);

/// See [`V`].
#[derive(Clone, Debug)]
pub(crate) struct Val {
    /// Element type.
    pub(crate) dtype: DType,
    /// Shape.
    pub(crate) shape: Vec<Dim>,
    /// The value in the graph, once something needs the tensor.
    pub(crate) id: Option<ValueId>,
    /// The constant, if the value is one.
    pub(crate) tensor: Option<Tensor>,
    /// Elements in row-major order, where known; a bool is 0 or 1, a float an integral number.
    pub(crate) elems: Option<Rc<[Dim]>>,
    /// The elements come from an input's data. The tensor is then computed from that input, so that elements matter only
    /// where they become shapes.
    pub(crate) runtime: bool,
    /// Nesting of the graph it belongs to.
    pub(crate) level: u32,
}

/// Most elements that are tracked one by one.
pub(crate) const MAX_ELEMS: usize = 1024;

/// A small array of dims with a constant shape: what shape arithmetic computes with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nd {
    /// Shape.
    pub(crate) shape: Vec<usize>,
    /// Elements, row-major.
    pub(crate) data: Vec<Dim>,
}

/// Number of elements of a shape that may be tracked. An empty tensor may have huge extents beside its 0: not here.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    if shape.iter().any(|&d| d > MAX_ELEMS) {
        return None;
    }
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n <= MAX_ELEMS))
}

impl Nd {
    /// One element.
    pub(crate) fn scalar(d: Dim) -> Nd {
        Nd { shape: vec![], data: vec![d] }
    }
    /// A vector.
    pub(crate) fn vector(data: Vec<Dim>) -> Nd {
        Nd { shape: vec![data.len()], data }
    }
    /// Row-major strides of a shape.
    pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
        let mut s = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            s[i - 1] = s[i] * shape[i];
        }
        s
    }
    /// The array of `shape` whose element at each index is the one `at` names (a flat position). `None` when too large.
    pub(crate) fn pick(&self, shape: &[usize], at: impl Fn(&[usize]) -> Option<usize>) -> Option<Nd> {
        let n = count(shape)?;
        let mut index = vec![0; shape.len()];
        let mut data = Vec::with_capacity(n);
        for _ in 0..n {
            data.push(*self.data.get(at(&index)?)?);
            for i in (0..shape.len()).rev() {
                index[i] += 1;
                if index[i] < shape[i] {
                    break;
                }
                index[i] = 0;
            }
        }
        Some(Nd { shape: shape.to_vec(), data })
    }
    /// NumPy broadcasting to a shape.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Option<Nd> {
        let lead = shape.len().checked_sub(self.shape.len())?;
        if self.shape.iter().zip(&shape[lead..]).any(|(&a, &b)| a != b && a != 1) {
            return None;
        }
        let strides = Nd::strides(&self.shape);
        self.pick(shape, |ix| {
            let own = ix[lead..].iter().zip(&self.shape).zip(&strides);
            Some(own.map(|((&i, &d), &s)| if d == 1 { 0 } else { i * s }).sum())
        })
    }
    /// The shape two arrays broadcast to.
    pub(crate) fn common(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
        let n = a.len().max(b.len());
        let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(n).map_or(1, |j| s[j]);
        (0..n)
            .map(|i| match (at(a, i), at(b, i)) {
                (x, y) if x == y || y == 1 => Some(x),
                (1, y) => Some(y),
                _ => None,
            })
            .collect()
    }
    /// Elementwise combination with broadcasting.
    pub(crate) fn zip(&self, other: &Nd, mut f: impl FnMut(Dim, Dim) -> Option<Dim>) -> Option<Nd> {
        let shape = Nd::common(&self.shape, &other.shape)?;
        let (a, b) = (self.broadcast(&shape)?, other.broadcast(&shape)?);
        let data = a.data.iter().zip(&b.data).map(|(&x, &y)| f(x, y)).collect::<Option<_>>()?;
        Some(Nd { shape, data })
    }
    /// Elementwise function.
    pub(crate) fn map(&self, f: impl FnMut(Dim) -> Option<Dim>) -> Option<Nd> {
        let data = self.data.iter().copied().map(f).collect::<Option<_>>()?;
        Some(Nd { shape: self.shape.clone(), data })
    }
    /// Permutes axes.
    pub(crate) fn transpose(&self, perm: &[usize]) -> Option<Nd> {
        let shape: Vec<usize> = perm.iter().map(|&p| self.shape[p]).collect();
        let strides = Nd::strides(&self.shape);
        self.pick(&shape, |ix| Some(ix.iter().zip(perm).map(|(&i, &p)| i * strides[p]).sum()))
    }
    /// Element `start + i * step` along each axis.
    pub(crate) fn slice(&self, start: &[i64], len: &[usize], step: &[i64]) -> Option<Nd> {
        let strides = Nd::strides(&self.shape);
        self.pick(len, |ix| {
            let mut at = 0;
            for (i, &x) in ix.iter().enumerate() {
                let j = start[i].checked_add(step[i].checked_mul(x as i64)?)?;
                let j = usize::try_from(j).ok().filter(|&j| j < self.shape[i])?;
                at += j * strides[i];
            }
            Some(at)
        })
    }
    /// Replaces an axis by the axes of `index`; `None` when an index is out of range.
    pub(crate) fn gather(&self, axis: usize, index: &[i64], index_shape: &[usize]) -> Option<Nd> {
        let extent = self.shape[axis];
        let shape: Vec<usize> = [&self.shape[..axis], index_shape, &self.shape[axis + 1..]].concat();
        let (strides, istrides) = (Nd::strides(&self.shape), Nd::strides(index_shape));
        let r = index_shape.len();
        self.pick(&shape, |ix| {
            let k: usize = ix[axis..axis + r].iter().zip(&istrides).map(|(&i, &s)| i * s).sum();
            let k = index[k];
            let k =
                usize::try_from(if k < 0 { k + extent as i64 } else { k }).ok().filter(|&k| k < extent)?;
            let before: usize = ix[..axis].iter().zip(&strides).map(|(&i, &s)| i * s).sum();
            let after: usize = ix[axis + r..].iter().zip(&strides[axis + 1..]).map(|(&i, &s)| i * s).sum();
            Some(before + k * strides[axis] + after)
        })
    }
    /// Joins arrays along an axis.
    pub(crate) fn concat(parts: &[Nd], axis: usize) -> Option<Nd> {
        let first = parts.first()?;
        let mut shape = first.shape.clone();
        for p in &parts[1..] {
            if p.shape.len() != shape.len() {
                return None;
            }
            shape[axis] += p.shape[axis];
            if (0..shape.len()).any(|i| i != axis && shape[i] != p.shape[i]) {
                return None;
            }
        }
        let outer: usize = shape[..axis].iter().product();
        let mut data = vec![];
        for o in 0..outer {
            for p in parts {
                let row: usize = p.shape[axis..].iter().product();
                data.extend_from_slice(&p.data[o * row..(o + 1) * row]);
            }
        }
        (data.len() <= MAX_ELEMS).then_some(Nd { shape, data })
    }
    /// Folds axes (the extents of `axes` must be non-zero).
    pub(crate) fn reduce(
        &self,
        axes: &[usize],
        keepdims: bool,
        mut f: impl FnMut(Dim, Dim) -> Dim,
    ) -> Option<Nd> {
        let strides = Nd::strides(&self.shape);
        let kept: Vec<usize> =
            (0..self.shape.len()).map(|i| if axes.contains(&i) { 1 } else { self.shape[i] }).collect();
        let first = self.pick(&kept, |ix| Some(ix.iter().zip(&strides).map(|(&i, &s)| i * s).sum()))?;
        let mut out: Vec<Option<Dim>> = vec![None; first.data.len()];
        let ostr = Nd::strides(&kept);
        for (flat, &d) in self.data.iter().enumerate() {
            let at: usize = (0..kept.len())
                .map(|i| if kept[i] == 1 { 0 } else { flat / strides[i] % self.shape[i] * ostr[i] })
                .sum();
            let o = out.get_mut(at)?;
            *o = Some(match *o {
                None => d,
                Some(x) => f(x, d),
            });
        }
        let shape =
            kept.iter().enumerate().filter(|(i, _)| keepdims || !axes.contains(i)).map(|(_, &d)| d).collect();
        Some(Nd { shape, data: out.into_iter().collect::<Option<_>>()? })
    }
}
