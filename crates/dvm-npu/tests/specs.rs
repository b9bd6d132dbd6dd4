//! Shipped specs are sound; broken ones say why.

use dvm_bc::Space;
use dvm_npu::{MachineSpec, SpecError};

#[test]
fn shipped_specs_are_sound_and_round_trip() {
    for name in MachineSpec::NAMES {
        let spec = MachineSpec::named(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(spec.target.name, *name);
        assert!(Space::ALL.iter().all(|&s| spec.target.capacity(s) > 0), "{name}");
        let text = spec.to_toml().expect(name);
        assert_eq!(MachineSpec::from_toml(&text).expect(name), spec, "{name}");
    }
}

#[test]
fn reference_host_is_frozen() {
    let t = MachineSpec::named("host-ref").expect("shipped").target;
    assert_eq!((t.cores, t.block, t.panel_mr), (2, 64, 6));
    assert_eq!(Space::ALL.map(|s| t.capacity(s) >> 10), [256, 256, 512, 256]);
    assert_eq!([1, 2, 4, 8].map(|s| t.nr(s)), [16, 16, 16, 8]);
}

#[test]
fn machines_have_what_the_vendor_says() {
    use dvm_bc::{Class, DType};
    let target = |name| MachineSpec::named(name).expect("shipped").target;
    for (name, cube, vectors, asynchronous) in [
        ("host-ref", 0, 1, false),
        ("tiny", 0, 1, false),
        ("tiny-npu", 2, 2, true),
        ("ascend-910b2", 24, 2, true),
        ("ascend-910b3", 20, 2, true),
        ("ascend-910b4", 20, 2, true),
        ("ascend-950", 32, 2, true),
    ] {
        let t = target(name);
        assert_eq!((t.cube_cores, t.vec_per_cube(), t.async_pipes), (cube, vectors, asynchronous), "{name}");
    }
    for (name, class, dtype, legal) in [
        ("host-ref", Class::Arith, DType::BF16, true),
        ("tiny-npu", Class::Arith, DType::F64, true),
        ("ascend-910b2", Class::Arith, DType::BF16, false),
        ("ascend-910b2", Class::Move, DType::BF16, true),
        ("ascend-910b2", Class::Arith, DType::I8, false),
        ("ascend-910b2", Class::Arith, DType::I16, false),
        ("ascend-910b4", Class::Exp, DType::BF16, false),
        ("ascend-910b4", Class::Dma, DType::F64, true),
        ("ascend-950", Class::Arith, DType::BF16, true),
        ("ascend-950", Class::Exp, DType::BF16, false),
    ] {
        assert_eq!(target(name).is_legal(class, dtype), legal, "{name} {class:?} {dtype}");
    }
}

#[test]
fn detected_host_is_sound() {
    for threads in [0, 1, 7] {
        let spec = MachineSpec::detect(threads);
        assert_eq!(spec.target.problems(), Vec::<String>::new());
        assert_eq!(spec.target.cores, threads.max(1));
        assert!(spec.target.capacity(Space::Ub) >= 64 << 10);
    }
}

#[test]
fn broken_specs_say_why() {
    let tiny = |over: &str| format!("inherits = \"tiny\"\n{over}");
    for (text, expect) in [
        ("= 3".to_owned(), "machine spec: TOML parse error at line 1"),
        ("name = \"x\"".to_owned(), "missing field `target`"),
        (tiny("colour = 3"), "unknown field `colour`"),
        ("inherits = \"nobody\"".to_owned(), "unknown machine `nobody`; known are host-ref, "),
        ("inherits = 3".to_owned(), "unknown machine ``"),
        (tiny("[target]\ncores = 0"), "0 cores are not in 1..=65536"),
        (tiny("[target]\ncores = \"two\""), "invalid type: string \"two\", expected u32"),
        (tiny("[target]\nblock = 48"), "block of 48 bytes is not a power of two"),
        (tiny("[target.spaces]\nub = 100"), "space ub: 100 bytes are not whole blocks"),
        (tiny("[target.panel_nr]\n3 = 16"), "panel width for elements of 3 bytes"),
        (tiny("[target.panel_nr]\nfour = 16"), "key `four` is not a dtype's size"),
        (tiny("[costs]\ntile_ns = -1"), "costs.tile_ns = -1 is not a positive number"),
        (tiny("[target]\ncube_cores = 1"), "costs.cube.cores = 2, but the target has 1 cube cores"),
        (tiny("[target.legal]\nadd = []"), "legal: `add` is no class"),
        (tiny("[target.legal]\narith = [\"f8\"]"), "legal.arith: `f8` is no dtype"),
        (tiny("[costs.dma]\ncore_rate = nan"), "costs.dma.core_rate = NaN"),
        (tiny("[costs.dma]\nunaligned_factor = 1.5"), "unaligned_factor = 1.5 is above 1"),
    ] {
        let error = MachineSpec::from_toml(&text).expect_err(&text).to_string();
        assert!(error.contains(expect), "{text}\n  gives: {error}\n  wants: {expect}");
    }
    let two = MachineSpec::from_toml(&tiny("[target]\ncores = 0\nblock = 3")).expect_err("two problems");
    assert!(matches!(two, SpecError::Invalid { problems, .. } if problems.len() > 2));
}
