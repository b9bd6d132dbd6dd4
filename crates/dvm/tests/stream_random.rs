//! Random sequences of ops through a stream, against the reference evaluator and against the same ops as a graph.

use std::cell::RefCell;
use std::rc::Rc;

use dvm::ir::testing::{Config, Rng, random_graph};
use dvm::stream::{Arg, Operand, Tensor};
use dvm::{
    BinaryOp, Bindings, DType, Dim, Error, Graph, Module, Op, Options, ReduceOp, Scalar, Session, Stream,
    Tensor as HostTensor, ir::ValueDef,
};

fn options() -> Options {
    let mut options = Options::default();
    options.threads = Some(2);
    options
}

/// An op of a graph on eager tensors; `None` for a form that they do not have.
fn apply(s: &Stream, op: &Op, x: &[&Tensor], dim: &impl Fn(Dim) -> i64) -> Option<Result<Tensor, Error>> {
    let sizes = |d: &[Dim]| d.iter().map(|&d| dim(d) as usize).collect::<Vec<usize>>();
    let signed = |d: &[Dim]| d.iter().map(|&d| dim(d) as isize).collect::<Vec<isize>>();
    // As the dtype has it: a graph may give an integer as 2.0.
    let number = |value: Scalar, dtype: DType| Arg::Scalar(HostTensor::scalar(dtype, value).get(0));
    Some(match op {
        Op::Unary(u) => x[0].unary(*u),
        Op::Binary(b) => Tensor::binary(x[0].arg(), *b, x[1].arg()),
        Op::Fma {} => x[0].fma(x[1], x[2]),
        Op::Select {} => x[0].select(x[1], x[2]),
        Op::Clamp {} => x[0].clamp(x[1], x[2]),
        Op::Cast { to } => x[0].cast(*to),
        Op::Fill { value, dtype, shape } => s.full(*dtype, &sizes(shape), number(*value, *dtype)),
        Op::Range { start, step, len, dtype } => {
            s.arange(*dtype, dim(*start), dim(*step), dim(*len) as usize)
        }
        Op::Reshape { shape } => x[0].reshape(&signed(shape)),
        Op::Transpose { perm } => x[0].permute(&perm.iter().map(|&p| p as isize).collect::<Vec<_>>()),
        Op::Expand { shape } => x[0].expand(&sizes(shape)),
        Op::Slice { start, len, step } => {
            let mut t = x[0].clone();
            for (i, ((&s, &n), &step)) in start.iter().zip(len).zip(step).enumerate() {
                let (s, n, step) = (dim(s) as isize, dim(n) as isize, step as isize);
                let end = Some(s + n * step).filter(|&e| e >= 0);
                let (s, end, step) = if n == 0 { (0, Some(0), 1) } else { (s, end, step) };
                t = match t.slice_step(i as isize, Some(s), end, step) {
                    Ok(t) => t,
                    e => return Some(e),
                };
            }
            Ok(t)
        }
        Op::Concat { axis } => Tensor::concat(x, *axis as isize),
        Op::Pad { before, after, mode, value } => {
            x[0].pad(&signed(before), &signed(after), *mode, number(*value, x[0].dtype()))
        }
        Op::Gather { axis } => x[0].index_select(*axis as isize, x[1]),
        Op::GatherElements { axis } => x[0].gather(*axis as isize, x[1]),
        Op::Reduce { op, axes, keepdims } => x[0].reduce(*op, &axes[..], *keepdims),
        Op::ArgMax { axis, keepdims: true, last: false } => x[0].argmax(*axis as isize),
        Op::ArgMin { axis, keepdims: true, last: false } => x[0].argmin(*axis as isize),
        Op::CumSum { axis, exclusive: false, reverse: false } => x[0].cumsum(*axis as isize),
        Op::MatMul { trans_a: false, trans_b: false } => x[0].matmul(x[1]),
        Op::MatMul { trans_a: false, trans_b: true } => x[0].matmul_t(x[1]),
        Op::MatMul { trans_a: true, trans_b: false } => x[0].t_matmul(x[1]),
        Op::Softmax { axis } => x[0].softmax(*axis as isize),
        Op::LogSoftmax { axis } => x[0].log_softmax(*axis as isize),
        Op::LayerNorm { axis, eps } if axis + 1 == x[0].rank() && x.len() == 3 => {
            x[0].layer_norm(x[1], x[2], *eps)
        }
        Op::RmsNorm { axis, eps } if axis + 1 == x[0].rank() => x[0].rms_norm(x[1], *eps),
        Op::Gelu { tanh: false } => x[0].gelu(),
        Op::Gelu { tanh: true } => x[0].gelu_tanh(),
        Op::Silu {} => x[0].silu(),
        _ => return None,
    })
}

/// A graph whose constants are inputs, as they are for a stream: what a graph does to constants once is not what runs.
fn without_constants(graph: &Graph) -> (Graph, Vec<(String, HostTensor)>) {
    let (mut g, mut given) = (graph.clone(), vec![]);
    for i in 0..g.values.len() {
        let ValueDef::Const(c) = g.values[i].def else { continue };
        let name = format!("constant{i}");
        g.values[i].def = ValueDef::Input(g.inputs.len() as u32);
        g.inputs.push(dvm::Input { name: name.clone(), value: dvm::ValueId(i as u32), elements: None });
        given.push((name, graph.constants[c.index()].clone()));
    }
    g.constants.clear();
    (g, given)
}

/// Outputs of a graph computed eagerly, with drops, flushes and reads at random; `None` where an op has no eager form.
fn eagerly(
    s: &Stream,
    graph: &Graph,
    bindings: &Bindings,
    inputs: &[(String, HostTensor)],
    rng: &mut Rng,
) -> Option<Result<Vec<HostTensor>, Error>> {
    let dim = |d: Dim| graph.dims.eval(d, bindings).unwrap();
    let mut uses = vec![0usize; graph.values.len()];
    let operands = graph.nodes.iter().flat_map(|n| &n.inputs);
    operands.chain(graph.outputs.iter().map(|o| &o.value)).for_each(|v| uses[v.index()] += 1);
    let mut values: Vec<Option<Tensor>> = graph
        .values
        .iter()
        .map(|v| match v.def {
            ValueDef::Input(i) => Some(s.upload(inputs[i as usize].1.clone())),
            ValueDef::Const(c) => Some(s.upload(graph.constants[c.index()].clone())),
            _ => None,
        })
        .collect();
    for node in &graph.nodes {
        let x: Vec<Tensor> = node.inputs.iter().map(|v| values[v.index()].clone().unwrap()).collect();
        let x: Vec<&Tensor> = x.iter().collect();
        let y = match &node.op {
            Op::Dims { values, scalar, dtype } => {
                let shape: &[usize] = if *scalar { &[] } else { &[values.len()] };
                let mut t = HostTensor::zeros(*dtype, shape).unwrap();
                values.iter().enumerate().for_each(|(i, &d)| t.set(i, Scalar::Int(dim(d))));
                Ok(s.upload(t))
            }
            op => apply(s, op, &x, &dim)?,
        };
        match y {
            Ok(y) => values[node.output.index()] = Some(y),
            Err(e) => return Some(Err(e)),
        }
        for v in &node.inputs {
            uses[v.index()] -= 1;
            // Most handles go when nobody needs them any more, some stay.
            if uses[v.index()] == 0 && rng.chance(80) {
                values[v.index()] = None;
            }
        }
        if rng.chance(4) {
            s.flush().unwrap();
        }
        if rng.chance(4)
            && let Some(t) = &values[node.output.index()]
            && let Err(e) = t.to_host()
        {
            return Some(Err(e));
        }
    }
    let outputs: Vec<Tensor> =
        graph.outputs.iter().map(|o| values[o.value.index()].clone().unwrap()).collect();
    drop(values);
    Some(outputs.iter().map(Tensor::to_host).collect())
}

#[test]
fn graphs_op_by_op() {
    let (mut ran, mut same, mut problems) = (0, 0, vec![]);
    let s = Stream::new(options());
    for seed in 0..150 {
        let random = random_graph(seed, &Config { bindings: 3, ..Config::default() });
        let (graph, constants) = without_constants(&random.graph);
        let module = Module::from_graph(graph).unwrap();
        let mut session = Session::new(&module, options()).unwrap();
        for (i, bindings) in random.bindings.iter().enumerate() {
            let inputs = random.inputs(i, seed);
            // Integers may meet a zero divisor, which is an error everywhere.
            let Ok(want) = dvm::eval::eval_graph(&random.graph, &inputs) else { continue };
            let got = eagerly(&s, &random.graph, bindings, &inputs, &mut Rng::new(seed * 8 + i as u64));
            let Some(got) = got else { continue };
            ran += 1;
            let got = match got {
                Ok(got) => got,
                Err(e) => {
                    problems.push(format!("seed {seed}, binding {i}: {e}"));
                    continue;
                }
            };
            if let Some(d) = random.difference(&got, &want) {
                problems.push(format!("seed {seed}, binding {i}: {d}"));
            }
            // Of an exponent that is known a graph makes products; here it may have been flushed before.
            let powers = |n: &dvm::ir::Node| n.op == Op::Binary(BinaryOp::Pow);
            if random.graph.nodes.iter().any(powers) {
                continue;
            }
            same += 1;
            let fixed = session.run(inputs.into_iter().chain(constants.clone())).unwrap();
            for ((name, a), b) in fixed.iter().zip(&got) {
                if a.bytes() != b.bytes() {
                    problems
                        .push(format!("seed {seed}, binding {i}: `{name}` has other bits than as a graph"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(ran > 150 && same > 100, "{ran} ran, {same} compared by bits");
}

/// What an eager tensor should be: elements of a store, by position.
#[derive(Clone)]
struct Model {
    store: Rc<RefCell<Vec<f32>>>,
    at: Vec<usize>,
    shape: Vec<usize>,
}

/// An op with constant extents on host tensors, by the reference evaluator.
fn reference(op: impl FnOnce(&mut Graph) -> Op, inputs: &[HostTensor]) -> HostTensor {
    let mut g = Graph::new("one");
    let args: Vec<_> = inputs.iter().map(|t| g.constant(None, t.clone())).collect();
    let op = op(&mut g);
    let y = g.push(op, &args).unwrap();
    g.output("y", y);
    let none: [(&str, HostTensor); 0] = [];
    dvm::eval::eval_graph(&g, &none).unwrap().remove(0)
}

impl Model {
    fn new(t: &HostTensor) -> Model {
        let data = t.as_slice::<f32>().unwrap().to_vec();
        Model { at: (0..data.len()).collect(), store: Rc::new(RefCell::new(data)), shape: t.shape().to_vec() }
    }
    fn values(&self) -> HostTensor {
        let data: Vec<f32> = self.at.iter().map(|&i| self.store.borrow()[i]).collect();
        HostTensor::from_slice(&self.shape, &data).unwrap()
    }
    /// The view that an op gives; elements of its own where `shared` is false.
    fn view(&self, op: impl FnOnce(&mut Graph) -> Op, shared: bool) -> Model {
        let at: Vec<i64> = self.at.iter().map(|&i| i as i64).collect();
        let at = reference(op, &[HostTensor::from_slice(&self.shape, &at).unwrap()]);
        let positions = at.as_slice::<i64>().unwrap().iter().map(|&i| i as usize).collect();
        let view = Model { store: self.store.clone(), at: positions, shape: at.shape().to_vec() };
        if shared { view } else { Model::new(&view.values()) }
    }
    fn write(&self, t: &HostTensor) {
        for (&i, &x) in self.at.iter().zip(t.as_slice::<f32>().unwrap()) {
            self.store.borrow_mut()[i] = x;
        }
    }
}

fn dims(g: &mut Graph, n: &[usize]) -> Vec<Dim> {
    n.iter().map(|&n| g.dims.constant(n as i64)).collect()
}

/// A random view of a tensor and of its model.
fn random_view(t: &Tensor, m: &Model, rng: &mut Rng) -> (Tensor, Model) {
    let rank = t.rank();
    let kind = if rank == 0 { 3 } else { rng.below(5) };
    let axis = rng.below(rank);
    type Make = Box<dyn FnOnce(&mut Graph) -> Op>;
    let (v, op): (Tensor, Make) = match kind {
        0 => {
            let n = t.shape()[axis];
            let step = rng.pick(&[1isize, 1, -1, 2, -2]);
            let start = rng.below(n.max(1));
            let most = if step > 0 {
                n.saturating_sub(start).div_ceil(step as usize)
            } else {
                n.min(start + 1).div_ceil(-step as usize)
            };
            let len = rng.below(most + 1);
            let end = Some(start as isize + len as isize * step).filter(|&e| e >= 0);
            let v = t.slice_step(
                axis as isize,
                Some(start as isize),
                if len == 0 && step < 0 { Some(start as isize) } else { end },
                step,
            );
            let v = v.unwrap();
            assert_eq!(v.shape()[axis], len, "{n} {start} {len} {step}");
            let shape = t.shape().to_vec();
            (
                v,
                Box::new(move |g: &mut Graph| {
                    let (mut starts, mut lens, mut steps) = (vec![0; rank], shape, vec![1; rank]);
                    (starts[axis], lens[axis], steps[axis]) = (start, len, step as i64);
                    Op::Slice { start: dims(g, &starts), len: dims(g, &lens), step: steps }
                }),
            )
        }
        1 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(axis, rng.below(rank));
            let v = t.permute(&perm.iter().map(|&p| p as isize).collect::<Vec<_>>()).unwrap();
            (v, Box::new(move |_: &mut Graph| Op::Transpose { perm }))
        }
        2 => {
            let mut shape = t.shape().to_vec();
            if axis + 1 < rank {
                let n = shape.remove(axis);
                shape[axis] *= n;
            } else if shape[axis].is_multiple_of(2) {
                shape[axis] /= 2;
                shape.insert(axis, 2);
            }
            let v = t.reshape(&shape.iter().map(|&n| n as isize).collect::<Vec<_>>()).unwrap();
            (v, Box::new(move |g: &mut Graph| Op::Reshape { shape: dims(g, &shape) }))
        }
        3 => {
            let mut shape = t.shape().to_vec();
            shape.insert(0, rng.below(3));
            let v = t.expand(&shape).unwrap();
            (v, Box::new(move |g: &mut Graph| Op::Expand { shape: dims(g, &shape) }))
        }
        _ => {
            let mut shape = t.shape().to_vec();
            shape.insert(axis, 1);
            let v = t.unsqueeze(axis as isize).unwrap();
            (v, Box::new(move |g: &mut Graph| Op::Reshape { shape: dims(g, &shape) }))
        }
    };
    let model = m.view(op, v.shares_memory(t));
    (v, model)
}

/// Views, updates in place through them, reads before and after, drops and flushes. All values are small integers, so that
/// every result is exact.
#[test]
fn updates_in_place() {
    let s = Stream::new(options());
    for seed in 0..300 {
        let rng = &mut Rng::new(seed);
        let mut live: Vec<(Tensor, Model)> = vec![];
        let mut log = vec![];
        for _ in 0..rng.int(8, 40) {
            if live.len() < 2 || rng.chance(10) {
                let shape: Vec<usize> = (0..rng.below(4)).map(|_| rng.pick(&[0, 1, 2, 3, 4, 5])).collect();
                let n = shape.iter().product();
                let data: Vec<f32> = (0..n).map(|_| rng.int(-9, 9) as f32).collect();
                let host = HostTensor::from_slice(&shape, &data).unwrap();
                let t = if rng.chance(50) {
                    s.upload(host.clone())
                } else {
                    (s.upload(host.clone()) + 0.0).unwrap()
                };
                live.push((t, Model::new(&host)));
                log.push(format!("{}: new {shape:?}", live.len() - 1));
                continue;
            }
            let i = rng.below(live.len());
            let (t, m) = live[i].clone();
            match rng.below(10) {
                0..3 => {
                    let view = random_view(&t, &m, rng);
                    log.push(format!(
                        "{}: view of {i} {:?} shared {}",
                        live.len(),
                        view.0,
                        view.0.shares_memory(&t)
                    ));
                    if view.0.len() < 200 {
                        live.push(view);
                    }
                }
                3 | 4 => {
                    let j = rng.below(live.len());
                    let (u, v) = live[j].clone();
                    let op = rng.pick(&[BinaryOp::Max, BinaryOp::Min]);
                    let broadcasts = Tensor::binary(t.arg(), op, u.arg());
                    if let Ok(y) = broadcasts
                        && y.len() < 400
                    {
                        let want = reference(|_| Op::Binary(op), &[m.values(), v.values()]);
                        log.push(format!("{}: {op} {i} {j}", live.len()));
                        live.push((y, Model::new(&want)));
                    }
                }
                5 => {
                    let axes: Vec<usize> = (0..t.rank()).filter(|_| rng.chance(50)).collect();
                    let y = t.reduce(ReduceOp::Sum, &axes[..], true).unwrap().clamp(-9, 9).unwrap();
                    let sum =
                        reference(|_| Op::Reduce { op: ReduceOp::Sum, axes, keepdims: true }, &[m.values()]);
                    let clamped: Vec<f32> =
                        sum.as_slice::<f32>().unwrap().iter().map(|x| x.clamp(-9.0, 9.0)).collect();
                    log.push(format!("{}: sum of {i}", live.len()));
                    live.push((y, Model::new(&HostTensor::from_slice(sum.shape(), &clamped).unwrap())));
                }
                6..9 => {
                    let j = rng.below(live.len());
                    let (u, v) = live[j].clone();
                    let number = rng.int(-3, 3) as f32;
                    let (arg, value) = match rng.chance(50) {
                        true => (
                            Arg::Scalar(Scalar::Float(number.into())),
                            HostTensor::from_slice(&[], &[number]).unwrap(),
                        ),
                        false => (u.arg(), v.values()),
                    };
                    let op = rng.pick(&[None, Some(BinaryOp::Max), Some(BinaryOp::Min)]);
                    let result = match op {
                        None => t.copy_(arg),
                        Some(op) => t.binary_(op, arg),
                    };
                    log.push(format!("update {i} by {op:?} {j} {number}: {result:?}"));
                    if result.is_ok() {
                        // A copy is the larger of the values and what is less than all.
                        let least = || HostTensor::from_slice(&m.shape, &vec![f32::NEG_INFINITY; m.at.len()]);
                        let left = if op.is_some() { m.values() } else { least().unwrap() };
                        m.write(&reference(|_| Op::Binary(op.unwrap_or(BinaryOp::Max)), &[left, value]));
                    }
                }
                _ if rng.chance(50) => {
                    live.swap_remove(i);
                    log.push(format!("drop {i}"));
                }
                _ => {
                    s.flush().unwrap();
                    log.push("flush".into());
                }
            }
        }
        for (i, (t, m)) in live.iter().enumerate() {
            let (got, want) = (t.to_host().unwrap(), m.values());
            assert!(
                got == want,
                "seed {seed}, tensor {i}: {:?}, want {:?}\n{}",
                got.as_slice::<f32>(),
                want.as_slice::<f32>(),
                log.join("\n")
            );
        }
    }
}
