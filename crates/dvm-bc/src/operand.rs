//! Operand types shared by all instructions.
//!
//! A *tile* is `rows x cols` elements in local memory, row-major, and its pitch is always `cols.body`: a ragged
//! tail computes on fewer rows or columns of the same layout. Kernels whose tiles have more than two dims flatten
//! the inner ones into `cols`.

use smallvec::SmallVec;

/// Index of an extent of the unit space: parallel extents first, then the extents of the current phase's `seq`.
pub type ExtentId = u8;

/// Most parallel extents of a template.
pub const MAX_PARALLEL: usize = 8;
/// Most sequential extents of a phase.
pub const MAX_SEQ: usize = 3;
/// Most strided loops of one view instruction.
pub const MAX_LOOPS: usize = 4;

/// A count that may be ragged: `tail` when `extent` stands at its last index, `body` otherwise.
///
/// Invariant (verified): `tail <= body`, and `tail == body` when `extent` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Value at every index but the last of `extent`. Also the local-memory pitch.
    pub body: u32,
    /// Value at the last index of `extent`.
    pub tail: u32,
    /// The extent that decides, or `None` for a fixed count.
    pub extent: Option<ExtentId>,
}

impl Size {
    /// The count one.
    pub const ONE: Size = Size::fixed(1);
    /// A count that is the same for every tile.
    #[must_use]
    pub const fn fixed(n: u32) -> Size {
        Size { body: n, tail: n, extent: None }
    }
    /// A count that is `tail` at the last index of `extent`.
    #[must_use]
    pub const fn ragged(body: u32, tail: u32, extent: ExtentId) -> Size {
        if body == tail { Size::fixed(body) } else { Size { body, tail, extent: Some(extent) } }
    }
    /// The value, given whether the deciding extent stands at its last index.
    #[must_use]
    pub fn at(self, is_last: impl FnOnce(ExtentId) -> bool) -> u32 {
        match self.extent {
            Some(e) if is_last(e) => self.tail,
            _ => self.body,
        }
    }
}

/// Byte strides per extent; extents that are absent have stride 0. Sorted by extent, no zero strides.
pub type Strides = SmallVec<[(ExtentId, i64); 4]>;

/// An address in an argument: `slot base + offset + sum(index(extent) * stride)`, all in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mem {
    /// Template slot, bound by each unit to an argument and a byte offset.
    pub slot: u16,
    /// Byte offset from the slot's base.
    pub offset: i64,
    /// Byte strides per extent.
    pub strides: Strides,
}

/// One strided loop of a view instruction, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Iterations.
    pub count: Size,
    /// Byte stride of the strided side per iteration (elements for local-to-local views). May be 0 or negative.
    pub stride: i64,
}

/// Up to [`MAX_LOOPS`] loops; the dense side is row-major over the loops' *body* counts.
pub type Loops = SmallVec<[Loop; 4]>;

/// A local memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Space {
    /// Vector working memory (unified buffer).
    Ub = 0,
    /// Packed left operands of the cube unit.
    PanelA = 1,
    /// Packed right operands of the cube unit.
    PanelB = 2,
    /// Cube accumulators.
    Acc = 3,
}

impl Space {
    /// All spaces, in encoding order.
    pub const ALL: [Space; 4] = [Space::Ub, Space::PanelA, Space::PanelB, Space::Acc];
    /// The textual name, e.g. `panel_a`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Space::Ub => "ub",
            Space::PanelA => "panel_a",
            Space::PanelB => "panel_b",
            Space::Acc => "acc",
        }
    }
}

/// A buffer in local memory. `offset` counts the target's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// Memory space.
    pub space: Space,
    /// Offset in blocks.
    pub offset: u32,
}

/// How a source tile is read by an instruction over `rows x cols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// `rows x cols` elements, pitch `cols.body`.
    Full = 0,
    /// `cols` elements, the same for each row.
    Row = 1,
    /// `rows` elements, element r for the whole row r.
    Col = 2,
    /// One element.
    One = 3,
}

impl Mode {
    /// All modes, in encoding order.
    pub const ALL: [Mode; 4] = [Mode::Full, Mode::Row, Mode::Col, Mode::One];
}

/// A source of a vector instruction: a local tile read in some [`Mode`], or an immediate.
///
/// Immediate bits are the value's little-endian representation in the *instruction's operand dtype*, zero-extended
/// (bf16 1.0 is `0x3f80`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Src {
    /// A tile in local memory.
    Local(Local, Mode),
    /// A scalar.
    Imm(u64),
}

/// Cache hints of a load or store. They never change a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// Load: may be skipped when no extent with a non-zero stride changed since this core's previous tile.
    pub sticky: bool,
    /// Load: do not keep in L2. Store: non-temporal.
    pub stream: bool,
}

/// When an accumulating instruction starts from its neutral value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Init {
    /// Never: accumulates onto what is there.
    Accumulate = 0,
    /// Always: plain result.
    Always = 1,
    /// At the first point of the phase's sequential walk. Legal in a body only.
    First = 2,
}
