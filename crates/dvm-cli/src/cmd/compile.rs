//! `dvm compile`.

use anyhow::{Context, Result, bail};
use dvm::{Module, compile_bundle, npz};

use crate::args::CompileArgs;
use crate::cmd::{file_size, options, say};
use crate::inputs::{complete, dim_runs, given};
use crate::{Outcome, Usage};

pub(crate) fn compile(a: &CompileArgs) -> Result<Outcome> {
    let module = Module::load(&a.model).with_context(|| a.model.display().to_string())?;
    let given = given(None, &a.input)?;
    let runs = dim_runs(&a.dim)?;
    if runs.len() != 1 {
        bail!(Usage("a bundle is compiled for one value of each dim".into()));
    }
    let graph = module.graph(&given, &runs[0])?;
    let options = options(&a.engine, file_size(&a.model))?;
    let inputs = complete(&graph, &given, &runs[0], options.max_bytes)?;
    let (bundle, report) = compile_bundle(&module, &inputs, &options, a.with_weights)?;
    let bytes = bundle.to_bytes()?;
    npz::write_whole(&a.output, &bytes).with_context(|| a.output.display().to_string())?;
    say(&format!(
        "{}: {} bytes, {} kernels, {} B bytecode, plan {:.0} µs, compile {:.1} µs{}\n",
        a.output.display(),
        bytes.len(),
        report.kernels,
        report.bytecode_bytes,
        report.plan_us,
        report.compile_us,
        if bundle.weights.iter().all(|w| w.data.is_some()) {
            ""
        } else {
            "; without weights: run it with --weights MODEL"
        }
    ))?;
    Ok(Outcome::Right)
}
