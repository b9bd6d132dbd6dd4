//! Bytes that kernels load and store, counted by the VM.

use dvm::testing::traffic::{TRAFFIC, TrafficCase, measure};
use dvm::{DType, MachineSpec, Module, Options, Session};

/// Vector cases at their shapes, with whether a row fits the local memory of a machine.
fn vectors(
    spec: &MachineSpec,
) -> impl Iterator<Item = (&'static TrafficCase, &'static [(&'static str, i64)], bool)> {
    let local = spec.target.capacity(dvm::bc::Space::Ub);
    TRAFFIC.iter().filter(|c| c.vector).flat_map(move |case| {
        let shapes = case.shapes.iter().copied();
        shapes.map(move |shape| {
            let row = shape.iter().find(|(n, _)| *n == "c").map_or(0, |(_, v)| *v as u64 * 4);
            // Whatever else lives beside it: a few rows of operands and results.
            (case, shape, 6 * row <= local)
        })
    })
}

#[test]
fn fused_vector_kernels_move_what_they_must() {
    let (mut whole, mut split) = (0, 0);
    for name in ["host-ref", "tiny", "ascend-910b2", "ascend-950"] {
        let spec = MachineSpec::named(name).unwrap();
        for (case, shape, fits) in vectors(&spec) {
            let t = measure(case, shape, &spec).unwrap();
            let what = format!("{} {shape:?} on {name}: {t:?}", case.name);
            // A few long rows are several templates, so that all cores take part; then totals are stored too.
            let pieces = t.kernels.0 > 1;
            assert!(!(pieces && fits), "{what}");
            assert!(t.fused.1 >= t.least.1, "stored too little: {what}");
            assert!(
                t.fused.1 - t.least.1 <= if pieces { t.least.1 / 100 } else { 0 },
                "stored again: {what}"
            );
            assert!(t.fused.0 >= t.least.0, "counted too little: {what}");
            if fits {
                whole += 1;
                // Weights are read once by each core that has rows.
                let r = shape.iter().find(|(n, _)| *n == "r").map_or(1, |(_, v)| *v as u64);
                let x = 4 * r * shape.iter().find(|(n, _)| *n == "c").map_or(0, |(_, v)| *v as u64);
                let readers = if spec.target.cores > 2 { r.min(spec.target.cores.into()) } else { 1 };
                let least = x + (t.least.0 - x) * readers + t.least.1;
                assert!(10 * (t.fused.0 + t.fused.1) <= 11 * least, "{:.3}: {what}", t.ratio());
            } else {
                // Once more for each reduction that must be finished before the row is looked at again; weights once a row.
                split += 1;
                let value = |s: &str| shape.iter().find(|(n, _)| *n == s).map_or(0, |(_, v)| *v as u64);
                let x = 4 * value("r") * value("c");
                let totals = if pieces { t.least.0 / 100 } else { 0 };
                let most = x * (1 + case.passes) + (t.least.0 - x) * value("r") + totals;
                assert!(t.fused.0 <= most, "{} of {most}: {what}", t.fused.0);
            }
        }
    }
    assert!(whole > 20 && split > 5, "{whole} whole, {split} split");
}

#[test]
fn fusion_spares_traffic() {
    let spec = MachineSpec::named("host-ref").unwrap();
    for case in TRAFFIC {
        let t = measure(case, case.shapes[0], &spec).unwrap();
        assert!(t.kernels.0 < t.kernels.1, "{}: {t:?}", case.name);
        assert!(t.fused.0 + t.fused.1 < t.unfused.0 + t.unfused.1, "{}: {t:?}", case.name);
    }
}

#[test]
fn counts_are_exact() {
    // x is read once, in a ragged number of tiles, y once per row unless it stays; the sum and the result are stored.
    let text = "graph g(%x: f32[r, c], %y: f32[c]) -> (%z, %s) {
        %z = add %x, %y
        %s = reduce %z {op = sum, axes = [1], keepdims = false}
    }";
    let module = Module::from_text(text).unwrap();
    let fill = |n: &str, shape: &[usize]| (n.to_string(), dvm::fill::fill(n, DType::F32, shape).unwrap());
    for (r, c) in [(1, 1), (7, 5), (37, 1001), (0, 3)] {
        let mut options = Options::default();
        (options.traffic, options.threads) = (true, Some(1));
        options.spec = Some(MachineSpec::named("host-ref").unwrap());
        let mut s = Session::new(&module, options).unwrap();
        s.run([fill("x", &[r, c]), fill("y", &[c])]).unwrap();
        let (n, m) = ((4 * r * c) as u64, (4 * c) as u64);
        let report = s.last_run();
        assert_eq!(report.stored_bytes, n + 4 * r as u64, "{r}x{c}");
        let least = if r == 0 { 0 } else { n + m };
        assert!((least..=n + m).contains(&report.loaded_bytes), "{r}x{c}: {} loaded", report.loaded_bytes);
        // Nothing is counted that nobody asked for.
        let mut s = Session::new(&module, Options::default()).unwrap();
        s.run([fill("x", &[r, c]), fill("y", &[c])]).unwrap();
        assert_eq!((s.last_run().loaded_bytes, s.last_run().stored_bytes), (0, 0));
    }
}
