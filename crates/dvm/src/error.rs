//! Errors of the facade.

use dvm_ir::TensorError;

/// Anything that can go wrong between a model file and its outputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// File.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A NumPy file.
    #[error(transparent)]
    Npz(#[from] crate::npz::NpzError),
    /// An ONNX model.
    #[cfg(feature = "onnx")]
    #[error("{0}")]
    Onnx(#[from] dvm_onnx::ImportError),
    /// A model file of a kind this build cannot read.
    #[error("{path}: {reason}")]
    Format {
        /// File.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Textual IR; the message shows the place.
    #[error("{0}")]
    Text(String),
    /// Serialised IR.
    #[error("serialised graph: {0}")]
    Serialised(String),
    /// A graph that breaks the IR's rules; all of them are listed.
    #[error("invalid graph:\n{0}")]
    Graph(String),
    /// Fusion.
    #[error("fusion: {0}")]
    Fuse(#[from] dvm_fuse::FuseError),
    /// Tiling of a kernel.
    #[error("compile: {0}")]
    Tile(#[from] dvm_tile::TileError),
    /// A program that failed verification: a defect of the compiler, or a damaged bundle.
    #[error("the program does not verify:\n{0}")]
    Verify(String),
    /// A bundle.
    #[error("{0}")]
    Bundle(#[from] dvm_bc::BundleError),
    /// A launch.
    #[error("{0}")]
    Launch(String),
    /// Within a body of a control.
    #[error("{control}, {place}: {source}")]
    Control {
        /// The control, with the name of its node.
        control: String,
        /// Which body, which iteration.
        place: String,
        /// What failed.
        source: Box<Error>,
    },
    /// Loops that do not end.
    #[error("more than {limit} iterations")]
    Iterations {
        /// Most iterations of a run, [`crate::Options::max_iterations`].
        limit: u64,
    },
    /// Dims that do not fit the model.
    #[error("{0}")]
    Bind(String),
    /// Tensors that do not fit the declared inputs, or a fact the graph relies on that does not hold for them.
    #[error(transparent)]
    Inputs(#[from] dvm_ir::bind::BindError),
    /// A variable of the environment.
    #[error("{variable}={value}: must be one of {allowed}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// Symbols without a value.
    #[error("no value for {symbols}: give `--dim NAME=N` for each, or the inputs they come from")]
    UnboundSymbols {
        /// The symbols.
        symbols: String,
    },
    /// More memory than allowed.
    #[error("{step} needs {needs} bytes, the limit is {limit}")]
    Memory {
        /// What is over the limit.
        step: String,
        /// Bytes needed.
        needs: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A machine specification.
    #[error("{0}")]
    Spec(String),
    /// An op of a stream whose operands do not fit it.
    #[error(transparent)]
    Op(#[from] dvm_ir::IrError),
    /// Something a stream cannot do.
    #[error("{0}")]
    Stream(String),
    /// A failure of an earlier op of a stream, which this value depends on.
    #[error("{0}")]
    Earlier(std::sync::Arc<Error>),
}

impl Error {
    pub(crate) fn within(self, control: &dvm_ir::Control, place: String) -> Error {
        Error::Control { control: control.to_string(), place, source: Box::new(self) }
    }
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.display().to_string(), source }
    }
}
