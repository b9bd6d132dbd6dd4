//! Programs: arguments, templates, units, steps.
//!
//! A program is one launch. A template is a kernel's code over argument *slots*; a unit binds the slots; the units
//! of a step may run at the same time; steps run in order with a core barrier between them.

use crate::{Code, DType, Target};

/// What an argument is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Read only, bound at every launch.
    Input,
    /// Written, bound at every launch.
    Output,
    /// Read only, the same at every launch.
    Weight,
    /// Scratch. All intermediates live in one workspace argument.
    Workspace,
    /// Scratch that is private to a group of cores: what a tile stores it loads itself. The argument's extent is that of one
    /// copy; a machine has as many as it runs tiles at once. Units may share a ring: a group finishes one before it starts the
    /// next.
    Ring,
}

/// How the bytes of an argument are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Addressed by strides.
    Plain,
    /// A stack of `batch` matrices `k x n`, each packed into panels of `nr` columns, K-major inside a panel:
    /// element (kk, j) of a matrix is at `((j / nr) * k + kk) * nr + j % nr`; the last panel is zero padded.
    Panels {
        /// Panel width.
        nr: u32,
        /// Rows.
        k: u64,
        /// Columns.
        n: u64,
        /// Number of matrices.
        batch: u64,
    },
}

/// One argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Name, unique in the program.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Extent in bytes.
    pub bytes: u64,
    /// Alignment of the base address in bytes, a power of two and at least the dtype's size. The VM demands the dtype's
    /// size only; of the workspace, which holds tiles of several dtypes, this or 8, whichever is less.
    pub align: u32,
    /// Arrangement.
    pub layout: Layout,
    /// Cleared to zero at launch because the verifier cannot prove it fully written.
    pub zero: bool,
}

/// What kind of unit runs a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Vector instructions only.
    Vector,
    /// Cube instructions only.
    Cube,
    /// Both.
    Mix,
}

/// Code of a phase that runs at one place of its sequential walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Before the loops at this depth and deeper start; 0 wraps the whole walk. Runs even when the walk is empty
    /// (depth 0 only).
    Init(u8),
    /// At each point of the walk (once where there are no sequential extents).
    Body,
    /// After the loops at this depth and deeper ended.
    Finish(u8),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Init(d) => write!(f, "init({d})"),
            Place::Body => write!(f, "body"),
            Place::Finish(d) => write!(f, "finish({d})"),
        }
    }
}

/// A run of instructions at one [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Where it runs.
    pub place: Place,
    /// Encoded instructions.
    pub code: Code,
}

/// One pass over the sequential walk of a parallel tile. Local memory lives across the phases of one tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Sequential extents, outermost first.
    pub seq: Vec<u32>,
    /// The innermost sequential extent starts at (tile index mod extent) and wraps around.
    pub rotate: bool,
    /// Sections in the order `Init(0), Init(1).., Body, .. Finish(1), Finish(0)`, each place at most once.
    pub sections: Vec<Section>,
}

/// A slot of a template: what the code may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Name for the text form.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Whether the code stores to it.
    pub write: bool,
}

/// A kernel's code, independent of where its arguments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Kernel name, unique in the program.
    pub name: String,
    /// Kind of unit.
    pub kind: Kind,
    /// Argument slots.
    pub slots: Vec<Slot>,
    /// Parallel extents, outermost first; their product is the number of tiles.
    pub parallel: Vec<u32>,
    /// Phases in order.
    pub phases: Vec<Phase>,
}

/// A template applied to arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Index of the template.
    pub template: u32,
    /// Per slot: argument index and byte offset.
    pub slots: Vec<(u32, u64)>,
    /// Relative cost of one tile, a hint for sharing cores.
    pub weight: u32,
}

/// Units of a step that run on so many cores at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoreLimit {
    /// The first unit.
    pub first: u32,
    /// Number of units, one behind the other.
    pub units: u32,
    /// Most cores that work on any of them at one time. Values never depend on it.
    pub cores: u32,
}

/// Units that may run at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The units.
    pub units: Vec<Unit>,
    /// Limits in order, none of which share a unit.
    pub limits: Vec<CoreLimit>,
}

/// A whole program: one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name.
    pub name: String,
    /// What it was compiled for.
    pub target: Target,
    /// Arguments.
    pub args: Vec<Arg>,
    /// Templates.
    pub templates: Vec<Template>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Pairs (input, output) that may be bound to the same memory, because each tile reads what it overwrites.
    /// The output begins as the input in any case, so that stores may leave parts of it alone.
    pub aliases: Vec<(u32, u32)>,
}
