//! Happens-before over the queues of a window, as vector clocks.
//!
//! A clock says, for each queue, how many of its first instructions have surely finished. That is all there is to know: a
//! queue tells of an instruction's end by an event that also waits for all earlier ones, or by draining. One pass in program order
//! finds each execution's clock; it also plays the flags, whose sets and waits must alternate in program order, and each
//! set must follow the wait before it: then the n-th wait takes the n-th set in every schedule, and nothing can block.

use super::access::Static;
use super::report::SyncPart;
use super::window::{NONE, Node, Window};

/// What a pass finds. Numbers are nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// `first` need not have finished when `second` starts.
    Unordered { first: u32, second: u32, pair: u32 },
    /// The flag is not set.
    Deadlock { node: u32, part: SyncPart },
    /// The flag may still be set; `wait` does not surely come before.
    Double { node: u32, part: SyncPart, wait: Option<u32> },
    /// The flag is not as it was.
    Leftover { node: u32, part: SyncPart },
}

#[derive(Clone, Copy)]
struct Flag {
    set: bool,
    /// Who set it and who waited for it last; [`NOBODY`] before.
    setter: (u32, SyncPart),
    waiter: u32,
}

const NOBODY: u32 = u32::MAX;
const UNSET: Flag = Flag { set: false, setter: (NOBODY, SyncPart::Inst), waiter: NOBODY };

/// Reused between passes.
#[derive(Default)]
pub(super) struct Scratch {
    /// Per queue, the clock of the last issued instruction; then the flags' clocks.
    clocks: Vec<u32>,
    counts: Vec<u32>,
    flags: Vec<Flag>,
    clock: Vec<u32>,
}

/// An event as used: the setting node and the waiting node, with the parts of their heads.
pub(super) type Link = ((u32, SyncPart), (u32, SyncPart));

/// Goes through the window without the synchronisation in `off` (bits of [`SyncPart`], per instruction). Ends early when
/// `found` says so; tells `link` of each set that a wait takes.
pub(super) fn pass(
    w: &Window,
    list: &[Static],
    off: &[u8],
    s: &mut Scratch,
    found: &mut dyn FnMut(Found) -> bool,
    link: &mut dyn FnMut(Link),
) {
    let lanes = w.shape.lanes();
    s.clocks.clear();
    s.clocks.resize((lanes + w.flags) * lanes, 0);
    s.counts.clear();
    s.counts.resize(lanes, 0);
    s.flags.clear();
    s.flags.resize(w.flags, UNSET);
    s.clock.resize(lanes, 0);
    for &f in &w.free {
        s.flags[usize::from(f)].set = true;
    }
    let mut p = Player { w, lanes, s };
    let mut needs = 0;
    for (n, node) in w.nodes.iter().enumerate() {
        let (n, first_need) = (n as u32, needs);
        needs = w.ends[n as usize] as usize;
        let (inst, off) = (&list[node.inst as usize], off[node.inst as usize]);
        if node.lane == NONE {
            if inst.op == dvm_bc::Opcode::Barrier && off & SyncPart::Inst.bit() == 0 {
                p.barrier(node);
            }
            continue;
        }
        let lane = usize::from(node.lane);
        let cross = if off & SyncPart::Inst.bit() == 0 { node.cross } else { NONE };
        let is_wait = inst.op == dvm_bc::Opcode::XWait;
        p.s.clock.copy_from_slice(&p.s.clocks[lane * lanes..(lane + 1) * lanes]);
        let waits = [
            (node.waits[0], SyncPart::Wait),
            (node.waits[1], SyncPart::WaitBack),
            (if is_wait { cross } else { NONE }, SyncPart::Inst),
        ];
        for (flag, part) in waits {
            if flag == NONE || off & part.bit() != 0 {
                continue;
            }
            match p.wait(usize::from(flag), n) {
                None if found(Found::Deadlock { node: n, part }) => return,
                Some(setter) if setter.0 != NOBODY => link((setter, (n, part))),
                _ => {}
            }
        }
        if inst.sync.bar && off & SyncPart::Bar.bit() == 0 {
            p.s.clock[lane] = p.s.counts[lane];
        }
        for need in &w.needs[first_need..needs] {
            let known = p.s.clock[usize::from(need.lane)];
            if known < need.position
                && found(Found::Unordered { first: need.node, second: n, pair: need.pair })
            {
                return;
            }
        }
        p.s.clocks[lane * lanes..(lane + 1) * lanes].copy_from_slice(&p.s.clock);
        p.s.counts[lane] += 1;
        let sets = [
            (node.sets[0], SyncPart::Set),
            (node.sets[1], SyncPart::SetBack),
            (if is_wait { NONE } else { cross }, SyncPart::Inst),
        ];
        for (flag, part) in sets {
            if flag == NONE || off & part.bit() != 0 {
                continue;
            }
            if let Some(wait) = p.set(usize::from(flag), lane, (n, part))
                && found(Found::Double { node: n, part, wait })
            {
                return;
            }
        }
    }
    for (f, flag) in p.s.flags.iter().enumerate() {
        let was = w.free.contains(&(f as u16));
        let (node, part) = if flag.set { flag.setter } else { (flag.waiter, SyncPart::Inst) };
        if flag.set != was && node != NOBODY && found(Found::Leftover { node, part }) {
            return;
        }
    }
}

struct Player<'a> {
    w: &'a Window,
    lanes: usize,
    s: &'a mut Scratch,
}

impl Player<'_> {
    /// Takes a flag; who set it.
    fn wait(&mut self, flag: usize, node: u32) -> Option<(u32, SyncPart)> {
        let f = &mut self.s.flags[flag];
        if !std::mem::replace(&mut f.set, false) {
            return None;
        }
        f.waiter = node;
        let clock = &self.s.clocks[(self.lanes + flag) * self.lanes..][..self.lanes];
        for (c, k) in self.s.clock.iter_mut().zip(clock) {
            *c = (*c).max(*k);
        }
        Some(f.setter)
    }

    /// Sets a flag behind what the lane has issued; the wait that need not have been, if it may still be set.
    fn set(&mut self, flag: usize, lane: usize, setter: (u32, SyncPart)) -> Option<Option<u32>> {
        let start = (self.lanes + flag) * self.lanes;
        for i in 0..self.lanes {
            self.s.clocks[start + i] = if i == lane { self.s.counts[lane] } else { self.s.clock[i] };
        }
        let f = &mut self.s.flags[flag];
        f.setter = setter;
        if std::mem::replace(&mut f.set, true) {
            return Some(None);
        }
        if f.waiter == NOBODY {
            return None;
        }
        // Only a queue that has finished the wait can tell that it took the flag.
        let wait = &self.w.nodes[f.waiter as usize];
        let known = self.s.clocks[start + usize::from(wait.lane)];
        (known <= wait.position).then_some(Some(f.waiter))
    }

    /// Every queue of a core has finished what it has before any of them goes on.
    fn barrier(&mut self, node: &Node) {
        let lanes = self.lanes;
        for core in self.w.shape.cores_of(node.tile) {
            if core.is_empty() {
                continue;
            }
            self.s.clock.fill(0);
            for l in core.clone() {
                for (c, k) in self.s.clock.iter_mut().zip(&self.s.clocks[l * lanes..]) {
                    *c = (*c).max(*k);
                }
            }
            for l in core.clone() {
                self.s.clock[l] = self.s.counts[l];
            }
            for l in core {
                self.s.clocks[l * lanes..(l + 1) * lanes].copy_from_slice(&self.s.clock);
            }
        }
    }
}
