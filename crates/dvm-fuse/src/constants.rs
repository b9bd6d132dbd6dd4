//! Ops on constants, evaluated once: small results only, so that weights stay views of what was given.

use dvm_ir::{Dim, Graph, Op, Tensor, TensorType, ValueId, eval::eval_graph};

use crate::builder::Builder;

/// Largest result, in elements.
const MAX_RESULT: usize = 4096;
/// Largest operands, in elements.
const MAX_OPERANDS: usize = 65_536;

/// `op(inputs)` as a constant. What the evaluator refuses (a zero divisor) is left for the run to refuse.
pub(crate) fn fold(b: &mut Builder, op: &Op, inputs: &[ValueId], ty: &TensorType) -> Option<ValueId> {
    // Almost always something is no constant.
    if inputs.iter().any(|&v| b.g.constant_of(v).is_none()) {
        return None;
    }
    let dims = ty.shape.iter().map(|&d| usize::try_from(b.g.dims.as_const(d)?).ok());
    let result = dims.collect::<Option<Vec<usize>>>()?.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if result > MAX_RESULT {
        return None;
    }
    if let Op::Fill { value, dtype, .. } = op {
        let mut t = Tensor::zeros(*dtype, &vec![1; ty.shape.len()]).ok()?;
        if result != 1 {
            return None;
        }
        t.set(0, *value);
        return Some(b.constant(None, t));
    }
    let operands: Vec<&Tensor> = inputs.iter().map(|&v| b.g.constant_of(v)).collect::<Option<_>>()?;
    if operands.iter().any(|t| !t.has_data()) {
        return None;
    }
    if operands.is_empty() || operands.iter().map(|t| t.len()).sum::<usize>() > MAX_OPERANDS {
        return None;
    }
    let mut one = Graph::default();
    let args: Vec<ValueId> = operands.into_iter().map(|t| one.constant(None, t.clone())).collect();
    let shape = dims_of(b, &mut one, &ty.shape)?;
    let op = moved(b, &mut one, op)?;
    let y = one.push_typed(op, &args, TensorType { dtype: ty.dtype, shape }, None);
    one.output("y", y);
    let none: [(&str, Tensor); 0] = [];
    let mut out = eval_graph(&one, &none).ok()?;
    Some(b.constant(None, out.pop()?))
}

/// Constant dims in the table of another graph.
fn dims_of(b: &Builder, to: &mut Graph, dims: &[Dim]) -> Option<Vec<Dim>> {
    dims.iter().map(|&d| Some(to.dims.constant(b.g.dims.as_const(d)?))).collect()
}

/// An op with its dims in the table of another graph.
fn moved(b: &Builder, to: &mut Graph, op: &Op) -> Option<Op> {
    Some(match op {
        Op::Reshape { shape } => Op::Reshape { shape: dims_of(b, to, shape)? },
        Op::Expand { shape } => Op::Expand { shape: dims_of(b, to, shape)? },
        Op::Slice { start, len, step } => {
            let (start, len) = (dims_of(b, to, start)?, dims_of(b, to, len)?);
            Op::Slice { start, len, step: step.clone() }
        }
        Op::Window { axis, count, size, stride, dilation } => {
            let [count, size] = dims_of(b, to, &[*count, *size])?[..] else { return None };
            Op::Window { axis: *axis, count, size, stride: *stride, dilation: *dilation }
        }
        Op::Fill { .. } | Op::Range { .. } | Op::Dims { .. } | Op::Pad { .. } => return None,
        op => op.clone(),
    })
}
