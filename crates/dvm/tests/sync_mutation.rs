//! The hazard checker and the adversarial executor judge one another: over the programs that the compiler makes for machines with
//! asynchronous pipes, and over what is left of them when a piece of their synchronisation is gone.
//!
//! `DVM_FULL=1` tries every mutant; without it a part of them, chosen by number, keeps this to seconds. Programs that take too
//! long to run hundreds of times are left out in either case.

use std::collections::BTreeMap;
use std::sync::Arc;

use dvm::testing::CASES;
use dvm_bc::reference;
use dvm_bc::{DType, Limits, Operand, Program, Role, Verified};
use dvm_npu::adversary::judge;
use dvm_npu::mutate::{Mutation, mutants};
use dvm_npu::{MachineSpec, hazard};
use dvm_vm::scalar::VmMath;
use dvm_vm::{ArgRef, Executable, Isa, Pool, Runtime};
use half::{bf16, f16};

const MACHINES: [&str; 3] = ["tiny-npu", "ascend-910b2", "ascend-950"];
/// Random schedules a program is run under.
const SCHEDULES: u64 = 200;
/// One mutant of so many is tried.
const PART: usize = 3;
/// Elements of a run that are too many to go over hundreds of times.
const WORK: f64 = 40_000.0;

fn full() -> bool {
    std::env::var_os("DVM_FULL").is_some()
}

/// Positive floats that differ from element to element; integers near `int`, which may be indices or divisors.
fn fill(program: &Program, int: fn(usize) -> u64) -> Vec<Vec<u8>> {
    let mut args = reference::zeroed(&program.args);
    for (a, bytes) in program.args.iter().zip(&mut args) {
        if !matches!(a.role, Role::Input | Role::Weight) {
            continue;
        }
        let size = a.dtype.size() as usize;
        for (i, e) in bytes.chunks_exact_mut(size).enumerate() {
            let x = ((i * 37 + i / 251) % 253) as f32 / 128.0 + 0.125;
            match a.dtype {
                DType::F32 => e.copy_from_slice(&x.to_le_bytes()),
                DType::F64 => e.copy_from_slice(&f64::from(x).to_le_bytes()),
                DType::F16 => e.copy_from_slice(&f16::from_f32(x).to_le_bytes()),
                DType::BF16 => e.copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
                DType::Bool => e[0] = (i * 7 % 3 == 0).into(),
                _ => e.copy_from_slice(&int(i).to_le_bytes()[..size]),
            }
        }
    }
    args
}

/// Arguments that do not trap, and what program order makes of them.
fn run(program: &Program) -> Option<[Vec<Vec<u8>>; 2]> {
    let ints: [fn(usize) -> u64; 3] = [|i| 1 + i as u64 % 2, |i| i as u64 % 2, |_| 1];
    ints.into_iter().find_map(|int| {
        let args = fill(program, int);
        let mut done = args.clone();
        reference::run(program, &mut done, &VmMath).ok()?;
        Some([args, done])
    })
}

/// What the virtual machine makes of the arguments.
fn machine(program: Verified<Program>, args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let exe = Executable::new(program, Isa::detect()).expect("builds");
    let mut words: Vec<Vec<u64>> = args.iter().map(|a| vec![0; a.len().div_ceil(8)]).collect();
    for (w, a) in words.iter_mut().zip(args) {
        bytemuck::cast_slice_mut::<u64, u8>(w)[..a.len()].copy_from_slice(a);
    }
    let roles: Vec<Role> = exe.program().args.iter().map(|a| a.role).collect();
    let mut refs: Vec<ArgRef<'_>> = words
        .iter_mut()
        .zip(args)
        .zip(&roles)
        .map(|((w, a), role)| {
            let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(w)[..a.len()];
            match role {
                Role::Input | Role::Weight => ArgRef::In(bytes),
                Role::Output | Role::Workspace => ArgRef::Out(bytes),
                Role::Ring => ArgRef::Ring,
            }
        })
        .collect();
    Runtime::new(Arc::new(Pool::new(2))).launch(&exe, &mut refs).expect("runs");
    words.iter().zip(args).map(|(w, a)| bytemuck::cast_slice::<u64, u8>(w)[..a.len()].to_vec()).collect()
}

/// Elements that all instructions of a run go over.
fn work(program: &Program) -> f64 {
    let mut n = 0.0;
    let counted = reference::visit(program, |_, _, inst, _| {
        let mut elements = 1.0;
        inst.visit(|_, _, operand| match operand {
            Operand::Size(s) => elements *= f64::from(s.body),
            Operand::Loops(l) => l.iter().for_each(|l| elements *= f64::from(l.count.body)),
            _ => {}
        });
        n += elements;
        Ok(())
    });
    counted.map_or(f64::INFINITY, |()| n)
}

/// Programs with synchronisation, by machine.
fn programs() -> Vec<(String, Program)> {
    let mut out = vec![];
    for machine in MACHINES {
        let spec = MachineSpec::named(machine).expect("shipped");
        for case in CASES {
            let c = case.compile_for(case.small, &spec).unwrap_or_else(|e| panic!("{e}"));
            out.push((format!("{} on {machine}", case.name), c.compiled.program));
        }
    }
    out
}

#[test]
fn every_schedule_gives_the_bits_of_the_virtual_machine() {
    let mut runs = 0;
    let (mut programs, mut problems) = (programs(), vec![]);
    programs.retain(|(_, p)| work(p) <= WORK);
    for (name, program) in &programs {
        let verified = match Verified::new(program.clone(), &Limits::default()) {
            Ok(v) => v,
            Err(e) => {
                problems.push(format!("{name}: {e}"));
                continue;
            }
        };
        let report = hazard::prove(program);
        if !report.is_sound() {
            problems.push(format!("{name}: {report}"));
            continue;
        }
        let [args, expected] = run(program).unwrap_or_else(|| panic!("{name} traps"));
        let vm = machine(verified, &args);
        for ((a, v), e) in program.args.iter().zip(&vm).zip(&expected) {
            if a.role == Role::Output && v != e {
                problems.push(format!("{name}: `{}` of the machine is not that of the reference", a.name));
            }
        }
        if let Some((n, breach)) = judge(program, &args, &expected, &VmMath, SCHEDULES) {
            problems.push(format!("{name}: schedule {n}: {breach}\n{}", dvm_bc::disasm(program)));
        }
        runs += SCHEDULES;
    }
    println!("{} programs, {runs} schedules", programs.len());
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(programs.len() > 50);
}

#[test]
fn mutants_are_judged_alike() {
    /// Shown, not shown.
    #[derive(Default, Clone, Copy)]
    struct Row {
        hazards: [usize; 2],
        redundant: usize,
        by: [usize; 5],
    }
    const BY: [&str; 5] = ["overlap", "differs", "double set", "deadlock", "other"];
    let mut table: BTreeMap<Mutation, Row> = BTreeMap::new();
    let (mut problems, mut unseen, mut number) = (vec![], vec![], 0usize);
    for (name, program) in programs() {
        if work(&program) > WORK {
            continue;
        }
        for m in mutants(&program).expect("decodes") {
            number += 1;
            if !full() && number % PART != 0 {
                continue;
            }
            // Buffers that share a place may make an instruction write over its own source.
            if m.mutation == Mutation::Overlap
                && Verified::new(m.program.clone(), &Limits::default()).is_err()
            {
                continue;
            }
            let sound = hazard::prove(&m.program).is_sound();
            let Some([args, expected]) = run(&m.program) else { continue };
            let shown = judge(&m.program, &args, &expected, &VmMath, SCHEDULES);
            let row = table.entry(m.mutation).or_default();
            match (sound, shown) {
                (true, None) => row.redundant += 1,
                (true, Some((n, breach))) => problems.push(format!(
                    "{name}: {} {} is called redundant, but schedule {n}: {breach}\n{}",
                    m.mutation,
                    m.what,
                    dvm_bc::disasm(&m.program)
                )),
                (false, Some((_, breach))) => {
                    row.hazards[0] += 1;
                    let by = BY.iter().position(|b| *b == breach.name()).unwrap_or(BY.len() - 1);
                    row.by[by] += 1;
                }
                (false, None) => {
                    row.hazards[1] += 1;
                    unseen.push(format!("{name}: {} {}", m.mutation, m.what));
                }
            }
        }
    }
    println!("mutation       redundant  hazards    shown  {}", BY.join("  "));
    let mut all = Row::default();
    let print = |name: String, r: &Row| {
        let by: String = r.by.iter().zip(BY).map(|(n, b)| format!("  {n:>0$}", b.len())).collect();
        println!("{name:12} {:>11} {:>8} {:>8}{by}", r.redundant, r.hazards[0] + r.hazards[1], r.hazards[0]);
    };
    for (m, r) in &table {
        print(m.to_string(), r);
        all.redundant += r.redundant;
        for i in 0..2 {
            all.hazards[i] += r.hazards[i];
        }
        for i in 0..BY.len() {
            all.by[i] += r.by[i];
        }
    }
    print("all".to_owned(), &all);
    unseen.iter().for_each(|u| println!("not shown: {u}"));
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    let [shown, not] = all.hazards;
    assert!(shown > 100 && shown * 10 >= (shown + not) * 9, "{shown} shown, {not} not");
}
