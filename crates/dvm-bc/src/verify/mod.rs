//! Proof that a program is safe to run, and says what it means.
//!
//! The virtual machine does unchecked pointer accesses; it takes only [`Verified`] programs. After [`Verified::new`]:
//!
//! - every index, count and place is sound, every local operand inside its space, every access inside its argument and
//!   aligned to its element, for every point of the unit space;
//! - units of a step, and tiles of a unit, never touch a byte that another of them stores;
//! - local memory is written before it is read; workspace and outputs are stored to before they are loaded (by range: the
//!   hull of a load lies in the hulls of earlier stores) or cleared at launch; outputs are fully written or cleared.
//!
//! What depends on data stays with the machine: gather indices and integer division by zero. Everything is linear in the size
//! of the program; where a proof would cost more, it is given up and reported.

mod address;
mod decoded;
mod footprint;
mod geometry;
mod intervals;
mod local;
mod operands;
mod program;
mod report;
mod sync;
mod template;

pub use decoded::{Decoded, DecodedTemplate};
pub use geometry::{ArgUse, LocalUse, Meeting, Uses};
pub use report::{InstAt, VerifyErrors, Violation, Where};

use crate::Program;

/// What a program may ask for. The defaults are generous; a server that runs strangers' programs lowers them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one argument; never more than 2^48.
    pub arg_bytes: u64,
    /// Bytes of all arguments together.
    pub bytes: u64,
    /// Bytes of local memory of one core, all spaces together.
    pub local_bytes: u64,
    /// Tiles of one step.
    pub tiles: u64,
    /// Instructions executed by one launch, all tiles together.
    pub tile_instructions: u64,
    /// Elements that they work on, multiply-adds of products included: what bounds the time.
    pub elements: u64,
    /// Violations that are listed; more are counted only.
    pub violations: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            arg_bytes: 1 << 40,
            bytes: 1 << 42,
            local_bytes: 1 << 28,
            tiles: 1 << 24,
            tile_instructions: 1 << 40,
            elements: 1 << 56,
            violations: 1000,
        }
    }
}

/// For each template, whether it stores what it loads.
type InPlace = smallvec::SmallVec<[bool; 16]>;

/// A value that has passed verification. Only the verifier makes one.
#[derive(Clone, Debug)]
pub struct Verified<T> {
    inner: T,
    in_place: InPlace,
    /// What the verifier has decoded, until somebody takes it.
    decoded: Option<Decoded>,
}

impl Verified<Program> {
    /// Verifies a program against the target embedded in it.
    ///
    /// # Errors
    /// Lists every violation.
    pub fn new(program: Program, limits: &Limits) -> Result<Verified<Program>, VerifyErrors> {
        let (in_place, decoded) = program::check(&program, limits)?;
        Ok(Verified { inner: program, in_place, decoded })
    }
    /// The decoded instructions: what the verifier looked at, the first time, so that they are decoded once.
    ///
    /// # Errors
    /// As [`Decoded::of`], which never happens to a verified program.
    pub fn take_decoded(&mut self) -> Result<Decoded, (usize, crate::DecodeError)> {
        self.decoded.take().map_or_else(|| Decoded::of(&self.inner), Ok)
    }
    /// Whether, in some unit of the template, a tile stores bytes that it also loads. A machine that reads loaded tiles
    /// from the argument instead of copying them must not do so then.
    #[must_use]
    pub fn in_place(&self, template: u32) -> bool {
        self.in_place.get(template as usize).copied().unwrap_or(true)
    }
}

impl<T> Verified<T> {
    /// The value; what is done with it is no longer verified.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T> std::ops::Deref for Verified<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}
