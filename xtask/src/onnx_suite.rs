//! `cargo xtask onnx-suite`: runs the node tests that the Python package `onnx` generates and reports what passes.
//!
//! A case is in scope when all its ops and element types are; what is out of scope is declared here, by reason, and goes
//! into `docs/onnx.md` with the table of results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use dvm_ir::{DType, Tensor};
use dvm_onnx::proto::{GraphProto, ModelProto, type_proto};
use dvm_onnx::{Family, ImportOptions};

/// What runs the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// The reference evaluator.
    Eval,
    /// Fused, compiled, on the host's cores.
    Vm,
    /// As `Vm`, one kernel per op.
    Unfused,
}

impl std::str::FromStr for Engine {
    type Err = anyhow::Error;
    fn from_str(s: &str) -> Result<Engine> {
        Ok(match s {
            "eval" => Engine::Eval,
            "vm" => Engine::Vm,
            "unfused" => Engine::Unfused,
            other => bail!("engine `{other}`: eval, vm or unfused"),
        })
    }
}

impl Engine {
    fn run(self, model: &[u8], inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
        if self == Engine::Eval {
            let imported =
                dvm_onnx::import_deciding(&dvm_onnx::decode(model)?, &ImportOptions::default(), inputs)?;
            let graph = &imported.graph;
            let used: Vec<&(String, Tensor)> =
                inputs.iter().filter(|(n, _)| graph.inputs.iter().any(|i| i.name == *n)).collect();
            let used: Vec<(&str, Tensor)> = used.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
            let outs = dvm_ir::eval::eval_graph(graph, &used)?;
            return Ok(graph.outputs.iter().map(|o| o.name.clone()).zip(outs).collect());
        }
        let module = dvm::Module::from_onnx_bytes(model)?;
        let mut options = dvm::Options::default();
        options.check = true;
        options.threads = Some(2);
        options.fuse = self == Engine::Vm;
        let mut session = dvm::Session::new(&module, options)?;
        let outs = session.run(inputs.iter().cloned())?;
        Ok(outs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Interpreter whose `onnx` package is used.
    pub(crate) python: Option<PathBuf>,
    /// Cases already written.
    pub(crate) dir: Option<PathBuf>,
    /// Only cases whose name or op contains this.
    pub(crate) filter: Option<String>,
    pub(crate) json: bool,
    pub(crate) engine: Option<Engine>,
    /// Show failures out of scope too.
    pub(crate) all: bool,
    /// Write the table into this file, between its markers.
    pub(crate) docs: Option<PathBuf>,
}

/// Ops that are out of scope, by reason.
const OUT_OF_SCOPE: &[(&str, &[&str])] = &[
    (
        "sequences and optionals",
        &[
            "SequenceConstruct",
            "SequenceAt",
            "SequenceEmpty",
            "SequenceInsert",
            "SequenceErase",
            "SequenceLength",
            "SequenceMap",
            "SplitToSequence",
            "ConcatFromSequence",
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
        ],
    ),
    ("strings", &["StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"]),
    (
        "images",
        &[
            "GridSample",
            "RoiAlign",
            "AffineGrid",
            "ImageDecoder",
            "Col2Im",
            "MaxUnpool",
            "MaxRoiPool",
            "DeformConv",
        ],
    ),
    ("signals", &["DFT", "STFT", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow"]),
    (
        "random numbers",
        &[
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
            "Bernoulli",
            "Multinomial",
        ],
    ),
    ("training", &["Adam", "Adagrad", "Momentum", "Gradient"]),
    ("linear algebra", &["Det"]),
    (
        "attention as a recurrence or with a body",
        &["LinearAttention", "CausalConvWithState", "FlexAttention"],
    ),
    ("bits reinterpreted", &["BitCast"]),
];

/// Why a model is out of scope, if it is.
fn out_of_scope(model: &ModelProto) -> Option<String> {
    let graph = model.graph.as_ref()?;
    let functions: BTreeSet<&str> = model.functions.iter().filter_map(|f| f.name.as_deref()).collect();
    let opset =
        model.opset_import.iter().find(|o| matches!(o.domain.as_deref(), None | Some("" | "ai.onnx")));
    if opset.is_some_and(|o| o.version.unwrap_or(1) < 7) {
        return Some("operator sets before 7".to_string());
    }
    for node in &graph.node {
        let domain = node.domain.as_deref().unwrap_or("");
        if !matches!(domain, "" | "ai.onnx") && !functions.contains(node.op_type.as_deref().unwrap_or("")) {
            return Some(format!("domain {domain}"));
        }
        let op = node.op_type.as_deref().unwrap_or("");
        if let Some((reason, _)) = OUT_OF_SCOPE.iter().find(|(_, ops)| ops.contains(&op)) {
            return Some((*reason).to_string());
        }
        let training =
            |name: &str| node.attribute.iter().any(|a| a.name.as_deref() == Some(name) && a.i == Some(1));
        if training("training_mode") || (op == "Dropout" && node.input.len() > 2) {
            return Some("training".to_string());
        }
    }
    for info in graph.input.iter().chain(&graph.output) {
        match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
            Some(type_proto::Value::Tensor(t)) => {
                if DType::from_onnx(t.elem_type.unwrap_or(0)).is_none() {
                    return Some("element types without a dtype".to_string());
                }
            }
            _ => return Some("sequences and optionals".to_string()),
        }
    }
    // Casts on the way to such a type.
    let odd = graph.node.iter().flat_map(|n| &n.attribute).any(|a| {
        matches!(a.name.as_deref(), Some("to" | "output_dtype"))
            && a.i.is_some_and(|i| i > 0 && DType::from_onnx(i as i32).is_none())
    });
    odd.then(|| "element types without a dtype".to_string())
}

struct Case {
    name: String,
    op: String,
    scope: Option<String>,
    failure: Option<String>,
}

pub(crate) fn run(opts: &Options) -> Result<bool> {
    let engine = opts.engine.unwrap_or(Engine::Vm);
    let dir = match &opts.dir {
        Some(d) => d.clone(),
        None => generate(opts.python.as_deref().unwrap_or(Path::new("python3")))?,
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.join("model.onnx").is_file())
        .collect();
    folders.sort();
    ensure!(!folders.is_empty(), "no cases in {}", dir.display());
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut cases = vec![];
    for folder in &folders {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let bytes = std::fs::read(folder.join("model.onnx"))?;
        let model = dvm_onnx::decode(&bytes)?;
        let op = main_op(&dir, &name, &model);
        if opts.filter.as_ref().is_some_and(|f| !name.contains(f.as_str()) && !op.contains(f.as_str())) {
            continue;
        }
        let scope = out_of_scope(&model);
        let result = std::panic::catch_unwind(|| check(folder, &bytes, &model, engine));
        let failure = match result {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(format!("{e:#}")),
            Err(p) => {
                let text =
                    p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
                Some(format!("panicked: {}", text.unwrap_or("?")))
            }
        };
        cases.push(Case { name, op, scope, failure });
    }
    std::panic::set_hook(quiet);
    let report = Report::new(&cases);
    if opts.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text(opts.all));
    }
    if let Some(path) = &opts.docs {
        report.write_docs(path)?;
    }
    Ok(report.cases.iter().all(|c| c.scope.is_some() || c.failure.is_none()))
}

/// Writes the cases of the interpreter's `onnx` package into a folder named after its version, once.
fn generate(python: &Path) -> Result<PathBuf> {
    let version = Command::new(python)
        .args(["-c", "import onnx; print(onnx.__version__)"])
        .output()
        .with_context(|| format!("running {}", python.display()))?;
    if !version.status.success() {
        bail!("{} has no package `onnx`: {}", python.display(), String::from_utf8_lossy(&version.stderr));
    }
    let version = String::from_utf8_lossy(&version.stdout).trim().to_string();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let dir = target.join(format!("onnx-node-tests-{version}"));
    if dir.join("complete").is_file() {
        return Ok(dir);
    }
    eprintln!("writing the node tests of onnx {version} into {}", dir.display());
    std::fs::create_dir_all(&dir)?;
    let status = Command::new(python).arg("-c").arg(include_str!("onnx_suite_dump.py")).arg(&dir).status()?;
    ensure!(status.success(), "the node tests could not be written");
    Ok(dir)
}

/// The op a case is about: that of its single node, or of the case it expands.
fn main_op(dir: &Path, name: &str, model: &ModelProto) -> String {
    let first = |m: &ModelProto| {
        let node = m.graph.as_ref().and_then(|g| g.node.last());
        node.and_then(|n| n.op_type.clone()).unwrap_or_default()
    };
    if let Some((base, _)) = name.split_once("_expanded")
        && let Ok(bytes) = std::fs::read(dir.join(base).join("model.onnx"))
        && let Ok(base) = dvm_onnx::decode(&bytes)
    {
        return first(&base);
    }
    first(model)
}

fn check(folder: &Path, bytes: &[u8], model: &ModelProto, engine: Engine) -> Result<()> {
    let graph = model.graph.as_ref().context("no graph")?;
    let (rtol, atol) = tolerance(folder);
    let mut sets = 0;
    loop {
        let set = folder.join(format!("test_data_set_{sets}"));
        if !set.is_dir() {
            break;
        }
        sets += 1;
        let inputs = tensors(&set, "input", graph)?;
        let wanted = tensors(&set, "output", graph)?;
        let outs = engine.run(bytes, &inputs)?;
        for (name, want) in wanted {
            let found = outs.iter().find(|(n, _)| *n == name);
            let (_, got) = found.with_context(|| format!("no output {name}"))?;
            compare(got, &want, rtol, atol).with_context(|| format!("output {name}"))?;
        }
    }
    ensure!(sets > 0, "no data");
    Ok(())
}

fn tolerance(folder: &Path) -> (f64, f64) {
    let parsed = std::fs::read_to_string(folder.join("tolerance.json"))
        .ok()
        .and_then(|s| serde_json::from_str::<serde_json::Value>(&s).ok());
    let get = |k: &str| parsed.as_ref().and_then(|v| v[k].as_f64());
    (get("rtol").unwrap_or(1e-3), get("atol").unwrap_or(1e-7))
}

fn tensors(set: &Path, kind: &str, graph: &GraphProto) -> Result<Vec<(String, Tensor)>> {
    let infos = if kind == "input" { &graph.input } else { &graph.output };
    let mut out = vec![];
    for (i, info) in infos.iter().enumerate() {
        let path = set.join(format!("{kind}_{i}.pb"));
        if !path.is_file() {
            break;
        }
        let (_, t) = dvm_onnx::decode_tensor(&std::fs::read(&path)?)?;
        out.push((info.name.clone().unwrap_or_default(), t));
    }
    Ok(out)
}

/// |o - r| <= atol + rtol * |r|, NaN equals NaN, integers and bool exact.
fn compare(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Result<()> {
    ensure!(
        (got.dtype(), got.shape()) == (want.dtype(), want.shape()),
        "{}{:?}, want {}{:?}",
        got.dtype(),
        got.shape(),
        want.dtype(),
        want.shape()
    );
    // Two rounding steps of a half are wider than the general tolerance.
    let rtol = match want.dtype() {
        DType::F16 => rtol.max(2e-3),
        DType::BF16 => rtol.max(1.6e-2),
        _ => rtol,
    };
    for i in 0..want.len() {
        let (g, w) = (got.get(i).as_f64(), want.get(i).as_f64());
        let same = if want.dtype().is_float() {
            g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= atol + rtol * w.abs()
        } else {
            got.get(i) == want.get(i)
        };
        ensure!(same, "element {i} is {g}, want {w}");
    }
    Ok(())
}

struct Report<'a> {
    cases: &'a [Case],
    /// Passed and all, by op, in scope.
    ops: BTreeMap<&'a str, (usize, usize)>,
}

impl<'a> Report<'a> {
    fn new(cases: &'a [Case]) -> Report<'a> {
        let mut ops: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for c in cases.iter().filter(|c| c.scope.is_none()) {
            let e = ops.entry(&c.op).or_default();
            e.0 += usize::from(c.failure.is_none());
            e.1 += 1;
        }
        Report { cases, ops }
    }
    fn totals(&self) -> (usize, usize) {
        self.ops.values().fold((0, 0), |(p, n), &(q, m)| (p + q, n + m))
    }
    fn outside(&self) -> BTreeMap<&str, (usize, usize)> {
        let mut out: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for c in self.cases {
            if let Some(reason) = &c.scope {
                let e = out.entry(reason).or_default();
                e.0 += usize::from(c.failure.is_none());
                e.1 += 1;
            }
        }
        out
    }
    fn text(&self, all: bool) -> String {
        let mut s = String::new();
        let width = self.ops.keys().map(|k| k.len()).max().unwrap_or(0);
        for (op, (p, n)) in &self.ops {
            _ = writeln!(s, "{op:width$}  {p:>3} / {n}");
        }
        let failed = |c: &&Case| c.failure.is_some() && (all || c.scope.is_none());
        for c in self.cases.iter().filter(failed) {
            let reason =
                c.failure.as_deref().unwrap_or("").lines().map(str::trim).collect::<Vec<_>>().join(" ");
            _ = writeln!(s, "FAILED {}: {reason}", c.name);
        }
        for (reason, (p, n)) in self.outside() {
            _ = writeln!(s, "out of scope: {reason}: {n} cases, {p} of them pass");
        }
        let (p, n) = self.totals();
        _ = writeln!(s, "passed {p} of {n} in scope ({:.1} %)", 100.0 * p as f64 / n.max(1) as f64);
        s
    }
    fn json(&self) -> String {
        let (passed, in_scope) = self.totals();
        let ops: BTreeMap<_, _> = self.ops.iter().map(|(k, (p, n))| (k, [p, n])).collect();
        let failures: BTreeMap<_, _> = self
            .cases
            .iter()
            .filter(|c| c.scope.is_none())
            .filter_map(|c| c.failure.as_ref().map(|f| (&c.name, f)))
            .collect();
        serde_json::json!({
            "version": 1, "passed": passed, "in_scope": in_scope, "ops": ops, "failures": failures,
            "out_of_scope": self.outside(),
        })
        .to_string()
    }

    /// Replaces what stands between the markers of a Markdown file.
    fn write_docs(&self, path: &Path) -> Result<()> {
        const BEGIN: &str = "<!-- generated by `cargo xtask onnx-suite --docs`, do not edit -->";
        const END: &str = "<!-- end of the generated part -->";
        let text = std::fs::read_to_string(path)?;
        let (head, rest) = text.split_once(BEGIN).context("the marker is missing")?;
        let (_, tail) = rest.split_once(END).context("the end marker is missing")?;
        std::fs::write(path, format!("{head}{BEGIN}\n{}{END}{tail}", self.markdown()))?;
        Ok(())
    }
    fn markdown(&self) -> String {
        let mut s = String::new();
        let (p, n) = self.totals();
        _ = writeln!(s, "\n{p} of {n} node tests in scope pass.\n");
        for Family { name, rows, .. } in dvm_onnx::op_table() {
            _ = writeln!(s, "### {}{}\n", name[..1].to_uppercase(), &name[1..]);
            _ = writeln!(s, "| op | since | node tests | remark |\n|---|---|---|---|");
            for r in *rows {
                let op =
                    if r.domain.is_empty() { r.name.to_string() } else { format!("{}.{}", r.domain, r.name) };
                let tests = self.ops.get(op.as_str()).map_or(String::new(), |(p, n)| format!("{p} / {n}"));
                _ = writeln!(s, "| {op} | {} | {tests} | {} |", r.since, r.note);
            }
            s.push('\n');
        }
        let known: BTreeSet<&str> =
            dvm_onnx::op_table().iter().flat_map(|f| f.rows).map(|r| r.name).collect();
        let missing: Vec<&&str> = self.ops.keys().filter(|k| !known.contains(**k)).collect();
        if !missing.is_empty() {
            let list = missing.iter().map(|m| m.to_string()).collect::<Vec<_>>().join(", ");
            _ = writeln!(s, "In scope but not imported: {list}.\n");
        }
        _ = writeln!(s, "### Out of scope\n\n| reason | ops |\n|---|---|");
        for (reason, ops) in OUT_OF_SCOPE {
            _ = writeln!(s, "| {reason} | {} |", ops.join(", "));
        }
        _ = writeln!(
            s,
            "| element types without a dtype | strings, complex numbers, 8-bit and smaller floats, 4- and 2-bit integers |"
        );
        _ = writeln!(s, "| other domains | `ai.onnx.ml`, `ai.onnx.preview.training` |\n");
        s
    }
}
