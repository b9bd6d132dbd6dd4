//! Graphs with controls in a session, compared with the reference evaluator.

use dvm::ir::testing::Rng;
use dvm::ir::testing::controls::{GROW, IF_ELSE_ADD, MASK, READ, SCAN, random_controls};
use dvm::{Graph, Module, Options, Session, Tensor, eval};

fn options(fuse: bool) -> Options {
    let mut o = Options::default();
    (o.threads, o.fuse) = (Some(1), fuse);
    o
}
fn f(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(shape, data).unwrap()
}
fn named(inputs: &[(&str, Tensor)]) -> Vec<(String, Tensor)> {
    inputs.iter().map(|(n, t)| ((*n).to_string(), t.clone())).collect()
}

/// Runs a graph for several inputs in one session, fused and not, against the evaluator.
fn check(graph: &Graph, runs: &[Vec<(String, Tensor)>]) {
    let module = Module::from_graph(graph.clone()).unwrap_or_else(|e| panic!("{}: {e}\n{graph}", graph.name));
    for fuse in [true, false] {
        let mut session = Session::new(&module, options(fuse)).unwrap();
        for inputs in runs {
            let want =
                eval::eval_graph(graph, inputs).unwrap_or_else(|e| panic!("{}: {e}\n{graph}", graph.name));
            // Twice: the second run finds everything in the caches.
            for again in [false, true] {
                let got = session
                    .run(inputs.iter().cloned())
                    .unwrap_or_else(|e| panic!("{}, fuse {fuse}: {e}\n{graph}", graph.name));
                assert_eq!(got.len(), want.len());
                for ((name, got), want) in got.iter().zip(&want) {
                    let values = |t: &Tensor| (0..t.len()).map(|i| t.get(i).as_f64()).collect::<Vec<_>>();
                    let same = got.shape() == want.shape() && values(got) == values(want);
                    let (g, w) = (values(got), values(want));
                    assert!(
                        same,
                        "{} {name}, fuse {fuse}, again {again}: {g:?}, want {w:?}\n{graph}",
                        graph.name
                    );
                }
                assert!(!again || session.last_run().cache_hit, "{}", graph.name);
            }
        }
    }
}

fn text(source: &str) -> Graph {
    Graph::from_text(source).unwrap_or_else(|e| panic!("{}", e.render("test", source)))
}

#[test]
fn if_else_add() {
    let run = |x: &[f32], y: &[f32]| named(&[("x", f(&[x.len()], x)), ("y", f(&[y.len()], y))]);
    let g = text(IF_ELSE_ADD);
    check(&g, &[run(&[1.0, 2.0], &[3.0, 5.0]), run(&[-1.0, 0.5, 0.0], &[3.0, 5.0, 1.0]), run(&[], &[])]);
    // One program for the predicate, one for the branch.
    let mut s = Session::new(&Module::from_graph(g).unwrap(), options(true)).unwrap();
    s.run(run(&[1.0, 2.0], &[3.0, 5.0])).unwrap();
    assert_eq!((s.last_run().launches, s.last_run().kernels), (2, 2));
    // The other branch is planned and encoded when it is first taken.
    s.run(run(&[-1.0, -2.0], &[3.0, 5.0])).unwrap();
    assert!(!s.last_run().cache_hit);
    s.run(run(&[1.0, -2.0], &[3.0, 5.0])).unwrap();
    assert!(s.last_run().cache_hit);
}

#[test]
fn loops() {
    let rows = |t: usize| named(&[("x", f(&[t, 2], &(0..2 * t).map(|i| i as f32).collect::<Vec<_>>()))]);
    let g = text(SCAN);
    check(&g, &[rows(3), rows(1), rows(0), rows(7)]);
    let mut s = Session::new(&Module::from_graph(g).unwrap(), options(true)).unwrap();
    s.run(rows(5)).unwrap();
    assert_eq!(s.last_run().launches, 6, "the initial value, and one an iteration");
    // More iterations of known shapes need no new program of the body, and no more memory than their results.
    s.run(rows(1000)).unwrap();
    assert_eq!(s.last_run().launches, 1001);
    let held = s.last_run().peak_bytes;
    assert!(
        (16_000..40_000).contains(&held),
        "{held} bytes for 1000 rows of 8 bytes, twice while they are joined"
    );

    let grow = |n: usize, limit: i64| {
        named(&[("x", f(&[n], &vec![1.0; n])), ("limit", Tensor::from_slice(&[], &[limit]).unwrap())])
    };
    check(&text(GROW), &[grow(3, 10), grow(1, 1), grow(4, 4), grow(0, 5), grow(1, 300)]);
}

#[test]
fn shapes_from_data() {
    let x = |v: &[f32]| named(&[("x", f(&[v.len()], v))]);
    check(&text(MASK), &[x(&[1.0, -1.0, f32::NAN, 3.0]), x(&[0.0, -0.0]), x(&[]), x(&[5.0])]);
    let n = |n: i64| named(&[("x", Tensor::from_slice(&[1], &[n]).unwrap())]);
    check(&text(READ), &[n(2), n(0), n(4)]);
    let mut s = Session::new(&Module::from_graph(text(READ)).unwrap(), options(true)).unwrap();
    let e = s.run(n(5)).unwrap_err().to_string();
    assert_eq!(e, "read \"size\": result 0 is 10, declared `k` in 0..=9");
}

#[test]
fn limits() {
    let grow = named(&[("x", f(&[1], &[1.0])), ("limit", Tensor::from_slice(&[], &[i64::MAX / 4]).unwrap())]);
    let run = |text: &str, o: Options, inputs: &[(String, Tensor)]| {
        let module = Module::from_text(text).unwrap();
        Session::new(&module, o).unwrap().run(inputs.iter().cloned()).unwrap_err().to_string()
    };
    let mut small = options(true);
    small.max_bytes = 1 << 16;
    let e = run(GROW, small, &grow);
    assert!(e.starts_with("loop, iteration 13: ") && e.contains("the limit is 65536"), "{e}");

    let endless = GROW.replace("= 100\n", "= 9223372036854775807\n");
    let empty = named(&[("x", f(&[0], &[])), ("limit", Tensor::from_slice(&[], &[5i64]).unwrap())]);
    let mut few = options(true);
    few.max_iterations = 1000;
    assert_eq!(run(&endless, few, &empty), "loop, iteration 1000: more than 1000 iterations");
    let mut short = options(true);
    short.timeout = Some(std::time::Duration::from_millis(20));
    let e = run(&endless, short, &empty);
    assert!(e.contains("deadline passed"), "{e}");
}

/// Nested controls, shapes from data, values that are exact: the same bits from everywhere.
#[test]
fn random_graphs() {
    let (mut controls, mut nested) = (0, 0);
    for seed in 0..150 {
        let g = random_controls(seed);
        let again =
            Graph::from_text(&g.to_text()).unwrap_or_else(|e| panic!("{}", e.render("g", &g.to_text())));
        assert_eq!(again.to_text(), g.to_text(), "seed {seed}");
        assert_eq!(Graph::from_bytes(&g.to_bytes()).unwrap().to_text(), g.to_text(), "seed {seed}");
        controls += g.controls.len();
        nested += g.controls.iter().flat_map(|c| &c.bodies).map(|b| b.controls.len()).sum::<usize>();
        let mut rng = Rng::new(seed);
        let mut numbers = |n: usize| (0..n).map(|_| rng.int(-3, 3) as f32).collect::<Vec<_>>();
        let runs: Vec<_> = [3, 0, 1, 5]
            .into_iter()
            .map(|s| named(&[("x", f(&[s], &numbers(s))), ("y", f(&[s, 4], &numbers(4 * s)))]))
            .collect();
        check(&g, &runs);
    }
    assert!(controls > 300 && nested > 100, "{controls} controls, {nested} in bodies");
}
