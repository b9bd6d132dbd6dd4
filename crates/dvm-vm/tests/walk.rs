//! The unit space: phases, sections, ragged tails, traps, arguments, workers.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::*;
use dvm_bc::*;
use dvm_vm::{ArgRef, BuildOptions, Control, Executor, Isa, LaunchError, Pool, Runtime, TrapKind};

const F32: DType = DType::F32;

/// `out[g] += value` at a local place, for tracing which sections run.
fn add(local: Local, value: f32) -> Inst {
    let b = Src::Imm(value.to_bits().into());
    Inst::new(Opcode::VAdd, F32, Binary { dst: local, a: full(local), b, rows: n(1), cols: n(1) })
}

#[test]
fn sections_run_where_they_belong() {
    // Digits count the executions of: init(0), init(1), body, finish(1), finish(0).
    for (seq, want) in [
        (vec![], 10101.0f32),
        (vec![3], 10301.0),
        (vec![0], 10001.0),
        (vec![2, 3], 12621.0),
        (vec![2, 0], 10001.0),
        (vec![0, 3], 10001.0),
        (vec![1, 1], 11111.0),
    ] {
        let mut l = Locals::default();
        let t = l.ub(4);
        let fill = Inst::new(Opcode::VFill, F32, Fill { dst: t, value: 0, rows: n(1), cols: n(1) });
        let out = store(F32, mem(0, 0, &[(0, 4)]), t, n(1), n(1), 0);
        let init0 = [fill, add(t, 1.0)];
        let init1 = [add(t, 10.0)];
        let body = [add(t, 100.0)];
        let finish1 = [add(t, 1000.0)];
        let finish0 = [add(t, 10000.0), out];
        let mut sections: Vec<(Place, &[Inst])> = vec![(Place::Init(0), &init0)];
        if seq.len() > 1 {
            sections.push((Place::Init(1), &init1));
        }
        sections.push((Place::Body, &body));
        if seq.len() > 1 {
            sections.push((Place::Finish(1), &finish1));
        }
        sections.push((Place::Finish(0), &finish0));
        let p = program(&[(Role::Output, F32, 4)], &[4], vec![phase(&seq, &sections)]);
        let got = run(p, &BuildOptions::default(), &[]).remove(0);
        assert_eq!(got.to::<f32>(), [want; 4], "{seq:?}");
    }
}

/// Rows of `len` in pieces of `piece`: sums, then divides by the sum, in two phases.
fn normalise(rows: usize, len: usize, piece: usize, rotate: bool) -> Program {
    let mut l = Locals::default();
    let (x, y) = (l.ub(piece * 4), l.ub(piece * 4));
    let (state, total) = (l.take(Space::Ub, 8), l.ub(4));
    let k = len.div_ceil(piece);
    let cols = Size::ragged(piece as u32, (len - (k - 1) * piece) as u32, 1);
    let at = |slot| mem(slot, 0, &[(0, len as i64 * 4), (1, piece as i64 * 4)]);
    let ld = load(F32, x, at(0), n(1), cols, 0);
    let body = [
        ld.clone(),
        Inst::new(
            Opcode::VSum,
            F32,
            Reduce { dst: state, src: x, outer: n(1), red: cols, inner: n(1), init: Init::First },
        ),
    ];
    // hi and lo are neighbours: their sum is a sum of two elements.
    let finish = [Inst::new(
        Opcode::VSum,
        F32,
        Reduce { dst: total, src: state, outer: n(1), red: n(2), inner: n(1), init: Init::Always },
    )];
    let second = [
        ld,
        Inst::new(
            Opcode::VDiv,
            F32,
            Binary { dst: y, a: full(x), b: Src::Local(total, Mode::One), rows: n(1), cols },
        ),
        store(F32, at(1), y, n(1), cols, 0),
    ];
    let mut walk = phase(&[k as u32], &[(Place::Body, &second)]);
    walk.rotate = rotate;
    let phases = vec![phase(&[k as u32], &[(Place::Body, &body), (Place::Finish(0), &finish)]), walk];
    program(&[(Role::Input, F32, rows * len), (Role::Output, F32, rows * len)], &[rows as u32], phases)
}

#[test]
fn two_phases_with_tails_on_any_number_of_workers() {
    let mut rng = Rng(3);
    for (rows, len) in [(5, 4096), (7, 4097), (3, 20000), (64, 9000)] {
        let data = array(F32, rows * len, |_| rng.tame(F32));
        let mut first: Option<Bytes> = None;
        for isa in [Isa::Portable, Isa::detect()] {
            for (elide, strips) in [(false, false), (true, true)] {
                for rotate in [false, true] {
                    let mut options = BuildOptions::default();
                    (options.isa, options.elide, options.strips) = (isa, elide, strips);
                    let exe = build(normalise(rows, len, 4096, rotate), &options);
                    for workers in [1, 2, 3, 7] {
                        let rt = Runtime::new(Arc::new(Pool::new(workers)));
                        let (mut out, stats) = launch(&rt, &exe, &[&data]).unwrap();
                        let out = out.remove(0);
                        assert_eq!((stats.steps, stats.tiles), (1, rows as u64));
                        match &first {
                            None => {
                                let x = data.to::<f32>();
                                for (r, row) in out.to::<f32>().chunks(len).enumerate() {
                                    let sum: f64 =
                                        x[r * len..(r + 1) * len].iter().map(|&v| f64::from(v)).sum();
                                    for (c, &y) in row.iter().enumerate() {
                                        let want = f64::from(x[r * len + c]) / sum;
                                        assert!((f64::from(y) - want).abs() <= 1e-4 * want.abs().max(1e-3));
                                    }
                                }
                                first = Some(out);
                            }
                            Some(f) => assert_eq!(f, &out, "{rows}x{len} {workers} workers, {isa:?}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn empty_programs_and_extents() {
    let mut l = Locals::default();
    let t = l.ub(64);
    let copy = [load(F32, t, mem(0, 0, &[]), n(1), n(0), 0), store(F32, mem(1, 0, &[]), t, n(1), n(0), 0)];
    let args = [(Role::Input, F32, 0), (Role::Output, F32, 0)];
    for parallel in [vec![], vec![3], vec![0], vec![2, 0, 3]] {
        let p = program(&args, &parallel, vec![phase(&[], &[(Place::Body, &copy)])]);
        assert_eq!(run(p, &BuildOptions::default(), &[&Bytes::zeroed(0)]), [Bytes::zeroed(0)]);
    }
    let nothing = Program { steps: vec![], ..program(&[], &[], vec![]) };
    assert!(run(nothing, &BuildOptions::default(), &[]).is_empty());
}

/// `out = a / b` in i32, tiles of 4.
fn divide(tiles: usize, mode: Mode) -> Program {
    let mut l = Locals::default();
    let (a, b, c) = (l.ub(16), l.ub(16), l.ub(16));
    let len = if mode == Mode::Full { 4 } else { 1 };
    let i = DType::I32;
    let insts = [
        load(i, a, mem(0, 0, &[(0, 16)]), n(1), n(4), 0),
        load(i, b, mem(1, 0, &[(0, len * 4)]), n(1), n(len as usize), 0),
        Inst::new(
            Opcode::VDiv,
            i,
            Binary { dst: c, a: full(a), b: Src::Local(b, mode), rows: n(2), cols: n(2) },
        ),
        store(i, mem(2, 0, &[(0, 16)]), c, n(1), n(4), 0),
    ];
    let args =
        [(Role::Input, i, tiles * 4), (Role::Input, i, tiles * len as usize), (Role::Output, i, tiles * 4)];
    program(&args, &[tiles as u32], vec![phase(&[], &[(Place::Body, &insts)])])
}

#[test]
fn the_lowest_trap_is_reported_by_any_number_of_workers() {
    let tiles = 5000;
    let exe = build(divide(tiles, Mode::Full), &BuildOptions::default());
    let a: Vec<i32> = (0..tiles as i32 * 4).collect();
    for workers in [1, 2, 3, 7] {
        let rt = Runtime::new(Arc::new(Pool::new(workers)));
        for zeros in [vec![19_999], vec![7], vec![16_001, 16_002, 9_999, 9_998, 19_000]] {
            let mut b = vec![3i32; tiles * 4];
            zeros.iter().for_each(|&z| b[z] = 0);
            let lowest = *zeros.iter().min().unwrap();
            match launch(&rt, &exe, &[&Bytes::of(&a), &Bytes::of(&b)]) {
                Err(LaunchError::Trap(t)) => {
                    assert_eq!(t.kind, TrapKind::DivideByZero);
                    assert_eq!((t.tile, t.element), (lowest as u64 / 4, lowest as u64 % 4), "{zeros:?}");
                    assert_eq!((t.value, t.instruction, t.step, t.unit), (lowest as i64, 2, 0, 0));
                    assert!(
                        t.to_string().starts_with(&format!("integer division of {lowest} by zero")),
                        "{t}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        let (out, _) = launch(&rt, &exe, &[&Bytes::of(&a), &Bytes::of(&vec![-3i32; tiles * 4])]).unwrap();
        assert_eq!(out[0].to::<i32>(), a.iter().map(|x| x / -3).collect::<Vec<_>>());
    }
    let one = build(divide(1, Mode::One), &BuildOptions::default());
    let rt = Runtime::new(Arc::new(Pool::new(1)));
    let r = launch(&rt, &one, &[&Bytes::of(&[5i32, 6, 7, 8]), &Bytes::of(&[0i32])]);
    assert!(matches!(r, Err(LaunchError::Trap(t)) if t.element == 0 && t.value == 5));
    let (out, _) = launch(&rt, &one, &[&Bytes::of(&[i32::MIN, 6, 7, -8]), &Bytes::of(&[-1i32])]).unwrap();
    assert_eq!(out[0].to::<i32>(), [i32::MIN, -6, -7, 8]);
}

#[test]
fn arguments_are_checked() {
    let exe = build(divide(1, Mode::Full), &BuildOptions::default());
    let rt = Runtime::new(Arc::new(Pool::new(1)));
    let (a, b, mut c) = (Bytes::of(&[8i32; 4]), Bytes::of(&[2i32; 4]), Bytes::zeroed(16));
    let check = |args: &mut [ArgRef<'_>], want: &str| {
        let e = rt.launch(&exe, args).unwrap_err().to_string();
        assert!(e.contains(want), "{e}");
    };
    check(&mut [ArgRef::In(a.get())], "3 arguments, 1");
    check(&mut [ArgRef::In(a.get()), ArgRef::In(b.get()), ArgRef::In(b.get())], "argument 2 (a2): a output");
    check(
        &mut [ArgRef::In(&a.get()[..12]), ArgRef::In(b.get()), ArgRef::Out(c.get_mut())],
        "argument 0 (a0): 12 bytes given, 16",
    );
    let odd = Bytes::zeroed(24);
    check(
        &mut [ArgRef::In(a.get()), ArgRef::In(&odd.get()[1..17]), ArgRef::Out(c.get_mut())],
        "argument 1 (a1): address is not aligned to 4",
    );
    check(
        &mut [ArgRef::SameAs(2), ArgRef::In(b.get()), ArgRef::Out(c.get_mut())],
        "argument 0 (a0) may not share the memory of argument 2",
    );
    rt.launch(&exe, &mut [ArgRef::In(a.get()), ArgRef::In(b.get()), ArgRef::Out(c.get_mut())]).unwrap();
    assert_eq!(c.to::<i32>(), [4; 4]);
}

#[test]
fn in_place_where_declared() {
    let mut p = divide(3, Mode::Full);
    p.aliases = vec![(0, 2)];
    p.args[2].zero = false;
    let exe = build(p, &BuildOptions::default());
    let rt = Runtime::new(Arc::new(Pool::new(2)));
    let b = Bytes::of(&[2i32; 12]);
    let mut c = Bytes::of(&(0..12).collect::<Vec<i32>>());
    rt.launch(&exe, &mut [ArgRef::SameAs(2), ArgRef::In(b.get()), ArgRef::Out(c.get_mut())]).unwrap();
    assert_eq!(c.to::<i32>(), (0..12).map(|x| x / 2).collect::<Vec<i32>>());
}

#[test]
fn launches_stop_when_told() {
    let exe = build(divide(5000, Mode::Full), &BuildOptions::default());
    let rt = Runtime::new(Arc::new(Pool::new(2)));
    let (a, b, mut c) = (Bytes::of(&[8i32; 20000]), Bytes::of(&[2i32; 20000]), Bytes::zeroed(80000));
    let mut go = |control| {
        rt.launch_with(
            &exe,
            &mut [ArgRef::In(a.get()), ArgRef::In(b.get()), ArgRef::Out(c.get_mut())],
            control,
        )
    };
    let flag = AtomicBool::new(true);
    assert_eq!(go(Control { cancel: Some(&flag), deadline: None }), Err(LaunchError::Cancelled { step: 0 }));
    assert_eq!(
        go(Control { cancel: None, deadline: Some(Instant::now()) }),
        Err(LaunchError::Deadline { step: 0 })
    );
    let later = Instant::now() + Duration::from_secs(60);
    let off = AtomicBool::new(false);
    assert!(go(Control { cancel: Some(&off), deadline: Some(later) }).is_ok());
}

#[test]
fn the_later_of_two_stores_wins() {
    let len = 2000;
    let mut l = Locals::default();
    let (x, a, b) = (l.ub(len * 4), l.ub(len * 4), l.ub(len * 4));
    let cols = n(len);
    let imm = |v: f32| Src::Imm(v.to_bits().into());
    let plus = |dst, v| Inst::new(Opcode::VAdd, F32, Binary { dst, a: full(x), b: imm(v), rows: n(1), cols });
    // Both orders of computing.
    for swap in [false, true] {
        let (first, second) = if swap { (plus(b, 2.0), plus(a, 1.0)) } else { (plus(a, 1.0), plus(b, 2.0)) };
        let insts = [
            load(F32, x, mem(0, 0, &[]), n(1), cols, 0),
            first,
            second,
            store(F32, mem(1, 0, &[]), a, n(1), cols, 0),
            store(F32, mem(1, 0, &[]), b, n(1), cols, 0),
        ];
        let args = [(Role::Input, F32, len), (Role::Output, F32, len)];
        let got = run(straight(&args, &insts), &BuildOptions::default(), &[&Bytes::zeroed(len * 4)]);
        assert_eq!(got[0].to::<f32>(), vec![2.0; len]);
    }
}

/// Steps that depend on each other: x, x + 1, x + 2, .. through a workspace, alternating halves.
fn chain(steps: usize, len: usize) -> Program {
    let mut l = Locals::default();
    let t = l.ub(64 * 4);
    let cols = n(64);
    let inst = |s: usize| {
        let one = Src::Imm(1f32.to_bits().into());
        let _ = s;
        vec![
            load(F32, t, mem(0, 0, &[(0, 256)]), n(1), cols, 0),
            Inst::new(Opcode::VAdd, F32, Binary { dst: t, a: full(t), b: one, rows: n(1), cols }),
            store(F32, mem(1, 0, &[(0, 256)]), t, n(1), cols, 0),
        ]
    };
    let tiles = (len / 64) as u32;
    let mut p = program(
        &[(Role::Input, F32, len), (Role::Output, F32, len)],
        &[tiles],
        vec![phase(&[], &[(Place::Body, &inst(0))])],
    );
    p.args.push(Arg {
        name: "ws".into(),
        role: Role::Workspace,
        dtype: F32,
        bytes: len as u64 * 8,
        align: 64,
        layout: Layout::Plain,
        zero: true,
    });
    let half = |s: usize| (2, (s % 2 * len * 4) as u64);
    p.steps = (0..steps)
        .map(|s| {
            let from = if s == 0 { (0, 0) } else { half(s - 1) };
            let to = if s + 1 == steps { (1, 0) } else { half(s) };
            Step { units: vec![Unit { template: 0, slots: vec![from, to], weight: 1 }], limits: vec![] }
        })
        .collect();
    p
}

struct Threads(usize);
impl Executor for Threads {
    fn workers(&self) -> usize {
        self.0
    }
    fn run(&self, task: &(dyn Fn() + std::marker::Sync)) {
        std::thread::scope(|s| (0..self.0).for_each(|_| drop(s.spawn(task))));
    }
}
/// Makes no call: the launch must still be complete.
struct Lazy;
impl Executor for Lazy {
    fn workers(&self) -> usize {
        2
    }
    fn run(&self, _task: &(dyn Fn() + std::marker::Sync)) {}
}

#[test]
fn steps_are_ordered_on_pools_and_executors() {
    let (steps, len) = (20, 64 * 500);
    let exe = build(chain(steps, len), &BuildOptions::default());
    let x = array(F32, len, |i| V::F(i as f64));
    let want: Vec<f32> = (0..len).map(|i| (i + steps) as f32).collect();
    let mut runtimes: Vec<Runtime> =
        [1, 2, 3, 7].into_iter().map(|w| Runtime::new(Arc::new(Pool::new(w)))).collect();
    runtimes.push(Runtime::with_executor(Box::new(Threads(3))));
    runtimes.push(Runtime::with_executor(Box::new(Lazy)));
    for rt in &runtimes {
        for _ in 0..20 {
            let (out, stats) = launch(rt, &exe, &[&x]).unwrap();
            assert!(out[0].to::<f32>() == want, "{rt:?}");
            assert_eq!(stats.tiles, steps as u64 * 500);
        }
    }
}

#[test]
fn a_pool_is_shared_by_launching_threads() {
    let (steps, len) = (5, 64 * 200);
    let exe = build(chain(steps, len), &BuildOptions::default());
    let x = array(F32, len, |i| V::F(i as f64));
    let want: Vec<f32> = (0..len).map(|i| (i + steps) as f32).collect();
    let rt = Runtime::new(Arc::new(Pool::new(3)));
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    assert!(launch(&rt, &exe, &[&x]).unwrap().0[0].to::<f32>() == want);
                }
            });
        }
    });
}

#[test]
fn local_memory_is_limited() {
    let mut options = BuildOptions::default();
    options.local_limit = 1 << 20;
    let p = divide(1, Mode::Full);
    let verified = Verified::new(p, &Limits::default()).unwrap();
    let e = dvm_vm::Executable::with_options(verified, &options).unwrap_err();
    assert!(e.to_string().contains("local memory"), "{e}");
}
