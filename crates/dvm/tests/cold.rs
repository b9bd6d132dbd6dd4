//! A first run for new dims, in groups of a plan's levels that are encoded while others run: the values of a run as a whole, bit for
//! bit, and encoding that is hidden.

use std::fmt::Write;

use dvm::{Error, Module, Options, Session, Tensor, fill};

/// A tower of layers, each of another width, so that most kernels are there once. `early` is an output that later layers read too.
fn tower() -> Module {
    let (mut inputs, mut body, mut x, mut width) = (String::new(), String::new(), "x".to_owned(), 16);
    for l in 0..16 {
        let next = 16 + 8 * ((l * 5) % 17);
        let _ = write!(inputs, ", %w{l}: f32[{width}, {next}], %g{l}: f32[{next}]");
        let _ = writeln!(body, "  %m{l} = matmul %{x}, %w{l} {{}}");
        let _ = writeln!(body, "  %n{l} = rms_norm %m{l}, %g{l} {{axis = 1, eps = 1e-5}}");
        let _ = writeln!(body, "  %s{l} = softmax %n{l} {{axis = 1}}");
        let name = if l == 1 { "early".to_owned() } else { format!("y{l}") };
        let _ = writeln!(body, "  %{name} = add %s{l}, %n{l}");
        (x, width) = (name, next);
    }
    let _ = writeln!(body, "  %r = reduce %early {{op = max, axes = [1], keepdims = true}}");
    let _ = writeln!(body, "  %z = sub %{x}, %r");
    Module::from_text(&format!("graph tower(%x: f32[n, 16]{inputs}) -> (%early, %z) {{\n{body}}}\n")).unwrap()
}

fn inputs(module: &Module, n: usize) -> Vec<(String, Tensor)> {
    let graph = module.graph(&[], &[]).unwrap();
    let dims = [("n".to_owned(), n as i64)];
    let (_, shapes) = dvm::input_shapes(&graph, &[], &dims).unwrap();
    let tensor = |(i, s): (&dvm::Input, &Vec<usize>)| {
        (i.name.clone(), fill::fill(&i.name, graph.dtype(i.value), s).unwrap())
    };
    graph.inputs.iter().zip(&shapes).map(tensor).collect()
}

fn session(module: &Module, overlap: bool, threads: usize) -> Session {
    let mut options = Options::default();
    (options.overlap, options.threads) = (overlap, Some(threads));
    Session::new(module, options).unwrap()
}

#[test]
fn values_are_those_of_a_run_as_a_whole() {
    let module = tower();
    let (mut on, mut off, mut one) =
        (session(&module, true, 3), session(&module, false, 3), session(&module, true, 1));
    for n in [5, 1, 0, 64, 301, 5] {
        let given = inputs(&module, n);
        let want = off.run(given.clone()).unwrap();
        let whole = off.last_run().clone();
        assert_eq!(on.run(given.clone()).unwrap(), want, "{n} rows");
        let r = on.last_run();
        assert!(r.launches > 1 && r.launches <= 4, "{r:?}");
        assert_eq!(r.kernels, whole.kernels, "a kernel is in one group");
        assert_eq!(whole.launches, 1);
        assert!(r.exposed_compile_us <= r.compile_us && (r.cache_hit || r.compile_us > 0.0), "{r:?}");
        // Again, from the cache; and after a program was made for the whole.
        assert_eq!(on.run(given.clone()).unwrap(), want);
        assert!(on.last_run().cache_hit && on.last_run().compile_us == 0.0);
        on.forget_programs();
        on.prepare(&given).unwrap();
        assert_eq!(on.run(given.clone()).unwrap(), want);
        assert_eq!((on.last_run().launches, on.last_run().cache_hit), (1, true));
        on.forget_programs();
        // With one thread there is nothing to hide behind.
        assert_eq!(one.run(given).unwrap(), want);
        let r = one.last_run();
        assert_eq!((r.launches, r.overlapped), (1, 0));
        assert_eq!(r.exposed_compile_us, r.compile_us);
    }
}

/// What decides is when things are begun, not how long they take on a machine that others use too.
#[test]
fn the_next_group_is_begun_before_the_last_has_run() {
    let module = tower();
    let mut s = session(&module, true, 2);
    let hidden = (1..200).find(|&n| {
        s.run(inputs(&module, 2 * n)).unwrap();
        let r = s.last_run();
        !r.cache_hit && r.overlapped + 1 == r.launches && r.exposed_compile_us < r.compile_us
    });
    assert!(hidden.is_some(), "of 199 new shapes none was encoded while it ran: {}", s.last_run());
}

#[test]
fn errors_leave_a_session_that_works() {
    let module = tower();
    let mut options = Options::default();
    (options.threads, options.max_bytes) = (Some(2), 400_000);
    let mut s = Session::new(&module, options).unwrap();
    let want = session(&module, false, 1).run(inputs(&module, 7)).unwrap();
    for _ in 0..5 {
        let e = s.run(inputs(&module, 4000)).unwrap_err();
        assert!(matches!(e, Error::Memory { .. }), "{e}");
        assert_eq!(s.run(inputs(&module, 7)).unwrap(), want);
        s.forget_programs();
    }
    let mut wrong = inputs(&module, 7);
    wrong[1].1 = Tensor::zeros(dvm::DType::F32, &[3, 3]).unwrap();
    assert!(s.run(wrong).is_err());
    s.cancel_handle().store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(s.run(inputs(&module, 9)).is_err());
    s.cancel_handle().store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(s.run(inputs(&module, 7)).unwrap(), want);
}
