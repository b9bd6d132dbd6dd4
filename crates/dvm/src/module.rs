//! A model, loaded once and shared by any number of sessions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dvm_fuse::FuseOptions;
use dvm_ir::{Bindings, DType, Graph, Plan, Tensor};

use crate::flow::{Flow, Stage};
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
}

enum Source {
    Graph(Arc<Graph>),
    /// A model whose structure depends on its inputs' values.
    #[cfg(feature = "onnx")]
    Onnx {
        model: Box<dvm_onnx::proto::ModelProto>,
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
    /// The first branch whose condition does.
    pub branches: Vec<String>,
}

impl Structural {
    /// Whether the structure is known without any input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.symbols.is_empty() && self.branches.is_empty()
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
    /// Which way branches went.
    outcomes: Vec<(Arc<Outcome>, bool)>,
}

/// What decided a structure: values of inputs, extents, outcomes.
type Before = (Vec<(String, Tensor)>, Vec<(String, i64)>, Vec<bool>);

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
            Err(dvm_onnx::ImportError::NeedsDims { symbols }) => {
                Structural { symbols, ..Structural::default() }
            }
            Err(e) => return Err(e.into()),
        };
        let source = Source::Onnx { model: Box::new(model), base_dir };
        Ok(Module(Arc::new(Inner {
            name: "model".into(),
            source,
            structural,
            variants: Mutex::default(),
            outcomes: Mutex::default(),
        })))
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
        let source = Source::Graph(Arc::new(graph));
        let (variants, outcomes) = (Mutex::default(), Mutex::default());
        Ok(Module(Arc::new(Inner { name, source, structural: Structural::default(), variants, outcomes })))
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
        let mut out = vec![];
        self.variant(inputs, dims)?.flow()?.stages(fuse, 0, &mut out)?;
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
                    let before = (decided.known, decided.dims, decided.outcomes);
                    let outcome = self.outcome(before, condition.graph, condition.dim, condition.node);
                    let value = goes(&outcome)?;
                    opts.outcomes.push(value);
                    outcomes.push((outcome, value));
                };
                let by = imported.decided_by;
                let shapes = (by.dims.len() > dims.len()).then(shapes);
                (Arc::new(imported.graph), Key { inputs: by.known, shapes, dims, outcomes })
            }
        };
        let variant = Arc::new(Variant { key, ..Variant::of(graph) });
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
    pub(crate) fn of(graph: Arc<Graph>) -> Variant {
        Variant {
            key: Key::default(),
            graph,
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
        let made = Arc::new(Flow::new(self.graph.clone())?);
        *flow = Some(made.clone());
        Ok(made)
    }
    /// The inputs that are left where structural values have become constants.
    pub(crate) fn remaining(&self, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
        let known = |name: &str| self.key.inputs.iter().any(|(n, _)| n == name);
        inputs.iter().filter(|(n, _)| !known(n)).cloned().collect()
    }
    /// The plan, and the time it took if it was made now.
    pub(crate) fn plan(&self, fuse: bool) -> Result<(Arc<Plan>, f64), Error> {
        let mut plans = self.plans.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let slot = &mut plans[usize::from(fuse)];
        if let Some(plan) = slot {
            return Ok((plan.clone(), 0.0));
        }
        let start = Instant::now();
        let plan = Arc::new(dvm_fuse::plan(&self.graph, &FuseOptions { fuse, ..FuseOptions::default() })?);
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
        let symbol = graph.dims.find_symbol(name).ok_or_else(|| {
            let known: Vec<&str> = graph.dims.symbols().map(|(_, n)| n).collect();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            Error::Bind(format!("the model has no symbol `{name}`; its symbols are: {known}"))
        })?;
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
