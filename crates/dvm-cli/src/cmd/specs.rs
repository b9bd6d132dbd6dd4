//! `dvm specs`.

use std::path::Path;

use anyhow::{Context, Result};
use dvm::MachineSpec;
use dvm::bc::Space;
use serde_json::json;

use crate::Outcome;
use crate::cmd::{say, say_json};
use crate::table::Table;
use crate::time_args::{SpecsArgs, SpecsCommand};

/// A machine and the text it was read from.
pub(crate) struct SpecFile {
    pub(crate) spec: MachineSpec,
    pub(crate) text: String,
}

/// A shipped machine by name, or a TOML file by path.
pub(crate) fn load(name: &str) -> Result<SpecFile> {
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
        let spec = MachineSpec::from_toml(&text).with_context(|| name.to_owned())?;
        return Ok(SpecFile { spec, text });
    }
    let spec = MachineSpec::named(name)?;
    Ok(SpecFile { spec, text: MachineSpec::source(name).unwrap_or_default().to_owned() })
}

pub(crate) fn specs(a: &SpecsArgs) -> Result<Outcome> {
    if let Some(SpecsCommand::Show(show)) = &a.command {
        let file = load(&show.spec)?;
        say(&file.text)?;
        return Ok(Outcome::Right);
    }
    let all: Vec<MachineSpec> =
        MachineSpec::NAMES.iter().map(|n| MachineSpec::named(n)).collect::<Result<_, _>>()?;
    let tflops = |s: &MachineSpec| {
        let cubes = if s.target.cube_cores > 0 { s.target.cube_cores } else { s.target.cores };
        f64::from(cubes) * 512.0 * s.timing.cube_k_half * s.timing.mhz / 1e6
    };
    if a.json {
        let one = |s: &MachineSpec| {
            json!({
                "name": s.target.name, "cores": s.target.cores, "cube_cores": s.target.cube_cores, "mhz": s.timing.mhz,
                "ub_bytes": s.target.capacity(Space::Ub), "l2_bytes": s.timing.l2_bytes, "memory_bytes_per_s": s.timing.hbm_peak,
                "half_flops_per_s": tflops(s) * 1e12,
            })
        };
        say_json(&json!({"version": 1, "specs": all.iter().map(one).collect::<Vec<_>>()}))?;
        return Ok(Outcome::Right);
    }
    let mut table = Table::new(&[
        "machine",
        "cores",
        "cube cores",
        "MHz",
        "UB KiB",
        "L2 MiB",
        "memory GB/s",
        "f16 TFLOP/s",
    ]);
    for s in &all {
        table.row(vec![
            s.target.name.clone(),
            s.target.cores.to_string(),
            if s.target.cube_cores > 0 { s.target.cube_cores.to_string() } else { "-".into() },
            format!("{:.0}", s.timing.mhz),
            (s.target.capacity(Space::Ub) >> 10).to_string(),
            format!("{:.0}", s.timing.l2_bytes / 1048576.0),
            format!("{:.0}", s.timing.hbm_peak / 1e9),
            format!("{:.1}", tflops(s)),
        ]);
    }
    say(&table.to_string())?;
    Ok(Outcome::Right)
}
