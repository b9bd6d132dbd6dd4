//! A long-running program on a stream holds what it needs and no more: measured, in a process of its own.

use dvm::{DType, Error, Options, Stream};

/// Resident memory of this process in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// 1000 steps with a branch that depends on data and a cache that grows in place, whose every step has a shape of its own: what is
/// held at the end is what was held after a quarter of them.
#[cfg(target_os = "linux")]
#[test]
fn a_thousand_steps_of_a_growing_cache() -> Result<(), Error> {
    let mut options = Options::default();
    options.threads = Some(2);
    let s = Stream::new(options);
    let width = 64;
    let cache = s.zeros(DType::F32, &[1000, width])?;
    let mut x = s.ones(DType::F32, &[1, width])?;
    let mut early = 0;
    for step in 0..1000 {
        cache.narrow(0, step, 1)?.copy_(&x)?;
        let mean = cache.narrow(0, 0, step + 1)?.mean(0)?.reshape(&[1, width as isize])?;
        // Made, seen by nobody, dropped.
        let _unused = (&mean * 3.0)?.exp()?;
        x = if mean.max_all()?.item::<f32>()? > 1.0 { (&x * 0.5)? } else { (&mean + 0.25)? };
        if step == 250 {
            early = resident();
        }
    }
    assert!(x.to_vec::<f32>()?.iter().all(|v| v.is_finite()));
    let grown = resident().saturating_sub(early);
    let report = s.report();
    assert!(report.flushes >= 1000 && report.cached < 100, "every step has a shape of its own: {report}");
    assert!(grown < 6 << 20, "{grown} bytes more after 1000 steps than after 250, of a cache of 256 kB");
    Ok(())
}
