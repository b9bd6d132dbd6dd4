//! Short names for the ops graphs are most often built of; everything else goes through [`Graph::push`].

use crate::{BinaryOp, DType, Dim, Graph, IrError, Op, ReduceOp, Scalar, Tensor, UnaryOp, ValueId};

type Built = Result<ValueId, IrError>;

impl Graph {
    /// A rank-0 constant.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> ValueId {
        self.constant(None, Tensor::scalar(dtype, Scalar::Float(value)))
    }
    /// An elementwise op of one tensor.
    ///
    /// # Errors
    /// When the op is not defined for its dtype. So in all methods below: when the op's rules provably fail.
    pub fn unary(&mut self, op: UnaryOp, x: ValueId) -> Built {
        self.push(Op::Unary(op), &[x])
    }
    /// An elementwise op of two tensors.
    ///
    /// # Errors
    /// When the dtypes differ or the shapes do not broadcast.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Built {
        self.push(Op::Binary(op), &[a, b])
    }
    /// a + b.
    ///
    /// # Errors
    /// See [`Graph::binary`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(BinaryOp::Add, a, b)
    }
    /// a - b.
    ///
    /// # Errors
    /// See [`Graph::binary`].
    pub fn sub(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(BinaryOp::Sub, a, b)
    }
    /// a * b.
    ///
    /// # Errors
    /// See [`Graph::binary`].
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(BinaryOp::Mul, a, b)
    }
    /// a / b.
    ///
    /// # Errors
    /// See [`Graph::binary`].
    pub fn div(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(BinaryOp::Div, a, b)
    }
    /// cond ? a : b.
    ///
    /// # Errors
    /// When cond is not bool, dtypes differ or shapes do not broadcast.
    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> Built {
        self.push(Op::Select {}, &[cond, a, b])
    }
    /// Conversion to another dtype.
    ///
    /// # Errors
    /// When `x` is not a value of the graph.
    pub fn cast(&mut self, x: ValueId, to: DType) -> Built {
        self.push(Op::Cast { to }, &[x])
    }
    /// Matrix product over the last two axes.
    ///
    /// # Errors
    /// When a rank is below 2, dtypes differ, or the inner or batch extents do not fit.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Built {
        self.push(Op::MatMul { trans_a: false, trans_b: false }, &[a, b])
    }
    /// Reduction over axes (sorted, distinct).
    ///
    /// # Errors
    /// When an axis does not exist or the reduction is not defined for the dtype.
    pub fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keepdims: bool) -> Built {
        self.push(Op::Reduce { op, axes: axes.to_vec(), keepdims }, &[x])
    }
    /// Softmax along an axis.
    ///
    /// # Errors
    /// When the axis does not exist or the dtype is no float.
    pub fn softmax(&mut self, x: ValueId, axis: usize) -> Built {
        self.push(Op::Softmax { axis }, &[x])
    }
    /// Layer normalisation over the axes from `axis` on.
    ///
    /// # Errors
    /// When the axis does not exist, dtypes differ, or scale or bias do not expand to `x`.
    pub fn layer_norm(&mut self, x: ValueId, scale: ValueId, bias: ValueId, axis: usize, eps: f64) -> Built {
        self.push(Op::LayerNorm { axis, eps }, &[x, scale, bias])
    }
    /// Exact gelu.
    ///
    /// # Errors
    /// When the dtype is no float.
    pub fn gelu(&mut self, x: ValueId) -> Built {
        self.push(Op::Gelu { tanh: false }, &[x])
    }
    /// Same elements under another shape.
    ///
    /// # Errors
    /// When the element counts provably differ.
    pub fn reshape(&mut self, x: ValueId, shape: &[Dim]) -> Built {
        self.push(Op::Reshape { shape: shape.to_vec() }, &[x])
    }
    /// Permutation of axes.
    ///
    /// # Errors
    /// When `perm` is no permutation of the axes.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Built {
        self.push(Op::Transpose { perm: perm.to_vec() }, &[x])
    }
    /// Broadcast to a shape.
    ///
    /// # Errors
    /// When it provably does not broadcast to it.
    pub fn expand(&mut self, x: ValueId, shape: &[Dim]) -> Built {
        self.push(Op::Expand { shape: shape.to_vec() }, &[x])
    }
    /// Joins tensors along an axis.
    ///
    /// # Errors
    /// When dtypes, ranks or other extents differ.
    pub fn concat(&mut self, tensors: &[ValueId], axis: usize) -> Built {
        self.push(Op::Concat { axis }, tensors)
    }
    /// Rows of `x` along an axis by index.
    ///
    /// # Errors
    /// When the axis does not exist or the index is not i32 or i64.
    pub fn gather(&mut self, x: ValueId, index: ValueId, axis: usize) -> Built {
        self.push(Op::Gather { axis }, &[x, index])
    }
}
