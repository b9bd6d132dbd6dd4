//! Reductions that carry an index, and running sums.

use dvm_bc::DType;

use crate::elem::{Elem, with_elem};

/// The value of a half given by its bits.
fn half(dtype: DType, bits: u16) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_bits(bits).to_f32(),
        _ => half::bf16::from_bits(bits).to_f32(),
    }
}

/// An arg-reduction resolved for a tile; counts and pitches as in [`super::reduce::Reduction`].
#[derive(Clone, Copy)]
pub(crate) struct ArgReduction {
    pub(crate) dtype: DType,
    pub(crate) largest: bool,
    /// Of equals the last counts.
    pub(crate) last: bool,
    pub(crate) outer: usize,
    pub(crate) red: usize,
    pub(crate) inner: usize,
    pub(crate) outer_pitch: usize,
    pub(crate) inner_pitch: usize,
    pub(crate) fresh: bool,
    /// Index of the tile's first element.
    pub(crate) base: i64,
}

impl ArgReduction {
    /// # Safety
    /// `src`, `index` (i64) and `value` are valid for what the counts and pitches imply, aligned, and disjoint.
    pub(crate) unsafe fn run(&self, index: *mut i64, value: *mut u8, src: *const u8) {
        // SAFETY: by the caller; halves order as their f32 values do.
        unsafe {
            with_elem!(self.dtype, T => {
                let none = if self.largest { T::LOWEST } else { T::HIGHEST };
                self.typed::<T, T>(index, value.cast(), src.cast(), none, |v| v);
            }, half => {
                let dtype = self.dtype;
                let infinity = if dtype == DType::F16 { 0x7c00 } else { 0x7f80 };
                let none = if self.largest { infinity | 0x8000 } else { infinity };
                self.typed::<u16, f32>(index, value.cast(), src.cast(), none, |v| half(dtype, v));
            });
        }
    }

    unsafe fn typed<S: Copy, T: Elem>(
        &self,
        index: *mut i64,
        value: *mut S,
        src: *const S,
        none: S,
        key: impl Fn(S) -> T,
    ) {
        for o in 0..self.outer {
            for i in 0..self.inner {
                // SAFETY: o, r, i are inside the counts.
                unsafe {
                    let at = o * self.inner_pitch + i;
                    let s = src.add(o * self.outer_pitch + i);
                    let (mut best, mut from) = if !self.fresh {
                        (Some((*index.add(at), *value.add(at))), 0)
                    } else if self.red > 0 {
                        (Some((self.base, *s)), 1)
                    } else {
                        (None, 0)
                    };
                    while from < self.red {
                        let v = *s.add(from * self.inner_pitch);
                        if best.is_none_or(|(_, b)| self.better(key(v), key(b))) {
                            best = Some((self.base.wrapping_add(from as i64), v));
                        }
                        from += 1;
                    }
                    // Nothing to choose from: index 0, and the identity.
                    let (k, v) = best.unwrap_or((0, none));
                    index.add(at).write(k);
                    value.add(at).write(v);
                }
            }
        }
    }

    /// Whether a later `v` replaces `b`. NaN counts as the extreme.
    #[inline(always)]
    fn better<T: Elem>(&self, v: T, b: T) -> bool {
        let (vn, bn) = (v.is_nan(), b.is_nan());
        if vn || bn {
            return vn && (!bn || self.last);
        }
        let strict = if self.largest { v > b } else { v < b };
        strict || (self.last && v == b)
    }
}

/// A running sum resolved for a tile. The carry of f16 and bf16 is f32.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    pub(crate) dtype: DType,
    pub(crate) outer: usize,
    pub(crate) red: usize,
    pub(crate) inner: usize,
    pub(crate) outer_pitch: usize,
    pub(crate) inner_pitch: usize,
    pub(crate) fresh: bool,
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
}

impl Running {
    /// # Safety
    /// As for a reduction; `dst` may equal `src`.
    pub(crate) unsafe fn run(&self, dst: *mut u8, carry: *mut u8, src: *const u8) {
        // SAFETY: by the caller.
        unsafe {
            with_elem!(self.dtype, T => self.typed::<T, T>(dst.cast(), carry.cast(), src.cast(), |v| v, |v| v), half => {
                let dtype = self.dtype;
                let to = |v: f32| match dtype {
                    DType::F16 => half::f16::from_f32(v).to_bits(),
                    _ => half::bf16::from_f32(v).to_bits(),
                };
                self.typed::<u16, f32>(dst.cast(), carry.cast(), src.cast(), |v| half(dtype, v), to);
            });
        }
    }

    unsafe fn typed<S: Copy, T: Elem>(
        &self,
        dst: *mut S,
        carry: *mut T,
        src: *const S,
        from: impl Fn(S) -> T,
        to: impl Fn(T) -> S,
    ) {
        for o in 0..self.outer {
            for i in 0..self.inner {
                // SAFETY: o, r, i are inside the counts.
                unsafe {
                    let c = carry.add(o * self.inner_pitch + i);
                    let mut sum = if self.fresh { T::ZERO } else { *c };
                    for k in 0..self.red {
                        let r = if self.reverse { self.red - 1 - k } else { k };
                        let at = o * self.outer_pitch + r * self.inner_pitch + i;
                        let next = sum.add(from(*src.add(at)));
                        dst.add(at).write(to(if self.exclusive { sum } else { next }));
                        sum = next;
                    }
                    c.write(sum);
                }
            }
        }
    }
}
