//! The machine at hand.

use dvm_bc::SpaceSpec;

use crate::MachineSpec;

/// Assumed where the system does not tell: the L2 for which `host-ref` is written.
const DEFAULT_L2: u64 = 512 << 10;

impl MachineSpec {
    /// A spec for the host with `threads` cores (at least one): local memories sized from the L2 cache, costs as `host-ref`.
    /// Cache sizes come from the system where it tells, else they are assumed.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the shipped spec is tested")]
    pub fn detect(threads: u32) -> MachineSpec {
        let mut spec = MachineSpec::named("host-ref").expect("shipped specs parse");
        let l2 = cache_bytes(2).unwrap_or(DEFAULT_L2).clamp(128 << 10, 4 << 20);
        // One unit for the part of L2 that vector tiles may use; other spaces keep host-ref's proportions.
        let unit = (l2 / 2) & !0xffff;
        for SpaceSpec { space, bytes } in &mut spec.target.spaces {
            *bytes = if *space == dvm_bc::Space::PanelB { 2 * unit } else { unit };
        }
        spec.target.name = "host".to_owned();
        spec.target.cores = threads.clamp(1, 1 << 16);
        spec.costs.cube.cores = spec.target.cores;
        if let Some(l3) = cache_bytes(3) {
            spec.costs.dma.cache_bytes = l3;
        }
        spec
    }
}

/// Size of the first core's data cache of this level.
fn cache_bytes(level: u32) -> Option<u64> {
    let read = |index: u32, file: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}")).ok()
    };
    (0..8).find_map(|index| {
        let is_level = read(index, "level")?.trim() == level.to_string();
        let is_data = read(index, "type")?.trim() != "Instruction";
        if is_level && is_data { parse_size(read(index, "size")?.trim()) } else { None }
    })
}

/// `512K`, `32M` or plain bytes; nothing for 0, which some virtual machines report.
fn parse_size(s: &str) -> Option<u64> {
    let (digits, unit) = match s.as_bytes().last()? {
        b'K' => (&s[..s.len() - 1], 1 << 10),
        b'M' => (&s[..s.len() - 1], 1 << 20),
        _ => (s, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_parse() {
        for (text, bytes) in [
            ("512K", Some(512 << 10)),
            ("32M", Some(32 << 20)),
            ("4096", Some(4096)),
            ("0K", None),
            ("", None),
            ("many", None),
            ("99999999999999999999M", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
