//! The machine: queues, flags, what is under way.

use std::collections::BTreeMap;

use dvm_bc::reference::{Math, execute, start};
use dvm_bc::{InstAt, Pipe, Program, Role, Space};

use super::deal::{BUDGET, Code, Decoded, Exec, Layout, Run, Share, deal, enqueue, is_group};
use super::memory::{Core, Notes, Range, Record, View};
use super::schedule::Rng;
use super::{Breach, Effect, Policy, Schedule};

/// Runs a program on `args`, as many and as long as it says, under a schedule. Nothing of a failed run may be relied on.
///
/// # Errors
/// The first thing that shows the synchronisation to be wrong, or an instruction that does not execute.
pub fn run(
    program: &Program,
    args: &mut [Vec<u8>],
    math: &dyn Math,
    schedule: &Schedule,
) -> Result<(), Breach> {
    start(program, args);
    let decoded = Decoded::new(program)?;
    let mut m = Machine {
        program,
        decoded: &decoded,
        math,
        schedule,
        rng: Rng(schedule.seed),
        args,
        rings: Vec::new(),
        cores: Vec::new(),
        workers: Vec::new(),
        under_way: Vec::new(),
        notes: Notes::default(),
        finished: Vec::new(),
        clock: 0,
        budget: BUDGET,
        step: 0,
    };
    (0..program.steps.len()).try_for_each(|step| {
        m.step = step;
        m.run()
    })
}

/// The queue of a pipe.
#[derive(Default)]
struct Queue {
    execs: Vec<Exec>,
    /// Started, and how many of the first have finished.
    next: usize,
    prefix: usize,
    done: Vec<bool>,
}

/// A core, or a cube core with its vector cores.
struct Worker {
    layout: Layout,
    shares: std::vec::IntoIter<Share>,
    unit: u32,
    queues: Vec<Queue>,
    flags: Vec<bool>,
    free: Vec<u32>,
    /// Executions left of each core in each epoch, and the epoch that may start.
    epochs: Vec<Vec<u32>>,
    open: Vec<usize>,
    /// First of its cores, and of its copies of rings.
    core: usize,
    copy: usize,
    /// Indices at which a load that may be skipped was last executed, by core and instruction.
    last: BTreeMap<(u8, u32), Vec<u32>>,
    busy: bool,
}

/// An instruction under way.
struct Flight {
    worker: usize,
    queue: usize,
    index: usize,
    start: u64,
    effect: Effect,
    skipped: bool,
    record: Record,
    pipe: Pipe,
    number: u32,
}

/// One that has finished, while some that started before its end are under way.
struct Past {
    finish: u64,
    start: u64,
    at: InstAt,
    record: Record,
}

#[derive(Clone, Copy)]
enum Move {
    Start { worker: usize, queue: usize },
    Finish(usize),
}

struct Machine<'a> {
    program: &'a Program,
    decoded: &'a [Decoded],
    math: &'a dyn Math,
    schedule: &'a Schedule,
    rng: Rng,
    args: &'a mut [Vec<u8>],
    rings: Vec<Vec<Vec<u8>>>,
    cores: Vec<Core>,
    workers: Vec<Worker>,
    under_way: Vec<Flight>,
    notes: Notes,
    finished: Vec<Past>,
    clock: u64,
    budget: usize,
    /// Index of the step.
    step: usize,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<(), Breach> {
        self.muster();
        let mut moves = Vec::new();
        loop {
            for w in 0..self.workers.len() {
                while !self.workers[w].busy {
                    let Some(share) = self.workers[w].shares.next() else { break };
                    self.begin(w, &share)?;
                }
            }
            if self.workers.iter().all(|w| !w.busy) {
                return Ok(());
            }
            moves.clear();
            self.moves(&mut moves);
            let Some(choice) = self.choose(&moves) else {
                return Err(Breach::Deadlock { waiting: self.waiting() });
            };
            self.clock += 1;
            match choice {
                Move::Start { worker, queue } => self.start(worker, queue)?,
                Move::Finish(i) => self.finish(i)?,
            }
        }
    }

    /// The workers of a step, with their shares.
    fn muster(&mut self) {
        let (program, step) = (self.program, self.step);
        let count = self.schedule.workers.max(1) as usize;
        self.workers.clear();
        let (mut core, mut copy) = (0, 0);
        for group in [false, true] {
            if !program.steps[step].units.iter().any(|u| is_group(program, u) == group) {
                continue;
            }
            let layout = Layout::new(program, group);
            for shares in deal(program, step, group, count) {
                self.workers.push(Worker {
                    layout,
                    shares: shares.into_iter(),
                    unit: 0,
                    queues: Vec::new(),
                    flags: Vec::new(),
                    free: Vec::new(),
                    epochs: Vec::new(),
                    open: Vec::new(),
                    core,
                    copy,
                    last: BTreeMap::new(),
                    busy: false,
                });
                core += layout.cores();
                copy += layout.copies() as usize;
            }
        }
        self.cores.resize_with(self.cores.len().max(core), Core::default);
        self.cores.iter_mut().for_each(Core::clear);
        self.rings.clear();
        for a in &program.args {
            let copies = if a.role == Role::Ring { copy } else { 0 };
            // Undefined until stored.
            self.rings.push(vec![vec![0xff; usize::try_from(a.bytes).unwrap_or(0)]; copies]);
        }
    }

    fn begin(&mut self, worker: usize, share: &Share) -> Result<(), Breach> {
        let w = &mut self.workers[worker];
        let Run { queues, epochs, free } =
            enqueue(self.program, self.step, share, self.decoded, w.layout, &mut self.budget)?;
        w.queues.clear();
        w.queues.extend(queues.into_iter().map(|execs| Queue {
            done: vec![false; execs.len()],
            execs,
            next: 0,
            prefix: 0,
        }));
        w.flags = vec![false; w.layout.flags()];
        for &f in &free {
            w.flags[f as usize] = true;
        }
        (w.free, w.unit) = (free, share.unit);
        w.open = vec![0; epochs.len()];
        w.epochs = epochs;
        w.last.clear();
        w.busy = w.queues.iter().any(|q| !q.execs.is_empty());
        (0..w.open.len()).for_each(|core| w.open_epoch(core));
        Ok(())
    }

    fn moves(&self, moves: &mut Vec<Move>) {
        for (worker, w) in self.workers.iter().enumerate() {
            for queue in 0..w.queues.len() {
                if w.ready(queue) {
                    moves.push(Move::Start { worker, queue });
                }
            }
        }
        moves.extend((0..self.under_way.len()).map(Move::Finish));
    }

    fn choose(&mut self, moves: &[Move]) -> Option<Move> {
        let mut best = 0;
        let mut picked = None;
        let mut ties = 0;
        // Half of the schedules now and then forget their policy.
        let forget = self.schedule.seed & 1 == 0 && self.rng.below(8) == 0;
        for &m in moves {
            let score = if forget { 0 } else { self.score(m) };
            if picked.is_none() || score > best {
                (best, picked, ties) = (score, Some(m), 1);
            } else if score == best {
                ties += 1;
                if self.rng.below(ties) == 0 {
                    picked = Some(m);
                }
            }
        }
        picked
    }

    fn score(&self, m: Move) -> u64 {
        let (starts, pipe, number, started) = match m {
            Move::Start { worker, queue } => {
                let q = &self.workers[worker].queues[queue];
                let number = self.code(&q.execs[q.next]).at.number;
                (true, Pipe::ALL[queue % Pipe::ALL.len()], number, 0)
            }
            Move::Finish(i) => {
                let f = &self.under_way[i];
                (false, f.pipe, f.number, f.start)
            }
        };
        match self.schedule.policy {
            Policy::Uniform => 0,
            Policy::Starve(p) => u64::from(pipe != p),
            Policy::Eager(p) => u64::from(pipe == p),
            Policy::Slow(p) => u64::from(starts || pipe != p),
            Policy::Newest if starts => u64::MAX,
            Policy::Newest => started,
            Policy::Deep => u64::from(starts),
            Policy::Shallow => u64::from(!starts),
            Policy::Late(n) => u64::from(!starts || number != n),
            Policy::Long(n) => u64::from(starts || number != n),
            Policy::Early(n) => u64::from(number == n),
        }
    }

    fn code(&self, exec: &Exec) -> &Code {
        let unit = &self.program.steps[self.step].units[exec.unit as usize];
        &self.decoded[unit.template as usize].codes[exec.code as usize]
    }

    fn start(&mut self, worker: usize, queue: usize) -> Result<(), Breach> {
        let effect = match self.schedule.effect {
            Effect::Any => [Effect::Split, Effect::Start, Effect::Finish][self.rng.below(3) as usize],
            e => e,
        };
        let skip = self.rng.below(2) == 0;
        let w = &mut self.workers[worker];
        let q = &mut w.queues[queue];
        let (index, exec) = (q.next, &q.execs[q.next]);
        q.next += 1;
        for f in exec.waits.into_iter().flatten() {
            w.flags[f as usize] = false;
        }
        let unit = &self.program.steps[self.step].units[exec.unit as usize];
        let code = &self.decoded[unit.template as usize].codes[exec.code as usize];
        let mut skipped = false;
        if let Some(extents) = &code.sticky {
            let at: Vec<u32> = extents.iter().map(|&e| exec.point.index[usize::from(e)]).collect();
            let known = w.last.insert((exec.core, exec.code), at.clone());
            skipped = skip && !exec.first_tile && known == Some(at);
        }
        let (pipe, number) = (Pipe::ALL[queue % Pipe::ALL.len()], code.at.number);
        let start = self.clock;
        let mut flight =
            Flight { worker, queue, index, start, effect, skipped, record: Record::default(), pipe, number };
        if effect != Effect::Finish {
            self.execute(&mut flight, effect == Effect::Split)?;
        }
        self.under_way.push(flight);
        Ok(())
    }

    /// The instruction's effect; its writes are held back where it writes later.
    fn execute(&mut self, f: &mut Flight, hold: bool) -> Result<(), Breach> {
        if f.skipped {
            return Ok(());
        }
        let math = self.math;
        self.with_view(f, hold, |view, code, exec| {
            execute(&code.inst, &exec.point, view, math)
                .map_err(|e| Breach::Fault { at: Some(code.at), what: e.to_string() })?;
            view.close();
            Ok(())
        })
    }

    fn with_view<R>(
        &mut self,
        f: &mut Flight,
        hold: bool,
        act: impl FnOnce(&mut View<'_>, &Code, &Exec) -> R,
    ) -> R {
        let w = &self.workers[f.worker];
        let exec = &w.queues[f.queue].execs[f.index];
        let unit = &self.program.steps[self.step].units[exec.unit as usize];
        let code = &self.decoded[unit.template as usize].codes[exec.code as usize];
        let mut view = View {
            target: &self.program.target,
            args: self.args,
            rings: &mut self.rings,
            copy: w.copy + usize::from(exec.slot),
            cores: &mut self.cores,
            cube: w.core,
            vector: w.core + usize::from(exec.vector),
            slots: &unit.slots,
            record: &mut f.record,
            notes: &mut self.notes,
            hold,
            asked: Default::default(),
        };
        act(&mut view, code, exec)
    }

    fn finish(&mut self, i: usize) -> Result<(), Breach> {
        let mut f = self.under_way.swap_remove(i);
        match f.effect {
            Effect::Finish => self.execute(&mut f, false)?,
            Effect::Split => self.with_view(&mut f, false, |view, _, _| view.release()),
            _ => {}
        }
        let at = self.with_view(&mut f, false, |_, code, _| code.at);
        for p in &self.finished {
            if p.finish > f.start
                && let Some(range) = p.record.conflict(&f.record)
            {
                let (first, second) = if p.start < f.start { (p.at, at) } else { (at, p.at) };
                return Err(Breach::Overlap { first, second, bytes: self.describe(range) });
            }
        }
        let (worker, queue) = (f.worker, f.queue);
        let past = Past { finish: self.clock, start: f.start, at, record: f.record };
        if !(past.record.reads.is_empty() && past.record.writes.is_empty()) {
            self.finished.push(past);
        }
        let oldest = self.under_way.iter().map(|f| f.start).min().unwrap_or(u64::MAX);
        self.finished.retain(|p| p.finish > oldest);
        self.complete(worker, queue, f.index)
    }

    /// Marks an execution as finished; sets what is to be set then.
    fn complete(&mut self, worker: usize, queue: usize, index: usize) -> Result<(), Breach> {
        let w = &mut self.workers[worker];
        let q = &mut w.queues[queue];
        q.done[index] = true;
        let core = usize::from(q.execs[index].core);
        w.epochs[core][q.execs[index].epoch as usize] -= 1;
        while q.done.get(q.prefix) == Some(&true) {
            let exec = &q.execs[q.prefix];
            q.prefix += 1;
            for f in exec.sets.into_iter().flatten() {
                if std::mem::replace(&mut w.flags[f as usize], true) {
                    let unit = &self.program.steps[self.step].units[exec.unit as usize];
                    let at = self.decoded[unit.template as usize].codes[exec.code as usize].at;
                    return Err(Breach::DoubleSet { at });
                }
            }
        }
        w.open_epoch(core);
        if w.queues.iter().all(|q| q.prefix == q.execs.len()) {
            w.busy = false;
            let mut expected = vec![false; w.flags.len()];
            for &f in &w.free {
                expected[f as usize] = true;
            }
            if w.flags != expected {
                return Err(Breach::Leftover { unit: w.unit });
            }
        }
        Ok(())
    }

    /// The first instruction of every queue that has one.
    fn waiting(&self) -> Vec<InstAt> {
        let queues = self.workers.iter().flat_map(|w| &w.queues);
        queues.filter_map(|q| q.execs.get(q.next)).map(|exec| self.code(exec).at).collect()
    }

    fn describe(&self, r: Range) -> String {
        let args = self.program.args.len() as u32;
        let name = |arg: u32| self.program.args.get(arg as usize).map_or("", |a| a.name.as_str());
        let place = if r.memory >> 31 != 0 {
            Space::ALL[(r.memory & 3) as usize].name().to_owned()
        } else if r.memory >= args {
            format!("a copy of `{}`", name((r.memory - args) >> 10))
        } else {
            format!("`{}`", name(r.memory))
        };
        format!("{place} {}..{}", r.lo, r.hi)
    }
}

impl Worker {
    /// Whether the next of a queue may start.
    fn ready(&self, queue: usize) -> bool {
        let q = &self.queues[queue];
        let Some(exec) = q.execs.get(q.next) else { return false };
        self.open[usize::from(exec.core)] == exec.epoch as usize
            && (!exec.bar || q.prefix == q.next)
            && exec.waits.into_iter().flatten().all(|f| self.flags[f as usize])
    }
    /// Goes on to the next epoch of a core while nothing of the current one is left.
    fn open_epoch(&mut self, core: usize) {
        let epochs = &self.epochs[core];
        while self.open[core] + 1 < epochs.len() && epochs[self.open[core]] == 0 {
            self.open[core] += 1;
        }
    }
}
