//! What turns a plan and bound dims into results: encoding, the cache of programs, the launch.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dvm_bc::{Limits, Verified};
use dvm_ir::{Bindings, DimValues, Plan, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch};
use dvm_vm::{ArgRef, BuildOptions, Control, Executable, LaunchError, Runtime};

use crate::cold::{Grouped, Helper, Work};
use crate::groups::Groups;
use crate::launch::{bytes_of, extents, fit_outputs};
use crate::module::Variant;
use crate::{Error, Options, Outputs, RunReport};

/// The machine of a session, with its scratch memory.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) spec: Arc<MachineSpec>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) cancel: Arc<AtomicBool>,
    workspace: Vec<u64>,
    /// What lies between the groups of a plan.
    between: Vec<Vec<u64>>,
    scratch: Scratch,
    helper: Option<Helper>,
}

/// A program for one set of dims, ready to launch.
pub(crate) struct Encoded {
    pub(crate) exe: Executable,
    pub(crate) args: Vec<ArgBinding>,
    pub(crate) weights: Vec<Option<Arc<Vec<u8>>>>,
    pub(crate) outputs: Vec<Vec<usize>>,
    pub(crate) workspace_bytes: usize,
    pub(crate) bytecode_bytes: usize,
    pub(crate) kernels: usize,
    /// By template.
    pub(crate) tilings: Vec<dvm_tile::Tiling>,
    pub(crate) kernel_ids: Vec<dvm_ir::plan::KernelId>,
}

/// A plan and its encoded programs by bound symbols, least recently used first.
pub(crate) struct Programs {
    pub(crate) variant: Arc<Variant>,
    pub(crate) plan: Arc<Plan>,
    cache: indexmap::IndexMap<Bindings, Arc<Encoded>, rustc_hash::FxBuildHasher>,
    /// The plan in groups, found out when it is first needed, and those encoded.
    groups: Option<Option<Arc<Groups>>>,
    grouped: indexmap::IndexMap<Bindings, Arc<Grouped>, rustc_hash::FxBuildHasher>,
}

impl Programs {
    pub(crate) fn new(variant: Arc<Variant>, plan: Arc<Plan>) -> Programs {
        let (cache, grouped) = Default::default();
        Programs { variant, plan, cache, groups: None, grouped }
    }
    /// Whether the plan is run in groups where that hides the encoding.
    pub(crate) fn in_groups(&mut self) -> bool {
        let plan = &self.plan;
        self.groups.get_or_insert_with(|| Groups::of(plan).map(Arc::new)).is_some()
    }
    /// The groups that a first run is to be made of, where there is no program for these dims.
    pub(crate) fn cold(&mut self, bindings: &Bindings) -> Option<Arc<Groups>> {
        if self.cache.contains_key(bindings) {
            return None;
        }
        self.groups.clone().flatten()
    }
    /// The groups for these dims, if they were encoded.
    pub(crate) fn grouped(&mut self, bindings: &Bindings) -> Option<Arc<Grouped>> {
        let at = self.grouped.get_index_of(bindings)?;
        let last = self.grouped.len() - 1;
        self.grouped.move_index(at, last);
        Some(self.grouped[last].clone())
    }
    pub(crate) fn keep(&mut self, most: usize, bindings: &Bindings, grouped: Arc<Grouped>) {
        while self.grouped.len() >= most.max(1) {
            self.grouped.shift_remove_index(0);
        }
        self.grouped.insert(bindings.clone(), grouped);
    }
    /// The program for these dims, from the cache or encoded now from what `values` makes of them. The report gets the cost;
    /// `start` is when the dims were bound.
    pub(crate) fn get<'v>(
        &mut self,
        engine: &mut Engine,
        bindings: &Bindings,
        start: Instant,
        report: &mut RunReport,
        values: impl FnOnce(&Plan) -> Result<Cow<'v, DimValues>, Error>,
    ) -> Result<Arc<Encoded>, Error> {
        let encoded = if let Some(encoded) = self.cache.shift_remove(bindings) {
            encoded
        } else {
            let mut packing_us = 0.0;
            let values = values(&self.plan)?;
            let encoded = Arc::new(engine.encode(&self.variant, &self.plan, &values, &mut packing_us)?);
            let us = start.elapsed().as_secs_f64() * 1e6 - packing_us;
            report.compile_us += us;
            report.exposed_compile_us += us;
            report.plan_us += packing_us;
            report.cache_hit = false;
            encoded
        };
        while self.cache.len() >= engine.options.cache.max(1) {
            self.cache.shift_remove_index(0);
        }
        self.cache.insert(bindings.clone(), encoded.clone());
        Ok(encoded)
    }
    pub(crate) fn forget(&mut self) {
        self.cache.clear();
        self.grouped.clear();
    }
}

impl Engine {
    pub(crate) fn new(options: Options, runtime: Arc<Runtime>) -> Engine {
        let spec = Arc::new(options.machine());
        Engine {
            options,
            spec,
            runtime,
            cancel: Arc::default(),
            workspace: vec![],
            between: vec![],
            scratch: Scratch::default(),
            helper: None,
        }
    }
    /// Tiles, encodes, verifies and predecodes the plan for bound dims.
    fn encode(
        &mut self,
        variant: &Variant,
        plan: &Plan,
        values: &DimValues,
        packing_us: &mut f64,
    ) -> Result<Encoded, Error> {
        self.scratch.check(self.options.check);
        self.scratch.hint(&self.options.tiles);
        let build = self.build_options();
        encode(variant, plan, values, (&self.spec, &build), &mut self.scratch, packing_us)
    }
    /// How executables are built.
    pub(crate) fn build_options(&self) -> BuildOptions {
        let mut build = BuildOptions::default();
        build.traffic = self.options.traffic;
        build
    }
    /// Encodes and runs the groups of a plan for the first time, one while the next is encoded. `mems` are the outputs of the whole;
    /// gives the encoded groups and the bytes of their weights.
    pub(crate) fn cold(
        &mut self,
        work: &Arc<Work>,
        (plan, groups): (&Plan, &Arc<Groups>),
        values: &DimValues,
        inputs: &[&Tensor],
        outputs: &mut Outputs,
        (start, report): (Instant, &mut RunReport),
    ) -> Result<(Grouped, usize), Error> {
        if self.helper.is_none() {
            self.helper = Helper::new();
        }
        if let Some(helper) = &self.helper {
            helper.send(work);
        }
        let result = self.cold_groups(work, (plan, groups), values, inputs, outputs, (start, report));
        if result.is_err() {
            work.give_up();
        }
        result
    }
    fn cold_groups(
        &mut self,
        work: &Arc<Work>,
        (plan, groups): (&Plan, &Arc<Groups>),
        values: &DimValues,
        inputs: &[&Tensor],
        outputs: &mut Outputs,
        (start, report): (Instant, &mut RunReport),
    ) -> Result<(Grouped, usize), Error> {
        let shapes = output_shapes(plan, values)?;
        let between = groups.between(values)?;
        let mut grouped = Grouped { groups: groups.clone(), encoded: vec![], between, outputs: shapes };
        let deadline = self.options.timeout.map(|t| Instant::now() + t);
        let (mut weights, mut idle, mut ran) = (0, start, None);
        let mut bytecode = 0;
        for i in 0..groups.list.len() {
            let made = work.get(i, &mut self.scratch)?;
            let exposed = (idle.elapsed().as_secs_f64() * 1e6 - made.packing_us).max(0.0);
            report.exposed_compile_us += exposed;
            // The first one's time counts from when the dims were bound.
            report.compile_us += if i == 0 { exposed } else { made.us };
            report.plan_us += made.packing_us;
            report.overlapped += usize::from(ran.is_some_and(|end| made.begun < end));
            bytecode += made.encoded.bytecode_bytes;
            grouped.encoded.push(made.encoded);
            self.fits(plan, &grouped, inputs)?;
            if i == 0 {
                fit_outputs(plan, &grouped.outputs, outputs)?;
            }
            weights += self.launch_group(&grouped, i, inputs, outputs, deadline, report)?;
            idle = Instant::now();
            ran = Some(idle);
        }
        report.exposed_compile_us = report.exposed_compile_us.min(report.compile_us);
        report.bytecode_bytes = bytecode;
        report.cache_hit = false;
        Ok((grouped, weights))
    }
    /// Whether a plan in groups may have the memory it needs; the bytes.
    pub(crate) fn fits(&self, plan: &Plan, grouped: &Grouped, inputs: &[&Tensor]) -> Result<usize, Error> {
        let out = plan
            .outputs
            .iter()
            .zip(&grouped.outputs)
            .map(|(o, s)| s.iter().fold(o.dtype.size(), |n, &d| n.saturating_mul(d)));
        let workspace = grouped.encoded.iter().map(|e| e.workspace_bytes).max().unwrap_or(0);
        let io = inputs.iter().map(|t| t.bytes().len()).chain(out).chain(grouped.between.iter().copied());
        let needs = io.fold(workspace, usize::saturating_add);
        let limit = self.options.max_bytes;
        if needs as u64 > limit {
            let step = format!("`{}` with its inputs and outputs", plan.name);
            return Err(Error::Memory { step, needs: needs as u64, limit });
        }
        Ok(needs)
    }
    /// Runs group `i`; gives the bytes of its weights.
    pub(crate) fn launch_group(
        &mut self,
        grouped: &Grouped,
        i: usize,
        inputs: &[&Tensor],
        outputs: &mut Outputs,
        deadline: Option<Instant>,
        report: &mut RunReport,
    ) -> Result<usize, Error> {
        let (encoded, group) = (&grouped.encoded[i], &grouped.groups.list[i]);
        grow(&mut self.workspace, encoded.workspace_bytes);
        if self.between.len() < grouped.between.len() {
            self.between.resize_with(grouped.between.len(), Vec::new);
        }
        let mut mems: Vec<Option<&mut [u8]>> = outputs.values_mut().map(|t| Some(t.bytes_mut())).collect();
        for (words, &bytes) in self.between.iter_mut().zip(&grouped.between) {
            grow(words, bytes);
            mems.push(Some(bytes_of(words, bytes)));
        }
        let mut workspace = Some(bytes_of(&mut self.workspace, encoded.workspace_bytes));
        let mut args: Vec<ArgRef<'_>> = Vec::with_capacity(encoded.args.len());
        let mut weight_bytes = 0;
        let mut mem = |n: usize| mems.get_mut(n).and_then(Option::take).ok_or_else(bound_twice);
        for (binding, packed) in encoded.args.iter().zip(&encoded.weights) {
            args.push(match *binding {
                ArgBinding::Input(n) => match inputs.get(n as usize) {
                    Some(t) => ArgRef::In(t.bytes()),
                    None => ArgRef::In(mem(n as usize - inputs.len())?),
                },
                ArgBinding::Output(n) => ArgRef::Out(mem(n as usize)?),
                ArgBinding::Constant { index, .. } => {
                    let constant = &group.plan.constants[index as usize];
                    if !constant.has_data() {
                        return Err(without_data(&group.plan, index));
                    }
                    let plain = constant.bytes();
                    let data = packed.as_deref().map_or(plain, Vec::as_slice);
                    weight_bytes += data.len();
                    ArgRef::In(data)
                }
                ArgBinding::Workspace => ArgRef::Out(workspace.take().ok_or_else(bound_twice)?),
                ArgBinding::Ring => ArgRef::Ring,
            });
        }
        let before: usize = grouped.encoded[..i].iter().map(|e| e.exe.program().steps.len()).sum();
        let start = Instant::now();
        let control = Control { cancel: Some(&self.cancel), deadline };
        let stats = self.runtime.launch_with(&encoded.exe, &mut args, control).map_err(|mut e| {
            if let LaunchError::Trap(trap) = &mut e {
                // Steps count through the groups, as they would in one program.
                trap.step += before as u32;
            }
            Error::Launch(e.to_string())
        })?;
        report.loaded_bytes += stats.loaded;
        report.stored_bytes += stats.stored;
        report.steps += stats.steps as usize;
        report.run_us += start.elapsed().as_secs_f64() * 1e6;
        report.launches += 1;
        report.kernels += encoded.kernels;
        Ok(weight_bytes)
    }
    /// Runs a program; gives the bytes of its weights.
    pub(crate) fn launch(
        &mut self,
        plan: &Plan,
        encoded: &Encoded,
        inputs: &[&Tensor],
        mut outputs: Vec<Option<&mut [u8]>>,
        deadline: Option<Instant>,
        report: &mut RunReport,
    ) -> Result<usize, Error> {
        grow(&mut self.workspace, encoded.workspace_bytes);
        let mut workspace = Some(bytes_of(&mut self.workspace, encoded.workspace_bytes));
        let mut args: Vec<ArgRef<'_>> = Vec::with_capacity(encoded.args.len());
        let mut weight_bytes = 0;
        for (binding, packed) in encoded.args.iter().zip(&encoded.weights) {
            args.push(match *binding {
                ArgBinding::Input(i) => ArgRef::In(inputs[i as usize].bytes()),
                ArgBinding::Output(i) => ArgRef::Out(outputs[i as usize].take().ok_or_else(bound_twice)?),
                ArgBinding::Constant { index, pack } => {
                    let constant = &plan.constants[index as usize];
                    if !constant.has_data() {
                        return Err(without_data(plan, index));
                    }
                    let plain = constant.bytes();
                    let data = packed.as_deref().filter(|_| pack.is_some()).map_or(plain, Vec::as_slice);
                    weight_bytes += data.len();
                    ArgRef::In(data)
                }
                ArgBinding::Workspace => ArgRef::Out(workspace.take().ok_or_else(bound_twice)?),
                ArgBinding::Ring => ArgRef::Ring,
            });
        }
        let start = Instant::now();
        let control = Control { cancel: Some(&self.cancel), deadline };
        let stats = self
            .runtime
            .launch_with(&encoded.exe, &mut args, control)
            .map_err(|e| Error::Launch(e.to_string()))?;
        report.loaded_bytes += stats.loaded;
        report.stored_bytes += stats.stored;
        report.steps += stats.steps as usize;
        report.run_us += start.elapsed().as_secs_f64() * 1e6;
        report.launches += 1;
        report.kernels += encoded.kernels;
        Ok(weight_bytes)
    }
}

/// Tiles, encodes, verifies and predecodes a plan for bound dims. Time spent packing weights is told apart.
pub(crate) fn encode(
    variant: &Variant,
    plan: &Plan,
    values: &DimValues,
    (spec, build): (&MachineSpec, &BuildOptions),
    scratch: &mut Scratch,
    packing_us: &mut f64,
) -> Result<Encoded, Error> {
    let _span = tracing::debug_span!("encode", plan = plan.name).entered();
    let compiled = dvm_tile::compile_plan(plan, values, spec, scratch)?;
    let outputs = output_shapes(plan, values)?;
    let bytecode_bytes = code_bytes(&compiled.program);
    let kernels = compiled.program.steps.iter().map(|s| s.units.len()).sum();
    let verified =
        Verified::new(compiled.program, &Limits::default()).map_err(|e| Error::Verify(e.to_string()))?;
    let exe = Executable::with_options(verified, build).map_err(|e| Error::Launch(e.to_string()))?;
    let mut weights = Vec::with_capacity(compiled.arg_buffers.len());
    for binding in &compiled.arg_buffers {
        weights.push(match *binding {
            ArgBinding::Constant { index, pack: Some(pack) } if plan.constants[index as usize].has_data() => {
                let (data, us) = variant.packed(plan, index, pack)?;
                *packing_us += us;
                Some(data)
            }
            _ => None,
        });
    }
    let workspace_bytes = usize::try_from(compiled.workspace_bytes).unwrap_or(usize::MAX);
    Ok(Encoded {
        exe,
        args: compiled.arg_buffers,
        weights,
        outputs,
        workspace_bytes,
        bytecode_bytes,
        kernels,
        tilings: compiled.tilings,
        kernel_ids: compiled.kernels,
    })
}

fn output_shapes(plan: &Plan, values: &DimValues) -> Result<Vec<Vec<usize>>, Error> {
    plan.outputs.iter().map(|o| extents(&plan.dims, &o.name, &o.shape, values)).collect()
}

/// Makes room for so many bytes.
fn grow(words: &mut Vec<u64>, bytes: usize) {
    if words.len() < bytes.div_ceil(8) {
        *words = vec![0; bytes.div_ceil(8)];
    }
}

fn bound_twice() -> Error {
    Error::Launch("an output or the workspace is bound to two arguments".into())
}

/// A constant was to be read.
pub(crate) fn without_data(plan: &Plan, index: u32) -> Error {
    let is = |b: &&dvm_ir::plan::Buffer| b.kind == dvm_ir::plan::BufferKind::Const(index);
    let name = plan.buffers.iter().find(is).map_or("", |b| b.name.as_str());
    let what = format!("constant `{name}` of {:?} has a shape and no data", plan.constants[index as usize]);
    Error::Launch(format!("{what}: the model can be compiled and timed, not run"))
}

/// Size of the encoded instructions of a program.
pub(crate) fn code_bytes(program: &dvm_bc::Program) -> usize {
    let sections = program.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections);
    sections.map(|s| s.code.words().len() * 8).sum()
}
