//! What an instruction touches, derived from the table: drives liveness, synchronisation and the verifier.

use smallvec::SmallVec;

use crate::{DType, Hints, Init, Inst, Local, Loops, Mem, Mode, Operands, Size, Src, Strides, for_each_form};

/// What an instruction does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads memory.
    Read,
    /// Writes memory.
    Write,
    /// Reads and writes memory.
    Update,
    /// Touches no memory: a count, stride, dtype, ...
    Param,
}

impl Access {
    /// Read or updated.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Access::Read | Access::Update)
    }
    /// Written or updated.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Update)
    }
}

/// An operand, by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// Local memory, read in a mode (written operands are always [`Mode::Full`]).
    Local(Local, Mode),
    /// An argument.
    Mem(&'a Mem),
    /// An immediate.
    Imm(u64),
    /// A count.
    Size(Size),
    /// Strides per extent.
    Strides(&'a Strides),
    /// Strided loops.
    Loops(&'a Loops),
    /// Anything that is neither memory, count nor stride.
    Other,
}

trait AsOperand {
    fn operand(&self) -> Operand<'_>;
}

macro_rules! as_operand {
    ($($ty:ty: |$x:ident| $e:expr;)*) => {
        $(impl AsOperand for $ty { #[inline] fn operand(&self) -> Operand<'_> { let $x = self; $e } })*
    };
}
as_operand! {
    Local: |x| Operand::Local(*x, Mode::Full);
    Src: |x| match *x { Src::Local(l, m) => Operand::Local(l, m), Src::Imm(v) => Operand::Imm(v) };
    Mem: |x| Operand::Mem(x);
    Size: |x| Operand::Size(*x);
    Strides: |x| Operand::Strides(x);
    Loops: |x| Operand::Loops(x);
    Hints: |_x| Operand::Other;
    Init: |_x| Operand::Other;
    DType: |_x| Operand::Other;
    bool: |_x| Operand::Other;
    i64: |_x| Operand::Other;
    u64: |_x| Operand::Other;
}

macro_rules! define_visit {
    ($($(#[$doc:meta])* $form:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        impl Inst {
            /// Calls `f` with the name, access and value of every operand, in table order.
            #[inline]
            pub fn visit<'a>(&'a self, mut f: impl FnMut(&'static str, Access, Operand<'a>)) {
                match &self.operands { $(
                    Operands::$form(_o) => { $(f(stringify!($field), Access::$acc, _o.$field.operand());)* }
                )* }
            }
        }
    };
}
for_each_form!(define_visit);

impl Inst {
    /// The memory operands: name, access and place.
    #[must_use]
    pub fn accesses(&self) -> SmallVec<[(&'static str, Access, Operand<'_>); 4]> {
        let mut out = SmallVec::new();
        self.visit(|name, access, operand| {
            if matches!(operand, Operand::Local(..) | Operand::Mem(_)) {
                out.push((name, access, operand));
            }
        });
        out
    }
    /// The dtype of a written vector tile: bool for comparisons, else the instruction's.
    #[must_use]
    pub const fn result_dtype(&self) -> DType {
        if matches!(self.op.class(), crate::Class::Compare) { DType::Bool } else { self.dtype }
    }
}
