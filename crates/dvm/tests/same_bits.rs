//! The same graph bound to the same shape gives the same bits: built static or dynamic, after other shapes, on a clone, fused or not;
//! and an element has the same bits whether the body or the tail of a vector loop computes it.

use dvm::{BinaryOp, DType, Graph, Module, Op, Options, Outputs, Session, Tensor, UnaryOp};
use dvm_ir::testing::{Rng, random_tensor};

fn session(module: &Module, fuse: bool) -> Session {
    let mut options = Options::default();
    options.threads = Some(2);
    options.fuse = fuse;
    Session::new(module, options).unwrap()
}

/// Equal bytes; a NaN may have any payload.
fn same(a: &Tensor, b: &Tensor) -> bool {
    let nan = |t: &Tensor, i| t.get(i).as_f64().is_nan();
    let size = a.dtype().size();
    a.shape() == b.shape()
        && (a.bytes() == b.bytes()
            || a.bytes()
                .chunks(size)
                .zip(b.bytes().chunks(size))
                .enumerate()
                .all(|(i, (x, y))| x == y || (nan(a, i) && nan(b, i))))
}

/// Graphs over `N` and `M`, and the shapes of their inputs.
const GRAPHS: &[(&str, &[&[&str]])] = &[
    (
        "(%x: f32[N, M], %y: f32[M]) -> (%z) {\n  %a = mul %x, %y\n  %z = softmax %a {axis = 1}\n}",
        &[&["N", "M"], &["M"]],
    ),
    (
        "(%x: f32[N, M], %y: f32[M]) -> (%z) {\n  %z = layer_norm %x, %y, %y {axis = 1, eps = 1e-5}\n}",
        &[&["N", "M"], &["M"]],
    ),
    (
        "(%x: f32[N, M], %y: f32[M, N]) -> (%z) {\n  %p = matmul %x, %y\n  %g = gelu %p {tanh = true}\n  %z = reduce %g {op = mean, axes = [0]}\n}",
        &[&["N", "M"], &["M", "N"]],
    ),
    (
        "(%x: f16[N, M]) -> (%z, %t) {\n  %e = exp %x\n  %z = reduce %e {op = sum, axes = [0, 1]}\n  %t = cumsum %e {axis = 1}\n}",
        &[&["N", "M"]],
    ),
    (
        "(%x: bf16[N, M], %y: bf16[M]) -> (%z) {\n  %a = mul %x, %y\n  %b = add %a, %y\n  %z = rms_norm %b, %y {axis = 1, eps = 1e-6}\n}",
        &[&["N", "M"], &["M"]],
    ),
    (
        "(%x: f32[N, M]) -> (%z, %i) {\n  %q = mul %x, %x\n  %z = reduce %q {op = sum, axes = [0]}\n  %i = argmax %x {axis = 1}\n}",
        &[&["N", "M"]],
    ),
    (
        "(%x: f32[N, 1], %y: f32[M]) -> (%z) {\n  %a = sub %x, %y\n  %s = sigmoid %a\n  %r = reduce %s {op = max, axes = [1], keepdims = true}\n  %z = div %s, %r\n}",
        &[&["N", "1"], &["M"]],
    ),
    (
        "(%x: f64[N, M]) -> (%z) {\n  %t = transpose %x {perm = [1, 0]}\n  %e = tanh %t\n  %z = reduce %e {op = sum, axes = [1]}\n}",
        &[&["N", "M"]],
    ),
];

fn inputs(graph: &Graph, shapes: &[&[&str]], n: usize, m: usize) -> Vec<(String, Tensor)> {
    let mut rng = Rng::new(n as u64 * 1000 + m as u64);
    let extent = |s: &&str| match *s {
        "N" => n,
        "M" => m,
        one => one.parse().unwrap(),
    };
    let one = |(input, shape): (&dvm::Input, &&[&str])| {
        let shape: Vec<usize> = shape.iter().map(extent).collect();
        (input.name.clone(), random_tensor(graph.dtype(input.value), &shape, -2.0, 2.0, &mut rng))
    };
    graph.inputs.iter().zip(shapes).map(one).collect()
}

#[test]
fn static_dynamic_later_and_cloned() {
    for (body, shapes) in GRAPHS {
        let text = |n: &str, m: &str| {
            let body = body.replace("N, ", &format!("{n}, ")).replace(", N]", &format!(", {n}]"));
            let body = body.replace("[M", &format!("[{m}")).replace("M]", &format!("{m}]"));
            format!("graph g{body}\n")
        };
        let dynamic = Module::from_text(&text("n", "m")).unwrap();
        let graph = dynamic.graph(&[], &[]).unwrap();
        let mut used = session(&dynamic, true);
        for (n, m) in [(3, 70), (70, 3), (1, 1), (0, 5), (130, 1000), (2, 140_000), (5, 4100)] {
            let given = inputs(&graph, shapes, n, m);
            let want = used.run(given.clone()).unwrap();
            let fixed = Module::from_text(&text(&n.to_string(), &m.to_string())).unwrap();
            let others = [
                ("static", session(&fixed, true)),
                ("fresh", session(&dynamic, true)),
                ("clone", session(&dynamic.clone(), true)),
                ("not fused", session(&dynamic, false)),
            ];
            for (what, mut s) in others {
                let got = s.run(given.clone()).unwrap();
                for ((name, a), b) in want.iter().zip(got.values()) {
                    assert!(same(a, b), "{what} {n} x {m}: `{name}` of\n{body}");
                }
            }
            // A second time, from the cache.
            let again = used.run(given).unwrap();
            assert!(want.values().zip(again.values()).all(|(a, b)| same(a, b)), "again {n} x {m}\n{body}");
        }
    }
}

/// All elementwise ops of a dtype in one graph.
fn elementwise(dtype: DType) -> Graph {
    let mut g = Graph::new("elementwise");
    let d = g.dims.symbol("n");
    let (x, y) = (g.input("x", dtype, &[d]), g.input("y", dtype, &[d]));
    let scalar = g.input("s", dtype, &[]);
    let mut outputs = vec![];
    for &op in UnaryOp::ALL {
        outputs.extend(g.push(Op::Unary(op), &[x]).ok().map(|v| (format!("{op}"), v)));
    }
    for &op in BinaryOp::ALL {
        for (how, a, b) in [("", x, y), (" by a scalar", x, scalar), (" of a scalar", scalar, x)] {
            outputs.extend(g.push(Op::Binary(op), &[a, b]).ok().map(|v| (format!("{op}{how}"), v)));
        }
    }
    for (op, name) in [(Op::Clamp {}, "clamp"), (Op::Fma {}, "fma")] {
        outputs.extend(g.push(op, &[x, scalar, y]).ok().map(|v| (name.to_owned(), v)));
    }
    if dtype != DType::Bool {
        let c = g.push(Op::Binary(BinaryOp::Lt), &[x, y]).unwrap();
        outputs.push(("select".into(), g.push(Op::Select {}, &[c, x, y]).unwrap()));
    }
    for &to in DType::ALL {
        outputs.extend(g.push(Op::Cast { to }, &[x]).ok().map(|v| (format!("cast {to}"), v)));
    }
    for (name, v) in outputs {
        g.output(name, v);
    }
    g
}

/// Body equals tail: every length 1..130 of every elementwise op and dtype gives the bits of a longer run.
#[test]
fn body_and_tail() {
    for &dtype in DType::ALL {
        let module = Module::from_graph(elementwise(dtype)).unwrap();
        let mut s = session(&module, true);
        let mut rng = Rng::new(5);
        let range = if dtype.is_float() { (-3.0, 9.0) } else { (1.0, 9.0) };
        let (low, high) = if dtype == DType::Bool { (0.0, 1.0) } else { range };
        let mut tensor = |shape: &[usize]| random_tensor(dtype, shape, low, high, &mut rng);
        let (x, y, c) = (tensor(&[131]), tensor(&[131]), tensor(&[]));
        let size = dtype.size();
        let part = |t: &Tensor, n: usize| Tensor::from_bytes(dtype, &[n], &t.bytes()[..n * size]).unwrap();
        let given =
            |n| vec![("x".to_owned(), part(&x, n)), ("y".into(), part(&y, n)), ("s".into(), c.clone())];
        let whole = s.run(given(131)).unwrap();
        let mut got = Outputs::new();
        for n in 1..=130 {
            s.run_into(&given(n), &mut got).unwrap();
            for ((name, a), b) in got.iter().zip(whole.values()) {
                let size = b.dtype().size();
                let b = Tensor::from_bytes(b.dtype(), &[n], &b.bytes()[..n * size]).unwrap();
                assert!(same(a, &b), "{name} of {dtype}, length {n}");
            }
        }
    }
}
