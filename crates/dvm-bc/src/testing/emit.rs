//! One random instruction of every kind, with what it needs before it.

use super::template::{Builder, SlotPlan, Tile};
use crate::layout::{SUM_LANES, acc_dtype, sum_dtype};
use crate::{
    AccStore, AccToUb, ArgReduce, Binary, BindB, Cast, ClearPad, CompressStore, CumSum, DType, Fill,
    FillStore, Form, GatherElems, GatherLoad, Hints, Init, Inst, Iota, Kind, Layout, Load, LoadA, LoadB,
    LocalView, Loop, Loops, Mem, Mmad, OnPipe, Opcode, Operands, PackA, PartSum, Pipe, Place, Reduce,
    RemovePad, ScatterElems, ScatterStore, Shape, Size, SortKv, Src, Store, Ternary, Unary, ViewLoad,
    ViewStore,
};

fn area(t: &Tile) -> u64 {
    u64::from(t.rows.body) * u64::from(t.cols.body)
}

impl Builder<'_, '_, '_> {
    fn emit(&mut self, op: Opcode, dtype: DType, operands: impl Into<Operands>) {
        self.push(Inst::new(op, dtype, operands));
    }

    /// A result, over one of the sources sometimes.
    fn result(&mut self, op: Opcode, dtype: DType, sources: &[Src], rows: Size, cols: Size) -> Option<Tile> {
        let out = Inst::new(op, dtype, crate::Control {}).result_dtype();
        let over = |t: &Tile| {
            let full = |s: &Src| matches!(s, Src::Local(l, crate::Mode::Full) if *l == t.local);
            t.rows == rows && t.cols == cols && t.dtype.size() == out.size() && sources.iter().any(full)
        };
        if let Some(i) = self.tiles.iter().position(over)
            && self.dice.chance(1, 4)
        {
            let mut t = self.tiles.remove(i);
            t.dtype = out;
            return Some(t);
        }
        self.tile(out, rows, cols)
    }

    /// A tile made from nothing or from an argument.
    pub(super) fn make(&mut self, dtype: DType, rows: Size, cols: Size) -> Option<Tile> {
        let op = match self.dice.below(10) {
            0 => Opcode::VFill,
            1 if Opcode::VIota.dtypes().contains(dtype) => Opcode::VIota,
            2 | 3 => Opcode::ViewLoad,
            _ => Opcode::Load,
        };
        self.op_over(op, dtype, rows, cols)
    }

    /// Indices below `limit`, from an argument; or counted up where they fit.
    fn indices(&mut self, dtype: DType, rows: Size, cols: Size, limit: u64) -> Option<Tile> {
        let t = self.tile(dtype, rows, cols)?;
        let count = u64::from(rows.body) * u64::from(cols.body);
        if count <= limit && self.dice.chance(1, 3) {
            let (row_step, base) = (i64::from(cols.body), self.dice.below(limit - count + 1) as i64);
            let iota =
                Iota { dst: t.local, base, strides: Default::default(), row_step, col_step: 1, rows, cols };
            self.emit(Opcode::VIota, dtype, iota);
            return Some(t);
        }
        let p = self.pattern(dtype, &[rows, cols], true, false);
        let (mem, strides) = self.slot(dtype, p.clone(), true)?;
        // A slot of its own, whose data are indices.
        let plan = &mut self.slots[usize::from(mem.slot)];
        (plan.write, plan.read, plan.limit) = (false, true, Some(limit));
        let load = Load { dst: t.local, src: mem, rows, cols, pitch: strides[0], hints: Hints::default() };
        self.emit(Opcode::Load, dtype, load);
        Some(t)
    }

    fn index_dtype(&mut self) -> DType {
        self.dice.pick(&[DType::I32, DType::I64])
    }

    fn init(&mut self) -> Init {
        match self.dice.below(8) {
            0 | 1 if self.place == Place::Body => Init::First,
            2 => Init::Accumulate,
            _ => Init::Always,
        }
    }

    /// What an accumulating instruction finds, if it needs anything.
    fn prepare(&mut self, init: Init, dtype: DType, t: &Tile, rows: Size) {
        if init == Init::Accumulate {
            let value = if self.dice.chance(1, 2) { 0 } else { self.dice.element(dtype) };
            self.emit(Opcode::VFill, dtype, Fill { dst: t.local, value, rows, cols: t.cols });
        }
    }

    /// Emits `op` over the section's shape, or `rows x cols`, where it can; its result may be read then.
    pub(super) fn op_over(&mut self, op: Opcode, dtype: DType, rows: Size, cols: Size) -> Option<Tile> {
        let size = dtype.size();
        let tile = match op.form() {
            Form::Load => {
                let t = self.tile(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[rows, cols], true, false);
                let (src, strides) = self.slot(dtype, p, false)?;
                let hints = self.hints(true);
                self.emit(op, dtype, Load { dst: t.local, src, rows, cols, pitch: strides[0], hints });
                t
            }
            Form::ViewLoad => {
                let t = self.tile(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[rows, cols], false, false);
                let (src, strides) = self.slot(dtype, p, false)?;
                let hints = self.hints(true);
                let loops = loops(&[rows, cols], &strides);
                self.emit(op, dtype, ViewLoad { dst: t.local, src, loops, hints });
                t
            }
            Form::Store => {
                let t = self.have(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[rows, cols], true, true);
                let (dst, strides) = self.slot(dtype, p, true)?;
                let hints = self.hints(false);
                self.emit(op, dtype, Store { dst, src: t.local, rows, cols, pitch: strides[0], hints });
                return Some(t);
            }
            Form::ViewStore => {
                let t = self.have(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[rows, cols], false, true);
                let (dst, strides) = self.slot(dtype, p, true)?;
                let hints = self.hints(false);
                self.emit(
                    op,
                    dtype,
                    ViewStore { dst, src: t.local, loops: loops(&[rows, cols], &strides), hints },
                );
                return Some(t);
            }
            Form::FillStore => {
                let p = self.pattern(dtype, &[rows, cols], true, true);
                let (dst, strides) = self.slot(dtype, p, true)?;
                let (value, hints) = (self.dice.element(dtype), self.hints(false));
                self.emit(op, dtype, FillStore { dst, value, rows, cols, pitch: strides[0], hints });
                return self.tiles.last().copied();
            }
            Form::GatherLoad => {
                let limit = self.dice.range(1, 6);
                let index_dtype = self.index_dtype();
                let index = self.indices(index_dtype, rows, Size::ONE, limit)?.local;
                let p = self.pattern(dtype, &[Size::fixed(limit as u32), cols], true, false);
                let (src, strides) = self.slot(dtype, p, false)?;
                let t = self.tile(dtype, rows, cols)?;
                let (dst, stride) = (t.local, strides[0]);
                self.emit(op, dtype, GatherLoad { dst, src, index, rows, cols, stride, limit, index_dtype });
                t
            }
            Form::GatherElems => {
                let limit = self.dice.range(1, 6);
                let index_dtype = self.index_dtype();
                let index = self.indices(index_dtype, rows, cols, limit)?.local;
                let p = self.pattern(dtype, &[Size::fixed(limit as u32), rows, cols], false, false);
                let (src, s) = self.slot(dtype, p, false)?;
                let t = self.tile(dtype, rows, cols)?;
                let (dst, stride, row_stride, col_stride) = (t.local, s[0], s[1], s[2]);
                let operands = GatherElems {
                    dst,
                    src,
                    index,
                    rows,
                    cols,
                    stride,
                    row_stride,
                    col_stride,
                    limit,
                    index_dtype,
                };
                self.emit(op, dtype, operands);
                t
            }
            Form::ScatterStore => {
                let limit = self.dice.range(1, 6);
                let index_dtype = self.index_dtype();
                let index = self.indices(index_dtype, rows, Size::ONE, limit)?.local;
                let t = self.have(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[Size::fixed(limit as u32), cols], true, true);
                let (dst, s) = self.sparse(dtype, p)?;
                let (src, stride) = (t.local, s[0]);
                self.emit(
                    op,
                    dtype,
                    ScatterStore { dst, src, index, rows, cols, stride, limit, index_dtype },
                );
                return Some(t);
            }
            Form::ScatterElems => {
                let limit = self.dice.range(1, 6);
                let index_dtype = self.index_dtype();
                let index = self.indices(index_dtype, rows, cols, limit)?.local;
                let t = self.have(dtype, rows, cols)?;
                let p = self.pattern(dtype, &[Size::fixed(limit as u32), rows, cols], false, true);
                let (dst, s) = self.sparse(dtype, p)?;
                let (src, stride, row_stride, col_stride) = (t.local, s[0], s[1], s[2]);
                let operands = ScatterElems {
                    dst,
                    src,
                    index,
                    rows,
                    cols,
                    stride,
                    row_stride,
                    col_stride,
                    limit,
                    index_dtype,
                };
                self.emit(op, dtype, operands);
                return Some(t);
            }
            Form::CompressStore => {
                if self.parallel.iter().any(|&n| n > 1) && self.dice.chance(7, 8) {
                    return None;
                }
                let init = self.init();
                let count = self.tile(DType::I64, Size::ONE, Size::ONE)?;
                if init == Init::Accumulate {
                    let start = self.dice.below(2);
                    let fill = Fill { dst: count.local, value: start, rows: Size::ONE, cols: Size::ONE };
                    self.emit(Opcode::VFill, DType::I64, fill);
                }
                let mask = self.have(DType::Bool, rows, Size::ONE)?.local;
                let t = self.have(dtype, rows, cols)?;
                let limit = u64::from(rows.body) + if self.walks() { 20 } else { 1 } - self.dice.below(2);
                let p = self.pattern(dtype, &[Size::fixed(limit as u32), cols], true, true);
                let (dst, s) = self.sparse(dtype, p)?;
                let (src, stride, count_at) = (t.local, s[0], count.local);
                let operands =
                    CompressStore { dst, src, mask, count: count_at, rows, cols, stride, limit, init };
                self.emit(op, dtype, operands);
                count
            }
            Form::Unary => {
                let src = self.source(dtype, rows, cols)?;
                let t = self.result(op, dtype, &[src], rows, cols)?;
                self.emit(op, dtype, Unary { dst: t.local, src, rows, cols });
                t
            }
            Form::Binary => {
                let a = self.source(dtype, rows, cols)?;
                let divides = matches!(op, Opcode::VDiv | Opcode::VRem | Opcode::VFmod | Opcode::VFloorDiv);
                let b = if divides && !dtype.is_float() && self.dice.chance(3, 4) {
                    Src::Imm(self.dice.range(1, 5))
                } else {
                    self.source(dtype, rows, cols)?
                };
                let t = self.result(op, dtype, &[a, b], rows, cols)?;
                self.emit(op, dtype, Binary { dst: t.local, a, b, rows, cols });
                t
            }
            Form::Ternary => {
                let first = if op == Opcode::VSelect { DType::Bool } else { dtype };
                let a = self.source(first, rows, cols)?;
                let b = self.source(dtype, rows, cols)?;
                let c = self.source(dtype, rows, cols)?;
                let t = self.result(op, dtype, &[a, b, c], rows, cols)?;
                self.emit(op, dtype, Ternary { dst: t.local, a, b, c, rows, cols });
                t
            }
            Form::Cast => {
                let from = self.dice.pick(DType::ALL);
                let src = self.source(from, rows, cols)?;
                let t = self.result(op, dtype, &[src], rows, cols)?;
                self.emit(op, dtype, Cast { dst: t.local, src, from, rows, cols });
                t
            }
            Form::Fill => {
                let t = self.tile(dtype, rows, cols)?;
                let value = self.dice.element(dtype);
                self.emit(op, dtype, Fill { dst: t.local, value, rows, cols });
                t
            }
            Form::Iota => {
                let t = self.tile(dtype, rows, cols)?;
                let (base, strides) = (self.dice.signed(12), self.any_strides());
                let (row_step, col_step) = (self.dice.signed(6), self.dice.signed(6));
                self.emit(op, dtype, Iota { dst: t.local, base, strides, row_step, col_step, rows, cols });
                t
            }
            Form::LocalView => {
                let src = self.have(dtype, rows, cols)?;
                let row = Loop { count: rows, stride: cols.body.into() };
                let col = Loop { count: cols, stride: 1 };
                let times = Size::fixed(self.dice.range(1, 3) as u32);
                let again = Loop { count: times, stride: 0 };
                let (loops, r, c): (Vec<Loop>, _, _) = match self.dice.below(5) {
                    0 => (vec![row, col], rows, cols),
                    1 => (vec![col, row], cols, rows),
                    2 if rows.extent.is_none() => {
                        (vec![again, row, col], Size::fixed(times.body * rows.body), cols)
                    }
                    3 if cols.extent.is_none() => {
                        (vec![row, col, again], rows, Size::fixed(times.body * cols.body))
                    }
                    _ if cols.extent.is_none() => {
                        let half = Size::fixed(cols.body.div_ceil(2));
                        (vec![row, Loop { count: half, stride: 2 }], rows, half)
                    }
                    _ => (vec![row, col], rows, cols),
                };
                let t = self.tile(dtype, r, c)?;
                self.emit(op, dtype, LocalView { dst: t.local, src: src.local, loops: loops.into() });
                t
            }
            Form::Shape => {
                let (r, c) = match op {
                    Opcode::VBroadcastX => (rows, Size::ONE),
                    Opcode::VBroadcastY => (Size::ONE, cols),
                    _ => (cols, rows),
                };
                let src = self.have(dtype, r, c)?.local;
                let t = self.tile(dtype, rows, cols)?;
                self.emit(op, dtype, Shape { dst: t.local, src, rows, cols });
                t
            }
            Form::ClearPad | Form::RemovePad => {
                let pad = self.dice.below(4) as u32;
                let ragged = cols.extent.is_some() && self.dice.chance(1, 2);
                let wide = if ragged { cols } else { Size::fixed(cols.body + pad) };
                let held = self.have(dtype, rows, wide)?;
                let pitch = wide.body.into();
                if op.form() == Form::ClearPad {
                    let value = self.dice.element(dtype);
                    self.emit(op, dtype, ClearPad { dst: held.local, value, rows, cols, pitch });
                    return Some(held);
                }
                let t = self.tile(dtype, rows, cols)?;
                self.emit(op, dtype, RemovePad { dst: t.local, src: held.local, rows, cols, pitch });
                t
            }
            Form::SortKv => {
                let key = self.have(dtype, rows, cols)?;
                let value = self.make(DType::I64, rows, cols)?;
                self.tiles.push(key);
                let descending = self.dice.chance(1, 2);
                self.emit(op, dtype, SortKv { key: key.local, value: value.local, rows, cols, descending });
                return Some(key);
            }
            Form::Reduce | Form::PartSum | Form::ArgReduce | Form::CumSum => {
                return self.reduce(op, dtype, rows, cols);
            }
            Form::PackA if self.target.separate_cube() => return None,
            Form::LoadA
            | Form::LoadB
            | Form::PackA
            | Form::BindB
            | Form::Mmad
            | Form::AccToUb
            | Form::AccStore => {
                return self.product(op, dtype, rows, cols);
            }
            Form::OnPipe => {
                let pipe = self.dice.pick(&Pipe::ALL);
                self.emit(op, dtype, OnPipe { pipe });
                return self.tiles.last().copied();
            }
            // Flags and ends come where they mean something.
            Form::Cross => return None,
            Form::Control => {
                if op == Opcode::Barrier {
                    self.emit(op, dtype, crate::Control {});
                }
                return self.tiles.last().copied();
            }
        };
        debug_assert!(area(&tile) <= u64::from(u32::MAX) && size > 0, "tiles are small");
        self.tiles.push(tile);
        Some(tile)
    }

    /// A slot that is stored to where data say.
    fn sparse(&mut self, dtype: DType, p: super::template::Pattern) -> Option<(Mem, Vec<i64>)> {
        let (mem, strides) = self.slot(dtype, p, true)?;
        self.slots[usize::from(mem.slot)].full = false;
        Some((mem, strides))
    }

    fn reduce(&mut self, op: Opcode, dtype: DType, rows: Size, cols: Size) -> Option<Tile> {
        let mut init = self.init();
        // (source rows and columns, outer, red, inner)
        let split = Size::fixed(self.dice.range(1, 4) as u32);
        let (r, c, outer, red, inner) = match self.dice.below(5) {
            0 | 1 => (rows, cols, rows, cols, Size::ONE),
            2 | 3 => (rows, cols, Size::ONE, rows, cols),
            _ => (rows, Size::fixed(split.body * 3), rows, split, Size::fixed(3)),
        };
        if op == Opcode::VSum && dtype.is_float() && self.walks() && self.dice.chance(9, 10) {
            init = Init::Always;
        }
        let src = self.have(dtype, r, c)?;
        match op.form() {
            Form::ArgReduce => {
                let index = self.tile(DType::I64, outer, inner)?;
                let value = self.tile(dtype, outer, inner)?;
                self.prepare(init, DType::I64, &index, outer);
                self.prepare(init, dtype, &value, outer);
                let (base, strides, last) = (self.dice.signed(8), self.any_strides(), self.dice.chance(1, 2));
                let (index_at, value_at, src) = (index.local, value.local, src.local);
                let operands = ArgReduce {
                    index: index_at,
                    value: value_at,
                    src,
                    outer,
                    red,
                    inner,
                    init,
                    base,
                    strides,
                    last,
                };
                self.emit(op, dtype, operands);
                self.tiles.push(index);
                self.tiles.push(value);
                Some(value)
            }
            Form::PartSum => {
                let across = self.dice.chance(1, 2);
                let held = sum_dtype(dtype);
                // Planes and lanes as tiles of as many rows.
                let state = self.tile(held, Size::fixed(2 * outer.body), inner)?;
                let width = if across { 1 } else { SUM_LANES };
                let lanes = self.tile(held, Size::fixed(outer.body * width), inner)?;
                self.prepare(init, held, &state, state.rows);
                self.prepare(init, held, &lanes, lanes.rows);
                let (base, strides, totals) =
                    (self.dice.signed(14), self.any_strides(), self.dice.chance(1, 3));
                let (dst, lanes, src) = (state.local, lanes.local, src.local);
                let operands =
                    PartSum { dst, lanes, src, outer, red, inner, init, base, strides, across, totals };
                self.emit(op, dtype, operands);
                self.tiles.push(state);
                Some(state)
            }
            Form::CumSum => {
                let carry = self.tile(sum_dtype(dtype), outer, inner)?;
                self.prepare(init, sum_dtype(dtype), &carry, outer);
                let dst = if self.dice.chance(1, 4) { src } else { self.tile(dtype, r, c)? };
                let (exclusive, reverse) = (self.dice.chance(1, 2), self.dice.chance(1, 2));
                let (dst_at, carry_at, src) = (dst.local, carry.local, src.local);
                let operands =
                    CumSum { dst: dst_at, carry: carry_at, src, outer, red, inner, init, exclusive, reverse };
                self.emit(op, dtype, operands);
                self.tiles.push(carry);
                self.tiles.push(dst);
                Some(dst)
            }
            _ => {
                let state = op == Opcode::VSum && init != Init::Always;
                let (t, held) = if state {
                    // Two planes, as a tile of twice the rows where that is one.
                    let planes = Size::fixed(2 * outer.body);
                    (self.tile(sum_dtype(dtype), planes, inner)?, sum_dtype(dtype))
                } else {
                    (self.tile(dtype, outer, inner)?, dtype)
                };
                self.prepare(init, held, &t, t.rows);
                let (dst, src) = (t.local, src.local);
                self.emit(op, dtype, Reduce { dst, src, outer, red, inner, init });
                if !state || (outer.extent.is_none() && inner.extent.is_none()) {
                    self.tiles.push(t);
                }
                Some(t)
            }
        }
    }

    /// A whole product: operands packed or bound, multiplied, handed over or stored.
    fn product(&mut self, op: Opcode, dtype: DType, m: Size, n: Size) -> Option<Tile> {
        // The handing over takes any dtype.
        let input = if acc_dtype(dtype).is_some() { dtype } else { DType::F32 };
        let of = acc_dtype(input)?;
        let not = m.extent.or(n.extent);
        let k = self.size(7, not);
        let bound = match op {
            Opcode::BindB => true,
            Opcode::LoadB => false,
            _ => self.dice.chance(1, 3),
        };
        // A panel of a bound operand begins where a tile does.
        let n = match n.extent {
            Some(_) if bound => Size::fixed(n.body),
            _ => n,
        };
        self.kind = Kind::Mix;
        let [a, b, acc] = self.product_memory(input, m, n, k, bound)?;
        if op == Opcode::PackA || (!self.target.separate_cube() && self.dice.chance(1, 4)) {
            // Some of the columns of a wider tile, where they are not ragged.
            let wide = if k.extent.is_some() { k } else { Size::fixed(k.body + self.dice.below(3) as u32) };
            let src = self.have(input, m, wide)?.local;
            self.emit(Opcode::PackA, input, PackA { dst: a, src, m, k, pitch: wide.body.into() });
        } else {
            let p = self.pattern(input, &[m, k], false, false);
            let (src, s) = self.slot(input, p, false)?;
            let hints = self.hints(true);
            let load = LoadA { dst: a, src, m, k, row_stride: s[0], col_stride: s[1], hints };
            self.emit(Opcode::LoadA, input, load);
        }
        if bound {
            self.bind(input, b, k, n)?;
        } else {
            let p = self.pattern(input, &[k, n], false, false);
            let (src, s) = self.slot(input, p, false)?;
            let hints = self.hints(true);
            let load = LoadB { dst: b, src, k, n, row_stride: s[0], col_stride: s[1], hints };
            self.emit(Opcode::LoadB, input, load);
        }
        let init = match self.init() {
            Init::Accumulate => Init::Always,
            i => i,
        };
        self.emit(Opcode::Mmad, input, Mmad { acc, a, b, m, n, k, init });
        if op == Opcode::Mmad && self.dice.chance(1, 2) {
            self.emit(Opcode::Mmad, input, Mmad { acc, a, b, m, n, k, init: Init::Accumulate });
        }
        let out =
            if matches!(op, Opcode::AccToUb | Opcode::AccStore) { dtype } else { self.dice.pick(DType::ALL) };
        if op == Opcode::AccStore || self.dice.chance(1, 4) {
            let p = self.pattern(out, &[m, n], true, true);
            let (dst, s) = self.slot(out, p, true)?;
            let (relu, hints) = (self.dice.chance(1, 2), self.hints(false));
            self.emit(Opcode::AccStore, out, AccStore { dst, acc, from: of, m, n, pitch: s[0], relu, hints });
        }
        let t = self.tile(out, m, n)?;
        self.emit(Opcode::AccToUb, out, AccToUb { dst: t.local, acc, from: of, m, n });
        self.tiles.push(t);
        Some(t)
    }

    /// A right operand that is an argument in panels: the whole of its k and n, or a batch of such.
    fn bind(&mut self, dtype: DType, dst: crate::Local, k: Size, n: Size) -> Option<()> {
        let scope = self.scope();
        let nr = self.target.nr(dtype.size());
        let count = |s: Size| match s.extent.and_then(|e| scope.get(usize::from(e))) {
            Some(&e) => u64::from(e.saturating_sub(1)) * u64::from(s.body) + u64::from(s.tail),
            None => s.body.into(),
        };
        let (rows, cols) = (count(k), u64::from(n.body));
        let row = i64::from(nr) * i64::from(dtype.size());
        let panel_stride = row * rows as i64;
        let matrix = panel_stride * cols.div_ceil(nr.into()) as i64;
        let mut strides = crate::Strides::new();
        let mut batch = 1u64;
        for (e, &extent) in (0u8..).zip(&scope) {
            if k.extent == Some(e) {
                strides.push((e, row * i64::from(k.body)));
            } else if batch == 1 && extent > 0 && self.dice.chance(1, 4) {
                batch = extent.into();
                strides.push((e, matrix));
            }
        }
        strides.retain(|s| s.1 != 0);
        let slot = self.new_slot(SlotPlan {
            dtype,
            write: false,
            read: true,
            bytes: batch * matrix as u64,
            full: false,
            layout: Layout::Panels { nr, k: rows, n: cols, batch },
            limit: None,
            alias: None,
        })?;
        let src = Mem { slot: slot as u16, offset: 0, strides };
        self.emit(Opcode::BindB, dtype, BindB { dst, src, k, n, panel_stride });
        Some(())
    }

    /// Loads, computes, and stores over what it loaded: one slot for both, or an input and the output that may be its alias.
    pub(super) fn in_place(&mut self, dtype: DType, rows: Size, cols: Size) -> Option<()> {
        let p = self.pattern(dtype, &[rows, cols], true, true);
        let (dst, strides) = self.slot(dtype, p.clone(), true)?;
        let to = usize::from(dst.slot);
        let mut src = dst.clone();
        if self.dice.chance(1, 2) {
            self.slots[to].read = true;
        } else {
            let plan = SlotPlan { write: false, read: true, alias: Some(to), ..self.slots[to].clone() };
            src.slot = self.new_slot(plan)? as u16;
        }
        let (pitch, t) = (strides[0], self.tile(dtype, rows, cols)?);
        let hints = Hints::default();
        self.emit(Opcode::Load, dtype, Load { dst: t.local, src, rows, cols, pitch, hints });
        self.tiles.push(t);
        let computed = self.op_over(Opcode::VMax, dtype, rows, cols)?;
        self.emit(Opcode::Store, dtype, Store { dst, src: computed.local, rows, cols, pitch, hints });
        Some(())
    }
}

fn loops(sizes: &[Size], strides: &[i64]) -> Loops {
    sizes.iter().zip(strides).map(|(&count, &stride)| Loop { count, stride }).collect()
}
