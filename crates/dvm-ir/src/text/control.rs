//! Controls and their bodies.

use std::ops::Range;

use super::ParseError;
use super::lex::Tok;
use super::parse::Parser;
use super::print::BODY_WORDS;
use crate::{ControlKind, Graph, HostOp, MAX_BODY_DEPTH, TensorType};

/// Most dims that bodies start with, all bodies together: each begins with those of the graph around it.
const MAX_INHERITED: usize = 1 << 20;

/// A result: how it is written, where, its name, its type.
pub(super) struct Target {
    pub(super) key: String,
    pub(super) span: Range<usize>,
    pub(super) name: Option<String>,
    pub(super) ty: Option<TensorType>,
}

pub(super) fn is_control(word: &str) -> bool {
    matches!(word, "if" | "loop" | "nonzero" | "read") || HostOp::is_mnemonic(word)
}

impl Parser<'_> {
    /// What follows the `=` of a statement whose op is a control.
    pub(super) fn control(&mut self, targets: Vec<Target>) -> Result<(), ParseError> {
        let start = self.start();
        let mnemonic = self.text();
        self.bump();
        let mut operands = vec![];
        while self.peek() == Tok::Value {
            operands.push(self.operand()?);
            if !self.eat(",") {
                break;
            }
        }
        let kind = match mnemonic {
            "if" => ControlKind::If,
            "nonzero" => ControlKind::NonZero,
            "read" => {
                self.expect("=")?;
                ControlKind::Read { elements: self.list("[", "]", Self::element)? }
            }
            "loop" => self.loop_kind(targets.len())?,
            _ => self.host_kind(mnemonic)?,
        };
        let end = self.end();
        let mut bodies = vec![];
        for i in 0..kind.bodies() {
            self.expect(BODY_WORDS[usize::from(kind.bodies() == 1) * 2 + i])?;
            bodies.push(self.body()?);
        }
        let name = if self.eat("@") { Some(self.string()?) } else { None };
        let mut types = vec![];
        for t in &targets {
            let ty = t.ty.clone();
            types.push(ty.ok_or_else(|| {
                ParseError::new(t.span.clone(), format!("a result of `{mnemonic}` needs its type"))
            })?);
        }
        let results = self.graph.push_control(kind, &operands, bodies, &types, name);
        if let Some(broken) = self.graph.control_violation(self.graph.controls.len() - 1) {
            return Err(ParseError::new(start..end, broken));
        }
        for (t, v) in targets.into_iter().zip(results) {
            self.graph.values[v.index()].name = t.name;
            self.define(t.key, t.span, v)?;
        }
        Ok(())
    }

    /// `{axis = 1, largest = 1}`, or nothing.
    fn host_kind(&mut self, mnemonic: &str) -> Result<ControlKind, ParseError> {
        let place = self.span();
        let mut attrs = vec![];
        if self.eat("{") {
            while !self.eat("}") {
                let name = self.text().to_string();
                self.bump();
                self.expect("=")?;
                attrs.push((name, self.integer("a number")?));
                if self.text() != "}" {
                    self.expect(",")?;
                }
            }
        }
        let op = HostOp::from_parts(mnemonic, &attrs);
        op.map(ControlKind::Host)
            .ok_or_else(|| ParseError::new(place, format!("these are not the attributes of `{mnemonic}`")))
    }

    /// `{carried = 1, scanned = 1, backward = [0]}`.
    fn loop_kind(&mut self, results: usize) -> Result<ControlKind, ParseError> {
        let (mut carried, mut scanned, mut backward) = (0, 0, vec![]);
        let place = self.span();
        self.expect("{")?;
        while !self.eat("}") {
            let name = self.text();
            self.bump();
            self.expect("=")?;
            let count = |p: &mut Self| {
                let at = p.span();
                let n = p.integer("a number")?;
                usize::try_from(n).map_err(|_| ParseError::new(at, "this is not a number of values"))
            };
            match name {
                "carried" => carried = count(self)?,
                "scanned" => scanned = count(self)?,
                "backward" => backward = self.list("[", "]", count)?,
                _ => return Err(ParseError::new(place, "a loop has `carried`, `scanned` and `backward`")),
            }
            if self.text() != "}" {
                self.expect(",")?;
            }
        }
        let walked = results.saturating_sub(carried).saturating_add(scanned);
        if backward.iter().any(|&i| i >= walked) || walked > self.graph.values.len() + results {
            return Err(ParseError::new(place, format!("the loop walks {walked} tensors")));
        }
        let backward = (0..walked).map(|i| backward.contains(&i)).collect();
        Ok(ControlKind::Loop { carried, scanned, backward })
    }

    fn body(&mut self) -> Result<Graph, ParseError> {
        self.depth += 1;
        self.inherited += self.graph.dims.len();
        if self.depth > MAX_BODY_DEPTH {
            return Err(self.error(format!("bodies nest deeper than {MAX_BODY_DEPTH}")));
        }
        if self.inherited > MAX_INHERITED {
            return Err(self.error("too many bodies with too many dims"));
        }
        let inner = Graph { dims: self.graph.dims.clone(), ..Graph::new("") };
        let outer = std::mem::replace(&mut self.graph, inner);
        let values = std::mem::take(&mut self.values);
        let parsed = self.symbols().and_then(|()| self.rest());
        let body = std::mem::replace(&mut self.graph, outer);
        self.values = values;
        self.depth -= 1;
        parsed.map(|()| body)
    }
}
