//! Dtypes that a machine lacks: the same bits as where it has them, or an error that says what is missing.

mod common;

use common::{K, program, run};
use dvm_bc::{Class, Limits, Opcode, Verified};
use dvm_ir::kernel::{KOp, KReduce};
use dvm_ir::{BinaryOp, DType, UnaryOp};
use dvm_npu::MachineSpec;
use dvm_vm::Isa;

fn spec(name: &str) -> MachineSpec {
    MachineSpec::named(name).unwrap()
}

/// Kernels of one dtype, each of which needs something of it.
fn kernels(d: DType) -> Vec<K> {
    let mut out = vec![];
    let numeric = d != DType::Bool;
    for &op in UnaryOp::ALL {
        let fine = if d.is_float() {
            op != UnaryOp::Not
        } else {
            (numeric && !op.float_only()) || op == UnaryOp::Not
        };
        if fine {
            let mut k = K::new(&format!("{} {d}", op.name()), &[3, 50]);
            let x = k.load(d, &[0, 1]);
            let y = k.unary(op, x);
            k.store(y, &[0, 1]);
            out.push(k);
        }
    }
    for &op in BinaryOp::ALL {
        let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem | BinaryOp::Fmod);
        let bits = matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
        let fine = if d.is_float() { !bits && !shift } else { numeric || bits || op.is_comparison() };
        if !fine {
            continue;
        }
        let mut k = K::new(&format!("{} {d}", op.name()), &[3, 50]);
        let (x, mut y) = (k.load(d, &[0, 1]), k.load(d, &[1]));
        if divides && !d.is_float() {
            let one = k.constant(d, 1.0);
            let two = k.constant(d, 3.0);
            y = k.binary(BinaryOp::Max, y, one);
            y = k.binary(BinaryOp::Min, y, two);
        }
        if shift {
            // Beyond the width as well, and negative where there is a sign.
            let five = k.constant(d, 5.0);
            y = k.binary(BinaryOp::Mul, y, five);
        }
        let z = k.binary(op, x, y);
        k.store(z, &[0, 1]);
        out.push(k);
    }
    if numeric {
        for op in [KReduce::Sum, KReduce::Max, KReduce::Min, KReduce::Prod] {
            // Rows and columns, and a row that does not fit.
            for (extents, axis) in [(&[3, 50][..], 1), (&[50, 3], 0), (&[1, 300_000], 1)] {
                let mut k = K::new(&format!("{op:?} {d} {extents:?}"), extents);
                let x = k.load(d, &[0, 1]);
                let y = k.reduce(op, x, &[axis]);
                k.store(y, &[1 - axis]);
                out.push(k);
            }
        }
        let mut k = K::new(&format!("argmax {d}"), &[3, 50]);
        let x = k.load(d, &[0, 1]);
        let mask = k.mask(x).minus(dvm_ir::kernel::AxisSet::one(1));
        let y = k.push(KOp::ArgReduce { max: true, last: false, x, axis: 1 }, DType::I64, mask);
        k.store(y, &[0]);
        out.push(k);
        let mut k = K::new(&format!("cumsum {d}"), &[3, 50]);
        let x = k.load(d, &[0, 1]);
        let mask = k.mask(x);
        let y = k.push(KOp::CumSum { x, axis: 1, exclusive: false, reverse: false }, d, mask);
        k.store(y, &[0, 1]);
        out.push(k);
        // Immediates, a condition, three operands.
        let mut k = K::new(&format!("mixed {d}"), &[3, 50]);
        let (x, y) = (k.load(d, &[0, 1]), k.load(d, &[0]));
        let two = k.constant(d, 2.0);
        let c = k.binary(BinaryOp::Lt, x, y);
        let s = k.select(c, x, two);
        let mask = k.mask(s);
        let f = k.push(KOp::Fma(s, two, y), d, mask);
        let z = k.push(KOp::Clamp(f, y, two), d, mask);
        k.store(z, &[0, 1]);
        out.push(k);
    }
    out
}

#[test]
fn narrow_types_give_the_bits_of_the_host() {
    let (host, npu) = (spec("host-ref"), spec("ascend-910b2"));
    let mut widened = 0;
    for d in [DType::BF16, DType::F16, DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::Bool]
    {
        for k in kernels(d) {
            let (p, _) = program(&k, &npu).unwrap_or_else(|e| panic!("{}: {e}", k.kernel.name));
            let p = Verified::new(p, &Limits::default()).unwrap_or_else(|e| panic!("{}: {e}", k.kernel.name));
            let insts = p.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections);
            for inst in insts.flat_map(|s| s.code.iter()).map(Result::unwrap) {
                let class = inst.op.class();
                assert!(npu.target.is_legal(class, inst.dtype), "{}: {inst:?}", k.kernel.name);
                widened += u32::from(inst.op == Opcode::VCast);
            }
            let want = run(&k, &host, Isa::detect(), 1);
            let got = run(&k, &npu, Isa::detect(), 1);
            for (g, w) in got.iter().zip(&want) {
                assert_eq!(g.bytes(), w.bytes(), "{}", k.kernel.name);
            }
        }
    }
    assert!(widened > 300, "{widened}");
}

#[test]
fn what_cannot_be_widened_is_one_error() {
    let mut npu = spec("ascend-910b2");
    npu.target.legal.retain(|l| !matches!(l.0, Class::Arith | Class::Exp));
    let f32_only = || [dvm_bc::DType::F32].into_iter().collect();
    npu.target.legal.push((Class::Arith, f32_only()));
    npu.target.legal.push((Class::Exp, f32_only()));
    let mut k = K::new("lacks", &[40]);
    let (x, y) = (k.load(DType::I64, &[0]), k.load(DType::F64, &[0]));
    let a = k.binary(BinaryOp::Add, x, x);
    let b = k.binary(BinaryOp::Mul, a, x);
    let e = k.unary(UnaryOp::Exp, y);
    k.store(b, &[0]);
    k.store(e, &[0]);
    let e = program(&k, &npu).unwrap_err().to_string();
    assert_eq!(e, "kernel `lacks`: the machine has no vadd of i64, vmul of i64, vexp of f64");
}
