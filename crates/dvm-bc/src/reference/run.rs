//! Whole programs, in program order.

use super::{Fault, Flat, LocalMemory, Math, Point, execute, tiles, walk_tile};
use crate::{Inst, Place, Program, Role, Template};

/// An instruction that did not execute, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "step {step}, unit {unit}, tile {tile}, phase {} {place}, instruction {instruction} {mnemonic}: {fault}",
    phase + 1
)]
pub struct Failure {
    /// Step.
    pub step: u32,
    /// Unit of the step.
    pub unit: u32,
    /// Tile of the unit.
    pub tile: u64,
    /// Phase.
    pub phase: u32,
    /// Section.
    pub place: Place,
    /// Index of the instruction in the template, over all sections in order.
    pub instruction: u32,
    /// Its name; empty where it does not decode.
    pub mnemonic: &'static str,
    /// Why.
    pub fault: Fault,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What local memory holds at the beginning of each tile: undefined bytes, made visible.
    pub undefined: u8,
}

impl Default for Options {
    fn default() -> Options {
        Options { undefined: 0xa5 }
    }
}

/// A template's instructions by phase and section, each with its number in the template.
pub(crate) struct Decoded {
    sections: Vec<Vec<(u32, Vec<Inst>)>>,
}

impl Decoded {
    /// Decodes a template.
    pub(crate) fn new(template: &Template) -> Result<Decoded, crate::DecodeError> {
        let mut number = 0;
        let mut sections = Vec::new();
        for phase in &template.phases {
            let mut of_phase = Vec::new();
            for section in &phase.sections {
                let insts = section.code.iter().collect::<Result<Vec<_>, _>>()?;
                let first = number;
                number += insts.len() as u32;
                of_phase.push((first, insts));
            }
            sections.push(of_phase);
        }
        Ok(Decoded { sections })
    }
    /// The number of a section's first instruction, and its instructions.
    pub(crate) fn section(&self, phase: usize, section: usize) -> (u32, &[Inst]) {
        let (first, insts) = &self.sections[phase][section];
        (*first, insts)
    }
}

/// Runs a program on `args`, as many and as long as it says: steps in order, their units in order, tiles in order.
///
/// # Errors
/// The first instruction that does not execute: in a verified program the trap with the lowest
/// (step, tile, instruction, element).
pub fn run(program: &Program, args: &mut [Vec<u8>], math: &dyn Math) -> Result<(), Failure> {
    run_with(program, args, math, &Options::default())
}

/// As [`run`].
///
/// # Errors
/// As for [`run`].
pub fn run_with(
    program: &Program,
    args: &mut [Vec<u8>],
    math: &dyn Math,
    options: &Options,
) -> Result<(), Failure> {
    start(program, args);
    let mut local = LocalMemory::new(&program.target, options.undefined);
    let target = &program.target;
    visit(program, |at, slots, inst, point| {
        if at.starts {
            local.fill(options.undefined);
        }
        let mut memory = Flat { target, local: &mut local, args: &mut *args, slots };
        execute(inst, point, &mut memory, math)
    })
}

/// What arguments hold when a launch starts: those that ask for it are cleared, and an output that may have an input's memory
/// begins as the input, whether it has or not.
pub fn start(program: &Program, args: &mut [Vec<u8>]) {
    for (arg, bytes) in program.args.iter().zip(args.iter_mut()) {
        if arg.zero && matches!(arg.role, Role::Output | Role::Workspace) {
            bytes.fill(0);
        }
    }
    for &(input, output) in &program.aliases {
        let (input, output) = (input as usize, output as usize);
        if input < args.len()
            && output < args.len()
            && input != output
            && args[input].len() == args[output].len()
        {
            let mut start = std::mem::take(&mut args[output]);
            start.copy_from_slice(&args[input]);
            args[output] = start;
        }
    }
}

/// Where [`visit`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Step.
    pub step: u32,
    /// Unit of the step.
    pub unit: u32,
    /// Tile of the unit.
    pub tile: u64,
    /// The first instruction of a tile: what local memory holds is undefined.
    pub starts: bool,
    /// Index of the instruction in its template, over all sections in order.
    pub instruction: u32,
}

/// Calls `f` with every executed instruction in program order, the slots of its unit, and its point.
///
/// # Errors
/// The first fault that `f` returns, located; or that of code that is none.
pub fn visit(
    program: &Program,
    mut f: impl FnMut(Visit, &[(u32, u64)], &Inst, &Point) -> Result<(), Fault>,
) -> Result<(), Failure> {
    for (s, step) in program.steps.iter().enumerate() {
        for (u, unit) in step.units.iter().enumerate() {
            let failure = |tile, phase: usize, place, instruction, mnemonic, fault| Failure {
                step: s as u32,
                unit: u as u32,
                tile,
                phase: phase as u32,
                place,
                instruction,
                mnemonic,
                fault,
            };
            let whole = |fault| failure(0, 0, Place::Body, 0, "", fault);
            let Some(template) = program.templates.get(unit.template as usize) else {
                return Err(whole(Fault::Denied(format!("there is no template {}", unit.template))));
            };
            let decoded = Decoded::new(template).map_err(|e| whole(Fault::Decode(e)))?;
            for tile in 0..tiles(template) {
                let mut starts = true;
                walk_tile(template, tile, |phase, section, point| {
                    let (first, insts) = decoded.section(phase, section);
                    for (i, inst) in insts.iter().enumerate() {
                        let instruction = first + i as u32;
                        let at = Visit { step: s as u32, unit: u as u32, tile, starts, instruction };
                        starts = false;
                        let place = template.phases[phase].sections[section].place;
                        f(at, &unit.slots, inst, point)
                            .map_err(|e| failure(tile, phase, place, instruction, inst.op.mnemonic(), e))?;
                    }
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}
