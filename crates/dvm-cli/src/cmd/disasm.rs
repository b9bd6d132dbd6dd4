//! `dvm disasm`.

use anyhow::{Context, Result};
use dvm::bc::Bundle;

use crate::Outcome;
use crate::args::DisasmArgs;
use crate::cmd::say;

pub(crate) fn disasm(a: &DisasmArgs) -> Result<Outcome> {
    let name = || a.bundle.display().to_string();
    let bytes = std::fs::read(&a.bundle).with_context(name)?;
    let bundle = Bundle::from_bytes(&bytes).with_context(name)?;
    say(&bundle.to_text())?;
    Ok(Outcome::Right)
}
