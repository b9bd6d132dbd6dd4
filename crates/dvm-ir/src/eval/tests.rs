//! Tables of ops with expected values; the figures come from NumPy.

use super::*;
use crate::{BinaryOp, Op, Scalar, TensorType, UnaryOp};

/// A tensor of `dtype` from numbers.
fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape).unwrap();
    assert_eq!(t.len(), values.len(), "{shape:?}");
    values.iter().enumerate().for_each(|(i, &v)| t.set(i, Scalar::Float(v)));
    t
}

/// A graph of one op over inputs of constant shapes, whose result is declared as `ty`.
fn single(op: Op, inputs: &[&Tensor], dtype: DType, shape: &[usize]) -> Graph {
    let mut g = Graph::new("single");
    let dims = |g: &mut Graph, s: &[usize]| s.iter().map(|&d| g.dims.constant(d as i64)).collect::<Vec<_>>();
    let mut args = vec![];
    for (i, t) in inputs.iter().enumerate() {
        let shape = dims(&mut g, t.shape());
        args.push(g.input(format!("x{i}"), t.dtype(), &shape));
    }
    let shape = dims(&mut g, shape);
    let y = g.push_typed(op, &args, TensorType { dtype, shape }, None);
    g.output("y", y);
    g
}

fn run(op: Op, inputs: &[&Tensor], dtype: DType, shape: &[usize]) -> Result<Tensor, EvalError> {
    let named: Vec<(String, Tensor)> =
        inputs.iter().enumerate().map(|(i, &t)| (format!("x{i}"), t.clone())).collect();
    eval_graph(&single(op, inputs, dtype, shape), &named).map(|mut v| v.remove(0))
}

/// The op gives these values, up to `tolerance` (absolute and relative).
fn check(op: Op, inputs: &[Tensor], want: &Tensor, tolerance: f64) {
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let got = run(op.clone(), &refs, want.dtype(), want.shape()).unwrap();
    for i in 0..want.len() {
        let (g, w) = (got.get(i).as_f64(), want.get(i).as_f64());
        let close = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tolerance * (1.0 + w.abs());
        assert!(close, "{op:?} of {inputs:?}, element {i}: got {g}, want {w}");
    }
}

#[test]
fn unary_smoke() {
    let x = tensor(DType::F32, &[4], &[-1.5, 0.5, 2.5, f64::NAN]);
    check(
        Op::Unary(UnaryOp::Round),
        std::slice::from_ref(&x),
        &tensor(DType::F32, &[4], &[-2.0, 0.0, 2.0, f64::NAN]),
        0.0,
    );
    check(
        Op::Binary(BinaryOp::Max),
        &[x, tensor(DType::F32, &[], &[0.0])],
        &tensor(DType::F32, &[4], &[0.0, 0.5, 2.5, f64::NAN]),
        0.0,
    );
}

#[test]
fn matmul_shapes() {
    let iota = |n: usize| (0..n).map(|i| i as f64).collect::<Vec<_>>();
    for (m, k, n) in [(0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 1), (3, 5, 7), (2, 9, 4)] {
        let (a, b) = (tensor(DType::F32, &[m, k], &iota(m * k)), tensor(DType::F32, &[k, n], &iota(k * n)));
        let cell = |i: usize, j: usize| (0..k).map(|l| (i * k + l) as f64 * (l * n + j) as f64).sum::<f64>();
        let want: Vec<f64> = (0..m * n).map(|x| cell(x / n, x % n)).collect();
        check(
            Op::MatMul { trans_a: false, trans_b: false },
            &[a, b],
            &tensor(DType::F32, &[m, n], &want),
            0.0,
        );
    }
}

#[test]
fn random_graphs_evaluate() {
    let config = crate::testing::Config::default();
    let mut failures = vec![];
    for seed in 0..300 {
        let case = crate::testing::random_graph(seed, &config);
        for i in 0..case.bindings.len() {
            if let Err(e) = eval_graph(&case.graph, &case.inputs(i, seed)) {
                failures.push(format!("seed {seed}, binding {i}: {e}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
