//! Phases of a vector kernel.
//!
//! Where every reduced fold is whole inside the tile there is one phase and no walk. Otherwise the walked folds become
//! sequential extents, and a value that varies along them (*streaming*) exists a piece at a time: phase p walks the pieces,
//! recomputes what its reductions need and accumulates those whose operand depends on p earlier ones; what does not
//! vary along the walk (*static*) is computed before or after a walk and lives on.

use dvm_bc::layout::{SUM_BLOCK_X, SUM_BLOCK_Y, SUM_LANES, sum_dtype};
use dvm_bc::{
    ArgReduce, Binary, Class, CumSum, DType, Init, Mode, Opcode, PartSum, Place, Reduce, Size, Src, Strides,
};
use dvm_ir::kernel::KReduce;

use crate::cost::needed;
use crate::emit::Emit;
use crate::error::Fault;
use crate::lower;
use crate::space::{Mask, NONE, Node, Val, bits};

/// How a reduction over walked folds keeps what it has seen.
#[derive(Clone, Copy, Debug)]
enum Carry {
    /// The instruction accumulates, in the order of the reduction.
    Exact,
    /// As `Exact`, in pieces that are no whole blocks of a float sum; the buffer of the block at hand.
    Parts(u32),
    /// Results of pieces are joined elementwise.
    Joined,
}

/// Scratch.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    depth: Vec<u8>,
    marked: Vec<bool>,
    /// Accumulator of each reduction of the phase at hand.
    carry: Vec<(u32, Carry)>,
}

/// Emits the whole kernel; returns the number of phases.
pub(crate) fn emit(e: &mut Emit<'_>, ph: &mut Phases) -> Result<u32, Fault> {
    let seq = e.sp.seq();
    if seq == 0 {
        e.begin(0, Place::Body);
        for v in 0..e.sp.vals.len() as u32 {
            whole(e, v)?;
            stores(e, v, |_| true)?;
        }
        e.end(false);
        return Ok(1);
    }
    walk(e, ph, seq)
}

/// Emits a value all of whose reduced folds are inside the tile.
pub(crate) fn whole(e: &mut Emit<'_>, v: u32) -> Result<(), Fault> {
    let val = &e.sp.vals[v as usize];
    match val.node {
        Node::Reduce { x, over, totals: true, .. } => {
            let (need, mask, dtype) = (needed(val, e.sp), val.mask, val.dtype);
            let dtype = e.legal.runs_in(Class::Reduce, dtype);
            let buf = e.tile(x, need)?;
            let buf = e.convert(v, buf, need, val.dtype, dtype)?;
            let buf = part_sum(e, v, (buf, dtype), need, over, Init::Always)?.whole(e, v, mask)?;
            let buf = e.convert(v, buf, mask, dtype, e.sp.vals[v as usize].dtype)?;
            e.place_value(v, buf);
            Ok(())
        }
        Node::Reduce { op, x, over, totals: false } => {
            let need = needed(val, e.sp);
            let (dtype, mask) = (val.dtype, val.mask);
            let several = reduced_runs(need, over).filter(|r| r & e.wide != 0).count() > 1;
            let inside = if several { partial(op, dtype) } else { dtype };
            let inside = e.legal.runs_in(Class::Reduce, inside);
            let buf = e.tile(x, need)?;
            let buf = e.convert(v, buf, need, dtype, inside)?;
            let buf = runs(e, v, op, inside, buf, need, over)?;
            let buf = e.convert(v, buf, mask, inside, dtype)?;
            e.place_value(v, buf);
            Ok(())
        }
        Node::ArgReduce { .. } => arg_reduce(e, v, Init::Always).map(|_| ()),
        Node::CumSum { .. } => cum_sum(e, v, Init::Always, None),
        _ => e.value(v),
    }
}

pub(crate) fn stores(e: &mut Emit<'_>, v: u32, which: impl Fn(Mask) -> bool) -> Result<(), Fault> {
    let sp = e.sp;
    for s in sp.stores.iter().filter(|s| s.value == v && which(s.mask)) {
        e.store(s)?;
    }
    Ok(())
}

/// The walked folds that a reduction reduces.
fn walked_by(val: &Val, seq: Mask) -> Mask {
    match val.node {
        Node::Reduce { over, .. } => over & seq,
        Node::ArgReduce { fold, .. } => 1 << fold & seq,
        _ => 0,
    }
}

fn walk(e: &mut Emit<'_>, ph: &mut Phases, seq: Mask) -> Result<u32, Fault> {
    let sp = e.sp;
    let n = sp.vals.len();
    let streaming = |v: usize| sp.vals[v].mask & seq != 0;
    ph.depth.clear();
    for (i, val) in sp.vals.iter().enumerate() {
        let before = val.operands().iter().map(|&o| ph.depth[o as usize]).max().unwrap_or(0);
        let walked = walked_by(val, seq);
        if walked != 0 && val.mask & seq != 0 {
            let what = "reduces along one axis that does not fit local memory and keeps another";
            return Err(Fault::Unsupported { value: i, what });
        }
        let deeper = before.checked_add(u8::from(walked != 0));
        ph.depth
            .push(deeper.ok_or(Fault::Unsupported { value: i, what: "more than 255 passes over memory" })?);
    }
    let mut phases = 1;
    for (i, val) in sp.vals.iter().enumerate() {
        if walked_by(val, seq) != 0 {
            phases = phases.max(u32::from(ph.depth[i]));
        }
    }
    for s in sp.stores.iter().filter(|s| s.mask & seq != 0) {
        phases = phases.max(u32::from(ph.depth[s.value as usize]) + 1);
    }
    ph.carry.clear();
    ph.carry.resize(n, (0, Carry::Exact));

    for p in 0..phases {
        let depth = p as u8;
        let reduced = |ph: &Phases, i: usize| walked_by(&sp.vals[i], seq) != 0 && ph.depth[i] == depth + 1;
        for v in 0..n {
            if streaming(v) {
                e.forget(v as u32);
            }
        }
        // Before the walk: what the body needs and does not change in it.
        ph.marked.clear();
        ph.marked.resize(n, false);
        for i in 0..n {
            if reduced(ph, i) {
                for o in sp.vals[i].operands() {
                    ph.marked[o as usize] = true;
                }
            }
        }
        for s in &sp.stores {
            let v = s.value as usize;
            let here = ph.depth[v] == depth && (s.mask & seq != 0 || p == 0);
            ph.marked[v] |= here;
        }
        mark(e, ph, seq);
        e.begin(p, Place::Init(0));
        for v in 0..n {
            if ph.marked[v] && !streaming(v) && !e.has(v as u32) {
                if matches!(sp.vals[v].node, Node::Load { .. }) {
                    e.own(v as u32)?;
                } else {
                    whole(e, v as u32)?;
                }
            }
            if p == 0 && ph.depth[v] == 0 {
                stores(e, v as u32, |m| m & seq == 0)?;
            }
        }
        for i in 0..n {
            if reduced(ph, i) {
                begin_carry(e, ph, i as u32, seq)?;
            }
        }
        e.end(false);

        e.begin(p, Place::Body);
        let start = e.here();
        for v in 0..n {
            if reduced(ph, v) {
                accumulate(e, ph, v as u32, start)?;
            } else if ph.marked[v] && streaming(v) {
                match sp.vals[v].node {
                    Node::CumSum { fold, .. } if seq >> fold & 1 == 1 => {
                        cum_sum(e, v as u32, Init::First, Some(start))?;
                    }
                    _ => whole(e, v as u32)?,
                }
            }
            if ph.depth[v] == depth {
                stores(e, v as u32, |m| m & seq != 0)?;
            }
        }
        e.end(true);

        e.begin(p, Place::Finish(0));
        ph.marked.clear();
        ph.marked.resize(n, false);
        for v in 0..n {
            if ph.depth[v] == depth + 1 && !streaming(v) && sp.vals[v].uses > 0 {
                ph.marked[v] = true;
            }
        }
        mark(e, ph, seq);
        for v in 0..n {
            if reduced(ph, v) {
                finish_carry(e, ph, v as u32)?;
            } else if ph.marked[v] && !streaming(v) && !e.has(v as u32) {
                whole(e, v as u32)?;
            }
            if ph.depth[v] == depth + 1 {
                stores(e, v as u32, |m| m & seq == 0)?;
            }
        }
        e.end(false);
    }
    Ok(phases)
}

/// Marks what marked values are computed from, up to what exists already.
fn mark(e: &Emit<'_>, ph: &mut Phases, seq: Mask) {
    for v in (0..e.sp.vals.len()).rev() {
        let val = &e.sp.vals[v];
        if ph.marked[v] && !e.has(v as u32) && walked_by(val, seq) == 0 {
            for o in val.operands() {
                ph.marked[o as usize] = true;
            }
        }
    }
}

/// Runs of adjacent folds of `need` that are reduced, innermost first.
fn reduced_runs(need: Mask, over: Mask) -> impl Iterator<Item = Mask> {
    let mut at = Mask::BITS as usize;
    std::iter::from_fn(move || {
        let mut run = 0;
        while at > 0 {
            at -= 1;
            if over >> at & 1 == 1 {
                run |= 1 << at;
            } else if need >> at & 1 == 1 && run != 0 {
                return Some(run);
            }
        }
        (run != 0).then_some(run)
    })
}

/// Outer, reduced and inner counts of a run inside a tile over `mask`.
fn counts(e: &Emit<'_>, v: u32, mask: Mask, run: Mask) -> Result<(Size, Size, Size), Fault> {
    let low = bits(run).next().unwrap_or(0);
    let outer = mask & ((1 << low) - 1);
    let inner = mask & !run & !outer;
    let size = |m: Mask| e.sp.group(&e.sp.dims(m));
    let what = "the counts of a reduction";
    match (size(outer), size(run & mask), size(inner)) {
        (Some(o), Some(r), Some(i)) => Ok((o, r, i)),
        _ => Err(Fault::Ragged { value: v as usize, what }),
    }
}

/// Reduces a tile over `need` along the folds of `over`, run by run; returns the result's buffer.
fn runs(
    e: &mut Emit<'_>,
    v: u32,
    op: KReduce,
    dtype: DType,
    mut buf: u32,
    need: Mask,
    over: Mask,
) -> Result<u32, Fault> {
    let mut mask = need;
    for run in reduced_runs(need, over) {
        if run & e.wide != 0 {
            let (outer, red, inner) = counts(e, v, mask, run)?;
            if op == KReduce::Sum && dtype.is_float() && inner.body == 1 && across(mask, run) {
                // Rows of one column are rows still.
                let what = partial(op, dtype);
                let part = e.convert(v, buf, mask, dtype, what)?;
                let part = part_sum(e, v, (part, what), mask, run, Init::Always)?.whole(e, v, mask & !run)?;
                buf = e.convert(v, part, mask & !run, what, dtype)?;
                mask &= !run;
                continue;
            }
            let src = e.local(buf);
            buf = e.tile_buf(mask & !run, dtype);
            let dst = e.local(buf);
            e.push(v, lower::reduce(op), dtype, Reduce { dst, src, outer, red, inner, init: Init::Always });
        }
        mask &= !run;
    }
    Ok(buf)
}

/// The dtype of partial results: a sum of halves is f32 until it is whole.
pub(crate) fn partial(op: KReduce, dtype: DType) -> DType {
    if op == KReduce::Sum { sum_dtype(dtype) } else { dtype }
}

/// The dtype of partial results on a machine.
fn kept(e: &Emit<'_>, op: KReduce, dtype: DType) -> DType {
    e.legal.runs_in(Class::Reduce, partial(op, dtype))
}

/// Whether a run is reduced across rows: something is kept inside it.
pub(crate) fn across(mask: Mask, run: Mask) -> bool {
    mask & !run & !((1 << run.trailing_zeros()) - 1) != 0
}

/// A sum that is not finished: its state, its lanes, the dtype of both.
struct Part {
    state: u32,
    lanes: Option<(u32, u32)>,
    dtype: DType,
}

/// Adds a tile over `mask` to a sum along `run`, whose index of the first element follows from the extents. `x` is the tile's
/// buffer and dtype.
fn part_sum(
    e: &mut Emit<'_>,
    v: u32,
    x: (u32, DType),
    mask: Mask,
    run: Mask,
    init: Init,
) -> Result<Part, Fault> {
    let sp = e.sp;
    let totals = matches!(sp.vals[v as usize].node, Node::Reduce { totals: true, .. });
    let (buf, dtype) = x;
    let (outer, red, inner) = counts(e, v, mask, run)?;
    let (across, results) = (across(mask, run), sp.elements(mask & !run));
    let width = if across { 1 } else { SUM_LANES };
    let mut strides = Strides::new();
    let mut inside = 1i64;
    for f in bits(run).rev() {
        let f = &sp.folds[f];
        if f.extent != NONE && !totals {
            strides.push((f.extent, inside.saturating_mul(i64::from(f.tile))));
        }
        inside = inside.saturating_mul(i64::try_from(f.n).unwrap_or(i64::MAX));
    }
    strides.sort_unstable_by_key(|s| s.0);
    let bytes = results.saturating_mul(u64::from(dtype.size()));
    let state = e.buf(bytes.saturating_mul(2), dtype.size(), dvm_bc::Space::Ub);
    let held = e.buf(bytes.saturating_mul(u64::from(width)), dtype.size(), dvm_bc::Space::Ub);
    let (dst, lanes, src) = (e.local(state), e.local(held), e.local(buf));
    let o = PartSum { dst, lanes, src, outer, red, inner, init, base: 0, strides, across, totals };
    e.push(v, Opcode::VSumPart, dtype, o);
    Ok(Part { state, lanes: (!totals).then_some((held, width)), dtype })
}

impl Part {
    /// The sum over `mask` in a buffer of its own.
    fn whole(self, e: &mut Emit<'_>, v: u32, mask: Mask) -> Result<u32, Fault> {
        let what = "the state of a sum";
        let results = e.sp.group(&e.sp.dims(mask)).ok_or(Fault::Ragged { value: v as usize, what })?;
        let (one, init, dtype) = (Size::ONE, Init::Always, self.dtype);
        if let Some((held, width)) = self.lanes {
            // The total of the last block.
            let total = e.tile_buf(mask, dtype);
            let (dst, src) = (e.local(total), e.local(held));
            let red = Size::fixed(width);
            e.push(v, Opcode::VSum, dtype, Reduce { dst, src, outer: results, red, inner: one, init });
            let (dst, lanes, src) = (e.local(self.state), e.local(held), e.local(total));
            let (init, base, strides) = (Init::Accumulate, 0, Strides::new());
            let (across, totals) = (width == 1, true);
            let (outer, red, inner) = (one, one, results);
            let o = PartSum { dst, lanes, src, outer, red, inner, init, base, strides, across, totals };
            e.push(v, Opcode::VSumPart, dtype, o);
        }
        // The value of two planes is their sum: a reduction of two rows.
        let src = e.local(self.state);
        let buf = e.tile_buf(mask, dtype);
        let dst = e.local(buf);
        let o = Reduce { dst, src, outer: one, red: Size::fixed(2), inner: results, init };
        e.push(v, Opcode::VSum, dtype, o);
        Ok(buf)
    }
}

/// The outermost run, if a walk meets its elements in the order of their index: every fold in pieces is one of it, and inside the
/// first of which a tile has several elements all are whole.
fn ordered_run(e: &Emit<'_>, need: Mask, over: Mask, seq: Mask) -> Option<Mask> {
    let run = reduced_runs(need, over).last()?;
    let mut wide = false;
    for f in bits(run) {
        let f = &e.sp.folds[f];
        if wide && f.count > 1 {
            return None;
        }
        wide |= f.tile > 1;
    }
    (over & seq & !run == 0).then_some(run)
}

/// The last run, if its instruction can accumulate in the order of the whole reduction.
fn exact_run(e: &Emit<'_>, v: u32, op: KReduce, need: Mask, over: Mask, seq: Mask) -> Option<Mask> {
    if op == KReduce::Prod {
        return ordered_run(e, need, over, seq);
    }
    let walked = over & seq;
    let run = reduced_runs(need, over).filter(|r| r & e.wide != 0).last()?;
    let first = bits(run & e.wide).next()?;
    // One walked fold, and it is the outermost of all that is reduced.
    if walked != 1 << first || bits(over).next() != Some(first) {
        return None;
    }
    let mask = need & !(over & !run);
    let (_, red, inner) = counts(e, v, mask, run).ok()?;
    let block = if inner.body == 1 { SUM_BLOCK_X } else { SUM_BLOCK_Y };
    let ordered = op == KReduce::Sum && e.sp.vals[v as usize].dtype.is_float();
    (!ordered || red.body % block == 0).then_some(run)
}

fn begin_carry(e: &mut Emit<'_>, ph: &mut Phases, v: u32, seq: Mask) -> Result<(), Fault> {
    let val = &e.sp.vals[v as usize];
    let Node::Reduce { op, over, .. } = val.node else { return Ok(()) };
    let (need, dtype) = (needed(val, e.sp), val.dtype);
    let Node::Reduce { totals, .. } = val.node else { return Ok(()) };
    if !totals && exact_run(e, v, op, need, over, seq).is_some() {
        ph.carry[v as usize].1 = Carry::Exact;
        return Ok(());
    }
    if op == KReduce::Sum && dtype.is_float() && ordered_run(e, need, over, seq).is_some() {
        // Its lanes are known once there is a piece.
        ph.carry[v as usize].1 = Carry::Parts(0);
        return Ok(());
    }
    e.out.joined |= matches!(op, KReduce::Sum | KReduce::Prod) && val.dtype.is_float();
    let (dtype, mask) = (kept(e, op, val.dtype), val.mask);
    let buf = e.tile_buf(mask, dtype);
    e.fill_into(v, buf, dtype, lower::neutral(op, dtype), mask)?;
    ph.carry[v as usize] = (buf, Carry::Joined);
    Ok(())
}

/// The body's part of a reduction over walked folds.
fn accumulate(e: &mut Emit<'_>, ph: &mut Phases, v: u32, start: u32) -> Result<(), Fault> {
    let val = &e.sp.vals[v as usize];
    let (dtype, mask) = (val.dtype, val.mask);
    let need = needed(val, e.sp);
    let Node::Reduce { op, x, over, .. } = val.node else {
        let (index, value) = arg_reduce(e, v, Init::First)?;
        for b in [index, value] {
            let b = &mut e.out.bufs[b as usize];
            // The next piece starts from both.
            (b.first, b.last) = (start, u32::MAX);
        }
        ph.carry[v as usize].0 = index;
        return Ok(());
    };
    let kept = kept(e, op, dtype);
    let mut buf = e.tile(x, need)?;
    match ph.carry[v as usize] {
        (acc, Carry::Joined) => {
            buf = e.convert(v, buf, need, dtype, kept)?;
            buf = runs(e, v, op, kept, buf, need, over)?;
            let (rows, cols) = e.grid(mask, v)?;
            let (a, b) = (e.local(acc), e.local(buf));
            let o = Binary { dst: a, a: Src::Local(a, Mode::Full), b: Src::Local(b, Mode::Full), rows, cols };
            e.push(v, lower::combine(op), kept, o);
        }
        (_, Carry::Parts(_)) => {
            let last = reduced_runs(need, over).last().unwrap_or(0);
            buf = e.convert(v, buf, need, dtype, kept)?;
            buf = runs(e, v, op, kept, buf, need, over & !last)?;
            let part = part_sum(e, v, (buf, kept), need & !(over & !last), last, Init::First)?;
            let lanes = part.lanes.map_or(part.state, |l| l.0);
            for b in [part.state, lanes] {
                let b = &mut e.out.bufs[b as usize];
                // The next piece goes on from both.
                (b.first, b.last) = (start, u32::MAX);
            }
            ph.carry[v as usize] = (part.state, Carry::Parts(lanes));
        }
        (_, Carry::Exact) => {
            let wide = |r: &Mask| r & e.wide != 0;
            let ordered = reduced_runs(need, over).last().unwrap_or(0);
            // A product goes on whatever its last piece is.
            let last = match op {
                KReduce::Prod => ordered,
                _ => reduced_runs(need, over).filter(wide).last().unwrap_or(0),
            };
            // A single run takes halves as they are.
            let several = reduced_runs(need, over & !last).any(|r| r & e.wide != 0);
            let inside = e.legal.runs_in(Class::Reduce, if several { kept } else { dtype });
            buf = e.convert(v, buf, need, dtype, inside)?;
            buf = runs(e, v, op, inside, buf, need, over & !last)?;
            let (outer, red, inner) = counts(e, v, need & !(over & !last), last)?;
            let src = e.local(buf);
            let planes = if op == KReduce::Sum { 2 } else { 1 };
            let bytes = e.sp.elements(mask).saturating_mul(planes * u64::from(kept.size()));
            let acc = e.buf(bytes, kept.size(), dvm_bc::Space::Ub);
            let dst = e.local(acc);
            e.push(v, lower::reduce(op), inside, Reduce { dst, src, outer, red, inner, init: Init::First });
            e.out.bufs[acc as usize].first = start;
            ph.carry[v as usize].0 = acc;
        }
    }
    Ok(())
}

/// After the walk: the value of the reduction.
fn finish_carry(e: &mut Emit<'_>, ph: &Phases, v: u32) -> Result<(), Fault> {
    let val = &e.sp.vals[v as usize];
    let (dtype, mask) = (val.dtype, val.mask);
    let (acc, carry) = ph.carry[v as usize];
    let Node::Reduce { op, .. } = val.node else {
        e.place_value(v, acc);
        return Ok(());
    };
    let kept = kept(e, op, dtype);
    let mut buf = acc;
    if let Carry::Parts(lanes) = carry {
        let width = if across(needed(val, e.sp), outermost(val, e.sp)) { 1 } else { SUM_LANES };
        let lanes = (lanes != acc).then_some((lanes, width));
        buf = Part { state: acc, lanes, dtype: kept }.whole(e, v, mask)?;
    }
    if op == KReduce::Sum && matches!(carry, Carry::Exact) {
        // The state is two planes whose sum is the value: a reduction of two rows.
        let what = "the state of a sum";
        let inner = e.sp.group(&e.sp.dims(mask)).ok_or(Fault::Ragged { value: v as usize, what })?;
        let src = e.local(acc);
        buf = e.tile_buf(mask, kept);
        let dst = e.local(buf);
        let o = Reduce { dst, src, outer: Size::ONE, red: Size::fixed(2), inner, init: Init::Always };
        e.push(v, Opcode::VSum, kept, o);
    }
    let buf = e.convert(v, buf, mask, kept, dtype)?;
    e.place_value(v, buf);
    Ok(())
}

/// The outermost run of a reduction.
pub(crate) fn outermost(val: &Val, sp: &crate::space::Space) -> Mask {
    match val.node {
        Node::Reduce { over, .. } => reduced_runs(needed(val, sp), over).last().unwrap_or(0),
        _ => 0,
    }
}

/// Emits an argmax or argmin; returns the buffers of index and value.
fn arg_reduce(e: &mut Emit<'_>, v: u32, init: Init) -> Result<(u32, u32), Fault> {
    let val = &e.sp.vals[v as usize];
    let Node::ArgReduce { op, x, fold, last } = val.node else {
        return Err(Fault::Malformed { value: v as usize, what: "is no index of an extreme" });
    };
    let from = e.sp.vals[x as usize].dtype;
    let dtype = e.legal.runs_in(Class::Scan, from);
    let need = needed(val, e.sp);
    let (outer, red, inner) = counts(e, v, need, 1 << fold)?;
    let buf = e.tile(x, need)?;
    let buf = e.convert(v, buf, need, from, dtype)?;
    let src = e.local(buf);
    let (at, best) = (e.tile_buf(val.mask, val.dtype), e.tile_buf(val.mask, dtype));
    let (index, value) = (e.local(at), e.local(best));
    let f = &e.sp.folds[usize::from(fold)];
    let mut strides = Strides::new();
    if init == Init::First && f.extent != NONE {
        strides.push((f.extent, i64::from(f.tile)));
    }
    let o = ArgReduce { index, value, src, outer, red, inner, init, base: 0, strides, last };
    e.push(v, op, dtype, o);
    e.place_value(v, at);
    Ok((at, best))
}

/// Emits a running sum; `start` is where the walk's body begins.
fn cum_sum(e: &mut Emit<'_>, v: u32, init: Init, start: Option<u32>) -> Result<(), Fault> {
    let val = &e.sp.vals[v as usize];
    let Node::CumSum { x, fold, exclusive, reverse } = val.node else { return Ok(()) };
    let (dtype, need) = (e.legal.runs_in(Class::Scan, val.dtype), needed(val, e.sp));
    let (outer, red, inner) = counts(e, v, need, 1 << fold)?;
    let buf = e.tile(x, need)?;
    let buf = e.convert(v, buf, need, val.dtype, dtype)?;
    let src = e.local(buf);
    let kept = sum_dtype(dtype);
    let bytes = e.sp.elements(need & !(1 << fold)).saturating_mul(u64::from(kept.size()));
    let held = e.buf(bytes, kept.size(), dvm_bc::Space::Ub);
    let to = e.tile_buf(need, dtype);
    let (carry, dst) = (e.local(held), e.local(to));
    e.push(
        v,
        Opcode::VCumSum,
        dtype,
        CumSum { dst, carry, src, outer, red, inner, init, exclusive, reverse },
    );
    if let Some(start) = start {
        e.out.bufs[held as usize].first = start;
        // The next piece starts from it.
        e.out.bufs[held as usize].last = u32::MAX;
    }
    let to = e.convert(v, to, need, dtype, val.dtype)?;
    e.place_value(v, to);
    Ok(())
}
