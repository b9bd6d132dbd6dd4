//! Comparison of an output with its expected value.

use std::fmt;

use dvm_ir::{DType, Tensor};

/// How far values may differ: `|o - r| <= atol + rtol * |r|`. NaN equals NaN, infinities must be equal, integers and
/// bools exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative part.
    pub rtol: f64,
    /// Absolute part.
    pub atol: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { rtol: 1e-3, atol: 1e-4 }
    }
}

impl Tolerance {
    /// What outputs of a dtype are compared with unless told otherwise: two models of one network that round at different places
    /// differ by a few units in the last place of the narrowest dtype on the way. Integers and bools are exact.
    #[must_use]
    pub fn of(dtype: DType) -> Tolerance {
        match dtype {
            DType::F16 => Tolerance { rtol: 4e-3, atol: 1e-3 },
            DType::BF16 => Tolerance { rtol: 2e-2, atol: 1e-2 },
            d if d.is_float() => Tolerance::default(),
            _ => Tolerance { rtol: 0.0, atol: 0.0 },
        }
    }
}

/// How an output differs from its expected value.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Dtype or shape.
    Type {
        /// What the output is.
        got: String,
        /// What was expected.
        expected: String,
    },
    /// Values.
    Values {
        /// Index of the worst element.
        index: Vec<usize>,
        /// Its value.
        got: f64,
        /// Its expected value.
        expected: f64,
        /// Elements outside the tolerance.
        wrong: usize,
        /// All elements.
        total: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Type { got, expected } => write!(f, "is {got}, expected {expected}"),
            Difference::Values { index, got, expected, wrong, total } => write!(
                f,
                "{wrong} of {total} values differ; worst at {index:?}: got {got}, expected {expected} (difference {:e})",
                (got - expected).abs()
            ),
        }
    }
}

/// Largest `|o - r| / |r|` where both are finite and `r` is not 0.
#[must_use]
pub fn max_relative(got: &Tensor, expected: &Tensor) -> f64 {
    let n = got.len().min(expected.len());
    (0..n)
        .map(|i| {
            let r = expected.get(i).as_f64();
            (got.get(i).as_f64() - r).abs() / r.abs()
        })
        .filter(|d| d.is_finite())
        .fold(0.0, f64::max)
}

/// Largest `|o - r|` where both are finite and the shapes agree.
#[must_use]
pub fn max_difference(got: &Tensor, expected: &Tensor) -> f64 {
    let n = got.len().min(expected.len());
    (0..n)
        .map(|i| (got.get(i).as_f64() - expected.get(i).as_f64()).abs())
        .filter(|d| d.is_finite())
        .fold(0.0, f64::max)
}

/// Compares an output with its expected value.
///
/// # Errors
/// The difference: of type, or the worst element by how far it exceeds its allowance.
pub fn compare(got: &Tensor, expected: &Tensor, tol: Tolerance) -> Result<(), Difference> {
    if got.dtype() != expected.dtype() || got.shape() != expected.shape() {
        let show = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Err(Difference::Type { got: show(got), expected: show(expected) });
    }
    let (mut wrong, mut worst) = (0, (f64::NEG_INFINITY, 0));
    for i in 0..got.len() {
        let excess = if got.dtype().is_float() {
            excess(got.get(i).as_f64(), expected.get(i).as_f64(), tol)
        } else {
            let (a, b) = (got.get(i).as_i64(), expected.get(i).as_i64());
            if a == b { f64::NEG_INFINITY } else { (i128::from(a) - i128::from(b)).abs() as f64 }
        };
        if excess > 0.0 {
            wrong += 1;
            if excess > worst.0 {
                worst = (excess, i);
            }
        }
    }
    if wrong == 0 {
        return Ok(());
    }
    let mut index = vec![0; got.shape().len()];
    let mut rest = worst.1;
    for (slot, &d) in index.iter_mut().zip(got.shape()).rev() {
        *slot = rest % d;
        rest /= d;
    }
    Err(Difference::Values {
        index,
        got: got.get(worst.1).as_f64(),
        expected: expected.get(worst.1).as_f64(),
        wrong,
        total: got.len(),
    })
}

/// By how much a value exceeds its allowance; at most 0 when it is right.
fn excess(o: f64, r: f64, tol: Tolerance) -> f64 {
    match (o.is_nan(), r.is_nan()) {
        (true, true) => f64::NEG_INFINITY,
        (true, false) | (false, true) => f64::INFINITY,
        _ if o == r => f64::NEG_INFINITY,
        _ if o.is_infinite() || r.is_infinite() => f64::INFINITY,
        _ => (o - r).abs() - (tol.atol + tol.rtol * r.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let t = |v: &[f32]| Tensor::from_slice(&[v.len()], v).unwrap();
        let tol = Tolerance { rtol: 0.1, atol: 0.5 };
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (got, expected, right) in [
            (&[1.0f32][..], &[1.59f32][..], true),
            (&[1.0], &[1.8], false),
            (&[nan, inf], &[nan, inf], true),
            (&[inf], &[-inf], false),
            (&[inf], &[3e38], false),
            (&[nan], &[0.0], false),
            (&[], &[], true),
        ] {
            assert_eq!(compare(&t(got), &t(expected), tol).is_ok(), right, "{got:?} {expected:?}");
        }
        let d = compare(&t(&[0., 5., 9.]), &t(&[0., 0., 0.]), tol).unwrap_err();
        assert_eq!(d.to_string(), "2 of 3 values differ; worst at [2]: got 9, expected 0 (difference 9e0)");
        let i = |v: &[i64]| Tensor::from_slice(&[v.len()], v).unwrap();
        assert!(compare(&i(&[i64::MAX]), &i(&[i64::MAX - 1]), tol).is_err());
    }
}
