//! Which of the possible next moves a machine takes.

use dvm_bc::{Pipe, Program};

/// When an instruction takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads at its start, writes at its finish.
    Split,
    /// All at its start.
    Start,
    /// All at its finish.
    Finish,
    /// Each of the three by chance, per execution.
    Any,
}

/// Which moves are preferred. A move is the start or the finish of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None: every possible move is as likely.
    Uniform,
    /// Those of all other pipes: this one goes on when nothing else can.
    Starve(Pipe),
    /// Those of this pipe.
    Eager(Pipe),
    /// All but the finish of what this pipe has under way: transfers that take long.
    Slow(Pipe),
    /// Starts, and the finish of what started last.
    Newest,
    /// Starts; finishes by chance.
    Deep,
    /// Finishes: one instruction at a time, in the order of chance.
    Shallow,
    /// All but the start of one instruction of the code, by its number.
    Late(u32),
    /// All but the finish of one instruction of the code.
    Long(u32),
    /// The moves of this instruction of the code.
    Early(u32),
}

/// One way to execute a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of all chance.
    pub seed: u64,
    /// Which moves are preferred.
    pub policy: Policy,
    /// When instructions take effect.
    pub effect: Effect,
    /// Cores, or groups of a cube core and its vector cores. At most those of the target.
    pub workers: u32,
}

impl Schedule {
    /// The schedule with this number of a fixed list, which goes through all policies, effects and instructions.
    #[must_use]
    pub fn nth(program: &Program, n: u64) -> Schedule {
        let mut rng = Rng(n ^ 0x5851_f42d_4c95_7f2d);
        let words = |t: &dvm_bc::Template| -> usize {
            t.phases.iter().flat_map(|p| &p.sections).map(|s| s.code.iter().count()).sum()
        };
        let insts = program.templates.iter().map(words).max().unwrap_or(1).max(1) as u64;
        let round = n / 10;
        let pipe = Pipe::ALL[(round % 6) as usize];
        let inst = (round % insts) as u32;
        let policy = match n % 10 {
            0 => Policy::Uniform,
            1 => Policy::Slow(pipe),
            2 => Policy::Late(inst),
            3 => Policy::Long(inst),
            4 => Policy::Starve(pipe),
            5 => Policy::Newest,
            6 => Policy::Early(inst),
            7 => Policy::Eager(pipe),
            8 => Policy::Deep,
            _ => Policy::Shallow,
        };
        let effect = match rng.below(6) {
            0 => Effect::Split,
            1 => Effect::Start,
            2 => Effect::Finish,
            _ => Effect::Any,
        };
        let t = &program.target;
        let most = if t.cube_cores > 0 { t.cube_cores } else { t.cores };
        let workers = [1, 1, 2, 1, 3, 2][rng.below(6) as usize].min(most.max(1));
        Schedule { seed: rng.next(), policy, effect, workers }
    }
}

/// A small generator (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }
}
