//! What one execution of an instruction occupies: its pipe for some cycles, and memory for some bytes.

use dvm_bc::{Class, DType, Inst, Mem, Mode, Opcode, Operands, Size, Space, Src, Target};
use smallvec::SmallVec;

use super::Constants;

/// An execution, apart from where in memory it is.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The pipe alone.
    Pipe(PipeWork),
    /// A transfer.
    Dma(Transfer),
}

/// Cycles of a pipe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PipeWork {
    /// The pipe is occupied.
    pub(super) busy: f64,
    /// Before that, unless the pipe is busy with an earlier one.
    pub(super) head: f64,
    /// After that, the result is there.
    pub(super) tail: f64,
    /// Arithmetic operations, and of those how many are products.
    pub(super) flops: f64,
}

/// A transfer between an argument and local memory.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) write: bool,
    /// Non-temporal.
    pub(super) stream: bool,
    /// Count and byte stride of each dim, outermost first, and the bytes of a contiguous run.
    pub(super) dims: SmallVec<[(u64, i64); 4]>,
    pub(super) run: u64,
    /// Runs, bytes.
    pub(super) runs: u64,
    pub(super) bytes: u64,
    /// Bytes a cycle of the path, least cycles of a run and of the whole.
    pub(super) rate: f64,
    pub(super) burst: f64,
    pub(super) least: f64,
    pub(super) latency: f64,
}

/// The argument that an instruction moves to or from.
pub(super) fn mem(inst: &Inst) -> Option<&Mem> {
    match &inst.operands {
        Operands::Load(o) => Some(&o.src),
        Operands::Store(o) => Some(&o.dst),
        Operands::ViewLoad(o) => Some(&o.src),
        Operands::ViewStore(o) => Some(&o.dst),
        Operands::GatherLoad(o) => Some(&o.src),
        Operands::GatherElems(o) => Some(&o.src),
        Operands::ScatterStore(o) => Some(&o.dst),
        Operands::ScatterElems(o) => Some(&o.dst),
        Operands::CompressStore(o) => Some(&o.dst),
        Operands::FillStore(o) => Some(&o.dst),
        Operands::LoadA(o) => Some(&o.src),
        Operands::LoadB(o) => Some(&o.src),
        Operands::BindB(o) => Some(&o.src),
        Operands::AccStore(o) => Some(&o.dst),
        _ => None,
    }
}

/// Instructions over tiles: model of one machine.
pub(super) struct Pricer<'a> {
    pub(super) c: &'a Constants,
    pub(super) target: &'a Target,
}

impl Pricer<'_> {
    /// The work of `inst` where ragged counts are as `n` says.
    pub(super) fn work(&self, inst: &Inst, n: &dyn Fn(Size) -> u64) -> Work {
        let c = self.c;
        let elem = u64::from(inst.dtype.size());
        let bytes = elem as i64;
        let stride = |v: i64| v;
        let t = |write, stream, dims: &[(u64, i64)]| self.transfer(inst, write, stream, dims, elem);
        match &inst.operands {
            Operands::Load(o) => t(false, o.hints.stream, &[(n(o.rows), o.pitch), (n(o.cols), bytes)]),
            Operands::Store(o) => t(true, o.hints.stream, &[(n(o.rows), o.pitch), (n(o.cols), bytes)]),
            Operands::FillStore(o) => t(true, o.hints.stream, &[(n(o.rows), o.pitch), (n(o.cols), bytes)]),
            Operands::ViewLoad(o) => {
                let dims: SmallVec<[(u64, i64); 4]> =
                    o.loops.iter().map(|l| (n(l.count), stride(l.stride))).collect();
                t(false, o.hints.stream, &dims)
            }
            Operands::ViewStore(o) => {
                let dims: SmallVec<[(u64, i64); 4]> =
                    o.loops.iter().map(|l| (n(l.count), stride(l.stride))).collect();
                t(true, o.hints.stream, &dims)
            }
            // Data decide which rows; they are taken to be spread evenly.
            Operands::GatherLoad(o) => {
                t(false, false, &[(n(o.rows), spread(o.stride, o.limit, n(o.rows))), (n(o.cols), bytes)])
            }
            Operands::ScatterStore(o) => {
                t(true, false, &[(n(o.rows), spread(o.stride, o.limit, n(o.rows))), (n(o.cols), bytes)])
            }
            Operands::CompressStore(o) => t(true, false, &[(n(o.rows), o.stride), (n(o.cols), bytes)]),
            Operands::GatherElems(o) => t(
                false,
                false,
                &[
                    (n(o.rows), o.row_stride),
                    (n(o.cols), o.col_stride.max(spread(o.stride, o.limit, n(o.cols)))),
                ],
            ),
            Operands::ScatterElems(o) => t(
                true,
                false,
                &[
                    (n(o.rows), o.row_stride),
                    (n(o.cols), o.col_stride.max(spread(o.stride, o.limit, n(o.cols)))),
                ],
            ),
            Operands::LoadA(o) => t(false, o.hints.stream, &[(n(o.m), o.row_stride), (n(o.k), o.col_stride)]),
            Operands::LoadB(o) => t(false, o.hints.stream, &[(n(o.k), o.row_stride), (n(o.n), o.col_stride)]),
            Operands::BindB(o) => {
                let nr = u64::from(self.target.nr(inst.dtype.size())).max(1);
                t(false, false, &[(n(o.n).div_ceil(nr), o.panel_stride), (n(o.k) * nr, bytes)])
            }
            Operands::AccStore(o) => t(true, o.hints.stream, &[(n(o.m), o.pitch), (n(o.n), bytes)]),
            Operands::AccToUb(o) => {
                let moved = (n(o.m) * n(o.n) * elem) as f64;
                Work::Pipe(PipeWork { busy: moved / c.l0c_ub, head: 0.0, tail: c.fix_head, flops: 0.0 })
            }
            Operands::Mmad(o) => self.product(inst.dtype, n(o.m), n(o.n), n(o.k)),
            _ => Work::Pipe(self.vector(inst, n)),
        }
    }

    fn transfer(&self, inst: &Inst, write: bool, stream: bool, dims: &[(u64, i64)], elem: u64) -> Work {
        let c = self.c;
        let mut run = elem;
        let mut kept: SmallVec<[(u64, i64); 4]> = SmallVec::from_slice(dims);
        // Dims of one step move nothing; the unit stride goes innermost, whichever dim has it.
        kept.retain(|d| d.0 != 1);
        if let Some(at) = kept.iter().position(|d| d.1.unsigned_abs() == run) {
            let d = kept.remove(at);
            kept.push(d);
        }
        while let Some(&(count, step)) = kept.last() {
            if step.unsigned_abs() != run {
                break;
            }
            run = run.saturating_mul(count);
            kept.pop();
        }
        let runs = kept.iter().fold(1u64, |n, d| n.saturating_mul(d.0));
        let bytes = runs.saturating_mul(run);
        let cube = matches!(inst.operands, Operands::LoadA(_) | Operands::LoadB(_) | Operands::BindB(_));
        let (mut rate, burst, latency) = match &inst.operands {
            Operands::AccStore(_) => (c.l0c_gm, c.burst_store, c.lat_store + c.fix_head),
            _ if write => (c.ub_gm, c.burst_store, c.lat_store),
            _ if cube => (c.gm_l1, c.burst_l1, 0.0),
            _ => (c.gm_ub, c.burst_ub, 0.0),
        };
        if write && run < c.l2_line as u64 && run >= 32 && !run.is_multiple_of(32) {
            rate = rate.min(c.unaligned_store);
        }
        Work::Dma(Transfer {
            write,
            stream,
            dims: kept,
            run,
            runs,
            bytes,
            rate,
            burst,
            least: c.dma_issue,
            latency,
        })
    }

    fn product(&self, dtype: DType, m: u64, n: u64, k: u64) -> Work {
        let c = self.c;
        let per_k = match dtype {
            DType::I8 | DType::U8 => c.cube_k_i8,
            DType::F16 | DType::BF16 => c.cube_k_half,
            DType::F32 => c.cube_k_f32,
            _ => c.cube_k_other,
        };
        let blocks = (m.div_ceil(16) * n.div_ceil(16)) as f64;
        let cube = blocks * (k as f64 / per_k).ceil();
        let elem = f64::from(dtype.size());
        // L1 to L0 goes on beside the product, in pieces; what is slower decides.
        let a = (m * k) as f64 * elem / c.l1_l0a;
        let b = (k * n) as f64 * elem / c.l1_l0b;
        Work::Pipe(PipeWork {
            busy: cube.max(a + b) + c.mmad_next,
            head: c.mte1_head + (c.mmad_head - c.mmad_next).max(0.0),
            tail: 0.0,
            flops: 2.0 * (m * n) as f64 * k as f64,
        })
    }

    fn vector(&self, inst: &Inst, n: &dyn Fn(Size) -> u64) -> PipeWork {
        let c = self.c;
        let tile = |rows: Size, cols: Size| (n(rows), n(cols), n(cols) < u64::from(cols.body));
        match &inst.operands {
            Operands::Unary(o) => self.elementwise(inst, tile(o.rows, o.cols), &[o.src], Some(o.dst), None),
            Operands::Binary(o) => {
                self.elementwise(inst, tile(o.rows, o.cols), &[o.a, o.b], Some(o.dst), None)
            }
            Operands::Ternary(o) => {
                self.elementwise(inst, tile(o.rows, o.cols), &[o.a, o.b, o.c], Some(o.dst), None)
            }
            Operands::Cast(o) => {
                self.elementwise(inst, tile(o.rows, o.cols), &[o.src], Some(o.dst), Some(o.from))
            }
            Operands::Fill(o) => self.elementwise(inst, tile(o.rows, o.cols), &[], Some(o.dst), None),
            Operands::Iota(o) => self.elementwise(inst, tile(o.rows, o.cols), &[], Some(o.dst), None),
            Operands::ClearPad(o) => self.elementwise(inst, (n(o.rows), o.pitch, true), &[], None, None),
            Operands::RemovePad(o) => self.elementwise(inst, (n(o.rows), n(o.cols), true), &[], None, None),
            Operands::Shape(o) => match inst.op {
                Opcode::VTranspose => self.gathered((n(o.rows) * n(o.cols)) as f64),
                _ => self.elementwise(inst, (n(o.rows), n(o.cols), true), &[], None, None),
            },
            Operands::LocalView(o) => {
                let all: f64 = o.loops.iter().map(|l| n(l.count) as f64).product();
                let inner = o.loops.last().map_or((1, 1), |l| (n(l.count), l.stride));
                if inner.1 == 1 && all > 0.0 {
                    let rows = (all / inner.0.max(1) as f64) as u64;
                    self.elementwise(inst, (rows, inner.0, true), &[], None, None)
                } else {
                    self.gathered(all)
                }
            }
            Operands::Reduce(o) => self.reduce(inst.dtype, n(o.outer), n(o.red), n(o.inner)),
            Operands::ArgReduce(o) => {
                let w = self.reduce(inst.dtype, n(o.outer), n(o.red), n(o.inner));
                // A reduction of the values, a comparison with the best and a choice.
                PipeWork { busy: 3.0 * w.busy, ..w }
            }
            Operands::CumSum(o) => {
                let (outer, red, inner) = (n(o.outer), n(o.red), n(o.inner));
                let size = f64::from(inst.dtype.size());
                let rows = (outer * red) as f64;
                let busy = if inner == 1 {
                    rows * c.vec_scan
                } else {
                    rows * (inner as f64 * size / c.vec_bytes).ceil() * c.vec_arith + rows * c.vec_next
                };
                self.vector_work(busy, c.vec_fixed, rows * inner as f64)
            }
            // Rows become columns.
            Operands::PackA(o) => self.gathered((n(o.m) * n(o.k)) as f64),
            Operands::SortKv(o) => {
                let (rows, cols) = (n(o.rows) as f64, n(o.cols) as f64);
                let steps = cols * cols.max(2.0).log2().ceil();
                self.vector_work(rows * (steps / c.vec_sort + c.vec_fixed), c.vec_fixed, 0.0)
            }
            _ => PipeWork::default(),
        }
    }

    fn gathered(&self, elements: f64) -> PipeWork {
        let c = self.c;
        self.vector_work(elements / c.vec_gather, c.vec_fixed, 0.0)
    }

    /// `ragged`: rows are shorter than their pitch.
    fn elementwise(
        &self,
        inst: &Inst,
        (rows, cols, ragged): (u64, u64, bool),
        sources: &[Src],
        dst: Option<dvm_bc::Local>,
        from: Option<DType>,
    ) -> PipeWork {
        let c = self.c;
        let (slope, fixed) = self.slope(inst);
        let size = f64::from(inst.dtype.size().max(from.map_or(0, DType::size)));
        let spread = |s: &Src| matches!(s, Src::Local(_, Mode::Row | Mode::Col));
        let by_row = rows > 1 && (ragged || sources.iter().any(spread));
        let row_repeats = (cols as f64 * size / c.vec_bytes).ceil();
        let repeats =
            if by_row { rows as f64 * row_repeats } else { (rows * cols) as f64 * size / c.vec_bytes };
        let repeats = repeats.ceil();
        let mut busy = repeats * (slope + self.conflicts(sources, dst));
        if by_row {
            // The instruction runs along the rows or across them, whichever takes fewer.
            let pieces = (rows as f64).min(row_repeats);
            busy += (pieces - 1.0).max(0.0) * c.vec_next;
            // A column is spread over a register first.
            let columns = sources.iter().filter(|s| matches!(s, Src::Local(_, Mode::Col))).count() as f64;
            busy += columns * ((rows as f64 / 8.0).ceil() * c.vec_move + c.vec_next);
        }
        if (cols as f64 * size) % c.vec_bytes != 0.0 {
            busy += c.vec_tail;
        }
        let flops = match inst.op.class() {
            Class::Move => 0.0,
            _ if inst.op == Opcode::VFma => 2.0 * (rows * cols) as f64,
            _ => (rows * cols) as f64,
        };
        self.vector_work(busy, fixed, flops)
    }

    /// The part of the latency that is no start occupies the pipe.
    fn vector_work(&self, busy: f64, fixed: f64, flops: f64) -> PipeWork {
        let head = self.c.vec_head.min(fixed);
        PipeWork { busy: busy + fixed - head, head, tail: 0.0, flops }
    }

    /// Cycles a repeat, and the fixed part.
    fn slope(&self, inst: &Inst) -> (f64, f64) {
        use Opcode::{
            VErf, VExp, VExp2, VExpm1, VFloorDiv, VFma, VFmod, VLn, VLog1p, VLog2, VReciprocal, VRem, VRsqrt,
            VSigmoid, VSqrt, VTanh,
        };
        let c = self.c;
        let half = matches!(inst.dtype, DType::F16 | DType::BF16);
        let wide = |v: f64| if half { v * c.vec_half } else { v };
        let long = c.vec_special_fixed;
        match inst.op {
            VFma => (2.0 * c.vec_arith, c.vec_fixed),
            VExp | VLn => (wide(c.vec_exp), c.vec_fixed),
            VExp2 | VLog2 => (wide(c.vec_exp) + c.vec_arith, c.vec_fixed + c.vec_next),
            VExpm1 | VLog1p => (wide(c.vec_tanh), long),
            VSigmoid => (wide(c.vec_sigmoid), long),
            VTanh => (wide(c.vec_tanh), long),
            VErf => (wide(c.vec_erf), long),
            VSqrt => (wide(c.vec_sqrt), c.vec_fixed),
            VRsqrt | VReciprocal => (c.vec_reciprocal, c.vec_fixed),
            VRem | VFmod | VFloorDiv => (wide(c.vec_div) + 4.0 * c.vec_arith, c.vec_fixed + 4.0 * c.vec_next),
            _ => match inst.op.class() {
                Class::Arith => (c.vec_arith, c.vec_fixed),
                Class::Compare => (c.vec_compare, c.vec_fixed),
                Class::Divide => (wide(c.vec_div), c.vec_fixed),
                Class::Exp => (wide(c.vec_exp), c.vec_fixed),
                Class::Special => (wide(c.vec_special), long),
                _ => (c.vec_move, c.vec_fixed),
            },
        }
    }

    /// Cycles a repeat that banks add: they are 32 bytes wide, 16 groups in a row, and come again 64 KiB further.
    fn conflicts(&self, sources: &[Src], dst: Option<dvm_bc::Local>) -> f64 {
        let c = self.c;
        if c.bank_read == 0.0 && c.bank_write == 0.0 {
            return 0.0;
        }
        let block = u64::from(self.target.block);
        let at = |l: dvm_bc::Local| u64::from(l.offset) * block;
        let full: SmallVec<[u64; 3]> = sources
            .iter()
            .filter_map(|s| match s {
                Src::Local(l, Mode::Full) if l.space == Space::Ub => Some(at(*l)),
                _ => None,
            })
            .collect();
        let groups = |x: u64, y: u64| {
            let apart = (x / 32) % 16;
            let other = (y / 32) % 16;
            let gap = apart.abs_diff(other);
            gap.min(16 - gap) < 8
        };
        let mut extra = 0.0;
        if let [x, y, ..] = full[..]
            && x != y
            && groups(x, y)
        {
            extra += c.bank_read;
        }
        if let Some(d) = dst
            && full.iter().any(|&x| x >> 16 == at(d) >> 16 && groups(x, at(d)))
        {
            extra += c.bank_write;
        }
        extra
    }

    fn reduce(&self, dtype: DType, outer: u64, red: u64, inner: u64) -> PipeWork {
        let c = self.c;
        let size = f64::from(dtype.size());
        let (o, r, i) = (outer as f64, red as f64, inner as f64);
        let lanes = c.vec_bytes / size;
        let busy = if inner > 1 {
            // Rows are added to each other.
            o * r * (i / lanes).ceil() * c.vec_arith + o * c.vec_next
        } else if r * size <= 32.0 {
            (o * r * size / c.vec_bytes).ceil() * if size < 4.0 { c.vec_reduce } else { c.vec_block }
        } else {
            // Registers of a row are added, then each row's register is reduced.
            let adds = ((r / lanes).ceil() - 1.0).max(0.0);
            let pieces = if adds > 0.0 { o.min(adds) } else { 0.0 };
            o * (adds * c.vec_arith + c.vec_reduce) + pieces * c.vec_next
        };
        self.vector_work(busy, c.vec_reduce_fixed, o * r * i)
    }
}

/// Stride of rows that data pick of `limit` rows, if they are spread evenly.
fn spread(stride: i64, limit: u64, rows: u64) -> i64 {
    let step = (limit / rows.max(1)).max(1);
    stride.saturating_mul(i64::try_from(step).unwrap_or(i64::MAX))
}
