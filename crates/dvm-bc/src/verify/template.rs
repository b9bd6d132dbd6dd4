//! Checks of one template, done once however many units use it.

use smallvec::SmallVec;

use super::Decoded;
use super::address::{Footprint, NoFootprint, Placed, disjoint, same_tile};
use super::footprint::{Dim, MemAccess, PanelUse, Region, Sink, uses};
use super::local::{At, LocalState};
use super::operands::{
    Problems, Range, Ranges, accumulator, elements, immediate, operands, overlaps, pitch, sound,
};
use super::report::{InstAt, Report, Where};
use super::sync::{self, SyncState};
use crate::decode::Decoder;
use crate::layout::{SUM_BLOCK_X, SUM_BLOCK_Y};
use crate::{
    Access, Class, CoreKind, DType, Init, Inst, Kind, Local, MAX_PARALLEL, MAX_SEQ, Opcode, Operand,
    Operands, Phase, Place, Size, Space, Target, Template,
};

/// An access to an argument that happens.
pub(super) struct MemUse {
    pub(super) slot: u16,
    pub(super) write: bool,
    /// A load that may be skipped.
    pub(super) sticky: bool,
    pub(super) at: InstAt,
    pub(super) footprint: Footprint,
}

/// What a slot is used for, over all instructions.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotUse {
    /// Hull of all accesses; empty where there is none.
    pub(super) lo: i64,
    pub(super) hi: i64,
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Accessed by strides.
    pub(super) plain: bool,
    /// Bound as panels, `panel_stride` bytes apart (0 where only one is ever bound).
    pub(super) panels: bool,
    pub(super) panel_stride: i64,
}

/// What the units need to know about a template.
#[derive(Default)]
pub(super) struct TemplateInfo {
    pub(super) uses: Vec<MemUse>,
    pub(super) slots: Vec<SlotUse>,
    pub(super) tiles: u64,
    /// Instructions executed a tile.
    pub(super) instructions: u64,
    /// Elements they work on, a tile.
    pub(super) elements: u64,
    /// Some load and some store of one slot touch common bytes.
    pub(super) in_place: bool,
}

/// Pairs of accesses of one template that may be compared.
const PAIRS: usize = 1 << 14;

struct Checker<'a> {
    target: &'a Target,
    template: &'a Template,
    index: u32,
    info: &'a mut TemplateInfo,
    local: &'a mut LocalState,
    sync: &'a mut SyncState,
    /// Which slots are bound to rings; empty where none is.
    rings: &'a [bool],
    report: &'a mut Report,
    /// Bytes of each space.
    capacity: [u64; 4],
    /// What the current instruction reads and writes of vector memory.
    reads: Ranges,
    writes: Ranges,
    /// Instruction number.
    number: u32,
}

/// What is reused from template to template.
#[derive(Default)]
pub(super) struct Scratch {
    local: LocalState,
    sync: SyncState,
}

/// Where a section stands.
struct Scope<'a> {
    place: Place,
    /// Extents that have an index here: parallel, then sequential.
    extents: &'a [u32],
    rotate: bool,
    /// Points of the phase's walk.
    points: u64,
    /// How often its code runs in a tile.
    times: u64,
    /// Its code runs at least once in a tile.
    runs: bool,
}

/// Checks a template, some of whose slots are bound to `rings`.
pub(super) fn check(
    target: &Target,
    index: u32,
    template: &Template,
    rings: &[bool],
    (scratch, decoded): (&mut Scratch, &mut Decoded),
    info: &mut TemplateInfo,
    report: &mut Report,
) {
    let Scratch { local, sync } = scratch;
    local.clear();
    sync.clear();
    let TemplateInfo { mut uses, mut slots, .. } = std::mem::take(info);
    uses.clear();
    slots.clear();
    slots.resize(template.slots.len(), SlotUse::default());
    *info = TemplateInfo { uses, slots, ..TemplateInfo::default() };
    let capacity = Space::ALL.map(|s| target.capacity(s));
    let (reads, writes) = (Ranges::default(), Ranges::default());
    let mut c = Checker {
        target,
        template,
        index,
        info,
        local,
        sync,
        rings,
        report,
        capacity,
        reads,
        writes,
        number: 0,
    };
    decoded.begin();
    c.template(decoded);
}

impl Checker<'_> {
    fn template(&mut self, decoded: &mut Decoded) {
        let at = Where::Template(self.index);
        let t = self.template;
        if t.parallel.len() > MAX_PARALLEL {
            self.report
                .push(at, format!("{} parallel extents are more than {MAX_PARALLEL}", t.parallel.len()));
            return;
        }
        if t.slots.len() > usize::from(u16::MAX) {
            self.report.push(at, format!("{} slots are more than 65535", t.slots.len()));
            return;
        }
        self.info.tiles = t.parallel.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
        for (i, phase) in t.phases.iter().enumerate() {
            self.phase(i as u32, phase, decoded);
        }
        self.local.finish(self.report);
        self.sync.finish(self.report);
        self.pairs();
    }

    fn phase(&mut self, index: u32, phase: &Phase, decoded: &mut Decoded) {
        let at = Where::Phase(self.index, index);
        let parallel = &self.template.parallel;
        if phase.seq.len() > MAX_SEQ {
            self.report.push(at, format!("{} sequential extents are more than {MAX_SEQ}", phase.seq.len()));
            return;
        }
        if phase.rotate && phase.seq.is_empty() {
            self.report.push(at, "rotates without a sequential extent");
        }
        let mut extents: SmallVec<[u32; MAX_PARALLEL + MAX_SEQ]> = SmallVec::from_slice(parallel);
        extents.extend_from_slice(&phase.seq);
        let points_to =
            |depth: usize| phase.seq[..depth].iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
        let points = points_to(phase.seq.len());
        let mut last = None;
        let mut idle = true;
        let mut left = phase.seq.len();
        for section in &phase.sections {
            let place = section.place;
            let rank = match place {
                Place::Init(d) => i32::from(d),
                Place::Body => 256,
                Place::Finish(d) => 512 - i32::from(d),
            };
            if last.is_some_and(|l| l >= rank) {
                self.report.push(at, format!("section {place} is out of order or there twice"));
            }
            last = Some(rank);
            let depth = match place {
                Place::Init(d) | Place::Finish(d) => {
                    if usize::from(d) >= phase.seq.len().max(1) {
                        let n = phase.seq.len();
                        self.report
                            .push(at, format!("section {place}, but there are {n} sequential extents"));
                        continue;
                    }
                    usize::from(d)
                }
                Place::Body => phase.seq.len(),
            };
            while matches!(place, Place::Finish(_)) && left > depth {
                left -= 1;
                self.local.leave((parallel.len() + left) as u8);
            }
            // An empty walk runs what wraps the whole of it, and nothing deeper.
            let times = if points == 0 && depth > 0 { 0 } else { points_to(depth) };
            let scope = Scope {
                place,
                extents: &extents[..parallel.len() + depth],
                rotate: phase.rotate,
                points,
                times,
                runs: times > 0 && self.info.tiles > 0,
            };
            let (mut n, mut ended) = (0u32, false);
            let mut decoder = Decoder::new(section.code.words());
            loop {
                let inst = decoded.next();
                let Some(result) = decoder.read(inst) else { break };
                let here = |mnemonic| InstAt {
                    template: self.index,
                    phase: index,
                    place,
                    index: n,
                    number: self.number,
                    mnemonic,
                };
                match result {
                    Ok(()) => {
                        let at = here(inst.op.mnemonic());
                        if ended {
                            self.report.push(Where::Inst(at), "follows `end`");
                        }
                        ended = inst.op == Opcode::End;
                        self.inst(inst, at, &scope);
                        decoded.keep();
                    }
                    Err(e) => self.report.push(Where::Inst(here("")), e.to_string()),
                }
                n += 1;
                self.number += 1;
            }
            decoded.end();
            self.sync.section(self.report);
            idle &= place != Place::Body || n == 0;
            self.info.instructions =
                self.info.instructions.saturating_add(times.saturating_mul(u64::from(n)));
        }
        // A walk takes time even where it does nothing.
        if idle {
            self.info.instructions = self.info.instructions.saturating_add(points);
        }
        // What a ragged walk left behind.
        if !phase.seq.is_empty() {
            self.local.leave(parallel.len() as u8);
        }
    }

    fn inst(&mut self, inst: &Inst, at: InstAt, scope: &Scope<'_>) {
        let mut problems = Problems::new();
        let bad = &mut problems;
        self.rules(inst, scope, bad);
        sync::unit(self.target, inst, bad);
        self.sync.inst(self.target, inst, at, scope.times, bad);
        if !sound(inst, scope.extents.len()) {
            operands(inst, scope.extents.len(), bad);
        }
        let total = &mut self.info.elements;
        *total = total.saturating_add(elements(inst).saturating_mul(scope.times));
        let target = self.target;
        let (block, capacity, number) = (target.block, self.capacity, self.number);
        let cx = At { block, capacity, number, dtype: inst.dtype, runs: scope.runs, bad };
        (self.reads.len, self.writes.len) = (0, 0);
        uses(inst, target, &mut Visit { inst, at, scope, cx, sticky: None, checker: self });
        overlaps(inst, &self.reads, &self.writes, &mut problems);
        if !problems.is_empty() {
            problems.into_iter().for_each(|message| self.report.push(Where::Inst(at), message));
        }
    }

    /// What the opcode demands of dtypes, immediates and accumulation.
    fn rules(&self, inst: &Inst, scope: &Scope<'_>, bad: &mut Problems) {
        let dtype = inst.dtype;
        if !inst.op.dtypes().contains(dtype) {
            bad.push(format!("does not take {dtype}"));
        }
        let control = inst.op.class() == Class::Control;
        // Control takes no side where one core has all pipes.
        let separate = self.target.separate_cube();
        let cube = (!control || separate) && inst.pipe().is_some_and(|p| p.core() == CoreKind::Cube);
        let vector = !cube && !control && inst.op.class() != Class::Dma;
        match self.template.kind {
            Kind::Vector if cube => bad.push("is a cube instruction in a vector template".to_owned()),
            Kind::Cube if vector || (separate && !cube && inst.pipe().is_some()) => {
                bad.push("is a vector instruction in a cube template".to_owned());
            }
            _ => {}
        }
        let index = |d: DType, bad: &mut Problems| {
            if !matches!(d, DType::I32 | DType::I64) {
                bad.push(format!("index dtype {d} is neither i32 nor i64"));
            }
        };
        let init = match &inst.operands {
            Operands::GatherLoad(o) => {
                index(o.index_dtype, bad);
                None
            }
            Operands::GatherElems(o) => {
                index(o.index_dtype, bad);
                None
            }
            Operands::ScatterStore(o) => {
                index(o.index_dtype, bad);
                None
            }
            Operands::ScatterElems(o) => {
                index(o.index_dtype, bad);
                None
            }
            Operands::CompressStore(o) => Some(o.init),
            Operands::ClearPad(o) => {
                immediate("value", o.value, dtype, bad);
                pitch(o.pitch, o.cols, bad);
                None
            }
            Operands::RemovePad(o) => {
                pitch(o.pitch, o.cols, bad);
                None
            }
            Operands::PackA(o) => {
                pitch(o.pitch, o.k, bad);
                None
            }
            Operands::AccStore(o) => {
                accumulator(o.from, bad);
                None
            }
            Operands::Fill(o) => {
                immediate("value", o.value, dtype, bad);
                None
            }
            Operands::FillStore(o) => {
                immediate("value", o.value, dtype, bad);
                None
            }
            Operands::AccToUb(o) => {
                accumulator(o.from, bad);
                None
            }
            Operands::Reduce(o) => {
                let border = if o.inner.body == 1 { SUM_BLOCK_X } else { SUM_BLOCK_Y };
                let pieces = o.init != Init::Always && scope.place == Place::Body && scope.points > 1;
                if inst.op == Opcode::VSum && dtype.is_float() && pieces && !o.red.body.is_multiple_of(border)
                {
                    bad.push(format!("pieces of {} elements do not end on borders of {border}", o.red.body));
                }
                Some(o.init)
            }
            Operands::PartSum(o) => Some(o.init),
            Operands::ArgReduce(o) => Some(o.init),
            Operands::CumSum(o) => Some(o.init),
            Operands::Mmad(o) => Some(o.init),
            _ => None,
        };
        match init {
            Some(Init::First) if scope.place != Place::Body => {
                bad.push(format!("`first` has a meaning in the body only, not in {}", scope.place));
            }
            Some(Init::First | Init::Accumulate) if scope.rotate && scope.points > 1 => {
                bad.push(
                    "accumulates along a walk that rotates, so that its order would depend on the tile"
                        .to_owned(),
                );
            }
            _ => {}
        }
    }

    fn sticky(&mut self, inst: &Inst, at: InstAt, moving: u32, range: (Space, u64, u64), bad: &mut Problems) {
        inst.visit(|name, _, operand| {
            if let Operand::Size(Size { body, tail, extent: Some(e) }) = operand
                && body != tail
                && moving >> (e & 31) & 1 == 0
            {
                bad.push(format!("sticky, but `{name}` changes with an extent of stride 0"));
            }
        });
        self.local.sticky(range, at, bad);
    }

    fn mem(&mut self, inst: &Inst, a: &MemAccess<'_>, at: InstAt, scope: &Scope<'_>, bad: &mut Problems) {
        let slot_index = a.mem.slot;
        let Some(slot) = self.template.slots.get(usize::from(slot_index)) else {
            bad.push(format!("slot ${slot_index}, but the template has {}", self.template.slots.len()));
            return;
        };
        if slot.dtype != inst.dtype {
            bad.push(format!("slot ${slot_index} holds {}, not {}", slot.dtype, inst.dtype));
        }
        if a.write && !slot.write {
            bad.push(format!("stores to slot ${slot_index}, which is not writable"));
        }
        if a.write && a.hints.sticky {
            bad.push("a store cannot be sticky".to_owned());
        }
        let size = i64::from(inst.dtype.size());
        let strides = a.mem.strides.iter().map(|s| s.1).chain(a.dims.iter().map(|d| d.stride));
        if let Some(odd) = strides.chain([a.mem.offset]).find(|s| s % size != 0) {
            bad.push(format!("offset or stride {odd} is not a multiple of the element's {size} bytes"));
        }
        if let Operands::BindB(o) = &inst.operands {
            self.panel_stride(slot_index, o.panel_stride, o.n.body, bad);
            let unit = a.unit as i64;
            if let Some(odd) = a.mem.strides.iter().map(|s| s.1).chain([a.mem.offset]).find(|s| s % unit != 0)
            {
                bad.push(format!("offset or stride {odd} is not a multiple of a panel row's {unit} bytes"));
            }
        }
        if !scope.runs {
            return;
        }
        let parallel = self.template.parallel.len();
        let mut footprint = match Footprint::new(a.mem, a.dims, a.unit, scope.extents, parallel) {
            Ok(f) => f,
            Err(NoFootprint::Never) => return,
            Err(NoFootprint::Bad(message)) => {
                bad.push(message);
                return;
            }
        };
        if a.sparse {
            (footprint.injective, footprint.sparse) = (false, true);
        }
        let ring = self.ring(slot_index);
        if ring && footprint.parallel.iter().any(|p| p.0 != 0) {
            bad.push("moves in a ring with a parallel extent, but a tile has the ring to itself".to_owned());
        }
        if ring && a.hints.sticky {
            bad.push("a ring changes from tile to tile, so a load of it cannot be sticky".to_owned());
        }
        if a.write && !ring && !footprint.tiles_disjoint {
            bad.push("tiles cannot be proved to store to different bytes".to_owned());
        }
        let info = &mut self.info.slots[usize::from(slot_index)];
        let seen = info.reads || info.writes;
        info.lo = if seen { info.lo.min(footprint.lo) } else { footprint.lo };
        info.hi = if seen { info.hi.max(footprint.hi) } else { footprint.hi };
        info.reads |= !a.write;
        info.writes |= a.write;
        info.plain |= !a.panels;
        info.panels |= a.panels;
        self.info.uses.push(MemUse {
            slot: slot_index,
            write: a.write,
            sticky: a.hints.sticky,
            at,
            footprint,
        });
    }

    /// Whether a slot is bound to a ring.
    fn ring(&self, slot: u16) -> bool {
        self.rings.get(usize::from(slot)) == Some(&true)
    }

    /// All binds of a slot agree on the distance of panels.
    fn panel_stride(&mut self, slot: u16, stride: i64, n: u32, bad: &mut Problems) {
        let nr = self.target.nr(self.template.slots[usize::from(slot)].dtype.size());
        if n <= nr {
            return;
        }
        let known = &mut self.info.slots[usize::from(slot)].panel_stride;
        if stride <= 0 || (*known != 0 && *known != stride) {
            bad.push(format!("panel stride {stride} is not positive or not that of another bind"));
        }
        *known = stride;
    }

    /// Accesses of one slot, at least one of which stores, meet within a tile or not at all.
    fn pairs(&mut self) {
        let mut budget = PAIRS;
        let uses = &self.info.uses;
        if !self.template.slots.iter().any(|s| s.write) {
            return;
        }
        let ring = |slot: u16| self.rings.get(usize::from(slot)) == Some(&true);
        for (i, a) in uses.iter().enumerate() {
            if ring(a.slot) {
                continue;
            }
            for b in uses[i + 1..].iter().filter(|b| b.slot == a.slot && (a.write || b.write)) {
                if budget == 0 {
                    let at = Where::Template(self.index);
                    self.report.push(at, format!("more than {PAIRS} pairs of accesses to one slot"));
                    return;
                }
                budget -= 1;
                let (pa, pb) = (Placed { f: &a.footprint, base: 0 }, Placed { f: &b.footprint, base: 0 });
                if disjoint(pa, pb) {
                    continue;
                }
                if let Some((load, store)) = unstuck(a, b) {
                    self.report.push(Where::Inst(load), format!("sticky, but {store} stores what it loads"));
                }
                if same_tile(pa, pb) {
                    self.info.in_place |= a.write != b.write;
                } else {
                    self.report.push(
                        Where::Inst(b.at),
                        format!("may touch bytes of slot ${} that another tile's {} touches", a.slot, a.at),
                    );
                }
            }
        }
    }
}

/// A sticky load and a store, if these are such: when they meet, what is loaded depends on whether the load is skipped.
pub(super) fn unstuck(a: &MemUse, b: &MemUse) -> Option<(InstAt, InstAt)> {
    match (a.sticky && !a.write, b.sticky && !b.write) {
        (true, _) if b.write => Some((a.at, b.at)),
        (_, true) if a.write => Some((b.at, a.at)),
        _ => None,
    }
}

/// Takes the uses of one instruction.
struct Visit<'v, 'a> {
    checker: &'v mut Checker<'a>,
    inst: &'v Inst,
    at: InstAt,
    scope: &'v Scope<'v>,
    cx: At<'v>,
    /// The extents that move a sticky load whose destination is still to come.
    sticky: Option<u32>,
}

impl Visit<'_, '_> {
    fn stick(&mut self, space: Space, lo: u64, hi: u64) {
        if let Some(moving) = self.sticky.take() {
            self.checker.sticky(self.inst, self.at, moving, (space, lo, hi), self.cx.bad);
        }
    }
}

impl Sink for Visit<'_, '_> {
    #[inline]
    fn local(&mut self, name: &'static str, access: Access, local: Local, space: Space, region: &Region) {
        let found = self.checker.local.local(&mut self.cx, name, access, local, space, region);
        let Some((lo, hi)) = found else { return };
        if space != Space::Ub {
            return;
        }
        if access.reads() {
            self.checker.reads.push(Range { name, lo, hi, elem: region.elem });
        }
        if access.writes() {
            self.checker.writes.push(Range { name, lo, hi, elem: region.elem });
            self.stick(space, lo, hi);
        }
    }
    fn strided(&mut self, name: &'static str, local: Local, dims: &[Dim], unit: u64) {
        if let Some((lo, hi)) = self.checker.local.strided(&mut self.cx, name, local, dims, unit) {
            self.checker.reads.push(Range { name, lo, hi, elem: 0 });
        }
    }
    fn panel(&mut self, panel: &PanelUse) {
        self.checker.local.panel(&mut self.cx, panel);
        let lo = u64::from(panel.local.offset) * u64::from(self.checker.target.block);
        self.stick(panel.space, lo, lo.saturating_add(panel.bytes));
    }
    fn mem(&mut self, access: &MemAccess<'_>) {
        if access.hints.sticky && !access.write {
            self.sticky = Some(access.mem.strides.iter().fold(0, |m, s| m | 1 << (s.0 & 31)));
        }
        self.checker.mem(self.inst, access, self.at, self.scope, self.cx.bad);
    }
}
