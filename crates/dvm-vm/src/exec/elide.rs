//! Which loads and stores move nothing, and which elementwise instructions run strip by strip.

use dvm_bc::{Local, Program, Template};

use super::BuildOptions;
use super::predecode::Decoded;

/// Which slots of a template may see stores while they are read.
pub(super) struct Conflicts {}

impl Conflicts {
    pub(super) fn new(_program: &Program) -> Conflicts {
        Conflicts {}
    }
}

/// What to do with one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepPlan {
    /// Emits nothing.
    pub(super) skip: bool,
    /// Joins the strip run of the instruction before it.
    pub(super) joins: bool,
}

/// What to do with the instructions of a template.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<StepPlan>,
}

impl Plan {
    pub(super) fn new(
        _template: &Template,
        _number: usize,
        decoded: &Decoded,
        _options: &BuildOptions,
        _conflicts: &Conflicts,
        _block: u32,
    ) -> Plan {
        Plan { steps: vec![StepPlan::default(); decoded.insts.len()] }
    }
    pub(super) fn step(&self, at: usize) -> StepPlan {
        self.steps.get(at).copied().unwrap_or_default()
    }
    pub(super) fn bound(&self, _local: Local) -> Option<u32> {
        None
    }
    pub(super) fn load(&self, _at: usize) -> Option<u32> {
        None
    }
    pub(super) fn result(&self, _at: usize) -> Option<u32> {
        None
    }
    pub(super) fn private(&self, _at: usize) -> u8 {
        0
    }
}
