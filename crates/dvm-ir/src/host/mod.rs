//! Ops that the host executes between programs.
//!
//! They move elements to places, or pick elements, as data say: what a fixed set of tiles cannot express, or only at a cost that
//! grows with the square of the extent. A [`HostOp`] is a [`crate::ControlKind`]: everything before and after it fuses as
//! usual. Each is deterministic and linear in what it reads, but for a sort.

mod pick;
mod scatter;

use crate::{DType, Dim, DimTable, Tensor, TensorError, TensorType};

/// How an element of a scatter meets what is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// It replaces it; of several the last in row-major order of the updates stays.
    Set,
    /// Sum, rounded to the dtype after every addition, in row-major order of the updates; so the others.
    Add,
    /// Product.
    Mul,
    /// Maximum, NaN propagating.
    Max,
    /// Minimum, NaN propagating.
    Min,
}

/// An op executed by the host. Operands are tensors; what decides the shape of a result may be an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// `data, index, updates`: `data` with `updates[i0, .., in]` at `[i0, .., index[i0, .., in], .., in]`. The index (i32 or i64) has the
    /// updates' shape, its values count from the end where negative; one out of range is an error.
    Scatter {
        /// Axis that the index replaces.
        axis: usize,
        /// What happens where elements meet.
        combine: Combine,
    },
    /// `data, index, updates`: the last axis of the index holds the first coordinates of a slice of `data`.
    ScatterNd {
        /// What happens where elements meet.
        combine: Combine,
    },
    /// `x, k`: the k largest or smallest elements along an axis, in order, and their i64 indices. Of equals the one with the lower
    /// index comes first; NaN counts as the largest.
    TopK {
        /// Axis.
        axis: usize,
        /// The largest rather than the smallest.
        largest: bool,
    },
    /// `x`: its distinct elements, or distinct slices along an axis, ascending or in order of appearance, and as i64: where
    /// each occurs first, which of them each of `x` is, how often each occurs.
    Unique {
        /// Axis of the slices; `None` for the elements of the flattened tensor.
        axis: Option<usize>,
        /// Ascending rather than in order of appearance.
        sorted: bool,
    },
    /// `boxes f32[n, b, 4], scores f32[n, c, b], most, overlap, least`: (batch, class, box) of the boxes that stay, `i64[count, 3]`,
    /// when boxes are taken by falling score (at least `least`, at most `most` per class) and those that overlap a taken one by more than
    /// `overlap` (intersection over union) are dropped.
    Nms {
        /// Boxes are (x, y, width, height) around their centre rather than two corners (y, x).
        center: bool,
    },
}

/// Why a host op has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// An index of a scatter.
    #[error("index {value} at element {element} is out of range for extent {extent}")]
    Index {
        /// The index.
        value: i64,
        /// Its place in the index tensor.
        element: usize,
        /// What it indexes.
        extent: usize,
    },
    /// Operands that do not fit each other.
    #[error("{0}")]
    Operands(String),
    /// A result that is too large.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

const COMBINES: [Combine; 5] = [Combine::Set, Combine::Add, Combine::Mul, Combine::Max, Combine::Min];
const SCATTER: [&str; 5] = ["scatter", "scatter_add", "scatter_mul", "scatter_max", "scatter_min"];
const SCATTER_ND: [&str; 5] =
    ["scatter_nd", "scatter_nd_add", "scatter_nd_mul", "scatter_nd_max", "scatter_nd_min"];

impl HostOp {
    /// Name in the text form.
    #[must_use]
    pub const fn mnemonic(self) -> &'static str {
        match self {
            HostOp::Scatter { combine, .. } => SCATTER[combine as usize],
            HostOp::ScatterNd { combine } => SCATTER_ND[combine as usize],
            HostOp::TopK { .. } => "topk",
            HostOp::Unique { .. } => "unique",
            HostOp::Nms { .. } => "nms",
        }
    }
    /// Attributes by name; flags are 0 or 1, no axis is -1.
    #[must_use]
    pub fn attrs(self) -> Vec<(&'static str, i64)> {
        match self {
            HostOp::Scatter { axis, .. } => vec![("axis", axis as i64)],
            HostOp::ScatterNd { .. } => vec![],
            HostOp::TopK { axis, largest } => vec![("axis", axis as i64), ("largest", i64::from(largest))],
            HostOp::Unique { axis, sorted } => {
                vec![("axis", axis.map_or(-1, |a| a as i64)), ("sorted", i64::from(sorted))]
            }
            HostOp::Nms { center } => vec![("center", i64::from(center))],
        }
    }
    /// Whether a word is a mnemonic.
    #[must_use]
    pub fn is_mnemonic(word: &str) -> bool {
        matches!(word, "topk" | "unique" | "nms") || SCATTER.contains(&word) || SCATTER_ND.contains(&word)
    }
    /// The op of this mnemonic with these attributes; `None` where it does not exist or has others.
    #[must_use]
    pub fn from_parts(mnemonic: &str, attrs: &[(String, i64)]) -> Option<HostOp> {
        let get = |name: &str| attrs.iter().find(|(n, _)| n == name).map(|a| a.1);
        let axis = || get("axis").and_then(|a| usize::try_from(a).ok()).filter(|&a| a < crate::MAX_RANK);
        let flag = |name: &str| get(name).filter(|v| (0..2).contains(v)).map(|v| v == 1);
        let combine = |names: &[&str; 5]| names.iter().position(|n| *n == mnemonic).map(|i| COMBINES[i]);
        let op = match mnemonic {
            "topk" => HostOp::TopK { axis: axis()?, largest: flag("largest")? },
            "unique" => HostOp::Unique {
                axis: if get("axis")? == -1 { None } else { Some(axis()?) },
                sorted: flag("sorted")?,
            },
            "nms" => HostOp::Nms { center: flag("center")? },
            _ => match combine(&SCATTER) {
                Some(combine) => HostOp::Scatter { axis: axis()?, combine },
                None => HostOp::ScatterNd { combine: combine(&SCATTER_ND)? },
            },
        };
        (op.attrs().len() == attrs.len()).then_some(op)
    }
    /// Number of operands and of results.
    #[must_use]
    pub const fn arity(self) -> (usize, usize) {
        match self {
            HostOp::Scatter { .. } | HostOp::ScatterNd { .. } => (3, 1),
            HostOp::TopK { .. } => (2, 2),
            HostOp::Unique { .. } => (1, 4),
            HostOp::Nms { .. } => (5, 1),
        }
    }

    /// The type of result `i`: dtype and shape, `None` for extents that only data tell.
    ///
    /// # Errors
    /// The rule that the operands break.
    pub fn result_type(
        self,
        operands: &[TensorType],
        i: usize,
        dims: &mut DimTable,
    ) -> Result<(DType, Vec<Option<Dim>>), String> {
        let (inputs, results) = self.arity();
        if operands.len() != inputs || i >= results {
            return Err(format!("{} takes {inputs} operands, not {}", self.mnemonic(), operands.len()));
        }
        let x = &operands[0];
        let whole = |t: &TensorType| t.shape.iter().copied().map(Some).collect::<Vec<_>>();
        let index = |t: &TensorType| matches!(t.dtype, DType::I32 | DType::I64);
        match self {
            HostOp::Scatter { axis, .. } => {
                let (at, u) = (&operands[1], &operands[2]);
                let rank = x.shape.len();
                if !index(at)
                    || u.dtype != x.dtype
                    || axis >= rank
                    || at.shape.len() != rank
                    || u.shape.len() != rank
                {
                    return Err(format!(
                        "{} needs data, an i32 or i64 index and updates of one rank",
                        self.mnemonic()
                    ));
                }
                Ok((x.dtype, whole(x)))
            }
            HostOp::ScatterNd { .. } => {
                let (at, u) = (&operands[1], &operands[2]);
                let width =
                    at.shape.last().and_then(|&d| dims.as_const(d)).and_then(|n| usize::try_from(n).ok());
                let fits = width.is_some_and(|w| {
                    w <= x.shape.len() && u.shape.len() == at.shape.len() - 1 + x.shape.len() - w
                });
                if !index(at) || u.dtype != x.dtype || !fits {
                    return Err(format!(
                        "{} needs data, an i32 or i64 index of constant width and updates of the rank that follows",
                        self.mnemonic()
                    ));
                }
                Ok((x.dtype, whole(x)))
            }
            HostOp::TopK { axis, .. } => {
                if axis >= x.shape.len() || operands[1].dtype != DType::I64 || x.dtype == DType::Bool {
                    return Err("topk needs numbers, an axis of theirs and k as i64".into());
                }
                let mut shape = whole(x);
                shape[axis] = None;
                Ok((if i == 0 { x.dtype } else { DType::I64 }, shape))
            }
            HostOp::Unique { axis, .. } => {
                if axis.is_some_and(|a| a >= x.shape.len()) {
                    return Err(format!("unique along axis {axis:?} of rank {}", x.shape.len()));
                }
                Ok(match (i, axis) {
                    (0, Some(a)) => {
                        let mut shape = whole(x);
                        shape[a] = None;
                        (x.dtype, shape)
                    }
                    (0, None) => (x.dtype, vec![None]),
                    (2, None) => (DType::I64, vec![Some(dims.product(&x.shape))]),
                    (2, Some(a)) => (DType::I64, vec![Some(x.shape[a])]),
                    _ => (DType::I64, vec![None]),
                })
            }
            HostOp::Nms { .. } => {
                let wanted = [DType::F32, DType::F32, DType::I64, DType::F32, DType::F32];
                let fits = operands.iter().zip(wanted).all(|(t, d)| t.dtype == d);
                if !fits || x.shape.len() != 3 || operands[1].shape.len() != 3 {
                    return Err(
                        "nms needs f32 boxes and scores of rank 3, i64 most, f32 overlap and least".into()
                    );
                }
                Ok((DType::I64, vec![None, Some(dims.constant(3))]))
            }
        }
    }

    /// Most bytes that [`HostOp::run`] takes for results and what it needs on the way.
    #[must_use]
    pub fn needs(self, args: &[Tensor]) -> u64 {
        let bytes = |i: usize| args.get(i).map_or(0, |t: &Tensor| t.bytes().len() as u64);
        let count = args.first().map_or(0, Tensor::len) as u64;
        match self {
            HostOp::Scatter { .. } | HostOp::ScatterNd { .. } => bytes(0),
            HostOp::TopK { .. } => bytes(0).saturating_add(count.saturating_mul(16)),
            HostOp::Unique { .. } => bytes(0).saturating_add(count.saturating_mul(40)),
            HostOp::Nms { .. } => args.get(1).map_or(0, |t| t.len() as u64).saturating_mul(40),
        }
    }
    /// Executes the op.
    ///
    /// # Errors
    /// An index out of range, or operands that do not fit each other.
    pub fn run(self, args: &[Tensor]) -> Result<Vec<Tensor>, HostError> {
        if args.len() != self.arity().0 {
            return Err(HostError::Operands(format!("{} operands", args.len())));
        }
        match self {
            HostOp::Scatter { axis, combine } => {
                Ok(vec![scatter::elements(&args[0], &args[1], &args[2], axis, combine)?])
            }
            HostOp::ScatterNd { combine } => {
                Ok(vec![scatter::slices(&args[0], &args[1], &args[2], combine)?])
            }
            HostOp::TopK { axis, largest } => pick::topk(&args[0], &args[1], axis, largest),
            HostOp::Unique { axis, sorted } => pick::unique(&args[0], axis, sorted),
            HostOp::Nms { center } => Ok(vec![pick::nms(args, center)?]),
        }
    }
}

/// Row-major strides in elements.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        s[i - 1] = s[i] * shape[i];
    }
    s
}

#[cfg(test)]
mod tests;
