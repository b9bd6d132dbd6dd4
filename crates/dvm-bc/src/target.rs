//! What a program was compiled for. Embedded in every program, so verifying needs no specification file.

use crate::Space;

/// One local memory space of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceSpec {
    /// Which space.
    pub space: Space,
    /// Capacity in bytes.
    pub bytes: u64,
}

/// How cube results reach the vector unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// `acc_to_ub` hands the tile over.
    Direct,
    /// Through a ring in the workspace.
    Memory,
}

/// The properties of a machine that a program depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// What makes this no target, empty for a sound one. Everything that sizes or addresses local memory relies on it.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut check = |ok: bool, what: std::fmt::Arguments<'_>| {
            if !ok {
                out.push(what.to_string());
            }
        };
        check((1..=1 << 16).contains(&self.cores), format_args!("{} cores are not in 1..=65536", self.cores));
        let block = self.block;
        let sound = block.is_power_of_two() && (8..=4096).contains(&block);
        check(sound, format_args!("block of {block} bytes is not a power of two in 8..=4096"));
        check(
            self.spaces.len() <= Space::ALL.len(),
            format_args!("{} spaces are too many", self.spaces.len()),
        );
        check(self.panel_nr.len() <= 4, format_args!("{} panel widths are too many", self.panel_nr.len()));
        for (i, s) in self.spaces.iter().enumerate().take(Space::ALL.len()) {
            let (name, bytes) = (s.space.name(), s.bytes);
            check(
                !self.spaces[..i].iter().any(|t| t.space == s.space),
                format_args!("space {name} is listed twice"),
            );
            check(bytes <= 1 << 40, format_args!("space {name} of {bytes} bytes is larger than 2^40"));
            check(
                bytes % u64::from(block.max(1)) == 0,
                format_args!("space {name}: {bytes} bytes are not whole blocks"),
            );
        }
        for (i, &(size, nr)) in self.panel_nr.iter().enumerate().take(4) {
            let known = matches!(size, 1 | 2 | 4 | 8) && !self.panel_nr[..i].iter().any(|p| p.0 == size);
            check(
                known,
                format_args!("panel width for elements of {size} bytes is not wanted or listed twice"),
            );
            check((1..=256).contains(&nr), format_args!("panel width {nr} is not in 1..=256"));
        }
        let mr = self.panel_mr;
        check((1..=256).contains(&mr), format_args!("panel height {mr} is not in 1..=256"));
        check(self.events <= 64, format_args!("{} event ids are more than 64", self.events));
        out
    }
    /// Panel width for a dtype of this many bytes.
    #[must_use]
    pub fn nr(&self, dtype_bytes: u32) -> u32 {
        self.panel_nr.iter().find(|(s, _)| *s == dtype_bytes).map_or(16, |(_, n)| *n)
    }
}
