//! Published measurements that the constants may be fitted to, as rows to predict.
//!
//! Rows that no graph can express are kernels in `calibration/`, written as the measured ones are; the others are graphs. The measured kernels are
//! native code, not bytecode, so reading an instruction is charged a cycle; and the vendor's samples ran at 1.85 GHz.

use dvm_bc::Program;

use crate::timing::{Options, TimingError, simulate};
use crate::{Confidence, MachineSpec, SpecError};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A kernel in text form.
    Kernel(&'static str),
    /// A graph's text and its dims, to be compiled.
    Graph(&'static str, &'static str),
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Number in the list of measurements, and what it is.
    pub row: u32,
    /// In a few words.
    pub name: &'static str,
    /// Shipped spec.
    pub machine: &'static str,
    /// Microseconds.
    pub measured: f64,
    /// The program.
    pub source: Source,
    /// Cores that take part, where not all.
    pub cores: Option<u32>,
    /// Measured inside the kernel: without its launch.
    pub inside: bool,
}

macro_rules! kernels {
    ($($row:literal $name:literal $machine:literal $measured:literal $file:literal $cores:expr, $inside:literal;)*) => {
        &[$(Row {
            row: $row, name: $name, machine: $machine, measured: $measured,
            source: Source::Kernel(include_str!(concat!("../calibration/", $file, ".dvmasm"))),
            cores: $cores, inside: $inside,
        },)*]
    };
}

const KERNELS: &[Row] = kernels! {
    1 "copy 12288^2 f16, tiles 1 x 64" "ascend-910b2" 564.8 "copy_1x64" None, false;
    2 "copy, tiles 64 x 1024" "ascend-910b2" 215.8 "copy_64x1024" None, false;
    2 "copy, tiles 64 x 1024" "ascend-950" 188.5 "copy_64x1024" None, false;
    3 "copy to L1, tiles 64 x 256" "ascend-910b2" 230.2 "copy_l1_64x256" None, false;
    4 "copy, rows of 12287" "ascend-910b2" 275.3 "copy_odd_64x1024" None, false;
    4 "copy to L1, rows of 12287" "ascend-910b2" 438.8 "copy_odd_l1_64x256" None, false;
    5 "four times the whole" "ascend-910b2" 828.0 "reread_whole" None, false;
    5 "four times each quarter" "ascend-910b2" 366.0 "reread_split" None, false;
    6 "48 cores, same order" "ascend-910b2" 539.4 "same_order" None, false;
    6 "48 cores, rotated" "ascend-910b2" 328.9 "same_rotated" None, false;
    7 "add 8192^2 f16, 1 core, 8 KiB" "ascend-910b2" 6909.6 "add_8k" Some(1), false;
    8 "add, 48 cores, 8 KiB" "ascend-910b2" 306.6 "add_8k" None, false;
    8 "add, 32 KiB" "ascend-910b2" 268.5 "add_32k" None, false;
    8 "add, two buffers" "ascend-910b2" 264.0 "add_double" None, false;
    9 "add, past L2" "ascend-910b2" 187.7 "add_bypass" None, false;
    9 "add, other banks" "ascend-910b2" 184.5 "add_banks" None, false;
    10 "64 repeats x 1000, clean" "ascend-910b2" 47.8 "bank_clean" None, true;
    10 "two reads of a bank group" "ascend-910b2" 83.34 "bank_read" None, true;
    10 "read and write of a bank" "ascend-910b2" 75.02 "bank_write" None, true;
    11 "sum of 256 f32 x 100, registers" "ascend-910b2" 13.0 "reduce_repeats" None, true;
    11 "blocks of 32 bytes" "ascend-910b2" 13.94 "reduce_blocks" None, true;
    11 "blocks, then a register" "ascend-910b2" 8.44 "reduce_mixed" None, true;
};

const ADD: &str = "graph add(%x: f16[n, n], %y: f16[n, n]) -> (%z) {\n  %z = add %x, %y\n}\n";
const PRODUCT: &str = "graph product(%a: f16[n, n], %b: f16[n, n]) -> (%c) {\n  %c = matmul %a, %b\n}\n";

const fn graph(row: u32, name: &'static str, measured: f64, text: &'static str, dims: &'static str) -> Row {
    let source = Source::Graph(text, dims);
    Row { row, name, machine: "ascend-910b2", measured, source, cores: None, inside: false }
}

const GRAPHS: &[Row] = &[
    // One buffer of what the tiler chooses; the nearest measured one has 32 KiB.
    graph(8, "add, compiled", 268.5, ADD, "n=8192"),
    graph(18, "product 1536^3 f16", 38.8, PRODUCT, "n=1536"),
    graph(18, "product 3072^3", 206.7, PRODUCT, "n=3072"),
    graph(18, "product 6144^3", 1506.0, PRODUCT, "n=6144"),
    graph(18, "product 7680^3", 3168.0, PRODUCT, "n=7680"),
];

/// Why a row has no prediction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// A kernel is none.
    #[error("row {row}: {what}")]
    Program {
        /// Which.
        row: u32,
        /// Why.
        what: String,
    },
    /// A spec is none.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It cannot be timed.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

/// Compiles a graph's text for dims like `n=8192`.
pub type Compile<'a> = &'a dyn Fn(&str, &str, &MachineSpec) -> Result<Program, String>;

impl Row {
    /// All rows.
    #[must_use]
    pub fn all() -> Vec<Row> {
        KERNELS.iter().chain(GRAPHS).copied().collect()
    }

    /// The machine as the row was measured on it.
    ///
    /// # Errors
    /// Never for shipped specs.
    pub fn spec(&self) -> Result<MachineSpec, SpecError> {
        let mut spec = MachineSpec::named(self.machine)?;
        let t = &mut spec.timing;
        t.decode = 1.0;
        if self.machine == "ascend-910b2" {
            t.mhz = 1850.0;
        }
        if self.inside {
            (t.launch_us, t.launch_core_us, t.finish_us) = (0.0, 0.0, 0.0);
            t.mte3_head = 0.0;
        }
        Ok(spec)
    }

    /// The program for the row's machine.
    ///
    /// # Errors
    /// It does not compile.
    pub fn program(&self, compile: Compile<'_>) -> Result<Program, CalibrationError> {
        let error = |what: String| CalibrationError::Program { row: self.row, what };
        let spec = MachineSpec::named(self.machine)?;
        match self.source {
            Source::Kernel(text) => {
                let mut p = dvm_bc::asm(text).map_err(|e| error(e.to_string()))?;
                (p.target.cores, p.target.cube_cores) = (spec.target.cores, spec.target.cube_cores);
                Ok(p)
            }
            Source::Graph(text, dims) => compile(text, dims, &spec).map_err(error),
        }
    }

    /// Predicted microseconds of `program` on `spec`.
    ///
    /// # Errors
    /// The program cannot be timed.
    pub fn predict(&self, program: &Program, spec: &MachineSpec) -> Result<f64, TimingError> {
        Ok(simulate(program, spec, &Options { cores: self.cores, ..Options::default() })?.us)
    }

    /// What a naive model says, in microseconds: a fixed cost and the arguments' bytes at 1.6 TB/s, or products at peak; `None` inside
    /// a kernel.
    #[must_use]
    pub fn naive(&self, program: &Program) -> Option<f64> {
        if self.inside {
            return None;
        }
        let bytes: u64 = program.args.iter().map(|a| a.bytes).sum();
        let side = match self.source {
            Source::Graph(PRODUCT, dims) => dims.split_once('=').and_then(|d| d.1.parse::<f64>().ok()),
            _ => None,
        };
        Some(match side {
            Some(n) => 2.0 * n.powi(3) / 353.9e6,
            None => 5.2 + bytes as f64 / 1.6e6,
        })
    }
}

/// The constants of a shipped spec that are fitted, and what their comments say.
#[must_use]
pub fn fitted(machine: &str) -> Vec<crate::Origin> {
    let origins = MachineSpec::source(machine).map(MachineSpec::origins).unwrap_or_default();
    origins.into_iter().filter(|o| o.confidence == Confidence::Fitted).collect()
}
