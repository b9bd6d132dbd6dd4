//! The baseline without a compiler: one kernel for each op of the graph, composites (softmax, norms) included, views folded into the kernel
//! that reads them as strided tensors are. All kernels of a run are put into one program with a step each, so that what an op leaves in the
//! L2 is there for the next one; buffers are reused as soon as they are dead, as by a caching allocator.
//!
//! The kernels are those this compiler makes, so that what is compared is the number of kernels, their traffic and the host's work for each,
//! not the skill of a library.

use std::collections::HashMap;
use std::sync::Arc;

use dvm_bc::{Arg, Program, Role, Step};
use dvm_fuse::FuseOptions;
use dvm_ir::{Bindings, DimValues, Graph, Op, TensorType, ValueDef, ValueId};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Compiled, Scratch, compile_plan};

use super::Prepared;
use crate::Error;

/// Alignment of buffers, bytes.
const ALIGN: u64 = 512;

/// Programs that run one after the other as one, for the timing model only.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// All of them; the bindings are those of a simulation.
    pub program: Program,
    /// Address of each argument.
    pub addresses: Vec<u64>,
    /// Per launch: its name, and how many steps it has.
    pub launches: Vec<(String, usize)>,
}

struct Builder<'a> {
    graph: &'a Graph,
    values: &'a DimValues,
    bindings: &'a [(String, i64)],
    spec: &'a MachineSpec,
    scratch: Scratch,
    made: HashMap<String, Arc<(Compiled, u32)>>,
    out: Program,
    /// Argument of a graph value (and form of a constant), with the launches that use it first and last.
    args: HashMap<String, u32>,
    life: Vec<(usize, usize)>,
}

/// The eager form of a graph at bound dims.
///
/// # Errors
/// An op that the compiler refuses.
pub fn eager(prepared: &Prepared, spec: &MachineSpec) -> Result<Sequence, Error> {
    let graph = &*prepared.graph;
    let mut bindings = Bindings::new();
    for (name, value) in &prepared.dims {
        if let Some(symbol) = graph.dims.find_symbol(name) {
            let _ = bindings.bind(symbol, *value);
        }
    }
    let mut values = DimValues::default();
    graph.dims.eval_all(&bindings, &mut values);
    let program = Program {
        name: format!("{} eager", graph.name),
        target: spec.target.clone(),
        args: vec![],
        templates: vec![],
        steps: vec![],
        aliases: vec![],
    };
    let mut b = Builder {
        graph,
        values: &values,
        bindings: &prepared.dims,
        spec,
        scratch: Scratch::default(),
        made: HashMap::new(),
        out: program,
        args: HashMap::new(),
        life: vec![],
    };
    b.scratch.check(false);
    let mut launches = vec![];
    for (i, node) in graph.nodes.iter().enumerate() {
        // Views make no kernel; what only dims decide is known to the host.
        if node.op.is_view() || matches!(node.op, Op::Dims { .. }) {
            continue;
        }
        let steps = b.launch(i, launches.len())?;
        if steps > 0 {
            let name = node.name.as_deref().or(graph.value(node.output).name.as_deref()).unwrap_or_default();
            launches.push((format!("{} {name}", node.op.mnemonic()).trim_end().to_owned(), steps));
        }
    }
    let addresses = b.addresses();
    Ok(Sequence { program: b.out, addresses, launches })
}

impl Builder<'_> {
    /// Adds the kernel of a node as launch number `at`; gives its number of steps.
    fn launch(&mut self, node: usize, at: usize) -> Result<usize, Error> {
        let mut key = String::new();
        let mut roots = vec![];
        self.describe(self.graph.nodes[node].output, true, &mut roots, &mut key);
        let made = match self.made.get(&key) {
            Some(m) => m.clone(),
            None => {
                let compiled = self.compile(node, &roots)?;
                let base = self.out.templates.len() as u32;
                for t in &compiled.program.templates {
                    let mut t = t.clone();
                    t.name = format!("{}#{}", t.name, self.out.templates.len());
                    self.out.templates.push(t);
                }
                let m = Arc::new((compiled, base));
                self.made.insert(key, m.clone());
                m
            }
        };
        let (compiled, base) = &*made;
        let output = self.graph.nodes[node].output;
        let mut map = Vec::with_capacity(compiled.program.args.len());
        for (arg, binding) in compiled.program.args.iter().zip(&compiled.arg_buffers) {
            let name = match *binding {
                // Inputs are numbered as the roots are.
                ArgBinding::Input(_) => match number(&arg.name, 'r').and_then(|r| roots.get(r)) {
                    Some(v) => format!("v{}", v.index()),
                    None => arg.name.clone(),
                },
                ArgBinding::Output(_) => format!("v{}", output.index()),
                ArgBinding::Constant { pack, .. } => {
                    match number(&arg.name, 'r').and_then(|r| roots.get(r)) {
                        Some(v) => format!("v{}{}", v.index(), if pack.is_some() { ".panels" } else { "" }),
                        None => format!("n{node}.{}", arg.name),
                    }
                }
                ArgBinding::Workspace => "workspace".into(),
                ArgBinding::Ring => "ring".into(),
            };
            map.push(self.argument(name, arg, at));
        }
        let steps = compiled.program.steps.len();
        for step in &compiled.program.steps {
            let units = step.units.iter().map(|u| {
                let mut u = u.clone();
                u.template += base;
                u.slots.iter_mut().for_each(|s| s.0 = map[s.0 as usize]);
                u
            });
            self.out.steps.push(Step { units: units.collect(), limits: vec![] });
        }
        Ok(steps)
    }

    fn argument(&mut self, name: String, like: &Arg, at: usize) -> u32 {
        if let Some(&i) = self.args.get(&name) {
            let arg = &mut self.out.args[i as usize];
            arg.bytes = arg.bytes.max(like.bytes);
            self.life[i as usize].1 = at;
            return i;
        }
        let i = self.out.args.len() as u32;
        self.out.args.push(Arg { name: name.clone(), zero: false, ..like.clone() });
        self.life.push((at, at));
        self.args.insert(name, i);
        i
    }

    /// What a kernel depends on, and the tensors in memory that it reads.
    fn describe(&self, v: ValueId, top: bool, roots: &mut Vec<ValueId>, key: &mut String) {
        use std::fmt::Write as _;
        let node = self.graph.def_node(v);
        match node.filter(|n| top || n.op.is_view() || matches!(n.op, Op::Dims { .. })) {
            Some(n) => {
                let dim = |d: &dvm_ir::Dim| self.values.get(*d).unwrap_or(-1);
                let _ = write!(key, "{}", n.op.mnemonic());
                for (name, a) in n.op.attrs() {
                    let _ = match &a {
                        dvm_ir::Attr::Dim(d) => write!(key, " {name}={}", dim(d)),
                        dvm_ir::Attr::Dims(d) => {
                            write!(key, " {name}={:?}", d.iter().map(dim).collect::<Vec<_>>())
                        }
                        a => write!(key, " {name}={a:?}"),
                    };
                }
                key.push('(');
                n.inputs.iter().for_each(|&x| self.describe(x, false, roots, key));
                key.push(')');
            }
            None => {
                let at = roots.iter().position(|&r| r == v).unwrap_or_else(|| {
                    roots.push(v);
                    roots.len() - 1
                });
                let shape: Vec<i64> =
                    self.graph.shape(v).iter().map(|&d| self.values.get(d).unwrap_or(-1)).collect();
                let _ = write!(key, "r{at}:{}{shape:?}", self.graph.dtype(v));
                if let Some(t) = self.graph.constant_of(v) {
                    let _ = match t.len() {
                        1 if t.has_data() => write!(key, "={:?}", t.get(0)),
                        _ => write!(key, " const"),
                    };
                }
                key.push(';');
            }
        }
    }

    /// The kernel of one node, with the views that it reads through.
    fn compile(&mut self, node: usize, roots: &[ValueId]) -> Result<Compiled, Error> {
        let g = self.graph;
        let mut one = Graph { dims: g.dims.clone(), ..Graph::new(g.nodes[node].op.mnemonic()) };
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        for (i, &r) in roots.iter().enumerate() {
            let TensorType { dtype, shape } = &g.value(r).ty;
            let v = match g.value(r).def {
                ValueDef::Const(c) => one.constant(Some(format!("r{i}")), g.constants[c.index()].clone()),
                _ => one.input(format!("r{i}"), *dtype, shape),
            };
            map.insert(r, v);
        }
        let out = self.import(&mut one, &mut map, g.nodes[node].output);
        one.output("out", out);
        let plan = dvm_fuse::plan(&one, &FuseOptions::default())?;
        let mut bindings = Bindings::new();
        for (name, value) in self.bindings {
            if let Some(s) = plan.dims.find_symbol(name) {
                let _ = bindings.bind(s, *value);
            }
        }
        let mut values = DimValues::default();
        plan.dims.eval_all(&bindings, &mut values);
        Ok(compile_plan(&plan, &values, self.spec, &mut self.scratch)?)
    }

    fn import(&self, one: &mut Graph, map: &mut HashMap<ValueId, ValueId>, v: ValueId) -> ValueId {
        if let Some(&done) = map.get(&v) {
            return done;
        }
        let Some(node) = self.graph.def_node(v) else { return v };
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&x| self.import(one, map, x)).collect();
        let out = one.push_typed(node.op.clone(), &inputs, self.graph.value(v).ty.clone(), None);
        map.insert(v, out);
        out
    }

    /// Inputs, outputs and constants have addresses of their own; what is between reuses those of the dead.
    fn addresses(&self) -> Vec<u64> {
        let count = self.out.args.len();
        let mut out = vec![0; count];
        let mut kept = vec![true; count];
        for (v, value) in self.graph.values.iter().enumerate() {
            if let (ValueDef::Node(_), Some(&i)) = (&value.def, self.args.get(&format!("v{v}"))) {
                kept[i as usize] = self.graph.outputs.iter().any(|o| o.value.index() == v);
            }
        }
        let mut top = 0u64;
        let copies = u64::from(self.spec.target.cores.max(1)) * 4;
        for i in (0..count).filter(|&i| kept[i]) {
            let arg = &self.out.args[i];
            out[i] = top;
            let bytes = if arg.role == Role::Ring { arg.bytes.saturating_mul(copies) } else { arg.bytes };
            top = top.saturating_add(bytes).next_multiple_of(ALIGN);
        }
        let mut order: Vec<usize> = (0..count).filter(|&i| !kept[i]).collect();
        order.sort_by_key(|&i| self.life[i].0);
        // Address, bytes, last use.
        let mut blocks: Vec<(u64, u64, usize)> = vec![];
        for i in order {
            let bytes = self.out.args[i].bytes.next_multiple_of(ALIGN);
            let (first, last) = self.life[i];
            let free = |b: &&mut (u64, u64, usize)| b.2 < first && b.1 >= bytes;
            match blocks.iter_mut().filter(free).min_by_key(|b| b.1) {
                Some(b) => (out[i], b.2) = (b.0, last),
                None => {
                    blocks.push((top, bytes, last));
                    out[i] = top;
                    top = top.saturating_add(bytes);
                }
            }
        }
        out
    }
}

/// `17` of `r17` and of `r17.panels3`.
fn number(name: &str, prefix: char) -> Option<usize> {
    name.strip_prefix(prefix)?.split('.').next()?.parse().ok()
}
