//! Matrix products: packing, and microkernels over packed or strided operands.
//!
//! An output is one chain over k in increasing order, `acc = fma(a[k], b[k], acc)`, starting from 0 or from what is
//! there. So values depend neither on blocking, tiling nor instruction-set level; blocking decides speed alone.
//!
//! A packed operand is a stack of *panels* of `width` lines (rows of the left operand, columns of the right one), K-major
//! inside a panel. Halves are widened to f32 when they are packed; a panel argument that is only bound stays narrow
//! and is widened in registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod generic;
mod pack;
#[cfg(target_arch = "x86_64")]
mod pack_avx2;

use dvm_bc::DType;
use half::{bf16, f16};

use crate::Isa;

/// What to pack: `lines` x `k` elements, line i at step kk being at `src + i * line_stride + kk * k_stride` bytes.
///
/// For `load_a` lines are rows (`line_stride` is its `row_stride`), for `load_b` they are columns (`line_stride` is its
/// `col_stride`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pack {
    /// Rows of a left operand or columns of a right one.
    pub lines: usize,
    /// Steps of the product.
    pub k: usize,
    /// Bytes from one line to the next.
    pub line_stride: isize,
    /// Bytes from one step to the next.
    pub k_stride: isize,
    /// Lines in a panel: the target's `panel_mr` or `nr`.
    pub width: usize,
    /// Elements from one panel to the next: `width * k.body`.
    pub panel_stride: usize,
}

/// Packs. `dst` holds `lines.div_ceil(width)` panels of `width * k` elements (f32 for halves), `panel_stride` apart;
/// the missing lines of the last panel become 0.
pub(crate) type PackFn = unsafe fn(dst: *mut u8, src: *const u8, pack: &Pack);

/// The left operand of a product; all strides in elements.
///
/// Element (i, kk) is at `ptr + (i / width) * panel_stride + (i % width) * line_stride + kk * k_stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    ptr: *const u8,
    width: usize,
    panel_stride: isize,
    line_stride: isize,
    k_stride: isize,
}

impl Left {
    /// Packed panels of `width` rows, `panel_stride` elements apart.
    pub(crate) fn packed(ptr: *const u8, width: usize, panel_stride: usize) -> Left {
        Left { ptr, width, panel_stride: panel_stride as isize, line_stride: 1, k_stride: width as isize }
    }
    /// An unpacked matrix; strides in elements. Not for halves, which must be widened by packing.
    pub(crate) fn strided(ptr: *const u8, row_stride: isize, col_stride: isize) -> Left {
        Left { ptr, width: usize::MAX, panel_stride: 0, line_stride: row_stride, k_stride: col_stride }
    }
}

/// The right operand of a product: panels of `width` columns, `panel_stride` elements apart.
///
/// Element (kk, j) is at `ptr + (j / width) * panel_stride + kk * width + j % width`; the last panel is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    /// First panel.
    pub ptr: *const u8,
    /// Columns in a panel.
    pub width: usize,
    /// Elements from one panel to the next.
    pub panel_stride: usize,
}

/// `acc = (acc or 0) + left * right`; `acc` is row-major, `pitch` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mmad {
    /// First element of the accumulator tile, of the accumulator's dtype.
    pub acc: *mut u8,
    /// Elements from one row of the accumulator tile to the next.
    pub pitch: usize,
    /// Left operand, `m x k`.
    pub left: Left,
    /// Right operand, `k x n`.
    pub right: Right,
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Steps.
    pub k: usize,
    /// Start from what is in `acc` rather than from 0.
    pub accumulate: bool,
}

/// Computes a tile product. All operands are as large as the sizes say; `acc` overlaps neither source.
pub(crate) type MmadFn = unsafe fn(&Mmad);

/// The packing routine for elements of `dtype`; `None` where there is no matrix product.
pub(crate) fn pack(dtype: DType, isa: Isa) -> Option<PackFn> {
    #[cfg(target_arch = "x86_64")]
    if isa.or_portable() == Isa::Avx2Fma {
        match dtype {
            DType::F32 => return Some(pack_avx2::pack_f32),
            DType::F16 => return Some(pack_avx2::pack_f16),
            DType::BF16 => return Some(pack_avx2::pack_bf16),
            _ => {}
        }
    }
    let _ = isa;
    Some(match dtype {
        DType::F32 | DType::I32 | DType::U32 => pack::pack::<u32, u32>,
        DType::F16 => pack::pack::<f16, f32>,
        DType::BF16 => pack::pack::<bf16, f32>,
        DType::I8 | DType::U8 => pack::pack::<u8, u8>,
        DType::I16 | DType::U16 => pack::pack::<u16, u16>,
        DType::F64 | DType::I64 | DType::U64 => pack::pack::<u64, u64>,
        DType::Bool => return None,
    })
}

/// The product over inputs of `dtype`; `None` where there is none.
///
/// `narrow` says that the right operand is a bound panel argument of halves rather than one widened by packing; it
/// changes nothing for other dtypes.
pub(crate) fn mmad(dtype: DType, narrow: bool, isa: Isa) -> Option<MmadFn> {
    #[cfg(target_arch = "x86_64")]
    if isa.or_portable() == Isa::Avx2Fma {
        return Some(match dtype {
            DType::F16 if narrow => avx2::mmad_f16,
            DType::BF16 if narrow => avx2::mmad_bf16,
            DType::F32 | DType::F16 | DType::BF16 => avx2::mmad_f32,
            DType::F64 => avx2::mmad_f64,
            DType::I8 => avx2::mmad_int::<i8>,
            DType::U8 => avx2::mmad_int::<u8>,
            DType::I16 => avx2::mmad_int::<i16>,
            DType::U16 => avx2::mmad_int::<u16>,
            DType::I32 | DType::U32 => avx2::mmad_int::<i32>,
            DType::I64 | DType::U64 => avx2::mmad_int::<i64>,
            DType::Bool => return None,
        });
    }
    let _ = isa;
    Some(match dtype {
        DType::F16 if narrow => generic::mmad::<f32, f16>,
        DType::BF16 if narrow => generic::mmad::<f32, bf16>,
        DType::F32 | DType::F16 | DType::BF16 => generic::mmad::<f32, f32>,
        DType::F64 => generic::mmad::<f64, f64>,
        DType::I8 => generic::mmad::<i8, i8>,
        DType::U8 => generic::mmad::<u8, u8>,
        DType::I16 => generic::mmad::<i16, i16>,
        DType::U16 => generic::mmad::<u16, u16>,
        DType::I32 | DType::U32 => generic::mmad::<i32, i32>,
        DType::I64 | DType::U64 => generic::mmad::<i64, i64>,
        DType::Bool => return None,
    })
}

#[cfg(test)]
mod tests;
