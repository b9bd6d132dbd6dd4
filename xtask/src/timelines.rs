//! The timeline pages that docs/timing-tools.md links to.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use dvm::testing::CASES;
use dvm::timing::{self, HostCosts, Labels, Options};
use dvm::{MachineSpec, Module};

use crate::root;

/// Largest page that is kept in the repository, bytes.
const MOST: usize = 300 * 1024;
/// Cases, and dims that are small enough for a page and large enough for all cores.
const PAGES: &[(&str, &[(&str, i64)])] = &[
    ("softmax", &[("b", 96), ("s", 256)]),
    ("layer_norm", &[("b", 32), ("s", 128)]),
    ("matmul_bias_gelu", &[("b", 1), ("s", 256)]),
    ("attention", &[("b", 1), ("s", 64)]),
];

/// Writes a page for each case; those that are too large are an error.
pub(crate) fn timelines(out: Option<PathBuf>, spec: &str) -> Result<()> {
    let spec = MachineSpec::named(spec)?;
    let dir = out.unwrap_or_else(|| root().join("docs/timelines"));
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    for (name, dims) in PAGES {
        let case = CASES.iter().find(|c| c.name == *name).with_context(|| format!("no case `{name}`"))?;
        let module = Module::from_text(&case.text())?;
        let bound: Vec<(String, i64)> = dims.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        let p = timing::prepare(&module, &[], &bound, &spec, true)?;
        let opts = Options { trace: 1 << 20, ..Options::default() };
        let t = timing::simulate(p.program(), &spec, &opts)?;
        // The compile time of this host would make every page differ from the last.
        let mut fixed = p.clone();
        fixed.compile_us = 20.0 * p.program().templates.len() as f64;
        let rows = timing::compare(&fixed, None, &t, &spec, &HostCosts::default(), &Options::default())?;
        let host = rows.iter().find(|r| r.name == "new shape, compile hidden");
        let (notes, ops) = (p.notes(), p.ops());
        let labels = Labels::new(p.program(), 0, &notes, &ops);
        let title =
            format!("{name} {}", bound.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "));
        let page = timing::html_page(&title, &t, &labels, &spec, host);
        let path = dir.join(format!("{name}.html"));
        let spans = t.trace.as_ref().map_or(0, |t| t.spans.len());
        println!("{:<18}{:>9.2} us{:>8} spans{:>9} bytes  {}", name, t.us, spans, page.len(), path.display());
        ensure!(page.len() <= MOST, "{name}: the page has {} bytes, at most {MOST} are kept", page.len());
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
