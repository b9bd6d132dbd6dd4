//! What a run did and what it cost.

use std::fmt;

/// Times and sizes of one run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunReport {
    /// Bound symbols, in the graph's order.
    pub dims: Vec<(String, i64)>,
    /// Import, fusion and weight packing, where this run did them. In µs.
    pub plan_us: f64,
    /// From "dims bound" to "launchable": tile, encode, verify, predecode, plan memory. In µs; 0 on a cache hit.
    pub compile_us: f64,
    /// The part of it in which no program ran. In µs.
    pub exposed_compile_us: f64,
    /// Programs that were begun to be encoded before the run of the one before them ended.
    pub overlapped: usize,
    /// The launches. In µs.
    pub run_us: f64,
    /// The program for this shape was in the cache.
    pub cache_hit: bool,
    /// Programs launched.
    pub launches: usize,
    /// Kernels (units) executed.
    pub kernels: usize,
    /// Steps executed: kernels of one step run side by side.
    pub steps: usize,
    /// Bytes that kernels loaded from inputs, weights and workspace; 0 unless [`crate::Options::traffic`] asked for it.
    pub loaded_bytes: u64,
    /// Bytes that kernels stored to outputs and workspace.
    pub stored_bytes: u64,
    /// Size of the encoded instructions.
    pub bytecode_bytes: usize,
    /// Weights, workspace, inputs and outputs held during the run.
    pub peak_bytes: usize,
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.dims {
            write!(f, "{name}={value} ")?;
        }
        write!(
            f,
            "plan {:.0} µs, compile {:.1} µs ({:.1} exposed), run {:.1} µs, {} kernels in {} launch{}, {} B bytecode, {:.2} MB{}",
            self.plan_us,
            self.compile_us,
            self.exposed_compile_us,
            self.run_us,
            self.kernels,
            self.launches,
            if self.launches == 1 { "" } else { "es" },
            self.bytecode_bytes,
            self.peak_bytes as f64 / 1e6,
            if self.cache_hit { ", cached" } else { "" }
        )
    }
}
