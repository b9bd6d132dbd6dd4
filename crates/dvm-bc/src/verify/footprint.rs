//! Which bytes each instruction touches: the one place that knows the geometry of every form.

use smallvec::{SmallVec, smallvec};

use crate::layout::{acc_bytes, panel_a_bytes, panel_b_bytes, sum_dtype};
use crate::{
    Access, DType, Hints, Init, Inst, Local, Loop, Mem, Mode, Opcode, Operands, Size, Space, Src, Target,
};

/// A ragged dim of a dense region: within each `period` bytes the first `tail` are valid when `extent` stands last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ragged {
    pub(super) extent: u8,
    pub(super) period: u64,
    pub(super) tail: u64,
}

/// A dense row-major region of local memory, laid out by body counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) bytes: u64,
    pub(super) ragged: SmallVec<[Ragged; 2]>,
}

impl Region {
    /// Row-major over `dims`, outermost first. Saturates, which no space can hold.
    pub(super) fn dense(dims: &[Size], elem: u32) -> Region {
        let (mut bytes, mut ragged) = (u64::from(elem), SmallVec::new());
        for d in dims.iter().rev() {
            let inner = bytes;
            bytes = inner.saturating_mul(u64::from(d.body));
            if let Some(extent) = d.extent
                && d.tail != d.body
            {
                ragged.push(Ragged { extent, period: bytes, tail: inner.saturating_mul(u64::from(d.tail)) });
            }
        }
        Region { bytes, ragged }
    }
    fn solid(bytes: u64) -> Region {
        Region { bytes, ragged: SmallVec::new() }
    }
    fn planes(dims: &[Size], elem: u32, planes: u64) -> Region {
        // Both planes are ragged alike: the second repeats the first's period.
        let mut r = Region::dense(dims, elem);
        r.bytes = r.bytes.saturating_mul(planes);
        r
    }
}

/// A dim of an access to an argument: `count` steps of `stride` bytes.
#[derive(Clone, Copy, Debug)]
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

/// One memory use of an instruction.
#[derive(Debug)]
pub(super) enum Use<'a> {
    /// A dense region of the given space.
    Local { name: &'static str, access: Access, local: Local, space: Space, region: Region },
    /// A strided region of the vector memory: `dims` strides and `unit` in bytes.
    Strided { name: &'static str, local: Local, dims: Dims, unit: u64 },
    /// A packed operand: `bytes` where it is held locally.
    Panel {
        name: &'static str,
        access: Access,
        local: Local,
        space: Space,
        bytes: u64,
        sizes: [Size; 2],
        packing: Packing,
    },
    /// An argument: `dims`, then `unit` contiguous bytes. `panels` where it must be laid out in panels.
    Mem { write: bool, mem: &'a Mem, dims: Dims, unit: u64, panels: bool, hints: Hints },
}

/// Calls `f` for each use of `inst`, reads before writes.
pub(super) fn uses<'a>(inst: &'a Inst, target: &Target, f: &mut impl FnMut(Use<'a>)) {
    let dtype = inst.dtype;
    let elem = dtype.size();
    let bytes = i64::from(elem);
    let none = Hints::default();
    let ub = |name, access, local, region| Use::Local { name, access, local, space: Space::Ub, region };
    let load =
        |mem, dims, hints| Use::Mem { write: false, mem, dims, unit: u64::from(elem), panels: false, hints };
    let store =
        |mem, dims, hints| Use::Mem { write: true, mem, dims, unit: u64::from(elem), panels: false, hints };
    let rows_of = |rows, cols, pitch| -> Dims { smallvec![Dim::of(rows, pitch), Dim::of(cols, bytes)] };
    let dst = |local, rows: Size, cols: Size| {
        ub("dst", Access::Write, local, Region::dense(&[rows, cols], inst.result_dtype().size()))
    };
    match &inst.operands {
        Operands::Load(o) => {
            f(load(&o.src, rows_of(o.rows, o.cols, o.pitch), o.hints));
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::Store(o) => {
            f(ub("src", Access::Read, o.src, Region::dense(&[o.rows, o.cols], elem)));
            f(store(&o.dst, rows_of(o.rows, o.cols, o.pitch), o.hints));
        }
        Operands::ViewLoad(o) => {
            f(load(&o.src, loop_dims(&o.loops, 1), o.hints));
            f(ub("dst", Access::Write, o.dst, Region::dense(&counts(&o.loops), elem)));
        }
        Operands::ViewStore(o) => {
            f(ub("src", Access::Read, o.src, Region::dense(&counts(&o.loops), elem)));
            f(store(&o.dst, loop_dims(&o.loops, 1), o.hints));
        }
        Operands::GatherLoad(o) => {
            f(ub("index", Access::Read, o.index, Region::dense(&[o.rows], o.index_dtype.size())));
            f(load(&o.src, smallvec![Dim::fixed(o.limit, o.stride), Dim::of(o.cols, bytes)], none));
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::GatherElems(o) => {
            f(ub("index", Access::Read, o.index, Region::dense(&[o.rows, o.cols], o.index_dtype.size())));
            let dims = smallvec![
                Dim::fixed(o.limit, o.stride),
                Dim::of(o.rows, o.row_stride),
                Dim::of(o.cols, o.col_stride)
            ];
            f(load(&o.src, dims, none));
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::FillStore(o) => f(store(&o.dst, rows_of(o.rows, o.cols, o.pitch), o.hints)),
        Operands::Unary(o) => {
            source("src", o.src, elem, o.rows, o.cols, f);
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::Binary(o) => {
            source("a", o.a, elem, o.rows, o.cols, f);
            source("b", o.b, elem, o.rows, o.cols, f);
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::Ternary(o) => {
            let a = if inst.op == Opcode::VSelect { DType::Bool.size() } else { elem };
            source("a", o.a, a, o.rows, o.cols, f);
            source("b", o.b, elem, o.rows, o.cols, f);
            source("c", o.c, elem, o.rows, o.cols, f);
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::Cast(o) => {
            source("src", o.src, o.from.size(), o.rows, o.cols, f);
            f(dst(o.dst, o.rows, o.cols));
        }
        Operands::Fill(o) => f(dst(o.dst, o.rows, o.cols)),
        Operands::Iota(o) => f(dst(o.dst, o.rows, o.cols)),
        Operands::LocalView(o) => {
            f(Use::Strided {
                name: "src",
                local: o.src,
                dims: loop_dims(&o.loops, bytes),
                unit: u64::from(elem),
            });
            f(ub("dst", Access::Write, o.dst, Region::dense(&counts(&o.loops), elem)));
        }
        Operands::Reduce(o) => {
            f(ub("src", Access::Read, o.src, Region::dense(&[o.outer, o.red, o.inner], elem)));
            let (size, planes) = match (inst.op, o.init) {
                (Opcode::VSum, Init::First | Init::Accumulate) => (sum_dtype(dtype).size(), 2),
                _ => (elem, 1),
            };
            f(ub("dst", updates(o.init), o.dst, Region::planes(&[o.outer, o.inner], size, planes)));
        }
        Operands::ArgReduce(o) => {
            f(ub("src", Access::Read, o.src, Region::dense(&[o.outer, o.red, o.inner], elem)));
            let plane = |size| Region::dense(&[o.outer, o.inner], size);
            f(ub("index", updates(o.init), o.index, plane(DType::I64.size())));
            f(ub("value", updates(o.init), o.value, plane(elem)));
        }
        Operands::CumSum(o) => {
            let tile = || Region::dense(&[o.outer, o.red, o.inner], elem);
            f(ub("src", Access::Read, o.src, tile()));
            f(ub(
                "carry",
                updates(o.init),
                o.carry,
                Region::dense(&[o.outer, o.inner], sum_dtype(dtype).size()),
            ));
            f(ub("dst", Access::Write, o.dst, tile()));
        }
        Operands::LoadA(o) => {
            f(load(&o.src, smallvec![Dim::of(o.m, o.row_stride), Dim::of(o.k, o.col_stride)], o.hints));
            f(Use::Panel {
                name: "dst",
                access: Access::Write,
                local: o.dst,
                space: Space::PanelA,
                bytes: panel_a_bytes(target, dtype, o.m.body, o.k.body),
                sizes: [o.m, o.k],
                packing: Packing::Loaded,
            });
        }
        Operands::LoadB(o) => {
            f(load(&o.src, smallvec![Dim::of(o.k, o.row_stride), Dim::of(o.n, o.col_stride)], o.hints));
            f(Use::Panel {
                name: "dst",
                access: Access::Write,
                local: o.dst,
                space: Space::PanelB,
                bytes: panel_b_bytes(target, dtype, o.k.body, o.n.body),
                sizes: [o.k, o.n],
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
            let row = nr * u64::from(elem);
            let dims = smallvec![panels, Dim::of(o.k, row as i64)];
            f(Use::Mem { write: false, mem: &o.src, dims, unit: row, panels: true, hints: none });
            f(Use::Panel {
                name: "dst",
                access: Access::Write,
                local: o.dst,
                space: Space::PanelB,
                bytes: 1,
                sizes: [o.k, o.n],
                packing: Packing::Bound,
            });
        }
        Operands::Mmad(o) => {
            let panel = |name, local, space, bytes, sizes| Use::Panel {
                name,
                access: Access::Read,
                local,
                space,
                bytes,
                sizes,
                packing: Packing::Used,
            };
            f(panel("a", o.a, Space::PanelA, panel_a_bytes(target, dtype, o.m.body, o.k.body), [o.m, o.k]));
            f(panel("b", o.b, Space::PanelB, 1, [o.k, o.n]));
            let acc_elem = acc_bytes(dtype, 1, 1) as u32;
            f(Use::Local {
                name: "acc",
                access: updates(o.init),
                local: o.acc,
                space: Space::Acc,
                region: Region::dense(&[o.m, o.n], acc_elem),
            });
        }
        Operands::AccToUb(o) => {
            f(Use::Local {
                name: "acc",
                access: Access::Read,
                local: o.acc,
                space: Space::Acc,
                region: Region::dense(&[o.m, o.n], o.from.size()),
            });
            f(dst(o.dst, o.m, o.n));
        }
        Operands::Control(_) => {}
    }
}

/// An accumulator is read only where it accumulates onto what is there already.
fn updates(init: Init) -> Access {
    match init {
        Init::Accumulate => Access::Update,
        Init::Always | Init::First => Access::Write,
    }
}

fn source<'a>(name: &'static str, src: Src, elem: u32, rows: Size, cols: Size, f: &mut impl FnMut(Use<'a>)) {
    let Src::Local(local, mode) = src else { return };
    let region = match mode {
        Mode::Full => Region::dense(&[rows, cols], elem),
        Mode::Row => Region::dense(&[cols], elem),
        Mode::Col => Region::dense(&[rows], elem),
        Mode::One => Region::solid(u64::from(elem)),
    };
    f(Use::Local { name, access: Access::Read, local, space: Space::Ub, region });
}

fn counts(loops: &[Loop]) -> SmallVec<[Size; 4]> {
    loops.iter().map(|l| l.count).collect()
}

/// `scale` turns a stride into bytes. Saturates, which is out of range everywhere.
fn loop_dims(loops: &[Loop], scale: i64) -> Dims {
    loops.iter().map(|l| Dim::of(l.count, l.stride.saturating_mul(scale))).collect()
}
