//! What a program was compiled for. Embedded in every program, so verifying needs no specification file.

use crate::{Class, DType, MAX_EVENTS, Space};

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

/// A set of element types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DTypeSet(u16);

impl DTypeSet {
    /// Whether `dtype` is in it.
    #[must_use]
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 >> dtype as u8 & 1 != 0
    }
    /// One bit a dtype, at its number.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
    /// The set with these bits; `None` where one is no dtype's.
    #[must_use]
    pub fn from_bits(bits: u16) -> Option<DTypeSet> {
        let all: DTypeSet = DType::ALL.iter().copied().collect();
        (bits & !all.0 == 0).then_some(DTypeSet(bits))
    }
    /// Its dtypes, by number.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied().filter(move |&d| self.contains(d))
    }
}

impl FromIterator<DType> for DTypeSet {
    fn from_iter<I: IntoIterator<Item = DType>>(dtypes: I) -> DTypeSet {
        DTypeSet(dtypes.into_iter().fold(0, |bits, d| bits | 1 << d as u8))
    }
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
    /// Cube cores, where they are separate from the `cores` that run vector tiles; 0 where one core runs everything. Each leads a
    /// group of `cores / cube_cores` vector cores.
    pub cube_cores: u32,
    /// Element types that the machine has for a class of instructions. A class that is not listed takes every dtype.
    pub legal: Vec<(Class, DTypeSet)>,
}

impl Target {
    /// Capacity of a space in bytes, 0 where the target lacks it.
    #[must_use]
    pub fn capacity(&self, space: Space) -> u64 {
        self.spaces.iter().find(|s| s.space == space).map_or(0, |s| s.bytes)
    }
    /// Whether the machine has this class of instructions for this dtype.
    #[must_use]
    pub fn is_legal(&self, class: Class, dtype: DType) -> bool {
        self.legal.iter().find(|l| l.0 == class).is_none_or(|l| l.1.contains(dtype))
    }
    /// Whether cube and vector pipes are of different cores.
    #[must_use]
    pub const fn separate_cube(&self) -> bool {
        self.cube_cores > 0
    }
    /// Vector cores of a group; 1 where cube cores are not separate.
    #[must_use]
    pub fn vec_per_cube(&self) -> u32 {
        self.cores.checked_div(self.cube_cores).unwrap_or(1)
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
        check(
            self.events <= MAX_EVENTS,
            format_args!("{} event ids are more than {MAX_EVENTS}", self.events),
        );
        let cubes = self.cube_cores;
        check(
            cubes == 0 || self.cores.is_multiple_of(cubes),
            format_args!("{} cores are no whole number for each of {cubes} cube cores", self.cores),
        );
        check(
            self.legal.len() <= Class::ALL.len(),
            format_args!("{} legal classes are too many", self.legal.len()),
        );
        for (i, l) in self.legal.iter().enumerate().take(Class::ALL.len()) {
            let again = self.legal[..i].iter().any(|m| m.0 == l.0);
            check(!again, format_args!("legal dtypes of {} are listed twice", l.0.name()));
        }
        out
    }
    /// Panel width for a dtype of this many bytes.
    #[must_use]
    pub fn nr(&self, dtype_bytes: u32) -> u32 {
        self.panel_nr.iter().find(|(s, _)| *s == dtype_bytes).map_or(16, |(_, n)| *n)
    }
}
