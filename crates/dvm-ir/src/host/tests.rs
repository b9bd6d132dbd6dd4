//! Small cases by hand; the importer's suites have many more.

use super::*;

fn f(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(shape, data).expect("as many elements as the shape says")
}
fn i(shape: &[usize], data: &[i64]) -> Tensor {
    Tensor::from_slice(shape, data).expect("as many elements as the shape says")
}
fn one(op: HostOp, args: &[Tensor]) -> Tensor {
    op.run(args).expect("the operands fit").swap_remove(0)
}

#[test]
fn scattered_elements_meet_in_order() {
    let args = [f(&[4], &[1., 2., 3., 4.]), i(&[3], &[1, -1, 1]), f(&[3], &[10., 20., 30.])];
    for (combine, expect) in [
        (Combine::Set, [1., 30., 3., 20.]),
        (Combine::Add, [1., 42., 3., 24.]),
        (Combine::Mul, [1., 600., 3., 80.]),
        (Combine::Max, [1., 30., 3., 20.]),
        (Combine::Min, [1., 2., 3., 4.]),
    ] {
        assert_eq!(one(HostOp::Scatter { axis: 0, combine }, &args), f(&[4], &expect), "{combine:?}");
    }
    let far = [args[0].clone(), i(&[1], &[4]), f(&[1], &[0.])];
    let e = HostOp::Scatter { axis: 0, combine: Combine::Set }.run(&far).unwrap_err();
    assert_eq!(e, HostError::Index { value: 4, element: 0, extent: 4 });
}

#[test]
fn scattered_slices() {
    let args = [f(&[2, 2], &[1., 2., 3., 4.]), i(&[2, 1], &[1, 1]), f(&[2, 2], &[5., 6., 7., 8.])];
    let y = one(HostOp::ScatterNd { combine: Combine::Set }, &args);
    assert_eq!(y, f(&[2, 2], &[1., 2., 7., 8.]));
    let y = one(HostOp::ScatterNd { combine: Combine::Add }, &args);
    assert_eq!(y, f(&[2, 2], &[1., 2., 15., 18.]));
}

#[test]
fn the_largest_and_the_smallest() {
    let x = f(&[2, 4], &[1., 3., 3., f32::NAN, 4., -0., 0., 2.]);
    let out = HostOp::TopK { axis: 1, largest: true }.run(&[x.clone(), i(&[1], &[3])]).unwrap();
    assert_eq!(out[1], i(&[2, 3], &[3, 1, 2, 0, 3, 1]));
    let out = HostOp::TopK { axis: 1, largest: false }.run(&[x.clone(), i(&[1], &[2])]).unwrap();
    assert_eq!(out[1], i(&[2, 2], &[0, 1, 1, 2]));
    assert!(HostOp::TopK { axis: 1, largest: true }.run(&[x, i(&[1], &[5])]).is_err());
}

#[test]
fn distinct_elements() {
    let x = f(&[5], &[2., 1., 1., 3., 2.]);
    let out = HostOp::Unique { axis: None, sorted: true }.run(std::slice::from_ref(&x)).unwrap();
    assert_eq!(out[0], f(&[3], &[1., 2., 3.]));
    assert_eq!((&out[1], &out[2]), (&i(&[3], &[1, 0, 3]), &i(&[5], &[1, 0, 0, 2, 1])));
    let out = HostOp::Unique { axis: None, sorted: false }.run(&[x]).unwrap();
    assert_eq!((&out[0], &out[3]), (&f(&[3], &[2., 1., 3.]), &i(&[3], &[2, 2, 1])));
}

#[test]
fn parts_make_the_op_again() {
    for op in [
        HostOp::TopK { axis: 1, largest: false },
        HostOp::Unique { axis: None, sorted: true },
        HostOp::Scatter { axis: 2, combine: Combine::Max },
        HostOp::ScatterNd { combine: Combine::Mul },
        HostOp::Nms { center: true },
    ] {
        let attrs: Vec<(String, i64)> = op.attrs().into_iter().map(|(n, v)| (n.to_string(), v)).collect();
        assert!(HostOp::is_mnemonic(op.mnemonic()));
        assert_eq!(HostOp::from_parts(op.mnemonic(), &attrs), Some(op));
    }
    assert_eq!(HostOp::from_parts("topk", &[("axis".into(), 0)]), None);
}
