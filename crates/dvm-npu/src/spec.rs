//! Machine specifications, shipped by name or read from TOML.

use dvm_bc::Target;
use toml::Table;

use crate::timing::Constants;
use crate::{Costs, file::SpecFile};

/// A machine: what a program depends on, and what its work costs.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineSpec {
    /// Embedded in every program compiled for the machine.
    pub target: Target,
    /// Only the compiler's choices depend on these, never a value.
    pub costs: Costs,
    /// What the timing model knows of it.
    pub timing: Constants,
}

/// A specification that is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Not the name of a shipped spec.
    #[error("unknown machine `{name}`; known are {}", NAMES.join(", "))]
    UnknownName {
        /// What was asked for.
        name: String,
    },
    /// Not TOML, a field is missing, unknown or of the wrong type.
    #[error("machine spec: {0}")]
    Parse(#[from] toml::de::Error),
    /// `inherits` goes round in circles or too deep.
    #[error("machine spec: `inherits` is nested more than {MAX_DEPTH} deep")]
    Inherits,
    /// No number has this name.
    #[error("machine spec: no number `{key}`{}", if near.is_empty() { String::new() } else { format!("; near are {}", near.join(", ")) })]
    Key {
        /// What was asked for.
        key: String,
        /// Full names of some that look alike.
        near: Vec<String>,
    },
    /// Values out of range, all of them.
    #[error("machine spec `{name}`: {}", problems.join("; "))]
    Invalid {
        /// The spec.
        name: String,
        /// Each violation.
        problems: Vec<String>,
    },
}

const MAX_DEPTH: usize = 4;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];
        fn source(name: &str) -> Option<&'static str> {
            match name { $($name => Some(include_str!(concat!("../specs/", $name, ".toml"))),)* _ => None }
        }
    };
}
shipped!("host-ref", "ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-950", "tiny", "tiny-npu");

impl MachineSpec {
    /// Names of the shipped specs.
    pub const NAMES: &'static [&'static str] = NAMES;

    /// The commented text of a shipped spec.
    #[must_use]
    pub fn source(name: &str) -> Option<&'static str> {
        source(name)
    }
    /// A shipped spec.
    ///
    /// # Errors
    /// The name is not one of [`MachineSpec::NAMES`].
    pub fn named(name: &str) -> Result<MachineSpec, SpecError> {
        MachineSpec::from_toml(lookup(name)?)
    }

    /// Reads a spec. A file may say `inherits = "NAME"` and give only what differs from that shipped spec.
    ///
    /// # Errors
    /// The text is not a spec; every value out of range is listed.
    pub fn from_toml(text: &str) -> Result<MachineSpec, SpecError> {
        let table: Table = text.parse()?;
        let file: SpecFile = if table.contains_key("inherits") {
            serde::Deserialize::deserialize(toml::Value::Table(resolve(table, 0)?))?
        } else {
            // From the text, so that an error names the line.
            toml::from_str(text)?
        };
        let invalid = |problems| SpecError::Invalid { name: file.name.clone(), problems };
        let target = file.target().map_err(|p| invalid(vec![p]))?;
        let mut problems = target.problems();
        for (name, value, zero) in file.costs.numbers() {
            if !value.is_finite() || value < 0.0 || (value == 0.0 && !zero) {
                problems.push(format!("costs.{name} = {value} is not a positive number"));
            }
        }
        if file.costs.dma.unaligned_factor > 1.0 {
            problems
                .push(format!("costs.dma.unaligned_factor = {} is above 1", file.costs.dma.unaligned_factor));
        }
        // Separate cube cores are what products run on.
        if target.cube_cores > 0 && file.costs.cube.cores != target.cube_cores {
            let (costs, cores) = (file.costs.cube.cores, target.cube_cores);
            problems.push(format!("costs.cube.cores = {costs}, but the target has {cores} cube cores"));
        }
        let timing = file.timing(&target)?;
        if problems.is_empty() {
            problems = timing.problems();
        }
        if problems.is_empty() {
            Ok(MachineSpec { target, costs: file.costs, timing })
        } else {
            Err(invalid(problems))
        }
    }

    /// The spec as TOML that [`MachineSpec::from_toml`] reads back.
    ///
    /// # Errors
    /// A number has no TOML form.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&SpecFile::of(&self.target, &self.costs, &self.timing))
    }
}

fn lookup(name: &str) -> Result<&'static str, SpecError> {
    source(name).ok_or_else(|| SpecError::UnknownName { name: name.to_owned() })
}

fn resolve(mut table: Table, depth: usize) -> Result<Table, SpecError> {
    let Some(base) = table.remove("inherits") else { return Ok(table) };
    if depth == MAX_DEPTH {
        return Err(SpecError::Inherits);
    }
    let base = base.as_str().unwrap_or_default();
    let mut out = resolve(lookup(base)?.parse()?, depth + 1)?;
    merge(&mut out, table);
    Ok(out)
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(b)), toml::Value::Table(o)) => merge(b, o),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
