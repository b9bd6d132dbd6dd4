//! The same bits whatever the machine: number of cores, threads of the pool, size of local memory, instruction set, and whether a
//! long reduction is compiled in pieces.

#[path = "common/plans.rs"]
mod plans;

use dvm::testing::CASES;
use dvm_fuse::FuseOptions;
use dvm_ir::testing::{Config, random_graph, random_inputs};
use dvm_ir::{Bindings, Graph, Plan, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::Scratch;
use dvm_vm::{BuildOptions, Isa};

/// Divisors of the local memory of `host-ref`; cores and threads; elements from which on long reductions are in pieces.
const MACHINES: [(u64, u32, bool, u64); 8] = [
    (1, 1, true, u64::MAX),
    (1, 7, false, 1),
    (4, 2, true, 1),
    (4, 3, false, u64::MAX),
    (16, 7, true, u64::MAX),
    (16, 1, true, 1),
    (64, 3, true, 1),
    (64, 2, false, u64::MAX),
];

/// `host-ref` with less local memory and other cores.
fn machine(divisor: u64, cores: u32) -> MachineSpec {
    let mut spec = MachineSpec::named("host-ref").unwrap();
    let block = u64::from(spec.target.block);
    for s in &mut spec.target.spaces {
        s.bytes = (s.bytes / divisor).next_multiple_of(block);
    }
    spec.target.cores = cores;
    spec.costs.cube.cores = cores;
    spec
}

/// Equal bits; NaN equals NaN, whose payload and sign are open.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.bytes() == b.bytes()
        || (0..a.len()).all(|i| {
            let (x, y) = (a.get(i), b.get(i));
            x == y && x.as_f64().is_sign_negative() == y.as_f64().is_sign_negative()
                || (x.as_f64().is_nan() && y.as_f64().is_nan())
        })
}

/// Compiles and runs a plan on every machine; returns what differs, and counts runs.
fn check(name: &str, plan: &Plan, bindings: &Bindings, inputs: &[Tensor], runs: &mut usize) -> Vec<String> {
    let mut first: Option<Result<Vec<Tensor>, String>> = None;
    let mut problems = vec![];
    for (divisor, cores, best, split) in MACHINES {
        let spec = machine(divisor, cores);
        let mut scratch = Scratch::default();
        scratch.split(split);
        let mut options = BuildOptions::default();
        options.isa = if best { Isa::detect() } else { Isa::Portable };
        let got = plans::run_on(cores as usize, plan, bindings, inputs, &spec, &mut scratch, &options);
        let what = format!("{name}: local memory / {divisor}, {cores} cores, {:?}, {split}", options.isa);
        match (first.as_ref(), got) {
            // What does not fit is an error that says so.
            (_, Err(e)) if divisor > 1 && e.starts_with("compile:") && e.contains("bytes of") => continue,
            (None, got) => first = Some(got),
            (Some(Ok(a)), Ok(b)) => {
                for (o, (a, b)) in a.iter().zip(&b).enumerate() {
                    if !same(a, b) {
                        let n = (0..a.len()).filter(|&i| a.get(i) != b.get(i)).count();
                        problems.push(format!("{what}: output {o} differs in {n} of {}", a.len()));
                    }
                }
            }
            // A trap is the same trap.
            (Some(Err(a)), Err(b)) if a.starts_with("launch:") && b.starts_with("launch:") => {}
            (Some(a), b) => {
                let text = |r: &Result<Vec<Tensor>, String>| r.as_ref().err().cloned().unwrap_or_default();
                problems.push(format!("{what}: {} {}", text(a), text(&b)));
            }
        }
        *runs += 1;
    }
    problems
}

fn plan(graph: &Graph) -> Plan {
    dvm_fuse::plan(graph, &FuseOptions::default()).unwrap()
}

#[test]
fn random_kernels() {
    let (mut problems, mut runs, mut graphs) = (vec![], 0, 0);
    for seed in 1000..1130 {
        let random = random_graph(seed, &Config::default());
        let plan = plan(&random.graph);
        for i in 0..random.bindings.len().min(2) {
            let inputs: Vec<_> = random.inputs(i, seed).into_iter().map(|(_, t)| t).collect();
            let name = format!("seed {seed}, binding {i}");
            problems.extend(check(&name, &plan, &random.bindings[i], &inputs, &mut runs));
        }
        graphs += 1;
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(runs > 6 * graphs, "{runs} runs");
}

/// Binds `n=3 m=4` in a plan.
fn bind(plan: &Plan, dims: &str) -> Bindings {
    let mut bindings = Bindings::new();
    for word in dims.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        bindings.bind(plan.dims.find_symbol(name).unwrap(), value.parse().unwrap()).unwrap();
    }
    bindings
}

fn check_text(name: &str, text: &str, dims: &str, runs: &mut usize) -> Vec<String> {
    let graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{}", e.render(name, text)));
    let plan = plan(&graph);
    let bindings = bind(&plan, dims);
    let mut named = Bindings::new();
    for word in dims.split_whitespace() {
        let (symbol, value) = word.split_once('=').unwrap();
        named.bind(graph.dims.find_symbol(symbol).unwrap(), value.parse().unwrap()).unwrap();
    }
    let named = random_inputs(&graph, &named, 7).unwrap();
    let inputs: Vec<_> = named.into_iter().map(|(_, t)| t).collect();
    check(&format!("{name} {dims}"), &plan, &bindings, &inputs, runs)
}

#[test]
fn cases() {
    let (mut problems, mut runs) = (vec![], 0);
    for case in CASES {
        problems.extend(check_text(case.name, &case.text(), case.small, &mut runs));
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(runs > 5 * CASES.len(), "{runs} runs");
}

/// Reductions whose axes do not fit, in every arrangement, with what depends on them.
#[test]
fn long_reductions() {
    let kinds = [
        ("sum", "  %z = reduce %x {op = sum, axes = [AXES]}\n"),
        ("mean_square", "  %y = mul %x, %x\n  %z = reduce %y {op = mean, axes = [AXES]}\n"),
        ("prod", "  %z = reduce %x {op = prod, axes = [AXES]}\n"),
        (
            "max_and_sum",
            "  %m = reduce %x {op = max, axes = [AXES], keepdims = true}\n  %d = sub %x, %m\n  %z = reduce %d {op = sum, axes = [AXES]}\n",
        ),
        (
            "normal",
            "  %m = reduce %x {op = mean, axes = [AXES], keepdims = true}\n  %d = sub %x, %m\n  %q = mul %d, %d\n  %v = reduce %q {op = mean, axes = [AXES], keepdims = true}\n  %z = div %d, %v\n",
        ),
    ];
    // One reduction walks an axis that another keeps; a sum and what it is a sum of in one kernel.
    let crossed = "graph g(%x: f32[a, b]) -> (%y, %z, %t) {\n  %y = softmax %x {axis = 1}\n  %z = reduce %y {op = sum, axes = [0]}\n  %t = reduce %x {op = sum, axes = [0, 1]}\n}\n";
    let shapes = [
        ("a, b, c", "a=3 b=5000 c=1", "1"),
        ("a, b, c", "a=2 b=3000 c=3", "1"),
        ("a, b, c", "a=40 b=30 c=50", "0, 2"),
        ("a, b, c", "a=40 b=30 c=50", "0, 1"),
        ("a, b, c", "a=3 b=2 c=20000", "0, 2"),
        ("a, b, c", "a=1 b=1 c=50001", "0, 1, 2"),
        ("a, b, c", "a=700 b=3 c=65", "0"),
        ("a, b, c", "a=1 b=70000 c=2", "1"),
        ("a, b, c", "a=9 b=100 c=200", "1, 2"),
        ("a, b, c", "a=5 b=3 c=60000", "0, 2"),
        // Strided, so that the axes do not fold.
        ("a, b, 2*c", "a=9 b=100 c=100", "1, 2"),
    ];
    let (mut problems, mut runs) = (vec![], 0);
    for dims in ["a=3 b=40000", "a=700 b=90", "a=70 b=5000"] {
        problems.extend(check_text("crossed", crossed, dims, &mut runs));
    }
    for dtype in ["f32", "f16", "f64"] {
        for (kind, body) in kinds {
            for (i, (shape, dims, axes)) in shapes.into_iter().enumerate() {
                if (dtype != "f32" && i % 3 != 0) || (kind == "prod" && dtype == "f16") {
                    continue;
                }
                let body = body.replace("AXES", axes);
                let text = if shape.contains('*') {
                    let body = body.replace("%x", "%s");
                    format!(
                        "graph g(%x: {dtype}[{shape}]) -> (%z) {{\n  %s = slice %x {{start = [0, 0, 0], len = [a, b, c], step = [1, 1, 2]}}\n{body}}}\n"
                    )
                } else {
                    format!("graph g(%x: {dtype}[{shape}]) -> (%z) {{\n{body}}}\n")
                };
                problems.extend(check_text(&format!("{kind} {dtype} [{axes}]"), &text, dims, &mut runs));
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(runs > 400, "{runs} runs");
}

/// Reductions that keep little are compiled in stages; those with enough rows are not.
#[test]
fn stages() {
    let softmax = "(%x: f32[a, b]) -> (%z) {\n  %z = softmax %x {axis = 1}\n}";
    let sum = |axis: &str| {
        format!("(%x: f32[a, b]) -> (%z) {{\n  %z = reduce %x {{op = sum, axes = [{axis}]}}\n}}")
    };
    for (text, dims, steps) in [
        (sum("0, 1"), "a=300 b=1000", 2),
        (sum("0, 1"), "a=30 b=1000", 1),
        (sum("1"), "a=3 b=100000", 2),
        (sum("1"), "a=300 b=1000", 1),
        (sum("0"), "a=100000 b=4", 2),
        (sum("0"), "a=100 b=40000", 1),
        (softmax.to_owned(), "a=1 b=500000", 5),
        (softmax.to_owned(), "a=500 b=1000", 1),
    ] {
        let plan = plan(&Graph::from_text(&format!("graph g{text}\n")).unwrap());
        let mut values = dvm_ir::DimValues::default();
        plan.dims.eval_all(&bind(&plan, dims), &mut values);
        for name in ["host-ref", "ascend-910b2"] {
            let spec = MachineSpec::named(name).unwrap();
            let compiled = dvm_tile::compile_plan(&plan, &values, &spec, &mut Scratch::default()).unwrap();
            assert_eq!(compiled.program.steps.len(), steps, "{text} {dims} on {name}");
        }
    }
}
