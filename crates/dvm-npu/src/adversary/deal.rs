//! Who executes what: a program's steps as queues of pipes.
//!
//! This follows the contract of the bytecode and shares nothing with the hazard checker, whose oracle it is: it walks whole
//! runs, not a window.

use std::sync::Arc;

use dvm_bc::reference::{Point, tiles, walk_tile};
use dvm_bc::{CROSS_FLAGS, CoreKind, Event, Inst, InstAt, Kind, MAX_EVENTS, Opcode, Operands, Pipe, Program};

use super::Breach;

/// Executions that one step may take; the executor is for small shapes.
const MAX_EXECUTIONS: usize = 1 << 22;

/// A decoded instruction.
pub(super) struct Code {
    pub(super) inst: Inst,
    pub(super) at: InstAt,
    /// Extents that move a load that may be skipped; `None` where it may not.
    pub(super) sticky: Option<Vec<u8>>,
}

/// A decoded template.
pub(super) struct Decoded {
    pub(super) codes: Vec<Code>,
    /// Per phase and section, the range of its instructions.
    sections: Vec<Vec<std::ops::Range<usize>>>,
    /// Flags between cores that are free when the run begins.
    free: Vec<u8>,
}

impl Decoded {
    pub(super) fn new(program: &Program) -> Result<Vec<Decoded>, Breach> {
        let one = |(index, t): (usize, &dvm_bc::Template)| {
            let mut d = Decoded { codes: Vec::new(), sections: Vec::new(), free: Vec::new() };
            let mut used = [false; CROSS_FLAGS as usize];
            for (p, phase) in t.phases.iter().enumerate() {
                let mut of_phase = Vec::new();
                for s in &phase.sections {
                    let first = d.codes.len();
                    for (i, inst) in s.code.iter().enumerate() {
                        let inst = inst.map_err(|e| Breach::Fault { at: None, what: e.to_string() })?;
                        if let Operands::Cross(o) = &inst.operands {
                            let seen =
                                used.get_mut(usize::from(o.flag)).is_none_or(|u| std::mem::replace(u, true));
                            if !seen && inst.op == Opcode::XWait {
                                d.free.push(o.flag);
                            }
                        }
                        let at = InstAt {
                            template: index as u32,
                            phase: p as u32,
                            place: s.place,
                            index: i as u32,
                            number: d.codes.len() as u32,
                            mnemonic: inst.op.mnemonic(),
                        };
                        let sticky = sticky(&inst);
                        d.codes.push(Code { inst, at, sticky });
                    }
                    of_phase.push(first..d.codes.len());
                }
                d.sections.push(of_phase);
            }
            Ok(d)
        };
        program.templates.iter().enumerate().map(one).collect()
    }
}

fn sticky(inst: &Inst) -> Option<Vec<u8>> {
    let (mem, hints) = match &inst.operands {
        Operands::Load(o) => (&o.src, o.hints),
        Operands::ViewLoad(o) => (&o.src, o.hints),
        Operands::LoadA(o) => (&o.src, o.hints),
        Operands::LoadB(o) => (&o.src, o.hints),
        _ => return None,
    };
    hints.sticky.then(|| mem.strides.iter().map(|s| s.0).collect())
}

/// An execution of an instruction: a place in the queue of a pipe.
pub(super) struct Exec {
    pub(super) unit: u32,
    /// Index into [`Decoded::codes`].
    pub(super) code: u32,
    pub(super) point: Arc<Point>,
    /// Core of the worker; the vector core that has the tile; the copy of a ring.
    pub(super) core: u8,
    pub(super) vector: u8,
    pub(super) slot: u16,
    /// Barriers of the core before it.
    pub(super) epoch: u32,
    /// Flags it takes to start, and sets when it and all before it in the queue have finished.
    pub(super) waits: [Option<u32>; 3],
    pub(super) sets: [Option<u32>; 3],
    pub(super) bar: bool,
    /// This core's first tile of the unit: nothing may be skipped.
    pub(super) first_tile: bool,
}

/// What one worker does for one unit: it drains and its flags are cleared before the next.
pub(super) struct Run {
    /// By core and pipe, see [`Layout::queue`].
    pub(super) queues: Vec<Vec<Exec>>,
    /// Executions of each core in each epoch, all its pipes together.
    pub(super) epochs: Vec<Vec<u32>>,
    /// Flags that are set at the beginning.
    pub(super) free: Vec<u32>,
}

/// A core, or a cube core with its vector cores.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) group: bool,
    pub(super) vectors: u32,
}

impl Layout {
    pub(super) fn new(program: &Program, group: bool) -> Layout {
        Layout { group, vectors: if group { program.target.vec_per_cube().max(1) } else { 1 } }
    }
    pub(super) fn cores(self) -> usize {
        if self.group { 1 + self.vectors as usize } else { 1 }
    }
    pub(super) fn copies(self) -> u32 {
        if self.group { self.vectors.max(2) } else { 1 }
    }
    fn core(self, pipe: Pipe, vector: u32) -> usize {
        if self.group && pipe.core() == CoreKind::Vector { 1 + vector as usize } else { 0 }
    }
    pub(super) fn queue(core: usize, pipe: Pipe) -> usize {
        core * Pipe::ALL.len() + pipe as usize
    }
    pub(super) fn queues(self) -> usize {
        self.cores() * Pipe::ALL.len()
    }
    fn event(core: usize, from: Pipe, to: Pipe, id: u8) -> u32 {
        (((core * 6 + from as usize) * 6 + to as usize) * MAX_EVENTS as usize + usize::from(id)) as u32
    }
    fn cross(self, flag: u8, slot: u32) -> u32 {
        self.cores() as u32 * 36 * MAX_EVENTS + slot * u32::from(CROSS_FLAGS) + u32::from(flag)
    }
    pub(super) fn flags(self) -> usize {
        self.cross(0, self.copies()) as usize
    }
}

/// A unit's tiles that one worker executes in order.
pub(super) struct Share {
    pub(super) unit: u32,
    pub(super) tiles: std::ops::Range<u64>,
}

/// Whether a unit needs a cube core and vector cores.
pub(super) fn is_group(program: &Program, unit: &dvm_bc::Unit) -> bool {
    let kind = program.templates.get(unit.template as usize).map(|t| t.kind);
    program.target.cube_cores > 0 && kind.is_some_and(|k| k != Kind::Vector)
}

/// Units that share cores, with the most they may have.
struct Pool {
    /// Unit and its tiles.
    units: Vec<(u32, u64)>,
    /// Tiles times weight.
    load: u64,
    cores: usize,
}

/// Deals the tiles of a step's units of one sort to `workers`: contiguous workers by weight to each unit (units under one limit
/// of cores are one) where there are enough, else contiguous runs of all tiles; where some have a limit, whole units.
pub(super) fn deal(program: &Program, step: usize, group: bool, workers: usize) -> Vec<Vec<Share>> {
    let step = &program.steps[step];
    let mut pools: Vec<Pool> = Vec::new();
    let mut last = None;
    for (i, u) in step.units.iter().enumerate() {
        let Some(t) = program.templates.get(u.template as usize) else { continue };
        if is_group(program, u) != group {
            continue;
        }
        let limit =
            step.limits.iter().position(|l| (l.first..l.first.saturating_add(l.units)).contains(&(i as u32)));
        let load = tiles(t).saturating_mul(u64::from(u.weight.max(1)));
        let unit = (i as u32, tiles(t));
        match pools.last_mut().filter(|_| limit.is_some() && limit == last) {
            Some(p) => {
                p.units.push(unit);
                p.load = p.load.saturating_add(load);
            }
            None => {
                let cores = limit.map_or(workers, |l| (step.limits[l].cores as usize).clamp(1, workers));
                pools.push(Pool { units: vec![unit], load, cores });
            }
        }
        last = limit;
    }
    let mut out: Vec<Vec<Share>> = (0..workers).map(|_| Vec::new()).collect();
    if pools.len() <= workers {
        let total = pools.iter().fold(0u64, |n, p| n.saturating_add(p.load)).max(1);
        let (mut next, mut spare) = (0usize, workers - pools.len());
        for p in &pools {
            let wish = (workers as u64).saturating_mul(p.load) / total;
            let extra = (wish.saturating_sub(1) as usize).min(spare).min(p.cores - 1);
            spare -= extra;
            cut(&mut out[next..=next + extra], &p.units);
            next += 1 + extra;
        }
    } else if step.limits.is_empty() {
        let all: Vec<(u32, u64)> = pools.iter().flat_map(|p| p.units.iter().copied()).collect();
        cut(&mut out, &all);
    } else {
        for (i, p) in pools.iter().enumerate() {
            cut(&mut out[i % workers..][..1], &p.units);
        }
    }
    out
}

/// Contiguous runs of the units' tiles for each of several workers.
fn cut(workers: &mut [Vec<Share>], units: &[(u32, u64)]) {
    let (n, pool) = (workers.len() as u128, units.iter().map(|u| u128::from(u.1)).sum::<u128>());
    for (w, share) in workers.iter_mut().enumerate() {
        let at = |w: usize| pool * w as u128 / n;
        let mut start = 0u128;
        for &(unit, tiles) in units {
            let (lo, hi) = (at(w).max(start), at(w + 1).min(start + u128::from(tiles)));
            if lo < hi {
                share.push(Share { unit, tiles: (lo - start) as u64..(hi - start) as u64 });
            }
            start += u128::from(tiles);
        }
    }
}

/// Enqueues what a worker executes of one unit.
pub(super) fn enqueue(
    program: &Program,
    step: usize,
    share: &Share,
    decoded: &[Decoded],
    layout: Layout,
    budget: &mut usize,
) -> Result<Run, Breach> {
    let unit = &program.steps[step].units[share.unit as usize];
    let template = &program.templates[unit.template as usize];
    let code = &decoded[unit.template as usize];
    let mut run = Run {
        queues: (0..layout.queues()).map(|_| Vec::new()).collect(),
        epochs: vec![vec![0]; layout.cores()],
        free: Vec::new(),
    };
    for slot in 0..layout.copies() {
        run.free.extend(code.free.iter().map(|&f| layout.cross(f, slot)));
    }
    // Executions of each section: so far, and in the end, by core.
    let sections: usize = template.phases.iter().map(|p| p.sections.len()).sum();
    let firsts: Vec<usize> =
        template.phases.iter().scan(0, |n, p| Some(std::mem::replace(n, *n + p.sections.len()))).collect();
    let mut done = vec![0u64; sections * layout.cores()];
    let mut total = vec![0u64; sections * layout.cores()];
    for (t, tile) in share.tiles.clone().enumerate() {
        let vector = t as u64 % u64::from(layout.vectors);
        walk_tile(template, tile, |p, s, _| {
            let index = (firsts[p] + s) * layout.cores();
            total[index] += 1;
            if layout.group {
                total[index + 1 + vector as usize] += 1;
            }
            // Nothing is executed yet, but nothing takes longer than its budget.
            *budget = budget.checked_sub(1).ok_or(Breach::TooLarge)?;
            Ok(())
        })?;
    }
    for (t, tile) in share.tiles.clone().enumerate() {
        let t = t as u64;
        let vector = (t % u64::from(layout.vectors)) as u32;
        let slot = (t % u64::from(layout.copies())) as u32;
        walk_tile(template, tile, |p, s, point| {
            let point = Arc::new(point.clone());
            let index = (firsts[p] + s) * layout.cores();
            for c in code.sections[p][s].clone() {
                *budget = budget.checked_sub(1).ok_or(Breach::TooLarge)?;
                let inst = &code.codes[c].inst;
                let Some(pipe) = inst.pipe() else {
                    if inst.op == Opcode::Barrier {
                        let mine = if layout.group { 1 + vector as usize } else { 0 };
                        for core in [0, mine].into_iter().take(1 + usize::from(layout.group)) {
                            run.epochs[core].push(0);
                        }
                    }
                    continue;
                };
                let core = layout.core(pipe, vector);
                let (turn, turns) = (done[index + core], total[index + core]);
                let (first, last) = (turn == 0, turn + 1 == turns);
                let wait = |e: Option<Event>| e.map(|e| Layout::event(core, e.peer, pipe, e.id));
                let set = |e: Option<Event>| e.map(|e| Layout::event(core, pipe, e.peer, e.id));
                let cross = match &inst.operands {
                    Operands::Cross(o) => Some(layout.cross(o.flag % CROSS_FLAGS, slot)),
                    _ => None,
                };
                let sync = inst.sync;
                let epoch = run.epochs[core].len() as u32 - 1;
                if let Some(n) = run.epochs[core].last_mut() {
                    *n += 1;
                }
                run.queues[Layout::queue(core, pipe)].push(Exec {
                    unit: share.unit,
                    code: c as u32,
                    point: Arc::clone(&point),
                    core: core as u8,
                    vector: layout.core(Pipe::V, vector) as u8,
                    slot: slot as u16,
                    epoch,
                    waits: [
                        wait(sync.wait),
                        wait(sync.wait_back).filter(|_| !first),
                        cross.filter(|_| inst.op == Opcode::XWait),
                    ],
                    sets: [
                        set(sync.set),
                        set(sync.set_back).filter(|_| !last),
                        cross.filter(|_| inst.op == Opcode::XSet),
                    ],
                    bar: sync.bar,
                    first_tile: t < u64::from(if core == 0 { 1 } else { layout.vectors }),
                });
            }
            done[index] += 1;
            if layout.group {
                done[index + 1 + vector as usize] += 1;
            }
            Ok(())
        })?;
    }
    Ok(run)
}

/// What a step may take.
pub(super) const BUDGET: usize = MAX_EXECUTIONS;
