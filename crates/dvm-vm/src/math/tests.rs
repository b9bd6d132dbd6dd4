//! Accuracy against correctly rounded values, special values, and equal bits on every level.

use dvm_bc::Opcode;

use super::*;

fn levels() -> [Isa; 2] {
    [Isa::Portable, Isa::detect()]
}

/// The distance of `got` from `want` in units of the last place of an f32 at `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || got.is_nan() {
        return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() {
        return if rounded == got { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 {
        return if got == 0.0 && got.is_sign_negative() == want.is_sign_negative() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let exponent = (want.abs().to_bits() >> 52) as i32 - 1023;
    let ulp = 2f64.powi(exponent.max(-126) - 23);
    (f64::from(got) - want).abs() / ulp
}

/// The exact function.
fn exact(op: Opcode) -> Option<fn(f64) -> f64> {
    Some(match op {
        Opcode::VSqrt => libm::sqrt,
        Opcode::VRsqrt => |x| 1.0 / libm::sqrt(x),
        Opcode::VReciprocal => |x| 1.0 / x,
        Opcode::VExp => libm::exp,
        Opcode::VExp2 => libm::exp2,
        Opcode::VExpm1 => libm::expm1,
        Opcode::VLn => libm::log,
        Opcode::VLog2 => libm::log2,
        Opcode::VLog1p => libm::log1p,
        Opcode::VSin => libm::sin,
        Opcode::VCos => libm::cos,
        Opcode::VTan => libm::tan,
        Opcode::VTanh => libm::tanh,
        Opcode::VErf => libm::erf,
        Opcode::VSigmoid => |x| 1.0 / (1.0 + libm::exp(-x)),
        Opcode::VAsin => libm::asin,
        Opcode::VAcos => libm::acos,
        Opcode::VAtan => libm::atan,
        Opcode::VSinh => libm::sinh,
        Opcode::VCosh => libm::cosh,
        Opcode::VAsinh => libm::asinh,
        Opcode::VAcosh => libm::acosh,
        Opcode::VAtanh => libm::atanh,
        _ => return None,
    })
}

/// Values where functions change their ways, and every `step`-th float.
fn arguments(step: u32) -> Vec<f32> {
    let mut v = vec![];
    let edges = [
        0.0,
        1.0,
        0.5,
        2.0,
        1e-8,
        1e-38,
        1e-45,
        0.93,
        0.346_573_6,
        87.0,
        88.722_83,
        88.722_84,
        103.972_08,
        104.0,
        17.328_68,
        9.010_913,
        20.0,
        125.0,
        126.0,
        128.0,
        149.0,
        150.0,
        4.0,
        200_000.0,
        1e30,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        std::f32::consts::PI,
        std::f32::consts::FRAC_PI_2,
        std::f32::consts::FRAC_PI_4,
        2.0 / 3.0,
        4.0 / 3.0,
        67_108_864.0,
        3.0,
        7.0,
        0.999_999_94,
        1.000_000_1,
    ];
    for e in edges {
        for d in -2i32..=2 {
            let x = f32::from_bits((e.to_bits() as i32 + d).max(0) as u32);
            v.extend([x, -x]);
        }
    }
    v.push(f32::NAN);
    let mut bits = 0x1234u32;
    while bits < 0x7f80_0000 {
        let x = f32::from_bits(bits);
        v.extend([x, -x]);
        bits += step;
    }
    v
}

#[test]
fn functions_keep_their_bounds() {
    let xs = arguments(9973);
    let mut ys = vec![0f32; xs.len()];
    let mut failures = vec![];
    for &op in Opcode::ALL {
        let Some(exact) = exact(op) else { continue };
        let promise = accuracy().iter().find(|a| a.op == op);
        let bound = promise.map_or(0.5, |a| a.bound);
        let run = unary_f32(op, Isa::detect()).expect("in the table");
        // SAFETY: both have as many elements.
        unsafe { run(ys.as_mut_ptr(), xs.as_ptr(), xs.len()) };
        let errors = xs.iter().zip(&ys).map(|(&x, &y)| (ulps(y, exact(f64::from(x))), x));
        let (error, at) = errors.fold((0.0, 0.0), |w, e| if e.0 > w.0 { e } else { w });
        if error > bound {
            failures.push(format!("{}: {error:.3} ulp at {at:e} ({:#x})", op.mnemonic(), at.to_bits()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn power_keeps_its_bound() {
    let xs = arguments(4_000_037);
    let mut worst = (0.0, 0.0, 0.0);
    let run = binary_f32(Opcode::VPow, Isa::detect()).expect("in the table");
    for &y in &xs {
        let ys = vec![y; xs.len()];
        let mut zs = vec![0f32; xs.len()];
        // SAFETY: all have as many elements.
        unsafe { run(zs.as_mut_ptr(), xs.as_ptr(), ys.as_ptr(), xs.len()) };
        for (&x, &z) in xs.iter().zip(&zs) {
            let e = ulps(z, libm::pow(f64::from(x), f64::from(y)));
            if e > worst.0 {
                worst = (e, x, y);
            }
        }
    }
    // Powers near 1 with large exponents are where the logarithm's precision shows.
    let mut numbers = 1u64;
    for _ in 0..200_000 {
        numbers = numbers.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = f32::from_bits((numbers >> 33) as u32 % 0x7f80_0000);
        let p = (numbers & 0xffff) as f32 / 65536.0 * 276.0 - 148.0;
        let y = p / x.log2();
        let e = ulps(
            scalar_binary_f32(Opcode::VPow).expect("in the table")(x, y),
            libm::pow(f64::from(x), f64::from(y)),
        );
        if e > worst.0 {
            worst = (e, x, y);
        }
    }
    let promise = accuracy().iter().find(|a| a.op == Opcode::VPow).expect("in the table");
    assert!(worst.0 <= promise.bound, "{worst:?}");
}

/// Every function and mode on every level, over lengths around the loops' strides, gives the scalar form's bits.
#[test]
fn levels_and_tails_agree() {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let all = arguments(50_000_017);
    for &op in Opcode::ALL {
        for isa in levels() {
            for n in [0, 1, 7, 8, 9, 31, 32, 33, 63, 65, all.len() - 2] {
                let (xs, ys) = (&all[..n], &all[2..n + 2]);
                let mut got = vec![0f32; n];
                if let (Some(run), Some(scalar)) = (unary_f32(op, isa), scalar_unary_f32(op)) {
                    // SAFETY: both have `n` elements.
                    unsafe { run(got.as_mut_ptr(), xs.as_ptr(), n) };
                    for (&x, &y) in xs.iter().zip(&got) {
                        assert!(same(y, scalar(x)), "{op:?} {isa:?} {x:e}: {y:e} or {:e}", scalar(x));
                    }
                }
                if let (Some(run), Some(scalar)) = (ternary_f32(op, isa), scalar_ternary_f32(op)) {
                    // SAFETY: all have `n` elements.
                    unsafe { run(got.as_mut_ptr(), xs.as_ptr(), ys.as_ptr(), all.as_ptr(), n) };
                    for i in 0..n {
                        let want = scalar(xs[i], ys[i], all[i]);
                        assert!(same(got[i], want), "{op:?} {isa:?} {:e} {:e}: {:e}", xs[i], ys[i], got[i]);
                    }
                }
                let Some(scalar) = scalar_binary_f32(op) else { continue };
                let run = binary_f32(op, isa).expect("has a scalar form");
                // SAFETY: all have `n` elements.
                unsafe { run(got.as_mut_ptr(), xs.as_ptr(), ys.as_ptr(), n) };
                for i in 0..n {
                    let want = scalar(xs[i], ys[i]);
                    assert!(
                        same(got[i], want),
                        "{op:?} {isa:?} {:e} {:e}: {:e} or {want:e}",
                        xs[i],
                        ys[i],
                        got[i]
                    );
                }
                for left in [false, true] {
                    let run = binary_f32_scalar(op, isa, left).expect("has a scalar form");
                    for s in [2.5, 2.0, -3.0] {
                        // SAFETY: both have `n` elements.
                        unsafe { run(got.as_mut_ptr(), xs.as_ptr(), s, n) };
                        for (&x, &y) in xs.iter().zip(&got) {
                            let want = if left { scalar(s, x) } else { scalar(x, s) };
                            assert!(same(y, want), "{op:?} {isa:?} left {left} {x:e} {s}: {y:e} or {want:e}");
                        }
                    }
                }
            }
        }
    }
}

/// What NumPy gives.
#[test]
fn special_values() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let unary: &[(Opcode, f32, f32)] = &[
        (Opcode::VSign, -0.0, 0.0),
        (Opcode::VSign, NAN, NAN),
        (Opcode::VSign, -3.0, -1.0),
        (Opcode::VRound, 0.5, 0.0),
        (Opcode::VRound, 1.5, 2.0),
        (Opcode::VRound, -2.5, -2.0),
        (Opcode::VRsqrt, 0.0, INF),
        (Opcode::VRsqrt, INF, 0.0),
        (Opcode::VRsqrt, -1.0, NAN),
        (Opcode::VReciprocal, -0.0, -INF),
        (Opcode::VSqrt, -0.0, -0.0),
    ];
    for &(op, x, want) in unary {
        let got = scalar_unary_f32(op).expect("in the table")(x);
        assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{op:?} {x}: {got}");
    }
    let binary: &[(Opcode, f32, f32, f32)] = &[
        (Opcode::VMax, 0.0, -0.0, 0.0),
        (Opcode::VMax, -0.0, 0.0, 0.0),
        (Opcode::VMax, NAN, 1.0, NAN),
        (Opcode::VMax, 1.0, NAN, NAN),
        (Opcode::VMin, 0.0, -0.0, -0.0),
        (Opcode::VMin, -0.0, 0.0, -0.0),
        (Opcode::VMin, NAN, -INF, NAN),
        (Opcode::VMax, -1.0, -2.0, -1.0),
        (Opcode::VMin, INF, -2.0, -2.0),
        (Opcode::VRem, 5.5, -2.0, -0.5),
        (Opcode::VRem, -5.5, 2.0, 0.5),
        (Opcode::VRem, 4.0, -2.0, -0.0),
        (Opcode::VRem, 1.0, 0.0, NAN),
        (Opcode::VRem, 1.0, INF, 1.0),
        (Opcode::VRem, -1.0, INF, INF),
        (Opcode::VFmod, 5.5, -2.0, 1.5),
        (Opcode::VFmod, -5.5, 2.0, -1.5),
        (Opcode::VFloorDiv, 5.5, -2.0, -3.0),
        (Opcode::VFloorDiv, 1.0, 0.0, INF),
        (Opcode::VFloorDiv, -1.0, INF, -1.0),
        (Opcode::VPow, 0.0, 0.0, 1.0),
        (Opcode::VPow, NAN, 0.0, 1.0),
        (Opcode::VPow, 1.0, NAN, 1.0),
        (Opcode::VPow, -2.0, 3.0, -8.0),
        (Opcode::VPow, -2.0, 0.5, NAN),
        (Opcode::VPow, -0.0, 3.0, -0.0),
        (Opcode::VPow, -0.0, -3.0, -INF),
        (Opcode::VPow, -INF, 3.0, -INF),
        (Opcode::VPow, -INF, -2.0, 0.0),
        (Opcode::VPow, -1.0, INF, 1.0),
        (Opcode::VPow, 0.5, INF, 0.0),
        (Opcode::VPow, 0.5, -INF, INF),
        (Opcode::VPow, 3.0, 2.0, 9.0),
        (Opcode::VPow, -INF, 0.5, INF),
        (Opcode::VPow, 2.0, NAN, NAN),
    ];
    for &(op, a, b, want) in binary {
        let got = scalar_binary_f32(op).expect("in the table")(a, b);
        assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{op:?} {a} {b}: {got}");
    }
}

#[test]
fn comparisons_and_selection() {
    let all = arguments(100_000_007);
    type Test = fn(f32, f32) -> bool;
    let table: &[(Opcode, Test)] = &[
        (Opcode::VEq, |a, b| a == b),
        (Opcode::VNe, |a, b| a != b),
        (Opcode::VLt, |a, b| a < b),
        (Opcode::VLe, |a, b| a <= b),
        (Opcode::VGt, |a, b| a > b),
        (Opcode::VGe, |a, b| a >= b),
    ];
    type Kind = fn(f32) -> bool;
    let tests: &[(Opcode, Kind)] = &[
        (Opcode::VIsNan, f32::is_nan),
        (Opcode::VIsInf, f32::is_infinite),
        (Opcode::VIsFinite, f32::is_finite),
    ];
    for isa in levels() {
        for n in [0, 1, 7, 8, 33, all.len() - 1] {
            let (xs, ys) = (&all[..n], &all[1..n + 1]);
            let mut got = vec![9u8; n + 1];
            let check = |got: &[u8], want: &dyn Fn(usize) -> bool, what: &dyn std::fmt::Debug| {
                for (i, &g) in got[..n].iter().enumerate() {
                    assert_eq!(g, u8::from(want(i)), "{what:?} {isa:?} {:e} {:e}", xs[i], ys[i]);
                }
                assert_eq!(got[n], 9, "wrote past the end");
            };
            for &(op, test) in table {
                // SAFETY: all have at least `n` elements.
                unsafe {
                    compare_f32(op, isa).expect("compares")(got.as_mut_ptr(), xs.as_ptr(), ys.as_ptr(), n)
                };
                check(&got, &|i| test(xs[i], ys[i]), &op);
                for left in [false, true] {
                    let run = compare_f32_scalar(op, isa, left).expect("compares");
                    // SAFETY: both have at least `n` elements.
                    unsafe { run(got.as_mut_ptr(), xs.as_ptr(), 1.0, n) };
                    check(&got, &|i| if left { test(1.0, xs[i]) } else { test(xs[i], 1.0) }, &(op, left));
                }
            }
            for &(op, test) in tests {
                // SAFETY: both have at least `n` elements.
                unsafe { predicate_f32(op, isa).expect("tests")(got.as_mut_ptr(), xs.as_ptr(), n) };
                check(&got, &|i| test(xs[i]), &op);
            }
            let cond: Vec<u8> = (0..n).map(|i| (i % 3 == 0) as u8).collect();
            let mut out = vec![0f32; n];
            // SAFETY: all have `n` elements.
            unsafe { select_f32(isa)(out.as_mut_ptr(), cond.as_ptr(), xs.as_ptr(), ys.as_ptr(), n) };
            for i in 0..n {
                assert_eq!(out[i].to_bits(), if cond[i] != 0 { xs[i] } else { ys[i] }.to_bits());
            }
        }
    }
}

#[test]
fn rows_follow_the_order_of_the_isa() {
    let mut seed = 7u64;
    let mut number = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 40) as f32 - 8_388_608.0) * 1.7e-3
    };
    for n in [0, 1, 5, 8, 63, 64, 65, 100, 128, 1000, 4095, 4096] {
        let xs: Vec<f32> = (0..n).map(|_| number()).collect();
        let mut lanes = [0f32; 64];
        for (i, x) in xs.iter().enumerate() {
            lanes[i % 64] += x;
        }
        for stride in [32, 16, 8, 4, 2, 1] {
            for j in 0..stride {
                lanes[j] += lanes[j + stride];
            }
        }
        let largest = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let smallest = xs.iter().copied().fold(f32::INFINITY, f32::min);
        for isa in levels() {
            // SAFETY: `xs` has `n` elements.
            unsafe {
                assert_eq!(sum_x_f32(isa)(xs.as_ptr(), n).to_bits(), lanes[0].to_bits(), "{n} {isa:?}");
                assert_eq!(max_x_f32(isa)(xs.as_ptr(), n), largest, "{n} {isa:?}");
                assert_eq!(min_x_f32(isa)(xs.as_ptr(), n), smallest, "{n} {isa:?}");
                for at in [0, n / 2, n.saturating_sub(1)] {
                    let mut ys = xs.clone();
                    if n > 0 {
                        ys[at] = f32::NAN;
                        assert!(max_x_f32(isa)(ys.as_ptr(), n).is_nan(), "{n} {at} {isa:?}");
                        assert!(min_x_f32(isa)(ys.as_ptr(), n).is_nan(), "{n} {at} {isa:?}");
                        let mut zeros = vec![-0f32; n];
                        assert!(max_x_f32(isa)(zeros.as_ptr(), n).is_sign_negative());
                        zeros[at] = 0.0;
                        assert!(max_x_f32(isa)(zeros.as_ptr(), n).is_sign_positive());
                        zeros.fill(0.0);
                        assert!(min_x_f32(isa)(zeros.as_ptr(), n).is_sign_positive());
                        zeros[at] = -0.0;
                        assert!(min_x_f32(isa)(zeros.as_ptr(), n).is_sign_negative());
                    }
                }
            }
            let (rows, pitch) = (n.min(64), 77);
            let ys: Vec<f32> = (0..rows * pitch).map(|_| number()).collect();
            for cols in [1, 8, 31, 32, 33, 77] {
                let mut got = vec![0f32; cols];
                // SAFETY: `rows` rows of `cols` elements, `pitch` apart.
                unsafe { sum_y_f32(isa)(got.as_mut_ptr(), ys.as_ptr(), rows, cols, pitch) };
                for (j, g) in got.iter().enumerate() {
                    let want = (0..rows).fold(0f32, |a, r| a + ys[r * pitch + j]);
                    assert_eq!(g.to_bits(), want.to_bits(), "{rows} x {cols} {isa:?}");
                }
                let (mut hi, mut lo) = (vec![1e8f32; cols], vec![0f32; cols]);
                for row in ys.chunks_exact(pitch) {
                    // SAFETY: `cols` elements behind each pointer.
                    unsafe { two_sum_f32(isa)(hi.as_mut_ptr(), lo.as_mut_ptr(), row.as_ptr(), cols) };
                }
                for j in 0..cols {
                    let want = (0..rows).fold(1e8f64, |a, r| a + f64::from(ys[r * pitch + j]));
                    assert!((f64::from(hi[j]) + f64::from(lo[j]) - want).abs() <= want.abs() * 1e-12);
                }
            }
        }
    }
}

#[test]
fn casts_agree_with_rust_and_half() {
    use dvm_bc::DType;
    use half::{bf16, f16};
    let xs: Vec<f32> = arguments(20_000_003);
    let n = xs.len();
    fn run<F: Copy, T: Copy + Default>(from: DType, to: DType, isa: Isa, xs: &[F]) -> Vec<T> {
        let mut out = vec![T::default(); xs.len()];
        let f = cast(from, to, isa).expect("has a kernel");
        // SAFETY: both have as many elements, of the dtypes named.
        unsafe { f(out.as_mut_ptr().cast(), xs.as_ptr().cast(), xs.len()) };
        out
    }
    for isa in levels() {
        let f16s: Vec<f16> = run(DType::F32, DType::F16, isa, &xs);
        let bf16s: Vec<bf16> = run(DType::F32, DType::BF16, isa, &xs);
        let i32s: Vec<i32> = run(DType::F32, DType::I32, isa, &xs);
        let u8s: Vec<u8> = run(DType::F32, DType::U8, isa, &xs);
        let i64s: Vec<i64> = run(DType::F32, DType::I64, isa, &xs);
        for i in 0..n {
            let x = xs[i];
            let (h, b) = (f16::from_f32(x), bf16::from_f32(x));
            assert!(f16s[i] == h || (h.is_nan() && f16s[i].is_nan()), "{isa:?} {x:e}: {}", f16s[i]);
            assert!(bf16s[i] == b || (b.is_nan() && bf16s[i].is_nan()), "{isa:?} {x:e}: {}", bf16s[i]);
            assert_eq!((i32s[i], u8s[i], i64s[i]), (x as i32, x as u8, x as i64), "{isa:?} {x:e}");
        }
        let every: Vec<u16> = (0..=u16::MAX).collect();
        let wide: Vec<f32> = run(DType::F16, DType::F32, isa, &every);
        for (&h, &x) in every.iter().zip(&wide) {
            let want = f16::from_bits(h).to_f32();
            assert!(x == want || (x.is_nan() && want.is_nan()), "{isa:?} f16 {h:#x}");
        }
        let wide: Vec<f32> = run(DType::BF16, DType::F32, isa, &every);
        for (&h, &x) in every.iter().zip(&wide) {
            let want = bf16::from_bits(h).to_f32();
            assert!(x == want || (x.is_nan() && want.is_nan()), "{isa:?} bf16 {h:#x}");
        }
        let back: Vec<f32> = run(DType::I64, DType::F32, isa, &[i64::MAX, -1, 16_777_217]);
        assert_eq!(back, [i64::MAX as f32, -1.0, 16_777_216.0]);
        let wrapped: Vec<i32> = run(DType::I64, DType::I32, isa, &[i64::MAX, 1 << 32, -7]);
        assert_eq!(wrapped, [-1, 0, -7]);
    }
}
