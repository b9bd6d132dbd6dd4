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
//! code relies on are rules with names, which its comments give:
//!
//! | rule | says | checked by `dvm_bc::verify` in |
//! | --- | --- | --- |
//! | target | blocks, spaces and panel widths are sound | `Target::problems`, first of `program::check` |
//! | counts | `tail <= body`, extents exist where the code runs, strides are sorted, pitches hold their columns | `operands::operands`, `operands::pitch` |
//! | local | a local operand, at its body counts, lies inside its space; strided reads too. Spaces are laid out one after the other in the arena, which is initialised | `local::place`, from `LocalState::local` and `LocalState::strided` |
//! | written | a tile reads no byte of local memory, ragged ones included, that it has not written; so a load that is bound to its argument is read no further than it would have copied, and only after it | `LocalState::written`, `LocalState::leave` |
//! | argument | an access, at its extremes over the unit space and with every tail, lies inside its argument | `address::Footprint::new`, `program::unit`; `args::bind` here compares lengths |
//! | aligned | offsets, strides and slots are multiples of the element; an argument's address is | `template::mem`, `program::unit`; `args::bind` here looks at addresses |
//! | apart | a result equals a source of an elementwise instruction or is apart from it; other operands are apart | `operands::overlaps` |
//! | panel | a packed operand has one place and geometry, and is packed before it is used in a tile | `LocalState::panel`; `mmad` compares sizes again |
//! | races | tiles and units of a step store to disjoint bytes and load none that others store; a ring is each worker's own | `template::pairs`, `program::races`, `program::pair` |
//! | in place | a template that stores bytes it loads is marked: its loads and stores are not bound to arguments, its sticky loads never skipped | `Verified::in_place` |
//! | encoding | counts are below 2^28, so counts and pitches in bytes fit 32 bits | the decoder, `field` |
//!
//! What the machine sees to itself:
//!
//! | access | covered by |
//! | --- | --- |
//! | indices, counts of `compress_store`, divisors | looked at one by one, before they are used |
//! | other threads | steps are separated by joins; arguments are borrowed for the launch, mutably where they are written |
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
pub use math::{Accuracy, accuracy, apply_f32};
pub use pool::Pool;
pub use runtime::{Control, Executor, Runtime, Stats};
