//! Binding: from the shapes of actual tensors to values of symbols.
//!
//! Declared dims are unified with actual extents: a plain symbol takes the extent, every other expression must come out
//! equal once all symbols are known (and is solved where it is linear in one symbol that nothing else binds). Then the
//! facts a graph left open are checked. Every refusal names the input, the axis, the declared dim and both values.

use crate::dim::Symbol;
use crate::{
    Bindings, Check, Control, ControlKind, DType, Dim, DimError, DimTable, DimValues, Graph, Plan, Tensor,
    TensorType,
};

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
    /// What a control made is not what the graph declares.
    #[error("{what}: result {result} is {given}, declared {declared}{values}")]
    Result {
        /// The control.
        what: String,
        /// Position of the result.
        result: usize,
        /// Type it has.
        given: String,
        /// Declared type.
        declared: String,
        /// ` = [2, 3]`, where the declared extents have values.
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
    unify(dims, inputs.clone(), bindings, values)?;
    test(dims, checks, values)?;
    inputs.clone().try_for_each(|(d, g)| ranges(dims, &d, &g))
}

/// Tests facts for these values.
///
/// # Errors
/// The first that does not hold.
pub fn test(dims: &DimTable, checks: &[Check], values: &DimValues) -> Result<(), BindError> {
    checks.iter().try_for_each(|c| check(dims, c, values))
}

/// Binds the symbols of `inputs` beside those bound already, and evaluates every dim.
fn unify<'a>(
    dims: &DimTable,
    inputs: impl Iterator<Item = (Declared<'a>, Given<'a>)> + Clone,
    bindings: &mut Bindings,
    values: &mut DimValues,
) -> Result<(), BindError> {
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
    Ok(())
}

/// Tests the ranges of symbols, after the checks: one that narrowed a range has then said who asks.
fn ranges(dims: &DimTable, d: &Declared<'_>, g: &Given<'_>) -> Result<(), BindError> {
    for p in pairs(d, g)?.filter(|p| dims.as_symbol(p.dim).is_some()) {
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
    let said = dims.say_cond(c.cond);
    let mut values: Vec<String> = [side(a), side(b)].into_iter().flatten().collect();
    if said.contains(" % ") {
        // What remains of a division says less than what is divided.
        let symbols = dims.symbols_in([a, b]).into_iter().filter_map(|s| dims.symbol_dim(s));
        values = symbols.filter_map(side).collect();
    }
    let fact = format!("`{said}`");
    Err(BindError::Check { what: c.what.clone(), fact, values: values.join(" and ") })
}

/// The dims of one execution of a graph with controls: bound from its inputs, then by one control after the other.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Symbols bound so far.
    pub bindings: Bindings,
    /// Dims that have a value so far.
    pub values: DimValues,
    /// Checks that could not be made yet.
    pending: Vec<u32>,
}

impl Frame {
    /// Binds what the graph around it knows (`seeds`) and what the inputs tell. Earlier content is overwritten, its memory
    /// reused. Checks that need what a control binds wait.
    ///
    /// # Errors
    /// As [`bind`].
    pub fn open<'a>(
        &mut self,
        graph: &Graph,
        seeds: impl IntoIterator<Item = (Symbol, i64)>,
        inputs: impl Iterator<Item = (Declared<'a>, Given<'a>)> + Clone,
    ) -> Result<(), BindError> {
        self.bindings.clear();
        for (s, v) in seeds {
            // Two symbols of one table: never bound before.
            let _ = self.bindings.bind(s, v);
        }
        unify(&graph.dims, inputs.clone(), &mut self.bindings, &mut self.values)?;
        self.pending.clear();
        self.pending.extend(0..graph.checks.len() as u32);
        self.checks(graph)?;
        inputs.clone().try_for_each(|(d, g)| ranges(&graph.dims, &d, &g))?;
        if graph.controls.is_empty() { self.close(graph) } else { Ok(()) }
    }
    /// Takes the results of a control (for a read: the tensor) and binds what they tell.
    ///
    /// # Errors
    /// A result that is not what the graph declares; a check that fails.
    pub fn define(&mut self, graph: &Graph, c: &Control, results: &[&Tensor]) -> Result<(), BindError> {
        let dims = &graph.dims;
        let mut fresh = vec![];
        if let ControlKind::Read { elements } = &c.kind {
            let of = results.first().filter(|t| t.len() == elements.len());
            for (i, &d) in of.iter().flat_map(|_| elements.iter().enumerate()) {
                fresh.push((d, results[0].get(i).as_i64()));
            }
        } else {
            for (&v, t) in c.outputs.iter().zip(results) {
                fresh.extend(graph.shape(v).iter().zip(t.shape()).map(|(&d, &n)| (d, n as i64)));
            }
        }
        for &(d, n) in &fresh {
            if let Some(s) = dims.as_symbol(d).filter(|&s| self.bindings.get(s).is_none()) {
                // Not bound before.
                let _ = self.bindings.bind(s, n);
            }
        }
        dims.eval_all(&self.bindings, &mut self.values);
        let wrong = |result: usize, declared: String, given: String, values: String| {
            let what = c.to_string();
            Err(BindError::Result { what, result, given, declared, values })
        };
        if let ControlKind::Read { elements } = &c.kind {
            for (i, &(d, n)) in fresh.iter().enumerate() {
                if self.values.get(d) != Some(n) {
                    return wrong(i, dims.display(d).to_string(), n.to_string(), String::new());
                }
            }
            if fresh.len() != elements.len() {
                let given = results.first().map_or(0, |t| t.len());
                return wrong(0, format!("{} elements", elements.len()), given.to_string(), String::new());
            }
        }
        for (i, (&v, t)) in c.outputs.iter().zip(results).enumerate() {
            let ty = &graph.value(v).ty;
            let is = |(&d, &n): (&Dim, &usize)| self.values.get(d) == i64::try_from(n).ok();
            let fits = ty.dtype == t.dtype()
                && ty.shape.len() == t.shape().len()
                && ty.shape.iter().zip(t.shape()).all(is);
            if !fits {
                let values: Option<Vec<i64>> = ty.shape.iter().map(|&d| self.values.get(d)).collect();
                let values = values.map_or(String::new(), |v| format!(" = {v:?}"));
                let given = format!("{}{:?}", t.dtype(), t.shape());
                return wrong(i, dims.display_type(ty).to_string(), given, values);
            }
        }
        self.checks(graph)?;
        for &(d, n) in &fresh {
            let (lo, hi) = dims.range(d);
            if !(lo..=hi).contains(&n.into()) {
                let declared = format!("`{}` in {lo}..={hi}", dims.display(d));
                return wrong(0, declared, n.to_string(), String::new());
            }
        }
        Ok(())
    }
    /// The shape of a slice of which none was made: what is known of the stacked tensor's type, 0 where nothing is.
    #[must_use]
    pub fn row(&self, stacked: &TensorType) -> Vec<usize> {
        let extent = |&d: &Dim| self.values.extent(d).map_or(0, |n| usize::try_from(n).unwrap_or(0));
        stacked.shape.iter().skip(1).map(extent).collect()
    }
    /// After the last control: no check may be left.
    ///
    /// # Errors
    /// A check whose dims have no value.
    pub fn close(&mut self, graph: &Graph) -> Result<(), BindError> {
        let left = self.pending.first().and_then(|&i| graph.checks.get(i as usize));
        left.map_or(Ok(()), |c| check(&graph.dims, c, &self.values))
    }
    /// Makes the checks whose dims have values.
    fn checks(&mut self, graph: &Graph) -> Result<(), BindError> {
        let values = &self.values;
        let mut failed = Ok(());
        self.pending.retain(|&i| {
            let c = &graph.checks[i as usize];
            if failed.is_err() || c.cond.dims().iter().any(|&d| values.get(d).is_none()) {
                return true;
            }
            failed = check(&graph.dims, c, values);
            false
        });
        failed
    }
}

/// Values of a body's symbols that the graph around it knows.
pub fn inherited<'a>(
    outer: &'a DimTable,
    bindings: &'a Bindings,
    body: &'a DimTable,
) -> impl Iterator<Item = (Symbol, i64)> + 'a {
    body.symbols().filter_map(|(s, name)| Some((s, bindings.get(outer.find_symbol(name)?)?)))
}
