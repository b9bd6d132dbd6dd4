//! Every fusion pattern: number of kernels, and the same values fused, unfused and evaluated.

mod common;

use common::{check, tensor};
use dvm_ir::{BinaryOp, DType, Dim, Graph, Op, PadMode, ReduceOp, Scalar, UnaryOp, ValueId};

type B = &'static [(&'static str, i64)];

const SB: &[B] = &[
    &[("b", 2), ("s", 3)],
    &[("b", 1), ("s", 1)],
    &[("b", 3), ("s", 7)],
    &[("b", 0), ("s", 5)],
    &[("b", 2), ("s", 0)],
];

struct G(Graph, Dim, Dim);

fn graph(name: &str) -> G {
    let mut g = Graph::new(name);
    let (b, s) = (g.dims.symbol("b"), g.dims.symbol("s"));
    G(g, b, s)
}
impl G {
    fn c(&mut self, n: i64) -> Dim {
        self.0.dims.constant(n)
    }
    fn input(&mut self, name: &str, dims: &[Dim]) -> ValueId {
        self.0.input(name, DType::F32, dims)
    }
    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let t = tensor(DType::F32, shape, shape.iter().sum::<usize>() as u64);
        self.0.constant(None, t)
    }
    fn push(&mut self, op: Op, x: &[ValueId]) -> ValueId {
        self.0.push(op, x).unwrap()
    }
    fn un(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        self.push(Op::Unary(op), &[x])
    }
    fn bin(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        self.push(Op::Binary(op), &[x, y])
    }
    fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.0.shape(v).to_vec()
    }
    #[track_caller]
    fn done(mut self, outs: &[ValueId], kernels: usize, bindings: &[B]) -> dvm_ir::Plan {
        for (i, &v) in outs.iter().enumerate() {
            self.0.output(format!("o{i}"), v);
        }
        let p = check(&self.0, bindings);
        assert_eq!(p.calls.len(), kernels, "{}\n{p}", self.0.name);
        insta::assert_snapshot!(self.0.name.as_str(), p);
        p
    }
}

#[test]
fn chain_of_elementwise() {
    let mut g = graph("chain");
    let c8 = g.c(8);
    let dims = [g.1, g.2, c8];
    let x = g.input("x", &dims);
    let y = g.input("y", &[c8]);
    let a = g.bin(BinaryOp::Add, x, y);
    let e = g.un(UnaryOp::Exp, a);
    let m = g.bin(BinaryOp::Mul, e, x);
    let r = g.un(UnaryOp::Abs, m);
    g.done(&[r, e], 1, SB);
}

#[test]
fn softmax_and_norms_are_one_kernel() {
    for (name, op) in [
        ("softmax", Op::Softmax { axis: 2 }),
        ("softmax1", Op::Softmax { axis: 1 }),
        ("log_softmax", Op::LogSoftmax { axis: 2 }),
        ("gelu", Op::Gelu { tanh: false }),
        ("gelu_tanh", Op::Gelu { tanh: true }),
        ("silu", Op::Silu {}),
        ("lse", Op::Reduce { op: ReduceOp::LogSumExp, axes: vec![2], keepdims: false }),
        ("l2", Op::Reduce { op: ReduceOp::L2, axes: vec![0, 2], keepdims: true }),
        ("mean", Op::Reduce { op: ReduceOp::Mean, axes: vec![1, 2], keepdims: false }),
        ("argmax", Op::ArgMax { axis: 2, keepdims: false, last: false }),
        ("cumsum", Op::CumSum { axis: 1, exclusive: true, reverse: true }),
    ] {
        for dtype in [DType::F32, DType::F16] {
            let mut g = graph(&format!("{name}_{dtype}"));
            let c8 = g.c(8);
            let dims = [g.1, g.2, c8];
            let x = g.0.input("x", dtype, &dims);
            let y = g.push(op.clone(), &[x]);
            g.done(&[y], 1, SB);
        }
    }
    let mut g = graph("layer_norm");
    let c8 = g.c(8);
    let dims = [g.1, g.2, c8];
    let (x, r) = (g.input("x", &dims), g.input("r", &dims));
    let (w, b) = (g.weight(&[8]), g.weight(&[8]));
    let x = g.bin(BinaryOp::Add, x, r);
    let y = g.push(Op::LayerNorm { axis: 2, eps: 1e-5 }, &[x, w, b]);
    let z = g.push(Op::RmsNorm { axis: 2, eps: 1e-5 }, &[y, w]);
    g.done(&[x, z], 1, SB);
}

#[test]
fn late_broadcast_and_outer_sums() {
    let mut g = graph("late");
    let (b, s) = (g.1, g.2);
    let x = g.input("x", &[b]);
    let y = g.input("y", &[s]);
    let e = g.un(UnaryOp::Exp, x);
    let z = g.bin(BinaryOp::Add, e, y);
    let z = g.un(UnaryOp::Abs, z);
    g.done(
        &[z],
        1,
        &[&[("b", 1), ("s", 5)], &[("b", 5), ("s", 1)], &[("b", 4), ("s", 4)], &[("b", 0), ("s", 1)]],
    );

    let mut g = graph("outer");
    let (b, s) = (g.1, g.2);
    let x = g.input("x", &[b, Dim::ONE]);
    let y = g.input("y", &[s]);
    let e = g.un(UnaryOp::Exp, x);
    let z = g.bin(BinaryOp::Add, e, y);
    // A stored value spans its kernel: storing `e` beside `z` would store it once per column.
    g.done(&[z, e], 2, SB);
}

#[test]
fn views_fold() {
    let mut g = graph("views");
    let (b, s) = (g.1, g.2);
    let (c4, c8, c32) = (g.c(4), g.c(8), g.c(32));
    let x = g.input("x", &[b, s, c32]);
    let r = g.push(Op::Reshape { shape: vec![b, s, c4, c8] }, &[x]);
    let t = g.push(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[r]);
    let e = g.un(UnaryOp::Exp, t);
    let back = g.push(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[e]);
    let flat = g.push(Op::Reshape { shape: vec![b, s, c32] }, &[back]);
    let y = g.bin(BinaryOp::Add, flat, x);
    g.done(&[y, t], 2, SB);

    let mut g = graph("slices");
    let (b, s) = (g.1, g.2);
    let (c8, c3, c2) = (g.c(8), g.c(3), g.c(2));
    let last = g.c(7);
    let x = g.input("x", &[b, s, c8]);
    let slice = |start, len, step| Op::Slice {
        start: vec![Dim::ZERO, Dim::ZERO, start],
        len: vec![b, s, len],
        step: vec![1, 1, step],
    };
    let p = g.push(slice(last, c3, -2), &[x]);
    let q = g.push(slice(c2, c3, 1), &[x]);
    let y = g.bin(BinaryOp::Sub, p, q);
    g.done(&[y, p], 2, SB);

    let mut g = graph("odd_reshape");
    let (b, _) = (g.1, g.2);
    let (c4, c6) = (g.c(4), g.c(6));
    let x = g.input("x", &[b, c4, c6]);
    let t = g.push(Op::Transpose { perm: vec![0, 2, 1] }, &[x]);
    let r = g.push(Op::Reshape { shape: vec![b, c4, c6] }, &[t]);
    let y = g.bin(BinaryOp::Add, r, x);
    g.done(&[y], 2, SB);

    let mut g = graph("windows");
    let (b, _) = (g.1, g.2);
    let (c9, c4, c3) = (g.c(9), g.c(4), g.c(3));
    let x = g.input("x", &[b, c9]);
    let w = g.push(Op::Window { axis: 1, count: c4, size: c3, stride: 2, dilation: 1 }, &[x]);
    let y = g.push(Op::Reduce { op: ReduceOp::Max, axes: vec![2], keepdims: false }, &[w]);
    g.done(&[y], 1, SB);
}

#[test]
fn sources_and_reductions_of_broadcasts() {
    let mut g = graph("sources");
    let (b, s) = (g.1, g.2);
    let f = g.push(Op::Fill { value: Scalar::Float(0.5), dtype: DType::F32, shape: vec![b, s] }, &[]);
    let sum = g.push(Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keepdims: false }, &[f]);
    let r = g.push(Op::Range { start: b, step: s, len: s, dtype: DType::F32 }, &[]);
    let d = g.push(Op::Dims { values: vec![b, s, b], scalar: false, dtype: DType::I64 }, &[]);
    let x = g.input("x", &[b, s]);
    let y = g.bin(BinaryOp::Add, x, r);
    let a = g.push(Op::ArgMax { axis: 1, keepdims: true, last: true }, &[f]);
    g.done(&[sum, d, y, x, f, x, r, a], 8, &SB[..4]);
}

#[test]
fn concat_and_pad_store_in_place() {
    let mut g = graph("concat");
    let (b, s) = (g.1, g.2);
    let x = g.input("x", &[b, s]);
    let y = g.input("y", &[b, s]);
    let e = g.un(UnaryOp::Exp, x);
    let a = g.un(UnaryOp::Abs, y);
    let c = g.push(Op::Concat { axis: 1 }, &[e, a, x, x]);
    let c2 = g.push(Op::Concat { axis: 0 }, &[c, c]);
    let z = g.un(UnaryOp::Neg, c);
    g.done(&[c2, z], 7, SB);

    for mode in [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap] {
        let mut g = graph(&format!("pad_{mode}"));
        let (c6, c5) = (g.c(6), g.c(5));
        let (one, two, cut) = (g.c(1), g.c(2), g.c(-1));
        let x = g.input("x", &[c6, c5]);
        let op = Op::Pad { before: vec![two, one], after: vec![two, cut], mode, value: Scalar::Float(3.0) };
        let y = g.push(op, &[x]);
        let n = g.un(UnaryOp::Neg, y);
        g.done(&[n], 6, &[&[]]);
    }
}

#[test]
fn matmul_with_epilogue() {
    let mut g = graph("mlp");
    let (b, s) = (g.1, g.2);
    let c8 = g.c(8);
    let x = g.input("x", &[b, s, c8]);
    let (w, bias) = (g.weight(&[8, 16]), g.weight(&[16]));
    let m = g.0.matmul(x, w).unwrap();
    let m = g.bin(BinaryOp::Add, m, bias);
    let m = g.push(Op::Gelu { tanh: false }, &[m]);
    let w2 = g.weight(&[16, 8]);
    let y = g.0.matmul(m, w2).unwrap();
    let y = g.bin(BinaryOp::Add, y, x);
    let p = g.done(&[y], 2, SB);
    assert_eq!(p.kernels[0].axes.len(), 2, "rows fold into m\n{p}");
    assert!(p.kernels[0].operands[1].packable);
}

fn attention(g: &mut G, x: ValueId, mask: ValueId, heads: i64, d: i64) -> ValueId {
    let (b, s) = (g.1, g.2);
    let (h, hd, w) = (g.c(heads), g.c(d), (heads * d) as usize);
    let full = g.c(heads * d);
    let project = |g: &mut G, perm: &[usize]| {
        let (wt, bias) = (g.weight(&[w, w]), g.weight(&[w]));
        let y = g.0.matmul(x, wt).unwrap();
        let y = g.bin(BinaryOp::Add, y, bias);
        let y = g.push(Op::Reshape { shape: vec![b, s, h, hd] }, &[y]);
        g.push(Op::Transpose { perm: perm.to_vec() }, &[y])
    };
    let q = project(g, &[0, 2, 1, 3]);
    let k = project(g, &[0, 2, 3, 1]);
    let v = project(g, &[0, 2, 1, 3]);
    let scores = g.0.matmul(q, k).unwrap();
    let scale = g.0.scalar(DType::F32, 0.3);
    let scores = g.bin(BinaryOp::Mul, scores, scale);
    let scores = g.bin(BinaryOp::Add, scores, mask);
    let p = g.push(Op::Softmax { axis: 3 }, &[scores]);
    let o = g.0.matmul(p, v).unwrap();
    let o = g.push(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[o]);
    let o = g.push(Op::Reshape { shape: vec![b, s, full] }, &[o]);
    let (wt, bias) = (g.weight(&[w, w]), g.weight(&[w]));
    let y = g.0.matmul(o, wt).unwrap();
    let y = g.bin(BinaryOp::Add, y, bias);
    g.bin(BinaryOp::Add, y, x)
}

#[test]
fn encoder_layers() {
    let mut g = graph("encoder");
    let (b, s) = (g.1, g.2);
    let c8 = g.c(8);
    let ids = g.0.input("ids", DType::I64, &[b, s]);
    let m = g.0.input("mask", DType::I64, &[b, s]);
    let table = g.weight(&[5, 8]);
    let x = g.push(Op::Gather { axis: 0 }, &[table, ids]);
    let m = g.0.cast(m, DType::F32).unwrap();
    let one = g.0.scalar(DType::F32, 1.0);
    let m = g.bin(BinaryOp::Sub, one, m);
    let big = g.0.scalar(DType::F32, -10.0);
    let m = g.bin(BinaryOp::Mul, m, big);
    let m = g.push(Op::Reshape { shape: vec![b, Dim::ONE, Dim::ONE, s] }, &[m]);
    let (w, bias) = (g.weight(&[8]), g.weight(&[8]));
    let mut x = g.push(Op::LayerNorm { axis: 2, eps: 1e-5 }, &[x, w, bias]);
    for _ in 0..2 {
        x = attention(&mut g, x, m, 2, 4);
        x = g.push(Op::LayerNorm { axis: 2, eps: 1e-5 }, &[x, w, bias]);
        let (up, down) = (g.weight(&[8, 16]), g.weight(&[16, 8]));
        let f = g.0.matmul(x, up).unwrap();
        let f = g.push(Op::Gelu { tanh: false }, &[f]);
        let f = g.0.matmul(f, down).unwrap();
        let f = g.bin(BinaryOp::Add, f, x);
        x = g.push(Op::LayerNorm { axis: 2, eps: 1e-5 }, &[f, w, bias]);
    }
    assert_eq!(g.shape(x), vec![b, s, c8]);
    // Seven a layer: projections, attention, out, norm, up, down, norm.
    let p = g.done(&[x], 15, SB);
    assert!(p.splits.iter().all(|s| s.parts.len() == 3) && p.splits.len() == 2, "{p}");
    assert!(p.kernels.len() <= 11, "{} distinct kernels\n{p}", p.kernels.len());
}

#[test]
fn powers_count_their_multiplications() {
    for (n, muls) in [(3, 2), (10, 4), (-8, 3), (11, 5), (15, 6), (20, 5)] {
        let mut g = graph("pow");
        let b = g.1;
        let x = g.input("x", &[b]);
        let e = g.0.scalar(DType::F32, f64::from(n));
        let y = g.bin(BinaryOp::Pow, x, e);
        g.0.output("y", y);
        let p = dvm_fuse::plan(&g.0, &dvm_fuse::FuseOptions::default()).unwrap();
        let is_mul =
            |i: &&dvm_ir::kernel::KInst| matches!(i.op, dvm_ir::kernel::KOp::Binary(BinaryOp::Mul, ..));
        assert_eq!(p.kernels[0].body.iter().filter(is_mul).count(), muls, "x^{n}");
    }
}

#[test]
fn constants_fold_and_norms_stay_whole() {
    let mut g = graph("fold");
    let (b, s) = (g.1, g.2);
    let x = g.input("x", &[b, s]);
    let (c, d) = (g.weight(&[1]), g.weight(&[1, 1]));
    let c = g.un(UnaryOp::Exp, c);
    let c = g.bin(BinaryOp::Add, c, d);
    let y = g.bin(BinaryOp::Mul, x, c);
    let p = g.done(&[y], 1, SB);
    assert_eq!(p.kernels[0].body.len(), 3, "{p}");

    // The square and the sum of squares do not stay with the product whose value they take.
    let mut g = graph("rms");
    let (b, s) = (g.1, g.2);
    let c8 = g.c(8);
    let x = g.input("x", &[b, s, c8]);
    let (w, scale) = (g.weight(&[8, 8]), g.weight(&[8]));
    let y = g.0.matmul(x, w).unwrap();
    let r = g.bin(BinaryOp::Add, y, x);
    let n = g.push(Op::RmsNorm { axis: 2, eps: 1e-5 }, &[r, scale]);
    let y = g.0.matmul(n, w).unwrap();
    let y = g.bin(BinaryOp::Add, y, r);
    g.done(&[y], 3, SB);

    // Variance as the mean of squares less the square of the mean.
    let mut g = graph("moments");
    let (b, s) = (g.1, g.2);
    let c8 = g.c(8);
    let x = g.input("x", &[b, s, c8]);
    let x = g.un(UnaryOp::Tanh, x);
    let mean = |g: &mut G, x| g.push(Op::Reduce { op: ReduceOp::Mean, axes: vec![1], keepdims: true }, &[x]);
    let m = mean(&mut g, x);
    let sq = g.bin(BinaryOp::Mul, x, x);
    let m2 = mean(&mut g, sq);
    let mm = g.bin(BinaryOp::Mul, m, m);
    let v = g.bin(BinaryOp::Sub, m2, mm);
    let c = g.bin(BinaryOp::Sub, x, m);
    let y = g.bin(BinaryOp::Mul, c, v);
    g.done(&[y], 1, SB);
}

#[test]
fn repeated_heads_are_strides() {
    let mut g = graph("heads");
    let (b, s) = (g.1, g.2);
    let (c2, c4, c8) = (g.c(2), g.c(4), g.c(8));
    let q = g.input("q", &[b, c4, s, c8]);
    let k = g.input("k", &[b, c2, Dim::ONE, s, c8]);
    let k = g.push(Op::Expand { shape: vec![b, c2, c2, s, c8] }, &[k]);
    let k = g.push(Op::Reshape { shape: vec![b, c4, s, c8] }, &[k]);
    let y = g.push(Op::MatMul { trans_a: false, trans_b: true }, &[q, k]);
    g.done(&[y], 1, SB);
}

#[test]
fn boundaries_say_why() {
    let mut g = graph("why");
    let (b, s) = (g.1, g.2);
    let c8 = g.c(8);
    let x = g.input("x", &[b, s, c8]);
    let w = g.weight(&[8, 8]);
    let e = g.un(UnaryOp::Exp, x);
    let y = g.0.matmul(e, w).unwrap();
    let y = g.push(Op::Softmax { axis: 2 }, &[y]);
    let p = g.done(&[y], 3, SB);
    let reasons: Vec<&str> = p.boundaries.iter().map(|b| b.reason.as_str()).collect();
    assert_eq!(reasons, ["a matmul needs its operands in memory", "a reduction does not join a matmul"]);
}

#[test]
fn too_many_axes_are_an_error() {
    let mut g = graph("axes");
    let b = g.1;
    let x = g.input("x", &[b; 30]);
    let y =
        g.push(Op::Reduce { op: ReduceOp::Sum, axes: (0..30).step_by(2).collect(), keepdims: false }, &[x]);
    g.0.output("y", y);
    let e = dvm_fuse::plan(&g.0, &dvm_fuse::FuseOptions::default()).unwrap_err();
    assert_eq!(e.to_string(), "reduce: more than 24 axes");
}

/// What keeps two products with rows between them from being one kernel.
#[test]
fn attention_ends_where_others_read() {
    let cases: [(&str, usize, usize); 6] = [
        ("plain", 1, 1),
        ("scores are an output", 0, 3),
        ("rows are an output", 0, 3),
        ("values depend on the scores", 0, 5),
        ("rows are summed over the queries", 0, 3),
        ("transposed rows", 0, 3),
    ];
    for (what, whole, kernels) in cases {
        let mut g = graph("two_products");
        let (b, s) = (g.1, g.2);
        let c8 = g.c(8);
        let q = g.input("q", &[b, s, c8]);
        let k = g.input("k", &[b, c8, s]);
        let mut v = g.input("v", &[b, s, c8]);
        let scores = g.0.matmul(q, k).unwrap();
        let axis = if what == "rows are summed over the queries" { 1 } else { 2 };
        let mut outs = vec![];
        if what == "values depend on the scores" {
            let t = g.push(Op::Reduce { op: ReduceOp::Sum, axes: vec![2], keepdims: true }, &[scores]);
            v = g.bin(BinaryOp::Add, v, t);
        }
        let p = g.push(Op::Softmax { axis }, &[scores]);
        let o = match what {
            "transposed rows" => g.push(Op::MatMul { trans_a: true, trans_b: false }, &[p, v]),
            _ => g.0.matmul(p, v).unwrap(),
        };
        outs.push(o);
        match what {
            "scores are an output" => outs.push(scores),
            "rows are an output" => outs.push(p),
            _ => {}
        }
        for (i, &v) in outs.iter().enumerate() {
            g.0.output(format!("o{i}"), v);
        }
        let p = check(&g.0, SB);
        let found = p.kernels.iter().filter(|k| k.contraction().is_some()).count();
        assert_eq!((found, p.calls.len()), (whole, kernels), "{what}\n{p}");
    }
}
