//! Dims as they are stored: expressions over earlier expressions, never ids of a table. Reading builds them anew, so that
//! whatever a file says, the table is in normal form.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::poly::{self, Poly};
use super::{Atom, Dim, DimTable};

/// A stored symbol.
#[derive(Serialize, Deserialize)]
struct WireSymbol {
    name: String,
    lo: i64,
    hi: i64,
    value: bool,
}

/// A stored expression; operands are positions of earlier ones.
#[derive(Serialize, Deserialize)]
enum WireExpr {
    /// Sum of coefficient times product.
    Sum(Vec<(i64, Vec<u32>)>),
    Symbol(u32),
    FloorDiv(u32, u32),
    Min(u32, u32),
    Max(u32, u32),
    Broadcast(u32, u32),
    Eq(u32, u32),
    Lt(u32, u32),
    Overflow,
}

/// The symbols of a table and the dims that are used.
#[derive(Serialize, Deserialize)]
pub(crate) struct WireDims {
    symbols: Vec<WireSymbol>,
    exprs: Vec<WireExpr>,
}

/// Collects the dims that are used.
pub(crate) struct DimWriter<'a> {
    table: &'a DimTable,
    exprs: Vec<WireExpr>,
    dims: HashMap<Dim, u32>,
}

impl<'a> DimWriter<'a> {
    pub(crate) fn new(table: &'a DimTable) -> DimWriter<'a> {
        DimWriter { table, exprs: vec![], dims: HashMap::new() }
    }
    /// Position of a dim.
    pub(crate) fn put(&mut self, d: Dim) -> u32 {
        if let Some(&i) = self.dims.get(&d) {
            return i;
        }
        let expr = match self.table.as_atom(d) {
            Some((_, atom)) => self.atom(atom),
            None => {
                let terms = self.table.poly(d).iter().map(|t| {
                    let factors = t.factors.iter().map(|&f| self.put(self.table.atom_dim(f)));
                    (t.coeff, factors.collect())
                });
                WireExpr::Sum(terms.collect())
            }
        };
        self.exprs.push(expr);
        let i = self.exprs.len() as u32 - 1;
        self.dims.insert(d, i);
        i
    }
    fn atom(&mut self, atom: Atom) -> WireExpr {
        let Some((a, b)) = atom.operands() else {
            return match atom {
                Atom::Sym(s) => WireExpr::Symbol(s.0),
                _ => WireExpr::Overflow,
            };
        };
        let (a, b) = (self.put(a), self.put(b));
        match atom {
            Atom::FloorDiv(..) => WireExpr::FloorDiv(a, b),
            Atom::Min(..) => WireExpr::Min(a, b),
            Atom::Max(..) => WireExpr::Max(a, b),
            Atom::Broadcast(..) => WireExpr::Broadcast(a, b),
            Atom::Eq(..) => WireExpr::Eq(a, b),
            Atom::Lt(..) => WireExpr::Lt(a, b),
            Atom::Sym(_) | Atom::Overflow => WireExpr::Overflow,
        }
    }
    pub(crate) fn finish(self) -> WireDims {
        let symbols = self.table.symbols.iter().map(|(name, f)| WireSymbol {
            name: name.clone(),
            lo: f.declared.0,
            hi: f.declared.1,
            value: f.value,
        });
        WireDims { symbols: symbols.collect(), exprs: self.exprs }
    }
}

impl WireDims {
    /// The table, and the dim at each position.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub(crate) fn read(self) -> Result<(DimTable, Vec<Dim>), String> {
        let mut t = DimTable::new();
        let mut symbols = Vec::new();
        for s in self.symbols {
            if t.find_symbol(&s.name).is_some() {
                return Err(format!("symbol {:?} is declared twice", s.name));
            }
            if s.lo > s.hi || (!s.value && s.lo < 0) {
                return Err(format!("symbol {:?} cannot be in {}..={}", s.name, s.lo, s.hi));
            }
            let d = if s.value { t.value_symbol(&s.name) } else { t.symbol(&s.name) };
            if let Some(id) = t.as_symbol(d) {
                t.assume_range(id, s.lo, s.hi);
            }
            symbols.push(d);
        }
        let mut dims: Vec<Dim> = Vec::new();
        for (i, e) in self.exprs.into_iter().enumerate() {
            let at = |j: u32| {
                dims.get(j as usize)
                    .copied()
                    .ok_or_else(|| format!("dim {i} is made of dim {j}, which is not before it"))
            };
            let d = match e {
                WireExpr::Sum(terms) => {
                    let mut sum = Some(Poly::new());
                    for (coeff, factors) in terms {
                        let mut product = Some(poly::constant(coeff));
                        for f in factors {
                            let f = at(f)?;
                            product = product.and_then(|p| t.mul_polys(&p, t.poly(f)));
                        }
                        sum = sum.zip(product).and_then(|(s, p)| poly::add(&s, &p, 1));
                    }
                    t.intern_or_overflow(sum)
                }
                WireExpr::Symbol(s) => {
                    let known = symbols.len();
                    let d = symbols.get(s as usize).copied();
                    d.ok_or_else(|| format!("dim {i} is symbol {s} of {known}"))?
                }
                WireExpr::FloorDiv(a, b) => t.floor_div(at(a)?, at(b)?),
                WireExpr::Min(a, b) => t.min(at(a)?, at(b)?),
                WireExpr::Max(a, b) => t.max(at(a)?, at(b)?),
                WireExpr::Broadcast(a, b) => {
                    let d = t.broadcast(at(a)?, at(b)?);
                    d.ok_or_else(|| format!("dim {i} is a broadcast of extents that never fit"))?
                }
                WireExpr::Eq(a, b) => t.eq(at(a)?, at(b)?),
                WireExpr::Lt(a, b) => t.lt(at(a)?, at(b)?),
                WireExpr::Overflow => t.intern_or_overflow(None),
            };
            dims.push(d);
        }
        Ok((t, dims))
    }
}
