//! Which links a template needs.
//!
//! The walk goes over two consecutive tiles and keeps, for each pipe, up to where each pipe is known to be finished when the
//! pipe's next instruction starts. A set tells that its own pipe is finished up to it, and all that its pipe knew. An
//! instruction that conflicts with an earlier one of another pipe takes a link from the latest such one, unless it is known to
//! be finished. The second tile starts with what the first one left, and its links are the result: more links never make less
//! known, so what the first tile found stays true.
//!
//! A body that runs several times a tile is first walked alone, twice in a row; these links hold between all its executions.
//! In the tile it is then gone through once: what it does again only adds to what is known.

use super::conflict::Over;
use super::{Link, NO_PIPE, PIPES, Row, Section, Sync, Time, join};

/// What each pipe knows.
type State = [Row; PIPES];

/// Where a walk stands.
#[derive(Clone, Copy)]
struct At {
    /// 0 or 1.
    tile: usize,
    /// Moments before this tile.
    base: Time,
    section: usize,
    /// Of a section that runs several times a tile: walked alone.
    alone: bool,
}

impl Sync {
    pub(super) fn order(&mut self, instructions: usize) {
        for rows in &mut self.rows {
            rows.clear();
            rows.resize(instructions, [0; PIPES]);
        }
        self.entries.clear();
        self.entries.resize(self.sections.len(), [[0; PIPES]; PIPES]);
        for section in 0..self.sections.len() {
            if self.sections[section].many {
                let before = self.links.len();
                let mut state = [[0; PIPES]; PIPES];
                for tile in 0..2 {
                    self.links.truncate(before);
                    let at = At { tile, base: self.base(tile), section, alone: true };
                    self.walk(at, &mut state);
                }
            }
        }
        // The section for the border of a walked body is empty if there is nothing beside it.
        if let [init, body] = self.sections[..]
            && body.many
            && init.start == init.end
        {
            return;
        }
        let fixed = self.links.len();
        let mut state = [[0; PIPES]; PIPES];
        for tile in 0..if self.once { 1 } else { 2 } {
            self.links.truncate(fixed);
            self.exit_bars.fill(0);
            for section in 0..self.sections.len() {
                self.walk(At { tile, base: self.base(tile), section, alone: false }, &mut state);
            }
        }
    }

    fn base(&self, tile: usize) -> Time {
        if tile == 0 { 0 } else { self.total }
    }

    fn walk(&mut self, at: At, state: &mut State) {
        let s = self.sections[at.section];
        for (p, row) in self.entries[at.section].iter_mut().enumerate() {
            *row = state[p];
            row[p] = at.base + s.entry;
        }
        for j in s.start as usize..s.end as usize {
            if self.pipe[j] != NO_PIPE {
                self.visit(at, &s, j, state);
            }
        }
    }

    fn visit(&mut self, at: At, s: &Section, j: usize, state: &mut State) {
        let q = usize::from(self.pipe[j]);
        let now = at.base + s.time(j);
        // Its links among themselves are known already.
        let fixed = s.many && !at.alone;
        let mut known = state[q];
        if fixed {
            let wait = s.time(j);
            for l in self.links.iter().filter(|l| usize::from(l.section) == at.section) {
                if l.wait == wait && usize::from(l.to) == q && (!l.back || at.tile == 1) {
                    let tile = if l.back { 0 } else { at.tile };
                    join(&mut known, &self.rows[tile][s.inst(l.set)]);
                }
            }
            if self.bars[j] {
                known[q] = now - 1;
            }
        } else {
            self.bars[j] = false;
        }

        let mut need = [0; PIPES];
        let mut cause = [0u16; PIPES];
        for e in self.conflicts.of(j) {
            let i = usize::from(e.other);
            let (p, here) = (usize::from(self.pipe[i]), i < j);
            let inside = usize::from(self.section_of[i]) == at.section;
            let skip = (fixed && inside)
                || (at.alone && !inside)
                || (!here && at.tile == 0)
                || (!here && (e.over == Over::Point || (e.over == Over::Tile && !at.alone)))
                // An instruction that only carries order starts when it is its turn, and sets when its pipe is empty.
                || (p == q && (self.control[i] || self.control[j]));
            if skip {
                continue;
            }
            let other = &self.sections[usize::from(self.section_of[i])];
            let time = other.time(i) + if here { at.base } else { 0 };
            if time > need[p] {
                (need[p], cause[p]) = (time, e.other);
            }
        }
        let own = std::mem::take(&mut need[q]);
        let mut links = [None; PIPES];
        for p in 0..PIPES {
            if need[p] > known[p] {
                links[p] = Some(self.link(at, s, j, p, need[p], cause[p]));
            }
        }
        // What another link brings along needs none of its own.
        for p in 0..PIPES {
            let brought = |r: usize| links[r].as_ref().is_some_and(|l: &(Link, Row)| l.1[p] >= need[p]);
            if links[p].is_some() && (0..PIPES).any(|r| r != p && brought(r)) {
                links[p] = None;
            }
        }
        for (link, row) in links.into_iter().flatten() {
            join(&mut known, &row);
            self.add(link);
        }
        if own > known[q] {
            if fixed {
                self.exit_bars[at.section - 1] |= 1 << q;
                known[q] = at.base + self.sections[at.section - 1].exit();
            } else {
                self.bars[j] = true;
                known[q] = now - 1;
            }
        }
        state[q] = known;
        known[q] = now;
        self.rows[at.tile][j] = known;
    }

    /// The link that lets `j` know what pipe `p` had done at `time`, and all that it brings along.
    fn link(&self, at: At, s: &Section, j: usize, p: usize, time: Time, cause: u16) -> (Link, Row) {
        let to = self.pipe[j];
        let i = usize::from(cause);
        let link = |section: usize, set: Time, wait: Time, back: bool| Link {
            section: section as u16,
            from: p as u8,
            to,
            back,
            id: 0,
            set,
            wait,
            cause: (cause, j as u16),
        };
        let wait = s.time(j);
        if time > at.base + s.entry {
            return (link(at.section, s.time(i), wait, false), self.rows[at.tile][i]);
        }
        if s.many && !at.alone {
            // At the exit of what comes before the body.
            let (section, init) = (at.section - 1, &self.sections[at.section - 1]);
            return if time > at.base + init.entry {
                (link(section, init.time(i), init.exit(), false), self.rows[at.tile][i])
            } else {
                (link(section, init.entry, init.exit(), false), self.entries[section][p])
            };
        }
        if usize::from(self.section_of[i]) == at.section {
            return (link(at.section, s.time(i), wait, true), self.rows[0][i]);
        }
        (link(at.section, s.entry, wait, false), self.entries[at.section][p])
    }

    /// Adds a link; two that are waited for at the same place are one.
    fn add(&mut self, l: Link) {
        let same = |m: &&mut Link| {
            (m.section, m.from, m.to, m.back, m.wait) == (l.section, l.from, l.to, l.back, l.wait)
        };
        match self.links.iter_mut().rev().find(same) {
            Some(m) if m.set < l.set => (m.set, m.cause) = (l.set, l.cause),
            Some(_) => {}
            None => self.links.push(l),
        }
    }
}
