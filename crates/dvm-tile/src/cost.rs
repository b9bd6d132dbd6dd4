//! What a tile of a kernel needs and costs, as a function of the folds' tile sizes.
//!
//! Built once a kernel; evaluating it is a few multiplications a value, so that the tiler may look at many candidates.

use dvm_bc::{Class, DType, Opcode};
use dvm_npu::{Costs, MachineSpec};
use smallvec::SmallVec;

use crate::legal::Legal;
use crate::space::{Mask, Node, Space, Val, bits};

/// A change of the live local memory, in body order.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Number of a mask.
    mask: u16,
    /// Bytes an element; negative when a buffer dies.
    bytes: i64,
}

/// Rows of a transfer: those of `mask` that are contiguous along `row`; numbers of masks.
#[derive(Clone, Copy, Debug)]
struct Rows {
    mask: u16,
    row: u16,
}

/// What all instructions over one mask cost an element.
#[derive(Clone, Copy, Debug, Default)]
struct PerElement {
    vector_ns: f64,
    dma_bytes: f64,
}

/// An operand that varies along `have`, read by an instruction over a tile.
#[derive(Clone, Copy, Debug)]
struct Spread {
    tile: u16,
    have: Mask,
    fixed: f64,
    per_element: f64,
}

/// Masks whose elements are counted once a candidate; few kernels have more.
const COUNTED: usize = 16;

/// Elements of a tile for the first masks of the model.
type Counts = [u64; COUNTED];

/// Memory and work of a kernel's tile. Reused from kernel to kernel.
///
/// Values share few masks, so that a candidate costs a product a mask and a multiplication or two a value.
#[derive(Debug, Default)]
pub(crate) struct Model {
    masks: Vec<Mask>,
    /// By mask.
    per_element: Vec<PerElement>,
    rows: Vec<Rows>,
    /// Operands that are neither rows nor columns of their instruction's tile, unless tiles of some folds are single.
    spreads: Vec<Spread>,
    /// Fixed ns of all vector instructions and of all transfers.
    fixed: (f64, f64),
    events: Vec<Event>,
    first: Vec<u32>,
    last: Vec<u32>,
    block: u64,
    async_pipes: bool,
    legal: Legal,
}

impl Model {
    /// The model of `sp`'s vector part.
    pub(crate) fn build(&mut self, sp: &Space, spec: &MachineSpec, legal: Legal) {
        self.legal = legal;
        self.masks.clear();
        self.per_element.clear();
        self.rows.clear();
        self.spreads.clear();
        self.fixed = (0.0, 0.0);
        self.events.clear();
        self.block = u64::from(spec.target.block);
        self.async_pipes = spec.target.async_pipes;
        self.lifetimes(sp);
        if self.async_pipes {
            // Buffers of transfers are there from the start to the end.
            for (i, val) in sp.vals.iter().enumerate() {
                if kept(sp, i as u32) {
                    self.event(val.mask, val.size() as i64);
                }
            }
        }
        for (i, val) in sp.vals.iter().enumerate() {
            if matches!(val.node, Node::Dead) {
                continue;
            }
            if matches!(val.node, Node::Imm(_)) {
                self.spread_stores(sp, i as u32, true);
                continue;
            }
            self.memory(sp, i, val);
            self.time(sp, val, &spec.costs);
        }
        for s in &sp.stores {
            let size = sp.vals[s.value as usize].size();
            self.transfer(sp, s.access, s.mask, size, &spec.costs);
        }
    }

    /// The number of a mask.
    fn number(&mut self, mask: Mask) -> u16 {
        let found = self.masks.iter().position(|&m| m == mask);
        found.unwrap_or_else(|| {
            self.masks.push(mask);
            self.per_element.push(PerElement::default());
            self.masks.len() - 1
        }) as u16
    }

    fn event(&mut self, mask: Mask, bytes: i64) {
        let mask = self.number(mask);
        self.events.push(Event { mask, bytes });
    }

    fn transfer(&mut self, sp: &Space, access: u32, mask: Mask, size: u64, costs: &Costs) {
        let row = row(sp, access, mask, size);
        let (mask, row) = (self.number(mask), self.number(row));
        self.rows.push(Rows { mask, row });
        self.per_element[usize::from(mask)].dma_bytes += size as f64;
        self.fixed.1 += costs.dma.fixed_ns;
    }

    fn lifetimes(&mut self, sp: &Space) {
        self.first.clear();
        self.first.resize(sp.vals.len(), u32::MAX);
        self.last.clear();
        self.last.extend(0..sp.vals.len() as u32);
        for (i, val) in sp.vals.iter().enumerate() {
            for o in val.operands() {
                self.first[o as usize] = self.first[o as usize].min(i as u32);
                self.last[o as usize] = i as u32;
            }
        }
        for s in &sp.stores {
            self.first[s.value as usize] = self.first[s.value as usize].min(s.value);
        }
    }

    /// Loads are defined at their first use, everything else in order.
    fn memory(&mut self, sp: &Space, i: usize, val: &Val) {
        let here = i as u32;
        let lazy = |v: u32| matches!(sp.vals[v as usize].node, Node::Load { .. });
        let bytes = |v: u32| sp.vals[v as usize].size() as i64;
        let mask = |v: u32| sp.vals[v as usize].mask;
        let imm = |v: u32| matches!(sp.vals[v as usize].node, Node::Imm(_) | Node::Dead);
        let operands = val.operands();
        let async_pipes = self.async_pipes;
        let kept = |v: u32| async_pipes && kept(sp, v);
        for (n, &o) in operands.iter().enumerate() {
            if lazy(o) && self.first[o as usize] == here && !operands[..n].contains(&o) && !kept(o) {
                self.event(mask(o), bytes(o));
            }
        }
        if lazy(here) && self.first[i] != here {
            return;
        }
        // Copies in the dtype that the instruction runs in.
        if let Some((op, dtype)) = val.op(sp)
            && let runs = self.legal.runs_in(op.class(), dtype)
            && runs != dtype
        {
            let size = i64::from(runs.size());
            let copies: SmallVec<[Mask; 4]> =
                operands.iter().filter(|&&o| !imm(o)).map(|&o| mask(o)).chain([val.mask]).collect();
            copies.iter().for_each(|&m| self.event(m, size));
            copies.iter().for_each(|&m| self.event(m, -size));
        }
        let dies = |v: u32, last: &[u32]| !imm(v) && last[v as usize] == here;
        let elementwise = elementwise(val);
        let heir = operands.iter().copied().find(|&o| {
            elementwise
                && dies(o, &self.last)
                && !kept(o)
                && !kept(here)
                && mask(o) == val.mask
                && bytes(o) == bytes(here)
        });
        if heir.is_none() {
            let planes = match val.node {
                // The state of a sum, or an index beside a value.
                Node::Reduce { .. } => 3,
                Node::ArgReduce { .. } | Node::CumSum { .. } => 2,
                _ => 1,
            };
            self.event(val.mask, (planes - i64::from(kept(here))) * bytes(here));
        }
        // An operand that must be spread first.
        let need = match val.node {
            _ if elementwise => spread_by(sp, val, &operands),
            // Unless it picks whole rows.
            Node::Gather { index, .. } if !leads(mask(index), val.mask) => val.mask,
            _ => needed(val, sp),
        };
        for &o in &operands {
            if need != 0 && mask(o) != need && !(imm(o) && elementwise) {
                self.event(need, bytes(o));
                self.event(need, -bytes(o));
            }
        }
        for (n, &o) in operands.iter().enumerate() {
            if dies(o, &self.last) && Some(o) != heir && !kept(o) && !operands[..n].contains(&o) {
                self.event(mask(o), -bytes(o));
            }
        }
        self.spread_stores(sp, here, false);
        if self.last[i] == here && !kept(here) {
            let planes = if matches!(val.node, Node::Reduce { .. }) { 3 } else { 1 };
            self.event(val.mask, -planes * bytes(here));
        }
    }

    /// Copies of a value spread over what its stores cover.
    fn spread_stores(&mut self, sp: &Space, v: u32, imm: bool) {
        let val = &sp.vals[v as usize];
        for s in sp.stores.iter().filter(|s| s.value == v && s.mask != val.mask) {
            // A scalar goes straight to contiguous rows.
            let nest = sp.access_nest(s.access, s.mask);
            if !(imm && nest.len() <= 2 && nest.last().is_none_or(|l| l.stride == val.size() as i64)) {
                self.event(s.mask, val.size() as i64);
                self.event(s.mask, -(val.size() as i64));
            }
        }
    }

    /// Counts one more tile over all folds, so that cutting any of them saves memory.
    pub(crate) fn pad(&mut self, sp: &Space) {
        let mask = self.number(sp.select(|_| true));
        self.events.insert(0, Event { mask, bytes: 8 });
    }

    fn time(&mut self, sp: &Space, val: &Val, costs: &Costs) {
        if elementwise(val) {
            for x in val.operands() {
                let x = &sp.vals[x as usize];
                if x.mask != 0 && x.mask != val.mask && !leads(x.mask, val.mask) && !trails(x.mask, val.mask)
                {
                    let tile = self.number(val.mask);
                    let fixed = costs.vector.ns(Class::Move, x.dtype, 0.0);
                    let per_element = costs.vector.ns(Class::Move, x.dtype, 1.0) - fixed;
                    self.spreads.push(Spread { tile, have: x.mask, fixed, per_element });
                }
            }
        }
        let legal = self.legal;
        let casts = val.operands().len() as f64 + 1.0;
        let mut vector = |op: Opcode, dtype: DType, mask: Mask| {
            let runs = legal.runs_in(op.class(), dtype);
            if runs != dtype {
                let cast = |n: f64| costs.vector.ns(Class::Move, runs, n);
                self.fixed.0 += casts * cast(0.0);
                let mask = self.number(mask);
                self.per_element[usize::from(mask)].vector_ns += casts * (cast(1.0) - cast(0.0));
            }
            let dtype = runs;
            let fixed = costs.vector.ns(op.class(), dtype, 0.0);
            self.fixed.0 += fixed;
            let mask = self.number(mask);
            self.per_element[usize::from(mask)].vector_ns += costs.vector.ns(op.class(), dtype, 1.0) - fixed;
        };
        match val.node {
            Node::Load { access, .. } | Node::Gather { access, .. } => {
                self.transfer(sp, access, val.mask, val.size(), costs);
            }
            Node::Iota { .. } => vector(Opcode::VIota, val.dtype, val.mask),
            Node::Unary(op, _, d) | Node::Binary(op, _, _, d) => vector(op, d, val.mask),
            Node::Ternary(op, _) => vector(op, val.dtype, val.mask),
            Node::Cast(..) => vector(Opcode::VCast, val.dtype, val.mask),
            Node::Reduce { op, x, .. } => {
                let x = &sp.vals[x as usize];
                vector(crate::lower::reduce(op), x.dtype, x.mask | needed(val, sp));
            }
            Node::ArgReduce { op, x, .. } => {
                vector(op, sp.vals[x as usize].dtype, sp.vals[x as usize].mask | needed(val, sp));
            }
            Node::CumSum { .. } => vector(Opcode::VCumSum, val.dtype, val.mask),
            Node::MatMul | Node::Contract { .. } => vector(Opcode::AccToUb, val.dtype, val.mask),
            Node::Dead | Node::Alias(_) | Node::Imm(_) => {}
        }
    }

    fn counts(&self, sp: &Space) -> Counts {
        let mut counts = [1; COUNTED];
        for (n, &m) in counts.iter_mut().zip(&self.masks) {
            *n = sp.elements(m);
        }
        counts
    }
    fn count(&self, sp: &Space, counts: &Counts, mask: u16) -> u64 {
        let i = usize::from(mask);
        counts.get(i).copied().unwrap_or_else(|| sp.elements(self.masks[i]))
    }

    /// Bytes of vector memory that a tile needs at once.
    pub(crate) fn peak(&self, sp: &Space) -> u64 {
        let counts = self.counts(sp);
        // A block is a power of two; local memory is far smaller than where these saturate.
        let mask = self.block - 1;
        let (mut live, mut peak) = (0u64, 0u64);
        for e in &self.events {
            let bytes = self.count(sp, &counts, e.mask).saturating_mul(e.bytes.unsigned_abs());
            let bytes = bytes.saturating_add(mask) & !mask;
            live = if e.bytes < 0 { live.saturating_sub(bytes) } else { live.saturating_add(bytes) };
            peak = peak.max(live);
        }
        peak
    }

    /// Nanoseconds of one tile's transfers and of its vector instructions, and the bytes it moves, when `sharing` cores
    /// share the cache.
    pub(crate) fn tile_ns(&self, sp: &Space, costs: &Costs, sharing: f64) -> TileCost {
        let counts = self.counts(sp);
        let d = &costs.dma;
        let rate = d.core_rate.min(d.cache_rate / sharing);
        let mut c = TileCost { dma: self.fixed.1, vector: self.fixed.0, bytes: 0.0 };
        for (i, p) in self.per_element.iter().enumerate() {
            let n = self.count(sp, &counts, i as u16) as f64;
            c.vector += p.vector_ns * n;
            c.bytes += p.dma_bytes * n;
        }
        let wide = if self.spreads.is_empty() { 0 } else { sp.wide() };
        for s in &self.spreads {
            let (tile, have) = (self.masks[usize::from(s.tile)] & wide, s.have & wide);
            if have != 0 && have != tile && !leads(have, tile) && !trails(have, tile) {
                c.vector += s.fixed + s.per_element * self.count(sp, &counts, s.tile) as f64;
            }
        }
        c.dma += c.bytes / rate;
        for r in &self.rows {
            let n = |m| self.count(sp, &counts, m) as f64;
            c.dma += n(r.mask) / n(r.row) * d.row_ns;
        }
        c
    }
}

/// See [`Model::tile_ns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileCost {
    pub(crate) dma: f64,
    pub(crate) vector: f64,
    pub(crate) bytes: f64,
}

/// Folds that the operand of a reduction must vary along.
pub(crate) fn needed(val: &Val, sp: &Space) -> Mask {
    match val.node {
        Node::Reduce { x, over, .. } => sp.vals[x as usize].mask | over,
        Node::ArgReduce { x, fold, .. } | Node::CumSum { x, fold, .. } => {
            sp.vals[x as usize].mask | 1 << fold
        }
        // Rows and what is summed.
        Node::Contract { x } => sp.vals[x as usize].mask | 0b11 << (sp.folds.len().max(3) - 3),
        _ => 0,
    }
}

/// Whether a value's buffer is that of a transfer, where pipes are asynchronous.
fn kept(sp: &Space, v: u32) -> bool {
    let moved = matches!(sp.vals[v as usize].node, Node::Load { .. } | Node::MatMul | Node::Contract { .. });
    let computed = !matches!(sp.vals[v as usize].node, Node::Dead | Node::Imm(_) | Node::Alias(_));
    moved || (computed && sp.stores.iter().any(|s| s.value == v))
}

fn elementwise(val: &Val) -> bool {
    matches!(val.node, Node::Unary(..) | Node::Binary(..) | Node::Ternary(..) | Node::Cast(..))
}

/// Whether `have` holds the innermost folds of `all`.
fn trails(have: Mask, all: Mask) -> bool {
    Mask::BITS - (all & !have).leading_zeros() <= have.trailing_zeros()
}

/// Whether `have` holds the outermost folds of `all`.
fn leads(have: Mask, all: Mask) -> bool {
    (all & !have).trailing_zeros() >= Mask::BITS - have.leading_zeros()
}

/// The folds of an elementwise value if, in general, one of its operands can be read neither as rows nor as columns.
fn spread_by(sp: &Space, val: &Val, operands: &[u32]) -> Mask {
    let mut at = None;
    for &o in operands {
        let have = sp.vals[o as usize].mask;
        if have == 0 || have == val.mask {
            continue;
        }
        // Where the instruction's tile is cut into rows and columns.
        let cut = match (leads(have, val.mask), trails(have, val.mask)) {
            (true, _) => Mask::BITS - have.leading_zeros(),
            (_, true) => have.trailing_zeros(),
            _ => return val.mask,
        };
        // Folds between two cuts that the value lacks do not matter, but that is rare.
        if at.is_some_and(|a| a != cut) {
            return val.mask;
        }
        at = Some(cut);
    }
    0
}

/// Folds along which an access is contiguous while they are whole.
fn row(sp: &Space, access: u32, mask: Mask, size: u64) -> Mask {
    let strides = sp.strides(access);
    let (mut out, mut next) = (0, size as i64);
    for f in bits(mask).rev() {
        if strides[f] != next {
            break;
        }
        out |= 1 << f;
        next = next.saturating_mul(sp.folds[f].n as i64);
    }
    out
}
