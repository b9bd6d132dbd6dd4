//! The subcommands.

pub(crate) mod asm;
pub(crate) mod bisect;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod run;
pub(crate) mod specs;
pub(crate) mod tilings;
pub(crate) mod time;

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use dvm::Options;

use crate::args::EngineArgs;

/// Session options from the command line, for a model file of this size: a small file must not be able to exhaust the
/// machine.
pub(crate) fn options(engine: &EngineArgs, model_bytes: u64) -> Result<Options> {
    options_for(engine, model_bytes, 0)
}

/// The same where arrays of so many bytes are given.
pub(crate) fn options_for(engine: &EngineArgs, model_bytes: u64, given_bytes: u64) -> Result<Options> {
    let mut options = Options::from_env()?;
    options.assume.clone_from(&engine.assume);
    options.max_bytes = engine.max_memory.unwrap_or(
        (768u64 << 20)
            .saturating_add(model_bytes.saturating_mul(64))
            .saturating_add(given_bytes.saturating_mul(16)),
    );
    options.timeout = engine.timeout;
    options.threads = engine.threads.map(usize::from);
    if let Some(spec) = &engine.spec {
        options.spec = Some(specs::load(spec)?.spec);
    }
    Ok(options)
}

/// Size of a file, 0 where it cannot be read (which the reader reports).
pub(crate) fn file_size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Writes text to standard output; a closed pipe is an error the caller may ignore.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a value as one line of JSON.
pub(crate) fn say_json(value: &serde_json::Value) -> Result<()> {
    say(&format!("{value}\n"))
}
