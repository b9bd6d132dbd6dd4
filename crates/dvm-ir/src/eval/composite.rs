//! Composite ops by their formulas, wide inside and rounded once.

use super::{
    Fault,
    array::Array,
    reduce::map_runs,
    scalar::{fmax, sigmoid},
};

fn max_of(run: &[f64]) -> f64 {
    run.iter().copied().fold(f64::NEG_INFINITY, fmax)
}

pub(super) fn softmax(x: &Array, axis: usize) -> Result<Array, Fault> {
    map_runs(x, &[axis], |run| {
        let max = max_of(run);
        run.iter_mut().for_each(|x| *x = libm::exp(*x - max));
        let sum: f64 = run.iter().sum();
        run.iter_mut().for_each(|x| *x /= sum);
    })
}

pub(super) fn log_softmax(x: &Array, axis: usize) -> Result<Array, Fault> {
    map_runs(x, &[axis], |run| {
        let max = max_of(run);
        let ln = libm::log(run.iter().map(|x| libm::exp(x - max)).sum());
        run.iter_mut().for_each(|x| *x = *x - max - ln);
    })
}

/// The axes from `axis` on; `axis` may be the rank, which normalises nothing.
fn trailing(x: &Array, axis: usize) -> Result<Vec<usize>, Fault> {
    if axis > x.shape.len() {
        x.axis(axis)?;
    }
    Ok((axis..x.shape.len()).collect())
}

/// `scale` and `bias` multiply and add before the one rounding.
fn affine(normal: &Array, to: &Array, scale: &Array, bias: Option<&Array>) -> Result<Array, Fault> {
    let scale = scale.expand(&to.shape)?;
    let mut y: Vec<f64> = normal.floats()?.iter().zip(scale.floats()?).map(|(x, s)| x * s).collect();
    if let Some(bias) = bias {
        let bias = bias.expand(&to.shape)?;
        y.iter_mut().zip(bias.floats()?).for_each(|(y, b)| *y += b);
    }
    Ok(Array::from_f64(to.dtype, to.shape.clone(), y))
}

/// The same elements as f64, so that intermediate results are not rounded.
fn wide(x: &Array) -> Result<Array, Fault> {
    Ok(Array::from_f64(crate::DType::F64, x.shape.clone(), x.floats()?.to_vec()))
}

pub(super) fn layer_norm(
    x: &Array,
    scale: &Array,
    bias: Option<&Array>,
    axis: usize,
    eps: f64,
) -> Result<Array, Fault> {
    let normal = map_runs(&wide(x)?, &trailing(x, axis)?, |run| {
        let n = run.len() as f64;
        let mean = run.iter().sum::<f64>() / n;
        let variance = run.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        run.iter_mut().for_each(|x| *x = (*x - mean) / (variance + eps).sqrt());
    })?;
    affine(&normal, x, scale, bias)
}

pub(super) fn rms_norm(x: &Array, scale: &Array, axis: usize, eps: f64) -> Result<Array, Fault> {
    let normal = map_runs(&wide(x)?, &trailing(x, axis)?, |run| {
        let square = run.iter().map(|x| x * x).sum::<f64>() / run.len() as f64;
        run.iter_mut().for_each(|x| *x /= (square + eps).sqrt());
    })?;
    affine(&normal, x, scale, None)
}

fn map(x: &Array, f: impl Fn(f64) -> f64) -> Result<Array, Fault> {
    Ok(Array::from_f64(x.dtype, x.shape.clone(), x.floats()?.iter().map(|&x| f(x)).collect()))
}

pub(super) fn gelu(x: &Array, tanh: bool) -> Result<Array, Fault> {
    if tanh {
        let c = (2.0 / std::f64::consts::PI).sqrt();
        return map(x, |x| 0.5 * x * (1.0 + libm::tanh(c * (x + 0.044_715 * x * x * x))));
    }
    // 1 + erf would cancel for negative x.
    map(x, |x| 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2))
}

pub(super) fn silu(x: &Array) -> Result<Array, Fault> {
    map(x, |x| x * sigmoid(x))
}
