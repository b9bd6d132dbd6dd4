//! Checks of a whole program: arguments, units, races, coverage.

use std::cell::Cell;

use super::address::{MAX_SPAN, Placed, disjoint, equal, in_step, same_tile};
use super::intervals::Intervals;
use super::report::{Report, VerifyErrors, Where};
use super::template::{MemUse, Scratch, TemplateInfo, check as check_template, unstuck};
use super::{Decoded, InPlace, Limits};
use crate::{Layout, MAX_PARALLEL, Program, Role, Step, Unit};

/// Comparisons that are always allowed, and those per unit and code word: this is what keeps the verifier linear.
const WORK: (u64, u64) = (1 << 22, 1 << 10);

/// What is kept from program to program, so that checking one allocates little.
#[derive(Default)]
struct Kept {
    template: Box<Scratch>,
    infos: Vec<TemplateInfo>,
    stored: Vec<(Intervals, Intervals)>,
    home: Vec<u32>,
    stamp: Vec<u32>,
    entries: Vec<Entry>,
}

thread_local! {
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// Templates and arguments of a program after which nothing is kept.
const KEEP: usize = 256;

struct Checker<'a> {
    program: &'a Program,
    limits: &'a Limits,
    template: Box<Scratch>,
    decoded: Decoded,
    infos: Vec<TemplateInfo>,
    in_place: InPlace,
    report: Report,
    /// Per argument: bytes that were stored (hulls), bytes that are stored without a gap.
    stored: Vec<(Intervals, Intervals)>,
    /// Per argument: the argument whose memory it shares.
    home: Vec<u32>,
    instructions: u64,
    elements: u64,
    /// Comparisons left.
    work: u64,
    entries: Vec<Entry>,
    /// Per argument: number of the last step that stores to it, plus one.
    stamp: Vec<u32>,
    aliased: bool,
    /// Per argument, where there are aliases: bytes stored by earlier steps.
    overwritten: Vec<Intervals>,
    /// Per template, where there are rings: which slots are bound to them; empty where none is.
    rings: Vec<Vec<bool>>,
}

/// A slot of a unit, in a step that stores to its argument.
#[derive(Clone, Copy)]
struct Entry {
    home: u32,
    lo: i64,
    hi: i64,
    unit: u32,
    slot: u16,
    writes: bool,
}

/// Verifies; returns for each template whether it stores what it loads, and the instructions.
pub(super) fn check(program: &Program, limits: &Limits) -> Result<(InPlace, Option<Decoded>), VerifyErrors> {
    let mut report = Report::new(limits.violations);
    for p in program.target.problems() {
        report.push(Where::Target, p);
    }
    let local = program.target.spaces.iter().fold(0u64, |n, s| n.saturating_add(s.bytes));
    if local > limits.local_bytes {
        report.push(
            Where::Target,
            format!("{local} bytes of local memory exceed the limit of {}", limits.local_bytes),
        );
    }
    // Everything else computes with the target's numbers.
    report.finish()?;
    let n = program.args.len();
    let Kept { template, mut infos, mut stored, mut home, mut stamp, entries } =
        KEPT.take().map(|k| *k).unwrap_or_default();
    infos.resize_with(program.templates.len(), TemplateInfo::default);
    for (hulls, dense) in stored.iter_mut().take(n) {
        hulls.clear();
        dense.clear();
    }
    stored.resize_with(n, Default::default);
    home.clear();
    home.extend(0..n as u32);
    stamp.clear();
    stamp.resize(n, 0);
    let words = work(program);
    let mut c = Checker {
        program,
        limits,
        template,
        decoded: Decoded::room(words),
        infos,
        in_place: InPlace::new(),
        report: Report::new(limits.violations),
        stored,
        home,
        instructions: 0,
        elements: 0,
        work: WORK.0 + WORK.1 * words,
        entries,
        stamp,
        aliased: false,
        overwritten: Vec::new(),
        rings: rings(program),
    };
    c.args();
    c.aliases();
    c.templates();
    for (i, step) in program.steps.iter().enumerate() {
        c.step(i as u32, step);
    }
    if c.instructions > limits.tile_instructions {
        let (n, most) = (c.instructions, limits.tile_instructions);
        c.report.push(Where::Program, format!("executes {n} instructions, the limit is {most}"));
    }
    if c.elements > limits.elements {
        let (n, most) = (c.elements, limits.elements);
        c.report.push(Where::Program, format!("works on {n} elements, the limit is {most}"));
    }
    c.report.last_rule();
    c.outputs();
    let Checker { report, in_place, decoded, template, infos, stored, home, stamp, entries, .. } = c;
    if program.templates.len().max(n) <= KEEP && words <= 64 * KEEP as u64 {
        KEPT.set(Some(Box::new(Kept { template, infos, stored, home, stamp, entries })));
    }
    report.finish().map(|()| (in_place, decoded.all()))
}

impl Checker<'_> {
    fn args(&mut self) {
        let names = self.program.args.iter().map(|a| a.name.as_str());
        if let Some((i, j)) = equal_names(names) {
            let what = format!("has the name `{}` of argument {i}", self.program.args[j].name);
            self.report.push(Where::Arg(j as u32), what);
        }
        let (total, most) =
            (self.program.args.iter().fold(0u64, |n, a| n.saturating_add(a.bytes)), self.limits.bytes);
        if total > most {
            self.report.push(
                Where::Program,
                format!("arguments of {total} bytes together exceed the limit of {most}"),
            );
        }
        for (i, a) in self.program.args.iter().enumerate() {
            let at = Where::Arg(i as u32);
            let size = u64::from(a.dtype.size());
            if i128::from(a.bytes) > MAX_SPAN || a.bytes > self.limits.arg_bytes {
                self.report
                    .push(at, format!("{} bytes exceed the limit of {}", a.bytes, self.limits.arg_bytes));
            }
            if !a.bytes.is_multiple_of(size) {
                self.report
                    .push(at, format!("{} bytes are no whole number of {} elements", a.bytes, a.dtype));
            }
            if !a.align.is_power_of_two() || u64::from(a.align) < size || a.align > 1 << 20 {
                let what = format!(
                    "alignment {} is not a power of two of at least {size} and at most 2^20",
                    a.align
                );
                self.report.push(at, what);
            }
            if a.zero && matches!(a.role, Role::Input | Role::Weight | Role::Ring) {
                self.report.push(at, "is only read or of a group, so it cannot be cleared");
            }
            if let Layout::Panels { nr, k, n, batch } = a.layout {
                let panels = (u128::from(n).div_ceil(u128::from(nr.max(1)))).checked_mul(u128::from(batch));
                let rows = panels.and_then(|p| p.checked_mul(u128::from(k)));
                let bytes = rows.and_then(|r| r.checked_mul(u128::from(nr) * u128::from(size)));
                if bytes != Some(u128::from(a.bytes)) || nr != self.program.target.nr(a.dtype.size()) {
                    let what = format!(
                        "{batch} matrices of {k} x {n} in panels of {nr} are not {} bytes of the target's panels",
                        a.bytes
                    );
                    self.report.push(at, what);
                }
                if matches!(a.role, Role::Output | Role::Workspace | Role::Ring) {
                    self.report.push(at, "panels are read only, so no output or workspace has them");
                }
            }
        }
    }

    fn aliases(&mut self) {
        let args = &self.program.args;
        let mut taken = vec![false; if self.program.aliases.is_empty() { 0 } else { args.len() }];
        for (i, &(input, output)) in self.program.aliases.iter().enumerate() {
            let at = Where::Alias(i as u32);
            let (Some(a), Some(b)) = (args.get(input as usize), args.get(output as usize)) else {
                self.report.push(at, format!("arguments {input} and {output} of {}", args.len()));
                continue;
            };
            if a.role != Role::Input || b.role != Role::Output {
                self.report.push(at, "is not of an input and an output");
            }
            if a.bytes != b.bytes || a.dtype.size() != b.dtype.size() || b.zero {
                let (a, b) = (&a.name, &b.name);
                self.report
                    .push(at, format!("`{a}` and `{b}` differ in size or element, or the output is cleared"));
            }
            // Both are looked at, so that both are taken.
            let again = [input, output].map(|x| std::mem::replace(&mut taken[x as usize], true));
            if again.contains(&true) {
                self.report.push(at, "one of the arguments is in another alias");
            } else {
                self.home[input as usize] = output;
                self.aliased = true;
                self.overwritten.resize_with(args.len(), Intervals::default);
            }
        }
    }

    fn templates(&mut self) {
        for (i, t) in self.program.templates.iter().enumerate() {
            let rings = self.rings.get(i).map(Vec::as_slice).unwrap_or_default();
            let target = &self.program.target;
            let info = &mut self.infos[i];
            let scratch = (&mut *self.template, &mut self.decoded);
            check_template(target, i as u32, t, rings, scratch, info, &mut self.report);
            // What a tile stores to a ring it loads again.
            self.in_place.push(info.in_place || !rings.is_empty());
        }
        if let Some((i, j)) = equal_names(self.program.templates.iter().map(|t| t.name.as_str())) {
            let what = format!("has the name `{}` of t{i}", self.program.templates[j].name);
            self.report.push(Where::Template(j as u32), what);
        }
    }

    fn ring(&self, template: u32, slot: usize) -> bool {
        self.rings.get(template as usize).and_then(|r| r.get(slot)) == Some(&true)
    }

    fn step(&mut self, index: u32, step: &Step) {
        let mut tiles = 0u64;
        let mut sound = true;
        for (i, unit) in step.units.iter().enumerate() {
            let at = Where::Unit(index, i as u32);
            let Some(info) = self.infos.get(unit.template as usize) else {
                self.report.push(at, format!("template {} of {}", unit.template, self.infos.len()));
                sound = false;
                continue;
            };
            tiles = tiles.saturating_add(info.tiles);
            let work = [info.instructions.max(1), info.elements].map(|n| info.tiles.saturating_mul(n));
            self.instructions = self.instructions.saturating_add(work[0]);
            self.elements = self.elements.saturating_add(work[1]);
            sound &= self.unit(at, index, unit);
        }
        if tiles > self.limits.tiles {
            let most = self.limits.tiles;
            self.report.push(Where::Step(index), format!("{tiles} tiles exceed the limit of {most}"));
        }
        let mut free = 0;
        for l in &step.limits {
            let end = l.first.saturating_add(l.units);
            if l.first < free || l.units == 0 || l.cores == 0 || end as usize > step.units.len() {
                let (first, units, cores, all) = (l.first, l.units, l.cores, step.units.len());
                let what = format!(
                    "a limit of {cores} cores for {units} units from {first} on: of {all} units, {first} must be at least \
                     {free} and neither number 0"
                );
                self.report.push(Where::Step(index), what);
            }
            free = free.max(end);
        }
        // Without sound bindings nothing more can be said.
        if sound {
            self.races(index, step);
            for (i, unit) in step.units.iter().enumerate() {
                self.order(index, i as u32, unit);
            }
            self.overwrite(step);
        }
    }

    /// Bindings and bounds of a unit. Marks the arguments it stores to.
    fn unit(&mut self, at: Where, step: u32, unit: &Unit) -> bool {
        let template = &self.program.templates[unit.template as usize];
        let info = &self.infos[unit.template as usize];
        if unit.slots.len() != template.slots.len() {
            let (n, m) = (unit.slots.len(), template.slots.len());
            self.report.push(at, format!("binds {n} slots, t{} has {m}", unit.template));
            return false;
        }
        let mut sound = true;
        for (i, ((slot, used), &(arg, offset))) in
            template.slots.iter().zip(&info.slots).zip(&unit.slots).enumerate()
        {
            let ring = self.ring(unit.template, i);
            let mut bad = |what: String| {
                self.report.push(at, format!("slot ${i} `{}`: {what}", slot.name));
                sound = false;
            };
            let Some(a) = self.program.args.get(arg as usize) else {
                bad(format!("argument {arg} of {}", self.program.args.len()));
                continue;
            };
            if offset > a.bytes || i128::from(offset) > MAX_SPAN {
                bad(format!("offset {offset} is beyond `{}` of {} bytes", a.name, a.bytes));
                continue;
            }
            let size = slot.dtype.size();
            if !offset.is_multiple_of(u64::from(size)) {
                bad(format!("offset {offset} is not a multiple of the element's {size} bytes"));
            }
            if matches!(a.role, Role::Workspace | Role::Ring) {
                if a.align < size {
                    bad(format!(
                        "workspace `{}` is aligned to {} bytes, {} needs {size}",
                        a.name, a.align, slot.dtype
                    ));
                }
            } else if a.dtype != slot.dtype {
                bad(format!("holds {}, but `{}` holds {}", slot.dtype, a.name, a.dtype));
            }
            if (a.role == Role::Ring) != ring {
                bad(format!("`{}` is no ring, but another unit binds one here", a.name));
            }
            if slot.write && matches!(a.role, Role::Input | Role::Weight) {
                bad(format!("is stored to, but `{}` is read only", a.name));
            }
            if !(used.reads || used.writes) {
                continue;
            }
            let (lo, hi) = (offset as i128 + i128::from(used.lo), offset as i128 + i128::from(used.hi));
            if lo < 0 || hi > i128::from(a.bytes) {
                bad(format!("touches bytes {lo}..{hi} of `{}`, which has {}", a.name, a.bytes));
            }
            match a.layout {
                Layout::Plain if used.panels => bad(format!("is bound as panels, but `{}` is plain", a.name)),
                Layout::Panels { .. } if used.plain => bad(format!("`{}` is in panels: bind_b only", a.name)),
                Layout::Panels { nr, k, .. } if used.panel_stride != 0 => {
                    let stride = u128::from(k) * u128::from(nr) * u128::from(size);
                    if used.panel_stride as u128 != stride {
                        let found = used.panel_stride;
                        bad(format!(
                            "panel stride {found}, but panels of `{}` are {stride} bytes apart",
                            a.name
                        ));
                    }
                }
                _ => {}
            }
            if used.writes {
                self.stamp[self.home[arg as usize] as usize] = step + 1;
            }
        }
        sound
    }

    /// No two units, and no two tiles of a unit, touch bytes that one of them stores.
    fn races(&mut self, index: u32, step: &Step) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        for (u, unit) in step.units.iter().enumerate() {
            for (s, (used, &(arg, offset))) in
                self.infos[unit.template as usize].slots.iter().zip(&unit.slots).enumerate()
            {
                let home = self.home[arg as usize];
                // Each group of cores has its own copy of a ring, and finishes a unit before it starts the next.
                let ring = self.program.args[arg as usize].role == Role::Ring;
                if (used.reads || used.writes) && self.stamp[home as usize] == index + 1 && !ring {
                    let (lo, hi) = (offset as i64 + used.lo, offset as i64 + used.hi);
                    entries.push(Entry { home, lo, hi, unit: u as u32, slot: s as u16, writes: used.writes });
                }
            }
        }
        entries.sort_unstable_by_key(|e| (e.home, e.lo));
        for (i, a) in entries.iter().enumerate() {
            for b in entries[i + 1..].iter().take_while(|b| b.home == a.home && b.lo < a.hi) {
                if !self.spend(1) {
                    break;
                }
                if a.writes || b.writes {
                    let pair = (&step.units[a.unit as usize], &step.units[b.unit as usize]);
                    self.pair(index, pair.0, a, pair.1, b);
                }
            }
        }
        self.entries = entries;
    }

    /// Takes from the work that is left; says once when there is none.
    fn spend(&mut self, n: usize) -> bool {
        let n = n as u64;
        if self.work == 0 {
            return false;
        }
        if self.work <= n {
            self.work = 0;
            self.report
                .push(Where::Program, "too many accesses to the same arguments: the comparison is given up");
            return false;
        }
        self.work -= n;
        true
    }

    /// Compares the accesses of two slots whose hulls meet.
    fn pair(&mut self, step: u32, ua: &Unit, a: &Entry, ub: &Unit, b: &Entry) {
        let same_unit = a.unit == b.unit;
        let (args, place) =
            ((ua.slots[usize::from(a.slot)], ub.slots[usize::from(b.slot)]), |f, base: u64| Placed {
                f,
                base: base as i64,
            });
        let aliased = args.0.0 != args.1.0;
        let sizes = [ua, ub].map(|u| self.infos[u.template as usize].uses.len());
        if !self.spend(sizes[0].saturating_mul(sizes[1])) {
            return;
        }
        let (ia, ib) = (&self.infos[ua.template as usize], &self.infos[ub.template as usize]);
        for x in ia.uses.iter().filter(|x| x.slot == a.slot) {
            for y in ib.uses.iter().filter(|y| y.slot == b.slot && (x.write || y.write)) {
                let (px, py) = (place(&x.footprint, args.0.1), place(&y.footprint, args.1.1));
                if disjoint(px, py) {
                    continue;
                }
                let ok = same_unit && same_tile(px, py) && (!aliased || in_order(x, px, y, py));
                if ok && let Some((load, store)) = unstuck(x, y) {
                    self.report.push(
                        Where::Run(step, b.unit, load),
                        format!(
                            "sticky, but {store} stores what it loads, through {}",
                            if aliased { "an alias" } else { "another slot" }
                        ),
                    );
                }
                if ok {
                    if x.write != y.write {
                        self.in_place[ua.template as usize] = true;
                    }
                    continue;
                }
                let name = &self.program.args[args.1.0 as usize].name;
                let other = match (same_unit, aliased) {
                    (false, _) => format!("of unit {}", a.unit),
                    (true, false) => "of another tile".to_owned(),
                    (true, true) => "through an alias, and overwrite what is still to be loaded".to_owned(),
                };
                self.report.push(
                    Where::Run(step, b.unit, y.at),
                    format!("may meet {} {other} at bytes {}..{} of `{name}`", x.at, py.lo(), py.hi()),
                );
                return;
            }
        }
    }

    /// Loads of what the program itself stores come after the stores.
    fn order(&mut self, step: u32, number: u32, unit: &Unit) {
        // A tile loads from a ring what it has stored there itself.
        if self.rings.get(unit.template as usize).is_some_and(|r| !r.is_empty()) {
            for &(arg, _) in unit.slots.iter() {
                if self.program.args[arg as usize].role == Role::Ring {
                    self.stored[arg as usize].0.clear();
                }
            }
        }
        if !self.spend(self.infos[unit.template as usize].uses.len()) {
            return;
        }
        for u in &self.infos[unit.template as usize].uses {
            let at = Where::Run(step, number, u.at);
            let (arg, offset) = unit.slots[usize::from(u.slot)];
            let a = &self.program.args[arg as usize];
            let (lo, hi) = ((offset as i64 + u.footprint.lo) as u64, (offset as i64 + u.footprint.hi) as u64);
            let home = self.home[arg as usize] as usize;
            let (hulls, dense) = &mut self.stored[home];
            if u.write {
                if !u.footprint.sparse {
                    hulls.add(lo, hi);
                }
                if u.footprint.dense() && a.role == Role::Output {
                    dense.add(lo, hi);
                }
            } else if matches!(a.role, Role::Output | Role::Workspace | Role::Ring) {
                if !a.zero && !hulls.covers(lo, hi) {
                    let what = format!("loads bytes {lo}..{hi} of `{}` before they are stored", a.name);
                    self.report.push(at, what);
                }
            } else if home != arg as usize && self.overwritten[home].meets(lo, hi) {
                let what = format!("loads bytes {lo}..{hi} of `{}` after its alias is stored to", a.name);
                self.report.push(at, what);
            }
        }
    }

    /// After a step: what an aliased output has taken from its input.
    fn overwrite(&mut self, step: &Step) {
        if !self.aliased {
            return;
        }
        for unit in &step.units {
            for u in self.infos[unit.template as usize].uses.iter().filter(|u| u.write) {
                let (arg, offset) = unit.slots[usize::from(u.slot)];
                let at = |x: i64| (offset as i64 + x) as u64;
                self.overwritten[arg as usize].add(at(u.footprint.lo), at(u.footprint.hi));
            }
        }
    }

    /// Outputs are cleared at launch, or all of their bytes are stored, or they keep what an input has left there.
    fn outputs(&mut self) {
        let kept = |i: usize| self.program.aliases.iter().any(|&(_, output)| output as usize == i);
        for (i, a) in self.program.args.iter().enumerate() {
            if a.role != Role::Output || a.zero || kept(i) || self.stored[i].1.covers(0, a.bytes) {
                continue;
            }
            let covered = self.covered(i as u32);
            if covered != Some(a.bytes) {
                let found = covered.map_or("an unknown number".to_owned(), |n| n.to_string());
                let what = format!(
                    "`{}`: {found} of {} bytes are proved stored, and it is not cleared",
                    a.name, a.bytes
                );
                self.report.push(Where::Arg(i as u32), what);
            }
        }
    }

    /// Bytes of an argument that disjoint stores cover, each counted once.
    fn covered(&mut self, arg: u32) -> Option<u64> {
        let program = self.program;
        let mut stores: Vec<(u32, usize, i64)> = Vec::new();
        for unit in program.steps.iter().flat_map(|s| &s.units) {
            let uses = self.infos.get(unit.template as usize)?.uses.len();
            if !self.spend(1 + uses) {
                return None;
            }
            for (i, u) in self.infos[unit.template as usize].uses.iter().enumerate() {
                match unit.slots.get(usize::from(u.slot)) {
                    Some(&(a, base)) if a == arg && u.write && u.footprint.injective => {
                        stores.push((
                            unit.template,
                            i,
                            i64::try_from(base).ok().filter(|&b| i128::from(b) <= MAX_SPAN)?,
                        ));
                    }
                    _ => {}
                }
            }
        }
        let pairs = stores.len().saturating_mul(stores.len().min(4096));
        if !self.spend(pairs) {
            return None;
        }
        let place =
            |&(t, i, base): &(u32, usize, i64)| Placed { f: &self.infos[t as usize].uses[i].footprint, base };
        stores.sort_by_key(|s| place(s).lo());
        let (mut open, mut bytes): (Vec<Placed<'_>>, u64) = (Vec::new(), 0);
        for p in stores.iter().map(place) {
            open.retain(|o| o.hi() > p.lo());
            if open.len() == 4096 {
                return None;
            }
            if open.iter().all(|&o| disjoint(o, p)) {
                bytes = bytes.saturating_add(p.f.bytes);
                open.push(p);
            }
        }
        Some(bytes)
    }
}

/// Which slots of each template some unit binds to a ring; empty where there are no rings.
fn rings(program: &Program) -> Vec<Vec<bool>> {
    let is_ring = |arg: u32| program.args.get(arg as usize).is_some_and(|a| a.role == Role::Ring);
    if !program.args.iter().any(|a| a.role == Role::Ring) {
        return Vec::new();
    }
    let mut rings: Vec<Vec<bool>> = vec![Vec::new(); program.templates.len()];
    for unit in program.steps.iter().flat_map(|s| &s.units) {
        let Some(t) = program.templates.get(unit.template as usize) else { continue };
        for (i, _) in unit.slots.iter().enumerate().take(t.slots.len()).filter(|(_, s)| is_ring(s.0)) {
            let of = &mut rings[unit.template as usize];
            of.resize(t.slots.len(), false);
            of[i] = true;
        }
    }
    rings
}

/// Size of a program in code words and units.
fn work(program: &Program) -> u64 {
    let sections = program.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections);
    let words: usize = sections.map(|s| s.code.words().len()).sum();
    let units: usize = program.steps.iter().map(|s| s.units.len()).sum();
    (words + units) as u64
}

/// Two places of one name, if there are. Sorts hashes, because sorting the names takes longer than all other checks.
fn equal_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<(usize, usize)> {
    let hash = |s: &str| {
        s.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    };
    let n = names.clone().count();
    if n <= 8 {
        let of = |j: usize, b: &str| names.clone().take(j).position(|a| a == b).map(|i| (i, j));
        return names.clone().enumerate().find_map(|(j, b)| of(j, b));
    }
    let mut hashes: Vec<u64> = names.clone().map(hash).collect();
    hashes.sort_unstable();
    if hashes.windows(2).all(|w| w[0] != w[1]) {
        return None;
    }
    let mut sorted: Vec<(&str, usize)> = names.enumerate().map(|(i, n)| (n, i)).collect();
    sorted.sort_unstable();
    sorted.windows(2).find(|w| w[0].0 == w[1].0).map(|w| (w[0].1, w[1].1))
}

/// Whether a tile of one unit has loaded everything of an aliased input before it stores over it.
fn in_order(x: &MemUse, px: Placed<'_>, y: &MemUse, py: Placed<'_>) -> bool {
    let ((load, pl), (store, ps)) = if x.write { ((y, py), (x, px)) } else { ((x, px), (y, py)) };
    if load.write || load.at.phase < store.at.phase {
        return true;
    }
    load.at.phase == store.at.phase
        && load.at.number < store.at.number
        && equal(pl, ps)
        && in_step(pl.f, ps.f)
        && pl.f.injective
        && !pl.f.again
}

const _: () =
    assert!(MAX_PARALLEL + crate::MAX_SEQ < 15, "an extent takes four bits, one value of which is none");
