//! Coefficients of the cost model. Times are nanoseconds, rates bytes (or operations) per nanosecond, that is GB/s.

use dvm_bc::{Class, DType};
use serde::{Deserialize, Serialize};

/// `fixed + n * per_element`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Nanoseconds per instruction.
    pub fixed: f64,
    /// Nanoseconds per element of four bytes.
    pub per_element: f64,
}

impl Linear {
    /// Nanoseconds for `n` elements.
    #[must_use]
    pub fn ns(self, n: f64) -> f64 {
        self.fixed + n * self.per_element
    }
}

/// What work costs on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// From asking for a launch to the first tile, ns.
    pub launch_ns: f64,
    /// Barrier between two steps of a launch, ns.
    pub step_ns: f64,
    /// Claiming and starting one tile, ns.
    pub tile_ns: f64,
    /// Row lengths are rounded up to this many bytes where there is a choice (the vector width).
    pub align_bytes: u32,
    /// Moves between arguments and local memory.
    pub dma: DmaCosts,
    /// Vector instructions.
    pub vector: VectorCosts,
    /// Matrix products.
    pub cube: CubeCosts,
}

/// Moves between arguments and local memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DmaCosts {
    /// One instruction, ns.
    pub fixed_ns: f64,
    /// Each contiguous row (burst) of a transfer, ns.
    pub row_ns: f64,
    /// Rate of one core from the shared cache.
    pub core_rate: f64,
    /// Rate of all cores together from the shared cache.
    pub cache_rate: f64,
    /// Rate of all cores together from main memory.
    pub memory_rate: f64,
    /// Size of the shared cache in bytes.
    pub cache_bytes: u64,
    /// Rows shorter than this many bytes are inefficient; a tiling does not go below without need.
    pub efficient_row_bytes: u32,
    /// Start addresses that are not multiples of this are slower.
    pub align_bytes: u32,
    /// Part of the rate that is left for unaligned rows, 0..=1.
    pub unaligned_factor: f64,
}

impl DmaCosts {
    /// Nanoseconds one core needs to move `rows` contiguous rows of `row_bytes` bytes through the shared cache.
    #[must_use]
    pub fn ns(&self, rows: f64, row_bytes: f64) -> f64 {
        self.fixed_ns + rows * (self.row_ns + row_bytes / self.core_rate)
    }
}

/// Vector instructions by [`Class`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorCosts {
    /// Copies, fills, conversions.
    pub r#move: Linear,
    /// One cheap operation an element.
    pub arith: Linear,
    /// Comparisons.
    pub compare: Linear,
    /// Divisions and square roots.
    pub divide: Linear,
    /// exp, ln, tanh, erf.
    pub exp: Linear,
    /// Trigonometry, pow.
    pub special: Linear,
    /// Reductions.
    pub reduce: Linear,
    /// argmax, argmin, running sums.
    pub scan: Linear,
    /// Factor for f16 and bf16 (per element, against f32): they may need conversion.
    pub half_factor: f64,
}

impl VectorCosts {
    /// The line for a class; `None` where the class is not the vector unit's.
    #[must_use]
    pub fn line(&self, class: Class) -> Option<Linear> {
        match class {
            Class::Control | Class::Dma | Class::Cube => None,
            Class::Move => Some(self.r#move),
            Class::Arith => Some(self.arith),
            Class::Compare => Some(self.compare),
            Class::Divide => Some(self.divide),
            Class::Exp => Some(self.exp),
            Class::Special => Some(self.special),
            Class::Reduce => Some(self.reduce),
            Class::Scan => Some(self.scan),
        }
    }
    /// Nanoseconds of one instruction over `elements` elements; 0 for classes of other units.
    #[must_use]
    pub fn ns(&self, class: Class, dtype: DType, elements: f64) -> f64 {
        let scale = match dtype {
            DType::F16 | DType::BF16 => self.half_factor,
            d => f64::from(d.size()) / 4.0,
        };
        self.line(class).map_or(0.0, |l| l.ns(elements * scale))
    }
}

/// Matrix products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CubeCosts {
    /// Cores with a matrix unit.
    pub cores: u32,
    /// One `mmad`, ns.
    pub fixed_ns: f64,
    /// Operations (two a multiply-add) per ns and core, f32.
    pub f32_rate: f64,
    /// f16 and bf16.
    pub half_rate: f64,
    /// 8-bit integers.
    pub i8_rate: f64,
    /// Every other dtype.
    pub other_rate: f64,
    /// Packing an operand into panels, bytes per ns and core.
    pub pack_rate: f64,
    /// (m, n, k) are charged rounded up to these.
    pub granule: [u32; 3],
}

impl CubeCosts {
    /// Nanoseconds of one `mmad`.
    #[must_use]
    pub fn ns(&self, dtype: DType, m: u32, n: u32, k: u32) -> f64 {
        let rate = match dtype {
            DType::F32 => self.f32_rate,
            DType::F16 | DType::BF16 => self.half_rate,
            DType::I8 | DType::U8 => self.i8_rate,
            _ => self.other_rate,
        };
        let round = |v: u32, g: u32| f64::from(v.div_ceil(g)) * f64::from(g);
        let [gm, gn, gk] = self.granule;
        self.fixed_ns + 2.0 * round(m, gm) * round(n, gn) * round(k, gk) / rate
    }
}

impl Costs {
    /// Every number with its name, for validation: (name, value, whether zero is legal).
    pub(crate) fn numbers(&self) -> Vec<(String, f64, bool)> {
        let mut out: Vec<(String, f64, bool)> = [
            ("launch_ns", self.launch_ns, true),
            ("step_ns", self.step_ns, true),
            ("tile_ns", self.tile_ns, true),
            ("align_bytes", f64::from(self.align_bytes), false),
            ("dma.fixed_ns", self.dma.fixed_ns, true),
            ("dma.row_ns", self.dma.row_ns, true),
            ("dma.core_rate", self.dma.core_rate, false),
            ("dma.cache_rate", self.dma.cache_rate, false),
            ("dma.memory_rate", self.dma.memory_rate, false),
            ("dma.efficient_row_bytes", f64::from(self.dma.efficient_row_bytes), false),
            ("dma.align_bytes", f64::from(self.dma.align_bytes), false),
            ("dma.unaligned_factor", self.dma.unaligned_factor, false),
            ("vector.half_factor", self.vector.half_factor, false),
            ("cube.cores", f64::from(self.cube.cores), false),
            ("cube.fixed_ns", self.cube.fixed_ns, true),
            ("cube.f32_rate", self.cube.f32_rate, false),
            ("cube.half_rate", self.cube.half_rate, false),
            ("cube.i8_rate", self.cube.i8_rate, false),
            ("cube.other_rate", self.cube.other_rate, false),
            ("cube.pack_rate", self.cube.pack_rate, false),
            ("cube.granule", f64::from(self.cube.granule.into_iter().min().unwrap_or(0)), false),
        ]
        .into_iter()
        .map(|(n, v, z)| (n.to_owned(), v, z))
        .collect();
        let v = &self.vector;
        for (name, l) in [
            ("move", v.r#move),
            ("arith", v.arith),
            ("compare", v.compare),
            ("divide", v.divide),
            ("exp", v.exp),
            ("special", v.special),
            ("reduce", v.reduce),
            ("scan", v.scan),
        ] {
            out.push((format!("vector.{name}.fixed"), l.fixed, true));
            out.push((format!("vector.{name}.per_element"), l.per_element, false));
        }
        out
    }
}
