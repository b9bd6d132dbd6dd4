//! What a handler sees of one node: operands, attributes, and building blocks for the graph.

use dvm_ir::{Answer, BinaryOp, CheckCond, DType, Dim, DimTable, Op, ReduceOp, Scalar, Tensor, UnaryOp};
use prost::bytes::Bytes;

use crate::error::{Fail, invalid, unsupported};
use crate::fold;
use crate::import::Importer;
use crate::proto::{AttributeProto, GraphProto, NodeProto, attribute_type};
use crate::tensor;
use crate::value::{Nd, V};

/// Results of a handler, in the order of the node's outputs.
pub(crate) type Outs = Result<Vec<V>, Fail>;

pub(crate) struct Cx<'i, 'm> {
    pub(crate) imp: &'i mut Importer<'m>,
    pub(crate) node: &'i NodeProto,
    inputs: Vec<Option<V>>,
    /// Version of the operator set of the op's domain.
    pub(crate) opset: i64,
}

impl<'i, 'm> Cx<'i, 'm> {
    pub(crate) fn new(
        imp: &'i mut Importer<'m>,
        node: &'i NodeProto,
        inputs: Vec<Option<V>>,
        opset: i64,
    ) -> Self {
        Cx { imp, node, inputs, opset }
    }

    /// Building blocks without a node.
    pub(crate) fn bare(imp: &'i mut Importer<'m>) -> Self {
        static NONE: std::sync::LazyLock<NodeProto> = std::sync::LazyLock::new(NodeProto::default);
        Cx { imp, node: &NONE, inputs: vec![], opset: crate::import::MIN_OPSET }
    }

    // Operands.

    pub(crate) fn input(&self, i: usize) -> Result<V, Fail> {
        self.opt(i).ok_or_else(|| Fail::Invalid(format!("operand {i} is missing")))
    }
    pub(crate) fn opt(&self, i: usize) -> Option<V> {
        self.inputs.get(i).copied().flatten()
    }
    /// All operands of a variadic op.
    pub(crate) fn inputs(&self) -> Result<Vec<V>, Fail> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }
    /// Whether result `i` is used.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|o| !o.is_empty())
    }

    // Attributes.

    fn attr(&self, name: &str) -> Option<&'i AttributeProto> {
        self.node.attribute.iter().find(|a| a.name.as_deref() == Some(name))
    }
    fn typed<T>(
        &self,
        name: &str,
        ty: i32,
        what: &str,
        get: impl FnOnce(&'i AttributeProto) -> Option<T>,
    ) -> Result<Option<T>, Fail> {
        let Some(a) = self.attr(name) else { return Ok(None) };
        match a.r#type {
            Some(t) if t != ty && t != 0 => invalid(format!("attribute `{name}` is not {what}")),
            _ => match get(a) {
                Some(v) => Ok(Some(v)),
                None => invalid(format!("attribute `{name}` has no value")),
            },
        }
    }
    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>, Fail> {
        // A zero may be left out by writers that skip default values.
        self.typed(name, attribute_type::INT, "an integer", |a| {
            a.i.or((a.r#type == Some(attribute_type::INT)).then_some(0))
        })
    }
    pub(crate) fn int_or(&self, name: &str, default: i64) -> Result<i64, Fail> {
        Ok(self.int(name)?.unwrap_or(default))
    }
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Fail> {
        Ok(self.int(name)?.map_or(default, |i| i != 0))
    }
    pub(crate) fn float(&self, name: &str) -> Result<Option<f64>, Fail> {
        self.typed(name, attribute_type::FLOAT, "a float", |a| {
            a.f.or((a.r#type == Some(attribute_type::FLOAT)).then_some(0.0)).map(f64::from)
        })
    }
    pub(crate) fn float_or(&self, name: &str, default: f64) -> Result<f64, Fail> {
        Ok(self.float(name)?.unwrap_or(default))
    }
    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Fail> {
        self.typed(name, attribute_type::INTS, "a list of integers", |a| Some(a.ints.clone()))
    }
    pub(crate) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, Fail> {
        self.typed(name, attribute_type::FLOATS, "a list of floats", |a| Some(a.floats.clone()))
    }
    pub(crate) fn strings(&self, name: &str) -> Result<Option<Vec<String>>, Fail> {
        let all = self.typed(name, attribute_type::STRINGS, "a list of strings", |a| Some(&a.strings))?;
        let text = |s: &Bytes| String::from_utf8(s.to_vec());
        match all.map(|all| all.iter().map(text).collect::<Result<Vec<_>, _>>()) {
            None => Ok(None),
            Some(Ok(s)) => Ok(Some(s)),
            Some(Err(_)) => invalid(format!("attribute `{name}` is not UTF-8")),
        }
    }
    pub(crate) fn string(&self, name: &str) -> Result<Option<&'i str>, Fail> {
        let s =
            self.typed(name, attribute_type::STRING, "a string", |a| Some(a.s.as_deref().unwrap_or(b"")))?;
        match s.map(std::str::from_utf8) {
            None => Ok(None),
            Some(Ok(s)) => Ok(Some(s)),
            Some(Err(_)) => invalid(format!("attribute `{name}` is not UTF-8")),
        }
    }
    pub(crate) fn tensor_attr(&self, name: &str) -> Result<Option<Tensor>, Fail> {
        let t = self.typed(name, attribute_type::TENSOR, "a tensor", |a| a.t.as_deref())?;
        t.map(|t| tensor::tensor(t, self.imp.opts.base_dir.as_deref())).transpose()
    }
    pub(crate) fn graph_attr(&self, name: &str) -> Result<&'i GraphProto, Fail> {
        let g = self.typed(name, attribute_type::GRAPH, "a graph", |a| a.g.as_deref())?;
        g.ok_or_else(|| Fail::Invalid(format!("attribute `{name}` is missing")))
    }
    /// A dtype given by its ONNX number.
    pub(crate) fn dtype_attr(&self, name: &str) -> Result<Option<DType>, Fail> {
        match self.int(name)? {
            None => Ok(None),
            Some(n) => tensor::dtype(i32::try_from(n).unwrap_or(-1)).map(Some),
        }
    }

    // Types.

    pub(crate) fn dims(&mut self) -> &mut DimTable {
        &mut self.imp.graph.dims
    }
    pub(crate) fn dtype(&self, v: V) -> DType {
        self.imp.val(v).dtype
    }
    pub(crate) fn shape(&self, v: V) -> Vec<Dim> {
        self.imp.val(v).shape.clone()
    }
    pub(crate) fn rank(&self, v: V) -> usize {
        self.imp.val(v).shape.len()
    }
    pub(crate) fn num(&mut self, n: i64) -> Dim {
        self.imp.graph.dims.constant(n)
    }
    pub(crate) fn is_const(&self, d: Dim, n: i64) -> bool {
        self.imp.graph.dims.as_const(d) == Some(n)
    }
    /// An axis that may count from the end.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Fail> {
        let a = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match a.and_then(|a| usize::try_from(a).ok()).filter(|&a| a < rank) {
            Some(a) => Ok(a),
            None => invalid(format!("axis {axis} of a rank-{rank} tensor")),
        }
    }
    /// Sorted distinct axes.
    pub(crate) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, Fail> {
        let mut out = axes.iter().map(|&a| self.axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
        out.sort_unstable();
        if out.windows(2).any(|w| w[0] == w[1]) {
            return invalid(format!("axes {axes:?} of a rank-{rank} tensor repeat an axis"));
        }
        Ok(out)
    }
    /// Requires a condition of every binding.
    pub(crate) fn assume(&mut self, cond: CheckCond, what: &str) -> Result<(), Fail> {
        if self.imp.graph.dims.decide(cond) == Answer::Proven {
            return Ok(());
        }
        let op = self.node.op_type.as_deref().unwrap_or("");
        let name = self.node.name.as_deref().unwrap_or("");
        let r = self.imp.graph.assume(cond, format!("{op} \"{name}\": {what}"));
        r.map_err(|c| {
            let shown = self.imp.graph.dims.display_cond(c.cond).to_string();
            Fail::Invalid(format!("{what}: {shown} never holds"))
        })
    }

    // Known elements.

    /// Elements that become shapes: known as dims, or the reason why not.
    pub(crate) fn elems(&mut self, v: V) -> Result<Vec<Dim>, Fail> {
        if let Some(nd) = self.imp.nd(v) {
            return Ok(nd.data);
        }
        if self.folds(v)
            && let Some(nd) = self.imp.nd(v)
        {
            return Ok(nd.data);
        }
        if !self.imp.is_known(v)
            && let Some(elements) = self.imp.read(v, self.node.name.as_deref().filter(|n| !n.is_empty()))?
        {
            return Ok(elements.to_vec());
        }
        Err(self.unknown(v))
    }
    /// Evaluates a value that depends on constants alone; whether it does.
    pub(crate) fn folds(&mut self, v: V) -> bool {
        let val = self.imp.val(v);
        if val.tensor.is_some() {
            return true;
        }
        let folded = val.id.and_then(|id| fold::constant_value(self.imp.graph_of(val.level), id));
        self.imp.vals[v.0 as usize].tensor = folded;
        self.imp.val(v).tensor.is_some()
    }
    fn unknown(&mut self, v: V) -> Fail {
        let val = self.imp.val(v);
        if val.id.is_none() && val.tensor.is_some() {
            return Fail::Invalid("a constant used as a shape is too long or not integral".into());
        }
        let inputs = self.imp.source_inputs(v);
        if inputs.is_empty() {
            Fail::Unsupported("the shape depends on a computed value".into())
        } else {
            Fail::NeedsValues(inputs)
        }
    }
    /// Elements that decide the graph's structure: known as numbers, or the reason why not.
    pub(crate) fn consts(&mut self, v: V) -> Result<Vec<i64>, Fail> {
        if !self.imp.is_known(v) && !self.folds(v) {
            return Err(self.unknown(v));
        }
        let elems = self.elems(v)?;
        let consts: Option<Vec<i64>> = elems.iter().map(|&d| self.imp.graph.dims.as_const(d)).collect();
        match consts {
            Some(c) => Ok(c),
            None if self.imp.val(v).runtime || self.imp.local.elems.contains_key(&v.0) => {
                Err(self.unknown(v))
            }
            None => Err(self.imp.undecided_by(&elems)),
        }
    }
    /// A rank-0 or one-element integer operand.
    pub(crate) fn const_scalar(&mut self, v: V) -> Result<i64, Fail> {
        match self.consts(v)?.as_slice() {
            [x] => Ok(*x),
            c => invalid(format!("expected one number, got {}", c.len())),
        }
    }
    /// A constant tensor operand.
    pub(crate) fn const_tensor(&mut self, v: V) -> Result<Tensor, Fail> {
        if self.folds(v)
            && let Some(t) = &self.imp.val(v).tensor
        {
            return Ok(t.clone());
        }
        let dtype = self.dtype(v);
        let data = self.consts(v)?;
        let Some(shape) = self.imp.const_shape(v) else { return unsupported("its shape is not constant") };
        let mut t = Tensor::zeros(dtype, &shape)?;
        for (i, &c) in data.iter().enumerate() {
            t.set(i, if dtype.is_float() { Scalar::Float(c as f64) } else { Scalar::Int(c) });
        }
        Ok(t)
    }
    /// Integers from an operand (newer operator sets) or an attribute (older ones).
    pub(crate) fn consts_or_attr(&mut self, operand: usize, attr: &str) -> Result<Option<Vec<i64>>, Fail> {
        match self.opt(operand) {
            Some(v) => self.consts(v).map(Some),
            None => self.ints(attr),
        }
    }
    /// Records known elements of a result: alone when the operands are known for good, else beside the tensor made from
    /// run-time data.
    pub(crate) fn known_or(
        &mut self,
        dtype: DType,
        operands: &[V],
        nd: Option<Nd>,
        tensor: impl FnOnce(&mut Self) -> Result<V, Fail>,
    ) -> Result<V, Fail> {
        let outside = &self.imp.local.elems;
        let runtime = operands.iter().any(|v| self.imp.val(*v).runtime || outside.contains_key(&v.0));
        let nd = nd.filter(|_| operands.iter().all(|&v| self.imp.is_known(v)));
        match nd {
            Some(nd) if !runtime => Ok(self.imp.of_nd(dtype, nd)),
            Some(nd) => {
                let v = tensor(self)?;
                // The result may be an operand itself; its elements are then known already.
                let own = self.imp.val(v).level == self.imp.level();
                if own
                    && self.imp.val(v).elems.is_none()
                    && self.imp.const_shape(v).as_deref() == Some(&nd.shape)
                {
                    let val = &mut self.imp.vals[v.0 as usize];
                    val.elems = Some(nd.data.into());
                    val.runtime = true;
                }
                Ok(v)
            }
            None => tensor(self),
        }
    }

    // Building.

    pub(crate) fn push(&mut self, op: Op, operands: &[V]) -> Result<V, Fail> {
        let mut ids = Vec::with_capacity(operands.len());
        for &v in operands {
            ids.push(self.imp.materialise(v)?);
        }
        let name = self.node.name.as_deref().filter(|n| !n.is_empty());
        let id = self.imp.push(op, &ids, name)?;
        Ok(self.imp.of_id(id))
    }
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> V {
        let s = if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        self.imp.constant(Tensor::scalar(dtype, s))
    }
    pub(crate) fn unary(&mut self, op: UnaryOp, x: V) -> Result<V, Fail> {
        self.push(Op::Unary(op), &[x])
    }
    pub(crate) fn binary(&mut self, op: BinaryOp, a: V, b: V) -> Result<V, Fail> {
        self.push(Op::Binary(op), &[a, b])
    }
    pub(crate) fn add(&mut self, a: V, b: V) -> Result<V, Fail> {
        self.binary(BinaryOp::Add, a, b)
    }
    pub(crate) fn sub(&mut self, a: V, b: V) -> Result<V, Fail> {
        self.binary(BinaryOp::Sub, a, b)
    }
    pub(crate) fn mul(&mut self, a: V, b: V) -> Result<V, Fail> {
        self.binary(BinaryOp::Mul, a, b)
    }
    pub(crate) fn div(&mut self, a: V, b: V) -> Result<V, Fail> {
        self.binary(BinaryOp::Div, a, b)
    }
    /// `x op c`, with the constant in x's dtype.
    pub(crate) fn with(&mut self, op: BinaryOp, x: V, c: f64) -> Result<V, Fail> {
        let c = self.scalar(self.dtype(x), c);
        self.binary(op, x, c)
    }
    pub(crate) fn select(&mut self, cond: V, a: V, b: V) -> Result<V, Fail> {
        self.push(Op::Select {}, &[cond, a, b])
    }
    pub(crate) fn cast(&mut self, x: V, to: DType) -> Result<V, Fail> {
        if self.dtype(x) == to { Ok(x) } else { self.push(Op::Cast { to }, &[x]) }
    }
    pub(crate) fn reshape(&mut self, x: V, shape: Vec<Dim>) -> Result<V, Fail> {
        if self.shape(x) == shape { Ok(x) } else { self.push(Op::Reshape { shape }, &[x]) }
    }
    pub(crate) fn expand(&mut self, x: V, shape: Vec<Dim>) -> Result<V, Fail> {
        if self.shape(x) == shape { Ok(x) } else { self.push(Op::Expand { shape }, &[x]) }
    }
    pub(crate) fn transpose(&mut self, x: V, perm: Vec<usize>) -> Result<V, Fail> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            Ok(x)
        } else {
            self.push(Op::Transpose { perm }, &[x])
        }
    }
    /// A transpose that is done here and now if the value is a constant.
    pub(crate) fn transpose_constant(&mut self, x: V, perm: Vec<usize>) -> Result<V, Fail> {
        match self.imp.val(x).tensor.clone() {
            Some(t) => {
                let t = tensor::transposed(&t, &perm)?;
                Ok(self.imp.constant(t))
            }
            None => self.transpose(x, perm),
        }
    }
    pub(crate) fn reduce(&mut self, op: ReduceOp, x: V, axes: &[usize], keepdims: bool) -> Result<V, Fail> {
        self.push(Op::Reduce { op, axes: axes.to_vec(), keepdims }, &[x])
    }
    pub(crate) fn matmul(&mut self, a: V, b: V, trans_a: bool, trans_b: bool) -> Result<V, Fail> {
        self.push(Op::MatMul { trans_a, trans_b }, &[a, b])
    }
    pub(crate) fn fill(&mut self, dtype: DType, value: Scalar, shape: Vec<Dim>) -> Result<V, Fail> {
        self.push(Op::Fill { value, dtype, shape }, &[])
    }
    /// `0, 1, .. len-1`.
    pub(crate) fn iota(&mut self, len: Dim, dtype: DType) -> Result<V, Fail> {
        self.push(Op::Range { start: Dim::ZERO, step: Dim::ONE, len, dtype }, &[])
    }
    /// Adds axes of extent 1: the axes of `x` become those of rank `rank` at `at`, e.g. a channel vector beside spatial axes.
    pub(crate) fn place(&mut self, x: V, at: usize, rank: usize) -> Result<V, Fail> {
        let own = self.shape(x);
        if at + own.len() > rank {
            return invalid(format!(
                "an operand of rank {} does not fit a rank-{rank} tensor at axis {at}",
                own.len()
            ));
        }
        let mut shape = vec![Dim::ONE; rank - at];
        shape[..own.len()].copy_from_slice(&own);
        self.reshape(x, shape)
    }
    /// A vector as axis `at` of a rank-`rank` tensor, the other extents being 1.
    pub(crate) fn place_at(&mut self, x: V, at: usize, rank: usize) -> Result<V, Fail> {
        let mut shape = vec![Dim::ONE; rank - at];
        shape[0] = self.shape(x).first().copied().unwrap_or(Dim::ONE);
        self.reshape(x, shape)
    }
    /// Part of an axis.
    pub(crate) fn slice_axis(&mut self, x: V, axis: usize, start: Dim, len: Dim) -> Result<V, Fail> {
        let shape = self.shape(x);
        if axis >= shape.len() {
            return invalid(format!("an operand of rank {} has no axis {axis}", shape.len()));
        }
        let mut starts = vec![Dim::ZERO; shape.len()];
        let mut lens = shape;
        starts[axis] = start;
        lens[axis] = len;
        let step = vec![1; lens.len()];
        self.push(Op::Slice { start: starts, len: lens, step }, &[x])
    }
}
