//! What each instruction of a template touches, and which pairs touch common bytes.
//!
//! Everything is a superset: a region is its hull at full counts, and a pair of argument accesses whose bytes cannot be told
//! apart counts as a conflict at every point of the walk.

use dvm_bc::{
    ArgUse, Inst, InstAt, LocalUse, Meeting, Opcode, Operands, Pipe, Place, Program, Role, Space, Sync,
    Template, Uses,
};
use smallvec::SmallVec;

use super::report::Bytes;

/// An instruction, apart from its operands.
pub(super) struct Static {
    pub(super) at: InstAt,
    pub(super) op: Opcode,
    pub(super) pipe: Option<Pipe>,
    pub(super) sync: Sync,
    /// The flag of `xset` and `xwait`.
    pub(super) flag: Option<u8>,
    /// Index of the section in the template.
    pub(super) section: u32,
    /// Sequential extents that have an index there.
    depth: usize,
    pub(super) uses: Uses,
    /// It touches a slot that some unit binds to a ring.
    ring: bool,
}

/// Executions of two instructions that touch common bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// Local memory of the cube core, or of the only core.
    Core,
    /// Local memory of the vector core that has the tile.
    VectorCore,
    /// The same argument bytes at any points of one tile.
    Tile,
    /// The same argument bytes at the same point of one tile.
    Point,
    /// The same copy of a ring.
    Ring,
}

/// Two instructions, in template order (or one with itself), and how they conflict.
pub(super) struct Pair {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) relation: Relation,
}

/// Slots of a template that some unit binds to overlapping memory, and how far behind the first the second begins.
pub(super) type Aliased = Vec<(u16, u16, i64)>;

/// The instructions of a template in order.
pub(super) fn instructions(program: &Program, index: u32, rings: &[bool]) -> Vec<Static> {
    let Some(template) = program.templates.get(index as usize) else { return Vec::new() };
    let mut out: Vec<Static> = Vec::with_capacity(32);
    let (mut section, mut number) = (0, 0);
    for (p, phase) in template.phases.iter().enumerate() {
        let mut extents: SmallVec<[u32; 12]> = SmallVec::from_slice(&template.parallel);
        extents.extend_from_slice(&phase.seq);
        for s in &phase.sections {
            let depth = match s.place {
                Place::Init(d) | Place::Finish(d) => usize::from(d).min(phase.seq.len()),
                Place::Body => phase.seq.len(),
            };
            for (i, inst) in s.code.iter().enumerate() {
                // A verified program decodes.
                let Ok(inst) = inst else { break };
                let at = template.parallel.len();
                let uses = Uses::of(&inst, &program.target, &extents[..at + depth], at);
                let ring = |u: &ArgUse| rings.get(usize::from(u.slot)) == Some(&true);
                let ring = uses.args.iter().any(ring);
                out.push(Static {
                    at: InstAt {
                        template: index,
                        phase: p as u32,
                        place: s.place,
                        index: i as u32,
                        number,
                        mnemonic: inst.op.mnemonic(),
                    },
                    op: inst.op,
                    pipe: inst.pipe(),
                    sync: inst.sync,
                    flag: cross_flag(&inst),
                    section,
                    depth,
                    uses,
                    ring,
                });
                number += 1;
            }
            section += 1;
        }
    }
    widen(&mut out);
    out
}

fn cross_flag(inst: &Inst) -> Option<u8> {
    match &inst.operands {
        Operands::Cross(o) => Some(o.flag),
        _ => None,
    }
}

/// A product does not know whether its operand was packed or bound: it reads what the writer of that place wrote.
fn widen(list: &mut [Static]) {
    let written: SmallVec<[LocalUse; 8]> = list
        .iter()
        .filter(|s| matches!(s.pipe, Some(Pipe::CMte2)))
        .flat_map(|s| &s.uses.locals)
        .filter(|l| l.access.writes())
        .copied()
        .collect();
    for s in list.iter_mut().filter(|s| s.op == Opcode::Mmad) {
        for l in s.uses.locals.iter_mut().filter(|l| l.space == Space::PanelB) {
            for w in written.iter().filter(|w| w.space == l.space && w.lo == l.lo) {
                l.hi = l.hi.max(w.hi);
            }
        }
    }
}

/// Comparisons a template may take; beyond, it is given up.
const WORK: usize = 1 << 24;

/// All conflicting pairs; `None` where there are too many instructions to compare.
pub(super) fn pairs(list: &[Static], aliased: &Aliased, group: bool) -> Option<Vec<Pair>> {
    let mut work = WORK;
    let mut out = Vec::new();
    for (j, b) in list.iter().enumerate() {
        if b.uses.locals.is_empty() && b.uses.args.is_empty() {
            continue;
        }
        work = work.checked_sub(j + 1)?;
        for (i, a) in list[..=j].iter().enumerate() {
            let mut push = |relation| {
                out.push(Pair { first: i as u32, second: j as u32, relation });
            };
            if let Some(space) = meet(a, b).map(|l| l.0) {
                push(if group && space == Space::Ub { Relation::VectorCore } else { Relation::Core });
            }
            if let Some(r) = args(a, b, aliased) {
                push(r);
            }
        }
    }
    Some(out)
}

/// Common bytes of local memory, at least one of the two writing.
fn meet(a: &Static, b: &Static) -> Option<(Space, u64, u64)> {
    a.uses.locals.iter().find_map(|x| {
        b.uses.locals.iter().find_map(|y| {
            let common =
                x.space == y.space && x.lo < y.hi && y.lo < x.hi && (x.access.writes() || y.access.writes());
            common.then(|| (x.space, x.lo.max(y.lo), x.hi.min(y.hi)))
        })
    })
}

/// How the accesses of two instructions to arguments conflict.
fn args(a: &Static, b: &Static, aliased: &Aliased) -> Option<Relation> {
    let same_walk = (a.at.phase, a.depth) == (b.at.phase, b.depth);
    let mut worst = Meeting::Never;
    for x in &a.uses.args {
        for y in b.uses.args.iter().filter(|y| x.write || y.write) {
            if x.slot == y.slot {
                worst = worst.max(x.meets(y, (0, 0), same_walk));
            }
            for &(s, t, base) in aliased {
                if (s, t) == (x.slot, y.slot) {
                    worst = worst.max(x.meets(y, (0, base), same_walk));
                } else if (t, s) == (x.slot, y.slot) {
                    worst = worst.max(x.meets(y, (base, 0), same_walk));
                }
            }
        }
    }
    match worst {
        Meeting::Never => None,
        _ if a.ring || b.ring => Some(Relation::Ring),
        Meeting::Point => Some(Relation::Point),
        Meeting::Tile => Some(Relation::Tile),
    }
}

/// The common bytes of a conflict, for people.
pub(super) fn bytes(template: &Template, a: &Static, b: &Static, relation: Relation) -> Bytes {
    match (relation, meet(a, b)) {
        (Relation::Core | Relation::VectorCore, Some((space, lo, hi))) => {
            Bytes { place: space.name().to_owned(), lo: lo as i64, hi: hi as i64 }
        }
        _ => {
            let found = a.uses.args.iter().flat_map(|x| b.uses.args.iter().map(move |y| (x, y)));
            let found = found.filter(|(x, y)| x.write || y.write);
            // The same slot tells most; of two slots bound to one memory, the second's bytes.
            let best = found.max_by_key(|(x, y)| x.slot == y.slot);
            let Some((x, y)) = best else { return Bytes { place: String::new(), lo: 0, hi: 0 } };
            let (mut lo, mut hi) = y.first_tile();
            if x.slot == y.slot {
                let (l, h) = x.first_tile();
                (lo, hi) = (lo.max(l), hi.min(h).max(lo.max(l)));
            }
            let name = template.slots.get(usize::from(y.slot)).map_or("", |s| s.name.as_str());
            Bytes { place: format!("${} {name}", y.slot).trim_end().to_owned(), lo, hi }
        }
    }
}

/// Whether an access writes, to tell RAW from WAR and WAW: over the accesses that `relation` is about.
pub(super) fn writes(a: &Static, b: &Static, relation: Relation) -> (bool, bool) {
    match relation {
        Relation::Core | Relation::VectorCore => {
            let mut found = (false, false);
            for x in &a.uses.locals {
                for y in b.uses.locals.iter().filter(|y| y.space == x.space && x.lo < y.hi && y.lo < x.hi) {
                    // A true dependence is the most telling.
                    if x.access.writes() && y.access.reads() {
                        return (true, false);
                    }
                    found = (found.0 | x.access.writes(), found.1 | y.access.writes());
                }
            }
            found
        }
        _ => (a.uses.args.iter().any(|x| x.write), b.uses.args.iter().any(|y| y.write)),
    }
}

/// Per template: which slots some unit binds to a ring.
pub(super) fn rings(program: &Program) -> Vec<Vec<bool>> {
    let mut out: Vec<Vec<bool>> = program.templates.iter().map(|t| vec![false; t.slots.len()]).collect();
    for unit in program.steps.iter().flat_map(|s| &s.units) {
        let Some(rings) = out.get_mut(unit.template as usize) else { continue };
        for (ring, &(arg, _)) in rings.iter_mut().zip(&unit.slots) {
            *ring |= program.args.get(arg as usize).is_some_and(|a| a.role == Role::Ring);
        }
    }
    out
}

/// Per template: slots that some unit binds to overlapping bytes, one of them written.
pub(super) fn aliased(program: &Program, lists: &[Vec<Static>]) -> Vec<Aliased> {
    let mut home: Vec<u32> = (0..program.args.len() as u32).collect();
    for &(input, output) in &program.aliases {
        if let Some(h) = home.get_mut(input as usize) {
            *h = output;
        }
    }
    // What each slot touches: nothing, or a hull and whether it writes.
    let hulls: Vec<Vec<Option<(i64, i64, bool)>>> = lists
        .iter()
        .zip(&program.templates)
        .map(|(list, t)| {
            let mut hulls = vec![None; t.slots.len()];
            for u in list.iter().flat_map(|s| &s.uses.args) {
                if let Some(h) = hulls.get_mut(usize::from(u.slot)) {
                    let (l, m) = u.hull();
                    let (lo, hi, w) = h.unwrap_or((l, m, false));
                    *h = Some((lo.min(l), hi.max(m), w || u.write));
                }
            }
            hulls
        })
        .collect();
    let mut out = vec![Aliased::new(); lists.len()];
    let mut bound: Vec<(u32, i64, i64, u16, i64, bool)> = Vec::new();
    for unit in program.steps.iter().flat_map(|s| &s.units) {
        let Some(hulls) = hulls.get(unit.template as usize) else { continue };
        bound.clear();
        for (s, (h, &(arg, base))) in hulls.iter().zip(&unit.slots).enumerate() {
            if let (Some((lo, hi, w)), Some(&home)) = (*h, home.get(arg as usize)) {
                let base = base as i64;
                bound.push((home, base.saturating_add(lo), base.saturating_add(hi), s as u16, base, w));
            }
        }
        bound.sort_unstable();
        for (i, a) in bound.iter().enumerate() {
            for b in bound[i + 1..].iter().take_while(|b| b.0 == a.0 && b.1 < a.2) {
                // Only the difference of the bases counts.
                let entry = (a.3, b.3, b.4.saturating_sub(a.4));
                let list = &mut out[unit.template as usize];
                if (a.5 || b.5) && !list.contains(&entry) {
                    list.push(entry);
                }
            }
        }
    }
    out
}
