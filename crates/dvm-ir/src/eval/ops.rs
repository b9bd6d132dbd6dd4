//! Dispatch: one op applied to arrays.

use super::{
    Fault, Shapes,
    array::{Array, Data, count},
    composite, elementwise, index, reduce, scalar,
};
use crate::{DType, Op};

/// Applies `op`.
pub(super) fn apply(op: &Op, args: &[&Array], dims: &Shapes<'_>) -> Result<Array, Fault> {
    if !op.arity().contains(&args.len()) {
        return Err(Fault::Invalid(format!("{} operands", args.len())));
    }
    match op {
        Op::Unary(u) => elementwise::unary(*u, args[0]),
        Op::Binary(b) => elementwise::binary(*b, args[0], args[1]),
        Op::Fma {} => elementwise::fma(args[0], args[1], args[2]),
        Op::Select {} => elementwise::select(args[0], args[1], args[2]),
        Op::Clamp {} => elementwise::clamp(args[0], args[1], args[2]),
        Op::Cast { to } => Ok(elementwise::cast(args[0], *to)),
        Op::Fill { value, dtype, shape } => Array::scalar(*dtype, *value).expand(&dims.shape(shape)?),
        Op::Range { start, step, len, dtype } => {
            let (start, step) = (i128::from(dims.get(*start)?), i128::from(dims.get(*step)?));
            let len = count(&[dims.extent(*len)?])?;
            Ok(integers(*dtype, vec![len], (0..len as i128).map(|i| start + i * step)))
        }
        Op::Dims { values, scalar, dtype } => {
            let values =
                values.iter().map(|&d| dims.get(d).map(i128::from)).collect::<Result<Vec<_>, _>>()?;
            if *scalar && values.len() != 1 {
                return Err(Fault::Invalid(format!("a scalar of {} dims", values.len())));
            }
            let shape = if *scalar { vec![] } else { vec![values.len()] };
            Ok(integers(*dtype, shape, values.into_iter()))
        }
        Op::Reshape { shape } => args[0].clone().reshape(dims.shape(shape)?),
        Op::Transpose { perm } => args[0].transpose(perm),
        Op::Expand { shape } => args[0].expand(&dims.shape(shape)?),
        Op::Slice { start, len, step } => {
            index::slice(args[0], &dims.values(start)?, &dims.shape(len)?, step)
        }
        Op::Window { axis, count, size, stride, dilation } => {
            let extents = (dims.extent(*count)?, dims.extent(*size)?);
            index::window(args[0], *axis, extents, (*stride, *dilation))
        }
        Op::Concat { axis } => index::concat(args, *axis),
        Op::Pad { before, after, mode, value } => {
            let fill = Array::scalar(args[0].dtype, *value);
            index::pad(args[0], &dims.values(before)?, &dims.values(after)?, *mode, &fill)
        }
        Op::Gather { axis } => index::gather(args[0], args[1], *axis),
        Op::GatherElements { axis } => index::gather_elements(args[0], args[1], *axis),
        Op::Reduce { op, axes, keepdims } => reduce::reduce(*op, args[0], axes, *keepdims),
        Op::ArgMax { axis, keepdims, last } => reduce::arg_reduce(args[0], true, *axis, *keepdims, *last),
        Op::ArgMin { axis, keepdims, last } => reduce::arg_reduce(args[0], false, *axis, *keepdims, *last),
        Op::CumSum { axis, exclusive, reverse } => reduce::cumsum(args[0], *axis, *exclusive, *reverse),
        Op::MatMul { trans_a, trans_b } => reduce::matmul(args[0], args[1], *trans_a, *trans_b),
        Op::Softmax { axis } => composite::softmax(args[0], *axis),
        Op::LogSoftmax { axis } => composite::log_softmax(args[0], *axis),
        Op::LayerNorm { axis, eps } => {
            composite::layer_norm(args[0], args[1], args.get(2).copied(), *axis, *eps)
        }
        Op::RmsNorm { axis, eps } => composite::rms_norm(args[0], args[1], *axis, *eps),
        Op::Gelu { tanh } => composite::gelu(args[0], *tanh),
        Op::Silu {} => composite::silu(args[0]),
    }
}

/// Integers as values of a dtype.
pub(super) fn integers(dtype: DType, shape: Vec<usize>, values: impl Iterator<Item = i128>) -> Array {
    let data = if dtype.is_float() {
        Data::Float(values.map(|v| scalar::int_to_float(v, dtype)).collect())
    } else {
        Data::Int(values.map(|v| scalar::wrap(v, dtype)).collect())
    };
    Array { dtype, shape, data }
}
