//! The machine as the fuzzers test it: on two threads, every tile shared, every argument against a page that faults.

use std::sync::Arc;

use dvm_bc::reference::Math;
use dvm_bc::testing::fuzz::{Machine, Ran, TrapAt};
use dvm_bc::{Program, Role, Verified};

use super::{Edge, GuardedArgs};
use crate::scalar::VmMath;
use crate::{BuildError, BuildOptions, Executable, Isa, LaunchError, Pool, Runtime, Stats};

/// A machine of two workers.
pub struct Vm {
    runtime: Runtime,
}

impl Default for Vm {
    fn default() -> Vm {
        Vm { runtime: Runtime::new(Arc::new(Pool::new(2))).eager() }
    }
}

impl Vm {
    /// One launch; `Ok(None)` where the machine has no kernel.
    fn launch(
        &self,
        program: &Verified<Program>,
        args: &[Vec<u8>],
        options: &BuildOptions,
        (edge, in_place): (Edge, bool),
    ) -> Result<Option<Ran>, String> {
        let exe = match Executable::with_options(program.clone(), options) {
            Ok(exe) => exe,
            Err(BuildError::Unsupported { .. }) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let mut memory = GuardedArgs::new(program, edge).map_err(|e| e.to_string())?;
        // A ring has no bytes here: each worker brings its own.
        let bound = |i: usize| program.args[i].role != Role::Ring;
        for (i, bytes) in args.iter().enumerate().filter(|(i, _)| bound(*i)) {
            memory.bytes_mut(i).copy_from_slice(bytes);
        }
        let done: Result<Stats, LaunchError> = if in_place {
            memory.launch_in_place(&self.runtime, &exe)
        } else {
            memory.launch(&self.runtime, &exe)
        };
        match done {
            Ok(_) => {
                for (i, (arg, bytes)) in program.args.iter().zip(args).enumerate() {
                    let read_only = matches!(arg.role, Role::Input | Role::Weight);
                    if read_only && memory.bytes(i) != bytes {
                        return Err(format!("`{}` is read only and changed", arg.name));
                    }
                }
                Ok(Some(Ok((0..args.len()).map(|i| memory.bytes(i).to_vec()).collect())))
            }
            Err(LaunchError::Trap(t)) => Ok(Some(Err(TrapAt {
                step: t.step,
                unit: t.unit,
                tile: t.tile,
                instruction: t.instruction,
                element: t.element,
                value: t.value,
                kind: t.kind,
            }))),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Machine for Vm {
    fn math(&self) -> &dyn Math {
        &VmMath
    }

    /// Twice: bound to arguments, strip by strip and in place; and plainly, with the portable kernels.
    fn run(&self, program: &Verified<Program>, args: &[Vec<u8>]) -> Result<Vec<Ran>, String> {
        let fast = BuildOptions { poison: Some(0x00), ..BuildOptions::default() };
        let plain =
            BuildOptions { elide: false, strips: false, isa: Isa::Portable, poison: Some(0xff), ..fast };
        let ways = [(&fast, (Edge::End, !program.aliases.is_empty())), (&plain, (Edge::Start, false))];
        let mut out = Vec::new();
        for (options, how) in ways {
            out.extend(self.launch(program, args, options, how)?);
        }
        Ok(out)
    }
}
