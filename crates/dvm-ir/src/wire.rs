//! Graphs as bytes.
//!
//! ```text
//! "DVMG"   major u16   minor u16   payload length u64   crc32 of the payload u32   payload (postcard)
//! ```
//!
//! The payload is not self-describing, so the header is read by hand: a file of another version is refused with its number.
//! The stored structs are apart from the ones in memory; ops are stored by mnemonic and attributes, dims as expressions. A
//! graph that has been read passes [`Graph::verify`], whoever wrote the bytes, and costs memory in proportion to them.

use serde::{Deserialize, Serialize};

use crate::dim::{DimWriter, WireDims};
use crate::{
    Attr, AttrKind, Check, CheckCond, ConstId, Control, ControlId, ControlKind, DType, Dim, Graph, HostOp,
    Input, MAX_BODY_DEPTH, Node, NodeId, Op, Output, Tensor, TensorType, Value, ValueDef, ValueId, Violation,
};

/// First bytes of a stored graph.
pub const GRAPH_MAGIC: [u8; 4] = *b"DVMG";
/// Version of the format: a reader takes its own major version with the same or a lower minor version.
pub const GRAPH_VERSION: (u16, u16) = (1, 2);
const HEADER: usize = 20;

/// The bytes are not a graph this version reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Something else.
    #[error("not a stored graph: it starts with {found:?} instead of \"DVMG\"")]
    NotAGraph {
        /// The first bytes, as text.
        found: String,
    },
    /// Another version.
    #[error("the graph is stored in format {major}.{minor}, this version reads up to {}.{}", GRAPH_VERSION.0, GRAPH_VERSION.1)]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// Too short or too long.
    #[error("a stored graph of {needs} bytes has {got}")]
    Length {
        /// Bytes the header says there are.
        needs: u64,
        /// Bytes there are.
        got: usize,
    },
    /// The content was changed.
    #[error("the checksum is {found:08x}, the header says {stated:08x}")]
    Checksum {
        /// Of the content.
        found: u32,
        /// In the header.
        stated: u32,
    },
    /// The content cannot be decoded.
    #[error("malformed graph: {0}")]
    Malformed(String),
    /// The content is a graph that breaks rules.
    #[error("invalid graph:{}", Lines(.0))]
    Invalid(Vec<Violation>),
}

struct Lines<'a>(&'a [Violation]);
impl std::fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|v| write!(f, "\n  {v}"))
    }
}

#[derive(Serialize, Deserialize)]
struct WireGraph<'a> {
    name: String,
    dims: WireDims,
    checks: Vec<WireCheck>,
    #[serde(borrow)]
    constants: Vec<WireTensor<'a>>,
    values: Vec<WireValue>,
    nodes: Vec<WireNode>,
    inputs: Vec<WireInput>,
    outputs: Vec<(String, u32)>,
}

#[derive(Serialize, Deserialize)]
struct WireTensor<'a> {
    dtype: String,
    shape: Vec<u64>,
    data: &'a [u8],
}

#[derive(Serialize, Deserialize)]
enum WireCond {
    Equal,
    EqualOrOne,
    Broadcast,
    AtMost,
}

#[derive(Serialize, Deserialize)]
struct WireCheck {
    cond: WireCond,
    a: u32,
    b: u32,
    what: String,
}

#[derive(Serialize, Deserialize)]
enum WireDef {
    Input(u32),
    Const(u32),
    Node(u32),
    Control(u32, u32),
}

/// Controls, since format 1.1 a second part of the payload.
#[derive(Serialize, Deserialize)]
struct WireControls<'a>(#[serde(borrow)] Vec<WireControl<'a>>);

#[derive(Serialize, Deserialize)]
struct WireControl<'a> {
    at: u32,
    kind: WireKind,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    /// Stored graphs.
    #[serde(borrow)]
    bodies: Vec<&'a [u8]>,
    name: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum WireKind {
    If,
    Loop {
        carried: u32,
        scanned: u32,
        backward: Vec<bool>,
    },
    Read(Vec<u32>),
    NonZero,
    /// Since format 1.2.
    Host {
        mnemonic: String,
        attrs: Vec<(String, i64)>,
    },
}

#[derive(Serialize, Deserialize)]
struct WireValue {
    name: Option<String>,
    dtype: String,
    shape: Vec<u32>,
    def: WireDef,
}

#[derive(Serialize, Deserialize)]
enum WireAttr {
    Bool(bool),
    Int(i64),
    /// Bits, so that a NaN keeps its payload.
    Float(u64),
    Ints(Vec<i64>),
    Dim(u32),
    Dims(Vec<u32>),
    Word(String),
}

#[derive(Serialize, Deserialize)]
struct WireNode {
    op: String,
    attrs: Vec<(String, WireAttr)>,
    inputs: Vec<u32>,
    output: u32,
    name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WireInput {
    name: String,
    value: u32,
    elements: Option<Vec<u32>>,
}

impl Graph {
    /// The graph as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bodies = |c: &Control| c.bodies.iter().map(Graph::to_bytes).collect::<Vec<_>>();
        let bodies: Vec<Vec<Vec<u8>>> = self.controls.iter().map(bodies).collect();
        let (graph, controls) = wire(self, &bodies);
        let mut payload = postcard::to_allocvec(&graph).expect("writing to memory cannot fail");
        payload.extend(postcard::to_allocvec(&controls).expect("writing to memory cannot fail"));
        let mut out = Vec::with_capacity(HEADER + payload.len());
        out.extend(GRAPH_MAGIC);
        out.extend(GRAPH_VERSION.0.to_le_bytes());
        out.extend(GRAPH_VERSION.1.to_le_bytes());
        out.extend((payload.len() as u64).to_le_bytes());
        out.extend(crc32fast::hash(&payload).to_le_bytes());
        out.extend(payload);
        out
    }
    /// Reads what [`Graph::to_bytes`] wrote. The graph is verified.
    ///
    /// # Errors
    /// Why the bytes are no graph.
    pub fn from_bytes(bytes: &[u8]) -> Result<Graph, WireError> {
        let graph = read(bytes, 0)?;
        graph.verify().map_err(WireError::Invalid)?;
        Ok(graph)
    }
}

fn read(bytes: &[u8], depth: usize) -> Result<Graph, WireError> {
    let malformed = |e: &dyn std::fmt::Display| WireError::Malformed(e.to_string());
    if depth > MAX_BODY_DEPTH {
        return Err(malformed(&format_args!("bodies nest deeper than {MAX_BODY_DEPTH}")));
    }
    let (payload, minor) = payload(bytes)?;
    let (stored, rest): (WireGraph<'_>, &[u8]) =
        postcard::take_from_bytes(payload).map_err(|e| malformed(&e))?;
    let controls = if minor == 0 {
        vec![]
    } else {
        let (WireControls(controls), _) = postcard::take_from_bytes(rest).map_err(|e| malformed(&e))?;
        controls
    };
    let (mut graph, dims) = unwire(stored).map_err(WireError::Malformed)?;
    for c in controls {
        let kind = match c.kind {
            WireKind::If => ControlKind::If,
            WireKind::Loop { carried, scanned, backward } => {
                ControlKind::Loop { carried: carried as usize, scanned: scanned as usize, backward }
            }
            WireKind::Read(elements) => {
                let dim = |i: u32| dims.get(i as usize).copied();
                let elements: Option<Vec<Dim>> = elements.into_iter().map(dim).collect();
                ControlKind::Read { elements: elements.ok_or_else(|| malformed(&"an element is no dim"))? }
            }
            WireKind::NonZero => ControlKind::NonZero,
            WireKind::Host { mnemonic, attrs } => ControlKind::Host(
                HostOp::from_parts(&mnemonic, &attrs)
                    .ok_or_else(|| malformed(&format_args!("`{mnemonic}` with these attributes is no op")))?,
            ),
        };
        let bodies = c.bodies.into_iter().map(|b| read(b, depth + 1)).collect::<Result<Vec<_>, _>>()?;
        let ids = |v: Vec<u32>| v.into_iter().map(ValueId).collect();
        let (inputs, outputs) = (ids(c.inputs), ids(c.outputs));
        graph.controls.push(Control { at: c.at, kind, inputs, outputs, bodies, name: c.name });
    }
    Ok(graph)
}

/// The payload and the minor version of its format.
fn payload(bytes: &[u8]) -> Result<(&[u8], u16), WireError> {
    let magic = &bytes[..bytes.len().min(4)];
    if magic != GRAPH_MAGIC {
        return Err(WireError::NotAGraph { found: String::from_utf8_lossy(magic).into_owned() });
    }
    let short = WireError::Length { needs: HEADER as u64, got: bytes.len() };
    let Some((header, payload)) = bytes.split_at_checked(HEADER) else { return Err(short) };
    let le = |at: usize, n: usize| header[at..at + n].iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
    let (major, minor) = (le(4, 2) as u16, le(6, 2) as u16);
    if major != GRAPH_VERSION.0 || minor > GRAPH_VERSION.1 {
        return Err(WireError::Version { major, minor });
    }
    let length = le(8, 8);
    if length != payload.len() as u64 {
        let needs = length.saturating_add(HEADER as u64);
        return Err(WireError::Length { needs, got: bytes.len() });
    }
    let (found, stated) = (crc32fast::hash(payload), le(16, 4) as u32);
    if found == stated { Ok((payload, minor)) } else { Err(WireError::Checksum { found, stated }) }
}

fn wire<'a>(g: &'a Graph, bodies: &'a [Vec<Vec<u8>>]) -> (WireGraph<'a>, WireControls<'a>) {
    let mut dims = DimWriter::new(&g.dims);
    let mut all = |s: &[Dim]| s.iter().map(|&d| dims.put(d)).collect::<Vec<u32>>();
    let checks = g.checks.iter().map(|c| {
        let ab = all(&c.cond.dims());
        let cond = match c.cond {
            CheckCond::Equal(..) => WireCond::Equal,
            CheckCond::EqualOrOne(..) => WireCond::EqualOrOne,
            CheckCond::Broadcast(..) => WireCond::Broadcast,
            CheckCond::AtMost(..) => WireCond::AtMost,
        };
        WireCheck { cond, a: ab[0], b: ab[1], what: c.what.clone() }
    });
    let checks = checks.collect();
    let values = g.values.iter().map(|v| WireValue {
        name: v.name.clone(),
        dtype: v.ty.dtype.name().into(),
        shape: all(&v.ty.shape),
        def: match v.def {
            ValueDef::Input(i) => WireDef::Input(i),
            ValueDef::Const(c) => WireDef::Const(c.0),
            ValueDef::Node(n) => WireDef::Node(n.0),
            ValueDef::Control(c, i) => WireDef::Control(c.0, i),
        },
    });
    let values = values.collect();
    let nodes = g.nodes.iter().map(|n| WireNode {
        op: n.op.mnemonic().into(),
        attrs: n.op.attrs().into_iter().map(|(name, a)| (name.to_string(), wire_attr(a, &mut all))).collect(),
        inputs: n.inputs.iter().map(|v| v.0).collect(),
        output: n.output.0,
        name: n.name.clone(),
    });
    let nodes = nodes.collect();
    let inputs = g.inputs.iter().map(|i| WireInput {
        name: i.name.clone(),
        value: i.value.0,
        elements: i.elements.as_deref().map(&mut all),
    });
    let inputs = inputs.collect();
    let controls = g.controls.iter().zip(bodies).map(|(c, bodies)| WireControl {
        at: c.at,
        kind: match &c.kind {
            ControlKind::If => WireKind::If,
            ControlKind::Loop { carried, scanned, backward } => WireKind::Loop {
                carried: *carried as u32,
                scanned: *scanned as u32,
                backward: backward.clone(),
            },
            ControlKind::Read { elements } => WireKind::Read(all(elements)),
            ControlKind::NonZero => WireKind::NonZero,
            ControlKind::Host(op) => WireKind::Host {
                mnemonic: op.mnemonic().into(),
                attrs: op.attrs().into_iter().map(|(n, v)| (n.into(), v)).collect(),
            },
        },
        inputs: c.inputs.iter().map(|v| v.0).collect(),
        outputs: c.outputs.iter().map(|v| v.0).collect(),
        bodies: bodies.iter().map(Vec::as_slice).collect(),
        name: c.name.clone(),
    });
    let controls = WireControls(controls.collect());
    let constants = g.constants.iter().map(|t| WireTensor {
        dtype: t.dtype().name().into(),
        shape: t.shape().iter().map(|&d| d as u64).collect(),
        data: t.bytes(),
    });
    let graph = WireGraph {
        name: g.name.clone(),
        checks,
        constants: constants.collect(),
        values,
        nodes,
        inputs,
        outputs: g.outputs.iter().map(|o| (o.name.clone(), o.value.0)).collect(),
        dims: dims.finish(),
    };
    (graph, controls)
}

fn wire_attr(a: Attr, dims: &mut impl FnMut(&[Dim]) -> Vec<u32>) -> WireAttr {
    match a {
        Attr::Bool(b) => WireAttr::Bool(b),
        Attr::Int(i) => WireAttr::Int(i),
        Attr::Float(x) => WireAttr::Float(x.to_bits()),
        Attr::Ints(v) => WireAttr::Ints(v),
        Attr::Dim(d) => WireAttr::Dim(dims(&[d])[0]),
        Attr::Dims(d) => WireAttr::Dims(dims(&d)),
        Attr::Word(w) => WireAttr::Word(w),
    }
}

/// The graph without its controls, and its stored dims.
fn unwire(w: WireGraph<'_>) -> Result<(Graph, Vec<Dim>), String> {
    let (table, dims) = w.dims.read()?;
    let mut g = Graph { name: w.name, dims: table, ..Graph::default() };
    let dim =
        |i: u32| dims.get(i as usize).copied().ok_or_else(|| format!("dim {i} of {} is used", dims.len()));
    let all = |v: Vec<u32>| v.into_iter().map(dim).collect::<Result<Vec<Dim>, String>>();
    let dtype = |name: &str| DType::from_name(name).ok_or_else(|| format!("there is no dtype {name:?}"));
    for c in w.checks {
        let (a, b) = (dim(c.a)?, dim(c.b)?);
        let cond = match c.cond {
            WireCond::Equal => CheckCond::Equal(a, b),
            WireCond::EqualOrOne => CheckCond::EqualOrOne(a, b),
            WireCond::Broadcast => CheckCond::Broadcast(a, b),
            WireCond::AtMost => CheckCond::AtMost(a, b),
        };
        g.checks.push(Check { cond, what: c.what });
        g.dims.assume(cond);
    }
    for t in w.constants {
        let shape: Result<Vec<usize>, _> = t.shape.iter().map(|&d| usize::try_from(d)).collect();
        let shape = shape.map_err(|e| e.to_string())?;
        // A constant of elements that holds none is one without data.
        let made = match t.data {
            [] if !shape.contains(&0) => Tensor::shape_only(dtype(&t.dtype)?, &shape),
            data => Tensor::from_bytes(dtype(&t.dtype)?, &shape, data),
        };
        g.constants.push(made.map_err(|e| e.to_string())?);
    }
    for v in w.values {
        let def = match v.def {
            WireDef::Input(i) => ValueDef::Input(i),
            WireDef::Const(i) => ValueDef::Const(ConstId(i)),
            WireDef::Node(i) => ValueDef::Node(NodeId(i)),
            WireDef::Control(c, i) => ValueDef::Control(ControlId(c), i),
        };
        let ty = TensorType { dtype: dtype(&v.dtype)?, shape: all(v.shape)? };
        g.values.push(Value { name: v.name, ty, def });
    }
    for n in w.nodes {
        let mut attrs = Vec::with_capacity(n.attrs.len());
        for (name, a) in n.attrs {
            attrs.push((name, unwire_attr(a, dim)?));
        }
        let mut used = 0;
        let op = Op::from_parts(&n.op, |name, kind| {
            let value = attrs.iter().find(|(n, _)| n == name)?.1.clone();
            used += 1;
            // A float that is no number of the text form is still a scalar.
            (kind_of(&value) == kind || kind == AttrKind::Scalar).then_some(value)
        });
        let op = match op {
            Some(Ok(op)) if used == attrs.len() => op,
            Some(Ok(op)) => {
                return Err(format!(
                    "`{}` has {} attributes, {used} of them known",
                    op.mnemonic(),
                    attrs.len()
                ));
            }
            Some(Err(bad)) => return Err(format!("`{}` needs `{}`: {}", n.op, bad.name, bad.kind)),
            None => return Err(format!("there is no op {:?}", n.op)),
        };
        let inputs = n.inputs.into_iter().map(ValueId).collect();
        g.nodes.push(Node { op, inputs, output: ValueId(n.output), name: n.name });
    }
    for i in w.inputs {
        let elements = i.elements.map(all).transpose()?;
        g.inputs.push(Input { name: i.name, value: ValueId(i.value), elements });
    }
    g.outputs = w.outputs.into_iter().map(|(name, v)| Output { name, value: ValueId(v) }).collect();
    Ok((g, dims))
}

fn unwire_attr(a: WireAttr, dim: impl Fn(u32) -> Result<Dim, String>) -> Result<Attr, String> {
    Ok(match a {
        WireAttr::Bool(b) => Attr::Bool(b),
        WireAttr::Int(i) => Attr::Int(i),
        WireAttr::Float(bits) => Attr::Float(f64::from_bits(bits)),
        WireAttr::Ints(v) => Attr::Ints(v),
        WireAttr::Dim(d) => Attr::Dim(dim(d)?),
        WireAttr::Dims(d) => Attr::Dims(d.into_iter().map(dim).collect::<Result<_, _>>()?),
        WireAttr::Word(w) => Attr::Word(w),
    })
}

fn kind_of(a: &Attr) -> AttrKind {
    match a {
        Attr::Bool(_) => AttrKind::Bool,
        Attr::Int(_) => AttrKind::Int,
        Attr::Float(_) => AttrKind::Float,
        Attr::Ints(_) => AttrKind::Ints,
        Attr::Dim(_) => AttrKind::Dim,
        Attr::Dims(_) => AttrKind::Dims,
        Attr::Word(_) => AttrKind::Word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;
    use crate::testing::controls::random_controls;
    use crate::testing::{Config, Rng, random_graph};

    fn reseal(bytes: &mut [u8]) {
        if bytes.len() >= HEADER {
            let n = (bytes.len() - HEADER) as u64;
            let crc = crc32fast::hash(&bytes[HEADER..]);
            bytes[8..16].copy_from_slice(&n.to_le_bytes());
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        }
    }

    #[test]
    fn random_graphs_round_trip() {
        for seed in 0..200 {
            let g = random_graph(seed, &Config::default()).graph;
            let bytes = g.to_bytes();
            let again = Graph::from_bytes(&bytes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(again.to_text(), g.to_text(), "seed {seed}");
            assert_eq!(again.to_bytes(), bytes, "seed {seed}");
        }
    }

    #[test]
    fn headers_are_checked() {
        let good = random_graph(1, &Config::default()).graph.to_bytes();
        let check = |edit: fn(&mut Vec<u8>), expect: &str| {
            let mut b = good.clone();
            edit(&mut b);
            let e = Graph::from_bytes(&b).unwrap_err().to_string();
            assert!(e.starts_with(expect), "{e}");
        };
        check(|b| b.clear(), "not a stored graph: it starts with \"\"");
        check(|b| b[0] = b'X', "not a stored graph: it starts with \"XVMG\"");
        check(|b| b.truncate(9), "a stored graph of 20 bytes has 9");
        check(|b| b[4] = 9, "the graph is stored in format 9.2, this version reads up to 1.2");
        check(|b| b.truncate(b.len() - 1), "a stored graph of ");
        check(|b| b[30] ^= 1, "the checksum is ");
        check(
            |b| {
                b.truncate(HEADER);
                reseal(b);
            },
            "malformed graph: ",
        );
    }

    /// Past the checksum, too: errors, never a panic or a large allocation; what is read verifies.
    #[test]
    fn mutants_never_panic() {
        let mut rng = Rng::new(3);
        let seeds: Vec<Vec<u8>> = (0..25)
            .map(|s| random_graph(s, &Config::default()).graph.to_bytes())
            .chain((0..5).map(|s| random_controls(s).to_bytes()))
            .filter(|b| b.len() < 8192)
            .collect();
        let (mut read, mut invalid) = (0, 0);
        for i in 0..5000 {
            let mut b = rng.pick(&seeds);
            for _ in 0..rng.int(1, 3) {
                let at = HEADER + rng.below(b.len() - HEADER);
                match rng.below(5) {
                    0 => b[at] = rng.bits() as u8,
                    1 => b[at] ^= 1 << rng.below(8),
                    2 => drop(b.remove(at)),
                    3 => b.insert(at, [0, 1, 0x7f, 0x80, 0xff][rng.below(5)]),
                    _ => b.truncate(at + 1),
                }
                if b.len() <= HEADER {
                    b.push(0);
                }
            }
            if i % 10 > 0 {
                reseal(&mut b);
            }
            match Graph::from_bytes(&b) {
                Ok(g) => {
                    read += 1;
                    assert!(Graph::from_bytes(&g.to_bytes()).is_ok());
                }
                Err(WireError::Invalid(_)) => invalid += 1,
                Err(_) => {}
            }
        }
        assert!(read > 50 && invalid > 30, "{read} mutants were graphs, {invalid} broke rules");
    }

    /// Every kind of attribute and a NaN with a payload.
    #[test]
    fn attributes_are_exact() {
        let mut g = Graph::new("g");
        let n = g.dims.constant(2);
        for value in
            [Scalar::Int(-3), Scalar::Float(f64::from_bits(0x7ff8_0000_0000_1234)), Scalar::Float(-0.0)]
        {
            g.push(Op::Fill { value, dtype: DType::F64, shape: vec![n] }, &[]).unwrap();
        }
        let again = Graph::from_bytes(&g.to_bytes()).unwrap();
        assert_eq!(again.nodes, g.nodes);
    }
}
