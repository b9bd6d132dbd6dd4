//! A case as a graph, in every form that a user can write one: the vocabulary of cases, over a small set of ops that each form has.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use dvm_ir::{BinaryOp as B, DType, ReduceOp, Tensor, UnaryOp as U, ViewStep};
use dvm_ir::{GroupAxis, strided_index, strided_store, strided_view};
use serde_json::Value;

use super::case::{Case, OpSpec, dtype, number};

/// Types of all values of a case, by name.
pub(crate) type Types = HashMap<String, (DType, Vec<usize>)>;

/// What a form of a graph can do.
pub(crate) trait Build {
    type V: Clone;
    /// The op that follows is number `at` of the case.
    fn begin(&mut self, _at: usize) {}
    fn number(&mut self, dtype: DType, x: f64) -> Result<Self::V>;
    fn constant(&mut self, t: Tensor) -> Result<Self::V>;
    fn unary(&mut self, op: U, x: &Self::V) -> Result<Self::V>;
    fn binary(&mut self, op: B, a: &Self::V, b: &Self::V) -> Result<Self::V>;
    fn cast(&mut self, x: &Self::V, to: DType) -> Result<Self::V>;
    fn select(&mut self, c: &Self::V, a: &Self::V, b: &Self::V) -> Result<Self::V>;
    fn full(&mut self, dtype: DType, shape: &[usize], x: f64) -> Result<Self::V>;
    fn expand(&mut self, x: &Self::V, shape: &[usize]) -> Result<Self::V>;
    fn reshape(&mut self, x: &Self::V, shape: &[usize]) -> Result<Self::V>;
    fn transpose(&mut self, x: &Self::V, perm: &[usize]) -> Result<Self::V>;
    fn slice(&mut self, x: &Self::V, start: &[usize], len: &[usize]) -> Result<Self::V>;
    fn pad(&mut self, x: &Self::V, after: &[usize]) -> Result<Self::V>;
    fn concat(&mut self, xs: &[Self::V], axis: usize) -> Result<Self::V>;
    fn gather(&mut self, x: &Self::V, index: &Self::V, axis: usize) -> Result<Self::V>;
    fn reduce(&mut self, op: ReduceOp, x: &Self::V, axes: &[usize], keepdims: bool) -> Result<Self::V>;
    fn matmul(
        &mut self,
        a: &Self::V,
        b: &Self::V,
        trans: (bool, bool),
        ranks: (usize, usize),
    ) -> Result<Self::V>;
    /// The type of a value, where the form knows it.
    fn ty(&self, _v: &Self::V) -> Option<(DType, Vec<usize>)> {
        None
    }

    fn one_hot(
        &mut self,
        index: &Self::V,
        (kind, shape): &(DType, Vec<usize>),
        depth: usize,
        axis: usize,
        (on, off): (f64, f64),
        dtype: DType,
    ) -> Result<Self::V> {
        let mut wide = shape.clone();
        wide.insert(axis, 1);
        let index = self.reshape(index, &wide)?;
        let mut places = vec![1; wide.len()];
        places[axis] = depth;
        let steps: Vec<f64> = (0..depth).map(|i| i as f64).collect();
        let steps = self.constant(super::case::tensor(*kind, &places, &steps)?)?;
        let hit = self.binary(B::Eq, &index, &steps)?;
        let (on, off) = (self.number(dtype, on)?, self.number(dtype, off)?);
        self.select(&hit, &on, &off)
    }
    fn steps(&mut self, x: &Self::V, steps: &[ViewStep]) -> Result<Self::V> {
        let mut v = x.clone();
        for step in steps {
            v = match step {
                ViewStep::Reshape(s) => self.reshape(&v, s)?,
                ViewStep::Slice(start, len) => self.slice(&v, start, len)?,
                ViewStep::Transpose(perm) => self.transpose(&v, perm)?,
                ViewStep::Expand(s) => self.expand(&v, s)?,
                ViewStep::Pad(after) => self.pad(&v, after)?,
            };
        }
        Ok(v)
    }
    fn as_strided(
        &mut self,
        x: &Self::V,
        len: usize,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<Self::V> {
        let flat = self.reshape(x, &[len])?;
        if let Some(steps) = strided_view(len, shape, strides, offset) {
            return self.steps(&flat, &steps);
        }
        let index: Vec<f64> = strided_index(shape, strides, offset).into_iter().map(|i| i as f64).collect();
        let index = self.constant(super::case::tensor(DType::I64, shape, &index)?)?;
        self.gather(&flat, &index, 0)
    }
    fn scatter(
        &mut self,
        x: &Self::V,
        shape: &[usize],
        buffer: &[usize],
        strides: &[usize],
    ) -> Result<Self::V> {
        let steps =
            strided_store(shape, strides, buffer.iter().product()).context("strides that do not nest")?;
        let flat = self.steps(x, &steps)?;
        self.reshape(&flat, buffer)
    }
    /// `ends` are numbers, `list` the value that holds them or the sizes.
    fn grouped(&mut self, g: &Grouped<'_, Self::V>) -> Result<Self::V> {
        let mut parts = vec![];
        let mut start = 0;
        for (i, &end) in g.ends.iter().enumerate() {
            let cut = |b: &mut Self, x: &Self::V, shape: &[usize], axis: usize, at: usize, n: usize| {
                let (mut from, mut len) = (vec![0; shape.len()], shape.to_vec());
                (from[axis], len[axis]) = (at, n);
                b.slice(x, &from, &len)
            };
            let (a, w) = match g.axis {
                GroupAxis::M => {
                    let a = cut(self, g.x, g.x_shape, usize::from(g.trans.0), start, end - start)?;
                    let w = cut(self, g.w, g.w_shape, 0, i, 1)?;
                    (a, self.reshape(&w, &g.w_shape[1..])?)
                }
                GroupAxis::K => {
                    let a = cut(self, g.x, g.x_shape, usize::from(!g.trans.0), start, end - start)?;
                    (a, cut(self, g.w, g.w_shape, usize::from(g.trans.1), start, end - start)?)
                }
            };
            let mut y = self.matmul(&a, &w, g.trans, (2, 2))?;
            if let Some((bias, shape)) = &g.bias {
                let row = cut(self, bias, shape, 0, i, 1)?;
                y = self.binary(B::Add, &y, &row)?;
            }
            if g.axis == GroupAxis::K {
                let rows = g.x_shape[usize::from(g.trans.0)];
                let cols = g.w_shape[usize::from(!g.trans.1)];
                y = self.reshape(&y, &[1, rows, cols])?;
            }
            parts.push(y);
            start = end;
        }
        self.concat(&parts, 0)
    }
}

/// A grouped product.
pub(crate) struct Grouped<'a, V> {
    pub(crate) x: &'a V,
    pub(crate) x_shape: &'a [usize],
    pub(crate) w: &'a V,
    pub(crate) w_shape: &'a [usize],
    pub(crate) trans: (bool, bool),
    pub(crate) axis: GroupAxis,
    pub(crate) ends: &'a [usize],
    /// Name of the input that holds the list, and whether it holds sizes.
    pub(crate) list: (&'a str, bool),
    pub(crate) bias: Option<(&'a V, Vec<usize>)>,
}

/// Builds a case; `types` gets the types that the form knows, and must hold the others. Returns the outputs.
pub(crate) fn build<F: Build>(
    b: &mut F,
    case: &Case,
    inputs: &[(String, Tensor)],
    given: HashMap<String, F::V>,
    types: &mut Types,
) -> Result<Vec<(String, F::V)>> {
    let mut values = given;
    for (n, t) in inputs {
        types.insert(n.clone(), (t.dtype(), t.shape().to_vec()));
    }
    for (at, op) in case.ops.iter().enumerate() {
        b.begin(at);
        let outs = op.outs()?;
        let made = apply(b, op, inputs, &values, types).with_context(|| format!("op {at}, {}", op.op))?;
        for (name, v) in outs.into_iter().zip(made) {
            if let Some(ty) = b.ty(&v) {
                types.insert(name.clone(), ty);
            }
            values.insert(name, v);
        }
    }
    case.outputs
        .iter()
        .map(|o| Ok((o.name.clone(), values.get(&o.name).with_context(|| o.name.clone())?.clone())))
        .collect()
}

fn axis(a: i64, rank: usize) -> Result<usize> {
    let i = if a < 0 { a + rank as i64 } else { a };
    usize::try_from(i).ok().filter(|&i| i < rank).with_context(|| format!("axis {a} of rank {rank}"))
}

fn apply<F: Build>(
    b: &mut F,
    op: &OpSpec,
    inputs: &[(String, Tensor)],
    values: &HashMap<String, F::V>,
    types: &Types,
) -> Result<Vec<F::V>> {
    let names: Vec<Option<&str>> = op.inputs.iter().map(Value::as_str).collect();
    let type_of = |i: usize| -> Result<&(DType, Vec<usize>)> {
        let name = names.get(i).copied().flatten().with_context(|| format!("operand {i}"))?;
        types.get(name).with_context(|| format!("type of {name}"))
    };
    // A number has the dtype of the tensor it meets: in `where` that of the other branch.
    let is_where = op.op == "where";
    let dtype_of = |i: usize| -> Result<DType> {
        let others = (0..names.len()).filter(|&j| names[j].is_some() && !(is_where && i > 0 && j == 0));
        others.map(|j| Ok(type_of(j)?.0)).next_back().context("no tensor operand")?
    };
    let mut xs: Vec<F::V> = vec![];
    for (i, v) in op.inputs.iter().enumerate() {
        xs.push(match names[i] {
            Some(n) => values.get(n).with_context(|| format!("value {n}"))?.clone(),
            None => b.number(dtype_of(i)?, number(v)?)?,
        });
    }
    let flag = |b: &mut F, i: usize| -> Result<F::V> {
        if type_of(i)?.0 == DType::Bool { Ok(xs[i].clone()) } else { b.cast(&xs[i], DType::Bool) }
    };
    let one = match op.op.as_str() {
        "identity" => b.unary(U::Copy, &xs[0])?,
        "sqrt" => b.unary(U::Sqrt, &xs[0])?,
        "abs" => b.unary(U::Abs, &xs[0])?,
        "log" => b.unary(U::Ln, &xs[0])?,
        "exp" => b.unary(U::Exp, &xs[0])?,
        "reciprocal" => b.unary(U::Reciprocal, &xs[0])?,
        "round" => b.unary(U::Round, &xs[0])?,
        "floor" => b.unary(U::Floor, &xs[0])?,
        "ceil" => b.unary(U::Ceil, &xs[0])?,
        "trunc" => b.unary(U::Trunc, &xs[0])?,
        "neg" => b.unary(U::Neg, &xs[0])?,
        "isfinite" => b.unary(U::IsFinite, &xs[0])?,
        "logical_not" => {
            let x = flag(b, 0)?;
            b.unary(U::Not, &x)?
        }
        "logical_and" | "logical_or" => {
            let (x, y) = (flag(b, 0)?, flag(b, 1)?);
            b.binary(if op.op == "logical_or" { B::Or } else { B::And }, &x, &y)?
        }
        "add" => b.binary(B::Add, &xs[0], &xs[1])?,
        "sub" => b.binary(B::Sub, &xs[0], &xs[1])?,
        "mul" => b.binary(B::Mul, &xs[0], &xs[1])?,
        "div" => b.binary(B::Div, &xs[0], &xs[1])?,
        "pow" => b.binary(B::Pow, &xs[0], &xs[1])?,
        "maximum" => b.binary(B::Max, &xs[0], &xs[1])?,
        "minimum" => b.binary(B::Min, &xs[0], &xs[1])?,
        "equal" => b.binary(B::Eq, &xs[0], &xs[1])?,
        "not_equal" => b.binary(B::Ne, &xs[0], &xs[1])?,
        "less" => b.binary(B::Lt, &xs[0], &xs[1])?,
        "less_equal" => b.binary(B::Le, &xs[0], &xs[1])?,
        "greater" => b.binary(B::Gt, &xs[0], &xs[1])?,
        "greater_equal" => b.binary(B::Ge, &xs[0], &xs[1])?,
        "cast" => b.cast(&xs[0], dtype(op.text("to")?)?)?,
        "where" => {
            let c = flag(b, 0)?;
            b.select(&c, &xs[1], &xs[2])?
        }
        "expand" => b.expand(&xs[0], &op.sizes("shape")?)?,
        "full" => {
            let kind = dtype(op.text("dtype")?)?;
            let x = number(op.attrs.get("value").context("full: no value")?)?;
            let x = if kind == DType::Bool { f64::from(u8::from(x != 0.0)) } else { x };
            b.full(kind, &op.sizes("shape")?, x)?
        }
        "reshape" => b.reshape(&xs[0], &op.sizes("shape")?)?,
        "transpose" => b.transpose(&xs[0], &op.sizes("perm")?)?,
        "concat" => {
            let at = axis(op.int("axis")?, type_of(0)?.1.len())?;
            b.concat(&xs, at)?
        }
        "split" => {
            let shape = &type_of(0)?.1;
            let (at, mut start) = (axis(op.int("axis")?, shape.len())?, 0);
            let mut parts = vec![];
            for n in op.sizes("sizes")? {
                let (mut from, mut len) = (vec![0; shape.len()], shape.clone());
                (from[at], len[at]) = (start, n);
                parts.push(b.slice(&xs[0], &from, &len)?);
                start += n;
            }
            return Ok(parts);
        }
        "slice" => b.slice(&xs[0], &op.sizes("starts")?, &op.sizes("sizes")?)?,
        "gather" => {
            let at = axis(op.int("axis")?, type_of(0)?.1.len())?;
            b.gather(&xs[0], &xs[1], at)?
        }
        "one_hot" => {
            let ty = type_of(0)?;
            let at = axis(op.int("axis")?, ty.1.len() + 1)?;
            let value = |k: &str| number(op.attrs.get(k).with_context(|| k.to_string())?);
            let depth = op.sizes("depth")?[0];
            b.one_hot(&xs[0], ty, depth, at, (value("on")?, value("off")?), dtype(op.text("dtype")?)?)?
        }
        "pad" => b.pad(&xs[0], &op.sizes("pads_end")?)?,
        "as_strided" => {
            let len = type_of(0)?.1.iter().product();
            let offset = op.sizes("offset")?[0];
            b.as_strided(&xs[0], len, &op.sizes("shape")?, &op.sizes("strides")?, offset)?
        }
        "strided_scatter" => {
            let shape = type_of(0)?.1.clone();
            b.scatter(&xs[0], &shape, &op.sizes("buffer_shape")?, &op.sizes("strides")?)?
        }
        "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_any" => {
            let rank = type_of(0)?.1.len();
            let mut axes = op.ints("axes")?.into_iter().map(|a| axis(a, rank)).collect::<Result<Vec<_>>>()?;
            axes.sort_unstable();
            let (how, x) = match op.op.as_str() {
                "reduce_sum" => (ReduceOp::Sum, xs[0].clone()),
                "reduce_max" => (ReduceOp::Max, xs[0].clone()),
                "reduce_min" => (ReduceOp::Min, xs[0].clone()),
                _ => (ReduceOp::Any, flag(b, 0)?),
            };
            b.reduce(how, &x, &axes, op.flag("keepdims"))?
        }
        "matmul" => {
            let trans = (op.flag("trans_a"), op.flag("trans_b"));
            let (a, ranks) = (type_of(0)?.0, (type_of(0)?.1.len(), type_of(1)?.1.len()));
            let y = b.matmul(&xs[0], &xs[1], trans, ranks)?;
            match xs.get(2) {
                None => y,
                Some(bias) if type_of(2)?.0 == a => b.binary(B::Add, &y, bias)?,
                Some(bias) => {
                    let y = b.cast(&y, type_of(2)?.0)?;
                    let y = b.binary(B::Add, &y, bias)?;
                    b.cast(&y, a)?
                }
            }
        }
        "grouped_matmul" => {
            let name = names[2].context("a list of groups")?;
            let (_, list) = inputs.iter().find(|(n, _)| n == name).context("the list is an input")?;
            let sizes = op.text("group_list_kind")? == "sizes";
            let mut end = 0;
            let ends: Vec<usize> = (0..list.len())
                .map(|i| {
                    let n = list.get(i).as_i64() as usize;
                    end = if sizes { end + n } else { n };
                    end
                })
                .collect();
            b.grouped(&Grouped {
                x: &xs[0],
                x_shape: &type_of(0)?.1,
                w: &xs[1],
                w_shape: &type_of(1)?.1,
                trans: (op.flag("trans_a"), op.flag("trans_b")),
                axis: if op.text("group_axis")? == "M" { GroupAxis::M } else { GroupAxis::K },
                ends: &ends,
                list: (name, sizes),
                bias: match xs.get(3) {
                    Some(v) => Some((v, type_of(3)?.1.clone())),
                    None => None,
                },
            })?
        }
        other => bail!("op `{other}`"),
    };
    Ok(vec![one])
}
