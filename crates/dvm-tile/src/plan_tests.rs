use dvm_ir::kernel::{Access, AxisSet, KInst, KOp, KStore, KValue, Kernel, Operand};
use dvm_ir::plan::{Buffer, BufferId, BufferKind, Call, KernelId, Level, Plan};
use dvm_ir::{Bindings, DType, Dim, DimTable, DimValues, UnaryOp};
use dvm_npu::MachineSpec;

use super::*;
use crate::Fault;

/// `y = exp x` over n elements.
fn exp(n: Dim) -> Kernel {
    let access = || Access { offset: Dim::ZERO, strides: [Dim::ONE].into_iter().collect() };
    let operand = |write| Operand { dtype: DType::F32, len: n, write, packable: false };
    let inst = |op| KInst { op, dtype: DType::F32, mask: AxisSet::first(1) };
    Kernel {
        name: "exp".into(),
        axes: vec![n],
        operands: vec![operand(false), operand(true)],
        body: vec![
            inst(KOp::Load { operand: 0, access: access() }),
            inst(KOp::Unary(UnaryOp::Exp, KValue(0))),
        ],
        stores: vec![KStore { operand: 1, access: access(), value: KValue(1) }],
    }
}

/// A plan that applies kernels of lengths `n[i]` between buffers; a level a call.
fn plan(lens: &[i64], calls: &[(usize, u32, u32)]) -> Plan {
    let mut dims = DimTable::new();
    let kernels: Vec<Kernel> = lens.iter().map(|&n| exp(dims.constant(n))).collect();
    let last = calls.iter().map(|c| c.1.max(c.2)).max().unwrap();
    let mut plan = Plan { name: "p".into(), dims, kernels, ..Plan::default() };
    for b in 0..=last {
        let call = calls.iter().find(|c| c.1 == b || c.2 == b).unwrap();
        let kind = match b {
            0 => BufferKind::Input(0),
            b if b == last => BufferKind::Output(0),
            _ => BufferKind::Temp,
        };
        let len = plan.kernels[call.0].axes[0];
        plan.buffers.push(Buffer { name: format!("b{b}"), dtype: DType::F32, len, kind });
    }
    for (i, &(k, from, to)) in calls.iter().enumerate() {
        let args = vec![BufferId(from), BufferId(to)];
        plan.calls.push(Call { kernel: KernelId::new(k), args, nodes: vec![] });
        plan.levels.push(Level { calls: vec![i as u32] });
    }
    plan
}

fn compile(plan: &Plan) -> Result<Compiled, TileError> {
    let mut values = DimValues::default();
    plan.dims.eval_all(&Bindings::new(), &mut values);
    let mut scratch = Scratch::default();
    // Buffers of these plans are shorter or longer than what their kernels touch.
    scratch.check(false);
    compile_plan(plan, &values, &MachineSpec::named("host-ref").unwrap(), &mut scratch)
}

/// Offset of each temporary, from the units.
fn offsets(c: &Compiled) -> Vec<(u32, u64)> {
    let mut out: Vec<(u32, u64)> = c.program.steps.iter().map(|s| s.units[0].slots[1]).collect();
    out.pop();
    out
}

#[test]
fn workspace_is_reused_when_a_buffer_is_dead() {
    // (lengths in elements, expected offsets of the chain's temporaries, expected size)
    let table: [(&[i64], &[u64], u64); 4] = [
        (&[16, 16, 16, 16], &[0, 64, 0], 128),
        (&[16, 160, 16, 16], &[0, 64, 0], 704),
        (&[16, 1, 1, 1], &[0, 64, 0], 128),
        (&[16, 0, 16, 16], &[0, 64, 0], 128),
    ];
    for (lens, expect, bytes) in table {
        // A chain: call i reads buffer i and writes buffer i + 1; lengths belong to the call that writes.
        let calls: Vec<(usize, u32, u32)> = (0..lens.len()).map(|i| (i, i as u32, i as u32 + 1)).collect();
        let mut p = plan(lens, &calls);
        for (i, &n) in lens.iter().enumerate() {
            let len = p.dims.constant(n);
            p.buffers[i + 1].len = len;
        }
        let c = compile(&p).unwrap();
        if lens.contains(&0) {
            // The empty call has no unit, and its buffer no place.
            assert_eq!(c.program.steps.len(), 3);
            continue;
        }
        let got: Vec<u64> = offsets(&c).iter().map(|o| o.1).collect();
        assert_eq!((got.as_slice(), c.workspace_bytes), (expect, bytes), "{lens:?}");
    }
}

#[test]
fn equal_kernels_share_a_template() {
    let p = plan(&[100], &[(0, 0, 1), (0, 1, 2), (0, 2, 3)]);
    let c = compile(&p).unwrap();
    assert_eq!((c.program.templates.len(), c.program.steps.len(), c.tilings.len()), (1, 3, 1));
    assert_eq!(c.arg_buffers, [ArgBinding::Input(0), ArgBinding::Output(0), ArgBinding::Workspace]);
}

#[test]
fn errors_name_what_is_wrong() {
    let mut p = plan(&[100], &[(0, 0, 1)]);
    let s = p.dims.symbol("s");
    p.kernels[0].axes[0] = s;
    let e = compile(&p).unwrap_err();
    assert_eq!(e.to_string(), "kernel `exp`: an axis has no value under these dims");
    let huge = p.dims.constant(i64::MAX / 2);
    (p.kernels[0].axes[0], p.buffers[0].len) = (huge, huge);
    assert!(matches!(compile(&p).unwrap_err().fault, Fault::TooLarge(_)), "{:?}", compile(&p));
    let negative = p.dims.constant(-3);
    p.kernels[0].axes[0] = negative;
    assert_eq!(compile(&p).unwrap_err().to_string(), "kernel `exp`: an axis is -3");
    p.kernels[0].body[1].op = KOp::Unary(UnaryOp::Exp, KValue(7));
    p.kernels[0].axes[0] = Dim::ONE;
    assert!(matches!(compile(&p).unwrap_err().fault, Fault::Malformed { value: 1, .. }));
}
