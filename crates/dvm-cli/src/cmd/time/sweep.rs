//! What if: one program, or one model compiled again and again, over values of a machine's numbers.

use anyhow::Result;
use dvm::MachineSpec;
use dvm::timing::{self, Timing};
use serde_json::json;

use super::{Source, changed, options};
use crate::cmd::specs::SpecFile;
use crate::cmd::{say, say_json};
use crate::table::Table;
use crate::time_args::TimeArgs;
use crate::{Outcome, Usage};

/// Most points of all sweeps together.
const MOST: usize = 10_000;

/// Sum over the programs of what is timed.
struct Point {
    values: Vec<f64>,
    /// Microseconds, the least by the peaks, bytes of memory traffic, the critical pipe; or why there is none.
    found: Result<(f64, f64, u64, &'static str), String>,
}

pub(super) fn sweep(a: &TimeArgs, source: &Source, file: &SpecFile) -> Result<Outcome> {
    let count = a.sweep.iter().fold(1usize, |n, s| n.saturating_mul(s.values.len()));
    if count > MOST {
        return Err(Usage(format!("the sweeps have {count} combinations, at most {MOST} are timed")).into());
    }
    // Keys are wrong for all values or for none; a value may be out of range.
    for s in &a.sweep {
        file.spec.value(&s.key)?;
        changed(&file.spec, source, &s.key, file.spec.value(&s.key)?)?;
    }
    let base = measure(a, source, &file.spec);
    let base = base.ok().map(|b| b.0);
    let mut points = Vec::with_capacity(count);
    for i in 0..count {
        let (mut rest, mut spec) = (i, Ok(file.spec.clone()));
        let mut values = vec![0.0; a.sweep.len()];
        for (s, v) in a.sweep.iter().zip(&mut values).rev() {
            *v = s.values[rest % s.values.len()];
            rest /= s.values.len();
            spec = spec.and_then(|m: MachineSpec| changed(&m, source, &s.key, *v));
        }
        let found = spec.and_then(|m| measure(a, source, &m)).map_err(|e| crate::chain(&e));
        points.push(Point { values, found });
    }
    let change = |us: f64| base.map_or(f64::NAN, |b| (us / b - 1.0) * 100.0);
    if a.json {
        let one = |p: &Point| {
            let mut doc = serde_json::Map::new();
            let set: serde_json::Map<_, _> =
                a.sweep.iter().zip(&p.values).map(|(s, v)| (s.key.clone(), json!(v))).collect();
            doc.insert("set".into(), set.into());
            match &p.found {
                Ok((us, bound, bytes, critical)) => {
                    doc.insert("us".into(), json!(us));
                    doc.insert("bound_us".into(), json!(bound));
                    doc.insert("memory_bytes".into(), json!(bytes));
                    doc.insert("critical".into(), json!(critical));
                }
                Err(e) => drop(doc.insert("error".into(), json!(e))),
            }
            serde_json::Value::from(doc)
        };
        let points: Vec<_> = points.iter().map(one).collect();
        say_json(&json!({"version": 1, "spec": file.spec.target.name, "base_us": base, "points": points}))?;
        return Ok(Outcome::Right);
    }
    let keys: Vec<&str> = a.sweep.iter().map(|s| s.key.as_str()).collect();
    let heads = ["us", "change %", "least us", "memory MB", "critical"];
    let rows = points.iter().map(|p| {
        let mut row: Vec<String> = p.values.iter().map(|v| plain(*v)).collect();
        match &p.found {
            Ok((us, bound, bytes, critical)) => row.extend([
                format!("{us:.2}"),
                format!("{:+.1}", change(*us)),
                format!("{bound:.2}"),
                format!("{:.2}", *bytes as f64 / 1e6),
                (*critical).to_owned(),
            ]),
            Err(e) => {
                row.extend(["-".into(), "-".into(), "-".into(), "-".into(), e.replace(['\n', ','], ";")])
            }
        }
        row
    });
    let headings: Vec<&str> = keys.iter().copied().chain(heads).collect();
    if a.csv {
        let names = ["us", "change_percent", "least_us", "memory_mb", "critical"];
        let mut out = keys.iter().copied().chain(names).collect::<Vec<_>>().join(",") + "\n";
        rows.for_each(|r| out.push_str(&(r.join(",") + "\n")));
        say(&out)?;
    } else {
        let mut table = Table::new(&headings);
        rows.for_each(|r| table.row(r));
        let was = base.map_or_else(String::new, |b| format!("unchanged: {b:.2} us\n"));
        say(&format!("{table}{was}"))?;
    }
    Ok(Outcome::Right)
}

fn measure(a: &TimeArgs, source: &Source, spec: &MachineSpec) -> Result<(f64, f64, u64, &'static str)> {
    let subject = source.subject(spec, !a.no_fuse)?;
    let mut sum = (0.0, 0.0, 0, "");
    let mut longest = 0.0;
    for p in &subject.programs {
        let t: Timing = timing::simulate(p, spec, &options(a))?;
        sum = (sum.0 + t.us, sum.1 + t.roofline.bound_us, sum.2 + t.memory.read + t.memory.written, sum.3);
        if t.us > longest {
            (longest, sum.3) = (t.us, t.critical.name());
        }
    }
    Ok(sum)
}

/// A number as people write it.
fn plain(v: f64) -> String {
    if v.fract() == 0.0 && v.abs() < 1e9 {
        format!("{v}")
    } else if v.abs() >= 1e5 {
        format!("{v:.3e}")
    } else {
        format!("{v:.4}")
    }
}
