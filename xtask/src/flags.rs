//! Command line of `cargo xtask`.
#![allow(missing_docs, unreachable_pub, reason = "the macro's items take no docs")]

use std::path::PathBuf;

use crate::onnx_suite::Engine;

xflags::xflags! {
    /// Repository chores.
    cmd xtask {
        /// Write the generated pages under docs/ and the demo model.
        cmd codegen {
            /// Fail, naming the command to run, when a file is out of date; write nothing.
            optional --check
        }
        /// Compare the compiled form of the snapshot cases with snapshots/MACHINE/CASE.txt; print a diff of each that differs.
        cmd snapshots {
            /// Compare (the default).
            optional --check
            /// Write them, and remove those of no case.
            optional --accept
            /// Only cases whose name contains this.
            optional --only text: String
        }
        /// Run the fuzz bodies on seeds; print how many programs were decoded, accepted, run. Fails where a property does not hold.
        cmd fuzz {
            /// Programs (default 100000, or as many as fit the time).
            optional --programs programs: u64
            /// Stop after so many seconds.
            optional --seconds seconds: u64
            /// First seed.
            optional --from from: u64
            /// Threads that make and verify programs; each has a machine of two workers (default 2).
            optional --jobs jobs: usize
            /// Of so many programs one is run where it is accepted (default 8; 1: all).
            optional --run-every run_every: u64
            /// Print each seed before it is used: the last one printed crashed.
            optional --trace
            /// Write the corpus of the cargo-fuzz targets instead.
            optional --corpus
        }
        /// Compare random graphs with the reference evaluator: static, fused and not, on machines large and tiny, and op by op
        /// through a stream, each for several bindings of its symbols, 0 and 1 among them. Prints how to see a failure again.
        cmd random {
            /// Graphs (default 2000).
            optional --graphs graphs: u64
            /// Seed of the first (default 0).
            optional --seed seed: u64
            /// Graphs at a time (default 2).
            optional --jobs jobs: usize
            /// Try to make each graph of so many ops, whatever its seed says.
            optional --ops ops: usize
            /// Do not look for the shortest graph that fails.
            optional --no-shrink
        }
        /// Count the bytes that kernels load and store, and write the table of docs/traffic.md.
        cmd traffic {
            /// Fail, naming the command to run, when the table is out of date; write nothing.
            optional --check
        }
        /// Measure the errors of the f32 functions against f64 and write their table to docs/semantics.md. Fails at an error beyond its
        /// bound, and where levels of the machine give other bits.
        cmd ulp {
            /// Write nothing; fail where the page lacks a function or its bound. On a small grid.
            optional --check
            /// Every so many floats (default 257).
            optional --step step: u32
            /// Every f32: hours of one core.
            optional --full
        }
        /// Measure the tiler's choice against the best of a search, for 300 kernels and shapes on this machine; print median, 95th percentile,
        /// worst, and the worst cases. Use a release build: `cargo run --release -p xtask -- tiling-regret`.
        cmd tiling-regret {
            /// Every tenth case, in fewer rounds.
            optional --quick
            /// All cases as JSON.
            optional --json
            /// Only cases whose name contains this.
            optional --only text: String
            /// Threads (default: those of the machine).
            optional --threads threads: usize
        }
        /// List the shape-only models (BERT-base, Qwen3-14B, Llama-3.1-8B, MMoE): graphs whose weights are extents without data.
        cmd models {
            /// Only models whose name contains this.
            optional --only text: String
            /// Write each as textual IR into this folder, for `dvm explain`, `dvm compile` and `dvm time`.
            optional --out dir: PathBuf
            /// Compile them for their usual shapes and print the cost.
            optional --compile
            /// Machine to compile for (default `ascend-910b2`).
            optional --spec name: String
        }
        /// Ask the timing model for the paper's comparison: speedups of four operators, times and compile ratios of four models.
        cmd paper-sim {
            /// Machine (default `ascend-910b2`).
            optional --spec name: String
            /// Shapes of each operator (default 56).
            optional --shapes count: usize
            /// Only operators and models whose name contains this.
            optional --only text: String
            /// Print every shape.
            optional --verbose
            /// Operators only.
            optional --no-models
        }
        /// Write the timeline pages under docs/timelines.
        cmd timelines {
            /// Another folder.
            optional --out dir: PathBuf
            /// Machine (default `ascend-910b2`).
            optional --spec name: String
        }
        /// Print what the timing model says of the published measurements it is calibrated on.
        cmd calibrate {
            /// Without fitting the constants anew for each row that is left out.
            optional --quick
        }
        /// Check that every crate packages.
        cmd package {
            /// Also build each package from its archive.
            optional --verify
        }
        /// Check generated files and snapshots, and run the workspace's tests.
        cmd ci {
            /// Raise the iteration counts of the randomised ones.
            optional --full
        }
        /// Runs the kernel cases as graph, stream and ONNX model, on the host and for each NPU; prints a row per kind and every failure.
        cmd conformance {
            /// Cases, one JSON object a line (default: cases/kernel-cases.jsonl in DVM_SHARED or beside the repository).
            optional --cases path: PathBuf
            /// Only cases whose id matches this; `*` stands for anything.
            optional --only glob: String
            /// The heavy ones too, compared with one kernel per op.
            optional --heavy
            /// Only what takes a second or less.
            optional --quick
            /// One JSON object.
            optional --json
            /// Write each case as an ONNX model with its inputs and expected outputs instead.
            optional --dump dir: PathBuf
            /// With --dump: run each with this `dvm` command and compare.
            optional --with path: PathBuf
            /// Markdown file whose generated part is replaced.
            optional --docs path: PathBuf
        }
        /// Runs the node tests of the Python package `onnx`; prints passed / in scope per op and every failure.
        cmd onnx-suite {
            /// Python interpreter that has the package (default `python3`).
            optional --python python: PathBuf
            /// Folder of cases already written, instead of asking Python.
            optional --dir dir: PathBuf
            /// What runs the cases: `vm` (default), `unfused` or `eval`.
            optional --engine engine: Engine
            /// Only cases whose name or op contains this.
            optional --filter text: String
            /// One JSON object.
            optional --json
            /// Failures out of scope too.
            optional --all
            /// Markdown file whose generated part is replaced.
            optional --docs path: PathBuf
        }
    }
}
