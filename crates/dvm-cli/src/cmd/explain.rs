//! `dvm explain`.

use anyhow::{Context, Result, bail};
use dvm::explain::Explanation;
use dvm::{Module, Options, Stage, StageNote};
use serde_json::json;

use crate::args::ExplainArgs;
use crate::cmd::{say, say_json};
use crate::inputs::{dim_runs, given};
use crate::{Outcome, Usage};

pub(crate) fn explain(a: &ExplainArgs) -> Result<Outcome> {
    let module =
        Module::load(&a.model).with_context(|| a.model.display().to_string())?.assuming(&a.assume)?;
    let inputs = given(None, &a.input)?;
    let runs = dim_runs(&a.dim)?;
    let [dims] = runs.as_slice() else { bail!(Usage("an explanation is of one value of each dim".into())) };
    let fuse = Options::from_env()?.fuse;
    let notes = module.explain(&inputs, dims, fuse)?;
    let stages = module.stages(&inputs, dims, fuse)?;
    if let Some(path) = &a.dot {
        let plans = stages.iter().filter_map(|s| s.part.as_ref());
        let drawn: Vec<String> = plans.map(|(_, plan)| dvm::to_dot(plan)).collect();
        write(path, &drawn.join("\n"))?;
    }
    if let Some(path) = &a.svg {
        let plans: Vec<&Explanation> = notes.iter().filter_map(|n| n.plan.as_ref()).collect();
        match plans.as_slice() {
            [one] => write(path, &dvm::to_svg(one))?,
            // A picture a part, numbered.
            all => {
                for (i, plan) in all.iter().enumerate() {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy();
                    write(&path.with_file_name(format!("{name}.{i}.svg")), &dvm::to_svg(plan))?;
                }
            }
        }
    }
    if a.tiling {
        let mut options = Options::from_env()?;
        if let Some(name) = &a.spec {
            options.spec = Some(super::specs::load(name)?.spec);
        }
        super::tilings::tilings(&stages, dims, &options.machine(), a.json)?;
        return Ok(Outcome::Right);
    }
    if a.json {
        let doc = match notes.as_slice() {
            [StageNote { plan: Some(one), .. }] => serde_json::to_value(one)?,
            all => json!({"version": 2, "stages": all}),
        };
        say_json(&doc)?;
        return Ok(Outcome::Right);
    }
    let several = notes.len() > 1;
    for (note, stage) in notes.iter().zip(&stages) {
        match &note.plan {
            Some(plan) => {
                say(&format!("{plan}{}{}", bodies(stage, a.kernels), if several { "\n" } else { "" }))?
            }
            None => say(&format!("{}host: {}\n\n", "  ".repeat(note.depth), note.label))?,
        }
    }
    Ok(Outcome::Right)
}

fn write(path: &std::path::Path, text: &str) -> Result<()> {
    dvm::npz::write_whole(path, text.as_bytes()).with_context(|| path.display().to_string())
}

/// The bodies of the distinct kernels, where they were asked for.
fn bodies(stage: &Stage, wanted: bool) -> String {
    let plan = stage.part.as_ref().filter(|_| wanted).map(|(_, plan)| plan);
    let all = plan.into_iter().flat_map(|p| p.kernels.iter().map(|k| format!("\n{}", k.display(&p.dims))));
    all.collect()
}
