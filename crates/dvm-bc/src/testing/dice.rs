//! Choices from a fuzzer's bytes, or from a seed.

use arbitrary::Unstructured;

use crate::DType;

/// Where random choices come from. Bytes that run out give the least choice for ever, so everything ends.
#[derive(Debug)]
pub enum Dice<'a> {
    /// A fuzzer's input.
    Bytes(Unstructured<'a>),
    /// SplitMix64.
    Seed(u64),
}

impl<'a> Dice<'a> {
    /// Choices made by `bytes`.
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Dice<'a> {
        Dice::Bytes(Unstructured::new(bytes))
    }
    /// Any number.
    pub fn word(&mut self) -> u64 {
        match self {
            Dice::Bytes(u) => u.arbitrary().unwrap_or(0),
            Dice::Seed(s) => {
                *s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *s;
                z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ z >> 31
            }
        }
    }
    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        match self {
            _ if n < 2 => 0,
            Dice::Bytes(u) => u.int_in_range(0..=n - 1).unwrap_or(0),
            Dice::Seed(_) => self.word() % n,
        }
    }
    /// A number of `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }
    /// True `n` times of `of`.
    pub fn chance(&mut self, n: u64, of: u64) -> bool {
        self.below(of) < n
    }
    /// One of a list that is not empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    /// Small numbers mostly, all of `bits` sometimes.
    pub fn bits(&mut self, bits: u32) -> u64 {
        let width = if self.chance(1, 4) { bits } else { bits.min(5) };
        self.word() >> (64 - width.clamp(1, 64))
    }
    /// As [`Dice::bits`], of either sign.
    pub fn signed(&mut self, bits: u32) -> i64 {
        let v = self.bits(bits - 1) as i64;
        if self.chance(1, 3) { !v } else { v }
    }

    /// The bits of an element: small numbers mostly, and what tends to break things.
    pub fn element(&mut self, dtype: DType) -> u64 {
        let width = 8 * dtype.size();
        let mask = u64::MAX >> (64 - width);
        if dtype == DType::Bool {
            return self.below(2);
        }
        if !dtype.is_float() {
            return match self.below(12) {
                0 => mask,
                1 => mask >> 1,
                2 => (mask >> 1) + 1,
                3 => self.word() & mask,
                _ => self.below(11).wrapping_sub(3) & mask,
            };
        }
        let bits = |x: f32| match dtype {
            DType::F64 => f64::from(x).to_bits(),
            DType::F32 => u64::from(x.to_bits()),
            // Some value near it: no rounding is wanted here.
            DType::BF16 => u64::from(x.to_bits() >> 16),
            _ => {
                let b = x.to_bits();
                let exponent = ((b >> 23 & 0xff) as i32 - 112).clamp(0, 31) as u64;
                u64::from(b >> 31) << 15 | exponent << 10 | u64::from(b >> 13 & 0x3ff)
            }
        };
        match self.below(16) {
            0 => self.word() & mask,
            1 => bits(f32::NAN),
            2 => bits(f32::INFINITY),
            3 => bits(f32::NEG_INFINITY),
            4 => bits(-0.0),
            5 => bits(0.0),
            6 => bits(2.0),
            7 | 8 => bits(self.below(9) as f32 - 4.0),
            9 => bits(self.below(9) as f32 - 3.5),
            _ => bits((self.below(4001) as f32 - 2000.0) / 250.0),
        }
    }

    /// `n` bytes of elements.
    pub fn elements(&mut self, dtype: DType, n: usize) -> Vec<u8> {
        let size = dtype.size() as usize;
        let mut out = Vec::with_capacity(n + size);
        while out.len() < n {
            out.extend_from_slice(&self.element(dtype).to_le_bytes()[..size]);
        }
        out.truncate(n);
        out
    }
}
