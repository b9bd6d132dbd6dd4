//! Which loads and stores move nothing.
//!
//! All decisions rest on where local bytes are read and written in the whole template. Distinct byte ranges of local memory
//! are numbered *buffers*; sets of buffers are bit masks, so the analysis of a template is a few passes of word operations.
//! A template with more buffers than a mask has bits is left alone.

use std::ops::Range;

use dvm_bc::{DType, Inst, Local, Operands, Program, Size, Space, Template};
use smallvec::SmallVec;

use super::predecode::Decoded;
use super::uses::{Elementwise, area, contiguous, elementwise, locals, store_hull};
use super::{BASE_BOUND, BuildOptions};

/// Buffers a template may have.
const BUFFERS: usize = 64;
/// Longest left operand row that is multiplied in place rather than packed first.
const IN_PLACE_K: u32 = 512;

/// A byte range of local memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Buffer {
    pub(super) space: Space,
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// Writes in the template.
    pub(super) writes: u16,
    /// Largest element it is read as; 0 where it is not read.
    pub(super) read_size: u8,
    /// Buffers with bytes in common, itself included.
    pub(super) meets: u64,
    /// Buffers that lie inside it.
    pub(super) covers: u64,
}

/// Buffers of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// The buffer of each source of an elementwise instruction, as a mask.
    pub(super) source: [u64; 3],
}

/// What to do with the instructions of a template.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Local operands that are bound to arguments (a base), or to another local operand.
    bound: SmallVec<[(Local, Bound); 8]>,
    bases: u32,
}

/// Where a local operand really is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Base(u32),
    Local(Local),
}

/// What to do with one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Emits nothing in its place.
    pub(super) skip: bool,
    /// Binds this base to its argument operand, at the beginning of the section.
    pub(super) bind: Option<u32>,
    /// Writes its result at this base.
    pub(super) result: Option<u32>,
    /// Joins the elementwise run before it.
    pub(super) joins: bool,
    /// Operands (sources, then bit 3 the result) that live inside a strip.
    pub(super) private: u8,
    /// Multiplies the left operand in place.
    pub(super) in_place: bool,
    /// Belongs to a group that runs by rows.
    pub(super) by_rows: bool,
    /// Begins such a group, of blocks of so many rows.
    pub(super) rows: Option<(Size, u32)>,
}

impl Plan {
    pub(super) fn new(
        template: &Template,
        decoded: &Decoded,
        options: &BuildOptions,
        in_place: bool,
        stores_meet: bool,
        block: u32,
    ) -> Plan {
        let mut a = Analysis {
            insts: &decoded.insts,
            block: u64::from(block),
            buffers: SmallVec::new(),
            keys: SmallVec::new(),
            access: vec![Access::default(); decoded.insts.len()],
            ews: decoded.insts.iter().map(elementwise).collect(),
            too_many: false,
            stores: options.elide && !in_place && !stores_meet,
            plan: Plan {
                steps: vec![Step::default(); decoded.insts.len()],
                bound: SmallVec::new(),
                bases: BASE_BOUND,
            },
        };
        a.collect();
        if a.too_many {
            return Plan { bases: BASE_BOUND, ..Plan::default() };
        }
        a.relate();
        if options.elide && !in_place {
            a.loads();
        }
        // Liveness at the end of a phase: whatever some section of it or of a later phase reads first.
        let sections: Vec<Range<usize>> =
            decoded.ends.iter().scan(0, |from, &end| Some(std::mem::replace(from, end)..end)).collect();
        let mut after = 0u64;
        let mut end = sections.len();
        for phase in template.phases.iter().rev() {
            let first = end - phase.sections.len();
            let own = &sections[first..end];
            after |= own.iter().fold(0, |live, s| live | a.exposed(s.clone(), 0));
            for s in own {
                a.section(s.clone(), after, options);
            }
            end = first;
        }
        a.plan
    }

    pub(super) fn step(&self, at: usize) -> Step {
        self.steps.get(at).copied().unwrap_or_default()
    }
    pub(super) fn bound(&self, local: Local) -> Option<Bound> {
        self.bound.iter().find(|(l, _)| *l == local).map(|&(_, b)| b)
    }
    /// Bases used.
    pub(super) fn bases(&self) -> u32 {
        self.bases.max(BASE_BOUND)
    }
}

/// Whether two stores of a tile may meet in some unit, so that their order counts.
pub(super) fn stores_meet(program: &Program, number: usize, template: &Template, decoded: &Decoded) -> bool {
    let mut hulls: SmallVec<[(u16, i64, i64); 4]> = SmallVec::new();
    let (mut at, mut section) = (0, 0);
    for phase in &template.phases {
        let extents: SmallVec<[u32; 12]> = template.parallel.iter().chain(&phase.seq).copied().collect();
        for _ in &phase.sections {
            let end = decoded.ends[section];
            hulls.extend(decoded.insts[at..end].iter().filter_map(|i| store_hull(i, &extents)));
            (at, section) = (end, section + 1);
        }
    }
    if hulls.len() < 2 {
        return false;
    }
    let units = program.steps.iter().flat_map(|s| &s.units).filter(|u| u.template as usize == number);
    units.into_iter().any(|unit| {
        hulls.iter().enumerate().any(|(i, a)| {
            hulls[i + 1..].iter().any(|b| {
                let ((x, p), (y, q)) = (unit.slots[usize::from(a.0)], unit.slots[usize::from(b.0)]);
                let at = |base: u64, v: i64| v.saturating_add_unsigned(base);
                x == y && at(p, a.1) < at(q, b.2) && at(q, b.1) < at(p, a.2)
            })
        })
    })
}

pub(super) struct Analysis<'a> {
    pub(super) insts: &'a [Inst],
    pub(super) block: u64,
    pub(super) buffers: SmallVec<[Buffer; 32]>,
    /// (space and begin, end) of each buffer.
    pub(super) keys: SmallVec<[(u64, u64); 32]>,
    pub(super) access: Vec<Access>,
    pub(super) ews: Vec<Option<Elementwise>>,
    pub(super) too_many: bool,
    /// Stores may be bound.
    pub(super) stores: bool,
    pub(super) plan: Plan,
}

impl Analysis<'_> {
    /// Numbers the buffers and notes who touches them.
    fn collect(&mut self) {
        for i in 0..self.insts.len() {
            let insts = self.insts;
            let mut source = 0;
            locals(&insts[i], self.ews[i], &mut |u| {
                let lo = u64::from(u.local.offset) * self.block;
                let hi = lo.saturating_add(u.bytes);
                // Sources come first.
                let number = source;
                source += 1;
                if hi == lo {
                    return;
                }
                let key = (u.local.space as u64) << 62 | lo;
                let n = self.keys.iter().position(|k| *k == (key, hi)).unwrap_or_else(|| {
                    self.keys.push((key, hi));
                    let none =
                        Buffer { space: u.local.space, lo, hi, writes: 0, read_size: 0, meets: 0, covers: 0 };
                    self.buffers.push(none);
                    self.buffers.len() - 1
                });
                if n >= BUFFERS {
                    self.too_many = true;
                    return;
                }
                let (b, a) = (&mut self.buffers[n], &mut self.access[i]);
                if u.read {
                    b.read_size = b.read_size.max(u.size);
                    a.reads |= 1 << n;
                    if let Some(s) = a.source.get_mut(number) {
                        *s = 1 << n;
                    }
                }
                if u.write {
                    b.writes = b.writes.saturating_add(1);
                    a.writes |= 1 << n;
                }
            });
            if self.too_many {
                return;
            }
        }
    }

    fn relate(&mut self) {
        for i in 0..self.buffers.len() {
            let b = self.buffers[i];
            let (mut meets, mut covers) = (0u64, 0u64);
            for (j, o) in self.buffers.iter().enumerate() {
                if o.space == b.space && o.lo < b.hi && b.lo < o.hi {
                    meets |= 1 << j;
                    if b.lo <= o.lo && o.hi <= b.hi {
                        covers |= 1 << j;
                    }
                }
            }
            self.buffers[i].meets = meets;
            self.buffers[i].covers = covers;
        }
    }

    /// The buffer of one written or read operand; one bit of a mask.
    fn buffer(&self, local: Local, bytes: u64) -> Option<&Buffer> {
        let lo = u64::from(local.offset) * self.block;
        self.buffers.iter().find(|b| (b.space, b.lo, b.hi) == (local.space, lo, lo + bytes))
    }

    /// Whether `b` has one writer, and all its readers start where it starts and take elements of at most `size` bytes.
    fn readers_follow(&self, b: &Buffer, size: u8) -> bool {
        let mut writes = 0u32;
        for o in bits(b.meets).map(|i| &self.buffers[i]) {
            writes += u32::from(o.writes);
            if o.read_size > 0 && (o.lo != b.lo || o.hi > b.hi || o.read_size > size) {
                return false;
            }
        }
        writes == 1
    }

    /// Contiguous loads whose buffer nobody else writes are bound; so are left operands of short rows.
    fn loads(&mut self) {
        for i in 0..self.insts.len() {
            match &self.insts[i].operands {
                Operands::Load(o) => {
                    let size = self.insts[i].dtype.size();
                    if !contiguous(o.rows, o.cols, o.pitch, size) {
                        continue;
                    }
                    let Some(b) = self.buffer(o.dst, area(o.rows, o.cols, size)) else { continue };
                    if self.readers_follow(b, size as u8) {
                        let base = self.base();
                        self.plan.steps[i].skip = true;
                        self.plan.steps[i].bind = Some(base);
                        self.plan.bound.push((o.dst, Bound::Base(base)));
                    }
                }
                Operands::LoadA(o) => {
                    let dtype = self.insts[i].dtype;
                    let half = matches!(dtype, DType::F16 | DType::BF16);
                    let row = o.col_stride == i64::from(dtype.size());
                    self.plan.steps[i].in_place = !half && row && o.k.body <= IN_PLACE_K;
                }
                _ => {}
            }
        }
    }

    fn base(&mut self) -> u32 {
        self.plan.bases += 1;
        self.plan.bases - 1
    }

    /// What a section reads before it writes, given what is live after it.
    fn exposed(&self, section: Range<usize>, mut live: u64) -> u64 {
        for a in self.access[section].iter().rev() {
            live = self.before(*a, live);
        }
        live
    }

    /// Liveness before an instruction, from liveness after it. A buffer is live when it is read before it is covered.
    fn before(&self, a: Access, live: u64) -> u64 {
        let covered = bits(a.writes).fold(0, |m, w| m | self.buffers[w].covers);
        (live & !covered) | a.reads
    }

    fn section(&mut self, section: Range<usize>, after: u64, options: &BuildOptions) {
        // Liveness after each instruction.
        let mut live: SmallVec<[u64; 64]> = SmallVec::from_elem(0, section.len());
        let mut now = after;
        for i in section.clone().rev() {
            live[i - section.start] = now;
            now = self.before(self.access[i], now);
        }
        if self.stores {
            for i in section.clone() {
                self.store(i, section.start, live[i - section.start]);
            }
        }
        if options.elide {
            for i in section.clone() {
                self.acc(i, section.clone(), after);
            }
        }
        if options.strips {
            self.runs(section.clone(), &live);
            self.groups(section);
        }
    }

    /// A contiguous store of what one elementwise instruction made last makes that instruction write to the argument.
    fn store(&mut self, at: usize, first: usize, live: u64) {
        let Operands::Store(o) = &self.insts[at].operands else { return };
        let size = self.insts[at].dtype.size();
        if !contiguous(o.rows, o.cols, o.pitch, size) {
            return;
        }
        let Some(&b) = self.buffer(o.src, area(o.rows, o.cols, size)) else { return };
        if live & b.meets != 0 {
            return;
        }
        for p in (first..at).rev() {
            let a = self.access[p];
            let wrote = bits(a.writes).any(|w| b.meets >> w & 1 != 0);
            if wrote {
                let exact = self.ews[p]
                    .is_some_and(|e| (e.dst, e.rows, e.cols, e.size) == (o.src, o.rows, o.cols, size as u8));
                let step = self.plan.steps[p];
                if exact && step.result.is_none() && self.plan.bound(o.src).is_none() {
                    let base = self.base();
                    self.plan.steps[at].skip = true;
                    self.plan.steps[at].bind = Some(base);
                    self.plan.steps[p].result = Some(base);
                }
                return;
            }
            if a.reads & b.meets != 0 {
                return;
            }
        }
    }

    /// An accumulator tile that is only read again as it is handed over is not copied.
    fn acc(&mut self, at: usize, section: Range<usize>, after: u64) {
        let Operands::AccToUb(o) = &self.insts[at].operands else { return };
        let (dtype, step) = (self.insts[at].dtype, self.plan.steps[at]);
        if o.from != dtype || step.result.is_some() {
            return;
        }
        let bytes = area(o.m, o.n, dtype.size());
        let (Some(&acc), Some(&ub)) = (self.buffer(o.acc, bytes), self.buffer(o.dst, bytes)) else { return };
        let rewritten = |i: usize| bits(self.access[i].writes).any(|w| acc.meets >> w & 1 != 0);
        if after & ub.meets == 0
            && self.readers_follow(&ub, dtype.size() as u8)
            && !(at + 1..section.end).any(rewritten)
        {
            self.plan.steps[at].skip = true;
            self.plan.bound.push((o.dst, Bound::Local(o.acc)));
        }
    }
}

pub(super) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let i = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(i)
    })
}
