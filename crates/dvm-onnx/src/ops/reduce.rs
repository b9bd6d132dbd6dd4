//! Reductions, extremes' positions, running sums.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, ReduceOp as R};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::Fail;

pub(super) const ROWS: &[OpRow] = &[
    op!("ArgMax", 1, |c| extreme(c, true)),
    op!("ArgMin", 1, |c| extreme(c, false)),
    op!("CumProd", 26, cumprod, "work grows with the square of the axis"),
    op!("CumSum", 11, cumsum),
    op!("ReduceL1", 1, |c| reduce(c, R::L1)),
    op!("ReduceL2", 1, |c| reduce(c, R::L2)),
    op!("ReduceLogSum", 1, |c| reduce(c, R::LogSum)),
    op!("ReduceLogSumExp", 1, |c| reduce(c, R::LogSumExp)),
    op!("ReduceMax", 1, |c| reduce(c, R::Max)),
    op!("ReduceMean", 1, |c| reduce(c, R::Mean)),
    op!("ReduceMin", 1, |c| reduce(c, R::Min)),
    op!("ReduceProd", 1, |c| reduce(c, R::Prod)),
    op!("ReduceSum", 1, |c| reduce(c, R::Sum)),
    op!("ReduceSumSquare", 1, |c| reduce(c, R::SumSquare)),
];

fn reduce(c: &mut Cx<'_, '_>, op: R) -> Outs {
    let x = c.input(0)?;
    let (rank, dtype) = (c.rank(x), c.dtype(x));
    let keepdims = c.flag("keepdims", true)?;
    let mut axes = match c.consts_or_attr(1, "axes")? {
        Some(a) => c.axes(&a, rank)?,
        None => vec![],
    };
    // An empty list means every axis, or none when asked so.
    if axes.is_empty() {
        if c.flag("noop_with_empty_axes", false)? {
            return Ok(vec![noop(c, op)?]);
        }
        axes = (0..rank).collect();
    }
    let nd = c.known(x).filter(|nd| dtype.is_int() && axes.iter().all(|&a| nd.shape[a] > 0)).and_then(|nd| {
        let dims = c.dims();
        match op {
            R::Sum => nd.reduce(&axes, keepdims, |a, b| dims.add(a, b)),
            R::Prod => nd.reduce(&axes, keepdims, |a, b| dims.mul(a, b)),
            R::Max => nd.reduce(&axes, keepdims, |a, b| dims.max(a, b)),
            R::Min => nd.reduce(&axes, keepdims, |a, b| dims.min(a, b)),
            _ => None,
        }
    });
    let out = c.known_or(dtype, &[x], nd, |c| match (op, dtype) {
        // Bool extremes are any and all.
        (R::Max, DType::Bool) => c.reduce(R::Any, x, &axes, keepdims),
        (R::Min, DType::Bool) => c.reduce(R::All, x, &axes, keepdims),
        // Defined for integers too, with the result in their dtype.
        (R::Mean | R::L2 | R::LogSum | R::LogSumExp, d) if !d.is_float() => {
            let x = c.cast(x, DType::F64)?;
            let y = c.reduce(op, x, &axes, keepdims)?;
            c.cast(y, d)
        }
        _ => c.reduce(op, x, &axes, keepdims),
    })?;
    Ok(vec![out])
}

/// A reduction over no axes still applies its elementwise part.
fn noop(c: &mut Cx<'_, '_>, op: R) -> Result<crate::value::V, Fail> {
    let x = c.input(0)?;
    match op {
        R::Sum | R::Mean | R::Prod | R::Max | R::Min | R::Any | R::All => Ok(x),
        _ => c.reduce(op, x, &[], true),
    }
}

fn extreme(c: &mut Cx<'_, '_>, max: bool) -> Outs {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let (keepdims, last) = (c.flag("keepdims", true)?, c.flag("select_last_index", false)?);
    let op = if max { Op::ArgMax { axis, keepdims, last } } else { Op::ArgMin { axis, keepdims, last } };
    Ok(vec![c.push(op, &[x])?])
}

/// Axis operand and flags of the running ops; `None` for rank 0.
fn running(c: &mut Cx<'_, '_>) -> Result<(Option<usize>, bool, bool), Fail> {
    let (x, axis) = (c.input(0)?, c.input(1)?);
    let axis = c.const_scalar(axis)?;
    let (exclusive, reverse) = (c.flag("exclusive", false)?, c.flag("reverse", false)?);
    let axis = match c.rank(x) {
        0 if matches!(axis, 0 | -1) => None,
        rank => Some(c.axis(axis, rank)?),
    };
    Ok((axis, exclusive, reverse))
}

fn cumsum(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let (axis, exclusive, reverse) = running(c)?;
    Ok(vec![match axis {
        Some(axis) => c.push(Op::CumSum { axis, exclusive, reverse }, &[x])?,
        None if exclusive => c.scalar(c.dtype(x), 0.0),
        None => x,
    }])
}

/// Element i is the product over a triangle: of the elements up to i, the others standing as 1.
fn cumprod(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let (axis, exclusive, reverse) = running(c)?;
    let one = c.scalar(c.dtype(x), 1.0);
    let Some(axis) = axis else { return Ok(vec![if exclusive { one } else { x }]) };
    let shape = c.shape(x);
    let mut wide = shape.clone();
    wide.insert(axis, Dim::ONE);
    let rank = wide.len();
    let wide = c.reshape(x, wide)?;
    let steps = c.iota(shape[axis], DType::I64)?;
    let (to, from) = (c.place_at(steps, axis, rank)?, c.place_at(steps, axis + 1, rank)?);
    let op = match (exclusive, reverse) {
        (false, false) => B::Le,
        (true, false) => B::Lt,
        (false, true) => B::Ge,
        (true, true) => B::Gt,
    };
    let counts = c.binary(op, from, to)?;
    let y = c.select(counts, wide, one)?;
    Ok(vec![c.reduce(R::Prod, y, &[axis + 1], false)?])
}
