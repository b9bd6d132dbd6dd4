//! The workloads that criterion suites and reports share: graphs with symbolic dims, and the shapes to bind them to.

#![forbid(unsafe_code)]

pub mod budget;
pub mod template;

use dvm::{Module, Options, Session, Tensor, fill, input_shapes};

/// A graph and the shapes it is measured at.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Name in reports.
    pub name: &'static str,
    /// Textual IR.
    pub text: &'static str,
    /// Bindings, one list per shape.
    pub dims: &'static [&'static [(&'static str, i64)]],
}

/// Kernels people time: the memory-bound ones, and a matmul with its epilogue.
pub const KERNELS: &[Workload] = &[
    Workload {
        name: "chain",
        text: "graph chain(%x: f32[r, c], %y: f32[r, c]) -> (%o) {
                 %a = add %x, %y
                 %s = sigmoid %a
                 %m = mul %s, %x
                 %t = abs %m
                 %q = sqrt %t
                 %o = sub %q, %y
               }",
        dims: &[&[("r", 64), ("c", 64)], &[("r", 256), ("c", 256)], &[("r", 1000), ("c", 1000)]],
    },
    Workload {
        name: "layer_norm",
        text: "graph layer_norm(%x: f32[r, c], %g: f32[c], %b: f32[c]) -> (%o) {
                 %o = layer_norm %x, %g, %b {axis = 1, eps = 1e-5}
               }",
        dims: &[&[("r", 128), ("c", 768)], &[("r", 1000), ("c", 768)], &[("r", 129), ("c", 4096)]],
    },
    Workload {
        name: "softmax",
        text: "graph softmax(%x: f32[r, c]) -> (%o) { %o = softmax %x {axis = 1} }",
        dims: &[&[("r", 512), ("c", 512)], &[("r", 3072), ("c", 256)], &[("r", 64), ("c", 32000)]],
    },
    Workload {
        name: "matmul",
        text: "graph matmul(%a: f32[m, k], %b: f32[k, n]) -> (%o) { %o = matmul %a, %b {} }",
        dims: &[
            &[("m", 128), ("k", 128), ("n", 128)],
            &[("m", 512), ("k", 512), ("n", 512)],
            &[("m", 1), ("k", 1024), ("n", 4096)],
        ],
    },
    Workload {
        name: "addmm_gelu",
        text: "graph addmm(%a: f32[m, k], %b: f32[k, n], %c: f32[n]) -> (%o) {
                 %p = matmul %a, %b {}
                 %s = add %p, %c
                 %o = gelu %s {tanh = false}
               }",
        dims: &[&[("m", 128), ("k", 384), ("n", 1536)], &[("m", 17), ("k", 384), ("n", 1536)]],
    },
];

impl Workload {
    /// The loaded module.
    ///
    /// # Errors
    /// The text does not parse: a defect of the table.
    pub fn module(&self) -> Result<Module, dvm::Error> {
        Module::from_text(self.text)
    }
    /// A session and the inputs of one of its shapes.
    ///
    /// # Errors
    /// As [`Workload::module`], or dims that do not bind.
    pub fn session(
        &self,
        dims: &[(&str, i64)],
        options: Options,
    ) -> Result<(Session, Vec<(String, Tensor)>), dvm::Error> {
        let module = self.module()?;
        let inputs = inputs(&module, dims)?;
        Ok((Session::new(&module, options)?, inputs))
    }
}

/// Deterministic inputs of a module for these dims.
///
/// # Errors
/// Dims that do not bind.
pub fn inputs(module: &Module, dims: &[(&str, i64)]) -> Result<Vec<(String, Tensor)>, dvm::Error> {
    let graph = module.graph(&[], &[])?;
    let dims: Vec<(String, i64)> = dims.iter().map(|&(n, v)| (n.to_string(), v)).collect();
    let (_, shapes) = input_shapes(&graph, &[], &dims)?;
    let tensor = |(i, shape): (&dvm::Input, &Vec<usize>)| {
        Ok((i.name.clone(), fill::fill(&i.name, graph.dtype(i.value), shape)?))
    };
    graph.inputs.iter().zip(&shapes).map(tensor).collect()
}

/// `r=512 c=512` for a report's row.
#[must_use]
pub fn label(dims: &[(&str, i64)]) -> String {
    dims.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ")
}
