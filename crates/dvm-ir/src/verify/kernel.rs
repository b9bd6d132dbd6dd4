use super::{Report, Violation};
use crate::infer::{binary_dtype, unary_dtype};
use crate::kernel::{Access, AxisSet, KInst, KOp, KReduce, KStore, KValue, Kernel, MAX_AXES};
use crate::{DType, Dim, DimTable};

impl Kernel {
    /// Checks every rule of a kernel; `dims` is the table of the plan or graph that owns it.
    ///
    /// # Errors
    /// All violations.
    pub fn verify(&self, dims: &DimTable) -> Result<(), Vec<Violation>> {
        let mut r = Report::new(dims);
        self.verify_into(&mut r, "");
        r.finish()
    }

    pub(super) fn verify_into(&self, r: &mut Report<'_>, owner: &str) {
        r.at(format_args!("{owner}kernel {}", self.name));
        if !r.require(
            self.axes.len() <= MAX_AXES,
            format_args!("{} axes, the limit is {MAX_AXES}", self.axes.len()),
        ) {
            return;
        }
        r.dims_exist("axes", &self.axes);
        for (i, o) in self.operands.iter().enumerate() {
            r.at(format_args!("{owner}${i}"));
            r.dims_exist("length", &[o.len]);
            r.require(!(o.write && o.packable), "a written operand cannot be packed");
            let stored = self.stores.iter().any(|s| s.operand as usize == i);
            r.require(!o.write || stored, "is written by no store");
        }
        for (i, inst) in self.body.iter().enumerate() {
            r.at(format_args!("{owner}{}", KValue::new(i)));
            self.verify_inst(r, i, inst);
        }
        for (i, s) in self.stores.iter().enumerate() {
            r.at(format_args!("{owner}store {i}"));
            self.verify_store(r, s);
        }
    }

    fn verify_inst(&self, r: &mut Report<'_>, at: usize, inst: &KInst) {
        let all = AxisSet::first(self.axes.len());
        let outside = inst.mask.minus(all);
        r.require(outside.is_empty(), format_args!("varies along {outside}, which is no axis"));
        for x in inst.op.values() {
            if !r.require(x.index() < at, format_args!("{x} is not defined before")) {
                return;
            }
        }
        let (dtype, mask) = match &inst.op {
            KOp::Load { operand, access } => {
                self.verify_access(r, access, inst.mask);
                (self.read_dtype(r, *operand), AxisSet::EMPTY)
            }
            KOp::Gather { operand, access, index, stride, limit } => {
                self.verify_access(r, access, inst.mask);
                r.dims_exist("gathered axis", &[*stride, *limit]);
                let d = self.body[index.index()].dtype;
                r.require(matches!(d, DType::I32 | DType::I64), format_args!("index {index} is {d}"));
                (self.read_dtype(r, *operand), self.mask_of(&[*index]))
            }
            KOp::Iota { access } => {
                self.verify_access(r, access, inst.mask);
                (Some(inst.dtype), AxisSet::EMPTY)
            }
            KOp::Const(_) | KOp::DimConst(_) => {
                if let KOp::DimConst(d) = inst.op {
                    r.dims_exist("value", &[d]);
                }
                (Some(inst.dtype), AxisSet::EMPTY)
            }
            KOp::Unary(u, x) => (self.ruled(r, unary_dtype(*u, self.dtype_of(*x))), self.mask_of(&[*x])),
            KOp::Binary(b, x, y) => {
                self.same_dtype(r, &[*x, *y]);
                (self.ruled(r, binary_dtype(*b, self.dtype_of(*x))), self.mask_of(&[*x, *y]))
            }
            KOp::Fma(x, y, z) | KOp::Clamp(x, y, z) => {
                self.same_dtype(r, &[*x, *y, *z]);
                (Some(self.dtype_of(*x)), self.mask_of(&[*x, *y, *z]))
            }
            KOp::Select(c, x, y) => {
                r.require(
                    self.dtype_of(*c) == DType::Bool,
                    format_args!("condition {c} is {}", self.dtype_of(*c)),
                );
                self.same_dtype(r, &[*x, *y]);
                (Some(self.dtype_of(*x)), self.mask_of(&[*c, *x, *y]))
            }
            KOp::Cast(x) => (Some(inst.dtype), self.mask_of(&[*x])),
            KOp::Reduce(how, x, axes) => {
                let logical = matches!(how, KReduce::Any | KReduce::All);
                let d = self.dtype_of(*x);
                r.require(logical == (d == DType::Bool), format_args!("{} of {d}", how.name()));
                let left = self.reduced(r, *x, *axes, inst.mask);
                (Some(d), left)
            }
            KOp::ArgReduce { x, axis, .. } => {
                let axes = self.one_axis(r, *axis);
                (Some(DType::I64), self.reduced(r, *x, axes, inst.mask))
            }
            KOp::CumSum { x, axis, .. } => {
                let axes = self.one_axis(r, *axis);
                let absent = axes.minus(self.mask_of(&[*x]));
                r.require(absent.is_empty(), format_args!("{x} does not vary along {absent}"));
                (Some(self.dtype_of(*x)), self.mask_of(&[*x]))
            }
            KOp::MatMul { a, a_access, a_k, b, b_access, b_k, k } => {
                r.require(at == 0, "a matmul must be the first op");
                r.dims_exist("k", &[*a_k, *b_k, *k]);
                // A contraction has columns of its own behind.
                let n = self.axes.len().saturating_sub(usize::from(self.contraction().is_some()));
                let all = AxisSet::first(n);
                if r.require(n >= 2, "a matmul needs the axes m and n") {
                    self.verify_access(r, a_access, all.minus(AxisSet::one(n - 1)));
                    self.verify_access(r, b_access, all.minus(AxisSet::one(n - 2)));
                }
                let (da, db) = (self.read_dtype(r, *a), self.read_dtype(r, *b));
                r.require(da == db, "operands of a matmul must have one dtype");
                // The product's dtype says where it is rounded, so it may be wider than the operands'.
                (Some(inst.dtype), all)
            }
            KOp::Contract { a, b, b_access } => {
                let n = self.axes.len();
                let only = self.contraction() == Some(KValue::new(at));
                r.require(only, "a kernel holds one contraction");
                let mut left = all;
                if r.require(n >= 3, "a contraction needs the axes m, k and n") {
                    self.verify_access(r, b_access, all.minus(AxisSet::one(n - 3)));
                    let columns = self.mask_of(&[*a]).has(n - 1);
                    r.require(!columns, format_args!("{a} varies along the columns of the product"));
                    let sums = inst.mask.has(n - 2);
                    r.require(!sums, format_args!("the mask still has i{}, which is summed over", n - 2));
                    left = all.minus(AxisSet::one(n - 2));
                }
                let db = self.read_dtype(r, *b);
                r.require(db == Some(self.dtype_of(*a)), "operands of a product must have one dtype");
                (Some(inst.dtype), left)
            }
        };
        if let Some(d) = dtype {
            r.require(d == inst.dtype, format_args!("dtype is {}, the op gives {d}", inst.dtype));
        }
        let missing = mask.minus(inst.mask);
        r.require(missing.is_empty(), format_args!("varies along {missing}, which its mask lacks"));
    }

    fn verify_store(&self, r: &mut Report<'_>, s: &KStore) {
        let Some(v) = self.body.get(s.value.index()) else {
            return r.fail(format_args!("{} is not a value of the body", s.value));
        };
        self.verify_access(r, &s.access, v.mask);
        for (i, (&stride, &extent)) in s.access.strides.iter().zip(&self.axes).enumerate() {
            let collides = v.mask.has(i) && stride == Dim::ZERO && extent != Dim::ONE && extent != Dim::ZERO;
            r.require(!collides, format_args!("elements along i{i} are stored to one address"));
        }
        match self.operands.get(s.operand as usize) {
            None => r.fail(format_args!("operand ${} does not exist", s.operand)),
            Some(o) => {
                r.require(o.write, format_args!("operand ${} is not written", s.operand));
                r.require(
                    o.dtype == v.dtype,
                    format_args!("{} of {} in a buffer of {}", s.value, v.dtype, o.dtype),
                );
            }
        }
    }

    /// Strides of axes outside the mask must be 0.
    fn verify_access(&self, r: &mut Report<'_>, a: &Access, mask: AxisSet) {
        let (n, strides) = (self.axes.len(), a.strides.len());
        r.dims_exist("address", &[a.offset]);
        r.dims_exist("strides", &a.strides);
        if r.require(strides == n, format_args!("an address of {strides} strides over {n} axes")) {
            for i in (0..n).filter(|&i| !mask.has(i)) {
                let zero = a.strides[i] == Dim::ZERO || self.axes[i] == Dim::ONE;
                r.require(zero, format_args!("the address varies along i{i}, which the mask lacks"));
            }
        }
    }
    fn reduced(&self, r: &mut Report<'_>, x: KValue, axes: AxisSet, mask: AxisSet) -> AxisSet {
        let from = self.mask_of(&[x]);
        let absent = axes.minus(from);
        r.require(absent.is_empty(), format_args!("{x} does not vary along {absent}"));
        let kept = AxisSet(mask.0 & axes.0);
        r.require(kept.is_empty(), format_args!("the mask still has the reduced {kept}"));
        from.minus(axes)
    }
    fn one_axis(&self, r: &mut Report<'_>, axis: u8) -> AxisSet {
        let exists = r.require((axis as usize) < self.axes.len(), format_args!("i{axis} is no axis"));
        if exists { AxisSet::one(axis as usize) } else { AxisSet::EMPTY }
    }
    fn read_dtype(&self, r: &mut Report<'_>, operand: u32) -> Option<DType> {
        let o = self.operands.get(operand as usize);
        match o {
            None => r.fail(format_args!("operand ${operand} does not exist")),
            Some(o) => {
                r.require(!o.write, format_args!("operand ${operand} is written, not read"));
            }
        }
        o.map(|o| o.dtype)
    }
    fn ruled(&self, r: &mut Report<'_>, dtype: Result<DType, &'static str>) -> Option<DType> {
        dtype.map_err(|rule| r.fail(rule)).ok()
    }
    fn same_dtype(&self, r: &mut Report<'_>, values: &[KValue]) {
        let one = values.iter().all(|&v| self.dtype_of(v) == self.dtype_of(values[0]));
        r.require(one, "operands must have one dtype");
    }
    fn dtype_of(&self, v: KValue) -> DType {
        self.body[v.index()].dtype
    }
    fn mask_of(&self, values: &[KValue]) -> AxisSet {
        values.iter().fold(AxisSet::EMPTY, |m, v| m.or(self.body[v.index()].mask))
    }
}

impl KOp {
    /// The values of the body it uses.
    #[must_use]
    pub fn values(&self) -> smallvec::SmallVec<[KValue; 3]> {
        let mut v = smallvec::SmallVec::new();
        match self {
            KOp::Load { .. } | KOp::Const(_) | KOp::DimConst(_) | KOp::Iota { .. } | KOp::MatMul { .. } => {}
            KOp::Gather { index: x, .. }
            | KOp::Unary(_, x)
            | KOp::Cast(x)
            | KOp::Reduce(_, x, _)
            | KOp::ArgReduce { x, .. }
            | KOp::Contract { a: x, .. }
            | KOp::CumSum { x, .. } => v.push(*x),
            KOp::Binary(_, x, y) => v.extend([*x, *y]),
            KOp::Fma(x, y, z) | KOp::Select(x, y, z) | KOp::Clamp(x, y, z) => v.extend([*x, *y, *z]),
        }
        v
    }
}
