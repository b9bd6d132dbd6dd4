//! A launch that has run before allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::kernels::kernel;
use common::*;
use dvm_bc::{DType, Limits, Role, Verified};
use dvm_vm::{ArgRef, BuildOptions, Pool, Runtime};

struct Counting;
static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steady_state_allocates_nothing() {
    let p = (0..)
        .filter_map(kernel)
        .find(|p| p.templates[0].parallel[0] > 1 && Verified::new(p.clone(), &Limits::default()).is_ok())
        .unwrap();
    let exe = build(p.clone(), &BuildOptions::default());
    let mut bufs: Vec<Bytes> =
        p.args.iter().map(|a| array(DType::F32, a.bytes as usize / 4, |_| V::F(1.0))).collect();
    let mut args: Vec<ArgRef<'_>> = bufs
        .iter_mut()
        .zip(&p.args)
        .map(|(b, a)| if a.role == Role::Output { ArgRef::Out(b.get_mut()) } else { ArgRef::In(b.get()) })
        .collect();
    for workers in [1, 3] {
        let rt = Runtime::new(Arc::new(Pool::new(workers)));
        // A worker allocates its frame when it first takes part, which may be late.
        let quiet = (0..50).any(|_| {
            let before = COUNT.load(Ordering::Relaxed);
            for _ in 0..200 {
                rt.launch(&exe, &mut args).unwrap();
            }
            COUNT.load(Ordering::Relaxed) == before
        });
        assert!(quiet, "{workers} workers");
    }
}
