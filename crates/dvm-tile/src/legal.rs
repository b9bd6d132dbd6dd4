//! Element types that a machine lacks.
//!
//! A target lists, by class of instructions, the dtypes it has. An instruction over another dtype runs in a wider one that
//! holds all its values: operands are converted, the result is converted back. That never changes a bit: halves compute in f32
//! and round once an instruction anyway, and integers wrap, so what is computed in more bits has the right low ones. A right
//! shift is the exception: it sees where the narrow dtype ends.

use dvm_bc::{Binary, Cast, Class, DType, Mode, Opcode, Size, Space as Memory, Src, Target, Ternary};

use crate::emit::{Emit, NOWHERE};
use crate::error::Fault;
use crate::lower;
use crate::space::{Mask, Node, Space, Val};

/// What a machine has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Legal {
    /// A bit a dtype, by class; `None` where every class has everything.
    sets: Option<[u16; Class::ALL.len()]>,
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
        if let Some(c) = &sp.contract {
            need(Opcode::Mmad, c.dtype, true);
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

impl Emit<'_> {
    /// A tile over `mask` in another dtype.
    pub(crate) fn convert(
        &mut self,
        v: u32,
        buf: u32,
        mask: Mask,
        from: DType,
        to: DType,
    ) -> Result<u32, Fault> {
        if from == to {
            return Ok(buf);
        }
        let (rows, cols) = self.grid(mask, v)?;
        let src = Src::Local(self.local(buf), Mode::Full);
        let buf = self.tile_buf(mask, to);
        let dst = self.local(buf);
        self.push(v, Opcode::VCast, to, Cast { dst, src, from, rows, cols });
        Ok(buf)
    }

    /// The tile of an operand over its own mask, in the dtype that its instruction runs in.
    pub(crate) fn own_as(&mut self, x: u32, to: DType) -> Result<u32, Fault> {
        let val = &self.sp.vals[x as usize];
        let (from, mask) = (val.dtype, val.mask);
        let (dtype, buf) = self.out.wide_of[x as usize];
        if from != to && buf != NOWHERE && dtype == to {
            return Ok(buf);
        }
        let buf = self.own(x)?;
        let buf = self.convert(x, buf, mask, from, to)?;
        if from != to {
            self.out.wide_of[x as usize] = (to, buf);
        }
        Ok(buf)
    }

    /// A right shift by the narrow dtype's width or more gives 0, though the wide one has bits left.
    pub(crate) fn narrow_shift(
        &mut self,
        v: u32,
        shifted: u32,
        by: Src,
        (narrow, wide): (DType, DType),
        (rows, cols): (Size, Size),
    ) -> u32 {
        let width = u64::from(8 * narrow.size());
        let full = u64::from(rows.body) * u64::from(cols.body);
        let inside = self.buf(full, 1, Memory::Ub);
        let dst = self.local(inside);
        let again = |e: &mut Self| match by {
            Src::Local(l, m) => Src::Local(e.local(l.offset), m),
            Src::Imm(_) => by,
        };
        let a = again(self);
        self.push(v, Opcode::VLt, wide, Binary { dst, a, b: Src::Imm(width), rows, cols });
        let buf = self.buf(full.saturating_mul(u64::from(wide.size())), wide.size(), Memory::Ub);
        let a = Src::Local(self.local(inside), Mode::Full);
        let b = Src::Local(self.local(shifted), Mode::Full);
        let dst = self.local(buf);
        self.push(v, Opcode::VSelect, wide, Ternary { dst, a, b, c: Src::Imm(0), rows, cols });
        buf
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
