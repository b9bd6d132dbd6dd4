//! Small models and mutations of them: the same every time.

use dvm_ir::{DType, Tensor};
use dvm_onnx::proto::*;

use super::*;

/// xorshift64*: the same mutants every time.
pub(crate) struct Rng(pub(crate) u64);
impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

pub(crate) fn seeds() -> Vec<ModelProto> {
    let f = DType::F32;
    let conv = model(13)
        .input("x", f, "n, 4, h, w")
        .init("k", arange(&[6, 2, 3, 3]))
        .node(
            "Conv(x, k) -> c",
            &[("group", A::I(2)), ("strides", A::Is(vec![2, 1])), ("pads", A::Is(vec![1; 4]))],
        )
        .node("MaxPool(c) -> p", &[("kernel_shape", A::Is(vec![2, 2])), ("ceil_mode", A::I(1))])
        .node("Flatten(p) -> y", &[])
        .output("y");
    let shapes = model(17)
        .input("x", f, "b, s, 8")
        .input("t", DType::I64, "2")
        .node("Shape(x) -> s0", &[])
        .ints("i", &[0, 1])
        .node("Gather(s0, i) -> s1", &[])
        .ints("j", &[2, -1])
        .node("Concat(s1, j) -> s2", &[("axis", A::I(0))])
        .node("Reshape(x, s2) -> r", &[])
        .node("Transpose(r) -> u", &[("perm", A::Is(vec![0, 2, 1, 3]))])
        .node("Tile(t, t2) -> w", &[])
        .ints("t2", &[2])
        .node("ConstantOfShape(t) -> z", &[("value", A::T(f32s(&[1], &[2.0])))])
        .node("Slice(u, t, t3) -> v", &[])
        .ints("t3", &[3, 4])
        .node("ReduceSum(v, ax) -> q", &[])
        .ints("ax", &[-1])
        .node("Split(x) -> a1, a2", &[("axis", A::I(2))])
        .node("Range(n0, n1, n2) -> rg", &[])
        .ints("n0", &[0])
        .ints("n1", &[9])
        .ints("n2", &[2])
        .output("q")
        .output("z")
        .output("a1")
        .output("rg")
        .output("w");
    let dense = model(20)
        .input("ids", DType::I64, "b, s")
        .init("table", arange(&[16, 8]))
        .node("Gather(table, ids) -> e", &[])
        .init("g", arange(&[8]))
        .node("LayerNormalization(e, g) -> n", &[("epsilon", A::F(1e-5))])
        .init("w", arange(&[8, 8]))
        .node("Einsum(n, w) -> h", &[("equation", A::S("bsk,kn->bsn"))])
        .node("Gelu(h) -> a", &[])
        .node("Pad(a, p) -> d", &[("mode", A::S("constant"))])
        .ints("p", &[0, 1, 0, 0, -1, 0])
        .node("Softmax(d) -> y", &[("axis", A::I(1))])
        .node("TopThing(y) -> never", &[])
        .output("y");
    let mut control =
        model(13).input("x", f, "n").init("c", Tensor::from_bools(&[], &[true]).unwrap()).output("y");
    let branch = GraphProto {
        node: vec![node("Exp(x) -> r", &[])],
        output: vec![ValueInfoProto { name: Some("r".into()), r#type: None }],
        ..Default::default()
    };
    control =
        control.node("If(c) -> m", &[("then_branch", A::G(branch.clone())), ("else_branch", A::G(branch))]);
    control = control.node("my::F(m, m) -> y", &[]);
    control.0.functions.push(FunctionProto {
        name: Some("F".into()),
        domain: Some("my".into()),
        input: vec!["a".into(), "b".into()],
        output: vec!["r".into()],
        node: vec![node("Mul(a, b) -> r", &[])],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(13) }],
        ..Default::default()
    });
    vec![conv.0, shapes.0, dense.0, control.0]
}

const NUMBERS: &[i64] =
    &[0, 1, -1, 2, 3, 7, 64, -64, 1 << 20, 1 << 31, -(1 << 31), 1 << 40, i64::MAX, i64::MIN, i64::MAX - 1];

/// Changes one thing a decoded model holds, so that it gets past the decoder.
pub(crate) fn mutate(m: &mut ModelProto, rng: &mut Rng) {
    let number = |rng: &mut Rng| NUMBERS[rng.below(NUMBERS.len())];
    if rng.below(20) == 0 {
        m.opset_import[0].version = Some(number(rng) % 40);
    }
    let functions = m.functions.iter_mut().flat_map(|f| f.node.iter_mut());
    let graph = m.graph.as_mut().unwrap();
    let names: Vec<String> =
        graph.node.iter().flat_map(|n| n.input.iter().chain(&n.output)).cloned().collect();
    let ops: Vec<Option<String>> = graph.node.iter().map(|n| n.op_type.clone()).collect();
    let any_op = |rng: &mut Rng| {
        let rows: Vec<&str> = dvm_onnx::op_table().iter().flat_map(|f| f.rows).map(|r| r.name).collect();
        Some(rows[rng.below(rows.len())].to_string())
    };
    match rng.below(9) {
        0 => {
            let t = rng.below(graph.initializer.len());
            if let Some(t) = graph.initializer.get_mut(t) {
                match rng.below(4) {
                    0 => t.dims.push(number(rng)),
                    1 => t.data_type = Some(rng.below(30) as i32),
                    2 if !t.dims.is_empty() => t.dims[0] = number(rng),
                    _ => {
                        // The same bytes, as other integers.
                        let b = t.raw_data.take().unwrap_or_default();
                        t.raw_data =
                            Some(b.iter().map(|x| x ^ if rng.below(8) == 0 { 0xff } else { 0 }).collect());
                    }
                }
            }
        }
        1 => {
            let i = rng.below(graph.input.len());
            if let Some(type_proto::Value::Tensor(t)) =
                graph.input.get_mut(i).and_then(|i| i.r#type.as_mut()).and_then(|t| t.value.as_mut())
            {
                match rng.below(3) {
                    0 => t.elem_type = Some(rng.below(30) as i32),
                    1 => t.shape = None,
                    _ => {
                        let n = dimension::Value::DimValue(number(rng));
                        let shape = t.shape.get_or_insert_default();
                        let at = rng.below(shape.dim.len() + 1);
                        shape.dim.insert(at, DimensionProto { value: Some(n) });
                    }
                }
            }
        }
        _ => {
            let mut nodes: Vec<&mut NodeProto> = graph.node.iter_mut().chain(functions).collect();
            let at = rng.below(nodes.len());
            let Some(n) = nodes.get_mut(at) else { return };
            match rng.below(6) {
                0 => n.op_type = ops[rng.below(ops.len())].clone(),
                1 => n.op_type = any_op(rng),
                2 if !n.input.is_empty() => {
                    let i = rng.below(n.input.len());
                    n.input[i] = names[rng.below(names.len())].clone();
                }
                3 => {
                    n.input.push(names[rng.below(names.len())].clone());
                }
                4 if !n.attribute.is_empty() => {
                    let i = rng.below(n.attribute.len());
                    let a = &mut n.attribute[i];
                    match rng.below(4) {
                        0 => a.i = Some(number(rng)),
                        1 if !a.ints.is_empty() => {
                            let k = rng.below(a.ints.len());
                            a.ints[k] = number(rng);
                        }
                        2 => a.ints.push(number(rng)),
                        _ => a.r#type = Some(rng.below(15) as i32),
                    }
                }
                _ => {
                    const NAMES: &[&str] = &[
                        "axis",
                        "axes",
                        "keepdims",
                        "perm",
                        "kernel_shape",
                        "dilations",
                        "blocksize",
                        "num_outputs",
                        "size",
                        "p",
                        "to",
                        "group",
                        "batch_dims",
                        "num_groups",
                        "block_size",
                        "time_axis",
                    ];
                    let (value, list) = (number(rng), rng.below(2) == 0);
                    n.attribute.push(AttributeProto {
                        name: Some(NAMES[rng.below(NAMES.len())].into()),
                        i: (!list).then_some(value),
                        ints: if list { vec![value, number(rng)] } else { vec![] },
                        ..Default::default()
                    });
                }
            }
        }
    }
}
