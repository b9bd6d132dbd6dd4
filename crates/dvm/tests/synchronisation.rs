//! The synchronisation that the tiler derives: proved, and hardly ever more than needed.

use dvm::testing::CASES;
use dvm::{BundleSession, Module, Options, Outputs, Session, Tensor};
use dvm_bc::{Limits, Role, Verified};
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

/// A session for a machine with separate cube cores runs its programs on the host, as a bundle too.
#[test]
fn programs_for_npus_run_on_the_host() {
    let text = "graph g(%x: f32[b, 300], %y: f32[300, 90], %v: f32[90], %r: f32[90, 70]) -> (%z, %q, %k) {
  const %zero: f32[] = [0]
  %p = matmul %x, %y
  %s = add %p, %v
  %z = gelu %s {tanh = false}
  %q = matmul %z, %r
  %n = matmul %s, %r
  %k = max %n, %zero
}
";
    let module = Module::from_text(text).unwrap();
    let shapes: [(&str, &[usize]); 4] =
        [("x", &[77, 300]), ("y", &[300, 90]), ("v", &[90]), ("r", &[90, 70])];
    let inputs: Vec<(String, Tensor)> = shapes
        .iter()
        .map(|(name, shape)| {
            let n: usize = shape.iter().product();
            let data: Vec<f32> =
                (0..n).map(|i| ((i * 7919 + name.len()) % 613) as f32 / 400.0 - 0.75).collect();
            ((*name).to_owned(), Tensor::from_slice(shape, &data).unwrap())
        })
        .collect();
    let mut want: Option<Vec<Vec<u8>>> = None;
    for machine in ["host-ref", "ascend-910b2", "ascend-950", "tiny"] {
        for threads in [1, 3] {
            let mut options = Options::default();
            options.spec = Some(MachineSpec::named(machine).unwrap());
            options.threads = Some(threads);
            let mut session = Session::new(&module, options.clone()).unwrap();
            let outs = session.run(inputs.iter().cloned()).unwrap();
            let got: Vec<Vec<u8>> = outs.iter().map(|(_, t)| t.bytes().to_vec()).collect();
            let (bundle, _) = session.bundle(&inputs, true).unwrap();
            let ring = bundle.programs[0].args.iter().any(|a| a.role == Role::Ring);
            assert_eq!(ring, machine == "ascend-910b2");
            // One product has an epilogue, one is stored as it is, one what is above 0 of it.
            let code = dvm_bc::disasm(&bundle.programs[0]);
            let stores = match machine {
                "ascend-910b2" => 3,
                "ascend-950" => 2,
                _ => 0,
            };
            let relus = code.matches(", relu").count();
            assert_eq!(
                (code.matches("acc_store").count(), relus),
                (stores, usize::from(stores > 0)),
                "{code}"
            );
            let mut again = BundleSession::from_bytes(&bundle.to_bytes().unwrap(), None, &options).unwrap();
            let mut outputs = Outputs::default();
            again.run_into(&inputs, &mut outputs).unwrap();
            for ((_, t), g) in outputs.iter().zip(&got) {
                assert_eq!(t.bytes(), g, "bundle for {machine}");
            }
            assert_eq!(&got, want.get_or_insert_with(|| got.clone()), "{machine}, {threads} threads");
        }
    }
}
