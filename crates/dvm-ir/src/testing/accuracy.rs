//! Forward error analysis: how far a right implementation may be from the reference.
//!
//! Each value carries bounds of its elements and of their absolute error. An error of 0 means that every right
//! implementation gives these very bits (inputs, correctly rounded ops on such values, integers), so that ops that
//! jump (comparisons, rounding, casts to integers, argmax) may be applied; on other values they are refused, as is anything
//! that would overflow or amplify errors.

use crate::{BinaryOp, DType, Op, ReduceOp, UnaryOp};

/// Bounds of a value's elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// Absolute error, 0 when exact.
    pub(super) err: f64,
}

impl Bound {
    pub(super) fn exact(lo: f64, hi: f64) -> Bound {
        Bound { lo, hi, err: 0.0 }
    }
    fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }
    fn join(self, o: Bound) -> Bound {
        Bound { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi), err: self.err.max(o.err) }
    }
    /// Least absolute value.
    fn least(self) -> f64 {
        if self.lo > 0.0 {
            self.lo
        } else if self.hi < 0.0 {
            -self.hi
        } else {
            0.0
        }
    }
}

/// Unit roundoff.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1.2e-16,
        DType::F16 => 4.9e-4,
        DType::BF16 => 3.95e-3,
        _ => 6.0e-8,
    }
}

/// Unit roundoff inside an op.
fn inner(dtype: DType) -> f64 {
    unit(if dtype.is_half() { DType::F32 } else { dtype })
}

/// Bounds of the result of an op on operands with bounds; `None` where the op is not to be applied. `dtype` is the
/// operands' and `to` the result's; `n` is the largest number of elements that make one element of the result (the
/// extent of a reduction, the k of a product).
pub(super) fn result(op: &Op, args: &[Bound], dtype: DType, to: DType, n: f64) -> Option<Bound> {
    let b = if to.is_float() && dtype.is_float() {
        floats(op, args, dtype, to, n)?
    } else {
        exact_only(op, args, dtype, to, n)?
    };
    let limit = match to {
        d if !d.is_float() => f64::INFINITY,
        DType::BF16 | DType::F16 => 500.0,
        _ => 1e4,
    };
    let loss = if to.is_half() { 0.05 } else { 1e-3 };
    (b.lo <= b.hi && b.magnitude() <= limit && b.err <= loss * b.magnitude().max(1.0)).then_some(b)
}

/// Ops with integers or bool on one side: exact operands only.
fn exact_only(op: &Op, args: &[Bound], dtype: DType, to: DType, n: f64) -> Option<Bound> {
    if let Op::Select {} = op {
        return Some(args[1].join(args[2]));
    }
    let moves = matches!(
        op,
        Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Window { .. }
            | Op::Concat { .. }
            | Op::Gather { .. }
            | Op::GatherElements { .. }
    );
    if let Op::Unary(UnaryOp::IsFinite | UnaryOp::IsInf | UnaryOp::IsNan) = op {
        return Some(Bound::exact(0.0, 1.0));
    }
    if args.iter().any(|a| a.err > 0.0) {
        return None;
    }
    let (least, greatest) = match to {
        DType::Bool => (0.0, 1.0),
        _ => {
            let bits = 8 * to.size() as i32;
            if to.is_unsigned() {
                (0.0, 2f64.powi(bits))
            } else {
                (-2f64.powi(bits - 1), 2f64.powi(bits - 1))
            }
        }
    };
    // Wrapping: the bounds of the dtype, unless the true bounds fit.
    let fit = |lo: f64, hi: f64| {
        if lo >= least && hi < greatest { Bound::exact(lo, hi) } else { Bound::exact(least, greatest) }
    };
    let x = args.first().copied().unwrap_or(Bound::exact(0.0, 0.0));
    Some(match op {
        _ if moves => args.iter().copied().reduce(Bound::join)?,
        Op::Cast { to } if to.is_float() => {
            let slack = 1.0 + unit(*to);
            Bound::exact(x.lo * slack, x.hi * slack)
        }
        Op::Cast { .. } if dtype.is_float() => {
            Bound::exact(x.lo.clamp(least, greatest), x.hi.clamp(least, greatest))
        }
        Op::Cast { .. } | Op::Unary(UnaryOp::Copy) => fit(x.lo, x.hi),
        Op::Unary(UnaryOp::Neg) => fit(-x.hi, -x.lo),
        Op::Binary(b) if args.len() == 2 => {
            let y = args[1];
            match b {
                BinaryOp::Add => fit(x.lo + y.lo, x.hi + y.hi),
                BinaryOp::Sub => fit(x.lo - y.hi, x.hi - y.lo),
                BinaryOp::Max | BinaryOp::Min => x.join(y),
                // A zero divisor is an error.
                BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Fmod if y.least() == 0.0 => return None,
                BinaryOp::Rem if y.lo > 0.0 => Bound::exact(0.0, y.hi),
                BinaryOp::Rem => return None,
                _ => fit(least, greatest),
            }
        }
        Op::Reduce { op: ReduceOp::Sum, .. } | Op::CumSum { .. } => fit(n * x.lo.min(0.0), n * x.hi.max(0.0)),
        Op::ArgMax { .. } | Op::ArgMin { .. } => Bound::exact(0.0, n),
        _ => fit(least, greatest),
    })
}

fn floats(op: &Op, args: &[Bound], dtype: DType, to: DType, n: f64) -> Option<Bound> {
    let x = args.first().copied().unwrap_or(Bound::exact(0.0, 0.0));
    let all_exact = args.iter().all(|a| a.err == 0.0);
    let slack = |b: Bound| 1e-6 + b.magnitude() * 2.0 * unit(to);
    // A correctly rounded op: exact on exact operands, else the operands' error and two roundings that differ.
    let rounded = |lo: f64, hi: f64, err: f64| {
        let b = Bound { lo, hi, err };
        let s = slack(b);
        let err = if all_exact { 0.0 } else { err + 2.0 * unit(to) * b.magnitude() };
        Some(Bound { lo: lo - s, hi: hi + s, err })
    };
    // An op of a few ULP.
    let approximate = |lo: f64, hi: f64, err: f64| {
        let b = Bound { lo, hi, err };
        let s = slack(b);
        Some(Bound {
            lo: lo - s,
            hi: hi + s,
            err: err + (4.0 * inner(dtype) + 2.0 * unit(to)) * b.magnitude(),
        })
    };
    let approximately = |b: Bound, err: f64| approximate(b.lo, b.hi, err);
    let u = inner(dtype);
    // A block of up to 64 is summed in a chain: of equal elements each rounding may go the same way.
    let chain = u * (n.min(64.0) / 2.0).max(1.0);
    match op {
        Op::Unary(f) => match f {
            UnaryOp::Copy => Some(x),
            UnaryOp::Neg => Some(Bound { lo: -x.hi, hi: -x.lo, err: x.err }),
            UnaryOp::Abs => Some(Bound { lo: x.least(), hi: x.magnitude(), err: x.err }),
            UnaryOp::Sign if all_exact => Some(Bound::exact(-1.0, 1.0)),
            UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc if all_exact => {
                Some(Bound::exact(x.lo.floor(), x.hi.ceil()))
            }
            UnaryOp::Sqrt if x.lo > 0.1 => rounded(x.lo.sqrt(), x.hi.sqrt(), x.err / (2.0 * x.lo.sqrt())),
            UnaryOp::Rsqrt if x.lo > 0.1 => {
                approximate(1.0 / x.hi.sqrt(), 1.0 / x.lo.sqrt(), x.err / (2.0 * x.lo.powf(1.5)))
            }
            UnaryOp::Reciprocal if x.least() > 0.1 => {
                let top = 1.0 / x.least();
                rounded(-top, top, x.err * top * top)
            }
            UnaryOp::Exp if x.hi <= 6.0 => approximate(0.0, x.hi.exp(), x.hi.exp() * x.err),
            UnaryOp::Exp2 if x.hi <= 8.0 => approximate(0.0, x.hi.exp2(), x.hi.exp2() * x.err),
            UnaryOp::Expm1 if x.hi <= 6.0 => approximate(-1.0, x.hi.exp(), x.hi.exp() * x.err),
            UnaryOp::Ln | UnaryOp::Log2 if x.lo > 0.1 => {
                approximate(1.5 * x.lo.min(1.0).ln(), 1.5 * x.hi.max(1.0).ln(), 1.5 * x.err / x.lo)
            }
            UnaryOp::Log1p if x.lo > -0.5 => approximate(-1.0, x.hi.max(0.0).ln_1p(), 2.0 * x.err),
            UnaryOp::Sin | UnaryOp::Cos if x.magnitude() < 100.0 => approximate(-1.0, 1.0, x.err),
            UnaryOp::Tanh | UnaryOp::Erf => approximate(-1.0, 1.0, 1.2 * x.err),
            UnaryOp::Atan => approximate(-1.6, 1.6, x.err),
            UnaryOp::Sigmoid => approximate(0.0, 1.0, 0.25 * x.err),
            _ => None,
        },
        Op::Binary(f) => {
            let y = args[1];
            let corners = |g: fn(f64, f64) -> f64| {
                let all = [g(x.lo, y.lo), g(x.lo, y.hi), g(x.hi, y.lo), g(x.hi, y.hi)];
                (
                    all.into_iter().fold(f64::INFINITY, f64::min),
                    all.into_iter().fold(f64::NEG_INFINITY, f64::max),
                )
            };
            match f {
                BinaryOp::Add => rounded(x.lo + y.lo, x.hi + y.hi, x.err + y.err),
                BinaryOp::Sub => rounded(x.lo - y.hi, x.hi - y.lo, x.err + y.err),
                BinaryOp::Mul => {
                    let (lo, hi) = corners(|a, b| a * b);
                    rounded(lo, hi, x.err * y.magnitude() + y.err * x.magnitude() + x.err * y.err)
                }
                BinaryOp::Div if y.least() > 0.1 => {
                    let (lo, hi) = corners(|a, b| a / b);
                    rounded(lo, hi, (x.err + y.err * x.magnitude() / y.least()) / y.least())
                }
                BinaryOp::Max | BinaryOp::Min => Some(x.join(y)),
                BinaryOp::FloorDiv if all_exact && y.lo > 0.1 => {
                    let top = x.magnitude() / y.lo;
                    Some(Bound::exact(-top - 1.0, top + 1.0))
                }
                BinaryOp::Rem if all_exact && y.lo > 0.1 => Some(Bound::exact(-0.01, y.hi)),
                BinaryOp::Pow if x.lo > 0.4 && x.hi < 8.0 && y.magnitude() <= 3.0 => {
                    let top = x.hi.max(1.0 / x.lo).powf(y.magnitude());
                    approximate(0.0, top, 4.0 * top * (x.err / x.lo + y.err * top.ln()))
                }
                _ => None,
            }
        }
        Op::Fma {} => {
            let (y, z) = (args[1], args[2]);
            let top = x.magnitude() * y.magnitude() + z.magnitude();
            let err = x.err * y.magnitude() + y.err * x.magnitude() + z.err;
            // Halves are computed in f32 and rounded twice.
            if dtype.is_half() { approximate(-top, top, err) } else { rounded(-top, top, err) }
        }
        Op::Clamp {} => {
            let (lo, hi) = (args[1], args[2]);
            let top = hi.hi.max(lo.lo);
            let err = x.err.max(lo.err).max(hi.err);
            Some(Bound { lo: x.lo.max(lo.lo).min(hi.lo), hi: x.hi.max(lo.hi).min(top), err })
        }
        Op::Cast { .. } => rounded(x.lo, x.hi, x.err),
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Slice { .. }
        | Op::Window { .. }
        | Op::Concat { .. } => args.iter().copied().reduce(Bound::join),
        Op::Pad { .. } => Some(x.join(Bound::exact(0.0, 0.0))),
        Op::Gather { .. } | Op::GatherElements { .. } => Some(x),
        Op::Reduce { op, .. } => match op {
            ReduceOp::Max | ReduceOp::Min => Some(x),
            ReduceOp::Sum => {
                approximate(n * x.lo.min(0.0), n * x.hi.max(0.0), n * (x.err + chain * x.magnitude()))
            }
            ReduceOp::Mean => approximately(x, x.err + (4.0 * u + chain) * x.magnitude()),
            ReduceOp::L1 => approximate(0.0, n * x.magnitude(), n * (x.err + chain * x.magnitude())),
            ReduceOp::SumSquare => {
                let m = x.magnitude();
                approximate(0.0, n * m * m, n * (2.0 * m * x.err + (u + chain) * m * m))
            }
            ReduceOp::L2 => {
                let top = n.sqrt() * x.magnitude();
                approximate(0.0, top, n.sqrt() * x.err + n * u * top)
            }
            ReduceOp::LogSumExp if x.magnitude() < 50.0 => {
                let top = x.magnitude() + n.max(1.0).ln();
                approximate(-top, top, x.err + 4.0 * u * top)
            }
            ReduceOp::Prod if n <= 8.0 && x.magnitude() <= 2.5 => {
                let m = x.magnitude().max(1.0);
                let top = m.powf(n.max(1.0));
                approximate(-top, top, n * top * (x.err + u))
            }
            _ => None,
        },
        Op::CumSum { .. } => {
            approximate(n * x.lo.min(0.0), n * x.hi.max(0.0), n * (x.err + (u + unit(to)) * x.magnitude()))
        }
        Op::MatMul { .. } => {
            let y = args[1];
            let (p, q) = (x.magnitude(), y.magnitude());
            let top = n * p * q;
            approximate(-top, top, n * (x.err * q + y.err * p + u * p * q))
        }
        Op::Softmax { .. } => approximate(0.0, 1.0, 2.0 * x.err + 4.0 * u * x.magnitude()),
        Op::LogSoftmax { .. } => {
            let top = 2.0 * x.magnitude() + n.max(1.0).ln();
            approximate(-top, 0.1, 2.0 * x.err + 4.0 * u * top)
        }
        Op::LayerNorm { eps, .. } | Op::RmsNorm { eps, .. } => {
            let scale = args[1];
            let bias = args.get(2).copied().unwrap_or(Bound::exact(0.0, 0.0));
            let gain = 1.0 / eps.sqrt();
            let normal = n.max(1.0).sqrt().min(2.0 * x.magnitude() * gain);
            let err = 3.0 * gain * (x.err + 4.0 * u * x.magnitude());
            let top = normal * scale.magnitude() + bias.magnitude();
            approximate(-top, top, err * scale.magnitude() + normal * scale.err + bias.err)
        }
        Op::Gelu { .. } | Op::Silu {} => {
            approximate(-0.3, x.hi.max(0.1), 1.2 * x.err + 4.0 * u * x.magnitude())
        }
        _ => None,
    }
}
