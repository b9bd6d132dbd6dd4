//! Broken and hostile files, through everything a command does with them: errors, never a panic, an abort or a huge
//! allocation. Each suite runs in a child whose address space is limited.

#[path = "../../dvm-onnx/tests/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use common::mutants::{Rng, mutate, seeds};
use dvm::bc::{Bundle, Code, Layout, Role, bundle};
use dvm::{
    BundleSession, Inspection, Module, Options, Outputs, Session, Tensor, compile_bundle, fill, input_shapes,
};
use prost::Message;

/// Address space of a child in KiB: 1 GB and the binary.
const LIMIT_KIB: u64 = (1 << 20) + (256 << 10);

/// Runs this test again in a child with little memory; true in the child.
fn in_child(test: &str) -> bool {
    if std::env::var_os("DVM_HOSTILE_CHILD").is_some() {
        return true;
    }
    if !cfg!(target_os = "linux") {
        // Without the limit the mutants still must not panic.
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let script = format!("ulimit -v {LIMIT_KIB} && exec \"$0\" --exact {test} --nocapture --test-threads 1");
    let out =
        Command::new("sh").args(["-c", &script]).arg(exe).env("DVM_HOSTILE_CHILD", "1").output().unwrap();
    let tail = |b: &[u8]| String::from_utf8_lossy(&b[b.len().saturating_sub(3000)..]).into_owned();
    assert!(out.status.success(), "{}\n{}\n{}", out.status, tail(&out.stdout), tail(&out.stderr));
    println!("{}", tail(&out.stdout));
    false
}

fn rounds() -> usize {
    let scale: usize = std::env::var("DVM_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    10_000 * scale
}

fn options() -> Options {
    let mut o = Options::default();
    o.threads = Some(1);
    o.max_bytes = 48 << 20;
    o.timeout = Some(Duration::from_millis(300));
    o.max_tile_instructions = 1 << 18;
    o
}

/// How far a mutant came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Refused,
    Loaded,
    Ran,
}

/// Everything `inspect`, `explain`, `compile` and `run` do with a model.
fn use_model(bytes: &[u8], rng: &mut Rng) -> Stage {
    let _ = Inspection::of("mutant".as_ref(), bytes).map_err(|e| e.to_string());
    let Ok(module) = Module::from_onnx_bytes(bytes).map_err(|e| e.to_string()) else { return Stage::Refused };
    let Ok(graph) = module.graph(&[], &[]) else { return Stage::Loaded };
    let dims: Vec<(String, i64)> =
        graph.dims.symbols().map(|(_, n)| (n.to_string(), [0, 1, 2, 3, 5, 64][rng.below(6)])).collect();
    let Ok((_, shapes)) = input_shapes(&graph, &[], &dims).map_err(|e| e.to_string()) else {
        return Stage::Loaded;
    };
    let size = |(i, s): (&dvm::Input, &Vec<usize>)| {
        s.iter().fold(graph.dtype(i.value).size(), |n, &d| n.saturating_mul(d))
    };
    if graph.inputs.iter().zip(&shapes).map(size).fold(0, usize::saturating_add) > 16 << 20 {
        return Stage::Loaded;
    }
    // Extents whose product overflows before a 0 is met are refused here.
    let fill = |(i, s): (&dvm::Input, &Vec<usize>)| {
        fill::fill(&i.name, graph.dtype(i.value), s).map(|t| (i.name.clone(), t))
    };
    let Ok(inputs) = graph.inputs.iter().zip(&shapes).map(fill).collect::<Result<Vec<(String, Tensor)>, _>>()
    else {
        return Stage::Loaded;
    };
    let run = || -> Result<(), dvm::Error> {
        let mut session = Session::new(&module, options())?;
        session.run_into(&inputs, &mut Outputs::new())?;
        session.bundle(&inputs, true)?.0.to_bytes()?;
        Ok(())
    };
    match run() {
        Ok(()) => Stage::Ran,
        Err(e) => {
            let text = e.to_string();
            assert!(
                !text.contains("does not verify"),
                "the compiler made a program that does not verify: {text}"
            );
            Stage::Loaded
        }
    }
}

/// Everything `inspect`, `disasm` and `run` do with a bundle.
fn use_bundle(bytes: &[u8]) -> Stage {
    let _ = Inspection::of("mutant".as_ref(), bytes).map_err(|e| e.to_string());
    let Ok(b) = Bundle::from_bytes(bytes).map_err(|e| e.to_string()) else { return Stage::Refused };
    assert!(!b.to_text().is_empty());
    let run = || -> Result<(), dvm::Error> {
        let mut session = BundleSession::from_bytes(bytes, None, &options())?;
        let inputs = session.complete_inputs(&[])?;
        session.run_into(&inputs, &mut Outputs::new())
    };
    match run().map_err(|e| e.to_string()) {
        Ok(()) => Stage::Ran,
        Err(_) => Stage::Loaded,
    }
}

/// Runs mutants, reporting the first that panics; returns how many reached each stage.
fn survive(mut next: impl FnMut(usize) -> Vec<u8>, mut stage: impl FnMut(&[u8]) -> Stage) -> [usize; 3] {
    let mut counts = [0; 3];
    for round in 0..rounds() {
        let bytes = next(round);
        let reached = catch_unwind(AssertUnwindSafe(|| stage(&bytes)))
            .unwrap_or_else(|_| panic!("mutant of round {round} panicked"));
        counts[reached as usize] += 1;
    }
    println!("refused {}, loaded {}, ran {}", counts[0], counts[1], counts[2]);
    counts
}

#[test]
fn onnx_mutants() {
    if !in_child("onnx_mutants") {
        return;
    }
    let models = seeds();
    let (mut rng, mut dims) = (Rng(0xfeed), Rng(7));
    let next = |round: usize| {
        let mut m = models[round % models.len()].clone();
        if round % 4 != 3 {
            for _ in 0..=rng.below(3) {
                mutate(&mut m, &mut rng);
            }
            return m.encode_to_vec();
        }
        let mut b = m.encode_to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(b.len());
            b[at] = rng.next() as u8;
        }
        b
    };
    let counts = survive(next, |b| use_model(b, &mut dims));
    assert!(counts[2] * 20 > rounds(), "too few mutants run: {counts:?}");
}

const BUNDLES: &[(&str, &[(&str, i64)])] = &[
    (
        "graph a(%x: f32[r, c], %y: f32[r, c]) -> (%o) { %s = add %x, %y\n %o = exp %s }",
        &[("r", 3), ("c", 70)],
    ),
    ("graph b(%x: f32[r, c]) -> (%o) { %o = softmax %x {axis = 1} }", &[("r", 5), ("c", 33)]),
    (
        "graph c(%a: f32[m, k], %b: f32[k, n], %z: f32[n]) -> (%o) { %p = matmul %a, %b {}\n %o = add %p, %z }",
        &[("m", 7), ("k", 9), ("n", 18)],
    ),
    (
        "graph d(%t: f32[v, w], %i: i64[n]) -> (%o) { %g = gather %t, %i {axis = 0}\n %o = neg %g }",
        &[("v", 16), ("w", 6), ("n", 4)],
    ),
    (
        "graph e(%x: i32[r, c]) -> (%o) { %t = transpose %x {perm = [1, 0]}\n %o = reduce %t {op = sum, axes = [1], keepdims = false} }",
        &[("r", 9), ("c", 5)],
    ),
];

/// Changes one thing of a decoded bundle, so that it gets past the checksum.
fn mutate_bundle(b: &mut Bundle, rng: &mut Rng) {
    const NUMBERS: [u64; 12] = [0, 1, 2, 3, 7, 63, 64, 1 << 16, 1 << 31, 1 << 32, 1 << 47, u64::MAX];
    let number = NUMBERS[rng.below(NUMBERS.len())];
    let near = |v: u64, rng: &mut Rng| v.wrapping_add(rng.below(9) as u64).wrapping_sub(4);
    let p = &mut b.programs[0];
    match rng.below(9) {
        0 => {
            let at = rng.below(p.args.len());
            let a = &mut p.args[at];
            match rng.below(5) {
                0 => a.bytes = number,
                1 => a.bytes = near(a.bytes, rng),
                2 => a.align = number as u32,
                3 => a.role = [Role::Input, Role::Output, Role::Weight, Role::Workspace][rng.below(4)],
                _ => a.layout = Layout::Panels { nr: 16, k: number, n: 18, batch: 1 },
            }
        }
        1 => {
            let t = rng.below(p.templates.len());
            let extents = &mut p.templates[t].parallel;
            if let Some(e) = extents.first_mut() {
                *e = if rng.below(2) == 0 { number as u32 } else { near(u64::from(*e), rng) as u32 };
            }
        }
        2 => {
            let s = rng.below(p.steps.len());
            let u = rng.below(p.steps[s].units.len());
            let unit = &mut p.steps[s].units[u];
            let at = rng.below(unit.slots.len());
            match rng.below(3) {
                0 => unit.slots[at].1 = number,
                1 => unit.slots[at].0 = rng.below(6) as u32,
                _ => unit.template = rng.below(4) as u32,
            }
        }
        3 => {
            let s = rng.below(p.steps.len());
            let again = p.steps[s].clone();
            if rng.below(2) == 0 {
                p.steps.push(again);
            } else {
                p.steps[s].units.extend(again.units);
            }
        }
        4 => {
            let ports = if rng.below(2) == 0 { &mut b.inputs } else { &mut b.outputs };
            let at = rng.below(ports.len());
            if let Some(d) = ports[at].shape.first_mut() {
                *d = number;
            }
        }
        _ => {
            let t = rng.below(p.templates.len());
            let phases = &mut p.templates[t].phases;
            let at = rng.below(phases.len());
            let sections = &mut phases[at].sections;
            let at = rng.below(sections.len());
            let mut words = sections[at].code.words().to_vec();
            if words.is_empty() {
                return;
            }
            let at2 = rng.below(words.len());
            match rng.below(4) {
                0 => words[at2] = number,
                1 => {
                    words.remove(at2);
                }
                // Near values stay in range more often than bit flips.
                2 => words[at2] = near(words[at2], rng),
                _ => words[at2] ^= 1 << rng.below(64),
            }
            sections[at].code = Code::from_words(words);
        }
    }
}

#[test]
fn bundle_mutants() {
    if !in_child("bundle_mutants") {
        return;
    }
    let mut seeds: Vec<Bundle> = Vec::new();
    for (text, dims) in BUNDLES {
        let module = Module::from_text(text).unwrap();
        let graph = module.graph(&[], &[]).unwrap();
        let dims: Vec<(String, i64)> = dims.iter().map(|&(n, v)| (n.to_string(), v)).collect();
        let (_, shapes) = input_shapes(&graph, &[], &dims).unwrap();
        let inputs: Vec<(String, Tensor)> = graph
            .inputs
            .iter()
            .zip(&shapes)
            .map(|(i, s)| (i.name.clone(), fill::fill(&i.name, graph.dtype(i.value), s).unwrap()))
            .collect();
        let (bundle, _) = compile_bundle(&module, &inputs, &options(), true).unwrap();
        assert_eq!(use_bundle(&bundle.to_bytes().unwrap()), Stage::Ran, "{text}");
        seeds.push(bundle);
    }
    let mut rng = Rng(0xbeef);
    let next = |round: usize| {
        let mut b = seeds[round % seeds.len()].clone();
        if round % 4 != 3 {
            for _ in 0..=rng.below(2) {
                mutate_bundle(&mut b, &mut rng);
            }
            if let Ok(bytes) = b.to_bytes() {
                return bytes;
            }
        }
        let mut bytes = seeds[round % seeds.len()].to_bytes().unwrap();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next() as u8;
        }
        bundle::seal(&mut bytes);
        bytes
    };
    let counts = survive(next, use_bundle);
    assert!(counts[2] * 50 > rounds(), "too few mutants run: {counts:?}");
}
