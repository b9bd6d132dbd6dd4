//! Branches and loops, and ops whose results' shapes depend on data.

use dvm_ir::{CheckCond, ControlKind, DType, Dim, Op, Scalar, Tensor, nonzero};

use super::{OpRow, op};
use crate::body::{BodyArgs, BodyOuts, Built, Loop};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::import::Importer;
use crate::proto::GraphProto;
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("Compress", 9, compress),
    op!("If", 1, branch, "branches of different rank: not within a loop"),
    op!("Loop", 1, repeat, "the rank of a carried value must not change"),
    op!("NonZero", 9, non_zero),
    op!("Scan", 8, scan),
];

impl Cx<'_, '_> {
    pub(super) fn label(&self) -> String {
        let name = self.node.name.as_deref().filter(|n| !n.is_empty());
        let first = self.node.output.iter().find(|o| !o.is_empty()).map(String::as_str);
        name.or(first).unwrap_or_default().to_string()
    }
    /// A control's one-element operand as a rank-0 value.
    fn one(&mut self, v: V, dtype: DType) -> Result<V, Fail> {
        let v = self.fold_cast(v, dtype)?;
        self.fold_reshape(v, vec![])
    }
}

fn branch(c: &mut Cx<'_, '_>) -> Outs {
    let cond = c.input(0)?;
    let cond = c.one(cond, DType::Bool)?;
    let bodies = [c.graph_attr("then_branch")?, c.graph_attr("else_branch")?];
    let name = c.label();
    // Known, or decided by extents and elements of inputs: then only the branch that is taken is in the graph.
    let known = c.imp.is_known(cond) || c.folds(cond);
    let dim = if known { c.imp.nd(cond).and_then(|nd| nd.data.first().copied()) } else { None };
    if let Some(d) = dim {
        if let Some(b) = c.dims().as_const(d) {
            return c.imp.branch(bodies[usize::from(b == 0)], &[]);
        }
        if c.imp.level() == 0 && c.imp.is_settled(d) {
            return match c.imp.outcome(cond, Some(d), &name)? {
                Some(taken) => c.imp.branch(bodies[usize::from(!taken)], &[]),
                None => Err(Fail::Poisoned),
            };
        }
    }
    let problems = c.imp.problems.len();
    let counts = c.imp.op_counts.clone();
    let (a, b) = (body(c.imp, bodies[0])?, body(c.imp, bodies[1])?);
    let types = |b: &Built| {
        b.graph
            .outputs
            .iter()
            .map(|o| (b.graph.dtype(o.value), b.graph.shape(o.value).len()))
            .collect::<Vec<_>>()
    };
    if types(&a) != types(&b) {
        if c.imp.level() > 0 {
            return unsupported("the branches give tensors of different rank or dtype");
        }
        c.imp.problems.truncate(problems);
        c.imp.op_counts = counts;
        return match c.imp.outcome(cond, None, &name)? {
            Some(taken) => c.imp.branch(bodies[usize::from(!taken)], &[]),
            None => Err(Fail::Poisoned),
        };
    }
    let cond = match dim {
        Some(d) => {
            let id = c.imp.push(Op::Dims { values: vec![d], scalar: true, dtype: DType::Bool }, &[], None)?;
            c.imp.of_id(id)
        }
        None => cond,
    };
    let results = a.graph.outputs.len();
    let mut operands = vec![cond];
    operands.extend(a.captured.iter().chain(&b.captured));
    let graphs = vec![a.graph, b.graph];
    c.imp.push_control(ControlKind::If, &operands, graphs, results, &name, |_, _| None)
}

/// A branch as a body.
fn body(imp: &mut Importer<'_>, graph: &GraphProto) -> Result<Built, Fail> {
    imp.begin_body()?;
    match imp.branch(graph, &[]) {
        Ok(outs) => imp.end_body(&outs),
        Err(e) => {
            imp.leave();
            Err(e)
        }
    }
}

fn repeat(c: &mut Cx<'_, '_>) -> Outs {
    let graph = c.graph_attr("body")?;
    let trips = match c.opt(0) {
        Some(v) => c.one(v, DType::I64)?,
        None => c.imp.constant(Tensor::scalar(DType::I64, Scalar::Int(i64::MAX))),
    };
    let begin = match c.opt(1) {
        Some(v) => c.one(v, DType::Bool)?,
        None => c.imp.constant(Tensor::scalar(DType::Bool, Scalar::Int(1))),
    };
    let carried = (2..c.node.input.len()).map(|i| c.input(i)).collect::<Result<Vec<_>, _>>()?;
    let n = carried.len();
    let Some(stacked) = graph.output.len().checked_sub(1 + n) else {
        return invalid(format!("a body of {} outputs carries {n} values", graph.output.len()));
    };
    let name = c.label();
    let backward = vec![false; stacked];
    let l = Loop { name: &name, trips, begin, carried, scanned: vec![], backward };
    c.imp.repeat(&l, &mut |imp, args| {
        let BodyArgs { iteration, condition, carried, .. } = args;
        let inputs: Vec<V> = [iteration, condition].into_iter().chain(carried).collect();
        let mut outs = imp.branch(graph, &inputs)?.into_iter();
        let Some(go_on) = outs.next() else { return invalid("the body has no outputs") };
        let mut own = Cx::bare(imp);
        let go_on = own.one(go_on, DType::Bool)?;
        Ok(BodyOuts { go_on, carried: outs.by_ref().take(n).collect(), stacked: outs.collect() })
    })
}

/// What a Scan does beyond its states.
struct Walk {
    axes_in: Vec<i64>,
    backward_in: Vec<bool>,
    axes_out: Vec<i64>,
    backward_out: Vec<bool>,
}

fn scan(c: &mut Cx<'_, '_>) -> Outs {
    let graph = c.graph_attr("body")?;
    let Some(m) = c.int("num_scan_inputs")?.and_then(|m| usize::try_from(m).ok()).filter(|&m| m > 0) else {
        return invalid("num_scan_inputs is missing or not positive");
    };
    let first = usize::from(c.opset < 9);
    let all = (first..c.node.input.len()).map(|i| c.input(i)).collect::<Result<Vec<_>, _>>()?;
    let Some(n) = all.len().checked_sub(m) else {
        return invalid(format!("{m} inputs are scanned of {}", all.len()));
    };
    let Some(k) = graph.output.len().checked_sub(n) else {
        return invalid(format!("a body of {} outputs has {n} states", graph.output.len()));
    };
    let list = |c: &Cx<'_, '_>, name: &str, len: usize| -> Result<Vec<i64>, Fail> {
        let v = c.ints(name)?.unwrap_or_else(|| vec![0; len]);
        if v.len() == len { Ok(v) } else { invalid(format!("`{name}` has {} entries, not {len}", v.len())) }
    };
    let flags = |v: Vec<i64>| v.into_iter().map(|d| d != 0).collect::<Vec<_>>();
    let (states, scanned) = (all[..n].to_vec(), all[n..].to_vec());
    if c.opset >= 9 {
        let walk = Walk {
            axes_in: list(c, "scan_input_axes", m)?,
            backward_in: flags(list(c, "scan_input_directions", m)?),
            axes_out: list(c, "scan_output_axes", k)?,
            backward_out: flags(list(c, "scan_output_directions", k)?),
        };
        let name = c.label();
        return walk_along(c.imp, &name, graph, states, scanned, &walk);
    }
    // Operator set 8: everything has a batch axis, and the scan runs along axis 1.
    if c.opt(0).is_some() {
        return unsupported("sequence lengths");
    }
    let walk = Walk {
        axes_in: vec![0; m],
        backward_in: flags(list(c, "directions", m)?),
        axes_out: vec![0; k],
        backward_out: vec![false; k],
    };
    let Some(&batch) = c.shape(all[0]).first() else { return invalid("an input has no batch axis") };
    let trips = c.imp.of_nd(DType::I64, Nd::scalar(batch));
    let begin = c.imp.constant(Tensor::scalar(DType::Bool, Scalar::Int(1)));
    let name = c.label();
    let backward = vec![false; all.len() + n + k];
    let l = Loop { name: &name, trips, begin, carried: vec![], scanned: all, backward };
    c.imp.repeat(&l, &mut |imp, args| {
        let (states, scanned) = (args.slices[..n].to_vec(), args.slices[n..].to_vec());
        let stacked = walk_along(imp, &name, graph, states, scanned, &walk)?;
        Ok(BodyOuts { go_on: args.condition, carried: vec![], stacked })
    })
}

/// The axes of `v` with `from` moved to `to`.
fn moved(c: &mut Cx<'_, '_>, v: V, from: usize, to: usize) -> Result<V, Fail> {
    let mut perm: Vec<usize> = (0..c.rank(v)).collect();
    let axis = perm.remove(from);
    perm.insert(to, axis);
    c.transpose(v, perm)
}

fn walk_along<'m>(
    imp: &mut Importer<'m>,
    name: &str,
    graph: &GraphProto,
    states: Vec<V>,
    scanned: Vec<V>,
    walk: &Walk,
) -> Outs {
    let n = states.len();
    let mut c = Cx::bare(imp);
    let mut along = vec![];
    for (&v, &axis) in scanned.iter().zip(&walk.axes_in) {
        let axis = c.axis(axis, c.rank(v))?;
        along.push(moved(&mut c, v, axis, 0)?);
    }
    let length = c.shape(along[0])[0];
    for &v in &along[1..] {
        let other = c.shape(v)[0];
        c.assume(CheckCond::Equal(length, other), "scanned tensors have one length")?;
    }
    let trips = c.imp.of_nd(DType::I64, Nd::scalar(length));
    let begin = c.imp.constant(Tensor::scalar(DType::Bool, Scalar::Int(1)));
    let backward = walk.backward_in.iter().chain(&walk.backward_out).copied().collect();
    let l = Loop { name, trips, begin, carried: states, scanned: along, backward };
    let mut outs = c.imp.repeat(&l, &mut |imp, args| {
        let inputs: Vec<V> = args.carried.into_iter().chain(args.slices).collect();
        let mut outs = imp.branch(graph, &inputs)?.into_iter();
        let carried = outs.by_ref().take(n).collect();
        Ok(BodyOuts { go_on: args.condition, carried, stacked: outs.collect() })
    })?;
    let mut c = Cx::bare(imp);
    for (v, &axis) in outs[n..].iter_mut().zip(&walk.axes_out) {
        let axis = c.axis(axis, c.rank(*v))?;
        *v = moved(&mut c, *v, 0, axis)?;
    }
    Ok(outs)
}

impl Cx<'_, '_> {
    /// `i64[rank, count]`.
    pub(super) fn indices_of_nonzero(&mut self, x: V) -> Result<V, Fail> {
        if self.folds(x)
            && let Some(t) = &self.imp.val(x).tensor
        {
            let t = nonzero(t)?;
            return Ok(self.imp.constant(t));
        }
        let name = self.label();
        let out = self.imp.push_control(ControlKind::NonZero, &[x], vec![], 1, &name, |_, _| None)?;
        out.first().copied().ok_or(Fail::Poisoned)
    }
}

fn non_zero(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    Ok(vec![c.indices_of_nonzero(x)?])
}

fn compress(c: &mut Cx<'_, '_>) -> Outs {
    let (mut x, cond) = (c.input(0)?, c.input(1)?);
    if c.rank(cond) != 1 {
        return invalid(format!("the condition has rank {}", c.rank(cond)));
    }
    let axis = match c.int("axis")? {
        Some(axis) => c.axis(axis, c.rank(x))?,
        None => {
            let shape = c.shape(x);
            let n = c.dims().product(&shape);
            x = c.reshape(x, vec![n])?;
            0
        }
    };
    let (length, extent) = (c.shape(cond)[0], c.shape(x)[axis]);
    c.assume(CheckCond::AtMost(length, extent), "the condition is no longer than the axis")?;
    let at = c.indices_of_nonzero(cond)?;
    let count = c.shape(at).get(1).copied().unwrap_or(Dim::ZERO);
    let at = c.reshape(at, vec![count])?;
    Ok(vec![c.push(Op::Gather { axis }, &[x, at])?])
}
