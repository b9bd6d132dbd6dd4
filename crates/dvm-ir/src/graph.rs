//! Graphs of ops over values with symbolic shapes.

use crate::{Check, Control, ControlId, DType, Dim, DimTable, Op, Tensor, entity};

entity!(
    /// A value: an input, a constant or a node's output.
    ValueId, "v");
entity!(
    /// A node.
    NodeId, "n");
entity!(
    /// A constant tensor.
    ConstId, "c");

/// Extents, outermost first.
pub type Shape = Vec<Dim>;

/// Dtype and shape of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Shape,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueDef {
    /// Input number i of the graph.
    Input(u32),
    /// A constant.
    Const(ConstId),
    /// The output of a node.
    Node(NodeId),
    /// Result number i of a control.
    Control(ControlId, u32),
}

/// A value of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name for people; not necessarily unique.
    pub name: Option<String>,
    /// Dtype and shape.
    pub ty: TensorType,
    /// Origin.
    pub def: ValueDef,
}

/// An op applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Op.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Result.
    pub output: ValueId,
    /// Name of the source node, for messages.
    pub name: Option<String>,
}

/// A named input of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Name, unique among inputs.
    pub name: String,
    /// The value.
    pub value: ValueId,
    /// For a small integer input whose *elements* the graph uses as sizes: one dim (a value symbol) per element, bound from
    /// the data at every run.
    pub elements: Option<Vec<Dim>>,
}

/// A named output of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Name, unique among outputs.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// A tensor program in SSA form, nodes in a topological order.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name.
    pub name: String,
    /// Dims of all shapes.
    pub dims: DimTable,
    /// Values.
    pub values: Vec<Value>,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Controls between the nodes, in order.
    pub controls: Vec<Control>,
    /// Constants.
    pub constants: Vec<Tensor>,
    /// Inputs.
    pub inputs: Vec<Input>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// Facts to check at bind.
    pub checks: Vec<Check>,
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }
    /// A value.
    #[must_use]
    pub fn value(&self, v: ValueId) -> &Value {
        &self.values[v.index()]
    }
    /// Dtype of a value.
    #[must_use]
    pub fn dtype(&self, v: ValueId) -> DType {
        self.values[v.index()].ty.dtype
    }
    /// Shape of a value.
    #[must_use]
    pub fn shape(&self, v: ValueId) -> &[Dim] {
        &self.values[v.index()].ty.shape
    }
    /// The node that makes a value, if one does.
    #[must_use]
    pub fn def_node(&self, v: ValueId) -> Option<&Node> {
        match self.values[v.index()].def {
            ValueDef::Node(n) => Some(&self.nodes[n.index()]),
            _ => None,
        }
    }
    /// The tensor of a constant value.
    #[must_use]
    pub fn constant_of(&self, v: ValueId) -> Option<&Tensor> {
        match self.values[v.index()].def {
            ValueDef::Const(c) => Some(&self.constants[c.index()]),
            _ => None,
        }
    }
    pub(crate) fn add_value(&mut self, name: Option<String>, ty: TensorType, def: ValueDef) -> ValueId {
        self.values.push(Value { name, ty, def });
        ValueId::new(self.values.len() - 1)
    }
    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, dtype: DType, shape: &[Dim]) -> ValueId {
        let name = name.into();
        let def = ValueDef::Input(self.inputs.len() as u32);
        let value = self.add_value(Some(name.clone()), TensorType { dtype, shape: shape.to_vec() }, def);
        self.inputs.push(Input { name, value, elements: None });
        value
    }
    /// Adds a constant.
    pub fn constant(&mut self, name: Option<String>, tensor: Tensor) -> ValueId {
        let shape = tensor.shape().iter().map(|&d| self.dims.constant(d as i64)).collect();
        let ty = TensorType { dtype: tensor.dtype(), shape };
        self.constants.push(tensor);
        let id = ConstId::new(self.constants.len() - 1);
        self.add_value(name, ty, ValueDef::Const(id))
    }
    /// Adds an output.
    pub fn output(&mut self, name: impl Into<String>, value: ValueId) {
        self.outputs.push(Output { name: name.into(), value });
    }
    /// Adds a node whose result type is already known. [`Graph::push`] infers it.
    pub fn push_typed(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        ty: TensorType,
        name: Option<String>,
    ) -> ValueId {
        let id = NodeId::new(self.nodes.len());
        let output = self.add_value(None, ty, ValueDef::Node(id));
        self.nodes.push(Node { op, inputs: inputs.to_vec(), output, name });
        output
    }
}
