//! Dim expressions and conditions.

use super::ParseError;
use super::lex::Tok;
use super::parse::Parser;
use crate::{CheckCond, Dim, DimTable};

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
        while self.eat("*") {
            let b = self.factor()?;
            p = self.graph.dims.mul(p, b);
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
