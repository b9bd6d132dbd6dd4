//! f16 and bf16 by widening: a chunk at a time goes to f32 on the stack, through the f32 kernel, and back with one
//! rounding. No kernel is instantiated for halves.

use ::half::slice::HalfFloatSliceExt;
use ::half::{bf16, f16};
use dvm_bc::DType;

use super::{CHUNK, Chunk, Kernel};

/// Reads `n` halves as f32.
///
/// # Safety
/// `src` is valid for `n` reads of `dtype`, `dst` for `n` writes of f32.
pub(crate) unsafe fn widen(dtype: DType, dst: *mut f32, src: *const u8, n: usize) {
    // SAFETY: by the caller; the two ranges do not overlap, one being a private buffer.
    unsafe {
        // The destination may be uninitialised memory, which a slice must not be.
        std::ptr::write_bytes(dst, 0, n);
        let d = std::slice::from_raw_parts_mut(dst, n);
        match dtype {
            DType::F16 => std::slice::from_raw_parts(src.cast::<f16>(), n).convert_to_f32_slice(d),
            _ => std::slice::from_raw_parts(src.cast::<bf16>(), n).convert_to_f32_slice(d),
        }
    }
}

/// Writes `n` f32 as halves, rounding to nearest even.
///
/// # Safety
/// `src` is valid for `n` reads of f32, `dst` for `n` writes of `dtype`; they do not overlap.
pub(crate) unsafe fn narrow(dtype: DType, dst: *mut u8, src: *const f32, n: usize) {
    // SAFETY: by the caller. Argument and arena memory is always initialised.
    unsafe {
        let s = std::slice::from_raw_parts(src, n);
        match dtype {
            DType::F16 => std::slice::from_raw_parts_mut(dst.cast::<f16>(), n).convert_from_f32_slice(s),
            _ => std::slice::from_raw_parts_mut(dst.cast::<bf16>(), n).convert_from_f32_slice(s),
        }
    }
}

/// Writes `n` f64 as halves with one rounding.
///
/// # Safety
/// As for [`narrow`].
unsafe fn narrow64(dtype: DType, dst: *mut u8, src: *const f64, n: usize) {
    for i in 0..n {
        // SAFETY: i < n.
        unsafe {
            let v = *src.add(i);
            match dtype {
                DType::F16 => dst.cast::<f16>().add(i).write(f16::from_f64(v)),
                _ => dst.cast::<bf16>().add(i).write(bf16::from_f64(v)),
            }
        }
    }
}

/// One element as f32.
///
/// # Safety
/// `p` is valid for one read of `dtype`.
pub(crate) unsafe fn read(dtype: DType, p: *const u8) -> f32 {
    // SAFETY: by the caller.
    unsafe {
        match dtype {
            DType::F16 => (*p.cast::<f16>()).to_f32(),
            _ => (*p.cast::<bf16>()).to_f32(),
        }
    }
}

/// Which sides of a kernel are half precision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Halves {
    /// Per source: its half dtype.
    pub(crate) src: [Option<DType>; 3],
    /// Half dtype of the result.
    pub(crate) dst: Option<DType>,
    /// The kernel's result is f64 rather than f32.
    pub(crate) wide: bool,
}

impl Halves {
    pub(crate) fn any(&self) -> bool {
        self.dst.is_some() || self.src.iter().any(Option::is_some)
    }

    /// Runs `kernel` on widened copies. `sizes` are the bytes per element of sources and result in memory.
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
    ) {
        let mut bufs = [Chunk::new(), Chunk::new(), Chunk::new(), Chunk::new()];
        let mut at = 0;
        while at < n {
            let m = (n - at).min(CHUNK);
            let [b0, b1, b2, out] = &mut bufs;
            let mut ptrs = *src;
            for (i, buf) in [b0, b1, b2].into_iter().enumerate() {
                if src[i].is_null() {
                    continue;
                }
                let step = steps >> i & 1 != 0;
                let p = if step { src[i].wrapping_add(at * sizes[i] as usize) } else { src[i] };
                ptrs[i] = match self.src[i] {
                    Some(dtype) => {
                        // SAFETY: the source holds at + m elements (or one), the buffer CHUNK.
                        unsafe { widen(dtype, buf.ptr().cast(), p, if step { m } else { 1 }) };
                        buf.ptr()
                    }
                    None => p,
                };
            }
            let d = dst.wrapping_add(at * sizes[3] as usize);
            // SAFETY: as promised by the caller, with buffers of CHUNK elements on the widened sides.
            unsafe {
                match self.dst {
                    Some(dtype) => {
                        kernel.run(out.ptr(), &ptrs, steps, m);
                        if self.wide {
                            narrow64(dtype, d, out.ptr().cast(), m);
                        } else {
                            narrow(dtype, d, out.ptr().cast(), m);
                        }
                    }
                    None => kernel.run(d, &ptrs, steps, m),
                }
            }
            at += m;
        }
    }
}
