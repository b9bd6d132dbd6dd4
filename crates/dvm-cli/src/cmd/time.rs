//! `dvm time`: what a program would cost on a machine, and why.

mod report;
mod sweep;

use std::path::Path;

use anyhow::{Context, Result, bail};
use dvm::bc::{Bundle, Program};
use dvm::timing::{self, HostCosts, L2State, Labels, Options, Prepared, Row, Timing};
use dvm::{FileKind, MachineSpec, Module, npz, read_bundle};

use crate::cmd::specs::{self, SpecFile};
use crate::inputs::{Named, dim_runs, given};
use crate::time_args::TimeArgs;
use crate::{Outcome, Usage};

/// Machine of a model that is compiled for none.
const DEFAULT: &str = "ascend-910b2";
/// Executions up to which badly known constants are swept unasked.
const QUICK: u64 = 300_000;
/// Changes below this are not reported.
const THRESHOLD: f64 = 0.05;

/// What is timed.
enum Source {
    Bundle(Box<Bundle>),
    Model { module: Module, inputs: Named, dims: Vec<(String, i64)> },
}

/// A program for one machine.
struct Subject {
    programs: Vec<Program>,
    notes: Vec<dvm::bc::bundle::Note>,
    ops: Vec<Vec<String>>,
    prepared: Option<Box<Prepared>>,
}

impl Source {
    fn open(a: &TimeArgs) -> Result<Source> {
        let name = a.file.display().to_string();
        let bytes = std::fs::read(&a.file).with_context(|| name.clone())?;
        if matches!(FileKind::of(&bytes), FileKind::Bundle | FileKind::Assembly) {
            if !a.dim.is_empty() || !a.input.is_empty() || a.compare || a.no_fuse {
                bail!(Usage(format!(
                    "--dim, --input, --compare and --no-fuse are for models; {name} is compiled already"
                )));
            }
            let bundle = read_bundle(&name, &bytes).with_context(|| name.clone())?;
            return Ok(Source::Bundle(Box::new(bundle)));
        }
        drop(bytes);
        let module = Module::load(&a.file).with_context(|| name.clone())?;
        let runs = dim_runs(&a.dim)?;
        let [dims] = runs.as_slice() else {
            bail!(Usage("a model is timed for one value of each dim".into()));
        };
        Ok(Source::Model { module, inputs: given(None, &a.input)?, dims: dims.clone() })
    }
    /// The name of the machine a bundle was compiled for.
    fn target(&self) -> Option<&str> {
        match self {
            Source::Bundle(b) => b.programs.first().map(|p| p.target.name.as_str()),
            Source::Model { .. } => None,
        }
    }
    fn subject(&self, spec: &MachineSpec, fuse: bool) -> Result<Subject> {
        Ok(match self {
            Source::Bundle(b) => {
                Subject { programs: b.programs.clone(), notes: b.notes.clone(), ops: vec![], prepared: None }
            }
            Source::Model { module, inputs, dims } => {
                let p = timing::prepare(module, inputs, dims, spec, fuse)?;
                let (notes, ops) = (p.notes(), p.ops());
                Subject { programs: vec![p.program().clone()], notes, ops, prepared: Some(Box::new(p)) }
            }
        })
    }
}

/// Everything that is said about one program.
struct Report<'a> {
    title: String,
    program: &'a Program,
    spec: &'a MachineSpec,
    timing: Timing,
    moved: Option<Vec<timing::Moved>>,
    rows: Vec<Row>,
    compile_us: Option<f64>,
}

fn options(a: &TimeArgs) -> Options {
    let l2 = if a.cold { L2State::Cold } else { L2State::Warm };
    Options { exact: a.exact, l2, cores: a.cores, ..Options::default() }
}

/// The machine with `--set` applied.
fn machine(a: &TimeArgs, source: &Source) -> Result<SpecFile> {
    let name = match (&a.spec, source.target()) {
        (Some(s), _) => s.clone(),
        (None, Some(t)) if MachineSpec::NAMES.contains(&t) => t.to_owned(),
        (None, Some(t)) => {
            bail!(Usage(format!(
                "{} was compiled for `{t}`, which is not shipped: give its --spec",
                a.file.display()
            )));
        }
        (None, None) => DEFAULT.to_owned(),
    };
    let mut file = specs::load(&name)?;
    for (key, value) in &a.set {
        file.spec = changed(&file.spec, source, key, *value)?;
    }
    Ok(file)
}

fn changed(spec: &MachineSpec, source: &Source, key: &str, value: f64) -> Result<MachineSpec> {
    let new = spec.with_value(key, value)?;
    if matches!(source, Source::Bundle(_)) && MachineSpec::decides_programs(key) {
        bail!(Usage(format!(
            "`{key}` decides how a model is compiled, and this is compiled already: time the model"
        )));
    }
    Ok(new)
}

pub(crate) fn time(a: &TimeArgs) -> Result<Outcome> {
    let source = Source::open(a)?;
    let file = machine(a, &source)?;
    if !a.sweep.is_empty() {
        return sweep::sweep(a, &source, &file);
    }
    let spec = &file.spec;
    let subject = source.subject(spec, !a.no_fuse)?;
    let traced = a.trace.is_some() || a.html.is_some();
    if traced && subject.programs.len() != 1 {
        bail!(Usage(format!(
            "a timeline is of one program; {} has {}",
            a.file.display(),
            subject.programs.len()
        )));
    }
    let known = timing::confidence(&file.text);
    let mut reports = vec![];
    for program in &subject.programs {
        let mut opts = options(a);
        if traced {
            opts.trace = a.spans.max(1);
        }
        let timing = timing::simulate(program, spec, &opts)?;
        let moved = if a.sensitivity || timing.simulated <= QUICK {
            Some(timing::sensitivity(program, spec, &known, &opts, THRESHOLD)?)
        } else {
            None
        };
        let rows = match &subject.prepared {
            Some(p) => {
                let unfused = match &source {
                    Source::Model { module, inputs, dims } if a.compare => {
                        Some(timing::prepare(module, inputs, dims, spec, false)?)
                    }
                    _ => None,
                };
                timing::compare(p, unfused.as_ref(), &timing, spec, &HostCosts::default(), &options(a))?
            }
            None => vec![],
        };
        let compile_us = subject.prepared.as_ref().map(|p| p.compile_us);
        let title = title(&a.file, program, subject.prepared.as_deref());
        reports.push(Report { title, program, spec, timing, moved, rows, compile_us });
    }
    if let [r] = reports.as_slice() {
        let labels = Labels::new(r.program, 0, &subject.notes, &subject.ops);
        // The launches whose compile hides behind execution, where there is a model to compile.
        let host = r.rows.iter().find(|row| row.name == "new shape, compile hidden");
        let write = |path: &Path, text: String| {
            npz::write_whole(path, text.as_bytes()).with_context(|| path.display().to_string())
        };
        if let Some(path) = &a.trace {
            write(path, timing::chrome_trace(&r.timing, &labels, spec, host))?;
        }
        if let Some(path) = &a.html {
            write(path, timing::html_page(&r.title, &r.timing, &labels, spec, host))?;
        }
    }
    report::print(a, &reports)?;
    Ok(Outcome::Right)
}

fn title(file: &Path, program: &Program, prepared: Option<&Prepared>) -> String {
    let stem = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    match prepared {
        Some(p) if !p.dims.is_empty() => {
            let dims: Vec<String> = p.dims.iter().map(|(n, v)| format!("{n}={v}")).collect();
            format!("{stem} {}", dims.join(" "))
        }
        Some(_) => stem,
        None if program.name.is_empty() => stem,
        None => program.name.clone(),
    }
}
