//! `dvm check`: verifier and hazard checker, without running anything.

use anyhow::{Context, Result, bail};
use dvm::bc::text::Lines;
use dvm::bc::{AsmError, Bundle, Limits};
use dvm::{CheckReport, FileKind, Finding, Module, check as check_program, compile_bundle};
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
        let finding = |f: &Finding| json!({"at": f.at, "instruction": f.text, "message": f.message});
        let list = |fs: &[Finding]| fs.iter().map(finding).collect::<Vec<_>>();
        let programs: Vec<_> = programs
            .iter()
            .zip(&reports)
            .map(|(p, r)| {
                json!({
                    "program": p.name, "target": p.target.name, "sound": r.is_sound(),
                    "violations": list(&r.violations), "more_violations": r.more,
                })
            })
            .collect();
        say_json(&json!({"version": 1, "programs": programs}))?;
    } else {
        let mut out = String::new();
        for (i, r) in reports.iter().enumerate() {
            describe(&source, i, r, &mut out);
        }
        say(&out)?;
    }
    Ok(if reports.iter().all(CheckReport::is_sound) { Outcome::Right } else { Outcome::Unsound })
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

fn describe(source: &Source, index: usize, r: &CheckReport, out: &mut String) {
    let program = &source.bundle.programs[index];
    out.push_str(&format!("{}: program `{}` for {}\n", source.name, program.name, program.target.name));
    let mut section = |title: &str, findings: &[Finding], more: u64| {
        let n = findings.len() as u64 + more;
        out.push_str(&format!("  {title:<12}{}\n", if n == 0 { "none".into() } else { n.to_string() }));
        for f in findings {
            show(source, index as u32, f, out);
        }
        if more > 0 {
            out.push_str(&format!("and {more} more\n"));
        }
    };
    section("violations", &r.violations, r.more);
}

/// A finding under the line it is about, where there is one.
fn show(source: &Source, program: u32, f: &Finding, out: &mut String) {
    let place = source.text.as_ref().zip(f.inst).and_then(|((text, lines), at)| {
        let line = lines.line(program, at)?;
        let column = text.lines().nth(line - 1)?.chars().take_while(|c| c.is_whitespace()).count() + 1;
        Some((text, AsmError { line, column, message: f.message.clone() }))
    });
    match (place, &f.text) {
        (Some((text, e)), _) => out.push_str(&format!("{}\n", e.render(&source.name, text))),
        (None, Some(text)) => out.push_str(&format!("    {}: {}\n      {text}\n", f.at, f.message)),
        (None, None) => out.push_str(&format!("    {}: {}\n", f.at, f.message)),
    }
}
