//! Why tiles are as they are.

use dvm_ir::{Bindings, DimValues, Plan};
use dvm_npu::MachineSpec;
use dvm_tile::{Scratch, Tiling, compile_plan};

use crate::error::Error;

/// The tiling of each template that a plan is compiled to for the dims' values on a machine, with the candidates that the cost model
/// compared.
///
/// # Errors
/// A symbol of the plan without a value, or a kernel that cannot be compiled.
pub fn tilings(plan: &Plan, dims: &[(String, i64)], spec: &MachineSpec) -> Result<Vec<Tiling>, Error> {
    let mut bindings = Bindings::new();
    for (symbol, name) in plan.dims.symbols() {
        let value = dims.iter().find(|d| d.0 == *name).map(|d| d.1);
        let value = value.ok_or_else(|| Error::Bind(format!("symbol `{name}` has no value")))?;
        bindings.bind(symbol, value).map_err(|e| Error::Bind(e.to_string()))?;
    }
    let mut values = DimValues::default();
    plan.dims.eval_all(&bindings, &mut values);
    let mut scratch = Scratch::default();
    scratch.trace(true);
    Ok(compile_plan(plan, &values, spec, &mut scratch)?.tilings)
}
