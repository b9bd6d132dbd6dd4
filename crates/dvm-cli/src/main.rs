//! The `dvm` command: run, inspect, explain, compile, check and disassemble models whose shapes are known only at run time.

#![forbid(unsafe_code)]

mod args;
mod cmd;
mod inputs;
mod table;
mod time_args;

use std::process::ExitCode;

use clap::Parser;

/// What a command ended with, where it was not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Right,
    ValuesDiffer,
    /// A program that may not run, or may give wrong values on its target.
    Unsound,
}

/// Arguments that each parse and do not fit together: exit code 2, as for those that do not parse.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// An error with its causes. A message that already tells its cause is not followed by it, and one that shows the place in a text needs
/// nothing before it.
fn chain(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if text.is_empty() || cause.starts_with(SHOWN) {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// How a message that shows a place in a text begins.
const SHOWN: &str = "error: ";

fn main() -> ExitCode {
    let args = args::Args::parse();
    let level = match args.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("DVM_LOG").unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    let outcome = match args.command {
        args::Command::Run(a) => cmd::run::run(&a),
        args::Command::Inspect(a) => cmd::inspect::inspect(&a),
        args::Command::Explain(a) => cmd::explain::explain(&a),
        args::Command::Bisect(a) => cmd::bisect::bisect(&a),
        args::Command::Compile(a) => cmd::compile::compile(&a),
        args::Command::Disasm(a) => cmd::asm::disasm(&a),
        args::Command::Asm(a) => cmd::asm::asm(&a),
        args::Command::Check(a) => cmd::check::check(&a),
        args::Command::Time(a) => cmd::time::time(&a),
        args::Command::Specs(a) => cmd::specs::specs(&a),
        args::Command::Demo(a) => cmd::demo::demo(&a),
    };
    match outcome {
        Ok(Outcome::Right) => ExitCode::SUCCESS,
        Ok(Outcome::ValuesDiffer) => ExitCode::from(3),
        Ok(Outcome::Unsound) => ExitCode::from(4),
        // A reader that closed the pipe (`dvm disasm .. | head`) has seen what it wanted.
        Err(e)
            if e.chain().any(|c| {
                c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            }) =>
        {
            ExitCode::SUCCESS
        }
        Err(e) => {
            let text = chain(&e);
            eprintln!("{}{text}", if text.starts_with(SHOWN) { "" } else { SHOWN });
            if e.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
