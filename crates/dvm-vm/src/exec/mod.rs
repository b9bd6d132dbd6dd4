//! Predecoded programs.
//!
//! A program is turned once into flat tables of resolved operations: a kernel function, operands as (base, offset), counts as
//! (body, tail, mask). Running a tile then needs pointer arithmetic and calls, nothing else.

pub(crate) mod chain;
mod data;
mod dma;
pub(crate) mod elide;
pub(crate) mod frame;
mod inst;
pub(crate) mod predecode;
pub(crate) mod span;
pub(crate) mod step;
mod strips;
mod traffic;
mod uses;

use std::ops::Range;

use dvm_bc::{DType, Init, Program, Verified};

use self::span::Span;
use crate::cube::{MmadFn, PackFn};
use crate::kernels::Kernel;
use crate::kernels::half::Halves;
use crate::kernels::reduce::What;
use crate::kernels::shape::Direction;
use crate::{BuildError, Isa};

/// Bases of operands: the worker's arena, the program's constants, then pointers bound while a tile runs.
pub(crate) const BASE_ARENA: u32 = 0;
pub(crate) const BASE_CONST: u32 = 1;
pub(crate) const BASE_BOUND: u32 = 2;

/// An operand in memory: byte `off` from `bases[base]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) base: u32,
    pub(crate) off: u32,
}

/// A count: `tail` when one of the extents in `mask` stands at its last index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Len {
    pub(crate) body: u32,
    pub(crate) tail: u32,
    pub(crate) mask: u32,
}

impl Len {
    #[inline(always)]
    pub(crate) fn get(self, last: u32) -> usize {
        (if last & self.mask != 0 { self.tail } else { self.body }) as usize
    }
}

/// An address in an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub(crate) slot: u16,
    /// Strides in the program's stride table.
    pub(crate) count: u16,
    pub(crate) first: u32,
    pub(crate) offset: i64,
}

/// An elementwise operation over `rows x cols`.
#[derive(Clone, Copy)]
pub(crate) struct Ew {
    pub(crate) kernel: Kernel,
    pub(crate) halves: Halves,
    /// Sources, then the result.
    pub(crate) place: [Place; 4],
    /// Bytes from one row to the next.
    pub(crate) row_step: [u32; 4],
    /// Bytes per element.
    pub(crate) size: [u8; 4],
    /// Sources used.
    pub(crate) sources: u8,
    /// Bit i: source i advances with the column.
    pub(crate) steps: u8,
    /// Bit i: the operand lives inside a strip and does not advance with it.
    pub(crate) private: u8,
    /// Rows may be joined to one span where the columns are whole.
    pub(crate) flat: bool,
    /// Neither halves nor spreading.
    pub(crate) plain: bool,
    /// Single elements must be spread to runs for the kernel.
    pub(crate) spread: bool,
    pub(crate) rows: Len,
    pub(crate) cols: Len,
    /// How it is joined to others.
    pub(crate) part: chain::Part,
}

impl Ew {
    /// One row of elements as a column of rows of one.
    pub(crate) fn stand(&mut self) {
        self.rows = self.cols;
        self.cols = Len { body: 1, tail: 0, mask: 0 };
        for i in 0..4 {
            let along = i == 3 || self.steps >> i & 1 != 0;
            self.row_step[i] = if along { u32::from(self.size[i]) } else { 0 };
        }
    }

    /// Computes `n` elements from resolved pointers.
    ///
    /// # Safety
    /// As for [`crate::kernels::SpanFn`].
    #[inline(always)]
    pub(crate) unsafe fn span(&self, dst: *mut u8, src: &[*const u8; 3], n: usize) {
        let steps = u32::from(self.steps);
        // SAFETY: the caller's promise.
        unsafe {
            if self.plain {
                self.kernel.run(dst, src, steps, n);
            } else if self.halves.any() {
                let spread = self.spread.then_some(self.sources as usize);
                self.halves.run(self.kernel, dst, src, steps, n, &self.size, spread);
            } else {
                self.kernel.run_spread(dst, src, steps, n, &self.size, self.sources as usize);
            }
        }
    }
}

/// One loop of a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewLoop {
    pub(crate) count: Len,
    pub(crate) strided: i64,
    pub(crate) dense: i64,
}

/// Where the operand of a product is before it is packed.
#[derive(Clone, Copy)]
pub(crate) enum From {
    Argument(Addr),
    Local(Place),
}

/// What an index tile picks: element i of it stands for `wrap(index) * stride` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Indexed {
    pub(crate) index: Place,
    /// The index is i64, else i32.
    pub(crate) wide: bool,
    pub(crate) rows: Len,
    pub(crate) cols: Len,
    pub(crate) stride: i64,
    pub(crate) limit: u64,
    /// Bytes per element.
    pub(crate) size: u8,
}

/// A sum of each row of what elementwise operations compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldTo {
    pub(crate) dst: Place,
    /// The row itself is needed too.
    pub(crate) keep: bool,
}

/// Marks an operation that is not sticky.
pub(crate) const NOT_STICKY: u32 = u32::MAX;

/// A resolved operation.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// Number of the instruction in its template, for traps.
    pub(crate) index: u32,
    pub(crate) kind: OpKind,
}

#[derive(Clone, Copy)]
pub(crate) enum OpKind {
    /// Elementwise operations `first..first + count`, all over the same counts, strip by strip.
    Elementwise {
        first: u32,
        count: u32,
        fold: Option<FoldTo>,
    },
    /// The next `count` operations work row by row on the same rows: they run for `block` rows at a time, so that what one
    /// computes is still in L1 for the next.
    ByRows {
        count: u32,
        rows: Len,
        block: u32,
    },
    /// An elementwise operation that traps on a zero divisor.
    Divide {
        ew: u32,
        dtype: DType,
    },
    /// Rows between an argument (`pitch`) and local memory.
    Rows {
        local: Place,
        addr: Addr,
        rows: Len,
        cols: Len,
        pitch: i64,
        size: u8,
        dir: Direction,
        sticky: u32,
    },
    /// `bases[base] = address`: a load or a store that moves nothing.
    Bind {
        base: u32,
        addr: Addr,
    },
    FillRows {
        addr: Addr,
        bits: u64,
        rows: Len,
        cols: Len,
        pitch: i64,
        size: u8,
    },
    View {
        local: Place,
        addr: Addr,
        loops: (u32, u8),
        size: u8,
        dir: Direction,
        sticky: u32,
    },
    LocalView {
        dst: Place,
        src: Place,
        loops: (u32, u8),
        size: u8,
    },
    /// Rows of an argument picked by an index tile.
    RowsByIndex {
        local: Place,
        addr: Addr,
        by: Indexed,
        dir: Direction,
    },
    /// Elements of an argument picked by an index tile; `steps` are the bytes between rows and between columns.
    ElemsByIndex {
        local: Place,
        addr: Addr,
        by: Indexed,
        steps: (i64, i64),
        dir: Direction,
    },
    /// Rows that a mask picks, one behind the other.
    Compress {
        src: Place,
        addr: Addr,
        mask: Place,
        count: Place,
        rows: Len,
        cols: Len,
        stride: i64,
        limit: u64,
        init: Init,
        size: u8,
    },
    /// An accumulator tile to an argument: elementwise operations `relu`, if any, then `cast`.
    AccStore {
        cast: u32,
        relu: Option<u32>,
        addr: Addr,
        pitch: i64,
    },
    Sort {
        key: Place,
        value: Place,
        dtype: DType,
        rows: Len,
        cols: Len,
        descending: bool,
    },
    /// A value into the columns from `cols` to `pitch`.
    ClearPad {
        dst: Place,
        bits: u64,
        rows: Len,
        cols: Len,
        pitch: u32,
        size: u8,
    },
    Iota {
        dst: Place,
        dtype: DType,
        base: i64,
        strides: (u32, u16),
        row_step: i64,
        col_step: i64,
        rows: Len,
        cols: Len,
    },
    Reduce {
        dst: Place,
        src: Place,
        what: What,
        dtype: DType,
        outer: Len,
        red: Len,
        inner: Len,
        init: Init,
    },
    PartSum {
        dst: Place,
        lanes: Place,
        src: Place,
        dtype: DType,
        outer: Len,
        red: Len,
        inner: Len,
        init: Init,
        base: i64,
        strides: (u32, u16),
        across: bool,
        totals: bool,
    },
    ArgReduce {
        index: Place,
        value: Place,
        src: Place,
        dtype: DType,
        largest: bool,
        last: bool,
        outer: Len,
        red: Len,
        inner: Len,
        init: Init,
        base: i64,
        strides: (u32, u16),
    },
    CumSum {
        dst: Place,
        carry: Place,
        src: Place,
        dtype: DType,
        outer: Len,
        red: Len,
        inner: Len,
        init: Init,
        exclusive: bool,
        reverse: bool,
    },
    /// Packs an operand: `lines` rows of a left or columns of a right operand.
    Pack {
        pack: PackFn,
        panel: u32,
        local: Place,
        from: From,
        lines: Len,
        k: Len,
        line_stride: i64,
        k_stride: i64,
        width: u32,
        sticky: u32,
    },
    /// Names an operand where it is: packed panels of an argument, or a matrix in place (`width` 0, strides in elements).
    BindPanel {
        panel: u32,
        from: From,
        lines: Len,
        k: Len,
        panel_stride: i64,
        k_stride: i64,
        width: u32,
    },
    Mmad {
        mmad: MmadFn,
        acc: Place,
        a: u32,
        b: u32,
        m: Len,
        n: Len,
        k: Len,
        init: Init,
    },
}

/// Operations by index.
pub(crate) type OpRange = Range<u32>;

/// A resolved phase.
#[derive(Clone, Debug)]
pub(crate) struct PhaseExec {
    pub(crate) seq: [u32; 3],
    pub(crate) depth: usize,
    /// A sequential extent is 0: only the outermost init and finish run.
    pub(crate) empty: bool,
    pub(crate) rotate: bool,
    pub(crate) init: [OpRange; 4],
    pub(crate) body: OpRange,
    pub(crate) finish: [OpRange; 4],
}

/// A resolved template.
#[derive(Clone, Debug)]
pub(crate) struct TemplateExec {
    pub(crate) parallel: [u32; dvm_bc::MAX_PARALLEL],
    pub(crate) depth: usize,
    pub(crate) phases: Range<u32>,
    /// Product of the parallel extents.
    pub(crate) tiles: u64,
    /// Rough cost of a tile in nanoseconds.
    pub(crate) cost: f32,
}

/// A unit: a template and its slots in the binding table.
#[derive(Clone, Debug)]
pub(crate) struct UnitExec {
    pub(crate) template: u32,
    pub(crate) slots: Range<u32>,
    /// Number of its first tile in the step.
    pub(crate) first_tile: u64,
}

/// A step.
#[derive(Clone, Debug)]
pub(crate) struct StepExec {
    pub(crate) units: Range<u32>,
    pub(crate) tiles: u64,
    /// Rough cost in nanoseconds on one core.
    pub(crate) cost: f32,
    /// How the tiles are divided where units have limits of cores; else empty.
    pub(crate) spans: Vec<Span>,
}

/// A program ready to launch: kernels and operands resolved for an instruction-set level.
///
/// Immutable; one executable may run on many threads at once.
pub struct Executable {
    pub(crate) program: Verified<Program>,
    pub(crate) isa: Isa,
    pub(crate) ops: Vec<Op>,
    pub(crate) ews: Vec<Ew>,
    pub(crate) strides: Vec<(u32, i64)>,
    pub(crate) loops: Vec<ViewLoop>,
    pub(crate) consts: Vec<u64>,
    pub(crate) phases: Vec<PhaseExec>,
    pub(crate) templates: Vec<TemplateExec>,
    pub(crate) units: Vec<UnitExec>,
    pub(crate) steps: Vec<StepExec>,
    /// Argument and byte offset of each slot of each unit. A worker's rings count as one argument after the program's.
    pub(crate) bindings: Vec<(u32, u64)>,
    /// Where traffic is counted: what instructions move, and which of them each section has.
    pub(crate) moves: Vec<traffic::Move>,
    pub(crate) sections: Vec<traffic::Moves>,
    pub(crate) local_bytes: usize,
    /// Bytes of a worker's copies of the ring arguments.
    pub(crate) ring_bytes: usize,
    pub(crate) bases: u32,
    pub(crate) panels: u32,
    pub(crate) stickies: u32,
    pub(crate) slots: u32,
    /// Some stores may go past the caches.
    pub(crate) streams: bool,
    /// What local memory is filled with before each tile, and what of it is in no space.
    #[cfg(feature = "testing")]
    pub(crate) poison: Option<u8>,
    #[cfg(feature = "testing")]
    pub(crate) pads: Vec<Range<usize>>,
}

/// How a program is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// Kernels to use; a level this machine lacks falls back to [`Isa::Portable`].
    pub isa: Isa,
    /// Bind contiguous loads and stores to argument memory instead of copying.
    pub elide: bool,
    /// Run sequences of elementwise instructions strip by strip.
    pub strips: bool,
    /// Where a program's arguments are more bytes than this, what it writes and does not read is stored past the caches. By
    /// default the size of the last-level cache.
    pub stream_above: u64,
    /// Most bytes of local memory a worker may need.
    pub local_limit: u64,
    /// Count the bytes that loads and stores move, for [`crate::Stats`]. Costs some time.
    pub traffic: bool,
    /// Fills local memory with this byte before each tile, where no load is sticky, and checks that nothing is written between
    /// its spaces.
    #[cfg(feature = "testing")]
    pub poison: Option<u8>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            isa: Isa::detect(),
            elide: true,
            strips: true,
            stream_above: crate::isa::last_level_cache(),
            local_limit: 256 << 20,
            traffic: false,
            #[cfg(feature = "testing")]
            poison: None,
        }
    }
}

impl Executable {
    /// Prepares a program with the default options for `isa`.
    ///
    /// # Errors
    /// The program needs more local memory than a worker may have.
    pub fn new(program: Verified<Program>, isa: Isa) -> Result<Executable, BuildError> {
        Executable::with_options(program, &BuildOptions { isa, ..BuildOptions::default() })
    }

    /// Prepares a program.
    ///
    /// # Errors
    /// The program needs more local memory than [`BuildOptions::local_limit`].
    pub fn with_options(
        program: Verified<Program>,
        options: &BuildOptions,
    ) -> Result<Executable, BuildError> {
        predecode::predecode(program, options)
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The instruction-set level its kernels use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of local memory each worker needs.
    #[must_use]
    pub fn local_bytes(&self) -> usize {
        self.local_bytes
    }

    /// Resolved operations of all templates, after elision and joining into strips.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable")
            .field("program", &self.program.name)
            .field("isa", &self.isa)
            .field("ops", &self.ops.len())
            .field("local_bytes", &self.local_bytes)
            .finish()
    }
}
