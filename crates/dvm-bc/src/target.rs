//! What a program was compiled for. Embedded in every program, so verifying needs no specification file.

use serde::{Deserialize, Serialize};

use crate::Space;

/// One local memory space of a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSpec {
    /// Which space.
    pub space: Space,
    /// Capacity in bytes.
    pub bytes: u64,
}

/// How cube results reach the vector unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// `acc_to_ub` hands the tile over.
    Direct,
    /// Through a ring in the workspace.
    Memory,
}

/// The properties of a machine that a program depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Name, e.g. `host-ref`.
    pub name: String,
    /// Cores that run tiles (vector cores where there are separate cube cores).
    pub cores: u32,
    /// Local memory spaces.
    pub spaces: Vec<SpaceSpec>,
    /// Unit of local offsets, in bytes. A power of two, at least 8.
    pub block: u32,
    /// Width of packed right-operand panels (`panels{nr}`), per dtype size in bytes: (size, nr).
    pub panel_nr: Vec<(u32, u32)>,
    /// Height of packed left-operand panels.
    pub panel_mr: u32,
    /// How cube results reach the vector unit.
    pub exchange: Exchange,
    /// Pipes run asynchronously and need events.
    pub async_pipes: bool,
    /// Event ids per ordered pipe pair (0 where pipes are in order).
    pub events: u32,
}

impl Target {
    /// Capacity of a space in bytes, 0 where the target lacks it.
    #[must_use]
    pub fn capacity(&self, space: Space) -> u64 {
        self.spaces.iter().find(|s| s.space == space).map_or(0, |s| s.bytes)
    }
    /// Panel width for a dtype of this many bytes.
    #[must_use]
    pub fn nr(&self, dtype_bytes: u32) -> u32 {
        self.panel_nr.iter().find(|(s, _)| *s == dtype_bytes).map_or(16, |(_, n)| *n)
    }
}
