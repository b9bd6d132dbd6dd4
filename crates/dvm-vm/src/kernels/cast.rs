//! Conversions between native dtypes. Half-precision sides are widened or narrowed around the kernel.

use dvm_bc::DType;

use super::half::{Halves, is_half, narrow, narrow64, widen};
use super::{Kernel, Op1, SpanFn, span1};
use crate::Isa;
use crate::elem::{CastTo, with_elem};

struct To<U>(std::marker::PhantomData<U>);
impl<T: CastTo<U>, U> Op1<T> for To<U> {
    type Out = U;
    #[inline(always)]
    fn f(a: T) -> U {
        a.cast()
    }
}

/// A 64-bit integer to f64, toward zero with the last bit set when inexact: rounding that to a half is rounding once.
struct Odd;
macro_rules! odd {
    ($($t:ty),*) => { $(
        impl Op1<$t> for Odd {
            type Out = f64;
            #[inline(always)]
            fn f(a: $t) -> f64 {
                let near = a as f64;
                let back = near as i128;
                if back == i128::from(a) {
                    return near;
                }
                let above = back.unsigned_abs() > i128::from(a).unsigned_abs();
                f64::from_bits((near.to_bits() - u64::from(above)) | 1)
            }
        }
    )* };
}
odd!(i64, u64);

/// Rare pairs: the frequent ones have kernels of their own.
fn to<T: Copy + CastTo<U>, U: Copy>() -> SpanFn {
    span1::narrow::<T, To<U>>()
}

/// The kernel from one native dtype to another, `None` for f16 and bf16.
pub(crate) fn kernel(from: DType, into: DType, isa: Isa) -> Option<Kernel> {
    if from == into && from != DType::Bool {
        return Some(Kernel::Span(super::shape::copy(from.size(), isa)));
    }
    // That kernel takes bytes as numbers; a bool may be any non-zero byte.
    if from != DType::Bool
        && let Some(f) = crate::math::cast(from, into, isa)
    {
        return Some(Kernel::Cast(f));
    }
    Some(Kernel::Span(
        with_elem!(from, T => with_elem!(into, U => to::<T, U>(), half => return None), half => return None),
    ))
}

/// The kernel between any dtypes, and what of it is half precision. To a half it goes through f32 where that is exact or the
/// source itself, else through f64.
pub(crate) fn choose(from: DType, into: DType, isa: Isa) -> Option<(Kernel, Halves)> {
    if from == into {
        return kernel(from, into, isa).map(|k| (k, Halves::default()));
    }
    let mut halves = Halves::default();
    let exact = !matches!(from, DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64);
    let native = |d: DType| if is_half(d) { DType::F32 } else { d };
    if is_half(into) && !exact {
        halves.dst = Some(narrow64(into));
        match from {
            DType::I64 => return Some((Kernel::Span(span1::narrow::<i64, Odd>()), halves)),
            DType::U64 => return Some((Kernel::Span(span1::narrow::<u64, Odd>()), halves)),
            _ => {}
        }
        return kernel(from, DType::F64, isa).map(|k| (k, halves));
    }
    halves.src[0] = is_half(from).then(|| widen(from, isa));
    halves.dst = is_half(into).then(|| narrow(into, isa));
    kernel(native(from), native(into), isa).map(|k| (k, halves))
}
