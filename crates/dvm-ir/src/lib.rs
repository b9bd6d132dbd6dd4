#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bind;
mod build;
mod check;
mod control;
pub mod dim;
mod display;
mod docs;
mod dtype;
mod entity;
mod error;
pub mod eval;
pub mod explain;
mod graph;
mod host;
mod infer;
pub mod kernel;
mod op;
pub mod plan;
mod strided;
mod tensor;
#[doc(hidden)]
pub mod testing;
mod text;
mod verify;
mod wire;

pub use check::{Check, CheckCond};
pub use control::{
    Control, ControlId, ControlKind, Item, LoopParts, MAX_BODY_DEPTH, MAX_READ_ELEMENTS, nonzero, result_type,
};
pub use dim::{Answer, Bindings, Dim, DimError, DimTable, DimValues, Symbol};
pub use docs::ops_markdown;
pub use dtype::{DType, Scalar};
pub use error::IrError;
pub use explain::Explanation;
pub use graph::*;
pub use host::{Combine, HostError, HostOp};
pub use infer::{MAX_RANK, infer};
pub use kernel::Kernel;
pub use op::*;
pub use plan::Plan;
pub use strided::{GroupAxis, ViewStep, strided_index, strided_store, strided_view};
pub use tensor::{Element, Tensor, TensorError};
pub use text::{ParseError, TextOptions};
pub use verify::Violation;
pub use wire::{GRAPH_MAGIC, GRAPH_VERSION, WireError};
