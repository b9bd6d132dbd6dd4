//! A recursive-descent parser. It builds the graph as it reads, so every rule of an op is reported at the line it breaks.

use std::collections::HashMap;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::constants::Number;
use super::control::{Target, is_control};
use super::lex::{Tok, Token, lex, unquote};
use crate::{Answer, Attr, AttrKind, DType, Dim, Graph, Op, TensorType, ValueId};

/// The text is not a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

impl ParseError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> ParseError {
        ParseError { span, message: message.into(), help: None }
    }
    pub(super) fn help(self, help: impl Into<String>) -> ParseError {
        ParseError { help: Some(help.into()), ..self }
    }
    /// The bytes of the source that are wrong.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
    /// The message under the line it is about. `path` names the source.
    #[must_use]
    pub fn render(&self, path: &str, source: &str) -> String {
        let floor =
            |i: usize| (0..=i.min(source.len())).rev().find(|&i| source.is_char_boundary(i)).unwrap_or(0);
        let span = floor(self.span.start)..floor(self.span.end);
        let snippet = Snippet::source(source).path(path).annotation(AnnotationKind::Primary.span(span));
        let mut group = Level::ERROR.primary_title(&self.message).element(snippet);
        if let Some(h) = &self.help {
            group = group.element(Level::HELP.message(h));
        }
        Renderer::plain().render(&[group])
    }
}

impl Graph {
    /// Reads the textual form.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place; [`ParseError::render`] shows it.
    pub fn from_text(source: &str) -> Result<Graph, ParseError> {
        let mut p = Parser::over(source, Graph::new(""))?;
        p.file()?;
        Ok(p.graph)
    }
}

pub(super) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    pub(super) nesting: u32,
    pub(super) expanded: usize,
    pub(super) graph: Graph,
    pub(super) values: HashMap<String, ValueId>,
    /// Nesting of bodies, and the dims they began with.
    pub(super) depth: usize,
    pub(super) inherited: usize,
}

type Parsed<T> = Result<T, ParseError>;

impl<'s> Parser<'s> {
    /// A parser that adds to a graph.
    pub(super) fn over(source: &'s str, graph: Graph) -> Parsed<Parser<'s>> {
        Ok(Parser {
            source,
            tokens: lex(source)?,
            at: 0,
            nesting: 0,
            expanded: 0,
            graph,
            values: HashMap::new(),
            depth: 0,
            inherited: 0,
        })
    }

    // Tokens.

    pub(super) fn peek(&self) -> Tok {
        self.tokens[self.at].tok
    }
    pub(super) fn span(&self) -> Range<usize> {
        self.tokens[self.at].span.clone()
    }
    pub(super) fn text(&self) -> &'s str {
        &self.source[self.span()]
    }
    pub(super) fn start(&self) -> usize {
        self.span().start
    }
    /// End of the token before.
    pub(super) fn end(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |i| self.tokens[i].span.end)
    }
    pub(super) fn bump(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let hit = self.text() == text && !matches!(self.peek(), Tok::Str | Tok::Value);
        if hit {
            self.bump();
        }
        hit
    }
    pub(super) fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.eat(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.span(), message)
    }
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let got =
            if self.peek() == Tok::End { "the end of the text".into() } else { format!("`{}`", self.text()) };
        self.error(format!("expected {what}, got {got}"))
    }
    pub(super) fn string(&mut self) -> Parsed<String> {
        if self.peek() != Tok::Str {
            return Err(self.expected("a string"));
        }
        let s = unquote(self.text(), &self.span())?;
        self.bump();
        Ok(s)
    }
    fn word(&mut self, what: &str) -> Parsed<&'s str> {
        if self.peek() != Tok::Word {
            return Err(self.expected(what));
        }
        let w = self.text();
        self.bump();
        Ok(w)
    }
    pub(super) fn integer(&mut self, what: &str) -> Parsed<i64> {
        let start = self.start();
        let negative = self.eat("-");
        if self.peek() != Tok::Number {
            return Err(self.expected(what));
        }
        let text = format!("{}{}", if negative { "-" } else { "" }, self.text());
        self.bump();
        text.parse().map_err(|_| {
            ParseError::new(start..self.end(), format!("expected {what} of 64 bits, got `{text}`"))
        })
    }
    pub(super) fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut out = vec![];
        while !self.eat(close) {
            if !out.is_empty() {
                self.expect(",")?;
                if self.eat(close) {
                    break;
                }
            }
            out.push(item(self)?);
        }
        Ok(out)
    }

    // Structure.

    fn file(&mut self) -> Parsed<()> {
        self.symbols()?;
        self.expect("graph")?;
        self.graph.name = match self.peek() {
            Tok::Str => self.string()?,
            Tok::Word => self.word("a name")?.to_string(),
            _ => String::new(),
        };
        self.rest()?;
        self.finish()
    }
    /// Nothing follows.
    pub(super) fn finish(&self) -> Parsed<()> {
        if self.peek() == Tok::End { Ok(()) } else { Err(self.expected("the end of the text")) }
    }
    pub(super) fn symbols(&mut self) -> Parsed<()> {
        while self.text() == "symbol" {
            self.symbol()?;
        }
        Ok(())
    }
    /// Inputs, outputs and statements.
    pub(super) fn rest(&mut self) -> Parsed<()> {
        self.list("(", ")", Self::parameter)?;
        self.expect("->")?;
        let outputs = self.list("(", ")", Self::result)?;
        self.expect("{")?;
        while !self.eat("}") {
            self.statement()?;
        }
        for (key, span, name) in outputs {
            let Some(&v) = self.values.get(&key) else {
                return Err(ParseError::new(span, format!("`{key}` is not defined in the graph")));
            };
            if self.graph.outputs.iter().any(|o| o.name == name) {
                return Err(ParseError::new(span, format!("output name {name:?} is used twice")));
            }
            self.graph.output(name, v);
        }
        Ok(())
    }

    /// `symbol n in -5..=9`, a bound left out is none.
    fn symbol(&mut self) -> Parsed<()> {
        self.bump();
        let name = if self.peek() == Tok::Str { self.string()? } else { self.word("a symbol")?.to_string() };
        self.expect("in")?;
        let span = self.span();
        let lo = if self.text() == "..=" { None } else { Some(self.integer("a bound")?) };
        self.expect("..=")?;
        let has_hi = self.peek() == Tok::Number || self.text() == "-";
        let hi = if has_hi { Some(self.integer("a bound")?) } else { None };
        if lo.zip(hi).is_some_and(|(lo, hi)| lo > hi) {
            return Err(ParseError::new(span.start..self.end(), "this range is empty"));
        }
        let known = self.graph.dims.find_symbol(&name).is_some();
        let value = lo.is_none_or(|lo| lo < 0);
        let d = if value { self.graph.dims.value_symbol(&name) } else { self.graph.dims.symbol(&name) };
        match self.graph.dims.as_symbol(d) {
            Some(s) if !known => {
                self.graph.dims.assume_range(s, lo.unwrap_or(i64::MIN + 1), hi.unwrap_or(i64::MAX));
                Ok(())
            }
            _ => Err(ParseError::new(span.start..self.end(), format!("symbol `{name}` is declared twice"))),
        }
    }

    /// `%x "input name": f32[b, 4] = [n0, n1]`.
    fn parameter(&mut self) -> Parsed<()> {
        let (key, span, value_name) = self.value_name()?;
        let name = self.interface_name(&value_name, &key)?;
        self.expect(":")?;
        let ty = self.ty()?;
        if self.graph.inputs.iter().any(|i| i.name == name) {
            return Err(ParseError::new(span, format!("input name {name:?} is used twice")));
        }
        let v = self.graph.input(name, ty.dtype, &ty.shape);
        self.graph.values[v.index()].name = value_name;
        self.define(key, span, v)?;
        if self.text() == "=" {
            self.bump();
            let span = self.span();
            let names = self.list("[", "]", Self::element)?;
            let extents: Option<Vec<i64>> = ty.shape.iter().map(|&d| self.graph.dims.as_const(d)).collect();
            let n = extents.and_then(|e| e.iter().try_fold(1i64, |n, &d| n.checked_mul(d)));
            if !ty.dtype.is_int() || n != i64::try_from(names.len()).ok() {
                let message =
                    format!("{} elements named for {}", names.len(), self.graph.dims.display_type(&ty));
                return Err(ParseError::new(span.start..self.end(), message));
            }
            if let Some(input) = self.graph.inputs.last_mut() {
                input.elements = Some(names);
            }
        }
        Ok(())
    }
    /// A plain new name is a symbol that may be negative; anything else a dim.
    pub(super) fn element(&mut self) -> Parsed<Dim> {
        let plain =
            matches!(self.tokens.get(self.at + 1).map(|t| &self.source[t.span.clone()]), Some("," | "]"));
        if plain && matches!(self.peek(), Tok::Word | Tok::Str) {
            let name =
                if self.peek() == Tok::Str { self.string()? } else { self.word("a symbol")?.to_string() };
            return Ok(self.graph.dims.value_symbol(&name));
        }
        self.dim()
    }
    /// `%y "output name"`.
    fn result(&mut self) -> Parsed<(String, Range<usize>, String)> {
        let (key, span, value_name) = self.value_name()?;
        let name = self.interface_name(&value_name, &key)?;
        Ok((key, span, name))
    }
    fn interface_name(&mut self, value_name: &Option<String>, key: &str) -> Parsed<String> {
        match self.peek() {
            Tok::Str => self.string(),
            _ => Ok(value_name.clone().unwrap_or_else(|| key.trim_start_matches('%').to_string())),
        }
    }

    fn statement(&mut self) -> Parsed<()> {
        if self.eat("const") {
            return self.constant();
        }
        if self.text() == "assume" && self.peek() == Tok::Word {
            let start = self.start();
            self.bump();
            let cond = self.condition()?;
            let end = self.end();
            let what = if self.peek() == Tok::Str { self.string()? } else { String::new() };
            return self
                .graph
                .assume(cond, what)
                .map_err(|_| ParseError::new(start..end, "this never holds, given what is assumed before"));
        }
        if self.text() == "read" && self.peek() == Tok::Word {
            return self.control(vec![]);
        }
        let mut targets = vec![];
        loop {
            if self.peek() != Tok::Value {
                return Err(self.expected("`const`, `assume`, `read`, a value or `}`"));
            }
            let (key, span, name) = self.value_name()?;
            let given = if self.eat(":") { Some((self.start(), self.ty()?, self.end())) } else { None };
            targets.push((key, span, name, given));
            if !self.eat(",") {
                break;
            }
        }
        self.expect("=")?;
        if targets.len() != 1 || (is_control(self.text()) && self.peek() == Tok::Word) {
            if !is_control(self.text()) {
                return Err(self.expected("`if` or `loop`, which have several results"));
            }
            let target = |(key, span, name, given): (_, _, _, Option<(_, TensorType, _)>)| Target {
                key,
                span,
                name,
                ty: given.map(|g| g.1),
            };
            return self.control(targets.into_iter().map(target).collect());
        }
        let Some((key, span, name, given)) = targets.pop() else { return Ok(()) };
        let start = self.start();
        let mnemonic = self.word("an op")?;
        let mnemonic_span = start..self.end();
        let mut operands = vec![];
        while self.peek() == Tok::Value {
            operands.push(self.operand()?);
            if !self.eat(",") {
                break;
            }
        }
        let op = self.op(mnemonic, mnemonic_span)?;
        let end = self.end();
        let pushed = if self.eat("@") {
            let node = self.string()?;
            self.graph.push_named(op, &operands, node)
        } else {
            self.graph.push(op, &operands)
        };
        let v = pushed.map_err(|e| ParseError::new(start..end, e.to_string()))?;
        if let Some((from, ty, to)) = given {
            self.check_type(v, ty, from..to)?;
        }
        self.graph.values[v.index()].name = name;
        self.define(key, span, v)
    }
    /// A stated type must be the inferred one; its dims may be written in another form.
    fn check_type(&mut self, v: ValueId, ty: TensorType, span: Range<usize>) -> Parsed<()> {
        let inferred = self.graph.value(v).ty.clone();
        let dims = &mut self.graph.dims;
        let same = ty.dtype == inferred.dtype
            && ty.shape.len() == inferred.shape.len()
            && ty.shape.iter().zip(&inferred.shape).all(|(&a, &b)| dims.is_equal(a, b) == Answer::Proven);
        if !same {
            let inferred = dims.display_type(&inferred);
            return Err(ParseError::new(span, format!("the result of this op is {inferred}")));
        }
        self.graph.values[v.index()].ty = ty;
        Ok(())
    }

    /// `{name = value, ..}` and the op they make.
    fn op(&mut self, mnemonic: &str, span: Range<usize>) -> Parsed<Op> {
        let mut places: Vec<(&str, Range<usize>, usize)> = vec![];
        if self.eat("{") {
            while !self.eat("}") {
                if !places.is_empty() {
                    self.expect(",")?;
                }
                let at = self.span();
                let name = self.word("an attribute")?;
                self.expect("=")?;
                if places.iter().any(|p| p.0 == name) {
                    return Err(ParseError::new(at, format!("attribute `{name}` is given twice")));
                }
                places.push((name, at, self.at));
                self.skip_value()?;
            }
        }
        let end = self.at;
        let mut failed = None;
        let mut used = vec![];
        let op = Op::from_parts(mnemonic, |name, kind| {
            used.push(name);
            match places.iter().find(|p| p.0 == name) {
                None if kind == AttrKind::Bool => Some(Attr::Bool(false)),
                None => None,
                Some(&(_, _, at)) => {
                    self.at = at;
                    let value = self.attr(kind).map_err(|e| failed = Some(e)).ok()?;
                    if !matches!(self.text(), "," | "}") {
                        failed = Some(self.expected("`,` or `}`"));
                    }
                    Some(value)
                }
            }
        });
        self.at = end;
        if let Some(e) = failed {
            return Err(e);
        }
        let at = |name| places.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        match op {
            None => Err(ParseError::new(span, format!("there is no op `{mnemonic}`"))),
            Some(Err(bad)) => Err(match at(bad.name) {
                Some(at) => ParseError::new(at, format!("`{}` cannot have this value", bad.name)),
                None => ParseError::new(span, format!("`{mnemonic}` needs `{} = ` {}", bad.name, bad.kind)),
            }),
            Some(Ok(op)) => match places.iter().find(|p| !used.contains(&p.0)) {
                Some((name, at, _)) => {
                    let known = if used.is_empty() { "it has none".into() } else { used.join(", ") };
                    Err(ParseError::new(at.clone(), format!("`{mnemonic}` has no attribute `{name}`"))
                        .help(format!("its attributes: {known}")))
                }
                None => Ok(op),
            },
        }
    }
    /// Steps over an attribute's value, whatever its kind.
    fn skip_value(&mut self) -> Parsed<()> {
        let mut depth = 0u32;
        loop {
            match self.text() {
                _ if self.peek() == Tok::Str => {}
                "," | "}" if depth == 0 => return Ok(()),
                "(" | "[" => depth += 1,
                ")" | "]" if depth > 0 => depth -= 1,
                ")" | "]" | "{" | "}" => return Err(self.expected("a value")),
                _ if self.peek() == Tok::End => return Err(self.expected("`}`")),
                _ => {}
            }
            self.bump();
        }
    }
    fn attr(&mut self, kind: AttrKind) -> Parsed<Attr> {
        Ok(match kind {
            AttrKind::Bool => match self.word("true or false")? {
                "true" => Attr::Bool(true),
                "false" => Attr::Bool(false),
                _ => {
                    return Err(ParseError::new(
                        self.tokens[self.at - 1].span.clone(),
                        "expected true or false",
                    ));
                }
            },
            AttrKind::Int => Attr::Int(self.integer("an integer")?),
            AttrKind::Float => Attr::Float(self.number()?.as_f64()),
            AttrKind::Scalar => match self.number()? {
                Number::Float(x, _) => Attr::Float(x),
                Number::Int(i) => match i64::try_from(i) {
                    Ok(i) => Attr::Int(i),
                    Err(_) => {
                        return Err(ParseError::new(self.tokens[self.at - 1].span.clone(), "out of range"));
                    }
                },
            },
            AttrKind::Ints => Attr::Ints(self.list("[", "]", |p| p.integer("an integer"))?),
            AttrKind::Dim => Attr::Dim(self.dim()?),
            AttrKind::Dims => Attr::Dims(self.dim_list()?),
            AttrKind::Word => Attr::Word(self.word("a name")?.to_string()),
        })
    }

    // Values and types.

    /// Key (as written, canonical), span and name of a value.
    pub(super) fn value_name(&mut self) -> Parsed<(String, Range<usize>, Option<String>)> {
        if self.peek() != Tok::Value {
            return Err(self.expected("a value"));
        }
        let (span, text) = (self.span(), self.text());
        let name = match text.strip_prefix('%') {
            Some(q) if q.starts_with('"') => Some(unquote(q, &span)?),
            Some(w) if super::print::is_unnamed(w) => None,
            w => w.map(String::from),
        };
        self.bump();
        let key = name.as_ref().map_or_else(|| text.to_string(), |n| format!("%{n}"));
        Ok((key, span, name))
    }
    pub(super) fn operand(&mut self) -> Parsed<ValueId> {
        let (key, span, _) = self.value_name()?;
        let undefined = || ParseError::new(span, format!("`{key}` is not defined before"));
        self.values.get(&key).copied().ok_or_else(undefined)
    }
    pub(super) fn define(&mut self, key: String, span: Range<usize>, v: ValueId) -> Parsed<()> {
        match self.values.insert(key, v) {
            None => Ok(()),
            Some(_) => Err(ParseError::new(span, "this name is defined twice")),
        }
    }
    pub(super) fn ty(&mut self) -> Parsed<TensorType> {
        let (span, name) = (self.span(), self.word("a dtype")?);
        let Some(dtype) = DType::from_name(name) else {
            let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            return Err(ParseError::new(span, format!("there is no dtype `{name}`"))
                .help(format!("the dtypes are {}", known.join(", "))));
        };
        let shape = if self.text() == "[" { self.dim_list()? } else { vec![] };
        let shape_span = span.start..self.end();
        if shape.len() > crate::MAX_RANK {
            return Err(ParseError::new(shape_span, format!("more than {} axes", crate::MAX_RANK)));
        }
        Ok(TensorType { dtype, shape })
    }
}
