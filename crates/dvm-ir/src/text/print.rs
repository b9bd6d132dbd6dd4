//! Printing.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::dim::symbol_text;
use crate::{
    Attr, ConstId, Control, ControlKind, DType, Graph, Item, Scalar, Symbol, Tensor, ValueDef, ValueId,
};

/// Longest constant printed as a list of numbers rather than as bytes.
const LIST: usize = 64;

/// How much to print.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Constants of more elements print as `...`, which is for reading only. `usize::MAX` prints all.
    pub max_constant_elements: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { max_constant_elements: usize::MAX }
    }
}

impl Graph {
    /// The textual form, complete: [`Graph::from_text`] gives an equal graph. Only names of values that other values have
    /// too are lost.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.to_text_with(&TextOptions::default())
    }
    /// The textual form with options.
    #[must_use]
    pub fn to_text_with(&self, options: &TextOptions) -> String {
        let mut p = Printer { graph: self, options, names: HashMap::new(), indent: 1, out: String::new() };
        p.graph();
        p.out
    }
}

/// For reading: constants of more than 8 elements are left out.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text_with(&TextOptions { max_constant_elements: 8 }))
    }
}

/// What begins a body: of a branch taken, of the other, of a loop.
pub(super) const BODY_WORDS: [&str; 3] = ["then", "else", "do"];

/// Whether `%word` stands for a value without a name.
pub(super) fn is_unnamed(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

struct Printer<'a> {
    graph: &'a Graph,
    options: &'a TextOptions,
    names: HashMap<ValueId, String>,
    /// Depth of the statements.
    indent: usize,
    out: String,
}

/// A statement.
enum Line {
    Const(ValueId, ConstId),
    Node(usize),
    Control(usize),
}

macro_rules! put { ($p:expr, $($arg:tt)*) => { { let text = format!($($arg)*); $p.out.push_str(&text); } } }

impl<'a> Printer<'a> {
    fn graph(&mut self) {
        let g = self.graph;
        self.symbols(None);
        let name = if g.name.is_empty() { String::new() } else { format!(" {}", plain_or_quoted(&g.name)) };
        put!(self, "graph{name}");
        self.rest();
        self.out.push('\n');
    }
    /// Symbols that are declared: all but those of the graph around this one.
    fn symbols(&mut self, outer: Option<&Graph>) {
        let g = self.graph;
        // Elements that are not declared may be negative.
        let read = g.controls.iter().filter_map(|c| match &c.kind {
            ControlKind::Read { elements } => Some(elements),
            _ => None,
        });
        let named = g.inputs.iter().filter_map(|i| i.elements.as_ref());
        let read: Vec<Option<Symbol>> = read.chain(named).flatten().map(|&d| g.dims.as_symbol(d)).collect();
        for (s, name) in g.dims.symbols() {
            let range = self.symbol_range(s);
            let known = outer.is_some_and(|o| o.dims.find_symbol(name).is_some());
            if !known && (g.dims.is_value(s) || range != "0..=" || read.contains(&Some(s))) {
                let end = if outer.is_some() { ' ' } else { '\n' };
                put!(self, "symbol {} in {range}{end}", symbol_text(name));
            }
        }
    }
    /// Inputs, outputs and statements.
    fn rest(&mut self) {
        let g = self.graph;
        let lines = self.lines();
        self.name_values(&lines);
        self.out.push('(');
        for (i, input) in g.inputs.iter().enumerate() {
            let sep = if i > 0 { ", " } else { "" };
            let v = g.value(input.value);
            put!(self, "{sep}{}: {}", self.interface(input.value, &input.name), g.dims.display_type(&v.ty));
            if let Some(e) = &input.elements {
                put!(self, " = {}", g.dims.display_shape(e));
            }
        }
        put!(self, ") -> (");
        for (i, o) in g.outputs.iter().enumerate() {
            let sep = if i > 0 { ", " } else { "" };
            put!(self, "{sep}{}", self.interface(o.value, &o.name));
        }
        put!(self, ") {{\n");
        for c in &g.checks {
            let what = if c.what.is_empty() { String::new() } else { format!(" {:?}", c.what) };
            self.begin();
            put!(self, "assume {}{what}\n", g.dims.display_cond(c.cond));
        }
        for line in lines {
            self.begin();
            match line {
                Line::Const(v, c) => self.constant(v, &g.constants[c.index()]),
                Line::Node(n) => self.node(n),
                Line::Control(c) => self.control(&g.controls[c]),
            }
        }
        self.indent -= 1;
        self.begin();
        self.indent += 1;
        self.out.push('}');
    }
    fn begin(&mut self) {
        (0..self.indent).for_each(|_| self.out.push_str("  "));
    }

    /// Constants, nodes and controls as they are defined: a constant where its id puts it.
    fn lines(&self) -> Vec<Line> {
        let g = self.graph;
        let as_const = |v: ValueId| match g.value(v).def {
            ValueDef::Const(c) => Some((v, c)),
            _ => None,
        };
        let mut constants = (0..g.values.len()).filter_map(|i| as_const(ValueId::new(i))).peekable();
        let mut lines = vec![];
        let mut placed: HashSet<ValueId> = HashSet::new();
        for item in g.sequence() {
            let (line, inputs, first) = match item {
                Item::Node(n) => (Line::Node(n), &g.nodes[n].inputs, Some(g.nodes[n].output)),
                Item::Control(c) => {
                    (Line::Control(c), &g.controls[c].inputs, g.controls[c].outputs.first().copied())
                }
            };
            while let Some((v, c)) = constants.next_if(|&(c, _)| first.is_some_and(|f| c < f)) {
                if placed.insert(v) {
                    lines.push(Line::Const(v, c));
                }
            }
            // An operand that is a younger constant must still come first.
            for (v, c) in inputs.iter().filter_map(|&v| as_const(v)) {
                if placed.insert(v) {
                    lines.push(Line::Const(v, c));
                }
            }
            lines.push(line);
        }
        lines.extend(constants.filter(|(v, _)| !placed.contains(v)).map(|(v, c)| Line::Const(v, c)));
        lines
    }
    fn name_values(&mut self, lines: &[Line]) {
        let g = self.graph;
        let mut order: Vec<ValueId> = g.inputs.iter().map(|i| i.value).collect();
        for line in lines {
            match *line {
                Line::Const(v, _) => order.push(v),
                Line::Node(n) => order.push(g.nodes[n].output),
                Line::Control(c) => order.extend(&g.controls[c].outputs),
            }
        }
        let mut taken = HashSet::new();
        for (i, &v) in order.iter().enumerate() {
            let name = match &self.graph.value(v).name {
                Some(n) if taken.insert(n) => format!("%{}", plain_or_quoted(n)),
                _ => format!("%v{i}"),
            };
            self.names.insert(v, name);
        }
    }
    fn name(&self, v: ValueId) -> &str {
        self.names.get(&v).map_or("%?", String::as_str)
    }
    /// A value and, where it is another, its name to the outside.
    fn interface(&self, v: ValueId, outside: &str) -> String {
        let name = self.name(v);
        let inside = self.graph.value(v).name.as_deref().filter(|_| !is_unnamed(&name[1..]));
        if inside == Some(outside) || name.strip_prefix('%') == Some(outside) {
            name.to_string()
        } else {
            format!("{name} {outside:?}")
        }
    }
    fn symbol_range(&self, s: Symbol) -> String {
        let (lo, hi) = self.graph.dims.symbol_range(s);
        let lo = lo.map_or(String::new(), |n| n.to_string());
        format!("{lo}..={}", hi.map_or(String::new(), |n| n.to_string()))
    }

    fn result(&self, v: ValueId) -> String {
        format!("{}: {}", self.name(v), self.graph.dims.display_type(&self.graph.value(v).ty))
    }
    fn operands(&mut self, inputs: &[ValueId]) {
        for (i, &x) in inputs.iter().enumerate() {
            put!(self, "{} {}", if i > 0 { "," } else { "" }, self.name(x));
        }
    }
    fn control(&mut self, c: &Control) {
        let results: Vec<String> = c.outputs.iter().map(|&v| self.result(v)).collect();
        if !results.is_empty() {
            put!(self, "{} = ", results.join(", "));
        }
        put!(self, "{}", c.kind.mnemonic());
        self.operands(&c.inputs);
        match &c.kind {
            ControlKind::Read { elements } => {
                put!(self, " = {}", self.graph.dims.display_shape(elements));
            }
            ControlKind::Loop { carried, scanned, backward } => {
                put!(self, " {{carried = {carried}, scanned = {scanned}");
                let backward: Vec<usize> = (0..backward.len()).filter(|&i| backward[i]).collect();
                if !backward.is_empty() {
                    put!(self, ", backward = {backward:?}");
                }
                put!(self, "}}");
            }
            ControlKind::Host(op) => {
                let attrs: Vec<String> = op.attrs().iter().map(|(n, v)| format!("{n} = {v}")).collect();
                if !attrs.is_empty() {
                    put!(self, " {{{}}}", attrs.join(", "));
                }
            }
            ControlKind::If | ControlKind::NonZero => {}
        }
        for (i, body) in c.bodies.iter().enumerate() {
            put!(self, " {} ", BODY_WORDS[usize::from(c.bodies.len() == 1) * 2 + i % 2]);
            let mut p = Printer {
                graph: body,
                options: self.options,
                names: HashMap::new(),
                indent: self.indent + 1,
                out: std::mem::take(&mut self.out),
            };
            p.symbols(Some(self.graph));
            p.rest();
            self.out = p.out;
        }
        if let Some(name) = &c.name {
            put!(self, " @{name:?}");
        }
        self.out.push('\n');
    }
    fn node(&mut self, n: usize) {
        let g = self.graph;
        let node = &g.nodes[n];
        put!(self, "{} = {}", self.result(node.output), node.op.mnemonic());
        self.operands(&node.inputs);
        let attrs = node.op.attrs();
        let shown: Vec<String> = attrs
            .iter()
            .filter(|(_, a)| *a != Attr::Bool(false))
            .map(|(name, a)| format!("{name} = {}", self.attr(a)))
            .collect();
        if !shown.is_empty() {
            put!(self, " {{{}}}", shown.join(", "));
        }
        if let Some(name) = &node.name {
            put!(self, " @{name:?}");
        }
        self.out.push('\n');
    }
    fn attr(&self, a: &Attr) -> String {
        let dims = &self.graph.dims;
        match a {
            Attr::Bool(b) => b.to_string(),
            Attr::Int(i) => i.to_string(),
            Attr::Float(x) => format!("{x:?}"),
            Attr::Ints(v) => format!("{v:?}"),
            Attr::Dim(d) => dims.display(*d).to_string(),
            Attr::Dims(d) => dims.display_shape(d).to_string(),
            Attr::Word(w) => w.clone(),
        }
    }

    fn constant(&mut self, v: ValueId, t: &Tensor) {
        let shape = format!("{:?}", t.shape());
        put!(
            self,
            "const {}: {}{} = ",
            self.name(v),
            t.dtype(),
            if t.shape().is_empty() { "[]" } else { &shape }
        );
        let size = t.dtype().size();
        let first = t.bytes().get(..size);
        let equal = |first| t.bytes().chunks_exact(size).all(|e| e == first);
        let text = |i| element_text(t, i);
        if !t.has_data() {
            put!(self, "no_data");
        } else if t.len() > self.options.max_constant_elements {
            put!(self, "...");
        } else if let (true, Some(x)) = (t.shape().is_empty(), text(0)) {
            put!(self, "{x}");
        } else if let Some(x) =
            text(0).filter(|_| t.len() > 4 && first.is_some_and(equal) && t.bytes().len() <= 1 << 20)
        {
            put!(self, "splat {x}");
        } else if let Some(all) =
            (t.len() <= LIST).then(|| (0..t.len()).map(text).collect::<Option<Vec<_>>>()).flatten()
        {
            put!(self, "[{}]", all.join(", "));
        } else {
            let digit = |b: u8| char::from(b"0123456789abcdef"[usize::from(b)]);
            self.out.push_str("hex \"");
            self.out.extend(t.bytes().iter().flat_map(|&b| [digit(b >> 4), digit(b & 15)]));
            self.out.push('"');
        }
        self.out.push('\n');
    }
}

/// The shortest text that reads back as the element; `None` for a NaN with a payload.
fn element_text(t: &Tensor, i: usize) -> Option<String> {
    if i >= t.len() {
        return None;
    }
    let x = t.get(i);
    Some(match (x, t.dtype()) {
        (Scalar::Float(f), d) if f.is_nan() => {
            let canonical = Scalar::Float(f64::NAN).to_bits(d).to_le_bytes();
            let at = i * d.size();
            return (t.bytes()[at..at + d.size()] == canonical[..d.size()]).then(|| "nan".into());
        }
        (Scalar::Float(f), DType::F64) => format!("{f:?}"),
        (Scalar::Float(f), _) => format!("{:?}", f as f32),
        (Scalar::Int(i), DType::U64) => (i as u64).to_string(),
        (Scalar::Int(i), DType::Bool) => (i != 0).to_string(),
        (Scalar::Int(i), _) => i.to_string(),
    })
}

fn plain_or_quoted(name: &str) -> String {
    let plain = name.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.'))
        && !name.contains("..")
        && !is_unnamed(name);
    if plain { name.to_string() } else { format!("{name:?}") }
}
