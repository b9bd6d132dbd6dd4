//! Hand-written kernels through tiler, verifier and VM, against the reference evaluator, on machines large and tiny.

mod common;

use common::{K, check, run};
use dvm_ir::kernel::{AxisSet, KOp, KReduce};
use dvm_ir::{BinaryOp, DType, UnaryOp};
use dvm_npu::MachineSpec;
use dvm_vm::Isa;

const F32: DType = DType::F32;

#[test]
fn elementwise_over_sizes() {
    for shape in
        [&[][..], &[1], &[7], &[0], &[1000], &[65_537], &[3, 5, 7], &[128, 0, 3], &[17, 2049], &[1, 1, 1, 9]]
    {
        let axes: Vec<usize> = (0..shape.len()).collect();
        let mut k = K::new("add_sqrt", shape);
        let (x, y) = (k.load(F32, &axes), k.load(F32, &axes));
        let s = k.binary(BinaryOp::Add, x, y);
        let s = k.unary(UnaryOp::Abs, s);
        let r = k.unary(UnaryOp::Sqrt, s);
        let z = k.binary(BinaryOp::Mul, r, x);
        k.store(z, &axes);
        check(&k);
    }
}

#[test]
fn broadcasts_of_every_kind() {
    // Axes that the second operand has, of three.
    for axes in [&[][..], &[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]] {
        for shape in [[2, 3, 5], [40, 30, 20], [1, 300, 7], [3, 1, 1000], [5, 70, 1]] {
            let mut k = K::new("broadcast", &shape);
            let (x, y) = (k.load(F32, &[0, 1, 2]), k.load(F32, axes));
            let e = k.unary(UnaryOp::Exp, y);
            let s = k.binary(BinaryOp::Sub, x, e);
            k.store(s, &[0, 1, 2]);
            check(&k);
        }
    }
}

#[test]
fn broadcasts_meet() {
    for shape in [[4, 5, 6], [60, 50, 3], [9, 1, 200]] {
        let mut k = K::new("outer", &shape);
        let (a, b, c) = (k.load(F32, &[0]), k.load(F32, &[1]), k.load(F32, &[2]));
        let ab = k.binary(BinaryOp::Mul, a, b);
        let abc = k.binary(BinaryOp::Add, ab, c);
        let ac = k.binary(BinaryOp::Max, a, c);
        let z = k.binary(BinaryOp::Mul, abc, ac);
        k.store(z, &[0, 1, 2]);
        check(&k);
    }
}

#[test]
fn views() {
    for (m, n, p) in [(4, 6, 5), (33, 65, 3), (1, 500, 70), (200, 3, 1)] {
        let mut k = K::new("views", &[m, n, p]);
        let len = m * n * p;
        let transposed = k.load_at(F32, len, 0, &[1, m, m * n]);
        let reversed = k.load_at(F32, len, len - 1, &[-n * p, -p, -1]);
        let strided = k.load_at(F32, 2 * len, 1, &[2 * n * p, 2 * p, 2]);
        let s = k.binary(BinaryOp::Add, transposed, reversed);
        let s = k.binary(BinaryOp::Sub, s, strided);
        k.store_at(s, len, 0, &[p, m * p, 1]);
        check(&k);
    }
}

fn layer_norm(shape: [i64; 2]) -> K {
    let mut k = K::new("layer_norm", &shape);
    let (x, gamma, beta) = (k.load(F32, &[0, 1]), k.load(F32, &[1]), k.load(F32, &[1]));
    let n = k.constant(F32, shape[1] as f64);
    let eps = k.constant(F32, 1e-5);
    let sum = k.reduce(KReduce::Sum, x, &[1]);
    let mean = k.binary(BinaryOp::Div, sum, n);
    let d = k.binary(BinaryOp::Sub, x, mean);
    let sq = k.binary(BinaryOp::Mul, d, d);
    let var = k.reduce(KReduce::Sum, sq, &[1]);
    let var = k.binary(BinaryOp::Div, var, n);
    let var = k.binary(BinaryOp::Add, var, eps);
    let scale = k.unary(UnaryOp::Rsqrt, var);
    let y = k.binary(BinaryOp::Mul, d, scale);
    let y = k.binary(BinaryOp::Mul, y, gamma);
    let y = k.binary(BinaryOp::Add, y, beta);
    k.store(y, &[0, 1]);
    k.store(mean, &[0]);
    k
}

#[test]
fn layer_norms() {
    for shape in [[3, 8], [1, 1], [50, 384], [2, 40_000], [1, 100_000], [300, 3], [0, 5]] {
        check(&layer_norm(shape));
    }
}

#[test]
fn softmax_over_an_inner_axis() {
    for shape in [[4, 9, 5], [3, 700, 2], [2, 5000, 3], [1, 40, 129], [70, 1, 2]] {
        let mut k = K::new("softmax", &shape);
        let x = k.load(F32, &[0, 1, 2]);
        let top = k.reduce(KReduce::Max, x, &[1]);
        let d = k.binary(BinaryOp::Sub, x, top);
        let e = k.unary(UnaryOp::Exp, d);
        let sum = k.reduce(KReduce::Sum, e, &[1]);
        let y = k.binary(BinaryOp::Div, e, sum);
        k.store(y, &[0, 1, 2]);
        check(&k);
    }
}

#[test]
fn reductions() {
    let shapes = [[3, 4, 5, 6], [2, 60, 3, 50], [1, 1, 300, 70], [0, 3, 4, 5], [3, 0, 2, 2], [20, 30, 40, 1]];
    for shape in shapes {
        for over in [&[3][..], &[0], &[1], &[0, 3], &[1, 2], &[0, 2], &[0, 1, 2, 3], &[1, 3]] {
            for op in [KReduce::Sum, KReduce::Max] {
                let mut k = K::new("reduce", &shape);
                let x = k.load(F32, &[0, 1, 2, 3]);
                let y = k.reduce(op, x, over);
                let kept: Vec<usize> = (0..4).filter(|a| !over.contains(a)).collect();
                k.store(y, &kept);
                check(&k);
            }
        }
    }
}

#[test]
fn reductions_of_every_kind() {
    for (op, dtype) in [
        (KReduce::Min, F32),
        (KReduce::Prod, DType::I32),
        (KReduce::Sum, DType::I64),
        (KReduce::Sum, DType::U8),
        (KReduce::Max, DType::I8),
        (KReduce::Any, DType::Bool),
        (KReduce::All, DType::Bool),
        (KReduce::Sum, DType::F64),
        (KReduce::Min, DType::U16),
    ] {
        for (shape, over) in [([5, 300], 1), ([300, 5], 0), ([2, 9000], 1), ([9000, 2], 0), ([4, 0], 1)] {
            let mut k = K::new("reduce_kind", &shape);
            let x = k.load(dtype, &[0, 1]);
            let y = k.reduce(op, x, &[over]);
            k.store(y, &[1 - over]);
            check(&k);
        }
    }
}

/// The state of a sum in pieces is f32 even where the values are not.
#[test]
fn sums_of_halves_in_pieces() {
    for dtype in [DType::F16, DType::BF16] {
        for (shape, over) in [([2, 150_000], 1), ([9000, 20], 0)] {
            let mut k = K::new("sum_halves", &shape);
            let x = k.load(dtype, &[0, 1]);
            let s = k.reduce(KReduce::Sum, x, &[over]);
            let y = k.binary(BinaryOp::Add, s, s);
            k.store(y, &[1 - over]);
            check(&k);
        }
        let mut k = K::new("sum_halves_in_runs", &[40, 30, 50]);
        let x = k.load(dtype, &[0, 1, 2]);
        let s = k.reduce(KReduce::Sum, x, &[0, 2]);
        k.store(s, &[1]);
        check(&k);
    }
}

#[test]
fn a_broadcast_is_reduced() {
    let mut k = K::new("sum_of_copies", &[6, 70, 5]);
    let x = k.load(F32, &[0, 2]);
    let wide = k.widen(x, &[1]);
    let y = k.reduce(KReduce::Sum, wide, &[1]);
    let c = k.constant(F32, 2.0);
    let twos = k.widen(c, &[0, 1, 2]);
    let n = k.reduce(KReduce::Sum, twos, &[1]);
    let z = k.binary(BinaryOp::Add, y, n);
    k.store(z, &[0, 2]);
    check(&k);
}

#[test]
fn two_outputs_of_different_axes() {
    for shape in [[30, 40], [3, 20_000], [20_000, 3]] {
        let mut k = K::new("outputs", &shape);
        let (x, b) = (k.load(F32, &[0, 1]), k.load(F32, &[1]));
        let t = k.unary(UnaryOp::Tanh, b);
        let y = k.binary(BinaryOp::Mul, x, t);
        k.store(y, &[0, 1]);
        k.store(t, &[1]);
        check(&k);
    }
}

#[test]
fn stores_of_constants_and_iotas() {
    for shape in [[3, 5], [100, 1000]] {
        let mut k = K::new("constants", &shape);
        let c = k.constant(F32, 1.5);
        let c = k.widen(c, &[0, 1]);
        k.store(c, &[0, 1]);
        for dtype in [DType::I64, DType::I32, F32] {
            let access = k.access(3, &[10, -1]);
            let i = k.push(KOp::Iota { access }, dtype, AxisSet::first(2));
            k.store(i, &[0, 1]);
        }
        let access = k.access(1, &[0, 2]);
        let i = k.push(KOp::Iota { access }, DType::I64, AxisSet::one(1));
        let two = k.constant(DType::I64, 7.0);
        let even = k.binary(BinaryOp::Lt, i, two);
        let w = k.widen(even, &[0]);
        k.store(w, &[0, 1]);
        check(&k);
    }
}

#[test]
fn gathers() {
    for (b, s, h, vocab) in [(2, 7, 16, 30), (1, 1, 1000, 5), (3, 50, 3, 4), (1, 0, 8, 3)] {
        for index_dtype in [DType::I32, DType::I64] {
            let mut k = K::new("embedding", &[b, s, h]);
            let index = k.load(index_dtype, &[0, 1]);
            let four = k.constant(index_dtype, 4.0);
            let small = k.binary(BinaryOp::Rem, index, four);
            let operand = k.operand(F32, vocab * h, false);
            let (access, stride, limit) = (k.access(0, &[0, 0, 1]), k.dim(h), k.dim(vocab));
            let op = KOp::Gather { operand, access, index: small, stride, limit };
            let row = k.push(op, F32, AxisSet::first(3));
            let pos = k.load(F32, &[1, 2]);
            let y = k.binary(BinaryOp::Add, row, pos);
            let sum = k.reduce(KReduce::Sum, y, &[2]);
            let z = k.binary(BinaryOp::Sub, y, sum);
            k.store(z, &[0, 1, 2]);
            check(&k);
        }
    }
}

#[test]
fn gathers_of_elements() {
    for (m, n, p) in [(5, 6, 4), (70, 30, 3), (1, 2000, 9)] {
        let mut k = K::new("gather_elements", &[m, n]);
        let index = k.load(DType::I64, &[0, 1]);
        let c = k.constant(DType::I64, p as f64);
        let index = k.binary(BinaryOp::Rem, index, c);
        let operand = k.operand(F32, p * n, false);
        let (access, stride, limit) = (k.access(0, &[0, 1]), k.dim(n), k.dim(p));
        let v = k.push(KOp::Gather { operand, access, index, stride, limit }, F32, AxisSet::first(2));
        k.store(v, &[0, 1]);
        check(&k);
    }
}

#[test]
fn extremes_with_their_index() {
    for shape in [[4, 9, 5], [3, 6000, 1], [1, 900, 20], [6, 1, 3], [1, 150_000, 1]] {
        for (axis, dtype) in [(0, F32), (1, F32), (2, DType::I32)] {
            for (max, last) in [(true, false), (false, true)] {
                let mut k = K::new("arg", &shape);
                let x = k.load(dtype, &[0, 1, 2]);
                let kept = AxisSet::first(3).minus(AxisSet::one(axis));
                let i = k.push(KOp::ArgReduce { max, last, x, axis: axis as u8 }, DType::I64, kept);
                let axes: Vec<usize> = (0..3).filter(|&a| a != axis).collect();
                k.store(i, &axes);
                check(&k);
            }
        }
    }
}

#[test]
fn running_sums() {
    for shape in [[4, 9], [3, 6000], [6000, 3], [1, 5], [2, 100_000]] {
        // Long sums that cancel are no test of f32.
        let dtype = if shape[1] > 6000 { DType::F64 } else { F32 };
        for (axis, exclusive, reverse) in
            [(1, false, false), (1, true, true), (0, false, true), (0, true, false)]
        {
            let mut k = K::new("cumsum", &shape);
            let x = k.load(dtype, &[0, 1]);
            let y = k.push(KOp::CumSum { x, axis, exclusive, reverse }, dtype, AxisSet::first(2));
            k.store(y, &[0, 1]);
            check(&k);
        }
    }
}

#[test]
fn many_axes() {
    let shape = [2, 3, 2, 3, 2, 3, 2, 3];
    let mut k = K::new("rank8", &shape);
    let forward = k.dense(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let backward = k.dense(&[7, 6, 5, 4, 3, 2, 1, 0]);
    let x = k.load_at(F32, 1296, 0, &forward);
    let y = k.load_at(F32, 1296, 0, &backward);
    let z = k.binary(BinaryOp::Sub, x, y);
    let w = k.load(F32, &[1, 3, 5, 7]);
    let z = k.binary(BinaryOp::Mul, z, w);
    k.store_at(z, 1296, 0, &backward);
    check(&k);
}

#[test]
fn casts_and_narrow_types() {
    for (from, to) in
        [(F32, DType::F16), (DType::F16, F32), (DType::I8, F32), (F32, DType::U8), (DType::BF16, F32)]
    {
        let mut k = K::new("cast", &[5, 333]);
        let x = k.load(from, &[0, 1]);
        let b = k.load(from, &[1]);
        let s = k.binary(BinaryOp::Add, x, b);
        let y = k.cast(s, to);
        k.store(y, &[0, 1]);
        let m = k.binary(BinaryOp::Gt, x, b);
        let t = k.select(m, x, b);
        k.store(t, &[0, 1]);
        check(&k);
    }
}

#[test]
fn matmuls() {
    for (m, n, k0) in [
        (1, 1, 1),
        (5, 7, 3),
        (64, 48, 32),
        (130, 70, 600),
        (1, 300, 1000),
        (4, 33, 900),
        (3, 2, 0),
        (0, 4, 5),
    ] {
        for (packable, b_t) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut k = K::new("matmul", &[m, n]);
            let c = k.matmul(F32, k0, false, b_t, packable);
            k.store(c, &[0, 1]);
            check(&k);
        }
    }
}

#[test]
fn matmuls_with_epilogue() {
    for (m, n, k0) in [(5, 7, 3), (100, 130, 70), (1, 64, 33), (257, 19, 40)] {
        let mut k = K::new("mm_epilogue", &[m, n]);
        let c = k.matmul(F32, k0, false, false, true);
        let (bias, residual, column) = (k.load(F32, &[1]), k.load(F32, &[0, 1]), k.load(F32, &[0]));
        let half = k.constant(F32, 0.5);
        let y = k.binary(BinaryOp::Add, c, bias);
        let y = k.binary(BinaryOp::Mul, y, half);
        let e = k.unary(UnaryOp::Erf, y);
        let y = k.binary(BinaryOp::Mul, e, column);
        let y = k.binary(BinaryOp::Add, y, residual);
        k.store(y, &[0, 1]);
        let f = k.cast(y, DType::F16);
        k.store_at(f, m * n, 0, &[1, m]);
        check(&k);
    }
}

#[test]
fn matmuls_in_batches() {
    for shape in [[2, 3, 5, 7], [1, 4, 40, 20], [3, 1, 1, 9], [2, 2, 70, 65]] {
        for (b_batch, packable) in [(true, false), (false, false), (true, true), (false, true)] {
            let mut k = K::new("bmm", &shape);
            let c = k.matmul(F32, 33, b_batch, false, packable);
            let mask = k.load(F32, &[0, 3]);
            let y = k.binary(BinaryOp::Add, c, mask);
            k.store(y, &[0, 1, 2, 3]);
            check(&k);
        }
    }
}

#[test]
fn matmuls_of_other_types() {
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::I32] {
        for packable in [false, true] {
            let mut k = K::new("mm_types", &[37, 29]);
            let c = k.matmul(dtype, 50, false, false, packable);
            k.store(c, &[0, 1]);
            check(&k);
        }
    }
}

/// The same bits for any number of cores the compiler knows of, any number of threads, and any instruction-set level.
#[test]
fn bits_do_not_depend_on_the_machine() {
    let mut kernels = vec![layer_norm([37, 384]), layer_norm([3, 20_000])];
    for shape in [[130, 70], [1, 500], [64, 64]] {
        let mut k = K::new("matmul", &shape);
        let c = k.matmul(F32, 900, false, false, true);
        let r = k.load(F32, &[0, 1]);
        let y = k.binary(BinaryOp::Add, c, r);
        let y = k.unary(UnaryOp::Tanh, y);
        k.store(y, &[0, 1]);
        kernels.push(k);
    }
    for (shape, over) in [([300, 40], 0), ([40, 9000], 1), ([9000, 130], 0)] {
        let mut k = K::new("sum_exp", &shape);
        let x = k.load(F32, &[0, 1]);
        let e = k.unary(UnaryOp::Exp, x);
        let s = k.reduce(KReduce::Sum, e, &[over]);
        k.store(s, &[1 - over]);
        kernels.push(k);
    }
    for k in &kernels {
        let mut first = None;
        for cores in [1, 2, 3, 7] {
            let mut spec = MachineSpec::named("host-ref").unwrap();
            spec.target.cores = cores;
            spec.costs.cube.cores = cores;
            for (isa, workers) in [(Isa::detect(), cores as usize), (Isa::Portable, 2)] {
                let got = run(k, &spec, isa, workers);
                let name = &k.kernel.name;
                let same = first.get_or_insert_with(|| got.clone()) == &got;
                assert!(same, "{name}: other bits with {cores} cores, {workers} threads, {isa:?}");
            }
        }
    }
}
