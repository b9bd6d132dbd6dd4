//! "Written before it is read" against brute force: small random templates, every byte of local memory in every tile.

mod common;

use common::Rng;
use dvm_bc::*;

const SPACE: usize = 256;

struct Step {
    place: Place,
    phase: usize,
    dst: u32,
    /// What is read, and how.
    src: Option<(u32, Mode)>,
    rows: Size,
    cols: Size,
}

struct Case {
    parallel: Vec<u32>,
    seqs: Vec<Vec<u32>>,
    steps: Vec<Step>,
}

/// A count ragged in an extent below `extents`, of few shapes, so that they meet.
fn size(r: &mut Rng, extents: usize, most: u64) -> Size {
    let body = 1 + r.below(most) as u32;
    if extents > 0 && r.below(2) == 0 {
        return Size::ragged(body, 1 + r.below(u64::from(body)) as u32, r.below(extents as u64) as u8);
    }
    Size::fixed(body)
}

fn case(r: &mut Rng) -> Case {
    let parallel: Vec<u32> = (0..r.below(2)).map(|_| 1 + r.below(2) as u32).collect();
    let seqs: Vec<Vec<u32>> =
        (0..1 + r.below(2)).map(|_| (0..r.below(3)).map(|_| r.below(5).min(2) as u32).collect()).collect();
    let mut steps: Vec<Step> = Vec::new();
    for (phase, seq) in seqs.iter().enumerate() {
        let depths = seq.len().max(1) as u8;
        let places =
            (0..depths).map(Place::Init).chain([Place::Body]).chain((0..depths).rev().map(Place::Finish));
        for place in places {
            let depth = match place {
                Place::Body => seq.len(),
                Place::Init(d) | Place::Finish(d) => usize::from(d),
            };
            for _ in 0..r.below(3) {
                let n = parallel.len() + depth;
                let earlier = steps.len() as u64;
                // Often the shape of an earlier instruction, if its extents have an index here.
                let known = |s: Size| s.extent.is_none_or(|e| usize::from(e) < n);
                let model = (earlier > 0 && r.below(3) > 0).then(|| &steps[r.below(earlier) as usize]);
                let (rows, cols) = match model {
                    Some(m) if known(m.rows) && known(m.cols) => (m.rows, m.cols),
                    _ => (size(r, n, 3), size(r, n, 8)),
                };
                let src = match model {
                    Some(m) if r.below(4) > 0 => {
                        Some((m.dst, r.pick(&[Mode::Full, Mode::Full, Mode::Row, Mode::Col, Mode::One])))
                    }
                    _ => None,
                };
                let dst = match src {
                    Some((s, Mode::Full)) if r.below(2) == 0 => s,
                    _ => 4 * r.below(6) as u32,
                };
                steps.push(Step { place, phase, dst, src, rows, cols });
            }
        }
    }
    Case { parallel, seqs, steps }
}

fn program(c: &Case) -> Program {
    let mut phases: Vec<Phase> =
        c.seqs.iter().map(|s| Phase { seq: s.clone(), rotate: false, sections: vec![] }).collect();
    let local = |offset| Local { space: Space::Ub, offset };
    for s in &c.steps {
        let sections = &mut phases[s.phase].sections;
        if sections.last().is_none_or(|l| l.place != s.place) {
            sections.push(Section { place: s.place, code: Code::default() });
        }
        let (dst, rows, cols) = (local(s.dst), s.rows, s.cols);
        let inst = match s.src {
            None => Inst::new(Opcode::VFill, DType::U8, Fill { dst, value: 1, rows, cols }),
            Some((src, mode)) => Inst::new(
                Opcode::VCopy,
                DType::U8,
                Unary { dst, src: Src::Local(local(src), mode), rows, cols },
            ),
        };
        sections.last_mut().expect("just made").code.push(&inst).expect("fits");
    }
    Program {
        name: "p".into(),
        target: Target {
            name: "t".into(),
            cores: 2,
            spaces: vec![SpaceSpec { space: Space::Ub, bytes: SPACE as u64 }],
            block: 8,
            panel_nr: vec![],
            panel_mr: 1,
            exchange: Exchange::Direct,
            async_pipes: false,
            events: 0,
            cube_cores: 0,
            legal: vec![],
        },
        args: vec![],
        templates: vec![Template {
            name: "t".into(),
            kind: Kind::Vector,
            slots: vec![],
            parallel: c.parallel.clone(),
            phases,
        }],
        steps: vec![],
        aliases: vec![],
    }
}

/// Runs the code of a place for the indices `at` of the first extents; false where it reads what is not written.
fn run(c: &Case, phase: usize, place: Place, at: &[u32], all: &[u32], written: &mut [bool]) -> bool {
    let last = |e: u8| at[e as usize] + 1 == all[e as usize];
    c.steps.iter().filter(|s| s.phase == phase && s.place == place).all(|s| {
        let (rows, cols, pitch) = (s.rows.at(last) as usize, s.cols.at(last) as usize, s.cols.body as usize);
        let byte = |base: u32, r: usize, q: usize| 8 * base as usize + r * pitch + q;
        let points = || (0..rows).flat_map(|r| (0..cols).map(move |q| (r, q)));
        let sound = s.src.is_none_or(|(src, mode)| {
            points().all(|(r, q)| match mode {
                Mode::Full => written[byte(src, r, q)],
                Mode::Row => written[byte(src, 0, q)],
                Mode::Col => written[8 * src as usize + r],
                Mode::One => written[8 * src as usize],
            })
        });
        points().for_each(|(r, q)| written[byte(s.dst, r, q)] = true);
        sound
    })
}

fn walk(c: &Case, phase: usize, depth: usize, at: &mut Vec<u32>, all: &[u32], written: &mut [bool]) -> bool {
    let n = c.seqs[phase].len();
    let d = depth as u8;
    let wraps = depth < n.max(1);
    let mut ok = !wraps || run(c, phase, Place::Init(d), at, all, written);
    if depth == n {
        ok &= run(c, phase, Place::Body, at, all, written);
    } else {
        // An empty walk runs what wraps the whole of it, and nothing deeper.
        let count = if c.seqs[phase].contains(&0) { 0 } else { c.seqs[phase][depth] };
        for i in 0..count {
            at.push(i);
            ok &= walk(c, phase, depth + 1, at, all, written);
            at.pop();
        }
    }
    ok && (!wraps || run(c, phase, Place::Finish(d), at, all, written))
}

fn brute(c: &Case) -> bool {
    let tiles = c.parallel.iter().fold(vec![vec![]], |t: Vec<Vec<u32>>, &n| {
        t.iter().flat_map(|p| (0..n).map(|i| [p.clone(), vec![i]].concat()).collect::<Vec<_>>()).collect()
    });
    tiles.into_iter().all(|mut at| {
        let mut written = vec![false; 4 * SPACE];
        (0..c.seqs.len()).all(|phase| {
            let all = [c.parallel.clone(), c.seqs[phase].clone()].concat();
            walk(c, phase, 0, &mut at, &all, &mut written)
        })
    })
}

#[test]
fn accepted_templates_read_only_what_is_written() {
    let (mut accepted, mut sound) = (0, 0);
    for seed in 0..8_000 {
        let c = case(&mut Rng(seed));
        let p = program(&c);
        let ok = brute(&c);
        match Verified::new(p.clone(), &Limits::default()) {
            Ok(_) => {
                accepted += 1;
                assert!(ok, "seed {seed}\n{}", disasm(&p));
            }
            // Overlaps are another matter.
            Err(e) if e.violations.iter().all(|v| v.message.contains("before all of it is written")) => {
                sound += u32::from(ok);
            }
            Err(_) => {}
        }
    }
    println!("{accepted} accepted, {sound} sound ones refused");
    assert!(accepted > 1000 && sound * 10 < accepted, "{accepted} accepted, {sound} sound ones refused");
}
