//! Specs with one number changed: what hardware engineers ask first.
//!
//! A key is that of the TOML form. Short names are those of the timing table (`hbm_peak`), of the target (`cores`) and of its spaces (`ub`);
//! everything else is written with its table (`costs.dma.core_rate`).

use toml::{Table, Value};

use crate::{MachineSpec, SpecError};

/// Tables in which a short name is looked for, in this order.
const SHORT: [&[&str]; 3] = [&["timing"], &["target"], &["target", "spaces"]];

impl MachineSpec {
    /// The spec with the number under `key` replaced.
    ///
    /// # Errors
    /// There is no such number, or the value is out of range; the message names the key.
    pub fn with_value(&self, key: &str, value: f64) -> Result<MachineSpec, SpecError> {
        let text = self.to_toml().map_err(|_| SpecError::Key { key: key.to_owned(), near: vec![] })?;
        let mut table: Table = text.parse()?;
        let path = resolve(&table, key)?;
        if let Some(place) = place(&mut table, &path) {
            *place = match place {
                // Counts and sizes are integers in the file.
                Value::Integer(_) if value.fract() == 0.0 && value.abs() < 9e15 => {
                    Value::Integer(value as i64)
                }
                Value::Integer(_) => {
                    let problems = vec![format!("{} = {value} is not a whole number", path.join("."))];
                    return Err(SpecError::Invalid { name: self.target.name.clone(), problems });
                }
                _ => Value::Float(value),
            };
        }
        let text =
            toml::to_string(&table).map_err(|_| SpecError::Key { key: key.to_owned(), near: vec![] })?;
        MachineSpec::from_toml(&text)
    }
    /// The number under `key`.
    ///
    /// # Errors
    /// There is no such number.
    pub fn value(&self, key: &str) -> Result<f64, SpecError> {
        let unknown = |near| SpecError::Key { key: key.to_owned(), near };
        let text = self.to_toml().map_err(|_| unknown(vec![]))?;
        let mut table: Table = text.parse()?;
        let path = resolve(&table, key)?;
        match place(&mut table, &path) {
            Some(Value::Integer(i)) => Ok(*i as f64),
            Some(Value::Float(x)) => Ok(*x),
            _ => Err(unknown(vec![])),
        }
    }
    /// Whether a change of `key` changes what is compiled, rather than only how long it takes.
    #[must_use]
    pub fn decides_programs(key: &str) -> bool {
        !(key.starts_with("timing.") || crate::timing::Constants::TABLE.iter().any(|(n, ..)| *n == key))
    }
}

/// The full path of a key.
fn resolve(table: &Table, key: &str) -> Result<Vec<String>, SpecError> {
    let words: Vec<&str> = key.split('.').collect();
    let mut paths: Vec<Vec<&str>> = vec![words.clone()];
    if words.len() == 1 {
        paths.extend(SHORT.iter().map(|prefix| [prefix, &words[..]].concat()));
    }
    let number = |path: &Vec<&str>| {
        let mut at: Option<&Value> = None;
        for (i, word) in path.iter().enumerate() {
            at = match (i, at) {
                (0, _) => table.get(*word),
                (_, Some(Value::Table(t))) => t.get(*word),
                _ => None,
            };
        }
        matches!(at, Some(Value::Integer(_) | Value::Float(_)))
    };
    match paths.iter().find(|p| number(p)) {
        Some(p) => Ok(p.iter().map(ToString::to_string).collect()),
        None => {
            let mut names = Vec::new();
            collect(table, "", &mut names);
            let last = words.last().copied().unwrap_or_default();
            let stem = &last[..last.char_indices().nth(3).map_or(last.len(), |(i, _)| i)];
            names.retain(|n| n.rsplit('.').next().is_some_and(|n| !stem.is_empty() && n.contains(stem)));
            names.truncate(8);
            Err(SpecError::Key { key: key.to_owned(), near: names })
        }
    }
}

fn place<'t>(table: &'t mut Table, path: &[String]) -> Option<&'t mut Value> {
    let (first, rest) = path.split_first()?;
    let mut at = table.get_mut(first)?;
    for word in rest {
        at = at.as_table_mut()?.get_mut(word)?;
    }
    Some(at)
}

/// Full names of all numbers.
fn collect(table: &Table, prefix: &str, out: &mut Vec<String>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(t) => collect(t, &name, out),
            Value::Integer(_) | Value::Float(_) => out.push(name),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_short_and_by_full_names() {
        let spec = MachineSpec::named("ascend-910b2").unwrap();
        for (key, value) in
            [("hbm_peak", 3.2e12), ("ub", 65_536.0), ("costs.dma.core_rate", 50.0), ("timing.decode", 7.0)]
        {
            assert_ne!(spec.value(key).unwrap(), value, "{key}");
            let changed = spec.with_value(key, value).unwrap();
            assert_eq!(changed.value(key).unwrap(), value, "{key}");
            assert_eq!(changed.target.name, spec.target.name);
        }
        assert_eq!(spec.with_value("hbm_peak", spec.value("hbm_peak").unwrap()).unwrap(), spec);
    }

    #[test]
    fn errors_name_the_key() {
        let spec = MachineSpec::named("ascend-910b2").unwrap();
        for (key, value, says) in [
            ("hbm_pick", 1.0, "no number `hbm_pick`; near are timing.hbm_peak"),
            ("exchange", 1.0, "no number `exchange`"),
            ("ub", 0.5, "target.spaces.ub = 0.5 is not a whole number"),
            ("decode", -1.0, "timing.decode = -1 is not"),
            ("", 1.0, "no number ``"),
        ] {
            let e = spec.with_value(key, value).unwrap_err().to_string();
            assert!(e.contains(says), "{key}: {e}");
        }
    }

    #[test]
    fn what_decides_programs() {
        for (key, decides) in
            [("hbm_peak", false), ("timing.decode", false), ("ub", true), ("costs.tile_ns", true)]
        {
            assert_eq!(MachineSpec::decides_programs(key), decides, "{key}");
        }
    }
}
