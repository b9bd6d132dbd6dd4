//! The crate's error: what is wrong with an op, told with its operands.

use crate::ValueId;

/// An op cannot be applied to its operands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IrError {
    /// A rule of the op is broken.
    #[error("{op}{} ({operands}): {rule}", NodeName(.node))]
    Rule {
        /// Mnemonic.
        op: &'static str,
        /// Name of the source node, if it has one.
        node: Option<String>,
        /// Types of the operands, e.g. `f32[b, 4], f32[3]`.
        operands: String,
        /// The rule and the values that break it.
        rule: String,
    },
    /// The op takes another number of operands.
    #[error("{op}{} takes {} operands, got {got}", NodeName(.node), Arity(*.least, *.most))]
    Arity {
        /// Mnemonic.
        op: &'static str,
        /// Name of the source node, if it has one.
        node: Option<String>,
        /// Fewest operands.
        least: usize,
        /// Most operands.
        most: usize,
        /// Operands given.
        got: usize,
    },
    /// An operand is not a value of the graph.
    #[error("{op}{}: operand {operand} is {value}, but the graph has {values} values", NodeName(.node))]
    NoSuchValue {
        /// Mnemonic.
        op: &'static str,
        /// Name of the source node, if it has one.
        node: Option<String>,
        /// Position of the operand.
        operand: usize,
        /// The missing value.
        value: ValueId,
        /// Number of values in the graph.
        values: usize,
    },
}

struct NodeName<'a>(&'a Option<String>);
impl std::fmt::Display for NodeName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |n| write!(f, " {n:?}"))
    }
}

struct Arity(usize, usize);
impl std::fmt::Display for Arity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == self.1 { write!(f, "{}", self.0) } else { write!(f, "{} to {}", self.0, self.1) }
    }
}
