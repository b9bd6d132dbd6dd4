//! Text -> program. Errors say where: line, column, what was expected.

use super::cursor::{AsmError, Cursor, Result};
use super::{SPACE_LETTERS, imm, imm_dtype};
use crate::{
    Access, Arg, Class, Code, CoreLimit, DType, DTypeSet, Event, Exchange, Form, Hints, Init, Inst, Kind,
    Layout, Local, Loop, Loops, Mem, Mode, Opcode, Operands, Phase, Pipe, Place, Program, Role, Section,
    Size, Slot, Space, SpaceSpec, Src, Step, Strides, Sync, Target, Template, Unit, for_each_form,
};

/// What reading an operand depends on.
struct Context {
    op: Opcode,
    dtype: DType,
    parallel: usize,
}

/// An operand type from text.
trait Parse: Sized {
    fn parse(p: &mut Cursor<'_>, name: &str, cx: &Context) -> Result<Self>;
    /// The value of a parameter that is left out.
    fn absent() -> Option<Self> {
        None
    }
}

fn extent(p: &mut Cursor<'_>, cx: &Context) -> Result<u8> {
    let at = p.at;
    let word = p.word();
    let index =
        |w: &str, base: usize| w.parse::<u8>().ok().and_then(|n| n.checked_add(u8::try_from(base).ok()?));
    let e = match (word.strip_prefix('g'), word.strip_prefix('s')) {
        (Some(n), _) => index(n, 0),
        (_, Some(n)) => index(n, cx.parallel),
        _ => None,
    };
    e.map_or_else(|| p.error_at(at, format!("`{word}` is no extent")), Ok)
}

impl Parse for Local {
    fn parse(p: &mut Cursor<'_>, name: &str, _: &Context) -> Result<Self> {
        let mut chars = p.rest().chars();
        let letter = chars.next().and_then(|c| SPACE_LETTERS.iter().position(|&l| l == c));
        // A word that only begins like a block, such as `cols`, means that the operand is missing.
        let block = chars.next().is_some_and(|c| c.is_ascii_digit());
        let Some(space) = letter.filter(|_| block) else {
            return p.expected(&format!("`{name}` in local memory: l, a, b or c and a block"));
        };
        p.at += 1;
        Ok(Local { space: Space::ALL[space], offset: p.number("block number")? })
    }
}

impl Parse for Src {
    fn parse(p: &mut Cursor<'_>, name: &str, cx: &Context) -> Result<Self> {
        if p.rest().starts_with('#') {
            // A cast's source dtype follows; the instruction's parser has read ahead for it.
            return immediate(p, imm_dtype(cx.op, cx.dtype, None, name)).map(Src::Imm);
        }
        let local = Local::parse(p, name, cx)?;
        let mode = if p.eat(":") {
            p.choose(
                "a mode",
                &[("row", Mode::Row), ("col", Mode::Col), ("one", Mode::One), ("full", Mode::Full)],
            )?
        } else {
            Mode::Full
        };
        Ok(Src::Local(local, mode))
    }
}

fn immediate(p: &mut Cursor<'_>, dtype: DType) -> Result<u64> {
    let at = p.at;
    p.take("#")?;
    let text = p.run(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
    match imm::parse(text, dtype) {
        Some(bits) => Ok(bits),
        None => p.error_at(at, format!("`{text}` is no {dtype}")),
    }
}

impl Parse for Size {
    fn parse(p: &mut Cursor<'_>, _: &str, cx: &Context) -> Result<Self> {
        let body = p.number("count")?;
        let tail = if p.eat("|") { p.number("count")? } else { body };
        let extent = if p.eat("@") { Some(extent(p, cx)?) } else { None };
        Ok(Size { body, tail, extent })
    }
    fn absent() -> Option<Self> {
        Some(Size::ONE)
    }
}

impl Parse for Mem {
    fn parse(p: &mut Cursor<'_>, _: &str, cx: &Context) -> Result<Self> {
        p.take("$")?;
        let mut mem = Mem { slot: p.number("slot number")?, offset: 0, strides: Strides::new() };
        let mut first = true;
        loop {
            let negative = if p.eat("+") {
                false
            } else if p.eat("-") {
                true
            } else {
                return Ok(mem);
            };
            let at = p.at;
            let magnitude: u64 = p.number("number of bytes")?;
            let value = if negative {
                0i64.checked_sub_unsigned(magnitude)
            } else {
                0i64.checked_add_unsigned(magnitude)
            };
            let Some(value) = value else { return p.error_at(at, "does not fit 64 bits") };
            if p.eat("*") {
                mem.strides.push((extent(p, cx)?, value));
            } else if first {
                mem.offset = value;
            } else {
                return p.error_at(at, "the offset comes first, once");
            }
            first = false;
        }
    }
}

pub(super) fn list<T>(
    p: &mut Cursor<'_>,
    mut item: impl FnMut(&mut Cursor<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    p.take("[")?;
    let mut out = Vec::new();
    while !p.eat("]") {
        if !out.is_empty() {
            p.take(",")?;
        }
        out.push(item(p)?);
    }
    Ok(out)
}

impl Parse for Strides {
    fn parse(p: &mut Cursor<'_>, _: &str, cx: &Context) -> Result<Self> {
        let items = list(p, |p| {
            let stride = p.number("stride")?;
            p.take("*")?;
            Ok((extent(p, cx)?, stride))
        })?;
        Ok(items.into())
    }
    fn absent() -> Option<Self> {
        Some(Strides::new())
    }
}

impl Parse for Loops {
    fn parse(p: &mut Cursor<'_>, name: &str, cx: &Context) -> Result<Self> {
        let items = list(p, |p| {
            let count = Size::parse(p, name, cx)?;
            p.take("by")?;
            Ok(Loop { count, stride: p.number("stride")? })
        })?;
        Ok(items.into())
    }
    fn absent() -> Option<Self> {
        Some(Loops::new())
    }
}

impl Parse for Hints {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        let mut h = Hints::default();
        loop {
            match p.choose("a hint", &[("sticky", 0), ("stream", 1), ("none", 2)])? {
                0 => h.sticky = true,
                1 => h.stream = true,
                _ => {}
            }
            if !p.eat("+") {
                return Ok(h);
            }
        }
    }
    fn absent() -> Option<Self> {
        Some(Hints::default())
    }
}

impl Parse for Init {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        p.choose(
            "when",
            &[("first", Init::First), ("always", Init::Always), ("accumulate", Init::Accumulate)],
        )
    }
    fn absent() -> Option<Self> {
        Some(Init::Always)
    }
}

impl Parse for DType {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        p.dtype()
    }
}

fn pipe(p: &mut Cursor<'_>) -> Result<Pipe> {
    p.choose("a pipe", &Pipe::ALL.map(|pipe| (pipe.name(), pipe)))
}

impl Parse for Pipe {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        pipe(p)
    }
}

impl Parse for u8 {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        p.number("flag")
    }
}

impl Parse for bool {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        p.choose("true or false", &[("true", true), ("false", false)])
    }
    fn absent() -> Option<Self> {
        Some(false)
    }
}

impl Parse for i64 {
    fn parse(p: &mut Cursor<'_>, _: &str, _: &Context) -> Result<Self> {
        p.number("number")
    }
    fn absent() -> Option<Self> {
        Some(0)
    }
}

impl Parse for u64 {
    fn parse(p: &mut Cursor<'_>, name: &str, cx: &Context) -> Result<Self> {
        if name == "value" { immediate(p, cx.dtype) } else { p.number("number") }
    }
}

macro_rules! define_parse {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        fn operands(form: Form, p: &mut Cursor<'_>, cx: &Context) -> Result<Operands> {
            match form { $(Form::$form => {
                $(let mut $field: Option<$ty> = None;)*
                let mut _first = true;
                $(if !matches!(Access::$acc, Access::Param) {
                    if !_first {
                        p.take(",")?;
                    }
                    _first = false;
                    $field = Some(Parse::parse(p, stringify!($field), cx)?);
                })*
                while !p.is_end() && !p.rest().starts_with('{') {
                    if !_first {
                        p.take(",")?;
                    }
                    _first = false;
                    let at = p.at;
                    let word = p.word();
                    match word {
                        $(stringify!($field) if matches!(Access::$acc, Access::Param) && $field.is_none() => {
                            $field = Some(Parse::parse(p, stringify!($field), cx)?);
                        })*
                        _ => return p.error_at(at, format!("`{word}` is no parameter of this instruction, or there twice")),
                    }
                }
                Ok(Operands::$form(crate::$form { $(
                    $field: match $field.or_else(<$ty as Parse>::absent) {
                        Some(v) => v,
                        None => return p.error(concat!("`", stringify!($field), "` is missing")),
                    },
                )* }))
            })* }
        }
    };
}
for_each_form!(define_parse);

fn inst(p: &mut Cursor<'_>, parallel: usize) -> Result<Inst> {
    let at = p.at;
    let word = p.word();
    let Some(op) = Opcode::from_mnemonic(word) else {
        return p.error_at(at, format!("`{word}` is no instruction"));
    };
    let dtype = if p.eat(".") {
        p.dtype()?
    } else if op.class() == Class::Control {
        DType::F32
    } else {
        return p.expected("`.` and a dtype");
    };
    // An immediate of a cast is of the dtype that is named after it.
    let from = (op.form() == Form::Cast).then(|| p.rest().split("from ").nth(1)).flatten();
    let source = from.and_then(|s| DType::from_name(Cursor::new(0, s).peek_word()));
    let cx = Context { op, dtype: source.unwrap_or(dtype), parallel };
    let operands = operands(op.form(), p, &cx)?;
    let sync = sync(p)?;
    p.end()?;
    Ok(Inst { op, dtype, operands, sync })
}

/// `{wait v.0, set mte3.1, bar}`, or nothing.
fn sync(p: &mut Cursor<'_>) -> Result<Sync> {
    let mut sync = Sync::NONE;
    if !p.eat("{") {
        return Ok(sync);
    }
    loop {
        let at = p.at;
        let word = p.word();
        if word == "bar" && !sync.bar {
            sync.bar = true;
        } else {
            let slot = Sync::NAMES.iter().position(|&n| n == word).and_then(|i| sync.slot_mut(i));
            match slot {
                Some(slot @ None) => {
                    let peer = pipe(p)?;
                    p.take(".")?;
                    *slot = Some(Event { peer, id: p.number("event number")? });
                }
                Some(_) => return p.error_at(at, format!("`{word}` is there twice")),
                None => {
                    return p
                        .error_at(at, "expected `wait`, `set`, `wait_back`, `set_back` or `bar`, each once");
                }
            }
        }
        if p.eat("}") {
            return Ok(sync);
        }
        p.take(",")?;
    }
}

fn place(p: &mut Cursor<'_>) -> Result<Option<Place>> {
    let word = p.peek_word();
    let make: fn(u8) -> Place = match word {
        "body" => {
            p.word();
            return Ok(Some(Place::Body));
        }
        "init" => Place::Init,
        "finish" => Place::Finish,
        _ => return Ok(None),
    };
    p.word();
    p.take("(")?;
    let depth = p.number("depth")?;
    p.take(")")?;
    Ok(Some(make(depth)))
}

fn bare_target(name: String) -> Target {
    Target {
        name,
        cores: 1,
        spaces: Vec::new(),
        block: 64,
        panel_nr: Vec::new(),
        panel_mr: 1,
        exchange: Exchange::Direct,
        async_pipes: false,
        events: 0,
        cube_cores: 0,
        legal: Vec::new(),
    }
}

fn target(p: &mut Cursor<'_>) -> Result<Target> {
    let mut t = bare_target(p.name()?);
    while !p.is_end() {
        let at = p.at;
        let word = p.word();
        match word {
            "cores" => t.cores = p.number("number of cores")?,
            "block" => t.block = p.number("number of bytes")?,
            "mr" => t.panel_mr = p.number("panel height")?,
            "nr" => {
                while p.rest().starts_with(|c: char| c.is_ascii_digit()) {
                    let size = p.number("dtype size")?;
                    p.take(":")?;
                    t.panel_nr.push((size, p.number("panel width")?));
                    if !p.eat(",") {
                        break;
                    }
                }
            }
            "exchange" => {
                t.exchange =
                    p.choose("an exchange", &[("direct", Exchange::Direct), ("memory", Exchange::Memory)])?;
            }
            "async" => t.async_pipes = true,
            "events" => t.events = p.number("number of events")?,
            "cube" => t.cube_cores = p.number("number of cube cores")?,
            "legal" => loop {
                let classes: Vec<_> = Class::ALL.iter().map(|c| (c.name(), *c)).collect();
                let class = p.choose("a class", &classes)?;
                let mut dtypes = Vec::new();
                // A class may have no dtype at all.
                while DType::from_name(p.peek_word()).is_some() {
                    dtypes.push(p.dtype()?);
                    if !p.eat("+") {
                        break;
                    }
                }
                t.legal.push((class, dtypes.into_iter().collect::<DTypeSet>()));
                if !p.eat(",") {
                    break;
                }
            },
            _ => match Space::ALL.iter().find(|s| s.name() == word) {
                Some(&space) => t.spaces.push(SpaceSpec { space, bytes: p.number("number of bytes")? }),
                None => return p.error_at(at, format!("`{word}` is no property of a target")),
            },
        }
    }
    Ok(t)
}

/// A dtype and a number of elements, or of bytes; as bytes.
pub(super) fn sized(p: &mut Cursor<'_>) -> Result<(DType, u64)> {
    let dtype = p.dtype()?;
    p.take("[")?;
    let at = p.at;
    let n: u64 = p.number("number of elements")?;
    let scale = if p.keyword("bytes") { 1 } else { u64::from(dtype.size()) };
    let Some(bytes) = n.checked_mul(scale) else { return p.error_at(at, "does not fit 64 bits") };
    p.take("]")?;
    Ok((dtype, bytes))
}

/// The layout of packed panels, if it is next.
pub(super) fn panels(p: &mut Cursor<'_>) -> Result<Option<Layout>> {
    if !p.keyword("panels") {
        return Ok(None);
    }
    p.take("nr")?;
    let nr = p.number("panel width")?;
    p.take("k")?;
    let k = p.number("number of rows")?;
    p.take("n")?;
    let n = p.number("number of columns")?;
    p.take("batch")?;
    Ok(Some(Layout::Panels { nr, k, n, batch: p.number("number of matrices")? }))
}

fn arg(p: &mut Cursor<'_>) -> Result<Arg> {
    p.take("%")?;
    let name = p.name()?;
    p.take(":")?;
    let roles = [
        ("input", Role::Input),
        ("output", Role::Output),
        ("weight", Role::Weight),
        ("workspace", Role::Workspace),
        ("ring", Role::Ring),
    ];
    let role = p.choose("a role", &roles)?;
    let (dtype, bytes) = sized(p)?;
    let mut a = Arg { name, role, dtype, bytes, align: dtype.size(), layout: Layout::Plain, zero: false };
    while !p.is_end() {
        if p.keyword("align") {
            a.align = p.number("alignment")?;
        } else if p.keyword("zero") {
            a.zero = true;
        } else if let Some(panels) = panels(p)? {
            a.layout = panels;
        } else {
            return p.expected("`align`, `panels` or `zero`");
        }
    }
    Ok(a)
}

fn extents(p: &mut Cursor<'_>, letter: char) -> Result<Vec<u32>> {
    let mut i = 0;
    list(p, |p| {
        p.take(&format!("{letter}{i}"))?;
        p.take(":")?;
        i += 1;
        p.number("extent")
    })
}

/// An index, by number or by name.
fn reference(p: &mut Cursor<'_>, what: &str, find: impl Fn(&str) -> Option<usize>) -> Result<u32> {
    if p.rest().starts_with(|c: char| c.is_ascii_digit()) {
        return p.number("index");
    }
    let at = p.at;
    let name = p.name()?;
    match find(&name) {
        Some(i) => Ok(i as u32),
        None => p.error_at(at, format!("no {what} is named `{name}`")),
    }
}

#[derive(Default)]
struct Names(std::collections::HashMap<String, usize>);

impl Names {
    fn add(&mut self, name: &str, index: usize) {
        self.0.entry(name.to_owned()).or_insert(index);
    }
    fn find(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

fn unit(p: &mut Cursor<'_>, templates: &Names, args: &Names) -> Result<Unit> {
    let template = reference(p, "template", |n| templates.find(n))?;
    p.take("(")?;
    let mut slots = Vec::new();
    while !p.eat(")") {
        if !slots.is_empty() {
            p.take(",")?;
        }
        p.take("%")?;
        let arg = reference(p, "argument", |n| args.find(n))?;
        slots.push((arg, if p.eat("+") { p.number("byte offset")? } else { 0 }));
    }
    let weight = if p.keyword("weight") { p.number("weight")? } else { 1 };
    Ok(Unit { template, slots, weight })
}

/// Where an instruction stands in a text, and what is said behind it.
pub(super) struct Spot<'a> {
    /// Template, and number of the instruction in it.
    pub(super) at: (u32, u32),
    /// Line, from 1.
    pub(super) line: usize,
    /// Without its `;`.
    pub(super) comment: &'a str,
}

/// Reads a program. It is not verified: that is [`Verified::new`](crate::Verified::new)'s work.
///
/// # Errors
/// The text is not a program; says at which line and column.
pub fn asm(text: &str) -> std::result::Result<Program, AsmError> {
    program(text.lines().enumerate(), &mut |_| {})
}

/// Reads the program that some lines, numbered from 0, are.
pub(super) fn program<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
    seen: &mut dyn FnMut(Spot<'a>),
) -> Result<Program> {
    let mut program: Option<Program> = None;
    let (mut args, mut templates) = (Names::default(), Names::default());
    let mut has_target = false;
    let (mut number, mut last) = (0, 0);
    for (i, line) in lines {
        let mut p = Cursor::new(i + 1, line);
        let p = &mut p;
        last = i;
        if p.is_end() {
            continue;
        }
        let Some(prog) = &mut program else {
            p.take("program")?;
            program = Some(Program {
                name: p.name()?,
                target: bare_target(String::new()),
                args: Vec::new(),
                templates: Vec::new(),
                steps: Vec::new(),
                aliases: Vec::new(),
            });
            p.end()?;
            continue;
        };
        if p.keyword("target") {
            prog.target = target(p)?;
            has_target = true;
        } else if p.keyword("arg") {
            let a = arg(p)?;
            args.add(&a.name, prog.args.len());
            prog.args.push(a);
        } else if p.keyword("alias") {
            p.take("%")?;
            let a = reference(p, "argument", |n| args.find(n))?;
            p.take("%")?;
            prog.aliases.push((a, reference(p, "argument", |n| args.find(n))?));
        } else if p.keyword("template") {
            let name = p.name()?;
            let kind =
                p.choose("a kind", &[("vector", Kind::Vector), ("cube", Kind::Cube), ("mix", Kind::Mix)])?;
            let parallel = if p.keyword("parallel") { extents(p, 'g')? } else { Vec::new() };
            templates.add(&name, prog.templates.len());
            number = 0;
            prog.templates.push(Template { name, kind, slots: Vec::new(), parallel, phases: Vec::new() });
        } else if p.keyword("step") {
            let at = p.at;
            if p.number::<usize>("step number")? != prog.steps.len() {
                return p
                    .error_at(at, format!("steps are numbered in order; this is step {}", prog.steps.len()));
            }
            prog.steps.push(Step::default());
        } else if p.keyword("run") {
            let u = unit(p, &templates, &args)?;
            match prog.steps.last_mut() {
                Some(s) => {
                    while p.keyword("cores") {
                        let (first, cores) = (s.units.len() as u32, p.number("number of cores")?);
                        let units = if p.keyword("units") { p.number("number of units")? } else { 1 };
                        s.limits.push(CoreLimit { first, units, cores });
                    }
                    s.units.push(u);
                }
                None => return p.error("`run` outside a step"),
            }
        } else {
            let template = prog.templates.len().wrapping_sub(1) as u32;
            let Some(t) = prog.templates.last_mut() else { return p.expected("a declaration") };
            if in_template(p, t)? {
                p.end()?;
                seen(Spot { at: (template, number), line: i + 1, comment: p.comment });
                number += 1;
            }
        }
        p.end()?;
    }
    match program {
        Some(p) if has_target => Ok(p),
        found => {
            let missing = if found.is_some() { "target" } else { "program" };
            let message = format!("the text ends without `{missing}`");
            Err(AsmError { line: last + 1, column: 1, message })
        }
    }
}

/// A line of a template; whether it is an instruction.
fn in_template(p: &mut Cursor<'_>, t: &mut Template) -> Result<bool> {
    if p.keyword("slot") {
        p.take("$")?;
        let at = p.at;
        if p.number::<usize>("slot number")? != t.slots.len() {
            return p.error_at(at, format!("slots are numbered in order; this is ${}", t.slots.len()));
        }
        let name = p.name()?;
        p.take(":")?;
        let dtype = p.dtype()?;
        t.slots.push(Slot { name, dtype, write: p.keyword("write") });
        return Ok(false);
    }
    if p.keyword("phase") {
        let at = p.at;
        if p.number::<usize>("phase number")? != t.phases.len() + 1 {
            return p
                .error_at(at, format!("phases are numbered in order; this is phase {}", t.phases.len() + 1));
        }
        let seq = if p.keyword("seq") { extents(p, 's')? } else { Vec::new() };
        t.phases.push(Phase { seq, rotate: p.keyword("rotate"), sections: Vec::new() });
        return Ok(false);
    }
    let parallel = t.parallel.len();
    let Some(phase) = t.phases.last_mut() else { return p.expected("`slot` or `phase`") };
    if let Some(place) = place(p)? {
        phase.sections.push(Section { place, code: Code::default() });
        return Ok(false);
    }
    let Some(section) = phase.sections.last_mut() else {
        return p.expected("`init(N)`, `body` or `finish(N)`");
    };
    if p.eat(".words") {
        while !p.is_end() {
            let at = p.at;
            let word = p.word();
            match word.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok()) {
                Some(w) => section.code.push_word(w),
                None => return p.error_at(at, "expected a word: 0x and hexadecimal digits"),
            }
        }
        return Ok(true);
    }
    let at = p.at;
    let i = inst(p, parallel)?;
    section.code.push(&i).map(|()| true).or_else(|e| p.error_at(at, e.to_string()))
}
