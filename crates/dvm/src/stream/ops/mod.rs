//! The ops of eager tensors, by kind.

mod compute;
mod create;
mod elementwise;
mod index;
mod shape;

use smallvec::SmallVec;

use crate::Error;

/// Axes to reduce: one or several numbers, negative ones counted from the end.
pub trait Axes {
    /// The axes as given.
    fn axes(&self) -> SmallVec<[isize; 4]>;
}

macro_rules! axes {
    ($($t:ty),*) => { $(
        impl Axes for $t {
            fn axes(&self) -> SmallVec<[isize; 4]> {
                SmallVec::from_slice(&[*self as isize])
            }
        }
        impl<const N: usize> Axes for [$t; N] {
            fn axes(&self) -> SmallVec<[isize; 4]> {
                self.iter().map(|&a| a as isize).collect()
            }
        }
        impl Axes for &[$t] {
            fn axes(&self) -> SmallVec<[isize; 4]> {
                self.iter().map(|&a| a as isize).collect()
            }
        }
    )* };
}
axes!(i32, i64, isize, usize);

/// An axis of a tensor of a rank.
fn axis(op: &str, axis: isize, rank: usize) -> Result<usize, Error> {
    let at = if axis < 0 { axis + rank as isize } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::Stream(format!("{op}: axis {axis} of a rank-{rank} tensor")))
}

/// Sorted distinct axes.
fn sorted(op: &str, given: &impl Axes, rank: usize) -> Result<Vec<usize>, Error> {
    let mut all: Vec<usize> =
        given.axes().into_iter().map(|a| axis(op, a, rank)).collect::<Result<_, _>>()?;
    all.sort_unstable();
    match all.windows(2).find(|w| w[0] == w[1]) {
        Some(w) => Err(Error::Stream(format!("{op}: axis {} is given twice", w[0]))),
        None => Ok(all),
    }
}
