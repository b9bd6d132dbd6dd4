//! Kernels stacked by a user: values as of separate launches, one launch, limits of cores in the program.

use dvm::bc::{Bundle, CoreLimit, Program, asm, disasm};
use dvm::{DType, Graph, MachineSpec, Module, Options, Outputs, Session, Stack, Tensor};

/// A graph from its text.
fn part(text: &str) -> Graph {
    Graph::from_text(text).unwrap_or_else(|e| panic!("{}", e.render("part", text)))
}

fn softmax(from: &str, to: &str) -> Graph {
    part(&format!("graph {to}(%{from}: f32[b, s]) -> (%{to}) {{ %{to} = softmax %{from} {{axis = 1}} }}"))
}

/// Its dims have names of their own: they become those of what it reads.
fn project(from: &str, to: &str, seed: u32) -> Graph {
    part(&format!(
        "graph {to}(%{from}: f32[m, k], %w: f32[k, 24]) -> (%{to}) {{
           const %bias: f32[24] = uniform({seed})
           %product = matmul %{from}, %w
           %sum = add %product, %bias
           %{to} = gelu %sum {{tanh = false}}
         }}"
    ))
}

/// A column sum: another iteration space than everything else here.
fn columns(from: &str, to: &str) -> Graph {
    part(&format!(
        "graph {to}(%{from}: f32[rows, cols]) -> (%{to}) {{
           %{to} = reduce %{from} {{op = sum, axes = [0], keepdims = false}}
         }}"
    ))
}

type Named = Vec<(String, Tensor)>;

fn inputs(b: usize, s: usize) -> Named {
    let fill = |n: &str, shape: &[usize]| (n.to_string(), dvm::fill::fill(n, DType::F32, shape).unwrap());
    vec![fill("x", &[b, s]), fill("y", &[b, s]), fill("w", &[s, 24])]
}

/// One launch per part, in order; later parts read what earlier ones made.
fn apart(parts: &[Graph], inputs: &Named, options: &Options) -> Named {
    let mut all = inputs.clone();
    for g in parts {
        let mut s = Session::new(&Module::from_graph(g.clone()).unwrap(), options.clone()).unwrap();
        let mine = g.inputs.iter().map(|i| all.iter().rev().find(|(n, _)| *n == i.name).unwrap().clone());
        let out = s.run(mine.collect::<Vec<_>>()).unwrap();
        all.extend(out);
    }
    all
}

/// A stack with the graphs it is made of, its steps and the names of its outputs.
struct Case {
    name: &'static str,
    stack: fn() -> Stack,
    parts: fn() -> Vec<Graph>,
    steps: usize,
    outputs: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    fn kernels(parts: Vec<Graph>) -> impl Iterator<Item = Stack> {
        parts.into_iter().map(Stack::kernel)
    }
    vec![
        Case {
            name: "side by side",
            stack: || Stack::parallel(kernels(vec![softmax("x", "p"), project("y", "q", 1)])),
            parts: || vec![softmax("x", "p"), project("y", "q", 1)],
            steps: 1,
            outputs: &["p", "q"],
        },
        Case {
            name: "with limits",
            stack: || {
                Stack::parallel([
                    Stack::kernel(softmax("x", "p")).cores(1),
                    Stack::kernel(project("y", "q", 1)).cores(2),
                    Stack::kernel(columns("x", "c")),
                ])
            },
            parts: || vec![softmax("x", "p"), project("y", "q", 1), columns("x", "c")],
            steps: 1,
            outputs: &["p", "q", "c"],
        },
        Case {
            name: "more kernels than cores",
            stack: || {
                let all =
                    (0..9).map(|i| Stack::kernel(project(["x", "y"][i % 2], &format!("e{i}"), i as u32)));
                Stack::parallel(all.map(|s| s.cores(1)))
            },
            parts: || (0..9).map(|i| project(["x", "y"][i % 2], &format!("e{i}"), i as u32)).collect(),
            steps: 1,
            outputs: &["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"],
        },
        Case {
            name: "one after the other",
            stack: || {
                Stack::sequence(kernels(vec![softmax("x", "p"), project("p", "q", 2), columns("q", "c")]))
            },
            parts: || vec![softmax("x", "p"), project("p", "q", 2), columns("q", "c")],
            steps: 3,
            outputs: &["c"],
        },
        Case {
            name: "nested",
            stack: || {
                let left = Stack::sequence(kernels(vec![softmax("x", "p"), project("p", "q", 3)]));
                let right = Stack::sequence(kernels(vec![softmax("y", "r"), columns("r", "c")]));
                let both = Stack::parallel([left.cores(2), right.cores(1)]);
                Stack::sequence([both, Stack::kernel(columns("q", "d"))])
            },
            parts: || {
                vec![
                    softmax("x", "p"),
                    project("p", "q", 3),
                    softmax("y", "r"),
                    columns("r", "c"),
                    columns("q", "d"),
                ]
            },
            steps: 3,
            outputs: &["c", "d"],
        },
    ]
}

fn program(module: &Module, inputs: &Named, options: &Options) -> (Bundle, Program) {
    let (bundle, _) = dvm::compile_bundle(module, inputs, options, true).unwrap();
    let program = bundle.programs[0].clone();
    (bundle, program)
}

#[test]
fn values_are_those_of_separate_launches() {
    for spec in ["host-ref", "tiny", "ascend-910b2"] {
        for case in cases() {
            let module = Module::from_stack(case.name, (case.stack)()).unwrap();
            let parts = (case.parts)();
            for (b, s) in [(5, 7), (1, 1), (40, 33), (0, 3)] {
                let mut all: Vec<Outputs> = vec![];
                let given = inputs(b, s);
                let mut options = Options::default();
                options.spec = Some(MachineSpec::named(spec).unwrap());
                options.threads = Some(1);
                let want = apart(&parts, &given, &options);
                for threads in [1, 2, 3] {
                    options.threads = Some(threads);
                    let mut session = Session::new(&module, options.clone()).unwrap();
                    let used = |n: &str| module.graph(&[], &[]).unwrap().inputs.iter().any(|i| i.name == n);
                    let given: Named = given.iter().filter(|(n, _)| used(n)).cloned().collect();
                    let got = session.run(given).unwrap();
                    let report = session.last_run();
                    if b > 0 {
                        let what = format!("{} on {spec}, {threads} threads, {b}x{s}", case.name);
                        assert_eq!((report.launches, report.steps), (1, case.steps), "{what}");
                    }
                    all.push(got);
                }
                let names: Vec<&str> = all[0].keys().map(String::as_str).collect();
                assert_eq!(names, case.outputs, "{}", case.name);
                for got in &all {
                    for (name, t) in got {
                        let (_, want) = want.iter().rev().find(|(n, _)| n == name).unwrap();
                        assert_eq!(t, want, "{} on {spec}, {b}x{s}: `{name}`", case.name);
                    }
                }
            }
        }
    }
}

#[test]
fn limits_are_in_the_program() {
    let given = inputs(40, 33);
    let mut options = Options::default();
    options.spec = Some(MachineSpec::named("ascend-910b2").unwrap());
    let limits = |stack: Stack| -> Vec<Vec<CoreLimit>> {
        let module = Module::from_stack("limits", stack).unwrap();
        let graph = module.graph(&[], &[]).unwrap();
        let given: Named =
            given.iter().filter(|(n, _)| graph.inputs.iter().any(|i| i.name == *n)).cloned().collect();
        let (bundle, program) = program(&module, &given, &options);
        // Bytes and text keep them.
        assert_eq!(Bundle::from_bytes(&bundle.to_bytes().unwrap()).unwrap().programs[0], program);
        assert_eq!(asm(&disasm(&program)).unwrap(), program);
        program.steps.iter().map(|s| s.limits.clone()).collect()
    };
    let limit = |first, units, cores| CoreLimit { first, units, cores };
    let [p, q, r] = [softmax("x", "p"), columns("y", "q"), softmax("y", "r")].map(Stack::kernel);
    assert_eq!(
        limits(Stack::parallel([p.clone().cores(3), q.clone(), r.clone().cores(1000)])),
        [vec![limit(0, 1, 3), limit(2, 1, 48)]]
    );
    // A limit around several parts is one for all of them.
    let pair = Stack::parallel([p.clone(), q.clone().cores(7)]).cores(2);
    assert_eq!(limits(Stack::parallel([r.clone(), pair])), [vec![limit(1, 2, 2)]]);
    let row = Stack::sequence([p, Stack::kernel(columns("p", "c"))]).cores(2);
    assert_eq!(limits(Stack::parallel([row, r])), [vec![limit(0, 1, 2)], vec![limit(0, 1, 2)]]);
}

#[test]
fn stacks_that_do_not_fit_are_refused() {
    let k = Stack::kernel;
    let ids = part("graph ids(%x: i64[n]) -> (%z) { %z = neg %x }");
    let flat = part("graph flat(%x: f32[n]) -> (%z) { %z = neg %x }");
    let four = part("graph four(%p: f32[4, s]) -> (%z) { %z = neg %p }");
    let three = part("graph three(%w: f32[3, 4]) -> (%p) { %p = neg %w }");
    for (stack, says) in [
        (Stack::parallel([k(softmax("x", "p")), k(ids)]), "`x` is i64[n] here, but f32[b, s] before"),
        (Stack::parallel([k(softmax("x", "p")), k(flat)]), "`x` is f32[n] here, but f32[b, s] before"),
        (Stack::parallel([k(softmax("x", "p")), k(softmax("y", "p"))]), "output `p` is there already"),
        (Stack::parallel([k(softmax("x", "p")), k(columns("p", "c"))]), "put them in a sequence"),
        (Stack::sequence([k(three), k(four)]), "`p` is f32[4, s] here"),
        (Stack::sequence([k(part("graph same(%x: f32[n]) -> (%x) {\n}"))]), "output `x` is there already"),
        (Stack::parallel([k(softmax("x", "p")).cores(0)]), "0 cores"),
        (Stack::parallel([]), "without parts"),
    ] {
        let e = Module::from_stack("bad", stack).unwrap_err().to_string();
        assert!(e.contains(says), "{says}: {e}");
    }
    // Dims that only a binding tells apart.
    let sum = part("graph sum(%x: f32[a], %y: f32[a]) -> (%z) { %z = add %x, %y }");
    let [e, t] =
        ["x", "y"].map(|n| part(&format!("graph {n}(%{n}: f32[{n}]) -> (%e{n}) {{ %e{n} = exp %{n} }}")));
    let module =
        Module::from_stack("late", Stack::sequence([Stack::parallel([k(e), k(t)]), k(sum)])).unwrap();
    let mut session = Session::new(&module, Options::default()).unwrap();
    let vector = |n: usize| Tensor::from_slice(&[n], &vec![1f32; n]).unwrap();
    session.run([("x", vector(3)), ("y", vector(3))]).unwrap();
    let e = session.run([("x", vector(3)), ("y", vector(4))]).unwrap_err().to_string();
    assert!(e.contains("part `sum`") && e.contains('3') && e.contains('4'), "{e}");
}

/// Independent experts of one plan share a step without being told to.
#[test]
fn the_automatic_form_stacks_too() {
    let text = "graph experts(%x: f32[b, 16]) -> (%y) {
        const %w0: f32[16, 8] = uniform(1)
        const %w1: f32[16, 12] = uniform(2)
        %h0 = matmul %x, %w0
        %g0 = gelu %h0 {tanh = false}
        %h1 = matmul %x, %w1
        %g1 = tanh %h1
        %s0 = softmax %g0 {axis = 1}
        %s1 = softmax %g1 {axis = 1}
        %y = concat %s0, %s1 {axis = 1}
    }";
    let module = Module::from_text(text).unwrap();
    let plan = module.plan(&[], &[], true).unwrap();
    assert_eq!(plan.levels.iter().map(|l| l.calls.len()).collect::<Vec<_>>(), [2, 2], "{plan}");
    let mut session = Session::new(&module, Options::default()).unwrap();
    for b in [1, 3, 64] {
        session.run([("x", dvm::fill::fill("x", DType::F32, &[b, 16]).unwrap())]).unwrap();
        let r = session.last_run();
        assert_eq!((r.launches, r.steps, r.kernels), (1, 2, 4), "{r}");
    }
}

/// However long it is, and though its program was never met before.
#[test]
fn a_long_sequence_is_one_launch() {
    let step = |i: usize| {
        // Kernels that differ, so that a plan of as many levels would be encoded in pieces.
        let op = ["exp", "tanh", "sqrt", "abs", "neg", "floor", "ceil"][i % 7];
        let (from, to) = (if i == 0 { "x".into() } else { format!("h{i}") }, format!("h{}", i + 1));
        Stack::kernel(part(&format!(
            "graph {to}(%{from}: f32[n, 16]) -> (%{to}) {{
               %m = reduce %{from} {{op = mean, axes = [{}], keepdims = true}}
               %d = sub %{from}, %m
               %a = abs %d
               %{to} = {op} %a
             }}",
            i % 2
        )))
    };
    let module = Module::from_stack("long", Stack::sequence((0..24).map(step))).unwrap();
    let mut session = Session::new(&module, Options::default()).unwrap();
    for n in [9, 70] {
        session.run([("x", dvm::fill::fill("x", DType::F32, &[n, 16]).unwrap())]).unwrap();
        let r = session.last_run();
        assert_eq!((r.launches, r.steps), (1, 24), "{r}");
    }
}
