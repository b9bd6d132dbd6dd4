//! Walks an ONNX graph and builds a [`Graph`]: inputs, constants, nodes, taken branches and local functions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::rc::Rc;

use dvm_ir::{DType, Dim, Graph, Op, Scalar, Tensor, ValueId};

use crate::body::{Local, Waiting};
use crate::cx::Cx;
use crate::error::{Fail, Problem, ProblemKind, invalid, unsupported};
use crate::ops::{OpRow, table};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::proto::{dimension, type_proto};
use crate::tensor;
use crate::value::{MAX_ELEMS, Nd, V, Val, count};

/// How to import.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Folder of the model, where its external data lie.
    pub base_dir: Option<PathBuf>,
    /// Inputs whose values are given: they become constants and are no longer inputs of the graph.
    pub known: Vec<(String, Tensor)>,
    /// Symbols whose values are given: they become constants.
    pub dims: Vec<(String, i64)>,
    /// Ranks of inputs that the model does not declare.
    pub ranks: Vec<(String, usize)>,
    /// Which way the branches go that [`ImportError::NeedsOutcome`](crate::ImportError::NeedsOutcome) asked about, in order.
    pub outcomes: Vec<bool>,
}

/// A condition that decides what the graph is.
#[derive(Clone, Debug)]
pub struct Condition {
    /// A graph whose only output, a bool of one element, is the condition.
    pub graph: Graph,
    /// The condition as a dim of the graph, where extents or elements of inputs tell it.
    pub dim: Option<Dim>,
    /// The node that branches.
    pub node: String,
    /// What was decided before.
    pub decided: ImportOptions,
}

/// Deepest nesting of functions and branches.
const MAX_DEPTH: usize = 32;
/// Most nodes that calls and branches may expand to beyond those in the file.
const MAX_EXPANSION: usize = 100_000;
/// Input elements that are tracked as symbols: at most this many, in vectors and scalars.
const MAX_INPUT_ELEMS: i64 = 32;
/// Oldest operator set that is read.
pub(crate) const MIN_OPSET: i64 = 7;

type Scope = HashMap<String, Option<V>>;
type FunctionKey<'m> = (&'m str, &'m str, &'m str);

pub(crate) struct Importer<'m> {
    pub(crate) graph: Graph,
    pub(crate) vals: Vec<Val>,
    pub(crate) opts: &'m ImportOptions,
    scopes: Vec<Scope>,
    /// Scopes below this index are not visible: the body of a function sees its own values only.
    visible_from: usize,
    pub(crate) opsets: HashMap<String, i64>,
    functions: HashMap<FunctionKey<'m>, &'m FunctionProto>,
    rows: HashMap<(&'static str, &'static str), &'static OpRow>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) needs_values: BTreeSet<String>,
    pub(crate) needs_dims: BTreeSet<String>,
    pub(crate) needs_ranks: BTreeSet<String>,
    pub(crate) op_counts: BTreeMap<String, usize>,
    depth: usize,
    budget: usize,
    outputs: Vec<(String, V)>,
    /// Graphs around the one that is being built.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) local: Local,
    /// Dims that bodies began with.
    pub(crate) inherited: usize,
    /// New symbols.
    pub(crate) fresh: usize,
    /// Branches decided so far, and the first that is not.
    decided: usize,
    pub(crate) undecided: Option<Condition>,
}

/// `axis` of `NAME` as a symbol, when the model gives no name.
pub(crate) fn axis_symbol(name: &str, axis: usize) -> String {
    format!("{name}.{axis}")
}

impl<'m> Importer<'m> {
    pub(crate) fn run(model: &'m ModelProto, opts: &'m ImportOptions) -> Importer<'m> {
        let mut imp = Importer {
            graph: Graph::new(model.graph.as_ref().and_then(|g| g.name.clone()).unwrap_or_default()),
            vals: vec![],
            opts,
            scopes: vec![Scope::new()],
            visible_from: 0,
            opsets: opset_map(&model.opset_import),
            functions: HashMap::new(),
            rows: table().iter().flat_map(|f| f.rows.iter()).map(|r| ((r.domain, r.name), r)).collect(),
            problems: vec![],
            needs_values: BTreeSet::new(),
            needs_dims: BTreeSet::new(),
            needs_ranks: BTreeSet::new(),
            op_counts: BTreeMap::new(),
            depth: 0,
            budget: MAX_EXPANSION,
            outputs: vec![],
            waiting: vec![],
            local: Local::default(),
            inherited: 0,
            fresh: 0,
            decided: 0,
            undecided: None,
        };
        for f in &model.functions {
            let key = (
                norm_domain(f.domain.as_deref()),
                f.name.as_deref().unwrap_or(""),
                f.overload.as_deref().unwrap_or(""),
            );
            imp.functions.insert(key, f);
        }
        let Some(graph) = &model.graph else {
            imp.problem("model", "", Fail::Invalid("it holds no graph".into()));
            return imp;
        };
        match imp.opset("") {
            Some(v) if v < MIN_OPSET => {
                let reason = format!("operator set {v}; {MIN_OPSET} or later is read");
                imp.problem("model", "", Fail::Unsupported(reason));
            }
            None if graph.node.iter().any(|n| norm_domain(n.domain.as_deref()).is_empty()) => {
                imp.problem("model", "", Fail::Invalid("it imports no ONNX operator set".into()));
            }
            _ => {}
        }
        imp.top_level(graph);
        imp
    }

    pub(crate) fn opset(&self, domain: &str) -> Option<i64> {
        self.opsets.get(domain).copied()
    }

    pub(crate) fn problem(&mut self, node: &str, op: &str, fail: Fail) {
        let (kind, reason) = match fail {
            Fail::Unsupported(r) => (ProblemKind::Unsupported, r),
            Fail::Invalid(r) => (ProblemKind::Invalid, r),
            Fail::NeedsValues(inputs) => return self.needs_values.extend(inputs),
            Fail::NeedsDims(symbols) => return self.needs_dims.extend(symbols),
            Fail::Poisoned => return,
        };
        self.problems.push(Problem { node: node.to_string(), op: op.to_string(), kind, reason });
    }

    pub(crate) fn add(&mut self, val: Val) -> V {
        self.vals.push(val);
        V(self.vals.len() as u32 - 1)
    }
    pub(crate) fn val(&self, v: V) -> &Val {
        &self.vals[v.0 as usize]
    }
    /// A constant, not yet in the graph.
    pub(crate) fn constant(&mut self, t: Tensor) -> V {
        let shape = t.shape().iter().map(|&d| self.graph.dims.constant(d as i64)).collect();
        let dtype = t.dtype();
        let level = self.level();
        self.add(Val { dtype, shape, id: None, tensor: Some(t), elems: None, runtime: false, level })
    }
    /// A value of the graph.
    pub(crate) fn of_id(&mut self, id: ValueId) -> V {
        let ty = &self.graph.value(id).ty;
        let (dtype, shape) = (ty.dtype, ty.shape.clone());
        let level = self.level();
        self.add(Val { dtype, shape, id: Some(id), tensor: None, elems: None, runtime: false, level })
    }
    /// Known elements, not yet in the graph.
    pub(crate) fn of_nd(&mut self, dtype: DType, nd: Nd) -> V {
        let shape = nd.shape.iter().map(|&d| self.graph.dims.constant(d as i64)).collect();
        let level = self.level();
        self.add(Val {
            dtype,
            shape,
            id: None,
            tensor: None,
            elems: Some(nd.data.into()),
            runtime: false,
            level,
        })
    }

    /// Adds a node.
    pub(crate) fn push(&mut self, op: Op, inputs: &[ValueId], name: Option<&str>) -> Result<ValueId, Fail> {
        Ok(match name {
            Some(n) => self.graph.push_named(op, inputs, n)?,
            None => self.graph.push(op, inputs)?,
        })
    }

    /// The value as a tensor of the graph.
    pub(crate) fn materialise(&mut self, v: V) -> Result<ValueId, Fail> {
        let val = &self.vals[v.0 as usize];
        if val.level != self.level() {
            return self.captured_value(v);
        }
        if let Some(id) = val.id {
            return Ok(id);
        }
        let dtype = val.dtype;
        let id = if let Some(t) = &val.tensor {
            let t = t.clone();
            self.graph.constant(None, t)
        } else if let Some(elems) = val.elems.clone() {
            self.elements(dtype, &val.shape.clone(), &elems)?
        } else {
            return Err(Fail::Poisoned);
        };
        self.vals[v.0 as usize].id = Some(id);
        Ok(id)
    }

    pub(crate) fn elements(&mut self, dtype: DType, shape: &[Dim], elems: &[Dim]) -> Result<ValueId, Fail> {
        let consts: Option<Vec<i64>> = elems.iter().map(|&d| self.graph.dims.as_const(d)).collect();
        if let Some(consts) = consts {
            let extents: Vec<usize> =
                shape.iter().filter_map(|&d| self.graph.dims.as_const(d)).map(|d| d as usize).collect();
            let mut t = Tensor::zeros(dtype, &extents)?;
            for (i, c) in consts.into_iter().enumerate() {
                t.set(i, if dtype.is_float() { Scalar::Float(c as f64) } else { Scalar::Int(c) });
            }
            return Ok(self.graph.constant(None, t));
        }
        let op = Op::Dims { values: elems.to_vec(), scalar: shape.is_empty(), dtype };
        let id = self.push(op, &[], None)?;
        if shape.len() > 1 { self.push(Op::Reshape { shape: shape.to_vec() }, &[id], None) } else { Ok(id) }
    }

    /// Elements of a value as far as they are known, when there are few.
    pub(crate) fn nd(&mut self, v: V) -> Option<Nd> {
        let val = &self.vals[v.0 as usize];
        let shape = self.const_shape(v)?;
        count(&shape)?;
        if let Some(e) = val.elems.as_ref().or_else(|| self.local.elems.get(&v.0)) {
            return Some(Nd { shape, data: e.to_vec() });
        }
        let t = val.tensor.clone()?;
        if t.len() > if t.dtype().is_float() { 16 } else { MAX_ELEMS } {
            return None;
        }
        let mut data = Vec::with_capacity(t.len());
        for i in 0..t.len() {
            let x = match t.get(i) {
                Scalar::Int(x) if t.dtype() == DType::U64 && x < 0 => return None,
                Scalar::Int(x) => x,
                Scalar::Float(x) => exact_integer(x)?,
            };
            data.push(self.graph.dims.constant(x));
        }
        // Dims of a body mean nothing outside.
        if self.val(v).level == self.level() {
            self.vals[v.0 as usize].elems = Some(Rc::from(data.as_slice()));
        }
        Some(Nd { shape, data })
    }
    /// Whether [`Importer::nd`] would give something.
    pub(crate) fn is_known(&self, v: V) -> bool {
        let val = self.val(v);
        val.elems.is_some()
            || self.local.elems.contains_key(&v.0)
            || val
                .tensor
                .as_ref()
                .is_some_and(|t| t.len() <= if t.dtype().is_float() { 16 } else { MAX_ELEMS })
    }
    /// Extents, when all are constant.
    pub(crate) fn const_shape(&self, v: V) -> Option<Vec<usize>> {
        let dims = &self.graph.dims;
        self.val(v).shape.iter().map(|&d| dims.as_const(d).and_then(|c| usize::try_from(c).ok())).collect()
    }

    fn top_level(&mut self, graph: &'m GraphProto) {
        let names: BTreeSet<&str> = graph.initializer.iter().filter_map(|t| t.name.as_deref()).collect();
        for info in &graph.input {
            let name = info.name.as_deref().unwrap_or("");
            // Before IR version 4 every initialiser was listed as an input too.
            if names.contains(name) {
                continue;
            }
            let v = match self.input(name, info) {
                Ok(v) => Some(v),
                Err(e) => {
                    self.problem(name, "", e);
                    None
                }
            };
            self.define(name, v);
        }
        self.initializers(graph);
        self.nodes(&graph.node);
        for info in &graph.output {
            let name = info.name.as_deref().unwrap_or("");
            match self.lookup(name) {
                Ok(v) => self.outputs.push((name.to_string(), v)),
                Err(e) => self.problem(name, "", e),
            }
        }
        if graph.output.is_empty() {
            self.problem("model", "", Fail::Invalid("it has no outputs".into()));
        }
    }

    fn input(&mut self, name: &str, info: &ValueInfoProto) -> Result<V, Fail> {
        if name.is_empty() || self.scopes[0].contains_key(name) {
            return invalid("its name is empty or used twice");
        }
        if let Some((_, t)) = self.opts.known.iter().find(|(n, _)| n == name) {
            return Ok(self.constant(t.clone()));
        }
        let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
            Some(type_proto::Value::Tensor(t)) => t,
            None => return invalid("it has no type"),
            Some(type_proto::Value::Sequence(_)) => return unsupported("a sequence input"),
            Some(type_proto::Value::Optional(_)) => return unsupported("an optional input"),
            Some(_) => return unsupported("an input that is not a tensor"),
        };
        let dtype = tensor::dtype(tensor.elem_type.unwrap_or(0))?;
        let given = self.opts.ranks.iter().find(|(n, _)| n == name).map(|r| r.1);
        let declared = tensor.shape.as_ref();
        let Some(rank) = declared.map(|d| d.dim.len()).or(given) else {
            self.needs_ranks.insert(name.to_string());
            return Err(Fail::Poisoned);
        };
        if rank > 64 {
            return unsupported(format!("rank {rank}"));
        }
        let mut shape = vec![];
        for axis in 0..rank {
            shape.push(match declared.and_then(|d| d.dim[axis].value.as_ref()) {
                Some(dimension::Value::DimParam(p)) if !p.is_empty() => self.named_dim(p),
                // Exporters write 0 (and -1) for "unknown"; an input that is always empty would be of no use.
                Some(dimension::Value::DimValue(n)) if *n > 0 => self.graph.dims.constant(*n),
                _ => self.named_dim(&axis_symbol(name, axis)),
            });
        }
        let id = self.graph.input(name, dtype, &shape);
        let v = self.of_id(id);
        self.track_elements(v, name);
        Ok(v)
    }
    /// The elements of a small integer input count as sizes.
    pub(crate) fn track_elements(&mut self, v: V, name: &str) {
        let Val { dtype, shape, .. } = self.val(v);
        let count = match shape.as_slice() {
            [] => Some(1),
            [n] => self.graph.dims.as_const(*n),
            _ => None,
        };
        if matches!(dtype, DType::I64 | DType::I32)
            && let Some(n) = count.filter(|&n| n <= MAX_INPUT_ELEMS)
        {
            let elems =
                (0..n).map(|i| self.graph.dims.value_symbol(&format!("{name}[{i}]"))).collect::<Vec<_>>();
            if let Some(input) = self.graph.inputs.last_mut() {
                input.elements = Some(elems.clone());
            }
            let val = &mut self.vals[v.0 as usize];
            val.elems = Some(elems.into());
            val.runtime = true;
        }
    }

    fn named_dim(&mut self, name: &str) -> Dim {
        match self.opts.dims.iter().find(|(n, _)| n == name) {
            Some(&(_, value)) => self.graph.dims.constant(value),
            None => self.graph.dims.symbol(name),
        }
    }

    fn initializers(&mut self, graph: &GraphProto) {
        for t in &graph.initializer {
            let name = t.name.as_deref().unwrap_or("");
            let v = match tensor::tensor(t, self.opts.base_dir.as_deref()) {
                Ok(t) => Some(self.constant(t)),
                Err(e) => {
                    self.problem(name, "", e);
                    None
                }
            };
            self.define(name, v);
        }
        for t in &graph.sparse_initializer {
            let name = t.values.as_ref().and_then(|v| v.name.as_deref()).unwrap_or("").to_string();
            self.problem(&name, "", Fail::Unsupported("a sparse initialiser".into()));
            self.define(&name, None);
        }
    }

    fn define(&mut self, name: &str, v: Option<V>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), v);
        }
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<V, Fail> {
        let found = self.scopes[self.visible_from..].iter().rev().find_map(|s| s.get(name));
        match found {
            Some(Some(v)) => Ok(*v),
            Some(None) => Err(Fail::Poisoned),
            None => Err(Fail::Invalid(format!("\"{name}\" is not defined before its use"))),
        }
    }

    fn nodes(&mut self, nodes: &[NodeProto]) {
        for node in nodes {
            self.node(node);
        }
    }

    fn node(&mut self, node: &NodeProto) {
        let domain = norm_domain(node.domain.as_deref());
        let op = node.op_type.as_deref().unwrap_or("");
        let full = if domain.is_empty() { op.to_string() } else { format!("{domain}.{op}") };
        *self.op_counts.entry(full.clone()).or_default() += 1;
        let result = self.outputs_of(node, domain, op);
        let produced = match result {
            Ok(vs) => vs.into_iter().map(Some).collect(),
            Err(e) => {
                let name = node_name(node, &full);
                self.problem(&name, &full, e);
                vec![]
            }
        };
        for (i, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let v = produced.get(i).copied().flatten();
            if v.is_none() && !produced.is_empty() {
                let who = node_name(node, &full);
                let fail = Fail::Unsupported(format!("output {i} (\"{name}\")"));
                self.problem(&who, &full, fail);
            }
            let own = v.filter(|&v| self.val(v).level == self.level());
            if let Some(id) = own.and_then(|v| self.val(v).id) {
                self.graph.values[id.index()].name.get_or_insert_with(|| name.clone());
            }
            self.define(name, v);
        }
    }

    fn outputs_of(&mut self, node: &NodeProto, domain: &str, op: &str) -> Result<Vec<V>, Fail> {
        let overload = node.overload.as_deref().unwrap_or("");
        if let Some(f) = self.functions.get(&(domain, op, overload)).copied() {
            return self.call(f, node);
        }
        let Some(row) = self.rows.get(&(domain, op)).copied() else {
            return unsupported("the op is not imported (docs/onnx.md lists those that are)");
        };
        // Domains other than ONNX's own have one version of each op.
        let opset = self.opset(domain).unwrap_or(1);
        if domain.is_empty() && opset < row.since {
            return invalid(format!(
                "the op is of operator set {} and later, the model uses {opset}",
                row.since
            ));
        }
        let mut inputs = Vec::with_capacity(node.input.len());
        let mut poisoned = false;
        for name in &node.input {
            inputs.push(match self.lookup(name) {
                _ if name.is_empty() => None,
                Ok(v) => Some(v),
                Err(Fail::Poisoned) => {
                    poisoned = true;
                    None
                }
                Err(e) => return Err(e),
            });
        }
        if poisoned {
            return Err(Fail::Poisoned);
        }
        (row.handler)(&mut Cx::new(self, node, inputs, opset))
    }

    /// Imports the nodes of a branch or body in the scope of its node. `inputs` are the values of its own inputs.
    pub(crate) fn branch(&mut self, graph: &GraphProto, inputs: &[V]) -> Result<Vec<V>, Fail> {
        self.enter(graph.node.len())?;
        if inputs.len() > graph.input.len() {
            self.depth -= 1;
            return invalid(format!("a body of {} inputs gets {}", graph.input.len(), inputs.len()));
        }
        self.scopes.push(Scope::new());
        for (info, &v) in graph.input.iter().zip(inputs) {
            self.define(info.name.as_deref().unwrap_or(""), Some(v));
        }
        self.initializers(graph);
        self.nodes(&graph.node);
        let outs: Result<Vec<V>, Fail> =
            graph.output.iter().map(|o| self.lookup(o.name.as_deref().unwrap_or(""))).collect();
        self.scopes.pop();
        self.depth -= 1;
        outs
    }
    /// Which way a branch goes that decides what the graph is: `None`, and recorded, when that is not known yet.
    pub(crate) fn outcome(&mut self, cond: V, dim: Option<Dim>, node: &str) -> Result<Option<bool>, Fail> {
        if let Some(&taken) = self.opts.outcomes.get(self.decided) {
            self.decided += 1;
            return Ok(Some(taken));
        }
        if self.undecided.is_none() {
            let id = match dim {
                Some(d) => {
                    self.push(Op::Dims { values: vec![d], scalar: true, dtype: DType::Bool }, &[], None)?
                }
                None => self.materialise(cond)?,
            };
            let mut graph = self.graph.clone();
            graph.outputs.clear();
            graph.output("condition", id);
            if dim.is_some() {
                graph.checks.clear();
            }
            self.undecided = Some(Condition {
                graph: crate::prune::prune(graph),
                dim,
                node: node.to_string(),
                decided: self.opts.clone(),
            });
        }
        Ok(None)
    }

    fn call(&mut self, f: &'m FunctionProto, node: &NodeProto) -> Result<Vec<V>, Fail> {
        self.enter(f.node.len())?;
        let mut scope = Scope::new();
        let mut failed = None;
        for (i, param) in f.input.iter().enumerate() {
            // An omitted argument is an omitted operand inside.
            match node.input.get(i).filter(|n| !n.is_empty()) {
                Some(arg) => match self.lookup(arg) {
                    Ok(v) => _ = scope.insert(param.clone(), Some(v)),
                    Err(e) => failed = Some(e),
                },
                None => _ = scope.insert(param.clone(), None),
            }
        }
        if let Some(e) = failed {
            self.depth -= 1;
            return Err(e);
        }
        let omitted: BTreeSet<&str> =
            scope.iter().filter(|(_, v)| v.is_none()).map(|(n, _)| n.as_str()).collect();
        let nodes: Vec<NodeProto> =
            f.node.iter().map(|n| bind_attributes(n, f, node, &omitted).into_owned()).collect();
        let opsets = std::mem::replace(&mut self.opsets, opset_map(&f.opset_import));
        let visible = std::mem::replace(&mut self.visible_from, self.scopes.len());
        self.scopes.push(scope);
        self.nodes(&nodes);
        let outs: Result<Vec<V>, Fail> = f.output.iter().map(|o| self.lookup(o)).collect();
        self.scopes.pop();
        self.visible_from = visible;
        self.opsets = opsets;
        self.depth -= 1;
        outs
    }

    fn enter(&mut self, nodes: usize) -> Result<(), Fail> {
        if self.depth >= MAX_DEPTH {
            return unsupported(format!("nested more than {MAX_DEPTH} deep"));
        }
        let Some(rest) = self.budget.checked_sub(nodes.max(1)) else {
            return unsupported(format!("calls expand to more than {MAX_EXPANSION} nodes"));
        };
        self.budget = rest;
        self.depth += 1;
        Ok(())
    }

    /// Marks the outputs in the graph; the graph is then complete but may hold dead nodes.
    pub(crate) fn finish(&mut self) {
        for (name, v) in std::mem::take(&mut self.outputs) {
            match self.materialise(v) {
                Ok(id) => self.graph.output(name, id),
                Err(e) => self.problem(&name, "", e),
            }
        }
    }

    /// Inputs of the model whose data a value is computed from; none for a value of a loop's body.
    pub(crate) fn source_inputs(&self, v: V) -> Vec<String> {
        let val = self.val(v);
        let graph = self.graph_of(0);
        let Some(id) = val.id.filter(|_| val.level == 0) else { return vec![] };
        let mut seen = vec![false; graph.values.len()];
        let (mut stack, mut names) = (vec![id], BTreeSet::new());
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            match graph.value(id).def {
                dvm_ir::ValueDef::Input(i) => _ = names.insert(graph.inputs[i as usize].name.clone()),
                dvm_ir::ValueDef::Const(_) => {}
                dvm_ir::ValueDef::Node(n) => stack.extend(&graph.nodes[n.index()].inputs),
                // Re-importing with the inputs' values would not tell what it gives.
                dvm_ir::ValueDef::Control(..) => return vec![],
            }
        }
        names.into_iter().collect()
    }
    /// Whether the model's inputs alone tell a dim.
    pub(crate) fn is_settled(&self, d: Dim) -> bool {
        let told = self
            .graph
            .inputs
            .iter()
            .flat_map(|i| self.graph.shape(i.value).iter().chain(i.elements.iter().flatten()).copied());
        let told = self.graph.dims.symbols_in(told);
        self.graph.dims.symbols_in([d]).iter().all(|s| told.contains(s))
    }
    /// What must be given for these dims to be numbers.
    pub(crate) fn undecided_by(&self, dims: &[Dim]) -> Fail {
        let symbols = self.graph.dims.symbols_in(dims.iter().copied());
        let names: Vec<&str> = symbols.iter().map(|&s| self.graph.dims.symbol_name(s)).collect();
        let outer = self.graph_of(0);
        let told = |i: &&dvm_ir::Input| {
            let elements = outer.dims.symbols_in(i.elements.iter().flatten().copied());
            elements.iter().any(|&s| names.contains(&outer.dims.symbol_name(s)))
        };
        let inputs: Vec<String> = outer.inputs.iter().filter(told).map(|i| i.name.clone()).collect();
        let extents = self.extent_symbols();
        if !inputs.is_empty() {
            Fail::NeedsValues(inputs)
        } else if names.iter().any(|n| extents.iter().any(|e| e == n)) {
            Fail::NeedsDims(extents)
        } else {
            Fail::Unsupported("the structure depends on a computed extent".into())
        }
    }
    /// Symbols that stand for extents of the model's inputs.
    pub(crate) fn extent_symbols(&self) -> Vec<String> {
        let graph = self.graph_of(0);
        let extents = graph.inputs.iter().flat_map(|i| graph.shape(i.value));
        let found: BTreeSet<_> = graph.dims.symbols_in(extents.copied()).into_iter().collect();
        graph.dims.symbols().filter(|(s, _)| found.contains(s)).map(|(_, n)| n.to_string()).collect()
    }
}

fn exact_integer(x: f64) -> Option<i64> {
    (x == x.trunc() && x.abs() < 9e15 && (x != 0.0 || x.is_sign_positive())).then_some(x as i64)
}

/// `ai.onnx` is another name of ONNX's own domain.
pub(crate) fn norm_domain(d: Option<&str>) -> &str {
    match d {
        None | Some("ai.onnx") => "",
        Some(d) => d,
    }
}

fn opset_map(imports: &[crate::proto::OperatorSetIdProto]) -> HashMap<String, i64> {
    imports.iter().map(|o| (norm_domain(o.domain.as_deref()).to_string(), o.version.unwrap_or(1))).collect()
}

fn node_name(node: &NodeProto, op: &str) -> String {
    match (node.name.as_deref().filter(|n| !n.is_empty()), node.output.iter().find(|o| !o.is_empty())) {
        (Some(n), _) => n.to_string(),
        (None, Some(o)) => format!("{op} making {o}"),
        (None, None) => op.to_string(),
    }
}

/// A node of a function's body with the attributes of the call filled in, and omitted arguments left out.
fn bind_attributes<'n>(
    node: &'n NodeProto,
    f: &FunctionProto,
    call: &NodeProto,
    omitted: &BTreeSet<&str>,
) -> Cow<'n, NodeProto> {
    let refers = |a: &AttributeProto| a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty());
    let has_graph = node.attribute.iter().any(|a| a.g.is_some());
    let omits = node.input.iter().any(|i| omitted.contains(i.as_str()));
    if !has_graph && !omits && !node.attribute.iter().any(refers) {
        return Cow::Borrowed(node);
    }
    let mut out = node.clone();
    for i in &mut out.input {
        if omitted.contains(i.as_str()) {
            i.clear();
        }
    }
    out.attribute.clear();
    for a in &node.attribute {
        if let Some(r) = a.ref_attr_name.as_deref().filter(|r| !r.is_empty()) {
            let given = call.attribute.iter().find(|c| c.name.as_deref() == Some(r));
            let default = || f.attribute_proto.iter().find(|c| c.name.as_deref() == Some(r));
            // Without a value the attribute is absent.
            if let Some(value) = given.or_else(default) {
                out.attribute.push(AttributeProto {
                    name: a.name.clone(),
                    ref_attr_name: None,
                    ..value.clone()
                });
            }
            continue;
        }
        let mut a = a.clone();
        if let Some(g) = &mut a.g {
            for n in &mut g.node {
                *n = bind_attributes(n, f, call, omitted).into_owned();
            }
        }
        out.attribute.push(a);
    }
    Cow::Owned(out)
}
