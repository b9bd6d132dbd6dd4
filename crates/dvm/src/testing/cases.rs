//! The table of programs.

use super::Case;

/// Machines that most cases are reviewed on.
const USUAL: &[&str] = &["host-ref", "ascend-910b2"];
/// Machines that some are.
const WIDE: &[&str] = &["host-ref", "ascend-910b2", "ascend-950", "tiny"];

const fn case(
    name: &'static str,
    machines: &'static [&'static str],
    dims: &'static str,
    small: &'static str,
    body: &'static str,
) -> Case {
    Case { name, machines, dims, small, body }
}

/// Programs whose compiled form is reviewed by diff and judged by the checkers: name, machines, dims of the snapshot, dims that are quick
/// to interpret, and what follows `graph NAME` in the graph's text.
#[rustfmt::skip]
pub const CASES: &[Case] = &[
    // Elementwise.
    case("add_sqrt", WIDE, "n=100000", "n=700", "(%x: f32[n], %y: f32[n]) -> (%z) {
  %s = add %x, %y
  %z = sqrt %s
}"),
    case("gelu", USUAL, "b=4 s=128 h=3072", "b=1 s=3 h=70", "(%x: f32[b, s, h]) -> (%z) {
  %z = gelu %x {tanh = false}
}"),
    case("swiglu", USUAL, "b=8 h=11008", "b=3 h=200", "(%x: f16[b, h], %y: f16[b, h]) -> (%z) {
  %g = silu %x
  %z = mul %g, %y
}"),
    case("cast_chain", USUAL, "n=20000", "n=500", "(%x: bf16[n]) -> (%z, %q) {
  %f = cast %x {to = f16}
  %d = add %f, %f
  %z = cast %d {to = bf16}
  %q = cast %d {to = i8}
}"),
    case("integers", USUAL, "n=5000", "n=300", "(%x: i32[n], %y: i32[n]) -> (%z) {
  %a = floor_div %x, %y
  %b = shl %a, %y
  %z = cast %b {to = u8}
}"),
    case("where_mask", USUAL, "b=2 h=12 s=128", "b=1 h=2 s=17", "(%m: i64[b, 1, 1, s], %x: f32[b, h, s, s], %l: f32[1], %n: i64[1]) -> (%z) {
  %k = eq %m, %n
  %z = select %k, %l, %x
}"),
    case("one_hot", USUAL, "b=100 c=32", "b=9 c=5", "(%i: i64[b], %v: f32[c]) -> (%z) {
  %c = range {start = 0, step = 1, len = c, dtype = i64}
  %r = reshape %i {shape = [b, 1]}
  %e = eq %r, %c
  %h = cast %e {to = f32}
  %z = mul %h, %v
}"),
    // Operands that are repeated.
    case("broadcast_row", USUAL, "b=1000 h=768", "b=7 h=70", "(%x: f32[b, h], %y: f32[h]) -> (%z) {
  %z = mul %x, %y
}"),
    case("broadcast_column", USUAL, "b=1000 h=768", "b=7 h=70", "(%x: f32[b, h], %y: f32[b, 1]) -> (%z) {
  %e = exp %y
  %z = sub %x, %e
}"),
    case("broadcast_late", USUAL, "n=64 m=1 h=300", "n=5 m=1 h=40", "(%x: f32[n, h], %y: f32[m, h]) -> (%z) {
  %z = add %x, %y
}"),
    case("outer", USUAL, "m=500 n=700", "m=9 n=70", "(%x: f32[m, 1], %y: f32[n]) -> (%z) {
  %z = mul %x, %y
}"),
    // Reductions, scans and what is made of them.
    case("sum_columns", USUAL, "b=100000 h=64", "b=200 h=8", "(%x: f32[b, h]) -> (%z) {
  %z = reduce %x {op = sum, axes = [0]}
}"),
    case("sum_all", USUAL, "b=300 s=4000", "b=7 s=90", "(%x: f32[b, s]) -> (%z) {
  %z = reduce %x {op = sum, axes = [0, 1]}
}"),
    case("mean_outer_and_inner", USUAL, "b=30 s=40 h=50", "b=4 s=3 h=20", "(%x: f32[b, s, h]) -> (%z) {
  %z = reduce %x {op = mean, axes = [0, 2], keepdims = true}
}"),
    case("argmax", USUAL, "b=64 v=32000", "b=4 v=200", "(%x: f32[b, v]) -> (%z) {
  %z = argmax %x {axis = 1}
}"),
    case("cumsum", USUAL, "b=16 s=1000", "b=3 s=100", "(%x: f32[b, s]) -> (%z) {
  %z = cumsum %x {axis = 1, reverse = true}
}"),
    case("softmax", USUAL, "b=48 s=128", "b=3 s=20", "(%x: f32[b, s, s]) -> (%z) {
  %z = softmax %x {axis = 2}
}"),
    case("softmax_long", WIDE, "b=16 s=100000", "b=2 s=3000", "(%x: f32[b, s]) -> (%z) {
  %z = softmax %x {axis = 1}
}"),
    case("softmax_one_row", USUAL, "b=1 s=300000", "b=1 s=3000", "(%x: f32[b, s]) -> (%z) {
  %z = softmax %x {axis = 1}
}"),
    case("softmax_inner", USUAL, "b=4 s=700 h=5", "b=2 s=30 h=3", "(%x: f32[b, s, h]) -> (%z) {
  %z = softmax %x {axis = 1}
}"),
    case("layer_norm", WIDE, "b=4 s=33", "b=1 s=3", "(%x: f32[b, s, 384], %g: f32[384], %c: f32[384]) -> (%z) {
  %z = layer_norm %x, %g, %c {axis = 2, eps = 1e-5}
}"),
    case("layer_norm_long", USUAL, "r=64 n=40000", "r=3 n=5000", "(%x: f32[r, n], %g: f32[n], %c: f32[n]) -> (%z) {
  %z = layer_norm %x, %g, %c {axis = 1, eps = 1e-5}
}"),
    case("rms_norm_half", USUAL, "b=100 h=512", "b=3 h=100", "(%x: f16[b, h], %g: f16[h]) -> (%z) {
  %z = rms_norm %x, %g {axis = 1, eps = 1e-6}
}"),
    case("embedding_norm", WIDE, "b=2 s=17", "b=1 s=3", "(%i: i64[b, s], %t: f32[1000, 384], %p: f32[512, 384], %g: f32[384], %c: f32[384]) -> (%z) {
  %e = gather %t, %i {axis = 0}
  %q = slice %p {start = [0, 0], len = [s, 384], step = [1, 1]}
  %h = add %e, %q
  %z = layer_norm %h, %g, %c {axis = 2, eps = 1e-12}
}"),
    // Moving data.
    case("gather_elements", USUAL, "b=20 s=30 t=40", "b=3 s=5 t=17", "(%x: f32[t, s], %i: i64[b, s]) -> (%z) {
  %z = gather_elements %x, %i {axis = 0}
}"),
    case("transpose", USUAL, "m=300 n=500", "m=9 n=40", "(%x: f32[m, n]) -> (%z) {
  %t = transpose %x {perm = [1, 0]}
  %z = tanh %t
}"),
    case("concat", USUAL, "b=64 s=100 t=28", "b=5 s=20 t=7", "(%x: f32[b, s], %y: f32[b, t]) -> (%z) {
  %e = exp %x
  %z = concat %e, %y {axis = 1}
}"),
    case("slice_reversed", USUAL, "b=9 s=1000", "b=3 s=100", "(%x: f32[b, s]) -> (%z) {
  %r = slice %x {start = [0, s - 1], len = [b, s], step = [1, -1]}
  %z = neg %r
}"),
    case("pad", USUAL, "b=10 s=100", "b=3 s=20", "(%x: f32[b, s]) -> (%z) {
  %z = pad %x {before = [0, 2], after = [1, 3], mode = constant, value = 0.5}
}"),
    case("rotary", USUAL, "b=2 h=8 s=40", "b=1 h=2 s=5", "(%x: f32[b, h, s, 64], %c: f32[s, 64], %n: f32[s, 64]) -> (%z) {
  %l = slice %x {start = [0, 0, 0, 0], len = [b, h, s, 32], step = [1, 1, 1, 1]}
  %r = slice %x {start = [0, 0, 0, 32], len = [b, h, s, 32], step = [1, 1, 1, 1]}
  %m = neg %r
  %t = concat %m, %l {axis = 3}
  %a = mul %x, %c
  %b = mul %t, %n
  %z = add %a, %b
}"),
    case("empty", USUAL, "b=0 h=16", "b=0 h=16", "(%x: f32[b, h]) -> (%z, %s) {
  %z = exp %x
  %s = reduce %x {op = sum, axes = [0]}
}"),
    // Matrix products.
    case("matmul", WIDE, "m=300 k=700 n=500", "m=9 k=40 n=20", "(%a: f32[m, k], %b: f32[k, n]) -> (%c) {
  %c = matmul %a, %b
}"),
    case("matmul_batched", USUAL, "b=6 m=100 k=64", "b=2 m=9 k=20", "(%a: f32[b, m, k], %b: f32[b, m, k]) -> (%c) {
  %c = matmul %a, %b {trans_b = true}
}"),
    case("matmul_bias_gelu", WIDE, "b=1 s=128", "b=1 s=5", "(%x: f32[b, s, 384]) -> (%z) {
  const %w: f32[384, 1536] = uniform(3)
  const %v: f32[1536] = uniform(4)
  %c = matmul %x, %w
  %d = add %c, %v
  %z = gelu %d {tanh = false}
}"),
    case("matmul_residual_half", USUAL, "b=3 s=50", "b=1 s=5", "(%x: f16[b, s, 256], %r: f16[b, s, 128]) -> (%z) {
  const %w: f16[128, 256] = uniform(3)
  %c = matmul %x, %w {trans_b = true}
  %z = add %c, %r
}"),
    case("matmul_row", USUAL, "k=4096", "k=4096", "(%a: f32[1, k]) -> (%c) {
  const %w: f32[4096, 1024] = uniform(3)
  %c = matmul %a, %w
}"),
    case("addmm", WIDE, "m=200 k=300 n=400", "m=9 k=30 n=40", "(%c: f32[n], %a: f32[m, k], %b: f32[k, n]) -> (%z) {
  const %alpha: f32[] = [0.5]
  const %beta: f32[] = [2]
  %p = matmul %a, %b
  %q = mul %p, %alpha
  %r = mul %c, %beta
  %z = add %q, %r
}"),
    case("conv", USUAL, "b=2 l=50", "b=1 l=12", "(%x: f32[b, 8, l]) -> (%z) {
  const %w: f32[16, 24] = uniform(5)
  %u = window %x {axis = 2, count = l - 2, size = 3, stride = 1, dilation = 1}
  %t = transpose %u {perm = [0, 1, 3, 2]}
  %m = reshape %t {shape = [b, 24, l - 2]}
  %z = matmul %w, %m
}"),
    case("attention", WIDE, "b=2 s=33", "b=1 s=5", "(%q: f32[b, s, 384], %k: f32[b, s, 384], %v: f32[b, s, 384], %m: f32[b, 1, 1, s]) -> (%z) {
  const %f: f32[] = [0.17677669]
  %q4 = reshape %q {shape = [b, s, 12, 32]}
  %k4 = reshape %k {shape = [b, s, 12, 32]}
  %v4 = reshape %v {shape = [b, s, 12, 32]}
  %qt = transpose %q4 {perm = [0, 2, 1, 3]}
  %kt = transpose %k4 {perm = [0, 2, 3, 1]}
  %vt = transpose %v4 {perm = [0, 2, 1, 3]}
  %c = matmul %qt, %kt
  %d = mul %c, %f
  %e = add %d, %m
  %p = softmax %e {axis = 3}
  %o = matmul %p, %vt
  %ot = transpose %o {perm = [0, 2, 1, 3]}
  %z = reshape %ot {shape = [b, s, 384]}
}"),
    // Several kernels.
    case("stacked", WIDE, "s=60", "s=7", "(%x: f32[s, 64]) -> (%q, %k, %v) {
  const %wq: f32[64, 64] = uniform(3)
  const %wk: f32[64, 32] = uniform(4)
  const %wv: f32[64, 64] = uniform(5)
  %a = matmul %x, %wq
  %q = tanh %a
  %k = matmul %x, %wk
  %v = matmul %x, %wv
}"),
    // The paper's operator: the host reads the predicate and runs one of the two branches.
    case("if_else_add", WIDE, "m=64 n=1000", "m=3 n=50", "(%x: f32[m, n], %y: f32[m, n]) -> (%p, %then, %else) {
  const %zero: f32[] = [0]
  %c = reduce %x {op = sum, axes = [0, 1]}
  %p = gt %c, %zero
  %then = add %x, %y
  %else = sub %x, %y
}"),
];
