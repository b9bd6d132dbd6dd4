//! Instructions that touch common bytes.
//!
//! Local memory is compared by buffer: whatever an instruction touches of a buffer counts as all of it. Arguments matter where two
//! instructions store to one slot, because a kernel never loads what it stores.

use dvm_bc::{Inst, Operand, Operands, Size, Target};

use super::NO_PIPE;
use crate::emit::Emitted;

/// No further edge.
const END: u32 = u32::MAX;

/// An instruction that conflicts with the one that owns the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) other: u16,
    /// Over argument bytes, which tiles do not share.
    pub(super) argument: bool,
    next: u32,
}

/// A use of a buffer.
#[derive(Clone, Copy, Debug)]
struct Use {
    inst: u16,
    write: bool,
    next: u32,
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

    fn add(&mut self, a: u16, b: u16, argument: bool) {
        for (owner, other) in [(a, b), (b, a)] {
            let head = &mut self.heads[usize::from(owner)];
            let next = std::mem::replace(head, self.edges.len() as u32);
            self.edges.push(Edge { other, argument, next });
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
    pub(super) fn find(&mut self, e: &Emitted, target: &Target, pipe: &[u8]) {
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
        self.arguments(e);
    }

    /// Conflicts of the users of two buffers with common bytes.
    fn meet(&mut self, a: u32, b: u32, target: &Target, pipe: &[u8]) {
        let mut i = self.first_use[a as usize];
        while let Some(&x) = self.uses.get(i as usize) {
            // Each pair once: of one buffer, from here on.
            let mut j = if a == b { i } else { self.first_use[b as usize] };
            while let Some(&y) = self.uses.get(j as usize) {
                if (x.write || y.write) && together(target, pipe, x.inst, y.inst) {
                    self.add(x.inst, y.inst, false);
                }
                j = y.next;
            }
            i = x.next;
        }
    }

    /// Conflicts of stores to one slot.
    fn arguments(&mut self, e: &Emitted) {
        if self.stores.len() < 2 {
            return;
        }
        self.stores.sort_unstable();
        for i in 0..self.stores.len() {
            let (slot, a) = self.stores[i];
            for j in i + 1..self.stores.len() {
                let (other, b) = self.stores[j];
                if other != slot {
                    break;
                }
                let (x, y) = (&e.insts[usize::from(a)], &e.insts[usize::from(b)]);
                let apart = window(x).zip(window(y)).is_some_and(|(x, y)| x.misses(&y));
                if !apart {
                    self.add(a, b, true);
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

/// Where a tile is stored: rows of `width` bytes, `pitch` bytes apart, inside `lo..hi`.
struct Window<'a> {
    strides: &'a dvm_bc::Strides,
    lo: i64,
    hi: i64,
    width: i64,
    pitch: i64,
}

impl Window<'_> {
    /// Whether the two touch no common byte at any point of the space. `false` where that is not plain.
    fn misses(&self, other: &Window<'_>) -> bool {
        if self.strides != other.strides || self.pitch != other.pitch {
            return false;
        }
        // Every step moves both by whole rows, or both hulls lie inside one step.
        let aligned = self.strides.iter().all(|s| s.1 % self.pitch == 0);
        let behind = (other.lo - self.lo).rem_euclid(self.pitch);
        if aligned && behind >= self.width && behind + other.width <= self.pitch {
            return true;
        }
        let (lo, hi) = (self.lo.min(other.lo), self.hi.max(other.hi));
        let least = self.strides.iter().map(|s| s.1.saturating_abs()).min().unwrap_or(i64::MAX);
        (self.hi <= other.lo || other.hi <= self.lo) && hi - lo <= least
    }
}

/// The window of a store of contiguous rows.
fn window(inst: &Inst) -> Option<Window<'_>> {
    let (mem, rows, cols, pitch): (_, Size, Size, i64) = match &inst.operands {
        Operands::Store(o) => (&o.dst, o.rows, o.cols, o.pitch),
        Operands::FillStore(o) => (&o.dst, o.rows, o.cols, o.pitch),
        Operands::AccStore(o) => (&o.dst, o.m, o.n, o.pitch),
        _ => return None,
    };
    let width = i64::from(cols.body) * i64::from(inst.dtype.size());
    let span = (i64::from(rows.body) - 1).checked_mul(pitch)?;
    let hi = mem.offset.checked_add(span.max(0))?.checked_add(width)?;
    (pitch >= width).then_some(Window { strides: &mem.strides, lo: mem.offset, hi, width, pitch })
}
