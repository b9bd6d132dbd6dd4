//! A small builder of ONNX models.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod mutants;

use dvm_ir::{DType, Tensor};
use dvm_onnx::proto::*;

/// A model under construction.
pub(crate) struct Model(pub(crate) ModelProto);

pub(crate) fn model(opset: i64) -> Model {
    Model(ModelProto {
        ir_version: Some(8),
        opset_import: vec![
            OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) },
            OperatorSetIdProto { domain: Some("com.microsoft".into()), version: Some(1) },
        ],
        graph: Some(GraphProto { name: Some("g".into()), ..Default::default() }),
        ..Default::default()
    })
}

/// `"b, 3, ?"`: names, numbers, or unknown.
pub(crate) fn ty(dtype: DType, shape: &str) -> TypeProto {
    let dim = |s: &str| DimensionProto {
        value: match s.parse::<i64>() {
            Ok(n) => Some(dimension::Value::DimValue(n)),
            Err(_) if s == "?" => None,
            Err(_) => Some(dimension::Value::DimParam(s.into())),
        },
    };
    let dim = shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(dim).collect();
    TypeProto {
        value: Some(type_proto::Value::Tensor(TensorTypeProto {
            elem_type: Some(dtype.onnx()),
            shape: Some(TensorShapeProto { dim }),
        })),
    }
}

pub(crate) fn tensor(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: t.shape().iter().map(|&d| d as i64).collect(),
        data_type: Some(t.dtype().onnx()),
        raw_data: Some(t.bytes().to_vec().into()),
        ..Default::default()
    }
}

fn words(s: &str) -> Vec<String> {
    s.split(',').map(|w| w.trim().to_string()).collect()
}

/// `"Gather(x, i) -> y"`.
pub(crate) fn node(text: &str, attrs: &[(&str, A)]) -> NodeProto {
    let (call, out) = text.split_once("->").unwrap();
    let (op, args) = call.trim().split_once('(').unwrap();
    let args = args.trim_end_matches(')');
    let (domain, op) = op.rsplit_once("::").map_or((None, op), |(d, o)| (Some(d.to_string()), o));
    NodeProto {
        op_type: Some(op.into()),
        domain,
        input: if args.trim().is_empty() { vec![] } else { words(args) },
        output: words(out),
        attribute: attrs.iter().map(|(n, a)| a.proto(n)).collect(),
        ..Default::default()
    }
}

/// An attribute's value.
pub(crate) enum A {
    I(i64),
    F(f32),
    S(&'static str),
    Is(Vec<i64>),
    T(Tensor),
    G(GraphProto),
}

impl A {
    fn proto(&self, name: &str) -> AttributeProto {
        let mut a = AttributeProto { name: Some(name.into()), ..Default::default() };
        a.r#type = Some(match self {
            A::I(i) => {
                a.i = Some(*i);
                attribute_type::INT
            }
            A::F(f) => {
                a.f = Some(*f);
                attribute_type::FLOAT
            }
            A::S(s) => {
                a.s = Some(s.as_bytes().into());
                attribute_type::STRING
            }
            A::Is(v) => {
                a.ints.clone_from(v);
                attribute_type::INTS
            }
            A::T(t) => {
                a.t = Some(Box::new(tensor("", t)));
                attribute_type::TENSOR
            }
            A::G(g) => {
                a.g = Some(Box::new(g.clone()));
                attribute_type::GRAPH
            }
        });
        a
    }
}

impl Model {
    fn graph(&mut self) -> &mut GraphProto {
        self.0.graph.as_mut().unwrap()
    }
    pub(crate) fn input(mut self, name: &str, dtype: DType, shape: &str) -> Self {
        self.graph().input.push(ValueInfoProto { name: Some(name.into()), r#type: Some(ty(dtype, shape)) });
        self
    }
    pub(crate) fn output(mut self, name: &str) -> Self {
        self.graph().output.push(ValueInfoProto { name: Some(name.into()), r#type: None });
        self
    }
    pub(crate) fn init(mut self, name: &str, t: Tensor) -> Self {
        self.graph().initializer.push(tensor(name, &t));
        self
    }
    pub(crate) fn ints(self, name: &str, v: &[i64]) -> Self {
        self.init(name, Tensor::from_slice(&[v.len()], v).unwrap())
    }
    pub(crate) fn node(mut self, text: &str, attrs: &[(&str, A)]) -> Self {
        self.graph().node.push(node(text, attrs));
        self
    }
}

pub(crate) fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(shape, v).unwrap()
}
pub(crate) fn i64s(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_slice(shape, v).unwrap()
}
/// 0, 1, 2, ..
pub(crate) fn arange(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| i as f32).collect::<Vec<_>>())
}
