//! Random programs, mutations of programs, and the properties that all of them must keep: what the fuzzers run.
//!
//! Everything takes its choices from a [`Dice`]: a fuzzer's bytes or a seed. Compiled with the feature `testing` only.

mod dice;
mod emit;
pub mod fuzz;
mod generate;
mod mutate;
mod shadow;
mod template;

pub use dice::Dice;
pub use generate::{Generated, program, single, small_limits};
pub use mutate::{mutate, mutate_bytes};
pub use shadow::run_checked;
