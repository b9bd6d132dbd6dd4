//! Random graphs over symbolic dims, each with several bindings under which it must give right results.
//!
//! A graph grows op by op. A new op stays only if, for every binding, all dims have a value, every check holds and the value
//! is small, and if its results are known to within a small error (see [`super::accuracy`]).

use super::{Rng, accuracy, accuracy::Bound, inputs_in_ranges};
use crate::{Bindings, DType, Dim, DimValues, Graph, Op, Scalar, Symbol, Tensor, ValueId};

/// What random graphs are made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of ops tried; some are dropped as unfit.
    pub ops: std::ops::RangeInclusive<usize>,
    /// Most elements of a value.
    pub max_elements: usize,
    /// Number of bindings.
    pub bindings: usize,
    /// Dtypes of the float inputs, repeated for weight.
    pub floats: Vec<DType>,
    /// Dtypes of the integer inputs; empty for none.
    pub ints: Vec<DType>,
    /// Weight of each family.
    pub weights: Weights,
    /// Bindings may hold 0.
    pub zeros: bool,
    /// Extents of the second binding are 0 and 1 for the most part, those of the third are all 1.
    pub corners: bool,
}

/// Relative frequencies of op families; 0 leaves a family out.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Weights {
    pub elementwise: usize,
    pub integer: usize,
    pub compare_select: usize,
    pub cast: usize,
    pub reduce: usize,
    pub arg_reduce: usize,
    pub cumsum: usize,
    pub view: usize,
    pub window: usize,
    pub matmul: usize,
    pub composite: usize,
    pub gather: usize,
    pub concat: usize,
    pub pad: usize,
    pub generate: usize,
}

impl Default for Config {
    fn default() -> Config {
        use DType::{BF16, F16, F32, F64, I32, I64, U8};
        Config {
            ops: 4..=24,
            max_elements: 20_000,
            bindings: 4,
            floats: vec![F32, F32, F32, F32, F32, F32, F16, BF16, F64],
            ints: vec![I64, I32, U8],
            weights: Weights {
                elementwise: 30,
                integer: 5,
                compare_select: 6,
                cast: 5,
                reduce: 12,
                arg_reduce: 2,
                cumsum: 2,
                view: 18,
                window: 2,
                matmul: 8,
                composite: 8,
                gather: 5,
                concat: 4,
                pad: 3,
                generate: 3,
            },
            zeros: true,
            corners: false,
        }
    }
}

/// A random graph with what is needed to test it.
#[derive(Clone, Debug)]
pub struct RandomGraph {
    /// The graph.
    pub graph: Graph,
    /// Bindings of its symbols; all checks hold under each.
    pub bindings: Vec<Bindings>,
    /// Per output, how far a right implementation may be from the reference (absolute).
    pub tolerances: Vec<f64>,
    ranges: Vec<Option<(f64, f64)>>,
}

impl RandomGraph {
    /// Random input tensors for binding number `i`.
    ///
    /// # Panics
    /// When there is no such binding.
    #[must_use]
    pub fn inputs(&self, i: usize, seed: u64) -> Vec<(String, Tensor)> {
        inputs_in_ranges(&self.graph, &self.bindings[i], seed, &self.ranges).expect("bindings are complete")
    }
    /// The first difference between outputs and reference outputs that is no rounding, as text.
    #[must_use]
    pub fn difference(&self, got: &[Tensor], want: &[Tensor]) -> Option<String> {
        if got.len() != want.len() {
            return Some(format!("{} outputs, want {}", got.len(), want.len()));
        }
        let outputs = self.graph.outputs.iter().zip(&self.tolerances);
        outputs.zip(got.iter().zip(want)).find_map(|((o, &tolerance), (g, w))| {
            super::difference(g, w, 0.0, tolerance).map(|d| format!("output `{}` {d}", o.name))
        })
    }
}

/// The random graph of a seed.
#[must_use]
pub fn random_graph(seed: u64, config: &Config) -> RandomGraph {
    let mut graph = Gen::new(seed, config);
    let ops = graph.rng.int(*config.ops.start() as i64, *config.ops.end() as i64);
    for _ in 0..ops {
        graph.step();
    }
    graph.finish()
}

pub(super) struct Gen<'a> {
    pub(super) rng: Rng,
    pub(super) config: &'a Config,
    pub(super) g: Graph,
    bindings: Vec<Bindings>,
    pub(super) bounds: Vec<Bound>,
    ranges: Vec<Option<(f64, f64)>>,
}

/// Extents a symbol takes: small, one, zero, primes, and some beyond a vector register or two.
const EXTENTS: &[i64] = &[1, 2, 3, 4, 5, 7, 8, 13, 17, 31];
const FIXED: &[i64] = &[1, 2, 3, 4, 6, 8, 12, 16, 24];

impl<'a> Gen<'a> {
    fn new(seed: u64, config: &'a Config) -> Gen<'a> {
        let mut rng = Rng::new(seed);
        let mut g = Graph::new(format!("random{seed}"));
        // `t` is `s` or 1, decided by the binding alone.
        let names = ["b", "s", "t", "n"];
        let dims: Vec<Dim> = names.iter().map(|n| g.dims.symbol(n)).collect();
        let symbols: Vec<Symbol> = names.iter().filter_map(|n| g.dims.find_symbol(n)).collect();
        let mut bindings = vec![];
        for i in 0..config.bindings {
            let mut extent = || match i {
                1 if config.corners => rng.pick(&[0, 1, 1, 3]),
                2 if config.corners => 1,
                _ if config.zeros && i > 0 && rng.chance(8) => 0,
                _ => rng.pick(EXTENTS),
            };
            let (b, s, n) = (extent(), extent(), extent());
            let t = if rng.chance(50) { s } else { 1 };
            let mut set = Bindings::new();
            for (&symbol, value) in symbols.iter().zip([b, s, t, n]) {
                set.bind(symbol, value).expect("symbols are distinct");
            }
            bindings.push(set);
        }
        let mut new = Gen { rng, config, g, bindings, bounds: vec![], ranges: vec![] };
        new.add_inputs(&dims);
        new
    }

    /// Inputs whose shapes broadcast with each other: a base shape, and copies of it with axes left out, 1, or
    /// (for `s`) decided by the binding.
    fn add_inputs(&mut self, dims: &[Dim]) {
        let rank = self.rng.pick(&[1, 2, 2, 3, 3, 3, 4, 5]);
        let mut base: Vec<Dim> = vec![];
        for _ in 0..rank {
            let fixed = self.rng.pick(FIXED);
            let d = match self.rng.below(5) {
                0 => dims[0],
                1 | 2 => dims[1],
                3 => dims[3],
                _ => self.g.dims.constant(fixed),
            };
            base.push(d);
        }
        let dtype = self.rng.pick(&self.config.floats);
        for i in 0..self.rng.int(1, 4) {
            let mut shape = base.clone();
            if i > 0 {
                for d in &mut shape {
                    match self.rng.below(6) {
                        0 => *d = Dim::ONE,
                        1 if *d == dims[1] => *d = dims[2],
                        _ => {}
                    }
                }
                shape.drain(..self.rng.pick(&[0, 0, 0, 1, rank]));
            }
            let dtype = if self.rng.chance(85) { dtype } else { self.rng.pick(&self.config.floats) };
            self.add_input(dtype, &shape, (-2.0, 2.0));
        }
        if !self.config.ints.is_empty() && self.rng.chance(30) {
            let dtype = self.rng.pick(&self.config.ints);
            let lo = if dtype.is_unsigned() { 0.0 } else { -9.0 };
            self.add_input(dtype, &base, (lo, 100.0));
        }
    }
    pub(super) fn add_input(&mut self, dtype: DType, shape: &[Dim], (lo, hi): (f64, f64)) -> Option<ValueId> {
        let sizes: Option<Vec<usize>> = (0..self.bindings.len()).map(|i| self.elements(shape, i)).collect();
        if sizes?.iter().any(|&n| n > self.config.max_elements) {
            return None;
        }
        let v = self.g.input(format!("x{}", self.g.inputs.len()), dtype, shape);
        self.bounds.push(Bound::exact(lo, hi));
        self.ranges.push(Some((lo, hi)));
        Some(v)
    }
    /// A constant of random values.
    pub(super) fn constant(&mut self, dtype: DType, shape: &[usize], (lo, hi): (f64, f64)) -> ValueId {
        let tensor = super::random_tensor(dtype, shape, lo, hi, &mut self.rng);
        let v = self.g.constant(None, tensor);
        self.bounds.push(Bound::exact(lo, hi));
        v
    }
    pub(super) fn scalar(&mut self, dtype: DType, value: f64) -> ValueId {
        let tensor = Tensor::scalar(dtype, Scalar::Float(value));
        let value = tensor.get(0).as_f64();
        let v = self.g.constant(None, tensor);
        self.bounds.push(Bound::exact(value, value));
        v
    }

    fn elements(&self, shape: &[Dim], binding: usize) -> Option<usize> {
        shape.iter().try_fold(1usize, |n, &d| {
            let extent = self.g.dims.eval(d, &self.bindings[binding]).ok()?;
            n.checked_mul(usize::try_from(extent).ok()?)
        })
    }
    /// Largest number of elements over all bindings.
    fn most(&self, shape: &[Dim]) -> f64 {
        (0..self.bindings.len()).filter_map(|i| self.elements(shape, i)).max().unwrap_or(0) as f64
    }
    pub(super) fn least(&self, d: Dim) -> i64 {
        self.bindings.iter().filter_map(|b| self.g.dims.eval(d, b).ok()).min().unwrap_or(0)
    }

    /// A symbol that some input binds, or 3.
    pub(super) fn free_dim(&mut self) -> Dim {
        let shapes = self.g.inputs.iter().flat_map(|i| self.g.shape(i.value));
        let symbols: Vec<Dim> = shapes.copied().filter(|&d| self.g.dims.as_symbol(d).is_some()).collect();
        if symbols.is_empty() { self.g.dims.constant(3) } else { self.rng.pick(&symbols) }
    }

    /// Adds an op if it is fit for every binding.
    pub(super) fn push(&mut self, op: Op, args: &[ValueId]) -> Option<ValueId> {
        let bounds: Vec<Bound> = args.iter().map(|v| self.bounds[v.index()]).collect();
        let n = match &op {
            Op::Reduce { axes, .. } => {
                let shape: Vec<Dim> =
                    axes.iter().filter_map(|&a| self.g.shape(args[0]).get(a).copied()).collect();
                self.most(&shape)
            }
            Op::ArgMax { axis, .. }
            | Op::ArgMin { axis, .. }
            | Op::CumSum { axis, .. }
            | Op::Softmax { axis }
            | Op::LogSoftmax { axis } => self.most(&[*self.g.shape(args[0]).get(*axis)?]),
            Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => {
                self.most(self.g.shape(args[0]).get(*axis..)?)
            }
            Op::MatMul { trans_a, .. } => {
                let shape = self.g.shape(args[0]);
                self.most(&[*shape.get(shape.len().checked_sub(if *trans_a { 2 } else { 1 })?)?])
            }
            _ => 1.0,
        };
        // The trial is thrown away with the facts it assumed.
        let mut trial = self.g.clone();
        let v = trial.push(op.clone(), args).ok()?;
        let dtype = args.first().map_or(trial.dtype(v), |&a| trial.dtype(a));
        let bound = match &op {
            Op::Fill { value, .. } => Bound::exact(value.as_f64(), value.as_f64()),
            Op::Range { .. } => Bound::exact(-200.0, 200.0),
            Op::Dims { values, .. } => {
                let most = self
                    .bindings
                    .iter()
                    .flat_map(|b| values.iter().map(|&d| trial.dims.eval(d, b).unwrap_or(0)));
                Bound::exact(0.0, most.max().unwrap_or(0) as f64)
            }
            op => accuracy::result(op, &bounds, dtype, trial.dtype(v), n)?,
        };
        let mut values = DimValues::default();
        for b in &self.bindings {
            trial.dims.eval_all(b, &mut values);
            if !trial.checks.iter().all(|c| c.cond.holds(&values) == Some(true)) {
                return None;
            }
            let count = trial.shape(v).iter().try_fold(1u64, |n, &d| n.checked_mul(values.extent(d)?))?;
            if count as f64 * n > 64.0 * self.config.max_elements as f64
                || count > self.config.max_elements as u64
            {
                return None;
            }
        }
        self.g = trial;
        self.bounds.push(bound);
        Some(v)
    }

    /// A value, the newer the likelier.
    pub(super) fn any(&mut self, fits: impl Fn(DType) -> bool) -> Option<ValueId> {
        let all: Vec<ValueId> =
            (0..self.g.values.len()).map(ValueId::new).filter(|&v| fits(self.g.dtype(v))).collect();
        let (a, b) = (self.rng.below(all.len()), self.rng.below(all.len()));
        all.get(a.max(b)).copied()
    }
    pub(super) fn float(&mut self) -> Option<ValueId> {
        self.any(DType::is_float)
    }
    pub(super) fn exact(&self, v: ValueId) -> bool {
        self.bounds[v.index()].err == 0.0
    }

    /// Outputs: whatever nothing uses, and a few values from within.
    fn finish(mut self) -> RandomGraph {
        let mut used = vec![false; self.g.values.len()];
        self.g.nodes.iter().flat_map(|n| &n.inputs).for_each(|v| used[v.index()] = true);
        let mut outputs: Vec<ValueId> = vec![];
        for (i, &used) in used.iter().enumerate() {
            let v = ValueId::new(i);
            let is_node = self.g.def_node(v).is_some();
            if (is_node && !used) || self.rng.chance(if is_node { 10 } else { 1 }) {
                outputs.push(v);
            }
        }
        if self.rng.chance(3) {
            outputs.extend(outputs.first().copied());
        }
        if outputs.is_empty() {
            outputs.extend(self.g.inputs.first().map(|i| i.value));
        }
        let mut tolerances = vec![];
        for (i, v) in outputs.into_iter().enumerate() {
            self.g.output(format!("y{i}"), v);
            tolerances.push(self.bounds[v.index()].err);
        }
        RandomGraph { graph: self.g, bindings: self.bindings, tolerances, ranges: self.ranges }
    }
}
