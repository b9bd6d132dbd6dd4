//! Views: other shapes of a storage, by strides. A view remembers the ops that made it, which is how it is read in a graph,
//! and its strides, which is how it is written in place.

use dvm_ir::{DimTable, Op};
use smallvec::{SmallVec, smallvec};

use super::storage::Shape;

/// An op that only renames elements, with concrete extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ViewOp {
    Reshape(Shape),
    Transpose(SmallVec<[usize; 4]>),
    Expand(Shape),
    Slice { start: Shape, len: Shape, step: SmallVec<[i64; 4]> },
}

/// A view of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) shape: Shape,
    pub(crate) chain: SmallVec<[ViewOp; 2]>,
    pub(crate) offset: i64,
    pub(crate) strides: SmallVec<[i64; 4]>,
}

impl ViewOp {
    /// The op with its extents in a table.
    pub(crate) fn to_op(&self, dims: &mut DimTable) -> Op {
        let mut all = |s: &[usize]| s.iter().map(|&n| dims.constant(n as i64)).collect();
        match self {
            ViewOp::Reshape(s) => Op::Reshape { shape: all(s) },
            ViewOp::Transpose(perm) => Op::Transpose { perm: perm.to_vec() },
            ViewOp::Expand(s) => Op::Expand { shape: all(s) },
            ViewOp::Slice { start, len, step } => {
                Op::Slice { start: all(start), len: all(len), step: step.to_vec() }
            }
        }
    }
    /// The shape of the result.
    pub(crate) fn shape(&self, from: &[usize]) -> Shape {
        match self {
            ViewOp::Reshape(s) | ViewOp::Expand(s) => s.clone(),
            ViewOp::Transpose(perm) => perm.iter().map(|&p| from[p]).collect(),
            ViewOp::Slice { len, .. } => len.clone(),
        }
    }
}

/// Row-major strides.
pub(crate) fn dense(shape: &[usize]) -> SmallVec<[i64; 4]> {
    let mut strides: SmallVec<[i64; 4]> = smallvec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1) as i64);
    }
    strides
}

impl View {
    /// The whole of a storage.
    pub(crate) fn whole(shape: &[usize]) -> View {
        View { shape: Shape::from_slice(shape), chain: SmallVec::new(), offset: 0, strides: dense(shape) }
    }
    /// Whether element i of the view is element i of a storage of this shape.
    pub(crate) fn is_whole(&self, storage: &[usize]) -> bool {
        let n = |s: &[usize]| s.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        self.offset == 0 && n(&self.shape) == n(storage) && self.is_dense()
    }
    /// Whether its elements are consecutive.
    pub(crate) fn is_dense(&self) -> bool {
        let strides = dense(&self.shape);
        (0..self.shape.len()).all(|i| self.shape[i] == 1 || strides[i] == self.strides[i])
            || self.shape.contains(&0)
    }
    /// Whether no two of its elements share memory.
    pub(crate) fn is_injective(&self) -> bool {
        (0..self.shape.len()).all(|i| self.shape[i] <= 1 || self.strides[i] != 0)
    }
    /// The view of this view that an op makes, `None` where it has no strides.
    pub(crate) fn then(&self, op: ViewOp) -> Option<View> {
        let (mut offset, shape) = (self.offset, op.shape(&self.shape));
        let strides = match &op {
            ViewOp::Reshape(to) => reshaped(&self.shape, &self.strides, to)?,
            ViewOp::Transpose(perm) => perm.iter().map(|&p| self.strides[p]).collect(),
            ViewOp::Expand(to) => {
                let lead = to.len() - self.shape.len();
                let own = |i: usize| if self.shape[i] == to[lead + i] { self.strides[i] } else { 0 };
                (0..to.len()).map(|i| if i < lead { 0 } else { own(i - lead) }).collect()
            }
            ViewOp::Slice { start, step, .. } => {
                offset += start.iter().zip(&self.strides).map(|(&s, &t)| s as i64 * t).sum::<i64>();
                step.iter().zip(&self.strides).map(|(&s, &t)| s * t).collect()
            }
        };
        let mut chain = self.chain.clone();
        match (chain.last_mut(), op) {
            // A reshape of a reshape is one.
            (Some(ViewOp::Reshape(last)), ViewOp::Reshape(to)) => *last = to,
            (_, op) => chain.push(op),
        }
        Some(View { shape, chain, offset, strides })
    }
}

/// Strides of the same elements under another shape, where they have any: axes are grouped so that both shapes have equal
/// products, and a group must be dense in itself.
fn reshaped(from: &[usize], strides: &[i64], to: &[usize]) -> Option<SmallVec<[i64; 4]>> {
    let mut out: SmallVec<[i64; 4]> = smallvec![1; to.len()];
    if from.contains(&0) {
        return Some(dense(to));
    }
    let axes: SmallVec<[usize; 4]> = (0..from.len()).filter(|&i| from[i] != 1).collect();
    let (mut i, mut j) = (0, 0);
    while j < to.len() {
        if to[j] == 1 {
            j += 1;
            continue;
        }
        let (first, start) = (i, j);
        let (mut a, mut b) = (from[*axes.get(i)?], to[j]);
        (i, j) = (i + 1, j + 1);
        while a != b {
            if a < b {
                a = a.checked_mul(from[*axes.get(i)?])?;
                i += 1;
            } else {
                b = b.checked_mul(*to.get(j)?)?;
                j += 1;
            }
        }
        let group = &axes[first..i];
        if group.windows(2).any(|w| strides[w[0]] != strides[w[1]] * from[w[1]] as i64) {
            return None;
        }
        let mut stride = strides[*group.last()?];
        for k in (start..j).rev() {
            out[k] = stride;
            stride *= to[k] as i64;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: &[usize], ops: &[ViewOp]) -> Option<View> {
        ops.iter().try_fold(View::whole(shape), |v, op| v.then(op.clone()))
    }
    fn reshape(s: &[usize]) -> ViewOp {
        ViewOp::Reshape(Shape::from_slice(s))
    }

    #[test]
    fn reshapes_have_strides_where_axes_regroup() {
        let t = || ViewOp::Transpose(smallvec![1, 0]);
        type Case = (&'static [usize], Vec<ViewOp>, Option<&'static [i64]>);
        let cases: &[Case] = &[
            (&[4, 6], vec![reshape(&[2, 2, 3, 2])], Some(&[12, 6, 2, 1])),
            (&[4, 6], vec![reshape(&[24])], Some(&[1])),
            (&[4, 6], vec![t(), reshape(&[24])], None),
            (&[4, 6], vec![t(), reshape(&[3, 2, 4])], Some(&[2, 1, 6])),
            (&[1, 6], vec![t(), reshape(&[6, 1])], Some(&[1, 1])),
            (&[], vec![reshape(&[1, 1])], Some(&[1, 1])),
            (&[0, 3], vec![reshape(&[3, 0])], Some(&[1, 1])),
            (&[2, 3, 4], vec![reshape(&[6, 4])], Some(&[4, 1])),
        ];
        for (shape, ops, strides) in cases {
            let got = view(shape, ops).map(|v| v.strides.to_vec());
            assert_eq!(got.as_deref(), *strides, "{shape:?} {ops:?}");
        }
    }

    #[test]
    fn slices_and_expansions_compose() {
        let slice = ViewOp::Slice { start: smallvec![3, 1], len: smallvec![2, 2], step: smallvec![-2, 1] };
        let v = view(&[4, 6], &[slice]).unwrap();
        assert_eq!((v.offset, &v.strides[..]), (19, &[-12, 1][..]));
        assert!(v.is_injective() && !v.is_dense());
        let e = v.then(ViewOp::Expand(smallvec![5, 2, 2])).unwrap();
        assert_eq!(&e.strides[..], &[0, -12, 1]);
        assert!(!e.is_injective());
        assert!(view(&[4, 6], &[reshape(&[24])]).unwrap().is_whole(&[4, 6]));
    }
}
