use super::{Report, Violation};
use crate::plan::{Buffer, BufferId, BufferKind, KernelId, Plan};
use crate::{Answer, Dim, DimTable};

/// First and last level of the calls that read or write a buffer, and the calls themselves.
#[derive(Clone, Copy, Default)]
struct Use {
    last_write: Option<(usize, u32)>,
    first_read: Option<(usize, u32)>,
}

impl Plan {
    /// Checks every rule of a plan, its kernels included.
    ///
    /// # Errors
    /// All violations.
    pub fn verify(&self) -> Result<(), Vec<Violation>> {
        let mut r = Report::new(&self.dims);
        for (i, k) in self.kernels.iter().enumerate() {
            k.verify_into(&mut r, &format!("{} ", KernelId::new(i)));
        }
        self.verify_interface(&mut r);
        self.verify_limits(&mut r);
        for c in 0..self.calls.len() {
            r.at(format_args!("call {c}"));
            self.verify_call(&mut r, c);
        }
        self.verify_splits(&mut r);
        // Order and sizes presume that ids exist.
        if r.found.is_empty() {
            self.verify_sizes(&mut r);
            self.verify_order(&mut r);
        }
        r.finish()
    }

    /// What is made in parts is a plan too.
    fn verify_splits(&self, r: &mut Report<'_>) {
        for (i, s) in self.splits.iter().enumerate() {
            r.at(format_args!("split {i}"));
            r.require((s.call as usize) < self.calls.len(), format_args!("call {} does not exist", s.call));
            r.require(!s.parts.is_empty(), format_args!("call {} has no parts", s.call));
            let rising = i == 0 || self.splits[i - 1].call < s.call;
            r.require(rising, format_args!("call {} is not behind the one before", s.call));
        }
        if r.found.is_empty()
            && !self.splits.is_empty()
            && let Err(found) = self.in_parts().verify()
        {
            for v in found {
                r.at(format_args!("in parts: {}", v.at));
                r.fail(v.message);
            }
        }
    }

    fn verify_interface(&self, r: &mut Report<'_>) {
        let kind = |b: BufferId| self.buffers.get(b.index()).map(|b: &Buffer| &b.kind);
        for (i, b) in self.buffers.iter().enumerate() {
            let id = BufferId::new(i);
            r.at(format_args!("{id} {:?}", b.name));
            r.dims_exist("length", &[b.len]);
            let (known, dtype) = match b.kind {
                BufferKind::Temp => continue,
                BufferKind::Input(i) => {
                    let x = self.inputs.get(i as usize);
                    (x.map(|x| x.buffer) == Some(id), x.map(|x| x.dtype))
                }
                BufferKind::Output(i) => {
                    let x = self.outputs.get(i as usize);
                    (x.map(|x| x.buffer) == Some(id), x.map(|x| x.dtype))
                }
                BufferKind::Const(i) => {
                    let x = self.constants.get(i as usize);
                    (x.is_some(), x.map(|x| x.dtype()))
                }
            };
            if r.require(known, format_args!("is not the buffer of {}", b.kind)) {
                r.require(dtype == Some(b.dtype), format_args!("is {}, {} is not", b.dtype, b.kind));
            }
        }
        for (i, x) in self.inputs.iter().enumerate() {
            r.at(format_args!("input {:?}", x.input.name));
            r.dims_exist("shape", &x.shape);
            r.dims_exist("elements", x.input.elements.as_deref().unwrap_or(&[]));
            let owned = kind(x.buffer) == Some(&BufferKind::Input(i as u32));
            r.require(owned, format_args!("{} is not its buffer", x.buffer));
        }
        for (i, x) in self.outputs.iter().enumerate() {
            r.at(format_args!("output {:?}", x.name));
            r.dims_exist("shape", &x.shape);
            let owned = kind(x.buffer) == Some(&BufferKind::Output(i as u32));
            r.require(owned, format_args!("{} is not its buffer", x.buffer));
        }
        r.at(format_args!("plan {}", self.name));
        r.unique("input", self.inputs.iter().map(|x| x.input.name.as_str()));
        r.unique("output", self.outputs.iter().map(|x| x.name.as_str()));
        r.unique("buffer", self.buffers.iter().map(|x| x.name.as_str()));
        for c in &self.checks {
            r.at(format_args!("check {}", c.what));
            r.dims_exist("condition", &c.cond.dims());
        }
        for (i, b) in self.boundaries.iter().enumerate() {
            r.at(format_args!("boundary {i}"));
            let calls = [b.from, b.to].into_iter().all(|c| (c as usize) < self.calls.len());
            r.require(
                calls && b.buffer.index() < self.buffers.len(),
                "names a call or buffer that does not exist",
            );
        }
    }

    /// Core limits are in order and of calls that exist.
    fn verify_limits(&self, r: &mut Report<'_>) {
        let mut free = (0, 0);
        for l in &self.limits {
            r.at(format_args!("limit of level {}", l.level));
            let calls = self.levels.get(l.level as usize).map_or(0, |x| x.calls.len());
            let end = u64::from(l.first) + u64::from(l.calls);
            let sound = l.calls > 0 && l.cores > 0 && end <= calls as u64 && (l.level, l.first) >= free;
            r.require(
                sound,
                format_args!("{} cores for {} calls from {} on, of {calls}", l.cores, l.calls, l.first),
            );
            free = (l.level, l.first.saturating_add(l.calls));
        }
    }

    fn verify_call(&self, r: &mut Report<'_>, c: usize) {
        let call = &self.calls[c];
        let Some(k) = self.kernels.get(call.kernel.index()) else {
            return r.fail(format_args!("{} is not among {} kernels", call.kernel, self.kernels.len()));
        };
        let (given, takes) = (call.args.len(), k.operands.len());
        if !r.require(
            given == takes,
            format_args!("{given} buffers for the {takes} operands of {}", call.kernel),
        ) {
            return;
        }
        for (i, (&id, o)) in call.args.iter().zip(&k.operands).enumerate() {
            let Some(b) = self.buffers.get(id.index()) else {
                r.fail(format_args!("{id} is not among {} buffers", self.buffers.len()));
                continue;
            };
            r.require(b.dtype == o.dtype, format_args!("${i} is {}, {id} is {}", o.dtype, b.dtype));
            if o.write {
                let writable = matches!(b.kind, BufferKind::Output(_) | BufferKind::Temp);
                r.require(writable, format_args!("writes {id}, which is {}", b.kind));
                let alone = call.args.iter().filter(|&&x| x == id).count() == 1;
                r.require(alone, format_args!("writes {id}, which is another operand too"));
            }
            let packs = !o.packable || matches!(b.kind, BufferKind::Const(_));
            r.require(packs, format_args!("packs {id}, which is {}", b.kind));
        }
    }

    /// Lengths of operands, buffers, shapes and constants agree.
    fn verify_sizes(&self, r: &mut Report<'_>) {
        let mut dims = self.dims.clone();
        let differ = |dims: &mut DimTable, a: Dim, b: Dim| {
            (dims.is_equal(a, b) != Answer::Proven)
                .then(|| format!("{} and {}", dims.display(a), dims.display(b)))
        };
        for (c, call) in self.calls.iter().enumerate() {
            let operands = &self.kernels[call.kernel.index()].operands;
            for (i, (&id, o)) in call.args.iter().zip(operands).enumerate() {
                if let Some(lens) = differ(&mut dims, o.len, self.buffers[id.index()].len) {
                    r.at(format_args!("call {c}"));
                    r.fail(format_args!("lengths of ${i} and {id} are not provably equal: {lens}"));
                }
            }
        }
        let shaped = self.inputs.iter().map(|x| (&x.shape, x.buffer));
        for (shape, id) in shaped.chain(self.outputs.iter().map(|x| (&x.shape, x.buffer))) {
            let n = dims.product(shape);
            if let Some(lens) = differ(&mut dims, n, self.buffers[id.index()].len) {
                r.at(id);
                r.fail(format_args!("shape and length are not provably equal: {lens}"));
            }
        }
        for (i, b) in self.buffers.iter().enumerate() {
            if let BufferKind::Const(c) = b.kind {
                let n = self.constants[c as usize].len();
                let same = dims.as_const(b.len) == i64::try_from(n).ok();
                r.at(BufferId::new(i));
                r.require(same, format_args!("its constant has {n} elements"));
            }
        }
    }

    fn verify_order(&self, r: &mut Report<'_>) {
        let mut level_of: Vec<Option<usize>> = vec![None; self.calls.len()];
        for (l, level) in self.levels.iter().enumerate() {
            for &c in &level.calls {
                r.at(format_args!("level {l}"));
                match level_of.get_mut(c as usize) {
                    None => r.fail(format_args!("call {c} does not exist")),
                    Some(at @ None) => *at = Some(l),
                    Some(Some(earlier)) => {
                        let earlier = *earlier;
                        r.fail(format_args!("call {c} is in level {earlier} already"));
                    }
                }
            }
        }
        let mut uses = vec![Use::default(); self.buffers.len()];
        for (c, call) in self.calls.iter().enumerate() {
            let Some(level) = level_of[c] else {
                r.at(format_args!("call {c}"));
                r.fail("is in no level");
                continue;
            };
            let at = (level, c as u32);
            for (&id, o) in call.args.iter().zip(&self.kernels[call.kernel.index()].operands) {
                let u = &mut uses[id.index()];
                if o.write {
                    u.last_write = Some(u.last_write.map_or(at, |w| w.max(at)));
                } else {
                    u.first_read = Some(u.first_read.map_or(at, |x| x.min(at)));
                }
            }
        }
        for (i, (b, u)) in self.buffers.iter().zip(&uses).enumerate() {
            r.at(format_args!("{} {:?}", BufferId::new(i), b.name));
            match (u.last_write, u.first_read) {
                (None, Some((_, c))) if !matches!(b.kind, BufferKind::Input(_) | BufferKind::Const(_)) => {
                    r.fail(format_args!("call {c} reads it, nothing writes it"));
                }
                (None, _) if matches!(b.kind, BufferKind::Output(_)) => r.fail("nothing writes it"),
                (Some((wl, w)), Some((rl, c))) => {
                    r.require(
                        wl < rl,
                        format_args!("call {c} in level {rl} reads it, call {w} in level {wl} writes it"),
                    );
                    r.require(w < c, format_args!("call {c} reads it before call {w}, which writes it"));
                }
                _ => {}
            }
        }
    }
}
