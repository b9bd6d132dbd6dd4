//! A plan at concrete dims -> one program.
//!
//! Each distinct kernel is compiled once; its calls become units that differ in their slots. Every level is a step. A call whose
//! kernel does not fit, or not well, is made in the parts that the plan has for it, each a step of its own.
//! Intermediates share one workspace argument: a buffer lives from the level that stores it to the last that loads it.

use dvm_bc::layout::Matrices;
use dvm_bc::{Arg, CoreLimit, Layout, Program, Role, Step, Template, Unit};
use dvm_ir::plan::{BufferKind, Call, KernelId};
use dvm_ir::{DimValues, Plan};
use dvm_npu::MachineSpec;

use crate::compile::{self, Scratch, Units};
use crate::error::{Fault, TileError};
use crate::split::Bound;
use crate::{Pack, Tiling, lower};

/// Alignment of arguments and of buffers in the workspace, bytes.
const ALIGN: u64 = 64;
/// Most bytes of a workspace: more than any machine has, and sums of two fit.
const MOST: u64 = 1 << 60;
const NONE: u32 = u32::MAX;

/// What an argument of the program is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgBinding {
    /// Input number i of the plan.
    Input(u32),
    /// Output number i of the plan.
    Output(u32),
    /// Constant number i of the plan, packed first where it is read in panels.
    Constant {
        /// Number.
        index: u32,
        /// How it is packed; `None` for its plain bytes.
        pack: Option<Pack>,
    },
    /// The workspace, of [`Compiled::workspace_bytes`].
    Workspace,
    /// The ring between cube and vector cores; what is in it before a launch does not matter.
    Ring,
}

/// A plan compiled for concrete dims.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program, not yet verified.
    pub program: Program,
    /// What each of its arguments is bound to.
    pub arg_buffers: Vec<ArgBinding>,
    /// Size of the workspace.
    pub workspace_bytes: u64,
    /// The tiling of each template.
    pub tilings: Vec<Tiling>,
    /// The plan's kernel that each template was compiled from.
    pub kernels: Vec<KernelId>,
}

/// What is known about a kernel of the plan.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    compiled: bool,
    /// Template, [`NONE`] where it stores nothing.
    template: u32,
    weight: u32,
    pack: Option<(u16, Pack)>,
    /// Its last slot is bound to the ring.
    ring: bool,
    /// Its calls are made in parts.
    parts: bool,
    /// Its entries in `wrote`.
    wrote: (u32, u32),
    /// Its pieces and the buffers between them, where it is several templates; then `template` is that of one of them.
    pieces: (u32, u32),
    temps: (u32, u32),
}

/// A piece of a kernel.
#[derive(Debug)]
struct PieceKnown {
    template: u32,
    weight: u32,
    stage: u32,
    slots: Vec<Bound>,
}

/// A call of the program: one of the plan, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Made {
    call: u32,
    /// Number of the part, [`NONE`] for the whole call.
    part: u32,
    /// The piece of its kernel and the first of its buffers in `inner`, [`NONE`] where the kernel is one template.
    piece: u32,
    inner: u32,
    step: u32,
    /// Its limit of cores, [`NONE`] without one.
    limit: u32,
}

impl Made {
    fn call(self, plan: &Plan) -> &Call {
        let part = |s| plan_part(s, self.part);
        plan.split_of(self.call).and_then(part).unwrap_or(&plan.calls[self.call as usize])
    }
}

/// The buffer that a slot of a piece is bound to; those between pieces come behind the plan's.
fn place_of(plan: &Plan, made: Made, call: &Call, b: Bound) -> usize {
    match b {
        Bound::Operand(i) => call.args[usize::from(i)].index(),
        Bound::Temp(i) => plan.buffers.len() + made.inner as usize + usize::from(i),
    }
}

fn plan_part(split: &dvm_ir::plan::Split, part: u32) -> Option<&Call> {
    split.parts.get(part as usize)
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    lo: u64,
    hi: u64,
}

/// Reused from shape to shape.
#[derive(Debug, Default)]
pub(crate) struct PlanScratch {
    known: Vec<Known>,
    /// (slot, bytes) of each store of each kernel.
    wrote: Vec<(u16, u64)>,
    pieces: Vec<PieceKnown>,
    /// Bytes of each buffer between pieces of a kernel.
    temps: Vec<u64>,
    /// The same for each call made in pieces.
    inner: Vec<u64>,
    /// Per buffer: bytes, first and last level (plus one) that uses it, argument, offset.
    buffers: Vec<Place>,
    /// Packed constants, and for each constant the last of them.
    packs: Vec<Packed>,
    packs_of: Vec<u32>,
    /// Calls in the order of their steps, and how many of those there are.
    made: Vec<Made>,
    steps: u32,
    /// Per call made: the argument of its packed operand.
    packed_arg: Vec<u32>,
    holes: Vec<Hole>,
    order: Vec<u32>,
}

/// A packed constant.
#[derive(Clone, Copy, Debug)]
struct Packed {
    pack: Pack,
    arg: u32,
    /// Another form of the same constant.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    bytes: u64,
    first: u32,
    last: u32,
    arg: u32,
    offset: u64,
    /// Output: bytes stored by all its units, and whether one store covers it.
    stored: u64,
    covered: bool,
}

/// Compiles a verified plan for the dims' values.
///
/// # Errors
/// The first kernel or buffer that cannot be compiled for these dims and this machine.
///
/// # Panics
/// Where [`Scratch::check`] says so, if the program is not sound.
pub fn compile_plan(
    plan: &Plan,
    dims: &DimValues,
    spec: &MachineSpec,
    scratch: &mut Scratch,
) -> Result<Compiled, TileError> {
    let mut ps = std::mem::take(&mut scratch.plan);
    let out = Builder::new(plan, dims, spec, scratch, &mut ps).build();
    scratch.plan = ps;
    if let Ok(c) = &out
        && scratch.check
    {
        crate::assert_sound(&c.program);
    }
    out
}

struct Builder<'a> {
    plan: &'a Plan,
    dims: &'a DimValues,
    spec: &'a MachineSpec,
    scratch: &'a mut Scratch,
    s: &'a mut PlanScratch,
    templates: Vec<Template>,
    tilings: Vec<Tiling>,
    kernel_ids: Vec<KernelId>,
    args: Vec<Arg>,
    bindings: Vec<ArgBinding>,
    /// Bytes of the largest tile that is exchanged through memory, and the argument for it.
    ring: (u64, u32),
}

impl<'a> Builder<'a> {
    fn new(
        plan: &'a Plan,
        dims: &'a DimValues,
        spec: &'a MachineSpec,
        scratch: &'a mut Scratch,
        s: &'a mut PlanScratch,
    ) -> Builder<'a> {
        let n = plan.kernels.len();
        let args = plan.inputs.len() + plan.outputs.len() + plan.constants.len() + 2;
        Builder {
            plan,
            dims,
            spec,
            scratch,
            s,
            templates: Vec::with_capacity(n),
            tilings: Vec::with_capacity(n),
            kernel_ids: Vec::with_capacity(n),
            args: Vec::with_capacity(args),
            bindings: Vec::with_capacity(args),
            ring: (0, NONE),
        }
    }

    fn build(mut self) -> Result<Compiled, TileError> {
        let plan = self.plan;
        self.kernels()?;
        self.buffers()?;
        let workspace = self.workspace()?;
        self.arguments(workspace)?;
        let mut steps = Vec::with_capacity(self.s.steps as usize);
        let mut made = 0..0;
        while made.end < self.s.made.len() {
            let step = self.s.made[made.end].step;
            let next = self.s.made[made.end..].iter().take_while(|m| m.step == step).count();
            made = made.end..made.end + next;
            let mut units = Vec::with_capacity(next);
            let (mut limits, mut last_limit): (Vec<CoreLimit>, u32) = (Vec::new(), NONE);
            for c in made.clone() {
                let call = self.s.made[c].call(plan);
                let known = self.s.known[call.kernel.index()];
                if known.template == NONE {
                    continue;
                }
                let piece = self.s.pieces.get(self.s.made[c].piece as usize);
                let unit = match piece {
                    Some(piece) => {
                        let place = |b: &Bound| {
                            let p = &self.s.buffers[place_of(plan, self.s.made[c], call, *b)];
                            (p.arg, p.offset)
                        };
                        let slots = piece.slots.iter().map(place).collect();
                        Unit { template: piece.template, slots, weight: piece.weight }
                    }
                    None => {
                        let slot = |(i, b): (usize, &dvm_ir::plan::BufferId)| {
                            let place = &self.s.buffers[b.index()];
                            match known.pack {
                                Some((slot, _)) if usize::from(slot) == i => (self.s.packed_arg[c], 0),
                                _ => (place.arg, place.offset),
                            }
                        };
                        let ring = known.ring.then_some((self.ring.1, 0));
                        let slots = call.args.iter().enumerate().map(slot).chain(ring).collect();
                        Unit { template: known.template, slots, weight: known.weight }
                    }
                };
                let limit = self.s.made[c].limit;
                if let Some(l) = plan.limits.get(limit as usize) {
                    let (first, cores) = (units.len() as u32, l.cores.min(self.spec.target.cores).max(1));
                    // Calls that store nothing have no unit.
                    match limits.last_mut().filter(|_| last_limit == limit) {
                        Some(same) => same.units += 1,
                        None => limits.push(CoreLimit { first, units: 1, cores }),
                    }
                    last_limit = limit;
                }
                units.push(unit);
            }
            if !units.is_empty() {
                steps.push(Step { units, limits });
            }
        }
        tracing::debug!(
            templates = self.templates.len(),
            steps = steps.len(),
            arguments = self.args.len(),
            workspace = workspace.unwrap_or(0),
            "plan `{}` compiled for {}",
            plan.name,
            self.spec.target.name
        );
        let program = Program {
            name: plan.name.clone(),
            target: self.spec.target.clone(),
            args: self.args,
            templates: self.templates,
            steps,
            aliases: vec![],
        };
        let workspace_bytes = workspace.unwrap_or(0);
        Ok(Compiled {
            program,
            arg_buffers: self.bindings,
            workspace_bytes,
            tilings: self.tilings,
            kernels: self.kernel_ids,
        })
    }

    /// Compiles the kernels that are called, and lists the calls by steps.
    fn kernels(&mut self) -> Result<(), TileError> {
        let plan = self.plan;
        self.s.known.clear();
        self.s.known.resize(plan.kernels.len(), Known { template: NONE, ..Known::default() });
        self.s.wrote.clear();
        self.s.made.clear();
        self.s.pieces.clear();
        self.s.temps.clear();
        self.s.inner.clear();
        self.s.steps = 0;
        let mut limited = plan.limits.iter().enumerate().peekable();
        for (number, level) in plan.levels.iter().enumerate() {
            let (first, begin) = (self.s.steps, self.s.made.len());
            let mut split = false;
            for (position, &c) in level.calls.iter().enumerate() {
                let mut limit = NONE;
                if let Some(&(i, l)) = limited.peek()
                    && l.level as usize == number
                    && l.first as usize <= position
                {
                    limit = i as u32;
                    if position + 1 == (l.first + l.calls) as usize {
                        limited.next();
                    }
                }
                let parts = plan.split_of(c);
                let kernel = plan.calls[c as usize].kernel;
                self.kernel(kernel, parts.is_some())?;
                let made = Made { call: c, part: NONE, piece: NONE, inner: NONE, step: first, limit };
                let mut end = first;
                match parts.filter(|_| self.s.known[kernel.index()].parts) {
                    None => end = self.make(made, kernel),
                    Some(parts) => {
                        for (i, call) in parts.parts.iter().enumerate() {
                            self.kernel(call.kernel, false)?;
                            end = self.make(Made { part: i as u32, step: end, ..made }, call.kernel);
                        }
                    }
                }
                split |= end > first + 1;
            }
            let made = &mut self.s.made[begin..];
            if split {
                made.sort_by_key(|m| m.step);
            }
            self.s.steps = made.last().map_or(first, |m| m.step + 1);
        }
        Ok(())
    }

    /// Compiles a kernel unless it is known; one that can be made in parts need not fit.
    fn kernel(&mut self, id: KernelId, can_split: bool) -> Result<(), TileError> {
        let k = id.index();
        if self.s.known[k].compiled {
            return Ok(());
        }
        let kernel = &self.plan.kernels[k];
        let from = self.s.wrote.len() as u32;
        let wrote = &mut self.s.wrote;
        let mut note = |slot, bytes| wrote.push((slot, bytes));
        let mut known = Known { compiled: true, template: NONE, ..Known::default() };
        let units = match compile::units(kernel, self.dims, self.spec, self.scratch, &mut note) {
            Ok(Units::One(u)) if can_split && u.slow => {
                known.parts = true;
                Units::None
            }
            Err(_) if can_split => {
                known.parts = true;
                Units::None
            }
            units => units.map_err(|f| TileError::kernel(&kernel.name, f))?,
        };
        known.wrote = (from, self.s.wrote.len() as u32);
        match units {
            Units::None => {}
            Units::One(u) => {
                known.weight = u.weight;
                known.pack = u.pack;
                known.ring = u.ring > 0;
                self.ring.0 = self.ring.0.max(u.ring);
                known.template = self.template(u, id);
            }
            Units::Pieces(pieces, temps) => {
                known.pieces.0 = self.s.pieces.len() as u32;
                for p in pieces {
                    let weight = p.unit.weight;
                    known.template = self.template(p.unit, id);
                    let (template, stage, slots) = (known.template, p.stage, p.slots);
                    self.s.pieces.push(PieceKnown { template, weight, stage, slots });
                }
                known.pieces.1 = self.s.pieces.len() as u32;
                known.temps.0 = self.s.temps.len() as u32;
                self.s.temps.extend(temps);
                known.temps.1 = self.s.temps.len() as u32;
            }
        }
        self.s.known[k] = known;
        Ok(())
    }

    /// Lists a call whose kernel is known, in pieces where that is in pieces; the step after its last.
    fn make(&mut self, made: Made, kernel: KernelId) -> u32 {
        let known = self.s.known[kernel.index()];
        if known.pieces.0 == known.pieces.1 {
            self.s.made.push(made);
            return made.step + 1;
        }
        let inner = self.s.inner.len() as u32;
        let temps = known.temps.0 as usize..known.temps.1 as usize;
        self.s.inner.extend_from_slice(&self.s.temps[temps]);
        let mut end = made.step;
        for piece in known.pieces.0..known.pieces.1 {
            let step = made.step + self.s.pieces[piece as usize].stage;
            self.s.made.push(Made { piece, inner, step, ..made });
            end = end.max(step + 1);
        }
        end
    }

    /// Adds a template; returns its number.
    fn template(&mut self, mut u: compile::Unit, kernel: KernelId) -> u32 {
        // Kernels of a plan may share a name, templates of a program may not.
        u.template.name = format!("{}.{kernel}", u.template.name);
        self.templates.push(u.template);
        self.tilings.push(u.tiling);
        self.kernel_ids.push(kernel);
        self.templates.len() as u32 - 1
    }

    /// Sizes and lifetimes of the buffers.
    fn buffers(&mut self) -> Result<(), TileError> {
        self.s.buffers.clear();
        for b in &self.plan.buffers {
            let err = |f| TileError::buffer(&b.name, f);
            let len = self.dims.get(b.len).ok_or_else(|| err(Fault::Undefined("its length")))?;
            let len =
                u64::try_from(len).map_err(|_| err(Fault::Negative { what: "its length", value: len }))?;
            let bytes = len.checked_mul(b.dtype.size() as u64).filter(|&n| i64::try_from(n).is_ok());
            let bytes = bytes.ok_or_else(|| err(Fault::TooLarge("its size")))?;
            let place = Place { bytes, first: 0, last: 0, arg: NONE, offset: 0, stored: 0, covered: false };
            self.s.buffers.push(place);
        }
        for &bytes in &self.s.inner {
            let place = Place { bytes, first: 0, last: 0, arg: NONE, offset: 0, stored: 0, covered: false };
            self.s.buffers.push(place);
        }
        for m in &self.s.made {
            let call = m.call(self.plan);
            let known = self.s.known[call.kernel.index()];
            if known.template == NONE {
                continue;
            }
            let at = m.step + 1;
            let mut used = |b: usize| {
                let p = &mut self.s.buffers[b];
                p.first = if p.first == 0 { at } else { p.first };
                p.last = at;
            };
            match self.s.pieces.get(m.piece as usize) {
                None => call.args.iter().for_each(|b| used(b.index())),
                Some(piece) => piece.slots.iter().for_each(|b| used(place_of(self.plan, *m, call, *b))),
            }
            if m.piece != NONE && m.piece != known.pieces.0 {
                continue;
            }
            for i in known.wrote.0..known.wrote.1 {
                let (slot, bytes) = self.s.wrote[i as usize];
                let p = &mut self.s.buffers[call.args[usize::from(slot)].index()];
                p.stored = p.stored.saturating_add(bytes);
                p.covered |= bytes == p.bytes;
            }
        }
        Ok(())
    }

    /// Offsets of the intermediates; returns the size of the workspace, `None` when there is none.
    fn workspace(&mut self) -> Result<Option<u64>, TileError> {
        let PlanScratch { buffers, holes, order, .. } = &mut *self.s;
        // Those behind the plan's are between pieces of one kernel.
        let temp = |b: usize| self.plan.buffers.get(b).is_none_or(|b| matches!(b.kind, BufferKind::Temp));
        order.clear();
        order
            .extend((0..buffers.len() as u32).filter(|&b| temp(b as usize) && buffers[b as usize].first > 0));
        if order.is_empty() {
            return Ok(None);
        }
        // By birth; the large ones of a level first.
        order.sort_by_key(|&b| (buffers[b as usize].first, std::cmp::Reverse(buffers[b as usize].bytes)));
        holes.clear();
        let mut top = 0u64;
        // Those alive end at or after the current level; sorted by nothing, there are few.
        let mut alive: Vec<u32> = Vec::with_capacity(order.len());
        for &b in order.iter() {
            let now = buffers[b as usize].first;
            alive.retain(|&a| {
                let p = &buffers[a as usize];
                let dead = p.last < now;
                if dead {
                    release(holes, Hole { lo: p.offset, hi: p.offset + p.bytes.next_multiple_of(ALIGN) });
                }
                !dead
            });
            let need = buffers[b as usize].bytes.next_multiple_of(ALIGN);
            let best = holes
                .iter()
                .enumerate()
                .filter(|(_, h)| h.hi - h.lo >= need)
                .min_by_key(|(_, h)| h.hi - h.lo);
            let at = match best.map(|(i, _)| i) {
                Some(i) => {
                    let at = holes[i].lo;
                    holes[i].lo += need;
                    if holes[i].lo == holes[i].hi {
                        holes.remove(i);
                    }
                    at
                }
                None => match holes.last().copied() {
                    // The last hole reaches the top: grow it.
                    Some(h) if h.hi == top => {
                        holes.pop();
                        top = h.lo;
                        top
                    }
                    _ => top,
                },
            };
            top = top.max(at.saturating_add(need));
            if top > MOST {
                let name = self.plan.buffers.get(b as usize).map_or("totals of a reduction", |b| &b.name);
                return Err(TileError::buffer(name, Fault::TooLarge("the workspace up to it")));
            }
            buffers[b as usize].offset = at;
            alive.push(b);
        }
        Ok(Some(top))
    }

    fn arguments(&mut self, workspace: Option<u64>) -> Result<(), TileError> {
        let plan = self.plan;
        for i in 0..plan.buffers.len() {
            let b = &plan.buffers[i];
            let p = self.s.buffers[i];
            let (role, binding) = match b.kind {
                BufferKind::Output(o) => (Role::Output, ArgBinding::Output(o)),
                BufferKind::Input(n) if p.first > 0 => (Role::Input, ArgBinding::Input(n)),
                _ => continue,
            };
            let zero = role == Role::Output && !(p.covered || p.stored == p.bytes);
            self.s.buffers[i].arg = self.args.len() as u32;
            self.arg(b.name.clone(), role, b.dtype, p.bytes, Layout::Plain, zero, binding);
        }
        self.s.packs.clear();
        self.s.packs_of.clear();
        self.s.packs_of.resize(plan.constants.len(), NONE);
        self.s.packed_arg.clear();
        self.s.packed_arg.resize(self.s.made.len(), NONE);
        for c in 0..self.s.made.len() {
            let call = self.s.made[c].call(plan);
            let known = self.s.known[call.kernel.index()];
            if known.template == NONE {
                continue;
            }
            for (i, b) in call.args.iter().enumerate() {
                let buffer = &plan.buffers[b.index()];
                let BufferKind::Const(index) = buffer.kind else {
                    if known.pack.is_some_and(|p| usize::from(p.0) == i) {
                        let what = "is packed, but no constant";
                        return Err(TileError::buffer(&buffer.name, Fault::Malformed { value: i, what }));
                    }
                    continue;
                };
                let bytes = self.s.buffers[b.index()].bytes;
                let next = self.args.len() as u32;
                match known.pack {
                    Some((slot, pack)) if usize::from(slot) == i => {
                        self.s.packed_arg[c] = match self.find_pack(index, &pack) {
                            Some(arg) => arg,
                            None => self.packed(buffer, index, pack)?,
                        };
                    }
                    _ if self.s.buffers[b.index()].arg == NONE => {
                        self.s.buffers[b.index()].arg = next;
                        let binding = ArgBinding::Constant { index, pack: None };
                        self.arg(
                            buffer.name.clone(),
                            Role::Weight,
                            buffer.dtype,
                            bytes,
                            Layout::Plain,
                            false,
                            binding,
                        );
                    }
                    _ => {}
                }
            }
        }
        if self.ring.0 > 0 {
            self.ring.1 = self.args.len() as u32;
            let name = self.unused("ring");
            let (bytes, binding) = (self.ring.0, ArgBinding::Ring);
            self.arg(name, Role::Ring, dvm_ir::DType::U8, bytes, Layout::Plain, false, binding);
        }
        if let Some(bytes) = workspace {
            let arg = self.args.len() as u32;
            for (i, p) in self.s.buffers.iter_mut().enumerate() {
                if plan.buffers.get(i).is_none_or(|b| matches!(b.kind, BufferKind::Temp)) {
                    p.arg = arg;
                }
            }
            let name = self.unused("workspace");
            self.arg(
                name,
                Role::Workspace,
                dvm_ir::DType::U8,
                bytes,
                Layout::Plain,
                false,
                ArgBinding::Workspace,
            );
        }
        Ok(())
    }

    /// A name that no buffer of the plan has.
    fn unused(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.plan.buffers.iter().any(|b| b.name == name) {
            name.push('_');
        }
        name
    }

    /// The argument that holds a constant packed this way.
    fn find_pack(&self, index: u32, pack: &Pack) -> Option<u32> {
        let mut at = self.s.packs_of[index as usize];
        while let Some(p) = self.s.packs.get(at as usize) {
            if p.pack == *pack {
                return Some(p.arg);
            }
            at = p.next;
        }
        None
    }

    /// Adds an argument for a packed constant.
    fn packed(&mut self, buffer: &dvm_ir::plan::Buffer, index: u32, pack: Pack) -> Result<u32, TileError> {
        let bytes = pack.bytes(buffer.dtype.size() as u32).filter(|&n| i64::try_from(n).is_ok());
        let bytes =
            bytes.ok_or_else(|| TileError::buffer(&buffer.name, Fault::TooLarge("its packed form")))?;
        let arg = self.args.len() as u32;
        let name = format!("{}.panels{arg}", buffer.name);
        let Matrices { k, n, batch, .. } = pack.matrices;
        let layout = Layout::Panels { nr: pack.nr, k, n, batch };
        let last = &mut self.s.packs_of[index as usize];
        let next = std::mem::replace(last, self.s.packs.len() as u32);
        self.s.packs.push(Packed { pack, arg, next });
        let binding = ArgBinding::Constant { index, pack: Some(pack) };
        self.arg(name, Role::Weight, buffer.dtype, bytes, layout, false, binding);
        Ok(arg)
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of an argument")]
    fn arg(
        &mut self,
        name: String,
        role: Role,
        dtype: dvm_ir::DType,
        bytes: u64,
        layout: Layout,
        zero: bool,
        binding: ArgBinding,
    ) {
        let dtype = lower::dtype(dtype);
        self.args.push(Arg { name, role, dtype, bytes, align: ALIGN as u32, layout, zero });
        self.bindings.push(binding);
    }
}

/// Adds a hole, joined with its neighbours.
fn release(holes: &mut Vec<Hole>, h: Hole) {
    if h.lo == h.hi {
        return;
    }
    let i = holes.partition_point(|x| x.hi < h.lo);
    match holes.get_mut(i) {
        Some(x) if x.hi == h.lo => {
            x.hi = h.hi;
            if holes.get(i + 1).is_some_and(|y| y.lo == h.hi) {
                holes[i].hi = holes[i + 1].hi;
                holes.remove(i + 1);
            }
        }
        Some(x) if x.lo == h.hi => x.lo = h.lo,
        _ => holes.insert(i, h),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
