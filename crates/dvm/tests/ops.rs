//! Every op against the reference evaluator: all dtypes it takes, shapes with 0, 1, primes and tails, ranks 0 to 8, broadcasting
//! both ways. The shapes of one row run in one session, so that every one but the first meets a plan it was not made for.

use dvm::{
    BinaryOp, DType, Graph, Module, Op, Options, Outputs, ReduceOp, Session, Tensor, UnaryOp, ValueId,
};
use dvm_ir::testing::{Rng, difference, random_tensor};

/// Relative and absolute tolerance by the dtype of an output, for results of one op.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F32 => (2e-5, 2e-6),
        DType::F64 => (1e-12, 1e-12),
        DType::F16 => (2e-3, 2e-4),
        DType::BF16 => (1.6e-2, 1e-3),
        _ => (0.0, 0.0),
    }
}

/// A graph whose inputs have symbolic dims of the given ranks, and the shapes to run it at.
struct Case {
    name: String,
    graph: Graph,
    /// Per run, the shapes of all inputs.
    runs: Vec<Vec<Vec<usize>>>,
    /// Range of input values.
    range: (f64, f64),
}

/// Builds a case; `f` makes the outputs from the inputs, which are of these dtypes and, each axis a symbol of its own, ranks.
fn case(
    name: impl Into<String>,
    inputs: &[(DType, usize)],
    range: (f64, f64),
    runs: Vec<Vec<Vec<usize>>>,
    f: impl FnOnce(&mut Graph, &[ValueId]) -> Vec<ValueId>,
) -> Case {
    let mut graph = Graph::new("case");
    let mut values = vec![];
    for (i, &(dtype, rank)) in inputs.iter().enumerate() {
        let shape: Vec<_> = (0..rank).map(|a| graph.dims.symbol(&format!("d{i}_{a}"))).collect();
        values.push(graph.input(format!("x{i}"), dtype, &shape));
    }
    for (i, v) in f(&mut graph, &values).into_iter().enumerate() {
        graph.output(format!("y{i}"), v);
    }
    Case { name: name.into(), graph, runs, range }
}

/// Runs a case; problems are collected so that one failure does not hide the others.
fn check(c: Case, problems: &mut Vec<String>, refused: &mut usize) {
    let module = match Module::from_graph(c.graph) {
        Ok(m) => m,
        Err(e) => return problems.push(format!("{}: {e}", c.name)),
    };
    let graph = module.graph(&[], &[]).unwrap();
    let mut options = Options::default();
    options.threads = Some(2);
    let mut session = match Session::new(&module, options) {
        Ok(s) => s,
        Err(e) => return problems.push(format!("{}: {e}", c.name)),
    };
    let mut outputs = Outputs::new();
    for (i, shapes) in c.runs.iter().enumerate() {
        let mut rng = Rng::new(i as u64);
        let input = |(x, s): (&dvm::Input, &Vec<usize>)| {
            (x.name.clone(), random_tensor(graph.dtype(x.value), s, c.range.0, c.range.1, &mut rng))
        };
        let inputs: Vec<(String, Tensor)> = graph.inputs.iter().zip(shapes).map(input).collect();
        let want = dvm_ir::eval::eval_graph(&graph, &inputs);
        let got = session.run_into(&inputs, &mut outputs);
        match (got, want) {
            (Ok(()), Ok(want)) => {
                for ((name, got), want) in outputs.iter().zip(&want) {
                    let (rtol, atol) = tolerance(want.dtype());
                    if let Some(d) = difference(got, want, rtol, atol) {
                        problems.push(format!("{} {shapes:?}: `{name}` {d}", c.name));
                    }
                }
            }
            (Err(_), Err(_)) => *refused += 1,
            (Ok(()), Err(e)) => {
                problems.push(format!("{} {shapes:?}: ran, but the reference says: {e}", c.name))
            }
            (Err(e), Ok(_)) => problems.push(format!("{} {shapes:?}: {e}", c.name)),
        }
    }
}

fn run(cases: impl IntoIterator<Item = Case>) {
    let mut problems = vec![];
    let (mut count, mut refused) = (0, 0);
    for c in cases {
        count += c.runs.len();
        check(c, &mut problems, &mut refused);
    }
    println!("{count} runs, {refused} refused by both");
    assert!(refused * 20 <= count, "{refused} of {count} runs are refused by both");
    let shown = problems.iter().take(25).cloned().collect::<Vec<_>>().join("\n");
    assert!(problems.is_empty(), "{} of {count} runs are wrong:\n{shown}", problems.len());
}

fn one(v: dvm_ir::ValueId) -> Vec<ValueId> {
    vec![v]
}
fn push(g: &mut Graph, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
    one(g.push(op, inputs).unwrap())
}

/// One tensor of each rank from 0 to 8.
fn ranks() -> Vec<Vec<usize>> {
    vec![
        vec![],
        vec![130],
        vec![3, 67],
        vec![2, 0, 5],
        vec![2, 3, 1, 17],
        vec![1, 2, 1, 3, 5],
        vec![2, 1, 3, 1, 2, 7],
        vec![1, 1, 2, 3, 1, 2, 9],
        vec![2, 1, 2, 1, 3, 2, 1, 3],
    ]
}
const LENGTHS: [usize; 9] = [0, 1, 2, 7, 8, 31, 64, 129, 1030];

#[test]
fn unary() {
    let mut cases = vec![];
    for &op in UnaryOp::ALL {
        for &dtype in DType::ALL {
            let fits = match op {
                UnaryOp::Copy => true,
                UnaryOp::Not => !dtype.is_float(),
                _ if op.float_only() || op.is_test() => dtype.is_float(),
                _ => dtype != DType::Bool,
            };
            if !fits {
                continue;
            }
            // Inside the domain of every function; special values have tests of their own.
            let range = match op {
                UnaryOp::Sqrt
                | UnaryOp::Rsqrt
                | UnaryOp::Ln
                | UnaryOp::Log2
                | UnaryOp::Log1p
                | UnaryOp::Reciprocal => (0.125, 9.0),
                UnaryOp::Acosh => (1.0, 9.0),
                UnaryOp::Asin | UnaryOp::Acos | UnaryOp::Atanh => (-0.9, 0.9),
                UnaryOp::Tan => (-1.3, 1.3),
                _ if !dtype.is_float() && dtype.is_unsigned() => (0.0, 100.0),
                _ => (-6.0, 6.0),
            };
            let runs = LENGTHS.iter().map(|&n| vec![vec![n]]).collect();
            cases.push(case(format!("{op} {dtype}"), &[(dtype, 1)], range, runs, |g, x| {
                push(g, Op::Unary(op), x)
            }));
        }
    }
    for shape in ranks() {
        let runs = vec![vec![shape.clone()], vec![vec![1; shape.len()]], vec![vec![2; shape.len()]]];
        let rank = shape.len();
        cases.push(case(format!("exp rank {rank}"), &[(DType::F32, rank)], (-2.0, 2.0), runs, |g, x| {
            push(g, Op::Unary(UnaryOp::Exp), x)
        }));
    }
    run(cases);
}

#[test]
fn binary() {
    let mut cases = vec![];
    for &op in BinaryOp::ALL {
        for &dtype in DType::ALL {
            let logical =
                matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Eq | BinaryOp::Ne);
            let fits = match op {
                _ if dtype == DType::Bool => logical,
                _ if op.is_bitwise() => dtype.is_int(),
                _ => true,
            };
            if !fits {
                continue;
            }
            let range = match op {
                BinaryOp::Pow => (1.0, 3.0),
                BinaryOp::Div
                | BinaryOp::FloorDiv
                | BinaryOp::Rem
                | BinaryOp::Fmod
                | BinaryOp::Shl
                | BinaryOp::Shr => (1.0, 40.0),
                _ if dtype.is_unsigned() => (0.0, 120.0),
                _ => (-60.0, 60.0),
            };
            let runs = vec![
                vec![vec![3, 65], vec![3, 65]],
                vec![vec![3, 1], vec![1, 70]],
                vec![vec![1, 9], vec![5, 9]],
                vec![vec![4, 8], vec![4, 1]],
                vec![vec![1, 1], vec![1, 1]],
                vec![vec![0, 4], vec![1, 4]],
                vec![vec![2, 130], vec![1, 1]],
            ];
            cases.push(case(format!("{op} {dtype}"), &[(dtype, 2), (dtype, 2)], range, runs, |g, x| {
                push(g, Op::Binary(op), x)
            }));
        }
    }
    // Ranks that differ, broadcasting both ways.
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[], &[5]),
        (&[3, 4], &[4]),
        (&[4], &[2, 3, 1]),
        (&[2, 1, 3], &[1, 5, 1]),
        (&[1, 6, 1, 2], &[3, 1, 4, 1]),
        (&[2, 1, 2, 1, 2], &[3]),
        (&[1, 2, 1, 2, 1, 2, 1, 2], &[2, 1, 2, 1, 2, 1, 2, 1]),
        (&[0, 1], &[1, 3]),
    ];
    for (a, b) in shapes {
        let runs = vec![vec![a.to_vec(), b.to_vec()], vec![vec![1; a.len()], vec![1; b.len()]]];
        cases.push(case(
            format!("sub {a:?} {b:?}"),
            &[(DType::F32, a.len()), (DType::F32, b.len())],
            (-2.0, 2.0),
            runs,
            |g, x| push(g, Op::Binary(BinaryOp::Sub), x),
        ));
    }
    run(cases);
}

#[test]
fn ternary_and_casts() {
    let mut cases = vec![];
    for &dtype in DType::ALL {
        let runs = || {
            vec![
                vec![vec![3, 65], vec![3, 65], vec![3, 65]],
                vec![vec![3, 1], vec![1, 65], vec![1, 1]],
                vec![vec![1, 1], vec![5, 1], vec![1, 7]],
            ]
        };
        cases.push(case(
            format!("select {dtype}"),
            &[(DType::Bool, 2), (dtype, 2), (dtype, 2)],
            (0.0, 9.0),
            runs(),
            |g, x| push(g, Op::Select {}, x),
        ));
        if dtype != DType::Bool {
            cases.push(case(format!("clamp {dtype}"), &[(dtype, 2); 3], (0.0, 50.0), runs(), |g, x| {
                push(g, Op::Clamp {}, x)
            }));
        }
        if dtype.is_float() {
            cases.push(case(format!("fma {dtype}"), &[(dtype, 2); 3], (0.5, 2.0), runs(), |g, x| {
                push(g, Op::Fma {}, x)
            }));
        }
        for &to in DType::ALL {
            let range = if dtype.is_unsigned() || to.is_unsigned() { (0.0, 200.0) } else { (-100.0, 100.0) };
            let range = if dtype == DType::Bool { (0.0, 1.0) } else { range };
            let runs = vec![vec![vec![0]], vec![vec![1]], vec![vec![133]]];
            cases.push(case(format!("cast {dtype} to {to}"), &[(dtype, 1)], range, runs, |g, x| {
                push(g, Op::Cast { to }, x)
            }));
        }
    }
    run(cases);
}

#[test]
fn reductions() {
    let mut cases = vec![];
    let shapes = [
        vec![3, 5, 7],
        vec![1, 1, 1],
        vec![2, 130, 3],
        vec![4, 1, 65],
        vec![2, 0, 3],
        vec![0, 2, 2],
        vec![1, 4100, 1],
    ];
    for &op in ReduceOp::ALL {
        for &dtype in DType::ALL {
            let fits = match op {
                ReduceOp::Any | ReduceOp::All => dtype == DType::Bool,
                _ if dtype == DType::Bool => false,
                ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => true,
                _ => dtype.is_float(),
            };
            if !fits {
                continue;
            }
            let axes: &[&[usize]] = if dtype == DType::F32 {
                &[&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2], &[]]
            } else {
                &[&[1], &[0, 2]]
            };
            for &axes in axes {
                for keepdims in [true, false] {
                    // Products stay near 1; half sums stay in range.
                    let range = match op {
                        ReduceOp::Prod => (1.0, 1.001),
                        ReduceOp::LogSum => (0.1, 1.0),
                        _ if dtype.is_unsigned() => (0.0, 3.0),
                        _ => (0.0, 1.0),
                    };
                    let runs = shapes.iter().map(|s| vec![s.clone()]).collect();
                    let reduce = Op::Reduce { op, axes: axes.to_vec(), keepdims };
                    cases.push(case(
                        format!("{op} {dtype} {axes:?} {keepdims}"),
                        &[(dtype, 3)],
                        range,
                        runs,
                        |g, x| push(g, reduce, x),
                    ));
                }
            }
        }
    }
    for axis in 0..3 {
        for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Bool) {
            let last = dtype.is_int();
            let low = if dtype.is_unsigned() { 0.0 } else { -2.0 };
            let runs = || shapes.iter().filter(|s| s[axis] > 0).map(|s| vec![s.clone()]).collect::<Vec<_>>();
            cases.push(case(format!("argmax {axis} {dtype}"), &[(dtype, 3)], (low, 2.0), runs(), |g, x| {
                let a = g.push(Op::ArgMax { axis, keepdims: true, last }, x).unwrap();
                vec![a, g.push(Op::ArgMin { axis, keepdims: false, last }, x).unwrap()]
            }));
            cases.push(case(format!("cumsum {axis} {dtype}"), &[(dtype, 3)], (0.0, 1.0), runs(), |g, x| {
                let sum = |exclusive, reverse| Op::CumSum { axis, exclusive, reverse };
                vec![
                    g.push(sum(false, false), x).unwrap(),
                    g.push(sum(true, false), x).unwrap(),
                    g.push(sum(true, true), x).unwrap(),
                ]
            }));
        }
    }
    run(cases);
}

#[test]
fn products() {
    let mut cases = vec![];
    let sizes =
        [(1, 1, 1), (7, 9, 18), (1, 130, 65), (5, 0, 3), (0, 4, 4), (65, 3, 1), (4, 513, 33), (17, 64, 0)];
    for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Bool) {
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let runs = sizes
                .iter()
                .map(|&(m, k, n)| {
                    let (a, b) =
                        (if trans_a { [k, m] } else { [m, k] }, if trans_b { [n, k] } else { [k, n] });
                    vec![a.to_vec(), b.to_vec()]
                })
                .collect();
            let range = if dtype.is_float() { (-0.5, 0.5) } else { (0.0, 3.0) };
            cases.push(case(
                format!("matmul {dtype} {trans_a} {trans_b}"),
                &[(dtype, 2), (dtype, 2)],
                range,
                runs,
                |g, x| push(g, Op::MatMul { trans_a, trans_b }, x),
            ));
        }
    }
    let batches: [(&[usize], &[usize]); 5] = [
        (&[2, 3, 4, 5], &[2, 3, 5, 6]),
        (&[2, 1, 4, 5], &[1, 3, 5, 6]),
        (&[1, 1, 4, 5], &[2, 3, 5, 1]),
        (&[0, 1, 4, 5], &[1, 2, 5, 6]),
        (&[1, 1, 1, 1], &[1, 1, 1, 1]),
    ];
    let runs = batches.iter().map(|(a, b)| vec![a.to_vec(), b.to_vec()]).collect();
    cases.push(case("matmul batch", &[(DType::F32, 4), (DType::F32, 4)], (-1.0, 1.0), runs, |g, x| {
        push(g, Op::MatMul { trans_a: false, trans_b: false }, x)
    }));
    // Bias, residual, activation behind the product.
    let runs = [(3, 4, 5), (1, 64, 128), (33, 7, 17), (0, 3, 3)];
    let runs = runs.iter().map(|&(m, k, n)| vec![vec![m, k], vec![k, n], vec![n], vec![m, n]]).collect();
    cases.push(case(
        "matmul epilogue",
        &[(DType::F32, 2), (DType::F32, 2), (DType::F32, 1), (DType::F32, 2)],
        (-1.0, 1.0),
        runs,
        |g, x| {
            let p = g.push(Op::MatMul { trans_a: false, trans_b: false }, &x[..2]).unwrap();
            let b = g.push(Op::Binary(BinaryOp::Add), &[p, x[2]]).unwrap();
            let t = g.push(Op::Gelu { tanh: false }, &[b]).unwrap();
            vec![g.push(Op::Binary(BinaryOp::Add), &[t, x[3]]).unwrap(), b]
        },
    ));
    run(cases);
}

/// Operands that are not contiguous: every second element, and a transpose, of every dtype.
#[test]
fn strided() {
    let mut cases = vec![];
    for &dtype in DType::ALL {
        let op = if dtype == DType::Bool { BinaryOp::Xor } else { BinaryOp::Add };
        let runs = [1, 2, 3, 8, 33, 65].map(|n| vec![vec![n, 2 * n], vec![n, n]]).to_vec();
        let name = format!("strided {op} {dtype}");
        cases.push(case(name, &[(dtype, 2), (dtype, 2)], (0.0, 9.0), runs, |g, x| {
            let shape = g.shape(x[1]).to_vec();
            let start = shape.iter().map(|_| g.dims.constant(0)).collect();
            let slice = Op::Slice { start, len: shape, step: vec![1, 2] };
            let a = g.push(slice, &x[..1]).unwrap();
            let b = g.push(Op::Transpose { perm: vec![1, 0] }, &x[1..]).unwrap();
            let y = g.push(Op::Binary(op), &[a, b]).unwrap();
            let mut out = vec![y];
            if dtype != DType::Bool {
                let sum = Op::Reduce { op: ReduceOp::Max, axes: vec![0], keepdims: false };
                out.push(g.push(sum, &[a]).unwrap());
                out.push(g.push(Op::Cast { to: DType::F64 }, &[b]).unwrap());
            }
            out
        }));
    }
    run(cases);
}

/// Halves that stay wide are rounded at stores and casts alone; by default where they are defined.
#[test]
fn halves_stay_wide_where_asked() {
    for dtype in ["f16", "bf16"] {
        let body = "  %a = div %x, %y\n  %b = mul %a, %x\n  %c = sub %b, %y\n  %m = reduce %c {op = max, axes = [1], keepdims = true}\n  %z = div %c, %m\n";
        let text = format!("graph g(%x: {dtype}[n, m], %y: {dtype}[n, m]) -> (%z) {{\n{body}}}\n");
        let wide = body.replace("%x", "%p").replace("%y", "%q").replace("%z", "%w");
        let wide = format!(
            "graph g(%x: {dtype}[n, m], %y: {dtype}[n, m]) -> (%z) {{\n  %p = cast %x {{to = f32}}\n  %q = cast %y {{to = f32}}\n{wide}  %z = cast %w {{to = {dtype}}}\n}}\n"
        );
        let run = |text: &str, half| {
            let module = Module::from_text(text).unwrap_or_else(|e| panic!("{e}\n{text}")).with_half(half);
            let graph = module.graph(&[], &[]).unwrap();
            let mut rng = Rng::new(3);
            let mut input = |x: &dvm::Input| {
                (x.name.clone(), random_tensor(graph.dtype(x.value), &[7, 130], 0.5, 3.0, &mut rng))
            };
            let inputs: Vec<_> = graph.inputs.iter().map(&mut input).collect();
            let mut options = Options::default();
            options.threads = Some(2);
            Session::new(&module, options).unwrap().run(inputs).unwrap()[0].clone()
        };
        let asked = run(&text, dvm::Half::Wide);
        assert_eq!(asked.bytes(), run(&wide, dvm::Half::Rounded).bytes(), "{dtype}");
        assert_ne!(asked.bytes(), run(&text, dvm::Half::Rounded).bytes(), "{dtype}");
    }
}

#[test]
fn composites() {
    let mut cases = vec![];
    let shapes =
        [vec![2, 3, 7], vec![1, 1, 1], vec![3, 1, 130], vec![0, 2, 4], vec![2, 5, 1], vec![1, 2, 9000]];
    let runs = || shapes.iter().map(|s| vec![s.clone()]).collect::<Vec<_>>();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for axis in 0..3 {
            cases.push(case(
                format!("softmax {axis} {dtype}"),
                &[(dtype, 3)],
                (-4.0, 4.0),
                runs(),
                |g, x| push(g, Op::Softmax { axis }, x),
            ));
            cases.push(case(
                format!("log_softmax {axis} {dtype}"),
                &[(dtype, 3)],
                (-4.0, 4.0),
                runs(),
                |g, x| push(g, Op::LogSoftmax { axis }, x),
            ));
        }
        cases.push(case(format!("gelu, silu {dtype}"), &[(dtype, 3)], (-4.0, 4.0), runs(), |g, x| {
            vec![
                g.push(Op::Gelu { tanh: false }, x).unwrap(),
                g.push(Op::Gelu { tanh: true }, x).unwrap(),
                g.push(Op::Silu {}, x).unwrap(),
            ]
        }));
        let norm = shapes.iter().map(|s| vec![s.clone(), vec![s[2]], vec![s[2]]]).collect();
        cases.push(case(
            format!("norms {dtype}"),
            &[(dtype, 3), (dtype, 1), (dtype, 1)],
            (0.25, 4.0),
            norm,
            |g, x| {
                vec![
                    g.push(Op::LayerNorm { axis: 2, eps: 1e-2 }, x).unwrap(),
                    g.push(Op::RmsNorm { axis: 2, eps: 1e-5 }, &x[..2]).unwrap(),
                ]
            },
        ));
    }
    run(cases);
}

#[test]
fn shapes_and_indices() {
    let mut cases = vec![];
    let shapes = [vec![2, 3, 4], vec![1, 1, 1], vec![5, 17, 3], vec![0, 2, 3]];
    let runs = || shapes.iter().map(|s| vec![s.clone()]).collect::<Vec<_>>();
    for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
            cases.push(case(
                format!("transpose {perm:?} {dtype}"),
                &[(dtype, 3)],
                (0.0, 9.0),
                runs(),
                |g, x| push(g, Op::Transpose { perm: perm.to_vec() }, x),
            ));
        }
    }
    let eight = vec![vec![vec![2, 1, 3, 2, 1, 2, 3, 2]], vec![vec![1, 2, 1, 1, 3, 1, 1, 5]]];
    cases.push(case("transpose rank 8", &[(DType::F32, 8)], (0.0, 9.0), eight, |g, x| {
        push(g, Op::Transpose { perm: vec![7, 2, 5, 0, 3, 6, 1, 4] }, x)
    }));
    cases.push(case("reshape then add", &[(DType::F32, 3)], (0.0, 9.0), runs(), |g, x| {
        let s = g.shape(x[0]).to_vec();
        let ab = g.dims.mul(s[0], s[1]);
        let r = g.push(Op::Reshape { shape: vec![ab, s[2]] }, x).unwrap();
        let e = g.push(Op::Unary(UnaryOp::Exp), &[r]).unwrap();
        let bc = g.dims.mul(s[1], s[2]);
        vec![g.push(Op::Reshape { shape: vec![s[0], bc] }, &[e]).unwrap(), r]
    }));
    cases.push(case(
        "slice",
        &[(DType::F32, 3)],
        (0.0, 9.0),
        vec![vec![vec![2, 3, 4]], vec![vec![5, 17, 3]]],
        |g, x| {
            let s = g.shape(x[0]).to_vec();
            let c = |g: &mut Graph, v| g.dims.constant(v);
            let (one, two, half) = (c(g, 1), c(g, 2), g.dims.floor_div(s[2], dvm::Dim::ONE));
            let last = g.dims.sub(s[0], one);
            vec![
                g.push(
                    Op::Slice {
                        start: vec![last, one, dvm::Dim::ZERO],
                        len: vec![s[0], two, half],
                        step: vec![-1, 1, 1],
                    },
                    x,
                )
                .unwrap(),
            ]
        },
    ));
    for axis in 0..3 {
        let pair = shapes.iter().map(|s| {
            let mut t = s.clone();
            t[axis] += 2;
            vec![s.clone(), t, s.clone()]
        });
        cases.push(case(
            format!("concat {axis}"),
            &[(DType::F32, 3); 3],
            (0.0, 9.0),
            pair.collect(),
            |g, x| {
                let e = g.push(Op::Unary(UnaryOp::Neg), &x[1..2]).unwrap();
                push(g, Op::Concat { axis }, &[x[0], e, x[2]])
            },
        ));
        let index = vec![
            vec![vec![4, 5, 6], vec![2, 3]],
            vec![vec![4, 5, 6], vec![1, 1]],
            vec![vec![4, 4, 4], vec![0, 2]],
        ];
        cases.push(case(
            format!("gather {axis}"),
            &[(DType::F32, 3), (DType::I64, 2)],
            (-3.0, 3.0),
            index,
            |g, x| push(g, Op::Gather { axis }, x),
        ));
        let index = vec![vec![vec![4, 5, 6], vec![4, 5, 6]], vec![vec![4, 4, 4], vec![4, 4, 4]]];
        cases.push(case(
            format!("gather_elements {axis}"),
            &[(DType::F32, 3), (DType::I32, 3)],
            (-3.0, 3.0),
            index,
            |g, x| push(g, Op::GatherElements { axis }, x),
        ));
    }
    for mode in dvm_ir::PadMode::ALL {
        cases.push(case(
            format!("pad {mode}"),
            &[(DType::F32, 3)],
            (0.0, 9.0),
            vec![vec![vec![2, 3, 4]], vec![vec![3, 5, 7]]],
            |g, x| {
                let (z, a, b) = (dvm::Dim::ZERO, dvm::Dim::ONE, g.dims.constant(2));
                let pad = Op::Pad {
                    before: vec![z, a, b],
                    after: vec![a, b, z],
                    mode: *mode,
                    value: dvm::Scalar::Float(1.5),
                };
                push(g, pad, x)
            },
        ));
    }
    cases.push(case(
        "window, maximum",
        &[(DType::F32, 2)],
        (0.0, 9.0),
        vec![vec![vec![2, 9]], vec![vec![3, 20]]],
        |g, x| {
            let l = g.shape(x[0])[1];
            let (three, five) = (g.dims.constant(3), g.dims.constant(5));
            let room = g.dims.sub(l, five);
            let two = g.dims.constant(2);
            let count = g.dims.floor_div(room, two);
            let count = g.dims.add(count, dvm::Dim::ONE);
            let w = g.push(Op::Window { axis: 1, count, size: three, stride: 2, dilation: 2 }, x).unwrap();
            vec![g.push(Op::Reduce { op: ReduceOp::Max, axes: vec![2], keepdims: false }, &[w]).unwrap(), w]
        },
    ));
    cases.push(case(
        "range, dims, fill",
        &[(DType::F32, 2)],
        (0.0, 1.0),
        vec![vec![vec![2, 9]], vec![vec![0, 1]]],
        |g, x| {
            let s = g.shape(x[0]).to_vec();
            let three = g.dims.constant(3);
            vec![
                g.push(Op::Range { start: s[0], step: three, len: s[1], dtype: DType::I64 }, &[]).unwrap(),
                g.push(Op::Range { start: s[0], step: three, len: s[1], dtype: DType::F32 }, &[]).unwrap(),
                g.push(Op::Dims { values: s.clone(), scalar: false, dtype: DType::I64 }, &[]).unwrap(),
                g.push(Op::Fill { value: dvm::Scalar::Float(2.5), dtype: DType::F32, shape: s }, &[])
                    .unwrap(),
            ]
        },
    ));
    run(cases);
}

#[test]
fn special_values() {
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        1e-40,
        3e38,
        -3e38,
        88.8,
        -104.0,
    ];
    let mut problems = vec![];
    for &op in UnaryOp::ALL.iter().filter(|&&op| op != UnaryOp::Not) {
        let mut g = Graph::new("special");
        let n = g.dims.symbol("n");
        let x = g.input("x", DType::F32, &[n]);
        let y = g.push(Op::Unary(op), &[x]).unwrap();
        g.output("y", y);
        let module = Module::from_graph(g).unwrap();
        let mut session = Session::new(&module, Options::default()).unwrap();
        for len in [values.len(), 1] {
            for first in 0..if len == 1 { values.len() } else { 1 } {
                let x = Tensor::from_slice(&[len], &values[first..first + len]).unwrap();
                let want =
                    dvm_ir::eval::eval_graph(&module.graph(&[], &[]).unwrap(), &[("x", x.clone())]).unwrap();
                let got = session.run([("x", x)]).unwrap();
                if let Some(d) = difference(&got["y"], &want[0], 1e-6, 1e-44) {
                    problems.push(format!("{op}: {d}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
