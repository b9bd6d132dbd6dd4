//! `fma`, `select` and `clamp`.

use dvm_bc::{DType, Opcode};

use super::half::Halves;
use super::{Kernel, SpanFn};
use crate::Isa;
use crate::elem::{Elem, with_elem};

/// One element of a run, or the only one.
///
/// # Safety
/// `p` is valid for a read at `i` if the step is 1, at 0 otherwise.
#[inline(always)]
unsafe fn at<T: Copy>(p: *const T, step: usize, i: usize) -> T {
    // SAFETY: by the caller.
    unsafe { *p.add(i * step) }
}

macro_rules! ternary {
    ($name:ident<$t:ident: $bound:path>, $first:ty, |$a:ident, $b:ident, $c:ident| $body:expr) => {
        mod $name {
            use super::*;
            #[inline(always)]
            unsafe fn body<$t: $bound>(dst: *mut u8, src: &[*const u8; 3], steps: u32, n: usize) {
                let d = dst.cast::<$t>();
                let (pa, pb, pc) = (src[0].cast::<$first>(), src[1].cast::<$t>(), src[2].cast::<$t>());
                let s = [steps as usize & 1, steps as usize >> 1 & 1, steps as usize >> 2 & 1];
                // SAFETY: by the contract of SpanFn.
                unsafe {
                    if steps & 7 == 7 {
                        // Constant steps let this loop vectorise.
                        super::super::blocks(d, n, |i| {
                            let ($a, $b, $c) = (at(pa, 1, i), at(pb, 1, i), at(pc, 1, i));
                            $body
                        });
                    } else {
                        for i in 0..n {
                            let ($a, $b, $c) = (at(pa, s[0], i), at(pb, s[1], i), at(pc, s[2], i));
                            d.add(i).write($body);
                        }
                    }
                }
            }
            crate::kernels::for_isa!(span<$t: $bound>);
        }
    };
}

ternary!(fma<T: Elem>, T, |a, b, c| a.fma(b, c));
ternary!(clamp<T: Elem>, T, |a, b, c| a.max(b).min(c));
ternary!(select<T: Copy>, u8, |a, b, c| if a != 0 { b } else { c });

/// The kernel of `op` on `dtype` (f16 and bf16 ask for f32, except `select`, which moves bits).
pub(crate) fn kernel(op: Opcode, dtype: DType, isa: Isa) -> Option<Kernel> {
    if dtype == DType::F32 {
        if op == Opcode::VSelect {
            return Some(Kernel::Select(crate::math::select_f32(isa)));
        }
        if let Some(f) = crate::math::ternary_f32(op, isa) {
            return Some(Kernel::Ternary(f));
        }
    }
    let f: SpanFn = match op {
        Opcode::VSelect => match dtype.size() {
            1 => select::span::<u8>(isa),
            2 => select::span::<u16>(isa),
            4 => select::span::<u32>(isa),
            _ => select::span::<u64>(isa),
        },
        Opcode::VFma => with_elem!(dtype, T => fma::span::<T>(isa), f32 => return None, half => return None),
        Opcode::VClamp => {
            with_elem!(dtype, T => clamp::span::<T>(isa), f32 => return None, half => return None)
        }
        _ => return None,
    };
    Some(Kernel::Span(f))
}

/// The kernel of `op` on any dtype, and what of it is half precision.
pub(crate) fn choose(op: Opcode, dtype: DType, isa: Isa) -> Option<(Kernel, Halves)> {
    if op == Opcode::VSelect {
        return kernel(op, dtype, isa).map(|k| (k, Halves::default()));
    }
    let halves = Halves::of(dtype, 3, true, isa);
    kernel(op, halves.native(dtype), isa).map(|k| (k, halves))
}
