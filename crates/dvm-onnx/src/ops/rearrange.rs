//! Ops that move elements about: padding, tiling, blocks, triangles.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, PadMode, Scalar};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::invalid;

pub(super) const ROWS: &[OpRow] = &[
    op!("DepthToSpace", 1, depth_to_space),
    op!("Pad", 2, pad),
    op!("SpaceToDepth", 1, space_to_depth),
    op!("Tile", 6, super::shape::tile),
    op!("Trilu", 14, trilu),
];

fn pad(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let mode = match c.string("mode")?.unwrap_or("constant") {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        m => return invalid(format!("mode \"{m}\"")),
    };
    let dtype = c.dtype(x);
    let zero = if dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let (pads, value) = if c.opset < 11 {
        let Some(pads) = c.ints("pads")? else { return invalid("attribute `pads` is missing") };
        let pads: Vec<Dim> = pads.into_iter().map(|p| c.num(p)).collect();
        (pads, Scalar::Float(c.float_or("value", 0.0)?))
    } else {
        let pads = c.input(1)?;
        let value = match c.opt(2) {
            Some(v) => {
                let t = c.const_tensor(v)?;
                if t.len() != 1 {
                    return invalid(format!("a value of {} elements", t.len()));
                }
                t.get(0)
            }
            None => zero,
        };
        (c.elems(pads)?, value)
    };
    let axes = match c.opt(3) {
        Some(v) => c.consts(v)?,
        None => (0..rank as i64).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return invalid(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    c.axes(&axes, rank)?;
    let (mut before, mut after) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    for (i, &a) in axes.iter().enumerate() {
        let a = c.axis(a, rank)?;
        (before[a], after[a]) = (pads[i], pads[axes.len() + i]);
    }
    if before.iter().chain(&after).all(|&p| p == Dim::ZERO) {
        return Ok(vec![x]);
    }
    Ok(vec![c.push(Op::Pad { before, after, mode, value }, &[x])?])
}

fn image(c: &mut Cx<'_, '_>) -> Result<([Dim; 4], Dim), crate::error::Fail> {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let Ok(shape) = <[Dim; 4]>::try_from(shape) else {
        return invalid(format!("rank {}, must be 4", c.rank(x)));
    };
    match c.int("blocksize")? {
        Some(b) if b > 0 => Ok((shape, c.num(b))),
        b => invalid(format!("blocksize {b:?}")),
    }
}

fn depth_to_space(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let ([n, d, h, w], b) = image(c)?;
    let dims = c.dims();
    let squared = dims.mul(b, b);
    let (deep, high, wide) = (dims.floor_div(d, squared), dims.mul(h, b), dims.mul(w, b));
    let y = match c.string("mode")?.unwrap_or("DCR") {
        "DCR" => {
            let y = c.reshape(x, vec![n, b, b, deep, h, w])?;
            c.transpose(y, vec![0, 3, 4, 1, 5, 2])?
        }
        "CRD" => {
            let y = c.reshape(x, vec![n, deep, b, b, h, w])?;
            c.transpose(y, vec![0, 1, 4, 2, 5, 3])?
        }
        m => return invalid(format!("mode \"{m}\"")),
    };
    Ok(vec![c.reshape(y, vec![n, deep, high, wide])?])
}

fn space_to_depth(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let ([n, d, h, w], b) = image(c)?;
    let dims = c.dims();
    let squared = dims.mul(b, b);
    let (deep, high, wide) = (dims.mul(d, squared), dims.floor_div(h, b), dims.floor_div(w, b));
    let y = c.reshape(x, vec![n, d, high, b, wide, b])?;
    let perm = match c.string("mode")?.unwrap_or("DCR") {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        m => return invalid(format!("mode \"{m}\"")),
    };
    let y = c.transpose(y, perm)?;
    Ok(vec![c.reshape(y, vec![n, deep, high, wide])?])
}

fn trilu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let [.., rows, cols] = shape[..] else {
        return invalid(format!("rank {}, must be 2 or more", shape.len()));
    };
    let k = match c.opt(1) {
        Some(v) => match c.elems(v)?.as_slice() {
            [k] => *k,
            k => return invalid(format!("k of {} numbers", k.len())),
        },
        None => Dim::ZERO,
    };
    // Column j of row i is kept when j >= i + k (upper) or j <= i + k (lower).
    let i = c.push(Op::Range { start: k, step: Dim::ONE, len: rows, dtype: DType::I64 }, &[])?;
    let i = c.reshape(i, vec![rows, Dim::ONE])?;
    let j = c.iota(cols, DType::I64)?;
    let keep = c.binary(if c.flag("upper", true)? { B::Ge } else { B::Le }, j, i)?;
    let dtype = c.dtype(x);
    if dtype == DType::Bool {
        return Ok(vec![c.binary(B::And, keep, x)?]);
    }
    let zero = c.scalar(dtype, 0.0);
    Ok(vec![c.select(keep, x, zero)?])
}
