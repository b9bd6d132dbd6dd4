//! The fusion that changes a value is found, and nothing where none does.

use dvm::compare::Tolerance;
use dvm::ir::kernel::{KOp, Kernel};
use dvm::{DType, Module, Options, Plan, Tensor, UnaryOp, bisect};

const TEXT: &str = "graph chain(%x: f32[b, 40]) -> (%y, %t) {
    %a = softmax %x {axis = 1} @\"first\"
    %s = sqrt %a @\"root\"
    %e = exp %s @\"grow\"
    %y = softmax %e {axis = 0} @\"second\"
    %t = tanh %x
}";

fn inputs() -> Vec<(String, Tensor)> {
    vec![("x".into(), dvm::fill::fill("x", DType::F32, &[9, 40]).unwrap())]
}

/// Puts something else into kernels that compute a square root among other things.
fn faulty(plan: &mut Plan, wrong: fn(&mut Kernel, usize)) {
    for k in &mut plan.kernels {
        let computed = |op: &KOp| !matches!(op, KOp::Load { .. } | KOp::Const(_) | KOp::DimConst(_));
        let ops = k.body.iter().filter(|i| computed(&i.op)).count();
        let root = k.body.iter().position(|i| matches!(i.op, KOp::Unary(UnaryOp::Sqrt, _)));
        if let (true, Some(at)) = (ops > 1, root) {
            wrong(k, at);
        }
    }
}

#[test]
fn a_faulty_fusion_is_found() {
    let module = Module::from_text(TEXT).unwrap().tampered(|plan| {
        faulty(plan, |k, at| {
            let KOp::Unary(_, x) = k.body[at].op else { return };
            k.body[at].op = KOp::Unary(UnaryOp::Abs, x);
        });
    });
    let found = bisect(&module, &inputs(), &Options::default(), None).unwrap();
    let culprit = found.culprit.unwrap();
    assert_eq!(culprit.output, "y");
    assert!(culprit.difference.contains("360 values differ"), "{}", culprit.difference);
    // The square root joins the kernel of the first softmax.
    assert_eq!(culprit.joined, ["sqrt root"]);
    assert!(culprit.after.is_some_and(|n| n > 0 && n < found.contractions));
    let [kernel] = culprit.kernels.as_slice() else { panic!("{:?}", culprit.kernels) };
    assert!(kernel.ops.contains(&"softmax first".to_string()), "{:?}", kernel.ops);
    assert!(!kernel.ops.contains(&"exp grow".to_string()), "no later op is in it: {:?}", kernel.ops);
    assert!(kernel.text.contains("abs"), "{}", kernel.text);
    let log = (found.contractions as f64).log2().ceil() as usize;
    assert!(found.runs <= log + 3, "{} runs for {} contractions", found.runs, found.contractions);
}

#[test]
fn sound_fusion_changes_no_bit() {
    let module = Module::from_text(TEXT).unwrap();
    let found = bisect(&module, &inputs(), &Options::default(), None).unwrap();
    assert_eq!((found.culprit, found.runs), (None, 2));
    assert!(found.contractions > 5);
}

#[test]
fn small_differences_may_be_allowed() {
    let module = Module::from_text(TEXT).unwrap().tampered(|plan| {
        faulty(plan, |k, at| {
            // Wrong, but not by more than 1.
            let KOp::Unary(_, x) = k.body[at].op else { return };
            k.body[at].op = KOp::Binary(dvm::BinaryOp::Mul, x, x);
        });
    });
    let loose = Tolerance { rtol: 0.0, atol: 1.0 };
    assert_eq!(bisect(&module, &inputs(), &Options::default(), Some(loose)).unwrap().culprit, None);
    let tight = Tolerance { rtol: 1e-6, atol: 0.0 };
    assert!(bisect(&module, &inputs(), &Options::default(), Some(tight)).unwrap().culprit.is_some());
}
