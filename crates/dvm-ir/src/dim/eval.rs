//! From values of symbols to values of dims.

use super::poly::Poly;
use super::{Atom, AtomId, Dim, DimTable, Symbol};

/// A dim has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimError {
    /// A symbol has no value.
    #[error("symbol `{symbol}` is not bound")]
    Unbound {
        /// Its name.
        symbol: String,
    },
    /// Arithmetic left the range of i64.
    #[error("`{dim}` overflows")]
    Overflow {
        /// Text of the dim.
        dim: String,
    },
    /// Division by zero.
    #[error("`{dim}` divides by zero")]
    DivByZero {
        /// Text of the dim.
        dim: String,
    },
    /// Extents that do not broadcast.
    #[error("`{dim}`: extents {a} and {b} do not broadcast")]
    Broadcast {
        /// Text of the dim.
        dim: String,
        /// Left extent.
        a: i64,
        /// Right extent.
        b: i64,
    },
}

/// Values of symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bindings(Vec<Option<i64>>);

impl Bindings {
    /// No symbol bound.
    #[must_use]
    pub fn new() -> Bindings {
        Bindings::default()
    }
    /// Binds a symbol; returns the earlier value if it differs.
    pub fn bind(&mut self, s: Symbol, value: i64) -> Result<(), i64> {
        if self.0.len() <= s.index() {
            self.0.resize(s.index() + 1, None);
        }
        match self.0[s.index()] {
            Some(old) if old != value => Err(old),
            _ => {
                self.0[s.index()] = Some(value);
                Ok(())
            }
        }
    }
    /// The value of a symbol.
    #[must_use]
    pub fn get(&self, s: Symbol) -> Option<i64> {
        self.0.get(s.index()).copied().flatten()
    }
    /// Forgets all values, keeping the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Raw values in symbol order, e.g. as a cache key.
    #[must_use]
    pub fn values(&self) -> &[Option<i64>] {
        &self.0
    }
}

/// Every dim of a table, evaluated.
#[derive(Clone, Debug, Default)]
pub struct DimValues {
    polys: Vec<i64>,
    atoms: Vec<i64>,
}

/// Marks a dim without a value.
const UNDEF: i64 = i64::MIN;

impl DimValues {
    /// The value of a dim, `None` where evaluation failed ([`DimTable::eval`] says why).
    #[must_use]
    pub fn get(&self, d: Dim) -> Option<i64> {
        self.polys.get(d.index()).copied().filter(|&v| v != UNDEF)
    }
    /// The value of a dim as an extent: negative or undefined is `None`.
    #[must_use]
    pub fn extent(&self, d: Dim) -> Option<u64> {
        self.get(d).and_then(|v| u64::try_from(v).ok())
    }
}

impl DimTable {
    /// Evaluates every dim of the table into `out`, reusing its memory.
    pub fn eval_all(&self, bindings: &Bindings, out: &mut DimValues) {
        out.polys.clear();
        out.atoms.clear();
        for (p, &before) in self.polys.iter().zip(&self.atoms_before) {
            while out.atoms.len() < before as usize {
                let a = &self.atoms[out.atoms.len()];
                let v = eval_atom(a, |s| bindings.get(s), |d| out.polys.get(d.index()).copied());
                out.atoms.push(v.unwrap_or(UNDEF));
            }
            let v = eval_poly(p, |a| out.atoms.get(a.0 as usize).copied().filter(|&v| v != UNDEF));
            out.polys.push(v.unwrap_or(UNDEF));
        }
    }
    /// The value of one dim, or why it has none.
    ///
    /// # Errors
    /// An unbound symbol, overflow, division by zero, or extents that do not broadcast.
    pub fn eval(&self, d: Dim, bindings: &Bindings) -> Result<i64, DimError> {
        let mut all = DimValues::default();
        self.eval_all(bindings, &mut all);
        all.get(d).ok_or_else(|| self.why_undefined(d, &all))
    }
    /// Why a dim has no value among these.
    #[must_use]
    pub fn why_undefined(&self, d: Dim, all: &DimValues) -> DimError {
        for f in self.poly(d).iter().flat_map(|t| &t.factors) {
            if all.atoms.get(f.0 as usize).is_some_and(|&v| v != UNDEF) {
                continue;
            }
            let atom = self.atoms[f.0 as usize];
            if let Atom::Sym(s) = atom {
                return DimError::Unbound { symbol: self.symbol_name(s).to_string() };
            }
            let Some((a, b)) = atom.operands() else { continue };
            if let Some(x) = [a, b].into_iter().find(|&x| all.get(x).is_none()) {
                return self.why_undefined(x, all);
            }
            let dim = self.display(d).to_string();
            return match (atom, all.get(a), all.get(b)) {
                (Atom::Broadcast(..), Some(a), Some(b)) => DimError::Broadcast { dim, a, b },
                (Atom::FloorDiv(..), _, Some(0)) => DimError::DivByZero { dim },
                _ => DimError::Overflow { dim },
            };
        }
        DimError::Overflow { dim: self.display(d).to_string() }
    }
}

fn eval_poly(p: &Poly, atom: impl Fn(AtomId) -> Option<i64>) -> Option<i64> {
    let mut sum = 0i64;
    for t in p {
        let mut v = t.coeff;
        for f in &t.factors {
            v = v.checked_mul(atom(*f)?)?;
        }
        sum = sum.checked_add(v)?;
    }
    Some(sum).filter(|&v| v != UNDEF)
}

fn eval_atom(a: &Atom, sym: impl Fn(Symbol) -> Option<i64>, dim: impl Fn(Dim) -> Option<i64>) -> Option<i64> {
    let get = |d| dim(d).filter(|&v| v != UNDEF);
    Some(match *a {
        Atom::Sym(s) => sym(s)?,
        Atom::FloorDiv(a, b) => {
            let (a, b) = (get(a)?, get(b)?);
            let q = a.checked_div(b)?;
            if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
        }
        Atom::Min(a, b) => get(a)?.min(get(b)?),
        Atom::Max(a, b) => get(a)?.max(get(b)?),
        Atom::Broadcast(a, b) => match (get(a)?, get(b)?) {
            (a, b) if a == b || b == 1 => a,
            (1, b) => b,
            _ => return None,
        },
        Atom::Eq(a, b) => i64::from(get(a)? == get(b)?),
        Atom::Lt(a, b) => i64::from(get(a)? < get(b)?),
        Atom::Overflow => return None,
    })
}
