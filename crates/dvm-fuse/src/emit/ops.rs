//! The ops that are more than elementwise.

use dvm_ir::kernel::{Access, AxisSet, KInst, KOp, KReduce, KValue};
use dvm_ir::{BinaryOp, DType, Dim, DimTable, Node, ReduceOp, Scalar, ValueDef, ValueId};
use smallvec::SmallVec;

use super::{Emit, Fail, axes_in, axes_of};
use crate::affine::{Affine, Map, broadcast, of_digits};
use crate::memory::{Found, Loc};

impl Emit<'_, '_> {
    /// Values of dims: one scalar, or a choice by index among a few.
    pub(super) fn dims(&mut self, values: &[Dim], map: &Map, dtype: DType) -> KValue {
        let mut k = self.inst(KOp::DimConst(*values.last().unwrap_or(&Dim::ZERO)), dtype, AxisSet::EMPTY);
        if values.len() < 2 {
            return k;
        }
        let access = self.as_access(&map[0]);
        let mask = axes_of(&access);
        let i = self.inst(KOp::Iota { access }, DType::I64, mask);
        for (j, &d) in values.iter().enumerate().rev().skip(1) {
            let at = self.inst(KOp::Const(Scalar::Int(j as i64)), DType::I64, AxisSet::EMPTY);
            let here = self.inst(KOp::Binary(BinaryOp::Eq, i, at), DType::Bool, mask);
            let d = self.inst(KOp::DimConst(d), dtype, AxisSet::EMPTY);
            k = self.inst(KOp::Select(here, d, k), dtype, mask);
        }
        k
    }

    /// The map of a reduction's operand, and the axes of the space it reduces.
    fn reduced_map(
        &mut self,
        node: &Node,
        axes: &[usize],
        keepdims: bool,
        map: &Map,
    ) -> Result<(Map, AxisSet), Fail> {
        let x = node.inputs[0];
        let (mut out, mut set, mut j) = (Map::new(), AxisSet::EMPTY, 0);
        for i in 0..self.cx.p.g.shape(x).len() {
            if axes.contains(&i) && self.cx.p.g.shape(x)[i] == Dim::ONE {
                out.push(Affine::zero());
                j += usize::from(keepdims);
            } else if axes.contains(&i) {
                let Some(digits) = self.space.digits_of(x, i).cloned() else {
                    return Err(Fail::Cut("it reduces along an axis of its own".into()));
                };
                digits.iter().for_each(|&d| set = set.or(AxisSet::one(d as usize)));
                out.push(of_digits(self.cx.t, &digits, &self.space.extents));
                j += usize::from(keepdims);
            } else {
                out.push(map[j].clone());
                j += 1;
            }
        }
        let kept = map.iter().flat_map(|e| &e.terms);
        if kept.into_iter().any(|x| set.has(x.0 as usize)) {
            return Err(Fail::Cut("a reduced value varies along the reduced axis".into()));
        }
        Ok((out, set))
    }
    pub(super) fn reduce(
        &mut self,
        node: &Node,
        op: ReduceOp,
        axes: &[usize],
        keepdims: bool,
        map: &Map,
    ) -> Result<KValue, Fail> {
        let (inner, set) = self.reduced_map(node, axes, keepdims, map)?;
        let x = self.value(node.inputs[0], inner)?;
        let dtype = self.cx.p.g.dtype(node.output);
        if set.is_empty() {
            return Ok(x);
        }
        if self.reduced.is_some_and(|r| r != set) {
            return Err(Fail::Cut("reductions over different axes".into()));
        }
        self.reduced = Some(set);
        let all = self.rows();
        if self.members.len() > 1 && !all.minus(self.mask(x)).minus(set).is_empty() {
            return Err(Fail::Cut("a reduction of a smaller value".into()));
        }
        let x = self.widen(x, set);
        let op = match op {
            ReduceOp::Sum => KReduce::Sum,
            ReduceOp::Max => KReduce::Max,
            ReduceOp::Min => KReduce::Min,
            ReduceOp::Prod => KReduce::Prod,
            ReduceOp::Any => KReduce::Any,
            ReduceOp::All => KReduce::All,
            _ => return Err(Fail::Cut(format!("reduction {op} is not primitive"))),
        };
        let mask = self.mask(x).minus(set);
        Ok(self.inst(KOp::Reduce(op, x, set), dtype, mask))
    }
    /// The only axis of the space in a set; more than one means the axis was split.
    fn only(&self, set: AxisSet) -> Result<u8, Fail> {
        if set.0.is_power_of_two() {
            Ok(set.0.trailing_zeros() as u8)
        } else {
            Err(Fail::Cut("it runs along an axis that is split".into()))
        }
    }
    pub(super) fn arg(
        &mut self,
        node: &Node,
        max: bool,
        last: bool,
        axis: usize,
        keepdims: bool,
        map: &Map,
    ) -> Result<KValue, Fail> {
        let (inner, set) = self.reduced_map(node, &[axis], keepdims, map)?;
        if set.is_empty() {
            return Ok(self.inst(KOp::Const(Scalar::Int(0)), DType::I64, AxisSet::EMPTY));
        }
        let kept = axes_in(map);
        let x = self.value(node.inputs[0], inner)?;
        // An empty axis is an error only where there is a result at all, so all axes must be there.
        let x = self.widen(x, set.or(kept));
        let axis = self.only(set)?;
        self.reduced = Some(set);
        let mask = self.mask(x).minus(set);
        Ok(self.inst(KOp::ArgReduce { max, last, x, axis }, DType::I64, mask))
    }
    pub(super) fn cumsum(
        &mut self,
        node: &Node,
        axis: usize,
        exclusive: bool,
        reverse: bool,
        map: &Map,
    ) -> Result<KValue, Fail> {
        let dtype = self.cx.p.g.dtype(node.output);
        let x = match self.locate(node.inputs[0], true) {
            Found::Memory(loc) if self.cx.p.splat[loc.source.index()].is_none() => self.load(&loc, map),
            _ => self.value(node.inputs[0], map.clone())?,
        };
        if map[axis].terms.is_empty() {
            let zero = KOp::Const(Scalar::Int(0));
            return Ok(if exclusive { self.inst(zero, dtype, AxisSet::EMPTY) } else { x });
        }
        let plain = |i: &KInst| matches!(i.op, KOp::Load { .. } | KOp::Cast(_) | KOp::Const(_));
        if !self.kernel.body.iter().all(plain) {
            return Err(Fail::Materialise(self.cx.state.base(self.cx.p, node.inputs[0])));
        }
        let set = map[axis].terms.iter().fold(AxisSet::EMPTY, |m, x| m.or(AxisSet::one(x.0 as usize)));
        let x = self.widen(x, set);
        let axis = self.only(set)?;
        Ok(self.inst(KOp::CumSum { x, axis, exclusive, reverse }, dtype, self.mask(x)))
    }

    pub(super) fn gather(&mut self, node: &Node, axis: usize, map: &Map) -> Result<KValue, Fail> {
        let (data, index) = (node.inputs[0], node.inputs[1]);
        let loc = self.in_memory(data, "gather")?;
        let rank = self.cx.p.g.shape(index).len();
        let at = map[axis..axis + rank].iter().cloned().collect();
        let index = self.value(index, at)?;
        let rest: Map = map[..axis].iter().chain(&map[axis + rank..]).cloned().collect();
        let mut strides = loc.strides.clone();
        let stride = strides.remove(axis);
        let limit = self.cx.p.g.shape(data)[axis];
        Ok(self.gathered(&loc, &strides, &rest, index, stride, limit))
    }
    pub(super) fn gather_elements(&mut self, node: &Node, axis: usize, map: &Map) -> Result<KValue, Fail> {
        let (data, index) = (node.inputs[0], node.inputs[1]);
        let loc = self.in_memory(data, "gather")?;
        let index = self.value(index, map.clone())?;
        let mut strides = loc.strides.clone();
        let stride = std::mem::replace(&mut strides[axis], Dim::ZERO);
        let limit = self.cx.p.g.shape(data)[axis];
        Ok(self.gathered(&loc, &strides, map, index, stride, limit))
    }
    fn gathered(
        &mut self,
        loc: &Loc,
        strides: &[Dim],
        map: &[Affine],
        index: KValue,
        stride: Dim,
        limit: Dim,
    ) -> KValue {
        let access = self.access(loc.offset, strides, map);
        let operand = self.read(loc);
        let mask = axes_of(&access).or(self.mask(index));
        let dtype = self.kernel.operands[operand as usize].dtype;
        self.inst(KOp::Gather { operand, access, index, stride, limit }, dtype, mask)
    }

    /// The address of a matmul's operand at a map whose axis `k`, after the axes of the space, runs along the product.
    fn address(&mut self, v: ValueId, map: Map, k: (u8, Dim)) -> Result<(Loc, Access, Dim), Fail> {
        let mut extents = self.space.extents.clone();
        extents.push(k.1);
        let (mut at, mut map) = (v, map);
        let loc = loop {
            match self.locate(at, true) {
                Found::Memory(loc) => break loc,
                Found::Computed(base) if self.is_member(base) => {
                    return Err(Fail::Cut("a matmul needs its operands in memory".into()));
                }
                Found::Computed(base) => return Err(Fail::Materialise(base)),
                Found::Unstrided => {
                    let Some(node) = self.cx.p.g.def_node(at) else { return Err(Fail::Materialise(v)) };
                    // What cannot be an axis of its own is stored in the order that the product wants.
                    map = self.through_in(node, &map, &extents, false).map_err(|f| match f {
                        Fail::Split { axis, .. } if axis == k.0 => Fail::Materialise(v),
                        Fail::Materialise(_) => Fail::Materialise(v),
                        f => f,
                    })?;
                    at = node.inputs[0];
                }
            }
        };
        let mut e = Affine { offset: loc.offset, terms: SmallVec::new() };
        for (m, &s) in map.iter().zip(&loc.strides) {
            let term = m.scaled(self.cx.t, s);
            e = e.plus(self.cx.t, &term);
        }
        let along = e.terms.iter().position(|x| x.0 == k.0).map_or(Dim::ZERO, |i| e.terms.remove(i).1);
        let access = self.as_access(&e);
        Ok((loc, access, along))
    }
    pub(super) fn matmul(
        &mut self,
        node: &Node,
        trans_a: bool,
        trans_b: bool,
        map: &Map,
    ) -> Result<KValue, Fail> {
        let second = self.space.second == Some(node.output);
        if self.kernel.body.is_empty() == second || self.kernel.contraction().is_some() {
            return Err(Fail::Cut("a matmul is read at two index maps".into()));
        }
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let (sa, sb) = (self.cx.p.g.shape(a), self.cx.p.g.shape(b));
        let to = self.cx.p.g.shape(node.output);
        let rank = to.len();
        // Along k runs an axis behind those of the space, or the columns of the first product.
        let k_axis = (self.space.extents.len() - 2 * usize::from(second)) as u8;
        // Operands as (batch.., row, column) with one of them running along the product.
        let side = |t: &mut DimTable, s: &[Dim], k_last: bool, own: usize| {
            let batch = s.len() - 2;
            let lead = rank - 2 - batch;
            let mut m: Map = (0..batch).map(|i| broadcast(t, &map[lead + i], s[i], to[lead + i])).collect();
            let k = if s[batch + usize::from(k_last)] == Dim::ONE {
                Affine::zero()
            } else {
                Affine::axis(k_axis)
            };
            let pair = if k_last { [map[own].clone(), k] } else { [k, map[own].clone()] };
            m.extend(pair);
            (m, s[batch + usize::from(k_last)])
        };
        let (ma, ka) = side(self.cx.t, sa, !trans_a, rank - 2);
        let (mb, kb) = side(self.cx.t, sb, trans_b, rank - 1);
        let dtype = self.cx.p.g.dtype(node.output);
        if second {
            let summed = self.space.digits_of(a, sa.len() - 1);
            if trans_a || !summed.is_some_and(|d| d.is_empty() || d[..] == [k_axis]) {
                return Err(Fail::Cut("the rows between two products are not columns of the first".into()));
            }
            let a = self.value(a, ma)?;
            let (lb, b_access, _) = self.address(b, mb, (u8::MAX, kb))?;
            let b = self.read(&lb);
            let k = AxisSet::one(usize::from(k_axis));
            let mask = AxisSet::first(self.space.extents.len()).minus(k);
            return Ok(self.inst(KOp::Contract { a, b, b_access }, dtype, mask));
        }
        let (la, a_access, a_k) = self.address(a, ma, (k_axis, ka))?;
        let (lb, b_access, b_k) = self.address(b, mb, (k_axis, kb))?;
        let (a, b) = (self.read(&la), self.read(&lb));
        let is_const = matches!(self.cx.p.g.value(lb.owner).def, ValueDef::Const(_));
        self.kernel.operands[b as usize].packable = is_const && a != b;
        let k = if self.cx.t.as_const(ka).is_some() { ka } else { kb };
        let op = KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k };
        Ok(self.inst(op, dtype, self.rows()))
    }
}
