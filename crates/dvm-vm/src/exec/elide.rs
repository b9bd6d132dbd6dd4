//! Which loads and stores move nothing, and which elementwise instructions run strip by strip.
//!
//! All decisions rest on where local bytes are read and written in the whole template. Distinct byte ranges of local memory
//! are numbered *buffers*; sets of buffers are bit masks, so the analysis of a template is a few passes of word operations.
//! A template with more buffers than a mask has bits is left alone.

use std::ops::Range;

use dvm_bc::{DType, Init, Inst, Local, Mem, Mode, Opcode, Operands, Size, Space, Src, Template};
use smallvec::SmallVec;

use super::predecode::{Decoded, simplify};
use super::{BASE_BOUND, BuildOptions};
use crate::kernels::binary;

/// Buffers a template may have.
const BUFFERS: usize = 64;
/// Longest left operand row that is multiplied in place rather than packed first.
const IN_PLACE_K: u32 = 512;

/// A byte range of local memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Buffer {
    space: Space,
    lo: u64,
    hi: u64,
    /// Writes in the template.
    writes: u16,
    /// Largest element it is read as; 0 where it is not read.
    read_size: u8,
    /// Buffers with bytes in common, itself included.
    meets: u64,
    /// Buffers that lie inside it.
    covers: u64,
}

/// Buffers of an instruction.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    reads: u64,
    writes: u64,
    /// The buffer of each source of an elementwise instruction, as a mask.
    source: [u64; 3],
}

/// What to do with the instructions of a template.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
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
                a.section(s.clone(), after, options, in_place);
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

struct Analysis<'a> {
    insts: &'a [Inst],
    block: u64,
    buffers: SmallVec<[Buffer; 32]>,
    /// (space and begin, end) of each buffer.
    keys: SmallVec<[(u64, u64); 32]>,
    access: Vec<Access>,
    ews: Vec<Option<Elementwise>>,
    too_many: bool,
    plan: Plan,
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

    fn section(&mut self, section: Range<usize>, after: u64, options: &BuildOptions, in_place: bool) {
        // Liveness after each instruction.
        let mut live: SmallVec<[u64; 64]> = SmallVec::from_elem(0, section.len());
        let mut now = after;
        for i in section.clone().rev() {
            live[i - section.start] = now;
            now = self.before(self.access[i], now);
        }
        if options.elide && !in_place {
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

    /// Joins elementwise instructions to runs, and finds what lives inside a strip.
    fn runs(&mut self, section: Range<usize>, live: &[u64]) {
        let from = section.start;
        let mut run = Run::default();
        for i in section {
            if self.plan.steps[i].skip || matches!(self.insts[i].operands, Operands::Control(_)) {
                continue;
            }
            let e = self.ews[i].filter(|e| !e.traps);
            let joins = e.is_some_and(|e| self.joins(&run, i, &e));
            if !joins {
                self.close(&run, live, from);
                run = Run::default();
            }
            if let Some(e) = e {
                self.plan.steps[i].joins = joins;
                run.members.push(i);
                run.writes |= self.access[i].writes;
                let (full, part) = self.reads(i, &e);
                run.full_reads |= full;
                run.part_reads |= part;
            }
        }
        self.close(&run, live, from);
    }

    /// Buffers read as whole tiles, and otherwise.
    fn reads(&self, at: usize, e: &Elementwise) -> (u64, u64) {
        let (mut full, mut part) = (0, 0);
        for (source, bit) in e.sources.iter().zip(self.access[at].source) {
            match source {
                Some((_, Mode::Full, _)) => full |= bit,
                _ => part |= bit,
            }
        }
        (full, part)
    }

    fn meets(&self, buffers: u64) -> u64 {
        bits(buffers).fold(0, |m, i| m | self.buffers[i].meets)
    }

    /// Whether an instruction may run strip by strip with those of a run: it sees only elements that earlier ones have
    /// computed, and overwrites none that they still need. So what it has in common with them are whole tiles of the same
    /// elements: a buffer of the same bytes, hence, over the same counts, of the same element size.
    fn joins(&self, run: &Run, at: usize, e: &Elementwise) -> bool {
        let Some(&first) = run.members.first() else { return false };
        if self.ews[first].is_none_or(|f| (f.rows, f.cols) != (e.rows, e.cols)) {
            return false;
        }
        let (full, part) = self.reads(at, e);
        let dst = self.access[at].writes;
        self.meets(part) & run.writes == 0
            && bits(full).all(|b| self.buffers[b].meets & run.writes & !(1 << b) == 0)
            && self.meets(dst) & (run.writes | run.full_reads) & !dst == 0
            && self.meets(dst) & run.part_reads == 0
    }

    /// Marks results of a finished run that are dead after it, and reads of them.
    fn close(&mut self, run: &Run, live: &[u64], from: usize) {
        let Some(&last) = run.members.last() else { return };
        if run.members.len() < 2 {
            return;
        }
        let live = self.meets(live[last - from]);
        // Buffers written in the run so far that nobody reads after it. Their strip lies where the buffer begins: if the run
        // also read the buffer as it was before, it has read that part of it by then.
        let mut inside = 0u64;
        for &i in &run.members {
            let Some(e) = self.ews[i] else { continue };
            for (s, source) in e.sources.iter().enumerate() {
                if matches!(source, Some((_, Mode::Full, _))) && inside & self.access[i].source[s] != 0 {
                    self.plan.steps[i].private |= 1 << s;
                }
            }
            let dst = self.access[i].writes;
            if self.plan.steps[i].result.is_some() {
                inside &= !dst;
            } else if dst & live == 0 {
                self.plan.steps[i].private |= 1 << 3;
                inside |= dst;
            }
        }
    }

    /// Groups runs and reductions that work row by row on the same rows, where a tile has more than a strip's elements: they
    /// run for a few rows at a time. The conditions are those of a run, with rows for elements.
    fn groups(&mut self, section: Range<usize>) {
        let mut group = Group::default();
        let mut i = section.start;
        while i < section.end {
            if self.plan.steps[i].skip || matches!(self.insts[i].operands, Operands::Control(_)) {
                i += 1;
                continue;
            }
            let from = i;
            let item = match (&self.insts[i].operands, self.ews[i]) {
                (Operands::Reduce(o), _) if o.init == Init::Always => {
                    i += 1;
                    let a = self.access[from];
                    let width = u64::from(o.red.body) * u64::from(o.inner.body);
                    Some(Group {
                        rows: o.outer,
                        width,
                        whole: a.reads,
                        part: 0,
                        writes: a.writes,
                        ..Group::default()
                    })
                }
                (_, Some(e)) if !e.traps => {
                    let mut item = Group { rows: e.rows, width: u64::from(e.cols.body), ..Group::default() };
                    loop {
                        if let Some(e) = self.ews[i] {
                            for (source, bit) in e.sources.iter().zip(self.access[i].source) {
                                match source {
                                    Some((_, Mode::Full | Mode::Col, _)) => item.whole |= bit,
                                    _ => item.part |= bit,
                                }
                            }
                            item.writes |= self.access[i].writes;
                        }
                        i += 1;
                        let more = |i: usize| {
                            let s = self.plan.steps[i];
                            s.joins || s.skip || matches!(self.insts[i].operands, Operands::Control(_))
                        };
                        if i == section.end || !more(i) {
                            break;
                        }
                    }
                    Some(item)
                }
                _ => {
                    i += 1;
                    None
                }
            };
            match item {
                Some(item) if self.follows(&group, &item) => group.add(&item, from, i),
                Some(item) => {
                    self.mark(&group);
                    group = Group::default();
                    group.add(&item, from, i);
                }
                None => {
                    self.mark(&group);
                    group = Group::default();
                }
            }
        }
        self.mark(&group);
    }

    /// Whether an item may run by rows with a group; see [`Analysis::joins`].
    fn follows(&self, group: &Group, item: &Group) -> bool {
        group.items > 0
            && group.rows == item.rows
            && self.meets(item.part) & group.writes == 0
            && bits(item.whole).all(|b| self.buffers[b].meets & group.writes & !(1 << b) == 0)
            && bits(item.writes)
                .all(|b| self.buffers[b].meets & (group.writes | group.whole) & !(1 << b) == 0)
            && self.meets(item.writes) & group.part == 0
    }

    fn mark(&mut self, group: &Group) {
        let block = (BLOCK / group.width.max(1)).max(1);
        if group.items < 2 || u64::from(group.rows.body) <= block {
            return;
        }
        for i in group.first..group.end {
            self.plan.steps[i].by_rows = true;
        }
        self.plan.steps[group.first].rows = Some((group.rows, block as u32));
    }
}

/// Elements of a block of rows.
const BLOCK: u64 = 2048;

/// Instructions that work on the same rows, so far.
struct Group {
    items: u32,
    first: usize,
    end: usize,
    rows: Size,
    /// Elements of the widest row.
    width: u64,
    /// Buffers of which row r reads row r.
    whole: u64,
    /// Buffers read otherwise.
    part: u64,
    writes: u64,
}

impl Default for Group {
    fn default() -> Group {
        Group { items: 0, first: 0, end: 0, rows: Size::ONE, width: 0, whole: 0, part: 0, writes: 0 }
    }
}

impl Group {
    fn add(&mut self, item: &Group, from: usize, to: usize) {
        if self.items == 0 {
            self.first = from;
            self.rows = item.rows;
        }
        self.items += 1;
        self.end = to;
        self.width = self.width.max(item.width);
        self.whole |= item.whole;
        self.part |= item.part;
        self.writes |= item.writes;
    }
}

/// Elementwise instructions that run strip by strip, so far.
#[derive(Default)]
struct Run {
    members: SmallVec<[usize; 32]>,
    writes: u64,
    full_reads: u64,
    part_reads: u64,
}

/// Operands of an elementwise instruction.
#[derive(Clone, Copy, Debug)]
struct Elementwise {
    dst: Local,
    rows: Size,
    cols: Size,
    /// Bytes per element of the result.
    size: u8,
    /// Local sources with their mode and bytes per element.
    sources: [Option<(Local, Mode, u8)>; 3],
    /// It may trap, so it runs alone.
    traps: bool,
}

fn elementwise(inst: &Inst) -> Option<Elementwise> {
    let size = inst.dtype.size() as u8;
    let none = (Src::Imm(0), 0);
    let (dst, rows, cols, sources) = match &inst.operands {
        Operands::Unary(o) => (o.dst, o.rows, o.cols, [(o.src, size), none, none]),
        Operands::Binary(o) => (o.dst, o.rows, o.cols, [(o.a, size), (o.b, size), none]),
        Operands::Ternary(o) => {
            let first = if inst.op == Opcode::VSelect { 1 } else { size };
            (o.dst, o.rows, o.cols, [(o.a, first), (o.b, size), (o.c, size)])
        }
        Operands::Cast(o) => (o.dst, o.rows, o.cols, [(o.src, o.from.size() as u8), none, none]),
        Operands::Fill(o) => (o.dst, o.rows, o.cols, [none; 3]),
        Operands::AccToUb(o) => {
            let source = (Src::Local(o.acc, Mode::Full), o.from.size() as u8);
            (o.dst, o.m, o.n, [source, none, none])
        }
        _ => return None,
    };
    let sources = sources.map(|(src, size)| match src {
        Src::Local(local, mode) => Some((local, simplify(mode, rows, cols), size)),
        Src::Imm(_) => None,
    });
    let traps = binary::traps(inst.op, inst.dtype);
    Some(Elementwise { dst, rows, cols, size: inst.result_dtype().size() as u8, sources, traps })
}

/// A use of vector or accumulator memory.
struct Use {
    local: Local,
    bytes: u64,
    /// Bytes per element.
    size: u8,
    read: bool,
    write: bool,
}

/// Calls `f` for each use of vector or accumulator memory.
fn locals(inst: &Inst, elementwise: Option<Elementwise>, f: &mut impl FnMut(Use)) {
    let size = inst.dtype.size();
    let mut use_ = |local, elements: u64, size: u32, read, write| {
        f(Use { local, bytes: elements.saturating_mul(u64::from(size)), size: size as u8, read, write });
    };
    let tile = |a: Size, b: Size| u64::from(a.body) * u64::from(b.body);
    let tile3 = |a: Size, b: Size, c: Size| tile(a, b).saturating_mul(u64::from(c.body));
    if let Some(e) = elementwise {
        for source in e.sources {
            // An immediate keeps its number, and has no bytes.
            let (local, mode, size) = source.unwrap_or((e.dst, Mode::One, 0));
            use_(local, elements(mode, e.rows, e.cols), size.into(), true, false);
        }
        use_(e.dst, tile(e.rows, e.cols), u32::from(e.size), false, true);
        return;
    }
    let updated = |init: Init| init != Init::Always;
    match &inst.operands {
        Operands::Load(o) => use_(o.dst, tile(o.rows, o.cols), size, false, true),
        Operands::Store(o) => use_(o.src, tile(o.rows, o.cols), size, true, false),
        Operands::ViewLoad(o) => use_(o.dst, loops(&o.loops), size, false, true),
        Operands::ViewStore(o) => use_(o.src, loops(&o.loops), size, true, false),
        Operands::GatherLoad(o) => {
            use_(o.index, u64::from(o.rows.body), o.index_dtype.size(), true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::GatherElems(o) => {
            use_(o.index, tile(o.rows, o.cols), o.index_dtype.size(), true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::Iota(o) => use_(o.dst, tile(o.rows, o.cols), size, false, true),
        Operands::LocalView(o) => {
            let (mut lo, mut hi) = (0i64, 0i64);
            for l in &o.loops {
                let span = l.stride.saturating_mul(i64::from(l.count.body) - 1);
                lo = lo.saturating_add(span.min(0));
                hi = hi.saturating_add(span.max(0));
            }
            // One that also reads before its operand counts as reading everything.
            let (local, n) = if lo < 0 {
                (Local { offset: 0, ..o.src }, u64::from(u32::MAX))
            } else {
                (o.src, (hi as u64).saturating_add(1))
            };
            use_(local, n, size, true, false);
            use_(o.dst, loops(&o.loops), size, false, true);
        }
        Operands::Reduce(o) => {
            use_(o.src, tile3(o.outer, o.red, o.inner), size, true, false);
            let planes = if inst.op == Opcode::VSum && updated(o.init) { 2 } else { 1 };
            let elem = if planes == 2 { dvm_bc::layout::sum_dtype(inst.dtype).size() } else { size };
            use_(o.dst, tile(o.outer, o.inner) * planes, elem, updated(o.init), true);
        }
        Operands::ArgReduce(o) => {
            use_(o.src, tile3(o.outer, o.red, o.inner), size, true, false);
            use_(o.index, tile(o.outer, o.inner), 8, updated(o.init), true);
            use_(o.value, tile(o.outer, o.inner), size, updated(o.init), true);
        }
        Operands::CumSum(o) => {
            use_(o.src, tile3(o.outer, o.red, o.inner), size, true, false);
            let elem = dvm_bc::layout::sum_dtype(inst.dtype).size();
            use_(o.carry, tile(o.outer, o.inner), elem, updated(o.init), true);
            use_(o.dst, tile3(o.outer, o.red, o.inner), size, false, true);
        }
        Operands::Mmad(o) => {
            let elem = dvm_bc::layout::acc_dtype(inst.dtype).map_or(0, DType::size);
            use_(o.acc, tile(o.m, o.n), elem, updated(o.init), true);
        }
        _ => {}
    }
}

fn loops(loops: &[dvm_bc::Loop]) -> u64 {
    loops.iter().map(|l| u64::from(l.count.body)).fold(1, u64::saturating_mul)
}

fn area(rows: Size, cols: Size, size: u32) -> u64 {
    (u64::from(rows.body) * u64::from(cols.body)).saturating_mul(u64::from(size))
}

/// Elements that a mode reads.
fn elements(mode: Mode, rows: Size, cols: Size) -> u64 {
    match mode {
        Mode::Full => u64::from(rows.body) * u64::from(cols.body),
        Mode::Row => u64::from(cols.body),
        Mode::Col => u64::from(rows.body),
        Mode::One => 1,
    }
}

/// Whether rows in the argument are laid out as in local memory.
fn contiguous(rows: Size, cols: Size, pitch: i64, size: u32) -> bool {
    rows.body == 1 || pitch == i64::from(cols.body) * i64::from(size)
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let i = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(i)
    })
}

/// The argument operand of a load or store that is bound.
pub(super) fn bound_operand(inst: &Inst) -> Option<&Mem> {
    match &inst.operands {
        Operands::Load(o) => Some(&o.src),
        Operands::Store(o) => Some(&o.dst),
        _ => None,
    }
}
