//! Tasks of the workspace: `cargo xtask <task>`.

mod onnx_suite;

use std::path::PathBuf;

xflags::xflags! {
    /// Tasks of the workspace.
    cmd xtask {
        /// Runs the node tests of the Python package `onnx`; prints passed / in scope per op and every failure.
        cmd onnx-suite {
            /// Python interpreter that has the package (default `python3`).
            optional --python python: PathBuf
            /// Folder of cases already written, instead of asking Python.
            optional --dir dir: PathBuf
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

fn main() -> anyhow::Result<()> {
    match Xtask::from_env_or_exit().subcommand {
        XtaskCmd::OnnxSuite(a) => {
            let opts = onnx_suite::Options {
                python: a.python,
                dir: a.dir,
                filter: a.filter,
                json: a.json,
                all: a.all,
                docs: a.docs,
            };
            if !onnx_suite::run(&opts, onnx_suite::eval)? {
                std::process::exit(1);
            }
        }
    }
    Ok(())
}
