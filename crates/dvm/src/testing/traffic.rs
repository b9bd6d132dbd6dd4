//! Memory traffic of some kernels, fused and not, against the least there can be: what the table in docs/traffic.md shows and a
//! test holds to its promises.

use std::fmt::Write;

use dvm_ir::plan::BufferKind;
use dvm_ir::{DType, Plan, Tensor};
use dvm_npu::MachineSpec;

use crate::{Error, Module, Options, Session, fill};

/// A kernel or a few, with shapes to measure them at.
#[derive(Clone, Copy, Debug)]
pub struct TrafficCase {
    /// Name.
    pub name: &'static str,
    /// The graph.
    pub text: &'static str,
    /// Reductions that need one another's results: so many times a long row is read again.
    pub passes: u64,
    /// Vector ops only, which make one kernel.
    pub vector: bool,
    /// Values of the symbols.
    pub shapes: &'static [&'static [(&'static str, i64)]],
}

const ROWS: &[&[(&str, i64)]] = &[
    &[("r", 512), ("c", 768)],
    &[("r", 100), ("c", 1000)],
    &[("r", 64), ("c", 4096)],
    &[("r", 3), ("c", 17)],
    &[("r", 2), ("c", 200_000)],
];

/// The cases of the table.
pub const TRAFFIC: &[TrafficCase] = &[
    TrafficCase {
        name: "softmax",
        text: "graph softmax(%x: f32[r, c]) -> (%y) { %y = softmax %x {axis = 1} }",
        passes: 2,
        vector: true,
        shapes: ROWS,
    },
    TrafficCase {
        name: "layer norm",
        text: "graph layer_norm(%x: f32[r, c], %w: f32[c], %b: f32[c]) -> (%y) {
                 %y = layer_norm %x, %w, %b {axis = 1, eps = 1e-5}
               }",
        passes: 2,
        vector: true,
        shapes: ROWS,
    },
    TrafficCase {
        name: "RMSNorm",
        text: "graph rms_norm(%x: f32[r, c], %w: f32[c]) -> (%y) { %y = rms_norm %x, %w {axis = 1, eps = 1e-5} }",
        passes: 1,
        vector: true,
        shapes: ROWS,
    },
    TrafficCase {
        name: "gelu MLP",
        text: "graph mlp(%x: f32[r, 256]) -> (%y) {
                 const %u: f32[256, 1024] = uniform(1)
                 const %b: f32[1024] = uniform(2)
                 const %d: f32[1024, 256] = uniform(3)
                 %h = matmul %x, %u
                 %h2 = add %h, %b
                 %g = gelu %h2 {tanh = false}
                 %p = matmul %g, %d
                 %y = add %p, %x
               }",
        passes: 0,
        vector: false,
        shapes: &[&[("r", 16)], &[("r", 512)]],
    },
    TrafficCase {
        name: "SwiGLU",
        text: "graph swiglu(%x: f32[r, 256]) -> (%y) {
                 const %u: f32[256, 1024] = uniform(1)
                 const %v: f32[256, 1024] = uniform(2)
                 const %d: f32[1024, 256] = uniform(3)
                 %a = matmul %x, %u
                 %s = silu %a
                 %b = matmul %x, %v
                 %h = mul %s, %b
                 %y = matmul %h, %d
               }",
        passes: 0,
        vector: false,
        shapes: &[&[("r", 16)], &[("r", 512)]],
    },
    TrafficCase {
        name: "attention",
        text: "graph attention(%q: f32[b, 8, s, 64], %k: f32[b, 8, s, 64], %v: f32[b, 8, s, 64]) -> (%o) {
                 const %scale: f32[] = [0.125]
                 %t = transpose %k {perm = [0, 1, 3, 2]}
                 %p = matmul %q, %t
                 %m = mul %p, %scale
                 %a = softmax %m {axis = 3}
                 %o = matmul %a, %v
               }",
        passes: 2,
        vector: false,
        shapes: &[&[("b", 1), ("s", 128)], &[("b", 1), ("s", 512)]],
    },
];

/// Bytes that a case moves at a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Loaded and stored, fused.
    pub fused: (u64, u64),
    /// Loaded and stored, every op a kernel of its own.
    pub unfused: (u64, u64),
    /// Each input (weights are inputs) and each output.
    pub least: (u64, u64),
    /// Kernels, fused and unfused.
    pub kernels: (usize, usize),
}

impl Traffic {
    /// What fused kernels move, in units of the least.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let sum = |(l, s): (u64, u64)| (l + s) as f64;
        sum(self.fused) / sum(self.least)
    }
}

/// Runs a case on a machine and counts.
///
/// # Errors
/// The case does not compile or run.
pub fn measure(case: &TrafficCase, shape: &[(&str, i64)], spec: &MachineSpec) -> Result<Traffic, Error> {
    let module = Module::from_text(case.text)?;
    let dims: Vec<(String, i64)> = shape.iter().map(|(n, v)| ((*n).to_string(), *v)).collect();
    let graph = module.graph(&[], &[])?;
    let (_, shapes) = crate::input_shapes(&graph, &[], &dims)?;
    let inputs: Vec<(String, Tensor)> = graph
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(i, s)| Ok((i.name.clone(), fill::fill(&i.name, DType::F32, s)?)))
        .collect::<Result<_, Error>>()?;
    let mut moved = vec![];
    let mut least = (0, 0);
    for fuse in [true, false] {
        let options = Options {
            fuse,
            traffic: true,
            // Which core runs which tile decides what a sticky load finds in place.
            threads: Some(1),
            spec: Some(spec.clone()),
            ..Options::default()
        };
        let mut session = Session::new(&module, options)?;
        let out = session.run(inputs.clone())?;
        let r = session.last_run();
        moved.push(((r.loaded_bytes, r.stored_bytes), r.kernels));
        let read = inputs.iter().map(|(_, t)| t.bytes().len() as u64).sum::<u64>();
        least = (
            read + constants(&*module.plan(&[], &[], true)?),
            out.values().map(|t| t.bytes().len() as u64).sum(),
        );
    }
    Ok(Traffic { fused: moved[0].0, unfused: moved[1].0, least, kernels: (moved[0].1, moved[1].1) })
}

/// Bytes of the constants that kernels read.
fn constants(plan: &Plan) -> u64 {
    let read = |b: usize| plan.calls.iter().any(|c| c.args.iter().any(|a| a.index() == b));
    let sizes = plan.buffers.iter().enumerate().filter_map(|(i, b)| match b.kind {
        BufferKind::Const(c) if read(i) => Some(plan.constants[c as usize].bytes().len() as u64),
        _ => None,
    });
    sizes.sum()
}

/// The table of docs/traffic.md.
///
/// # Errors
/// As [`measure`].
pub fn table(spec: &MachineSpec) -> Result<String, Error> {
    let mut out = String::from(
        "| | shape | kernels | loaded | stored | fused / least | kernels unfused | loaded unfused | stored unfused | unfused / fused |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for case in TRAFFIC {
        for shape in case.shapes {
            let t = measure(case, shape, spec)?;
            let dims: Vec<String> = shape.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
            let sum = |(l, s): (u64, u64)| (l + s) as f64;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | **{:.2}** | {} | {} | {} | {:.1} |",
                case.name,
                dims.join(", "),
                t.kernels.0,
                kib(t.fused.0),
                kib(t.fused.1),
                t.ratio(),
                t.kernels.1,
                kib(t.unfused.0),
                kib(t.unfused.1),
                sum(t.unfused) / sum(t.fused)
            );
        }
    }
    Ok(out)
}
