//! Dtype and shape inference.
//!
//! Every op states its rules once, here. A rule that provably fails is an [`IrError`]; one that depends on values not known
//! yet becomes a [`Check`] that is made when dims are bound, and from then on counts as a fact, so that one missing
//! equality is asked for once and later ops may rely on it.

mod compute;
mod elementwise;
mod shape;

pub(crate) use elementwise::{binary_dtype, unary_dtype};

use std::fmt::Display;

use crate::{Answer, Check, CheckCond, DType, Dim, DimTable, Graph, IrError, Op, Shape, TensorType, ValueId};

/// Most axes of a value.
pub const MAX_RANK: usize = crate::kernel::MAX_AXES;

/// The type of `op` applied to operands of these types. Conditions that cannot be decided are appended to `checks`.
///
/// # Errors
/// A wrong number of operands, or a rule of the op that provably fails for every binding.
pub fn infer(
    op: &Op,
    operands: &[&TensorType],
    dims: &mut DimTable,
    checks: &mut Vec<Check>,
) -> Result<TensorType, IrError> {
    Infer { op, node: None, operands, names: &[], dims, checks }.run()
}

impl Graph {
    /// Adds a node and infers its type.
    ///
    /// # Errors
    /// When the op cannot be applied to these operands; the graph's nodes and values are then unchanged.
    pub fn push(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, IrError> {
        self.push_node(op, inputs, None)
    }
    /// Adds a named node and infers its type; the name shows in errors and checks.
    ///
    /// # Errors
    /// When the op cannot be applied to these operands; the graph's nodes and values are then unchanged.
    pub fn push_named(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        name: impl Into<String>,
    ) -> Result<ValueId, IrError> {
        self.push_node(op, inputs, Some(name.into()))
    }
    fn push_node(&mut self, op: Op, inputs: &[ValueId], node: Option<String>) -> Result<ValueId, IrError> {
        if let Some((operand, &value)) =
            inputs.iter().enumerate().find(|(_, v)| v.index() >= self.values.len())
        {
            let values = self.values.len();
            return Err(IrError::NoSuchValue { op: op.mnemonic(), node, operand, value, values });
        }
        let operands: Vec<&TensorType> = inputs.iter().map(|v| &self.values[v.index()].ty).collect();
        let names: Vec<Option<&str>> =
            inputs.iter().map(|v| self.values[v.index()].name.as_deref()).collect();
        let infer = Infer {
            op: &op,
            node: node.as_deref(),
            operands: &operands,
            names: &names,
            dims: &mut self.dims,
            checks: &mut self.checks,
        };
        let ty = infer.run()?;
        Ok(self.push_typed(op, inputs, ty, node))
    }
    /// Requires a condition of every binding, and relies on it from now on.
    ///
    /// # Errors
    /// When it provably never holds.
    pub fn assume(&mut self, cond: CheckCond, what: impl Into<String>) -> Result<(), Check> {
        let check = Check { cond, what: what.into() };
        if self.dims.decide(cond) == Answer::Disproven {
            return Err(check);
        }
        if !self.checks.contains(&check) {
            self.checks.push(check);
        }
        self.dims.assume(cond);
        Ok(())
    }
    /// [`Graph::assume`] of a condition that somebody states as text, see [`DimTable::parse_condition`]. A binding that violates
    /// it is an error that quotes it.
    ///
    /// # Errors
    /// Text that is no condition on the graph's symbols, or a condition that never holds.
    pub fn assume_stated(&mut self, text: &str) -> Result<(), String> {
        let text = text.trim();
        let cond = self.dims.parse_condition(text).map_err(|e| format!("assumption `{text}`: {e}"))?;
        let known = self.checks.len();
        self.assume(cond, format!("{STATED}{text}`"))
            .map_err(|_| format!("assumption `{text}` never holds in this graph"))?;
        // Before what the ops demand: where that fails because this does, this is to blame.
        if let Some(check) = self.checks.get(known).cloned() {
            self.checks.truncate(known);
            let at = self.checks.iter().position(|c| !c.what.starts_with(STATED)).unwrap_or(known);
            self.checks.insert(at, check);
        }
        Ok(())
    }
}

/// How the name of a check begins that a user stated.
const STATED: &str = "assumption `";

/// One op being inferred.
struct Infer<'a> {
    op: &'a Op,
    node: Option<&'a str>,
    operands: &'a [&'a TensorType],
    names: &'a [Option<&'a str>],
    dims: &'a mut DimTable,
    checks: &'a mut Vec<Check>,
}

type Result_<T> = Result<T, IrError>;

impl Infer<'_> {
    fn run(mut self) -> Result_<TensorType> {
        let arity = self.op.arity();
        if !arity.contains(&self.operands.len()) {
            return Err(IrError::Arity {
                op: self.op.mnemonic(),
                node: self.node.map(String::from),
                least: *arity.start(),
                most: *arity.end(),
                got: self.operands.len(),
            });
        }
        let known = self.checks.len();
        let ty = self.dispatch().and_then(|ty| {
            let rank = ty.shape.len();
            self.require(rank <= MAX_RANK, format_args!("rank {rank} is above the limit of {MAX_RANK}"))?;
            Ok(ty)
        });
        match &ty {
            Ok(_) => self.checks[known..].iter().for_each(|c| self.dims.assume(c.cond)),
            Err(_) => self.checks.truncate(known),
        }
        ty
    }

    fn dispatch(&mut self) -> Result_<TensorType> {
        match self.op {
            Op::Unary(u) => self.unary(*u),
            Op::Binary(b) => self.binary(*b),
            Op::Fma {} | Op::Select {} | Op::Clamp {} => self.ternary(),
            Op::Cast { to } => Ok(TensorType { dtype: *to, shape: self.shape(0).to_vec() }),
            Op::Fill { dtype, shape, .. } => self.fill(*dtype, shape),
            Op::Range { len, dtype, .. } => self.range(*len, *dtype),
            Op::Dims { values, scalar, dtype } => self.dims_op(values.len(), *scalar, *dtype),
            Op::Reshape { shape } => self.reshape(shape),
            Op::Transpose { perm } => self.transpose(perm),
            Op::Expand { shape } => self.expand(shape),
            Op::Slice { start, len, step } => self.slice(start, len, step),
            Op::Window { axis, count, size, stride, dilation } => {
                self.window(*axis, *count, *size, *stride, *dilation)
            }
            Op::Concat { axis } => self.concat(*axis),
            Op::Pad { before, after, mode, .. } => self.pad(before, after, *mode),
            Op::Gather { axis } => self.gather(*axis),
            Op::GatherElements { axis } => self.gather_elements(*axis),
            Op::Reduce { op, axes, keepdims } => self.reduce(*op, axes, *keepdims),
            Op::ArgMax { axis, keepdims, .. } | Op::ArgMin { axis, keepdims, .. } => {
                self.arg_reduce(*axis, *keepdims)
            }
            Op::CumSum { axis, .. } => {
                self.axis(*axis, 0)?;
                self.numeric(0)?;
                Ok(self.operands[0].clone())
            }
            Op::MatMul { trans_a, trans_b } => self.matmul(*trans_a, *trans_b),
            Op::Softmax { axis } | Op::LogSoftmax { axis } => {
                self.axis(*axis, 0)?;
                self.float(0)?;
                Ok(self.operands[0].clone())
            }
            Op::LayerNorm { axis, eps } | Op::RmsNorm { axis, eps } => self.norm(*axis, *eps),
            Op::Gelu { .. } | Op::Silu {} => {
                self.float(0)?;
                Ok(self.operands[0].clone())
            }
        }
    }

    // Operands.

    fn dtype(&self, i: usize) -> DType {
        self.operands[i].dtype
    }
    fn shape(&self, i: usize) -> &[Dim] {
        &self.operands[i].shape
    }
    fn axis(&self, axis: usize, operand: usize) -> Result_<usize> {
        let rank = self.shape(operand).len();
        if axis < rank {
            Ok(axis)
        } else {
            Err(self.fail(format_args!("axis {axis} of a rank-{rank} tensor")))
        }
    }
    fn same_dtypes(&self, range: std::ops::Range<usize>) -> Result_<DType> {
        let first = self.dtype(range.start);
        match range.clone().find(|&i| self.dtype(i) != first) {
            None => Ok(first),
            Some(_) => Err(self.fail("operands must have one dtype")),
        }
    }
    fn float(&self, i: usize) -> Result_<()> {
        self.require(self.dtype(i).is_float(), "needs a float dtype")
    }
    fn numeric(&self, i: usize) -> Result_<()> {
        self.require(self.dtype(i) != DType::Bool, "not defined for bool")
    }
    fn index_dtype(&self, i: usize) -> Result_<()> {
        self.require(matches!(self.dtype(i), DType::I32 | DType::I64), "the index must be i32 or i64")
    }
    fn require(&self, holds: bool, rule: impl Display) -> Result_<()> {
        if holds { Ok(()) } else { Err(self.fail(rule)) }
    }

    // Messages.

    fn fail(&self, rule: impl Display) -> IrError {
        let operands: Vec<String> =
            self.operands.iter().map(|t| self.dims.display_type(t).to_string()).collect();
        IrError::Rule {
            op: self.op.mnemonic(),
            node: self.node.map(String::from),
            operands: operands.join(", "),
            rule: rule.to_string(),
        }
    }
    fn name(&self, operand: usize) -> String {
        match self.names.get(operand) {
            Some(Some(n)) => format!("{n:?}"),
            _ => format!("operand {operand}"),
        }
    }
    fn show(&self, d: Dim) -> String {
        self.dims.display(d).to_string()
    }

    // Conditions.

    /// Decides a condition, or defers it to bind time.
    fn ensure(&mut self, cond: CheckCond, what: impl Display) -> Result_<()> {
        match self.dims.decide(cond) {
            Answer::Proven => Ok(()),
            Answer::Disproven => {
                let cond = self.dims.display_cond(cond).to_string();
                Err(self.fail(format_args!("{what}: {cond} never holds")))
            }
            Answer::Unknown => {
                if !self.dims.is_checked(cond, self.checks) {
                    let op = self.op.mnemonic();
                    let node = self.node.map_or(String::new(), |n| format!(" {n:?}"));
                    self.checks.push(Check { cond, what: format!("{op}{node}: {what}") });
                }
                Ok(())
            }
        }
    }
    /// Requires equality and gives the better known of the two.
    fn unify(&mut self, a: Dim, b: Dim, what: impl Display) -> Result_<Dim> {
        self.ensure(CheckCond::Equal(a, b), what)?;
        Ok(if self.dims.as_const(b).is_some() { b } else { a })
    }
    /// Requires an extent not to be negative.
    fn extent(&mut self, d: Dim, what: impl Display) -> Result_<()> {
        self.ensure(CheckCond::AtMost(Dim::ZERO, d), what)
    }
    fn extents(&mut self, shape: &[Dim]) -> Result_<Shape> {
        for (i, &d) in shape.iter().enumerate() {
            self.extent(d, format_args!("extent of axis {i}"))?;
        }
        Ok(shape.to_vec())
    }
    /// The shape operands broadcast to, right-aligned.
    fn broadcast(&mut self, operands: &[usize]) -> Result_<Shape> {
        let shapes: Vec<&[Dim]> = operands.iter().map(|&i| self.operands[i].shape.as_slice()).collect();
        self.broadcast_shapes(&shapes, operands)
    }
    fn broadcast_shapes(&mut self, shapes: &[&[Dim]], operands: &[usize]) -> Result_<Shape> {
        let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
        let mut out = vec![Dim::ONE; rank];
        for (nth, shape) in shapes.iter().enumerate() {
            for (i, &d) in shape.iter().enumerate() {
                let at = rank - shape.len() + i;
                let (was, what) = (out[at], self.axes_text(i, operands, nth));
                let Some(both) = self.dims.broadcast(was, d) else {
                    let (was, d) = (self.show(was), self.show(d));
                    return Err(self.fail(format_args!("{what}: extents {was} and {d} do not broadcast")));
                };
                out[at] = both;
                let cond = match (self.dims.as_const(was), self.dims.as_const(d)) {
                    (Some(_), Some(_)) => continue,
                    (Some(1), _) | (_, Some(1)) => continue,
                    (Some(_), None) => CheckCond::EqualOrOne(d, was),
                    (None, Some(_)) => CheckCond::EqualOrOne(was, d),
                    (None, None) => CheckCond::Broadcast(was, d),
                };
                self.ensure(cond, what)?;
            }
        }
        Ok(out)
    }
    fn axes_text(&self, axis: usize, operands: &[usize], nth: usize) -> String {
        let name = self.name(operands[nth]);
        match nth {
            0 => format!("axis {axis} of {name}"),
            1 => format!("axis {axis} of {name} and {}", self.name(operands[0])),
            _ => format!("axis {axis} of {name} and the operands before it"),
        }
    }
    /// Requires `from` to broadcast to `to` (one way), right-aligned.
    fn expands(&mut self, from: &[Dim], to: &[Dim], what: impl Display) -> Result_<()> {
        if from.len() > to.len() {
            return Err(self.fail(format_args!(
                "{what}: rank {} does not expand to rank {}",
                from.len(),
                to.len()
            )));
        }
        let shift = to.len() - from.len();
        for (i, &d) in from.iter().enumerate() {
            self.ensure(CheckCond::EqualOrOne(d, to[shift + i]), format_args!("{what}: axis {i}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
