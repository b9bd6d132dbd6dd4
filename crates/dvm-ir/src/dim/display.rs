//! Dims as text. Terms and factors are sorted by their text, so that equal dims of different tables print alike.

use std::fmt;

use super::poly::Term;
use super::{Atom, Dim, DimTable};

/// Longest text of a dim, in bytes; the rest of a longer one is left out. Shared parts print once per use, so that a small
/// table can hold dims of any length.
const MAX_TEXT: usize = 1 << 16;

impl DimTable {
    /// The dim as text, e.g. `2*s + 1`, `floordiv(b, 4)`.
    #[must_use]
    pub fn display(&self, d: Dim) -> DisplayDim<'_> {
        DisplayDim { table: self, dim: d }
    }

    fn text(&self, d: Dim, budget: &mut usize) -> String {
        let mut terms: Vec<(Key, String)> = vec![];
        for t in self.poly(d) {
            if *budget == 0 {
                terms.push((Key { constant: true, negative: false }, "...".into()));
                break;
            }
            let text = self.term_text(t, budget);
            *budget = budget.saturating_sub(text.len() + 3);
            terms.push((Key { constant: t.factors.is_empty(), negative: t.coeff < 0 }, text));
        }
        // A constant stands last, unless it saves a leading minus.
        terms.sort_by(|(k, a), (l, b)| (k.negative, k.constant, a).cmp(&(l.negative, l.constant, b)));
        if let Some(i) = terms.iter().position(|(k, _)| k.constant)
            && terms.iter().any(|(k, _)| !k.constant && !k.negative)
        {
            let c = terms.remove(i);
            terms.push(c);
        }
        let mut out = String::new();
        for (i, (k, text)) in terms.iter().enumerate() {
            out += match (i, k.negative) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            };
            out += text;
        }
        if out.is_empty() { "0".into() } else { out }
    }
    /// A term without its sign.
    fn term_text(&self, t: &Term, budget: &mut usize) -> String {
        let mut factors: Vec<String> =
            t.factors.iter().map(|f| self.atom_text(self.atoms[f.0 as usize], budget)).collect();
        factors.sort();
        let c = t.coeff.unsigned_abs();
        if c != 1 || factors.is_empty() {
            factors.insert(0, c.to_string());
        }
        factors.join("*")
    }
    fn atom_text(&self, atom: Atom, budget: &mut usize) -> String {
        let (name, ordered) = match atom {
            Atom::Sym(s) => return symbol_text(self.symbol_name(s)),
            Atom::Overflow => return "overflow()".into(),
            Atom::FloorDiv(..) => ("floordiv", true),
            Atom::Min(..) => ("min", false),
            Atom::Max(..) => ("max", false),
            Atom::Broadcast(..) => ("broadcast", false),
            Atom::Eq(..) => ("eq", true),
            Atom::Lt(..) => ("lt", true),
        };
        let (a, b) = atom.operands().expect("all others are binary");
        let mut operands = [self.text(a, budget), self.text(b, budget)];
        let number = |s: &str| s.parse::<i64>().is_ok();
        if !ordered {
            operands.sort_by(|a, b| (number(a), a).cmp(&(number(b), b)));
        }
        format!("{name}({}, {})", operands[0], operands[1])
    }
}

struct Key {
    constant: bool,
    negative: bool,
}

/// See [`DimTable::display`].
#[derive(Clone, Copy)]
pub struct DisplayDim<'a> {
    table: &'a DimTable,
    dim: Dim,
}

impl fmt::Display for DisplayDim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.table.polys.get_index(self.dim.index()) {
            Some(_) => f.write_str(&self.table.text(self.dim, &mut { MAX_TEXT })),
            None => write!(f, "{:?}", self.dim),
        }
    }
}

/// Plain identifiers print bare, everything else quoted.
pub(crate) fn symbol_text(name: &str) -> String {
    let plain = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        && !name.contains("..");
    let reserved = ["in", "inf", "nan"].contains(&name);
    if plain && !reserved { name.to_string() } else { format!("{name:?}") }
}
