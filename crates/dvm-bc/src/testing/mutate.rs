//! Mutations that know the fields of a program, so that most of what they make is almost sound.

use super::dice::Dice;
use crate::{
    Code, DType, Event, Inst, Kind, Layout, Local, Loop, MAX_LOOPS, Mode, Opcode, OperandMut, Pipe, Place,
    Program, Role, Size, Space, Src, Step, Strides, Sync, Template,
};

/// A number near `v`, or far from it.
fn number(dice: &mut Dice<'_>, v: u64) -> u64 {
    match dice.below(12) {
        0 => 0,
        1 => v.wrapping_add(1),
        2 => v.wrapping_sub(1),
        3 => v.wrapping_mul(2),
        4 => v / 2,
        5 => v ^ (1 << dice.below(64)),
        6 => dice.word(),
        7 => u64::MAX >> dice.below(64),
        8 => v.wrapping_add(8),
        9 => v.wrapping_sub(8),
        _ => dice.below(20),
    }
}

fn signed(dice: &mut Dice<'_>, v: i64) -> i64 {
    if dice.chance(1, 8) { v.wrapping_neg() } else { number(dice, v as u64) as i64 }
}

/// A small count: what does not fit any more is as good as what is too large.
fn count(dice: &mut Dice<'_>, v: u32, bits: u32) -> u32 {
    (number(dice, v.into()) & (u64::MAX >> (64 - bits))) as u32
}

fn dtype(dice: &mut Dice<'_>) -> DType {
    dice.pick(DType::ALL)
}

fn flip(dice: &mut Dice<'_>, b: &mut bool) {
    *b ^= dice.chance(3, 4);
}

fn size(dice: &mut Dice<'_>, s: &mut Size) {
    match dice.below(5) {
        0 => s.body = count(dice, s.body, 28),
        1 => s.tail = count(dice, s.tail, 28),
        2 => *s = Size::fixed(count(dice, s.body, 28)),
        3 => s.extent = dice.chance(3, 4).then(|| dice.below(11) as u8),
        _ => *s = Size::ragged(s.body, dice.below(u64::from(s.body) + 1) as u32, dice.below(4) as u8),
    }
}

fn strides(dice: &mut Dice<'_>, s: &mut Strides) {
    let i = dice.below(s.len().max(1) as u64) as usize;
    let n = s.len();
    match (dice.below(4), s.get_mut(i)) {
        (0 | 1, Some(x)) => x.1 = signed(dice, x.1) << 4 >> 4,
        (2, Some(x)) => x.0 = dice.below(11) as u8,
        (3, Some(_)) => drop(s.remove(i)),
        _ if n < 11 => s.insert(i.min(n), (dice.below(6) as u8, dice.signed(20))),
        _ => s.clear(),
    }
}

fn local(dice: &mut Dice<'_>, l: &mut Local) {
    if dice.chance(1, 8) {
        l.space = dice.pick(&Space::ALL);
    } else {
        l.offset = count(dice, l.offset, 32);
    }
}

fn operand(dice: &mut Dice<'_>, o: OperandMut<'_>) {
    match o {
        OperandMut::Local(l) => local(dice, l),
        OperandMut::Src(s) => match s {
            Src::Imm(v) if dice.chance(3, 4) => *v = number(dice, *v),
            Src::Local(l, _) if dice.chance(1, 2) => local(dice, l),
            Src::Local(_, m) if dice.chance(3, 4) => *m = dice.pick(&Mode::ALL),
            s => {
                *s = if dice.chance(1, 2) {
                    Src::Imm(dice.below(3))
                } else {
                    Src::Local(
                        Local { space: Space::Ub, offset: dice.below(64) as u32 },
                        dice.pick(&Mode::ALL),
                    )
                }
            }
        },
        OperandMut::Mem(m) => match dice.below(4) {
            0 => m.slot = if dice.chance(3, 4) { dice.below(8) as u16 } else { dice.word() as u16 },
            1 => m.offset = signed(dice, m.offset) << 20 >> 20,
            _ => strides(dice, &mut m.strides),
        },
        OperandMut::Size(s) => size(dice, s),
        OperandMut::Strides(s) => strides(dice, s),
        OperandMut::Loops(l) => {
            let i = dice.below(l.len().max(1) as u64) as usize;
            let n = l.len();
            match (dice.below(5), l.get_mut(i)) {
                (0 | 1, Some(x)) => size(dice, &mut x.count),
                (2, Some(x)) => x.stride = signed(dice, x.stride),
                (3, Some(_)) => drop(l.remove(i)),
                _ if n < MAX_LOOPS => {
                    l.push(Loop { count: Size::fixed(dice.below(4) as u32), stride: dice.signed(8) });
                }
                _ => l.reverse(),
            }
        }
        OperandMut::Hints(h) => {
            flip(dice, &mut h.sticky);
            flip(dice, &mut h.stream);
        }
        OperandMut::Init(i) => {
            *i = dice.pick(&[crate::Init::Accumulate, crate::Init::Always, crate::Init::First])
        }
        OperandMut::DType(d) => *d = dtype(dice),
        OperandMut::Pipe(p) => *p = dice.pick(&Pipe::ALL),
        OperandMut::Flag(f) => *f = dice.below(8) as u8,
        OperandMut::Bool(b) => *b = !*b,
        OperandMut::Signed(v) => *v = signed(dice, *v),
        OperandMut::Unsigned(v) => *v = number(dice, *v),
    }
}

fn sync(dice: &mut Dice<'_>, s: &mut Sync) {
    let event = Event { peer: dice.pick(&Pipe::ALL), id: dice.below(8) as u8 };
    let keep = dice.chance(2, 3);
    if let Some(slot) = s.slot_mut(dice.below(5) as usize) {
        *slot = keep.then_some(event);
    } else {
        s.bar = !s.bar;
    }
}

/// Any instruction that can be encoded.
fn any_inst(dice: &mut Dice<'_>) -> Option<Inst> {
    let mut bytes = [0u8; 256];
    for b in bytes.chunks_mut(8) {
        b.copy_from_slice(&dice.word().to_le_bytes());
    }
    arbitrary::Unstructured::new(&bytes).arbitrary().ok()
}

fn inst(dice: &mut Dice<'_>, i: &mut Inst) {
    match dice.below(10) {
        0 => i.dtype = dtype(dice),
        1 => {
            let alike: Vec<Opcode> =
                Opcode::ALL.iter().copied().filter(|o| o.form() == i.op.form()).collect();
            i.op = dice.pick(&alike);
        }
        2 => sync(dice, &mut i.sync),
        _ => {
            let mut n = 0u64;
            i.visit_mut(|_, _, _| n += 1);
            let (chosen, mut at) = (dice.below(n), 0);
            i.visit_mut(|_, _, o| {
                if at == chosen {
                    operand(dice, o);
                }
                at += 1;
            });
        }
    }
}

/// Changes the instructions of a section.
fn code(dice: &mut Dice<'_>, code: &mut Code) {
    if dice.chance(1, 40) {
        // Words, whatever they say.
        let mut words = code.words().to_vec();
        let i = dice.below(words.len().max(1) as u64) as usize;
        match (dice.below(3), words.get_mut(i)) {
            (0, Some(w)) => *w ^= 1 << dice.below(64),
            (1, Some(w)) => *w = dice.word(),
            _ => words.truncate(i),
        }
        *code = Code::from_words(words);
        return;
    }
    let Ok(mut insts) = code.iter().collect::<Result<Vec<Inst>, _>>() else { return };
    let n = insts.len() as u64;
    let i = dice.below(n) as usize;
    match dice.below(16) {
        0 if n > 0 => drop(insts.remove(i)),
        1 if n > 0 => insts.insert(i, insts[i].clone()),
        2 if n > 0 => insts.swap(i, dice.below(n) as usize),
        3 => insts.extend(any_inst(dice)),
        _ if n > 0 => inst(dice, &mut insts[i]),
        _ => {}
    }
    let mut out = Code::default();
    for i in &insts {
        // What does not fit its encoding is left out.
        let _ = out.push(i);
    }
    *code = out;
}

fn extents(dice: &mut Dice<'_>, e: &mut Vec<u32>) {
    let i = dice.below(e.len().max(1) as u64) as usize;
    let n = e.len();
    match (dice.below(6), e.get_mut(i)) {
        (0..4, Some(x)) => *x = count(dice, *x, 32),
        (4, Some(_)) => drop(e.remove(i)),
        _ if n < 12 => e.push(dice.below(4) as u32),
        _ => e.clear(),
    }
}

fn template(dice: &mut Dice<'_>, t: &mut Template) {
    let p = dice.below(t.phases.len().max(1) as u64) as usize;
    match dice.below(24) {
        0 | 1 => extents(dice, &mut t.parallel),
        2 => t.kind = dice.pick(&[Kind::Vector, Kind::Cube, Kind::Mix]),
        3 if !t.slots.is_empty() => {
            let s = dice.below(t.slots.len() as u64) as usize;
            if dice.chance(1, 2) {
                t.slots[s].dtype = dtype(dice);
            } else {
                t.slots[s].write ^= true;
            }
        }
        4 if p < t.phases.len() => match dice.below(4) {
            0 => drop(t.phases.remove(p)),
            1 => t.phases.push(t.phases[p].clone()),
            2 => t.phases.swap(0, p),
            _ => t.phases[p].rotate ^= true,
        },
        5 | 6 if p < t.phases.len() => extents(dice, &mut t.phases[p].seq),
        n if p < t.phases.len() => {
            let sections = &mut t.phases[p].sections;
            let s = dice.below(sections.len().max(1) as u64) as usize;
            let Some(section) = sections.get_mut(s) else { return };
            match n {
                7 => {
                    let d = dice.below(4) as u8;
                    section.place = dice.pick(&[Place::Init(d), Place::Body, Place::Finish(d)]);
                }
                8 => match dice.below(3) {
                    0 => drop(sections.remove(s)),
                    1 => sections.push(sections[s].clone()),
                    _ => sections.swap(0, s),
                },
                _ => code(dice, &mut section.code),
            }
        }
        _ => {}
    }
}

fn argument(dice: &mut Dice<'_>, p: &mut Program) {
    let Some(i) = (!p.args.is_empty()).then(|| dice.below(p.args.len() as u64) as usize) else { return };
    if dice.chance(1, 12) {
        match dice.below(3) {
            0 => drop(p.args.remove(i)),
            1 => p.args.push(p.args[i].clone()),
            _ => p.args.swap(0, i),
        }
        return;
    }
    let a = &mut p.args[i];
    match dice.below(8) {
        0 => a.role = dice.pick(&[Role::Input, Role::Output, Role::Weight, Role::Workspace, Role::Ring]),
        1 => a.dtype = dtype(dice),
        2 | 3 => a.bytes = number(dice, a.bytes),
        4 => a.align = number(dice, a.align.into()) as u32,
        5 => a.zero ^= true,
        6 => a.name = format!("a{}", dice.below(6)),
        _ => match &mut a.layout {
            Layout::Panels { nr, k, n, batch } => match dice.below(5) {
                0 => *nr = count(dice, *nr, 32),
                1 => *k = number(dice, *k),
                2 => *n = number(dice, *n),
                3 => *batch = number(dice, *batch),
                _ => a.layout = Layout::Plain,
            },
            l => *l = Layout::Panels { nr: 16, k: dice.below(8), n: dice.below(20), batch: 1 },
        },
    }
}

fn steps(dice: &mut Dice<'_>, p: &mut Program) {
    let (args, templates) = (p.args.len() as u64, p.templates.len() as u64);
    let n = p.steps.len();
    let s = dice.below(n.max(1) as u64) as usize;
    match (dice.below(10), p.steps.get_mut(s)) {
        (0, Some(_)) => drop(p.steps.remove(s)),
        (1, Some(step)) => {
            let copy = step.clone();
            p.steps.push(copy);
        }
        (2, Some(_)) => p.steps.swap(0, s),
        (3, Some(_)) if s > 0 => {
            // Two steps at once.
            let mut units = p.steps.remove(s).units;
            p.steps[s - 1].units.append(&mut units);
        }
        (_, Some(step)) if !step.units.is_empty() => {
            let u = dice.below(step.units.len() as u64) as usize;
            let unit = &mut step.units[u];
            let i = dice.below(unit.slots.len().max(1) as u64) as usize;
            match (dice.below(8), unit.slots.get_mut(i)) {
                (0 | 1, Some(slot)) => slot.0 = dice.below(args + 1) as u32,
                (2 | 3, Some(slot)) => slot.1 = number(dice, slot.1),
                (4, _) => unit.template = dice.below(templates + 1) as u32,
                (5, Some(_)) => drop(unit.slots.remove(i)),
                (6, _) => {
                    let copy = unit.clone();
                    step.units.push(copy);
                }
                _ if dice.chance(1, 2) => {
                    let [first, units, cores] = [(); 3].map(|()| dice.below(4) as u32);
                    step.limits.push(crate::CoreLimit { first, units, cores });
                }
                _ => unit.weight = dice.word() as u32,
            }
        }
        _ => p.steps.push(Step::default()),
    }
}

fn target(dice: &mut Dice<'_>, p: &mut Program) {
    let t = &mut p.target;
    match dice.below(10) {
        0 => t.cores = count(dice, t.cores, 32),
        1 => t.block = 1 << dice.below(14),
        2 => t.panel_mr = count(dice, t.panel_mr, 9),
        3 => {
            let i = dice.below(t.panel_nr.len().max(1) as u64) as usize;
            if let Some(x) = t.panel_nr.get_mut(i) {
                x.1 = count(dice, x.1, 9);
            }
        }
        4 => t.async_pipes ^= true,
        5 => t.events = dice.below(10) as u32,
        6 => t.cube_cores = dice.below(3) as u32,
        7 => t.exchange = dice.pick(&[crate::Exchange::Direct, crate::Exchange::Memory]),
        8 => {
            let i = dice.below(t.spaces.len().max(1) as u64) as usize;
            if let Some(x) = t.spaces.get_mut(i) {
                x.bytes = number(dice, x.bytes) & ((1 << 20) - 1);
            }
        }
        _ => drop(t.spaces.pop()),
    }
}

/// Changes one thing of a program.
pub fn mutate(dice: &mut Dice<'_>, p: &mut Program) {
    let n = p.templates.len() as u64;
    match dice.below(40) {
        0 => target(dice, p),
        1..=4 => argument(dice, p),
        5..=8 => steps(dice, p),
        9 => {
            let i = dice.below(p.aliases.len().max(1) as u64) as usize;
            let args = p.args.len() as u64 + 1;
            let pair = (dice.below(args) as u32, dice.below(args) as u32);
            match p.aliases.get_mut(i) {
                Some(a) if dice.chance(1, 2) => *a = pair,
                Some(_) if dice.chance(1, 2) => drop(p.aliases.remove(i)),
                _ => p.aliases.push(pair),
            }
        }
        10 if n > 1 => {
            let (i, j) = (dice.below(n) as usize, dice.below(n) as usize);
            p.templates.swap(i, j);
        }
        _ if n > 0 => {
            let i = dice.below(n) as usize;
            template(dice, &mut p.templates[i]);
        }
        _ => {}
    }
}

/// Changes some bytes of a file: bits, values, lengths.
pub fn mutate_bytes(dice: &mut Dice<'_>, bytes: &mut Vec<u8>, header: usize) {
    for _ in 0..dice.range(1, 4) {
        let n = bytes.len().saturating_sub(header) as u64;
        if n == 0 {
            return;
        }
        let i = header + dice.below(n) as usize;
        match dice.below(8) {
            0 | 1 => bytes[i] ^= 1 << dice.below(8),
            2 => bytes[i] = dice.word() as u8,
            3 => bytes[i] = dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            4 => bytes.insert(i, dice.word() as u8),
            5 => drop(bytes.remove(i)),
            6 => {
                let to = (i + dice.below(16) as usize).min(bytes.len());
                let copy = bytes[i..to].to_vec();
                bytes.splice(i..i, copy);
            }
            _ => {
                if dice.chance(1, 4) {
                    bytes.truncate(i);
                }
            }
        }
    }
}
