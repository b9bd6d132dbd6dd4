//! One vector instruction to one resolved operation.
//!
//! The dispatch is the instruction set's own visitor: a row of its table without a handler here does not compile.

use dvm_bc::{
    AccStore, AccToUb, ArgReduce, Binary, BindB, Cast, ClearPad, CompressStore, Control, Cross, CumSum,
    DType, Fill, FillStore, GatherElems, GatherLoad, Inst, Iota, Load, LoadA, LoadB, Local, LocalView, Mmad,
    Mode, OnPipe, Opcode, PackA, PartSum, Reduce, RemovePad, ScatterElems, ScatterStore, Shape, Size, SortKv,
    Src, Store, Ternary, Unary, ViewLoad, ViewStore, Visitor,
};

use super::chain::Part;
use super::predecode::{Builder, len, simplify};
use super::{BASE_CONST, Ew, OpKind, Place, ViewLoop};
use crate::kernels::half::Halves;
use crate::kernels::reduce::What;
use crate::kernels::{self, Kernel};

/// What an instruction becomes.
pub(super) enum Step {
    Nothing,
    /// The elementwise operation with this number. It may join others, and most instructions are such: so it is told apart early.
    Elementwise(u32),
    Other(OpKind),
}

/// `None` where there is no kernel.
pub(super) type Resolved = Option<Step>;

/// An instruction's place in the template, and who resolves it.
pub(super) struct Site<'b, 'a> {
    pub(super) b: &'b mut Builder<'a>,
    pub(super) at: usize,
}

/// Methods of the visitor: for each form the handler and the instructions it takes.
macro_rules! handlers {
    ($($form:ident by $handler:ident: $($op:ident)+;)*) => {
        impl Visitor for Site<'_, '_> {
            type Output = Resolved;
            $($(fn $op(&mut self, inst: &Inst, o: &$form) -> Resolved { self.$handler(inst, o) })+)*
            fn mismatch(&mut self, _: &Inst) -> Resolved { None }
        }
    };
}
handlers! {
    Control by nothing: end barrier;
    OnPipe by nothing: nop;
    Cross by nothing: xset xwait;
    Load by load: load;
    Store by store: store;
    ViewLoad by view_load: view_load;
    ViewStore by view_store: view_store;
    GatherLoad by gather_rows: gather_load;
    GatherElems by gather_elems: gather_elems;
    FillStore by fill_rows: fill_store;
    ScatterStore by scatter_rows: scatter_store;
    ScatterElems by scatter_elems: scatter_elems;
    CompressStore by compress: compress_store;
    Unary by unary:
        vcopy vabs vneg vsign vsqrt vrsqrt vreciprocal vexp vexp2 vln vlog2 vlog1p vexpm1 vsin vcos vtan vtanh verf
        vsigmoid vround vfloor vceil vtrunc vis_finite vis_nan vis_inf vnot vasin vacos vatan vsinh vcosh vasinh vacosh
        vatanh;
    Binary by binary:
        vadd vsub vmul vdiv vrem vfmod vpow vmax vmin vand vor vxor vshl vshr veq vne vlt vle vgt vge vfloordiv;
    Ternary by ternary: vfma vselect vclamp;
    Cast by cast: vcast;
    Fill by fill: vfill;
    Iota by iota: viota;
    LocalView by view: vview;
    Shape by shape: vbroadcast_x vbroadcast_y vtranspose;
    ClearPad by clear_pad: vclear_pad;
    RemovePad by remove_pad: vremove_pad;
    SortKv by sort: vsort_kv;
    Reduce by reduce: vsum vredmax vredmin vprod vany vall;
    PartSum by part_sum: vsum_part;
    ArgReduce by arg_reduce: vargmax vargmin;
    CumSum by cum_sum: vcumsum;
    LoadA by load_a: load_a;
    LoadB by load_b: load_b;
    PackA by pack_a: pack_a;
    BindB by bind_b: bind_b;
    Mmad by product: mmad;
    AccToUb by acc_to_ub: acc_to_ub;
    AccStore by acc_store: acc_store;
}

/// Elements of a tile.
pub(super) fn area(rows: Size, cols: Size) -> u64 {
    u64::from(rows.body) * u64::from(cols.body)
}

/// Whether a source is one element.
fn single(src: Src, rows: Size, cols: Size) -> bool {
    match src {
        Src::Imm(_) => true,
        Src::Local(_, mode) => matches!(simplify(mode, rows, cols), Mode::One | Mode::Col),
    }
}

/// A loop of a view between dense tiles, in bytes.
fn view_loop(count: Size, strided: u64, dense: u64) -> ViewLoop {
    ViewLoop { count: len(count), strided: strided as i64, dense: dense as i64 }
}

impl Builder<'_> {
    /// An elementwise operation over sources with their element sizes; its number.
    pub(super) fn ew(
        &mut self,
        at: usize,
        result: Place,
        dst_size: u32,
        sources: &[(Src, u32)],
        (rows, cols): (Size, Size),
        (kernel, halves): (Kernel, Halves),
    ) -> u32 {
        let number = self.ews.len();
        // Filled where it lies: a copy of what was just written in parts is slow.
        self.ews.push(Ew {
            kernel,
            halves,
            place: [Place { base: BASE_CONST, off: 0 }; 4],
            row_step: [0; 4],
            size: [4; 4],
            sources: sources.len() as u8,
            steps: 0,
            private: self.plan.step(at).private,
            flat: true,
            plain: true,
            spread: false,
            rows: len(rows),
            cols: len(cols),
            part: Part::NONE,
        });
        let mut one = false;
        for (i, &(src, size)) in sources.iter().enumerate() {
            let (place, mode) = match src {
                Src::Imm(bits) => (self.imm(bits), Mode::One),
                Src::Local(local, mode) => (self.source(at, i, local), simplify(mode, rows, cols)),
            };
            let ew = &mut self.ews[number];
            ew.size[i] = size as u8;
            ew.place[i] = place;
            match mode {
                Mode::Full => {
                    ew.row_step[i] = cols.body * size;
                    ew.steps |= 1 << i;
                }
                Mode::Row => {
                    ew.steps |= 1 << i;
                    ew.flat = false;
                }
                Mode::Col => {
                    ew.row_step[i] = size;
                    ew.flat = false;
                    one = true;
                }
                Mode::One => one = true,
            }
        }
        let ew = &mut self.ews[number];
        ew.place[3] = result;
        ew.size[3] = dst_size as u8;
        ew.row_step[3] = cols.body * dst_size;
        ew.spread = one && kernel.wants_runs();
        ew.plain = !ew.spread && !halves.any();
        number as u32
    }

    pub(super) fn charge(&mut self, inst: &Inst, elements: u64) {
        use dvm_bc::Class;
        let ns = match inst.op.class() {
            Class::Control => 0.0,
            Class::Dma | Class::Move => 0.1,
            Class::Arith | Class::Compare | Class::Reduce => 0.12,
            Class::Divide => 0.25,
            Class::Exp => 0.35,
            Class::Special | Class::Scan => 1.0,
            Class::Cube => 0.012,
        };
        let factor = if inst.dtype == DType::F32 { 1.0 } else { 2.0 };
        self.cost += elements as f32 * ns * factor;
    }
}

impl Site<'_, '_> {
    fn nothing<O>(&mut self, _: &Inst, _: &O) -> Resolved {
        Some(Step::Nothing)
    }

    /// An elementwise instruction with the kernel for it.
    pub(super) fn elementwise(
        &mut self,
        inst: &Inst,
        dst: Local,
        sources: &[(Src, u32)],
        counts: (Size, Size),
        chosen: Option<(Kernel, Halves)>,
    ) -> Resolved {
        self.number(inst, dst, sources, counts, chosen).map(Step::Elementwise)
    }

    fn number(
        &mut self,
        inst: &Inst,
        dst: Local,
        sources: &[(Src, u32)],
        counts: (Size, Size),
        chosen: Option<(Kernel, Halves)>,
    ) -> Option<u32> {
        self.b.charge(inst, area(counts.0, counts.1));
        let result = self.b.result(self.at, dst);
        let size = inst.result_dtype().size();
        let number = self.b.ew(self.at, result, size, sources, counts, chosen?);
        let step = self.b.plan.step(self.at);
        let ew = &mut self.b.ews[number as usize];
        ew.part = Part::of(inst);
        ew.part.stream =
            step.result.is_some() && self.b.streamed.get(usize::from(step.result_slot)) == Some(&true);
        if step.upright {
            ew.stand();
        }
        Some(number)
    }

    fn unary(&mut self, inst: &Inst, o: &Unary) -> Resolved {
        let chosen = kernels::unary::choose(inst.op, inst.dtype, self.b.isa);
        self.elementwise(inst, o.dst, &[(o.src, inst.dtype.size())], (o.rows, o.cols), chosen)
    }

    fn binary(&mut self, inst: &Inst, o: &Binary) -> Resolved {
        let size = inst.dtype.size();
        let ones = [single(o.a, o.rows, o.cols), single(o.b, o.rows, o.cols)];
        let chosen = kernels::binary::choose(inst.op, inst.dtype, ones, self.b.isa);
        let ew = self.number(inst, o.dst, &[(o.a, size), (o.b, size)], (o.rows, o.cols), chosen)?;
        Some(if kernels::binary::traps(inst.op, inst.dtype) {
            Step::Other(OpKind::Divide { ew, dtype: inst.dtype })
        } else {
            Step::Elementwise(ew)
        })
    }

    fn ternary(&mut self, inst: &Inst, o: &Ternary) -> Resolved {
        let size = inst.dtype.size();
        let first = if inst.op == Opcode::VSelect { DType::Bool.size() } else { size };
        let chosen = kernels::ternary::choose(inst.op, inst.dtype, self.b.isa);
        let sources = [(o.a, first), (o.b, size), (o.c, size)];
        self.elementwise(inst, o.dst, &sources, (o.rows, o.cols), chosen)
    }

    fn cast(&mut self, inst: &Inst, o: &Cast) -> Resolved {
        let chosen = kernels::cast::choose(o.from, inst.dtype, self.b.isa);
        self.elementwise(inst, o.dst, &[(o.src, o.from.size())], (o.rows, o.cols), chosen)
    }

    fn acc_to_ub(&mut self, inst: &Inst, o: &AccToUb) -> Resolved {
        let chosen = kernels::cast::choose(o.from, inst.dtype, self.b.isa);
        let source = (Src::Local(o.acc, Mode::Full), o.from.size());
        self.elementwise(inst, o.dst, &[source], (o.m, o.n), chosen)
    }

    fn fill(&mut self, inst: &Inst, o: &Fill) -> Resolved {
        let size = inst.dtype.size();
        let copy = Kernel::Span(kernels::shape::copy(size, self.b.isa));
        let chosen = Some((copy, Halves::default()));
        self.elementwise(inst, o.dst, &[(Src::Imm(o.value), size)], (o.rows, o.cols), chosen)
    }

    fn iota(&mut self, inst: &Inst, o: &Iota) -> Resolved {
        self.b.charge(inst, 4 * area(o.rows, o.cols));
        Some(Step::Other(OpKind::Iota {
            dst: self.b.place(o.dst),
            dtype: inst.dtype,
            base: o.base,
            strides: self.b.strides(&o.strides),
            row_step: o.row_step,
            col_step: o.col_step,
            rows: len(o.rows),
            cols: len(o.cols),
        }))
    }

    fn view(&mut self, inst: &Inst, o: &LocalView) -> Resolved {
        let size = inst.dtype.size();
        self.b.charge(inst, 2 * product(&o.loops));
        let loops = self.b.view_loops(&o.loops, size, i64::from(size));
        self.moved(inst, o.dst, o.src, loops)
    }

    /// A strided move between local tiles.
    fn moved(&mut self, inst: &Inst, dst: Local, src: Local, loops: (u32, u8)) -> Resolved {
        let (dst, src) = (self.b.place(dst), self.b.place(src));
        Some(Step::Other(OpKind::LocalView { dst, src, loops, size: inst.dtype.size() as u8 }))
    }

    /// Rows and columns of a dense tile, `steps` bytes apart in the source.
    fn rearranged(
        &mut self,
        inst: &Inst,
        dst: Local,
        src: Local,
        (rows, cols): (Size, Size),
        steps: (u64, u64),
    ) -> Resolved {
        self.b.charge(inst, 2 * area(rows, cols));
        let size = u64::from(inst.dtype.size());
        let first = self.b.loops.len() as u32;
        self.b.loops.push(view_loop(rows, steps.0, u64::from(cols.body) * size));
        self.b.loops.push(view_loop(cols, steps.1, size));
        self.moved(inst, dst, src, (first, 2))
    }

    fn shape(&mut self, inst: &Inst, o: &Shape) -> Resolved {
        let size = u64::from(inst.dtype.size());
        let steps = match inst.op {
            Opcode::VBroadcastX => (size, 0),
            Opcode::VBroadcastY => (0, size),
            _ => (size, u64::from(o.rows.body) * size),
        };
        self.rearranged(inst, o.dst, o.src, (o.rows, o.cols), steps)
    }

    fn remove_pad(&mut self, inst: &Inst, o: &RemovePad) -> Resolved {
        let size = u64::from(inst.dtype.size());
        self.rearranged(inst, o.dst, o.src, (o.rows, o.cols), (o.pitch.wrapping_mul(size), size))
    }

    fn clear_pad(&mut self, inst: &Inst, o: &ClearPad) -> Resolved {
        self.b.charge(inst, u64::from(o.rows.body).saturating_mul(o.pitch));
        Some(Step::Other(OpKind::ClearPad {
            dst: self.b.place(o.dst),
            bits: o.value,
            rows: len(o.rows),
            cols: len(o.cols),
            // Below 2^28 (verified).
            pitch: o.pitch as u32,
            size: inst.dtype.size() as u8,
        }))
    }

    fn sort(&mut self, inst: &Inst, o: &SortKv) -> Resolved {
        self.b.charge(inst, 8 * area(o.rows, o.cols));
        Some(Step::Other(OpKind::Sort {
            key: self.b.place(o.key),
            value: self.b.place(o.value),
            dtype: inst.dtype,
            rows: len(o.rows),
            cols: len(o.cols),
            descending: o.descending,
        }))
    }

    fn reduce(&mut self, inst: &Inst, o: &Reduce) -> Resolved {
        self.b.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
        Some(Step::Other(OpKind::Reduce {
            dst: self.b.place(o.dst),
            src: self.b.place(o.src),
            what: What::of(inst.op),
            dtype: inst.dtype,
            outer: len(o.outer),
            red: len(o.red),
            inner: len(o.inner),
            init: o.init,
        }))
    }

    fn part_sum(&mut self, inst: &Inst, o: &PartSum) -> Resolved {
        self.b.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
        Some(Step::Other(OpKind::PartSum {
            dst: self.b.place(o.dst),
            lanes: self.b.place(o.lanes),
            src: self.b.place(o.src),
            dtype: inst.dtype,
            outer: len(o.outer),
            red: len(o.red),
            inner: len(o.inner),
            init: o.init,
            base: o.base,
            strides: self.b.strides(&o.strides),
            across: o.across,
            totals: o.totals,
        }))
    }

    fn arg_reduce(&mut self, inst: &Inst, o: &ArgReduce) -> Resolved {
        self.b.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
        Some(Step::Other(OpKind::ArgReduce {
            index: self.b.place(o.index),
            value: self.b.place(o.value),
            src: self.b.place(o.src),
            dtype: inst.dtype,
            largest: inst.op == Opcode::VArgMax,
            last: o.last,
            outer: len(o.outer),
            red: len(o.red),
            inner: len(o.inner),
            init: o.init,
            base: o.base,
            strides: self.b.strides(&o.strides),
        }))
    }

    fn cum_sum(&mut self, inst: &Inst, o: &CumSum) -> Resolved {
        self.b.charge(inst, area(o.outer, o.red) * u64::from(o.inner.body));
        Some(Step::Other(OpKind::CumSum {
            dst: self.b.place(o.dst),
            carry: self.b.place(o.carry),
            src: self.b.place(o.src),
            dtype: inst.dtype,
            outer: len(o.outer),
            red: len(o.red),
            inner: len(o.inner),
            init: o.init,
            exclusive: o.exclusive,
            reverse: o.reverse,
        }))
    }
}

/// Elements of a view.
pub(super) fn product(loops: &[dvm_bc::Loop]) -> u64 {
    loops.iter().map(|l| u64::from(l.count.body)).fold(1, u64::saturating_mul)
}
