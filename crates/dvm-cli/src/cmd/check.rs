//! `dvm check`: verifier and hazard checker, without running anything.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use anyhow::{Context, Result, bail};
use dvm::bc::text::Lines;
use dvm::bc::{Bundle, InstAt, Limits, Program, Violation, Where, disasm_inst};
use dvm::hazard::{Dependence, Hazard};
use dvm::{CheckReport, FileKind, Module, check as check_program, compile_bundle};
use serde_json::json;

use crate::args::CheckArgs;
use crate::cmd::{file_size, options, say, say_json};
use crate::inputs::{complete, dim_runs, given};
use crate::{Outcome, Usage};

/// Programs, and the text they were written as.
struct Source {
    name: String,
    bundle: Bundle,
    text: Option<(String, Lines)>,
}

pub(crate) fn check(a: &CheckArgs) -> Result<Outcome> {
    let source = open(a)?;
    let programs = &source.bundle.programs;
    let reports: Vec<CheckReport> = programs.iter().map(|p| check_program(p, &Limits::default())).collect();
    if a.json {
        let programs = programs.iter().zip(&reports).map(|(p, r)| report_json(p, r));
        say_json(&json!({"version": 1, "programs": programs.collect::<Result<Vec<_>>>()?}))?;
    } else {
        let mut out = String::new();
        for (i, r) in reports.iter().enumerate() {
            describe(&source, i as u32, r, &mut out);
        }
        say(&out)?;
    }
    Ok(if reports.iter().all(CheckReport::is_sound) { Outcome::Right } else { Outcome::Unsound })
}

fn report_json(p: &Program, r: &CheckReport) -> Result<serde_json::Value> {
    let violations = r.violations.iter().flat_map(|e| &e.violations).map(|v| {
        let text = inst_of(v).and_then(|at| disasm_inst(p, at));
        json!({"at": v.at.to_string(), "instruction": text, "message": v.message})
    });
    let mut doc = json!({
        "program": p.name, "target": p.target.name, "sound": r.is_sound(),
        "violations": violations.collect::<Vec<_>>(), "more_violations": r.violations.as_ref().map_or(0, |e| e.more),
    });
    // A program that does not verify is not looked at further.
    if r.violations.is_none() {
        doc["synchronisation"] = serde_json::to_value(&r.hazards)?;
    }
    Ok(doc)
}

fn inst_of(v: &Violation) -> Option<InstAt> {
    match v.at {
        Where::Inst(at) => Some(at),
        _ => None,
    }
}

fn open(a: &CheckArgs) -> Result<Source> {
    let name = a.file.display().to_string();
    let bytes = std::fs::read(&a.file).with_context(|| name.clone())?;
    let kind = FileKind::of(&bytes);
    if matches!(kind, FileKind::Bundle | FileKind::Assembly) {
        if !a.dim.is_empty() || !a.input.is_empty() || a.engine.spec.is_some() {
            bail!(Usage(format!("--dim, --input and --spec are for models; {name} is compiled already")));
        }
        if kind == FileKind::Bundle {
            let bundle = Bundle::from_bytes(&bytes).with_context(|| name.clone())?;
            return Ok(Source { name, bundle, text: None });
        }
        let text = String::from_utf8(bytes).with_context(|| name.clone())?;
        let (bundle, lines) =
            Bundle::from_text_with_lines(&text).map_err(|e| anyhow::anyhow!(e.render(&name, &text)))?;
        return Ok(Source { name, bundle, text: Some((text, lines)) });
    }
    let module = Module::load(&a.file).with_context(|| name.clone())?;
    let given = given(None, &a.input)?;
    let runs = dim_runs(&a.dim)?;
    let [dims] = runs.as_slice() else {
        bail!(Usage("a model is checked for one value of each dim".into()));
    };
    let graph = module.graph(&given, dims)?;
    let options = options(&a.engine, file_size(&a.file))?;
    let inputs = complete(&graph, &given, dims, options.max_bytes)?;
    let (bundle, _) = compile_bundle(&module, &inputs, &options, false)?;
    Ok(Source { name, bundle, text: None })
}

fn describe(source: &Source, index: u32, r: &CheckReport, out: &mut String) {
    let program = &source.bundle.programs[index as usize];
    out.push_str(&format!("{}: program `{}` for {}\n", source.name, program.name, program.target.name));
    let show = |sites: &[(InstAt, &str)], title: &str, out: &mut String| {
        source.show(index, (Level::ERROR, title), sites, out);
    };
    if let Some(e) = &r.violations {
        out.push_str(&format!("  verifier   {} violation(s)\n", e.violations.len() as u64 + e.more));
        for v in &e.violations {
            let title = format!("{}: {}", v.at, v.message);
            match inst_of(v) {
                Some(at) => show(&[(at, "")], &title, out),
                None => show(&[], &title, out),
            }
        }
        if e.more > 0 {
            out.push_str(&format!("    and {} more\n", e.more));
        }
        return;
    }
    out.push_str("  verifier   accepted\n");
    let (h, p) = (&r.hazards, &r.hazards.proved);
    if !program.target.async_pipes {
        return out.push_str("  hazards    none: the pipes of this machine run in order\n");
    }
    let found = if h.is_sound() { "none".into() } else { (h.hazards.len() as u64 + h.more).to_string() };
    out.push_str(&format!(
        "  hazards    {found}: {} pairs of {} instructions touch common bytes\n",
        p.pairs, p.instructions
    ));
    for hazard in &h.hazards {
        let (title, sites) = parts(hazard);
        show(&sites, &title, out);
    }
    if h.more > 0 {
        out.push_str(&format!("    and {} more\n", h.more));
    }
    out.push_str(&format!(
        "  sync       {} events, {} bars, {} barriers, {} cross flags; {} redundant\n",
        p.events,
        p.bars,
        p.barriers,
        p.cross,
        h.redundant.len()
    ));
    for r in &h.redundant {
        let sites: Vec<_> = r.parts.iter().map(|(site, _)| (site.at, "")).collect();
        source.show(index, (Level::WARNING, &format!("redundant {}", r.what)), &sites, out);
    }
}

/// What a hazard is, and the instructions it is about with what each does.
fn parts(hazard: &Hazard) -> (String, Vec<(InstAt, &'static str)>) {
    // The first line says what; the sites follow it.
    let title = hazard.to_string().lines().next().unwrap_or_default().to_string();
    let sites = match hazard {
        Hazard::Unordered { dependence, first, second, .. } => {
            let (a, b) = match dependence {
                Dependence::Raw => ("writes", "reads"),
                Dependence::War => ("reads", "writes"),
                Dependence::Waw => ("writes", "writes"),
            };
            if first.at == second.at {
                vec![(second.at, "again")]
            } else {
                vec![(second.at, b), (first.at, a)]
            }
        }
        Hazard::Deadlock { wait, .. } => vec![(wait.at, "waits")],
        Hazard::DoubleSet { set, wait, .. } => {
            let wait = wait.as_ref().map(|w| (w.at, "waits"));
            std::iter::once((set.at, "sets")).chain(wait).collect()
        }
        Hazard::Leftover { set, .. } => vec![(set.at, "sets")],
        _ => vec![],
    };
    (title, sites)
}

impl Source {
    /// A finding: in the text it is about, where there is one, else with the instructions as they are listed.
    fn show(
        &self,
        program: u32,
        (level, title): (Level<'static>, &str),
        sites: &[(InstAt, &str)],
        out: &mut String,
    ) {
        let spans: Option<Vec<_>> =
            sites.iter().map(|&(at, what)| Some((self.span(program, at)?, what))).collect();
        if let (Some(spans), Some((text, _)), false) = (spans, &self.text, sites.is_empty()) {
            let mut snippet = Snippet::source(text.as_str()).path(&self.name);
            for (i, (span, what)) in spans.into_iter().enumerate() {
                let kind = if i == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
                snippet = snippet.annotation(kind.span(span).label(what));
            }
            let report = Renderer::plain().render(&[level.primary_title(title).element(snippet)]);
            out.push_str(&format!("\n{}\n", report.trim_end()));
            return;
        }
        out.push_str(&format!("    {title}\n"));
        for &(at, what) in sites {
            let text = disasm_inst(&self.bundle.programs[program as usize], at).unwrap_or_default();
            let what = if what.is_empty() { String::new() } else { format!("{what:<6} ") };
            out.push_str(&format!("      {what}{at}\n        {text}\n"));
        }
    }
    /// The bytes of the text that are an instruction.
    fn span(&self, program: u32, at: InstAt) -> Option<std::ops::Range<usize>> {
        let (text, lines) = self.text.as_ref()?;
        let line = lines.line(program, at)?;
        let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let code = text[start..].lines().next()?.split(';').next()?;
        let indent = code.len() - code.trim_start().len();
        Some(start + indent..start + code.trim_end().len())
    }
}
