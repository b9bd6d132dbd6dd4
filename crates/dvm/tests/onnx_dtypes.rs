//! ONNX ops of every dtype the standard gives them, imported and run, against the op of the graph that they mean.

#[path = "../../dvm-onnx/tests/common/mod.rs"]
mod common;

use common::{A, model};
use dvm::{BinaryOp, DType, Graph, Module, Op, Options, ReduceOp, Session, Tensor, UnaryOp};
use dvm_ir::testing::{Rng, difference, random_tensor};
use prost::Message;

/// An ONNX node over `a` (and `b`), and its meaning.
struct Row {
    call: &'static str,
    attrs: Vec<(&'static str, A)>,
    op: Op,
    inputs: usize,
    fits: fn(DType) -> bool,
}

fn row(call: &'static str, op: Op, inputs: usize, fits: fn(DType) -> bool) -> Row {
    Row { call, attrs: vec![], op, inputs, fits }
}

fn numeric(d: DType) -> bool {
    d != DType::Bool
}
fn signed(d: DType) -> bool {
    numeric(d) && !d.is_unsigned()
}
fn integer(d: DType) -> bool {
    d.is_int() && numeric(d)
}

fn rows() -> Vec<Row> {
    use BinaryOp as B;
    let binary = |call, op, fits| row(call, Op::Binary(op), 2, fits);
    let mut rows = vec![
        binary("Add(a, b)", B::Add, numeric),
        binary("Sub(a, b)", B::Sub, numeric),
        binary("Mul(a, b)", B::Mul, numeric),
        binary("Div(a, b)", B::Div, numeric),
        binary("Mod(a, b)", B::Rem, integer),
        binary("Max(a, b)", B::Max, numeric),
        binary("Min(a, b)", B::Min, numeric),
        binary("Less(a, b)", B::Lt, numeric),
        binary("GreaterOrEqual(a, b)", B::Ge, numeric),
        binary("Equal(a, b)", B::Eq, |_| true),
        binary("And(a, b)", B::And, |d| d == DType::Bool),
        binary("Xor(a, b)", B::Xor, |d| d == DType::Bool),
        binary("BitwiseAnd(a, b)", B::And, integer),
        binary("BitwiseXor(a, b)", B::Xor, integer),
        binary("BitShift(a, b)", B::Shr, |d| integer(d) && d.is_unsigned()),
        row("Abs(a)", Op::Unary(UnaryOp::Abs), 1, numeric),
        row("Neg(a)", Op::Unary(UnaryOp::Neg), 1, signed),
        row("Sign(a)", Op::Unary(UnaryOp::Sign), 1, numeric),
        row("Exp(a)", Op::Unary(UnaryOp::Exp), 1, DType::is_float),
        row("Sqrt(a)", Op::Unary(UnaryOp::Sqrt), 1, DType::is_float),
        row("Tanh(a)", Op::Unary(UnaryOp::Tanh), 1, DType::is_float),
        row("Floor(a)", Op::Unary(UnaryOp::Floor), 1, DType::is_float),
        row("Not(a)", Op::Unary(UnaryOp::Not), 1, |d| d == DType::Bool),
        row("BitwiseNot(a)", Op::Unary(UnaryOp::Not), 1, integer),
        row("MatMul(a, b)", Op::MatMul { trans_a: false, trans_b: false }, 2, numeric),
        row("Transpose(a)", Op::Transpose { perm: vec![1, 0] }, 1, |_| true),
        row("Concat(a, b)", Op::Concat { axis: 0 }, 2, |_| true),
        row("Identity(a)", Op::Unary(UnaryOp::Copy), 1, |_| true),
    ];
    for r in &mut rows {
        match r.call {
            "BitShift(a, b)" => r.attrs = vec![("direction", A::S("RIGHT"))],
            "Concat(a, b)" => r.attrs = vec![("axis", A::I(0))],
            _ => {}
        }
    }
    for (call, op) in [
        ("ReduceSum(a)", ReduceOp::Sum),
        ("ReduceMax(a)", ReduceOp::Max),
        ("ReduceMin(a)", ReduceOp::Min),
        ("ReduceProd(a)", ReduceOp::Prod),
    ] {
        let op = Op::Reduce { op, axes: vec![0, 1], keepdims: true };
        rows.push(Row { call, attrs: vec![("keepdims", A::I(1))], op, inputs: 1, fits: numeric });
    }
    rows
}

#[test]
fn every_dtype_of_every_op() {
    let (mut problems, mut count) = (vec![], 0);
    for r in rows() {
        for &dtype in DType::ALL.iter().filter(|&&d| (r.fits)(d)) {
            let mut m = model(18).input("a", dtype, "n, n");
            let mut g = Graph::new("g");
            let n = g.dims.symbol("n");
            let mut values = vec![g.input("a", dtype, &[n, n])];
            if r.inputs == 2 {
                m = m.input("b", dtype, "n, n");
                values.push(g.input("b", dtype, &[n, n]));
            }
            let m = m.node(&format!("{} -> y", r.call), &r.attrs).output("y");
            let y = g.push(r.op.clone(), &values).unwrap();
            g.output("y", y);
            let mut options = Options::default();
            options.threads = Some(2);
            let session =
                Module::from_onnx_bytes(&m.0.encode_to_vec()).and_then(|m| Session::new(&m, options));
            let mut session = match session {
                Ok(s) => s,
                Err(e) => {
                    problems.push(format!("{} {dtype}: {e}", r.call));
                    continue;
                }
            };
            for n in [1, 4, 33] {
                let mut rng = Rng::new(n as u64);
                // Products of many numbers stay small, divisors are not 0.
                let (low, high) = if r.call == "ReduceProd(a)" { (1.0, 1.01) } else { (1.0, 5.0) };
                let names = ["a", "b"].into_iter().take(r.inputs);
                let inputs: Vec<(String, Tensor)> = names
                    .map(|name| (name.to_owned(), random_tensor(dtype, &[n, n], low, high, &mut rng)))
                    .collect();
                let want = dvm_ir::eval::eval_graph(&g, &inputs).unwrap();
                count += 1;
                let tolerance = match dtype {
                    DType::F16 => 2e-3,
                    DType::BF16 => 1.6e-2,
                    _ => 1e-5,
                };
                match session.run(inputs) {
                    Ok(got) => {
                        let d = difference(&got[0], &want[0], tolerance, 1e-6);
                        problems.extend(d.map(|d| format!("{} {dtype} {n}: {d}", r.call)));
                    }
                    Err(e) => problems.push(format!("{} {dtype} {n}: {e}", r.call)),
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} of {count}\n{}", problems.len(), problems.join("\n"));
    assert!(count > 700, "{count} runs");
}
