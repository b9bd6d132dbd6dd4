//! RNN, GRU and LSTM as loops over time.
//!
//! What needs no state, the product of the input and its weights, is computed for all steps at once before the loop. A short
//! sequence of known length becomes a straight line instead, which fuses with what is around it.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, Scalar, Tensor, UnaryOp as U};

use super::{OpRow, op};
use crate::body::{BodyOuts, Loop};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("GRU", 7, |c| recurrent(c, Kind::Gru)),
    op!("LSTM", 7, |c| recurrent(c, Kind::Lstm)),
    op!("RNN", 7, |c| recurrent(c, Kind::Rnn)),
];

/// Longest sequence that is unrolled.
const MAX_UNROLLED: i64 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(self) -> i64 {
        match self {
            Kind::Rnn => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }
    fn defaults(self) -> &'static [&'static str] {
        match self {
            Kind::Rnn => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
    /// Position of the operand after the initial states, and number of states.
    fn states(self) -> usize {
        if self == Kind::Lstm { 2 } else { 1 }
    }
}

/// An activation with its numbers.
#[derive(Clone)]
struct Act {
    name: String,
    alpha: f64,
    beta: f64,
}

impl Act {
    fn apply(&self, c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.as_str() {
            "sigmoid" => c.unary(U::Sigmoid, x),
            "tanh" => c.unary(U::Tanh, x),
            "relu" => c.with(B::Max, x, 0.0),
            "affine" => {
                let y = c.with(B::Mul, x, alpha)?;
                c.with(B::Add, y, beta)
            }
            "leakyrelu" => {
                let low = c.with(B::Mul, x, alpha)?;
                let positive = c.with(B::Ge, x, 0.0)?;
                c.select(positive, x, low)
            }
            "thresholdedrelu" => {
                let above = c.with(B::Gt, x, alpha)?;
                let zero = c.scalar(c.dtype(x), 0.0);
                c.select(above, x, zero)
            }
            "scaledtanh" => {
                let y = c.with(B::Mul, x, beta)?;
                let y = c.unary(U::Tanh, y)?;
                c.with(B::Mul, y, alpha)
            }
            "hardsigmoid" => {
                let y = c.with(B::Mul, x, alpha)?;
                let y = c.with(B::Add, y, beta)?;
                let (lo, hi) = (c.scalar(c.dtype(x), 0.0), c.scalar(c.dtype(x), 1.0));
                c.push(Op::Clamp {}, &[y, lo, hi])
            }
            "elu" => {
                let y = c.unary(U::Expm1, x)?;
                let y = c.with(B::Mul, y, alpha)?;
                let positive = c.with(B::Ge, x, 0.0)?;
                c.select(positive, x, y)
            }
            "softsign" => {
                let y = c.unary(U::Abs, x)?;
                let y = c.with(B::Add, y, 1.0)?;
                c.div(x, y)
            }
            "softplus" => {
                // max(x, 0) + ln(1 + e^-|x|) does not overflow.
                let y = c.unary(U::Abs, x)?;
                let y = c.unary(U::Neg, y)?;
                let y = c.unary(U::Exp, y)?;
                let y = c.unary(U::Log1p, y)?;
                let positive = c.with(B::Max, x, 0.0)?;
                c.add(positive, y)
            }
            other => unsupported(format!("activation \"{other}\"")),
        }
    }
}

/// The activations of all directions.
fn activations(c: &Cx<'_, '_>, kind: Kind, directions: usize) -> Result<Vec<Act>, Fail> {
    let names = c.strings("activations")?;
    let names: Vec<String> = match names {
        Some(n) => n,
        None => kind
            .defaults()
            .iter()
            .cycle()
            .take(kind.defaults().len() * directions)
            .map(|s| (*s).into())
            .collect(),
    };
    if names.len() != kind.defaults().len() * directions {
        return invalid(format!("{} activations for {directions} direction(s)", names.len()));
    }
    let (alphas, betas) = (c.floats("activation_alpha")?, c.floats("activation_beta")?);
    let mut alphas = alphas.unwrap_or_default().into_iter();
    let mut betas = betas.unwrap_or_default().into_iter();
    // Numbers are used up in order by the functions that have any.
    let act = |n: &String| {
        let name = n.to_lowercase();
        let (alpha, beta) = match name.as_str() {
            "affine" => (Some(1.0), Some(0.0)),
            "leakyrelu" => (Some(0.01), None),
            "thresholdedrelu" | "elu" => (Some(1.0), None),
            "scaledtanh" => (Some(1.0), Some(1.0)),
            "hardsigmoid" => (Some(0.2), Some(0.5)),
            _ => (None, None),
        };
        let alpha = alpha.map_or(0.0, |d| alphas.next().map_or(d, f64::from));
        let beta = beta.map_or(0.0, |d| betas.next().map_or(d, f64::from));
        Act { name, alpha, beta }
    };
    Ok(names.iter().map(act).collect())
}

/// What one direction of one op does at every step.
#[derive(Clone)]
struct Cell {
    kind: Kind,
    hidden: Dim,
    acts: Vec<Act>,
    clip: Option<f64>,
    input_forget: bool,
    linear_before_reset: bool,
    /// R, `[gates * hidden, hidden]`.
    recurrence: V,
    /// Of the hidden gate of a GRU, where it is added inside the reset: `[hidden]`.
    hidden_bias: Option<V>,
    /// `[hidden]` each: input, output, forget.
    peepholes: Option<[V; 3]>,
}

impl Cell {
    fn clipped(&self, c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
        let Some(clip) = self.clip else { return Ok(x) };
        let (lo, hi) = (c.scalar(c.dtype(x), -clip), c.scalar(c.dtype(x), clip));
        c.push(Op::Clamp {}, &[x, lo, hi])
    }
    fn gate(&self, c: &mut Cx<'_, '_>, x: V, i: i64) -> Result<V, Fail> {
        let n = c.num(i);
        let start = c.dims().mul(n, self.hidden);
        let axis = c.rank(x) - 1;
        c.slice_axis(x, axis, start, self.hidden)
    }
    fn act(&self, c: &mut Cx<'_, '_>, i: usize, x: V) -> Result<V, Fail> {
        let x = self.clipped(c, x)?;
        self.acts[i].apply(c, x)
    }
    /// New states (the hidden one first) from `x`, the input's part of the gates, `[batch, gates * hidden]`.
    fn step(&self, c: &mut Cx<'_, '_>, x: V, states: &[V]) -> Result<Vec<V>, Fail> {
        let h = states[0];
        match self.kind {
            Kind::Rnn => {
                let r = c.matmul(h, self.recurrence, false, true)?;
                let sum = c.add(x, r)?;
                Ok(vec![self.act(c, 0, sum)?])
            }
            Kind::Gru => {
                let two = c.num(2);
                let (zr, rest) = (c.dims().mul(two, self.hidden), self.hidden);
                let r_zr = c.slice_axis(self.recurrence, 0, Dim::ZERO, zr)?;
                let r_h = c.slice_axis(self.recurrence, 0, zr, rest)?;
                let hidden = c.matmul(h, r_zr, false, true)?;
                let x_zr = c.slice_axis(x, 1, Dim::ZERO, zr)?;
                let gates = c.add(x_zr, hidden)?;
                let (z, r) = (self.gate(c, gates, 0)?, self.gate(c, gates, 1)?);
                let (z, r) = (self.act(c, 0, z)?, self.act(c, 0, r)?);
                let x_h = c.slice_axis(x, 1, zr, rest)?;
                let inner = if self.linear_before_reset {
                    let mut p = c.matmul(h, r_h, false, true)?;
                    if let Some(b) = self.hidden_bias {
                        p = c.add(p, b)?;
                    }
                    c.mul(r, p)?
                } else {
                    let p = c.mul(r, h)?;
                    c.matmul(p, r_h, false, true)?
                };
                let sum = c.add(x_h, inner)?;
                let new = self.act(c, 1, sum)?;
                // (1 - z) * new + z * h
                let difference = c.sub(h, new)?;
                let part = c.mul(z, difference)?;
                Ok(vec![c.add(new, part)?])
            }
            Kind::Lstm => {
                let cell = states[1];
                let r = c.matmul(h, self.recurrence, false, true)?;
                let gates = c.add(x, r)?;
                let peep = |c: &mut Cx<'_, '_>, x: V, p: usize, cell: V| match self.peepholes {
                    Some(all) => {
                        let part = c.mul(all[p], cell)?;
                        c.add(x, part)
                    }
                    None => Ok(x),
                };
                let i = self.gate(c, gates, 0)?;
                let i = peep(c, i, 0, cell)?;
                let i = self.act(c, 0, i)?;
                let f = if self.input_forget {
                    let one = c.scalar(c.dtype(i), 1.0);
                    c.sub(one, i)?
                } else {
                    let f = self.gate(c, gates, 2)?;
                    let f = peep(c, f, 2, cell)?;
                    self.act(c, 0, f)?
                };
                let g = self.gate(c, gates, 3)?;
                let g = self.act(c, 1, g)?;
                let (kept, added) = (c.mul(f, cell)?, c.mul(i, g)?);
                let cell = c.add(kept, added)?;
                let o = self.gate(c, gates, 1)?;
                let o = peep(c, o, 1, cell)?;
                let o = self.act(c, 0, o)?;
                let shown = self.acts[2].apply(c, cell)?;
                Ok(vec![c.mul(o, shown)?, cell])
            }
        }
    }
    /// A step of a sequence that may be over: then the states stay and the output is 0. `left` is `bool[batch, 1]`.
    fn masked(&self, c: &mut Cx<'_, '_>, x: V, states: &[V], left: Option<V>) -> Result<(Vec<V>, V), Fail> {
        let new = self.step(c, x, states)?;
        let Some(left) = left else {
            let y = new[0];
            return Ok((new, y));
        };
        let kept =
            new.iter().zip(states).map(|(&n, &s)| c.select(left, n, s)).collect::<Result<Vec<_>, _>>()?;
        let zero = c.scalar(c.dtype(new[0]), 0.0);
        let y = c.select(left, new[0], zero)?;
        Ok((kept, y))
    }
}

/// Element `d` of axis 0, without the axis.
fn direction(c: &mut Cx<'_, '_>, v: V, d: usize) -> Result<V, Fail> {
    let at = c.num(d as i64);
    let part = c.slice_axis(v, 0, at, Dim::ONE)?;
    let shape = c.shape(part)[1..].to_vec();
    c.reshape(part, shape)
}

fn recurrent(c: &mut Cx<'_, '_>, kind: Kind) -> Outs {
    let (x, w, r) = (c.input(0)?, c.input(1)?, c.input(2)?);
    for (v, rank) in [(x, 3), (w, 3), (r, 3)] {
        if c.rank(v) != rank {
            return invalid(format!("an operand has rank {}, not {rank}", c.rank(v)));
        }
    }
    let backward: &[bool] = match c.string("direction")?.unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return invalid(format!("direction \"{other}\"")),
    };
    let layout = c.flag("layout", false)?;
    let acts = activations(c, kind, backward.len())?;
    let per = kind.defaults().len();
    let clip = c.float("clip")?.filter(|&x| x > 0.0);
    let (input_forget, linear_before_reset) =
        (c.flag("input_forget", false)?, c.flag("linear_before_reset", false)?);
    let x = if layout { c.transpose(x, vec![1, 0, 2])? } else { x };
    let (length, batch, hidden) = (c.shape(x)[0], c.shape(x)[1], c.shape(r)[2]);
    let mut parts: Vec<Vec<V>> = vec![];
    for (d, &back) in backward.iter().enumerate() {
        let r = direction(c, r, d)?;
        let w = direction(c, w, d)?;
        let gates = c.num(kind.gates());
        let width = c.dims().mul(gates, hidden);
        let mut hidden_bias = None;
        let mut projected = c.matmul(x, w, false, true)?;
        if let Some(b) = c.opt(3) {
            let b = direction(c, b, d)?;
            let (wb, mut rb) = (c.slice_axis(b, 0, Dim::ZERO, width)?, c.slice_axis(b, 0, width, width)?);
            if kind == Kind::Gru && linear_before_reset {
                let two = c.num(2);
                let before = c.dims().mul(two, hidden);
                hidden_bias = Some(c.slice_axis(rb, 0, before, hidden)?);
                let gates = c.slice_axis(rb, 0, Dim::ZERO, before)?;
                let none = c.fill(c.dtype(rb), Scalar::Float(0.0), vec![hidden])?;
                rb = c.push(Op::Concat { axis: 0 }, &[gates, none])?;
            }
            let bias = c.add(wb, rb)?;
            projected = c.add(projected, bias)?;
        }
        let peepholes = match c.opt(7).filter(|_| kind == Kind::Lstm) {
            Some(p) => {
                let p = direction(c, p, d)?;
                let mut at = |i: i64| {
                    let n = c.num(i);
                    let start = c.dims().mul(n, hidden);
                    c.slice_axis(p, 0, start, hidden)
                };
                Some([at(0)?, at(1)?, at(2)?])
            }
            None => None,
        };
        let acts = acts[d * per..(d + 1) * per].to_vec();
        let cell = Cell {
            kind,
            hidden,
            acts,
            clip,
            input_forget,
            linear_before_reset,
            recurrence: r,
            hidden_bias,
            peepholes,
        };
        let mut states = vec![];
        for s in 0..kind.states() {
            states.push(match c.opt(5 + s) {
                Some(v) => {
                    // With batches first, [batch, directions, hidden].
                    let v = if layout { c.transpose(v, vec![1, 0, 2])? } else { v };
                    direction(c, v, d)?
                }
                None => c.fill(c.dtype(x), Scalar::Float(0.0), vec![batch, hidden])?,
            });
        }
        let lengths = c.opt(4);
        parts.push(walk(c, &cell, projected, states, lengths, length, back)?);
    }
    join(c, &parts, layout)
}

/// Runs one direction: the outputs of all steps `[length, batch, hidden]`, then the last states.
fn walk(
    c: &mut Cx<'_, '_>,
    cell: &Cell,
    projected: V,
    mut states: Vec<V>,
    lengths: Option<V>,
    length: Dim,
    back: bool,
) -> Result<Vec<V>, Fail> {
    let lengths = match lengths {
        Some(l) => {
            let l = c.fold_cast(l, DType::I64)?;
            let batch = c.shape(l)[0];
            Some(c.reshape(l, vec![batch, Dim::ONE])?)
        }
        None => None,
    };
    if let Some(n) = c.dims().as_const(length).filter(|&n| (1..=MAX_UNROLLED).contains(&n)) {
        let mut ys = vec![];
        let order: Vec<i64> = if back { (0..n).rev().collect() } else { (0..n).collect() };
        for t in order {
            let x = direction(c, projected, t as usize)?;
            let left = match lengths {
                Some(l) => Some(c.with(B::Gt, l, t as f64)?),
                None => None,
            };
            let (new, y) = cell.masked(c, x, &states, left)?;
            states = new;
            let mut shape = c.shape(y);
            shape.insert(0, Dim::ONE);
            ys.push(c.reshape(y, shape)?);
        }
        if back {
            ys.reverse();
        }
        let y = if ys.len() == 1 { ys[0] } else { c.push(Op::Concat { axis: 0 }, &ys)? };
        return Ok(std::iter::once(y).chain(states).collect());
    }
    let trips = c.imp.of_nd(DType::I64, Nd::scalar(length));
    let begin = c.imp.constant(Tensor::scalar(DType::Bool, Scalar::Int(1)));
    let mut scanned = vec![projected];
    if lengths.is_some() {
        scanned.push(c.iota(length, DType::I64)?);
    }
    let name = c.label();
    let backward = vec![back; scanned.len() + 1];
    let l = Loop { name: &name, trips, begin, carried: states, scanned, backward };
    let outs = c.imp.repeat(&l, &mut |imp, args| {
        let mut c = Cx::bare(imp);
        let left = match (lengths, args.slices.get(1)) {
            (Some(l), Some(&t)) => Some(c.binary(B::Gt, l, t)?),
            _ => None,
        };
        let (carried, y) = cell.masked(&mut c, args.slices[0], &args.carried, left)?;
        Ok(BodyOuts { go_on: args.condition, carried, stacked: vec![y] })
    })?;
    let (states, y) = outs.split_at(outs.len() - 1);
    Ok(y.iter().chain(states).copied().collect())
}

/// Directions beside each other: Y, then the last states.
fn join(c: &mut Cx<'_, '_>, parts: &[Vec<V>], layout: bool) -> Outs {
    let mut outs = vec![];
    for i in 0..parts[0].len() {
        // Y has time before directions.
        let axis = usize::from(i == 0);
        let mut own = vec![];
        for p in parts {
            let mut shape = c.shape(p[i]);
            shape.insert(axis, Dim::ONE);
            own.push(c.reshape(p[i], shape)?);
        }
        let v = if own.len() == 1 { own[0] } else { c.push(Op::Concat { axis }, &own)? };
        outs.push(match (layout, i) {
            (false, _) => v,
            // [batch, time, directions, hidden], [batch, directions, hidden].
            (true, 0) => c.transpose(v, vec![2, 0, 1, 3])?,
            (true, _) => c.transpose(v, vec![1, 0, 2])?,
        });
    }
    Ok(outs)
}
