//! A machine that does its worst: it executes a program in any order that events, draining and barriers allow.
//!
//! Every pipe of every core is a queue. Instructions start in the order of their queue; they *start* and *finish* separately, and
//! several of one pipe may be under way and finish in any order, unless the `bar` bit is set. An instruction takes
//! effect at some moment in between: it reads at its start and writes at its finish, or does both at either. Nothing but
//! the synchronisation in the code holds anything back. A program whose synchronisation is right computes the bits of
//! program order under every [`Schedule`]; for one where it is not, some schedule shows it: two instructions under way that
//! touch common bytes, a flag set twice, a deadlock, or different bits.
//!
//! Values are those of [`dvm_bc::reference`]. This is the oracle of the [hazard checker](crate::hazard) and shares nothing with it.

mod deal;
mod machine;
mod memory;
mod schedule;

use std::fmt;

use dvm_bc::reference::Math;
use dvm_bc::{InstAt, Program, Role};

pub use machine::run;
pub use schedule::{Effect, Policy, Schedule};

/// What a schedule shows to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// Two instructions that are under way at the same time touch common bytes, and one of them writes.
    Overlap {
        /// The one that started first.
        first: InstAt,
        /// The other.
        second: InstAt,
        /// The bytes, named for people.
        bytes: String,
    },
    /// A flag that is set is set again.
    DoubleSet {
        /// By whom.
        at: InstAt,
    },
    /// A flag is not as it was when the unit began.
    Leftover {
        /// Index of the unit in its step.
        unit: u32,
    },
    /// Nothing can go on.
    Deadlock {
        /// The first instruction of each pipe that waits.
        waiting: Vec<InstAt>,
    },
    /// An instruction does not execute: a trap, or an access that no verified program makes.
    Fault {
        /// Where; `None` where the code does not decode.
        at: Option<InstAt>,
        /// Why.
        what: String,
    },
    /// An output differs from that of program order.
    Differs {
        /// The argument.
        arg: String,
        /// The first byte that differs.
        byte: usize,
    },
    /// The program executes more than this executor is made for.
    TooLarge,
}

impl Breach {
    /// A word for tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Breach::Overlap { .. } => "overlap",
            Breach::DoubleSet { .. } => "double set",
            Breach::Leftover { .. } => "left over",
            Breach::Deadlock { .. } => "deadlock",
            Breach::Fault { .. } => "fault",
            Breach::Differs { .. } => "differs",
            Breach::TooLarge => "too large",
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Overlap { first, second, bytes } => {
                write!(f, "{first} and {second} are under way together on {bytes}")
            }
            Breach::DoubleSet { at } => write!(f, "{at} sets a flag that is set"),
            Breach::Leftover { unit } => write!(f, "unit {unit} leaves a flag changed"),
            Breach::Deadlock { waiting } => {
                f.write_str("deadlock:")?;
                waiting.iter().try_for_each(|at| write!(f, " {at};"))
            }
            Breach::Fault { at: Some(at), what } => write!(f, "{at}: {what}"),
            Breach::Fault { at: None, what } => f.write_str(what),
            Breach::Differs { arg, byte } => write!(f, "`{arg}` differs from program order at byte {byte}"),
            Breach::TooLarge => f.write_str("too many executions for this executor"),
        }
    }
}

impl std::error::Error for Breach {}

/// Runs a program under the first `schedules` schedules and compares its outputs with `expected`, all arguments as program
/// order leaves them. The first breach, and the number of its schedule; `None` where every schedule agrees.
///
/// `args` are the arguments as a launch finds them.
///
/// ```
/// use dvm_bc::reference::{self, LibMath};
/// use dvm_npu::adversary;
///
/// let program = dvm_bc::asm(include_str!("../../tests/kernels/add.dvmasm"))?;
/// let mut args = reference::zeroed(&program.args);
/// for (i, v) in args[0].iter_mut().enumerate() {
///     *v = i as u8;
/// }
/// let mut expected = args.clone();
/// reference::run(&program, &mut expected, &LibMath)?;
/// assert_eq!(adversary::judge(&program, &args, &expected, &LibMath, 20), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn judge(
    program: &Program,
    args: &[Vec<u8>],
    expected: &[Vec<u8>],
    math: &dyn Math,
    schedules: u64,
) -> Option<(u64, Breach)> {
    (0..schedules).find_map(|n| {
        let mut bytes = args.to_vec();
        let breach = match run(program, &mut bytes, math, &Schedule::nth(program, n)) {
            Ok(()) => compare(program, &bytes, expected)?,
            Err(breach) => breach,
        };
        Some((n, breach))
    })
}

/// The first byte of an output that differs.
#[must_use]
pub fn compare(program: &Program, found: &[Vec<u8>], expected: &[Vec<u8>]) -> Option<Breach> {
    let outputs = program.args.iter().zip(found.iter().zip(expected));
    outputs.filter(|(a, _)| a.role == Role::Output).find_map(|(a, (x, y))| {
        let byte = x.iter().zip(y).position(|(x, y)| x != y)?;
        Some(Breach::Differs { arg: a.name.clone(), byte })
    })
}
