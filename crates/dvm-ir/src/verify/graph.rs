use super::{Report, Violation};
use crate::{Answer, Attr, Dim, Graph, Node, TensorType, Value, ValueDef, ValueId, infer};

impl Graph {
    /// Checks every rule of a graph.
    ///
    /// # Errors
    /// All violations.
    pub fn verify(&self) -> Result<(), Vec<Violation>> {
        self.verify_at(0)
    }
    pub(super) fn verify_at(&self, depth: usize) -> Result<(), Vec<Violation>> {
        let mut r = Report::new(&self.dims);
        for (i, v) in self.values.iter().enumerate() {
            r.at(ValueId::new(i));
            self.verify_value(&mut r, ValueId::new(i), v);
        }
        self.verify_interface(&mut r);
        for (i, c) in self.checks.iter().enumerate() {
            r.at(format_args!("check {i} ({})", c.what));
            r.dims_exist("condition", &c.cond.dims());
        }
        let mut broken = vec![false; self.nodes.len()];
        for (i, n) in self.nodes.iter().enumerate() {
            r.at(place(i, n));
            broken[i] = !self.verify_operands(&mut r, i, n);
        }
        self.verify_controls(&mut r, depth);
        // Inference indexes what the rules above have shown to exist.
        if r.found.is_empty() {
            self.verify_types(&mut r);
        }
        r.finish()
    }

    fn verify_value(&self, r: &mut Report<'_>, id: ValueId, v: &Value) {
        r.dims_exist("shape", &v.ty.shape);
        match v.def {
            ValueDef::Input(i) => {
                let input = self.inputs.get(i as usize);
                let same = input.is_some_and(|x| x.value == id);
                r.require(same, format_args!("is not input {i} of the graph"));
            }
            ValueDef::Const(c) => {
                let Some(t) = self.constants.get(c.index()) else {
                    return r.fail(format_args!("{c} is not among {} constants", self.constants.len()));
                };
                let extents = v.ty.shape.iter().filter(|d| d.index() < self.dims.len());
                let extents: Vec<Option<i64>> = extents.map(|&d| self.dims.as_const(d)).collect();
                let same = v.ty.dtype == t.dtype()
                    && extents.len() == t.shape().len()
                    && extents
                        .iter()
                        .zip(t.shape())
                        .all(|(e, &n)| *e == i64::try_from(n).ok() && e.is_some());
                r.require(same, format_args!("the constant is {}{:?}", t.dtype(), t.shape()));
            }
            ValueDef::Node(n) => {
                let same = self.nodes.get(n.index()).is_some_and(|x| x.output == id);
                r.require(same, format_args!("is not the output of {n}"));
            }
            ValueDef::Control(c, i) => {
                let made = self.controls.get(c.index()).and_then(|x| x.outputs.get(i as usize));
                r.require(made == Some(&id), format_args!("is not result {i} of {c}"));
            }
        }
    }

    fn verify_interface(&self, r: &mut Report<'_>) {
        let count = self.values.len();
        for (i, input) in self.inputs.iter().enumerate() {
            r.at(format_args!("input {:?}", input.name));
            let v = input.value;
            if r.require(v.index() < count, format_args!("{v} is not among {count} values")) {
                let same = self.value(v).def == ValueDef::Input(i as u32);
                r.require(same, format_args!("{v} is not defined as input {i}"));
                if let Some(elements) = &input.elements {
                    self.verify_elements(r, &self.value(v).ty, elements);
                }
            }
        }
        for o in &self.outputs {
            r.at(format_args!("output {:?}", o.name));
            r.require(o.value.index() < count, format_args!("{} is not among {count} values", o.value));
        }
        r.at(format_args!("graph {:?}", self.name));
        r.unique("input", self.inputs.iter().map(|x| x.name.as_str()));
        r.unique("output", self.outputs.iter().map(|x| x.name.as_str()));
    }

    fn verify_elements(&self, r: &mut Report<'_>, ty: &TensorType, elements: &[Dim]) {
        r.require(ty.dtype.is_int(), format_args!("elements of a {} tensor are no sizes", ty.dtype));
        if r.dims_exist("elements", elements) && r.dims_exist("shape", &ty.shape) {
            let extents: Option<Vec<i64>> = ty.shape.iter().map(|&d| self.dims.as_const(d)).collect();
            let n = extents.and_then(|e| e.iter().try_fold(1i64, |n, &d| n.checked_mul(d)));
            let same = n == i64::try_from(elements.len()).ok();
            r.require(same, format_args!("{} elements are named, the shape has {n:?}", elements.len()));
        }
    }

    fn verify_operands(&self, r: &mut Report<'_>, i: usize, n: &Node) -> bool {
        let mut fine = true;
        for &v in &n.inputs {
            fine &= match self.values.get(v.index()).map(|v| v.def) {
                None => r.require(false, format_args!("{v} is not among {} values", self.values.len())),
                Some(ValueDef::Node(d)) => {
                    r.require(d.index() < i, format_args!("{v} is defined by the later {d}"))
                }
                Some(ValueDef::Control(c, _)) => {
                    let before = self.controls.get(c.index()).is_some_and(|c| c.at as usize <= i);
                    r.require(before, format_args!("{v} is defined by the later {c}"))
                }
                Some(_) => true,
            };
        }
        let defined = self
            .values
            .get(n.output.index())
            .is_some_and(|v| matches!(v.def, ValueDef::Node(d) if d.index() == i));
        fine &= r.require(defined, format_args!("its output {} is defined elsewhere", n.output));
        for (name, attr) in n.op.attrs() {
            fine &= match attr {
                Attr::Dim(d) => r.dims_exist(name, &[d]),
                Attr::Dims(d) => r.dims_exist(name, &d),
                _ => true,
            };
        }
        fine
    }

    fn verify_types(&self, r: &mut Report<'_>) {
        let mut dims = self.dims.clone();
        let mut asked = vec![];
        for (i, n) in self.nodes.iter().enumerate() {
            r.at(place(i, n));
            let operands: Vec<&TensorType> = n.inputs.iter().map(|&v| &self.value(v).ty).collect();
            let inferred = match infer(&n.op, &operands, &mut dims, &mut asked) {
                Ok(t) => t,
                Err(e) => {
                    r.fail(e);
                    continue;
                }
            };
            let ty = &self.value(n.output).ty;
            let same = ty.dtype == inferred.dtype
                && ty.shape.len() == inferred.shape.len()
                && ty.shape.iter().zip(&inferred.shape).all(|(&a, &b)| dims.is_equal(a, b) == Answer::Proven);
            if !same {
                let (is, should) = (dims.display_type(ty), dims.display_type(&inferred));
                r.fail(format_args!("type is {is}, inference gives {should}"));
            }
            for c in asked.drain(..) {
                let known = dims.is_checked(c.cond, &self.checks);
                if !known {
                    let cond = dims.display_cond(c.cond);
                    r.fail(format_args!("`{cond}` is not among the checks ({})", c.what));
                }
            }
        }
    }
}

fn place(i: usize, n: &Node) -> String {
    match &n.name {
        Some(name) => format!("n{i} ({} {name:?})", n.op.mnemonic()),
        None => format!("n{i} ({})", n.op.mnemonic()),
    }
}
