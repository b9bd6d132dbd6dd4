//! Memory of a worker as one instruction sees it: every byte it touches is noted, and what it writes may be held back.

use std::cell::RefCell;
use std::collections::BTreeMap;

use dvm_bc::reference::{Address, Bound, Fault, Memory, Region, slot_address};
use dvm_bc::{Local, Space, Target};

/// What bytes nobody has written hold: no zero, no small index, as a float a NaN.
const UNDEFINED: u8 = 0xff;

/// Names one memory: an argument, a copy of a ring, or a space of a core.
pub(super) type MemoryId = u32;

/// Local memory of a core. It is as long as what was written.
#[derive(Default)]
pub(super) struct Core {
    spaces: [Vec<u8>; Space::ALL.len()],
    bound: BTreeMap<(Space, u32), Bound>,
}

impl Core {
    pub(super) fn clear(&mut self) {
        self.spaces.iter_mut().for_each(Vec::clear);
        self.bound.clear();
    }
}

/// A half-open range of bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) memory: MemoryId,
    pub(super) lo: u64,
    pub(super) hi: u64,
}

/// What an execution touched, and what it wrote.
#[derive(Default)]
pub(super) struct Record {
    pub(super) reads: Vec<Range>,
    pub(super) writes: Vec<Range>,
    /// Held back.
    bytes: Vec<(Address, Vec<u8>)>,
    binds: Vec<(Local, Option<Bound>)>,
}

impl Record {
    /// Bytes that both touch, at least one of them writing.
    pub(super) fn conflict(&self, other: &Record) -> Option<Range> {
        meet(&self.writes, &other.writes)
            .or_else(|| meet(&self.writes, &other.reads))
            .or_else(|| meet(&self.reads, &other.writes))
    }
}

fn meet(a: &[Range], b: &[Range]) -> Option<Range> {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.memory == y.memory && x.lo < y.hi && y.lo < x.hi {
            return Some(Range { memory: x.memory, lo: x.lo.max(y.lo), hi: x.hi.min(y.hi) });
        }
        if (x.memory, x.hi) <= (y.memory, y.hi) { i += 1 } else { j += 1 }
    }
    None
}

/// A set of bytes, kept as bits while an instruction executes: products ask for the same bytes over and over.
#[derive(Default)]
pub(super) struct Touched {
    maps: Vec<Map>,
}

struct Map {
    memory: MemoryId,
    bits: Vec<u64>,
    /// Words in use.
    lo: usize,
    hi: usize,
}

impl Touched {
    fn note(&mut self, memory: MemoryId, lo: u64, hi: u64) {
        if lo >= hi {
            return;
        }
        let at = self.maps.iter().position(|m| m.memory == memory || m.lo >= m.hi);
        let at = at.unwrap_or_else(|| {
            self.maps.push(Map { memory, bits: Vec::new(), lo: 0, hi: 0 });
            self.maps.len() - 1
        });
        let m = &mut self.maps[at];
        let (first, last) = ((lo / 64) as usize, ((hi - 1) / 64) as usize);
        if m.bits.len() <= last {
            m.bits.resize(last + 1, 0);
        }
        if m.lo >= m.hi {
            (m.memory, m.lo, m.hi) = (memory, first, last + 1);
        }
        (m.lo, m.hi) = (m.lo.min(first), m.hi.max(last + 1));
        for word in first..=last {
            let from = if word == first { lo % 64 } else { 0 };
            let to = if word == last { (hi - 1) % 64 } else { 63 };
            m.bits[word] |= u64::MAX << from & u64::MAX >> (63 - to);
        }
    }
    /// The ranges in order; forgets them.
    fn take(&mut self) -> Vec<Range> {
        let mut out: Vec<Range> = Vec::new();
        for m in &mut self.maps {
            let memory = m.memory;
            for word in m.lo..m.hi {
                let mut bits = std::mem::take(&mut m.bits[word]);
                while bits != 0 {
                    let from = bits.trailing_zeros();
                    let ones = (bits >> from).trailing_ones();
                    bits &= if from + ones == 64 { 0 } else { u64::MAX << (from + ones) };
                    let lo = word as u64 * 64 + u64::from(from);
                    let hi = lo + u64::from(ones);
                    match out.last_mut() {
                        Some(l) if l.memory == memory && l.hi == lo => l.hi = hi,
                        _ => out.push(Range { memory, lo, hi }),
                    }
                }
            }
            (m.lo, m.hi) = (0, 0);
        }
        out.sort_unstable();
        out
    }
}

/// Reused between instructions.
#[derive(Default)]
pub(super) struct Notes {
    reads: Touched,
    writes: Touched,
}

/// All memory of a step, and the place an instruction looks at it from.
pub(super) struct View<'a> {
    pub(super) target: &'a Target,
    pub(super) args: &'a mut [Vec<u8>],
    /// Per argument, copies of a ring: by worker and slot.
    pub(super) rings: &'a mut [Vec<Vec<u8>>],
    /// Index into the copies, and into the cores below.
    pub(super) copy: usize,
    pub(super) cores: &'a mut [Core],
    /// The core with the panels and accumulators, and the one with the vector memory.
    pub(super) cube: usize,
    pub(super) vector: usize,
    pub(super) slots: &'a [(u32, u64)],
    pub(super) record: &'a mut Record,
    pub(super) notes: &'a mut Notes,
    /// Writes go to the record only.
    pub(super) hold: bool,
    /// Blocks of bound operands that were asked for.
    pub(super) asked: RefCell<Vec<Range>>,
}

impl View<'_> {
    fn core(&self, space: Space) -> usize {
        if space == Space::Ub { self.vector } else { self.cube }
    }
    fn is_ring(&self, arg: u32) -> bool {
        self.rings.get(arg as usize).is_some_and(|r| !r.is_empty())
    }
    /// The identity of a region, and its length.
    fn identify(&self, region: Region) -> Result<(MemoryId, u64), Fault> {
        let args = self.args.len() as u32;
        match region {
            Region::Local(space) => {
                let core = self.core(space) as u32;
                // Above every argument and copy: those are at most 2^20, 2^10.
                let id = 1 << 31 | core << 2 | space as u32;
                Ok((id, self.target.capacity(space)))
            }
            Region::Arg(arg) if self.is_ring(arg) => {
                let copy = &self.rings[arg as usize][self.copy];
                Ok((args + (arg << 10 | self.copy as u32), copy.len() as u64))
            }
            Region::Arg(arg) => {
                let bytes = self.args.get(arg as usize).ok_or(Fault::NoArg { arg })?.len();
                Ok((arg, bytes as u64))
            }
        }
    }
    /// The range of an access, checked.
    fn range(&self, at: Address, len: usize) -> Result<(MemoryId, usize, usize), Fault> {
        let (id, of) = self.identify(at.region)?;
        let lo = u64::try_from(at.byte).ok();
        match lo.and_then(|lo| Some((lo, lo.checked_add(len as u64)?))) {
            Some((lo, hi)) if hi <= of => Ok((id, lo as usize, hi as usize)),
            _ => Err(Fault::Bounds { at, bytes: len as u64, of }),
        }
    }
    /// Carries out a write.
    fn store(&mut self, region: Region, lo: usize, bytes: &[u8]) {
        let hi = lo + bytes.len();
        let into = match region {
            Region::Local(space) => {
                let core = self.core(space);
                let all = &mut self.cores[core].spaces[space as usize];
                if all.len() < hi {
                    all.resize(hi, UNDEFINED);
                }
                &mut all[lo..hi]
            }
            Region::Arg(arg) if self.is_ring(arg) => &mut self.rings[arg as usize][self.copy][lo..hi],
            Region::Arg(arg) => &mut self.args[arg as usize][lo..hi],
        };
        into.copy_from_slice(bytes);
    }
    /// Carries out what an execution held back.
    pub(super) fn release(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.record.bytes) {
            self.store(at.region, at.byte as usize, &bytes);
        }
        for (place, to) in std::mem::take(&mut self.record.binds) {
            self.name(place, to);
        }
    }
    /// Completes the record.
    pub(super) fn close(&mut self) {
        for r in self.asked.take() {
            self.notes.reads.note(r.memory, r.lo, r.hi);
        }
        (self.record.reads, self.record.writes) = (self.notes.reads.take(), self.notes.writes.take());
    }
    fn name(&mut self, place: Local, to: Option<Bound>) {
        let core = self.core(place.space);
        let key = (place.space, place.offset);
        match to {
            Some(b) => self.cores[core].bound.insert(key, b),
            None => self.cores[core].bound.remove(&key),
        };
    }
    /// The block that stands for a bound operand.
    fn handle(&self, place: Local) -> (MemoryId, u64, u64) {
        let block = u64::from(self.target.block);
        let lo = u64::from(place.offset).saturating_mul(block);
        let id = self.identify(Region::Local(place.space)).map_or(0, |i| i.0);
        (id, lo, lo.saturating_add(block))
    }
}

impl Memory for View<'_> {
    fn target(&self) -> &Target {
        self.target
    }
    fn slot(&self, slot: u16) -> Result<Address, Fault> {
        slot_address(self.slots, slot)
    }
    fn read(&mut self, at: Address, into: &mut [u8]) -> Result<(), Fault> {
        let (id, lo, hi) = self.range(at, into.len())?;
        self.notes.reads.note(id, lo as u64, hi as u64);
        match at.region {
            Region::Local(space) => {
                let all = &self.cores[self.core(space)].spaces[space as usize];
                let known = all.len().clamp(lo, hi);
                into.fill(UNDEFINED);
                if lo < all.len() {
                    into[..known - lo].copy_from_slice(&all[lo..known]);
                }
            }
            Region::Arg(arg) if self.is_ring(arg) => {
                into.copy_from_slice(&self.rings[arg as usize][self.copy][lo..hi]);
            }
            Region::Arg(arg) => into.copy_from_slice(&self.args[arg as usize][lo..hi]),
        }
        Ok(())
    }
    fn write(&mut self, at: Address, bytes: &[u8]) -> Result<(), Fault> {
        let (id, lo, hi) = self.range(at, bytes.len())?;
        self.notes.writes.note(id, lo as u64, hi as u64);
        if !self.hold {
            self.store(at.region, lo, bytes);
            return Ok(());
        }
        match self.record.bytes.last_mut() {
            Some((a, b)) if a.region == at.region && a.byte + b.len() as i64 == at.byte => {
                b.extend_from_slice(bytes);
            }
            _ => self.record.bytes.push((at, bytes.to_vec())),
        }
        Ok(())
    }
    fn bind(&mut self, place: Local, to: Option<Bound>) {
        let (id, lo, hi) = self.handle(place);
        self.notes.writes.note(id, lo, hi);
        if self.hold {
            self.record.binds.push((place, to));
        } else {
            self.name(place, to);
        }
    }
    fn bound(&self, place: Local) -> Option<Bound> {
        let (memory, lo, hi) = self.handle(place);
        self.asked.borrow_mut().push(Range { memory, lo, hi });
        self.cores[self.core(place.space)].bound.get(&(place.space, place.offset)).copied()
    }
}
