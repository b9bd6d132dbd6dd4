//! Everything that differs between two machines is data: a [`MachineSpec`], read from a TOML file whose comments give
//! each value's confidence. The compiler has no `if host`; the bytecode embeds the spec's [`Target`](dvm_bc::Target).
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod adversary;
pub mod calibration;
mod charge;
mod costs;
mod detect;
mod file;
pub mod hazard;
pub mod mutate;
mod origin;
mod spec;
pub mod timing;
mod what_if;

pub use charge::CostKey;
pub use costs::{Costs, CubeCosts, DmaCosts, Linear, VectorCosts};
pub use origin::{Confidence, Origin};
pub use spec::{MachineSpec, SpecError};
