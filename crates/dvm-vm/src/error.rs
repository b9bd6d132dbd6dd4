//! What can go wrong when a program is prepared or launched.

use dvm_bc::DType;

/// A program that cannot be prepared for this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No kernel for an instruction.
    #[error("template {template}, instruction {index}: {mnemonic} does not take {dtype}")]
    Unsupported {
        /// Template.
        template: String,
        /// Instruction, counted over the template.
        index: u32,
        /// Instruction name.
        mnemonic: &'static str,
        /// Its dtype.
        dtype: DType,
    },
    /// Code that is not an instruction. Verified programs have none.
    #[error("template {template}: {source}")]
    Decode {
        /// Template.
        template: String,
        /// Where and what.
        source: dvm_bc::DecodeError,
    },
    /// The templates use more local memory than a worker may have.
    #[error("the program needs {bytes} bytes of local memory per worker, the limit is {limit}")]
    LocalMemory {
        /// Wanted.
        bytes: u64,
        /// Allowed.
        limit: u64,
    },
}

/// A launch that did not complete. Outputs then hold unspecified values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Wrong number of arguments.
    #[error("the program has {expected} arguments, {got} were given")]
    ArgCount {
        /// Arguments of the program.
        expected: usize,
        /// Arguments given.
        got: usize,
    },
    /// An argument's length is wrong.
    #[error("argument {arg} ({name}): {got} bytes given, {expected} needed")]
    ArgBytes {
        /// Index.
        arg: usize,
        /// Name.
        name: String,
        /// Bytes needed.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// A read-only reference where the program writes, or the reverse.
    #[error("argument {arg} ({name}): a {role} cannot be bound to {given}")]
    ArgRole {
        /// Index.
        arg: usize,
        /// Name.
        name: String,
        /// Its role.
        role: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// An argument's address is not a multiple of its dtype's size.
    #[error("argument {arg} ({name}): address is not aligned to {align} bytes")]
    ArgAlign {
        /// Index.
        arg: usize,
        /// Name.
        name: String,
        /// Required alignment.
        align: u32,
    },
    /// [`ArgRef::SameAs`](crate::ArgRef::SameAs) names a pair that the program does not declare as alias.
    #[error("argument {arg} ({name}) may not share the memory of argument {other}")]
    ArgAlias {
        /// Index.
        arg: usize,
        /// Name.
        name: String,
        /// The argument it was to share.
        other: usize,
    },
    /// A value made an instruction fail.
    #[error(transparent)]
    Trap(#[from] Trap),
    /// Stopped by [`Control`](crate::Control).
    #[error("cancelled in step {step}")]
    Cancelled {
        /// Step that did not complete.
        step: u32,
    },
    /// Stopped by the deadline in [`Control`](crate::Control).
    #[error("deadline passed in step {step}")]
    Deadline {
        /// Step that did not complete.
        step: u32,
    },
    /// A worker panicked: a defect in this crate or in an executor.
    #[error("a worker panicked in step {step}")]
    Panicked {
        /// Step that did not complete.
        step: u32,
    },
}

pub use dvm_bc::reference::TrapKind;

/// A data-dependent failure: the first in the order (step, tile, execution within the tile, element), whatever
/// the number of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    /// What happened.
    pub kind: TrapKind,
    /// Step of the program.
    pub step: u32,
    /// Unit of the step.
    pub unit: u32,
    /// Parallel tile of the unit, in row-major order of its parallel extents.
    pub tile: u64,
    /// Name of the template.
    pub template: String,
    /// Instruction, counted over the template's sections in order.
    pub instruction: u32,
    /// Its name.
    pub mnemonic: &'static str,
    /// Element of the tile, row-major over the instruction's actual counts.
    pub element: u64,
    /// The index, or the dividend.
    pub value: i64,
}

impl std::fmt::Display for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            TrapKind::IndexOutOfRange { limit } => {
                write!(f, "index {} is out of range for an extent of {limit}", self.value)?;
            }
            TrapKind::DivideByZero => write!(f, "integer division of {} by zero", self.value)?,
        }
        write!(
            f,
            " (step {}, unit {}, {} tile {}, instruction {} {}, element {})",
            self.step, self.unit, self.template, self.tile, self.instruction, self.mnemonic, self.element
        )
    }
}
impl std::error::Error for Trap {}

/// A failure inside a tile, before it is located.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: TrapKind,
    pub(crate) instruction: u32,
    pub(crate) element: u64,
    pub(crate) value: i64,
}
