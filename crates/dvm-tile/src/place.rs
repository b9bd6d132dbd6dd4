//! Virtual buffers -> offsets in local memory.
//!
//! A linear scan in order of first use; each buffer takes the first gap between the live ones. The result of an
//! elementwise instruction takes the place of an operand of the same size that dies there.

use dvm_bc::{Local, Mode, Operands, Space as Memory, Src, Target};

use crate::emit::{Buf, Emitted};
use crate::error::Fault;

/// Scratch of the scan.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    order: Vec<u32>,
    /// Live buffers by rising offset.
    live: Vec<u32>,
}

impl Placer {
    /// Places all buffers and returns the highest use of each space in bytes.
    pub(crate) fn run(&mut self, e: &mut Emitted, target: &Target) -> Result<[u64; 4], Fault> {
        let block = u64::from(target.block);
        let mut peak = [0u64; 4];
        self.order.clear();
        self.order.extend(0..e.bufs.len() as u32);
        self.order.sort_by_key(|&b| e.bufs[b as usize].first);
        for space in Memory::ALL {
            self.live.clear();
            for &b in &self.order {
                let buf = e.bufs[b as usize];
                if buf.space != space {
                    continue;
                }
                self.live.retain(|&l| e.bufs[l as usize].last >= buf.first);
                let blocks = buf.bytes.div_ceil(block).max(1);
                let at = match self.heir(e, b) {
                    Some(i) => {
                        let at = e.bufs[self.live[i] as usize].at;
                        self.live[i] = b;
                        u64::from(at)
                    }
                    None => {
                        let (mut at, mut i) = (0u64, 0);
                        while let Some(&l) = self.live.get(i) {
                            let l = &e.bufs[l as usize];
                            if u64::from(l.at) >= at + blocks {
                                break;
                            }
                            at = u64::from(l.at) + l.bytes.div_ceil(block).max(1);
                            i += 1;
                        }
                        self.live.insert(i, b);
                        at
                    }
                };
                let end = (at + blocks).saturating_mul(block);
                peak[space as usize] = peak[space as usize].max(end);
                e.bufs[b as usize].at = u32::try_from(at).map_err(|_| Fault::TooLarge("a local buffer"))?;
            }
        }
        Ok(peak)
    }

    /// Position in `live` of a buffer that dies where `b` is born and may hand over its bytes.
    fn heir(&self, e: &Emitted, b: u32) -> Option<usize> {
        let buf = &e.bufs[b as usize];
        let inst = e.insts.get(buf.first as usize)?;
        let (dst, srcs): (Local, [Option<Src>; 3]) = match &inst.operands {
            Operands::Unary(o) => (o.dst, [Some(o.src), None, None]),
            Operands::Binary(o) => (o.dst, [Some(o.a), Some(o.b), None]),
            Operands::Ternary(o) => (o.dst, [Some(o.a), Some(o.b), Some(o.c)]),
            Operands::Cast(o) => (o.dst, [Some(o.src), None, None]),
            _ => return None,
        };
        if dst.offset != b {
            return None;
        }
        let fits = |s: &Buf| {
            !s.private
                && s.last == buf.first
                && s.bytes == buf.bytes
                && s.size == buf.size
                && s.space == buf.space
        };
        let full = |b: u32| {
            srcs.iter().flatten().all(|s| !matches!(s, Src::Local(l, m) if l.offset == b && *m != Mode::Full))
        };
        srcs.iter().flatten().find_map(|s| match s {
            Src::Local(l, Mode::Full) if fits(&e.bufs[l.offset as usize]) && full(l.offset) => {
                self.live.iter().position(|&x| x == l.offset)
            }
            _ => None,
        })
    }
}
