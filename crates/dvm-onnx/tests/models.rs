//! Real models with recorded outputs, evaluated by the reference evaluator.

use std::io::Read;
use std::path::{Path, PathBuf};

use dvm_ir::eval::eval_graph;
use dvm_ir::{DType, Tensor};
use dvm_onnx::{ImportOptions, import_file};

fn models() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../");
    let shared = std::env::var_os("DVM_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let models = shared.join("models");
    if models.is_dir() {
        return Some(models);
    }
    eprintln!("skipped: no {} (set DVM_SHARED)", models.display());
    None
}

/// A little-endian C-order `.npy`.
fn npy(b: &[u8]) -> Tensor {
    let (len, at) = match b[6] {
        1 => (u16::from_le_bytes([b[8], b[9]]) as usize, 10),
        _ => (u32::from_le_bytes([b[8], b[9], b[10], b[11]]) as usize, 12),
    };
    let header = std::str::from_utf8(&b[at..at + len]).unwrap();
    let after = |key: &str| &header[header.find(key).unwrap() + key.len()..];
    let descr = after("'descr': '").split('\'').next().unwrap();
    let dtype = match descr {
        "<f4" => DType::F32,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "|b1" => DType::Bool,
        other => panic!("dtype {other}"),
    };
    assert!(header.contains("'fortran_order': False"), "{header}");
    let shape = after("'shape': (").split(')').next().unwrap();
    let shape: Vec<usize> = shape.split(',').filter_map(|s| s.trim().parse().ok()).collect();
    Tensor::from_bytes(dtype, &shape, &b[at + len..]).unwrap()
}

fn npz(path: &Path) -> Vec<(String, Tensor)> {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    (0..zip.len())
        .map(|i| {
            let mut entry = zip.by_index(i).unwrap();
            let mut bytes = vec![];
            entry.read_to_end(&mut bytes).unwrap();
            (entry.name().unwrap().trim_end_matches(".npy").to_string(), npy(&bytes))
        })
        .collect()
}

/// Imports once, then runs every golden file and compares (|o - r| <= atol + rtol * |r|).
fn check(model: &str, goldens: &[&str], symbols: &[&str]) {
    let Some(dir) = models() else { return };
    let imported = import_file(dir.join(format!("{model}.onnx")), &ImportOptions::default()).unwrap();
    let graph = &imported.graph;
    let names: Vec<&str> = graph.dims.symbols().map(|(_, n)| n).collect();
    assert_eq!(names, symbols, "symbols of {model}");
    for golden in goldens {
        let entries = npz(&dir.join(format!("{golden}.npz")));
        let steps: Vec<String> = if entries.iter().any(|(n, _)| n.starts_with("s0.")) {
            (0..)
                .map(|k| format!("s{k}."))
                .take_while(|p| entries.iter().any(|(n, _)| n.starts_with(p)))
                .collect()
        } else {
            vec![String::new()]
        };
        for step in steps {
            let part = |kind: &str| {
                let prefix = format!("{step}{kind}.");
                entries
                    .iter()
                    .filter_map(|(n, t)| n.strip_prefix(&prefix).map(|n| (n, t.clone())))
                    .collect::<Vec<_>>()
            };
            let outs = eval_graph(graph, &part("in")).unwrap();
            for (name, want) in part("out") {
                let i = graph.outputs.iter().position(|o| o.name == name).unwrap();
                compare(&outs[i], &want, &format!("{golden} {step}{name}"));
            }
        }
    }
}

fn compare(got: &Tensor, want: &Tensor, what: &str) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    for i in 0..want.len() {
        let (g, w) = (got.get(i).as_f64(), want.get(i).as_f64());
        assert!((g - w).abs() <= 1e-4 + 1e-3 * w.abs(), "{what}[{i}]: {g}, want {w}");
    }
}

#[test]
fn mmoe() {
    check("mmoe", &["mmoe-b1", "mmoe-b7"], &["b"]);
}

#[test]
fn minilm() {
    check("minilm-l6-v2", &["minilm-l6-v2-b1-s1", "minilm-l6-v2-b1-s3", "minilm-l6-v2-b1-s17"], &["b", "s"]);
}

#[test]
fn magika() {
    check("magika", &["magika-b1"], &["unk__214"]);
}

#[test]
fn llama() {
    check("llama-tiny", &["llama-tiny-b1"], &["b", "s", "p"]);
}
