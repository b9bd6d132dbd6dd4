//! Convolution and pooling, made of sliding-window views.

use dvm_ir::{BinaryOp as B, CheckCond, DType, Dim, Op, PadMode, ReduceOp as R, Scalar, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid};
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("AveragePool", 7, average_pool),
    op!("Conv", 1, conv),
    op!("ConvInteger", 10, conv_integer),
    op!("ConvTranspose", 1, conv_transpose),
    op!("GlobalAveragePool", 1, |c| global_pool(c, R::Mean)),
    op!("GlobalLpPool", 2, global_lp_pool),
    op!("GlobalMaxPool", 1, |c| global_pool(c, R::Max)),
    op!("LpPool", 2, lp_pool),
    op!("MaxPool", 8, max_pool),
];

/// How windows lie along one spatial axis.
#[derive(Clone, Copy)]
struct Axis {
    size: i64,
    stride: i64,
    dilation: i64,
    before: Dim,
    after: Dim,
    /// Further padding that only rounding up asks for; averages never count it.
    extra: Dim,
    count: Dim,
}

/// Windows of every spatial axis, from the attributes.
fn windows(c: &mut Cx<'_, '_>, x: V, kernel: &[i64]) -> Result<Vec<Axis>, Fail> {
    let shape = c.shape(x);
    let n = kernel.len();
    if shape.len() != n + 2 {
        return invalid(format!("rank {} for {n} spatial axes", shape.len()));
    }
    let strides = c.ints("strides")?.unwrap_or_else(|| vec![1; n]);
    let dilations = c.ints("dilations")?.unwrap_or_else(|| vec![1; n]);
    let pads = c.ints("pads")?.unwrap_or_else(|| vec![0; 2 * n]);
    let auto = c.string("auto_pad")?.unwrap_or("NOTSET");
    let ceil = c.flag("ceil_mode", false)?;
    if strides.len() != n || dilations.len() != n || pads.len() != 2 * n {
        return invalid(format!("strides {strides:?}, dilations {dilations:?}, pads {pads:?} for {n} axes"));
    }
    let all = kernel.iter().chain(&strides).chain(&dilations);
    if let Some(bad) = all.clone().find(|k| !(1..=1 << 31).contains(*k)) {
        return invalid(format!("{bad} as a kernel extent, stride or dilation"));
    }
    if pads.iter().any(|p| !(-(1 << 31)..=1 << 31).contains(p)) {
        return invalid(format!("pads {pads:?}"));
    }
    let mut axes = vec![];
    for i in 0..n {
        let extent = shape[i + 2];
        let (size, stride, dilation) = (kernel[i], strides[i], dilations[i]);
        let span = c.num((size - 1) * dilation + 1);
        let step = c.num(stride);
        let (mut before, mut after) = (c.num(pads[i]), c.num(pads[n + i]));
        let dims = c.dims();
        match auto {
            "NOTSET" => {}
            "VALID" => (before, after) = (Dim::ZERO, Dim::ZERO),
            "SAME_UPPER" | "SAME_LOWER" => {
                let count = dims.ceil_div(extent, step);
                let last = dims.sub(count, Dim::ONE);
                let reach = dims.mul(last, step);
                let reach = dims.add(reach, span);
                let total = dims.sub(reach, extent);
                let total = dims.max(total, Dim::ZERO);
                let two = dims.constant(2);
                let less = dims.floor_div(total, two);
                let more = dims.sub(total, less);
                (before, after) = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
            }
            other => return invalid(format!("auto_pad \"{other}\"")),
        }
        let padded = dims.add(extent, before);
        let padded = dims.add(padded, after);
        // A window larger than what it slides over is a mistake, not an empty result.
        c.assume(CheckCond::AtMost(span, padded), &format!("the kernel fits padded axis {}", i + 2))?;
        let dims = c.dims();
        let free = dims.sub(padded, span);
        let mut count =
            if ceil && auto == "NOTSET" { dims.ceil_div(free, step) } else { dims.floor_div(free, step) };
        count = dims.add(count, Dim::ONE);
        let mut extra = Dim::ZERO;
        if ceil && auto == "NOTSET" {
            // A window that would start in the padding after the data is dropped.
            let last = dims.sub(count, Dim::ONE);
            let start = dims.mul(last, step);
            let limit = dims.add(extent, before);
            let inside = dims.lt(start, limit);
            let dropped = dims.not(inside);
            count = dims.sub(count, dropped);
            let last = dims.sub(count, Dim::ONE);
            let reach = dims.mul(last, step);
            let reach = dims.add(reach, span);
            let lack = dims.sub(reach, padded);
            extra = dims.max(lack, Dim::ZERO);
        }
        count = dims.max(count, Dim::ZERO);
        axes.push(Axis { size, stride, dilation, before, after, extra, count });
    }
    Ok(axes)
}

/// Pads the last axes and opens windows on them: `[.., count, size, count, size]` for each spatial axis from `first` on.
fn open(
    c: &mut Cx<'_, '_>,
    x: V,
    first: usize,
    axes: &[Axis],
    pad: Scalar,
    with_extra: bool,
) -> Result<V, Fail> {
    let rank = c.rank(x);
    let (mut before, mut after) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    for (i, a) in axes.iter().enumerate() {
        before[first + i] = a.before;
        after[first + i] = if with_extra { c.dims().add(a.after, a.extra) } else { a.after };
    }
    let mut y = x;
    if before.iter().chain(&after).any(|&p| p != Dim::ZERO) {
        y = c.push(Op::Pad { before, after, mode: PadMode::Constant, value: pad }, &[x])?;
    }
    for (i, a) in axes.iter().enumerate() {
        if (a.size, a.stride) == (1, 1) {
            let mut shape = c.shape(y);
            shape.insert(first + 2 * i + 1, Dim::ONE);
            y = c.reshape(y, shape)?;
            continue;
        }
        let size = c.num(a.size);
        let op =
            Op::Window { axis: first + 2 * i, count: a.count, size, stride: a.stride, dilation: a.dilation };
        y = c.push(op, &[y])?;
    }
    Ok(y)
}

fn kernel_shape(c: &mut Cx<'_, '_>) -> Result<Vec<i64>, Fail> {
    match c.ints("kernel_shape")? {
        Some(k) if !k.is_empty() && k.len() <= 6 => Ok(k),
        k => invalid(format!("kernel_shape {k:?}")),
    }
}

fn conv(c: &mut Cx<'_, '_>) -> Outs {
    let (x, w, bias) = (c.input(0)?, c.input(1)?, c.opt(2));
    Ok(vec![c.convolution(x, w, bias)?])
}

/// Operands less their zero points, in i32.
fn conv_integer(c: &mut Cx<'_, '_>) -> Outs {
    let (x, w, zx, zw) = (c.input(0)?, c.input(1)?, c.opt(2), c.opt(3));
    let (x, w) = (c.less_zero(x, zx, None)?, c.less_zero(w, zw, Some(0))?);
    Ok(vec![c.convolution(x, w, None)?])
}

impl Cx<'_, '_> {
    /// `x - zero` in i32; a zero point per element of an axis is a vector.
    pub(super) fn less_zero(&mut self, x: V, zero: Option<V>, axis: Option<usize>) -> Result<V, Fail> {
        let rank = self.rank(x);
        let x = self.cast(x, DType::I32)?;
        let Some(z) = zero else { return Ok(x) };
        let z = self.cast(z, DType::I32)?;
        let z = match (self.shape(z)[..].len(), axis) {
            (0, _) => z,
            (1, _) if self.shape(z)[0] == Dim::ONE => self.reshape(z, vec![])?,
            (1, Some(axis)) => self.place_at(z, axis, rank)?,
            _ => z,
        };
        self.sub(x, z)
    }
    /// The node's convolution of `x` with the kernels `w`.
    pub(super) fn convolution(&mut self, x: V, w: V, bias: Option<V>) -> Result<V, Fail> {
        let kernel = kernel_extents(self, w)?;
        if self.ints("kernel_shape")?.is_some_and(|k| k != kernel) {
            return invalid("kernel_shape is not the shape of the kernel");
        }
        let axes = windows(self, x, &kernel)?;
        convolve(self, x, w, &axes, bias)
    }
}

/// Constant spatial extents of kernels.
fn kernel_extents(c: &mut Cx<'_, '_>, w: V) -> Result<Vec<i64>, Fail> {
    let ws = c.shape(w);
    if !(3..=8).contains(&ws.len()) {
        return invalid(format!("a kernel of rank {}", ws.len()));
    }
    let kernel: Option<Vec<i64>> = ws[2..].iter().map(|&d| c.dims().as_const(d)).collect();
    kernel.ok_or_else(|| c.imp.undecided_by(&ws))
}

/// Every element of the data times the kernel, added where they overlap: a convolution with the kernel turned round, of data that zeros
/// keep `strides` apart.
fn conv_transpose(c: &mut Cx<'_, '_>) -> Outs {
    let (x, w, bias) = (c.input(0)?, c.input(1)?, c.opt(2));
    let kernel = kernel_extents(c, w)?;
    let n = kernel.len();
    let (xs, ws) = (c.shape(x), c.shape(w));
    if xs.len() != n + 2 {
        return invalid(format!("rank {} for {n} spatial axes", xs.len()));
    }
    let list = |c: &Cx<'_, '_>, name: &str, len: usize, default: i64| -> Result<Vec<i64>, Fail> {
        let v = c.ints(name)?.unwrap_or_else(|| vec![default; len]);
        if v.len() != len || v.iter().any(|x| !(-(1 << 31)..=1 << 31).contains(x)) {
            return invalid(format!("{name} {v:?} for {n} axes"));
        }
        Ok(v)
    };
    let (strides, dilations) = (list(c, "strides", n, 1)?, list(c, "dilations", n, 1)?);
    let (pads, extra) = (list(c, "pads", 2 * n, 0)?, list(c, "output_padding", n, 0)?);
    if strides.iter().chain(&dilations).chain(&kernel).any(|&x| x < 1) {
        return invalid(format!("strides {strides:?}, dilations {dilations:?}, kernel {kernel:?}"));
    }
    let outputs = match c.ints("output_shape")? {
        // Some writers give the batch and the channels, too.
        Some(s) if s.len() == n || s.len() == n + 2 => Some(s[s.len() - n..].to_vec()),
        Some(s) if !s.is_empty() => return invalid(format!("output_shape {s:?}")),
        _ => None,
    };
    let auto = c.string("auto_pad")?.unwrap_or("NOTSET");
    let (mut axes, mut spread) = (vec![], x);
    for i in 0..n {
        let (s, k, d, extent) = (strides[i], kernel[i], dilations[i], xs[i + 2]);
        let reach = (k - 1) * d;
        let (step, tail) = (c.num(s), c.num(reach + 1 + extra[i] - s));
        let dims = c.dims();
        let grown = dims.mul(extent, step);
        // The extent without padding.
        let full = dims.add(grown, tail);
        let wanted = match (&outputs, auto) {
            (Some(o), _) => Some(dims.constant(o[i])),
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(grown),
            _ => None,
        };
        let (begin, count) = match wanted {
            Some(out) => {
                let total = dims.sub(full, out);
                let total = dims.max(total, Dim::ZERO);
                let two = dims.constant(2);
                let less = dims.floor_div(total, two);
                let more = dims.sub(total, less);
                (if auto == "SAME_UPPER" { less } else { more }, out)
            }
            None if auto == "VALID" => (Dim::ZERO, full),
            None => {
                let both = dims.constant(pads[i] + pads[n + i]);
                (dims.constant(pads[i]), dims.sub(full, both))
            }
        };
        c.assume(CheckCond::AtMost(Dim::ZERO, count), &format!("output axis {} is not negative", i + 2))?;
        if s > 1 {
            // Zeros behind every element.
            let mut wide = c.shape(spread);
            let rank = wide.len();
            wide.insert(i + 3, Dim::ONE);
            let y = c.reshape(spread, wide)?;
            let (before, mut after) = (vec![Dim::ZERO; rank + 1], vec![Dim::ZERO; rank + 1]);
            after[i + 3] = c.num(s - 1);
            let zero = if c.dtype(x).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
            let y = c.push(Op::Pad { before, after, mode: PadMode::Constant, value: zero }, &[y])?;
            let mut flat = c.shape(spread);
            flat[i + 2] = grown;
            spread = c.reshape(y, flat)?;
        }
        // As many windows as there are outputs.
        let reach = c.num(reach);
        let dims = c.dims();
        let before = dims.sub(reach, begin);
        let covered = dims.add(count, reach);
        let there = dims.add(grown, before);
        let after = dims.sub(covered, there);
        axes.push(Axis { size: k, stride: 1, dilation: d, before, after, extra: Dim::ZERO, count });
    }
    let group = c.int_or("group", 1)?;
    if group < 1 {
        return invalid(format!("group = {group}"));
    }
    let g = c.num(group);
    let dims = c.dims();
    let (inner, outer) = (dims.floor_div(ws[0], g), dims.mul(ws[1], g));
    let (start, step): (Vec<Dim>, Vec<i64>) = (0..n + 2)
        .map(|a| if a < 2 { (Dim::ZERO, 1) } else { (dims.constant(kernel[a - 2] - 1), -1) })
        .unzip();
    let turned = c.push(Op::Slice { start, len: ws.clone(), step }, &[w])?;
    let turned = c.reshape(turned, [&[g, inner], &ws[1..]].concat())?;
    let perm = [0, 2, 1].into_iter().chain(3..n + 3).collect();
    let turned = c.transpose(turned, perm)?;
    let turned = c.reshape(turned, [&[outer, inner], &ws[2..]].concat())?;
    Ok(vec![convolve(c, spread, turned, &axes, bias)?])
}

/// Sums over windows, one for each kernel.
fn convolve(c: &mut Cx<'_, '_>, x: V, w: V, axes: &[Axis], bias: Option<V>) -> Result<V, Fail> {
    let (xs, ws) = (c.shape(x), c.shape(w));
    let group = c.int_or("group", 1)?;
    if group < 1 {
        return invalid(format!("group = {group}"));
    }
    let zero = if c.dtype(x).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let n = axes.len();
    let counts: Vec<Dim> = axes.iter().map(|a| a.count).collect();
    let y = open(c, x, 2, axes, zero, false)?;
    let g = c.num(group);
    let dims = c.dims();
    let (per_in, per_out) = (dims.floor_div(xs[1], g), dims.floor_div(ws[0], g));
    let what = "channels of the data and of the kernel";
    let wanted = dims.mul(ws[1], g);
    c.assume(dvm_ir::CheckCond::Equal(xs[1], wanted), what)?;
    // Axes of y: batch, channels, then (count, size) for each spatial axis.
    let count_axes = (0..n).map(|i| 2 + 2 * i);
    let size_axes = (0..n).map(|i| 3 + 2 * i);
    let points = c.dims().product(&counts);
    let depth = c.dims().product(&ws[1..]);
    let out = if group == 1 {
        // Channels innermost: where the data lie that way (after another convolution, say) the windows are a view.
        let perm = [0].into_iter().chain(count_axes).chain(size_axes).chain([1]).collect();
        let y = c.transpose(y, perm)?;
        let y = c.reshape(y, vec![xs[0], points, depth])?;
        let w = c.transpose_constant(w, [0].into_iter().chain(2..n + 2).chain([1]).collect())?;
        let w = c.reshape(w, vec![ws[0], depth])?;
        let y = c.matmul(y, w, false, true)?;
        c.transpose(y, vec![0, 2, 1])?
    } else if ws[1] == Dim::ONE {
        depthwise(c, y, w, g, per_out, n)?
    } else {
        let mut split = c.shape(y);
        split.splice(1..2, [g, per_in]);
        let y = c.reshape(y, split)?;
        let perm =
            [0, 1, 2].into_iter().chain(size_axes.map(|a| a + 1)).chain(count_axes.map(|a| a + 1)).collect();
        let y = c.transpose(y, perm)?;
        let y = c.reshape(y, vec![xs[0], g, depth, points])?;
        let w = c.reshape(w, vec![g, per_out, depth])?;
        c.matmul(w, y, false, false)?
    };
    let out = c.reshape(out, [&[xs[0], ws[0]], &counts[..]].concat())?;
    match bias {
        Some(bias) => {
            let rank = c.rank(out);
            let bias = c.place(bias, 1, rank)?;
            c.add(out, bias)
        }
        None => Ok(out),
    }
}

/// Every channel has its own kernels: products and a sum, with nothing for a matrix product to reuse.
fn depthwise(c: &mut Cx<'_, '_>, y: V, w: V, g: Dim, per_out: Dim, n: usize) -> Result<V, Fail> {
    let dtype = c.dtype(y);
    let wide = if dtype.is_half() { DType::F32 } else { dtype };
    let (y, w) = (c.cast(y, wide)?, c.cast(w, wide)?);
    let mut split = c.shape(y);
    split.insert(2, Dim::ONE);
    let y = c.reshape(y, split)?;
    let mut kernel = vec![g, per_out];
    for i in 0..n {
        kernel.extend([Dim::ONE, c.shape(w)[2 + i]]);
    }
    let w = c.reshape(w, kernel)?;
    let y = c.mul(y, w)?;
    let y = c.reduce(R::Sum, y, &size_axes(3, n), false)?;
    c.cast(y, dtype)
}

/// Size axes of an opened value whose spatial axes begin at `first`.
fn size_axes(first: usize, n: usize) -> Vec<usize> {
    (0..n).map(|i| first + 2 * i + 1).collect()
}

fn max_pool(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let kernel = kernel_shape(c)?;
    let axes = windows(c, x, &kernel)?;
    let least = least(c.dtype(x));
    let y = open(c, x, 2, &axes, least, true)?;
    let mut outs = vec![c.reduce(R::Max, y, &size_axes(2, kernel.len()), false)?];
    if c.wants(1) {
        outs.push(max_positions(c, x, y, &axes)?);
    }
    Ok(outs)
}

/// Flat position in x of the maximum of each window of the opened y.
fn max_positions(c: &mut Cx<'_, '_>, x: V, y: V, axes: &[Axis]) -> Result<V, Fail> {
    let n = axes.len();
    let column_major = c.int_or("storage_order", 0)? == 1;
    let (xs, ys) = (c.shape(x), c.shape(y));
    let perm = [0, 1].into_iter().chain((0..n).map(|i| 2 + 2 * i)).chain((0..n).map(|i| 3 + 2 * i)).collect();
    let y = c.transpose(y, perm)?;
    let size: i64 = axes.iter().try_fold(1i64, |p, a| p.checked_mul(a.size)).unwrap_or(i64::MAX);
    let mut flat: Vec<Dim> = c.shape(y)[..n + 2].to_vec();
    flat.push(c.num(size));
    let y = c.reshape(y, flat)?;
    let mut rest = c.push(Op::ArgMax { axis: n + 2, keepdims: false, last: false }, &[y])?;
    // Spatial strides of x, in the order asked for.
    let mut strides = vec![Dim::ONE; n];
    let order: Vec<usize> = if column_major { (0..n).collect() } else { (0..n).rev().collect() };
    for w in order.windows(2) {
        strides[w[1]] = c.dims().mul(strides[w[0]], xs[2 + w[0]]);
    }
    let spatial = c.dims().product(&xs[2..]);
    let per_batch = c.dims().mul(spatial, xs[1]);
    let mut terms = vec![];
    for (axis, stride) in [(0, per_batch), (1, spatial)] {
        let i = c.iota(ys[axis], DType::I64)?;
        terms.push((c.place_at(i, axis, n + 2)?, stride));
    }
    for (i, a) in axes.iter().enumerate().rev() {
        let within = c.with(B::Rem, rest, a.size as f64)?;
        rest = c.with(B::Div, rest, a.size as f64)?;
        let start = c.dims().neg(a.before);
        let step = c.num(a.stride);
        let o = c.push(Op::Range { start, step, len: a.count, dtype: DType::I64 }, &[])?;
        let o = c.place_at(o, i + 2, n + 2)?;
        let k = c.with(B::Mul, within, a.dilation as f64)?;
        terms.push((c.add(k, o)?, strides[i]));
    }
    let mut sum = c.scalar(DType::I64, 0.0);
    for (v, stride) in terms {
        let s = c.imp.of_nd(DType::I64, Nd::scalar(stride));
        let t = c.mul(v, s)?;
        sum = c.add(sum, t)?;
    }
    Ok(sum)
}

fn least(dtype: DType) -> Scalar {
    match dtype {
        d if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
        DType::I8 => Scalar::Int(i64::from(i8::MIN)),
        DType::I16 => Scalar::Int(i64::from(i16::MIN)),
        DType::I32 => Scalar::Int(i64::from(i32::MIN)),
        DType::I64 => Scalar::Int(i64::MIN),
        _ => Scalar::Int(0),
    }
}

/// The sum of a window over how many of its elements count.
fn average_pool(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let kernel = kernel_shape(c)?;
    let axes = windows(c, x, &kernel)?;
    let include = c.flag("count_include_pad", false)?;
    let y = open(c, x, 2, &axes, Scalar::Float(0.0), true)?;
    let n = kernel.len();
    let padded = axes
        .iter()
        .any(|a| (!include && (a.before, a.after) != (Dim::ZERO, Dim::ZERO)) || a.extra != Dim::ZERO);
    if !padded {
        return Ok(vec![c.reduce(R::Mean, y, &size_axes(2, n), false)?]);
    }
    let dtype = c.dtype(x);
    let sum = c.reduce(R::Sum, y, &size_axes(2, n), false)?;
    let mut extents = c.shape(x)[2..].to_vec();
    let mut rest = axes.clone();
    if include {
        for (e, a) in extents.iter_mut().zip(&mut rest) {
            let dims = c.dims();
            let padded = dims.add(*e, a.before);
            *e = dims.add(padded, a.after);
            (a.before, a.after) = (Dim::ZERO, Dim::ZERO);
        }
    }
    let ones = c.fill(dtype, Scalar::Float(1.0), extents)?;
    let count = open(c, ones, 0, &rest, Scalar::Float(0.0), true)?;
    let count = c.reduce(R::Sum, count, &size_axes(0, n), false)?;
    Ok(vec![c.div(sum, count)?])
}

/// (sum |x|^p)^(1/p) over the axes.
fn p_norm(c: &mut Cx<'_, '_>, x: V, p: i64, axes: &[usize], keepdims: bool) -> Result<V, Fail> {
    match p {
        1 => c.reduce(R::L1, x, axes, keepdims),
        2 => c.reduce(R::L2, x, axes, keepdims),
        p if p > 0 => {
            let y = c.unary(U::Abs, x)?;
            let y = c.with(B::Pow, y, p as f64)?;
            let y = c.reduce(R::Sum, y, axes, keepdims)?;
            c.with(B::Pow, y, 1.0 / p as f64)
        }
        p => invalid(format!("p = {p}")),
    }
}

fn lp_pool(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let kernel = kernel_shape(c)?;
    let axes = windows(c, x, &kernel)?;
    let y = open(c, x, 2, &axes, Scalar::Float(0.0), true)?;
    let p = c.int_or("p", 2)?;
    Ok(vec![p_norm(c, y, p, &size_axes(2, kernel.len()), false)?])
}

fn global_axes(c: &Cx<'_, '_>, x: V) -> Result<Vec<usize>, Fail> {
    if c.rank(x) < 3 {
        return invalid(format!("rank {}, must be 3 or more", c.rank(x)));
    }
    Ok((2..c.rank(x)).collect())
}

fn global_pool(c: &mut Cx<'_, '_>, op: R) -> Outs {
    let x = c.input(0)?;
    let axes = global_axes(c, x)?;
    Ok(vec![c.reduce(op, x, &axes, true)?])
}

fn global_lp_pool(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axes = global_axes(c, x)?;
    let p = c.int_or("p", 2)?;
    Ok(vec![p_norm(c, x, p, &axes, true)?])
}
