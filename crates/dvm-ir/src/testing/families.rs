//! The families of ops that random graphs are made of.

use super::random::Gen;
use crate::{BinaryOp, DType, Dim, Op, PadMode, ReduceOp, Scalar, UnaryOp, ValueId};

impl<'a> Gen<'a> {
    /// Tries to add an op of a random family.
    pub(super) fn step(&mut self) {
        let w = &self.config.weights;
        type Family<'a> = fn(&mut Gen<'a>) -> Option<ValueId>;
        let families: [(usize, Family<'a>); 15] = [
            (w.elementwise, Self::elementwise),
            (w.integer, Self::integer),
            (w.compare_select, Self::compare_select),
            (w.cast, Self::cast),
            (w.reduce, Self::reduce),
            (w.arg_reduce, Self::arg_reduce),
            (w.cumsum, Self::cumsum),
            (w.view, Self::view),
            (w.window, Self::window),
            (w.matmul, Self::matmul),
            (w.composite, Self::composite),
            (w.gather, Self::gather),
            (w.concat, Self::concat),
            (w.pad, Self::pad),
            (w.generate, Self::generate),
        ];
        let mut at = self.rng.below(families.iter().map(|f| f.0).sum());
        for (weight, family) in families {
            if at < weight {
                // Unfit choices are tried again a few times.
                let _ = (0..4).find_map(|_| family(self));
                return;
            }
            at -= weight;
        }
    }

    /// The second operand of an elementwise op: another value, a scalar, or a constant row.
    fn partner(&mut self, x: ValueId) -> Option<ValueId> {
        let dtype = self.g.dtype(x);
        match self.rng.below(10) {
            0 | 1 => {
                let value = if dtype.is_float() {
                    self.rng.int(-12, 12) as f64 / 4.0
                } else {
                    self.rng.int(1, 5) as f64
                };
                Some(self.scalar(dtype, value))
            }
            2 => {
                let last = *self.g.shape(x).last()?;
                let n = usize::try_from(self.g.dims.as_const(last)?).ok()?;
                Some(self.constant(dtype, &[n], if dtype.is_float() { (-2.0, 2.0) } else { (1.0, 5.0) }))
            }
            _ => self.any(|d| d == dtype),
        }
    }
    fn elementwise(&mut self) -> Option<ValueId> {
        use UnaryOp as U;
        let x = self.float()?;
        let dtype = self.g.dtype(x);
        let unary = [
            U::Neg,
            U::Abs,
            U::Exp,
            U::Tanh,
            U::Sigmoid,
            U::Erf,
            U::Sin,
            U::Cos,
            U::Atan,
            U::Sign,
            U::Round,
            U::Floor,
            U::Ceil,
            U::Trunc,
            U::Exp2,
            U::Expm1,
            U::Copy,
        ];
        match self.rng.below(20) {
            0..=5 => {
                let op = self.rng.pick(&unary);
                self.push(Op::Unary(op), &[x])
            }
            // Made positive first.
            6 | 7 => {
                let (half, abs) = (self.scalar(dtype, 0.5), self.push(Op::Unary(U::Abs), &[x])?);
                let y = self.push(Op::Binary(BinaryOp::Add), &[abs, half])?;
                match self.rng.below(3) {
                    0 => {
                        let z = self.any(|d| d == dtype)?;
                        self.push(Op::Binary(BinaryOp::Div), &[z, y])
                    }
                    1 => {
                        let n = self.rng.pick(&[2.0, 3.0, 0.5, -1.0, -2.0]);
                        let n = self.scalar(dtype, n);
                        self.push(Op::Binary(BinaryOp::Pow), &[y, n])
                    }
                    _ => {
                        let op = self.rng.pick(&[U::Sqrt, U::Rsqrt, U::Reciprocal, U::Ln, U::Log2, U::Log1p]);
                        self.push(Op::Unary(op), &[y])
                    }
                }
            }
            8 => {
                let (lo, hi) = (self.scalar(dtype, -1.5), self.scalar(dtype, 1.0));
                self.push(Op::Clamp {}, &[x, lo, hi])
            }
            9 => {
                let (y, z) = (self.partner(x)?, self.partner(x)?);
                self.push(Op::Fma {}, &[x, y, z])
            }
            10 => {
                let y = self.scalar(dtype, 1.5);
                let op = self.rng.pick(&[BinaryOp::FloorDiv, BinaryOp::Rem, BinaryOp::Div]);
                self.push(Op::Binary(op), &[x, y])
            }
            _ => {
                let y = self.partner(x)?;
                let op = self.rng.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Mul,
                    BinaryOp::Max,
                    BinaryOp::Min,
                ]);
                let args = if self.rng.chance(50) { [x, y] } else { [y, x] };
                self.push(Op::Binary(op), &args)
            }
        }
    }
    fn integer(&mut self) -> Option<ValueId> {
        use BinaryOp as B;
        let x = self.any(|d| d.is_int())?;
        let y = self.partner(x)?;
        let op = self.rng.pick(&[
            B::Add,
            B::Sub,
            B::Mul,
            B::Max,
            B::Min,
            B::And,
            B::Or,
            B::Xor,
            B::Shl,
            B::Shr,
            B::FloorDiv,
            B::Rem,
            B::Fmod,
            B::Div,
        ]);
        if self.rng.chance(20) {
            let op = self.rng.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not, UnaryOp::Sign]);
            return self.push(Op::Unary(op), &[x]);
        }
        self.push(Op::Binary(op), &[x, y])
    }
    fn compare_select(&mut self) -> Option<ValueId> {
        use BinaryOp as B;
        let cond = match self.any(|d| d == DType::Bool) {
            Some(c) if self.rng.chance(50) => c,
            _ => {
                let x = self.any(|d| d != DType::Bool).filter(|&v| self.exact(v))?;
                let y = self.partner(x).filter(|&v| self.exact(v))?;
                let op = self.rng.pick(&[B::Lt, B::Le, B::Gt, B::Ge, B::Eq, B::Ne]);
                self.push(Op::Binary(op), &[x, y])?
            }
        };
        if self.rng.chance(20) {
            let other = self.any(|d| d == DType::Bool)?;
            let op = self.rng.pick(&[B::And, B::Or, B::Xor]);
            return self.push(Op::Binary(op), &[cond, other]);
        }
        let x = self.any(|d| d != DType::Bool)?;
        let y = self.partner(x)?;
        self.push(Op::Select {}, &[cond, x, y])
    }
    fn cast(&mut self) -> Option<ValueId> {
        let x = self.any(|_| true)?;
        let floats = self.config.floats.clone();
        let mut to = self.rng.pick(&floats);
        if !self.config.ints.is_empty() && self.exact(x) && self.rng.chance(40) {
            to = if self.rng.chance(20) { DType::Bool } else { self.rng.pick(&self.config.ints.clone()) };
        }
        self.push(Op::Cast { to }, &[x])
    }
    fn axis(&mut self, x: ValueId) -> Option<usize> {
        let rank = self.g.shape(x).len();
        // The last axis is what models reduce over.
        (rank > 0).then(|| if self.rng.chance(50) { rank - 1 } else { self.rng.below(rank) })
    }
    fn reduce(&mut self) -> Option<ValueId> {
        use ReduceOp as R;
        let x = self.any(|_| true)?;
        let dtype = self.g.dtype(x);
        let op = match dtype {
            DType::Bool => self.rng.pick(&[R::Any, R::All]),
            d if d.is_int() => self.rng.pick(&[R::Sum, R::Max, R::Min, R::Prod]),
            _ => self.rng.pick(&[
                R::Sum,
                R::Sum,
                R::Max,
                R::Min,
                R::Mean,
                R::Mean,
                R::L1,
                R::L2,
                R::SumSquare,
                R::LogSumExp,
                R::Prod,
            ]),
        };
        let axes = match self.rng.below(5) {
            0 => (0..self.g.shape(x).len()).collect(),
            1 => (0..self.g.shape(x).len()).filter(|_| self.rng.chance(50)).collect(),
            _ => vec![self.axis(x)?],
        };
        let keepdims = self.rng.chance(60);
        let y = self.push(Op::Reduce { op, axes, keepdims }, &[x])?;
        // Most reductions are broadcast back.
        if keepdims && self.rng.chance(70) && dtype.is_float() {
            let op = self.rng.pick(&[BinaryOp::Sub, BinaryOp::Add, BinaryOp::Mul]);
            return self.push(Op::Binary(op), &[x, y]).or(Some(y));
        }
        Some(y)
    }
    fn arg_reduce(&mut self) -> Option<ValueId> {
        let x = self.any(|d| d != DType::Bool).filter(|&v| self.exact(v))?;
        let (axis, keepdims, last) = (self.axis(x)?, self.rng.chance(50), self.rng.chance(30));
        let max = self.rng.chance(50);
        let op = if max { Op::ArgMax { axis, keepdims, last } } else { Op::ArgMin { axis, keepdims, last } };
        self.push(op, &[x])
    }
    fn cumsum(&mut self) -> Option<ValueId> {
        let x = self.any(|d| d != DType::Bool)?;
        let (axis, exclusive, reverse) = (self.axis(x)?, self.rng.chance(30), self.rng.chance(30));
        self.push(Op::CumSum { axis, exclusive, reverse }, &[x])
    }
    fn view(&mut self) -> Option<ValueId> {
        let x = self.any(|_| true)?;
        let shape = self.g.shape(x).to_vec();
        let rank = shape.len();
        match self.rng.below(6) {
            0 | 1 => self.reshape(x, shape),
            2 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                if rank > 1 && self.rng.chance(50) {
                    perm.swap(rank - 1, rank - 2);
                } else {
                    (1..rank).for_each(|i| perm.swap(i, self.rng.below(i + 1)));
                }
                self.push(Op::Transpose { perm }, &[x])
            }
            3 => {
                // To the shape of another value, or along a new leading axis.
                let other = self.any(|_| true)?;
                let to = match self.rng.below(2) {
                    0 => self.g.shape(other).to_vec(),
                    _ => [&[self.free_dim()], &shape[..]].concat(),
                };
                self.push(Op::Expand { shape: to }, &[x])
            }
            _ => self.slice(x, &shape),
        }
    }
    fn reshape(&mut self, x: ValueId, mut shape: Vec<Dim>) -> Option<ValueId> {
        let rank = shape.len();
        match self.rng.below(5) {
            // Merge two neighbours.
            0 | 1 if rank > 1 => {
                let i = self.rng.below(rank - 1);
                let product = self.g.dims.mul(shape[i], shape[i + 1]);
                shape.splice(i..i + 2, [product]);
            }
            // Split by a factor.
            2 | 3 if rank > 0 => {
                let i = self.rng.below(rank);
                let by = self.rng.pick(&[2, 3, 4]);
                let by = self.g.dims.constant(by);
                let rest = self.g.dims.floor_div(shape[i], by);
                shape.splice(i..=i, if self.rng.chance(50) { [by, rest] } else { [rest, by] });
            }
            4 if rank > 0 && self.rng.chance(50) => {
                let all = self.g.dims.product(&shape);
                shape = vec![all];
            }
            _ => match shape.iter().position(|&d| d == Dim::ONE) {
                Some(i) if self.rng.chance(50) => drop(shape.remove(i)),
                _ => shape.insert(self.rng.below(rank + 1), Dim::ONE),
            },
        }
        self.push(Op::Reshape { shape }, &[x])
    }
    fn slice(&mut self, x: ValueId, shape: &[Dim]) -> Option<ValueId> {
        let (mut start, mut len, mut step) = (vec![], vec![], vec![]);
        for &d in shape {
            let (one, two) = (Dim::ONE, self.g.dims.constant(2));
            let less = self.g.dims.sub(d, one);
            let half = self.g.dims.floor_div(d, two);
            let (s, l, by) = match self.rng.below(9) {
                0 => (less, d, -1),
                1 => (Dim::ZERO, self.g.dims.ceil_div(d, two), 2),
                2 => (one, less, 1),
                3 => (Dim::ZERO, half, 1),
                4 => (half, self.g.dims.sub(d, half), 1),
                5 => (less, self.g.dims.ceil_div(d, two), -2),
                _ => (Dim::ZERO, d, 1),
            };
            start.push(s);
            len.push(l);
            step.push(by);
        }
        self.push(Op::Slice { start, len, step }, &[x])
    }
    fn window(&mut self) -> Option<ValueId> {
        let x = self.float()?;
        let axis = self.axis(x)?;
        let d = self.g.shape(x)[axis];
        let (stride, dilation, size) = (self.rng.int(1, 2), self.rng.int(1, 2), self.rng.int(1, 3));
        // count = floor((d - (size-1)*dilation - 1) / stride) + 1
        let (reach, by) = (self.g.dims.constant((size - 1) * dilation + 1), self.g.dims.constant(stride));
        let room = self.g.dims.sub(d, reach);
        let whole = self.g.dims.floor_div(room, by);
        let count = self.g.dims.add(whole, Dim::ONE);
        let size = self.g.dims.constant(size);
        self.push(Op::Window { axis, count, size, stride, dilation }, &[x])
    }
    fn matmul(&mut self) -> Option<ValueId> {
        let x = self.float()?;
        let (dtype, shape) = (self.g.dtype(x), self.g.shape(x).to_vec());
        let &[.., m, k] = shape.as_slice() else { return None };
        let trans_a = self.rng.chance(15);
        let (trans_b, inner) = (self.rng.chance(40), if trans_a { m } else { k });
        let y = match self.g.dims.as_const(inner).and_then(|k| usize::try_from(k).ok()) {
            // A constant weight.
            Some(k) if self.rng.chance(75) => {
                let n = self.rng.pick(&[1, 2, 3, 5, 8, 17, 33]);
                let w = self.constant(dtype, &if trans_b { [n, k] } else { [k, n] }, (-1.0, 1.0));
                let y = self.push(Op::MatMul { trans_a, trans_b }, &[x, w])?;
                if self.rng.chance(60) {
                    let bias = self.constant(dtype, &[n], (-1.0, 1.0));
                    return self.push(Op::Binary(BinaryOp::Add), &[y, bias]).or(Some(y));
                }
                return Some(y);
            }
            // Another value, or x itself.
            _ if self.rng.chance(60) => self.any(|d| d == dtype)?,
            _ => x,
        };
        self.push(Op::MatMul { trans_a, trans_b }, &[x, y])
    }
    fn composite(&mut self) -> Option<ValueId> {
        let x = self.float()?;
        let axis = self.axis(x)?;
        let dtype = self.g.dtype(x);
        let last = *self.g.shape(x).last()?;
        let eps = self.rng.pick(&[1e-5, 1e-3, 0.1]);
        // Scale and bias are constant rows where the extent is known, else scalars.
        let row: Vec<usize> =
            self.g.dims.as_const(last).and_then(|n| usize::try_from(n).ok()).into_iter().collect();
        match self.rng.below(7) {
            0 | 1 => self.push(Op::Softmax { axis }, &[x]),
            2 => self.push(Op::LogSoftmax { axis }, &[x]),
            3 => {
                let scale = self.constant(dtype, &row, (0.5, 1.5));
                let bias = self.constant(dtype, &row, (-1.0, 1.0));
                let args = [x, scale, bias];
                let args = if self.rng.chance(80) { &args[..] } else { &args[..2] };
                self.push(Op::LayerNorm { axis, eps }, args)
            }
            4 => {
                let scale = self.constant(dtype, &row, (0.5, 1.5));
                self.push(Op::RmsNorm { axis, eps }, &[x, scale])
            }
            5 => {
                let tanh = self.rng.chance(30);
                self.push(Op::Gelu { tanh }, &[x])
            }
            _ => self.push(Op::Silu {}, &[x]),
        }
    }
    fn gather(&mut self) -> Option<ValueId> {
        let dtype = self.rng.pick(&[DType::I64, DType::I32]);
        let (b, s) = (self.g.dims.symbol("b"), self.g.dims.symbol("s"));
        match self.rng.below(3) {
            // An embedding table.
            0 => {
                let (rows, cols) = (self.rng.pick(&[1usize, 7, 30]), self.rng.pick(&[1usize, 4, 8, 12]));
                let floats = self.config.floats.clone();
                let float = self.rng.pick(&floats);
                let table = self.constant(float, &[rows, cols], (-2.0, 2.0));
                let shape = if self.rng.chance(70) { vec![b, s] } else { vec![s] };
                let index = self.add_input(dtype, &shape, (-(rows as f64), rows as f64 - 1.0))?;
                self.push(Op::Gather { axis: 0 }, &[table, index])
            }
            // Along an axis of a value, by an index that is computed modulo the extent.
            1 => {
                let x = self.any(|_| true)?;
                let axis = self.axis(x)?;
                let extent = self.g.shape(x)[axis];
                if self.least(extent) < 1 {
                    return None;
                }
                let raw = self.add_input(dtype, &[s], (0.0, 1000.0))?;
                let n = self.push(Op::Dims { values: vec![extent], scalar: true, dtype }, &[])?;
                // The bound of a dim is over these bindings, each at least 1.
                self.bounds[n.index()].lo = 1.0;
                let index = self.push(Op::Binary(BinaryOp::Rem), &[raw, n])?;
                self.push(Op::Gather { axis }, &[x, index])
            }
            _ => {
                let x = self.any(|_| true)?;
                let axis = self.axis(x)?;
                let shape = self.g.shape(x).to_vec();
                let n = self.least(shape[axis]);
                if n < 1 {
                    return None;
                }
                let index = self.add_input(dtype, &shape, (-(n as f64), n as f64 - 1.0))?;
                self.push(Op::GatherElements { axis }, &[x, index])
            }
        }
    }
    fn concat(&mut self) -> Option<ValueId> {
        let x = self.any(|_| true)?;
        let axis = self.axis(x)?;
        let (dtype, rank) = (self.g.dtype(x), self.g.shape(x).len());
        let mut parts = vec![x];
        for _ in 0..self.rng.int(1, 2) {
            let alike: Vec<ValueId> = (0..self.g.values.len())
                .map(ValueId::new)
                .filter(|&v| self.g.dtype(v) == dtype && self.g.shape(v).len() == rank)
                .filter(|&v| (0..rank).all(|a| a == axis || self.g.shape(v)[a] == self.g.shape(x)[a]))
                .collect();
            parts.push(self.rng.pick(&alike));
        }
        self.push(Op::Concat { axis }, &parts)
    }
    fn pad(&mut self) -> Option<ValueId> {
        let x = self.float()?;
        let rank = self.g.shape(x).len();
        let mode = self.rng.pick(PadMode::ALL);
        let mut amounts = |lo: i64| -> Vec<Dim> {
            (0..rank)
                .map(|_| if self.rng.chance(40) { self.rng.int(lo, 3) } else { 0 })
                .map(|n| self.g.dims.constant(n))
                .collect()
        };
        let lo = if mode == PadMode::Constant { -1 } else { 0 };
        let (before, after) = (amounts(lo), amounts(lo));
        self.push(Op::Pad { before, after, mode, value: Scalar::Float(0.0) }, &[x])
    }
    fn generate(&mut self) -> Option<ValueId> {
        let x = self.any(|_| true)?;
        let dtype = self.g.dtype(x);
        match self.rng.below(3) {
            0 => {
                let value = Scalar::Float(self.rng.int(0, 3) as f64);
                let shape = self.g.shape(x).to_vec();
                let dtype = if dtype == DType::Bool { DType::F32 } else { dtype };
                self.push(Op::Fill { value, dtype, shape }, &[])
            }
            1 if !dtype.is_half() && dtype != DType::Bool => {
                let len = *self.g.shape(x).last()?;
                let dtype = if dtype.size() == 1 { DType::I32 } else { dtype };
                let (start, step) = (self.rng.int(-2, 2), self.rng.int(-1, 2));
                let (start, step) = (self.g.dims.constant(start), self.g.dims.constant(step));
                self.push(Op::Range { start, step, len, dtype }, &[])
            }
            _ => {
                let values = vec![*self.g.shape(x).first()?];
                let dtype = if dtype.is_float() { dtype } else { DType::I64 };
                let scalar = self.rng.chance(70);
                self.push(Op::Dims { values, scalar, dtype }, &[])
            }
        }
    }
}
