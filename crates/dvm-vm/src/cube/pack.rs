//! Packing for any element type and any strides.

use half::{bf16, f16};

use super::Pack;

/// The element of a panel made from an element of an argument.
pub(super) trait PackElem<T>: Copy {
    const ZERO: T;
    fn widen(self) -> T;
}

macro_rules! same {
    ($($t:ty),*) => { $(
        impl PackElem<$t> for $t {
            const ZERO: $t = 0;
            #[inline(always)]
            fn widen(self) -> $t { self }
        }
    )* };
}
same!(u8, u16, u32, u64);

impl PackElem<f32> for f16 {
    const ZERO: f32 = 0.0;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}
impl PackElem<f32> for bf16 {
    const ZERO: f32 = 0.0;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Packs elements of type `S` into panels of type `T`, reading along whichever direction is contiguous.
pub(super) unsafe fn pack<S: PackElem<T>, T: Copy>(dst: *mut u8, src: *const u8, p: &Pack) {
    let dst = dst.cast::<T>();
    let mut first = 0;
    let mut panel = dst;
    while first < p.lines {
        let lines = p.width.min(p.lines - first);
        // SAFETY: the caller promises the panel and `lines` x `k` elements behind `src`, aligned to their size.
        unsafe {
            let src = src.offset(first as isize * p.line_stride);
            if p.line_stride.unsigned_abs() <= p.k_stride.unsigned_abs() {
                for kk in 0..p.k {
                    let step = src.offset(kk as isize * p.k_stride);
                    for i in 0..lines {
                        let x = step.offset(i as isize * p.line_stride).cast::<S>().read();
                        panel.add(kk * p.width + i).write(x.widen());
                    }
                }
            } else {
                for i in 0..lines {
                    let line = src.offset(i as isize * p.line_stride);
                    for kk in 0..p.k {
                        let x = line.offset(kk as isize * p.k_stride).cast::<S>().read();
                        panel.add(kk * p.width + i).write(x.widen());
                    }
                }
            }
            pad(panel, lines, p, S::ZERO);
        }
        first += p.width;
        if first < p.lines {
            // SAFETY: another panel follows.
            panel = unsafe { panel.add(p.panel_stride) };
        }
    }
}

/// Sets the missing lines of a panel to zero.
///
/// # Safety
/// The panel holds `width * k` elements.
#[inline(always)]
pub(super) unsafe fn pad<T: Copy>(panel: *mut T, lines: usize, p: &Pack, zero: T) {
    if lines == p.width {
        return;
    }
    for kk in 0..p.k {
        for i in lines..p.width {
            // SAFETY: kk < k and i < width.
            unsafe { panel.add(kk * p.width + i).write(zero) };
        }
    }
}
