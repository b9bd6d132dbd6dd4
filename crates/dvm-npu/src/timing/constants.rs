//! The numbers of the timing model: one flat table, so that every one can be overridden, swept and named in a report.

use dvm_bc::Target;
use serde::{Deserialize, Serialize};

use crate::Costs;

macro_rules! constants {
    ($($(#[doc = $doc:literal])* $name:ident: $unit:literal, $range:ident;)*) => {
        /// What the timing model of a machine is made of. Cycles are those of the cores' clock, rates are per core where not said
        /// otherwise.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Constants { $($(#[doc = $doc])* pub $name: f64,)* }

        impl Constants {
            /// The table: name, unit and meaning of each constant.
            pub const TABLE: &'static [(&'static str, &'static str, &'static str)] =
                &[$((stringify!($name), $unit, concat!($($doc),*)),)*];

            /// A constant by name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<f64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }
            /// The place of a constant by name.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name { $(stringify!($name) => Some(&mut self.$name),)* _ => None }
            }
            /// What is out of range, each with its key.
            #[must_use]
            pub fn problems(&self) -> Vec<String> {
                let mut out = Vec::new();
                $(if let Some(wants) = Range::$range.refuses(self.$name) {
                    out.push(format!("timing.{} = {} is not {wants}", stringify!($name), self.$name));
                })*
                out
            }
        }
    };
}

enum Range {
    /// Finite, above 0.
    Positive,
    /// Finite, 0 or more.
    Zero,
    /// Above 0; infinite where each core has its own.
    Rate,
}

impl Range {
    fn refuses(self, v: f64) -> Option<&'static str> {
        match self {
            Range::Positive if v.is_finite() && v > 0.0 => None,
            Range::Positive => Some("a positive number"),
            Range::Zero if v.is_finite() && v >= 0.0 => None,
            Range::Zero => Some("0 or a positive number"),
            Range::Rate if v > 0.0 => None,
            Range::Rate => Some("a positive rate"),
        }
    }
}

constants! {
    /// Clock of the cores.
    mhz: "MHz", Positive;
    /// From the start of the task to the first instruction.
    launch_us: "us", Zero;
    /// Added to `launch_us` for each core that takes part.
    launch_core_us: "us", Zero;
    /// From the last core's end to the end of the task.
    finish_us: "us", Zero;
    /// Barrier of all cores between steps.
    step_sync: "cycles", Zero;
    /// The scalar unit reads one bytecode instruction.
    decode: "cycles", Zero;
    /// Instructions that a pipe's queue holds before the scalar unit waits.
    queue_depth: "instructions", Positive;
    /// Global memory to vector memory.
    gm_ub: "B/cycle", Rate;
    /// Vector memory to global memory.
    ub_gm: "B/cycle", Rate;
    /// Global memory to the cube core's L1.
    gm_l1: "B/cycle", Rate;
    /// Accumulators to global memory.
    l0c_gm: "B/cycle", Rate;
    /// Accumulators to vector memory, where cores exchange directly.
    l0c_ub: "B/cycle", Rate;
    /// L1 to L0A.
    l1_l0a: "B/cycle", Rate;
    /// L1 to L0B.
    l1_l0b: "B/cycle", Rate;
    /// Memory bandwidth of the chip, the ceiling of writes; infinite: every core has its own.
    hbm_peak: "B/s", Rate;
    /// Part of `hbm_peak` that reads reach.
    hbm_read: "1", Positive;
    /// L2 bandwidth of the chip; infinite: every core has its own.
    l2_rate: "B/s", Rate;
    /// Capacity of L2; 0: there is none.
    l2_bytes: "B", Zero;
    /// Line of L2. A transfer moves whole lines, so starts between lines cost one more.
    l2_line: "B", Positive;
    /// A DMA instruction occupies its pipe at least this long.
    dma_issue: "cycles", Zero;
    /// A contiguous run inside a transfer to vector memory takes at least this long.
    burst_ub: "cycles", Zero;
    /// As `burst_ub`, into L1.
    burst_l1: "cycles", Zero;
    /// As `burst_ub`, stores.
    burst_store: "cycles", Zero;
    /// From a load's last request to its data, in L2.
    lat_l2: "cycles", Zero;
    /// As `lat_l2`, where something comes from memory.
    lat_hbm: "cycles", Zero;
    /// From a store's last byte to its completion.
    lat_store: "cycles", Zero;
    /// Stores of rows shorter than a line that are no multiple of 32 bytes.
    unaligned_store: "B/cycle", Rate;
    /// Each request for lines that another core has just begun to read, of all cores together; 0: no matter.
    same_line: "cycles", Zero;
    /// Start-up of the first load of a core in a launch.
    mte2_head: "cycles", Zero;
    /// Added to `mte2_head` for each core that takes part.
    mte2_head_core: "cycles", Zero;
    /// Start-up of the first store of a core in a launch.
    mte3_head: "cycles", Zero;
    /// Latency of a product after something else.
    mmad_head: "cycles", Zero;
    /// Gap between products in a row.
    mmad_next: "cycles", Zero;
    /// Latency of a transfer from L1 to L0.
    mte1_head: "cycles", Zero;
    /// Latency of a transfer out of the accumulators.
    fix_head: "cycles", Zero;
    /// k a cycle for a 16 x 16 block of 8-bit integers.
    cube_k_i8: "1", Positive;
    /// As `cube_k_i8`, f16 and bf16.
    cube_k_half: "1", Positive;
    /// As `cube_k_i8`, f32.
    cube_k_f32: "1", Positive;
    /// As `cube_k_i8`, everything else.
    cube_k_other: "1", Positive;
    /// Bytes of a vector register; one step (repeat) of an instruction.
    vec_bytes: "B", Positive;
    /// Latency of a vector instruction beyond its repeats.
    vec_fixed: "cycles", Zero;
    /// Part of the latency that shows before the first repeat, unless the pipe is busy.
    vec_head: "cycles", Zero;
    /// Each further hardware instruction that an instruction of the bytecode is made of.
    vec_next: "cycles", Zero;
    /// Rows whose length is no multiple of the register: each such instruction.
    vec_tail: "cycles", Zero;
    /// Both sources of a repeat lie in one group of banks.
    bank_read: "cycles", Zero;
    /// Source and destination of a repeat lie in one bank.
    bank_write: "cycles", Zero;
    /// Copies, fills, conversions: per repeat.
    vec_move: "cycles", Positive;
    /// One cheap operation an element: per repeat.
    vec_arith: "cycles", Positive;
    /// Comparisons: per repeat.
    vec_compare: "cycles", Positive;
    /// Reciprocal and its square root: per repeat.
    vec_reciprocal: "cycles", Positive;
    /// Square root: per repeat of f32.
    vec_sqrt: "cycles", Positive;
    /// Division: per repeat of f32.
    vec_div: "cycles", Positive;
    /// Exponential and logarithm: per repeat of f32.
    vec_exp: "cycles", Positive;
    /// Factor of the last three for f16, whose repeats hold twice as many elements.
    vec_half: "1", Positive;
    /// Sigmoid: per repeat of f32.
    vec_sigmoid: "cycles", Positive;
    /// Hyperbolic tangent and other short compositions: per repeat of f32.
    vec_tanh: "cycles", Positive;
    /// Error function: per repeat of f32.
    vec_erf: "cycles", Positive;
    /// Power, trigonometry, remainders: per repeat of f32.
    vec_special: "cycles", Positive;
    /// Latency of such compositions.
    vec_special_fixed: "cycles", Zero;
    /// A repeat reduced to one value.
    vec_reduce: "cycles", Positive;
    /// A repeat reduced to one value each 32 bytes.
    vec_block: "cycles", Positive;
    /// Latency of reductions.
    vec_reduce_fixed: "cycles", Zero;
    /// Running sums and searches with an index: an element of the row.
    vec_scan: "cycles", Positive;
    /// Strided and transposing moves inside vector memory: elements.
    vec_gather: "elements/cycle", Rate;
    /// Sorting: element steps.
    vec_sort: "elements/cycle", Rate;
    /// From a set flag to the pipe that waits for it.
    flag_latency: "cycles", Zero;
    /// A pipe waits for its own earlier instructions.
    barrier: "cycles", Zero;
    /// A flag between cores.
    xcore_latency: "cycles", Zero;
}

impl Constants {
    /// For machines that state only what a compiler needs: cycles are nanoseconds.
    #[must_use]
    pub fn from_costs(costs: &Costs, target: &Target) -> Constants {
        let (d, v, c) = (&costs.dma, &costs.vector, &costs.cube);
        let lanes = 64.0;
        let k = |rate: f64| rate / 512.0;
        Constants {
            mhz: 1000.0,
            launch_us: costs.launch_ns / 1000.0,
            launch_core_us: 0.0,
            finish_us: 0.0,
            step_sync: costs.step_ns,
            decode: if target.async_pipes { costs.tile_ns } else { 2.0 },
            queue_depth: 32.0,
            gm_ub: d.core_rate,
            ub_gm: d.core_rate,
            gm_l1: c.pack_rate,
            l0c_gm: d.core_rate,
            l0c_ub: d.core_rate,
            l1_l0a: f64::INFINITY,
            l1_l0b: f64::INFINITY,
            hbm_peak: d.memory_rate * 1e9,
            hbm_read: 1.0,
            l2_rate: d.cache_rate * 1e9,
            l2_bytes: d.cache_bytes as f64,
            l2_line: f64::from(d.align_bytes),
            dma_issue: d.fixed_ns,
            burst_ub: d.row_ns,
            burst_l1: d.row_ns,
            burst_store: d.row_ns,
            lat_l2: 0.0,
            lat_hbm: 0.0,
            lat_store: 0.0,
            unaligned_store: d.core_rate,
            same_line: 0.0,
            mte2_head: 0.0,
            mte2_head_core: 0.0,
            mte3_head: 0.0,
            mmad_head: c.fixed_ns,
            mmad_next: c.fixed_ns,
            mte1_head: 0.0,
            fix_head: 0.0,
            cube_k_i8: k(c.i8_rate),
            cube_k_half: k(c.half_rate),
            cube_k_f32: k(c.f32_rate),
            cube_k_other: k(c.other_rate),
            vec_bytes: 4.0 * lanes,
            vec_fixed: v.arith.fixed,
            vec_head: v.arith.fixed,
            vec_next: 0.0,
            vec_tail: 0.0,
            bank_read: 0.0,
            bank_write: 0.0,
            vec_move: v.r#move.per_element * lanes,
            vec_arith: v.arith.per_element * lanes,
            vec_compare: v.compare.per_element * lanes,
            vec_reciprocal: v.divide.per_element * lanes,
            vec_sqrt: v.divide.per_element * lanes,
            vec_div: v.divide.per_element * lanes,
            vec_exp: v.exp.per_element * lanes,
            vec_half: 2.0 * v.half_factor,
            vec_sigmoid: v.exp.per_element * lanes,
            vec_tanh: v.exp.per_element * lanes,
            vec_erf: v.exp.per_element * lanes,
            vec_special: v.special.per_element * lanes,
            vec_special_fixed: v.special.fixed,
            vec_reduce: v.reduce.per_element * lanes,
            vec_block: v.reduce.per_element * lanes,
            vec_reduce_fixed: v.reduce.fixed,
            vec_scan: v.scan.per_element,
            vec_gather: 1.0 / v.r#move.per_element,
            vec_sort: 1.0 / v.scan.per_element,
            flag_latency: 0.0,
            barrier: 0.0,
            xcore_latency: 0.0,
        }
    }

    /// Bytes that all cores together move to or from memory in a cycle.
    pub(super) fn hbm_cycle(&self) -> f64 {
        self.hbm_peak / (self.mhz * 1e6)
    }
    /// As [`Constants::hbm_cycle`], from L2.
    pub(super) fn l2_cycle(&self) -> f64 {
        self.l2_rate / (self.mhz * 1e6)
    }
}
