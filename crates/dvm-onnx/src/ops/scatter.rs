//! Elements to places, and elements picked by their order.
//!
//! Where the index is a constant, a scatter is a gather: which update ends in which place is known when the model is read, and the
//! result fuses with what is around it. Otherwise the host does it, between two programs.

use dvm_ir::{BinaryOp as B, Combine, ControlKind, DType, Dim, HostOp, Op, Scalar, Tensor};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid};
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("NonMaxSuppression", 10, nms),
    op!("Scatter", 9, scatter_elements),
    op!("ScatterElements", 11, scatter_elements),
    op!("ScatterND", 11, scatter_nd),
    op!("TensorScatter", 24, tensor_scatter),
    op!("TopK", 1, topk, "float and integer dtypes"),
    op!("Unique", 11, unique),
];

/// Most places of a scatter that becomes a gather.
const MAX_PLACES: usize = 1 << 26;

fn combine(c: &Cx<'_, '_>) -> Result<Combine, Fail> {
    Ok(match c.string("reduction")?.unwrap_or("none") {
        "none" => Combine::Set,
        "add" => Combine::Add,
        "mul" => Combine::Mul,
        "max" => Combine::Max,
        "min" => Combine::Min,
        other => return invalid(format!("reduction \"{other}\"")),
    })
}

impl Cx<'_, '_> {
    fn host(&mut self, op: HostOp, operands: &[V], known: impl Fn(usize, usize) -> Option<Dim>) -> Outs {
        let name = self.label();
        self.imp.push_control(ControlKind::Host(op), operands, vec![], op.arity().1, &name, known)
    }
    /// A scatter whose index is known: `places` gives the flat place of each update.
    fn gathered_scatter(
        &mut self,
        data: V,
        updates: V,
        index: V,
        places: impl Fn(&Tensor, &[usize]) -> Option<Vec<usize>>,
    ) -> Result<Option<V>, Fail> {
        let (Some(shape), true) = (self.imp.const_shape(data), self.folds(index)) else { return Ok(None) };
        let Some(count) =
            shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MAX_PLACES)
        else {
            return Ok(None);
        };
        let Some(at) = self.imp.val(index).tensor.clone() else { return Ok(None) };
        let Some(places) = places(&at, &shape) else {
            return invalid("an index is out of range");
        };
        if count == 0 || places.is_empty() {
            return Ok(Some(data));
        }
        let mut from = vec![-1i32; count];
        for (u, p) in places.into_iter().enumerate() {
            match (i32::try_from(u), from.get_mut(p)) {
                (Ok(u), Some(f)) => *f = u,
                _ => return Ok(None),
            }
        }
        let extents = self.shape(data);
        let hit: Vec<bool> = from.iter().map(|&f| f >= 0).collect();
        let source: Vec<i32> = from.iter().map(|&f| f.max(0)).collect();
        let n = self.shape(updates);
        let n = self.dims().product(&n);
        let flat = self.reshape(updates, vec![n])?;
        let source = self.imp.constant(Tensor::from_slice(&shape, &source)?);
        let moved = self.push(Op::Gather { axis: 0 }, &[flat, source])?;
        let moved = self.reshape(moved, extents)?;
        if hit.iter().all(|&h| h) {
            return Ok(Some(moved));
        }
        let mask = self.imp.constant(Tensor::from_bools(&shape, &hit)?);
        Ok(Some(self.select(mask, moved, data)?))
    }
}

fn wrap(i: i64, extent: usize) -> Option<usize> {
    let i = if i < 0 { i.checked_add(extent as i64)? } else { i };
    usize::try_from(i).ok().filter(|&i| i < extent)
}

fn scatter_elements(c: &mut Cx<'_, '_>) -> Outs {
    let (data, index, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(data))?;
    let combine = combine(c)?;
    if c.shape(index).len() != c.rank(data) || c.rank(updates) != c.rank(data) {
        return invalid("data, indices and updates have different ranks");
    }
    if combine == Combine::Set && c.imp.const_shape(index) == c.imp.const_shape(updates) {
        let places = |at: &Tensor, shape: &[usize]| {
            let (own, to) = (at.shape().to_vec(), Nd::strides(shape));
            if (0..shape.len()).any(|i| i != axis && own[i] > shape[i]) {
                return None;
            }
            let strides = Nd::strides(&own);
            (0..at.len())
                .map(|e| {
                    let i = wrap(at.get(e).as_i64(), shape[axis])?;
                    let coordinate = |k: usize| if k == axis { i } else { e / strides[k] % own[k] };
                    Some((0..own.len()).map(|k| coordinate(k) * to[k]).sum())
                })
                .collect()
        };
        if let Some(v) = c.gathered_scatter(data, updates, index, places)? {
            return Ok(vec![v]);
        }
    }
    c.host(HostOp::Scatter { axis, combine }, &[data, index, updates], |_, _| None)
}

fn scatter_nd(c: &mut Cx<'_, '_>) -> Outs {
    let (data, index, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let combine = combine(c)?;
    let count = |c: &Cx<'_, '_>, v: V| {
        c.imp.const_shape(v).and_then(|s| s.iter().try_fold(1usize, |n, &d| n.checked_mul(d)))
    };
    if combine == Combine::Set {
        let wanted = count(c, updates);
        let places = |at: &Tensor, shape: &[usize]| {
            let (&width, lead) = at.shape().split_last()?;
            let to = Nd::strides(shape);
            let slice: usize = shape.get(width..)?.iter().product();
            let tuples: usize = lead.iter().product();
            if wanted != tuples.checked_mul(slice) {
                return None;
            }
            let mut out = Vec::with_capacity(wanted?);
            for t in 0..tuples {
                let mut place = 0;
                for k in 0..width {
                    place += to[k] * wrap(at.get(t * width + k).as_i64(), shape[k])?;
                }
                out.extend(place..place + slice);
            }
            Some(out)
        };
        if wanted.is_some()
            && let Some(v) = c.gathered_scatter(data, updates, index, places)?
        {
            return Ok(vec![v]);
        }
    }
    c.host(HostOp::ScatterNd { combine }, &[data, index, updates], |_, _| None)
}

/// Row b of the cache gets the update from `write_indices[b]` on, in a circle where asked.
fn tensor_scatter(c: &mut Cx<'_, '_>) -> Outs {
    let (cache, update) = (c.input(0)?, c.input(1)?);
    let shape = c.shape(cache);
    let axis = c.axis(c.int_or("axis", -2)?, shape.len())?;
    if axis == 0 {
        return invalid("the axis is the batch");
    }
    let circular = match c.string("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return invalid(format!("mode \"{other}\"")),
    };
    let (room, len) = (shape[axis], c.shape(update)[axis]);
    let start = match c.opt(2) {
        Some(v) => c.cast(v, DType::I64)?,
        None => c.fill(DType::I64, Scalar::Int(0), vec![shape[0]])?,
    };
    let start = c.place_at(start, 0, shape.len())?;
    let at = c.iota(room, DType::I64)?;
    let at = c.place_at(at, axis, shape.len())?;
    let mut from = c.sub(at, start)?;
    let (n, room) = (c.imp.of_nd(DType::I64, Nd::scalar(len)), c.imp.of_nd(DType::I64, Nd::scalar(room)));
    if circular {
        from = c.binary(B::Rem, from, room)?;
    }
    let zero = c.scalar(DType::I64, 0.0);
    let (low, high) = (c.binary(B::Ge, from, zero)?, c.binary(B::Lt, from, n)?);
    let inside = c.binary(B::And, low, high)?;
    let from = c.select(inside, from, zero)?;
    let from = c.expand(from, shape)?;
    let moved = c.push(Op::GatherElements { axis }, &[update, from])?;
    Ok(vec![c.select(inside, moved, cache)?])
}

fn topk(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", -1)?, c.rank(x))?;
    let largest = c.flag("largest", true)?;
    let k = match c.opt(1) {
        Some(k) => c.fold_cast(k, DType::I64)?,
        None => match c.int("k")? {
            Some(k) => c.imp.constant(Tensor::scalar(DType::I64, Scalar::Int(k))),
            None => return invalid("k is missing"),
        },
    };
    let extent = c.known(k).and_then(|nd| nd.data.first().copied());
    c.host(HostOp::TopK { axis, largest }, &[x, k], |_, a| extent.filter(|_| a == axis))
}

fn unique(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axis = c.int("axis")?.map(|a| c.axis(a, c.rank(x))).transpose()?;
    let sorted = c.flag("sorted", true)?;
    c.host(HostOp::Unique { axis, sorted }, &[x], |_, _| None)
}

fn nms(c: &mut Cx<'_, '_>) -> Outs {
    let center = c.flag("center_point_box", false)?;
    let mut operands = vec![c.input(0)?, c.input(1)?];
    for (i, (dtype, default)) in
        [(DType::I64, 0.0), (DType::F32, 0.0), (DType::F32, f64::NEG_INFINITY)].into_iter().enumerate()
    {
        operands.push(match c.opt(2 + i) {
            Some(v) => c.cast(v, dtype)?,
            None => c.scalar(dtype, default),
        });
    }
    c.host(HostOp::Nms { center }, &operands, |_, _| None)
}
