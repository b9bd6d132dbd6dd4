//! Gathers.

use dvm_ir::{BinaryOp as B, CheckCond, DType, Dim, Op};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("Gather", 1, gather),
    op!("GatherElements", 11, gather_elements),
    op!("GatherND", 11, gather_nd),
    op!("ReverseSequence", 10, reverse_sequence),
];

fn index(c: &mut Cx<'_, '_>, v: V) -> Result<V, Fail> {
    if c.dtype(v) == DType::I32 { Ok(v) } else { c.cast(v, DType::I64) }
}

fn gather(c: &mut Cx<'_, '_>) -> Outs {
    let (x, i) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let known = match (c.known(x), c.known(i)) {
        (Some(nd), Some(ix)) => {
            let at: Option<Vec<i64>> = ix.data.iter().map(|&d| c.dims().as_const(d)).collect();
            at.and_then(|at| nd.gather(axis, &at, &ix.shape))
        }
        _ => None,
    };
    let dtype = c.dtype(x);
    Ok(vec![c.known_or(dtype, &[x, i], known, |c| {
        let i = index(c, i)?;
        c.push(Op::Gather { axis }, &[x, i])
    })?])
}

fn gather_elements(c: &mut Cx<'_, '_>) -> Outs {
    let (x, i) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let i = index(c, i)?;
    Ok(vec![c.push(Op::GatherElements { axis }, &[x, i])?])
}

/// One gather along a flattened axis. An index out of range on its own axis is sent far out, so that it stays an error.
fn gather_nd(c: &mut Cx<'_, '_>) -> Outs {
    let (x, i) = (c.input(0)?, c.input(1)?);
    let batch = c.int_or("batch_dims", 0)?;
    let (xs, is) = (c.shape(x), c.shape(i));
    let Some((&width, lead)) = is.split_last() else { return invalid("the indices have rank 0") };
    let Some(width) = c.dims().as_const(width).and_then(|w| usize::try_from(w).ok()) else {
        return Err(c.imp.undecided_by(&is));
    };
    let batch = match usize::try_from(batch) {
        Ok(b) if b <= lead.len() && b + width <= xs.len() => b,
        _ => return invalid(format!("{batch} batch axes and {width} indexed ones of rank {}", xs.len())),
    };
    for b in 0..batch {
        c.assume(CheckCond::Equal(xs[b], lead[b]), &format!("batch axis {b}"))?;
    }
    let indexed = &xs[batch..batch + width];
    let rows = c.dims().product(&xs[..batch + width]);
    let rest = xs[batch + width..].to_vec();
    let mut flat_shape = vec![rows];
    flat_shape.extend(&rest);
    let flat = c.reshape(x, flat_shape)?;
    let lead = lead.to_vec();
    let i = c.cast(i, DType::I64)?;
    let mut at: Option<V> = None;
    let far = c.scalar(DType::I64, -(1i64 << 60) as f64);
    for (k, &extent) in indexed.iter().enumerate() {
        let mut stride = Dim::ONE;
        for &d in &xs[batch + k + 1..batch + width] {
            stride = c.dims().mul(stride, d);
        }
        let start = c.num(k as i64);
        let part = c.slice_axis(i, is.len() - 1, start, Dim::ONE)?;
        let part = c.reshape(part, lead.clone())?;
        let zero = c.scalar(DType::I64, 0.0);
        let n = c.imp.of_nd(DType::I64, crate::value::Nd::scalar(extent));
        let s = c.imp.of_nd(DType::I64, crate::value::Nd::scalar(stride));
        let wrapped = c.add(part, n)?;
        let negative = c.binary(B::Lt, part, zero)?;
        let part = c.select(negative, wrapped, part)?;
        let (low, high) = (c.binary(B::Ge, part, zero)?, c.binary(B::Lt, part, n)?);
        let inside = c.binary(B::And, low, high)?;
        let scaled = c.mul(part, s)?;
        let scaled = c.select(inside, scaled, far)?;
        at = Some(match at {
            Some(a) => c.add(a, scaled)?,
            None => scaled,
        });
    }
    let at = match at {
        Some(a) if batch > 0 => {
            let inner = c.dims().product(indexed);
            let mut offset = a;
            let mut stride = inner;
            for b in (0..batch).rev() {
                let step = c.imp.of_nd(DType::I64, crate::value::Nd::scalar(stride));
                let pos = c.iota(lead[b], DType::I64)?;
                let pos = c.mul(pos, step)?;
                let pos = c.place_at(pos, b, lead.len())?;
                offset = c.add(offset, pos)?;
                stride = c.dims().mul(stride, xs[b]);
            }
            offset
        }
        Some(a) => a,
        None => return invalid("the indices are empty tuples"),
    };
    Ok(vec![c.push(Op::Gather { axis: 0 }, &[flat, at])?])
}

/// Element t of a sequence of length n is element n - 1 - t where t < n, else itself.
fn reverse_sequence(c: &mut Cx<'_, '_>) -> Outs {
    let (x, lens) = (c.input(0)?, c.input(1)?);
    let shape = c.shape(x);
    let (batch, time) = (c.int_or("batch_axis", 1)?, c.int_or("time_axis", 0)?);
    let (batch, time) = (c.axis(batch, shape.len())?, c.axis(time, shape.len())?);
    if batch == time {
        return invalid("batch and time are the same axis");
    }
    let lens = c.cast(lens, DType::I64)?;
    let lens = c.place_at(lens, batch, shape.len())?;
    let t = c.iota(shape[time], DType::I64)?;
    let t = c.place_at(t, time, shape.len())?;
    let last = c.with(B::Sub, lens, 1.0)?;
    let mirrored = c.sub(last, t)?;
    let inside = c.binary(B::Lt, t, lens)?;
    let at = c.select(inside, mirrored, t)?;
    let at = c.expand(at, shape.clone())?;
    Ok(vec![c.push(Op::GatherElements { axis: time }, &[x, at])?])
}
