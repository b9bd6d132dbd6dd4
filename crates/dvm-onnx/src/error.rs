//! Why a model cannot be imported. Everything wrong is listed at once, with node names.

use std::fmt;

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Node (its name, or `OP making OUTPUT`), or the input or initialiser concerned.
    pub node: String,
    /// Op, with its domain if it is not ONNX's own; empty for inputs and initialisers.
    pub op: String,
    /// Whether the model is wrong, or merely uses what is not supported.
    pub kind: ProblemKind,
    /// What exactly.
    pub reason: String,
}

/// See [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// A valid use that this importer does not handle.
    Unsupported,
    /// The model contradicts ONNX or itself.
    Invalid,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ProblemKind::Unsupported => "not supported",
            ProblemKind::Invalid => "invalid",
        };
        if !self.op.is_empty() {
            write!(f, "{} ", self.op)?;
        }
        write!(f, "\"{}\": {kind}: {}", self.node, self.reason)
    }
}

/// A model cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The bytes are not an ONNX model.
    #[error("not an ONNX model: {0}")]
    Decode(String),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Everything in the model that is not supported or not valid.
    #[error("{} problem(s) in the model{}", .0.len(), list(.0))]
    Unsupported(Vec<Problem>),
    /// The graph's structure depends on these inputs' values: import again with them in
    /// [`ImportOptions::known`](crate::ImportOptions::known).
    #[error("the structure of the graph depends on the values of: {}", .inputs.join(", "))]
    NeedsValues {
        /// Names of the inputs.
        inputs: Vec<String>,
    },
    /// What the graph is depends on which way a branch goes: import again with the condition's value appended to
    /// [`ImportOptions::outcomes`](crate::ImportOptions::outcomes).
    #[error("which way \"{}\" goes decides what the graph is", .condition.node)]
    NeedsOutcome {
        /// The condition.
        condition: Box<crate::Condition>,
    },
    /// A condition that decides what the graph is has no value for these inputs.
    #[error("the condition of \"{node}\": {reason}")]
    Condition {
        /// The node that branches.
        node: String,
        /// Why.
        reason: String,
    },
    /// The model does not declare the rank of these inputs: import again with them in
    /// [`ImportOptions::ranks`](crate::ImportOptions::ranks).
    #[error("the model does not declare the rank of: {}", .inputs.join(", "))]
    NeedsRanks {
        /// Names of the inputs.
        inputs: Vec<String>,
    },
    /// The graph's structure (a rank, a number of outputs) depends on these dims: import again with them in
    /// [`ImportOptions::dims`](crate::ImportOptions::dims).
    #[error("the structure of the graph depends on the dims: {}", .symbols.join(", "))]
    NeedsDims {
        /// Names of the symbols.
        symbols: Vec<String>,
    },
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("\n  {p}")).collect()
}

/// Why one node cannot be imported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fail {
    /// Valid, but not handled.
    Unsupported(String),
    /// Contradicts ONNX.
    Invalid(String),
    /// Needs these inputs' values.
    NeedsValues(Vec<String>),
    /// Needs these symbols' values.
    NeedsDims(Vec<String>),
    /// An operand could not be imported; already reported.
    Poisoned,
}

pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::Unsupported(reason.into()))
}
pub(crate) fn invalid<T>(reason: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::Invalid(reason.into()))
}

impl From<dvm_ir::IrError> for Fail {
    fn from(e: dvm_ir::IrError) -> Fail {
        Fail::Invalid(e.to_string())
    }
}
impl From<dvm_ir::TensorError> for Fail {
    fn from(e: dvm_ir::TensorError) -> Fail {
        Fail::Invalid(e.to_string())
    }
}
