//! Cases as ONNX models, spelled as an exporter would: ops that ONNX lacks become standard ones.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use dvm_ir::{BinaryOp as B, DType, ReduceOp, Tensor, UnaryOp as U, strided_index};
use dvm_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type, dimension, type_proto,
};
use prost::Message;

use super::build::{Build, Grouped, Types, build};
use super::case::Case;

const OPSET: i64 = 20;
/// Most elements of an index that a model holds as a constant.
const MAX_INDEX: usize = 1 << 23;

#[derive(Default)]
pub(crate) struct OnnxForm {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    next: usize,
    at: usize,
    /// Ops whose sizes and axes differ between the steps of a group: they become inputs.
    open: HashSet<usize>,
    /// Those inputs.
    extra: Vec<(String, Tensor)>,
    /// Lists of groups are read from their input.
    dynamic: bool,
}

/// A serialised model, and the inputs it has beside the case's.
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    pub(crate) extra: Vec<(String, Tensor)>,
}

impl OnnxForm {
    /// The model of a case: for its own shapes, or with `open` given for all steps of its group.
    pub(crate) fn model(
        case: &Case,
        inputs: &[(String, Tensor)],
        types: &mut Types,
        open: Option<&HashSet<usize>>,
    ) -> Result<Model> {
        let mut f = OnnxForm {
            open: open.cloned().unwrap_or_default(),
            dynamic: open.is_some(),
            ..OnnxForm::default()
        };
        let given: HashMap<String, String> = inputs.iter().map(|(n, _)| (n.clone(), n.clone())).collect();
        let outs = build(&mut f, case, inputs, given, types)?;
        let mut infos = vec![];
        for (spec, (name, t)) in case.inputs.iter().zip(inputs) {
            let symbolic = spec.sym_shape.as_ref().filter(|_| open.is_some());
            let unknown = symbolic.is_some_and(|s| s.iter().any(|v| v.as_str() == Some("?rank")));
            let dims = t.shape().iter().enumerate().map(|(axis, &n)| {
                // Inputs without symbols in a group may differ, too.
                match symbolic.and_then(|s| s.get(axis)).map(|v| v.as_str()) {
                    Some(Some(s)) => dimension::Value::DimParam(s.to_string()),
                    Some(None) => dimension::Value::DimValue(n as i64),
                    None if open.is_some() && !f.is_list(case, name) => {
                        dimension::Value::DimParam(format!("{name}_{axis}"))
                    }
                    None => dimension::Value::DimValue(n as i64),
                }
            });
            let dims: Vec<_> = dims.collect();
            infos.push(info(name, t.dtype(), (!unknown).then_some(dims)));
        }
        for (name, t) in &f.extra {
            infos.push(info(name, t.dtype(), None));
        }
        let outputs = case.outputs.iter().map(|o| Ok(info(&o.name, super::case::dtype(&o.dtype)?, None)));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        for (name, v) in outs {
            f.nodes.push(node("Identity", &[v], &[name], vec![]));
        }
        let graph = GraphProto {
            node: f.nodes,
            name: Some(case.group.clone().unwrap_or_else(|| case.id.clone())),
            initializer: f.constants,
            input: infos,
            output: outputs,
            ..GraphProto::default()
        };
        let model = ModelProto {
            ir_version: Some(8),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(OPSET) }],
            graph: Some(graph),
            ..ModelProto::default()
        };
        Ok(Model { bytes: model.encode_to_vec(), extra: f.extra })
    }
    fn is_list(&self, case: &Case, name: &str) -> bool {
        case.ops
            .iter()
            .any(|o| o.op == "grouped_matmul" && o.inputs.get(2).and_then(|v| v.as_str()) == Some(name))
    }
    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }
    fn push(&mut self, op: &str, inputs: &[String], attrs: Vec<AttributeProto>) -> String {
        let out = self.fresh();
        self.nodes.push(node(op, inputs, std::slice::from_ref(&out), attrs));
        out
    }
    fn initializer(&mut self, t: &Tensor) -> String {
        let name = self.fresh();
        self.constants.push(TensorProto { name: Some(name.clone()), ..tensor(t) });
        name
    }
    fn list(&mut self, x: &[usize]) -> Result<String> {
        let t = Tensor::from_slice(&[x.len()], &x.iter().map(|&n| n as i64).collect::<Vec<_>>())?;
        Ok(self.initializer(&t))
    }
    /// Sizes or axes that the steps of a group may change.
    fn sizes(&mut self, x: &[usize]) -> Result<String> {
        if !self.open.contains(&self.at) {
            return self.list(x);
        }
        let name = format!("attr{}", self.at);
        let t = Tensor::from_slice(&[x.len()], &x.iter().map(|&n| n as i64).collect::<Vec<_>>())?;
        self.extra.push((name.clone(), t));
        Ok(name)
    }
}

fn info(name: &str, dtype: DType, dims: Option<Vec<dimension::Value>>) -> ValueInfoProto {
    let dim = |d: dimension::Value| DimensionProto { value: Some(d) };
    let shape = dims.map(|d| TensorShapeProto { dim: d.into_iter().map(dim).collect() });
    let tensor = TensorTypeProto { elem_type: Some(dtype.onnx()), shape };
    ValueInfoProto {
        name: Some(name.to_string()),
        r#type: Some(TypeProto { value: Some(type_proto::Value::Tensor(tensor)) }),
    }
}

fn node(op: &str, inputs: &[String], outputs: &[String], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        input: inputs.to_vec(),
        output: outputs.to_vec(),
        op_type: Some(op.to_string()),
        attribute,
        ..NodeProto::default()
    }
}

fn tensor(t: &Tensor) -> TensorProto {
    TensorProto {
        dims: t.shape().iter().map(|&n| n as i64).collect(),
        data_type: Some(t.dtype().onnx()),
        raw_data: Some(t.bytes().to_vec().into()),
        ..TensorProto::default()
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(attribute_type::INT),
        i: Some(i),
        ..AttributeProto::default()
    }
}

fn ints(name: &str, x: &[usize]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(attribute_type::INTS),
        ints: x.iter().map(|&n| n as i64).collect(),
        ..AttributeProto::default()
    }
}

fn value(t: &Tensor) -> AttributeProto {
    AttributeProto {
        name: Some("value".into()),
        r#type: Some(attribute_type::TENSOR),
        t: Some(Box::new(tensor(t))),
        ..AttributeProto::default()
    }
}

impl Build for OnnxForm {
    type V = String;
    fn begin(&mut self, at: usize) {
        self.at = at;
    }
    fn number(&mut self, dtype: DType, x: f64) -> Result<String> {
        let t = super::case::tensor(dtype, &[], &[x])?;
        Ok(self.initializer(&t))
    }
    fn constant(&mut self, t: Tensor) -> Result<String> {
        Ok(self.initializer(&t))
    }
    fn unary(&mut self, op: U, x: &String) -> Result<String> {
        let x = std::slice::from_ref(x);
        let name = match op {
            U::Copy => "Identity",
            U::Abs => "Abs",
            U::Neg => "Neg",
            U::Sqrt => "Sqrt",
            U::Exp => "Exp",
            U::Ln => "Log",
            U::Reciprocal => "Reciprocal",
            U::Round => "Round",
            U::Floor => "Floor",
            U::Ceil => "Ceil",
            U::Not => "Not",
            U::Trunc => {
                let (sign, size) = (self.push("Sign", x, vec![]), self.push("Abs", x, vec![]));
                let size = self.push("Floor", &[size], vec![]);
                return Ok(self.push("Mul", &[sign, size], vec![]));
            }
            U::IsFinite => {
                let (nan, inf) = (self.push("IsNaN", x, vec![]), self.push("IsInf", x, vec![]));
                let either = self.push("Or", &[nan, inf], vec![]);
                return Ok(self.push("Not", &[either], vec![]));
            }
            other => bail!("{other} is not in the cases"),
        };
        Ok(self.push(name, x, vec![]))
    }
    fn binary(&mut self, op: B, a: &String, b: &String) -> Result<String> {
        let name = match op {
            B::Add => "Add",
            B::Sub => "Sub",
            B::Mul => "Mul",
            B::Div => "Div",
            B::Pow => "Pow",
            B::Max => "Max",
            B::Min => "Min",
            B::Eq => "Equal",
            B::Lt => "Less",
            B::Le => "LessOrEqual",
            B::Gt => "Greater",
            B::Ge => "GreaterOrEqual",
            B::And => "And",
            B::Or => "Or",
            B::Ne => {
                let same = self.push("Equal", &[a.clone(), b.clone()], vec![]);
                return Ok(self.push("Not", &[same], vec![]));
            }
            other => bail!("{other} is not in the cases"),
        };
        Ok(self.push(name, &[a.clone(), b.clone()], vec![]))
    }
    fn cast(&mut self, x: &String, to: DType) -> Result<String> {
        Ok(self.push("Cast", std::slice::from_ref(x), vec![int("to", i64::from(to.onnx()))]))
    }
    fn select(&mut self, c: &String, a: &String, b: &String) -> Result<String> {
        Ok(self.push("Where", &[c.clone(), a.clone(), b.clone()], vec![]))
    }
    fn full(&mut self, dtype: DType, shape: &[usize], x: f64) -> Result<String> {
        let shape = self.sizes(shape)?;
        let x = super::case::tensor(dtype, &[1], &[x])?;
        Ok(self.push("ConstantOfShape", &[shape], vec![value(&x)]))
    }
    fn expand(&mut self, x: &String, shape: &[usize]) -> Result<String> {
        let shape = self.sizes(shape)?;
        Ok(self.push("Expand", &[x.clone(), shape], vec![]))
    }
    fn reshape(&mut self, x: &String, shape: &[usize]) -> Result<String> {
        let shape = self.sizes(shape)?;
        Ok(self.push("Reshape", &[x.clone(), shape], vec![int("allowzero", 1)]))
    }
    fn transpose(&mut self, x: &String, perm: &[usize]) -> Result<String> {
        Ok(self.push("Transpose", std::slice::from_ref(x), vec![ints("perm", perm)]))
    }
    fn slice(&mut self, x: &String, start: &[usize], len: &[usize]) -> Result<String> {
        let end: Vec<usize> = start.iter().zip(len).map(|(s, n)| s + n).collect();
        let axes: Vec<usize> = (0..len.len()).collect();
        let (start, end, axes) = (self.list(start)?, self.list(&end)?, self.list(&axes)?);
        Ok(self.push("Slice", &[x.clone(), start, end, axes], vec![]))
    }
    fn pad(&mut self, x: &String, after: &[usize]) -> Result<String> {
        let pads = self.list(&[&vec![0; after.len()], after].concat())?;
        Ok(self.push("Pad", &[x.clone(), pads], vec![]))
    }
    fn concat(&mut self, xs: &[String], axis: usize) -> Result<String> {
        Ok(self.push("Concat", xs, vec![int("axis", axis as i64)]))
    }
    fn gather(&mut self, x: &String, index: &String, axis: usize) -> Result<String> {
        Ok(self.push("Gather", &[x.clone(), index.clone()], vec![int("axis", axis as i64)]))
    }
    fn reduce(&mut self, op: ReduceOp, x: &String, axes: &[usize], keepdims: bool) -> Result<String> {
        let name = match op {
            ReduceOp::Sum => "ReduceSum",
            ReduceOp::Min => "ReduceMin",
            // Of bools the largest is whether any is true.
            ReduceOp::Max | ReduceOp::Any => "ReduceMax",
            other => bail!("{other} is not in the cases"),
        };
        let axes = self.sizes(axes)?;
        Ok(self.push(name, &[x.clone(), axes], vec![int("keepdims", i64::from(keepdims))]))
    }
    fn matmul(
        &mut self,
        a: &String,
        b: &String,
        trans: (bool, bool),
        ranks: (usize, usize),
    ) -> Result<String> {
        let mut side = |x: &String, trans: bool, rank: usize| {
            if !trans {
                return Ok(x.clone());
            }
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            self.transpose(x, &perm)
        };
        let (a, b) = (side(a, trans.0, ranks.0)?, side(b, trans.1, ranks.1)?);
        Ok(self.push("MatMul", &[a, b], vec![]))
    }
    fn one_hot(
        &mut self,
        index: &String,
        _ty: &(DType, Vec<usize>),
        depth: usize,
        axis: usize,
        (on, off): (f64, f64),
        dtype: DType,
    ) -> Result<String> {
        let depth = self.list(&[depth])?;
        let values = super::case::tensor(dtype, &[2], &[off, on])?;
        let values = self.initializer(&values);
        Ok(self.push("OneHot", &[index.clone(), depth, values], vec![int("axis", axis as i64)]))
    }
    fn as_strided(
        &mut self,
        x: &String,
        len: usize,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<String> {
        let flat = self.reshape(x, &[len])?;
        if shape.iter().product::<usize>() > MAX_INDEX {
            let steps = dvm_ir::strided_view(len, shape, strides, offset).context("too many indices")?;
            return self.steps(&flat, &steps);
        }
        let index: Vec<f64> = strided_index(shape, strides, offset).into_iter().map(|i| i as f64).collect();
        let index = self.constant(super::case::tensor(DType::I64, shape, &index)?)?;
        self.gather(&flat, &index, 0)
    }
    fn scatter(
        &mut self,
        x: &String,
        shape: &[usize],
        buffer: &[usize],
        strides: &[usize],
    ) -> Result<String> {
        let places: Vec<f64> = strided_index(shape, strides, 0).into_iter().map(|i| i as f64).collect();
        let index = self.constant(super::case::tensor(DType::I64, &[places.len(), 1], &places)?)?;
        let flat = self.reshape(x, &[places.len()])?;
        // Zeros of x's dtype, whatever that is.
        let zero = self.push("Sub", &[flat.clone(), flat.clone()], vec![]);
        let first = self.slice(&zero, &[0], &[1])?;
        let zeros = self.expand(&first, &[buffer.iter().product()])?;
        let y = self.push("ScatterND", &[zeros, index, flat], vec![]);
        self.reshape(&y, buffer)
    }
    fn grouped(&mut self, g: &Grouped<'_, String>) -> Result<String> {
        let (mut parts, mut start) = (vec![], self.list(&[0])?);
        let list = g.list.0.to_string();
        let ends = if self.dynamic && g.list.1 {
            let along = super::case::tensor(DType::I64, &[], &[0.0])?;
            let along = self.initializer(&along);
            self.push("CumSum", &[list, along], vec![])
        } else {
            list
        };
        for (i, &n) in g.ends.iter().enumerate() {
            let end = if self.dynamic { self.slice(&ends, &[i], &[1])? } else { self.list(&[n])? };
            let cut = |f: &mut Self, x: &String, axis: usize, from: &String, to: &String| -> Result<String> {
                let axis = f.list(&[axis])?;
                Ok(f.push("Slice", &[x.clone(), from.clone(), to.clone(), axis], vec![]))
            };
            let (one, two) = (self.list(&[i])?, self.list(&[i + 1])?);
            let zero = self.list(&[0])?;
            let (a, w) = match g.axis {
                dvm_ir::GroupAxis::M => {
                    let w = cut(self, g.w, 0, &one, &two)?;
                    let w = self.push("Squeeze", &[w, zero.clone()], vec![]);
                    (cut(self, g.x, usize::from(g.trans.0), &start, &end)?, w)
                }
                dvm_ir::GroupAxis::K => (
                    cut(self, g.x, usize::from(!g.trans.0), &start, &end)?,
                    cut(self, g.w, usize::from(g.trans.1), &start, &end)?,
                ),
            };
            let mut y = self.matmul(&a, &w, g.trans, (2, 2))?;
            if let Some((bias, _)) = &g.bias {
                let row = cut(self, bias, 0, &one, &two)?;
                y = self.binary(B::Add, &y, &row)?;
            }
            if g.axis == dvm_ir::GroupAxis::K {
                y = self.push("Unsqueeze", &[y, zero], vec![]);
            }
            parts.push(y);
            start = end;
        }
        self.concat(&parts, 0)
    }
}
