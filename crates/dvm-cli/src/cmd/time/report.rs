//! The report as tables and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use dvm::timing::{Cause, Timing, unit};
use serde_json::{Value, json};

use super::Report;
use crate::cmd::{say, say_json};
use crate::table::{Table, thousands};
use crate::time_args::TimeArgs;

pub(super) fn print(a: &TimeArgs, reports: &[Report<'_>]) -> Result<()> {
    if a.json {
        let programs: Vec<Value> = reports.iter().map(json_of).collect();
        return say_json(&json!({"version": 1, "programs": programs}));
    }
    let mut out = String::new();
    for r in reports {
        text_of(r, &mut out)?;
    }
    if let [_, _, ..] = reports {
        writeln!(
            out,
            "all {} programs: {:.2} us",
            reports.len(),
            reports.iter().map(|r| r.timing.us).sum::<f64>()
        )?;
    }
    say(&out)
}

/// A pipe over all cores that have it.
struct PipeSum {
    name: &'static str,
    cores: usize,
    busy: f64,
    most: f64,
    stalls: [f64; Cause::COUNT],
    instructions: u64,
    bytes: u64,
}

/// Means over cores, in cycles.
fn pipes(t: &Timing) -> Vec<PipeSum> {
    let mut out: Vec<(usize, PipeSum)> = vec![];
    for p in t.cores.iter().flat_map(|c| &c.pipes) {
        let order = p.pipe as usize;
        let at = out.iter().position(|(o, _)| *o == order).unwrap_or_else(|| {
            let sum = PipeSum {
                name: p.pipe.name(),
                cores: 0,
                busy: 0.0,
                most: 0.0,
                stalls: [0.0; Cause::COUNT],
                instructions: 0,
                bytes: 0,
            };
            out.push((order, sum));
            out.len() - 1
        });
        let s = &mut out[at].1;
        (s.cores, s.busy, s.most) = (s.cores + 1, s.busy + p.busy, s.most.max(p.busy));
        (s.instructions, s.bytes) = (s.instructions + p.instructions, s.bytes + p.bytes);
        s.stalls.iter_mut().zip(p.stalls).for_each(|(a, b)| *a += b);
    }
    out.sort_by_key(|(o, _)| *o);
    let mean = |(_, mut s): (usize, PipeSum)| {
        let n = s.cores.max(1) as f64;
        s.busy /= n;
        s.stalls.iter_mut().for_each(|x| *x /= n);
        s
    };
    out.into_iter().map(mean).collect()
}

/// Hidden and exposed decoding of the core where most is exposed, cycles.
fn decode(t: &Timing) -> (f64, f64) {
    let worst = t.cores.iter().max_by(|a, b| {
        a.decode.exposed.total_cmp(&b.decode.exposed).then(a.decode.total.total_cmp(&b.decode.total))
    });
    worst.map_or((0.0, 0.0), |c| (c.decode.total - c.decode.exposed, c.decode.exposed))
}

fn rate(bytes: u64, us: f64) -> f64 {
    if us > 0.0 { bytes as f64 / us / 1e3 } else { 0.0 }
}

fn text_of(r: &Report<'_>, out: &mut String) -> Result<()> {
    let t = &r.timing;
    let mhz = r.spec.timing.mhz;
    let us = |cycles: f64| cycles / mhz;
    writeln!(
        out,
        "{} on {}: {:.2} us predicted ({} cycles at {mhz:.0} MHz)\n",
        r.title,
        r.spec.target.name,
        t.us,
        thousands(t.cycles.round() as usize)
    )?;
    let sums = pipes(t);
    let shown: Vec<usize> =
        (0..Cause::COUNT).filter(|&c| sums.iter().any(|p| p.stalls[c] > 0.0005 * t.cycles)).collect();
    let mut heads = vec!["pipe", "cores", "busy %", "most %", "busy us"];
    heads.extend(shown.iter().map(|&c| Cause::ALL[c].name()));
    let mut table = Table::new(&heads);
    for p in &sums {
        let percent = |x: f64| format!("{:.1}", 100.0 * x / t.cycles.max(1.0));
        let mut row = vec![
            format!("{}{}", p.name, if p.name == t.critical.name() { " *" } else { "" }),
            p.cores.to_string(),
            percent(p.busy),
            percent(p.most),
            format!("{:.2}", us(p.busy)),
        ];
        row.extend(shown.iter().map(|&c| format!("{:.2}", us(p.stalls[c]))));
        table.row(row);
    }
    writeln!(
        out,
        "{table}* critical. Means over cores; columns from `{}` on: stalls in us, by what was waited for\n",
        heads.get(5).unwrap_or(&"-")
    )?;
    let (hidden, exposed) = decode(t);
    writeln!(
        out,
        "decode      {:.2} us hidden, {:.2} us exposed (the core where most is)",
        us(hidden),
        us(exposed)
    )?;
    let m = &t.memory;
    let mb = |b: u64| b as f64 / 1e6;
    writeln!(
        out,
        "memory      {:.2} MB read, {:.2} MB written, {:.0} GB/s of {:.0}",
        mb(m.read),
        mb(m.written),
        rate(m.read + m.written, t.us),
        r.spec.timing.hbm_peak / 1e9
    )?;
    writeln!(out, "L2          {:.2} MB, {:.0} GB/s", mb(m.l2), rate(m.l2, t.us))?;
    let f = &t.roofline;
    writeln!(
        out,
        "arithmetic  {:.3} GFLOP in products, {:.3} in vectors; {:.2} TFLOP/s of {:.2}",
        t.cube_flops / 1e9,
        t.vector_flops / 1e9,
        f.rate / 1e12,
        f.peak / 1e12
    )?;
    let least: Vec<String> =
        f.bounds.iter().filter(|b| b.1 > 0.0).map(|(n, us)| format!("{n} {us:.2}")).collect();
    let ratio = if f.bound_us > 0.0 { format!(", {:.2}x that", t.us / f.bound_us) } else { String::new() };
    writeln!(
        out,
        "roofline    {:.2} FLOP/byte; least by the peaks {:.2} us ({}){ratio}",
        f.intensity,
        f.bound_us,
        least.join(", ")
    )?;
    if t.simulated < t.executions {
        writeln!(out, "extrapolated: {} of {} executions simulated", t.simulated, t.executions)?;
    }
    match &r.moved {
        None => writeln!(
            out,
            "constants   too long a program to sweep the badly known ones unasked: --sensitivity"
        )?,
        Some(moved) if moved.is_empty() => {
            writeln!(
                out,
                "constants   none of low confidence moves this by more than 5 % when halved or doubled"
            )?;
        }
        Some(moved) => {
            writeln!(out, "constants of low confidence that move this by more than 5 %:")?;
            let mut table = Table::new(&["constant", "confidence", "value", "unit", "halved %", "doubled %"]);
            for m in moved {
                let percent = |x: f64| format!("{:+.1}", 100.0 * x);
                table.row(vec![
                    m.key.clone(),
                    m.confidence.name().into(),
                    format!("{}", m.value),
                    unit(&m.key).into(),
                    percent(m.half),
                    percent(m.twice),
                ]);
            }
            write!(out, "{table}")?;
        }
    }
    for n in &t.notes {
        writeln!(out, "note        {n}")?;
    }
    if !r.rows.is_empty() {
        let h = dvm::timing::HostCosts::default();
        writeln!(
            out,
            "\nhost and device (enqueuing a launch {:.1} us, an eager op {:.1} us; compile as measured on this host)",
            h.enqueue_us, h.eager_us
        )?;
        let mut table = Table::new(&[
            "",
            "total us",
            "device us",
            "host us",
            "compile us",
            "exposed us",
            "launches",
            "kernels",
            "memory MB",
        ]);
        for row in &r.rows {
            table.row(vec![
                row.name.into(),
                format!("{:.1}", row.schedule.total_us),
                format!("{:.1}", row.device_us),
                format!("{:.1}", row.host_us),
                format!("{:.1}", row.compile_us),
                format!("{:.1}", row.schedule.exposed_compile_us),
                row.steps.len().to_string(),
                row.kernels.to_string(),
                format!("{:.2}", mb(row.memory_bytes)),
            ]);
        }
        write!(out, "{table}")?;
    }
    out.push('\n');
    Ok(())
}

fn json_of(r: &Report<'_>) -> Value {
    let t = &r.timing;
    let mhz = r.spec.timing.mhz;
    let causes = |stalls: &[f64; Cause::COUNT]| -> Value {
        let all = Cause::ALL.iter().zip(stalls).filter(|(_, s)| **s > 0.0);
        all.map(|(c, s)| (c.name().to_owned(), json!(s / mhz))).collect::<serde_json::Map<_, _>>().into()
    };
    let pipes = pipes(t).into_iter().map(|p| {
        json!({
            "pipe": p.name, "cores": p.cores, "busy_us": p.busy / mhz, "most_busy_us": p.most / mhz,
            "stalls_us": causes(&p.stalls), "instructions": p.instructions, "bytes": p.bytes,
        })
    });
    let cores = t.cores.iter().map(|c| {
        let pipes = c.pipes.iter().map(|p| {
            json!({"pipe": p.pipe.name(), "busy_us": p.busy / mhz, "stalls_us": causes(&p.stalls), "instructions": p.instructions})
        });
        json!({
            "core": c.name(), "pipes": pipes.collect::<Vec<_>>(),
            "decode_us": c.decode.total / mhz, "decode_exposed_us": c.decode.exposed / mhz,
        })
    });
    let (hidden, exposed) = decode(t);
    let f = &t.roofline;
    let bounds: serde_json::Map<String, Value> =
        f.bounds.iter().map(|(n, us)| ((*n).to_owned(), json!(us))).collect();
    let moved = r.moved.as_ref().map(|list| {
        list.iter()
            .map(|m| {
                json!({"constant": m.key, "confidence": m.confidence.name(), "value": m.value, "halved": m.half, "doubled": m.twice})
            })
            .collect::<Vec<_>>()
    });
    let rows = r.rows.iter().map(|row| {
        json!({
            "name": row.name, "total_us": row.schedule.total_us, "device_us": row.device_us, "host_us": row.host_us,
            "compile_us": row.compile_us, "exposed_compile_us": row.schedule.exposed_compile_us, "launches": row.steps.len(),
            "kernels": row.kernels, "memory_bytes": row.memory_bytes,
        })
    });
    json!({
        "name": r.title, "program": r.program.name, "spec": r.spec.target.name, "us": t.us, "cycles": t.cycles, "mhz": mhz,
        "critical": t.critical.name(), "pipes": pipes.collect::<Vec<_>>(), "cores": cores.collect::<Vec<_>>(),
        "decode": {"hidden_us": hidden / mhz, "exposed_us": exposed / mhz},
        "memory": {
            "read_bytes": t.memory.read, "written_bytes": t.memory.written, "l2_bytes": t.memory.l2,
            "memory_gb_per_s": rate(t.memory.read + t.memory.written, t.us), "l2_gb_per_s": rate(t.memory.l2, t.us),
        },
        "arithmetic": {"cube_flop": t.cube_flops, "vector_flop": t.vector_flops, "flop_per_s": f.rate, "peak_flop_per_s": f.peak},
        "roofline": {"flop_per_byte": if f.intensity.is_finite() { json!(f.intensity) } else { Value::Null }, "bound_us": f.bound_us, "bounds_us": bounds},
        "executions": t.executions, "simulated": t.simulated, "low_confidence": moved, "steps_us": t.steps,
        "compile_us": r.compile_us, "launch": rows.collect::<Vec<_>>(), "notes": t.notes,
    })
}
