//! The steady middle of a long run is not simulated.
//!
//! Marks are set whenever a reference core has begun a number of tiles. Where two windows between marks are alike (as long, as much traffic, the
//! same units under way), a stretch of the middle is left out: every core goes on some tiles further as if nothing had been, and the time,
//! traffic and accounts of as many windows are added. What the cores share is left as the tiles would leave it: the L2 is told of
//! them. Then it is measured anew, so that a slow drift is followed.

use super::engine::{Core, Engine, Totals, Walk};
use super::{Cause, Tick};

/// Tiles of the reference core between marks, at least.
const WINDOW: u64 = 12;
/// Of what could be left out, at once: the pace may drift.
const PART: f64 = 0.9;
/// How alike windows must be.
const LENGTH: f64 = 0.01;
const TRAFFIC: f64 = 0.02;
/// Executions that are not worth leaving out.
const FEW: u64 = 20_000;

/// What is known at a moment.
pub(super) struct Mark {
    at: Tick,
    totals: Totals,
    /// By worker: unit and tiles left.
    left: Vec<Option<(u32, u64)>>,
    /// By core and pipe: busy, stalls.
    lanes: Vec<[Account; 6]>,
    decode: Vec<Tick>,
}

#[derive(Clone, Copy, Default)]
struct Account {
    busy: Tick,
    stalls: [Tick; Cause::COUNT],
    instructions: u64,
    bytes: u64,
}

impl Engine<'_> {
    /// Begins to watch a step.
    pub(super) fn watch(&mut self) {
        self.marks.clear();
        self.reference = None;
        if self.opts.exact || self.opts.trace > 0 {
            return;
        }
        // The core with most to do.
        let lead = |w: &super::engine::Worker| w.cores[0];
        let most =
            self.workers.iter().filter(|w| w.running).max_by_key(|w| self.cores[lead(w)].cursor.left());
        let Some(core) = most.map(lead) else { return };
        let (window, core_) = (self.window(core), &self.cores[core]);
        let code = &self.codes[core_.template];
        let workers = self.workers.len() as u64;
        let left = core_.cursor.left();
        let executions = left.saturating_mul(code.executions()).saturating_mul(workers);
        if left > 4 * window && executions > FEW {
            self.reference = Some((core, core_.tiles + window));
        }
    }

    /// Tiles between marks.
    fn window(&self, core: usize) -> u64 {
        let unit = self.unit_period(core);
        WINDOW.div_ceil(unit) * unit
    }

    /// Tiles after which a core's work repeats.
    fn unit_period(&self, core: usize) -> u64 {
        let of = &self.cores[core];
        let period = self.codes[of.template].period();
        let copies = self.workers.get(of.worker).map_or(1, |w| w.copies);
        let (mut a, mut b) = (period, copies);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        period / a * copies
    }

    /// A mark is due.
    pub(super) fn mark(&mut self, now: Tick) {
        let Some((core, _)) = self.reference else { return };
        if self.cores[core].exhausted {
            self.watch();
            return;
        }
        let mark = self.snapshot(now);
        self.marks.push(mark);
        let window = self.window(core);
        self.reference = Some((core, self.cores[core].tiles + window));
        if self.marks.len() > 3 {
            self.marks.remove(0);
        }
        let left_out = self.marks.len() == 3 && self.leave_out();
        if left_out || self.cores[core].cursor.left() < 3 * window {
            self.watch();
        }
    }

    fn snapshot(&self, at: Tick) -> Mark {
        let left = |w: &super::engine::Worker| {
            let core = &self.cores[w.cores[0]];
            w.running.then(|| (core.unit, core.cursor.left()))
        };
        Mark {
            at,
            totals: self.totals,
            left: self.workers.iter().map(left).collect(),
            lanes: self.cores.iter().map(Core::accounts).collect(),
            decode: self.cores.iter().map(|c| c.decode).collect(),
        }
    }

    /// Leaves out a stretch if the windows between the three marks are alike.
    fn leave_out(&mut self) -> bool {
        let [a, b, c] = &self.marks[..] else { return false };
        let near = |x: f64, y: f64, by: f64| (x - y).abs() <= by * x.max(y).max(1.0);
        let (first, second) = ((b.at - a.at) as f64, (c.at - b.at) as f64);
        let traffic = |m: &Mark| (m.totals.read + m.totals.written) as f64;
        let l2 = |m: &Mark| m.totals.l2 as f64;
        let alike = near(first, second, LENGTH)
            && near(l2(b) - l2(a), l2(c) - l2(b), TRAFFIC)
            // Traffic that is nothing beside the rest may do as it likes.
            && (near(traffic(b) - traffic(a), traffic(c) - traffic(b), TRAFFIC)
                || traffic(c) - traffic(a) < 0.02 * (l2(c) - l2(a)));
        let same = a.left.iter().zip(&c.left).all(|(x, z)| x.map(|x| x.0) == z.map(|z| z.0));
        if !alike || !same || first + second <= 0.0 {
            return false;
        }
        // Tiles of each worker in both windows; those of one unit have the same pace.
        let done = |w: usize| match (a.left[w], c.left[w]) {
            (Some(x), Some(z)) => x.1.saturating_sub(z.1) as f64,
            _ => 0.0,
        };
        let Some((core, _)) = self.reference else { return false };
        let mut pace: Vec<(u32, f64, u32)> = Vec::new();
        for (w, left) in c.left.iter().enumerate() {
            let Some((unit, _)) = *left else { continue };
            match pace.iter_mut().find(|p| p.0 == unit) {
                Some(p) => (p.1, p.2) = (p.1 + done(w), p.2 + 1),
                None => pace.push((unit, done(w), 1)),
            }
        }
        let pace = |unit: u32| pace.iter().find(|p| p.0 == unit).map_or(0.0, |p| p.1 / f64::from(p.2));
        // How many pairs of windows may be left out: nobody may come near its end.
        let mut pairs = f64::INFINITY;
        for (w, left) in c.left.iter().enumerate() {
            let Some((unit, left)) = *left else { continue };
            let margin = 2 * self.window(self.workers[w].cores[0]);
            let each = pace(unit);
            if each <= 0.0 {
                return false;
            }
            pairs = pairs.min(left.saturating_sub(margin) as f64 * PART / each);
        }
        let reference = self.cores[core].unit;
        let period = self.unit_period(core);
        let tiles = ((pairs * pace(reference)) as u64) / period * period;
        if !pairs.is_finite() || tiles < 2 * self.window(core) {
            return false;
        }
        let pairs = tiles as f64 / pace(reference);
        let jumps: Vec<u64> = c
            .left
            .iter()
            .enumerate()
            .map(|(w, left)| {
                let Some((unit, left)) = *left else { return 0 };
                let period = self.unit_period(self.workers[w].cores[0]);
                let n = (pairs * pace(unit) / period as f64).round() as u64 * period;
                n.min(left.saturating_sub(1) / period * period)
            })
            .collect();
        self.jump(pairs, &jumps);
        true
    }

    /// Adds what `pairs` of windows add, and goes on behind `jumps` tiles of each worker.
    fn jump(&mut self, pairs: f64, jumps: &[u64]) {
        let (first, last) = (self.marks.remove(0), self.marks.pop());
        let Some(last) = last else { return };
        let scale = |x: u64, y: u64| ((y - x) as f64 * pairs).round() as u64;
        self.skipped += scale(first.at, last.at);
        let (t, x, y) = (&mut self.totals, &first.totals, &last.totals);
        t.l2 += scale(x.l2, y.l2);
        t.read += scale(x.read, y.read);
        t.written += scale(x.written, y.written);
        t.executions += scale(x.executions, y.executions);
        t.cube_flops += (y.cube_flops - x.cube_flops) * pairs;
        t.vector_flops += (y.vector_flops - x.vector_flops) * pairs;
        for (i, core) in self.cores.iter_mut().enumerate() {
            core.decode += scale(first.decode[i], last.decode[i]);
            for (lane, (x, y)) in core.lanes.iter_mut().zip(first.lanes[i].iter().zip(&last.lanes[i])) {
                lane.busy += scale(x.busy, y.busy);
                for (stall, (x, y)) in lane.stalls.iter_mut().zip(x.stalls.iter().zip(&y.stalls)) {
                    *stall += scale(*x, *y);
                }
                lane.instructions += scale(x.instructions, y.instructions);
                lane.bytes += scale(x.bytes, y.bytes);
            }
        }
        let mut walks = Vec::new();
        for (w, &tiles) in jumps.iter().enumerate() {
            if tiles == 0 {
                continue;
            }
            let worker = &self.workers[w];
            for (i, &c) in worker.cores.iter().enumerate() {
                let core = &mut self.cores[c];
                let code = &self.codes[core.template];
                if i == 0 {
                    let cursor = core.cursor.ahead(tiles);
                    let (lo, copies) = (worker.lo, worker.copies);
                    walks.push(Walk { worker: w as u64, copies, lo, unit: core.unit, cursor });
                }
                let own = tiles / core.cursor.step();
                core.cursor.skip(tiles);
                core.tiles += own;
                for (done, s) in core.done.iter_mut().zip(&code.sections) {
                    *done += s.times * own;
                }
            }
        }
        if !self.l2.is_resident() {
            self.touch(self.step, walks);
        }
    }
}

impl Core {
    fn accounts(&self) -> [Account; 6] {
        let mut out = [Account::default(); 6];
        for (a, l) in out.iter_mut().zip(&self.lanes) {
            *a = Account { busy: l.busy, stalls: l.stalls, instructions: l.instructions, bytes: l.bytes };
        }
        out
    }
}
