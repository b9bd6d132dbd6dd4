//! Instruction -> words. A field that does not fit is an error, never a silent overflow.
//!
//! An instruction is a head word and its operands in table order:
//!
//! ```text
//! head    opcode 8 | dtype 4 | length in words 6 | flags 14 | synchronisation 32
//! flags   narrow operands in table order, from the low bit: immediate 1, dtype 4, init 2, hints 2, bool 1, counts 3 or 4, pipe 3,
//!         cross flag 3
//! sync    wait 7 | set 7 | wait_back 7 | set_back 7 | bar 1 | zero 3; each event valid 1 | peer pipe 3 | id 3
//! Local   offset 32 | space 2 | zero 30
//! Src     as Local with a mode in bits 34..36, or the immediate's 64 bits
//! Size    body 28 | tail 28 | extent 4 (15: none) | zero 4
//! Mem     slot 16 | number of strides 4 | offset 44, then extent 4 | stride 60 for each stride
//! ```

use crate::field::Field;
use crate::{EncodeError, Inst, MAX_PARALLEL, MAX_SEQ, Opcode, Operands, for_each_form};

pub(crate) const DTYPE_SHIFT: u32 = 8;
pub(crate) const LENGTH_SHIFT: u32 = 12;
pub(crate) const FLAGS_SHIFT: u32 = 18;
pub(crate) const FLAGS_BITS: u32 = 14;
pub(crate) const SYNC_SHIFT: u32 = 32;
/// No instruction is longer than the six length bits can say.
pub(crate) const MAX_WORDS: usize = 63;

/// Collects the operands of one instruction.
pub(crate) struct Writer<'a> {
    words: &'a mut Vec<u64>,
    op: Opcode,
    flags: u32,
    used: u32,
}

impl Writer<'_> {
    #[inline]
    pub(crate) fn word(&mut self, w: u64) {
        self.words.push(w);
    }
    #[inline]
    pub(crate) fn flags(&mut self, value: u32, bits: u32) {
        self.flags |= value << self.used;
        self.used += bits;
    }
    #[inline]
    pub(crate) fn unsigned(&self, v: u64, bits: u32, field: &'static str) -> Result<u64, EncodeError> {
        if v >> bits == 0 { Ok(v) } else { Err(self.range(field, i128::from(v), bits)) }
    }
    /// The low `bits` of a signed value.
    #[inline]
    pub(crate) fn signed(&self, v: i64, bits: u32, field: &'static str) -> Result<u64, EncodeError> {
        let top = v >> (bits - 1);
        if top == 0 || top == -1 {
            Ok(v as u64 & (u64::MAX >> (64 - bits)))
        } else {
            Err(self.range(field, i128::from(v), bits))
        }
    }
    #[inline]
    pub(crate) fn extent(&self, e: u8, field: &'static str) -> Result<u64, EncodeError> {
        self.count(e as usize, MAX_PARALLEL + MAX_SEQ - 1, field).map(u64::from)
    }
    #[inline]
    pub(crate) fn count(&self, n: usize, most: usize, field: &'static str) -> Result<u32, EncodeError> {
        if n <= most {
            Ok(n as u32)
        } else {
            Err(EncodeError::Count { mnemonic: self.op.mnemonic(), field, count: n, most })
        }
    }
    #[cold]
    fn range(&self, field: &'static str, value: i128, bits: u32) -> EncodeError {
        EncodeError::Range { mnemonic: self.op.mnemonic(), field, value, bits }
    }
}

macro_rules! define_encode {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        fn operands(o: &Operands, w: &mut Writer<'_>) -> Result<(), EncodeError> {
            match o { $(
                Operands::$form(_o) => { $(Field::encode(&_o.$field, w, stringify!($field))?;)* }
            )* }
            Ok(())
        }
    };
}
for_each_form!(define_encode);

/// Appends `inst`; `words` is as it was on an error.
pub(crate) fn encode(inst: &Inst, words: &mut Vec<u64>) -> Result<(), EncodeError> {
    let (expected, found) = (inst.op.form(), inst.operands.form());
    if expected != found {
        return Err(EncodeError::Form { mnemonic: inst.op.mnemonic(), expected, found });
    }
    let sync = inst.sync.encode(inst.op.mnemonic())?;
    let head = words.len();
    words.push(0);
    let mut w = Writer { words, op: inst.op, flags: 0, used: 0 };
    let result = operands(&inst.operands, &mut w);
    let (flags, used) = (w.flags, w.used);
    debug_assert!(used <= FLAGS_BITS, "{}: a form has more than {FLAGS_BITS} flags", inst.op.mnemonic());
    if let Err(e) = result {
        words.truncate(head);
        return Err(e);
    }
    let len = words.len() - head;
    debug_assert!(len <= MAX_WORDS, "{}: a form has more than {MAX_WORDS} words", inst.op.mnemonic());
    words[head] = inst.op as u64
        | (inst.dtype as u64) << DTYPE_SHIFT
        | (len as u64) << LENGTH_SHIFT
        | u64::from(flags) << FLAGS_SHIFT
        | u64::from(sync) << SYNC_SHIFT;
    Ok(())
}
