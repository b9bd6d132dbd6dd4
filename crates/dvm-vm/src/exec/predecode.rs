//! Turns verified code into resolved operations.

use std::cell::Cell;

use dvm_bc::{
    DecodedTemplate, Inst, Local, Mem, Mode, Phase, Place as At, Program, Role, Size, Space, Strides, Target,
    Template, Unit, Verified,
};
use smallvec::SmallVec;

use super::elide::{self, Bound, Plan};
use super::inst::{Site, Step as Resolve};
use super::span::Span;
use super::traffic::{Move, Moves};
use super::uses::{bound_operand, moved};
use super::{
    Addr, BASE_ARENA, BASE_BOUND, BASE_CONST, BuildOptions, Ew, Executable, FoldTo, Len, NOT_STICKY, Op,
    OpKind, OpRange, PhaseExec, Place, StepExec, TemplateExec, UnitExec, ViewLoop, chain,
};
use crate::{BuildError, Isa};

/// Space between the parts of a worker's arena, so that kernels that read whole vectors stay inside it.
const PAD: u64 = 64;

pub(super) struct Builder<'a> {
    pub(super) target: &'a Target,
    pub(super) isa: Isa,
    pub(super) options: &'a BuildOptions,
    pub(super) block: u32,
    /// Byte offset of each space in the arena.
    pub(super) spaces: [u32; 4],
    pub(super) ops: &'a mut Vec<Op>,
    pub(super) ews: &'a mut Vec<Ew>,
    pub(super) strides: &'a mut Vec<(u32, i64)>,
    pub(super) loops: &'a mut Vec<ViewLoop>,
    pub(super) consts: &'a mut Vec<u64>,
    pub(super) phases: Vec<PhaseExec>,
    /// Packed operands of the current template, by their place in local memory.
    pub(super) panels: Vec<Local>,
    /// Those bound to unwidened halves.
    pub(super) narrow_panels: Vec<u32>,
    pub(super) stickies: u32,
    /// The current template stores bytes that it also loads.
    pub(super) in_place: bool,
    pub(super) bases: u32,
    pub(super) plan: &'a mut Plan,
    pub(super) moves: Vec<Move>,
    pub(super) sections: Vec<Moves>,
    /// Slots of the current template whose stores go past the caches; none in most programs.
    pub(super) streamed: Vec<bool>,
    /// Instruction being resolved.
    now: usize,
    /// Elements times cost of the section being built.
    pub(super) cost: f32,
}

/// What predecoding allocates for itself, kept for the next program.
#[derive(Default)]
struct Scratch {
    plan: Plan,
    ops: Vec<Op>,
    ews: Vec<Ew>,
    strides: Vec<(u32, i64)>,
    loops: Vec<ViewLoop>,
    consts: Vec<u64>,
}

impl Scratch {
    /// Instructions and elementwise operations that are worth keeping room for.
    const KEEP: usize = 4096;

    fn clear(&mut self) {
        self.ops.clear();
        self.ews.clear();
        self.strides.clear();
        self.loops.clear();
        self.consts.clear();
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

pub(super) fn predecode(
    program: Verified<Program>,
    options: &BuildOptions,
) -> Result<Executable, BuildError> {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.clear();
    let result = build(program, options, &mut scratch);
    if scratch.ews.capacity() <= Scratch::KEEP && scratch.ops.capacity() <= Scratch::KEEP {
        SCRATCH.set(Some(scratch));
    }
    result
}

fn build(
    mut program: Verified<Program>,
    options: &BuildOptions,
    scratch: &mut Scratch,
) -> Result<Executable, BuildError> {
    let decoded = program.take_decoded().map_err(|(t, source)| {
        let template = program.templates.get(t).map_or_else(String::new, |t| t.name.clone());
        BuildError::Decode { template, source }
    })?;
    let mut spaces = [0u32; 4];
    let mut end = 0u64;
    #[cfg(feature = "testing")]
    let mut pads = Vec::new();
    for space in Space::ALL {
        spaces[space as usize] = end.min(u64::from(u32::MAX)) as u32;
        let bytes = program.target.capacity(space);
        #[cfg(feature = "testing")]
        pads.push(end.saturating_add(bytes) as usize..end.saturating_add(bytes).saturating_add(PAD) as usize);
        end = end.saturating_add(bytes).saturating_add(PAD).checked_next_multiple_of(64).unwrap_or(u64::MAX);
    }
    if end > options.local_limit.min(u64::from(u32::MAX)) {
        return Err(BuildError::LocalMemory { bytes: end, limit: options.local_limit });
    }
    let isa = options.isa.or_portable();
    let (rings, ring_bytes) = rings(&program, options)?;
    let Scratch { plan, ops, ews, strides, loops, consts } = scratch;
    let mut b = Builder {
        target: &program.target,
        isa,
        options,
        block: program.target.block,
        spaces,
        ops,
        ews,
        strides,
        loops,
        consts,
        phases: Vec::with_capacity(program.templates.iter().map(|t| t.phases.len()).sum()),
        panels: Vec::new(),
        narrow_panels: Vec::new(),
        stickies: 0,
        in_place: false,
        bases: BASE_BOUND,
        plan,
        moves: Vec::new(),
        sections: Vec::new(),
        streamed: Vec::new(),
        now: 0,
        cost: 0.0,
    };
    let mut templates = Vec::with_capacity(program.templates.len());
    let (mut bases, mut panels, mut slots) = (BASE_BOUND, 0, 0);
    let streams = Streams::of(&program, options);
    for (t, template) in program.templates.iter().enumerate() {
        // A verified program has them all.
        let Some(decoded) = decoded.get(t) else { continue };
        if let Some(streams) = &streams {
            streams.slots(&program, t, &mut b.streamed);
        }
        templates.push(b.template(&program, template, t, &decoded)?);
        bases = bases.max(b.bases);
        panels = panels.max(b.panels.len() as u32);
        slots = slots.max(template.slots.len() as u32);
    }
    let slot_count = |u: &Unit| program.templates.get(u.template as usize).map_or(0, |t| t.slots.len());
    let all = || program.steps.iter().flat_map(|s| &s.units);
    let mut units = Vec::with_capacity(all().count());
    let mut bindings = Vec::with_capacity(all().map(slot_count).sum());
    let mut steps = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let first = units.len() as u32;
        let (mut tiles, mut cost) = (0u64, 0f32);
        for unit in &step.units {
            let t = &templates[unit.template as usize];
            let slots = bindings.len() as u32;
            bindings.extend(unit.slots.iter().map(|&(arg, offset)| {
                rings.iter().find(|r| r.0 == arg).map_or((arg, offset), |r| (RINGS, r.1 + offset))
            }));
            units.push(UnitExec {
                template: unit.template,
                slots: slots..bindings.len() as u32,
                first_tile: tiles,
            });
            tiles = tiles.saturating_add(t.tiles);
            cost += t.tiles as f32 * t.cost;
        }
        let counts = |u: &UnitExec| templates[u.template as usize].tiles;
        let spans = match step.limits.as_slice() {
            [] => vec![],
            limits => {
                let counts: Vec<u64> = units[first as usize..].iter().map(counts).collect();
                Span::divide(limits, &counts)
            }
        };
        steps.push(StepExec { units: first..units.len() as u32, tiles, cost, spans });
    }
    let (phases, stickies, moves, sections) = (b.phases, b.stickies, b.moves, b.sections);
    Ok(Executable {
        isa,
        ops: ops.to_vec(),
        ews: ews.to_vec(),
        strides: strides.to_vec(),
        loops: loops.to_vec(),
        consts: consts.to_vec(),
        phases,
        templates,
        units,
        steps,
        bindings,
        moves,
        sections,
        local_bytes: end as usize,
        ring_bytes,
        bases,
        panels,
        stickies,
        slots,
        streams: streams.is_some(),
        #[cfg(feature = "testing")]
        poison: options.poison,
        #[cfg(feature = "testing")]
        pads,
        program,
    })
}

/// Which arguments of a program that touches more than the caches hold are written and not read: to keep their bytes there
/// would only push out others.
struct Streams {
    args: Vec<bool>,
}

impl Streams {
    /// Nothing where the caches suffice.
    fn of(program: &Verified<Program>, options: &BuildOptions) -> Option<Streams> {
        let bytes = program.args.iter().fold(0u64, |n, a| n.saturating_add(a.bytes));
        if bytes <= options.stream_above {
            return None;
        }
        let mut args: Vec<bool> = program.args.iter().map(|a| a.role == Role::Output).collect();
        for unit in program.steps.iter().flat_map(|s| &s.units) {
            let template = &program.templates[unit.template as usize];
            for (slot, &(arg, _)) in template.slots.iter().zip(&unit.slots) {
                args[arg as usize] &= slot.write;
            }
        }
        Some(Streams { args })
    }

    /// Which slots of a template are bound to such arguments only.
    fn slots(&self, program: &Verified<Program>, number: usize, out: &mut Vec<bool>) {
        let template = &program.templates[number];
        out.clear();
        out.resize(template.slots.len(), !program.in_place(number as u32));
        let units = program.steps.iter().flat_map(|s| &s.units);
        for unit in units.filter(|u| u.template as usize == number) {
            for (out, &(arg, _)) in out.iter_mut().zip(&unit.slots) {
                *out &= self.args[arg as usize];
            }
        }
    }
}

/// Ring arguments and where they lie in a worker's memory for them, and the bytes of that.
type Rings = SmallVec<[(u32, u64); 2]>;

/// The argument of a slot that is bound to a ring: beyond those of the program.
const RINGS: u32 = u32::MAX;

fn rings(program: &Program, options: &BuildOptions) -> Result<(Rings, usize), BuildError> {
    let (mut rings, mut end) = (Rings::new(), 0u64);
    for (i, arg) in program.args.iter().enumerate().filter(|(_, a)| a.role == Role::Ring) {
        rings.push((i as u32, end));
        end = end.saturating_add(arg.bytes).checked_next_multiple_of(64).unwrap_or(u64::MAX);
    }
    let limit = options.local_limit.min(u64::from(u32::MAX));
    if end > limit { Err(BuildError::LocalMemory { bytes: end, limit }) } else { Ok((rings, end as usize)) }
}

impl Builder<'_> {
    fn template(
        &mut self,
        program: &Verified<Program>,
        template: &Template,
        number: usize,
        decoded: &DecodedTemplate<'_>,
    ) -> Result<TemplateExec, BuildError> {
        self.panels.clear();
        self.narrow_panels.clear();
        self.in_place = program.in_place(number as u32);
        if self.options.elide || self.options.strips {
            let stores_meet = elide::stores_meet(program, number, template, decoded);
            self.plan.make(template, decoded, self.options, self.in_place, stores_meet, self.block);
        } else {
            self.plan.clear();
        }
        self.bases = self.plan.bases();
        let mut parallel = [1u32; dvm_bc::MAX_PARALLEL];
        parallel[..template.parallel.len()].copy_from_slice(&template.parallel);
        let tiles = template.parallel.iter().fold(1u64, |t, &n| t.saturating_mul(u64::from(n)));
        let first = self.phases.len() as u32;
        let mut cost = 20.0f32;
        let mut sections = 0;
        for phase in &template.phases {
            let (exec, c) = self.phase(template, phase, decoded, &mut sections)?;
            self.phases.push(exec);
            cost += c;
        }
        Ok(TemplateExec {
            parallel,
            depth: template.parallel.len(),
            phases: first..self.phases.len() as u32,
            tiles,
            cost,
        })
    }

    fn phase(
        &mut self,
        template: &Template,
        phase: &Phase,
        decoded: &DecodedTemplate<'_>,
        number: &mut usize,
    ) -> Result<(PhaseExec, f32), BuildError> {
        let mut seq = [1u32; 3];
        seq[..phase.seq.len()].copy_from_slice(&phase.seq);
        let mut exec = PhaseExec {
            seq,
            depth: phase.seq.len(),
            empty: phase.seq.contains(&0),
            rotate: phase.rotate,
            init: [0..0, 0..0, 0..0, 0..0],
            body: 0..0,
            finish: [0..0, 0..0, 0..0, 0..0],
        };
        let mut cost = 0.0;
        for section in &phase.sections {
            self.cost = 0.0;
            let own = decoded.section(*number);
            let range = self.section(template, &decoded.insts()[own.clone()], own.start)?;
            *number += 1;
            if self.options.traffic {
                self.note_moves(&decoded.insts()[own], range.start);
            }
            let times = |depth: usize| seq[..depth].iter().map(|&n| n as f32).product::<f32>();
            match section.place {
                At::Init(d) => {
                    exec.init[usize::from(d).min(3)] = range;
                    cost += self.cost * times(usize::from(d));
                }
                At::Body => {
                    exec.body = range;
                    cost += self.cost * times(3);
                }
                At::Finish(d) => {
                    exec.finish[usize::from(d).min(3)] = range;
                    cost += self.cost * times(usize::from(d));
                }
            }
        }
        Ok((exec, cost))
    }

    fn section(&mut self, template: &Template, insts: &[Inst], from: usize) -> Result<OpRange, BuildError> {
        let first = self.ops.len() as u32;
        let mut group = None;
        // Addresses stand for the whole section; bound at its beginning they break no run.
        for (i, inst) in insts.iter().enumerate() {
            if let (Some(base), Some(mem)) = (self.plan.step(from + i).bind, bound_operand(inst)) {
                let addr = self.addr(mem);
                self.ops.push(Op { index: (from + i) as u32, kind: OpKind::Bind { base, addr } });
            }
        }
        for (i, inst) in insts.iter().enumerate() {
            let index = (from + i) as u32;
            self.now = from + i;
            self.cost += 5.0;
            let step = self.plan.step(from + i);
            if step.skip {
                self.charge(inst, moved(inst));
                continue;
            }
            let resolved = inst.accept(&mut Site { b: self, at: from + i });
            let Some(resolved) = resolved else { return Err(unsupported(template, index, inst)) };
            if let (Some((rows, block)), false) = (step.rows, matches!(resolved, Resolve::Nothing)) {
                group = Some(self.ops.len());
                self.ops.push(Op { index, kind: OpKind::ByRows { count: 0, rows: len(rows), block } });
            }
            match resolved {
                Resolve::Nothing => continue,
                Resolve::Elementwise(ew) => {
                    // It joins the run before it.
                    if step.joins
                        && let Some(Op { kind: OpKind::Elementwise { count, fold: None, .. }, .. }) =
                            self.ops.last_mut()
                    {
                        *count += 1;
                        continue;
                    }
                    self.ops
                        .push(Op { index, kind: OpKind::Elementwise { first: ew, count: 1, fold: None } });
                }
                Resolve::Other(kind) => {
                    if self.folds(&kind, step.folds) {
                        continue;
                    }
                    self.ops.push(Op { index, kind });
                }
            }
            if step.by_rows
                && let Some(g) = group
                && let OpKind::ByRows { count, .. } = &mut self.ops[g].kind
            {
                *count += 1;
            }
        }
        for op in &self.ops[first as usize..] {
            if let OpKind::Elementwise { first, count, fold } = op.kind
                && self.options.strips
            {
                let run = first as usize..(first + count) as usize;
                chain::join(&mut self.ews[run], fold.is_some(), self.isa);
            }
        }
        Ok(first..self.ops.len() as u32)
    }

    /// Whether a reduction joins the elementwise run before it; `wanted` says that it may, and whether its source is needed
    /// afterwards.
    fn folds(&mut self, kind: &OpKind, wanted: Option<bool>) -> bool {
        let (Some(keep), &OpKind::Reduce { dst, what, dtype, .. }) = (wanted, kind) else { return false };
        let Some(Op { kind: OpKind::Elementwise { first, count, fold }, .. }) = self.ops.last_mut() else {
            return false;
        };
        let run = &self.ews[*first as usize..];
        if fold.is_some() || run.len() != *count as usize || !chain::may_fold(what, dtype, run, self.isa) {
            return false;
        }
        *fold = Some(FoldTo { dst, keep });
        true
    }

    pub(super) fn place(&self, local: Local) -> Place {
        self.bound_place(self.plan.bound(self.now, local), local)
    }

    /// As [`Builder::place`], of source `i` of elementwise instruction `at`.
    pub(super) fn source(&self, at: usize, i: usize, local: Local) -> Place {
        self.bound_place(self.plan.bound_source(at, i, local), local)
    }

    /// Where elementwise instruction `at` puts its result.
    pub(super) fn result(&self, at: usize, dst: Local) -> Place {
        match self.plan.step(at).result {
            Some(base) => Place { base, off: 0 },
            None => self.bound_place(None, dst),
        }
    }

    fn bound_place(&self, bound: Option<Bound>, local: Local) -> Place {
        let local = match bound {
            Some(Bound::Base(base)) => return Place { base, off: 0 },
            Some(Bound::Local(other)) => other,
            None => local,
        };
        Place { base: BASE_ARENA, off: self.spaces[local.space as usize] + local.offset * self.block }
    }

    pub(super) fn panel(&mut self, local: Local) -> u32 {
        if let Some(i) = self.panels.iter().position(|&p| p == local) {
            return i as u32;
        }
        self.panels.push(local);
        self.panels.len() as u32 - 1
    }

    pub(super) fn strides(&mut self, strides: &Strides) -> (u32, u16) {
        let first = self.strides.len() as u32;
        self.strides.extend(strides.iter().map(|&(e, s)| (u32::from(e), s)));
        (first, strides.len() as u16)
    }

    pub(super) fn addr(&mut self, mem: &Mem) -> Addr {
        let (first, count) = self.strides(&mem.strides);
        Addr { slot: mem.slot, count, first, offset: mem.offset }
    }

    pub(super) fn imm(&mut self, bits: u64) -> Place {
        self.consts.push(bits);
        Place { base: BASE_CONST, off: (self.consts.len() as u32 - 1) * 8 }
    }

    /// The number of a sticky load, if it may be skipped: not where its bytes may have been stored to since.
    pub(super) fn sticky(&mut self, wanted: bool) -> u32 {
        if !wanted || self.in_place {
            return NOT_STICKY;
        }
        self.stickies += 1;
        self.stickies - 1
    }
}

#[cold]
fn unsupported(template: &Template, index: u32, inst: &Inst) -> BuildError {
    BuildError::Unsupported {
        template: template.name.clone(),
        index,
        mnemonic: inst.op.mnemonic(),
        dtype: inst.dtype,
    }
}

pub(super) fn len(s: Size) -> Len {
    Len {
        body: s.body,
        tail: s.tail,
        mask: s.extent.map_or(0, |e| 1u32.checked_shl(u32::from(e)).unwrap_or(0)),
    }
}

/// A mode that is the same for these counts and easier to run: one row or one column makes broadcasts whole tiles.
pub(super) fn simplify(mode: Mode, rows: Size, cols: Size) -> Mode {
    match mode {
        Mode::Row if cols.body == 1 => Mode::One,
        Mode::Col if rows.body == 1 => Mode::One,
        Mode::Row if rows.body == 1 => Mode::Full,
        Mode::Col if cols.body == 1 => Mode::Full,
        m => m,
    }
}
