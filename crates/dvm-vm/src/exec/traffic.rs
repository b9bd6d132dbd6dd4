//! What loads and stores move, counted where a program was prepared for that.
//!
//! An instruction moves what it says, whether it copies or is bound to the argument's memory: a bound load is read there, a bound
//! store written there. A sticky load that would find its data in place moves nothing. What stands still (a stride of 0) is
//! moved once.

use std::ops::Range;

use dvm_bc::{Inst, Mem, Operands, Size};

use super::frame::Frame;
use super::predecode::{Builder, len};
use super::{Addr, Executable, Len};

/// What an instruction moves between an argument and local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    addr: Addr,
    /// Their product is the number of elements.
    lens: [Len; dvm_bc::MAX_LOOPS],
    /// Bytes per element.
    size: u32,
    store: bool,
    sticky: bool,
}

/// Moves of a section, by its first operation.
pub(crate) type Moves = (u32, Range<u32>);

const ONE: Len = Len { body: 1, tail: 1, mask: 0 };

impl Builder<'_> {
    /// Notes what a section moves; `first` is its first operation.
    pub(super) fn note_moves(&mut self, insts: &[Inst], first: u32) {
        let from = self.moves.len() as u32;
        for inst in insts {
            let size = inst.dtype.size();
            let plane =
                |pitch: i64, rows: Size, cols: Size| [if pitch == 0 { ONE } else { len(rows) }, len(cols)];
            let (mem, sizes, store, sticky): (&Mem, [Len; 2], bool, bool) = match &inst.operands {
                Operands::Load(o) => (&o.src, plane(o.pitch, o.rows, o.cols), false, o.hints.sticky),
                Operands::Store(o) => (&o.dst, plane(1, o.rows, o.cols), true, false),
                Operands::FillStore(o) => (&o.dst, plane(1, o.rows, o.cols), true, false),
                Operands::GatherLoad(o) => (&o.src, plane(1, o.rows, o.cols), false, false),
                Operands::GatherElems(o) => (&o.src, plane(1, o.rows, o.cols), false, false),
                Operands::ScatterStore(o) => (&o.dst, plane(1, o.rows, o.cols), true, false),
                Operands::ScatterElems(o) => (&o.dst, plane(1, o.rows, o.cols), true, false),
                // At most: how many rows are picked depends on data.
                Operands::CompressStore(o) => (&o.dst, plane(1, o.rows, o.cols), true, false),
                Operands::LoadA(o) => (&o.src, plane(1, o.m, o.k), false, o.hints.sticky),
                Operands::LoadB(o) => (&o.src, plane(1, o.k, o.n), false, o.hints.sticky),
                Operands::BindB(o) => (&o.src, plane(1, o.k, o.n), false, false),
                Operands::AccStore(o) => (&o.dst, plane(1, o.m, o.n), true, false),
                Operands::ViewLoad(o) => {
                    self.note_view(&o.src, &o.loops, size, false, o.hints.sticky);
                    continue;
                }
                Operands::ViewStore(o) => {
                    self.note_view(&o.dst, &o.loops, size, true, false);
                    continue;
                }
                _ => continue,
            };
            let mut lens = [ONE; dvm_bc::MAX_LOOPS];
            lens[..2].copy_from_slice(&sizes);
            let addr = self.addr(mem);
            self.moves.push(Move { addr, lens, size, store, sticky });
        }
        if self.moves.len() as u32 > from {
            self.sections.push((first, from..self.moves.len() as u32));
        }
    }

    fn note_view(&mut self, mem: &Mem, loops: &[dvm_bc::Loop], size: u32, store: bool, sticky: bool) {
        let mut lens = [ONE; dvm_bc::MAX_LOOPS];
        for (l, to) in loops.iter().zip(&mut lens) {
            *to = if l.stride == 0 { ONE } else { len(l.count) };
        }
        let addr = self.addr(mem);
        self.moves.push(Move { addr, lens, size, store, sticky });
    }
}

impl Frame {
    /// Counts what the section that begins at an operation moves at this point of the walk.
    #[cold]
    pub(super) fn count(&mut self, exe: &Executable, first: u32) {
        let Ok(i) = exe.sections.binary_search_by_key(&first, |s| s.0) else { return };
        self.counted.resize(exe.moves.len(), (0, 0));
        let range = exe.sections[i].1.clone();
        for (n, m) in range.clone().zip(&exe.moves[range.start as usize..range.end as usize]) {
            if m.sticky {
                let mask = m.lens.iter().fold(0, |all, l| all | l.mask);
                let now = (self.address(exe, m.addr) as usize, self.last & mask);
                if std::mem::replace(&mut self.counted[n as usize], now) == now {
                    continue;
                }
            }
            let elements = m.lens.iter().fold(1u64, |e, l| e.saturating_mul(l.get(self.last) as u64));
            let bytes = elements.saturating_mul(u64::from(m.size));
            let total = if m.store { &mut self.moved.1 } else { &mut self.moved.0 };
            *total = total.saturating_add(bytes);
        }
    }
}
