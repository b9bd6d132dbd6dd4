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
    println!("{redundant} of {syncs} redundant");
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(redundant as f64 <= REDUNDANT * f64::from(syncs), "{redundant} of {syncs} are redundant");
}
