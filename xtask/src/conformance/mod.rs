//! `cargo xtask conformance`: the kernel cases in every form, on every machine, against the reference evaluator.

mod build;
mod case;
mod forms;
mod onnx;
mod run;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dvm_ir::Tensor;
use serde_json::json;

use case::Case;
use run::{Bench, Group};

/// Machines that cases are compiled for, the host first. Programs for any of them run on the host's cores.
const MACHINES: &[&str] = &["host", "ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-950"];
/// What tests have time for.
const QUICK: (f64, f64) = (4e5, 2e8);

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) cases: Option<PathBuf>,
    pub(crate) only: Option<String>,
    pub(crate) heavy: bool,
    pub(crate) quick: bool,
    pub(crate) json: bool,
    pub(crate) dump: Option<PathBuf>,
    /// The `dvm` command that runs what is dumped.
    pub(crate) with: Option<PathBuf>,
    pub(crate) docs: Option<PathBuf>,
}

/// How a case ended.
#[derive(Debug)]
enum Status {
    Passed,
    Skipped(&'static str),
    Failed(Vec<String>),
}

#[derive(Debug)]
struct Outcome {
    id: String,
    kind: String,
    status: Status,
}

/// Where the cases lie: beside the repository unless told otherwise.
fn path(given: Option<&PathBuf>) -> PathBuf {
    let shared =
        || std::env::var_os("DVM_SHARED").map_or_else(|| crate::root().join("../shared"), PathBuf::from);
    given.cloned().unwrap_or_else(|| shared().join("cases/kernel-cases.jsonl"))
}

/// Whether a name matches a pattern of `*` and literal text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for p in middle {
        match rest.find(p) {
            Some(i) => rest = &rest[i + p.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

pub(crate) fn run(opts: &Options) -> Result<bool> {
    let mut cases = case::load(&path(opts.cases.as_ref()))?;
    if let Some(p) = &opts.only {
        cases.retain(|c| matches(p, &c.id));
        ensure!(!cases.is_empty(), "no case is called {p}");
    }
    if opts.quick {
        cases.retain(|c| c.elements < QUICK.0 && c.matmul_flops < QUICK.1);
    }
    if let Some(dir) = &opts.dump {
        return dump(&cases, dir, opts);
    }
    let start = Instant::now();
    let outcomes = outcomes(&cases, opts.heavy, opts.json, MACHINES)?;
    let table = table(&outcomes);
    if opts.json {
        println!("{}", report(&outcomes));
    } else {
        print!("{}", text(&table, &outcomes));
        eprintln!("{} cases in {:.0} s", outcomes.len(), start.elapsed().as_secs_f64());
    }
    if let Some(path) = &opts.docs {
        write_docs(path, &table)?;
    }
    Ok(outcomes.iter().all(|o| !matches!(o.status, Status::Failed(_))))
}

fn outcomes(cases: &[Case], heavy: bool, quiet: bool, machines: &[&str]) -> Result<Vec<Outcome>> {
    let bench = Bench::new(machines)?;
    let bar = if quiet {
        indicatif::ProgressBar::hidden()
    } else {
        indicatif::ProgressBar::new(cases.len() as u64)
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = vec![];
    for group in run::groups(cases) {
        let kind = |c: &Case| c.kernel_type.clone();
        if group.0.iter().any(|c| c.heavy) && !heavy {
            out.extend(group.0.iter().map(|c| Outcome {
                id: c.id.clone(),
                kind: kind(c),
                status: Status::Skipped("heavy: needs --heavy"),
            }));
            bar.inc(group.0.len() as u64);
            continue;
        }
        for c in &group.0 {
            bar.set_message(c.id.clone());
        }
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.run(&group)));
        let made = made.unwrap_or_else(|p| {
            let text = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
            let what = format!("panicked: {}", text.unwrap_or("?"));
            group.0.iter().map(|c| (c.id.clone(), vec![what.clone()])).collect()
        });
        for ((id, problems), c) in made.into_iter().zip(&group.0) {
            let status = if problems.is_empty() { Status::Passed } else { Status::Failed(problems) };
            out.push(Outcome { id, kind: kind(c), status });
            bar.inc(1);
        }
    }
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    Ok(out)
}

/// Per kind: cases, passed, skipped, failed.
type Table = BTreeMap<String, [usize; 4]>;

fn table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new();
    for o in outcomes {
        let row = t.entry(o.kind.clone()).or_default();
        row[0] += 1;
        row[match o.status {
            Status::Passed => 1,
            Status::Skipped(_) => 2,
            Status::Failed(_) => 3,
        }] += 1;
    }
    t
}

fn total(t: &Table) -> [usize; 4] {
    t.values().fold([0; 4], |a, r| std::array::from_fn(|i| a[i] + r[i]))
}

fn text(t: &Table, outcomes: &[Outcome]) -> String {
    let mut s = format!("{:<24} {:>6} {:>7} {:>8} {:>7}\n", "kind", "cases", "passed", "skipped", "failed");
    let all = total(t);
    for (kind, r) in t.iter().map(|(k, r)| (k.as_str(), *r)).chain([("all", all)]) {
        _ = writeln!(s, "{kind:<24} {:>6} {:>7} {:>8} {:>7}", r[0], r[1], r[2], r[3]);
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for o in outcomes {
        match &o.status {
            Status::Failed(problems) => {
                _ = writeln!(s, "{}", o.id);
                for p in problems.iter().take(8) {
                    _ = writeln!(s, "  {p}");
                }
            }
            Status::Skipped(why) => reasons.entry(why).or_default().push(&o.id),
            Status::Passed => {}
        }
    }
    for (why, ids) in reasons {
        _ = writeln!(s, "skipped, {why}: {}", ids.join(", "));
    }
    s
}

fn report(outcomes: &[Outcome]) -> serde_json::Value {
    let case = |o: &Outcome| match &o.status {
        Status::Passed => json!({ "id": o.id, "kind": o.kind, "status": "passed" }),
        Status::Skipped(why) => json!({ "id": o.id, "kind": o.kind, "status": "skipped", "reason": why }),
        Status::Failed(p) => json!({ "id": o.id, "kind": o.kind, "status": "failed", "problems": p }),
    };
    json!({ "version": 1, "cases": outcomes.iter().map(case).collect::<Vec<_>>() })
}

const BEGIN: &str = "<!-- generated by `cargo xtask conformance --docs`, do not edit -->";
const END: &str = "<!-- end of the generated part -->";

fn write_docs(path: &Path, t: &Table) -> Result<()> {
    let text = std::fs::read_to_string(path)?;
    let (before, rest) = text.split_once(BEGIN).context("no generated part")?;
    let (_, after) = rest.split_once(END).context("the generated part has no end")?;
    let mut s = String::from("\n\n| kind | cases | passed | skipped | failed |\n|---|---|---|---|---|\n");
    for (kind, r) in t.iter().map(|(k, r)| (k.as_str(), *r)).chain([("all", total(t))]) {
        _ = writeln!(s, "| {kind} | {} | {} | {} | {} |", r[0], r[1], r[2], r[3]);
    }
    s.push('\n');
    dvm::npz::write_whole(path, format!("{before}{BEGIN}{s}{END}{after}").as_bytes())?;
    Ok(())
}

/// What is written for a case: model, inputs, expected outputs.
struct Files {
    name: String,
    model: Vec<u8>,
    arrays: Vec<(String, Tensor)>,
    tolerance: f64,
}

/// Each case as NAME.onnx and NAME.npz (in.X, out.Y), each group as one model with its steps; with a `dvm` command they are run.
fn dump(cases: &[Case], dir: &Path, opts: &Options) -> Result<bool> {
    std::fs::create_dir_all(dir)?;
    let (mut written, mut failed) = (0, vec![]);
    for group in run::groups(cases) {
        if group.0.iter().any(|c| c.heavy) && !opts.heavy {
            continue;
        }
        for f in files(&group)? {
            let (model, golden) = (dir.join(format!("{}.onnx", f.name)), dir.join(format!("{}.npz", f.name)));
            std::fs::write(&model, &f.model)?;
            dvm::npz::save_npz(&golden, &f.arrays)?;
            written += 1;
            if let Some(dvm) = &opts.with {
                let tol = format!("{:e}", f.tolerance);
                let out = Command::new(dvm)
                    .arg("run")
                    .arg(&model)
                    .arg("--golden")
                    .arg(&golden)
                    .args(["--rtol", &tol, "--atol", &tol])
                    .output()
                    .with_context(|| dvm.display().to_string())?;
                if !out.status.success() {
                    failed.push(format!("{}: {}", f.name, String::from_utf8_lossy(&out.stderr).trim()));
                }
            }
        }
    }
    println!("{written} models in {}", dir.display());
    if opts.with.is_some() {
        println!("{} ran right, {} did not", written - failed.len(), failed.len());
    }
    failed.iter().for_each(|f| println!("{f}"));
    Ok(failed.is_empty())
}

fn files(group: &Group<'_>) -> Result<Vec<Files>> {
    let open = run::open_attributes(&group.0);
    let mut out = vec![];
    let mut steps: Option<Files> = None;
    for (k, case) in group.0.iter().enumerate() {
        let given = case::inputs(case)?;
        let mut types = build::Types::new();
        let graph = forms::GraphForm::of(case, &given, &mut types, true)?;
        let want = dvm_ir::eval::eval_graph(&graph, &given).with_context(|| case.id.clone())?;
        let tolerance = case.outputs.iter().filter_map(|o| o.tolerance).fold(case.tolerance, f64::max);
        let arrays = |at: String, extra: &[(String, Tensor)]| {
            let ins = given.iter().chain(extra).map(|(n, t)| (format!("{at}in.{n}"), t.clone()));
            let outs =
                graph.outputs.iter().zip(&want).map(|(o, t)| (format!("{at}out.{}", o.name), t.clone()));
            ins.chain(outs).collect::<Vec<_>>()
        };
        let model = onnx::OnnxForm::model(case, &given, &mut types.clone(), None)?;
        out.push(Files {
            name: case.id.clone(),
            model: model.bytes,
            arrays: arrays(String::new(), &[]),
            tolerance,
        });
        if open.is_some() {
            let model = onnx::OnnxForm::model(case, &given, &mut types, open.as_ref())?;
            let of_step = arrays(format!("s{k}."), &model.extra);
            match &mut steps {
                Some(f) => f.arrays.extend(of_step),
                None => {
                    let name = case.group.clone().unwrap_or_else(|| case.id.clone());
                    steps = Some(Files { name, model: model.bytes, arrays: of_step, tolerance });
                }
            }
        }
    }
    out.extend(steps);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expect) in [
            ("gmm-*", "gmm-m-1", true),
            ("*", "anything", true),
            ("*-add", "mm-add", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        }
    }

    /// The small cases in every form, on the host and on one machine with pipes.
    #[test]
    fn small_cases() {
        let path = path(None);
        if !path.is_file() {
            assert!(std::env::var_os("DVM_REQUIRE_SHARED").is_none(), "no {}", path.display());
            eprintln!("skipped: no {} (set DVM_SHARED)", path.display());
            return;
        }
        let mut cases = case::load(&path).unwrap();
        cases.retain(|c| c.elements < QUICK.0 && c.matmul_flops < QUICK.1);
        assert!(cases.len() > 300, "{} cases", cases.len());
        let all = outcomes(&cases, false, true, &["host", "ascend-910b2"]).unwrap();
        let table = table(&all);
        assert_eq!(total(&table)[1], all.len(), "{}", text(&table, &all));
    }
}
