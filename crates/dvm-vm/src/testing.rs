//! Arguments between inaccessible pages, for tests that must notice when a program leaves its memory.
//!
//! A verified program touches its arguments and local memory only. Fuzzing checks that claim with nothing to spare:
//! [`GuardedArgs`] puts each argument flush against a page that faults, makes what is read only read-only, and marks what is left of
//! the argument's own pages. [`Runtime::eager`] shares even the smallest step between the workers, and
//! [`BuildOptions::poison`](crate::BuildOptions::poison) fills local memory with a byte before each tile, so that a value read before it
//! is written shows as a difference between two runs.
//!
//! ```no_run
//! # fn f(program: dvm_bc::Program) -> Result<(), Box<dyn std::error::Error>> {
//! use dvm_bc::{Limits, Verified};
//! use dvm_vm::testing::{Edge, GuardedArgs};
//! use dvm_vm::{BuildOptions, Executable, Pool, Runtime};
//!
//! let mut options = BuildOptions::default();
//! options.poison = Some(0xa5);
//! let exe = Executable::with_options(Verified::new(program, &Limits::default())?, &options)?;
//! let runtime = Runtime::new(Pool::new(2).into()).eager();
//! for edge in [Edge::Start, Edge::End] {
//!     let mut args = GuardedArgs::new(exe.program(), edge)?;
//!     args.bytes_mut(0).fill(1);
//!     args.launch(&runtime, &exe)?;
//! }
//! # Ok(())
//! # }
//! ```

mod fuzz;

use std::ffi::c_void;
use std::io;

use dvm_bc::{Program, Role};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

pub use fuzz::Vm;

use crate::{ArgRef, Executable, LaunchError, Runtime, Stats};

/// Which end of an argument is flush against an inaccessible page. At the other end the rest of a page is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A byte before the argument faults.
    Start,
    /// A byte after the argument faults.
    End,
}

/// What the rest of an argument's pages holds.
const MARK: u8 = 0x5c;

/// Pages of one argument, one more on either side.
struct Mapping {
    base: *mut u8,
    /// Bytes of a page, and of the pages between the guards.
    page: usize,
    body: usize,
    /// Where the argument begins in the body.
    at: usize,
    len: usize,
}

impl Mapping {
    fn new(len: usize, align: usize, edge: Edge) -> io::Result<Mapping> {
        let page = rustix::param::page_size();
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let body = len.checked_next_multiple_of(page).ok_or_else(too_large)?;
        let all = body.checked_add(2 * page).ok_or_else(too_large)?;
        // SAFETY: a new private mapping, wherever the system likes.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::empty(), MapFlags::PRIVATE)?.cast::<u8>()
        };
        let at = match edge {
            Edge::Start => 0,
            // As far back as the alignment allows; what is left is marked.
            Edge::End => (body - len) / align * align,
        };
        let map = Mapping { base, page, body, at, len };
        map.protect(true)?;
        if body > 0 {
            // SAFETY: the body was just made writable, and nobody else has its address.
            unsafe {
                base.add(page).write_bytes(MARK, body);
                map.start().write_bytes(0, len);
            }
        }
        Ok(map)
    }

    fn protect(&self, write: bool) -> io::Result<()> {
        let flags = if write { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: whole pages of this mapping. References to them exist only while a launch has them, which follows.
        unsafe { mprotect(self.base.wrapping_add(self.page).cast::<c_void>(), self.body, flags)? };
        Ok(())
    }

    fn start(&self) -> *mut u8 {
        self.base.wrapping_add(self.page + self.at)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: inside the body, which is always readable and initialised.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the body, which is writable outside of launches; the mapping is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }

    /// Whether what surrounds the argument is as it was.
    fn intact(&self) -> bool {
        // SAFETY: the body is always readable and initialised.
        let body = unsafe { std::slice::from_raw_parts(self.base.wrapping_add(self.page), self.body) };
        let (before, rest) = body.split_at(self.at.min(body.len()));
        before.iter().chain(rest.get(self.len..).unwrap_or(&[])).all(|&b| b == MARK)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping, whole. Nothing can be done about a failure.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.body + 2 * self.page) };
    }
}

/// Memory for all arguments of a program, each on pages of its own between inaccessible ones.
pub struct GuardedArgs {
    maps: Vec<Mapping>,
    /// Whether a launch writes the argument.
    writes: Vec<bool>,
}

impl GuardedArgs {
    /// Zeroed memory for the arguments of `program`.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn new(program: &Program, edge: Edge) -> io::Result<GuardedArgs> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let maps = program.args.iter().map(|a| {
            // What `launch` demands, and no more.
            let align = if crate::args::scratch(a.role) { a.align.min(8) } else { a.dtype.size() };
            // A ring is the workers' own.
            let bytes = if a.role == Role::Ring { 0 } else { a.bytes };
            Mapping::new(usize::try_from(bytes).map_err(too_large)?, align as usize, edge)
        });
        let writes = program.args.iter().map(|a| !matches!(a.role, Role::Input | Role::Weight));
        Ok(GuardedArgs { maps: maps.collect::<io::Result<_>>()?, writes: writes.collect() })
    }

    /// The bytes of an argument.
    ///
    /// # Panics
    /// There is no such argument.
    #[must_use]
    pub fn bytes(&self, arg: usize) -> &[u8] {
        self.maps[arg].bytes()
    }

    /// The bytes of an argument, to be filled.
    ///
    /// # Panics
    /// There is no such argument.
    pub fn bytes_mut(&mut self, arg: usize) -> &mut [u8] {
        self.maps[arg].bytes_mut()
    }

    /// Runs a program on these arguments. A store to one that is read only faults.
    ///
    /// # Errors
    /// As for [`Runtime::launch`].
    ///
    /// # Panics
    /// Bytes around an argument changed: a defect of verifier or machine. Also where the system fails to protect pages.
    pub fn launch(&mut self, runtime: &Runtime, exe: &Executable) -> Result<Stats, LaunchError> {
        self.run(runtime, exe, false)
    }

    /// As [`GuardedArgs::launch`], with inputs that may share the memory of an output sharing it: the input's bytes are copied there first.
    ///
    /// # Errors
    /// As for [`Runtime::launch`].
    ///
    /// # Panics
    /// As for [`GuardedArgs::launch`].
    pub fn launch_in_place(&mut self, runtime: &Runtime, exe: &Executable) -> Result<Stats, LaunchError> {
        for &(input, output) in &exe.program().aliases {
            let bytes = self.bytes(input as usize).to_vec();
            self.bytes_mut(output as usize).copy_from_slice(&bytes);
        }
        self.run(runtime, exe, true)
    }

    fn run(&mut self, runtime: &Runtime, exe: &Executable, in_place: bool) -> Result<Stats, LaunchError> {
        let aliases = if in_place { exe.program().aliases.as_slice() } else { &[] };
        self.protect(false);
        let mut refs: Vec<ArgRef<'_>> = self
            .maps
            .iter_mut()
            .zip(&self.writes)
            .enumerate()
            .map(|(i, (map, &writes))| match aliases.iter().find(|a| a.0 as usize == i) {
                Some(alias) => ArgRef::SameAs(alias.1 as usize),
                None if exe.program().args[i].role == Role::Ring => ArgRef::Ring,
                None if writes => ArgRef::Out(map.bytes_mut()),
                None => ArgRef::In(map.bytes()),
            })
            .collect();
        let result = runtime.launch(exe, &mut refs);
        drop(refs);
        self.protect(true);
        for (i, map) in self.maps.iter().enumerate() {
            let name = &exe.program().args[i].name;
            assert!(map.intact(), "bytes around argument {i} ({name}) changed");
        }
        result
    }

    fn protect(&self, write: bool) {
        for (map, _) in self.maps.iter().zip(&self.writes).filter(|(_, w)| !**w) {
            map.protect(write).expect("pages of a mapping can be protected");
        }
    }
}

impl std::fmt::Debug for GuardedArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.maps.iter().map(|m| m.len)).finish()
    }
}
