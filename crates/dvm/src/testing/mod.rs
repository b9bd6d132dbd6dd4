//! Programs that several checks share: snapshots under review, the hazard checker's and the executors' tests.

mod cases;
pub mod eager;
pub mod models;
pub mod random;
mod snapshot;
pub mod traffic;

pub use cases::CASES;

use dvm_ir::{Bindings, DimValues, Graph, Plan};
use dvm_npu::MachineSpec;
use dvm_npu::hazard::HazardReport;
use dvm_tile::{Compiled, Scratch, compile_plan};

/// A graph, and dims to compile it for.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the graph and of its snapshots.
    pub name: &'static str,
    /// Dims of the snapshot: `m=300 k=700`.
    pub dims: &'static str,
    /// Dims that are quick to interpret.
    pub small: &'static str,
    /// Shipped machines whose snapshots are reviewed.
    pub machines: &'static [&'static str],
    body: &'static str,
}

/// A case, compiled for a machine.
#[derive(Debug)]
pub struct CompiledCase {
    /// The source.
    pub graph: Graph,
    /// Its fused form.
    pub plan: Plan,
    /// The program, and what the tiler decided.
    pub compiled: Compiled,
    /// Values of the plan's dims.
    pub values: DimValues,
    /// Symbols and their values.
    pub bindings: Bindings,
}

/// Every stage of a case on one machine.
#[derive(Debug)]
pub struct Snapshot {
    /// For review.
    pub text: String,
    /// What the hazard checker says; empty for machines whose pipes run in order.
    pub hazards: HazardReport,
}

/// A case that does not compile: a defect of the case or of the compiler.
#[derive(Debug, thiserror::Error)]
#[error("case `{case}`: {what}")]
pub struct CaseError {
    /// Name.
    pub case: &'static str,
    /// What went wrong.
    pub what: String,
}

impl Case {
    /// The graph's text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("graph {}{}\n", self.name, self.body)
    }
    /// Compiles the case for the snapshot's dims.
    ///
    /// # Errors
    /// As [`Case::compile_for`].
    pub fn compile(&self, spec: &MachineSpec) -> Result<CompiledCase, CaseError> {
        self.compile_for(self.dims, spec)
    }
    /// Compiles the case for dims like `m=300 k=700`. The program is not verified.
    ///
    /// # Errors
    /// The text is no graph, a symbol has no value, or a stage of the compiler fails.
    pub fn compile_for(&self, dims: &str, spec: &MachineSpec) -> Result<CompiledCase, CaseError> {
        let error = |what: String| CaseError { case: self.name, what };
        let text = self.text();
        let graph = Graph::from_text(&text).map_err(|e| error(e.render(self.name, &text)))?;
        let plan =
            dvm_fuse::plan(&graph, &dvm_fuse::FuseOptions::default()).map_err(|e| error(e.to_string()))?;
        let mut bindings = Bindings::new();
        for word in dims.split_whitespace() {
            let mut bind = || {
                let (name, value) = word.split_once('=')?;
                bindings.bind(plan.dims.find_symbol(name)?, value.parse().ok()?).ok()
            };
            bind().ok_or_else(|| error(format!("`{word}` binds no symbol")))?;
        }
        let mut values = DimValues::default();
        plan.dims.eval_all(&bindings, &mut values);
        let compiled = compile_plan(&plan, &values, spec, &mut Scratch::default());
        let compiled = compiled.map_err(|e| error(format!("{}: {e}", spec.target.name)))?;
        Ok(CompiledCase { graph, plan, compiled, values, bindings })
    }
    /// Every stage of the case on a shipped machine, for review by diff. Nothing in it depends on time, on the machine at hand or on
    /// other cases.
    ///
    /// # Errors
    /// The case does not compile, or its program does not verify.
    pub fn snapshot(&self, machine: &str) -> Result<Snapshot, CaseError> {
        let error = |what: String| CaseError { case: self.name, what };
        let spec = MachineSpec::named(machine).map_err(|e| error(e.to_string()))?;
        snapshot::render(self, &spec, &self.compile(&spec)?).map_err(error)
    }
}
