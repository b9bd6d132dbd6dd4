//! ONNX protobuf messages, kept by hand so that neither protoc nor a build script is needed.
//!
//! Only the fields the importer reads are declared; others are skipped when decoding, as protobuf prescribes. Field
//! numbers are those of `onnx.proto`. The types are public so that tests and tools can build models.

use prost::Message;
use prost::bytes::Bytes;

/// A model.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, optional, tag = 1)]
    pub ir_version: Option<i64>,
    /// Operator sets the nodes come from.
    #[prost(message, repeated, tag = 8)]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Tool that wrote the model.
    #[prost(string, optional, tag = 2)]
    pub producer_name: Option<String>,
    /// Its version.
    #[prost(string, optional, tag = 3)]
    pub producer_version: Option<String>,
    /// The graph.
    #[prost(message, optional, tag = 7)]
    pub graph: Option<GraphProto>,
    /// Functions local to the model.
    #[prost(message, repeated, tag = 25)]
    pub functions: Vec<FunctionProto>,
}

/// An operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Domain, empty for ONNX itself.
    #[prost(string, optional, tag = 1)]
    pub domain: Option<String>,
    /// Version.
    #[prost(int64, optional, tag = 2)]
    pub version: Option<i64>,
}

/// A graph of nodes.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes in topological order.
    #[prost(message, repeated, tag = 1)]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, optional, tag = 2)]
    pub name: Option<String>,
    /// Constants (and, where a name is also an input, defaults).
    #[prost(message, repeated, tag = 5)]
    pub initializer: Vec<TensorProto>,
    /// Sparse constants.
    #[prost(message, repeated, tag = 15)]
    pub sparse_initializer: Vec<SparseTensorProto>,
    /// Inputs.
    #[prost(message, repeated, tag = 11)]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = 12)]
    pub output: Vec<ValueInfoProto>,
}

/// An op applied to named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Operands; an empty name is an omitted optional operand.
    #[prost(string, repeated, tag = 1)]
    pub input: Vec<String>,
    /// Results; an empty name is an unused result.
    #[prost(string, repeated, tag = 2)]
    pub output: Vec<String>,
    /// Name.
    #[prost(string, optional, tag = 3)]
    pub name: Option<String>,
    /// Op.
    #[prost(string, optional, tag = 4)]
    pub op_type: Option<String>,
    /// Attributes.
    #[prost(message, repeated, tag = 5)]
    pub attribute: Vec<AttributeProto>,
    /// Domain of the op.
    #[prost(string, optional, tag = 7)]
    pub domain: Option<String>,
    /// Overload of a local function.
    #[prost(string, optional, tag = 8)]
    pub overload: Option<String>,
}

/// A named attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, optional, tag = 1)]
    pub name: Option<String>,
    /// In a function body: the attribute of the call this one copies.
    #[prost(string, optional, tag = 21)]
    pub ref_attr_name: Option<String>,
    /// Which field is in use.
    #[prost(int32, optional, tag = 20)]
    pub r#type: Option<i32>,
    /// A float.
    #[prost(float, optional, tag = 2)]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = 3)]
    pub i: Option<i64>,
    /// A string.
    #[prost(bytes = "bytes", optional, tag = 4)]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = 5)]
    pub t: Option<Box<TensorProto>>,
    /// A graph.
    #[prost(message, optional, boxed, tag = 6)]
    pub g: Option<Box<GraphProto>>,
    /// A sparse tensor.
    #[prost(message, optional, boxed, tag = 22)]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
    /// Floats.
    #[prost(float, repeated, packed = "false", tag = 7)]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = 8)]
    pub ints: Vec<i64>,
    /// Strings.
    #[prost(bytes = "bytes", repeated, tag = 9)]
    pub strings: Vec<Bytes>,
}

/// Numbers of [`AttributeProto::type`].
pub mod attribute_type {
    /// Field `f`.
    pub const FLOAT: i32 = 1;
    /// Field `i`.
    pub const INT: i32 = 2;
    /// Field `s`.
    pub const STRING: i32 = 3;
    /// Field `t`.
    pub const TENSOR: i32 = 4;
    /// Field `g`.
    pub const GRAPH: i32 = 5;
    /// Field `floats`.
    pub const FLOATS: i32 = 6;
    /// Field `ints`.
    pub const INTS: i32 = 7;
    /// Field `strings`.
    pub const STRINGS: i32 = 8;
}

/// A tensor of constants.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Shape.
    #[prost(int64, repeated, packed = "false", tag = 1)]
    pub dims: Vec<i64>,
    /// Element type.
    #[prost(int32, optional, tag = 2)]
    pub data_type: Option<i32>,
    /// f32 elements.
    #[prost(float, repeated, tag = 4)]
    pub float_data: Vec<f32>,
    /// Elements of 32 bits or fewer (halves as their bits).
    #[prost(int32, repeated, tag = 5)]
    pub int32_data: Vec<i32>,
    /// i64 elements.
    #[prost(int64, repeated, tag = 7)]
    pub int64_data: Vec<i64>,
    /// Name.
    #[prost(string, optional, tag = 8)]
    pub name: Option<String>,
    /// Elements as little-endian bytes.
    #[prost(bytes = "bytes", optional, tag = 9)]
    pub raw_data: Option<Bytes>,
    /// f64 elements.
    #[prost(double, repeated, tag = 10)]
    pub double_data: Vec<f64>,
    /// u32 and u64 elements.
    #[prost(uint64, repeated, tag = 11)]
    pub uint64_data: Vec<u64>,
    /// Where external data lies: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = 13)]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 when the data is external.
    #[prost(int32, optional, tag = 14)]
    pub data_location: Option<i32>,
}

/// A sparse tensor (read only to say that it is not supported).
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// Non-zero values; their name is the tensor's.
    #[prost(message, optional, boxed, tag = 1)]
    pub values: Option<Box<TensorProto>>,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, optional, tag = 1)]
    pub key: Option<String>,
    /// Value.
    #[prost(string, optional, tag = 2)]
    pub value: Option<String>,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name.
    #[prost(string, optional, tag = 1)]
    pub name: Option<String>,
    /// Type.
    #[prost(message, optional, tag = 2)]
    pub r#type: Option<TypeProto>,
}

/// A type.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Which kind.
    #[prost(oneof = "type_proto::Value", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<type_proto::Value>,
}

/// Kinds of types.
pub mod type_proto {
    /// Kind of a type; what is not a tensor is known by its presence only.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        /// A tensor.
        #[prost(message, tag = "1")]
        Tensor(super::TensorTypeProto),
        /// A sequence.
        #[prost(message, tag = "4")]
        Sequence(super::EmptyProto),
        /// A map.
        #[prost(message, tag = "5")]
        Map(super::EmptyProto),
        /// An opaque type.
        #[prost(message, tag = "7")]
        Opaque(super::EmptyProto),
        /// A sparse tensor.
        #[prost(message, tag = "8")]
        SparseTensor(super::EmptyProto),
        /// An optional value.
        #[prost(message, tag = "9")]
        Optional(super::EmptyProto),
    }
}

/// A message whose content is not read.
#[derive(Clone, PartialEq, Message)]
pub struct EmptyProto {}

/// Element type and shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type.
    #[prost(int32, optional, tag = 1)]
    pub elem_type: Option<i32>,
    /// Shape; absent when even the rank is unknown.
    #[prost(message, optional, tag = 2)]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Extents.
    #[prost(message, repeated, tag = 1)]
    pub dim: Vec<DimensionProto>,
}

/// One extent.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Number or name.
    #[prost(oneof = "dimension::Value", tags = "1, 2")]
    pub value: Option<dimension::Value>,
}

/// Kinds of extents.
pub mod dimension {
    /// A number or a symbol.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        /// A fixed extent.
        #[prost(int64, tag = "1")]
        DimValue(i64),
        /// A named unknown.
        #[prost(string, tag = "2")]
        DimParam(String),
    }
}

/// A function local to a model.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Name.
    #[prost(string, optional, tag = 1)]
    pub name: Option<String>,
    /// Parameters.
    #[prost(string, repeated, tag = 4)]
    pub input: Vec<String>,
    /// Results.
    #[prost(string, repeated, tag = 5)]
    pub output: Vec<String>,
    /// Names of required attributes.
    #[prost(string, repeated, tag = 6)]
    pub attribute: Vec<String>,
    /// Attributes with defaults.
    #[prost(message, repeated, tag = 11)]
    pub attribute_proto: Vec<AttributeProto>,
    /// Body.
    #[prost(message, repeated, tag = 7)]
    pub node: Vec<NodeProto>,
    /// Operator sets of the body.
    #[prost(message, repeated, tag = 9)]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Domain.
    #[prost(string, optional, tag = 10)]
    pub domain: Option<String>,
    /// Overload.
    #[prost(string, optional, tag = 13)]
    pub overload: Option<String>,
}
