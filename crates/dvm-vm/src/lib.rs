//! Executes verified DVM bytecode on the host's cores.

mod isa;

pub use isa::Isa;
