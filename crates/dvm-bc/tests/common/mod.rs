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

pub(crate) trait Sample: Sized {
    fn sample(r: &mut Rng) -> Self;
}

fn extent(r: &mut Rng) -> u8 {
    r.below((MAX_PARALLEL + MAX_SEQ) as u64) as u8
}

impl Sample for Local {
    fn sample(r: &mut Rng) -> Self {
        Local { space: r.pick(&Space::ALL), offset: r.bits(32) as u32 }
    }
}
impl Sample for Src {
    fn sample(r: &mut Rng) -> Self {
        if r.below(3) == 0 {
            Src::Imm(r.next() >> r.below(64))
        } else {
            Src::Local(Local::sample(r), r.pick(&Mode::ALL))
        }
    }
}
impl Sample for Size {
    fn sample(r: &mut Rng) -> Self {
        let body = r.bits(28) as u32;
        let tail = if r.below(2) == 0 { body } else { r.bits(28) as u32 };
        Size { body, tail, extent: (r.below(2) == 0).then(|| extent(r)) }
    }
}
impl Sample for Strides {
    fn sample(r: &mut Rng) -> Self {
        (0..r.below((MAX_PARALLEL + MAX_SEQ + 1) as u64)).map(|_| (extent(r), r.signed(60))).collect()
    }
}
impl Sample for Mem {
    fn sample(r: &mut Rng) -> Self {
        Mem { slot: r.bits(16) as u16, offset: r.signed(44), strides: Strides::sample(r) }
    }
}
impl Sample for Loops {
    fn sample(r: &mut Rng) -> Self {
        (0..r.below(MAX_LOOPS as u64 + 1))
            .map(|_| Loop { count: Size::sample(r), stride: r.signed(64) })
            .collect()
    }
}
impl Sample for Hints {
    fn sample(r: &mut Rng) -> Self {
        Hints { sticky: r.below(2) == 0, stream: r.below(2) == 0 }
    }
}
impl Sample for Init {
    fn sample(r: &mut Rng) -> Self {
        r.pick(&[Init::Accumulate, Init::Always, Init::First])
    }
}
impl Sample for DType {
    fn sample(r: &mut Rng) -> Self {
        r.pick(DType::ALL)
    }
}
impl Sample for Pipe {
    fn sample(r: &mut Rng) -> Self {
        r.pick(&Pipe::ALL)
    }
}
impl Sample for u8 {
    fn sample(r: &mut Rng) -> Self {
        r.below(8) as u8
    }
}
impl Sample for Sync {
    fn sample(r: &mut Rng) -> Self {
        if r.below(2) == 0 {
            return Sync::NONE;
        }
        let mut event = || (r.below(2) == 0).then(|| Event { peer: Pipe::sample(r), id: r.below(8) as u8 });
        let [wait, set, wait_back, set_back] = std::array::from_fn(|_| event());
        Sync { wait, set, wait_back, set_back, bar: r.below(2) == 0 }
    }
}
impl Sample for bool {
    fn sample(r: &mut Rng) -> Self {
        r.below(2) == 0
    }
}
impl Sample for i64 {
    fn sample(r: &mut Rng) -> Self {
        r.signed(64)
    }
}
impl Sample for u64 {
    fn sample(r: &mut Rng) -> Self {
        r.bits(64)
    }
}

macro_rules! define_sample {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        fn operands(form: Form, _r: &mut Rng) -> Operands {
            match form { $(Form::$form => Operands::$form($form { $($field: Sample::sample(_r),)* }),)* }
        }
    };
}
for_each_form!(define_sample);

/// A random instruction of the opcode: any that can be encoded.
pub(crate) fn inst(op: Opcode, r: &mut Rng) -> Inst {
    Inst::new(op, DType::sample(r), operands(op.form(), r)).with_sync(Sync::sample(r))
}
