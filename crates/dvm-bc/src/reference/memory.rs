//! What an instruction may touch: a core's local memory and the arguments, byte by byte.

use std::collections::BTreeMap;

use super::Fault;
use crate::{Arg, Local, Space, Target};

/// A region of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// A space of the core's local memory.
    Local(Space),
    /// The argument with this index.
    Arg(u32),
}

/// A byte of a region. May lie outside of it: that is found when it is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Which region.
    pub region: Region,
    /// Offset in bytes.
    pub byte: i64,
}

impl Address {
    /// The address `index * stride` bytes further on. Saturates, which is outside of everything.
    #[must_use]
    pub fn step(self, index: u64, stride: i64) -> Address {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        Address { byte: self.byte.saturating_add(index.saturating_mul(stride)), ..self }
    }
}

/// A right operand that was bound, not copied: panel p is at `at + p * panel_stride`, in elements of the operand's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The first panel.
    pub at: Address,
    /// Bytes from one panel to the next.
    pub panel_stride: i64,
}

/// Memory as one instruction sees it.
///
/// An instruction never reads a byte that it has written itself. So an implementation may also collect the writes
/// and carry them out later, as a machine with several instructions in flight does.
pub trait Memory {
    /// The machine: block of local offsets, panel widths.
    fn target(&self) -> &Target;
    /// Argument and byte offset that a slot of the current unit is bound to.
    ///
    /// # Errors
    /// There is no such slot.
    fn slot(&self, slot: u16) -> Result<Address, Fault>;
    /// Reads bytes.
    ///
    /// # Errors
    /// Some of them are outside of the region.
    fn read(&mut self, at: Address, into: &mut [u8]) -> Result<(), Fault>;
    /// Writes bytes.
    ///
    /// # Errors
    /// Some of them are outside of the region.
    fn write(&mut self, at: Address, bytes: &[u8]) -> Result<(), Fault>;
    /// Names a bound operand by a place in local memory, or (`None`) says that the place holds an operand itself.
    fn bind(&mut self, place: Local, to: Option<Bound>);
    /// What a place was bound to.
    fn bound(&self, place: Local) -> Option<Bound>;
}

/// Local memory of one core.
#[derive(Clone, Debug, Default)]
pub struct LocalMemory {
    spaces: [Vec<u8>; Space::ALL.len()],
    bound: BTreeMap<(Space, u32), Bound>,
}

impl LocalMemory {
    /// Local memory as large as the target's spaces, every byte `byte`.
    #[must_use]
    pub fn new(target: &Target, byte: u8) -> LocalMemory {
        let spaces = Space::ALL.map(|s| vec![byte; usize::try_from(target.capacity(s)).unwrap_or(0)]);
        LocalMemory { spaces, bound: BTreeMap::new() }
    }
    /// Sets every byte and forgets what was bound.
    pub fn fill(&mut self, byte: u8) {
        self.spaces.iter_mut().for_each(|s| s.fill(byte));
        self.bound.clear();
    }
    /// The bytes of a space.
    #[must_use]
    pub fn space(&self, space: Space) -> &[u8] {
        &self.spaces[space as usize]
    }
    /// The bytes of a space, to write.
    pub fn space_mut(&mut self, space: Space) -> &mut [u8] {
        &mut self.spaces[space as usize]
    }
    /// See [`Memory::bind`].
    pub fn bind(&mut self, place: Local, to: Option<Bound>) {
        let key = (place.space, place.offset);
        match to {
            Some(b) => self.bound.insert(key, b),
            None => self.bound.remove(&key),
        };
    }
    /// See [`Memory::bound`].
    #[must_use]
    pub fn bound(&self, place: Local) -> Option<Bound> {
        self.bound.get(&(place.space, place.offset)).copied()
    }
}

/// The plain memory: one core's local memory, all arguments, the slots of one unit.
#[derive(Debug)]
pub struct Flat<'a> {
    /// The machine.
    pub target: &'a Target,
    /// Local memory of the core.
    pub local: &'a mut LocalMemory,
    /// The arguments.
    pub args: &'a mut [Vec<u8>],
    /// Per slot: argument index and byte offset, as in [`Unit::slots`](crate::Unit).
    pub slots: &'a [(u32, u64)],
}

/// The bytes `at..at + len` of a region of `bytes` bytes, if they are inside.
fn range(at: Address, len: usize, bytes: usize) -> Result<std::ops::Range<usize>, Fault> {
    let from = usize::try_from(at.byte).ok();
    match from.and_then(|f| Some((f, f.checked_add(len)?))) {
        Some((from, to)) if to <= bytes => Ok(from..to),
        _ => Err(Fault::Bounds { at, bytes: len as u64, of: bytes as u64 }),
    }
}

impl Flat<'_> {
    fn region(&mut self, at: Address) -> Result<&mut [u8], Fault> {
        match at.region {
            Region::Local(space) => Ok(self.local.space_mut(space)),
            Region::Arg(arg) => {
                self.args.get_mut(arg as usize).map(Vec::as_mut_slice).ok_or(Fault::NoArg { arg })
            }
        }
    }
}

impl Memory for Flat<'_> {
    fn target(&self) -> &Target {
        self.target
    }
    fn slot(&self, slot: u16) -> Result<Address, Fault> {
        slot_address(self.slots, slot)
    }
    fn read(&mut self, at: Address, into: &mut [u8]) -> Result<(), Fault> {
        let region = self.region(at)?;
        into.copy_from_slice(&region[range(at, into.len(), region.len())?]);
        Ok(())
    }
    fn write(&mut self, at: Address, bytes: &[u8]) -> Result<(), Fault> {
        let region = self.region(at)?;
        let range = range(at, bytes.len(), region.len())?;
        region[range].copy_from_slice(bytes);
        Ok(())
    }
    fn bind(&mut self, place: Local, to: Option<Bound>) {
        self.local.bind(place, to);
    }
    fn bound(&self, place: Local) -> Option<Bound> {
        self.local.bound(place)
    }
}

/// What a slot of a unit is bound to: for implementations of [`Memory::slot`].
///
/// # Errors
/// There is no such slot.
pub fn slot_address(slots: &[(u32, u64)], slot: u16) -> Result<Address, Fault> {
    let &(arg, offset) = slots.get(usize::from(slot)).ok_or(Fault::NoSlot { slot })?;
    Ok(Address { region: Region::Arg(arg), byte: i64::try_from(offset).unwrap_or(i64::MAX) })
}

/// Arguments of zeros, as long as a program says.
#[must_use]
pub fn zeroed(args: &[Arg]) -> Vec<Vec<u8>> {
    args.iter().map(|a| vec![0; usize::try_from(a.bytes).unwrap_or(0)]).collect()
}
