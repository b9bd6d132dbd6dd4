//! Order between pipes that run asynchronously: events, same-pipe barriers, drains.
//!
//! A core issues each pipe's instructions in order, but finishes them in any order. So whatever two instructions must not
//! overlap (a reader and a writer of common bytes, two writers) is ordered by something that is said in their heads. Here it
//! is derived from the placed code of a template:
//!
//! - [`conflict`]: which instructions touch common bytes;
//! - [`order`]: a walk over two consecutive tiles that knows, for each pipe, how far each other pipe is known to be, and adds a
//!   link only where that does not suffice;
//! - [`events`]: links get event ids; where there are too few, links are merged, and at last a drain takes their place;
//! - [`apply`]: links become head fields, and `nop`s where heads have too few slots.
//!
//! Both ends of a link are in one section, so every section leaves the flags as it found them. A link is *forward* (inside one
//! execution of the section) or *back* (to its next execution). What a section needs of another one is said at the border: a
//! `nop` sets when all that its pipe did before is finished. A body that is walked several times a tile cannot do that,
//! so its `init` does it for it.

mod apply;
mod conflict;
mod events;
mod order;

use dvm_bc::{Pipe, Place, Target};

pub(crate) use conflict::Extents;

use crate::emit::Emitted;

/// Number of pipes.
const PIPES: usize = Pipe::ALL.len();
/// No pipe: the instruction is every pipe's.
const NO_PIPE: u8 = u8::MAX;
/// No part of the emitted code: a section that only carries synchronisation.
const NO_PART: u32 = u32::MAX;

/// A moment in the order of a tile: sections in order, and in each its entry, its instructions, its exit. 0 is before all.
type Time = u32;

/// What is known to be finished, by pipe: everything up to that moment.
type Row = [Time; PIPES];

/// An order between two pipes: `from` at `set`, `to` at `wait`.
#[derive(Clone, Copy, Debug)]
struct Link {
    section: u16,
    from: u8,
    to: u8,
    /// To the section's next execution.
    back: bool,
    id: u8,
    set: Time,
    wait: Time,
    /// The instructions that ask for it, the later one second.
    cause: (u16, u16),
}

/// A section of the template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) phase: u32,
    pub(crate) place: Place,
    /// Instructions of the emitted code.
    start: u32,
    end: u32,
    /// Its part of the emitted code, or [`NO_PART`].
    part: u32,
    /// Runs several times a tile.
    many: bool,
    entry: Time,
}

impl Section {
    fn exit(&self) -> Time {
        self.entry + 1 + (self.end - self.start)
    }
    /// The moment of an instruction of this section.
    fn time(&self, inst: usize) -> Time {
        self.entry + 1 + (inst as u32 - self.start)
    }
    /// The instruction at a moment between entry and exit.
    fn inst(&self, time: Time) -> usize {
        (self.start + (time - self.entry - 1)) as usize
    }
}

/// The synchronisation of one template. Reused from kernel to kernel.
#[derive(Debug, Default)]
pub(crate) struct Sync {
    sections: Vec<Section>,
    /// Moments of a tile.
    total: Time,
    /// There is one tile.
    once: bool,
    /// By instruction: pipe, section, whether it only carries order.
    pipe: Vec<u8>,
    section_of: Vec<u16>,
    control: Vec<bool>,
    conflicts: conflict::Conflicts,
    /// What is known where an instruction is finished, in the first and in the second tile.
    rows: [Vec<Row>; 2],
    /// What is known where all that a pipe did before a section is finished, in the last tile that was walked.
    entries: Vec<[Row; PIPES]>,
    links: Vec<Link>,
    /// Starts when its pipe is empty.
    bars: Vec<bool>,
    /// Pipes (a set) that are emptied at a section's exit.
    exit_bars: Vec<u8>,
    /// Moments before which all pipes are emptied.
    drains: Vec<Time>,
}

impl Sync {
    /// Derives the synchronisation of placed code.
    pub(crate) fn derive(&mut self, e: &Emitted, target: &Target, space: &Extents<'_>) {
        self.once = space.all[..space.parallel].iter().all(|&n| n <= 1);
        self.sections(e, space.all.len() > space.parallel);
        let n = e.insts.len();
        self.pipe.clear();
        self.pipe.extend(e.insts.iter().map(|i| i.pipe().map_or(NO_PIPE, |p| p as u8)));
        self.control.clear();
        self.control.extend(e.insts.iter().map(|i| i.op.class() == dvm_bc::Class::Control));
        self.conflicts.find(e, target, space, &self.pipe);
        self.bars.clear();
        self.bars.resize(n, false);
        self.exit_bars.clear();
        self.exit_bars.resize(self.sections.len(), 0);
        self.links.clear();
        self.drains.clear();
        self.order(n);
        self.events(target.events);
    }

    /// The parts of the emitted code as sections, and an `init` where a body that is walked several times may need one.
    fn sections(&mut self, e: &Emitted, walked: bool) {
        self.sections.clear();
        self.section_of.clear();
        self.total = 1;
        for (i, p) in e.parts.iter().enumerate() {
            let (phase, place) = (p.phase, p.place);
            let many = walked && place == Place::Body;
            let after_init =
                self.sections.last().is_some_and(|s| s.phase == phase && s.place == Place::Init(0));
            let (start, end) = (p.start, p.end);
            if many && !after_init {
                let place = Place::Init(0);
                self.push(Section { phase, place, start, end: start, part: NO_PART, many: false, entry: 0 });
            }
            self.push(Section { phase, place, start, end, part: i as u32, many, entry: 0 });
            self.section_of.resize(end as usize, self.sections.len() as u16 - 1);
        }
    }

    fn push(&mut self, s: Section) {
        let s = Section { entry: self.total, ..s };
        self.total = s.exit() + 1;
        self.sections.push(s);
    }
}

/// Takes over what another pipe is known to know.
fn join(row: &mut Row, other: &Row) {
    for (r, o) in row.iter_mut().zip(other) {
        *r = (*r).max(*o);
    }
}
