//! `dvm run`.

use anyhow::{Context, Result, bail};
use dvm::compare::{Tolerance, compare, max_difference, max_relative};
use dvm::{BundleSession, FileKind, Module, Outputs, RunReport, Session, Tensor, npz, read_bundle};
use serde_json::json;

use crate::args::RunArgs;
use crate::cmd::{file_size, options_for, say, say_json};
use crate::inputs::{GoldenStep, Named, complete, dim_runs, given, goldens};
use crate::table::{Table, thousands};
use crate::{Outcome, Usage};

/// A model or a bundle, behind one face.
enum Engine {
    Model(Box<Session>),
    /// Inputs that are not given are filled, or are an error.
    Bundle {
        session: Box<BundleSession>,
        fill: bool,
    },
}

impl Engine {
    fn open(a: &RunArgs, given_bytes: u64) -> Result<Engine> {
        let bytes = std::fs::read(&a.model).with_context(|| a.model.display().to_string())?;
        let kind = FileKind::of(&bytes);
        if matches!(kind, FileKind::Bundle | FileKind::Assembly) {
            let weights = a.weights.as_ref().map(Module::load).transpose()?;
            let name = a.model.display().to_string();
            let open = || -> Result<BundleSession> {
                let bundle = read_bundle(&name, &bytes)?;
                let options = options_for(&a.engine, file_size(&a.model), given_bytes)?;
                Ok(BundleSession::new(bundle, weights.as_ref(), &options)?)
            };
            let session = Box::new(open().with_context(|| name.clone())?);
            return Ok(Engine::Bundle { session, fill: a.fill || kind == FileKind::Bundle });
        }
        if a.weights.is_some() {
            bail!(Usage(format!("--weights is for bundles; {} is a model", a.model.display())));
        }
        let module = Module::load(&a.model).with_context(|| a.model.display().to_string())?;
        let half = if a.half == "wide" { dvm::Half::Wide } else { dvm::Half::Rounded };
        let module = module.with_half(half);
        let mut options = options_for(&a.engine, file_size(&a.model), given_bytes)?;
        options.traffic = a.traffic;
        Ok(Engine::Model(Box::new(Session::new(&module, options)?)))
    }
    /// All inputs for these dims.
    fn inputs(&self, given: &Named, dims: &[(String, i64)]) -> Result<Named> {
        match self {
            Engine::Model(s) => {
                complete(&*s.module().graph(given, dims)?, given, dims, s.options().max_bytes)
            }
            Engine::Bundle { session: s, fill } => {
                let missing = s.bundle().inputs.iter().filter(|p| !given.iter().any(|(n, _)| *n == p.name));
                let missing: Vec<_> =
                    missing.map(|p| format!("`{}` ({}{:?})", p.name, p.dtype, p.shape)).collect();
                if !fill && !missing.is_empty() {
                    bail!("no value for input {}: give --inputs, --input or --fill", missing.join(", "));
                }
                for (name, value) in dims {
                    match s.dims().iter().find(|(n, _)| n == name) {
                        Some((_, v)) if v == value => {}
                        Some((_, v)) => bail!("the bundle was compiled for {name}={v}, not {value}"),
                        None => bail!("the bundle has no symbol `{name}`"),
                    }
                }
                Ok(s.complete_inputs(given)?)
            }
        }
    }
    /// Splits arrays by name to inputs and expected outputs.
    fn sort(&self, plain: Named, given: &Named, dims: &[(String, i64)]) -> Result<(Named, Named)> {
        let outputs: Vec<String> = match self {
            Engine::Model(s) => {
                let all: Named = given.iter().chain(&plain).cloned().collect();
                s.module().graph(&all, dims)?.outputs.iter().map(|o| o.name.clone()).collect()
            }
            Engine::Bundle { session: s, .. } => s.bundle().outputs.iter().map(|p| p.name.clone()).collect(),
        };
        let (out, rest): (Named, Named) = plain.into_iter().partition(|(n, _)| outputs.contains(n));
        if out.is_empty() {
            let names: Vec<&str> = rest.iter().map(|(n, _)| n.as_str()).collect();
            bail!("no expected output among {}; the outputs are {}", names.join(", "), outputs.join(", "));
        }
        Ok((rest, out))
    }
    fn run_into(&mut self, inputs: &Named, outputs: &mut Outputs) -> Result<()> {
        match self {
            Engine::Model(s) => s.run_into(inputs, outputs)?,
            Engine::Bundle { session: s, .. } => s.run_into(inputs, outputs)?,
        }
        Ok(())
    }
    fn last_run(&self) -> &RunReport {
        match self {
            Engine::Model(s) => s.last_run(),
            Engine::Bundle { session: s, .. } => s.last_run(),
        }
    }
}

/// A set of inputs to run, with what should come out.
struct Job {
    label: String,
    inputs: Named,
    expected: Named,
}

/// An output beside what it should be.
struct Verdict {
    label: String,
    name: String,
    shape: String,
    tol: Tolerance,
    absolute: f64,
    relative: f64,
    difference: Option<String>,
}

impl Verdict {
    fn new(job: &Job, name: &str, got: Option<&Tensor>, expected: &Tensor, a: &RunArgs) -> Verdict {
        let label = job.label.clone();
        let Some(got) = got else {
            let difference = Some("does not exist".to_string());
            let shape = format!("{}{:?}", expected.dtype(), expected.shape());
            let tol = Tolerance::of(expected.dtype());
            return Verdict {
                label,
                name: name.into(),
                shape,
                tol,
                absolute: 0.0,
                relative: 0.0,
                difference,
            };
        };
        let expected = npz::stored_as(expected.clone(), got.dtype());
        let default = Tolerance::of(got.dtype());
        let tol = Tolerance { rtol: a.rtol.unwrap_or(default.rtol), atol: a.atol.unwrap_or(default.atol) };
        Verdict {
            label,
            name: name.into(),
            shape: format!("{}{:?}", got.dtype(), got.shape()),
            tol,
            absolute: max_difference(got, &expected),
            relative: max_relative(got, &expected),
            difference: compare(got, &expected, tol).err().map(|d| d.to_string()),
        }
    }
    fn json(&self) -> serde_json::Value {
        json!({
            "step": self.label, "output": self.name, "type": self.shape, "rtol": self.tol.rtol, "atol": self.tol.atol,
            "max_absolute": self.absolute, "max_relative": self.relative, "difference": self.difference,
        })
    }
}

/// A row an output.
fn comparison(verdicts: &[Verdict]) -> String {
    let mut table =
        Table::new(&["step", "output", "type", "rtol", "atol", "max |o-r|", "max |o-r|/|r|", "verdict"]);
    for v in verdicts.iter().take(MAX_ROWS) {
        table.row(vec![
            v.label.clone(),
            v.name.clone(),
            v.shape.clone(),
            format!("{:e}", v.tol.rtol),
            format!("{:e}", v.tol.atol),
            format!("{:.3e}", v.absolute),
            format!("{:.3e}", v.relative),
            if v.difference.is_none() { "right".into() } else { "differs".into() },
        ]);
    }
    let more = verdicts.len().saturating_sub(MAX_ROWS);
    if more > 0 { format!("{table}and {more} more\n") } else { table.to_string() }
}

fn bytes_of(arrays: &Named) -> u64 {
    arrays.iter().map(|(_, t)| t.bytes().len() as u64).sum()
}

pub(crate) fn run(a: &RunArgs) -> Result<Outcome> {
    let given = given(a.inputs.as_deref(), &a.input)?;
    let steps = goldens(&a.golden)?;
    let arrays = steps.iter().flat_map(|s| [&s.inputs, &s.outputs, &s.plain]).chain([&given]);
    let mut engine = Engine::open(a, arrays.map(bytes_of).sum())?;
    let jobs = jobs(a, &engine, given, steps)?;
    let mut outputs = Outputs::new();
    let mut reports = Vec::new();
    let mut verdicts = Vec::new();
    let progress = progress(jobs.len() as u64 * u64::from(a.repeat), a.json);
    for job in &jobs {
        for _ in 0..a.repeat {
            engine.run_into(&job.inputs, &mut outputs).with_context(|| job.label.clone())?;
            reports.push((job.label.clone(), engine.last_run().clone()));
            progress.inc(1);
        }
        for (name, expected) in &job.expected {
            verdicts.push(Verdict::new(job, name, outputs.get(name), expected, a));
        }
    }
    progress.finish_and_clear();
    if let Some(path) = &a.outputs {
        let all: Named = outputs.iter().map(|(n, t)| (n.clone(), t.clone())).collect();
        npz::save_npz(path, &all)?;
    }
    let failures: Vec<String> = verdicts
        .iter()
        .filter_map(|v| Some(format!("{}: output `{}` {}", v.label, v.name, v.difference.as_ref()?)))
        .collect();
    if a.json {
        let mut doc =
            json!({ "version": 1, "runs": reports.iter().map(|(_, r)| report_json(r)).collect::<Vec<_>>() });
        if !a.golden.is_empty() {
            doc["differences"] = json!(failures);
            doc["outputs"] = verdicts.iter().map(Verdict::json).collect();
        }
        say_json(&doc)?;
    } else {
        say(&describe(&reports, &outputs, a))?;
        if !verdicts.is_empty() {
            say(&comparison(&verdicts))?;
        }
    }
    if failures.is_empty() {
        return Ok(Outcome::Right);
    }
    eprintln!("values differ:");
    for f in &failures {
        eprintln!("  {f}");
    }
    Ok(Outcome::ValuesDiffer)
}

fn jobs(a: &RunArgs, engine: &Engine, given: Named, steps: Vec<GoldenStep>) -> Result<Vec<Job>> {
    if steps.is_empty() {
        return dim_runs(&a.dim)?
            .iter()
            .map(|dims| {
                let label: Vec<String> = dims.iter().map(|(n, v)| format!("{n}={v}")).collect();
                Ok(Job { label: label.join(" "), inputs: engine.inputs(&given, dims)?, expected: vec![] })
            })
            .collect();
    }
    let dims: Vec<(String, i64)> = match dim_runs(&a.dim)?.as_slice() {
        [one] => one.clone(),
        _ => bail!(Usage("--dim lists cannot be combined with --golden".into())),
    };
    steps
        .into_iter()
        .map(|mut step| {
            if !step.plain.is_empty() {
                let plain = std::mem::take(&mut step.plain);
                (step.inputs, step.outputs) =
                    engine.sort(plain, &given, &dims).with_context(|| step.label.clone())?;
                step.inputs.retain(|(n, _)| !given.iter().any(|(m, _)| n == m));
            }
            let mut inputs = step.inputs;
            for (n, t) in &given {
                if !inputs.iter().any(|(m, _)| m == n) {
                    inputs.push((n.clone(), t.clone()));
                }
            }
            let inputs = engine.inputs(&inputs, &dims).with_context(|| step.label.clone())?;
            Ok(Job { label: step.label, inputs, expected: step.outputs })
        })
        .collect()
}

/// A bar on standard error for work that may take long; none for machines.
fn progress(runs: u64, json: bool) -> indicatif::ProgressBar {
    if json || runs < 8 { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(runs) }
}

fn report_json(r: &RunReport) -> serde_json::Value {
    let dims: serde_json::Map<String, serde_json::Value> =
        r.dims.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    let mut doc = json!({
        "dims": dims, "plan_us": r.plan_us, "compile_us": r.compile_us, "run_us": r.run_us, "cache_hit": r.cache_hit,
        "launches": r.launches, "steps": r.steps, "kernels": r.kernels, "bytecode_bytes": r.bytecode_bytes,
        "peak_bytes": r.peak_bytes,
    });
    if r.loaded_bytes + r.stored_bytes > 0 {
        doc["loaded_bytes"] = json!(r.loaded_bytes);
        doc["stored_bytes"] = json!(r.stored_bytes);
    }
    doc
}

/// Most rows printed; repeats beyond that are summed up by their medians.
const MAX_ROWS: usize = 40;

fn describe(reports: &[(String, RunReport)], outputs: &Outputs, a: &RunArgs) -> String {
    let mut table =
        Table::new(&["run", "plan µs", "compile µs", "run µs", "cached", "kernels", "bytecode B", "peak B"]);
    let repeat = a.repeat as usize;
    let folded = reports.len() > MAX_ROWS && repeat > 1;
    for group in reports.chunks(if folded { repeat } else { 1 }) {
        let (label, first) = &group[0];
        let last = &group[group.len() - 1].1;
        let mut times: Vec<f64> = group.iter().map(|(_, r)| r.run_us).collect();
        times.sort_by(f64::total_cmp);
        let label = if label.is_empty() { "run".to_string() } else { label.clone() };
        table.row(vec![
            if folded { format!("{label} (median of {repeat})") } else { label },
            format!("{:.0}", first.plan_us),
            format!("{:.1}", first.compile_us),
            format!("{:.1}", times[times.len() / 2]),
            if first.cache_hit { "yes".into() } else { "no".into() },
            last.kernels.to_string(),
            thousands(last.bytecode_bytes),
            thousands(last.peak_bytes),
        ]);
    }
    let mut text = table.to_string();
    for (name, t) in outputs {
        let shown: Vec<String> = (0..t.len().min(6)).map(|i| show(t.get(i).as_f64())).collect();
        let more = if t.len() > 6 { ", .." } else { "" };
        text.push_str(&format!("{name}: {}{:?} = [{}{more}]\n", t.dtype(), t.shape(), shown.join(", ")));
    }
    if let (true, Some((_, r))) = (a.traffic, reports.last()) {
        text.push_str(&format!(
            "traffic of the last run: {} B loaded, {} B stored\n",
            thousands(r.loaded_bytes as usize),
            thousands(r.stored_bytes as usize)
        ));
    }
    if !a.golden.is_empty() {
        text.push_str(&format!("compared with {} golden step(s)\n", reports.len() / repeat));
    }
    text
}

fn show(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e9 { format!("{x}") } else { format!("{x:.5}") }
}
