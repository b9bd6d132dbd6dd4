//! What a tensor stands for: a *storage* that views share, its current *version*, and the memory of a version.
//!
//! An in-place update of a whole storage is a new version: what was recorded before keeps the old one, so nothing has to
//! wait. An update of a part is written into the memory of the current version, at the end of the program that computes
//! it; see [`crate::stream`] for when that forces a flush.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dvm_ir::{DType, Tensor as HostTensor, ValueId};
use smallvec::SmallVec;

use crate::Error;

/// Extents, outermost first.
pub(crate) type Shape = SmallVec<[usize; 4]>;

/// Locks a mutex; a panic elsewhere does not poison what is only data.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that tensors share, dense and row-major.
pub(crate) struct Storage {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) current: Mutex<Current>,
}

/// The newest version of a storage.
#[derive(Clone)]
pub(crate) enum Current {
    /// A value of the segment being recorded.
    Node(ValueId),
    /// Memory, perhaps still to be written by a program on its way.
    Data(Arc<Cell>),
}

impl Storage {
    /// The memory of the newest version, where it has any.
    pub(crate) fn data(&self) -> Option<Arc<Cell>> {
        match &*lock(&self.current) {
            Current::Data(cell) => Some(cell.clone()),
            Current::Node(_) => None,
        }
    }
    /// Whether a part of it is to be overwritten by the segment.
    pub(crate) fn is_dirty(&self, segment: u32) -> bool {
        matches!(&*lock(&self.current), Current::Data(c) if c.is_dirty(segment))
    }
}

/// The memory of one version.
pub(crate) struct Cell {
    state: Mutex<State>,
    failed: AtomicBool,
    /// Number of the last job that writes it.
    job: AtomicU64,
    /// The segment in which a graph input stands for it, and that input.
    leaf: AtomicU64,
    /// The segment that has recorded a write to it.
    dirty: AtomicU64,
}

/// What is known of a cell.
pub(crate) enum State {
    /// A job will write it.
    Flight,
    /// Its values.
    Ready(HostTensor),
    /// The job that was to write it failed.
    Failed(Arc<Error>),
}

impl Cell {
    fn new(state: State, job: u64) -> Cell {
        Cell {
            state: Mutex::new(state),
            failed: AtomicBool::new(false),
            job: AtomicU64::new(job),
            leaf: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
        }
    }
    pub(crate) fn ready(t: HostTensor) -> Cell {
        Cell::new(State::Ready(t), 0)
    }
    /// A cell that a job will write.
    pub(crate) fn flight(job: u64) -> Cell {
        Cell::new(State::Flight, job)
    }
    pub(crate) fn job(&self) -> u64 {
        self.job.load(Ordering::Acquire)
    }
    pub(crate) fn set_job(&self, job: u64) {
        self.job.store(job, Ordering::Release);
    }
    /// The graph input that stands for it in a segment.
    pub(crate) fn leaf(&self, segment: u32) -> Option<ValueId> {
        let leaf = self.leaf.load(Ordering::Relaxed);
        (leaf >> 32 == u64::from(segment)).then_some(ValueId(leaf as u32))
    }
    pub(crate) fn set_leaf(&self, segment: u32, v: ValueId) {
        self.leaf.store(u64::from(segment) << 32 | u64::from(v.0), Ordering::Relaxed);
    }
    /// Whether a segment has recorded a write to it.
    pub(crate) fn is_dirty(&self, segment: u32) -> bool {
        self.dirty.load(Ordering::Relaxed) == u64::from(segment)
    }
    pub(crate) fn set_dirty(&self, segment: u32) {
        self.dirty.store(u64::from(segment), Ordering::Relaxed);
    }

    /// Its values, or why there are none. The job that writes it must be done.
    pub(crate) fn read(&self) -> Result<HostTensor, Arc<Error>> {
        match &*lock(&self.state) {
            State::Ready(t) => Ok(t.clone()),
            State::Failed(e) => Err(e.clone()),
            State::Flight => {
                Err(Arc::new(Error::Stream("a value was read before the program that makes it".into())))
            }
        }
    }
    /// The failure, if it is known already.
    pub(crate) fn failure(&self) -> Option<Arc<Error>> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        match &*lock(&self.state) {
            State::Failed(e) => Some(e.clone()),
            _ => None,
        }
    }
    /// Takes the values out to be changed in place.
    pub(crate) fn take(&self) -> Result<HostTensor, Arc<Error>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Flight) {
            State::Ready(t) => Ok(t),
            State::Failed(e) => {
                *state = State::Failed(e.clone());
                Err(e)
            }
            State::Flight => {
                Err(Arc::new(Error::Stream("a value was changed before the program that makes it".into())))
            }
        }
    }
    pub(crate) fn put(&self, t: HostTensor) {
        *lock(&self.state) = State::Ready(t);
    }
    pub(crate) fn fail(&self, e: Arc<Error>) {
        *lock(&self.state) = State::Failed(e);
        self.failed.store(true, Ordering::Release);
    }
}
