//! What the instructions of a program are called in reports.

use dvm_bc::bundle::Note;
use dvm_bc::{InstAt, Program, disasm_inst};

/// Names of templates and instructions, from a program and what is known of its source.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    program: &'a Program,
    notes: Vec<Vec<&'a str>>,
    ops: &'a [Vec<String>],
}

impl<'a> Labels<'a> {
    /// `notes` are a bundle's for program number `index`; `ops` the graph's ops by template, where a graph is at hand.
    #[must_use]
    pub fn new(program: &'a Program, index: u32, notes: &'a [Note], ops: &'a [Vec<String>]) -> Labels<'a> {
        let mut by: Vec<Vec<&str>> = vec![vec![]; program.templates.len()];
        for n in notes.iter().filter(|n| n.program == index) {
            // Numbers come from a file: only those in order are kept.
            if let Some(list) = by.get_mut(n.template as usize)
                && (n.instruction as usize) < list.len() + 1024
            {
                list.resize((n.instruction as usize + 1).max(list.len()), "");
                list[n.instruction as usize] = &n.text;
            }
        }
        Labels { program, notes: by, ops }
    }
    /// The instruction as it stands in a listing.
    #[must_use]
    pub fn text(&self, at: InstAt) -> String {
        disasm_inst(self.program, at).unwrap_or_else(|| at.mnemonic.to_owned())
    }
    /// What it is for: the value of the kernel that it computes.
    #[must_use]
    pub fn note(&self, at: InstAt) -> &'a str {
        let list = self.notes.get(at.template as usize);
        list.and_then(|l| l.get(at.number as usize)).copied().unwrap_or_default()
    }
    /// The kernel.
    #[must_use]
    pub fn kernel(&self, template: u32) -> &'a str {
        self.program.templates.get(template as usize).map_or("", |t| t.name.as_str())
    }
    /// The graph's ops that the kernel computes.
    #[must_use]
    pub fn ops(&self, template: u32) -> String {
        self.ops.get(template as usize).map_or_else(String::new, |o| o.join(", "))
    }
}

/// A string as JSON.
pub(super) fn quoted(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Also what could end a script in a page.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{0}'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
