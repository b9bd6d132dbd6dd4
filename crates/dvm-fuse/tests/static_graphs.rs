//! One test for each thing that fusion of static graphs promises: it gives more kernels, or other ones, without it.

mod common;

use common::{check, tensor};
use dvm_fuse::{FuseOptions, plan};
use dvm_ir::kernel::KOp;
use dvm_ir::{BinaryOp, DType, Dim, Graph, Op, Plan, ReduceOp, UnaryOp, ValueId};

const BINDINGS: &[&[(&str, i64)]] =
    &[&[("b", 3), ("s", 5)], &[("b", 1), ("s", 1)], &[("b", 0), ("s", 4)], &[("b", 2), ("s", 0)]];

struct G(Graph, Dim, Dim);

fn graph(name: &str) -> G {
    let mut g = Graph::new(name);
    let (b, s) = (g.dims.symbol("b"), g.dims.symbol("s"));
    G(g, b, s)
}

impl G {
    fn x(&mut self, name: &str, shape: &[Dim]) -> ValueId {
        self.0.input(name, DType::F32, shape)
    }
    fn un(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        self.0.unary(op, x).unwrap()
    }
    fn bin(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        self.0.binary(op, x, y).unwrap()
    }
    fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keepdims: bool) -> ValueId {
        self.0.reduce(op, x, axes, keepdims).unwrap()
    }
    /// The plan, whose values are compared with the evaluator's, after a look at its number of kernels.
    #[track_caller]
    fn kernels(mut self, outputs: &[ValueId], kernels: usize) -> Plan {
        for (i, &v) in outputs.iter().enumerate() {
            self.0.output(format!("o{i}"), v);
        }
        let p = check(&self.0, BINDINGS);
        assert_eq!(p.calls.len(), kernels, "{p}");
        p
    }
}

/// Buffers that are neither input, output nor constant.
fn intermediates(p: &Plan) -> usize {
    p.buffers.iter().filter(|b| matches!(b.kind, dvm_ir::plan::BufferKind::Temp)).count()
}

#[test]
fn elementwise_ops_share_a_kernel() {
    let mut g = graph("elementwise");
    let shape = [g.1, g.2];
    let (x, y) = (g.x("x", &shape), g.x("y", &shape));
    let e = g.un(UnaryOp::Exp, x);
    let t = g.un(UnaryOp::Tanh, y);
    let z = g.bin(BinaryOp::Mul, e, t);
    let p = g.kernels(&[z], 1);
    assert_eq!(intermediates(&p), 0);
}

#[test]
fn broadcasts_share_a_kernel() {
    let mut g = graph("broadcast");
    let (b, s) = (g.1, g.2);
    let (x, row, column) = (g.x("x", &[b, s]), g.x("row", &[s]), g.x("column", &[b, Dim::ONE]));
    let e = g.un(UnaryOp::Exp, row);
    let t = g.un(UnaryOp::Tanh, column);
    let z = g.bin(BinaryOp::Mul, x, e);
    let z = g.bin(BinaryOp::Add, z, t);
    g.kernels(&[z], 1);
}

#[test]
fn a_late_broadcast_is_a_stride() {
    let mut g = graph("late");
    let (b, s) = (g.1, g.2);
    let (x, y) = (g.x("x", &[b]), g.x("y", &[s]));
    let e = g.un(UnaryOp::Exp, x);
    let z = g.bin(BinaryOp::Add, e, y);
    g.0.output("z", z);
    let p = check(&g.0, &[&[("b", 1), ("s", 5)], &[("b", 5), ("s", 1)], &[("b", 4), ("s", 4)]]);
    assert_eq!(p.calls.len(), 1, "{p}");
    assert!(p.to_string().contains("eq(b, 1)"), "the stride of `x` depends on its extent\n{p}");
}

#[test]
fn a_reduction_fuses_with_what_is_before_it() {
    let mut g = graph("reduce");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let e = g.un(UnaryOp::Exp, x);
    let y = g.reduce(ReduceOp::Sum, e, &[1], false);
    g.kernels(&[y], 1);
}

#[test]
fn what_follows_a_reduction_fuses_with_it() {
    let mut g = graph("post_reduce");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let m = g.reduce(ReduceOp::Max, x, &[1], true);
    let r = g.un(UnaryOp::Tanh, m);
    let y = g.bin(BinaryOp::Sub, x, r);
    g.kernels(&[y, r], 1);
}

#[test]
fn several_reductions_share_a_kernel() {
    let mut g = graph("several");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let t = g.un(UnaryOp::Tanh, x);
    let sum = g.reduce(ReduceOp::Sum, t, &[1], false);
    let max = g.reduce(ReduceOp::Max, t, &[1], false);
    let min = g.reduce(ReduceOp::Min, t, &[1], false);
    let p = g.kernels(&[sum, max, min], 1);
    assert_eq!(p.kernels[0].body.iter().filter(|i| matches!(i.op, KOp::Reduce(..))).count(), 3);
}

#[test]
fn views_fold_into_addresses() {
    let mut g = graph("views");
    let (b, s) = (g.1, g.2);
    let (c4, c8, c2, c3) =
        (g.0.dims.constant(4), g.0.dims.constant(8), g.0.dims.constant(2), g.0.dims.constant(3));
    let c32 = g.0.dims.constant(32);
    let x = g.x("x", &[b, s, c32]);
    let v = g.0.reshape(x, &[b, s, c4, c8]).unwrap();
    let v = g.0.transpose(v, &[0, 2, 3, 1]).unwrap();
    let start = vec![Dim::ZERO, Dim::ONE, Dim::ZERO, Dim::ZERO];
    let op = Op::Slice { start, len: vec![b, c3, c2, s], step: vec![1, 1, 3, 1] };
    let v = g.0.push(op, &[v]).unwrap();
    let y = g.un(UnaryOp::Exp, v);
    let p = g.kernels(&[y], 1);
    assert_eq!(p.kernels[0].operands.len(), 2, "one load, one store\n{p}");
}

#[test]
fn a_gather_folds_into_its_consumer() {
    let mut g = graph("gather");
    let (b, s) = (g.1, g.2);
    let c8 = g.0.dims.constant(8);
    let ids = g.0.input("ids", DType::I64, &[b, s]);
    let table = g.0.constant(None, tensor(DType::F32, &[5, 8], 3));
    let x = g.0.gather(table, ids, 0).unwrap();
    let r = g.x("r", &[b, s, c8]);
    let y = g.bin(BinaryOp::Add, x, r);
    let y = g.0.softmax(y, 2).unwrap();
    let p = g.kernels(&[y], 1);
    assert!(p.kernels[0].body.iter().any(|i| matches!(i.op, KOp::Gather { .. })), "{p}");
}

#[test]
fn cheap_producers_are_computed_again() {
    let mut g = graph("cheap");
    let shape = [g.1, g.2];
    let (x, y) = (g.x("x", &shape), g.x("y", &shape));
    // Read by reductions along different axes, which cannot share a kernel.
    let d = g.bin(BinaryOp::Sub, x, y);
    let rows = g.reduce(ReduceOp::Sum, d, &[1], false);
    let columns = g.reduce(ReduceOp::Max, d, &[0], false);
    let p = g.kernels(&[rows, columns], 2);
    assert_eq!((intermediates(&p), p.boundaries.len()), (0, 0), "{p}");
}

#[test]
fn provable_reshapes_unify_regions() {
    let mut g = graph("reshape");
    let (b, s) = (g.1, g.2);
    let (c4, c8, c32) = (g.0.dims.constant(4), g.0.dims.constant(8), g.0.dims.constant(32));
    let x = g.x("x", &[b, s, c32]);
    let e = g.un(UnaryOp::Exp, x);
    // Heads split, normalised, and merged again.
    let h = g.0.reshape(e, &[b, s, c4, c8]).unwrap();
    let m = g.reduce(ReduceOp::Max, h, &[3], true);
    let n = g.bin(BinaryOp::Div, h, m);
    let rows = g.0.dims.mul(b, s);
    let y = g.0.reshape(n, &[rows, c32]).unwrap();
    let y = g.un(UnaryOp::Tanh, y);
    let p = g.kernels(&[y], 1);
    assert_eq!(intermediates(&p), 0);
}

#[test]
fn contraction_is_acyclic_by_full_reachability() {
    let mut g = graph("acyclic");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let e = g.un(UnaryOp::Exp, x);
    let t = g.un(UnaryOp::Tanh, e);
    // Two kernels that no other op joins, one behind the other: from `e` to the sum there is only an indirect way.
    let sum =
        |g: &mut G, x| g.0.push(Op::CumSum { axis: 1, exclusive: false, reverse: false }, &[x]).unwrap();
    let c = sum(&mut g, e);
    let c = sum(&mut g, c);
    let y = g.bin(BinaryOp::Div, t, c);
    let p = g.kernels(&[y], 4);
    assert!(p.boundaries.iter().any(|b| b.reason == "joining would make a cycle"), "{p}");
}

#[test]
fn independent_kernels_share_a_level() {
    let mut g = graph("levels");
    let (b, s) = (g.1, g.2);
    let (x, y) = (g.x("x", &[b]), g.x("y", &[s, b]));
    let e = g.un(UnaryOp::Exp, x);
    let t = g.un(UnaryOp::Tanh, y);
    let r = g.reduce(ReduceOp::Sum, y, &[0], false);
    let p = g.kernels(&[e, t, r], 3);
    assert_eq!(p.levels.len(), 1, "{p}");
}

#[test]
fn dependent_kernels_follow_in_one_plan() {
    let mut g = graph("steps");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let y = g.0.softmax(x, 1).unwrap();
    let y = g.0.softmax(y, 0).unwrap();
    let p = g.kernels(&[y], 2);
    assert_eq!(p.levels.iter().map(|l| l.calls.len()).collect::<Vec<_>>(), [1, 1]);
}

/// Every beginning of the decisions gives a sound plan, and all of them the plan there is.
#[test]
fn contractions_may_end_anywhere() {
    let mut g = graph("beginnings");
    let shape = [g.1, g.2];
    let x = g.x("x", &shape);
    let y = g.0.softmax(x, 1).unwrap();
    let y = g.un(UnaryOp::Tanh, y);
    let y = g.0.softmax(y, 0).unwrap();
    g.0.output("y", y);
    let all = dvm_fuse::contractions(&g.0, &FuseOptions::default()).unwrap();
    assert!(all.len() > 4, "{all:?}");
    let mut last = usize::MAX;
    for n in 0..=all.len() {
        let p = plan(&g.0, &FuseOptions { contractions: Some(n), ..FuseOptions::default() }).unwrap();
        p.verify().unwrap();
        assert!(p.calls.len() <= last, "{n}: {} calls after {last}", p.calls.len());
        last = p.calls.len();
    }
    assert_eq!(last, plan(&g.0, &FuseOptions::default()).unwrap().calls.len());
}
