//! Which loads and stores move nothing.
//!
//! All decisions rest on where local bytes are read and written in the whole template. Distinct byte ranges of local memory
//! are numbered *buffers*; sets of buffers are bit masks, so the analysis of a template is a few passes of word operations.
//! A template with more buffers than a mask has bits is left alone.

use std::ops::Range;

use dvm_bc::{DType, DecodedTemplate, Inst, Local, Mode, Operands, Program, Size, Space, Template};
use smallvec::SmallVec;

use super::uses::{Count, Elementwise, contiguous, elements, elementwise, locals, store_hull};
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
    /// Its bytes in every tile, where all uses agree.
    bytes: Option<Count>,
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
    /// All of those that are read element by element, row by row, and otherwise.
    pub(super) full: u64,
    pub(super) col: u64,
    pub(super) rest: u64,
    /// It writes as much in every tile.
    fixed: bool,
}

impl Access {
    /// Buffers of which more than the element at hand is read.
    pub(super) fn part(&self) -> u64 {
        self.col | self.rest
    }
}

/// What to do with the instructions of a template, and what that was found from. Kept for its allocations.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) buffers: Vec<Buffer>,
    /// (space and begin, end) of each buffer.
    keys: Vec<(u64, u64)>,
    pub(super) access: Vec<Access>,
    pub(super) ews: Vec<Option<Elementwise>>,
    /// Local operands that are bound to arguments (a base), or to another local operand.
    bound: SmallVec<[Binding; 8]>,
    /// Buffers that meet those.
    bound_buffers: u64,
    bases: u32,
}

/// Where a local operand really is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Base(u32),
    Local(Local),
}

/// A local operand that is elsewhere, for the instructions that see what was loaded.
#[derive(Clone, Copy, Debug)]
struct Binding {
    local: Local,
    to: Bound,
    /// The first that may read it, and the last; if that is elementwise, it may write the local operand itself.
    from: usize,
    until: usize,
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
    /// The slot of that.
    pub(super) result_slot: u16,
    /// Joins the elementwise run before it.
    pub(super) joins: bool,
    /// Operands (sources, then bit 3 the result) that live inside a strip.
    pub(super) private: u8,
    /// Multiplies the left operand in place.
    pub(super) in_place: bool,
    /// Belongs to a group that runs by rows.
    pub(super) by_rows: bool,
    /// A row of elements that counts as a column there.
    pub(super) upright: bool,
    /// A reduction that may join the run before it, and whether its source is read afterwards.
    pub(super) folds: Option<bool>,
    /// Begins such a group, of blocks of so many rows.
    pub(super) rows: Option<(Size, u32)>,
}

impl Plan {
    /// Forgets everything: each instruction is executed as it stands.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.buffers.clear();
        self.keys.clear();
        self.access.clear();
        self.ews.clear();
        self.bound.clear();
        self.bound_buffers = 0;
        self.bases = BASE_BOUND;
    }

    /// Plans a template.
    pub(super) fn make(
        &mut self,
        template: &Template,
        decoded: &DecodedTemplate<'_>,
        options: &BuildOptions,
        in_place: bool,
        stores_meet: bool,
        block: u32,
    ) {
        self.clear();
        let insts = decoded.insts();
        let mut a = Analysis {
            insts,
            block: u64::from(block),
            too_many: false,
            loads: options.elide && !in_place,
            stores: options.elide && !in_place && !stores_meet,
            plan: self,
        };
        a.plan.access.resize(insts.len(), Access::default());
        a.plan.steps.resize(insts.len(), Step::default());
        a.plan.ews.resize(insts.len(), None);
        a.collect();
        if a.too_many {
            self.clear();
            return;
        }
        a.relate();
        a.operands_in_place(options.elide && !in_place);
        if options.elide && !in_place {
            a.packs(decoded);
        }
        // Liveness at the end of a phase: whatever some section of it or of a later phase reads first.
        let mut after = 0u64;
        let mut end = decoded.sections();
        for phase in template.phases.iter().rev() {
            let first = end - phase.sections.len();
            let own = first..end;
            after |= own.clone().fold(0, |live, s| live | a.exposed(decoded.section(s), 0));
            for s in own {
                a.section(decoded.section(s), after, options);
            }
            end = first;
        }
    }

    pub(super) fn step(&self, at: usize) -> Step {
        self.steps.get(at).copied().unwrap_or_default()
    }
    /// Where instruction `at`, which is not elementwise, finds a local operand.
    pub(super) fn bound(&self, at: usize, local: Local) -> Option<Bound> {
        let here = |b: &&Binding| b.local == local && b.from <= at && at <= b.until;
        self.bound.iter().find(here).map(|b| b.to)
    }
    /// As [`Plan::bound`], of source `i` of elementwise instruction `at`.
    pub(super) fn bound_source(&self, at: usize, i: usize, local: Local) -> Option<Bound> {
        let mask = self.access.get(at).map_or(0, |a| a.source[i]);
        if mask & self.bound_buffers == 0 { None } else { self.bound(at, local) }
    }
    fn bind(&mut self, local: Local, meets: u64, to: Bound, (from, until): (usize, usize)) {
        self.bound.push(Binding { local, to, from, until });
        self.bound_buffers |= meets;
    }
    /// Bases used.
    pub(super) fn bases(&self) -> u32 {
        self.bases.max(BASE_BOUND)
    }
    fn base(&mut self) -> u32 {
        self.bases += 1;
        self.bases - 1
    }
    /// The buffers that an instruction overwrites in every tile: those inside of what it writes, or, where some of that may be
    /// missing, the very buffer if its uses have the same missing.
    fn covered(&self, a: &Access) -> u64 {
        let one = |w: usize| if self.buffers[w].bytes.is_some() { 1 << w } else { 0 };
        bits(a.writes).fold(0, |m, w| m | if a.fixed { self.buffers[w].covers } else { one(w) })
    }
    /// The buffer of the one bit of a mask.
    fn buffer(&self, mask: u64) -> Option<Buffer> {
        self.buffers.get(mask.trailing_zeros() as usize).copied()
    }
}

/// Whether two stores of a tile may meet in some unit, so that their order counts.
pub(super) fn stores_meet(
    program: &Program,
    number: usize,
    template: &Template,
    decoded: &DecodedTemplate<'_>,
) -> bool {
    let mut hulls: SmallVec<[(u16, i64, i64); 4]> = SmallVec::new();
    let mut section = 0;
    for phase in &template.phases {
        let extents: SmallVec<[u32; 12]> = template.parallel.iter().chain(&phase.seq).copied().collect();
        for _ in &phase.sections {
            let insts = &decoded.insts()[decoded.section(section)];
            hulls.extend(insts.iter().filter_map(|i| store_hull(i, &extents)));
            section += 1;
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
    pub(super) too_many: bool,
    /// Loads may be bound.
    pub(super) loads: bool,
    /// Stores may be bound.
    pub(super) stores: bool,
    pub(super) plan: &'a mut Plan,
}

/// Numbers of buffers by their bytes: open addressing, twice as many places as there are buffers.
struct Places([u8; 2 * BUFFERS]);

impl Places {
    const FREE: u8 = u8::MAX;

    /// The place of a buffer, or the free one where it belongs.
    fn find(&mut self, key: (u64, u64), keys: &[(u64, u64)]) -> &mut u8 {
        let spread = (key.0 ^ key.1.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut i = (spread >> 57) as usize;
        while self.0[i] != Places::FREE && keys[usize::from(self.0[i])] != key {
            i = (i + 1) % self.0.len();
        }
        &mut self.0[i]
    }
}

/// Gives buffers their numbers.
struct Numbers<'a> {
    block: u64,
    keys: &'a mut Vec<(u64, u64)>,
    buffers: &'a mut Vec<Buffer>,
    places: Places,
    too_many: bool,
}

impl Numbers<'_> {
    /// Notes a use of a buffer; the bit of its number, none where it has no bytes.
    #[inline]
    fn touch(&mut self, local: Local, bytes: Count, size: u8, read: bool, write: bool) -> u64 {
        let lo = u64::from(local.offset) * self.block;
        let hi = lo.saturating_add(bytes.body);
        if bytes.body == 0 {
            return 0;
        }
        let key = ((local.space as u64) << 62 | lo, hi);
        let place = self.places.find(key, self.keys);
        if *place == Places::FREE {
            if self.keys.len() == BUFFERS {
                self.too_many = true;
                return 0;
            }
            *place = self.keys.len() as u8;
            self.keys.push(key);
            let space = local.space;
            let b =
                Buffer { space, lo, hi, bytes: Some(bytes), writes: 0, read_size: 0, meets: 0, covers: 0 };
            self.buffers.push(b);
        }
        let n = usize::from(*place);
        let b = &mut self.buffers[n];
        if read {
            b.read_size = b.read_size.max(size);
        }
        b.writes = b.writes.saturating_add(u16::from(write));
        b.bytes = b.bytes.filter(|b| b.same(bytes));
        1 << n
    }
}

impl Analysis<'_> {
    /// Numbers the buffers and notes who touches them.
    fn collect(&mut self) {
        let plan = &mut *self.plan;
        let mut numbers = Numbers {
            block: self.block,
            keys: &mut plan.keys,
            buffers: &mut plan.buffers,
            places: Places([Places::FREE; 2 * BUFFERS]),
            too_many: false,
        };
        for ((inst, a), ew) in self.insts.iter().zip(&mut plan.access).zip(&mut plan.ews) {
            elementwise(inst, ew);
            if let Some(e) = ew {
                for (source, bit) in e.sources.iter().zip(&mut a.source) {
                    if let &Some((local, mode, size)) = source {
                        let n = elements(mode, e.rows, e.cols);
                        *bit = numbers.touch(local, n.times(size.into()), size, true, false);
                        a.reads |= *bit;
                        match mode {
                            Mode::Full => a.full |= *bit,
                            Mode::Col => a.col |= *bit,
                            Mode::Row | Mode::One => a.rest |= *bit,
                        }
                    }
                }
                let bytes = Count::tile(e.rows, e.cols).times(e.size.into());
                a.fixed = bytes.is_fixed();
                a.writes = numbers.touch(e.dst, bytes, e.size, false, true);
            } else {
                a.fixed = true;
                locals(inst, &mut |u| {
                    a.fixed &= !u.write || u.bytes.is_fixed();
                    let bit = numbers.touch(u.local, u.bytes, u.size, u.read, u.write);
                    a.reads |= if u.read { bit } else { 0 };
                    a.writes |= if u.write { bit } else { 0 };
                });
            }
        }
        self.too_many = numbers.too_many;
    }

    /// Which buffers have bytes in common: a sweep over them by their beginnings.
    fn relate(&mut self) {
        let Plan { keys, buffers, .. } = &mut *self.plan;
        let mut order: SmallVec<[u8; BUFFERS]> = (0..keys.len() as u8).collect();
        order.sort_unstable_by_key(|&i| keys[usize::from(i)].0);
        for (at, &i) in order.iter().enumerate() {
            let i = usize::from(i);
            (buffers[i].meets, buffers[i].covers) = (buffers[i].meets | 1 << i, buffers[i].covers | 1 << i);
            let (lo, end) = (buffers[i].lo, buffers[i].hi);
            let until = keys[i].0 - lo + end;
            for &j in &order[at + 1..] {
                let j = usize::from(j);
                if keys[j].0 >= until {
                    break;
                }
                buffers[i].meets |= 1 << j;
                buffers[j].meets |= 1 << i;
                buffers[i].covers |= u64::from(buffers[j].hi <= end) << j;
                buffers[j].covers |= u64::from(buffers[j].lo == lo && end <= buffers[j].hi) << i;
            }
        }
    }

    /// The instructions that see what `at` writes to `b`, as (first, last), where all read elements of at most
    /// `size` bytes from its beginning on, and nobody else does: up to the instruction that overwrites it.
    fn readers_follow(
        &self,
        at: usize,
        b: &Buffer,
        size: u8,
        section: &Range<usize>,
        live: &[u64],
    ) -> Option<(usize, usize)> {
        let plan = &*self.plan;
        let (own, end) = (plan.access[at].writes, section.end);
        for i in at + 1..end {
            let a = plan.access[i];
            let fits = |o: &Buffer| o.lo == b.lo && o.hi <= b.hi && o.read_size <= size;
            if !bits(a.reads & b.meets).all(|o| fits(&plan.buffers[o])) {
                return None;
            }
            if a.writes & b.meets != 0 {
                // It must leave nothing of `b`. An elementwise one reads before it writes.
                let covered = plan.covered(&a);
                let rest = live[i - section.start] & b.meets & !covered;
                let covered = covered & own == own && rest == 0;
                return match (covered, plan.ews[i]) {
                    (true, Some(_)) => Some((at + 1, i)),
                    (true, None) if a.reads & b.meets == 0 => Some((at + 1, i - 1)),
                    _ => None,
                };
            }
        }
        let after = live[end - 1 - section.start];
        (after & b.meets == 0).then_some((at + 1, end - 1))
    }

    /// Whether `b` has one writer in the template, and all read it from its beginning on, elements of at most `size` bytes.
    fn written_once(&self, b: &Buffer, size: u8) -> bool {
        let mut writes = 0u32;
        for o in bits(b.meets).map(|i| &self.plan.buffers[i]) {
            writes += u32::from(o.writes);
            if o.read_size > 0 && (o.lo != b.lo || o.hi > b.hi || o.read_size > size) {
                return false;
            }
        }
        writes == 1
    }

    /// Contiguous loads (if `loads`) of what nobody else writes in the template are bound for all of it. Left operands of
    /// short rows are multiplied in place.
    fn operands_in_place(&mut self, loads: bool) {
        if !loads {
            return;
        }
        for i in 0..self.insts.len() {
            match &self.insts[i].operands {
                Operands::Load(_) => {
                    if let Some((b, size)) = self.contiguous_load(i)
                        && self.written_once(&b, size)
                    {
                        self.bind_load(i, &b, (0, usize::MAX));
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

    /// Left operands that were computed are multiplied where they are, if one product takes each, before its bytes are written
    /// again.
    fn packs(&mut self, decoded: &DecodedTemplate<'_>) {
        if !self.insts.iter().any(|i| matches!(i.operands, Operands::PackA(_))) {
            return;
        }
        let mut packs: SmallVec<[(usize, Local); 8]> = SmallVec::new();
        for s in 0..decoded.sections() {
            let section = decoded.section(s);
            for i in section.clone() {
                let Operands::PackA(o) = &self.insts[i].operands else { continue };
                let dtype = self.insts[i].dtype;
                let half = matches!(dtype, DType::F16 | DType::BF16);
                let src = bits(self.plan.access[i].reads).fold(0, |m, b| m | self.plan.buffers[b].meets);
                let product = (i + 1..section.end)
                    .take_while(|&j| self.plan.access[j].writes & src == 0)
                    .find(|&j| matches!(&self.insts[j].operands, Operands::Mmad(p) if p.a == o.dst));
                self.plan.steps[i].in_place = !half && o.k.body <= IN_PLACE_K && product.is_some();
                packs.push((i, o.dst));
            }
        }
        // Each product of the panel must be the one that was found.
        for &(i, dst) in &packs {
            let same = packs.iter().filter(|p| p.1 == dst);
            let others = self.insts.iter().filter(|i| match &i.operands {
                Operands::Mmad(o) => o.a == dst,
                Operands::LoadA(o) => o.dst == dst,
                _ => false,
            });
            if same.clone().any(|p| !self.plan.steps[p.0].in_place) || others.count() != same.count() {
                self.plan.steps[i].in_place = false;
            }
        }
    }

    /// Buffer and element size of a load whose rows lie in the argument as in local memory.
    fn contiguous_load(&self, at: usize) -> Option<(Buffer, u8)> {
        let Operands::Load(o) = &self.insts[at].operands else { return None };
        let size = self.insts[at].dtype.size();
        if !contiguous(o.rows, o.cols, o.pitch, size) {
            return None;
        }
        Some((self.plan.buffer(self.plan.access[at].writes)?, size as u8))
    }

    fn bind_load(&mut self, at: usize, b: &Buffer, seen: (usize, usize)) {
        let Operands::Load(o) = &self.insts[at].operands else { return };
        let base = self.plan.base();
        self.plan.steps[at].skip = true;
        self.plan.steps[at].bind = Some(base);
        self.plan.bind(o.dst, b.meets, Bound::Base(base), seen);
    }

    /// A contiguous load is bound for those that see it, though its buffer is written again later.
    fn load(&mut self, at: usize, section: &Range<usize>, live: &[u64]) {
        if self.plan.steps[at].skip {
            return;
        }
        let Some((b, size)) = self.contiguous_load(at) else { return };
        if let Some(seen) = self.readers_follow(at, &b, size, section, live) {
            self.bind_load(at, &b, seen);
        }
    }

    /// What a section reads before it writes, given what is live after it.
    fn exposed(&self, section: Range<usize>, mut live: u64) -> u64 {
        for a in self.plan.access[section].iter().rev() {
            live = self.before(*a, live);
        }
        live
    }

    /// Liveness before an instruction, from liveness after it. A buffer is live when it is read before it is covered.
    fn before(&self, a: Access, live: u64) -> u64 {
        (live & !self.plan.covered(&a)) | a.reads
    }

    /// Liveness after each instruction of a section.
    fn live(&self, section: &Range<usize>, after: u64, live: &mut [u64]) {
        let mut now = after;
        for (live, a) in live.iter_mut().zip(&self.plan.access[section.clone()]).rev() {
            *live = now;
            now = self.before(*a, now);
        }
    }

    fn section(&mut self, section: Range<usize>, after: u64, options: &BuildOptions) {
        // Liveness after each instruction.
        let mut live: SmallVec<[u64; 64]> = SmallVec::from_elem(0, section.len());
        self.live(&section, after, &mut live);
        if self.loads {
            for i in section.clone() {
                self.load(i, &section, &live);
            }
        }
        if self.stores {
            let mut bound = false;
            for i in section.clone() {
                bound |= self.store(i, section.start, live[i - section.start]);
            }
            if bound {
                self.live(&section, after, &mut live);
            }
        }
        if options.elide {
            for i in section.clone() {
                self.acc(i, &section, &live);
            }
        }
        if options.strips {
            self.runs(section.clone(), &live);
            self.groups(section, &live);
        }
    }

    /// A contiguous store of what one elementwise instruction made last makes that instruction write to the argument.
    fn store(&mut self, at: usize, first: usize, live: u64) -> bool {
        let Operands::Store(o) = &self.insts[at].operands else { return false };
        let size = self.insts[at].dtype.size();
        if !contiguous(o.rows, o.cols, o.pitch, size) {
            return false;
        }
        let Some(b) = self.plan.buffer(self.plan.access[at].reads) else { return false };
        if live & b.meets != 0 {
            return false;
        }
        for p in (first..at).rev() {
            let a = self.plan.access[p];
            if a.writes & b.meets != 0 {
                let exact = self.plan.ews[p]
                    .is_some_and(|e| (e.dst, e.rows, e.cols, e.size) == (o.src, o.rows, o.cols, size as u8));
                let step = self.plan.steps[p];
                if exact && step.result.is_none() && self.plan.bound(at, o.src).is_none() {
                    let base = self.plan.base();
                    self.plan.steps[at].skip = true;
                    self.plan.steps[at].bind = Some(base);
                    self.plan.steps[p].result = Some(base);
                    self.plan.steps[p].result_slot = o.dst.slot;
                    // Nothing is left to be read.
                    self.plan.access[at].reads = 0;
                    return true;
                }
                return false;
            }
            if a.reads & b.meets != 0 {
                return false;
            }
        }
        false
    }

    /// An accumulator tile that is only read again as it is handed over is not copied.
    fn acc(&mut self, at: usize, section: &Range<usize>, live: &[u64]) {
        let Operands::AccToUb(o) = &self.insts[at].operands else { return };
        let (dtype, step) = (self.insts[at].dtype, self.plan.steps[at]);
        if o.from != dtype || step.result.is_some() {
            return;
        }
        let access = self.plan.access[at];
        let buffers = (self.plan.buffer(access.reads), self.plan.buffer(access.writes));
        let (Some(acc), Some(ub)) = buffers else { return };
        let Some(seen) = self.readers_follow(at, &ub, dtype.size() as u8, section, live) else { return };
        let rewritten = |i: usize| self.plan.access[i].writes & acc.meets != 0;
        if !(at + 1..=seen.1).any(rewritten) {
            self.plan.steps[at].skip = true;
            self.plan.bind(o.dst, ub.meets, Bound::Local(o.acc), seen);
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
