//! Random sequences of ops through a stream, against the reference evaluator and against the same ops as a graph. `cargo xtask
//! random` does as much with more graphs.

use std::cell::RefCell;
use std::rc::Rc;

use dvm::ir::testing::Rng;
use dvm::stream::{Arg, Operand, Tensor};
use dvm::testing::random::Checker;
use dvm::{BinaryOp, Dim, Graph, Op, Options, ReduceOp, Scalar, Stream, Tensor as HostTensor};

fn options() -> Options {
    let mut options = Options::default();
    options.threads = Some(2);
    options
}

#[test]
fn graphs_op_by_op() {
    let mut checker = Checker::new(2);
    let mut problems = vec![];
    for seed in 0..150 {
        problems.extend(checker.check(seed, None).err().map(|e| format!("seed {seed}: {e}")));
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    let done = checker.done();
    assert!(done.streams > 150 && done.same > 100, "{done:?}");
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
