//! Halves that stay wide inside a kernel.
//!
//! By default every value is rounded to its dtype where it is defined, fused or not. With [`Half::Wide`](crate::Half) the values of f16 and
//! bf16 in a kernel are f32 from loads to stores: fewer roundings, less work on machines that round by conversion, and values that
//! depend on what was fused. A cast that the graph has, also the one that ends a composite, is kept: it goes down and up again.

use dvm_ir::DType;
use dvm_ir::kernel::{KInst, KOp, KValue, Kernel};

/// Widens the values of a kernel. Attention keeps its own rules.
pub(crate) fn widen(kernel: &mut Kernel) {
    let whole = |i: &KInst| matches!(i.op, KOp::Contract { .. });
    if !kernel.body.iter().any(|i| i.dtype.is_half()) || kernel.body.iter().any(whole) {
        return;
    }
    let old = std::mem::take(&mut kernel.body);
    let mut body: Vec<KInst> = Vec::with_capacity(old.len() * 2);
    // The new number of each value, f32 where it was a half.
    let mut map: Vec<KValue> = Vec::with_capacity(old.len());
    for mut inst in old {
        let (dtype, mask) = (inst.dtype, inst.mask);
        operands(&mut inst.op, |v| *v = map[v.index()]);
        let half = dtype.is_half();
        // What comes from memory or from a product has the dtype it has there; casts are kept.
        let kept = matches!(
            inst.op,
            KOp::Load { .. } | KOp::Gather { .. } | KOp::MatMul { .. } | KOp::Iota { .. } | KOp::Cast(_)
        );
        if half && !kept {
            inst.dtype = DType::F32;
        }
        body.push(inst);
        let mut at = KValue::new(body.len() - 1);
        if half && kept {
            body.push(KInst { op: KOp::Cast(at), dtype: DType::F32, mask });
            at = KValue::new(body.len() - 1);
        }
        map.push(at);
    }
    for s in &mut kernel.stores {
        let dtype = kernel.operands[s.operand as usize].dtype;
        s.value = map[s.value.index()];
        let inst = &body[s.value.index()];
        if inst.dtype != dtype {
            let mask = inst.mask;
            body.push(KInst { op: KOp::Cast(s.value), dtype, mask });
            s.value = KValue::new(body.len() - 1);
        }
    }
    kernel.body = body;
}

fn operands(op: &mut KOp, mut f: impl FnMut(&mut KValue)) {
    match op {
        KOp::Load { .. } | KOp::Const(_) | KOp::DimConst(_) | KOp::Iota { .. } | KOp::MatMul { .. } => {}
        KOp::Gather { index: x, .. }
        | KOp::Unary(_, x)
        | KOp::Cast(x)
        | KOp::Reduce(_, x, _)
        | KOp::ArgReduce { x, .. }
        | KOp::CumSum { x, .. }
        | KOp::Contract { a: x, .. } => f(x),
        KOp::Binary(_, a, b) => [a, b].into_iter().for_each(f),
        KOp::Fma(a, b, c) | KOp::Select(a, b, c) | KOp::Clamp(a, b, c) => {
            [a, b, c].into_iter().for_each(f);
        }
    }
}
