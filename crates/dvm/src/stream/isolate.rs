//! After a failure: what depends on it is told why, what does not is computed all the same.

use std::sync::Arc;

use dvm_ir::plan::KernelId;
use dvm_ir::{BinaryOp, Graph, NodeId, Op};
use dvm_vm::{Trap, TrapKind};

use super::job::{Failure, Job, Machine, launch};
use super::program::{Compiler, Program};
use crate::Error;

/// Deals with the failure of a job.
pub(crate) fn settle(job: &Job, failure: Failure, machine: &Machine) {
    let mut job = Job {
        number: job.number,
        program: job.program.clone(),
        graph: job.graph.clone(),
        targets: job.targets.clone(),
        inputs: job.inputs.clone(),
        outputs: job.outputs.clone(),
    };
    let mut failure = Some(failure);
    // Each round settles an output at least.
    while let Some(f) = failure.take() {
        let Some(rest) = without(&job, f) else { return };
        job = rest;
        let compiled =
            Compiler::default().compile(&job.graph, &job.targets, machine.options.fuse, &machine.spec);
        failure = match compiled {
            Ok(program) => {
                job.program = Arc::new(program);
                launch(&job.program, &job.inputs, &job.outputs, machine, &mut vec![]).err()
            }
            Err(e) => Some(Failure::Whole(e)),
        };
    }
}

/// The job without the outputs that a failure concerns; they are told. `None` when no other output is left.
fn without(job: &Job, failure: Failure) -> Option<Job> {
    let graph = &job.graph;
    let mut bad = vec![false; graph.values.len()];
    let mut bad_output = None;
    let error = match failure {
        Failure::Whole(Error::Earlier(e)) => {
            job.outputs.iter().for_each(|c| c.fail(e.clone()));
            return None;
        }
        Failure::Whole(e) => {
            let e = Arc::new(e);
            job.outputs.iter().for_each(|c| c.fail(e.clone()));
            return None;
        }
        Failure::Input(i, e) => {
            match graph.inputs.get(i) {
                Some(input) => bad[input.value.index()] = true,
                None => bad_output = Some(i - graph.inputs.len()),
            }
            e
        }
        Failure::Trap(trap) => {
            let nodes = trapped(&job.program, graph, &trap);
            for n in &nodes {
                bad[graph.nodes[n.index()].output.index()] = true;
            }
            let mut ops: Vec<&str> = nodes.iter().map(|n| graph.nodes[n.index()].op.mnemonic()).collect();
            ops.dedup();
            Arc::new(Error::Stream(format!("{}: {trap}", ops.join(", "))))
        }
    };
    for n in &graph.nodes {
        bad[n.output.index()] |= n.inputs.iter().any(|v| bad[v.index()]);
    }
    let concerned = |o: usize| bad[graph.outputs[o].value.index()] || bad_output == Some(o);
    let all = !(0..job.outputs.len()).any(concerned);
    let mut rest = Graph { outputs: vec![], ..(**graph).clone() };
    let first = job.program.first_write;
    let (mut outputs, mut targets) = (vec![], vec![]);
    for (o, cell) in job.outputs.iter().enumerate() {
        if all || concerned(o) {
            cell.fail(error.clone());
            continue;
        }
        rest.outputs.push(graph.outputs[o].clone());
        outputs.push(cell.clone());
        if o >= first {
            targets.push(job.targets[o - first].clone());
        }
    }
    (!outputs.is_empty()).then(|| Job {
        number: job.number,
        program: job.program.clone(),
        graph: Arc::new(rest),
        targets,
        inputs: job.inputs.clone(),
        outputs,
    })
}

/// The ops that may have trapped.
fn trapped(program: &Program, graph: &Graph, trap: &Trap) -> Vec<NodeId> {
    let plan = &program.plan;
    let is_its = |k: &&KernelId| format!("{}.{k}", plan.kernels[k.index()].name) == trap.template;
    let kernel = program.templates.iter().find(is_its);
    let parts = plan.splits.iter().flat_map(|s| &s.parts);
    let calls = plan.calls.iter().chain(parts).filter(|c| kernel.is_none_or(|k| c.kernel == *k));
    let mut nodes: Vec<NodeId> = calls.flat_map(|c| c.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let may = |n: &NodeId| match (&graph.nodes[n.index()].op, trap.kind) {
        (Op::Gather { .. } | Op::GatherElements { .. }, TrapKind::IndexOutOfRange { .. }) => true,
        (Op::Binary(b), TrapKind::DivideByZero) => {
            matches!(b, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem | BinaryOp::Fmod)
        }
        _ => false,
    };
    if nodes.iter().any(may) {
        nodes.retain(may);
    }
    nodes
}
