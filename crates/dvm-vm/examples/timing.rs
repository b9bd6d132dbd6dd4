//! Prints what launching, preparing and running small kernels cost on this machine.
//!
//! `cargo run --release -p dvm-vm --example timing`

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::*;
use dvm_bc::*;
use dvm_vm::{ArgRef, BuildOptions, Executable, Pool, Runtime};

const F32: DType = DType::F32;

/// Least nanoseconds of a call over many short batches: what it costs when nobody interferes.
fn time(mut f: impl FnMut()) -> f64 {
    let mut per = 1;
    loop {
        let t = Instant::now();
        (0..per).for_each(|_| f());
        if t.elapsed().as_micros() > 100 {
            break;
        }
        per *= 2;
    }
    (0..60)
        .map(|_| {
            let t = Instant::now();
            (0..per).for_each(|_| f());
            t.elapsed().as_nanos() as f64 / f64::from(per)
        })
        .fold(f64::INFINITY, f64::min)
}

fn binary(op: Opcode, dst: Local, a: Src, b: Src, rows: Size, cols: Size) -> Inst {
    Inst::new(op, F32, Binary { dst, a, b, rows, cols })
}
fn unary(op: Opcode, dst: Local, src: Local, rows: Size, cols: Size) -> Inst {
    Inst::new(op, F32, Unary { dst, src: full(src), rows, cols })
}
fn imm(v: f32) -> Src {
    Src::Imm(v.to_bits().into())
}

/// Tiles of `len / tile` elements: `inputs` loads, `make` computes, one store.
fn elementwise(
    len: usize,
    tile: usize,
    inputs: u16,
    make: impl Fn(&mut Locals, &[Local], Size) -> (Vec<Inst>, Local),
) -> Program {
    let k = len.div_ceil(tile);
    let cols = Size::ragged(tile as u32, (len - (k - 1) * tile) as u32, 0);
    let mut l = Locals::default();
    let regs: Vec<Local> = (0..inputs).map(|_| l.ub(tile * 4)).collect();
    let step = [(0u8, tile as i64 * 4)];
    let mut insts: Vec<Inst> =
        regs.iter().enumerate().map(|(i, &r)| load(F32, r, mem(i as u16, 0, &step), n(1), cols, 0)).collect();
    let (body, out) = make(&mut l, &regs, cols);
    insts.extend(body);
    insts.push(store(F32, mem(inputs, 0, &step), out, n(1), cols, 0));
    let mut args = vec![(Role::Input, F32, len); inputs.into()];
    args.push((Role::Output, F32, len));
    let mut p = program(&args, &[k as u32], vec![phase(&[], &[(Place::Body, &insts)])]);
    p.args.last_mut().unwrap().zero = false;
    p
}

/// 13 operations with exp, sqrt, sigmoid and a division.
fn chain(l: &mut Locals, regs: &[Local], cols: Size) -> (Vec<Inst>, Local) {
    let [x, y] = [regs[0], regs[1]];
    let mut t: Vec<Local> = (0..4).map(|_| l.ub(cols.body as usize * 4)).collect();
    let one = n(1);
    let (a, b, c, d) = (t.remove(0), t.remove(0), t.remove(0), t.remove(0));
    use Opcode::*;
    let insts = vec![
        binary(VAdd, a, full(x), full(y), one, cols),
        binary(VMul, a, full(a), imm(0.5), one, cols),
        unary(VAbs, b, a, one, cols),
        unary(VNeg, c, b, one, cols),
        unary(VExp, c, c, one, cols),
        binary(VAdd, b, full(b), imm(1.0), one, cols),
        unary(VSqrt, b, b, one, cols),
        binary(VMul, d, full(x), full(c), one, cols),
        binary(VSub, d, full(y), full(d), one, cols),
        unary(VSigmoid, c, d, one, cols),
        binary(VMul, c, full(c), full(d), one, cols),
        binary(VDiv, c, full(c), full(b), one, cols),
        binary(VMax, c, full(c), imm(0.0), one, cols),
    ];
    (insts, c)
}

/// Softmax of rows, `per` rows a tile.
fn softmax(rows: usize, cols: usize, per: usize) -> Program {
    let mut l = Locals::default();
    let bytes = per * cols * 4;
    let (x, y, m, s) = (l.ub(bytes), l.ub(bytes), l.ub(per * 4), l.ub(per * 4));
    let k = rows.div_ceil(per);
    let r = Size::ragged(per as u32, (rows - (k - 1) * per) as u32, 0);
    let c = n(cols);
    let at = |slot| mem(slot, 0, &[(0, bytes as i64)]);
    let pitch = cols as i64 * 4;
    let reduce = |op, dst, src| {
        Inst::new(op, F32, Reduce { dst, src, outer: r, red: c, inner: n(1), init: Init::Always })
    };
    let insts = [
        load(F32, x, at(0), r, c, pitch),
        reduce(Opcode::VRedMax, m, x),
        binary(Opcode::VSub, y, full(x), Src::Local(m, Mode::Col), r, c),
        unary(Opcode::VExp, y, y, r, c),
        reduce(Opcode::VSum, s, y),
        binary(Opcode::VDiv, y, full(y), Src::Local(s, Mode::Col), r, c),
        store(F32, at(1), y, r, c, pitch),
    ];
    let len = rows * cols;
    let mut p = program(
        &[(Role::Input, F32, len), (Role::Output, F32, len)],
        &[k as u32],
        vec![phase(&[], &[(Place::Body, &insts)])],
    );
    p.args[1].zero = false;
    p
}

/// Layer normalisation with gain and shift.
fn layer_norm(rows: usize, cols: usize, per: usize) -> Program {
    let mut l = Locals::default();
    let bytes = per * cols * 4;
    let (x, y, z) = (l.ub(bytes), l.ub(bytes), l.ub(bytes));
    let (w, b) = (l.ub(cols * 4), l.ub(cols * 4));
    let (m, v) = (l.ub(per * 4), l.ub(per * 4));
    let k = rows.div_ceil(per);
    let r = Size::ragged(per as u32, (rows - (k - 1) * per) as u32, 0);
    let (c, one) = (n(cols), n(1));
    let at = |slot| mem(slot, 0, &[(0, bytes as i64)]);
    let pitch = cols as i64 * 4;
    let sum = |dst, src| {
        Inst::new(Opcode::VSum, F32, Reduce { dst, src, outer: r, red: c, inner: n(1), init: Init::Always })
    };
    let col = |l| Src::Local(l, Mode::Col);
    use Opcode::*;
    let insts = [
        load(F32, x, at(0), r, c, pitch),
        load(F32, w, mem(1, 0, &[]), one, c, 0),
        load(F32, b, mem(2, 0, &[]), one, c, 0),
        sum(m, x),
        binary(VMul, m, full(m), imm(1.0 / cols as f32), r, one),
        binary(VSub, y, full(x), col(m), r, c),
        binary(VMul, z, full(y), full(y), r, c),
        sum(v, z),
        binary(VMul, v, full(v), imm(1.0 / cols as f32), r, one),
        binary(VAdd, v, full(v), imm(1e-5), r, one),
        unary(VRsqrt, v, v, r, one),
        binary(VMul, y, full(y), col(v), r, c),
        binary(VMul, y, full(y), Src::Local(w, Mode::Row), r, c),
        binary(VAdd, y, full(y), Src::Local(b, Mode::Row), r, c),
        store(F32, at(3), y, r, c, pitch),
    ];
    let len = rows * cols;
    let args = [
        (Role::Input, F32, len),
        (Role::Input, F32, cols),
        (Role::Input, F32, cols),
        (Role::Output, F32, len),
    ];
    let mut p = program(&args, &[k as u32], vec![phase(&[], &[(Place::Body, &insts)])]);
    p.args[3].zero = false;
    p
}

/// Nanoseconds of a launch on 1 worker and on all.
fn run_ns(p: &Program, workers: usize) -> f64 {
    let exe = build(p.clone(), &BuildOptions::default());
    let rt = Runtime::new(Arc::new(Pool::new(workers)));
    let mut rng = Rng(1);
    let mut bufs: Vec<Bytes> =
        p.args.iter().map(|a| array(a.dtype, (a.bytes / 4) as usize, |_| rng.tame(F32))).collect();
    let mut args: Vec<ArgRef<'_>> = bufs
        .iter_mut()
        .zip(&p.args)
        .map(|(b, a)| if a.role == Role::Output { ArgRef::Out(b.get_mut()) } else { ArgRef::In(b.get()) })
        .collect();
    time(|| {
        rt.launch(&exe, &mut args).unwrap();
    })
}

fn main() {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let nothing = Program { steps: vec![], ..program(&[], &[], vec![]) };
    println!("launch of an empty program            {:8.0} ns", run_ns(&nothing, 1));
    let add = |l: &mut Locals, r: &[Local], cols: Size| {
        let t = l.ub(cols.body as usize * 4);
        (vec![binary(Opcode::VAdd, t, full(r[0]), full(r[1]), n(1), cols)], t)
    };
    println!(
        "add of 16 elements                    {:8.0} ns",
        run_ns(&elementwise(16, 16, 2, add), workers)
    );
    // Two tiles of some µs: what sharing costs.
    let two = elementwise(16384, 8192, 2, chain);
    let (one, all) = (run_ns(&two, 1), run_ns(&two, workers));
    println!("chain of 16384, 2 tiles               {one:8.0} ns alone, {all:.0} ns shared");

    let many = elementwise(4096, 1024, 2, |l, r, cols| {
        let mut all = vec![];
        let mut last = r[0];
        for _ in 0..3 {
            let (mut i, t) = chain(l, &[last, r[1]], cols);
            all.append(&mut i);
            last = t;
        }
        (all, last)
    });
    let verified = Verified::new(many.clone(), &Limits::default()).unwrap();
    let build_ns =
        time(|| drop(Executable::with_options(verified.clone(), &BuildOptions::default()).unwrap()));
    let clone_ns = time(|| drop(verified.clone()));
    println!("preparing 42 instructions             {:8.0} ns", build_ns - clone_ns);

    println!("\n{:28} {:>10} {:>10} {:>8}", "", "1 worker", format!("{workers} workers"), "GB/s");
    let row = |name: &str, bytes: usize, p: Program| {
        let (a, b) = (run_ns(&p, 1), run_ns(&p, workers));
        println!("{name:28} {:8.1} us {:8.1} us {:8.1}", a / 1e3, b / 1e3, bytes as f64 / b);
    };
    for (r, c) in [(64, 64), (256, 256), (1000, 1000), (2048, 2048)] {
        let len = r * c;
        row(&format!("add {r}x{c}"), len * 12, elementwise(len, 8192.min(len / 2), 2, add));
        row(&format!("chain {r}x{c}"), len * 12, elementwise(len, 8192.min(len / 2), 2, chain));
    }
    for (r, c, per) in [(512, 512, 16), (3072, 256, 32), (64, 32000, 1)] {
        row(&format!("softmax {r}x{c}"), r * c * 8, softmax(r, c, per));
    }
    for (r, c, per) in [(128, 768, 8), (1000, 768, 8), (500, 4096, 2)] {
        row(&format!("layer norm {r}x{c}"), r * c * 8, layer_norm(r, c, per));
    }
}
