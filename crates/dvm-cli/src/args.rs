//! Command-line arguments.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::time_args::{SpecsArgs, TimeArgs};

/// Runs tensor programs whose shapes are known only at run time.
///
/// A model is fused once, symbolically. For every concrete shape it is tiled and encoded to bytecode in microseconds, verified, and
/// executed on all cores.
#[derive(Debug, Parser)]
#[command(
    name = "dvm",
    version,
    max_term_width = 110,
    after_help = "\
Examples:
  dvm demo                                          a small transformer over many shapes
  dvm run model.onnx --dim batch=1 --dim seq=17     inputs filled deterministically
  dvm run model.onnx --golden model.npz             compare with recorded outputs
  dvm inspect model.onnx                            inputs, outputs, symbols, ops, unsupported things
  dvm explain model.onnx                            which ops fused into which kernel, and why not more
  dvm bisect model.onnx --inputs in.npz             which fusion changes a value
  dvm compile model.onnx --dim seq=17 -o m.dvmb     a bundle for run, disasm and check
  dvm disasm m.dvmb                                 its bytecode as text, for review
  dvm check m.dvmb                                  is it safe, is it synchronised?
  dvm time m.dvmb --html timeline.html              predicted time on its machine, and a timeline
  dvm specs                                         the machines
  dvm run kernel.dvmasm --inputs in.npz             a kernel written by hand

Exit codes: 0 right, 1 error, 2 wrong usage, 3 values differ, 4 a check found something.
MODEL may be ONNX, textual IR or serialised IR; `dvm run` also takes bundles (.dvmb) and bytecode as text (.dvmasm)."
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// More messages on standard error (-v, -vv; or DVM_LOG=debug).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a model or a bundle.
    Run(RunArgs),
    /// Show inputs, outputs, symbols, ops and every unsupported thing.
    Inspect(InspectArgs),
    /// Show the kernels, the ops in each, and the reason of each boundary.
    Explain(ExplainArgs),
    /// Find the fusion that changes a value.
    Bisect(BisectArgs),
    /// Compile a model for given dims to a bundle.
    Compile(CompileArgs),
    /// Print the bytecode of a bundle as text.
    Disasm(DisasmArgs),
    /// Make a bundle of bytecode written as text.
    Asm(AsmArgs),
    /// Verify programs and check their synchronisation, without running them.
    Check(CheckArgs),
    /// Predict how long a program takes on a machine, and why.
    Time(Box<TimeArgs>),
    /// List the machines, or show the file of one.
    Specs(SpecsArgs),
    /// Run the bundled transformer over many shapes and check it against the reference evaluator.
    Demo(DemoArgs),
}

/// `NAME=VALUE`.
pub(crate) fn pair(s: &str) -> Result<(String, String), String> {
    let (name, value) = s.split_once('=').ok_or_else(|| format!("`{s}` is not NAME=VALUE"))?;
    if name.is_empty() || value.is_empty() {
        return Err(format!("`{s}` is not NAME=VALUE"));
    }
    Ok((name.to_string(), value.to_string()))
}

/// `SYMBOL=N[,N...]`.
pub(crate) fn dim(s: &str) -> Result<(String, Vec<i64>), String> {
    let (name, values) = pair(s)?;
    let values: Result<Vec<i64>, _> = values.split(',').map(|v| v.trim().parse::<i64>()).collect();
    Ok((name, values.map_err(|_| format!("`{s}` is not SYMBOL=N[,N...] with integers"))?))
}

/// A tolerance: with a NaN everything would pass, below 0 nothing.
fn tolerance(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(t) if t >= 0.0 => Ok(t),
        _ => Err(format!("`{s}` is not a number of at least 0")),
    }
}

/// A time in seconds.
fn seconds(s: &str) -> Result<std::time::Duration, String> {
    let t = s.parse().ok().and_then(|t| std::time::Duration::try_from_secs_f64(t).ok());
    t.ok_or_else(|| format!("`{s}` is not a number of seconds of at least 0"))
}

/// `dvm run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm run model.onnx --dim batch=1 --dim seq=7,64,128     three lengths, one session
  dvm run model.onnx --inputs in.npz --outputs out.npz
  dvm run model.onnx --input ids=ids.npy --repeat 100 --json
  dvm run model.onnx --inputs in.npz --golden out.npz      outputs by name; right where |o - r| <= atol + rtol * |r|
  dvm run model.onnx --golden steps.npz --rtol 1e-3       in.NAME/out.NAME, or sK.in.NAME/sK.out.NAME for steps
  dvm run kernel.dvmasm --inputs in.npz                   arguments by name; any shape of as many elements will do

DVM_FUSE=off runs every op as a kernel of its own. Inputs that are not given are filled deterministically from their name, dtype and dims; those of bytecode as text only with --fill.
Exit codes: 0 right, 1 error, 2 wrong usage, 3 values differ.")]
pub(crate) struct RunArgs {
    /// ONNX, textual IR, serialised IR, a bundle, or bytecode as text.
    pub(crate) model: PathBuf,
    /// Inputs by name; entries may be called NAME or in.NAME.
    #[arg(long, value_name = "F.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// One input from a .npy file; may be repeated.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Fill the inputs of bytecode that are not given (those of models always are).
    #[arg(long)]
    pub(crate) fill: bool,
    /// Where f16 and bf16 values are rounded: where the model defines them, or at stores and casts only, so that they depend on fusion.
    #[arg(long, value_name = "HOW", value_parser = ["rounded", "wide"], default_value = "rounded")]
    pub(crate) half: String,
    /// Value of a symbol; several values run one after the other in one session (all lists have one length, or 1).
    #[arg(long = "dim", value_name = "SYM=N[,N...]", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// Write the outputs of the last run.
    #[arg(long, value_name = "F.npz")]
    pub(crate) outputs: Option<PathBuf>,
    /// Expected outputs: NAME, or with inputs in.NAME and out.NAME; may be repeated, all in one session.
    #[arg(long, value_name = "F.npz")]
    pub(crate) golden: Vec<PathBuf>,
    /// Relative tolerance of --golden [default: 1e-3 for float32 and float64, 4e-3 for float16, 2e-2 for bfloat16; others exact]
    #[arg(long, requires = "golden", value_parser = tolerance)]
    pub(crate) rtol: Option<f64>,
    /// Absolute tolerance of --golden [default: 1e-4, 1e-3 for float16, 1e-2 for bfloat16; others exact]
    #[arg(long, requires = "golden", value_parser = tolerance)]
    pub(crate) atol: Option<f64>,
    /// Run each shape N times.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Count the bytes that kernels load and store.
    #[arg(long)]
    pub(crate) traffic: bool,
    /// Model whose weights a bundle without weights uses.
    #[arg(long, value_name = "MODEL")]
    pub(crate) weights: Option<PathBuf>,
    /// Machine-readable report on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// How to compile and execute.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct EngineArgs {
    /// Worker threads (all cores by default).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Machine to compile for: a name (host-ref, ascend-910b2, ..) or a TOML file; the machine at hand by default.
    #[arg(long, value_name = "SPEC", visible_alias = "target")]
    pub(crate) spec: Option<String>,
    /// Most bytes of workspace, inputs and outputs; by default 768 MiB, 64 times the size of the model and 16 times that of given arrays.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_memory: Option<u64>,
    /// A condition on symbols that holds for all inputs, e.g. `s0 = s1`, `s0 % 64 == 0`, `s0 <= 4096`; may be repeated. Fusion
    /// relies on it, and inputs that violate it are an error.
    #[arg(long, value_name = "COND")]
    pub(crate) assume: Vec<String>,
    /// Most seconds a run may take.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<std::time::Duration>,
}

/// `dvm inspect`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm inspect model.onnx
  dvm inspect model.onnx --json

Exit code 1 when the model cannot be run; everything unsupported is listed at once.")]
pub(crate) struct InspectArgs {
    /// ONNX, textual IR, serialised IR, or a bundle.
    pub(crate) model: PathBuf,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dvm explain`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm explain model.onnx                    kernels and boundaries
  dvm explain model.onnx --kernels          with the body of each kernel
  dvm explain model.onnx --dim seq=128      bytes as numbers too
  dvm explain model.onnx --dim seq=128 --tiling --spec ascend-910b2    why each tile is as it is
  dvm explain model.onnx --svg plan.svg     a picture, for a browser
  dvm explain model.onnx --dot plan.dot && dot -Tpng plan.dot -o plan.png
  dvm explain model.onnx --assume \"s0 = s1\" --assume \"s0 % 64 == 0\"
  dvm explain model.onnx --input axes=axes.npy

\"cannot prove A\" under a cut says that the cut would vanish if A were known to hold: --assume \"A\", here and with run and compile.
DVM_FUSE=off shows what runs without fusion.")]
pub(crate) struct ExplainArgs {
    /// ONNX, textual IR or serialised IR.
    pub(crate) model: PathBuf,
    /// Print the body of each distinct kernel.
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Print the tiling of each kernel for the dims given, and the candidates that the cost model compared with it.
    #[arg(long)]
    pub(crate) tiling: bool,
    /// Machine of the tilings: a shipped one or a file (default: this machine).
    #[arg(long, value_name = "SPEC", requires = "tiling")]
    pub(crate) spec: Option<String>,
    /// Write the kernels and the buffers between them as a Graphviz file.
    #[arg(long, value_name = "F.dot")]
    pub(crate) dot: Option<PathBuf>,
    /// Draw the kernels and the buffers between them.
    #[arg(long, value_name = "F.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Value of a symbol, for sizes in bytes.
    #[arg(long = "dim", value_name = "SYM=N", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// A condition on symbols that holds for all inputs, e.g. `s0 = s1`, `s0 % 64 == 0`, `s0 <= 4096`; may be repeated.
    #[arg(long, value_name = "COND")]
    pub(crate) assume: Vec<String>,
    /// Value of an input that decides the model's structure.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dvm bisect`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm bisect model.onnx --dim seq=17                    any bit that fusion changes
  dvm bisect model.onnx --inputs in.npz --rtol 1e-4     only what differs by more
  dvm bisect model.onnx --inputs in.npz --json

Runs the model unfused, then with fusion limited to its first N decisions, until the first is found that changes an output.
Exit codes: 0 no difference, 1 error, 2 wrong usage, 3 a fusion changes a value.")]
pub(crate) struct BisectArgs {
    /// ONNX, textual IR or serialised IR.
    pub(crate) model: PathBuf,
    /// Inputs by name; entries may be called NAME or in.NAME.
    #[arg(long, value_name = "F.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// One input from a .npy file; may be repeated.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Value of a symbol; inputs that are not given are filled.
    #[arg(long = "dim", value_name = "SYM=N", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// Relative difference that is allowed (by default no bit may differ).
    #[arg(long, value_parser = tolerance)]
    pub(crate) rtol: Option<f64>,
    /// Absolute difference that is allowed.
    #[arg(long, value_parser = tolerance)]
    pub(crate) atol: Option<f64>,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// `dvm compile`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm compile model.onnx --dim batch=1 --dim seq=17 --with-weights -o m.dvmb && dvm run m.dvmb
  dvm compile model.onnx --dim seq=17 --spec ascend-910b2 -o m.dvmb && dvm disasm m.dvmb")]
pub(crate) struct CompileArgs {
    /// ONNX, textual IR or serialised IR.
    pub(crate) model: PathBuf,
    /// Value of a symbol.
    #[arg(long = "dim", value_name = "SYM=N", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// Value of an input that decides the model's structure.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Put the weights into the bundle.
    #[arg(long)]
    pub(crate) with_weights: bool,
    /// The bundle.
    #[arg(short, long, value_name = "F.dvmb")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// `dvm disasm`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm disasm m.dvmb | less
  dvm disasm m.dvmb -o m.dvmasm && dvm asm m.dvmasm      the same bundle, without the bytes of weights")]
pub(crate) struct DisasmArgs {
    /// A bundle, or bytecode as text, which is printed in its normal form.
    pub(crate) bundle: PathBuf,
    /// Write to a file instead of standard output.
    #[arg(short, long, value_name = "F.dvmasm")]
    pub(crate) output: Option<PathBuf>,
}

/// `dvm asm`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm asm kernel.dvmasm                    writes kernel.dvmb
  dvm asm kernel.dvmasm -o k.dvmb && dvm check k.dvmb && dvm run k.dvmb

docs/bytecode.md describes the text form, docs/isa.md the instructions. Nothing is verified here: that is `dvm check`.")]
pub(crate) struct AsmArgs {
    /// Bytecode as text.
    pub(crate) text: PathBuf,
    /// The bundle; by default beside the text.
    #[arg(short, long, value_name = "F.dvmb")]
    pub(crate) output: Option<PathBuf>,
}

/// `dvm check`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm check m.dvmb
  dvm check kernel.dvmasm                                      findings are shown in the text
  dvm check model.onnx --dim seq=17 --target ascend-910b2      compile for a machine and check that
  dvm check m.dvmb --json

Exit code 4 when a program does not verify or has a hazard.")]
pub(crate) struct CheckArgs {
    /// A bundle, bytecode as text, or a model.
    pub(crate) file: PathBuf,
    /// Value of a symbol of a model.
    #[arg(long = "dim", value_name = "SYM=N", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// Value of an input that decides a model's structure.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// `dvm demo`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  dvm demo\n  dvm demo --json")]
pub(crate) struct DemoArgs {
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
