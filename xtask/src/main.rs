//! Tasks of the workspace: `cargo xtask <task>`.

mod flags;
mod onnx_suite;

use flags::{Xtask, XtaskCmd};

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
