//! Loads, stores, views, gathers, fills: which element goes where.

mod common;

use common::*;
use dvm_bc::*;
use dvm_vm::{BuildOptions, LaunchError, TrapKind};

/// One dtype for each element size.
const SIZES: [DType; 4] = [DType::U8, DType::F16, DType::I32, DType::F64];

fn numbered(dtype: DType, len: usize) -> Bytes {
    array(dtype, len, |i| V::I((i % 251) as i128))
}

#[test]
fn rows_with_pitch_and_tail() {
    for dtype in SIZES {
        let s = i64::from(dtype.size());
        // 5 x 9 of a 7 x 12 matrix at (1, 2), in tiles of 2 rows x 4 columns with tails of 1, to a 5 x 9 output.
        let (data, out) = (numbered(dtype, 84), (5, 9));
        let mut l = Locals::default();
        let t = l.ub(8 * s as usize);
        let (rows, cols) = (Size::ragged(2, 1, 0), Size::ragged(4, 1, 1));
        let insts = [
            load(dtype, t, mem(0, 14 * s, &[(0, 24 * s), (1, 4 * s)]), rows, cols, 12 * s),
            store(dtype, mem(1, 0, &[(0, 18 * s), (1, 4 * s)]), t, rows, cols, 9 * s),
        ];
        let args = [(Role::Input, dtype, 84), (Role::Output, dtype, 45)];
        let p = program(&args, &[3, 3], vec![phase(&[], &[(Place::Body, &insts)])]);
        let got = run(p, &BuildOptions::default(), &[&data]).remove(0);
        for r in 0..out.0 {
            for c in 0..out.1 {
                let want = read(dtype, data.get(), (r + 1) * 12 + c + 2);
                assert_eq!(read(dtype, got.get(), r * 9 + c), want, "{dtype} {r} {c}");
            }
        }
    }
}

fn loops(counts: &[usize], strides: &[i64]) -> Loops {
    counts.iter().zip(strides).map(|(&c, &stride)| Loop { count: n(c), stride }).collect()
}

/// Element offsets that loops visit, in order.
fn visit(counts: &[usize], strides: &[i64]) -> Vec<i64> {
    let mut all = vec![0];
    for (&c, &s) in counts.iter().zip(strides) {
        all = all.iter().flat_map(|a| (0..c as i64).map(move |i| a + i * s)).collect();
    }
    all
}

/// (first element, counts, strides in elements) in a buffer of 360 elements.
fn views() -> Vec<(i64, Vec<usize>, Vec<i64>)> {
    vec![
        (0, vec![], vec![]),
        (3, vec![7], vec![1]),
        (3, vec![7], vec![5]),
        (30, vec![7], vec![-4]),
        (0, vec![5, 6], vec![1, 5]),
        (0, vec![17, 21], vec![1, 17]),
        (0, vec![4, 5], vec![9, 1]),
        (0, vec![3, 4, 5], vec![1, 3, 12]),
        (0, vec![2, 3, 4, 5], vec![60, 1, 3, 12]),
        (0, vec![2, 3, 4, 5], vec![60, 20, 5, 1]),
        (59, vec![3, 4, 5], vec![-20, -5, -1]),
        (0, vec![4, 0], vec![9, 1]),
    ]
}

#[test]
fn view_loads_and_local_views() {
    let mut all = views();
    all.push((0, vec![3, 5], vec![0, 1]));
    all.push((0, vec![3, 5], vec![1, 0]));
    for dtype in SIZES {
        let s = dtype.size() as usize;
        let data = numbered(dtype, 360);
        for (first, counts, strides) in &all {
            let len = counts.iter().product::<usize>();
            let bytes: Vec<i64> = strides.iter().map(|x| x * s as i64).collect();
            let mut l = Locals::default();
            let dst = l.ub(len * s);
            let hints = Hints::default();
            let src = mem(0, first * s as i64, &[]);
            let direct = [
                Inst::new(
                    Opcode::ViewLoad,
                    dtype,
                    ViewLoad { dst, src, loops: loops(counts, &bytes), hints },
                ),
                store(dtype, mem(1, 0, &[]), dst, n(1), n(len), 0),
            ];
            let mut insts = vec![direct.to_vec()];
            // The same through local memory; local views start at a block.
            if *first == 0 {
                let whole = l.ub(360 * s);
                insts.push(vec![
                    load(dtype, whole, mem(0, 0, &[]), n(1), n(360), 0),
                    Inst::new(
                        Opcode::VView,
                        dtype,
                        LocalView { dst, src: whole, loops: loops(counts, strides) },
                    ),
                    store(dtype, mem(1, 0, &[]), dst, n(1), n(len), 0),
                ]);
            }
            for insts in insts {
                let args = [(Role::Input, dtype, 360), (Role::Output, dtype, len)];
                let got = run(straight(&args, &insts), &BuildOptions::default(), &[&data]).remove(0);
                let want: Vec<V> = visit(counts, strides)
                    .iter()
                    .map(|o| read(dtype, data.get(), (first + o) as usize))
                    .collect();
                assert_eq!(values(dtype, &got), want, "{dtype} {first} {counts:?} {strides:?}");
            }
        }
    }
}

#[test]
fn view_stores() {
    for dtype in SIZES {
        let s = dtype.size() as usize;
        for (first, counts, strides) in &views() {
            let len = counts.iter().product::<usize>();
            let data = numbered(dtype, len);
            let bytes: Vec<i64> = strides.iter().map(|x| x * s as i64).collect();
            let mut l = Locals::default();
            let src = l.ub(len * s);
            let (dst, hints) = (mem(1, first * s as i64, &[]), Hints::default());
            let insts = [
                load(dtype, src, mem(0, 0, &[]), n(1), n(len), 0),
                Inst::new(
                    Opcode::ViewStore,
                    dtype,
                    ViewStore { dst, src, loops: loops(counts, &bytes), hints },
                ),
            ];
            let args = [(Role::Input, dtype, len), (Role::Output, dtype, 360)];
            let got = run(straight(&args, &insts), &BuildOptions::default(), &[&data]).remove(0);
            let mut want = vec![stored(dtype, V::I(0)); 360];
            for (i, o) in visit(counts, strides).iter().enumerate() {
                want[(first + o) as usize] = read(dtype, data.get(), i);
            }
            assert_eq!(values(dtype, &got), want, "{dtype} {first} {counts:?} {strides:?}");
        }
    }
}

#[test]
fn fills_and_iota() {
    for dtype in SIZES {
        let s = i64::from(dtype.size());
        let value = bits(dtype, V::I(7));
        let fill = FillStore {
            dst: mem(0, 2 * s, &[]),
            value,
            rows: n(3),
            cols: n(2),
            pitch: 5 * s,
            hints: Hints::default(),
        };
        let p = straight(&[(Role::Output, dtype, 15)], &[Inst::new(Opcode::FillStore, dtype, fill)]);
        let got = run(p, &BuildOptions::default(), &[]).remove(0);
        let want: Vec<V> =
            (0..15).map(|i| stored(dtype, V::I(if (2..4).contains(&(i % 5)) { 7 } else { 0 }))).collect();
        assert_eq!(values(dtype, &got), want);
    }
    for dtype in [DType::I8, DType::U16, DType::I32, DType::I64] {
        let mut l = Locals::default();
        let dst = l.ub(3 * 4 * 8);
        let size = i64::from(dtype.size());
        let insts = [
            Inst::new(
                Opcode::VIota,
                dtype,
                Iota {
                    dst,
                    base: 100,
                    strides: [(0u8, 50i64)].into_iter().collect(),
                    row_step: -7,
                    col_step: 3,
                    rows: n(3),
                    cols: n(4),
                },
            ),
            store(dtype, mem(0, 0, &[(0, 12 * size)]), dst, n(1), n(12), 0),
        ];
        let p = program(&[(Role::Output, dtype, 24)], &[2], vec![phase(&[], &[(Place::Body, &insts)])]);
        let got = run(p, &BuildOptions::default(), &[]).remove(0);
        let want: Vec<V> = (0..24i128)
            .map(|i| stored(dtype, V::I(100 + i / 12 * 50 - i % 12 / 4 * 7 + i % 4 * 3)))
            .collect();
        assert_eq!(values(dtype, &got), want, "{dtype}");
    }
}

fn gather(dtype: DType, index_dtype: DType, index: &[i64]) -> Result<Vec<V>, LaunchError> {
    let s = i64::from(dtype.size());
    let count = index.len();
    let mut l = Locals::default();
    let (ix, dst) = (l.ub(count * 8), l.ub(count * 3 * s as usize));
    let insts = [
        load(index_dtype, ix, mem(1, 0, &[]), n(1), n(count), 0),
        Inst::new(
            Opcode::GatherLoad,
            dtype,
            GatherLoad {
                dst,
                src: mem(0, s, &[]),
                index: ix,
                rows: n(count),
                cols: n(3),
                stride: 4 * s,
                limit: 5,
                index_dtype,
            },
        ),
        store(dtype, mem(2, 0, &[]), dst, n(1), n(count * 3), 0),
    ];
    let args =
        [(Role::Input, dtype, 20), (Role::Input, index_dtype, count), (Role::Output, dtype, count * 3)];
    let exe = build(straight(&args, &insts), &BuildOptions::default());
    let ix = array(index_dtype, count, |i| V::I(index[i].into()));
    let rt = dvm_vm::Runtime::new(std::sync::Arc::new(dvm_vm::Pool::new(1)));
    launch(&rt, &exe, &[&numbered(dtype, 20), &ix]).map(|(out, _)| values(dtype, &out[0]))
}

#[test]
fn gather_rows() {
    for dtype in SIZES {
        for index_dtype in [DType::I32, DType::I64] {
            let got = gather(dtype, index_dtype, &[4, 0, -1, -5, 2]).unwrap();
            let want: Vec<V> = [4, 0, 4, 0, 2]
                .iter()
                .flat_map(|r| (0..3).map(move |c| r * 4 + 1 + c))
                .map(|i| stored(dtype, V::I(i)))
                .collect();
            assert_eq!(got, want, "{dtype}");
            for bad in [5, -6, i64::from(i32::MAX), i64::from(i32::MIN)] {
                match gather(dtype, index_dtype, &[1, 2, bad, -100]) {
                    Err(LaunchError::Trap(t)) => {
                        assert_eq!(t.kind, TrapKind::IndexOutOfRange { limit: 5 });
                        assert_eq!(
                            (t.value, t.element, t.instruction, t.mnemonic),
                            (bad, 2, 1, "gather_load")
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(gather(dtype, index_dtype, &[]).unwrap().is_empty());
        }
    }
}

#[test]
fn gather_elements() {
    for dtype in SIZES {
        let s = i64::from(dtype.size());
        // Along axis 0 of a 4 x 5 matrix: out[r, c] = x[index[r, c], c].
        let index = [0i32, 3, -1, 2, -4, 1, 1, 1, 1, 1];
        let mut l = Locals::default();
        let (ix, dst) = (l.ub(40), l.ub(10 * s as usize));
        let insts = [
            load(DType::I32, ix, mem(1, 0, &[]), n(1), n(10), 0),
            Inst::new(
                Opcode::GatherElems,
                dtype,
                GatherElems {
                    dst,
                    src: mem(0, 0, &[]),
                    index: ix,
                    rows: n(2),
                    cols: n(5),
                    stride: 5 * s,
                    row_stride: 0,
                    col_stride: s,
                    limit: 4,
                    index_dtype: DType::I32,
                },
            ),
            store(dtype, mem(2, 0, &[]), dst, n(1), n(10), 0),
        ];
        let args = [(Role::Input, dtype, 20), (Role::Input, DType::I32, 10), (Role::Output, dtype, 10)];
        let data = numbered(dtype, 20);
        let got =
            run(straight(&args, &insts), &BuildOptions::default(), &[&data, &Bytes::of(&index)]).remove(0);
        for (i, &k) in index.iter().enumerate() {
            let row = if k < 0 { k + 4 } else { k } as usize;
            assert_eq!(read(dtype, got.get(), i), read(dtype, data.get(), row * 5 + i % 5));
        }
    }
}
