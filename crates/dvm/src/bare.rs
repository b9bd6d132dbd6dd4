//! Tensors for programs that were written by hand: a program knows how many elements an argument has, not their shape.

use std::borrow::Cow;

use dvm_bc::bundle::Port;
use dvm_bc::layout::{Matrices, pack_panels};
use dvm_bc::{Layout, Program};
use dvm_ir::Tensor;

use crate::Error;
use crate::bundle::ir_dtype;

/// The bytes of a tensor for an argument: any shape of as many elements will do. A matrix, or a stack of them, for an argument in panels is
/// packed; a flat tensor is taken to be packed already.
pub(crate) fn fit<'a>(program: &Program, port: &Port, t: &'a Tensor) -> Result<Cow<'a, [u8]>, Error> {
    if t.dtype() != ir_dtype(port.dtype) {
        return Err(misfit(port, t));
    }
    let layout = program.args.iter().find(|a| a.name == port.name).map(|a| a.layout);
    if let (Some(Layout::Panels { nr, k, n, batch }), 2..) = (layout, t.shape().len()) {
        let expected = k.checked_mul(n).and_then(|m| m.checked_mul(batch));
        let stride = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
        if expected != Some(t.len() as u64) {
            return Err(misfit(port, t));
        }
        let (batch_stride, row_stride) = (stride(k.saturating_mul(n)), stride(n));
        let matrices = Matrices { offset: 0, batch, k, n, batch_stride, row_stride, col_stride: 1 };
        let packed = pack_panels(t.bytes(), t.dtype().size() as u32, &matrices, nr)
            .map_err(|e| Error::Bind(format!("input `{}`: {e}", port.name)))?;
        return Ok(Cow::Owned(packed));
    }
    if port.shape.iter().product::<u64>() != t.len() as u64 {
        return Err(misfit(port, t));
    }
    Ok(Cow::Borrowed(t.bytes()))
}

/// A tensor of another dtype or shape.
pub(crate) fn misfit(port: &Port, t: &Tensor) -> Error {
    let (name, is, got) = (&port.name, port.dtype, t.dtype());
    let (shape, found) = (&port.shape, t.shape());
    Error::Bind(format!("input `{name}`: the bundle was compiled for {is}{shape:?}, got {got}{found:?}"))
}
