//! Scatter, compress, shapes, padding, sorting, accumulator stores and rings against the reference interpreter, for every dtype,
//! with ragged and empty tiles.

mod common;

use std::sync::Arc;

use common::*;
use dvm_bc::reference::{self, Fault};
use dvm_bc::*;
use dvm_vm::scalar::VmMath;
use dvm_vm::{ArgRef, BuildOptions, Isa, LaunchError, Pool, Runtime, TrapKind};

/// Runs on the machine, in every way it has, and on the reference; they agree on every element or on the trap.
fn agree(p: &Program, inputs: &[Bytes]) -> Result<Vec<Vec<u8>>, TrapKind> {
    let mut given = inputs.iter();
    let fill = |a: &Arg| match a.role {
        Role::Input | Role::Weight => given.next().unwrap().get().to_vec(),
        // What nobody writes stays as it was.
        _ => vec![0x11; a.bytes as usize],
    };
    let start: Vec<Vec<u8>> = p.args.iter().map(fill).collect();
    let mut want = start.clone();
    let expected = reference::run(p, &mut want, &VmMath);
    for (workers, elide, isa) in
        [(1, true, Isa::detect()), (2, false, Isa::detect()), (2, true, Isa::Portable)]
    {
        let mut options = BuildOptions::default();
        (options.elide, options.strips, options.isa) = (elide, elide, isa);
        let exe = build(p.clone(), &options);
        let mut bufs: Vec<Bytes> = start.iter().map(|b| Bytes::of::<u8>(b)).collect();
        let mut refs: Vec<ArgRef<'_>> = bufs
            .iter_mut()
            .zip(&p.args)
            .map(|(b, a)| match a.role {
                Role::Input | Role::Weight => ArgRef::In(b.get()),
                Role::Ring => ArgRef::Ring,
                _ => ArgRef::Out(b.get_mut()),
            })
            .collect();
        let rt = Runtime::new(Arc::new(Pool::new(workers)));
        let got = rt.launch(&exe, &mut refs);
        drop(refs);
        match (&expected, got) {
            (Ok(()), Ok(_)) => {
                for ((a, b), w) in p.args.iter().zip(&bufs).zip(&want) {
                    for i in 0..w.len() / a.dtype.size() as usize {
                        let (x, y) = (read(a.dtype, b.get(), i), read(a.dtype, w, i));
                        let at = || format!("{} element {i}: {x:?}, not {y:?}\n{}", a.name, disasm(p));
                        assert!(a.role == Role::Ring || same(x, y), "{}", at());
                    }
                }
            }
            (Err(f), Err(LaunchError::Trap(t))) => {
                let Fault::Trap { kind, element, value } = f.fault else { panic!("{f}") };
                assert_eq!(
                    (f.step, f.unit, f.tile, f.instruction, kind, element, value),
                    (t.step, t.unit, t.tile, t.instruction, t.kind, t.element, t.value)
                );
            }
            (want, got) => panic!("reference {want:?}, machine {got:?}\n{}", disasm(p)),
        }
    }
    #[cfg(all(unix, feature = "testing"))]
    if expected.is_ok() {
        guarded(p, &start, &want);
    }
    match expected {
        Ok(()) => Ok(want),
        Err(f) => match f.fault {
            Fault::Trap { kind, .. } => Err(kind),
            other => panic!("{other}"),
        },
    }
}

/// Runs between pages that fault, with two fillings of local memory.
#[cfg(all(unix, feature = "testing"))]
fn guarded(p: &Program, start: &[Vec<u8>], want: &[Vec<u8>]) {
    use dvm_vm::testing::{Edge, GuardedArgs};
    let rt = Runtime::new(Arc::new(Pool::new(1))).eager();
    for (edge, poison) in [(Edge::Start, 0), (Edge::End, 0xff)] {
        let mut options = BuildOptions::default();
        options.poison = Some(poison);
        let exe = build(p.clone(), &options);
        let mut args = GuardedArgs::new(p, edge).unwrap();
        let owned = |i: &usize| p.args[*i].role != Role::Ring;
        (0..start.len()).filter(owned).for_each(|i| args.bytes_mut(i).copy_from_slice(&start[i]));
        args.launch(&rt, &exe).unwrap();
        for i in (0..start.len()).filter(owned) {
            let dtype = p.args[i].dtype;
            let alike = |k| same(read(dtype, args.bytes(i), k), read(dtype, &want[i], k));
            assert!((0..want[i].len() / dtype.size() as usize).all(alike), "argument {i}\n{}", disasm(p));
        }
    }
}

fn inst(op: Opcode, dtype: DType, operands: impl Into<Operands>) -> Inst {
    Inst::new(op, dtype, operands)
}

fn any(rng: &mut Rng, dtype: DType, n: usize) -> Bytes {
    array(dtype, n, |_| rng.value(dtype))
}

/// (rows, last rows, tiles, columns): ordinary, ragged, single and empty.
const SHAPES: &[(usize, usize, usize, usize)] =
    &[(3, 3, 1, 5), (4, 1, 3, 7), (1, 1, 2, 1), (2, 2, 1, 0), (0, 0, 1, 4), (5, 0, 2, 3), (2, 1, 2, 70)];

/// Tiles of rows: loads input 0, does something to it, stores `results` dense tiles of `(dtype, columns)`.
struct Tiled {
    rows: Size,
    tiles: usize,
    total: usize,
}

impl Tiled {
    fn new((body, tail, tiles, _): (usize, usize, usize, usize)) -> Tiled {
        let rows = Size::ragged(body as u32, tail as u32, 0);
        Tiled { rows, tiles, total: (tiles - 1) * body + tail }
    }

    fn io(&self, slot: u16, dtype: DType, local: Local, cols: usize, write: bool) -> Inst {
        let bytes = (cols * dtype.size() as usize) as i64;
        let at = if self.tiles > 1 && bytes > 0 && self.rows.body > 0 {
            mem(slot, 0, &[(0, bytes * i64::from(self.rows.body))])
        } else {
            mem(slot, 0, &[])
        };
        if write {
            store(dtype, at, local, self.rows, n(cols), bytes)
        } else {
            load(dtype, local, at, self.rows, n(cols), bytes)
        }
    }

    fn program(&self, args: &[(Role, DType, usize)], insts: &[Inst]) -> Program {
        let args: Vec<_> = args.iter().map(|&(r, d, cols)| (r, d, cols * self.total)).collect();
        program(&args, &[self.tiles as u32], vec![phase(&[], &[(Place::Body, insts)])])
    }

    fn fits(&self, p: &Program) -> bool {
        Verified::new(p.clone(), &Limits::default()).is_ok()
    }
}

#[test]
fn shapes_and_padding() {
    let mut rng = Rng(1);
    for &dtype in DType::ALL {
        let size = dtype.size() as usize;
        let (mut ran, mut all) = (0, 0);
        for &shape in SHAPES {
            let (cols, t) = (shape.3, Tiled::new(shape));
            let (body, rows) = (shape.0, t.rows);
            let mut l = Locals::default();
            let [x, y] = [l.ub(1 << 14), l.ub(1 << 14)];
            let wide = cols + 3;
            let cases: Vec<(usize, usize, Vec<Inst>)> = vec![
                (
                    1,
                    cols,
                    vec![inst(Opcode::VBroadcastX, dtype, Shape { dst: y, src: x, rows, cols: n(cols) })],
                ),
                (
                    wide,
                    cols,
                    vec![inst(
                        Opcode::VRemovePad,
                        dtype,
                        RemovePad { dst: y, src: x, rows, cols: n(cols), pitch: wide as u64 },
                    )],
                ),
                (
                    wide,
                    wide,
                    vec![
                        inst(Opcode::VCopy, dtype, Unary { dst: y, src: full(x), rows, cols: n(wide) }),
                        inst(
                            Opcode::VClearPad,
                            dtype,
                            ClearPad {
                                dst: y,
                                value: bits(dtype, V::I(1)),
                                rows,
                                cols: n(cols),
                                pitch: wide as u64,
                            },
                        ),
                    ],
                ),
            ];
            for (from, to, make) in cases {
                let mut insts = vec![t.io(0, dtype, x, from, false)];
                insts.extend(make);
                insts.push(t.io(1, dtype, y, to, true));
                let p = t.program(&[(Role::Input, dtype, from), (Role::Output, dtype, to)], &insts);
                all += 1;
                if t.fits(&p) {
                    ran += 1;
                    agree(&p, &[any(&mut rng, dtype, from * t.total)]).unwrap();
                }
            }
            // A row for all rows, and a transposed tile: the source is the same for each tile.
            for (op, len) in [(Opcode::VBroadcastY, cols), (Opcode::VTranspose, cols * body)] {
                let insts = [
                    load(dtype, x, mem(0, 0, &[]), n(1), n(len), 0),
                    inst(op, dtype, Shape { dst: y, src: x, rows, cols: n(cols) }),
                    t.io(1, dtype, y, cols, true),
                ];
                let mut p = t.program(&[(Role::Input, dtype, 0), (Role::Output, dtype, cols)], &insts);
                p.args[0].bytes = (len * size) as u64;
                all += 1;
                if t.fits(&p) {
                    ran += 1;
                    agree(&p, &[any(&mut rng, dtype, len)]).unwrap();
                }
            }
        }
        assert!(2 * ran > all, "{dtype}: {ran} of {all} verify");
    }
}

#[test]
fn ragged_columns_are_cleared() {
    // The last tile of columns is narrower; what is right of it becomes 7.
    let dtype = DType::I32;
    let cols = Size::ragged(8, 3, 0);
    let mut l = Locals::default();
    let x = l.ub(1 << 10);
    let insts = [
        load(dtype, x, mem(0, 0, &[(0, 32)]), n(2), cols, 44),
        inst(Opcode::VClearPad, dtype, ClearPad { dst: x, value: 7, rows: n(2), cols, pitch: 8 }),
        store(dtype, mem(1, 0, &[(0, 64)]), x, n(2), n(8), 32),
    ];
    let args = [(Role::Input, dtype, 22), (Role::Output, dtype, 32)];
    let p = program(&args, &[2], vec![phase(&[], &[(Place::Body, &insts)])]);
    let out = agree(&p, &[array(dtype, 22, |i| V::I(100 + i as i128))]).unwrap();
    let second: Vec<i128> = (16..32).map(|i| read(dtype, &out[1], i).i()).collect();
    assert_eq!(second, [108, 109, 110, 7, 7, 7, 7, 7, 119, 120, 121, 7, 7, 7, 7, 7]);
}

#[test]
fn sorting_keeps_equal_keys_in_order() {
    let mut rng = Rng(2);
    for &dtype in DType::ALL {
        let mut ran = 0;
        for &shape in SHAPES {
            for descending in [false, true] {
                let (cols, t) = (shape.3, Tiled::new(shape));
                let mut l = Locals::default();
                let [key, value] = [l.ub(1 << 14), l.ub(1 << 14)];
                let insts = [
                    t.io(0, dtype, key, cols, false),
                    t.io(1, DType::I64, value, cols, false),
                    inst(
                        Opcode::VSortKv,
                        dtype,
                        SortKv { key, value, rows: t.rows, cols: n(cols), descending },
                    ),
                    t.io(2, dtype, key, cols, true),
                    t.io(3, DType::I64, value, cols, true),
                ];
                let i64s = DType::I64;
                let args = [
                    (Role::Input, dtype, cols),
                    (Role::Input, i64s, cols),
                    (Role::Output, dtype, cols),
                    (Role::Output, i64s, cols),
                ];
                let p = t.program(&args, &insts);
                if t.fits(&p) {
                    ran += 1;
                    let elements = cols * t.total;
                    let values = array(i64s, elements, |i| V::I(i as i128));
                    agree(&p, &[any(&mut rng, dtype, elements), values]).unwrap();
                }
            }
        }
        assert!(ran >= 8, "{dtype}: {ran} verify");
    }
}

/// Indices of both signs, some twice.
fn indices(rng: &mut Rng, dtype: DType, n: usize, limit: usize) -> Bytes {
    array(dtype, n, |_| V::I(rng.below(2 * limit) as i128 - limit as i128))
}

#[test]
fn scatters_let_the_last_of_equals_win() {
    let mut rng = Rng(3);
    for &dtype in DType::ALL {
        for (rows, cols, limit) in [(4, 3, 6), (9, 1, 4), (1, 17, 1), (0, 3, 2), (3, 0, 2)] {
            for wide in [DType::I32, DType::I64] {
                let size = i64::from(dtype.size());
                let mut l = Locals::default();
                let [x, ix] = [l.ub(1 << 10), l.ub(1 << 10)];
                let rows_op = inst(
                    Opcode::ScatterStore,
                    dtype,
                    ScatterStore {
                        dst: mem(2, 0, &[]),
                        src: x,
                        index: ix,
                        rows: n(rows),
                        cols: n(cols),
                        stride: size * cols as i64,
                        limit: limit as u64,
                        index_dtype: wide,
                    },
                );
                // Element (r, c) to column c of row index[r, c].
                let elems_op = inst(
                    Opcode::ScatterElems,
                    dtype,
                    ScatterElems {
                        dst: mem(2, 0, &[]),
                        src: x,
                        index: ix,
                        rows: n(rows),
                        cols: n(cols),
                        stride: size * cols as i64,
                        row_stride: 0,
                        col_stride: size,
                        limit: limit as u64,
                        index_dtype: wide,
                    },
                );
                for (op, count) in [(rows_op, rows), (elems_op, rows * cols)] {
                    let args = [
                        (Role::Input, dtype, rows * cols),
                        (Role::Input, wide, count),
                        (Role::Output, dtype, limit * cols),
                    ];
                    let insts = [
                        load(dtype, x, mem(0, 0, &[]), n(1), n(rows * cols), 0),
                        load(wide, ix, mem(1, 0, &[]), n(1), n(count), 0),
                        op,
                    ];
                    let p = straight(&args, &insts);
                    let x = any(&mut rng, dtype, rows * cols);
                    agree(&p, &[x.clone(), indices(&mut rng, wide, count, limit)]).unwrap();
                    for wrong in [limit as i128, -(limit as i128) - 1] {
                        let bad = array(wide, count, |i| V::I(if i + 1 == count { wrong } else { 0 }));
                        let trap = agree(&p, &[x.clone(), bad]);
                        let expected = TrapKind::IndexOutOfRange { limit: limit as u64 };
                        assert_eq!(trap.err(), (rows * cols > 0 || count > 0).then_some(expected));
                    }
                }
            }
        }
    }
}

#[test]
fn compression_counts_over_a_walk() {
    let mut rng = Rng(4);
    for &dtype in DType::ALL {
        // Two pieces of 5 and 2 rows; the limit is enough, or is not.
        for (cols, limit, traps) in [(3, 7, false), (1, 7, false), (2, 2, true)] {
            let size = i64::from(dtype.size());
            let mut l = Locals::default();
            let [x, mask, count] = [l.ub(1 << 10), l.ub(64), l.ub(64)];
            let rows = Size::ragged(5, 2, 0);
            let body = [
                load(dtype, x, mem(0, 0, &[(0, 5 * size * cols)]), rows, n(cols as usize), size * cols),
                load(DType::Bool, mask, mem(1, 0, &[(0, 5)]), n(1), rows, 0),
                inst(
                    Opcode::CompressStore,
                    dtype,
                    CompressStore {
                        dst: mem(2, 0, &[]),
                        src: x,
                        mask,
                        count,
                        rows,
                        cols: n(cols as usize),
                        stride: size * cols,
                        limit,
                        init: Init::First,
                    },
                ),
            ];
            let finish = [store(DType::I64, mem(3, 0, &[]), count, n(1), n(1), 0)];
            let args = [
                (Role::Input, dtype, 7 * cols as usize),
                (Role::Input, DType::Bool, 7),
                (Role::Output, dtype, limit as usize * cols as usize),
                (Role::Output, DType::I64, 1),
            ];
            let sections: [(Place, &[Inst]); 2] = [(Place::Body, &body), (Place::Finish(0), &finish)];
            let p = program(&args, &[], vec![phase(&[2], &sections)]);
            let picked = [true, false, true, true, false, false, true];
            let mask = array(DType::Bool, 7, |i| V::I(i128::from(picked[i])));
            let out = agree(&p, &[any(&mut rng, dtype, 7 * cols as usize), mask]);
            match out {
                Ok(out) => assert!(!traps && read(DType::I64, &out[3], 0) == V::I(4)),
                Err(kind) => assert!(traps && kind == TrapKind::IndexOutOfRange { limit: 2 }),
            }
        }
    }
    // A count that an instruction has made negative traps.
    let mut l = Locals::default();
    let [x, mask, count] = [l.ub(64), l.ub(64), l.ub(64)];
    let fill = |dtype, dst, value| inst(Opcode::VFill, dtype, Fill { dst, value, rows: n(1), cols: n(1) });
    let insts = [
        fill(DType::F32, x, 0),
        fill(DType::Bool, mask, 1),
        fill(DType::I64, count, u64::MAX),
        inst(
            Opcode::CompressStore,
            DType::F32,
            CompressStore {
                dst: mem(0, 0, &[]),
                src: x,
                mask,
                count,
                rows: n(1),
                cols: n(1),
                stride: 4,
                limit: 3,
                init: Init::Accumulate,
            },
        ),
    ];
    let p = straight(&[(Role::Output, DType::F32, 3)], &insts);
    assert_eq!(agree(&p, &[]).err(), Some(TrapKind::IndexOutOfRange { limit: 3 }));
}

/// A product whose accumulator goes to an argument (through a ring if `ring`), for every input dtype.
fn product(dtype: DType, into: DType, relu: bool, ring: bool) -> Program {
    let (m, k, n_) = (Size::ragged(4, 3, 0), 5usize, 19usize);
    let size = i64::from(dtype.size());
    let acc_dtype = layout::acc_dtype(dtype).unwrap();
    let mut l = Locals::default();
    let (a, b) = (l.take(Space::PanelA, 1 << 12), l.take(Space::PanelB, 1 << 12));
    let (acc, ub) = (l.take(Space::Acc, 1 << 12), l.ub(1 << 12));
    let hints = Hints::default();
    let pitch = i64::from(into.size()) * n_ as i64;
    let out = mem(2, 0, &[(0, 4 * pitch)]);
    let mut insts = vec![
        inst(
            Opcode::LoadA,
            dtype,
            LoadA {
                dst: a,
                src: mem(0, 0, &[(0, 4 * size * k as i64)]),
                m,
                k: n(k),
                row_stride: size * k as i64,
                col_stride: size,
                hints,
            },
        ),
        inst(
            Opcode::LoadB,
            dtype,
            LoadB {
                dst: b,
                src: mem(1, 0, &[]),
                k: n(k),
                n: n(n_),
                row_stride: size * n_ as i64,
                col_stride: size,
                hints,
            },
        ),
        inst(Opcode::Mmad, dtype, Mmad { acc, a, b, m, n: n(n_), k: n(k), init: Init::Always }),
    ];
    let to = if ring { mem(3, 0, &[]) } else { out.clone() };
    let acc_store = AccStore { dst: to, acc, from: acc_dtype, m, n: n(n_), pitch, relu, hints };
    insts.push(inst(Opcode::AccStore, into, acc_store));
    let mut args =
        vec![(Role::Input, dtype, 7 * k), (Role::Input, dtype, k * n_), (Role::Output, into, 7 * n_)];
    if ring {
        args.push((Role::Ring, into, 4 * n_));
        insts.push(load(into, ub, mem(3, 0, &[]), m, n(n_), pitch));
        insts.push(store(into, out, ub, m, n(n_), pitch));
    }
    let mut p = program(&args, &[2], vec![phase(&[], &[(Place::Body, &insts)])]);
    for (slot, arg) in p.templates[0].slots.iter_mut().zip(&mut p.args) {
        slot.write |= arg.role == Role::Ring;
        arg.zero &= arg.role == Role::Output;
    }
    p
}

#[test]
fn accumulators_are_stored_converted() {
    let mut rng = Rng(5);
    for &dtype in DType::ALL.iter().filter(|d| layout::acc_dtype(**d).is_some()) {
        for &into in DType::ALL {
            for relu in [false, true] {
                let p = product(dtype, into, relu, false);
                let (a, b) = (array(dtype, 35, |_| rng.tame(dtype)), array(dtype, 95, |_| rng.tame(dtype)));
                agree(&p, &[a, b]).unwrap();
            }
        }
    }
}

#[test]
fn each_worker_has_a_ring() {
    let mut rng = Rng(6);
    for dtype in [DType::F32, DType::BF16, DType::I8] {
        let p = product(dtype, DType::F32, false, true);
        let (a, b) = (array(dtype, 35, |_| rng.tame(dtype)), array(dtype, 95, |_| rng.tame(dtype)));
        agree(&p, &[a, b]).unwrap();
    }
    let p = product(DType::F32, DType::F32, false, true);
    let mut options = BuildOptions::default();
    options.local_limit = 1 << 30;
    let exe = build(p, &options);
    let rt = Runtime::new(Arc::new(Pool::new(1)));
    let (a, b, mut out, mut ring) =
        (Bytes::zeroed(140), Bytes::zeroed(380), Bytes::zeroed(532), Bytes::zeroed(304));
    let mut args =
        [ArgRef::In(a.get()), ArgRef::In(b.get()), ArgRef::Out(out.get_mut()), ArgRef::Out(ring.get_mut())];
    let refused = rt.launch(&exe, &mut args).unwrap_err().to_string();
    assert_eq!(refused, "argument 3 (a3): a ring cannot be bound to writable memory");
}

/// A matrix product over any panels, the right operand loaded or bound.
#[test]
fn products_with_any_panels() {
    let mut rng = Rng(7);
    for (mr, nr) in [(1, 1), (3, 5), (6, 16), (7, 24), (16, 8), (4, 33)] {
        for &dtype in DType::ALL.iter().filter(|d| layout::acc_dtype(**d).is_some()) {
            for (m, n_, k) in [(1usize, 1usize, 1usize), (7, 19, 5), (13, 40, 3), (2, 16, 600), (5, 7, 0)] {
                // Panels of no rows are not apart, which the verifier refuses.
                for bound in [false, true].into_iter().filter(|b| !b || k > 0) {
                    let mut p = product(dtype, dtype, false, false);
                    p.target.panel_mr = mr;
                    p.target.panel_nr = vec![(1, nr), (2, nr), (4, nr), (8, nr)];
                    let size = i64::from(dtype.size());
                    let panels = n_.next_multiple_of(nr as usize) * k;
                    let (pitch, hints) = (size * n_ as i64, Hints::default());
                    let insts: Vec<Inst> = p.templates[0].phases[0].sections[0]
                        .code
                        .iter()
                        .map(|i| {
                            let mut i = i.unwrap();
                            match &mut i.operands {
                                Operands::LoadA(o) => {
                                    (o.m, o.k, o.row_stride) = (n(m), n(k), size * k as i64);
                                    o.src = mem(0, 0, &[]);
                                }
                                Operands::LoadB(o) if bound => {
                                    let panel_stride = size * (nr as usize * k) as i64;
                                    let (k, n) = (n(k), n(n_));
                                    let o = BindB { dst: o.dst, src: mem(1, 0, &[]), k, n, panel_stride };
                                    i = inst(Opcode::BindB, dtype, o);
                                }
                                Operands::LoadB(o) => (o.k, o.n, o.row_stride) = (n(k), n(n_), pitch),
                                Operands::Mmad(o) => (o.m, o.n, o.k) = (n(m), n(n_), n(k)),
                                Operands::AccStore(o) => {
                                    (o.m, o.n, o.pitch, o.hints) = (n(m), n(n_), pitch, hints);
                                    o.dst = mem(2, 0, &[]);
                                }
                                _ => {}
                            }
                            i
                        })
                        .collect();
                    p.templates[0].phases[0].sections[0].code = code(&insts);
                    p.templates[0].parallel = vec![1];
                    let b = if bound { panels } else { k * n_ };
                    for (arg, elements) in p.args.iter_mut().zip([m * k, b, m * n_]) {
                        arg.bytes = elements as u64 * u64::from(dtype.size());
                    }
                    if bound {
                        let (k, n, batch) = (k as u64, n_ as u64, 1);
                        p.args[1].layout = Layout::Panels { nr, k, n, batch };
                    }
                    let inputs = [m * k, b].map(|e| array(dtype, e, |_| rng.tame(dtype)));
                    agree(&p, &inputs).unwrap();
                }
            }
        }
    }
}
