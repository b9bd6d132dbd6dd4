//! Bundles as text: what a bundle takes and gives, then its programs, notes at their instructions.
//!
//! ```text
//! bundle host-ref
//! symbol rows = 3
//! input x: f32[3, 5]
//! output y: f32[3, 5]
//! weight w: f32[5] hash 0x1f00c0de1f00c0de
//! launch 0
//! program ...
//! ```
//!
//! A text that begins with `program` is a [bare](Bundle::is_bare) bundle of it. The bytes of weights have no text. A comment behind an
//! instruction is its note.

use std::fmt::Write;

use super::cursor::{AsmError, Cursor, Result, unescape};
use super::{parse, print};
use crate::bundle::{HostStep, Note, Port, Weight};
use crate::{Bundle, InstAt, Layout, disasm_with};

/// The lines of a text at which its instructions are.
#[derive(Clone, Debug, Default)]
pub struct Lines(Vec<((u32, u32, u32), usize)>);

impl Lines {
    /// The line, from 1, of an instruction of the program with this index.
    #[must_use]
    pub fn line(&self, program: u32, at: InstAt) -> Option<usize> {
        let key = (program, at.template, at.number);
        self.0.binary_search_by_key(&key, |l| l.0).ok().map(|i| self.0[i].1)
    }
}

impl Bundle {
    /// The bundle for review. [`Bundle::from_text`] reads it back, but for the bytes of weights.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if !self.is_bare() {
            header(self, &mut out);
        }
        let mut notes: Vec<&Note> = self.notes.iter().collect();
        notes.sort_by_key(|n| (n.program, n.template, n.instruction));
        for (i, program) in self.programs.iter().enumerate() {
            let note = |at: InstAt| {
                let key = (i as u32, at.template, at.number);
                let found = notes.binary_search_by_key(&key, |n| (n.program, n.template, n.instruction));
                found.ok().map(|i| notes[i].text.clone())
            };
            out.push_str(&disasm_with(program, &note));
        }
        out
    }

    /// Reads a bundle, or one program. The programs are not verified: that is [`Verified::new`](crate::Verified::new)'s work.
    ///
    /// # Errors
    /// The text is neither; says at which line and column.
    pub fn from_text(text: &str) -> std::result::Result<Bundle, AsmError> {
        Bundle::from_text_with_lines(text).map(|(bundle, _)| bundle)
    }

    /// As [`Bundle::from_text`], and where the instructions are in the text.
    ///
    /// # Errors
    /// As [`Bundle::from_text`].
    pub fn from_text_with_lines(text: &str) -> std::result::Result<(Bundle, Lines), AsmError> {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
        let begins = |line: &str| Cursor::new(0, line).peek_word() == "program";
        let starts: Vec<usize> = lines.iter().filter(|(_, l)| begins(l)).map(|(i, _)| *i).collect();
        let first = starts.first().copied().unwrap_or(lines.len());
        let head = head(&lines[..first])?;
        let mut programs = Vec::with_capacity(starts.len());
        let (mut notes, mut found) = (Vec::new(), Lines::default());
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(lines.len());
            let program = i as u32;
            programs.push(parse::program(lines[start..end].iter().copied(), &mut |spot| {
                let (template, instruction) = spot.at;
                found.0.push(((program, template, instruction), spot.line));
                if !spot.comment.is_empty() {
                    let text = unescape(spot.comment).unwrap_or_else(|_| spot.comment.to_owned());
                    notes.push(Note { program, template, instruction, text });
                }
            })?);
        }
        let error = |line: usize, message: String| AsmError { line: line + 1, column: 1, message };
        let bundle = match head {
            Some(head) => Bundle { programs, notes, ..head },
            None => {
                let mut programs = programs.into_iter();
                let program = programs.next().ok_or_else(|| {
                    error(lines.len().saturating_sub(1), "the text ends without `program`".into())
                })?;
                if programs.next().is_some() {
                    let message =
                        "a text of several programs begins with `bundle`, which says what is launched";
                    return Err(error(starts[1], message.into()));
                }
                Bundle { notes, ..Bundle::of(program) }
            }
        };
        bundle.check().map_err(|e| error(0, e.to_string()))?;
        Ok((bundle, found))
    }
}

fn header(b: &Bundle, out: &mut String) {
    let named = |word: &str, name: &str, out: &mut String| {
        let _ = write!(out, "{word} ");
        print::name(name, out);
    };
    named("bundle", &b.target, out);
    out.push('\n');
    for (name, value) in &b.symbols {
        named("symbol", name, out);
        let _ = writeln!(out, " = {value}");
    }
    for (word, ports) in [("input", &b.inputs), ("output", &b.outputs)] {
        for p in ports {
            named(word, &p.name, out);
            let _ = writeln!(out, ": {}{:?}", p.dtype, p.shape);
        }
    }
    for w in &b.weights {
        named("weight", &w.name, out);
        out.push_str(": ");
        print::sized(w.dtype, w.bytes, out);
        print::layout(w.layout, out);
        let held = if w.data.is_some() { "held" } else { "not held" };
        let _ = writeln!(out, " hash 0x{:016x} ; {held}", w.hash);
    }
    for step in &b.steps {
        let HostStep::Launch(p) = step;
        let _ = writeln!(out, "launch {p}");
    }
}

/// Reads the lines before the first program; `None` where there are none.
fn head(lines: &[(usize, &str)]) -> Result<Option<Bundle>> {
    let mut bundle: Option<Bundle> = None;
    for &(i, line) in lines {
        let mut p = Cursor::new(i + 1, line);
        let p = &mut p;
        if p.is_end() {
            continue;
        }
        let Some(b) = &mut bundle else {
            if !p.keyword("bundle") {
                return p.expected("`program` or `bundle`");
            }
            bundle = Some(Bundle { target: p.name()?, ..Bundle::default() });
            p.end()?;
            continue;
        };
        if p.keyword("symbol") {
            let name = p.name()?;
            p.take("=")?;
            b.symbols.push((name, p.number("value")?));
        } else if p.keyword("input") {
            b.inputs.push(port(p)?);
        } else if p.keyword("output") {
            b.outputs.push(port(p)?);
        } else if p.keyword("weight") {
            b.weights.push(weight(p)?);
        } else if p.keyword("launch") {
            b.steps.push(HostStep::Launch(p.number("number of a program")?));
        } else {
            return p.expected("`symbol`, `input`, `output`, `weight`, `launch` or `program`");
        }
        p.end()?;
    }
    Ok(bundle)
}

fn port(p: &mut Cursor<'_>) -> Result<Port> {
    let name = p.name()?;
    p.take(":")?;
    Ok(Port { name, dtype: p.dtype()?, shape: parse::list(p, |p| p.number("extent"))? })
}

fn weight(p: &mut Cursor<'_>) -> Result<Weight> {
    let name = p.name()?;
    p.take(":")?;
    let (dtype, bytes) = parse::sized(p)?;
    let layout = parse::panels(p)?.unwrap_or(Layout::Plain);
    if !p.keyword("hash") {
        return p.expected("`hash`");
    }
    let at = p.at;
    let word = p.word();
    match word.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok()) {
        Some(hash) => Ok(Weight { name, dtype, layout, bytes, hash, data: None }),
        None => p.error_at(at, "expected 0x and hexadecimal digits"),
    }
}
