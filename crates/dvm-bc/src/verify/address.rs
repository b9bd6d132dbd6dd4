//! Sets of argument bytes that an access touches over the whole unit space, and proofs that two such sets are disjoint.
//!
//! A set is `lo + sum(index * stride) + 0..unit` over dims with positive strides: mixed radix digits, once ragged dims
//! are merged with the extent that cuts them. All tests are sufficient, none is a search.

use smallvec::SmallVec;

use super::footprint::Dim;
use crate::{MAX_PARALLEL, MAX_SEQ, Mem};

/// No argument is larger, so all sums of what lies inside one fit 64 bits.
pub(super) const MAX_SPAN: i128 = 1 << 48;

const EXTENTS: usize = MAX_PARALLEL + MAX_SEQ;

/// A digit of the address: `count` values, `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digit {
    pub(super) stride: u64,
    pub(super) count: u64,
}

/// The bytes an access touches, relative to the slot's base.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    /// First byte and end.
    pub(super) lo: i64,
    pub(super) hi: i64,
    /// Contiguous bytes at each address.
    pub(super) unit: u64,
    /// By rising stride, contiguous ones merged.
    pub(super) digits: SmallVec<[Digit; 6]>,
    /// No byte is touched twice.
    pub(super) injective: bool,
    /// Data decide which of the bytes are touched.
    pub(super) sparse: bool,
    /// Walked over again, because some sequential extent does not move it.
    pub(super) again: bool,
    /// Strides of the sequential extents, and the ragged dims: with the digits, what is touched at each point.
    pub(super) walk: [i64; MAX_SEQ],
    pub(super) ragged: SmallVec<[Dim; 1]>,
    /// Distinct bytes, where `injective`.
    pub(super) bytes: u64,
    /// Stride and extent of each parallel extent; (0, 1) where there is one index.
    pub(super) parallel: [(i64, u32); MAX_PARALLEL],
    /// No byte is touched by two parallel tiles.
    pub(super) tiles_disjoint: bool,
    /// First byte and end of what the tile at parallel index 0 touches, at body counts.
    pub(super) tile: (i64, i64),
}

/// Why there is no footprint.
#[derive(Debug)]
pub(super) enum NoFootprint {
    /// The access never happens: an extent or a count is zero.
    Never,
    /// Not an access of this space.
    Bad(String),
}

impl Footprint {
    /// The footprint of `mem` with inner `dims` over `extents`, of which the first `parallel` are parallel.
    pub(super) fn new(
        mem: &Mem,
        dims: &[Dim],
        unit: u64,
        extents: &[u32],
        parallel: usize,
    ) -> Result<Footprint, NoFootprint> {
        let bad = |s: String| Err(NoFootprint::Bad(s));
        let mut stride = [0i64; EXTENTS];
        for &(e, s) in &mem.strides {
            // Validity of the list itself is checked with the operands.
            if let Some(x) = stride.get_mut(e as usize) {
                *x = s;
            }
        }
        if dims.iter().any(|d| d.extent.is_some_and(|e| usize::from(e) >= extents.len())) {
            // Reported with the operands.
            return Err(NoFootprint::Never);
        }
        if extents.contains(&0) || dims.iter().any(|d| d.extent.is_none() && d.body == 0) || unit == 0 {
            return Err(NoFootprint::Never);
        }

        // Extremes: a sum of one term an extent (with the ragged counts it decides) and one a fixed dim.
        // Saturating: what is too large for 64 bits stays larger than any argument.
        let (mut lo, mut hi) = (mem.offset, mem.offset);
        let (mut tile_lo, mut tile_hi) = (lo, lo);
        let span = |count: u64, stride: i64| {
            i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1).saturating_mul(stride)
        };
        for d in dims.iter().filter(|d| d.extent.is_none()) {
            let s = span(d.body, d.stride);
            lo = lo.saturating_add(s.min(0));
            hi = hi.saturating_add(s.max(0));
        }
        for d in dims {
            let s = span(d.body.max(1), d.stride);
            tile_lo = tile_lo.saturating_add(s.min(0));
            tile_hi = tile_hi.saturating_add(s.max(0));
        }
        let cut = cut(dims);
        for (e, (&extent, &s)) in extents.iter().zip(&stride).enumerate() {
            let last = i64::from(extent) - 1;
            if cut >> e & 1 == 0 {
                // No count depends on it.
                let s = last.saturating_mul(s);
                (lo, hi) = (lo.saturating_add(s.min(0)), hi.saturating_add(s.max(0)));
                if e >= parallel {
                    tile_lo = tile_lo.saturating_add(s.min(0));
                    tile_hi = tile_hi.saturating_add(s.max(0));
                }
                continue;
            }
            let ragged = || dims.iter().filter(|d| d.extent == Some(e as u8));
            let mut reach: Option<(i64, i64)> = None;
            let mut at = |index: i64, count: fn(&Dim) -> u64| {
                let (mut l, mut h) = (index.saturating_mul(s), index.saturating_mul(s));
                for d in ragged() {
                    if count(d) == 0 {
                        return;
                    }
                    let s = span(count(d), d.stride);
                    l = l.saturating_add(s.min(0));
                    h = h.saturating_add(s.max(0));
                }
                reach = Some(reach.map_or((l, h), |r| (r.0.min(l), r.1.max(h))));
            };
            if last >= 1 {
                at(0, |d| d.body);
                at(last - 1, |d| d.body);
            }
            at(last, |d| d.tail);
            let Some((l, h)) = reach else { return Err(NoFootprint::Never) };
            lo = lo.saturating_add(l);
            hi = hi.saturating_add(h);
            if e >= parallel {
                let s = last.saturating_mul(s);
                tile_lo = tile_lo.saturating_add(s.min(0));
                tile_hi = tile_hi.saturating_add(s.max(0));
            }
        }
        let unit_bytes = i64::try_from(unit).unwrap_or(i64::MAX);
        hi = hi.saturating_add(unit_bytes);
        tile_hi = tile_hi.saturating_add(unit_bytes);
        let far = |x: i64| i128::from(x).abs() > MAX_SPAN;
        let wide = |lo: i64, hi: i64| i128::from(hi) - i128::from(lo) > MAX_SPAN;
        if wide(lo, hi) || far(lo) || far(hi) || wide(tile_lo, tile_hi) || far(tile_lo) {
            return bad(format!("touches bytes {lo}..{hi}, further than any argument reaches"));
        }
        let mut f = Footprint {
            lo,
            hi,
            unit,
            digits: SmallVec::new(),
            injective: true,
            sparse: false,
            again: false,
            walk: [0; MAX_SEQ],
            ragged: SmallVec::new(),
            bytes: 0,
            parallel: [(0, 1); MAX_PARALLEL],
            tiles_disjoint: true,
            tile: (tile_lo, tile_hi),
        };
        for (w, e) in f.walk.iter_mut().zip(parallel..extents.len()) {
            *w = if extents[e] > 1 { stride[e] } else { 0 };
        }
        f.ragged
            .extend(dims.iter().filter(|d| d.extent.is_some_and(|e| extents[usize::from(e)] > 1)).copied());
        f.digits(dims, &stride, extents, parallel);
        Ok(f)
    }

    /// Fills in everything that depends on the digits. Spans are bounded, so nothing overflows.
    fn digits(&mut self, dims: &[Dim], stride: &[i64; EXTENTS], extents: &[u32], parallel: usize) {
        let mut merged = 0u32;
        // Exact number of addresses: fixed counts, times for each extent the sum over its indices.
        let mut addresses = 1u64;
        for d in dims {
            let count = match d.extent {
                None => d.body,
                Some(e) => {
                    let e = e as usize;
                    let extent = u64::from(extents[e]);
                    let step = d.stride.checked_mul(d.body as i64);
                    if extent == 1 {
                        d.tail
                    } else if merged >> e & 1 == 0 && d.tail > 0 && d.stride != 0 && step == Some(stride[e]) {
                        merged |= 1 << e;
                        (extent - 1) * d.body + d.tail
                    } else {
                        d.body
                    }
                }
            };
            if d.extent.is_none() {
                addresses = addresses.saturating_mul(d.body);
            }
            self.injective &= d.stride != 0 || count <= 1;
            self.digit(d.stride, count);
        }
        let mut overlap = false;
        let cut = cut(dims);
        for (e, &extent) in extents.iter().enumerate() {
            let (extent, s) = (u64::from(extent), stride[e]);
            let (mut body, mut tail) = (1u64, 1u64);
            for d in dims.iter().filter(|d| cut >> e & 1 != 0 && d.extent == Some(e as u8)) {
                body = body.saturating_mul(d.body);
                tail = tail.saturating_mul(d.tail);
            }
            if e < parallel && extent > 1 {
                self.parallel[e] = (s, extent as u32);
                overlap |= s == 0;
            }
            let times = if s == 0 && extent > 1 {
                // A walk over the same bytes: what its body indices touch, which includes the tail's.
                body
            } else {
                body.saturating_mul(extent - 1).saturating_add(tail)
            };
            addresses = addresses.saturating_mul(times);
            self.again |= e >= parallel && extent > 1 && s == 0;
            if merged >> e & 1 == 0 && extent > 1 && (s != 0 || e < parallel) {
                self.digit(s, extent);
            }
        }
        self.injective &= !overlap && ascending(&mut self.digits, self.unit);
        self.bytes = addresses.saturating_mul(self.unit);
        // Contiguous digits become one, so that equal sets look equal however they were cut.
        if self.injective {
            let mut out: SmallVec<[Digit; 6]> = SmallVec::new();
            for &d in &self.digits {
                match out.last_mut() {
                    None if d.stride == self.unit => self.unit *= d.count,
                    Some(l) if l.stride * l.count == d.stride => l.count *= d.count,
                    _ => out.push(d),
                }
            }
            self.digits = out;
        }
        let tile = (self.tile.1 - self.tile.0) as u64;
        self.tiles_disjoint = self.injective || self.steps_over(tile);
    }

    fn digit(&mut self, stride: i64, count: u64) {
        if count > 1 && stride != 0 {
            self.digits.push(Digit { stride: stride.unsigned_abs(), count });
        }
    }

    /// Whether moving from one parallel tile to any other moves by at least `bytes`.
    fn steps_over(&self, bytes: u64) -> bool {
        let moving = self.parallel.iter().filter(|p| p.1 > 1);
        let mut digits: SmallVec<[Digit; MAX_PARALLEL]> =
            moving.map(|&(s, n)| Digit { stride: s.unsigned_abs(), count: u64::from(n) }).collect();
        ascending(&mut digits, bytes)
    }

    /// Every byte of `lo..hi` is touched.
    pub(super) fn dense(&self) -> bool {
        self.injective && self.digits.is_empty()
    }
}

/// The extents that decide some count, as bits.
fn cut(dims: &[Dim]) -> u32 {
    dims.iter().filter_map(|d| d.extent).fold(0, |m, e| m | 1 << (e & 31))
}

/// Sorts by stride; whether each stride is at least what all smaller digits and `unit` span.
fn ascending(digits: &mut [Digit], unit: u64) -> bool {
    digits.sort_unstable_by_key(|d| d.stride);
    let mut span = unit;
    digits.iter().all(|d| {
        let ok = d.stride >= span;
        span = span.saturating_add((d.count - 1).saturating_mul(d.stride));
        ok
    })
}

/// A footprint at an absolute base in an argument.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) f: &'a Footprint,
    pub(super) base: i64,
}

impl Placed<'_> {
    pub(super) fn lo(&self) -> i64 {
        self.base + self.f.lo
    }
    pub(super) fn hi(&self) -> i64 {
        self.base + self.f.hi
    }
    /// The bytes from `origin` on, modulo `p`, when they are one range that does not wrap: all larger digits are multiples
    /// of `p`.
    fn residue(&self, origin: i64, p: u64) -> Option<(u64, u64)> {
        let mut width = self.f.unit;
        for d in &self.f.digits {
            if d.stride < p {
                width = width.saturating_add((d.count - 1).saturating_mul(d.stride));
            } else if d.stride % p != 0 {
                return None;
            }
        }
        let at = (self.lo() - origin).rem_euclid(p as i64) as u64;
        (at.checked_add(width)? <= p).then_some((at, at + width))
    }
}

/// Whether two sets are disjoint: their ranges are, or they keep to disjoint parts of a common pitch.
pub(super) fn disjoint(a: Placed<'_>, b: Placed<'_>) -> bool {
    if a.hi() <= b.lo() || b.hi() <= a.lo() {
        return true;
    }
    // Where the pitch begins does not matter: count from the first set.
    let origin = a.lo();
    a.f.digits.iter().chain(&b.f.digits).any(|d| {
        match (a.residue(origin, d.stride), b.residue(origin, d.stride)) {
            (Some(x), Some(y)) => x.1 <= y.0 || y.1 <= x.0,
            _ => false,
        }
    })
}

/// Whether two accesses of one unit touch common bytes only within a parallel tile.
pub(super) fn same_tile(a: Placed<'_>, b: Placed<'_>) -> bool {
    if a.f.parallel != b.f.parallel {
        return false;
    }
    if equal(a, b) {
        return a.f.tiles_disjoint;
    }
    // The range both take in the first tile, moved along.
    let lo = (a.base + a.f.tile.0).min(b.base + b.f.tile.0);
    let hi = (a.base + a.f.tile.1).max(b.base + b.f.tile.1);
    a.f.steps_over((hi - lo) as u64)
}

/// The same bytes at each point of the walk, given that they are [`equal`] and injective: what the fixed dims touch is then the
/// same too, because a sum of sets without collisions can be cancelled.
pub(super) fn in_step(a: &Footprint, b: &Footprint) -> bool {
    a.walk == b.walk && a.ragged == b.ragged
}

/// The same bytes in each parallel tile.
pub(super) fn equal(a: Placed<'_>, b: Placed<'_>) -> bool {
    a.lo() == b.lo() && a.f.unit == b.f.unit && a.f.digits == b.f.digits && a.f.parallel == b.f.parallel
}
