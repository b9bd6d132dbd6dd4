//! `dvm explain --tiling`.

use anyhow::Result;
use dvm::{MachineSpec, Stage, Tiling};
use serde_json::{Value, json};

use crate::cmd::{say, say_json};
use crate::table::Table;

/// Candidates of a kernel that are shown, best first.
const SHOWN: usize = 12;

/// Prints the tiling of each kernel with the candidates that the cost model compared.
pub(crate) fn tilings(
    stages: &[Stage],
    dims: &[(String, i64)],
    spec: &MachineSpec,
    json: bool,
) -> Result<()> {
    let mut all = vec![];
    for (_, plan) in stages.iter().filter_map(|s| s.part.as_ref()) {
        all.extend(dvm::tilings(plan, dims, spec)?);
    }
    if json {
        let kernels: Vec<Value> = all.iter().map(value).collect();
        say_json(&json!({"version": 1, "machine": spec.target.name, "kernels": kernels}))?;
        return Ok(());
    }
    for t in &all {
        say(&format!("{t}\n{}\n", text(t)))?;
    }
    say(&format!(
        "{} on {} cores. A kernel takes its waves (tiles a core) times a tile: {} ns, and the larger of transfers and vector\n\
         instructions, with the product's time for products.\n",
        spec.target.name, spec.target.cores, spec.costs.tile_ns
    ))
}

/// `16x768 k 512`.
fn tile(tiles: &[u32], k0: Option<u32>) -> String {
    let s = tiles.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    match k0 {
        Some(k) => format!("{s} k {k}"),
        None => s,
    }
}

fn chosen(t: &Tiling) -> String {
    let tiles: Vec<u32> = t.folds.iter().map(|f| f.tile).collect();
    tile(&tiles, t.k.map(|k| k.1))
}

fn text(t: &Tiling) -> String {
    if t.candidates.is_empty() {
        return "  nothing to choose\n".to_owned();
    }
    let mut order: Vec<_> = t.candidates.iter().collect();
    order.sort_by(|a, b| a.total_ns.total_cmp(&b.total_ns));
    let mut table =
        Table::new(&["  tile", "tiles", "waves", "transfer ns", "vector ns", "product ns", "total ns"]);
    let ns = |v: f64| if v > 0.0 { format!("{v:.0}") } else { "-".to_owned() };
    let chosen = chosen(t);
    for c in order.iter().take(SHOWN) {
        let name = tile(&c.tiles, c.k0);
        table.row(vec![
            format!("{} {name}", if name == chosen { ">" } else { " " }),
            c.count.to_string(),
            c.waves.to_string(),
            ns(c.dma_ns),
            ns(c.vector_ns),
            ns(c.product_ns),
            ns(c.total_ns),
        ]);
    }
    let more = order.len().saturating_sub(SHOWN);
    format!("{table}{}", if more > 0 { format!("  and {more} more\n") } else { String::new() })
}

fn value(t: &Tiling) -> Value {
    let candidates: Vec<Value> = t
        .candidates
        .iter()
        .map(|c| {
            json!({
                "tiles": c.tiles, "k0": c.k0, "count": c.count, "waves": c.waves, "dma_ns": c.dma_ns,
                "vector_ns": c.vector_ns, "product_ns": c.product_ns, "total_ns": c.total_ns,
            })
        })
        .collect();
    let folds: Vec<Value> = t
        .folds
        .iter()
        .map(|f| json!({"extent": f.extent, "tile": f.tile, "count": f.count, "walked": f.walked}))
        .collect();
    json!({
        "kernel": t.kernel, "tiling": t.to_string(), "folds": folds, "tiles": t.tiles, "tile_ns": t.tile_ns,
        "candidates": candidates,
    })
}
