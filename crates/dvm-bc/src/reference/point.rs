//! The unit space: at which point an instruction executes, and in which order a tile visits its points.

use smallvec::{SmallVec, smallvec};

use crate::{ExtentId, MAX_PARALLEL, MAX_SEQ, Phase, Place, Size, Strides, Template};

/// One value per extent.
pub type PerExtent = SmallVec<[u32; MAX_PARALLEL + MAX_SEQ]>;

/// A point of the unit space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The extents: parallel ones, then the sequential ones of the phase.
    pub extents: PerExtent,
    /// Index of each extent. Sequential extents that have no index in the section (in `init` and `finish`) stand at 0.
    pub index: PerExtent,
    /// Number of the tile in its unit.
    pub tile: u64,
    /// No sequential extent has left the first position of its walk: `first` starts afresh here.
    pub first: bool,
}

impl Point {
    /// The parallel tile with this number, without sequential extents.
    #[must_use]
    pub fn tile(parallel: &[u32], tile: u64) -> Point {
        let mut index: PerExtent = smallvec![0; parallel.len()];
        let mut rest = tile;
        for (i, &n) in index.iter_mut().zip(parallel).rev() {
            *i = (rest % u64::from(n.max(1))) as u32;
            rest /= u64::from(n.max(1));
        }
        Point { extents: PerExtent::from_slice(parallel), index, tile, first: true }
    }
    /// Whether the extent stands at its last index.
    #[must_use]
    pub fn is_last(&self, extent: ExtentId) -> bool {
        let e = usize::from(extent);
        match (self.index.get(e), self.extents.get(e)) {
            (Some(&i), Some(&n)) => u64::from(i) + 1 == u64::from(n),
            _ => false,
        }
    }
    /// A count at this point.
    #[must_use]
    pub fn count(&self, size: Size) -> u64 {
        u64::from(size.at(|e| self.is_last(e)))
    }
    /// `sum(index(extent) * stride)`, wrapping.
    #[must_use]
    pub fn affine(&self, strides: &Strides) -> i64 {
        strides.iter().fold(0i64, |sum, &(e, stride)| {
            let index = self.index.get(usize::from(e)).copied().unwrap_or(0);
            sum.wrapping_add(i64::from(index).wrapping_mul(stride))
        })
    }
}

/// Number of parallel tiles of a template; saturates.
#[must_use]
pub fn tiles(template: &Template) -> u64 {
    template.parallel.iter().fold(1, |n, &e| n.saturating_mul(u64::from(e)))
}

/// Visits every execution of a section by one tile, in program order: `visit(phase, section, point)` with indices into
/// [`Template::phases`] and [`Phase::sections`].
///
/// # Errors
/// The first one that `visit` returns.
pub fn walk_tile<E>(
    template: &Template,
    tile: u64,
    mut visit: impl FnMut(usize, usize, &Point) -> Result<(), E>,
) -> Result<(), E> {
    for (p, phase) in template.phases.iter().enumerate() {
        let mut point = Point::tile(&template.parallel, tile);
        point.extents.extend_from_slice(&phase.seq);
        point.index.resize(point.extents.len(), 0);
        let mut walk = Walk { phase, parallel: template.parallel.len(), visit: &mut |s, q| visit(p, s, q) };
        walk.depth(0, &mut point, true)?;
    }
    Ok(())
}

struct Walk<'a, 'v, E> {
    phase: &'a Phase,
    parallel: usize,
    visit: &'v mut dyn FnMut(usize, &Point) -> Result<(), E>,
}

impl<E> Walk<'_, '_, E> {
    fn section(&mut self, place: Place, point: &Point) -> Result<(), E> {
        match self.phase.sections.iter().position(|s| s.place == place) {
            Some(s) => (self.visit)(s, point),
            None => Ok(()),
        }
    }

    /// `first`: the loops outside stand at the first position of their walks.
    fn depth(&mut self, depth: usize, point: &mut Point, first: bool) -> Result<(), E> {
        let seq = &self.phase.seq;
        let outermost = depth == 0;
        point.first = first;
        if depth == seq.len() && !outermost {
            return self.section(Place::Body, point);
        }
        self.section(Place::Init(depth as u8), point)?;
        if seq.is_empty() {
            self.section(Place::Body, point)?;
        } else if !seq.contains(&0) {
            let n = seq[depth];
            let rotate = self.phase.rotate && depth + 1 == seq.len();
            let start = if rotate { point.tile % u64::from(n) } else { 0 };
            for k in 0..n {
                let index = (u64::from(k) + start) % u64::from(n);
                point.index[self.parallel + depth] = index as u32;
                self.depth(depth + 1, point, first && k == 0)?;
            }
            point.index[self.parallel + depth] = 0;
            point.first = first;
        }
        self.section(Place::Finish(depth as u8), point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Kind, Section};

    fn visits(seq: &[u32], rotate: bool, tile: u64) -> Vec<String> {
        let places = [Place::Init(0), Place::Init(1), Place::Body, Place::Finish(1), Place::Finish(0)];
        let deep = |p: &Place| !matches!(p, Place::Init(d) | Place::Finish(d) if usize::from(*d) >= seq.len().max(1));
        let sections =
            places.into_iter().filter(deep).map(|place| Section { place, code: Code::default() }).collect();
        let template = Template {
            name: "t".into(),
            kind: Kind::Vector,
            slots: vec![],
            parallel: vec![3],
            phases: vec![Phase { seq: seq.to_vec(), rotate, sections }],
        };
        let mut out = vec![];
        let done: Result<(), ()> = walk_tile(&template, tile, |p, s, q| {
            let first = if q.first { "!" } else { "" };
            out.push(format!("{}{:?}{first}", template.phases[p].sections[s].place, &q.index[..]));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        out
    }

    #[test]
    fn sections_run_in_order() {
        assert_eq!(visits(&[], false, 1), ["init(0)[1]!", "body[1]!", "finish(0)[1]!"]);
        assert_eq!(visits(&[0], false, 0), ["init(0)[0, 0]!", "finish(0)[0, 0]!"]);
        assert_eq!(visits(&[2, 0], false, 0), ["init(0)[0, 0, 0]!", "finish(0)[0, 0, 0]!"]);
        assert_eq!(
            visits(&[3], true, 2),
            ["init(0)[2, 0]!", "body[2, 2]!", "body[2, 0]", "body[2, 1]", "finish(0)[2, 0]!"]
        );
        assert_eq!(
            visits(&[2, 2], false, 0),
            [
                "init(0)[0, 0, 0]!",
                "init(1)[0, 0, 0]!",
                "body[0, 0, 0]!",
                "body[0, 0, 1]",
                "finish(1)[0, 0, 0]!",
                "init(1)[0, 1, 0]",
                "body[0, 1, 0]",
                "body[0, 1, 1]",
                "finish(1)[0, 1, 0]",
                "finish(0)[0, 0, 0]!"
            ]
        );
    }
}
