//! Elements, slices and boxes that data pick.

use std::cmp::Ordering;

use super::{HostError, strides};
use crate::{DType, Scalar, Tensor};

/// The order of numbers in which NaN is the largest and zeros are equal.
fn order(a: Scalar, b: Scalar, dtype: DType) -> Ordering {
    match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => {
            x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
        }
        (x, y) if dtype == DType::U64 => (x.as_i64() as u64).cmp(&(y.as_i64() as u64)),
        (x, y) => x.as_i64().cmp(&y.as_i64()),
    }
}

pub(super) fn topk(x: &Tensor, k: &Tensor, axis: usize, largest: bool) -> Result<Vec<Tensor>, HostError> {
    let Some(&extent) = x.shape().get(axis) else {
        return Err(HostError::Operands(format!("axis {axis} of {:?}", x.shape())));
    };
    let k = if k.len() == 1 { k.get(0).as_i64() } else { -1 };
    let Some(k) = usize::try_from(k).ok().filter(|&k| k <= extent) else {
        return Err(HostError::Operands(format!("k = {k} of {extent} elements")));
    };
    let mut shape = x.shape().to_vec();
    shape[axis] = k;
    let (mut values, mut at) = (Tensor::zeros(x.dtype(), &shape)?, Tensor::zeros(DType::I64, &shape)?);
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let outer: usize = x.shape()[..axis].iter().product();
    let mut row: Vec<(Scalar, usize)> = Vec::with_capacity(extent);
    let compare = |a: &(Scalar, usize), b: &(Scalar, usize)| {
        let o = order(a.0, b.0, x.dtype());
        if largest { o.reverse() } else { o }.then(a.1.cmp(&b.1))
    };
    for o in 0..outer {
        for i in 0..inner {
            row.clear();
            row.extend((0..extent).map(|e| (x.get((o * extent + e) * inner + i), e)));
            if k > 0 && k < extent {
                row.select_nth_unstable_by(k - 1, compare);
            }
            row.truncate(k);
            row.sort_unstable_by(compare);
            for (j, &(v, e)) in row.iter().enumerate() {
                let to = (o * k + j) * inner + i;
                values.set(to, v);
                at.set(to, Scalar::Int(e as i64));
            }
        }
    }
    Ok(vec![values, at])
}

pub(super) fn unique(x: &Tensor, axis: Option<usize>, sorted: bool) -> Result<Vec<Tensor>, HostError> {
    let flat = x.reshape(&[x.len()])?;
    let (x, axis) = match axis {
        Some(a) if a < x.shape().len() => (x, a),
        Some(a) => return Err(HostError::Operands(format!("axis {a} of {:?}", x.shape()))),
        None => (&flat, 0),
    };
    let shape = x.shape();
    let (n, inner) = (shape[axis], strides(shape)[axis]);
    let outer: usize = shape[..axis].iter().product();
    let element = |s: usize, j: usize| x.get((j / inner * n + s) * inner + j % inner);
    let size = outer * inner;
    let compare = |a: usize, b: usize| {
        (0..size)
            .map(|j| order(element(a, j), element(b, j), x.dtype()))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    let mut by: Vec<usize> = (0..n).collect();
    by.sort_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    // Per distinct slice: where it occurs first, and how often.
    let mut found: Vec<(usize, i64)> = vec![];
    let mut which = vec![0; n];
    for (k, &s) in by.iter().enumerate() {
        if k == 0 || compare(by[k - 1], s).is_ne() {
            found.push((s, 0));
        }
        which[s] = found.len() - 1;
        if let Some(f) = found.last_mut() {
            f.1 += 1;
        }
    }
    if !sorted {
        let mut place: Vec<usize> = (0..found.len()).collect();
        place.sort_by_key(|&f| found[f].0);
        let mut to = vec![0; found.len()];
        place.iter().enumerate().for_each(|(new, &old)| to[old] = new);
        found = place.iter().map(|&f| found[f]).collect();
        which.iter_mut().for_each(|w| *w = to[*w]);
    }
    let mut own = shape.to_vec();
    own[axis] = found.len();
    let mut y = Tensor::zeros(x.dtype(), &own)?;
    for (f, &(s, _)) in found.iter().enumerate() {
        for j in 0..size {
            y.set((j / inner * found.len() + f) * inner + j % inner, element(s, j));
        }
    }
    let list = |v: Vec<i64>| Tensor::from_slice(&[v.len()], &v);
    Ok(vec![
        y,
        list(found.iter().map(|f| f.0 as i64).collect())?,
        list(which.iter().map(|&w| w as i64).collect())?,
        list(found.iter().map(|f| f.1).collect())?,
    ])
}

/// Two corners.
type Corners = [f32; 4];

fn overlap(a: &Corners, b: &Corners) -> f32 {
    let side = |k: usize| (a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
    let area = |c: &Corners| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    let (x, y) = (area(a), area(b));
    if x <= 0.0 || y <= 0.0 { 0.0 } else { both / (x + y - both) }
}

pub(super) fn nms(args: &[Tensor], center: bool) -> Result<Tensor, HostError> {
    let (boxes, scores) = (&args[0], &args[1]);
    let (&[n, b, 4], &[m, classes, c]) = (boxes.shape(), scores.shape()) else {
        return Err(HostError::Operands(format!("boxes {:?}, scores {:?}", boxes.shape(), scores.shape())));
    };
    if n != m || b != c || args[2..].iter().any(|t| t.len() != 1) {
        return Err(HostError::Operands(format!("boxes {:?}, scores {:?}", boxes.shape(), scores.shape())));
    }
    let most = usize::try_from(args[2].get(0).as_i64()).unwrap_or(0);
    let (limit, least) = (args[3].get(0).as_f64() as f32, args[4].get(0).as_f64() as f32);
    let corners: Vec<Corners> = boxes
        .as_slice::<f32>()?
        .chunks_exact(4)
        .map(|p| {
            let [a, b, c, d] = [p[0], p[1], p[2], p[3]];
            if center {
                [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0]
            } else {
                [a.min(c), b.min(d), a.max(c), b.max(d)]
            }
        })
        .collect();
    let scores = scores.as_slice::<f32>()?;
    let mut out: Vec<i64> = vec![];
    for batch in 0..n {
        for class in 0..classes {
            let own = &scores[(batch * classes + class) * b..][..b];
            let mut by: Vec<usize> = (0..b).filter(|&i| own[i] > least).collect();
            by.sort_by(|&i, &j| own[j].total_cmp(&own[i]).then(i.cmp(&j)));
            let mut taken: Vec<usize> = vec![];
            for i in by {
                if taken.len() >= most {
                    break;
                }
                let at = |k: usize| &corners[batch * b + k];
                if taken.iter().all(|&t| overlap(at(t), at(i)) <= limit) {
                    taken.push(i);
                    out.extend([batch as i64, class as i64, i as i64]);
                }
            }
        }
    }
    Ok(Tensor::from_slice(&[out.len() / 3, 3], &out)?)
}
