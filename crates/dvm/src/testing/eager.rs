//! The ops of a graph, one by one through a stream.

use dvm_ir::testing::Rng;
use dvm_ir::{Bindings, DType, Dim, Graph, Op, Scalar, Tensor as HostTensor, ValueDef, ValueId};

use crate::stream::{Arg, Operand, Tensor};
use crate::{Error, Stream};

/// An op of a graph on eager tensors, with the values of its dims; `None` for a form that they do not have.
pub fn apply(s: &Stream, op: &Op, x: &[&Tensor], dim: &impl Fn(Dim) -> i64) -> Option<Result<Tensor, Error>> {
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
#[must_use]
pub fn without_constants(graph: &Graph) -> (Graph, Vec<(String, HostTensor)>) {
    let (mut g, mut given) = (graph.clone(), vec![]);
    for i in 0..g.values.len() {
        let ValueDef::Const(c) = g.values[i].def else { continue };
        let name = format!("constant{i}");
        g.values[i].def = ValueDef::Input(g.inputs.len() as u32);
        g.inputs.push(dvm_ir::Input { name: name.clone(), value: ValueId(i as u32), elements: None });
        given.push((name, graph.constants[c.index()].clone()));
    }
    g.constants.clear();
    (g, given)
}

/// Outputs of a graph computed op by op through a stream, with drops, flushes and reads at random; `None` where an op has no eager form.
///
/// # Errors
/// What an op or a read fails with.
pub fn eagerly(
    s: &Stream,
    graph: &Graph,
    bindings: &Bindings,
    inputs: &[(String, HostTensor)],
    rng: &mut Rng,
) -> Result<Option<Vec<HostTensor>>, Error> {
    let dim = |d: Dim| graph.dims.eval(d, bindings).unwrap_or(0);
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
    let lost = |v: &ValueId| Error::Launch(format!("{v} was dropped too early"));
    for node in &graph.nodes {
        let x: Vec<Tensor> = node
            .inputs
            .iter()
            .map(|v| values[v.index()].clone().ok_or_else(|| lost(v)))
            .collect::<Result<_, _>>()?;
        let x: Vec<&Tensor> = x.iter().collect();
        let y = match &node.op {
            Op::Dims { values, scalar, dtype } => {
                let shape: &[usize] = if *scalar { &[] } else { &[values.len()] };
                let mut t = HostTensor::zeros(*dtype, shape)?;
                values.iter().enumerate().for_each(|(i, &d)| t.set(i, Scalar::Int(dim(d))));
                s.upload(t)
            }
            op => match apply(s, op, &x, &dim) {
                Some(y) => y?,
                None => return Ok(None),
            },
        };
        values[node.output.index()] = Some(y);
        for v in &node.inputs {
            uses[v.index()] -= 1;
            // Most handles go when nobody needs them any more, some stay.
            if uses[v.index()] == 0 && rng.chance(80) {
                values[v.index()] = None;
            }
        }
        if rng.chance(4) {
            s.flush()?;
        }
        if rng.chance(4)
            && let Some(t) = &values[node.output.index()]
        {
            t.to_host()?;
        }
    }
    let outputs = graph
        .outputs
        .iter()
        .map(|o| values[o.value.index()].clone().ok_or_else(|| lost(&o.value)))
        .collect::<Result<Vec<Tensor>, _>>()?;
    drop(values);
    outputs.iter().map(Tensor::to_host).collect::<Result<_, Error>>().map(Some)
}
