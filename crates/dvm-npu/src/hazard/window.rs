//! A bounded piece of what a core (or a group of a cube core and its vector cores) executes: three tiles of each core and two
//! points of each sequential extent, in program order, with the flags that each execution waits for and sets.
//!
//! The window is enough because what one pipe knows of another only grows: a later execution of an instruction is ordered after
//! everything an earlier one was ordered after. So among all executions of a conflicting pair the nearest are the least
//! ordered, and those are an iteration or a tile apart; for a ring, as many tiles as it has copies. Nothing in between leaves the
//! window, because every edge points forward in program order.

use dvm_bc::{Kind, Opcode, Phase, Pipe, Place, Program, Template};

use super::access::{Pair, Relation, Static};

/// Tiles of each core.
const TILES: u64 = 3;
/// Points of each sequential extent.
const POINTS: u32 = 2;
/// Vector cores of a group that can be told apart.
pub(super) const MAX_VECTOR_CORES: u32 = 16;
/// Most executions of a window; a template that needs more is given up.
const MAX_NODES: usize = 1 << 18;

/// No flag, or no lane.
pub(super) const NONE: u16 = u16::MAX;

/// The pipes of a core or a group, numbered.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// A cube core with vector cores, rather than one core with all pipes.
    pub(super) group: bool,
    vector_cores: u32,
    /// Copies of a ring.
    slots: u32,
}

impl Shape {
    pub(super) fn new(program: &Program, template: &Template) -> Shape {
        let t = &program.target;
        let group = t.cube_cores > 0 && template.kind != Kind::Vector;
        let vector_cores = if group { (t.cores / t.cube_cores).max(1) } else { 1 };
        Shape { group, vector_cores, slots: vector_cores.max(2) }
    }
    pub(super) fn vector_cores(&self) -> u32 {
        self.vector_cores
    }
    /// How many queues there are.
    pub(super) fn lanes(&self) -> usize {
        if self.group { 3 + 3 * self.vector_cores as usize } else { Pipe::ALL.len() }
    }
    fn vector_core(&self, tile: u32) -> u32 {
        tile % self.vector_cores
    }
    /// The core of a pipe: 0, or from 1 on for the vector cores of a group.
    fn core(&self, pipe: Pipe, tile: u32) -> usize {
        match pipe.core() {
            dvm_bc::CoreKind::Vector if self.group => 1 + self.vector_core(tile) as usize,
            _ => 0,
        }
    }
    fn lane(&self, pipe: Pipe, tile: u32) -> u16 {
        let p = pipe as usize;
        let lane = match self.core(pipe, tile) {
            _ if !self.group => p,
            0 => p - 3,
            v => 3 * v + p,
        };
        lane as u16
    }
    /// The pipe of a queue.
    pub(super) fn pipe(&self, lane: u16) -> Pipe {
        let lane = usize::from(lane);
        Pipe::ALL[match lane {
            _ if !self.group => lane,
            0..3 => lane + 3,
            _ => lane % 3,
        }]
    }
    /// The queues that a barrier of this tile drains, core by core.
    pub(super) fn cores_of(&self, tile: u32) -> [std::ops::Range<usize>; 2] {
        if self.group {
            let v = 3 + 3 * self.vector_core(tile) as usize;
            [0..3, v..v + 3]
        } else {
            [0..Pipe::ALL.len(), 0..0]
        }
    }
    /// Of the tile: its number on its core, and how many of `tiles` that core has.
    fn turn(&self, pipe: Pipe, tile: u32, tiles: u32) -> (u32, u32) {
        if self.core(pipe, tile) == 0 {
            return (tile, tiles);
        }
        let v = self.vector_core(tile);
        (tile / self.vector_cores, tiles.saturating_sub(v).div_ceil(self.vector_cores))
    }
}

/// An execution of an instruction.
pub(super) struct Node {
    pub(super) inst: u32,
    /// Its queue; [`NONE`] for `barrier` and `end`.
    pub(super) lane: u16,
    pub(super) tile: u32,
    /// Names the point of the walk within the tile and phase.
    point: u32,
    /// Flags: forward, backward (or [`NONE`] where there is none or it is ignored here).
    pub(super) waits: [u16; 2],
    pub(super) sets: [u16; 2],
    /// The flag of an `xset` or `xwait`.
    pub(super) cross: u16,
    /// Number in its queue.
    pub(super) position: u32,
    /// Number of the execution of its section in the window, to tell executions apart.
    pub(super) turn: u32,
}

/// An earlier execution that must have finished before one starts.
#[derive(Clone, Copy)]
pub(super) struct Need {
    pub(super) lane: u16,
    /// Number in the lane, plus one.
    pub(super) position: u32,
    /// The earlier node.
    pub(super) node: u32,
    /// Index of the conflicting pair.
    pub(super) pair: u32,
}

/// Executions in program order, and what each needs.
pub(super) struct Window {
    pub(super) shape: Shape,
    pub(super) nodes: Vec<Node>,
    pub(super) needs: Vec<Need>,
    /// Where each node's needs end.
    pub(super) ends: Vec<u32>,
    /// Flags in use.
    pub(super) flags: usize,
    /// Flags that are set when the run begins.
    pub(super) free: Vec<u16>,
}

struct Build<'a> {
    shape: Shape,
    list: &'a [Static],
    /// Instructions of each section.
    sections: Vec<std::ops::Range<usize>>,
    /// Executions of each section in a tile.
    times: Vec<u32>,
    /// Executions so far, this tile.
    done: Vec<u32>,
    nodes: Vec<Node>,
    positions: Vec<u32>,
    /// Number of each flag, by what names it.
    numbers: Vec<u16>,
    flags: u16,
    tile: u32,
    tiles: u32,
}

/// The window of a template; `None` where it is too large.
pub(super) fn window(program: &Program, index: u32, list: &[Static], pairs: &[Pair]) -> Option<Window> {
    let template = program.templates.get(index as usize)?;
    let shape = Shape::new(program, template);
    let total = template.parallel.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
    let tiles = total.min(TILES * u64::from(if shape.group { shape.slots } else { 1 })) as u32;
    let count: usize = template.phases.iter().map(|p| p.sections.len()).sum();
    let mut sections = Vec::with_capacity(count);
    let mut start = 0;
    for s in 0..count as u32 {
        let end = start + list[start..].iter().take_while(|i| i.section == s).count();
        sections.push(start..end);
        start = end;
    }
    let mut times = Vec::with_capacity(count);
    for p in &template.phases {
        for s in &p.sections {
            times.push(match s.place {
                Place::Init(d) | Place::Finish(d) => points(p, usize::from(d)),
                Place::Body => points(p, p.seq.len()),
            });
        }
    }
    let keys = EVENT_KEYS * (1 + shape.vector_cores as usize) + CROSS_KEYS * shape.slots as usize;
    let mut b = Build {
        shape,
        list,
        sections,
        times,
        done: vec![0; count],
        nodes: Vec::new(),
        positions: vec![0; shape.lanes()],
        numbers: vec![NONE; keys],
        flags: 0,
        tile: 0,
        tiles,
    };
    for tile in 0..tiles {
        b.tile = tile;
        b.done.fill(0);
        let mut first = 0;
        for p in &template.phases {
            b.phase(p, first)?;
            first += p.sections.len();
        }
    }
    let free = b.free();
    let (nodes, flags) = (b.nodes, usize::from(b.flags));
    let (needs, ends) = needs(&shape, list, &nodes, pairs);
    Some(Window { shape, nodes, needs, ends, flags, free })
}

/// Executions a tile of what wraps `depth` loops, in the window.
fn points(phase: &Phase, depth: usize) -> u32 {
    phase.seq.iter().take(depth).map(|&e| e.min(POINTS)).product()
}

/// Names of flags of one core: ordered pipe pairs and numbers.
const EVENT_KEYS: usize = 6 * 6 * dvm_bc::MAX_EVENTS as usize;
const CROSS_KEYS: usize = dvm_bc::CROSS_FLAGS as usize;

impl Build<'_> {
    fn phase(&mut self, phase: &Phase, first: usize) -> Option<()> {
        let find = |place| phase.sections.iter().position(|s| s.place == place).map(|i| first + i);
        self.walk(phase, &find, 0, 1)
    }

    fn walk(
        &mut self,
        phase: &Phase,
        find: &dyn Fn(Place) -> Option<usize>,
        depth: usize,
        point: u32,
    ) -> Option<()> {
        let loops = phase.seq.len();
        let wraps = depth < loops.max(1);
        if wraps {
            self.section(find(Place::Init(depth as u8)), point)?;
        }
        if depth == loops {
            self.section(find(Place::Body), point)?;
        } else {
            for i in 0..phase.seq[depth].min(POINTS) {
                self.walk(phase, find, depth + 1, point * POINTS + i)?;
            }
        }
        if wraps {
            self.section(find(Place::Finish(depth as u8)), point)?;
        }
        Some(())
    }

    fn section(&mut self, section: Option<usize>, point: u32) -> Option<()> {
        let Some(s) = section else { return Some(()) };
        let turn = self.done[s];
        self.done[s] += 1;
        for i in self.sections[s].clone() {
            self.inst(i, turn, self.times[s], point);
        }
        (self.nodes.len() <= MAX_NODES).then_some(())
    }

    fn inst(&mut self, index: usize, turn: u32, times: u32, point: u32) {
        let (s, tile, shape) = (&self.list[index], self.tile, self.shape);
        let mut node = Node {
            inst: index as u32,
            lane: NONE,
            tile,
            point,
            waits: [NONE; 2],
            sets: [NONE; 2],
            cross: NONE,
            position: 0,
            turn: tile * times + turn,
        };
        if let Some(pipe) = s.pipe {
            node.lane = shape.lane(pipe, tile);
            let position = &mut self.positions[usize::from(node.lane)];
            node.position = *position;
            *position += 1;
            let (mine, of) = shape.turn(pipe, tile, self.tiles);
            let (first, last) = (mine == 0 && turn == 0, mine + 1 == of && turn + 1 == times);
            let core = shape.core(pipe, tile);
            let [wait, set, wait_back, set_back] = s.sync.slots();
            let mut event = |e: Option<dvm_bc::Event>, sets: bool, fires: bool| match e {
                Some(e) if fires => {
                    let (p, q) = if sets { (pipe, e.peer) } else { (e.peer, pipe) };
                    let key = core * EVENT_KEYS + (p as usize * 6 + q as usize) * 8 + usize::from(e.id % 8);
                    number(&mut self.numbers, &mut self.flags, key)
                }
                _ => NONE,
            };
            node.waits = [event(wait, false, true), event(wait_back, false, !first)];
            node.sets = [event(set, true, true), event(set_back, true, !last)];
            if let Some(flag) = s.flag {
                let key = cross_key(&shape, flag, tile % shape.slots);
                node.cross = number(&mut self.numbers, &mut self.flags, key);
            }
        }
        self.nodes.push(node);
    }

    /// Flags between cores whose first use is to be waited for.
    fn free(&self) -> Vec<u16> {
        let mut seen = [false; CROSS_KEYS];
        let mut out = Vec::new();
        for s in self.list {
            let Some(flag) = s.flag else { continue };
            if std::mem::replace(&mut seen[usize::from(flag) % CROSS_KEYS], true) || s.op != Opcode::XWait {
                continue;
            }
            let keys = (0..self.shape.slots).map(|slot| self.numbers[cross_key(&self.shape, flag, slot)]);
            out.extend(keys.filter(|&k| k != NONE));
        }
        out
    }
}

fn cross_key(shape: &Shape, flag: u8, slot: u32) -> usize {
    EVENT_KEYS * (1 + shape.vector_cores as usize)
        + slot as usize * CROSS_KEYS
        + usize::from(flag) % CROSS_KEYS
}

fn number(numbers: &mut [u16], flags: &mut u16, key: usize) -> u16 {
    let n = &mut numbers[key];
    if *n == NONE {
        *n = *flags;
        *flags += 1;
    }
    *n
}

/// For each execution, the nearest earlier one of every instruction that it conflicts with.
fn needs(shape: &Shape, list: &[Static], nodes: &[Node], pairs: &[Pair]) -> (Vec<Need>, Vec<u32>) {
    // Both directions: a pair's second instruction comes before its first in the next iteration.
    let mut partners: Vec<Vec<(u32, u32)>> = vec![Vec::new(); list.len()];
    for (i, p) in pairs.iter().enumerate() {
        partners[p.second as usize].push((p.first, i as u32));
        if p.first != p.second {
            partners[p.first as usize].push((p.second, i as u32));
        }
    }
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); list.len()];
    let (mut needs, mut ends) = (Vec::new(), Vec::with_capacity(nodes.len()));
    for (n, node) in nodes.iter().enumerate() {
        for &(other, pair) in &partners[node.inst as usize] {
            let relation = pairs[pair as usize].relation;
            let meets = |m: &&u32| {
                let x = &nodes[**m as usize];
                match relation {
                    Relation::Core => true,
                    Relation::VectorCore => shape.vector_core(x.tile) == shape.vector_core(node.tile),
                    Relation::Tile => x.tile == node.tile,
                    Relation::Point => x.tile == node.tile && x.point == node.point,
                    Relation::Ring => x.tile % shape.slots == node.tile % shape.slots,
                }
            };
            if let Some(&m) = seen[other as usize].iter().rev().find(meets) {
                let x = &nodes[m as usize];
                needs.push(Need { lane: x.lane, position: x.position + 1, node: m, pair });
            }
        }
        seen[node.inst as usize].push(n as u32);
        ends.push(needs.len() as u32);
    }
    (needs, ends)
}
