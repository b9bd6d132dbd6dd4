//! Sorting rows of keys, each with a value.

use dvm_bc::DType;
use half::{bf16, f16};

use crate::elem::{Bool8, with_elem};

/// A key in the order of unsigned integers, and where it was.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    key: u64,
    from: u32,
}

/// An element whose order can be told by an unsigned integer: NaN is the largest and equal to itself, zeros are equal.
trait Key: Copy {
    fn order(self) -> u64;
}

macro_rules! keys {
    ($($t:ty: $x:ident => $e:expr;)*) => {
        $(impl Key for $t {
            #[inline(always)]
            fn order(self) -> u64 { let $x = self; $e }
        })*
    };
}
keys! {
    u8: x => x.into();
    u16: x => x.into();
    u32: x => x.into();
    u64: x => x;
    i8: x => i64::from(x).order();
    i16: x => i64::from(x).order();
    i32: x => i64::from(x).order();
    i64: x => x as u64 ^ 1 << 63;
    f32: x => f64::from(x).order();
    f16: x => x.to_f64().order();
    bf16: x => x.to_f64().order();
    Bool8: x => u64::from(x.0 != 0);
    f64: x => {
        // Adding +0 makes -0 one.
        let b = (x + 0.0).to_bits();
        if x.is_nan() { u64::MAX } else if b >> 63 != 0 { !b } else { b | 1 << 63 }
    };
}

/// Sorts `n` keys of `dtype` and the values with them; equal keys keep their order. `items` is scratch.
///
/// # Safety
/// `key` and `value` are valid for `n` reads and writes, aligned, and do not overlap. `n` is below 2^32.
pub(crate) unsafe fn sort(
    dtype: DType,
    key: *mut u8,
    value: *mut i64,
    n: usize,
    descending: bool,
    items: &mut Vec<Item>,
) {
    with_elem!(
        dtype,
        // SAFETY: by the caller.
        T => unsafe { row::<T>(key.cast(), value, n, descending, items) },
        half => match dtype {
            // SAFETY: by the caller.
            DType::F16 => unsafe { row::<f16>(key.cast(), value, n, descending, items) },
            // SAFETY: by the caller.
            _ => unsafe { row::<bf16>(key.cast(), value, n, descending, items) },
        }
    );
}

unsafe fn row<T: Key>(key: *mut T, value: *mut i64, n: usize, descending: bool, items: &mut Vec<Item>) {
    items.clear();
    items.extend((0..n).map(|i| {
        // SAFETY: i < n.
        let order = unsafe { *key.add(i) }.order();
        Item { key: if descending { !order } else { order }, from: i as u32 }
    }));
    // The place makes it stable, and needs no memory.
    items.sort_unstable_by_key(|i| (i.key, i.from));
    // Along the cycles of the permutation: a place that is done points to itself.
    for first in 0..n {
        if items[first].from as usize == first {
            continue;
        }
        // SAFETY: places are below n.
        unsafe {
            let (k, v) = (*key.add(first), *value.add(first));
            let mut hole = first;
            loop {
                let from = std::mem::replace(&mut items[hole].from, hole as u32) as usize;
                if from == first {
                    key.add(hole).write(k);
                    value.add(hole).write(v);
                    break;
                }
                key.add(hole).write(*key.add(from));
                value.add(hole).write(*value.add(from));
                hole = from;
            }
        }
    }
}
