//! Control flow and shapes that depend on data.
//!
//! A [`Control`] sits between the nodes of a graph and is executed by the host: it picks a body, repeats one, or reads a
//! value that decides shapes. Everything between two controls stays an ordinary graph, so that it fuses as one. A body is a
//! graph of its own: it sees only its inputs, and *symbols*: a symbol of a body that the graph around it has too is that
//! symbol. What a control's results are called in shapes (a symbol that nothing bound before) is bound when it is executed.

use crate::{
    DType, Dim, DimTable, Graph, HostOp, Node, Op, Tensor, TensorType, Value, ValueDef, ValueId, entity,
};

entity!(
    /// A control of a graph.
    ControlId, "ctl");

/// Deepest nesting of bodies.
pub const MAX_BODY_DEPTH: usize = 32;
/// Most elements of a tensor that is read for use as sizes.
pub const MAX_READ_ELEMENTS: usize = 1024;

/// What a control does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Runs one of two bodies. Operands: the condition (a bool of one element), the inputs of the first body, which runs when
    /// it is true, then those of the second. Results: the body's outputs.
    If,
    /// Repeats a body. Operands: the number of iterations (i64), whether to begin (bool), `carried` initial values, `scanned`
    /// tensors, and values that every iteration gets. The body's inputs: the number of the iteration (i64), the last condition
    /// (bool), the carried values, one slice (along axis 0) of each scanned tensor, the others. Its outputs: whether to go on,
    /// the carried values, and the slices that are stacked. Results: the last carried values, then the stacked ones.
    Loop {
        /// Values that go from one iteration to the next.
        carried: usize,
        /// Tensors of which each iteration gets a slice. They must be as long as there are iterations.
        scanned: usize,
        /// Per scanned and then per stacked tensor, whether it is walked from its end.
        backward: Vec<bool>,
    },
    /// Reads an integer tensor of constant shape and binds one dim (a symbol) per element. No results.
    Read {
        /// The dims.
        elements: Vec<Dim>,
    },
    /// Indices of the elements that are not zero, `i64[rank, count]`, in row-major order.
    NonZero,
    /// An op that the host executes.
    Host(HostOp),
}

impl ControlKind {
    /// Name in the text form.
    #[must_use]
    pub const fn mnemonic(&self) -> &'static str {
        match self {
            ControlKind::If => "if",
            ControlKind::Loop { .. } => "loop",
            ControlKind::Read { .. } => "read",
            ControlKind::NonZero => "nonzero",
            ControlKind::Host(op) => op.mnemonic(),
        }
    }
    /// Number of bodies.
    #[must_use]
    pub const fn bodies(&self) -> usize {
        match self {
            ControlKind::If => 2,
            ControlKind::Loop { .. } => 1,
            ControlKind::Read { .. } | ControlKind::NonZero | ControlKind::Host(_) => 0,
        }
    }
}

/// A step of a graph that the host executes.
#[derive(Clone, Debug)]
pub struct Control {
    /// Number of nodes that come before it. Controls are in the order of this.
    pub at: u32,
    /// What it does.
    pub kind: ControlKind,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Bodies.
    pub bodies: Vec<Graph>,
    /// Name of the source node, for messages.
    pub name: Option<String>,
}

impl std::fmt::Display for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.mnemonic())?;
        self.name.as_ref().map_or(Ok(()), |n| write!(f, " {n:?}"))
    }
}

/// Bodies of a loop in terms of its operands and results.
#[derive(Clone, Copy, Debug)]
pub struct LoopParts {
    /// Carried values.
    pub carried: usize,
    /// Scanned tensors.
    pub scanned: usize,
    /// Stacked results.
    pub stacked: usize,
}

impl Control {
    /// Sizes of a loop; `None` for other controls and for loops whose parts do not add up.
    #[must_use]
    pub fn loop_parts(&self) -> Option<LoopParts> {
        let ControlKind::Loop { carried, scanned, .. } = self.kind else { return None };
        Some(LoopParts { carried, scanned, stacked: self.outputs.len().checked_sub(carried)? })
    }
    /// Whether scanned tensor `i` (or, from the number of scanned tensors on, a stacked result) is walked from its end.
    #[must_use]
    pub fn is_backward(&self, i: usize) -> bool {
        matches!(&self.kind, ControlKind::Loop { backward, .. } if backward.get(i) == Some(&true))
    }
    /// The operands that are the inputs of body `i`; for a loop those that every iteration gets as they are.
    #[must_use]
    pub fn captured(&self, i: usize) -> &[ValueId] {
        let (from, to) = match &self.kind {
            ControlKind::If => {
                let middle = 1 + self.bodies.first().map_or(0, |b| b.inputs.len());
                if i == 0 { (1, middle) } else { (middle, self.inputs.len()) }
            }
            ControlKind::Loop { carried, scanned, .. } => {
                (carried.saturating_add(*scanned).saturating_add(2), self.inputs.len())
            }
            _ => (0, 0),
        };
        self.inputs.get(from..to).unwrap_or_default()
    }
    /// Whether the host must ask a loop's body whether to go on.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.bodies.first().is_some_and(asks)
    }
}

impl Graph {
    /// Adds a control whose result types are known.
    pub fn push_control(
        &mut self,
        kind: ControlKind,
        inputs: &[ValueId],
        bodies: Vec<Graph>,
        results: &[TensorType],
        name: Option<String>,
    ) -> Vec<ValueId> {
        let id = ControlId::new(self.controls.len());
        let outputs: Vec<ValueId> = results
            .iter()
            .enumerate()
            .map(|(i, ty)| self.add_value(None, ty.clone(), ValueDef::Control(id, i as u32)))
            .collect();
        let at = self.nodes.len() as u32;
        let control = Control { at, kind, inputs: inputs.to_vec(), outputs: outputs.clone(), bodies, name };
        self.controls.push(control);
        outputs
    }
    /// The dim a value is the number of, where the graph makes it from dims: the host then knows it without computing it.
    #[must_use]
    pub fn scalar_dim(&self, v: ValueId) -> Option<Dim> {
        match self.def_node(v) {
            Some(Node { op: Op::Dims { values, .. }, .. }) if values.len() == 1 => Some(values[0]),
            _ => None,
        }
    }
    /// Nodes and controls in the order they are executed.
    pub fn sequence(&self) -> impl Iterator<Item = Item> + '_ {
        let mut next = 0;
        (0..=self.nodes.len()).flat_map(move |n| {
            let from = next;
            while self.controls.get(next).is_some_and(|c| c.at as usize <= n) {
                next += 1;
            }
            let node = (n < self.nodes.len()).then_some(Item::Node(n));
            (from..next).map(Item::Control).chain(node)
        })
    }
    /// All graphs: this one and all bodies, outermost first.
    pub fn visit(&self, f: &mut impl FnMut(&Graph)) {
        f(self);
        self.controls.iter().flat_map(|c| &c.bodies).for_each(|b| b.visit(f));
    }
    /// Every dim that values, ops, controls and checks mention.
    #[must_use]
    pub fn mentioned_dims(&self) -> Vec<Dim> {
        let mut used: Vec<Dim> =
            self.values.iter().flat_map(|v: &Value| v.ty.shape.iter().copied()).collect();
        for (_, attr) in self.nodes.iter().flat_map(|n| n.op.attrs()) {
            match attr {
                crate::Attr::Dim(d) => used.push(d),
                crate::Attr::Dims(d) => used.extend(d),
                _ => {}
            }
        }
        for c in &self.controls {
            if let ControlKind::Read { elements } = &c.kind {
                used.extend(elements);
            }
        }
        used.extend(self.checks.iter().flat_map(|c| c.cond.dims()));
        used.sort_unstable();
        used.dedup();
        used
    }
}

/// See [`Graph::sequence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Node by index.
    Node(usize),
    /// Control by index.
    Control(usize),
}

/// Indices of the elements of a tensor that are not zero, `i64[rank, count]`.
///
/// # Errors
/// When there are more than fit.
pub fn nonzero(t: &Tensor) -> Result<Tensor, crate::TensorError> {
    let size = t.dtype().size();
    // -0.0 is zero; a NaN is not.
    let is_set = |e: &[u8]| match t.dtype() {
        d if d.is_float() => {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(e);
            crate::Scalar::from_bits(u64::from_le_bytes(bits), d).as_f64() != 0.0
        }
        _ => e.iter().any(|&b| b != 0),
    };
    let found: Vec<usize> =
        t.bytes().chunks_exact(size).enumerate().filter(|(_, e)| is_set(e)).map(|(i, _)| i).collect();
    let rank = t.shape().len();
    let mut out = Vec::with_capacity(rank * found.len());
    for axis in 0..rank {
        let stride: usize = t.shape()[axis + 1..].iter().product();
        let extent = t.shape()[axis];
        out.extend(found.iter().map(|&i| (i / stride % extent) as i64));
    }
    Tensor::from_slice(&[rank, found.len()], &out)
}

/// Whether the host must ask a loop's body whether to go on: not when it always says so, or hands on what it got.
fn asks(body: &Graph) -> bool {
    let Some(go_on) = body.outputs.first().map(|o| o.value) else { return false };
    let handed_on = body.inputs.get(1).is_some_and(|i| i.value == go_on);
    let always =
        body.constant_of(go_on).is_some_and(|t| t.len() == 1 && t.has_data() && t.get(0).as_i64() != 0);
    !handed_on && !always
}

/// The type of a control's result `i` from its bodies and operands: dtype and rank; extents where all bodies agree on what
/// this table can express too.
///
/// # Errors
/// The rule that is broken.
pub fn result_type(
    kind: &ControlKind,
    bodies: &[Graph],
    operands: &[TensorType],
    i: usize,
    dims: &mut DimTable,
) -> Result<(DType, Vec<Option<Dim>>), String> {
    let output = |b: usize, o: usize| -> Result<(&Graph, &TensorType), String> {
        let body = bodies.get(b).ok_or_else(|| format!("body {b} is missing"))?;
        let v = body.outputs.get(o).ok_or_else(|| format!("body {b} has no output {o}"))?.value;
        let value = body.values.get(v.index()).ok_or_else(|| format!("body {b}: no value {v}"))?;
        Ok((body, &value.ty))
    };
    match kind {
        ControlKind::If => {
            let (g, a) = output(0, i)?;
            let (h, b) = output(1, i)?;
            if a.dtype != b.dtype || a.shape.len() != b.shape.len() {
                let (a, b) = (g.dims.display_type(a), h.dims.display_type(b));
                return Err(format!("result {i} is {a} in one branch and {b} in the other"));
            }
            let shape = a.shape.iter().zip(&b.shape).map(|(&x, &y)| {
                let (x, y) = (dims.import(&g.dims, x)?, dims.import(&h.dims, y)?);
                (x == y).then_some(x)
            });
            Ok((a.dtype, shape.collect()))
        }
        ControlKind::Loop { carried, .. } if i < *carried => {
            let (g, a) = output(0, 1 + i)?;
            let initial = operands.get(2 + i).ok_or("a carried value has no initial value")?;
            if initial.dtype != a.dtype || initial.shape.len() != a.shape.len() {
                let (a, b) = (g.dims.display_type(a), dims.display_type(initial));
                return Err(format!("carried value {i} begins as {b} and becomes {a}"));
            }
            let initial = initial.shape.clone();
            let shape = a.shape.iter().zip(initial).map(|(&x, y)| {
                let x = dims.import(&g.dims, x)?;
                (x == y).then_some(x)
            });
            Ok((a.dtype, shape.collect()))
        }
        ControlKind::Loop { .. } => {
            let (g, a) = output(0, 1 + i)?;
            // How many iterations there are is known to who makes the loop, if to anybody.
            let mut shape: Vec<Option<Dim>> = vec![None];
            shape.extend(a.shape.iter().map(|&x| dims.import(&g.dims, x)));
            Ok((a.dtype, shape))
        }
        ControlKind::NonZero => {
            let rank = operands.first().map_or(0, |t| t.shape.len());
            Ok((DType::I64, vec![Some(dims.constant(rank as i64)), None]))
        }
        ControlKind::Host(op) => op.result_type(operands, i, dims),
        ControlKind::Read { .. } => Err("it has no results".into()),
    }
}
