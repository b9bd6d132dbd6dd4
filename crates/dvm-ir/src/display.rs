//! Kernels and plans as plain text, for snapshots and explanations. Axes of an iteration space print as `i0, i1, ..`, a
//! value's axes stand in brackets after its dtype, and an address reads as the formula it is.

use std::fmt;

use crate::kernel::{Access, AxisSet, KOp, KStore, KValue};
use crate::plan::{BufferId, BufferKind};
use crate::{Dim, DimTable, Kernel, Plan, Scalar};

impl Kernel {
    /// The kernel as text; `dims` is the table of the plan or graph that owns it.
    #[must_use]
    pub fn display<'a>(&'a self, dims: &'a DimTable) -> DisplayKernel<'a> {
        DisplayKernel { kernel: self, dims }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Int(x) => write!(f, "{x}"),
        }
    }
}

impl fmt::Display for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        for axis in (0..32).filter(|&a| self.has(a)) {
            write!(f, "{sep}i{axis}")?;
            sep = ", ";
        }
        Ok(())
    }
}

/// See [`Kernel::display`].
#[derive(Clone, Copy)]
pub struct DisplayKernel<'a> {
    kernel: &'a Kernel,
    dims: &'a DimTable,
}

impl fmt::Display for DisplayKernel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel.name)?;
        for (i, &d) in self.kernel.axes.iter().enumerate() {
            write!(f, "{} i{i} < {}", if i > 0 { "," } else { " for" }, self.dims.display(d))?;
        }
        writeln!(f)?;
        for (i, o) in self.kernel.operands.iter().enumerate() {
            let role = if o.write { "write" } else { "read" };
            let pack = if o.packable { " packable" } else { "" };
            writeln!(f, "  ${i}: {role} {}[{}]{pack}", o.dtype, self.dims.display(o.len))?;
        }
        for (i, inst) in self.kernel.body.iter().enumerate() {
            writeln!(f, "  {}: {}[{}] = {}", KValue::new(i), inst.dtype, inst.mask, self.op(&inst.op))?;
        }
        for KStore { operand, access, value } in &self.kernel.stores {
            writeln!(f, "  store ${operand}[{}] = {value}", self.access(access))?;
        }
        Ok(())
    }
}

impl<'a> DisplayKernel<'a> {
    fn access(&self, access: &'a Access) -> Address<'a> {
        Address { dims: self.dims, terms: axis_terms(access), offset: access.offset }
    }
    fn op(&self, op: &KOp) -> String {
        let dim = |d: &Dim| self.dims.display(*d).to_string();
        match op {
            KOp::Load { operand, access } => format!("load ${operand}[{}]", self.at(access, &[])),
            KOp::Gather { operand, access, index, stride, limit } => {
                let at = self.at(access, &[(index.to_string(), *stride)]);
                format!("gather ${operand}[{at}], {index} < {}", dim(limit))
            }
            KOp::Const(s) => format!("const {s}"),
            KOp::DimConst(d) => format!("dim {}", dim(d)),
            KOp::Iota { access } => format!("iota {}", self.at(access, &[])),
            KOp::Unary(u, x) => format!("{u} {x}"),
            KOp::Binary(b, x, y) => format!("{b} {x}, {y}"),
            KOp::Fma(x, y, z) => format!("fma {x}, {y}, {z}"),
            KOp::Select(x, y, z) => format!("select {x}, {y}, {z}"),
            KOp::Clamp(x, y, z) => format!("clamp {x}, {y}, {z}"),
            KOp::Cast(x) => format!("cast {x}"),
            KOp::Reduce(r, x, axes) => format!("{} {x} over {axes}", r.name()),
            KOp::ArgReduce { max, last, x, axis } => {
                let which = if *last { "last" } else { "first" };
                format!("{} {x} over i{axis}, {which}", if *max { "argmax" } else { "argmin" })
            }
            KOp::CumSum { x, axis, exclusive, reverse } => {
                let exclusive = if *exclusive { ", exclusive" } else { "" };
                format!("cumsum {x} along i{axis}{exclusive}{}", if *reverse { ", reverse" } else { "" })
            }
            KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k } => {
                let (ka, kb) = ([("k".to_string(), *a_k)], [("k".to_string(), *b_k)]);
                let (at_a, at_b) = (self.at(a_access, &ka), self.at(b_access, &kb));
                format!("matmul ${a}[{at_a}], ${b}[{at_b}] for k < {}", dim(k))
            }
            KOp::Contract { a, b, b_access } => {
                format!("contract {a}, ${b}[{}]", self.at(b_access, &[]))
            }
        }
    }
    fn at(&self, access: &Access, more: &[(String, Dim)]) -> String {
        let mut terms = axis_terms(access);
        terms.extend_from_slice(more);
        Address { dims: self.dims, terms, offset: access.offset }.to_string()
    }
}

fn axis_terms(access: &Access) -> Vec<(String, Dim)> {
    access.strides.iter().enumerate().map(|(i, &s)| (format!("i{i}"), s)).collect()
}

/// `384*i0 + i1 + 7`; terms of stride 0 are left out.
struct Address<'a> {
    dims: &'a DimTable,
    terms: Vec<(String, Dim)>,
    offset: Dim,
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        for (index, stride) in &self.terms {
            if *stride == Dim::ZERO {
                continue;
            }
            f.write_str(sep)?;
            sep = " + ";
            if *stride == Dim::ONE {
                f.write_str(index)?;
                continue;
            }
            let text = self.dims.display(*stride).to_string();
            if self.dims.is_sum(*stride) {
                write!(f, "({text})*{index}")?
            } else {
                write!(f, "{text}*{index}")?
            }
        }
        if self.offset != Dim::ZERO || sep.is_empty() {
            write!(f, "{sep}{}", self.dims.display(self.offset))?;
        }
        Ok(())
    }
}

impl fmt::Display for BufferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferKind::Input(i) => write!(f, "input {i}"),
            BufferKind::Output(i) => write!(f, "output {i}"),
            BufferKind::Const(i) => write!(f, "constant {i}"),
            BufferKind::Temp => f.write_str("temporary"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = &self.dims;
        writeln!(f, "plan {}", self.name)?;
        for i in &self.inputs {
            let shape = dims.display_shape(&i.shape);
            write!(f, "  input {:?}: {}{shape} in {}", i.input.name, i.dtype, i.buffer)?;
            if let Some(elements) = &i.input.elements {
                write!(f, " = {}", dims.display_shape(elements))?;
            }
            writeln!(f)?;
        }
        for o in &self.outputs {
            writeln!(
                f,
                "  output {:?}: {}{} in {}",
                o.name,
                o.dtype,
                dims.display_shape(&o.shape),
                o.buffer
            )?;
        }
        for (i, b) in self.buffers.iter().enumerate() {
            let id = BufferId::new(i);
            writeln!(f, "  buffer {id} {:?}: {}[{}] {}", b.name, b.dtype, dims.display(b.len), b.kind)?;
        }
        for c in &self.checks {
            writeln!(f, "  check {} ({})", dims.display_cond(c.cond), c.what)?;
        }
        for (i, level) in self.levels.iter().enumerate() {
            writeln!(f, "  level {i}")?;
            for &c in &level.calls {
                match self.calls.get(c as usize) {
                    Some(call) => writeln!(f, "    call {c}: {}", DisplayCall { plan: self, call })?,
                    None => writeln!(f, "    call {c}: missing")?,
                }
            }
        }
        for s in &self.splits {
            writeln!(f, "  call {} in parts", s.call)?;
            for call in &s.parts {
                writeln!(f, "    {}", DisplayCall { plan: self, call })?;
            }
        }
        for b in &self.boundaries {
            writeln!(f, "  boundary {} -> {} at {}: {}", b.from, b.to, self.buffer_name(b.buffer), b.reason)?;
        }
        for (i, k) in self.kernels.iter().enumerate() {
            write!(f, "{} = {}", crate::plan::KernelId::new(i), k.display(dims))?;
        }
        Ok(())
    }
}

impl Plan {
    fn buffer_name(&self, b: BufferId) -> String {
        self.buffers.get(b.index()).map_or_else(|| b.to_string(), |x| format!("{b} {:?}", x.name))
    }
}

struct DisplayCall<'a> {
    plan: &'a Plan,
    call: &'a crate::plan::Call,
}

impl fmt::Display for DisplayCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = self.plan.kernels.get(self.call.kernel.index());
        let written = |i: usize| kernel.and_then(|k| k.operands.get(i)).is_some_and(|o| o.write);
        let args = |write: bool| {
            let args = self.call.args.iter().enumerate().filter(move |&(i, _)| written(i) == write);
            args.map(|(_, &b)| self.plan.buffer_name(b)).collect::<Vec<_>>().join(", ")
        };
        write!(f, "{} {}({})", self.call.kernel, kernel.map_or("?", |k| &k.name), args(false))?;
        let outs = args(true);
        if outs.is_empty() { Ok(()) } else { write!(f, " -> {outs}") }
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::{Access, AxisSet, KInst, KOp, KReduce, KStore, KValue, Kernel, Operand};
    use crate::{BinaryOp, DType, Dim, DimTable, UnaryOp};

    #[test]
    fn kernel_reads_as_formulas() {
        let mut t = DimTable::new();
        let (b, n) = (t.symbol("b"), t.constant(384));
        let len = t.mul(b, n);
        let late = t.eq(b, Dim::ONE);
        let late = t.select(late, Dim::ZERO, Dim::ONE);
        let access = |s: &[Dim], offset| Access { offset, strides: s.iter().copied().collect() };
        let inst = |op, mask| KInst { op, dtype: DType::F32, mask };
        let operand = |len, write| Operand { dtype: DType::F32, len, write, packable: false };
        let both = AxisSet::first(2);
        let load = |operand, access| KOp::Load { operand, access };
        let k = Kernel {
            name: "norm".into(),
            axes: vec![b, n],
            operands: vec![operand(len, false), operand(b, false), operand(len, true)],
            body: vec![
                inst(load(0, access(&[n, Dim::ONE], Dim::ZERO)), both),
                inst(KOp::Reduce(KReduce::Sum, KValue(0), AxisSet::one(1)), AxisSet::one(0)),
                inst(KOp::Unary(UnaryOp::Sqrt, KValue(1)), AxisSet::one(0)),
                inst(load(1, access(&[late, Dim::ZERO], Dim::ZERO)), AxisSet::one(0)),
                inst(KOp::Binary(BinaryOp::Mul, KValue(2), KValue(3)), AxisSet::one(0)),
                inst(KOp::Binary(BinaryOp::Div, KValue(0), KValue(4)), both),
            ],
            stores: vec![KStore { operand: 2, access: access(&[n, Dim::ONE], Dim::ZERO), value: KValue(5) }],
        };
        let expect = "\
kernel norm for i0 < b, i1 < 384
  $0: read f32[384*b]
  $1: read f32[b]
  $2: write f32[384*b]
  %0: f32[i0, i1] = load $0[384*i0 + i1]
  %1: f32[i0] = sum %0 over i1
  %2: f32[i0] = sqrt %1
  %3: f32[i0] = load $1[(1 - eq(b, 1))*i0]
  %4: f32[i0] = mul %2, %3
  %5: f32[i0, i1] = div %0, %4
  store $2[384*i0 + i1] = %5
";
        assert_eq!(k.display(&t).to_string(), expect);
    }
}
