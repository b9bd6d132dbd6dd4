//! Tiles and code of matrix products.
//!
//! Parallel extents are the batch folds, then blocks of rows (m0) and of columns (n0); the walk is over blocks of k (k0). The
//! product accumulates over the walk, then the epilogue runs once on the m0 x n0 tile as vector code.
//! A constant right operand is bound in panels instead of loaded.

use dvm_bc::layout::Matrices;
use dvm_bc::{
    AccToUb, BindB, DType, Hints, Init, LoadA, LoadB, MAX_PARALLEL, Mmad, Opcode, Place, Size,
    Space as Memory, layout,
};
use dvm_npu::MachineSpec;

use crate::cost::Model;
use crate::emit::Emit;
use crate::error::Fault;
use crate::space::{Node, Product, Space, Val};
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

/// Blocks of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Block of k, the last one, and their number.
    pub(crate) k0: u32,
    pub(crate) k_tail: u32,
    pub(crate) k_count: u32,
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
    if stacked && !(whole && offset == 0 && p.b_len % (p.k * n_fold.n) == 0) {
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
    let target = &spec.target;
    let pack = pack(sp, p, spec);
    let (mr, nr) = (u64::from(target.panel_mr), u64::from(target.nr(p.dtype.size())));
    let elem = u64::from(layout::panel_elem_bytes(p.dtype));
    let acc_elem = layout::acc_bytes(p.dtype, 1, 1);
    let [cap_a, cap_b, cap_acc] = [Memory::PanelA, Memory::PanelB, Memory::Acc].map(|s| target.capacity(s));
    let bound = pack.is_some() && !target.async_pipes;
    let (m, n) = (sp.folds[mi].n, sp.folds[ni].n);
    let batch = sp.folds[..mi].iter().fold(1u64, |b, f| b.saturating_mul(f.count));

    let small = |space, needs, has| Fault::Memory { space, needs, has };
    let most_k = cap_a / (mr * elem);
    let most_k = if bound { most_k } else { most_k.min(cap_b / (nr * elem)) };
    if most_k == 0 {
        return Err(small(Memory::PanelA, mr * elem, cap_a));
    }
    let prefer = match (p.k <= K_WHOLE, m <= mr && bound) {
        (true, _) | (_, true) => p.k,
        _ => K_BLOCK,
    };
    let parts = p.k.div_ceil(most_k.min(prefer));
    let k0 = p.k.div_ceil(parts).next_multiple_of(8).min(most_k.min(prefer)).min(p.k);
    let k_count = p.k.div_ceil(k0);
    let k_count = u32::try_from(k_count).map_err(|_| Fault::TooLarge("the number of blocks of k"))?;

    let most_m = (cap_a / (k0 * elem) / mr * mr).min(cap_acc / (acc_elem * nr.min(n)));
    if most_m < mr.min(m) {
        return Err(small(Memory::Acc, mr.min(m) * nr.min(n) * acc_elem, cap_acc));
    }
    let most_m = if most_m < mr { most_m } else { most_m / mr * mr };
    let costs = &spec.costs;
    let cores = u64::from(costs.cube.cores.min(target.cores)).max(1);
    let mut best: Option<(f64, u64, u64)> = None;
    let mut smallest = u64::MAX;
    let mut last_m0 = 0;
    for pm in PARTS.map(|x| x * m.div_ceil(most_m)) {
        let m0 = block(m, pm, mr);
        if m0 == last_m0 {
            continue;
        }
        last_m0 = m0;
        let tiles_m = batch.saturating_mul(m.div_ceil(m0));
        let mut most_n = cap_acc / (m0 * acc_elem);
        if !bound {
            most_n = most_n.min(cap_b / (k0 * elem) / nr * nr);
        }
        sp.folds[mi].cut(m0);
        sp.folds[ni].cut(nr.min(n));
        let strip = model.peak(sp);
        smallest = smallest.min(strip);
        if strip > limit {
            continue;
        }
        most_n = most_n.min(nr.min(n) * (limit / strip.max(1)));
        if most_n < nr.min(n) {
            continue;
        }
        let most_n = if most_n < n { (most_n / nr * nr).max(1) } else { n };
        let least = n.div_ceil(most_n);
        let fill = cores.div_ceil(tiles_m);
        let mut last_n0 = 0;
        for pn in PARTS.map(|x| x * least).into_iter().chain([fill, 2 * fill]) {
            if pn < least {
                continue;
            }
            let n0 = block(n, pn, nr).min(most_n);
            if n0 == last_n0 {
                continue;
            }
            last_n0 = n0;
            sp.folds[ni].cut(n0);
            if model.peak(sp) > limit {
                continue;
            }
            let tiles = tiles_m.saturating_mul(n.div_ceil(n0));
            let c = model.tile_ns(sp, costs, tiles.min(cores) as f64);
            let product = costs.cube.ns(p.dtype, m0 as u32, n0 as u32, k0 as u32);
            let a_ns = (m0 * k0 * elem) as f64 / costs.cube.pack_rate;
            let b_bytes = (k0 * n0 * u64::from(p.dtype.size())) as f64;
            let step = if bound {
                a_ns + product.max(b_bytes / costs.dma.core_rate)
            } else if target.async_pipes {
                product.max(a_ns + b_bytes / costs.cube.pack_rate)
            } else {
                a_ns + product + b_bytes / costs.cube.pack_rate
            };
            let ns = tiles.div_ceil(cores) as f64
                * (costs.tile_ns + f64::from(k_count) * step + c.dma.max(c.vector));
            if best.is_none_or(|b| ns < b.0) {
                best = Some((ns, m0, n0));
            }
        }
    }
    let Some((_, m0, n0)) = best else {
        return Err(small(Memory::Ub, smallest, limit));
    };
    sp.folds[mi].cut(m0);
    sp.folds[ni].cut(n0);
    tile::assign_extents(sp)?;
    let k_tail = p.k - k0 * u64::from(k_count - 1);
    Ok(Blocks { k0: k0 as u32, k_tail: k_tail as u32, k_count, pack })
}

/// `total` in `parts` pieces of whole panels.
fn block(total: u64, parts: u64, panel: u64) -> u64 {
    total.div_ceil(parts.max(1)).next_multiple_of(panel).min(total)
}

/// Emits the product and its epilogue as one phase.
pub(crate) fn emit(e: &mut Emit<'_>, p: &Product, b: &Blocks, spec: &MachineSpec) -> Result<(), Fault> {
    let sp = e.sp;
    let (mi, ni) = (sp.folds.len() - 2, sp.folds.len() - 1);
    let size = |f: usize| {
        let f = &sp.folds[f];
        if f.ragged() { Size::ragged(f.tile, f.tail, f.extent) } else { Size::fixed(f.tile) }
    };
    let (m, n) = (size(mi), size(ni));
    let walked = b.k_count > 1;
    let extent = sp.folds.iter().filter(|f| f.count > 1).count() as u8;
    let k = if walked { Size::ragged(b.k0, b.k_tail, extent) } else { Size::fixed(b.k0) };
    let along_k = |mut mem: dvm_bc::Mem, stride: i64| {
        if walked && stride != 0 {
            mem.strides.push((extent, stride.saturating_mul(i64::from(b.k0))));
        }
        mem
    };
    let dtype = p.dtype;
    let acc_dtype = layout::acc_dtype(dtype).unwrap_or(DType::F32);
    e.begin(0, Place::Body);

    let bytes = layout::panel_a_bytes(&spec.target, dtype, m.body, k.body);
    let a_buf = e.buf(bytes, dtype.size(), Memory::PanelA);
    let src = along_k(sp.mem(p.a, p.a_access), p.a_k);
    let row_stride = sp.strides(p.a_access)[mi];
    let dst = e.local(a_buf);
    let hints = Hints::default();
    e.push(Opcode::LoadA, dtype, LoadA { dst, src, m, k, row_stride, col_stride: p.a_k, hints });

    let held = layout::panel_b_bytes(&spec.target, dtype, k.body, n.body);
    let bytes = if b.pack.is_some() && !spec.target.async_pipes { 1 } else { held };
    let b_buf = e.buf(bytes, dtype.size(), Memory::PanelB);
    let dst = e.local(b_buf);
    if let Some(pack) = &b.pack {
        let (src, panel_stride) = bind(sp, p, pack, b, walked.then_some(extent))?;
        e.push(Opcode::BindB, dtype, BindB { dst, src, k, n, panel_stride });
    } else {
        let src = along_k(sp.mem(p.b, p.b_access), p.b_k);
        let col_stride = sp.strides(p.b_access)[ni];
        e.push(Opcode::LoadB, dtype, LoadB { dst, src, k, n, row_stride: p.b_k, col_stride, hints });
    }

    let acc_buf = e.buf(layout::acc_bytes(dtype, m.body, n.body), acc_dtype.size(), Memory::Acc);
    let (acc, a, bb) = (e.local(acc_buf), e.local(a_buf), e.local(b_buf));
    let init = if walked { Init::First } else { Init::Always };
    e.push(Opcode::Mmad, dtype, Mmad { acc, a, b: bb, m, n, k, init });
    if walked {
        e.end(true);
        e.begin(0, Place::Finish(0));
    }
    for v in 0..sp.vals.len() as u32 {
        let val = &sp.vals[v as usize];
        if matches!(val.node, Node::MatMul) {
            let acc = e.local(acc_buf);
            let buf = e.tile_buf(val.mask, val.dtype);
            let dst = e.local(buf);
            e.push(Opcode::AccToUb, val.dtype, AccToUb { dst, acc, from: acc_dtype, m, n });
            e.place_value(v, buf);
        } else {
            vector::whole(e, v)?;
        }
        vector::stores(e, v, |_| true)?;
    }
    e.end(false);
    Ok(())
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
