//! The rules of the kernel form that everything else relies on to index safely. The full verifier is `dvm-ir`'s.

use dvm_ir::Kernel;
use dvm_ir::kernel::{Access, AxisSet, KOp};

use crate::error::Fault;

/// Finds the first violation.
pub(crate) fn check(kernel: &Kernel) -> Result<(), Fault> {
    let err = |value: usize, what: &'static str| Err(Fault::Malformed { value, what });
    let (axes, operands) = (kernel.axes.len(), kernel.operands.len());
    if operands > usize::from(u16::MAX) {
        return Err(Fault::TooLarge("the number of operands"));
    }
    for (i, inst) in kernel.body.iter().enumerate() {
        let fine = |a: &Access| a.strides.len() == axes;
        let known = |o: u32| (o as usize) < operands;
        if inst.mask.0 >> axes.min(31) != 0 {
            return err(i, "varies along an axis that does not exist");
        }
        let ok = match &inst.op {
            KOp::Load { operand, access } => known(*operand) && fine(access),
            KOp::Gather { operand, access, index, .. } => {
                known(*operand) && fine(access) && index.index() < i
            }
            KOp::Const(_) | KOp::DimConst(_) => true,
            KOp::Iota { access } => fine(access),
            KOp::Unary(_, x) | KOp::Cast(x) | KOp::Reduce(_, x, _) => x.index() < i,
            KOp::Binary(_, a, b) => a.index() < i && b.index() < i,
            KOp::Fma(a, b, c) | KOp::Select(a, b, c) | KOp::Clamp(a, b, c) => {
                a.index() < i && b.index() < i && c.index() < i
            }
            KOp::ArgReduce { x, axis, .. } | KOp::CumSum { x, axis, .. } => {
                x.index() < i && usize::from(*axis) < axes
            }
            KOp::MatMul { a, a_access, b, b_access, .. } => {
                i == 0 && axes >= 2 && known(*a) && known(*b) && fine(a_access) && fine(b_access)
            }
            KOp::Contract { a, b, b_access } => {
                let lacks = |mask: AxisSet, axis: usize| !mask.has(axes - axis);
                a.index() < i
                    && axes >= 3
                    && known(*b)
                    && fine(b_access)
                    && lacks(kernel.body[a.index()].mask, 1)
                    && lacks(inst.mask, 2)
                    && kernel.contraction().is_some_and(|c| c.index() == i)
            }
        };
        if !ok {
            return err(i, "an operand, axis or access does not exist");
        }
    }
    for s in &kernel.stores {
        if s.value.index() >= kernel.body.len()
            || s.operand as usize >= operands
            || s.access.strides.len() != axes
        {
            return err(kernel.body.len(), "a store's operand, value or access does not exist");
        }
    }
    Ok(())
}
