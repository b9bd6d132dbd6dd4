//! Mutated kernels: whatever the verifier lets through runs inside its arguments, and means the same with every option.

mod common;

use std::sync::Arc;

use common::kernels::kernel;
use common::*;
use dvm_bc::*;
use dvm_vm::{ArgRef, BuildOptions, Executable, Pool, Runtime};

/// Bytes on either side of an argument that must stay as they are.
const GUARD: usize = 1024;
const MARK: u8 = 0x5c;

fn size(rng: &mut Rng, s: &mut Size) {
    match rng.below(6) {
        0 => s.body = s.body.wrapping_add(1),
        1 => s.tail = s.tail.saturating_sub(1),
        2 => (s.body, s.tail) = (s.tail, s.tail),
        3 => s.extent = [None, Some(0), Some(1)][rng.below(3)],
        4 => *s = Size::fixed(s.body / 2),
        _ => s.body = 1 + rng.below(40) as u32,
    }
    if s.extent.is_none() || rng.below(2) == 0 {
        s.tail = s.tail.min(s.body);
    }
    if s.extent.is_none() {
        s.tail = s.body;
    }
}

fn local(rng: &mut Rng, l: &mut Local) {
    match rng.below(4) {
        0 => l.offset = l.offset.wrapping_add(1),
        1 => l.offset /= 2,
        2 => l.offset = rng.below(5000) as u32,
        _ => l.space = Space::ALL[rng.below(4)],
    }
}

fn stride(rng: &mut Rng, v: &mut i64) {
    *v = match rng.below(6) {
        0 => 0,
        1 => -*v,
        2 => *v + 4,
        3 => *v / 8 * 4,
        4 => *v * 2,
        _ => rng.below(4000) as i64 * 4 - 8000,
    };
}

fn mem(rng: &mut Rng, m: &mut Mem) {
    match rng.below(4) {
        0 => stride(rng, &mut m.offset),
        1 => m.slot = rng.below(5) as u16,
        _ if !m.strides.is_empty() => {
            let i = rng.below(m.strides.len());
            stride(rng, &mut m.strides[i].1);
            m.strides.retain(|s| s.1 != 0);
        }
        _ => m.offset += 4,
    }
}

fn src(rng: &mut Rng, s: &mut Src) {
    match s {
        Src::Local(l, mode) => match rng.below(2) {
            0 => *mode = [Mode::Full, Mode::Row, Mode::Col, Mode::One][rng.below(4)],
            _ => local(rng, l),
        },
        Src::Imm(v) => *v = u64::from(rng.next() as u32),
    }
}

fn mutate_inst(rng: &mut Rng, inst: &mut Inst) {
    macro_rules! any {
        ($($e:expr),*) => {{
            let all: &mut [&mut dyn FnMut(&mut Rng)] = &mut [$(&mut |rng: &mut Rng| $e(rng)),*];
            let i = rng.below(all.len());
            all[i](rng);
        }};
    }
    match &mut inst.operands {
        Operands::Load(o) => any!(
            |r| local(r, &mut o.dst),
            |r| mem(r, &mut o.src),
            |r| size(r, &mut o.rows),
            |r| size(r, &mut o.cols),
            |r| stride(r, &mut o.pitch),
            |_| o.hints.sticky = true
        ),
        Operands::Store(o) => any!(
            |r| local(r, &mut o.src),
            |r| mem(r, &mut o.dst),
            |r| size(r, &mut o.rows),
            |r| size(r, &mut o.cols),
            |r| stride(r, &mut o.pitch)
        ),
        Operands::Unary(o) => {
            any!(|r| local(r, &mut o.dst), |r| src(r, &mut o.src), |r| size(r, &mut o.rows), |r| size(
                r,
                &mut o.cols
            ))
        }
        Operands::Binary(o) => any!(
            |r| local(r, &mut o.dst),
            |r| src(r, &mut o.a),
            |r| src(r, &mut o.b),
            |r| size(r, &mut o.rows),
            |r| size(r, &mut o.cols)
        ),
        Operands::Reduce(o) => any!(
            |r| local(r, &mut o.dst),
            |r| local(r, &mut o.src),
            |r| size(r, &mut o.outer),
            |r| size(r, &mut o.red),
            |r| size(r, &mut o.inner),
            |r: &mut Rng| o.init = [Init::Accumulate, Init::First][r.below(2)]
        ),
        Operands::Cast(o) => any!(
            |r| local(r, &mut o.dst),
            |r| src(r, &mut o.src),
            |r: &mut Rng| o.from = DType::ALL[r.below(13)],
            |r| size(r, &mut o.cols)
        ),
        Operands::Fill(o) => {
            any!(|r| local(r, &mut o.dst), |r| size(r, &mut o.rows), |r| size(r, &mut o.cols))
        }
        _ => inst.dtype = DType::ALL[rng.below(13)],
    }
}

fn mutate(rng: &mut Rng, p: &mut Program) {
    let t = &mut p.templates[0];
    match rng.below(12) {
        0 => t.parallel[0] = rng.below(5) as u32,
        1 => t.parallel.push(2),
        2 if !t.phases[0].seq.is_empty() => t.phases[0].seq[0] = rng.below(5) as u32,
        3 => {
            let i = rng.below(p.args.len());
            p.args[i].bytes = p.args[i].bytes / 8 * 4;
        }
        4 => p.steps[0].units[0].slots[rng.below(5)] = (rng.below(5) as u32, rng.below(64) as u64 * 4),
        5 => p.aliases.push((rng.below(3) as u32, 3 + rng.below(2) as u32)),
        _ => {
            let s = &mut t.phases[0].sections[0];
            let mut insts: Vec<Inst> = s.code.iter().map(Result::unwrap).collect();
            let i = rng.below(insts.len());
            match rng.below(8) {
                0 => drop(insts.remove(i)),
                1 => {
                    let j = rng.below(insts.len());
                    insts.swap(i, j);
                }
                2 => {
                    let again = insts[i].clone();
                    insts.insert(rng.below(insts.len()), again);
                }
                _ => mutate_inst(rng, &mut insts[i]),
            }
            let mut code = Code::default();
            if insts.iter().all(|i| code.push(i).is_ok()) {
                s.code = code;
            }
        }
    }
}

#[test]
fn what_verifies_stays_inside_and_means_one_thing() {
    let mut limits = Limits::default();
    (limits.arg_bytes, limits.tiles, limits.tile_instructions) = (1 << 22, 1 << 12, 1 << 16);
    let rt = Runtime::new(Arc::new(Pool::new(2)));
    let (mut ran, mut changed) = (0, 0);
    for seed in 0..6000u64 {
        let Some(original) = kernel(seed % 300) else { continue };
        let mut rng = Rng(seed ^ 0x9e37_79b9);
        let mut p = original.clone();
        for _ in 0..1 + rng.below(3) {
            mutate(&mut rng, &mut p);
        }
        let Ok(verified) = Verified::new(p.clone(), &limits) else { continue };
        ran += 1;
        changed += usize::from(p != original);
        let fill: Vec<Vec<u8>> = p
            .args
            .iter()
            .map(|a| {
                let n = a.bytes as usize / 4;
                array(DType::F32, n, |_| rng.value(DType::F32)).get().to_vec()
            })
            .collect();
        let mut first: Option<Vec<Bytes>> = None;
        for (elide, strips) in [(false, false), (true, true)] {
            let mut options = BuildOptions::default();
            (options.elide, options.strips) = (elide, strips);
            let exe = Executable::with_options(verified.clone(), &options).unwrap();
            let mut bufs: Vec<Bytes> = fill
                .iter()
                .map(|f| {
                    let mut b = Bytes::zeroed(f.len() + 2 * GUARD);
                    b.get_mut().fill(MARK);
                    b.get_mut()[GUARD..GUARD + f.len()].copy_from_slice(f);
                    b
                })
                .collect();
            let mut args: Vec<ArgRef<'_>> = bufs
                .iter_mut()
                .zip(&p.args)
                .map(|(b, a)| {
                    let inside = GUARD..GUARD + a.bytes as usize;
                    match a.role {
                        Role::Input | Role::Weight => ArgRef::In(&b.get()[inside]),
                        _ => ArgRef::Out(&mut b.get_mut()[inside]),
                    }
                })
                .collect();
            let result = rt.launch(&exe, &mut args);
            drop(args);
            result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            for (b, a) in bufs.iter().zip(&p.args) {
                let end = GUARD + a.bytes as usize;
                let untouched = b.get()[..GUARD].iter().chain(&b.get()[end..]).all(|&x| x == MARK);
                assert!(untouched, "seed {seed}: wrote outside {}\n{p:#?}", a.name);
            }
            match &first {
                None => first = Some(bufs),
                Some(want) => {
                    for ((b, w), a) in bufs.iter().zip(want).zip(&p.args) {
                        let alike =
                            values(a.dtype, b).iter().zip(values(a.dtype, w)).all(|(x, y)| same(*x, y));
                        assert!(alike, "seed {seed}: {} differs\n{}", a.name, disasm(&p));
                    }
                }
            }
        }
    }
    assert!(ran > 300 && changed > 200, "only {ran} mutants verified, {changed} of them changed");
}

/// As many rows as there can be, of nothing: no time is spent on them.
#[test]
fn empty_rows_take_no_time() {
    let most = (1usize << 28) - 1;
    let (rows, none, size) = (n(most), n(0), 4i64);
    let dtype = DType::F32;
    let mut l = Locals::default();
    let [x, y, z] = [l.ub(64), l.ub(64), l.ub(64)];
    let (a, b) = (l.take(Space::PanelA, 64), l.take(Space::PanelB, 64));
    let acc = l.take(Space::Acc, 64);
    let hints = Hints::default();
    let row = |l| Src::Local(l, Mode::Row);
    let insts: Vec<Operands> = vec![
        Load { dst: x, src: common::mem(0, 0, &[]), rows, cols: none, pitch: size, hints }.into(),
        Store { dst: common::mem(1, 0, &[]), src: x, rows, cols: none, pitch: size, hints }.into(),
        FillStore { dst: common::mem(1, 0, &[]), value: 0, rows, cols: none, pitch: size, hints }.into(),
        Unary { dst: y, src: row(x), rows, cols: none }.into(),
        Binary { dst: y, a: row(x), b: row(x), rows, cols: none }.into(),
        Ternary { dst: y, a: row(x), b: row(x), c: row(x), rows, cols: none }.into(),
        Shape { dst: y, src: x, rows: none, cols: rows }.into(),
        RemovePad { dst: y, src: x, rows, cols: none, pitch: 8 }.into(),
        ClearPad { dst: y, value: 0, rows, cols: none, pitch: 0 }.into(),
        SortKv { key: y, value: z, rows, cols: none, descending: false }.into(),
        Reduce { dst: y, src: x, outer: rows, red: n(3), inner: none, init: Init::Always }.into(),
        CumSum {
            dst: y,
            carry: z,
            src: x,
            outer: rows,
            red: n(3),
            inner: none,
            init: Init::Always,
            exclusive: false,
            reverse: false,
        }
        .into(),
        LoadA {
            dst: a,
            src: common::mem(0, 0, &[]),
            m: rows,
            k: none,
            row_stride: 0,
            col_stride: size,
            hints,
        }
        .into(),
        LoadB {
            dst: b,
            src: common::mem(0, 0, &[]),
            k: none,
            n: none,
            row_stride: 0,
            col_stride: size,
            hints,
        }
        .into(),
        Mmad { acc, a, b, m: rows, n: none, k: none, init: Init::Always }.into(),
        AccStore {
            dst: common::mem(1, 0, &[]),
            acc,
            from: dtype,
            m: rows,
            n: none,
            pitch: size,
            relu: true,
            hints,
        }
        .into(),
    ];
    let op = |o: &Operands| Opcode::ALL.iter().copied().find(|op| op.form() == o.form()).unwrap();
    let insts: Vec<Inst> =
        insts.into_iter().map(|o| Inst { op: op(&o), ..Inst::new(Opcode::Nop, dtype, o) }).collect();
    let repeated: Vec<Inst> = (0..8).flat_map(|_| insts.clone()).collect();
    let p = straight(&[(Role::Input, dtype, 4), (Role::Output, dtype, 4)], &repeated);
    for elide in [false, true] {
        let mut options = BuildOptions::default();
        (options.elide, options.strips) = (elide, elide);
        let started = std::time::Instant::now();
        run(p.clone(), &options, &[&Bytes::zeroed(16)]);
        // Some 40 000 000 000 rows: a loop over them would take minutes.
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
