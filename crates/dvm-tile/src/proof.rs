//! What is compiled in test builds is proved on the spot.
//!
//! A program that leaves its memory or whose pipes race is a defect of the compiler, wherever it shows. So wherever a test
//! makes a program, the verifier and the hazard checker judge it, and a violation panics with their report. This is on where
//! debug assertions are, and in other builds with the feature `check`, which the tests of the workspace turn on.

use dvm_bc::{Limits, Program, Verified};
use dvm_npu::hazard;

/// Whether programs are checked where nothing else is said.
pub const CHECKS: bool = cfg!(any(debug_assertions, feature = "check"));

/// Sizes beyond which a program is not for this machine, whatever it does: its user is told by the limits he sets.
const ARG_BYTES: u64 = 1 << 40;
const TILES: u64 = 1 << 24;

/// Panics unless a program is verified and its synchronisation proved.
///
/// # Panics
/// With the report of the verifier or of the hazard checker.
pub fn assert_sound(program: &Program) {
    let tiles = |t: &dvm_bc::Template| t.parallel.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
    if program.args.iter().any(|a| a.bytes > ARG_BYTES) || program.templates.iter().any(|t| tiles(t) > TILES)
    {
        return;
    }
    let mut limits = Limits::default();
    limits.tiles = u64::MAX;
    limits.tile_instructions = u64::MAX;
    match Verified::new(program.clone(), &limits) {
        Ok(verified) => {
            let hazards = hazard::prove(&verified);
            assert!(hazards.is_sound(), "{}: {hazards}\n{}", program.name, dvm_bc::disasm(program));
        }
        Err(e) => panic!("{}: {e}\n{}", program.name, dvm_bc::disasm(program)),
    }
}
