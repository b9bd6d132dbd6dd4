//! How long a program takes on a machine that nobody here has, and why.
//!
//! Discrete events over pipes. The scalar unit of each core reads instructions in order and puts them into the queues of their pipes, which hold
//! a bounded number; each pipe issues in order, waits for flags and for its own earlier results as the heads say, and occupies itself for what
//! the [`Constants`] of the machine charge. Transfers share the bandwidth of memory and of a write-back L2 with those of all other cores. Data are
//! not needed: time depends on addresses only. What is modelled, what is not and how near it comes is in `docs/machine-model.md`.
//!
//! ```
//! use dvm_npu::{MachineSpec, timing};
//!
//! let program = dvm_bc::asm(include_str!("../../tests/kernels/add.dvmasm"))?;
//! let spec = MachineSpec::named("tiny-npu")?;
//! let t = timing::simulate(&program, &spec, &timing::Options::default())?;
//! println!("{:.1} us, critical pipe {}", t.us, t.critical);
//! assert!(t.us >= t.roofline.bound_us);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod code;
mod constants;
mod cost;
mod deal;
mod engine;
mod extrapolate;
mod memory;
mod report;
mod walk;

use dvm_bc::{InstAt, Pipe, Program, Role};

use crate::MachineSpec;

pub use constants::Constants;
pub use report::{CoreTime, Decode, Memory, PipeTime, Roofline, Timing};

/// Time inside the engine: whole fractions of a cycle, so that sums are exact.
type Tick = u64;
const TICKS_PER_CYCLE: f64 = 1024.0;

fn ticks(cycles: f64) -> Tick {
    (cycles * TICKS_PER_CYCLE).round() as Tick
}

fn cycles(t: Tick) -> f64 {
    t as f64 / TICKS_PER_CYCLE
}

/// What the L2 holds when a launch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2State {
    /// What an earlier launch of the same program left, as when a kernel is measured by running it again and again.
    #[default]
    Warm,
    /// Nothing.
    Cold,
}

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Every tile is simulated; else the steady middle of a long run is extrapolated.
    pub exact: bool,
    /// Most spans of the trace to keep; 0: no trace. A trace is exact.
    pub trace: usize,
    /// What the L2 holds at first.
    pub l2: L2State,
    /// Most vector cores (and cube cores) that take part.
    pub cores: Option<u32>,
    /// Addresses of the arguments; by default one behind the other, each at a multiple of 512 bytes.
    pub addresses: Option<Vec<u64>>,
    /// Most executions of instructions to simulate.
    pub budget: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { exact: false, trace: 0, l2: L2State::Warm, cores: None, addresses: None, budget: 1 << 28 }
    }
}

/// Why a program has no timing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// The program was compiled for a machine whose cores or pipes are not those of the spec.
    #[error("the program is for `{program}` with {has}, the machine `{spec}` has {wants}")]
    Target {
        /// Target of the program.
        program: String,
        /// Name of the spec.
        spec: String,
        /// Cores of the program's target.
        has: String,
        /// Cores of the spec.
        wants: String,
    },
    /// The program is none.
    #[error("template `{template}`: {what}")]
    Code {
        /// Which template.
        template: String,
        /// Why.
        what: String,
    },
    /// A flag that is set is set again.
    #[error("{at} sets flag {flag}, which is set")]
    DoubleSet {
        /// By whom.
        at: InstAt,
        /// Which flag.
        flag: String,
    },
    /// A unit ends with a flag set that nothing waited for.
    #[error("unit {unit} leaves flag {flag} set")]
    LeftSet {
        /// Which flag.
        flag: String,
        /// Index of the unit in its step.
        unit: u32,
    },
    /// Nothing can go on: these wait for what nobody sets.
    #[error("deadlock: {}", waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Deadlock {
        /// The first instruction of each pipe that waits.
        waiting: Vec<InstAt>,
    },
    /// There is too much to simulate.
    #[error("{executions} executions of instructions are more than {budget}")]
    Budget {
        /// What there is.
        executions: u64,
        /// What may be.
        budget: u64,
    },
    /// There are not as many addresses as arguments.
    #[error("{found} addresses for {wanted} arguments")]
    Addresses {
        /// What there is.
        found: usize,
        /// What there should be.
        wanted: usize,
    },
}

/// What an instruction waited for last before it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// A flag of this pipe: its data or its buffer.
    Mte2 = 0,
    /// As `Mte2`, vector instructions.
    V = 1,
    /// As `Mte2`, stores.
    Mte3 = 2,
    /// As `Mte2`, loads of the cube core.
    CMte2 = 3,
    /// As `Mte2`, products.
    M = 4,
    /// As `Mte2`, results of products.
    Fix = 5,
    /// The scalar unit had not read it yet.
    Decode = 6,
    /// Its own pipe's earlier results.
    Bar = 7,
    /// All pipes of the core.
    Drain = 8,
    /// Another core of the group.
    Cross = 9,
    /// The launch, before the first instruction and after the last core's end.
    Launch = 10,
    /// The barrier between steps.
    Step = 11,
    /// Nothing: it had nothing more to do while others had.
    Idle = 12,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 13;
    /// All causes by number.
    pub const ALL: [Cause; Cause::COUNT] = [
        Cause::Mte2,
        Cause::V,
        Cause::Mte3,
        Cause::CMte2,
        Cause::M,
        Cause::Fix,
        Cause::Decode,
        Cause::Bar,
        Cause::Drain,
        Cause::Cross,
        Cause::Launch,
        Cause::Step,
        Cause::Idle,
    ];
    /// A word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Mte2 => "mte2",
            Cause::V => "v",
            Cause::Mte3 => "mte3",
            Cause::CMte2 => "cmte2",
            Cause::M => "m",
            Cause::Fix => "fix",
            Cause::Decode => "decode",
            Cause::Bar => "bar",
            Cause::Drain => "barrier",
            Cause::Cross => "cross",
            Cause::Launch => "launch",
            Cause::Step => "step",
            Cause::Idle => "idle",
        }
    }
    const fn of(pipe: Pipe) -> Cause {
        Cause::ALL[pipe as usize]
    }
}

/// An instruction on its pipe. Times are cycles from the start of the task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Index into [`Timing::cores`].
    pub core: u32,
    /// The pipe.
    pub pipe: Pipe,
    /// Begins to occupy the pipe.
    pub start: f64,
    /// Ends to occupy it; the result may be there later.
    pub end: f64,
    /// Which instruction.
    pub at: InstAt,
    /// Index of the step.
    pub step: u32,
    /// Index of the unit in its step.
    pub unit: u32,
    /// Number of the tile in the unit.
    pub tile: u64,
    /// What it waited for last.
    pub waited: Cause,
}

/// What happened when, in the order in which it was computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The spans.
    pub spans: Vec<Span>,
    /// How many more there were than fit.
    pub dropped: u64,
}

/// Times a program on a machine.
///
/// # Errors
/// The program is not for such a machine, its synchronisation is wrong, or it is too long.
pub fn simulate(program: &Program, spec: &MachineSpec, opts: &Options) -> Result<Timing, TimingError> {
    report::simulate(program, spec, opts)
}

/// Bytes up to the end of the last argument.
fn footprint(program: &Program, opts: &Options) -> u64 {
    let bases = bases(program, opts).unwrap_or_default();
    let ends = program
        .args
        .iter()
        .zip(bases)
        .map(|(a, b)| b.saturating_add(a.bytes.saturating_mul(copies(program, a.role))));
    ends.max().unwrap_or(0)
}

/// Copies of an argument: of a ring one for each worker and turn.
fn copies(program: &Program, role: Role) -> u64 {
    if role == Role::Ring { u64::from(program.target.cores.max(1)) * 2 } else { 1 }
}

/// Addresses of the arguments.
fn bases(program: &Program, opts: &Options) -> Result<Vec<u64>, TimingError> {
    if let Some(a) = &opts.addresses {
        if a.len() != program.args.len() {
            return Err(TimingError::Addresses { found: a.len(), wanted: program.args.len() });
        }
        return Ok(a.clone());
    }
    let mut next = 0u64;
    Ok(program
        .args
        .iter()
        .map(|a| {
            let base = next;
            next = next
                .saturating_add(a.bytes.saturating_mul(copies(program, a.role)).saturating_add(511) & !511);
            base
        })
        .collect())
}
