//! The reference evaluator: what a graph, a kernel or a plan means, computed as plainly as possible.
//!
//! It is the oracle of everything downstream, so it favours being obviously right over being fast. Floats are computed in
//! f64 and rounded to the value's dtype once per op (composites, sums and products are wide inside); integers are exact
//! and wrap in their dtype.

mod array;
mod composite;
mod control;
#[cfg(test)]
mod control_tests;
mod elementwise;
mod index;
mod kernel;
mod ops;
mod reduce;
mod scalar;
#[cfg(test)]
mod tests;

pub use kernel::{eval_kernel, eval_plan};
pub(crate) use scalar::arithmetic;

use array::Array;

use crate::{
    DType, Dim, DimError, DimTable, DimValues, Graph, Item, NodeId, Tensor, ValueDef, ValueId,
    bind::{self, BindError},
};

/// Why one op could not be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An integer divided by zero.
    #[error("integer {dividend} divided by zero at {index:?}")]
    DivByZero {
        /// Index of the element.
        index: Vec<usize>,
        /// The dividend.
        dividend: i128,
    },
    /// An index out of range.
    #[error("index {value} at {at:?} is out of range for axis {axis} of extent {extent}")]
    Index {
        /// The index.
        value: i64,
        /// Axis it selects from (0 in a kernel, whose operands are flat).
        axis: usize,
        /// Extent of the axis.
        extent: usize,
        /// Position in the index tensor.
        at: Vec<usize>,
    },
    /// A slice or window that leaves its axis.
    #[error("elements {first} to {last} of axis {axis}, whose extent is {extent}")]
    Slice {
        /// Axis.
        axis: usize,
        /// First element.
        first: i64,
        /// Last element (or the farthest one).
        last: i128,
        /// Extent.
        extent: usize,
    },
    /// An extreme or an integer mean of nothing.
    #[error("an empty axis has no such value")]
    Empty,
    /// Shapes that do not go together.
    #[error("{0}")]
    Shapes(String),
    /// The op is not defined for a dtype.
    #[error("not defined for {dtype}")]
    DType {
        /// The dtype.
        dtype: DType,
    },
    /// Operands of different dtypes.
    #[error("operands are {a} and {b}")]
    DTypes {
        /// First.
        a: DType,
        /// Second.
        b: DType,
    },
    /// A dim without a value.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// A negative extent.
    #[error("extent `{dim}` is {value}")]
    Negative {
        /// The dim.
        dim: String,
        /// Its value.
        value: i64,
    },
    /// More elements than the evaluator holds.
    #[error("a value of shape {shape:?} is too large to evaluate")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// An address outside its buffer.
    #[error("address {address} is outside a buffer of {len} elements")]
    OutOfBounds {
        /// Element address.
        address: i128,
        /// Elements in the buffer.
        len: usize,
    },
    /// An element that is read, or handed out as a result, but was never written.
    #[error("element {address} is read but never written")]
    Unwritten {
        /// Element address.
        address: usize,
    },
    /// An element that one level both writes and reads, or writes twice.
    #[error("element {address} is used twice in one level, and one of the uses writes it")]
    Race {
        /// Element address.
        address: usize,
    },
    /// A loop does not end.
    #[error("more than {limit} iterations")]
    Iterations {
        /// Most iterations of one evaluation.
        limit: u64,
    },
    /// The op or its attributes are malformed.
    #[error("malformed: {0}")]
    Invalid(String),
    /// The result is not what the graph declares.
    #[error("the result is {got_dtype}{got:?} but is declared {dtype}{declared:?}")]
    Declared {
        /// Computed dtype.
        got_dtype: DType,
        /// Computed shape.
        got: Vec<usize>,
        /// Declared dtype.
        dtype: DType,
        /// Declared shape.
        declared: Vec<usize>,
    },
}

/// A graph, kernel or plan could not be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The tensors do not fit the inputs.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A node failed.
    #[error("{op} {node}{}: {fault}", .name.as_ref().map(|n| format!(" \"{n}\"")).unwrap_or_default())]
    Node {
        /// Node.
        node: NodeId,
        /// Its op.
        op: &'static str,
        /// Name of the source node.
        name: Option<String>,
        /// Why.
        #[source]
        fault: Fault,
    },
    /// A kernel failed.
    #[error("kernel `{kernel}`, {at}: {fault}")]
    Kernel {
        /// Name of the kernel.
        kernel: String,
        /// The value, e.g. `%3`, or the store.
        at: String,
        /// Why.
        #[source]
        fault: Fault,
    },
    /// A plan refers to something it does not have.
    #[error("malformed plan: {what}")]
    Plan {
        /// What is missing.
        what: String,
    },
    /// A control failed.
    #[error("{control}: {fault}")]
    Control {
        /// The control.
        control: String,
        /// Why.
        #[source]
        fault: Fault,
    },
    /// A body failed.
    #[error("{control}, {place}: {source}")]
    Body {
        /// The control.
        control: String,
        /// Which body, which iteration.
        place: String,
        /// Why.
        source: Box<EvalError>,
    },
    /// An output failed.
    #[error("output `{output}`: {fault}")]
    Output {
        /// Its name.
        output: String,
        /// Why.
        #[source]
        fault: Fault,
    },
}

/// Dims as bound for one evaluation.
struct Shapes<'a> {
    table: &'a DimTable,
    all: &'a DimValues,
}

impl Shapes<'_> {
    fn get(&self, d: Dim) -> Result<i64, Fault> {
        self.all.get(d).ok_or_else(|| self.table.why_undefined(d, self.all).into())
    }
    fn values(&self, dims: &[Dim]) -> Result<Vec<i64>, Fault> {
        dims.iter().map(|&d| self.get(d)).collect()
    }
    fn extent(&self, d: Dim) -> Result<usize, Fault> {
        let value = self.get(d)?;
        usize::try_from(value).map_err(|_| Fault::Negative { dim: self.table.display(d).to_string(), value })
    }
    fn shape(&self, dims: &[Dim]) -> Result<Vec<usize>, Fault> {
        dims.iter().map(|&d| self.extent(d)).collect()
    }
}

/// The outputs of a graph, in order, for the named inputs.
///
/// # Errors
/// Inputs that do not fit, a check that fails, an integer division by zero, an index out of range, an op whose result is not
/// what the graph declares: each naming the input or node and the values.
pub fn eval_graph(graph: &Graph, inputs: &[(impl AsRef<str>, Tensor)]) -> Result<Vec<Tensor>, EvalError> {
    let given = bind::in_order(bind::graph_inputs(graph), inputs)?;
    let mut left = control::MAX_ITERATIONS;
    run(graph, std::iter::empty(), &given, &mut left)
}

/// Runs a graph or a body; `left` is how many iterations its loops may still do.
fn run(
    graph: &Graph,
    seeds: impl Iterator<Item = (crate::Symbol, i64)>,
    given: &[&Tensor],
    left: &mut u64,
) -> Result<Vec<Tensor>, EvalError> {
    let mut frame = bind::Frame::default();
    frame.open(graph, seeds, bind::graph_inputs(graph).zip(given.iter().map(|&t| t.into())))?;

    // Values are dropped after their last use.
    let order: Vec<Item> = graph.sequence().collect();
    let operands = |item: &Item| match *item {
        Item::Node(n) => graph.nodes[n].inputs.as_slice(),
        Item::Control(c) => graph.controls[c].inputs.as_slice(),
    };
    let mut last_use = vec![0; graph.values.len()];
    let used = order.iter().enumerate().flat_map(|(i, item)| operands(item).iter().map(move |&v| (v, i)));
    for (v, at) in used.chain(graph.outputs.iter().map(|o| (o.value, usize::MAX))) {
        if let Some(last) = last_use.get_mut(v.index()) {
            *last = at;
        }
    }
    let mut values: Vec<Option<Array>> = vec![None; graph.values.len()];
    if let Some((v, t)) = without_data(graph) {
        return Err(EvalError::Plan { what: format!("constant {v} of {t:?} has a shape and no data") });
    }
    let source = |v: usize| match graph.values[v].def {
        ValueDef::Input(i) => given.get(i as usize).copied(),
        ValueDef::Const(c) => graph.constants.get(c.index()),
        ValueDef::Node(_) | ValueDef::Control(..) => None,
    };
    for (i, item) in order.iter().enumerate() {
        match *item {
            Item::Node(n) => {
                let node = &graph.nodes[n];
                let result = (|| {
                    let args = arguments(&node.inputs, &mut values, source)?;
                    let dims = Shapes { table: &graph.dims, all: &frame.values };
                    let got = ops::apply(&node.op, &args, &dims)?;
                    let value = graph.values.get(node.output.index());
                    let ty = &value.ok_or_else(|| Fault::Invalid("no output".into()))?.ty;
                    let declared = dims.shape(&ty.shape)?;
                    if (got.dtype, &got.shape) != (ty.dtype, &declared) {
                        let (got_dtype, got, dtype) = (got.dtype, got.shape, ty.dtype);
                        return Err(Fault::Declared { got_dtype, got, dtype, declared });
                    }
                    Ok(got)
                })()
                .map_err(|fault| EvalError::Node {
                    node: NodeId::new(n),
                    op: node.op.mnemonic(),
                    name: node.name.clone(),
                    fault,
                })?;
                values[node.output.index()] = Some(result);
            }
            Item::Control(n) => {
                let c = &graph.controls[n];
                let fail = |fault| EvalError::Control { control: c.to_string(), fault };
                let args = arguments(&c.inputs, &mut values, source).map_err(fail)?;
                let args = args.iter().map(|a| a.to_tensor()).collect::<Result<Vec<_>, _>>().map_err(fail)?;
                let results = control::run(graph, c, &args, &frame, left)?;
                frame.define(graph, c, &results.iter().collect::<Vec<_>>())?;
                for (&v, t) in c.outputs.iter().zip(&results) {
                    values[v.index()] = Some(Array::from_tensor(t));
                }
            }
        }
        for v in operands(item).iter().filter(|v| last_use[v.index()] == i) {
            values[v.index()] = None;
        }
    }
    frame.close(graph)?;
    let output = |o: &crate::Output| {
        let v = o.value.index();
        match values.get(v) {
            Some(Some(array)) => array.to_tensor(),
            Some(None) => {
                source(v).cloned().ok_or_else(|| Fault::Invalid(format!("{} is never defined", o.value)))
            }
            None => Err(Fault::Invalid(format!("no value {}", o.value))),
        }
        .map_err(|fault| EvalError::Output { output: o.name.clone(), fault })
    };
    graph.outputs.iter().map(output).collect()
}

/// A constant that cannot be evaluated.
fn without_data(graph: &Graph) -> Option<(ValueId, &Tensor)> {
    let constants =
        (0..graph.values.len()).map(ValueId::new).filter_map(|v| Some((v, graph.constant_of(v)?)));
    constants.into_iter().find(|(_, t)| !t.has_data())
}

/// The operands of a node or control; inputs and constants are taken from where they are.
fn arguments<'v, 't>(
    operands: &[ValueId],
    values: &'v mut [Option<Array>],
    source: impl Fn(usize) -> Option<&'t Tensor>,
) -> Result<Vec<&'v Array>, Fault> {
    for v in operands {
        let slot = values.get_mut(v.index()).ok_or_else(|| Fault::Invalid(format!("no value {v}")))?;
        if slot.is_none() {
            *slot = source(v.index()).map(Array::from_tensor);
        }
    }
    let values = &*values;
    let get = |v: &ValueId| {
        values[v.index()].as_ref().ok_or_else(|| Fault::Invalid(format!("{v} is used before it is defined")))
    };
    operands.iter().map(get).collect()
}
