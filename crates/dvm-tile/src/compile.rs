//! One kernel at concrete dims -> one template.

use dvm_bc::{Code, Kind, Operands, Phase, Section, Slot, Space as Memory, Target, Template};
use dvm_ir::{DimValues, Kernel};
use dvm_npu::MachineSpec;
use smallvec::SmallVec;

use crate::attention;
use crate::cost::Model;
use crate::cube::{self, Blocks, Pack};
use crate::emit::{Emit, Emitted};
use crate::error::{Fault, TileError};
use crate::hint::TileHint;
use crate::legal::Legal;
use crate::lower;
use crate::place::Placer;
use crate::report::{FoldTiling, Forced, Note, Tiling};
use crate::space::{NONE, Node, Space};
use crate::split::{self, Bound, How};
use crate::sync::{Extents, Sync};
use crate::tile;
use crate::vector::{self, Phases};

/// Times a tiling is made smaller because local memory came out fragmented.
const ATTEMPTS: usize = 12;

/// Memory that compiling reuses from kernel to kernel and from shape to shape.
#[derive(Debug)]
pub struct Scratch {
    space: Space,
    model: Model,
    emitted: Emitted,
    phases: Phases,
    placer: Placer,
    sync: Sync,
    legal: Legal,
    /// The kernel at hand would be faster in parts.
    slow: bool,
    /// Number of the kernel's operands.
    operands: u16,
    /// Elements from which on a long reduction is several kernels.
    split: u64,
    ask: tile::Ask,
    pub(crate) plan: crate::plan::PlanScratch,
    pub(crate) check: bool,
    hints: Vec<TileHint>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            space: Space::default(),
            model: Model::default(),
            emitted: Emitted::default(),
            phases: Phases::default(),
            placer: Placer::default(),
            sync: Sync::default(),
            legal: Legal::default(),
            slow: false,
            operands: 0,
            split: split::WORTH,
            ask: tile::Ask::default(),
            plan: crate::plan::PlanScratch::default(),
            check: crate::CHECKS,
            hints: vec![],
        }
    }
}

impl Scratch {
    /// Whether [`crate::compile_plan`] panics on a program that is not sound; [`crate::CHECKS`] at first. Dims that a plan
    /// does not allow make such programs, so tests of them say `false`.
    pub fn check(&mut self, check: bool) {
        self.check = check;
    }
    /// Compiles every kernel in this tiling from now on, or as the cost model says.
    pub fn force(&mut self, tiling: Option<Forced>) {
        self.ask.forced = tiling;
    }
    /// Whether [`Tiling::candidates`] tell what the cost model compared.
    pub fn trace(&mut self, on: bool) {
        self.ask.trace = on.then(Vec::new);
    }
    /// From how many elements of its iteration space on a kernel whose reductions keep little is compiled to several templates, so that
    /// all cores take part: 131072 at first. No value depends on it. For tests.
    pub fn split(&mut self, elements: u64) {
        self.split = elements;
    }
    /// Tilings that vector kernels get from now on, as far as they can.
    pub fn hint(&mut self, hints: &[TileHint]) {
        self.hints.clear();
        self.hints.extend_from_slice(hints);
    }
}

/// A compiled kernel, and what its caller must know.
pub(crate) struct Unit {
    pub(crate) template: Template,
    pub(crate) tiling: Tiling,
    /// The slot that is bound to packed panels.
    pub(crate) pack: Option<(u16, Pack)>,
    /// Bytes of the ring that is bound to a slot behind the kernel's operands; 0 where there is none.
    pub(crate) ring: u64,
    /// Relative cost of a tile.
    pub(crate) weight: u32,
    /// The kernel's parts would be faster.
    pub(crate) slow: bool,
}

/// Compiles a kernel for concrete dims: a template whose slots are the kernel's operands.
///
/// Where nothing is stored, because an axis is empty, the template has no tiles. An operand in panels (see
/// [`Tiling::pack`]) is bound to an argument of that layout; where [`Tiling::ring`] is not 0, one more slot is bound to a
/// [`dvm_bc::Role::Ring`] of that many bytes.
///
/// # Errors
/// Dims without a value, kernels beyond the machine's local memory or a template's limits.
pub fn compile_kernel(
    kernel: &Kernel,
    dims: &DimValues,
    spec: &MachineSpec,
) -> Result<(Template, Tiling), TileError> {
    let mut scratch = Scratch::default();
    match unit(kernel, dims, spec, &mut scratch) {
        Ok(Some(u)) => Ok((u.template, u.tiling)),
        Ok(None) => Ok(nothing(kernel)),
        Err(fault) => Err(TileError::kernel(&kernel.name, fault)),
    }
}

fn slots(kernel: &Kernel) -> Vec<Slot> {
    let slot = |(i, o): (usize, &dvm_ir::kernel::Operand)| Slot {
        name: format!("{}{i}", if o.write { "out" } else { "in" }),
        dtype: lower::dtype(o.dtype),
        write: o.write,
    };
    kernel.operands.iter().enumerate().map(slot).collect()
}

fn nothing(kernel: &Kernel) -> (Template, Tiling) {
    let kind = if kernel.matmul().is_some() { Kind::Mix } else { Kind::Vector };
    let name = kernel.name.clone();
    let template =
        Template { name: name.clone(), kind, slots: slots(kernel), parallel: vec![0], phases: vec![] };
    (template, Tiling { kernel: name, kind, ..Tiling::default() })
}

/// A unit of a kernel in pieces.
pub(crate) struct Piece {
    pub(crate) unit: Unit,
    /// Those of one stage may run at the same time, after those of the stage before.
    pub(crate) stage: u32,
    /// What its slots are bound to.
    pub(crate) slots: Vec<Bound>,
}

/// What a kernel becomes in a plan.
#[allow(clippy::large_enum_variant, reason = "one at a time, and on the way of every kernel")]
pub(crate) enum Units {
    /// It stores nothing.
    None,
    One(Unit),
    /// Several, and the bytes of the buffers between them.
    Pieces(Vec<Piece>, Vec<u64>),
}

/// Compiles a kernel, in pieces where that pays. `wrote` learns the bytes that each store covers, by slot.
pub(crate) fn units(
    kernel: &Kernel,
    dims: &DimValues,
    spec: &MachineSpec,
    s: &mut Scratch,
    wrote: &mut impl FnMut(u16, u64),
) -> Result<Units, Fault> {
    if !s.space.build(kernel, dims)? {
        return Ok(Units::None);
    }
    for st in &s.space.stores {
        let size = s.space.vals[st.value as usize].size();
        let bytes = crate::space::bits(st.mask).fold(size, |n, f| n.saturating_mul(s.space.folds[f].n));
        wrote(st.slot, bytes);
    }
    if let Some(fold) = split::wanted(&s.space, s.split) {
        if let Ok(Some(units)) = pieces(kernel, spec, s, How::Fold(fold)) {
            return Ok(units);
        }
        // What does not fit in pieces may fit as one.
        s.space.build(kernel, dims)?;
    }
    let one = tiled(kernel, spec, s, slots(kernel)).map(Units::One);
    let how = match &one {
        Ok(_) if s.emitted.joined => How::Runs,
        Err(Fault::Unsupported { .. }) => How::Reductions,
        _ => return one,
    };
    s.space.build(kernel, dims)?;
    match pieces(kernel, spec, s, how) {
        Ok(Some(units)) => Ok(units),
        _ => one,
    }
}

/// Compiles a kernel in pieces; `None` where there are none, or where pieces do not help.
fn pieces(kernel: &Kernel, spec: &MachineSpec, s: &mut Scratch, how: How) -> Result<Option<Units>, Fault> {
    let split = split::cut(&s.space, how);
    let mut out = Vec::with_capacity(split.pieces.len());
    for (i, piece) in split.pieces.into_iter().enumerate() {
        s.space = piece.space;
        let mut slots = Vec::with_capacity(piece.slots.len());
        for &(bound, dtype, write) in &piece.slots {
            let name = match bound {
                Bound::Operand(i) => format!("{}{i}", if write { "out" } else { "in" }),
                Bound::Temp(i) => format!("part{i}"),
            };
            slots.push(Slot { name, dtype, write });
        }
        let mut unit = tiled(kernel, spec, s, slots)?;
        if s.emitted.joined {
            return Ok(None);
        }
        unit.template.name = format!("{}.{i}", unit.template.name);
        out.push(Piece { unit, stage: piece.stage, slots: piece.slots.iter().map(|s| s.0).collect() });
    }
    Ok((!out.is_empty()).then_some(Units::Pieces(out, split.temps)))
}

/// Compiles a kernel to one unit; `None` when it stores nothing.
fn unit(
    kernel: &Kernel,
    dims: &DimValues,
    spec: &MachineSpec,
    s: &mut Scratch,
) -> Result<Option<Unit>, Fault> {
    if !s.space.build(kernel, dims)? {
        return Ok(None);
    }
    tiled(kernel, spec, s, slots(kernel)).map(Some)
}

/// Tiles, emits and places what is in the scratch's space.
fn tiled(kernel: &Kernel, spec: &MachineSpec, s: &mut Scratch, slots: Vec<Slot>) -> Result<Unit, Fault> {
    // More operands than slots are an error of the check in `build`.
    s.operands = slots.len() as u16;
    s.legal = Legal::of(&spec.target);
    s.slow = false;
    s.legal.check(&s.space)?;
    s.model.build(&s.space, spec, s.legal);
    let (blocks, phases, peak) = fitted(s, spec)?;
    for space in [Memory::PanelA, Memory::PanelB, Memory::Acc] {
        let (needs, has) = (peak[space as usize], spec.target.capacity(space));
        if needs > has {
            return Err(Fault::Memory { space, needs, has });
        }
    }
    assemble(kernel, spec, s, slots, (blocks, phases, peak))
}

/// Blocks of a product, number of phases, bytes used of each space.
type Fitted = (Option<Blocks>, u32, [u64; 4]);

/// Tiles, emits and places. The model knows neither fragmentation nor every copy that emission makes, so where the result does not fit,
/// tiles are chosen under a lower limit, and then with a tile more to hold.
fn fitted(s: &mut Scratch, spec: &MachineSpec) -> Result<Fitted, Fault> {
    let has = spec.target.capacity(Memory::Ub);
    let (mut limit, mut strict, mut padded, mut needs) = (has, false, false, 0);
    for attempt in 0..ATTEMPTS {
        let done = match attempt_at(s, spec, limit, strict) {
            Err(Fault::Loops { .. } | Fault::Ragged { .. }) if !strict => {
                strict = true;
                continue;
            }
            Err(Fault::Memory { space: Memory::Ub, .. }) if needs > has && !padded => None,
            Err(Fault::Memory { space: Memory::Ub, needs: n, .. }) => {
                return Err(Fault::Memory { space: Memory::Ub, needs: n.max(needs), has });
            }
            done => Some(done?),
        };
        if let Some((blocks, phases)) = done {
            let peak = s.placer.run(&mut s.emitted, &spec.target)?;
            needs = peak[Memory::Ub as usize];
            if needs <= has {
                let mut peak = peak;
                if blocks.is_none() {
                    peak[Memory::Ub as usize] = pin(&mut s.emitted, &s.space, &spec.target, needs);
                }
                return Ok((blocks, phases, peak));
            }
            let scaled = u128::from(limit) * u128::from(has) / u128::from(needs.max(1));
            limit = (scaled as u64).min(limit - limit / 16);
        }
        if !padded && (done.is_none() || attempt + 1 == ATTEMPTS / 2) {
            s.model.pad(&s.space);
            (padded, limit) = (true, has);
        }
    }
    Err(Fault::Memory { space: Memory::Ub, needs, has })
}

/// Gives loads that stand still along the innermost parallel extent a place of their own where there is room above `used`, so that
/// they stay there from tile to tile; returns the bytes then used. Tiles are not made smaller for it.
fn pin(e: &mut Emitted, sp: &Space, target: &Target, used: u64) -> u64 {
    let Some(inner) = sp.folds.iter().rfind(|f| !f.walked && f.extent != NONE).map(|f| f.extent) else {
        return used;
    };
    let (block, has) = (u64::from(target.block), target.capacity(Memory::Ub));
    let mut top = used.next_multiple_of(block.max(1));
    let mut pinned = 0;
    for inst in &mut e.insts {
        let (dst, mem, hints, ragged) = match &mut inst.operands {
            Operands::Load(o) => {
                let ragged: SmallVec<[Option<u8>; 4]> = SmallVec::from_slice(&[o.rows.extent, o.cols.extent]);
                (o.dst, &o.src, &mut o.hints, ragged)
            }
            Operands::ViewLoad(o) => {
                let ragged = o.loops.iter().map(|l| l.count.extent).collect();
                (o.dst, &o.src, &mut o.hints, ragged)
            }
            _ => continue,
        };
        let moves = |extent: u8| mem.strides.iter().any(|s| s.0 == extent);
        let buf = &mut e.bufs[dst.offset as usize];
        let bytes = buf.bytes.next_multiple_of(block.max(1));
        let still = !moves(inner) && ragged.iter().flatten().all(|&x| moves(x));
        if !still || buf.ring || buf.space != Memory::Ub || top + bytes > has || pinned == MAX_PINNED {
            continue;
        }
        let Ok(at) = u32::try_from(top / block.max(1)) else { continue };
        (buf.at, hints.sticky) = (at, true);
        top += bytes;
        pinned += 1;
    }
    if pinned == 0 { used } else { top }
}

/// Most loads of a kernel that are kept from tile to tile.
const MAX_PINNED: usize = 8;

/// Tiles and emits under a limit of vector memory; returns the blocks of a product and the number of phases.
fn attempt_at(
    s: &mut Scratch,
    spec: &MachineSpec,
    limit: u64,
    strict: bool,
) -> Result<(Option<Blocks>, u32), Fault> {
    let private = spec.target.async_pipes;
    if let Some(trace) = &mut s.ask.trace {
        trace.clear();
    }
    if let (Some(product), Some(contract)) = (s.space.product, s.space.contract) {
        let fit = attention::choose(&mut s.space, &product, &contract, &s.model, spec, limit)?;
        let mut e = Emit::new(&s.space, &mut s.emitted, private, s.legal);
        attention::emit(&mut e, &product, &contract, &fit.blocks, spec)?;
        s.slow = fit.slow;
        return Ok((Some(fit.blocks), 1));
    }
    if let Some(c) = s.space.contract {
        let what = "a product of rows that no product made";
        return Err(Fault::Unsupported { value: c.value as usize, what });
    }
    if let Some(product) = s.space.product {
        let blocks = cube::choose(&mut s.space, &product, &s.model, spec, limit, &mut s.ask)?;
        let mut e = Emit::new(&s.space, &mut s.emitted, private, s.legal);
        let ring = s.operands;
        cube::emit(&mut e, &product, &blocks, spec, ring)?;
        return Ok((Some(blocks), 1));
    }
    let asked = (&mut s.ask, s.hints.as_slice());
    tile::choose(&mut s.space, &s.model, spec, limit, strict, asked)?;
    // A running sum from the end, in pieces: walk the axis backwards.
    let seq = s.space.seq();
    for v in 0..s.space.vals.len() {
        if let Node::CumSum { x, fold, exclusive, reverse: true } = s.space.vals[v].node
            && seq >> fold & 1 == 1
        {
            s.space.flip(usize::from(fold));
            s.space.vals[v].node = Node::CumSum { x, fold, exclusive, reverse: false };
        }
    }
    let mut e = Emit::new(&s.space, &mut s.emitted, private, s.legal);
    let phases = vector::emit(&mut e, &mut s.phases)?;
    Ok((None, phases))
}

/// Numbers of buffers -> their places.
fn resolve(e: &mut Emitted) {
    for inst in &mut e.insts {
        inst.each_local_mut(|l| l.offset = e.bufs[l.offset as usize].at);
    }
}

fn assemble(
    kernel: &Kernel,
    spec: &MachineSpec,
    s: &mut Scratch,
    mut slots: Vec<Slot>,
    (blocks, count, local): Fitted,
) -> Result<Unit, Fault> {
    let sp = &s.space;
    let extents = |walked: bool| -> Vec<u32> {
        let cut = sp.folds.iter().filter(|f| f.walked == walked && f.extent != NONE);
        cut.map(|f| u32::try_from(f.count).unwrap_or(u32::MAX)).collect()
    };
    let parallel = extents(false);
    let seq = match &blocks {
        Some(b) if b.k_count > 1 && sp.contract.is_none() => vec![b.k_count],
        Some(_) if sp.contract.is_none() => vec![],
        Some(_) => extents(true),
        None => extents(true),
    };
    let mut phases: Vec<Phase> = (0..count)
        .map(|_| Phase { seq: seq.clone(), rotate: false, sections: Vec::with_capacity(3) })
        .collect();
    let mut notes = Vec::with_capacity(s.emitted.insts.len());
    if spec.target.async_pipes {
        let all: SmallVec<[u32; 12]> = parallel.iter().chain(&seq).copied().collect();
        let space = Extents { all: &all, parallel: parallel.len() };
        s.sync.derive(&s.emitted, &spec.target, &space);
        resolve(&mut s.emitted);
        for (i, section) in s.sync.list().iter().enumerate().filter(|&(i, _)| s.sync.exists(i)) {
            let mut code = Code::default();
            s.sync.section(i, &mut s.emitted, &mut |inst, note| {
                notes.push(note);
                code.push(inst)
            })?;
            phases[section.phase as usize].sections.push(Section { place: section.place, code });
        }
    } else {
        resolve(&mut s.emitted);
        for part in &s.emitted.parts {
            let mut code = Code::from_words(Vec::with_capacity((part.end - part.start) as usize * 7));
            for inst in &s.emitted.insts[part.start as usize..part.end as usize] {
                code.push(inst)?;
            }
            phases[part.phase as usize].sections.push(Section { place: part.place, code });
        }
        notes.extend(s.emitted.values.iter().map(|&v| Note::Value(v)));
    }
    phases.retain(|p| !p.sections.is_empty());
    let kind = match &blocks {
        Some(_) if s.emitted.cube_only => Kind::Cube,
        Some(_) => Kind::Mix,
        None => Kind::Vector,
    };
    let pack = blocks.as_ref().and_then(|b| b.pack).zip(sp.product).map(|(pack, p)| (p.b, pack));
    let cores = u64::from(spec.target.cores);
    let tiles = parallel.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
    let cost = s.model.tile_ns(sp, &spec.costs, tiles.min(cores) as f64);
    let n = sp.folds.len();
    let product_ns = blocks.as_ref().zip(sp.product).map_or(0.0, |(b, p)| {
        let tile = |last: usize| sp.folds[n - last].tile;
        let cube = &spec.costs.cube;
        let steps = f64::from(b.k_count);
        match &sp.contract {
            None => steps * cube.ns(p.dtype, tile(2), tile(1), b.k0),
            Some(c) => {
                let first = steps * cube.ns(p.dtype, tile(3), tile(2), b.k0);
                let walk = if sp.held { sp.folds[n - 3].count as f64 } else { 1.0 };
                walk * (first + cube.ns(c.dtype, tile(3), tile(1), tile(2)))
            }
        }
    });
    let walks = sp.folds.iter().filter(|f| f.walked).fold(f64::from(count), |n, f| n * f.count as f64);
    let tile_ns = spec.costs.tile_ns + walks * cost.dma.max(cost.vector) + product_ns;
    let tiling = Tiling {
        kernel: kernel.name.clone(),
        kind,
        folds: sp.folds.iter().map(FoldTiling::of).collect(),
        k: blocks.as_ref().zip(sp.product).map(|(b, p)| (p.k, b.k0)),
        tiles,
        local,
        tile_ns,
        tile_bytes: walks * cost.bytes,
        notes,
        pack: pack.map(|(_, p)| p),
        candidates: s.ask.trace.as_mut().map(std::mem::take).unwrap_or_default(),
        ring: s.emitted.ring,
    };
    if s.emitted.ring > 0 {
        let dtype = sp.vals.first().map_or(dvm_bc::DType::F32, |v| v.dtype);
        slots.push(Slot { name: "ring".to_owned(), dtype, write: true });
    }
    let template = Template { name: kernel.name.clone(), kind, slots, parallel, phases };
    let ring = s.emitted.ring;
    Ok(Unit { template, tiling, pack, ring, weight: (tile_ns as u32).max(1), slow: s.slow })
}
