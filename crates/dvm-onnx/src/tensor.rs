//! `TensorProto` to [`Tensor`]: raw, typed and external data, with every count checked before memory is taken.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use dvm_ir::{DType, Tensor};

use crate::error::{Fail, invalid, unsupported};
use crate::proto::TensorProto;

/// Names of ONNX element types that have no dtype here, for messages.
pub(crate) fn data_type_name(n: i32) -> String {
    if let Some(d) = DType::from_onnx(n) {
        return d.name().to_string();
    }
    let name = match n {
        0 => "undefined",
        8 => "string",
        14 => "complex64",
        15 => "complex128",
        17 => "float8e4m3fn",
        18 => "float8e4m3fnuz",
        19 => "float8e5m2",
        20 => "float8e5m2fnuz",
        21 => "uint4",
        22 => "int4",
        23 => "float4e2m1",
        24 => "float8e8m0",
        25 => "uint2",
        26 => "int2",
        _ => return format!("#{n}"),
    };
    name.to_string()
}

pub(crate) fn dtype(n: i32) -> Result<DType, Fail> {
    match DType::from_onnx(n) {
        Some(d) => Ok(d),
        None if (1..=28).contains(&n) => unsupported(format!("element type {}", data_type_name(n))),
        None => invalid(format!("element type number {n}")),
    }
}

/// A tensor of the model; `base_dir` is where external data may lie.
pub(crate) fn tensor(t: &TensorProto, base_dir: Option<&Path>) -> Result<Tensor, Fail> {
    let dtype = dtype(t.data_type.unwrap_or(0))?;
    let mut shape = Vec::with_capacity(t.dims.len());
    for &d in &t.dims {
        let Ok(d) = usize::try_from(d) else { return invalid(format!("extent {d} in shape {:?}", t.dims)) };
        shape.push(d);
    }
    if t.data_location == Some(1) {
        let data = external(t, base_dir, dtype, &shape)?;
        return Ok(Tensor::from_bytes(dtype, &shape, &data)?);
    }
    if let Some(raw) = &t.raw_data {
        return Ok(Tensor::from_bytes(dtype, &shape, raw)?);
    }
    let bytes: Vec<u8> = match dtype {
        DType::F32 => t.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F64 => t.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I64 => t.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::U64 => t.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::U32 => t.uint64_data.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        DType::I32 => t.int32_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => {
            t.int32_data.iter().flat_map(|x| (*x as u16).to_le_bytes()).collect()
        }
        DType::I8 | DType::U8 | DType::Bool => t.int32_data.iter().map(|x| *x as u8).collect(),
    };
    Ok(Tensor::from_bytes(dtype, &shape, &bytes)?)
}

/// External data is read only from inside the model's folder, and only as much as the shape needs.
fn external(t: &TensorProto, base: Option<&Path>, dtype: DType, shape: &[usize]) -> Result<Vec<u8>, Fail> {
    let entry = |k: &str| {
        t.external_data.iter().find(|e| e.key.as_deref() == Some(k)).and_then(|e| e.value.as_deref())
    };
    let number = |k: &str| match entry(k).map(|v| v.trim().parse::<u64>()) {
        None => Ok(None),
        Some(Ok(n)) => Ok(Some(n)),
        Some(Err(_)) => invalid(format!("external data: `{k}` is not a number")),
    };
    let Some(location) = entry("location") else { return invalid("external data without a location") };
    let Some(base) = base else {
        return unsupported(format!("external data \"{location}\", but the model's folder is not known"));
    };
    // The folder of a bare file name.
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    let relative = Path::new(location);
    if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
        return invalid(format!("external data \"{location}\" lies outside the model's folder"));
    }
    let path = base.join(relative);
    let failed = |e: std::io::Error| Fail::Invalid(format!("external data \"{location}\": {e}"));
    // A link may lead outside as well.
    let (real, root) = (path.canonicalize().map_err(failed)?, base.canonicalize().map_err(failed)?);
    if !real.starts_with(&root) {
        return invalid(format!("external data \"{location}\" lies outside the model's folder"));
    }
    let needs = shape.iter().try_fold(dtype.size() as u64, |n, &d| n.checked_mul(d as u64));
    let Some(needs) = needs else { return invalid(format!("shape {shape:?} of {dtype} is too large")) };
    let offset = number("offset")?.unwrap_or(0);
    if let Some(length) = number("length")?
        && length != needs
    {
        return invalid(format!("external data \"{location}\": length {length}, the shape needs {needs}"));
    }
    let mut file = std::fs::File::open(&real).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if offset.checked_add(needs).is_none_or(|end| end > size) {
        return invalid(format!(
            "external data \"{location}\": bytes {offset}+{needs} are not in a file of {size}"
        ));
    }
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut data = vec![0; usize::try_from(needs).map_err(|_| Fail::Invalid("too large".into()))?];
    file.read_exact(&mut data).map_err(failed)?;
    Ok(data)
}

/// The tensor with its axes permuted.
pub(crate) fn transposed(t: &Tensor, perm: &[usize]) -> Result<Tensor, Fail> {
    let shape: Vec<usize> = perm.iter().map(|&p| t.shape()[p]).collect();
    if t.is_empty() {
        return Ok(Tensor::zeros(t.dtype(), &shape)?);
    }
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * t.shape()[i];
    }
    let strides: Vec<usize> = perm.iter().map(|&p| strides[p]).collect();
    let size = t.dtype().size();
    let mut out = Tensor::zeros(t.dtype(), &shape)?;
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    for to in out.bytes_mut().chunks_exact_mut(size) {
        to.copy_from_slice(&t.bytes()[at * size..(at + 1) * size]);
        for i in (0..shape.len()).rev() {
            index[i] += 1;
            at += strides[i];
            if index[i] < shape[i] {
                break;
            }
            at -= strides[i] * shape[i];
            index[i] = 0;
        }
    }
    Ok(out)
}
