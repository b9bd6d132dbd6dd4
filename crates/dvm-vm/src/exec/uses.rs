//! What an instruction touches, in bytes of local memory and of arguments.

use dvm_bc::{DType, Init, Inst, Local, Mem, Mode, Opcode, Operands, Size, Src};
use smallvec::SmallVec;

use super::predecode::simplify;
use crate::kernels::binary;

/// Operands of an elementwise instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elementwise {
    pub(super) dst: Local,
    pub(super) rows: Size,
    pub(super) cols: Size,
    /// Bytes per element of the result.
    pub(super) size: u8,
    /// Local sources with their mode and bytes per element.
    pub(super) sources: [Option<(Local, Mode, u8)>; 3],
    /// It may trap, so it runs alone.
    pub(super) traps: bool,
}

impl Elementwise {
    #[inline(always)]
    fn source(&mut self, i: usize, src: Src, size: u8) {
        if let Src::Local(local, mode) = src {
            self.sources[i] = Some((local, simplify(mode, self.rows, self.cols), size));
        }
    }
}

/// Describes an elementwise instruction, where it is to lie; nothing for others.
#[inline]
pub(super) fn elementwise(inst: &Inst, out: &mut Option<Elementwise>) {
    let size = inst.dtype.size() as u8;
    let begin = |dst, rows, cols| {
        let out = out;
        let (size, sources) = (inst.result_dtype().size() as u8, [None; 3]);
        out.insert(Elementwise { dst, rows, cols, size, sources, traps: false })
    };
    match &inst.operands {
        Operands::Unary(o) => begin(o.dst, o.rows, o.cols).source(0, o.src, size),
        Operands::Binary(o) => {
            let e = begin(o.dst, o.rows, o.cols);
            e.source(0, o.a, size);
            e.source(1, o.b, size);
            e.traps = binary::traps(inst.op, inst.dtype);
        }
        Operands::Ternary(o) => {
            let e = begin(o.dst, o.rows, o.cols);
            e.source(0, o.a, if inst.op == Opcode::VSelect { 1 } else { size });
            e.source(1, o.b, size);
            e.source(2, o.c, size);
        }
        Operands::Cast(o) => begin(o.dst, o.rows, o.cols).source(0, o.src, o.from.size() as u8),
        Operands::Fill(o) => {
            begin(o.dst, o.rows, o.cols);
        }
        Operands::AccToUb(o) => {
            begin(o.dst, o.m, o.n).source(0, Src::Local(o.acc, Mode::Full), o.from.size() as u8);
        }
        _ => {}
    }
}

/// Elements or bytes from the beginning of an operand on, in every tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// The most there may be.
    pub(super) body: u64,
    /// As many at the last index of an extent; of a tile, those of its rows and of its columns.
    tail: u64,
    /// What of it may be missing, and where: a kind below, extents, and rows of a tile.
    ragged: u64,
}

/// Nothing is missing.
const WHOLE: u64 = 0;
/// The end, at the last index of an extent.
const END: u64 = 1;
/// Ends of rows, and rows, of a tile.
const ENDS: u64 = 2;
/// Anything: equal to nothing.
const ANY: u64 = 3;

impl Count {
    pub(super) const fn fixed(n: u64) -> Count {
        Count { body: n, tail: n, ragged: WHOLE }
    }
    #[inline]
    pub(super) fn of(s: Size) -> Count {
        let ragged = s.extent.map_or(WHOLE, |e| END | u64::from(e) << 8);
        Count { body: s.body.into(), tail: s.tail.into(), ragged }
    }
    fn kind(self) -> u64 {
        self.ragged & 0xff
    }
    /// Rows of columns.
    #[inline]
    pub(super) fn tile(rows: Size, cols: Size) -> Count {
        let tile = Count::of(rows).of_each(Count::of(cols));
        if tile.kind() != ANY {
            return tile;
        }
        let extent = |s: Size| s.extent.map_or(0xff, u64::from);
        // Counts are below 2^28.
        Count {
            tail: u64::from(rows.tail) << 32 | u64::from(cols.tail),
            ragged: ENDS | extent(rows) << 8 | extent(cols) << 16 | u64::from(rows.body) << 32,
            ..tile
        }
    }
    /// So many, one behind the other as they lie where none is missing.
    #[inline]
    fn of_each(self, inner: Count) -> Count {
        let (body, tail) = (self.body.saturating_mul(inner.body), self.tail.saturating_mul(inner.tail));
        let ragged = match (self.kind(), inner.kind()) {
            (ENDS, WHOLE) => return Count { body, ..self },
            (_, WHOLE) => self.ragged,
            (WHOLE, _) if self.body == 1 => return inner,
            _ => ANY,
        };
        Count { body, tail, ragged }
    }
    #[inline]
    pub(super) fn times(self, n: u64) -> Count {
        self.of_each(Count::fixed(n))
    }
    /// So many times as much, the pieces apart.
    #[inline]
    fn planes(self, n: u64) -> Count {
        let ragged = if n == 1 || self.is_fixed() { self.ragged } else { ANY };
        Count { ragged, ..self.times(n) }
    }
    /// Some of these.
    fn somewhere(self) -> Count {
        Count { ragged: ANY, ..self }
    }
    /// The same in every tile.
    #[inline]
    pub(super) fn is_fixed(self) -> bool {
        self.ragged == WHOLE
    }
    /// Whether two are the same in every tile.
    #[inline]
    pub(super) fn same(self, other: Count) -> bool {
        self == other && self.ragged != ANY
    }
}

/// A use of vector or accumulator memory.
pub(super) struct Use {
    pub(super) local: Local,
    pub(super) bytes: Count,
    /// Bytes per element.
    pub(super) size: u8,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// Calls `f` for each use of vector or accumulator memory by an instruction that is not elementwise.
pub(super) fn locals(inst: &Inst, f: &mut impl FnMut(Use)) {
    let size = inst.dtype.size();
    let mut use_ = |local, elements: Count, size: u32, read, write| {
        f(Use { local, bytes: elements.times(size.into()), size: size as u8, read, write });
    };
    let tile = Count::tile;
    let tile3 = |a: Size, b: Size, c: Size| tile(a, b).of_each(Count::of(c));
    let updated = |init: Init| init != Init::Always;
    match &inst.operands {
        Operands::Load(o) => use_(o.dst, tile(o.rows, o.cols), size, false, true),
        Operands::Store(o) => use_(o.src, tile(o.rows, o.cols), size, true, false),
        Operands::ViewLoad(o) => use_(o.dst, loops(&o.loops), size, false, true),
        Operands::ViewStore(o) => use_(o.src, loops(&o.loops), size, true, false),
        Operands::GatherLoad(o) => {
            use_(o.index, Count::of(o.rows), o.index_dtype.size(), true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::GatherElems(o) => {
            use_(o.index, tile(o.rows, o.cols), o.index_dtype.size(), true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::ScatterStore(o) => {
            use_(o.index, Count::of(o.rows), o.index_dtype.size(), true, false);
            use_(o.src, tile(o.rows, o.cols), size, true, false);
        }
        Operands::ScatterElems(o) => {
            use_(o.index, tile(o.rows, o.cols), o.index_dtype.size(), true, false);
            use_(o.src, tile(o.rows, o.cols), size, true, false);
        }
        Operands::CompressStore(o) => {
            use_(o.mask, Count::of(o.rows), 1, true, false);
            use_(o.src, tile(o.rows, o.cols), size, true, false);
            use_(o.count, Count::fixed(1), 8, updated(o.init), true);
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
            let n = Count::fixed(n).somewhere();
            use_(local, n, size, true, false);
            use_(o.dst, loops(&o.loops), size, false, true);
        }
        Operands::Shape(o) => {
            let from = match inst.op {
                Opcode::VBroadcastX => Count::of(o.rows),
                Opcode::VBroadcastY => Count::of(o.cols),
                _ => tile(o.rows, o.cols),
            };
            use_(o.src, from, size, true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::ClearPad(o) => use_(o.dst, Count::of(o.rows).times(o.pitch), size, true, true),
        Operands::RemovePad(o) => {
            use_(o.src, Count::of(o.rows).times(o.pitch), size, true, false);
            use_(o.dst, tile(o.rows, o.cols), size, false, true);
        }
        Operands::SortKv(o) => {
            use_(o.key, tile(o.rows, o.cols), size, true, true);
            use_(o.value, tile(o.rows, o.cols), 8, true, true);
        }
        Operands::Reduce(o) => {
            use_(o.src, tile3(o.outer, o.red, o.inner), size, true, false);
            let planes = if inst.op == Opcode::VSum && updated(o.init) { 2 } else { 1 };
            let elem = if planes == 2 { dvm_bc::layout::sum_dtype(inst.dtype).size() } else { size };
            use_(o.dst, tile(o.outer, o.inner).planes(planes), elem, updated(o.init), true);
        }
        Operands::PartSum(o) => {
            use_(o.src, tile3(o.outer, o.red, o.inner), size, true, false);
            let elem = dvm_bc::layout::sum_dtype(inst.dtype).size();
            let lanes = if o.across { 1 } else { u64::from(dvm_bc::layout::SUM_LANES) };
            use_(o.dst, tile(o.outer, o.inner).planes(2), elem, updated(o.init), true);
            use_(o.lanes, tile(o.outer, o.inner).planes(lanes), elem, updated(o.init), true);
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
        Operands::AccStore(o) => use_(o.acc, tile(o.m, o.n), o.from.size(), true, false),
        Operands::PackA(o) => {
            let last = u64::from(o.m.body.saturating_sub(1)).saturating_mul(o.pitch);
            let n = if o.m.body == 0 { 0 } else { last.saturating_add(u64::from(o.k.body)) };
            let whole = Count::of(o.m).is_fixed() && Count::of(o.k).is_fixed();
            let n = if whole { Count::fixed(n) } else { Count::fixed(n).somewhere() };
            use_(o.src, n, size, true, false);
        }
        // Packed operands are known by their handles; the verifier keeps their buffers apart.
        Operands::LoadA(_) | Operands::LoadB(_) | Operands::BindB(_) => {}
        Operands::FillStore(_) | Operands::OnPipe(_) | Operands::Cross(_) | Operands::Control(_) => {}
        // Elementwise: see `elementwise`.
        Operands::Unary(_)
        | Operands::Binary(_)
        | Operands::Ternary(_)
        | Operands::Cast(_)
        | Operands::Fill(_)
        | Operands::AccToUb(_) => {}
    }
}

fn loops(loops: &[dvm_bc::Loop]) -> Count {
    loops.iter().fold(Count::fixed(1), |n, l| n.of_each(Count::of(l.count)))
}

/// Elements that a mode reads.
#[inline]
pub(super) fn elements(mode: Mode, rows: Size, cols: Size) -> Count {
    match mode {
        Mode::Full => Count::tile(rows, cols),
        Mode::Row => Count::of(cols),
        Mode::Col => Count::of(rows),
        Mode::One => Count::fixed(1),
    }
}

/// Whether rows in the argument are laid out as in local memory.
pub(super) fn contiguous(rows: Size, cols: Size, pitch: i64, size: u32) -> bool {
    rows.body == 1 || pitch == i64::from(cols.body) * i64::from(size)
}

/// Slot and byte range, from the slot's base, of all that a store writes.
pub(super) fn store_hull(inst: &Inst, extents: &[u32]) -> Option<(u16, i64, i64)> {
    let size = i64::from(inst.dtype.size());
    let row = |cols: Size| i64::from(cols.body).saturating_mul(size);
    let rows = |rows: Size, pitch: i64| (rows.body, pitch);
    let loops: SmallVec<[(u32, i64); 4]>;
    let (mem, unit) = match &inst.operands {
        Operands::Store(o) => {
            loops = [rows(o.rows, o.pitch)].into_iter().collect();
            (&o.dst, row(o.cols))
        }
        Operands::FillStore(o) => {
            loops = [rows(o.rows, o.pitch)].into_iter().collect();
            (&o.dst, row(o.cols))
        }
        Operands::ViewStore(o) => {
            loops = o.loops.iter().map(|l| rows(l.count, l.stride)).collect();
            (&o.dst, size)
        }
        Operands::AccStore(o) => {
            loops = [rows(o.m, o.pitch)].into_iter().collect();
            (&o.dst, row(o.n))
        }
        // Data decide where they write.
        Operands::ScatterStore(o) => return Some((o.dst.slot, i64::MIN, i64::MAX)),
        Operands::ScatterElems(o) => return Some((o.dst.slot, i64::MIN, i64::MAX)),
        Operands::CompressStore(o) => return Some((o.dst.slot, i64::MIN, i64::MAX)),
        _ => return None,
    };
    let walks = mem.strides.iter().map(|&(e, s)| (extents.get(usize::from(e)).copied().unwrap_or(1), s));
    let (mut lo, mut hi) = (mem.offset, mem.offset.saturating_add(unit));
    for (n, stride) in walks.chain(loops) {
        let span = stride.saturating_mul(i64::from(n).saturating_sub(1).max(0));
        lo = lo.saturating_add(span.min(0));
        hi = hi.saturating_add(span.max(0));
    }
    Some((mem.slot, lo, hi))
}

/// The argument operand of a load or store that is bound.
pub(super) fn bound_operand(inst: &Inst) -> Option<&Mem> {
    match &inst.operands {
        Operands::Load(o) => Some(&o.src),
        Operands::Store(o) => Some(&o.dst),
        _ => None,
    }
}

/// Elements that a load or store would move.
pub(super) fn moved(inst: &Inst) -> u64 {
    match &inst.operands {
        Operands::Load(o) => u64::from(o.rows.body) * u64::from(o.cols.body),
        Operands::Store(o) => u64::from(o.rows.body) * u64::from(o.cols.body),
        _ => 0,
    }
}
