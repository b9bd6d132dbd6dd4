//! The arithmetic of the kernels, one element at a time, for whoever checks them: an interpreter that uses these functions
//! computes the machine's bits.
//!
//! An element is given by its bits: its little-endian bytes, zero-extended, as an immediate has them.
//!
//! ```
//! use dvm_bc::{DType, Opcode};
//! use dvm_vm::scalar;
//!
//! let half = |x: f32| u64::from(half::f16::from_f32(x).to_bits());
//! assert_eq!(scalar::binary(Opcode::VAdd, DType::F16, half(1.5), half(2.0)), Some(half(3.5)));
//! assert_eq!(scalar::cast(DType::F16, DType::I8, half(-3.7)), Some(0xfd));
//! let exp = scalar::unary_f32(Opcode::VExp).unwrap();
//! assert_eq!(exp(0.0), 1.0);
//! ```

use dvm_bc::{Class, DType, Opcode};

use crate::Isa;
use crate::elem::Elem;
use crate::kernels::half::Halves;
use crate::kernels::{Kernel, binary as binaries, cast as casts, ternary as ternaries, unary as unaries};

/// The function of one f32 that `op` computes, `None` where it is not one that gives f32.
#[must_use]
pub fn unary_f32(op: Opcode) -> Option<fn(f32) -> f32> {
    crate::math::scalar_unary_f32(op)
}

/// The function of two f32 that `op` computes, `None` where it is not one that gives f32.
#[must_use]
pub fn binary_f32(op: Opcode) -> Option<fn(f32, f32) -> f32> {
    crate::math::scalar_binary_f32(op)
}

/// The function of three f32 that `op` computes, `None` where it is not one that gives f32.
#[must_use]
pub fn ternary_f32(op: Opcode) -> Option<fn(f32, f32, f32) -> f32> {
    crate::math::scalar_ternary_f32(op)
}

/// The function of one f64 that `op` computes, `None` where it is not one that gives f64.
#[must_use]
pub fn unary_f64(op: Opcode) -> Option<fn(f64) -> f64> {
    unaries::scalar_f64(op).or(match op {
        Opcode::VCopy => Some(|x| x),
        Opcode::VAbs => Some(Elem::abs),
        Opcode::VNeg => Some(Elem::neg),
        Opcode::VSign => Some(Elem::sign),
        Opcode::VRound => Some(Elem::round),
        Opcode::VFloor => Some(Elem::floor),
        Opcode::VCeil => Some(Elem::ceil),
        Opcode::VTrunc => Some(Elem::trunc),
        _ => None,
    })
}

/// The function of two f64 that `op` computes, `None` where it is not one that gives f64.
#[must_use]
pub fn binary_f64(op: Opcode) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        Opcode::VAdd => Elem::add,
        Opcode::VSub => Elem::sub,
        Opcode::VMul => Elem::mul,
        Opcode::VDiv => Elem::div,
        Opcode::VRem => Elem::rem,
        Opcode::VFmod => Elem::fmod,
        Opcode::VPow => Elem::pow,
        Opcode::VMax => Elem::max,
        Opcode::VMin => Elem::min,
        Opcode::VFloorDiv => Elem::floordiv,
        _ => return None,
    })
}

/// The machine's functions for the interpreter of `dvm-bc`, whose results are then the machine's bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct VmMath;

impl dvm_bc::reference::Math for VmMath {
    fn f32(&self, op: Opcode, x: f32) -> f32 {
        unary_f32(op).map_or(f32::NAN, |f| f(x))
    }
    fn f64(&self, op: Opcode, x: f64) -> f64 {
        unary_f64(op).map_or(f64::NAN, |f| f(x))
    }
    fn pow_f32(&self, x: f32, y: f32) -> f32 {
        binary_f32(Opcode::VPow).map_or(f32::NAN, |f| f(x, y))
    }
    fn pow_f64(&self, x: f64, y: f64) -> f64 {
        Elem::pow(x, y)
    }
}

/// `op(x)` in `dtype`; `None` where `op` is not unary or does not take `dtype`. What classifies gives a bool.
#[must_use]
pub fn unary(op: Opcode, dtype: DType, x: u64) -> Option<u64> {
    let chosen = unaries::choose(op, dtype, Isa::Portable).filter(|_| op.dtypes().contains(dtype))?;
    Some(one(chosen, [dtype; 3], result(op, dtype), [x, 0, 0]))
}

/// `op(a, b)` in `dtype`; `None` where `op` is not binary or does not take `dtype`. Comparisons give a bool. An integer divided by 0,
/// for which a program traps, gives 0.
#[must_use]
pub fn binary(op: Opcode, dtype: DType, a: u64, b: u64) -> Option<u64> {
    let chosen =
        binaries::choose(op, dtype, [false; 2], Isa::Portable).filter(|_| op.dtypes().contains(dtype))?;
    Some(one(chosen, [dtype; 3], result(op, dtype), [a, b, 0]))
}

/// `op(a, b, c)` in `dtype`; `None` where `op` is not ternary or does not take `dtype`. The first operand of `vselect` is a bool.
#[must_use]
pub fn ternary(op: Opcode, dtype: DType, a: u64, b: u64, c: u64) -> Option<u64> {
    let chosen = ternaries::choose(op, dtype, Isa::Portable).filter(|_| op.dtypes().contains(dtype))?;
    let first = if op == Opcode::VSelect { DType::Bool } else { dtype };
    Some(one(chosen, [first, dtype, dtype], dtype, [a, b, c]))
}

/// `x` of dtype `from` converted to `into`; `None` never happens for the dtypes there are.
#[must_use]
pub fn cast(from: DType, into: DType, x: u64) -> Option<u64> {
    let chosen = casts::choose(from, into, Isa::Portable)?;
    Some(one(chosen, [from; 3], into, [x, 0, 0]))
}

fn result(op: Opcode, dtype: DType) -> DType {
    if op.class() == Class::Compare { DType::Bool } else { dtype }
}

/// Runs a kernel on single elements.
fn one((kernel, halves): (Kernel, Halves), sources: [DType; 3], result: DType, bits: [u64; 3]) -> u64 {
    let bits = bits.map(u64::to_le);
    let mut out = 0u64;
    let src = bits.each_ref().map(|b| std::ptr::from_ref(b).cast::<u8>());
    let dst = (&raw mut out).cast::<u8>();
    let [a, b, c] = sources.map(|d| d.size() as u8);
    // SAFETY: each pointer is to 8 aligned bytes, as many as the largest element; nothing overlaps. `choose` returns kernels that take
    // runs, here of one element.
    unsafe {
        if halves.any() {
            halves.run(kernel, dst, &src, 7, 1, &[a, b, c, result.size() as u8], None);
        } else {
            kernel.run(dst, &src, 7, 1);
        }
    }
    u64::from_le(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of every kind: small values, limits, special floats, and a walk through all exponents.
    fn grid(dtype: DType) -> Vec<u64> {
        let width = 8 * dtype.size();
        let mask = u64::MAX >> (64 - width);
        if dtype == DType::Bool {
            return vec![0, 1];
        }
        if width <= 8 {
            return (0..=mask).collect();
        }
        let mut out: Vec<u64> = (0..40u64).flat_map(|i| [i, mask - i, (mask >> 1) - 20 + i]).collect();
        out.extend((0..width).flat_map(|i| [1u64 << i, (1u64 << i) - 1, mask ^ (1u64 << i)]));
        let float = |x: f64| match dtype {
            DType::F64 => x.to_bits(),
            DType::F32 => u64::from((x as f32).to_bits()),
            DType::F16 => u64::from(half::f16::from_f64(x).to_bits()),
            _ => u64::from(half::bf16::from_f64(x).to_bits()),
        };
        if dtype.is_float() {
            let edges =
                [0.0, 0.5, 1.0, 2.0, 0.7, 3.0, 10.5, 88.7, 104.0, 1e4, 2e5, 1e30, f64::NAN, f64::INFINITY];
            out.extend(edges.into_iter().flat_map(|x| [float(x), float(-x)]));
        }
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        out.extend((0..600).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state ^ (state >> 29)) & mask
        }));
        // Dense around the middle of the exponents, where functions are used.
        if dtype.is_float() {
            let step = if dtype == DType::F64 { 0.0137 } else { 0.0371 };
            out.extend((0..1000).map(|i| float(f64::from(i) * step - 18.0)));
        }
        out
    }

    fn is_nan(dtype: DType, bits: u64) -> bool {
        match dtype {
            DType::F64 => f64::from_bits(bits).is_nan(),
            DType::F32 => f32::from_bits(bits as u32).is_nan(),
            DType::F16 => half::f16::from_bits(bits as u16).is_nan(),
            DType::BF16 => half::bf16::from_bits(bits as u16).is_nan(),
            _ => false,
        }
    }

    fn pack(dtype: DType, elements: &[u64]) -> Vec<u64> {
        let size = dtype.size() as usize;
        let bytes: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()[..size].to_vec()).collect();
        bytes
            .chunks(8)
            .map(|c| {
                let mut word = [0; 8];
                word[..c.len()].copy_from_slice(c);
                u64::from_ne_bytes(word)
            })
            .collect()
    }

    fn unpack(dtype: DType, words: &[u64], n: usize) -> Vec<u64> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let element = |c: &[u8]| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        };
        bytes.chunks(dtype.size() as usize).take(n).map(element).collect()
    }

    /// Runs a kernel over whole runs and compares each element with `want`.
    fn agrees(
        what: &str,
        (kernel, halves): (Kernel, Halves),
        sources: &[(DType, &[u64])],
        result: DType,
        want: impl Fn(usize) -> Option<u64>,
    ) {
        let n = sources[0].1.len();
        let packed: Vec<Vec<u64>> = sources.iter().map(|(d, v)| pack(*d, v)).collect();
        let mut out = vec![0u64; n];
        let mut src = [std::ptr::null(); 3];
        let mut sizes = [1, 1, 1, result.size() as u8];
        for (i, (p, (d, _))) in packed.iter().zip(sources).enumerate() {
            (src[i], sizes[i]) = (p.as_ptr().cast::<u8>(), d.size() as u8);
        }
        let dst = out.as_mut_ptr().cast::<u8>();
        // SAFETY: all sources hold n elements, the result has room for n.
        unsafe {
            if halves.any() {
                halves.run(kernel, dst, &src, 7, n, &sizes, None);
            } else {
                kernel.run(dst, &src, 7, n);
            }
        }
        for (i, got) in unpack(result, &out, n).into_iter().enumerate() {
            let want = want(i).expect("an instruction with a kernel has a scalar function");
            let args: Vec<u64> = sources.iter().map(|(_, v)| v[i]).collect();
            assert!(
                got == want || (is_nan(result, got) && is_nan(result, want)),
                "{what}({args:x?}) of {:?}: kernel {got:x}, scalar {want:x}",
                sources[0].0
            );
        }
    }

    #[test]
    fn kernels_of_every_level_compute_the_scalar_functions() {
        let ops = |form| Opcode::ALL.iter().copied().filter(move |o| o.form() == form);
        for &dtype in DType::ALL {
            let x = grid(dtype);
            let turned: Vec<u64> = (0..x.len()).map(|i| x[(i * 7 + 13) % x.len()]).collect();
            let third: Vec<u64> = (0..x.len()).map(|i| x[(i * 11 + 5) % x.len()]).collect();
            let bools: Vec<u64> = (0..x.len()).map(|i| u64::from(i % 3 == 0)).collect();
            for isa in [Isa::Portable, Isa::detect()] {
                for op in ops(dvm_bc::Form::Unary).filter(|o| o.dtypes().contains(dtype)) {
                    let k = unaries::choose(op, dtype, isa).expect("a kernel");
                    let want = |i: usize| unary(op, dtype, x[i]);
                    agrees(op.mnemonic(), k, &[(dtype, &x)], result(op, dtype), want);
                }
                for op in ops(dvm_bc::Form::Binary).filter(|o| o.dtypes().contains(dtype)) {
                    let k = binaries::choose(op, dtype, [false; 2], isa).expect("a kernel");
                    let want = |i: usize| binary(op, dtype, x[i], turned[i]);
                    agrees(op.mnemonic(), k, &[(dtype, &x), (dtype, &turned)], result(op, dtype), want);
                }
                for op in ops(dvm_bc::Form::Ternary).filter(|o| o.dtypes().contains(dtype)) {
                    let k = ternaries::choose(op, dtype, isa).expect("a kernel");
                    let (first, a) = if op == Opcode::VSelect { (DType::Bool, &bools) } else { (dtype, &x) };
                    let want = |i: usize| ternary(op, dtype, a[i], turned[i], third[i]);
                    agrees(op.mnemonic(), k, &[(first, a), (dtype, &turned), (dtype, &third)], dtype, want);
                }
                for &into in DType::ALL {
                    let k = casts::choose(dtype, into, isa).expect("a kernel");
                    agrees("vcast", k, &[(dtype, &x)], into, |i| cast(dtype, into, x[i]));
                }
            }
        }
    }

    #[test]
    fn typed_functions_are_the_same() {
        let x = grid(DType::F32);
        let y = grid(DType::F64);
        for &op in Opcode::ALL {
            if let Some(f) = unary_f32(op) {
                for &b in &x {
                    let (got, want) = (f(f32::from_bits(b as u32)), unary(op, DType::F32, b).unwrap());
                    assert!(u64::from(got.to_bits()) == want || got.is_nan(), "{op:?} {b:x}");
                }
            }
            if let Some(f) = unary_f64(op) {
                for &b in &y {
                    let (got, want) = (f(f64::from_bits(b)), unary(op, DType::F64, b).unwrap());
                    assert!(got.to_bits() == want || got.is_nan(), "{op:?} {b:x}");
                }
            }
            for w in x.windows(2) {
                if let (Some(f), &[a, b]) = (binary_f32(op), w) {
                    let got = f(f32::from_bits(a as u32), f32::from_bits(b as u32));
                    let want = binary(op, DType::F32, a, b).unwrap();
                    assert!(u64::from(got.to_bits()) == want || got.is_nan(), "{op:?} {a:x} {b:x}");
                }
            }
            for w in y.windows(2) {
                if let (Some(f), &[a, b]) = (binary_f64(op), w) {
                    let want = binary(op, DType::F64, a, b).unwrap();
                    let got = f(f64::from_bits(a), f64::from_bits(b));
                    assert!(got.to_bits() == want || got.is_nan(), "{op:?} {a:x} {b:x}");
                }
            }
        }
        let floats = |o: &Opcode| o.dtypes() == dvm_bc::DTypes::Float && o.class() != Class::Compare;
        for op in Opcode::ALL.iter().filter(|o| o.form() == dvm_bc::Form::Unary && floats(o)) {
            assert!(unary_f32(*op).is_some() && unary_f64(*op).is_some(), "{op:?}");
        }
    }
}
