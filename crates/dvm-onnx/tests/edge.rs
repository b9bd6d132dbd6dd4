//! Shapes, dims and values at the edges: what users of tensor compilers reported.

mod common;

use common::*;
use dvm_ir::eval::eval_graph;
use dvm_ir::{DType, Tensor};
use dvm_onnx::{ImportError, ImportOptions, Imported, import_for, import_model};

fn import(m: &Model) -> Imported {
    import_model(&m.0, &ImportOptions::default()).unwrap()
}

/// One import serves every row of inputs.
fn check(m: Model, rows: &[(Vec<(&str, Tensor)>, Tensor)]) {
    let imported = import(&m);
    for (inputs, want) in rows {
        let out = eval_graph(&imported.graph, inputs).unwrap();
        same(&out[0], want, &format!("{inputs:?}"));
    }
}

fn same(got: &Tensor, want: &Tensor, what: &str) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    for i in 0..want.len() {
        let (g, w) = (got.get(i).as_f64(), want.get(i).as_f64());
        assert!(g == w || (g.is_nan() && w.is_nan()), "{what}: element {i} is {g}, want {w}");
    }
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, shape).unwrap()
}

/// The import or the run must fail with a message that holds `text`.
fn refuse(m: Model, inputs: &[(&str, Tensor)], text: &str) {
    let message = match import_model(&m.0, &ImportOptions::default()) {
        Err(e) => e.to_string(),
        Ok(i) => eval_graph(&i.graph, inputs).unwrap_err().to_string(),
    };
    assert!(message.contains(text), "{message:?} does not say {text:?}");
}

fn one_op(opset: i64, x: (DType, &str), text: &str, attrs: &[(&str, A)]) -> Model {
    model(opset).input("x", x.0, x.1).node(text, attrs).output("y")
}

const F: DType = DType::F32;

#[test]
fn zero_sizes() {
    let sum = |keep| {
        one_op(13, (F, "a, b, c"), "ReduceSum(x, axes) -> y", &[("keepdims", A::I(keep))]).ints("axes", &[1])
    };
    check(sum(1), &[(vec![("x", zeros(&[3, 0, 4]))], zeros(&[3, 1, 4]))]);
    check(sum(0), &[(vec![("x", zeros(&[3, 0, 4]))], zeros(&[3, 4]))]);
    let mm =
        || model(13).input("x", F, "a, k").input("z", F, "k, n").node("MatMul(x, z) -> y", &[]).output("y");
    check(
        mm(),
        &[
            (vec![("x", zeros(&[16, 0])), ("z", zeros(&[0, 16]))], zeros(&[16, 16])),
            (vec![("x", arange(&[1, 2])), ("z", arange(&[2, 1]))], f32s(&[1, 1], &[1.0])),
        ],
    );
    let concat = model(13)
        .input("x", F, "n")
        .input("z", F, "m")
        .node("Concat(x, z) -> y", &[("axis", A::I(0))])
        .output("y");
    check(concat, &[(vec![("x", zeros(&[0])), ("z", f32s(&[2], &[1.0, 2.0]))], f32s(&[2], &[1.0, 2.0]))]);
    check(
        one_op(13, (F, "a, b, c"), "LogSoftmax(x) -> y", &[]),
        &[(vec![("x", zeros(&[5, 0, 0]))], zeros(&[5, 0, 0]))],
    );
    let reverse = one_op(13, (F, "n"), "Slice(x, s, e, a, t) -> y", &[])
        .ints("s", &[-1])
        .ints("e", &[i64::MIN])
        .ints("a", &[0])
        .ints("t", &[-1]);
    check(
        reverse,
        &[(vec![("x", zeros(&[0]))], zeros(&[0])), (vec![("x", arange(&[3]))], f32s(&[3], &[2.0, 1.0, 0.0]))],
    );
    let gather = model(13)
        .input("x", F, "0, d")
        .input("i", DType::I64, "n")
        .node("Gather(x, i) -> y", &[])
        .output("y");
    check(gather, &[(vec![("x", zeros(&[0, 5])), ("i", i64s(&[0], &[]))], zeros(&[0, 5]))]);
}

#[test]
fn reshape() {
    let to = |shape: &[i64], attrs: &[(&str, A)], ty: &str| {
        one_op(14, (F, ty), "Reshape(x, s) -> y", attrs).ints("s", shape)
    };
    check(to(&[2, 0, 1, -1], &[], "a, b, c"), &[(vec![("x", arange(&[2, 3, 4]))], arange(&[2, 3, 1, 4]))]);
    check(
        to(&[3, 4, 0], &[("allowzero", A::I(1))], "a, b, c"),
        &[(vec![("x", zeros(&[0, 3, 4]))], zeros(&[3, 4, 0]))],
    );
    check(
        to(&[-1, 512], &[], "n, 220, 512"),
        &[
            (vec![("x", zeros(&[3, 220, 512]))], zeros(&[660, 512])),
            (vec![("x", zeros(&[0, 220, 512]))], zeros(&[0, 512])),
        ],
    );
    refuse(
        to(&[0, -1], &[("allowzero", A::I(1))], "a, b"),
        &[("x", zeros(&[0, 4]))],
        "-1 cannot be inferred",
    );
    refuse(to(&[-1, -1], &[], "a"), &[("x", zeros(&[4]))], "more than one -1");
    refuse(to(&[4, 5], &[], "a, b"), &[("x", zeros(&[3, 5]))], "element count");
}

/// The shape is an input's data: one import for every value, -1 and 0 too.
#[test]
fn reshape_by_an_input() {
    let m = model(14)
        .input("x", F, "a, b")
        .input("s", DType::I64, "2")
        .node("Reshape(x, s) -> y", &[])
        .output("y");
    let x = || ("x", arange(&[2, 6]));
    check(
        m,
        &[
            (vec![x(), ("s", i64s(&[2], &[3, 4]))], arange(&[3, 4])),
            (vec![x(), ("s", i64s(&[2], &[-1, 4]))], arange(&[3, 4])),
            (vec![x(), ("s", i64s(&[2], &[0, -1]))], arange(&[2, 6])),
            (vec![x(), ("s", i64s(&[2], &[12, -1]))], arange(&[12, 1])),
        ],
    );
}

#[test]
fn expand_both_ways() {
    let m = |target: &[i64]| one_op(13, (F, "a, b"), "Expand(x, s) -> y", &[]).ints("s", target);
    check(m(&[3, 1]), &[(vec![("x", arange(&[3, 4]))], arange(&[3, 4]))]);
    check(
        m(&[2, 1, 3]),
        &[(
            vec![("x", f32s(&[2, 1], &[1.0, 2.0]))],
            f32s(&[2, 2, 3], &[1., 1., 1., 2., 2., 2., 1., 1., 1., 2., 2., 2.]),
        )],
    );
    let by_input = model(13)
        .input("x", F, "1, 4")
        .input("s", DType::I64, "2")
        .node("Expand(x, s) -> y", &[])
        .output("y");
    check(
        by_input,
        &[
            (vec![("x", zeros(&[1, 4])), ("s", i64s(&[2], &[3, 1]))], zeros(&[3, 4])),
            (vec![("x", zeros(&[1, 4])), ("s", i64s(&[2], &[2, 4]))], zeros(&[2, 4])),
        ],
    );
    refuse(
        one_op(13, (F, "a"), "Expand(x, s) -> y", &[])
            .init("s", Tensor::scalar(DType::I64, dvm_ir::Scalar::Int(3))),
        &[],
        "rank 1",
    );
}

/// `Shape -> Gather -> Unsqueeze -> Concat -> Reshape`: nothing but the reshape is left.
#[test]
fn shape_subgraphs_vanish() {
    let m = model(13)
        .input("x", F, "a, b, c")
        .node("Shape(x) -> s", &[])
        .init("zero", Tensor::scalar(DType::I64, dvm_ir::Scalar::Int(0)))
        .node("Gather(s, zero) -> n", &[])
        .ints("axes", &[0])
        .node("Unsqueeze(n, axes) -> n1", &[])
        .ints("rest", &[-1])
        .node("Concat(n1, rest) -> t", &[("axis", A::I(0))])
        .node("Reshape(x, t) -> y", &[])
        .output("y");
    assert_eq!(import(&m).graph.nodes.len(), 1);
    check(
        m,
        &[
            (vec![("x", arange(&[2, 3, 4]))], arange(&[2, 12])),
            (vec![("x", arange(&[5, 3, 4]))], arange(&[5, 12])),
        ],
    );
}

#[test]
fn integers_as_data_stay_data() {
    // A small integer input that no shape uses has no element symbols.
    let m = model(14)
        .input("x", DType::I64, "2")
        .ints("one", &[i64::MAX, 1])
        .node("Add(x, one) -> y", &[])
        .output("y");
    assert!(import(&m).graph.inputs[0].elements.is_none());
    check(m, &[(vec![("x", i64s(&[2], &[1, 1]))], i64s(&[2], &[i64::MIN, 2]))]);
    let range = model(13)
        .input("n", DType::I64, "")
        .init("zero", Tensor::scalar(DType::I64, dvm_ir::Scalar::Int(0)))
        .init("step", Tensor::scalar(DType::I64, dvm_ir::Scalar::Int(2)))
        .node("Range(zero, n, step) -> y", &[])
        .output("y");
    let n = |n: i64| vec![("n", i64s(&[], &[n]))];
    check(range, &[(n(5), i64s(&[3], &[0, 2, 4])), (n(0), i64s(&[0], &[])), (n(-3), i64s(&[0], &[]))]);
}

#[test]
fn slices() {
    let m = |s: i64, e: i64, t: i64| {
        one_op(13, (F, "n"), "Slice(x, s, e, a, t) -> y", &[])
            .ints("s", &[s])
            .ints("e", &[e])
            .ints("a", &[0])
            .ints("t", &[t])
    };
    for (s, e, t, want) in [
        (1, i64::MAX, 1, vec![1., 2., 3.]),
        (-3, -1, 1, vec![1., 2.]),
        (-100, 100, 2, vec![0., 2.]),
        (3, 0, -1, vec![3., 2., 1.]),
        (100, i64::MIN, -2, vec![3., 1.]),
        (3, 1, 1, vec![]),
    ] {
        check(m(s, e, t), &[(vec![("x", arange(&[4]))], f32s(&[want.len()], &want))]);
    }
    // Bounds that are inputs, for a dynamic extent.
    let dynamic = model(13)
        .input("x", F, "n")
        .input("s", DType::I64, "1")
        .input("e", DType::I64, "1")
        .node("Slice(x, s, e) -> y", &[])
        .output("y");
    let row = |n: usize, s: i64, e: i64, want: &[f32]| {
        (
            vec![("x", arange(&[n])), ("s", i64s(&[1], &[s])), ("e", i64s(&[1], &[e]))],
            f32s(&[want.len()], want),
        )
    };
    check(
        dynamic,
        &[row(4, 1, 3, &[1., 2.]), row(4, -2, 9, &[2., 3.]), row(2, 5, 9, &[]), row(0, 0, 1, &[])],
    );
}

/// Rank decided by an extent: the import says which dims it needs, and takes them from inputs.
#[test]
fn squeeze_without_axes() {
    let m = one_op(13, (F, "5, d"), "Squeeze(x) -> y", &[]);
    let e = import_model(&m.0, &ImportOptions::default()).unwrap_err();
    assert!(matches!(&e, ImportError::NeedsDims { symbols } if symbols == &["d"]), "{e}");
    for (shape, want) in [(vec![5, 1], vec![5]), (vec![5, 3], vec![5, 3])] {
        let inputs = [("x", zeros(&shape))];
        let i = import_for(&m.0, &ImportOptions::default(), &inputs).unwrap();
        assert_eq!(i.decided_by.dims, [("d".to_string(), shape[1] as i64)]);
        assert_eq!(eval_graph(&i.graph, &inputs).unwrap()[0].shape(), want);
    }
}

#[test]
fn axes_by_an_input() {
    let m = model(13)
        .input("x", F, "a, b")
        .input("axes", DType::I64, "1")
        .node("ReduceSum(x, axes) -> y", &[])
        .output("y");
    let e = import_model(&m.0, &ImportOptions::default()).unwrap_err();
    assert!(matches!(&e, ImportError::NeedsValues { inputs } if inputs == &["axes"]), "{e}");
    let inputs = [("x", arange(&[2, 2])), ("axes", i64s(&[1], &[0]))];
    let i = import_for(&m.0, &ImportOptions::default(), &inputs).unwrap();
    same(&eval_graph(&i.graph, &inputs[..1]).unwrap()[0], &f32s(&[1, 2], &[2.0, 4.0]), "axis 0");
}

#[test]
fn values() {
    let nan = f32::NAN;
    let relu = one_op(14, (F, "n"), "Relu(x) -> y", &[]);
    check(relu, &[(vec![("x", f32s(&[3], &[nan, -1.0, 2.0]))], f32s(&[3], &[nan, 0.0, 2.0]))]);
    let clip = one_op(13, (F, "n"), "Clip(x, lo, hi) -> y", &[])
        .init("lo", f32s(&[], &[0.0]))
        .init("hi", f32s(&[], &[nan]));
    check(clip, &[(vec![("x", f32s(&[2], &[0.5, -3.0]))], f32s(&[2], &[nan, nan]))]);
    let soft = one_op(13, (F, "n"), "Softmax(x) -> y", &[]);
    check(soft, &[(vec![("x", f32s(&[2], &[f32::NEG_INFINITY; 2]))], f32s(&[2], &[nan, nan]))]);
    let wrap = model(14)
        .input("x", DType::U8, "n")
        .node("Add(x, x) -> s", &[])
        .node("Cast(s) -> y", &[("to", A::I(DType::I16.onnx().into()))])
        .output("y");
    let u8s = Tensor::from_slice(&[1], &[128u8]).unwrap();
    check(wrap, &[(vec![("x", u8s)], Tensor::from_slice(&[1], &[0i16]).unwrap())]);
    let gather = model(13)
        .input("x", F, "3, 3")
        .init("i", i64s(&[1, 2], &[0, 2]))
        .node("Gather(x, i) -> y", &[("axis", A::I(1))])
        .output("y");
    check(gather, &[(vec![("x", arange(&[3, 3]))], f32s(&[3, 1, 2], &[0., 2., 3., 5., 6., 8.]))]);
    let nd = model(13)
        .input("x", F, "a, b")
        .input("i", DType::I64, "n, 2")
        .node("GatherND(x, i) -> y", &[])
        .output("y");
    check(
        nd,
        &[(vec![("x", arange(&[2, 3])), ("i", i64s(&[2, 2], &[1, -1, 0, 1]))], f32s(&[2], &[5.0, 1.0]))],
    );
    let hot = one_op(13, (DType::I64, "n"), "OneHot(x, d, v) -> y", &[])
        .ints("d", &[3])
        .init("v", f32s(&[], &[1.0]));
    refuse(hot, &[], "has no axis 0");
    // 5 is out of range on its own axis, though the flat position is not.
    let nd = model(13)
        .input("x", F, "a, b")
        .input("i", DType::I64, "n, 2")
        .node("GatherND(x, i) -> y", &[])
        .output("y");
    refuse(nd, &[("x", arange(&[2, 3])), ("i", i64s(&[1, 2], &[0, 5]))], "out of range");
}

/// The extent broadcasts only at run time.
#[test]
fn late_broadcast() {
    let m = model(13)
        .input("x", F, "n")
        .input("z", F, "m")
        .ints("s", &[-1, 4])
        .node("Reshape(x, s) -> a", &[])
        .node("Reshape(z, s) -> b", &[])
        .node("Mul(a, b) -> y", &[])
        .output("y");
    check(
        m,
        &[
            (
                vec![("x", arange(&[4])), ("z", arange(&[8]))],
                f32s(&[2, 4], &[0., 1., 4., 9., 0., 5., 12., 21.]),
            ),
            (
                vec![("x", arange(&[8])), ("z", arange(&[8]))],
                f32s(&[2, 4], &[0., 1., 4., 9., 16., 25., 36., 49.]),
            ),
        ],
    );
}

#[test]
fn branches_and_functions() {
    use dvm_onnx::proto::{FunctionProto, GraphProto, OperatorSetIdProto, ValueInfoProto};
    // The rank decides the branch; the branch sees outer values.
    let branch = |op: &str| GraphProto {
        node: vec![node(&format!("{op}(x, x) -> r"), &[])],
        output: vec![ValueInfoProto { name: Some("r".into()), r#type: None }],
        ..Default::default()
    };
    let m = model(13)
        .input("x", F, "a, b")
        .node("Shape(x) -> s", &[])
        .node("Size(s) -> rank", &[])
        .init("two", Tensor::scalar(DType::I64, dvm_ir::Scalar::Int(2)))
        .node("Equal(rank, two) -> c", &[])
        .node(
            "If(c) -> y",
            &[("then_branch", A::G(branch("Mul"))), ("else_branch", A::G(branch("Nonsense")))],
        )
        .output("y");
    check(m, &[(vec![("x", arange(&[1, 3]))], f32s(&[1, 3], &[0.0, 1.0, 4.0]))]);

    let mut body = node("LeakyRelu(a) -> r", &[]);
    body.attribute = vec![dvm_onnx::proto::AttributeProto {
        name: Some("alpha".into()),
        ref_attr_name: Some("slope".into()),
        ..Default::default()
    }];
    let mut m = model(13).input("x", F, "n").node("my::Leak(x) -> y", &[("slope", A::F(0.5))]).output("y");
    m.0.functions.push(FunctionProto {
        name: Some("Leak".into()),
        domain: Some("my".into()),
        input: vec!["a".into()],
        output: vec!["r".into()],
        node: vec![body],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(13) }],
        ..Default::default()
    });
    check(m, &[(vec![("x", f32s(&[2], &[-2.0, 3.0]))], f32s(&[2], &[-1.0, 3.0]))]);
}

/// Everything is listed at once, with names; what follows from a problem is not.
#[test]
fn problems_are_listed_together() {
    let mut m = model(13)
        .input("x", F, "n")
        .node("DeformConv(x) -> a", &[])
        .node("Relu(a) -> b", &[])
        .node("Frobnicate(x) -> c", &[])
        .node("Softmax(x) -> d", &[("axis", A::I(7))])
        .node("Add(b, c) -> y", &[])
        .output("y");
    m.0.graph.as_mut().unwrap().node[0].name = Some("/nz".into());
    let Err(ImportError::Unsupported(p)) = import_model(&m.0, &ImportOptions::default()) else { panic!() };
    let got: Vec<String> = p.iter().map(ToString::to_string).collect();
    assert_eq!(
        got,
        [
            "DeformConv \"/nz\": not supported: the op is not imported (docs/onnx.md lists those that are)",
            "Frobnicate \"Frobnicate making c\": not supported: the op is not imported (docs/onnx.md lists those that are)",
            "Softmax \"Softmax making d\": invalid: axis 7 of a rank-1 tensor",
        ]
    );
}

/// Every way a tensor may hold its elements.
#[test]
fn typed_data() {
    use dvm_onnx::proto::TensorProto;
    use prost::Message;
    let base =
        |dtype: DType| TensorProto { dims: vec![2], data_type: Some(dtype.onnx()), ..Default::default() };
    let half = i32::from(half_bits(1.5));
    let rows = [
        (TensorProto { float_data: vec![1.5, -2.0], ..base(DType::F32) }, [1.5, -2.0]),
        (TensorProto { double_data: vec![1.5, -2.0], ..base(DType::F64) }, [1.5, -2.0]),
        (TensorProto { int32_data: vec![half, half], ..base(DType::F16) }, [1.5, 1.5]),
        (TensorProto { int32_data: vec![0x3fc0, 0xc000], ..base(DType::BF16) }, [1.5, -2.0]),
        (TensorProto { int32_data: vec![-1, 127], ..base(DType::I8) }, [-1.0, 127.0]),
        (TensorProto { int32_data: vec![0, 255], ..base(DType::U8) }, [0.0, 255.0]),
        (TensorProto { int32_data: vec![-1, 300], ..base(DType::I16) }, [-1.0, 300.0]),
        (TensorProto { int32_data: vec![1, 65535], ..base(DType::U16) }, [1.0, 65535.0]),
        (TensorProto { int32_data: vec![0, 7], ..base(DType::Bool) }, [0.0, 1.0]),
        (TensorProto { int32_data: vec![-5, 5], ..base(DType::I32) }, [-5.0, 5.0]),
        (TensorProto { uint64_data: vec![1, 1 << 31], ..base(DType::U32) }, [1.0, 2_147_483_648.0]),
        (TensorProto { int64_data: vec![-5, 5], ..base(DType::I64) }, [-5.0, 5.0]),
        (TensorProto { uint64_data: vec![1, 1 << 40], ..base(DType::U64) }, [1.0, (1u64 << 40) as f64]),
    ];
    for (proto, want) in rows {
        let (_, t) = dvm_onnx::decode_tensor(&proto.encode_to_vec()).unwrap();
        assert_eq!([t.get(0).as_f64(), t.get(1).as_f64()], want, "{t:?}");
    }
    let short = TensorProto { float_data: vec![1.0], ..base(DType::F32) };
    assert!(dvm_onnx::decode_tensor(&short.encode_to_vec()).is_err());
    let string = TensorProto { data_type: Some(8), ..base(DType::F32) };
    let e = dvm_onnx::decode_tensor(&string.encode_to_vec()).unwrap_err().to_string();
    assert!(e.contains("element type string"), "{e}");
}

/// Bits of a float that a half holds exactly.
fn half_bits(x: f32) -> u16 {
    let b = x.to_bits();
    (((b >> 16) & 0x8000) | (((b >> 23) - 112) << 10) & 0x7c00 | ((b >> 13) & 0x3ff)) as u16
}

#[test]
fn summaries() {
    let m = model(13)
        .input("x", F, "b, ?")
        .input("axes", DType::I64, "1")
        .node("Relu(x) -> r", &[])
        .node("ReduceSum(r, axes) -> s", &[])
        .node("Frobnicate(x) -> f", &[])
        .output("r");
    let text = dvm_onnx::summary(&prost::Message::encode_to_vec(&m.0), &ImportOptions::default())
        .unwrap()
        .to_string();
    let want = "\
opset     ai.onnx 13
opset     com.microsoft 1
input     x: f32[b, x.1]
input     axes: i64[1]
output    r: f32[b, x.1]
symbols   b, x.1
ops       Frobnicate 1, ReduceSum 1, Relu 1
structure depends on the values of  axes
problem   Frobnicate \"Frobnicate making f\": not supported: the op is not imported (docs/onnx.md lists those that are)
";
    assert_eq!(text, want);
}

#[test]
fn the_summary_keeps_extents_with_commas_whole() {
    let m = model(13).input("x", F, "a").input("y", F, "b").node("Add(x, y) -> z", &[]).output("z");
    let s = dvm_onnx::summary(&prost::Message::encode_to_vec(&m.0), &ImportOptions::default()).unwrap();
    assert_eq!(s.outputs[0].shape, ["broadcast(a, b)"]);
    assert_eq!(s.outputs[0].to_string(), "z: f32[broadcast(a, b)]");
}

#[test]
fn the_table_names_each_op_once() {
    let mut names: Vec<_> =
        dvm_onnx::op_table().iter().flat_map(|f| f.rows).map(|r| (r.domain, r.name)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn external_data() {
    use dvm_onnx::proto::StringStringEntryProto;
    let dir = std::env::temp_dir().join(format!("dvm-onnx-external-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("w.bin"), [0u8, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]).unwrap();
    let with = |location: &str, offset: &str| {
        let mut m =
            model(13).input("x", F, "2").init("w", zeros(&[2])).node("Add(x, w) -> y", &[]).output("y");
        let w = &mut m.0.graph.as_mut().unwrap().initializer[0];
        w.raw_data = None;
        w.data_location = Some(1);
        let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
        w.external_data = vec![entry("location", location), entry("offset", offset), entry("length", "8")];
        m
    };
    let mut opts = ImportOptions::default();
    opts.base_dir = Some(dir.clone());
    let i = import_model(&with("w.bin", "4").0, &opts).unwrap();
    same(&eval_graph(&i.graph, &[("x", zeros(&[2]))]).unwrap()[0], &f32s(&[2], &[1.0, 2.0]), "external");
    for (location, offset, text) in [
        ("w.bin", "8", "are not in a file of 12"),
        ("w.bin", "18446744073709551615", "are not in a file of 12"),
        ("w.bin", "x", "not a number"),
        ("../w.bin", "0", "outside the model's folder"),
        ("/etc/passwd", "0", "outside the model's folder"),
        ("none.bin", "0", "none.bin"),
    ] {
        let e = import_model(&with(location, offset).0, &opts).unwrap_err().to_string();
        assert!(e.contains(text), "{location}: {e}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
