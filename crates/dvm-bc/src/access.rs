//! What an instruction touches, derived from the table: drives liveness, synchronisation and the verifier.

use smallvec::SmallVec;

use crate::{
    DType, Hints, Init, Inst, Local, Loops, Mem, Mode, Operands, Pipe, Size, Src, Strides, for_each_form,
};

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

/// An operand that can be changed, by type.
#[derive(Debug)]
#[allow(missing_docs, reason = "variants are named as their types")]
pub enum OperandMut<'a> {
    Local(&'a mut Local),
    Src(&'a mut Src),
    Mem(&'a mut Mem),
    Size(&'a mut Size),
    Strides(&'a mut Strides),
    Loops(&'a mut Loops),
    Hints(&'a mut Hints),
    Init(&'a mut Init),
    DType(&'a mut DType),
    Pipe(&'a mut Pipe),
    Flag(&'a mut u8),
    Bool(&'a mut bool),
    Signed(&'a mut i64),
    Unsigned(&'a mut u64),
}

trait AsOperand {
    fn operand(&self) -> Operand<'_>;
    fn operand_mut(&mut self) -> OperandMut<'_>;
}

macro_rules! as_operand {
    ($($ty:ty as $variant:ident: |$x:ident| $e:expr;)*) => {
        $(impl AsOperand for $ty {
            #[inline]
            fn operand(&self) -> Operand<'_> { let $x = self; $e }
            #[inline]
            fn operand_mut(&mut self) -> OperandMut<'_> { OperandMut::$variant(self) }
        })*
    };
}
as_operand! {
    Local as Local: |x| Operand::Local(*x, Mode::Full);
    Src as Src: |x| match *x { Src::Local(l, m) => Operand::Local(l, m), Src::Imm(v) => Operand::Imm(v) };
    Mem as Mem: |x| Operand::Mem(x);
    Size as Size: |x| Operand::Size(*x);
    Strides as Strides: |x| Operand::Strides(x);
    Loops as Loops: |x| Operand::Loops(x);
    Hints as Hints: |_x| Operand::Other;
    Init as Init: |_x| Operand::Other;
    DType as DType: |_x| Operand::Other;
    Pipe as Pipe: |_x| Operand::Other;
    u8 as Flag: |_x| Operand::Other;
    bool as Bool: |_x| Operand::Other;
    i64 as Signed: |_x| Operand::Other;
    u64 as Unsigned: |_x| Operand::Other;
}

macro_rules! define_visit {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        impl Inst {
            /// Calls `f` with the name, access and value of every operand, in table order.
            #[inline]
            pub fn visit<'a>(&'a self, mut f: impl FnMut(&'static str, Access, Operand<'a>)) {
                match &self.operands { $(
                    Operands::$form(_o) => { $(f(stringify!($field), Access::$acc, _o.$field.operand());)* }
                )* }
            }
            /// Calls `f` with the name, access and place of every operand, in table order.
            #[inline]
            pub fn visit_mut(&mut self, mut f: impl FnMut(&'static str, Access, OperandMut<'_>)) {
                match &mut self.operands { $(
                    Operands::$form(_o) => { $(f(stringify!($field), Access::$acc, _o.$field.operand_mut());)* }
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
    /// Calls `f` with each buffer in local memory.
    #[inline]
    pub fn each_local_mut(&mut self, mut f: impl FnMut(&mut Local)) {
        self.visit_mut(|_, _, operand| match operand {
            OperandMut::Local(l) | OperandMut::Src(Src::Local(l, _)) => f(l),
            _ => {}
        });
    }
    /// The dtype of a written vector tile: bool for comparisons, else the instruction's.
    #[must_use]
    pub const fn result_dtype(&self) -> DType {
        if matches!(self.op.class(), crate::Class::Compare) { DType::Bool } else { self.dtype }
    }
}
