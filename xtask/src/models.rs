//! Shape-only models: what they are, and files of them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dvm::testing::models::{MODELS, ShapeModel};
use dvm::{MachineSpec, Module, timing};

/// Lists the models, or writes them as textual IR whose weights are extents.
pub(crate) fn models(only: Option<&str>, out: Option<&Path>, compile: bool, spec: &str) -> Result<()> {
    let spec = MachineSpec::named(spec)?;
    let chosen: Vec<&ShapeModel> =
        MODELS.iter().filter(|m| only.is_none_or(|o| m.name.contains(o))).collect();
    ensure!(
        !chosen.is_empty(),
        "no model has that name; there are {}",
        MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
    );
    println!("{:<14}{:>11}{:>12}{:>8}  what", "model", "parameters", "weights MB", "nodes");
    for m in &chosen {
        let graph = m.graph()?;
        let count: usize = graph.constants.iter().filter(|c| !c.has_data()).map(dvm::Tensor::len).sum();
        let bytes: usize = graph.constants.iter().map(dvm::Tensor::byte_len).sum();
        let (m_, mb) = (count as f64 / 1e6, bytes as f64 / 1e6);
        println!("{:<14}{m_:>10.1}M{mb:>12.1}{:>8}  {}", m.name, graph.nodes.len(), m.about);
        if let Some(dir) = out {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            let path = dir.join(format!("{}.dvmir", m.name));
            std::fs::write(&path, graph.to_text()).with_context(|| path.display().to_string())?;
            println!("  wrote {}", path.display());
        }
    }
    if !compile {
        return Ok(());
    }
    let name = &spec.target.name;
    println!("\ncompiled for {name} on this host (plan once, compile for each shape)");
    println!(
        "{:<14}{:<22}{:>9}{:>9}{:>11}{:>13}{:>10}{:>14}",
        "model", "shape", "kernels", "units", "plan ms", "compile µs", "code KB", "workspace MB"
    );
    for m in &chosen {
        let module = Module::from_graph(m.graph()?)?;
        for (label, dims) in m.runs {
            let dims: Vec<(String, i64)> = dims.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
            let p = timing::prepare(&module, &[], &dims, &spec, true)
                .with_context(|| format!("{} {label}", m.name))?;
            println!(
                "{:<14}{label:<22}{:>9}{:>9}{:>11.1}{:>13.0}{:>10.1}{:>14.1}",
                m.name,
                p.program().templates.len(),
                p.program().steps.iter().map(|s| s.units.len()).sum::<usize>(),
                p.plan_us / 1e3,
                p.compile_us,
                p.code_bytes() as f64 / 1024.0,
                p.compiled.workspace_bytes as f64 / 1e6,
            );
        }
    }
    Ok(())
}
