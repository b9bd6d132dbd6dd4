//! The machine: queues of pipes, flags, and the order in which transfers take their turns.
//!
//! A pipe issues in order, so when an instruction starts is the latest of what it waits for; that is computed as soon as all of it is known.
//! Only transfers share anything with other cores: they alone are events, taken in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use dvm_bc::{CROSS_FLAGS, CoreKind, Event, InstAt, MAX_EVENTS, Opcode, Pipe, Program, Role, Unit};
use smallvec::SmallVec;

use super::code::{Code, Line};
use super::cost::{PipeWork, Work};
use super::deal::{Share as Tiles, deal};
use super::extrapolate::Mark;
use super::memory::{L2, Share};
use super::walk::Cursor;
use super::{Cause, Constants, Options, Span, Tick, TimingError, ticks};

/// Cores that are this many transfers apart meet at no line.
const NEAR: Tick = 4;
const PIPES: usize = Pipe::ALL.len();
const FLAGS: usize = PIPES * PIPES * MAX_EVENTS as usize;

/// A decoded instruction in the queue of its pipe.
#[derive(Clone, Copy)]
struct Pending {
    line: u32,
    variant: u8,
    /// A load that is not executed again.
    skipped: bool,
    /// First and last execution of its section in the run.
    first: bool,
    last: bool,
    /// Copy of the rings.
    slot: u16,
    at: u64,
    ready: Tick,
    ready_cause: Cause,
    tile: u64,
}

/// A transfer under way.
struct Open {
    p: Pending,
    start: Tick,
    cause: Cause,
}

/// A pipe of a core.
#[derive(Default)]
pub(super) struct Lane {
    queue: VecDeque<Pending>,
    decoded: u64,
    issued: u64,
    /// When the last instructions started, oldest first.
    starts: VecDeque<Tick>,
    /// Occupied until, and when everything so far has finished.
    free: Tick,
    finish: Tick,
    open: Option<Open>,
    warm: bool,
    /// Accounted until.
    pub(super) upto: Tick,
    pub(super) busy: Tick,
    pub(super) stalls: [Tick; Cause::COUNT],
    pub(super) instructions: u64,
    pub(super) bytes: u64,
}

impl Lane {
    fn idle(&self) -> bool {
        self.queue.is_empty() && self.open.is_none()
    }
    /// Accounts for the time until `start` as `cause` and for the time until `end` as busy.
    fn account(&mut self, start: Tick, end: Tick, cause: Cause) {
        self.stalls[cause as usize] += start.saturating_sub(self.upto);
        self.busy += end.saturating_sub(start.max(self.upto));
        self.upto = self.upto.max(end);
    }
    /// Notes a start; when the queue has room for another one depends on it.
    fn started(&mut self, at: Tick, depth: usize) {
        self.issued += 1;
        self.instructions += 1;
        self.starts.push_back(at);
        if self.starts.len() > depth {
            self.starts.pop_front();
        }
    }
}

/// A physical core, and what it executes.
pub(super) struct Core {
    pub(super) kind: Option<CoreKind>,
    pub(super) number: u32,
    pub(super) lanes: [Lane; PIPES],
    pub(super) decode: Tick,
    scalar: Tick,
    scalar_cause: Cause,
    pub(super) template: usize,
    pub(super) unit: u32,
    pub(super) worker: usize,
    /// Which of the group's vector cores it is.
    vector: u64,
    pub(super) cursor: Cursor,
    section: Option<(usize, usize)>,
    /// First and last execution of the current section.
    turn: (bool, bool),
    pub(super) done: Vec<u64>,
    total: Vec<u64>,
    flags: Vec<Option<Tick>>,
    /// Where loads that may be skipped were last executed.
    last: Vec<SmallVec<[u32; 4]>>,
    pub(super) tiles: u64,
    pub(super) exhausted: bool,
    pub(super) used: bool,
}

impl Core {
    fn new(kind: Option<CoreKind>, number: u32) -> Core {
        Core {
            kind,
            number,
            lanes: Default::default(),
            decode: 0,
            scalar: 0,
            scalar_cause: Cause::Launch,
            template: 0,
            unit: 0,
            worker: 0,
            vector: 0,
            cursor: Cursor::new(0, 1, 0),
            section: None,
            turn: (false, false),
            done: Vec::new(),
            total: Vec::new(),
            flags: vec![None; FLAGS],
            last: Vec::new(),
            tiles: 0,
            exhausted: true,
            used: false,
        }
    }
    fn idle(&self) -> bool {
        self.exhausted && self.lanes.iter().all(Lane::idle)
    }
    fn finish(&self) -> Tick {
        self.lanes.iter().map(|l| l.finish).max().unwrap_or(0).max(self.scalar)
    }
}

/// A core or a group, and its tiles.
pub(super) struct Worker {
    pub(super) cores: SmallVec<[usize; 3]>,
    group: bool,
    vectors: u64,
    pub(super) copies: u64,
    shares: std::vec::IntoIter<Tiles>,
    cross: Vec<Option<Tick>>,
    pub(super) lo: u64,
    pub(super) running: bool,
    end: Tick,
}

/// A transfer in the shared resources.
struct Flow {
    core: u32,
    pipe: u8,
    parts: u8,
    least_end: Tick,
    latency: Tick,
}

/// Tiles to touch in the L2.
pub(super) struct Walk {
    pub(super) worker: u64,
    pub(super) copies: u64,
    pub(super) lo: u64,
    pub(super) unit: u32,
    pub(super) cursor: Cursor,
}

/// Totals of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) l2: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) cube_flops: f64,
    pub(super) vector_flops: f64,
    pub(super) executions: u64,
    pub(super) simulated: u64,
}

pub(super) struct Engine<'a> {
    pub(super) program: &'a Program,
    pub(super) c: &'a Constants,
    pub(super) codes: &'a [Code],
    pub(super) opts: &'a Options,
    pub(super) cores: Vec<Core>,
    pub(super) workers: Vec<Worker>,
    pub(super) l2: L2,
    hbm: Share,
    cache: Share,
    /// Requests to lines that several cores read at once.
    hot: Share,
    /// Starts of transfers: time, order, core and pipe.
    starts: BinaryHeap<Reverse<(Tick, u64, u32, u8)>>,
    order: u64,
    flows: Vec<Flow>,
    spare: Vec<u32>,
    /// Who began to load last, and when, by the first line.
    sharing: BTreeMap<u64, (u32, Tick)>,
    bases: Vec<u64>,
    pub(super) step: usize,
    taking_part: u32,
    depth: usize,
    pub(super) totals: Totals,
    pub(super) spans: Vec<Span>,
    pub(super) dropped: u64,
    decode: Tick,
    /// Time that was extrapolated, and the marks it is extrapolated from.
    pub(super) skipped: Tick,
    pub(super) marks: Vec<Mark>,
    /// The core whose tiles are counted, and the tile at which the next mark is due.
    pub(super) reference: Option<(usize, u64)>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        program: &'a Program,
        c: &'a Constants,
        codes: &'a [Code],
        opts: &'a Options,
    ) -> Result<Engine<'a>, TimingError> {
        let t = &program.target;
        let separate = t.cube_cores > 0;
        let kind = separate.then_some(CoreKind::Vector);
        let mut cores: Vec<Core> = (0..t.cores).map(|n| Core::new(kind, n)).collect();
        cores.extend((0..t.cube_cores).map(|n| Core::new(Some(CoreKind::Cube), n)));
        let per_tick = |v: f64| v / super::TICKS_PER_CYCLE;
        Ok(Engine {
            program,
            c,
            codes,
            opts,
            cores,
            workers: Vec::new(),
            l2: L2::new(c.l2_line, c.l2_bytes, super::footprint(program, opts), opts.l2),
            hbm: Share::new(per_tick(c.hbm_cycle())),
            cache: Share::new(per_tick(c.l2_cycle())),
            hot: Share::new(per_tick(1.0 / c.same_line)),
            starts: BinaryHeap::new(),
            order: 0,
            flows: Vec::new(),
            spare: Vec::new(),
            sharing: BTreeMap::new(),
            bases: super::bases(program, opts)?,
            step: 0,
            taking_part: 0,
            depth: (c.queue_depth as usize).max(1),
            totals: Totals::default(),
            spans: Vec::new(),
            dropped: 0,
            decode: ticks(c.decode),
            skipped: 0,
            marks: Vec::new(),
            reference: None,
        })
    }

    /// Cores that take part in the first step.
    pub(super) fn first_cores(&self) -> f64 {
        let most = self.opts.cores.unwrap_or(u32::MAX);
        let each = |group: bool| if group { self.program.target.vec_per_cube() } else { 1 };
        let dealt = deal(self.program, 0, self.codes, most);
        dealt.iter().filter(|a| !a.shares.is_empty()).map(|a| f64::from(each(a.group))).sum()
    }

    /// All steps, beginning at `now`; returns when the last has ended, and when each ended.
    pub(super) fn run(&mut self, mut now: Tick) -> Result<(Tick, Vec<(Tick, Tick)>), TimingError> {
        let mut steps = Vec::new();
        for core in &mut self.cores {
            for lane in &mut core.lanes {
                lane.account(now, now, Cause::Launch);
            }
        }
        for step in 0..self.program.steps.len() {
            if step > 0 {
                let start = now + ticks(self.c.step_sync);
                for core in &mut self.cores {
                    for lane in &mut core.lanes {
                        lane.account(start, start, Cause::Step);
                    }
                }
                now = start;
            }
            self.step = step;
            let begun = now + self.skipped;
            let end = self.one_step(now)?;
            steps.push((begun, end + self.skipped));
            now = end;
        }
        Ok((now + self.skipped, steps))
    }

    fn one_step(&mut self, now: Tick) -> Result<Tick, TimingError> {
        let t = &self.program.target;
        self.workers.clear();
        let most = self.opts.cores.unwrap_or(u32::MAX);
        for a in deal(self.program, self.step, self.codes, most) {
            let vectors = if a.group { t.vec_per_cube().max(1) } else { 1 };
            let mut cores: SmallVec<[usize; 3]> = SmallVec::new();
            if a.group {
                cores.push((t.cores + a.core) as usize);
                cores.extend((0..vectors).map(|v| (a.core * vectors + v) as usize));
            } else {
                cores.push(a.core as usize);
            }
            let copies = if a.group { u64::from(vectors.max(2)) } else { 1 };
            self.workers.push(Worker {
                cores,
                group: a.group,
                vectors: u64::from(vectors),
                copies,
                shares: a.shares.into_iter(),
                cross: Vec::new(),
                lo: 0,
                running: true,
                end: now,
            });
        }
        self.taking_part = self.workers.iter().filter(|w| w.shares.len() > 0).count() as u32;
        for w in 0..self.workers.len() {
            self.begin(w, now)?;
        }
        self.watch();
        loop {
            let start = self.starts.peek().map(|s| s.0.0);
            let (hbm, cache, hot) = (self.hbm.next(), self.cache.next(), self.hot.next());
            let Some(at) = [start, hbm, cache, hot].into_iter().flatten().min() else { break };
            if hbm == Some(at) {
                if let Some(flow) = self.hbm.done(at) {
                    self.part_done(flow, at)?;
                }
            } else if cache == Some(at) {
                if let Some(flow) = self.cache.done(at) {
                    self.part_done(flow, at)?;
                }
            } else if hot == Some(at) {
                if let Some(flow) = self.hot.done(at) {
                    self.part_done(flow, at)?;
                }
            } else if let Some(Reverse((at, _, core, pipe))) = self.starts.pop() {
                self.transfer(core as usize, pipe as usize, at)?;
            }
            if let Some((core, due)) = self.reference
                && (self.cores[core].tiles >= due || self.cores[core].exhausted)
            {
                self.mark(at);
            }
        }
        if self.workers.iter().any(|w| w.running) {
            return Err(TimingError::Deadlock { waiting: self.waiting() });
        }
        Ok(self.workers.iter().map(|w| w.end).max().unwrap_or(now).max(now))
    }

    /// Leaves the L2 as a launch leaves it: all transfers, worker by worker and tile by tile, without time. What a cache of this
    /// size has forgotten since is left out.
    pub(super) fn warm_up(&mut self) {
        if self.l2.is_resident() {
            return;
        }
        let most = self.opts.cores.unwrap_or(u32::MAX);
        for index in 0..self.program.steps.len() {
            let mut walks = Vec::new();
            for (w, a) in deal(self.program, index, self.codes, most).into_iter().enumerate() {
                let vectors = if a.group { u64::from(self.program.target.vec_per_cube().max(2)) } else { 1 };
                for s in a.shares {
                    let cursor = Cursor::new(s.tiles.start, 1, s.tiles.end);
                    walks.push(Walk {
                        worker: w as u64,
                        copies: vectors,
                        lo: s.tiles.start,
                        unit: s.unit,
                        cursor,
                    });
                }
            }
            self.touch(index, walks);
        }
    }

    /// Touches in the L2 what tiles transfer, a tile of each walk in turn.
    pub(super) fn touch(&mut self, step: usize, mut walks: Vec<Walk>) {
        let units = &self.program.steps[step].units;
        let codes = self.codes;
        // Twice what fits, by what a first tile asks for.
        for i in 0..walks.len() {
            let code = &codes[units[walks[i].unit as usize].template as usize];
            let bytes = code.bytes().max(1).saturating_mul(walks.len() as u64);
            walks[i].cursor.keep_last((2.0 * self.c.l2_bytes / bytes as f64) as u64 + 2);
        }
        let mut left = walks.len();
        while left > 0 {
            left = walks.len();
            // A section of each in turn, as they go on side by side.
            for walk in &mut walks {
                let unit = &units[walk.unit as usize];
                let code = &codes[unit.template as usize];
                let cursor = &mut walk.cursor;
                let Some(s) = cursor.section(code) else {
                    left -= usize::from(!cursor.next_tile(code));
                    continue;
                };
                for &n in code.sections[s].list(None) {
                    let line = &code.lines[n as usize];
                    let variant = cursor.variant(line);
                    let Work::Dma(t) = line.work(variant) else { continue };
                    let copy = walk.worker * walk.copies + (cursor.tile - walk.lo) % walk.copies;
                    let at = address(self.program, &self.bases, unit, line, cursor, copy);
                    if t.bytes > 0 {
                        self.l2.access(at, t);
                    }
                }
            }
        }
    }

    /// The next of a worker's units, or its end.
    fn begin(&mut self, w: usize, mut now: Tick) -> Result<(), TimingError> {
        loop {
            let worker = &mut self.workers[w];
            let Some(share) = worker.shares.next() else {
                worker.running = false;
                worker.end = now;
                return Ok(());
            };
            let unit = &self.program.steps[self.step].units[share.unit as usize];
            let template = unit.template as usize;
            let code = &self.codes[template];
            worker.lo = share.tiles.start;
            worker.cross.clear();
            worker.cross.resize(usize::from(CROSS_FLAGS) * worker.copies as usize, None);
            for slot in 0..worker.copies as usize {
                for &f in &code.free {
                    worker.cross[slot * usize::from(CROSS_FLAGS) + usize::from(f)] = Some(now);
                }
            }
            for (i, &core) in worker.cores.iter().enumerate() {
                let core = &mut self.cores[core];
                let (start, step) = match (worker.group, i) {
                    (false, _) | (true, 0) => (share.tiles.start, 1),
                    (true, v) => (share.tiles.start + v as u64 - 1, worker.vectors),
                };
                core.cursor = Cursor::new(start, step, share.tiles.end);
                let tiles = core.cursor.left();
                core.total.clear();
                core.total.extend(code.sections.iter().map(|s| s.times.saturating_mul(tiles)));
                core.done.clear();
                core.done.resize(code.sections.len(), 0);
                core.flags.fill(None);
                core.last.clear();
                core.last.resize(code.lines.len(), SmallVec::new());
                core.section = None;
                (core.template, core.unit, core.worker) = (template, share.unit, w);
                core.vector = i.saturating_sub(1) as u64;
                core.scalar = now;
                core.scalar_cause = Cause::Decode;
                core.tiles = 0;
                core.exhausted = false;
                core.used = true;
                for lane in &mut core.lanes {
                    lane.free = lane.free.max(now);
                    lane.finish = lane.finish.max(now);
                }
            }
            self.go(w)?;
            let worker = &self.workers[w];
            if !worker.cores.iter().all(|&c| self.cores[c].idle()) {
                return Ok(());
            }
            now = self.end_of_run(w)?;
        }
    }

    /// When a worker's run has ended; no flag may be left set.
    fn end_of_run(&self, w: usize) -> Result<Tick, TimingError> {
        let worker = &self.workers[w];
        let mut end = 0;
        for &c in &worker.cores {
            let core = &self.cores[c];
            end = end.max(core.finish());
            if let Some(f) = core.flags.iter().position(Option::is_some) {
                return Err(TimingError::LeftSet { flag: flag_name(f), unit: core.unit });
            }
        }
        Ok(end)
    }

    /// Lets a worker go on as far as what is known allows.
    fn go(&mut self, w: usize) -> Result<(), TimingError> {
        let cores = self.workers[w].cores.clone();
        loop {
            let mut moved = false;
            for &c in &cores {
                loop {
                    let mut here = self.decode(c, w);
                    for pipe in 0..PIPES {
                        while self.issue(c, pipe, w)? {
                            here = true;
                        }
                    }
                    if !here {
                        break;
                    }
                    moved = true;
                }
            }
            if !moved || cores.len() == 1 {
                return Ok(());
            }
        }
    }

    /// The scalar unit reads on while queues have room.
    fn decode(&mut self, c: usize, w: usize) -> bool {
        let worker = &self.workers[w];
        let core = &mut self.cores[c];
        let code = &self.codes[core.template];
        let unit = &self.program.steps[self.step].units[core.unit as usize];
        let mut moved = false;
        while !core.exhausted {
            let (section, position) = match core.section {
                Some(s) => s,
                None => {
                    let Some(s) = core.cursor.section(code) else {
                        if core.cursor.next_tile(code) {
                            core.tiles += 1;
                        } else {
                            core.exhausted = true;
                            moved = true;
                        }
                        continue;
                    };
                    core.turn = (core.done[s] == 0, core.done[s] + 1 == core.total[s]);
                    core.done[s] += 1;
                    core.section = Some((s, 0));
                    (s, 0)
                }
            };
            let Some(&number) = code.sections[section].list(core.kind.filter(|_| worker.group)).get(position)
            else {
                core.section = None;
                continue;
            };
            let line = &code.lines[number as usize];
            let Some(pipe) = line.pipe else {
                if !core.lanes.iter().all(Lane::idle) {
                    break;
                }
                core.scalar = core.finish() + ticks(self.c.barrier);
                core.scalar_cause = Cause::Drain;
                core.section = Some((section, position + 1));
                moved = true;
                continue;
            };
            let lane = &mut core.lanes[pipe as usize];
            if lane.queue.len() >= self.depth {
                break;
            }
            // The place of the instruction `depth` before it must be free.
            let mut room = 0;
            if lane.decoded >= self.depth as u64 {
                let number = lane.decoded - self.depth as u64;
                let known = lane.issued - lane.starts.len() as u64;
                match lane.starts.get((number - known) as usize) {
                    Some(&at) => room = at,
                    None => break,
                }
            }
            let variant = core.cursor.variant(line);
            let slot = if worker.group { (core.cursor.tile - worker.lo) % worker.copies } else { 0 };
            let mut at = 0;
            let mut skipped = false;
            if let Work::Dma(_) = line.work(variant) {
                let copy = w as u64 * worker.copies + slot;
                at = address(self.program, &self.bases, unit, line, &core.cursor, copy);
                if line.sticky {
                    let here: SmallVec<[u32; 4]> = line
                        .strides
                        .iter()
                        .map(|s| core.cursor.index.get(usize::from(s.0)).copied().unwrap_or(0))
                        .collect();
                    skipped = !core.turn.0 && core.tiles > 1 && core.last[number as usize] == here;
                    core.last[number as usize] = here;
                }
            }
            let ready = core.scalar.max(room) + self.decode;
            let ready_cause = if room > core.scalar { Cause::Decode } else { core.scalar_cause };
            core.scalar = ready;
            core.scalar_cause = Cause::Decode;
            core.decode += self.decode;
            lane.decoded += 1;
            lane.queue.push_back(Pending {
                line: number,
                variant,
                skipped,
                first: core.turn.0,
                last: core.turn.1,
                slot: slot as u16,
                at,
                ready,
                ready_cause,
                tile: core.cursor.tile,
            });
            core.section = Some((section, position + 1));
            moved = true;
        }
        moved
    }

    /// Issues the first of a queue if everything it waits for is known.
    fn issue(&mut self, c: usize, pipe: usize, w: usize) -> Result<bool, TimingError> {
        let codes = self.codes;
        let core = &mut self.cores[c];
        let code = &codes[core.template];
        let lane = &core.lanes[pipe];
        if lane.open.is_some() {
            return Ok(false);
        }
        let Some(&p) = lane.queue.front() else { return Ok(false) };
        let line = &code.lines[p.line as usize];
        let latency = ticks(self.c.flag_latency);
        let (mut ready, mut cause) = (p.ready, p.ready_cause);
        let later = |at: Tick, why: Cause, ready: &mut Tick, cause: &mut Cause| {
            if at > *ready {
                (*ready, *cause) = (at, why);
            }
        };
        let waits = [line.sync.wait, line.sync.wait_back.filter(|_| !p.first)];
        for e in waits.into_iter().flatten() {
            let Some(at) = core.flags[flag(e.peer, pipe, e)] else { return Ok(false) };
            later(at + latency, Cause::of(e.peer), &mut ready, &mut cause);
        }
        let cross = |f: u8| usize::from(p.slot) * usize::from(CROSS_FLAGS) + usize::from(f);
        if line.op == Opcode::XWait
            && let Some(f) = line.flag
        {
            let Some(at) = self.workers[w].cross.get(cross(f)).copied().flatten() else { return Ok(false) };
            later(at, Cause::Cross, &mut ready, &mut cause);
            self.workers[w].cross[cross(f)] = None;
        }
        for e in waits.into_iter().flatten() {
            core.flags[flag(e.peer, pipe, e)] = None;
        }
        // A pipe that waits for itself starts afresh, which includes what a start takes.
        let mut drained = 0;
        if line.sync.bar {
            drained = core.lanes[pipe].finish + ticks(self.c.barrier);
            if drained > ready {
                cause = Cause::Bar;
            }
        }
        let lane = &mut core.lanes[pipe];
        lane.queue.pop_front();
        self.totals.executions += 1;
        self.totals.simulated += 1;
        match line.work(p.variant) {
            Work::Dma(_) if !p.skipped => {
                let start = ready.max(lane.free).max(drained);
                lane.started(start, self.depth);
                lane.open = Some(Open { p, start, cause });
                self.order += 1;
                self.starts.push(Reverse((start, self.order, c as u32, pipe as u8)));
                return Ok(true);
            }
            Work::Pipe(work) => {
                let &PipeWork { busy, head, tail, flops } = work;
                if pipe == Pipe::M as usize {
                    self.totals.cube_flops += flops;
                } else {
                    self.totals.vector_flops += flops;
                }
                let works = busy > 0.0 || tail > 0.0;
                let ready = if works { ready + ticks(head) } else { ready };
                let start = lane.free.max(ready).max(drained);
                let end = start + ticks(busy);
                lane.started(start, self.depth);
                self.complete(c, pipe, w, &p, start, end, end + ticks(tail), cause)?;
            }
            Work::Dma(_) => {
                let start = ready.max(lane.free).max(drained);
                lane.started(start, self.depth);
                self.complete(c, pipe, w, &p, start, start, start, cause)?;
            }
        }
        Ok(true)
    }

    /// A transfer begins.
    fn transfer(&mut self, c: usize, pipe: usize, now: Tick) -> Result<(), TimingError> {
        let core = &mut self.cores[c];
        let lane = &mut core.lanes[pipe];
        let Some(open) = &lane.open else { return Ok(()) };
        let p = open.p;
        let code = &self.codes[core.template];
        let Work::Dma(t) = code.lines[p.line as usize].work(p.variant) else { return Ok(()) };
        let c_ = self.c;
        let traffic = if t.bytes == 0 { Default::default() } else { self.l2.access(p.at, t) };
        self.totals.l2 += traffic.l2;
        self.totals.read += traffic.read;
        self.totals.written += traffic.written;
        lane.bytes += t.bytes;
        let mut alone = t.least.max(t.runs as f64 * t.burst).max(traffic.l2 as f64 / t.rate);
        // Lines that another core has just begun to read.
        let mut hot = false;
        if !t.write && c_.same_line > 0.0 && t.bytes > 0 {
            let line = p.at / (c_.l2_line as u64).max(1);
            let before = self.sharing.insert(line, (c as u32, now));
            hot = before.is_some_and(|(core, at)| core != c as u32 && now - at <= NEAR * ticks(alone));
        }
        if !std::mem::replace(&mut lane.warm, true) {
            alone += match t.write {
                true => c_.mte3_head,
                false => c_.mte2_head + c_.mte2_head_core * f64::from(self.taking_part),
            };
        }
        let latency = match t.write {
            true => t.latency,
            false if traffic.read > 0 => c_.lat_hbm,
            false => c_.lat_l2,
        };
        let flow = Flow {
            core: c as u32,
            pipe: pipe as u8,
            parts: 0,
            least_end: now + ticks(alone),
            latency: ticks(latency),
        };
        let id = match self.spare.pop() {
            Some(id) => {
                self.flows[id as usize] = flow;
                id
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        let rate = t.rate / super::TICKS_PER_CYCLE;
        let memory = traffic.read as f64 / c_.hbm_read + traffic.written as f64;
        let mut parts = 0;
        for (share, bytes) in [(&mut self.hbm, memory), (&mut self.cache, traffic.l2 as f64)] {
            if bytes > 0.0 && !share.is_private() && rate.is_finite() {
                share.add(now, id, bytes, rate);
                parts += 1;
            }
        }
        if hot {
            let requests = traffic.requests as f64;
            self.hot.add(now, id, requests, requests / ticks(alone).max(1) as f64);
            parts += 1;
        }
        self.flows[id as usize].parts = parts;
        if parts == 0 {
            self.arrived(id, now)?;
        }
        Ok(())
    }

    fn part_done(&mut self, id: u32, now: Tick) -> Result<(), TimingError> {
        let flow = &mut self.flows[id as usize];
        flow.parts -= 1;
        if flow.parts == 0 { self.arrived(id, now) } else { Ok(()) }
    }

    /// A transfer has all it shares with others.
    fn arrived(&mut self, id: u32, now: Tick) -> Result<(), TimingError> {
        let f = &self.flows[id as usize];
        let (c, pipe, end, latency) = (f.core as usize, f.pipe as usize, f.least_end.max(now), f.latency);
        self.spare.push(id);
        let Some(open) = self.cores[c].lanes[pipe].open.take() else { return Ok(()) };
        let w = self.cores[c].worker;
        self.complete(c, pipe, w, &open.p, open.start, end, end + latency, open.cause)?;
        self.go(w)?;
        if self.workers[w].cores.iter().all(|&c| self.cores[c].idle()) {
            let end = self.end_of_run(w)?;
            self.begin(w, end)?;
        }
        Ok(())
    }

    /// An instruction occupies its pipe from `start` to `end` and has finished at `finish`; what it sets is set.
    #[expect(clippy::too_many_arguments, reason = "a span is what it is")]
    fn complete(
        &mut self,
        c: usize,
        pipe: usize,
        w: usize,
        p: &Pending,
        start: Tick,
        end: Tick,
        finish: Tick,
        cause: Cause,
    ) -> Result<(), TimingError> {
        let codes = self.codes;
        let core = &mut self.cores[c];
        let line = &codes[core.template].lines[p.line as usize];
        let lane = &mut core.lanes[pipe];
        if end > start {
            lane.account(start, end, cause);
        }
        lane.free = end;
        lane.finish = lane.finish.max(finish);
        let finish = lane.finish;
        for e in [line.sync.set, line.sync.set_back.filter(|_| !p.last)].into_iter().flatten() {
            let f = flag_from(pipe, e);
            if core.flags[f].replace(finish).is_some() {
                return Err(TimingError::DoubleSet { at: line.at, flag: flag_name(f) });
            }
        }
        if line.op == Opcode::XSet
            && let Some(f) = line.flag
        {
            let at = finish + ticks(self.c.xcore_latency);
            let f = usize::from(p.slot) * usize::from(CROSS_FLAGS) + usize::from(f);
            if let Some(place) = self.workers[w].cross.get_mut(f)
                && place.replace(at).is_some()
            {
                return Err(TimingError::DoubleSet { at: line.at, flag: format!("cross flag {f}") });
            }
        }
        if self.opts.trace > 0 && end > start {
            if self.spans.len() < self.opts.trace {
                self.spans.push(Span {
                    core: c as u32,
                    pipe: Pipe::ALL[pipe],
                    start: super::cycles(start),
                    end: super::cycles(end),
                    at: line.at,
                    step: self.step as u32,
                    unit: core.unit,
                    tile: p.tile,
                    waited: cause,
                });
            } else {
                self.dropped += 1;
            }
        }
        Ok(())
    }

    /// The first instruction of each queue that waits.
    fn waiting(&self) -> Vec<InstAt> {
        let mut out = Vec::new();
        for core in &self.cores {
            for lane in &core.lanes {
                if let Some(p) = lane.queue.front() {
                    out.push(self.codes[core.template].lines[p.line as usize].at);
                }
            }
        }
        out.sort_unstable_by_key(|a: &InstAt| (a.template, a.number));
        out.dedup();
        out
    }
}

/// The first byte of a transfer; `copy` is that of a ring.
fn address(program: &Program, bases: &[u64], unit: &Unit, line: &Line, cursor: &Cursor, copy: u64) -> u64 {
    let at = line.affine(&cursor.index) as u64;
    let Some(&(arg, offset)) = unit.slots.get(usize::from(line.slot)) else { return at };
    let base = bases.get(arg as usize).copied().unwrap_or(0);
    let ring = program.args.get(arg as usize).filter(|a| a.role == Role::Ring);
    let ring = ring.map_or(0, |a| copy.wrapping_mul(a.bytes));
    at.wrapping_add(base).wrapping_add(offset).wrapping_add(ring)
}

/// Flag (from, to, id) of a core, where `to` waits.
fn flag(from: Pipe, to: usize, e: Event) -> usize {
    (from as usize * PIPES + to) * MAX_EVENTS as usize + usize::from(e.id) % MAX_EVENTS as usize
}

/// Flag of which `from` is the producer.
fn flag_from(from: usize, e: Event) -> usize {
    (from * PIPES + e.peer as usize) * MAX_EVENTS as usize + usize::from(e.id) % MAX_EVENTS as usize
}

fn flag_name(f: usize) -> String {
    let (pair, id) = (f / MAX_EVENTS as usize, f % MAX_EVENTS as usize);
    format!("{} -> {} {id}", Pipe::ALL[pair / PIPES], Pipe::ALL[pair % PIPES])
}
