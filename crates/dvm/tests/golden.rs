//! Real models with recorded outputs of another runtime: every file of a model in ONE session, planned once.

use std::path::{Path, PathBuf};

use dvm::compare::{Tolerance, compare};
use dvm::{Module, Options, Outputs, Session, Tensor, npz};

/// The folder of recorded models, or `None` with a printed reason.
fn shared() -> Option<PathBuf> {
    let dir = std::env::var_os("DVM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    if dir.join("models").is_dir() {
        return Some(dir);
    }
    assert!(std::env::var_os("DVM_REQUIRE_SHARED").is_none(), "{} has no models", dir.display());
    println!("skipped: {} has no models (set DVM_SHARED)", dir.display());
    None
}

/// Runs every recorded file of a model; `max_kernels` bounds the kernels of a run, `plans` how often anything is planned.
/// `carry` says which output becomes which input of the next step.
fn goldens(
    model: &str,
    count: usize,
    max_kernels: usize,
    (plans, most_launches): (usize, usize),
    carry: &[(&str, &str)],
) {
    let Some(shared) = shared() else { return };
    let models = shared.join("models");
    let is_golden = |p: &PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&format!("{model}-")) && name.ends_with(".npz")
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&models).unwrap().map(|e| e.unwrap().path()).filter(is_golden).collect();
    files.sort();
    assert_eq!(files.len(), count, "recorded files of {model}");
    let module = Module::load(models.join(format!("{model}.onnx"))).unwrap();
    let mut session = Session::new(&module, Options::default()).unwrap();
    let mut outputs = Outputs::new();
    let mut off = Options::default();
    off.fuse = false;
    let mut unfused = Session::with_runtime(&module, off, session.runtime().clone()).unwrap();
    let mut planned = 0;
    for file in &files {
        let stem = file.file_stem().unwrap().to_string_lossy();
        let arrays = npz::load_npz(file).unwrap();
        let mut state: Vec<(String, Tensor)> = vec![];
        for step in 0.. {
            let prefix = if arrays.iter().any(|(n, _)| n.starts_with("s0.")) {
                format!("s{step}.")
            } else {
                String::new()
            };
            let named = |kind: &str| -> Vec<(String, Tensor)> {
                let prefix = format!("{prefix}{kind}.");
                let strip =
                    |(n, t): &(String, Tensor)| Some((n.strip_prefix(&prefix)?.to_string(), t.clone()));
                arrays.iter().filter_map(strip).collect()
            };
            let (mut inputs, expected) = (named("in"), named("out"));
            if expected.is_empty() || (step > 0 && prefix.is_empty()) {
                assert!(step > 0, "{stem} holds nothing");
                break;
            }
            // What the last step gave is carried into this one, not what the other runtime recorded.
            for (name, t) in &mut inputs {
                if let Some((_, carried)) = state.iter().find(|(n, _)| n == name) {
                    *t = carried.clone();
                }
            }
            session.run_into(&inputs, &mut outputs).unwrap_or_else(|e| panic!("{stem} {prefix}: {e}"));
            let r = session.last_run();
            println!("{stem} {prefix}: {r}");
            // A long plan met for the first time is launched in groups, so that encoding is hidden.
            assert!(r.launches <= most_launches, "{stem}: {} launches", r.launches);
            assert!(r.kernels <= max_kernels, "{stem}: {} kernels, at most {max_kernels}", r.kernels);
            planned += usize::from(r.plan_us > 0.0);
            for (name, want) in &expected {
                compare(&outputs[name], want, Tolerance::default())
                    .unwrap_or_else(|d| panic!("{stem} {prefix}: output `{name}` {d}"));
            }
            // The same shape again comes from the cache, with the same bits.
            let first = outputs.clone();
            session.run_into(&inputs, &mut outputs).unwrap();
            assert!(session.last_run().cache_hit, "{stem}");
            assert_eq!(first, outputs, "{stem}: other bits from the cache");
            // Unfused, the values are the same.
            unfused.run_into(&inputs, &mut outputs).unwrap();
            for (name, got) in &first {
                let close = Tolerance { rtol: 1e-5, atol: 1e-5 };
                compare(&outputs[name], got, close)
                    .unwrap_or_else(|d| panic!("{stem} {prefix}: unfused `{name}` {d}"));
            }
            state = carry.iter().map(|(from, to)| ((*to).to_string(), first[*from].clone())).collect();
        }
    }
    assert!(planned <= plans, "{model} is planned {planned} times, at most {plans}");
}

#[test]
fn mmoe() {
    goldens("mmoe", 4, 80, (1, 1), &[]);
}

#[test]
fn minilm() {
    // Six layers of at most 8 kernels, attention one of them, and the embeddings.
    goldens("minilm-l6-v2", 8, 6 * 8 + 1, (1, 4), &[]);
}

/// Each layer's attention is one kernel.
#[test]
fn attention_is_one_kernel() {
    let Some(shared) = shared() else { return };
    for (model, layers) in [("minilm-l6-v2", 6), ("llama-tiny", 2)] {
        let module = Module::load(shared.join(format!("models/{model}.onnx"))).unwrap();
        let stages = module.stages(&[], &[], true).unwrap();
        let plans = stages.iter().filter_map(|s| s.part.as_ref()).map(|p| &p.1);
        let whole = |p: &dvm::plan::Plan| {
            p.calls.iter().filter(|c| p.kernels[c.kernel.index()].contraction().is_some()).count()
        };
        assert_eq!(plans.map(|p| whole(p)).sum::<usize>(), layers, "{model}");
    }
}

#[test]
fn magika() {
    goldens("magika", 3, 60, (1, 4), &[]);
}

#[test]
fn silero_vad() {
    // Both sample rates, each a plan: its nested branches are decided by shapes and the rate.
    goldens("silero_vad", 4, 60, (2, 4), &[("stateN", "state")]);
}

#[test]
fn llama_tiny() {
    goldens("llama-tiny", 2, 200, (1, 4), &[]);
}

/// The experts run side by side, each layer of all eight in one step, and a run is one launch, at every batch.
#[test]
fn mmoe_experts_are_stacked() {
    let Some(shared) = shared() else { return };
    let module = Module::load(shared.join("models/mmoe.onnx")).unwrap();
    let notes = module.explain(&[], &[], true).unwrap();
    let plan = notes[0].plan.as_ref().unwrap();
    for layer in [0, 2, 4] {
        let mut levels: Vec<u32> = (0..8)
            .map(|e| {
                let name = format!("experts.{e}.{layer}/Gemm");
                let mine = |c: &&dvm::explain::CallNote| c.ops.iter().any(|o| o.contains(&name));
                plan.calls.iter().find(mine).unwrap_or_else(|| panic!("{name} is in no kernel")).level
            })
            .collect();
        levels.dedup();
        assert_eq!(levels.len(), 1, "layer {layer} of the experts: levels {levels:?}");
        assert!(plan.levels[levels[0] as usize].len() >= 8, "eight kernels side by side");
    }
    let mut session = Session::new(&module, Options::default()).unwrap();
    let graph = module.graph(&[], &[]).unwrap();
    let symbol = graph.dims.symbols().next().unwrap().1.to_string();
    for batch in [1, 2, 7, 64, 300] {
        let (_, shapes) = dvm::input_shapes(&graph, &[], &[(symbol.clone(), batch)]).unwrap();
        let inputs = graph.inputs.iter().zip(&shapes);
        let fill = |(i, s): (&dvm::Input, &Vec<usize>)| {
            (i.name.clone(), dvm::fill::fill(&i.name, graph.dtype(i.value), s).unwrap())
        };
        session.run(inputs.map(fill).collect::<Vec<_>>()).unwrap();
        let r = session.last_run();
        assert_eq!((r.launches, r.kernels), (1, plan.calls.len()), "batch {batch}: {r}");
        assert_eq!(r.steps, plan.levels.len(), "batch {batch}: {r}");
    }
}
