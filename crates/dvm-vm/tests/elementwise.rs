//! Elementwise instructions against a model of one element, for every dtype, operand mode and odd size.

mod common;

use common::*;
use dvm_bc::*;
use dvm_vm::{BuildOptions, Isa};

const SHAPES: &[(usize, usize)] =
    &[(1, 0), (0, 3), (1, 1), (1, 7), (3, 7), (1, 63), (2, 64), (1, 65), (3, 130), (7, 1)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum M {
    Full,
    Row,
    Col,
    One,
    Imm,
}
const MODES: [M; 5] = [M::Full, M::Row, M::Col, M::One, M::Imm];

impl M {
    fn len(self, r: usize, c: usize) -> usize {
        match self {
            M::Full => r * c,
            M::Row => c,
            M::Col => r,
            M::One => 1,
            M::Imm => 0,
        }
    }
    fn index(self, r: usize, c: usize, cols: usize) -> usize {
        match self {
            M::Full => r * cols + c,
            M::Row => c,
            M::Col => r,
            _ => 0,
        }
    }
    fn mode(self) -> Mode {
        match self {
            M::Full => Mode::Full,
            M::Row => Mode::Row,
            M::Col => Mode::Col,
            _ => Mode::One,
        }
    }
}

/// Dtype, mode, and how to make values.
type Source = (DType, M, Box<dyn Fn(&mut Rng) -> V>);

#[allow(clippy::too_many_arguments, reason = "a case and how to judge it")]
/// Runs one instruction over sources in given modes and compares every element with the model.
fn check(
    what: &str,
    (rows, cols): (usize, usize),
    sources: &[Source],
    out: DType,
    options: &BuildOptions,
    inst: impl Fn(Local, &[Src], Size, Size) -> Inst,
    model: impl Fn(&[V]) -> V,
    tolerance: f64,
) -> Bytes {
    let mut rng = Rng(rows as u64 * 1000 + cols as u64);
    let mut locals = Locals::default();
    let (mut args, mut insts, mut srcs, mut arrays) = (vec![], vec![], vec![], vec![]);
    for (dtype, mode, make) in sources {
        if *mode == M::Imm {
            let v = make(&mut rng);
            srcs.push(Src::Imm(bits(*dtype, v)));
            arrays.push(array(*dtype, 1, |_| v));
            continue;
        }
        let len = mode.len(rows, cols);
        let local = locals.ub(len * dtype.size() as usize);
        let slot = args.len() as u16;
        args.push((Role::Input, *dtype, len));
        insts.push(load(*dtype, local, mem(slot, 0, &[]), n(1), n(len), 0));
        srcs.push(Src::Local(local, mode.mode()));
        arrays.push(array(*dtype, len, |_| make(&mut rng)));
    }
    let dst = locals.ub(rows * cols * out.size() as usize);
    insts.push(inst(dst, &srcs, n(rows), n(cols)));
    let slot = args.len() as u16;
    args.push((Role::Output, out, rows * cols));
    insts.push(store(out, mem(slot, 0, &[]), dst, n(1), n(rows * cols), 0));
    let inputs: Vec<&Bytes> =
        arrays.iter().zip(sources).filter(|(_, s)| s.1 != M::Imm).map(|(a, _)| a).collect();
    let got = run(straight(&args, &insts), options, &inputs).remove(0);
    for r in 0..rows {
        for c in 0..cols {
            let v: Vec<V> = sources
                .iter()
                .zip(&arrays)
                .map(|((dtype, mode, _), a)| read(*dtype, a.get(), mode.index(r, c, cols)))
                .collect();
            let want = stored(out, model(&v));
            let have = read(out, got.get(), r * cols + c);
            let modes: Vec<M> = sources.iter().map(|s| s.1).collect();
            assert!(
                ulps(out, have, want) <= tolerance,
                "{what} {modes:?} {rows}x{cols} at ({r}, {c}): {v:?} gives {have:?}, not {want:?}"
            );
        }
    }
    got
}

/// Both instruction-set levels, which must agree in every bit. The portable one is slow, so it computes the shapes with a
/// body and a tail only.
fn both(f: impl Fn(&BuildOptions) -> Bytes, what: &str, dtype: DType, shape: (usize, usize)) {
    if ![(3, 7), (1, 65), (7, 1)].contains(&shape) {
        f(&BuildOptions::default());
        return;
    }
    let [mut portable, mut wide] = [BuildOptions::default(), BuildOptions::default()];
    portable.isa = Isa::Portable;
    wide.isa = Isa::detect();
    let (a, b) = (f(&portable), f(&wide));
    let equal = values(dtype, &a).iter().zip(values(dtype, &b)).all(|(x, y)| same(*x, y));
    assert!(equal, "{what}: instruction-set levels differ");
}

fn any(dtype: DType) -> Box<dyn Fn(&mut Rng) -> V> {
    Box::new(move |r| r.value(dtype))
}
fn nonzero(dtype: DType) -> Box<dyn Fn(&mut Rng) -> V> {
    Box::new(move |r| {
        loop {
            let v = r.value(dtype);
            if v != V::I(0) {
                return v;
            }
        }
    })
}

/// Where a half is computed: in f32, rounded once more at the end.
fn in_f32(dtype: DType, v: f64) -> f64 {
    if dtype == DType::F64 { v } else { f64::from(v as f32) }
}

fn fmax(a: f64, b: f64, max: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        if a.is_sign_negative() == max { b } else { a }
    } else if (a > b) == max {
        a
    } else {
        b
    }
}

fn unary_model(op: Opcode, dtype: DType, v: V) -> V {
    use Opcode::*;
    if let V::I(x) = v {
        return V::I(match op {
            VCopy => x,
            VAbs => x.abs(),
            VNeg => -x,
            VSign => x.signum(),
            VNot if dtype == DType::Bool => 1 - x,
            VNot => !x,
            other => panic!("{other:?}"),
        });
    }
    let x = v.f();
    V::F(match op {
        VCopy => x,
        VAbs => x.abs(),
        VNeg => -x,
        VSign => {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else if x.is_nan() {
                x
            } else {
                0.0
            }
        }
        VSqrt => in_f32(dtype, x.sqrt()),
        VRsqrt => in_f32(dtype, 1.0 / x.sqrt()),
        VReciprocal => in_f32(dtype, 1.0 / x),
        VExp => libm::exp(x),
        VExp2 => libm::exp2(x),
        VLn => libm::log(x),
        VLog2 => libm::log2(x),
        VLog1p => libm::log1p(x),
        VExpm1 => libm::expm1(x),
        VSin => libm::sin(x),
        VCos => libm::cos(x),
        VTan => libm::tan(x),
        VTanh => libm::tanh(x),
        VErf => libm::erf(x),
        VSigmoid => 1.0 / (1.0 + libm::exp(-x)),
        VRound => x.round_ties_even(),
        VFloor => x.floor(),
        VCeil => x.ceil(),
        VTrunc => x.trunc(),
        VIsFinite => return V::I(x.is_finite().into()),
        VIsNan => return V::I(x.is_nan().into()),
        VIsInf => return V::I(x.is_infinite().into()),
        VAsin => libm::asin(x),
        VAcos => libm::acos(x),
        VAtan => libm::atan(x),
        VSinh => libm::sinh(x),
        VCosh => libm::cosh(x),
        VAsinh => libm::asinh(x),
        VAcosh => libm::acosh(x),
        VAtanh => libm::atanh(x),
        other => panic!("{other:?}"),
    })
}

#[test]
fn unary() {
    for &op in Opcode::ALL.iter().filter(|o| o.form() == Form::Unary) {
        for &dtype in DType::ALL.iter().filter(|d| op.dtypes().contains(**d)) {
            let out = if op.class() == Class::Compare { DType::Bool } else { dtype };
            let exact = matches!(op.class(), Class::Arith | Class::Compare | Class::Move);
            let tolerance = match (exact, dtype) {
                (true, _) => 0.0,
                (_, DType::F16 | DType::BF16) => 1.0,
                (_, DType::F64) => 1.0,
                _ => 2.0,
            };
            for &shape in SHAPES {
                for mode in MODES {
                    let what = format!("{} {dtype}", op.mnemonic());
                    let run = |options: &BuildOptions| {
                        check(
                            &what,
                            shape,
                            &[(dtype, mode, any(dtype))],
                            out,
                            options,
                            |dst, s, rows, cols| Inst::new(op, dtype, Unary { dst, src: s[0], rows, cols }),
                            |v| unary_model(op, dtype, v[0]),
                            tolerance,
                        )
                    };
                    both(run, &what, out, shape);
                }
            }
        }
    }
}

fn binary_model(op: Opcode, dtype: DType, a: V, b: V) -> V {
    use Opcode::*;
    let bool = |b: bool| V::I(b.into());
    if let (V::I(x), V::I(y)) = (a, b) {
        let width = i128::from(dtype.size()) * 8;
        let logic = dtype == DType::Bool;
        return V::I(match op {
            VAdd => x + y,
            VSub => x - y,
            VMul => x.wrapping_mul(y),
            VDiv => x / y,
            VFloorDiv => x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0),
            VRem => {
                let r = x % y;
                if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
            }
            VFmod => x % y,
            VPow if y < 0 => match x {
                1 => 1,
                -1 => {
                    if y % 2 == 0 {
                        1
                    } else {
                        -1
                    }
                }
                _ => 0,
            },
            VPow => {
                let (mut acc, mut base, mut e) = (1i128, x, y);
                while e > 0 {
                    if e & 1 == 1 {
                        acc = acc.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    e >>= 1;
                }
                acc
            }
            VMax => x.max(y),
            VMin => x.min(y),
            VAnd => x & y,
            VOr => x | y,
            VXor => x ^ y,
            VShl => {
                if !logic && (0..width).contains(&y) {
                    x << y
                } else {
                    0
                }
            }
            VShr => {
                if !logic && (0..width).contains(&y) {
                    x >> y
                } else {
                    0
                }
            }
            VEq => return bool(x == y),
            VNe => return bool(x != y),
            VLt => return bool(x < y),
            VLe => return bool(x <= y),
            VGt => return bool(x > y),
            VGe => return bool(x >= y),
            other => panic!("{other:?}"),
        });
    }
    let (x, y) = (a.f(), b.f());
    let (p, q) = (x as f32, y as f32);
    let wide = dtype == DType::F64;
    macro_rules! each {
        ($f:expr, $g:expr) => {
            if wide { $f } else { f64::from($g) }
        };
    }
    V::F(match op {
        VAdd => each!(x + y, p + q),
        VSub => each!(x - y, p - q),
        VMul => each!(x * y, p * q),
        VDiv => each!(x / y, p / q),
        VFmod => each!(x % y, p % q),
        VRem => {
            let m = each!(x % y, p % q);
            if m == 0.0 {
                0f64.copysign(y)
            } else if (m < 0.0) != (y < 0.0) {
                each!(m + y, m as f32 + q)
            } else {
                m
            }
        }
        VFloorDiv => {
            // NumPy's definition, in the dtype's own arithmetic.
            if y == 0.0 {
                each!(x / y, p / q)
            } else {
                let m = each!(x % y, p % q);
                let mut d = each!((x - m) / y, (p - m as f32) / q);
                if m != 0.0 && (y < 0.0) != (m < 0.0) {
                    d -= 1.0;
                }
                if d == 0.0 {
                    0f64.copysign(each!(x / y, p / q))
                } else {
                    let f = d.floor();
                    if d - f > 0.5 { f + 1.0 } else { f }
                }
            }
        }
        VPow => libm::pow(x, y),
        VMax => fmax(x, y, true),
        VMin => fmax(x, y, false),
        VEq => return bool(x == y),
        VNe => return bool(x != y),
        VLt => return bool(x < y),
        VLe => return bool(x <= y),
        VGt => return bool(x > y),
        VGe => return bool(x >= y),
        other => panic!("{other:?}"),
    })
}

#[test]
fn binary() {
    for &op in Opcode::ALL.iter().filter(|o| o.form() == Form::Binary) {
        for &dtype in DType::ALL.iter().filter(|d| op.dtypes().contains(**d)) {
            let out = if op.class() == Class::Compare { DType::Bool } else { dtype };
            let divides = matches!(op, Opcode::VDiv | Opcode::VFloorDiv | Opcode::VRem | Opcode::VFmod);
            let tolerance = match (op, dtype) {
                (Opcode::VPow, DType::F32) => 4.0,
                (Opcode::VPow, DType::F16 | DType::BF16) => 1.0,
                _ => 0.0,
            };
            for (i, &shape) in SHAPES.iter().enumerate() {
                for a in MODES {
                    for b in MODES {
                        // Every pair of modes at three shapes, the common ones at all.
                        if i > 2 && i != 4 && (a != M::Full || b == M::Col) {
                            continue;
                        }
                        let what = format!("{} {dtype}", op.mnemonic());
                        let second = || if divides { nonzero(dtype) } else { any(dtype) };
                        let run = |options: &BuildOptions| {
                            check(
                                &what,
                                shape,
                                &[(dtype, a, any(dtype)), (dtype, b, second())],
                                out,
                                options,
                                |dst, s, rows, cols| {
                                    Inst::new(op, dtype, Binary { dst, a: s[0], b: s[1], rows, cols })
                                },
                                |v| binary_model(op, dtype, v[0], v[1]),
                                tolerance,
                            )
                        };
                        both(run, &what, out, shape);
                    }
                }
            }
        }
    }
}

#[test]
fn ternary() {
    for op in [Opcode::VFma, Opcode::VSelect, Opcode::VClamp] {
        for &dtype in DType::ALL.iter().filter(|d| op.dtypes().contains(**d)) {
            let first = if op == Opcode::VSelect { DType::Bool } else { dtype };
            for &shape in &[(1, 65), (3, 7), (2, 0)] {
                for code in 0..125 {
                    let m = [MODES[code % 5], MODES[code / 5 % 5], MODES[code / 25]];
                    let what = format!("{} {dtype}", op.mnemonic());
                    let model = |v: &[V]| match (op, v) {
                        (Opcode::VSelect, [a, b, c]) => {
                            if a.i() != 0 {
                                *b
                            } else {
                                *c
                            }
                        }
                        (Opcode::VFma, [V::I(a), V::I(b), V::I(c)]) => {
                            V::I(a.wrapping_mul(*b).wrapping_add(*c))
                        }
                        (Opcode::VFma, [a, b, c]) if dtype == DType::F64 => V::F(a.f().mul_add(b.f(), c.f())),
                        (Opcode::VFma, [a, b, c]) => {
                            V::F(f64::from((a.f() as f32).mul_add(b.f() as f32, c.f() as f32)))
                        }
                        (_, [V::I(a), V::I(b), V::I(c)]) => V::I(*a.max(b).min(c)),
                        (_, v) => V::F(fmax(fmax(v[0].f(), v[1].f(), true), v[2].f(), false)),
                    };
                    let run = |options: &BuildOptions| {
                        check(
                            &what,
                            shape,
                            &[
                                (first, m[0], any(first)),
                                (dtype, m[1], any(dtype)),
                                (dtype, m[2], any(dtype)),
                            ],
                            dtype,
                            options,
                            |dst, s, rows, cols| {
                                Inst::new(op, dtype, Ternary { dst, a: s[0], b: s[1], c: s[2], rows, cols })
                            },
                            model,
                            0.0,
                        )
                    };
                    both(run, &what, dtype, shape);
                }
            }
        }
    }
}

/// Float to integer truncates and saturates, NaN gives 0; the rest is what storing does.
fn cast_model(from: DType, to: DType, v: V) -> V {
    match v {
        V::F(x) if to == DType::Bool => V::I(i128::from(x != 0.0)),
        V::F(x) if !to.is_float() => {
            let bits = to.size() * 8;
            let signed = matches!(to, DType::I8 | DType::I16 | DType::I32 | DType::I64);
            let (lo, hi) = if signed {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1i128 << bits) - 1)
            };
            V::I(if x.is_nan() { 0 } else { (x as i128).clamp(lo, hi) })
        }
        // One rounding from the exact integer: i128 to f32 directly.
        V::I(x) if to == DType::F32 => V::F(f64::from(x as f32)),
        v => {
            let _ = from;
            v
        }
    }
}

#[test]
fn cast_and_fill() {
    for &from in DType::ALL {
        for &to in DType::ALL {
            for &shape in SHAPES {
                for mode in MODES {
                    let what = format!("vcast {from} to {to}");
                    let run = |options: &BuildOptions| {
                        check(
                            &what,
                            shape,
                            &[(from, mode, any(from))],
                            to,
                            options,
                            |dst, s, rows, cols| {
                                Inst::new(Opcode::VCast, to, Cast { dst, src: s[0], from, rows, cols })
                            },
                            |v| cast_model(from, to, v[0]),
                            0.0,
                        )
                    };
                    both(run, &what, to, shape);
                }
            }
        }
        check(
            "vfill",
            (3, 7),
            &[(from, M::Imm, any(from))],
            from,
            &BuildOptions::default(),
            |dst, s, rows, cols| {
                let Src::Imm(value) = s[0] else { unreachable!() };
                Inst::new(Opcode::VFill, from, Fill { dst, value, rows, cols })
            },
            |v| v[0],
            0.0,
        );
    }
}
