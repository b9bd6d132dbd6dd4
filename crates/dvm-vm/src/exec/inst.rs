//! One instruction to one resolved operation.

use dvm_bc::{DType, Inst, Local, Mode, Opcode, Operands, Size, Src};

use super::predecode::{Builder, len, simplify};
use super::{BASE_CONST, Ew, NOT_STICKY, OpKind, Place, ViewLoop};
use crate::kernels::half::Halves;
use crate::kernels::reduce::What;
use crate::kernels::shape::Direction;
use crate::kernels::{self, Kernel, half};
use crate::{Isa, cube};

impl Builder<'_> {
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

    pub(super) fn charge(&mut self, inst: &Inst, elements: u64) {
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
    pub(super) fn inst(&mut self, inst: &Inst, at: usize) -> Option<Option<OpKind>> {
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
            Operands::OnPipe(_) | Operands::Cross(_) | Operands::Control(_) => Some(None),
            Operands::ScatterStore(_)
            | Operands::ScatterElems(_)
            | Operands::CompressStore(_)
            | Operands::Shape(_)
            | Operands::ClearPad(_)
            | Operands::RemovePad(_)
            | Operands::SortKv(_)
            | Operands::AccStore(_) => None,
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

fn product(loops: &[dvm_bc::Loop]) -> u64 {
    loops.iter().map(|l| u64::from(l.count.body)).fold(1, u64::saturating_mul)
}
