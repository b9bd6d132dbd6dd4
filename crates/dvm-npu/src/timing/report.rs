//! From what the engine counted to what people ask.

use dvm_bc::{CoreKind, DType, Inst, Opcode, Pipe, Program};

use super::code::Code;
use super::cost::Pricer;
use super::engine::{Core, Engine};
use super::{Cause, Constants, L2State, Options, TICKS_PER_CYCLE, Tick, TimingError, Trace, cycles, ticks};
use crate::MachineSpec;

/// Time of one pipe, in cycles; busy and stalls add up to the total.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeTime {
    /// Which pipe.
    pub pipe: Pipe,
    /// Occupied.
    pub busy: f64,
    /// Not occupied, by what the next instruction waited for; by [`Cause`] number.
    pub stalls: [f64; Cause::COUNT],
    /// Instructions executed, `nop`s and flags among them.
    pub instructions: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// What reading instructions costs a core, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decode {
    /// All of it.
    pub total: f64,
    /// Pipes stood still for it, the one that did so longest.
    pub exposed: f64,
}

/// Time of one core.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreTime {
    /// Vector or cube; `None` where one core has all pipes.
    pub kind: Option<CoreKind>,
    /// Number among its kind.
    pub number: u32,
    /// Its pipes that executed something.
    pub pipes: Vec<PipeTime>,
    /// Its scalar unit.
    pub decode: Decode,
}

impl CoreTime {
    /// `v3`, `c1`, or `core2`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind {
            None => format!("core{}", self.number),
            Some(CoreKind::Vector) => format!("v{}", self.number),
            Some(CoreKind::Cube) => format!("c{}", self.number),
        }
    }
}

/// What went over the shared paths, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Between cores and L2.
    pub l2: u64,
    /// Read from memory.
    pub read: u64,
    /// Written to memory.
    pub written: u64,
}

/// The least that the machine's peaks allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Each bound in microseconds: its name and value.
    pub bounds: Vec<(&'static str, f64)>,
    /// The largest.
    pub bound_us: f64,
    /// Operations a byte of memory traffic.
    pub intensity: f64,
    /// Achieved operations a second.
    pub rate: f64,
    /// Peak of the unit that did most of them, operations a second.
    pub peak: f64,
}

/// What a launch costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Of the whole task.
    pub cycles: f64,
    /// The same in microseconds.
    pub us: f64,
    /// Begin and end of each step in microseconds.
    pub steps: Vec<(f64, f64)>,
    /// All cores that took part. Spans of the trace name them by index.
    pub cores: Vec<CoreTime>,
    /// Traffic.
    pub memory: Memory,
    /// Operations of products, and of vector instructions.
    pub cube_flops: f64,
    /// See `cube_flops`.
    pub vector_flops: f64,
    /// Against the peaks.
    pub roofline: Roofline,
    /// The pipe that was occupied longest.
    pub critical: Pipe,
    /// Executions of instructions, and how many of them were simulated rather than extrapolated.
    pub executions: u64,
    /// See `executions`.
    pub simulated: u64,
    /// What happened when, if asked for.
    pub trace: Option<Trace>,
    /// What to know about the figures.
    pub notes: Vec<String>,
}

pub(super) fn simulate(program: &Program, spec: &MachineSpec, opts: &Options) -> Result<Timing, TimingError> {
    let (p, s) = (&program.target, &spec.target);
    if (p.cores, p.cube_cores, p.async_pipes) != (s.cores, s.cube_cores, s.async_pipes) {
        let cores = |t: &dvm_bc::Target| format!("{} cores and {} cube cores", t.cores, t.cube_cores);
        return Err(TimingError::Target {
            program: p.name.clone(),
            spec: s.name.clone(),
            has: cores(p),
            wants: cores(s),
        });
    }
    let c = &spec.timing;
    let pricer = Pricer { c, target: p };
    let codes = (0..program.templates.len())
        .map(|i| Code::new(program, i, &pricer))
        .collect::<Result<Vec<_>, _>>()?;
    for unit in program.steps.iter().flat_map(|s| &s.units) {
        if unit.template as usize >= codes.len() {
            let what = "a unit names no template".to_owned();
            return Err(TimingError::Code { template: format!("{}", unit.template), what });
        }
    }
    let units = program.steps.iter().flat_map(|s| &s.units);
    let executions = units.fold(0u64, |n, u| {
        let code = &codes[u.template as usize];
        n.saturating_add(code.executions().saturating_mul(code.tiles()))
    });
    if executions > opts.budget && (opts.exact || opts.trace > 0) {
        return Err(TimingError::Budget { executions, budget: opts.budget });
    }
    let mut engine = Engine::new(program, c, &codes, opts)?;
    if opts.l2 == L2State::Warm {
        engine.warm_up();
    }
    let launch = ticks((c.launch_us + c.launch_core_us * engine.first_cores()) * c.mhz);
    let (end, steps) = engine.run(launch)?;
    let total = end + ticks(c.finish_us * c.mhz);
    let us = |t: Tick| cycles(t) / c.mhz;
    let mut busiest = [0.0f64; 6];
    let cores: Vec<CoreTime> = engine.cores.iter_mut().map(|core| core_time(core, end, total)).collect();
    for p in cores.iter().flat_map(|c| &c.pipes) {
        busiest[p.pipe as usize] = busiest[p.pipe as usize].max(p.busy);
    }
    let critical = Pipe::ALL.into_iter().max_by(|a, b| busiest[*a as usize].total_cmp(&busiest[*b as usize]));
    let t = &engine.totals;
    let memory = Memory { l2: t.l2, read: t.read, written: t.written };
    let mut notes = Vec::new();
    if t.simulated < t.executions {
        notes.push(format!(
            "{} of {} executions were extrapolated from steady windows before and after them",
            t.executions - t.simulated,
            t.executions
        ));
    }
    let roofline = roofline(c, program, &memory, (t.cube_flops, t.vector_flops), us(total));
    Ok(Timing {
        cycles: cycles(total),
        us: us(total),
        steps: steps.iter().map(|s| (us(s.0), us(s.1))).collect(),
        cores,
        memory,
        cube_flops: t.cube_flops,
        vector_flops: t.vector_flops,
        roofline,
        critical: critical.unwrap_or(Pipe::V),
        executions: t.executions,
        simulated: t.simulated,
        trace: (opts.trace > 0)
            .then(|| Trace { spans: std::mem::take(&mut engine.spans), dropped: engine.dropped }),
        notes,
    })
}

/// Closes the accounts of a core.
fn core_time(core: &mut Core, end: Tick, total: Tick) -> CoreTime {
    let mut exposed = 0.0f64;
    let mut pipes = Vec::new();
    for (lane, pipe) in core.lanes.iter_mut().zip(Pipe::ALL) {
        if lane.instructions == 0 {
            continue;
        }
        lane.stalls[Cause::Launch as usize] += total.saturating_sub(end);
        // Of extrapolated windows a pipe's own account may be a little longer or shorter than theirs.
        let sum = lane.busy + lane.stalls.iter().sum::<Tick>();
        match total.checked_sub(sum) {
            Some(rest) => lane.stalls[Cause::Idle as usize] += rest,
            None => {
                let mut over = sum - total;
                for t in lane.stalls.iter_mut().chain([&mut lane.busy]) {
                    let less = over.min(*t);
                    *t -= less;
                    over -= less;
                }
            }
        }
        exposed = exposed.max(cycles(lane.stalls[Cause::Decode as usize]));
        pipes.push(PipeTime {
            pipe,
            busy: cycles(lane.busy),
            stalls: lane.stalls.map(cycles),
            instructions: lane.instructions,
            bytes: lane.bytes,
        });
    }
    let total = cycles(core.decode);
    CoreTime {
        kind: core.kind,
        number: core.number,
        pipes,
        decode: Decode { total, exposed: exposed.min(total) },
    }
}

fn roofline(
    c: &Constants,
    program: &Program,
    memory: &Memory,
    (cube, vector): (f64, f64),
    us: f64,
) -> Roofline {
    let t = &program.target;
    let cubes = f64::from(if t.cube_cores > 0 { t.cube_cores } else { t.cores });
    // The best rate that any product of the program may reach.
    let mut k = 0.0f64;
    let mut narrow = 8.0f64;
    let mut each = |inst: &Inst| match (inst.op, inst.dtype) {
        (Opcode::Mmad, DType::I8 | DType::U8) => k = k.max(c.cube_k_i8),
        (Opcode::Mmad, DType::F16 | DType::BF16) => k = k.max(c.cube_k_half),
        (Opcode::Mmad, DType::F32) => k = k.max(c.cube_k_f32),
        (Opcode::Mmad, _) => k = k.max(c.cube_k_other),
        _ => narrow = narrow.min(f64::from(inst.dtype.size())),
    };
    for s in program.templates.iter().flat_map(|t| &t.phases).flat_map(|p| &p.sections) {
        s.code.iter().flatten().for_each(|i| each(&i));
    }
    let hz = c.mhz * 1e6;
    let cube_peak = cubes * 512.0 * k * hz;
    // A register of the narrowest type each cycle.
    let vector_peak = f64::from(t.cores) * c.vec_bytes / narrow * 2.0 / c.vec_arith.min(1.0) * hz;
    let over = |work: f64, rate: f64| if work > 0.0 && rate > 0.0 { work / rate * 1e6 } else { 0.0 };
    let traffic = (memory.read + memory.written) as f64;
    let bounds = vec![
        ("cube", over(cube, cube_peak)),
        ("vector", over(vector, vector_peak)),
        ("memory", over(traffic, c.hbm_peak)),
        ("l2", over(memory.l2 as f64, c.l2_rate)),
    ];
    let flops = cube + vector;
    Roofline {
        bound_us: bounds.iter().map(|b| b.1).fold(0.0, f64::max),
        bounds,
        intensity: if traffic > 0.0 { flops / traffic } else { f64::INFINITY },
        rate: if us > 0.0 { flops / us * 1e6 } else { 0.0 },
        peak: if cube > vector { cube_peak } else { vector_peak },
    }
}

const _: () = assert!(TICKS_PER_CYCLE > 0.0);
