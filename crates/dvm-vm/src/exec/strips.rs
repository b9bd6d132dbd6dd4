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
            let e = self.plan.ews[i].filter(|e| !e.traps);
            let joins = e.is_some_and(|e| self.joins(&run, i, &e));
            if !joins {
                self.close(&run, live, from);
                run = Run::default();
            }
            if let Some(e) = e {
                self.plan.steps[i].joins = joins;
                run.members.push(i);
                run.writes |= self.plan.access[i].writes;
                let (full, part) = self.reads(i, &e);
                run.full_reads |= full;
                run.part_reads |= part;
            }
        }
        self.close(&run, live, from);
    }

    /// Buffers read as whole tiles, and otherwise.
    fn reads(&self, at: usize, e: &Elementwise) -> (u64, u64) {
        let (mut full, mut part) = (0, 0);
        for (source, bit) in e.sources.iter().zip(self.plan.access[at].source) {
            match source {
                Some((_, Mode::Full, _)) => full |= bit,
                _ => part |= bit,
            }
        }
        (full, part)
    }

    fn meets(&self, buffers: u64) -> u64 {
        bits(buffers).fold(0, |m, i| m | self.plan.buffers[i].meets)
    }

    /// Whether an instruction may run strip by strip with those of a run: it sees only elements that earlier ones have
    /// computed, and overwrites none that they still need. So what it has in common with them are whole tiles of the same
    /// elements: a buffer of the same bytes, hence, over the same counts, of the same element size.
    fn joins(&self, run: &Run, at: usize, e: &Elementwise) -> bool {
        let Some(&first) = run.members.first() else { return false };
        if self.plan.ews[first].is_none_or(|f| (f.rows, f.cols) != (e.rows, e.cols)) {
            return false;
        }
        let (full, part) = self.reads(at, e);
        let dst = self.plan.access[at].writes;
        self.meets(part) & run.writes == 0
            && bits(full).all(|b| self.plan.buffers[b].meets & run.writes & !(1 << b) == 0)
            && self.meets(dst) & (run.writes | run.full_reads) & !dst == 0
            && self.meets(dst) & run.part_reads == 0
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
            let Some(e) = self.plan.ews[i] else { continue };
            for (s, source) in e.sources.iter().enumerate() {
                if matches!(source, Some((_, Mode::Full, _))) && inside & self.plan.access[i].source[s] != 0 {
                    self.plan.steps[i].private |= 1 << s;
                }
            }
            let dst = self.plan.access[i].writes;
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
    pub(super) fn groups(&mut self, section: Range<usize>) {
        let mut group = Group::default();
        let mut i = section.start;
        while i < section.end {
            if self.plan.steps[i].skip || self.insts[i].op.class() == Class::Control {
                i += 1;
                continue;
            }
            let from = i;
            let item = match (&self.insts[i].operands, self.plan.ews[i]) {
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
                    let mut item = Group { rows: e.rows, width: u64::from(e.cols.body), ..Group::default() };
                    loop {
                        if let Some(e) = self.plan.ews[i] {
                            for (source, bit) in e.sources.iter().zip(self.plan.access[i].source) {
                                match source {
                                    Some((_, Mode::Full | Mode::Col, _)) => item.whole |= bit,
                                    _ => item.part |= bit,
                                }
                            }
                            item.writes |= self.plan.access[i].writes;
                        }
                        i += 1;
                        let more = |i: usize| {
                            let s = self.plan.steps[i];
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
                Some(item) if self.follows(&group, &item) => group.add(&item, from, i),
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
        Group { items: 0, first: 0, end: 0, rows: Size::ONE, width: 0, whole: 0, part: 0, writes: 0 }
    }
}

impl Group {
    fn add(&mut self, item: &Group, from: usize, to: usize) {
        if self.items == 0 {
            self.first = from;
            self.rows = item.rows;
        }
        self.items += 1;
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
