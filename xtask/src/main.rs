//! Repository chores: `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

mod calibrate;
mod ci;
mod codegen;
mod conformance;
mod demo_model;
mod flags;
mod fuzz;
mod models;
mod onnx_suite;
mod paper_sim;
mod random;
mod regret;
mod snapshots;
mod timelines;
mod traffic;
mod ulp;

use std::path::PathBuf;

use flags::{Xtask, XtaskCmd};

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), std::path::Path::to_path_buf)
}

fn main() -> anyhow::Result<()> {
    match Xtask::from_env_or_exit().subcommand {
        XtaskCmd::Codegen(f) => codegen::codegen(f.check)?,
        XtaskCmd::Snapshots(f) => snapshots::snapshots(f.check, f.accept, f.only.as_deref())?,
        XtaskCmd::Fuzz(f) if f.corpus => fuzz::corpus()?,
        XtaskCmd::Fuzz(f) => fuzz::fuzz(&fuzz::Options {
            programs: f.programs,
            seconds: f.seconds,
            from: f.from.unwrap_or(0),
            jobs: f.jobs.unwrap_or(2),
            run_every: f.run_every.unwrap_or(8),
            trace: f.trace,
        })?,
        XtaskCmd::Random(f) => random::random(&random::Options {
            graphs: f.graphs.unwrap_or(2000),
            seed: f.seed.unwrap_or(0),
            jobs: f.jobs.unwrap_or(2),
            ops: f.ops,
            shrink: !f.no_shrink,
        })?,
        XtaskCmd::Traffic(f) => traffic::traffic(f.check)?,
        XtaskCmd::Ulp(f) => {
            let step = if f.full { 1 } else { f.step.unwrap_or(if f.check { 16_411 } else { 257 }) };
            ulp::run(&ulp::Options { step: step.max(1), check: f.check })?;
        }
        XtaskCmd::TilingRegret(f) => {
            regret::run(&regret::Options { quick: f.quick, json: f.json, only: f.only, threads: f.threads })?
        }
        XtaskCmd::Models(f) => models::models(
            f.only.as_deref(),
            f.out.as_deref(),
            f.compile,
            f.spec.as_deref().unwrap_or("ascend-910b2"),
        )?,
        XtaskCmd::PaperSim(f) => paper_sim::paper_sim(&paper_sim::Config {
            spec: f.spec.unwrap_or_else(|| "ascend-910b2".into()),
            shapes: f.shapes.unwrap_or(56),
            only: f.only,
            verbose: f.verbose,
            no_models: f.no_models,
        })?,
        XtaskCmd::Timelines(f) => timelines::timelines(f.out, f.spec.as_deref().unwrap_or("ascend-910b2"))?,
        XtaskCmd::Calibrate(f) => calibrate::calibrate(f.quick)?,
        XtaskCmd::Package(f) => ci::package(f.verify)?,
        XtaskCmd::Ci(f) => ci::ci(f.full)?,
        XtaskCmd::Conformance(a) => {
            let opts = conformance::Options {
                cases: a.cases,
                only: a.only,
                heavy: a.heavy,
                quick: a.quick,
                json: a.json,
                dump: a.dump,
                with: a.with,
                docs: a.docs,
            };
            if !conformance::run(&opts)? {
                std::process::exit(1);
            }
        }
        XtaskCmd::OnnxSuite(a) => {
            let opts = onnx_suite::Options {
                python: a.python,
                dir: a.dir,
                filter: a.filter,
                json: a.json,
                all: a.all,
                docs: a.docs,
                engine: a.engine,
            };
            if !onnx_suite::run(&opts)? {
                std::process::exit(1);
            }
        }
    }
    Ok(())
}
