//! Tiles and code of matrix products.
//!
//! Parallel extents are the batch folds, then blocks of rows (m0) and of columns (n0); the walk is over blocks of k (k0). The
//! product accumulates over the walk, then the epilogue runs once on the m0 x n0 tile as vector code.
//! A constant right operand is bound in panels instead of loaded.
//!
//! Where pipes are asynchronous a block of k is two pieces in panels of their own: one is loaded while the other is multiplied.

use dvm_bc::layout::Matrices;
use dvm_bc::{
    AccStore, AccToUb, BindB, Cross, DType, Exchange, Hints, Init, Load, LoadA, LoadB, MAX_PARALLEL, Mem,
    Mmad, Opcode, Pipe, Place, Size, Space as Memory, Strides, layout,
};
use dvm_npu::MachineSpec;
use smallvec::{SmallVec, smallvec};

use crate::cost::Model;
use crate::emit::Emit;
use crate::error::Fault;
use crate::report::Candidate;
use crate::space::{Node, Space, Stored, Val};
use crate::{tile, vector};

/// Longest block of k that is preferred: one panel of the right operand then stays in the first-level cache.
const K_BLOCK: u64 = 512;
/// Products of at most this many k are never split along k.
const K_WHOLE: u64 = 768;
/// Pieces of m and n that are tried, as multiples of the least number.
const PARTS: [u64; 6] = [1, 2, 3, 4, 6, 8];

/// How a constant right operand is packed once into [`dvm_bc::Layout::Panels`], by [`layout::pack_panels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Where its matrices are in the constant.
    pub matrices: Matrices,
    /// Panel width.
    pub nr: u32,
}

impl Pack {
    /// Bytes of the packed form of elements of `elem` bytes, `None` on overflow.
    #[must_use]
    pub fn bytes(&self, elem: u32) -> Option<u64> {
        let Matrices { batch, k, n, .. } = self.matrices;
        layout::panels_bytes(elem, batch, k, n, self.nr)
    }
}

/// The matrix product of a cube kernel. Its folds are (batch.., m, n).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) a: u16,
    pub(crate) a_access: u32,
    /// Bytes along k.
    pub(crate) a_k: i64,
    pub(crate) b: u16,
    pub(crate) b_access: u32,
    pub(crate) b_k: i64,
    pub(crate) k: u64,
    /// Dtype of the operands.
    pub(crate) dtype: DType,
    /// Right operand may be packed once.
    pub(crate) packable: bool,
    /// Elements of the right operand's buffer.
    pub(crate) b_len: u64,
}

/// Blocks of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Block of k, the last one, and their number.
    pub(crate) k0: u32,
    pub(crate) k_tail: u32,
    pub(crate) k_count: u32,
    /// Where a block of k is two pieces with panels of their own: the first. One is loaded while the other is multiplied.
    pub(crate) split: Option<u32>,
    pub(crate) pack: Option<Pack>,
}

/// How the right operand can be packed, if it may and its address is a stack of matrices.
fn pack(sp: &Space, p: &Product, spec: &MachineSpec) -> Option<Pack> {
    let plain =
        |v: &Val| matches!(v.node, Node::Load { slot, .. } | Node::Gather { slot, .. } if slot == p.b);
    if !p.packable || p.a == p.b || sp.vals.iter().any(plain) {
        return None;
    }
    let size = i64::from(p.dtype.size());
    let (n_fold, batch) = sp.folds.split_last()?;
    let strides = sp.strides(p.b_access);
    let matrix = i64::try_from(p.k.checked_mul(n_fold.n)?).ok()?.checked_mul(size)?;
    let offset = sp.offsets[p.b_access as usize];
    let moving = batch.iter().zip(strides).filter(|(f, s)| f.n > 1 && **s != 0);
    let stacked = moving.clone().count() > 0;
    let whole = moving.map(|(_, s)| *s).all(|s| s % matrix == 0 && s > 0);
    if stacked && !(whole && offset == 0 && p.b_len.is_multiple_of(p.k * n_fold.n)) {
        return None;
    }
    let (k, n) = (p.k, n_fold.n);
    // A constant that repeats itself is smaller plain.
    if k.checked_mul(n).is_none_or(|kn| kn > p.b_len) {
        return None;
    }
    let matrices = Matrices {
        offset: u64::try_from(offset / size).ok()?,
        batch: if stacked { p.b_len / (k * n) } else { 1 },
        k,
        n,
        batch_stride: matrix / size,
        row_stride: p.b_k / size,
        col_stride: strides[sp.folds.len() - 1] / size,
    };
    Some(Pack { matrices, nr: spec.target.nr(p.dtype.size()) })
}

/// Picks the blocks of a product and the tiles of the folds.
pub(crate) fn choose(
    sp: &mut Space,
    p: &Product,
    model: &Model,
    spec: &MachineSpec,
    limit: u64,
    ask: &mut tile::Ask,
) -> Result<Blocks, Fault> {
    let what = "a matrix product beside a reduction, or a store that leaves out one of its axes";
    if sp.folds.len() < 2 || sp.folds.iter().any(|f| f.walked) {
        return Err(Fault::Unsupported { value: 0, what });
    }
    let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
    if mi + 2 > MAX_PARALLEL {
        return Err(Fault::Extents { what: "batch", found: mi, most: MAX_PARALLEL - 2 });
    }
    for f in &mut sp.folds[..mi] {
        f.cut(1);
    }
    let pack = pack(sp, p, spec);
    let target = &spec.target;
    let bound = pack.is_some() && !target.async_pipes;
    let batch = sp.folds[..mi].iter().fold(1u64, |b, f| b.saturating_mul(f.count));
    let (m, n) = (sp.folds[mi].n, sp.folds[ni].n);
    let mut search = Search {
        p,
        model,
        spec,
        limit,
        bound,
        size: [batch, m, n],
        elem: u64::from(layout::panel_elem_bytes(p.dtype)),
        panel: [u64::from(target.panel_mr), u64::from(target.nr(p.dtype.size()))],
        best: None,
        lack: None,
        trace: ask.trace.as_mut(),
    };
    if let Some(f) = &ask.forced {
        let tile = |i: usize| u64::from(f.tiles.get(i).copied().unwrap_or(u32::MAX));
        search.best = search.forced(sp, [tile(mi), tile(ni), u64::from(f.k0)]);
        let choice = search.best.ok_or(Fault::TooLarge("the tile asked for"))?;
        return blocks(sp, p, spec, choice, pack);
    }
    let most = search.most_k()?;
    let prefer = if p.k <= K_WHOLE || (m <= search.panel[0] && bound) { p.k } else { K_BLOCK };
    let mut last = 0;
    // Shorter blocks of k make room for more rows and columns, which matters where both operands are loaded.
    for cut in [1, 2, 4, 8] {
        let most = most.min(prefer);
        let k0 = p.k.div_ceil(p.k.div_ceil(most) * cut).next_multiple_of(8).min(most).min(p.k);
        if k0 == last {
            continue;
        }
        last = k0;
        search.at_k(sp, k0);
        if bound || search.roomy(k0) {
            break;
        }
    }
    let Some(choice) = search.best else {
        return Err(search.lack.unwrap_or(Fault::TooLarge("a matrix product's tile")));
    };
    blocks(sp, p, spec, choice, pack)
}

/// Cuts the folds as chosen.
fn blocks(
    sp: &mut Space,
    p: &Product,
    spec: &MachineSpec,
    choice: Choice,
    pack: Option<Pack>,
) -> Result<Blocks, Fault> {
    let target = &spec.target;
    let Choice { m0, n0, k0, .. } = choice;
    let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
    sp.folds[mi].cut(m0);
    sp.folds[ni].cut(n0);
    tile::assign_extents(sp)?;
    let k_count = p.k.div_ceil(k0);
    let granule = u64::from(spec.costs.cube.granule[2]).max(1);
    // Blocks of one size leave no short last one.
    let even = p.k.div_ceil(k_count).next_multiple_of(2 * granule);
    let k0 = if target.async_pipes && even <= k0 { even } else { k0 };
    let first = (k0 / 2).next_multiple_of(granule);
    let split = target.async_pipes && target.events > 1 && first < k0 && first < p.k - k0 * (k_count - 1);
    let k_tail = p.k - k0 * (k_count - 1);
    let k_count = u32::try_from(k_count).map_err(|_| Fault::TooLarge("the number of blocks of k"))?;
    let split = split.then_some(first as u32);
    Ok(Blocks { k0: k0 as u32, k_tail: k_tail as u32, k_count, split, pack })
}

/// A candidate and its predicted time.
#[derive(Clone, Copy, Debug)]
struct Choice {
    ns: f64,
    m0: u64,
    n0: u64,
    k0: u64,
}

/// The search for the fastest blocks.
struct Search<'a> {
    p: &'a Product,
    model: &'a Model,
    spec: &'a MachineSpec,
    limit: u64,
    /// The right operand is read where it is.
    bound: bool,
    /// Batch, m, n.
    size: [u64; 3],
    /// Bytes of an element in a panel.
    elem: u64,
    /// Height and width of panels.
    panel: [u64; 2],
    best: Option<Choice>,
    /// What did not fit.
    lack: Option<Fault>,
    trace: Option<&'a mut Vec<Candidate>>,
}

impl Search<'_> {
    /// The tile that is asked for, in whole panels, if it fits.
    fn forced(&self, sp: &mut Space, [m0, n0, k0]: [u64; 3]) -> Option<Choice> {
        let [_, m, n] = self.size;
        let [mr, nr] = self.panel;
        let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
        let m0 = m0.max(1).next_multiple_of(mr).min(m);
        let n0 = n0.max(1).next_multiple_of(nr).min(n);
        let k0 = k0.clamp(1, self.p.k);
        let fits = |space, count: u64, panel| {
            count.next_multiple_of(panel).saturating_mul(k0 * self.elem) <= self.capacity(space)
        };
        let acc = layout::acc_bytes(self.p.dtype, 1, 1).saturating_mul(m0 * n0);
        sp.folds[mi].cut(m0);
        sp.folds[ni].cut(n0);
        let fits = fits(Memory::PanelA, m0, mr)
            && (self.bound || fits(Memory::PanelB, n0, nr))
            && acc <= self.capacity(Memory::Acc)
            && self.model.peak(sp) <= self.limit;
        fits.then_some(Choice { ns: 0.0, m0, n0, k0 })
    }

    fn capacity(&self, space: Memory) -> u64 {
        self.spec.target.capacity(space)
    }

    /// Largest block of k of which a panel of each operand fits.
    fn most_k(&self) -> Result<u64, Fault> {
        let fit = |space, width: u64| match self.capacity(space) / (width * self.elem) {
            0 => Err(Fault::Memory { space, needs: width * self.elem, has: self.capacity(space) }),
            k => Ok(k),
        };
        let [mr, nr] = self.panel;
        let a = fit(Memory::PanelA, mr)?;
        if self.bound { Ok(a) } else { Ok(a.min(fit(Memory::PanelB, nr)?)) }
    }

    /// Whether whole operands fit at this block of k.
    fn roomy(&self, k0: u64) -> bool {
        let [_, m, n] = self.size;
        let fits = |space, count: u64| count.saturating_mul(k0 * self.elem) <= self.capacity(space);
        fits(Memory::PanelA, m) && fits(Memory::PanelB, n)
    }

    /// Tries tiles of rows and columns at one block of k.
    fn at_k(&mut self, sp: &mut Space, k0: u64) {
        let [batch, m, n] = self.size;
        let [mr, nr] = self.panel;
        let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
        let acc_elem = layout::acc_bytes(self.p.dtype, 1, 1);
        let cap_acc = self.capacity(Memory::Acc);
        let strip = nr.min(n);
        let most_m = self.capacity(Memory::PanelA) / (k0 * self.elem) / mr * mr;
        let most_m = most_m.min(cap_acc / (acc_elem * strip));
        if most_m < mr.min(m) {
            let needs = mr.min(m) * strip * acc_elem;
            self.lack.get_or_insert(Fault::Memory { space: Memory::Acc, needs, has: cap_acc });
            return;
        }
        let most_m = if most_m < mr { most_m } else { most_m / mr * mr };
        let cores = u64::from(self.spec.costs.cube.cores.min(self.spec.target.cores)).max(1);
        let mut last_m0 = 0;
        for pm in PARTS.map(|x| x * m.div_ceil(most_m)) {
            let m0 = block(m, pm, mr);
            if m0 == last_m0 {
                continue;
            }
            last_m0 = m0;
            let tiles_m = batch.saturating_mul(m.div_ceil(m0));
            sp.folds[mi].cut(m0);
            sp.folds[ni].cut(strip);
            let ub = self.model.peak(sp);
            if ub > self.limit {
                self.lack = Some(Fault::Memory { space: Memory::Ub, needs: ub, has: self.limit });
                continue;
            }
            let mut most_n = (cap_acc / (m0 * acc_elem)).min(strip * (self.limit / ub.max(1)));
            if !self.bound {
                most_n = most_n.min(self.capacity(Memory::PanelB) / (k0 * self.elem) / nr * nr);
            }
            if most_n < strip {
                continue;
            }
            let most_n = if most_n < n { (most_n / nr * nr).max(1) } else { n };
            let least = n.div_ceil(most_n);
            let fill = cores.div_ceil(tiles_m);
            let mut last_n0 = 0;
            for pn in PARTS.map(|x| x * least).into_iter().chain([fill, 2 * fill]) {
                let n0 = block(n, pn, nr).min(most_n);
                if pn < least || n0 == last_n0 {
                    continue;
                }
                last_n0 = n0;
                let tiles = tiles_m.saturating_mul(n.div_ceil(n0));
                let waves = tiles.div_ceil(cores) as f64;
                // The product alone settles most candidates.
                let product = self.product_ns([m0, n0, k0]);
                if self.best.is_some_and(|b| waves * product >= b.ns) {
                    continue;
                }
                sp.folds[ni].cut(n0);
                if self.model.peak(sp) > self.limit {
                    continue;
                }
                let c = self.model.tile_ns(sp, &self.spec.costs, tiles.min(cores) as f64);
                let epilogue = c.dma.max(c.vector);
                let target = &self.spec.target;
                // Separate vector cores work on one tile while the cube core makes the next.
                let tile = if target.separate_cube() {
                    product.max(epilogue / f64::from(target.vec_per_cube().max(1)))
                } else {
                    product + epilogue
                };
                let ns = waves * tile;
                if let Some(trace) = &mut self.trace {
                    trace.push(Candidate {
                        tiles: sp.folds.iter().map(|f| f.tile).collect(),
                        k0: Some(k0 as u32),
                        count: tiles,
                        waves: waves as u64,
                        dma_ns: c.dma,
                        vector_ns: c.vector,
                        product_ns: product,
                        total_ns: ns,
                    });
                }
                if self.best.is_none_or(|b| ns < b.ns) {
                    self.best = Some(Choice { ns, m0, n0, k0 });
                }
            }
        }
    }

    /// Predicted time of one tile without its epilogue.
    fn product_ns(&self, [m0, n0, k0]: [u64; 3]) -> f64 {
        let costs = &self.spec.costs;
        let product = costs.cube.ns(self.p.dtype, m0 as u32, n0 as u32, k0 as u32);
        let a_ns = (m0 * k0 * self.elem) as f64 / costs.cube.pack_rate;
        let b_bytes = (k0 * n0 * u64::from(self.p.dtype.size())) as f64;
        let step = if self.bound {
            a_ns + product.max(b_bytes / costs.dma.core_rate)
        } else if self.spec.target.async_pipes {
            product.max(a_ns + b_bytes / costs.cube.pack_rate)
        } else {
            a_ns + product + b_bytes / costs.cube.pack_rate
        };
        costs.tile_ns + self.p.k.div_ceil(k0) as f64 * step
    }
}

/// `total` in `parts` pieces of whole panels.
pub(crate) fn block(total: u64, parts: u64, panel: u64) -> u64 {
    total.div_ceil(parts.max(1)).next_multiple_of(panel).min(total)
}

/// Emits the product and its epilogue as one phase.
///
/// `ring` is the slot through which tiles reach vector cores that share no local memory with the cube core.
pub(crate) fn emit(
    e: &mut Emit<'_>,
    p: &Product,
    b: &Blocks,
    spec: &MachineSpec,
    ring: u16,
) -> Result<(), Fault> {
    let sp = e.sp;
    let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
    let size = |f: usize| {
        let f = &sp.folds[f];
        if f.ragged() { Size::ragged(f.tile, f.tail, f.extent) } else { Size::fixed(f.tile) }
    };
    let (m, n) = (size(mi), size(ni));
    let walked = b.k_count > 1;
    let extent = sp.folds.iter().filter(|f| f.count > 1).count() as u8;
    // Pieces of a block of k: where they begin, how long they are.
    let piece = |from: u32, to: u32, tail: u32| {
        (from, if walked { Size::ragged(to - from, tail - from, extent) } else { Size::fixed(to - from) })
    };
    let pieces: SmallVec<[(u32, Size); 2]> = match b.split {
        Some(first) => smallvec![(0, Size::fixed(first)), piece(first, b.k0, b.k_tail)],
        None => smallvec![piece(0, b.k0, b.k_tail)],
    };
    let along_k = |mut mem: dvm_bc::Mem, from: u32, stride: i64| {
        mem.offset = mem.offset.saturating_add(stride.saturating_mul(i64::from(from)));
        if walked && stride != 0 {
            mem.strides.push((extent, stride.saturating_mul(i64::from(b.k0))));
        }
        mem
    };
    let dtype = p.dtype;
    let acc_dtype = layout::acc_dtype(dtype).unwrap_or(DType::F32);
    e.begin(0, Place::Body);
    let hints = Hints::default();
    let acc_buf = e.buf(layout::acc_bytes(dtype, m.body, n.body), acc_dtype.size(), Memory::Acc);
    let first = e.out.bufs.len();
    for (i, (from, k)) in pieces.into_iter().enumerate() {
        let bytes = layout::panel_a_bytes(&spec.target, dtype, m.body, k.body);
        let a_buf = e.buf(bytes, dtype.size(), Memory::PanelA);
        let src = along_k(sp.mem(p.a, p.a_access), from, p.a_k);
        let row_stride = sp.strides(p.a_access)[mi];
        let dst = e.local(a_buf);
        e.push(0, Opcode::LoadA, dtype, LoadA { dst, src, m, k, row_stride, col_stride: p.a_k, hints });

        let held = layout::panel_b_bytes(&spec.target, dtype, k.body, n.body);
        let bytes = if b.pack.is_some() && !spec.target.async_pipes { 1 } else { held };
        let b_buf = e.buf(bytes, dtype.size(), Memory::PanelB);
        let dst = e.local(b_buf);
        if let Some(pack) = &b.pack {
            let (mut src, panel_stride) = bind(sp, p, pack, b, walked.then_some(extent))?;
            src.offset += i64::from(from) * i64::from(pack.nr) * i64::from(dtype.size());
            e.push(0, Opcode::BindB, dtype, BindB { dst, src, k, n, panel_stride });
        } else {
            let src = along_k(sp.mem(p.b, p.b_access), from, p.b_k);
            let col_stride = sp.strides(p.b_access)[ni];
            e.push(0, Opcode::LoadB, dtype, LoadB { dst, src, k, n, row_stride: p.b_k, col_stride, hints });
        }

        let (acc, a, bb) = (e.local(acc_buf), e.local(a_buf), e.local(b_buf));
        let init = match i {
            0 if walked => Init::First,
            0 => Init::Always,
            _ => Init::Accumulate,
        };
        e.push(0, Opcode::Mmad, dtype, Mmad { acc, a, b: bb, m, n, k, init });
    }
    if b.split.is_some() {
        // The panels of one piece are not those of the other.
        let here = e.here();
        e.out.bufs[first..].iter_mut().for_each(|b| b.last = here);
    }
    if walked {
        e.end(true);
        e.begin(0, Place::Finish(0));
    }
    let separate = spec.target.separate_cube();
    if separate && let Some(stores) = plain_stores(sp) {
        e.out.cube_only = true;
        let (stores, relu) = stores;
        for s in stores {
            let (acc, dtype) = (e.local(acc_buf), sp.vals[0].dtype);
            let (dst, pitch) = (sp.mem(s.slot, s.access), row_pitch(sp, s.access, dtype));
            let o = AccStore { dst, acc, from: acc_dtype, m, n, pitch, relu, hints };
            e.push(s.value, Opcode::AccStore, dtype, o);
        }
        e.end(false);
        return Ok(());
    }
    let mut handed = None;
    for v in 0..sp.vals.len() as u32 {
        let val = &sp.vals[v as usize];
        if matches!(val.node, Node::MatMul) {
            let acc = e.local(acc_buf);
            let buf = e.tile_buf(val.mask, val.dtype);
            e.out.bufs[buf as usize].private = separate;
            match spec.target.exchange {
                Exchange::Memory if separate => {
                    let (acc, dtype) = (acc, val.dtype);
                    let pitch = i64::from(n.body) * i64::from(dtype.size());
                    let place = || Mem { slot: ring, offset: 0, strides: Strides::new() };
                    e.out.ring = u64::from(m.body) * pitch as u64;
                    e.out.bufs[buf as usize].ring = true;
                    let cross = |flag, pipe| Cross { flag, pipe };
                    e.push(v, Opcode::XWait, dtype, cross(FREE, Pipe::Fix));
                    let o = AccStore { dst: place(), acc, from: acc_dtype, m, n, pitch, relu: false, hints };
                    e.local(acc_buf);
                    e.push(v, Opcode::AccStore, dtype, o);
                    e.push(v, Opcode::XSet, dtype, cross(FULL, Pipe::Fix));
                    e.push(v, Opcode::XWait, dtype, cross(FULL, Pipe::Mte2));
                    let dst = e.local(buf);
                    e.push(
                        v,
                        Opcode::Load,
                        dtype,
                        Load { dst, src: place(), rows: m, cols: n, pitch, hints },
                    );
                    e.push(v, Opcode::XSet, dtype, cross(FREE, Pipe::Mte2));
                }
                Exchange::Direct if separate => {
                    e.push(v, Opcode::XWait, val.dtype, Cross { flag: FREE, pipe: Pipe::Fix });
                    let (acc, dst) = (e.local(acc_buf), e.local(buf));
                    e.push(v, Opcode::AccToUb, val.dtype, AccToUb { dst, acc, from: acc_dtype, m, n });
                    e.push(v, Opcode::XSet, val.dtype, Cross { flag: FULL, pipe: Pipe::Fix });
                    e.out.guards.push((e.here(), buf));
                    e.local(buf);
                    e.push(v, Opcode::XWait, val.dtype, Cross { flag: FULL, pipe: Pipe::V });
                    handed = Some((v, val.dtype, buf));
                }
                _ => {
                    let dst = e.local(buf);
                    e.push(v, Opcode::AccToUb, val.dtype, AccToUb { dst, acc, from: acc_dtype, m, n });
                }
            }
            e.place_value(v, buf);
        } else {
            vector::whole(e, v)?;
        }
        vector::stores(e, v, |_| true)?;
    }
    if let Some((v, dtype, buf)) = handed {
        // As soon as nobody reads the tile any more.
        let at = e.out.bufs[buf as usize].last + 1;
        e.insert(at, v, Opcode::XSet, dtype, Cross { flag: FREE, pipe: Pipe::V });
        e.out.guards.push((at, buf));
    }
    e.end(false);
    Ok(())
}

/// Flags of the exchange between a cube core and its vector cores: the place of a tile is free, it is full.
const FREE: u8 = 0;
const FULL: u8 = 1;

/// The stores of a kernel that does nothing else with its product than to store it, or all of it that is above 0 (`true`).
fn plain_stores(sp: &Space) -> Option<(&[Stored], bool)> {
    let ni = sp.folds.len() - 1;
    let dtype = sp.vals.first()?.dtype;
    let zero = |v: u32| matches!(sp.vals[v as usize].node, Node::Imm(0));
    let last = sp.stores.first()?.value;
    let relu = match sp.vals[last as usize].node {
        Node::MatMul => false,
        // Rounding keeps what is above 0 there, wrapping does not.
        Node::Binary(Opcode::VMax, a, b, _)
            if dtype.is_float() && ((a == 0 && zero(b)) || (b == 0 && zero(a))) =>
        {
            true
        }
        _ => return None,
    };
    let plain =
        |(i, v): (usize, &Val)| i == 0 || i as u32 == last || matches!(v.node, Node::Dead | Node::Imm(_));
    let rows = |s: &Stored| {
        s.value == last && (sp.folds[ni].n == 1 || sp.strides(s.access)[ni] == i64::from(dtype.size()))
    };
    let fine = sp.vals.iter().enumerate().all(plain) && sp.stores.iter().all(rows);
    (fine && (!relu || sp.vals[0].uses == 1)).then_some((&sp.stores[..], relu))
}

/// Bytes between rows of a stored product.
fn row_pitch(sp: &Space, access: u32, dtype: DType) -> i64 {
    let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
    match sp.strides(access)[mi] {
        // One row has no distance to the next.
        _ if sp.folds[mi].tile == 1 => i64::from(dtype.size()) * i64::from(sp.folds[ni].tile),
        stride => stride,
    }
}

/// Address of a block of packed panels, and the distance between panels.
fn bind(
    sp: &Space,
    p: &Product,
    pack: &Pack,
    b: &Blocks,
    walk: Option<u8>,
) -> Result<(dvm_bc::Mem, i64), Fault> {
    let too_large = Fault::TooLarge("a packed operand");
    let elem = u64::from(p.dtype.size());
    let Matrices { k, n, .. } = pack.matrices;
    let one = layout::panels_bytes(p.dtype.size(), 1, k, n, pack.nr).and_then(|b| i64::try_from(b).ok());
    let matrix = one.ok_or(too_large)?;
    let panel = matrix / i64::try_from(n.div_ceil(u64::from(pack.nr))).unwrap_or(1).max(1);
    let ni = sp.folds.len() - 1;
    let plain = (k * n * elem) as i64;
    let mut mem = dvm_bc::Mem { slot: p.b, offset: 0, strides: dvm_bc::Strides::new() };
    for (i, (f, &s)) in sp.folds.iter().zip(sp.strides(p.b_access)).enumerate() {
        let stride = if i == ni {
            i64::from(f.tile) / i64::from(pack.nr) * panel
        } else if s != 0 {
            s / plain * matrix
        } else {
            0
        };
        if f.count > 1 && stride != 0 {
            mem.strides.push((f.extent, stride));
        }
    }
    if let Some(extent) = walk {
        mem.strides.push((extent, i64::from(b.k0) * i64::from(pack.nr) * elem as i64));
    }
    Ok((mem, panel))
}
