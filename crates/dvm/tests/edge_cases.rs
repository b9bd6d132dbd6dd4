//! Cases that users of tensor compilers reported as crashes or wrong values elsewhere, as ONNX models through whole sessions.
//! Test names carry the row of the list they come from. What the standards leave open is decided in `docs/semantics.md`.

#[path = "../../dvm-onnx/tests/common/mod.rs"]
mod common;

use common::{A, Model, f32s, i64s, model};
use dvm::{DType, Module, Options, Outputs, Scalar, Session, Tensor};
use half::{bf16, f16};
use prost::Message;

const F: DType = DType::F32;

fn session(m: Model) -> Result<Session, dvm::Error> {
    let module = Module::from_onnx_bytes(&m.0.encode_to_vec())?;
    let mut options = Options::default();
    options.threads = Some(2);
    Session::new(&module, options)
}

fn named(inputs: &[(&str, Tensor)]) -> Vec<(String, Tensor)> {
    inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect()
}

fn outputs(m: Model, inputs: &[(&str, Tensor)]) -> Outputs {
    let mut s = session(m).unwrap();
    s.run(named(inputs)).unwrap()
}

/// The one output of a model.
fn run(m: Model, inputs: &[(&str, Tensor)]) -> Tensor {
    let out = outputs(m, inputs);
    assert_eq!(out.len(), 1);
    out[0].clone()
}

/// The model or the run is refused, with these words in the message.
fn refused(m: Model, inputs: &[(&str, Tensor)], words: &[&str]) {
    let text = match session(m) {
        Err(e) => e.to_string(),
        Ok(mut s) => s.run(named(inputs)).expect_err("runs").to_string(),
    };
    for w in words {
        assert!(text.contains(w), "`{w}` is not in: {text}");
    }
}

/// A model of one node over inputs named in the call.
fn one(opset: i64, inputs: &[(&str, DType, &str)], call: &str, attrs: &[(&str, A)]) -> Model {
    let mut m = model(opset);
    for &(name, dtype, shape) in inputs {
        m = m.input(name, dtype, shape);
    }
    m.node(&format!("{call} -> y"), attrs).output("y")
}

fn empty(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::zeros(dtype, shape).unwrap()
}
fn shape_is(t: &Tensor, dtype: DType, shape: &[usize]) {
    assert_eq!((t.dtype(), t.shape()), (dtype, shape));
}
fn values(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get(i).as_f64()).collect()
}
#[track_caller]
fn same(t: &Tensor, shape: &[usize], want: &[f64]) {
    assert_eq!(t.shape(), shape);
    let got = values(t);
    let eq = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(|(&a, &b)| eq(a, b)),
        "{got:?}, want {want:?}"
    );
}

#[test]
fn row_1_argmin_of_no_rows() {
    let m = model(13)
        .input("x", F, "n, 3")
        .node("ArgMin(x) -> a", &[("axis", A::I(1)), ("keepdims", A::I(1))])
        .ints("s", &[0, 3])
        .node("Expand(a, s) -> y", &[])
        .output("y");
    shape_is(&run(m, &[("x", empty(F, &[0, 3]))]), DType::I64, &[0, 3]);
}

#[test]
fn row_3_and_5_reductions_of_nothing() {
    for (op, axes, shape, want) in [
        ("ReduceMax", vec![0, 1], vec![], f64::NEG_INFINITY),
        ("ReduceMin", vec![0, 1], vec![], f64::INFINITY),
        ("ReduceMax", vec![0], vec![10], f64::NEG_INFINITY),
        ("ReduceMean", vec![0], vec![10], f64::NAN),
        ("ReduceSum", vec![0], vec![10], 0.0),
        ("ReduceProd", vec![0], vec![10], 1.0),
    ] {
        let attrs = [("keepdims", A::I(0))];
        let m = model(18)
            .input("x", F, "n, 10")
            .ints("a", &axes)
            .node(&format!("{op}(x, a) -> y"), &attrs)
            .output("y");
        let n: usize = shape.iter().product();
        same(&run(m, &[("x", empty(F, &[0, 10]))]), &shape, &vec![want; n]);
    }
}

#[test]
fn row_7_sum_over_an_empty_axis() {
    for (keep, shape) in [(1, vec![3, 1, 4]), (0, vec![3, 4])] {
        let m = model(13).input("x", F, "a, b, c").ints("axes", &[1]);
        let m = m.node("ReduceSum(x, axes) -> y", &[("keepdims", A::I(keep))]).output("y");
        same(&run(m, &[("x", empty(F, &[3, 0, 4]))]), &shape, &[0.0; 12]);
    }
}

#[test]
fn row_9_11_13_15_products_with_empty_axes() {
    type Row<'a> = (DType, &'a [usize], &'a [usize], &'a [usize]);
    let rows: [Row; 5] = [
        (F, &[16, 0], &[0, 16], &[16, 16]),
        (F, &[3, 2, 0], &[3, 0, 3], &[3, 2, 3]),
        (F, &[3, 0, 0], &[0, 0], &[3, 0, 0]),
        (DType::I64, &[0, 4, 8], &[0, 8, 4], &[0, 4, 4]),
        (DType::I32, &[0, 4], &[4, 3], &[0, 3]),
    ];
    for (dtype, a, b, want) in rows {
        let dims = |n: usize, p: &str| (0..n).map(|i| format!("{p}{i}")).collect::<Vec<_>>().join(", ");
        let (sa, sb) = (dims(a.len(), "a"), dims(b.len(), "b"));
        let m = one(13, &[("a", dtype, &sa), ("b", dtype, &sb)], "MatMul(a, b)", &[]);
        let y = run(m, &[("a", empty(dtype, a)), ("b", empty(dtype, b))]);
        same(&y, want, &vec![0.0; want.iter().product()]);
        assert_eq!(y.dtype(), dtype);
    }
}

#[test]
fn row_17_and_19_empty_parts_and_outputs() {
    let m = model(13)
        .input("a", F, "n")
        .input("b", F, "k")
        .node("Concat(a, b) -> y", &[("axis", A::I(0))])
        .node("Identity(a) -> z", &[])
        .output("y")
        .output("z");
    let out = outputs(m, &[("a", empty(F, &[0])), ("b", f32s(&[2], &[1., 2.]))]);
    same(&out["y"], &[2], &[1., 2.]);
    shape_is(&out["z"], F, &[0]);
}

#[test]
fn row_21_minus_one_cannot_be_inferred() {
    let reshape = |shape: &str, to: &[i64]| {
        model(14)
            .input("x", F, shape)
            .ints("s", to)
            .node("Reshape(x, s) -> y", &[("allowzero", A::I(1))])
            .output("y")
    };
    refused(reshape("0, 4", &[0, -1]), &[("x", empty(F, &[0, 4]))], &["Reshape", "-1"]);
    refused(reshape("1, 0", &[-1, 0]), &[("x", empty(F, &[1, 0]))], &["Reshape", "-1"]);
}

#[test]
fn row_23_backward_slice_of_nothing() {
    let m =
        model(13).input("x", F, "n").ints("s", &[-1]).ints("e", &[i64::MIN]).ints("a", &[0]).ints("p", &[-1]);
    let mut s = session(m.node("Slice(x, s, e, a, p) -> y", &[]).output("y")).unwrap();
    let y = s.run([("x", empty(F, &[0]))]).unwrap();
    shape_is(&y["y"], F, &[0]);
    let y = s.run([("x", f32s(&[3], &[1., 2., 3.]))]).unwrap();
    same(&y["y"], &[3], &[3., 2., 1.]);
}

#[test]
fn row_25_log_softmax_of_nothing() {
    let m = one(13, &[("x", F, "a, b, c")], "LogSoftmax(x)", &[("axis", A::I(-1))]);
    shape_is(&run(m, &[("x", empty(F, &[5, 0, 0]))]), F, &[5, 0, 0]);
}

#[test]
fn row_27_gather_from_an_empty_table() {
    let m = || one(13, &[("t", F, "v, d"), ("i", DType::I64, "n")], "Gather(t, i)", &[]);
    let y = run(m(), &[("t", empty(F, &[0, 4])), ("i", empty(DType::I64, &[0]))]);
    shape_is(&y, F, &[0, 4]);
    refused(m(), &[("t", empty(F, &[0, 4])), ("i", i64s(&[1], &[0]))], &["0"]);
}

#[test]
fn row_29_and_31_a_size_of_one_only_at_run_time() {
    let m = model(13)
        .input("x", F, "n")
        .input("y", F, "k")
        .ints("s", &[-1, 4])
        .node("Reshape(x, s) -> a", &[])
        .node("Reshape(y, s) -> b", &[])
        .node("Mul(a, b) -> z", &[])
        .output("z");
    let mut s = session(m).unwrap();
    let ones = |n: usize| f32s(&[n], &vec![1.0; n]);
    for (n, k, rows) in [(4, 8, 2), (8, 4, 2), (4, 4, 1), (20, 4, 5), (20, 20, 5)] {
        let z = s.run([("x", ones(n)), ("y", ones(k))]).unwrap();
        same(&z["z"], &[rows, 4], &vec![1.0; rows * 4]);
    }
    let e = s.run([("x", ones(8)), ("y", ones(12))]).unwrap_err().to_string();
    assert!(e.contains('2') && e.contains('3'), "{e}");
}

#[test]
fn row_33_35_37_39_broadcasts() {
    let m = one(13, &[("a", F, "30"), ("b", F, "1")], "Min(a, b)", &[]);
    let a: Vec<f32> = (0..30).map(|i| i as f32).collect();
    let want: Vec<f64> = a.iter().map(|&x| f64::from(x.min(7.0))).collect();
    same(&run(m, &[("a", f32s(&[30], &a)), ("b", f32s(&[1], &[7.0]))]), &[30], &want);

    let m = model(13).input("a", F, "r, k").input("b", F, "r, c").node("Add(a, b) -> s", &[]);
    let m = m.node("ReduceSum(s) -> y", &[("keepdims", A::I(0))]).output("y");
    same(&run(m, &[("a", f32s(&[2, 1], &[1.; 2])), ("b", f32s(&[2, 2], &[1.; 4]))]), &[], &[8.0]);

    let m = model(13).input("a", F, "1, 32, 32").input("b", F, "n, 32, 32").ints("s", &[32, 32, 32]);
    let m = m.node("Expand(a, s) -> e", &[]).node("MatMul(e, b) -> y", &[]).output("y");
    let ones = |s: &[usize]| f32s(s, &vec![1.0; s.iter().product()]);
    let y = run(m, &[("a", ones(&[1, 32, 32])), ("b", ones(&[32, 32, 32]))]);
    same(&y, &[32, 32, 32], &vec![32.0; 32 * 32 * 32]);

    let m = model(13).input("x", F, "a, b").ints("i", &[0]).node("Unsqueeze(x, i) -> y", &[]).output("y");
    shape_is(&run(m, &[("x", ones(&[4, 8]))]), F, &[1, 4, 8]);
}

#[test]
fn row_41_and_43_expand() {
    for (x, shape, want) in [(&[3, 4][..], &[3i64, 1][..], &[3, 4][..]), (&[3, 1], &[2, 1, 6], &[2, 3, 6])] {
        let m = model(13).input("x", F, "a, b").ints("s", shape).node("Expand(x, s) -> y", &[]).output("y");
        let n = x.iter().product();
        shape_is(&run(m, &[("x", f32s(x, &vec![1.0; n]))]), F, want);
    }
    let scalar = |m: Model| m.init("s", Tensor::scalar(DType::I64, Scalar::Int(3)));
    let m = scalar(model(13).input("x", F, "1")).node("Expand(x, s) -> y", &[]).output("y");
    refused(m, &[("x", f32s(&[1], &[1.0]))], &["Expand"]);
    let m = scalar(model(13).input("x", F, "1")).ints("a", &[0]).node("Unsqueeze(s, a) -> t", &[]);
    let m = m.node("Expand(x, t) -> y", &[]).output("y");
    same(&run(m, &[("x", f32s(&[1], &[2.0]))]), &[3], &[2.0; 3]);
}

#[test]
fn row_45_squeeze_without_axes() {
    let mut s = session(one(13, &[("x", F, "5, d")], "Squeeze(x)", &[])).unwrap();
    for (d, want) in [(1, &[5][..]), (3, &[5, 3]), (1, &[5])] {
        let y = s.run([("x", f32s(&[5, d], &vec![1.0; 5 * d]))]).unwrap();
        shape_is(&y["y"], F, want);
    }
}

#[test]
fn row_47_each_length_anew() {
    let w: Vec<f32> = (0..64 * 17).map(|i| (i % 7) as f32).collect();
    let m = model(13)
        .input("x", F, "1, L, 64")
        .init("w", f32s(&[64, 17], &w))
        .node("MatMul(x, w) -> y", &[])
        .output("y");
    let mut s = session(m).unwrap();
    let column: Vec<f64> = (0..17).map(|j| (0..64).map(|k| f64::from(w[k * 17 + j])).sum()).collect();
    for l in [40, 248, 623] {
        let y = s.run([("x", f32s(&[1, l, 64], &vec![1.0; l * 64]))]).unwrap();
        let want: Vec<f64> = (0..l).flat_map(|_| column.clone()).collect();
        same(&y["y"], &[1, l, 17], &want);
    }
}

#[test]
fn row_49_a_size_in_arithmetic() {
    let m = model(13)
        .input("a", F, "n, 3")
        .input("b", F, "4, 3")
        .node("Shape(a) -> s", &[])
        .init("i", Tensor::scalar(DType::I64, Scalar::Int(0)))
        .node("Gather(s, i) -> r", &[])
        .node("Cast(r) -> f", &[("to", A::I(1))])
        .node("Mul(f, a) -> t", &[])
        .ints("k", &[-1, 4, 3])
        .node("Reshape(t, k) -> u", &[])
        .node("Mul(u, b) -> y", &[])
        .output("y");
    let mut s = session(m).unwrap();
    for n in [4, 8] {
        let y = s.run([("a", f32s(&[n, 3], &vec![1.0; n * 3])), ("b", f32s(&[4, 3], &[2.0; 12]))]).unwrap();
        same(&y["y"], &[n / 4, 4, 3], &vec![2.0 * n as f64; n * 3]);
    }
}

#[test]
fn row_51_positions_follow_the_input() {
    let m = model(13)
        .input("ids", DType::I64, "b, s")
        .node("Shape(ids) -> sh", &[])
        .init("one", Tensor::scalar(DType::I64, Scalar::Int(1)))
        .init("zero", Tensor::scalar(DType::I64, Scalar::Int(0)))
        .node("Gather(sh, one) -> s", &[])
        .node("Range(zero, s, one) -> r", &[])
        .node("Expand(r, sh) -> y", &[])
        .output("y");
    let mut s = session(m).unwrap();
    for (b, n) in [(1, 512), (1, 2), (2, 3)] {
        let y = s.run([("ids", empty(DType::I64, &[b, n]))]).unwrap();
        let want: Vec<f64> = (0..b).flat_map(|_| (0..n).map(|i| i as f64)).collect();
        same(&y["y"], &[b, n], &want);
    }
}

#[test]
fn row_53_a_baked_reshape_names_both_shapes() {
    let m = model(13)
        .input("x", F, "1, c, h, w")
        .ints("s", &[1, 9, 244, 244])
        .node("Reshape(x, s) -> y", &[])
        .output("y");
    refused(
        m,
        &[("x", empty(F, &[1, 9, 444, 204]))],
        &["reshape", "[1, c, h, w]", "[1, 9, 244, 244]", "815184", "535824"],
    );
}

#[test]
fn row_55_57_59_61_dims_carried_over() {
    let m = model(13)
        .input("x", F, "N, 220, 512")
        .ints("s", &[-1, 512])
        .node("Reshape(x, s) -> r", &[])
        .init("w", f32s(&[64, 512], &vec![0.5; 64 * 512]))
        .init("b", f32s(&[64], &[1.0; 64]))
        .node("Gemm(r, w, b) -> y", &[("transB", A::I(1))])
        .output("y");
    let y = run(m, &[("x", f32s(&[3, 220, 512], &vec![1.0; 3 * 220 * 512]))]);
    same(&y, &[660, 64], &vec![257.0; 660 * 64]);

    let m = one(13, &[("x", F, "d0")], "Relu(x)", &[]);
    same(&run(m, &[("x", f32s(&[1], &[-1.0]))]), &[1], &[0.0]);

    let m = model(13)
        .input("x", F, "a, b, 768")
        .ints("s", &[0, 0, 12, 64])
        .node("Reshape(x, s) -> h", &[])
        .node("Transpose(h) -> t", &[("perm", A::Is(vec![0, 2, 1, 3]))])
        .node("Transpose(t) -> u", &[("perm", A::Is(vec![0, 2, 1, 3]))])
        .ints("k", &[0, 0, 768])
        .node("Reshape(u, k) -> y", &[])
        .output("y");
    let x: Vec<f32> = (0..2 * 3 * 768).map(|i| i as f32).collect();
    let want: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    same(&run(m, &[("x", f32s(&[2, 3, 768], &x))]), &[2, 3, 768], &want);

    let m = model(13)
        .input("x", F, "a, b, c")
        .node("Shape(x) -> s", &[])
        .init("i", Tensor::scalar(DType::I64, Scalar::Int(0)))
        .ints("ax", &[0])
        .node("Gather(s, i) -> d", &[])
        .node("Unsqueeze(d, ax) -> u", &[])
        .ints("m", &[-1])
        .node("Concat(u, m) -> t", &[("axis", A::I(0))])
        .node("Reshape(x, t) -> y", &[])
        .output("y");
    let mut s = session(m).unwrap();
    for n in [2, 5] {
        let y = s.run([("x", f32s(&[n, 3, 4], &vec![1.0; n * 12]))]).unwrap();
        shape_is(&y["y"], F, &[n, 12]);
    }
}

#[test]
fn row_63_unsqueeze_and_compare() {
    let m =
        model(13).input("x", F, "b, 2, 3").ints("a", &[3]).init("c", Tensor::scalar(F, Scalar::Float(3.0)));
    let m = m.node("Unsqueeze(x, a) -> u", &[]).node("Equal(u, c) -> y", &[]).output("y");
    let mut s = session(m).unwrap();
    for b in 1..=3 {
        let x: Vec<f32> = (0..b * 6).map(|i| (i % 5) as f32).collect();
        let y = s.run([("x", f32s(&[b, 2, 3], &x))]).unwrap();
        assert_eq!(y["y"].dtype(), DType::Bool);
        same(&y["y"], &[b, 2, 3, 1], &x.iter().map(|&v| f64::from(u8::from(v == 3.0))).collect::<Vec<_>>());
    }
}

#[test]
fn row_65_66_69_70_one_plan_for_all_shapes() {
    let m = model(13)
        .input("x", F, "n, 8")
        .node("Softmax(x) -> s", &[("axis", A::I(1))])
        .node("Exp(s) -> y", &[])
        .output("y");
    let mut s = session(m).unwrap();
    let mut encoded = 0;
    for (round, n) in [16, 17, 18, 19, 20, 21, 80, 480, 16, 17, 80].into_iter().enumerate() {
        s.run([("x", f32s(&[n, 8], &vec![1.0; n * 8]))]).unwrap();
        let r = s.last_run();
        assert!(round == 0 || r.plan_us == 0.0, "planned again");
        encoded += usize::from(!r.cache_hit);
    }
    assert_eq!(encoded, 8, "one program a shape");
}

#[test]
fn row_67_integer_inputs_are_run_time_values() {
    let m = model(13)
        .input("n", DType::I64, "1")
        .init("v", f32s(&[1], &[1.0]))
        .node("Expand(v, n) -> e", &[])
        .node("ReduceSum(e) -> y", &[("keepdims", A::I(0))])
        .output("y");
    let mut s = session(m).unwrap();
    for n in [31868, 31870, 0, 1] {
        let y = s.run([("n", i64s(&[1], &[n]))]).unwrap();
        same(&y["y"], &[], &[n as f64]);
    }
}

#[test]
fn row_75_77_nan_goes_through() {
    for op in ["Relu", "Sign"] {
        let y = run(
            one(13, &[("x", F, "n")], &format!("{op}(x)"), &[]),
            &[("x", f32s(&[3], &[f32::NAN, -1.0, 2.0]))],
        );
        assert!(values(&y)[0].is_nan(), "{op}");
    }
    for n in [1, 8, 9, 17] {
        for op in ["Min", "Max"] {
            for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let m = one(13, &[("a", F, "n"), ("b", F, "n")], &format!("{op}(a, b)"), &[]);
                let y = run(m, &[("a", f32s(&[n], &vec![a; n])), ("b", f32s(&[n], &vec![b; n]))]);
                assert!(values(&y).iter().all(|v| v.is_nan()), "{op} {n}");
            }
        }
    }
}

#[test]
fn row_79_clip_by_nan_is_nan() {
    let m = model(13).input("x", F, "n").init("lo", Tensor::scalar(F, Scalar::Float(0.0)));
    let m = m
        .init("hi", Tensor::scalar(F, Scalar::Float(f64::NAN)))
        .node("Clip(x, lo, hi) -> y", &[])
        .output("y");
    let y = run(m, &[("x", f32s(&[5], &[0.5, -3.0, 4.5, 11.0, f32::NAN]))]);
    assert!(values(&y).iter().all(|v| v.is_nan()), "{:?}", values(&y));
}

#[test]
fn row_81_gelu_far_out() {
    let m = one(20, &[("x", F, "n")], "Gelu(x)", &[("approximate", A::S("tanh"))]);
    let y = run(m, &[("x", f32s(&[2], &[10.6, -10.6]))]);
    assert!((values(&y)[0] - 10.6).abs() < 1e-5 && values(&y)[1].abs() < 1e-6, "{:?}", values(&y));
    // The same from exponentials, as models spell it: 1 - 2 / (exp(2u) + 1).
    let c = |m: Model, n: &str, v: f64| m.init(n, Tensor::scalar(F, Scalar::Float(v)));
    let m =
        c(c(c(c(model(13).input("x", F, "n"), "k", 0.044_715), "r", 0.797_884_56), "one", 1.0), "two", 2.0);
    let m = c(m, "half", 0.5);
    let m = m
        .node("Mul(x, x) -> x2", &[])
        .node("Mul(x2, x) -> x3", &[])
        .node("Mul(x3, k) -> kx", &[])
        .node("Add(x, kx) -> s", &[])
        .node("Mul(s, r) -> u", &[])
        .node("Mul(u, two) -> v", &[])
        .node("Exp(v) -> e", &[])
        .node("Add(e, one) -> d", &[])
        .node("Div(two, d) -> q", &[])
        .node("Sub(one, q) -> t", &[])
        .node("Add(t, one) -> w", &[])
        .node("Mul(x, w) -> z", &[])
        .node("Mul(z, half) -> y", &[])
        .output("y");
    let y = run(m, &[("x", f32s(&[2], &[10.6, -10.6]))]);
    assert!((values(&y)[0] - 10.6).abs() < 1e-5 && values(&y)[1] == 0.0, "{:?}", values(&y));
}

#[test]
fn row_83_softmax_of_minus_infinity_is_nan() {
    let m = one(13, &[("x", F, "r, c")], "Softmax(x)", &[("axis", A::I(1))]);
    let i = f32::NEG_INFINITY;
    let y = values(&run(m, &[("x", f32s(&[2, 3], &[i, i, i, 0.0, i, 0.0]))]));
    assert!(y[..3].iter().all(|v| v.is_nan()), "{y:?}");
    assert_eq!(y[3..], [0.5, 0.0, 0.5]);
}

#[test]
fn row_85_remainders_and_their_zero_divisors() {
    for (dtype, n) in [(DType::I32, 3), (DType::I64, 5), (DType::I32, 7)] {
        let m = || one(13, &[("a", dtype, "r, c"), ("b", dtype, "c")], "Mod(a, b)", &[]);
        let mut a = empty(dtype, &[2, n]);
        (0..a.len()).for_each(|i| a.set(i, Scalar::Int(i as i64)));
        let mut b = empty(dtype, &[n]);
        (0..n).for_each(|i| b.set(i, Scalar::Int(16)));
        same(
            &run(m(), &[("a", a.clone()), ("b", b.clone())]),
            &[2, n],
            &(0..2 * n).map(|i| i as f64).collect::<Vec<_>>(),
        );
        b.set(n - 1, Scalar::Int(0));
        refused(m(), &[("a", a), ("b", b)], &["zero"]);
    }
    let m = one(13, &[("a", F, "n"), ("b", F, "n")], "Mod(a, b)", &[("fmod", A::I(1))]);
    same(
        &run(m, &[("a", f32s(&[2], &[-4.3, 4.3])), ("b", f32s(&[2], &[2.0, -2.0]))]),
        &[2],
        &[f64::from(-4.3f32 % 2.0), f64::from(4.3f32 % -2.0)],
    );
}

#[test]
fn row_89_91_integers_wrap() {
    let m = model(13)
        .input("a", DType::U8, "n")
        .node("Add(a, a) -> s", &[])
        .node("Cast(s) -> y", &[("to", A::I(5))])
        .output("y");
    let y = run(m, &[("a", Tensor::from_slice(&[3], &[128u8, 1, 255]).unwrap())]);
    assert_eq!(y.dtype(), DType::I16);
    same(&y, &[3], &[0.0, 2.0, 254.0]);
    let m = model(13)
        .input("a", DType::I32, "n")
        .input("b", DType::I32, "n")
        .node("Add(a, b) -> s", &[])
        .node("Cast(s) -> y", &[("to", A::I(7))])
        .node("Mul(a, a) -> z", &[])
        .output("y")
        .output("z");
    let t = |v: &[i32]| Tensor::from_slice(&[v.len()], v).unwrap();
    let out = outputs(m, &[("a", t(&[i32::MAX, 65536])), ("b", t(&[1, 0]))]);
    same(&out["y"], &[2], &[-2_147_483_648.0, 65536.0]);
    same(&out["z"], &[2], &[1.0, 0.0]);
}

#[test]
fn row_93_95_halves_round_where_they_are_defined() {
    let m = model(18)
        .input("x", DType::BF16, "n")
        .init("d", Tensor::scalar(DType::BF16, Scalar::Float(1.7)))
        .node("Div(x, d) -> q", &[])
        .node("ReduceMax(q) -> m", &[("keepdims", A::I(1))])
        .node("Equal(q, m) -> e", &[])
        .node("Cast(e) -> c", &[("to", A::I(1))])
        .node("ReduceSum(c) -> y", &[("keepdims", A::I(0))])
        .output("y");
    let x: Vec<bf16> = [1.0, 2.0, 3.0].map(bf16::from_f32).to_vec();
    same(&run(m, &[("x", Tensor::from_slice(&[3], &x).unwrap())]), &[], &[1.0]);

    let h = DType::F16;
    let m = model(13).input("a", h, "n").input("b", h, "n");
    let m = m.node("Add(a, b) -> s", &[]).node("Mul(s, b) -> p", &[]).node("Add(p, a) -> y", &[]).output("y");
    let (a, b): (Vec<f16>, Vec<f16>) =
        (1..40).map(|i| (f16::from_f32(i as f32 * 0.37), f16::from_f32(3.1 / i as f32))).unzip();
    let want: Vec<f64> = a
        .iter()
        .zip(&b)
        .map(|(&a, &b)| {
            let s = f16::from_f32(a.to_f32() + b.to_f32());
            let p = f16::from_f32(s.to_f32() * b.to_f32());
            f16::from_f32(p.to_f32() + a.to_f32()).to_f64()
        })
        .collect();
    let t = |v: &[f16]| Tensor::from_slice(&[v.len()], v).unwrap();
    same(&run(m, &[("a", t(&a)), ("b", t(&b))]), &[39], &want);
}

#[test]
fn row_97_halves_accumulate_wide() {
    let h = DType::F16;
    let m = model(13).input("x", h, "n").node("Mul(x, x) -> y", &[]).output("y");
    let x = Tensor::from_slice(&[2], &[f16::from_f32(7700.0), f16::ONE]).unwrap();
    same(&run(m, &[("x", x)]), &[2], &[f64::INFINITY, 1.0]);
    let m = model(13).input("x", h, "n").node("ReduceSum(x) -> y", &[("keepdims", A::I(0))]).output("y");
    same(&run(m, &[("x", Tensor::from_slice(&[4096], &[f16::ONE; 4096]).unwrap())]), &[], &[4096.0]);
    // A layer norm of values whose squares overflow f16 is finite.
    let m = model(17).input("x", h, "r, 4").init("g", Tensor::from_slice(&[4], &[f16::ONE; 4]).unwrap());
    let m = m.node("LayerNormalization(x, g) -> y", &[]).output("y");
    let x: Vec<f16> = [7700.0, -7700.0, 7700.0, -7700.0].map(f16::from_f32).to_vec();
    same(&run(m, &[("x", Tensor::from_slice(&[1, 4], &x).unwrap())]), &[1, 4], &[1.0, -1.0, 1.0, -1.0]);
}

#[test]
fn row_99_101_103_indices() {
    let m = model(13)
        .input("x", F, "n")
        .ints("s", &[1])
        .ints("e", &[i64::MAX])
        .node("Slice(x, s, e) -> y", &[])
        .output("y");
    same(&run(m, &[("x", f32s(&[4], &[0., 1., 2., 3.]))]), &[3], &[1., 2., 3.]);

    let m = model(13)
        .input("x", F, "3, 3")
        .init("i", i64s(&[1, 2], &[0, 2]))
        .node("Gather(x, i) -> y", &[("axis", A::I(1))])
        .output("y");
    let x: Vec<f32> = (0..9).map(|i| i as f32).collect();
    same(&run(m, &[("x", f32s(&[3, 3], &x))]), &[3, 1, 2], &[0., 2., 3., 5., 6., 8.]);
    let m = one(13, &[("t", F, "78, 128"), ("i", DType::I64, "b, s")], "Gather(t, i)", &[]);
    let y = run(m, &[("t", f32s(&[78, 128], &vec![1.0; 78 * 128])), ("i", i64s(&[1, 16], &[-78; 16]))]);
    shape_is(&y, F, &[1, 16, 128]);

    let reshape = |to: &[i64], zero: i64| {
        model(14)
            .input("x", F, "a, b, c")
            .ints("s", to)
            .node("Reshape(x, s) -> y", &[("allowzero", A::I(zero))])
            .output("y")
    };
    let x = f32s(&[2, 3, 4], &[1.0; 24]);
    shape_is(&run(reshape(&[2, 0, 1, -1], 0), &[("x", x)]), F, &[2, 3, 1, 4]);
    shape_is(&run(reshape(&[3, 4, 0], 1), &[("x", empty(F, &[0, 3, 4]))]), F, &[3, 4, 0]);
}

#[test]
fn row_105_cumsum_of_rank_0() {
    let m = model(14).input("x", F, "").init("a", Tensor::scalar(DType::I64, Scalar::Int(0)));
    let five = Tensor::scalar(F, Scalar::Float(5.0));
    same(&run(m.node("CumSum(x, a) -> y", &[]).output("y"), &[("x", five)]), &[], &[5.0]);
}

#[test]
fn row_107_equal_products_are_not_equal_shapes() {
    let m = model(13)
        .input("a", F, "n, m")
        .input("b", F, "m, n")
        .node("Exp(a) -> x", &[])
        .node("Neg(b) -> y", &[])
        .output("x")
        .output("y");
    let out = outputs(m, &[("a", empty(F, &[4, 6])), ("b", f32s(&[6, 4], &[1.0; 24]))]);
    same(&out["x"], &[4, 6], &[1.0; 24]);
    same(&out["y"], &[6, 4], &[-1.0; 24]);
}
