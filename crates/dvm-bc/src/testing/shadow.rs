//! A run that asserts what the verifier proved: every byte in bounds, none of local memory read before it was written, and no
//! two tiles of a step touching a byte that one of them stores.

use crate::reference::{
    Address, Bound, Failure, Fault, Flat, LocalMemory, Math, Memory, Region, Visit, execute, start, visit,
};
use crate::{Local, Program, Role, Space, Target};

/// What local memory holds where nothing is defined. No matter: it is never read.
const UNDEFINED: u8 = 0xa5;
/// Who touched a byte last: tiles numbered through the whole program from 1; 0 for nobody.
#[derive(Clone, Copy, Default)]
struct Touched {
    stored: u64,
    loaded: u64,
    /// Another tile of the step has loaded it, too.
    shared: bool,
}

/// What runs keep between instructions.
struct Shadow {
    local: LocalMemory,
    /// The tile that last wrote each byte of local memory.
    defined: [Vec<u64>; Space::ALL.len()],
    touched: Vec<Vec<Touched>>,
    /// The argument whose memory an argument may share.
    home: Vec<usize>,
    /// Number of the tile, and of the step's first.
    tile: u64,
    first: u64,
}

struct Checked<'a> {
    flat: Flat<'a>,
    defined: &'a mut [Vec<u64>; Space::ALL.len()],
    touched: &'a mut [Vec<Touched>],
    home: &'a [usize],
    private: &'a [bool],
    tile: u64,
    first: u64,
}

impl Checked<'_> {
    fn race(&mut self, at: Address, len: usize, store: bool) -> Result<(), Fault> {
        let Region::Arg(arg) = at.region else { return Ok(()) };
        let (tile, first, from) = (self.tile, self.first, at.byte as usize);
        if self.private[arg as usize] {
            // Each group of cores has a copy: what a tile loads it has stored itself.
            let bytes = &mut self.touched[arg as usize][from..from + len];
            if store {
                bytes.iter_mut().for_each(|t| t.stored = tile);
            } else if bytes.iter().any(|t| t.stored != tile) {
                let what = format!("tile {tile} loads byte {from} of ring {arg} before it stores it");
                return Err(Fault::Denied(what));
            }
            return Ok(());
        }
        let home = self.home[arg as usize];
        let ours = |t: u64| t < first || t == tile;
        for (i, t) in self.touched[home][from..from + len].iter_mut().enumerate() {
            let meets = !ours(t.stored) || (store && t.loaded >= first && (t.loaded != tile || t.shared));
            if meets {
                let (byte, verb) = (from + i, if store { "stores" } else { "loads" });
                let other = if ours(t.stored) { t.loaded } else { t.stored };
                return Err(Fault::Denied(format!(
                    "tile {tile} {verb} byte {byte} of argument {arg}, which tile {other} of the same step touched"
                )));
            }
            if store {
                t.stored = tile;
            } else if t.loaded < first {
                (t.loaded, t.shared) = (tile, false);
            } else {
                t.shared |= t.loaded != tile;
            }
        }
        Ok(())
    }
}

impl Memory for Checked<'_> {
    fn target(&self) -> &Target {
        self.flat.target()
    }
    fn slot(&self, slot: u16) -> Result<Address, Fault> {
        self.flat.slot(slot)
    }
    fn read(&mut self, at: Address, into: &mut [u8]) -> Result<(), Fault> {
        self.flat.read(at, into)?;
        if let Region::Local(space) = at.region {
            let from = at.byte as usize;
            if !self.defined[space as usize][from..from + into.len()].iter().all(|&d| d == self.tile) {
                return Err(Fault::Denied(format!(
                    "reads {} at byte {from} before it is written",
                    space.name()
                )));
            }
        }
        self.race(at, into.len(), false)
    }
    fn write(&mut self, at: Address, bytes: &[u8]) -> Result<(), Fault> {
        self.flat.write(at, bytes)?;
        if let Region::Local(space) = at.region {
            let from = at.byte as usize;
            self.defined[space as usize][from..from + bytes.len()].fill(self.tile);
        }
        self.race(at, bytes.len(), true)
    }
    fn bind(&mut self, place: Local, to: Option<Bound>) {
        self.flat.bind(place, to);
    }
    fn bound(&self, place: Local) -> Option<Bound> {
        self.flat.bound(place)
    }
}

/// As [`crate::reference::run`], but an access that a verified program never makes is a [`Fault::Denied`] or
/// [`Fault::Bounds`].
///
/// # Errors
/// A trap, or what should not be possible.
pub fn run_checked(program: &Program, args: &mut [Vec<u8>], math: &dyn Math) -> Result<(), Failure> {
    start(program, args);
    let mut home: Vec<usize> = (0..args.len()).collect();
    for &(input, output) in &program.aliases {
        home[input as usize] = output as usize;
    }
    let private: Vec<bool> = program.args.iter().map(|a| a.role == Role::Ring).collect();
    let local = LocalMemory::new(&program.target, UNDEFINED);
    let defined = Space::ALL.map(|s| vec![0; local.space(s).len()]);
    let touched = args.iter().map(|a| vec![Touched::default(); a.len()]).collect();
    let mut s = Shadow { local, defined, touched, home, tile: 0, first: 1 };
    let mut step = 0;
    visit(program, |at: Visit, slots, inst, point| {
        if at.starts {
            s.tile += 1;
            if at.step != step {
                step = at.step;
                s.first = s.tile;
            }
        }
        let flat = Flat { target: &program.target, local: &mut s.local, args: &mut *args, slots };
        let mut memory = Checked {
            flat,
            defined: &mut s.defined,
            touched: &mut s.touched,
            home: &s.home,
            private: &private,
            tile: s.tile,
            first: s.first,
        };
        execute(inst, point, &mut memory, math)
    })
}
