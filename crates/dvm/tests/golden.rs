//! Real models with recorded outputs of another runtime: every file of a model in ONE session, planned once.

use std::path::{Path, PathBuf};

use dvm::compare::{Tolerance, compare};
use dvm::{Module, Options, Outputs, Session, Tensor, npz};

/// The folder of recorded models, or `None` with a printed reason.
fn shared() -> Option<PathBuf> {
    let dir = std::env::var_os("DVM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    if dir.join("models").is_dir() {
        return Some(dir);
    }
    assert!(std::env::var_os("DVM_REQUIRE_SHARED").is_none(), "{} has no models", dir.display());
    println!("skipped: {} has no models (set DVM_SHARED)", dir.display());
    None
}

/// Runs every recorded file of a model; `max_kernels` bounds the kernels of a run.
fn goldens(model: &str, count: usize, max_kernels: usize) {
    let Some(shared) = shared() else { return };
    let models = shared.join("models");
    let is_golden = |p: &PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&format!("{model}-")) && name.ends_with(".npz")
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&models).unwrap().map(|e| e.unwrap().path()).filter(is_golden).collect();
    files.sort();
    assert_eq!(files.len(), count, "recorded files of {model}");
    let module = Module::load(models.join(format!("{model}.onnx"))).unwrap();
    let mut session = Session::new(&module, Options::default()).unwrap();
    let mut outputs = Outputs::new();
    for (i, file) in files.iter().enumerate() {
        let stem = file.file_stem().unwrap().to_string_lossy();
        let arrays = npz::load_npz(file).unwrap();
        let named = |prefix: &str| -> Vec<(String, Tensor)> {
            let strip = |(n, t): &(String, Tensor)| Some((n.strip_prefix(prefix)?.to_string(), t.clone()));
            arrays.iter().filter_map(strip).collect()
        };
        let (inputs, expected) = (named("in."), named("out."));
        assert!(!expected.is_empty());
        session.run_into(&inputs, &mut outputs).unwrap_or_else(|e| panic!("{stem}: {e}"));
        let r = session.last_run();
        println!("{stem}: {r}");
        assert_eq!(r.launches, 1, "one launch a run");
        assert!(r.kernels <= max_kernels, "{stem}: {} kernels, at most {max_kernels}", r.kernels);
        assert!(i == 0 || r.plan_us == 0.0, "{stem}: planned again");
        for (name, want) in &expected {
            compare(&outputs[name], want, Tolerance::default())
                .unwrap_or_else(|d| panic!("{stem}: output `{name}` {d}"));
        }
        // The same shape again comes from the cache, with the same bits.
        let first = outputs.clone();
        session.run_into(&inputs, &mut outputs).unwrap();
        assert!(session.last_run().cache_hit, "{stem}");
        assert_eq!(first, outputs, "{stem}: other bits from the cache");
    }
}

#[test]
fn mmoe() {
    goldens("mmoe", 4, 80);
}

#[test]
fn minilm() {
    // Six layers of at most 15 kernels, the embeddings and the mask.
    goldens("minilm-l6-v2", 8, 6 * 15 + 6);
}

#[test]
fn magika() {
    goldens("magika", 3, 60);
}
