//! Packaging and the long tests.

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::root;

/// Packages every published crate (they depend on each other, so all at once).
pub(crate) fn package(verify: bool) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    let verify: &[&str] = if verify { &[] } else { &["--no-verify"] };
    cmd!(sh, "cargo package --workspace --exclude xtask --exclude dvm-benches --locked --allow-dirty --quiet {verify...}")
        .run()
        .context("cargo package")?;
    let list = cmd!(sh, "cargo metadata --format-version 1 --no-deps").quiet().read()?;
    let meta: serde_json::Value = serde_json::from_str(&list)?;
    for p in meta["packages"].as_array().into_iter().flatten().filter(|p| p["publish"].is_null()) {
        for field in ["description", "license", "readme", "repository"] {
            ensure!(!p[field].is_null(), "{}: no `{field}` in Cargo.toml", p["name"]);
        }
    }
    Ok(())
}

/// Generated files, snapshots and the workspace's tests; `full` raises the iteration counts of the randomised ones.
pub(crate) fn ci(full: bool) -> Result<()> {
    crate::codegen::codegen(true)?;
    crate::snapshots::snapshots(true, false, None)?;
    crate::traffic::traffic(true)?;
    crate::ulp::run(&crate::ulp::Options { step: 16_411, check: true })?;
    let sh = Shell::new()?;
    sh.change_dir(root());
    if full {
        sh.set_var("DVM_TEST_SCALE", "50");
    }
    cmd!(sh, "cargo test --workspace --locked").run()?;
    Ok(())
}
