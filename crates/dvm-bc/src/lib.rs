//! Tile-level bytecode: what a kernel is compiled to and what the virtual machine runs.
//!
//! One declaration per fact: an instruction is one row of [`for_each_opcode!`], an operand layout one row of
//! [`for_each_form!`]; encoder, decoder, text form, verifier accesses and reference derive from them.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
pub mod bundle;
mod code;
mod decode;
mod dtype;
mod encode;
mod field;
mod isa;
pub mod layout;
mod opcode;
mod operand;
mod program;
pub mod reference;
#[cfg(feature = "arbitrary")]
mod sample;
mod sync;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
mod verify;

pub use access::{Access, Operand, OperandMut};
pub use bundle::{Bundle, BundleError};
pub use code::{Code, DecodeError, EncodeError};
pub use dtype::DType;
pub use isa::isa_markdown;
pub use opcode::*;
pub use operand::*;
pub use program::*;
pub use sync::*;
pub use target::*;
pub use text::{AsmError, asm, disasm, disasm_inst, disasm_with};
pub use verify::*;
