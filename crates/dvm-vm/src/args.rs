//! Arguments of a launch.

use dvm_bc::{Program, Role};

use crate::LaunchError;

/// Memory bound to an argument for one launch, in the program's argument order.
#[derive(Debug)]
pub enum ArgRef<'a> {
    /// Read only: inputs and weights.
    In(&'a [u8]),
    /// Written: outputs and the workspace.
    Out(&'a mut [u8]),
    /// An input that lives in the memory of the output with this index, which the launch overwrites. The program must declare
    /// the pair as alias.
    SameAs(usize),
    /// A ring: no memory of the caller's, because each worker has a copy of its own.
    Ring,
}

/// Whether an argument holds tiles of any dtype that its declared alignment allows (verified).
pub(crate) fn scratch(role: Role) -> bool {
    role == Role::Workspace
}

/// Checks arguments against a program, clears those that ask for it, and collects their addresses.
pub(crate) fn bind(
    program: &Program,
    args: &mut [ArgRef<'_>],
    out: &mut Vec<*mut u8>,
) -> Result<(), LaunchError> {
    out.clear();
    if args.len() != program.args.len() {
        return Err(LaunchError::ArgCount { expected: program.args.len(), got: args.len() });
    }
    for (i, (arg, given)) in program.args.iter().zip(args.iter_mut()).enumerate() {
        let name = || arg.name.clone();
        let role = |role, given| LaunchError::ArgRole { arg: i, name: name(), role, given };
        let (ptr, len) = match (arg.role, given) {
            (Role::Input | Role::Weight, ArgRef::In(bytes)) => (bytes.as_ptr().cast_mut(), bytes.len()),
            (Role::Output | Role::Workspace, ArgRef::Out(bytes)) => (bytes.as_mut_ptr(), bytes.len()),
            (Role::Ring, ArgRef::Ring) => {
                // Nobody follows it: slots bound to a ring get the worker's copy.
                out.push(std::ptr::null_mut());
                continue;
            }
            (Role::Input, ArgRef::SameAs(other)) => {
                let pair = (i as u32, u32::try_from(*other).unwrap_or(u32::MAX));
                if !program.aliases.contains(&pair) {
                    return Err(LaunchError::ArgAlias { arg: i, name: name(), other: *other });
                }
                // Bound below, when the output's address is known.
                out.push(std::ptr::null_mut());
                continue;
            }
            (expected, given) => {
                let expected = match expected {
                    Role::Input => "input",
                    Role::Weight => "weight",
                    Role::Output => "output",
                    Role::Workspace => "workspace",
                    Role::Ring => "ring",
                };
                let given = match given {
                    ArgRef::In(_) => "read-only memory",
                    ArgRef::Out(_) => "writable memory",
                    ArgRef::SameAs(_) => "the memory of another argument",
                    ArgRef::Ring => "a ring",
                };
                return Err(role(expected, given));
            }
        };
        if len as u64 != arg.bytes {
            return Err(LaunchError::ArgBytes { arg: i, name: name(), expected: arg.bytes, got: len as u64 });
        }
        let align = if scratch(arg.role) { arg.align.min(8) } else { arg.dtype.size() };
        if len > 0 && !(ptr as usize).is_multiple_of(align as usize) {
            return Err(LaunchError::ArgAlign { arg: i, name: name(), align });
        }
        out.push(ptr);
    }
    for i in 0..args.len() {
        match args[i] {
            ArgRef::SameAs(other) => {
                if program.args[i].bytes != program.args[other].bytes {
                    let (expected, got) = (program.args[i].bytes, program.args[other].bytes);
                    return Err(LaunchError::ArgBytes {
                        arg: i,
                        name: program.args[i].name.clone(),
                        expected,
                        got,
                    });
                }
                out[i] = out[other];
            }
            ArgRef::Out(ref bytes) if program.args[i].zero => {
                // Through the pointer that the launch will use: a new mutable borrow would end its right to.
                // SAFETY: the pointer is to this argument's bytes.
                unsafe { out[i].write_bytes(0, bytes.len()) };
            }
            _ => {}
        }
    }
    // What an aliased output's tiles leave alone is its input's.
    for &(input, output) in &program.aliases {
        if let (ArgRef::In(from), ArgRef::Out(to)) = (&args[input as usize], &args[output as usize]) {
            debug_assert_eq!(from.len(), to.len());
            // SAFETY: both pointers are to whole arguments, whose lengths were compared with the declared ones, which
            // `verify::program::aliases` found equal; nobody else may write while the caller's borrows last.
            unsafe { std::ptr::copy(out[input as usize], out[output as usize], from.len()) };
        }
    }
    Ok(())
}
