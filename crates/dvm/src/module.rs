//! A model, loaded once and shared by any number of sessions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dvm_fuse::{FuseOptions, Stack, Stacking};
use dvm_ir::{Bindings, DType, Graph, Plan, Tensor};

use crate::flow::{Flow, Stage, StageNote};
use crate::{Error, Session};

/// A loaded model. Cloning is cheap and shares everything: the graph, plans, weights and packed weights.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    name: String,
    source: Source,
    structural: Structural,
    variants: Mutex<Vec<Arc<Variant>>>,
    /// Conditions met.
    outcomes: Mutex<Vec<Arc<Outcome>>>,
    /// Conditions on dims that the user knows to hold.
    assume: Vec<String>,
    how: How,
}

/// What is special about the plans of a module.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// Which of the graph's nodes are stacked how.
    stacking: Option<Arc<Stacking>>,
    /// [`FuseOptions::contractions`].
    contractions: Option<usize>,
    /// [`FuseOptions::half`].
    half: dvm_fuse::Half,
    /// Changes every plan, so that tests have a defect to look for.
    tamper: Option<fn(&mut Plan)>,
}

#[derive(Clone)]
enum Source {
    Graph(Arc<Graph>),
    /// A model whose structure depends on its inputs' values.
    #[cfg(feature = "onnx")]
    Onnx {
        model: Arc<dvm_onnx::proto::ModelProto>,
        base_dir: Option<PathBuf>,
    },
}

/// What decides the structure of a graph (the axes of a reduction, a rank) rather than a size in it. Empty for almost every
/// model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structural {
    /// Inputs whose values do.
    pub inputs: Vec<String>,
    /// Symbols whose values do.
    pub symbols: Vec<String>,
    /// Inputs whose rank the model leaves open.
    pub ranks: Vec<String>,
    /// The first branch whose condition does.
    pub branches: Vec<String>,
}

impl Structural {
    /// Whether the structure is known without any input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.symbols.is_empty() && self.ranks.is_empty() && self.branches.is_empty()
    }
}

/// What a graph's structure was decided by.
#[derive(Clone, Debug, Default, PartialEq)]
struct Key {
    /// Values of inputs.
    inputs: Vec<(String, Tensor)>,
    /// Shapes of all inputs, where an extent decided.
    shapes: Option<Vec<(String, Vec<usize>)>>,
    dims: Vec<(String, i64)>,
    /// Ranks of inputs that the model leaves open.
    ranks: Vec<(String, usize)>,
    /// Which way branches went.
    outcomes: Vec<(Arc<Outcome>, bool)>,
}

/// What decided a structure: values of inputs, extents, ranks, outcomes.
type Before = (Vec<(String, Tensor)>, Vec<(String, i64)>, Vec<(String, usize)>, Vec<bool>);

/// A condition that decides what the graph is, and how to get its value.
struct Outcome {
    /// What was decided before: a condition means something only then.
    before: Before,
    graph: Graph,
    dim: Option<dvm_ir::Dim>,
    node: String,
    /// Computes a condition that dims do not tell.
    session: Mutex<Option<Box<Session>>>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outcome({})", self.node)
    }
}
impl PartialEq for Outcome {
    fn eq(&self, other: &Outcome) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Outcome {
    /// The condition's value for these inputs; symbols that no input tells may be given as dims.
    fn value(&self, inputs: &[(String, Tensor)], dims: &[(String, i64)]) -> Result<bool, Error> {
        let fail = |e: Error| Error::Bind(format!("the condition of \"{}\": {e}", self.node));
        if let Some(d) = self.dim {
            let mut bindings = crate::launch::bind_given(&self.graph, inputs).map_err(fail)?;
            for (name, value) in dims {
                if let Some(s) = self.graph.dims.find_symbol(name) {
                    // Inputs come first; a contradiction shows when they are bound.
                    let _ = bindings.bind(s, *value);
                }
            }
            let value = self.graph.dims.eval(d, &bindings).map_err(|e| match e {
                dvm_ir::DimError::Unbound { symbol } => Error::UnboundSymbols { symbols: symbol },
                e => fail(Error::Bind(e.to_string())),
            })?;
            return Ok(value != 0);
        }
        let mut session = self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let session = match &mut *session {
            Some(s) => s,
            slot => {
                let module = Module::from_graph(self.graph.clone())?;
                let options = crate::Options { threads: Some(1), ..crate::Options::default() };
                slot.insert(Box::new(Session::new(&module, options)?))
            }
        };
        let used = |n: &str| self.graph.inputs.iter().any(|i| i.name == n);
        let out = session.run(inputs.iter().filter(|(n, _)| used(n)).cloned()).map_err(fail)?;
        Ok(out.values().next().is_some_and(|t| t.len() == 1 && t.get(0).as_i64() != 0))
    }
}

/// A graph for one set of structural values, with its plan.
pub(crate) struct Variant {
    key: Key,
    pub(crate) graph: Arc<Graph>,
    how: How,
    /// The graph split at its controls, where it has any.
    flow: Mutex<Option<Arc<Flow>>>,
    /// Plans with fusion off and on.
    plans: Mutex<[Option<Arc<Plan>>; 2]>,
    /// Weights packed to panels, shared by every session that packs alike.
    packed: Mutex<Vec<PackedConstant>>,
}

/// Address of a constant (plans number them as they like), how it is packed, and its bytes.
type PackedConstant = (usize, dvm_tile::Pack, Arc<Vec<u8>>);

/// Most conditions kept.
const MAX_OUTCOMES: usize = 64;
/// Most graphs kept for different structural values.
const MAX_VARIANTS: usize = 16;

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({})", self.0.name)
    }
}

/// An input or output of a model, as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Declared dims, e.g. `["batch", "2*seq", "384"]`.
    pub shape: Vec<String>,
}

impl std::fmt::Display for PortInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}[{}]", self.name, self.dtype, self.shape.join(", "))
    }
}

/// What a model file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// ONNX protobuf.
    Onnx,
    /// Textual IR.
    Text,
    /// Serialised IR.
    Serialised,
    /// A `.dvmb` bundle, run by [`crate::BundleSession`].
    Bundle,
    /// Bytecode as text, run by [`crate::BundleSession`].
    Assembly,
}

impl FileKind {
    /// Recognises a file. Text is what is UTF-8 and starts (after comments) with `graph`, or with `program` or `bundle`; everything
    /// unknown is taken for ONNX, which has no magic.
    #[must_use]
    pub fn of(bytes: &[u8]) -> FileKind {
        if bytes.starts_with(b"DVMB") {
            return FileKind::Bundle;
        }
        if bytes.starts_with(b"DVMG") {
            return FileKind::Serialised;
        }
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let code = text
            .lines()
            .map(|l| {
                l.split(['#', ';']).next().unwrap_or_default().split("//").next().unwrap_or_default().trim()
            })
            .find(|l| !l.is_empty());
        match code.and_then(|l| l.split_whitespace().next()) {
            Some("program" | "bundle") => FileKind::Assembly,
            _ if code.is_some_and(|l| l.starts_with("graph")) => FileKind::Text,
            _ => FileKind::Onnx,
        }
    }
}

impl Module {
    /// Loads an ONNX, textual IR or serialised IR file, whichever it is.
    ///
    /// # Errors
    /// The file cannot be read or holds no valid model.
    pub fn load(path: impl AsRef<Path>) -> Result<Module, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        let mut module = match FileKind::of(&bytes) {
            FileKind::Text => {
                let text = String::from_utf8(bytes).map_err(|e| Error::Text(e.to_string()))?;
                Module::text(&path.display().to_string(), &text)?
            }
            FileKind::Serialised => Module::from_bytes(&bytes)?,
            FileKind::Bundle | FileKind::Assembly => {
                return Err(Error::Format {
                    path: path.display().to_string(),
                    reason: "is compiled bytecode, not a model; run it with `dvm run` or BundleSession"
                        .into(),
                });
            }
            #[cfg(feature = "onnx")]
            FileKind::Onnx => Module::onnx(bytes, path.parent().map(Path::to_path_buf))?,
            #[cfg(not(feature = "onnx"))]
            FileKind::Onnx => {
                return Err(Error::Format {
                    path: path.display().to_string(),
                    reason: "looks like ONNX, and this build has no `onnx` feature".into(),
                });
            }
        };
        if let (Some(inner), Some(stem)) = (Arc::get_mut(&mut module.0), path.file_stem()) {
            inner.name = stem.to_string_lossy().into_owned();
        }
        Ok(module)
    }
    /// Loads an ONNX file; external data are looked for beside it.
    ///
    /// # Errors
    /// The file cannot be read, is no valid ONNX, or holds unsupported things (all are listed).
    #[cfg(feature = "onnx")]
    pub fn from_onnx(path: impl AsRef<Path>) -> Result<Module, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        Module::onnx(bytes, path.parent().map(Path::to_path_buf))
    }
    /// Loads ONNX from memory.
    ///
    /// # Errors
    /// As [`Module::from_onnx`].
    #[cfg(feature = "onnx")]
    pub fn from_onnx_bytes(bytes: &[u8]) -> Result<Module, Error> {
        Module::onnx(bytes.to_vec(), None)
    }
    #[cfg(feature = "onnx")]
    fn onnx(bytes: Vec<u8>, base_dir: Option<PathBuf>) -> Result<Module, Error> {
        let model = dvm_onnx::decode_owned(bytes)?;
        let mut opts = dvm_onnx::ImportOptions::default();
        opts.base_dir.clone_from(&base_dir);
        let structural = match dvm_onnx::import_model(&model, &opts) {
            Ok(imported) => return Module::from_graph(imported.graph),
            Err(dvm_onnx::ImportError::NeedsValues { inputs }) => {
                Structural { inputs, ..Structural::default() }
            }
            Err(dvm_onnx::ImportError::NeedsOutcome { condition }) => {
                Structural { branches: vec![condition.node], ..Structural::default() }
            }
            Err(dvm_onnx::ImportError::NeedsRanks { inputs }) => {
                Structural { ranks: inputs, ..Structural::default() }
            }
            Err(dvm_onnx::ImportError::NeedsDims { symbols }) => {
                Structural { symbols, ..Structural::default() }
            }
            Err(e) => return Err(e.into()),
        };
        let source = Source::Onnx { model: Arc::new(model), base_dir };
        Ok(Module::of("model".into(), source, structural))
    }
    /// Parses textual IR.
    ///
    /// # Errors
    /// The message shows the place in the text.
    pub fn from_text(text: &str) -> Result<Module, Error> {
        Module::text("graph", text)
    }
    /// Parses the text of a file of this name.
    pub(crate) fn text(file: &str, text: &str) -> Result<Module, Error> {
        let graph = Graph::from_text(text).map_err(|e| Error::Text(e.render(file, text)))?;
        Module::from_graph(graph)
    }
    /// Reads serialised IR.
    ///
    /// # Errors
    /// The bytes are damaged or of an unsupported version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Module, Error> {
        let graph = Graph::from_bytes(bytes).map_err(|e| Error::Serialised(e.to_string()))?;
        Module::from_graph(graph)
    }
    /// Wraps a graph.
    ///
    /// # Errors
    /// The graph breaks the IR's rules; all violations are listed.
    pub fn from_graph(graph: Graph) -> Result<Module, Error> {
        if let Err(violations) = graph.verify() {
            let all: Vec<String> = violations.iter().map(|v| format!("  {v}")).collect();
            return Err(Error::Graph(all.join("\n")));
        }
        let name = graph.name.clone();
        Ok(Module::of(name, Source::Graph(Arc::new(graph)), Structural::default()))
    }
    fn of(name: String, source: Source, structural: Structural) -> Module {
        let (variants, outcomes) = (Mutex::default(), Mutex::default());
        let (assume, how) = (vec![], How::default());
        Module(Arc::new(Inner { name, source, structural, variants, outcomes, assume, how }))
    }
    /// Kernels that a user puts side by side or in a row, see [`Stack`]: one program and one launch, whatever fusion would do.
    ///
    /// # Errors
    /// Parts whose inputs and outputs do not fit together, or a part that breaks the IR's rules.
    pub fn from_stack(name: &str, stack: Stack) -> Result<Module, Error> {
        let (graph, stacking) = stack.build(name).map_err(|e| Error::Graph(e.to_string()))?;
        let module = Module::from_graph(graph)?;
        Ok(module.with(|inner| inner.how.stacking = Some(Arc::new(stacking))))
    }
    /// The module with conditions on its dims that hold for every input it will get, e.g. `s0 = s1`, `s0 % 64 == 0`,
    /// `s0 <= 4096`: fusion relies on them, and inputs that violate one are an error. Plans and packed weights are not shared
    /// with `self`, so make it once for all sessions.
    ///
    /// # Errors
    /// Text that is no condition on the model's symbols, or a condition that never holds. Where the structure of the model
    /// depends on inputs, that shows when they are given.
    pub fn assuming(&self, conditions: &[String]) -> Result<Module, Error> {
        let mut source = self.0.source.clone();
        if let Source::Graph(g) = &mut source {
            let g = Arc::make_mut(g);
            conditions.iter().try_for_each(|c| g.assume_stated(c)).map_err(Error::Bind)?;
        }
        Ok(self.with(|inner| {
            inner.assume.extend_from_slice(conditions);
            inner.source = source;
        }))
    }
    /// The module with at most so many times that fusion puts an op into a kernel with others, see
    /// [`FuseOptions::contractions`]; what fuses after that runs as a kernel of its own.
    #[must_use]
    pub fn with_contractions(&self, most: usize) -> Module {
        self.with(|inner| inner.how.contractions = Some(most))
    }
    /// The module with f16 and bf16 values that are rounded where [`dvm_fuse::Half`] says; [`Half::Wide`](dvm_fuse::Half::Wide) makes
    /// them depend on what is fused.
    #[must_use]
    pub fn with_half(&self, half: dvm_fuse::Half) -> Module {
        self.with(|inner| inner.how.half = half)
    }
    /// The module with its plans changed, for tests of what looks for defects.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn tampered(&self, tamper: fn(&mut Plan)) -> Module {
        self.with(|inner| inner.how.tamper = Some(tamper))
    }
    /// A module of the same source with nothing planned yet.
    fn with(&self, change: impl FnOnce(&mut Inner)) -> Module {
        let i = &*self.0;
        let mut inner = Inner {
            name: i.name.clone(),
            source: i.source.clone(),
            structural: i.structural.clone(),
            variants: Mutex::default(),
            outcomes: Mutex::default(),
            assume: i.assume.clone(),
            how: i.how.clone(),
        };
        change(&mut inner);
        Module(Arc::new(inner))
    }
    /// Name: the file's stem, or the graph's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// What must be given before anything else about the model is known.
    #[must_use]
    pub fn structural(&self) -> &Structural {
        &self.0.structural
    }
    /// The graph. Inputs and dims matter only where [`Module::structural`] is not empty.
    ///
    /// # Errors
    /// A structural value is missing, or the model is invalid for it.
    pub fn graph(&self, inputs: &[(String, Tensor)], dims: &[(String, i64)]) -> Result<Arc<Graph>, Error> {
        Ok(self.variant(inputs, dims)?.graph.clone())
    }
    /// The fused plan, given inputs and dims as for [`Module::graph`].
    ///
    /// # Errors
    /// As [`Module::graph`], or the fuser's; a graph with controls has no single plan, see [`Module::stages`].
    pub fn plan(
        &self,
        inputs: &[(String, Tensor)],
        dims: &[(String, i64)],
        fuse: bool,
    ) -> Result<Arc<Plan>, Error> {
        self.variant(inputs, dims)?.plan(fuse).map(|(plan, _)| plan)
    }

    /// The steps of a graph with controls, each part with its plan; of any other graph the one plan there is.
    ///
    /// # Errors
    /// As [`Module::plan`].
    pub fn stages(
        &self,
        inputs: &[(String, Tensor)],
        dims: &[(String, i64)],
        fuse: bool,
    ) -> Result<Vec<Stage>, Error> {
        let variant = self.variant(inputs, dims)?;
        if variant.graph.controls.is_empty() {
            let (plan, _) = variant.plan(fuse)?;
            let part = Some((variant.graph.clone(), plan));
            return Ok(vec![Stage { depth: 0, label: variant.graph.name.clone(), part }]);
        }
        let mut out = vec![];
        variant.flow()?.stages(fuse, 0, &mut out)?;
        Ok(out)
    }

    /// What the model becomes and why, step by step: of a graph without controls, the one plan there is. Sizes have values
    /// where `dims` give them. Where fusion lacked a fact, plans are made again to find it, so this takes longer than planning.
    ///
    /// # Errors
    /// As [`Module::plan`], and a dim of `dims` that the model does not have.
    pub fn explain(
        &self,
        inputs: &[(String, Tensor)],
        dims: &[(String, i64)],
        fuse: bool,
    ) -> Result<Vec<StageNote>, Error> {
        let variant = self.variant(inputs, dims)?;
        if let Some((name, _)) = dims.iter().find(|(n, _)| variant.graph.dims.find_symbol(n).is_none())
            && !self.0.structural.symbols.contains(name)
        {
            return Err(no_symbol(&variant.graph, name));
        }
        if variant.graph.controls.is_empty() {
            return Ok(vec![StageNote::of(&variant, fuse, dims, 0)?]);
        }
        let mut out = vec![];
        variant.flow()?.notes(fuse, dims, 0, &mut out)?;
        Ok(out)
    }

    pub(crate) fn variant(
        &self,
        inputs: &[(String, Tensor)],
        dims: &[(String, i64)],
    ) -> Result<Arc<Variant>, Error> {
        let shapes = || inputs.iter().map(|(n, t)| (n.clone(), t.shape().to_vec())).collect::<Vec<_>>();
        let given = dims;
        let dims: Vec<(String, i64)> =
            dims.iter().filter(|(n, _)| self.0.structural.symbols.contains(n)).cloned().collect();
        let mut variants = self.0.variants.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Each condition is asked once.
        let mut asked: Vec<(Arc<Outcome>, bool)> = vec![];
        let mut goes = |c: &Arc<Outcome>| -> Result<bool, Error> {
            if let Some((_, value)) = asked.iter().find(|(a, _)| Arc::ptr_eq(a, c)) {
                return Ok(*value);
            }
            let value = c.value(inputs, given)?;
            asked.push((c.clone(), value));
            Ok(value)
        };
        let mut fits = |k: &Key| -> Result<bool, Error> {
            if k.dims != dims
                || !k.ranks.iter().all(|(n, r)| inputs.iter().any(|(m, t)| n == m && t.shape().len() == *r))
                || !k.inputs.iter().all(|(n, t)| inputs.iter().any(|(m, u)| n == m && t == u))
                || k.shapes.as_ref().is_some_and(|s| *s != shapes())
            {
                return Ok(false);
            }
            for (c, value) in &k.outcomes {
                if goes(c)? != *value {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        for v in variants.iter() {
            if fits(&v.key)? {
                return Ok(v.clone());
            }
        }
        let (graph, key) = match &self.0.source {
            Source::Graph(g) => (g.clone(), Key::default()),
            #[cfg(feature = "onnx")]
            Source::Onnx { model, base_dir } => {
                let mut opts = dvm_onnx::ImportOptions::default();
                opts.base_dir.clone_from(base_dir);
                opts.dims.clone_from(&dims);
                let mut outcomes = vec![];
                let imported = loop {
                    let condition = match dvm_onnx::import_for(model, &opts, inputs) {
                        Ok(done) => break done,
                        Err(dvm_onnx::ImportError::NeedsOutcome { condition }) => condition,
                        Err(e) => return Err(e.into()),
                    };
                    let decided = condition.decided;
                    let before = (decided.known, decided.dims, decided.ranks, decided.outcomes);
                    let outcome = self.outcome(before, condition.graph, condition.dim, condition.node);
                    let value = goes(&outcome)?;
                    opts.outcomes.push(value);
                    outcomes.push((outcome, value));
                };
                let by = imported.decided_by;
                let shapes = (by.dims.len() > dims.len()).then(shapes);
                let mut graph = imported.graph;
                self.0.assume.iter().try_for_each(|c| graph.assume_stated(c)).map_err(Error::Bind)?;
                (Arc::new(graph), Key { inputs: by.known, shapes, dims, ranks: by.ranks, outcomes })
            }
        };
        let variant = Arc::new(Variant { key, ..Variant::of(graph, self.0.how.clone()) });
        if variants.len() >= MAX_VARIANTS {
            variants.remove(0);
        }
        variants.push(variant.clone());
        Ok(variant)
    }
    /// The condition met after these decisions, the same one every time.
    #[cfg(feature = "onnx")]
    fn outcome(&self, before: Before, graph: Graph, dim: Option<dvm_ir::Dim>, node: String) -> Arc<Outcome> {
        let mut all = self.0.outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(o) = all.iter().find(|o| o.before == before && o.node == node) {
            return o.clone();
        }
        if all.len() >= MAX_OUTCOMES {
            all.clear();
        }
        all.push(Arc::new(Outcome { before, graph, dim, node, session: Mutex::default() }));
        all[all.len() - 1].clone()
    }
}

impl Variant {
    /// A graph that nothing decided.
    pub(crate) fn of(graph: Arc<Graph>, how: How) -> Variant {
        Variant {
            key: Key::default(),
            graph,
            how,
            flow: Mutex::default(),
            plans: Mutex::default(),
            packed: Mutex::default(),
        }
    }
    /// The graph split at its controls.
    pub(crate) fn flow(&self) -> Result<Arc<Flow>, Error> {
        let mut flow = self.flow.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(f) = &*flow {
            return Ok(f.clone());
        }
        let made = Arc::new(Flow::new(self.graph.clone(), self.how.clone())?);
        *flow = Some(made.clone());
        Ok(made)
    }
    /// The inputs that are left where structural values have become constants.
    pub(crate) fn remaining(&self, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
        let known = |name: &str| self.key.inputs.iter().any(|(n, _)| n == name);
        inputs.iter().filter(|(n, _)| !known(n)).cloned().collect()
    }
    /// The plan with what was missing for a better one.
    pub(crate) fn explained(&self, fuse: bool) -> Result<Plan, Error> {
        self.make(fuse, dvm_fuse::explained)
    }
    fn make(
        &self,
        fuse: bool,
        plan: fn(&Graph, &FuseOptions) -> Result<Plan, dvm_fuse::FuseError>,
    ) -> Result<Plan, Error> {
        let options = FuseOptions {
            fuse,
            contractions: self.how.contractions,
            half: self.how.half,
            ..FuseOptions::default()
        };
        let mut made = match &self.how.stacking {
            Some(s) => s.plan(&self.graph, &options)?,
            None => plan(&self.graph, &options)?,
        };
        if let Some(tamper) = self.how.tamper {
            tamper(&mut made);
        }
        Ok(made)
    }
    /// The plan, and the time it took if it was made now.
    pub(crate) fn plan(&self, fuse: bool) -> Result<(Arc<Plan>, f64), Error> {
        let mut plans = self.plans.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let slot = &mut plans[usize::from(fuse)];
        if let Some(plan) = slot {
            return Ok((plan.clone(), 0.0));
        }
        let start = Instant::now();
        let plan = Arc::new(self.make(fuse, dvm_fuse::plan)?);
        *slot = Some(plan.clone());
        Ok((plan, start.elapsed().as_secs_f64() * 1e6))
    }
    /// A constant packed as asked, made once, and the time it took if it was made now.
    pub(crate) fn packed(
        &self,
        plan: &Plan,
        index: u32,
        pack: dvm_tile::Pack,
    ) -> Result<(Arc<Vec<u8>>, f64), Error> {
        let mut packed = self.packed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let constant = &plan.constants[index as usize];
        let address = constant.bytes().as_ptr() as usize;
        if let Some((_, _, data)) = packed.iter().find(|(a, p, _)| *a == address && *p == pack) {
            return Ok((data.clone(), 0.0));
        }
        let start = Instant::now();
        let (bytes, size) = (constant.bytes(), constant.dtype().size() as u32);
        let data = dvm_bc::layout::pack_panels(bytes, size, &pack.matrices, pack.nr)
            .map_err(|e| Error::Launch(format!("constant {index}: {e}")))?;
        let data = Arc::new(data);
        packed.push((address, pack, data.clone()));
        Ok((data, start.elapsed().as_secs_f64() * 1e6))
    }
}

fn no_symbol(graph: &Graph, name: &str) -> Error {
    let known: Vec<&str> = graph.dims.symbols().map(|(_, n)| n).collect();
    let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
    Error::Bind(format!("the model has no symbol `{name}`; its symbols are: {known}"))
}

/// The shapes of all inputs of a graph, where some tensors are given and the remaining symbols have values in `dims`.
///
/// # Errors
/// Given inputs that do not fit, unknown symbols, or symbols without a value.
pub fn input_shapes(
    graph: &Graph,
    given: &[(String, Tensor)],
    dims: &[(String, i64)],
) -> Result<(Bindings, Vec<Vec<usize>>), Error> {
    let mut bindings = crate::launch::bind_given(graph, given)?;
    for (name, value) in dims {
        let symbol = graph.dims.find_symbol(name).ok_or_else(|| no_symbol(graph, name))?;
        bindings.bind(symbol, *value).map_err(|old| {
            Error::Bind(format!("symbol `{name}` is {value} by --dim but {old} by the inputs"))
        })?;
    }
    let mut shapes = Vec::with_capacity(graph.inputs.len());
    let mut unbound = Vec::new();
    for input in &graph.inputs {
        let mut shape = Vec::new();
        for &d in graph.shape(input.value) {
            match graph.dims.eval(d, &bindings) {
                Ok(v) => shape.push(usize::try_from(v).map_err(|_| {
                    Error::Bind(format!(
                        "input `{}`: extent {} = {v} is negative",
                        input.name,
                        graph.dims.display(d)
                    ))
                })?),
                Err(dvm_ir::DimError::Unbound { symbol }) => {
                    if !unbound.contains(&symbol) {
                        unbound.push(symbol);
                    }
                }
                Err(e) => return Err(Error::Bind(format!("input `{}`: {e}", input.name))),
            }
        }
        shapes.push(shape);
    }
    if unbound.is_empty() {
        Ok((bindings, shapes))
    } else {
        Err(Error::UnboundSymbols { symbols: unbound.join(", ") })
    }
}

/// The inputs and outputs of a graph as text.
#[must_use]
pub fn signature(graph: &Graph) -> (Vec<PortInfo>, Vec<PortInfo>) {
    let port = |name: &str, v| PortInfo {
        name: name.to_string(),
        dtype: graph.dtype(v),
        shape: graph.shape(v).iter().map(|&d| graph.dims.display(d).to_string()).collect(),
    };
    (
        graph.inputs.iter().map(|i| port(&i.name, i.value)).collect(),
        graph.outputs.iter().map(|o| port(&o.name, o.value)).collect(),
    )
}
