//! `dvm bisect`.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use dvm::compare::Tolerance;
use dvm::{Bisection, Module};

use crate::args::BisectArgs;
use crate::cmd::{file_size, options, say, say_json};
use crate::inputs::{complete, dim_runs, given};
use crate::{Outcome, Usage};

pub(crate) fn bisect(a: &BisectArgs) -> Result<Outcome> {
    let module = Module::load(&a.model).with_context(|| a.model.display().to_string())?;
    let given = given(a.inputs.as_deref(), &a.input)?;
    let runs = dim_runs(&a.dim)?;
    let [dims] = runs.as_slice() else { bail!(Usage("a bisection is of one value of each dim".into())) };
    let options = options(&a.engine, file_size(&a.model))?;
    let inputs = complete(&*module.graph(&given, dims)?, &given, dims, options.max_bytes)?;
    let some = |x: Option<f64>| x.unwrap_or(0.0);
    let tolerance =
        (a.rtol.is_some() || a.atol.is_some()).then(|| Tolerance { rtol: some(a.rtol), atol: some(a.atol) });
    let bar = if a.json { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new_spinner() };
    bar.set_message("runs with fusion limited to its first decisions");
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let found = dvm::bisect(&module, &inputs, &options, tolerance)?;
    bar.finish_and_clear();
    if a.json {
        let mut doc = serde_json::to_value(&found)?;
        doc["version"] = 1.into();
        say_json(&doc)?;
    } else {
        say(&text(&found)?)?;
    }
    Ok(if found.culprit.is_some() { Outcome::ValuesDiffer } else { Outcome::Right })
}

fn text(found: &Bisection) -> Result<String> {
    let Bisection { contractions, runs, culprit } = found;
    let Some(c) = culprit else {
        return Ok(format!("fused and unfused values agree ({contractions} contractions, {runs} runs)\n"));
    };
    let mut out = String::new();
    match c.after {
        Some(n) => {
            writeln!(out, "contraction {} of {contractions} changes a value ({runs} runs):", n + 1)?;
            writeln!(out, "  joined {}", c.joined.join(", "))?;
        }
        None => writeln!(
            out,
            "values differ before any contraction: by how the graph is simplified ({runs} runs)"
        )?,
    }
    writeln!(out, "  output `{}`: {}", c.output, c.difference)?;
    for k in &c.kernels {
        writeln!(out, "  kernel {}: {}", k.name, k.ops.join(", "))?;
        k.text.lines().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(out)
}
