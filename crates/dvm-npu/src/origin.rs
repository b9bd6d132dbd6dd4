//! Where each value of a spec comes from: its comment, as data.

use toml::Table;

use crate::MachineSpec;

/// How far a value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// `[H]`: a vendor's table, or measured on a device.
    High,
    /// `[M]`: a vendor's cost model, or derived from measurements.
    Medium,
    /// `[fit]`: chosen so that calibration measurements are met.
    Fitted,
    /// `[L]`: assumed.
    Low,
    /// Nothing is said.
    Unknown,
}

impl Confidence {
    /// As in the spec's comments.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Confidence::High => "H",
            Confidence::Medium => "M",
            Confidence::Fitted => "fit",
            Confidence::Low => "L",
            Confidence::Unknown => "?",
        }
    }
}

/// A value and what its comment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// With its table: `timing.hbm_peak`.
    pub key: String,
    /// The tag.
    pub confidence: Confidence,
    /// The rest of the comment.
    pub note: String,
}

impl MachineSpec {
    /// Where the values of a spec's text come from, those that it inherits included; in order of their keys.
    #[must_use]
    pub fn origins(text: &str) -> Vec<Origin> {
        let mut out: Vec<Origin> = Vec::new();
        let base =
            text.parse::<Table>().ok().and_then(|t| t.get("inherits")?.as_str().and_then(Self::source));
        // Shipped specs inherit from shipped ones only, and never in circles.
        if let Some(base) = base
            && base != text
        {
            out = MachineSpec::origins(base);
        }
        let mut table = String::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(head) = line.strip_prefix('[') {
                table = head.split(']').next().unwrap_or_default().to_owned() + ".";
                continue;
            }
            let Some((key, rest)) = line.split_once('=') else { continue };
            if key.starts_with('#') {
                continue;
            }
            let comment = rest.split_once('#').map_or("", |c| c.1).trim();
            let tags = [Confidence::High, Confidence::Medium, Confidence::Fitted, Confidence::Low];
            let tagged = tags.into_iter().find_map(|c| {
                let rest = comment.strip_prefix(&format!("[{}]", c.tag()))?;
                Some((c, rest.trim().to_owned()))
            });
            let (confidence, note) = tagged.unwrap_or((Confidence::Unknown, comment.to_owned()));
            let origin = Origin { key: table.clone() + key.trim(), confidence, note };
            out.retain(|o| o.key != origin.key);
            out.push(origin);
        }
        out.sort_by(|a, b| a.key.cmp(&b.key));
        out
    }
}
