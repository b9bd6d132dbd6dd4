//! The timing model: accounts that close, bounds that hold, synchronisation that traps.

use dvm_bc::{Program, asm};
use dvm_npu::mutate::{Mutation, mutants};
use dvm_npu::timing::{Options, Timing, TimingError, simulate};
use dvm_npu::{MachineSpec, hazard};

const KERNELS: &[(&str, &str)] = &[
    ("add", include_str!("kernels/add.dvmasm")),
    ("center", include_str!("kernels/center.dvmasm")),
    ("through_memory", include_str!("kernels/through_memory.dvmasm")),
    ("temporaries", include_str!("kernels/temporaries.dvmasm")),
    ("matmul_ring", include_str!("kernels/matmul_ring.dvmasm")),
    ("matmul_direct", include_str!("kernels/matmul_direct.dvmasm")),
];

fn program(text: &str) -> Program {
    asm(text).unwrap_or_else(|e| panic!("{e}"))
}

fn time(p: &Program, spec: &MachineSpec) -> Timing {
    simulate(p, spec, &Options { trace: 1 << 20, ..Options::default() })
        .unwrap_or_else(|e| panic!("{}: {e}", p.name))
}

#[test]
fn accounts_close_and_bounds_hold() {
    let spec = MachineSpec::named("tiny-npu").unwrap();
    for (name, text) in KERNELS {
        let p = program(text);
        let t = time(&p, &spec);
        for pipe in t.cores.iter().flat_map(|c| &c.pipes) {
            let sum = pipe.busy + pipe.stalls.iter().sum::<f64>();
            assert_eq!(sum, t.cycles, "{name} {}", pipe.pipe);
        }
        assert!(t.us >= t.roofline.bound_us, "{name}: {} below {}", t.us, t.roofline.bound_us);
        assert_eq!(time(&p, &spec), t, "{name}: deterministic");
        let spans = &t.trace.as_ref().unwrap().spans;
        assert!(spans.iter().all(|s| s.start < s.end && s.end <= t.cycles), "{name}");
    }
}

/// Without one end of an event the hazard checker objects, and the model traps and names the instruction.
#[test]
fn half_an_event_traps() {
    let spec = MachineSpec::named("tiny-npu").unwrap();
    let mut traps = [0; 3];
    for (name, text) in KERNELS {
        let p = program(text);
        for m in mutants(&p).unwrap() {
            if !matches!(m.mutation, Mutation::Set | Mutation::Wait) {
                continue;
            }
            assert!(!hazard::check(&m.program).is_sound(), "{name}: {}", m.what);
            // One core has all tiles, so that events between tiles count.
            match simulate(&m.program, &spec, &Options { cores: Some(1), ..Options::default() }) {
                Err(TimingError::DoubleSet { .. }) => traps[0] += 1,
                Err(TimingError::Deadlock { waiting }) if !waiting.is_empty() => traps[1] += 1,
                Err(TimingError::LeftSet { .. }) => traps[2] += 1,
                other => panic!("{name}: {}: {other:?}", m.what),
            }
        }
    }
    assert!(traps.iter().all(|&n| n > 0), "{traps:?}");
}

/// Kernels for a machine of many cores.
const LARGE: &[(&str, &str)] = &[
    ("add_32k", include_str!("../calibration/add_32k.dvmasm")),
    ("add_double", include_str!("../calibration/add_double.dvmasm")),
    ("copy_odd_l1_64x256", include_str!("../calibration/copy_odd_l1_64x256.dvmasm")),
    ("same_order", include_str!("../calibration/same_order.dvmasm")),
    ("bank_read", include_str!("../calibration/bank_read.dvmasm")),
    ("reduce_mixed", include_str!("../calibration/reduce_mixed.dvmasm")),
];

/// A machine on which no core feels another: each has its own bandwidth, there is no L2, and starting takes constant time.
fn free(base: &str) -> MachineSpec {
    let text = format!(
        "inherits = \"{base}\"\nname = \"{base}\"\n[timing]\nhbm_peak = inf\nl2_rate = inf\nl2_bytes = 0\nsame_line = 0\n\
         mte2_head_core = 0\nlaunch_core_us = 0"
    );
    MachineSpec::from_toml(&text).unwrap_or_else(|e| panic!("{e}"))
}

fn exact(p: &Program, spec: &MachineSpec, cores: Option<u32>) -> Timing {
    let opts = Options { exact: true, cores, ..Options::default() };
    simulate(p, spec, &opts).unwrap_or_else(|e| panic!("{}: {e}", p.name))
}

fn with(spec: &MachineSpec, key: &str, factor: f64) -> MachineSpec {
    let mut spec = spec.clone();
    *spec.timing.get_mut(key).unwrap_or_else(|| panic!("no constant {key}")) *= factor;
    spec
}

/// Kernels and the machines that they are for.
fn all(large: &str, small: &str) -> Vec<(String, Program, String)> {
    let of = |list: &[(&str, &str)], machine: &str| -> Vec<(String, Program, String)> {
        list.iter().map(|(n, t)| ((*n).to_owned(), program(t), machine.to_owned())).collect()
    };
    let mut out = of(LARGE, large);
    out.extend(of(KERNELS, small));
    out
}

const RATES: &[&str] =
    &["gm_ub", "ub_gm", "gm_l1", "l0c_gm", "l0c_ub", "l1_l0a", "l1_l0b", "hbm_peak", "l2_rate"];

#[test]
fn alone_more_of_anything_is_never_slower() {
    for (name, p, machine) in all("ascend-910b2", "tiny-npu") {
        let spec = free(&machine);
        let base = exact(&p, &spec, None);
        for key in RATES {
            for factor in [1.1, 2.0, 7.0] {
                let t = exact(&p, &with(&spec, key, factor), None);
                assert!(t.cycles <= base.cycles, "{name}: {key} x {factor}: {} > {}", t.cycles, base.cycles);
            }
        }
        let faster = exact(&p, &with(&spec, "mhz", 1.25), None);
        assert!(faster.us <= base.us, "{name}: clock: {} > {}", faster.us, base.us);
        let mut last = f64::INFINITY;
        for cores in [1, 2, 3, 4, 8, 24, 47, 48] {
            let t = exact(&p, &spec, Some(cores));
            assert!(t.cycles <= last, "{name}: {cores} cores: {} > {last}", t.cycles);
            last = t.cycles;
        }
    }
}

#[test]
fn alone_a_dependency_less_is_never_slower() {
    let mut tried = 0;
    for (name, p, machine) in all("ascend-910b2", "tiny-npu") {
        let spec = free(&machine);
        let base = exact(&p, &spec, None);
        for m in mutants(&p).unwrap() {
            if !matches!(m.mutation, Mutation::Event | Mutation::Bar | Mutation::Barrier | Mutation::Cross) {
                continue;
            }
            // Without it, flags may meet that it kept apart.
            let opts = Options { exact: true, ..Options::default() };
            if let Ok(t) = simulate(&m.program, &spec, &opts) {
                tried += 1;
                assert!(t.cycles <= base.cycles, "{name} without {}: {} > {}", m.what, t.cycles, base.cycles);
            }
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn alone_twice_the_tiles_take_at_most_twice_as_long() {
    for (name, mut p, machine) in all("ascend-910b2", "tiny-npu") {
        let spec = free(&machine);
        let launch = (spec.timing.launch_us + spec.timing.finish_us) * spec.timing.mhz;
        let once = exact(&p, &spec, None).cycles - launch;
        for t in &mut p.templates {
            t.parallel[0] *= 2;
        }
        let twice = exact(&p, &spec, None).cycles - launch;
        assert!(twice <= 2.0 * once && twice >= once, "{name}: {twice} against {once}");
    }
}

/// What shares memory may meet unluckily, but not by much. Listed causes: a core more costs its start, and one that comes
/// later meets others at lines.
#[test]
fn on_real_machines_more_is_hardly_ever_slower() {
    for machine in ["ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-950"] {
        let spec = MachineSpec::named(machine).unwrap();
        for (name, text) in LARGE {
            let mut p = program(text);
            (p.target.cores, p.target.cube_cores) = (spec.target.cores, spec.target.cube_cores);
            let base = simulate(&p, &spec, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(base.us >= base.roofline.bound_us, "{name} on {machine}");
            for key in RATES {
                let t = simulate(&p, &with(&spec, key, 1.5), &Options::default()).unwrap();
                assert!(t.us <= 1.05 * base.us, "{name} on {machine}: {key}: {} > {}", t.us, base.us);
            }
            let start = spec.timing.launch_core_us * f64::from(spec.target.cores);
            for cores in [spec.target.cores / 2, spec.target.cores / 4] {
                let t = simulate(&p, &spec, &Options { cores: Some(cores), ..Options::default() }).unwrap();
                let shared = *name == "same_order";
                assert!(
                    shared || base.us <= 1.05 * t.us + start,
                    "{name} on {machine}: {cores} cores: {}",
                    t.us
                );
            }
        }
    }
}

/// An addition of `n` tiles of 32 KiB.
fn long(n: u64) -> Program {
    let text = include_str!("../calibration/add_32k.dvmasm");
    let mut p = program(
        &text.replace("[g0: 4096]", &format!("[g0: {n}]")).replace("67108864", &(n * 16384).to_string()),
    );
    p.name = format!("add of {n} tiles");
    p
}

#[test]
fn long_runs_are_extrapolated() {
    let spec = MachineSpec::named("ascend-910b2").unwrap();
    let t = simulate(&long(1_000_000), &spec, &Options::default()).unwrap();
    assert!(t.simulated < 200_000 && t.executions > 3_990_000, "{} of {}", t.simulated, t.executions);
    assert_eq!(t.notes.len(), 1);
    for pipe in t.cores.iter().flat_map(|c| &c.pipes) {
        let sum = pipe.busy + pipe.stalls.iter().sum::<f64>();
        assert!((sum - t.cycles).abs() < 1.0, "{}: {sum} of {}", pipe.pipe, t.cycles);
    }
    for n in [10_000, 30_000] {
        let p = long(n);
        let (rough, fine) = (simulate(&p, &spec, &Options::default()).unwrap(), exact(&p, &spec, None));
        assert!(rough.simulated < fine.simulated, "{n}");
        assert!((rough.us / fine.us - 1.0).abs() < 0.01, "{n}: {} for {}", rough.us, fine.us);
        let traffic = |t: &Timing| (t.memory.read + t.memory.written) as f64;
        assert!((traffic(&rough) / traffic(&fine) - 1.0).abs() < 0.02, "{n}");
    }
}

#[test]
fn constants_say_where_they_come_from() {
    use dvm_npu::timing::Constants;
    for machine in ["ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-950"] {
        let origins = MachineSpec::origins(MachineSpec::source(machine).unwrap());
        for (name, ..) in Constants::TABLE {
            let key = format!("timing.{name}");
            let o = origins.iter().find(|o| o.key == key).unwrap_or_else(|| panic!("{machine} lacks {key}"));
            assert_ne!(o.confidence, dvm_npu::Confidence::Unknown, "{machine}: {key}");
        }
    }
    for (text, wants) in [
        ("hbm = 1", "unknown field `hbm`"),
        ("gm_ub = 0", "timing.gm_ub = 0 is not a positive rate"),
        ("decode = inf", "timing.decode = inf is not 0 or a positive number"),
    ] {
        let text = format!("inherits = \"ascend-910b2\"\n[timing]\n{text}");
        let error = MachineSpec::from_toml(&text).expect_err(&text).to_string();
        assert!(error.contains(wants), "{error}");
    }
}

#[test]
fn strange_programs_are_errors() {
    let spec = MachineSpec::named("ascend-910b2").unwrap();
    let p = program(KERNELS[0].1);
    assert!(matches!(simulate(&p, &spec, &Options::default()), Err(TimingError::Target { .. })));
    let tiny = MachineSpec::named("tiny-npu").unwrap();
    let addresses = Some(vec![0]);
    let e = simulate(&p, &tiny, &Options { addresses, ..Options::default() });
    assert_eq!(e.map(|t| t.us), Err(TimingError::Addresses { found: 1, wanted: 3 }));
    let e = simulate(&p, &tiny, &Options { budget: 3, exact: true, ..Options::default() });
    assert!(matches!(e, Err(TimingError::Budget { executions: 16, budget: 3 })), "{e:?}");
}
