//! Random kernels between inaccessible pages, with every tile a chunk of its own: they stay inside, and what local memory
//! held before changes nothing.
#![cfg(unix)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use common::kernels::kernel;
use common::*;
use dvm_bc::*;
use dvm_vm::testing::{Edge, GuardedArgs};
use dvm_vm::{BuildOptions, Executable, Pool, Runtime};

fn inputs(p: &Program, args: &mut GuardedArgs, seed: u64) {
    let mut rng = Rng(seed);
    for (i, a) in p.args.iter().enumerate().filter(|(_, a)| matches!(a.role, Role::Input | Role::Weight)) {
        let n = (a.bytes / u64::from(a.dtype.size())) as usize;
        args.bytes_mut(i).copy_from_slice(array(a.dtype, n, |_| rng.value(a.dtype)).get());
    }
}

#[test]
fn kernels_stay_inside() {
    let runtime = Runtime::new(Arc::new(Pool::new(2))).eager();
    let (mut ran, mut shared) = (0, 0);
    for seed in 0..600 {
        let Some(p) = kernel(seed) else { continue };
        let Ok(verified) = Verified::new(p.clone(), &Limits::default()) else { continue };
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (edge, poison, elide) in
            [(Edge::End, 0x00, true), (Edge::Start, 0xff, true), (Edge::End, 0x7f, false)]
        {
            let mut options = BuildOptions::default();
            (options.poison, options.elide, options.strips) = (Some(poison), elide, elide);
            let exe = Executable::with_options(verified.clone(), &options).unwrap();
            let mut args = GuardedArgs::new(&p, edge).unwrap();
            inputs(&p, &mut args, seed);
            let stats = args.launch(&runtime, &exe).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            shared += u32::from(stats.parallel_steps > 0);
            let out: Vec<Vec<u8>> = (0..p.args.len()).map(|i| args.bytes(i).to_vec()).collect();
            match &first {
                None => first = Some(out),
                Some(want) => {
                    for (i, a) in p.args.iter().enumerate() {
                        let n = out[i].len() / a.dtype.size() as usize;
                        let alike =
                            (0..n).all(|k| same(read(a.dtype, &out[i], k), read(a.dtype, &want[i], k)));
                        assert!(alike, "seed {seed}: {} depends on local memory\n{}", a.name, disasm(&p));
                    }
                }
            }
        }
        ran += 1;
    }
    assert!(ran > 100 && shared > ran, "{ran} kernels ran, {shared} launches were shared");
}

/// The pages do fault: another process dies of it.
#[test]
fn a_byte_outside_faults() {
    const TOUCH: &str = "DVM_TEST_TOUCH";
    let p = straight(&[(Role::Input, DType::F32, 3), (Role::Output, DType::I64, 5)], &[]);
    if let Ok(place) = std::env::var(TOUCH) {
        let (arg, end) = (usize::from(&place[..1] != "0"), &place[1..] == "end");
        let args = GuardedArgs::new(&p, if end { Edge::End } else { Edge::Start }).unwrap();
        let bytes = args.bytes(arg);
        let p = if end { bytes.as_ptr().wrapping_add(bytes.len()) } else { bytes.as_ptr().wrapping_sub(1) };
        // SAFETY: none: the access faults, which is what is tested.
        let byte = unsafe { p.read_volatile() };
        println!("{byte}");
        return;
    }
    for place in ["0start", "0end", "1start", "1end"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_byte_outside_faults", "--nocapture"])
            .env(TOUCH, place)
            .output()
            .unwrap()
            .status;
        assert!(status.signal().is_some(), "{place}: {status}");
    }
}

#[test]
fn damage_around_an_argument_is_noticed() {
    let p = straight(&[(Role::Output, DType::F32, 3)], &[]);
    let exe = build(p.clone(), &BuildOptions::default());
    let runtime = Runtime::new(Arc::new(Pool::new(1)));
    for (edge, at) in [(Edge::Start, 12isize), (Edge::End, -1)] {
        let mut args = GuardedArgs::new(&p, edge).unwrap();
        args.launch(&runtime, &exe).unwrap();
        let outside = args.bytes_mut(0).as_mut_ptr().wrapping_offset(at);
        // SAFETY: the rest of the argument's own page.
        unsafe { outside.write(0) };
        let noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| args.launch(&runtime, &exe)));
        assert!(noticed.is_err(), "{edge:?}");
    }
}
