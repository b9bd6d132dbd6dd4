//! Real-time compilation of tensor programs.

#![forbid(unsafe_code)]

pub mod compare;
pub mod fill;
pub mod npz;
mod report;

pub use report::RunReport;
