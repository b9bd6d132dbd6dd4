//! Executes verified DVM bytecode on the host's cores.

mod args;
mod cube;
mod elem;
mod error;
mod exec;
mod isa;
mod kernels;
#[allow(dead_code, unused_imports, reason = "called by the interpreter")]
mod math;
mod pool;
mod runtime;

pub use args::ArgRef;
pub use error::{BuildError, LaunchError, Trap, TrapKind};
pub use exec::{BuildOptions, Executable};
pub use isa::Isa;
pub use pool::Pool;
pub use runtime::{Control, Executor, Runtime, Stats};
