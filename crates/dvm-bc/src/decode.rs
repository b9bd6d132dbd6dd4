//! Words -> instruction. Any words may be given: what is not an instruction is an error that says where and why.

use crate::encode::{DTYPE_SHIFT, FLAGS_BITS, FLAGS_SHIFT, LENGTH_SHIFT, SYNC_SHIFT};
use crate::field::{Fault, Field, Reader};
use crate::{DType, DecodeError, Form, Inst, Opcode, Operands, Sync, for_each_form};

/// Opcodes that no row may take: all_reduce, all_gather, reduce_scatter.
const COLLECTIVES: std::ops::RangeInclusive<u8> = 0x08..=0x0f;

macro_rules! define_decode {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        #[inline]
        fn operands(form: Form, _r: &mut Reader<'_>, out: &mut Operands) {
            match form { $(
                // Instructions of one form often follow each other: their operands are overwritten where they are.
                Form::$form => match out {
                    Operands::$form(_o) => { $(_o.$field = Field::decode(_r);)* }
                    _ => *out = Operands::$form(crate::$form { $($field: Field::decode(_r),)* }),
                },
            )* }
        }
    };
}
for_each_form!(define_decode);

/// Iterates over the instructions of a run of words; ends after the first error.
pub(crate) struct Decoder<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(words: &'a [u64]) -> Decoder<'a> {
        Decoder { words, at: 0 }
    }

    /// Decodes the next instruction over `out`, so that none is moved; `None` at the end. After an error `out` is some instruction.
    #[inline]
    pub(crate) fn read(&mut self, out: &mut Inst) -> Option<Result<(), DecodeError>> {
        if self.at >= self.words.len() {
            return None;
        }
        let at = self.at;
        let rest = &self.words[at..];
        // A broken head gives no length to skip by.
        self.at = self.words.len();
        let head = rest[0];
        let len = (head >> LENGTH_SHIFT & 63) as usize;
        let Some(op) = Opcode::from_number(head as u8) else {
            let why = if COLLECTIVES.contains(&(head as u8)) {
                "reserved for collectives"
            } else {
                "not an instruction"
            };
            return fail(at, format!("opcode 0x{:02x} is {why}", head as u8));
        };
        let dtype = (head >> DTYPE_SHIFT & 15) as u8;
        let Some(dtype) = DType::from_number(dtype) else {
            return fail(at, format!("{}: dtype number {dtype} is not a dtype", op.mnemonic()));
        };
        let Some(sync) = Sync::decode((head >> SYNC_SHIFT) as u32) else {
            let bits = head >> SYNC_SHIFT;
            return fail(at, format!("{}: synchronisation bits 0x{bits:08x} mean nothing", op.mnemonic()));
        };
        if len == 0 || len > rest.len() {
            return fail(at, format!("{}: length {len} words, {} left", op.mnemonic(), rest.len()));
        }
        let flags = (head >> FLAGS_SHIFT) as u32 & ((1 << FLAGS_BITS) - 1);
        let mut r = Reader { words: &rest[1..len], flags, fault: None };
        out.op = op;
        out.dtype = dtype;
        out.sync = sync;
        operands(op.form(), &mut r, &mut out.operands);
        if let Some(fault) = r.fault {
            *out = blank();
            return fail(at, format!("{}: {fault}", op.mnemonic()));
        }
        if !r.words.is_empty() {
            return fail(at, format!("{}: {} words after the last operand", op.mnemonic(), r.words.len()));
        }
        if r.flags != 0 {
            return fail(at, format!("{}: unused flag bits are not zero", op.mnemonic()));
        }
        self.at = at + len;
        Some(Ok(()))
    }
}

#[cold]
fn fail(at: usize, what: String) -> Option<Result<(), DecodeError>> {
    Some(Err(DecodeError { at, what }))
}

/// An instruction to decode over.
pub(crate) fn blank() -> Inst {
    Inst::new(Opcode::End, DType::F32, crate::Control {})
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Short => write!(f, "the length ends inside an operand"),
            Fault::Number(what, n) => write!(f, "{n} is not a legal {what}"),
            Fault::Reserved(bits) => write!(f, "reserved bits 0x{bits:x} are not zero"),
            Fault::Count(what, n) => write!(f, "{n} {what} are too many"),
        }
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Inst, DecodeError>;
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut inst = blank();
        self.read(&mut inst).map(|r| r.map(|()| inst))
    }
}
