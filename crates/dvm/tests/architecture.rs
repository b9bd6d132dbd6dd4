//! The house rules that a compiler does not check: which crate may use which, and where `unsafe` may be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every allowed arrow. `dvm` uses `dvm-onnx` only as an optional feature, itself
/// to turn `testing` on in its tests, as `dvm-bc` does with `arbitrary`.
const ARROWS: &[(&str, &[&str])] = &[
    ("dvm-ir", &[]),
    ("dvm-bc", &["dvm-bc"]),
    ("dvm-fuse", &["dvm-ir"]),
    ("dvm-npu", &["dvm-bc"]),
    ("dvm-tile", &["dvm-bc", "dvm-ir", "dvm-npu"]),
    ("dvm-vm", &["dvm-bc"]),
    ("dvm-onnx", &["dvm-ir"]),
    ("dvm", &["dvm", "dvm-bc", "dvm-fuse", "dvm-ir", "dvm-npu", "dvm-onnx", "dvm-tile", "dvm-vm"]),
    ("dvm-cli", &["dvm"]),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

#[test]
fn arrows_point_down() {
    let found: BTreeSet<String> = std::fs::read_dir(crates())
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.path().join("Cargo.toml").exists())
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = ARROWS.iter().map(|(c, _)| c.to_string()).collect();
    assert_eq!(found, listed, "a crate was added or removed");
    for (name, allowed) in ARROWS {
        let text = std::fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        // Dependencies of all targets, then those of each.
        let targets = manifest.get("target").and_then(|t| t.as_table());
        let tables = std::iter::once(&manifest)
            .chain(targets.iter().flat_map(|t| t.values()).filter_map(|t| t.as_table()))
            .flat_map(|m| ["dependencies", "dev-dependencies", "build-dependencies"].map(|t| (t, m.get(t))));
        for (table, deps) in tables {
            let Some(deps) = deps.and_then(|t| t.as_table()) else { continue };
            for (dep, spec) in deps.iter().filter(|(d, _)| d.as_str() == "dvm" || d.starts_with("dvm-")) {
                assert!(allowed.contains(&dep.as_str()), "{name} -> {dep} ({table}) is not an allowed arrow");
                let optional = spec.get("optional").and_then(|o| o.as_bool()).unwrap_or(false);
                assert!(dep != "dvm-onnx" || optional, "{name} -> dvm-onnx must be optional");
            }
        }
    }
}

#[test]
fn unsafe_code_lives_in_the_virtual_machine() {
    for (name, _) in ARROWS.iter().filter(|(n, _)| *n != "dvm-vm") {
        let src = crates().join(name).join("src");
        let entry = ["lib.rs", "main.rs"].map(|f| src.join(f)).into_iter().find(|p| p.exists()).unwrap();
        let text = std::fs::read_to_string(&entry).unwrap();
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "{} lacks #![forbid(unsafe_code)]",
            entry.display()
        );
    }
}

#[test]
fn every_crate_has_a_readme_that_is_tested() {
    for (name, _) in ARROWS {
        let dir = crates().join(name);
        let readme = std::fs::read_to_string(dir.join("README.md")).unwrap_or_default();
        assert!(readme.contains("```"), "{name}/README.md has no example");
        if *name != "dvm-cli" {
            let lib = std::fs::read_to_string(dir.join("src/lib.rs")).unwrap();
            assert!(
                lib.contains("include_str!(\"../README.md\")"),
                "{name}: the README's example is not tested"
            );
        }
    }
}
