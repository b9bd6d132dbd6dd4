//! Inputs from files, from dims, and from golden files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use dvm::{Graph, Tensor, npz};

use crate::Usage;

/// Named tensors.
pub(crate) type Named = Vec<(String, Tensor)>;

/// The inputs given by `--inputs` and `--input`. In an archive of golden form, where every array is `in.NAME` or `out.NAME`,
/// the outputs are left out; any other archive names its inputs as they are.
pub(crate) fn given(inputs: Option<&Path>, single: &[(String, String)]) -> Result<Named> {
    let mut out = match inputs {
        Some(path) => npz::load_npz(path)?,
        None => Named::new(),
    };
    if out.iter().all(|(n, _)| n.starts_with("in.") || n.starts_with("out.")) {
        out =
            out.into_iter().filter_map(|(n, t)| n.strip_prefix("in.").map(|n| (n.to_string(), t))).collect();
    }
    for (name, path) in single {
        ensure!(out.iter().all(|(n, _)| n != name), "input `{name}` is given twice");
        out.push((name.clone(), npz::load_npy(Path::new(path))?));
    }
    Ok(out)
}

/// One `(symbol, value)` list per run: lists of several values advance together, single values stay.
///
/// # Errors
/// [`Usage`]: a symbol given twice, or lists of different lengths.
pub(crate) fn dim_runs(dims: &[(String, Vec<i64>)]) -> Result<Vec<Vec<(String, i64)>>> {
    let runs = dims.iter().map(|(_, v)| v.len()).max().unwrap_or(1);
    for (i, (name, values)) in dims.iter().enumerate() {
        if dims[..i].iter().any(|(n, _)| n == name) {
            bail!(Usage(format!("--dim {name} is given twice; several values are a list: --dim {name}=1,2")));
        }
        if values.len() != 1 && values.len() != runs {
            let n = values.len();
            bail!(Usage(format!(
                "--dim {name} has {n} values, another has {runs}; lists must have one length"
            )));
        }
    }
    Ok((0..runs)
        .map(|i| dims.iter().map(|(n, v)| (n.clone(), if v.len() == 1 { v[0] } else { v[i] })).collect())
        .collect())
}

/// All inputs of the graph: the given ones, the others filled for the dims.
pub(crate) fn complete(
    graph: &Graph,
    given: &Named,
    dims: &[(String, i64)],
    max_bytes: u64,
) -> Result<Named> {
    let (_, shapes) = dvm::input_shapes(graph, given, dims)?;
    let bytes = |(i, s): (&dvm::Input, &Vec<usize>)| {
        s.iter().fold(graph.dtype(i.value).size(), |n, &d| n.saturating_mul(d)) as u64
    };
    let total = graph.inputs.iter().zip(&shapes).map(bytes).fold(0, u64::saturating_add);
    ensure!(total <= max_bytes, "the inputs take {total} bytes, the limit is {max_bytes} (--max-memory)");
    for (name, _) in given {
        if !graph.inputs.iter().any(|i| &i.name == name) {
            let names: Vec<&str> = graph.inputs.iter().map(|i| i.name.as_str()).collect();
            bail!("the model has no input `{name}`; its inputs are {}", names.join(", "));
        }
    }
    graph
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(input, shape)| {
            if let Some((n, t)) = given.iter().find(|(n, _)| *n == input.name) {
                return Ok((n.clone(), npz::stored_as(t.clone(), graph.dtype(input.value))));
            }
            let tensor = dvm::fill::fill(&input.name, graph.dtype(input.value), shape)
                .with_context(|| format!("input `{}`", input.name))?;
            Ok((input.name.clone(), tensor))
        })
        .collect()
}

/// One step of a golden file.
#[derive(Debug, Default)]
pub(crate) struct GoldenStep {
    pub(crate) label: String,
    pub(crate) inputs: Named,
    pub(crate) outputs: Named,
    /// Arrays of an archive that names them as they are: outputs, and whatever else has the name of an input.
    pub(crate) plain: Named,
}

/// Step and rest of a name like `in.NAME` or `s3.out.NAME`; `None` for any other.
fn kind_of(name: &str) -> Option<(Option<&str>, &str)> {
    let step = name.strip_prefix('s').and_then(|r| r.split_once('.'));
    let (step, rest) = match step.filter(|(k, _)| !k.is_empty() && k.bytes().all(|b| b.is_ascii_digit())) {
        Some((k, rest)) => (Some(k), rest),
        None => (None, name),
    };
    (rest.starts_with("in.") || rest.starts_with("out.")).then_some((step, rest))
}

/// The steps of golden files, in order: `in.NAME`/`out.NAME` is one step, `sK.in.NAME`/`sK.out.NAME` are steps K.
pub(crate) fn goldens(files: &[PathBuf]) -> Result<Vec<GoldenStep>> {
    let mut all = Vec::new();
    for file in files {
        let stem = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let mut steps: BTreeMap<Option<usize>, GoldenStep> = BTreeMap::new();
        let arrays = npz::load_npz(file)?;
        if arrays.iter().all(|(n, _)| kind_of(n).is_none()) && !arrays.is_empty() {
            all.push(GoldenStep { label: stem, plain: arrays, ..GoldenStep::default() });
            continue;
        }
        for (name, tensor) in arrays {
            let (step, rest) = kind_of(&name).unwrap_or((None, name.as_str()));
            let step = match step {
                Some(k) => Some(k.parse::<usize>().with_context(|| format!("{stem}: `{name}`"))?),
                None => None,
            };
            let entry = steps.entry(step).or_default();
            if let Some(n) = rest.strip_prefix("in.") {
                entry.inputs.push((n.to_string(), tensor));
            } else if let Some(n) = rest.strip_prefix("out.") {
                entry.outputs.push((n.to_string(), tensor));
            } else {
                bail!("{stem}: `{name}` is neither in.NAME, out.NAME, sK.in.NAME nor sK.out.NAME");
            }
        }
        let compared = steps.values().any(|s| !s.outputs.is_empty());
        ensure!(compared, "{} holds no expected outputs (out.NAME or sK.out.NAME)", file.display());
        for (k, mut step) in steps {
            step.label = k.map_or_else(|| stem.clone(), |k| format!("{stem} step {k}"));
            all.push(step);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_advance_together() {
        let d = |n: &str, v: &[i64]| (n.to_string(), v.to_vec());
        let runs = dim_runs(&[d("b", &[2]), d("s", &[3, 4])]).unwrap();
        assert_eq!(runs, [vec![("b".into(), 2), ("s".into(), 3)], vec![("b".into(), 2), ("s".into(), 4)]]);
        assert!(dim_runs(&[d("b", &[1, 2, 3]), d("s", &[3, 4])]).is_err());
        assert!(dim_runs(&[d("b", &[1]), d("b", &[2])]).is_err());
        assert_eq!(dim_runs(&[]).unwrap(), [vec![]]);
    }
}
