//! `dvm inspect`.

use anyhow::{Context, Result};
use dvm::{FileKind, Inspection};
use serde_json::json;

use crate::Outcome;
use crate::args::InspectArgs;
use crate::cmd::{say, say_json};

pub(crate) fn inspect(a: &InspectArgs) -> Result<Outcome> {
    let bytes = std::fs::read(&a.model).with_context(|| a.model.display().to_string())?;
    let i = Inspection::of(&a.model, &bytes).with_context(|| a.model.display().to_string())?;
    if a.json {
        let port = |p: &dvm::PortInfo| json!({"name": p.name, "dtype": p.dtype.name(), "shape": p.shape});
        say_json(&json!({
            "version": 1, "kind": i.kind, "inputs": i.inputs.iter().map(port).collect::<Vec<_>>(),
            "outputs": i.outputs.iter().map(port).collect::<Vec<_>>(), "symbols": i.symbols,
            "ops": i.ops.iter().map(|(n, c)| json!({"op": n, "count": c})).collect::<Vec<_>>(),
            "weights_bytes": i.weight_bytes, "structural_inputs": i.structural_inputs, "unsupported": i.unsupported,
        }))?;
    } else {
        say(&text(&i, FileKind::of(&bytes)))?;
    }
    if i.unsupported.is_empty() {
        return Ok(Outcome::Right);
    }
    anyhow::bail!("{} unsupported thing(s), listed above", i.unsupported.len())
}

fn text(i: &Inspection, kind: FileKind) -> String {
    let mut out = format!("{} ({})\n", i.kind, if kind == FileKind::Bundle { "compiled" } else { "model" });
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            out.push_str(&format!("\n{title}\n"));
            lines.iter().for_each(|l| out.push_str(&format!("  {l}\n")));
        }
    };
    section("inputs", i.inputs.iter().map(ToString::to_string).collect());
    section("outputs", i.outputs.iter().map(ToString::to_string).collect());
    section("symbols", if i.symbols.is_empty() { vec![] } else { vec![i.symbols.join(", ")] });
    let width = i.ops.iter().map(|(n, _)| n.len()).max().unwrap_or(0);
    section("ops", i.ops.iter().map(|(n, c)| format!("{n:width$}  {c:>5}")).collect());
    section("weights", vec![format!("{:.2} MB", i.weight_bytes as f64 / 1e6)]);
    section("inputs whose values decide the structure (give them with --input)", i.structural_inputs.clone());
    section("unsupported", i.unsupported.clone());
    out
}
