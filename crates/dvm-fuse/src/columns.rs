//! Matmuls that share their left operand and have constant right ones become one, by columns.
//!
//! The projections of attention read the same rows three times; together they are one product that reads them once. It
//! pays where the consumers can take column slices as views, that is where they find them in memory anyway.

use dvm_ir::{BinaryOp, Graph, NodeId, Op, Tensor, ValueId};
use rustc_hash::FxHashMap;

/// A matmul of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its node.
    pub(crate) matmul: NodeId,
    /// Right operand, a constant.
    pub(crate) weight: ValueId,
    /// Constant row that is added to the product, if one is.
    pub(crate) bias: Option<ValueId>,
    /// The value that consumers take: the product, or the sum.
    pub(crate) result: ValueId,
}

/// What a group has in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    left: ValueId,
    trans_a: bool,
    trans_b: bool,
    biased: bool,
}

/// Groups of two or more, in the order of their first matmuls.
pub(crate) fn find(g: &Graph, live: &[bool]) -> Vec<Vec<Column>> {
    let mut users: Vec<Vec<NodeId>> = vec![vec![]; g.values.len()];
    for (i, n) in g.nodes.iter().enumerate().filter(|x| live[x.0]) {
        n.inputs.iter().for_each(|v| users[v.index()].push(NodeId::new(i)));
    }
    let is_output = |v: ValueId| g.outputs.iter().any(|o| o.value == v);
    let mut order = vec![];
    let mut groups: FxHashMap<Key, Vec<Column>> = FxHashMap::default();
    for (i, n) in g.nodes.iter().enumerate().filter(|x| live[x.0]) {
        let Op::MatMul { trans_a, trans_b } = n.op else { continue };
        let (left, weight) = (n.inputs[0], n.inputs[1]);
        let constant = |v: ValueId, rank: usize| g.constant_of(v).is_some_and(|t| t.shape().len() == rank);
        if !constant(weight, 2) || users[weight.index()].len() != 1 || is_output(weight) {
            continue;
        }
        let (mut result, mut bias) = (n.output, None);
        if let [u] = users[result.index()][..]
            && let Op::Binary(BinaryOp::Add) = g.nodes[u.index()].op
            && !is_output(result)
        {
            let add = &g.nodes[u.index()];
            let other = add.inputs[usize::from(add.inputs[0] == result)];
            let columns = g.shape(result).last();
            if constant(other, 1)
                && g.shape(other).last() == columns
                && g.shape(add.output) == g.shape(result)
            {
                (result, bias) = (add.output, Some(other));
            }
        }
        if is_output(result) || !only_matmuls_read(g, &users, result) {
            continue;
        }
        let key = Key { left, trans_a, trans_b, biased: bias.is_some() };
        let group = groups.entry(key).or_insert_with_key(|k| {
            order.push(*k);
            vec![]
        });
        group.push(Column { matmul: NodeId::new(i), weight, bias, result });
    }
    order.into_iter().filter_map(|k| groups.remove(&k)).filter(|group| group.len() > 1).collect()
}

/// Whether all readers of a value, through views, are matmuls.
fn only_matmuls_read(g: &Graph, users: &[Vec<NodeId>], v: ValueId) -> bool {
    let mut stack = vec![v];
    while let Some(v) = stack.pop() {
        for u in &users[v.index()] {
            let n = &g.nodes[u.index()];
            if n.op.is_view() {
                if g.outputs.iter().any(|o| o.value == n.output) {
                    return false;
                }
                stack.push(n.output);
            } else if !matches!(n.op, Op::MatMul { .. }) {
                return false;
            }
        }
    }
    true
}

/// Constant tensors of one dtype joined along an axis, `None` where they do not fit together.
pub(crate) fn join(g: &Graph, parts: &[ValueId], axis: usize) -> Option<Tensor> {
    let tensors: Vec<&Tensor> = parts.iter().map(|&v| g.constant_of(v)).collect::<Option<_>>()?;
    let first = *tensors.first()?;
    let fits = |t: &&Tensor| {
        let others =
            |s: &[usize]| s.iter().enumerate().filter(|x| x.0 != axis).map(|x| *x.1).collect::<Vec<_>>();
        t.dtype() == first.dtype() && others(t.shape()) == others(first.shape())
    };
    if !tensors.iter().all(fits) {
        return None;
    }
    let rows: usize = first.shape()[..axis].iter().product();
    let mut shape = first.shape().to_vec();
    shape[axis] = tensors.iter().map(|t| t.shape()[axis]).sum();
    if tensors.iter().any(|t| !t.has_data()) {
        return Tensor::shape_only(first.dtype(), &shape).ok();
    }
    let mut bytes = Vec::with_capacity(tensors.iter().map(|t| t.bytes().len()).sum());
    for r in 0..rows {
        for t in &tensors {
            let row = t.bytes().len() / rows;
            bytes.extend_from_slice(&t.bytes()[r * row..(r + 1) * row]);
        }
    }
    Tensor::from_bytes(first.dtype(), &shape, &bytes).ok()
}
