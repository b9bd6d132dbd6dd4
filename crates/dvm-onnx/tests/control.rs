//! Branches, loops, recurrent ops and shapes that depend on data, by the reference evaluator.

mod common;

use common::*;
use dvm_ir::eval::eval_graph;
use dvm_ir::{DType, Tensor};
use dvm_onnx::proto::{GraphProto, ValueInfoProto};
use dvm_onnx::{ImportError, ImportOptions, import_deciding, import_model};

const F: DType = DType::F32;

/// A body: inputs and outputs by name, separated by commas.
fn body(inputs: &str, outputs: &str, nodes: &[(&str, &[(&str, A)])]) -> GraphProto {
    let infos = |s: &str| -> Vec<ValueInfoProto> {
        let names = s.split(',').map(str::trim).filter(|n| !n.is_empty());
        names.map(|n| ValueInfoProto { name: Some(n.into()), r#type: None }).collect()
    };
    GraphProto {
        input: infos(inputs),
        output: infos(outputs),
        node: nodes.iter().map(|(text, attrs)| node(text, attrs)).collect(),
        ..Default::default()
    }
}

/// Inputs by name, and the results they must have.
type Row<'a> = (Vec<(&'a str, Tensor)>, Vec<Tensor>);

/// One import serves all rows.
fn check(m: &Model, rows: &[Row<'_>]) {
    let g = import_model(&m.0, &ImportOptions::default()).unwrap().graph;
    g.verify().unwrap_or_else(|v| panic!("{v:?}\n{g}"));
    for (inputs, want) in rows {
        same(&eval_graph(&g, inputs).unwrap_or_else(|e| panic!("{e}\n{g}")), want, &format!("{inputs:?}"));
    }
}

/// Branches are decided by the inputs of each row.
fn check_deciding(m: &Model, rows: &[Row<'_>]) {
    for (inputs, want) in rows {
        let g = import_deciding(&m.0, &ImportOptions::default(), inputs).unwrap().graph;
        let used: Vec<_> =
            inputs.iter().filter(|(n, _)| g.inputs.iter().any(|i| i.name == *n)).cloned().collect();
        same(&eval_graph(&g, &used).unwrap_or_else(|e| panic!("{e}\n{g}")), want, &format!("{inputs:?}"));
    }
}

fn same(got: &[Tensor], want: &[Tensor], what: &str) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert_eq!((g.dtype(), g.shape()), (w.dtype(), w.shape()), "{what}");
        for i in 0..w.len() {
            let (g, w) = (g.get(i).as_f64(), w.get(i).as_f64());
            assert!((g - w).abs() < 1e-6, "{what}: element {i} is {g}, want {w}");
        }
    }
}

fn scalar(x: f32) -> Tensor {
    f32s(&[], &[x])
}

/// `if sum(x) > 0 { THEN } else { ELSE }`.
fn on_sum(then: GraphProto, or: GraphProto) -> Model {
    model(18)
        .input("x", F, "n")
        .init("zero", scalar(0.0))
        .node("ReduceSum(x) -> s", &[("keepdims", A::I(0))])
        .node("Greater(s, zero) -> p", &[])
        .node("If(p) -> y", &[("then_branch", A::G(then)), ("else_branch", A::G(or))])
        .output("y")
}

#[test]
fn computed_conditions() {
    let m = on_sum(
        body("", "a", &[("Add(x, x) -> a", &[])]),
        body("", "b", &[("Neg(x) -> c", &[]), ("Concat(c, c) -> b", &[("axis", A::I(0))])]),
    );
    let (up, down) = (f32s(&[2], &[1.0, 2.0]), f32s(&[2], &[-1.0, -2.0]));
    check(
        &m,
        &[
            (vec![("x", up.clone())], vec![f32s(&[2], &[2.0, 4.0])]),
            (vec![("x", down.clone())], vec![f32s(&[4], &[1.0, 2.0, 1.0, 2.0])]),
        ],
    );
    // Another rank is another graph: the condition is computed first.
    let ranks = on_sum(
        body("", "a", &[("ReduceSum(x) -> a", &[("keepdims", A::I(0))])]),
        body("", "b", &[("Neg(x) -> b", &[])]),
    );
    let Err(ImportError::NeedsOutcome { condition }) = import_model(&ranks.0, &ImportOptions::default())
    else {
        panic!("the branches have different ranks")
    };
    assert!(condition.dim.is_none());
    check_deciding(
        &ranks,
        &[(vec![("x", up)], vec![scalar(3.0)]), (vec![("x", down)], vec![f32s(&[2], &[1.0, 2.0])])],
    );
}

#[test]
fn conditions_on_shapes_and_elements() {
    let m = model(18)
        .input("x", F, "n, m")
        .input("k", DType::I64, "")
        .init("two", i64s(&[], &[2]))
        .ints("zero", &[0])
        .node("Shape(x) -> s", &[])
        .node("Gather(s, zero) -> rows", &[])
        .node("Squeeze(rows) -> r", &[])
        .node("Less(r, two) -> small", &[])
        .node("Equal(k, two) -> even", &[])
        .node("And(small, even) -> p", &[])
        .node(
            "If(p) -> y",
            &[
                ("then_branch", A::G(body("", "a", &[("Squeeze(x, zero) -> a", &[])]))),
                ("else_branch", A::G(body("", "b", &[("Add(x, x) -> b", &[])]))),
            ],
        )
        .output("y");
    let Err(ImportError::NeedsOutcome { condition }) = import_model(&m.0, &ImportOptions::default()) else {
        panic!("the condition depends on a shape")
    };
    assert!(condition.dim.is_some());
    let row = |n: usize, k: i64| vec![("x", arange(&[n, 2])), ("k", i64s(&[], &[k]))];
    check_deciding(
        &m,
        &[
            (row(1, 2), vec![f32s(&[2], &[0.0, 1.0])]),
            (row(1, 3), vec![f32s(&[1, 2], &[0.0, 2.0])]),
            (row(2, 2), vec![f32s(&[2, 2], &[0.0, 2.0, 4.0, 6.0])]),
        ],
    );
    // One import for every shape of an outcome.
    let mut opts = ImportOptions::default();
    opts.outcomes = vec![false];
    let g = import_model(&m.0, &opts).unwrap().graph;
    assert!(g.controls.is_empty());
    for n in [2, 5] {
        assert_eq!(eval_graph(&g, &row(n, 2)).unwrap()[0].shape(), [n, 2]);
    }
}

#[test]
fn loops() {
    // y grows by x each time until its sum exceeds a limit; the sums are stacked.
    let grow = body(
        "i, go, y",
        "more, z, s",
        &[
            ("Concat(y, x) -> z", &[("axis", A::I(0))]),
            ("ReduceSum(z) -> s", &[("keepdims", A::I(0))]),
            ("Less(s, limit) -> more", &[]),
        ],
    );
    let m = model(18)
        .input("x", F, "n")
        .input("most", DType::I64, "")
        .init("limit", scalar(10.0))
        .init("none", f32s(&[0], &[]))
        .node("Loop(most, , none) -> y, sums", &[("body", A::G(grow))])
        .output("y")
        .output("sums");
    let run = |most: i64| vec![("x", f32s(&[2], &[1.0, 3.0])), ("most", i64s(&[], &[most]))];
    check(
        &m,
        &[
            (run(9), vec![f32s(&[6], &[1.0, 3.0, 1.0, 3.0, 1.0, 3.0]), f32s(&[3], &[4.0, 8.0, 12.0])]),
            (run(1), vec![f32s(&[2], &[1.0, 3.0]), f32s(&[1], &[4.0])]),
            (run(0), vec![f32s(&[0], &[]), f32s(&[0], &[])]),
        ],
    );
    // The iteration as a size, an `If` on it, and a loop within.
    let inner = body("j, on, w", "on, v", &[("Add(w, one) -> v", &[])]);
    let outer = body(
        "i, go, acc",
        "go, next, row",
        &[
            ("Unsqueeze(i, axis) -> at", &[]),
            ("Slice(x, axis, at) -> head", &[]),
            ("ReduceSum(head) -> s", &[("keepdims", A::I(0))]),
            ("Equal(i, first) -> p", &[]),
            (
                "If(p) -> t",
                &[
                    ("then_branch", A::G(body("", "a", &[("Identity(big) -> a", &[])]))),
                    ("else_branch", A::G(body("", "b", &[("Identity(s) -> b", &[])]))),
                ],
            ),
            ("Loop(i, , acc) -> up", &[("body", A::G(inner))]),
            ("Add(up, t) -> next", &[]),
            ("Identity(next) -> row", &[]),
        ],
    );
    let m = model(18)
        .input("x", F, "n")
        .init("one", scalar(1.0))
        .init("big", scalar(100.0))
        .init("start", scalar(0.0))
        .init("first", i64s(&[], &[0]))
        .ints("axis", &[0])
        .node("Shape(x) -> s", &[])
        .node("Squeeze(s) -> n", &[])
        .node("Loop(n, , start) -> last, rows", &[("body", A::G(outer))])
        .output("last")
        .output("rows");
    // 0: 100. 1: 100 + 1 + x0. 2: that + 2 + x0 + x1.
    check(
        &m,
        &[(
            vec![("x", f32s(&[3], &[1.0, 2.0, 4.0]))],
            vec![scalar(107.0), f32s(&[3], &[100.0, 102.0, 107.0])],
        )],
    );
}

#[test]
fn scans() {
    let step =
        body("h, x, w", "g, y", &[("Add(h, x) -> t", &[]), ("Mul(t, w) -> g", &[]), ("Neg(g) -> y", &[])]);
    let m = model(18)
        .input("h", F, "b")
        .input("x", F, "b, t")
        .input("w", F, "t, b")
        .node(
            "Scan(h, x, w) -> last, all",
            &[
                ("body", A::G(step)),
                ("num_scan_inputs", A::I(2)),
                ("scan_input_axes", A::Is(vec![1, 0])),
                ("scan_input_directions", A::Is(vec![1, 0])),
                ("scan_output_axes", A::Is(vec![1])),
                ("scan_output_directions", A::Is(vec![1])),
            ],
        )
        .output("last")
        .output("all");
    let inputs = vec![
        ("h", f32s(&[1], &[1.0])),
        ("x", f32s(&[1, 3], &[1.0, 2.0, 3.0])),
        ("w", f32s(&[3, 1], &[1.0, 2.0, 3.0])),
    ];
    // (1 + 3) * 1 = 4, (4 + 2) * 2 = 12, (12 + 1) * 3 = 39.
    check(&m, &[(inputs, vec![f32s(&[1], &[39.0]), f32s(&[1, 3], &[-39.0, -12.0, -4.0])])]);
}

#[test]
fn sizes_that_are_computed() {
    let m = model(18)
        .input("x", F, "n")
        .init("zero", scalar(0.0))
        .ints("start", &[0])
        .ints("axis", &[0])
        .node("Greater(x, zero) -> p", &[])
        .node("Cast(p) -> q", &[("to", A::I(7))])
        .node("ReduceSum(q) -> k", &[("keepdims", A::I(1))])
        .node("Slice(x, start, k, axis) -> head", &[])
        .node("Expand(zero, k) -> zeros", &[])
        .node("Tile(head, k) -> tiled", &[])
        .node("Compress(x, p) -> positive", &[("axis", A::I(0))])
        .node("NonZero(x) -> at", &[])
        .node("Transpose(at) -> rows", &[])
        .node("GatherND(x, rows) -> set", &[])
        .output("head")
        .output("zeros")
        .output("tiled")
        .output("positive")
        .output("set");
    check(
        &m,
        &[
            (
                vec![("x", f32s(&[4], &[3.0, 0.0, -1.0, 5.0]))],
                vec![
                    f32s(&[2], &[3.0, 0.0]),
                    f32s(&[2], &[0.0, 0.0]),
                    f32s(&[4], &[3.0, 0.0, 3.0, 0.0]),
                    f32s(&[2], &[3.0, 5.0]),
                    f32s(&[3], &[3.0, -1.0, 5.0]),
                ],
            ),
            (vec![("x", f32s(&[1], &[0.0]))], vec![f32s(&[0], &[]); 5]),
        ],
    );
}

/// A sequence of unknown length runs as a loop, a short one of known length as a straight line: the same values.
#[test]
fn recurrent_ops() {
    let number = |seed: usize| ((seed * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0;
    let random = |shape: &[usize], seed: usize| {
        let n: usize = shape.iter().product();
        f32s(shape, &(0..n).map(|i| number(i + seed * 7919)).collect::<Vec<_>>())
    };
    for (op, gates, states) in [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)] {
        for (direction, d) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
            for (masked, layout) in [(false, 0), (true, 0), (false, 1)] {
                let (s, b, i, h) = (3, 2, 3, 4);
                let (x, x_known) = if layout == 0 { ("s, 2, 3", "3, 2, 3") } else { ("2, s, 3", "2, 3, 3") };
                let build = |shape: &str| {
                    let mut m = model(14)
                        .input("x", F, shape)
                        .init("w", random(&[d, gates * h, i], 1))
                        .init("r", random(&[d, gates * h, h], 2))
                        .init("b", random(&[d, 2 * gates * h], 3))
                        .init("h0", random(&if layout == 0 { [d, b, h] } else { [b, d, h] }, 4))
                        .init("c0", random(&if layout == 0 { [d, b, h] } else { [b, d, h] }, 5))
                        .init("p", random(&[d, 3 * h], 6))
                        .init("len", Tensor::from_slice(&[2], &[2i32, 3]).unwrap());
                    let tail = if states == 2 { ", c0, p" } else { "" };
                    let len = if masked { "len" } else { "" };
                    let outs = if states == 2 { "y, yh, yc" } else { "y, yh" };
                    let call = format!("{op}(x, w, r, b, {len}, h0{tail}) -> {outs}");
                    let mut attrs = vec![
                        ("hidden_size", A::I(4)),
                        ("direction", A::S(direction)),
                        ("layout", A::I(layout)),
                        ("clip", A::F(2.5)),
                    ];
                    if op == "GRU" {
                        attrs.push(("linear_before_reset", A::I(i64::from(masked))));
                    }
                    m = m.node(&call, &attrs);
                    outs.split(", ").fold(m, |m, o| m.output(o))
                };
                let xs = random(&if layout == 0 { [s, b, i] } else { [b, s, i] }, 8);
                let graph = |m: &Model| import_model(&m.0, &ImportOptions::default()).unwrap().graph;
                let (walked, straight) = (graph(&build(x)), graph(&build(x_known)));
                assert_eq!((walked.controls.len(), straight.controls.len()), (d, 0), "{op} {direction}");
                let run = |g| eval_graph(g, &[("x", xs.clone())]).unwrap();
                same(
                    &run(&walked),
                    &run(&straight),
                    &format!("{op} {direction} masked {masked} layout {layout}"),
                );
            }
        }
    }
}

#[test]
fn refused() {
    let refuse = |m: Model, text: &str| {
        let e = import_model(&m.0, &ImportOptions::default()).unwrap_err().to_string();
        assert!(e.contains(text), "{e}");
    };
    let looping = |b: GraphProto| {
        model(18)
            .input("x", F, "n")
            .init("n", i64s(&[], &[3]))
            .node("Loop(n, , x) -> y", &[("body", A::G(b))])
            .output("y")
    };
    refuse(
        looping(body("i, go, y", "go, z", &[("ReduceSum(y) -> z", &[("keepdims", A::I(0))])])),
        "carried value 0 is f32[n] before an iteration and f32[] after it",
    );
    refuse(looping(body("i, go, y", "go", &[])), "a body of 1 outputs carries 1 values");
    refuse(looping(body("i", "i, i", &[])), "a body of 1 inputs gets 3");
    refuse(
        looping(body("i, go, y", "go, z", &[("Frobnicate(y) -> z", &[])])),
        "Frobnicate \"Frobnicate making z\": not supported",
    );
}
