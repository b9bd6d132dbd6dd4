//! Boundaries that a fact removes: found by the explanation, given by the user.

mod common;

use common::check;
use dvm_fuse::{FuseOptions, explained, plan};
use dvm_ir::{Bindings, Graph};

/// `e` is stored and goes on into `z`, whose extent is another unless dims are related.
const CASES: &[(&str, &str, &str)] = &[
    (
        "graph equal(%x: f32[s0, 8], %y: f32[s1, 8]) -> (%e, %z) {
           %e = exp %x
           %t = tanh %y
           %z = mul %e, %t
         }",
        "s0 == s1",
        "s0 = s1",
    ),
    (
        "graph divides(%x: f32[s]) -> (%e, %z) {
           %e = exp %x
           %h = slice %e {start = [0], len = [4*floordiv(s, 4)], step = [1]}
           %z = tanh %h
         }",
        "s % 4 == 0",
        "s % 4 == 0",
    ),
    (
        "graph sized(%x: f32[s]) -> (%e, %z) {
           %e = exp %x
           %h = slice %e {start = [0], len = [16], step = [1]}
           %z = tanh %h
         }",
        "s == 16",
        "s = 16",
    ),
];

#[test]
fn what_is_missing_removes_the_boundary() {
    for (text, missing, assumption) in CASES {
        let graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{}", e.render("g", text)));
        let p = explained(&graph, &FuseOptions::default()).unwrap();
        let note = p.explain(&graph, &Bindings::new());
        assert_eq!(p.calls.len(), 2, "{p}");
        let found: Vec<&str> = note.boundaries.iter().flat_map(|b| &b.missing).map(String::as_str).collect();
        assert!(found.contains(missing), "{}: {missing} is not in {found:?}", note.name);
        assert!(note.to_string().contains("cannot prove"), "{note}");
        // Both the finding and what a user would write.
        for fact in [missing, assumption] {
            let mut g = graph.clone();
            g.assume_stated(fact).unwrap();
            let p = plan(&g, &FuseOptions::default()).unwrap();
            assert_eq!((p.calls.len(), p.boundaries.len()), (1, 0), "{fact}: {p}");
            let even: &[(&str, i64)] = &[("s0", 4), ("s1", 4), ("s", 16)];
            check(&g, &[even]);
        }
        // A plan without a question asks nothing.
        assert!(
            plan(&graph, &FuseOptions::default()).unwrap().boundaries.iter().all(|b| b.missing.is_empty())
        );
    }
}

#[test]
fn assumptions_that_make_no_sense_are_refused() {
    let mut g = Graph::from_text(CASES[0].0).unwrap();
    for (text, says) in [
        ("s0 = s9", "no symbol `s9`; the symbols are: s0, s1"),
        ("s0 =", "expected a dim"),
        ("s0", "expected `==`"),
        ("s0 < 0", "never holds"),
        ("s0 = s0 + 1", "never holds"),
        ("s0 = 4 5", "expected the end"),
        ("s0 % 0 == 1 )", "expected the end"),
    ] {
        let e = g.assume_stated(text).unwrap_err();
        assert!(e.contains(says) && e.contains(text), "{text}: {e}");
    }
    for text in ["s0 >= 1", "s0<=4096", "s0%64==0", "s1 % 64 = 0", "2*s0 == s1", "s0 in (1, s1)"] {
        Graph::from_text(CASES[0].0).unwrap().assume_stated(text).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn bytes_are_symbolic_and_concrete() {
    let text = "graph g(%x: f32[b, 8]) -> (%y) {
                  %e = exp %x
                  %y = tanh %e
                }";
    let graph = Graph::from_text(text).unwrap();
    let p = plan(&graph, &FuseOptions::default()).unwrap();
    let mut bindings = Bindings::new();
    let note = p.explain(&graph, &bindings);
    let bytes = &note.calls[0].bytes;
    assert_eq!(
        [&bytes.fused, &bytes.unfused, &bytes.saved].map(|s| s.expr.as_str()),
        ["64*b", "128*b", "64*b"]
    );
    assert_eq!(bytes.saved.value, None);
    bindings.bind(p.dims.find_symbol("b").unwrap(), 3).unwrap();
    assert_eq!(p.explain(&graph, &bindings).calls[0].bytes.saved.value, Some(192));
    assert_eq!(note.calls[0].ops, ["exp", "tanh"]);
    let svg = dvm_fuse::to_svg(&note);
    assert!(svg.starts_with("<svg") && svg.contains("exp_tanh") && svg.contains("saves 64*b"), "{svg}");
}
