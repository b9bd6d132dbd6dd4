//! Hand-written kernels: a small builder, and the way from a kernel to values that are compared with the evaluator's.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use dvm_bc::{Arg, Layout, Limits, Program, Role, Step, Unit, Verified, layout::pack_panels};
use dvm_ir::kernel::{Access, AxisSet, KInst, KOp, KReduce, KStore, KValue, Kernel, Operand};
use dvm_ir::{BinaryOp, Bindings, DType, Dim, DimTable, DimValues, Scalar, Tensor, UnaryOp};
use dvm_npu::MachineSpec;
use dvm_vm::{ArgRef, BuildOptions, Executable, Isa, Pool, Runtime};

/// A kernel over concrete extents.
pub(crate) struct K {
    pub(crate) kernel: Kernel,
    pub(crate) dims: DimTable,
    extents: Vec<i64>,
}

impl K {
    pub(crate) fn new(name: &str, extents: &[i64]) -> K {
        let mut dims = DimTable::new();
        let axes = extents.iter().map(|&n| dims.constant(n)).collect();
        let kernel = Kernel { name: name.into(), axes, ..Kernel::default() };
        K { kernel, dims, extents: extents.to_vec() }
    }
    pub(crate) fn dim(&mut self, n: i64) -> Dim {
        self.dims.constant(n)
    }
    pub(crate) fn operand(&mut self, dtype: DType, len: i64, write: bool) -> u32 {
        let len = self.dims.constant(len);
        self.kernel.operands.push(Operand { dtype, len, write, packable: false });
        self.kernel.operands.len() as u32 - 1
    }
    pub(crate) fn access(&mut self, offset: i64, strides: &[i64]) -> Access {
        let offset = self.dims.constant(offset);
        let strides = strides.iter().map(|&s| self.dims.constant(s)).collect();
        Access { offset, strides }
    }
    pub(crate) fn mask(&self, v: KValue) -> AxisSet {
        self.kernel.body[v.index()].mask
    }
    pub(crate) fn dtype(&self, v: KValue) -> DType {
        self.kernel.body[v.index()].dtype
    }
    pub(crate) fn push(&mut self, op: KOp, dtype: DType, mask: AxisSet) -> KValue {
        self.kernel.body.push(KInst { op, dtype, mask });
        KValue::new(self.kernel.body.len() - 1)
    }
    /// Row-major strides over the axes of `axes`, 0 along the others.
    pub(crate) fn dense(&self, axes: &[usize]) -> Vec<i64> {
        let mut strides = vec![0; self.extents.len()];
        let mut next = 1;
        for &a in axes.iter().rev() {
            strides[a] = next;
            next *= self.extents[a].max(1);
        }
        strides
    }
    fn count(&self, axes: &[usize]) -> i64 {
        axes.iter().map(|&a| self.extents[a]).product()
    }
    fn moving(strides: &[i64]) -> AxisSet {
        strides
            .iter()
            .enumerate()
            .filter(|s| *s.1 != 0)
            .fold(AxisSet::EMPTY, |m, (i, _)| m.or(AxisSet::one(i)))
    }
    /// Loads a new dense operand over some axes.
    pub(crate) fn load(&mut self, dtype: DType, axes: &[usize]) -> KValue {
        let strides = self.dense(axes);
        let len = self.count(axes);
        self.load_at(dtype, len, 0, &strides)
    }
    pub(crate) fn load_at(&mut self, dtype: DType, len: i64, offset: i64, strides: &[i64]) -> KValue {
        let operand = self.operand(dtype, len, false);
        let access = self.access(offset, strides);
        self.push(KOp::Load { operand, access }, dtype, K::moving(strides))
    }
    pub(crate) fn constant(&mut self, dtype: DType, value: f64) -> KValue {
        let s = if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        self.push(KOp::Const(s), dtype, AxisSet::EMPTY)
    }
    pub(crate) fn unary(&mut self, op: UnaryOp, x: KValue) -> KValue {
        let dtype = if op.is_test() { DType::Bool } else { self.dtype(x) };
        let mask = self.mask(x);
        self.push(KOp::Unary(op, x), dtype, mask)
    }
    pub(crate) fn binary(&mut self, op: BinaryOp, a: KValue, b: KValue) -> KValue {
        let dtype = if op.is_comparison() { DType::Bool } else { self.dtype(a) };
        let mask = self.mask(a).or(self.mask(b));
        self.push(KOp::Binary(op, a, b), dtype, mask)
    }
    pub(crate) fn select(&mut self, c: KValue, a: KValue, b: KValue) -> KValue {
        let (dtype, mask) = (self.dtype(a), self.mask(a).or(self.mask(b)).or(self.mask(c)));
        self.push(KOp::Select(c, a, b), dtype, mask)
    }
    pub(crate) fn cast(&mut self, x: KValue, to: DType) -> KValue {
        let mask = self.mask(x);
        self.push(KOp::Cast(x), to, mask)
    }
    pub(crate) fn widen(&mut self, x: KValue, axes: &[usize]) -> KValue {
        let mask = axes.iter().fold(self.mask(x), |m, &a| m.or(AxisSet::one(a)));
        let dtype = self.dtype(x);
        self.push(KOp::Unary(UnaryOp::Copy, x), dtype, mask)
    }
    pub(crate) fn reduce(&mut self, op: KReduce, x: KValue, axes: &[usize]) -> KValue {
        let over = axes.iter().fold(AxisSet::EMPTY, |m, &a| m.or(AxisSet::one(a)));
        let (dtype, mask) = (self.dtype(x), self.mask(x).minus(over));
        self.push(KOp::Reduce(op, x, over), dtype, mask)
    }
    /// Stores to a new dense operand over some axes.
    pub(crate) fn store(&mut self, v: KValue, axes: &[usize]) {
        let strides = self.dense(axes);
        let len = self.count(axes);
        self.store_at(v, len, 0, &strides);
    }
    pub(crate) fn store_at(&mut self, v: KValue, len: i64, offset: i64, strides: &[i64]) {
        let operand = self.operand(self.dtype(v), len, true);
        let access = self.access(offset, strides);
        self.kernel.stores.push(KStore { operand, access, value: v });
    }
    /// `a[batch.., m, k] x b[batch.., k, n]` over dense operands; `b_batch` says whether b has the batch axes, `b_t` that it is
    /// stored as `[n, k]`.
    pub(crate) fn matmul(
        &mut self,
        dtype: DType,
        k: i64,
        b_batch: bool,
        b_t: bool,
        packable: bool,
    ) -> KValue {
        let axes = self.extents.len();
        let (m, n) = (self.extents[axes - 2], self.extents[axes - 1]);
        let batch: i64 = self.extents[..axes - 2].iter().product();
        let (mut a_s, mut b_s) = (vec![0; axes], vec![0; axes]);
        let mut stack = 1;
        for i in (0..axes - 2).rev() {
            a_s[i] = stack * m * k;
            b_s[i] = if b_batch { stack * k * n } else { 0 };
            stack *= self.extents[i];
        }
        a_s[axes - 2] = k;
        b_s[axes - 1] = if b_t { k } else { 1 };
        let a = self.operand(dtype, batch * m * k, false);
        let b = self.operand(dtype, if b_batch { batch * k * n } else { k * n }, false);
        self.kernel.operands[b as usize].packable = packable;
        let (a_access, b_access) = (self.access(0, &a_s), self.access(0, &b_s));
        let (a_k, b_k, k) = (self.dim(1), self.dim(if b_t { 1 } else { n }), self.dim(k));
        let op = KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k };
        self.push(op, dtype, AxisSet::first(axes))
    }
    pub(crate) fn values(&self) -> DimValues {
        let mut values = DimValues::default();
        self.dims.eval_all(&Bindings::new(), &mut values);
        values
    }
    /// A tensor for each operand: inputs deterministic and tame, outputs zero.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let values = self.values();
        let make = |(i, o): (usize, &Operand)| {
            let n = values.extent(o.len).unwrap() as usize;
            let mut t = Tensor::zeros(o.dtype, &[n]).unwrap();
            if !o.write {
                let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ (i as u64 + 1) << 32;
                for j in 0..n {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let x = (state >> 40) as f64 / f64::from(1 << 24);
                    let s = match o.dtype {
                        d if d.is_float() => Scalar::Float(x * 4.0 - 2.0),
                        DType::Bool => Scalar::Int(i64::from(x > 0.3)),
                        d if d.is_unsigned() => Scalar::Int((x * 9.0) as i64),
                        _ => Scalar::Int((x * 9.0) as i64 - 4),
                    };
                    t.set(j, s);
                }
            }
            t
        };
        self.kernel.operands.iter().enumerate().map(make).collect()
    }
}

/// Compiles a kernel and makes it a program of one unit.
pub(crate) fn program(k: &K, spec: &MachineSpec) -> Result<(Program, dvm_tile::Tiling), dvm_tile::TileError> {
    let values = k.values();
    let (template, tiling) = dvm_tile::compile_kernel(&k.kernel, &values, spec)?;
    let mut args = vec![];
    for (o, slot) in k.kernel.operands.iter().zip(&template.slots) {
        let bytes = values.extent(o.len).unwrap() * o.dtype.size() as u64;
        let (mut role, mut layout, mut packed) = (Role::Input, Layout::Plain, bytes);
        if o.write {
            role = Role::Output;
        }
        if let (true, Some(p)) = (o.packable, &tiling.pack) {
            role = Role::Weight;
            let m = &p.matrices;
            layout = Layout::Panels { nr: p.nr, k: m.k, n: m.n, batch: m.batch };
            packed = p.bytes(o.dtype.size() as u32).unwrap();
        }
        let zero = o.write && (tiling.tiles == 0 || partly(k, &values));
        args.push(Arg {
            name: slot.name.clone(),
            role,
            dtype: slot.dtype,
            bytes: packed,
            align: 64,
            layout,
            zero,
        });
    }
    if tiling.ring > 0 {
        args.push(Arg {
            name: "ring".into(),
            role: Role::Ring,
            dtype: dvm_bc::DType::U8,
            bytes: tiling.ring,
            align: 64,
            layout: Layout::Plain,
            zero: false,
        });
    }
    let slots = (0..args.len() as u32).map(|a| (a, 0)).collect();
    let unit = Unit { template: 0, slots, weight: 1 };
    let program = Program {
        name: k.kernel.name.clone(),
        target: spec.target.clone(),
        args,
        templates: vec![template],
        steps: vec![Step { units: vec![unit], limits: vec![] }],
        aliases: vec![],
    };
    Ok((program, tiling))
}

/// Whether some output is not fully written.
fn partly(k: &K, values: &DimValues) -> bool {
    let mut stored = vec![0u64; k.kernel.operands.len()];
    for s in &k.kernel.stores {
        let mask = k.kernel.body[s.value.index()].mask;
        let n = (0..k.kernel.axes.len())
            .filter(|&a| mask.has(a))
            .map(|a| values.extent(k.kernel.axes[a]).unwrap());
        stored[s.operand as usize] += n.product::<u64>();
    }
    k.kernel.operands.iter().zip(stored).any(|(o, n)| o.write && values.extent(o.len).unwrap() != n)
}

/// Compiles, verifies and runs a kernel on a machine; returns the operands' tensors.
pub(crate) fn run(k: &K, spec: &MachineSpec, isa: Isa, workers: usize) -> Vec<Tensor> {
    let name = &k.kernel.name;
    let (program, tiling) = program(k, spec).unwrap_or_else(|e| panic!("{}: {e}", spec.target.name));
    let verified = Verified::new(program, &Limits::default()).unwrap_or_else(|e| {
        panic!("{name} on {}:\n{tiling}\n{e}\n{}", spec.target.name, k.kernel.display(&k.dims))
    });
    dvm_tile::assert_sound(&verified);
    let mut options = BuildOptions::default();
    options.isa = isa;
    let exe = Executable::with_options(verified, &options).unwrap();
    let mut tensors = k.tensors();
    let packed = k.kernel.operands.iter().zip(&tensors).map(|(o, t)| match (&tiling.pack, o.packable) {
        (Some(p), true) => Some(pack_panels(t.bytes(), o.dtype.size() as u32, &p.matrices, p.nr).unwrap()),
        _ => None,
    });
    // Panels want the alignment of their elements, which a byte vector does not promise.
    let packed: Vec<Option<Tensor>> =
        packed.map(|p| p.map(|p| Tensor::from_bytes(DType::U8, &[p.len()], &p).unwrap())).collect();
    let mut args: Vec<ArgRef<'_>> = vec![];
    for ((t, o), p) in tensors.iter_mut().zip(&k.kernel.operands).zip(&packed) {
        args.push(match p {
            Some(p) => ArgRef::In(p.bytes()),
            None if o.write => ArgRef::Out(t.bytes_mut()),
            None => ArgRef::In(t.bytes()),
        });
    }
    if tiling.ring > 0 {
        args.push(ArgRef::Ring);
    }
    let runtime = Runtime::new(Arc::new(Pool::new(workers)));
    runtime.launch(&exe, &mut args).unwrap_or_else(|e| panic!("{name} on {}: {e}", spec.target.name));
    drop(args);
    tensors
}

/// Runs the kernel on every test machine and compares with the reference evaluator.
pub(crate) fn check(k: &K) {
    let mut expect = k.tensors();
    let name = &k.kernel.name;
    dvm_ir::eval::eval_kernel(&k.kernel, &k.dims, &Bindings::new(), &mut expect)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for spec in ["host-ref", "tiny", "tiny-npu", "ascend-910b2", "ascend-950"] {
        let spec = MachineSpec::named(spec).unwrap();
        let got = run(k, &spec, Isa::detect(), 2);
        for (i, o) in k.kernel.operands.iter().enumerate().filter(|o| o.1.write) {
            compare(&format!("{name} ${i} on {}", spec.target.name), &got[i], &expect[i], o.dtype);
        }
    }
}

fn compare(what: &str, got: &Tensor, expect: &Tensor, dtype: DType) {
    let (rtol, atol) = match dtype {
        DType::F16 => (4e-3, 4e-3),
        DType::BF16 => (3e-2, 3e-2),
        d if d.is_float() => (2e-4, 2e-4),
        _ => (0.0, 0.0),
    };
    for i in 0..expect.len() {
        let (g, e) = (got.get(i), expect.get(i));
        let (x, y) = (g.as_f64(), e.as_f64());
        let close = g == e || x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= atol + rtol * y.abs();
        assert!(close, "{what}: element {i} is {g}, expected {e}");
    }
}
