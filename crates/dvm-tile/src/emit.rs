//! Instructions of a kernel's body over virtual buffers.
//!
//! While an instruction is emitted, `Local::offset` is the number of a [`Buf`]; [`crate::place`] turns numbers into offsets.

use dvm_bc::{
    Binary, Cast, Class, DType, Fill, FillStore, GatherElems, GatherLoad, Hints, Inst, Iota, Load, Local,
    LocalView, Mode, Opcode, Operands, Place, Size, Space as Memory, Src, Store, Ternary, Unary, ViewLoad,
    ViewStore,
};

use crate::error::Fault;
use crate::legal::Legal;
use crate::lower;
use crate::shape::{loops, mode};
use crate::space::{Mask, Node, Space, Stored, bits};

/// A buffer in local memory before it has a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buf {
    pub(crate) space: Memory,
    pub(crate) bytes: u64,
    /// Bytes an element.
    pub(crate) size: u32,
    /// Instructions between which it is live, both included.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Nobody else may use its bytes while the part runs that it belongs to.
    pub(crate) private: bool,
    /// Loaded from the ring that the cube core stores to.
    pub(crate) ring: bool,
    /// In blocks, once placed.
    pub(crate) at: u32,
}

/// A value has no buffer yet.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A run of instructions at one place of a phase's walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) phase: u32,
    pub(crate) place: Place,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// What has been emitted. Reused from kernel to kernel.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    pub(crate) insts: Vec<Inst>,
    /// The value that each instruction computes, moves or stores.
    pub(crate) values: Vec<u32>,
    pub(crate) bufs: Vec<Buf>,
    pub(crate) parts: Vec<Part>,
    /// Flags between cores, and the buffer that each is about.
    pub(crate) guards: Vec<(u32, u32)>,
    /// Bytes of the ring through which cube and vector cores exchange tiles; 0 without.
    pub(crate) ring: u64,
    /// No instruction of a vector core.
    pub(crate) cube_only: bool,
    /// A float reduction joins pieces, so that its bits depend on their size.
    pub(crate) joined: bool,
    /// Buffer of each value.
    buf_of: Vec<u32>,
    /// Copy of a value spread over more folds, valid in the current part.
    spread_of: Vec<(Mask, u32)>,
    /// Copy of a value in another dtype, valid in the current part.
    pub(crate) wide_of: Vec<(DType, u32)>,
    /// Scratch: where each instruction of a part goes.
    moved: Vec<u32>,
}

/// Emits instructions for `sp` into `out`.
pub(crate) struct Emit<'a> {
    pub(crate) sp: &'a Space,
    pub(crate) out: &'a mut Emitted,
    pub(crate) wide: Mask,
    /// Loads and stores have buffers of their own.
    pub(crate) private: bool,
    pub(crate) legal: Legal,
}

impl<'a> Emit<'a> {
    pub(crate) fn new(sp: &'a Space, out: &'a mut Emitted, private: bool, legal: Legal) -> Emit<'a> {
        out.insts.clear();
        out.values.clear();
        out.bufs.clear();
        out.parts.clear();
        out.guards.clear();
        (out.ring, out.cube_only, out.joined) = (0, false, false);
        out.buf_of.clear();
        out.buf_of.resize(sp.vals.len(), NOWHERE);
        out.spread_of.clear();
        out.spread_of.resize(sp.vals.len(), (0, NOWHERE));
        out.wide_of.clear();
        out.wide_of.resize(sp.vals.len(), (DType::F32, NOWHERE));
        Emit { sp, out, wide: sp.wide(), private, legal }
    }

    pub(crate) fn here(&self) -> u32 {
        self.out.insts.len() as u32
    }
    /// Appends an instruction on behalf of a value.
    pub(crate) fn push(&mut self, value: u32, op: Opcode, dtype: DType, operands: impl Into<Operands>) {
        self.out.insts.push(Inst::new(op, dtype, operands));
        self.out.values.push(value);
    }
    /// Puts an instruction before number `at` of the part at hand.
    pub(crate) fn insert(
        &mut self,
        at: u32,
        value: u32,
        op: Opcode,
        dtype: DType,
        operands: impl Into<Operands>,
    ) {
        self.out.insts.insert(at as usize, Inst::new(op, dtype, operands));
        self.out.values.insert(at as usize, value);
        for b in &mut self.out.bufs {
            b.first += u32::from(b.first >= at);
            b.last += u32::from(b.last >= at && b.last != u32::MAX);
        }
        for g in &mut self.out.guards {
            g.0 += u32::from(g.0 >= at);
        }
    }
    /// Starts a part.
    pub(crate) fn begin(&mut self, phase: u32, place: Place) {
        let start = self.here();
        self.out.parts.push(Part { phase, place, start, end: start });
        self.out.spread_of.fill((0, NOWHERE));
        self.out.wide_of.fill((DType::F32, NOWHERE));
    }
    /// Ends the part. What a walk's body reads from before must live through all its rounds.
    pub(crate) fn end(&mut self, walk: bool) {
        let end = self.here();
        let Some(part) = self.out.parts.last_mut() else { return };
        part.end = end;
        let start = part.start;
        if start == end {
            self.out.parts.pop();
            return;
        }
        if self.private {
            self.loads_first(start, end);
            for b in self.out.bufs.iter_mut().filter(|b| b.private && b.last >= start) {
                b.first = b.first.min(start);
                b.last = b.last.max(end - 1);
            }
        }
        if walk {
            for b in &mut self.out.bufs {
                if b.first < start && b.last >= start {
                    b.last = b.last.max(end - 1);
                }
            }
        }
    }
    /// Moves the part's loads to its front: their buffers are their own, so they wait for nothing in the part.
    fn loads_first(&mut self, start: u32, end: u32) {
        let Emitted { insts, values, bufs, guards, moved, .. } = &mut *self.out;
        let range = start as usize..end as usize;
        let is_load = |i: &Inst, bufs: &[Buf]| match &i.operands {
            Operands::Load(o) => !bufs[o.dst.offset as usize].ring,
            Operands::ViewLoad(_) => true,
            _ => false,
        };
        let loads = insts[range.clone()].iter().filter(|i| is_load(i, bufs)).count() as u32;
        let (mut load, mut other) = (start, start + loads);
        moved.clear();
        moved.extend(insts[range.clone()].iter().map(|i| {
            let next = if is_load(i, bufs) { &mut load } else { &mut other };
            std::mem::replace(next, *next + 1)
        }));
        let to = |at: u32| moved[(at - start) as usize];
        for b in bufs.iter_mut() {
            // What lives from the part's start on still does.
            if b.first > start && b.first < end {
                b.first = to(b.first);
            }
            if b.last >= start && b.last < end {
                b.last = to(b.last);
            }
        }
        for g in guards.iter_mut().filter(|g| g.0 >= start) {
            g.0 = to(g.0);
        }
        // Follow the cycles of the permutation.
        for i in 0..moved.len() {
            while moved[i] as usize != i + range.start {
                let j = moved[i] as usize - range.start;
                insts.swap(range.start + i, range.start + j);
                values.swap(range.start + i, range.start + j);
                moved.swap(i, j);
            }
        }
    }

    /// A new buffer, first touched by the next instruction.
    pub(crate) fn buf(&mut self, bytes: u64, size: u32, space: Memory) -> u32 {
        let here = self.here();
        self.out.bufs.push(Buf {
            space,
            bytes,
            size,
            first: here,
            last: here,
            private: false,
            ring: false,
            at: 0,
        });
        self.out.bufs.len() as u32 - 1
    }
    /// A new vector buffer for a tile over `mask`.
    pub(crate) fn tile_buf(&mut self, mask: Mask, dtype: DType) -> u32 {
        let bytes = self.sp.elements(mask).saturating_mul(u64::from(dtype.size()));
        self.buf(bytes, dtype.size(), Memory::Ub)
    }
    /// The buffer as operand of the next instruction.
    pub(crate) fn local(&mut self, buf: u32) -> Local {
        let here = self.here();
        let b = &mut self.out.bufs[buf as usize];
        b.last = b.last.max(here);
        Local { space: b.space, offset: buf }
    }
    pub(crate) fn place_value(&mut self, v: u32, buf: u32) {
        self.out.buf_of[v as usize] = buf;
    }
    /// Whether the value is in local memory already.
    pub(crate) fn has(&self, v: u32) -> bool {
        self.out.buf_of[v as usize] != NOWHERE
    }
    /// Forgets where a value is, so that it is computed again.
    pub(crate) fn forget(&mut self, v: u32) {
        self.out.buf_of[v as usize] = NOWHERE;
    }

    /// A tile over `mask` as rows and columns; rows is 1 wherever possible.
    pub(crate) fn grid(&self, mask: Mask, value: u32) -> Result<(Size, Size), Fault> {
        let dims = self.sp.dims(mask);
        let what = "rows and columns";
        (0..dims.len().max(1))
            .find_map(|at| self.sp.split(&dims, at))
            .ok_or(Fault::Ragged { value: value as usize, what })
    }

    /// The buffer of a value over its own mask; loads are emitted here, at their first use.
    pub(crate) fn own(&mut self, v: u32) -> Result<u32, Fault> {
        let buf = self.out.buf_of[v as usize];
        if buf != NOWHERE {
            return Ok(buf);
        }
        let buf = match self.sp.vals[v as usize].node {
            Node::Load { slot, access } => self.load(v, slot, access, self.sp.vals[v as usize].mask)?,
            Node::Imm(bits) => self.fill(v, bits, 0)?,
            _ => return Err(Fault::Malformed { value: v as usize, what: "is used before it is computed" }),
        };
        self.place_value(v, buf);
        Ok(buf)
    }

    /// A buffer with the value spread over exactly `mask`.
    pub(crate) fn tile(&mut self, v: u32, mask: Mask) -> Result<u32, Fault> {
        let val = &self.sp.vals[v as usize];
        let (dtype, have, want) = (val.dtype, val.mask & self.wide, mask & self.wide);
        if let Node::Imm(bits) = val.node
            && want != 0
        {
            return self.fill(v, bits, mask);
        }
        if have == want {
            return self.own(v);
        }
        let (spread, buf) = self.out.spread_of[v as usize];
        if buf != NOWHERE && spread == want {
            return Ok(buf);
        }
        let buf = match val.node {
            Node::Load { slot, access } if self.out.buf_of[v as usize] == NOWHERE && val.uses == 1 => {
                self.load(v, slot, access, mask)?
            }
            _ => {
                let from = self.own(v)?;
                let nest = self.sp.spread_nest(have, want);
                let loops = loops(&nest, v)?;
                let src = self.local(from);
                let buf = self.tile_buf(mask, dtype);
                let dst = self.local(buf);
                self.push(v, Opcode::VView, dtype, LocalView { dst, src, loops });
                buf
            }
        };
        self.out.spread_of[v as usize] = (want, buf);
        Ok(buf)
    }

    pub(crate) fn fill(&mut self, v: u32, value: u64, mask: Mask) -> Result<u32, Fault> {
        let dtype = self.sp.vals[v as usize].dtype;
        let buf = self.tile_buf(mask, dtype);
        self.fill_into(v, buf, dtype, value, mask)?;
        Ok(buf)
    }
    pub(crate) fn fill_into(
        &mut self,
        v: u32,
        buf: u32,
        dtype: DType,
        value: u64,
        mask: Mask,
    ) -> Result<(), Fault> {
        let (rows, cols) = self.grid(mask, v)?;
        let dst = self.local(buf);
        self.push(v, Opcode::VFill, dtype, Fill { dst, value, rows, cols });
        Ok(())
    }

    /// Loads a tile over `mask`, broadcasting along folds where the access does not move.
    fn load(&mut self, v: u32, slot: u16, access: u32, mask: Mask) -> Result<u32, Fault> {
        let dtype = self.sp.vals[v as usize].dtype;
        let size = i64::from(dtype.size());
        let nest = self.sp.access_nest(access, mask);
        let src = self.sp.mem(slot, access);
        let buf = self.tile_buf(mask, dtype);
        self.out.bufs[buf as usize].private = self.private;
        let (dst, hints) = (self.local(buf), Hints::default());
        match *nest.as_slice() {
            [] => self.push(
                v,
                Opcode::Load,
                dtype,
                Load { dst, src, rows: Size::ONE, cols: Size::ONE, pitch: size, hints },
            ),
            [c] if c.stride == size => {
                let pitch = size.saturating_mul(i64::from(c.count.body));
                self.push(
                    v,
                    Opcode::Load,
                    dtype,
                    Load { dst, src, rows: Size::ONE, cols: c.count, pitch, hints },
                );
            }
            [r, c] if c.stride == size => {
                self.push(
                    v,
                    Opcode::Load,
                    dtype,
                    Load { dst, src, rows: r.count, cols: c.count, pitch: r.stride, hints },
                );
            }
            _ => {
                let loops = loops(&nest, v)?;
                self.push(v, Opcode::ViewLoad, dtype, ViewLoad { dst, src, loops, hints });
            }
        }
        Ok(buf)
    }

    pub(crate) fn store(&mut self, s: &Stored) -> Result<(), Fault> {
        let val = &self.sp.vals[s.value as usize];
        let (dtype, size) = (val.dtype, i64::from(val.dtype.size()));
        let nest = self.sp.access_nest(s.access, s.mask);
        let dst = self.sp.mem(s.slot, s.access);
        let hints = Hints::default();
        let rows = match *nest.as_slice() {
            [] => Some((Size::ONE, Size::ONE, size)),
            [c] if c.stride == size => {
                Some((Size::ONE, c.count, size.saturating_mul(i64::from(c.count.body))))
            }
            [r, c] if c.stride == size => Some((r.count, c.count, r.stride)),
            _ => None,
        };
        if let (Node::Imm(value), Some((rows, cols, pitch))) = (val.node, rows) {
            self.push(s.value, Opcode::FillStore, dtype, FillStore { dst, value, rows, cols, pitch, hints });
            return Ok(());
        }
        let buf = self.tile(s.value, s.mask)?;
        self.out.bufs[buf as usize].private |= self.private;
        let src = self.local(buf);
        match rows {
            Some((rows, cols, pitch)) => {
                self.push(s.value, Opcode::Store, dtype, Store { dst, src, rows, cols, pitch, hints });
            }
            None => {
                let loops = loops(&nest, s.value)?;
                self.push(s.value, Opcode::ViewStore, dtype, ViewStore { dst, src, loops, hints });
            }
        }
        Ok(())
    }

    /// Emits a value that is neither a load, a reduction nor a product. Loads appear where they are used.
    pub(crate) fn value(&mut self, v: u32) -> Result<(), Fault> {
        let val = &self.sp.vals[v as usize];
        let (dtype, mask) = (val.dtype, val.mask);
        match val.node {
            Node::Unary(op, x, from) => self.elementwise(v, op, from, [x])?,
            Node::Binary(op, a, b, from) => self.elementwise(v, op, from, [a, b])?,
            Node::Ternary(op, abc) => self.elementwise(v, op, dtype, abc)?,
            Node::Cast(x) => self.elementwise(v, Opcode::VCast, dtype, [x])?,
            Node::Iota { access } => {
                let base = self.sp.offsets[access as usize];
                let strides = self.sp.extent_strides(access);
                let [r, c] = self.two_loops(v, access, mask)?;
                // Counting is for integers; a float iota is counted in i64 and converted.
                let count = if dtype.is_float() || dtype == DType::Bool { DType::I64 } else { dtype };
                let buf = self.tile_buf(mask, count);
                let dst = self.local(buf);
                let o = Iota { dst, base, strides, row_step: r.1, col_step: c.1, rows: r.0, cols: c.0 };
                self.push(v, Opcode::VIota, count, o);
                let buf = if count == dtype {
                    buf
                } else {
                    let src = Src::Local(self.local(buf), Mode::Full);
                    let to = self.tile_buf(mask, dtype);
                    let dst = self.local(to);
                    self.push(v, Opcode::VCast, dtype, Cast { dst, src, from: count, rows: r.0, cols: c.0 });
                    to
                };
                self.place_value(v, buf);
            }
            Node::Gather { slot, access, index, stride, limit } => {
                let buf = self.gather(v, slot, access, index, stride, limit)?;
                self.place_value(v, buf);
            }
            _ => {}
        }
        Ok(())
    }

    /// An access inside a tile as two loops (count, stride).
    fn two_loops(&self, v: u32, access: u32, mask: Mask) -> Result<[(Size, i64); 2], Fault> {
        let nest = self.sp.access_nest(access, mask);
        match *nest.as_slice() {
            [] => Ok([(Size::ONE, 0), (Size::ONE, 0)]),
            [c] => Ok([(Size::ONE, 0), (c.count, c.stride)]),
            [r, c] => Ok([(r.count, r.stride), (c.count, c.stride)]),
            _ => Err(Fault::Loops { value: v as usize, loops: nest.len(), most: 2 }),
        }
    }

    fn gather(
        &mut self,
        v: u32,
        slot: u16,
        access: u32,
        index: u32,
        stride: i64,
        limit: u64,
    ) -> Result<u32, Fault> {
        let val = &self.sp.vals[v as usize];
        let (dtype, mask) = (val.dtype, val.mask);
        let size = i64::from(dtype.size());
        let index_dtype = self.sp.vals[index as usize].dtype;
        let src = self.sp.mem(slot, access);
        // Whole rows where the index covers the leading folds and the rest is contiguous.
        let leading = self.sp.vals[index as usize].mask & self.wide;
        let rest = mask & self.wide & !leading;
        let strides = self.sp.strides(access);
        let by_rows = rest != 0
            && leading >> rest.trailing_zeros() == 0
            && bits(leading).all(|f| strides[f] == 0)
            && matches!(*self.sp.access_nest(access, rest).as_slice(), [c] if c.stride == size);
        let (d_rows, d_cols) = (self.sp.dims(leading), self.sp.dims(rest));
        let sizes = self.sp.group(&d_rows).zip(self.sp.group(&d_cols));
        if let (true, Some((rows, cols))) = (by_rows, sizes) {
            let index = self.tile(index, leading)?;
            let index = self.local(index);
            let buf = self.tile_buf(mask, dtype);
            self.out.bufs[buf as usize].private = self.private;
            let dst = self.local(buf);
            let o = GatherLoad { dst, src, index, rows, cols, stride, limit, index_dtype };
            self.push(v, Opcode::GatherLoad, dtype, o);
            return Ok(buf);
        }
        let [(rows, row_stride), (cols, col_stride)] = self.two_loops(v, access, mask)?;
        let index = self.tile(index, mask)?;
        let index = self.local(index);
        let buf = self.tile_buf(mask, dtype);
        self.out.bufs[buf as usize].private = self.private;
        let dst = self.local(buf);
        let o =
            GatherElems { dst, src, index, rows, cols, stride, row_stride, col_stride, limit, index_dtype };
        self.push(v, Opcode::GatherElems, dtype, o);
        Ok(buf)
    }

    /// `op` over the value's tile, cut into rows and columns so that the most operands are read in place.
    fn elementwise<const N: usize>(
        &mut self,
        v: u32,
        op: Opcode,
        from: DType,
        xs: [u32; N],
    ) -> Result<(), Fault> {
        let val = &self.sp.vals[v as usize];
        let (to, mask) = (val.dtype, val.mask);
        let dims = self.sp.dims(mask);
        let have = xs.map(|x| match self.sp.vals[x as usize].node {
            Node::Imm(_) => 0,
            _ => self.sp.vals[x as usize].mask & self.wide,
        });
        let mut best: Option<(usize, usize, (Size, Size))> = None;
        for at in 0..dims.len().max(1) {
            let Some(grid) = self.sp.split(&dims, at) else { continue };
            let spread = have.iter().filter(|&&h| mode(h, &dims, at).is_none()).count();
            if best.as_ref().is_none_or(|b| spread < b.0) {
                best = Some((spread, at, grid));
            }
        }
        let what = "rows and columns";
        let Some((_, at, (rows, cols))) = best else {
            return Err(Fault::Ragged { value: v as usize, what });
        };
        // What the instruction runs in; its result is of that dtype, or a bool.
        let compares = op.class() == Class::Compare;
        let inner = if compares { from } else { to };
        let runs = self.legal.runs_in(op.class(), if op == Opcode::VCast { to } else { inner });
        let wide = |e: &Self, x: u32| {
            let d = e.sp.vals[x as usize].dtype;
            // A condition and the operand of a conversion stay as they are.
            if d == inner && op != Opcode::VCast { runs } else { d }
        };
        let mut bufs = [(NOWHERE, Mode::Full); N];
        for (i, &x) in xs.iter().enumerate() {
            if matches!(self.sp.vals[x as usize].node, Node::Imm(_)) {
                continue;
            }
            let to = wide(self, x);
            bufs[i] = match mode(have[i], &dims, at) {
                Some(m) => (self.own_as(x, to)?, m),
                None => {
                    let buf = self.tile(x, mask)?;
                    (self.convert(x, buf, mask, self.sp.vals[x as usize].dtype, to)?, Mode::Full)
                }
            };
        }
        let mut src = [Src::Imm(0); N];
        for (i, &x) in xs.iter().enumerate() {
            let d = self.sp.vals[x as usize].dtype;
            src[i] = match self.sp.vals[x as usize].node {
                Node::Imm(bits) => Src::Imm(lower::immediate(bits, d, wide(self, x))),
                _ => Src::Local(self.local(bufs[i].0), bufs[i].1),
            };
        }
        let result = if compares { to } else { runs };
        let mut buf = self.tile_buf(mask, result);
        let dst = self.local(buf);
        match *src.as_slice() {
            [src] if op == Opcode::VCast => {
                let from = self.sp.vals[xs[0] as usize].dtype;
                self.push(v, op, to, Cast { dst, src, from, rows, cols });
            }
            [src] => self.push(v, op, runs, Unary { dst, src, rows, cols }),
            [a, b] => {
                self.push(v, op, runs, Binary { dst, a, b, rows, cols });
                if op == Opcode::VShr && runs != inner && lower::is_signed(inner) {
                    buf = self.narrow_shift(v, buf, b, (inner, runs), (rows, cols));
                }
            }
            [a, b, c] => self.push(v, op, runs, Ternary { dst, a, b, c, rows, cols }),
            _ => {}
        }
        let buf = self.convert(v, buf, mask, result, to)?;
        self.place_value(v, buf);
        Ok(())
    }
}
