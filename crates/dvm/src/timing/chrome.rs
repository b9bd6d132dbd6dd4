//! The timeline as Chrome trace events, which Perfetto and chrome://tracing open.

use std::fmt::Write as _;

use dvm_npu::MachineSpec;
use dvm_npu::timing::Timing;

use super::Row;
use super::label::{Labels, quoted};

/// Trace events as one JSON object: a process for each core with a thread for each pipe, and one for host and device. Times are µs. Nothing but
/// names where the timing has no trace.
#[must_use]
pub fn chrome_trace(timing: &Timing, labels: &Labels<'_>, spec: &MachineSpec, host: Option<&Row>) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    let mut first = true;
    let mut event = |text: std::fmt::Arguments<'_>| {
        if !std::mem::take(&mut first) {
            out.push_str(",\n");
        }
        let _ = out.write_fmt(text);
    };
    let name = |s: &str| {
        let mut t = String::new();
        quoted(s, &mut t);
        t
    };
    let meta = |kind: &str, pid: usize, tid: usize, text: &str| {
        format!(
            "{{\"ph\":\"M\",\"name\":\"{kind}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{}}}}}",
            name(text)
        )
    };
    if let Some(s) = host.map(|r| &r.schedule) {
        event(format_args!("{}", meta("process_name", 0, 0, "host and device")));
        for (tid, (what, list)) in [("host", &s.host), ("device", &s.device)].into_iter().enumerate() {
            event(format_args!("{}", meta("thread_name", 0, tid, what)));
            for b in list {
                let (n, ts, dur) = (name(&b.name), b.start_us, b.end_us - b.start_us);
                event(format_args!(
                    "{{\"ph\":\"X\",\"name\":{n},\"pid\":0,\"tid\":{tid},\"ts\":{ts:.4},\"dur\":{dur:.4}}}"
                ));
            }
        }
    }
    let mhz = spec.timing.mhz;
    let shifts = host.map_or_else(Vec::new, |r| r.shifts(timing, spec));
    for (c, core) in timing.cores.iter().enumerate() {
        event(format_args!("{}", meta("process_name", c + 1, 0, &core.name())));
        for p in &core.pipes {
            event(format_args!("{}", meta("thread_name", c + 1, p.pipe as usize, p.pipe.name())));
        }
    }
    for s in timing.trace.iter().flat_map(|t| &t.spans) {
        let shift = shifts.get(s.step as usize).copied().unwrap_or(0.0);
        let (ts, dur) = (shift + s.start / mhz, (s.end - s.start) / mhz);
        event(format_args!(
            "{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{ts:.4},\"dur\":{dur:.4},\"args\":{{\"instruction\":{},\
             \"value\":{},\"kernel\":{},\"ops\":{},\"step\":{},\"unit\":{},\"tile\":{},\"waited for\":\"{}\"}}}}",
            name(s.at.mnemonic),
            s.pipe.name(),
            s.core + 1,
            s.pipe as usize,
            name(&labels.text(s.at)),
            name(labels.note(s.at)),
            name(labels.kernel(s.at.template)),
            name(&labels.ops(s.at.template)),
            s.step,
            s.unit,
            s.tile,
            s.waited.name(),
        ));
    }
    out.push_str("\n]}\n");
    out
}
