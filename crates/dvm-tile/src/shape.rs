//! Tiles as the operand forms see them: folds grouped into rows and columns, accesses as short loop nests.

use dvm_bc::{Loop, MAX_LOOPS, Mem, Mode, Size, Strides};
use smallvec::SmallVec;

use crate::error::Fault;
use crate::space::{Fold, Mask, NONE, Space};

/// Folds of a tile, outermost first.
pub(crate) type Dims = SmallVec<[u8; 8]>;

/// A loop nest over an argument or a local tile, outermost first.
pub(crate) type Nest = SmallVec<[Loop; 8]>;

impl Space {
    /// The folds of `mask` of which a tile has more than one element.
    pub(crate) fn dims(&self, mask: Mask) -> Dims {
        bits(mask).filter(|&f| self.folds[f].tile > 1).map(|f| f as u8).collect()
    }

    /// The number of elements along `dims`, or `None` where no [`Size`] says it: only the outermost may be ragged.
    pub(crate) fn group(&self, dims: &[u8]) -> Option<Size> {
        let Some((&first, rest)) = dims.split_first() else { return Some(Size::ONE) };
        let f = &self.folds[usize::from(first)];
        let (mut body, mut tail) = (f.tile, f.tail);
        for &d in rest {
            let g = &self.folds[usize::from(d)];
            if g.ragged() {
                return None;
            }
            body = body.checked_mul(g.tile)?;
            tail = tail.checked_mul(g.tile)?;
        }
        Some(sized(body, tail, f.extent))
    }

    /// `mask` as `rows x cols`, cut before dim number `at`.
    pub(crate) fn split(&self, dims: &[u8], at: usize) -> Option<(Size, Size)> {
        Some((self.group(&dims[..at])?, self.group(&dims[at..])?))
    }

    /// The loops of an access to an argument over a tile that varies along `mask`; strides in bytes (0 for a broadcast).
    pub(crate) fn access_nest(&self, access: u32, mask: Mask) -> Nest {
        let strides = self.strides(access);
        self.nest(mask, |f| strides[f], |f| f.count == 1)
    }

    /// The loops that spread a local tile over `from` to one over `to`; strides in elements.
    pub(crate) fn spread_nest(&self, from: Mask, to: Mask) -> Nest {
        let mut strides = [0i64; Mask::BITS as usize];
        let mut inner = 1i64;
        for &d in self.dims(from).iter().rev() {
            strides[usize::from(d)] = inner;
            inner = inner.saturating_mul(i64::from(self.folds[usize::from(d)].tile));
        }
        self.nest(to, |f| strides[f], |f| !f.ragged())
    }

    /// Loops over the dims of `mask`, joined where that is the same walk: the inner one must be `whole`.
    fn nest(&self, mask: Mask, stride: impl Fn(usize) -> i64, whole: impl Fn(&Fold) -> bool) -> Nest {
        let mut out = Nest::new();
        let mut inner_whole = false;
        for &d in self.dims(mask).iter().rev() {
            let (fold, s) = (&self.folds[usize::from(d)], stride(usize::from(d)));
            let joins = inner_whole;
            inner_whole = whole(fold);
            if joins
                && let Some(l) = out.last_mut()
                && l.stride.checked_mul(i64::from(l.count.body)) == Some(s)
                && let (Some(body), Some(tail)) =
                    (l.count.body.checked_mul(fold.tile), l.count.body.checked_mul(fold.tail))
            {
                l.count = sized(body, tail, fold.extent);
                continue;
            }
            out.push(Loop { count: sized(fold.tile, fold.tail, fold.extent), stride: s });
        }
        out.reverse();
        out
    }

    /// Where the tile's first element is.
    pub(crate) fn mem(&self, slot: u16, access: u32) -> Mem {
        Mem { slot, offset: self.offsets[access as usize], strides: self.extent_strides(access) }
    }

    /// Strides of an access per extent of the unit space.
    pub(crate) fn extent_strides(&self, access: u32) -> Strides {
        let strides = self.strides(access);
        let mut out = Strides::new();
        for (f, &s) in self.folds.iter().zip(strides) {
            if f.extent != NONE && s != 0 {
                out.push((f.extent, s * i64::from(f.tile)));
            }
        }
        // Parallel extents come first whatever the order of the folds is.
        out.sort_unstable_by_key(|e| e.0);
        out
    }
}

fn sized(body: u32, tail: u32, extent: u8) -> Size {
    if body == tail { Size::fixed(body) } else { Size::ragged(body, tail, extent) }
}

/// At most [`MAX_LOOPS`] loops, as an instruction takes them.
pub(crate) fn loops(nest: &Nest, value: u32) -> Result<dvm_bc::Loops, Fault> {
    if nest.len() > MAX_LOOPS {
        return Err(Fault::Loops { value: value as usize, loops: nest.len(), most: MAX_LOOPS });
    }
    Ok(nest.iter().copied().collect())
}

/// How an operand that varies along `have` is read by an instruction over `dims` cut before number `at`; `None` when it
/// must be spread first. All masks hold wide folds only.
pub(crate) fn mode(have: Mask, dims: &[u8], at: usize) -> Option<Mode> {
    let mask = |d: &[u8]| d.iter().fold(0, |m, &f| m | 1 << f);
    if have == mask(dims) {
        Some(Mode::Full)
    } else if have == 0 {
        Some(Mode::One)
    } else if have == mask(&dims[at..]) {
        Some(Mode::Row)
    } else if have == mask(&dims[..at]) {
        Some(Mode::Col)
    } else {
        None
    }
}

/// The set bits of a mask, lowest first.
#[derive(Clone)]
pub(crate) struct Bits(Mask);

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let i = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (i < Mask::BITS).then_some(i as usize)
    }
}
impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<usize> {
        let i = self.0.checked_ilog2()?;
        self.0 ^= 1 << i;
        Some(i as usize)
    }
}

/// Positions of the set bits, rising.
pub(crate) fn bits(mask: Mask) -> Bits {
    Bits(mask)
}
