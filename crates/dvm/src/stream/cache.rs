//! Programs of sequences that were met before, by what they are made of. Nothing relies on it: it saves encoding again.

use std::sync::Arc;

use dvm_ir::{Dim, Graph, Op, Scalar, ValueDef};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::program::{Program, Target};

/// Most programs kept.
const PROGRAMS: usize = 128;

/// Largest constant that is a part of a key, in bytes.
const MAX_CONST: usize = 64;

/// Programs, least recently used first.
#[derive(Default)]
pub(crate) struct Cache {
    programs: IndexMap<Box<[u64]>, Arc<Program>, FxBuildHasher>,
    key: Vec<u64>,
}

impl Cache {
    /// The program of a graph; its key is kept for [`Cache::insert`].
    pub(crate) fn find(&mut self, graph: &Graph, targets: &[Target]) -> Option<Arc<Program>> {
        self.key.clear();
        if describe(graph, targets, &mut self.key).is_none() {
            self.key.clear();
            return None;
        }
        let at = self.programs.get_index_of(self.key.as_slice())?;
        let last = self.programs.len() - 1;
        self.programs.move_index(at, last);
        Some(self.programs[last].clone())
    }
    /// Keeps the program that was looked for last.
    pub(crate) fn insert(&mut self, program: &Arc<Program>) {
        if self.key.is_empty() {
            return;
        }
        if self.programs.len() >= PROGRAMS {
            self.programs.shift_remove_index(0);
        }
        self.programs.insert(self.key.as_slice().into(), program.clone());
    }
}

/// Everything that a program depends on, as numbers; `None` for what is not worth it.
fn describe(g: &Graph, targets: &[Target], key: &mut Vec<u64>) -> Option<()> {
    let extent = |d: Dim| g.dims.as_const(d).map(|n| n as u64);
    let put = |key: &mut Vec<u64>, dims: &[Dim]| {
        key.push(dims.len() as u64);
        dims.iter().try_for_each(|&d| extent(d).map(|n| key.push(n)))
    };
    for v in &g.values {
        match v.def {
            ValueDef::Input(i) => {
                key.extend([1, u64::from(i), v.ty.dtype as u64]);
                put(key, &v.ty.shape)?;
            }
            ValueDef::Const(c) => {
                let t = &g.constants[c.index()];
                if t.bytes().len() > MAX_CONST {
                    return None;
                }
                key.extend([2, v.ty.dtype as u64]);
                put(key, &v.ty.shape)?;
                for word in t.bytes().chunks(8) {
                    let mut le = [0; 8];
                    le[..word.len()].copy_from_slice(word);
                    key.push(u64::from_le_bytes(le));
                }
            }
            ValueDef::Node(n) => {
                let node = &g.nodes[n.index()];
                key.push(3);
                op(&node.op, key, &put)?;
                key.push(node.inputs.len() as u64);
                key.extend(node.inputs.iter().map(|v| u64::from(v.0)));
            }
            ValueDef::Control(..) => return None,
        }
    }
    key.extend(g.outputs.iter().map(|o| u64::from(o.value.0)));
    for t in targets {
        key.extend([4, t.len as u64, t.view.offset as u64, u64::from(t.input.map_or(u32::MAX, |i| i))]);
        key.extend(t.view.shape.iter().map(|&n| n as u64));
        key.extend(t.view.strides.iter().map(|&n| n as u64));
    }
    Some(())
}

fn op(op: &Op, key: &mut Vec<u64>, put: &impl Fn(&mut Vec<u64>, &[Dim]) -> Option<()>) -> Option<()> {
    let scalar = |s: &Scalar| match *s {
        Scalar::Float(x) => [0, x.to_bits()],
        Scalar::Int(x) => [1, x as u64],
    };
    let list = |key: &mut Vec<u64>, tag: u64, items: &[usize]| {
        key.extend([tag, items.len() as u64]);
        key.extend(items.iter().map(|&i| i as u64));
    };
    match op {
        Op::Unary(u) => key.extend([1, *u as u64]),
        Op::Binary(b) => key.extend([2, *b as u64]),
        Op::Cast { to } => key.extend([3, *to as u64]),
        Op::Fma {} => key.push(4),
        Op::Select {} => key.push(5),
        Op::Clamp {} => key.push(6),
        Op::Reduce { op, axes, keepdims } => {
            key.extend([7, *op as u64, u64::from(*keepdims)]);
            list(key, 7, axes);
        }
        Op::MatMul { trans_a, trans_b } => key.extend([8, u64::from(*trans_a), u64::from(*trans_b)]),
        Op::Reshape { shape } => {
            key.push(9);
            put(key, shape)?;
        }
        Op::Expand { shape } => {
            key.push(10);
            put(key, shape)?;
        }
        Op::Transpose { perm } => list(key, 11, perm),
        Op::Slice { start, len, step } => {
            key.push(12);
            put(key, start)?;
            put(key, len)?;
            key.extend(step.iter().map(|&s| s as u64));
        }
        Op::Fill { value, dtype, shape } => {
            key.extend([13, *dtype as u64]);
            key.extend(scalar(value));
            put(key, shape)?;
        }
        Op::Range { start, step, len, dtype } => {
            key.extend([14, *dtype as u64]);
            put(key, &[*start, *step, *len])?;
        }
        Op::Concat { axis } => key.extend([15, *axis as u64]),
        Op::Gather { axis } => key.extend([16, *axis as u64]),
        Op::GatherElements { axis } => key.extend([17, *axis as u64]),
        Op::Softmax { axis } => key.extend([18, *axis as u64]),
        Op::LogSoftmax { axis } => key.extend([19, *axis as u64]),
        Op::LayerNorm { axis, eps } => key.extend([20, *axis as u64, eps.to_bits()]),
        Op::RmsNorm { axis, eps } => key.extend([21, *axis as u64, eps.to_bits()]),
        Op::Gelu { tanh } => key.extend([22, u64::from(*tanh)]),
        Op::Silu {} => key.push(23),
        _ => return None,
    }
    Some(())
}
