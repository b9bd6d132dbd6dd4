//! Ops that only move elements: gathers, concatenation, padding, slices and windows.

use super::{
    Fault,
    array::{Array, Data, count, natural_strides, unravel},
};
use crate::PadMode;

/// The position an index means; a negative one counts from the end.
pub(super) fn position(index: i64, extent: usize) -> Option<usize> {
    let wrapped = if index < 0 { i128::from(index) + extent as i128 } else { i128::from(index) };
    usize::try_from(wrapped).ok().filter(|&p| p < extent)
}

/// Index values as positions in `0..extent`.
fn positions(index: &Array, axis: usize, extent: usize) -> Result<Vec<usize>, Fault> {
    let one = |(at, &i): (usize, &i64)| {
        position(i, extent).ok_or_else(|| Fault::Index {
            value: i,
            axis,
            extent,
            at: unravel(at, &index.shape),
        })
    };
    index.ints()?.iter().enumerate().map(one).collect()
}

pub(super) fn gather(x: &Array, index: &Array, axis: usize) -> Result<Array, Fault> {
    let axis = x.axis(axis)?;
    let (before, after) = (count(&x.shape[..axis])?, count(&x.shape[axis + 1..])?);
    let extent = x.shape[axis];
    let shape = [&x.shape[..axis], &index.shape[..], &x.shape[axis + 1..]].concat();
    let mut picks = Vec::with_capacity(count(&shape)?);
    let rows = positions(index, axis, extent)?;
    for outer in 0..before {
        for &row in &rows {
            let start = (outer * extent + row) * after;
            picks.extend(start..start + after);
        }
    }
    Ok(x.pick(shape, &picks))
}

pub(super) fn gather_elements(x: &Array, index: &Array, axis: usize) -> Result<Array, Fault> {
    let axis = x.axis(axis)?;
    let fits = x.shape.len() == index.shape.len()
        && x.shape.iter().zip(&index.shape).enumerate().all(|(a, (&n, &i))| a == axis || i <= n);
    if !fits {
        let text = format!("gather_elements of {:?} by an index of {:?}", x.shape, index.shape);
        return Err(Fault::Shapes(text));
    }
    let strides = natural_strides(&x.shape);
    let along = positions(index, axis, x.shape[axis])?;
    let pick = |(at, &p): (usize, &usize)| {
        let mut place = unravel(at, &index.shape);
        place[axis] = p;
        place.iter().zip(&strides).map(|(&i, &s)| i * s as usize).sum()
    };
    let picks: Vec<usize> = along.iter().enumerate().map(pick).collect();
    Ok(x.pick(index.shape.clone(), &picks))
}

pub(super) fn concat(parts: &[&Array], axis: usize) -> Result<Array, Fault> {
    let Some((first, rest)) = parts.split_first() else {
        return Err(Fault::Invalid("concat of nothing".into()));
    };
    let axis = first.axis(axis)?;
    let mut shape = first.shape.clone();
    for p in rest {
        let alike =
            p.shape.len() == shape.len() && (0..shape.len()).all(|a| a == axis || p.shape[a] == shape[a]);
        if !alike {
            let text = format!("concat of {:?} and {:?} along axis {axis}", first.shape, p.shape);
            return Err(Fault::Shapes(text));
        }
        if p.dtype != first.dtype {
            return Err(Fault::DTypes { a: first.dtype, b: p.dtype });
        }
        shape[axis] += p.shape[axis];
    }
    count(&shape)?;
    let outer = count(&shape[..axis])?;
    /// Rows of every part in turn; each part comes with the length of its rows.
    fn join<T: Copy>(parts: &[(&[T], usize)], outer: usize) -> Vec<T> {
        let rows = (0..outer).flat_map(|i| parts.iter().map(move |&(v, row)| &v[i * row..(i + 1) * row]));
        rows.flatten().copied().collect()
    }
    let row = |p: &Array| p.shape[axis..].iter().product();
    let data = match first.data {
        Data::Float(_) => {
            let parts = parts.iter().map(|p| Ok((p.floats()?, row(p)))).collect::<Result<Vec<_>, Fault>>()?;
            Data::Float(join(&parts, outer))
        }
        Data::Int(_) => {
            let parts = parts.iter().map(|p| Ok((p.ints()?, row(p)))).collect::<Result<Vec<_>, Fault>>()?;
            Data::Int(join(&parts, outer))
        }
    };
    Ok(Array { dtype: first.dtype, shape, data })
}

/// `start, start + step, ..` along every axis.
pub(super) fn slice(x: &Array, start: &[i64], shape: &[usize], step: &[i64]) -> Result<Array, Fault> {
    let rank = x.shape.len();
    if [start.len(), shape.len(), step.len()] != [rank; 3] {
        return Err(Fault::Invalid(format!("slice of a value of rank {rank} over {} axes", start.len())));
    }
    let strides = natural_strides(&x.shape);
    let mut offset = 0;
    let mut by = vec![0; rank];
    for axis in 0..rank {
        let last = i128::from(start[axis]) + (shape[axis] as i128 - 1) * i128::from(step[axis]);
        let range = 0..x.shape[axis] as i128;
        if shape.contains(&0) {
            continue;
        }
        if !range.contains(&start[axis].into()) || !range.contains(&last) {
            return Err(Fault::Slice { axis, first: start[axis], last, extent: x.shape[axis] });
        }
        offset += start[axis] * strides[axis];
        // A single element has no distance; its step may be anything.
        by[axis] = if shape[axis] == 1 { 0 } else { step[axis] * strides[axis] };
    }
    x.strided(shape, offset, &by)
}

pub(super) fn window(
    x: &Array,
    axis: usize,
    (count, size): (usize, usize),
    (stride, dilation): (i64, i64),
) -> Result<Array, Fault> {
    let axis = x.axis(axis)?;
    let mut shape = x.shape.clone();
    shape.splice(axis..=axis, [count, size]);
    let mut strides = natural_strides(&x.shape);
    let along = strides[axis];
    strides.splice(axis..=axis, [stride.saturating_mul(along), dilation.saturating_mul(along)]);
    if !shape.contains(&0) {
        let reach = |n: usize, by: i64| (n as i128 - 1) * i128::from(by);
        let corners =
            [0, reach(count, stride), reach(size, dilation), reach(count, stride) + reach(size, dilation)];
        let range = 0..x.shape[axis] as i128;
        if let Some(&last) = corners.iter().find(|c| !range.contains(c)) {
            return Err(Fault::Slice { axis, first: 0, last, extent: x.shape[axis] });
        }
    }
    x.strided(&shape, 0, &strides)
}

/// Element i of a padded axis is element `i - before` of the operand, and where there is none it is found by the mode.
pub(super) fn pad(
    x: &Array,
    before: &[i64],
    after: &[i64],
    mode: PadMode,
    value: &Array,
) -> Result<Array, Fault> {
    let rank = x.shape.len();
    if before.len() != rank || after.len() != rank {
        return Err(Fault::Invalid(format!("pad of a value of rank {rank} over {} axes", before.len())));
    }
    let mut shape = vec![];
    // For every axis, the source of each of its elements.
    let mut sources: Vec<Vec<Option<usize>>> = vec![];
    for axis in 0..rank {
        let n = x.shape[axis] as i128;
        let total = n + i128::from(before[axis]) + i128::from(after[axis]);
        let extent = usize::try_from(total).map_err(|_| {
            Fault::Shapes(format!("axis {axis} of extent {n} padded by {} and {}", before[axis], after[axis]))
        })?;
        count(&[extent])?;
        if n == 0 && extent > 0 && mode != PadMode::Constant {
            return Err(Fault::Invalid(format!(
                "axis {axis} is empty: {mode} padding has nothing to repeat"
            )));
        }
        let source = |i: usize| {
            let at = i as i128 - i128::from(before[axis]);
            let found = match mode {
                PadMode::Constant => at,
                PadMode::Edge => at.clamp(0, n - 1),
                PadMode::Wrap => at.rem_euclid(n),
                PadMode::Reflect if n == 1 => 0,
                PadMode::Reflect => {
                    let period = 2 * (n - 1);
                    let phase = at.rem_euclid(period);
                    phase.min(period - phase)
                }
            };
            (0..n).contains(&found).then_some(found as usize)
        };
        sources.push((0..extent).map(source).collect());
        shape.push(extent);
    }
    let strides = natural_strides(&x.shape);
    let place = |at: usize| {
        let index = unravel(at, &shape);
        index
            .iter()
            .zip(&sources)
            .zip(&strides)
            .try_fold(0, |sum, ((&i, s), &st)| Some(sum + s[i]? * st as usize))
    };
    let places = (0..count(&shape)?).map(place);
    let data = match (&x.data, &value.data) {
        (Data::Float(v), Data::Float(fill)) => {
            Data::Float(places.map(|p| p.map_or(fill[0], |p| v[p])).collect())
        }
        (Data::Int(v), Data::Int(fill)) => Data::Int(places.map(|p| p.map_or(fill[0], |p| v[p])).collect()),
        _ => return Err(Fault::DTypes { a: x.dtype, b: value.dtype }),
    };
    Ok(Array { dtype: x.dtype, shape, data })
}
