//! Dim expressions and conditions.

use super::ParseError;
use super::lex::Tok;
use super::parse::Parser;
use crate::{CheckCond, Dim, DimTable, Graph};

/// Deepest nesting of parentheses and functions.
const MAX_NESTING: u32 = 64;

impl Parser<'_> {
    pub(super) fn dim(&mut self) -> Result<Dim, ParseError> {
        let start = self.start();
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(self.error(format!("dims nest deeper than {MAX_NESTING}")));
        }
        let negative = self.eat("-");
        let mut sum = self.product()?;
        if negative {
            sum = self.graph.dims.neg(sum);
        }
        loop {
            let op = if self.eat("+") {
                DimTable::add
            } else if self.eat("-") {
                DimTable::sub
            } else {
                break;
            };
            let b = self.product()?;
            sum = op(&mut self.graph.dims, sum, b);
        }
        self.nesting -= 1;
        if self.graph.dims.overflows(sum) {
            return Err(ParseError::new(start..self.end(), "this dim overflows or is too large"));
        }
        Ok(sum)
    }
    fn product(&mut self) -> Result<Dim, ParseError> {
        let mut p = self.factor()?;
        loop {
            let op = if self.eat("*") {
                DimTable::mul
            } else if self.eat("%") {
                DimTable::rem
            } else {
                break;
            };
            let b = self.factor()?;
            p = op(&mut self.graph.dims, p, b);
        }
        Ok(p)
    }
    fn factor(&mut self) -> Result<Dim, ParseError> {
        if self.eat("(") {
            let d = self.dim()?;
            self.expect(")")?;
            return Ok(d);
        }
        match self.peek() {
            Tok::Number => {
                let n = self.integer("an integer")?;
                Ok(self.graph.dims.constant(n))
            }
            Tok::Str => {
                let name = self.string()?;
                Ok(self.graph.dims.symbol(&name))
            }
            Tok::Word => {
                let (span, name) = (self.span(), self.text());
                self.bump();
                if self.text() != "(" {
                    return Ok(self.graph.dims.symbol(name));
                }
                let op: fn(&mut DimTable, Dim, Dim) -> Option<Dim> = match name {
                    "floordiv" => |t, a, b| Some(t.floor_div(a, b)),
                    "ceildiv" => |t, a, b| Some(t.ceil_div(a, b)),
                    "mod" => |t, a, b| Some(t.rem(a, b)),
                    "min" => |t, a, b| Some(t.min(a, b)),
                    "max" => |t, a, b| Some(t.max(a, b)),
                    "broadcast" => DimTable::broadcast,
                    "eq" => |t, a, b| Some(t.eq(a, b)),
                    "lt" => |t, a, b| Some(t.lt(a, b)),
                    _ => {
                        let known = "floordiv, ceildiv, mod, min, max, broadcast, eq, lt";
                        return Err(ParseError::new(span, format!("there is no function `{name}` of dims"))
                            .help(format!("the functions are {known}")));
                    }
                };
                self.expect("(")?;
                let a = self.dim()?;
                self.expect(",")?;
                let b = self.dim()?;
                self.expect(")")?;
                op(&mut self.graph.dims, a, b)
                    .ok_or_else(|| ParseError::new(span.start..self.end(), "these extents do not broadcast"))
            }
            _ => Err(self.expected("a dim")),
        }
    }
    /// `[a, b]`.
    pub(super) fn dim_list(&mut self) -> Result<Vec<Dim>, ParseError> {
        self.list("[", "]", Self::dim)
    }

    /// `a == b`, `a <= b`, `a ~ b`, `a in (1, b)`.
    pub(super) fn condition(&mut self) -> Result<CheckCond, ParseError> {
        let a = self.dim()?;
        self.relation(a)
    }
    fn relation(&mut self, a: Dim) -> Result<CheckCond, ParseError> {
        let op = self.text();
        if !["==", "<=", "<", ">=", ">", "~", "in"].contains(&op) {
            return Err(self.expected("`==`, `<=`, `<`, `>=`, `>`, `~` or `in`"));
        }
        self.bump();
        if op == "in" {
            self.expect("(")?;
            self.expect("1")?;
            self.expect(",")?;
            let b = self.dim()?;
            self.expect(")")?;
            return Ok(CheckCond::EqualOrOne(a, b));
        }
        let b = self.dim()?;
        let t = &mut self.graph.dims;
        Ok(match op {
            "==" => CheckCond::Equal(a, b),
            "<=" => CheckCond::AtMost(a, b),
            ">=" => CheckCond::AtMost(b, a),
            "<" => CheckCond::AtMost(t.add(a, Dim::ONE), b),
            ">" => CheckCond::AtMost(t.add(b, Dim::ONE), a),
            _ => CheckCond::Broadcast(a, b),
        })
    }
}

impl DimTable {
    /// Reads a condition on the table's symbols: `s == t` (or `=`), `s <= 4096`, `s >= 1`, `s % 64 == 0`, `s in (1, t)`; either
    /// side is a dim as [`DimTable::display`] writes it.
    ///
    /// # Errors
    /// Text that is no condition, or a symbol that the table does not have.
    pub fn parse_condition(&mut self, source: &str) -> Result<CheckCond, ParseError> {
        // `s%4` would be a value's name.
        let spaced;
        let source = if source.contains('"') {
            source
        } else {
            spaced = source.replace('%', " % ");
            spaced.as_str()
        };
        let graph = Graph { dims: self.clone(), ..Graph::default() };
        let mut p = Parser::over(source, graph)?;
        let a = p.dim()?;
        let cond = if p.eat("=") { CheckCond::Equal(a, p.dim()?) } else { p.relation(a)? };
        p.finish()?;
        let known = self.symbols().count();
        if let Some((_, name)) = p.graph.dims.symbols().nth(known) {
            let names: Vec<&str> = self.symbols().map(|(_, n)| n).collect();
            let names = if names.is_empty() { "none".into() } else { names.join(", ") };
            let message = format!("there is no symbol `{name}`; the symbols are: {names}");
            return Err(ParseError::new(0..source.len(), message));
        }
        *self = p.graph.dims;
        Ok(cond)
    }
}
