//! The first run of a long plan for new dims: groups of its levels are encoded while earlier ones run.
//!
//! The calling thread encodes the first group and launches it. A helper thread has begun on the second by then, and goes on with
//! those that follow; a group that it has not begun when the caller needs it, the caller encodes itself. So a machine that
//! has no core for the helper loses nothing.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use dvm_ir::DimValues;
use dvm_npu::MachineSpec;
use dvm_tile::{Scratch, TileHint};
use dvm_vm::BuildOptions;

use crate::Error;
use crate::engine::{Encoded, encode};
use crate::groups::Groups;
use crate::module::Variant;

/// A plan's groups, encoded for one set of dims.
pub(crate) struct Grouped {
    pub(crate) groups: Arc<Groups>,
    pub(crate) encoded: Vec<Arc<Encoded>>,
    /// Bytes of what lies between groups.
    pub(crate) between: Vec<usize>,
    /// Shapes of the outputs of the whole.
    pub(crate) outputs: Vec<Vec<usize>>,
}

/// A group that was encoded.
pub(crate) struct Made {
    pub(crate) encoded: Arc<Encoded>,
    /// Time it took, packing of weights excluded, and packing.
    pub(crate) us: f64,
    pub(crate) packing_us: f64,
    /// When it was begun.
    pub(crate) begun: Instant,
}

enum Slot {
    Waiting,
    Begun,
    Made(Result<Made, Error>),
    Taken,
}

/// What is to be encoded, and how far that is.
pub(crate) struct Work {
    variant: Arc<Variant>,
    groups: Arc<Groups>,
    values: DimValues,
    spec: Arc<MachineSpec>,
    check: bool,
    build: BuildOptions,
    tiles: Vec<TileHint>,
    slots: Mutex<Vec<Slot>>,
    changed: Condvar,
}

impl Work {
    pub(crate) fn new(
        variant: Arc<Variant>,
        groups: Arc<Groups>,
        values: DimValues,
        spec: Arc<MachineSpec>,
        (check, build, tiles): (bool, BuildOptions, Vec<TileHint>),
    ) -> Work {
        let slots = Mutex::new(groups.list.iter().map(|_| Slot::Waiting).collect());
        Work { variant, groups, values, spec, check, build, tiles, slots, changed: Condvar::new() }
    }
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn make(&self, i: usize, scratch: &mut Scratch) -> Result<Made, Error> {
        let (begun, mut packing_us) = (Instant::now(), 0.0);
        scratch.check(self.check);
        scratch.hint(&self.tiles);
        let plan = &self.groups.list[i].plan;
        let encoded =
            encode(&self.variant, plan, &self.values, (&self.spec, &self.build), scratch, &mut packing_us)?;
        let us = begun.elapsed().as_secs_f64() * 1e6 - packing_us;
        Ok(Made { encoded: Arc::new(encoded), us, packing_us, begun })
    }
    /// Group `i`, encoded here and now unless another thread has begun it.
    pub(crate) fn get(&self, i: usize, scratch: &mut Scratch) -> Result<Made, Error> {
        let mut slots = self.slots();
        if matches!(slots[i], Slot::Waiting) {
            slots[i] = Slot::Taken;
            drop(slots);
            return self.make(i, scratch);
        }
        loop {
            if matches!(slots[i], Slot::Made(_)) {
                let Slot::Made(made) = std::mem::replace(&mut slots[i], Slot::Taken) else { continue };
                return made;
            }
            if matches!(slots[i], Slot::Taken) {
                return Err(Error::Launch("a group was given up".into()));
            }
            slots = self.changed.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// Nobody wants what is not begun.
    pub(crate) fn give_up(&self) {
        self.slots().iter_mut().filter(|s| matches!(s, Slot::Waiting)).for_each(|s| *s = Slot::Taken);
    }
    /// Encodes, in order, what nobody has begun.
    fn help(&self, scratch: &mut Scratch) {
        // The first is the caller's.
        for i in 1..self.groups.list.len() {
            {
                let mut slots = self.slots();
                if !matches!(slots[i], Slot::Waiting) {
                    continue;
                }
                slots[i] = Slot::Begun;
            }
            let make = std::panic::AssertUnwindSafe(|| self.make(i, scratch));
            let made = std::panic::catch_unwind(make)
                .unwrap_or_else(|_| Err(Error::Launch("encoding a group panicked".into())));
            self.slots()[i] = Slot::Made(made);
            self.changed.notify_all();
        }
    }
}

/// A thread that encodes.
pub(crate) struct Helper {
    work: Option<Sender<Arc<Work>>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// `None` where the system has no thread to spare.
    pub(crate) fn new() -> Option<Helper> {
        let (work, next) = channel::<Arc<Work>>();
        let thread = std::thread::Builder::new().name("dvm-encode".into()).spawn(move || {
            let mut scratch = Scratch::default();
            while let Ok(work) = next.recv() {
                work.help(&mut scratch);
            }
        });
        Some(Helper { work: Some(work), thread: Some(thread.ok()?) })
    }
    pub(crate) fn send(&self, work: &Arc<Work>) {
        if let Some(sender) = &self.work {
            // Without a helper the caller encodes everything.
            let _ = sender.send(work.clone());
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(t) = self.thread.take() {
            // It catches panics; nothing is left to report.
            let _ = t.join();
        }
    }
}
