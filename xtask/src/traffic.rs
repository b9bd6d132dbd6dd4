//! The table of docs/traffic.md.

use anyhow::{Context, Result, bail, ensure};

use crate::root;

const PAGE: &str = "docs/traffic.md";
const BEGIN: &str = "<!-- begin: cargo xtask traffic -->\n";
const END: &str = "<!-- end -->";

/// Measures, and writes the table between its marks, or with `check` fails where it differs.
pub(crate) fn traffic(check: bool) -> Result<()> {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (Some(begin), Some(end)) = (page.find(BEGIN), page.find(END)) else {
        bail!("{PAGE} has no marks for the table");
    };
    // A frozen machine: the table depends on tiles.
    let table = dvm::testing::traffic::table(&dvm::MachineSpec::named("host-ref")?)?;
    let made = format!("{}{table}{}", &page[..begin + BEGIN.len()], &page[end..]);
    if made == page {
        return Ok(());
    }
    ensure!(!check, "{PAGE} is out of date; run `cargo xtask traffic`");
    std::fs::write(&path, made).with_context(|| path.display().to_string())?;
    eprintln!("wrote {PAGE}");
    Ok(())
}
