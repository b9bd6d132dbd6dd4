//! What sessions make of facts that a user knows, and the environment.

use dvm::{DType, Module, Options, Session, Tensor};

const TEXT: &str = "graph equal(%x: f32[s0, 8], %y: f32[s1, 8]) -> (%e, %z) {
    %e = exp %x
    %t = tanh %y
    %z = mul %e, %t
}";

fn inputs(s0: usize, s1: usize) -> Vec<(String, Tensor)> {
    let fill = |n: &str, rows| (n.to_string(), dvm::fill::fill(n, DType::F32, &[rows, 8]).unwrap());
    vec![fill("x", s0), fill("y", s1)]
}

#[test]
fn an_assumption_removes_a_boundary_and_is_checked() {
    let module = Module::from_text(TEXT).unwrap();
    let mut plain = Session::new(&module, Options::default()).unwrap();
    let mut options = Options::default();
    options.assume = vec!["s0 = s1".into(), "s0 % 4 == 0".into(), "s0 >= 4".into(), "s1 <= 12".into()];
    let mut assuming = Session::new(&module, options).unwrap();
    for s in [4, 8, 12] {
        let want = plain.run(inputs(s, s)).unwrap();
        assert_eq!(plain.last_run().kernels, 2);
        assert_eq!(assuming.run(inputs(s, s)).unwrap(), want);
        assert_eq!(assuming.last_run().kernels, 1, "{s}");
    }
    // Other extents are right without the assumption, and an error that names dim, values and assumption with it.
    plain.run(inputs(4, 1)).unwrap();
    for (s0, s1, says) in [
        (8, 4, &["assumption `s0 = s1`", "`s0` is 8", "`s1` is 4"][..]),
        (6, 6, &["assumption `s0 % 4 == 0`", "`s0` is 6"]),
        (0, 0, &["assumption `s0 >= 4`", "`s0` is 0"]),
        (16, 16, &["assumption `s1 <= 12`", "`s1` is 16"]),
    ] {
        let e = assuming.run(inputs(s0, s1)).unwrap_err().to_string();
        assert!(says.iter().all(|s| e.contains(s)), "{s0}, {s1}: {e}");
    }
    let mut wrong = Options::default();
    wrong.assume = vec!["s0 = s7".into()];
    let e = Session::new(&module, wrong).unwrap_err().to_string();
    assert!(e.contains("no symbol `s7`") && e.contains("s0, s1"), "{e}");
}

#[test]
fn an_explanation_has_sizes_and_reasons() {
    let module = Module::from_text(TEXT).unwrap();
    let notes = module.explain(&[], &[("s0".into(), 4)], true).unwrap();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    let plan = note.plan.as_ref().unwrap();
    assert_eq!((plan.calls.len(), plan.boundaries.len()), (2, 1));
    assert_eq!(plan.boundaries[0].missing, ["s0 == s1"]);
    assert_eq!(
        (plan.boundaries[0].bytes.expr.as_str(), plan.boundaries[0].bytes.value),
        ("32*s0", Some(128))
    );
    assert_eq!(plan.calls[0].bytes.saved.expr, "0", "one op saves nothing");
    let unfused = module.explain(&[], &[], false).unwrap();
    assert_eq!(unfused[0].plan.as_ref().unwrap().calls.len(), 3);
    let e = module.explain(&[], &[("nope".into(), 1)], true).unwrap_err().to_string();
    assert!(e.contains("nope") && e.contains("s0, s1"), "{e}");
}
