//! The state of one worker: its local memory and where it stands in the unit space.

use super::{BASE_ARENA, BASE_BOUND, BASE_CONST, Executable, OpKind, OpRange, PhaseExec};
use crate::error::Fault;
use crate::kernels::sort::Item;

/// A worker's local memory: zeroed once, reused for ever, undefined between tiles.
struct Arena {
    bytes: Vec<u8>,
}

/// Alignment of an arena: a cache line, more than any vector needs.
const ALIGN: usize = 64;

impl Arena {
    /// The aligned start, after growing to `bytes`.
    fn reserve(&mut self, bytes: usize) -> *mut u8 {
        if self.bytes.len() < bytes + ALIGN {
            // Zeroed pages of the system: nothing is touched until it is used.
            self.bytes = vec![0; bytes + ALIGN];
        }
        let p = self.bytes.as_mut_ptr();
        p.wrapping_add(p.align_offset(ALIGN))
    }
}

/// A packed operand: where its panels are and what they hold.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) ptr: *const u8,
    /// Lines in a panel; 0 for a left operand in place.
    pub(super) width: u32,
    /// Elements from one panel to the next, or from one line to the next.
    pub(super) stride: isize,
    /// Elements from one step to the next of a left operand in place.
    pub(super) k_stride: isize,
    /// Rows of a left operand, columns of a right one.
    pub(super) lines: usize,
    pub(super) k: usize,
}

const NO_PANEL: Panel = Panel { ptr: std::ptr::null(), width: 0, stride: 0, k_stride: 0, lines: 0, k: 0 };

const ALL_ROWS: (usize, usize) = (0, usize::MAX);

/// Most extents: parallel and sequential.
pub(super) const EXTENTS: usize = dvm_bc::MAX_PARALLEL + dvm_bc::MAX_SEQ;

/// State of one worker. Sized for the largest program it has run; running one allocates nothing after the first time.
pub(crate) struct Frame {
    arena: Arena,
    /// This worker's copy of each ring argument, one after the other.
    rings: Arena,
    /// Scratch of sorting.
    pub(super) items: Vec<Item>,
    pub(super) bases: Vec<*mut u8>,
    pub(super) slots: Vec<*mut u8>,
    pub(super) panels: Vec<Panel>,
    /// Address and ragged state of the last execution of each sticky load.
    pub(super) sticky: Vec<(usize, u32)>,
    /// Bytes loaded and stored, where they are counted; address and ragged state of the last counted execution of each move.
    pub(crate) moved: (u64, u64),
    pub(super) counted: Vec<(usize, u32)>,
    /// Index of each extent.
    pub(super) index: [u32; EXTENTS],
    /// Bit e: extent e stands at its last index.
    pub(super) last: u32,
    /// Bit d: sequential extent d is past the first position of its walk.
    pub(super) walked: u32,
    /// Rows that elementwise operations and reductions work on: all, or a block.
    pub(super) rows: (usize, usize),
    /// Which launch, step and unit the tables are for.
    key: (u64, u32, u32),
    /// The arena is as [`Frame::poison`] left it, for the current launch.
    #[cfg(feature = "testing")]
    poisoned: bool,
}

// SAFETY: the pointers are refilled from the launch's arguments before use and used only by the thread that runs the launch.
unsafe impl Send for Frame {}

impl Frame {
    pub(crate) fn new() -> Frame {
        Frame {
            arena: Arena { bytes: Vec::new() },
            rings: Arena { bytes: Vec::new() },
            items: Vec::new(),
            bases: Vec::new(),
            slots: Vec::new(),
            panels: Vec::new(),
            sticky: Vec::new(),
            moved: (0, 0),
            counted: Vec::new(),
            index: [0; EXTENTS],
            last: 0,
            walked: 0,
            rows: ALL_ROWS,
            key: (0, 0, 0),
            #[cfg(feature = "testing")]
            poisoned: false,
        }
    }

    /// Prepares for the tiles of a unit. `launch` is unique to a launch and not 0.
    pub(crate) fn enter(&mut self, exe: &Executable, args: &[*mut u8], launch: u64, step: u32, unit: u32) {
        if self.key == (launch, step, unit) {
            return;
        }
        self.counted.clear();
        if self.key.0 != launch {
            #[cfg(feature = "testing")]
            (self.poisoned = false);
            self.bases.resize((exe.bases as usize).max(BASE_BOUND as usize), std::ptr::null_mut());
            self.bases[BASE_ARENA as usize] = self.arena.reserve(exe.local_bytes);
            self.bases[BASE_CONST as usize] = exe.consts.as_ptr().cast_mut().cast();
            self.panels.clear();
            self.panels.resize(exe.panels as usize, NO_PANEL);
            self.sticky.clear();
            self.sticky.resize(exe.stickies as usize, (0, 0));
            self.slots.resize((exe.slots as usize).max(self.slots.len()), std::ptr::null_mut());
        } else {
            self.sticky.fill((0, 0));
        }
        let slots = &exe.units[unit as usize].slots;
        let rings =
            if exe.ring_bytes > 0 { self.rings.reserve(exe.ring_bytes) } else { std::ptr::null_mut() };
        for (slot, &(arg, offset)) in
            self.slots.iter_mut().zip(&exe.bindings[slots.start as usize..slots.end as usize])
        {
            // The verifier proved every address that is used to lie in the argument (`verify::program`, `unit`).
            *slot = args.get(arg as usize).copied().unwrap_or(rings).wrapping_add(offset as usize);
        }
        self.key = (launch, step, unit);
    }

    /// Runs tiles `from..to` of the unit entered last.
    ///
    /// # Errors
    /// The first tile that traps, and why.
    ///
    /// # Safety
    /// The unit was entered with arguments as long as the program says, which nobody else writes where this unit
    /// reads or writes.
    pub(crate) unsafe fn tiles(
        &mut self,
        exe: &Executable,
        unit: u32,
        from: u64,
        to: u64,
    ) -> Result<(), (u64, Fault)> {
        let template = &exe.templates[exe.units[unit as usize].template as usize];
        let depth = template.depth;
        self.last = 0;
        self.rows = ALL_ROWS;
        let mut rest = from;
        for d in (0..depth).rev() {
            let n = u64::from(template.parallel[d]);
            self.index[d] = (rest % n) as u32;
            rest /= n;
            self.set_last(d, template.parallel[d]);
        }
        for tile in from..to {
            #[cfg(feature = "testing")]
            self.poison(exe);
            for p in template.phases.clone() {
                // SAFETY: the caller's promise, which rules argument and races make.
                unsafe { self.phase(exe, &exe.phases[p as usize], depth, tile).map_err(|f| (tile, f))? };
            }
            for d in (0..depth).rev() {
                let n = template.parallel[d];
                self.index[d] += 1;
                if self.index[d] < n {
                    self.set_last(d, n);
                    break;
                }
                self.index[d] = 0;
                self.set_last(d, n);
            }
        }
        Ok(())
    }

    /// Fills local memory, but for what a sticky load has left there; what no space holds is filled and checked.
    #[cfg(feature = "testing")]
    fn poison(&mut self, exe: &Executable) {
        const BETWEEN: u8 = 0x5c;
        let Some(byte) = exe.poison else { return };
        // SAFETY: `enter` reserved and initialised so many bytes there; this worker alone uses them.
        let arena =
            unsafe { std::slice::from_raw_parts_mut(self.bases[BASE_ARENA as usize], exe.local_bytes) };
        for pad in &exe.pads {
            assert!(
                !self.poisoned || arena[pad.clone()].iter().all(|&b| b == BETWEEN),
                "{} wrote local memory between the spaces",
                exe.program.name
            );
        }
        if exe.stickies == 0 {
            arena.fill(byte);
        }
        exe.pads.iter().for_each(|pad| arena[pad.clone()].fill(BETWEEN));
        self.poisoned = true;
    }

    #[inline(always)]
    fn set_last(&mut self, extent: usize, n: u32) {
        let bit = 1 << extent;
        if self.index[extent] + 1 == n {
            self.last |= bit;
        } else {
            self.last &= !bit;
        }
    }

    unsafe fn phase(
        &mut self,
        exe: &Executable,
        phase: &PhaseExec,
        at: usize,
        tile: u64,
    ) -> Result<(), Fault> {
        self.walked = 0;
        for d in 0..phase.depth {
            self.index[at + d] = 0;
            self.set_last(at + d, phase.seq[d]);
        }
        // SAFETY: the caller's promise.
        unsafe {
            if phase.depth == 0 {
                self.section(exe, &phase.init[0])?;
                self.section(exe, &phase.body)?;
                self.section(exe, &phase.finish[0])
            } else if phase.empty {
                self.section(exe, &phase.init[0])?;
                self.section(exe, &phase.finish[0])
            } else {
                self.walk(exe, phase, at, 0, tile)
            }
        }
    }

    /// The loops at `depth` and deeper.
    unsafe fn walk(
        &mut self,
        exe: &Executable,
        phase: &PhaseExec,
        at: usize,
        depth: usize,
        tile: u64,
    ) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe {
            if depth == phase.depth {
                return self.section(exe, &phase.body);
            }
            self.section(exe, &phase.init[depth])?;
            let n = phase.seq[depth];
            let rotate = phase.rotate && depth + 1 == phase.depth;
            let start = if rotate { (tile % u64::from(n)) as u32 } else { 0 };
            for k in 0..n {
                self.index[at + depth] = if k < n - start { k + start } else { k - (n - start) };
                self.set_last(at + depth, n);
                self.walked = (self.walked & !(1 << depth)) | (u32::from(k != 0) << depth);
                self.walk(exe, phase, at, depth + 1, tile)?;
            }
            self.index[at + depth] = 0;
            self.set_last(at + depth, n);
            self.walked &= !(1 << depth);
            self.section(exe, &phase.finish[depth])
        }
    }

    #[inline]
    unsafe fn section(&mut self, exe: &Executable, range: &OpRange) -> Result<(), Fault> {
        if !exe.moves.is_empty() && !range.is_empty() {
            self.count(exe, range.start);
        }
        let mut ops = exe.ops[range.start as usize..range.end as usize].iter();
        while let Some(op) = ops.next() {
            let OpKind::ByRows { count, rows, block } = op.kind else {
                // SAFETY: the caller's promise.
                unsafe { self.step(exe, op)? };
                continue;
            };
            let (group, rest) = ops.as_slice().split_at(count as usize);
            ops = rest.iter();
            let n = rows.get(self.last);
            let mut from = 0;
            while from < n {
                self.rows = (from, n.min(from + block as usize));
                for op in group {
                    // SAFETY: the caller's promise.
                    unsafe { self.step(exe, op)? };
                }
                from += block as usize;
            }
            self.rows = ALL_ROWS;
        }
        Ok(())
    }
}
