//! What the tiler decided, for people and snapshots.

use std::fmt;

use dvm_bc::{Kind, Pipe, Space as Memory};
use dvm_ir::Kernel;
use dvm_ir::kernel::{KOp, KValue};

use crate::Pack;
use crate::space::Fold;

/// What happens to the tiles of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldRole {
    /// One tile covers it.
    Whole,
    /// Tiles are spread over cores.
    Parallel,
    /// One core walks the tiles in order.
    Sequential,
}

/// A fold of the iteration space and its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldTiling {
    /// Elements.
    pub extent: u64,
    /// Elements in a tile.
    pub tile: u32,
    /// Number of tiles.
    pub count: u64,
    /// What happens to them.
    pub role: FoldRole,
    /// Reduced, or missing in a store: never spread over cores.
    pub walked: bool,
}

impl FoldTiling {
    pub(crate) fn of(f: &Fold) -> FoldTiling {
        let role = match (f.count, f.walked) {
            (1, _) => FoldRole::Whole,
            (_, false) => FoldRole::Parallel,
            (_, true) => FoldRole::Sequential,
        };
        FoldTiling { extent: f.n, tile: f.tile, count: f.count, role, walked: f.walked }
    }
}

/// A tiling for a kernel instead of what the cost model finds, for searches and experiments. No value depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// Tile of each fold, outermost first, as in [`Tiling::folds`]; folds beyond the list are whole. Of a product the last two are rows
    /// and columns, and batch folds are single elements whatever is said.
    pub tiles: Vec<u32>,
    /// Block of k of a product.
    pub k0: u32,
}

/// A tiling that was looked at, and what the cost model says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Tile of each fold.
    pub tiles: Vec<u32>,
    /// Block of k of a product.
    pub k0: Option<u32>,
    /// Parallel tiles, and how many of them one core runs.
    pub count: u64,
    /// See `count`.
    pub waves: u64,
    /// Time of a tile's transfers, ns.
    pub dma_ns: f64,
    /// Time of its vector instructions, ns.
    pub vector_ns: f64,
    /// Time of its product with packing, ns.
    pub product_ns: f64,
    /// Predicted time of the kernel, ns: the waves times a tile with its overhead.
    pub total_ns: f64,
}

/// What an instruction of a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It computes, moves or stores this value of the kernel.
    Value(u32),
    /// A `nop` that lets some work wait for other work.
    Order {
        /// What waits.
        what: Work,
        /// For what.
        after: Work,
        /// For what of the section's previous execution, or of the previous tile.
        before: bool,
    },
    /// Pipes are emptied: because an earlier section is to be finished on one, or because event ids have run out.
    Drain,
}

/// The work of one pipe in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Phase, from 0.
    pub phase: u32,
    /// Pipe.
    pub pipe: Pipe,
}

impl fmt::Display for Work {
    /// `phase 2 loads`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.pipe {
            Pipe::Mte2 => "loads",
            Pipe::V => "vectors",
            Pipe::Mte3 => "stores",
            Pipe::CMte2 => "panels",
            Pipe::M => "products",
            Pipe::Fix => "results",
        };
        write!(f, "phase {} {what}", self.phase + 1)
    }
}

/// The tiling of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiling {
    /// Kernel.
    pub kernel: String,
    /// Kind of unit.
    pub kind: Kind,
    /// Folds, outermost first; the last two of a matrix product are its rows and columns, the last three of two products the
    /// rows, the columns of the first and the columns of the second.
    pub folds: Vec<FoldTiling>,
    /// Inner extent of a matrix product and its block.
    pub k: Option<(u64, u32)>,
    /// Parallel tiles; 0 where nothing is stored.
    pub tiles: u64,
    /// Bytes of local memory in use, by space.
    pub local: [u64; 4],
    /// Predicted time of one tile, ns.
    pub tile_ns: f64,
    /// Bytes one tile moves.
    pub tile_bytes: f64,
    /// What each instruction is for, in the order of the template's sections.
    pub notes: Vec<Note>,
    /// How the right operand of a matrix product is to be packed, where it is bound in panels.
    pub pack: Option<Pack>,
    /// The tilings that the cost model compared, in order; empty unless [`crate::Scratch::trace`] asks for them.
    pub candidates: Vec<Candidate>,
    /// Bytes of the ring through which a product reaches the vector cores; 0 where there is none.
    pub ring: u64,
}

impl Tiling {
    /// What an instruction of the template, counted over its sections in order, is for: `%4 sub`, or
    /// `phase 2 loads wait for phase 1 vectors`.
    #[must_use]
    pub fn note(&self, kernel: &Kernel, instruction: usize) -> Option<String> {
        let v = match *self.notes.get(instruction)? {
            Note::Value(v) => v,
            Note::Order { what, after, before } => {
                let which = if before { " of the time before" } else { "" };
                return Some(format!("{what} wait for {after}{which}"));
            }
            Note::Drain => return Some("all before is to be finished".to_owned()),
        };
        let name = match &kernel.body.get(v as usize)?.op {
            KOp::Load { .. } => "load",
            KOp::Gather { .. } => "gather",
            KOp::Const(_) => "const",
            KOp::DimConst(_) => "dim",
            KOp::Iota { .. } => "iota",
            KOp::Unary(op, _) => op.name(),
            KOp::Binary(op, ..) => op.name(),
            KOp::Fma(..) => "fma",
            KOp::Select(..) => "select",
            KOp::Clamp(..) => "clamp",
            KOp::Cast(_) => "cast",
            KOp::Reduce(op, ..) => op.name(),
            KOp::ArgReduce { max: true, .. } => "argmax",
            KOp::ArgReduce { .. } => "argmin",
            KOp::CumSum { .. } => "cumsum",
            KOp::MatMul { .. } => "matmul",
            KOp::Contract { .. } => "contract",
        };
        Some(format!("{} {name}", KValue(v)))
    }
}

impl Default for Tiling {
    fn default() -> Tiling {
        Tiling {
            kernel: String::new(),
            kind: Kind::Vector,
            folds: vec![],
            k: None,
            tiles: 0,
            local: [0; 4],
            tile_ns: 0.0,
            tile_bytes: 0.0,
            notes: vec![],
            pack: None,
            candidates: vec![],
            ring: 0,
        }
    }
}

impl fmt::Display for Tiling {
    /// `ln vector [1000/64 par, 768 red] 16 tiles, ub 196608`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Vector => "vector",
            Kind::Cube => "cube",
            Kind::Mix => "mix",
        };
        write!(f, "{} {kind} [", self.kernel)?;
        for (i, d) in self.folds.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let walked = if d.walked { " red" } else { "" };
            match d.role {
                FoldRole::Whole => write!(f, "{comma}{}{walked}", d.extent)?,
                FoldRole::Parallel => write!(f, "{comma}{}/{} par", d.extent, d.tile)?,
                FoldRole::Sequential => write!(f, "{comma}{}/{}{walked} seq", d.extent, d.tile)?,
            }
        }
        f.write_str("]")?;
        if let Some((k, k0)) = self.k {
            write!(f, " k {k}/{k0}")?;
        }
        write!(f, " {} tiles", self.tiles)?;
        for (space, bytes) in Memory::ALL.iter().zip(self.local) {
            if bytes > 0 {
                write!(f, ", {} {bytes}", space.name())?;
            }
        }
        if self.ring > 0 {
            write!(f, ", ring {}", self.ring)?;
        }
        if let Some(p) = &self.pack {
            let m = &p.matrices;
            write!(f, ", panels of {} ({} x {} x {})", p.nr, m.batch, m.k, m.n)?;
        }
        Ok(())
    }
}
