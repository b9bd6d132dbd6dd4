//! Local memory: inside its space, written before it is read, overlaps that mean something.
//!
//! One linear pass in the order of a tile's first execution. Solid bytes are a set of ranges; a ragged write (fewer
//! bytes at an extent's last index) that does not fall on solid bytes is remembered with its shape, and may be read only
//! where a reader is ragged the same way. A few shapes are kept a space; forgetting one can only make a proof fail.

use super::footprint::{Dim, Packing, PanelUse, Ragged, RaggedDims, Region};
use super::intervals::Intervals;
use super::operands::Problems;
use super::report::{InstAt, Report, Where};
use crate::{Access, DType, Local, Size, Space};

/// Ragged shapes remembered a space.
const SHAPES: usize = 64;
/// Panel buffers a template may have, and sticky loads.
const PANELS: usize = 64;
const STICKY: usize = 64;

struct Shape {
    lo: u64,
    bytes: u64,
    ragged: RaggedDims,
}

impl Shape {
    /// Whether every byte a reader of `lo..lo + bytes` takes was written.
    fn serves(&self, lo: u64, bytes: u64, ragged: &RaggedDims) -> bool {
        let inside = lo >= self.lo && lo + bytes <= self.lo + self.bytes;
        inside
            && self.ragged.iter().all(|w| {
                let at = lo - self.lo;
                let in_tail = at % w.period + bytes <= w.tail;
                let alike = |r: &Ragged| {
                    (r.extent, r.period) == (w.extent, w.period)
                        && r.tail <= w.tail
                        && at.is_multiple_of(w.period)
                };
                in_tail || ragged.iter().any(alike)
            })
    }
}

#[derive(Default)]
struct SpaceState {
    solid: Intervals,
    shapes: Vec<Shape>,
}

/// A packed operand. A template's panel buffers never overlap, so each has one geometry wherever it is used.
struct Panel {
    space: Space,
    lo: u64,
    hi: u64,
    dtype: DType,
    sizes: [Size; 2],
    packing: Packing,
    /// Written on the way to the current instruction.
    live: bool,
}

/// A range that may not be written by anyone else, because its load may be skipped.
struct Sticky {
    space: Space,
    lo: u64,
    hi: u64,
    owner: InstAt,
}

/// What a template has done to local memory so far.
pub(super) struct LocalState {
    spaces: [SpaceState; 4],
    panels: Vec<Panel>,
    sticky: Vec<Sticky>,
    /// Every write, for the check of `sticky` at the end: (space, lo, hi, instruction number).
    writes: Vec<(Space, u64, u64, u32)>,
    /// Regions known to be written, at most one a place: most reads are of what has just been written.
    recent: [Recent; RECENT],
    /// What is remembered from an earlier age counts no more.
    age: u64,
}

const RECENT: usize = 32;

#[derive(Clone, Copy)]
struct Recent {
    age: u64,
    space: Space,
    lo: u64,
    region: Region,
}

impl Default for LocalState {
    fn default() -> LocalState {
        let none = Recent { age: 0, space: Space::Ub, lo: 0, region: Region::dense(&[], 0) };
        LocalState {
            spaces: Default::default(),
            panels: Vec::new(),
            sticky: Vec::new(),
            writes: Vec::new(),
            recent: [none; RECENT],
            age: 1,
        }
    }
}

/// Where an instruction stands, and where problems go.
pub(super) struct At<'a> {
    /// The target's block, and bytes of each space.
    pub(super) block: u32,
    pub(super) capacity: [u64; 4],
    /// Number in the template.
    pub(super) number: u32,
    pub(super) dtype: DType,
    /// It executes at least once in a tile.
    pub(super) runs: bool,
    pub(super) bad: &'a mut Problems,
}

impl LocalState {
    /// Forgets everything but the allocations.
    pub(super) fn clear(&mut self) {
        self.age += 1;
        for s in &mut self.spaces {
            s.solid.clear();
            s.shapes.clear();
        }
        self.panels.clear();
        self.sticky.clear();
        self.writes.clear();
    }

    /// The sequential extents from `first` on are left: what is ragged in them is now as their last index left it.
    pub(super) fn leave(&mut self, first: u8) {
        self.age += 1;
        for s in &mut self.spaces {
            let (solid, shapes) = (&mut s.solid, &mut s.shapes);
            shapes.retain_mut(|shape| {
                let Shape { lo, bytes, ragged } = shape;
                let mut keep = true;
                ragged.retain(|r| {
                    if r.extent < first {
                        return true;
                    }
                    // With one period the valid bytes are its beginning; with several there is no simple range.
                    keep &= r.period >= *bytes;
                    *bytes = (*bytes).min(r.tail);
                    false
                });
                if keep && ragged.is_empty() {
                    solid.add(*lo, *lo + *bytes);
                    keep = false;
                }
                keep
            });
        }
        let ragged = |s: &Size| s.extent.is_some_and(|e| e >= first);
        for p in &mut self.panels {
            p.live &= !p.sizes.iter().any(ragged);
        }
    }

    /// Whether `lo..lo + bytes` is written.
    fn written(&self, space: Space, lo: u64, bytes: u64, ragged: &RaggedDims) -> bool {
        let s = &self.spaces[space as usize];
        s.solid.covers(lo, lo + bytes) || s.shapes.iter().rev().any(|w| w.serves(lo, bytes, ragged))
    }

    fn write(&mut self, space: Space, lo: u64, region: &Region) {
        let s = &mut self.spaces[space as usize];
        let (hi, bytes, ragged) = (lo + region.bytes, region.bytes, region.ragged);
        if ragged.is_empty() {
            s.solid.add(lo, hi);
        } else if !s.solid.covers(lo, hi) {
            // Bytes stay written: older shapes need no update, equal ones no second entry.
            if s.shapes.iter().any(|w| w.lo == lo && w.bytes == bytes && w.ragged == ragged) {
                return;
            }
            if s.shapes.len() == SHAPES {
                s.shapes.remove(0);
            }
            s.shapes.push(Shape { lo, bytes, ragged });
        }
    }

    /// Where a region that begins here is remembered.
    #[inline]
    fn recent(&mut self, space: Space, lo: u64) -> &mut Recent {
        let spread = (lo ^ (space as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.recent[(spread >> 59) as usize % RECENT]
    }

    /// Checks one local use and records what it writes.
    #[inline]
    pub(super) fn local(
        &mut self,
        at: &mut At<'_>,
        name: &'static str,
        access: Access,
        local: Local,
        space: Space,
        region: &Region,
    ) -> Option<(u64, u64)> {
        let (lo, hi) = place(at, name, local, space, region.bytes)?;
        if at.runs && region.bytes > 0 {
            let age = self.age;
            let r = self.recent(space, lo);
            let known = r.age == age && r.lo == lo && r.space == space && r.region == *region;
            let mut sure = known;
            if access.reads() && !known {
                sure = self.written(space, lo, region.bytes, &region.ragged);
                if !sure {
                    unwritten(at, name, space, lo, hi);
                }
            }
            if access.writes() {
                self.writes.push((space, lo, hi, at.number));
                if !known {
                    self.write(space, lo, region);
                }
                sure = true;
            }
            if sure && !known {
                *self.recent(space, lo) = Recent { age, space, lo, region: *region };
            }
        }
        Some((lo, hi))
    }

    /// Checks a strided read of vector memory; returns its hull.
    pub(super) fn strided(
        &mut self,
        at: &mut At<'_>,
        name: &'static str,
        local: Local,
        dims: &[Dim],
        unit: u64,
    ) -> Option<(u64, u64)> {
        let (base, _) = place(at, name, local, Space::Ub, 0)?;
        if dims.iter().any(|d| d.body == 0) {
            return Some((base, base));
        }
        let (mut lo, mut hi) = (i128::from(base), i128::from(base) + i128::from(unit));
        let mut ragged = RaggedDims::default();
        for d in dims {
            let span = (i128::from(d.body) - 1) * i128::from(d.stride);
            lo += span.min(0);
            hi += span.max(0);
            if let (Some(extent), Ok(stride)) = (d.extent, u64::try_from(d.stride)) {
                let [period, tail] = [d.body, d.tail].map(|n| n.saturating_mul(stride));
                ragged.push(Ragged { extent, period, tail });
            }
        }
        let capacity = at.capacity[Space::Ub as usize];
        if lo < 0 || hi > i128::from(capacity) {
            at.bad.push(format!("`{name}`: bytes {lo}..{hi} are not all in ub of {capacity} bytes"));
            return None;
        }
        let (lo, hi) = (lo as u64, hi as u64);
        if at.runs && !self.written(Space::Ub, lo, hi - lo, &ragged) {
            unwritten(at, name, Space::Ub, lo, hi);
        }
        Some((lo, hi))
    }

    /// Marks a range as kept from tile to tile by the load with this number.
    pub(super) fn sticky(&mut self, (space, lo, hi): (Space, u64, u64), owner: InstAt, bad: &mut Problems) {
        if self.sticky.len() == STICKY {
            bad.push(format!("more than {STICKY} sticky loads in a template"));
        } else {
            self.sticky.push(Sticky { space, lo, hi, owner });
        }
    }

    /// Checks a packed operand.
    pub(super) fn panel(&mut self, at: &mut At<'_>, u: &PanelUse) {
        let PanelUse { name, local, space, bytes, sizes, packing } = *u;
        let Some((lo, hi)) = place(at, name, local, space, bytes) else { return };
        if packing == Packing::Used {
            let fits = |p: &&Panel| (p.space, p.lo, p.dtype, p.sizes) == (space, lo, at.dtype, sizes);
            match self.panels.iter().find(fits) {
                Some(p) if p.live || !at.runs => {}
                _ => at.bad.push(format!(
                    "`{name}`: no operand of this dtype and these sizes is packed at {} {lo} before",
                    space.name()
                )),
            }
            return;
        }
        // A handle takes a block, so that distinct names are distinct places.
        let hi = hi.max(lo + u64::from(at.block));
        let full = self.panels.len() == PANELS;
        match self.panels.iter_mut().find(|p| p.space == space && p.lo < hi && lo < p.hi) {
            Some(p) if (p.lo, p.hi, p.dtype, p.sizes, p.packing) == (lo, hi, at.dtype, sizes, packing) => {
                p.live |= at.runs;
            }
            Some(p) => at.bad.push(format!(
                "`{name}` at {} {lo}..{hi} overlaps another panel buffer at {}..{} of other shape",
                space.name(),
                p.lo,
                p.hi
            )),
            None if full => at.bad.push(format!("more than {PANELS} panel buffers in a template")),
            None => {
                let (dtype, live) = (at.dtype, at.runs);
                self.panels.push(Panel { space, lo, hi, dtype, sizes, packing, live });
            }
        }
        if at.runs && packing == Packing::Loaded {
            self.writes.push((space, lo, hi, at.number));
        }
    }

    /// After the whole template: buffers of skipped loads have one writer.
    pub(super) fn finish(&self, report: &mut Report) {
        for s in &self.sticky {
            let other = |w: &&(Space, u64, u64, u32)| {
                w.0 == s.space && w.1 < s.hi && s.lo < w.2 && w.3 != s.owner.number
            };
            if let Some(w) = self.writes.iter().find(other) {
                let what = format!("sticky load, but instruction {} writes {}..{} too", w.3, w.1, w.2);
                report.push(Where::Inst(s.owner), what);
            }
        }
    }
}

/// The byte range of a local operand, if it is one.
#[inline]
fn place(at: &mut At<'_>, name: &str, local: Local, space: Space, bytes: u64) -> Option<(u64, u64)> {
    if local.space != space {
        wrong_space(at, name, local, space);
        return None;
    }
    let capacity = at.capacity[space as usize];
    let lo = u64::from(local.offset) * u64::from(at.block);
    match lo.checked_add(bytes) {
        Some(hi) if hi <= capacity => Some((lo, hi)),
        _ => {
            too_large(at, name, space, lo, bytes);
            None
        }
    }
}

#[cold]
fn unwritten(at: &mut At<'_>, name: &str, space: Space, lo: u64, hi: u64) {
    at.bad.push(format!("`{name}` reads {} {lo}..{hi} before all of it is written", space.name()));
}

#[cold]
fn wrong_space(at: &mut At<'_>, name: &str, local: Local, space: Space) {
    at.bad.push(format!("`{name}` is in {}, not in {}", local.space.name(), space.name()));
}

#[cold]
fn too_large(at: &mut At<'_>, name: &str, space: Space, lo: u64, bytes: u64) {
    let capacity = at.capacity[space as usize];
    at.bad.push(format!("`{name}`: {bytes} bytes at {lo} exceed {} of {capacity} bytes", space.name()));
}
