//! Large and odd graphs plan in reasonable time, without deep recursion.

use dvm_fuse::{FuseLimits, FuseOptions, plan};
use dvm_ir::{BinaryOp, DType, Dim, Graph, Op, Scalar, Tensor, UnaryOp};

fn check(g: &Graph) -> usize {
    let limits = FuseLimits { ops: usize::MAX, operands: usize::MAX, live: usize::MAX };
    for opts in [
        FuseOptions::default(),
        FuseOptions { fuse: false, ..FuseOptions::default() },
        FuseOptions { limits, ..FuseOptions::default() },
    ] {
        let p = plan(g, &opts).unwrap_or_else(|e| panic!("{}: {e}", g.name));
        assert_eq!(p.verify(), Ok(()), "{}", g.name);
    }
    plan(g, &FuseOptions::default()).unwrap().calls.len()
}

#[test]
fn long_chains_of_views() {
    let mut g = Graph::new("views");
    let s = g.dims.symbol("s");
    let c4 = g.dims.constant(4);
    let mut x = g.input("x", DType::F32, &[s, c4]);
    for _ in 0..1000 {
        x = g.transpose(x, &[1, 0]).unwrap();
        x = g.reshape(x, &[s, c4]).unwrap();
    }
    let x = g.unary(UnaryOp::Exp, x).unwrap();
    g.output("y", x);
    assert!(check(&g) <= 1001);

    let mut g = Graph::new("slices");
    let s = g.dims.symbol("s");
    let mut x = g.input("x", DType::F32, &[s]);
    for i in 0..2000 {
        let op = if i % 2 == 0 {
            Op::Slice { start: vec![Dim::ZERO], len: vec![s], step: vec![1] }
        } else {
            let start = g.dims.sub(s, Dim::ONE);
            Op::Slice { start: vec![start], len: vec![s], step: vec![-1] }
        };
        x = g.push(op, &[x]).unwrap();
        let y = g.unary(UnaryOp::Neg, x).unwrap();
        x = g.binary(BinaryOp::Max, x, y).unwrap();
    }
    g.output("y", x);
    check(&g);
}

#[test]
fn long_chains_of_ops() {
    let mut g = Graph::new("ops");
    let s = g.dims.symbol("s");
    let mut x = g.input("x", DType::F32, &[s]);
    let y = g.input("y", DType::F32, &[s]);
    for i in 0..3000 {
        x = if i % 2 == 0 { g.add(x, y).unwrap() } else { g.sub(x, y).unwrap() };
    }
    g.output("y", x);
    assert!(check(&g) <= 60);
}

#[test]
fn nested_and_wide_concatenations() {
    let mut g = Graph::new("nested");
    let s = g.dims.symbol("s");
    let x = g.input("x", DType::F32, &[s]);
    let e = g.unary(UnaryOp::Exp, x).unwrap();
    let mut c = e;
    for _ in 0..200 {
        c = g.concat(&[c, x], 0).unwrap();
    }
    let all = vec![x; 500];
    let wide = g.concat(&all, 0).unwrap();
    g.output("c", c);
    g.output("wide", wide);
    check(&g);
}

#[test]
fn many_readers_and_outputs() {
    let mut g = Graph::new("readers");
    let s = g.dims.symbol("s");
    let x = g.input("x", DType::F32, &[s]);
    let w = g.constant(None, Tensor::scalar(DType::F32, Scalar::Float(0.5)));
    let e = g.unary(UnaryOp::Exp, x).unwrap();
    for i in 0..1000 {
        let y = if i % 2 == 0 { g.unary(UnaryOp::Tanh, e).unwrap() } else { g.add(e, w).unwrap() };
        let y = g.unary(UnaryOp::Sin, y).unwrap();
        g.output(format!("o{i}"), y);
        g.output(format!("e{i}"), e);
    }
    check(&g);
}
