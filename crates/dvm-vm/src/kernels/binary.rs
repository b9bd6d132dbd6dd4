//! Binary elementwise kernels.

use dvm_bc::{DType, Opcode};

use super::half::Halves;
use super::{Kernel, SpanFn, define_op, span2};
use crate::Isa;
use crate::elem::{Bits, Elem, with_bits, with_elem};

fn two<T: Copy, O: super::Op2<T, Out: Copy>>(_: O, isa: Isa) -> SpanFn {
    span2::span::<T, O>(isa)
}

/// For operations that do not vectorise.
fn scalar<T: Copy, O: super::Op2<T, Out: Copy>>(_: O, _: Isa) -> SpanFn {
    span2::narrow::<T, O>()
}

macro_rules! table {
    ($loop:ident, $fn:ident, $bound:path, $out:ty, { $($op:ident: $a:ident, $b:ident => $body:expr;)* }) => {
        fn $fn<T: $bound>(op: Opcode, isa: Isa) -> Option<SpanFn> {
            Some(match op {
                $(Opcode::$op => $loop::<T, _>(define_op!(Op2, $bound, [$a, $b], $out, $body), isa),)*
                _ => return None,
            })
        }
    };
}

table!(two, arith, Elem, T, {
    VAdd: a, b => a.add(b);
    VSub: a, b => a.sub(b);
    VMul: a, b => a.mul(b);
    VMax: a, b => a.max(b);
    VMin: a, b => a.min(b);
});
table!(scalar, divide, Elem, T, {
    VDiv: a, b => a.div(b);
    VRem: a, b => a.rem(b);
    VFmod: a, b => a.fmod(b);
    VPow: a, b => a.pow(b);
    VFloorDiv: a, b => a.floordiv(b);
});
table!(two, compare, Elem, u8, {
    VEq: a, b => u8::from(a == b);
    VNe: a, b => u8::from(a != b);
    VLt: a, b => u8::from(a < b);
    VLe: a, b => u8::from(a <= b);
    VGt: a, b => u8::from(a > b);
    VGe: a, b => u8::from(a >= b);
});
table!(two, bits, Bits, T, {
    VAnd: a, b => a.and(b);
    VOr: a, b => a.or(b);
    VXor: a, b => a.xor(b);
    VShl: a, b => a.shl(b);
    VShr: a, b => a.shr(b);
});

/// Whether `op` writes bool.
pub(crate) fn is_compare(op: Opcode) -> bool {
    use Opcode::{VEq, VGe, VGt, VLe, VLt, VNe};
    matches!(op, VEq | VNe | VLt | VLe | VGt | VGe)
}

/// Whether `op` traps on a zero divisor: division and remainder of integers.
pub(crate) fn traps(op: Opcode, dtype: DType) -> bool {
    use Opcode::{VDiv, VFloorDiv, VFmod, VRem};
    !dtype.is_float() && matches!(op, VDiv | VRem | VFmod | VFloorDiv)
}

/// The kernel of `op` on `dtype` (f16 and bf16 ask for f32), where `scalar` says which operands are a single element.
pub(crate) fn kernel(op: Opcode, dtype: DType, scalar: [bool; 2], isa: Isa) -> Option<Kernel> {
    if dtype == DType::F32 {
        use crate::math::{binary_f32, binary_f32_scalar, compare_f32, compare_f32_scalar};
        let found = match scalar {
            [false, true] => binary_f32_scalar(op, isa, false)
                .map(Kernel::ScalarRight)
                .or_else(|| compare_f32_scalar(op, isa, false).map(Kernel::CompareRight)),
            [true, false] => binary_f32_scalar(op, isa, true)
                .map(Kernel::ScalarLeft)
                .or_else(|| compare_f32_scalar(op, isa, true).map(Kernel::CompareLeft)),
            _ => {
                binary_f32(op, isa).map(Kernel::Binary).or_else(|| compare_f32(op, isa).map(Kernel::Compare))
            }
        };
        return found;
    }
    with_bits!(dtype, T => bits::<T>(op, isa), else => None)
        .or_else(|| {
            with_elem!(dtype, T => {
                arith::<T>(op, isa).or_else(|| divide::<T>(op, isa)).or_else(|| compare::<T>(op, isa))
            }, f32 => None, half => None)
        })
        .map(Kernel::Span)
}

/// The kernel of `op` on any dtype, and what of it is half precision.
pub(crate) fn choose(op: Opcode, dtype: DType, single: [bool; 2], isa: Isa) -> Option<(Kernel, Halves)> {
    let halves = Halves::of(dtype, 2, !is_compare(op), isa);
    kernel(op, halves.native(dtype), single, isa).map(|k| (k, halves))
}

/// Index of the first zero among `n` elements.
///
/// # Safety
/// `p` is valid for `n` reads of `dtype`.
pub(crate) unsafe fn find_zero(dtype: DType, p: *const u8, n: usize) -> Option<usize> {
    with_elem!(dtype, T => {
        let p = p.cast::<T>();
        // SAFETY: i < n.
        (0..n).find(|&i| unsafe { !(*p.add(i)).truth() })
    }, half => None)
}

/// The value of element `i` as an integer, for messages.
///
/// # Safety
/// `p` is valid for a read of `dtype` at `i`.
pub(crate) unsafe fn read_int(dtype: DType, p: *const u8, i: usize) -> i64 {
    with_elem!(dtype, T => {
        // SAFETY: by the caller.
        unsafe { (*p.cast::<T>().add(i)).to_i64() }
    }, half => 0)
}
