//! A kernel at concrete dims: its iteration space folded to few axes, its values reduced to what they vary along.
//!
//! Axes of extent 1 vanish, empty values and dead code are dropped, and adjacent axes that every access treats alike become
//! one *fold*. A value's *mask* here holds only the folds along which its elements really differ: a broadcast decided
//! when dims were bound is as cheap as one known before.

use dvm_bc::{DType, Opcode, layout};
use dvm_ir::kernel::{Access, AxisSet, KOp, KReduce, MAX_AXES};
use dvm_ir::{Dim, DimValues, Kernel, Scalar};
use smallvec::SmallVec;

use crate::attention::Contract;
use crate::check::check;
use crate::cube::Product;
use crate::error::Fault;
use crate::lower::{self, Lowered};
pub(crate) use crate::shape::bits;

/// A set of folds.
pub(crate) type Mask = u32;

/// No extent.
pub(crate) const NONE: u8 = u8::MAX;

/// Axes of the iteration space that are walked as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    /// Elements.
    pub(crate) n: u64,
    /// Elements in a tile, and in the last one.
    pub(crate) tile: u32,
    pub(crate) tail: u32,
    /// Number of tiles.
    pub(crate) count: u64,
    /// Extent of the unit space that counts the tiles, or [`NONE`] where there is one.
    pub(crate) extent: u8,
    /// Walked by one core rather than spread over cores.
    pub(crate) walked: bool,
}

impl Fold {
    /// Cuts the fold into tiles of at most `tile` elements.
    pub(crate) fn cut(&mut self, tile: u64) {
        let tile = tile.clamp(1, self.n);
        self.count = self.n.div_ceil(tile);
        // Sizes of instructions have 28 bits; a larger tile never fits local memory.
        self.tile = u32::try_from(tile).unwrap_or(u32::MAX);
        self.tail = u32::try_from(self.n - (self.count - 1) * tile).unwrap_or(u32::MAX);
    }
    pub(crate) fn ragged(&self) -> bool {
        self.tail != self.tile
    }
}

/// What a value of the body is made of. Operands are value numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    /// Not needed, or without elements.
    Dead,
    /// The same as an earlier value.
    Alias(u32),
    /// A scalar, as bits of the dtype.
    Imm(u64),
    Load {
        slot: u16,
        access: u32,
    },
    Gather {
        slot: u16,
        access: u32,
        index: u32,
        stride: i64,
        limit: u64,
    },
    Iota {
        access: u32,
    },
    /// The dtype is that of the operand.
    Unary(Opcode, u32, DType),
    Binary(Opcode, u32, u32, DType),
    Ternary(Opcode, [u32; 3]),
    Cast(u32),
    Reduce {
        op: KReduce,
        x: u32,
        over: Mask,
        /// Elements are the totals of blocks of a float sum.
        totals: bool,
    },
    ArgReduce {
        op: Opcode,
        x: u32,
        fold: u8,
        last: bool,
    },
    CumSum {
        x: u32,
        fold: u8,
        exclusive: bool,
        reverse: bool,
    },
    MatMul,
    /// The product of a computed left operand.
    Contract {
        x: u32,
    },
}

/// A value of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Val {
    pub(crate) node: Node,
    pub(crate) dtype: DType,
    /// Folds along which elements differ: the layout of its tile.
    pub(crate) mask: Mask,
    /// Declared axes.
    axes: AxisSet,
    /// Number of uses by live values and stores.
    pub(crate) uses: u32,
}

impl Val {
    /// A value whose uses are not counted yet.
    pub(crate) fn new(node: Node, dtype: DType, mask: Mask) -> Val {
        Val { node, dtype, mask, axes: AxisSet::EMPTY, uses: 0 }
    }
    /// Bytes an element.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.dtype.size())
    }
    pub(crate) fn operands(&self) -> SmallVec<[u32; 3]> {
        match self.node {
            Node::Dead | Node::Imm(_) | Node::Load { .. } | Node::Iota { .. } | Node::MatMul => {
                SmallVec::new()
            }
            Node::Gather { index: x, .. }
            | Node::Alias(x)
            | Node::Unary(_, x, _)
            | Node::Cast(x)
            | Node::Contract { x }
            | Node::Reduce { x, .. }
            | Node::ArgReduce { x, .. }
            | Node::CumSum { x, .. } => SmallVec::from_slice(&[x]),
            Node::Binary(_, a, b, _) => SmallVec::from_slice(&[a, b]),
            Node::Ternary(_, abc) => SmallVec::from_slice(&abc),
        }
    }
}

/// A store that writes something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) slot: u16,
    pub(crate) access: u32,
    pub(crate) value: u32,
    /// Folds it covers.
    pub(crate) mask: Mask,
}

/// A kernel at concrete dims. Reused from kernel to kernel.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) folds: Vec<Fold>,
    pub(crate) vals: Vec<Val>,
    pub(crate) stores: Vec<Stored>,
    pub(crate) product: Option<Product>,
    pub(crate) contract: Option<Contract>,
    /// One tile walks the rows of two products, whose right operands stay packed.
    pub(crate) held: bool,
    /// Byte offset per access.
    pub(crate) offsets: Vec<i64>,
    /// Byte strides, a row of `folds.len()` per access.
    strides: Vec<i64>,
    /// Element strides, a row of `kept.len()` per access, while folding.
    raw: Vec<i64>,
    /// Value of each access, and the bytes of an element.
    owners: Vec<(u32, i64)>,
    kept: Vec<u8>,
    extents: Vec<u64>,
}

/// Evaluates dims, naming what failed.
#[derive(Clone, Copy)]
struct Values<'a>(&'a DimValues);

impl Values<'_> {
    fn get(self, d: Dim, what: &'static str) -> Result<i64, Fault> {
        self.0.get(d).ok_or(Fault::Undefined(what))
    }
    fn extent(self, d: Dim, what: &'static str) -> Result<u64, Fault> {
        let value = self.get(d, what)?;
        u64::try_from(value).map_err(|_| Fault::Negative { what, value })
    }
}

impl Space {
    /// Byte strides of an access per fold.
    pub(crate) fn strides(&self, access: u32) -> &[i64] {
        let n = self.folds.len();
        &self.strides[access as usize * n..][..n]
    }
    /// Elements of a tile that varies along `mask`. Saturates.
    pub(crate) fn elements(&self, mask: Mask) -> u64 {
        bits(mask).fold(1, |n, f| n.saturating_mul(u64::from(self.folds[f].tile)))
    }
    /// Folds that are cut and walked in order.
    pub(crate) fn seq(&self) -> Mask {
        self.select(|f| f.walked && f.count > 1)
    }
    /// Folds of which a tile has more than one element.
    pub(crate) fn wide(&self) -> Mask {
        self.select(|f| f.tile > 1)
    }
    pub(crate) fn select(&self, p: impl Fn(&Fold) -> bool) -> Mask {
        self.folds.iter().enumerate().fold(0, |m, (i, f)| m | Mask::from(p(f)) << i)
    }
    /// Turns the fold around in every access, so that it is walked from its end.
    pub(crate) fn flip(&mut self, fold: usize) {
        let n = self.folds.len();
        let last = self.folds[fold].n as i64 - 1;
        for (row, offset) in self.strides.chunks_exact_mut(n).zip(&mut self.offsets) {
            // A sum that saturates is far outside every argument, which the verifier finds.
            *offset = offset.saturating_add(row[fold] * last);
            row[fold] = -row[fold];
        }
    }

    /// Adds an access by its byte offset and strides per fold.
    pub(crate) fn add_access(&mut self, offset: i64, strides: &[i64]) -> u32 {
        self.offsets.push(offset);
        self.strides.extend_from_slice(strides);
        self.offsets.len() as u32 - 1
    }

    /// Completes a space whose folds, values, stores and accesses were put together: drops dead values and the folds that nothing
    /// varies along, and finds what one core must walk.
    pub(crate) fn settle(&mut self) {
        self.live();
        let (mut used, mut walked) = (0, 0);
        for v in self.vals.iter().filter(|v| !matches!(v.node, Node::Dead)) {
            used |= v.mask;
            if let Node::Reduce { over, .. } = v.node {
                used |= over;
                walked |= over;
            }
        }
        used |= self.stores.iter().fold(0, |m, s| m | s.mask);
        walked |= self.stores.iter().fold(0, |m, s| m | used & !s.mask);
        let n = self.folds.len();
        for (i, f) in self.folds.iter_mut().enumerate() {
            f.walked = walked >> i & 1 == 1 && f.n > 1;
        }
        // The number of a fold among those that stay.
        let to = |m: Mask| bits(m & used).fold(0, |out, f| out | 1 << (used & ((1 << f) - 1)).count_ones());
        for v in &mut self.vals {
            v.mask = to(v.mask);
            if let Node::Reduce { over, .. } = &mut v.node {
                *over = to(*over);
            }
        }
        for s in &mut self.stores {
            s.mask = to(s.mask);
        }
        let stays = |i: usize| used >> i & 1 == 1;
        let mut at = 0;
        self.strides.retain(|_| {
            at += 1;
            stays((at - 1) % n)
        });
        let mut at = 0;
        self.folds.retain(|_| {
            at += 1;
            stays(at - 1)
        });
    }

    /// Brings `kernel` to concrete dims. `false` when it stores nothing.
    pub(crate) fn build(&mut self, kernel: &Kernel, dims: &DimValues) -> Result<bool, Fault> {
        let dims = Values(dims);
        self.reset();
        let empty = self.extents(kernel, dims)?;
        check(kernel)?;
        self.values(kernel, dims, empty)?;
        for (i, s) in kernel.stores.iter().enumerate() {
            let value = self.resolve(s.value.0);
            if !matches!(self.vals[value as usize].node, Node::Dead) {
                self.stores.push(Stored { slot: s.operand as u16, access: i as u32, value, mask: 0 });
            }
        }
        if self.stores.is_empty() {
            return Ok(false);
        }
        self.live();
        self.accesses(kernel, dims)?;
        self.fold(kernel);
        self.finish(kernel)?;
        Ok(true)
    }

    fn reset(&mut self) {
        self.folds.clear();
        self.vals.clear();
        self.stores.clear();
        self.product = None;
        self.contract = None;
        self.held = false;
        self.offsets.clear();
        self.strides.clear();
        self.raw.clear();
        self.owners.clear();
        self.kept.clear();
        self.extents.clear();
    }

    /// Extents of the axes; returns the empty ones.
    fn extents(&mut self, kernel: &Kernel, dims: Values<'_>) -> Result<AxisSet, Fault> {
        if kernel.axes.len() > MAX_AXES {
            return Err(Fault::Extents { what: "kernel", found: kernel.axes.len(), most: MAX_AXES });
        }
        let mut empty = AxisSet::EMPTY;
        let matrix = match kernel.matrix_axes() {
            0 => usize::MAX,
            n => kernel.axes.len().saturating_sub(n),
        };
        for (i, &d) in kernel.axes.iter().enumerate() {
            let n = dims.extent(d, "an axis")?;
            self.extents.push(n);
            if n == 0 {
                empty = empty.or(AxisSet::one(i));
            }
            // The rows and columns of a product keep their places.
            if n > 1 || (n == 1 && i >= matrix) {
                self.kept.push(i as u8);
            }
        }
        Ok(empty)
    }

    /// Follows aliases. They always name an earlier value that is none itself.
    fn resolve(&self, v: u32) -> u32 {
        match self.vals[v as usize].node {
            Node::Alias(x) => x,
            _ => v,
        }
    }

    /// What each value becomes; accesses are numbered later, when it is known which are alive.
    fn values(&mut self, kernel: &Kernel, dims: Values<'_>, empty: AxisSet) -> Result<(), Fault> {
        for (i, inst) in kernel.body.iter().enumerate() {
            let dtype = lower::dtype(inst.dtype);
            let hollow = |m: AxisSet| m.0 & empty.0 != 0;
            let at = |v: dvm_ir::kernel::KValue| self.resolve(v.0);
            let of = |v: u32| self.vals[v as usize].dtype;
            let scalar = |s: Scalar| Node::Imm(s.to_bits(inst.dtype));
            let node = match &inst.op {
                _ if hollow(inst.mask) => Node::Dead,
                KOp::Load { operand, .. } => Node::Load { slot: *operand as u16, access: 0 },
                KOp::Gather { operand, index, stride, limit, .. } => {
                    let size = i64::from(dtype.size());
                    let stride = dims.get(*stride, "a gathered stride")?;
                    let stride = stride.checked_mul(size).ok_or(Fault::TooLarge("a gathered stride"))?;
                    let limit = dims.extent(*limit, "a gathered extent")?;
                    Node::Gather { slot: *operand as u16, access: 0, index: at(*index), stride, limit }
                }
                KOp::Const(s) => scalar(*s),
                KOp::DimConst(d) => scalar(Scalar::Int(dims.get(*d, "a scalar")?)),
                KOp::Iota { .. } => Node::Iota { access: 0 },
                KOp::Unary(op, x) => {
                    let x = at(*x);
                    match lower::unary(*op, of(x)) {
                        Lowered::Op(o) => Node::Unary(o, x, of(x)),
                        Lowered::Same => Node::Alias(x),
                        Lowered::Bool(b) => Node::Imm(u64::from(b)),
                    }
                }
                KOp::Binary(op, a, b) => Node::Binary(lower::binary(*op), at(*a), at(*b), of(at(*a))),
                KOp::Fma(a, b, c) => Node::Ternary(Opcode::VFma, [at(*a), at(*b), at(*c)]),
                KOp::Select(a, b, c) => Node::Ternary(Opcode::VSelect, [at(*a), at(*b), at(*c)]),
                KOp::Clamp(a, b, c) => Node::Ternary(Opcode::VClamp, [at(*a), at(*b), at(*c)]),
                KOp::Cast(x) if of(at(*x)) == dtype => Node::Alias(at(*x)),
                KOp::Cast(x) => Node::Cast(at(*x)),
                KOp::Reduce(op, x, axes) => {
                    if hollow(AxisSet(axes.0 & kernel.body[x.index()].mask.0)) {
                        Node::Imm(lower::identity(*op, inst.dtype))
                    } else if self.wide_axes(*axes) == 0 {
                        Node::Alias(at(*x))
                    } else {
                        Node::Reduce { op: *op, x: at(*x), over: 0, totals: false }
                    }
                }
                KOp::ArgReduce { max, last, x, axis } => match self.extents[usize::from(*axis)] {
                    0 => return Err(Fault::EmptyArg { value: i, axis: usize::from(*axis) }),
                    1 => Node::Imm(0),
                    _ => {
                        let op = if *max { Opcode::VArgMax } else { Opcode::VArgMin };
                        Node::ArgReduce { op, x: at(*x), fold: 0, last: *last }
                    }
                },
                KOp::CumSum { x, axis, exclusive, reverse } => match self.extents[usize::from(*axis)] {
                    0 | 1 if *exclusive => Node::Imm(0),
                    0 | 1 => Node::Alias(at(*x)),
                    _ => Node::CumSum { x: at(*x), fold: 0, exclusive: *exclusive, reverse: *reverse },
                },
                KOp::MatMul { k, .. } => match dims.extent(*k, "k")? {
                    0 => Node::Imm(0),
                    _ => Node::MatMul,
                },
                // `check` has seen three axes.
                KOp::Contract { a, .. } => match self.extents[kernel.axes.len() - 2] {
                    0 => Node::Imm(0),
                    _ => Node::Contract { x: at(*a) },
                },
            };
            self.vals.push(Val { node, dtype, mask: 0, axes: inst.mask, uses: 0 });
        }
        Ok(())
    }

    /// The set's axes of more than one element.
    fn wide_axes(&self, axes: AxisSet) -> u32 {
        self.extents
            .iter()
            .enumerate()
            .filter(|&(i, &n)| n > 1 && axes.has(i))
            .fold(0, |m, (i, _)| m | 1 << i)
    }

    /// Counts uses from the stores back and drops what nobody uses.
    fn live(&mut self) {
        for s in &self.stores {
            self.vals[s.value as usize].uses += 1;
        }
        for i in (0..self.vals.len()).rev() {
            if self.vals[i].uses == 0 {
                self.vals[i].node = Node::Dead;
            } else {
                for o in self.vals[i].operands() {
                    self.vals[o as usize].uses += 1;
                }
            }
        }
    }

    /// Offsets and element strides of every access that is alive.
    fn accesses(&mut self, kernel: &Kernel, dims: Values<'_>) -> Result<(), Fault> {
        for (i, inst) in kernel.body.iter().enumerate() {
            let v = i as u32;
            match (&inst.op, self.vals[i].node) {
                (KOp::Load { access: a, .. }, Node::Load { slot, .. }) => {
                    let access = self.access(a, v, self.vals[i].size() as i64, dims)?;
                    self.vals[i].node = Node::Load { slot, access };
                }
                (KOp::Gather { access: a, .. }, Node::Gather { slot, index, stride, limit, .. }) => {
                    let access = self.access(a, v, self.vals[i].size() as i64, dims)?;
                    self.vals[i].node = Node::Gather { slot, access, index, stride, limit };
                }
                (KOp::Iota { access: a }, Node::Iota { .. }) => {
                    let access = self.access(a, v, 1, dims)?;
                    self.vals[i].node = Node::Iota { access };
                }
                (KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k }, Node::MatMul) => {
                    let operand = &kernel.operands[*b as usize];
                    let dtype = lower::dtype(operand.dtype);
                    if layout::acc_dtype(dtype).is_none() {
                        return Err(Fault::Unsupported { value: i, what: "a matrix product of bool" });
                    }
                    let size = i64::from(dtype.size());
                    let stride = |d: Dim| {
                        let s = dims.get(d, "a stride along k")?;
                        s.checked_mul(size).ok_or(Fault::TooLarge("a stride along k"))
                    };
                    self.product = Some(Product {
                        a: *a as u16,
                        a_access: self.access(a_access, v, size, dims)?,
                        a_k: stride(*a_k)?,
                        b: *b as u16,
                        b_access: self.access(b_access, v, size, dims)?,
                        b_k: stride(*b_k)?,
                        k: dims.extent(*k, "k")?,
                        dtype,
                        packable: operand.packable,
                        b_len: dims.extent(operand.len, "an operand's length")?,
                    });
                }
                (KOp::Contract { b, b_access, .. }, Node::Contract { x }) => {
                    let dtype = self.vals[x as usize].dtype;
                    if layout::acc_dtype(dtype).is_none() {
                        return Err(Fault::Unsupported { value: i, what: "a matrix product of bool" });
                    }
                    let b_access = self.access(b_access, v, i64::from(dtype.size()), dims)?;
                    self.contract = Some(Contract { value: v, b: *b as u16, b_access, dtype });
                }
                _ => {}
            }
        }
        for i in 0..self.stores.len() {
            let s = self.stores[i];
            let size = self.vals[s.value as usize].size() as i64;
            let access = &kernel.stores[s.access as usize].access;
            self.stores[i].access = self.access(access, kernel.body.len() as u32, size, dims)?;
        }
        Ok(())
    }

    fn access(&mut self, a: &Access, owner: u32, size: i64, dims: Values<'_>) -> Result<u32, Fault> {
        let offset =
            dims.get(a.offset, "an offset")?.checked_mul(size).ok_or(Fault::TooLarge("an offset"))?;
        self.offsets.push(offset);
        self.owners.push((owner, size));
        for &axis in &self.kept {
            let s = dims.get(a.strides[usize::from(axis)], "a stride")?;
            self.raw.push(s);
        }
        Ok(self.offsets.len() as u32 - 1)
    }

    /// Joins adjacent axes that every access and every reduction treats alike.
    fn fold(&mut self, kernel: &Kernel) {
        // Rows and columns of products that are there.
        let matrix = match (&self.contract, &self.product) {
            (None, None) => 0,
            _ => kernel.matrix_axes(),
        };
        let n = self.kept.len();
        let mut inner: SmallVec<[u8; MAX_AXES]> = SmallVec::new();
        for j in 0..n {
            let axis = usize::from(self.kept[j]);
            let extent = self.extents[axis];
            let joins = j > 0 && j + matrix.saturating_sub(1) < n && {
                let before = usize::from(self.kept[j - 1]);
                let alike = self.raw.chunks_exact(n).all(|row| {
                    i64::try_from(extent).ok().and_then(|e| row[j].checked_mul(e)) == Some(row[j - 1])
                });
                alike
                    && kernel.body.iter().zip(&self.vals).all(|(inst, val)| match (&inst.op, val.node) {
                        (KOp::Reduce(_, _, axes), Node::Reduce { .. }) => axes.has(before) == axes.has(axis),
                        (KOp::ArgReduce { axis: a, .. }, Node::ArgReduce { .. })
                        | (KOp::CumSum { axis: a, .. }, Node::CumSum { .. }) => {
                            usize::from(*a) != before && usize::from(*a) != axis
                        }
                        _ => true,
                    })
            };
            match self.folds.last_mut() {
                Some(f) if joins && f.n.checked_mul(extent).is_some() => {
                    f.n *= extent;
                    if let Some(i) = inner.last_mut() {
                        *i = j as u8;
                    }
                }
                _ => {
                    let fold = Fold { n: extent, tile: 1, tail: 1, count: 1, extent: NONE, walked: false };
                    self.folds.push(fold);
                    inner.push(j as u8);
                }
            }
        }
        // A fold's stride is that of its innermost axis. Overflow is found by `finish`.
        for row in self.raw.chunks_exact(n.max(1)) {
            self.strides.extend(inner.iter().map(|&j| row[usize::from(j)]));
        }
        for f in &mut self.folds {
            f.cut(f.n);
        }
        // `kept` now maps position to fold.
        let mut fold = 0;
        for (j, axis) in self.kept.iter().enumerate() {
            self.extents[usize::from(*axis)] = fold;
            if usize::from(inner[fold as usize]) == j {
                fold += 1;
            }
        }
    }

    /// Folds of a set of axes. Valid after `fold`, which leaves each kept axis' fold in `extents`.
    fn folds_of(&self, axes: AxisSet) -> Mask {
        self.kept
            .iter()
            .filter(|&&a| axes.has(usize::from(a)))
            .fold(0, |m, &a| m | 1 << self.extents[usize::from(a)])
    }

    /// Byte strides, masks, and which folds a single core must walk.
    fn finish(&mut self, kernel: &Kernel) -> Result<(), Fault> {
        let n = self.folds.len();
        for (a, &(_, size)) in self.owners.iter().enumerate() {
            for (s, f) in self.strides[a * n..].iter_mut().zip(&self.folds) {
                let span = s.checked_mul(size).filter(|s| {
                    i64::try_from(f.n)
                        .ok()
                        .and_then(|n| s.checked_mul(n))
                        .is_some_and(|v| v.unsigned_abs() < 1 << 56)
                });
                *s = span.ok_or(Fault::TooLarge("a stride"))?;
            }
        }
        let mut walked = 0;
        for i in 0..self.vals.len() {
            let of = |v: u32| self.vals[v as usize].mask;
            let declared = || self.folds_of(self.vals[i].axes);
            let (node, mask) = match self.vals[i].node {
                node @ (Node::Dead | Node::Imm(_)) => (node, 0),
                node @ (Node::Load { access, .. } | Node::Iota { access }) => {
                    (node, self.moving(access) & declared())
                }
                node @ Node::Gather { access, index, .. } => {
                    (node, of(index) | (self.moving(access) & declared()))
                }
                node @ (Node::Alias(x) | Node::Unary(_, x, _) | Node::Cast(x)) => (node, of(x)),
                node @ Node::Binary(_, a, b, _) => (node, of(a) | of(b)),
                node @ Node::Ternary(_, [a, b, c]) => (node, of(a) | of(b) | of(c)),
                Node::Reduce { op, x, totals, .. } => {
                    let KOp::Reduce(_, _, axes) = kernel.body[i].op else { continue };
                    let over = self.folds_of(axes);
                    walked |= over;
                    (Node::Reduce { op, x, over, totals }, of(x) & !over)
                }
                Node::ArgReduce { op, x, last, .. } => {
                    let KOp::ArgReduce { axis, .. } = kernel.body[i].op else { continue };
                    let fold = self.extents[usize::from(axis)] as u8;
                    walked |= 1 << fold;
                    (Node::ArgReduce { op, x, fold, last }, of(x) & !(1 << fold))
                }
                Node::CumSum { x, exclusive, reverse, .. } => {
                    let KOp::CumSum { axis, .. } = kernel.body[i].op else { continue };
                    let fold = self.extents[usize::from(axis)] as u8;
                    walked |= 1 << fold;
                    (Node::CumSum { x, fold, exclusive, reverse }, of(x) | 1 << fold)
                }
                Node::MatMul => (Node::MatMul, declared() & self.select(|f| f.n > 1)),
                Node::Contract { x } => {
                    let summed = AxisSet::one(kernel.axes.len() - 2);
                    walked |= self.folds_of(summed);
                    (Node::Contract { x }, declared() & self.select(|f| f.n > 1))
                }
            };
            self.vals[i].node = node;
            self.vals[i].mask = mask;
        }
        // A fold that a store lacks is walked by one core, so that the store happens once.
        for i in 0..self.stores.len() {
            let s = self.stores[i];
            let mask = self.moving(s.access);
            self.stores[i].mask = mask;
            if self.vals[s.value as usize].mask & !mask != 0 {
                return Err(Fault::Malformed {
                    value: s.value as usize,
                    what: "its store lacks an axis it varies along",
                });
            }
            walked |= self.select(|_| true) & !mask;
        }
        // Stores of one element touch one place whatever the strides are.
        for (i, f) in self.folds.iter_mut().enumerate() {
            f.walked = walked >> i & 1 == 1 && f.n > 1;
        }
        Ok(())
    }

    /// Folds along which an access moves.
    fn moving(&self, access: u32) -> Mask {
        self.strides(access)
            .iter()
            .zip(&self.folds)
            .enumerate()
            .fold(0, |m, (i, (&s, f))| m | Mask::from(s != 0 && f.n > 1) << i)
    }
}
