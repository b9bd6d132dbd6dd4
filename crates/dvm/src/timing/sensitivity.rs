//! Which constants of a machine are known badly, and which of those matter for a program.

use dvm_bc::Program;
use dvm_npu::MachineSpec;
use dvm_npu::timing::{Constants, Options, TimingError, simulate};

/// How well a constant is known; the letter in the comment beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// `[L]`: inferred or assumed.
    Low,
    /// `[fit]`: chosen so that measurements are met.
    Fitted,
    /// `[M]`: from a vendor's cost model or derived from measurements.
    Medium,
    /// `[H]`: from a vendor's table or measured on a device.
    High,
}

impl Confidence {
    /// A word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Fitted => "fitted",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// The confidence of the timing constants that the text of a spec states, inherited ones included; later entries override earlier ones. The
/// letters are in the comments of the file, beside the values they are about.
#[must_use]
pub fn confidence(text: &str) -> Vec<(String, Confidence)> {
    let mut out = vec![];
    read(text, 0, &mut out);
    out
}

fn read(text: &str, depth: usize, out: &mut Vec<(String, Confidence)>) {
    let mut table = "";
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            table = name;
            continue;
        }
        let Some((code, comment)) = line.split_once('#') else {
            if let Some(base) = line.strip_prefix("inherits") {
                inherit(base, depth, out);
            }
            continue;
        };
        let Some((key, _)) = code.split_once('=') else { continue };
        if key.trim() == "inherits" {
            inherit(&code[key.len()..], depth, out);
        }
        let letter = comment.trim().strip_prefix('[').and_then(|c| c.split(']').next());
        let known = match letter {
            Some("L") => Confidence::Low,
            Some("fit") => Confidence::Fitted,
            Some("M") => Confidence::Medium,
            Some("H") => Confidence::High,
            _ => continue,
        };
        if table == "timing" {
            let key = key.trim().to_owned();
            out.retain(|(k, _)| *k != key);
            out.push((key, known));
        }
    }
}

fn inherit(rest: &str, depth: usize, out: &mut Vec<(String, Confidence)>) {
    let name = rest.split('"').nth(1).unwrap_or_default();
    if let (Some(base), true) = (MachineSpec::source(name), depth < 4) {
        read(base, depth + 1, out);
    }
}

/// A constant that moves a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// Which.
    pub key: String,
    /// Its confidence.
    pub confidence: Confidence,
    /// Its value.
    pub value: f64,
    /// Relative change of the time with half the value.
    pub half: f64,
    /// Relative change of the time with twice the value.
    pub twice: f64,
}

impl Moved {
    /// The larger change.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.half.abs().max(self.twice.abs())
    }
}

/// Halves and doubles each constant of low confidence or fitted; gives those that move the time by more than `threshold`, the largest first.
///
/// # Errors
/// As [`simulate`].
pub fn sensitivity(
    program: &Program,
    spec: &MachineSpec,
    known: &[(String, Confidence)],
    opts: &Options,
    threshold: f64,
) -> Result<Vec<Moved>, TimingError> {
    let opts = Options { trace: 0, ..opts.clone() };
    let base = simulate(program, spec, &opts)?.us;
    let mut out = vec![];
    for (key, confidence) in known.iter().filter(|(_, c)| *c <= Confidence::Fitted) {
        let Some(value) = spec.timing.get(key).filter(|v| v.is_finite() && *v != 0.0) else { continue };
        let at = |factor: f64| -> Result<f64, TimingError> {
            let mut changed = spec.clone();
            if let Some(v) = changed.timing.get_mut(key) {
                *v = value * factor;
            }
            Ok(simulate(program, &changed, &opts)?.us / base - 1.0)
        };
        let moved =
            Moved { key: key.clone(), confidence: *confidence, value, half: at(0.5)?, twice: at(2.0)? };
        if moved.most() > threshold {
            out.push(moved);
        }
    }
    out.sort_by(|a, b| b.most().total_cmp(&a.most()));
    Ok(out)
}

/// Unit of a timing constant.
#[must_use]
pub fn unit(key: &str) -> &'static str {
    Constants::TABLE.iter().find(|(n, ..)| *n == key).map_or("", |(_, u, _)| u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_from_the_comments() {
        let text = "inherits = \"ascend-910b2\"\n[costs]\ndecode = 1 # [H]\n[timing]\nmhz = 1500 # [H]\nl2_rate = 3.6e12   # [L]\nx = 1 # none\n";
        let known = confidence(text);
        let of = |k: &str| known.iter().find(|(n, _)| n == k).map(|(_, c)| *c);
        for (key, expect) in [
            ("l2_rate", Some(Confidence::Low)),
            ("mhz", Some(Confidence::High)),
            ("xcore_latency", Some(Confidence::Low)),
            ("cube_k_half", Some(Confidence::High)),
            ("x", None),
        ] {
            assert_eq!(of(key), expect, "{key}");
        }
    }

    #[test]
    fn every_constant_of_a_chip_has_a_letter() {
        for name in ["ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-950"] {
            let known = confidence(MachineSpec::source(name).unwrap());
            for (key, ..) in Constants::TABLE {
                assert!(
                    known.iter().any(|(k, _)| k == key),
                    "{name}: timing.{key} has no [H], [M], [L] or [fit]"
                );
            }
        }
    }
}
