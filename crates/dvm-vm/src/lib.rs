//! Executes verified DVM bytecode on the host's cores.

#[allow(dead_code, unused_imports, reason = "called by the interpreter")]
mod cube;
mod isa;
#[allow(dead_code, unused_imports, reason = "called by the interpreter")]
mod math;

pub use isa::Isa;
