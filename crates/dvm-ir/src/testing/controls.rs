//! Small graphs with controls, as text, and random ones.

use super::Rng;
use crate::{BinaryOp, ControlKind, DType, Dim, Graph, Op, ReduceOp, TensorType, ValueId, result_type};

/// x + y where the sum of x is positive, else x - y.
pub const IF_ELSE_ADD: &str = "\
graph if_else_add(%x: f32[n], %y: f32[n]) -> (%r) {
  const %zero: f32[] = 0.0
  %c: f32[] = reduce %x {op = sum, axes = [0]}
  %p: bool[] = gt %c, %zero
  %r: f32[n] = if %p, %x, %y, %x, %y then (%a: f32[n], %b: f32[n]) -> (%s) {
    %s: f32[n] = add %a, %b
  } else (%a: f32[n], %b: f32[n]) -> (%s) {
    %s: f32[n] = sub %a, %b
  } @\"branch\"
}
";

/// Running sums of the rows of `x`, from the last one up, and their number.
pub const SCAN: &str = "\
graph scan(%x: f32[t, n]) -> (%sum, %sums) {
  const %on: bool[] = true
  const %zero: f32[] = 0.0
  %trips: i64[] = dims {values = [t], scalar = true, dtype = i64}
  %init: f32[n] = expand %zero {shape = [n]}
  %sum: f32[n], %sums: f32[t, n] = loop %trips, %on, %init, %x {carried = 1, scanned = 1, backward = [0]} \
do (%i: i64[], %go: bool[], %acc: f32[n], %row: f32[n]) -> (%go, %next, %next \"copy\") {
    %next: f32[n] = add %acc, %row
  }
}
";

/// A vector that doubles until its length is at least `limit`.
pub const GROW: &str = "\
symbol \"limit[0]\" in ..=
graph grow(%x: f32[n], %limit: i64[] = [\"limit[0]\"]) -> (%y, %steps) {
  const %most: i64[] = 100
  const %on: bool[] = true
  const %zero: i64[] = 0
  %y: f32[m], %steps: i64[] = loop %most, %on, %x, %zero {carried = 2, scanned = 0} \
do (%i: i64[], %go: bool[], %v: f32[k], %s: i64[]) -> (%more, %w, %next) {
    const %one: i64[] = 1
    %w: f32[2*k] = concat %v, %v {axis = 0}
    %next: i64[] = add %s, %one
    %more: bool[] = dims {values = [lt(2*k, \"limit[0]\")], scalar = true, dtype = bool}
  }
}
";

/// The positive elements, twice.
pub const MASK: &str = "\
graph mask(%x: f32[n]) -> (%r) {
  const %zero: f32[] = 0.0
  %p: bool[n] = gt %x, %zero
  %at: i64[1, count] = nonzero %p
  %i: i64[count] = reshape %at {shape = [count]}
  %v: f32[count] = gather %x, %i {axis = 0}
  %r: f32[count] = add %v, %v
}
";

/// `k` ones, k a computed number.
pub const READ: &str = "\
symbol k in 0..=9
graph read(%x: i64[1]) -> (%r) {
  const %one: f32[] = 1.0
  %twice: i64[1] = add %x, %x
  read %twice = [k] @\"size\"
  %r: f32[k] = expand %one {shape = [k]}
}
";

/// A random graph with nested controls over `f32` values that are small integers, so that every result is exact whatever is
/// fused and every condition is beyond doubt. Its inputs are `x: f32[s]` and `y: f32[s, 4]`.
#[must_use]
pub fn random_controls(seed: u64) -> Graph {
    let mut g = Graph::new(format!("controls{seed}"));
    let s = g.dims.symbol("s");
    let four = g.dims.constant(4);
    let mut pool = vec![g.input("x", DType::F32, &[s]), g.input("y", DType::F32, &[s, four])];
    let mut made = Maker { rng: Rng::new(seed), fresh: 0 };
    let steps = made.rng.int(3, 8) as usize;
    made.steps(&mut g, &mut pool, steps, 2);
    let last = pool.len() - 1;
    for (i, at) in [last, last / 2].into_iter().enumerate() {
        g.output(format!("out{i}"), pool[at]);
    }
    g
}

struct Maker {
    rng: Rng,
    fresh: usize,
}

/// Whatever the generator pushes fits by construction.
const FITS: &str = "the generator makes valid ops";

impl Maker {
    fn symbol(&mut self, g: &mut Graph) -> Dim {
        self.fresh += 1;
        g.dims.symbol(&format!("r{}", self.fresh))
    }
    /// Back to a small integer.
    fn small(&mut self, g: &mut Graph, v: ValueId) -> ValueId {
        let (lo, hi) = (g.scalar(DType::F32, -9.0), g.scalar(DType::F32, 9.0));
        g.push(Op::Clamp {}, &[v, lo, hi]).expect(FITS)
    }
    fn steps(&mut self, g: &mut Graph, pool: &mut Vec<ValueId>, steps: usize, depth: usize) {
        for _ in 0..steps {
            let x = self.rng.pick(pool);
            let kind = self.rng.below(if depth > 0 { 12 } else { 7 });
            match kind {
                0..=3 => {
                    let like: Vec<ValueId> =
                        pool.iter().copied().filter(|&v| g.shape(v) == g.shape(x)).collect();
                    let y = self.rng.pick(&like);
                    let op = self.rng.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max, BinaryOp::Mul]);
                    let v = g.binary(op, x, y).expect(FITS);
                    pool.push(self.small(g, v));
                }
                4 if !g.shape(x).is_empty() => {
                    let v = g.reduce(ReduceOp::Sum, x, &[0], false).expect(FITS);
                    pool.push(self.small(g, v));
                }
                5 if !g.shape(x).is_empty() && depth > 0 => pool.push(self.positive(g, x)),
                6 if depth > 0 => pool.push(self.counted(g, x)),
                7 | 8 => self.branch(g, pool, depth),
                9..=11 => self.repeat(g, pool, depth),
                _ => {}
            }
        }
    }
    fn sum(&mut self, g: &mut Graph, x: ValueId) -> ValueId {
        let axes: Vec<usize> = (0..g.shape(x).len()).collect();
        if axes.is_empty() { x } else { g.reduce(ReduceOp::Sum, x, &axes, false).expect(FITS) }
    }
    fn flag(&mut self, g: &mut Graph, pool: &[ValueId]) -> ValueId {
        let x = self.rng.pick(pool);
        let sum = self.sum(g, x);
        let zero = g.scalar(DType::F32, 0.0);
        g.binary(BinaryOp::Gt, sum, zero).expect(FITS)
    }
    /// The positive elements (all indices of rank 1).
    fn positive(&mut self, g: &mut Graph, x: ValueId) -> ValueId {
        let n = g.shape(x).to_vec();
        let n = g.dims.product(&n);
        let flat = g.reshape(x, &[n]).expect(FITS);
        let zero = g.scalar(DType::F32, 0.0);
        let p = g.binary(BinaryOp::Gt, flat, zero).expect(FITS);
        let count = self.symbol(g);
        let ty = TensorType { dtype: DType::I64, shape: vec![Dim::ONE, count] };
        let at = g.push_control(ControlKind::NonZero, &[p], vec![], &[ty], None)[0];
        let at = g.reshape(at, &[count]).expect(FITS);
        g.gather(flat, at, 0).expect(FITS)
    }
    /// As many elements as a value has positive ones, at most 9.
    fn counted(&mut self, g: &mut Graph, x: ValueId) -> ValueId {
        let zero = g.scalar(DType::F32, 0.0);
        let p = g.binary(BinaryOp::Gt, x, zero).expect(FITS);
        let p = g.cast(p, DType::I64).expect(FITS);
        let n = self.sum(g, p);
        let nine = g.scalar(DType::I64, 9.0);
        let n = g.binary(BinaryOp::Min, n, nine).expect(FITS);
        let k = self.symbol(g);
        g.push_control(ControlKind::Read { elements: vec![k] }, &[n], vec![], &[], None);
        let one = g.scalar(DType::F32, 1.0);
        g.expand(one, &[k]).expect(FITS)
    }
    /// A body with these inputs, and what it may use.
    fn body(&mut self, g: &Graph, inputs: &[(DType, Vec<Dim>)]) -> (Graph, Vec<ValueId>) {
        let mut b = Graph { dims: g.dims.clone(), ..Graph::new("") };
        let pool = inputs.iter().enumerate().map(|(i, (d, s))| b.input(format!("a{i}"), *d, s)).collect();
        (b, pool)
    }
    fn results(
        &mut self,
        g: &mut Graph,
        kind: ControlKind,
        inputs: &[ValueId],
        bodies: Vec<Graph>,
        n: usize,
    ) -> Vec<ValueId> {
        let operands: Vec<TensorType> = inputs.iter().map(|&v| g.value(v).ty.clone()).collect();
        let mut types = vec![];
        for i in 0..n {
            let (dtype, shape) = result_type(&kind, &bodies, &operands, i, &mut g.dims).expect(FITS);
            let shape = shape.into_iter().map(|d| d.unwrap_or_else(|| self.symbol(g))).collect();
            types.push(TensorType { dtype, shape });
        }
        self.fresh += 1;
        g.push_control(kind, inputs, bodies, &types, Some(format!("c{}", self.fresh)))
    }
    fn branch(&mut self, g: &mut Graph, pool: &mut Vec<ValueId>, depth: usize) {
        let mut inputs = vec![self.flag(g, pool)];
        let rank = g.shape(self.rng.pick(pool)).len();
        let mut bodies = vec![];
        for _ in 0..2 {
            let own: Vec<ValueId> = pool.iter().copied().filter(|&v| g.shape(v).len() == rank).collect();
            let captured = [self.rng.pick(&own), self.rng.pick(pool)];
            let types: Vec<_> = captured.iter().map(|&v| (DType::F32, g.shape(v).to_vec())).collect();
            let (mut b, mut inner) = self.body(g, &types);
            let steps = self.rng.below(4);
            self.steps(&mut b, &mut inner, steps, depth - 1);
            let fit: Vec<ValueId> = inner.iter().copied().filter(|&v| b.shape(v).len() == rank).collect();
            b.output("r", fit[fit.len() - 1]);
            bodies.push(b);
            inputs.extend(captured);
        }
        pool.extend(self.results(g, ControlKind::If, &inputs, bodies, 1));
    }
    fn repeat(&mut self, g: &mut Graph, pool: &mut Vec<ValueId>, depth: usize) {
        let begin = self.rng.pick(pool);
        let scanned: Vec<ValueId> = pool.iter().copied().filter(|&v| !g.shape(v).is_empty()).collect();
        let scan = !scanned.is_empty() && self.rng.below(2) == 0;
        let scanned = scan.then(|| self.rng.pick(&scanned));
        let trips = match scanned {
            Some(x) => {
                let values = vec![g.shape(x)[0]];
                g.push(Op::Dims { values, scalar: true, dtype: DType::I64 }, &[]).expect(FITS)
            }
            None => g.scalar(DType::I64, self.rng.below(4) as f64),
        };
        let go = if self.rng.below(4) == 0 { self.flag(g, pool) } else { g.scalar(DType::Bool, 1.0) };
        let captured = self.rng.pick(pool);
        // What may change its shape is declared with extents of the body's own.
        let mut b = Graph { dims: g.dims.clone(), ..Graph::new("") };
        let mut shape = g.shape(begin).to_vec();
        let free = self.rng.below(3) == 0;
        if free {
            shape = shape.iter().map(|_| self.symbol(&mut b)).collect();
        }
        let mut types = vec![(DType::I64, vec![]), (DType::Bool, vec![]), (DType::F32, shape.clone())];
        types.extend(scanned.map(|x| (DType::F32, g.shape(x)[1..].to_vec())));
        types.push((DType::F32, g.shape(captured).to_vec()));
        let mut inner: Vec<ValueId> = vec![];
        for (i, (dtype, shape)) in types.iter().enumerate() {
            inner.push(b.input(format!("a{i}"), *dtype, shape));
        }
        inner.remove(0);
        let handed_on = inner.remove(0);
        let steps = self.rng.below(4);
        self.steps(&mut b, &mut inner, steps, depth - 1);
        let more = if self.rng.below(3) == 0 { self.flag(&mut b, &inner) } else { handed_on };
        let fits = |b: &Graph, v: ValueId| {
            let s = b.shape(v);
            if free { s.len() == shape.len() } else { s == shape.as_slice() }
        };
        let next: Vec<ValueId> = inner.iter().copied().filter(|&v| fits(&b, v)).collect();
        b.output("more", more);
        b.output("next", next[next.len() - 1]);
        let mut stacked = 0;
        // A stacked value must keep its shape: one that changes cannot be stacked.
        let steady: Vec<ValueId> = inner
            .iter()
            .copied()
            .filter(|&v| {
                let outer = b.shape(v).iter().all(|&d| {
                    b.dims
                        .symbols_in([d])
                        .iter()
                        .all(|&s| g.dims.find_symbol(b.dims.symbol_name(s)).is_some())
                });
                outer && b.shape(v).len() < 3
            })
            .collect();
        if let Some(&v) = steady.last() {
            b.output("each", v);
            stacked = 1;
        }
        let mut inputs = vec![trips, go, begin];
        inputs.extend(scanned);
        inputs.push(captured);
        let walked = usize::from(scanned.is_some());
        let backward = (0..walked + stacked).map(|_| self.rng.below(2) == 0).collect();
        let kind = ControlKind::Loop { carried: 1, scanned: walked, backward };
        pool.extend(self.results(g, kind, &inputs, vec![b], 1 + stacked));
    }
}
