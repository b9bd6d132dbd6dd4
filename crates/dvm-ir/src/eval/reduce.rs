//! Reductions, arg-reductions, running sums, and the matrix product.

use super::{
    Fault,
    array::{Array, Data, broadcast_shapes, count},
    scalar::{self, exact, fmax, fmin, int_range, wrap},
};
use crate::{DType, ReduceOp};

/// `shape` with `axes` dropped or kept as 1.
fn reduced_shape(shape: &[usize], axes: &[usize], keepdims: bool) -> Vec<usize> {
    let axis = |(i, &n): (usize, &usize)| match axes.contains(&i) {
        true => keepdims.then_some(1),
        false => Some(n),
    };
    shape.iter().enumerate().filter_map(axis).collect()
}

fn each_run<T, R>(data: &[T], runs: usize, length: usize, f: impl Fn(&[T]) -> R) -> Vec<R> {
    (0..runs).map(|i| f(&data[i * length..(i + 1) * length])).collect()
}

pub(super) fn reduce(op: ReduceOp, x: &Array, axes: &[usize], keepdims: bool) -> Result<Array, Fault> {
    reduce_to(op, x, axes, keepdims, x.dtype)
}

/// A reduction whose result is rounded (or wrapped) to `dtype`.
pub(super) fn reduce_to(
    op: ReduceOp,
    x: &Array,
    axes: &[usize],
    keepdims: bool,
    dtype: DType,
) -> Result<Array, Fault> {
    let (moved, runs, length) = x.runs(axes)?;
    let shape = reduced_shape(&x.shape, axes, keepdims);
    let undefined = Err(Fault::DType { dtype: x.dtype });
    if dtype.is_float() != x.dtype.is_float() {
        return Err(Fault::DTypes { a: x.dtype, b: dtype });
    }
    match &moved.data {
        Data::Float(v) => {
            if matches!(op, ReduceOp::Any | ReduceOp::All) {
                return undefined;
            }
            Ok(Array::from_f64(dtype, shape, each_run(v, runs, length, |r| reduce_floats(op, r))))
        }
        Data::Int(v) => {
            if op == ReduceOp::Mean && length == 0 && runs > 0 {
                return Err(Fault::Empty);
            }
            let logical = matches!(op, ReduceOp::Any | ReduceOp::All);
            if logical && x.dtype != DType::Bool {
                return undefined;
            }
            Ok(Array::from_int(
                dtype,
                shape,
                each_run(v, runs, length, |r| wrap(reduce_ints(op, r, x.dtype), dtype)),
            ))
        }
    }
}

/// Everything in f64; the caller rounds once.
fn reduce_floats(op: ReduceOp, run: &[f64]) -> f64 {
    let sum = |f: fn(f64) -> f64| run.iter().fold(0.0, |s, &x| s + f(x));
    match op {
        ReduceOp::Sum => sum(|x| x),
        ReduceOp::Mean => sum(|x| x) / run.len() as f64,
        ReduceOp::Prod => run.iter().product(),
        ReduceOp::Max => run.iter().copied().fold(f64::NEG_INFINITY, fmax),
        ReduceOp::Min => run.iter().copied().fold(f64::INFINITY, fmin),
        ReduceOp::L1 => sum(f64::abs),
        ReduceOp::L2 => sum(|x| x * x).sqrt(),
        ReduceOp::SumSquare => sum(|x| x * x),
        ReduceOp::LogSum => libm::log(sum(|x| x)),
        ReduceOp::LogSumExp => {
            let max = run.iter().copied().fold(f64::NEG_INFINITY, fmax);
            // An infinite maximum cannot be taken out: inf - inf is NaN.
            let shift = if max.is_finite() { max } else { 0.0 };
            shift + libm::log(run.iter().fold(0.0, |s, &x| s + libm::exp(x - shift)))
        }
        ReduceOp::Any | ReduceOp::All => f64::NAN,
    }
}

/// Exact modulo 2^128, to be wrapped by the caller; roots and logarithms go through f64 and truncate.
fn reduce_ints(op: ReduceOp, run: &[i64], dtype: DType) -> i128 {
    let values = run.iter().map(|&x| exact(x, dtype));
    let sum = |f: fn(i128) -> i128| values.clone().fold(0i128, |s, x| s.wrapping_add(f(x)));
    let (least, greatest) = int_range(dtype);
    let through_f64 = |x: f64| exact(scalar::float_to_int(x, dtype), dtype);
    match op {
        ReduceOp::Sum => sum(|x| x),
        ReduceOp::Mean => sum(|x| x) / run.len() as i128,
        ReduceOp::Prod => values.fold(1i128, i128::wrapping_mul),
        ReduceOp::Max => values.fold(least, i128::max),
        ReduceOp::Min => values.fold(greatest, i128::min),
        ReduceOp::Any => i128::from(run.iter().any(|&x| x != 0)),
        ReduceOp::All => i128::from(run.iter().all(|&x| x != 0)),
        ReduceOp::L1 => sum(i128::abs),
        ReduceOp::SumSquare => sum(|x| x.wrapping_mul(x)),
        ReduceOp::L2 => through_f64((sum(|x| x.wrapping_mul(x)) as f64).sqrt()),
        ReduceOp::LogSum => through_f64(libm::log(sum(|x| x) as f64)),
        ReduceOp::LogSumExp => {
            let floats: Vec<f64> = values.map(|x| x as f64).collect();
            through_f64(reduce_floats(op, &floats))
        }
    }
}

/// Position of the extreme along an axis; a NaN counts as the extreme.
pub(super) fn arg_reduce(
    x: &Array,
    max: bool,
    axis: usize,
    keepdims: bool,
    last: bool,
) -> Result<Array, Fault> {
    let (moved, runs, length) = x.runs(&[axis])?;
    if length == 0 && runs > 0 {
        return Err(Fault::Empty);
    }
    fn position<T: PartialOrd>(run: &[T], max: bool, last: bool) -> i64 {
        let nan = |x: &T| x.partial_cmp(x).is_none();
        let mut best = 0;
        for (i, x) in run.iter().enumerate().skip(1) {
            let b = &run[best];
            let better = !nan(b) && (nan(x) || if max { x > b } else { x < b });
            let equal = x == b || (nan(x) && nan(b));
            if better || (last && equal) {
                best = i;
            }
        }
        best as i64
    }
    let data = match &moved.data {
        Data::Float(v) => each_run(v, runs, length, |r| position(r, max, last)),
        Data::Int(v) => {
            let values: Vec<i128> = v.iter().map(|&i| exact(i, x.dtype)).collect();
            each_run(&values, runs, length, |r| position(r, max, last))
        }
    };
    Ok(Array::from_int(DType::I64, reduced_shape(&x.shape, &[axis], keepdims), data))
}

pub(super) fn cumsum(x: &Array, axis: usize, exclusive: bool, reverse: bool) -> Result<Array, Fault> {
    let (mut moved, _, length) = x.runs(&[axis])?;
    fn scan<T: Copy>(
        data: &mut [T],
        length: usize,
        flags: (bool, bool),
        zero: T,
        add: impl Fn(T, T) -> (T, T),
    ) {
        let (exclusive, reverse) = flags;
        for run in data.chunks_exact_mut(length.max(1)) {
            let mut total = zero;
            let mut before = zero;
            for i in 0..length {
                let x = &mut run[if reverse { length - 1 - i } else { i }];
                let (wide, rounded) = add(total, *x);
                *x = if exclusive { before } else { rounded };
                (total, before) = (wide, rounded);
            }
        }
    }
    let dtype = x.dtype;
    match &mut moved.data {
        // The total stays wide, each element is rounded from it.
        Data::Float(v) => {
            scan(v, length, (exclusive, reverse), 0.0, |t, x| (t + x, scalar::round(t + x, dtype)))
        }
        Data::Int(v) => scan(v, length, (exclusive, reverse), 0, |t, x| {
            let s = wrap(exact(t, dtype) + exact(x, dtype), dtype);
            (s, s)
        }),
    }
    unmove(&moved, &[axis])
}

/// Moves axes that [`Array::runs`] put at the end back to their places.
pub(super) fn unmove(moved: &Array, axes: &[usize]) -> Result<Array, Fault> {
    let rank = moved.shape.len();
    let mut places: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
    places.extend_from_slice(axes);
    let mut perm = vec![0; rank];
    places.iter().enumerate().for_each(|(i, &p)| perm[p] = i);
    moved.transpose(&perm)
}

/// Matrix product over the last two axes, batch axes broadcasting; f64 (or wrapping) accumulation, one rounding.
pub(super) fn matmul(a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array, Fault> {
    let swapped = |x: &Array, swap: bool| {
        let rank = x.shape.len();
        if rank < 2 {
            return Err(Fault::Shapes(format!("matmul of a value of shape {:?}", x.shape)));
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        if swap {
            perm.swap(rank - 1, rank - 2);
        }
        x.transpose(&perm)
    };
    let (a, b) = (swapped(a, trans_a)?, swapped(b, trans_b)?);
    let ((a_batch, a_mat), (b_batch, b_mat)) =
        (a.shape.split_at(a.shape.len() - 2), b.shape.split_at(b.shape.len() - 2));
    let (m, k, n) = (a_mat[0], a_mat[1], b_mat[1]);
    if b_mat[0] != k {
        return Err(Fault::Shapes(format!(
            "matmul of {:?} and {:?}: k is {k} and {}",
            a.shape, b.shape, b_mat[0]
        )));
    }
    let batch = broadcast_shapes(a_batch, b_batch)?;
    let with = |mat: &[usize]| [&batch[..], mat].concat();
    let (a, b) = (a.expand(&with(a_mat))?, b.expand(&with(b_mat))?);
    if a.dtype != b.dtype {
        return Err(Fault::DTypes { a: a.dtype, b: b.dtype });
    }
    batched_product(&a, &b, with(&[m, n]), (m, k, n), a.dtype)
}

/// Products of `[.., m, k]` by `[.., k, n]` of equal batches, rounded (or wrapped) to `dtype`.
pub(super) fn batched_product(
    a: &Array,
    b: &Array,
    shape: Vec<usize>,
    (m, k, n): (usize, usize, usize),
    dtype: DType,
) -> Result<Array, Fault> {
    if dtype.is_float() != a.dtype.is_float() {
        return Err(Fault::DTypes { a: a.dtype, b: dtype });
    }
    fn each<T: Copy>(
        (a, b, c): (&[T], &[T], &mut [T]),
        (m, k, n): (usize, usize, usize),
        zero: T,
        mac: impl Fn(T, T, T) -> T,
    ) {
        for batch in 0..c.len().checked_div(m * n).unwrap_or(0) {
            for i in 0..m {
                let row = &mut c[(batch * m + i) * n..][..n];
                let coeffs = &a[(batch * m + i) * k..][..k];
                let rows = &b[batch * k * n..][..k * n];
                // Four rows of b at a time, so that the row of c is loaded and stored less often.
                for (f, r) in coeffs.chunks(4).zip(rows.chunks(4 * n)) {
                    let f = [0, 1, 2, 3].map(|j| f.get(j).copied().unwrap_or(zero));
                    if let (4, (r0, rest)) = (r.len() / n, r.split_at(n)) {
                        let ((r1, rest), c) = (rest.split_at(n), row.iter_mut());
                        let (r2, r3) = rest.split_at(n);
                        for ((((c, &x), &y), &z), &w) in c.zip(r0).zip(r1).zip(r2).zip(r3) {
                            *c = mac(mac(mac(mac(*c, f[0], x), f[1], y), f[2], z), f[3], w);
                        }
                    } else {
                        for (r, f) in r.chunks_exact(n).zip(f) {
                            row.iter_mut().zip(r).for_each(|(c, &x)| *c = mac(*c, f, x));
                        }
                    }
                }
            }
        }
    }
    let size = count(&shape)?;
    Ok(match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            let mut c = vec![0.0; size];
            each((x, y, &mut c), (m, k, n), 0.0, |c, a, b| c + a * b);
            Array::from_f64(dtype, shape, c)
        }
        (Data::Int(x), Data::Int(y)) => {
            // Wrapping at 64 bits first changes nothing modulo the dtype's width.
            let mut c = vec![0i64; size];
            each((x, y, &mut c), (m, k, n), 0, |c, a, b| c.wrapping_add(a.wrapping_mul(b)));
            let wrapped = c.iter().map(|&v| wrap(v.into(), dtype)).collect();
            Array::from_int(dtype, shape, wrapped)
        }
        _ => return Err(Fault::DTypes { a: a.dtype, b: b.dtype }),
    })
}

/// Replaces every run along `axes` (in f64, rounded once by the result's dtype).
pub(super) fn map_runs(x: &Array, axes: &[usize], f: impl Fn(&mut [f64])) -> Result<Array, Fault> {
    let (moved, runs, length) = x.runs(axes)?;
    let mut data = moved.floats()?.to_vec();
    (0..runs).for_each(|i| f(&mut data[i * length..(i + 1) * length]));
    unmove(&Array::from_f64(x.dtype, moved.shape, data), axes)
}
