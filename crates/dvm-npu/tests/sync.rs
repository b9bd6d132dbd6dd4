//! Kernels written by hand with their synchronisation: proved as they are, and no mutant is judged wrongly.

use std::collections::BTreeMap;

use dvm_bc::reference::{self, LibMath};
use dvm_bc::{Limits, Program, Role, Verified, asm};
use dvm_npu::adversary::judge;
use dvm_npu::hazard::check;
use dvm_npu::mutate::{Mutation, mutants};

/// Name, text, and how many pieces of its synchronisation are redundant.
const KERNELS: &[(&str, &str, usize)] = &[
    ("add", include_str!("kernels/add.dvmasm"), 0),
    ("center", include_str!("kernels/center.dvmasm"), 0),
    ("through_memory", include_str!("kernels/through_memory.dvmasm"), 4),
    ("temporaries", include_str!("kernels/temporaries.dvmasm"), 0),
    ("matmul_ring", include_str!("kernels/matmul_ring.dvmasm"), 0),
    ("matmul_direct", include_str!("kernels/matmul_direct.dvmasm"), 0),
];
const SCHEDULES: u64 = 200;

fn program(text: &str) -> Program {
    asm(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Inputs that differ everywhere, and what program order makes of them.
fn run(program: &Program) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut args = reference::zeroed(&program.args);
    for (a, bytes) in program.args.iter().zip(&mut args) {
        if a.role == Role::Input {
            let (floats, _) = bytes.as_chunks_mut::<4>();
            for (i, f) in floats.iter_mut().enumerate() {
                *f = ((i * 37 % 101) as f32 / 16.0 - 3.0).to_le_bytes();
            }
        }
    }
    let mut done = args.clone();
    reference::run(program, &mut done, &LibMath).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    (args, done)
}

#[test]
fn kernels_are_verified_and_proved() {
    for (name, text, redundant) in KERNELS {
        let p = Verified::new(program(text), &Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let report = check(&p);
        assert!(report.is_sound(), "{name}: {report}");
        assert_eq!(report.redundant.len(), *redundant, "{name}: {report}");
        assert!(report.proved.events > 0, "{name}: {report}");
    }
}

#[test]
fn any_schedule_gives_the_bits_of_program_order() {
    for (name, text, _) in KERNELS {
        let p = program(text);
        let (args, expected) = run(&p);
        let found = judge(&p, &args, &expected, &LibMath, SCHEDULES);
        assert_eq!(found, None, "{name}: {}", found.as_ref().map_or(String::new(), |f| f.1.to_string()));
    }
}

#[test]
fn mutants_are_judged_alike() {
    let mut table: BTreeMap<(Mutation, &str), usize> = BTreeMap::new();
    for (name, text, _) in KERNELS {
        let original = program(text);
        for m in mutants(&original).expect("decodes") {
            // Buffers that share a place may make an instruction write over its own source.
            if m.mutation == Mutation::Overlap
                && Verified::new(m.program.clone(), &Limits::default()).is_err()
            {
                continue;
            }
            let report = check(&m.program);
            let (args, expected) = run(&m.program);
            let shown = judge(&m.program, &args, &expected, &LibMath, SCHEDULES);
            let row = match (&shown, report.is_sound()) {
                (None, true) => "proved",
                (Some(_), false) => "hazard, shown",
                (None, false) => "hazard, not shown",
                (Some((n, b)), true) => {
                    panic!("{name}: {} {} is called sound, but schedule {n}: {b}", m.mutation, m.what)
                }
            };
            if row == "hazard, not shown" {
                println!("{name}: {} {} is not shown\n{report}", m.mutation, m.what);
            }
            *table.entry((m.mutation, row)).or_default() += 1;
        }
    }
    for ((m, row), n) in &table {
        println!("{m:12} {row:20} {n}");
    }
    let count = |row: &str| table.iter().filter(|(k, _)| k.1 == row).map(|(_, n)| n).sum::<usize>();
    let (shown, not) = (count("hazard, shown"), count("hazard, not shown"));
    assert!(shown > 50 && shown * 10 >= (shown + not) * 9, "{shown} shown, {not} not");
}
