//! A model at a glance, for `dvm inspect`.

use std::collections::BTreeMap;
use std::fmt;

use dvm_ir::DType;

use crate::import::{ImportOptions, Importer};
use crate::producer;
use crate::proto::{GraphProto, ModelProto, TensorProto};

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SummaryValue {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, e.g. `["b", "256"]`.
    pub shape: Vec<String>,
}

impl fmt::Display for SummaryValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}[{}]", self.name, self.dtype, self.shape.join(", "))
    }
}

/// What a model holds and what of it is not supported.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Tool that wrote the model.
    pub producer: String,
    /// Operator sets by domain (empty for ONNX's own).
    pub opsets: BTreeMap<String, i64>,
    /// Inputs.
    pub inputs: Vec<SummaryValue>,
    /// Outputs that could be imported.
    pub outputs: Vec<SummaryValue>,
    /// Symbols standing for extents.
    pub symbols: Vec<String>,
    /// How often each op occurs, in called functions and taken branches too.
    pub ops: BTreeMap<String, usize>,
    /// Bytes of constants, those of branches and bodies too.
    pub weight_bytes: usize,
    /// Everything that is not supported or not valid.
    pub problems: Vec<crate::Problem>,
    /// Inputs whose values decide the structure of the graph.
    pub needs_values: Vec<String>,
    /// Symbols whose values decide the structure of the graph.
    pub needs_dims: Vec<String>,
    /// Inputs whose rank the model does not declare. What their uses need is not known until it is given.
    pub needs_ranks: Vec<String>,
    /// The first branch that decides it. What comes after is not known until it is decided.
    pub needs_outcome: Option<String>,
}

pub(crate) fn of(model: &ModelProto, opts: &ImportOptions) -> Summary {
    let mut imp = Importer::run(model, opts);
    imp.finish();
    let g = &imp.graph;
    let value = |name: &str, v| SummaryValue {
        name: name.to_string(),
        dtype: g.dtype(v),
        shape: g.shape(v).iter().map(|&d| g.dims.display(d).to_string()).collect(),
    };
    Summary {
        producer: producer(model),
        inputs: g.inputs.iter().map(|i| value(&i.name, i.value)).collect(),
        outputs: g.outputs.iter().map(|o| value(&o.name, o.value)).collect(),
        symbols: imp.extent_symbols(),
        opsets: imp.opsets.iter().map(|(d, v)| (d.clone(), *v)).collect(),
        needs_values: imp.needs_values.iter().cloned().collect(),
        needs_dims: imp.needs_dims.iter().cloned().collect(),
        needs_ranks: imp.needs_ranks.iter().cloned().collect(),
        needs_outcome: imp.undecided.as_ref().map(|c| c.node.clone()),
        ops: imp.op_counts,
        weight_bytes: model.graph.as_ref().map_or(0, weight_bytes),
        problems: imp.problems,
    }
}

/// Bytes of a graph's constants, however they are stored.
fn weight_bytes(graph: &GraphProto) -> usize {
    fn bytes(t: &TensorProto) -> usize {
        let size = crate::tensor::dtype(t.data_type.unwrap_or(0)).map_or(1, |d| d.size());
        let count = t.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        count.and_then(|n| n.checked_mul(size)).unwrap_or(0)
    }
    let own = graph.initializer.iter().map(bytes).fold(0, usize::saturating_add);
    // Protobuf messages nest to a bounded depth only.
    graph.node.iter().flat_map(|n| &n.attribute).fold(own, |sum, a| {
        let tensor = a.t.as_deref().map_or(0, bytes);
        sum.saturating_add(tensor).saturating_add(a.g.as_deref().map_or(0, weight_bytes))
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.producer.is_empty() {
            writeln!(f, "producer  {}", self.producer)?;
        }
        for (d, v) in &self.opsets {
            writeln!(f, "opset     {} {v}", if d.is_empty() { "ai.onnx" } else { d })?;
        }
        for v in &self.inputs {
            writeln!(f, "input     {v}")?;
        }
        for v in &self.outputs {
            writeln!(f, "output    {v}")?;
        }
        if !self.symbols.is_empty() {
            writeln!(f, "symbols   {}", self.symbols.join(", "))?;
        }
        let ops: Vec<String> = self.ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        writeln!(f, "ops       {}", ops.join(", "))?;
        if !self.needs_values.is_empty() {
            writeln!(f, "structure depends on the values of  {}", self.needs_values.join(", "))?;
        }
        if !self.needs_dims.is_empty() {
            writeln!(f, "structure depends on the dims  {}", self.needs_dims.join(", "))?;
        }
        if !self.needs_ranks.is_empty() {
            writeln!(f, "structure depends on the ranks of  {}", self.needs_ranks.join(", "))?;
        }
        if let Some(node) = &self.needs_outcome {
            writeln!(f, "structure depends on the branch  {node}")?;
        }
        for p in &self.problems {
            writeln!(f, "problem   {p}")?;
        }
        Ok(())
    }
}
