//! Command-line arguments of what shows the timing model.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use crate::args::{dim, pair};

/// A number with an optional suffix: K, M and G are powers of 1024.
fn number(s: &str) -> Result<f64, String> {
    let wrong = || format!("`{s}` is not a number like 3.2e12 or 64K");
    let (digits, factor) = match s.char_indices().last() {
        Some((i, 'K')) => (&s[..i], 1024.0),
        Some((i, 'M')) => (&s[..i], 1024.0 * 1024.0),
        Some((i, 'G')) => (&s[..i], 1024.0 * 1024.0 * 1024.0),
        _ => (s, 1.0),
    };
    digits.parse::<f64>().ok().map(|v| v * factor).filter(|v| !v.is_nan()).ok_or_else(wrong)
}

/// `KEY=VALUE`.
fn set(s: &str) -> Result<(String, f64), String> {
    let (key, value) = pair(s)?;
    Ok((key, number(&value)?))
}

/// Values of one number of a spec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    pub(crate) key: String,
    pub(crate) values: Vec<f64>,
}

/// Most values of one sweep.
const MOST: usize = 1000;

/// `KEY=A,B,..`, `KEY=A..B` (doubling) or `KEY=A..B:N` (N values at equal ratios).
fn sweep(s: &str) -> Result<Sweep, String> {
    let (key, text) = pair(s)?;
    let Some((from, rest)) = text.split_once("..") else {
        let values = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        return Ok(Sweep { key, values });
    };
    let (to, count) = match rest.split_once(':') {
        Some((to, n)) => {
            let n = n.parse::<usize>().ok().filter(|n| (2..=MOST).contains(n));
            (to, Some(n.ok_or_else(|| format!("`{s}`: the number of values is 2 to {MOST}"))?))
        }
        None => (rest, None),
    };
    let (from, to) = (number(from)?, number(to)?);
    if !(from > 0.0 && to > from && to.is_finite()) {
        return Err(format!("`{s}`: a range goes up from a positive number"));
    }
    let values = match count {
        Some(n) => (0..n).map(|i| from * (to / from).powf(i as f64 / (n - 1) as f64)).collect(),
        None => {
            let mut all: Vec<f64> = std::iter::successors(Some(from), |v| Some(v * 2.0))
                .take_while(|v| *v < to * (1.0 - 1e-9))
                .take(MOST)
                .collect();
            all.push(to);
            all
        }
    };
    Ok(Sweep { key, values })
}

/// `dvm specs`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm specs                               the shipped machines at a glance
  dvm specs show ascend-910b2 > my.toml   the commented file, to be changed
  dvm specs show my.toml                  checks a file of your own; errors name the key
  dvm specs --json")]
pub(crate) struct SpecsArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<SpecsCommand>,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `dvm specs`.
#[derive(Debug, Subcommand)]
pub(crate) enum SpecsCommand {
    /// Print the file of a machine: every constant with its source and confidence.
    Show(ShowArgs),
}

/// `dvm specs show`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// A shipped machine, or a TOML file, which is checked.
    pub(crate) spec: String,
}

/// `dvm time`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  dvm time m.dvmb                                        for the machine it was compiled for
  dvm time model.onnx --dim seq=128 --spec ascend-910b2
  dvm time model.onnx --dim seq=128 --compare            beside launches without fusion and op by op
  dvm time m.dvmb --html timeline.html --trace t.json    a page of its own; t.json opens in Perfetto
  dvm time m.dvmb --set hbm_peak=3.2e12                  what if memory were faster?
  dvm time model.onnx --dim seq=128 --sweep ub=64K..512K --csv
  dvm time m.dvmb --sweep hbm_peak=0.8e12..3.2e12:5 --sweep decode=10,40,160

Times are predictions of a model, see docs/machine-model.md for how near it comes. Keys are those of `dvm specs show`; K, M and G are powers of
1024. A..B doubles from A to B, A..B:N takes N values at equal ratios.")]
pub(crate) struct TimeArgs {
    /// A bundle, bytecode as text, or a model.
    pub(crate) file: PathBuf,
    /// Value of a symbol of a model.
    #[arg(long = "dim", value_name = "SYM=N", value_parser = dim)]
    pub(crate) dim: Vec<(String, Vec<i64>)>,
    /// Value of an input that decides a model's structure.
    #[arg(long = "input", value_name = "NAME=F.npy", value_parser = pair)]
    pub(crate) input: Vec<(String, String)>,
    /// Machine: a name or a TOML file; by default that of a bundle, and ascend-910b2 for a model.
    #[arg(long, value_name = "SPEC", visible_alias = "target")]
    pub(crate) spec: Option<String>,
    /// Change a number of the machine; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = set)]
    pub(crate) set: Vec<(String, f64)>,
    /// Time it for several values of a number; several sweeps are all combinations.
    #[arg(long, value_name = "KEY=VALUES", value_parser = sweep, conflicts_with_all = ["trace", "html", "compare"])]
    pub(crate) sweep: Vec<Sweep>,
    /// The sweep as comma-separated values.
    #[arg(long, requires = "sweep")]
    pub(crate) csv: bool,
    /// Write Chrome trace events.
    #[arg(long, value_name = "F.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Write a page with the timeline.
    #[arg(long, value_name = "F.html")]
    pub(crate) html: Option<PathBuf>,
    /// Most spans of a trace.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub(crate) spans: usize,
    /// Compare a model with launches without stacking, without fusion, and op by op.
    #[arg(long)]
    pub(crate) compare: bool,
    /// Do not fuse the model.
    #[arg(long)]
    pub(crate) no_fuse: bool,
    /// Simulate every tile instead of extrapolating steady runs.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Nothing is in the L2 at first; by default what the last launch left there.
    #[arg(long)]
    pub(crate) cold: bool,
    /// Most vector cores, and most cube cores, that take part.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cores: Option<u32>,
    /// Find the badly known constants that matter, however long it takes.
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Machine-readable.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps() {
        let k = 1024.0;
        for (text, values) in [
            ("ub=64K..512K", vec![64.0 * k, 128.0 * k, 256.0 * k, 512.0 * k]),
            ("ub=64K..500K", vec![64.0 * k, 128.0 * k, 256.0 * k, 500.0 * k]),
            ("x=1..16:3", vec![1.0, 4.0, 16.0]),
            ("x=3,1", vec![3.0, 1.0]),
        ] {
            assert_eq!(sweep(text).unwrap().values, values, "{text}");
        }
        for bad in ["x", "x=", "x=a", "x=4..1", "x=0..8", "x=1..2:1", "x=1..2:9999", "x=nan"] {
            assert!(sweep(bad).is_err(), "{bad}");
        }
        assert_eq!(set("hbm_peak=3.2e12"), Ok(("hbm_peak".into(), 3.2e12)));
    }
}
