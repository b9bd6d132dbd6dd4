//! Random graphs everywhere: as a static graph on machines large and tiny, fused and not, and op by op through a stream, all against
//! the reference evaluator, and the stream against the static graph by bits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dvm_ir::testing::{Config, Rng, random_graph};
use dvm_ir::{BinaryOp, Graph, Op, Tensor};
use dvm_npu::MachineSpec;
use dvm_vm::{Pool, Runtime};

use super::eager::{eagerly, without_constants};
use crate::{Module, Options, Session, Stream};

/// What has been compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Graphs, and bindings of them that have a result.
    pub graphs: usize,
    /// Bindings of graphs.
    pub bindings: usize,
    /// Runs of static graphs.
    pub runs: usize,
    /// Runs through the stream.
    pub streams: usize,
    /// Of those, compared with a static graph by bits.
    pub same: usize,
}

impl Done {
    /// Adds what another has done.
    pub fn add(&mut self, other: &Done) {
        self.graphs += other.graphs;
        self.bindings += other.bindings;
        self.runs += other.runs;
        self.streams += other.streams;
        self.same += other.same;
    }
}

/// Compares the results of random graphs. Keeps one stream for all of them, as a program would.
#[derive(Debug)]
pub struct Checker {
    runtime: Arc<Runtime>,
    stream: Stream,
    specs: Vec<MachineSpec>,
    done: Done,
}

/// Machines that tile small tensors into many pieces, and one with cube and vector cores apart.
const MACHINES: [&str; 4] = ["tiny", "tiny-npu", "ascend-910b2", "ascend-950"];

/// What graph `seed` is made of.
fn config(seed: u64, ops: Option<usize>) -> Config {
    let mut config = Config { bindings: 4, corners: true, ..Config::default() };
    if seed % 8 == 7 {
        // Long graphs, so that streams flush in several programs and plans have many kernels.
        (config.ops, config.max_elements) = (40..=90, 2_000);
    }
    if let Some(n) = ops {
        config.ops = n..=n;
    }
    config
}

impl Checker {
    /// On so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Checker {
        let runtime = Arc::new(Runtime::new(Arc::new(Pool::new(threads))));
        let stream = Stream::with_runtime(Options::default(), runtime.clone());
        let specs = MACHINES.iter().filter_map(|name| MachineSpec::named(name).ok()).collect();
        Checker { runtime, stream, specs, done: Done::default() }
    }
    /// What has been compared so far.
    #[must_use]
    pub fn done(&self) -> Done {
        self.done
    }
    /// The graph of a seed, as text; `ops` as for [`Checker::check`].
    #[must_use]
    pub fn text(seed: u64, ops: Option<usize>) -> String {
        random_graph(seed, &config(seed, ops)).graph.to_text()
    }
    /// Checks the graph of a seed; `ops` is how many ops it is tried to be made of, where not the seed shall say.
    ///
    /// # Errors
    /// The first difference, error or panic, as text.
    pub fn check(&mut self, seed: u64, ops: Option<usize>) -> Result<(), String> {
        let result = catch_unwind(AssertUnwindSafe(|| self.graph(seed, ops)));
        result.unwrap_or_else(|panic| {
            // Whatever it was about, it is not to spoil the next graph.
            self.stream = Stream::with_runtime(Options::default(), self.runtime.clone());
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
        })
    }
    /// The fewest ops with which the graph of a seed fails, and how it does then.
    pub fn shrink(&mut self, seed: u64) -> Option<(usize, String)> {
        let most = *config(seed, None).ops.end();
        (1..=most).find_map(|n| self.check(seed, Some(n)).err().map(|e| (n, e)))
    }

    fn session(&self, graph: &Graph, spec: Option<&MachineSpec>, fuse: bool) -> Result<Session, String> {
        let module = Module::from_graph(graph.clone()).map_err(|e| e.to_string())?;
        let mut options = Options::default();
        (options.spec, options.fuse) = (spec.cloned(), fuse);
        Session::with_runtime(&module, options, self.runtime.clone()).map_err(|e| e.to_string())
    }

    fn graph(&mut self, seed: u64, ops: Option<usize>) -> Result<(), String> {
        let random = random_graph(seed, &config(seed, ops));
        let (plain, constants) = without_constants(&random.graph);
        let mut fixed = self.session(&plain, None, true)?;
        // A tiny machine always, the others and the unfused form in turn.
        let turn = seed as usize;
        let mut sessions = vec![(
            "tiny".to_owned(),
            self.session(&random.graph, self.specs.first(), !turn.is_multiple_of(3))?,
        )];
        let other = match turn % self.specs.len().max(1) {
            0 => None,
            i => self.specs.get(i),
        };
        let name = other.map_or("host", |s| s.target.name.as_str()).to_owned();
        sessions.push((name, self.session(&random.graph, other, turn.is_multiple_of(3))?));
        self.done.graphs += 1;
        // Of an exponent that is known a graph makes products; a stream may have flushed it before.
        let powers = random.graph.nodes.iter().any(|n| n.op == Op::Binary(BinaryOp::Pow));
        for (i, bindings) in random.bindings.iter().enumerate() {
            let place = |what: &str, e: &dyn std::fmt::Display| format!("binding {i}, {what}: {e}");
            let inputs = random.inputs(i, seed);
            // Integers may meet a zero divisor, which is an error everywhere.
            let Ok(want) = dvm_ir::eval::eval_graph(&random.graph, &inputs) else { continue };
            self.done.bindings += 1;
            for (name, session) in &mut sessions {
                let got = session.run(inputs.iter().cloned()).map_err(|e| place(name, &e))?;
                let got: Vec<Tensor> = got.into_values().collect();
                if let Some(d) = random.difference(&got, &want) {
                    return Err(place(name, &d));
                }
                self.done.runs += 1;
            }
            let given = inputs.iter().cloned().chain(constants.iter().cloned());
            let static_: Vec<Tensor> =
                fixed.run(given).map_err(|e| place("constants as inputs", &e))?.into_values().collect();
            if let Some(d) = random.difference(&static_, &want) {
                return Err(place("constants as inputs", &d));
            }
            self.done.runs += 1;
            let mut rng = Rng::new(seed.wrapping_mul(8).wrapping_add(i as u64));
            let got = eagerly(&self.stream, &random.graph, bindings, &inputs, &mut rng)
                .map_err(|e| place("stream", &e))?;
            let Some(got) = got else { continue };
            self.done.streams += 1;
            if let Some(d) = random.difference(&got, &want) {
                return Err(place("stream", &d));
            }
            if powers {
                continue;
            }
            self.done.same += 1;
            if let Some(k) = static_.iter().zip(&got).position(|(a, b)| a.bytes() != b.bytes()) {
                return Err(place(
                    "stream",
                    &format_args!("output {k} has other bits than as a static graph"),
                ));
            }
        }
        Ok(())
    }
}
