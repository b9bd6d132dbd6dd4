//! The primitive graph under construction: every push is simplified, and equal ops are made once.

use dvm_ir::{
    BinaryOp, DType, Dim, Graph, NodeId, Op, ReduceOp, Scalar, Tensor, TensorType, UnaryOp, ValueDef, ValueId,
};
use rustc_hash::FxHashMap;

use crate::{constants, simplify};

/// Largest constant, in bytes, that is compared with others by value.
const SHARED_CONST: usize = 64;

pub(crate) struct Builder {
    pub(crate) g: Graph,
    /// Per node of `g`, the source node it was made for.
    pub(crate) origin: Vec<NodeId>,
    /// The source node being lowered.
    pub(crate) current: NodeId,
    seen: FxHashMap<Key, ValueId>,
    consts: FxHashMap<(DType, Vec<usize>, Vec<u8>), ValueId>,
}

/// What an op with its operands is, for finding equal ones. The common ops need no text.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Unary(UnaryOp, ValueId),
    Binary(BinaryOp, ValueId, ValueId),
    Cast(DType, ValueId),
    Other(String, Vec<ValueId>),
}

impl Key {
    fn new(op: &Op, inputs: &[ValueId]) -> Key {
        match (op, inputs) {
            (Op::Unary(u), &[x]) => Key::Unary(*u, x),
            (Op::Binary(b), &[x, y]) => Key::Binary(*b, x, y),
            (Op::Cast { to }, &[x]) => Key::Cast(*to, x),
            _ => Key::Other(format!("{op:?}"), inputs.to_vec()),
        }
    }
}

impl Builder {
    /// Fills a graph, with room for about so many ops.
    pub(crate) fn new(g: Graph, ops: usize) -> Builder {
        Builder {
            g,
            origin: Vec::with_capacity(ops),
            current: NodeId(0),
            seen: FxHashMap::with_capacity_and_hasher(ops, Default::default()),
            consts: FxHashMap::default(),
        }
    }

    /// Adds an op unless it simplifies to a value that exists.
    pub(crate) fn push(&mut self, op: Op, inputs: &[ValueId], ty: TensorType) -> ValueId {
        if let Some(v) = simplify::simplify(self, &op, inputs, &ty) {
            return v;
        }
        if let Some(v) = constants::fold(self, &op, inputs, &ty) {
            return v;
        }
        let key = Key::new(&op, inputs);
        if let Some(&v) = self.seen.get(&key) {
            return v;
        }
        let v = self.push_raw(op, inputs, ty);
        self.seen.insert(key, v);
        v
    }
    /// Adds an op as it is, even if an equal one exists.
    pub(crate) fn push_raw(&mut self, op: Op, inputs: &[ValueId], ty: TensorType) -> ValueId {
        self.origin.push(self.current);
        self.g.push_typed(op, inputs, ty, None)
    }
    pub(crate) fn constant(&mut self, name: Option<String>, t: Tensor) -> ValueId {
        if !t.has_data() || t.bytes().len() > SHARED_CONST {
            return self.g.constant(name, t);
        }
        let key = (t.dtype(), t.shape().to_vec(), t.bytes().to_vec());
        if let Some(&v) = self.consts.get(&key) {
            return v;
        }
        let v = self.g.constant(name, t);
        self.consts.insert(key, v);
        v
    }

    pub(crate) fn ty(&self, v: ValueId) -> TensorType {
        self.g.value(v).ty.clone()
    }
    pub(crate) fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.g.shape(v).to_vec()
    }
    pub(crate) fn dtype(&self, v: ValueId) -> DType {
        self.g.dtype(v)
    }
    /// The op and operands that make a value.
    pub(crate) fn def(&self, v: ValueId) -> Option<(&Op, &[ValueId])> {
        self.g.def_node(v).map(|n| (&n.op, n.inputs.as_slice()))
    }
    /// The value of a constant of one element, or of equal elements.
    pub(crate) fn splat(&self, v: ValueId) -> Option<Scalar> {
        match self.g.value(v).def {
            ValueDef::Const(_) => splat(self.g.constant_of(v)?),
            ValueDef::Node(_) => match self.def(v)?.0 {
                Op::Fill { value, dtype, .. } => Some(Scalar::from_bits(value.to_bits(*dtype), *dtype)),
                _ => None,
            },
            ValueDef::Input(_) | ValueDef::Control(..) => None,
        }
    }

    pub(crate) fn scalar(&mut self, dtype: DType, x: f64) -> ValueId {
        self.constant(None, Tensor::scalar(dtype, Scalar::Float(x)))
    }
    pub(crate) fn unary(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        let mut ty = self.ty(x);
        if op.is_test() {
            ty.dtype = DType::Bool;
        }
        self.push(Op::Unary(op), &[x], ty)
    }
    /// A binary op whose result has the shape `shape`.
    pub(crate) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId, shape: &[Dim]) -> ValueId {
        let dtype = if op.is_comparison() { DType::Bool } else { self.dtype(a) };
        self.push(Op::Binary(op), &[a, b], TensorType { dtype, shape: shape.to_vec() })
    }
    /// A binary op whose second operand broadcasts to the first.
    pub(crate) fn onto(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let shape = self.shape(a);
        self.binary(op, a, b, &shape)
    }
    /// A binary op with a constant on the right.
    pub(crate) fn with(&mut self, op: BinaryOp, a: ValueId, c: f64) -> ValueId {
        let b = self.scalar(self.dtype(a), c);
        self.onto(op, a, b)
    }
    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> ValueId {
        let ty = TensorType { dtype: to, shape: self.shape(x) };
        self.push(Op::Cast { to }, &[x], ty)
    }
    pub(crate) fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keepdims: bool) -> ValueId {
        let shape = self.g.shape(x);
        let shape = (0..shape.len())
            .filter_map(|i| match axes.contains(&i) {
                true => keepdims.then_some(Dim::ONE),
                false => Some(shape[i]),
            })
            .collect();
        let ty = TensorType { dtype: self.dtype(x), shape };
        self.push(Op::Reduce { op, axes: axes.to_vec(), keepdims }, &[x], ty)
    }
    pub(crate) fn reshape(&mut self, x: ValueId, shape: &[Dim]) -> ValueId {
        let ty = TensorType { dtype: self.dtype(x), shape: shape.to_vec() };
        self.push(Op::Reshape { shape: shape.to_vec() }, &[x], ty)
    }
    pub(crate) fn expand(&mut self, x: ValueId, shape: &[Dim]) -> ValueId {
        let ty = TensorType { dtype: self.dtype(x), shape: shape.to_vec() };
        self.push(Op::Expand { shape: shape.to_vec() }, &[x], ty)
    }
    /// Part of one axis.
    pub(crate) fn slice_axis(&mut self, x: ValueId, axis: usize, start: Dim, len: Dim, step: i64) -> ValueId {
        let mut shape = self.shape(x);
        let mut starts = vec![Dim::ZERO; shape.len()];
        let mut steps = vec![1; shape.len()];
        (starts[axis], steps[axis], shape[axis]) = (start, step, len);
        let ty = TensorType { dtype: self.dtype(x), shape: shape.clone() };
        self.push(Op::Slice { start: starts, len: shape, step: steps }, &[x], ty)
    }
    pub(crate) fn fill(&mut self, value: Scalar, dtype: DType, shape: &[Dim]) -> ValueId {
        let ty = TensorType { dtype, shape: shape.to_vec() };
        self.push(Op::Fill { value, dtype, shape: shape.to_vec() }, &[], ty)
    }
    /// The value of a dim as a rank-0 tensor of a dtype.
    pub(crate) fn dim(&mut self, d: Dim, dtype: DType) -> ValueId {
        if let Some(c) = self.g.dims.as_const(d) {
            return self.constant(None, Tensor::scalar(dtype, Scalar::Int(c)));
        }
        let ty = TensorType { dtype, shape: vec![] };
        self.push(Op::Dims { values: vec![d], scalar: true, dtype }, &[], ty)
    }
}

/// The value that all elements of a tensor have.
pub(crate) fn splat(t: &Tensor) -> Option<Scalar> {
    let (size, bytes) = (t.dtype().size(), t.bytes());
    let first = bytes.get(..size)?;
    // Equal neighbours everywhere mean one value; most tensors fail at once.
    (bytes.len() == size || bytes[size..] == bytes[..bytes.len() - size]).then(|| {
        let mut le = [0; 8];
        le[..size].copy_from_slice(first);
        Scalar::from_bits(u64::from_le_bytes(le), t.dtype())
    })
}
