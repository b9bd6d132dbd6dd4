//! Which bytes each instruction touches: the one place that knows the geometry of every form.

use smallvec::SmallVec;

use crate::layout::{SUM_LANES, acc_bytes, panel_a_bytes, panel_b_bytes, sum_dtype};
use crate::{
    Access, DType, Hints, Init, Inst, Local, Loop, MAX_LOOPS, Mem, Mode, Opcode, Operands, Size, Space, Src,
    Target,
};

/// A ragged dim of a dense region: within each `period` bytes the first `tail` are valid when `extent` stands last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ragged {
    pub(super) extent: u8,
    pub(super) period: u64,
    pub(super) tail: u64,
}

/// Up to as many ragged dims as an instruction can have, copied rather than allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaggedDims {
    len: u8,
    dims: [Ragged; MAX_LOOPS],
}

impl Default for RaggedDims {
    #[inline]
    fn default() -> RaggedDims {
        RaggedDims { len: 0, dims: [Ragged { extent: 0, period: 0, tail: 0 }; MAX_LOOPS] }
    }
}

impl PartialEq for RaggedDims {
    #[inline(always)]
    fn eq(&self, other: &RaggedDims) -> bool {
        // Unused ones are equal: regions are compared for every operand, and hardly any has more than one.
        self.len == other.len
            && (self.len == 0 || self.dims[0] == other.dims[0])
            && (self.len <= 1 || self.dims[1..] == other.dims[1..])
    }
}

impl RaggedDims {
    #[inline]
    pub(super) fn push(&mut self, dim: Ragged) {
        if let Some(free) = self.dims.get_mut(usize::from(self.len)) {
            *free = dim;
            self.len += 1;
        }
    }
    /// Keeps the dims that `f` wants.
    pub(super) fn retain(&mut self, f: impl FnMut(&Ragged) -> bool) {
        let mut kept = RaggedDims::default();
        self.iter().copied().filter(f).for_each(|d| kept.push(d));
        *self = kept;
    }
}

impl std::ops::Deref for RaggedDims {
    type Target = [Ragged];
    #[inline]
    fn deref(&self) -> &[Ragged] {
        &self.dims[..usize::from(self.len).min(MAX_LOOPS)]
    }
}

/// A dense row-major region of local memory, laid out by body counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Region {
    pub(super) bytes: u64,
    /// Bytes of an element.
    pub(super) elem: u32,
    /// The dims of which less is valid at an extent's last index.
    pub(super) ragged: RaggedDims,
}

impl Region {
    /// Row-major over `dims`, outermost first, as many as a view has. Saturates, which no space can hold.
    #[inline(always)]
    pub(super) fn dense(dims: &[Size], elem: u32) -> Region {
        let mut region = Region { bytes: u64::from(elem), elem, ragged: RaggedDims::default() };
        for d in dims.iter().rev() {
            let inner = region.bytes;
            region.bytes = inner.saturating_mul(u64::from(d.body));
            if let Some(extent) = d.extent
                && d.tail != d.body
            {
                let tail = inner.saturating_mul(u64::from(d.tail));
                region.ragged.push(Ragged { extent, period: region.bytes, tail });
            }
        }
        region
    }
    fn one(elem: u32) -> Region {
        Region { bytes: u64::from(elem), elem, ragged: RaggedDims::default() }
    }
    fn planes(dims: &[Size], elem: u32, planes: u64) -> Region {
        // Both planes are ragged alike: the second repeats the first's period.
        let mut r = Region::dense(dims, elem);
        r.bytes = r.bytes.saturating_mul(planes);
        r
    }
}

/// A dim of an access to an argument: `count` steps of `stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) body: u64,
    pub(super) tail: u64,
    pub(super) extent: Option<u8>,
    pub(super) stride: i64,
}

impl Dim {
    fn of(s: Size, stride: i64) -> Dim {
        Dim { body: u64::from(s.body), tail: u64::from(s.tail), extent: s.extent, stride }
    }
    fn fixed(n: u64, stride: i64) -> Dim {
        Dim { body: n, tail: n, extent: None, stride }
    }
}

pub(super) type Dims = SmallVec<[Dim; 4]>;

/// How a panel buffer came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Loaded,
    Bound,
    /// Read by `mmad`, which takes either.
    Used,
}

/// A packed operand: `bytes` where it is held locally.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanelUse {
    pub(super) name: &'static str,
    pub(super) local: Local,
    pub(super) space: Space,
    pub(super) bytes: u64,
    pub(super) sizes: [Size; 2],
    pub(super) packing: Packing,
}

/// An access to an argument: `dims`, then `unit` contiguous bytes. `panels` where it must be laid out in panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemAccess<'a> {
    pub(super) write: bool,
    pub(super) mem: &'a Mem,
    pub(super) dims: &'a [Dim],
    pub(super) unit: u64,
    pub(super) panels: bool,
    /// Data decide which of these bytes are touched.
    pub(super) sparse: bool,
    pub(super) hints: Hints,
}

/// Takes the uses of an instruction, reads before writes.
pub(super) trait Sink {
    /// A dense region of the given space.
    fn local(&mut self, name: &'static str, access: Access, local: Local, space: Space, region: &Region);
    /// A strided region of the vector memory: `dims` strides and `unit` in bytes.
    fn strided(&mut self, name: &'static str, local: Local, dims: &[Dim], unit: u64);
    /// A packed operand.
    fn panel(&mut self, panel: &PanelUse);
    /// An argument.
    fn mem(&mut self, access: &MemAccess<'_>);
}

/// Tells `sink` each use of `inst`.
pub(super) fn uses(inst: &Inst, target: &Target, sink: &mut impl Sink) {
    let dtype = inst.dtype;
    let elem = dtype.size();
    let bytes = i64::from(elem);
    let none = Hints::default();
    let unit = u64::from(elem);
    let f = sink;
    match &inst.operands {
        Operands::Unary(o) => {
            let tile = Region::dense(&[o.rows, o.cols], elem);
            source(f, "src", o.src, elem, o.rows, o.cols, &tile);
            result(f, inst, o.dst, o.rows, o.cols, &tile);
        }
        Operands::Binary(o) => {
            let tile = Region::dense(&[o.rows, o.cols], elem);
            source(f, "a", o.a, elem, o.rows, o.cols, &tile);
            source(f, "b", o.b, elem, o.rows, o.cols, &tile);
            result(f, inst, o.dst, o.rows, o.cols, &tile);
        }
        Operands::Ternary(o) => {
            let tile = Region::dense(&[o.rows, o.cols], elem);
            if inst.op == Opcode::VSelect {
                let size = DType::Bool.size();
                source(f, "a", o.a, size, o.rows, o.cols, &Region::dense(&[o.rows, o.cols], size));
            } else {
                source(f, "a", o.a, elem, o.rows, o.cols, &tile);
            }
            source(f, "b", o.b, elem, o.rows, o.cols, &tile);
            source(f, "c", o.c, elem, o.rows, o.cols, &tile);
            result(f, inst, o.dst, o.rows, o.cols, &tile);
        }
        Operands::Cast(o) => {
            let from = o.from.size();
            source(f, "src", o.src, from, o.rows, o.cols, &Region::dense(&[o.rows, o.cols], from));
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::Fill(o) => tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem),
        Operands::Iota(o) => tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem),
        Operands::Load(o) => {
            load(f, &o.src, &[Dim::of(o.rows, o.pitch), Dim::of(o.cols, bytes)], unit, o.hints);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::Store(o) => {
            tile(f, "src", Access::Read, o.src, &[o.rows, o.cols], elem);
            store(f, &o.dst, &[Dim::of(o.rows, o.pitch), Dim::of(o.cols, bytes)], unit, o.hints);
        }
        Operands::FillStore(o) => {
            store(f, &o.dst, &[Dim::of(o.rows, o.pitch), Dim::of(o.cols, bytes)], unit, o.hints);
        }
        Operands::ViewLoad(o) => {
            load(f, &o.src, &loop_dims(&o.loops, 1), unit, o.hints);
            tile(f, "dst", Access::Write, o.dst, &counts(&o.loops), elem);
        }
        Operands::ViewStore(o) => {
            tile(f, "src", Access::Read, o.src, &counts(&o.loops), elem);
            store(f, &o.dst, &loop_dims(&o.loops, 1), unit, o.hints);
        }
        Operands::LocalView(o) => {
            f.strided("src", o.src, &loop_dims(&o.loops, bytes), unit);
            tile(f, "dst", Access::Write, o.dst, &counts(&o.loops), elem);
        }
        Operands::GatherLoad(o) => {
            tile(f, "index", Access::Read, o.index, &[o.rows], o.index_dtype.size());
            load(f, &o.src, &[Dim::fixed(o.limit, o.stride), Dim::of(o.cols, bytes)], unit, none);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::GatherElems(o) => {
            tile(f, "index", Access::Read, o.index, &[o.rows, o.cols], o.index_dtype.size());
            let dims =
                [Dim::fixed(o.limit, o.stride), Dim::of(o.rows, o.row_stride), Dim::of(o.cols, o.col_stride)];
            load(f, &o.src, &dims, unit, none);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::ScatterStore(o) => {
            tile(f, "index", Access::Read, o.index, &[o.rows], o.index_dtype.size());
            tile(f, "src", Access::Read, o.src, &[o.rows, o.cols], elem);
            scatter(f, &o.dst, &[Dim::fixed(o.limit, o.stride), Dim::of(o.cols, bytes)], unit);
        }
        Operands::ScatterElems(o) => {
            tile(f, "index", Access::Read, o.index, &[o.rows, o.cols], o.index_dtype.size());
            tile(f, "src", Access::Read, o.src, &[o.rows, o.cols], elem);
            let dims =
                [Dim::fixed(o.limit, o.stride), Dim::of(o.rows, o.row_stride), Dim::of(o.cols, o.col_stride)];
            scatter(f, &o.dst, &dims, unit);
        }
        Operands::CompressStore(o) => {
            tile(f, "mask", Access::Read, o.mask, &[o.rows], DType::Bool.size());
            tile(f, "src", Access::Read, o.src, &[o.rows, o.cols], elem);
            scatter(f, &o.dst, &[Dim::fixed(o.limit, o.stride), Dim::of(o.cols, bytes)], unit);
            tile(f, "count", updates(o.init), o.count, &[Size::ONE], DType::I64.size());
        }
        Operands::Shape(o) => {
            let from: &[Size] = match inst.op {
                Opcode::VBroadcastX => &[o.rows],
                Opcode::VBroadcastY => &[o.cols],
                _ => &[o.cols, o.rows],
            };
            tile(f, "src", Access::Read, o.src, from, elem);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::ClearPad(o) => {
            let padded = Size::fixed(u32::try_from(o.pitch).unwrap_or(u32::MAX));
            // Where the rows are as wide as the tile, the pad is what a ragged write left out.
            let held = if o.cols.body == padded.body { o.cols } else { padded };
            tile(f, "dst", Access::Read, o.dst, &[o.rows, held], elem);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, padded], elem);
        }
        Operands::RemovePad(o) => {
            let pitch = i64::try_from(o.pitch).unwrap_or(i64::MAX).saturating_mul(bytes);
            f.strided("src", o.src, &[Dim::of(o.rows, pitch), Dim::of(o.cols, bytes)], unit);
            tile(f, "dst", Access::Write, o.dst, &[o.rows, o.cols], elem);
        }
        Operands::SortKv(o) => {
            tile(f, "key", Access::Update, o.key, &[o.rows, o.cols], elem);
            tile(f, "value", Access::Update, o.value, &[o.rows, o.cols], DType::I64.size());
        }
        Operands::Reduce(o) => {
            tile(f, "src", Access::Read, o.src, &[o.outer, o.red, o.inner], elem);
            let (size, planes) = match (inst.op, o.init) {
                (Opcode::VSum, Init::First | Init::Accumulate) => (sum_dtype(dtype).size(), 2),
                _ => (elem, 1),
            };
            let region = Region::planes(&[o.outer, o.inner], size, planes);
            f.local("dst", updates(o.init), o.dst, Space::Ub, &region);
        }
        Operands::PartSum(o) => {
            let size = sum_dtype(dtype).size();
            tile(f, "src", Access::Read, o.src, &[o.outer, o.red, o.inner], elem);
            let region = Region::planes(&[o.outer, o.inner], size, 2);
            f.local("dst", updates(o.init), o.dst, Space::Ub, &region);
            let lanes = Size::fixed(if o.across { 1 } else { SUM_LANES });
            tile(f, "lanes", updates(o.init), o.lanes, &[o.outer, o.inner, lanes], size);
        }
        Operands::ArgReduce(o) => {
            tile(f, "src", Access::Read, o.src, &[o.outer, o.red, o.inner], elem);
            tile(f, "index", updates(o.init), o.index, &[o.outer, o.inner], DType::I64.size());
            tile(f, "value", updates(o.init), o.value, &[o.outer, o.inner], elem);
        }
        Operands::CumSum(o) => {
            tile(f, "src", Access::Read, o.src, &[o.outer, o.red, o.inner], elem);
            tile(f, "carry", updates(o.init), o.carry, &[o.outer, o.inner], sum_dtype(dtype).size());
            tile(f, "dst", Access::Write, o.dst, &[o.outer, o.red, o.inner], elem);
        }
        Operands::LoadA(o) => {
            load(f, &o.src, &[Dim::of(o.m, o.row_stride), Dim::of(o.k, o.col_stride)], unit, o.hints);
            f.panel(&PanelUse {
                name: "dst",
                local: o.dst,
                space: Space::PanelA,
                bytes: panel_a_bytes(target, dtype, o.m.body, o.k.body),
                sizes: [o.m, o.k],
                packing: Packing::Loaded,
            });
        }
        Operands::LoadB(o) => {
            load(f, &o.src, &[Dim::of(o.k, o.row_stride), Dim::of(o.n, o.col_stride)], unit, o.hints);
            f.panel(&PanelUse {
                name: "dst",
                local: o.dst,
                space: Space::PanelB,
                bytes: panel_b_bytes(target, dtype, o.k.body, o.n.body),
                sizes: [o.k, o.n],
                packing: Packing::Loaded,
            });
        }
        Operands::PackA(o) => {
            let pitch = i64::try_from(o.pitch).unwrap_or(i64::MAX).saturating_mul(bytes);
            f.strided("src", o.src, &[Dim::of(o.m, pitch), Dim::of(o.k, bytes)], unit);
            f.panel(&PanelUse {
                name: "dst",
                local: o.dst,
                space: Space::PanelA,
                bytes: panel_a_bytes(target, dtype, o.m.body, o.k.body),
                sizes: [o.m, o.k],
                packing: Packing::Loaded,
            });
        }
        Operands::BindB(o) => {
            let nr = u64::from(target.nr(elem)).max(1);
            let panels = Dim {
                body: u64::from(o.n.body).div_ceil(nr),
                tail: u64::from(o.n.tail).div_ceil(nr),
                extent: o.n.extent,
                stride: o.panel_stride,
            };
            let unit = nr * unit;
            let dims = &[panels, Dim::of(o.k, unit as i64)];
            f.mem(&MemAccess {
                write: false,
                mem: &o.src,
                dims,
                unit,
                panels: true,
                sparse: false,
                hints: none,
            });
            let (space, sizes) = (Space::PanelB, [o.k, o.n]);
            f.panel(&PanelUse { name: "dst", local: o.dst, space, bytes: 1, sizes, packing: Packing::Bound });
        }
        Operands::Mmad(o) => {
            let packing = Packing::Used;
            let bytes = panel_a_bytes(target, dtype, o.m.body, o.k.body);
            f.panel(&PanelUse {
                name: "a",
                local: o.a,
                space: Space::PanelA,
                bytes,
                sizes: [o.m, o.k],
                packing,
            });
            f.panel(&PanelUse {
                name: "b",
                local: o.b,
                space: Space::PanelB,
                bytes: 1,
                sizes: [o.k, o.n],
                packing,
            });
            let region = Region::dense(&[o.m, o.n], acc_bytes(dtype, 1, 1) as u32);
            f.local("acc", updates(o.init), o.acc, Space::Acc, &region);
        }
        Operands::AccToUb(o) => {
            f.local("acc", Access::Read, o.acc, Space::Acc, &Region::dense(&[o.m, o.n], o.from.size()));
            tile(f, "dst", Access::Write, o.dst, &[o.m, o.n], elem);
        }
        Operands::AccStore(o) => {
            f.local("acc", Access::Read, o.acc, Space::Acc, &Region::dense(&[o.m, o.n], o.from.size()));
            store(f, &o.dst, &[Dim::of(o.m, o.pitch), Dim::of(o.n, bytes)], unit, o.hints);
        }
        Operands::OnPipe(_) | Operands::Cross(_) | Operands::Control(_) => {}
    }
}

fn load(f: &mut impl Sink, mem: &Mem, dims: &[Dim], unit: u64, hints: Hints) {
    f.mem(&MemAccess { write: false, mem, dims, unit, panels: false, sparse: false, hints });
}

fn store(f: &mut impl Sink, mem: &Mem, dims: &[Dim], unit: u64, hints: Hints) {
    f.mem(&MemAccess { write: true, mem, dims, unit, panels: false, sparse: false, hints });
}

/// Places that data pick of `dims`.
fn scatter(f: &mut impl Sink, mem: &Mem, dims: &[Dim], unit: u64) {
    let hints = Hints::default();
    f.mem(&MemAccess { write: true, mem, dims, unit, panels: false, sparse: true, hints });
}

/// A dense tile of the vector memory.
fn tile(f: &mut impl Sink, name: &'static str, access: Access, local: Local, dims: &[Size], elem: u32) {
    f.local(name, access, local, Space::Ub, &Region::dense(dims, elem));
}

/// The result of an elementwise instruction over `tile`.
fn result(f: &mut impl Sink, inst: &Inst, local: Local, rows: Size, cols: Size, tile: &Region) {
    let size = inst.result_dtype().size();
    if size == inst.dtype.size() {
        f.local("dst", Access::Write, local, Space::Ub, tile);
    } else {
        f.local("dst", Access::Write, local, Space::Ub, &Region::dense(&[rows, cols], size));
    }
}

/// An accumulator is read only where it accumulates onto what is there already.
fn updates(init: Init) -> Access {
    match init {
        Init::Accumulate => Access::Update,
        Init::Always | Init::First => Access::Write,
    }
}

/// A source in its mode; `tile` is what it takes in full.
fn source(f: &mut impl Sink, name: &'static str, src: Src, elem: u32, rows: Size, cols: Size, tile: &Region) {
    let Src::Local(local, mode) = src else { return };
    let mut read = |region: &Region| f.local(name, Access::Read, local, Space::Ub, region);
    match mode {
        Mode::Full => read(tile),
        Mode::Row => read(&Region::dense(&[cols], elem)),
        Mode::Col => read(&Region::dense(&[rows], elem)),
        Mode::One => read(&Region::one(elem)),
    }
}

fn counts(loops: &[Loop]) -> SmallVec<[Size; 4]> {
    loops.iter().map(|l| l.count).collect()
}

/// `scale` turns a stride into bytes. Saturates, which is out of range everywhere.
fn loop_dims(loops: &[Loop], scale: i64) -> Dims {
    loops.iter().map(|l| Dim::of(l.count, l.stride.saturating_mul(scale))).collect()
}
