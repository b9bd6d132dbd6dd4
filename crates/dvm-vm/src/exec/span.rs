//! How the tiles of a step are divided where units have limits of cores.

use std::ops::Range;

use dvm_bc::CoreLimit;

/// Tiles of a step that one rule divides between workers. A chunk is run by one worker, so a span of so many chunks is never on
/// more cores than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) tiles: u64,
    /// Most chunks; 0 for as many as the step likes.
    pub(crate) chunks: u32,
}

impl Span {
    /// Chunks it makes where `per` tiles are worth one.
    pub(crate) fn count(self, per: u64) -> u64 {
        match self.chunks {
            0 => self.tiles.div_ceil(per),
            most => u64::from(most).min(self.tiles),
        }
    }
    /// The tiles of a chunk, counted from the span's first.
    pub(crate) fn chunk(self, per: u64, chunk: u64) -> Range<u64> {
        if self.chunks == 0 {
            return chunk * per..((chunk + 1) * per).min(self.tiles);
        }
        let n = u128::from(self.count(per).max(1));
        let at = |c: u64| (u128::from(self.tiles) * u128::from(c) / n) as u64;
        at(chunk)..at(chunk + 1)
    }
    /// Divides the tiles of a step's units, of which there are so many each.
    pub(crate) fn divide(limits: &[CoreLimit], tiles: &[u64]) -> Vec<Span> {
        if limits.is_empty() {
            return vec![];
        }
        let sum = |r: Range<usize>| tiles[r].iter().fold(0, |n: u64, &t| n.saturating_add(t));
        let (mut out, mut from) = (Vec::with_capacity(2 * limits.len() + 1), 0);
        for l in limits {
            let (first, end) = (l.first as usize, (l.first + l.units) as usize);
            out.push(Span { tiles: sum(from..first), chunks: 0 });
            out.push(Span { tiles: sum(first..end), chunks: l.cores });
            from = end;
        }
        out.push(Span { tiles: sum(from..tiles.len()), chunks: 0 });
        out.retain(|s| s.tiles > 0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_units_have_as_many_chunks_as_cores() {
        let limit = |first, units, cores| CoreLimit { first, units, cores };
        // Tiles of the units, limits, tiles worth a chunk, and the chunks that follow.
        for (tiles, limits, per, want) in [
            (&[5, 4][..], &[limit(0, 1, 2)][..], 2, "0-2 2-5 5-7 7-9"),
            (&[5, 4], &[limit(1, 1, 1)], 3, "0-3 3-5 5-9"),
            (&[1, 1, 1, 6], &[limit(0, 3, 2)], 4, "0-1 1-3 3-7 7-9"),
            (&[2, 3], &[limit(0, 1, 1), limit(1, 1, 9)], 1, "0-2 2-3 3-4 4-5"),
            (&[0, 3, 0], &[limit(0, 1, 1), limit(2, 1, 1)], 2, "0-2 2-3"),
        ] {
            let mut first = 0;
            let mut got = vec![];
            for s in Span::divide(limits, tiles) {
                for c in 0..s.count(per) {
                    let r = s.chunk(per, c);
                    got.push(format!("{}-{}", first + r.start, first + r.end));
                }
                first += s.tiles;
            }
            assert_eq!(got.join(" "), want, "{tiles:?} {limits:?}");
            assert_eq!(first, tiles.iter().sum::<u64>());
        }
        assert!(Span::divide(&[], &[3]).is_empty());
    }
}
