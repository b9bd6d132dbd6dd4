//! The reference of ops, made from their declarations.

use std::fmt::Write as _;

use crate::{AttrInfo, AttrKind, BinaryOp, Op, PadMode, ReduceOp, UnaryOp};

/// Every op as Markdown tables: mnemonic, operands, attributes, meaning.
#[must_use]
pub fn ops_markdown() -> String {
    let mut out = String::new();
    out += "| op | operands | attributes | meaning |\n| --- | --- | --- | --- |\n";
    for op in Op::TABLE {
        let (least, most) = (op.arity.start(), op.arity.end());
        let operands = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let attrs: Vec<String> = op.attrs.iter().map(attr).collect();
        row(&mut out, &[&format!("`{}`", op.mnemonic), &operands, &attrs.join("<br>"), op.meaning]);
    }
    let meanings = [
        (
            "Elementwise, one operand",
            UnaryOp::ALL.iter().map(|o| (o.name(), o.meaning())).collect::<Vec<_>>(),
        ),
        (
            "Elementwise, two operands of one dtype, broadcasting",
            BinaryOp::ALL.iter().map(|o| (o.name(), o.meaning())).collect(),
        ),
        ("Values of `op` of `reduce`", ReduceOp::ALL.iter().map(|o| (o.name(), o.meaning())).collect()),
        ("Values of `mode` of `pad`", PadMode::ALL.iter().map(|o| (o.name(), o.meaning())).collect()),
    ];
    for (title, rows) in meanings {
        let _ = write!(out, "\n### {title}\n\n| name | meaning |\n| --- | --- |\n");
        for (name, meaning) in rows {
            row(&mut out, &[&format!("`{name}`"), meaning]);
        }
    }
    out
}

fn attr(a: &AttrInfo) -> String {
    let kind = match a.kind {
        AttrKind::Bool => "bool",
        AttrKind::Int => "int",
        AttrKind::Float => "float",
        AttrKind::Scalar => "number",
        AttrKind::Ints => "ints",
        AttrKind::Dim => "dim",
        AttrKind::Dims => "dims",
        AttrKind::Word => "name",
    };
    format!("`{}`: {kind}. {}", a.name, a.meaning)
}

fn row(out: &mut String, cells: &[&str]) {
    for c in cells {
        let _ = write!(out, "| {} ", c.replace('|', "\\|").replace('\n', " "));
    }
    out.push_str("|\n");
}

#[cfg(test)]
mod tests {
    /// `docs/ir.md` holds the table of the ops as they are. `DVM_BLESS=1` rewrites it.
    #[test]
    fn page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ir.md");
        // The page belongs to the repository, not to the package.
        let Ok(page) = std::fs::read_to_string(path) else { return };
        let (begin, end) = ("<!-- ops: begin -->\n", "<!-- ops: end -->");
        let (head, rest) = page.split_once(begin).expect("the page has a mark where the table begins");
        let (table, tail) = rest.split_once(end).expect("the page has a mark where the table ends");
        let current = super::ops_markdown();
        if std::env::var_os("DVM_BLESS").is_some() {
            std::fs::write(path, format!("{head}{begin}{current}{end}{tail}")).expect("the page is writable");
        } else {
            assert!(
                table == current,
                "docs/ir.md is old: run `DVM_BLESS=1 cargo test -p dvm-ir page_is_current`"
            );
        }
    }
}
