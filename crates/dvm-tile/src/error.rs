//! What can go wrong when a kernel meets concrete dims.

use dvm_bc::{EncodeError, Space};

/// A kernel or plan that cannot be compiled for these dims and this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {fault}")]
pub struct TileError {
    /// Which kernel or buffer, e.g. ``kernel `ln` ``.
    pub what: String,
    /// Why.
    pub fault: Fault,
}

impl TileError {
    pub(crate) fn kernel(name: &str, fault: Fault) -> TileError {
        TileError { what: format!("kernel `{name}`"), fault }
    }
    pub(crate) fn buffer(name: &str, fault: Fault) -> TileError {
        TileError { what: format!("buffer `{name}`"), fault }
    }
}

/// Why a kernel cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A dim is unbound, overflowed or divides by zero.
    #[error("{0} has no value under these dims")]
    Undefined(&'static str),
    /// A size is negative.
    #[error("{what} is {value}")]
    Negative {
        /// Which size.
        what: &'static str,
        /// Its value.
        value: i64,
    },
    /// A byte address or size does not fit.
    #[error("{0} is too large")]
    TooLarge(&'static str),
    /// An extent of the unit space does not fit 32 bits.
    #[error("fold {fold} of {extent} elements in tiles of {tile} makes more than 2^32 tiles")]
    Extent {
        /// Position among the folds, outermost first.
        fold: usize,
        /// Elements.
        extent: u64,
        /// Elements in a tile.
        tile: u64,
    },
    /// More extents than a template can have.
    #[error("{found} {what} extents are more than {most}")]
    Extents {
        /// `parallel` or `sequential`.
        what: &'static str,
        /// How many there would be.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// Not even the smallest tile fits local memory.
    #[error("the smallest tile needs {needs} bytes of {} memory, there are {has}", space.name())]
    Memory {
        /// Space.
        space: Space,
        /// Bytes needed.
        needs: u64,
        /// Capacity.
        has: u64,
    },
    /// An access is no row, column or short loop nest of the tile.
    #[error("%{value}: an address with {loops} loops inside a tile, at most {most} are possible")]
    Loops {
        /// Value number.
        value: usize,
        /// Loops.
        loops: usize,
        /// Limit of the instruction.
        most: usize,
    },
    /// A tile that operands cannot express: a count may be ragged in its outermost fold only.
    #[error("%{value}: a tile ragged in more ways than {what}")]
    Ragged {
        /// Value number.
        value: usize,
        /// The counts at hand.
        what: &'static str,
    },
    /// argmax or argmin of nothing.
    #[error("%{value}: the index of an extreme over axis {axis} of extent 0")]
    EmptyArg {
        /// Value number.
        value: usize,
        /// Axis.
        axis: usize,
    },
    /// A body that breaks the rules of the kernel form.
    #[error("%{value}: {what}")]
    Malformed {
        /// Value number, or the number of values for a store.
        value: usize,
        /// The rule.
        what: &'static str,
    },
    /// Legal, but beyond what one template can do.
    #[error("%{value}: {what}")]
    Unsupported {
        /// Value number.
        value: usize,
        /// What is missing.
        what: &'static str,
    },
    /// The machine has no such instructions, and none over a wider dtype that could do their work.
    #[error("the machine has no {}", lacks.join(", "))]
    Illegal {
        /// Each instruction and dtype: `vadd of i64`.
        lacks: Vec<String>,
    },
    /// A field of an instruction does not fit its encoding.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
