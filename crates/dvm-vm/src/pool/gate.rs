//! The synchronisation of the pool: claiming chunks, counting them done, parking. Model-checked with loom
//! (`RUSTFLAGS="--cfg loom" cargo test -p dvm-vm --lib gate --release`).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most chunks of a job.
pub(crate) const MAX_CHUNKS: u32 = u16::MAX as u32;

/// Keeps what different cores write on different cache lines (two, for the adjacent-line prefetcher).
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

/// Chunks of the current job: epoch in the high half, then total, then the next to claim. The epoch makes the word of a job
/// differ from that of the last; what a worker that slept in between claims is a chunk of the current job all the same.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn new(epoch: u32, total: u32) -> Word {
        Word(u64::from(epoch) << 32 | u64::from(total & 0xffff) << 16)
    }
    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
    fn total(self) -> u32 {
        (self.0 >> 16) as u32 & 0xffff
    }
    fn next(self) -> u32 {
        self.0 as u32 & 0xffff
    }
    fn is_open(self) -> bool {
        self.next() < self.total()
    }
}

/// Hands out the chunks of one job at a time.
///
/// The owner opens a job, claims chunks like everybody, and waits until all are done before it opens the next. So between a
/// claim and the matching [`Gate::done`] the job's data stand; opening releases them to who claims, done releases the
/// chunk's effects to who waits.
pub(super) struct Gate {
    claim: Line<AtomicU64>,
    done: Line<AtomicU32>,
    /// Workers that are parked or about to be.
    parked: AtomicU32,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate {
            claim: Line(AtomicU64::new(Word::new(0, 0).0)),
            done: Line(AtomicU32::new(0)),
            parked: AtomicU32::new(0),
        }
    }

    /// Opens a job of `chunks`; whether workers are parked, who would have to be woken.
    pub(super) fn open(&self, chunks: u32) -> bool {
        self.done.0.store(0, Ordering::Relaxed);
        let epoch = Word(self.claim.0.load(Ordering::Relaxed)).epoch().wrapping_add(1);
        // Sequentially consistent with the announcement in `park`: either the worker sees the job, or it is seen here.
        self.claim.0.store(Word::new(epoch, chunks).0, Ordering::SeqCst);
        self.parked.load(Ordering::SeqCst) > 0
    }

    /// Claims a chunk of the current job.
    pub(super) fn claim(&self) -> Option<u32> {
        let mut word = Word(self.claim.0.load(Ordering::Acquire));
        while word.is_open() {
            match self.claim.0.compare_exchange_weak(word.0, word.0 + 1, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(word.next()),
                Err(now) => word = Word(now),
            }
        }
        None
    }

    /// Counts a claimed chunk as done.
    pub(super) fn done(&self) {
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// Whether all chunks of the current job are done.
    pub(super) fn all_done(&self, chunks: u32) -> bool {
        self.done.0.load(Ordering::Acquire) == chunks
    }

    /// Sleeps until there is a job or `stop`. `sleep` may return early.
    pub(super) fn park(&self, stop: impl Fn() -> bool, sleep: impl Fn()) {
        // Announce, then look again: the owner opens, then looks whom to wake.
        self.parked.fetch_add(1, Ordering::SeqCst);
        while !stop() && !Word(self.claim.0.load(Ordering::SeqCst)).is_open() {
            sleep();
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::Gate;

    struct Shared {
        gate: Gate,
        /// What the owner writes before it opens a job: the job's number.
        job: UnsafeCell<u32>,
        /// Effects of chunks: the job that ran each last.
        ran: [UnsafeCell<u32>; 2],
        stop: AtomicBool,
    }
    // SAFETY: that this is sound is what the model checks; loom's cells report any race.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl Shared {
        fn run(&self, chunk: u32) {
            let job = self.job.with(|p| {
                // SAFETY: checked by loom.
                unsafe { *p }
            });
            self.ran[chunk as usize].with_mut(|p| {
                // SAFETY: checked by loom.
                unsafe {
                    assert_ne!(*p, job, "a chunk ran twice");
                    *p = job;
                }
            });
            self.gate.done();
        }
    }

    /// Two jobs of two chunks on the owner and a worker that parks whenever it finds nothing.
    #[test]
    fn chunks_run_once_and_jobs_are_ordered() {
        loom::model(|| {
            let cell = || UnsafeCell::new(0);
            let shared = Arc::new(Shared {
                gate: Gate::new(),
                job: cell(),
                ran: [cell(), cell()],
                stop: AtomicBool::new(false),
            });
            let worker = {
                let s = Arc::clone(&shared);
                thread::spawn(move || {
                    while !s.stop.load(Ordering::SeqCst) {
                        match s.gate.claim() {
                            Some(chunk) => s.run(chunk),
                            None => s.gate.park(|| s.stop.load(Ordering::SeqCst), thread::park),
                        }
                    }
                })
            };
            for job in 1..=2 {
                shared.job.with_mut(|p| {
                    // SAFETY: checked by loom.
                    unsafe { *p = job };
                });
                if shared.gate.open(2) {
                    worker.thread().unpark();
                }
                while let Some(chunk) = shared.gate.claim() {
                    shared.run(chunk);
                }
                while !shared.gate.all_done(2) {
                    thread::yield_now();
                }
                for cell in &shared.ran {
                    cell.with(|p| {
                        // SAFETY: checked by loom.
                        assert_eq!(unsafe { *p }, job);
                    });
                }
            }
            shared.stop.store(true, Ordering::SeqCst);
            worker.thread().unpark();
            worker.join().unwrap();
        });
    }
}
