//! A fork-join pool for launches of microseconds.
//!
//! General pools cost more to dispatch than a small program runs. Here the caller is worker 0; the chunks of a job are claimed
//! from one word (epoch, total, next) by compare-and-swap; the caller never waits for a worker that has not started, only
//! for chunks that were claimed. An idle worker spins for some 20 µs, then parks: a spinning idle worker steals from its
//! neighbours. When a worker is preempted inside a chunk the caller notices the stall and runs alone for a while.
//!
//! The pool may be shared by any number of sessions: one launch uses the workers at a time, others meanwhile run on their
//! own thread, so cores are not oversubscribed.

mod gate;

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

pub(crate) use gate::MAX_CHUNKS;
use gate::{Gate, Line};

use crate::exec::frame::Frame;

/// How long an idle worker spins before it parks.
const SPIN: Duration = Duration::from_micros(20);
/// How long it spins while a launch is between parallel steps.
const SPIN_BUSY: Duration = Duration::from_micros(200);
/// A join that waits longer than this and than the caller's own chunks took on average means that a worker was preempted.
const STALL: Duration = Duration::from_micros(700);
/// First and longest time of running alone after a stall.
const ALONE_MS: (u32, u32) = (8, 128);

/// A job: `run(context, worker, chunk)`.
#[derive(Clone, Copy)]
struct Job {
    run: unsafe fn(*const (), usize, u32),
    context: *const (),
}

unsafe fn no_job(_: *const (), _: usize, _: u32) {}

struct Shared {
    gate: Gate,
    job: UnsafeCell<Job>,
    /// A launch holds the workers.
    busy: Line<AtomicBool>,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// Local memory of workers 1 and up.
    frames: Vec<Line<UnsafeCell<Frame>>>,
}

// SAFETY: `job` is written only by the holder of `busy` while no chunk is claimed or claimable, and read only between claiming a
// chunk and counting it done; the gate orders the two. Frame w is used only by worker w, inside a chunk.
unsafe impl Sync for Shared {}
// SAFETY: as above; a job's context is shared with workers only while the caller waits in `Team::run`, which demands Sync.
unsafe impl Send for Shared {}

impl Shared {
    /// Runs a chunk that this thread claimed.
    fn run(&self, worker: usize, chunk: u32) {
        // SAFETY: between claim and done the job is not written (see `Sync`).
        let job = unsafe { *self.job.get() };
        // SAFETY: `Team::run` made the pair and waits until all claimed chunks are done.
        if catch_unwind(AssertUnwindSafe(|| unsafe { (job.run)(job.context, worker, chunk) })).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        self.gate.done();
    }

    fn worker(&self, worker: usize) {
        let mut idle: Option<Instant> = None;
        let mut spins = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(chunk) = self.gate.claim() {
                self.run(worker, chunk);
                idle = None;
                continue;
            }
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if !spins.is_multiple_of(64) {
                continue;
            }
            let limit = if self.busy.0.load(Ordering::Relaxed) { SPIN_BUSY } else { SPIN };
            if idle.get_or_insert_with(Instant::now).elapsed() > limit {
                self.gate.park(|| self.stop.load(Ordering::SeqCst), std::thread::park);
                idle = None;
            }
        }
    }
}

/// Persistent worker threads for [`Runtime`](crate::Runtime).
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    wake: Vec<Thread>,
    started: Instant,
    /// Until when (ns since `started`) callers run alone, and for how long next time.
    alone_until: AtomicU64,
    alone_ms: AtomicU32,
    /// Frames of callers.
    pub(crate) spare: Mutex<Vec<crate::runtime::Caller>>,
    /// Launches so far; numbers them uniquely.
    pub(crate) launches: AtomicU64,
}

impl Pool {
    /// A pool of `workers` workers, the calling thread counted: `workers - 1` threads are started (fewer where the system
    /// refuses). 0 counts as 1.
    #[must_use]
    pub fn new(workers: usize) -> Pool {
        let workers = workers.clamp(1, 1024);
        let shared = Arc::new(Shared {
            gate: Gate::new(),
            job: UnsafeCell::new(Job { run: no_job, context: std::ptr::null() }),
            busy: Line(AtomicBool::new(false)),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            frames: (1..workers).map(|_| Line(UnsafeCell::new(Frame::new()))).collect(),
        });
        let threads: Vec<_> = (1..workers)
            .map_while(|w| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("dvm-worker-{w}"))
                    .spawn(move || shared.worker(w))
                    .ok()
            })
            .collect();
        let wake = threads.iter().map(|t| t.thread().clone()).collect();
        Pool {
            shared,
            threads,
            wake,
            started: Instant::now(),
            alone_until: AtomicU64::new(0),
            alone_ms: AtomicU32::new(ALONE_MS.0),
            spare: Mutex::new(Vec::new()),
            launches: AtomicU64::new(0),
        }
    }

    /// Number of workers, the calling thread counted.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Takes the workers for a launch, unless another launch has them, there are none, or a stall was seen lately.
    pub(crate) fn enter(&self) -> Option<Team<'_>> {
        if self.threads.is_empty() || self.shared.busy.0.load(Ordering::Relaxed) {
            return None;
        }
        let until = self.alone_until.load(Ordering::Relaxed);
        if until != 0 {
            if (self.started.elapsed().as_nanos() as u64) < until {
                return None;
            }
            self.alone_until.store(0, Ordering::Relaxed);
        }
        self.shared
            .busy
            .0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Team { pool: self })
    }

    /// A worker sat on its chunk too long: leave the workers alone, longer each time.
    #[cold]
    fn back_off(&self) {
        let ms = self.alone_ms.load(Ordering::Relaxed);
        self.alone_ms.store((ms * 2).min(ALONE_MS.1), Ordering::Relaxed);
        let until = self.started.elapsed() + Duration::from_millis(u64::from(ms));
        self.alone_until.store(until.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for t in &self.wake {
            t.unpark();
        }
        for t in self.threads.drain(..) {
            // A worker catches panics of jobs; nothing is left to report.
            let _ = t.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

/// How a job went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// A chunk panicked.
    pub(crate) panicked: bool,
    /// A worker seems to have lost its core; it is better to go on alone.
    pub(crate) stalled: bool,
}

/// Exclusive use of a pool's workers.
pub(crate) struct Team<'a> {
    pool: &'a Pool,
}

impl Team<'_> {
    /// Runs chunks `0..chunks` on the workers, and on this thread as worker 0 with its own frame. Returns when all are done.
    /// `wake` wakes parked workers.
    pub(crate) fn run<F>(&mut self, chunks: u32, wake: bool, own: &mut Frame, job: &F) -> Outcome
    where
        F: Fn(&mut Frame, u32) + Sync,
    {
        struct Context<'a, F> {
            job: &'a F,
            own: *mut Frame,
            shared: &'a Shared,
        }
        unsafe fn call<F: Fn(&mut Frame, u32) + Sync>(context: *const (), worker: usize, chunk: u32) {
            // SAFETY: the context outlives the job; worker w alone uses frame w, worker 0 the caller's.
            unsafe {
                let c = &*context.cast::<Context<'_, F>>();
                let frame = match worker {
                    0 => c.own,
                    w => c.shared.frames[w - 1].0.get(),
                };
                (c.job)(&mut *frame, chunk);
            }
        }
        let shared = &*self.pool.shared;
        let chunks = chunks.min(MAX_CHUNKS);
        let context = Context { job, own, shared };
        // SAFETY: this thread holds `busy`, and all chunks of the last job are done, so nobody reads `job`.
        unsafe { *shared.job.get() = Job { run: call::<F>, context: (&raw const context).cast() } };
        if shared.gate.open(chunks) && wake {
            self.pool.wake.iter().for_each(Thread::unpark);
        }
        let started = Instant::now();
        let mut mine = 0;
        while let Some(chunk) = shared.gate.claim() {
            shared.run(0, chunk);
            mine += 1;
        }
        let stalled = self.join(chunks, started, mine);
        Outcome { panicked: shared.panicked.swap(false, Ordering::Relaxed), stalled }
    }

    /// Waits for the chunks that workers have claimed; whether one took suspiciously long.
    fn join(&self, chunks: u32, started: Instant, mine: u32) -> bool {
        let (pool, gate) = (self.pool, &self.pool.shared.gate);
        let mut spins = 0u32;
        // When the wait began, and from when on it is a stall.
        let mut waiting: Option<(Instant, Duration)> = None;
        let mut stalled = false;
        while !gate.all_done(chunks) {
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(256) {
                let (since, limit) = *waiting.get_or_insert_with(|| {
                    let now = Instant::now();
                    (now, STALL + 2 * (now - started) / mine.max(1))
                });
                stalled |= since.elapsed() > limit;
                if stalled {
                    // Somebody else may need this core to finish: perhaps the very worker.
                    std::thread::yield_now();
                }
            }
        }
        if stalled {
            pool.back_off();
        } else if waiting.is_none() && pool.alone_ms.load(Ordering::Relaxed) != ALONE_MS.0 {
            pool.alone_ms.store(ALONE_MS.0, Ordering::Relaxed);
        }
        stalled
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.pool.shared.busy.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::Pool;
    use crate::exec::frame::Frame;

    #[test]
    fn every_chunk_runs_once() {
        for workers in [2, 3, 7] {
            let pool = Pool::new(workers);
            let mut own = Frame::new();
            for chunks in [1, 2, 5, 100, 1000] {
                let ran: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
                let job = |_: &mut Frame, c: u32| {
                    ran[c as usize].fetch_add(1, Ordering::Relaxed);
                };
                let outcome = pool.enter().map(|mut team| team.run(chunks, true, &mut own, &job));
                // After a stall the pool asks to be left alone for a while.
                if outcome.is_some() {
                    assert!(
                        ran.iter().all(|r| r.load(Ordering::Relaxed) == 1),
                        "{workers} workers, {chunks}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_launch_at_a_time_has_the_workers() {
        let pool = Pool::new(2);
        let team = pool.enter();
        assert!(team.is_some() && pool.enter().is_none());
        drop(team);
        assert!(pool.enter().is_some());
        assert!(Pool::new(1).enter().is_none());
    }

    #[test]
    fn panics_are_reported_and_survived() {
        let pool = Pool::new(3);
        let mut own = Frame::new();
        let mut team = pool.enter().unwrap();
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = team.run(50, true, &mut own, &|_: &mut Frame, c| assert_ne!(c, 33));
        std::panic::set_hook(quiet);
        assert!(outcome.panicked);
        let outcome = team.run(50, true, &mut own, &|_: &mut Frame, _| {});
        assert!(!outcome.panicked);
    }

    #[test]
    fn a_stalled_worker_makes_callers_go_alone_for_a_while() {
        let pool = Pool::new(2);
        let mut own = Frame::new();
        let caller = std::thread::current().id();
        let job = |_: &mut Frame, _| {
            let here = std::thread::current().id() == caller;
            std::thread::sleep(if here { Duration::from_micros(50) } else { Duration::from_millis(20) });
        };
        // The worker may be late for a job, not for all.
        let stalled = (0..200).any(|_| {
            let mut team = loop {
                match pool.enter() {
                    Some(team) => break team,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            team.run(16, true, &mut own, &job).stalled
        });
        assert!(stalled);
        assert!(pool.enter().is_none());
        std::thread::sleep(Duration::from_millis(300));
        assert!(pool.enter().is_some());
    }
}
