//! The table of ops (`cases.txt`), binding, and properties over random graphs.

use std::collections::HashMap;

use super::*;
use crate::{
    Attr, AttrKind, BinaryOp, CheckCond, IrError, Op, ReduceOp, Scalar, TensorType, UnaryOp, ValueId, testing,
};

/// `dtype[shape] values..`.
fn tensor(text: &str) -> Tensor {
    let (dtype, rest) = text.split_once('[').unwrap();
    let (shape, values) = rest.split_once(']').unwrap();
    let shape: Vec<usize> = shape.split(',').filter(|s| !s.is_empty()).map(|n| n.parse().unwrap()).collect();
    let mut t = Tensor::zeros(DType::from_name(dtype).unwrap(), &shape).unwrap();
    let values: Vec<&str> = values.split_whitespace().collect();
    assert_eq!(values.len(), t.len(), "{text}");
    for (i, v) in values.iter().enumerate() {
        let value = if t.dtype().is_float() {
            Scalar::Float(v.parse().unwrap())
        } else {
            Scalar::Int(v.parse::<i128>().unwrap() as i64)
        };
        t.set(i, value);
    }
    t
}

fn attr(text: &str) -> Attr {
    let list = |s: &str| s.split(", ").filter(|s| !s.is_empty()).map(|n| n.parse().unwrap()).collect();
    match text {
        "true" => Attr::Bool(true),
        "false" => Attr::Bool(false),
        _ => match (text.strip_prefix('['), text.parse::<i64>(), text.parse::<f64>()) {
            (Some(rest), ..) => Attr::Ints(list(rest.strip_suffix(']').unwrap())),
            (_, Ok(i), _) => Attr::Int(i),
            (.., Ok(x)) => Attr::Float(x),
            _ => Attr::Word(text.into()),
        },
    }
}

/// The op of `mnemonic {attributes}`; integers become dims where the op wants dims.
fn op(mnemonic: &str, attrs: &str, g: &mut Graph) -> Op {
    let named = |s: &str| s.split_once(" = ").map(|(k, v)| (k.to_string(), attr(v))).unwrap();
    // Attributes are separated by a comma before a name, list elements by a comma before a number.
    let mut parts: Vec<String> = vec![];
    for p in attrs.split(", ").filter(|p| !p.is_empty()) {
        match parts.last_mut() {
            Some(last) if !p.contains(" = ") => *last += &format!(", {p}"),
            _ => parts.push(p.to_string()),
        }
    }
    let values: HashMap<String, Attr> = parts.iter().map(|p| named(p)).collect();
    let made = Op::from_parts(mnemonic, |name, kind| {
        Some(match (values.get(name)?.clone(), kind) {
            (Attr::Int(i), AttrKind::Dim) => Attr::Dim(g.dims.constant(i)),
            (Attr::Ints(v), AttrKind::Dims) => Attr::Dims(v.iter().map(|&i| g.dims.constant(i)).collect()),
            (Attr::Int(i), AttrKind::Float) => Attr::Float(i as f64),
            (value, _) => value,
        })
    });
    let made = made.unwrap_or_else(|| panic!("no op {mnemonic}"));
    made.unwrap_or_else(|bad| panic!("{mnemonic} needs {}: {}", bad.name, bad.kind))
}

/// Runs one line of the table; the differences as text.
fn run_case(line: &str) -> Result<(), String> {
    let (left, want) = line.split_once(" => ").unwrap();
    let (mnemonic, rest) = left.split_once(' ').unwrap_or((left, ""));
    let (attrs, operands) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}').unwrap(),
        None => ("", rest),
    };
    let operands: Vec<Tensor> =
        operands.split(" | ").filter(|s| !s.trim().is_empty()).map(|s| tensor(s.trim())).collect();
    let mut g = Graph::new("case");
    let op = op(mnemonic, attrs, &mut g);
    let mut args = vec![];
    let mut named = vec![];
    for (i, t) in operands.iter().enumerate() {
        let shape: Vec<Dim> = t.shape().iter().map(|&d| g.dims.constant(d as i64)).collect();
        args.push(g.input(format!("x{i}"), t.dtype(), &shape));
        named.push((format!("x{i}"), t.clone()));
    }
    let text = want.strip_prefix("error: ");
    let y = match text {
        // Inference may refuse it before; here the evaluator must.
        Some(_) => g.push_typed(op, &args, TensorType { dtype: DType::F32, shape: vec![] }, None),
        None => g.push(op, &args).map_err(|e| e.to_string())?,
    };
    g.output("y", y);
    match (eval_graph(&g, &named), text) {
        (Ok(got), None) => same(&got[0], &tensor(want)),
        (Err(e), Some(text)) if e.to_string() == text => Ok(()),
        (got, _) => Err(format!("got {got:?}")),
    }
}

/// Equal bits (any NaN for NaN); f64 within a few ULP, as NumPy's functions are not correctly rounded.
fn same(got: &Tensor, want: &Tensor) -> Result<(), String> {
    let tolerance = if want.dtype() == DType::F64 { 1e-15 } else { 0.0 };
    if let Some(d) = testing::difference(got, want, tolerance, 0.0) {
        return Err(d);
    }
    let signs =
        |t: &Tensor, i: usize| matches!(t.get(i), Scalar::Float(x) if x == 0.0 && x.is_sign_negative());
    match (0..want.len()).find(|&i| signs(got, i) != signs(want, i)) {
        Some(i) => Err(format!("element {i}: the zero has another sign")),
        None => Ok(()),
    }
}

#[test]
fn table_of_ops() {
    let cases = include_str!("cases.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let failures: Vec<String> =
        cases.filter_map(|l| run_case(l).err().map(|e| format!("{l}\n    {e}"))).collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Builds the primitive form of a composite.
type Formula = fn(&mut Graph, ValueId) -> Result<ValueId, IrError>;

fn softmax(g: &mut Graph, x: ValueId) -> Result<ValueId, IrError> {
    let max = g.reduce(ReduceOp::Max, x, &[1], true)?;
    let shifted = g.sub(x, max)?;
    let exp = g.unary(UnaryOp::Exp, shifted)?;
    let sum = g.reduce(ReduceOp::Sum, exp, &[1], true)?;
    g.div(exp, sum)
}

/// `(x - shift) / sqrt(mean((x - shift)^2) + eps)`.
fn normalised(g: &mut Graph, x: ValueId, eps: f64) -> Result<ValueId, IrError> {
    let square = g.mul(x, x)?;
    let mean = g.reduce(ReduceOp::Mean, square, &[1], true)?;
    let eps = g.scalar(DType::F64, eps);
    let sum = g.add(mean, eps)?;
    let root = g.unary(UnaryOp::Sqrt, sum)?;
    g.div(x, root)
}

fn gelu(g: &mut Graph, x: ValueId) -> Result<ValueId, IrError> {
    let (half, one, scale) =
        (g.scalar(DType::F64, 0.5), g.scalar(DType::F64, 1.0), g.scalar(DType::F64, 0.5f64.sqrt()));
    let scaled = g.mul(x, scale)?;
    let erf = g.unary(UnaryOp::Erf, scaled)?;
    let sum = g.add(erf, one)?;
    let halved = g.mul(x, half)?;
    g.mul(halved, sum)
}

#[test]
fn composites_equal_their_formulas() {
    let one = |g: &mut Graph| g.scalar(DType::F64, 1.0);
    let reduce = |op| Op::Reduce { op, axes: vec![1], keepdims: true };
    let cases: [(Op, usize, Formula); 10] = [
        (Op::Softmax { axis: 1 }, 1, softmax),
        (Op::LogSoftmax { axis: 1 }, 1, |g, x| {
            let p = softmax(g, x)?;
            g.unary(UnaryOp::Ln, p)
        }),
        (Op::LayerNorm { axis: 1, eps: 1e-5 }, 2, |g, x| {
            let mean = g.reduce(ReduceOp::Mean, x, &[1], true)?;
            let centred = g.sub(x, mean)?;
            normalised(g, centred, 1e-5)
        }),
        (Op::RmsNorm { axis: 1, eps: 1e-3 }, 2, |g, x| normalised(g, x, 1e-3)),
        (Op::Gelu { tanh: false }, 1, gelu),
        (Op::Silu {}, 1, |g, x| {
            let s = g.unary(UnaryOp::Sigmoid, x)?;
            g.mul(x, s)
        }),
        (reduce(ReduceOp::Mean), 1, |g, x| {
            let n = g.shape(x)[1];
            let sum = g.reduce(ReduceOp::Sum, x, &[1], true)?;
            let n = g.push(Op::Dims { values: vec![n], scalar: true, dtype: DType::F64 }, &[])?;
            g.div(sum, n)
        }),
        (reduce(ReduceOp::L1), 1, |g, x| {
            let abs = g.unary(UnaryOp::Abs, x)?;
            g.reduce(ReduceOp::Sum, abs, &[1], true)
        }),
        (reduce(ReduceOp::L2), 1, |g, x| {
            let square = g.mul(x, x)?;
            let sum = g.reduce(ReduceOp::Sum, square, &[1], true)?;
            g.unary(UnaryOp::Sqrt, sum)
        }),
        (reduce(ReduceOp::LogSumExp), 1, |g, x| {
            let exp = g.unary(UnaryOp::Exp, x)?;
            let sum = g.reduce(ReduceOp::Sum, exp, &[1], true)?;
            g.unary(UnaryOp::Ln, sum)
        }),
    ];
    let mut rng = testing::Rng::new(7);
    for (op, operands, formula) in cases {
        let mut g = Graph::new("composite");
        let shape = [g.dims.symbol("r"), g.dims.symbol("c")];
        let x = g.input("x", DType::F64, &shape);
        let mut args = vec![x];
        args.resize_with(operands, || one(&mut g));
        let composite = g.push(op.clone(), &args).unwrap();
        let primitive = formula(&mut g, x).unwrap();
        g.output("composite", composite);
        g.output("primitive", primitive);
        for (rows, cols) in [(0, 3), (1, 1), (2, 7), (5, 33)] {
            let x = testing::random_tensor(DType::F64, &[rows, cols], -3.0, 3.0, &mut rng);
            let y = eval_graph(&g, &[("x", x)]).unwrap();
            assert_eq!(testing::difference(&y[0], &y[1], 1e-12, 1e-13), None, "{op:?} of [{rows}, {cols}]");
        }
    }
}

/// Random graphs are well formed, evaluate under each of their bindings, and do so alike every time.
#[test]
fn random_graphs_evaluate() {
    let config = testing::Config::default();
    let mut failures = vec![];
    for seed in 0..200 {
        let case = testing::random_graph(seed, &config);
        if let Err(violations) = case.graph.verify() {
            failures.push(format!("seed {seed}: {violations:?}"));
        }
        for i in 0..case.bindings.len() {
            let inputs = case.inputs(i, seed);
            match (eval_graph(&case.graph, &inputs), eval_graph(&case.graph, &inputs)) {
                (Ok(a), Ok(b)) => failures.extend(case.difference(&a, &b)),
                (a, _) => failures.push(format!("seed {seed}, binding {i}: {a:?}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A graph of one input of these dims (`s + 1` is `next`, `2*t` is `twice`), run on this shape.
fn bound(declared: &[&str], given: &[&[usize]]) -> String {
    let mut g = Graph::new("bind");
    let (s, t, two) = (g.dims.symbol("s"), g.dims.symbol("t"), g.dims.constant(2));
    let (next, twice) = (g.dims.add(s, Dim::ONE), g.dims.mul(two, t));
    let mut inputs = vec![];
    for (i, (names, shape)) in declared.iter().zip(given).enumerate() {
        let dims: Vec<Dim> = names
            .split_whitespace()
            .map(|n| match n {
                "s" => s,
                "next" => next,
                "twice" => twice,
                n => g.dims.constant(n.parse().unwrap()),
            })
            .collect();
        let name = format!("x{i}");
        let v = g.input(&name, DType::F32, &dims);
        g.output(format!("y{i}"), v);
        inputs.push((name, Tensor::zeros(DType::F32, shape).unwrap()));
    }
    let values = g.push(Op::Dims { values: vec![s, t], scalar: false, dtype: DType::I64 }, &[]).unwrap();
    g.output("values", values);
    match eval_graph(&g, &inputs) {
        Ok(out) => format!("{:?}", out.last().unwrap().as_slice::<i64>().unwrap()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn binding() {
    for (declared, given, want) in [
        (&["s twice"][..], &[&[3, 8][..]][..], "[3, 4]"),
        (&["next twice"], &[&[3, 0]], "[2, 0]"),
        (&["s", "next twice"], &[&[4], &[5, 2]], "[4, 1]"),
        (&["s"], &[&[4]], "dims n0: symbol `t` is not bound"),
        (&["s s"], &[&[4, 5]], "input `x0`, axis 1: declared `s` = 4 (input `x0`, axis 0), got 5"),
        (&["s", "2 s"], &[&[4], &[2, 3]], "input `x1`, axis 1: declared `s` = 4 (input `x0`, axis 0), got 3"),
        (&["s", "next"], &[&[4], &[4]], "input `x1`, axis 0: declared `s + 1` = 5, got 4"),
        (&["7"], &[&[6]], "input `x0`, axis 0: declared `7`, got 6"),
        (&["twice"], &[&[5]], "input `x0`, axis 0: symbol `t` is not bound"),
        (&["next"], &[&[0]], "input `x0`, axis 0: symbol `s` is not bound"),
        (&["s 2"], &[&[4]], "input `x0` has rank 2 ([s, 2]), got shape [4]"),
    ] {
        assert_eq!(bound(declared, given), want, "{declared:?} {given:?}");
    }
}

#[test]
fn binding_names_and_checks() {
    let mut g = Graph::new("names");
    let (a, b) = (g.dims.symbol("a"), g.dims.symbol("b"));
    let x = g.input("x", DType::F32, &[a]);
    let y = g.input("y", DType::F32, &[b]);
    let sum = g.push_named(Op::Binary(BinaryOp::Add), &[x, y], "sum").unwrap();
    g.output("z", sum);
    let limit = g.dims.constant(8);
    g.assume(CheckCond::AtMost(a, limit), "limit of the cache").unwrap();
    let t = |n| Tensor::zeros(DType::F32, &[n]).unwrap();
    let run = |inputs: &[(&str, Tensor)]| eval_graph(&g, inputs).map(|_| ()).map_err(|e| e.to_string());
    for (inputs, want) in [
        (vec![("x", t(3)), ("y", t(3))], ""),
        (vec![("y", t(1)), ("x", t(3))], ""),
        (vec![("x", t(3))], "input `y` is missing"),
        (vec![("x", t(3)), ("x", t(3))], "input `x` is given twice"),
        (vec![("q", t(3))], "there is no input `q`; the inputs are `x`, `y`"),
        (vec![("x", Tensor::zeros(DType::I8, &[3]).unwrap()), ("y", t(3))], "input `x` is f32, got i8"),
        (
            vec![("x", t(3)), ("y", t(2))],
            "add \"sum\": axis 0 of \"y\" and \"x\": `a ~ b` must hold, but `a` is 3 and `b` is 2",
        ),
        (vec![("x", t(9)), ("y", t(9))], "limit of the cache: `a <= 8` must hold, but `a` is 9"),
    ] {
        assert_eq!(run(&inputs).err().unwrap_or_default(), want);
    }
}

/// Integer inputs whose elements are sizes.
#[test]
fn elements_are_sizes() {
    let mut g = Graph::new("sizes");
    let (n, two) = (g.dims.value_symbol("n"), g.dims.constant(2));
    let half = g.dims.floor_div(n, two);
    let sizes = g.input("sizes", DType::I32, &[two]);
    g.inputs[0].elements = Some(vec![n, half]);
    let y = g.push(Op::Fill { value: Scalar::Int(1), dtype: DType::I8, shape: vec![n] }, &[]).unwrap();
    g.output("y", y);
    g.output("sizes", sizes);
    for (given, want) in [
        ([5, 2], "[5]"),
        ([0, 0], "[0]"),
        ([5, 3], "input `sizes`, element 1: declared `floordiv(n, 2)` = 2, got 3"),
        ([-2, -1], "fill: extent of axis 0: `0 <= n` must hold, but `n` is -2"),
    ] {
        let got = eval_graph(&g, &[("sizes", Tensor::from_slice(&[2], &given).unwrap())]);
        assert_eq!(got.map_or_else(|e| e.to_string(), |out| format!("{:?}", out[0].shape())), want);
    }
}
