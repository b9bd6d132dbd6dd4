//! The paper's comparison, asked of the timing model: four operators over our own shapes, and four models.
//!
//! The paper gives speedups, not shapes; ours are drawn so that run times span what its tables imply. The eager baseline launches one kernel for
//! each op, each as good as this compiler makes it, so that what differs is the number of kernels, their traffic and the host's work. Inductor is
//! not simulated: there is no model of the code it would generate.

use anyhow::{Context, Result, ensure};
use dvm::testing::models::MODELS;
use dvm::timing::{self, HostCosts, Launch, Options, Prepared, steady_us};
use dvm::{MachineSpec, Module};

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) spec: String,
    pub(crate) shapes: usize,
    pub(crate) only: Option<String>,
    pub(crate) verbose: bool,
    pub(crate) no_models: bool,
}

/// Average, least and greatest speedup, and percent above 1.
type Published = (&'static str, [f64; 4]);

struct Operator {
    name: &'static str,
    /// Programs in order; the host reads a value after each but the last.
    programs: &'static [&'static str],
    /// Symbols with the range their values are drawn from, evenly in the logarithm.
    dims: &'static [(&'static str, f64, f64)],
    /// Run time per shape that the paper's tables imply, ms.
    implied_ms: f64,
    published: &'static [Published],
}

const OPERATORS: &[Operator] = &[
    Operator {
        name: "matmul",
        programs: &["graph matmul(%a: f16[m, k], %b: f16[k, n]) -> (%c) {\n  %c = matmul %a, %b\n}"],
        dims: &[("m", 1024.0, 14_000.0), ("k", 1024.0, 14_000.0), ("n", 1024.0, 14_000.0)],
        implied_ms: 2.2,
        published: &[
            ("Inductor-r", [1.19, 0.88, 2.18, 62.0]),
            ("Inductor-d", [1.31, 0.93, 2.62, 93.0]),
            ("eager", [1.09, 0.91, 1.27, 93.0]),
        ],
    },
    Operator {
        name: "LayerNorm",
        programs: &["graph layer_norm(%x: f32[r, c], %g: f32[c], %b: f32[c]) -> (%z) {
  %z = layer_norm %x, %g, %b {axis = 1, eps = 1e-5}
}"],
        dims: &[("r", 16_384.0, 700_000.0), ("c", 512.0, 16_384.0)],
        implied_ms: 4.9,
        published: &[
            ("Inductor-r", [1.09, 1.01, 1.45, 100.0]),
            ("Inductor-d", [1.63, 1.01, 11.77, 100.0]),
            ("eager", [1.32, 1.19, 1.67, 100.0]),
        ],
    },
    Operator {
        name: "if-else-add",
        programs: &[
            "graph predicate(%x: f32[m, n]) -> (%p) {
  const %zero: f32[] = 0
  %c = reduce %x {op = sum, axes = [0, 1]}
  %p = gt %c, %zero
}",
            "graph branch(%x: f32[m, n], %y: f32[m, n]) -> (%z) {\n  %z = add %x, %y\n}",
        ],
        dims: &[("m", 256.0, 262_144.0), ("n", 256.0, 16_384.0)],
        implied_ms: 1.8,
        published: &[
            ("Inductor-r", [1.21, 1.03, 3.21, 100.0]),
            ("Inductor-d", [1.58, 1.06, 6.88, 100.0]),
            ("eager", [1.47, 0.93, 1.63, 98.0]),
        ],
    },
    Operator {
        name: "addmm",
        programs: &["graph addmm(%c: f16[n], %a: f16[m, k], %b: f16[k, n]) -> (%z) {
  %p = matmul %a, %b
  %z = add %p, %c
}"],
        dims: &[("m", 512.0, 30_000.0), ("k", 512.0, 12_000.0), ("n", 512.0, 20_000.0)],
        implied_ms: 2.3,
        published: &[
            ("Inductor-r", [1.73, 0.90, 6.59, 98.0]),
            ("Inductor-d", [1.82, 0.94, 6.81, 98.0]),
            ("eager", [1.59, 0.94, 5.96, 98.0]),
        ],
    },
];

/// Compile time over run time of the paper's Tables 5 and 6, least and greatest.
const RATIOS: &[(&str, [f64; 2], &str)] = &[
    ("mmoe", [0.80, 0.82], "with graph capture"),
    ("bert-base", [1.11e3, 1.28e3], "with graph capture"),
    ("qwen3-14b", [0.028, 0.045], "whole generation"),
    ("llama-3.1-8b", [0.026, 0.092], "whole generation"),
];

/// Shapes of an operator: the same every time. A third of the extents are any number, a third multiples of 16, a third of 128.
fn shapes(op: &Operator, count: usize) -> Vec<Vec<(String, i64)>> {
    let mut state = 0x9e37_79b9u64 ^ op.name.len() as u64;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    };
    let mut one = |lo: f64, hi: f64| {
        let v = lo * (hi / lo).powf(random());
        let by = [1.0, 16.0, 128.0][((random() * 3.0) as usize).min(2)];
        ((v / by).round() * by).max(by) as i64
    };
    (0..count).map(|_| op.dims.iter().map(|(n, lo, hi)| ((*n).to_owned(), one(*lo, *hi))).collect()).collect()
}

/// Times of one repetition, µs.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    dvm: f64,
    eager: f64,
    unfused: f64,
    /// Device time of the compiled form, and what compiling it took on this host.
    device: f64,
    compile: f64,
}

fn launches(device: Vec<f64>, enqueue_us: f64) -> Vec<Launch> {
    let one = |device_us| Launch { name: String::new(), compile_us: 0.0, enqueue_us, device_us };
    device.into_iter().map(one).collect()
}

/// Device times of the three forms of a program.
fn device(module: &Module, dims: &[(String, i64)], spec: &MachineSpec) -> Result<(Prepared, [Vec<f64>; 3])> {
    let opts = Options::default();
    let p = timing::prepare(module, &[], dims, spec, true)?;
    let fused = vec![timing::simulate(p.program(), spec, &opts)?.us];
    let plain = timing::prepare(module, &[], dims, spec, false)?;
    let units: usize = plain.program().steps.iter().map(|s| s.units.len()).sum();
    // An op that is one kernel in every form is simulated once.
    if p.graph.nodes.len() == 1 && units == 1 {
        return Ok((p, [fused.clone(), fused.clone(), fused]));
    }
    let t = timing::simulate(plain.program(), spec, &opts)?;
    let unfused = timing::launches_of(&t, spec, &vec![1; plain.program().steps.len()]);
    let eager = if p.graph.nodes.len() == 1 {
        fused.clone()
    } else {
        let ops = timing::eager(&p, spec)?;
        let opts = Options { addresses: Some(ops.addresses.clone()), ..opts };
        let t = timing::simulate(&ops.program, spec, &opts)?;
        timing::launches_of(&t, spec, &ops.launches.iter().map(|l| l.1).collect::<Vec<_>>())
    };
    Ok((p, [fused, eager, unfused]))
}

fn measure(
    modules: &[Module],
    dims: &[(String, i64)],
    spec: &MachineSpec,
    host: &HostCosts,
) -> Result<Times> {
    let mut out = Times::default();
    for (i, m) in modules.iter().enumerate() {
        let (p, [fused, eager, unfused]) = device(m, dims, spec)?;
        out.device += fused.iter().sum::<f64>();
        out.compile += p.compile_us;
        let costs = [(fused, host.enqueue_us), (eager, host.eager_us), (unfused, host.enqueue_us)];
        for ((device, enqueue), sum) in
            costs.into_iter().zip([&mut out.dvm, &mut out.eager, &mut out.unfused])
        {
            let list = launches(device, enqueue);
            // Where the host waits for a value nothing overlaps; otherwise runs follow each other.
            *sum += if modules.len() > 1 {
                let read = if i + 1 < modules.len() { host.read_us } else { 0.0 };
                timing::schedule(&list, true).total_us + read
            } else {
                steady_us(&list)
            };
        }
    }
    Ok(out)
}

fn summary(values: &[f64]) -> [f64; 4] {
    let n = values.len().max(1) as f64;
    let above = values.iter().filter(|v| **v > 1.0).count() as f64;
    [
        values.iter().sum::<f64>() / n,
        values.iter().copied().fold(f64::INFINITY, f64::min),
        values.iter().copied().fold(0.0, f64::max),
        100.0 * above / n,
    ]
}

fn show([mean, lo, hi, share]: [f64; 4]) -> String {
    format!("{mean:.2}x ({lo:.2}-{hi:.2}, {share:.0} %)")
}

/// Prints the comparison.
pub(crate) fn paper_sim(c: &Config) -> Result<()> {
    let spec = MachineSpec::named(&c.spec)?;
    let host = HostCosts::default();
    let chosen = |name: &str| c.only.as_deref().is_none_or(|o| name.contains(o));
    ensure!(c.shapes > 0, "--shapes must be at least 1");
    println!(
        "Table 3 on {} by the timing model: {} shapes an operator, ours (the paper gives none)",
        c.spec, c.shapes
    );
    println!("speedup of DVM: average (range, share above 1); host: {host:?}\n");
    println!("{:<13}{:<12}{:<30}{:<30}", "operator", "against", "predicted", "published");
    let mut below = vec![];
    for op in OPERATORS.iter().filter(|o| chosen(o.name)) {
        let modules = op.programs.iter().map(|t| Module::from_text(t)).collect::<Result<Vec<_>, _>>()?;
        let mut all = vec![];
        for dims in shapes(op, c.shapes) {
            let t =
                measure(&modules, &dims, &spec, &host).with_context(|| format!("{} {dims:?}", op.name))?;
            if c.verbose {
                let shape: Vec<String> = dims.iter().map(|(n, v)| format!("{n}={v}")).collect();
                println!(
                    "  {:<34}{:>10.1} us{:>10.1} eager{:>10.1} unfused",
                    shape.join(" "),
                    t.dvm,
                    t.eager,
                    t.unfused
                );
            }
            all.push(t);
        }
        for (against, published) in op.published {
            let predicted = match *against {
                "eager" => show(summary(&all.iter().map(|t| t.eager / t.dvm).collect::<Vec<_>>())),
                _ => "not simulated".into(),
            };
            println!("{:<13}{against:<12}{predicted:<30}{:<30}", op.name, show(*published));
        }
        let unfused = summary(&all.iter().map(|t| t.unfused / t.dvm).collect::<Vec<_>>());
        println!("{:<13}{:<12}{:<30}{:<30}", op.name, "no fusion", show(unfused), "not published");
        let runs: Vec<f64> = all.iter().map(|t| t.device / 1e3).collect();
        let [mean, lo, hi, _] = summary(&runs);
        let (compile, run) =
            (all.iter().map(|t| t.compile).sum::<f64>(), all.iter().map(|t| t.device).sum::<f64>());
        below.push(format!(
            "{:<13}device {mean:.2} ms a shape ({lo:.3}-{hi:.2}), implied {:.1}; compile {:.0} us a shape on this host, ratio {:.2e}",
            op.name,
            op.implied_ms,
            compile / all.len() as f64,
            compile / run
        ));
    }
    println!("\n{}", below.join("\n"));
    if c.no_models {
        return Ok(());
    }
    println!("\nmodels, shapes and weights of the published sizes (MMoE: ours), one step of each");
    println!(
        "{:<14}{:<22}{:>11}{:>13}{:>12}{:>12}{:>13}  published ratio",
        "model", "shape", "run ms", "compile us", "exposed us", "ratio", "eager"
    );
    for m in MODELS.iter().filter(|m| chosen(m.name)) {
        let module = Module::from_graph(m.graph()?)?;
        for (label, dims) in m.runs {
            let dims: Vec<(String, i64)> = dims.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
            let at = || format!("{} {label}", m.name);
            let p = timing::prepare(&module, &[], &dims, &spec, true).with_context(at)?;
            let t = timing::simulate(p.program(), &spec, &Options::default()).with_context(at)?;
            let plain = timing::prepare(&module, &[], &dims, &spec, false).with_context(at)?;
            let rows =
                timing::compare(&p, Some(&plain), &t, &spec, &host, &Options::default()).with_context(at)?;
            let row = |name: &str| rows.iter().find(|r| r.name == name).map(|r| &r.schedule);
            let cached = row("shape in the cache").map_or(0.0, |s| s.total_us);
            let exposed = row("new shape, compile hidden").map_or(0.0, |s| s.exposed_compile_us);
            let eager = row("eager").map_or(0.0, |s| s.total_us);
            let published = RATIOS.iter().find(|r| r.0 == m.name);
            let published =
                published.map_or_else(String::new, |(_, [a, b], what)| format!("{a}-{b} ({what})"));
            println!(
                "{:<14}{label:<22}{:>11.3}{:>13.0}{exposed:>12.0}{:>12.2e}{:>12.2}x  {published}",
                m.name,
                cached / 1e3,
                p.compile_us,
                p.compile_us / cached.max(1e-9),
                eager / cached.max(1e-9),
            );
        }
    }
    println!(
        "\nratio: compile time on this host over predicted run time; exposed: what of it remains where it hides behind execution; eager: predicted speedup"
    );
    Ok(())
}
