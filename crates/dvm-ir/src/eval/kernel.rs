//! Kernels and plans, interpreted op by op over the whole iteration space.
//!
//! Each value of a kernel is an array with one axis per axis of the space, of extent 1 where its mask lacks the axis. A
//! plan's buffers remember which level wrote and read every element, so that a plan that relies on an order within a
//! level, or on memory nobody wrote, is refused instead of giving the right values by luck.

use super::{
    EvalError, Fault, Shapes,
    array::{Array, Data, affine, check_addresses, count, unravel, walk},
    elementwise,
    index::position,
    ops::integers,
    reduce,
};
use crate::{
    Bindings, DType, DimTable, DimValues, Kernel, Plan, ReduceOp, Tensor, bind,
    kernel::{Access, AxisSet, KInst, KOp, KReduce, KStore, KValue},
    plan::BufferKind,
};

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;

/// A buffer and, where it can be written, the level (from 1) in which each element was last written and read.
struct Memory {
    dtype: DType,
    data: Data,
    marks: Option<Vec<Mark>>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    written: u32,
    read: u32,
}

impl Memory {
    fn read_only(t: &Tensor) -> Memory {
        Memory { dtype: t.dtype(), data: Array::from_tensor(t).data, marks: None }
    }
    fn unwritten(dtype: DType, len: usize) -> Memory {
        let data = if dtype.is_float() { Data::Float(vec![0.0; len]) } else { Data::Int(vec![0; len]) };
        Memory { dtype, data, marks: Some(vec![Mark::default(); len]) }
    }
    fn len(&self) -> usize {
        match &self.data {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
        }
    }
    /// The elements at `places`, as an array of `shape`.
    fn read(&mut self, shape: Vec<usize>, places: &[usize], level: u32) -> Result<Array, Fault> {
        if let Some(marks) = &mut self.marks {
            for &at in places {
                match marks[at].written {
                    0 => return Err(Fault::Unwritten { address: at }),
                    w if w == level => return Err(Fault::Race { address: at }),
                    _ => marks[at].read = level,
                }
            }
        }
        let all = match &self.data {
            Data::Float(v) => Data::Float(places.iter().map(|&at| v[at]).collect()),
            Data::Int(v) => Data::Int(places.iter().map(|&at| v[at]).collect()),
        };
        Ok(Array { dtype: self.dtype, shape, data: all })
    }
    /// Writes the elements of `value` to `places`.
    fn write(&mut self, value: &Array, places: &[usize], level: u32) -> Result<(), Fault> {
        let marks = self
            .marks
            .as_mut()
            .ok_or_else(|| Fault::Invalid("a store to a buffer that is only read".into()))?;
        for &at in places {
            if marks[at].written == level || marks[at].read == level {
                return Err(Fault::Race { address: at });
            }
            marks[at].written = level;
        }
        match (&mut self.data, &value.data) {
            (Data::Float(v), Data::Float(x)) => places.iter().zip(x).for_each(|(&at, &x)| v[at] = x),
            (Data::Int(v), Data::Int(x)) => places.iter().zip(x).for_each(|(&at, &x)| v[at] = x),
            _ => return Err(Fault::DTypes { a: self.dtype, b: value.dtype }),
        }
        Ok(())
    }
}

/// One application of a kernel.
struct Run<'a> {
    kernel: &'a Kernel,
    dims: &'a Shapes<'a>,
    /// Extents of the iteration space.
    space: Vec<usize>,
    memories: &'a mut [Memory],
    /// Memory of each operand.
    args: &'a [usize],
    level: u32,
    values: Vec<Array>,
}

impl Run<'_> {
    fn run(&mut self) -> Result<(), (String, Fault)> {
        let all = |f| ("operands".to_string(), f);
        self.check_operands().map_err(all)?;
        for (i, inst) in self.kernel.body.iter().enumerate() {
            let at = |f| (KValue::new(i).to_string(), f);
            let got = self.compute(inst).map_err(at)?;
            if got.dtype != inst.dtype {
                return Err(at(Fault::DTypes { a: got.dtype, b: inst.dtype }));
            }
            let value = got.expand(&self.extents(inst.mask)).map_err(at)?;
            self.values.push(value);
        }
        for (i, store) in self.kernel.stores.iter().enumerate() {
            self.store(store).map_err(|f| (format!("store {i}"), f))?;
        }
        Ok(())
    }
    fn check_operands(&self) -> Result<(), Fault> {
        if self.args.len() != self.kernel.operands.len() {
            let text = format!("{} arguments for {} operands", self.args.len(), self.kernel.operands.len());
            return Err(Fault::Invalid(text));
        }
        for (i, (o, &arg)) in self.kernel.operands.iter().zip(self.args).enumerate() {
            let m = &self.memories[arg];
            let len = self.dims.extent(o.len)?;
            if (m.dtype, m.len()) != (o.dtype, len) {
                let text =
                    format!("operand {i} is {len} of {}, its buffer {} of {}", o.dtype, m.len(), m.dtype);
                return Err(Fault::Invalid(text));
            }
        }
        Ok(())
    }
    /// Extents of the space, 1 outside the mask.
    fn extents(&self, mask: AxisSet) -> Vec<usize> {
        self.space.iter().enumerate().map(|(a, &n)| if mask.has(a) { n } else { 1 }).collect()
    }
    fn value(&self, v: KValue) -> Result<&Array, Fault> {
        self.values.get(v.index()).ok_or_else(|| Fault::Invalid(format!("{v} is used before it is defined")))
    }
    fn memory(&mut self, operand: u32, write: bool) -> Result<&mut Memory, Fault> {
        match (self.kernel.operands.get(operand as usize), self.args.get(operand as usize)) {
            (Some(o), Some(&arg)) if o.write == write => Ok(&mut self.memories[arg]),
            _ => Err(Fault::Invalid(format!(
                "operand {operand} cannot be {}",
                if write { "written" } else { "read" }
            ))),
        }
    }
    /// Offset and strides of an access whose value has this mask.
    fn address(&self, access: &Access, mask: AxisSet) -> Result<(i64, Vec<i64>), Fault> {
        let strides = self.dims.values(&access.strides)?;
        if strides.len() != self.space.len() {
            return Err(Fault::Invalid(format!("{} strides for {} axes", strides.len(), self.space.len())));
        }
        if let Some(a) = (0..strides.len()).find(|&a| !mask.has(a) && strides[a] != 0 && self.space[a] > 1) {
            return Err(Fault::Invalid(format!(
                "stride {} along axis {a}, which the mask lacks",
                strides[a]
            )));
        }
        Ok((self.dims.get(access.offset)?, strides))
    }
    /// Addresses of an affine walk, all of them inside `0..len`.
    fn places(shape: &[usize], offset: i64, strides: &[i64], len: usize) -> Result<Vec<usize>, Fault> {
        let n = count(shape)?;
        check_addresses(shape, offset, strides, len)?;
        let mut places = Vec::with_capacity(n);
        walk(shape, offset, strides, |at| places.push(at as usize));
        Ok(places)
    }
    fn load(
        &mut self,
        operand: u32,
        shape: Vec<usize>,
        offset: i64,
        strides: &[i64],
    ) -> Result<Array, Fault> {
        let level = self.level;
        let memory = self.memory(operand, false)?;
        let places = Self::places(&shape, offset, strides, memory.len())?;
        memory.read(shape, &places, level)
    }
    fn compute(&mut self, inst: &KInst) -> Result<Array, Fault> {
        let rank = self.space.len();
        let scalar = |a: Array| a.reshape(vec![1; rank]);
        match &inst.op {
            KOp::Load { operand, access } => {
                let (offset, strides) = self.address(access, inst.mask)?;
                self.load(*operand, self.extents(inst.mask), offset, &strides)
            }
            KOp::Gather { operand, access, index, stride, limit } => {
                let (offset, strides) = self.address(access, inst.mask)?;
                let (stride, limit) = (self.dims.get(*stride)?, self.dims.extent(*limit)?);
                let shape = self.extents(inst.mask);
                let index = self.value(*index)?.expand(&shape)?;
                let bases = affine(&shape, offset, &strides)?;
                let level = self.level;
                let memory = self.memory(*operand, false)?;
                let one = |(at, (&base, &i)): (usize, (&i64, &i64))| {
                    let place = position(i, limit).ok_or_else(|| {
                        let at = unravel(at, &shape);
                        Fault::Index { value: i, axis: 0, extent: limit, at }
                    })?;
                    let address = i128::from(base) + place as i128 * i128::from(stride);
                    let len = memory.len();
                    let inside = usize::try_from(address).ok().filter(|&a| a < len);
                    inside.ok_or(Fault::OutOfBounds { address, len })
                };
                let places =
                    bases.iter().zip(index.ints()?).enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
                memory.read(shape, &places, level)
            }
            KOp::Const(value) => scalar(Array::scalar(inst.dtype, *value)),
            KOp::DimConst(d) => {
                scalar(integers(inst.dtype, vec![], [i128::from(self.dims.get(*d)?)].into_iter()))
            }
            KOp::Iota { access } => {
                let (offset, strides) = self.address(access, inst.mask)?;
                let shape = self.extents(inst.mask);
                let values = affine(&shape, offset, &strides)?;
                Ok(integers(inst.dtype, shape, values.into_iter().map(i128::from)))
            }
            KOp::Unary(op, x) => elementwise::unary(*op, self.value(*x)?),
            KOp::Binary(op, a, b) => elementwise::binary(*op, self.value(*a)?, self.value(*b)?),
            KOp::Fma(a, b, c) => elementwise::fma(self.value(*a)?, self.value(*b)?, self.value(*c)?),
            KOp::Select(c, a, b) => elementwise::select(self.value(*c)?, self.value(*a)?, self.value(*b)?),
            KOp::Clamp(x, lo, hi) => elementwise::clamp(self.value(*x)?, self.value(*lo)?, self.value(*hi)?),
            KOp::Cast(x) => Ok(elementwise::cast(self.value(*x)?, inst.dtype)),
            KOp::Reduce(op, x, axes) => {
                let op = match op {
                    KReduce::Sum => ReduceOp::Sum,
                    KReduce::Max => ReduceOp::Max,
                    KReduce::Min => ReduceOp::Min,
                    KReduce::Prod => ReduceOp::Prod,
                    KReduce::Any => ReduceOp::Any,
                    KReduce::All => ReduceOp::All,
                };
                self.check_axes(*x, *axes)?;
                let axes: Vec<usize> = (0..rank).filter(|&a| axes.has(a)).collect();
                reduce::reduce_to(op, self.value(*x)?, &axes, true, inst.dtype)
            }
            KOp::ArgReduce { max, last, x, axis } => {
                let axis = usize::from(*axis);
                self.check_axes(*x, AxisSet::one(axis.min(31)))?;
                reduce::arg_reduce(self.value(*x)?, *max, axis, true, *last)
            }
            KOp::CumSum { x, axis, exclusive, reverse } => {
                let axis = usize::from(*axis);
                self.check_axes(*x, AxisSet::one(axis.min(31)))?;
                reduce::cumsum(self.value(*x)?, axis, *exclusive, *reverse)
            }
            KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k } => {
                // A contraction has columns of its own behind.
                let full = rank;
                let rank = full.saturating_sub(usize::from(self.kernel.contraction().is_some()));
                let Some(batch) = rank.checked_sub(2) else {
                    return Err(Fault::Invalid(format!("a matmul over {rank} axes")));
                };
                let (m, n, k) = (self.space[batch], self.space[batch + 1], self.dims.extent(*k)?);
                let all = AxisSet::first(rank);
                let own = |mut shape: Vec<usize>| {
                    shape.resize(full, 1);
                    shape
                };
                let (a_offset, mut a_strides) = self.address(a_access, all.minus(AxisSet::one(rank - 1)))?;
                let (b_offset, mut b_strides) = self.address(b_access, all.minus(AxisSet::one(rank - 2)))?;
                a_strides[rank - 1] = self.dims.get(*a_k)?;
                b_strides[rank - 2] = self.dims.get(*b_k)?;
                let with = |x: usize, y: usize| [&self.space[..batch], &[x, y]].concat();
                let (a_shape, b_shape, shape) = (with(m, k), with(k, n), with(m, n));
                if shape.contains(&0) {
                    return Ok(integers(inst.dtype, own(shape), std::iter::empty()));
                }
                a_strides.truncate(rank);
                b_strides.truncate(rank);
                let left = self.load(*a, a_shape, a_offset, &a_strides)?;
                let right = self.load(*b, b_shape, b_offset, &b_strides)?;
                let mut product = reduce::batched_product(&left, &right, shape, (m, k, n), inst.dtype)?;
                product.shape = own(product.shape);
                Ok(product)
            }
            KOp::Contract { a, b, b_access } => {
                let Some(batch) = rank.checked_sub(3) else {
                    return Err(Fault::Invalid(format!("a contraction over {rank} axes")));
                };
                let (m, k, n) = (self.space[batch], self.space[batch + 1], self.space[batch + 2]);
                let with = |x: usize, y: usize| [&self.space[..batch], &[x, y]].concat();
                let (b_shape, shape) = (with(k, n), with(m, n));
                let a_shape = [&with(m, k)[..], &[1]].concat();
                let spread = |shape: &[usize]| {
                    let mut all = shape.to_vec();
                    all.insert(batch + 1, 1);
                    all
                };
                if shape.contains(&0) {
                    return Ok(integers(inst.dtype, spread(&shape), std::iter::empty()));
                }
                let all = AxisSet::first(rank);
                let (offset, mut strides) = self.address(b_access, all.minus(AxisSet::one(batch)))?;
                strides.remove(batch);
                let right = self.load(*b, b_shape, offset, &strides)?;
                let mut left = self.value(*a)?.expand(&a_shape)?;
                left.shape.truncate(rank - 1);
                let mut product = reduce::batched_product(&left, &right, shape, (m, k, n), inst.dtype)?;
                product.shape = spread(&product.shape);
                Ok(product)
            }
        }
    }
    /// A reduced axis must be in the mask of what is reduced.
    fn check_axes(&self, x: KValue, axes: AxisSet) -> Result<(), Fault> {
        self.value(x)?;
        let missing = axes.minus(self.kernel.body[x.index()].mask);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Fault::Invalid(format!("{x} has no axis {}", missing.0.trailing_zeros())))
    }
    fn store(&mut self, s: &KStore) -> Result<(), Fault> {
        let mask = self.value(s.value).map(|_| self.kernel.body[s.value.index()].mask)?;
        let (offset, strides) = self.address(&s.access, mask)?;
        let (shape, level) = (self.extents(mask), self.level);
        let value = self.value(s.value)?.clone();
        let memory = self.memory(s.operand, true)?;
        if memory.dtype != value.dtype {
            return Err(Fault::DTypes { a: memory.dtype, b: value.dtype });
        }
        let places = Self::places(&shape, offset, &strides, memory.len())?;
        memory.write(&value, &places, level)
    }
}

/// Runs one call and names the kernel in its errors.
fn call(
    kernel: &Kernel,
    dims: &Shapes<'_>,
    memories: &mut [Memory],
    args: &[usize],
    level: u32,
) -> Result<(), EvalError> {
    let space = dims.shape(&kernel.axes);
    let wrap = |(at, fault)| EvalError::Kernel { kernel: kernel.name.clone(), at, fault };
    let space = space.map_err(|f| wrap(("axes".to_string(), f)))?;
    Run { kernel, dims, space, memories, args, level, values: vec![] }.run().map_err(wrap)
}

/// Applies a kernel to tensors, one per operand, of any shape with the operand's number of elements. Operands that are
/// written keep what the kernel does not write.
///
/// # Errors
/// Arguments that do not fit the operands, and whatever [`Fault`] the body runs into, naming the value of the body.
pub fn eval_kernel(
    kernel: &Kernel,
    dims: &DimTable,
    bindings: &Bindings,
    args: &mut [Tensor],
) -> Result<(), EvalError> {
    let mut all = DimValues::default();
    dims.eval_all(bindings, &mut all);
    let shapes = Shapes { table: dims, all: &all };
    let memory = |(i, t): (usize, &Tensor)| {
        let mut m = Memory::read_only(t);
        if kernel.operands.get(i).is_some_and(|o| o.write) {
            m.marks = Some(vec![Mark::default(); m.len()]);
        }
        m
    };
    let mut memories: Vec<Memory> = args.iter().enumerate().map(memory).collect();
    let identity: Vec<usize> = (0..args.len()).collect();
    call(kernel, &shapes, &mut memories, &identity, 1)?;
    for (t, m) in args.iter_mut().zip(memories).filter(|(_, m)| m.marks.is_some()) {
        let array = Array { dtype: m.dtype, shape: t.shape().to_vec(), data: m.data };
        *t = array.to_tensor().map_err(|fault| EvalError::Output { output: kernel.name.clone(), fault })?;
    }
    Ok(())
}

/// The outputs of a plan, in order, for the named inputs.
///
/// # Errors
/// As [`super::eval_graph`]; also an address outside its buffer, an element that is read but never written, and calls of one
/// level that depend on each other.
pub fn eval_plan(plan: &Plan, inputs: &[(impl AsRef<str>, Tensor)]) -> Result<Vec<Tensor>, EvalError> {
    let given = bind::in_order(bind::plan_inputs(plan), inputs)?;
    let (mut bindings, mut all) = (Bindings::new(), DimValues::default());
    let pairs = bind::plan_inputs(plan).zip(given.iter().map(|&t| t.into()));
    bind::bind(&plan.dims, &plan.checks, pairs, &mut bindings, &mut all)?;
    let dims = Shapes { table: &plan.dims, all: &all };

    let malformed = |what: String| EvalError::Plan { what };
    let mut memories = Vec::with_capacity(plan.buffers.len());
    for b in &plan.buffers {
        let tensor = match b.kind {
            BufferKind::Input(i) => Some(given.get(i as usize).copied()),
            BufferKind::Const(i) => Some(plan.constants.get(i as usize)),
            BufferKind::Output(_) | BufferKind::Temp => None,
        };
        if let Some(Some(t)) = tensor.filter(|t| t.is_some_and(|t| !t.has_data())) {
            return Err(malformed(format!("buffer `{}` of {t:?} has a shape and no data", b.name)));
        }
        memories.push(match tensor {
            Some(Some(t)) => Memory::read_only(t),
            Some(None) => return Err(malformed(format!("buffer `{}` is of nothing: {:?}", b.name, b.kind))),
            None => {
                let len = dims.extent(b.len).and_then(|n| count(&[n]));
                let len = len.map_err(|fault| EvalError::Output { output: b.name.clone(), fault })?;
                Memory::unwritten(b.dtype, len)
            }
        });
    }
    for (level, calls) in plan.levels.iter().enumerate() {
        for &c in &calls.calls {
            let found = plan
                .calls
                .get(c as usize)
                .and_then(|call| Some((call, plan.kernels.get(call.kernel.index())?)));
            let Some((applied, kernel)) = found else {
                return Err(malformed(format!("level {level} has no call {c}, or that no kernel")));
            };
            let args: Vec<usize> = applied.args.iter().map(|b| b.index()).collect();
            if let Some(b) = applied.args.iter().find(|b| b.index() >= memories.len()) {
                return Err(malformed(format!("call {c} has no buffer {b}")));
            }
            call(kernel, &dims, &mut memories, &args, level as u32 + 1)?;
        }
    }
    let output = |o: &crate::plan::PlanOutput| {
        let m = memories
            .get(o.buffer.index())
            .ok_or_else(|| Fault::Invalid(format!("no buffer {}", o.buffer)))?;
        if let Some(address) = m.marks.as_ref().and_then(|marks| marks.iter().position(|m| m.written == 0)) {
            return Err(Fault::Unwritten { address });
        }
        Array { dtype: m.dtype, shape: vec![m.len()], data: m.data.clone() }
            .reshape(dims.shape(&o.shape)?)?
            .to_tensor()
    };
    let named = |o: &crate::plan::PlanOutput| {
        output(o).map_err(|fault| EvalError::Output { output: o.name.clone(), fault })
    };
    plan.outputs.iter().map(named).collect()
}
