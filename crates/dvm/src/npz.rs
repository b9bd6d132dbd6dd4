//! NumPy `.npy` and `.npz` files: what inputs, outputs and goldens are exchanged in.
//!
//! Reads format versions 1 to 3, little-endian or single-byte dtypes, C or Fortran order. bfloat16 is stored as the
//! two-byte void dtype (`V2`), as `ml_dtypes` writes it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use dvm_ir::{DType, Tensor};

/// A NumPy file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// File.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The archive.
    #[error("{path}: not a readable npz archive: {reason}")]
    Zip {
        /// File.
        path: String,
        /// Cause.
        reason: String,
    },
    /// An array.
    #[error("{name}: {reason}")]
    Npy {
        /// Array or file name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

fn bad(name: &str, reason: impl Into<String>) -> NpzError {
    NpzError::Npy { name: name.to_string(), reason: reason.into() }
}

/// Descriptors NumPy uses, with their dtypes.
const DESCR: &[(&str, DType)] = &[
    ("<f4", DType::F32),
    ("<f8", DType::F64),
    ("<f2", DType::F16),
    ("|V2", DType::BF16),
    ("<V2", DType::BF16),
    ("|i1", DType::I8),
    ("|u1", DType::U8),
    ("<i2", DType::I16),
    ("<u2", DType::U16),
    ("<i4", DType::I32),
    ("<u4", DType::U32),
    ("<i8", DType::I64),
    ("<u8", DType::U64),
    ("|b1", DType::Bool),
];

/// Reads one array; `name` is used in errors.
///
/// # Errors
/// Anything that is not a complete `.npy` file of a supported dtype.
pub fn read_npy(name: &str, data: &[u8]) -> Result<Tensor, NpzError> {
    if data.len() < 10 || &data[..6] != b"\x93NUMPY" {
        return Err(bad(name, "not a .npy file (no \\x93NUMPY magic)"));
    }
    let (len, start) = match data[6] {
        1 => (usize::from(u16::from_le_bytes([data[8], data[9]])), 10),
        2 | 3 if data.len() >= 12 => {
            (u32::from_le_bytes([data[8], data[9], data[10], data[11]]) as usize, 12)
        }
        v => return Err(bad(name, format!(".npy format version {v} is not supported"))),
    };
    let end = start + len;
    let header = data.get(start..end).ok_or_else(|| bad(name, "the header is cut off"))?;
    let header = std::str::from_utf8(header).map_err(|_| bad(name, "the header is not text"))?;
    let (dtype, fortran, shape) = parse_header(name, header)?;
    let body = &data[end..];
    let needs = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    if needs != Some(body.len()) {
        return Err(bad(
            name,
            format!("shape {shape:?} of {dtype} does not match {} bytes of data", body.len()),
        ));
    }
    if !fortran || shape.len() < 2 {
        return Tensor::from_bytes(dtype, &shape, body).map_err(|e| bad(name, e.to_string()));
    }
    let mut out = Vec::with_capacity(body.len());
    let (n, size) = (body.len() / dtype.size(), dtype.size());
    for flat in 0..n {
        let (mut rest, mut at, mut stride) = (flat, 0, n);
        // Row-major index to column-major offset: walk the axes from the last one.
        for &d in shape.iter().rev() {
            stride /= d;
            at += (rest % d) * stride;
            rest /= d;
        }
        out.extend_from_slice(&body[at * size..(at + 1) * size]);
    }
    Tensor::from_bytes(dtype, &shape, &out).map_err(|e| bad(name, e.to_string()))
}

fn parse_header(name: &str, header: &str) -> Result<(DType, bool, Vec<usize>), NpzError> {
    let field = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        quoted
            .iter()
            .find_map(|q| header.split_once(q.as_str()))
            .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
            .map(str::trim_start)
            .ok_or_else(|| bad(name, format!("the header has no `{key}`")))
    };
    let descr = field("descr")?;
    let quote = descr.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let descr = quote
        .and_then(|q| descr[1..].split(q).next())
        .ok_or_else(|| bad(name, "structured dtypes are not supported"))?;
    let native = descr.replacen('=', "<", 1);
    let dtype = DESCR
        .iter()
        .find(|(d, _)| {
            *d == native
                || d.trim_start_matches('|') == native.trim_start_matches(['|', '<']) && d.starts_with('|')
        })
        .map(|&(_, t)| t)
        .ok_or_else(|| bad(name, format!("dtype `{descr}` is not supported")))?;
    let fortran = field("fortran_order")?.starts_with("True");
    let tuple = field("shape")?;
    let inner = tuple
        .strip_prefix('(')
        .and_then(|t| t.split(')').next())
        .ok_or_else(|| bad(name, "the header's shape is not a tuple"))?;
    let shape: Result<Vec<usize>, _> =
        inner.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect();
    let shape =
        shape.map_err(|_| bad(name, format!("the header's shape `({inner})` is not a tuple of sizes")))?;
    Ok((dtype, fortran, shape))
}

/// One array as the bytes of a `.npy` file.
#[must_use]
pub fn write_npy(t: &Tensor) -> Vec<u8> {
    let descr = DESCR.iter().find(|(_, d)| *d == t.dtype()).map_or("<f4", |(s, _)| s);
    let mut shape: String = t.shape().iter().map(|d| format!("{d}, ")).collect();
    if t.shape().len() > 1 {
        shape.truncate(shape.len() - 2);
    } else {
        shape = shape.trim_end().to_string();
    }
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data start at a multiple of 64 bytes; the header ends with a newline.
    let pad = 64 - (10 + header.len() + 1) % 64;
    header.extend(std::iter::repeat_n(' ', pad % 64));
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(header.len() as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(t.bytes());
    out
}

/// Reads a `.npy` file.
///
/// # Errors
/// The file cannot be read or is not an array of a supported dtype.
pub fn load_npy(path: &Path) -> Result<Tensor, NpzError> {
    let name = path.display().to_string();
    let data = std::fs::read(path).map_err(|source| NpzError::Io { path: name.clone(), source })?;
    read_npy(&name, &data)
}

/// Reads every array of a `.npz` file, in archive order.
///
/// # Errors
/// The file cannot be read, or an array is not of a supported dtype.
pub fn load_npz(path: &Path) -> Result<Vec<(String, Tensor)>, NpzError> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|source| NpzError::Io { path: name.clone(), source })?;
    read_npz(&name, std::io::BufReader::new(file))
}

/// Bytes that the arrays of an archive may take beyond four times its size: a small file must not be able to exhaust the machine.
const MAX_INFLATION: u64 = 2 << 30;

/// Reads every array of an archive; `name` is used in errors.
///
/// # Errors
/// As [`load_npz`].
pub fn read_npz(name: &str, mut reader: impl Read + Seek) -> Result<Vec<(String, Tensor)>, NpzError> {
    let packed =
        reader.seek(SeekFrom::End(0)).map_err(|source| NpzError::Io { path: name.to_string(), source })?;
    read_within(name, reader, MAX_INFLATION.saturating_add(packed.saturating_mul(4)))
}

/// Reads every array of an archive whose arrays take at most `budget` bytes together.
fn read_within(name: &str, reader: impl Read + Seek, budget: u64) -> Result<Vec<(String, Tensor)>, NpzError> {
    let zip_error =
        |e: &dyn std::fmt::Display| NpzError::Zip { path: name.to_string(), reason: e.to_string() };
    let mut zip = zip::ZipArchive::new(reader).map_err(|e| zip_error(&e))?;
    let mut out = Vec::with_capacity(zip.len().min(1024));
    let mut room = budget;
    for i in 0..zip.len() {
        let entry = zip.by_index(i).map_err(|e| zip_error(&e))?;
        let array = entry.name().map_err(|e| zip_error(&e))?.to_string();
        let array = array.strip_suffix(".npy").unwrap_or(&array).to_string();
        let mut data = Vec::new();
        entry.take(room.saturating_add(1)).read_to_end(&mut data).map_err(|e| zip_error(&e))?;
        room = room.checked_sub(data.len() as u64).ok_or_else(|| {
            bad(&array, format!("the arrays up to this one unpack to more than {budget} bytes"))
        })?;
        out.push((array.clone(), read_npy(&array, &data)?));
    }
    Ok(out)
}

/// Writes arrays as a `.npz` file (stored, as `numpy.savez` does). The file appears whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn save_npz(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), NpzError> {
    let name = path.display().to_string();
    let zip_error = |e: &dyn std::fmt::Display| NpzError::Zip { path: name.clone(), reason: e.to_string() };
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (array, tensor) in arrays {
        zip.start_file(format!("{array}.npy"), stored.large_file(tensor.bytes().len() > 1 << 31))
            .map_err(|e| zip_error(&e))?;
        zip.write_all(&write_npy(tensor)).map_err(|e| zip_error(&e))?;
    }
    let data = zip.finish().map_err(|e| zip_error(&e))?.into_inner();
    write_whole(path, &data).map_err(|source| NpzError::Io { path: name.clone(), source })
}

/// An array as a tensor of another dtype, where files have no name for that dtype: bfloat16 may be stored as its bits in `<u2`, or
/// as the float32 it was made from, which is rounded. Any other array stays as it is.
#[must_use]
pub fn stored_as(t: Tensor, dtype: DType) -> Tensor {
    match (dtype, t.dtype()) {
        (DType::BF16, DType::U16) => Tensor::from_bytes(DType::BF16, t.shape(), t.bytes()).unwrap_or(t),
        (DType::BF16, DType::F32 | DType::F64) => match Tensor::zeros(DType::BF16, t.shape()) {
            Ok(mut out) => {
                (0..t.len()).for_each(|i| out.set(i, t.get(i)));
                out
            }
            Err(_) => t,
        },
        _ => t,
    }
}

/// Writes a file so that it appears whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_whole(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, data).and_then(|()| std::fs::rename(&part, path)).inspect_err(|_| {
        // The partial file is of no use to anybody; the first error is the one to report.
        let _ = std::fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_of_every_dtype_and_rank() {
        for &dtype in DType::ALL {
            for shape in [&[][..], &[0], &[3], &[2, 3], &[1, 0, 4], &[2, 1, 3, 2]] {
                let mut t = Tensor::zeros(dtype, shape).unwrap();
                for i in 0..t.len() {
                    t.set(i, dvm_ir::Scalar::Int(i as i64 % 2));
                }
                assert_eq!(read_npy("x", &write_npy(&t)).unwrap(), t, "{dtype} {shape:?}");
            }
        }
    }

    #[test]
    fn archives_unpack_to_their_budget_at_most() {
        let t = Tensor::from_slice(&[4], &[1f32, 2., 3., 4.]).unwrap();
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in ["a.npy", "b.npy.npy"] {
            zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&write_npy(&t)).unwrap();
        }
        let data = zip.finish().unwrap().into_inner();
        let each = write_npy(&t).len() as u64;
        let read = |budget| read_within("x", std::io::Cursor::new(&data), budget);
        let arrays = read(2 * each).unwrap();
        assert_eq!(arrays, [("a".to_string(), t.clone()), ("b.npy".to_string(), t)]);
        for (budget, array) in [(0, "a"), (each - 1, "a"), (2 * each - 1, "b.npy")] {
            let message = read(budget).unwrap_err().to_string();
            assert!(message.starts_with(array) && message.contains("unpack"), "{message}");
        }
    }

    #[test]
    fn fortran_order_is_transposed() {
        let t = Tensor::from_slice(&[2, 3], &[1i32, 4, 2, 5, 3, 6]).unwrap();
        let mut data = write_npy(&t);
        let at = data.windows(5).position(|w| w == b"False").unwrap();
        data[at..at + 5].copy_from_slice(b"True ");
        let expect = Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(read_npy("x", &data).unwrap(), expect);
    }

    #[test]
    fn damaged_files_are_errors() {
        let good = write_npy(&Tensor::from_slice(&[2, 2], &[1f32, 2., 3., 4.]).unwrap());
        for n in 0..good.len() {
            assert!(read_npy("x", &good[..n]).is_err(), "cut at {n}");
        }
        for i in 0..good.len() {
            let mut g = good.clone();
            g[i] ^= 0x55;
            let _ = read_npy("x", &g);
        }
    }
}
