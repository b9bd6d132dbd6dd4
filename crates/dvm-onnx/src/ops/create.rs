//! Constants, ranges and tensors made from shapes.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, Scalar, Tensor};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{invalid, unsupported};
use crate::value::{Nd, count};

pub(super) const ROWS: &[OpRow] = &[
    op!("Constant", 1, constant, "no sparse tensors or strings"),
    op!("ConstantOfShape", 9, constant_of_shape),
    op!("EyeLike", 9, eye_like),
    op!("OneHot", 9, one_hot),
    op!("Range", 11, super::shape::range),
];

fn constant(c: &mut Cx<'_, '_>) -> Outs {
    let t = if let Some(t) = c.tensor_attr("value")? {
        t
    } else if let Some(x) = c.float("value_float")? {
        Tensor::scalar(DType::F32, Scalar::Float(x))
    } else if let Some(x) = c.int("value_int")? {
        Tensor::scalar(DType::I64, Scalar::Int(x))
    } else if let Some(x) = c.floats("value_floats")? {
        Tensor::from_slice(&[x.len()], &x)?
    } else if let Some(x) = c.ints("value_ints")? {
        Tensor::from_slice(&[x.len()], &x)?
    } else if c.node.attribute.is_empty() {
        return invalid("it has no value");
    } else {
        let names: Vec<&str> = c.node.attribute.iter().filter_map(|a| a.name.as_deref()).collect();
        return unsupported(format!("a constant given by {}", names.join(", ")));
    };
    Ok(vec![c.imp.constant(t)])
}

fn constant_of_shape(c: &mut Cx<'_, '_>) -> Outs {
    let target = c.input(0)?;
    let shape = c.elems(target)?;
    let value = c.tensor_attr("value")?.unwrap_or_else(|| Tensor::scalar(DType::F32, Scalar::Float(0.0)));
    if value.len() != 1 {
        return invalid(format!("a value of {} elements", value.len()));
    }
    let (dtype, value) = (value.dtype(), value.get(0));
    for &d in &shape {
        if c.dims().range(d).1 < 0 {
            let d = c.dims().display(d).to_string();
            return invalid(format!("extent {d}"));
        }
    }
    let extents: Option<Vec<usize>> =
        shape.iter().map(|&d| c.dims().as_const(d).and_then(|n| usize::try_from(n).ok())).collect();
    let n = extents.as_ref().and_then(|e| count(e));
    if let (Some(extents), Some(n), Scalar::Int(x)) = (extents, n, value)
        && dtype != DType::U64
        && !c.imp.val(target).runtime
    {
        let x = c.num(x);
        return Ok(vec![c.imp.of_nd(dtype, Nd { shape: extents, data: vec![x; n] })]);
    }
    Ok(vec![c.fill(dtype, value, shape)?])
}

fn eye_like(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let dtype = c.dtype_attr("dtype")?.unwrap_or(c.dtype(x));
    let [rows, cols] = shape[..] else { return invalid(format!("rank {}, must be 2", shape.len())) };
    let k = c.int_or("k", 0)?;
    let k = c.num(k);
    let i = c.push(Op::Range { start: k, step: Dim::ONE, len: rows, dtype: DType::I64 }, &[])?;
    let i = c.reshape(i, vec![rows, Dim::ONE])?;
    let j = c.iota(cols, DType::I64)?;
    let eye = c.binary(B::Eq, i, j)?;
    Ok(vec![c.cast(eye, dtype)?])
}

/// The new axis of extent `depth` is `on` where its position is the index (which may count from the end), else `off`.
fn one_hot(c: &mut Cx<'_, '_>) -> Outs {
    let (index, depth, values) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let depth = c.fold_cast(depth, DType::I64)?;
    let depth = match c.elems(depth)?.as_slice() {
        [d] => *d,
        d => return invalid(format!("a depth of {} numbers", d.len())),
    };
    let rank = c.rank(index) + 1;
    let axis = c.axis(c.int_or("axis", -1)?, rank)?;
    let index = c.cast(index, DType::I64)?;
    let zero = c.scalar(DType::I64, 0.0);
    let n = c.imp.of_nd(DType::I64, Nd::scalar(depth));
    let wrapped = c.add(index, n)?;
    let negative = c.binary(B::Lt, index, zero)?;
    let index = c.select(negative, wrapped, index)?;
    let mut shape = c.shape(index);
    shape.insert(axis, Dim::ONE);
    let index = c.reshape(index, shape)?;
    let steps = c.iota(depth, DType::I64)?;
    let mut at = vec![Dim::ONE; rank - axis];
    at[0] = depth;
    let steps = c.reshape(steps, at)?;
    let hit = c.binary(B::Eq, index, steps)?;
    let part = |c: &mut Cx<'_, '_>, i: i64| {
        let start = c.num(i);
        let v = c.slice_axis(values, 0, start, Dim::ONE)?;
        c.reshape(v, vec![])
    };
    let (off, on) = (part(c, 0)?, part(c, 1)?);
    Ok(vec![c.select(hit, on, off)?])
}
