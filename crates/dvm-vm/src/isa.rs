//! Which instructions the kernels may use, decided at run time.
//!
//! A build for a plain x86-64 must run everywhere, and results must not depend on where it runs: every level
//! computes the same bits.

/// A level of instruction-set support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust; `f32::mul_add` where other levels use a fused multiply-add.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2Fma,
}

impl Isa {
    /// The best level this machine supports.
    #[must_use]
    pub fn detect() -> Isa {
        if Isa::Avx2Fma.is_supported() { Isa::Avx2Fma } else { Isa::Portable }
    }

    /// Whether this machine can run kernels of this level.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
                    && std::arch::is_x86_feature_detected!("f16c")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2Fma => false,
        }
    }

    /// This level, or [`Isa::Portable`] where the machine lacks it. Kernel tables go through this, so a level that
    /// is named but not there is slow instead of undefined behaviour.
    #[must_use]
    pub fn or_portable(self) -> Isa {
        if self.is_supported() { self } else { Isa::Portable }
    }
}

/// Bytes of the last-level cache, from the system where it tells.
pub(crate) fn last_level_cache() -> u64 {
    static BYTES: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    const USUAL: u64 = 32 << 20;
    *BYTES.get_or_init(|| {
        let size = |index: u32| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            let text = std::fs::read_to_string(path).ok()?;
            let text = text.trim();
            let (digits, unit) =
                text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            let shift = match unit {
                "" => 0,
                "K" => 10,
                "M" => 20,
                _ => return None,
            };
            digits.parse::<u64>().ok()?.checked_shl(shift)
        };
        (0..8).filter_map(size).max().filter(|&n| n > 0).unwrap_or(USUAL)
    })
}

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    fn detected_level_is_supported() {
        assert!(Isa::Portable.is_supported());
        assert!(Isa::detect().is_supported());
        assert!(Isa::Avx2Fma.or_portable().is_supported());
    }
}
