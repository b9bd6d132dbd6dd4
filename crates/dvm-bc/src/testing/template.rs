//! Random templates that mostly pass the verifier: every operand is made before it is used.

use super::dice::Dice;
use crate::layout::{acc_bytes, acc_dtype, panel_a_bytes, panel_b_bytes, panel_elem_bytes};
use crate::{
    Code, DType, Hints, Inst, Kind, Layout, Local, MAX_PARALLEL, Mem, Opcode, Phase, Place, Section, Size,
    Slot, Space, Src, Strides, Target, Template,
};

/// A tile in vector memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) local: Local,
    pub(super) dtype: DType,
    pub(super) rows: Size,
    pub(super) cols: Size,
    lo: u64,
    hi: u64,
}

/// What a slot needs of the argument it is bound to.
#[derive(Clone, Debug)]
pub(super) struct SlotPlan {
    pub(super) dtype: DType,
    pub(super) write: bool,
    /// It is loaded, too.
    pub(super) read: bool,
    pub(super) bytes: u64,
    /// All of these bytes are stored.
    pub(super) full: bool,
    pub(super) layout: Layout,
    /// Holds indices below this.
    pub(super) limit: Option<u64>,
    /// The slot whose bytes it overwrites, if they are bound to one memory.
    pub(super) alias: Option<usize>,
}

/// An address pattern: a slot's part of an instruction.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) mem: Mem,
    /// Byte strides of the inner sizes.
    pub(super) strides: Vec<i64>,
    bytes: u64,
    full: bool,
}

/// Builds one template.
pub(super) struct Builder<'d, 'b, 't> {
    pub(super) dice: &'d mut Dice<'b>,
    pub(super) target: &'t Target,
    pub(super) parallel: Vec<u32>,
    pub(super) seq: Vec<u32>,
    pub(super) rotate: bool,
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) slots: Vec<SlotPlan>,
    /// What may be read.
    pub(super) tiles: Vec<Tile>,
    /// Sizes that tiles of the section tend to have.
    pub(super) shape: (Size, Size),
    code: Vec<Inst>,
    sections: Vec<Section>,
    phases: Vec<Phase>,
    top: [u64; 4],
}

/// Most slots of a random template.
const SLOTS: usize = 10;

impl<'d, 'b, 't> Builder<'d, 'b, 't> {
    pub(super) fn new(dice: &'d mut Dice<'b>, target: &'t Target, parallel: Vec<u32>) -> Builder<'d, 'b, 't> {
        Builder {
            dice,
            target,
            parallel,
            seq: Vec::new(),
            rotate: false,
            place: Place::Body,
            kind: Kind::Vector,
            slots: Vec::new(),
            tiles: Vec::new(),
            shape: (Size::ONE, Size::ONE),
            code: Vec::new(),
            sections: Vec::new(),
            phases: Vec::new(),
            top: [0; 4],
        }
    }

    /// Opens a phase.
    pub(super) fn phase(&mut self, seq: Vec<u32>, rotate: bool) {
        self.rotate = rotate && !seq.is_empty();
        self.seq = seq;
    }

    /// Opens a section of the phase.
    pub(super) fn section(&mut self, place: Place) {
        self.place = place;
        let n = self.scope().len();
        let valid = |s: Size| s.extent.is_none_or(|e| usize::from(e) < n);
        self.tiles.retain(|t| valid(t.rows) && valid(t.cols));
        let rows = self.size(6, None);
        self.shape = (rows, self.size(18, rows.extent));
    }

    pub(super) fn end_section(&mut self) {
        let mut code = Code::default();
        for inst in self.code.drain(..) {
            // What does not fit its encoding is left out; a mutation may want it anyhow.
            let _ = code.push(&inst);
        }
        self.sections.push(Section { place: self.place, code });
    }

    pub(super) fn end_phase(&mut self) {
        // Tiles that are ragged in a sequential extent end with it.
        let n = self.parallel.len();
        let stays = |s: Size| s.extent.is_none_or(|e| usize::from(e) < n);
        self.tiles.retain(|t| stays(t.rows) && stays(t.cols));
        let (seq, rotate) = (std::mem::take(&mut self.seq), self.rotate);
        self.phases.push(Phase { seq, rotate, sections: std::mem::take(&mut self.sections) });
    }

    pub(super) fn finish(self, name: String) -> (Template, Vec<SlotPlan>) {
        let slot =
            |(i, s): (usize, &SlotPlan)| Slot { name: format!("s{i}"), dtype: s.dtype, write: s.write };
        let slots = self.slots.iter().enumerate().map(slot).collect();
        let Builder { kind, parallel, phases, slots: plans, .. } = self;
        (Template { name, kind, slots, parallel, phases }, plans)
    }

    /// Whether the section has such an instruction.
    pub(super) fn emitted(&self, op: Opcode) -> bool {
        self.code.iter().any(|i| i.op == op)
    }

    pub(super) fn push(&mut self, inst: Inst) {
        self.code.push(inst);
    }

    /// Extents with an index in this section.
    pub(super) fn scope(&self) -> Vec<u32> {
        let depth = match self.place {
            Place::Init(d) | Place::Finish(d) => usize::from(d).min(self.seq.len()),
            Place::Body => self.seq.len(),
        };
        self.parallel.iter().chain(&self.seq[..depth]).copied().collect()
    }

    /// Whether some walk passes here more than once.
    pub(super) fn walks(&self) -> bool {
        self.place == Place::Body && self.seq.iter().map(|&n| u64::from(n)).product::<u64>() > 1
    }

    /// A count of up to `most`, ragged sometimes, but not in `not`.
    pub(super) fn size(&mut self, most: u64, not: Option<u8>) -> Size {
        if self.dice.chance(1, 60) {
            return Size::fixed(0);
        }
        let body = self.dice.range(1, most) as u32;
        let extents: Vec<u8> = (0..self.scope().len() as u8).filter(|&e| Some(e) != not).collect();
        if extents.is_empty() || self.dice.chance(2, 3) {
            return Size::fixed(body);
        }
        let tail = if self.dice.chance(1, 40) { 0 } else { self.dice.range(1, body.into()) };
        Size::ragged(body, tail as u32, self.dice.pick(&extents))
    }

    /// Room in a space; forgets the tiles it takes it from.
    pub(super) fn alloc(&mut self, space: Space, bytes: u64) -> Option<(Local, u64, u64)> {
        let block = u64::from(self.target.block);
        let size = bytes.max(1).next_multiple_of(block);
        let capacity = self.target.capacity(space);
        let top = &mut self.top[space as usize];
        if *top + size > capacity {
            // Panel buffers of a template never overlap.
            if size > capacity || matches!(space, Space::PanelA | Space::PanelB) {
                return None;
            }
            *top = 0;
        }
        let lo = *top;
        *top += size;
        self.tiles.retain(|t| t.local.space != space || t.hi <= lo || lo + size <= t.lo);
        Some((Local { space, offset: (lo / block) as u32 }, lo, lo + size))
    }

    /// Room for a tile; not yet to be read.
    pub(super) fn tile(&mut self, dtype: DType, rows: Size, cols: Size) -> Option<Tile> {
        let bytes = u64::from(rows.body) * u64::from(cols.body) * u64::from(dtype.size());
        let (local, lo, hi) = self.alloc(Space::Ub, bytes)?;
        Some(Tile { local, dtype, rows, cols, lo, hi })
    }

    /// Some tile of this dtype and shape, made now if there is none or sometimes anyhow.
    pub(super) fn have(&mut self, dtype: DType, rows: Size, cols: Size) -> Option<Tile> {
        let fits = |t: &&Tile| (t.dtype, t.rows, t.cols) == (dtype, rows, cols);
        let known: Vec<Tile> = self.tiles.iter().filter(fits).copied().collect();
        if !known.is_empty() && self.dice.chance(3, 4) {
            return Some(self.dice.pick(&known));
        }
        self.make(dtype, rows, cols)
    }

    /// A source of an elementwise instruction.
    pub(super) fn source(&mut self, dtype: DType, rows: Size, cols: Size) -> Option<Src> {
        use crate::Mode;
        let mode = match self.dice.below(20) {
            0 | 1 => return Some(Src::Imm(self.dice.element(dtype))),
            2..=4 => Mode::Row,
            5..=7 => Mode::Col,
            8 => Mode::One,
            _ => Mode::Full,
        };
        let (r, c) = match mode {
            Mode::Full => (rows, cols),
            Mode::Row => (Size::ONE, cols),
            Mode::Col => (rows, Size::ONE),
            Mode::One => (Size::ONE, Size::ONE),
        };
        Some(Src::Local(self.have(dtype, r, c)?.local, mode))
    }

    pub(super) fn hints(&mut self, load: bool) -> Hints {
        Hints { sticky: load && self.dice.chance(1, 30), stream: self.dice.chance(1, 6) }
    }

    /// Strides for whatever the extents are.
    pub(super) fn any_strides(&mut self) -> Strides {
        let n = self.scope().len() as u8;
        let mut out = Strides::new();
        for e in 0..n {
            if self.dice.chance(1, 2) {
                out.push((e, 1 + self.dice.below(5) as i64));
            }
        }
        out
    }

    /// An access over the extents and `inner` sizes: a row-major tensor whose dims come in some order. `dense`: the last size is
    /// contiguous. A store covers each tile's own bytes.
    pub(super) fn pattern(&mut self, dtype: DType, inner: &[Size], dense: bool, write: bool) -> Pattern {
        let scope = self.scope();
        let elem = i64::from(dtype.size());
        let merged = |e: usize| inner.iter().any(|s| s.extent == Some(e as u8));
        // (extent or, beyond the scope, inner size; count)
        let mut dims: Vec<(usize, u64)> = Vec::new();
        for (e, &n) in scope.iter().enumerate() {
            let parallel = e < self.parallel.len();
            let skip = if write { !parallel && self.dice.chance(1, 6) } else { self.dice.chance(1, 4) };
            if !merged(e) && !skip {
                dims.push((e, n.into()));
            }
        }
        let total = |s: &Size| match s.extent {
            Some(e) => {
                let n = u64::from(scope.get(usize::from(e)).copied().unwrap_or(1));
                n.saturating_sub(1) * u64::from(s.body) + u64::from(s.tail)
            }
            None => u64::from(s.body),
        };
        let fixed = if dense { inner.len().saturating_sub(1) } else { inner.len() };
        let mut at = |d: &mut Dice<'_>, key: usize, n: u64| {
            let place = if d.chance(2, 3) { dims.len() } else { d.below(dims.len() as u64 + 1) as usize };
            dims.insert(place, (key, n));
        };
        for (i, s) in inner.iter().enumerate().take(fixed) {
            at(self.dice, scope.len() + i, total(s));
        }
        if dense && let Some(s) = inner.last() {
            dims.push((scope.len() + inner.len() - 1, total(s)));
        }
        let mut full = dims.iter().all(|d| d.1 > 0) && !scope.contains(&0);
        let mut stride_of = vec![0i64; scope.len() + inner.len()];
        let (mut step, mut offset) = (elem, 0i64);
        for (i, &(key, n)) in dims.iter().enumerate().rev() {
            stride_of[key] = step;
            let contiguous = dense && i + 1 == dims.len();
            if !contiguous && n > 0 && self.dice.chance(1, 16) {
                offset += (n as i64 - 1) * step;
                stride_of[key] = -step;
            }
            step *= n.max(1) as i64;
            if self.dice.chance(1, 24) {
                step += elem * self.dice.range(1, 3) as i64;
                full = false;
            }
        }
        if self.dice.chance(1, 16) {
            let skip = elem * self.dice.range(1, 4) as i64;
            (offset, step, full) = (offset + skip, step + skip, false);
        }
        let strides: Vec<i64> = stride_of.split_off(scope.len());
        for (s, stride) in inner.iter().zip(&strides) {
            if let Some(e) = s.extent.map(usize::from).filter(|&e| e < stride_of.len()) {
                stride_of[e] = stride * i64::from(s.body);
            }
        }
        let of_extents = (0u8..).zip(stride_of).filter(|s| s.1 != 0).collect();
        let mem = Mem { slot: 0, offset, strides: of_extents };
        Pattern { mem, strides, bytes: step as u64, full }
    }

    /// Binds a pattern to a new slot, or a load to one that exists already.
    pub(super) fn slot(&mut self, dtype: DType, mut p: Pattern, write: bool) -> Option<(Mem, Vec<i64>)> {
        let shares = |s: &SlotPlan| {
            s.dtype == dtype
                && !s.write
                && s.layout == Layout::Plain
                && s.limit.is_none()
                && s.alias.is_none()
        };
        let known: Vec<usize> = (0..self.slots.len()).filter(|&i| shares(&self.slots[i])).collect();
        let slot = if !write && !known.is_empty() && (self.slots.len() >= SLOTS || self.dice.chance(1, 4)) {
            let slot = self.dice.pick(&known);
            self.slots[slot].bytes = self.slots[slot].bytes.max(p.bytes);
            slot
        } else {
            self.new_slot(SlotPlan {
                dtype,
                write,
                read: !write,
                bytes: p.bytes,
                full: p.full,
                layout: Layout::Plain,
                limit: None,
                alias: None,
            })?
        };
        p.mem.slot = slot as u16;
        Some((p.mem, p.strides))
    }

    pub(super) fn new_slot(&mut self, plan: SlotPlan) -> Option<usize> {
        if self.slots.len() >= SLOTS + 6 {
            return None;
        }
        self.slots.push(plan);
        Some(self.slots.len() - 1)
    }

    /// Extents of some shape: parallel ones.
    pub(super) fn some_extents(dice: &mut Dice<'_>, most: u64) -> Vec<u32> {
        let n = match dice.below(16) {
            0 => dice.below(MAX_PARALLEL as u64 + 1),
            _ => dice.below(most + 1),
        };
        let extent = |d: &mut Dice<'_>| if d.chance(1, 80) { 0 } else { d.range(1, 4) as u32 };
        (0..n).map(|_| if n > 3 { dice.range(1, 2) as u32 } else { extent(dice) }).collect()
    }

    /// Panel buffers and an accumulator for a product.
    pub(super) fn product_memory(
        &mut self,
        dtype: DType,
        m: Size,
        n: Size,
        k: Size,
        bound: bool,
    ) -> Option<[Local; 3]> {
        let a = self.alloc(Space::PanelA, panel_a_bytes(self.target, dtype, m.body, k.body))?.0;
        let bytes = if bound { 1 } else { panel_b_bytes(self.target, dtype, k.body, n.body) };
        let b = self.alloc(Space::PanelB, bytes)?.0;
        let acc = self.alloc(Space::Acc, acc_bytes(dtype, m.body, n.body))?.0;
        debug_assert!(acc_dtype(dtype).is_some() && panel_elem_bytes(dtype) > 0, "a dtype with products");
        Some([a, b, acc])
    }
}
