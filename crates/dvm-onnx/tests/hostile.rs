//! Broken and hostile files are errors: no panic, no abort, no memory beyond what the input justifies.

mod common;

use common::mutants::{Rng, mutate, seeds};
use common::*;
use dvm_ir::DType;
use dvm_onnx::proto::*;
use dvm_onnx::{ImportError, ImportOptions, import, import_model, summary};
use prost::Message;

/// Import and summary must return, whatever they say.
fn survive(bytes: &[u8]) {
    let opts = ImportOptions::default();
    if let Err(e) = import(bytes, &opts) {
        assert!(!e.to_string().is_empty());
    }
    if let Ok(s) = summary(bytes, &opts) {
        assert!(!s.to_string().is_empty());
    }
}

#[test]
fn mutated_bytes() {
    let seeds: Vec<Vec<u8>> = seeds().iter().map(Message::encode_to_vec).collect();
    let mut rng = Rng(0x5eed);
    for round in 0..6000 {
        let mut b = seeds[round % seeds.len()].clone();
        match rng.below(4) {
            0 => b.truncate(rng.below(b.len())),
            1 => {
                let at = rng.below(b.len());
                b.splice(at..at, (0..rng.below(8)).map(|_| rng.0 as u8).collect::<Vec<_>>());
            }
            _ => {
                for _ in 0..=rng.below(4) {
                    let at = rng.below(b.len());
                    b[at] = rng.next() as u8;
                }
            }
        }
        survive(&b);
    }
}

#[test]
fn mutated_fields() {
    let seeds = seeds();
    let mut rng = Rng(0xf1e1d);
    for round in 0..6000 {
        let mut m = seeds[round % seeds.len()].clone();
        for _ in 0..=rng.below(3) {
            mutate(&mut m, &mut rng);
        }
        survive(&m.encode_to_vec());
    }
}

fn refused(m: &ModelProto, text: &str) {
    let e = import_model(m, &ImportOptions::default()).unwrap_err().to_string();
    assert!(e.contains(text), "{e:?} does not say {text:?}");
}

#[test]
fn functions_cannot_explode() {
    // Each calls the next twice; and one calls itself.
    let mut m = model(13).input("x", DType::F32, "n").node("my::F0(x) -> y", &[]).output("y");
    for i in 0..40 {
        m.0.functions.push(FunctionProto {
            name: Some(format!("F{i}")),
            domain: Some("my".into()),
            input: vec!["a".into()],
            output: vec!["c".into()],
            node: vec![
                node(&format!("my::F{}(a) -> b", i + 1), &[]),
                node(&format!("my::F{}(b) -> c", i + 1), &[]),
            ],
            ..Default::default()
        });
    }
    refused(&m.0, "nested more than");
    m.0.functions[0].node = vec![node("my::F0(a) -> c", &[])];
    refused(&m.0, "nested more than");
}

#[test]
fn sizes_are_not_believed() {
    // A tensor that claims more than the file holds.
    let mut m =
        model(13).input("x", DType::F32, "n").init("w", arange(&[2])).node("Add(x, w) -> y", &[]).output("y");
    m.0.graph.as_mut().unwrap().initializer[0].dims = vec![1 << 40, 1 << 20];
    refused(&m.0, "needs");
    // Huge constants stay symbolic: importing them takes no memory.
    let m = model(13)
        .ints("s", &[1 << 20, 1 << 20])
        .node("ConstantOfShape(s) -> a", &[])
        .node("Shape(a) -> y", &[])
        .output("y");
    assert!(import_model(&m.0, &ImportOptions::default()).is_ok());
    // Deep nesting stops in the decoder or the importer.
    let mut inner = GraphProto::default();
    for _ in 0..200 {
        let mut outer = GraphProto::default();
        outer.node.push(node("If(c) -> r", &[("then_branch", A::G(inner))]));
        inner = outer;
    }
    let m = ModelProto { graph: Some(inner), ..Default::default() };
    assert!(matches!(import(&m.encode_to_vec(), &ImportOptions::default()), Err(ImportError::Decode(_))));
}
