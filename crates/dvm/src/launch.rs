//! Small steps between a user's tensors and a launch.

use dvm_ir::{Bindings, Dim, DimTable, DimValues, Graph, Plan, Tensor};

use crate::{Error, Outputs};

/// Binds the symbols that are an extent (or a used element) of the given inputs; other inputs may be missing.
pub(crate) fn bind_given(graph: &Graph, given: &[(String, Tensor)]) -> Result<Bindings, Error> {
    let mut bindings = Bindings::new();
    for (name, tensor) in given {
        let Some(input) = graph.inputs.iter().find(|i| &i.name == name) else { continue };
        let extents = graph.shape(input.value).iter().zip(tensor.shape()).map(|(&d, &n)| (d, n as i64));
        let elements = input.elements.iter().flatten().enumerate().filter(|(i, _)| *i < tensor.len());
        for (dim, value) in extents.chain(elements.map(|(i, &d)| (d, tensor.get(i).as_i64()))) {
            if let Some(symbol) = graph.dims.as_symbol(dim) {
                bindings.bind(symbol, value).map_err(|old| {
                    let symbol = graph.dims.symbol_name(symbol);
                    Error::Bind(format!(
                        "input `{name}`: `{symbol}` is {value} here but {old} in another input"
                    ))
                })?;
            }
        }
    }
    Ok(bindings)
}

/// The extents of a shape.
pub(crate) fn extents(
    dims: &DimTable,
    name: &str,
    shape: &[Dim],
    values: &DimValues,
) -> Result<Vec<usize>, Error> {
    shape
        .iter()
        .map(|&d| {
            let v = values
                .get(d)
                .ok_or_else(|| Error::Bind(format!("output `{name}`: {}", dims.why_undefined(d, values))))?;
            usize::try_from(v).map_err(|_| {
                Error::Bind(format!("output `{name}`: extent `{}` = {v} is negative", dims.display(d)))
            })
        })
        .collect()
}

/// Makes `outputs` hold tensors of the right dtypes and shapes, keeping those that fit already.
pub(crate) fn fit_outputs(plan: &Plan, shapes: &[Vec<usize>], outputs: &mut Outputs) -> Result<(), Error> {
    if !outputs.keys().eq(plan.outputs.iter().map(|o| &o.name)) {
        outputs.clear();
    }
    for (o, shape) in plan.outputs.iter().zip(shapes) {
        match outputs.get_mut(&o.name) {
            Some(t) if t.dtype() == o.dtype && t.shape() == shape.as_slice() => {}
            Some(t) => *t = Tensor::zeros(o.dtype, shape)?,
            None => {
                outputs.insert(o.name.clone(), Tensor::zeros(o.dtype, shape)?);
            }
        }
    }
    Ok(())
}

/// The first `n` bytes of a buffer of words.
pub(crate) fn bytes_of(words: &mut [u64], n: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(words)[..n]
}
