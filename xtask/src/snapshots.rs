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

/// The page that shows parts of snapshots.
const GUIDE: &str = "docs/reviewing-bytecode.md";

/// Compares every snapshot with what the compiler makes now, or with `accept` writes it. Files of no case are stale.
pub(crate) fn snapshots(check: bool, accept: bool, only: Option<&str>) -> Result<()> {
    if check && accept {
        bail!("--check and --accept exclude each other");
    }
    let dir = root().join("snapshots");
    let wanted = |name: &str| only.is_none_or(|o| name.contains(o));
    let mut new = BTreeMap::new();
    let mut broken = Vec::new();
    let (mut syncs, mut redundant) = (0, 0);
    for case in CASES.iter().filter(|c| wanted(c.name)) {
        for machine in case.machines {
            match case.snapshot(machine) {
                Ok(s) => {
                    syncs += s.hazards.proved.syncs();
                    redundant += s.hazards.redundant.len();
                    if !s.hazards.is_sound() {
                        broken.push(format!("{} on {machine}: {}", case.name, s.hazards));
                    }
                    new.insert(format!("{machine}/{}.txt", case.name), s.text);
                }
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
    if only.is_none() {
        let text = std::fs::read_to_string(root().join(GUIDE)).context(GUIDE)?;
        new.insert(GUIDE.into(), excerpts(&text, &new)?);
        old.insert(GUIDE.into(), text);
    }
    let mut changed = 0;
    for name in old.keys().chain(new.keys().filter(|n| !old.contains_key(*n))) {
        let (before, after) = (old.get(name), new.get(name));
        if before == after {
            continue;
        }
        changed += 1;
        if accept {
            let path = if name == GUIDE { root().join(name) } else { dir.join(name) };
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
        bail!("{} snapshot(s) cannot be made, or have hazards", broken.len());
    }
    if changed > 0 && !accept {
        bail!(
            "{changed} of {} snapshot(s) differ; if the change is meant: cargo xtask snapshots --accept",
            new.len()
        );
    }
    new.remove(GUIDE);
    let cases = CASES.iter().filter(|c| wanted(c.name)).count();
    let count = new.len();
    eprintln!("{count} snapshots of {cases} cases; {syncs} pieces of synchronisation, {redundant} redundant");
    Ok(())
}

/// The page with each `<!-- excerpt FILE from "A" to "B" -->` followed by the lines of that snapshot from the first that begins with A to the
/// first after it that begins with B (to the end where B is empty), up to `<!-- end -->`.
fn excerpts(page: &str, snapshots: &BTreeMap<String, String>) -> Result<String> {
    const END: &str = "<!-- end -->";
    let mut out = String::with_capacity(page.len());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(what) = line.strip_prefix("<!-- excerpt ") else { continue };
        let mut parts = what.split('"');
        let (head, from, _, to) = (parts.next(), parts.next(), parts.next(), parts.next());
        let file = head.and_then(|h| h.strip_suffix(" from "));
        let (Some(file), Some(from), Some(to)) = (file, from, to) else {
            bail!("{GUIDE}: what is `{line}`?")
        };
        let text = snapshots.get(file).with_context(|| format!("{GUIDE}: there is no snapshot {file}"))?;
        let begins = |l: &&str, what: &str| !what.is_empty() && l.trim_start().starts_with(what);
        let from = text
            .lines()
            .position(|l| begins(&l, from))
            .with_context(|| format!("{GUIDE}: `{line}`: no such line"))?;
        let rest: Vec<&str> = text.lines().skip(from).collect();
        let to = rest.iter().skip(1).position(|l| begins(l, to)).map_or(rest.len(), |i| i + 2);
        let rest = &rest[..to.min(rest.len())];
        let indent = rest.iter().map(|l| l.len() - l.trim_start().len()).min().unwrap_or(0);
        out.push_str("```text\n");
        rest.iter().for_each(|l| out.push_str(&format!("{}\n", &l[indent..])));
        out.push_str("```\n");
        if !lines.any(|l| l == END) {
            bail!("{GUIDE}: `{line}` has no `{END}`");
        }
        out.push_str(END);
        out.push('\n');
    }
    Ok(out)
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
