//! Violations and where they are.

use crate::Place;

/// An instruction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstAt {
    /// Index of the template.
    pub template: u32,
    /// Index of the phase.
    pub phase: u32,
    /// Section.
    pub place: Place,
    /// Index in the section.
    pub index: u32,
    /// Index in the template, over all sections in order.
    pub number: u32,
    /// The instruction's name; empty where it does not decode.
    pub mnemonic: &'static str,
}

/// What a violation is about. Numbers are indices into the program's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Where {
    /// The whole program.
    Program,
    /// Its target.
    Target,
    /// An argument.
    Arg(u32),
    /// An alias pair.
    Alias(u32),
    /// A template.
    Template(u32),
    /// A phase of a template.
    Phase(u32, u32),
    /// An instruction.
    Inst(InstAt),
    /// A step.
    Step(u32),
    /// A unit of a step.
    Unit(u32, u32),
    /// An instruction as a unit of a step runs it.
    Run(u32, u32, InstAt),
}

impl std::fmt::Display for InstAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "t{} phase {} {} #{} {}",
            self.template,
            self.phase + 1,
            self.place,
            self.index,
            self.mnemonic
        )
    }
}

impl std::fmt::Display for Where {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Where::Program => write!(f, "program"),
            Where::Target => write!(f, "target"),
            Where::Arg(i) => write!(f, "argument {i}"),
            Where::Alias(i) => write!(f, "alias {i}"),
            Where::Template(t) => write!(f, "t{t}"),
            Where::Phase(t, p) => write!(f, "t{t} phase {}", p + 1),
            Where::Inst(at) => at.fmt(f),
            Where::Step(s) => write!(f, "step {s}"),
            Where::Unit(s, u) => write!(f, "step {s} unit {u}"),
            Where::Run(s, u, at) => write!(f, "step {s} unit {u}: {at}"),
        }
    }
}

/// Something the verifier does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct Violation {
    /// Where.
    pub at: Where,
    /// What, with the values.
    pub message: String,
}

/// Every violation of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyErrors {
    /// The violations in program order, up to [`Limits::violations`](crate::Limits).
    pub violations: Vec<Violation>,
    /// How many more there are.
    pub more: u64,
    /// Every rule but the last is kept: only outputs are not proved fully written.
    pub only_last_rule: bool,
}

impl std::error::Error for VerifyErrors {}

impl std::fmt::Display for VerifyErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = self.violations.len() as u64 + self.more;
        write!(f, "{n} violation{}", if n == 1 { "" } else { "s" })?;
        for v in &self.violations {
            write!(f, "\n  {v}")?;
        }
        if self.more > 0 {
            write!(f, "\n  and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Collects violations up to a limit.
pub(super) struct Report {
    violations: Vec<Violation>,
    limit: usize,
    more: u64,
    last_rule: bool,
}

impl Report {
    pub(super) fn new(limit: usize) -> Report {
        Report { violations: Vec::new(), limit, more: 0, last_rule: false }
    }
    #[cold]
    pub(super) fn push(&mut self, at: Where, message: impl Into<String>) {
        if self.violations.len() < self.limit {
            self.violations.push(Violation { at, message: message.into() });
        } else {
            self.more += 1;
        }
    }
    /// Says that only the last rule is left to be checked.
    pub(super) fn last_rule(&mut self) {
        self.last_rule = self.violations.is_empty() && self.more == 0;
    }
    pub(super) fn finish(self) -> Result<(), VerifyErrors> {
        if self.violations.is_empty() && self.more == 0 {
            Ok(())
        } else {
            let Report { violations, more, last_rule: only_last_rule, .. } = self;
            Err(VerifyErrors { violations, more, only_last_rule })
        }
    }
}
