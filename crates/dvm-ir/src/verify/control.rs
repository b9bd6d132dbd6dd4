//! Rules of controls and their bodies.

use super::Report;
use crate::{
    Answer, Control, ControlKind, DType, DimTable, Graph, MAX_BODY_DEPTH, MAX_READ_ELEMENTS, TensorType,
    ValueDef, result_type,
};

impl Graph {
    pub(super) fn verify_controls(&self, r: &mut Report<'_>, depth: usize) {
        // One copy for all: a graph may have many controls and many dims.
        let mut dims = if self.controls.is_empty() { DimTable::new() } else { self.dims.clone() };
        let mut last = 0;
        for (i, c) in self.controls.iter().enumerate() {
            let place = format!("ctl{i} ({c})");
            r.at(&place);
            let placed = last <= c.at && c.at as usize <= self.nodes.len();
            r.require(placed, format_args!("is after {} of {} nodes, out of order", c.at, self.nodes.len()));
            last = c.at;
            let bodies = c.kind.bodies();
            let mut fine = r.require(
                c.bodies.len() == bodies,
                format_args!("has {} bodies, not {bodies}", c.bodies.len()),
            );
            fine &= self.verify_control_values(r, i, c);
            if !r.require(depth < MAX_BODY_DEPTH, format_args!("bodies nest deeper than {MAX_BODY_DEPTH}")) {
                continue;
            }
            for (b, body) in c.bodies.iter().enumerate() {
                if let Err(found) = body.verify_at(depth + 1) {
                    fine = false;
                    for v in found {
                        r.at(format_args!("{place}, body {b}, {}", v.at));
                        r.fail(v.message);
                    }
                }
            }
            r.at(&place);
            if fine {
                self.verify_control(r, c, &mut dims);
            }
        }
    }

    /// The first rule that a control breaks whose bodies verify.
    pub(crate) fn control_violation(&self, i: usize) -> Option<String> {
        let mut r = Report::new(&self.dims);
        let c = &self.controls[i];
        if self.verify_control_values(&mut r, i, c) {
            // A copy costs no more than the bodies did.
            let mut dims = if c.bodies.is_empty() { DimTable::new() } else { self.dims.clone() };
            self.verify_control(&mut r, c, &mut dims);
        }
        r.found.into_iter().next().map(|v| v.message)
    }

    fn verify_control_values(&self, r: &mut Report<'_>, i: usize, c: &Control) -> bool {
        let mut fine = true;
        for &v in &c.inputs {
            fine &= match self.values.get(v.index()).map(|v| v.def) {
                None => r.require(false, format_args!("{v} is not among {} values", self.values.len())),
                Some(ValueDef::Node(n)) => {
                    r.require(n.0 < c.at, format_args!("{v} is defined by the later {n}"))
                }
                Some(ValueDef::Control(o, _)) => {
                    r.require(o.index() < i, format_args!("{v} is defined by the later {o}"))
                }
                Some(_) => true,
            };
        }
        for (k, &v) in c.outputs.iter().enumerate() {
            let made = self.values.get(v.index()).map(|v| v.def);
            let same = matches!(made, Some(ValueDef::Control(o, at)) if (o.index(), at as usize) == (i, k));
            fine &= r.require(same, format_args!("its result {v} is defined elsewhere"));
        }
        if let ControlKind::Read { elements } = &c.kind {
            fine &= r.dims_exist("elements", elements);
        }
        fine
    }

    /// Operands and bodies exist and verify.
    fn verify_control(&self, r: &mut Report<'_>, c: &Control, dims: &mut DimTable) {
        let types: Vec<TensorType> = c.inputs.iter().map(|&v| self.value(v).ty.clone()).collect();
        let (inputs, results) = (c.inputs.len(), c.outputs.len());
        let counts = |r: &mut Report<'_>, what: &str, is: usize, should: usize| {
            r.require(is == should, format_args!("has {is} {what}, not {should}"))
        };
        let ok = match &c.kind {
            ControlKind::If => {
                let bodies: usize = c.bodies.iter().map(|b| b.inputs.len()).sum();
                let mut ok = counts(r, "operands", inputs, 1 + bodies);
                for b in &c.bodies {
                    ok &= counts(r, "results", results, b.outputs.len());
                }
                ok && self.verify_flag(r, &types[0], "the condition")
                    && (0..2).all(|b| {
                        self.verify_body_inputs(r, c, b, 0, &types[1 + b * c.bodies[0].inputs.len()..])
                    })
            }
            ControlKind::Loop { carried, scanned, backward } => {
                let body = &c.bodies[0];
                let least = carried.saturating_add(*scanned).saturating_add(2);
                let mut ok = r.require(inputs >= least, format_args!("has {inputs} operands, needs {least}"));
                ok &= counts(r, "operands", inputs, body.inputs.len());
                ok &= counts(r, "results", results.saturating_add(1), body.outputs.len());
                ok &=
                    r.require(*carried <= results, format_args!("has {results} results, carries {carried}"));
                ok = ok && counts(r, "directions", backward.len(), scanned + (results - carried));
                ok && r.require(
                    types[0].dtype == DType::I64 && self.is_one(&types[0]),
                    "the number of iterations must be one i64",
                ) && self.verify_flag(r, &types[1], "the condition to begin")
                    && self.verify_flag(r, &body.value(body.outputs[0].value).ty, "the condition to go on")
                    && self.verify_body_inputs(r, c, 0, 2, &types[2..])
                    && {
                        let [i, on] = [0, 1].map(|k| &body.value(body.inputs[k].value).ty);
                        r.require(
                            i.dtype == DType::I64
                                && i.shape.is_empty()
                                && on.dtype == DType::Bool
                                && on.shape.is_empty(),
                            "the body's first inputs must be i64[] and bool[]",
                        )
                    }
            }
            ControlKind::Read { elements } => {
                let n = types.first().and_then(|t| self.count(t));
                counts(r, "operands", inputs, 1)
                    && counts(r, "results", results, 0)
                    && r.require(types[0].dtype.is_int(), format_args!("reads sizes from {}", types[0].dtype))
                    && r.require(
                        n == Some(elements.len() as i64) && elements.len() <= MAX_READ_ELEMENTS,
                        format_args!("{} elements are named, the shape has {n:?}", elements.len()),
                    )
            }
            ControlKind::NonZero => counts(r, "operands", inputs, 1) && counts(r, "results", results, 1),
            ControlKind::Host(op) => {
                let arity = op.arity();
                counts(r, "operands", inputs, arity.0) && counts(r, "results", results, arity.1)
            }
        };
        if !ok {
            return;
        }
        if matches!(c.kind, ControlKind::NonZero) {
            let (ty, rank) = (&self.value(c.outputs[0]).ty, types[0].shape.len() as i64);
            let fits = ty.dtype == DType::I64
                && ty.shape.len() == 2
                && self.dims.as_const(ty.shape[0]) == Some(rank);
            let is = self.dims.display_type(ty);
            r.require(fits, format_args!("its result is {is}, not i64[{rank}, count]"));
            return;
        }
        for (i, &v) in c.outputs.iter().enumerate() {
            match result_type(&c.kind, &c.bodies, &types, i, dims) {
                Err(e) => r.fail(e),
                Ok((dtype, shape)) => {
                    let ty = &self.value(v).ty;
                    let fits = dtype == ty.dtype
                        && shape.len() == ty.shape.len()
                        && shape
                            .iter()
                            .zip(&ty.shape)
                            .all(|(s, &d)| s.is_none_or(|s| dims.is_equal(s, d) != Answer::Disproven));
                    if !fits {
                        let is = dims.display_type(ty);
                        r.fail(format_args!(
                            "result {i} is {is}, its bodies give {dtype} of rank {}",
                            shape.len()
                        ));
                    }
                }
            }
        }
    }

    fn count(&self, t: &TensorType) -> Option<i64> {
        t.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(self.dims.as_const(d)?))
    }
    fn is_one(&self, t: &TensorType) -> bool {
        self.count(t) == Some(1)
    }
    fn verify_flag(&self, r: &mut Report<'_>, t: &TensorType, what: &str) -> bool {
        // Extents of one element are constants, whichever table they are of.
        let one = t.shape.iter().all(|&d| d == crate::Dim::ONE);
        r.require(t.dtype == DType::Bool && one, format_args!("{what} must be one bool, it is {}", t.dtype))
    }
    /// Whether the operands from input `from` on have the dtype and rank that the body declares.
    fn verify_body_inputs(
        &self,
        r: &mut Report<'_>,
        c: &Control,
        body: usize,
        from: usize,
        operands: &[TensorType],
    ) -> bool {
        let b = &c.bodies[body];
        let slices = match c.kind {
            ControlKind::Loop { carried, scanned, .. } => 2 + carried..2 + carried + scanned,
            _ => 0..0,
        };
        let mut fine = true;
        for (k, (input, ty)) in b.inputs.iter().skip(from).zip(operands).enumerate() {
            let declared = &b.value(input.value).ty;
            let rank = declared.shape.len() + usize::from(slices.contains(&(from + k)));
            let (is, should) = (self.dims.display_type(ty), b.dims.display_type(declared));
            fine &= r.require(
                declared.dtype == ty.dtype && rank == ty.shape.len(),
                format_args!("input {:?} of body {body} is {should}, its operand {is}", input.name),
            );
        }
        fine
    }
}
