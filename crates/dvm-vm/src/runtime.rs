//! Launching programs.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::error::Fault;
use crate::exec::Executable;
use crate::exec::frame::Frame;
use crate::pool::{MAX_CHUNKS, Pool};
use crate::{ArgRef, LaunchError, Trap, args};

/// How finely steps are shared between workers.
#[derive(Clone, Copy)]
struct Grain {
    /// A step cheaper than this (ns on one core) runs on the caller: a fork costs a good part of it.
    inline_ns: f32,
    /// A step dearer than this is worth waking parked workers for.
    wake_ns: f32,
    /// A chunk is at least this dear, so that claiming it costs nothing.
    chunk_ns: f32,
    /// Chunks per worker: enough to even out, few enough to keep neighbouring tiles on a core.
    chunks_per_worker: u64,
}

const GRAIN: Grain =
    Grain { inline_ns: 2_000.0, wake_ns: 15_000.0, chunk_ns: 1_500.0, chunks_per_worker: 16 };
/// Every tile is a chunk of its own.
#[cfg(feature = "testing")]
const EAGER: Grain = Grain { inline_ns: -1.0, wake_ns: -1.0, chunk_ns: 0.0, chunks_per_worker: 1 << 48 };

/// Threads brought by the embedder instead of a [`Pool`].
pub trait Executor: Send + Sync {
    /// How many calls of a task may run at once.
    fn workers(&self) -> usize;
    /// Calls `task` on up to [`Executor::workers`] threads, the current one included if it likes, and returns when the calls
    /// have returned. Each call takes work until none is left, so one call is enough to be correct.
    fn run(&self, task: &(dyn Fn() + Sync));
}

/// How a launch may be stopped early.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control<'a> {
    /// Stops the launch when set; checked before each run of tiles.
    pub cancel: Option<&'a AtomicBool>,
    /// Stops the launch when past.
    pub deadline: Option<Instant>,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Steps run.
    pub steps: u32,
    /// Steps that were shared between workers.
    pub parallel_steps: u32,
    /// Parallel tiles run.
    pub tiles: u64,
    /// Bytes that loads took from arguments, the workspace included; 0 unless [`crate::BuildOptions::traffic`] asked for it.
    pub loaded: u64,
    /// Bytes that stores wrote to them.
    pub stored: u64,
}

/// What a calling thread needs for a launch.
#[derive(Default)]
pub(crate) struct Caller {
    frame: Option<Box<Frame>>,
    args: Vec<*mut u8>,
}

// SAFETY: the addresses are stale between launches, refilled before use.
unsafe impl Send for Caller {}

enum Backend {
    Pool(Arc<Pool>),
    /// The pool has no threads; it keeps the frames.
    Executor(Box<dyn Executor>, Pool),
}

/// Runs executables. Cheap to share: any number of threads may launch at once.
pub struct Runtime {
    backend: Backend,
    grain: Grain,
}

impl Runtime {
    /// A runtime on a pool, which others may share.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Runtime {
        Runtime { backend: Backend::Pool(pool), grain: GRAIN }
    }

    /// A runtime on the embedder's threads.
    #[must_use]
    pub fn with_executor(executor: Box<dyn Executor>) -> Runtime {
        Runtime { backend: Backend::Executor(executor, Pool::new(1)), grain: GRAIN }
    }

    /// Shares every step of two tiles or more between the workers, a tile at a time.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn eager(self) -> Runtime {
        Runtime { grain: EAGER, ..self }
    }

    /// Threads that a launch may use.
    #[must_use]
    pub fn workers(&self) -> usize {
        match &self.backend {
            Backend::Pool(p) => p.workers(),
            Backend::Executor(e, _) => e.workers().max(1),
        }
    }

    fn pool(&self) -> &Pool {
        match &self.backend {
            Backend::Pool(p) => p,
            Backend::Executor(_, p) => p,
        }
    }

    /// Runs a program on `args`, in the order of the program's arguments.
    ///
    /// # Errors
    /// Arguments that do not fit the program (nothing ran), or a failure while running (outputs are unspecified).
    pub fn launch(&self, exe: &Executable, args: &mut [ArgRef<'_>]) -> Result<Stats, LaunchError> {
        self.launch_with(exe, args, Control::default())
    }

    /// Runs a program that may be stopped early.
    ///
    /// # Errors
    /// As for [`Runtime::launch`], and when stopped.
    pub fn launch_with(
        &self,
        exe: &Executable,
        args: &mut [ArgRef<'_>],
        control: Control<'_>,
    ) -> Result<Stats, LaunchError> {
        let pool = self.pool();
        let mut caller = pool.take();
        let bound = args::bind(&exe.program, args, &mut caller.args);
        let result = bound.and_then(|()| self.steps(exe, &mut caller, control));
        pool.give(caller);
        result
    }

    fn steps(
        &self,
        exe: &Executable,
        caller: &mut Caller,
        control: Control<'_>,
    ) -> Result<Stats, LaunchError> {
        let launch = self.pool().launches.fetch_add(1, Ordering::Relaxed) + 1;
        let frame = caller.frame.get_or_insert_with(|| Box::new(Frame::new()));
        let (mut stats, grain) = (Stats::default(), self.grain);
        // Taken at the first step that is worth it, kept while nothing stalls.
        let mut team = None;
        for (number, step) in exe.steps.iter().enumerate() {
            if step.tiles == 0 {
                continue;
            }
            let run = Run {
                exe,
                args: Addresses(&caller.args),
                launch,
                step: number as u32,
                tiles: step.tiles,
                per_chunk: AtomicU64::new(step.tiles),
                control,
                stopped: AtomicU8::new(0),
                trap_tile: AtomicU64::new(u64::MAX),
                trap: Mutex::new(None),
                moved: Default::default(),
            };
            let workers =
                if step.tiles > 1 && step.cost > grain.inline_ns { self.workers() as u64 } else { 1 };
            let mean = (step.cost / step.tiles as f32).max(0.1);
            let least = ((grain.chunk_ns / mean) as u64).max(1);
            let even =
                if workers > 1 { step.tiles.div_ceil(workers * grain.chunks_per_worker) } else { least * 64 };
            let per = even.max(least).max(step.tiles.div_ceil(u64::from(MAX_CHUNKS)));
            let chunks = match step.spans.as_slice() {
                [] => step.tiles.div_ceil(per),
                spans => spans.iter().fold(0, |n: u64, s| n.saturating_add(s.count(per))),
            };
            // More spans than there can be chunks: all on the caller, which is within every limit.
            let (chunks, per) =
                if chunks > u64::from(MAX_CHUNKS) { (1, u64::MAX) } else { (chunks as u32, per) };
            run.per_chunk.store(per, Ordering::Relaxed);
            let panicked = if workers > 1 && chunks > 1 {
                match &self.backend {
                    Backend::Pool(pool) => {
                        team = team.or_else(|| pool.enter());
                        match &mut team {
                            Some(held) => {
                                stats.parallel_steps += 1;
                                let job = |f: &mut Frame, c| run.chunk(f, c);
                                let outcome = held.run(chunks, step.cost > grain.wake_ns, frame, &job);
                                if outcome.stalled {
                                    team = None;
                                }
                                outcome.panicked
                            }
                            None => run.alone(frame, chunks),
                        }
                    }
                    Backend::Executor(executor, pool) => {
                        stats.parallel_steps += 1;
                        run.spread(executor.as_ref(), pool, frame, chunks)
                    }
                }
            } else {
                run.alone(frame, chunks)
            };
            if panicked {
                return Err(LaunchError::Panicked { step: number as u32 });
            }
            let [loaded, stored] = run.moved.each_ref().map(|n| n.load(Ordering::Relaxed));
            run.outcome()?;
            stats.loaded += loaded;
            stats.stored += stored;
            stats.steps += 1;
            stats.tiles += step.tiles;
        }
        Ok(stats)
    }
}

impl Pool {
    fn take(&self) -> Caller {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
    fn give(&self, mut caller: Caller) {
        caller.args.clear();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

/// Addresses of the arguments.
#[derive(Clone, Copy)]
struct Addresses<'a>(&'a [*mut u8]);
// SAFETY: the launch borrows the memory, mutably where it is written; rule races: tiles of a step do not
// write what others read or write.
unsafe impl Sync for Addresses<'_> {}
// SAFETY: as above.
unsafe impl Send for Addresses<'_> {}

const CANCELLED: u8 = 1;
const DEADLINE: u8 = 2;

/// One step of a launch, shared by the workers.
struct Run<'a> {
    exe: &'a Executable,
    args: Addresses<'a>,
    launch: u64,
    step: u32,
    tiles: u64,
    per_chunk: AtomicU64,
    control: Control<'a>,
    stopped: AtomicU8,
    /// Lowest tile that trapped. Tiles below it still run, so that the report does not depend on timing.
    trap_tile: AtomicU64,
    trap: Mutex<Option<(u64, u32, u64, Fault)>>,
    /// Bytes loaded and stored.
    moved: [AtomicU64; 2],
}

impl Run<'_> {
    /// Runs the tiles of a chunk, which may cross units.
    fn chunk(&self, frame: &mut Frame, chunk: u32) {
        self.run_chunk(frame, chunk);
        if !self.exe.moves.is_empty() {
            let (loaded, stored) = std::mem::take(&mut frame.moved);
            self.moved[0].fetch_add(loaded, Ordering::Relaxed);
            self.moved[1].fetch_add(stored, Ordering::Relaxed);
        }
    }

    fn run_chunk(&self, frame: &mut Frame, chunk: u32) {
        if self.stop() {
            return;
        }
        self.run(frame, chunk);
        if self.exe.streams {
            crate::math::fence();
        }
    }

    fn run(&self, frame: &mut Frame, chunk: u32) {
        let (mut from, end) = self.tiles_of(chunk);
        let units = &self.exe.steps[self.step as usize].units;
        let all = &self.exe.units[units.start as usize..units.end as usize];
        let mut u = all.partition_point(|unit| unit.first_tile <= from) - 1;
        while from < end {
            let unit = &all[u];
            let count = self.exe.templates[unit.template as usize].tiles;
            let to = end.min(unit.first_tile + count);
            if from < to {
                if self.trap_tile.load(Ordering::Relaxed) < from {
                    return;
                }
                let number = units.start + u as u32;
                frame.enter(self.exe, self.args.0, self.launch, self.step, number);
                let (first, last) = (from - unit.first_tile, to - unit.first_tile);
                // SAFETY: rules argument (`bind` compared the lengths) and races; `enter` was just called.
                if let Err((tile, fault)) = unsafe { frame.tiles(self.exe, number, first, last) } {
                    self.trapped(unit.first_tile + tile, u as u32, tile, fault);
                    return;
                }
                from = to;
            }
            u += 1;
        }
    }

    /// The first tile of a chunk and the one behind its last.
    fn tiles_of(&self, chunk: u32) -> (u64, u64) {
        let per = self.per_chunk.load(Ordering::Relaxed);
        let spans = &self.exe.steps[self.step as usize].spans;
        if spans.is_empty() || per == u64::MAX {
            return (
                u64::from(chunk).saturating_mul(per),
                (u64::from(chunk) + 1).saturating_mul(per).min(self.tiles),
            );
        }
        let (mut chunk, mut first) = (u64::from(chunk), 0);
        for s in spans {
            let count = s.count(per);
            if chunk < count {
                let tiles = s.chunk(per, chunk);
                return (first + tiles.start, first + tiles.end);
            }
            (chunk, first) = (chunk - count, first + s.tiles);
        }
        (self.tiles, self.tiles)
    }

    fn stop(&self) -> bool {
        if let Some(flag) = self.control.cancel
            && flag.load(Ordering::Relaxed)
        {
            self.stopped.store(CANCELLED, Ordering::Relaxed);
        }
        if let Some(deadline) = self.control.deadline
            && Instant::now() >= deadline
        {
            self.stopped.store(DEADLINE, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn trapped(&self, at: u64, unit: u32, tile: u64, fault: Fault) {
        let mut trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        if trap.as_ref().is_none_or(|&(lowest, ..)| at < lowest) {
            *trap = Some((at, unit, tile, fault));
            self.trap_tile.store(at, Ordering::Relaxed);
        }
    }

    /// Runs all chunks on this thread; whether one panicked.
    fn alone(&self, frame: &mut Frame, chunks: u32) -> bool {
        let all = || (0..chunks).for_each(|c| self.chunk(frame, c));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)).is_err()
    }

    /// Runs the chunks on an embedder's threads, and whatever they leave on this one; whether one panicked.
    fn spread(&self, executor: &dyn Executor, pool: &Pool, own: &mut Frame, chunks: u32) -> bool {
        let next = AtomicU32::new(0);
        let panicked = AtomicBool::new(false);
        let work = |frame: &mut Frame| {
            loop {
                let c = next.fetch_add(1, Ordering::Relaxed);
                if c >= chunks {
                    return;
                }
                let call = || self.chunk(frame, c);
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
                    panicked.store(true, Ordering::Relaxed);
                }
            }
        };
        executor.run(&|| {
            if next.load(Ordering::Relaxed) < chunks {
                let mut caller = pool.take();
                work(caller.frame.get_or_insert_with(|| Box::new(Frame::new())));
                pool.give(caller);
            }
        });
        // An executor that made no call has left everything.
        work(own);
        panicked.load(Ordering::Relaxed)
    }

    fn outcome(self) -> Result<(), LaunchError> {
        let step = self.step;
        if let Some((_, unit, tile, fault)) = self.trap.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(trap(self.exe, step, unit, tile, fault).into());
        }
        match self.stopped.into_inner() {
            CANCELLED => Err(LaunchError::Cancelled { step }),
            DEADLINE => Err(LaunchError::Deadline { step }),
            _ => Ok(()),
        }
    }
}

/// Names the place of a fault.
#[cold]
fn trap(exe: &Executable, step: u32, unit: u32, tile: u64, fault: Fault) -> Trap {
    let template =
        &exe.program.templates[exe.program.steps[step as usize].units[unit as usize].template as usize];
    let mnemonic = template
        .phases
        .iter()
        .flat_map(|p| &p.sections)
        .flat_map(|s| s.code.iter())
        .nth(fault.instruction as usize)
        .and_then(Result::ok)
        .map_or("?", |inst| inst.op.mnemonic());
    Trap {
        kind: fault.kind,
        step,
        unit,
        tile,
        template: template.name.clone(),
        instruction: fault.instruction,
        mnemonic,
        element: fault.element,
        value: fault.value,
    }
}
