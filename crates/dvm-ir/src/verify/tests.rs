use crate::kernel::{Access, AxisSet, KInst, KOp, KReduce, KStore, KValue, Kernel, Operand};
use crate::plan::{Buffer, BufferId, BufferKind, Call, KernelId, Level, Plan, PlanOutput, Split};
use crate::{
    BinaryOp, DType, Dim, DimTable, Graph, Input, NodeId, Op, TensorType, UnaryOp, ValueDef, ValueId,
};

fn texts(r: Result<(), Vec<super::Violation>>) -> Vec<String> {
    r.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn graph() -> Graph {
    let mut g = Graph::new("g");
    let (b, n) = (g.dims.symbol("b"), g.dims.constant(4));
    let x = g.input("x", DType::F32, &[b, n]);
    let c = g.scalar(DType::F32, 2.0);
    let y = g.mul(x, c).unwrap();
    let z = g.unary(UnaryOp::Exp, y).unwrap();
    g.output("z", z);
    g
}

#[test]
fn graph_rules() {
    let check = |edit: fn(&mut Graph), expect: &[&str]| {
        let mut g = graph();
        edit(&mut g);
        assert_eq!(texts(g.verify()), expect);
    };
    check(|_| {}, &[]);
    check(|g| g.outputs[0].value = ValueId(9), &["output \"z\": v9 is not among 4 values"]);
    check(|g| g.outputs.push(g.outputs[0].clone()), &["graph \"g\": output name \"z\" is used twice"]);
    check(|g| g.nodes[0].inputs[1] = ValueId(3), &["n0 (mul): v3 is defined by the later n1"]);
    check(|g| g.values[3].ty.dtype = DType::F64, &["n1 (exp): type is f64[b, 4], inference gives f32[b, 4]"]);
    check(
        |g| g.values[3].ty.shape[0] = g.dims.symbol("s"),
        &["n1 (exp): type is f32[s, 4], inference gives f32[b, 4]"],
    );
    check(
        |g| g.nodes[1].op = Op::Reduce { op: crate::ReduceOp::Sum, axes: vec![2], keepdims: false },
        &["n1 (reduce): reduce (f32[b, 4]): axes [2] must be sorted, distinct and below the rank 2"],
    );
    check(|g| g.nodes[1].inputs.clear(), &["n1 (exp): exp takes 1 operands, got 0"]);
    check(
        |g| {
            g.values[0].def = ValueDef::Node(NodeId(0));
            g.inputs.push(Input { name: "x".into(), value: ValueId(7), elements: None });
        },
        &[
            "v0: is not the output of n0",
            "input \"x\": v0 is not defined as input 0",
            "input \"x\": v7 is not among 4 values",
            "graph \"g\": input name \"x\" is used twice",
            "n0 (mul): v0 is defined by the later n0",
        ],
    );
    check(
        |g| {
            let ty = TensorType { dtype: DType::F32, shape: g.shape(ValueId(0)).to_vec() };
            let s = g.dims.symbol("s");
            let w = g.input("w", DType::F32, &[s]);
            g.push_typed(Op::Binary(BinaryOp::Add), &[ValueId(0), w], ty, None);
        },
        &["n2 (add): `s in (1, 4)` is not among the checks (add: axis 0 of operand 1 and operand 0)"],
    );
}

fn kernel(t: &mut DimTable) -> Kernel {
    let (b, n) = (t.symbol("b"), t.constant(4));
    let len = t.mul(b, n);
    let access = Access { offset: Dim::ZERO, strides: [n, Dim::ONE].into_iter().collect() };
    let inst = |op, mask| KInst { op, dtype: DType::F32, mask };
    let operand = |write| Operand { dtype: DType::F32, len, write, packable: false };
    let both = AxisSet::first(2);
    Kernel {
        name: "k".into(),
        axes: vec![b, n],
        operands: vec![operand(false), operand(true)],
        body: vec![
            inst(KOp::Load { operand: 0, access: access.clone() }, both),
            inst(KOp::Reduce(KReduce::Max, KValue(0), AxisSet::one(1)), AxisSet::one(0)),
            inst(KOp::Binary(BinaryOp::Sub, KValue(0), KValue(1)), both),
        ],
        stores: vec![KStore { operand: 1, access, value: KValue(2) }],
    }
}

#[test]
fn kernel_rules() {
    let check = |edit: fn(&mut Kernel), expect: &[&str]| {
        let mut t = DimTable::new();
        let mut k = kernel(&mut t);
        edit(&mut k);
        assert_eq!(texts(k.verify(&t)), expect);
    };
    check(|_| {}, &[]);
    check(|k| k.body[1].mask = AxisSet::first(2), &["%1: the mask still has the reduced i1"]);
    check(
        |k| k.body[2].mask = AxisSet::one(0),
        &[
            "%2: varies along i1, which its mask lacks",
            "store 0: the address varies along i1, which the mask lacks",
        ],
    );
    check(|k| k.body.swap(0, 2), &["%0: %0 is not defined before"]);
    check(
        |k| k.body[0].dtype = DType::F16,
        &[
            "%0: dtype is f16, the op gives f32",
            "%1: dtype is f32, the op gives f16",
            "%2: operands must have one dtype",
            "%2: dtype is f32, the op gives f16",
        ],
    );
    check(|k| k.stores[0].operand = 0, &["$1: is written by no store", "store 0: operand $0 is not written"]);
    check(
        |k| k.stores[0].access.strides[1] = Dim::ZERO,
        &["store 0: elements along i1 are stored to one address"],
    );
    check(
        |k| k.axes.truncate(1),
        &[
            "%0: varies along i1, which is no axis",
            "%0: an address of 2 strides over 1 axes",
            "%2: varies along i1, which is no axis",
            "store 0: an address of 2 strides over 1 axes",
        ],
    );
}

/// Two products over i0 (m), i1 (k), i2 (n), with an op between them.
fn products(t: &mut DimTable) -> Kernel {
    let (m, k, n, d) = (t.symbol("m"), t.symbol("k"), t.symbol("n"), t.constant(8));
    let access = |strides: [Dim; 3]| Access { offset: Dim::ZERO, strides: strides.into_iter().collect() };
    let (zero, one) = (Dim::ZERO, Dim::ONE);
    let (a_access, b_access) = (access([d, zero, zero]), access([zero, d, zero]));
    let (v_access, out) = (access([zero, n, one]), access([n, zero, one]));
    let mut operand =
        |x: Dim, y: Dim, write| Operand { dtype: DType::F32, len: t.mul(x, y), write, packable: false };
    let inst = |op, mask| KInst { op, dtype: DType::F32, mask: AxisSet(mask) };
    Kernel {
        name: "k".into(),
        axes: vec![m, k, n],
        operands: vec![operand(m, d, false), operand(k, d, false), operand(k, n, false), operand(m, n, true)],
        body: vec![
            inst(KOp::MatMul { a: 0, a_access, a_k: one, b: 1, b_access, b_k: one, k: d }, 0b011),
            inst(KOp::Unary(UnaryOp::Exp, KValue(0)), 0b011),
            inst(KOp::Contract { a: KValue(1), b: 2, b_access: v_access }, 0b101),
        ],
        stores: vec![KStore { operand: 3, access: out, value: KValue(2) }],
    }
}

#[test]
fn contraction_rules() {
    let check = |edit: fn(&mut Kernel), expect: &[&str]| {
        let mut t = DimTable::new();
        let mut k = products(&mut t);
        edit(&mut k);
        assert_eq!(texts(k.verify(&t)), expect);
    };
    check(|_| {}, &[]);
    check(
        |k| k.body[2].mask = AxisSet::first(3),
        &[
            "%2: the mask still has i1, which is summed over",
            "store 0: elements along i1 are stored to one address",
        ],
    );
    check(|k| k.body[1].mask = AxisSet::first(3), &["%2: %1 varies along the columns of the product"]);
    check(|k| k.operands[2].dtype = DType::F16, &["%2: operands of a product must have one dtype"]);
    check(
        |k| {
            let KOp::Contract { b_access, .. } = &mut k.body[2].op else { return };
            b_access.strides[0] = Dim::ONE;
        },
        &["%2: the address varies along i0, which the mask lacks"],
    );
    check(|k| k.body.push(k.body[2].clone()), &["%3: a kernel holds one contraction"]);
}

fn plan() -> Plan {
    let mut p = Plan { name: "p".into(), ..Plan::default() };
    let k = kernel(&mut p.dims);
    let len = k.operands[0].len;
    let shape = k.axes.clone();
    let buffer = |name: &str, kind| Buffer { name: name.into(), dtype: DType::F32, len, kind };
    p.kernels.push(k);
    p.buffers = vec![
        buffer("x", BufferKind::Input(0)),
        buffer("t", BufferKind::Temp),
        buffer("y", BufferKind::Output(0)),
    ];
    p.inputs.push(crate::plan::PlanInput {
        input: Input { name: "x".into(), value: ValueId(0), elements: None },
        dtype: DType::F32,
        shape: shape.clone(),
        buffer: BufferId(0),
    });
    p.outputs.push(PlanOutput { name: "y".into(), dtype: DType::F32, shape, buffer: BufferId(2) });
    let call = |a, b| Call { kernel: KernelId(0), args: vec![BufferId(a), BufferId(b)], nodes: vec![] };
    p.calls = vec![call(0, 1), call(1, 2)];
    p.levels = vec![Level { calls: vec![0] }, Level { calls: vec![1] }];
    p
}

#[test]
fn plan_rules() {
    let check = |edit: fn(&mut Plan), expect: &[&str]| {
        let mut p = plan();
        edit(&mut p);
        assert_eq!(texts(p.verify()), expect);
    };
    check(|_| {}, &[]);
    check(
        |p| p.levels = vec![Level { calls: vec![0, 1] }],
        &["b1 \"t\": call 1 in level 0 reads it, call 0 in level 0 writes it"],
    );
    check(
        |p| p.levels[1].calls[0] = 0,
        &["level 1: call 0 is in level 0 already", "call 1: is in no level", "b2 \"y\": nothing writes it"],
    );
    check(|p| p.calls[1].args[1] = BufferId(0), &["call 1: writes b0, which is input 0"]);
    check(|p| p.calls[1].args[1] = BufferId(1), &["call 1: writes b1, which is another operand too"]);
    check(|p| p.calls[0].args.truncate(1), &["call 0: 1 buffers for the 2 operands of k0"]);
    check(
        |p| p.buffers[1].len = Dim::ONE,
        &[
            "call 0: lengths of $1 and b1 are not provably equal: 4*b and 1",
            "call 1: lengths of $0 and b1 are not provably equal: 4*b and 1",
        ],
    );
    let part = |a, b| Call { kernel: KernelId(0), args: vec![BufferId(a), BufferId(b)], nodes: vec![] };
    let split = |call, parts: &[Call], expect: &[&str]| {
        let mut p = plan();
        p.buffers.push(Buffer { name: "u".into(), kind: BufferKind::Temp, ..p.buffers[1].clone() });
        p.splits.push(Split { call, parts: parts.to_vec() });
        assert_eq!(texts(p.verify()), expect);
    };
    split(1, &[part(1, 3), part(3, 2)], &[]);
    split(2, &[part(1, 3)], &["split 0: call 2 does not exist"]);
    split(1, &[], &["split 0: call 1 has no parts"]);
    split(1, &[part(1, 3)], &["in parts: b2 \"y\": nothing writes it"]);
    split(
        1,
        &[part(3, 2), part(1, 3)],
        &[
            "in parts: b3 \"u\": call 1 in level 1 reads it, call 2 in level 2 writes it",
            "in parts: b3 \"u\": call 1 reads it before call 2, which writes it",
        ],
    );
    check(
        |p| p.outputs[0].buffer = BufferId(1),
        &["b2 \"y\": is not the buffer of output 0", "output \"y\": b1 is not its buffer"],
    );
}

#[test]
fn plan_text() {
    let expect = "\
plan p
  input \"x\": f32[b, 4] in b0
  output \"y\": f32[b, 4] in b2
  buffer b0 \"x\": f32[4*b] input 0
  buffer b1 \"t\": f32[4*b] temporary
  buffer b2 \"y\": f32[4*b] output 0
  level 0
    call 0: k0 k(b0 \"x\") -> b1 \"t\"
  level 1
    call 1: k0 k(b1 \"t\") -> b2 \"y\"
k0 = kernel k for i0 < b, i1 < 4
  $0: read f32[4*b]
  $1: write f32[4*b]
  %0: f32[i0, i1] = load $0[4*i0 + i1]
  %1: f32[i0] = max %0 over i1
  %2: f32[i0, i1] = sub %0, %1
  store $1[4*i0 + i1] = %2
";
    assert_eq!(plan().to_string(), expect);
}
