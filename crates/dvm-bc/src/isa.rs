//! The ISA reference, generated from the table that everything else is generated from.

use std::fmt::Write;

use crate::{Access, DTypes, Form, Opcode, for_each_form};

const INTRO: &str = "\
# Instruction set

One instruction moves or computes a whole tile. This page is generated from the instruction table in `dvm-bc`; to add an
instruction is to add a row there.

## Where code runs

A *template* is a kernel's code. Its *parallel* extents span tiles that run on any core in any order; for each tile its
*phases* run in order. A phase walks its *sequential* extents in order: `init(d)` before the loops at depth d and deeper,
`body` at each point, `finish(d)` after the loops. Local memory lives across the phases of a tile and is undefined in the
next. A *unit* binds a template's slots to arguments; units of one *step* may run at the same time; steps run in order.

## Operands

| operand | meaning |
| --- | --- |
| local | a buffer in local memory, at a block of a space: `l` vector memory, `a` and `b` packed panels, `c` accumulators |
| source | a local tile read `full` (`rows x cols`), by `row` (`cols` elements, the same for each row), by `col` (`rows` elements, element r for row r) or as `one` element; or an immediate `#1.5` of the operand's dtype |
| argument | `$slot + offset + stride*extent ..`: bytes, the strides of the extents signed |
| size | a count, or `body\\|tail@extent`: `tail` at the extent's last index, `body` before; the layout is always the body's |
| loops | `[count by stride, ..]`, outermost first; the dense side is row-major over the body counts |
| hints | `sticky`: the load may be skipped when no extent that moves it has changed; `stream`: not to be kept in caches |
| init | `always`: a plain result; `accumulate`: onto what is there; `first`: as `always` at the first point of the phase's walk, then as `accumulate` |

A tile is row-major with pitch `cols.body`. An instruction may write over a source that it reads `full` and whose elements
have the size of the result's; no other overlap of what it writes with what it reads is legal.

## Values

NumPy and ONNX semantics. Integers wrap. Float arithmetic is IEEE, round to nearest even; f16 and bf16 compute in f32 and round
once an instruction. bool is one byte, 0 or 1. Comparisons and `vis_*` write bool; the dtype they are named with is their
sources'. What depends on data traps: an index of a gather or scatter out of range, a compressed row too many, and an integer
division or remainder by zero. A trap reports the first such element in the order of step, tile, instruction and element.

## Order

A core has *pipes*, each a queue that issues its instructions in order. Where the target's pipes are asynchronous they run
concurrently, and instructions of one pipe may finish in any order; whatever touches common bytes must then be ordered. Elsewhere
instructions run one after the other, and events are illegal.

| pipe | core | runs |
| --- | --- | --- |
| `mte2` | vector | loads and gathers |
| `v` | vector | vector instructions, `pack_a` |
| `mte3` | vector | stores, scatters |
| `cmte2` | cube | `load_a`, `load_b`, `bind_b` |
| `m` | cube | `mmad` |
| `fix` | cube | `acc_to_ub`, `acc_store` |

A target with `cube` cores of their own has groups of one cube core and `cores / cube` vector cores; elsewhere one core has all
pipes.

An *event* is a flag named by producing pipe, consuming pipe and a number. Four slots in an instruction's head say what it waits
for and sets; braces in the text: `{wait mte2.0, set mte3.1, wait_back v.1, set_back v.0, bar}`.

| slot | on an instruction of pipe P |
| --- | --- |
| `set Q.i` | when it and all earlier instructions of P have finished, flag P->Q.i goes up; one that is up already traps |
| `wait Q.i` | it, and so all later ones of P, starts when flag Q->P.i is up, which goes down then |
| `set_back`, `wait_back` | the same between consecutive executions of the section by one core, over the border of tiles; idle at the last and at the first |
| `bar` | it starts when all earlier instructions of P have finished |

What needs more slots stands on a `nop` of its pipe. `barrier` drains all pipes of the core. All flags are down when a unit starts
and when it ends; between steps all cores drain. A load that is skipped because it is `sticky` fires its events all the same.

Cube and vector cores talk through *cross flags*, one set for each tile in flight (two, or as many as a group has vector cores): tile
t of a group is the work of its vector core t mod the number of them. `xset f` on a pipe fires when that pipe's earlier instructions have
finished, `xwait f` holds its pipe until then. Each flag in use is set once and waited for once a tile, by different kinds of core;
one that is waited for first, in program order, is up at first. Where the cores exchange through memory the tile itself goes through a
*ring*: an argument of which each group has as many copies as tiles in flight. The cube core waits `free`, stores, sets `full`; the vector
core waits `full`, loads, sets `free`. A group finishes a unit before it starts the next.

## Encoding

Little-endian 64-bit words, a head word and the operands in table order.

| field | bits, from the lowest |
| --- | --- |
| head | opcode 8, dtype 4, length in words 6, flags 14, synchronisation 32 |
| flags | the narrow operands in order: immediate 1, dtype 4, init 2, hints 2, bool 1, number of strides 4, number of loops 3, pipe 3, cross flag 3 |
| synchronisation | `wait`, `set`, `wait_back`, `set_back` of 7 bits each (valid 1, peer pipe 3, event id 3), `bar` 1, zero 3 |
| local | offset 32, space 2, zero 30 |
| source | as local, with a mode in bits 34 and 35; or the immediate's 64 bits |
| size | body 28, tail 28, extent 4 (15 for none), zero 4 |
| argument | slot 16, number of strides 4, offset 44; then a word a stride: extent 4, stride 60 |
| number | 64 |

Numbers of opcodes and dtypes are never reused.
";

impl DTypes {
    /// In words.
    const fn describe(self) -> &'static str {
        match self {
            DTypes::Any => "all",
            DTypes::Numeric => "all but bool",
            DTypes::Float => "f32 f64 f16 bf16",
            DTypes::Int => "integers",
            DTypes::Bits => "integers, bool",
            DTypes::Logical => "bool",
        }
    }
}

struct FormInfo {
    form: Form,
    doc: &'static str,
    /// As the table has it.
    pipe: &'static str,
    fields: &'static [(&'static str, Access, &'static str)],
}

macro_rules! define_info {
    ($($(#[doc = $doc:literal])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        const FORMS: &[FormInfo] = &[$(FormInfo {
            form: Form::$form,
            doc: concat!($($doc, "\n",)*),
            pipe: stringify!($pipe),
            fields: &[$((stringify!($field), Access::$acc, stringify!($ty)),)*],
        },)*];
    };
}
for_each_form!(define_info);

/// The ISA reference as Markdown: an entry for every instruction of the table.
#[must_use]
pub fn isa_markdown() -> String {
    let mut out = String::from(INTRO);
    for info in FORMS {
        let _ = write!(out, "\n## {:?}\n\n", info.form);
        for line in info.doc.lines() {
            out.push_str(line.strip_prefix(' ').unwrap_or(line));
            out.push('\n');
        }
        let mut fields = info.fields.iter().map(|(name, access, ty)| {
            let ty = match *ty {
                "Local" => "local",
                "Src" => "source",
                "Mem" => "argument",
                "Size" => "size",
                "Loops" => "loops",
                "Strides" => "strides",
                "Hints" => "hints",
                "Init" => "init",
                "DType" => "dtype",
                "Pipe" => "pipe",
                "bool" => "flag",
                _ => "number",
            };
            match access {
                Access::Read => format!("`{name}` reads a {ty}"),
                Access::Write => format!("`{name}` writes a {ty}"),
                Access::Update => format!("`{name}` updates a {ty}"),
                Access::Param => format!("`{name}` {ty}"),
            }
        });
        if let Some(first) = fields.next() {
            let _ = write!(out, "\nOperands: {}", fields.fold(first, |list, f| list + ", " + &f));
            out.push_str(".\n");
        }
        let _ = match info.pipe {
            "None" => write!(out, "\nPipe: every.\n"),
            "Named" => write!(out, "\nPipe: `pipe`.\n"),
            pipe => write!(out, "\nPipe: `{}`.\n", pipe.to_lowercase()),
        };
        out.push_str(
            "\n| number | instruction | dtypes | class | result |\n| --- | --- | --- | --- | --- |\n",
        );
        for op in Opcode::ALL.iter().filter(|o| o.form() == info.form) {
            let (dtypes, doc) = (op.dtypes().describe(), op.doc().replace('|', "\\|"));
            let class = format!("{:?}", op.class()).to_lowercase();
            let _ =
                writeln!(out, "| 0x{:02x} | `{}` | {dtypes} | {class} | {doc} |", *op as u8, op.mnemonic());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_has_an_entry() {
        let text = isa_markdown();
        for op in Opcode::ALL {
            let row = format!("| 0x{:02x} | `{}` |", *op as u8, op.mnemonic());
            assert_eq!(text.matches(&row).count(), 1, "{row}");
        }
        assert!(FORMS.iter().all(|f| !f.doc.trim().is_empty()));
    }
}
