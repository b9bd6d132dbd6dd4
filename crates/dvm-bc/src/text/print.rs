//! Program -> text.

use std::fmt::Write;

use super::{SPACE_LETTERS, from_dtype, imm, imm_dtype, is_plain};
use crate::{
    Access, Arg, Class, DType, Exchange, Hints, Init, Inst, InstAt, Kind, Layout, Local, Loops, Mem, Mode,
    Opcode, Operands, Pipe, Program, Role, Size, Src, Strides, Sync, Target, Template, for_each_form,
};

/// What printing an operand depends on.
pub(super) struct Context {
    op: Opcode,
    dtype: DType,
    from: Option<DType>,
    parallel: usize,
}

/// An operand type as text.
pub(super) trait Print {
    fn print(&self, name: &str, cx: &Context, out: &mut String);
    /// Whether it is left out as a parameter.
    fn is_default(&self) -> bool {
        false
    }
}

fn extent(e: u8, cx: &Context, out: &mut String) {
    let _ = match usize::from(e).checked_sub(cx.parallel) {
        None => write!(out, "g{e}"),
        Some(s) => write!(out, "s{s}"),
    };
}

impl Print for Local {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        let _ = write!(out, "{}{}", SPACE_LETTERS[self.space as usize], self.offset);
    }
}

impl Print for Src {
    fn print(&self, name: &str, cx: &Context, out: &mut String) {
        match *self {
            Src::Local(local, mode) => {
                local.print(name, cx, out);
                out.push_str(match mode {
                    Mode::Full => "",
                    Mode::Row => ":row",
                    Mode::Col => ":col",
                    Mode::One => ":one",
                });
            }
            Src::Imm(bits) => {
                out.push('#');
                imm::print(bits, imm_dtype(cx.op, cx.dtype, cx.from, name), out);
            }
        }
    }
}

impl Print for Size {
    fn print(&self, _: &str, cx: &Context, out: &mut String) {
        let _ = write!(out, "{}", self.body);
        if self.tail != self.body || self.extent.is_some() {
            let _ = write!(out, "|{}", self.tail);
        }
        if let Some(e) = self.extent {
            out.push('@');
            extent(e, cx, out);
        }
    }
    fn is_default(&self) -> bool {
        *self == Size::ONE
    }
}

fn term(negative: bool, out: &mut String) {
    out.push_str(if negative { " - " } else { " + " });
}

impl Print for Mem {
    fn print(&self, _: &str, cx: &Context, out: &mut String) {
        let _ = write!(out, "${}", self.slot);
        if self.offset != 0 {
            term(self.offset < 0, out);
            let _ = write!(out, "{}", self.offset.unsigned_abs());
        }
        for &(e, s) in &self.strides {
            term(s < 0, out);
            let _ = write!(out, "{}*", s.unsigned_abs());
            extent(e, cx, out);
        }
    }
}

impl Print for Strides {
    fn print(&self, _: &str, cx: &Context, out: &mut String) {
        out.push('[');
        for (i, &(e, s)) in self.iter().enumerate() {
            let _ = write!(out, "{}{s}*", if i > 0 { ", " } else { "" });
            extent(e, cx, out);
        }
        out.push(']');
    }
    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl Print for Loops {
    fn print(&self, name: &str, cx: &Context, out: &mut String) {
        out.push('[');
        for (i, l) in self.iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            l.count.print(name, cx, out);
            let _ = write!(out, " by {}", l.stride);
        }
        out.push(']');
    }
    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl Print for Hints {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        out.push_str(match (self.sticky, self.stream) {
            (true, true) => "sticky+stream",
            (true, false) => "sticky",
            (false, true) => "stream",
            (false, false) => "none",
        });
    }
    fn is_default(&self) -> bool {
        *self == Hints::default()
    }
}

impl Print for Init {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        out.push_str(match self {
            Init::Accumulate => "accumulate",
            Init::Always => "always",
            Init::First => "first",
        });
    }
    fn is_default(&self) -> bool {
        *self == Init::Always
    }
}

impl Print for DType {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        out.push_str(self.name());
    }
}

impl Print for Pipe {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        out.push_str(self.name());
    }
}

impl Print for u8 {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

impl Print for bool {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
    fn is_default(&self) -> bool {
        !*self
    }
}

impl Print for i64 {
    fn print(&self, _: &str, _: &Context, out: &mut String) {
        let _ = write!(out, "{self}");
    }
    fn is_default(&self) -> bool {
        *self == 0
    }
}

/// A `value` is of the instruction's dtype, anything else a plain number.
impl Print for u64 {
    fn print(&self, name: &str, cx: &Context, out: &mut String) {
        if name == "value" {
            out.push('#');
            imm::print(*self, cx.dtype, out);
        } else {
            let _ = write!(out, "{self}");
        }
    }
}

macro_rules! define_print {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        fn operands(o: &Operands, cx: &Context, out: &mut String) {
            match o { $(
                Operands::$form(_o) => {
                    let mut _sep = " ";
                    $({
                        let (value, is_param) = (&_o.$field, matches!(Access::$acc, Access::Param));
                        if !is_param || !value.is_default() {
                            out.push_str(_sep);
                            _sep = ", ";
                            if is_param {
                                out.push_str(stringify!($field));
                                out.push(' ');
                            }
                            value.print(stringify!($field), cx, out);
                        }
                    })*
                }
            )* }
        }
    };
}
for_each_form!(define_print);

fn inst(inst: &Inst, parallel: usize, out: &mut String) {
    let cx = Context { op: inst.op, dtype: inst.dtype, from: from_dtype(inst), parallel };
    out.push_str(inst.op.mnemonic());
    // Control instructions have no dtype to speak of.
    if inst.op.class() != Class::Control || inst.dtype != DType::F32 {
        out.push('.');
        out.push_str(inst.dtype.name());
    }
    operands(&inst.operands, &cx, out);
    sync(&inst.sync, out);
}

/// An instruction as it stands in a listing. `parallel` extents are named `g`, the ones after them `s`.
#[must_use]
pub fn inst_text(i: &Inst, parallel: usize) -> String {
    let mut out = String::new();
    inst(i, parallel, &mut out);
    out
}

/// ` {wait v.0, set mte3.1, bar}`; nothing where there is none.
fn sync(sync: &Sync, out: &mut String) {
    if sync.is_none() {
        return;
    }
    let mut sep = " {";
    for (name, event) in Sync::NAMES.into_iter().zip(sync.slots()) {
        if let Some(e) = event {
            let _ = write!(out, "{sep}{name} {e}");
            sep = ", ";
        }
    }
    let _ = write!(out, "{}}}", if sync.bar { format!("{sep}bar") } else { String::new() });
}

/// An instruction of a program as text; `None` where there is none, or none that decodes.
#[must_use]
pub fn disasm_inst(program: &Program, at: InstAt) -> Option<String> {
    let template = program.templates.get(at.template as usize)?;
    let phase = template.phases.get(at.phase as usize)?;
    let section = phase.sections.iter().find(|s| s.place == at.place)?;
    let i = section.code.iter().nth(at.index as usize)?.ok()?;
    Some(inst_text(&i, template.parallel.len()))
}

/// Appends a name, in quotes where it needs them.
pub(super) fn name(s: &str, out: &mut String) {
    if is_plain(s) {
        out.push_str(s);
    } else {
        let _ = write!(out, "{s:?}");
    }
}

fn target(t: &Target, out: &mut String) {
    out.push_str("target ");
    name(&t.name, out);
    let _ = write!(out, " cores {} block {}", t.cores, t.block);
    for s in &t.spaces {
        let _ = write!(out, " {} {}", s.space.name(), s.bytes);
    }
    let _ = write!(out, " mr {} nr", t.panel_mr);
    for (i, (size, nr)) in t.panel_nr.iter().enumerate() {
        let _ = write!(out, "{}{size}:{nr}", if i > 0 { ", " } else { " " });
    }
    out.push_str(match t.exchange {
        Exchange::Direct => " exchange direct",
        Exchange::Memory => " exchange memory",
    });
    if t.async_pipes {
        out.push_str(" async");
    }
    if t.events > 0 {
        let _ = write!(out, " events {}", t.events);
    }
    if t.cube_cores > 0 {
        let _ = write!(out, " cube {}", t.cube_cores);
    }
    for (i, (class, dtypes)) in t.legal.iter().enumerate() {
        let _ = write!(out, "{} {}", if i > 0 { "," } else { " legal" }, class.name());
        for (i, d) in dtypes.iter().enumerate() {
            let _ = write!(out, "{}{d}", if i > 0 { "+" } else { " " });
        }
    }
    out.push('\n');
}

/// A dtype and a number of elements, or of bytes where they are no whole elements.
pub(super) fn sized(dtype: DType, bytes: u64, out: &mut String) {
    let size = u64::from(dtype.size());
    if bytes.is_multiple_of(size) {
        let _ = write!(out, "{dtype}[{}]", bytes / size);
    } else {
        let _ = write!(out, "{dtype}[{bytes} bytes]");
    }
}

pub(super) fn layout(layout: Layout, out: &mut String) {
    if let Layout::Panels { nr, k, n, batch } = layout {
        let _ = write!(out, " panels nr {nr} k {k} n {n} batch {batch}");
    }
}

fn arg(a: &Arg, out: &mut String) {
    out.push_str("arg %");
    name(&a.name, out);
    out.push_str(match a.role {
        Role::Input => ": input ",
        Role::Output => ": output ",
        Role::Weight => ": weight ",
        Role::Workspace => ": workspace ",
        Role::Ring => ": ring ",
    });
    sized(a.dtype, a.bytes, out);
    let _ = write!(out, " align {}", a.align);
    layout(a.layout, out);
    if a.zero {
        out.push_str(" zero");
    }
    out.push('\n');
}

fn extents(letter: char, list: &[u32], out: &mut String) {
    out.push('[');
    for (i, n) in list.iter().enumerate() {
        let _ = write!(out, "{}{letter}{i}: {n}", if i > 0 { ", " } else { "" });
    }
    out.push(']');
}

fn template(
    index: u32,
    t: &Template,
    target: &Target,
    note: &dyn Fn(InstAt) -> Option<String>,
    out: &mut String,
) {
    out.push_str("template ");
    name(&t.name, out);
    out.push_str(match t.kind {
        Kind::Vector => " vector",
        Kind::Cube => " cube",
        Kind::Mix => " mix",
    });
    if !t.parallel.is_empty() {
        out.push_str(" parallel ");
        extents('g', &t.parallel, out);
    }
    let tiles = t.parallel.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
    // Where cube cores are separate, a tile that needs one takes a group.
    let cores =
        if target.separate_cube() && t.kind != Kind::Vector { target.cube_cores } else { target.cores };
    let block_dim = tiles.min(u64::from(cores)).max(1);
    let _ = writeln!(out, " ; {tiles} tiles, block_dim {block_dim}, body_tile {}", tiles.div_ceil(block_dim));
    for (i, s) in t.slots.iter().enumerate() {
        let _ = write!(out, "  slot ${i} ");
        name(&s.name, out);
        let _ = writeln!(out, ": {}{}", s.dtype, if s.write { " write" } else { "" });
    }
    let mut number = 0;
    for (p, phase) in t.phases.iter().enumerate() {
        let _ = write!(out, "  phase {}", p + 1);
        if !phase.seq.is_empty() {
            out.push_str(" seq ");
            extents('s', &phase.seq, out);
        }
        out.push_str(if phase.rotate { " rotate\n" } else { "\n" });
        for section in &phase.sections {
            let _ = writeln!(out, "    {}", section.place);
            let (template, phase, place) = (index, p as u32, section.place);
            let mut at = InstAt { template, phase, place, index: 0, number, mnemonic: "" };
            for i in section.code.iter() {
                match i {
                    Ok(i) => {
                        out.push_str("      ");
                        inst(&i, t.parallel.len(), out);
                        at.mnemonic = i.op.mnemonic();
                        if let Some(note) = note(at) {
                            // A note cannot end its line and begin an instruction.
                            let _ = write!(out, " ; {}", note.escape_debug());
                        }
                        out.push('\n');
                    }
                    Err(e) => {
                        let _ = write!(out, "      .words");
                        for w in &section.code.words()[e.at..] {
                            let _ = write!(out, " 0x{w:x}");
                        }
                        let _ = writeln!(out, " ; {}", e.what);
                    }
                }
                at.index += 1;
                number += 1;
                at.number = number;
            }
        }
    }
}

/// Whether names can stand for indices.
fn unique<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.windows(2).all(|w| w[0] != w[1])
}

/// A program as text; [`asm`](super::asm) reads it back. Any program has a text, verified or not.
#[must_use]
pub fn disasm(program: &Program) -> String {
    disasm_with(program, &|_| None)
}

/// As [`disasm`], with a comment after each instruction that `note` has one for.
#[must_use]
pub fn disasm_with(program: &Program, note: &dyn Fn(InstAt) -> Option<String>) -> String {
    let mut out = String::from("program ");
    let o = &mut out;
    name(&program.name, o);
    o.push('\n');
    target(&program.target, o);
    for a in &program.args {
        arg(a, o);
    }
    let named_args = unique(program.args.iter().map(|a| a.name.as_str()));
    let named_templates = unique(program.templates.iter().map(|t| t.name.as_str()));
    let arg_name = |i: u32, o: &mut String| match program.args.get(i as usize) {
        Some(a) if named_args => {
            o.push('%');
            name(&a.name, o);
        }
        _ => {
            let _ = write!(o, "%{i}");
        }
    };
    for &(a, b) in &program.aliases {
        o.push_str("alias ");
        arg_name(a, o);
        o.push(' ');
        arg_name(b, o);
        o.push('\n');
    }
    for (i, t) in program.templates.iter().enumerate() {
        template(i as u32, t, &program.target, note, o);
    }
    for (i, step) in program.steps.iter().enumerate() {
        let _ = writeln!(o, "step {i}");
        for (number, u) in step.units.iter().enumerate() {
            o.push_str("  run ");
            match program.templates.get(u.template as usize) {
                Some(t) if named_templates => name(&t.name, o),
                _ => {
                    let _ = write!(o, "{}", u.template);
                }
            }
            o.push('(');
            for (i, &(a, offset)) in u.slots.iter().enumerate() {
                o.push_str(if i > 0 { ", " } else { "" });
                arg_name(a, o);
                if offset > 0 {
                    let _ = write!(o, " + {offset}");
                }
            }
            o.push(')');
            if u.weight != 1 {
                let _ = write!(o, " weight {}", u.weight);
            }
            for l in step.limits.iter().filter(|l| l.first as usize == number) {
                let _ = write!(o, " cores {}", l.cores);
                if l.units != 1 {
                    let _ = write!(o, " units {}", l.units);
                }
            }
            o.push('\n');
        }
    }
    out
}
