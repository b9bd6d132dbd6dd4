//! How far the tiler's choice is from the best tiling that a search finds, measured.
//!
//! Kernels times shapes, each in at least 60 tilings where it has as many. All are timed, then the five fastest and the tiler's
//! choice again, in alternation, so that what else the machine does falls on all of them alike.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use dvm::bc::{Limits, Verified, layout::pack_panels};
use dvm::ir::testing::{Rng, random_tensor};
use dvm::ir::{Bindings, DType, DimValues, Graph, Plan, Tensor};
use dvm::{MachineSpec, Options as Facade};
use dvm_tile::{ArgBinding, Compiled, Forced, Scratch, Tiling, compile_plan};
use dvm_vm::{ArgRef, BuildOptions, Executable, Pool, Runtime};
use serde::Serialize;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Every tenth case, fewer rounds.
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Only cases whose name contains this.
    pub(crate) only: Option<String>,
    /// Threads; those of the machine by default.
    pub(crate) threads: Option<usize>,
}

/// Tilings per case.
const CANDIDATES: usize = 60;
const FINALISTS: usize = 5;

const FAMILIES: &[(&str, &str)] = &[
    ("add", "(%x: f32[n, m], %y: f32[n, m]) -> (%z) {\n  %z = add %x, %y\n}"),
    (
        "bias_gelu",
        "(%x: f32[n, m], %y: f32[m]) -> (%z) {\n  %a = add %x, %y\n  %z = gelu %a {tanh = false}\n}",
    ),
    (
        "exp_chain",
        "(%x: f32[n, m]) -> (%z) {\n  %a = exp %x\n  %b = add %a, %x\n  %c = sqrt %a\n  %z = div %b, %c\n}",
    ),
    ("softmax", "(%x: f32[n, m]) -> (%z) {\n  %z = softmax %x {axis = 1}\n}"),
    ("softmax_columns", "(%x: f32[n, m]) -> (%z) {\n  %z = softmax %x {axis = 0}\n}"),
    (
        "layer_norm",
        "(%x: f32[n, m], %g: f32[m], %c: f32[m]) -> (%z) {\n  %z = layer_norm %x, %g, %c {axis = 1, eps = 1e-5}\n}",
    ),
    ("rms_norm", "(%x: f32[n, m], %g: f32[m]) -> (%z) {\n  %z = rms_norm %x, %g {axis = 1, eps = 1e-6}\n}"),
    ("sum_rows", "(%x: f32[n, m]) -> (%z) {\n  %z = reduce %x {op = sum, axes = [1]}\n}"),
    ("sum_columns", "(%x: f32[n, m]) -> (%z) {\n  %z = reduce %x {op = sum, axes = [0]}\n}"),
    ("max_all", "(%x: f32[n, m]) -> (%z) {\n  %z = reduce %x {op = max, axes = [0, 1]}\n}"),
    (
        "variance",
        "(%x: f32[n, m]) -> (%z) {\n  %m = reduce %x {op = mean, axes = [1], keepdims = true}\n  %d = sub %x, %m\n  %q = mul %d, %d\n  %z = reduce %q {op = mean, axes = [1]}\n}",
    ),
    ("transpose", "(%x: f32[n, m]) -> (%z) {\n  %t = transpose %x {perm = [1, 0]}\n  %z = tanh %t\n}"),
    ("column", "(%x: f32[n, m], %y: f32[n, 1]) -> (%z) {\n  %e = exp %y\n  %z = mul %x, %e\n}"),
    ("outer", "(%x: f32[n, 1], %y: f32[m]) -> (%z) {\n  %z = sub %x, %y\n}"),
    (
        "mask",
        "(%k: bool[n, m], %x: f32[n, m]) -> (%z) {\n  const %o: f32[] = [0]\n  %z = select %k, %x, %o\n}",
    ),
    ("cast", "(%x: f16[n, m]) -> (%z) {\n  %z = cast %x {to = f32}\n}"),
    ("swiglu_half", "(%x: bf16[n, m], %y: bf16[n, m]) -> (%z) {\n  %g = silu %x\n  %z = mul %g, %y\n}"),
    ("cumsum", "(%x: f32[n, m]) -> (%z) {\n  %z = cumsum %x {axis = 1}\n}"),
    ("argmax", "(%x: f32[n, m]) -> (%z) {\n  %z = argmax %x {axis = 1}\n}"),
    ("log_softmax", "(%x: f32[n, m]) -> (%z) {\n  %z = log_softmax %x {axis = 1}\n}"),
    (
        "three_inputs",
        "(%x: f32[n, m], %y: f32[n, m], %w: f32[n, m]) -> (%z, %q) {\n  %a = mul %x, %y\n  %z = add %a, %w\n  %q = sub %a, %w\n}",
    ),
    ("bytes", "(%x: u8[n, m], %y: u8[n, m]) -> (%z) {\n  %z = max %x, %y\n}"),
    ("matmul", "(%a: f32[n, 256], %b: f32[256, m]) -> (%z) {\n  %z = matmul %a, %b\n}"),
    (
        "linear_gelu",
        "(%a: f32[n, m]) -> (%z) {\n  const %w: f32[m, 64] = uniform(3)\n  %p = matmul %a, %w\n  %z = gelu %p {tanh = true}\n}",
    ),
    (
        "scores",
        "(%a: f32[8, n, 64], %b: f32[8, m, 64]) -> (%z) {\n  %p = matmul %a, %b {trans_b = true}\n  %z = tanh %p\n}",
    ),
];

const SHAPES: [(i64, i64); 12] = [
    (1, 1000),
    (17, 70),
    (128, 384),
    (128, 768),
    (1, 100_000),
    (64, 1000),
    (1000, 64),
    (512, 512),
    (300, 2048),
    (4096, 17),
    (3, 33_333),
    (1024, 768),
];

/// A case, measured.
#[derive(Debug, Serialize)]
struct Measured {
    name: String,
    n: i64,
    m: i64,
    candidates: usize,
    /// Of the tiler's choice and of the best, ns.
    chosen_ns: f64,
    best_ns: f64,
    regret: f64,
    chosen: String,
    best: String,
}

pub(crate) fn run(o: &Options) -> Result<()> {
    let threads = o.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let mut facade = Facade::default();
    facade.threads = Some(threads);
    let spec = facade.machine();
    let runtime = Runtime::new(Arc::new(Pool::new(threads)));
    let mut cases = vec![];
    for (f, &(name, text)) in FAMILIES.iter().enumerate() {
        for (s, &(n, m)) in SHAPES.iter().enumerate() {
            let wanted = o.only.as_ref().is_none_or(|t| name.contains(t.as_str()));
            if wanted && (!o.quick || (f * SHAPES.len() + s).is_multiple_of(10)) {
                cases.push((name, text, n, m));
            }
        }
    }
    let mut out = vec![];
    let started = Instant::now();
    for (i, &(name, text, n, m)) in cases.iter().enumerate() {
        let measured = measure(name, text, (n, m), &spec, &runtime, o.quick)
            .with_context(|| format!("{name} {n} x {m}"))?;
        out.push(measured);
        progress(i + 1, cases.len(), started, out.last().map_or(1.0, |m| m.regret));
    }
    eprintln!();
    out.sort_by(|a, b| b.regret.total_cmp(&a.regret));
    if o.json {
        println!("{}", serde_json::to_string_pretty(&out)?);
        return Ok(());
    }
    let at = |q: f64| out.get(((1.0 - q) * (out.len() as f64 - 1.0)) as usize).map_or(1.0, |m| m.regret);
    let tried: usize = out.iter().map(|m| m.candidates).sum();
    println!("{} cases, {tried} tilings, {threads} threads on {}", out.len(), spec.target.name);
    println!("regret: median {:.3}, 95th percentile {:.3}, worst {:.3}", at(0.5), at(0.95), at(1.0));
    println!(
        "\n{:<24} {:>14} {:>7} {:>10} {:>10}  tiling, best",
        "worst", "n x m", "regret", "ns", "best ns"
    );
    for m in out.iter().take(12) {
        let shape = format!("{} x {}", m.n, m.m);
        println!(
            "{:<24} {shape:>14} {:>7.3} {:>10.0} {:>10.0}  {}, {}",
            m.name, m.regret, m.chosen_ns, m.best_ns, m.chosen, m.best
        );
    }
    Ok(())
}

fn progress(done: usize, all: usize, started: Instant, regret: f64) {
    let width = 30;
    let bar: String = (0..width).map(|i| if i * all < done * width { '#' } else { '.' }).collect();
    let left = started.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
    eprint!("\r[{bar}] {done}/{all}, {left:.0} s left, regret {regret:.3}  ");
    // A progress bar that cannot be shown is no error.
    let _ = std::io::stderr().flush();
}

/// A program with its memory, ready to run.
struct Runnable {
    exe: Executable,
    bindings: Vec<ArgBinding>,
    workspace: Vec<u64>,
    packed: Vec<Option<Tensor>>,
    tiling: String,
}

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

impl Case {
    fn prepare(&self, c: Compiled) -> Result<Runnable> {
        let tiling = c.tilings.iter().map(describe).collect::<Vec<_>>().join(" + ");
        let verified = Verified::new(c.program, &Limits::default()).map_err(|e| anyhow!("{e}"))?;
        let exe = Executable::with_options(verified, &BuildOptions::default())?;
        let mut packed = vec![];
        for b in &c.arg_buffers {
            packed.push(match b {
                ArgBinding::Constant { index, pack: Some(p) } => {
                    let t = &self.plan.constants[*index as usize];
                    let bytes = pack_panels(t.bytes(), t.dtype().size() as u32, &p.matrices, p.nr)?;
                    Some(Tensor::from_bytes(DType::U8, &[bytes.len()], &bytes).context("panels")?)
                }
                _ => None,
            });
        }
        let workspace = vec![0u64; c.workspace_bytes as usize / 8 + 16];
        Ok(Runnable { exe, bindings: c.arg_buffers, workspace, packed, tiling })
    }

    /// Runs once; returns ns.
    fn launch(&mut self, r: &mut Runnable, runtime: &Runtime) -> Result<f64> {
        let bytes: &mut [u8] = bytes_of(&mut r.workspace);
        let skip = bytes.as_ptr().align_offset(64);
        let mut workspace = Some(&mut bytes[skip..]);
        let mut outputs: Vec<_> = self.outputs.iter_mut().map(Some).collect();
        let mut args = vec![];
        for (b, packed) in r.bindings.iter().zip(&r.packed) {
            args.push(match b {
                ArgBinding::Input(i) => ArgRef::In(self.inputs[*i as usize].bytes()),
                ArgBinding::Output(i) => {
                    ArgRef::Out(outputs[*i as usize].take().context("an output twice")?.bytes_mut())
                }
                ArgBinding::Constant { index, .. } => match packed {
                    Some(p) => ArgRef::In(p.bytes()),
                    None => ArgRef::In(self.plan.constants[*index as usize].bytes()),
                },
                ArgBinding::Workspace => {
                    let n = r.exe.program().args[args.len()].bytes as usize;
                    ArgRef::Out(&mut workspace.take().context("a workspace twice")?[..n])
                }
                ArgBinding::Ring => ArgRef::Ring,
            });
        }
        let started = Instant::now();
        runtime.launch(&r.exe, &mut args)?;
        Ok(started.elapsed().as_nanos() as f64)
    }

    /// The least of several runs.
    fn time(&mut self, r: &mut Runnable, runtime: &Runtime, budget_ns: f64) -> Result<f64> {
        let mut best = self.launch(r, runtime)?;
        let (mut spent, mut runs) = (best, 1);
        while runs < 4 || (spent < budget_ns && runs < 400) {
            let t = self.launch(r, runtime)?;
            best = best.min(t);
            (spent, runs) = (spent + t, runs + 1);
        }
        Ok(best)
    }
}

fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

/// `16x768` or `48x256 k 512`.
fn describe(t: &Tiling) -> String {
    let mut s = t.folds.iter().map(|f| f.tile.to_string()).collect::<Vec<_>>().join("x");
    if let Some((_, k0)) = t.k {
        s.push_str(&format!(" k {k0}"));
    }
    s
}

fn measure(
    name: &str,
    text: &str,
    (n, m): (i64, i64),
    spec: &MachineSpec,
    runtime: &Runtime,
    quick: bool,
) -> Result<Measured> {
    let text = text.replace("[m, 64]", &format!("[{m}, 64]"));
    let text =
        if text.contains("const %w") { text.replace("f32[n, m]", &format!("f32[n, {m}]")) } else { text };
    let graph = Graph::from_text(&format!("graph g{text}\n")).map_err(|e| anyhow!("{e}"))?;
    let plan = dvm_fuse::plan(&graph, &dvm_fuse::FuseOptions::default()).map_err(|e| anyhow!("{e}"))?;
    let mut bindings = Bindings::new();
    for (symbol, value) in [("n", n), ("m", m)] {
        if let Some(s) = plan.dims.find_symbol(symbol) {
            bindings.bind(s, value).map_err(|e| anyhow!("{e}"))?;
        }
    }
    let mut values = DimValues::default();
    plan.dims.eval_all(&bindings, &mut values);
    let shape = |dims: &[dvm::ir::Dim]| -> Vec<usize> {
        dims.iter().map(|&d| values.extent(d).unwrap_or(0) as usize).collect()
    };
    let mut rng = Rng::new(1);
    let inputs =
        plan.inputs.iter().map(|i| random_tensor(i.dtype, &shape(&i.shape), 0.0, 1.0, &mut rng)).collect();
    let outputs: Vec<Option<Tensor>> =
        plan.outputs.iter().map(|o| Tensor::zeros(o.dtype, &shape(&o.shape)).ok()).collect();
    let outputs = outputs.into_iter().collect::<Option<Vec<_>>>().context("the outputs' memory")?;
    let mut scratch = Scratch::default();
    scratch.check(false);
    let mut compile = |forced: Option<Forced>| {
        // Of several kernels all get the same tiling; of one in stages, none.
        scratch.force(forced.clone());
        scratch.split(if forced.is_some() { u64::MAX } else { 1 << 17 });
        compile_plan(&plan, &values, spec, &mut scratch)
    };
    let chosen = compile(None).map_err(|e| anyhow!("{e}"))?;
    let forms = match chosen.tilings.as_slice() {
        [one] => candidates(one),
        _ => vec![],
    };
    let mut compiled = vec![];
    for f in forms {
        // What does not fit or cannot be said is no candidate.
        if let Ok(c) = compile(Some(f)) {
            compiled.push(c);
        }
    }
    let mut case = Case { plan: plan.clone(), inputs, outputs };
    let budget = if quick { 5e5 } else { 2e6 };
    let mut all = vec![];
    let mut first = case.prepare(chosen)?;
    case.time(&mut first, runtime, budget)?;
    let mut seen = BTreeSet::from([first.tiling.clone()]);
    let tried = compiled.len() + 1;
    for c in compiled {
        let mut r = case.prepare(c)?;
        if seen.insert(r.tiling.clone()) {
            let t = case.time(&mut r, runtime, budget)?;
            all.push((t, r));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.truncate(FINALISTS);
    // In alternation, each as often.
    let mut best = vec![f64::INFINITY; all.len()];
    let mut chosen_ns = f64::INFINITY;
    for _ in 0..if quick { 6 } else { 15 } {
        chosen_ns = chosen_ns.min(case.time(&mut first, runtime, budget / 4.0)?);
        for (b, (_, r)) in best.iter_mut().zip(&mut all) {
            *b = b.min(case.time(r, runtime, budget / 4.0)?);
        }
    }
    let winner = best.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    let (best_ns, best) = match winner {
        Some((i, &ns)) if ns < chosen_ns => (ns, all[i].1.tiling.clone()),
        _ => (chosen_ns, first.tiling.clone()),
    };
    Ok(Measured {
        name: name.to_owned(),
        n,
        m,
        candidates: tried,
        chosen_ns,
        best_ns,
        regret: chosen_ns / best_ns,
        chosen: first.tiling,
        best,
    })
}

/// Tilings around and far from the one that was chosen.
fn candidates(t: &Tiling) -> Vec<Forced> {
    let mut out: Vec<Forced> = vec![];
    let mut push = |tiles: Vec<u32>, k0: u32| {
        let f = Forced { tiles, k0 };
        if !out.contains(&f) && out.len() < 4 * CANDIDATES {
            out.push(f);
        }
    };
    let parts = [1u64, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024];
    let extents: Vec<u64> = t.folds.iter().map(|f| f.extent).collect();
    let cut = |n: u64, p: u64| u32::try_from(n.div_ceil(p)).unwrap_or(u32::MAX).max(1);
    if let Some((k, k0)) = t.k {
        let b = extents.len() - 2;
        for kp in [1, 2, 4] {
            let k0 = if kp == 1 { k0 } else { (k as u32).div_ceil(kp).next_multiple_of(8) };
            for pm in [1u64, 2, 3, 4, 6, 8, 16, 32] {
                for pn in [1u64, 2, 3, 4, 6, 8, 16] {
                    let mut tiles = vec![1; b];
                    tiles.extend([cut(extents[b], pm), cut(extents[b + 1], pn)]);
                    push(tiles, k0);
                }
            }
        }
        return out;
    }
    let chosen: Vec<u32> = t.folds.iter().map(|f| f.tile).collect();
    // Walked folds stay as they are; kept ones are cut into all numbers of parts, one or two of them.
    let kept: Vec<usize> = (0..extents.len()).filter(|&i| !t.folds[i].walked && extents[i] > 1).collect();
    for &f in &kept {
        for p in parts.iter().filter(|&&p| p <= extents[f]) {
            let mut tiles = chosen.clone();
            tiles[f] = cut(extents[f], *p);
            push(tiles.clone(), 0);
            // Whole vectors.
            tiles[f] = tiles[f].next_multiple_of(64);
            push(tiles, 0);
        }
    }
    if let &[f, g, ..] = kept.as_slice() {
        for p in parts.iter().filter(|&&p| p <= extents[f]) {
            for q in parts.iter().filter(|&&q| q <= extents[g]) {
                let mut tiles: Vec<u32> = extents.iter().map(|&n| cut(n, 1)).collect();
                tiles[f] = cut(extents[f], *p);
                tiles[g] = cut(extents[g], *q);
                push(tiles, 0);
            }
        }
    }
    for (i, f) in t.folds.iter().enumerate().filter(|(_, f)| f.walked && f.extent > 4096) {
        for p in [1u64, 2, 3, 4, 6, 8, 16] {
            let mut tiles = chosen.clone();
            tiles[i] = cut(f.extent, p).next_multiple_of(4096);
            push(tiles, 0);
        }
    }
    out
}
