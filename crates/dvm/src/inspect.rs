//! What is in a model or bundle file.

use std::path::Path;

use dvm_bc::Bundle;

use crate::{Error, FileKind, Module, PortInfo, signature};

/// A model or bundle at a glance.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// What the file is.
    pub kind: String,
    /// Inputs.
    pub inputs: Vec<PortInfo>,
    /// Outputs.
    pub outputs: Vec<PortInfo>,
    /// Symbols.
    pub symbols: Vec<String>,
    /// Ops and how often they occur.
    pub ops: Vec<(String, usize)>,
    /// Bytes of constants.
    pub weight_bytes: usize,
    /// Inputs and symbols whose values decide the structure.
    pub structural_inputs: Vec<String>,
    /// Everything that keeps the model from running.
    pub unsupported: Vec<String>,
}

impl Inspection {
    /// Inspects a file's bytes. `file` is named in errors; an ONNX model's external data lie beside it.
    ///
    /// # Errors
    /// Bytes that are no model at all. A model with unsupported ops is no error: they are listed.
    pub fn of(file: &Path, bytes: &[u8]) -> Result<Inspection, Error> {
        let name = file.display().to_string();
        match FileKind::of(bytes) {
            FileKind::Bundle | FileKind::Assembly => Ok(of_bundle(&crate::read_bundle(&name, bytes)?)),
            FileKind::Serialised => of_module(&Module::from_bytes(bytes)?, "serialised IR"),
            FileKind::Text => {
                let text = std::str::from_utf8(bytes).map_err(|e| Error::Text(e.to_string()))?;
                of_module(&Module::text(&name, text)?, "textual IR")
            }
            #[cfg(feature = "onnx")]
            FileKind::Onnx => of_onnx(bytes, file.parent()),
            #[cfg(not(feature = "onnx"))]
            FileKind::Onnx => {
                Err(Error::Format { path: name, reason: "this build has no `onnx` feature".into() })
            }
        }
    }
}

fn of_module(module: &Module, kind: &str) -> Result<Inspection, Error> {
    let graph = module.graph(&[], &[])?;
    let (inputs, outputs) = signature(&graph);
    let mut ops = std::collections::BTreeMap::new();
    let mut weight_bytes = 0;
    graph.visit(&mut |g: &dvm_ir::Graph| {
        let nodes = g.nodes.iter().map(|n| n.op.mnemonic());
        for op in nodes.chain(g.controls.iter().map(|c| c.kind.mnemonic())) {
            *ops.entry(op.to_string()).or_insert(0) += 1;
        }
        weight_bytes += g.constants.iter().map(dvm_ir::Tensor::byte_len).sum::<usize>();
    });
    Ok(Inspection {
        kind: kind.into(),
        inputs,
        outputs,
        symbols: graph.dims.symbols().map(|(_, n)| n.to_string()).collect(),
        ops: ops.into_iter().collect(),
        weight_bytes,
        ..Inspection::default()
    })
}

#[cfg(feature = "onnx")]
fn of_onnx(bytes: &[u8], base_dir: Option<&Path>) -> Result<Inspection, Error> {
    let mut opts = dvm_onnx::ImportOptions::default();
    opts.base_dir = base_dir.map(Path::to_path_buf);
    let s = dvm_onnx::summary(bytes, &opts)?;
    let port = |v: &dvm_onnx::SummaryValue| PortInfo {
        name: v.name.clone(),
        dtype: v.dtype,
        shape: v.shape.clone(),
    };
    let opsets: Vec<String> = s
        .opsets
        .iter()
        .map(|(d, v)| if d.is_empty() { format!("opset {v}") } else { format!("{d} {v}") })
        .collect();
    let by = if s.producer.is_empty() { String::new() } else { format!(", by {}", s.producer) };
    Ok(Inspection {
        kind: format!("ONNX, {}{by}", opsets.join(", ")),
        inputs: s.inputs.iter().map(port).collect(),
        outputs: s.outputs.iter().map(port).collect(),
        symbols: s.symbols.clone(),
        ops: s.ops.iter().map(|(n, c)| (n.clone(), *c)).collect(),
        weight_bytes: s.weight_bytes,
        structural_inputs: s
            .needs_values
            .iter()
            .chain(&s.needs_dims)
            .chain(&s.needs_ranks)
            .chain(&s.needs_outcome)
            .cloned()
            .collect(),
        unsupported: s.problems.iter().map(ToString::to_string).collect(),
    })
}

fn of_bundle(b: &Bundle) -> Inspection {
    let port = |p: &dvm_bc::bundle::Port| PortInfo {
        name: p.name.clone(),
        dtype: dvm_ir::DType::from_name(p.dtype.name()).unwrap_or(dvm_ir::DType::U8),
        shape: p.shape.iter().map(ToString::to_string).collect(),
    };
    let templates = b.programs.iter().flat_map(|p| &p.templates);
    Inspection {
        kind: format!("bundle for {}", b.target),
        inputs: b.inputs.iter().map(port).collect(),
        outputs: b.outputs.iter().map(port).collect(),
        symbols: b.symbols.iter().map(|(n, v)| format!("{n} = {v}")).collect(),
        ops: templates.map(|t| (t.name.clone(), 1)).collect(),
        weight_bytes: b.weights.iter().map(|w| w.bytes as usize).sum(),
        ..Inspection::default()
    }
}
