//! What can be said of a program without running it: whether it is safe, and whether it is synchronised.

use dvm_bc::{Limits, Program, Verified, VerifyErrors};
use dvm_npu::hazard::{self, HazardReport};

/// What verifier and hazard checker say of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// What the verifier does not accept; `None` where it accepts everything.
    pub violations: Option<VerifyErrors>,
    /// What is not proved to be ordered, and which synchronisation is of no use. Not looked for in a program that does not verify.
    pub hazards: HazardReport,
}

impl CheckReport {
    /// Whether the program is safe, and gives the same values in every schedule.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.violations.is_none() && self.hazards.is_sound()
    }
}

/// Verifies a program and looks for missing and for redundant synchronisation.
#[must_use]
pub fn check(program: &Program, limits: &Limits) -> CheckReport {
    match Verified::new(program.clone(), limits) {
        Ok(program) => CheckReport { violations: None, hazards: hazard::check(&program) },
        Err(e) => CheckReport { violations: Some(e), hazards: HazardReport::default() },
    }
}
