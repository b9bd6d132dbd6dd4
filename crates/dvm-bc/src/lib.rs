//! Tile-level bytecode: what a kernel is compiled to and what the virtual machine runs.
//!
//! One instruction moves or computes a whole tile, so a fused kernel is 5-50 instructions.
//! This crate knows no graph and no machine code. It can be used alone to store, review, check
//! or generate programs.

#![forbid(unsafe_code)]

mod access;
pub mod bundle;
mod code;
mod decode;
mod dtype;
mod encode;
mod field;
pub mod layout;
mod opcode;
mod operand;
mod program;
mod target;
mod text;
mod verify;

pub use access::{Access, Operand};
pub use bundle::{Bundle, BundleError};
pub use code::{Code, DecodeError, EncodeError};
pub use dtype::DType;
pub use opcode::*;
pub use operand::*;
pub use program::*;
pub use target::*;
pub use text::{AsmError, asm, disasm, disasm_with};
pub use verify::*;
