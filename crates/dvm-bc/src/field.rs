//! One codec per operand *type*, so that a new instruction is one row of the table and no code.
//!
//! Wide fields take words, narrow ones take bits of the head word (see [`crate::encode`] for the layout). Every value
//! has exactly one encoding: what decodes, re-encodes to the same words.

use crate::encode::Writer;
use crate::{
    DType, EncodeError, Hints, Init, Local, Loop, Loops, MAX_LOOPS, MAX_PARALLEL, MAX_SEQ, Mem, Mode, Pipe,
    Size, Space, Src, Strides,
};

/// Why a field does not decode. The decoder adds the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The instruction's length ends inside a field.
    Short,
    /// A number that names nothing, e.g. a dtype.
    Number(&'static str, u64),
    /// Bits that must be zero are not.
    Reserved(u64),
    /// More entries than an operand may have.
    Count(&'static str, u64),
}

/// Words and head flags of one instruction.
pub(crate) struct Reader<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) flags: u32,
    /// The first thing that was wrong.
    pub(crate) fault: Option<Fault>,
}

impl Reader<'_> {
    #[inline(always)]
    pub(crate) fn word(&mut self) -> u64 {
        match self.words.split_first() {
            Some((&w, rest)) => {
                self.words = rest;
                w
            }
            None => {
                self.fail(Fault::Short);
                0
            }
        }
    }
    #[cold]
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
    #[inline]
    pub(crate) fn flags(&mut self, bits: u32) -> u32 {
        let v = self.flags & ((1 << bits) - 1);
        self.flags >>= bits;
        v
    }
}

/// A type that can be an operand.
pub(crate) trait Field: Sized {
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError>;
    /// What the words say; any value where they say nothing, which the reader then knows.
    fn decode(r: &mut Reader<'_>) -> Self;
}

/// Encodes "no extent" in the four bits of an extent.
const NO_EXTENT: u64 = 15;
const OFFSET_BITS: u32 = 44;
const STRIDE_BITS: u32 = 60;
const SIZE_BITS: u32 = 28;

/// Sign-extends the low `bits` of `v`.
#[inline]
const fn signed(v: u64, bits: u32) -> i64 {
    ((v << (64 - bits)) as i64) >> (64 - bits)
}

impl Field for u64 {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.word(*self);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        r.word()
    }
}

impl Field for i64 {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.word(*self as u64);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        r.word() as i64
    }
}

impl Field for bool {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.flags(u32::from(*self), 1);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        r.flags(1) != 0
    }
}

impl Field for DType {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.flags(*self as u32, 4);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let n = r.flags(4);
        DType::from_number(n as u8).unwrap_or_else(|| {
            r.fail(Fault::Number("dtype", u64::from(n)));
            DType::F32
        })
    }
}

impl Field for Init {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.flags(*self as u32, 2);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        match r.flags(2) {
            0 => Init::Accumulate,
            1 => Init::Always,
            2 => Init::First,
            n => {
                r.fail(Fault::Number("init", u64::from(n)));
                Init::Always
            }
        }
    }
}

impl Field for Hints {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.flags(u32::from(self.sticky) | u32::from(self.stream) << 1, 2);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let f = r.flags(2);
        Hints { sticky: f & 1 != 0, stream: f & 2 != 0 }
    }
}

impl Field for Pipe {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.flags(*self as u32, 3);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let n = r.flags(3);
        Pipe::from_number(n as u8).unwrap_or_else(|| {
            r.fail(Fault::Number("pipe", u64::from(n)));
            Pipe::V
        })
    }
}

/// A cross flag.
impl Field for u8 {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        let v = w.unsigned(u64::from(*self), 3, name)?;
        w.flags(v as u32, 3);
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        r.flags(3) as u8
    }
}

/// `offset` 32, space 2, mode 2, reserved 28.
#[inline]
fn local_word(l: Local, mode: u64) -> u64 {
    u64::from(l.offset) | (l.space as u64) << 32 | mode << 34
}

#[inline(always)]
fn local_of(w: u64, used: u32, r: &mut Reader<'_>) -> Local {
    if w >> used != 0 {
        r.fail(Fault::Reserved(w >> used << used));
    }
    Local { offset: w as u32, space: Space::ALL[(w >> 32 & 3) as usize] }
}

impl Field for Local {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        w.word(local_word(*self, 0));
        Ok(())
    }
    #[inline(always)]
    fn decode(r: &mut Reader<'_>) -> Self {
        let w = r.word();
        local_of(w, 34, r)
    }
}

/// One flag (immediate or local), then the immediate or a local word with its mode.
impl Field for Src {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, _: &'static str) -> Result<(), EncodeError> {
        match *self {
            Src::Local(l, mode) => {
                w.flags(0, 1);
                w.word(local_word(l, mode as u64));
            }
            Src::Imm(bits) => {
                w.flags(1, 1);
                w.word(bits);
            }
        }
        Ok(())
    }
    #[inline(always)]
    fn decode(r: &mut Reader<'_>) -> Self {
        if r.flags(1) != 0 {
            return Src::Imm(r.word());
        }
        let w = r.word();
        Src::Local(local_of(w, 36, r), Mode::ALL[(w >> 34 & 3) as usize])
    }
}

/// `body` 28, `tail` 28, extent 4, reserved 4.
impl Field for Size {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        let body = w.unsigned(u64::from(self.body), SIZE_BITS, name)?;
        let tail = w.unsigned(u64::from(self.tail), SIZE_BITS, name)?;
        let extent = match self.extent {
            None => NO_EXTENT,
            Some(e) => w.extent(e, name)?,
        };
        w.word(body | tail << 28 | extent << 56);
        Ok(())
    }
    #[inline(always)]
    fn decode(r: &mut Reader<'_>) -> Self {
        const MASK: u64 = (1 << SIZE_BITS) - 1;
        let w = r.word();
        if w >> 60 != 0 {
            r.fail(Fault::Reserved(w >> 60 << 60));
        }
        let extent = match w >> 56 & 15 {
            NO_EXTENT => None,
            e => Some(extent_of(e, r)),
        };
        Size { body: (w & MASK) as u32, tail: (w >> 28 & MASK) as u32, extent }
    }
}

#[inline(always)]
fn extent_of(e: u64, r: &mut Reader<'_>) -> u8 {
    if e >= (MAX_PARALLEL + MAX_SEQ) as u64 {
        r.fail(Fault::Number("extent", e));
    }
    e as u8
}

#[inline]
fn encode_strides(strides: &Strides, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
    for &(e, s) in strides {
        let e = w.extent(e, name)?;
        let s = w.signed(s, STRIDE_BITS, name)?;
        w.word(e | s << 4);
    }
    Ok(())
}

#[inline]
fn decode_strides(r: &mut Reader<'_>, n: u64) -> Strides {
    let mut strides = Strides::new();
    if n > (MAX_PARALLEL + MAX_SEQ) as u64 {
        r.fail(Fault::Count("strides", n));
        return strides;
    }
    for _ in 0..n {
        let w = r.word();
        strides.push((extent_of(w & 15, r), signed(w >> 4, STRIDE_BITS)));
    }
    strides
}

/// Four flags of count, then a word a stride: extent 4, stride 60.
impl Field for Strides {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        let n = w.count(self.len(), MAX_PARALLEL + MAX_SEQ, name)?;
        w.flags(n, 4);
        encode_strides(self, w, name)
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let n = r.flags(4);
        decode_strides(r, u64::from(n))
    }
}

/// `slot` 16, number of strides 4, `offset` 44; then a word a stride.
impl Field for Mem {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        let n = w.count(self.strides.len(), MAX_PARALLEL + MAX_SEQ, name)?;
        let offset = w.signed(self.offset, OFFSET_BITS, name)?;
        w.word(u64::from(self.slot) | u64::from(n) << 16 | offset << 20);
        encode_strides(&self.strides, w, name)
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let w = r.word();
        let strides = decode_strides(r, w >> 16 & 15);
        Mem { slot: w as u16, offset: signed(w >> 20, OFFSET_BITS), strides }
    }
}

/// Three flags of count, then a size word and a stride word each.
impl Field for Loops {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>, name: &'static str) -> Result<(), EncodeError> {
        let n = w.count(self.len(), MAX_LOOPS, name)?;
        w.flags(n, 3);
        for l in self {
            l.count.encode(w, name)?;
            l.stride.encode(w, name)?;
        }
        Ok(())
    }
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Self {
        let n = r.flags(3);
        let mut loops = Loops::new();
        if n > MAX_LOOPS as u32 {
            r.fail(Fault::Count("loops", u64::from(n)));
            return loops;
        }
        for _ in 0..n {
            loops.push(Loop { count: Size::decode(r), stride: i64::decode(r) });
        }
        loops
    }
}
