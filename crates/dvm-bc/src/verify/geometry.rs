//! What an instruction touches, for whoever orders instructions: the verifier's own geometry, seen from outside.
//!
//! Everything is a superset of the bytes touched: a region is its hull at full counts.

use smallvec::SmallVec;

use super::address::{Footprint, Placed, disjoint, same_tile};
use super::footprint::{Dim, MemAccess, Packing, PanelUse, Region, Sink, uses};
use crate::{Access, Inst, Local, MAX_PARALLEL, Space, Target};

/// Bytes of local memory that an instruction touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalUse {
    /// Which space.
    pub space: Space,
    /// First byte.
    pub lo: u64,
    /// End.
    pub hi: u64,
    /// Reads, writes or both.
    pub access: Access,
}

/// Bytes of an argument that an instruction touches, over the whole unit space.
#[derive(Clone, Debug)]
pub struct ArgUse {
    /// Slot of the template.
    pub slot: u16,
    /// Stores, rather than loads.
    pub write: bool,
    /// With the parallel extents told apart.
    tile: Footprint,
    /// With every point told apart; `None` where there are too many extents.
    point: Option<Footprint>,
}

/// Where in a unit two accesses of one memory touch common bytes, if tiles do not (which the verifier sees to).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meeting {
    /// Nowhere.
    Never,
    /// At the same point of the walk only.
    Point,
    /// Anywhere in a tile.
    Tile,
}

impl ArgUse {
    /// First byte and end over the whole space, relative to the slot's base.
    #[must_use]
    pub const fn hull(&self) -> (i64, i64) {
        (self.tile.lo, self.tile.hi)
    }
    /// First byte and end in the first tile, over its whole walk, relative to the slot's base.
    #[must_use]
    pub const fn first_tile(&self) -> (i64, i64) {
        self.tile.tile
    }
    /// Where this access and another one meet in a tile, their slots' bases being `bases`. `same_walk`: the two have the
    /// same extents, so that points of the one are points of the other.
    #[must_use]
    pub fn meets(&self, other: &ArgUse, bases: (i64, i64), same_walk: bool) -> Meeting {
        let placed = |f, base| Placed { f, base };
        let (a, b) = (placed(&self.tile, bases.0), placed(&other.tile, bases.1));
        if disjoint(a, b) {
            return Meeting::Never;
        }
        if self.tile.parallel == other.tile.parallel {
            let ((l, h), (m, n)) = (self.first_tile(), other.first_tile());
            if bases.0 + h <= bases.1 + m || bases.1 + n <= bases.0 + l {
                return Meeting::Never;
            }
        }
        match (&self.point, &other.point) {
            (Some(f), Some(g)) if same_walk && same_tile(placed(f, bases.0), placed(g, bases.1)) => {
                Meeting::Point
            }
            _ => Meeting::Tile,
        }
    }
}

/// Everything an instruction touches.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Local memory. A bound right operand is the block that names it; `mmad` reads that block, or of a copied operand the
    /// first block.
    pub locals: SmallVec<[LocalUse; 4]>,
    /// Arguments.
    pub args: SmallVec<[ArgUse; 1]>,
}

impl Uses {
    /// What `inst` touches where the section's `extents`, parallel ones first, have an index. An access that never happens, or
    /// that no verified program has, is left out.
    #[must_use]
    pub fn of(inst: &Inst, target: &Target, extents: &[u32], parallel: usize) -> Uses {
        let mut c = Collect { block: u64::from(target.block), extents, parallel, uses: Uses::default() };
        uses(inst, target, &mut c);
        c.uses
    }
}

struct Collect<'a> {
    block: u64,
    extents: &'a [u32],
    parallel: usize,
    uses: Uses,
}

impl Collect<'_> {
    fn push(&mut self, access: Access, space: Space, lo: u64, bytes: u64) {
        if bytes > 0 && access != Access::Param {
            self.uses.locals.push(LocalUse { space, lo, hi: lo.saturating_add(bytes), access });
        }
    }
    fn lo(&self, local: Local) -> u64 {
        u64::from(local.offset) * self.block
    }
}

impl Sink for Collect<'_> {
    fn local(&mut self, _: &'static str, access: Access, local: Local, space: Space, region: &Region) {
        self.push(access, space, self.lo(local), region.bytes);
    }
    fn strided(&mut self, _: &'static str, local: Local, dims: &[Dim], unit: u64) {
        let base = i128::from(self.lo(local));
        let (mut lo, mut hi) = (base, base + i128::from(unit));
        for d in dims {
            let span = (i128::from(d.body) - 1) * i128::from(d.stride);
            lo += span.min(0);
            hi += span.max(0);
        }
        let [lo, hi] = [lo, hi].map(|v| u64::try_from(v.max(0)).unwrap_or(u64::MAX));
        self.push(Access::Read, Space::Ub, lo, hi.saturating_sub(lo));
    }
    fn panel(&mut self, p: &PanelUse) {
        let access = if p.packing == Packing::Used { Access::Read } else { Access::Write };
        self.push(access, p.space, self.lo(p.local), p.bytes.max(self.block));
    }
    fn mem(&mut self, a: &MemAccess<'_>) {
        let make = |parallel| Footprint::new(a.mem, a.dims, a.unit, self.extents, parallel).ok();
        let Some(tile) = make(self.parallel) else { return };
        let all = self.extents.len();
        let point = if all <= MAX_PARALLEL { make(all) } else { None };
        self.uses.args.push(ArgUse { slot: a.mem.slot, write: a.write, tile, point });
    }
}
