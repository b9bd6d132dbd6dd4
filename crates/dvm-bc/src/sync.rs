//! Pipes and what orders them: events between pipes of a core, the same-pipe barrier.
//!
//! A core of a target with asynchronous pipes issues each pipe's instructions in order; several may be in flight and finish
//! in any order. What one needs of another is said in the heads of the two.

use crate::EncodeError;

/// Which core of a group a pipe belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreKind {
    /// A vector core.
    Vector,
    /// A cube core. Targets without separate cube cores run its pipes on the vector core.
    Cube,
}

/// A queue of a core that runs concurrently with the others. The numbers are part of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pipe {
    /// Vector core: arguments to vector memory.
    Mte2 = 0,
    /// Vector core: computes.
    V = 1,
    /// Vector core: vector memory to arguments.
    Mte3 = 2,
    /// Cube core: arguments to packed panels.
    CMte2 = 3,
    /// Cube core: matrix products.
    M = 4,
    /// Cube core: accumulators to vector memory or arguments.
    Fix = 5,
}

impl Pipe {
    /// All pipes, in encoding order.
    pub const ALL: [Pipe; 6] = [Pipe::Mte2, Pipe::V, Pipe::Mte3, Pipe::CMte2, Pipe::M, Pipe::Fix];
    /// The textual name, e.g. `mte2`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Pipe::Mte2 => "mte2",
            Pipe::V => "v",
            Pipe::Mte3 => "mte3",
            Pipe::CMte2 => "cmte2",
            Pipe::M => "m",
            Pipe::Fix => "fix",
        }
    }
    /// The pipe with this name.
    #[must_use]
    pub fn from_name(s: &str) -> Option<Pipe> {
        Pipe::ALL.into_iter().find(|p| p.name() == s)
    }
    /// The pipe with this encoding number.
    #[must_use]
    pub const fn from_number(n: u8) -> Option<Pipe> {
        if (n as usize) < Pipe::ALL.len() { Some(Pipe::ALL[n as usize]) } else { None }
    }
    /// The core it belongs to.
    #[must_use]
    pub const fn core(self) -> CoreKind {
        match self {
            Pipe::Mte2 | Pipe::V | Pipe::Mte3 => CoreKind::Vector,
            Pipe::CMte2 | Pipe::M | Pipe::Fix => CoreKind::Cube,
        }
    }
}

impl std::fmt::Display for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Most event ids of an ordered pair of pipes that the encoding can name.
pub const MAX_EVENTS: u32 = 8;
/// Flags between the cores of a group; see `xset`.
pub const CROSS_FLAGS: u8 = 8;

/// One end of an event: a binary flag that is named by its producing pipe, its consuming pipe and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The pipe at the other end.
    pub peer: Pipe,
    /// Number among the flags of the ordered pair, below the target's `events`.
    pub id: u8,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.peer.name(), self.id)
    }
}

/// What an instruction waits for before it starts, and sets when it has finished. Targets with in-order pipes have none.
///
/// `set` on an instruction of pipe P, peer Q: when it and all earlier instructions of P have finished, flag (P, Q, id) becomes 1;
/// a flag that is 1 already traps. `wait` on an instruction of pipe P, peer Q: it, and so all later ones of P, starts when
/// flag (Q, P, id) is 1, which is cleared then. The `_back` slots link executions of the same section by one core within the
/// tiles it runs of a unit: `wait_back` is ignored at the first of them, `set_back` at the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sync {
    /// Waits for this event.
    pub wait: Option<Event>,
    /// Sets this event.
    pub set: Option<Event>,
    /// Waits for what the section's previous execution set.
    pub wait_back: Option<Event>,
    /// Sets for the section's next execution.
    pub set_back: Option<Event>,
    /// Starts only after all earlier instructions of its own pipe have finished.
    pub bar: bool,
}

/// Bits of a slot: valid 1, peer 3, id 3.
const SLOT: u32 = 7;
const BAR: u32 = 4 * SLOT;

impl Sync {
    /// Nothing to wait for or to set.
    pub const NONE: Sync = Sync { wait: None, set: None, wait_back: None, set_back: None, bar: false };
    /// Names of the four events in encoding order, as the text form has them.
    pub const NAMES: [&'static str; 4] = ["wait", "set", "wait_back", "set_back"];

    /// Whether there is nothing to wait for or to set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Sync::NONE
    }
    /// The four events in encoding order.
    #[must_use]
    pub const fn slots(&self) -> [Option<Event>; 4] {
        [self.wait, self.set, self.wait_back, self.set_back]
    }
    /// The slot with this index in [`Sync::NAMES`].
    pub fn slot_mut(&mut self, index: usize) -> Option<&mut Option<Event>> {
        match index {
            0 => Some(&mut self.wait),
            1 => Some(&mut self.set),
            2 => Some(&mut self.wait_back),
            3 => Some(&mut self.set_back),
            _ => None,
        }
    }

    /// The upper half of an instruction's head.
    #[inline]
    pub(crate) fn encode(&self, mnemonic: &'static str) -> Result<u32, EncodeError> {
        let mut bits = u32::from(self.bar) << BAR;
        for (i, slot) in self.slots().into_iter().enumerate() {
            let Some(Event { peer, id }) = slot else { continue };
            if u32::from(id) >= MAX_EVENTS {
                let (field, value) = (Sync::NAMES[i], i128::from(id));
                return Err(EncodeError::Range { mnemonic, field, value, bits: 3 });
            }
            bits |= (1 | (peer as u32) << 1 | u32::from(id) << 4) << (SLOT * i as u32);
        }
        Ok(bits)
    }

    /// From the upper half of a head; `None` where those bits say nothing.
    #[inline]
    pub(crate) fn decode(bits: u32) -> Option<Sync> {
        if bits == 0 {
            return Some(Sync::NONE);
        }
        if bits >> (BAR + 1) != 0 {
            return None;
        }
        let slot = |i: u32| {
            let b = bits >> (SLOT * i) & ((1 << SLOT) - 1);
            match b & 1 {
                1 => {
                    Pipe::from_number((b >> 1 & 7) as u8).map(|peer| Some(Event { peer, id: (b >> 4) as u8 }))
                }
                _ if b == 0 => Some(None),
                _ => None,
            }
        };
        Some(Sync {
            wait: slot(0)?,
            set: slot(1)?,
            wait_back: slot(2)?,
            set_back: slot(3)?,
            bar: bits >> BAR & 1 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_word_is_one_sync_or_none() {
        let mut known = 0;
        for i in 0..1u64 << 20 {
            let bits = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 >> (i % 29);
            if let Some(s) = Sync::decode(bits) {
                known += 1;
                assert_eq!(s.encode("x"), Ok(bits), "{s:?}");
            }
        }
        assert!(known > 100_000, "{known}");
    }
}
