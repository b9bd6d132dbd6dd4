//! Which nodes share a kernel: regions grow node by node, in topological order.
//!
//! A node joins the newest open region among its producers' that it fits, and pulls the other producers' regions in where
//! they fit too. "Fits" is decided by building the kernel. Contraction stays acyclic by full reachability: every region
//! carries the set of regions it depends on.

mod attention;

use dvm_ir::kernel::AxisSet;
use dvm_ir::{BinaryOp, Dim, DimTable, Kernel, NodeId, Op, UnaryOp, ValueDef, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bits::Bits;
use crate::emit::{Built, Cx, Fail, build};
use crate::lower::{Prim, is_source};
use crate::memory::{Found, State, locate};
use crate::plain::Plain;
use crate::{FuseError, FuseLimits, FuseOptions};

/// What a node is to fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Folded into addresses.
    View,
    /// Recomputed wherever it is needed.
    Inline,
    /// One element from one element of each operand.
    Elementwise,
    /// Elements by index.
    Gather,
    /// A reduction.
    Reduce,
    /// The index of an extreme.
    ArgReduce,
    /// A running sum.
    CumSum,
    /// A matrix product.
    MatMul,
    /// Stored in place by the producers of its operands.
    Concat,
}

/// Nodes that make one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// Sorted.
    pub(crate) members: Vec<NodeId>,
    /// Nothing may join any more.
    closed: bool,
    /// Made because a consumer needs one value in memory.
    pub(crate) forced: bool,
    /// Regions that must run before.
    pub(crate) before: Bits,
    /// What it is made of, where that is plain.
    plain: Option<Plain>,
    /// Of two products with rows between them: the first with its epilogue, and the rows. They make a kernel each where all of it
    /// does not fit local memory.
    pub(crate) parts: Option<[Vec<NodeId>; 2]>,
}

/// Regions of a graph.
pub(crate) struct Regions {
    pub(crate) all: Vec<Region>,
    pub(crate) state: State,
    /// Why a node did not join the region of an operand's stored value.
    pub(crate) cuts: FxHashMap<(NodeId, ValueId), String>,
    /// Nodes that were put into a kernel with others, in order.
    pub(crate) joined: Vec<NodeId>,
}

/// Most views between a value and memory.
const MAX_VIEWS: usize = 8;

/// Most ops of a producer that is recomputed in each consumer.
const MAX_INLINE: usize = 4;

/// Ops cheap enough to compute again rather than store.
fn is_cheap(op: &Op) -> bool {
    use UnaryOp::{Abs, Copy, IsFinite, IsInf, IsNan, Neg, Not, Sign};
    match op {
        Op::Cast { .. } | Op::Select {} | Op::Clamp {} => true,
        Op::Unary(u) => matches!(u, Copy | Abs | Neg | Sign | Not | IsFinite | IsNan | IsInf),
        Op::Binary(b) => {
            !matches!(b, BinaryOp::Pow | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem | BinaryOp::Fmod)
        }
        _ => false,
    }
}

/// Operands that must be in memory.
fn memory_operands(class: Class) -> usize {
    match class {
        Class::MatMul => 2,
        Class::Gather => 1,
        _ => 0,
    }
}

fn classify(p: &Prim) -> Vec<Class> {
    let class = |op: &Op| match op {
        op if op.is_view() => Class::View,
        op if is_source(op) => Class::Inline,
        op if op.is_elementwise() => Class::Elementwise,
        Op::Reduce { .. } => Class::Reduce,
        Op::ArgMax { .. } | Op::ArgMin { .. } => Class::ArgReduce,
        Op::CumSum { .. } => Class::CumSum,
        Op::MatMul { .. } => Class::MatMul,
        Op::Gather { .. } | Op::GatherElements { .. } => Class::Gather,
        _ => Class::Concat,
    };
    p.g.nodes.iter().map(|n| class(&n.op)).collect()
}

pub(crate) struct Grow<'a> {
    p: &'a Prim,
    t: &'a mut DimTable,
    opts: &'a FuseOptions,
    r: Regions,
    /// Per cheap node, the ops from its leaves to it.
    cost: Vec<usize>,
    /// Per view or cheap node, the most views below it that are not stored.
    depth: Vec<usize>,
}

/// Grows the regions of a graph.
pub(crate) fn grow(p: &Prim, t: &mut DimTable, opts: &FuseOptions) -> Result<Regions, FuseError> {
    let class = classify(p);
    let region = vec![None; p.g.nodes.len()];
    let cheap = class.iter().map(|&c| c == Class::Inline).collect();
    let r = Regions {
        all: vec![],
        state: State { class, cheap, region },
        cuts: FxHashMap::default(),
        joined: vec![],
    };
    let mut g = Grow { p, t, opts, r, cost: vec![0; p.g.nodes.len()], depth: vec![0; p.g.nodes.len()] };
    for i in 0..p.g.nodes.len() {
        let n = NodeId::new(i);
        match g.r.state.class[i] {
            Class::View => g.view(n)?,
            Class::Inline | Class::Concat => {}
            _ => g.add(n)?,
        }
    }
    Ok(g.r)
}

impl Grow<'_> {
    fn region_of(&self, v: ValueId) -> Option<u32> {
        match self.p.g.value(v).def {
            ValueDef::Node(n) => self.r.state.region[n.index()],
            _ => None,
        }
    }
    /// Stored values, inputs and constants that a value is computed from by views and cheap ops.
    fn leaves(&self, v: ValueId) -> SmallVec<[ValueId; 4]> {
        let (mut out, mut stack) = (SmallVec::new(), vec![v]);
        while let Some(v) = stack.pop() {
            match self.p.g.def_node(v) {
                Some(n) if !self.r.state.is_loaded(self.p, v) => stack.extend_from_slice(&n.inputs),
                _ if !out.contains(&v) => out.push(v),
                _ => {}
            }
        }
        out
    }
    /// Regions that must have run before a value can be read from memory.
    fn producers(&self, v: ValueId, out: &mut Vec<u32>) {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            let base = self.r.state.base(self.p, v);
            let leaves = match self.region_of(base) {
                Some(_) => SmallVec::from_slice(&[base]),
                None => self.leaves(base),
            };
            for leaf in leaves {
                if let Some(r) = self.region_of(leaf) {
                    if !out.contains(&r) {
                        out.push(r);
                    }
                } else if let Some(concat) = self.p.g.def_node(leaf) {
                    stack.extend_from_slice(&concat.inputs);
                }
            }
        }
    }
    /// Regions whose values a node could compute on from, and regions it reads from memory.
    fn deps(&self, n: NodeId) -> (Vec<u32>, Vec<u32>) {
        let (mut pull, mut memory) = (vec![], vec![]);
        let node = &self.p.g.nodes[n.index()];
        let in_memory = memory_operands(self.r.state.class[n.index()]);
        for (i, &v) in node.inputs.iter().enumerate() {
            if i < in_memory {
                self.producers(v, &mut memory);
                continue;
            }
            for leaf in self.leaves(v) {
                match self.region_of(leaf) {
                    Some(r) if !pull.contains(&r) => pull.push(r),
                    Some(_) => {}
                    None => self.producers(leaf, &mut memory),
                }
            }
        }
        pull.sort_unstable_by(|a, b| b.cmp(a));
        (pull, memory)
    }
    /// Values of members that others read, or that are outputs.
    fn roots(&self, members: &[NodeId]) -> Vec<ValueId> {
        let state = &self.r.state;
        let outside = |v: ValueId| {
            if self.p.output[v.index()] || self.p.placed[v.index()].is_some() {
                return true;
            }
            let mut stack: SmallVec<[ValueId; 4]> = SmallVec::from_slice(&[v]);
            while let Some(v) = stack.pop() {
                for n in &self.p.users[v.index()] {
                    if members.binary_search(n).is_ok() {
                        continue;
                    }
                    let passes = state.class[n.index()] == Class::View || state.cheap[n.index()];
                    if !passes || state.region[n.index()].is_some() {
                        return true;
                    }
                    stack.push(self.p.g.nodes[n.index()].output);
                }
            }
            false
        };
        members.iter().map(|n| self.p.g.nodes[n.index()].output).filter(|&v| outside(v)).collect()
    }
    fn build(&mut self, members: &[NodeId]) -> Result<Built, Fail> {
        let roots = self.roots(members);
        build(&mut Cx { p: self.p, t: self.t, state: &self.r.state }, members, &roots)
    }

    /// The most views between a value and memory.
    fn depth_of(&self, v: ValueId) -> usize {
        match self.p.g.value(v).def {
            ValueDef::Node(n) if self.r.state.region[n.index()].is_none() => self.depth[n.index()],
            _ => 0,
        }
    }
    /// Stores a view on top of very many others, so that no chain of views is long.
    fn view(&mut self, n: NodeId) -> Result<(), FuseError> {
        let v = self.p.g.nodes[n.index()].output;
        self.depth[n.index()] = 1 + self.depth_of(self.p.g.nodes[n.index()].inputs[0]);
        if self.depth[n.index()] > MAX_VIEWS { self.materialise(v) } else { Ok(()) }
    }
    fn add(&mut self, n: NodeId) -> Result<(), FuseError> {
        if self.may_join() && (self.is_inline(n) || self.join_any(n) || self.second_product(n)) {
            self.r.joined.push(n);
            return Ok(());
        }
        self.alone(n, false)
    }
    /// Leaves a node to its consumers when that costs no traffic: it is cheap and computed from inputs and constants, or
    /// from one stored value that is no wider.
    fn is_inline(&mut self, n: NodeId) -> bool {
        let node = &self.p.g.nodes[n.index()];
        let v = node.output;
        let stored = self.p.output[v.index()] || self.p.placed[v.index()].is_some();
        if stored || self.r.state.class[n.index()] != Class::Elementwise || !is_cheap(&node.op) {
            return false;
        }
        let mut cost = 1;
        let mut seen: SmallVec<[ValueId; 8]> = SmallVec::new();
        let mut stack: SmallVec<[ValueId; 8]> = SmallVec::from_slice(&node.inputs);
        while let Some(v) = stack.pop() {
            if let ValueDef::Node(m) = self.p.g.value(v).def {
                if self.r.state.cheap[m.index()] {
                    cost += self.cost[m.index()];
                } else if !self.r.state.is_loaded(self.p, v) {
                    stack.extend_from_slice(&self.p.g.nodes[m.index()].inputs);
                }
            }
            for leaf in self.leaves(v) {
                if !seen.contains(&leaf) {
                    seen.push(leaf);
                }
            }
        }
        let computed = |&&v: &&ValueId| matches!(self.p.g.value(v).def, ValueDef::Node(_));
        let input = |v: &ValueId| matches!(self.p.g.value(*v).def, ValueDef::Input(_));
        let width = self.p.g.dtype(v).size();
        let free = match seen.iter().filter(computed).collect::<Vec<_>>()[..] {
            [] => true,
            [&x] => !seen.iter().any(input) && self.p.g.dtype(x).size() <= width,
            _ => false,
        };
        if cost > MAX_INLINE || !free || self.needed_in_memory(v) {
            return false;
        }
        self.cost[n.index()] = cost;
        self.depth[n.index()] = node.inputs.iter().map(|&v| self.depth_of(v)).max().unwrap_or(0);
        self.r.state.class[n.index()] = Class::Inline;
        self.r.state.cheap[n.index()] = true;
        true
    }
    /// Whether some reader, through views, must find a value in memory.
    fn needed_in_memory(&self, v: ValueId) -> bool {
        let mut stack: SmallVec<[ValueId; 4]> = SmallVec::from_slice(&[v]);
        while let Some(v) = stack.pop() {
            for n in &self.p.users[v.index()] {
                let node = &self.p.g.nodes[n.index()];
                match self.r.state.class[n.index()] {
                    Class::View => stack.push(node.output),
                    Class::CumSum => return true,
                    c if node.inputs[..memory_operands(c)].contains(&v) => return true,
                    _ => {}
                }
            }
        }
        false
    }
    /// Gives a node a region of its own, storing first what it needs in memory.
    fn alone(&mut self, n: NodeId, forced: bool) -> Result<(), FuseError> {
        // Each round stores one more value below the node, so it ends.
        let plain = Plain::with(self.p, &self.r.state, &self.opts.limits, None, n);
        for _ in 0..=self.p.g.nodes.len() {
            let built =
                if plain.is_some() && !cfg!(debug_assertions) { Ok(()) } else { self.build(&[n]).map(drop) };
            match built {
                Ok(()) => {
                    let (pull, memory) = self.deps(n);
                    let closed = forced || self.r.state.class[n.index()] == Class::CumSum;
                    let id = self.r.all.len() as u32;
                    let before = Bits::default();
                    self.r.all.push(Region {
                        members: vec![n],
                        closed,
                        forced,
                        before,
                        plain: plain.clone(),
                        parts: None,
                    });
                    self.r.state.region[n.index()] = Some(id);
                    self.depend(id, &[pull, memory].concat());
                    return Ok(());
                }
                Err(Fail::Materialise(v)) => {
                    self.materialise(v)?;
                    // A dense operand may have been all that a view lacked.
                    let view = self.p.g.nodes[n.index()].output;
                    if forced && self.r.state.class[n.index()] == Class::View {
                        let found = locate(self.t, self.p, &self.r.state, view, |_| false);
                        if matches!(found, Found::Memory(_)) {
                            return Ok(());
                        }
                    }
                }
                Err(fail) => return Err(self.error(n, &fail)),
            }
        }
        Err(self.error(n, &Fail::Cut("its operands do not settle in memory".into())))
    }
    fn error(&self, n: NodeId, fail: &Fail) -> FuseError {
        let node = &self.p.g.nodes[n.index()];
        let op = match &self.p.g.value(node.output).name {
            Some(name) => format!("{} {name:?}", node.op.mnemonic()),
            None => node.op.mnemonic().into(),
        };
        FuseError::Node { op, node: self.p.origin[n.index()].first().copied(), reason: fail.to_string() }
    }
    /// Makes sure that a value is stored.
    fn materialise(&mut self, v: ValueId) -> Result<(), FuseError> {
        let ValueDef::Node(n) = self.p.g.value(v).def else {
            let reason = "an input has no strided form".into();
            return Err(FuseError::Node { op: "input".into(), node: None, reason });
        };
        match self.r.state.class[n.index()] {
            Class::Inline => {
                if !is_source(&self.p.g.nodes[n.index()].op) {
                    self.r.state.class[n.index()] = Class::Elementwise;
                }
                self.alone(n, true)
            }
            Class::View => {
                if self.may_join() && self.join_any(n) {
                    self.r.joined.push(n);
                    return Ok(());
                }
                self.alone(n, true)
            }
            _ => Err(self.error(n, &Fail::Cut("it is needed in memory but has no region".into()))),
        }
    }

    /// Whether another node may be put into a kernel with others.
    fn may_join(&self) -> bool {
        self.opts.fuse && self.opts.contractions.is_none_or(|most| self.r.joined.len() < most)
    }
    fn join_any(&mut self, n: NodeId) -> bool {
        let (pull, memory) = self.deps(n);
        for &r in &pull {
            match self.try_join(n, r, &pull, &memory) {
                Ok(()) => return true,
                Err(reason) => self.cut(n, r, reason),
            }
        }
        false
    }
    fn cut(&mut self, n: NodeId, r: u32, reason: String) {
        let node = &self.p.g.nodes[n.index()];
        for &v in &node.inputs {
            for leaf in self.leaves(v) {
                if self.region_of(leaf) == Some(r) {
                    self.r.cuts.insert((n, leaf), reason.clone());
                }
            }
        }
    }
    fn has(&self, r: u32, class: Class) -> bool {
        self.r.all[r as usize].members.iter().any(|n| self.r.state.class[n.index()] == class)
    }
    fn accepts(&self, r: u32, n: NodeId) -> Result<(), &'static str> {
        let region = &self.r.all[r as usize];
        let cube = self.has(r, Class::MatMul);
        match self.r.state.class[n.index()] {
            Class::MatMul => Err("a matmul needs its operands in memory"),
            Class::CumSum => Err("a running sum is a kernel of its own"),
            Class::Reduce if cube => Err("a reduction does not join a matmul"),
            Class::Gather if cube => Err("a gather does not join a matmul"),
            Class::ArgReduce if cube || self.has(r, Class::Reduce) => {
                Err("an index of an extreme does not join a reduction")
            }
            _ if region.closed => Err("its producer's kernel is closed"),
            _ if self.has(r, Class::ArgReduce) => Err("nothing follows the index of an extreme"),
            _ => Ok(()),
        }
    }
    fn try_join(&mut self, n: NodeId, r: u32, pull: &[u32], memory: &[u32]) -> Result<(), String> {
        self.accepts(r, n)?;
        let others: Vec<u32> = pull.iter().chain(memory).copied().filter(|&q| q != r).collect();
        if memory.contains(&r) {
            return Err("it also needs a value of that kernel in memory".into());
        }
        if others.iter().any(|&q| self.r.all[q as usize].before.has(r)) {
            return Err("joining would make a cycle".into());
        }
        let mut members = self.r.all[r as usize].members.clone();
        insert_sorted(&mut members, n);
        let limits = &self.opts.limits;
        let was = self.r.all[r as usize].plain.as_ref();
        let mut plain = was.and_then(|x| Plain::with(self.p, &self.r.state, limits, Some((r, x)), n));
        self.fits(&members, plain.is_some())?;
        // Pull the other producers in, one by one.
        let mut merged = vec![];
        for &q in pull.iter().filter(|&&q| q != r) {
            match self.try_merge(&members, r, q, &others, &merged, plain.as_ref()) {
                Ok((all, both)) => {
                    (members, plain) = (all, both);
                    merged.push(q);
                }
                Err(reason) => self.cut(n, q, reason),
            }
        }
        for m in &members {
            self.r.state.region[m.index()] = Some(r);
        }
        self.r.all[r as usize].members = members;
        self.r.all[r as usize].plain = plain;
        for &q in &merged {
            let before = std::mem::take(&mut self.r.all[q as usize]).before;
            self.r.all[r as usize].before.union(&before);
            let now = {
                let mut b = before;
                b.insert(r);
                b
            };
            for x in &mut self.r.all {
                if x.before.has(q) {
                    x.before.union(&now);
                }
            }
        }
        let left: Vec<u32> = others.into_iter().filter(|q| !merged.contains(q)).collect();
        self.depend(r, &left);
        Ok(())
    }
    /// Members with those of region `q` added, if that makes one kernel.
    fn try_merge(
        &mut self,
        members: &[NodeId],
        r: u32,
        q: u32,
        others: &[u32],
        merged: &[u32],
        plain: Option<&Plain>,
    ) -> Result<(Vec<NodeId>, Option<Plain>), String> {
        let alone = |x: Class| self.has(q, x);
        if self.r.all[q as usize].closed || alone(Class::ArgReduce) || alone(Class::CumSum) {
            return Err("its producer's kernel is closed".into());
        }
        let (cube_r, cube_q) = (self.has(r, Class::MatMul), alone(Class::MatMul));
        if cube_q {
            return Err("one kernel holds one matmul".into());
        }
        if cube_r && (alone(Class::Reduce) || alone(Class::Gather)) {
            return Err("a reduction does not join a matmul".into());
        }
        let before = |a: u32, b: u32| self.r.all[b as usize].before.has(a);
        let mut group: Vec<u32> = merged.to_vec();
        group.push(r);
        if group.iter().any(|&g| before(g, q) || before(q, g)) || others.iter().any(|&o| before(q, o)) {
            return Err("joining would make a cycle".into());
        }
        let mut all = [members, &self.r.all[q as usize].members].concat();
        all.sort_unstable();
        if cube_r {
            let mine = &self.r.all[q as usize].members;
            let roots = self.roots(&all);
            if roots.iter().any(|v| mine.iter().any(|m| self.p.g.nodes[m.index()].output == *v)) {
                return Err("others read it too".into());
            }
        }
        let both = plain.zip(self.r.all[q as usize].plain.as_ref());
        let both = both.and_then(|(a, b)| Plain::merged(self.p, &self.opts.limits, (a, &all), b));
        self.fits(&all, both.is_some())?;
        Ok((all, both))
    }
    /// Whether members make a kernel within the limits; `plain` where that is known.
    fn fits(&mut self, members: &[NodeId], plain: bool) -> Result<(), String> {
        if plain && !cfg!(debug_assertions) {
            return Ok(());
        }
        let fits = self.trial(members);
        debug_assert!(
            !plain || fits.is_ok(),
            "plain nodes {members:?} make no kernel: {fits:?}\n{}",
            self.p.g
        );
        fits
    }
    fn trial(&mut self, members: &[NodeId]) -> Result<(), String> {
        let limits = &self.opts.limits;
        if members.len() > limits.ops {
            return Err(format!("limit of {} ops reached", limits.ops));
        }
        match self.build(members) {
            Ok(built) => exceeds(&built.kernel, &self.opts.limits).map_or(Ok(()), Err),
            Err(fail) => Err(fail.to_string()),
        }
    }
    /// Makes `r` depend on other regions, and what depends on `r` too.
    fn depend(&mut self, r: u32, on: &[u32]) {
        let mut before = std::mem::take(&mut self.r.all[r as usize].before);
        for &q in on.iter().filter(|&&q| q != r) {
            before.insert(q);
            before.union(&self.r.all[q as usize].before);
        }
        for x in &mut self.r.all {
            if x.before.has(r) {
                x.before.union(&before);
            }
        }
        self.r.all[r as usize].before = before;
    }
}

impl Default for Region {
    fn default() -> Region {
        Region {
            members: vec![],
            closed: true,
            forced: false,
            before: Bits::default(),
            plain: None,
            parts: None,
        }
    }
}

fn insert_sorted(members: &mut Vec<NodeId>, n: NodeId) {
    if let Err(i) = members.binary_search(&n) {
        members.insert(i, n);
    }
}

/// Which limit a kernel exceeds.
fn exceeds(k: &Kernel, limits: &FuseLimits) -> Option<String> {
    if k.body.len() > 2 * limits.ops {
        return Some(format!("limit of {} ops reached", limits.ops));
    }
    if k.operands.len() > limits.operands {
        return Some(format!("limit of {} operands reached", limits.operands));
    }
    (live(k) > limits.live).then(|| format!("limit of {} live values reached", limits.live))
}

/// Most values over the whole space that are alive at once; they compete for local memory.
fn live(k: &Kernel) -> usize {
    let all = AxisSet::first(k.axes.iter().filter(|&&d| d != Dim::ONE).count());
    let full = |m: AxisSet| m.0.count_ones() >= all.0.count_ones();
    let mut last = vec![0; k.body.len()];
    for (i, inst) in k.body.iter().enumerate() {
        last[i] = i;
        inst.op.values().into_iter().for_each(|v| last[v.index()] = i);
    }
    for s in &k.stores {
        last[s.value.index()] = k.body.len();
    }
    let mut dies = vec![0usize; k.body.len() + 1];
    let (mut now, mut most) = (0, 0);
    for (i, inst) in k.body.iter().enumerate() {
        if full(inst.mask) {
            now += 1;
            most = most.max(now);
            dies[last[i]] += 1;
        }
        now -= dies[i];
    }
    most
}
