//! Hand-written kernels and plans.

use smallvec::SmallVec;

use super::super::*;
use crate::{
    BinaryOp, Bindings, Kernel, Plan, Scalar, UnaryOp,
    kernel::*,
    plan::{Buffer, BufferId, BufferKind, Call, KernelId, Level, PlanInput, PlanOutput},
};

fn access(t: &mut DimTable, offset: i64, strides: &[i64]) -> Access {
    Access {
        offset: t.constant(offset),
        strides: strides.iter().map(|&s| t.constant(s)).collect::<SmallVec<_>>(),
    }
}

fn operand(t: &mut DimTable, dtype: DType, len: i64, write: bool) -> Operand {
    Operand { dtype, len: t.constant(len), write, packable: false }
}

fn inst(op: KOp, dtype: DType, mask: u32) -> KInst {
    KInst { op, dtype, mask: AxisSet(mask) }
}

fn f32s(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

/// Rows minus their maximum: a reduction and an op after it in one kernel.
fn centred(t: &mut DimTable, rows: i64, cols: i64) -> Kernel {
    let load = KOp::Load { operand: 0, access: access(t, 0, &[cols, 1]) };
    Kernel {
        name: "centred".into(),
        axes: vec![t.constant(rows), t.constant(cols)],
        operands: vec![operand(t, DType::F32, rows * cols, false), operand(t, DType::F32, rows * cols, true)],
        body: vec![
            inst(load, DType::F32, 3),
            inst(KOp::Reduce(KReduce::Max, KValue(0), AxisSet(2)), DType::F32, 1),
            inst(KOp::Binary(BinaryOp::Sub, KValue(0), KValue(1)), DType::F32, 3),
        ],
        stores: vec![KStore { operand: 1, access: access(t, 0, &[cols, 1]), value: KValue(2) }],
    }
}

#[test]
fn reduce_then_broadcast() {
    let mut t = DimTable::new();
    let k = centred(&mut t, 2, 3);
    let mut args = [f32s(&[1., 2., 3., 9., 7., 8.]), f32s(&[0.; 6])];
    eval_kernel(&k, &t, &Bindings::new(), &mut args).unwrap();
    assert_eq!(args[1].as_slice::<f32>().unwrap(), [-2., -1., 0., 0., -2., -1.]);
}

#[test]
fn matmul_with_a_transposed_operand_and_a_bias() {
    let mut t = DimTable::new();
    let (m, n, k) = (2, 3, 4);
    let mm = KOp::MatMul {
        a: 0,
        a_access: access(&mut t, 0, &[k, 0]),
        a_k: t.constant(1),
        b: 1,
        // b is stored [n, k].
        b_access: access(&mut t, 0, &[0, k]),
        b_k: t.constant(1),
        k: t.constant(k),
    };
    let bias = KOp::Load { operand: 2, access: access(&mut t, 0, &[0, 1]) };
    let kernel = Kernel {
        name: "mm".into(),
        axes: vec![t.constant(m), t.constant(n)],
        operands: [(m * k, false), (n * k, false), (n, false), (m * n, true)]
            .map(|(len, write)| operand(&mut t, DType::F32, len, write))
            .to_vec(),
        body: vec![
            inst(mm, DType::F32, 3),
            inst(bias, DType::F32, 2),
            inst(KOp::Binary(BinaryOp::Add, KValue(0), KValue(1)), DType::F32, 3),
        ],
        stores: vec![KStore { operand: 3, access: access(&mut t, 0, &[n, 1]), value: KValue(2) }],
    };
    let a: Vec<f32> = (0..8).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..12).map(|i| i as f32 * 0.5).collect();
    let mut args = [f32s(&a), f32s(&b), f32s(&[100., 200., 300.]), f32s(&[0.; 6])];
    eval_kernel(&kernel, &t, &Bindings::new(), &mut args).unwrap();
    // numpy: a.reshape(2, 4) @ b.reshape(3, 4).T + bias
    assert_eq!(args[3].as_slice::<f32>().unwrap(), [107., 219., 331., 119., 263., 407.]);
}

/// A gather of rows of a `[4, 2]` table by three indices, negative ones from the end.
fn gather(t: &mut DimTable) -> Kernel {
    let body = vec![
        inst(KOp::Load { operand: 1, access: access(t, 0, &[1, 0]) }, DType::I64, 1),
        inst(
            KOp::Gather {
                operand: 0,
                access: access(t, 0, &[0, 1]),
                index: KValue(0),
                stride: t.constant(2),
                limit: t.constant(4),
            },
            DType::F32,
            3,
        ),
    ];
    Kernel {
        name: "gather".into(),
        axes: vec![t.constant(3), t.constant(2)],
        operands: vec![
            operand(t, DType::F32, 8, false),
            operand(t, DType::I64, 3, false),
            operand(t, DType::F32, 6, true),
        ],
        body,
        stores: vec![KStore { operand: 2, access: access(t, 0, &[2, 1]), value: KValue(1) }],
    }
}

#[test]
fn gather_wraps_and_refuses() {
    let mut t = DimTable::new();
    let k = gather(&mut t);
    let table = f32s(&[0., 1., 10., 11., 20., 21., 30., 31.]);
    let with = |index: [i64; 3]| {
        let mut args = [table.clone(), Tensor::from_slice(&[3], &index).unwrap(), f32s(&[0.; 6])];
        eval_kernel(&k, &t, &Bindings::new(), &mut args).map(|()| args[2].as_slice::<f32>().unwrap().to_vec())
    };
    assert_eq!(with([3, 0, -3]).unwrap(), [30., 31., 0., 1., 10., 11.]);
    let text = with([0, 4, 0]).unwrap_err().to_string();
    assert_eq!(text, "kernel `gather`, %1: index 4 at [1, 0] is out of range for axis 0 of extent 4");
}

#[test]
fn malformed_kernels_are_errors() {
    let mut t = DimTable::new();
    let good = centred(&mut t, 2, 3);
    let far = access(&mut t, 1, &[3, 1]);
    let negative = access(&mut t, 0, &[-3, 1]);
    type Change<'a> = &'a dyn Fn(&mut Kernel);
    let cases: [(&str, Change<'_>); 6] = [
        ("store 0: address 6 is outside a buffer of 6 elements", &|k| k.stores[0].access = far.clone()),
        ("%0: address -3 is outside a buffer of 6 elements", &|k| {
            k.body[0].op = KOp::Load { operand: 0, access: negative.clone() }
        }),
        ("%0: malformed: stride 1 along axis 1, which the mask lacks", &|k| k.body[0].mask = AxisSet(1)),
        ("%1: malformed: %9 is used before it is defined", &|k| {
            k.body[1].op = KOp::Unary(UnaryOp::Exp, KValue(9))
        }),
        ("store 0: malformed: operand 0 cannot be written", &|k| k.stores[0].operand = 0),
        ("store 0: element 0 is used twice in one level, and one of the uses writes it", &|k| {
            k.stores[0].access.strides[0] = Dim::ZERO
        }),
    ];
    for (want, change) in cases {
        let mut k = good.clone();
        change(&mut k);
        let mut args = [f32s(&[0.; 6]), f32s(&[0.; 6])];
        let text = eval_kernel(&k, &t, &Bindings::new(), &mut args).unwrap_err().to_string();
        assert_eq!(text, format!("kernel `centred`, {want}"));
    }
}

/// Two applications of a kernel over an unknown number of rows.
fn plan() -> Plan {
    let mut p = Plan { name: "two".into(), ..Plan::default() };
    let r = p.dims.symbol("r");
    let three = p.dims.constant(3);
    let len = p.dims.mul(r, three);
    let mut k = centred(&mut p.dims, 1, 3);
    k.axes[0] = r;
    k.operands.iter_mut().for_each(|o| o.len = len);
    p.kernels = vec![k];
    let buffer = |name: &str, kind| Buffer { name: name.into(), dtype: DType::F32, len, kind };
    p.buffers = vec![
        buffer("x", BufferKind::Input(0)),
        buffer("t", BufferKind::Temp),
        buffer("y", BufferKind::Output(0)),
    ];
    let call = |a, b| Call { kernel: KernelId(0), args: vec![BufferId(a), BufferId(b)], nodes: vec![] };
    p.calls = vec![call(0, 1), call(1, 2)];
    p.levels = vec![Level { calls: vec![0] }, Level { calls: vec![1] }];
    let input = crate::Input { name: "x".into(), value: crate::ValueId(0), elements: None };
    p.inputs = vec![PlanInput { input, dtype: DType::F32, shape: vec![r, three], buffer: BufferId(0) }];
    p.outputs =
        vec![PlanOutput { name: "y".into(), dtype: DType::F32, shape: vec![r, three], buffer: BufferId(2) }];
    p
}

#[test]
fn plans_run_level_by_level() {
    let p = plan();
    for rows in [0, 1, 4] {
        let x: Vec<f32> = (0..rows * 3).map(|i| (i % 5) as f32).collect();
        let y = eval_plan(&p, &[("x", Tensor::from_slice(&[rows, 3], &x).unwrap())]).unwrap().remove(0);
        assert_eq!(y.shape(), [rows, 3]);
        let want: Vec<f32> =
            x.chunks(3).flat_map(|r| r.iter().map(|v| v - r.iter().fold(0f32, |m, &v| m.max(v)))).collect();
        assert_eq!(y.as_slice::<f32>().unwrap(), want);
    }
}

#[test]
fn plans_that_rely_on_luck_are_refused() {
    let x = || [("x", Tensor::zeros(DType::F32, &[1, 3]).unwrap())];
    let mut same_level = plan();
    same_level.levels = vec![Level { calls: vec![0, 1] }];
    let mut wrong_order = plan();
    wrong_order.levels.swap(0, 1);
    let mut missing = plan();
    missing.levels.pop();
    let race = "element 0 is used twice in one level, and one of the uses writes it";
    for (p, want) in [
        (same_level, format!("kernel `centred`, %0: {race}")),
        (wrong_order, "kernel `centred`, %0: element 0 is read but never written".to_string()),
        (missing, "output `y`: element 0 is read but never written".to_string()),
    ] {
        assert_eq!(eval_plan(&p, &x()).unwrap_err().to_string(), want);
    }
}

#[test]
fn scalars_and_dims() {
    let mut t = DimTable::new();
    let s = t.symbol("s");
    let k = Kernel {
        name: "fill".into(),
        axes: vec![s],
        operands: vec![Operand { dtype: DType::F16, len: s, write: true, packable: false }],
        body: vec![
            inst(KOp::Iota { access: access(&mut t, 1, &[2]) }, DType::F16, 1),
            inst(KOp::DimConst(s), DType::F16, 0),
            inst(KOp::Const(Scalar::Float(0.1)), DType::F16, 0),
            inst(KOp::Fma(KValue(0), KValue(2), KValue(1)), DType::F16, 1),
        ],
        stores: vec![KStore { operand: 0, access: access(&mut t, 0, &[1]), value: KValue(3) }],
    };
    let mut b = Bindings::new();
    b.bind(t.find_symbol("s").unwrap(), 3).unwrap();
    let mut args = [Tensor::zeros(DType::F16, &[3]).unwrap()];
    eval_kernel(&k, &t, &b, &mut args).unwrap();
    let tenth = half::f16::from_f32(0.1).to_f32();
    let want = [1., 3., 5.].map(|i| half::f16::from_f32(i * tenth + 3.));
    assert_eq!(args[0].as_slice::<half::f16>().unwrap(), want);
}
