use crate::{CheckCond, DType, Dim, Graph, Op, PadMode, ReduceOp, Scalar, UnaryOp, ValueId};

struct T {
    g: Graph,
    b: Dim,
    s: Dim,
}

impl T {
    fn new() -> T {
        let mut g = Graph::new("t");
        let (b, s) = (g.dims.symbol("b"), g.dims.symbol("s"));
        T { g, b, s }
    }
    fn c(&mut self, n: i64) -> Dim {
        self.g.dims.constant(n)
    }
    fn ty(&self, v: ValueId) -> String {
        self.g.dims.display_type(&self.g.value(v).ty).to_string()
    }
    fn checks(&self) -> Vec<String> {
        self.g.checks.iter().map(|c| format!("{} -- {}", self.g.dims.display_cond(c.cond), c.what)).collect()
    }
}

/// Operand types as text, an op, and the type, checks or error expected.
fn check(operands: &[(DType, &[&str])], op: impl FnOnce(&mut T) -> Op, expect: &str) {
    let mut t = T::new();
    let ids: Vec<ValueId> = operands
        .iter()
        .enumerate()
        .map(|(i, (dtype, shape))| {
            let shape: Vec<Dim> = shape
                .iter()
                .map(|e| match e.parse::<i64>() {
                    Ok(n) => t.c(n),
                    Err(_) => t.g.dims.symbol(e),
                })
                .collect();
            t.g.input(["x", "y", "z"][i], *dtype, &shape)
        })
        .collect();
    let op = op(&mut t);
    let got = match t.g.push_named(op, &ids, "node") {
        Ok(v) => std::iter::once(t.ty(v)).chain(t.checks()).collect::<Vec<_>>().join("\n"),
        Err(e) => format!("error: {e}"),
    };
    assert_eq!(got, expect);
}

const F: DType = DType::F32;
const I: DType = DType::I64;

#[test]
fn elementwise() {
    let add = |_: &mut T| Op::Binary(crate::BinaryOp::Add);
    check(&[(F, &["b", "1", "4"]), (F, &["s", "1"])], add, "f32[b, s, 4]");
    check(
        &[(F, &["b"]), (F, &["s"])],
        add,
        "f32[broadcast(b, s)]\nb ~ s -- add \"node\": axis 0 of \"y\" and \"x\"",
    );
    check(&[(F, &["b"]), (F, &["4"])], add, "f32[4]\nb in (1, 4) -- add \"node\": axis 0 of \"y\" and \"x\"");
    check(&[(F, &["b", "0"]), (F, &["1", "1"])], add, "f32[b, 0]");
    check(&[(F, &[]), (F, &[])], add, "f32[]");
    check(
        &[(F, &["b", "2"]), (F, &["3"])],
        add,
        "error: add \"node\" (f32[b, 2], f32[3]): axis 0 of \"y\" and \"x\": extents 2 and 3 do not broadcast",
    );
    check(
        &[(F, &["b"]), (I, &["b"])],
        add,
        "error: add \"node\" (f32[b], i64[b]): operands must have one dtype",
    );
    check(&[(F, &["b"])], add, "error: add \"node\" takes 2 operands, got 1");
    check(&[(I, &["b"])], |_| Op::Unary(UnaryOp::Exp), "error: exp \"node\" (i64[b]): needs a float dtype");
    check(&[(F, &["b"])], |_| Op::Unary(UnaryOp::IsNan), "bool[b]");
    check(&[(DType::Bool, &["b", "1"]), (F, &["s"]), (F, &[])], |_| Op::Select {}, "f32[b, s]");
    check(&[(F, &["b", "s"]), (F, &["s"]), (F, &[])], |_| Op::Clamp {}, "f32[b, s]");
    check(
        &[(F, &["s"]), (F, &["b", "s"]), (F, &[])],
        |_| Op::Clamp {},
        "error: clamp \"node\" (f32[s], f32[b, s], f32[]): the bounds must not have more axes than x",
    );
}

#[test]
fn shapes() {
    let reshape = |f: fn(&mut T) -> Vec<Dim>| move |t: &mut T| Op::Reshape { shape: f(t) };
    check(
        &[(F, &["b", "s", "12", "32"])],
        reshape(|t| {
            let n = t.c(384);
            vec![t.b, t.s, n]
        }),
        "f32[b, s, 384]",
    );
    check(
        &[(F, &["b", "4"])],
        reshape(|t| vec![t.s]),
        "f32[s]\n4*b == s -- reshape \"node\": element count of [b, 4] and [s]",
    );
    check(
        &[(F, &["6"])],
        reshape(|t| vec![t.c(4)]),
        "error: reshape \"node\" (f32[6]): element count of [6] and [4]: 6 == 4 never holds",
    );
    check(&[(F, &["b", "s"])], |_| Op::Transpose { perm: vec![1, 0] }, "f32[s, b]");
    check(
        &[(F, &["b", "s"])],
        |_| Op::Transpose { perm: vec![1, 1] },
        "error: transpose \"node\" (f32[b, s]): [1, 1] is not a permutation of 2 axes",
    );
    check(&[(F, &["b"])], |t| Op::Expand { shape: vec![t.s, t.b] }, "f32[s, b]");
    check(
        &[(F, &["s"])],
        |t| Op::Slice { start: vec![t.c(1)], len: vec![t.c(2)], step: vec![2] },
        "f32[2]\n4 <= s -- slice \"node\": last element of axis 0",
    );
    check(&[(F, &["5"])], |t| Op::Slice { start: vec![t.c(4)], len: vec![t.c(5)], step: vec![-1] }, "f32[5]");
    check(
        &[(F, &["5"])],
        |t| Op::Slice { start: vec![t.c(4)], len: vec![t.c(6)], step: vec![-1] },
        "error: slice \"node\" (f32[5]): first element of axis 0: 0 <= -1 never holds",
    );
    check(&[(F, &["5"])], |t| Op::Slice { start: vec![t.c(9)], len: vec![t.c(0)], step: vec![1] }, "f32[0]");
    check(
        &[(F, &["b", "7"])],
        |t| Op::Window { axis: 1, count: t.c(3), size: t.c(3), stride: 2, dilation: 1 },
        "f32[b, 3, 3]",
    );
    check(&[(F, &["b", "2"]), (F, &["s", "2"])], |_| Op::Concat { axis: 0 }, "f32[b + s, 2]");
    check(
        &[(F, &["b", "2"]), (F, &["b", "s"])],
        |_| Op::Concat { axis: 0 },
        "f32[2*b, 2]\n2 == s -- concat \"node\": axis 1 of \"x\" and \"y\"",
    );
    let pad = |mode| {
        move |t: &mut T| Op::Pad {
            before: vec![t.c(1)],
            after: vec![t.c(0)],
            mode,
            value: Scalar::Float(0.0),
        }
    };
    check(&[(F, &["s"])], pad(PadMode::Constant), "f32[s + 1]");
    check(
        &[(F, &["s"])],
        pad(PadMode::Reflect),
        "f32[s + 1]\n1 <= s - 1 -- pad \"node\": reflect padding before axis 0",
    );
    check(&[(F, &["b", "30522", "8"]), (I, &["s", "2"])], |_| Op::Gather { axis: 1 }, "f32[b, s, 2, 8]");
    check(&[(F, &["b", "9"]), (I, &["b", "s"])], |_| Op::GatherElements { axis: 1 }, "f32[b, s]");
}

#[test]
fn reductions_and_products() {
    let sum = |axes: &[usize], keepdims| {
        let axes = axes.to_vec();
        move |_: &mut T| Op::Reduce { op: ReduceOp::Sum, axes, keepdims }
    };
    check(&[(F, &["b", "s", "4"])], sum(&[0, 2], true), "f32[1, s, 1]");
    check(&[(F, &["b", "s", "4"])], sum(&[0, 2], false), "f32[s]");
    check(
        &[(F, &["b"])],
        sum(&[1], false),
        "error: reduce \"node\" (f32[b]): axes [1] must be sorted, distinct and below the rank 1",
    );
    check(
        &[(F, &["b", "s"])],
        |_| Op::ArgMax { axis: 1, keepdims: false, last: false },
        "i64[b]\nmin(b, 1) <= s -- argmax \"node\": axis 1 must not be empty",
    );
    let mm = |trans_a, trans_b| move |_: &mut T| Op::MatMul { trans_a, trans_b };
    check(&[(F, &["b", "s", "64"]), (F, &["64", "8"])], mm(false, false), "f32[b, s, 8]");
    check(&[(F, &["b", "64", "s"]), (F, &["8", "64"])], mm(true, true), "f32[b, s, 8]");
    check(
        &[(F, &["b", "s"]), (F, &["64", "8"])],
        mm(false, false),
        "f32[b, 8]\ns == 64 -- matmul \"node\": inner extents of \"x\" and \"y\"",
    );
    check(
        &[(F, &["2", "3"]), (F, &["4", "5"])],
        mm(false, false),
        "error: matmul \"node\" (f32[2, 3], f32[4, 5]): inner extents of \"x\" and \"y\": 3 == 4 never holds",
    );
    check(
        &[(F, &["b", "64"]), (F, &["64"]), (F, &["64"])],
        |_| Op::LayerNorm { axis: 1, eps: 1e-5 },
        "f32[b, 64]",
    );
}

/// A missing equality is asked for once; later ops rely on it, and a contradiction is an error at once.
#[test]
fn checks_become_facts() {
    let mut t = T::new();
    let (c4, c5) = (t.c(4), t.c(5));
    let x = t.g.input("x", F, &[t.b, t.s]);
    let four = t.g.input("four", F, &[c4, t.b]);
    let five = t.g.input("five", F, &[c5, t.b]);
    t.g.matmul(x, four).unwrap();
    t.g.matmul(x, four).unwrap();
    assert_eq!(t.g.checks.len(), 1);
    let before = (t.g.nodes.len(), t.g.values.len());
    let e = t.g.matmul(x, five).unwrap_err().to_string();
    assert_eq!(e, "matmul (f32[b, s], f32[5, b]): inner extents of \"x\" and \"five\": s == 5 never holds");
    assert_eq!((t.g.nodes.len(), t.g.values.len()), before);
    let cond = CheckCond::Equal(t.s, c4);
    assert!(t.g.assume(cond, "again").is_ok());
}

#[test]
fn unknown_values_are_errors() {
    let mut t = T::new();
    let e = t.g.unary(UnaryOp::Exp, ValueId(7)).unwrap_err().to_string();
    assert_eq!(e, "exp: operand 0 is v7, but the graph has 0 values");
}
