//! What a new shape costs: bind, tile, encode, verify, predecode, plan memory; and what a first plan costs. The launch is not part of
//! it.
//!
//! Tables first (`kernels`, `decoders`, `minilm`): the four operators of the paper and 200 random kernels over 50 shapes each, against the budgets; models; a graph of
//! 10 000 ops. Then criterion's figures for single kernels.

use std::time::Instant;

use anyhow::Context as _;
use criterion::{BenchmarkId, Criterion};
use dvm::{Module, Options, Session};
use dvm_benches::budget::{Rng, decoders, random_kernel};
use dvm_benches::{KERNELS, inputs, label};

/// Shapes a kernel is compiled for, and cold compiles of each, of which the fastest counts.
const SHAPES: usize = 50;
const COLD: usize = 5;

/// The operators that the paper reports compile times of.
const OPERATORS: [(&str, &str); 4] = [
    ("matmul", "graph matmul(%a: f32[r, c], %b: f32[c, n]) -> (%o) { %o = matmul %a, %b {} }"),
    (
        "layer_norm",
        "graph layer_norm(%x: f32[r, c], %g: f32[c], %b: f32[c]) -> (%o) {
           %o = layer_norm %x, %g, %b {axis = 1, eps = 1e-5}
         }",
    ),
    (
        "if-else-add",
        "graph if_else_add(%x: f32[r], %y: f32[r]) -> (%r) {
           const %zero: f32[] = 0.0
           %c: f32[] = reduce %x {op = sum, axes = [0]}
           %p: bool[] = gt %c, %zero
           %r: f32[r] = if %p, %x, %y, %x, %y then (%a: f32[r], %b: f32[r]) -> (%s) {
             %s: f32[r] = add %a, %b
           } else (%a: f32[r], %b: f32[r]) -> (%s) {
             %s: f32[r] = sub %a, %b
           }
         }",
    ),
    (
        "addmm",
        "graph addmm(%a: f32[r, c], %b: f32[c, n], %d: f32[n]) -> (%o) {
           %p = matmul %a, %b {}
           %o = add %p, %d
         }",
    ),
];

/// Compile times in µs, per kernel.
#[derive(Default)]
struct Times {
    /// The least of the cold compiles of each shape.
    least: Vec<f64>,
    /// All of them.
    raw: Vec<f64>,
}

impl Times {
    fn row(&mut self, name: &str) {
        for list in [&mut self.least, &mut self.raw] {
            list.sort_by(f64::total_cmp);
        }
        let at = |list: &[f64], q: f64| list[((list.len() - 1) as f64 * q).round() as usize];
        println!(
            "{name:<24} {:>7.1} {:>7.1} {:>7.1} | {:>7.1} {:>7.1} {:>7.1}   {}",
            at(&self.least, 0.5),
            at(&self.least, 0.99),
            at(&self.least, 1.0),
            at(&self.raw, 0.5),
            at(&self.raw, 0.99),
            at(&self.raw, 1.0),
            self.least.len()
        );
    }
    /// Compiles a graph for random shapes.
    fn measure(&mut self, text: &str, seed: u64) -> anyhow::Result<()> {
        let module = Module::from_text(text)?;
        let mut options = Options::default();
        options.threads = Some(1);
        options.cache = SHAPES + 1;
        let mut session = Session::new(&module, options)?;
        let mut rng = Rng::new(seed + 1000);
        let graph = module.graph(&[], &[])?;
        let names: Vec<String> = graph.dims.symbols().map(|(_, n)| n.to_string()).collect();
        let shapes: Vec<_> = (0..SHAPES)
            .map(|_| {
                let dims: Vec<(&str, i64)> = names.iter().map(|n| (n.as_str(), rng.extent(700))).collect();
                inputs(&module, &dims)
            })
            .collect::<Result<_, _>>()?;
        let mut least = vec![f64::INFINITY; SHAPES];
        for _ in 0..COLD {
            session.forget_programs();
            for (tensors, least) in shapes.iter().zip(&mut least) {
                session.prepare(tensors)?;
                let report = session.last_run();
                // A shape may come twice.
                if !report.cache_hit {
                    let us = report.compile_us / report.kernels.max(1) as f64;
                    *least = least.min(us);
                    self.raw.push(us);
                }
            }
        }
        self.least.extend(least.into_iter().filter(|us| us.is_finite()));
        Ok(())
    }
}

fn kernels() -> anyhow::Result<()> {
    println!("compile time per kernel and new shape, µs: least of {COLD} cold compiles | all of them");
    println!(
        "{:<24} {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7}   shapes",
        "", "median", "p99", "max", "median", "p99", "max"
    );
    let mut all = Times::default();
    for (i, (name, text)) in OPERATORS.iter().enumerate() {
        let mut times = Times::default();
        times.measure(text, i as u64)?;
        times.row(name);
        all.least.append(&mut times.least);
        all.raw.append(&mut times.raw);
    }
    let mut random = Times::default();
    for seed in 0..200 {
        random.measure(&random_kernel(seed), seed)?;
    }
    random.row("200 random kernels");
    all.least.append(&mut random.least);
    all.raw.append(&mut random.raw);
    all.row("all");
    println!("{:<24} {:>7} {:>7} {:>7}\n", "budget", 5, 15, 23);
    Ok(())
}

/// Plans of a large graph.
fn large() -> anyhow::Result<()> {
    let layers = 10_000usize.div_ceil(decoders(1).1 - 1);
    let (text, ops) = decoders(layers);
    let module = Module::from_text(&text)?;
    let mut options = Options::default();
    options.threads = Some(1);
    let mut plans = vec![];
    for _ in 0..5 {
        let module = Module::from_graph(module.graph(&[], &[])?.as_ref().clone())?;
        let start = Instant::now();
        Session::new(&module, options.clone())?;
        plans.push(start.elapsed().as_secs_f64() * 1e3);
    }
    plans.sort_by(f64::total_cmp);
    println!(
        "{layers} decoder layers with 8-way branches, {ops} ops: planned in {:.0} ms, median {:.0} ms (budget 1000 ms)",
        plans[0], plans[2]
    );
    Ok(())
}

/// First plan and new lengths of MiniLM, where the recorded models are there.
fn model() -> anyhow::Result<()> {
    let Some(shared) = std::env::var_os("DVM_SHARED") else {
        println!("MiniLM: skipped, DVM_SHARED is not set");
        return Ok(());
    };
    let path = std::path::Path::new(&shared).join("models/minilm-l6-v2.onnx");
    let mut options = Options::default();
    options.threads = Some(2);
    let mut plans = vec![];
    for _ in 0..5 {
        let module = Module::from_onnx(&path)?;
        let start = Instant::now();
        Session::new(&module, options.clone())?;
        plans.push(start.elapsed().as_secs_f64() * 1e3);
    }
    plans.sort_by(f64::total_cmp);
    println!("MiniLM, first plan: {:.1} ms, median {:.1} ms (budget 100 ms)", plans[0], plans[2]);
    let module = Module::from_onnx(&path)?;
    let mut session = Session::new(&module, options)?;
    let graph = module.graph(&[], &[])?;
    let names: Vec<String> = graph.dims.symbols().map(|(_, n)| n.to_string()).collect();
    let [batch, length] = &names[..] else { anyhow::bail!("MiniLM has the symbols {names:?}") };
    let at = |n: i64| inputs(&module, &[(batch, 1), (length, n)]);
    // Weights are packed once.
    session.run(at(2)?)?;
    let (mut alone, mut among, mut exposed) = (vec![], vec![], vec![]);
    // As often as a length comes: the encoder's own code and memory are in the caches.
    for n in 3..200 {
        let tensors = at(n)?;
        session.forget_programs();
        session.prepare(&tensors)?;
        alone.push(session.last_run().compile_us);
    }
    // As a user meets it: the caches hold what the last run used.
    for n in 3..120 {
        let tensors = at(n)?;
        session.run(at(2)?)?;
        session.forget_programs();
        session.run(tensors)?;
        among.push(session.last_run().compile_us);
        exposed.push(session.last_run().exposed_compile_us);
    }
    let row = |what: &str, times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        println!("MiniLM, {what}: {:.0} µs, median {:.0} µs", times[0], times[times.len() / 2]);
    };
    row("new length (budget 90 µs)", &mut alone);
    row("new length after a run of another one, in groups", &mut among);
    row("of which no program hides", &mut exposed);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    // As criterion's own benches, these can be picked by a part of their name.
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    type Table = fn() -> anyhow::Result<()>;
    let tables: [(&str, Table); 3] = [("kernels", kernels), ("decoders", large), ("minilm", model)];
    for (name, table) in tables.iter().filter(|t| t.0.contains(&filter)) {
        table().with_context(|| format!("table `{name}`"))?;
    }
    let mut c = Criterion::default().configure_from_args();
    for w in KERNELS {
        let mut group = c.benchmark_group(format!("compile/{}", w.name));
        for dims in w.dims {
            let (mut session, _) = w.session(dims, Options::default())?;
            let tensors = inputs(session.module(), dims)?;
            session.prepare(&tensors)?;
            group.bench_function(BenchmarkId::from_parameter(label(dims)), |b| {
                b.iter(|| {
                    session.forget_programs();
                    session.prepare(&tensors)
                });
            });
        }
        group.finish();
    }
    c.final_summary();
    Ok(())
}
