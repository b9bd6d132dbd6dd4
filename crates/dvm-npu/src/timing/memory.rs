//! What the cores share: the L2 and the bandwidth behind it.
//!
//! The L2 is a write-back cache of whole lines. Lines are kept by chunk, with a bit for each, and chunks leave in the order of their last
//! use: exact lines, coarse ages. Bandwidth is a fluid: transfers under way share a resource in proportion to what each could take alone.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::cost::Transfer;
use super::{L2State, Tick};

/// Lines of a chunk: one bit each.
const CHUNK: u64 = 8;

/// Chunks of a page; pages come to be when touched.
const PAGE: u64 = 1 << 14;
/// Transfers after which a chunk that is touched again counts as newer.
const EPOCH: u64 = 64;

#[derive(Clone, Copy, Default)]
struct Chunk {
    valid: u8,
    dirty: u8,
    epoch: u32,
}

/// What a transfer meets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Bytes that pass between core and L2, whole lines where a run begins between two.
    pub(super) l2: u64,
    /// Bytes read from and written to memory.
    pub(super) read: u64,
    pub(super) written: u64,
    /// Lines asked for.
    pub(super) requests: u64,
}

/// The write-back cache.
pub(super) struct L2 {
    /// Bytes of a line, a power of two, and its logarithm.
    line: u64,
    shift: u32,
    /// In lines; 0: there is none.
    capacity: u64,
    used: u64,
    transfers: u64,
    /// All that the program touches is there and stays.
    resident: bool,
    pages: Vec<Option<Box<[Chunk]>>>,
    /// (epoch, chunk), oldest first; entries whose epoch has passed are skipped.
    ages: VecDeque<(u32, u64)>,
}

impl L2 {
    /// `footprint`: where the last argument ends.
    pub(super) fn new(line: f64, bytes: f64, footprint: u64, state: L2State) -> L2 {
        let line = (line as u64).clamp(1, 1 << 20).next_power_of_two();
        let capacity = bytes as u64 / line;
        let resident = state == L2State::Warm && footprint.div_ceil(line) <= capacity;
        let pages = if resident || capacity == 0 { 0 } else { footprint / (line * CHUNK * PAGE) + 1 };
        L2 {
            line,
            shift: line.trailing_zeros(),
            capacity,
            used: 0,
            transfers: 0,
            resident,
            pages: vec![None; usize::try_from(pages).unwrap_or(0)],
            ages: VecDeque::new(),
        }
    }

    /// A launch finds all it needs in the cache.
    pub(super) fn is_resident(&self) -> bool {
        self.resident
    }

    /// A transfer whose first byte is at `at`. Its lines become the newest.
    pub(super) fn access(&mut self, at: u64, t: &Transfer) -> Traffic {
        let mut out = Traffic::default();
        self.transfers += 1;
        if self.resident && t.dims.iter().all(|d| d.1.unsigned_abs().is_multiple_of(self.line)) {
            // All runs are alike.
            self.run(at, t, &mut out);
            out.l2 *= t.runs;
            out.requests *= t.runs;
        } else {
            self.walk(at, &t.dims, t, &mut out);
        }
        self.evict(&mut out);
        out
    }

    fn walk(&mut self, at: u64, dims: &[(u64, i64)], t: &Transfer, out: &mut Traffic) {
        match dims.split_first() {
            Some((&(count, stride), rest)) => {
                let mut at = at;
                for _ in 0..count {
                    self.walk(at, rest, t, out);
                    at = at.wrapping_add_signed(stride);
                }
            }
            None => self.run(at, t, out),
        }
    }

    /// One contiguous run.
    fn run(&mut self, at: u64, t: &Transfer, out: &mut Traffic) {
        if t.run == 0 {
            return;
        }
        let (first, last) = (at >> self.shift, at.saturating_add(t.run - 1) >> self.shift);
        let lines = last - first + 1;
        let least = (t.run + self.line - 1) >> self.shift;
        // A run that begins between two lines takes the time of all that it straddles.
        let bytes = if lines == least { t.run } else { t.run * lines / least };
        out.requests += lines;
        out.l2 += bytes;
        if self.resident {
            return;
        }
        if self.capacity == 0 || (t.write && t.stream) {
            if t.write {
                out.written += bytes;
            } else {
                out.read += bytes;
            }
            return;
        }
        let mut line = first;
        while line <= last {
            let (chunk, bit) = (line / CHUNK, line % CHUNK);
            let n = (CHUNK - bit).min(last - line + 1);
            let mask = if n == CHUNK { u8::MAX } else { ((1u8 << n) - 1) << bit };
            let epoch = (self.transfers / EPOCH + 1) as u32;
            let Some(page) = self.pages.get_mut((chunk / PAGE) as usize) else { return };
            let page = page.get_or_insert_with(|| vec![Chunk::default(); PAGE as usize].into_boxed_slice());
            let c = &mut page[(chunk % PAGE) as usize];
            if c.epoch != epoch && (t.write || !t.stream) {
                c.epoch = epoch;
                self.ages.push_back((epoch, chunk));
            }
            let missing = mask & !c.valid;
            if t.write {
                self.used += u64::from(missing.count_ones());
                c.valid |= mask;
                c.dirty |= mask;
            } else if missing != 0 {
                let miss = u64::from(missing.count_ones());
                let fetched = if t.stream { (miss * self.line).min(bytes) } else { miss * self.line };
                out.read += if lines == least { fetched } else { fetched * lines / least };
                if !t.stream {
                    self.used += miss;
                    c.valid |= missing;
                }
            }
            line += n;
        }
    }

    /// Lets the oldest chunks go until the rest fits.
    fn evict(&mut self, out: &mut Traffic) {
        while self.used > self.capacity {
            let Some((epoch, chunk)) = self.ages.pop_front() else { break };
            let Some(Some(page)) = self.pages.get_mut((chunk / PAGE) as usize) else { continue };
            let c = &mut page[(chunk % PAGE) as usize];
            if c.epoch != epoch {
                continue;
            }
            self.used -= u64::from(c.valid.count_ones());
            out.written += u64::from(c.dirty.count_ones()) * self.line;
            *c = Chunk::default();
        }
    }
}

/// A part of a transfer that shares a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    /// Reading of the resource's own clock at which it is done.
    ends: f64,
    /// Bytes a cycle that it takes when alone.
    rate: f64,
    flow: u32,
}

impl Eq for Part {}
impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Part) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Part {
    fn cmp(&self, other: &Part) -> Ordering {
        other.ends.total_cmp(&self.ends).then(other.flow.cmp(&self.flow))
    }
}

/// Bandwidth that transfers share in proportion to what each takes alone. Its clock advances by a cycle a cycle while all get what they ask
/// for, and slower in the ratio of capacity to demand beyond.
pub(super) struct Share {
    /// Bytes a tick.
    capacity: f64,
    demand: f64,
    clock: f64,
    now: Tick,
    parts: BinaryHeap<Part>,
}

impl Share {
    /// `capacity` in bytes a tick; infinite where nothing is shared.
    pub(super) fn new(capacity: f64) -> Share {
        Share { capacity, demand: 0.0, clock: 0.0, now: 0, parts: BinaryHeap::new() }
    }
    pub(super) fn is_private(&self) -> bool {
        self.capacity.is_infinite()
    }

    fn speed(&self) -> f64 {
        if self.demand > self.capacity { self.capacity / self.demand } else { 1.0 }
    }

    pub(super) fn advance(&mut self, now: Tick) {
        if now > self.now {
            self.clock += (now - self.now) as f64 * self.speed();
            self.now = now;
        }
    }

    /// Adds `bytes` of a flow that would take `rate` bytes a tick.
    pub(super) fn add(&mut self, now: Tick, flow: u32, bytes: f64, rate: f64) {
        self.advance(now);
        self.parts.push(Part { ends: self.clock + bytes / rate, rate, flow });
        self.demand += rate;
    }

    /// When the next part is done, if nothing else begins.
    pub(super) fn next(&self) -> Option<Tick> {
        let p = self.parts.peek()?;
        let left = ((p.ends - self.clock) / self.speed()).max(0.0).ceil();
        Some(self.now.saturating_add(left as Tick))
    }

    /// The flow whose part is done now.
    pub(super) fn done(&mut self, now: Tick) -> Option<u32> {
        self.advance(now);
        let p = self.parts.pop()?;
        self.demand -= p.rate;
        if self.parts.is_empty() {
            // Rounding does not add up.
            self.demand = 0.0;
            self.clock = 0.0;
        }
        Some(p.flow)
    }
}
