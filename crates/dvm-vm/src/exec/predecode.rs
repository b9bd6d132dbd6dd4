//! Turns verified code into resolved operations.

use dvm_bc::{
    DType, Inst, Local, Mem, Mode, Opcode, Operands, Phase, Place as At, Program, Size, Space, Src, Strides,
    Target, Template, Verified,
};

use super::elide::{Bound, Plan, bound_operand};
use super::{
    Addr, BASE_ARENA, BASE_BOUND, BASE_CONST, BuildOptions, Ew, Executable, Len, NOT_STICKY, Op, OpKind,
    OpRange, PhaseExec, Place, StepExec, TemplateExec, UnitExec, ViewLoop,
};
use crate::cube;
use crate::kernels::half::Halves;
use crate::kernels::reduce::What;
use crate::kernels::shape::Direction;
use crate::kernels::{self, Kernel, half};
use crate::{BuildError, Isa};

/// Space between the parts of a worker's arena, so that kernels that read whole vectors stay inside it.
const PAD: u64 = 64;

struct Builder<'a> {
    target: &'a Target,
    panel_mr: u32,
    isa: Isa,
    options: &'a BuildOptions,
    block: u32,
    /// Byte offset of each space in the arena.
    spaces: [u32; 4],
    ops: Vec<Op>,
    ews: Vec<Ew>,
    strides: Vec<(u32, i64)>,
    loops: Vec<ViewLoop>,
    consts: Vec<u64>,
    phases: Vec<PhaseExec>,
    /// Packed operands of the current template, by their place in local memory.
    panels: Vec<Local>,
    /// Those bound to unwidened halves.
    narrow_panels: Vec<u32>,
    stickies: u32,
    bases: u32,
    plan: Plan,
    /// Elements times cost of the section being built.
    cost: f32,
}

pub(super) fn predecode(
    program: Verified<Program>,
    options: &BuildOptions,
) -> Result<Executable, BuildError> {
    let mut spaces = [0u32; 4];
    let mut end = 0u64;
    for space in Space::ALL {
        spaces[space as usize] = end.min(u64::from(u32::MAX)) as u32;
        let bytes = program.target.capacity(space);
        end = end.saturating_add(bytes).saturating_add(PAD).checked_next_multiple_of(64).unwrap_or(u64::MAX);
    }
    if end > options.local_limit.min(u64::from(u32::MAX)) {
        return Err(BuildError::LocalMemory { bytes: end, limit: options.local_limit });
    }
    let isa = options.isa.or_portable();
    let mut b = Builder {
        target: &program.target,
        panel_mr: program.target.panel_mr,
        isa,
        options,
        block: program.target.block,
        spaces,
        ops: Vec::with_capacity(64),
        ews: Vec::with_capacity(64),
        strides: Vec::with_capacity(64),
        loops: Vec::new(),
        consts: Vec::with_capacity(16),
        phases: Vec::new(),
        panels: Vec::new(),
        narrow_panels: Vec::new(),
        stickies: 0,
        bases: BASE_BOUND,
        plan: Plan::default(),
        cost: 0.0,
    };
    let mut templates = Vec::with_capacity(program.templates.len());
    let (mut bases, mut panels, mut slots) = (BASE_BOUND, 0, 0);
    for (t, template) in program.templates.iter().enumerate() {
        templates.push(b.template(template, program.in_place(t as u32))?);
        bases = bases.max(b.bases);
        panels = panels.max(b.panels.len() as u32);
        slots = slots.max(template.slots.len() as u32);
    }
    let (mut units, mut steps, mut bindings) =
        (Vec::new(), Vec::with_capacity(program.steps.len()), Vec::new());
    for step in &program.steps {
        let first = units.len() as u32;
        let (mut tiles, mut cost) = (0u64, 0f32);
        for unit in &step.units {
            let t = &templates[unit.template as usize];
            let slots = bindings.len() as u32;
            bindings.extend_from_slice(&unit.slots);
            units.push(UnitExec {
                template: unit.template,
                slots: slots..bindings.len() as u32,
                first_tile: tiles,
            });
            tiles += t.tiles;
            cost += t.tiles as f32 * t.cost;
        }
        steps.push(StepExec { units: first..units.len() as u32, tiles, cost });
    }
    let Builder { ops, ews, strides, loops, consts, phases: phase_table, stickies, .. } = b;
    Ok(Executable {
        isa,
        ops,
        ews,
        strides,
        loops,
        consts,
        phases: phase_table,
        templates,
        units,
        steps,
        bindings,
        local_bytes: end as usize,
        bases,
        panels,
        stickies,
        slots,
        program,
    })
}

impl Builder<'_> {
    fn template(&mut self, template: &Template, in_place: bool) -> Result<TemplateExec, BuildError> {
        self.panels.clear();
        self.narrow_panels.clear();
        let decoded = decode(template)?;
        self.plan = if self.options.elide || self.options.strips {
            Plan::new(template, &decoded, self.options, in_place, self.block)
        } else {
            Plan::default()
        };
        self.bases = self.plan.bases();
        let mut parallel = [1u32; dvm_bc::MAX_PARALLEL];
        parallel[..template.parallel.len()].copy_from_slice(&template.parallel);
        let tiles = template.parallel.iter().map(|&n| u64::from(n)).product();
        let first = self.phases.len() as u32;
        let mut cost = 20.0f32;
        let mut sections = 0;
        for phase in &template.phases {
            let (exec, c) = self.phase(template, phase, &decoded, &mut sections)?;
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
        decoded: &Decoded,
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
            let start = number.checked_sub(1).map_or(0, |i| decoded.ends[i]);
            let range = self.section(template, &decoded.insts[start..decoded.ends[*number]], start)?;
            *number += 1;
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
            self.cost += 5.0;
            let step = self.plan.step(from + i);
            if step.skip {
                self.charge(inst, moved(inst));
                continue;
            }
            if let Some(kind) = self.inst(inst, from + i).ok_or_else(|| BuildError::Unsupported {
                template: template.name.clone(),
                index,
                mnemonic: inst.op.mnemonic(),
                dtype: inst.dtype,
            })? {
                if let Some((rows, block)) = step.rows {
                    group = Some(self.ops.len());
                    self.ops.push(Op { index, kind: OpKind::ByRows { count: 0, rows: len(rows), block } });
                }
                // An elementwise operation joins the run before it.
                if step.joins
                    && let Some(Op { kind: OpKind::Elementwise { count, .. }, .. }) = self.ops.last_mut()
                {
                    *count += 1;
                    continue;
                }
                self.ops.push(Op { index, kind });
                if step.by_rows
                    && let Some(g) = group
                    && let OpKind::ByRows { count, .. } = &mut self.ops[g].kind
                {
                    *count += 1;
                }
            }
        }
        Ok(first..self.ops.len() as u32)
    }

    fn place(&self, local: Local) -> Place {
        let local = match self.plan.bound(local) {
            Some(Bound::Base(base)) => return Place { base, off: 0 },
            Some(Bound::Local(other)) => other,
            None => local,
        };
        Place { base: BASE_ARENA, off: self.spaces[local.space as usize] + local.offset * self.block }
    }

    fn panel(&mut self, local: Local) -> u32 {
        if let Some(i) = self.panels.iter().position(|&p| p == local) {
            return i as u32;
        }
        self.panels.push(local);
        self.panels.len() as u32 - 1
    }

    fn strides(&mut self, strides: &Strides) -> (u32, u16) {
        let first = self.strides.len() as u32;
        self.strides.extend(strides.iter().map(|&(e, s)| (u32::from(e), s)));
        (first, strides.len() as u16)
    }

    fn addr(&mut self, mem: &Mem) -> Addr {
        let (first, count) = self.strides(&mem.strides);
        Addr { slot: mem.slot, count, first, offset: mem.offset }
    }

    fn imm(&mut self, bits: u64) -> Place {
        self.consts.push(bits);
        Place { base: BASE_CONST, off: (self.consts.len() as u32 - 1) * 8 }
    }

    fn sticky(&mut self, wanted: bool) -> u32 {
        if !wanted {
            return NOT_STICKY;
        }
        self.stickies += 1;
        self.stickies - 1
    }

    /// An elementwise operation. `choose` gets which sources are single elements.
    #[allow(clippy::too_many_arguments, reason = "one call per elementwise form")]
    fn ew(
        &mut self,
        at: usize,
        dst: Local,
        dst_size: u32,
        sources: &[(Src, u32)],
        (rows, cols): (Size, Size),
        halves: Halves,
        choose: impl FnOnce(&[bool; 3], Isa) -> Option<Kernel>,
    ) -> Option<u32> {
        let (rows_l, cols_l) = (len(rows), len(cols));
        let step = self.plan.step(at);
        let result = step.result.map_or_else(|| self.place(dst), |base| Place { base, off: 0 });
        let mut ew = Ew {
            kernel: Kernel::Span(kernels::shape::copy(4, self.isa)),
            halves,
            place: [Place { base: BASE_CONST, off: 0 }; 4],
            row_step: [0; 4],
            size: [4; 4],
            sources: sources.len() as u8,
            steps: 0,
            private: step.private,
            flat: true,
            plain: true,
            spread: false,
            rows: rows_l,
            cols: cols_l,
        };
        let mut single = [true; 3];
        for (i, &(src, size)) in sources.iter().enumerate() {
            ew.size[i] = size as u8;
            let (place, mode) = match src {
                Src::Imm(bits) => (self.imm(bits), Mode::One),
                Src::Local(local, mode) => (self.place(local), simplify(mode, rows, cols)),
            };
            ew.place[i] = place;
            match mode {
                Mode::Full => {
                    ew.row_step[i] = cols.body * size;
                    ew.steps |= 1 << i;
                    single[i] = false;
                }
                Mode::Row => {
                    ew.steps |= 1 << i;
                    single[i] = false;
                    ew.flat = false;
                }
                Mode::Col => {
                    ew.row_step[i] = size;
                    ew.flat = false;
                }
                Mode::One => {}
            }
        }
        ew.place[3] = result;
        ew.size[3] = dst_size as u8;
        ew.row_step[3] = cols.body * dst_size;
        ew.kernel = choose(&single, self.isa)?;
        ew.spread = ew.kernel.wants_runs() && single[..sources.len()].contains(&true);
        ew.plain = !ew.spread && !ew.halves.any();
        self.ews.push(ew);
        Some(self.ews.len() as u32 - 1)
    }

    fn charge(&mut self, inst: &Inst, elements: u64) {
        use dvm_bc::Class;
        let ns = match inst.op.class() {
            Class::Control => 0.0,
            Class::Dma | Class::Move => 0.1,
            Class::Arith | Class::Compare => 0.12,
            Class::Divide => 0.25,
            Class::Exp => 0.35,
            Class::Special => 1.0,
            Class::Reduce => 0.12,
            Class::Scan => 1.0,
            Class::Cube => 0.012,
        };
        let factor = if inst.dtype == DType::F32 { 1.0 } else { 2.0 };
        self.cost += elements as f32 * ns * factor;
    }

    /// The operation of an instruction; `Some(None)` where there is nothing to do, `None` where there is no kernel.
    fn inst(&mut self, inst: &Inst, at: usize) -> Option<Option<OpKind>> {
        let dtype = inst.dtype;
        let size = dtype.size();
        let half = matches!(dtype, DType::F16 | DType::BF16);
        // The dtype of kernels on halves.
        let wide = if half { DType::F32 } else { dtype };
        let widen = half.then(|| half::widen(dtype, self.isa));
        let narrow = half.then(|| half::narrow(dtype, self.isa));
        let area = |r: Size, c: Size| u64::from(r.body) * u64::from(c.body);
        let elementwise = |first: u32| Some(Some(OpKind::Elementwise { first, count: 1 }));
        match &inst.operands {
            Operands::Control(_) => Some(None),
            Operands::Load(o) => {
                self.charge(inst, area(o.rows, o.cols));
                let sticky = self.sticky(o.hints.sticky);
                Some(Some(OpKind::Rows {
                    local: self.place(o.dst),
                    addr: self.addr(&o.src),
                    rows: len(o.rows),
                    cols: len(o.cols),
                    pitch: o.pitch,
                    size: size as u8,
                    store: false,
                    sticky,
                }))
            }
            Operands::Store(o) => {
                self.charge(inst, area(o.rows, o.cols));
                Some(Some(OpKind::Rows {
                    local: self.place(o.src),
                    addr: self.addr(&o.dst),
                    rows: len(o.rows),
                    cols: len(o.cols),
                    pitch: o.pitch,
                    size: size as u8,
                    store: true,
                    sticky: NOT_STICKY,
                }))
            }
            Operands::ViewLoad(o) => {
                self.charge(inst, 2 * product(&o.loops));
                let loops = self.view_loops(&o.loops, size, 1);
                let sticky = self.sticky(o.hints.sticky);
                Some(Some(OpKind::View {
                    local: self.place(o.dst),
                    addr: self.addr(&o.src),
                    loops,
                    size: size as u8,
                    dir: Direction::Gather,
                    sticky,
                }))
            }
            Operands::ViewStore(o) => {
                self.charge(inst, 2 * product(&o.loops));
                let loops = self.view_loops(&o.loops, size, 1);
                Some(Some(OpKind::View {
                    local: self.place(o.src),
                    addr: self.addr(&o.dst),
                    loops,
                    size: size as u8,
                    dir: Direction::Scatter,
                    sticky: NOT_STICKY,
                }))
            }
            Operands::LocalView(o) => {
                self.charge(inst, 2 * product(&o.loops));
                let loops = self.view_loops(&o.loops, size, i64::from(size));
                Some(Some(OpKind::LocalView {
                    dst: self.place(o.dst),
                    src: self.place(o.src),
                    loops,
                    size: size as u8,
                }))
            }
            Operands::GatherLoad(o) => {
                self.charge(inst, area(o.rows, o.cols));
                Some(Some(OpKind::GatherRows {
                    dst: self.place(o.dst),
                    addr: self.addr(&o.src),
                    index: self.place(o.index),
                    wide: o.index_dtype == DType::I64,
                    rows: len(o.rows),
                    cols: len(o.cols),
                    stride: o.stride,
                    limit: o.limit,
                    size: size as u8,
                }))
            }
            Operands::GatherElems(o) => {
                self.charge(inst, 10 * area(o.rows, o.cols));
                Some(Some(OpKind::GatherElems {
                    dst: self.place(o.dst),
                    addr: self.addr(&o.src),
                    index: self.place(o.index),
                    wide: o.index_dtype == DType::I64,
                    rows: len(o.rows),
                    cols: len(o.cols),
                    stride: o.stride,
                    row_stride: o.row_stride,
                    col_stride: o.col_stride,
                    limit: o.limit,
                    size: size as u8,
                }))
            }
            Operands::FillStore(o) => {
                self.charge(inst, area(o.rows, o.cols));
                Some(Some(OpKind::FillRows {
                    addr: self.addr(&o.dst),
                    bits: o.value,
                    rows: len(o.rows),
                    cols: len(o.cols),
                    pitch: o.pitch,
                    size: size as u8,
                }))
            }
            Operands::Unary(o) => {
                self.charge(inst, area(o.rows, o.cols));
                use Opcode::{VCopy, VIsFinite, VIsInf, VIsNan};
                let classify = matches!(inst.op, VIsFinite | VIsInf | VIsNan);
                let halves = match inst.op {
                    VCopy => Halves::default(),
                    _ => Halves { src: [widen, None, None], dst: if classify { None } else { narrow } },
                };
                let out = if classify { 1 } else { size };
                let kernel_dtype = if inst.op == VCopy { dtype } else { wide };
                let counts = (o.rows, o.cols);
                self.ew(at, o.dst, out, &[(o.src, size)], counts, halves, |_, isa| {
                    kernels::unary::kernel(inst.op, kernel_dtype, isa)
                })
                .and_then(elementwise)
            }
            Operands::Binary(o) => {
                self.charge(inst, area(o.rows, o.cols));
                let compare = kernels::binary::is_compare(inst.op);
                let halves = Halves { src: [widen, widen, None], dst: if compare { None } else { narrow } };
                let out = if compare { 1 } else { size };
                let sources = [(o.a, size), (o.b, size)];
                let ew = self.ew(at, o.dst, out, &sources, (o.rows, o.cols), halves, |s, isa| {
                    kernels::binary::kernel(inst.op, wide, [s[0], s[1]], isa)
                })?;
                if kernels::binary::traps(inst.op, dtype) {
                    return Some(Some(OpKind::Divide { ew, dtype }));
                }
                elementwise(ew)
            }
            Operands::Ternary(o) => {
                self.charge(inst, area(o.rows, o.cols));
                let select = inst.op == Opcode::VSelect;
                let halves = if select { Halves::default() } else { Halves { src: [widen; 3], dst: narrow } };
                let sources = [(o.a, if select { 1 } else { size }), (o.b, size), (o.c, size)];
                let kernel_dtype = if select { dtype } else { wide };
                self.ew(at, o.dst, size, &sources, (o.rows, o.cols), halves, |_, isa| {
                    kernels::ternary::kernel(inst.op, kernel_dtype, isa)
                })
                .and_then(elementwise)
            }
            Operands::Cast(o) => {
                self.charge(inst, area(o.rows, o.cols));
                let from_half = matches!(o.from, DType::F16 | DType::BF16);
                // To a half: through f32 where that is exact or the source itself, else through f64.
                let through_f64 =
                    half && matches!(o.from, DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64);
                let from = if from_half { DType::F32 } else { o.from };
                let (into, halves) = if o.from == dtype {
                    (dtype, Halves::default())
                } else if through_f64 {
                    (DType::F64, Halves { src: [None; 3], dst: Some(half::narrow64(dtype)) })
                } else {
                    let src = from_half.then(|| half::widen(o.from, self.isa));
                    (wide, Halves { src: [src, None, None], dst: narrow })
                };
                let from = if o.from == dtype { dtype } else { from };
                let sources = [(o.src, o.from.size())];
                self.ew(at, o.dst, size, &sources, (o.rows, o.cols), halves, |_, isa| {
                    kernels::cast::kernel(from, into, isa)
                })
                .and_then(elementwise)
            }
            Operands::Fill(o) => {
                self.charge(inst, area(o.rows, o.cols));
                let sources = [(Src::Imm(o.value), size)];
                self.ew(at, o.dst, size, &sources, (o.rows, o.cols), Halves::default(), |_, isa| {
                    Some(Kernel::Span(kernels::shape::copy(size, isa)))
                })
                .and_then(elementwise)
            }
            Operands::Iota(o) => {
                self.charge(inst, 4 * area(o.rows, o.cols));
                Some(Some(OpKind::Iota {
                    dst: self.place(o.dst),
                    dtype,
                    base: o.base,
                    strides: self.strides(&o.strides),
                    row_step: o.row_step,
                    col_step: o.col_step,
                    rows: len(o.rows),
                    cols: len(o.cols),
                }))
            }
            Operands::Reduce(o) => {
                self.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
                Some(Some(OpKind::Reduce {
                    dst: self.place(o.dst),
                    src: self.place(o.src),
                    what: What::of(inst.op),
                    dtype,
                    outer: len(o.outer),
                    red: len(o.red),
                    inner: len(o.inner),
                    init: o.init,
                }))
            }
            Operands::ArgReduce(o) => {
                self.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
                Some(Some(OpKind::ArgReduce {
                    index: self.place(o.index),
                    value: self.place(o.value),
                    src: self.place(o.src),
                    dtype,
                    largest: inst.op == Opcode::VArgMax,
                    last: o.last,
                    outer: len(o.outer),
                    red: len(o.red),
                    inner: len(o.inner),
                    init: o.init,
                    base: o.base,
                    strides: self.strides(&o.strides),
                }))
            }
            Operands::CumSum(o) => {
                self.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
                Some(Some(OpKind::CumSum {
                    dst: self.place(o.dst),
                    carry: self.place(o.carry),
                    src: self.place(o.src),
                    dtype,
                    outer: len(o.outer),
                    red: len(o.red),
                    inner: len(o.inner),
                    init: o.init,
                    exclusive: o.exclusive,
                    reverse: o.reverse,
                }))
            }
            Operands::LoadA(o) if self.plan.step(at).in_place => {
                let bytes = i64::from(size);
                Some(Some(OpKind::BindPanel {
                    panel: self.panel(o.dst),
                    addr: self.addr(&o.src),
                    lines: len(o.m),
                    k: len(o.k),
                    panel_stride: o.row_stride / bytes,
                    k_stride: o.col_stride / bytes,
                    width: 0,
                }))
            }
            Operands::LoadA(o) => {
                self.charge(inst, 3 * area(o.m, o.k));
                let sticky = self.sticky(o.hints.sticky);
                Some(Some(OpKind::Pack {
                    pack: cube::pack(dtype, self.isa)?,
                    panel: self.panel(o.dst),
                    local: self.place(o.dst),
                    addr: self.addr(&o.src),
                    lines: len(o.m),
                    k: len(o.k),
                    line_stride: o.row_stride,
                    k_stride: o.col_stride,
                    width: self.panel_mr,
                    sticky,
                }))
            }
            Operands::LoadB(o) => {
                self.charge(inst, 3 * area(o.k, o.n));
                let sticky = self.sticky(o.hints.sticky);
                Some(Some(OpKind::Pack {
                    pack: cube::pack(dtype, self.isa)?,
                    panel: self.panel(o.dst),
                    local: self.place(o.dst),
                    addr: self.addr(&o.src),
                    lines: len(o.n),
                    k: len(o.k),
                    line_stride: o.col_stride,
                    k_stride: o.row_stride,
                    width: self.target.nr(size),
                    sticky,
                }))
            }
            Operands::BindB(o) => {
                let panel = self.panel(o.dst);
                if half {
                    self.narrow_panels.push(panel);
                }
                Some(Some(OpKind::BindPanel {
                    panel,
                    addr: self.addr(&o.src),
                    lines: len(o.n),
                    k: len(o.k),
                    panel_stride: o.panel_stride / i64::from(size),
                    k_stride: 0,
                    width: self.target.nr(size),
                }))
            }
            Operands::Mmad(o) => {
                self.charge(inst, area(o.m, o.n) * 2 * u64::from(o.k.body));
                let (a, b) = (self.panel(o.a), self.panel(o.b));
                Some(Some(OpKind::Mmad {
                    mmad: cube::mmad(dtype, self.narrow_panels.contains(&b), self.isa)?,
                    acc: self.place(o.acc),
                    a,
                    b,
                    m: len(o.m),
                    n: len(o.n),
                    k: len(o.k),
                    init: o.init,
                }))
            }
            Operands::AccToUb(o) => {
                self.charge(inst, area(o.m, o.n));
                let sources = [(Src::Local(o.acc, Mode::Full), o.from.size())];
                let through_f64 =
                    half && matches!(o.from, DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64);
                let (into, halves) = if through_f64 {
                    (DType::F64, Halves { src: [None; 3], dst: Some(half::narrow64(dtype)) })
                } else {
                    (wide, Halves { src: [None; 3], dst: narrow })
                };
                self.ew(at, o.dst, size, &sources, (o.m, o.n), halves, |_, isa| {
                    kernels::cast::kernel(o.from, into, isa)
                })
                .and_then(elementwise)
            }
        }
    }

    /// Loops of a view; the dense side is row-major over the bodies. `unit` is the bytes that a stride of 1 means.
    fn view_loops(&mut self, loops: &[dvm_bc::Loop], size: u32, unit: i64) -> (u32, u8) {
        let first = self.loops.len();
        let mut dense = i64::from(size);
        for l in loops.iter().rev() {
            self.loops.push(ViewLoop { count: len(l.count), strided: l.stride.wrapping_mul(unit), dense });
            dense = dense.wrapping_mul(i64::from(l.count.body));
        }
        self.loops[first..].reverse();
        (first as u32, loops.len() as u8)
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

/// Elements that a load or store would move.
fn moved(inst: &Inst) -> u64 {
    match &inst.operands {
        Operands::Load(o) => u64::from(o.rows.body) * u64::from(o.cols.body),
        Operands::Store(o) => u64::from(o.rows.body) * u64::from(o.cols.body),
        _ => 0,
    }
}

fn product(loops: &[dvm_bc::Loop]) -> u64 {
    loops.iter().map(|l| u64::from(l.count.body)).fold(1, u64::saturating_mul)
}

/// A template's instructions in order of its phases and sections, and where each section ends.
pub(super) struct Decoded {
    pub(super) insts: Vec<Inst>,
    pub(super) ends: Vec<usize>,
}

fn decode(template: &Template) -> Result<Decoded, BuildError> {
    let mut d = Decoded { insts: Vec::with_capacity(64), ends: Vec::with_capacity(8) };
    for section in template.phases.iter().flat_map(|p| &p.sections) {
        for inst in section.code.iter() {
            d.insts
                .push(inst.map_err(|source| BuildError::Decode { template: template.name.clone(), source })?);
        }
        d.ends.push(d.insts.len());
    }
    Ok(d)
}
