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
