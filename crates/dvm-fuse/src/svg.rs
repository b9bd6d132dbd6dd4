//! An explained plan as a picture: levels from top to bottom, kernels as boxes, what goes through memory as lines.
//!
//! The usual layered drawing: a line that passes a level gets a place in it, and the places of a level are sorted by the mean of
//! what they hang from.

use std::fmt::Write;

use dvm_ir::Explanation;
use dvm_ir::explain::{BoundaryNote, CallNote};

/// Characters of a line of a box.
const COLUMNS: usize = 38;
/// Most lines of ops.
const OP_LINES: usize = 4;
const CHAR: f64 = 7.2;
const LINE: f64 = 16.0;
const PAD: f64 = 10.0;
/// Space between places, between levels, and the width of a line that passes.
const GAP: f64 = 28.0;
const DROP: f64 = 56.0;
const LANE: f64 = 14.0;

/// A place in a level.
struct Place {
    /// The call, none where a line passes.
    call: Option<usize>,
    /// Places of the level above that it hangs from.
    above: Vec<usize>,
    width: f64,
    height: f64,
    x: f64,
    y: f64,
}

/// Level and place in it, from call to call.
type Route = Vec<(usize, usize)>;

/// The picture as an SVG document that needs nothing else.
#[must_use]
pub fn to_svg(e: &Explanation) -> String {
    let texts: Vec<Vec<String>> = e.calls.iter().map(lines).collect();
    let mut levels: Vec<Vec<Place>> = vec![];
    for level in &e.levels {
        let place = |&c: &u32| {
            let text = &texts[c as usize];
            let longest = text.iter().map(|l| l.chars().count()).max().unwrap_or(0);
            let (width, height) = (longest as f64 * CHAR + 2.0 * PAD, text.len() as f64 * LINE + 2.0 * PAD);
            Place { call: Some(c as usize), above: vec![], width, height, x: 0.0, y: 0.0 }
        };
        levels.push(level.iter().filter(|&&c| (c as usize) < e.calls.len()).map(place).collect());
    }
    // One line for all buffers between two calls: its places from level to level.
    let mut routes: Vec<(Route, Vec<&BoundaryNote>)> = vec![];
    for b in &e.boundaries {
        let at = |c: u32| {
            let l = e.calls.get(c as usize)?.level as usize;
            Some((l, levels.get(l)?.iter().position(|p| p.call == Some(c as usize))?))
        };
        let (Some(from), Some(to)) = (at(b.from), at(b.to)) else { continue };
        if let Some((_, all)) =
            routes.iter_mut().find(|(r, _)| (r.first(), r.last()) == (Some(&from), Some(&to)))
        {
            all.push(b);
            continue;
        }
        let mut route = vec![from];
        for (l, level) in levels.iter_mut().enumerate().take(to.0).skip(from.0 + 1) {
            let above = vec![route[route.len() - 1].1];
            level.push(Place { call: None, above, width: LANE, height: 0.0, x: 0.0, y: 0.0 });
            route.push((l, level.len() - 1));
        }
        let last = route[route.len() - 1].1;
        levels[to.0][to.1].above.push(last);
        route.push(to);
        routes.push((route, vec![b]));
    }
    let (width, height) = arrange(&mut levels);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    let title = format!(
        "{}: {} calls of {} kernels in {} levels; {} bytes saved",
        e.name,
        e.calls.len(),
        e.kernels,
        e.levels.len(),
        e.bytes.saved
    );
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<title>{}</title>", escape(&title));
    let _ = writeln!(
        out,
        "<text x=\"{GAP}\" y=\"22\" font-weight=\"bold\">{}</text>",
        escape(&clip(&title, (width / CHAR) as usize))
    );
    for (route, notes) in &routes {
        line(&mut out, &levels, route, notes);
    }
    for p in levels.iter().flatten() {
        if let Some(c) = p.call {
            boxed(&mut out, p, &e.calls[c], &texts[c]);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Gives every place its coordinates; the size of the picture.
fn arrange(levels: &mut [Vec<Place>]) -> (f64, f64) {
    let top = 40.0;
    let (mut y, mut widest) = (top, 0.0f64);
    let row = |l: &[Place]| l.iter().map(|p| p.width + GAP).sum::<f64>() + GAP;
    let full = levels.iter().map(|l| row(l)).fold(600.0, f64::max);
    let mut centres: Vec<f64> = vec![];
    for level in levels.iter_mut() {
        let mean = |p: &Place| match p.above.len() {
            0 => f64::MAX,
            n => p.above.iter().map(|&a| centres.get(a).copied().unwrap_or(0.0)).sum::<f64>() / n as f64,
        };
        let mut order: Vec<usize> = (0..level.len()).collect();
        order.sort_by(|&a, &b| mean(&level[a]).total_cmp(&mean(&level[b])));
        let mut x = (full - row(level)) / 2.0 + GAP;
        let height = level.iter().map(|p| p.height).fold(0.0, f64::max);
        for &i in &order {
            let p = &mut level[i];
            (p.x, p.y) = (x, y);
            x += p.width + GAP;
        }
        for p in level.iter_mut().filter(|p| p.call.is_none()) {
            p.height = height;
        }
        centres = level.iter().map(|p| p.x + p.width / 2.0).collect();
        widest = widest.max(x);
        y += height + DROP;
    }
    (full.max(widest), y - DROP + GAP)
}

/// What stands in the box of a call.
fn lines(c: &CallNote) -> Vec<String> {
    let space: Vec<&str> = c.space.iter().map(|s| s.expr.as_str()).collect();
    let mut out = vec![
        clip(&format!("{} {}", c.kernel, c.name), COLUMNS),
        clip(&format!("[{}]", space.join(", ")), COLUMNS),
    ];
    let mut line = String::new();
    let mut ops = c.ops.iter().map(|o| o.split(' ').next().unwrap_or_default()).peekable();
    let mut rows = 0;
    while let Some(op) = ops.next() {
        if !line.is_empty() && line.len() + op.len() + 2 > COLUMNS {
            out.push(std::mem::take(&mut line));
            rows += 1;
            if rows == OP_LINES {
                line = format!("and {} more", ops.count() + 1);
                break;
            }
        }
        line.push_str(op);
        line.push_str(if ops.peek().is_some() { ", " } else { "" });
    }
    if !line.is_empty() {
        out.push(line);
    }
    if c.bytes.saved.expr != "0" {
        out.push(clip(&format!("saves {}", c.bytes.saved), COLUMNS));
    }
    out.extend(c.cores.map(|n| format!("at most {n} cores")));
    out
}

fn boxed(out: &mut String, p: &Place, c: &CallNote, text: &[String]) {
    let cube = c.name.starts_with("matmul") || c.name.contains("attention");
    let fill = if cube { "#e3ecfa" } else { "#eef6e8" };
    let tip = format!(
        "call {}\n{}\nreads {}\nwrites {}\nbytes {}",
        c.call,
        c.ops.join("\n"),
        c.reads.join(", "),
        c.writes.join(", "),
        c.bytes.fused
    );
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\" fill=\"{fill}\" stroke=\"#444\"/>",
        escape(&tip),
        p.x,
        p.y,
        p.width,
        p.height
    );
    for (i, line) in text.iter().enumerate() {
        let weight = if i == 0 { " font-weight=\"bold\"" } else { "" };
        let y = p.y + PAD + (i as f64 + 0.8) * LINE;
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{y:.1}\"{weight}>{}</text>", p.x + PAD, escape(line));
    }
    out.push_str("</g>\n");
}

/// A line from call to call; orange where a fact would have spared it.
fn line(out: &mut String, levels: &[Vec<Place>], route: &[(usize, usize)], notes: &[&BoundaryNote]) {
    let missing = notes.iter().any(|b| !b.missing.is_empty());
    let (colour, dash) = if missing { ("#d9730d", " stroke-dasharray=\"6 3\"") } else { ("#777", "") };
    let place = |&(l, i): &(usize, usize)| &levels[l][i];
    let mut path = String::new();
    let (mut x, mut y) = (0.0, 0.0);
    for (i, p) in route.iter().map(place).enumerate() {
        let centre = p.x + p.width / 2.0;
        if i > 0 {
            let bend = (p.y - y) / 2.0;
            let _ =
                write!(path, " C{x:.1} {:.1} {centre:.1} {:.1} {centre:.1} {:.1}", y + bend, p.y - bend, p.y);
        }
        (x, y) = (centre, p.y + p.height);
        match p.call {
            Some(_) if i == 0 => {
                let _ = write!(path, "M{x:.1} {y:.1}");
            }
            Some(_) => {}
            None => {
                let _ = write!(path, " L{x:.1} {y:.1}");
            }
        }
    }
    let tip: Vec<String> = notes
        .iter()
        .map(|b| {
            let missing = if b.missing.is_empty() {
                String::new()
            } else {
                format!("\ncannot prove {}", b.missing.join(", nor "))
            };
            format!("{} ({} bytes): {}{missing}", b.buffer, b.bytes, b.rule)
        })
        .collect();
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}><title>{}</title></path>",
        escape(&tip.join("\n"))
    );
    // The label hangs on the end of the line, over the box that reads.
    if let (true, Some(p)) = (missing, route.last().map(place)) {
        let text = notes.iter().flat_map(|b| &b.missing).next().map_or("", String::as_str);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}?</text>",
            p.x + p.width / 2.0 + 6.0,
            p.y - 6.0,
            escape(&clip(text, COLUMNS))
        );
    }
}

fn clip(s: &str, most: usize) -> String {
    if s.chars().count() <= most {
        return s.to_owned();
    }
    s.chars().take(most.saturating_sub(2)).chain("..".chars()).collect()
}

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
