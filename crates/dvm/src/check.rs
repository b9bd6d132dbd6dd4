//! What can be said of a program without running it: whether it is safe, and whether it is synchronised.

use dvm_bc::{InstAt, Limits, Program, Verified, Where, disasm_inst};

/// Something that is wrong with a program, or of no use in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where: `t0 phase 1 body #2 vadd`, or another part of the program.
    pub at: String,
    /// The instruction it is about.
    pub inst: Option<InstAt>,
    /// That instruction's text.
    pub text: Option<String>,
    /// What, with the values.
    pub message: String,
}

/// What verifier and hazard checker say of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// What the verifier does not accept. With any, nothing else is looked for.
    pub violations: Vec<Finding>,
    /// Violations beyond the limit.
    pub more: u64,
}

impl CheckReport {
    /// Whether the program is safe to run.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty() && self.more == 0
    }
}

/// Verifies a program and looks for missing and for redundant synchronisation.
#[must_use]
pub fn check(program: &Program, limits: &Limits) -> CheckReport {
    let mut report = CheckReport::default();
    if let Err(e) = Verified::new(program.clone(), limits) {
        report.more = e.more;
        report.violations = e
            .violations
            .into_iter()
            .map(|v| {
                let inst = match v.at {
                    Where::Inst(at) => Some(at),
                    _ => None,
                };
                let text = inst.and_then(|at| disasm_inst(program, at));
                Finding { at: v.at.to_string(), inst, text, message: v.message }
            })
            .collect();
    }
    report
}
