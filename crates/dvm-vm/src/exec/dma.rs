//! One instruction that touches an argument, or the cube's operands, to one resolved operation.

use dvm_bc::{
    AccStore, BindB, CompressStore, DType, FillStore, GatherElems, GatherLoad, Inst, Load, LoadA, LoadB,
    Local, Loop, Mem, Mmad, Mode, Opcode, PackA, ScatterElems, ScatterStore, Size, Src, Store, ViewLoad,
    ViewStore,
};

use super::inst::{Resolved, Site, Step, area, product};
use super::predecode::{Builder, len};
use super::{BASE_CONST, From, Indexed, NOT_STICKY, OpKind, Place, ViewLoop};
use crate::cube;
use crate::kernels::shape::Direction;
use crate::kernels::{self, half};

impl Builder<'_> {
    /// Loops of a view; the dense side is row-major over the bodies. `unit` is the bytes that a stride of 1 means.
    pub(super) fn view_loops(&mut self, loops: &[Loop], size: u32, unit: i64) -> (u32, u8) {
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

impl Site<'_, '_> {
    pub(super) fn load(&mut self, inst: &Inst, o: &Load) -> Resolved {
        let sticky = self.b.sticky(o.hints.sticky);
        self.rows(inst, o.dst, &o.src, (o.rows, o.cols, o.pitch), Direction::Gather, sticky)
    }

    pub(super) fn store(&mut self, inst: &Inst, o: &Store) -> Resolved {
        self.rows(inst, o.src, &o.dst, (o.rows, o.cols, o.pitch), Direction::Scatter, NOT_STICKY)
    }

    fn rows(
        &mut self,
        inst: &Inst,
        local: Local,
        mem: &Mem,
        (rows, cols, pitch): (Size, Size, i64),
        dir: Direction,
        sticky: u32,
    ) -> Resolved {
        self.b.charge(inst, area(rows, cols));
        let (local, addr) = (self.b.place(local), self.b.addr(mem));
        let (rows, cols, size) = (len(rows), len(cols), inst.dtype.size() as u8);
        Some(Step::Other(OpKind::Rows { local, addr, rows, cols, pitch, size, dir, sticky }))
    }

    pub(super) fn view_load(&mut self, inst: &Inst, o: &ViewLoad) -> Resolved {
        let sticky = self.b.sticky(o.hints.sticky);
        self.strided(inst, o.dst, &o.src, &o.loops, Direction::Gather, sticky)
    }

    pub(super) fn view_store(&mut self, inst: &Inst, o: &ViewStore) -> Resolved {
        self.strided(inst, o.src, &o.dst, &o.loops, Direction::Scatter, NOT_STICKY)
    }

    fn strided(
        &mut self,
        inst: &Inst,
        local: Local,
        mem: &Mem,
        loops: &[Loop],
        dir: Direction,
        sticky: u32,
    ) -> Resolved {
        self.b.charge(inst, 2 * product(loops));
        let size = inst.dtype.size();
        let loops = self.b.view_loops(loops, size, 1);
        let (local, addr) = (self.b.place(local), self.b.addr(mem));
        Some(Step::Other(OpKind::View { local, addr, loops, size: size as u8, dir, sticky }))
    }

    pub(super) fn fill_rows(&mut self, inst: &Inst, o: &FillStore) -> Resolved {
        self.b.charge(inst, area(o.rows, o.cols));
        Some(Step::Other(OpKind::FillRows {
            addr: self.b.addr(&o.dst),
            bits: o.value,
            rows: len(o.rows),
            cols: len(o.cols),
            pitch: o.pitch,
            size: inst.dtype.size() as u8,
        }))
    }

    pub(super) fn gather_rows(&mut self, inst: &Inst, o: &GatherLoad) -> Resolved {
        self.b.charge(inst, area(o.rows, o.cols));
        let index = (o.index, o.index_dtype);
        let by = self.indexed(inst, index, (o.rows, o.cols), o.stride, o.limit);
        let (local, addr) = (self.b.place(o.dst), self.b.addr(&o.src));
        Some(Step::Other(OpKind::RowsByIndex { local, addr, by, dir: Direction::Gather }))
    }

    pub(super) fn scatter_rows(&mut self, inst: &Inst, o: &ScatterStore) -> Resolved {
        self.b.charge(inst, area(o.rows, o.cols));
        let index = (o.index, o.index_dtype);
        let by = self.indexed(inst, index, (o.rows, o.cols), o.stride, o.limit);
        let (local, addr) = (self.b.place(o.src), self.b.addr(&o.dst));
        Some(Step::Other(OpKind::RowsByIndex { local, addr, by, dir: Direction::Scatter }))
    }

    pub(super) fn gather_elems(&mut self, inst: &Inst, o: &GatherElems) -> Resolved {
        self.b.charge(inst, 10 * area(o.rows, o.cols));
        let index = (o.index, o.index_dtype);
        let by = self.indexed(inst, index, (o.rows, o.cols), o.stride, o.limit);
        let (local, addr) = (self.b.place(o.dst), self.b.addr(&o.src));
        let steps = (o.row_stride, o.col_stride);
        Some(Step::Other(OpKind::ElemsByIndex { local, addr, by, steps, dir: Direction::Gather }))
    }

    pub(super) fn scatter_elems(&mut self, inst: &Inst, o: &ScatterElems) -> Resolved {
        self.b.charge(inst, 10 * area(o.rows, o.cols));
        let index = (o.index, o.index_dtype);
        let by = self.indexed(inst, index, (o.rows, o.cols), o.stride, o.limit);
        let (local, addr) = (self.b.place(o.src), self.b.addr(&o.dst));
        let steps = (o.row_stride, o.col_stride);
        Some(Step::Other(OpKind::ElemsByIndex { local, addr, by, steps, dir: Direction::Scatter }))
    }

    fn indexed(
        &mut self,
        inst: &Inst,
        (index, dtype): (Local, DType),
        (rows, cols): (Size, Size),
        stride: i64,
        limit: u64,
    ) -> Indexed {
        Indexed {
            index: self.b.place(index),
            wide: dtype == DType::I64,
            rows: len(rows),
            cols: len(cols),
            stride,
            limit,
            size: inst.dtype.size() as u8,
        }
    }

    pub(super) fn compress(&mut self, inst: &Inst, o: &CompressStore) -> Resolved {
        self.b.charge(inst, area(o.rows, o.cols));
        Some(Step::Other(OpKind::Compress {
            src: self.b.place(o.src),
            addr: self.b.addr(&o.dst),
            mask: self.b.place(o.mask),
            count: self.b.place(o.count),
            rows: len(o.rows),
            cols: len(o.cols),
            stride: o.stride,
            limit: o.limit,
            init: o.init,
            size: inst.dtype.size() as u8,
        }))
    }

    pub(super) fn load_a(&mut self, inst: &Inst, o: &LoadA) -> Resolved {
        let size = inst.dtype.size();
        if self.b.plan.step(self.at).in_place {
            let bytes = i64::from(size);
            return Some(Step::Other(OpKind::BindPanel {
                panel: self.b.panel(o.dst),
                from: From::Argument(self.b.addr(&o.src)),
                lines: len(o.m),
                k: len(o.k),
                panel_stride: o.row_stride / bytes,
                k_stride: o.col_stride / bytes,
                width: 0,
            }));
        }
        let width = self.b.target.panel_mr;
        let what = (o.m, o.k, o.row_stride, o.col_stride);
        let from = From::Argument(self.b.addr(&o.src));
        self.pack(inst, o.dst, from, what, width, o.hints.sticky)
    }

    pub(super) fn load_b(&mut self, inst: &Inst, o: &LoadB) -> Resolved {
        let width = self.b.target.nr(inst.dtype.size());
        let what = (o.n, o.k, o.col_stride, o.row_stride);
        let from = From::Argument(self.b.addr(&o.src));
        self.pack(inst, o.dst, from, what, width, o.hints.sticky)
    }

    pub(super) fn pack_a(&mut self, inst: &Inst, o: &PackA) -> Resolved {
        let (pitch, size) = (i64::try_from(o.pitch).ok()?, i64::from(inst.dtype.size()));
        let from = From::Local(self.b.place(o.src));
        if self.b.plan.step(self.at).in_place {
            let panel = self.b.panel(o.dst);
            let (lines, k) = (len(o.m), len(o.k));
            let (panel_stride, k_stride, width) = (pitch, 1, 0);
            return Some(Step::Other(OpKind::BindPanel {
                panel,
                from,
                lines,
                k,
                panel_stride,
                k_stride,
                width,
            }));
        }
        let width = self.b.target.panel_mr;
        self.pack(inst, o.dst, from, (o.m, o.k, pitch * size, size), width, false)
    }

    fn pack(
        &mut self,
        inst: &Inst,
        dst: Local,
        from: From,
        (lines, k, line_stride, k_stride): (Size, Size, i64, i64),
        width: u32,
        sticky: bool,
    ) -> Resolved {
        self.b.charge(inst, 3 * area(lines, k));
        Some(Step::Other(OpKind::Pack {
            pack: cube::pack(inst.dtype, self.b.isa)?,
            panel: self.b.panel(dst),
            local: self.b.place(dst),
            from,
            lines: len(lines),
            k: len(k),
            line_stride,
            k_stride,
            width,
            sticky: self.b.sticky(sticky),
        }))
    }

    pub(super) fn bind_b(&mut self, inst: &Inst, o: &BindB) -> Resolved {
        let (panel, size) = (self.b.panel(o.dst), inst.dtype.size());
        if half::is_half(inst.dtype) {
            self.b.narrow_panels.push(panel);
        }
        Some(Step::Other(OpKind::BindPanel {
            panel,
            from: From::Argument(self.b.addr(&o.src)),
            lines: len(o.n),
            k: len(o.k),
            panel_stride: o.panel_stride / i64::from(size),
            k_stride: 0,
            width: self.b.target.nr(size),
        }))
    }

    pub(super) fn product(&mut self, inst: &Inst, o: &Mmad) -> Resolved {
        self.b.charge(inst, area(o.m, o.n) * 2 * u64::from(o.k.body));
        let (a, b) = (self.b.panel(o.a), self.b.panel(o.b));
        Some(Step::Other(OpKind::Mmad {
            mmad: cube::mmad(inst.dtype, self.b.narrow_panels.contains(&b), self.b.isa)?,
            acc: self.b.place(o.acc),
            a,
            b,
            m: len(o.m),
            n: len(o.n),
            k: len(o.k),
            init: o.init,
        }))
    }

    pub(super) fn acc_store(&mut self, inst: &Inst, o: &AccStore) -> Resolved {
        self.b.charge(inst, area(o.m, o.n));
        let (counts, from) = ((o.m, o.n), o.from.size());
        let acc = Src::Local(o.acc, Mode::Full);
        // The result's place is the argument's, known when it runs.
        let nowhere = Place { base: BASE_CONST, off: 0 };
        let cast = kernels::cast::choose(o.from, inst.dtype, self.b.isa)?;
        let cast = self.b.ew(self.at, nowhere, inst.dtype.size(), &[(acc, from)], counts, cast);
        let relu = if o.relu {
            let max = kernels::binary::choose(Opcode::VMax, o.from, [false, true], self.b.isa)?;
            let sources = [(acc, from), (Src::Imm(0), from)];
            Some(self.b.ew(self.at, nowhere, from, &sources, counts, max))
        } else {
            None
        };
        Some(Step::Other(OpKind::AccStore { cast, relu, addr: self.b.addr(&o.dst), pitch: o.pitch }))
    }
}
