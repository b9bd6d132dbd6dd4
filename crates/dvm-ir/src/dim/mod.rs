//! Symbolic dims: integer expressions over named symbols, interned in a normal form.
//!
//! A dim is a polynomial over atoms (symbols, floor divisions, min, max, broadcasts, comparisons) with sorted terms, so
//! that equality of normal forms is equality of ids. Questions about dims have three-valued answers; an
//! [`Answer::Unknown`] becomes a check when the symbols are bound, never an error at compile time.
//!
//! A [`DimTable`] belongs to one graph (and is inherited by its plan). Binding the symbols evaluates the
//! whole table once, after which reading a dim is an array access. Asking questions leaves the table as it was.

mod build;
mod display;
mod eval;
mod poly;
mod range;
mod wire;

use indexmap::{IndexMap, IndexSet};

pub use display::DisplayDim;
pub(crate) use display::symbol_text;
pub use eval::{Bindings, DimError, DimValues};
use poly::Poly;
pub(crate) use wire::{DimWriter, WireDims};

/// An interned dim. Equal ids mean provably equal values; see [`DimTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(u32);

impl Dim {
    /// The constant 0 in every table.
    pub const ZERO: Dim = Dim(0);
    /// The constant 1 in every table.
    pub const ONE: Dim = Dim(1);
    /// Position in [`DimValues`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl std::fmt::Debug for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// A named unknown, bound when a graph is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// Position among the table's symbols.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
    fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtomId(u32);

/// What a polynomial's factors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Atom {
    Sym(Symbol),
    FloorDiv(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
    /// NumPy broadcasting of two extents: equal, or one of them is 1; anything else is an error at bind.
    Broadcast(Dim, Dim),
    /// 1 when equal, else 0.
    Eq(Dim, Dim),
    /// 1 when less, else 0.
    Lt(Dim, Dim),
    /// A constant did not fit i64. Evaluates to an error.
    Overflow,
}

impl Atom {
    pub(crate) fn operands(self) -> Option<(Dim, Dim)> {
        match self {
            Atom::FloorDiv(a, b)
            | Atom::Min(a, b)
            | Atom::Max(a, b)
            | Atom::Broadcast(a, b)
            | Atom::Eq(a, b)
            | Atom::Lt(a, b) => Some((a, b)),
            Atom::Sym(_) | Atom::Overflow => None,
        }
    }
}

/// Deepest nesting of atoms; anything deeper counts as overflow.
const MAX_DEPTH: u32 = 48;

/// What is known of a polynomial, kept so that questions cost nothing and deep nesting cannot recurse.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lo: i128,
    hi: i128,
    /// Nesting of atoms.
    depth: u32,
    /// Symbols it depends on, modulo 64.
    symbols: u64,
}

/// A three-valued answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// True for every binding.
    Proven,
    /// False for every binding.
    Disproven,
    /// Depends on the binding, or not decidable here.
    Unknown,
}

#[derive(Clone, Debug)]
struct SymbolFacts {
    lo: i64,
    hi: i64,
    /// A run-time value rather than an extent.
    value: bool,
    /// `lo` and `hi` without what checks imply.
    declared: (i64, i64),
}

/// Interned dims of one graph with the facts known about its symbols.
#[derive(Clone, Debug)]
pub struct DimTable {
    polys: IndexSet<Poly>,
    /// Atoms created before each poly; they are evaluated before it.
    atoms_before: Vec<u32>,
    atoms: IndexSet<Atom>,
    bounds: Vec<Bounds>,
    symbols: IndexMap<String, SymbolFacts>,
    /// Assumed equalities: a symbol (or other atom) and its replacement, which holds no replaced atom.
    equal: IndexMap<AtomId, Dim>,
    /// Symbols in the left sides of `equal`, modulo 64.
    facts_symbols: u64,
    rewriting: bool,
    /// Whether anything was assumed of a symbol.
    assumed: bool,
    /// Whether some dim overflowed.
    overflowed: bool,
    /// Conditions that somebody could not prove, while they are asked for.
    wishes: Option<IndexSet<crate::CheckCond>>,
}

impl Default for DimTable {
    fn default() -> Self {
        DimTable::new()
    }
}

impl DimTable {
    /// A table holding only the constants 0 and 1.
    #[must_use]
    pub fn new() -> DimTable {
        let mut t = DimTable {
            polys: IndexSet::new(),
            atoms_before: vec![],
            atoms: IndexSet::new(),
            bounds: vec![],
            symbols: IndexMap::new(),
            equal: IndexMap::new(),
            facts_symbols: 0,
            rewriting: false,
            assumed: false,
            overflowed: false,
            wishes: None,
        };
        t.constant(0);
        t.constant(1);
        t
    }
    /// Names of the symbols, in order of creation.
    pub fn symbols(&self) -> impl Iterator<Item = (Symbol, &str)> {
        self.symbols.keys().enumerate().map(|(i, n)| (Symbol(i as u32), n.as_str()))
    }
    /// Whether a symbol stands for a run-time value, which may be negative, rather than for an extent.
    #[must_use]
    pub fn is_value(&self, s: Symbol) -> bool {
        self.symbols.get_index(s.index()).is_some_and(|(_, f)| f.value)
    }
    /// Declared bounds of a symbol, `None` where it has none; [`DimTable::range`] also knows what checks imply.
    #[must_use]
    pub fn symbol_range(&self, s: Symbol) -> (Option<i64>, Option<i64>) {
        let bounds = |f: &SymbolFacts| {
            let (lo, hi) = f.declared;
            (Some(lo).filter(|&lo| lo > i64::MIN + 1), Some(hi).filter(|&hi| hi < i64::MAX))
        };
        self.symbols.get_index(s.index()).map_or((None, None), |(_, f)| bounds(f))
    }
    /// The symbol with this name.
    #[must_use]
    pub fn find_symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get_index_of(name).map(|i| Symbol(i as u32))
    }
    /// The dim that is a symbol.
    #[must_use]
    pub fn symbol_dim(&self, s: Symbol) -> Option<Dim> {
        self.atoms.get_index_of(&Atom::Sym(s)).map(|i| self.atom_dim(AtomId(i as u32)))
    }
    /// A symbol's name.
    #[must_use]
    pub fn symbol_name(&self, s: Symbol) -> &str {
        self.symbols.get_index(s.index()).map_or("?", |(n, _)| n.as_str())
    }
    /// Number of dims in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.polys.len()
    }
    /// Never true: 0 and 1 are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.polys.is_empty()
    }
}

#[cfg(test)]
mod tests;
