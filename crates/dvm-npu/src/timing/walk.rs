//! The order in which one core executes the sections of its tiles.

use dvm_bc::Place;
use smallvec::SmallVec;

use super::code::{Code, Line};

/// A tile's sections one after the other, without recursion: the engine asks for the next.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Next tile, the step from one to the next, and where they end.
    next: u64,
    step: u64,
    end: u64,
    /// Number of the current tile in its unit.
    pub(super) tile: u64,
    phase: usize,
    at: At,
    /// Extents and indices: parallel, then those of the phase's walk.
    pub(super) extents: SmallVec<[u32; 12]>,
    pub(super) index: SmallVec<[u32; 12]>,
    /// Steps of the walk done, by depth.
    turn: SmallVec<[u32; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    End,
    NextPhase,
    Enter(usize),
    Body,
    Leave(usize),
}

impl Cursor {
    /// Tiles `start, start + step, ..` below `end`.
    pub(super) fn new(start: u64, step: u64, end: u64) -> Cursor {
        Cursor {
            next: start,
            step: step.max(1),
            end,
            tile: start,
            phase: 0,
            at: At::End,
            extents: SmallVec::new(),
            index: SmallVec::new(),
            turn: SmallVec::new(),
        }
    }

    /// Which counts of an instruction are those of a last index here.
    pub(super) fn variant(&self, line: &Line) -> u8 {
        line.variant(|e| {
            let e = usize::from(e);
            let at = (self.index.get(e), self.extents.get(e));
            matches!(at, (Some(&i), Some(&n)) if u64::from(i) + 1 == u64::from(n))
        })
    }

    /// Tiles that have not begun.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.next).div_ceil(self.step)
    }
    /// Leaves out the next `tiles` of the unit, a multiple of the step.
    pub(super) fn skip(&mut self, tiles: u64) {
        self.next = self.next.saturating_add(tiles);
    }
    /// The next `tiles` of the unit, apart.
    pub(super) fn ahead(&self, tiles: u64) -> Cursor {
        Cursor::new(self.next, self.step, self.next.saturating_add(tiles).min(self.end))
    }
    /// The step from one tile to the next.
    pub(super) fn step(&self) -> u64 {
        self.step
    }
    /// Only the last `tiles` are left.
    pub(super) fn keep_last(&mut self, tiles: u64) {
        self.next = self.next.max(self.end.saturating_sub(tiles.saturating_mul(self.step)));
    }

    /// Goes on to the next tile; false where there is none.
    pub(super) fn next_tile(&mut self, code: &Code) -> bool {
        if self.next >= self.end {
            return false;
        }
        self.tile = self.next;
        self.next = self.next.saturating_add(self.step);
        self.phase = 0;
        self.begin(code);
        true
    }

    /// The tile's next section to execute, as an index into [`Code::sections`].
    pub(super) fn section(&mut self, code: &Code) -> Option<usize> {
        loop {
            let phase = code.phases.get(self.phase);
            let place = match self.at {
                At::End => return None,
                At::NextPhase => {
                    self.phase += 1;
                    self.begin(code);
                    continue;
                }
                At::Enter(d) => {
                    self.place(code, d);
                    let phase = phase?;
                    self.at = if phase.seq.is_empty() {
                        At::Body
                    } else if phase.seq.contains(&0) {
                        At::Leave(d)
                    } else {
                        self.turn[d] = 0;
                        if d + 1 == phase.seq.len() { At::Body } else { At::Enter(d + 1) }
                    };
                    Place::Init(d as u8)
                }
                At::Body => {
                    let depth = phase.map_or(0, |p| p.seq.len());
                    self.place(code, depth);
                    self.at = self.after(code, depth);
                    Place::Body
                }
                At::Leave(d) => {
                    self.place(code, d);
                    self.at = if d == 0 { At::NextPhase } else { self.after(code, d) };
                    Place::Finish(d as u8)
                }
            };
            let phase = phase?;
            if let Some(s) = phase.section(place) {
                return Some(s);
            }
        }
    }

    /// After what is inside `depth` loops: the innermost of them goes on or ends.
    fn after(&mut self, code: &Code, depth: usize) -> At {
        let Some(phase) = code.phases.get(self.phase) else { return At::End };
        let Some(d) = depth.checked_sub(1) else { return At::Leave(0) };
        if self.turn[d] + 1 < phase.seq[d] {
            self.turn[d] += 1;
            if d + 1 == phase.seq.len() { At::Body } else { At::Enter(d + 1) }
        } else {
            At::Leave(d)
        }
    }

    fn begin(&mut self, code: &Code) {
        let Some(phase) = code.phases.get(self.phase) else {
            self.at = At::End;
            return;
        };
        if self.phase == 0 || self.index.len() < code.parallel.len() {
            self.extents = SmallVec::from_slice(&code.parallel);
            self.index.clear();
            self.index.resize(code.parallel.len(), 0);
            let mut rest = self.tile;
            for (i, &n) in self.index.iter_mut().zip(&code.parallel).rev() {
                *i = (rest % u64::from(n.max(1))) as u32;
                rest /= u64::from(n.max(1));
            }
        }
        self.extents.truncate(code.parallel.len());
        self.extents.extend_from_slice(&phase.seq);
        self.index.truncate(code.parallel.len());
        self.index.resize(self.extents.len(), 0);
        self.turn.clear();
        self.turn.resize(phase.seq.len(), 0);
        self.at = At::Enter(0);
    }

    /// Sets the indices as a section at `depth` loops sees them.
    fn place(&mut self, code: &Code, depth: usize) {
        let Some(phase) = code.phases.get(self.phase) else { return };
        let base = code.parallel.len();
        for (d, &n) in phase.seq.iter().enumerate() {
            let turn = if d < depth { self.turn[d] } else { 0 };
            let rotated = d < depth && phase.rotate && d + 1 == phase.seq.len();
            let start = if rotated { self.tile % u64::from(n.max(1)) } else { 0 };
            self.index[base + d] = ((u64::from(turn) + start) % u64::from(n.max(1))) as u32;
        }
    }
}
