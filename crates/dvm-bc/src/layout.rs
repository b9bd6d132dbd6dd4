//! Geometry that compiler, verifier and machine must agree on: packed panels and accumulators.

use crate::{DType, Target};

/// Block of a float sum along contiguous elements; see [`Reduce`](crate::Reduce).
pub const SUM_BLOCK_X: u32 = 4096;
/// Block of a float sum across rows; see [`Reduce`](crate::Reduce).
pub const SUM_BLOCK_Y: u32 = 64;

/// The dtype in which `mmad` over inputs of `dtype` accumulates; `None` where there is no matrix product.
#[must_use]
pub const fn acc_dtype(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some(DType::F32),
        DType::F64 => Some(DType::F64),
        DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::U32 => Some(DType::I32),
        DType::I64 | DType::U64 => Some(DType::I64),
        DType::Bool => None,
    }
}

/// The dtype in which `vsum` over `dtype` keeps its state.
#[must_use]
pub const fn sum_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// Bytes of one element in a *local* panel: halves are widened to f32 when they are packed. (An argument in
/// [`Layout::Panels`](crate::Layout) holds elements of its own dtype.)
#[must_use]
pub const fn panel_elem_bytes(dtype: DType) -> u32 {
    match dtype {
        DType::F16 | DType::BF16 => 4,
        d => d.size(),
    }
}

/// Bytes of a left operand `m x k` in local memory: panels of `mr` rows, the last one padded. Saturates.
#[must_use]
pub fn panel_a_bytes(target: &Target, dtype: DType, m: u32, k: u32) -> u64 {
    panels(u64::from(m), u64::from(target.panel_mr), u64::from(k), u64::from(panel_elem_bytes(dtype)))
}

/// Bytes of a right operand `k x n` in local memory: panels of `nr` columns, the last one padded. Saturates.
#[must_use]
pub fn panel_b_bytes(target: &Target, dtype: DType, k: u32, n: u32) -> u64 {
    panels(u64::from(n), u64::from(target.nr(dtype.size())), u64::from(k), u64::from(panel_elem_bytes(dtype)))
}

/// Bytes of an accumulator tile `m x n` over inputs of `dtype`: row-major, pitch `n`. 0 where there is no product.
#[must_use]
pub fn acc_bytes(dtype: DType, m: u32, n: u32) -> u64 {
    let elem = acc_dtype(dtype).map_or(0, DType::size);
    (u64::from(m) * u64::from(n)).saturating_mul(u64::from(elem))
}

fn panels(count: u64, width: u64, k: u64, elem: u64) -> u64 {
    count.next_multiple_of(width.max(1)).saturating_mul(k).saturating_mul(elem)
}
