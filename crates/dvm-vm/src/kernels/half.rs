//! f16 and bf16 by widening: a chunk at a time goes to f32 on the stack, through the f32 kernel, and back with one
//! rounding. No kernel is instantiated for halves.

use ::half::{bf16, f16};
use dvm_bc::DType;

use super::{CHUNK, Chunk, Kernel};
use crate::Isa;
use crate::math::CastFn;

pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Converts f16 or bf16 to f32.
pub(crate) fn widen(dtype: DType, isa: Isa) -> CastFn {
    crate::math::cast(dtype, DType::F32, isa).unwrap_or(nothing)
}

/// Converts f32 to f16 or bf16, rounding to nearest even.
pub(crate) fn narrow(dtype: DType, isa: Isa) -> CastFn {
    crate::math::cast(DType::F32, dtype, isa).unwrap_or(nothing)
}

/// Converts f64 to f16 or bf16 with one rounding.
pub(crate) fn narrow64(dtype: DType) -> CastFn {
    if dtype == DType::F16 { narrow64_f16 } else { narrow64_bf16 }
}

/// The conversion of dtypes that are not half; never called.
unsafe fn nothing(_: *mut u8, _: *const u8, _: usize) {}

/// `x` rounded to f32 toward zero with the last bit set when inexact: rounding that to a half is rounding `x` once.
/// (`f16::from_f64` rounds twice.)
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let toward_zero = if back.abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

unsafe fn narrow64_f16(dst: *mut u8, src: *const u8, n: usize) {
    for i in 0..n {
        // SAFETY: the caller promises n elements on both sides.
        unsafe { dst.cast::<f16>().add(i).write(f16::from_f32(to_odd(*src.cast::<f64>().add(i)))) };
    }
}

unsafe fn narrow64_bf16(dst: *mut u8, src: *const u8, n: usize) {
    for i in 0..n {
        // SAFETY: the caller promises n elements on both sides.
        unsafe { dst.cast::<bf16>().add(i).write(bf16::from_f32(to_odd(*src.cast::<f64>().add(i)))) };
    }
}

/// Which sides of a kernel are half precision, and how they are converted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Halves {
    /// Per source, to f32.
    pub(crate) src: [Option<CastFn>; 3],
    /// From the kernel's result.
    pub(crate) dst: Option<CastFn>,
}

impl Halves {
    /// For `sources` sources and, if `result`, a result of `dtype`.
    pub(crate) fn of(dtype: DType, sources: usize, result: bool, isa: Isa) -> Halves {
        let mut halves = Halves::default();
        if is_half(dtype) {
            halves.src[..sources].fill(Some(widen(dtype, isa)));
            halves.dst = result.then(|| narrow(dtype, isa));
        }
        halves
    }

    /// The dtype of a kernel on `dtype`.
    pub(crate) fn native(&self, dtype: DType) -> DType {
        if is_half(dtype) { DType::F32 } else { dtype }
    }

    pub(crate) fn any(&self) -> bool {
        self.dst.is_some() || self.src.iter().any(Option::is_some)
    }

    #[allow(clippy::too_many_arguments, reason = "a span call and how to widen it")]
    /// Runs `kernel` on widened copies. `sizes` are the bytes per element of sources and result in memory; `spread` is the
    /// number of sources if single elements must be spread to runs.
    ///
    /// # Safety
    /// As for [`super::SpanFn`], in the dtypes before widening.
    pub(crate) unsafe fn run(
        &self,
        kernel: Kernel,
        dst: *mut u8,
        src: &[*const u8; 3],
        steps: u32,
        n: usize,
        sizes: &[u8; 4],
        spread: Option<usize>,
    ) {
        let mut wide = *sizes;
        for (size, half) in wide.iter_mut().zip(&self.src) {
            if half.is_some() {
                *size = 4;
            }
        }
        let mut bufs = [Chunk::new(), Chunk::new(), Chunk::new(), Chunk::new()];
        let mut at = 0;
        while at < n {
            let m = (n - at).min(CHUNK);
            let [b0, b1, b2, out] = &mut bufs;
            let mut ptrs = *src;
            for (i, buf) in [b0, b1, b2].into_iter().enumerate() {
                let step = steps >> i & 1 != 0;
                let p = if step { src[i].wrapping_add(at * sizes[i] as usize) } else { src[i] };
                ptrs[i] = match self.src[i] {
                    Some(widen) => {
                        // SAFETY: the source holds at + m elements (or one), the buffer CHUNK.
                        unsafe { widen(buf.ptr(), p, if step { m } else { 1 }) };
                        buf.ptr()
                    }
                    None => p,
                };
            }
            let d = dst.wrapping_add(at * sizes[3] as usize);
            // SAFETY: as promised by the caller, with buffers of CHUNK elements on the widened sides.
            unsafe {
                let result = if self.dst.is_some() { out.ptr() } else { d };
                match spread {
                    Some(sources) => kernel.run_spread(result, &ptrs, steps, m, &wide, sources),
                    None => kernel.run(result, &ptrs, steps, m),
                }
                if let Some(narrow) = self.dst {
                    narrow(d, result, m);
                }
            }
            at += m;
        }
    }
}
