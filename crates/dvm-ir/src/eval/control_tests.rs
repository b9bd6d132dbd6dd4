//! Controls: text, bytes, rules and meaning.

use crate::eval::eval_graph;
use crate::testing::controls::{GROW, IF_ELSE_ADD, MASK, READ, SCAN};
use crate::{Graph, Tensor};

fn graph(text: &str) -> Graph {
    let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{}", e.render("test", text)));
    g.verify().unwrap_or_else(|v| panic!("{v:?}"));
    let again = g.to_text();
    assert_eq!(
        Graph::from_text(&again).unwrap_or_else(|e| panic!("{}", e.render("again", &again))).to_text(),
        again
    );
    let stored = Graph::from_bytes(&g.to_bytes()).unwrap();
    assert_eq!(stored.to_text(), again);
    g
}
fn f(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(shape, data).unwrap()
}

#[test]
fn branches() {
    let g = graph(IF_ELSE_ADD);
    assert_eq!(g.to_text(), IF_ELSE_ADD);
    let run = |x: &[f32], y: &[f32]| {
        eval_graph(&g, &[("x", f(&[x.len()], x)), ("y", f(&[y.len()], y))])
            .map(|o| o[0].as_slice::<f32>().unwrap().to_vec())
    };
    assert_eq!(run(&[1.0, 2.0], &[3.0, 5.0]).unwrap(), [4.0, 7.0]);
    assert_eq!(run(&[-1.0, 0.5, 0.0], &[3.0, 5.0, 1.0]).unwrap(), [-4.0, -4.5, -1.0]);
    assert_eq!(run(&[], &[]).unwrap(), [] as [f32; 0]);
}

#[test]
fn scans() {
    let g = graph(SCAN);
    let outs = eval_graph(&g, &[("x", f(&[3, 2], &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0]))]).unwrap();
    assert_eq!(outs[0].as_slice::<f32>().unwrap(), [7.0, 70.0]);
    assert_eq!(outs[1].as_slice::<f32>().unwrap(), [4.0, 40.0, 6.0, 60.0, 7.0, 70.0]);
    // No iteration: the initial value, and no row of the known width.
    let outs = eval_graph(&g, &[("x", f(&[0, 2], &[]))]).unwrap();
    assert_eq!(
        (outs[0].as_slice::<f32>().unwrap(), outs[1].shape()),
        ([0.0, 0.0].as_slice(), [0, 2].as_slice())
    );
}

#[test]
fn shapes_grow() {
    let g = graph(GROW);
    for (n, limit, expect, steps) in [(3, 10, 12, 2), (1, 1, 2, 1), (4, 4, 8, 1)] {
        let limit = Tensor::from_slice(&[], &[limit as i64]).unwrap();
        let outs = eval_graph(&g, &[("x", f(&[n], &vec![1.0; n])), ("limit", limit)]).unwrap();
        assert_eq!((outs[0].shape(), outs[1].get(0).as_i64()), ([expect].as_slice(), steps));
    }
    // 0 elements stay 0: a hundred iterations and no more.
    let limit = Tensor::from_slice(&[], &[5i64]).unwrap();
    let outs = eval_graph(&g, &[("x", f(&[0], &[])), ("limit", limit)]).unwrap();
    assert_eq!(outs[1].get(0).as_i64(), 100);
}

#[test]
fn shapes_depend_on_data() {
    let g = graph(MASK);
    let outs = eval_graph(&g, &[("x", f(&[4], &[1.0, -1.0, f32::NAN, 3.0]))]).unwrap();
    assert_eq!(outs[0].as_slice::<f32>().unwrap(), [2.0, 6.0]);
    let outs = eval_graph(&g, &[("x", f(&[2], &[0.0, -0.0]))]).unwrap();
    assert_eq!(outs[0].shape(), [0]);

    let g = graph(READ);
    let run = |n: i64| eval_graph(&g, &[("x", Tensor::from_slice(&[1], &[n]).unwrap())]);
    assert_eq!(run(2).unwrap()[0].shape(), [4]);
    assert_eq!(run(5).unwrap_err().to_string(), "read \"size\": result 0 is 10, declared `k` in 0..=9");
}

#[test]
fn endless_loops_end() {
    let text = GROW.replace("= 100\n", "= 9223372036854775807\n");
    let limit = Tensor::from_slice(&[], &[5i64]).unwrap();
    let e = eval_graph(&graph(&text), &[("x", f(&[0], &[])), ("limit", limit)]).unwrap_err().to_string();
    assert_eq!(e, "loop: more than 1048576 iterations");
}

#[test]
fn broken_controls() {
    let check = |text: &str, from: &str, to: &str, expect: &str| {
        assert!(text.contains(from), "{from}");
        let e = Graph::from_text(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert_eq!(e, expect);
    };
    check(IF_ELSE_ADD, "if %p,", "if %c,", "the condition must be one bool, it is f32");
    check(IF_ELSE_ADD, ", %x, %y then", " then", "has 3 operands, not 5");
    check(
        IF_ELSE_ADD,
        "else (%a: f32[n]",
        "else (%a: i32[n]",
        "sub (i32[n], f32[n]): operands must have one dtype",
    );
    check(IF_ELSE_ADD, "%r: f32[n] = if", "%r = if", "a result of `if` needs its type");
    check(
        IF_ELSE_ADD,
        "%r: f32[n] = if",
        "%r: f32[n, n] = if",
        "result 0 is f32[n, n], its bodies give f32 of rank 1",
    );
    check(SCAN, "%init, %x {", "%init, %init {", "input \"row\" of body 0 is f32[n], its operand f32[n]");
    check(SCAN, "backward = [0]", "backward = [2]", "the loop walks 2 tensors");
    check(SCAN, "(%i: i64[]", "(%i: i32[]", "the body's first inputs must be i64[] and bool[]");
    check(READ, "%twice = [k]", "%twice = [k, k]", "2 elements are named, the shape has Some(1)");
}
