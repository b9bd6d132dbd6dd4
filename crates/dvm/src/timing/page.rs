//! The timeline as one self-contained page: data, script and style in one file that asks for nothing else.

use std::collections::HashMap;
use std::fmt::Write as _;

use dvm_bc::{CoreKind, InstAt};
use dvm_npu::MachineSpec;
use dvm_npu::timing::{Cause, Timing};

use super::Row;
use super::label::{Labels, quoted};

const PAGE: &str = include_str!("timeline.html");

/// A page with a timeline of every core and pipe. Numbers are whole cycles, each span relative to the one before, so that a page of ten thousand
/// spans stays under 300 KB.
#[must_use]
pub fn html_page(
    title: &str,
    timing: &Timing,
    labels: &Labels<'_>,
    spec: &MachineSpec,
    host: Option<&Row>,
) -> String {
    let mut data = String::from("{");
    let text = |key: &str, value: &str, out: &mut String| {
        let _ = write!(out, "\"{key}\":");
        quoted(value, out);
        out.push(',');
    };
    text("title", title, &mut data);
    text("spec", &spec.target.name, &mut data);
    text("critical", timing.critical.name(), &mut data);
    let dropped = timing.trace.as_ref().map_or(0, |t| t.dropped);
    let _ = write!(
        data,
        "\"us\":{:.3},\"cycles\":{:.0},\"mhz\":{},\"bound\":{:.3},\"read\":{},\"written\":{},\"l2\":{},\"flops\":{:.0},\"dropped\":{dropped},\"launch\":{:.0},",
        timing.us,
        timing.cycles,
        spec.timing.mhz,
        timing.roofline.bound_us,
        timing.memory.read,
        timing.memory.written,
        timing.memory.l2,
        timing.cube_flops + timing.vector_flops,
        spec.timing.launch_us * spec.timing.mhz,
    );
    strings("causes", Cause::ALL.iter().map(|c| c.name().to_owned()), &mut data);
    // Times of the page are from the device's first launch on.
    let shifts = host.map_or_else(Vec::new, |r| r.shifts(timing, spec));
    let shift = |step: usize| shifts.get(step).map_or(0.0, |s| s - shifts[0]);
    let _ = write!(data, "\"idle\":{},", Cause::Idle as usize);
    data.push_str("\"steps\":[");
    let step = |(i, s): (usize, &(f64, f64))| format!("[{:.3},{:.3}]", s.0 + shift(i), s.1 + shift(i));
    list(timing.steps.iter().enumerate().map(step), &mut data);
    data.push_str("],");

    let mut insts: HashMap<(u32, u32), usize> = HashMap::new();
    let mut shown: Vec<InstAt> = vec![];
    let mut lanes = vec![];
    let spans = timing.trace.as_ref().map_or(&[][..], |t| &t.spans);
    for c in grouped(timing, spec) {
        let core = &timing.cores[c];
        for p in &core.pipes {
            let mut own: Vec<_> = spans.iter().filter(|s| s.core as usize == c && s.pipe == p.pipe).collect();
            own.sort_by(|a, b| a.start.total_cmp(&b.start));
            let (mut at, mut tile) = (0i64, 0i64);
            let mut packed = String::new();
            for s in own {
                let later = shift(s.step as usize) * spec.timing.mhz;
                let (start, end) = ((s.start + later).round() as i64, (s.end + later).round() as i64);
                let inst = *insts.entry((s.at.template, s.at.number)).or_insert_with(|| {
                    shown.push(s.at);
                    shown.len() - 1
                });
                if !packed.is_empty() {
                    packed.push(',');
                }
                let _ = write!(
                    packed,
                    "{},{},{inst},{},{},{}",
                    start - at,
                    (end - start).max(0),
                    s.tile as i64 - tile,
                    s.waited as u8,
                    s.step,
                );
                (at, tile) = (end.max(start), s.tile as i64);
            }
            let mut lane = String::from("{\"core\":");
            quoted(&core.name(), &mut lane);
            let stalls: Vec<String> = p.stalls.iter().map(|s| format!("{s:.0}")).collect();
            let _ = write!(
                lane,
                ",\"pipe\":\"{}\",\"busy\":{:.0},\"stalls\":[{}],\"spans\":[{packed}]}}",
                p.pipe.name(),
                p.busy,
                stalls.join(",")
            );
            lanes.push(lane);
        }
    }
    data.push_str("\"lanes\":[");
    list(lanes.into_iter(), &mut data);
    data.push_str("],\"insts\":[");
    let inst = |at: &InstAt| {
        let mut out = String::from("[");
        let parts = [at.mnemonic, &labels.text(*at), labels.note(*at), labels.kernel(at.template)];
        parts.iter().for_each(|p| {
            quoted(p, &mut out);
            out.push(',');
        });
        let _ = write!(out, "{}]", at.template);
        out
    };
    list(shown.iter().map(inst), &mut data);
    data.push_str("],");
    let last = shown.iter().map(|a| a.template).max().map_or(0, |t| t + 1);
    strings("ops", (0..last).map(|t| labels.ops(t)), &mut data);
    data.push_str("\"host\":[");
    if let Some(s) = host.map(|r| &r.schedule) {
        let lane = |name: &str, list_: &[super::Busy]| {
            let mut out = format!("[\"{name}\",[");
            let one = |b: &super::Busy| {
                let mut t = String::from("[");
                quoted(&b.name, &mut t);
                let _ = write!(t, ",{:.3},{:.3}]", b.start_us, b.end_us);
                t
            };
            list(list_.iter().map(one), &mut out);
            out.push_str("]]");
            out
        };
        list([lane("host", &s.host), lane("device", &s.device)].into_iter(), &mut data);
    }
    data.push_str("]}");
    let mut heading = String::new();
    for c in title.chars() {
        match c {
            '<' => heading.push_str("&lt;"),
            '&' => heading.push_str("&amp;"),
            c => heading.push(c),
        }
    }
    PAGE.replacen("@DATA@", &data, 1).replacen("@TITLE@", &heading, 1)
}

/// Cores in the order of rows: a cube core, then the vector cores that it leads.
fn grouped(timing: &Timing, spec: &MachineSpec) -> Vec<usize> {
    let t = &spec.target;
    let each = t.cores.checked_div(t.cube_cores).unwrap_or(0).max(1);
    let place = |c: &usize| {
        let core = &timing.cores[*c];
        match core.kind {
            Some(CoreKind::Cube) => (core.number, 0, core.number),
            _ if t.cube_cores > 0 => (core.number / each, 1, core.number),
            _ => (0, 1, core.number),
        }
    };
    let mut all: Vec<usize> = (0..timing.cores.len()).collect();
    all.sort_by_key(place);
    all
}

fn list(items: impl Iterator<Item = String>, out: &mut String) {
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&item);
    }
}

fn strings(key: &str, items: impl Iterator<Item = String>, out: &mut String) {
    let _ = write!(out, "\"{key}\":[");
    let one = |s: String| {
        let mut t = String::new();
        quoted(&s, &mut t);
        t
    };
    list(items.map(one), out);
    out.push_str("],");
}
