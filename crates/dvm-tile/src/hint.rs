//! Tilings that a caller asks for, instead of what the cost model finds.
//!
//! Values never depend on tile sizes, so this is for tests, experiments and searches. A hint speaks of the axes of a value; kernels have
//! folded theirs, so it is kept as a run of elements and finds its fold by position.

use dvm_bc::MAX_PARALLEL;
use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y};
use dvm_ir::kernel::KReduce;
use smallvec::SmallVec;

use crate::cost::Model;
use crate::space::{Node, Space};

/// Cuts a range of adjacent axes of an iteration space into a number of parts.
///
/// It matters to kernels over as many elements as the space has, as far as local memory and the instruction forms allow: a tile that does not fit
/// is made smaller, sums are cut at the borders of their order's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileHint {
    /// Elements of the space.
    total: u64,
    /// Elements inside one step along the range.
    inner: u64,
    /// Extent of the range.
    extent: u64,
    parts: u64,
}

impl TileHint {
    /// The axes `first..=last` of a space, counted from the innermost (0), as one range of `parts` tiles. `None` where there are no
    /// such axes or no parts.
    #[must_use]
    pub fn new(shape: &[usize], first: usize, last: usize, parts: usize) -> Option<TileHint> {
        if first > last || last >= shape.len() || parts == 0 {
            return None;
        }
        let count = |dims: &[usize]| dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
        let n = shape.len();
        Some(TileHint {
            total: count(shape)?,
            inner: count(&shape[n - first..])?,
            extent: count(&shape[n - 1 - last..n - first])?,
            parts: parts as u64,
        })
    }
}

/// Cuts folds as asked, where the result fits `limit` bytes.
pub(crate) fn apply(sp: &mut Space, model: &Model, limit: u64, hints: &[TileHint]) {
    let total = sp.folds.iter().try_fold(1u64, |n, f| n.checked_mul(f.n));
    let before: SmallVec<[u32; 24]> = sp.folds.iter().map(|f| f.tile).collect();
    let sums = sp.vals.iter().any(|v| matches!(v.node, Node::Reduce { op: KReduce::Sum, .. }));
    let last = (0..sp.folds.len()).rev().find(|&f| sp.folds[f].n > 1).unwrap_or(0);
    let mut changed = false;
    for f in 0..sp.folds.len() {
        let inner: u64 = sp.folds[f + 1..].iter().map(|f| f.n).product();
        let n = sp.folds[f].n;
        // The finest cut that is asked of this fold.
        let mut tile = None;
        for h in hints.iter().filter(|h| Some(h.total) == total && h.parts > 1) {
            let top = h.inner.saturating_mul(h.extent);
            if top > inner && top <= inner.saturating_mul(n) {
                let elements = h.extent.div_ceil(h.parts).saturating_mul(h.inner);
                let t = (elements / inner.max(1)).max(1);
                tile = Some(tile.map_or(t, |old: u64| old.min(t)));
            }
        }
        let Some(mut tile) = tile else { continue };
        let parallel = sp.folds.iter().enumerate().filter(|&(i, g)| i != f && !g.walked && g.count > 1);
        if sp.folds[f].walked && sums {
            tile = tile.next_multiple_of(u64::from(if f == last { SUM_BLOCK_X } else { SUM_BLOCK_Y }));
        } else if !sp.folds[f].walked && (parallel.count() >= MAX_PARALLEL || crate::tile::enclosed(sp, f)) {
            continue;
        }
        sp.folds[f].cut(tile);
        changed = true;
    }
    if changed && model.peak(sp) > limit {
        for (f, &t) in sp.folds.iter_mut().zip(&before) {
            f.cut(u64::from(t).min(u64::from(f.tile)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_count_from_the_innermost() {
        let hint = |first, last, parts| TileHint::new(&[2, 3, 5], first, last, parts);
        assert_eq!(hint(0, 0, 2), Some(TileHint { total: 30, inner: 1, extent: 5, parts: 2 }));
        assert_eq!(hint(1, 2, 4), Some(TileHint { total: 30, inner: 5, extent: 6, parts: 4 }));
        for (first, last, parts) in [(0, 3, 1), (2, 1, 1), (0, 0, 0)] {
            assert_eq!(hint(first, last, parts), None);
        }
    }
}
