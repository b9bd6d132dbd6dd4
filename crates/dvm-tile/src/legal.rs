//! Element types that a machine lacks.
//!
//! A target lists, by class of instructions, the dtypes it has. An instruction over another dtype runs in a wider one that
//! holds all its values: operands are converted, the result is converted back. That never changes a bit: halves compute in f32
//! and round once an instruction anyway, and integers wrap, so what is computed in more bits has the right low ones. A right
//! shift is the exception: it sees where the narrow dtype ends.

use dvm_bc::{Class, DType, Opcode, Target};

use crate::error::Fault;
use crate::lower;
use crate::space::{Node, Space, Val};

/// What a machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Legal {
    /// A bit a dtype, by class; `None` where every class has everything.
    sets: Option<[u16; Class::ALL.len()]>,
}

impl Default for Legal {
    fn default() -> Legal {
        Legal { sets: None }
    }
}

impl Legal {
    pub(crate) fn of(target: &Target) -> Legal {
        if target.legal.is_empty() {
            return Legal::default();
        }
        let mut sets = [u16::MAX; Class::ALL.len()];
        for &(class, dtypes) in &target.legal {
            sets[class as usize] = dtypes.bits();
        }
        Legal { sets: Some(sets) }
    }

    /// The dtype in which an instruction over `dtype` runs; `None` where there is none.
    pub(crate) fn wide(&self, class: Class, dtype: DType) -> Option<DType> {
        let Some(sets) = &self.sets else { return Some(dtype) };
        let has = |d: DType| sets[class as usize] >> d as u8 & 1 == 1;
        if has(dtype) { Some(dtype) } else { wider(dtype).iter().copied().find(|&d| has(d)) }
    }

    /// As [`Legal::wide`], where [`Legal::check`] has found that there is one.
    pub(crate) fn runs_in(&self, class: Class, dtype: DType) -> DType {
        self.wide(class, dtype).unwrap_or(dtype)
    }

    /// Finds every instruction of a kernel that the machine can run in no dtype.
    pub(crate) fn check(&self, sp: &Space) -> Result<(), Fault> {
        if self.sets.is_none() {
            return Ok(());
        }
        let mut lacks: Vec<String> = Vec::new();
        let mut need = |op: Opcode, dtype: DType, exact: bool| {
            let runs = self.wide(op.class(), dtype);
            if runs.is_none() || (exact && runs != Some(dtype)) {
                let what = format!("{} of {dtype}", op.mnemonic());
                if !lacks.contains(&what) {
                    lacks.push(what);
                }
            }
            runs.unwrap_or(dtype)
        };
        for val in &sp.vals {
            let Some((op, dtype)) = val.op(sp) else { continue };
            let runs = need(op, dtype, false);
            if runs != dtype {
                need(Opcode::VCast, runs, true);
                need(Opcode::VCast, val.dtype, true);
                if op == Opcode::VShr && lower::is_signed(dtype) {
                    need(Opcode::VLt, runs, true);
                }
            }
            if let Node::Reduce { op, .. } = val.node {
                // Partial results are joined in the dtype they are kept in.
                let kept = need(lower::reduce(op), crate::vector::partial(op, dtype), false);
                need(lower::combine(op), kept, true);
            }
        }
        if let Some(p) = &sp.product {
            need(Opcode::Mmad, p.dtype, true);
        }
        if lacks.is_empty() { Ok(()) } else { Err(Fault::Illegal { lacks }) }
    }
}

impl Val {
    /// The vector instruction that computes it, and the dtype of that.
    pub(crate) fn op(&self, sp: &Space) -> Option<(Opcode, DType)> {
        let of = |v: u32| sp.vals[v as usize].dtype;
        match self.node {
            Node::Unary(op, _, d) | Node::Binary(op, _, _, d) => Some((op, d)),
            Node::Ternary(op, _) => Some((op, self.dtype)),
            Node::Cast(_) => Some((Opcode::VCast, self.dtype)),
            Node::Reduce { op, x, .. } => Some((lower::reduce(op), of(x))),
            Node::ArgReduce { op, x, .. } => Some((op, of(x))),
            Node::CumSum { .. } => Some((Opcode::VCumSum, self.dtype)),
            _ => None,
        }
    }
}

/// Dtypes that hold every value of this one, the cheapest first.
const fn wider(dtype: DType) -> &'static [DType] {
    use DType as D;
    match dtype {
        D::F16 | D::BF16 => &[D::F32, D::F64],
        D::F32 => &[D::F64],
        D::I8 => &[D::I16, D::I32, D::I64],
        D::U8 => &[D::U16, D::I16, D::U32, D::I32, D::U64, D::I64],
        D::I16 => &[D::I32, D::I64],
        D::U16 => &[D::U32, D::I32, D::U64, D::I64],
        D::I32 => &[D::I64],
        D::U32 => &[D::U64, D::I64],
        D::F64 | D::I64 | D::U64 | D::Bool => &[],
    }
}
