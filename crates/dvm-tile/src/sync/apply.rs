//! Links -> head fields and `nop`s.

use dvm_bc::{Control, DType, EncodeError, Event, Inst, Opcode, Pipe, Sync as Head};
use smallvec::SmallVec;

use super::{Link, NO_PART, Section, Sync, Time};
use crate::emit::Emitted;
use crate::report::{Note, Work};

/// Links that start or end at one place.
type Ends = SmallVec<[(Event, Note); 4]>;

impl Sync {
    /// The sections of the template, those included that only carry synchronisation.
    pub(crate) fn list(&self) -> &[Section] {
        &self.sections
    }

    /// Whether the template has this section: it has code, or synchronisation of others.
    pub(crate) fn exists(&self, section: usize) -> bool {
        let s = &self.sections[section];
        s.part != NO_PART
            || self.exit_bars[section] != 0
            || self.links.iter().any(|l| usize::from(l.section) == section)
            || self.drains.iter().any(|&t| (s.entry..=s.exit()).contains(&t))
    }

    /// Calls `push` with each instruction of a section, its synchronisation filled in, and what it is for.
    pub(crate) fn section(
        &self,
        section: usize,
        e: &mut Emitted,
        push: &mut impl FnMut(&Inst, Note) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let s = self.sections[section];
        let drain = |t: Time| self.drains.contains(&t);
        let barrier = Inst::new(Opcode::Barrier, DType::F32, Control {});
        let mut sets = Ends::new();
        for p in Pipe::ALL {
            sets.clear();
            self.ends(e, section, p, s.entry, false, false, &mut sets);
            for &(event, note) in &sets {
                push(&Inst::nop(p, Head { set: Some(event), ..Head::NONE }), note)?;
            }
        }
        if drain(s.entry) {
            push(&barrier, Note::Drain)?;
        }
        let (mut waits, mut back_waits, mut back_sets) = (Ends::new(), Ends::new(), Ends::new());
        for j in s.start as usize..s.end as usize {
            let t = s.time(j);
            if drain(t) {
                push(&barrier, Note::Drain)?;
            }
            let mut head = Head { bar: self.bars[j], ..Head::NONE };
            sets.clear();
            back_sets.clear();
            let pipe = e.insts[j].pipe();
            if let Some(p) = pipe {
                waits.clear();
                back_waits.clear();
                self.ends(e, section, p, t, true, false, &mut waits);
                self.ends(e, section, p, t, true, true, &mut back_waits);
                self.ends(e, section, p, t, false, false, &mut sets);
                self.ends(e, section, p, t, false, true, &mut back_sets);
                let before = waits.len().max(back_waits.len()).saturating_sub(1);
                for k in 0..before {
                    let (w, b) = (waits.get(k), back_waits.get(k));
                    let head = Head { wait: event(w), wait_back: event(b), ..Head::NONE };
                    push(&Inst::nop(p, head), note(w, b))?;
                }
                (head.wait, head.wait_back) = (event(waits.get(before)), event(back_waits.get(before)));
                (head.set, head.set_back) = (event(sets.first()), event(back_sets.first()));
            }
            e.insts[j].sync = head;
            push(&e.insts[j], Note::Value(e.values[j]))?;
            if let Some(p) = pipe {
                for k in 1..sets.len().max(back_sets.len()) {
                    let (f, b) = (sets.get(k), back_sets.get(k));
                    let head = Head { set: event(f), set_back: event(b), ..Head::NONE };
                    push(&Inst::nop(p, head), note(f, b))?;
                }
            }
        }
        if drain(s.exit()) {
            push(&barrier, Note::Drain)?;
        }
        for p in Pipe::ALL {
            waits.clear();
            self.ends(e, section, p, s.exit(), true, false, &mut waits);
            let bar = self.exit_bars[section] >> p as u8 & 1 == 1;
            if bar && waits.is_empty() {
                push(&Inst::nop(p, Head { bar, ..Head::NONE }), Note::Drain)?;
            }
            for (k, &(event, note)) in waits.iter().enumerate() {
                push(&Inst::nop(p, Head { wait: Some(event), bar: bar && k == 0, ..Head::NONE }), note)?;
            }
        }
        Ok(())
    }

    /// The links of pipe `p` that are waited for (or set) at a moment of a section.
    #[allow(clippy::too_many_arguments, reason = "a query with four conditions")]
    fn ends(&self, e: &Emitted, section: usize, p: Pipe, at: Time, waits: bool, back: bool, out: &mut Ends) {
        for l in self.links.iter().filter(|l| usize::from(l.section) == section && l.back == back) {
            let (time, own, peer) = if waits { (l.wait, l.to, l.from) } else { (l.set, l.from, l.to) };
            if time == at
                && own == p as u8
                && let Some(peer) = Pipe::from_number(peer)
            {
                out.push((Event { peer, id: l.id }, self.note(e, l)));
            }
        }
    }

    fn note(&self, e: &Emitted, l: &Link) -> Note {
        let (i, j) = (usize::from(l.cause.0), usize::from(l.cause.1));
        let work = |i: usize| {
            let phase = self.sections[usize::from(self.section_of[i])].phase;
            Work { phase, pipe: e.insts[i].pipe().unwrap_or(Pipe::V) }
        };
        Note::Order { what: work(j), after: work(i), before: i >= j }
    }
}

fn event(end: Option<&(Event, Note)>) -> Option<Event> {
    end.map(|e| e.0)
}

fn note(a: Option<&(Event, Note)>, b: Option<&(Event, Note)>) -> Note {
    a.or(b).map_or(Note::Drain, |e| e.1)
}
