//! `dvm asm` and `dvm disasm`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use dvm::bc::Bundle;
use dvm::{FileKind, npz, read_bundle};

use crate::args::{AsmArgs, DisasmArgs};
use crate::cmd::say;
use crate::{Outcome, Usage};

pub(crate) fn asm(a: &AsmArgs) -> Result<Outcome> {
    let bytes = read(&a.text)?;
    if FileKind::of(&bytes) == FileKind::Bundle {
        bail!(Usage(format!("{} is a bundle already; `dvm disasm` prints it", a.text.display())));
    }
    // Whatever the file is, what is wrong with it as assembly is said.
    let text = std::str::from_utf8(&bytes).with_context(|| a.text.display().to_string())?;
    let bundle = Bundle::from_text(text)
        .map_err(|e| anyhow::anyhow!(e.render(&a.text.display().to_string(), text)))?;
    let output = a.output.clone().unwrap_or_else(|| a.text.with_extension("dvmb"));
    let encoded = bundle.to_bytes()?;
    npz::write_whole(&output, &encoded).with_context(|| output.display().to_string())?;
    let sections = bundle.programs.iter().flat_map(|p| &p.templates).flat_map(|t| &t.phases);
    let instructions: usize = sections.flat_map(|p| &p.sections).map(|s| s.code.iter().count()).sum();
    say(&format!("{}: {} bytes, {instructions} instructions\n", output.display(), encoded.len()))?;
    Ok(Outcome::Right)
}

pub(crate) fn disasm(a: &DisasmArgs) -> Result<Outcome> {
    let bytes = read(&a.bundle)?;
    let name = a.bundle.display().to_string();
    let bundle = read_bundle(&name, &bytes).with_context(|| name)?;
    let text = bundle.to_text();
    match &a.output {
        Some(path) => npz::write_whole(path, text.as_bytes()).with_context(|| path.display().to_string())?,
        None => say(&text)?,
    }
    Ok(Outcome::Right)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
