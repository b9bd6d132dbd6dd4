//! Images made larger or smaller.
//!
//! Interpolation is one axis at a time: each output element is a weighted sum of a few input elements whose places are known when the
//! extents are. So an axis becomes gathers by constant indices, scaled and added, which fuse with each other.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, Tensor};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("CenterCropPad", 18, center_crop_pad),
    op!("Resize", 10, resize),
    op!("Upsample", 7, resize, "operator sets 7 to 9"),
];

/// Most elements a weighted sum has along an axis.
const MAX_TAPS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Nearest,
    Linear,
    Cubic,
}

/// How output places map to input places.
struct Rule {
    kind: Kind,
    coordinates: String,
    nearest: String,
    cubic: f64,
    antialias: bool,
    exclude_outside: bool,
    extrapolation: f64,
}

/// One axis: extents, scale, and the region of interest.
#[derive(Clone, Copy)]
struct Along {
    axis: usize,
    from: usize,
    to: usize,
    scale: f64,
    roi: (f64, f64),
}

/// Per tap, an index and a weight for each output element; and which elements lie outside.
struct Taps {
    index: Vec<Vec<i64>>,
    weight: Vec<Vec<f32>>,
    outside: Vec<bool>,
}

impl Rule {
    fn place(&self, a: &Along, x: f64) -> Result<f64, Fail> {
        let (from, out) = (a.from as f64, a.scale * a.from as f64);
        Ok(match self.coordinates.as_str() {
            "align_corners" if out == 1.0 => 0.0,
            "align_corners" => x * (from - 1.0) / (out - 1.0),
            "asymmetric" => x / a.scale,
            "tf_half_pixel_for_nn" => (x + 0.5) / a.scale,
            "tf_crop_and_resize" => {
                let span = (a.roi.1 - a.roi.0) * (from - 1.0);
                let within = if out == 1.0 { span / 2.0 } else { x * span / (out - 1.0) };
                within + a.roi.0 * (from - 1.0)
            }
            "pytorch_half_pixel" if out == 1.0 => -0.5,
            "half_pixel" | "pytorch_half_pixel" => (x + 0.5) / a.scale - 0.5,
            "half_pixel_symmetric" => {
                let offset = from / 2.0 * (1.0 - a.to as f64 / out);
                offset + (x + 0.5) / a.scale - 0.5
            }
            other => return invalid(format!("coordinate_transformation_mode \"{other}\"")),
        })
    }
    /// Weights of the elements around a place that is `ratio` (in (0, 1]) behind the one before it.
    fn weights(&self, ratio: f64, scale: f64) -> Result<Vec<f64>, Fail> {
        let a = self.cubic;
        let cubic = |x: f64| {
            let x = x.abs();
            if x <= 1.0 {
                (a + 2.0) * x * x * x - (a + 3.0) * x * x + 1.0
            } else if x < 2.0 {
                a * x * x * x - 5.0 * a * x * x + 8.0 * a * x - 4.0 * a
            } else {
                0.0
            }
        };
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        let spread = |reach: f64| ((-reach / scale).floor() as i64 + 1, scale);
        let raw: Vec<f64> = match self.kind {
            Kind::Nearest => {
                let right = match self.nearest.as_str() {
                    _ if ratio >= 1.0 => true,
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "floor" => false,
                    "ceil" => true,
                    other => return invalid(format!("nearest_mode \"{other}\"")),
                };
                vec![f64::from(u8::from(!right)), f64::from(u8::from(right))]
            }
            Kind::Linear => {
                let (start, s) = spread(1.0);
                (start..2 - start).map(|i| (1.0 - ((i as f64 - ratio) * s).abs()).clamp(0.0, 1.0)).collect()
            }
            Kind::Cubic => {
                let (start, s) = spread(2.0);
                (start..2 - start).map(|i| cubic((i as f64 - ratio) * s)).collect()
            }
        };
        if raw.len() > MAX_TAPS {
            return unsupported(format!("{} elements under one", raw.len()));
        }
        let sum: f64 = raw.iter().sum();
        Ok(if self.antialias { raw.iter().map(|w| w / sum).collect() } else { raw })
    }
    fn taps(&self, a: &Along) -> Result<Taps, Fail> {
        let mut t = Taps { index: vec![], weight: vec![], outside: vec![] };
        for x in 0..a.to {
            let at = self.place(a, x as f64)?;
            if !at.is_finite() {
                return invalid(format!("a scale of {}", a.scale));
            }
            let whole = at.floor() == at;
            let ratio = if whole { 1.0 } else { at - at.floor() };
            let mut weights = self.weights(ratio, a.scale)?;
            let n = weights.len() as i64;
            let first = at.floor() as i64 - i64::from(whole) - n / 2 + 1;
            let inside = |i: i64| (0..a.from as i64).contains(&i);
            if self.exclude_outside {
                for (k, w) in weights.iter_mut().enumerate() {
                    if !inside(first + k as i64) {
                        *w = 0.0;
                    }
                }
                let sum: f64 = weights.iter().sum();
                weights.iter_mut().for_each(|w| *w /= sum);
            }
            t.index.resize(weights.len(), vec![]);
            t.weight.resize(weights.len(), vec![]);
            for (k, w) in weights.into_iter().enumerate() {
                t.index[k].push((first + k as i64).clamp(0, a.from as i64 - 1));
                t.weight[k].push(w as f32);
            }
            let crop = self.coordinates == "tf_crop_and_resize";
            t.outside.push(crop && !(0.0..=(a.from - 1) as f64).contains(&at));
        }
        Ok(t)
    }
}

fn numbers(c: &mut Cx<'_, '_>, v: V) -> Result<Vec<f64>, Fail> {
    let t = c.const_tensor(v)?;
    Ok((0..t.len()).map(|i| t.get(i).as_f64()).collect())
}

fn resize(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let old = c.node.op_type.as_deref() == Some("Upsample") || c.opset < 11;
    let rule = Rule {
        kind: match c.string("mode")?.unwrap_or("nearest") {
            "nearest" => Kind::Nearest,
            "linear" | "bilinear" | "trilinear" => Kind::Linear,
            "cubic" | "bicubic" => Kind::Cubic,
            other => return invalid(format!("mode \"{other}\"")),
        },
        coordinates: if old {
            "asymmetric".into()
        } else {
            c.string("coordinate_transformation_mode")?.unwrap_or("half_pixel").into()
        },
        nearest: if old {
            "floor".into()
        } else {
            c.string("nearest_mode")?.unwrap_or("round_prefer_floor").into()
        },
        cubic: c.float_or("cubic_coeff_a", -0.75)?,
        antialias: c.flag("antialias", false)?,
        exclude_outside: c.flag("exclude_outside", false)?,
        extrapolation: c.float_or("extrapolation_value", 0.0)?,
    };
    let rank = c.rank(x);
    let axes: Vec<usize> = match c.ints("axes")? {
        Some(a) => a.iter().map(|&a| c.axis(a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    let given = |c: &mut Cx<'_, '_>, i: usize| -> Result<Option<V>, Fail> {
        // An empty tensor is an omitted operand.
        Ok(c.opt(i).filter(|&v| c.shape(v) != [Dim::ZERO]))
    };
    let (roi, scales, sizes) =
        if old { (None, given(c, 1)?, None) } else { (given(c, 1)?, given(c, 2)?, given(c, 3)?) };
    let shape = c.shape(x);
    let mut froms = vec![];
    // Axes that stay may have any extent.
    let scales = match (scales, sizes) {
        (Some(s), _) => Some(numbers(c, s)?),
        (None, None) => c.floats("scales")?.map(|s| s.into_iter().map(f64::from).collect()),
        _ => None,
    };
    let sizes = match (&scales, sizes) {
        (None, Some(s)) => Some(c.elems(s)?),
        _ => None,
    };
    let count = scales.as_ref().map(Vec::len).or(sizes.as_ref().map(Vec::len));
    if count != Some(axes.len()) {
        return invalid(format!("{count:?} scales or sizes for {} axes", axes.len()));
    }
    let roi = match roi {
        Some(r) if rule.coordinates == "tf_crop_and_resize" => Some(numbers(c, r)?),
        _ => None,
    };
    for (k, &axis) in axes.iter().enumerate() {
        let stays = match (&scales, &sizes) {
            (Some(s), _) => s[k] == 1.0 && roi.is_none(),
            (_, Some(s)) => s[k] == shape[axis] && roi.is_none(),
            _ => false,
        };
        if !stays {
            froms.push((k, axis));
        }
    }
    let mut along = vec![];
    for &(k, axis) in &froms {
        let known = |c: &mut Cx<'_, '_>, d: Dim| match c.dims().as_const(d).map(usize::try_from) {
            Some(Ok(n)) => Ok(n),
            Some(Err(_)) => invalid("a negative extent"),
            None => Err(c.imp.undecided_by(&[d])),
        };
        let from = known(c, shape[axis])?;
        let (to, scale) = match (&scales, &sizes) {
            (Some(s), _) if s[k] > 0.0 => ((from as f64 * s[k]).floor() as usize, s[k]),
            (Some(s), _) => return invalid(format!("a scale of {}", s[k])),
            (None, Some(s)) => {
                let to = known(c, s[k])?;
                (to, to as f64 / from as f64)
            }
            _ => return invalid("no scales"),
        };
        let n = axes.len();
        let roi = match &roi {
            Some(r) if r.len() == 2 * n => (r[k], r[n + k]),
            Some(r) => return invalid(format!("a region of {} numbers", r.len())),
            None => (0.0, 1.0),
        };
        if from == 0 && to > 0 {
            return invalid("an empty axis cannot grow");
        }
        along.push(Along { axis, from, to, scale, roi });
    }
    if sizes.is_some() {
        let pick = match c.string("keep_aspect_ratio_policy")?.unwrap_or("stretch") {
            "stretch" => None,
            "not_larger" => along.iter().map(|a| a.scale).reduce(f64::min),
            "not_smaller" => along.iter().map(|a| a.scale).reduce(f64::max),
            other => return invalid(format!("keep_aspect_ratio_policy \"{other}\"")),
        };
        if let Some(scale) = pick {
            for a in &mut along {
                a.scale = scale;
                a.to = (scale * a.from as f64 + 0.5).floor() as usize;
            }
        }
    }
    interpolate(c, x, &rule, &along)
}

fn interpolate(c: &mut Cx<'_, '_>, x: V, rule: &Rule, along: &[Along]) -> Outs {
    let (dtype, rank) = (c.dtype(x), c.rank(x));
    // Sums of halves and integers are made in f32.
    let wide = if rule.kind == Kind::Nearest || dtype == DType::F64 { dtype } else { DType::F32 };
    let mut y = c.cast(x, wide)?;
    let mut outside: Option<V> = None;
    for a in along {
        if a.to == 0 {
            let zero = Dim::ZERO;
            y = c.slice_axis(y, a.axis, zero, zero)?;
            continue;
        }
        let taps = rule.taps(a)?;
        let mut sum: Option<V> = None;
        for (index, weight) in taps.index.iter().zip(&taps.weight) {
            if weight.iter().all(|&w| w == 0.0) {
                continue;
            }
            let index = if rule.kind == Kind::Nearest {
                // One of the two elements has all the weight.
                let pick = |x: usize| taps.index[usize::from(taps.weight[1][x] == 1.0)][x];
                (0..a.to).map(pick).collect()
            } else {
                index.clone()
            };
            let index = c.imp.constant(Tensor::from_slice(&[a.to], &index)?);
            let mut part = c.push(Op::Gather { axis: a.axis }, &[y, index])?;
            if rule.kind == Kind::Nearest {
                sum = Some(part);
                break;
            }
            if weight.iter().any(|&w| w != 1.0) {
                let w = c.imp.constant(Tensor::from_slice(&[a.to], weight)?);
                let w = c.place_at(w, a.axis, rank)?;
                let w = c.cast(w, wide)?;
                part = c.mul(part, w)?;
            }
            sum = Some(match sum {
                Some(s) => c.add(s, part)?,
                None => part,
            });
        }
        let Some(sum) = sum else { return invalid("no weights") };
        y = sum;
        if taps.outside.iter().any(|&o| o) {
            let o = c.imp.constant(Tensor::from_bools(&[a.to], &taps.outside)?);
            let o = c.place_at(o, a.axis, rank)?;
            outside = Some(match outside {
                Some(all) => c.binary(B::Or, all, o)?,
                None => o,
            });
        }
    }
    if let Some(o) = outside {
        let value = c.scalar(wide, rule.extrapolation);
        y = c.select(o, value, y)?;
    }
    Ok(vec![c.cast(y, dtype)?])
}

/// Cuts or pads axes on both sides; the odd element is behind.
fn center_crop_pad(c: &mut Cx<'_, '_>) -> Outs {
    let (x, target) = (c.input(0)?, c.input(1)?);
    let rank = c.rank(x);
    let axes: Vec<usize> = match c.ints("axes")? {
        Some(a) => a.iter().map(|&a| c.axis(a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    let target = c.elems(target)?;
    if target.len() != axes.len() {
        return invalid(format!("{} extents for {} axes", target.len(), axes.len()));
    }
    let shape = c.shape(x);
    let (mut before, mut after) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    for (&axis, &to) in axes.iter().zip(&target) {
        let dims = c.dims();
        let two = dims.constant(2);
        let more = dims.sub(to, shape[axis]);
        let less = dims.neg(more);
        // Halves towards zero.
        let (up, down) = (dims.max(more, Dim::ZERO), dims.max(less, Dim::ZERO));
        let (up, down) = (dims.floor_div(up, two), dims.floor_div(down, two));
        before[axis] = dims.sub(up, down);
        after[axis] = dims.sub(more, before[axis]);
    }
    let zero = if c.dtype(x).is_float() { dvm_ir::Scalar::Float(0.0) } else { dvm_ir::Scalar::Int(0) };
    Ok(vec![c.push(Op::Pad { before, after, mode: dvm_ir::PadMode::Constant, value: zero }, &[x])?])
}
