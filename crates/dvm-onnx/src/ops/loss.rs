//! Losses of classifiers.

use dvm_ir::{BinaryOp as B, CheckCond, DType, Dim, Op, ReduceOp as R, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::Cx;
use crate::error::{Fail, invalid};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("NegativeLogLikelihoodLoss", 12, |c| {
        let x = c.input(0)?;
        Ok(vec![loss(c, x)?])
    }),
    op!("SoftmaxCrossEntropyLoss", 12, |c| {
        let x = c.input(0)?;
        let p = c.push(Op::LogSoftmax { axis: 1 }, &[x])?;
        Ok(vec![loss(c, p)?, p])
    }),
];

/// Minus the logarithm at each target, weighted by class, reduced as asked.
fn loss(c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
    let target = c.input(1)?;
    let (shape, dtype) = (c.shape(x), c.dtype(x));
    if shape.len() < 2 || c.rank(target) + 1 != shape.len() {
        return invalid(format!("targets of rank {} for rank {}", c.rank(target), shape.len()));
    }
    let own = c.shape(target);
    for (i, &n) in own.iter().enumerate() {
        let other = shape[if i == 0 { 0 } else { i + 1 }];
        c.assume(CheckCond::Equal(n, other), &format!("axis {i} of the targets"))?;
    }
    let target = c.cast(target, DType::I64)?;
    let ignored = match c.int("ignore_index")? {
        Some(i) => {
            let i = c.scalar(DType::I64, i as f64);
            Some(c.binary(B::Eq, target, i)?)
        }
        None => None,
    };
    let zero = c.scalar(DType::I64, 0.0);
    let at = match ignored {
        Some(hit) => c.select(hit, zero, target)?,
        None => target,
    };
    let mut wide = own.clone();
    wide.insert(1, Dim::ONE);
    let column = c.reshape(at, wide)?;
    let y = c.push(Op::GatherElements { axis: 1 }, &[x, column])?;
    let y = c.reshape(y, own.clone())?;
    let mut y = c.unary(U::Neg, y)?;
    let mut weight = match c.opt(2) {
        Some(w) => {
            let w = c.push(Op::Gather { axis: 0 }, &[w, at])?;
            Some(c.cast(w, dtype)?)
        }
        None => None,
    };
    if let Some(hit) = ignored {
        let (one, none) = (c.scalar(dtype, 1.0), c.scalar(dtype, 0.0));
        weight = Some(c.select(hit, none, weight.unwrap_or(one))?);
        y = c.select(hit, none, y)?;
    }
    if let Some(w) = weight {
        y = c.mul(y, w)?;
    }
    let axes: Vec<usize> = (0..own.len()).collect();
    match (c.string("reduction")?.unwrap_or("mean"), weight) {
        ("none", _) => Ok(y),
        ("sum", _) => c.reduce(R::Sum, y, &axes, false),
        ("mean", None) => c.reduce(R::Mean, y, &axes, false),
        ("mean", Some(w)) => {
            let (sum, all) = (c.reduce(R::Sum, y, &axes, false)?, c.reduce(R::Sum, w, &axes, false)?);
            c.div(sum, all)
        }
        (other, _) => invalid(format!("reduction \"{other}\"")),
    }
}
