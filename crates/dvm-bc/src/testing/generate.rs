//! Random programs.

use super::dice::Dice;
use super::template::{Builder, SlotPlan};
use crate::{
    Arg, CoreLimit, DType, Exchange, Kind, Layout, Limits, Opcode, Place, Program, Role, Size, Space,
    SpaceSpec, Step, Target, Template, Unit,
};

/// A program, and what its arguments should hold so that it does not trap at once.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The program.
    pub program: Program,
    /// Per argument: the extent that it holds indices into.
    pub limits: Vec<Option<u64>>,
}

/// Limits that keep a run of a random program short.
#[must_use]
pub fn small_limits() -> Limits {
    Limits {
        arg_bytes: 1 << 16,
        local_bytes: 1 << 20,
        tiles: 4096,
        tile_instructions: 1 << 14,
        elements: 1 << 20,
        ..Limits::default()
    }
}

impl Generated {
    /// Bytes for each argument, in the program's order. Values depend on `seed` alone.
    #[must_use]
    pub fn data(&self, seed: u64) -> Vec<Vec<u8>> {
        let mut dice = Dice::Seed(seed);
        let args = self.program.args.iter().zip(self.limits.iter().chain(std::iter::repeat(&None)));
        args.map(|(a, limit)| {
            let bytes = usize::try_from(a.bytes).unwrap_or(0).min(1 << 24);
            match limit {
                Some(limit) if matches!(a.dtype, DType::I32 | DType::I64) => {
                    indices(&mut dice, a, bytes, *limit)
                }
                _ => dice.elements(a.dtype, bytes),
            }
        })
        .collect()
    }
}

/// Indices that are in range, but for a few.
fn indices(dice: &mut Dice<'_>, arg: &Arg, bytes: usize, limit: u64) -> Vec<u8> {
    let wild = dice.chance(1, 8);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        let mut i = dice.below(limit) as i64;
        if dice.chance(1, 4) {
            i -= limit as i64;
        }
        if wild && dice.chance(1, 16) {
            i = dice.signed(32);
        }
        out.extend_from_slice(&i.to_le_bytes()[..arg.dtype.size() as usize]);
    }
    out.truncate(bytes);
    out
}

fn target(dice: &mut Dice<'_>) -> Target {
    let block = 8 << dice.below(4);
    let bytes = |d: &mut Dice<'_>, least: u64| u64::from(block) * d.range(least, 2 * least);
    Target {
        name: "random".into(),
        cores: dice.range(1, 4) as u32,
        spaces: vec![
            SpaceSpec { space: Space::Ub, bytes: bytes(dice, 256) },
            SpaceSpec { space: Space::PanelA, bytes: bytes(dice, 64) },
            SpaceSpec { space: Space::PanelB, bytes: bytes(dice, 128) },
            SpaceSpec { space: Space::Acc, bytes: bytes(dice, 64) },
        ],
        block,
        panel_nr: [1, 2, 4, 8].map(|size| (size, dice.pick(&[16, 16, 8, 4, 3, 1]))).to_vec(),
        panel_mr: dice.pick(&[6, 6, 4, 1, 16]),
        exchange: Exchange::Direct,
        async_pipes: false,
        events: 0,
        cube_cores: 0,
        legal: vec![],
    }
}

fn dtype(dice: &mut Dice<'_>, usual: DType, op: Opcode) -> DType {
    let d = if dice.chance(2, 3) { usual } else { dice.pick(DType::ALL) };
    if op.dtypes().contains(d) {
        return d;
    }
    let legal: Vec<DType> = DType::ALL.iter().copied().filter(|&d| op.dtypes().contains(d)).collect();
    dice.pick(&legal)
}

/// Instructions, and at the end stores of what they made.
fn section(b: &mut Builder<'_, '_, '_>, place: Place, usual: DType, most: u64) {
    b.section(place);
    for _ in 0..b.dice.below(most + 1) {
        let op = b.dice.pick(Opcode::ALL);
        let d = dtype(b.dice, usual, op);
        let (mut rows, mut cols) = b.shape;
        if b.dice.chance(1, 6) {
            rows = b.size(6, None);
            cols = b.size(18, rows.extent);
        }
        let _ = b.op_over(op, d, rows, cols);
    }
    if b.dice.chance(1, 8) {
        let (rows, cols) = b.shape;
        let _ = b.in_place(usual, rows, cols);
    }
    for _ in 0..b.dice.below(3) {
        store(b);
    }
    b.end_section();
}

fn store(b: &mut Builder<'_, '_, '_>) {
    let n = b.tiles.len();
    if n > 0 {
        // The last ones mostly.
        let i = n - 1 - (b.dice.below(3) as usize).min(n - 1);
        let t = b.tiles[i];
        let op = if b.dice.chance(1, 4) { Opcode::ViewStore } else { Opcode::Store };
        let _ = b.op_over(op, t.dtype, t.rows, t.cols);
    }
}

fn template(dice: &mut Dice<'_>, target: &Target, name: String) -> (Template, Vec<SlotPlan>) {
    let parallel = Builder::some_extents(dice, 3);
    let usual = if dice.chance(1, 2) { DType::F32 } else { dice.pick(DType::ALL) };
    let mut b = Builder::new(dice, target, parallel);
    for _ in 0..1 + b.dice.below(5) / 4 {
        let depth = [0, 0, 0, 1, 1, 2, 3][b.dice.below(7) as usize];
        let seq: Vec<u32> =
            (0..depth).map(|_| if b.dice.chance(1, 40) { 0 } else { b.dice.range(1, 3) as u32 }).collect();
        let rotate = b.dice.chance(1, 8);
        b.phase(seq, rotate);
        let depths = b.seq.len().max(1) as u8;
        for d in 0..depths {
            if b.dice.chance(1, 3) {
                section(&mut b, Place::Init(d), usual, 3);
            }
        }
        section(&mut b, Place::Body, usual, 7);
        for d in (0..depths).rev() {
            if b.dice.chance(1, 3) {
                section(&mut b, Place::Finish(d), usual, 3);
            }
        }
        b.end_phase();
    }
    if b.dice.chance(1, 16) {
        b.kind = b.dice.pick(&[Kind::Vector, Kind::Cube, Kind::Mix]);
    }
    b.finish(name)
}

/// A program of one instruction over `rows x cols`, with what it needs before it and stores of what it makes. `None` where the
/// instruction makes nothing alone.
#[must_use]
pub fn single(
    dice: &mut Dice<'_>,
    op: Opcode,
    dtype: DType,
    (rows, cols): (Size, Size),
    parallel: &[u32],
) -> Option<Generated> {
    let target = target(dice);
    let mut b = Builder::new(dice, &target, parallel.to_vec());
    b.section(Place::Body);
    b.shape = (rows, cols);
    let _ = b.op_over(op, dtype, rows, cols);
    if !b.emitted(op) {
        return None;
    }
    for t in b.tiles.clone() {
        let _ = b.op_over(Opcode::Store, t.dtype, t.rows, t.cols);
    }
    b.end_section();
    b.end_phase();
    let (template, plans) = b.finish("t0".into());
    let mut b = Bindings::default();
    let unit = b.unit(dice, 0, &plans, 0);
    Some(b.finish(target, vec![template], vec![Step { units: vec![unit], limits: vec![] }]))
}

/// Bytes of an argument that an earlier step has stored, all of them.
struct Stored {
    arg: u32,
    offset: u64,
    bytes: u64,
    step: usize,
}

/// The arguments of a program as its units ask for them.
#[derive(Default)]
struct Bindings {
    args: Vec<Arg>,
    limits: Vec<Option<u64>>,
    aliases: Vec<(u32, u32)>,
    stored: Vec<Stored>,
    workspace: Option<u32>,
}

impl Bindings {
    fn arg(&mut self, role: Role, dtype: DType, bytes: u64, layout: Layout, zero: bool) -> u32 {
        let name = format!("a{}", self.args.len());
        let align = if role == Role::Workspace { 8 } else { dtype.size() };
        self.args.push(Arg { name, role, dtype, bytes, align, layout, zero });
        self.limits.push(None);
        self.args.len() as u32 - 1
    }

    fn write(&mut self, dice: &mut Dice<'_>, s: &SlotPlan, step: usize) -> (u32, u64) {
        let bytes = s.bytes.next_multiple_of(s.dtype.size().into());
        let zero = (!s.full || s.read) ^ dice.chance(1, 30);
        if !s.read && dice.chance(1, 3) {
            let arg = match self.workspace {
                Some(a) => a,
                None => {
                    let zero = dice.chance(1, 2);
                    let a = self.arg(Role::Workspace, DType::U8, 0, Layout::Plain, zero);
                    *self.workspace.insert(a)
                }
            };
            let a = &mut self.args[arg as usize];
            let offset = a.bytes.next_multiple_of(8);
            a.bytes = offset + bytes;
            if s.full || a.zero {
                self.stored.push(Stored { arg, offset, bytes, step });
            }
            return (arg, offset);
        }
        let arg = self.arg(Role::Output, s.dtype, bytes, Layout::Plain, zero);
        self.stored.push(Stored { arg, offset: 0, bytes, step });
        (arg, 0)
    }

    fn read(&mut self, dice: &mut Dice<'_>, s: &SlotPlan, step: usize) -> (u32, u64) {
        let size = u64::from(s.dtype.size());
        let bytes = s.bytes.next_multiple_of(size);
        if s.layout == Layout::Plain && s.limit.is_none() && s.alias.is_none() {
            let fits = |p: &&Stored| {
                let a = &self.args[p.arg as usize];
                p.step < step && p.bytes >= bytes && (a.role == Role::Workspace || a.dtype == s.dtype)
            };
            let earlier: Vec<&Stored> = self.stored.iter().filter(fits).collect();
            if !earlier.is_empty() && dice.chance(1, 2) {
                let p = earlier[dice.below(earlier.len() as u64) as usize];
                return (p.arg, p.offset);
            }
            let shared = |a: &Arg| {
                a.role == Role::Input && a.dtype == s.dtype && a.bytes >= bytes && a.layout == Layout::Plain
            };
            let inputs: Vec<u32> =
                (0u32..).zip(&self.args).filter(|(_, a)| shared(a)).map(|(i, _)| i).collect();
            if !inputs.is_empty() && dice.chance(1, 3) {
                return (dice.pick(&inputs), 0);
            }
        }
        let role = if dice.chance(1, 4) && s.alias.is_none() { Role::Weight } else { Role::Input };
        let offset = if s.layout == Layout::Plain && s.alias.is_none() && dice.chance(1, 8) {
            size * dice.range(1, 5)
        } else {
            0
        };
        let arg = self.arg(role, s.dtype, offset + bytes, s.layout, false);
        self.limits[arg as usize] = s.limit;
        (arg, offset)
    }

    fn unit(&mut self, dice: &mut Dice<'_>, template: u32, plans: &[SlotPlan], step: usize) -> Unit {
        let mut slots = Vec::with_capacity(plans.len());
        for s in plans {
            slots.push(if s.write { self.write(dice, s, step) } else { self.read(dice, s, step) });
        }
        for (i, s) in plans.iter().enumerate() {
            if let Some(to) = s.alias
                && let (Some(&(input, 0)), Some(&(output, 0))) = (slots.get(i), slots.get(to))
                && self.args[output as usize].role == Role::Output
                && !self.args[output as usize].zero
                && dice.chance(3, 4)
            {
                self.aliases.push((input, output));
            }
        }
        Unit { template, slots, weight: dice.range(1, 3) as u32 }
    }

    fn finish(self, target: Target, templates: Vec<Template>, steps: Vec<Step>) -> Generated {
        let Bindings { args, limits, aliases, .. } = self;
        let program = Program { name: "random".into(), target, args, templates, steps, aliases };
        Generated { program, limits }
    }
}

/// A random program. Most pass the verifier.
#[must_use]
pub fn program(dice: &mut Dice<'_>) -> Generated {
    let target = target(dice);
    let count = 1 + dice.below(6) / 3;
    let (mut templates, mut plans) = (Vec::new(), Vec::new());
    for i in 0..count {
        let (t, p) = template(dice, &target, format!("t{i}"));
        templates.push(t);
        plans.push(p);
    }
    let mut b = Bindings::default();
    let mut steps = Vec::new();
    for step in 0..1 + dice.below(6) as usize / 3 {
        let n = 1 + dice.below(5) / 4;
        let unit = |dice: &mut Dice<'_>, b: &mut Bindings| {
            let t = dice.below(templates.len() as u64) as usize;
            b.unit(dice, t as u32, &plans[t], step)
        };
        let units: Vec<Unit> = (0..n).map(|_| unit(dice, &mut b)).collect();
        let limit = CoreLimit { first: 0, units: units.len() as u32, cores: 1 };
        let limits = if units.len() > 1 { vec![limit] } else { vec![] };
        steps.push(Step { units, limits });
    }
    b.finish(target, templates, steps)
}
