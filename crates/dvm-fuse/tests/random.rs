//! Random graphs: fused and unfused plans verify and give the values of the graph for every binding.

use dvm_fuse::{FuseLimits, FuseOptions, plan};
use dvm_ir::eval::{eval_graph, eval_plan};
use dvm_ir::testing::{Config, random_graph};

fn differential(seeds: std::ops::Range<u64>, opts: &FuseOptions) {
    let mut failures = vec![];
    for seed in seeds {
        let r = random_graph(seed, &Config::default());
        let p = match plan(&r.graph, opts) {
            Ok(p) => p,
            Err(e) => {
                failures.push(format!("seed {seed}: {e}"));
                continue;
            }
        };
        if let Err(v) = p.verify() {
            failures.push(format!("seed {seed}: {:?}", &v[..v.len().min(3)]));
            continue;
        }
        for i in 0..r.bindings.len() {
            let x = r.inputs(i, seed);
            let wrong = match (eval_plan(&p, &x), eval_graph(&r.graph, &x)) {
                (Ok(got), Ok(want)) => r.difference(&got, &want),
                (Err(_), Err(_)) => None,
                (got, want) => Some(format!(
                    "{:?} / {:?}",
                    got.err().map(|e| e.to_string()),
                    want.err().map(|e| e.to_string())
                )),
            };
            if let Some(d) = wrong {
                failures.push(format!("seed {seed} binding {i}: {d}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn fused() {
    differential(0..600, &FuseOptions::default());
}

#[test]
fn unfused() {
    differential(1200..1500, &FuseOptions { fuse: false, ..FuseOptions::default() });
}

#[test]
fn fused_within_small_limits() {
    let limits = FuseLimits { ops: 4, operands: 4, live: 3 };
    differential(1700..2000, &FuseOptions { limits, ..FuseOptions::default() });
}

#[test]
fn fused_up_to_any_decision() {
    for seed in 2200..2240 {
        let graph = random_graph(seed, &Config::default()).graph;
        let all = dvm_fuse::contractions(&graph, &FuseOptions::default()).map_or(0, |c| c.len());
        for n in 0..=all {
            let opts = FuseOptions { contractions: Some(n), ..FuseOptions::default() };
            let p = plan(&graph, &opts).unwrap_or_else(|e| panic!("seed {seed}, {n} of {all}: {e}"));
            p.verify().unwrap_or_else(|v| panic!("seed {seed}, {n} of {all}: {v:?}"));
        }
    }
    differential(2240..2300, &FuseOptions { contractions: Some(3), ..FuseOptions::default() });
}
