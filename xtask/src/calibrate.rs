//! `cargo xtask calibrate`: the timing model against the measurements it may be fitted to.

use anyhow::{Context, Result, anyhow};
use dvm_bc::Program;
use dvm_ir::{Bindings, DimValues, Graph};
use dvm_npu::MachineSpec;
use dvm_npu::calibration::{Row, fitted};
use dvm_tile::{Scratch, compile_plan};

/// Factors that are tried for a fitted constant where a row is left out.
const FACTORS: [f64; 5] = [0.6, 0.8, 1.0, 1.2, 1.4];

/// Compiles a graph's text for `name=value` dims.
pub(crate) fn compile(text: &str, dims: &str, spec: &MachineSpec) -> Result<Program, String> {
    let graph = Graph::from_text(text).map_err(|e| e.to_string())?;
    let plan = dvm_fuse::plan(&graph, &dvm_fuse::FuseOptions::default()).map_err(|e| e.to_string())?;
    let mut bindings = Bindings::new();
    for word in dims.split_whitespace() {
        let bound = word
            .split_once('=')
            .and_then(|(name, value)| bindings.bind(plan.dims.find_symbol(name)?, value.parse().ok()?).ok());
        bound.ok_or_else(|| format!("`{word}` binds no symbol"))?;
    }
    let mut values = DimValues::default();
    plan.dims.eval_all(&bindings, &mut values);
    let compiled = compile_plan(&plan, &values, spec, &mut Scratch::default()).map_err(|e| e.to_string())?;
    Ok(compiled.program)
}

struct Measured {
    row: Row,
    program: Program,
    spec: MachineSpec,
}

impl Measured {
    fn error(&self, spec: &MachineSpec) -> Result<f64> {
        Ok(self.row.predict(&self.program, spec)? / self.row.measured - 1.0)
    }
    fn with(&self, changes: &[(&str, f64)]) -> MachineSpec {
        let mut spec = self.spec.clone();
        for (key, factor) in changes {
            if let Some(c) = spec.timing.get_mut(key) {
                *c *= factor;
            }
        }
        spec
    }
}

/// Prints the table. Fails where the errors are above what is promised.
pub(crate) fn calibrate(quick: bool) -> Result<()> {
    let rows: Vec<Measured> = Row::all()
        .into_iter()
        .map(|row| Ok(Measured { row, program: row.program(&compile)?, spec: row.spec()? }))
        .collect::<Result<_>>()?;
    let keys: Vec<String> = fitted("ascend-910b2")
        .iter()
        .filter_map(|o| Some(o.key.strip_prefix("timing.")?.to_owned()))
        .collect();
    let errors = rows.iter().map(|m| m.error(&m.spec)).collect::<Result<Vec<f64>>>()?;
    // Errors with each fitted constant at each factor.
    let mut table = Vec::new();
    if !quick {
        for key in &keys {
            let mut of_key = Vec::new();
            for factor in FACTORS {
                let of = |m: &Measured| m.error(&m.with(&[(key, factor)]));
                of_key.push(rows.iter().map(of).collect::<Result<Vec<f64>>>()?);
            }
            table.push(of_key);
        }
    }
    let left_out = |i: usize| -> Result<Option<f64>> {
        if quick {
            return Ok(None);
        }
        let mut changes = Vec::new();
        for (key, of_key) in keys.iter().zip(&table) {
            let mean =
                |e: &Vec<f64>| e.iter().enumerate().filter(|x| x.0 != i).map(|x| x.1.abs()).sum::<f64>();
            let best = of_key.iter().enumerate().min_by(|a, b| mean(a.1).total_cmp(&mean(b.1)));
            changes.push((key.as_str(), FACTORS[best.context("no factors")?.0]));
        }
        rows[i].error(&rows[i].with(&changes)).map(Some)
    };
    println!(
        "row  measurement                          machine       measured us  model us   error  left out   naive"
    );
    let mut left = Vec::new();
    let mut naive = Vec::new();
    for (i, m) in rows.iter().enumerate() {
        let out = left_out(i)?;
        left.extend(out);
        let n = m.row.naive(&m.program).map(|n| n / m.row.measured - 1.0);
        naive.extend(n.map(|n| (n, errors[i])));
        let percent = |e: Option<f64>| e.map_or_else(|| "-".to_owned(), |e| format!("{:+.1} %", 100.0 * e));
        println!(
            "{:>3}  {:<36} {:<13} {:>11.1} {:>9.1} {:>8} {:>8} {:>8}",
            m.row.row,
            m.row.name,
            m.row.machine,
            m.row.measured,
            m.row.measured * (1.0 + errors[i]),
            percent(Some(errors[i])),
            percent(out),
            percent(n),
        );
    }
    let mean = |e: &[f64]| 100.0 * e.iter().map(|e| e.abs()).sum::<f64>() / e.len().max(1) as f64;
    let worst = |e: &[f64]| 100.0 * e.iter().map(|e| e.abs()).fold(0.0, f64::max);
    println!("model: mean error {:.1} %, worst {:.1} %", mean(&errors), worst(&errors));
    if !quick {
        println!(
            "each row left out of the fit: mean error {:.1} %, worst {:.1} %",
            mean(&left),
            worst(&left)
        );
    }
    let (n, same): (Vec<f64>, Vec<f64>) = naive.into_iter().unzip();
    println!(
        "naive model: mean error {:.1} %, worst {:.1} %; this model on the same rows {:.1} %",
        mean(&n),
        worst(&n),
        mean(&same)
    );
    println!("fitted constants:");
    for o in fitted("ascend-910b2") {
        println!("  {:<24} {}", o.key, o.note);
    }
    if mean(&errors) > 10.0 || worst(&errors) > 25.0 {
        return Err(anyhow!("mean error above 10 % or worst above 25 %"));
    }
    Ok(())
}
