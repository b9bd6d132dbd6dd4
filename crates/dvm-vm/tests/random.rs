//! Random kernels: binding loads and stores to arguments, strips, chains, stores past the caches, and instruction-set levels change no bit.

mod common;

use std::sync::Arc;

use common::kernels::kernel;
use common::*;
use dvm_bc::*;
use dvm_vm::{BuildOptions, Isa, Pool, Runtime};

const F32: DType = DType::F32;

#[test]
fn options_change_no_bit() {
    let rt = Runtime::new(Arc::new(Pool::new(2)));
    let (mut ran, mut shorter) = (0, 0);
    for seed in 0..3000 {
        let Some(p) = kernel(seed) else { continue };
        // A value used after its register was taken by a smaller one, say: the verifier knows.
        let Ok(_) = Verified::new(p.clone(), &Limits::default()) else { continue };
        let mut rng = Rng(seed);
        let inputs: Vec<Bytes> =
            p.args[..3].iter().map(|a| array(F32, a.bytes as usize / 4, |_| rng.value(F32))).collect();
        let refs: Vec<&Bytes> = inputs.iter().collect();
        let mut first: Option<(Vec<Bytes>, usize)> = None;
        for (elide, strips, isa, streams) in [
            (false, false, Isa::detect(), false),
            (true, false, Isa::detect(), false),
            (false, true, Isa::detect(), false),
            (true, true, Isa::detect(), false),
            (true, true, Isa::detect(), true),
            (true, true, Isa::Portable, false),
        ] {
            let mut options = BuildOptions::default();
            (options.elide, options.strips, options.isa) = (elide, strips, isa);
            options.stream_above = if streams { 0 } else { u64::MAX };
            let exe = build(p.clone(), &options);
            let (out, _) = launch(&rt, &exe, &refs).unwrap();
            match &first {
                None => first = Some((out, exe.op_count())),
                Some((want, ops)) => {
                    for (o, w) in out.iter().zip(want) {
                        let alike = values(F32, o).iter().zip(values(F32, w)).all(|(a, b)| same(*a, b));
                        assert!(
                            alike,
                            "seed {seed}: elide {elide}, strips {strips}, {isa:?}, streams {streams}\n{p:#?}"
                        );
                    }
                    shorter += usize::from(exe.op_count() < *ops);
                }
            }
        }
        ran += 1;
    }
    assert!(ran > 500, "only {ran} kernels passed the verifier");
    assert!(shorter > ran, "the options did little: {shorter} of {ran}");
}
