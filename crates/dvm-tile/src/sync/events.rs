//! Event ids.
//!
//! Every ordered pair of pipes has few. A link that repeats reuses its own id safely: it stands for a conflict, and what
//! conflicts is ordered the other way round as well before it comes again. Two links of different sections share an id where
//! each is known to be waited for before the other is set. Where ids still do not suffice, links of one section are merged (set
//! later, waited for earlier), and at last a drain takes the place of a link.

use super::{Link, PIPES, Row, Sync, Time};

impl Sync {
    /// Gives every link an id below `events`.
    pub(super) fn events(&mut self, events: u32) {
        let mut counts = [[0u32; PIPES]; PIPES];
        for l in &mut self.links {
            let n = &mut counts[usize::from(l.from)][usize::from(l.to)];
            l.id = *n as u8;
            *n += 1;
        }
        for (p, row) in counts.iter().enumerate() {
            for (q, &n) in row.iter().enumerate() {
                if n > events {
                    self.scarce(p as u8, q as u8, events);
                }
            }
        }
    }

    /// Ids for a pair of pipes that has more links than ids.
    fn scarce(&mut self, from: u8, to: u8, events: u32) {
        let of = |l: &Link| l.from == from && l.to == to;
        self.links.sort_by_key(|l| (l.section, l.back, l.wait, l.set));
        while !self.share(from, to, events) {
            // The cheapest merge of two links that follow each other.
            let mut best: Option<(Time, usize, usize)> = None;
            let mut last: Option<usize> = None;
            for (i, y) in self.links.iter().enumerate().filter(|(_, l)| of(l)) {
                if let Some(x) = last.map(|k| &self.links[k])
                    && (x.section, x.back) == (y.section, y.back)
                    && (y.back || y.set < x.wait)
                {
                    let stretch = y.set.saturating_sub(x.set) + (y.wait - x.wait);
                    if best.is_none_or(|b| stretch < b.0) {
                        best = last.map(|k| (stretch, k, i));
                    }
                }
                last = Some(i);
            }
            match best {
                Some((_, x, y)) => {
                    let y = self.links.remove(y);
                    let x = &mut self.links[x];
                    if y.set > x.set {
                        (x.set, x.cause) = (y.set, y.cause);
                    }
                }
                None => {
                    let Some(i) = self.links.iter().rposition(of) else { return };
                    let l = self.links.remove(i);
                    let s = &self.sections[usize::from(l.section)];
                    let at = if l.back { s.entry } else { l.wait };
                    if !self.drains.contains(&at) {
                        self.drains.push(at);
                    }
                }
            }
        }
    }

    /// Shares ids among the links of a pair; whether they suffice.
    fn share(&mut self, from: u8, to: u8, events: u32) -> bool {
        for i in 0..self.links.len() {
            let y = self.links[i];
            if (y.from, y.to) != (from, to) {
                continue;
            }
            let free = |id: u8| {
                let same = |x: &&Link| (x.from, x.to, x.id) == (from, to, id);
                self.links[..i].iter().filter(same).all(|x| self.apart(x, &y))
            };
            match (0..events as u8).find(|&id| free(id)) {
                Some(id) => self.links[i].id = id,
                None => return false,
            }
        }
        true
    }

    /// Whether each of two links is known to be waited for before the other is set; `x` comes first in a tile.
    fn apart(&self, x: &Link, y: &Link) -> bool {
        let q = usize::from(x.to);
        let base = if self.once { 0 } else { self.total };
        !x.back
            && !y.back
            && x.section < y.section
            && self.at_set(y)[q] >= base + x.wait
            && (self.once || self.at_set(x)[q] >= y.wait)
    }

    /// What is known where a link of the last walked tile is set.
    fn at_set(&self, l: &Link) -> &Row {
        let s = &self.sections[usize::from(l.section)];
        if l.set == s.entry {
            &self.entries[usize::from(l.section)][usize::from(l.from)]
        } else {
            &self.rows[usize::from(!self.once)][s.inst(l.set)]
        }
    }
}
