//! Snapshots of compiled programs: what a change does to bytecode is reviewed as a diff of plain text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dvm::testing::CASES;
use similar::TextDiff;

use crate::root;

/// Lines of a diff around a change.
const CONTEXT: usize = 3;
/// Most lines of one file's diff that are printed; a change of every line is told by its size.
const MOST_LINES: usize = 80;

/// Compares every snapshot with what the compiler makes now, or with `accept` writes it. Files of no case are stale.
pub(crate) fn snapshots(check: bool, accept: bool, only: Option<&str>) -> Result<()> {
    if check && accept {
        bail!("--check and --accept exclude each other");
    }
    let dir = root().join("snapshots");
    let wanted = |name: &str| only.is_none_or(|o| name.contains(o));
    let mut new = BTreeMap::new();
    let mut broken = Vec::new();
    for case in CASES.iter().filter(|c| wanted(c.name)) {
        for machine in case.machines {
            match case.snapshot(machine) {
                Ok(text) => drop(new.insert(format!("{machine}/{}.txt", case.name), text)),
                Err(e) => broken.push(e.to_string()),
            }
        }
    }
    let mut old = BTreeMap::new();
    for file in files(&dir)? {
        let name = file.strip_prefix(&dir)?.to_string_lossy().replace('\\', "/");
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        if wanted(&stem) {
            old.insert(name, std::fs::read_to_string(&file).with_context(|| file.display().to_string())?);
        }
    }
    let mut changed = 0;
    for name in old.keys().chain(new.keys().filter(|n| !old.contains_key(*n))) {
        let (before, after) = (old.get(name), new.get(name));
        if before == after {
            continue;
        }
        changed += 1;
        if accept {
            let path = dir.join(name);
            match after {
                Some(text) => write(&path, text)?,
                // What does not compile now keeps its last form.
                None if broken.is_empty() => std::fs::remove_file(&path)?,
                None => continue,
            }
            eprintln!("{} {name}", if after.is_some() { "wrote" } else { "removed" });
        } else {
            print!("{}", diff(name, before.map_or("", String::as_str), after.map_or("", String::as_str)));
        }
    }
    for e in &broken {
        eprintln!("{e}");
    }
    if !broken.is_empty() {
        bail!("{} snapshot(s) cannot be made", broken.len());
    }
    if changed > 0 && !accept {
        bail!(
            "{changed} of {} snapshot(s) differ; if the change is meant: cargo xtask snapshots --accept",
            new.len()
        );
    }
    eprintln!("{} snapshots of {} cases", new.len(), CASES.iter().filter(|c| wanted(c.name)).count());
    Ok(())
}

/// The text files below a folder.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(out) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(files(&path)?);
        } else if path.extension().is_some_and(|e| e == "txt") {
            out.push(path);
        }
    }
    Ok(out)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn diff(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let text = diff.unified_diff().context_radius(CONTEXT).header(name, &format!("{name} (now)")).to_string();
    let more = text.lines().count().saturating_sub(MOST_LINES);
    let mut shown: String = text.lines().take(MOST_LINES).map(|l| format!("{l}\n")).collect();
    if more > 0 {
        shown.push_str(&format!("... and {more} more lines\n"));
    }
    shown
}
