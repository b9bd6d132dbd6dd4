//! Bundles: compiled programs that run without their model.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use dvm_bc::{
    Bundle, Limits, Role, Verified,
    bundle::{HostStep, Note, Port, Weight, weight_hash},
};
use dvm_ir::{DType, Tensor};
use dvm_tile::ArgBinding;
use dvm_vm::{ArgRef, Control, Executable, Isa, Pool, Runtime};

use crate::bare;
use crate::engine::{code_bytes, without_data};
use crate::launch::bytes_of;
use crate::session::Ready;
use crate::{Error, FileKind, Module, Options, Outputs, RunReport, Session, fill};

/// Most bytes of arguments that a bundle may ask for unless the options allow more: a damaged or hostile file must not
/// exhaust the machine.
const MAX_BYTES: u64 = 768 << 20;

impl Session {
    /// The program for these inputs' shapes as a bundle, and what compiling it cost.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn bundle(
        &mut self,
        inputs: &[(String, Tensor)],
        with_weights: bool,
    ) -> Result<(Bundle, RunReport), Error> {
        let Ready { plan, encoded } = self.compiled(inputs)?;
        let program = encoded.exe.program().clone();
        let mut bundle = Bundle { target: program.target.name.clone(), ..Bundle::default() };
        bundle.symbols.clone_from(&self.last_run().dims);
        for ((arg, binding), packed) in program.args.iter().zip(&encoded.args).zip(&encoded.weights) {
            match *binding {
                ArgBinding::Input(i) => {
                    let name = &plan.inputs[i as usize].input.name;
                    let given = inputs.iter().find(|(n, _)| n == name);
                    let shape = given.map_or(&[][..], |(_, t)| t.shape());
                    bundle.inputs.push(port(&arg.name, arg.dtype, shape));
                }
                ArgBinding::Output(i) => {
                    bundle.outputs.push(port(&arg.name, arg.dtype, &encoded.outputs[i as usize]));
                }
                ArgBinding::Constant { index, .. } => {
                    let constant = &plan.constants[index as usize];
                    if with_weights && !constant.has_data() {
                        return Err(without_data(&plan, index));
                    }
                    let data = packed.as_deref().map_or(constant.bytes(), Vec::as_slice);
                    bundle.weights.push(Weight {
                        name: arg.name.clone(),
                        dtype: arg.dtype,
                        layout: arg.layout,
                        bytes: arg.bytes,
                        hash: weight_hash(data),
                        data: with_weights.then(|| data.to_vec()),
                    });
                }
                ArgBinding::Workspace | ArgBinding::Ring => {}
            }
        }
        for (t, (tiling, kernel)) in encoded.tilings.iter().zip(&encoded.kernel_ids).enumerate() {
            let kernel = &plan.kernels[kernel.index()];
            bundle.notes.extend((0..tiling.notes.len()).filter_map(|i| {
                let (template, instruction) = (t as u32, i as u32);
                Some(Note { program: 0, template, instruction, text: tiling.note(kernel, i)? })
            }));
        }
        bundle.steps.push(HostStep::Launch(0));
        bundle.programs.push(program);
        Ok((bundle, self.last_run().clone()))
    }
}

fn port(name: &str, dtype: dvm_bc::DType, shape: &[usize]) -> Port {
    Port { name: name.to_string(), dtype, shape: shape.iter().map(|&d| d as u64).collect() }
}

/// Compiles a model for the shapes of these inputs (their values do not matter, except structural ones).
///
/// # Errors
/// As [`Session::prepare`].
pub fn compile_bundle(
    module: &Module,
    inputs: &[(String, Tensor)],
    options: &Options,
    with_weights: bool,
) -> Result<(Bundle, RunReport), Error> {
    Session::new(module, options.clone())?.bundle(inputs, with_weights)
}

/// Reads a bundle from its bytes or its text, whichever it is. `file` is named in errors.
///
/// # Errors
/// Damaged bytes, or text that is no bundle; the message shows the place.
pub fn read_bundle(file: &str, bytes: &[u8]) -> Result<Bundle, Error> {
    if FileKind::of(bytes) != FileKind::Assembly {
        return Ok(Bundle::from_bytes(bytes)?);
    }
    let text = std::str::from_utf8(bytes).map_err(|e| Error::Text(e.to_string()))?;
    Bundle::from_text(text).map_err(|e| Error::Text(e.render(file, text)))
}

/// Runs a bundle for the shapes it was compiled for.
pub struct BundleSession {
    bundle: Bundle,
    launches: Vec<Launch>,
    runtime: Runtime,
    workspace: Vec<u64>,
    report: RunReport,
    first: bool,
    timeout: Option<std::time::Duration>,
    /// [`Bundle::is_bare`].
    bare: bool,
}

struct Launch {
    exe: Executable,
    args: Vec<Source>,
    workspace: usize,
}

/// Where an argument's bytes are.
enum Source {
    Input(usize),
    Output(usize),
    Weight(usize),
    Ring,
    Workspace,
}

impl std::fmt::Debug for BundleSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleSession").field("target", &self.bundle.target).finish_non_exhaustive()
    }
}

pub(crate) fn ir_dtype(d: dvm_bc::DType) -> DType {
    DType::from_name(d.name()).unwrap_or(DType::U8)
}

impl BundleSession {
    /// Reads a bundle, or bytecode as text, for [`BundleSession::new`].
    ///
    /// # Errors
    /// As [`read_bundle`] and [`BundleSession::new`].
    pub fn from_bytes(
        bytes: &[u8],
        model: Option<&Module>,
        options: &Options,
    ) -> Result<BundleSession, Error> {
        BundleSession::new(read_bundle("bundle", bytes)?, model, options)
    }
    /// Verifies a bundle. Where it holds no weights, they come from `model`, which must be the one it was compiled from.
    ///
    /// # Errors
    /// A program that does not verify or asks for too much, weights that are missing or differ.
    pub fn new(
        mut bundle: Bundle,
        model: Option<&Module>,
        options: &Options,
    ) -> Result<BundleSession, Error> {
        let start = Instant::now();
        if bundle.weights.iter().any(|w| w.data.is_none()) {
            let model = model.ok_or_else(|| {
                Error::Launch(
                    "the bundle holds no weights: name the model it was compiled from (`--weights MODEL`)"
                        .into(),
                )
            })?;
            borrow_weights(&mut bundle, model, options)?;
        }
        let limit = if options.max_bytes == u64::MAX { MAX_BYTES } else { options.max_bytes };
        let mut launches = Vec::new();
        for step in &bundle.steps {
            let HostStep::Launch(at) = step else {
                return Err(Error::Launch("the bundle has a host step this build does not know".into()));
            };
            let program = bundle
                .programs
                .get(*at as usize)
                .ok_or_else(|| Error::Launch(format!("there is no program {at}")))?;
            launches.push(prepare(&bundle, program, limit, options.max_tile_instructions)?);
        }
        let runtime = Runtime::new(Arc::new(Pool::new(options.thread_count())));
        let report = RunReport {
            compile_us: start.elapsed().as_secs_f64() * 1e6,
            dims: bundle.symbols.clone(),
            launches: launches.len(),
            kernels: bundle.programs.iter().flat_map(|p| &p.steps).map(|s| s.units.len()).sum(),
            bytecode_bytes: bundle.programs.iter().map(code_bytes).sum(),
            ..RunReport::default()
        };
        Ok(BundleSession {
            bare: bundle.is_bare(),
            bundle,
            launches,
            runtime,
            workspace: vec![],
            report,
            first: true,
            timeout: options.timeout,
        })
    }
    /// The bound symbols.
    #[must_use]
    pub fn dims(&self) -> &[(String, i64)] {
        &self.bundle.symbols
    }
    /// The bundle.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }
    /// What the last run did and cost; `compile_us` is reading, verifying and predecoding, in the first run.
    #[must_use]
    pub fn last_run(&self) -> &RunReport {
        &self.report
    }
    /// All inputs: the given ones, the others filled deterministically.
    ///
    /// # Errors
    /// A given input that does not exist.
    pub fn complete_inputs(&self, given: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, Error> {
        for (name, _) in given {
            if !self.bundle.inputs.iter().any(|p| &p.name == name) {
                let names: Vec<&str> = self.bundle.inputs.iter().map(|p| p.name.as_str()).collect();
                return Err(Error::Bind(format!(
                    "the bundle has no input `{name}`; its inputs are {}",
                    names.join(", ")
                )));
            }
        }
        let tensor = |p: &Port| match given.iter().find(|(n, _)| *n == p.name) {
            Some((n, t)) => Ok((n.clone(), t.clone())),
            None => Ok((p.name.clone(), fill::fill(&p.name, ir_dtype(p.dtype), &extents(p)?)?)),
        };
        self.bundle.inputs.iter().map(tensor).collect()
    }
    /// Runs the bundle.
    ///
    /// # Errors
    /// Inputs of another dtype or shape than it was compiled for, or a data-dependent trap. The outputs are then empty.
    pub fn run_into(&mut self, inputs: &[(String, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let result = self.run_inner(inputs, outputs);
        if result.is_err() {
            outputs.clear();
        }
        result
    }

    fn run_inner(&mut self, inputs: &[(String, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let mut ordered = Vec::with_capacity(self.bundle.inputs.len());
        for p in &self.bundle.inputs {
            let given = inputs.iter().find(|(n, _)| *n == p.name);
            let (_, t) = given.ok_or_else(|| Error::Bind(format!("input `{}` is missing", p.name)))?;
            let fits = t.dtype() == ir_dtype(p.dtype)
                && t.shape().iter().map(|&d| d as u64).eq(p.shape.iter().copied());
            ordered.push(match fits {
                true => Cow::Borrowed(t.bytes()),
                false if self.bare => bare::fit(&self.bundle.programs[0], p, t)?,
                false => return Err(bare::misfit(p, t)),
            });
        }
        outputs.clear();
        for p in &self.bundle.outputs {
            outputs.insert(p.name.clone(), Tensor::zeros(ir_dtype(p.dtype), &extents(p)?)?);
        }
        let words = self.launches.iter().map(|l| l.workspace).max().unwrap_or(0).div_ceil(8);
        self.workspace.resize(words, 0);
        let mut report = RunReport { run_us: 0.0, peak_bytes: words * 8, ..self.report.clone() };
        for launch in &self.launches {
            let mut outs: Vec<Option<&mut [u8]>> =
                outputs.values_mut().map(|t| Some(t.bytes_mut())).collect();
            let mut workspace = Some(bytes_of(&mut self.workspace, launch.workspace));
            let mut args = Vec::with_capacity(launch.args.len());
            for source in &launch.args {
                let twice = || Error::Launch("an output or the workspace is bound to two arguments".into());
                args.push(match *source {
                    Source::Input(i) => ArgRef::In(&ordered[i]),
                    Source::Output(i) => ArgRef::Out(outs[i].take().ok_or_else(twice)?),
                    Source::Weight(i) => {
                        ArgRef::In(self.bundle.weights[i].data.as_deref().unwrap_or_default())
                    }
                    Source::Ring => ArgRef::Ring,
                    Source::Workspace => ArgRef::Out(workspace.take().ok_or_else(twice)?),
                });
            }
            let start = Instant::now();
            let control = Control { cancel: None, deadline: self.timeout.map(|t| start + t) };
            self.runtime
                .launch_with(&launch.exe, &mut args, control)
                .map_err(|e| Error::Launch(e.to_string()))?;
            report.run_us += start.elapsed().as_secs_f64() * 1e6;
        }
        let weights = self.bundle.weights.iter().filter_map(|w| w.data.as_ref()).map(Vec::len);
        let io = ordered.iter().map(|t| t.len()).chain(outputs.values().map(|t| t.bytes().len()));
        report.peak_bytes += weights.chain(io).sum::<usize>();
        report.cache_hit = !self.first;
        if !self.first {
            report.compile_us = 0.0;
        }
        self.first = false;
        self.report = report;
        Ok(())
    }
}

fn extents(p: &Port) -> Result<Vec<usize>, Error> {
    let extent = |&d: &u64| {
        usize::try_from(d).map_err(|_| Error::Bind(format!("`{}`: extent {d} is too large", p.name)))
    };
    p.shape.iter().map(extent).collect()
}

/// Verifies a program against what it may ask for, and finds its arguments.
fn prepare(
    bundle: &Bundle,
    program: &dvm_bc::Program,
    limit: u64,
    instructions: u64,
) -> Result<Launch, Error> {
    let mut total = 0u64;
    let mut args = Vec::with_capacity(program.args.len());
    let mut workspace = 0;
    for a in &program.args {
        let unknown = || Error::Launch(format!("argument `{}` is no {:?} of the bundle", a.name, a.role));
        let find = |ports: &[Port]| -> Result<usize, Error> {
            let at = ports.iter().position(|p| p.name == a.name).ok_or_else(unknown)?;
            let size = u64::from(ports[at].dtype.size());
            let bytes = ports[at].shape.iter().try_fold(size, |n, &d| n.checked_mul(d));
            if bytes != Some(a.bytes) || ports[at].dtype != a.dtype {
                return Err(Error::Launch(format!(
                    "argument `{}` of {} bytes is not {:?}",
                    a.name, a.bytes, ports[at]
                )));
            }
            Ok(at)
        };
        if a.role != Role::Weight {
            total = total.saturating_add(a.bytes);
        }
        args.push(match a.role {
            Role::Input => Source::Input(find(&bundle.inputs)?),
            Role::Output => Source::Output(find(&bundle.outputs)?),
            Role::Weight => match bundle.weights.iter().position(|w| w.name == a.name) {
                Some(i) => Source::Weight(i),
                // Of a bare bundle.
                None => Source::Input(find(&bundle.inputs)?),
            },
            Role::Ring => Source::Ring,
            Role::Workspace => {
                workspace = usize::try_from(a.bytes).unwrap_or(usize::MAX);
                Source::Workspace
            }
        });
    }
    if total > limit {
        let step = format!("program `{}` of the bundle", program.name);
        return Err(Error::Memory { step, needs: total, limit });
    }
    let mut limits = Limits::default();
    limits.arg_bytes = limits.arg_bytes.min(limit.max(MAX_BYTES));
    limits.local_bytes = 64 << 20;
    limits.tile_instructions = instructions;
    let verified = Verified::new(program.clone(), &limits).map_err(|e| Error::Verify(e.to_string()))?;
    let exe = Executable::new(verified, Isa::detect()).map_err(|e| Error::Launch(e.to_string()))?;
    Ok(Launch { exe, args, workspace })
}

/// Fills in the weights by compiling the model for the bundle's symbols.
fn borrow_weights(bundle: &mut Bundle, model: &Module, options: &Options) -> Result<(), Error> {
    let mut options = options.clone();
    if options.spec.is_none() {
        // A named target packs as its specification says; any other was the machine at hand.
        options.spec = dvm_npu::MachineSpec::named(&bundle.target).ok();
    }
    let inputs = bundle
        .inputs
        .iter()
        .map(|p| Ok((p.name.clone(), Tensor::zeros(ir_dtype(p.dtype), &extents(p)?)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let (fresh, _) = Session::new(model, options)?.bundle(&inputs, true)?;
    for w in bundle.weights.iter_mut().filter(|w| w.data.is_none()) {
        let found = fresh.weights.iter().find(|f| f.name == w.name);
        let data = found.filter(|f| f.hash == w.hash && f.layout == w.layout).and_then(|f| f.data.clone());
        let differs = || {
            Error::Launch(format!(
                "weight `{}`: the model is not the one the bundle was compiled from",
                w.name
            ))
        };
        w.data = Some(data.ok_or_else(differs)?);
    }
    Ok(())
}
