//! Matrix products: packing, panels, ragged tiles, epilogues.

mod common;

use std::sync::Arc;

use common::*;
use dvm_bc::layout::{Matrices, pack_panels};
use dvm_bc::*;
use dvm_vm::{BuildOptions, Isa, Pool, Runtime};

const F32: DType = DType::F32;

#[test]
fn matrix_products() {
    for (m, nn, k, piece) in [(1, 1, 1, 1), (7, 17, 5, 5), (13, 33, 40, 16), (64, 48, 100, 64)] {
        for (dtype, acc) in [(F32, F32), (DType::F16, F32), (DType::F64, DType::F64), (DType::I8, DType::I32)]
        {
            for transposed in [false, true] {
                let s = i64::from(dtype.size());
                let mut rng = Rng(m as u64);
                let mut small = |_| {
                    let v = rng.below(17) as i128 - 8;
                    stored(dtype, V::I(v))
                };
                let a = array(dtype, m * k, &mut small);
                let b = array(dtype, k * nn, &mut small);
                let pieces = k.div_ceil(piece);
                let kk = match pieces {
                    0 => n(piece),
                    p => Size::ragged(piece as u32, (k - (p - 1) * piece) as u32, 0),
                };
                let mut l = Locals::default();
                let room = |x: usize, w: usize| x.next_multiple_of(w) * piece * 8;
                let (pa, pb) = (l.take(Space::PanelA, room(m, 6)), l.take(Space::PanelB, room(nn, 16)));
                let (c, t) = (l.take(Space::Acc, m * nn * 8), l.ub(m * nn * 8));
                let p = piece as i64;
                // a is m x k or stored k x m; the same for b.
                let (ar, ac) = if transposed { (s, m as i64 * s) } else { (k as i64 * s, s) };
                let (br, bc) = if transposed { (s, k as i64 * s) } else { (nn as i64 * s, s) };
                let hints = Hints::default();
                let body = [
                    Inst::new(
                        Opcode::LoadA,
                        dtype,
                        LoadA {
                            dst: pa,
                            src: mem(0, 0, &[(0, p * ac)]),
                            m: n(m),
                            k: kk,
                            row_stride: ar,
                            col_stride: ac,
                            hints,
                        },
                    ),
                    Inst::new(
                        Opcode::LoadB,
                        dtype,
                        LoadB {
                            dst: pb,
                            src: mem(1, 0, &[(0, p * br)]),
                            k: kk,
                            n: n(nn),
                            row_stride: br,
                            col_stride: bc,
                            hints,
                        },
                    ),
                    Inst::new(
                        Opcode::Mmad,
                        dtype,
                        Mmad { acc: c, a: pa, b: pb, m: n(m), n: n(nn), k: kk, init: Init::First },
                    ),
                ];
                let finish = [
                    Inst::new(Opcode::AccToUb, F32, AccToUb { dst: t, acc: c, from: acc, m: n(m), n: n(nn) }),
                    store(F32, mem(2, 0, &[]), t, n(1), n(m * nn), 0),
                ];
                let args =
                    [(Role::Input, dtype, m * k), (Role::Input, dtype, k * nn), (Role::Output, F32, m * nn)];
                let phases =
                    vec![phase(&[pieces as u32], &[(Place::Body, &body), (Place::Finish(0), &finish)])];
                for (elide, isa) in [(false, Isa::Portable), (true, Isa::detect())] {
                    let mut options = BuildOptions::default();
                    (options.elide, options.isa) = (elide, isa);
                    let got = run(program(&args, &[], phases.clone()), &options, &[&a, &b]).remove(0);
                    for i in 0..m {
                        for j in 0..nn {
                            let want: f64 = (0..k)
                                .map(|q| {
                                    let at = if transposed { q * m + i } else { i * k + q };
                                    let bt = if transposed { j * k + q } else { q * nn + j };
                                    read(dtype, a.get(), at).f() * read(dtype, b.get(), bt).f()
                                })
                                .sum();
                            let have = read(F32, got.get(), i * nn + j).f();
                            assert_eq!(have, want, "{dtype} {m}x{nn}x{k} at {i}, {j}");
                        }
                    }
                }
            }
        }
    }
}

/// `relu(a * b + bias)` for a batch, in tiles of 24 x 32 with steps of 40, b from memory or from panels.
fn tiled(
    dtype: DType,
    (batch, m, nn, k): (usize, usize, usize, usize),
    panels: bool,
    sticky: bool,
) -> Program {
    let s = i64::from(dtype.size());
    let (tm, tn, tk) = (24usize, 32usize, 40usize);
    let ragged = |total: usize, tile: usize, e: u8| {
        let parts = total.div_ceil(tile);
        let tile = tile.min(total);
        (parts as u32, Size::ragged(tile as u32, (total - (parts - 1) * tile.max(1)) as u32, e))
    };
    let ((gm, rm), (gn, rn), (gk, rk)) = (ragged(m, tm, 1), ragged(nn, tn, 2), ragged(k, tk, 3));
    let (km, kn, kk) = (rm.body as i64, rn.body as i64, rk.body as i64);
    let mut l = Locals::default();
    let room = |lines: i64, width: i64| (lines as usize).next_multiple_of(width as usize) * kk as usize * 8;
    let (pa, pb) = (l.take(Space::PanelA, room(km, 6)), l.take(Space::PanelB, room(kn, 16)));
    let tile = (km * kn) as usize * 8;
    let (c, t, u, bias) = (l.take(Space::Acc, tile), l.ub(tile), l.ub(tile), l.ub(kn as usize * 8));
    let (mw, nw, kw) = (m as i64, nn as i64, k as i64);
    let hints = Hints { sticky, stream: false };
    let strides = |all: &[(u8, i64)]| all.iter().copied().filter(|x| x.1 != 0).collect::<Strides>();
    let a = Mem { slot: 0, offset: 0, strides: strides(&[(0, mw * kw * s), (1, km * kw * s), (3, kk * s)]) };
    let load_a =
        LoadA { dst: pa, src: a, m: rm, k: rk, row_stride: kw * s, col_stride: s, hints: Hints::default() };
    let b = if panels {
        // Panels of 16 columns, k rows each.
        let width = nn.next_multiple_of(16) as i64;
        let src = Mem {
            slot: 1,
            offset: 0,
            strides: strides(&[(0, width * kw * s), (2, kn * kw * s), (3, kk * 16 * s)]),
        };
        Inst::new(Opcode::BindB, dtype, BindB { dst: pb, src, k: rk, n: rn, panel_stride: 16 * kw * s })
    } else {
        let src =
            Mem { slot: 1, offset: 0, strides: strides(&[(0, kw * nw * s), (2, kn * s), (3, kk * nw * s)]) };
        let load = LoadB { dst: pb, src, k: rk, n: rn, row_stride: nw * s, col_stride: s, hints };
        Inst::new(Opcode::LoadB, dtype, load)
    };
    let acc = layout::acc_dtype(dtype).unwrap();
    let body = [
        Inst::new(Opcode::LoadA, dtype, load_a),
        b,
        Inst::new(Opcode::Mmad, dtype, Mmad { acc: c, a: pa, b: pb, m: rm, n: rn, k: rk, init: Init::First }),
    ];
    let zero = Src::Imm(0);
    let out =
        Mem { slot: 3, offset: 0, strides: strides(&[(0, mw * nw * 4), (1, km * nw * 4), (2, kn * 4)]) };
    let finish = [
        Inst::new(Opcode::AccToUb, F32, AccToUb { dst: t, acc: c, from: acc, m: rm, n: rn }),
        load(F32, bias, Mem { slot: 2, offset: 0, strides: strides(&[(2, kn * 4)]) }, n(1), rn, 0),
        Inst::new(
            Opcode::VAdd,
            F32,
            Binary { dst: u, a: full(t), b: Src::Local(bias, Mode::Row), rows: rm, cols: rn },
        ),
        Inst::new(Opcode::VMax, F32, Binary { dst: u, a: full(u), b: zero, rows: rm, cols: rn }),
        store(F32, out, u, rm, rn, nw * 4),
    ];
    let args = [
        (Role::Input, dtype, batch * m * k),
        (Role::Weight, dtype, batch * k * if panels { nn.next_multiple_of(16) } else { nn }),
        (Role::Input, F32, nn),
        (Role::Output, F32, batch * m * nn),
    ];
    let phases = vec![phase(&[gk], &[(Place::Body, &body), (Place::Finish(0), &finish)])];
    let mut p = program(&args, &[batch as u32, gm, gn], phases);
    if panels {
        p.args[1].layout = Layout::Panels { nr: 16, k: k as u64, n: nn as u64, batch: batch as u64 };
    }
    p
}

#[test]
fn tiles_with_epilogue() {
    let rt = Runtime::new(Arc::new(Pool::new(2)));
    for shape in [(1, 24, 32, 40), (2, 25, 33, 41), (1, 7, 100, 85), (3, 50, 16, 40), (2, 1, 70, 130)] {
        let (batch, m, nn, k) = shape;
        for dtype in [F32, DType::F16, DType::BF16, DType::I8] {
            let mut rng = Rng(k as u64);
            let mut small = |_| V::I(rng.below(9) as i128 - 4);
            let a = array(dtype, batch * m * k, &mut small);
            let b = array(dtype, batch * k * nn, &mut small);
            let bias = array(F32, nn, &mut small);
            let matrices = Matrices {
                batch: batch as u64,
                k: k as u64,
                n: nn as u64,
                offset: 0,
                batch_stride: (k * nn) as i64,
                row_stride: nn as i64,
                col_stride: 1,
            };
            let packed = Bytes::of(&pack_panels(b.get(), dtype.size(), &matrices, 16).unwrap());
            for (panels, sticky) in [(false, false), (false, true), (true, false)] {
                // Sticky needs a buffer that stands still between tiles: one step of k.
                if sticky && k > 40 {
                    continue;
                }
                for isa in [Isa::Portable, Isa::detect()] {
                    let mut options = BuildOptions::default();
                    options.isa = isa;
                    let exe = build(tiled(dtype, shape, panels, sticky), &options);
                    let b = if panels { &packed } else { &b };
                    let (out, _) = launch(&rt, &exe, &[&a, b, &bias]).unwrap();
                    for q in 0..batch {
                        for i in 0..m {
                            for j in 0..nn {
                                let dot: f64 = (0..k)
                                    .map(|x| {
                                        let l = read(dtype, a.get(), (q * m + i) * k + x).f();
                                        let at = (q * k + x) * nn + j;
                                        let r = if panels {
                                            let wide = nn.next_multiple_of(16);
                                            read(
                                                dtype,
                                                b.get(),
                                                (q * wide + j / 16 * 16) * k + x * 16 + j % 16,
                                            )
                                            .f()
                                        } else {
                                            read(dtype, b.get(), at).f()
                                        };
                                        l * r
                                    })
                                    .sum();
                                let want = (dot + read(F32, bias.get(), j).f()).max(0.0);
                                let have = read(F32, out[0].get(), (q * m + i) * nn + j).f();
                                assert_eq!(have, want, "{dtype} {shape:?} panels {panels} at {q}, {i}, {j}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The left operand is computed: packed from some columns of a tile, and multiplied where it is only if nobody writes there before.
#[test]
fn left_operand_in_vector_memory() {
    for (m, nn, k, wide) in [(1, 1, 1, 1), (7, 17, 5, 9), (13, 20, 40, 40), (6, 16, 600, 600)] {
        for (dtype, acc) in
            [(F32, F32), (DType::F16, F32), (DType::F64, DType::F64), (DType::I16, DType::I32)]
        {
            for (overwritten, twice) in [(false, false), (true, false), (false, true)] {
                let s = i64::from(dtype.size());
                let mut rng = Rng((m + k) as u64);
                let mut small = |_| stored(dtype, V::I(rng.below(9) as i128 - 4));
                let a = array(dtype, m * wide, &mut small);
                let b = array(dtype, k * nn, &mut small);
                let mut l = Locals::default();
                let room = |x: usize, w: usize| x.next_multiple_of(w) * k * 8;
                let (pa, pb) = (l.take(Space::PanelA, room(m, 6)), l.take(Space::PanelB, room(nn, 16)));
                let (x, y) = (l.ub(m * wide * 8), l.ub(m * wide * 8));
                let (c, t) = (l.take(Space::Acc, m * nn * 8), l.ub(m * nn * 8));
                let hints = Hints::default();
                let (rows, cols, row) = (n(m), n(wide), nn as i64 * s);
                let mut body = vec![
                    load(dtype, x, mem(0, 0, &[]), rows, cols, wide as i64 * s),
                    Inst::new(Opcode::VAdd, dtype, Binary { dst: y, a: full(x), b: full(x), rows, cols }),
                    Inst::new(
                        Opcode::PackA,
                        dtype,
                        PackA { dst: pa, src: y, m: rows, k: n(k), pitch: wide as u64 },
                    ),
                    Inst::new(
                        Opcode::LoadB,
                        dtype,
                        LoadB {
                            dst: pb,
                            src: mem(1, 0, &[]),
                            k: n(k),
                            n: n(nn),
                            row_stride: row,
                            col_stride: s,
                            hints,
                        },
                    ),
                ];
                let mut product = |init| {
                    let o = Mmad { acc: c, a: pa, b: pb, m: rows, n: n(nn), k: n(k), init };
                    body.push(Inst::new(Opcode::Mmad, dtype, o));
                    if overwritten || twice {
                        body.push(Inst::new(
                            Opcode::VCopy,
                            dtype,
                            Unary { dst: y, src: full(x), rows, cols },
                        ));
                    }
                };
                product(Init::Always);
                if twice {
                    product(Init::Accumulate);
                }
                if overwritten {
                    // Behind the packing, before the product.
                    body.swap(4, 5);
                }
                body.push(Inst::new(
                    Opcode::AccToUb,
                    F32,
                    AccToUb { dst: t, acc: c, from: acc, m: rows, n: n(nn) },
                ));
                body.push(store(F32, mem(2, 0, &[]), t, n(1), n(m * nn), 0));
                let args = [
                    (Role::Input, dtype, m * wide),
                    (Role::Input, dtype, k * nn),
                    (Role::Output, F32, m * nn),
                ];
                let phases = vec![phase(&[], &[(Place::Body, &body)])];
                for (elide, isa) in [(false, Isa::Portable), (true, Isa::detect())] {
                    let mut options = BuildOptions::default();
                    (options.elide, options.isa) = (elide, isa);
                    let got = run(program(&args, &[], phases.clone()), &options, &[&a, &b]).remove(0);
                    for (i, j) in (0..m).flat_map(|i| (0..nn).map(move |j| (i, j))) {
                        let one: f64 = (0..k)
                            .map(|q| {
                                read(dtype, a.get(), i * wide + q).f() * read(dtype, b.get(), q * nn + j).f()
                            })
                            .sum();
                        let want = one * if twice { 4.0 } else { 2.0 };
                        let have = read(F32, got.get(), i * nn + j).f();
                        assert_eq!(have, want, "{dtype} {m}x{nn}x{k} {overwritten} {twice} at {i}, {j}");
                    }
                }
            }
        }
    }
}
