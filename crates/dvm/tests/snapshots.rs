//! Plan, tiling and disassembly of small graphs, on a frozen host and on an NPU, for review by diff.
//!
//! A case is a graph whose first line, a comment, binds its symbols. After a change that is meant, `INSTA_UPDATE=always cargo test -p dvm
//! --test snapshots` writes the new form.

use std::fmt::Write as _;

use dvm_bc::{Limits, Verified, disasm_with};
use dvm_fuse::FuseOptions;
use dvm_ir::{Bindings, DimValues, Graph};
use dvm_npu::MachineSpec;
use dvm_tile::{Scratch, compile_plan};

fn render(source: &str) -> String {
    let graph = Graph::from_text(source).unwrap_or_else(|e| panic!("{}", e.render("case", source)));
    let plan = dvm_fuse::plan(&graph, &FuseOptions::default()).unwrap();
    let mut bindings = Bindings::new();
    let first = source.lines().next().unwrap_or_default();
    for word in first.trim_start_matches("//").split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        let symbol = plan.dims.find_symbol(name).unwrap_or_else(|| panic!("no symbol `{name}`"));
        bindings.bind(symbol, value.parse().unwrap()).unwrap();
    }
    let mut values = DimValues::default();
    plan.dims.eval_all(&bindings, &mut values);
    let mut out = format!("{plan}");
    for name in ["host-ref", "ascend-910b2"] {
        let spec = MachineSpec::named(name).unwrap();
        let compiled = compile_plan(&plan, &values, &spec, &mut Scratch::default()).unwrap();
        writeln!(out, "\n--- {name}, workspace {} bytes", compiled.workspace_bytes).unwrap();
        for t in &compiled.tilings {
            writeln!(out, "tiling {t}").unwrap();
        }
        let text = disasm_with(&compiled.program, &|at| {
            let t = at.template as usize;
            compiled.tilings[t].note(&plan.kernels[compiled.kernels[t].index()], at.number as usize)
        });
        Verified::new(compiled.program, &Limits::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        out.push_str(&text);
    }
    out
}

#[test]
fn cases() {
    insta::glob!("cases/*.dvm", |path| {
        let source = std::fs::read_to_string(path).unwrap();
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(render(&source)));
    });
}
