//! Tiles and code of two products with whole rows between them: attention.
//!
//! A tile is a block of rows (m0) of one batch. The first product gives its m0 x k rows (as many columns as there are keys), the
//! vector part (scale, mask, softmax) works on them in vector memory as it does in a kernel of its own, and the result is
//! packed as the left operand of the second product. Rows are never cut, so nothing is rescaled, and every value has the bits
//! that three kernels would give it.
//!
//! The right operands are the same for all blocks of a batch. Either each tile packs them (*spread*: blocks of rows are parallel
//! extents), or one tile walks all blocks of a batch and packs them once before the walk (*held*), where they fit local memory.

use dvm_bc::{
    AccToUb, DType, Hints, Init, LoadA, LoadB, MAX_PARALLEL, Mmad, Opcode, PackA, Place, Size,
    Space as Memory, layout,
};
use dvm_npu::MachineSpec;
use smallvec::SmallVec;

use crate::cost::Model;
use crate::cube::{Blocks, Product, block};
use crate::emit::Emit;
use crate::error::Fault;
use crate::space::{Node, Space};
use crate::{tile, vector};

/// Longest block of the first product's k.
const K_BLOCK: u64 = 512;
/// Numbers of blocks of rows that are tried, as multiples of the panel height when they are the most.
const PARTS: [u64; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// The product of a computed left operand. The last three folds are then its rows, what is summed, and its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contract {
    /// Its value.
    pub(crate) value: u32,
    pub(crate) b: u16,
    pub(crate) b_access: u32,
    /// Dtype of the operands.
    pub(crate) dtype: DType,
}

/// A candidate and its predicted time.
#[derive(Clone, Copy)]
struct Choice {
    ns: f64,
    m0: u64,
    held: bool,
    /// Time of packing right operands again that a batch's tiles have packed already.
    again: f64,
}

/// Sizes of the two products, and what of them is limited by what.
struct Search<'a> {
    spec: &'a MachineSpec,
    model: &'a Model,
    /// Rows, columns of the first product, its k, columns of the second.
    m: u64,
    n: u64,
    k: u64,
    d: u64,
    k0: u64,
    dtypes: [DType; 2],
}

/// Whether a kernel of two products fits, and whether its parts would be as fast.
pub(crate) struct Fit {
    pub(crate) blocks: Blocks,
    /// Packing again costs more than what lies between the products would cost in memory.
    pub(crate) slow: bool,
}

/// Picks the block of rows and how the right operands are held.
pub(crate) fn choose(
    sp: &mut Space,
    p: &Product,
    c: &Contract,
    model: &Model,
    spec: &MachineSpec,
    limit: u64,
) -> Result<Fit, Fault> {
    let unfit = |what| Err(Fault::Unsupported { value: c.value as usize, what });
    if spec.target.separate_cube() {
        return unfit("a product of what vector cores computed, on a machine with cube cores of their own");
    }
    let Some(mi) = sp.folds.len().checked_sub(3) else { return unfit("a contraction without its axes") };
    // An attempt before this one may have walked the rows.
    if std::mem::take(&mut sp.held) {
        sp.folds[mi].walked = false;
    }
    if sp.folds[..=mi].iter().any(|f| f.walked) {
        return unfit("two products beside a reduction over other axes than the columns of the first");
    }
    if mi + 1 > MAX_PARALLEL {
        return Err(Fault::Extents { what: "batch", found: mi, most: MAX_PARALLEL - 1 });
    }
    for f in &mut sp.folds[..mi] {
        f.cut(1);
    }
    for f in &mut sp.folds[mi + 1..] {
        f.cut(f.n);
    }
    let batch = sp.folds[..mi].iter().fold(1u64, |b, f| b.saturating_mul(f.count));
    let pieces = p.k.div_ceil(K_BLOCK);
    let k0 = p.k.div_ceil(pieces).next_multiple_of(8).min(p.k);
    let mut s = Search {
        spec,
        model,
        m: sp.folds[mi].n,
        n: sp.folds[mi + 1].n,
        d: sp.folds[mi + 2].n,
        k: p.k,
        k0,
        dtypes: [p.dtype, c.dtype],
    };
    // Shorter blocks of k make room for more columns.
    while s.k0 > 8 && s.right()[1] > spec.target.capacity(Memory::PanelB) {
        s.k0 = (s.k0 / 2).next_multiple_of(8);
    }
    let k0 = s.k0;
    let (mr, cores) = (u64::from(spec.target.panel_mr), u64::from(spec.target.cores).max(1));
    let (mut best, mut last, mut lack): (Option<Choice>, _, _) = (None, 0, None);
    let most = PARTS.len() + 2;
    for i in 0..most {
        let m0 = match PARTS.get(i) {
            Some(&parts) => block(s.m, parts, mr),
            None if i + 1 < most => mr.min(s.m),
            None => 1,
        };
        if m0 == last {
            continue;
        }
        last = m0;
        sp.folds[mi].cut(m0);
        if let Err(fault) = s.fits(sp, m0, limit) {
            lack = Some(fault);
            continue;
        }
        let (packing, products) = (s.packing_ns(), s.products_ns(m0));
        let costs = &spec.costs;
        let count = s.m.div_ceil(m0);
        for held in [false, true] {
            if held && (count < 2 || !s.holds()) {
                continue;
            }
            let tiles = if held { batch } else { batch.saturating_mul(count) };
            let cost = model.tile_ns(sp, costs, tiles.min(cores) as f64);
            let rows = products + cost.dma.max(cost.vector);
            let waves = tiles.div_ceil(cores) as f64;
            let each = if held { count as f64 } else { 1.0 };
            let ns = waves * (costs.tile_ns + packing + each * rows);
            if best.is_none_or(|b| ns < b.ns) {
                let again = if held { 0.0 } else { (count - 1) as f64 * packing };
                best = Some(Choice { ns, m0, held, again });
            }
        }
    }
    let Some(Choice { m0, held, again, .. }) = best else {
        return Err(lack.unwrap_or(Fault::TooLarge("the rows between two products")));
    };
    let rows = &mut sp.folds[mi];
    rows.cut(m0);
    rows.walked = held;
    let assigned = tile::assign_extents(sp);
    sp.held = held;
    assigned?;
    let k_count =
        u32::try_from(p.k.div_ceil(k0)).map_err(|_| Fault::TooLarge("the number of blocks of k"))?;
    let k_tail = (p.k - k0 * (u64::from(k_count) - 1)) as u32;
    // In parts, the scores and what is made of them are stored and loaded.
    let between = 4.0 * s.m as f64 * s.n as f64 * f64::from(p.dtype.size());
    let slow = again > between / spec.costs.dma.core_rate;
    Ok(Fit { blocks: Blocks { k0: k0 as u32, k_tail, k_count, split: None, pack: None }, slow })
}

impl Search<'_> {
    /// Bytes of all right operands, and of the blocks of k that are packed at one time.
    fn right(&self) -> [u64; 2] {
        let t = &self.spec.target;
        let bytes = |i: usize, k: u64, n: u64| {
            let dtype = self.dtypes[i];
            let nr = u64::from(t.nr(dtype.size()));
            let elems = k.saturating_mul(n.next_multiple_of(nr));
            elems.saturating_mul(u64::from(layout::panel_elem_bytes(dtype))).next_multiple_of(t.block.into())
        };
        let tail = if self.k.is_multiple_of(self.k0) { 0 } else { self.k % self.k0 };
        let second = bytes(1, self.n, self.d);
        let now = bytes(0, self.k0, self.n).saturating_add(bytes(0, tail, self.n));
        let blocks = bytes(0, self.k0, self.n).saturating_mul(self.k / self.k0);
        [blocks.saturating_add(bytes(0, tail, self.n)).saturating_add(second), now.saturating_add(second)]
    }
    /// Whether all right operands fit at once.
    fn holds(&self) -> bool {
        self.right()[0] <= self.spec.target.capacity(Memory::PanelB)
    }
    fn fits(&self, sp: &Space, m0: u64, limit: u64) -> Result<(), Fault> {
        let t = &self.spec.target;
        let (mr, block) = (u64::from(t.panel_mr), u64::from(t.block));
        let panel = |i: usize, k: u64| {
            let elem = u64::from(layout::panel_elem_bytes(self.dtypes[i]));
            m0.next_multiple_of(mr).saturating_mul(k).saturating_mul(elem).next_multiple_of(block)
        };
        let tail = if self.k.is_multiple_of(self.k0) { 0 } else { self.k % self.k0 };
        let left = panel(0, self.k0).saturating_add(panel(0, tail)).saturating_add(panel(1, self.n));
        let acc = |i: usize, n: u64| {
            layout::acc_bytes(self.dtypes[i], 1, 1)
                .saturating_mul(m0)
                .saturating_mul(n)
                .next_multiple_of(block)
        };
        let needs = [
            (Memory::PanelA, left),
            (Memory::PanelB, self.right()[1]),
            (Memory::Acc, acc(0, self.n).max(acc(1, self.d))),
        ];
        for (space, needs) in needs {
            let has = t.capacity(space);
            if needs > has {
                return Err(Fault::Memory { space, needs, has });
            }
        }
        let needs = self.model.peak(sp);
        if needs > limit { Err(Fault::Memory { space: Memory::Ub, needs, has: limit }) } else { Ok(()) }
    }
    /// Time of packing the right operands once.
    fn packing_ns(&self) -> f64 {
        let bytes = |i: usize, k: u64| (k * u64::from(self.dtypes[i].size())) as f64;
        (bytes(0, self.k) * self.n as f64 + bytes(1, self.n) * self.d as f64) / self.spec.costs.cube.pack_rate
    }
    /// Time of both products of a block of rows.
    fn products_ns(&self, m0: u64) -> f64 {
        let cube = &self.spec.costs.cube;
        let first = cube.ns(self.dtypes[0], m0 as u32, self.n as u32, self.k as u32);
        first + cube.ns(self.dtypes[1], m0 as u32, self.d as u32, self.n as u32)
    }
}

/// Emits both products and what lies between and behind them.
pub(crate) fn emit(
    e: &mut Emit<'_>,
    p: &Product,
    c: &Contract,
    b: &Blocks,
    spec: &MachineSpec,
) -> Result<(), Fault> {
    let sp = e.sp;
    let mi = sp.folds.len() - 3;
    let rows = &sp.folds[mi];
    let m =
        if rows.ragged() { Size::ragged(rows.tile, rows.tail, rows.extent) } else { Size::fixed(rows.tile) };
    let [n, d] = [mi + 1, mi + 2].map(|f| Size::fixed(sp.folds[f].tile));
    let mut r = Right { p, c, b, n, d, spec, first: SmallVec::new(), second: None };
    if sp.held {
        e.begin(0, Place::Init(0));
        for i in 0..b.k_count {
            let buf = r.new_first(e, i);
            r.load_first(e, i, buf);
            r.first.push(buf);
        }
        r.load_second(e);
        e.end(false);
    }
    e.begin(0, Place::Body);
    for v in 0..sp.vals.len() as u32 {
        let val = &sp.vals[v as usize];
        let acc = match val.node {
            Node::MatMul => first(e, &mut r, m)?,
            Node::Contract { x } => second(e, &mut r, x, m)?,
            _ => {
                vector::whole(e, v)?;
                vector::stores(e, v, |_| true)?;
                continue;
            }
        };
        let (cols, from) = if matches!(val.node, Node::MatMul) { (n, p.dtype) } else { (d, c.dtype) };
        let from = layout::acc_dtype(from).unwrap_or(from);
        let acc = e.local(acc);
        let buf = e.tile_buf(val.mask, val.dtype);
        let dst = e.local(buf);
        e.push(v, Opcode::AccToUb, val.dtype, AccToUb { dst, acc, from, m, n: cols });
        e.place_value(v, buf);
        vector::stores(e, v, |_| true)?;
    }
    e.end(true);
    // Each panel buffer has its place for the whole template.
    let end = e.here().saturating_sub(1);
    for buf in e.out.bufs.iter_mut().filter(|b| matches!(b.space, Memory::PanelA | Memory::PanelB)) {
        (buf.first, buf.last) = (0, end);
    }
    Ok(())
}

/// The right operands.
struct Right<'a> {
    p: &'a Product,
    c: &'a Contract,
    b: &'a Blocks,
    n: Size,
    d: Size,
    spec: &'a MachineSpec,
    /// Buffers of the blocks of the first, of all or of those of different size.
    first: SmallVec<[u32; 4]>,
    second: Option<u32>,
}

impl Right<'_> {
    /// Size of a block of the first product's k.
    fn k(&self, i: u32) -> Size {
        Size::fixed(if i + 1 == self.b.k_count { self.b.k_tail } else { self.b.k0 })
    }
    fn new_first(&self, e: &mut Emit<'_>, i: u32) -> u32 {
        let bytes = layout::panel_b_bytes(&self.spec.target, self.p.dtype, self.k(i).body, self.n.body);
        e.buf(bytes, self.p.dtype.size(), Memory::PanelB)
    }
    fn load_first(&self, e: &mut Emit<'_>, i: u32, buf: u32) {
        let (p, sp) = (self.p, e.sp);
        let mut src = sp.mem(p.b, p.b_access);
        src.offset = src.offset.saturating_add(p.b_k.saturating_mul(i64::from(i) * i64::from(self.b.k0)));
        let col_stride = sp.strides(p.b_access)[sp.folds.len() - 2];
        let dst = e.local(buf);
        let hints = Hints::default();
        let o = LoadB { dst, src, k: self.k(i), n: self.n, row_stride: p.b_k, col_stride, hints };
        e.push(0, Opcode::LoadB, p.dtype, o);
    }
    /// The block of the first right operand, packed here or before.
    fn block(&mut self, e: &mut Emit<'_>, i: u32) -> u32 {
        if e.sp.held {
            return self.first[i as usize];
        }
        // Blocks of one size follow each other in one buffer.
        let buf = match self.first.last() {
            Some(&buf) if i > 0 && self.k(i) == self.k(i - 1) => buf,
            _ => {
                let buf = self.new_first(e, i);
                self.first.push(buf);
                buf
            }
        };
        self.load_first(e, i, buf);
        buf
    }
    fn load_second(&mut self, e: &mut Emit<'_>) -> u32 {
        if let Some(buf) = self.second {
            return buf;
        }
        let (c, sp) = (self.c, e.sp);
        let bytes = layout::panel_b_bytes(&self.spec.target, c.dtype, self.n.body, self.d.body);
        let buf = e.buf(bytes, c.dtype.size(), Memory::PanelB);
        let strides = sp.strides(c.b_access);
        let [row_stride, col_stride] = [sp.folds.len() - 2, sp.folds.len() - 1].map(|f| strides[f]);
        let (src, dst, hints) = (sp.mem(c.b, c.b_access), e.local(buf), Hints::default());
        let o = LoadB { dst, src, k: self.n, n: self.d, row_stride, col_stride, hints };
        e.push(c.value, Opcode::LoadB, c.dtype, o);
        self.second = Some(buf);
        buf
    }
}

/// The first product; returns its accumulators.
fn first(e: &mut Emit<'_>, r: &mut Right<'_>, m: Size) -> Result<u32, Fault> {
    let (p, sp) = (r.p, e.sp);
    let row_stride = sp.strides(p.a_access)[sp.folds.len() - 3];
    let mut left: Option<(u32, Size)> = None;
    let mut acc_buf = None;
    for i in 0..r.b.k_count {
        let k = r.k(i);
        let a_buf = match left {
            Some((buf, size)) if size == k => buf,
            _ => {
                let bytes = layout::panel_a_bytes(&r.spec.target, p.dtype, m.body, k.body);
                e.buf(bytes, p.dtype.size(), Memory::PanelA)
            }
        };
        left = Some((a_buf, k));
        let mut src = sp.mem(p.a, p.a_access);
        src.offset = src.offset.saturating_add(p.a_k.saturating_mul(i64::from(i) * i64::from(r.b.k0)));
        let dst = e.local(a_buf);
        let o = LoadA { dst, src, m, k, row_stride, col_stride: p.a_k, hints: Hints::default() };
        e.push(0, Opcode::LoadA, p.dtype, o);
        let b_buf = r.block(e, i);
        let bytes = layout::acc_bytes(p.dtype, m.body, r.n.body);
        let size = layout::acc_bytes(p.dtype, 1, 1) as u32;
        let acc_buf = *acc_buf.get_or_insert_with(|| e.buf(bytes, size, Memory::Acc));
        let (acc, a, b) = (e.local(acc_buf), e.local(a_buf), e.local(b_buf));
        let init = if i == 0 { Init::Always } else { Init::Accumulate };
        e.push(0, Opcode::Mmad, p.dtype, Mmad { acc, a, b, m, n: r.n, k, init });
    }
    acc_buf.ok_or(Fault::TooLarge("the number of blocks of k"))
}

/// The second product, of rows in vector memory; returns its accumulators.
fn second(e: &mut Emit<'_>, r: &mut Right<'_>, x: u32, m: Size) -> Result<u32, Fault> {
    let (c, sp) = (r.c, e.sp);
    let b_buf = r.load_second(e);
    let mi = sp.folds.len() - 3;
    let rows = e.tile(x, (sp.vals[x as usize].mask) | 1 << mi | 1 << (mi + 1))?;
    let bytes = layout::panel_a_bytes(&r.spec.target, c.dtype, m.body, r.n.body);
    let a_buf = e.buf(bytes, c.dtype.size(), Memory::PanelA);
    let (src, dst) = (e.local(rows), e.local(a_buf));
    let o = PackA { dst, src, m, k: r.n, pitch: r.n.body.into() };
    e.push(c.value, Opcode::PackA, c.dtype, o);
    let bytes = layout::acc_bytes(c.dtype, m.body, r.d.body);
    let acc_buf = e.buf(bytes, layout::acc_bytes(c.dtype, 1, 1) as u32, Memory::Acc);
    let (acc, a, b) = (e.local(acc_buf), e.local(a_buf), e.local(b_buf));
    e.push(c.value, Opcode::Mmad, c.dtype, Mmad { acc, a, b, m, n: r.d, k: r.n, init: Init::Always });
    Ok(acc_buf)
}
