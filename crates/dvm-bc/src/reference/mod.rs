//! What every instruction means: a safe, naive, scalar interpreter.
//!
//! It is the specification that machines are tested against, so it favours being read over being fast: one value at a
//! time, every access checked. [`execute`] runs one instruction at one point of the unit space, on whatever implements
//! [`Memory`]; [`run`] runs a program in program order. Synchronisation means nothing here: one thing happens after
//! another.
//!
//! Results are fixed to the bit, the payload and sign of NaN excepted. Functions that are approximations come from a
//! [`Math`], so that a machine can be compared bit by bit with its own.

mod math;
mod memory;
mod moves;
mod point;
mod product;
mod reduce;
mod run;
mod scalar;
mod table;
mod tile;
mod value;

pub use math::{LibMath, Math};
pub use memory::{Address, Bound, Flat, LocalMemory, Memory, Region, slot_address, zeroed};
pub use point::{PerExtent, Point, tiles, walk_tile};
pub use run::{Failure, Options, Visit, run, run_with, start, visit};

use crate::{DecodeError, Inst};

/// What an instruction met in its data that it cannot compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrapKind {
    /// An index is not in `-limit..limit`.
    IndexOutOfRange {
        /// The extent indexed into.
        limit: u64,
    },
    /// An integer was divided by zero; the value is the dividend.
    DivideByZero,
}

/// Why an instruction did not execute. All but a trap are impossible in a verified program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Its data does not allow it.
    #[error("{kind:?} at element {element}: {value}")]
    Trap {
        /// What.
        kind: TrapKind,
        /// Row-major number of the element, over the actual counts.
        element: u64,
        /// The offending value.
        value: i64,
    },
    /// An access outside of its region.
    #[error("{bytes} bytes at byte {} of {:?}, which has {of}", at.byte, at.region)]
    Bounds {
        /// Where.
        at: Address,
        /// Bytes accessed.
        bytes: u64,
        /// Bytes there are.
        of: u64,
    },
    /// A slot that the unit does not bind.
    #[error("slot ${slot} is not bound")]
    NoSlot {
        /// The slot.
        slot: u16,
    },
    /// An argument that the program does not have.
    #[error("there is no argument {arg}")]
    NoArg {
        /// Its index.
        arg: u32,
    },
    /// The operands are not laid out for the instruction.
    #[error("{mnemonic} with operands of another form")]
    Form {
        /// The instruction.
        mnemonic: &'static str,
    },
    /// The instruction has no meaning on this dtype.
    #[error("{mnemonic} does not take {dtype}")]
    DType {
        /// The instruction.
        mnemonic: &'static str,
        /// The dtype.
        dtype: crate::DType,
    },
    /// The words are no instruction.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// An implementation of [`Memory`] does not allow an access.
    #[error("{0}")]
    Denied(String),
}

/// Executes one instruction at one point of the unit space.
///
/// # Errors
/// A trap; or, where the program is not verified, whatever makes the instruction meaningless. What it wrote before is
/// undefined.
pub fn execute(inst: &Inst, point: &Point, memory: &mut dyn Memory, math: &dyn Math) -> Result<(), Fault> {
    if !inst.op.dtypes().contains(inst.dtype) {
        return Err(Fault::DType { mnemonic: inst.op.mnemonic(), dtype: inst.dtype });
    }
    let block = memory.target().block;
    table::execute(&mut tile::Cx { inst, point, memory, math, block })
}
