//! More of the cases in `edge_cases.rs`: rows about what compiling costs (68, 71 to 73), rounding (87), and other cases of the same
//! themes, through the graph and the stream.
//!
//! Rows 1 to 67, 69, 70, 75 to 85, 89 to 107 are in `edge_cases.rs`; lengths of vector loops and equal bits for equal shapes in
//! `same_bits.rs`.

use dvm::{DType, Module, Options, Scalar, Session, Stream, Tensor};

fn session(text: &str) -> Session {
    let text = format!("graph g{text}\n");
    let module = Module::from_text(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut options = Options::default();
    options.threads = Some(2);
    Session::new(&module, options).unwrap()
}

fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape).unwrap();
    assert_eq!(t.len(), values.len());
    for (i, &v) in values.iter().enumerate() {
        t.set(i, if dtype.is_float() { Scalar::Float(v) } else { Scalar::Int(v as i64) });
    }
    t
}
fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    tensor(DType::F32, shape, values)
}
fn values(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get(i).as_f64()).collect()
}

/// Runs a graph; compares shape and values of its only output. Zeros must have the right sign.
#[track_caller]
fn gives(text: &str, inputs: &[Tensor], shape: &[usize], want: &[f64]) {
    let mut s = session(text);
    let names: Vec<String> =
        s.module().graph(&[], &[]).unwrap().inputs.iter().map(|i| i.name.clone()).collect();
    let out = s.run(names.into_iter().zip(inputs.iter().cloned())).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let got = values(&out[0]);
    let eq = |(a, b): (&f64, &f64)| {
        (a == b && a.is_sign_negative() == b.is_sign_negative()) || (a.is_nan() && b.is_nan())
    };
    assert_eq!(out[0].shape(), shape, "{text}");
    assert!(got.len() == want.len() && got.iter().zip(want).all(eq), "{got:?}, want {want:?}\n{text}");
}

#[track_caller]
fn refuses(text: &str, inputs: &[Tensor], words: &[&str]) {
    let mut s = session(text);
    let names: Vec<String> =
        s.module().graph(&[], &[]).unwrap().inputs.iter().map(|i| i.name.clone()).collect();
    let e = s.run(names.into_iter().zip(inputs.iter().cloned())).expect_err("runs").to_string();
    for w in words {
        assert!(e.contains(w), "`{w}` is not in: {e}");
    }
}

/// A list that is empty at first and grows: one plan, whatever the step.
#[test]
fn row_68_a_list_that_grows_from_nothing() {
    let mut s = session(
        "(%past: f32[n, 3], %x: f32[1, 3]) -> (%now, %sum) {\n  %now = concat %past, %x {axis = 0}\n  %sum = reduce %now {op = sum, axes = [0]}\n}",
    );
    let mut past = f32s(&[0, 3], &[]);
    for step in 1..=20 {
        let x = f32s(&[1, 3], &[1.0, 2.0, f64::from(step)]);
        let out = s.run([("past", past), ("x", x)]).unwrap();
        assert!(step == 1 || s.last_run().plan_us == 0.0, "planned again at step {step}");
        let n = f64::from(step);
        assert_eq!(values(&out["sum"]), [n, 2.0 * n, n * (n + 1.0) / 2.0]);
        past = out["now"].clone();
    }
}

/// No padding is needed, and padded rows under a mask give the same value.
#[test]
fn row_71_lengths_without_padding() {
    let mut plain = session("(%x: f32[n]) -> (%y) {\n  %y = reduce %x {op = sum, axes = [0]}\n}");
    let mut padded = session(
        "(%x: f32[n], %m: bool[n]) -> (%y) {\n  const %o: f32[] = [0]\n  %z = select %m, %x, %o\n  %y = reduce %z {op = sum, axes = [0]}\n}",
    );
    for n in [10, 14, 23] {
        let x: Vec<f64> = (0..n).map(|i| f64::from(1.0 / (f32::from(i as u8) + 3.0))).collect();
        let y = plain.run([("x", f32s(&[n], &x))]).unwrap();
        let mut wide = x.clone();
        wide.resize(32, f64::NAN);
        let mask: Vec<f64> = (0..32).map(|i| f64::from(u8::from(i < n))).collect();
        let z = padded.run([("x", f32s(&[32], &wide)), ("m", tensor(DType::Bool, &[32], &mask))]).unwrap();
        assert_eq!(y["y"].bytes(), z["y"].bytes(), "{n}");
    }
}

/// Compiling takes no longer for larger dims, and none is too large.
#[test]
fn row_72_73_compile_time_does_not_grow_with_dims() {
    let mut s = session(
        "(%x: f32[b, 64], %w: f32[64, 64]) -> (%y) {\n  %p = matmul %x, %w\n  %t = tanh %p\n  %y = softmax %t {axis = 1}\n}",
    );
    let w = f32s(&[64, 64], &[0.01; 4096]);
    let mut best = |b: usize| {
        let x = Tensor::zeros(DType::F32, &[b, 64]).unwrap();
        let one = |s: &mut Session| {
            s.forget_programs();
            let out = s.run([("x", x.clone()), ("w", w.clone())]).unwrap();
            assert_eq!(out["y"].shape(), [b, 64]);
            s.last_run().compile_us
        };
        (0..15).map(|_| one(&mut s)).fold(f64::INFINITY, f64::min)
    };
    let (small, large, one) = (best(64), best(20_480), best(1));
    assert!(large < 10.0 * small + 200.0, "{small} us for 64 rows, {large} us for 20480, {one} us for 1");
}

#[test]
fn row_87_floor_division() {
    for (dtype, name) in [(DType::F32, "f32"), (DType::F64, "f64")] {
        let text = format!("(%a: {name}[n], %b: {name}[n]) -> (%y) {{\n  %y = floor_div %a, %b\n}}");
        let (a, b) = ([1.0, 0.5, 6.0, -1.0, 7.0, -0.0], [0.1, 0.1, 0.2, 0.1, -2.0, 3.0]);
        let want = [9.0, 4.0, 29.0, -10.0, -4.0, -0.0];
        gives(&text, &[tensor(dtype, &[6], &a), tensor(dtype, &[6], &b)], &[6], &want);
    }
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
        let (a, b) = ([7.0, -7.0, 7.0, -7.0, 0.0], [2.0, 2.0, -2.0, -2.0, -5.0]);
        for (op, want) in [("floor_div", [3.0, -4.0, -4.0, 3.0, 0.0]), ("rem", [1.0, 1.0, -1.0, -1.0, 0.0])] {
            let text = format!("(%a: {dtype}[n], %b: {dtype}[n]) -> (%y) {{\n  %y = {op} %a, %b\n}}");
            gives(&text, &[tensor(dtype, &[5], &a), tensor(dtype, &[5], &b)], &[5], &want);
        }
    }
    let text = "(%a: i32[n], %b: i32[n]) -> (%y) {\n  %y = floor_div %a, %b\n}";
    let least = f64::from(i32::MIN);
    gives(text, &[tensor(DType::I32, &[1], &[least]), tensor(DType::I32, &[1], &[-1.0])], &[1], &[least]);
    refuses(text, &[tensor(DType::I32, &[2], &[1.0; 2]), tensor(DType::I32, &[2], &[1.0, 0.0])], &["zero"]);
}

/// Theme 4: sizes of zero, through every kind of op.
#[test]
fn nothing_in_nothing_out() {
    let none = |shape: &[usize]| f32s(shape, &[]);
    for (text, inputs, shape, want) in [
        (
            "(%x: f32[n, 4]) -> (%y) {\n  %y = softmax %x {axis = 1}\n}",
            vec![none(&[0, 4])],
            vec![0, 4],
            vec![],
        ),
        (
            "(%x: f32[4, n]) -> (%y) {\n  %y = softmax %x {axis = 1}\n}",
            vec![none(&[4, 0])],
            vec![4, 0],
            vec![],
        ),
        (
            "(%x: f32[n, 3]) -> (%y) {\n  %y = transpose %x {perm = [1, 0]}\n}",
            vec![none(&[0, 3])],
            vec![3, 0],
            vec![],
        ),
        (
            "(%x: f32[3, n]) -> (%y) {\n  %y = reduce %x {op = prod, axes = [1]}\n}",
            vec![none(&[3, 0])],
            vec![3],
            vec![1.0; 3],
        ),
        (
            "(%x: f32[3, n]) -> (%y) {\n  %y = reduce %x {op = min, axes = [1]}\n}",
            vec![none(&[3, 0])],
            vec![3],
            vec![f64::INFINITY; 3],
        ),
        (
            "(%x: f32[3, n]) -> (%y) {\n  %y = reduce %x {op = mean, axes = [0, 1]}\n}",
            vec![none(&[3, 0])],
            vec![],
            vec![f64::NAN],
        ),
        (
            "(%x: f32[3, n]) -> (%y) {\n  %y = cumsum %x {axis = 1}\n}",
            vec![none(&[3, 0])],
            vec![3, 0],
            vec![],
        ),
        (
            "(%a: f32[m, k], %b: f32[k, n]) -> (%y) {\n  %y = matmul %a, %b\n}",
            vec![none(&[2, 0]), none(&[0, 3])],
            vec![2, 3],
            vec![0.0; 6],
        ),
        (
            "(%a: f32[m, k], %b: f32[k, n]) -> (%y) {\n  %p = matmul %a, %b\n  %y = cos %p\n}",
            vec![none(&[2, 0]), none(&[0, 1])],
            vec![2, 1],
            vec![1.0; 2],
        ),
        (
            "(%a: f32[b, m, k], %b: f32[b, k, n]) -> (%y) {\n  %y = matmul %a, %b\n}",
            vec![none(&[0, 2, 2]), none(&[0, 2, 3])],
            vec![0, 2, 3],
            vec![],
        ),
        (
            "(%x: f32[n, 4], %g: f32[4]) -> (%y) {\n  %y = layer_norm %x, %g, %g {axis = 1, eps = 1e-5}\n}",
            vec![none(&[0, 4]), f32s(&[4], &[1.0; 4])],
            vec![0, 4],
            vec![],
        ),
        (
            "(%x: f32[n], %y0: f32[m]) -> (%y) {\n  %y = concat %x, %y0 {axis = 0}\n}",
            vec![none(&[0]), none(&[0])],
            vec![0],
            vec![],
        ),
        (
            "(%x: f32[n], %z: f32[1]) -> (%y) {\n  %y = add %x, %z\n}",
            vec![none(&[0]), f32s(&[1], &[1.0])],
            vec![0],
            vec![],
        ),
    ] {
        gives(text, &inputs, &shape, &want);
    }
    refuses(
        "(%x: f32[3, n]) -> (%y) {\n  %y = argmax %x {axis = 1}\n}",
        &[none(&[3, 0])],
        &["argmax", "must not be empty"],
    );
}

/// Theme 7: NaN, infinities and zeros of both signs.
#[test]
fn numbers_at_the_edges() {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    let unary = |op: &str, x: &[f64], want: &[f64]| {
        let text = format!("(%x: f32[n]) -> (%y) {{\n  %y = {op} %x\n}}");
        // Long enough for the body of a loop, too.
        for n in [1, 8, 9, 33] {
            let xs: Vec<f64> = x.iter().copied().cycle().take(x.len() * n).collect();
            let ys: Vec<f64> = want.iter().copied().cycle().take(x.len() * n).collect();
            gives(&text, &[f32s(&[xs.len()], &xs)], &[xs.len()], &ys);
        }
    };
    unary("round", &[0.5, 1.5, 2.5, -0.5, -1.5, NAN], &[0.0, 2.0, 2.0, -0.0, -2.0, NAN]);
    unary("sign", &[NAN, -0.0, 0.0, -INF], &[NAN, 0.0, 0.0, -1.0]);
    unary("sigmoid", &[INF, -INF, 0.0, 200.0, -200.0, NAN], &[1.0, 0.0, 0.5, 1.0, 0.0, NAN]);
    unary("tanh", &[INF, -INF, -0.0, 50.0, NAN], &[1.0, -1.0, -0.0, 1.0, NAN]);
    unary("exp", &[INF, -INF, 200.0, 0.0], &[INF, 0.0, INF, 1.0]);
    unary("ln", &[0.0, -0.0, -1.0, INF, 1.0], &[-INF, -INF, NAN, INF, 0.0]);
    unary("log1p", &[-1.0, -2.0, -0.0, INF], &[-INF, NAN, -0.0, INF]);
    unary("sqrt", &[-0.0, -1.0, INF, 4.0], &[-0.0, NAN, INF, 2.0]);
    unary("rsqrt", &[0.0, INF, -1.0, 4.0], &[INF, 0.0, NAN, 0.5]);
    unary("erf", &[INF, -INF, -0.0, NAN], &[1.0, -1.0, -0.0, NAN]);
    unary("sin", &[-0.0, INF, NAN], &[-0.0, NAN, NAN]);
    unary("reciprocal", &[0.0, -0.0, INF, -INF], &[INF, -INF, 0.0, -0.0]);
    let reduce = |op: &str, x: &[f64], want: f64| {
        let text = format!("(%x: f32[n]) -> (%y) {{\n  %y = reduce %x {{op = {op}, axes = [0]}}\n}}");
        for at in [0, 40, 99] {
            let mut xs = vec![x[0]; 100];
            xs[at] = x[1];
            gives(&text, &[f32s(&[100], &xs)], &[], &[want]);
        }
    };
    reduce("max", &[1.0, NAN], NAN);
    reduce("min", &[1.0, NAN], NAN);
    reduce("max", &[-0.0, 0.0], 0.0);
    reduce("min", &[0.0, -0.0], -0.0);
    reduce("sum", &[1.0, INF], INF);
    reduce("sum", &[-0.0, -0.0], 0.0);
    reduce("prod", &[1.0, 0.0], 0.0);
    // Of equal values the first, and a NaN wins.
    let arg = "(%x: f32[n]) -> (%y) {\n  %y = argmax %x {axis = 0}\n}";
    gives(arg, &[f32s(&[4], &[1.0, 3.0, 3.0, 2.0])], &[], &[1.0]);
    gives(arg, &[f32s(&[4], &[1.0, NAN, 9.0, NAN])], &[], &[1.0]);
}

/// Theme 7: integers wrap, shifts by the width give 0, casts saturate or wrap as documented.
#[test]
fn integers_at_the_edges() {
    for (dtype, a, b, op, want) in [
        (DType::U8, 200.0, 100.0, "add", 44.0),
        (DType::U8, 1.0, 2.0, "sub", 255.0),
        (DType::I8, 127.0, 1.0, "add", -128.0),
        (DType::I8, -128.0, -1.0, "mul", -128.0),
        (DType::U16, 65_535.0, 2.0, "mul", 65_534.0),
        (DType::I16, -32_768.0, 1.0, "sub", 32_767.0),
        (DType::U32, 4_294_967_295.0, 1.0, "add", 0.0),
        (DType::I32, 65_536.0, 65_536.0, "mul", 0.0),
        (DType::I32, 1.0, 32.0, "shl", 0.0),
        (DType::I32, -1.0, 40.0, "shr", 0.0),
        (DType::U8, 255.0, 8.0, "shr", 0.0),
        (DType::I8, -128.0, 1.0, "shr", -64.0),
        (DType::I64, 9.0, 64.0, "shl", 0.0),
    ] {
        let text = format!("(%a: {dtype}[n], %b: {dtype}[n]) -> (%y) {{\n  %y = {op} %a, %b\n}}");
        for n in [1, 67] {
            gives(
                &text,
                &[tensor(dtype, &[n], &vec![a; n]), tensor(dtype, &[n], &vec![b; n])],
                &[n],
                &vec![want; n],
            );
        }
    }
    for (to, x, want) in [
        (DType::U8, 300.7, 255.0),
        (DType::U8, -5.0, 0.0),
        (DType::I8, f64::NAN, 0.0),
        (DType::I32, f64::INFINITY, f64::from(i32::MAX)),
        (DType::I32, -1e30, f64::from(i32::MIN)),
        (DType::I16, -2.9, -2.0),
        (DType::Bool, f64::NAN, 1.0),
        (DType::Bool, -0.0, 0.0),
        (DType::F16, 65_520.0, f64::INFINITY),
        (DType::F16, 65_519.0, 65_504.0),
    ] {
        let text = format!("(%x: f32[n]) -> (%y) {{\n  %y = cast %x {{to = {to}}}\n}}");
        gives(&text, &[f32s(&[1], &[x])], &[1], &[want]);
    }
    let narrow = "(%x: i32[n]) -> (%y) {\n  %c = cast %x {to = u8}\n  %y = cast %c {to = i16}\n}";
    gives(narrow, &[tensor(DType::I32, &[3], &[256.0, -1.0, 300.0])], &[3], &[0.0, 255.0, 44.0]);
}

/// Theme 6: a session that has seen other shapes, an error between them.
#[test]
fn an_error_leaves_nothing_behind() {
    let mut s = session("(%a: i32[n], %b: i32[n]) -> (%y) {\n  %y = rem %a, %b\n}");
    let t = |v: &[f64]| tensor(DType::I32, &[v.len()], v);
    assert_eq!(values(&s.run([("a", t(&[7.0, 8.0])), ("b", t(&[4.0, 3.0]))]).unwrap()["y"]), [3.0, 2.0]);
    s.run([("a", t(&[7.0])), ("b", t(&[0.0]))]).unwrap_err();
    s.run([("a", t(&[7.0])), ("b", t(&[1.0, 2.0]))]).unwrap_err();
    assert_eq!(values(&s.run([("a", t(&[7.0])), ("b", t(&[4.0]))]).unwrap()["y"]), [3.0]);
    assert_eq!(values(&s.run([("a", t(&[])), ("b", t(&[]))]).unwrap()["y"]), [0f64; 0]);
}

/// Sums of many elements are accurate, whole or along either axis.
#[test]
fn a_sum_of_ten_million() {
    let n = 10_000_000usize;
    let mut x = Tensor::zeros(DType::F32, &[n]).unwrap();
    let mut want = 0f64;
    let mut state = 1u64;
    for v in x.bytes_mut().chunks_exact_mut(4) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let f = (state >> 40) as f32 / 16_777_216.0;
        want += f64::from(f);
        v.copy_from_slice(&f.to_le_bytes());
    }
    let mut s = session("(%x: f32[n]) -> (%y) {\n  %y = reduce %x {op = sum, axes = [0]}\n}");
    let y = s.run([("x", x.clone())]).unwrap()["y"].get(0).as_f64();
    assert!((y - want).abs() < 1e-6 * want, "{y}, not {want}");
    let mut s = session("(%x: f32[n, 2]) -> (%y) {\n  %y = reduce %x {op = sum, axes = [0]}\n}");
    let x = Tensor::from_bytes(DType::F32, &[n / 2, 2], x.bytes()).unwrap();
    let y: f64 = values(&s.run([("x", x)]).unwrap()["y"]).iter().sum();
    assert!((y - want).abs() < 1e-6 * want, "{y}, not {want}");
}

/// The same through a stream, where shapes are never declared.
#[test]
fn streams_take_any_size() {
    let s = Stream::new(Options::default());
    for n in [0usize, 1, 2, 33] {
        let x = s.tensor(&[n, 3], &vec![1.5f32; 3 * n]).unwrap();
        assert_eq!(x.sum(0).unwrap().to_vec::<f32>().unwrap(), vec![1.5 * n as f32; 3]);
        assert_eq!(x.exp().unwrap().shape(), [n, 3]);
        let y = x.matmul_t(&x).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![6.75; n * n]);
    }
}
