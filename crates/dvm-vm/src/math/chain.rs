//! Superinstructions: a few elementwise functions of f32 in one sweep, the value between them in registers.
//!
//! Cheap functions cost their loads and stores, not their arithmetic. So neighbours that frequently meet are joined: a
//! prologue and an epilogue to an exponential, steps of a norm, a reduction of the row at the end. Every function is
//! the one that runs alone, over the same elements in the same order, so joining changes no bit. Which sequences there
//! are is a table of types, since only code that is compiled as a whole keeps the value in registers; telling the links
//! apart at run time costs as much as the loads and stores.

use dvm_bc::Opcode;

use super::drive::{Binary, Unary};
use super::lanes::Lanes;
use super::{cheap, erf, exp};
use crate::Isa;

/// The other operand of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    None,
    /// A run of elements.
    Run,
    /// One element.
    One,
}

/// What becomes of the running value `x` with an operand `a`.
pub(crate) trait Link {
    const CODE: u8;
    const OPERAND: Operand;
    /// A polynomial, rather than an instruction or two.
    const LONG: bool;
    fn f<V: Lanes>(x: V, a: V) -> V;
}

macro_rules! links {
    ($($code:literal $name:ident($operand:ident) $x:ident, $a:ident => $e:expr;)*) => {
        $(
            pub(crate) struct $name;
            impl Link for $name {
                const CODE: u8 = $code;
                const OPERAND: Operand = Operand::$operand;
                const LONG: bool = $code >= 20;
                #[inline(always)]
                fn f<V: Lanes>($x: V, $a: V) -> V { $e }
            }
        )*
        /// A link on single elements, and its operand.
        #[cfg(test)]
        fn scalar(code: u8) -> Option<(fn(f32, f32) -> f32, Operand)> {
            match code {
                $($code => Some(($name::f::<f32>, Operand::$operand)),)*
                _ => None,
            }
        }
    };
}
// R takes a run, O one element.
links! {
    0 Nop(None) x, _a => x;
    1 AddR(Run) x, a => x.add(a);
    2 AddO(One) x, a => x.add(a);
    3 SubR(Run) x, a => x.sub(a);
    4 SubO(One) x, a => x.sub(a);
    5 FromR(Run) x, a => a.sub(x);
    6 FromO(One) x, a => a.sub(x);
    7 MulR(Run) x, a => x.mul(a);
    8 MulO(One) x, a => x.mul(a);
    9 DivR(Run) x, a => x.div(a);
    10 DivO(One) x, a => x.div(a);
    11 IntoO(One) x, a => a.div(x);
    12 MaxO(One) x, a => cheap::Max::eval(x, a);
    13 MinO(One) x, a => cheap::Min::eval(x, a);
    14 Abs(None) x, _a => x.abs();
    15 Neg(None) x, _a => x.neg();
    16 Square(None) x, _a => x.mul(x);
    17 Sqrt(None) x, _a => cheap::Sqrt::eval(x);
    18 Rsqrt(None) x, _a => cheap::Rsqrt::eval(x);
    19 Reciprocal(None) x, _a => cheap::Reciprocal::eval(x);
    20 Exp(None) x, _a => exp::Exp::eval(x);
    21 Sigmoid(None) x, _a => exp::Sigmoid::eval(x);
    22 Tanh(None) x, _a => exp::Tanh::eval(x);
    23 Erf(None) x, _a => erf::Erf::eval(x);
}

/// The link for an instruction on f32 whose source `x` is the running value, and whose other source, if any, is one element
/// (`one`) or a run.
pub(crate) fn code(op: Opcode, x: usize, one: bool) -> Option<u8> {
    let pick = |run: u8, single: u8| Some(if one { single } else { run });
    match (op, x) {
        (Opcode::VAdd, _) => pick(AddR::CODE, AddO::CODE),
        (Opcode::VSub, 0) => pick(SubR::CODE, SubO::CODE),
        (Opcode::VSub, _) => pick(FromR::CODE, FromO::CODE),
        (Opcode::VMul, _) => pick(MulR::CODE, MulO::CODE),
        (Opcode::VDiv, 0) => pick(DivR::CODE, DivO::CODE),
        (Opcode::VDiv, _) if one => Some(IntoO::CODE),
        (Opcode::VMax, _) if one => Some(MaxO::CODE),
        (Opcode::VMin, _) if one => Some(MinO::CODE),
        (Opcode::VAbs, _) => Some(Abs::CODE),
        (Opcode::VNeg, _) => Some(Neg::CODE),
        (Opcode::VSqrt, _) => Some(Sqrt::CODE),
        (Opcode::VRsqrt, _) => Some(Rsqrt::CODE),
        (Opcode::VReciprocal, _) => Some(Reciprocal::CODE),
        (Opcode::VExp, _) => Some(Exp::CODE),
        (Opcode::VSigmoid, _) => Some(Sigmoid::CODE),
        (Opcode::VTanh, _) => Some(Tanh::CODE),
        (Opcode::VErf, _) => Some(Erf::CODE),
        _ => None,
    }
}
/// The link that multiplies the running value by itself.
pub(crate) const SQUARE: u8 = Square::CODE;

/// Most links of a chain.
pub(crate) const MOST: usize = 4;

/// Lanes of a sum: element i of a block belongs to lane i % 64, as in [`super::rows`].
#[repr(C, align(32))]
pub(crate) struct Lanes64(pub(crate) [f32; 64]);

impl Lanes64 {
    /// Lanes before the first element.
    pub(crate) const ZERO: Lanes64 = Lanes64([0.0; 64]);

    /// The lanes combined in the fixed tree: what a block of 64 elements sums to.
    pub(crate) fn total(&self) -> f32 {
        // SAFETY: 64 elements.
        unsafe { super::sum_x_f32(Isa::Avx2Fma)(self.0.as_ptr(), self.0.len()) }
    }
}

/// A chain over `n` elements.
pub(crate) struct Span {
    pub(crate) x: *const f32,
    /// The other operand of each link.
    pub(crate) at: [*const f32; MOST],
    /// Null where the value is only reduced.
    pub(crate) dst: *mut f32,
    /// Where the value behind the first link goes too, in chains that say so.
    pub(crate) save: *mut f32,
    pub(crate) n: usize,
    /// Lanes to add to, in chains that reduce.
    pub(crate) lanes: *mut Lanes64,
    /// Stores past the caches.
    pub(crate) stream: bool,
}

/// Runs a chain.
///
/// # Safety
/// `x` and runs hold `n` elements, single operands one, `dst` and `save`, where used, room for `n`, `lanes` is valid where used.
/// Each operand either is `dst` or `save`, element for element, or does not overlap them.
pub(crate) type ChainFn = unsafe fn(&Span);

/// Orders what was stored past the caches before what follows.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

const fn key(codes: [u8; MOST]) -> u32 {
    u32::from_le_bytes(codes)
}

macro_rules! with_nops {
    ($mac:ident!($($pre:tt)*) $a:ident) => { $mac!($($pre)* $a Nop Nop Nop) };
    ($mac:ident!($($pre:tt)*) $a:ident $b:ident) => { $mac!($($pre)* $a $b Nop Nop) };
    ($mac:ident!($($pre:tt)*) $a:ident $b:ident $c:ident) => { $mac!($($pre)* $a $b $c Nop) };
    ($mac:ident!($($pre:tt)*) $a:ident $b:ident $c:ident $d:ident) => { $mac!($($pre)* $a $b $c $d) };
}
macro_rules! chain_codes {
    ($a:ident $b:ident $c:ident $d:ident) => {
        [$a::CODE, $b::CODE, $c::CODE, $d::CODE]
    };
}
const fn pair(after: &mut [u32; 32], codes: [u8; MOST]) {
    after[codes[0] as usize] |= 1 << codes[1];
}
/// Whether some chain begins so.
pub(crate) fn begins(first: u8, second: u8) -> bool {
    SECONDS[usize::from(first & 31)] >> (second & 31) & 1 != 0
}

macro_rules! chain_key {
    ($a:ident $b:ident $c:ident $d:ident) => {
        key([$a::CODE, $b::CODE, $c::CODE, $d::CODE])
    };
}
#[cfg(target_arch = "x86_64")]
macro_rules! chain_fn {
    ($fold:literal $save:literal $a:ident $b:ident $c:ident $d:ident) => {
        avx2::sweep::<$a, $b, $c, $d, $fold, $save>
    };
}
macro_rules! table {
    (
        firsts { $($first:ident)* } seconds $seconds:tt
        chains { $([$($l:ident)*])* }
        sums { $([$($s:ident)*])* }
        saving_sums { $([$($v:ident)*])* }
    ) => {
        /// The chain of these links, where there is one on this level.
        pub(crate) fn chain(codes: [u8; MOST], isa: Isa) -> Option<ChainFn> {
            #[cfg(target_arch = "x86_64")]
            if isa.or_portable() == Isa::Avx2Fma {
                let k = key(codes);
                // Comparisons with constants become one switch.
                $( if k >> 16 == 0 && k >> 8 != 0 && k & 0xff == u32::from($first::CODE) {
                    let two = seconds!($first, k >> 8, $seconds);
                    if two.is_some() {
                        return two;
                    }
                } )*
                $( if k == const { with_nops!(chain_key!() $($l)*) } {
                    return Some(with_nops!(chain_fn!(false false) $($l)*));
                } )*
            }
            let _ = (codes, isa);
            None
        }
        /// For each link those that may follow it in a chain's beginning, as bits.
        const SECONDS: [u32; 32] = {
            let mut after = [0u32; 32];
            let seconds = second_bits!($seconds);
            $( after[$first::CODE as usize] |= seconds; )*
            $( pair(&mut after, with_nops!(chain_codes!() $($l)*)); )*
            after
        };
        /// The chain of these links that ends in a sum; `save` if the value behind the first link is stored.
        pub(crate) fn chain_sum(codes: [u8; MOST], save: bool, isa: Isa) -> Option<ChainFn> {
            #[cfg(target_arch = "x86_64")]
            if isa.or_portable() == Isa::Avx2Fma {
                let k = key(codes);
                $( if !save && k == const { with_nops!(chain_key!() $($s)*) } {
                    return Some(with_nops!(chain_fn!(true false) $($s)*));
                } )*
                $( if save && k == const { with_nops!(chain_key!() $($v)*) } {
                    return Some(with_nops!(chain_fn!(true true) $($v)*));
                } )*
            }
            let _ = (codes, save, isa);
            None
        }
    };
}
macro_rules! second_bits {
    ({ $($second:ident)* }) => { 0 $( | 1u32 << $second::CODE )* };
}
macro_rules! seconds {
    ($first:ident, $k:expr, { $($second:ident)* }) => {
        match $k {
            $( k if k == u32::from($second::CODE) => {
                Some(avx2::sweep::<$first, $second, Nop, Nop, false, false> as ChainFn)
            } )*
            _ => None,
        }
    };
}

table! {
    firsts { AddR AddO SubR SubO MulR MulO Abs Neg }
    seconds { AddR AddO SubR SubO FromR FromO MulR MulO Abs Neg Square DivR MaxO Sqrt }
    chains {
        // One link, for stores past the caches.
        [AddR] [AddO] [SubR] [SubO] [FromR] [FromO] [MulR] [MulO] [DivR] [DivO] [IntoO] [MaxO] [MinO]
        [Abs] [Neg] [Square] [Sqrt] [Rsqrt] [Reciprocal] [Exp] [Sigmoid] [Tanh] [Erf]
        // Around an expensive one.
        [SubO Exp] [SubR Exp] [MulO Exp] [Neg Exp] [Abs Exp] [AddR Sigmoid] [MulO Sigmoid] [SubR Sigmoid]
        [AddR Tanh] [MulO Tanh] [MulO Erf] [Exp MulR] [Exp AddO] [Sigmoid MulR] [Tanh MulR] [Tanh AddO] [Erf AddO]
        [FromR Sigmoid] [Sigmoid AddR] [Sqrt MulR] [Sqrt AddR] [Sqrt SubR] [DivR MaxO] [DivR AddR] [MaxO MulR]
        [FromR MulR] [FromO MulR] [FromR MulO] [FromO MulO] [Square AddO] [Square MulO] [Square AddR]
        // Steps of norms.
        [MulO MulR AddR] [SubO MulO MulR] [SubO MulO MulR AddR] [AddO Sqrt IntoO]
        // Activations.
        [Abs Neg Exp] [Sigmoid MulR MulR] [MulO Sigmoid MulR] [MulO Erf AddO MulR] [MulO Tanh AddO MulR]
        [Erf AddO MulR] [Tanh AddO MulR] [MulO Erf AddO] [MulO Tanh AddO]
        // Scales and shifts.
        [MulR AddR MaxO] [AddR MulO AddR] [AddR AddR AddR] [MulO AddO MulR] [MulO AddO MulO] [MulR MulO AddR]
        [SubO MulO MaxO] [Abs AddO Sqrt] [MulO AddO MaxO] [AddR MulR AddR]
    }
    sums { [Square] [SubO Square] [SubO Exp] [Exp] [MulR] [SubR Square] }
    saving_sums { [SubO Square] [SubR Square] [AddR Square] }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::avx2::{Avx2, first_lanes};
    use super::super::lanes::{Lanes, Quad};
    use super::{Link, Operand, Span};

    const N: usize = Avx2::N;
    /// Elements of a group of four vectors.
    const FOUR: usize = 4 * N;

    #[inline(always)]
    unsafe fn load4(p: *const f32) -> Quad<Avx2> {
        // SAFETY: the caller promises a group.
        unsafe {
            Quad([Avx2::load(p), Avx2::load(p.add(N)), Avx2::load(p.add(2 * N)), Avx2::load(p.add(3 * N))])
        }
    }

    #[inline(always)]
    unsafe fn store4(p: *mut f32, v: Quad<Avx2>) {
        // SAFETY: the caller promises room for a group.
        unsafe {
            v.0[0].store(p);
            v.0[1].store(p.add(N));
            v.0[2].store(p.add(2 * N));
            v.0[3].store(p.add(3 * N));
        }
    }

    #[inline(always)]
    unsafe fn stream4(p: *mut f32, v: Quad<Avx2>) {
        // SAFETY: the caller promises room for a group, aligned for vectors.
        unsafe {
            _mm256_stream_ps(p, v.0[0].0);
            _mm256_stream_ps(p.add(N), v.0[1].0);
            _mm256_stream_ps(p.add(2 * N), v.0[2].0);
            _mm256_stream_ps(p.add(3 * N), v.0[3].0);
        }
    }

    /// The single operand of a link.
    #[inline(always)]
    unsafe fn one<L: Link>(p: *const f32) -> Avx2 {
        // SAFETY: the caller promises the element.
        if L::OPERAND == Operand::One { Avx2::splat(unsafe { *p }) } else { Avx2::splat(0.0) }
    }

    #[inline(always)]
    unsafe fn wide<L: Link>(x: Quad<Avx2>, p: *const f32, one: Avx2, i: usize) -> Quad<Avx2> {
        // SAFETY: the caller promises a group.
        L::f(x, if L::OPERAND == Operand::Run { unsafe { load4(p.add(i)) } } else { Quad([one; 4]) })
    }

    #[inline(always)]
    unsafe fn narrow<L: Link>(x: Avx2, p: *const f32, one: Avx2, i: usize, left: usize) -> Avx2 {
        // SAFETY: the caller promises `left` elements.
        L::f(x, if L::OPERAND == Operand::Run { unsafe { Avx2::load_first(p.add(i), left) } } else { one })
    }

    /// Four links, a sum of what they make if `FOLD`, the value behind the first also stored if `SAVE`.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn sweep<A: Link, B: Link, C: Link, D: Link, const FOLD: bool, const SAVE: bool>(
        s: &Span,
    ) {
        let (n, [a, b, c, d]) = (s.n, s.at);
        // SAFETY: the caller promises single operands, `n` elements behind every other pointer, and the lanes of a fold; groups
        // and what follows them end at or before `n`.
        unsafe {
            let ones = (one::<A>(a), one::<B>(b), one::<C>(c), one::<D>(d));
            macro_rules! group {
                ($i:expr) => {{
                    let i = $i;
                    let x = wide::<A>(load4(s.x.add(i)), a, ones.0, i);
                    if SAVE {
                        store4(s.save.add(i), x);
                    }
                    let x = wide::<D>(wide::<C>(wide::<B>(x, b, ones.1, i), c, ones.2, i), d, ones.3, i);
                    if !(FOLD && s.dst.is_null()) {
                        if !FOLD && s.stream {
                            stream4(s.dst.add(i), x);
                        } else {
                            store4(s.dst.add(i), x);
                        }
                    }
                    x
                }};
            }
            macro_rules! vector {
                ($i:expr, $left:expr) => {{
                    let (i, left) = ($i, $left);
                    let x = narrow::<A>(Avx2::load_first(s.x.add(i), left), a, ones.0, i, left);
                    if SAVE {
                        x.store_first(s.save.add(i), left);
                    }
                    let x = narrow::<C>(narrow::<B>(x, b, ones.1, i, left), c, ones.2, i, left);
                    let x = narrow::<D>(x, d, ones.3, i, left);
                    if !(FOLD && s.dst.is_null()) {
                        x.store_first(s.dst.add(i), left);
                    }
                    x
                }};
            }
            let mut i = 0;
            if FOLD {
                let lanes: *mut f32 = s.lanes.cast();
                let mut at = 0;
                if A::LONG || B::LONG || C::LONG || D::LONG {
                    // The function wants the registers; lanes stay in memory.
                    while i + FOUR <= n {
                        let x = group!(i);
                        store4(lanes.add(at), load4(lanes.add(at)).add(x));
                        (i, at) = (i + FOUR, at ^ FOUR);
                    }
                } else {
                    let (mut low, mut high) = (load4(lanes), load4(lanes.add(FOUR)));
                    while i + 2 * FOUR <= n {
                        low = low.add(group!(i));
                        high = high.add(group!(i + FOUR));
                        i += 2 * FOUR;
                    }
                    if i + FOUR <= n {
                        low = low.add(group!(i));
                        (i, at) = (i + FOUR, FOUR);
                    }
                    store4(lanes, low);
                    store4(lanes.add(FOUR), high);
                }
                while i < n {
                    let left = (n - i).min(N);
                    // Lanes without an element add +0, which leaves every sum that started from +0 as it is.
                    let x = vector!(i, left);
                    let x = Avx2(_mm256_and_ps(x.0, _mm256_castsi256_ps(first_lanes(left))));
                    Avx2::load(lanes.add(at)).add(x).store(lanes.add(at));
                    (i, at) = (i + N, at + N);
                }
                return;
            }
            if s.stream {
                // Up to the first whole vector; what follows is aligned.
                let first = s.dst.align_offset(4 * N).min(n);
                if first > 0 {
                    vector!(0, first);
                    i = first;
                }
            }
            while i + FOUR <= n {
                group!(i);
                i += FOUR;
            }
            while i < n {
                vector!(i, (n - i).min(N));
                i += N;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences() -> impl Iterator<Item = [u8; MOST]> {
        let some = |a: u8, b: u8| begins(a, b);
        (1..24u8).flat_map(move |a| {
            (0..24u8).filter(move |&b| b == 0 || some(a, b)).flat_map(move |b| {
                let thirds = if b == 0 { 0..1 } else { 0..24u8 };
                thirds.flat_map(move |c| (if c == 0 { 0..1 } else { 0..24u8 }).map(move |d| [a, b, c, d]))
            })
        })
    }

    /// Values with zeros of both signs, infinities, a NaN and numbers of all sizes.
    fn value(i: usize) -> f32 {
        match i % 23 {
            3 => 0.0,
            7 => -0.0,
            11 => f32::INFINITY,
            13 => f32::NEG_INFINITY,
            17 => f32::NAN,
            k => (k as f32 - 11.0) * 1.7f32.powi((i / 23) as i32 % 9 - 4),
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    /// Runs a chain on `n` elements, `shift` elements behind aligned memory; checks every element against one function after
    /// the other.
    fn check(codes: [u8; MOST], run: ChainFn, n: usize, shift: usize, stream: bool, sum: Option<bool>) {
        let x: Vec<f32> = (0..n).map(value).collect();
        let runs: Vec<Vec<f32>> =
            (1..=MOST).map(|k| (0..n).map(|i| value(i * 7 + k * 5)).collect()).collect();
        let single: Vec<f32> = (0..MOST).map(|k| 0.75 - k as f32).collect();
        let links: Vec<_> = codes.iter().map(|&c| scalar(c).expect("a link")).collect();
        let step = |k: usize, i: usize, x: f32| {
            let a = match links[k].1 {
                Operand::Run => runs[k][i],
                _ => single[k],
            };
            (links[k].0)(x, a)
        };
        let (mut out, mut saved) = (vec![[0f32; 8]; n / 8 + 3], vec![0f32; n]);
        let to = out.as_mut_ptr().cast::<f32>();
        let aligned = to.wrapping_add(to.align_offset(32)).wrapping_add(shift);
        let mut lanes = Lanes64::ZERO;
        let at = std::array::from_fn(|k| match links[k].1 {
            Operand::Run => runs[k].as_ptr(),
            _ => &raw const single[k],
        });
        let span = Span {
            x: x.as_ptr(),
            at,
            dst: aligned,
            save: saved.as_mut_ptr(),
            n,
            lanes: &raw mut lanes,
            stream,
        };
        // SAFETY: every pointer has `n` elements behind it; `out` has room for the shift.
        unsafe { run(&span) };
        fence();
        let want: Vec<f32> = (0..n).map(|i| (0..MOST).fold(x[i], |x, k| step(k, i, x))).collect();
        for (i, &w) in want.iter().enumerate() {
            // SAFETY: i < n.
            let got = unsafe { *aligned.add(i) };
            assert!(same(got, w), "{codes:?} n {n} at {i}: {got} for {w}");
            if sum == Some(true) {
                assert!(same(saved[i], step(0, i, x[i])), "{codes:?} n {n} at {i}: saved");
            }
        }
        if sum.is_some() {
            // SAFETY: `n` elements.
            let w = unsafe { crate::math::sum_x_f32(Isa::Portable)(want.as_ptr(), n) };
            assert!(same(lanes.total(), w), "{codes:?} n {n}: sum {} for {w}", lanes.total());
        }
    }

    #[test]
    fn every_chain_is_its_links_one_after_the_other() {
        if Isa::detect() == Isa::Portable {
            return;
        }
        let (mut chains, mut sums) = (0, 0);
        for codes in sequences() {
            if let Some(run) = chain(codes, Isa::detect()) {
                chains += 1;
                for (n, shift, stream) in
                    [(0, 0, false), (7, 0, true), (33, 3, true), (103, 0, false), (200, 5, true)]
                {
                    check(codes, run, n, shift, stream, None);
                }
            }
        }
        for codes in (0..24u8).flat_map(|b| (1..24u8).map(move |a| [a, b, 0, 0])) {
            for save in [false, true] {
                if let Some(run) = chain_sum(codes, save, Isa::detect()) {
                    sums += 1;
                    for n in [0, 5, 64, 103, 200] {
                        check(codes, run, n, 0, false, Some(save));
                    }
                }
            }
        }
        assert!(chains > 150 && sums > 6, "{chains} chains, {sums} sums");
    }
}
