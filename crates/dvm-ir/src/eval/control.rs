//! Controls: the meaning of branches, loops and reads.

use super::{EvalError, Fault};
use crate::bind::{self, Frame};
use crate::{Control, ControlKind, DType, Graph, LoopParts, Scalar, Tensor};

/// Most iterations of all loops of one evaluation.
pub(super) const MAX_ITERATIONS: u64 = 1 << 20;

/// The results of a control (for a read: its operand).
pub(super) fn run(
    graph: &Graph,
    c: &Control,
    args: &[Tensor],
    frame: &Frame,
    left: &mut u64,
) -> Result<Vec<Tensor>, EvalError> {
    let fail = |fault| EvalError::Control { control: c.to_string(), fault };
    let invalid = |what: &str| fail(Fault::Invalid(what.into()));
    let mut body = |i: usize, place: String, given: &[&Tensor], left: &mut u64| {
        let body = c.bodies.get(i).ok_or_else(|| invalid("a body is missing"))?;
        let seeds = bind::inherited(&graph.dims, &frame.bindings, &body.dims);
        super::run(body, seeds, given, left).map_err(|e| EvalError::Body {
            control: c.to_string(),
            place,
            source: Box::new(e),
        })
    };
    match &c.kind {
        ControlKind::Read { .. } => Ok(args.to_vec()),
        ControlKind::NonZero => {
            let x = args.first().ok_or_else(|| invalid("it has no operand"))?;
            Ok(vec![crate::nonzero(x).map_err(|e| fail(Fault::Invalid(e.to_string())))?])
        }
        ControlKind::Host(op) => op.run(args).map_err(|e| fail(Fault::Invalid(e.to_string()))),
        ControlKind::If => {
            let taken = usize::from(!flag(args.first()).map_err(fail)?);
            let from = 1 + if taken == 0 { 0 } else { c.captured(0).len() };
            let given: Vec<&Tensor> = args.iter().skip(from).take(c.captured(taken).len()).collect();
            body(taken, ["first body", "second body"][taken].into(), &given, left)
        }
        ControlKind::Loop { .. } => {
            let parts = c.loop_parts().ok_or_else(|| invalid("it has fewer results than carried values"))?;
            repeat(graph, c, parts, args, frame, left, &mut body)
        }
    }
}

type Body<'a> = dyn FnMut(usize, String, &[&Tensor], &mut u64) -> Result<Vec<Tensor>, EvalError> + 'a;

fn repeat(
    graph: &Graph,
    c: &Control,
    LoopParts { carried, scanned, stacked }: LoopParts,
    args: &[Tensor],
    frame: &Frame,
    left: &mut u64,
    body: &mut Body<'_>,
) -> Result<Vec<Tensor>, EvalError> {
    let fail = |fault| EvalError::Control { control: c.to_string(), fault };
    let trips = number(args.first()).map_err(fail)?.max(0);
    let mut go_on = flag(args.get(1)).map_err(fail)?;
    let mut state = args.get(2..2 + carried).unwrap_or_default().to_vec();
    let slices = args.get(2 + carried..2 + carried + scanned).unwrap_or_default();
    let captured = args.get(2 + carried + scanned..).unwrap_or_default();
    for (i, x) in slices.iter().enumerate() {
        if x.shape().first().is_none_or(|&n| (n as i64) < trips) {
            return Err(fail(Fault::Shapes(format!(
                "{trips} slices of scanned tensor {i}, {:?}",
                x.shape()
            ))));
        }
    }
    let mut stacks: Vec<Vec<Tensor>> = vec![vec![]; stacked];
    let mut step = 0;
    while go_on && step < trips {
        *left = left.checked_sub(1).ok_or_else(|| fail(Fault::Iterations { limit: MAX_ITERATIONS }))?;
        let at = [
            Tensor::scalar(DType::I64, Scalar::Int(step)),
            Tensor::scalar(DType::Bool, Scalar::Int(i64::from(go_on))),
        ];
        let mut own = vec![];
        for (i, x) in slices.iter().enumerate() {
            let k = if c.is_backward(i) { trips - 1 - step } else { step };
            own.push(slice(x, k as usize).map_err(fail)?);
        }
        let given: Vec<&Tensor> = at.iter().chain(&state).chain(&own).chain(captured).collect();
        let mut out = body(0, format!("iteration {step}"), &given, left)?.into_iter();
        go_on = flag(out.next().as_ref()).map_err(fail)?;
        state = out.by_ref().take(carried).collect();
        for (stack, t) in stacks.iter_mut().zip(out) {
            stack.push(t);
        }
        step += 1;
    }
    for (i, stack) in stacks.iter_mut().enumerate() {
        if c.is_backward(scanned + i) {
            stack.reverse();
        }
        let ty = &graph.value(c.outputs[carried + i]).ty;
        let row = stack.first().map_or_else(|| frame.row(ty), |t| t.shape().to_vec());
        state.push(join(ty.dtype, &row, stack).map_err(fail)?);
    }
    Ok(state)
}

fn number(t: Option<&Tensor>) -> Result<i64, Fault> {
    match t {
        Some(t) if t.len() == 1 => Ok(t.get(0).as_i64()),
        Some(t) => Err(Fault::Shapes(format!("one number is needed, got {:?}", t.shape()))),
        None => Err(Fault::Invalid("an operand is missing".into())),
    }
}
fn flag(t: Option<&Tensor>) -> Result<bool, Fault> {
    number(t).map(|n| n != 0)
}

fn slice(x: &Tensor, k: usize) -> Result<Tensor, Fault> {
    let row = &x.shape()[1..];
    let bytes = row.iter().product::<usize>() * x.dtype().size();
    Tensor::from_bytes(x.dtype(), row, &x.bytes()[k * bytes..(k + 1) * bytes])
        .map_err(|e| Fault::Invalid(e.to_string()))
}

fn join(dtype: DType, row: &[usize], parts: &[Tensor]) -> Result<Tensor, Fault> {
    if let Some(t) = parts.iter().find(|t| t.shape() != row) {
        return Err(Fault::Shapes(format!("slices of {row:?} and {:?} are stacked", t.shape())));
    }
    let data: Vec<u8> = parts.iter().flat_map(|t| t.bytes().iter().copied()).collect();
    let shape: Vec<usize> = std::iter::once(parts.len()).chain(row.iter().copied()).collect();
    Tensor::from_bytes(dtype, &shape, &data).map_err(|e| Fault::Invalid(e.to_string()))
}
