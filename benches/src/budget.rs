//! Graphs that the compile budgets are measured on: random kernels, and a large stack of decoder layers.

use std::fmt::Write;

/// A small generator of pseudo-random numbers (SplitMix64), the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    /// One of `list`.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
    /// An extent between 1 and `most`, small ones as likely as large ones.
    pub fn extent(&mut self, most: i64) -> i64 {
        let bits = 64 - most.leading_zeros() as usize;
        let top = 1i64 << self.below(bits);
        (top + self.below(top as usize) as i64).min(most)
    }
}

/// Text of a random graph over `r x c` that fuses to one kernel, or few: a chain of elementwise ops with broadcasts, up to three row
/// reductions, now and then behind a matrix product.
#[must_use]
pub fn random_kernel(seed: u64) -> String {
    let mut rng = Rng::new(seed + 1);
    let product = rng.below(5) == 0;
    let dtype = rng.pick(&["f32", "f32", "f32", "f16"]);
    let mut text = format!("graph k{seed}(%x: {dtype}[r, c], %y: {dtype}[r, c], %v: {dtype}[c]");
    if product {
        let _ = write!(text, ", %w: {dtype}[c, c]");
    }
    text += ") -> (%o) {\n";
    let _ = writeln!(text, "  const %half: {dtype}[] = 0.5");
    let mut n = 0;
    let mut live = vec!["%x".to_owned(), "%y".to_owned()];
    let mut op = |text: &mut String, what: &str| {
        n += 1;
        let _ = writeln!(text, "  %t{n} = {what}");
        format!("%t{n}")
    };
    if product {
        live = vec![op(&mut text, "matmul %x, %w {}"), "%y".to_owned()];
    }
    let mut reductions = 0;
    for _ in 0..2 + rng.below(if product { 6 } else { 16 }) {
        let last = live[live.len() - 1].clone();
        let other = live[rng.below(live.len())].clone();
        let v = match rng.below(10) {
            0..3 => {
                let unary = rng.pick(&["abs", "neg", "tanh", "sigmoid", "exp", "sqrt"]);
                op(&mut text, &format!("{unary} {last}"))
            }
            3..6 => {
                let binary = rng.pick(&["add", "sub", "mul", "max", "min"]);
                op(&mut text, &format!("{binary} {last}, {other}"))
            }
            6 => op(&mut text, &format!("mul {last}, %half")),
            7 => op(&mut text, &format!("add {last}, %v")),
            _ if reductions < 3 && !product => {
                reductions += 1;
                let how = rng.pick(&["sum", "max", "min"]);
                let s = op(&mut text, &format!("reduce {last} {{op = {how}, axes = [1], keepdims = true}}"));
                op(&mut text, &format!("sub {last}, {s}"))
            }
            _ => op(&mut text, &format!("max {last}, {other}")),
        };
        live.push(v);
    }
    let _ = writeln!(text, "  %o = add {}, {}\n}}", live[live.len() - 1], live[rng.below(live.len())]);
    text
}

/// Text of a stack of decoder layers whose feed-forward part is a mixture of eight experts, and how many ops it has. Batch `b` and
/// sequence `s` are symbols.
#[must_use]
pub fn decoders(layers: usize) -> (String, usize) {
    let mut body = String::new();
    let (mut n, mut weights) = (0, String::new());
    let mut op = |body: &mut String, what: String| {
        n += 1;
        let _ = writeln!(body, "  %t{n} = {what}");
        format!("%t{n}")
    };
    let mut weight = |name: String, shape: &str| {
        let _ = write!(weights, ", %{name}: f32[{shape}]");
        format!("%{name}")
    };
    let mut x = "%x".to_owned();
    for l in 0..layers {
        let gain = weight(format!("ga{l}"), "64");
        let h = op(&mut body, format!("rms_norm {x}, {gain} {{axis = 2, eps = 1e-5}}"));
        let mut heads = |body: &mut String, which: &str, perm: &str| {
            let w = weight(format!("w{which}{l}"), "64, 64");
            let p = op(body, format!("matmul {h}, {w} {{}}"));
            let r = op(body, format!("reshape {p} {{shape = [b, s, 4, 16]}}"));
            op(body, format!("transpose {r} {{perm = [{perm}]}}"))
        };
        let q = heads(&mut body, "q", "0, 2, 1, 3");
        let k = heads(&mut body, "k", "0, 2, 3, 1");
        let v = heads(&mut body, "v", "0, 2, 1, 3");
        let scores = op(&mut body, format!("matmul {q}, {k} {{}}"));
        let scaled = op(&mut body, format!("mul {scores}, %scale"));
        let p = op(&mut body, format!("softmax {scaled} {{axis = 3}}"));
        let mixed = op(&mut body, format!("matmul {p}, {v} {{}}"));
        let rows = op(&mut body, format!("transpose {mixed} {{perm = [0, 2, 1, 3]}}"));
        let flat = op(&mut body, format!("reshape {rows} {{shape = [b, s, 64]}}"));
        let wo = weight(format!("wo{l}"), "64, 64");
        let out = op(&mut body, format!("matmul {flat}, {wo} {{}}"));
        let res = op(&mut body, format!("add {x}, {out}"));
        let gain = weight(format!("gf{l}"), "64");
        let h = op(&mut body, format!("rms_norm {res}, {gain} {{axis = 2, eps = 1e-5}}"));
        let mut sum = res;
        for e in 0..8 {
            let [up, down] = ["u", "d"].map(|w| weight(format!("{w}{l}e{e}"), "64, 64"));
            let gate = weight(format!("g{l}e{e}"), "64, 1");
            let g = op(&mut body, format!("matmul {h}, {gate} {{}}"));
            let g = op(&mut body, format!("sigmoid {g}"));
            let a = op(&mut body, format!("matmul {h}, {up} {{}}"));
            let a = op(&mut body, format!("silu {a}"));
            let a = op(&mut body, format!("matmul {a}, {down} {{}}"));
            let a = op(&mut body, format!("mul {a}, {g}"));
            sum = op(&mut body, format!("add {sum}, {a}"));
        }
        x = sum;
    }
    (
        format!(
            "graph decoders(%x: f32[b, s, 64]{weights}) -> (%o) {{\n  const %scale: f32[] = 0.25\n{body}  %o = copy {x}\n}}\n"
        ),
        n + 1,
    )
}
