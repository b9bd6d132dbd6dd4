#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`Executable`] holds a program predecoded into flat tables (`exec`): operations with kernel pointers (`kernels`, `math`, `cube`),
//! operands as base and offset, counts as body, tail and mask. [`Runtime::launch`] walks its steps. The tiles of a step are
//! one numbered range, claimed in chunks by the workers of a [`Pool`]; each worker has a *frame*: local memory, the
//! index of each extent, the addresses of the current unit's slots.
//!
//! # Why it is safe
//!
//! Every public function that runs code takes a program inside `Verified`, which only the verifier of `dvm-bc` makes. What unsafe
//! code relies on, and which check covers it:
//!
//! | access | covered by |
//! | --- | --- |
//! | local memory | every local operand lies inside its space; spaces are laid out one after the other in the arena, which is initialised |
//! | arguments | every address of a load or store, at every point of the unit space and with every tail, lies inside the argument and is aligned to the dtype; `launch` checks the lengths and alignments it is given against the program's |
//! | gathers | the verifier admits the whole range of the index; the index itself is checked here, element by element |
//! | operands that overlap | a result equals a source of an elementwise instruction or is apart from it; other instructions' operands are apart |
//! | packed operands | `mmad` takes sizes that were packed or bound; checked again here before each product |
//! | loads bound to arguments | done only where a buffer has one writer, so that its readers, whose bytes the verifier found written, read what the load would have copied; never in templates that store bytes they load (`Verified::in_place`) |
//! | other threads | tiles and units of a step store to disjoint bytes, and load none that others store; steps are separated by joins; arguments are borrowed for the launch, mutably where they are written |
//! | kernels of an instruction-set level | chosen through `Isa::or_portable`, by run-time detection |
//! | the pool's job | lives on the stack of the launching thread, which waits for every claimed chunk, panics included |

mod args;
mod cube;
mod elem;
mod error;
mod exec;
mod isa;
mod kernels;
mod math;
mod pool;
mod runtime;
pub mod scalar;
#[cfg(all(unix, feature = "testing"))]
pub mod testing;

pub use args::ArgRef;
pub use error::{BuildError, LaunchError, Trap, TrapKind};
pub use exec::{BuildOptions, Executable};
pub use isa::Isa;
pub use math::{Accuracy, accuracy, accuracy_markdown};
pub use pool::Pool;
pub use runtime::{Control, Executor, Runtime, Stats};
