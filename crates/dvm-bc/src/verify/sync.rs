//! Synchronisation that means something: events in range and between pipes of one core, each set once before it is waited for,
//! and every flag as it was found when a section ends.
//!
//! A section is played in program order as if it were executed once only, then as its first, a middle and its last execution of
//! several, because backward slots are idle at the ends. A flag that is up between executions belongs to its section: no other
//! one may touch it. So whatever the number of executions, and whichever sections follow each other, no flag is set twice and no
//! wait lasts for ever. That what conflicts is ordered is another question: the hazard checker's.

use super::operands::Problems;
use super::report::{InstAt, Report, Where};
use crate::{Class, CoreKind, Event, Exchange, Inst, MAX_EVENTS, Opcode, Operands, Pipe, Sync, Target};

const PIPES: usize = Pipe::ALL.len();
const IDS: usize = MAX_EVENTS as usize;
const WORDS: usize = (PIPES * PIPES * IDS).div_ceil(64);

/// The event flags of a core.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Flags([u64; WORDS]);

/// A flag: producer, consumer, number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flag(Pipe, Pipe, u8);

impl Flag {
    fn bit(self) -> (usize, u64) {
        let i = (self.0 as usize * PIPES + self.1 as usize) * IDS + usize::from(self.2) % IDS;
        (i / 64, 1 << (i % 64))
    }
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}->{}.{}", self.0, self.1, self.2)
    }
}

impl Flags {
    fn has(&self, flag: Flag) -> bool {
        let (word, bit) = flag.bit();
        self.0[word] & bit != 0
    }
    fn put(&mut self, flag: Flag, up: bool) {
        let (word, bit) = flag.bit();
        if up { self.0[word] |= bit } else { self.0[word] &= !bit }
    }
    fn add(&mut self, other: &Flags) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }
    fn meets(&self, other: &Flags) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }
}

/// An instruction that waits or sets.
struct Entry {
    pipe: Pipe,
    sync: Sync,
    at: InstAt,
}

impl Entry {
    /// Flags it waits for and sets, forward and backward.
    fn flags(&self) -> [(Option<Flag>, bool, bool); 4] {
        let waits = |e: Option<Event>| e.map(|e| Flag(e.peer, self.pipe, e.id));
        let sets = |e: Option<Event>| e.map(|e| Flag(self.pipe, e.peer, e.id));
        let s = &self.sync;
        [
            (waits(s.wait), false, false),
            (waits(s.wait_back), false, true),
            (sets(s.set), true, false),
            (sets(s.set_back), true, true),
        ]
    }
}

/// An execution of a section among those of one run, and which backward slots it has.
#[derive(Clone, Copy)]
struct Play {
    name: &'static str,
    wait_back: bool,
    set_back: bool,
}

const ONLY: Play = Play { name: "only", wait_back: false, set_back: false };
const FIRST: Play = Play { name: "first", wait_back: false, set_back: true };
const MIDDLE: Play = Play { name: "middle", wait_back: true, set_back: true };
const LAST: Play = Play { name: "last", wait_back: true, set_back: false };

/// The two ends of a cross flag, and the core each is on.
type Ends = [Option<(CoreKind, InstAt)>; 2];

/// Synchronisation of the template so far.
#[derive(Default)]
pub(super) struct SyncState {
    section: Vec<Entry>,
    /// Touched by some earlier section; up between executions of one.
    used: Flags,
    held: Flags,
    cross: [Ends; crate::CROSS_FLAGS as usize],
    crosses: bool,
}

impl SyncState {
    pub(super) fn clear(&mut self) {
        self.section.clear();
        if self.crosses || self.used != Flags::default() {
            *self = SyncState { section: std::mem::take(&mut self.section), ..SyncState::default() };
        }
    }

    /// What an instruction's own synchronisation must be; remembers it for the end of the section, which runs `times` a tile.
    #[inline]
    pub(super) fn inst(&mut self, target: &Target, inst: &Inst, at: InstAt, times: u64, bad: &mut Problems) {
        if !inst.sync.is_none() || inst.op.class() == Class::Control {
            self.synchronised(target, inst, at, times, bad);
        }
    }

    fn synchronised(&mut self, target: &Target, inst: &Inst, at: InstAt, times: u64, bad: &mut Problems) {
        if let (Operands::Cross(o), Some(flag)) = (&inst.operands, cross_flag(inst)) {
            self.crosses = true;
            if !target.separate_cube() || !target.async_pipes {
                bad.push("a cross flag, but the target has no separate cube cores".to_owned());
            } else if times != 1 {
                bad.push(format!("a cross flag in a section that runs {times} times a tile, not once"));
            } else {
                let end = &mut self.cross[flag][usize::from(inst.op == Opcode::XWait)];
                if end.is_some() {
                    bad.push(format!("flag {flag} has another {} in the tile", inst.op.mnemonic()));
                }
                *end = Some((o.pipe.core(), at));
            }
        }
        if inst.sync.is_none() {
            return;
        }
        if !target.async_pipes {
            bad.push("has events, but the target's pipes are in order".to_owned());
            return;
        }
        let Some(pipe) = inst.pipe() else {
            bad.push("has events, but no pipe of its own".to_owned());
            return;
        };
        let mut sound = true;
        for (name, event) in Sync::NAMES.into_iter().zip(inst.sync.slots()) {
            let Some(e) = event else { continue };
            if u32::from(e.id) >= target.events {
                bad.push(format!("`{name} {e}`: the target has {} events a pair of pipes", target.events));
                sound = false;
            }
            if e.peer == pipe {
                bad.push(format!("`{name} {e}`: both ends are on one pipe, which `bar` is for"));
                sound = false;
            } else if target.separate_cube() && e.peer.core() != pipe.core() {
                bad.push(format!("`{name} {e}`: {pipe} and {} are of different cores", e.peer));
                sound = false;
            }
        }
        if sound && inst.sync.slots() != Sync::NONE.slots() {
            self.section.push(Entry { pipe, sync: inst.sync, at });
        }
    }

    /// After a section: every flag is as it was.
    pub(super) fn section(&mut self, report: &mut Report) {
        if self.section.is_empty() {
            return;
        }
        let (mut used, mut held) = (Flags::default(), Flags::default());
        for (flag, ..) in self.section.iter().flat_map(Entry::flags) {
            if let Some(flag) = flag {
                used.put(flag, true);
            }
        }
        let mut down = Flags::default();
        let sound = self.play(ONLY, &mut down, &Flags::default(), report)
            && self.play(FIRST, &mut held, &MANY, report)
            && {
                let mut after = held;
                self.play(MIDDLE, &mut after, &held, report)
            }
            && {
                let mut after = held;
                self.play(LAST, &mut after, &Flags::default(), report)
            };
        if sound && (used.meets(&self.held) || held.meets(&self.used)) {
            self.shared(&held, report);
        }
        self.used.add(&used);
        self.held.add(&held);
        self.section.clear();
    }

    /// Plays one execution from `flags` on, which must end as `expected` says ([`MANY`]: in any way). Says at most one thing.
    fn play(&self, play: Play, flags: &mut Flags, expected: &Flags, report: &mut Report) -> bool {
        let idle = |set: bool, back: bool| back && !(if set { play.set_back } else { play.wait_back });
        for e in &self.section {
            for (flag, set, back) in e.flags() {
                let Some(flag) = flag else { continue };
                if idle(set, back) {
                    continue;
                }
                if flags.has(flag) == set {
                    let what = if set { "sets it again" } else { "waits for it, but nothing has set it" };
                    let name = play.name;
                    report.push(
                        Where::Inst(e.at),
                        format!("event {flag}: {what} (the section's {name} execution)"),
                    );
                    return false;
                }
                flags.put(flag, set);
            }
        }
        if *expected == MANY || flags == expected {
            return true;
        }
        let unlike = self.section.iter().rev().find_map(|e| {
            let differs = |f: &Flag| flags.has(*f) != expected.has(*f);
            e.flags().into_iter().filter_map(|f| f.0).find(differs).map(|f| (e.at, f))
        });
        if let Some((at, flag)) = unlike {
            let state = if flags.has(flag) { "is left set" } else { "is left cleared" };
            report.push(
                Where::Inst(at),
                format!("event {flag}: {state} after the section's {} execution", play.name),
            );
        }
        false
    }

    /// Says which flag is up while another section uses it.
    #[cold]
    fn shared(&self, held: &Flags, report: &mut Report) {
        for e in &self.section {
            for flag in e.flags().into_iter().filter_map(|f| f.0) {
                if self.held.has(flag) || (held.has(flag) && self.used.has(flag)) {
                    report.push(
                        Where::Inst(e.at),
                        format!("event {flag}: a link between executions of one section, which another section uses too"),
                    );
                    return;
                }
            }
        }
    }

    /// After the template: each cross flag has two ends, on cores of different kinds.
    pub(super) fn finish(&self, report: &mut Report) {
        if !self.crosses {
            return;
        }
        for (flag, ends) in self.cross.iter().enumerate() {
            match ends {
                [Some((_, at)), None] => {
                    report.push(Where::Inst(*at), format!("flag {flag} is set, but nothing waits for it"));
                }
                [None, Some((_, at))] => {
                    report.push(Where::Inst(*at), format!("flag {flag} is waited for, but nothing sets it"));
                }
                [Some((a, _)), Some((b, at))] if a == b => {
                    report.push(Where::Inst(*at), format!("flag {flag}: both ends are on cores of one kind"));
                }
                _ => {}
            }
        }
    }
}

/// Any state: more flags than there are.
const MANY: Flags = Flags([u64::MAX; WORDS]);

fn cross_flag(inst: &Inst) -> Option<usize> {
    match &inst.operands {
        Operands::Cross(o) if o.flag < crate::CROSS_FLAGS => Some(usize::from(o.flag)),
        _ => None,
    }
}

/// Whether the target has what an instruction needs, apart from dtypes.
#[inline]
pub(super) fn unit(target: &Target, inst: &Inst, bad: &mut Problems) {
    if inst.op == Opcode::AccToUb && target.separate_cube() && target.exchange == Exchange::Memory {
        bad.push("hands a tile to the vector core, but the target exchanges through memory".to_owned());
    }
    if inst.op == Opcode::PackA && target.separate_cube() {
        bad.push("packs an operand of a cube core that shares no memory with the vector core".to_owned());
    }
    if !target.legal.is_empty() && inst.op.class() != Class::Control {
        let from = match &inst.operands {
            Operands::Cast(o) => o.from,
            _ => inst.dtype,
        };
        for dtype in [inst.dtype, from].into_iter().take(1 + usize::from(from != inst.dtype)) {
            if !target.is_legal(inst.op.class(), dtype) {
                bad.push(format!("the target has no {} of {dtype}", inst.op.class().name()));
            }
        }
    }
}
