//! The verifier against brute force: small random programs, every access of every tile written out byte by byte.

mod common;

use std::collections::HashMap;

use common::Rng;
use dvm_bc::*;

const BYTES: i64 = 96;

/// One access of a random unit: `store` or load of rows and columns of bytes.
struct Access {
    arg: u32,
    base: u64,
    store: bool,
    view: bool,
    mem: Mem,
    rows: Size,
    cols: Size,
    pitch: i64,
    step: i64,
}

struct Case {
    parallel: Vec<u32>,
    seq: Vec<u32>,
    units: Vec<Vec<Access>>,
}

fn size(r: &mut Rng, extents: usize) -> Size {
    let body = 1 + r.below(4) as u32;
    if extents > 0 && r.below(3) == 0 {
        return Size::ragged(body, 1 + r.below(u64::from(body)) as u32, r.below(extents as u64) as u8);
    }
    Size::fixed(body)
}

/// Half of the cases are the shapes compilers make (cut rows and columns), half anything.
fn access(r: &mut Rng, parallel: &[u32], seq: &[u32]) -> Access {
    let extents = parallel.len() + seq.len();
    let (rows, cols) = (size(r, extents), size(r, extents));
    let natural = r.below(2) == 0;
    let view = r.below(3) == 0;
    let step = if view { r.pick(&[1, 1, 2, -1]) } else { 1 };
    let pitch = if natural { 8 + 4 * r.below(3) as i64 } else { r.signed(6) };
    let mut mem = Mem {
        slot: 0,
        offset: if r.below(3) == 0 { 0 } else { r.below(24) as i64 },
        strides: Default::default(),
    };
    for e in 0..extents as u8 {
        let stride = if natural {
            let c = [i64::from(rows.body) * pitch, i64::from(cols.body) * step, 0, 8 * pitch];
            match (rows.extent == Some(e), cols.extent == Some(e)) {
                (true, _) => c[0],
                (_, true) => c[1],
                _ => r.pick(&c),
            }
        } else {
            r.signed(6)
        };
        if stride != 0 {
            mem.strides.push((e, stride));
        }
    }
    Access {
        arg: r.below(2) as u32,
        base: r.below(2) * r.below(8),
        store: r.below(3) > 0,
        view,
        mem,
        rows,
        cols,
        pitch,
        step,
    }
}

fn case(r: &mut Rng) -> Case {
    let parallel: Vec<u32> = (0..r.below(3)).map(|_| 1 + r.below(3) as u32).collect();
    let seq: Vec<u32> = (0..r.below(2)).map(|_| 1 + r.below(3) as u32).collect();
    let units = (0..1 + r.below(2))
        .map(|_| (0..1 + r.below(2)).map(|_| access(r, &parallel, &seq)).collect())
        .collect();
    Case { parallel, seq, units }
}

fn program(c: &Case) -> Program {
    let arg = |name: &str| Arg {
        name: name.into(),
        role: Role::Output,
        dtype: DType::U8,
        bytes: BYTES as u64,
        align: 1,
        layout: Layout::Plain,
        zero: true,
    };
    let mut templates = Vec::new();
    let mut units = Vec::new();
    for (t, accesses) in c.units.iter().enumerate() {
        let mut code = Code::default();
        let local = |i: usize| Local { space: Space::Ub, offset: 8 * i as u32 };
        let fill = Fill { dst: local(9), value: 1, rows: Size::fixed(8), cols: Size::fixed(64) };
        code.push(&Inst::new(Opcode::VFill, DType::U8, fill)).expect("fits");
        for (i, a) in accesses.iter().enumerate() {
            let mem = Mem { slot: i as u16, ..a.mem.clone() };
            let loops: Loops =
                vec![Loop { count: a.rows, stride: a.pitch }, Loop { count: a.cols, stride: a.step }].into();
            let (rows, cols, pitch, hints) = (a.rows, a.cols, a.pitch, Hints::default());
            let (op, operands): (_, Operands) = match (a.store, a.view) {
                (true, true) => {
                    (Opcode::ViewStore, ViewStore { dst: mem, src: local(9), loops, hints }.into())
                }
                (true, false) => {
                    (Opcode::Store, Store { dst: mem, src: local(9), rows, cols, pitch, hints }.into())
                }
                (false, true) => {
                    (Opcode::ViewLoad, ViewLoad { dst: local(i), src: mem, loops, hints }.into())
                }
                (false, false) => {
                    (Opcode::Load, Load { dst: local(i), src: mem, rows, cols, pitch, hints }.into())
                }
            };
            code.push(&Inst::new(op, DType::U8, operands)).expect("fits");
        }
        templates.push(Template {
            name: format!("t{t}"),
            kind: Kind::Vector,
            slots: accesses
                .iter()
                .map(|a| Slot { name: "s".into(), dtype: DType::U8, write: a.store })
                .collect(),
            parallel: c.parallel.clone(),
            phases: vec![Phase {
                seq: c.seq.clone(),
                rotate: false,
                sections: vec![Section { place: Place::Body, code }],
            }],
        });
        let slots = accesses.iter().map(|a| (a.arg, a.base)).collect();
        units.push(Unit { template: t as u32, slots, weight: 1 });
    }
    Program {
        name: "p".into(),
        target: Target {
            name: "t".into(),
            cores: 2,
            spaces: vec![SpaceSpec { space: Space::Ub, bytes: 4096 }],
            block: 8,
            panel_nr: vec![],
            panel_mr: 1,
            exchange: Exchange::Direct,
            async_pipes: false,
            events: 0,
            cube_cores: 0,
            legal: vec![],
        },
        args: vec![arg("a"), arg("b")],
        templates,
        steps: vec![Step { units, limits: vec![] }],
        aliases: vec![],
    }
}

/// Every index of the extents.
fn points(extents: &[u32]) -> Vec<Vec<u32>> {
    extents.iter().fold(vec![vec![]], |all, &n| {
        all.iter().flat_map(|p| (0..n).map(|i| [p.clone(), vec![i]].concat()).collect::<Vec<_>>()).collect()
    })
}

/// The program's own meaning.
struct Meaning {
    /// It stays in bounds, and no two tiles meet at a stored byte.
    sound: bool,
    /// Bytes of the first argument that are stored, and the end of what is touched.
    stored: usize,
    end: i64,
}

fn brute(c: &Case) -> Meaning {
    let unsound = Meaning { sound: false, stored: 0, end: 0 };
    let mut owner: HashMap<(u32, i64), (usize, Vec<u32>, bool)> = HashMap::new();
    let all: Vec<u32> = [c.parallel.clone(), c.seq.clone()].concat();
    for (u, unit) in c.units.iter().enumerate() {
        for a in unit {
            for p in points(&all) {
                let last = |e: u8| p[e as usize] + 1 == all[e as usize];
                let at = a.mem.strides.iter().map(|&(e, s)| i64::from(p[e as usize]) * s).sum::<i64>();
                for row in 0..a.rows.at(last) {
                    for col in 0..a.cols.at(last) {
                        let byte = a.base as i64
                            + a.mem.offset
                            + at
                            + i64::from(row) * a.pitch
                            + i64::from(col) * a.step;
                        if !(0..BYTES).contains(&byte) {
                            return unsound;
                        }
                        let tile = p[..c.parallel.len()].to_vec();
                        match owner.get_mut(&(a.arg, byte)) {
                            Some(o) if (o.2 || a.store) && (o.0 != u || o.1 != tile) => return unsound,
                            // Loads of many tiles may share a byte, and a store after them must know.
                            Some(o) if o.0 != u || o.1 != tile => o.1 = vec![u32::MAX],
                            Some(o) => o.2 |= a.store,
                            None => {
                                owner.insert((a.arg, byte), (u, tile, a.store));
                            }
                        }
                    }
                }
            }
        }
    }
    let stored = owner.iter().filter(|(k, o)| k.0 == 0 && o.2).count();
    let end = owner.keys().filter(|k| k.0 == 0).map(|k| k.1 + 1).max().unwrap_or(0);
    Meaning { sound: true, stored, end }
}

#[test]
fn accepted_programs_are_sound() {
    let (mut accepted, mut sound, mut covered, mut full) = (0, 0, 0, 0);
    for seed in 0..30_000 {
        let c = case(&mut Rng(seed));
        let mut p = program(&c);
        let m = brute(&c);
        sound += u32::from(m.sound);
        match Verified::new(p.clone(), &Limits::default()) {
            Ok(_) => {
                accepted += 1;
                assert!(m.sound, "seed {seed}: accepted, but tiles meet\n{}", disasm(&p));
                // The same with no byte to spare and nothing cleared: all of it must be stored.
                p.args[0].zero = false;
                p.args[0].bytes = m.end as u64;
                let is_full = m.stored as i64 == m.end;
                full += u32::from(is_full);
                if Verified::new(p.clone(), &Limits::default()).is_ok() {
                    covered += 1;
                    assert!(is_full, "seed {seed}: {} of {} bytes\n{}", m.stored, m.end, disasm(&p));
                }
            }
            Err(e) => assert!(!e.violations.is_empty()),
        }
    }
    println!("{accepted} accepted of {sound} sound, {covered} covered of {full} full");
    // The proofs are useful: most of what is sound is accepted.
    assert!(sound > 5000 && accepted * 10 > sound * 8, "{accepted} accepted, {sound} sound");
    assert!(full > 500 && covered * 10 > full * 8, "{covered} covered, {full} full");
}
