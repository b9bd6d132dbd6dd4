//! Instructions that touch common bytes.
//!
//! Local memory is compared by buffer: whatever an instruction touches of a buffer counts as all of it. Arguments matter where two
//! instructions store to one slot, because a kernel never loads what it stores.

use dvm_bc::{Meeting, Operand, Place, Target, Uses};

use super::NO_PIPE;
use crate::emit::Emitted;

/// No further edge.
const END: u32 = u32::MAX;

/// An instruction that conflicts with the one that owns the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) other: u16,
    pub(super) over: Over,
    next: u32,
}

/// What two instructions conflict over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Local memory: whenever they are executed.
    Local,
    /// Bytes of an argument, which tiles do not share.
    Tile,
    /// Bytes of an argument that no other point of the walk touches.
    Point,
}

/// A use of a buffer.
#[derive(Clone, Copy, Debug)]
struct Use {
    inst: u16,
    write: bool,
    next: u32,
}

/// The extents of a template: parallel ones, then those of the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents<'a> {
    pub(crate) all: &'a [u32],
    pub(crate) parallel: usize,
}

/// The conflicts of a template, as a list an instruction.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    heads: Vec<u32>,
    edges: Vec<Edge>,
    /// By buffer.
    first_use: Vec<u32>,
    uses: Vec<Use>,
    /// Buffers by space and place.
    order: Vec<u32>,
    stores: Vec<(u16, u16)>,
}

impl Conflicts {
    /// What `inst` conflicts with; itself included where a repetition does.
    pub(super) fn of(&self, inst: usize) -> impl Iterator<Item = Edge> + '_ {
        let mut at = self.heads[inst];
        std::iter::from_fn(move || {
            let e = *self.edges.get(at as usize)?;
            at = e.next;
            Some(e)
        })
    }

    fn add(&mut self, a: u16, b: u16, over: Over) {
        for (owner, other) in [(a, b), (b, a)] {
            let head = &mut self.heads[usize::from(owner)];
            let next = std::mem::replace(head, self.edges.len() as u32);
            self.edges.push(Edge { other, over, next });
            if a == b {
                break;
            }
        }
    }

    fn touch(&mut self, buf: u32, inst: u16, write: bool) {
        let head = &mut self.first_use[buf as usize];
        let next = std::mem::replace(head, self.uses.len() as u32);
        self.uses.push(Use { inst, write, next });
    }

    /// Finds the conflicts of placed code.
    pub(super) fn find(&mut self, e: &Emitted, target: &Target, space: &Extents<'_>, pipe: &[u8]) {
        self.heads.clear();
        self.heads.resize(e.insts.len(), END);
        self.edges.clear();
        self.first_use.clear();
        self.first_use.resize(e.bufs.len(), END);
        self.uses.clear();
        self.stores.clear();
        for (i, inst) in e.insts.iter().enumerate() {
            let i = i as u16;
            inst.visit(|_, access, operand| match operand {
                Operand::Local(l, _) => self.touch(l.offset, i, access.writes()),
                Operand::Mem(m) if access.writes() => self.stores.push((m.slot, i)),
                _ => {}
            });
        }
        // A flag between cores guards a buffer that the other core writes and that nobody else may touch in between.
        for &(inst, buf) in &e.guards {
            self.touch(buf, inst as u16, true);
        }
        self.order.clear();
        self.order.extend((0..e.bufs.len() as u32).filter(|&b| self.first_use[b as usize] != END));
        self.order.sort_unstable_by_key(|&b| {
            let b = &e.bufs[b as usize];
            (b.space as u8, b.at)
        });
        let block = u64::from(target.block);
        for i in 0..self.order.len() {
            let a = &e.bufs[self.order[i] as usize];
            let end = u64::from(a.at) + a.bytes.div_ceil(block).max(1);
            for j in i..self.order.len() {
                let b = &e.bufs[self.order[j] as usize];
                if b.space != a.space || u64::from(b.at) >= end {
                    break;
                }
                self.meet(self.order[i], self.order[j], target, pipe);
            }
        }
        self.arguments(e, target, space);
    }

    /// Conflicts of the users of two buffers with common bytes.
    fn meet(&mut self, a: u32, b: u32, target: &Target, pipe: &[u8]) {
        let mut i = self.first_use[a as usize];
        while let Some(&x) = self.uses.get(i as usize) {
            // Each pair once: of one buffer, from here on.
            let mut j = if a == b { i } else { self.first_use[b as usize] };
            while let Some(&y) = self.uses.get(j as usize) {
                if (x.write || y.write) && together(target, pipe, x.inst, y.inst) {
                    self.add(x.inst, y.inst, Over::Local);
                }
                j = y.next;
            }
            i = x.next;
        }
    }

    /// Conflicts of stores to one slot.
    fn arguments(&mut self, e: &Emitted, target: &Target, space: &Extents<'_>) {
        self.stores.sort_unstable();
        for i in 0..self.stores.len() {
            let (slot, a) = self.stores[i];
            for j in i + 1..self.stores.len() {
                let (other, b) = self.stores[j];
                if other != slot {
                    break;
                }
                let part = |inst: u16| e.parts.iter().find(|p| u32::from(inst) < p.end);
                let uses = |inst: u16| {
                    let body = part(inst).is_some_and(|p| p.place == Place::Body);
                    let extents = if body { space.all } else { &space.all[..space.parallel] };
                    Uses::of(&e.insts[usize::from(inst)], target, extents, space.parallel).args
                };
                let same = part(a).map(|p| p.start) == part(b).map(|p| p.start);
                let (x, y) = (uses(a), uses(b));
                let meet = x.iter().flat_map(|x| y.iter().map(move |y| x.meets(y, (0, 0), same))).max();
                match meet {
                    None | Some(Meeting::Never) => {}
                    Some(Meeting::Point) => self.add(a, b, Over::Point),
                    Some(Meeting::Tile) => self.add(a, b, Over::Tile),
                }
            }
        }
    }
}

/// Whether two instructions are on one core. Cores of a group order each other by flags between them.
fn together(target: &Target, pipe: &[u8], a: u16, b: u16) -> bool {
    let core = |i: u16| match pipe[usize::from(i)] {
        NO_PIPE => None,
        p => dvm_bc::Pipe::from_number(p).map(dvm_bc::Pipe::core),
    };
    !target.separate_cube() || core(a) == core(b)
}
