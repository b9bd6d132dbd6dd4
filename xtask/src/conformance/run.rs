//! Runs cases in every form on every machine and compares them with the reference.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use dvm::{MachineSpec, Module, Options, Session, Stream, TileHint};
use dvm_bc::Opcode;
use dvm_ir::Tensor;
use dvm_vm::Runtime;

use super::build::Types;
use super::case::{Case, OutputSpec, inputs, number, numbers};
use super::forms::{GraphForm, StreamForm};
use super::onnx::OnnxForm;

type Named = Vec<(String, Tensor)>;

/// What all cases share.
pub(crate) struct Bench {
    runtime: Arc<Runtime>,
    machines: Vec<(String, Options)>,
    stream_options: Options,
}

/// Cases that share their objects, in order.
pub(crate) struct Group<'c>(pub(crate) Vec<&'c Case>);

/// Cases by group; those without one are alone.
pub(crate) fn groups(cases: &[Case]) -> Vec<Group<'_>> {
    let mut out: Vec<Group<'_>> = vec![];
    let mut at: HashMap<&str, usize> = HashMap::new();
    for c in cases {
        match c.group.as_deref() {
            Some(g) => match at.get(g) {
                Some(&i) => out[i].0.push(c),
                None => {
                    at.insert(g, out.len());
                    out.push(Group(vec![c]));
                }
            },
            None => out.push(Group(vec![c])),
        }
    }
    out.iter_mut().for_each(|g| g.0.sort_by_key(|c| c.step));
    out
}

impl Bench {
    pub(crate) fn new(machines: &[&str]) -> Result<Bench> {
        let mut options = Options::default();
        options.check = true;
        options.threads = Some(2);
        let stream_options = options.clone();
        let runtime = Stream::new(options.clone()).runtime().clone();
        let machines = machines
            .iter()
            .map(|&name| {
                let mut o = options.clone();
                if name != "host" {
                    o.spec = Some(MachineSpec::named(name)?);
                }
                Ok((name.to_string(), o))
            })
            .collect::<Result<_>>()?;
        Ok(Bench { runtime, machines, stream_options })
    }
    fn session(&self, module: &Module, options: &Options) -> Result<Session> {
        Ok(Session::with_runtime(module, options.clone(), self.runtime.clone())?)
    }

    /// What is wrong, by case.
    pub(crate) fn run(&self, group: &Group<'_>) -> Vec<(String, Vec<String>)> {
        let mut steps = Steps { bench: self, stream: None, onnx: None, graphs: HashMap::new() };
        let open = open_attributes(&group.0);
        group
            .0
            .iter()
            .map(|case| {
                let mut problems = vec![];
                if let Err(e) = steps.case(case, open.as_ref(), &mut problems) {
                    problems.push(format!("{e:#}"));
                }
                (case.id.clone(), problems)
            })
            .collect()
    }
}

/// For cases that are steps of one graph: ops whose attributes differ. `None` for single cases and different graphs.
pub(crate) fn open_attributes(cases: &[&Case]) -> Option<HashSet<usize>> {
    let first = cases.first()?;
    let same = |c: &&Case| {
        c.ops.len() == first.ops.len()
            && c.ops
                .iter()
                .zip(&first.ops)
                .all(|(a, b)| a.op == b.op && a.inputs == b.inputs && a.out == b.out)
    };
    if cases.len() < 2 || !cases.iter().all(same) {
        return None;
    }
    let differs = |at: &usize| cases.iter().any(|c| c.ops[*at].attrs != first.ops[*at].attrs);
    Some((0..first.ops.len()).filter(differs).collect())
}

/// Objects that the steps of a group run on.
struct Steps<'b> {
    bench: &'b Bench,
    stream: Option<Stream>,
    onnx: Option<Session>,
    /// By machine and by what is fixed when a graph is built: ranks and attributes.
    graphs: HashMap<String, Session>,
}

impl Steps<'_> {
    fn case(&mut self, case: &Case, open: Option<&HashSet<usize>>, problems: &mut Vec<String>) -> Result<()> {
        let given = inputs(case)?;
        let mut types = Types::new();
        let graph = GraphForm::of(case, &given, &mut types, true).context("graph")?;
        let want: Named = if case.heavy {
            // The evaluator would take hours: one kernel per op is the reference.
            let mut options = self.bench.machines[0].1.clone();
            options.fuse = false;
            let module = Module::from_graph(graph.clone())?;
            named(self.bench.session(&module, &options)?.run(given.iter().cloned())?)
        } else {
            let outs = dvm_ir::eval::eval_graph(&graph, &given)?;
            graph.outputs.iter().map(|o| o.name.clone()).zip(outs).collect()
        };
        let mut check = |form: &str, got: Result<Named>| {
            let outcome = got.and_then(|got| compare(case, &got, &want));
            if let Err(e) = outcome {
                problems.push(format!("{form}: {e:#}"));
            }
        };
        check("reference", Ok(want.clone()));
        let module = Module::from_graph(graph)?;
        let hints = hints(case, &types);
        for (machine, options) in &self.bench.machines {
            check(
                &format!("graph on {machine}"),
                self.graph(case, &given, machine, options, &module, open.is_some()),
            );
            if !hints.is_empty() {
                let mut forced = options.clone();
                forced.tiles.clone_from(&hints);
                let run = || Ok(named(self.bench.session(&module, &forced)?.run(given.iter().cloned())?));
                check(&format!("forced tiles on {machine}"), run());
            }
        }
        let stream = self.stream.get_or_insert_with(|| {
            Stream::with_runtime(self.bench.stream_options.clone(), self.bench.runtime.clone())
        });
        check("stream", StreamForm::run(stream, case, &given, &mut types.clone()));
        let host = &self.bench.machines[0].1;
        check("onnx", self.onnx(case, &given, &mut types.clone(), open, host));
        if !case.codegen_expect.is_empty() {
            let outcome = codegen(case, &module, &given, host);
            if let Err(e) = outcome {
                problems.push(format!("{e:#}"));
            }
        }
        Ok(())
    }

    /// The graph on a machine, twice: the second run must give the same bits.
    fn graph(
        &mut self,
        case: &Case,
        given: &Named,
        machine: &str,
        options: &Options,
        fixed: &Module,
        symbolic: bool,
    ) -> Result<Named> {
        let key = if symbolic {
            let ranks: Vec<usize> = given.iter().map(|(_, t)| t.shape().len()).collect();
            let attrs: Vec<_> = case.ops.iter().map(|o| &o.attrs).collect();
            format!("{machine} {ranks:?} {attrs:?}")
        } else {
            format!("{machine} {}", case.id)
        };
        if !self.graphs.contains_key(&key) {
            let module = if symbolic {
                // Types of values are those of this step; they only matter where ranks do.
                let mut types = Types::new();
                GraphForm::of(case, given, &mut types, true)?;
                Module::from_graph(GraphForm::of(case, given, &mut types, false)?)?
            } else {
                self.graphs.clear();
                fixed.clone()
            };
            self.graphs.insert(key.clone(), self.bench.session(&module, options)?);
        }
        let session = self.graphs.get_mut(&key).context("a session")?;
        let first = named(session.run(given.iter().cloned())?);
        let again = named(session.run(given.iter().cloned())?);
        ensure!(first == again || has_nan(&first), "a second run gives other bits");
        Ok(first)
    }

    fn onnx(
        &mut self,
        case: &Case,
        given: &Named,
        types: &mut Types,
        open: Option<&HashSet<usize>>,
        options: &Options,
    ) -> Result<Named> {
        let model = OnnxForm::model(case, given, types, open)?;
        if self.onnx.is_none() || open.is_none() {
            let module = Module::from_onnx_bytes(&model.bytes)?;
            self.onnx = Some(self.bench.session(&module, options)?);
        }
        let session = self.onnx.as_mut().context("a session")?;
        Ok(named(session.run(given.iter().cloned().chain(model.extra))?))
    }
}

fn named(outs: dvm::Outputs) -> Named {
    outs.into_iter().collect()
}

fn has_nan(all: &Named) -> bool {
    all.iter().any(|(_, t)| t.dtype().is_float() && (0..t.len()).any(|i| t.get(i).as_f64().is_nan()))
}

/// Hints speak of the largest space of the case.
fn hints(case: &Case, types: &Types) -> Vec<TileHint> {
    let Some((_, shape)) = types.values().max_by_key(|(_, s)| (s.iter().product::<usize>(), s.len())) else {
        return vec![];
    };
    case.tile_hint
        .iter()
        .filter_map(|&[first, last, parts]| TileHint::new(shape, first, last, parts))
        .collect()
}

/// The rule of the cases: `|out - exp| <= tol + tol |exp|`, NaN equals NaN.
pub(crate) fn compare(case: &Case, got: &Named, want: &Named) -> Result<()> {
    for o in &case.outputs {
        let find = |all: &Named| all.iter().find(|(n, _)| *n == o.name).map(|(_, t)| t.clone());
        let (got, want) = (find(got).with_context(|| o.name.clone())?, find(want).context("the reference")?);
        output(case, o, &got, &want).with_context(|| o.name.clone())?;
    }
    Ok(())
}

fn output(case: &Case, o: &OutputSpec, got: &Tensor, want: &Tensor) -> Result<()> {
    let dtype = super::case::dtype(&o.dtype)?;
    ensure!(
        (got.dtype(), got.shape()) == (dtype, o.shape.as_slice()),
        "{}{:?}, not {dtype}{:?}",
        got.dtype(),
        got.shape(),
        o.shape
    );
    if o.shape_is_the_check {
        return Ok(());
    }
    let tol = o.tolerance.unwrap_or(case.tolerance);
    let stated = o.expect.as_ref().map(numbers).transpose()?;
    if let Some(s) = &stated {
        ensure!(s.len() == 1 || s.len() == got.len(), "{} stated values for {}", s.len(), got.len());
    }
    let shape = got.shape();
    let region = o.check_region.as_deref();
    for i in 0..got.len() {
        if let Some(region) = region {
            let mut rest = i;
            let mut inside = true;
            for (&d, &r) in shape.iter().zip(region).rev() {
                inside &= rest % d < r;
                rest /= d;
            }
            if !inside {
                continue;
            }
        }
        let out = got.get(i).as_f64();
        let close = |exp: f64| {
            out == exp || (out.is_nan() && exp.is_nan()) || (out - exp).abs() <= tol + tol * exp.abs()
        };
        let exp = want.get(i).as_f64();
        ensure!(close(exp), "element {i} is {out}, the reference {exp} (tolerance {tol})");
        if let Some(s) = &stated {
            let exp = s[if s.len() == 1 { 0 } else { i }];
            ensure!(close(exp), "element {i} is {out}, the case states {exp} (tolerance {tol})");
        }
    }
    Ok(())
}

/// Counts in the program for the host.
fn codegen(case: &Case, module: &Module, given: &Named, options: &Options) -> Result<()> {
    let (bundle, report) = dvm::compile_bundle(module, given, options, false)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for section in
        bundle.programs.iter().flat_map(|p| &p.templates).flat_map(|t| &t.phases).flat_map(|p| &p.sections)
    {
        for inst in section.code.iter() {
            match inst?.op {
                Opcode::VMul => *counts.entry("mul_count").or_default() += 1,
                Opcode::Load | Opcode::ViewLoad => *counts.entry("loads").or_default() += 1,
                _ => {}
            }
        }
    }
    for (what, wanted) in &case.codegen_expect {
        let wanted = number(wanted).unwrap_or(f64::NAN);
        match what.as_str() {
            "mul_count" | "loads" => {
                let n = counts.get(what.as_str()).copied().unwrap_or(0);
                ensure!(n as f64 == wanted, "{what} is {n}, not {wanted}");
            }
            "fused_regions" => {
                ensure!(report.kernels as f64 <= wanted, "{} kernels, at most {wanted}", report.kernels);
            }
            // Barriers and the shape of regions are the reference machine's own; that there is no cycle shows in that it runs.
            "barriers" | "no_cycle" | "cycle_guard" | "regions" => {}
            other => bail!("codegen_expect `{other}`"),
        }
    }
    Ok(())
}
