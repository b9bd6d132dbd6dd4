//! Graphs and streams as forms of a case.

use std::collections::HashMap;

use anyhow::{Context, Result};
use dvm::Stream;
use dvm::stream::{Arg, Tensor as Lazy};
use dvm_ir::{
    BinaryOp as B, DType, Dim, Graph, Op, PadMode, ReduceOp, Scalar, Tensor, UnaryOp as U, ValueId,
};

use super::build::{Build, Grouped, Types, build};
use super::case::Case;

/// Most elements of a list of groups that a graph reads as symbols.
const MAX_GROUPS: usize = 32;

pub(crate) struct GraphForm {
    pub(crate) g: Graph,
    /// Extents are numbers.
    fixed: bool,
}

impl GraphForm {
    fn consts(&mut self, shape: &[usize]) -> Vec<Dim> {
        shape.iter().map(|&n| self.g.dims.constant(n as i64)).collect()
    }
    /// The graph of a case, with the shapes that its inputs have or with the symbols that it names.
    pub(crate) fn of(
        case: &Case,
        inputs: &[(String, Tensor)],
        types: &mut Types,
        fixed: bool,
    ) -> Result<Graph> {
        let mut f = GraphForm { g: Graph::new(case.id.clone()), fixed };
        let mut given = HashMap::new();
        for (spec, (name, t)) in case.inputs.iter().zip(inputs) {
            let list = t.shape().len() == 1 && matches!(t.dtype(), DType::I32 | DType::I64);
            // In a group an input without symbols may differ, too; a list of groups has one length.
            let free = !fixed && spec.sym_shape.is_none() && !list;
            let symbolic = spec.sym_shape.as_ref().filter(|_| !fixed);
            let mut shape = vec![];
            for (axis, &n) in t.shape().iter().enumerate() {
                let named = symbolic.and_then(|s| s.get(axis)).and_then(|v| v.as_str());
                let open = symbolic.is_some_and(|s| s.iter().any(|v| v.as_str() == Some("?rank")));
                shape.push(match named {
                    _ if open || free => f.g.dims.symbol(&format!("{name}.{axis}")),
                    Some(s) => f.g.dims.symbol(s),
                    None => f.g.dims.constant(n as i64),
                });
            }
            let v = f.g.input(name.clone(), t.dtype(), &shape);
            if !fixed
                && matches!(t.dtype(), DType::I32 | DType::I64)
                && t.shape().len() == 1
                && t.len() <= MAX_GROUPS
            {
                let elements = (0..t.len()).map(|i| f.g.dims.value_symbol(&format!("{name}[{i}]"))).collect();
                f.g.inputs.last_mut().context("just added")?.elements = Some(elements);
            }
            given.insert(name.clone(), v);
        }
        for (name, v) in build(&mut f, case, inputs, given, types)? {
            f.g.output(name, v);
        }
        Ok(f.g)
    }
}

impl Build for GraphForm {
    type V = ValueId;
    fn number(&mut self, dtype: DType, x: f64) -> Result<ValueId> {
        let s = if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) };
        Ok(self.g.constant(None, Tensor::scalar(dtype, s)))
    }
    fn constant(&mut self, t: Tensor) -> Result<ValueId> {
        Ok(self.g.constant(None, t))
    }
    fn unary(&mut self, op: U, x: &ValueId) -> Result<ValueId> {
        Ok(self.g.unary(op, *x)?)
    }
    fn binary(&mut self, op: B, a: &ValueId, b: &ValueId) -> Result<ValueId> {
        Ok(self.g.binary(op, *a, *b)?)
    }
    fn cast(&mut self, x: &ValueId, to: DType) -> Result<ValueId> {
        Ok(self.g.cast(*x, to)?)
    }
    fn select(&mut self, c: &ValueId, a: &ValueId, b: &ValueId) -> Result<ValueId> {
        Ok(self.g.select(*c, *a, *b)?)
    }
    fn full(&mut self, dtype: DType, shape: &[usize], x: f64) -> Result<ValueId> {
        let shape = self.consts(shape);
        let value = if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) };
        Ok(self.g.push(Op::Fill { value, dtype, shape }, &[])?)
    }
    fn expand(&mut self, x: &ValueId, shape: &[usize]) -> Result<ValueId> {
        let shape = self.consts(shape);
        Ok(self.g.expand(*x, &shape)?)
    }
    fn reshape(&mut self, x: &ValueId, shape: &[usize]) -> Result<ValueId> {
        let shape = self.consts(shape);
        Ok(self.g.reshape(*x, &shape)?)
    }
    fn transpose(&mut self, x: &ValueId, perm: &[usize]) -> Result<ValueId> {
        Ok(self.g.transpose(*x, perm)?)
    }
    fn slice(&mut self, x: &ValueId, start: &[usize], len: &[usize]) -> Result<ValueId> {
        let (start, len) = (self.consts(start), self.consts(len));
        let step = vec![1; len.len()];
        Ok(self.g.push(Op::Slice { start, len, step }, &[*x])?)
    }
    fn pad(&mut self, x: &ValueId, after: &[usize]) -> Result<ValueId> {
        let after = self.consts(after);
        let before = vec![Dim::ZERO; after.len()];
        let value = if self.g.dtype(*x).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        Ok(self.g.push(Op::Pad { before, after, mode: PadMode::Constant, value }, &[*x])?)
    }
    fn concat(&mut self, xs: &[ValueId], axis: usize) -> Result<ValueId> {
        Ok(self.g.concat(xs, axis)?)
    }
    fn gather(&mut self, x: &ValueId, index: &ValueId, axis: usize) -> Result<ValueId> {
        Ok(self.g.gather(*x, *index, axis)?)
    }
    fn reduce(&mut self, op: ReduceOp, x: &ValueId, axes: &[usize], keepdims: bool) -> Result<ValueId> {
        Ok(self.g.reduce(op, *x, axes, keepdims)?)
    }
    fn matmul(
        &mut self,
        a: &ValueId,
        b: &ValueId,
        (trans_a, trans_b): (bool, bool),
        _ranks: (usize, usize),
    ) -> Result<ValueId> {
        Ok(self.g.push(Op::MatMul { trans_a, trans_b }, &[*a, *b])?)
    }
    fn ty(&self, v: &ValueId) -> Option<(DType, Vec<usize>)> {
        if !self.fixed {
            return None;
        }
        let shape = self.g.shape(*v).iter().map(|&d| Some(self.g.dims.as_const(d)? as usize));
        Some((self.g.dtype(*v), shape.collect::<Option<_>>()?))
    }
    fn one_hot(
        &mut self,
        index: &ValueId,
        _ty: &(DType, Vec<usize>),
        depth: usize,
        axis: usize,
        values: (f64, f64),
        dtype: DType,
    ) -> Result<ValueId> {
        let depth = self.g.dims.constant(depth as i64);
        Ok(self.g.one_hot(*index, depth, axis, values, dtype)?)
    }
    fn as_strided(
        &mut self,
        x: &ValueId,
        _len: usize,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<ValueId> {
        Ok(self.g.as_strided(*x, shape, strides, offset)?)
    }
    fn scatter(&mut self, x: &ValueId, _: &[usize], buffer: &[usize], strides: &[usize]) -> Result<ValueId> {
        Ok(self.g.strided_scatter(*x, buffer, strides)?)
    }
    fn grouped(&mut self, g: &Grouped<'_, ValueId>) -> Result<ValueId> {
        let input = self.g.inputs.iter().find(|i| i.name == g.list.0).context("the list")?;
        let ends = match &input.elements {
            Some(elements) if g.list.1 => {
                let (elements, mut end) = (elements.clone(), Dim::ZERO);
                let add = |&n: &Dim| {
                    end = self.g.dims.add(end, n);
                    end
                };
                elements.iter().map(add).collect()
            }
            Some(elements) => elements.clone(),
            None => self.consts(g.ends),
        };
        let bias = g.bias.as_ref().map(|b| *b.0);
        Ok(self.g.grouped_matmul((*g.x, g.trans.0), (*g.w, g.trans.1), &ends, g.axis, bias)?)
    }
}

/// Ops recorded one by one, as an interactive program would.
pub(crate) struct StreamForm<'s>(pub(crate) &'s Stream);

impl StreamForm<'_> {
    /// Records a case and reads its outputs.
    pub(crate) fn run(
        stream: &Stream,
        case: &Case,
        inputs: &[(String, Tensor)],
        types: &mut Types,
    ) -> Result<Vec<(String, Tensor)>> {
        let given = inputs.iter().map(|(n, t)| (n.clone(), stream.upload(t.clone()))).collect();
        let outs = build(&mut StreamForm(stream), case, inputs, given, types)?;
        outs.into_iter().map(|(n, t)| Ok((n, t.to_host()?))).collect()
    }
}

fn signed(x: &[usize]) -> Vec<isize> {
    x.iter().map(|&n| n as isize).collect()
}

impl Build for StreamForm<'_> {
    type V = Lazy;
    fn number(&mut self, dtype: DType, x: f64) -> Result<Lazy> {
        let s = if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) };
        Ok(self.0.scalar(dtype, s)?)
    }
    fn constant(&mut self, t: Tensor) -> Result<Lazy> {
        Ok(self.0.upload(t))
    }
    fn unary(&mut self, op: U, x: &Lazy) -> Result<Lazy> {
        Ok(x.unary(op)?)
    }
    fn binary(&mut self, op: B, a: &Lazy, b: &Lazy) -> Result<Lazy> {
        Ok(Lazy::binary(Arg::Tensor(a), op, Arg::Tensor(b))?)
    }
    fn cast(&mut self, x: &Lazy, to: DType) -> Result<Lazy> {
        Ok(x.cast(to)?)
    }
    fn select(&mut self, c: &Lazy, a: &Lazy, b: &Lazy) -> Result<Lazy> {
        Ok(c.select(a, b)?)
    }
    fn full(&mut self, dtype: DType, shape: &[usize], x: f64) -> Result<Lazy> {
        let s = if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) };
        Ok(self.0.full(dtype, shape, Arg::Scalar(s))?)
    }
    fn expand(&mut self, x: &Lazy, shape: &[usize]) -> Result<Lazy> {
        Ok(x.expand(shape)?)
    }
    fn reshape(&mut self, x: &Lazy, shape: &[usize]) -> Result<Lazy> {
        Ok(x.reshape(&signed(shape))?)
    }
    fn transpose(&mut self, x: &Lazy, perm: &[usize]) -> Result<Lazy> {
        Ok(x.permute(&signed(perm))?)
    }
    fn slice(&mut self, x: &Lazy, start: &[usize], len: &[usize]) -> Result<Lazy> {
        let mut v = x.clone();
        for (i, (&s, &n)) in start.iter().zip(len).enumerate() {
            if (s, n) != (0, v.shape()[i]) {
                v = v.narrow(i as isize, s, n)?;
            }
        }
        Ok(v)
    }
    fn pad(&mut self, x: &Lazy, after: &[usize]) -> Result<Lazy> {
        let zero = if x.dtype().is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        Ok(x.pad(&vec![0; after.len()], &signed(after), PadMode::Constant, Arg::Scalar(zero))?)
    }
    fn concat(&mut self, xs: &[Lazy], axis: usize) -> Result<Lazy> {
        Ok(Lazy::concat(&xs.iter().collect::<Vec<_>>(), axis as isize)?)
    }
    fn gather(&mut self, x: &Lazy, index: &Lazy, axis: usize) -> Result<Lazy> {
        Ok(x.index_select(axis as isize, index)?)
    }
    fn reduce(&mut self, op: ReduceOp, x: &Lazy, axes: &[usize], keepdims: bool) -> Result<Lazy> {
        Ok(x.reduce(op, signed(axes).as_slice(), keepdims)?)
    }
    fn matmul(&mut self, a: &Lazy, b: &Lazy, trans: (bool, bool), _: (usize, usize)) -> Result<Lazy> {
        Ok(match trans {
            (false, false) => a.matmul(b)?,
            (false, true) => a.matmul_t(b)?,
            (true, false) => a.t_matmul(b)?,
            (true, true) => a.transpose(-1, -2)?.matmul_t(b)?,
        })
    }
    fn ty(&self, v: &Lazy) -> Option<(DType, Vec<usize>)> {
        Some((v.dtype(), v.shape().to_vec()))
    }
}
