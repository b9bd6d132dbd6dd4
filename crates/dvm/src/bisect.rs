//! Which fusion changes a value.
//!
//! Fusion decides node by node, and a limit on the number of decisions gives a beginning of the same ones
//! ([`Module::with_contractions`]). So the first decision that makes an output differ from the unfused run is found by
//! bisection.

use std::sync::Arc;

use dvm_fuse::FuseOptions;
use dvm_ir::{Graph, Plan, Tensor};
use serde::Serialize;

use crate::compare::{Tolerance, compare};
use crate::{Error, Module, Options, Outputs, Session};

/// What a bisection found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bisection {
    /// Times that fusion puts an op into a kernel with others, over all of the model.
    pub contractions: usize,
    /// Runs that it took.
    pub runs: usize,
    /// What changes a value; none where fused and unfused values agree.
    pub culprit: Option<Culprit>,
}

/// A fusion that changes a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// How many contractions are right; the next one is not. None where values differ before any, that is by what the graph is
    /// simplified to.
    pub after: Option<usize>,
    /// The ops that were put into a kernel with others.
    pub joined: Vec<String>,
    /// The kernels that they made.
    pub kernels: Vec<CulpritKernel>,
    /// The first output that differs.
    pub output: String,
    /// How.
    pub difference: String,
}

/// A kernel that computes other values than its ops.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CulpritKernel {
    /// Its name.
    pub name: String,
    /// Its ops, with the names of their nodes.
    pub ops: Vec<String>,
    /// Its body, as the explanation prints it.
    pub text: String,
}

/// Finds the first fusion after which an output differs from the unfused run by more than a tolerance; by any bit where none is
/// given. Each try plans and compiles anew.
///
/// # Errors
/// As [`Session::run`].
pub fn bisect(
    module: &Module,
    inputs: &[(String, Tensor)],
    options: &Options,
    tolerance: Option<Tolerance>,
) -> Result<Bisection, Error> {
    let unfused = Options { fuse: false, ..options.clone() };
    let mut session = Session::new(module, unfused)?;
    let want = session.run(inputs.iter().cloned())?;
    let (module, runtime) = (session.module().clone(), session.runtime().clone());
    let options = Options { fuse: true, assume: vec![], ..options.clone() };
    let mut runs = 1;
    let mut differs = |most: usize| -> Result<Option<(String, String)>, Error> {
        let mut session =
            Session::with_runtime(&module.with_contractions(most), options.clone(), runtime.clone())?;
        runs += 1;
        let got = session.run(inputs.iter().cloned())?;
        Ok(difference(&got, &want, tolerance))
    };
    let parts = parts(&module, inputs, usize::MAX)?;
    let fuse = FuseOptions::default();
    let all = parts
        .iter()
        .map(|(g, _)| Ok(dvm_fuse::contractions(g, &fuse)?))
        .collect::<Result<Vec<_>, Error>>()?;
    let contractions = all.iter().map(Vec::len).sum();
    // A limit holds for each part between two controls.
    let (mut right, mut wrong) = (0, all.iter().map(Vec::len).max().unwrap_or(0));
    let Some(mut found) = differs(wrong)? else {
        return Ok(Bisection { contractions, runs, culprit: None });
    };
    if let Some((output, difference)) = differs(right)? {
        let culprit = Culprit { after: None, joined: vec![], kernels: vec![], output, difference };
        return Ok(Bisection { contractions, runs, culprit: Some(culprit) });
    }
    while right + 1 < wrong {
        let middle = right.midpoint(wrong);
        match differs(middle)? {
            Some(d) => (wrong, found) = (middle, d),
            None => right = middle,
        }
    }
    let (mut joined, mut kernels) = (vec![], vec![]);
    for ((graph, plan), all) in self::parts(&module, inputs, wrong)?.iter().zip(&all) {
        let Some(c) = all.get(right) else { continue };
        joined.extend(c.nodes.iter().map(|&n| graph.node_text(n)));
        if c.nodes.is_empty() {
            joined.push(c.op.to_string());
        }
        for call in plan.calls.iter().filter(|x| c.nodes.iter().any(|n| x.nodes.contains(n))) {
            let kernel = &plan.kernels[call.kernel.index()];
            kernels.push(CulpritKernel {
                name: kernel.name.clone(),
                ops: call.nodes.iter().map(|&n| graph.node_text(n)).collect(),
                text: kernel.display(&plan.dims).to_string(),
            });
        }
    }
    let (output, difference) = found;
    let culprit = Culprit { after: Some(right), joined, kernels, output, difference };
    Ok(Bisection { contractions, runs, culprit: Some(culprit) })
}

type Part = (Arc<Graph>, Arc<Plan>);

/// Graph and plan of everything that is computed between two controls.
fn parts(module: &Module, inputs: &[(String, Tensor)], most: usize) -> Result<Vec<Part>, Error> {
    let stages = module.with_contractions(most).stages(inputs, &[], true)?;
    Ok(stages.into_iter().filter_map(|s| s.part).collect())
}

/// The first output that differs, and how.
fn difference(got: &Outputs, want: &Outputs, tolerance: Option<Tolerance>) -> Option<(String, String)> {
    want.iter().find_map(|(name, want)| {
        let got = got.get(name)?;
        let exact = Tolerance { rtol: 0.0, atol: 0.0 };
        let difference = match (tolerance, compare(got, want, tolerance.unwrap_or(exact))) {
            (_, Err(d)) => d.to_string(),
            // Zeros of other signs, NaNs of other bits.
            (None, Ok(())) if got.bytes() != want.bytes() => "other bits for equal values".into(),
            _ => return None,
        };
        Some((name.clone(), difference))
    })
}
