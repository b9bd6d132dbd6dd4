//! Random instructions, derived from the table like everything else.
#![allow(dead_code, reason = "each test file uses a part")]

use dvm_bc::*;

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    /// Small numbers mostly, all of `bits` sometimes.
    pub(crate) fn bits(&mut self, bits: u32) -> u64 {
        let width = if self.below(4) == 0 { bits } else { bits.min(6) };
        self.next() >> (64 - width)
    }
    pub(crate) fn signed(&mut self, bits: u32) -> i64 {
        let v = self.bits(bits - 1) as i64;
        if self.below(3) == 0 { !v } else { v }
    }
}

/// A random instruction of the opcode: any that can be encoded.
pub(crate) fn inst(op: Opcode, r: &mut Rng) -> Inst {
    let bytes: Vec<u8> = (0..96).flat_map(|_| r.next().to_le_bytes()).collect();
    Inst::arbitrary_of(op, &mut arbitrary::Unstructured::new(&bytes)).expect("bytes enough")
}
