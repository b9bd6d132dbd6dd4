//! What the tiler decided, for people and snapshots.

use std::fmt;

use dvm_bc::{Kind, Space as Memory};
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

/// The tiling of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiling {
    /// Kernel.
    pub kernel: String,
    /// Kind of unit.
    pub kind: Kind,
    /// Folds, outermost first; the last two of a matrix product are its rows and columns.
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
    /// The value of the kernel that each instruction computes, moves or stores, in the order of the template's sections.
    pub values: Vec<u32>,
    /// How the right operand of a matrix product is to be packed, where it is bound in panels.
    pub pack: Option<Pack>,
}

impl Tiling {
    /// What an instruction of the template, counted over its sections in order, is for: `%4 sub`.
    #[must_use]
    pub fn note(&self, kernel: &Kernel, instruction: usize) -> Option<String> {
        let v = *self.values.get(instruction)?;
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
            values: vec![],
            pack: None,
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
        if let Some(p) = &self.pack {
            let m = &p.matrices;
            write!(f, ", panels of {} ({} x {} x {})", p.nr, m.batch, m.k, m.n)?;
        }
        Ok(())
    }
}
