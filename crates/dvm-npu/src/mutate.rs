//! Programs with one thing wrong in their synchronisation, to test what judges synchronisation.
//!
//! What is changed is the code alone; whether a mutant is wrong is for the [hazard checker](crate::hazard) and the
//! [adversarial executor](crate::adversary) to say.

use std::fmt;

use dvm_bc::{
    Access, Code, EncodeError, Event, Inst, Local, Opcode, Operands, Pipe, Program, Section, Space, Sync,
    Template, Uses,
};

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    /// Both ends of an event are gone.
    Event,
    /// The setting end alone is gone.
    Set,
    /// The waiting end alone is gone.
    Wait,
    /// A `bar` bit is gone.
    Bar,
    /// A `barrier` is gone.
    Barrier,
    /// A flag between cores is gone.
    Cross,
    /// A setting of a flag between cores is gone.
    CrossSet,
    /// A wait for a flag between cores is gone.
    CrossWait,
    /// Two buffers share their place.
    Overlap,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 9] = [
        Mutation::Event,
        Mutation::Set,
        Mutation::Wait,
        Mutation::Bar,
        Mutation::Barrier,
        Mutation::Cross,
        Mutation::CrossSet,
        Mutation::CrossWait,
        Mutation::Overlap,
    ];
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mutation::Event => "event",
            Mutation::Set => "set alone",
            Mutation::Wait => "wait alone",
            Mutation::Bar => "bar",
            Mutation::Barrier => "barrier",
            Mutation::Cross => "cross flag",
            Mutation::CrossSet => "xset alone",
            Mutation::CrossWait => "xwait alone",
            Mutation::Overlap => "overlap",
        })
    }
}

/// A changed program.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// It.
    pub program: Program,
    /// What was changed.
    pub mutation: Mutation,
    /// Where, for people.
    pub what: String,
}

/// Overlaps tried a template.
const OVERLAPS: usize = 6;

/// Every mutant of a program: each event, each of its ends, each bar, barrier and flag between cores taken away; and a few pairs of
/// buffers of a template, whose lives in program order are apart, put in one place.
///
/// # Errors
/// Code of the program does not decode, or no longer fits its encoding.
pub fn mutants(program: &Program) -> Result<Vec<Mutant>, MutateError> {
    let mut out = Vec::new();
    for (index, template) in program.templates.iter().enumerate() {
        let sites = sites(template)?;
        let mut change =
            |mutation, what: String, edit: &dyn Fn(u32, &mut Inst) -> bool| -> Result<(), MutateError> {
                let mut program = program.clone();
                rewrite(&mut program.templates[index], edit)?;
                out.push(Mutant { program, mutation, what: format!("{}: {what}", template.name) });
                Ok(())
            };
        events(&sites, &mut change)?;
        for (n, inst) in &sites {
            let text = dvm_bc::text::inst_text(inst, template.parallel.len());
            if inst.sync.bar {
                change(Mutation::Bar, format!("#{n} {text}"), &|m, i| {
                    i.sync.bar &= m != *n;
                    true
                })?;
            }
            let alone = match inst.op {
                Opcode::Barrier => Mutation::Barrier,
                Opcode::XSet => Mutation::CrossSet,
                Opcode::XWait => Mutation::CrossWait,
                _ => continue,
            };
            // The head of an instruction may carry other synchronisation: that stays.
            change(alone, format!("#{n} {text}"), &|m, i| m != *n || stand_in(i))?;
        }
        for flag in 0..dvm_bc::CROSS_FLAGS {
            let is = |i: &Inst| matches!(&i.operands, Operands::Cross(o) if o.flag == flag);
            if sites.iter().any(|(_, i)| is(i)) {
                change(Mutation::Cross, format!("flag {flag}"), &|_, i| !is(i) || stand_in(i))?;
            }
        }
        for (from, to) in overlaps(program, &sites) {
            let what = format!("{} at {} onto {}", from.space.name(), from.offset, to.offset);
            change(Mutation::Overlap, what, &|_, i| {
                i.each_local_mut(|l| {
                    if *l == from {
                        *l = to;
                    }
                });
                true
            })?;
        }
    }
    Ok(out)
}

/// Code that cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MutateError {
    /// The words are no instructions.
    #[error(transparent)]
    Decode(#[from] dvm_bc::DecodeError),
    /// The instruction does not fit its encoding.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Takes the work of a control instruction away; whether anything of it is left.
fn stand_in(i: &mut Inst) -> bool {
    let (Some(pipe), false) = (i.pipe(), i.sync.is_none()) else { return false };
    *i = Inst::nop(pipe, i.sync);
    true
}

/// Instructions with their numbers.
fn sites(template: &Template) -> Result<Vec<(u32, Inst)>, MutateError> {
    let sections = template.phases.iter().flat_map(|p| &p.sections);
    let all = sections.flat_map(|s| s.code.iter());
    Ok(all.enumerate().map(|(n, i)| Ok((n as u32, i?))).collect::<Result<_, dvm_bc::DecodeError>>()?)
}

/// Changes every instruction; one for which `edit` returns false is left out.
fn rewrite(template: &mut Template, edit: &dyn Fn(u32, &mut Inst) -> bool) -> Result<(), MutateError> {
    let mut number = 0;
    for section in template.phases.iter_mut().flat_map(|p| &mut p.sections) {
        let Section { code, .. } = section;
        let mut new = Code::default();
        for inst in code.iter() {
            let mut inst = inst?;
            if edit(number, &mut inst) {
                new.push(&inst)?;
            }
            number += 1;
        }
        *code = new;
    }
    Ok(())
}

/// An end of an event: instruction, and the slot of [`Sync::slots`].
type End = (u32, usize);
/// Producer, consumer, number, whether backward.
type Name = (Pipe, Pipe, u8, bool);
type Change<'a> =
    dyn FnMut(Mutation, String, &dyn Fn(u32, &mut Inst) -> bool) -> Result<(), MutateError> + 'a;

fn events(sites: &[(u32, Inst)], change: &mut Change<'_>) -> Result<(), MutateError> {
    let mut names: Vec<(Name, Vec<End>, Vec<End>)> = Vec::new();
    for (n, inst) in sites {
        let Some(pipe) = inst.pipe() else { continue };
        for (slot, event) in inst.sync.slots().into_iter().enumerate() {
            let Some(Event { peer, id }) = event else { continue };
            let sets = slot % 2 == 1;
            let (from, to) = if sets { (pipe, peer) } else { (peer, pipe) };
            let name = (from, to, id, slot >= 2);
            let at = names.iter().position(|x| x.0 == name).unwrap_or(names.len());
            if at == names.len() {
                names.push((name, Vec::new(), Vec::new()));
            }
            if sets { &mut names[at].1 } else { &mut names[at].2 }.push((*n, slot));
        }
    }
    let clear = |i: &mut Inst, slot: usize| {
        if let Some(s) = i.sync.slot_mut(slot) {
            *s = None;
        }
    };
    for ((from, to, id, back), sets, waits) in &names {
        let name = format!("{from} -> {to} {id}{}", if *back { " back" } else { "" });
        for (&s, &w) in sets.iter().zip(waits) {
            change(Mutation::Event, format!("{name}, #{} to #{}", s.0, w.0), &|m, i| {
                for end in [s, w] {
                    if m == end.0 {
                        clear(i, end.1);
                    }
                }
                true
            })?;
        }
        for (mutation, ends) in [(Mutation::Set, sets), (Mutation::Wait, waits)] {
            for &(n, slot) in ends {
                change(mutation, format!("{name}, #{n} {}", Sync::NAMES[slot]), &|m, i| {
                    if m == n {
                        clear(i, slot);
                    }
                    true
                })?;
            }
        }
    }
    Ok(())
}

/// A buffer: where it is, how long, the first and last instruction that touch it.
struct Buffer {
    local: Local,
    bytes: u64,
    first: u32,
    last: u32,
}

/// Pairs of buffers that are never needed at the same time in program order, nearest in time first.
fn overlaps(program: &Program, sites: &[(u32, Inst)]) -> Vec<(Local, Local)> {
    let block = u64::from(program.target.block).max(1);
    let mut buffers: Vec<Buffer> = Vec::new();
    for (n, inst) in sites {
        for u in Uses::of(inst, &program.target, &[], 0).locals {
            let offset = u32::try_from(u.lo / block).unwrap_or(u32::MAX);
            // Panels have one geometry wherever they are used.
            if !matches!(u.space, Space::Ub | Space::Acc) || u.lo % block != 0 || u.access == Access::Param {
                continue;
            }
            let local = Local { space: u.space, offset };
            let bytes = u.hi - u.lo;
            match buffers.iter_mut().find(|b| b.local == local) {
                Some(b) => (b.bytes, b.last) = (b.bytes.max(bytes), *n),
                None => buffers.push(Buffer { local, bytes, first: *n, last: *n }),
            }
        }
    }
    let capacity = |b: &Buffer| program.target.capacity(b.local.space);
    let mut out: Vec<(u32, Local, Local)> = Vec::new();
    for a in &buffers {
        for b in buffers.iter().filter(|b| b.local.space == a.local.space && b.first > a.last) {
            let lo = |x: &Buffer| u64::from(x.local.offset) * block;
            let apart = lo(a) + a.bytes <= lo(b) || lo(b) + b.bytes <= lo(a);
            if apart && lo(a) + b.bytes <= capacity(a) {
                out.push((b.first - a.last, b.local, a.local));
            }
        }
    }
    out.sort_by_key(|&(gap, from, to)| (from.space, from.offset, gap, to.offset));
    out.dedup_by_key(|x| x.1);
    out.sort_by_key(|x| x.0);
    out.into_iter().take(OVERLAPS).map(|(_, from, to)| (from, to)).collect()
}
