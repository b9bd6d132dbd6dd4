//! Products against a naive chain, over shapes, strides, levels and dtypes.

use dvm_bc::DType;

use super::{Left, Mmad, Pack, Right, mmad, pack};
use crate::Isa;

/// A reproducible generator of small numbers.
struct Numbers(u64);
impl Numbers {
    fn next(&mut self) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as i32 % 1000 - 500
    }
}

const SHAPES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 16, 8),
    (1, 70, 33),
    (2, 33, 17),
    (3, 40, 9),
    (4, 24, 16),
    (4, 17, 600),
    (5, 8, 5),
    (6, 16, 32),
    (7, 31, 64),
    (12, 48, 12),
    (13, 1, 20),
    (20, 100, 37),
    (1, 130, 1),
    (9, 15, 0),
    (30, 64, 530),
];

/// Elements of a matrix stored with a given stride pair.
fn strides(rows: usize, cols: usize, transposed: bool) -> (usize, usize) {
    if transposed { (1, rows + 3) } else { (cols + 5, 1) }
}

fn level_cases() -> Vec<(Isa, usize, usize)> {
    let mut v = vec![];
    for isa in [Isa::Portable, Isa::detect()] {
        for (mr, nr) in [(6, 16), (16, 16), (6, 8), (4, 32)] {
            v.push((isa, mr, nr));
        }
    }
    v
}

/// Runs one f32 product in every way and compares all bits with the chain of fused multiply-adds.
#[test]
fn f32_products_are_one_chain() {
    for &(m, n, k) in SHAPES {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut numbers = Numbers((m * 1000 + n * 10 + k) as u64);
            let ((ar, ac), (br, bc)) = (strides(m, k, ta), strides(k, n, tb));
            let a: Vec<f32> = (0..m * ar + k * ac + 1).map(|_| numbers.next() as f32 / 37.0).collect();
            let b: Vec<f32> = (0..k * br + n * bc + 1).map(|_| numbers.next() as f32 / 53.0).collect();
            let start: Vec<f32> = (0..m * (n + 2)).map(|_| numbers.next() as f32).collect();
            for accumulate in [false, true] {
                let mut want = start.clone();
                for i in 0..m {
                    for j in 0..n {
                        let mut x = if accumulate { start[i * (n + 2) + j] } else { 0.0 };
                        for kk in 0..k {
                            x = a[i * ar + kk * ac].mul_add(b[kk * br + j * bc], x);
                        }
                        want[i * (n + 2) + j] = x;
                    }
                }
                for (isa, mr, nr) in level_cases() {
                    let k_body = k + 3;
                    let mut pa = vec![f32::NAN; m.div_ceil(mr) * mr * k_body];
                    let mut pb = vec![f32::NAN; n.div_ceil(nr) * nr * k_body];
                    let f = pack(DType::F32, isa).expect("f32");
                    let shape_a = Pack {
                        lines: m,
                        k,
                        line_stride: ar as isize * 4,
                        k_stride: ac as isize * 4,
                        width: mr,
                        panel_stride: mr * k_body,
                    };
                    let shape_b = Pack {
                        lines: n,
                        k,
                        line_stride: bc as isize * 4,
                        k_stride: br as isize * 4,
                        width: nr,
                        panel_stride: nr * k_body,
                    };
                    // SAFETY: the buffers are as large as the shapes say.
                    unsafe {
                        f(pa.as_mut_ptr().cast(), a.as_ptr().cast(), &shape_a);
                        f(pb.as_mut_ptr().cast(), b.as_ptr().cast(), &shape_b);
                    }
                    let packed = Left::packed(pa.as_ptr().cast(), mr, mr * k_body);
                    let strided = Left::strided(a.as_ptr().cast(), ar as isize, ac as isize);
                    for left in [packed, strided] {
                        let mut got = start.clone();
                        let right = Right { ptr: pb.as_ptr().cast(), width: nr, panel_stride: nr * k_body };
                        let product = mmad(DType::F32, false, isa).expect("f32");
                        let acc = got.as_mut_ptr().cast();
                        // SAFETY: the buffers are as large as the shapes say.
                        unsafe { product(&Mmad { acc, pitch: n + 2, left, right, m, n, k, accumulate }) };
                        let same = got.iter().zip(&want).all(|(g, w)| g.to_bits() == w.to_bits());
                        assert!(same, "{m}x{n}x{k} ta {ta} tb {tb} {isa:?} mr {mr} nr {nr} {left:?}");
                    }
                }
            }
        }
    }
}

/// One dtype in every way, against arithmetic in `i64` or `f64` that is exact for these small numbers.
fn check_dtype<T: Copy>(dtype: DType, from: impl Fn(i32) -> T, acc_value: impl Fn(&[u8]) -> f64) {
    let size = dtype.size() as usize;
    let acc_size = dvm_bc::layout::acc_dtype(dtype).expect("has a product").size() as usize;
    let elem = dvm_bc::layout::panel_elem_bytes(dtype) as usize;
    for &(m, n, k) in SHAPES {
        let mut numbers = Numbers(k as u64);
        let mut small = || numbers.next().rem_euclid(5);
        let (ai, bi): (Vec<i32>, Vec<i32>) =
            ((0..m * k).map(|_| small()).collect(), (0..k * n).map(|_| small()).collect());
        let (a, b): (Vec<T>, Vec<T>) =
            (ai.iter().map(|&x| from(x)).collect(), bi.iter().map(|&x| from(x)).collect());
        for isa in [Isa::Portable, Isa::detect()] {
            for narrow in [false, true] {
                let (mr, nr) = (6, if size == 8 { 8 } else { 16 });
                // Eight-byte buffers, so that every element type is aligned.
                let mut pa = vec![0u64; (m.div_ceil(mr) * mr * k * elem).div_ceil(8)];
                let mut pb = vec![0u64; (n.div_ceil(nr) * nr * k * elem).div_ceil(8)];
                let mut acc = vec![0u64; (m * n * acc_size).div_ceil(8)];
                let f = pack(dtype, isa).expect("has a product");
                let shape_a = Pack {
                    lines: m,
                    k,
                    line_stride: (k * size) as isize,
                    k_stride: size as isize,
                    width: mr,
                    panel_stride: mr * k,
                };
                let shape_b = Pack {
                    lines: n,
                    k,
                    line_stride: size as isize,
                    k_stride: (n * size) as isize,
                    width: nr,
                    panel_stride: nr * k,
                };
                // SAFETY: the buffers are as large as the shapes say.
                unsafe {
                    f(pa.as_mut_ptr().cast(), a.as_ptr().cast(), &shape_a);
                    f(pb.as_mut_ptr().cast(), b.as_ptr().cast(), &shape_b);
                }
                if narrow && matches!(dtype, DType::F16 | DType::BF16) {
                    let mut halves = vec![0u64; pb.len()];
                    // SAFETY: as above; a panel of halves is a panel of 16-bit words.
                    unsafe {
                        let f = pack(DType::U16, isa).expect("u16");
                        f(halves.as_mut_ptr().cast(), b.as_ptr().cast(), &shape_b);
                    }
                    pb = halves;
                }
                let left = Left::packed(pa.as_ptr().cast(), mr, mr * k);
                let right = Right { ptr: pb.as_ptr().cast(), width: nr, panel_stride: nr * k };
                let product = mmad(dtype, narrow, isa).expect("has a product");
                let p =
                    Mmad { acc: acc.as_mut_ptr().cast(), pitch: n, left, right, m, n, k, accumulate: false };
                // SAFETY: the buffers are as large as the shapes say.
                unsafe { product(&p) };
                let bytes: Vec<u8> = acc.iter().flat_map(|w| w.to_ne_bytes()).collect();
                for i in 0..m {
                    for j in 0..n {
                        let want: i64 =
                            (0..k).map(|kk| i64::from(ai[i * k + kk]) * i64::from(bi[kk * n + j])).sum();
                        let at = (i * n + j) * acc_size;
                        let got = acc_value(&bytes[at..at + acc_size]);
                        assert_eq!(
                            got, want as f64,
                            "{dtype} {m}x{n}x{k} ({i}, {j}) {isa:?} narrow {narrow}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_dtype_multiplies() {
    let f32s = |b: &[u8]| f64::from(f32::from_ne_bytes(b.try_into().expect("4 bytes")));
    let f64s = |b: &[u8]| f64::from_ne_bytes(b.try_into().expect("8 bytes"));
    let i32s = |b: &[u8]| f64::from(i32::from_ne_bytes(b.try_into().expect("4 bytes")));
    let i64s = |b: &[u8]| i64::from_ne_bytes(b.try_into().expect("8 bytes")) as f64;
    check_dtype(DType::F32, |x| x as f32, f32s);
    check_dtype(DType::F64, f64::from, f64s);
    check_dtype(DType::F16, |x| half::f16::from_f32(x as f32), f32s);
    check_dtype(DType::BF16, |x| half::bf16::from_f32(x as f32), f32s);
    check_dtype(DType::I8, |x| x as i8, i32s);
    check_dtype(DType::U8, |x| x as u8, i32s);
    check_dtype(DType::I16, |x| x as i16, i32s);
    check_dtype(DType::U16, |x| x as u16, i32s);
    check_dtype(DType::I32, |x| x, i32s);
    check_dtype(DType::U32, |x| x as u32, i32s);
    check_dtype(DType::I64, i64::from, i64s);
    check_dtype(DType::U64, |x| x as u64, i64s);
}
