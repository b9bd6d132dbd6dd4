#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bare;
mod bisect;
mod bundle;
mod check;
mod cold;
pub mod compare;
mod engine;
mod error;
pub mod fill;
mod flow;
mod groups;
mod inspect;
mod launch;
mod module;
pub mod npz;
mod options;
mod report;
mod session;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
mod tilings;
pub mod timing;

pub use dvm_bc as bc;
pub use dvm_fuse::{Half, Stack, StackError, to_dot, to_svg};
pub use dvm_ir as ir;
pub use dvm_ir::explain;
pub use dvm_ir::{
    BinaryOp, Bindings, DType, Dim, DimTable, Element, Graph, Input, Op, Plan, ReduceOp, Scalar, Tensor,
    UnaryOp, ValueId, eval, plan,
};
pub use dvm_npu::{MachineSpec, hazard};
#[cfg(feature = "onnx")]
pub use dvm_onnx as onnx;

pub use bisect::{Bisection, Culprit, bisect};
pub use bundle::{BundleSession, compile_bundle, read_bundle};
pub use check::{CheckReport, check};
pub use dvm_tile::TileHint;
pub use dvm_tile::{Candidate, Tiling};
pub use error::Error;
pub use flow::{Stage, StageNote};
pub use inspect::Inspection;
pub use module::{FileKind, Module, PortInfo, Structural, input_shapes, signature};
pub use options::Options;
pub use report::RunReport;
pub use session::{Outputs, Session};
pub use stream::Stream;
pub use tilings::tilings;

/// The example of the repository's front page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;

/// The example of the page on explaining.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/explain.md")]
struct ExplainPage;

/// The example of the page on streams.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/streams.md")]
struct StreamsPage;
