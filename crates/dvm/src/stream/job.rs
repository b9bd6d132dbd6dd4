//! Launches, in order, by whichever thread has time: the one that records, or one that helps it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dvm_ir::{Graph, Tensor as HostTensor};
use dvm_npu::MachineSpec;
use dvm_vm::{ArgRef, Control, LaunchError, Runtime};

use super::isolate;
use super::program::{Binding, Program, Target};
use super::storage::{Cell, lock};
use crate::launch::bytes_of;
use crate::{Error, Options};

/// Most jobs that wait; the thread that records helps with more.
const MAX_WAITING: u64 = 8;

/// How long the helper spins for the next job while programs are being encoded: being woken takes longer than encoding one.
const SPIN: Duration = Duration::from_micros(500);

/// One launch.
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) program: Arc<Program>,
    /// What the program was made from, to find out what does not depend on a failure.
    pub(crate) graph: Arc<Graph>,
    pub(crate) targets: Vec<Target>,
    pub(crate) inputs: Vec<Arc<Cell>>,
    /// Values that are made, then storages that are written in place.
    pub(crate) outputs: Vec<Arc<Cell>>,
}

/// What every launch of a stream needs.
pub(crate) struct Machine {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) spec: MachineSpec,
    pub(crate) options: Options,
}

/// Why a launch failed.
pub(crate) enum Failure {
    /// An input has no values.
    Input(usize, Arc<Error>),
    /// A value made an instruction fail.
    Trap(dvm_vm::Trap),
    /// Nothing of it can be used.
    Whole(Error),
}

impl Job {
    /// Runs the program; outputs that cannot be had carry the reason afterwards.
    fn run(self, machine: &Machine, workspace: &mut Vec<u64>) {
        let run = || launch(&self.program, &self.inputs, &self.outputs, machine, workspace);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => isolate::settle(&self, failure, machine),
            Err(_) => {
                let e = Arc::new(Error::Launch("a launch panicked".into()));
                self.outputs.iter().for_each(|c| c.fail(e.clone()));
            }
        }
    }
}

/// Launches a program on cells.
pub(crate) fn launch(
    program: &Program,
    inputs: &[Arc<Cell>],
    outputs: &[Arc<Cell>],
    machine: &Machine,
    workspace: &mut Vec<u64>,
) -> Result<(), Failure> {
    let mut given: Vec<Option<HostTensor>> = vec![None; inputs.len()];
    for b in &program.bindings {
        if let Binding::Input(i) = *b {
            let i = i as usize;
            given[i] = Some(inputs[i].read().map_err(|e| Failure::Input(i, e))?);
        }
    }
    let whole = |e: &str| Failure::Whole(Error::Launch(e.into()));
    let mut made = Vec::with_capacity(outputs.len());
    let mut needs = program.workspace_bytes as u64;
    for t in given.iter().flatten() {
        needs = needs.saturating_add(t.bytes().len() as u64);
    }
    for (o, shape) in program.plan.outputs.iter().zip(&program.shapes).take(program.first_write) {
        needs = needs.saturating_add(super::segment::byte_size(o.dtype, shape).unwrap_or(u64::MAX));
    }
    let limit = machine.options.max_bytes;
    if needs > limit {
        let step = format!("a program of {} kernels with its inputs and outputs", program.kernels);
        return Err(Failure::Whole(Error::Memory { step, needs, limit }));
    }
    for (o, shape) in program.plan.outputs.iter().zip(&program.shapes).take(program.first_write) {
        made.push(HostTensor::zeros(o.dtype, shape).map_err(|e| Failure::Whole(e.into()))?);
    }
    for (i, cell) in outputs[program.first_write..].iter().enumerate() {
        match cell.take() {
            Ok(t) => made.push(t),
            Err(e) => {
                let taken = made.drain(program.first_write..).zip(&outputs[program.first_write..]);
                taken.for_each(|(t, c)| c.put(t));
                return Err(Failure::Input(inputs.len() + program.first_write + i, e));
            }
        }
    }
    let bytes = program.workspace_bytes;
    if workspace.len() < bytes.div_ceil(8) {
        *workspace = vec![0; bytes.div_ceil(8)];
    }
    let result = {
        let mut space = Some(bytes_of(&mut workspace[..bytes.div_ceil(8)], bytes));
        let mut outs: Vec<Option<&mut [u8]>> = made.iter_mut().map(|t| Some(t.bytes_mut())).collect();
        let mut args = Vec::with_capacity(program.bindings.len());
        for b in &program.bindings {
            args.push(match b {
                Binding::Input(i) => ArgRef::In(
                    given[*i as usize].as_ref().ok_or_else(|| whole("an input is missing"))?.bytes(),
                ),
                Binding::Output(o) => {
                    ArgRef::Out(outs[*o as usize].take().ok_or_else(|| whole("an output is bound twice"))?)
                }
                Binding::Constant(c) => ArgRef::In(program.plan.constants[*c as usize].bytes()),
                Binding::Packed(data) => ArgRef::In(data),
                Binding::Workspace => {
                    ArgRef::Out(space.take().ok_or_else(|| whole("the workspace is bound twice"))?)
                }
                Binding::Ring => ArgRef::Ring,
                Binding::Same(o) => ArgRef::SameAs(*o),
            });
        }
        let deadline = machine.options.timeout.map(|t| Instant::now() + t);
        machine.runtime.launch_with(&program.exe, &mut args, Control { cancel: None, deadline })
    };
    let written = made.drain(program.first_write..).zip(&outputs[program.first_write..]);
    match result {
        Ok(_) => {
            written.for_each(|(t, c)| c.put(t));
            made.into_iter().zip(outputs).for_each(|(t, c)| c.put(t));
            Ok(())
        }
        Err(LaunchError::Trap(trap)) => {
            // Writes are in the last step and cannot fail themselves.
            written.for_each(|(t, c)| c.put(t));
            Err(Failure::Trap(trap))
        }
        Err(e) => {
            let e = Arc::new(Error::Launch(e.to_string()));
            outputs[program.first_write..].iter().for_each(|c| c.fail(e.clone()));
            Err(Failure::Whole(Error::Earlier(e)))
        }
    }
}

/// Jobs in the order they must run.
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// Jobs queued so far, for who spins.
    pushed: AtomicU64,
    /// The recording thread encodes; there will be a job soon.
    encoding: AtomicBool,
    pub(crate) machine: Machine,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Some thread runs a job.
    running: bool,
    /// The helper sleeps.
    parked: bool,
    /// Number of the last job that is done.
    done: u64,
    stop: bool,
    workspace: Vec<u64>,
    run: Duration,
    /// Time in which the helper ran, and since when it does.
    helped: Duration,
    since: Option<Instant>,
    helper: Option<JoinHandle<()>>,
}

impl Queue {
    pub(crate) fn new(machine: Machine) -> Arc<Queue> {
        Arc::new(Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            pushed: AtomicU64::new(0),
            encoding: AtomicBool::new(false),
            machine,
        })
    }
    /// Tells the helper that there will be a job for it soon.
    pub(crate) fn prepare(self: &Arc<Queue>) {
        self.encoding.store(true, Ordering::Relaxed);
        let mut w = lock(&self.state);
        if w.helper.is_none() {
            let queue = self.clone();
            let thread = std::thread::Builder::new().name("dvm-stream".into());
            // Without a helper the recording thread runs everything.
            w.helper = thread.spawn(move || queue.help()).ok();
        }
        let parked = w.parked;
        drop(w);
        if parked {
            self.changed.notify_all();
        }
    }
    /// Queues a job. Where the helper may take it, this returns at once; otherwise the job waits for [`Queue::wait`].
    pub(crate) fn push(self: &Arc<Queue>, job: Job, help: bool) {
        let number = job.number;
        let mut w = lock(&self.state);
        w.jobs.push_back(job);
        self.pushed.fetch_add(1, Ordering::Relaxed);
        let (alone, parked) = (w.helper.is_none(), w.parked);
        drop(w);
        if !help {
            return;
        }
        if parked {
            self.changed.notify_all();
        }
        if alone {
            self.wait(number);
        } else if number > MAX_WAITING {
            self.wait_for(number - MAX_WAITING);
        }
    }
    /// Returns when a job is done; runs what comes before it if nobody else does.
    pub(crate) fn wait(&self, number: u64) {
        self.encoding.store(false, Ordering::Relaxed);
        self.wait_for(number);
    }
    fn wait_for(&self, number: u64) {
        let mut w = lock(&self.state);
        while w.done < number {
            if !w.running && !w.jobs.is_empty() {
                w = self.run_next(w, false);
            } else if w.running {
                w = self.changed.wait(w).unwrap_or_else(std::sync::PoisonError::into_inner);
            } else {
                // No such job: it was never queued.
                return;
            }
        }
    }
    /// Time spent in launches, and in those that the helper ran while the recording thread did something else.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        let w = lock(&self.state);
        (w.run, w.helped + w.since.map_or(Duration::ZERO, |s| s.elapsed()))
    }
    fn run_next<'a>(
        &'a self,
        mut w: std::sync::MutexGuard<'a, Waiting>,
        helper: bool,
    ) -> std::sync::MutexGuard<'a, Waiting> {
        let Some(job) = w.jobs.pop_front() else { return w };
        let number = job.number;
        w.running = true;
        let start = Instant::now();
        w.since = helper.then_some(start);
        let mut workspace = std::mem::take(&mut w.workspace);
        drop(w);
        job.run(&self.machine, &mut workspace);
        let mut w = lock(&self.state);
        let took = start.elapsed();
        w.run += took;
        if helper {
            w.helped += took;
        }
        w.since = None;
        w.workspace = workspace;
        w.running = false;
        w.done = number;
        self.changed.notify_all();
        w
    }
    fn help(&self) {
        let mut w = lock(&self.state);
        while !w.stop {
            if !w.running && !w.jobs.is_empty() {
                w = self.run_next(w, true);
                continue;
            }
            let seen = self.pushed.load(Ordering::Relaxed);
            drop(w);
            let since = Instant::now();
            while self.encoding.load(Ordering::Relaxed)
                && self.pushed.load(Ordering::Relaxed) == seen
                && since.elapsed() < SPIN
            {
                std::hint::spin_loop();
            }
            w = lock(&self.state);
            if !w.stop && (w.running || w.jobs.is_empty()) {
                w.parked = true;
                w = self.changed.wait(w).unwrap_or_else(std::sync::PoisonError::into_inner);
                w.parked = false;
            }
        }
    }
    /// Ends the helper. Nobody waits for what is still queued.
    pub(crate) fn stop(&self) {
        let helper = {
            let mut w = lock(&self.state);
            w.stop = true;
            w.jobs.clear();
            w.helper.take()
        };
        self.changed.notify_all();
        if let Some(h) = helper {
            // Jobs catch panics; nothing is left to report.
            let _ = h.join();
        }
    }
}
