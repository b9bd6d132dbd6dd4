use crate::testing::{Config, Rng, random_graph};
use crate::{DType, Graph, Op, Scalar, Tensor};

const MLP: &str = "\
symbol h in -5..=9
graph mlp(%x: f32[b, 256], %\"a:0\" \"sizes\": i64[2] = [h, w]) -> (%y \"out\", %\"a:0\") {
  assume b <= 4096 \"batch\"
  const %w: f32[256, 2] = uniform(7)
  %v2: f32[b, 2] = matmul %x, %w
  %v3 = reshape %v2 {shape = [2*b]}              // a comment
  %y = reduce %v3 {op = sum, axes = [0], keepdims = true} @\"/mlp/sum\"
}
";

#[test]
fn reads_and_prints() {
    let g = Graph::from_text(MLP).unwrap_or_else(|e| panic!("{}", e.render("mlp", MLP)));
    assert_eq!(g.verify(), Ok(()));
    let short = "\
symbol h in -5..=9
symbol w in ..=
graph mlp(%x: f32[b, 256], %\"a:0\" \"sizes\": i64[2] = [h, w]) -> (%y \"out\", %\"a:0\") {
  assume b <= 4096 \"batch\"
  const %w: f32[256, 2] = ...
  %v3: f32[b, 2] = matmul %x, %w
  %v4: f32[2*b] = reshape %v3 {shape = [2*b]}
  %y: f32[1] = reduce %v4 {op = sum, axes = [0], keepdims = true} @\"/mlp/sum\"
}
";
    // Symbols print in order of creation.
    let order =
        short.replace("symbol w in ..=\nsymbol b in 0..=4096", "symbol b in 0..=4096\nsymbol w in ..=");
    assert_eq!(g.to_string(), order);
    let full = g.to_text();
    let again = Graph::from_text(&full).unwrap();
    assert_eq!(again.to_text(), full);
    assert_eq!(again.constants, g.constants);
}

/// Every dtype, special values, every way to print a constant.
#[test]
fn constants_are_exact() {
    let mut g = Graph::new("c");
    let mut rng = Rng::new(1);
    for &d in DType::ALL {
        for n in [0usize, 1, 3, 70] {
            let mut t = Tensor::zeros(d, &[n]).unwrap();
            t.bytes_mut()
                .iter_mut()
                .for_each(|b| *b = rng.bits() as u8 & if d == DType::Bool { 1 } else { 255 });
            g.constant(None, t.clone());
            g.constant(Some("same".into()), t);
        }
        g.constant(None, Tensor::scalar(d, Scalar::Int(1)));
        g.constant(None, Tensor::scalar(d, Scalar::Float(f64::NAN)));
        g.constant(None, Tensor::scalar(d, Scalar::Float(-0.1)));
        g.constant(None, Tensor::scalar(d, Scalar::Float(f64::NEG_INFINITY)));
        g.constant(None, Tensor::zeros(d, &[5, 2]).unwrap());
    }
    let again = Graph::from_text(&g.to_text()).unwrap();
    assert_eq!(again.constants, g.constants);
}

/// Every op of the table with attributes of every kind survives; types are inferred alike.
#[test]
fn random_graphs_round_trip() {
    for seed in 0..300 {
        let g = random_graph(seed, &Config::default()).graph;
        let text = g.to_text();
        let again = match Graph::from_text(&text) {
            Ok(g) => g,
            Err(e) => panic!("seed {seed}: {}", e.render("graph", &text)),
        };
        assert_eq!(again.to_text(), text, "seed {seed}");
        assert_eq!(again.verify(), Ok(()), "seed {seed}");
        let ops = |g: &Graph| g.nodes.iter().map(|n| (n.op.mnemonic(), n.name.clone())).collect::<Vec<_>>();
        assert_eq!(ops(&again), ops(&g), "seed {seed}");
        assert_eq!(again.constants, g.constants, "seed {seed}");
        assert_eq!(again.checks.len(), g.checks.len(), "seed {seed}");
    }
}

#[test]
fn errors_point_at_the_place() {
    let check = |body: &str, expect: &str| {
        let src = format!("graph (%x: f32[b, 4], %y: f32[3]) -> (%z) {{\n  {body}\n}}\n");
        let e = Graph::from_text(&src).expect_err(body);
        assert_eq!(e.render("g.dvm", &src).trim_end(), expect.trim_end(), "{body}");
    };
    check(
        "%z = add %x, %y",
        "\
error: add (f32[b, 4], f32[3]): axis 0 of \"y\" and \"x\": extents 4 and 3 do not broadcast
 --> g.dvm:2:8
  |
2 |   %z = add %x, %y
  |        ^^^^^^^^^^",
    );
    check(
        "%z = reduce %x {op = summ, axes = [0]}",
        "\
error: `op` cannot have this value
 --> g.dvm:2:19
  |
2 |   %z = reduce %x {op = summ, axes = [0]}
  |                   ^^",
    );
    check(
        "%z = softmax %x {axes = 1, axis = 1}",
        "\
error: `softmax` has no attribute `axes`
 --> g.dvm:2:20
  |
2 |   %z = softmax %x {axes = 1, axis = 1}
  |                    ^^^^
  |
  = help: its attributes: axis",
    );
    check(
        "%z: f32[b, 5] = exp %x",
        "\
error: the result of this op is f32[b, 4]
 --> g.dvm:2:7
  |
2 |   %z: f32[b, 5] = exp %x
  |       ^^^^^^^^^",
    );
    let messages = [
        ("%z = softmaxx %x", "there is no op `softmaxx`"),
        ("%z = softmax %x", "`softmax` needs `axis = ` an integer"),
        ("%z = exp %w", "`%w` is not defined before"),
        ("%x = exp %x", "this name is defined twice"),
        ("%w = exp %x", "`%z` is not defined in the graph"),
        ("const %z: f32[2] = [1, 2, 3]", "f32[2] needs another number of elements than 3"),
        ("const %z: f32[b] = splat 1", "a constant needs a shape of numbers"),
        ("const %z: u8[1] = [256]", "this is no u8"),
        ("const %z: i32[1] = [1.5]", "this is no i32"),
        ("const %z: f32[99999999999] = splat 1", "generated constants are limited to 67108864 bytes a graph"),
        ("const %z: f32[1] = ...", "expected `[..]`, `splat`, `hex`, `uniform` or `no_data`, got `...`"),
        ("%z = reshape %x {shape = [pow(b, 2)]}", "there is no function `pow` of dims"),
        (
            "%z = reshape %x {shape = [99999999999999999999]}",
            "expected an integer of 64 bits, got `99999999999999999999`",
        ),
        ("%z = reshape %x {shape = [9999999999*9999999999]}", "this dim overflows or is too large"),
        ("%z = reshape %x {shape = [b}", "expected a value, got `}`"),
        ("assume b < 0", "this never holds, given what is assumed before"),
        ("%z = cast %x {to = f31}", "`to` cannot have this value"),
        ("const %z: f31[] = 1", "there is no dtype `f31`"),
        ("%z = exp %x @\"a\\q\"", "unknown escape `\\q`"),
        ("%z = exp %x $", "unexpected character \"$\""),
        ("\"", "this string does not end"),
    ];
    for (body, expect) in messages {
        let src = format!("graph (%x: f32[b, 4], %y: f32[3]) -> (%z) {{\n  {body}\n}}\n");
        let e = Graph::from_text(&src).expect_err(body);
        assert_eq!(e.to_string(), expect, "{body}");
        assert!(e.render("g", &src).contains(expect), "{body}");
    }
    let nested = format!("graph (%x: f32[{}b{}]) -> (%x) {{}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(Graph::from_text(&nested).unwrap_err().to_string(), "dims nest deeper than 64");
}

/// Cut, doubled and flipped texts are read or refused, never a panic; what is read verifies.
#[test]
fn mutants_never_panic() {
    let mut rng = Rng::new(7);
    let seeds: Vec<String> = (0..20)
        .map(|s| random_graph(s, &Config::default()).graph.to_string().replace("...", "uniform(1)"))
        .chain([MLP.to_string()])
        .collect();
    let words = [
        "%",
        "(",
        "]",
        "{",
        "0",
        "-",
        "99999999999",
        "b",
        "floordiv(",
        "\"",
        "=",
        "=>",
        "é",
        "f32",
        "axis",
        "..",
    ];
    let mut read = 0;
    for _ in 0..4000 {
        let mut text: Vec<char> = rng.pick(&seeds).chars().collect();
        for _ in 0..rng.int(1, 4) {
            let at = rng.below(text.len());
            match rng.below(4) {
                0 => drop(text.remove(at)),
                1 => text[at] = char::from(rng.int(32, 126) as u8),
                2 => drop(text.splice(at..at, rng.pick(&words).chars())),
                _ => {
                    let end = (at + rng.below(20)).min(text.len());
                    let piece: Vec<char> = text[at..end].to_vec();
                    let to = rng.below(text.len());
                    text.splice(to..to, piece);
                }
            }
            if text.is_empty() {
                text.push('g');
            }
        }
        let text: String = text.into_iter().collect();
        match Graph::from_text(&text) {
            Ok(g) => {
                read += 1;
                assert_eq!(g.verify(), Ok(()), "{text}");
            }
            Err(e) => assert!(e.render("g", &text).contains("g:"), "{text}"),
        }
    }
    assert!(read > 50, "only {read} mutants were readable");
}

#[test]
fn op_names_are_unique_and_known() {
    let names =
        crate::UnaryOp::ALL.iter().map(|u| u.name()).chain(crate::BinaryOp::ALL.iter().map(|b| b.name()));
    let names: Vec<&str> = names.chain(Op::TABLE.iter().map(|o| o.mnemonic)).collect();
    let set: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(set.len(), names.len());
}
