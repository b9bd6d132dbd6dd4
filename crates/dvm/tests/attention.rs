//! Attention is one kernel, with the bits that its parts give: every form of it, on every machine, for odd shapes.

#[path = "common/plans.rs"]
mod plans;

use dvm_fuse::FuseOptions;
use dvm_ir::{Bindings, DType, Graph, Plan, Scalar, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::{FoldRole, Scratch};
use dvm_vm::BuildOptions;

/// A form of attention: what follows `graph NAME` in its text, and dims to run it for.
struct Form {
    name: &'static str,
    text: &'static str,
    dims: &'static [&'static str],
}

const SELF: &[&str] = &[
    "b=2 m=17 n=17",
    "b=1 m=1 n=1",
    "b=1 m=5 n=64",
    "b=0 m=3 n=3",
    "b=1 m=0 n=4",
    "b=2 m=3 n=0",
    "b=4 m=40 n=33",
];
const LONG: &[&str] = &["b=1 m=130 n=129", "b=2 m=1 n=300", "b=1 m=64 n=1", "b=1 m=7 n=1030"];

const FORMS: &[Form] = &[
    Form { name: "plain", dims: SELF, text: "(%q: f32[b, m, 8], %k: f32[b, n, 8], %v: f32[b, n, 8]) -> (%z) {
  %s = matmul %q, %k {trans_b = true}
  %p = softmax %s {axis = 2}
  %z = matmul %p, %v
}" },
    Form { name: "two_axes", dims: &["m=17 n=17", "m=1 n=1", "m=3 n=50"], text: "(%q: f32[m, 8], %k: f32[8, n], %v: f32[n, 5]) -> (%z) {
  %s = matmul %q, %k
  %p = softmax %s {axis = 1}
  %z = matmul %p, %v
}" },
    // The scale after the product, an additive mask of one row a batch, heads split and merged.
    Form { name: "padding_mask", dims: SELF, text: "(%q: f32[b, m, 24], %k: f32[b, n, 24], %v: f32[b, n, 12], %x: f32[b, 1, 1, n]) -> (%z) {
  const %f: f32[] = [0.17677669]
  %q4 = reshape %q {shape = [b, m, 3, 8]}
  %k4 = reshape %k {shape = [b, n, 3, 8]}
  %v4 = reshape %v {shape = [b, n, 3, 4]}
  %qt = transpose %q4 {perm = [0, 2, 1, 3]}
  %kt = transpose %k4 {perm = [0, 2, 3, 1]}
  %vt = transpose %v4 {perm = [0, 2, 1, 3]}
  %c = matmul %qt, %kt
  %d = mul %c, %f
  %e = add %d, %x
  %p = softmax %e {axis = 3}
  %o = matmul %p, %vt
  %ot = transpose %o {perm = [0, 2, 1, 3]}
  %z = reshape %ot {shape = [b, m, 12]}
}" },
    Form { name: "row_mask", dims: LONG, text: "(%q: f32[b, 2, m, 8], %k: f32[b, 2, n, 8], %v: f32[b, 2, n, 8], %x: f32[b, 1, m, n]) -> (%z) {
  %s = matmul %q, %k {trans_b = true}
  %e = add %s, %x
  %p = softmax %e {axis = 3}
  %z = matmul %p, %v
}" },
    Form { name: "shared_mask", dims: SELF, text: "(%q: f32[b, 2, m, 8], %k: f32[b, 2, n, 8], %v: f32[b, 2, n, 8], %x: f32[m, n]) -> (%z) {
  const %f: f32[] = [0.3]
  %qs = mul %q, %f
  %s = matmul %qs, %k {trans_b = true}
  %e = add %s, %x
  %p = softmax %e {axis = 3}
  %z = matmul %p, %v
}" },
    Form { name: "where_mask", dims: SELF, text: "(%q: f32[b, 2, m, 8], %k: f32[b, 2, n, 8], %v: f32[b, 2, n, 8], %x: i64[b, 1, 1, n]) -> (%z) {
  const %one: i64[] = [1]
  const %low: f32[] = [-inf]
  %s = matmul %q, %k {trans_b = true}
  %c = eq %x, %one
  %e = select %c, %low, %s
  %p = softmax %e {axis = 3}
  %z = matmul %p, %v
}" },
    // Nothing but masked columns: the row is what the formula makes of it.
    Form { name: "masked_rows", dims: SELF, text: "(%q: f32[b, m, 8], %k: f32[b, n, 8], %v: f32[b, n, 8], %x: bool[m, 1]) -> (%z) {
  const %low: f32[] = [-inf]
  %s = matmul %q, %k {trans_b = true}
  %e = select %x, %low, %s
  %p = softmax %e {axis = 2}
  %z = matmul %p, %v
}" },
    Form { name: "causal", dims: SELF, text: "(%q: f32[b, 2, m, 8], %k: f32[b, 2, n, 8], %v: f32[b, 2, n, 8]) -> (%z) {
  const %low: f32[] = [-10000]
  const %f: f32[] = [0.3]
  %s = matmul %q, %k {trans_b = true}
  %d = mul %s, %f
  %r = range {start = n - m, step = 1, len = m, dtype = i64}
  %i = reshape %r {shape = [m, 1]}
  %j = range {start = 0, step = 1, len = n, dtype = i64}
  %c = gt %j, %i
  %e = select %c, %low, %d
  %p = softmax %e {axis = 3}
  %z = matmul %p, %v
}" },
    // Two heads of queries share one of keys and values.
    Form { name: "grouped_heads", dims: SELF, text: "(%q: f32[b, m, 32], %k: f32[b, n, 16], %v: f32[b, n, 16], %x: f32[b, 1, m, n]) -> (%z) {
  const %f: f32[] = [0.35]
  %q4 = reshape %q {shape = [b, m, 4, 8]}
  %k4 = reshape %k {shape = [b, n, 2, 1, 8]}
  %v4 = reshape %v {shape = [b, n, 2, 1, 8]}
  %ke = expand %k4 {shape = [b, n, 2, 2, 8]}
  %ve = expand %v4 {shape = [b, n, 2, 2, 8]}
  %kr = reshape %ke {shape = [b, n, 4, 8]}
  %vr = reshape %ve {shape = [b, n, 4, 8]}
  %qt = transpose %q4 {perm = [0, 2, 1, 3]}
  %kt = transpose %kr {perm = [0, 2, 3, 1]}
  %vt = transpose %vr {perm = [0, 2, 1, 3]}
  %c = matmul %qt, %kt
  %d = mul %c, %f
  %e = add %d, %x
  %p = softmax %e {axis = 3}
  %o = matmul %p, %vt
  %ot = transpose %o {perm = [0, 2, 1, 3]}
  %z = reshape %ot {shape = [b, m, 32]}
}" },
    // New keys and values behind those of earlier steps.
    Form { name: "cache", dims: &["b=2 m=3 c=9", "b=1 m=1 c=0", "b=1 m=1 c=33", "b=1 m=4 c=0"], text: "(%q: f32[b, 2, m, 8], %k: f32[b, 2, m, 8], %v: f32[b, 2, m, 8], %ck: f32[b, 2, c, 8], %cv: f32[b, 2, c, 8]) -> (%z, %ak, %av) {
  const %low: f32[] = [-10000]
  %ak = concat %ck, %k {axis = 2}
  %av = concat %cv, %v {axis = 2}
  %s = matmul %q, %ak {trans_b = true}
  %r = range {start = c, step = 1, len = m, dtype = i64}
  %i = reshape %r {shape = [m, 1]}
  %j = range {start = 0, step = 1, len = c + m, dtype = i64}
  %t = gt %j, %i
  %e = select %t, %low, %s
  %p = softmax %e {axis = 3}
  %z = matmul %p, %av
}" },
    Form { name: "half", dims: SELF, text: "(%q: f16[b, m, 8], %k: f16[b, n, 8], %v: f16[b, n, 8], %x: f16[b, 1, n]) -> (%z) {
  const %f: f16[] = [0.35]
  %s = matmul %q, %k {trans_b = true}
  %d = mul %s, %f
  %e = add %d, %x
  %p = softmax %e {axis = 2}
  %o = matmul %p, %v
  %z = tanh %o
}" },
    Form { name: "bfloat", dims: SELF, text: "(%q: bf16[b, m, 8], %k: bf16[b, n, 8], %v: bf16[b, n, 8]) -> (%z) {
  %s = matmul %q, %k {trans_b = true}
  %p = softmax %s {axis = 2}
  %z = matmul %p, %v
}" },
    // More than a block of the first product's k.
    Form { name: "wide_heads", dims: &["b=2 m=5 n=7", "b=1 m=30 n=40"], text: "(%q: f32[b, m, 600], %k: f32[b, n, 600], %v: f32[b, n, 8]) -> (%z) {
  const %f: f32[] = [0.04]
  %s = matmul %q, %k {trans_b = true}
  %d = mul %s, %f
  %p = softmax %d {axis = 2}
  %z = matmul %p, %v
}" },
    // Not a softmax, but rows between two products all the same; the second has an epilogue.
    Form { name: "normed_rows", dims: SELF, text: "(%q: f32[b, m, 8], %k: f32[b, n, 8], %v: f32[b, n, 20], %y: f32[b, m, 20]) -> (%z) {
  %s = matmul %q, %k {trans_b = true}
  %a = abs %s
  %t = reduce %a {op = sum, axes = [2], keepdims = true}
  %p = div %s, %t
  %o = matmul %p, %v
  %z = add %o, %y
}" },
];

fn bindings(plan: &Plan, dims: &str) -> Bindings {
    let mut b = Bindings::new();
    for word in dims.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        b.bind(plan.dims.find_symbol(name).unwrap(), value.parse().unwrap()).unwrap();
    }
    b
}

fn inputs(g: &Graph, b: &Bindings) -> Vec<(String, Tensor)> {
    let one = |i: &dvm_ir::Input| {
        let shape: Vec<usize> =
            g.shape(i.value).iter().map(|&d| g.dims.eval(d, b).unwrap() as usize).collect();
        let mut t = dvm::fill::fill(&i.name, g.dtype(i.value), &shape).unwrap();
        if !t.dtype().is_float() {
            (0..t.len()).for_each(|j| t.set(j, Scalar::Int(i64::from(j % 3 == 1))));
        }
        (i.name.clone(), t)
    };
    g.inputs.iter().map(one).collect()
}

fn plan(g: &Graph, fuse: bool) -> Plan {
    let plan = dvm_fuse::plan(g, &FuseOptions { fuse, ..FuseOptions::default() }).unwrap();
    plan.verify().unwrap_or_else(|v| panic!("{}: {v:#?}\n{plan}", g.name));
    plan
}

fn differ(a: &[Tensor], b: &[Tensor], exact: bool) -> Option<String> {
    for (o, (a, b)) in a.iter().zip(b).enumerate() {
        if exact && a.bytes() == b.bytes() && a.shape() == b.shape() {
            continue;
        }
        let tolerance = match a.dtype() {
            _ if exact => 0.0,
            DType::F32 => 1e-4,
            _ => 3e-2,
        };
        for i in 0..a.len() {
            let (x, y) = (a.get(i).as_f64(), b.get(i).as_f64());
            let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * (1.0 + y.abs());
            if !same {
                return Some(format!("output {o}, element {i}: {x}, not {y}"));
            }
        }
    }
    None
}

#[test]
fn every_form_is_one_kernel_of_the_same_bits() {
    let machines = ["host-ref", "tiny", "tiny-npu", "ascend-910b2", "ascend-950"];
    let mut specs: Vec<MachineSpec> = machines.iter().map(|s| MachineSpec::named(s).unwrap()).collect();
    // Few rows a tile, so that keys and values are packed once for all of them.
    let mut narrow = specs[0].clone();
    narrow.target.name = "narrow".into();
    let ub = narrow.target.spaces.iter_mut().find(|s| s.space == dvm_bc::Space::Ub).unwrap();
    ub.bytes = 8192;
    specs.push(narrow);
    let (mut scratch, mut problems, mut whole, mut once) = (Scratch::default(), vec![], [0; 6], 0);
    for form in FORMS {
        let text = format!("graph {}{}\n", form.name, form.text);
        let g = Graph::from_text(&text).unwrap_or_else(|e| panic!("{}", e.render(form.name, &text)));
        let (fused, unfused) = (plan(&g, true), plan(&g, false));
        let both = fused.kernels.iter().filter(|k| k.contraction().is_some()).count();
        assert_eq!(both, 1, "{}: products in one kernel\n{fused}", form.name);
        // What else there is stores the pieces of concatenations, or scales queries.
        let most = match form.name {
            "cache" => 5,
            "shared_mask" => 2,
            _ => 1,
        };
        assert!(fused.calls.len() <= most, "{}\n{fused}", form.name);
        for dims in form.dims {
            let b = bindings(&fused, dims);
            let named = inputs(&g, &b);
            let want = dvm_ir::eval::eval_graph(&g, &named).unwrap();
            for (what, plan) in [("plan", &fused), ("plan in parts", &fused.in_parts())] {
                let got =
                    dvm_ir::eval::eval_plan(plan, &named).unwrap_or_else(|e| panic!("{}: {e}", form.name));
                if let Some(d) = differ(&got, &want, false) {
                    problems.push(format!("{} {dims}: {what}: {d}", form.name));
                }
            }
            let tensors: Vec<Tensor> = named.into_iter().map(|(_, t)| t).collect();
            let exact =
                plans::run_on(2, &unfused, &b, &tensors, &specs[0], &mut scratch, &BuildOptions::default());
            let exact = exact.unwrap_or_else(|e| panic!("{} {dims} unfused: {e}", form.name));
            if let Some(d) = differ(&exact, &want, false) {
                problems.push(format!("{} {dims} unfused: {d}", form.name));
            }
            for (i, spec) in specs.iter().enumerate() {
                for workers in [1, 2, 3] {
                    let mut options = BuildOptions::default();
                    (options.elide, options.strips) = (workers != 3, workers != 1);
                    let got = plans::run_on(workers, &fused, &b, &tensors, spec, &mut scratch, &options);
                    // Where local memory is smaller than a block of a sum, its pieces are joined in another order.
                    let large = ["tiny", "tiny-npu", "narrow"].contains(&&*spec.target.name);
                    let blocks = !(large && dims.contains("n=1030"));
                    let problem = match got {
                        Ok(got) => differ(&got, &exact, blocks),
                        Err(e) => Some(e),
                    };
                    if let Some(p) = problem {
                        problems.push(format!("{} {dims} on {} {workers}: {p}", form.name, spec.target.name));
                    }
                }
                let how = how(&fused, &b, spec, &mut scratch);
                whole[i] += usize::from(how != "in parts");
                once += usize::from(how == "once");
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    // A machine with cube cores of their own makes attention in parts; a tiny one where it must.
    assert!(
        whole[0] > 35 && whole[1] > 20 && whole[2..5] == [0; 3] && whole[5] > 35 && once > 5,
        "{whole:?} {once}"
    );
}

/// Rows that fit are in one kernel; keys and values are packed by each block of rows, once for all, or the kernel is in parts.
#[test]
fn who_packs() {
    let text = "graph long(%q: f32[b, m, 64], %k: f32[b, n, 64], %v: f32[b, n, 64]) -> (%z) {
  %s = matmul %q, %k {trans_b = true}
  %p = softmax %s {axis = 2}
  %z = matmul %p, %v
}";
    let g = Graph::from_text(text).unwrap();
    let plan = plan(&g, true);
    let spec = MachineSpec::named("host-ref").unwrap();
    let mut scratch = Scratch::default();
    let expect = [
        ("b=12 m=128 n=128", "alone"),
        ("b=12 m=512 n=512", "once"),
        ("b=2 m=1024 n=1024", "once"),
        ("b=1 m=512 n=512", "in parts"),
        ("b=8 m=1 n=1500", "alone"),
        ("b=8 m=1 n=4096", "in parts"),
        ("b=1 m=512 n=8", "each"),
        ("b=2 m=2048 n=2048", "in parts"),
        ("b=1 m=3 n=60000", "in parts"),
    ];
    let found = expect.map(|(dims, _)| (dims, how(&plan, &bindings(&plan, dims), &spec, &mut scratch)));
    assert_eq!(found, expect);
}

/// How a plan's attention is made: `alone` for one block of rows a batch, `each` block or `once` for who packs, or `in parts`.
fn how(plan: &Plan, b: &Bindings, spec: &MachineSpec, scratch: &mut Scratch) -> &'static str {
    let mut values = dvm_ir::DimValues::default();
    plan.dims.eval_all(b, &mut values);
    let compiled = dvm_tile::compile_plan(plan, &values, spec, scratch).unwrap();
    let packs = |t: &dvm_bc::Template| {
        let code = t.phases.iter().flat_map(|p| &p.sections).flat_map(|s| s.code.iter());
        code.flatten().any(|i| i.op == dvm_bc::Opcode::PackA)
    };
    let Some(at) = compiled.program.templates.iter().position(packs) else { return "in parts" };
    let folds = &compiled.tilings[at].folds;
    match folds[folds.len() - 3].role {
        FoldRole::Sequential => "once",
        FoldRole::Parallel => "each",
        FoldRole::Whole => "alone",
    }
}

/// A row that is reduced to one element is no row of the product before: it is multiplied once, not once a column.
#[test]
fn a_reduced_row_is_multiplied_once() {
    let text = "graph reduced(%x: f32[n, 6], %w: f32[6, 5], %u: f32[1, 3]) -> (%z) {
  %s = matmul %x, %w
  %r = reduce %s {op = sum, axes = [1], keepdims = true}
  %z = matmul %r, %u
}";
    let g = Graph::from_text(text).unwrap();
    let plan = plan(&g, true);
    for dims in ["n=1", "n=7", "n=40"] {
        let b = bindings(&plan, dims);
        let given = inputs(&g, &b);
        let want = dvm_ir::eval::eval_graph(&g, &given).unwrap();
        let tensors: Vec<Tensor> = given.into_iter().map(|(_, t)| t).collect();
        for machine in ["host-ref", "tiny"] {
            let spec = MachineSpec::named(machine).unwrap();
            let (mut scratch, options) = (Scratch::default(), BuildOptions::default());
            let got = plans::run_on(2, &plan, &b, &tensors, &spec, &mut scratch, &options).unwrap();
            assert_eq!(differ(&got, &want, false), None, "{dims} on {machine}");
        }
    }
}
