//! Long reductions that keep little, as several kernels.
//!
//! One core must see all of a reduced fold, so a reduction to few results would leave the others idle. But the order of a sum
//! is made of blocks whose totals are added one after the other: cores can compute the totals of blocks side by side, and one
//! adds them up in the same order. So a long fold is cut at the borders of blocks, and the kernel becomes *pieces* in
//! *stages*, each of which starts when the one before has finished:
//!
//! - per depth of reductions, the totals of all blocks go to a buffer (one piece for whole blocks, one for the last if it is
//!   not), then a piece joins them;
//! - at last the stores are computed, from the results of all reductions. What keeps nothing of the fold joins and stores in one piece.
//!
//! No bit depends on it, because the order does not: whether to cut is a matter of time alone.
//!
//! What one template cannot do is cut as well: a sum over several runs of axes of which an inner one does not fit local memory is
//! reduced run by run ([`How::Runs`]), and where one reduction walks an axis that another one keeps, each has a piece of its own
//! ([`How::Reductions`]).

use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y, sum_dtype};
use dvm_bc::{DType, Opcode};
use dvm_ir::kernel::KReduce;

use crate::cost::needed;
use crate::space::{Fold, Mask, NONE, Node, Space, Stored, Val, bits};
use crate::vector::{across, outermost};

/// Elements of a kernel that are worth several stages.
pub(crate) const WORTH: u64 = 1 << 17;
/// Kept elements that are enough for all cores: as many rows, or columns of as many of [`COLUMNS`].
const ENOUGH: u64 = 16;
const COLUMNS: u64 = 256;

/// What a slot of a piece is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// An operand of the kernel.
    Operand(u16),
    /// A buffer between pieces, by number.
    Temp(u16),
}

/// A part of a kernel.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) space: Space,
    /// Pieces of one stage may run at the same time.
    pub(crate) stage: u32,
    /// What each slot is bound to, its dtype, whether it is written.
    pub(crate) slots: Vec<(Bound, DType, bool)>,
}

/// A kernel in pieces.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub(crate) pieces: Vec<Piece>,
    /// Bytes of each buffer between pieces.
    pub(crate) temps: Vec<u64>,
}

/// The fold to cut, if cutting pays: `worth` is the number of elements from which on it does.
pub(crate) fn wanted(sp: &Space, worth: u64) -> Option<usize> {
    let long = |f: &Fold| f.walked && f.n >= worth.min(u64::from(2 * SUM_BLOCK_X));
    if sp.product.is_some() || !sp.folds.iter().any(long) {
        return None;
    }
    let all = sp.folds.iter().fold(1u64, |n, f| n.saturating_mul(f.n));
    let (fold, _) = sp.folds.iter().enumerate().filter(|(_, f)| long(f)).max_by_key(|(_, f)| f.n)?;
    let kept = |inside: bool| {
        let at = sp.folds.iter().enumerate().filter(|&(i, f)| !f.walked && (i > fold) == inside);
        at.fold(1u64, |n, (_, f)| n.saturating_mul(f.n))
    };
    if all < worth || kept(false).saturating_mul(kept(true).div_ceil(COLUMNS)) >= ENOUGH {
        return None;
    }
    let mut block = None;
    for (i, val) in sp.vals.iter().enumerate() {
        match val.node {
            Node::CumSum { .. } | Node::ArgReduce { .. } => return None,
            Node::Reduce { op, over, .. } if over >> fold & 1 == 1 => {
                let ordered = op == KReduce::Prod && val.dtype.is_float();
                let mine = block_of(sp, i, fold);
                if ordered || outermost(val, sp) != 1 << fold || block.is_some_and(|b| b != mine) {
                    return None;
                }
                block = Some(mine);
            }
            _ => {}
        }
    }
    // A fold may be walked for another reason than a reduction.
    block.filter(|&b| sp.folds[fold].n > b).map(|_| fold)
}

/// Elements of the fold in a block of the reduction `v`.
fn block_of(sp: &Space, v: usize, fold: usize) -> u64 {
    let need = needed(&sp.vals[v], sp);
    u64::from(if across(need, 1 << fold) { SUM_BLOCK_Y } else { SUM_BLOCK_X })
}

/// How a kernel is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Along a fold, which must be [`wanted`].
    Fold(usize),
    /// Between the runs of float reductions over several.
    Runs,
    /// Each reduction is a piece.
    Reductions,
}

/// Cuts the kernel; without pieces where there is nothing to cut.
pub(crate) fn cut(sp: &Space, how: How) -> Split {
    let fold = if let How::Fold(f) = how { f } else { usize::MAX };
    let mut c = Cutter { sp, how, fold, block: 0, depth: vec![], parts: vec![], out: Split::default() };
    for (i, val) in sp.vals.iter().enumerate() {
        let before = val.operands().iter().map(|&o| c.depth[o as usize]).max().unwrap_or(0);
        let cuts = c.cuts(i);
        c.depth.push(before + u32::from(cuts));
        c.parts.push(None);
        if cuts && matches!(how, How::Fold(_)) {
            c.block = block_of(sp, i, fold);
        }
    }
    let deepest = (0..sp.vals.len()).filter(|&i| c.cuts(i)).map(|i| c.depth[i]).max().unwrap_or(0);
    if deepest == 0 {
        return c.out;
    }
    let has = |s: &Stored| s.mask.checked_shr(fold as u32).unwrap_or(1) & 1 == 1;
    let streams = sp.stores.iter().any(has);
    for depth in 1..=deepest {
        c.totals(depth);
        if streams || depth < deepest {
            c.joins(depth);
        }
    }
    if streams {
        // What keeps nothing of the fold is stored by itself, so that nobody walks the fold.
        c.stores(2 * deepest, None, has);
        c.stores(2 * deepest, None, |s| !has(s));
    } else {
        c.stores(2 * deepest - 1, Some(deepest), |_| true);
    }
    c.out
}

/// Buffers of a reduction: of its totals, and of its results once they are joined.
#[derive(Clone, Copy, Debug)]
struct Parts {
    totals: u16,
    results: Option<u16>,
}

struct Cutter<'a> {
    sp: &'a Space,
    how: How,
    /// The fold that is cut, if one is.
    fold: usize,
    block: u64,
    /// Reductions along the fold up to a value.
    depth: Vec<u32>,
    parts: Vec<Option<Parts>>,
    out: Split,
}

/// What a piece takes of the fold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it as it is, or nothing.
    All,
    /// Whole blocks: the fold becomes two, the outer one counts blocks.
    Blocks,
    /// What is left.
    Rest,
    /// Totals of blocks instead of elements.
    Totals,
}

impl Cutter<'_> {
    /// Whether value `i` is a reduction that is cut.
    fn cuts(&self, i: usize) -> bool {
        let val = &self.sp.vals[i];
        let Node::Reduce { over, op, .. } = val.node else { return false };
        match self.how {
            How::Fold(f) => over >> f & 1 == 1,
            How::Runs => {
                let ordered = matches!(op, KReduce::Sum | KReduce::Prod) && val.dtype.is_float();
                ordered && outermost(val, self.sp) != over
            }
            How::Reductions => true,
        }
    }

    /// What is left to reduce when value `i` is joined, and the folds of what is joined.
    fn left(&self, i: usize) -> (Mask, Mask) {
        let val = &self.sp.vals[i];
        let left = match self.how {
            How::Fold(f) => 1 << f,
            _ => outermost(val, self.sp),
        };
        (left, val.mask | left)
    }

    fn n(&self) -> u64 {
        self.sp.folds.get(self.fold).map_or(0, |f| f.n)
    }

    /// The dtype of totals.
    fn held(&self, i: usize) -> DType {
        let val = &self.sp.vals[i];
        match val.node {
            Node::Reduce { op: KReduce::Sum, .. } => sum_dtype(val.dtype),
            _ => val.dtype,
        }
    }

    fn temp(&mut self, elements: u64, dtype: DType) -> u16 {
        self.out.temps.push(elements.saturating_mul(u64::from(dtype.size())));
        (self.out.temps.len() - 1) as u16
    }

    /// Elements along the folds of a mask.
    fn size(&self, mask: Mask) -> u64 {
        bits(mask).fold(1u64, |n, f| n.saturating_mul(self.sp.folds[f].n))
    }

    /// The pieces that compute the totals of the reductions of a depth.
    fn totals(&mut self, depth: u32) {
        if self.how == How::Reductions {
            return;
        }
        let now: Vec<usize> =
            (0..self.sp.vals.len()).filter(|&i| self.cuts(i) && self.depth[i] == depth).collect();
        let along = matches!(self.how, How::Fold(_));
        let count = if along { self.n().div_ceil(self.block) } else { 1 };
        for &i in &now {
            let kept = if along { self.sp.vals[i].mask } else { self.left(i).1 };
            let elements = self.size(kept).saturating_mul(count);
            let totals = self.temp(elements, self.held(i));
            self.parts[i] = Some(Parts { totals, results: None });
        }
        for part in [Part::Blocks, Part::Rest, Part::All] {
            let wanted = match part {
                Part::Blocks => along,
                Part::Rest => along && !self.n().is_multiple_of(self.block),
                _ => !along,
            };
            if !wanted {
                continue;
            }
            let mut b = Builder::new(self, part);
            for &i in &now {
                let Node::Reduce { op, x, over, .. } = self.sp.vals[i].node else { continue };
                let held = self.held(i);
                let mut x = b.value(x);
                if b.space.vals[x as usize].dtype != held {
                    x = b.push(Node::Cast(x), held, b.space.vals[x as usize].mask);
                }
                let (left, joined) = self.left(i);
                let (over, mask) = if along {
                    (b.inner(over), b.mask(self.sp.vals[i].mask) | b.outer())
                } else {
                    (over & !left, joined)
                };
                let v = b.push(Node::Reduce { op, x, over, totals: false }, held, mask);
                let skip = if part == Part::Rest { self.n() / self.block } else { 0 };
                let (offset, mut row) = self.dense(joined, count, held, skip);
                match part {
                    Part::Blocks => row.insert(self.fold + 1, 0),
                    Part::Rest => row[self.fold] = 0,
                    _ => {}
                }
                let temp = self.parts[i].map_or(0, |p| p.totals);
                b.store(v, Bound::Temp(temp), held, offset, row);
            }
            let piece = b.finish(2 * (depth - 1));
            self.out.pieces.push(piece);
        }
    }

    /// The pieces that join the totals of a depth.
    fn joins(&mut self, depth: u32) {
        for i in 0..self.sp.vals.len() {
            if !self.cuts(i) || self.depth[i] != depth {
                continue;
            }
            let (mask, dtype) = (self.sp.vals[i].mask, self.sp.vals[i].dtype);
            let results = self.temp(self.size(mask), dtype);
            let part = if matches!(self.how, How::Fold(_)) { Part::Totals } else { Part::All };
            let mut b = Builder::new(self, part);
            let v = b.joined(i);
            let (offset, strides) = self.dense(mask, 1, dtype, 0);
            b.store(v, Bound::Temp(results), dtype, offset, strides);
            let piece = b.finish(2 * depth - 1);
            self.out.pieces.push(piece);
            let totals = self.parts[i].map_or(0, |p| p.totals);
            self.parts[i] = Some(Parts { totals, results: Some(results) });
        }
    }

    /// The piece that does some of the stores. Reductions of depth `inline` are joined in it.
    fn stores(&mut self, stage: u32, inline: Option<u32>, which: impl Fn(&Stored) -> bool) {
        let mut b = Builder::new(self, if inline.is_some() { Part::Totals } else { Part::All });
        for s in self.sp.stores.iter().filter(|s| which(s)) {
            let v = b.value(s.value);
            let slot = b.slot(Bound::Operand(s.slot), self.sp.vals[s.value as usize].dtype, true);
            let access = b.access(s.access);
            let mask = b.mask(s.mask);
            b.space.stores.push(Stored { slot, access, value: v, mask });
        }
        if !b.space.stores.is_empty() {
            let piece = b.finish(stage);
            self.out.pieces.push(piece);
        }
    }

    /// Offset and strides of a dense buffer over `mask`, whose fold has `count` elements, of which `skip` are skipped.
    fn dense(&self, mask: Mask, count: u64, dtype: DType, skip: u64) -> (i64, Vec<i64>) {
        let mut strides = vec![0; self.sp.folds.len()];
        let mut inside = i64::from(dtype.size());
        for f in bits(mask).rev() {
            strides[f] = inside;
            let n = if f == self.fold { count } else { self.sp.folds[f].n };
            inside = inside.saturating_mul(i64::try_from(n).unwrap_or(i64::MAX));
        }
        let skipped = strides.get(self.fold).map_or(0, |s| s.saturating_mul(skip as i64));
        (skipped, strides)
    }
}

/// Builds the space of a piece: all folds at first, those that nothing varies along are dropped at the end.
struct Builder<'a, 'b> {
    c: &'a Cutter<'b>,
    part: Part,
    space: Space,
    slots: Vec<(Bound, DType, bool)>,
    /// The new number of each value.
    map: Vec<u32>,
}

impl<'a, 'b> Builder<'a, 'b> {
    fn new(c: &'a Cutter<'b>, part: Part) -> Builder<'a, 'b> {
        let mut space = Space::default();
        let whole = |n: u64| {
            let mut f = Fold { n, tile: 1, tail: 1, count: 1, extent: NONE, walked: false };
            f.cut(n);
            f
        };
        for (i, f) in c.sp.folds.iter().enumerate() {
            match part {
                Part::Blocks if i == c.fold => {
                    space.folds.extend([whole(f.n / c.block), whole(c.block)]);
                }
                Part::Rest if i == c.fold => space.folds.push(whole(f.n % c.block)),
                Part::Totals if i == c.fold => space.folds.push(whole(f.n.div_ceil(c.block))),
                _ => space.folds.push(whole(f.n)),
            }
        }
        Builder { c, part, space, slots: vec![], map: vec![u32::MAX; c.sp.vals.len()] }
    }

    /// The fold that counts blocks.
    fn outer(&self) -> Mask {
        if self.part == Part::Blocks { 1 << self.c.fold } else { 0 }
    }

    /// A mask in the piece's folds.
    fn mask(&self, m: Mask) -> Mask {
        if self.part != Part::Blocks {
            return m;
        }
        let low = m & ((1 << self.c.fold) - 1);
        let high = (m >> (self.c.fold + 1)) << (self.c.fold + 2);
        low | high | ((m >> self.c.fold & 1) * (3 << self.c.fold))
    }

    /// The folds that a reduction reduces in the piece.
    fn inner(&self, over: Mask) -> Mask {
        self.mask(over) & !self.outer()
    }

    fn push(&mut self, node: Node, dtype: DType, mask: Mask) -> u32 {
        self.space.vals.push(Val::new(node, dtype, mask));
        self.space.vals.len() as u32 - 1
    }

    /// The slot of the piece that is bound to something.
    fn slot(&mut self, bound: Bound, dtype: DType, write: bool) -> u16 {
        let found = self.slots.iter().position(|s| s.0 == bound && s.2 == write);
        found.unwrap_or_else(|| {
            self.slots.push((bound, dtype, write));
            self.slots.len() - 1
        }) as u16
    }

    /// An access of the kernel.
    fn access(&mut self, access: u32) -> u32 {
        let (fold, block, n) = (self.c.fold, self.c.block as i64, self.c.n());
        let mut row = self.c.sp.strides(access).to_vec();
        let mut offset = self.c.sp.offsets[access as usize];
        match self.part {
            Part::Blocks => row.insert(fold, row[fold].saturating_mul(block)),
            Part::Rest => {
                let skipped = (n / self.c.block) as i64 * block;
                offset = offset.saturating_add(row[fold].saturating_mul(skipped));
            }
            Part::Totals => row[fold] = 0,
            Part::All => {}
        }
        self.space.add_access(offset, &row)
    }

    fn load(&mut self, temp: u16, dtype: DType, mask: Mask, row: &[i64]) -> u32 {
        let slot = self.slot(Bound::Temp(temp), dtype, false);
        let access = self.space.add_access(0, row);
        self.push(Node::Load { slot, access }, dtype, mask)
    }

    /// The reduction `i`, from its totals where it has some.
    fn joined(&mut self, i: usize) -> u32 {
        let (val, held) = (&self.c.sp.vals[i], self.c.held(i));
        let Node::Reduce { op, x, over, .. } = val.node else { return 0 };
        if self.c.how == How::Reductions {
            let x = self.value(x);
            return self.push(Node::Reduce { op, x, over, totals: false }, val.dtype, val.mask);
        }
        let along = matches!(self.c.how, How::Fold(_));
        let count = if along { self.c.n().div_ceil(self.c.block) } else { 1 };
        let (left, from) = self.c.left(i);
        let (_, row) = self.c.dense(from, count, held, 0);
        let x = self.load(self.c.parts[i].map_or(0, |p| p.totals), held, from, &row);
        let totals = along && op == KReduce::Sum && held.is_float();
        let v = self.push(Node::Reduce { op, x, over: left, totals }, held, val.mask);
        if held == val.dtype { v } else { self.push(Node::Cast(v), val.dtype, val.mask) }
    }

    /// A value of the kernel. Reductions that have been joined are loaded, others are joined here.
    fn value(&mut self, v: u32) -> u32 {
        // Values are few and operands come first, so all that are needed are marked and then built in order.
        let n = v as usize + 1;
        let mut marked = vec![false; n];
        marked[v as usize] = true;
        for i in (0..n).rev() {
            if marked[i] && !self.c.cuts(i) {
                for o in self.c.sp.vals[i].operands() {
                    marked[o as usize] = true;
                }
            }
        }
        for i in (0..n).filter(|&i| marked[i]) {
            if self.map[i] != u32::MAX {
                continue;
            }
            self.map[i] = if !self.c.cuts(i) {
                self.copy(i)
            } else if let Some(results) = self.c.parts[i].and_then(|p| p.results) {
                let val = &self.c.sp.vals[i];
                let (_, mut row) = self.c.dense(val.mask, 1, val.dtype, 0);
                if self.part == Part::Blocks {
                    row.insert(self.c.fold, 0);
                }
                self.load(results, val.dtype, self.mask(val.mask), &row)
            } else {
                self.joined(i)
            };
        }
        self.map[v as usize]
    }

    fn copy(&mut self, i: usize) -> u32 {
        let val = self.c.sp.vals[i];
        let at = |v: u32| self.map[v as usize];
        let node = match val.node {
            Node::Load { slot, access } => {
                let slot = self.slot(Bound::Operand(slot), val.dtype, false);
                Node::Load { slot, access: self.access(access) }
            }
            Node::Gather { slot, access, index, stride, limit } => {
                let index = at(index);
                let slot = self.slot(Bound::Operand(slot), val.dtype, false);
                Node::Gather { slot, access: self.access(access), index, stride, limit }
            }
            Node::Iota { access } => Node::Iota { access: self.access(access) },
            Node::Alias(x) => Node::Alias(at(x)),
            Node::Unary(op, x, d) => Node::Unary(op, at(x), d),
            Node::Binary(op, a, b, d) => Node::Binary(op, at(a), at(b), d),
            Node::Ternary(op, [a, b, c]) => Node::Ternary(op, [at(a), at(b), at(c)]),
            Node::Cast(x) => Node::Cast(at(x)),
            Node::Reduce { op, x, over, totals } => {
                Node::Reduce { op, x: at(x), over: self.mask(over), totals }
            }
            node => node,
        };
        self.push(node, val.dtype, self.mask(val.mask))
    }

    fn store(&mut self, value: u32, to: Bound, dtype: DType, offset: i64, row: Vec<i64>) {
        let slot = self.slot(to, dtype, true);
        let access = self.space.add_access(offset, &row);
        let mask = (0..row.len()).filter(|&f| row[f] != 0 && self.space.folds[f].n > 1);
        let mask = mask.fold(0, |m, f| m | 1 << f);
        self.space.stores.push(Stored { slot, access, value, mask });
    }

    fn finish(mut self, stage: u32) -> Piece {
        let one = self.space.select(|f| f.n == 1);
        for v in &mut self.space.vals {
            v.mask &= !one;
            if let Node::Reduce { over, x, .. } = &mut v.node {
                *over &= !one;
                if *over == 0 {
                    // The last block is one element.
                    v.node = Node::Unary(Opcode::VCopy, *x, v.dtype);
                }
            }
        }
        self.space.settle();
        Piece { space: self.space, stage, slots: self.slots }
    }
}
