//! What differential tests of several crates share: random graphs whose results are known to within a stated error,
//! random inputs, and a comparison that says where two tensors differ most.

mod accuracy;
pub mod controls;
mod families;
mod random;

pub use random::{Config, RandomGraph, random_graph};

use crate::{Bindings, DType, DimError, Graph, Scalar, Tensor};

/// A small deterministic generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// An integer in `0..n`; 0 when n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }
    /// An integer in `lo..=hi`.
    pub fn int(&mut self, lo: i64, hi: i64) -> i64 {
        lo + (self.bits() % (hi.abs_diff(lo) + 1).max(1)) as i64
    }
    /// A number in `lo..hi`.
    pub fn float(&mut self, lo: f64, hi: f64) -> f64 {
        lo + (hi - lo) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    /// One of `items`, which must not be empty.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// A tensor of random values in `lo..=hi`; for integers and bool the bounds are truncated. Every other float tensor holds
/// multiples of 1/8, so that ties occur.
///
/// # Panics
/// When the shape is too large for memory.
#[must_use]
pub fn random_tensor(dtype: DType, shape: &[usize], lo: f64, hi: f64, rng: &mut Rng) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape).expect("shape fits memory");
    let coarse = rng.chance(50);
    for i in 0..t.len() {
        let value = if !dtype.is_float() {
            Scalar::Int(rng.int(lo as i64, hi as i64))
        } else if coarse {
            Scalar::Float(rng.int((lo * 8.0).ceil() as i64, (hi * 8.0).floor() as i64) as f64 / 8.0)
        } else {
            Scalar::Float(rng.float(lo, hi))
        };
        t.set(i, value);
    }
    t
}

/// Random tensors for the inputs of any graph: floats in -2..2, integers in 0..=3. Elements used as sizes get their bound
/// values. Graphs of [`random_graph`] come with their own [`RandomGraph::inputs`].
///
/// # Errors
/// When a dim of an input has no value.
///
/// # Panics
/// When an extent is negative or a shape too large for memory.
pub fn random_inputs(
    graph: &Graph,
    bindings: &Bindings,
    seed: u64,
) -> Result<Vec<(String, Tensor)>, DimError> {
    let ranges = vec![None; graph.inputs.len()];
    inputs_in_ranges(graph, bindings, seed, &ranges)
}

fn inputs_in_ranges(
    graph: &Graph,
    bindings: &Bindings,
    seed: u64,
    ranges: &[Option<(f64, f64)>],
) -> Result<Vec<(String, Tensor)>, DimError> {
    let mut rng = Rng::new(seed);
    let mut tensors = vec![];
    for (input, range) in graph.inputs.iter().zip(ranges) {
        let dtype = graph.dtype(input.value);
        let extent =
            |&d| graph.dims.eval(d, bindings).map(|n| usize::try_from(n).expect("extents are not negative"));
        let shape = graph.shape(input.value).iter().map(extent).collect::<Result<Vec<_>, _>>()?;
        let (lo, hi) = range.unwrap_or(match dtype {
            DType::Bool => (0.0, 1.0),
            d if d.is_float() => (-2.0, 2.0),
            _ => (0.0, 3.0),
        });
        let mut t = random_tensor(dtype, &shape, lo, hi, &mut rng);
        for (i, &d) in
            input.elements.iter().flatten().enumerate().filter(|&(i, _)| i < t.len()).collect::<Vec<_>>()
        {
            t.set(i, Scalar::Int(graph.dims.eval(d, bindings)?));
        }
        tensors.push((input.name.clone(), t));
    }
    Ok(tensors)
}

/// The largest difference of two tensors beyond what is allowed, as text; `None` when there is none. Floats may differ by
/// `atol + rtol * |want|`, NaN equals NaN, infinities and all other dtypes must be equal.
#[must_use]
pub fn difference(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Option<String> {
    if (got.dtype(), got.shape()) != (want.dtype(), want.shape()) {
        return Some(format!("got {got:?}, want {want:?}"));
    }
    let excess = |i: usize| match (got.get(i), want.get(i)) {
        (Scalar::Int(g), Scalar::Int(w)) => {
            if g == w {
                0.0
            } else {
                f64::INFINITY
            }
        }
        (g, w) => {
            let (g, w) = (g.as_f64(), w.as_f64());
            let over = (g - w).abs() - (atol + rtol * w.abs());
            match g == w || (g.is_nan() && w.is_nan()) || over <= 0.0 {
                true => 0.0,
                // Infinities and NaN on one side only.
                false if over.is_nan() || !w.is_finite() => f64::INFINITY,
                false => over,
            }
        }
    };
    let worst = (0..want.len())
        .map(|i| (i, excess(i)))
        .filter(|&(_, e)| e > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut index = vec![0; want.shape().len()];
    let mut at = worst.0;
    for (x, &n) in index.iter_mut().zip(want.shape()).rev() {
        (*x, at) = (at % n, at / n);
    }
    let (g, w) = (got.get(worst.0), want.get(worst.0));
    Some(format!("at {index:?} of {want:?}: got {g:?}, want {w:?} (rtol {rtol:e}, atol {atol:e})"))
}
