//! Which elementwise operations of a run are joined to one sweep, and that sweep.
//!
//! An operation whose result only the next one takes hands it over in registers, where there is code for the two together
//! ([`crate::math::chain`]). A run's operations see whole tiles of the same elements only (`Analysis::joins`), so any number of
//! elements may pass through all of them before the next ones do. A sum of the rows at the end of a run joins it under the
//! conditions of a group by rows (`Analysis::follows`).

use dvm_bc::layout::SUM_BLOCK_X;
use dvm_bc::{DType, Inst, Opcode, Operands};

use super::frame::Frame;
use super::step::STRIP;
use super::{Ew, FoldTo};
use crate::Isa;
use crate::kernels::reduce::What;
use crate::math::{
    CHAIN_MOST as MOST, ChainFn, ChainSpan as Span, Lanes64, SQUARE, chain, chain_begins, chain_sum,
    link_code, two_sum_step,
};

/// How far a reader of a result is looked for; beyond, one is assumed.
const LOOK: usize = 64;
/// Elements of a block of a sum along a row: a whole number of strips.
const BLOCK: usize = SUM_BLOCK_X as usize;

/// How an elementwise operation takes part in a chain.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The instruction, where it may be a link.
    op: Option<Opcode>,
    /// The source that is the running value.
    x: u8,
    /// The source that is the other operand; none if 3.
    other: u8,
    /// Operations of the chain that begins here; 0 where none does.
    pub(super) len: u8,
    /// Something in the chain lives inside a strip.
    strip: bool,
    /// The value behind the first link is stored too.
    save: bool,
    /// The result goes past the caches.
    pub(super) stream: bool,
    run: Option<ChainFn>,
}

impl Part {
    pub(crate) const NONE: Part =
        Part { op: None, x: 0, other: 3, len: 0, strip: false, save: false, stream: false, run: None };

    /// For an instruction: a link if it is one on f32.
    pub(super) fn of(inst: &Inst) -> Part {
        let link = inst.dtype == DType::F32
            && matches!(inst.operands, Operands::Unary(_) | Operands::Binary(_))
            && link_code(inst.op, 0, true).is_some();
        Part { op: link.then_some(inst.op), ..Part::NONE }
    }
}

/// A sequence of links.
#[derive(Clone, Copy, Default)]
struct Chain {
    codes: [u8; MOST],
    /// Source that is the running value, and the other one.
    sources: [(u8, u8); MOST],
    len: usize,
    /// It is to end in a sum.
    sum: bool,
}

impl Chain {
    /// Adds the operation behind those of the chain, or at its beginning.
    fn add(&mut self, before: Option<&Ew>, e: &Ew) -> bool {
        let (Some(op), true) = (e.part.op, self.len < MOST) else { return false };
        let sources = usize::from(e.sources);
        let run = |i: usize| e.steps >> i & 1 != 0;
        let same = sources == 2
            && run(0)
            && run(1)
            && (e.place[0], e.row_step[0], e.private & 1) == (e.place[1], e.row_step[1], e.private >> 1 & 1);
        let given = |i: usize| before.is_none_or(|b| is_result(b, e, i));
        let Some(x) = (0..sources).find(|&i| run(i) && given(i)) else { return false };
        let (code, other) = if same && op == Opcode::VMul {
            (Some(SQUARE), 3)
        } else if same {
            return false;
        } else if sources == 1 {
            (link_code(op, 0, false), 3)
        } else {
            let other = 1 - x;
            // The value before this chain is gone once the chain has passed.
            if before.is_some_and(|b| is_result(b, e, other)) {
                return false;
            }
            (link_code(op, x, !run(other)), other)
        };
        let Some(code) = code else { return false };
        if self.len == 1 && !self.sum && !chain_begins(self.codes[0], code) {
            return false;
        }
        self.codes[self.len] = code;
        self.sources[self.len] = (x as u8, other as u8);
        self.len += 1;
        true
    }

    /// The first `n` links.
    fn head(&self, n: usize) -> [u8; MOST] {
        std::array::from_fn(|i| if i < n { self.codes[i] } else { 0 })
    }
}

/// Whether source `i` of an operation is the result of `last`.
fn is_result(last: &Ew, e: &Ew, i: usize) -> bool {
    e.steps >> i & 1 != 0
        && e.place[i] == last.place[3]
        && e.row_step[i] == last.row_step[3]
        && e.private >> i & 1 == last.private >> 3 & 1
}

/// Whether anybody but `next` needs the result of `last`: somebody in the run, or outside of it where it is not private.
fn read_later(last: &Ew, next: &Ew, later: &[Ew]) -> bool {
    let (place, private) = (last.place[3], last.private >> 3 & 1);
    let gone = |e: &Ew| e.place[3] == place && e.private >> 3 & 1 == private;
    if gone(next) {
        return false;
    }
    for e in later.iter().take(LOOK) {
        if (0..usize::from(e.sources)).any(|i| e.place[i] == place) {
            return true;
        }
        if gone(e) {
            return false;
        }
    }
    private == 0 || later.len() > LOOK
}

/// Links that lead to the last operation of a run and end in a sum: the code, how many, and whether the first is also stored.
fn sum_of(ews: &[Ew], isa: Isa) -> Option<(Chain, ChainFn, bool)> {
    let (last, before) = ews.split_last()?;
    if let Some(first) = before.last() {
        let mut two = Chain { sum: true, ..Chain::default() };
        if two.add(None, first) && two.add(Some(first), last) {
            let save = read_later(first, last, &[]);
            if let Some(run) = chain_sum(two.codes, save, isa) {
                return Some((two, run, save));
            }
        }
    }
    let mut one = Chain::default();
    if !one.add(None, last) {
        return None;
    }
    chain_sum(one.codes, false, isa).map(|run| (one, run, false))
}

/// Whether a sum of the rows may join a run.
pub(super) fn may_fold(what: What, dtype: DType, ews: &[Ew], isa: Isa) -> bool {
    (what, dtype) == (What::Sum, DType::F32) && sum_of(ews, isa).is_some()
}

/// Joins the operations of a run. It ends in a sum if `folds`.
pub(super) fn join(ews: &mut [Ew], folds: bool, isa: Isa) {
    let mut end = ews.len();
    if folds && let Some((links, run, save)) = sum_of(ews, isa) {
        end -= links.len;
        set(&mut ews[end..], &links, run, save);
    }
    let mut first = 0;
    while first < end {
        let mut links = Chain::default();
        let mut before = None;
        while first + links.len < end && links.add(before, &ews[first + links.len]) {
            let at = first + links.len;
            let last = &ews[at - 1];
            before = Some(last);
            // What others need is stored, and ends the chain.
            if at == ews.len() || read_later(last, &ews[at], &ews[at + 1..]) {
                break;
            }
        }
        // The longest there is code for; one alone has better code but for stores past the caches.
        let least = if ews[first].part.stream { 1 } else { 2 };
        let found = (least..=links.len).rev().find_map(|n| chain(links.head(n), isa).map(|run| (n, run)));
        if let Some((n, run)) = found {
            links.len = n;
            set(&mut ews[first..first + n], &links, run, false);
            first += n;
        } else {
            first += 1;
        }
    }
}

/// Makes these operations one chain.
fn set(ews: &mut [Ew], links: &Chain, run: ChainFn, save: bool) {
    let n = ews.len();
    let mut strip = ews[n - 1].private >> 3 & 1 != 0 || (save && ews[0].private >> 3 & 1 != 0);
    for (k, (e, &(x, other))) in ews.iter_mut().zip(&links.sources).enumerate() {
        (e.part.x, e.part.other) = (x, other);
        strip |= k == 0 && e.private >> x & 1 != 0;
        strip |= other < 3 && e.private >> other & 1 != 0;
    }
    let part = &mut ews[0].part;
    (part.len, part.strip, part.save, part.run) = (n as u8, strip, save, Some(run));
}

/// A chain with its operands resolved, and the bytes to those of the next row.
struct Ready {
    run: ChainFn,
    span: Span,
    x_row: u32,
    rows: [u32; MOST],
    dst_row: u32,
    save_row: u32,
}

impl Ready {
    fn next_row(&mut self) {
        let s = &mut self.span;
        s.x = s.x.wrapping_byte_add(self.x_row as usize);
        for (p, row) in s.at.iter_mut().zip(self.rows) {
            *p = p.wrapping_byte_add(row as usize);
        }
        s.dst = s.dst.wrapping_byte_add(self.dst_row as usize);
        s.save = s.save.wrapping_byte_add(self.save_row as usize);
    }
}

/// The state of a sum of a row: block totals are added as in `kernels::reduce`.
struct Row {
    lanes: Lanes64,
    state: (f32, f32),
}

impl Row {
    fn new() -> Row {
        Row { lanes: Lanes64::ZERO, state: (0.0, 0.0) }
    }

    /// Ends a block.
    fn block(&mut self) {
        let total = self.lanes.total();
        self.state = two_sum_step(self.state.0, self.state.1, total);
        self.lanes = Lanes64::ZERO;
    }
}

impl Frame {
    /// A chain's operands at row `r` and element `at` of it; `fold` says where its row is needed.
    #[inline]
    fn ready(&self, ews: &[Ew], r: usize, at: usize, n: usize) -> Ready {
        let (head, tail) = (&ews[0], &ews[ews.len() - 1]);
        let place = |e: &Ew, i: usize| {
            let base = self.at(e.place[i]);
            if e.private >> i & 1 != 0 {
                return base.cast::<f32>();
            }
            let along = if i == 3 || e.steps >> i & 1 != 0 { at * 4 } else { 0 };
            base.wrapping_add(r * e.row_step[i] as usize + along).cast::<f32>()
        };
        let x = usize::from(head.part.x);
        let none: *mut f32 = std::ptr::null_mut();
        let mut ready = Ready {
            run: head.part.run.unwrap_or(nothing),
            span: Span {
                x: place(head, x),
                at: [none.cast_const(); MOST],
                dst: place(tail, 3),
                save: if head.part.save { place(head, 3) } else { none },
                n,
                lanes: std::ptr::null_mut(),
                stream: tail.part.stream,
            },
            x_row: head.row_step[x],
            rows: [0; MOST],
            dst_row: tail.row_step[3],
            save_row: if head.part.save { head.row_step[3] } else { 0 },
        };
        for (k, e) in ews.iter().enumerate().take(MOST) {
            let other = usize::from(e.part.other);
            if other < 3 {
                ready.span.at[k] = place(e, other);
                ready.rows[k] = e.row_step[other];
            }
        }
        ready
    }

    /// A run that is one chain and keeps nothing in strips, a row at a time.
    ///
    /// # Safety
    /// As for [`Frame::step`].
    unsafe fn sweep(&self, ews: &[Ew], rows: std::ops::Range<usize>, cols: usize, fold: Option<&FoldTo>) {
        let mut ready = self.ready(ews, rows.start, 0, cols);
        for r in rows {
            // SAFETY: rules local, argument (bound operands), apart.
            unsafe {
                match fold {
                    None => (ready.run)(&ready.span),
                    Some(to) => {
                        let mut row = Row::new();
                        let mut at = 0;
                        while at < cols {
                            let n = (cols - at).min(BLOCK);
                            let mut piece = self.ready(ews, r, at, n).span;
                            piece.lanes = &raw mut row.lanes;
                            if !to.keep {
                                piece.dst = std::ptr::null_mut();
                            }
                            (ready.run)(&piece);
                            row.block();
                            at += n;
                        }
                        self.folded(to, r).write(row.state.0 + row.state.1);
                        continue;
                    }
                }
            }
            ready.next_row();
        }
    }

    /// Where the sum of row `r` goes.
    fn folded(&self, to: &FoldTo, r: usize) -> *mut f32 {
        self.at(to.dst).cast::<f32>().wrapping_add(r)
    }

    /// Several elementwise operations over the same counts, strip by strip, so that what one computes is still in L1
    /// for the next.
    ///
    /// # Safety
    /// As for [`Frame::step`].
    pub(super) unsafe fn strips(&self, ews: &[Ew], fold: Option<&FoldTo>) {
        let Some(head) = ews.first() else { return };
        let (first, mut rows, cols) = self.spans(head, fold.is_none() && ews.iter().all(|e| e.flat));
        if fold.is_some() {
            // Rows without elements have a sum too.
            rows = head.rows.get(self.last).min(self.rows.1).saturating_sub(first);
        }
        if usize::from(head.part.len) == ews.len() && !head.part.strip {
            // SAFETY: the caller's promise.
            return unsafe { self.sweep(ews, first..first + rows, cols, fold) };
        }
        for r in first..first + rows {
            let mut row = fold.map(|_| Row::new());
            let mut at = 0;
            while at < cols {
                let n = (cols - at).min(STRIP);
                // SAFETY: the caller's promise.
                unsafe { self.strip(ews, (r, at, n), fold.is_some_and(|f| !f.keep), row.as_mut()) };
                at += n;
                if let Some(row) = row.as_mut()
                    && (at.is_multiple_of(BLOCK) || at == cols)
                {
                    row.block();
                }
            }
            if let (Some(to), Some(row)) = (fold, row) {
                // SAFETY: rules local, apart.
                unsafe { self.folded(to, r).write(row.state.0 + row.state.1) };
            }
        }
    }

    /// Elements `at .. at + n` of row `r` through all operations of a run; the last result is not stored if `drop`.
    unsafe fn strip(
        &self,
        ews: &[Ew],
        (r, at, n): (usize, usize, usize),
        drop: bool,
        mut row: Option<&mut Row>,
    ) {
        let mut rest = ews;
        while let [ew, tail @ ..] = rest {
            let len = usize::from(ew.part.len);
            if len > 0 && len <= rest.len() {
                let mut ready = self.ready(&rest[..len], r, at, n);
                if let (Some(row), true) = (row.as_deref_mut(), len == rest.len()) {
                    ready.span.lanes = &raw mut row.lanes;
                    if drop {
                        ready.span.dst = std::ptr::null_mut();
                    }
                }
                // SAFETY: rules local, argument (bound operands), apart; a private operand has room for a strip.
                unsafe { (ready.run)(&ready.span) };
                rest = &rest[len..];
                continue;
            }
            let p: [*mut u8; 4] = std::array::from_fn(|i| {
                let base = self.at(ew.place[i]);
                if ew.private >> i & 1 != 0 {
                    return base;
                }
                let step = i == 3 || ew.steps >> i & 1 != 0;
                let along = if step { at * ew.size[i] as usize } else { 0 };
                base.wrapping_add(r * ew.row_step[i] as usize + along)
            });
            // SAFETY: as above; rule local: a private operand has room for a strip, which is no longer than a row.
            unsafe { ew.span(p[3], &[p[0], p[1], p[2]], n) };
            rest = tail;
        }
    }
}

/// The chain of nothing.
unsafe fn nothing(_: &Span) {}
