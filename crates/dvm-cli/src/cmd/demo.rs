//! `dvm demo`: the bundled transformer over many shapes, every value checked.

use anyhow::{Context, Result, ensure};
use dvm::compare::{Tolerance, compare, max_difference};
use dvm::{Module, Outputs, Session, eval, fill, input_shapes};
use serde_json::json;

use crate::Outcome;
use crate::args::DemoArgs;
use crate::cmd::{options, say, say_json};
use crate::table::{Table, thousands};

/// A two-layer encoder with random weights, serialised IR; written by `cargo xtask demo-model`.
const MODEL: &[u8] = include_bytes!("../../assets/demo.dvmg");

/// (batch, length) pairs, none a multiple of the next, 1 among them.
const SHAPES: [(i64, i64); 12] = [
    (1, 1),
    (1, 7),
    (1, 17),
    (2, 5),
    (3, 33),
    (1, 64),
    (2, 48),
    (4, 13),
    (1, 100),
    (5, 21),
    (2, 77),
    (1, 128),
];

const NEXT: &str = "
Every shape above ran in one session: planned once, then encoded for each new shape in microseconds.
Next:
  dvm run model.onnx --dim batch=1 --dim seq=17     run your own model, any shape
  dvm inspect model.onnx                            see its symbols, ops, and what is unsupported
  dvm explain model.onnx                            see which ops became which kernel, and why not more
  dvm compile model.onnx --dim seq=17 -o m.dvmb     keep the bytecode; `dvm disasm m.dvmb` prints it
";

pub(crate) fn demo(a: &DemoArgs) -> Result<Outcome> {
    let module = Module::from_bytes(MODEL).context("the bundled model")?;
    let graph = module.graph(&[], &[])?;
    let mut session = Session::new(&module, options(&a.engine, MODEL.len() as u64)?)?;
    let mut outputs = Outputs::new();
    let mut table =
        Table::new(&["batch x len", "compile µs", "run µs", "kernels", "bytecode B", "max difference"]);
    let mut runs = Vec::new();
    for (b, s) in SHAPES {
        let (_, shapes) = input_shapes(&graph, &[], &[("batch".into(), b), ("seq".into(), s)])?;
        let mut inputs = Vec::new();
        for (input, shape) in graph.inputs.iter().zip(&shapes) {
            inputs.push((input.name.clone(), fill::fill(&input.name, graph.dtype(input.value), shape)?));
        }
        session.run_into(&inputs, &mut outputs)?;
        let r = session.last_run().clone();
        let expected = eval::eval_graph(&graph, &inputs).context("reference evaluator")?;
        ensure!(!outputs.is_empty() && outputs.len() == expected.len(), "the model has no outputs");
        let mut worst = 0f64;
        for ((name, got), want) in outputs.iter().zip(&expected) {
            compare(got, want, Tolerance { rtol: 1e-4, atol: 1e-5 })
                .map_err(|d| anyhow::anyhow!("batch {b}, length {s}: output `{name}` {d}"))?;
            worst = worst.max(max_difference(got, want));
        }
        table.row(vec![
            format!("{b} x {s}"),
            format!("{:.1}", r.compile_us),
            format!("{:.1}", r.run_us),
            r.kernels.to_string(),
            thousands(r.bytecode_bytes),
            format!("{worst:.1e}"),
        ]);
        runs.push(
            json!({"batch": b, "seq": s, "compile_us": r.compile_us, "run_us": r.run_us, "kernels": r.kernels,
            "bytecode_bytes": r.bytecode_bytes, "max_difference": worst}),
        );
    }
    if a.json {
        say_json(&json!({"version": 1, "runs": runs}))?;
    } else {
        say(&format!("{table}{NEXT}"))?;
    }
    Ok(Outcome::Right)
}
