//! Binding: from the shapes of actual tensors to values of symbols.
//!
//! Declared dims are unified with actual extents: a plain symbol takes the extent, every other expression must come out
//! equal once all symbols are known (and is solved where it is linear in one symbol that nothing else binds). Then the
//! facts a graph left open are checked. Every refusal names the input, the axis, the declared dim and both values.

use crate::{Bindings, Check, DType, Dim, DimError, DimTable, DimValues, Graph, Plan, Tensor};

/// An input as declared.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Name.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Declared shape.
    pub shape: &'a [Dim],
    /// One dim per element, for an integer input whose elements are used as sizes.
    pub elements: Option<&'a [Dim]>,
}

/// An input as given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Element type.
    pub dtype: DType,
    /// Actual shape.
    pub shape: &'a [usize],
    /// Little-endian elements; read only where [`Declared::elements`] asks for them.
    pub bytes: &'a [u8],
}

impl<'a> From<&'a Tensor> for Given<'a> {
    fn from(t: &'a Tensor) -> Given<'a> {
        Given { dtype: t.dtype(), shape: t.shape(), bytes: t.bytes() }
    }
}

/// Tensors do not fit the declared inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An input was not given.
    #[error("input `{input}` is missing")]
    Missing {
        /// Its name.
        input: String,
    },
    /// A tensor was given for an input that does not exist.
    #[error("there is no input `{input}`; the inputs are {known}")]
    Unknown {
        /// The name given.
        input: String,
        /// Names that exist.
        known: String,
    },
    /// Two tensors were given for one input.
    #[error("input `{input}` is given twice")]
    Twice {
        /// Its name.
        input: String,
    },
    /// Wrong element type.
    #[error("input `{input}` is {declared}, got {given}")]
    DType {
        /// Input.
        input: String,
        /// As declared.
        declared: DType,
        /// As given.
        given: DType,
    },
    /// Wrong rank.
    #[error("input `{input}` has rank {declared} ({dims}), got shape {given:?}")]
    Rank {
        /// Input.
        input: String,
        /// Declared rank.
        declared: usize,
        /// Declared shape as text.
        dims: String,
        /// Actual shape.
        given: Vec<usize>,
    },
    /// An extent is not what the declared dim says.
    #[error("input `{input}`, axis {axis}: declared `{dim}`{expected}, got {given}")]
    Extent {
        /// Input.
        input: String,
        /// Axis.
        axis: usize,
        /// Declared dim.
        dim: String,
        /// ` = 7` and where that value comes from; empty for a constant.
        expected: String,
        /// Actual extent.
        given: usize,
    },
    /// An extent is outside the range assumed of its symbol.
    #[error("input `{input}`, axis {axis}: `{dim}` must be {range}, got {given}")]
    Range {
        /// Input.
        input: String,
        /// Axis (or element, where elements are bound).
        axis: usize,
        /// Declared dim.
        dim: String,
        /// Allowed values, as text.
        range: String,
        /// Actual value.
        given: i64,
    },
    /// An element used as a size is not what the dim says.
    #[error("input `{input}`, element {element}: declared `{dim}`{expected}, got {given}")]
    Element {
        /// Input.
        input: String,
        /// Flat index.
        element: usize,
        /// Declared dim.
        dim: String,
        /// ` = 7` and where that value comes from; empty for a constant.
        expected: String,
        /// Actual value.
        given: i64,
    },
    /// Elements are used as sizes but their number differs, or they are no integers.
    #[error("input `{input}`: its {declared} elements are used as sizes, got {given} of {dtype}")]
    Elements {
        /// Input.
        input: String,
        /// Elements declared.
        declared: usize,
        /// Elements given.
        given: usize,
        /// Dtype given.
        dtype: DType,
    },
    /// A declared dim has no value.
    #[error("input `{input}`, axis {axis}: {reason}")]
    Undefined {
        /// Input.
        input: String,
        /// Axis.
        axis: usize,
        /// Why.
        reason: DimError,
    },
    /// A fact the graph relies on does not hold.
    #[error("{what}: {fact} must hold, but {values}")]
    Check {
        /// Who asks.
        what: String,
        /// The fact, as text.
        fact: String,
        /// The two values, as text.
        values: String,
    },
    /// A fact the graph relies on has no value.
    #[error("{what}: {reason}")]
    CheckUndefined {
        /// Who asks.
        what: String,
        /// Why.
        reason: DimError,
    },
}

/// The inputs of a graph as declared.
pub fn graph_inputs(graph: &Graph) -> impl ExactSizeIterator<Item = Declared<'_>> + Clone {
    graph.inputs.iter().map(|i| Declared {
        name: &i.name,
        dtype: graph.dtype(i.value),
        shape: graph.shape(i.value),
        elements: i.elements.as_deref(),
    })
}

/// The inputs of a plan as declared.
pub fn plan_inputs(plan: &Plan) -> impl ExactSizeIterator<Item = Declared<'_>> + Clone {
    plan.inputs.iter().map(|i| Declared {
        name: &i.input.name,
        dtype: i.dtype,
        shape: &i.shape,
        elements: i.input.elements.as_deref(),
    })
}

/// Named tensors in the order of the declared inputs.
///
/// # Errors
/// A missing input, a name that is no input, a name given twice.
pub fn in_order<'a, T>(
    declared: impl ExactSizeIterator<Item = Declared<'a>> + Clone,
    given: &'a [(impl AsRef<str>, T)],
) -> Result<Vec<&'a T>, BindError> {
    let mut slots: Vec<Option<&T>> = vec![None; declared.len()];
    for (name, t) in given {
        let name = name.as_ref();
        let Some(i) = declared.clone().position(|d| d.name == name) else {
            let known = declared.map(|d| format!("`{}`", d.name)).collect::<Vec<_>>().join(", ");
            return Err(BindError::Unknown { input: name.into(), known });
        };
        if slots[i].replace(t).is_some() {
            return Err(BindError::Twice { input: name.into() });
        }
    }
    let missing = |d: Declared<'_>| BindError::Missing { input: d.name.to_string() };
    slots.into_iter().zip(declared).map(|(s, d)| s.ok_or_else(|| missing(d))).collect()
}

/// Binds the symbols of `inputs` and evaluates every dim of the table, then tests the `checks`. `bindings` and `values`
/// are overwritten; their memory is reused.
///
/// # Errors
/// Wrong dtype, rank or extent; one symbol with two values; a fact that does not hold.
pub fn bind<'a>(
    dims: &DimTable,
    checks: &[Check],
    inputs: impl Iterator<Item = (Declared<'a>, Given<'a>)> + Clone,
    bindings: &mut Bindings,
    values: &mut DimValues,
) -> Result<(), BindError> {
    bindings.clear();
    for (d, g) in inputs.clone() {
        if d.dtype != g.dtype {
            return Err(BindError::DType { input: d.name.into(), declared: d.dtype, given: g.dtype });
        }
        if d.shape.len() != g.shape.len() {
            let dims = d.shape.iter().map(|&x| dims.display(x).to_string()).collect::<Vec<_>>().join(", ");
            let (input, declared, given) = (d.name.into(), d.shape.len(), g.shape.to_vec());
            return Err(BindError::Rank { input, declared, dims: format!("[{dims}]"), given });
        }
        for p in pairs(&d, &g)? {
            let Some(s) = dims.as_symbol(p.dim) else { continue };
            if let Err(old) = bindings.bind(s, p.given) {
                return Err(mismatch(dims, &d, p, Some(old), inputs.clone()));
            }
        }
    }
    dims.eval_all(bindings, values);
    // Expressions: solve what no plain symbol bound, as long as that makes progress.
    for (d, g) in inputs.clone() {
        for p in pairs(&d, &g)? {
            while values.get(p.dim).is_none() && solve(dims, p, bindings) {
                dims.eval_all(bindings, values);
            }
        }
    }
    for (d, g) in inputs.clone() {
        for p in pairs(&d, &g)? {
            match values.get(p.dim) {
                Some(v) if v == p.given => {}
                None => {
                    let reason = dims.why_undefined(p.dim, values);
                    return Err(BindError::Undefined { input: d.name.into(), axis: p.place, reason });
                }
                v => return Err(mismatch(dims, &d, p, v, inputs.clone())),
            }
        }
    }
    checks.iter().try_for_each(|c| check(dims, c, values))?;
    // Ranges last: a check that narrowed one has already said who asks.
    for (d, g) in inputs {
        for p in pairs(&d, &g)?.filter(|p| dims.as_symbol(p.dim).is_some()) {
            let (lo, hi) = dims.range(p.dim);
            if !(lo..=hi).contains(&p.given.into()) {
                let range = match (i64::try_from(lo), i64::try_from(hi)) {
                    (Ok(_), Ok(_)) => format!("in {lo}..={hi}"),
                    (Ok(_), Err(_)) => format!("at least {lo}"),
                    _ => format!("at most {hi}"),
                };
                let dim = dims.display(p.dim).to_string();
                let (input, axis, given) = (d.name.into(), p.place, p.given);
                return Err(BindError::Range { input, axis, dim, range, given });
            }
        }
    }
    Ok(())
}

/// A declared dim and its actual value.
#[derive(Clone, Copy)]
struct Pair {
    /// Axis, or index of the element.
    place: usize,
    of_element: bool,
    dim: Dim,
    given: i64,
}

/// Every declared dim of an input with its value: the extents, then the elements where those are bound.
fn pairs<'a>(d: &Declared<'a>, g: &Given<'a>) -> Result<impl Iterator<Item = Pair> + use<'a>, BindError> {
    let elements = d.elements.unwrap_or(&[]);
    let size = d.dtype.size();
    if d.elements.is_some() && (!d.dtype.is_int() || g.bytes.len() / size != elements.len()) {
        return Err(BindError::Elements {
            input: d.name.into(),
            declared: elements.len(),
            given: g.bytes.len() / size,
            dtype: g.dtype,
        });
    }
    let (dtype, shape) = (d.dtype, g.shape);
    let extents = d.shape.iter().zip(shape).enumerate().map(|(place, (&dim, &n))| Pair {
        place,
        of_element: false,
        dim,
        given: i64::try_from(n).unwrap_or(i64::MAX),
    });
    let elements =
        elements.iter().zip(g.bytes.chunks_exact(size)).enumerate().map(move |(place, (&dim, le))| {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(le);
            let given = crate::Scalar::from_bits(u64::from_le_bytes(bits), dtype).as_i64();
            Pair { place, of_element: true, dim, given }
        });
    Ok(extents.chain(elements))
}

/// Binds the one unknown symbol of a linear expression so that the expression has its actual value.
fn solve(dims: &DimTable, p: Pair, bindings: &mut Bindings) -> bool {
    let Err(DimError::Unbound { symbol }) = dims.eval(p.dim, bindings) else { return false };
    let Some(s) = dims.find_symbol(&symbol) else { return false };
    let at = |v: i64| {
        let mut trial = bindings.clone();
        trial.bind(s, v).ok()?;
        dims.eval(p.dim, &trial).ok()
    };
    let (Some(f0), Some(f1)) = (at(0), at(1)) else { return false };
    let value = f1.checked_sub(f0).and_then(|slope| p.given.checked_sub(f0)?.checked_div(slope));
    match value.filter(|&v| v >= 0 && at(v) == Some(p.given)) {
        Some(v) => bindings.bind(s, v).is_ok(),
        None => false,
    }
}

#[cold]
fn mismatch<'a>(
    dims: &DimTable,
    d: &Declared<'a>,
    p: Pair,
    value: Option<i64>,
    inputs: impl Iterator<Item = (Declared<'a>, Given<'a>)>,
) -> BindError {
    let mut expected = String::new();
    if let (None, Some(v)) = (dims.as_const(p.dim), value) {
        expected = format!(" = {v}");
        let places = inputs.flat_map(|(d, _)| d.shape.iter().enumerate().map(move |(i, &x)| (d.name, i, x)));
        if let Some((name, axis, _)) = places.into_iter().find(|&(name, axis, x)| {
            x == p.dim && dims.as_symbol(x).is_some() && (name != d.name || axis != p.place)
        }) {
            expected += &format!(" (input `{name}`, axis {axis})");
        }
    }
    let (input, dim) = (d.name.to_string(), dims.display(p.dim).to_string());
    if p.of_element {
        BindError::Element { input, element: p.place, dim, expected, given: p.given }
    } else {
        BindError::Extent { input, axis: p.place, dim, expected, given: p.given as usize }
    }
}

fn check(dims: &DimTable, c: &Check, values: &DimValues) -> Result<(), BindError> {
    let [a, b] = c.cond.dims();
    match c.cond.holds(values) {
        Some(true) => return Ok(()),
        Some(false) => {}
        None => {
            let missing = if values.get(a).is_none() { a } else { b };
            let reason = dims.why_undefined(missing, values);
            return Err(BindError::CheckUndefined { what: c.what.clone(), reason });
        }
    }
    // A constant needs no "is".
    let known = |d| values.get(d).filter(|_| dims.as_const(d).is_none());
    let side = |d| known(d).map(|v| format!("`{}` is {v}", dims.display(d)));
    let values: Vec<String> = [side(a), side(b)].into_iter().flatten().collect();
    let fact = format!("`{}`", dims.display_cond(c.cond));
    Err(BindError::Check { what: c.what.clone(), fact, values: values.join(" and ") })
}
