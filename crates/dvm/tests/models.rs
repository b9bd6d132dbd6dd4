//! Models whose weights are extents: planned, compiled and written, never run.

use dvm::testing::models::{MODELS, ShapeModel};
use dvm::{Graph, MachineSpec, Module, Options, Session, fill, timing};
use dvm_ir::{DType, Tensor};

/// Parameters as published, in millions, and by how much they may differ (embeddings of positions, biases).
#[test]
fn sizes_are_the_published_ones() {
    for (name, millions) in [("bert-base", 109.5), ("qwen3-14b", 14_768.0), ("llama-3.1-8b", 8_030.0)] {
        let graph = ShapeModel::named(name).unwrap().graph().unwrap();
        let count: usize = graph.constants.iter().filter(|c| !c.has_data()).map(Tensor::len).sum();
        let found = count as f64 / 1e6;
        assert!((found / millions - 1.0).abs() < 0.005, "{name}: {found} million parameters, not {millions}");
    }
}

#[test]
fn every_model_verifies_and_keeps_its_text() {
    for m in MODELS {
        let graph = m.graph().unwrap();
        assert!(graph.verify().is_ok(), "{}", m.name);
        let again = Graph::from_text(&graph.to_text()).unwrap_or_else(|e| panic!("{}: {e}", m.name));
        assert_eq!(
            (&again.nodes.len(), &again.constants),
            (&graph.nodes.len(), &graph.constants),
            "{}",
            m.name
        );
        let again = Graph::from_bytes(&graph.to_bytes()).unwrap_or_else(|e| panic!("{}: {e}", m.name));
        assert_eq!(again.constants, graph.constants, "{}", m.name);
    }
}

/// Small enough for the checks of debug builds; the larger shapes go through `cargo xtask models --compile`.
#[test]
fn models_compile_without_data() {
    let spec = MachineSpec::named("ascend-910b2").unwrap();
    for (name, dims) in [("mmoe", &[("batch", 512)][..]), ("bert-base", &[("batch", 1), ("seq", 32)])] {
        let module = Module::from_graph(ShapeModel::named(name).unwrap().graph().unwrap()).unwrap();
        let dims: Vec<(String, i64)> = dims.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        let p = timing::prepare(&module, &[], &dims, &spec, true).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(p.compile_us > 0.0 && p.code_bytes() > 0);
        assert_eq!(p.ops().len(), p.program().templates.len());
        let unknown = timing::prepare(&module, &[], &[("length".into(), 1)], &spec, true).unwrap_err();
        assert!(unknown.to_string().contains("no symbol `length`"), "{unknown}");
    }
}

#[test]
fn a_constant_without_data_cannot_be_read() {
    let text = "graph g(%x: f32[n, 64]) -> (%z) {
      const %w: f32[64, 64] = no_data
      const %b: f32[64] = no_data
      %m = matmul %x, %w
      %z = add %m, %b
    }";
    let x = vec![("x".to_owned(), fill::fill("x", DType::F32, &[3, 64]).unwrap())];
    let module = Module::from_text(text).unwrap();
    let mut session = Session::new(&module, Options::default()).unwrap();
    session.prepare(&x).unwrap();
    let refused = session.run(x.clone()).unwrap_err().to_string();
    assert!(refused.contains("has a shape and no data"), "{refused}");
    assert!(session.bundle(&x, true).unwrap_err().to_string().contains("no data"));
    let (bundle, _) = session.bundle(&x, false).unwrap();
    assert!(bundle.weights.iter().all(|w| w.data.is_none() && w.bytes > 0));
    let graph = Graph::from_text(text).unwrap();
    assert!(dvm::eval::eval_graph(&graph, &x).unwrap_err().to_string().contains("no data"));
}
