//! Eager tensors whose ops run later, fused: [`Stream`] and [`Tensor`].
//!
//! An op on a [`Tensor`] computes nothing. It is recorded, with concrete shapes, and its errors show at once. A *flush* fuses what
//! was recorded by the same rules as a graph, encodes one or a few programs and launches them. It happens when the host
//! reads a value, when 256 ops or very many bytes are pending, when a tensor is read after a part of it was overwritten,
//! and on [`Stream::flush`]. A value whose last handle is gone by then is computed only inside kernels and never stored.
//! Control flow is the host language's.
//!
//! ```
//! use dvm::{Options, Stream};
//!
//! # fn main() -> Result<(), dvm::Error> {
//! let s = Stream::new(Options::default());
//! let x = s.tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let y = ((&x - x.mean(1)?)?.exp()? * 0.5)?; // nothing has run yet
//! let y = if x.sum_all()?.item::<f32>()? > 0.0 { (y + &x)? } else { (y - &x)? };
//! assert_eq!(y.shape(), [2, 3]);
//! assert_eq!(y.to_vec::<f32>()?[1], 2.5); // fused, encoded, run here
//! # Ok(())
//! # }
//! ```
//!
//! # Views and in-place updates
//!
//! `reshape`, `transpose`, `slice`, `expand` and their like give views: tensors that share memory with their source, as far as
//! that is possible with strides. Updates in place (`add_`, `copy_`, ...) are seen by every tensor that shares the
//! memory. Updating a whole tensor costs nothing more than the op; what was recorded before keeps the old values.
//! Updating a part (`cache.narrow(1, len, 1)?.copy_(&k)?`) writes that part only, at the end of the program, so a later
//! read of the tensor flushes.
//!
//! # Errors
//!
//! An op that does not fit its operands is an error where it is called. What goes wrong while running (an index out of
//! range, an integer division by zero, too little memory) is kept with every value that depends on it and returned by
//! every later use of them; other values are not affected.
//!
//! # Threads
//!
//! A stream can be used from any thread, one at a time; streams of different threads may share a runtime
//! ([`Stream::with_runtime`]). While one program runs, the thread that records plans and encodes the next.

mod cache;
mod cut;
mod explain;
mod isolate;
mod job;
mod operators;
mod ops;
mod program;
mod segment;
mod storage;
mod tensor;
mod view;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dvm_ir::{Graph, Scalar, Tensor as HostTensor};
use dvm_npu::MachineSpec;
use dvm_vm::{Pool, Runtime};

use crate::{Error, Options};
use cache::Cache;
use cut::Whole;
use job::{Job, Machine, Queue};
use program::{Compiler, Program, Target};
use segment::Segment;
use storage::{Cell, Current, lock};

pub use operators::{Arg, Operand};
pub use ops::Axes;
pub use tensor::Tensor;

/// Most ops recorded before a flush.
const MAX_OPS: usize = 256;

/// Most bytes that recorded values and their inputs would take before a flush.
const MAX_BYTES: u64 = 1 << 28;

/// Why a flush happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The host read a value.
    HostRead,
    /// As many ops were recorded as are allowed.
    Ops,
    /// As many bytes were pending as are allowed.
    Bytes,
    /// A tensor was used after a part of its memory was overwritten.
    Alias,
    /// [`Stream::flush`].
    Asked,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::HostRead => "the host read a value",
            Cause::Ops => "the limit of recorded ops",
            Cause::Bytes => "the limit of pending bytes",
            Cause::Alias => "a tensor was used after a part of its memory was overwritten",
            Cause::Asked => "asked for",
        })
    }
}

/// What a stream did and what it cost, since it was made or in one flush. Times in µs.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamReport {
    /// Flushes that ran something.
    pub flushes: usize,
    /// Programs launched.
    pub programs: usize,
    /// Kernels in them.
    pub kernels: usize,
    /// Programs that were met before, and not encoded again.
    pub cached: usize,
    /// Ops recorded, views and those that were never needed included.
    pub ops: usize,
    /// Values stored for whoever holds a handle.
    pub stored: usize,
    /// Size of the encoded instructions.
    pub bytecode_bytes: usize,
    /// Fusing; a part of `compile_us`.
    pub plan_us: f64,
    /// From recorded ops to launchable programs: fuse, tile, encode, verify, predecode.
    pub compile_us: f64,
    /// The part of `compile_us` in which no program ran.
    pub exposed_compile_us: f64,
    /// The launches, as far as they are done.
    pub run_us: f64,
}

impl std::fmt::Display for StreamReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ops in {} flush{}: {} kernels in {} program{}, {} values stored, compile {:.1} µs ({:.1} exposed), run {:.1} µs",
            self.ops,
            self.flushes,
            if self.flushes == 1 { "" } else { "es" },
            self.kernels,
            self.programs,
            if self.programs == 1 { "" } else { "s" },
            self.stored,
            self.compile_us,
            self.exposed_compile_us,
            self.run_us
        )
    }
}

/// A sequence of tensor ops, recorded and run when needed. Cloning gives another handle to the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Shared>);

struct Shared {
    core: Mutex<Core>,
    queue: Arc<Queue>,
}

/// A program of the last flush and what it was made from.
pub(crate) struct Ran {
    program: Arc<Program>,
    graph: Arc<Graph>,
}

struct Core {
    segment: Segment,
    compiler: Compiler,
    cache: Cache,
    /// Number of the last job.
    jobs: u64,
    total: StreamReport,
    last: StreamReport,
    ran: Vec<Ran>,
    cause: Cause,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.stop();
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    /// A stream with its own worker threads.
    #[must_use]
    pub fn new(options: Options) -> Stream {
        let runtime = Arc::new(Runtime::new(Arc::new(Pool::new(options.thread_count()))));
        Stream::with_runtime(options, runtime)
    }
    /// A stream on a runtime that is shared with others, so that they do not oversubscribe the cores.
    #[must_use]
    pub fn with_runtime(options: Options, runtime: Arc<Runtime>) -> Stream {
        let spec = options.machine();
        let queue = Queue::new(Machine { runtime, spec, options });
        let core = Core {
            segment: Segment::new(1),
            compiler: Compiler::default(),
            cache: Cache::default(),
            jobs: 0,
            total: StreamReport::default(),
            last: StreamReport::default(),
            ran: vec![],
            cause: Cause::Asked,
        };
        Stream(Arc::new(Shared { core: Mutex::new(core), queue }))
    }
    /// The runtime, to be shared with others.
    #[must_use]
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.0.queue.machine.runtime
    }
    /// The machine programs are compiled for.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.0.queue.machine.spec
    }
    /// The options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.queue.machine.options
    }

    /// Starts everything recorded so far, without waiting for it.
    ///
    /// # Errors
    /// A program could not be compiled; the values that it was to make return the error too.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_core(&mut lock(&self.0.core), Cause::Asked)
    }
    /// Runs everything recorded so far and waits for it. Errors of values are left to those who read them.
    ///
    /// # Errors
    /// As [`Stream::flush`].
    pub fn sync(&self) -> Result<(), Error> {
        let last = {
            let mut core = lock(&self.0.core);
            self.flush_core(&mut core, Cause::Asked)?;
            core.jobs
        };
        self.0.queue.wait(last);
        Ok(())
    }
    /// What the stream has done since it was made.
    #[must_use]
    pub fn report(&self) -> StreamReport {
        let core = lock(&self.0.core);
        StreamReport { run_us: self.0.queue.times().0.as_secs_f64() * 1e6, ..core.total.clone() }
    }
    /// What the last flush compiled; its `run_us` is 0.
    #[must_use]
    pub fn last_flush(&self) -> StreamReport {
        lock(&self.0.core).last.clone()
    }
    /// The kernels of the last flush: the ops of each, why it ends where it does, and why the flush happened.
    #[must_use]
    pub fn explain(&self) -> String {
        let core = lock(&self.0.core);
        explain::text(&core.last, core.cause, &core.ran)
    }

    pub(crate) fn same(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Compiles what is recorded and queues it.
    fn flush_core(&self, core: &mut Core, cause: Cause) -> Result<(), Error> {
        let next = core.segment.id.checked_add(1).unwrap_or(1);
        let segment = std::mem::replace(&mut core.segment, Segment::new(next));
        let ops = segment.graph.nodes.len();
        let mut kept = vec![];
        for n in 0..ops {
            let Some(storage) = segment.alive(n) else { continue };
            let cell = Arc::new(Cell::flight(0));
            *lock(&storage.current) = Current::Data(cell.clone());
            kept.push((segment.graph.nodes[n].output, cell));
        }
        let mut writes = vec![];
        for w in segment.writes.iter().filter(|w| w.is_alive()) {
            let len = w.storage.shape.iter().product();
            let input = w.cell.leaf(segment.id).and_then(|v| match segment.graph.value(v).def {
                dvm_ir::ValueDef::Input(i) => Some(i),
                _ => None,
            });
            let target = Target { view: w.view.clone(), dtype: w.storage.dtype, len, input };
            writes.push((w.value, w.cell.clone(), target));
        }
        core.total.ops += ops;
        if kept.is_empty() && writes.is_empty() {
            return Ok(());
        }
        core.cause = cause;
        core.ran.clear();
        core.last =
            StreamReport { flushes: 1, ops, stored: kept.len() + writes.len(), ..StreamReport::default() };
        let whole = Whole { graph: segment.graph, leaves: segment.leaves, kept, writes };
        let pieces = cut::cut(whole, core.jobs + 1);
        core.jobs += pieces.len() as u64;
        let mut result = Ok(());
        let mut left = pieces.len();
        for piece in pieces {
            left -= 1;
            let awaited = cause == Cause::HostRead && left == 0;
            result = self.submit(core, piece, awaited).and(result);
        }
        let last = core.last.clone();
        let total = &mut core.total;
        total.flushes += 1;
        total.programs += last.programs;
        total.kernels += last.kernels;
        total.cached += last.cached;
        total.stored += last.stored;
        total.bytecode_bytes += last.bytecode_bytes;
        total.plan_us += last.plan_us;
        total.compile_us += last.compile_us;
        total.exposed_compile_us += last.exposed_compile_us;
        result
    }

    /// Compiles a piece and queues its job; a job that somebody waits for is left to who waits.
    fn submit(&self, core: &mut Core, piece: Piece, awaited: bool) -> Result<(), Error> {
        let Machine { options, spec, .. } = &self.0.queue.machine;
        let help = options.overlap && !awaited;
        if help {
            self.0.queue.prepare();
        }
        let start = Instant::now();
        let helped = self.0.queue.times().1;
        let found = core.cache.find(&piece.graph, &piece.targets);
        let cached = found.is_some();
        let compiled = match found {
            Some(program) => Ok(program),
            None => core.compiler.compile(&piece.graph, &piece.targets, options.fuse, spec).map(Arc::new),
        };
        let took = start.elapsed();
        let hidden = self.0.queue.times().1 - helped;
        let micros = |d: Duration| d.as_secs_f64() * 1e6;
        core.last.compile_us += micros(took);
        core.last.exposed_compile_us += micros(took.saturating_sub(hidden));
        let program = match compiled {
            Ok(p) => p,
            Err(e) => {
                let e = Arc::new(e);
                piece.outputs.iter().for_each(|c| c.fail(e.clone()));
                return Err(Error::Earlier(e));
            }
        };
        core.last.programs += 1;
        core.last.kernels += program.kernels;
        core.last.bytecode_bytes += program.bytecode_bytes;
        if cached {
            core.last.cached += 1;
        } else {
            core.cache.insert(&program);
            core.last.plan_us += program.plan_us;
        }
        core.ran.push(Ran { program: program.clone(), graph: piece.graph.clone() });
        let Piece { number, graph, targets, inputs, outputs } = piece;
        let job = Job { number, program, graph, targets, inputs, outputs };
        self.0.queue.push(job, help);
        if !options.overlap {
            self.0.queue.wait(number);
        }
        Ok(())
    }
}

/// A part of a segment that becomes one program. The last outputs, one per target, are written into storages.
pub(crate) struct Piece {
    number: u64,
    graph: Arc<Graph>,
    targets: Vec<Target>,
    inputs: Vec<Arc<Cell>>,
    outputs: Vec<Arc<Cell>>,
}

/// A number as a value of a dtype, if it is one.
fn scalar_tensor(value: Scalar, dtype: dvm_ir::DType) -> Result<HostTensor, Error> {
    match value {
        Scalar::Float(x) if !dtype.is_float() => {
            Err(Error::Stream(format!("the number {x:?} cannot meet a tensor of {dtype}; cast the tensor")))
        }
        _ => Ok(HostTensor::scalar(dtype, value)),
    }
}
