//! Which elementwise instructions run strip by strip, and which groups of rows a few at a time.

use std::ops::Range;

use dvm_bc::{Class, Init, Mode, Operands, Size};
use smallvec::SmallVec;

use super::elide::{Analysis, bits};
use super::uses::Elementwise;

/// Elements of a block of rows.
const BLOCK: u64 = 2048;

impl Analysis<'_> {
    /// Joins elementwise instructions to runs, and finds what lives inside a strip.
    pub(super) fn runs(&mut self, section: Range<usize>, live: &[u64]) {
        let from = section.start;
        let mut run = Run::default();
        for i in section {
            if self.plan.steps[i].skip || self.insts[i].op.class() == Class::Control {
                continue;
            }
            let elementwise = matches!(&self.plan.ews[i], Some(e) if !e.traps);
            let joins = elementwise && self.joins(&run, i);
            if !joins {
                self.close(&run, live, from);
                run = Run::default();
            }
            if elementwise {
                self.plan.steps[i].joins = joins;
                run.members.push(i);
                let a = &self.plan.access[i];
                run.writes |= a.writes;
                run.full_reads |= a.full;
                run.part_reads |= a.part();
            }
        }
        self.close(&run, live, from);
    }

    fn meets(&self, buffers: u64) -> u64 {
        bits(buffers).fold(0, |m, i| m | self.plan.buffers[i].meets)
    }

    /// Whether an instruction may run strip by strip with those of a run: it sees only elements that earlier ones have
    /// computed, and overwrites none that they still need. So what it has in common with them are whole tiles of the same
    /// elements: a buffer of the same bytes, hence, over the same counts, of the same element size.
    fn joins(&self, run: &Run, at: usize) -> bool {
        let Some(&first) = run.members.first() else { return false };
        match (&self.plan.ews[first], &self.plan.ews[at]) {
            (Some(f), Some(e)) if (f.rows, f.cols) == (e.rows, e.cols) => {}
            _ => return false,
        }
        let a = &self.plan.access[at];
        let dst = a.writes;
        let over = self.meets(dst);
        self.meets(a.part()) & run.writes == 0
            && bits(a.full).all(|b| self.plan.buffers[b].meets & run.writes & !(1 << b) == 0)
            && over & (run.writes | run.full_reads) & !dst == 0
            && over & run.part_reads == 0
    }

    /// Marks results of a finished run that are dead after it, and reads of them.
    fn close(&mut self, run: &Run, live: &[u64], from: usize) {
        let Some(&last) = run.members.last() else { return };
        if run.members.len() < 2 {
            return;
        }
        let live = self.meets(live[last - from]);
        // Buffers written in the run so far that nobody reads after it. Their strip lies where the buffer begins: if the run
        // also read the buffer as it was before, it has read that part of it by then.
        let mut inside = 0u64;
        for &i in &run.members {
            let a = &self.plan.access[i];
            let dst = a.writes;
            if let (Some(e), true) = (&self.plan.ews[i], inside & a.full != 0) {
                for (s, source) in e.sources.iter().enumerate() {
                    if let &Some((local, Mode::Full, _)) = source
                        && inside & a.source[s] != 0
                        && self.plan.bound_source(i, s, local).is_none()
                    {
                        self.plan.steps[i].private |= 1 << s;
                    }
                }
            }
            if self.plan.steps[i].result.is_some() {
                inside &= !dst;
            } else if dst & live == 0 {
                self.plan.steps[i].private |= 1 << 3;
                inside |= dst;
            }
        }
    }

    /// Groups runs and reductions that work row by row on the same rows, where a tile has more than a strip's elements: they
    /// run for a few rows at a time. The conditions are those of a run, with rows for elements.
    pub(super) fn groups(&mut self, section: Range<usize>, live: &[u64]) {
        let mut group = Group::default();
        let mut i = section.start;
        while i < section.end {
            if self.plan.steps[i].skip || self.insts[i].op.class() == Class::Control {
                i += 1;
                continue;
            }
            let from = i;
            let item = match (&self.insts[i].operands, &self.plan.ews[i]) {
                (Operands::Reduce(o), _) if o.init == Init::Always => {
                    i += 1;
                    let a = self.plan.access[from];
                    let width = u64::from(o.red.body) * u64::from(o.inner.body);
                    Some(Group {
                        rows: o.outer,
                        width,
                        whole: a.reads,
                        part: 0,
                        writes: a.writes,
                        ..Group::default()
                    })
                }
                (_, Some(e)) if !e.traps => {
                    let upright = self.stands(&group, i, e);
                    let (rows, width) = if upright { (e.cols, 1) } else { (e.rows, u64::from(e.cols.body)) };
                    let mut item = Group { rows, width, upright, ..Group::default() };
                    loop {
                        if self.plan.ews[i].is_some() {
                            let a = &self.plan.access[i];
                            item.whole |= a.full | a.col;
                            item.part |= a.rest;
                            item.writes |= a.writes;
                            item.last = Some(i);
                        }
                        i += 1;
                        let more = |i: usize| {
                            let s = &self.plan.steps[i];
                            s.joins || s.skip || self.insts[i].op.class() == Class::Control
                        };
                        if i == section.end || !more(i) {
                            break;
                        }
                    }
                    Some(item)
                }
                _ => {
                    i += 1;
                    None
                }
            };
            match item {
                Some(item) if self.follows(&group, &item) => {
                    self.fold(&group, from, live[from - section.start]);
                    if item.upright {
                        (from..i).for_each(|i| self.plan.steps[i].upright = true);
                    }
                    group.add(&item, from, i);
                }
                Some(item) => {
                    self.mark(&group);
                    group = Group::default();
                    group.add(&item, from, i);
                }
                None => {
                    self.mark(&group);
                    group = Group::default();
                }
            }
        }
        self.mark(&group);
    }

    /// Whether a run of one row has an element for each row of a group, from whole tiles and single elements: values of the
    /// rows, computed between reductions.
    fn stands(&self, group: &Group, at: usize, e: &Elementwise) -> bool {
        let plain = |e: &Elementwise| {
            e.sources.iter().all(|s| matches!(s, None | Some((_, Mode::Full | Mode::One, _))))
        };
        if group.items == 0 || e.rows != Size::ONE || e.cols != group.rows || !plain(e) {
            return false;
        }
        let rest = at + 1..self.insts.len();
        let run = rest.take_while(|&i| {
            let s = self.plan.steps[i];
            s.joins || s.skip || self.insts[i].op.class() == Class::Control
        });
        run.filter_map(|i| self.plan.ews[i].as_ref()).all(plain)
    }

    /// Notes that a reduction of rows follows the run that computes them.
    fn fold(&mut self, group: &Group, at: usize, live: u64) {
        let (Operands::Reduce(o), Some(last)) = (&self.insts[at].operands, group.last) else { return };
        let source = self.plan.access[at].reads;
        if self.plan.access[last].writes == source
            && self.plan.steps[last].result.is_none()
            && o.inner == Size::ONE
            && self.plan.ews[last].is_some_and(|e| (e.rows, e.cols) == (o.outer, o.red))
        {
            self.plan.steps[at].folds = Some(self.meets(source) & live != 0);
        }
    }

    /// Whether an item may run by rows with a group; see [`Analysis::joins`].
    fn follows(&self, group: &Group, item: &Group) -> bool {
        group.items > 0
            && group.rows == item.rows
            && self.meets(item.part) & group.writes == 0
            && bits(item.whole).all(|b| self.plan.buffers[b].meets & group.writes & !(1 << b) == 0)
            && bits(item.writes)
                .all(|b| self.plan.buffers[b].meets & (group.writes | group.whole) & !(1 << b) == 0)
            && self.meets(item.writes) & group.part == 0
    }

    fn mark(&mut self, group: &Group) {
        let block = (BLOCK / group.width.max(1)).max(1);
        if group.items < 2 || u64::from(group.rows.body) <= block {
            return;
        }
        for i in group.first..group.end {
            self.plan.steps[i].by_rows = true;
        }
        self.plan.steps[group.first].rows = Some((group.rows, block as u32));
    }
}

/// Instructions that work on the same rows, so far.
struct Group {
    items: u32,
    /// The item is a row of elements that stands for a column.
    upright: bool,
    /// The last instruction of the last item, if elementwise.
    last: Option<usize>,
    first: usize,
    end: usize,
    rows: Size,
    /// Elements of the widest row.
    width: u64,
    /// Buffers of which row r reads row r.
    whole: u64,
    /// Buffers read otherwise.
    part: u64,
    writes: u64,
}

impl Default for Group {
    fn default() -> Group {
        let (items, upright, last) = (0, false, None);
        Group {
            items,
            upright,
            last,
            first: 0,
            end: 0,
            rows: Size::ONE,
            width: 0,
            whole: 0,
            part: 0,
            writes: 0,
        }
    }
}

impl Group {
    fn add(&mut self, item: &Group, from: usize, to: usize) {
        if self.items == 0 {
            self.first = from;
            self.rows = item.rows;
        }
        self.items += 1;
        self.last = item.last;
        self.end = to;
        self.width = self.width.max(item.width);
        self.whole |= item.whole;
        self.part |= item.part;
        self.writes |= item.writes;
    }
}

/// Elementwise instructions that run strip by strip, so far.
#[derive(Default)]
struct Run {
    members: SmallVec<[usize; 32]>,
    writes: u64,
    full_reads: u64,
    part_reads: u64,
}
