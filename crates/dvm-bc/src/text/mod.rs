//! Programs as text, made for review: stable names, an instruction a line, sizes in elements, arguments by name.
//!
//! ```text
//! program add_sqrt
//! target host-ref cores 2 block 64 ub 262144 mr 6 nr 4:16 exchange direct
//! arg %x: input f32[4352] align 64
//! arg %z: output f32[4352] align 64
//! template t vector parallel [g0: 5]           ; 5 tiles, block_dim 2, body_tile 3
//!   slot $0 x: f32
//!   slot $1 z: f32 write
//!   phase 1
//!     body
//!       load.f32 l0, $0 + 4096*g0, cols 1024|256@g0
//!       vsqrt.f32 l0, l0, cols 1024|256@g0
//!       store.f32 $1 + 4096*g0, l0, cols 1024|256@g0
//! step 0
//!   run t(%x, %z)
//! ```
//!
//! Memory operands come first, in table order; parameters follow by name, and are left out where they are 1, 0, off or
//! `init always`. Local memory is named by space and block: `l` vector memory, `a` and `b` panels, `c` accumulators. A
//! source may be read `:row`, `:col` or `:one`. `1024|256@g0` is 256 at the last index of g0, else 1024. `;` starts a comment.

mod bundle;
mod cursor;
mod imm;
mod parse;
mod print;

pub use bundle::Lines;
pub use cursor::AsmError;
pub use parse::asm;
pub use print::{disasm, disasm_inst, disasm_with, inst_text};

use crate::{DType, Inst, Opcode, Operands};

/// The letters of [`Space::ALL`](crate::Space::ALL).
const SPACE_LETTERS: [char; 4] = ['l', 'a', 'b', 'c'];

/// The dtype of the immediates of an operand.
fn imm_dtype(op: Opcode, dtype: DType, from: Option<DType>, name: &str) -> DType {
    match from {
        _ if op == Opcode::VSelect && name == "a" => DType::Bool,
        Some(from) => from,
        None => dtype,
    }
}

/// The dtype a cast reads.
fn from_dtype(inst: &Inst) -> Option<DType> {
    match &inst.operands {
        Operands::Cast(o) => Some(o.from),
        _ => None,
    }
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/'))
}
