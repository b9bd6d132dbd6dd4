//! The synchronisation that the tiler derives: proved, and hardly ever more than needed.

use dvm::testing::CASES;
use dvm_bc::{Limits, Verified};
use dvm_npu::{MachineSpec, hazard};

/// Part of all synchronisation that may be redundant.
const REDUNDANT: f64 = 0.1;

#[test]
fn every_case_is_proved() {
    let (mut syncs, mut redundant, mut problems) = (0, 0, vec![]);
    for machine in ["ascend-910b2", "ascend-950"] {
        let spec = MachineSpec::named(machine).unwrap();
        for case in CASES {
            for dims in [case.dims, case.small] {
                let program = match case.compile_for(dims, &spec) {
                    Ok(c) => c.compiled.program,
                    Err(e) => {
                        problems.push(format!("{} for {machine}: {e}", case.name));
                        continue;
                    }
                };
                let report = hazard::check(&program);
                if !report.is_sound() {
                    problems.push(format!(
                        "{} on {machine}: {report}\n{}",
                        case.name,
                        dvm_bc::disasm(&program)
                    ));
                }
                syncs += report.proved.syncs();
                redundant += report.redundant.len();
                if let Err(e) = Verified::new(program, &Limits::default()) {
                    problems.push(format!("{} on {machine}: {e}", case.name));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(redundant as f64 <= REDUNDANT * f64::from(syncs), "{redundant} of {syncs} are redundant");
}

/// With few event ids, links are merged; with none, all pipes are emptied. Nothing is lost.
#[test]
fn few_event_ids_suffice() {
    let (mut events, mut barriers) = ([0; 4], [0; 4]);
    for (n, machine) in [(0, "ascend-910b2"), (1, "ascend-910b2"), (2, "ascend-950"), (3, "ascend-910b2")] {
        let mut spec = MachineSpec::named(machine).unwrap();
        spec.target.events = n;
        for case in CASES {
            let program =
                case.compile_for(case.small, &spec).unwrap_or_else(|e| panic!("{e}")).compiled.program;
            let program =
                Verified::new(program, &Limits::default()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let report = hazard::prove(&program);
            assert!(report.is_sound(), "{} with {n} ids: {report}\n{}", case.name, dvm_bc::disasm(&program));
            events[n as usize] += report.proved.events;
            barriers[n as usize] += report.proved.barriers;
        }
    }
    assert_eq!(events[0], 0);
    assert!(events[1] > 150 && events[3] > events[1], "{events:?}");
    // Sharing and merging leave one id enough for all of these.
    assert!(barriers[0] > 100 && barriers[1] == 0, "{barriers:?}");
}
