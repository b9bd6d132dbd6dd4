//! Proof that synchronisation orders whatever must be ordered.
//!
//! The verifier says what a program touches; this says when. On a target with asynchronous pipes two instructions that touch
//! common bytes, one of them writing, must be ordered by events, draining or barriers, in every schedule that the pipes
//! allow. See `docs/synchronisation.md` for the model and what makes the bounded window enough.
//!
//! The checker is conservative: what it calls sound is; what it calls a hazard may be beyond its means.

mod access;
mod order;
mod report;
mod window;

use dvm_bc::Program;

use access::{Pair, Relation, Static};
use order::{Found, Link, Scratch, pass};
pub use report::{Bytes, Dependence, Distance, Hazard, HazardReport, Proved, Redundant, Site, SyncPart};
use report::{SyncPart as Part, site};
use window::{Node, Window};

/// Hazards that are listed; more are counted.
const LISTED: usize = 100;

/// Proves the synchronisation of a program, or says what is not proved.
///
/// The program should be [`Verified`](dvm_bc::Verified): whatever else is wrong with one is not looked for here. It need not be
/// when only its synchronisation was changed since.
///
/// Time is linear in the number of conflicting pairs of instructions, and this times the number of events: some tens of
/// microseconds for a template of 40 instructions. Targets with in-order pipes need no proof and get an empty report.
#[must_use]
pub fn check(program: &Program) -> HazardReport {
    run(program, true)
}

/// Whether everything is proved: as [`check`], without the search for what is redundant.
#[must_use]
pub fn prove(program: &Program) -> HazardReport {
    run(program, false)
}

fn run(program: &Program, thorough: bool) -> HazardReport {
    let mut report = HazardReport::default();
    if !program.target.async_pipes {
        return report;
    }
    let rings = access::rings(program);
    let lists: Vec<Vec<Static>> =
        rings.iter().enumerate().map(|(t, rings)| access::instructions(program, t as u32, rings)).collect();
    let aliased = access::aliased(program, &lists);
    let mut scratch = Scratch::default();
    for (t, (list, aliased)) in lists.iter().zip(&aliased).enumerate() {
        template(program, t as u32, (list, aliased), thorough, &mut scratch, &mut report);
    }
    report
}

fn template(
    program: &Program,
    index: u32,
    (list, aliased): (&[Static], &access::Aliased),
    thorough: bool,
    scratch: &mut Scratch,
    report: &mut HazardReport,
) {
    let shape = window::Shape::new(program, &program.templates[index as usize]);
    let give_up = |report: &mut HazardReport, why: &str| {
        report.hazards.push(Hazard::GaveUp { template: index, why: why.to_owned() });
    };
    if shape.vector_cores() > window::MAX_VECTOR_CORES {
        give_up(report, "a cube core with too many vector cores");
        return;
    }
    let Some(pairs) = access::pairs(list, aliased, shape.group) else {
        give_up(report, "too many instructions to compare");
        return;
    };
    let Some(window) = window::window(program, index, list, &pairs) else {
        give_up(report, "too many executions to compare");
        return;
    };
    let off = vec![0u8; list.len()];
    let mut hazards = Hazards { program, list, window: &window, pairs: &pairs, seen: Vec::new(), report };
    let mut links: Vec<Link> = Vec::new();
    let before = hazards.report.hazards.len() as u64 + hazards.report.more;
    pass(
        &window,
        list,
        &off,
        scratch,
        &mut |f| {
            hazards.add(f);
            false
        },
        &mut |(s, w)| links.push((in_code(&window, s), in_code(&window, w))),
    );
    links.sort_unstable();
    links.dedup();
    let sound = hazards.report.hazards.len() as u64 + hazards.report.more == before;
    let pieces = pieces(list, &links);
    let p = &mut report.proved;
    p.templates += 1;
    p.instructions += list.len() as u32;
    p.executions += window.nodes.len() as u64;
    p.pairs += pairs.len() as u64;
    p.conflicts += window.needs.len() as u64;
    for piece in &pieces {
        match piece[0].1 {
            Part::Bar => p.bars += 1,
            Part::Inst if list[piece[0].0 as usize].flag.is_some() => p.cross += 1,
            Part::Inst => p.barriers += 1,
            _ => p.events += 1,
        }
    }
    if sound && thorough {
        redundant(program, list, &window, &pieces, scratch, report);
    }
}

/// From a node to an instruction.
fn in_code(window: &Window, (node, part): (u32, Part)) -> (u32, Part) {
    (window.nodes[node as usize].inst, part)
}

/// What is taken away together: parts of heads, by instruction.
type Piece = Vec<(u32, Part)>;

/// Every bar and barrier alone, and the two ends of every event together. An event that never fires, because there is one
/// tile or one point, is a piece as well.
fn pieces(list: &[Static], links: &[Link]) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for &(set, wait) in links {
        // Ends that meet in several ways are one piece.
        let (mut joined, rest): (Vec<Piece>, Vec<Piece>) =
            out.into_iter().partition(|p| p.contains(&set) || p.contains(&wait));
        out = rest;
        let mut piece: Piece = joined.drain(..).flatten().chain([set, wait]).collect();
        piece.sort_unstable();
        piece.dedup();
        out.push(piece);
    }
    let mut idle: Vec<(u32, Part)> = Vec::new();
    for (i, s) in list.iter().enumerate() {
        let i = i as u32;
        if s.sync.bar {
            out.push(vec![(i, Part::Bar)]);
        }
        if s.op == dvm_bc::Opcode::Barrier {
            out.push(vec![(i, Part::Inst)]);
        }
        let slots = s.sync.slots().into_iter().zip(Part::SLOTS).filter(|(e, _)| e.is_some());
        let flag = s.flag.map(|_| Part::Inst);
        for end in slots.map(|(_, p)| (i, p)).chain(flag.map(|p| (i, p))) {
            if !out.iter().any(|p| p.contains(&end)) {
                idle.push(end);
            }
        }
    }
    // The two ends of an event that never fires have one name.
    while let Some(end) = idle.pop() {
        let name = name(list, end);
        let mut piece = vec![end];
        idle.retain(|&e| {
            let same = self::name(list, e) == name;
            if same {
                piece.push(e);
            }
            !same
        });
        piece.sort_unstable();
        out.push(piece);
    }
    out.sort_unstable();
    out
}

/// What names an end of an event: producer, consumer, number, whether backward; or the flag between cores.
fn name(list: &[Static], (inst, part): (u32, Part)) -> (u8, u8, u8, bool) {
    let s = &list[inst as usize];
    let pipe = s.pipe.map_or(0, |p| p as u8);
    let event = |e: Option<dvm_bc::Event>| e.map_or((0, 0), |e| (e.peer as u8, e.id));
    let back = matches!(part, Part::WaitBack | Part::SetBack);
    match part {
        Part::Wait | Part::WaitBack => {
            let (peer, id) = event(if back { s.sync.wait_back } else { s.sync.wait });
            (peer, pipe, id, back)
        }
        Part::Set | Part::SetBack => {
            let (peer, id) = event(if back { s.sync.set_back } else { s.sync.set });
            (pipe, peer, id, back)
        }
        Part::Bar | Part::Inst => (u8::MAX, u8::MAX, s.flag.unwrap_or(0), false),
    }
}

fn redundant(
    program: &Program,
    list: &[Static],
    window: &Window,
    pieces: &[Piece],
    scratch: &mut Scratch,
    report: &mut HazardReport,
) {
    let mut off = vec![0u8; list.len()];
    for piece in pieces {
        for &(i, part) in piece {
            off[i as usize] |= part.bit();
        }
        let mut sound = true;
        pass(
            window,
            list,
            &off,
            scratch,
            &mut |_| {
                sound = false;
                true
            },
            &mut |_| {},
        );
        if sound {
            let parts = piece.iter().map(|&(i, part)| (site(program, list[i as usize].at), part)).collect();
            report.redundant.push(Redundant { parts, what: what(list, piece) });
        }
        for &(i, _) in piece {
            off[i as usize] = 0;
        }
    }
}

/// A piece for people.
fn what(list: &[Static], piece: &[(u32, Part)]) -> String {
    let (i, part) = piece[0];
    match part {
        Part::Bar => "bar".to_owned(),
        Part::Inst => match list[i as usize].flag {
            Some(f) => format!("cross flag {f}"),
            None => "barrier".to_owned(),
        },
        _ => flag(list, (i, part)),
    }
}

/// An event as `mte2 -> v 3`, backward ones marked.
fn flag(list: &[Static], end: (u32, Part)) -> String {
    if end.1 == Part::Inst {
        return list[end.0 as usize].flag.map_or_else(String::new, |f| format!("cross flag {f}"));
    }
    let (p, q, id, back) = name(list, end);
    let pipe = |n: u8| dvm_bc::Pipe::from_number(n).map_or("?", dvm_bc::Pipe::name);
    format!("{} -> {} {id}{}", pipe(p), pipe(q), if back { " back" } else { "" })
}

/// Turns what a pass finds into hazards, each pair of instructions once.
struct Hazards<'a> {
    program: &'a Program,
    list: &'a [Static],
    window: &'a Window,
    pairs: &'a [Pair],
    /// What is reported: instructions and a kind.
    seen: Vec<(u32, u32, u8)>,
    report: &'a mut HazardReport,
}

impl Hazards<'_> {
    fn add(&mut self, f: Found) {
        let inst = |n: u32| self.window.nodes[n as usize].inst;
        let key = match f {
            Found::Unordered { first, second, .. } => (inst(first), inst(second), 0),
            Found::Deadlock { node, part } => (inst(node), part as u32, 1),
            Found::Double { node, part, .. } => (inst(node), part as u32, 2),
            Found::Leftover { node, part } => (inst(node), part as u32, 3),
        };
        if self.seen.contains(&key) {
            return;
        }
        self.seen.push(key);
        if self.report.hazards.len() >= LISTED {
            self.report.more += 1;
            return;
        }
        let site = |n: u32| site(self.program, self.list[inst(n) as usize].at);
        let hazard = match f {
            Found::Unordered { first, second, pair } => self.unordered(first, second, pair),
            Found::Deadlock { node, part } => {
                Hazard::Deadlock { wait: site(node), flag: flag(self.list, (inst(node), part)) }
            }
            Found::Double { node, part, wait } => Hazard::DoubleSet {
                set: site(node),
                flag: flag(self.list, (inst(node), part)),
                wait: wait.map(site),
            },
            Found::Leftover { node, part } => {
                Hazard::Leftover { set: site(node), flag: flag(self.list, (inst(node), part)) }
            }
        };
        self.report.hazards.push(hazard);
    }

    fn unordered(&self, first: u32, second: u32, pair: u32) -> Hazard {
        let (x, y) = (&self.window.nodes[first as usize], &self.window.nodes[second as usize]);
        let (a, b) = (&self.list[x.inst as usize], &self.list[y.inst as usize]);
        let relation = self.pairs[pair as usize].relation;
        let dependence = match access::writes(a, b, relation) {
            (true, true) => Dependence::Waw,
            (true, false) => Dependence::Raw,
            _ => Dependence::War,
        };
        let distance = match x.tile == y.tile {
            true if a.section == b.section && x.turn == y.turn => Distance::Section,
            true => Distance::Tile,
            false => Distance::NextTile,
        };
        let template = &self.program.templates[b.at.template as usize];
        Hazard::Unordered {
            dependence,
            first: site(self.program, a.at),
            second: site(self.program, b.at),
            bytes: access::bytes(template, a, b, relation),
            distance,
            missing: self.missing(x, a, y, b, distance, relation),
        }
    }

    /// The edge that would order two executions, and how to write it.
    fn missing(
        &self,
        x: &Node,
        a: &Static,
        y: &Node,
        b: &Static,
        distance: Distance,
        relation: Relation,
    ) -> String {
        let shape = &self.window.shape;
        let (p, q) = (shape.pipe(x.lane), shape.pipe(y.lane));
        if x.lane == y.lane {
            return format!("{p} need not have finished it, give the second `bar`");
        }
        let other_core = shape.group && (p.core() != q.core() || relation == Relation::Ring);
        if other_core {
            return format!("no edge {p} -> {q}, between cores: `xset` on {p}, `xwait` on {q}");
        }
        let how = match distance {
            Distance::Section => format!("`set {q}` on the first, `wait {p}` on the second"),
            _ if a.section == b.section => {
                format!("`set_back {q}` on the first, `wait_back {p}` on the second")
            }
            _ => {
                format!(
                    "`set {q}` on a `nop {p}` and `wait {p}` on a `nop {q}` where the second's section begins"
                )
            }
        };
        format!("no edge {p} -> {q}: {how}")
    }
}
