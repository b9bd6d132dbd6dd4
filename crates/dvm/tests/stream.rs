//! Eager tensors: values, views, updates in place, errors, control flow.

use dvm::ir::PadMode;
use dvm::stream::{Cause, Tensor};
use dvm::{DType, Error, Options, ReduceOp, Stream};

type Result<T> = std::result::Result<T, Error>;

fn stream() -> Stream {
    let mut options = Options::default();
    options.threads = Some(2);
    Stream::new(options)
}

fn matrix(s: &Stream) -> Result<Tensor> {
    s.tensor(&[2, 3], &[1.0f32, -2.0, 3.0, -4.0, 5.0, -6.0])
}

#[test]
fn values() -> Result<()> {
    let s = stream();
    let x = matrix(&s)?;
    let row = s.tensor(&[3], &[10.0f32, 20.0, 30.0])?;
    let cases: Vec<(&str, Tensor, &[usize], Vec<f32>)> = vec![
        ("add", (&x + &row)?, &[2, 3], vec![11.0, 18.0, 33.0, 6.0, 25.0, 24.0]),
        ("left number", (1.0 - &x)?, &[2, 3], vec![0.0, 3.0, -2.0, 5.0, -4.0, 7.0]),
        ("neg", (-&x)?, &[2, 3], vec![-1.0, 2.0, -3.0, 4.0, -5.0, 6.0]),
        ("relu", x.relu()?, &[2, 3], vec![1.0, 0.0, 3.0, 0.0, 5.0, 0.0]),
        ("sum", x.sum(1)?, &[2, 1], vec![2.0, -5.0]),
        ("sum of both", x.sum([0, 1])?, &[1, 1], vec![-3.0]),
        ("dropped", x.reduce(ReduceOp::Max, -2, false)?, &[3], vec![1.0, 5.0, 3.0]),
        ("all", x.min_all()?, &[], vec![-6.0]),
        ("matmul", x.matmul(&x.t()?)?, &[2, 2], vec![14.0, -32.0, -32.0, 77.0]),
        ("vector", x.matmul(&row)?, &[2], vec![60.0, -120.0]),
        ("select", x.gt(0)?.select(&x, 0.5)?, &[2, 3], vec![1.0, 0.5, 3.0, 0.5, 5.0, 0.5]),
        ("clamp", x.clamp(-2, 2.5)?, &[2, 3], vec![1.0, -2.0, 2.5, -2.0, 2.5, -2.0]),
        ("reversed", x.slice_step(1, None, None, -2)?, &[2, 2], vec![3.0, 1.0, -6.0, -4.0]),
        ("slice", x.slice(1, -2..)?, &[2, 2], vec![-2.0, 3.0, 5.0, -6.0]),
        ("index", x.index(0, -1)?, &[3], vec![-4.0, 5.0, -6.0]),
        ("stack", Tensor::stack(&[&row, &row], 0)?, &[2, 3], vec![10.0, 20.0, 30.0, 10.0, 20.0, 30.0]),
        ("concat", Tensor::concat(&[&x, &x.narrow(0, 0, 1)?], 0)?.index(1, 0)?, &[3], vec![1.0, -4.0, 1.0]),
        (
            "select rows",
            x.index_select(0, &s.tensor(&[2], &[-1i64, 0])?)?.index(1, 1)?,
            &[2],
            vec![5.0, -2.0],
        ),
        ("gather", x.gather(1, &s.tensor(&[2, 1], &[2i32, 0])?)?, &[2, 1], vec![3.0, -4.0]),
        ("pad", x.index(0, 0)?.pad(&[1], &[0], PadMode::Constant, 7)?, &[4], vec![7.0, 1.0, -2.0, 3.0]),
        ("unfold", row.unfold(0, 2, 1, 1)?, &[2, 2], vec![10.0, 20.0, 20.0, 30.0]),
        ("cumsum", x.cumsum(1)?, &[2, 3], vec![1.0, -1.0, 2.0, -4.0, 1.0, -5.0]),
        ("cast", x.cast(DType::I32)?.abs()?.cast(DType::F32)?, &[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ("arange", s.arange(DType::F32, 5, -2, 3)?, &[3], vec![5.0, 3.0, 1.0]),
        ("expand", row.unsqueeze(0)?.expand(&[2, 3])?, &[2, 3], vec![10.0, 20.0, 30.0, 10.0, 20.0, 30.0]),
        ("empty", s.zeros(DType::F32, &[0, 3])?.sum(0)?, &[1, 3], vec![0.0; 3]),
        ("argmax", x.argmax(1)?.cast(DType::F32)?, &[2, 1], vec![2.0, 1.0]),
    ];
    for (name, t, shape, want) in cases {
        assert_eq!((t.shape(), t.to_vec::<f32>()?), (shape, want), "{name}");
    }
    let soft = x.softmax(-1)?.sum(1)?.to_vec::<f32>()?;
    assert!(soft.iter().all(|v| (v - 1.0).abs() < 1e-6), "{soft:?}");
    let norm = x.layer_norm(1.0, 0.0, 1e-5)?.mean(1)?.to_vec::<f32>()?;
    assert!(norm.iter().all(|v| v.abs() < 1e-6), "{norm:?}");
    assert!(x.gt(4.0)?.any_all()?.is_true()?);
    assert_eq!(x.sum_all()?.item::<f32>()?, -3.0);
    Ok(())
}

#[test]
fn chains_are_one_kernel_each() -> Result<()> {
    let s = stream();
    let x = s.tensor(&[64, 30], &[0.5f32; 1920])?;
    let step = |t: &Tensor| -> Result<Tensor> { ((t + &x)?.exp()? * 0.25)?.sigmoid() };
    let chain = |n: usize| (0..n).try_fold(x.clone(), |t, _| step(&t));
    let y = chain(3)?;
    y.to_vec::<f32>()?;
    let one = s.last_flush();
    assert_eq!((one.ops, one.kernels, one.programs, one.stored), (12, 1, 1, 1), "{}", s.explain());
    // Interleaved: ops of two chains in turn.
    let z = s.tensor(&[17], &[0.5f32; 17])?;
    let (mut a, mut b) = (x.clone(), z.clone());
    for _ in 0..3 {
        a = (&a * 0.5)?.exp()?;
        b = (&b * 0.25)?.sigmoid()?;
    }
    s.flush()?;
    let two = s.last_flush();
    assert_eq!((two.kernels, two.programs, two.stored), (2, 1, 2), "{}", s.explain());
    assert!(s.explain().contains("asked for"));
    assert_eq!(a.to_vec::<f32>()?.len() + b.to_vec::<f32>()?.len(), 1937);
    Ok(())
}

#[test]
fn dropped_values_are_not_stored() -> Result<()> {
    let s = stream();
    let x = matrix(&s)?;
    let y = x.exp()?;
    let z = (&y + 1.0)?;
    let never = x.sin()?;
    drop((y, never));
    assert_eq!(z.to_vec::<f32>()?.len(), 6);
    assert_eq!((s.last_flush().stored, s.last_flush().kernels), (1, 1));
    let y = x.cos()?;
    drop(y);
    s.sync()?;
    assert_eq!(s.report().flushes, 1, "nothing was left to run");
    Ok(())
}

#[test]
fn updates_in_place_are_seen_through_views() -> Result<()> {
    let s = stream();
    let x = s.arange(DType::F32, 0, 1, 6)?;
    let grid = x.reshape(&[2, 3])?;
    let before = (&x * 1.0)?;
    x.add_(10)?;
    assert_eq!(grid.index(0, 1)?.to_vec::<f32>()?, [13.0, 14.0, 15.0]);
    assert_eq!(before.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "recorded before the update");
    grid.t()?.narrow(0, 1, 2)?.copy_(&s.tensor(&[2, 1], &[1.0f32, 2.0])?)?;
    let seen = (&x + 0.0)?;
    assert_eq!(x.to_vec::<f32>()?, [10.0, 1.0, 2.0, 13.0, 1.0, 2.0]);
    assert_eq!(seen.to_vec::<f32>()?, x.to_vec::<f32>()?);
    // Reads its own memory, backwards.
    let row = grid.index(0, 1)?;
    row.slice_step(0, None, None, -1)?.mul_(&row)?;
    assert_eq!(x.to_vec::<f32>()?, [10.0, 1.0, 2.0, 26.0, 1.0, 26.0]);
    row.fill_(0)?;
    grid.sub_(1)?;
    assert_eq!(x.to_vec::<f32>()?, [9.0, 0.0, 1.0, -1.0, -1.0, -1.0]);
    let shared = x.to_host()?;
    x.narrow(0, 0, 1)?.fill_(5)?;
    assert_eq!(x.index(0, 0)?.item::<f32>()?, 5.0);
    assert_eq!(shared.as_slice::<f32>()?[0], 9.0, "what the host holds does not change");
    assert!(grid.shares_memory(&x) && !grid.copy()?.shares_memory(&x));
    Ok(())
}

#[test]
fn in_place_updates_that_cannot_be() -> Result<()> {
    let s = stream();
    let x = s.zeros(DType::F32, &[3])?;
    let cases: Vec<(Result<()>, &str)> = vec![
        (x.expand(&[2, 3])?.add_(1.0), "share memory"),
        (x.add_(&s.zeros(DType::F32, &[2, 3])?), "does not fit"),
        (x.add_(&s.zeros(DType::I64, &[3])?), "one dtype"),
        (x.copy_(&s.zeros(DType::F32, &[2])?), "does not fit"),
    ];
    for (got, want) in cases {
        let e = got.unwrap_err().to_string();
        assert!(e.contains(want), "{e}");
    }
    assert_eq!(x.to_vec::<f32>()?, [0.0; 3]);
    Ok(())
}

#[test]
fn errors_at_the_op() -> Result<()> {
    let (s, other) = (stream(), stream());
    let x = matrix(&s)?;
    let cases: Vec<(Result<Tensor>, &str)> = vec![
        (&x + &s.zeros(DType::F32, &[2])?, "add (f32[2, 3], f32[2])"),
        (&x + &s.zeros(DType::I32, &[3])?, "one dtype"),
        (x.sum(2), "axis 2 of a rank-2 tensor"),
        (x.sum([1, -1]), "axis 1 is given twice"),
        (x.matmul(&x), "inner extents"),
        (x.reshape(&[4, -1]), "reshape"),
        (x.narrow(0, 1, 2), "2 elements from 1"),
        (x.squeeze(0), "not of extent 1"),
        (x.cast(DType::I64)? * 0.5, "0.5 cannot meet"),
        (&x + &matrix(&other)?, "another stream"),
        (x.cast(DType::I32)?.exp(), "needs a float dtype"),
        (x.expand(&[2, 4]), "broadcast"),
        (x.index_select(0, &x), "index must be i32 or i64"),
        (s.zeros(DType::F32, &[1 << 40, 1 << 40]), "too large"),
        (x.narrow(1, 0, 0)?.argmax(1), "must not be empty"),
        (Tensor::concat(&[], 0), "no tensor"),
        (Tensor::concat(&[&x, &s.zeros(DType::F32, &[2, 2])?], 0), "concat"),
    ];
    for (got, want) in cases {
        let e = got.expect_err(want).to_string();
        assert!(e.contains(want), "{e}");
    }
    let e = x.item::<f32>().unwrap_err().to_string();
    assert!(e.contains("6 elements"), "{e}");
    assert!(x.to_vec::<i32>().is_err());
    Ok(())
}

#[test]
fn failures_stay_with_what_depends_on_them() -> Result<()> {
    let s = stream();
    let x = matrix(&s)?;
    let row = x.index_select(0, &s.tensor(&[1], &[2i64])?)?;
    let (bad, good) = ((&row + 1.0)?, x.exp()?);
    let first = bad.to_vec::<f32>().unwrap_err().to_string();
    assert!(first.contains("gather") && first.contains("index 2 is out of range"), "{first}");
    assert_eq!(good.to_vec::<f32>()?[0], 1.0f32.exp());
    assert_eq!(row.to_vec::<f32>().unwrap_err().to_string(), first);
    assert_eq!((&bad * 2.0).unwrap_err().to_string(), first, "later uses return it");
    // A program on its way may not know yet: the op fails, or what it gives.
    let zero = s.zeros(DType::I32, &[2])?;
    let quotient = (s.ones(DType::I32, &[2])? / &zero)?;
    s.flush()?;
    let (after, fine) = (&quotient + 1, (&zero + 1)?);
    let e = after.and_then(|t| t.to_vec::<i32>()).unwrap_err().to_string();
    assert!(e.contains("div"), "{e}");
    assert_eq!(fine.to_vec::<i32>()?, [1, 1]);
    assert_eq!(x.sum_all()?.item::<f32>()?, -3.0, "the stream goes on");
    Ok(())
}

#[test]
fn host_control_flow_and_a_growing_cache() -> Result<()> {
    let s = stream();
    let (len, width) = (1024, 8);
    let cache = s.zeros(DType::F32, &[1, len, width])?;
    let mut x = s.ones(DType::F32, &[1, 1, width])?;
    let mut want = vec![1.0f32; width];
    let (mut kept, mut total) = (vec![], 0.0f64);
    for step in 0..1000 {
        cache.narrow(1, step, 1)?.copy_(&x)?;
        kept.push(want[0]);
        total += f64::from(want[0]);
        let mean = cache.narrow(1, 0, step + 1)?.mean(1)?.unsqueeze(1)?.squeeze(1)?;
        let m = (total / (step + 1) as f64) as f32;
        // The branch depends on the data.
        let high = mean.max_all()?.item::<f32>()? > 1.0;
        assert_eq!(high, m > 1.0, "step {step}: mean {m}");
        x = if high { (&x * 0.5)? } else { (&x + 0.25)? };
        want.iter_mut().for_each(|w| *w = if high { *w * 0.5 } else { *w + 0.25 });
    }
    let all = cache.narrow(1, 0, 1000)?.index(2, 0)?.to_vec::<f32>()?;
    assert_eq!(all, kept);
    assert_eq!(s.report().programs, s.report().flushes);
    Ok(())
}

/// The operator of the paper whose branch depends on its data.
#[test]
fn if_else_add() -> Result<()> {
    let s = stream();
    for (sign, want) in [(1.0f32, 3.0), (-1.0, -3.0)] {
        let x = s.full(DType::F32, &[5, 7], sign)?;
        let y = s.full(DType::F32, &[5, 7], 2.0)?;
        let r = if x.sum_all()?.item::<f32>()? > 0.0 { &x + &y } else { &x - &y }?;
        assert_eq!(r.to_vec::<f32>()?, [want; 35]);
    }
    Ok(())
}

#[test]
fn limits_flush() -> Result<()> {
    let s = stream();
    let mut x = s.ones(DType::F32, &[4])?;
    for _ in 0..600 {
        x = (&x + 1.0)?;
    }
    assert_eq!(s.report().flushes, 2);
    assert!(s.explain().contains(&Cause::Ops.to_string()), "{}", s.explain());
    assert_eq!(x.to_vec::<f32>()?, [601.0; 4]);
    Ok(())
}

#[test]
fn streams_of_several_threads_share_a_runtime() -> Result<()> {
    let first = stream();
    let runtime = first.runtime().clone();
    let handed = first.ones(DType::F32, &[100])?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4i64)
            .map(|i| {
                let (runtime, handed) = (runtime.clone(), handed.clone());
                scope.spawn(move || -> Result<f32> {
                    let s = Stream::with_runtime(Options::default(), runtime);
                    let x = s.full(DType::F32, &[100, 10], i as f32)?;
                    let mut sum = 0.0;
                    for _ in 0..20 {
                        sum = (x.sum_all()?.item::<f32>()?) + (&handed + i)?.sum_all()?.item::<f32>()?;
                    }
                    Ok(sum)
                })
            })
            .collect();
        for (i, t) in threads.into_iter().enumerate() {
            assert_eq!(t.join().unwrap()?, (i * 1100 + 100) as f32);
        }
        Ok(())
    })
}

#[test]
fn values_do_not_depend_on_overlap() -> Result<()> {
    let run = |overlap: bool| -> Result<Vec<f32>> {
        let mut options = Options::default();
        options.threads = Some(2);
        options.overlap = overlap;
        let s = Stream::new(options);
        let mut x =
            s.tensor(&[128, 128], &(0..128 * 128).map(|i| (i % 97) as f32 / 97.0).collect::<Vec<_>>())?;
        for i in 0..10 {
            x = (x.matmul(&x)?.softmax(1)? + f64::from(i))?;
            s.flush()?;
        }
        x.to_vec()
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}

/// On a quiet machine most encoding is hidden behind runs. Other processes may keep the helper from its core, so the best of many tries
/// counts: a scheme that does not overlap has none.
#[test]
fn encoding_is_hidden_behind_runs() -> Result<()> {
    let mut options = Options::default();
    options.threads = Some(2);
    let s = Stream::new(options);
    let x = s.tensor(&[512, 300], &vec![0.5f32; 512 * 300])?;
    let started = std::time::Instant::now();
    let (mut least, mut seed) = (f64::INFINITY, 0.0);
    while least > 0.3 && started.elapsed().as_secs() < 60 {
        let before = s.report();
        let mut v = x.clone();
        for _ in 0..10 {
            // New constants, so a new program.
            seed += 1.0;
            for i in 0..3 {
                v = ((&v * (seed + f64::from(i)))?.sigmoid()? + &x)?;
            }
            v = (v.tanh()? - seed)?.maximum(&x)?;
            s.flush()?;
        }
        s.sync()?;
        let after = s.report();
        assert_eq!(after.programs - before.programs, 10);
        assert_eq!(after.cached, 0);
        let exposed = after.exposed_compile_us - before.exposed_compile_us;
        least = least.min(exposed / (after.compile_us - before.compile_us));
    }
    assert!(least <= 0.3, "at best {:.0} % of the compile time was exposed", least * 100.0);
    Ok(())
}
