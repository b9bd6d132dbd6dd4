//! What turns a plan and bound dims into results: encoding, the cache of programs, the launch.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dvm_bc::{Limits, Verified};
use dvm_ir::{Bindings, DimValues, Plan, Tensor};
use dvm_npu::MachineSpec;
use dvm_tile::{ArgBinding, Scratch};
use dvm_vm::{ArgRef, Control, Executable, Isa, Runtime};

use crate::launch::{bytes_of, extents};
use crate::module::Variant;
use crate::{Error, Options, RunReport};

/// The machine of a session, with its scratch memory.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) spec: MachineSpec,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) cancel: Arc<AtomicBool>,
    workspace: Vec<u64>,
    scratch: Scratch,
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
}

impl Programs {
    pub(crate) fn new(variant: Arc<Variant>, plan: Arc<Plan>) -> Programs {
        Programs { variant, plan, cache: indexmap::IndexMap::default() }
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
            report.compile_us += start.elapsed().as_secs_f64() * 1e6 - packing_us;
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
    }
}

impl Engine {
    pub(crate) fn new(options: Options, runtime: Arc<Runtime>) -> Engine {
        let spec = options.machine();
        Engine {
            options,
            spec,
            runtime,
            cancel: Arc::default(),
            workspace: vec![],
            scratch: Scratch::default(),
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
        let _span = tracing::debug_span!("encode", plan = plan.name).entered();
        self.scratch.check(self.options.check);
        let compiled = dvm_tile::compile_plan(plan, values, &self.spec, &mut self.scratch)?;
        let outputs = plan
            .outputs
            .iter()
            .map(|o| extents(&plan.dims, &o.name, &o.shape, values))
            .collect::<Result<Vec<_>, _>>()?;
        let bytecode_bytes = code_bytes(&compiled.program);
        let kernels = compiled.program.steps.iter().map(|s| s.units.len()).sum();
        let verified =
            Verified::new(compiled.program, &Limits::default()).map_err(|e| Error::Verify(e.to_string()))?;
        let exe = Executable::new(verified, Isa::detect()).map_err(|e| Error::Launch(e.to_string()))?;
        let mut weights = Vec::with_capacity(compiled.arg_buffers.len());
        for binding in &compiled.arg_buffers {
            weights.push(match *binding {
                ArgBinding::Constant { index, pack: Some(pack) } => {
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
        let words = encoded.workspace_bytes.div_ceil(8);
        if self.workspace.len() < words {
            self.workspace = vec![0; words];
        }
        let mut workspace = Some(bytes_of(&mut self.workspace[..words], encoded.workspace_bytes));
        let mut args: Vec<ArgRef<'_>> = Vec::with_capacity(encoded.args.len());
        let mut weight_bytes = 0;
        for (binding, packed) in encoded.args.iter().zip(&encoded.weights) {
            let lost = || Error::Launch("an output or the workspace is bound to two arguments".into());
            args.push(match *binding {
                ArgBinding::Input(i) => ArgRef::In(inputs[i as usize].bytes()),
                ArgBinding::Output(i) => ArgRef::Out(outputs[i as usize].take().ok_or_else(lost)?),
                ArgBinding::Constant { index, pack } => {
                    let plain = plan.constants[index as usize].bytes();
                    let data = packed.as_deref().filter(|_| pack.is_some()).map_or(plain, Vec::as_slice);
                    weight_bytes += data.len();
                    ArgRef::In(data)
                }
                ArgBinding::Workspace => ArgRef::Out(workspace.take().ok_or_else(lost)?),
                ArgBinding::Ring => ArgRef::Ring,
            });
        }
        let start = Instant::now();
        let control = Control { cancel: Some(&self.cancel), deadline };
        self.runtime
            .launch_with(&encoded.exe, &mut args, control)
            .map_err(|e| Error::Launch(e.to_string()))?;
        report.run_us += start.elapsed().as_secs_f64() * 1e6;
        report.launches += 1;
        report.kernels += encoded.kernels;
        Ok(weight_bytes)
    }
}

/// Size of the encoded instructions of a program.
pub(crate) fn code_bytes(program: &dvm_bc::Program) -> usize {
    let sections = program.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections);
    sections.map(|s| s.code.words().len() * 8).sum()
}
