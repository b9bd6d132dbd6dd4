//! Emits the kernel of a region by pulling every stored value from memory, at the index map the region's space gives it.

mod ops;

use dvm_ir::kernel::{Access, AxisSet, KInst, KOp, KStore, KValue, MAX_AXES, Operand};
use dvm_ir::{DType, Dim, DimTable, Kernel, Node, NodeId, Op, Scalar, UnaryOp, ValueDef, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::affine::{Affine, Map, broadcast_map};
use crate::finish;
use crate::lower::Prim;
use crate::memory::{Found, Loc, State, locate, place, view_of};
use crate::regions::Class;
use crate::reshape::{self, Regroup};
use crate::space::{Space, Splits, analyse};

/// Why a kernel could not be emitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fail {
    /// An axis of the space must be two.
    Split { axis: u8, outer: Dim, inner: Dim },
    /// A value must be stored first.
    Materialise(ValueId),
    /// These nodes do not make one kernel.
    Cut(String),
}

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fail::Split { .. } => f.write_str("its axes do not settle"),
            Fail::Materialise(_) => f.write_str("an operand must be in memory first"),
            Fail::Cut(s) => f.write_str(s),
        }
    }
}

/// A kernel with what its operands are.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) kernel: Kernel,
    /// Per operand, the value whose buffer it is.
    pub(crate) owners: Vec<ValueId>,
    /// Stored values that are read.
    pub(crate) reads: Vec<ValueId>,
    /// Nodes it computes: members, and what it recomputes of others.
    pub(crate) nodes: Vec<NodeId>,
}

/// Everything a region is built from.
pub(crate) struct Cx<'a> {
    pub(crate) p: &'a Prim,
    pub(crate) t: &'a mut DimTable,
    pub(crate) state: &'a State,
}

/// Most refinements of a region's axes before it is given up.
const MAX_SPLITS: usize = 12;

/// Builds the kernel that computes `members` and stores `roots`.
pub(crate) fn build(cx: &mut Cx, members: &[NodeId], roots: &[ValueId]) -> Result<Built, Fail> {
    let mut splits = Splits::default();
    for _ in 0..MAX_SPLITS {
        let (fail, space) = match analyse(cx.t, cx.p, cx.state, members, roots, &splits) {
            Err(x) => x,
            Ok(space) => {
                if space.extents.len() > MAX_AXES {
                    return Err(Fail::Cut(format!("more than {MAX_AXES} axes")));
                }
                let mut e = Emit::new(cx, members, space);
                match e.run(members, roots) {
                    Ok(()) => return Ok(e.finish(roots)),
                    Err(f) => (f, e.space),
                }
            }
        };
        match fail {
            Fail::Split { axis, outer, inner } => {
                splits.split(space.created(), &space.extents, axis, outer, inner);
            }
            other => return Err(other),
        }
    }
    Err(Fail::Cut("its axes do not settle".into()))
}

struct Emit<'a, 'b> {
    cx: &'a mut Cx<'b>,
    members: SmallVec<[NodeId; 16]>,
    space: Space,
    kernel: Kernel,
    owners: Vec<ValueId>,
    reads: Vec<ValueId>,
    nodes: Vec<NodeId>,
    memo: FxHashMap<(ValueId, Map), KValue>,
    insts: FxHashMap<KInst, KValue>,
    /// The axes that reductions of this region reduce.
    reduced: Option<AxisSet>,
}

impl<'a, 'b> Emit<'a, 'b> {
    fn new(cx: &'a mut Cx<'b>, members: &[NodeId], space: Space) -> Emit<'a, 'b> {
        let mut members = SmallVec::from_slice(members);
        members.sort_unstable();
        // Each member is a value, and about as many are loaded.
        let room = 2 * members.len();
        let kernel = Kernel { axes: space.extents.clone(), ..Kernel::default() };
        Emit {
            cx,
            members,
            space,
            kernel,
            owners: vec![],
            reads: vec![],
            nodes: Vec::with_capacity(room),
            memo: FxHashMap::with_capacity_and_hasher(room, Default::default()),
            insts: FxHashMap::with_capacity_and_hasher(room, Default::default()),
            reduced: None,
        }
    }
    fn is_member(&self, v: ValueId) -> bool {
        matches!(self.cx.p.g.value(v).def, ValueDef::Node(n) if self.members.binary_search(&n).is_ok())
    }

    fn run(&mut self, members: &[NodeId], roots: &[ValueId]) -> Result<(), Fail> {
        // The product comes first, whatever needs it.
        for &n in members.iter().filter(|n| self.cx.state.class[n.index()] == Class::MatMul) {
            let v = self.cx.p.g.nodes[n.index()].output;
            let map = self.map(v)?;
            self.value(v, map)?;
        }
        for &v in roots {
            self.store(v)?;
        }
        Ok(())
    }
    /// The map that runs through all of a value.
    fn map(&mut self, v: ValueId) -> Result<Map, Fail> {
        self.space.map(self.cx.t, v).ok_or_else(|| Fail::Cut("its values run along other axes".into()))
    }
    fn finish(self, roots: &[ValueId]) -> Built {
        let mut kernel = self.kernel;
        let axes = roots
            .iter()
            .filter_map(|&v| self.space.digits(v))
            .map(|d| d.into_iter().flatten().collect::<Vec<u8>>());
        let widest = axes.max_by_key(|d| d.len()).unwrap_or_default();
        let order = finish::order(&kernel, &widest);
        finish::permute(&mut kernel, &order);
        finish::fold(self.cx.t, &mut kernel);
        kernel.name = finish::name(&kernel);
        Built { kernel, owners: self.owners, reads: self.reads, nodes: self.nodes }
    }

    /// All axes but the columns of a second product.
    fn rows(&self) -> AxisSet {
        AxisSet::first(self.space.extents.len() - usize::from(self.space.second.is_some()))
    }
    fn inst(&mut self, op: KOp, dtype: DType, mask: AxisSet) -> KValue {
        let inst = KInst { op, dtype, mask };
        if let Some(&k) = self.insts.get(&inst) {
            return k;
        }
        let k = KValue::new(self.kernel.body.len());
        self.kernel.body.push(inst.clone());
        self.insts.insert(inst, k);
        k
    }
    fn mask(&self, k: KValue) -> AxisSet {
        self.kernel.body[k.index()].mask
    }
    fn widen(&mut self, k: KValue, mask: AxisSet) -> KValue {
        if mask.minus(self.mask(k)).is_empty() {
            return k;
        }
        let mask = mask.or(self.mask(k));
        self.inst(KOp::Unary(UnaryOp::Copy, k), self.kernel.body[k.index()].dtype, mask)
    }
    fn operand(&mut self, owner: ValueId, write: bool) -> u32 {
        let same = |(i, &o): (usize, &ValueId)| o == owner && self.kernel.operands[i].write == write;
        if let Some(i) = self.owners.iter().enumerate().position(same) {
            return i as u32;
        }
        let len = self.cx.t.product(self.cx.p.g.shape(owner));
        let dtype = self.cx.p.g.dtype(owner);
        self.kernel.operands.push(Operand { dtype, len, write, packable: false });
        self.owners.push(owner);
        self.owners.len() as u32 - 1
    }
    fn read(&mut self, loc: &Loc) -> u32 {
        if !self.reads.contains(&loc.source) {
            self.reads.push(loc.source);
        }
        self.operand(loc.owner, false)
    }
    /// The address of a view at a map.
    fn access(&mut self, offset: Dim, strides: &[Dim], map: &[Affine]) -> Access {
        let mut e = Affine { offset, terms: SmallVec::new() };
        for (m, &s) in map.iter().zip(strides) {
            let term = m.scaled(self.cx.t, s);
            e = e.plus(self.cx.t, &term);
        }
        self.as_access(&e)
    }
    fn as_access(&self, e: &Affine) -> Access {
        let mut strides = SmallVec::from_elem(Dim::ZERO, self.space.extents.len());
        for &(a, s) in &e.terms {
            strides[a as usize] = s;
        }
        Access { offset: e.offset, strides }
    }
    fn load(&mut self, loc: &Loc, map: &[Affine]) -> KValue {
        let access = self.access(loc.offset, &loc.strides, map);
        let operand = self.read(loc);
        let mask = axes_of(&access);
        let dtype = self.kernel.operands[operand as usize].dtype;
        self.inst(KOp::Load { operand, access }, dtype, mask)
    }

    fn store(&mut self, v: ValueId) -> Result<(), Fail> {
        let map = self.map(v)?;
        let k = self.value(v, map.clone())?;
        let loc = place(self.cx.t, self.cx.p, v);
        let access = self.access(loc.offset, &loc.strides, &map);
        let wanted = axes_in(&map);
        let extra = self.mask(k).minus(wanted);
        if (0..self.space.extents.len()).any(|a| extra.has(a) && self.space.extents[a] != Dim::ONE) {
            return Err(Fail::Cut("its values run along other axes".into()));
        }
        let spanned = wanted.or(self.reduced.unwrap_or_default());
        let empty = self.cx.p.g.shape(v).contains(&Dim::ZERO);
        if !empty
            && (0..self.space.extents.len()).any(|a| !spanned.has(a) && self.space.extents[a] != Dim::ONE)
        {
            // Every tile would store it again.
            return Err(Fail::Cut("a stored value is smaller than the space".into()));
        }
        let value = self.widen(k, wanted);
        let operand = self.operand(loc.owner, true);
        self.kernel.stores.push(KStore { operand, access, value });
        Ok(())
    }

    /// The value `v` at the index `map`.
    fn value(&mut self, v: ValueId, map: Map) -> Result<KValue, Fail> {
        let key = (v, map);
        if let Some(&k) = self.memo.get(&key) {
            return Ok(k);
        }
        let k = self.pulled(key.0, key.1.clone())?;
        self.memo.insert(key, k);
        Ok(k)
    }
    fn pulled(&mut self, start: ValueId, mut map: Map) -> Result<KValue, Fail> {
        let (p, state) = (self.cx.p, self.cx.state);
        let mut v = start;
        loop {
            let member = self.is_member(v);
            if p.g.shape(v).contains(&Dim::ZERO) {
                // No element is ever computed, and there may be nothing to load from.
                return Ok(self.inst(KOp::Const(Scalar::Int(0)), p.g.dtype(v), AxisSet::EMPTY));
            }
            if let Some(s) = p.splat[v.index()] {
                return Ok(self.inst(KOp::Const(s), p.g.dtype(v), AxisSet::EMPTY));
            }
            let node = match p.g.def_node(v) {
                Some(n) if member || !state.is_loaded(p, v) => n,
                _ => {
                    let loc = place(self.cx.t, p, v);
                    return Ok(self.load(&loc, &map));
                }
            };
            if !node.op.is_view() {
                // Under views it may have been computed at this map before.
                return if v == start { self.op(node, &map) } else { self.value(v, map) };
            }
            // A member is stored here, so only what is below it can be in memory.
            let found = if member { self.locate_below(node, false) } else { self.locate(v, false) };
            if let Found::Memory(loc) = found {
                return Ok(self.load(&loc, &map));
            }
            map = match self.through(node, &map, member) {
                Err(Fail::Materialise(m)) => {
                    // What is stored for others serves where recomputing fails, unless it depends on this kernel.
                    let found = if member { self.locate_below(node, true) } else { self.locate(v, true) };
                    return match found {
                        Found::Memory(loc) if self.depends_on_member(loc.source) => {
                            Err(Fail::Cut("a reshape of what it computes".into()))
                        }
                        Found::Memory(loc) => Ok(self.load(&loc, &map)),
                        _ => Err(Fail::Materialise(m)),
                    };
                }
                m => m?,
            };
            v = node.inputs[0];
        }
    }
    /// Whether a value is computed by views and cheap ops from a member.
    fn depends_on_member(&self, v: ValueId) -> bool {
        let mut stack: SmallVec<[ValueId; 4]> = SmallVec::from_slice(&[v]);
        while let Some(v) = stack.pop() {
            if self.is_member(v) {
                return true;
            }
            if let ValueDef::Node(n) = self.cx.p.g.value(v).def
                && (self.cx.state.cheap[n.index()] || self.cx.state.class[n.index()] == Class::View)
            {
                stack.extend_from_slice(&self.cx.p.g.nodes[n.index()].inputs);
            }
        }
        false
    }
    /// Resolves the views over a value; what is cheap counts as memory only where memory is needed.
    fn locate(&mut self, v: ValueId, needed: bool) -> Found {
        let (members, cheap) = (&self.members, &self.cx.state.cheap);
        let p = self.cx.p;
        let computed = |v: ValueId| match p.g.value(v).def {
            ValueDef::Node(n) => members.binary_search(&n).is_ok() || (!needed && cheap[n.index()]),
            _ => false,
        };
        locate(self.cx.t, p, self.cx.state, v, computed)
    }
    /// A view in the memory of its operand.
    fn locate_below(&mut self, node: &Node, needed: bool) -> Found {
        let from = self.cx.p.g.shape(node.inputs[0]);
        let to = self.cx.p.g.shape(node.output);
        match self.locate(node.inputs[0], needed) {
            Found::Memory(loc) => {
                view_of(self.cx.t, loc, &node.op, from, to).map_or(Found::Unstrided, Found::Memory)
            }
            other => other,
        }
    }
    /// A value that must be in memory.
    fn in_memory(&mut self, v: ValueId, who: &str) -> Result<Loc, Fail> {
        match self.locate(v, true) {
            Found::Memory(loc) => Ok(loc),
            Found::Unstrided => Err(Fail::Materialise(v)),
            Found::Computed(base) if self.is_member(base) => {
                Err(Fail::Cut(format!("{who} needs its operand in memory")))
            }
            Found::Computed(base) => Err(Fail::Materialise(base)),
        }
    }
    /// The map of a view's operand.
    fn through(&mut self, node: &Node, map: &Map, member: bool) -> Result<Map, Fail> {
        let extents = self.space.extents.clone();
        self.through_in(node, map, &extents, member)
    }
    /// The same where more axes than the space's are in the map.
    fn through_in(&mut self, node: &Node, map: &Map, extents: &[Dim], member: bool) -> Result<Map, Fail> {
        self.computes(node);
        let from = self.cx.p.g.shape(node.inputs[0]);
        let to = self.cx.p.g.shape(node.output);
        let t = &mut *self.cx.t;
        Ok(match &node.op {
            Op::Transpose { perm } => {
                let mut out: Map = SmallVec::from_elem(Affine::zero(), from.len());
                for (j, &i) in perm.iter().enumerate() {
                    out[i] = map[j].clone();
                }
                out
            }
            Op::Expand { .. } => broadcast_map(t, map, from, to),
            Op::Slice { start, step, .. } => (0..from.len())
                .map(|i| {
                    let step = t.constant(step[i]);
                    map[i].scaled(t, step).shifted(t, start[i])
                })
                .collect(),
            Op::Window { axis, stride, dilation, .. } => {
                let (s, d) = (t.constant(*stride), t.constant(*dilation));
                let (o, k) = (map[*axis].scaled(t, s), map[axis + 1].scaled(t, d));
                let mut out: Map = map.clone();
                out.remove(axis + 1);
                out[*axis] = o.plus(t, &k);
                out
            }
            _ => match reshape::pull(t, map, from, to, extents) {
                Ok(m) => m,
                Err(Regroup::Split { axis, outer, inner }) if !self.space.is_whole(axis) => {
                    return Err(Fail::Split { axis, outer, inner });
                }
                Err(_) if member => return Err(Fail::Materialise(node.inputs[0])),
                Err(_) => {
                    let base = self.cx.state.base(self.cx.p, node.output);
                    if self.is_member(base) {
                        return Err(Fail::Cut(self.unrelated(from, to)));
                    }
                    return Err(Fail::Materialise(node.output));
                }
            },
        })
    }
    fn unrelated(&self, from: &[Dim], to: &[Dim]) -> String {
        let show = |s: &[Dim]| {
            let dims: Vec<String> = s.iter().map(|&d| self.cx.t.display(d).to_string()).collect();
            dims.join(", ")
        };
        format!("cannot prove how [{}] regroups to [{}]", show(from), show(to))
    }

    fn computes(&mut self, node: &Node) {
        if let ValueDef::Node(n) = self.cx.p.g.value(node.output).def
            && !self.nodes.contains(&n)
        {
            self.nodes.push(n);
        }
    }
    /// An elementwise operand, broadcast to the result.
    fn operand_of(&mut self, node: &Node, i: usize, map: &Map) -> Result<KValue, Fail> {
        let v = node.inputs[i];
        let (from, to) = (self.cx.p.g.shape(v), self.cx.p.g.shape(node.output));
        let map = broadcast_map(self.cx.t, map, from, to);
        self.value(v, map)
    }
    fn op(&mut self, node: &Node, map: &Map) -> Result<KValue, Fail> {
        let dtype = self.cx.p.g.dtype(node.output);
        self.computes(node);
        match &node.op {
            Op::Unary(UnaryOp::Copy) => self.operand_of(node, 0, map),
            Op::Unary(u) => {
                let x = self.operand_of(node, 0, map)?;
                Ok(self.inst(KOp::Unary(*u, x), dtype, self.mask(x)))
            }
            Op::Cast { .. } => {
                let x = self.operand_of(node, 0, map)?;
                Ok(self.inst(KOp::Cast(x), dtype, self.mask(x)))
            }
            Op::Binary(o) => {
                let (x, y) = (self.operand_of(node, 0, map)?, self.operand_of(node, 1, map)?);
                Ok(self.inst(KOp::Binary(*o, x, y), dtype, self.mask(x).or(self.mask(y))))
            }
            Op::Fma {} | Op::Select {} | Op::Clamp {} => {
                let x = self.operand_of(node, 0, map)?;
                let y = self.operand_of(node, 1, map)?;
                let z = self.operand_of(node, 2, map)?;
                let mask = self.mask(x).or(self.mask(y)).or(self.mask(z));
                let op = match node.op {
                    Op::Fma {} => KOp::Fma(x, y, z),
                    Op::Select {} => KOp::Select(x, y, z),
                    _ => KOp::Clamp(x, y, z),
                };
                Ok(self.inst(op, dtype, mask))
            }
            Op::Fill { value, .. } => Ok(self.inst(KOp::Const(*value), dtype, AxisSet::EMPTY)),
            Op::Dims { values, .. } => Ok(self.dims(values, map, dtype)),
            Op::Range { start, step, .. } => {
                let e = map[0].scaled(self.cx.t, *step).shifted(self.cx.t, *start);
                let access = self.as_access(&e);
                let mask = axes_of(&access);
                Ok(self.inst(KOp::Iota { access }, dtype, mask))
            }
            Op::Reduce { op, axes, keepdims } => self.reduce(node, *op, axes, *keepdims, map),
            Op::ArgMax { axis, keepdims, last } => self.arg(node, true, *last, *axis, *keepdims, map),
            Op::ArgMin { axis, keepdims, last } => self.arg(node, false, *last, *axis, *keepdims, map),
            Op::CumSum { axis, exclusive, reverse } => self.cumsum(node, *axis, *exclusive, *reverse, map),
            Op::Gather { axis } => self.gather(node, *axis, map),
            Op::GatherElements { axis } => self.gather_elements(node, *axis, map),
            Op::MatMul { trans_a, trans_b } => self.matmul(node, *trans_a, *trans_b, map),
            _ => Err(Fail::Cut(format!("{} is not computed in a kernel", node.op.mnemonic()))),
        }
    }
}

/// Axes that an index map uses.
fn axes_in(map: &[Affine]) -> AxisSet {
    map.iter().flat_map(|e| &e.terms).fold(AxisSet::EMPTY, |m, x| m.or(AxisSet::one(x.0 as usize)))
}

/// Axes along which an address moves.
fn axes_of(access: &Access) -> AxisSet {
    (0..access.strides.len())
        .filter(|&i| access.strides[i] != Dim::ZERO)
        .fold(AxisSet::EMPTY, |m, i| m.or(AxisSet::one(i)))
}
