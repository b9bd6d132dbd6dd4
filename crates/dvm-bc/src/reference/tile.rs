//! Walking the elements of tiles.

use super::value::Value;
use super::{Address, Fault, Math, Memory, Point, Region, TrapKind};
use crate::{DType, Init, Inst, Local, Mem, Mode, Size, Src};

/// One instruction at one point, and what it works on.
pub(super) struct Cx<'a> {
    pub(super) inst: &'a Inst,
    pub(super) point: &'a Point,
    pub(super) memory: &'a mut dyn Memory,
    pub(super) math: &'a dyn Math,
    /// Bytes of the unit of local offsets.
    pub(super) block: u32,
}

/// A source resolved for a tile: where element (r, c) is, or its bits.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Imm(u64),
    At { first: Address, row: i64, col: i64, dtype: DType },
}

impl Cx<'_> {
    pub(super) fn local(&self, l: Local) -> Address {
        Address { region: Region::Local(l.space), byte: i64::from(l.offset) * i64::from(self.block) }
    }

    pub(super) fn mem(&self, m: &Mem) -> Result<Address, Fault> {
        let base = self.memory.slot(m.slot)?;
        Ok(base.step(1, m.offset).step(1, self.point.affine(&m.strides)))
    }

    pub(super) fn count(&self, s: Size) -> u64 {
        self.point.count(s)
    }

    /// Whether an accumulating instruction starts from its neutral value here.
    pub(super) fn fresh(&self, init: Init) -> bool {
        match init {
            Init::Accumulate => false,
            Init::Always => true,
            Init::First => self.point.first,
        }
    }

    /// The bits of an element.
    pub(super) fn load(&mut self, at: Address, dtype: DType) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.memory.read(at, &mut bytes[..dtype.size() as usize])?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn store(&mut self, at: Address, dtype: DType, bits: u64) -> Result<(), Fault> {
        self.memory.write(at, &bits.to_le_bytes()[..dtype.size() as usize])
    }

    pub(super) fn value(&mut self, at: Address, dtype: DType) -> Result<Value, Fault> {
        Ok(Value::of(dtype, self.load(at, dtype)?))
    }

    pub(super) fn put(&mut self, at: Address, dtype: DType, v: Value) -> Result<(), Fault> {
        self.store(at, dtype, encode(self.math, v, dtype))
    }

    pub(super) fn source(&self, src: Src, dtype: DType, cols: Size) -> Source {
        let (local, mode) = match src {
            Src::Imm(bits) => return Source::Imm(bits),
            Src::Local(local, mode) => (local, mode),
        };
        let size = i64::from(dtype.size());
        let (row, col) = match mode {
            Mode::Full => (size * i64::from(cols.body), size),
            Mode::Row => (0, size),
            Mode::Col => (size, 0),
            Mode::One => (0, 0),
        };
        Source::At { first: self.local(local), row, col, dtype }
    }

    pub(super) fn element(&mut self, s: Source, r: u64, c: u64) -> Result<u64, Fault> {
        match s {
            Source::Imm(bits) => Ok(bits),
            Source::At { first, row, col, dtype } => self.load(first.step(r, row).step(c, col), dtype),
        }
    }

    /// A result, element by element: `f` makes bits of `dtype` from the bits of the sources, each with its dtype. Gets the
    /// number of the element too.
    pub(super) fn elementwise<const N: usize>(
        &mut self,
        dst: Local,
        dtype: DType,
        sources: [(Src, DType); N],
        (rows, cols): (Size, Size),
        mut f: impl FnMut(u64, [u64; N]) -> Result<u64, Fault>,
    ) -> Result<(), Fault> {
        let sources = sources.map(|(s, d)| self.source(s, d, cols));
        let first = self.local(dst);
        let size = i64::from(dtype.size());
        let (n, width) = (self.count(rows), self.count(cols));
        for r in 0..n {
            let row = first.step(r, size * i64::from(cols.body));
            for c in 0..width {
                let mut bits = [0; N];
                for (b, &s) in bits.iter_mut().zip(&sources) {
                    *b = self.element(s, r, c)?;
                }
                let result = f(r * width + c, bits)?;
                self.store(row.step(c, size), dtype, result)?;
            }
        }
        Ok(())
    }
}

/// The bits of a computed value.
pub(super) fn encode(math: &dyn Math, v: Value, dtype: DType) -> u64 {
    let chosen = if dtype.is_float() && v.is_nan() { math.nan(dtype) } else { None };
    chosen.unwrap_or_else(|| v.bits(dtype))
}

/// An index counted from the front, or the trap.
pub(super) fn wrap_index(i: i64, limit: u64, element: u64) -> Result<u64, Fault> {
    let wrapped = if i < 0 { i128::from(i) + i128::from(limit) } else { i128::from(i) };
    match u64::try_from(wrapped) {
        Ok(w) if w < limit => Ok(w),
        _ => Err(Fault::Trap { kind: TrapKind::IndexOutOfRange { limit }, element, value: i }),
    }
}
