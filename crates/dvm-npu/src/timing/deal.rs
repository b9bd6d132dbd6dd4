//! Which core executes which tiles of a step.

use dvm_bc::{Kind, Program, Unit};

use super::code::Code;

/// A unit's tiles that one worker executes in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Share {
    pub(super) unit: u32,
    pub(super) tiles: std::ops::Range<u64>,
}

/// A core, or a cube core with its vector cores, and what it executes in a step.
pub(super) struct Assignment {
    /// A cube core leads it.
    pub(super) group: bool,
    /// Number of the vector core, or of the cube core of a group.
    pub(super) core: u32,
    pub(super) shares: Vec<Share>,
}

fn is_group(program: &Program, unit: &Unit) -> bool {
    let kind = program.templates.get(unit.template as usize).map(|t| t.kind);
    program.target.cube_cores > 0 && kind.is_some_and(|k| k != Kind::Vector)
}

/// Who does what in a step. Cube cores lead groups; a vector core that no mix unit needs takes vector units.
pub(super) fn deal(program: &Program, step: usize, codes: &[Code], most: u32) -> Vec<Assignment> {
    let Some(step) = program.steps.get(step) else { return Vec::new() };
    let target = &program.target;
    let units = |group: bool| -> Vec<(u32, u64, u64)> {
        let of = step.units.iter().enumerate().filter(|(_, u)| is_group(program, u) == group);
        of.map(|(i, u)| (i as u32, codes[u.template as usize].tiles(), u64::from(u.weight.max(1)))).collect()
    };
    let (grouped, vector) = (units(true), units(false));
    let work = |u: &[(u32, u64, u64)]| u.iter().map(|u| u.1 as f64 * u.2 as f64).sum::<f64>();
    let mixed = step.units.iter().any(|u| {
        program.templates.get(u.template as usize).is_some_and(|t| t.kind == Kind::Mix)
            && is_group(program, u)
    });
    let cores = target.cores.min(most).max(1);
    let cubes = if most < target.cores { target.cube_cores.min(most).max(1) } else { target.cube_cores };
    let (mut leads, mut first_vector) = (if grouped.is_empty() { 0 } else { cubes }, 0);
    if mixed && !vector.is_empty() && cubes > 1 {
        let (g, v) = (work(&grouped), work(&vector));
        leads = ((f64::from(cubes) * g / (g + v)).round() as u32).clamp(1, cubes - 1);
        first_vector = leads * target.vec_per_cube();
    }
    let mut out = Vec::new();
    for (group, units, first, count) in [
        (true, &grouped, 0, leads),
        (false, &vector, first_vector, cores.saturating_sub(first_vector).max(1)),
    ] {
        if units.is_empty() {
            continue;
        }
        for (w, shares) in split(units, count as usize).into_iter().enumerate() {
            out.push(Assignment { group, core: first + w as u32, shares });
        }
    }
    out
}

/// With at most as many units as workers each unit gets contiguous workers by weight, else each worker a contiguous run of all tiles.
fn split(units: &[(u32, u64, u64)], workers: usize) -> Vec<Vec<Share>> {
    let mut out: Vec<Vec<Share>> = vec![Vec::new(); workers];
    let mut push = |w: usize, unit: u32, tiles: std::ops::Range<u64>| {
        if !tiles.is_empty()
            && let Some(shares) = out.get_mut(w)
        {
            shares.push(Share { unit, tiles });
        }
    };
    let at = |n: u64, i: usize, of: usize| (u128::from(n) * i as u128 / of.max(1) as u128) as u64;
    if units.len() <= workers {
        let total = units.iter().map(|u| u.1 as f64 * u.2 as f64).sum::<f64>().max(1.0);
        let (mut next, mut spare) = (0, workers - units.len());
        for (i, &(unit, tiles, weight)) in units.iter().enumerate() {
            let wish = workers as f64 * (tiles as f64 * weight as f64) / total;
            let extra =
                ((wish.round().max(1.0) as usize) - 1).min(spare).min(tiles.saturating_sub(1) as usize);
            // The last unit takes what is left.
            let extra =
                if i + 1 == units.len() { spare.min(tiles.saturating_sub(1) as usize) } else { extra };
            spare -= extra;
            let n = extra + 1;
            (0..n).for_each(|w| push(next + w, unit, at(tiles, w, n)..at(tiles, w + 1, n)));
            next += n;
        }
    } else {
        let pool = units.iter().fold(0u64, |n, u| n.saturating_add(u.1));
        for w in 0..workers {
            let (from, to) = (at(pool, w, workers), at(pool, w + 1, workers));
            let mut start = 0u64;
            for &(unit, tiles, _) in units {
                let end = start.saturating_add(tiles);
                let (lo, hi) = (from.max(start), to.min(end));
                if lo < hi {
                    push(w, unit, lo - start..hi - start);
                }
                start = end;
            }
        }
    }
    out
}
