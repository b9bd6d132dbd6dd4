//! Every instruction on every dtype it takes, over counts of all kinds: the machine's bits are the reference's.
#![cfg(unix)]

use dvm_bc::testing::fuzz::compare;
use dvm_bc::testing::{Dice, single, small_limits};
use dvm_bc::{Class, Opcode, Size, Verified, disasm};
use dvm_vm::testing::Vm;

/// Rows, columns, parallel extents.
fn shapes() -> Vec<(Size, Size, &'static [u32])> {
    let (f, r) = (Size::fixed, Size::ragged);
    vec![
        (f(1), f(1), &[]),
        (f(1), f(17), &[]),
        (f(5), f(1), &[2]),
        (f(3), f(7), &[]),
        (f(6), f(18), &[2, 2]),
        (f(0), f(5), &[2]),
        (f(3), f(0), &[]),
        (r(4, 1, 0), f(9), &[3]),
        (f(3), r(9, 2, 0), &[2]),
        (r(5, 2, 1), r(11, 10, 0), &[2, 2]),
        (r(3, 0, 0), f(4), &[2]),
    ]
}

#[test]
fn every_instruction_gives_the_references_bits() {
    let vm = Vm::default();
    let mut problems = vec![];
    let mut thin = vec![];
    for &op in Opcode::ALL.iter().filter(|o| o.class() != Class::Control) {
        for &dtype in dvm_bc::DType::ALL.iter().filter(|&&d| op.dtypes().contains(d)) {
            let (mut compared, mut refused) = (0, String::new());
            for (i, &(rows, cols, parallel)) in shapes().iter().enumerate() {
                for seed in 0..3u64 {
                    let seed = (op as u64) << 32 | (dtype as u64) << 16 | (i as u64) << 8 | seed;
                    let made = single(&mut Dice::Seed(seed), op, dtype, (rows, cols), parallel);
                    let Some(g) = made else { continue };
                    match Verified::new(g.program.clone(), &small_limits()) {
                        Ok(v) => match compare(&v, &g.data(seed), &vm) {
                            Ok(Some(_)) => compared += 1,
                            Ok(None) => refused = "the machine has no kernel".to_owned(),
                            Err(e) => problems.push(format!("{op:?} {dtype} {i}: {e}\n{}", disasm(&v))),
                        },
                        Err(e) => refused = e.to_string(),
                    }
                }
            }
            if compared < 10 {
                thin.push(format!("{op:?} {dtype}: {compared} programs; {refused}"));
            }
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems; the first:\n{}",
        problems.len(),
        problems[..problems.len().min(4)].join("\n")
    );
    assert!(thin.is_empty(), "{}", thin.join("\n"));
}
