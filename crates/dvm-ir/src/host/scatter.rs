//! Elements to places by index.

use super::{Combine, HostError, strides};
use crate::eval::arithmetic;
use crate::{BinaryOp, Tensor};

fn wrap(value: i64, extent: usize, element: usize) -> Result<usize, HostError> {
    let at = if value < 0 { value.saturating_add(extent as i64) } else { value };
    usize::try_from(at).ok().filter(|&a| a < extent).ok_or(HostError::Index { value, element, extent })
}

/// Writes `updates[from..from + n]` at `out[to..to + n]`.
fn put(out: &mut Tensor, to: usize, updates: &Tensor, from: usize, n: usize, combine: Combine) {
    let op = match combine {
        Combine::Set => {
            let s = out.dtype().size();
            let bytes = &updates.bytes()[from * s..(from + n) * s];
            out.bytes_mut()[to * s..(to + n) * s].copy_from_slice(bytes);
            return;
        }
        Combine::Add => BinaryOp::Add,
        Combine::Mul => BinaryOp::Mul,
        Combine::Max => BinaryOp::Max,
        Combine::Min => BinaryOp::Min,
    };
    let dtype = out.dtype();
    for k in 0..n {
        let value = arithmetic(op, dtype, out.get(to + k), updates.get(from + k));
        out.set(to + k, value);
    }
}

pub(super) fn elements(
    data: &Tensor,
    index: &Tensor,
    updates: &Tensor,
    axis: usize,
    combine: Combine,
) -> Result<Tensor, HostError> {
    let (shape, own) = (data.shape(), index.shape());
    let fits = own == updates.shape()
        && own.len() == shape.len()
        && axis < shape.len()
        && (0..shape.len()).all(|i| i == axis || own[i] <= shape[i]);
    if !fits {
        return Err(HostError::Operands(format!(
            "index {own:?} and updates {:?} do not fit data {shape:?} along axis {axis}",
            updates.shape()
        )));
    }
    let to = strides(shape);
    let mut out = data.clone();
    let mut at = vec![0; own.len()];
    for e in 0..index.len() {
        let i = wrap(index.get(e).as_i64(), shape[axis], e)?;
        let place: usize = (0..own.len()).map(|k| to[k] * if k == axis { i } else { at[k] }).sum();
        put(&mut out, place, updates, e, 1, combine);
        for k in (0..own.len()).rev() {
            at[k] += 1;
            if at[k] < own[k] {
                break;
            }
            at[k] = 0;
        }
    }
    Ok(out)
}

pub(super) fn slices(
    data: &Tensor,
    index: &Tensor,
    updates: &Tensor,
    combine: Combine,
) -> Result<Tensor, HostError> {
    let shape = data.shape();
    let Some((&width, lead)) = index.shape().split_last() else {
        return Err(HostError::Operands("the index has rank 0".into()));
    };
    if width > shape.len() || updates.shape() != [lead, &shape[width..]].concat() {
        return Err(HostError::Operands(format!(
            "index {:?} and updates {:?} do not fit data {shape:?}",
            index.shape(),
            updates.shape()
        )));
    }
    let to = strides(shape);
    let slice: usize = shape[width..].iter().product();
    let mut out = data.clone();
    for t in 0..lead.iter().product() {
        let mut place = 0;
        for k in 0..width {
            let e = t * width + k;
            place += to[k] * wrap(index.get(e).as_i64(), shape[k], e)?;
        }
        put(&mut out, place, updates, t * slice, slice, combine);
    }
    Ok(out)
}
