//! A bounded set of byte ranges.

/// Disjoint ranges in order, merged where they touch. Holds at most [`CAP`] of them: beyond that it forgets the first, which
/// can only make a proof fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    ranges: Vec<(u64, u64)>,
}

const CAP: usize = 4096;

impl Intervals {
    /// Adds `lo..hi`.
    pub(super) fn add(&mut self, lo: u64, hi: u64) {
        if lo >= hi || self.covers(lo, hi) {
            return;
        }
        let from = self.ranges.partition_point(|r| r.1 < lo);
        let to = from + self.ranges[from..].partition_point(|r| r.0 <= hi);
        if from == to {
            self.ranges.insert(from, (lo, hi));
            if self.ranges.len() > CAP {
                self.ranges.remove(0);
            }
            return;
        }
        self.ranges[from] = (lo.min(self.ranges[from].0), hi.max(self.ranges[to - 1].1));
        self.ranges.drain(from + 1..to);
    }
    /// Whether all of `lo..hi` is in the set.
    #[inline]
    pub(super) fn covers(&self, lo: u64, hi: u64) -> bool {
        let i = self.ranges.partition_point(|r| r.1 < hi);
        lo >= hi || self.ranges.get(i).is_some_and(|r| r.0 <= lo)
    }
    /// Whether any of `lo..hi` is in the set.
    pub(super) fn meets(&self, lo: u64, hi: u64) -> bool {
        let i = self.ranges.partition_point(|r| r.1 <= lo);
        lo < hi && self.ranges.get(i).is_some_and(|r| r.0 < hi)
    }
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_and_covers() {
        let mut s = Intervals::default();
        for (lo, hi) in [(10, 20), (30, 40), (50, 60), (20, 30), (5, 5), (55, 58)] {
            s.add(lo, hi);
        }
        assert_eq!(s.ranges, [(10, 40), (50, 60)]);
        for (lo, hi, yes) in
            [(10, 40, true), (15, 20, true), (9, 12, false), (39, 41, false), (41, 41, true), (50, 61, false)]
        {
            assert_eq!(s.covers(lo, hi), yes, "{lo}..{hi}");
        }
        s.add(0, 100);
        assert_eq!(s.ranges, [(0, 100)]);
    }

    #[test]
    fn stays_bounded() {
        let mut s = Intervals::default();
        (0..2 * CAP as u64).for_each(|i| s.add(3 * i, 3 * i + 1));
        assert_eq!(s.ranges.len(), CAP);
        assert!(!s.covers(0, 1) && s.covers(6 * CAP as u64 - 3, 6 * CAP as u64 - 2));
    }
}
