//! Deterministic values for inputs that nobody gave.

use dvm_ir::{DType, Scalar, Tensor, TensorError};

/// A tensor filled from its name, dtype and shape alone: floats uniform in -1..1, integers in 0..16, bools mixed. The same
/// arguments always give the same values (SplitMix64 seeded with FNV-1a of the name).
///
/// # Errors
/// The shape is too large.
pub fn fill(name: &str, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
    let mut state =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut t = Tensor::zeros(dtype, shape)?;
    for i in 0..t.len() {
        let r = next();
        t.set(
            i,
            match dtype {
                d if d.is_float() => Scalar::Float((r >> 40) as f64 / f64::from(1 << 23) - 1.0),
                DType::Bool => Scalar::Int((r >> 63) as i64),
                _ => Scalar::Int((r >> 60) as i64),
            },
        );
    }
    Ok(t)
}
