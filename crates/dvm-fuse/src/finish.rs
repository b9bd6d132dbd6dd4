//! The last touches of a kernel: order of its axes, adjacent axes merged, a name.

use dvm_ir::kernel::{Access, AxisSet, KOp};
use dvm_ir::{Dim, DimTable, Kernel};
use smallvec::SmallVec;

use crate::affine::mul;

/// The order its axes should have, as indices of the present ones. `stored` is the order in which the largest stored value
/// runs along them: writing in memory order matters more than reading.
pub(crate) fn order(kernel: &Kernel, stored: &[u8]) -> Vec<usize> {
    let n = kernel.axes.len();
    let reduces = |i: &dvm_ir::kernel::KInst| {
        matches!(i.op, KOp::Reduce(..) | KOp::ArgReduce { .. } | KOp::CumSum { .. })
    };
    if kernel.body.iter().any(reduces) {
        return (0..n).collect();
    }
    let free = n - kernel.matrix_axes();
    let mut order: Vec<usize> = stored.iter().map(|&a| a as usize).filter(|&a| a < free).collect();
    let rest: Vec<usize> = (0..n).filter(|a| !order.contains(a)).collect();
    order.extend(rest);
    order
}

/// Calls `f` on every address of a kernel.
fn accesses(kernel: &mut Kernel, mut f: impl FnMut(&mut Access)) {
    for i in &mut kernel.body {
        match &mut i.op {
            KOp::Load { access, .. } | KOp::Gather { access, .. } | KOp::Iota { access } => f(access),
            KOp::MatMul { a_access, b_access, .. } => {
                f(a_access);
                f(b_access);
            }
            KOp::Contract { b_access, .. } => f(b_access),
            _ => {}
        }
    }
    kernel.stores.iter_mut().for_each(|s| f(&mut s.access));
}

/// Calls `f` on every set of axes of a kernel, and `g` on every single axis.
fn axis_sets(kernel: &mut Kernel, mut f: impl FnMut(&mut AxisSet), mut g: impl FnMut(&mut u8)) {
    for i in &mut kernel.body {
        f(&mut i.mask);
        match &mut i.op {
            KOp::Reduce(_, _, set) => f(set),
            KOp::ArgReduce { axis, .. } | KOp::CumSum { axis, .. } => g(axis),
            _ => {}
        }
    }
}

/// Puts the axes into an order.
pub(crate) fn permute(kernel: &mut Kernel, order: &[usize]) {
    if order.iter().enumerate().all(|(i, &a)| i == a) {
        return;
    }
    kernel.axes = order.iter().map(|&a| kernel.axes[a]).collect();
    accesses(kernel, |x| x.strides = order.iter().map(|&a| x.strides[a]).collect());
    let to = |a: usize| order.iter().position(|&o| o == a).unwrap_or(a);
    let n = order.len();
    axis_sets(
        kernel,
        |s| {
            *s = (0..n).filter(|&a| s.has(a)).fold(AxisSet::EMPTY, |m, a| m.or(AxisSet::one(to(a))));
        },
        |a| *a = to(usize::from(*a)) as u8,
    );
}

/// Merges adjacent axes that every address and every op treats as one, for every binding of the dims.
pub(crate) fn fold(t: &mut DimTable, kernel: &mut Kernel) {
    let mut i = kernel.axes.len().saturating_sub(1);
    while i > 0 {
        i -= 1;
        if can_merge(t, kernel, i) {
            merge(t, kernel, i);
        }
    }
    let loaded = |kernel: &Kernel, operand: u32| {
        kernel.body.iter().any(|i| match i.op {
            KOp::Load { operand: o, .. } | KOp::Gather { operand: o, .. } | KOp::Contract { b: o, .. } => {
                o == operand
            }
            _ => false,
        })
    };
    // Packed panels cannot be loaded by anything else.
    for o in 0..kernel.operands.len() {
        kernel.operands[o].packable &= !loaded(kernel, o as u32);
    }
}

/// Whether axes `i` and `i + 1` are one.
fn can_merge(t: &mut DimTable, kernel: &mut Kernel, i: usize) -> bool {
    let n = kernel.axes.len();
    // Rows and columns of products never merge.
    let matrix = kernel.matrix_axes();
    if matrix > 0 && i + matrix >= n {
        return false;
    }
    let (mut alike, mut alone) = (true, true);
    axis_sets(
        kernel,
        |s| alike &= s.has(i) == s.has(i + 1),
        |a| alone &= usize::from(*a) != i && usize::from(*a) != i + 1,
    );
    if !alike || !alone {
        return false;
    }
    let mut ok = true;
    let inner = kernel.axes[i + 1];
    accesses(kernel, |x| {
        let (one, other) = (mul(t, x.strides[i + 1], inner), x.strides[i]);
        ok &= ok && (one == other || t.rewrite(one) == t.rewrite(other));
    });
    ok
}

fn merge(t: &mut DimTable, kernel: &mut Kernel, i: usize) {
    kernel.axes[i + 1] = mul(t, kernel.axes[i], kernel.axes[i + 1]);
    kernel.axes.remove(i);
    accesses(kernel, |x| {
        let strides: SmallVec<[Dim; 6]> =
            x.strides.iter().enumerate().filter(|x| x.0 != i).map(|x| *x.1).collect();
        x.strides = strides;
    });
    axis_sets(
        kernel,
        |s| {
            let low = s.0 & ((1 << i) - 1);
            *s = AxisSet(low | (s.0 >> (i + 1)) << i);
        },
        |a| *a -= u8::from(usize::from(*a) > i),
    );
}

/// Most op names in a kernel's name.
const NAMED_OPS: usize = 4;

/// A name that says what the kernel does; equal kernels have equal names.
pub(crate) fn name(kernel: &Kernel) -> String {
    let mut words: Vec<&str> = vec![];
    if kernel.contraction().is_some() {
        words.push("attention");
    }
    let mut more = false;
    for i in &kernel.body {
        let word = match &i.op {
            KOp::Load { .. } | KOp::Const(_) | KOp::DimConst(_) => continue,
            KOp::Gather { .. } => "gather",
            KOp::Iota { .. } => "iota",
            KOp::Unary(dvm_ir::UnaryOp::Copy, _) => continue,
            KOp::Unary(u, _) => u.name(),
            KOp::Binary(o, ..) => o.name(),
            KOp::Fma(..) => "fma",
            KOp::Select(..) => "select",
            KOp::Clamp(..) => "clamp",
            KOp::Cast(_) => "cast",
            KOp::Reduce(r, ..) => match r {
                dvm_ir::kernel::KReduce::Sum => "sum",
                dvm_ir::kernel::KReduce::Max => "rmax",
                dvm_ir::kernel::KReduce::Min => "rmin",
                dvm_ir::kernel::KReduce::Prod => "prod",
                dvm_ir::kernel::KReduce::Any => "any",
                dvm_ir::kernel::KReduce::All => "all",
            },
            KOp::ArgReduce { max: true, .. } => "argmax",
            KOp::ArgReduce { .. } => "argmin",
            KOp::CumSum { .. } => "cumsum",
            KOp::MatMul { .. } | KOp::Contract { .. } => "matmul",
        };
        if words.contains(&word) {
            continue;
        }
        if words.len() == NAMED_OPS {
            more = true;
            break;
        }
        words.push(word);
    }
    match (words.is_empty(), more) {
        (true, _) => "copy".into(),
        (false, false) => words.join("_"),
        (false, true) => format!("{}_etc", words.join("_")),
    }
}
