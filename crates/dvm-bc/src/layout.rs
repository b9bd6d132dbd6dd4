//! Geometry that compiler, verifier and machine must agree on: packed panels and accumulators.

use crate::{DType, Target};

/// Block of a float sum along contiguous elements; see [`Reduce`](crate::Reduce).
pub const SUM_BLOCK_X: u32 = 4096;
/// Block of a float sum across rows; see [`Reduce`](crate::Reduce).
pub const SUM_BLOCK_Y: u32 = 64;

/// Lanes of a block of a float sum along contiguous elements; a block across rows has one.
pub const SUM_LANES: u32 = 64;

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

/// A stack of matrices in a tensor, in elements: element (b, kk, j) is at
/// `offset + b * batch_stride + kk * row_stride + j * col_stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// First element.
    pub offset: u64,
    /// Number of matrices.
    pub batch: u64,
    /// Rows.
    pub k: u64,
    /// Columns.
    pub n: u64,
    /// Distance of matrices.
    pub batch_stride: i64,
    /// Distance of rows.
    pub row_stride: i64,
    /// Distance of columns.
    pub col_stride: i64,
}

/// Matrices that cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Elements are of 1, 2, 4 or 8 bytes, panels of 1 to 256 columns.
    #[error("cannot pack elements of {elem} bytes into panels of {nr} columns")]
    Shape {
        /// Element size.
        elem: u32,
        /// Panel width.
        nr: u32,
    },
    /// Some element is outside the source, or there are more elements than in the source.
    #[error("{matrices:?} do not fit {elements} elements")]
    Bounds {
        /// The matrices.
        matrices: Matrices,
        /// Elements in the source.
        elements: u64,
    },
}

/// Bytes of matrices `k x n` in [`Layout::Panels`](crate::Layout::Panels); `None` where that overflows.
#[must_use]
pub fn panels_bytes(elem: u32, batch: u64, k: u64, n: u64, nr: u32) -> Option<u64> {
    let width = n.checked_next_multiple_of(u64::from(nr))?;
    width.checked_mul(k)?.checked_mul(batch)?.checked_mul(u64::from(elem))
}

/// Packs matrices into [`Layout::Panels`](crate::Layout::Panels). `elem` is the size of an element in bytes.
///
/// # Errors
/// An element is outside `src`, there are more elements than in it, or no panels are made of such elements.
pub fn pack_panels(src: &[u8], elem: u32, matrices: &Matrices, nr: u32) -> Result<Vec<u8>, PackError> {
    match elem {
        _ if !(1..=256).contains(&nr) => Err(PackError::Shape { elem, nr }),
        1 => pack::<1>(src, matrices, nr as usize),
        2 => pack::<2>(src, matrices, nr as usize),
        4 => pack::<4>(src, matrices, nr as usize),
        8 => pack::<8>(src, matrices, nr as usize),
        _ => Err(PackError::Shape { elem, nr }),
    }
}

/// Rows handled at a time: what is read or written of them stays in the first-level cache.
const ROWS: usize = 64;

fn pack<const E: usize>(src: &[u8], m: &Matrices, nr: usize) -> Result<Vec<u8>, PackError> {
    let (src, _) = src.as_chunks::<E>();
    let bounds = || PackError::Bounds { matrices: *m, elements: src.len() as u64 };
    let bytes = panels_bytes(E as u32, m.batch, m.k, m.n, nr as u32).ok_or_else(bounds)?;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let (mut lo, mut hi) = (i128::from(m.offset), i128::from(m.offset));
    for (count, stride) in [(m.batch, m.batch_stride), (m.k, m.row_stride), (m.n, m.col_stride)] {
        let span = (i128::from(count) - 1) * i128::from(stride);
        lo += span.min(0);
        hi += span.max(0);
    }
    // Matrices that repeat elements could make a small source a huge result.
    let most = src.len() as u128 * E as u128 * nr as u128;
    if lo < 0 || hi >= src.len() as i128 || u128::from(bytes) > most {
        return Err(bounds());
    }
    let size = usize::try_from(bytes).map_err(|_| bounds())?;
    let mut out = vec![0u8; size];
    let (k, n) = (m.k as usize, m.n as usize);
    let (dst, _) = out.as_chunks_mut::<E>();
    for (b, dst) in dst.chunks_exact_mut(n.next_multiple_of(nr) * k).enumerate() {
        let base = m.offset as i64 + b as i64 * m.batch_stride;
        for first in (0..k).step_by(ROWS) {
            let rows = first..k.min(first + ROWS);
            for (p, panel) in dst.chunks_exact_mut(nr * k).enumerate() {
                let (j, width) = (p * nr, nr.min(n - p * nr));
                let panel = &mut panel[rows.start * nr..rows.end * nr];
                let start = base + rows.start as i64 * m.row_stride + j as i64 * m.col_stride;
                block(src, panel, start, nr, width, m);
            }
        }
    }
    Ok(out)
}

/// Some rows of a panel. Checked above: every index is inside `src`.
fn block<const E: usize>(
    src: &[[u8; E]],
    dst: &mut [[u8; E]],
    start: i64,
    nr: usize,
    width: usize,
    m: &Matrices,
) {
    let rows = dst.len() / nr;
    if m.col_stride == 1 {
        for (i, row) in dst.chunks_exact_mut(nr).enumerate() {
            let at = (start + i as i64 * m.row_stride) as usize;
            row[..width].copy_from_slice(&src[at..at + width]);
        }
    } else if m.row_stride == 1 {
        for j in 0..width {
            let at = (start + j as i64 * m.col_stride) as usize;
            for (row, v) in dst.chunks_exact_mut(nr).zip(&src[at..at + rows]) {
                row[j] = *v;
            }
        }
    } else {
        for (i, row) in dst.chunks_exact_mut(nr).enumerate() {
            for (j, d) in row[..width].iter_mut().enumerate() {
                *d = src[(start + i as i64 * m.row_stride + j as i64 * m.col_stride) as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(
        out: &[u8],
        elem: usize,
        nr: usize,
        k: usize,
        n: usize,
        (b, kk, j): (usize, usize, usize),
    ) -> &[u8] {
        let matrix = b * n.next_multiple_of(nr) * k;
        let at = matrix + ((j / nr) * k + kk) * nr + j % nr;
        &out[at * elem..(at + 1) * elem]
    }

    #[test]
    fn panels_hold_each_element() {
        for (batch, k, n) in [(1usize, 1usize, 1usize), (1, 5, 16), (2, 67, 33), (3, 130, 7), (1, 64, 48)] {
            let total = (batch * k * n) as i64;
            let (ki, ni) = (k as i64, n as i64);
            // Row-major, transposed, reversed, column-strided.
            for (offset, bs, rs, cs) in [
                (0, ki * ni, ni, 1),
                (0, ki * ni, 1, ki),
                (total - 1, -ki * ni, -ni, -1),
                (0, 2 * ki * ni, 2 * ni, 2),
            ] {
                for (elem, nr) in [(1, 16), (2, 16), (4, 16), (8, 8), (4, 3)] {
                    let src: Vec<u8> =
                        (0..2 * total as usize * elem).map(|i| (i * 7 + i / 251) as u8).collect();
                    let m = Matrices {
                        offset: offset as u64,
                        batch: batch as u64,
                        k: k as u64,
                        n: n as u64,
                        batch_stride: bs,
                        row_stride: rs,
                        col_stride: cs,
                    };
                    let out = pack_panels(&src, elem as u32, &m, nr as u32).expect("in bounds");
                    assert_eq!(
                        out.len() as u64,
                        panels_bytes(elem as u32, m.batch, m.k, m.n, nr as u32).unwrap_or(0)
                    );
                    for b in 0..batch {
                        for kk in 0..k {
                            for j in 0..n.next_multiple_of(nr) {
                                let found = element(&out, elem, nr, k, n, (b, kk, j));
                                if j < n {
                                    let at =
                                        (offset + b as i64 * bs + kk as i64 * rs + j as i64 * cs) as usize;
                                    assert_eq!(found, &src[at * elem..(at + 1) * elem], "{m:?} {b} {kk} {j}");
                                } else {
                                    assert!(found.iter().all(|&x| x == 0), "padding");
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_packings_are_errors() {
        let m = Matrices { offset: 0, batch: 1, k: 3, n: 4, batch_stride: 0, row_stride: 4, col_stride: 1 };
        let src = [0u8; 48];
        assert!(pack_panels(&src, 4, &m, 16).is_ok());
        for (elem, nr, m) in [
            (3, 16, m),
            (4, 0, m),
            (4, 257, m),
            (8, 16, m),
            (4, 16, Matrices { offset: 1, ..m }),
            (4, 16, Matrices { row_stride: -1, ..m }),
            (4, 16, Matrices { k: u64::MAX, row_stride: 0, ..m }),
            (4, 16, Matrices { k: 1 << 50, row_stride: 0, ..m }),
            (4, 16, Matrices { batch: 1 << 40, batch_stride: i64::MAX, ..m }),
            (4, 16, Matrices { offset: u64::MAX, ..m }),
        ] {
            assert!(pack_panels(&src, elem, &m, nr).is_err(), "{elem} {nr} {m:?}");
        }
        assert_eq!(pack_panels(&[], 4, &Matrices { k: 0, ..m }, 16), Ok(Vec::new()));
    }
}
