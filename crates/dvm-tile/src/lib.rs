//! Concrete compile of fused kernels: fold the space, pick tiles, place buffers, emit bytecode.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attention;
mod check;
mod compile;
mod cost;
mod cube;
mod emit;
mod error;
mod hint;
mod legal;
mod lower;
mod place;
mod plan;
mod proof;
mod report;
mod shape;
mod space;
mod split;
mod sync;
mod tile;
mod vector;

pub use compile::{Scratch, compile_kernel};
pub use cube::Pack;
pub use error::{Fault, TileError};
pub use hint::TileHint;
pub use plan::{ArgBinding, Compiled, compile_plan};
pub use proof::{CHECKS, assert_sound};
pub use report::{Candidate, FoldRole, FoldTiling, Forced, Note, Tiling, Work};
