//! A template decoded for timing: sections by core, the work of each instruction at every combination of ragged counts.

use dvm_bc::{CoreKind, ExtentId, Inst, InstAt, Opcode, Operands, Pipe, Place, Program, Strides, Sync};
use smallvec::SmallVec;

use super::TimingError;
use super::cost::{Pricer, Work, mem};

/// Most ragged extents of one instruction; one that has more is timed at full counts of the others.
const MAX_RAGGED: usize = 5;

/// Tiles that repeat after more than these are taken to repeat never.
const LONGEST_PERIOD: u64 = 64;

/// An instruction.
pub(super) struct Line {
    pub(super) at: InstAt,
    pub(super) op: Opcode,
    pub(super) pipe: Option<Pipe>,
    pub(super) sync: Sync,
    /// The flag of `xset` and `xwait`.
    pub(super) flag: Option<u8>,
    /// Extents that shorten a count at their last index; bit i of a variant is the i-th of them.
    ragged: SmallVec<[ExtentId; 4]>,
    works: Vec<Work>,
    pub(super) slot: u16,
    pub(super) offset: i64,
    pub(super) strides: Strides,
    /// It may be skipped while the extents of `strides` stand still.
    pub(super) sticky: bool,
}

impl Line {
    /// Which work it is where `is_last` says which extents stand at their last index.
    pub(super) fn variant(&self, is_last: impl Fn(ExtentId) -> bool) -> u8 {
        self.ragged.iter().enumerate().fold(0, |v, (i, &e)| v | u8::from(is_last(e)) << i)
    }
    pub(super) fn work(&self, variant: u8) -> &Work {
        &self.works[usize::from(variant)]
    }
    /// `sum(index * stride)`.
    pub(super) fn affine(&self, index: &[u32]) -> i64 {
        self.strides.iter().fold(self.offset, |sum, &(e, stride)| {
            let i = index.get(usize::from(e)).copied().unwrap_or(0);
            sum.wrapping_add(i64::from(i).wrapping_mul(stride))
        })
    }
}

/// Instructions at one place.
pub(super) struct Section {
    /// Executions by one tile.
    pub(super) times: u64,
    /// Indices of all instructions, of a cube core's and of a vector core's.
    lists: [Vec<u32>; 3],
}

impl Section {
    /// The instructions of a core; `None`: of one that has all pipes.
    pub(super) fn list(&self, kind: Option<CoreKind>) -> &[u32] {
        match kind {
            None => &self.lists[0],
            Some(CoreKind::Cube) => &self.lists[1],
            Some(CoreKind::Vector) => &self.lists[2],
        }
    }
}

/// A phase: its walk, and its sections by place.
pub(super) struct Phase {
    pub(super) seq: Vec<u32>,
    pub(super) rotate: bool,
    places: Vec<(Place, usize)>,
}

impl Phase {
    pub(super) fn section(&self, place: Place) -> Option<usize> {
        self.places.iter().find(|p| p.0 == place).map(|p| p.1)
    }
}

/// A template.
pub(super) struct Code {
    pub(super) parallel: Vec<u32>,
    pub(super) phases: Vec<Phase>,
    pub(super) sections: Vec<Section>,
    pub(super) lines: Vec<Line>,
    /// Flags between cores that are free when a run begins.
    pub(super) free: Vec<u8>,
}

impl Code {
    pub(super) fn new(program: &Program, index: usize, pricer: &Pricer<'_>) -> Result<Code, TimingError> {
        let t = &program.templates[index];
        let mut code = Code {
            parallel: t.parallel.clone(),
            phases: Vec::new(),
            sections: Vec::new(),
            lines: Vec::new(),
            free: Vec::new(),
        };
        let mut seen: SmallVec<[u8; 8]> = SmallVec::new();
        for (p, phase) in t.phases.iter().enumerate() {
            let mut places = Vec::new();
            for s in &phase.sections {
                let depth = match s.place {
                    Place::Init(d) | Place::Finish(d) => usize::from(d),
                    Place::Body => phase.seq.len(),
                };
                let walk = phase.seq.get(..depth).unwrap_or(&phase.seq);
                // Deeper sections do not run where a loop is empty.
                let empty = depth > 0 && phase.seq.contains(&0);
                let times = walk.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
                let times =
                    if empty || (s.place == Place::Body && phase.seq.contains(&0)) { 0 } else { times };
                let mut lists = [Vec::new(), Vec::new(), Vec::new()];
                for (i, inst) in s.code.iter().enumerate() {
                    let inst = inst
                        .map_err(|e| TimingError::Code { template: t.name.clone(), what: e.to_string() })?;
                    let number = code.lines.len() as u32;
                    let at = InstAt {
                        template: index as u32,
                        phase: p as u32,
                        place: s.place,
                        index: i as u32,
                        number,
                        mnemonic: inst.op.mnemonic(),
                    };
                    if inst.op == Opcode::End {
                        continue;
                    }
                    if let Operands::Cross(o) = &inst.operands
                        && !seen.contains(&o.flag)
                    {
                        seen.push(o.flag);
                        if inst.op == Opcode::XWait {
                            code.free.push(o.flag);
                        }
                    }
                    lists[0].push(number);
                    match inst.pipe().map(Pipe::core) {
                        None => lists[1..].iter_mut().for_each(|l| l.push(number)),
                        Some(CoreKind::Cube) => lists[1].push(number),
                        Some(CoreKind::Vector) => lists[2].push(number),
                    }
                    code.lines.push(line(inst, at, pricer));
                }
                places.push((s.place, code.sections.len()));
                code.sections.push(Section { times, lists });
            }
            code.phases.push(Phase { seq: phase.seq.clone(), rotate: phase.rotate, places });
        }
        Ok(code)
    }

    /// Parallel tiles.
    pub(super) fn tiles(&self) -> u64 {
        self.parallel.iter().fold(1, |n, &e| n.saturating_mul(u64::from(e)))
    }
    /// Tiles after which those with ragged counts come again, if they do so soon.
    pub(super) fn period(&self) -> u64 {
        let mut period = 1u64;
        for &n in self.parallel.iter().skip(1).rev() {
            match period.saturating_mul(u64::from(n.max(1))) {
                longer if longer <= LONGEST_PERIOD => period = longer,
                _ => break,
            }
        }
        let rotated = self.phases.iter().filter(|p| p.rotate).filter_map(|p| p.seq.last().copied());
        let turn = rotated.map(u64::from).max().unwrap_or(1).max(1);
        if turn <= LONGEST_PERIOD { period.saturating_mul(turn) } else { period }
    }
    /// Bytes that one tile moves to and from arguments, at full counts.
    pub(super) fn bytes(&self) -> u64 {
        let of = |n: &u32| match self.lines[*n as usize].work(0) {
            Work::Dma(t) => t.bytes,
            Work::Pipe(_) => 0,
        };
        let sections = self.sections.iter();
        sections.fold(0u64, |sum, s| {
            let once = s.lists[0].iter().map(of).fold(0u64, u64::saturating_add);
            sum.saturating_add(once.saturating_mul(s.times))
        })
    }
    /// Executions of instructions by one tile.
    pub(super) fn executions(&self) -> u64 {
        self.sections
            .iter()
            .fold(0u64, |n, s| n.saturating_add(s.times.saturating_mul(s.lists[0].len() as u64)))
    }
}

fn line(inst: Inst, at: InstAt, pricer: &Pricer<'_>) -> Line {
    let mut ragged: SmallVec<[ExtentId; 4]> = SmallVec::new();
    let mut note = |s: dvm_bc::Size| {
        if let Some(e) = s.extent
            && !ragged.contains(&e)
            && ragged.len() < MAX_RAGGED
        {
            ragged.push(e);
        }
    };
    inst.visit(|_, _, operand| match operand {
        dvm_bc::Operand::Size(s) => note(s),
        dvm_bc::Operand::Loops(l) => l.iter().for_each(|l| note(l.count)),
        _ => {}
    });
    let works = (0..1u8 << ragged.len())
        .map(|v| {
            let last = |e: ExtentId| ragged.iter().position(|&r| r == e).is_some_and(|i| v >> i & 1 == 1);
            pricer.work(&inst, &|s| u64::from(s.at(last)))
        })
        .collect();
    let sticky = match &inst.operands {
        Operands::Load(o) => o.hints.sticky,
        Operands::ViewLoad(o) => o.hints.sticky,
        Operands::LoadA(o) => o.hints.sticky,
        Operands::LoadB(o) => o.hints.sticky,
        _ => false,
    };
    let flag = match &inst.operands {
        Operands::Cross(o) => Some(o.flag % dvm_bc::CROSS_FLAGS),
        _ => None,
    };
    let (slot, offset, strides) =
        mem(&inst).map_or_else(|| (0, 0, Strides::new()), |m| (m.slot, m.offset, m.strides.clone()));
    Line {
        at,
        op: inst.op,
        pipe: inst.pipe(),
        sync: inst.sync,
        flag,
        ragged,
        works,
        slot,
        offset,
        strides,
        sticky,
    }
}
