//! Reductions: values, and an order that no tiling and no instruction-set level changes.

mod common;

use common::*;
use dvm_bc::*;
use dvm_vm::{BuildOptions, Isa};

fn options(isa: Isa) -> BuildOptions {
    let mut o = BuildOptions::default();
    o.isa = isa;
    o
}

/// `outer x red x inner`, reduced in one instruction.
fn plain(op: Opcode, dtype: DType, (o, r, i): (usize, usize, usize), data: &Bytes, isa: Isa) -> Bytes {
    let mut l = Locals::default();
    let size = dtype.size() as usize;
    let (src, dst) = (l.ub(o * r * i * size), l.ub(o * i * size));
    let insts = [
        load(dtype, src, mem(0, 0, &[]), n(1), n(o * r * i), 0),
        Inst::new(op, dtype, Reduce { dst, src, outer: n(o), red: n(r), inner: n(i), init: Init::Always }),
        store(dtype, mem(1, 0, &[]), dst, n(1), n(o * i), 0),
    ];
    let args = [(Role::Input, dtype, o * r * i), (Role::Output, dtype, o * i)];
    run(straight(&args, &insts), &options(isa), &[data]).remove(0)
}

fn two_sum(hi: f64, lo: f64, t: f64, round: impl Fn(f64) -> f64) -> (f64, f64) {
    let s = round(hi + t);
    let bb = round(s - hi);
    let e = round(round(hi - round(s - bb)) + round(t - bb));
    (s, if e.is_finite() { round(lo + e) } else { lo })
}

/// The order of the instruction set, spelled out; f32 steps are exact in f64 before rounding.
fn float_sum(dtype: DType, inner_is_one: bool, xs: &[f64]) -> f64 {
    let round = |x: f64| if dtype == DType::F64 { x } else { f64::from(x as f32) };
    let (mut hi, mut lo) = (0.0, 0.0);
    for block in xs.chunks(if inner_is_one { 4096 } else { 64 }) {
        let t = if inner_is_one {
            let mut lane = [0.0; 64];
            for (k, x) in block.iter().enumerate() {
                lane[k % 64] = round(lane[k % 64] + x);
            }
            let mut w = 32;
            while w > 0 {
                for k in 0..w {
                    lane[k] = round(lane[k] + lane[k + w]);
                }
                w /= 2;
            }
            lane[0]
        } else {
            block.iter().fold(0.0, |a, x| round(a + x))
        };
        (hi, lo) = two_sum(hi, lo, t, round);
    }
    round(hi + lo)
}

fn model(op: Opcode, dtype: DType, inner_is_one: bool, xs: &[V]) -> V {
    let floats = || xs.iter().map(|v| v.f());
    let ints = || xs.iter().map(|v| v.i());
    let float = dtype.is_float();
    let nan = floats().any(f64::is_nan);
    match op {
        Opcode::VSum if float => V::F(float_sum(dtype, inner_is_one, &floats().collect::<Vec<_>>())),
        Opcode::VSum => V::I(ints().fold(0, i128::wrapping_add)),
        Opcode::VProd if dtype == DType::F64 => V::F(floats().product()),
        Opcode::VProd if float => V::F(floats().fold(1.0, |a, x| f64::from((a * x) as f32))),
        Opcode::VProd => V::I(ints().fold(1, |a, x| a.wrapping_mul(x))),
        Opcode::VRedMax | Opcode::VRedMin if float && nan => V::F(f64::NAN),
        Opcode::VRedMax if float => V::F(floats().fold(f64::NEG_INFINITY, f64::max)),
        Opcode::VRedMin if float => V::F(floats().fold(f64::INFINITY, f64::min)),
        Opcode::VRedMax => V::I(ints().max().unwrap_or_else(|| least(dtype))),
        Opcode::VRedMin => V::I(ints().min().unwrap_or_else(|| greatest(dtype))),
        Opcode::VAny => V::I(ints().any(|x| x != 0).into()),
        Opcode::VAll => V::I(ints().all(|x| x != 0).into()),
        other => panic!("{other:?}"),
    }
}

fn least(dtype: DType) -> i128 {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => -(1i128 << (dtype.size() * 8 - 1)),
        _ => 0,
    }
}
fn greatest(dtype: DType) -> i128 {
    match dtype {
        DType::Bool => 1,
        d => (1i128 << (d.size() * 8)) - 1 + least(d),
    }
}

/// Equal up to the sign of a zero.
fn alike(a: V, b: V) -> bool {
    same(a, b) || (a.f() == 0.0 && b.f() == 0.0)
}

#[test]
fn values_for_every_dtype() {
    let shapes: &[(usize, usize, usize)] = &[
        (1, 0, 1),
        (0, 4, 1),
        (3, 1, 1),
        (1, 7, 1),
        (3, 63, 1),
        (1, 64, 1),
        (2, 65, 1),
        (1, 130, 1),
        (1, 5000, 1),
        (2, 0, 3),
        (1, 3, 0),
        (2, 1, 7),
        (1, 65, 3),
        (3, 130, 65),
        (1, 7, 300),
    ];
    for op in [Opcode::VSum, Opcode::VRedMax, Opcode::VRedMin, Opcode::VProd, Opcode::VAny, Opcode::VAll] {
        for &dtype in DType::ALL.iter().filter(|d| op.dtypes().contains(**d)) {
            for &(o, r, i) in shapes {
                for special in [false, true] {
                    let mut rng = Rng((o * 7 + r * 3 + i) as u64);
                    let data =
                        array(dtype, o * r * i, |_| if special { rng.value(dtype) } else { rng.tame(dtype) });
                    let [got, wide] =
                        [Isa::Portable, Isa::detect()].map(|isa| plain(op, dtype, (o, r, i), &data, isa));
                    for oo in 0..o {
                        for ii in 0..i {
                            let xs: Vec<V> =
                                (0..r).map(|rr| read(dtype, data.get(), (oo * r + rr) * i + ii)).collect();
                            let want = stored(dtype, model(op, dtype, i == 1, &xs));
                            let (a, b) =
                                (read(dtype, got.get(), oo * i + ii), read(dtype, wide.get(), oo * i + ii));
                            let what = format!("{} {dtype} {o}x{r}x{i} at {oo}, {ii}", op.mnemonic());
                            assert!(same(a, b), "{what}: levels differ, {a:?} and {b:?}");
                            assert!(alike(a, want), "{what}: {a:?}, not {want:?}");
                        }
                    }
                }
            }
        }
    }
}

/// Reduces `outer x red` or `red x inner` in pieces of a sequential walk.
fn pieces(op: Opcode, dtype: DType, (o, r, i): (usize, usize, usize), piece: usize, data: &Bytes) -> Bytes {
    let mut l = Locals::default();
    let size = dtype.size() as usize;
    let sum = op == Opcode::VSum;
    let state = if sum { layout::sum_dtype(dtype) } else { dtype };
    let plane = o * i * state.size() as usize;
    let src = l.ub(o * piece * i * size);
    // Two planes, one after the other without a gap.
    let dst = l.ub(2 * plane);
    let out = l.ub(plane);
    let k = r.div_ceil(piece);
    let red = Size::ragged(piece as u32, (r - (k - 1) * piece) as u32, 0);
    let row = (r * i * size) as i64;
    let width = Size::ragged((piece * i) as u32, red.tail * i as u32, 0);
    let body = [
        load(dtype, src, mem(0, 0, &[(0, (piece * i * size) as i64)]), n(o), width, row),
        Inst::new(op, dtype, Reduce { dst, src, outer: n(o), red, inner: n(i), init: Init::First }),
    ];
    let lo = Local { offset: dst.offset + plane as u32 / 64, ..dst };
    let finish = if sum {
        assert_eq!(plane % 64, 0, "the test places the second plane by block");
        vec![
            Inst::new(
                Opcode::VAdd,
                state,
                Binary { dst: out, a: full(dst), b: full(lo), rows: n(1), cols: n(o * i) },
            ),
            store(state, mem(1, 0, &[]), out, n(1), n(o * i), 0),
        ]
    } else {
        vec![store(state, mem(1, 0, &[]), dst, n(1), n(o * i), 0)]
    };
    let args = [(Role::Input, dtype, o * r * i), (Role::Output, state, o * i)];
    let phases = vec![phase(&[k as u32], &[(Place::Body, &body), (Place::Finish(0), &finish)])];
    run(program(&args, &[], phases), &BuildOptions::default(), &[data]).remove(0)
}

#[test]
fn pieces_give_the_bits_of_the_whole() {
    for op in [Opcode::VSum, Opcode::VRedMax, Opcode::VRedMin] {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            let mut rng = Rng(5);
            for (shape, piece_sizes) in [
                ((16, 4096 + 77, 1), vec![4096]),
                ((1, 300, 16), vec![64, 128, 192]),
                ((2, 129, 32), vec![64]),
            ] {
                let (o, r, i) = shape;
                let data = array(dtype, o * r * i, |_| rng.tame(dtype));
                for piece in piece_sizes {
                    let got = pieces(op, dtype, shape, piece, &data);
                    for oo in 0..o {
                        for ii in 0..i {
                            let xs: Vec<V> =
                                (0..r).map(|rr| read(dtype, data.get(), (oo * r + rr) * i + ii)).collect();
                            let want = stored(dtype, model(op, dtype, i == 1, &xs));
                            let have = read(dtype, got.get(), oo * i + ii);
                            assert!(alike(have, want), "{} {dtype} {shape:?} by {piece}", op.mnemonic());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn half_sums_accumulate_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let ones = array(dtype, 4096, |_| V::F(1.0));
        let got = plain(Opcode::VSum, dtype, (1, 4096, 1), &ones, Isa::detect());
        assert_eq!(read(dtype, got.get(), 0), V::F(4096.0));
        let got = plain(Opcode::VSum, dtype, (1, 2048, 2), &ones, Isa::detect());
        assert_eq!(read(dtype, got.get(), 1), V::F(2048.0));
        let mut rng = Rng(9);
        let data = array(dtype, 64 * 100, |_| rng.tame(dtype));
        let got = pieces(Opcode::VSum, dtype, (1, 100, 64), 64, &data);
        for i in 0..64 {
            let xs: Vec<V> = (0..100).map(|r| read(dtype, data.get(), r * 64 + i)).collect();
            assert_eq!(read(DType::F32, got.get(), i), model(Opcode::VSum, DType::F32, false, &xs));
        }
    }
}

#[test]
fn sums_of_infinities() {
    let inf = f32::INFINITY;
    for (xs, want) in [(vec![inf, 1.0], inf), (vec![-inf, 1.0, 2.0], -inf), (vec![f32::MAX, f32::MAX], inf)] {
        let got = plain(Opcode::VSum, DType::F32, (1, xs.len(), 1), &Bytes::of(&xs), Isa::detect());
        assert_eq!(got.to::<f32>(), [want]);
        let twice: Vec<f32> = xs.iter().flat_map(|&x| [x, x]).collect();
        let got = plain(Opcode::VSum, DType::F32, (1, xs.len(), 2), &Bytes::of(&twice), Isa::detect());
        assert_eq!(got.to::<f32>(), [want, want]);
    }
    let got = plain(Opcode::VSum, DType::F32, (1, 2, 1), &Bytes::of(&[inf, -inf]), Isa::detect());
    assert!(got.to::<f32>()[0].is_nan());
}

#[test]
fn arg_reductions() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8, DType::F64, DType::Bool] {
        for op in [Opcode::VArgMax, Opcode::VArgMin] {
            for of_last in [false, true] {
                for (o, r, i) in [(1, 1, 1), (3, 65, 1), (2, 9, 5), (1, 200, 3)] {
                    let mut rng = Rng((o + r * 5 + i * 3) as u64);
                    let data = array(dtype, o * r * i, |_| rng.value(dtype));
                    let mut l = Locals::default();
                    let src = l.ub(o * r * i * dtype.size() as usize);
                    let (index, value) = (l.ub(o * i * 8), l.ub(o * i * 8));
                    // In pieces of 4 rows for one outer, whole otherwise.
                    let piece = if o == 1 { 4.min(r) } else { r };
                    let k = r.div_ceil(piece);
                    let red = Size::ragged(piece as u32, (r - (k - 1) * piece) as u32, 0);
                    let size = dtype.size() as usize;
                    let step = (piece * i * size) as i64;
                    let width = Size::ragged((piece * i) as u32, red.tail * i as u32, 0);
                    let body = [
                        load(dtype, src, mem(0, 0, &[(0, step)]), n(o), width, (r * i * size) as i64),
                        Inst::new(
                            op,
                            dtype,
                            ArgReduce {
                                index,
                                value,
                                src,
                                outer: n(o),
                                red,
                                inner: n(i),
                                init: Init::First,
                                base: 0,
                                strides: [(0u8, piece as i64)].into_iter().collect(),
                                last: of_last,
                            },
                        ),
                    ];
                    let finish = [
                        store(DType::I64, mem(1, 0, &[]), index, n(1), n(o * i), 0),
                        store(dtype, mem(2, 0, &[]), value, n(1), n(o * i), 0),
                    ];
                    let args = [
                        (Role::Input, dtype, o * r * i),
                        (Role::Output, DType::I64, o * i),
                        (Role::Output, dtype, o * i),
                    ];
                    let phases =
                        vec![phase(&[k as u32], &[(Place::Body, &body), (Place::Finish(0), &finish)])];
                    let got = run(program(&args, &[], phases), &BuildOptions::default(), &[&data]);
                    for oo in 0..o {
                        for ii in 0..i {
                            let xs: Vec<V> =
                                (0..r).map(|rr| read(dtype, data.get(), (oo * r + rr) * i + ii)).collect();
                            let key = |v: V| match v {
                                V::F(x) if x.is_nan() => (1, 0.0),
                                v if op == Opcode::VArgMax => (0, v.f()),
                                v => (0, -v.f()),
                            };
                            let best = xs.iter().map(|&v| key(v)).fold((0, f64::NEG_INFINITY), |a, b| {
                                if b.0 > a.0 || (b.0 == a.0 && b.1 > a.1) { b } else { a }
                            });
                            let mut hits = (0..r).filter(|&rr| key(xs[rr]) == best);
                            let want = if of_last { hits.next_back() } else { hits.next() }.unwrap();
                            let k = read(DType::I64, got[0].get(), oo * i + ii);
                            assert_eq!(k, V::I(want as i128), "{} {dtype} {xs:?}", op.mnemonic());
                            assert!(same(read(dtype, got[1].get(), oo * i + ii), xs[want]));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn running_sums() {
    for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::U8] {
        for exclusive in [false, true] {
            for reverse in [false, true] {
                for (o, r, i) in [(1, 7, 1), (3, 65, 1), (2, 9, 5)] {
                    let mut rng = Rng((o + r + i) as u64);
                    let data = array(dtype, o * r * i, |_| rng.tame(dtype));
                    let mut l = Locals::default();
                    let size = dtype.size() as usize;
                    let (src, dst, carry) = (l.ub(o * r * i * size), l.ub(o * r * i * size), l.ub(o * i * 8));
                    let insts = [
                        load(dtype, src, mem(0, 0, &[]), n(1), n(o * r * i), 0),
                        Inst::new(
                            Opcode::VCumSum,
                            dtype,
                            CumSum {
                                dst,
                                carry,
                                src,
                                outer: n(o),
                                red: n(r),
                                inner: n(i),
                                init: Init::Always,
                                exclusive,
                                reverse,
                            },
                        ),
                        store(dtype, mem(1, 0, &[]), dst, n(1), n(o * r * i), 0),
                    ];
                    let args = [(Role::Input, dtype, o * r * i), (Role::Output, dtype, o * r * i)];
                    let got = run(straight(&args, &insts), &BuildOptions::default(), &[&data]).remove(0);
                    let round = |x: f64| if dtype == DType::F64 { x } else { f64::from(x as f32) };
                    for oo in 0..o {
                        for ii in 0..i {
                            let (mut f, mut s) = (0.0, 0i128);
                            for k in 0..r {
                                let rr = if reverse { r - 1 - k } else { k };
                                let at = (oo * r + rr) * i + ii;
                                let v = read(dtype, data.get(), at);
                                let before = if dtype.is_float() { V::F(f) } else { V::I(s) };
                                f = round(f + v.f());
                                s += if dtype.is_float() { 0 } else { v.i() };
                                let after = if dtype.is_float() { V::F(f) } else { V::I(s) };
                                let want = stored(dtype, if exclusive { before } else { after });
                                assert!(same(read(dtype, got.get(), at), want), "{dtype} {o}x{r}x{i}");
                            }
                        }
                    }
                }
            }
        }
    }
}
