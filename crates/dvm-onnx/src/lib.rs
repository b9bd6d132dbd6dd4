#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cx;
mod error;
mod import;
mod ops;
pub mod proto;
mod prune;
mod summary;
mod tensor;
mod value;

use std::path::Path;

use dvm_ir::Graph;
use prost::Message;
use prost::bytes::Bytes;

pub use error::{ImportError, Problem, ProblemKind};
pub use import::ImportOptions;
pub use ops::{Family, OpRow, table as op_table};
pub use summary::{Summary, SummaryValue};

use import::Importer;
use proto::ModelProto;

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
}

/// Imports a model from its bytes. External data are read from `opts.base_dir`.
///
/// # Errors
/// Bytes that are no ONNX model; everything in it that is not supported or not valid, at once; inputs or dims whose values
/// decide the structure of the graph.
pub fn import(bytes: &[u8], opts: &ImportOptions) -> Result<Imported, ImportError> {
    import_model(&decode(Bytes::copy_from_slice(bytes))?, opts)
}

/// Imports a model from a file; external data lie in its folder unless `opts` names another.
///
/// # Errors
/// As [`import`], and when the file cannot be read.
pub fn import_file(path: impl AsRef<Path>, opts: &ImportOptions) -> Result<Imported, ImportError> {
    let path = path.as_ref();
    let bytes =
        std::fs::read(path).map_err(|source| ImportError::Io { path: path.display().to_string(), source })?;
    let mut opts = opts.clone();
    if opts.base_dir.is_none() {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        opts.base_dir = Some(folder.to_path_buf());
    }
    import_model(&decode(bytes.into())?, &opts)
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
    if !imp.needs_values.is_empty() {
        return Err(ImportError::NeedsValues { inputs: imp.needs_values.into_iter().collect() });
    }
    if !imp.needs_dims.is_empty() {
        return Err(ImportError::NeedsDims { symbols: imp.needs_dims.into_iter().collect() });
    }
    let opset = imp.opset("").unwrap_or(0);
    let graph = prune::prune(imp.graph);
    tracing::debug!(nodes = graph.nodes.len(), constants = graph.constants.len(), opset, "imported");
    Ok(Imported { graph, opset, producer: producer(model) })
}

/// What a model holds and what of it is not supported.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn summary(bytes: &[u8], opts: &ImportOptions) -> Result<Summary, ImportError> {
    Ok(summary::of(&decode(Bytes::copy_from_slice(bytes))?, opts))
}

fn decode(bytes: Bytes) -> Result<ModelProto, ImportError> {
    ModelProto::decode(bytes).map_err(|e| ImportError::Decode(e.to_string()))
}

fn producer(model: &ModelProto) -> String {
    let parts = [model.producer_name.as_deref(), model.producer_version.as_deref()];
    parts.into_iter().flatten().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
}
