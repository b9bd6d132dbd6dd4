//! Tile sizes of vector kernels.
//!
//! Start with the whole space as one tile and cut folds from the outside in: first until the tile fits local memory, then
//! further where more tiles than cores pay by the cost model. Folds that one core must walk (reduced ones) are cut
//! last, at the borders of the reduction order's blocks where these fit.

use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y};
use dvm_bc::{MAX_LOOPS, MAX_PARALLEL, MAX_SEQ, Space as Memory};
use dvm_npu::MachineSpec;
use smallvec::SmallVec;

use crate::cost::Model;
use crate::error::Fault;
use crate::hint::{self, TileHint};
use crate::report::{Candidate, Forced};
use crate::space::{Fold, Mask, NONE, Node, Space};

/// Loops of a gather or an iota inside a tile: rows and columns.
const GRID_LOOPS: usize = 2;

/// Tiles per core that are tried.
const WAVES: [u64; 6] = [1, 2, 3, 4, 6, 8];

/// What a caller asks of the choice.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// Take this tiling.
    pub(crate) forced: Option<Forced>,
    /// Tell what was compared.
    pub(crate) trace: Option<Vec<Candidate>>,
}

/// Picks the tile of every fold. `limit` is the vector memory it may use. `strict` tiles are ragged in their outermost
/// fold only, which every operand form can say.
pub(crate) fn choose(
    sp: &mut Space,
    model: &Model,
    spec: &MachineSpec,
    limit: u64,
    strict: bool,
    (ask, hints): (&mut Ask, &[TileHint]),
) -> Result<(), Fault> {
    for f in &mut sp.folds {
        f.cut(f.n);
    }
    limit_loops(sp);
    if let Some(forced) = &ask.forced {
        for (f, &t) in sp.folds.iter_mut().zip(&forced.tiles) {
            f.cut(u64::from(t.min(f.tile)));
        }
        if model.peak(sp) > limit {
            return too_large(sp, model, limit);
        }
        if strict {
            straighten(sp);
        }
        return assign_extents(sp);
    }
    let unit = widest(sp);
    let grain = Grain {
        align: (u64::from(spec.costs.align_bytes) / unit).max(1),
        efficient: (u64::from(spec.costs.dma.efficient_row_bytes) / unit).max(1),
    };
    fit(sp, model, limit, grain)?;
    spread(sp, model, spec, grain, ask);
    if !hints.is_empty() {
        hint::apply(sp, model, limit, hints);
        limit_loops(sp);
    }
    if strict {
        straighten(sp);
    }
    assign_extents(sp)
}

/// Makes every fold but the outermost wide one come out even, and every access a loop nest again.
fn straighten(sp: &mut Space) {
    let outermost = sp.folds.iter().position(|f| f.tile > 1);
    let last = (0..sp.folds.len()).rev().find(|&f| sp.folds[f].n > 1);
    for i in 0..sp.folds.len() {
        let f = &mut sp.folds[i];
        if f.ragged() && Some(i) != outermost {
            // Only rows are worth looking for a divisor.
            let even =
                (1..=u64::from(f.tile)).rev().find(|&t| f.n.is_multiple_of(t)).filter(|_| Some(i) == last);
            f.cut(even.unwrap_or(1));
        }
    }
    limit_loops(sp);
}

/// Row lengths in elements.
#[derive(Clone, Copy)]
struct Grain {
    align: u64,
    efficient: u64,
}

fn widest(sp: &Space) -> u64 {
    sp.vals.iter().filter(|v| !matches!(v.node, Node::Dead)).map(|v| v.size()).max().unwrap_or(4)
}

/// Cuts outer folds until every access is a loop nest that an instruction can walk.
fn limit_loops(sp: &mut Space) {
    if sp.folds.len() <= GRID_LOOPS {
        return;
    }
    for i in 0..sp.vals.len() {
        let val = sp.vals[i];
        let (access, most) = match val.node {
            Node::Load { access, .. } => (access, MAX_LOOPS),
            Node::Gather { access, .. } | Node::Iota { access } => (access, GRID_LOOPS),
            _ => {
                // A spread operand is a loop nest too.
                narrow(sp, val.mask, |sp| sp.dims(val.mask).len() <= MAX_LOOPS);
                continue;
            }
        };
        narrow(sp, val.mask, |sp| sp.access_nest(access, val.mask).len() <= most);
    }
    for i in 0..sp.stores.len() {
        let s = sp.stores[i];
        let spread = sp.vals[s.value as usize].mask != s.mask;
        narrow(sp, s.mask, |sp| {
            let n = if spread { sp.dims(s.mask).len() } else { sp.access_nest(s.access, s.mask).len() };
            n <= MAX_LOOPS
        });
    }
}

fn narrow(sp: &mut Space, mask: Mask, ok: impl Fn(&Space) -> bool) {
    while !ok(sp) {
        let Some(&f) = sp.dims(mask).first() else { return };
        sp.folds[usize::from(f)].cut(1);
    }
}

/// Cuts folds until the tile fits.
fn fit(sp: &mut Space, model: &Model, limit: u64, grain: Grain) -> Result<(), Fault> {
    let fits = |sp: &Space| model.peak(sp) <= limit;
    if fits(sp) {
        return Ok(());
    }
    let Some(last) = (0..sp.folds.len()).rev().find(|&f| sp.folds[f].n > 1) else {
        return too_large(sp, model, limit);
    };
    let last_kept = !sp.folds[last].walked;
    for f in 0..sp.folds.len() {
        if sp.folds[f].walked || f == last || sp.folds[f].tile == 1 {
            continue;
        }
        if grow(sp, model, limit, f, 1, 1) {
            if enclosed(sp, f) {
                sp.folds[f].cut(1);
            }
            return Ok(());
        }
    }
    let walked: SmallVec<[usize; 8]> =
        (0..sp.folds.len()).filter(|&f| sp.folds[f].walked && sp.folds[f].tile > 1).collect();
    if !last_kept {
        let (&inner, outer) = match walked.split_last() {
            Some(s) => s,
            None => return too_large(sp, model, limit),
        };
        for &f in outer {
            if grow(sp, model, limit, f, 1, 1) {
                return Ok(());
            }
        }
        let fine = grow(sp, model, limit, inner, u64::from(SUM_BLOCK_X), u64::from(SUM_BLOCK_X))
            || grow(sp, model, limit, inner, grain.align, grain.align)
            || grow(sp, model, limit, inner, 1, 1);
        return if fine { Ok(()) } else { too_large(sp, model, limit) };
    }
    // Columns: keep an efficient row where possible, and cut what is reduced across rows.
    let n = sp.folds[last].n;
    let efficient = grain.efficient.min(n);
    if grow(sp, model, limit, last, efficient, grain.align) {
        return Ok(());
    }
    for (i, &f) in walked.iter().enumerate() {
        let block = u64::from(SUM_BLOCK_Y);
        if i + 1 == walked.len() {
            if grow(sp, model, limit, f, block, block) {
                return Ok(());
            }
        } else if grow(sp, model, limit, f, block, block) || grow(sp, model, limit, f, 1, 1) {
            return Ok(());
        }
    }
    // `grow` leaves the least tile where nothing fits: rows of a block, then single rows.
    if grow(sp, model, limit, last, grain.align.min(efficient), grain.align.min(efficient)) {
        return Ok(());
    }
    // Never one column only: a sum across rows has another order than one along them.
    if grow(sp, model, limit, last, 2.min(n), 2.min(n)) {
        return Ok(());
    }
    for &f in &walked {
        if grow(sp, model, limit, f, 1, 1) {
            return Ok(());
        }
    }
    sp.folds[last].cut(1);
    if fits(sp) { Ok(()) } else { too_large(sp, model, limit) }
}

fn too_large(sp: &Space, model: &Model, limit: u64) -> Result<(), Fault> {
    Err(Fault::Memory { space: Memory::Ub, needs: model.peak(sp), has: limit })
}

/// Gives fold `f` the largest tile that fits, a multiple of `step` not below `least`; with none, leaves it at `least`
/// and returns false.
fn grow(sp: &mut Space, model: &Model, limit: u64, f: usize, least: u64, step: u64) -> bool {
    let n = u64::from(sp.folds[f].tile);
    let least = least.min(n);
    sp.folds[f].cut(least);
    let low = model.peak(sp);
    if low > limit {
        return false;
    }
    sp.folds[f].cut(n);
    let high = model.peak(sp);
    if high <= limit {
        return true;
    }
    // Memory is a convex function of one tile size, so the chord never promises too much (but for rounding to blocks).
    let room = u128::from(limit - low) * u128::from(n - least) / u128::from((high - low).max(1));
    let mut tile = least + room as u64;
    loop {
        if tile > step {
            tile -= tile % step;
        }
        tile = tile.max(least);
        sp.folds[f].cut(tile);
        if tile == least || model.peak(sp) <= limit {
            return true;
        }
        tile -= (tile - least).div_ceil(16);
    }
}

/// Cuts kept folds further, or evenly, where the cost model says that more tiles pay.
fn spread(sp: &mut Space, model: &Model, spec: &MachineSpec, grain: Grain, ask: &mut Ask) {
    let cores = u64::from(spec.target.cores);
    let tiles =
        |sp: &Space| sp.folds.iter().filter(|f| !f.walked).fold(1u64, |n, f| n.saturating_mul(f.count));
    let now = tiles(sp);
    let mut trace = ask.trace.as_mut();
    let mut cost = |sp: &Space| {
        let n = tiles(sp);
        let c = model.tile_ns(sp, &spec.costs, n.min(cores) as f64);
        let waves = n.div_ceil(cores);
        let total_ns = waves as f64 * (spec.costs.tile_ns + c.dma.max(c.vector));
        if let Some(trace) = &mut trace {
            trace.push(Candidate {
                tiles: sp.folds.iter().map(|f| f.tile).collect(),
                k0: None,
                count: n,
                waves,
                dma_ns: c.dma,
                vector_ns: c.vector,
                product_ns: 0.0,
                total_ns,
            });
        }
        total_ns
    };
    if now >= 8 * cores || sp.folds.iter().all(|f| f.walked || f.tile == 1) {
        cost(sp);
        return;
    }
    let start: SmallVec<[u32; 24]> = sp.folds.iter().map(|f| f.tile).collect();
    let restore = |sp: &mut Space, tiles: &[u32]| {
        for (f, &t) in sp.folds.iter_mut().zip(tiles) {
            f.cut(u64::from(t));
        }
    };
    let (mut best, mut best_cost) = (start.clone(), cost(sp));
    let even = now.next_multiple_of(cores);
    let mut tried = now;
    for target in std::iter::once(even).chain(WAVES.iter().map(|w| w * cores)) {
        if target <= now {
            continue;
        }
        restore(sp, &start);
        cut_into(sp, target, grain);
        let n = tiles(sp);
        if n == tried {
            continue;
        }
        tried = n;
        let c = cost(sp);
        if c < best_cost {
            best_cost = c;
            best = sp.folds.iter().map(|f| f.tile).collect();
        }
    }
    restore(sp, &best);
}

/// Cuts kept folds from the outside in until there are about `target` tiles.
fn cut_into(sp: &mut Space, target: u64, grain: Grain) {
    let last = (0..sp.folds.len()).rev().find(|&f| sp.folds[f].n > 1).unwrap_or(0);
    let mut have = sp.folds.iter().filter(|f| !f.walked).fold(1u64, |n, f| n.saturating_mul(f.count));
    for f in 0..sp.folds.len() {
        let fold = &mut sp.folds[f];
        if fold.walked || fold.tile == 1 {
            continue;
        }
        let others = have / fold.count;
        let parts = target.div_ceil(others.max(1)).min(fold.n);
        let mut tile = fold.n.div_ceil(parts.max(1));
        if f == last {
            tile = tile.max(grain.efficient).next_multiple_of(grain.align);
        }
        let tile = tile.min(u64::from(fold.tile));
        fold.cut(tile);
        if enclosed(sp, f) {
            sp.folds[f].cut(1);
        }
        have = others.saturating_mul(sp.folds[f].count);
        // Two ragged kept folds would be more than the operand forms can say.
        if have >= target || sp.folds[f].tile > 1 {
            return;
        }
    }
}

/// Whether walked folds lie on both sides of a kept one: cut in pieces it would be ragged inside a reduction's outer count.
pub(crate) fn enclosed(sp: &Space, f: usize) -> bool {
    let wide = |f: &Fold| f.walked && f.tile > 1;
    sp.folds[..f].iter().any(wide) && sp.folds[f + 1..].iter().any(wide)
}

/// Numbers the extents: kept folds that are cut are parallel, walked ones sequential.
pub(crate) fn assign_extents(sp: &mut Space) -> Result<(), Fault> {
    let mut next = 0usize;
    for (walked, what, most) in [(false, "parallel", MAX_PARALLEL), (true, "sequential", MAX_SEQ)] {
        let first = next;
        for (i, f) in sp.folds.iter_mut().enumerate().filter(|(_, f)| f.walked == walked) {
            f.extent = NONE;
            if f.count > 1 {
                if u32::try_from(f.count).is_err() {
                    return Err(Fault::Extent { fold: i, extent: f.n, tile: u64::from(f.tile) });
                }
                f.extent = next as u8;
                next += 1;
            }
        }
        if next - first > most {
            return Err(Fault::Extents { what, found: next - first, most });
        }
    }
    Ok(())
}
