//! Verifiers: every rule a graph, a kernel or a plan must keep, and a list of all that are broken.
//!
//! A verified graph can be evaluated and planned without a panic; a verified kernel or plan can be compiled without one.
//! What depends on the values of dims (extents, bounds of accesses) is checked where those are bound.
//!
//! *Graph*: ids exist; values are defined once, before use; types are those inference gives, and what inference could not
//! decide is among the checks; names of inputs and outputs are unique; constants and element symbols fit their types.
//!
//! *Kernel*: body in SSA order; a matmul is first and alone; operands exist and are read or written as declared; dtypes follow
//! the ops; masks hold the axes a value varies along; addresses have a stride per axis, 0 outside the mask.
//!
//! *Plan*: kernels verify; calls fit their kernels; every call is in one level, after the calls it reads from and never beside
//! a call that reads what it writes; buffers, inputs, outputs and constants refer to each other; outputs own their buffers.

mod control;
mod graph;
mod kernel;
mod plan;

use std::fmt;

use crate::{Dim, DimTable};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, e.g. `n3 (add "/enc/add")`, `%2`, `call 4`.
    pub at: String,
    /// The rule and the values that break it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// Collects violations of one place after the other.
struct Report<'a> {
    dims: &'a DimTable,
    at: String,
    found: Vec<Violation>,
}

impl<'a> Report<'a> {
    fn new(dims: &'a DimTable) -> Report<'a> {
        Report { dims, at: String::new(), found: vec![] }
    }
    fn at(&mut self, place: impl fmt::Display) {
        self.at = place.to_string();
    }
    fn fail(&mut self, message: impl fmt::Display) {
        self.found.push(Violation { at: self.at.clone(), message: message.to_string() });
    }
    /// Records a violation unless `holds`; gives it back so that dependent rules can be skipped.
    fn require(&mut self, holds: bool, message: impl fmt::Display) -> bool {
        if !holds {
            self.fail(message);
        }
        holds
    }
    fn dims_exist(&mut self, what: &str, dims: &[Dim]) -> bool {
        match dims.iter().find(|d| d.index() >= self.dims.len()) {
            Some(d) => {
                self.require(false, format_args!("{what}: {d:?} is not in the table of {}", self.dims.len()))
            }
            None => true,
        }
    }
    fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n str>) {
        let mut seen = indexmap::IndexSet::new();
        for n in names {
            self.require(seen.insert(n), format_args!("{what} name {n:?} is used twice"));
        }
    }
    fn finish(self) -> Result<(), Vec<Violation>> {
        if self.found.is_empty() { Ok(()) } else { Err(self.found) }
    }
}

#[cfg(test)]
mod tests;
