//! `Arbitrary` for instructions: any that can be encoded, small numbers mostly. Derived from the table, so that property tests and
//! fuzzing meet every instruction there is.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::{
    DType, Event, Form, Hints, Init, Inst, Local, Loop, Loops, MAX_LOOPS, MAX_PARALLEL, MAX_SEQ, Mem, Mode,
    Opcode, Operands, Pipe, Size, Space, Src, Strides, Sync, for_each_form,
};

/// Small numbers mostly, all of `bits` sometimes.
fn unsigned(u: &mut Unstructured<'_>, bits: u32) -> Result<u64> {
    let width = if u.ratio(1, 4)? { bits } else { bits.min(6) };
    Ok(u.arbitrary::<u64>()? >> (64 - width))
}

fn signed(u: &mut Unstructured<'_>, bits: u32) -> Result<i64> {
    let v = unsigned(u, bits - 1)? as i64;
    Ok(if u.ratio(1, 3)? { !v } else { v })
}

fn extent(u: &mut Unstructured<'_>) -> Result<u8> {
    u.int_in_range(0..=(MAX_PARALLEL + MAX_SEQ - 1) as u8)
}

/// A type that can be an operand.
trait Sample: Sized {
    fn sample(u: &mut Unstructured<'_>) -> Result<Self>;
}

macro_rules! sample {
    ($($ty:ty: |$u:ident| $e:expr;)*) => {
        $(impl Sample for $ty { fn sample($u: &mut Unstructured<'_>) -> Result<Self> { $e } })*
    };
}
sample! {
    Local: |u| Ok(Local { space: *u.choose(&Space::ALL)?, offset: unsigned(u, 32)? as u32 });
    Src: |u| if u.ratio(1, 3)? {
        Ok(Src::Imm(unsigned(u, 64)?))
    } else {
        Ok(Src::Local(Local::sample(u)?, *u.choose(&Mode::ALL)?))
    };
    Size: |u| {
        let body = unsigned(u, 28)? as u32;
        let tail = if u.arbitrary()? { body } else { unsigned(u, 28)? as u32 };
        Ok(Size { body, tail, extent: if u.arbitrary()? { Some(extent(u)?) } else { None } })
    };
    Strides: |u| {
        let n = u.int_in_range(0..=MAX_PARALLEL + MAX_SEQ)?;
        (0..n).map(|_| Ok((extent(u)?, signed(u, 60)?))).collect()
    };
    Mem: |u| Ok(Mem { slot: unsigned(u, 16)? as u16, offset: signed(u, 44)?, strides: Strides::sample(u)? });
    Loop: |u| Ok(Loop { count: Size::sample(u)?, stride: signed(u, 64)? });
    Loops: |u| (0..u.int_in_range(0..=MAX_LOOPS)?).map(|_| Loop::sample(u)).collect();
    Hints: |u| Ok(Hints { sticky: u.arbitrary()?, stream: u.arbitrary()? });
    Init: |u| u.choose(&[Init::Accumulate, Init::Always, Init::First]).copied();
    DType: |u| u.choose(DType::ALL).copied();
    Pipe: |u| u.choose(&Pipe::ALL).copied();
    Event: |u| Ok(Event { peer: Pipe::sample(u)?, id: u.int_in_range(0..=7)? });
    Sync: |u| {
        let mut sync = Sync::NONE;
        if u.arbitrary()? {
            for i in 0..Sync::NAMES.len() {
                if let (true, Some(slot)) = (u.arbitrary()?, sync.slot_mut(i)) {
                    *slot = Some(Event::sample(u)?);
                }
            }
            sync.bar = u.arbitrary()?;
        }
        Ok(sync)
    };
    u8: |u| u.int_in_range(0..=7);
    bool: |u| u.arbitrary();
    i64: |u| signed(u, 64);
    u64: |u| unsigned(u, 64);
    Opcode: |u| u.choose(Opcode::ALL).copied();
    Inst: |u| { let op = Opcode::sample(u)?; Inst::arbitrary_of(op, u) };
}

macro_rules! define_sample {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        fn operands(form: Form, _u: &mut Unstructured<'_>) -> Result<Operands> {
            Ok(match form { $(Form::$form => Operands::$form(crate::$form { $($field: Sample::sample(_u)?,)* }),)* })
        }
    };
}
for_each_form!(define_sample);

impl Inst {
    /// A random instruction of this opcode, one that can be encoded.
    ///
    /// # Errors
    /// There are too few bytes.
    pub fn arbitrary_of(op: Opcode, u: &mut Unstructured<'_>) -> Result<Inst> {
        Ok(Inst { op, dtype: DType::sample(u)?, operands: operands(op.form(), u)?, sync: Sync::sample(u)? })
    }
}

macro_rules! arbitrary {
    ($($ty:ty),*) => {
        $(impl<'a> Arbitrary<'a> for $ty {
            fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> { Sample::sample(u) }
        })*
    };
}
arbitrary!(Local, Src, Size, Mem, Loop, Hints, Init, DType, Pipe, Event, Sync, Opcode, Inst);
