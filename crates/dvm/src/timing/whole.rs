//! Whole graphs: what the host does and what the device does, for the ways in which a graph can be launched.

use dvm_bc::{Program, Step};
use dvm_npu::MachineSpec;
use dvm_npu::timing::{Options, Timing, simulate};

use super::{HostCosts, Launch, Prepared, Schedule, eager, schedule};
use crate::Error;

/// Launches that a compile may be spread over where it hides behind execution; the number that ends first is taken.
const GROUPS: [usize; 4] = [1, 2, 4, 8];

/// One way to run a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is.
    pub name: &'static str,
    /// Steps of each launch.
    pub steps: Vec<usize>,
    /// Units (kernels) in them.
    pub kernels: usize,
    /// Sum over launches, µs.
    pub device_us: f64,
    /// The host's work, compile included, µs.
    pub host_us: f64,
    /// Compile time, µs; 0 where the shape is in the cache or nothing is compiled.
    pub compile_us: f64,
    /// Bytes to and from memory.
    pub memory_bytes: u64,
    /// Host and device on one clock.
    pub schedule: Schedule,
}

impl Row {
    /// By step of the program: what is to be added to the simulation's times, µs, so that they are on the clock of the schedule.
    #[must_use]
    pub fn shifts(&self, timing: &Timing, spec: &MachineSpec) -> Vec<f64> {
        let mut out = Vec::with_capacity(timing.steps.len());
        for (&n, launch) in self.steps.iter().zip(&self.schedule.device) {
            let first = timing.steps.get(out.len()).map_or(0.0, |s| s.0);
            out.extend(std::iter::repeat_n(launch.start_us + spec.timing.launch_us - first, n));
        }
        out
    }
}

/// Device time of consecutive launches of `steps` steps each, from a simulation of all of them as one program: each launch after the first
/// pays what a launch pays.
#[must_use]
pub fn launches_of(timing: &Timing, spec: &MachineSpec, steps: &[usize]) -> Vec<f64> {
    let c = &spec.timing;
    // Start-up of the pipes is in the first launch already.
    let heads = (c.mte2_head + c.mte2_head_core * f64::from(spec.target.cores) + c.mte3_head) / c.mhz;
    let mut at = 0;
    let mut out = Vec::with_capacity(steps.len());
    for &n in steps {
        let part = &timing.steps[at.min(timing.steps.len())..(at + n).min(timing.steps.len())];
        let us = part.last().zip(part.first()).map_or(0.0, |(l, f)| l.1 - f.0);
        out.push(us + c.launch_us + c.finish_us + if at > 0 { heads } else { 0.0 });
        at += n;
    }
    out
}

/// A program with a step for each unit.
fn unstacked(program: &Program) -> Program {
    let single = |u: &dvm_bc::Unit| Step { units: vec![u.clone()], limits: vec![] };
    let steps = program.steps.iter().flat_map(|s| &s.units).map(single).collect();
    Program { steps, ..program.clone() }
}

fn units(program: &Program) -> usize {
    program.steps.iter().map(|s| s.units.len()).sum()
}

/// How many steps each of at most `count` launches has, and its share of the code: a template is encoded for the first unit that uses it.
fn groups(program: &Program, count: usize) -> Vec<(usize, f64)> {
    let words = |t: u32| -> usize {
        let template = &program.templates[t as usize];
        template.phases.iter().flat_map(|p| &p.sections).map(|s| s.code.words().len()).sum()
    };
    let mut seen = vec![false; program.templates.len()];
    let new: Vec<usize> = program
        .steps
        .iter()
        .map(|s| {
            s.units
                .iter()
                .map(|u| {
                    if std::mem::replace(&mut seen[u.template as usize], true) {
                        1
                    } else {
                        1 + words(u.template)
                    }
                })
                .sum()
        })
        .collect();
    let total: usize = new.iter().sum::<usize>().max(1);
    let mut out: Vec<(usize, f64)> = vec![];
    let mut filled = 0;
    for n in new {
        // A group begins where the code before it reaches its share.
        let group = (filled * count / total).min(count - 1);
        if out.len() <= group || out.is_empty() {
            out.push((0, 0.0));
        }
        if let Some(g) = out.last_mut() {
            g.0 += 1;
            g.1 += n as f64 / total as f64;
        }
        filled += n;
    }
    out
}

/// The ways to run a graph, the compiled ones first. `timing` is that of the prepared program; with `baselines`, launches without stacking, without
/// fusion and op by op are simulated too.
///
/// # Errors
/// What the compiler or the simulation refuses.
pub fn compare(
    prepared: &Prepared,
    unfused: Option<&Prepared>,
    timing: &Timing,
    spec: &MachineSpec,
    host: &HostCosts,
    opts: &Options,
) -> Result<Vec<Row>, Error> {
    let program = prepared.program();
    let name = |i: usize, n: usize| {
        if n == 1 { program.name.clone() } else { format!("{} part {}", program.name, i + 1) }
    };
    let mut rows = vec![];
    let mut row = |name, list: Vec<Launch>, steps: Vec<usize>, overlap: bool, kernels: usize, t: &Timing| {
        let compile_us = list.iter().map(|l| l.compile_us).sum();
        rows.push(Row {
            name,
            steps,
            kernels,
            device_us: list.iter().map(|l| l.device_us).sum(),
            host_us: list.iter().map(|l| l.compile_us + l.enqueue_us).sum(),
            compile_us,
            memory_bytes: t.memory.read + t.memory.written,
            schedule: schedule(&list, overlap),
        });
    };
    let whole = |compile_us| {
        vec![Launch { name: name(0, 1), compile_us, enqueue_us: host.enqueue_us, device_us: timing.us }]
    };
    let all = || vec![program.steps.len()];
    row("shape in the cache", whole(0.0), all(), true, units(program), timing);
    row("new shape, compile first", whole(prepared.compile_us), all(), false, units(program), timing);
    let spread = |count: usize| -> (Vec<usize>, Vec<Launch>) {
        let parts = groups(program, count);
        let steps: Vec<usize> = parts.iter().map(|p| p.0).collect();
        let device = launches_of(timing, spec, &steps);
        let one = |(i, (part, device_us)): (usize, (&(usize, f64), f64))| Launch {
            name: name(i, parts.len()),
            compile_us: prepared.compile_us * part.1,
            enqueue_us: host.enqueue_us,
            device_us,
        };
        let list = parts.iter().zip(device).enumerate().map(one).collect();
        (steps, list)
    };
    let ends = |parts: &(Vec<usize>, Vec<Launch>)| schedule(&parts.1, true).total_us;
    let hidden = GROUPS.map(spread).into_iter().min_by(|a, b| ends(a).total_cmp(&ends(b)));
    let (steps, hidden) = hidden.unwrap_or_default();
    row("new shape, compile hidden", hidden, steps, true, units(program), timing);
    let mut singly =
        |label, program: &Program, steps: Vec<(String, usize)>, addresses, enqueue_us| -> Result<(), Error> {
            let opts = Options { trace: 0, addresses, ..opts.clone() };
            let t = simulate(program, spec, &opts).map_err(|e| Error::Launch(format!("{label}: {e}")))?;
            let counts: Vec<usize> = steps.iter().map(|s| s.1).collect();
            let device = launches_of(&t, spec, &counts);
            let list = steps
                .into_iter()
                .zip(device)
                .map(|((name, _), device_us)| Launch { name, compile_us: 0.0, enqueue_us, device_us })
                .collect();
            row(label, list, counts, true, units(program), &t);
            Ok(())
        };
    let Some(unfused) = unfused else { return Ok(rows) };
    let named = |p: &Program| -> Vec<(String, usize)> {
        p.steps
            .iter()
            .flat_map(|s| &s.units)
            .map(|u| (p.templates[u.template as usize].name.clone(), 1))
            .collect()
    };
    let apart = unstacked(program);
    singly("fused, a launch per kernel", &apart, named(&apart), None, host.enqueue_us)?;
    let apart = unstacked(unfused.program());
    singly("no fusion", &apart, named(&apart), None, host.enqueue_us)?;
    let ops = eager(prepared, spec)?;
    singly("eager", &ops.program, ops.launches, Some(ops.addresses), host.eager_us)?;
    Ok(rows)
}
