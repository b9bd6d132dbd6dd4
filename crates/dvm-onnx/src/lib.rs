#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod cx;
mod error;
mod fold;
mod import;
mod ops;
pub mod proto;
mod prune;
mod summary;
mod tensor;
mod value;

use std::path::{Path, PathBuf};

use dvm_ir::{Graph, Tensor};
use prost::Message;
use prost::bytes::Bytes;

pub use error::{ImportError, Problem, ProblemKind};
pub use import::{Condition, ImportOptions};
pub use ops::{Family, OpRow, table as op_table};
pub use summary::{Summary, SummaryValue};

use import::Importer;
use proto::{ModelProto, TensorProto, dimension, type_proto};

/// A model as a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The graph.
    pub graph: Graph,
    /// Version of ONNX's operator set that the model uses.
    pub opset: i64,
    /// Tool that wrote the model, with its version.
    pub producer: String,
    /// What the structure of the graph was decided by: inputs (no longer inputs of the graph) and dims, by value. The graph
    /// serves other inputs only where these are the same.
    pub decided_by: ImportOptions,
}

/// Imports a model from its bytes. External data are read from `opts.base_dir`.
///
/// # Errors
/// Bytes that are no ONNX model; everything in it that is not supported or not valid, at once; inputs or dims whose values
/// decide the structure of the graph.
pub fn import(bytes: &[u8], opts: &ImportOptions) -> Result<Imported, ImportError> {
    import_model(&decode(bytes)?, opts)
}

/// Imports a model from a file; external data lie in its folder unless `opts` names another.
///
/// # Errors
/// As [`import`], and when the file cannot be read.
pub fn import_file(path: impl AsRef<Path>, opts: &ImportOptions) -> Result<Imported, ImportError> {
    let (model, base_dir) = read_file(path.as_ref())?;
    let mut opts = opts.clone();
    opts.base_dir.get_or_insert(base_dir);
    import_model(&model, &opts)
}

/// A model's messages from a file, and the folder its external data lie in.
///
/// # Errors
/// When the file cannot be read or is no ONNX model.
pub fn read_file(path: &Path) -> Result<(ModelProto, PathBuf), ImportError> {
    let bytes =
        std::fs::read(path).map_err(|source| ImportError::Io { path: path.display().to_string(), source })?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((decode_owned(bytes)?, folder.to_path_buf()))
}

/// Imports a decoded model.
///
/// # Errors
/// As [`import`].
pub fn import_model(model: &ModelProto, opts: &ImportOptions) -> Result<Imported, ImportError> {
    let mut imp = Importer::run(model, opts);
    imp.finish();
    if !imp.problems.is_empty() {
        return Err(ImportError::Unsupported(imp.problems));
    }
    if !imp.needs_ranks.is_empty() {
        return Err(ImportError::NeedsRanks { inputs: imp.needs_ranks.into_iter().collect() });
    }
    if let Some(condition) = imp.undecided {
        return Err(ImportError::NeedsOutcome { condition: Box::new(condition) });
    }
    if !imp.needs_values.is_empty() {
        return Err(ImportError::NeedsValues { inputs: imp.needs_values.into_iter().collect() });
    }
    if !imp.needs_dims.is_empty() {
        return Err(ImportError::NeedsDims { symbols: imp.needs_dims.into_iter().collect() });
    }
    let opset = imp.opset("").unwrap_or(0);
    let graph = prune::prune(imp.graph);
    tracing::debug!(nodes = graph.nodes.len(), constants = graph.constants.len(), opset, "imported");
    Ok(Imported { graph, opset, producer: producer(model), decided_by: opts.clone() })
}

/// Imports a decoded model for these inputs: where its structure depends on the values of inputs or dims, they are taken
/// from here. [`Imported::decided_by`] then says which. (Branches are the caller's: see [`import_deciding`].)
///
/// # Errors
/// As [`import`], but for values that the inputs supply.
pub fn import_for<N: AsRef<str>>(
    model: &ModelProto,
    opts: &ImportOptions,
    inputs: &[(N, Tensor)],
) -> Result<Imported, ImportError> {
    let mut opts = opts.clone();
    // Each round adds something, so the rounds end.
    loop {
        let before = (opts.known.len(), opts.dims.len(), opts.ranks.len());
        let error = match import_model(model, &opts) {
            Ok(done) => return Ok(done),
            Err(e) => e,
        };
        match &error {
            ImportError::NeedsValues { inputs: names } => {
                let given = inputs.iter().filter(|(n, _)| names.iter().any(|m| m == n.as_ref()));
                opts.known.extend(given.map(|(n, t)| (n.as_ref().to_string(), t.clone())));
            }
            ImportError::NeedsRanks { inputs: names } => {
                let given = inputs.iter().filter(|(n, _)| names.iter().any(|m| m == n.as_ref()));
                opts.ranks.extend(given.map(|(n, t)| (n.as_ref().to_string(), t.shape().len())));
            }
            ImportError::NeedsDims { symbols } => {
                let found = declared_dims(model, inputs);
                opts.dims.extend(found.into_iter().filter(|(n, _)| symbols.contains(n)));
            }
            _ => return Err(error),
        }
        if before == (opts.known.len(), opts.dims.len(), opts.ranks.len()) {
            return Err(error);
        }
    }
}

/// As [`import_for`], where conditions that decide what the graph is are computed by the reference evaluator.
///
/// # Errors
/// As [`import_for`], but for such conditions.
pub fn import_deciding<N: AsRef<str>>(
    model: &ModelProto,
    opts: &ImportOptions,
    inputs: &[(N, Tensor)],
) -> Result<Imported, ImportError> {
    let mut opts = opts.clone();
    loop {
        match import_for(model, &opts, inputs) {
            Err(ImportError::NeedsOutcome { condition }) => opts.outcomes.push(decide(&condition, inputs)?),
            done => return done,
        }
    }
}

/// A condition's value for these inputs, by the reference evaluator.
fn decide<N: AsRef<str>>(c: &Condition, inputs: &[(N, Tensor)]) -> Result<bool, ImportError> {
    let used: Vec<(&str, Tensor)> = inputs
        .iter()
        .filter(|(n, _)| c.graph.inputs.iter().any(|i| i.name == n.as_ref()))
        .map(|(n, t)| (n.as_ref(), t.clone()))
        .collect();
    let out = dvm_ir::eval::eval_graph(&c.graph, &used)
        .map_err(|e| ImportError::Condition { node: c.node.clone(), reason: e.to_string() })?;
    Ok(out.first().is_some_and(|t| t.len() == 1 && t.get(0).as_i64() != 0))
}

/// Values of the symbols in the declared shapes of a model's inputs, from actual inputs.
fn declared_dims<N: AsRef<str>>(model: &ModelProto, inputs: &[(N, Tensor)]) -> Vec<(String, i64)> {
    let mut out: Vec<(String, i64)> = vec![];
    for info in model.graph.iter().flat_map(|g| &g.input) {
        let name = info.name.as_deref().unwrap_or("");
        let Some((_, t)) = inputs.iter().find(|(n, _)| n.as_ref() == name) else { continue };
        let Some(type_proto::Value::Tensor(ty)) = info.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
            continue;
        };
        for (axis, &n) in t.shape().iter().enumerate() {
            let declared = ty.shape.as_ref().and_then(|s| s.dim.get(axis)).and_then(|d| d.value.as_ref());
            let symbol = match declared {
                Some(dimension::Value::DimParam(p)) if !p.is_empty() => p.clone(),
                _ => import::axis_symbol(name, axis),
            };
            if out.iter().all(|(s, _)| *s != symbol) {
                out.push((symbol, n as i64));
            }
        }
    }
    out
}

/// What a model holds and what of it is not supported.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn summary(bytes: &[u8], opts: &ImportOptions) -> Result<Summary, ImportError> {
    Ok(summary::of(&decode(bytes)?, opts))
}

/// A model's messages.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn decode(bytes: &[u8]) -> Result<ModelProto, ImportError> {
    ModelProto::decode(bytes).map_err(|e| ImportError::Decode(e.to_string()))
}

/// A model's messages from bytes that are given away: large constants are then parts of them, not copies.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn decode_owned(bytes: Vec<u8>) -> Result<ModelProto, ImportError> {
    ModelProto::decode(Bytes::from(bytes)).map_err(|e| ImportError::Decode(e.to_string()))
}

/// Name and data of one serialised `TensorProto`, as ONNX's test data hold them.
///
/// # Errors
/// Bytes that are no tensor, or an element type that has no dtype here.
pub fn decode_tensor(bytes: &[u8]) -> Result<(String, Tensor), ImportError> {
    let t = TensorProto::decode(bytes).map_err(|e| ImportError::Decode(e.to_string()))?;
    let name = t.name.clone().unwrap_or_default();
    match tensor::tensor(&t, None) {
        Ok(tensor) => Ok((name, tensor)),
        Err(error::Fail::Unsupported(r) | error::Fail::Invalid(r)) => Err(ImportError::Decode(r)),
        Err(_) => Err(ImportError::Decode("not a tensor".into())),
    }
}

fn producer(model: &ModelProto) -> String {
    let parts = [model.producer_name.as_deref(), model.producer_version.as_deref()];
    parts.into_iter().flatten().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
}
