//! Runs a graph and its plans through the reference evaluator and compares.

use dvm_fuse::{FuseOptions, plan};
use dvm_ir::{DType, Graph, Plan, Scalar, Tensor};

/// Values for an input: small, of both signs, repeatable.
pub(crate) fn tensor(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape).unwrap();
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in 0..t.len() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let v = (x >> 40) % 257;
        let s = match dtype {
            _ if dtype.is_float() => Scalar::Float(v as f64 / 64.0 - 2.0),
            DType::Bool => Scalar::Int((v % 2) as i64),
            _ => Scalar::Int((v % 5) as i64),
        };
        t.set(i, s);
    }
    t
}

/// Tensors for every input of a graph under values of its symbols.
pub(crate) fn inputs(g: &Graph, symbols: &[(&str, i64)]) -> Vec<(String, Tensor)> {
    let mut b = dvm_ir::Bindings::new();
    for (name, v) in symbols {
        if let Some(s) = g.dims.find_symbol(name) {
            b.bind(s, *v).unwrap();
        }
    }
    let one = |(k, i): (usize, &dvm_ir::Input)| {
        let shape: Vec<usize> =
            g.shape(i.value).iter().map(|&d| g.dims.eval(d, &b).unwrap() as usize).collect();
        (i.name.clone(), tensor(g.dtype(i.value), &shape, k as u64 + 7))
    };
    g.inputs.iter().enumerate().map(one).collect()
}

pub(crate) fn plans(g: &Graph) -> (Plan, Plan) {
    let make = |fuse| {
        let p = plan(g, &FuseOptions { fuse, ..FuseOptions::default() })
            .unwrap_or_else(|e| panic!("{}: {e}", g.name));
        if let Err(v) = p.verify() {
            panic!("{} fuse={fuse}: {v:#?}\n{p}", g.name);
        }
        p
    };
    (make(true), make(false))
}

pub(crate) fn close(a: &Tensor, b: &Tensor, tol: f64) -> Result<(), String> {
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Err(format!("{a:?} and {b:?}"));
    }
    for i in 0..a.len() {
        let (x, y) = (a.get(i).as_f64(), b.get(i).as_f64());
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tol + tol * y.abs();
        if !same {
            return Err(format!("element {i}: {x} and {y}"));
        }
    }
    Ok(())
}

/// Fused and unfused plans give the graph's values for every binding.
pub(crate) fn check(g: &Graph, bindings: &[&[(&str, i64)]]) -> Plan {
    g.verify().unwrap_or_else(|v| panic!("{}: {v:#?}", g.name));
    let (fused, unfused) = plans(g);
    for symbols in bindings {
        let x = inputs(g, symbols);
        let want = dvm_ir::eval::eval_graph(g, &x);
        let parts = fused.in_parts();
        let all = [("fused", &fused), ("unfused", &unfused), ("in parts", &parts)];
        for (what, p) in all.iter().filter(|x| x.0 != "in parts" || !fused.splits.is_empty()) {
            let got = dvm_ir::eval::eval_plan(p, &x);
            match (&got, &want) {
                (Ok(got), Ok(want)) => {
                    for ((a, b), o) in got.iter().zip(want).zip(&g.outputs) {
                        let tol = if a.dtype().is_half() { 2e-2 } else { 1e-5 };
                        if let Err(e) = close(a, b, tol) {
                            panic!("{} {what} {symbols:?} {}: {e}\n{p}", g.name, o.name);
                        }
                    }
                }
                (Err(_), Err(_)) => {}
                _ => panic!("{} {what} {symbols:?}: got {got:?}, want {want:?}\n{p}", g.name),
            }
        }
    }
    fused
}
