//! Bundles: exact both ways, and safe to read whatever the bytes.

mod common;

use common::Rng;
use dvm_bc::bundle::{Bundle, HostStep, Note, Port, Weight, seal, weight_hash};
use dvm_bc::{DType, InstAt, Layout, Limits, Place, Verified, asm, disasm_inst};

const PROGRAM: &str = "program p
target host-ref cores 2 block 64 ub 4096 panel_b 4096 mr 6 nr 4:16 exchange direct async events 3 cube 1 legal arith f32+f16, exp f32
arg %r: ring f32[16] align 64
arg %x: input f32[100] align 64
arg %w: weight f32[1600] align 64 panels nr 16 k 100 n 7 batch 1
arg %y: output f32[100] align 64
alias %x %y
template t vector parallel [g0: 3]
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1 seq [s0: 1] rotate
    init(0)
      nop pipe v {set mte2.2, bar}
      nop pipe mte2 {wait v.2}
    body
      load.f32 l0, $0 + 160*g0, cols 40|20@g0 {set v.0, wait_back mte3.1}
      vexp.f32 l0, l0, cols 40|20@g0 {wait mte2.0, set mte3.0}
      store.f32 $1 + 160*g0, l0, cols 40|20@g0 {wait v.0, set_back mte2.1}
    finish(0)
      end
step 0
  run t(%x, %y) weight 3
";

fn bundle() -> Bundle {
    let data: Vec<u8> = (0..6400).map(|i| (i % 251) as u8).collect();
    let port =
        |name: &str, shape: &[u64]| Port { name: name.into(), dtype: DType::F32, shape: shape.to_vec() };
    let weight = |name: &str, data: &[u8], keep: bool| Weight {
        name: name.into(),
        dtype: DType::F32,
        layout: Layout::Panels { nr: 16, k: 100, n: 7, batch: 1 },
        bytes: data.len() as u64,
        hash: weight_hash(data),
        data: keep.then(|| data.to_vec()),
    };
    Bundle {
        target: "host-ref".into(),
        symbols: vec![("batch".into(), 2), ("seq".into(), -1)],
        inputs: vec![port("x", &[100])],
        outputs: vec![port("y", &[10, 10])],
        programs: vec![asm(PROGRAM).expect("a program")],
        steps: vec![HostStep::Launch(0), HostStep::Launch(0)],
        weights: vec![
            weight("w", &data, true),
            weight("v", &data[..100], false),
            weight("u", &data[..13], true),
        ],
        notes: vec![Note { program: 0, template: 0, instruction: 3, text: "Exp /e/Exp_1".into() }],
    }
}

#[test]
fn round_trip() {
    for b in [bundle(), Bundle::default(), Bundle { weights: vec![], ..bundle() }] {
        let bytes = b.to_bytes().expect("consistent");
        assert_eq!(Bundle::from_bytes(&bytes).expect("reads back"), b);
        assert_eq!(b.to_bytes().expect("consistent"), bytes, "deterministic");
    }
    let bytes = bundle().to_bytes().expect("consistent");
    let at = bytes.windows(8).position(|w| w == [0, 1, 2, 3, 4, 5, 6, 7]).expect("the weight's bytes");
    assert_eq!(at % 64, 0);
}

#[test]
fn text_reads_back() {
    let mut b = bundle();
    b.notes.push(Note { program: 0, template: 0, instruction: 5, text: "it's\n\\ ; odd".into() });
    let text = b.to_text();
    for line in [
        "bundle host-ref\nsymbol batch = 2\nsymbol seq = -1\ninput x: f32[100]\n",
        "output y: f32[10, 10]",
        "weight v: f32[25] panels nr 16 k 100 n 7 batch 1 hash 0x",
        "launch 0\nlaunch 0\nprogram p\n",
        "      vexp.f32 l0, l0, cols 40|20@g0 {wait mte2.0, set mte3.0} ; Exp /e/Exp_1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let (again, lines) = Bundle::from_text_with_lines(&text).expect("a bundle");
    // The bytes of weights are not in the text.
    b.weights.iter_mut().for_each(|w| w.data = None);
    assert_eq!(again, b);
    assert_eq!(again.to_text(), text.replace("; held", "; not held"));
    let at = InstAt { template: 0, phase: 0, place: Place::Body, index: 1, number: 3, mnemonic: "vexp" };
    let line = lines.line(0, at).expect("an instruction");
    assert!(text.lines().nth(line - 1).expect("a line").contains("vexp"));
    assert_eq!(
        disasm_inst(&b.programs[0], at).as_deref(),
        Some("vexp.f32 l0, l0, cols 40|20@g0 {wait mte2.0, set mte3.0}")
    );
}

#[test]
fn a_program_alone_is_a_bundle() {
    let bundle = Bundle::from_text(PROGRAM).expect("a program");
    assert!(bundle.is_bare() && bundle.inputs.len() == 2 && bundle.outputs[0].shape == [100]);
    assert_eq!(Bundle::from_bytes(&bundle.to_bytes().expect("consistent")).as_ref(), Ok(&bundle));
    let text = bundle.to_text();
    assert_eq!(Bundle::from_text(&text).expect("a program").to_text(), text);
    let lines = PROGRAM.lines().count();
    for (text, expect) in [
        (String::new(), "1:1: the text ends without `program`"),
        ("module m".into(), "1:1: expected `program` or `bundle`"),
        (
            format!("{PROGRAM}{PROGRAM}"),
            &format!("{}:1: a text of several programs begins with `bundle`", lines + 1),
        ),
        (format!("bundle b\nlaunch 1\n{PROGRAM}"), "1:1: a step launches program 1 of 1"),
        (format!("bundle b\nweight w: f32[3] hash 3\n{PROGRAM}"), "2:23: expected 0x"),
        (format!("bundle b\nlaunch 0\n{PROGRAM}  vexq l0"), &format!("{}:3: ", lines + 3)),
    ] {
        let e = Bundle::from_text(&text).expect_err(expect);
        assert!(e.to_string().starts_with(expect), "{e}");
        assert!(!e.render("k.dvmasm", &text).is_empty());
    }
}

#[test]
fn errors_are_shown_in_the_text() {
    let text = PROGRAM.replace("vexp", "vexq");
    let e = Bundle::from_text(&text).expect_err("no such instruction");
    let shown = e.render("k.dvmasm", &text);
    let line = 1 + text.lines().position(|l| l.contains("vexq")).expect("a line");
    let place = format!("k.dvmasm:{line}:7");
    for part in ["error: `vexq` is no instruction", &place, "vexq.f32 l0, l0", "^^^^"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let sound = bundle().to_bytes().expect("consistent");
    type Edit = fn(&mut Vec<u8>);
    let edits: &[(Edit, bool, &str)] = &[
        (|b| b.clear(), false, "does not begin with DVMB"),
        (|b| b[0] = b'X', false, "does not begin with DVMB"),
        (|b| b.truncate(19), false, "20 bytes after its header, 19 are there"),
        (|b| b[4] = 1, false, "format version 1.0; this reader knows 2.x"),
        (|b| b.truncate(b.len() - 1), false, "bytes after its header"),
        (|b| b.push(0), false, "bytes after its header"),
        (|b| b[100] ^= 1, false, "checksum"),
        (|b| b.truncate(25), true, "says it has 40 bytes after its header, 5 are there"),
        (|b| b[20..24].fill(0xff), true, "says it has 51539607544 bytes"),
        (|b| b[28..36].fill(0xff), true, "says it has 18446744073709551595 bytes"),
        (|b| b[28] -= 1, true, "metadata does not decode"),
        (|b| b[28] += 1, true, "1 bytes follow it"),
        (|b| b[64..76].fill(0xff), true, "metadata does not decode"),
        (|b| b.truncate(b.len() - 1), true, "bytes after its header"),
        (|b| b.push(0), true, "bytes after its header"),
        (
            |b| {
                b.pop();
                b[52] -= 1;
            },
            true,
            "weight `u` of 13 bytes is not inside the data section",
        ),
        (|b| b[24] = b'Q', true, "section `QROG` is not known, and not to be skipped"),
        (|b| b[24] = b'p', true, "section `PROG` is missing"),
        (|b| b[48..52].copy_from_slice(b"PROG"), true, "section `PROG` is there twice"),
        (|b| *b.last_mut().expect("bytes") ^= 1, true, "weight `u` has hash"),
    ];
    for (edit, reseal, expect) in edits {
        let mut bytes = sound.clone();
        edit(&mut bytes);
        if *reseal {
            seal(&mut bytes);
        }
        let e = Bundle::from_bytes(&bytes).expect_err(expect).to_string();
        assert!(e.contains(expect), "gives: {e}\nwants: {expect}");
    }
    for (edit, expect) in [
        (
            Box::new(|b: &mut Bundle| b.steps.push(HostStep::Launch(1))) as Box<dyn Fn(&mut Bundle)>,
            "program 1 of 1",
        ),
        (Box::new(|b| b.weights[0].bytes = 1), "weight `w` has 6400 bytes, not 1"),
        (Box::new(|b| b.weights[0].hash ^= 1), "weight `w` has hash"),
        (Box::new(|b| b.inputs.push(b.inputs[0].clone())), "named `x`"),
    ] {
        let mut b = bundle();
        edit(&mut b);
        let e = b.to_bytes().expect_err(expect).to_string();
        assert!(e.contains(expect), "gives: {e}\nwants: {expect}");
    }
}

/// The sections of a file, and a file of such sections.
fn split(bytes: &[u8]) -> Vec<([u8; 4], Vec<u8>)> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight")) as usize;
    let count = word(20) & 0xffff_ffff;
    let mut at = 24 + 12 * count;
    let part = |i: usize| {
        let start = at.next_multiple_of(64);
        at = start + word(28 + 12 * i);
        (bytes[24 + 12 * i..28 + 12 * i].try_into().expect("four"), bytes[start..at].to_vec())
    };
    (0..count).map(part).collect()
}

fn join(minor: u16, sections: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut out = b"DVMB\x02\0".to_vec();
    out.extend(minor.to_le_bytes());
    out.resize(20, 0);
    out.extend((sections.len() as u32).to_le_bytes());
    sections
        .iter()
        .for_each(|(tag, s)| out.extend(tag.iter().copied().chain((s.len() as u64).to_le_bytes())));
    for (_, s) in sections {
        out.resize(out.len().next_multiple_of(64), 0);
        out.extend(s);
    }
    seal(&mut out);
    out
}

/// A newer minor version may append to what there is and add sections; one that this reader cannot do without is an error.
#[test]
fn newer_minor_versions_are_read() {
    let b = bundle();
    let bytes = b.to_bytes().expect("consistent");
    let now = split(&bytes);
    assert_eq!(now.iter().map(|s| &s.0[..]).collect::<Vec<_>>(), [b"PROG", b"note", b"DATA"]);
    assert_eq!(join(0, &now), bytes);
    let mut newer = now.clone();
    newer[0].1.extend([1, 2, 3]);
    newer[1].1.extend([4, 5]);
    newer.insert(1, (*b"more", vec![7; 100]));
    let e =
        Bundle::from_bytes(&join(0, &newer)).expect_err("the same version has nothing to append").to_string();
    assert_eq!(e, "the bundle's metadata does not decode: 3 bytes follow it");
    assert_eq!(Bundle::from_bytes(&join(1, &newer)).expect("newer"), b);
    // Without what is for debugging only.
    let stripped: Vec<_> = now.iter().filter(|s| s.0 != *b"note").cloned().collect();
    assert_eq!(Bundle::from_bytes(&join(0, &stripped)).expect("stripped"), Bundle { notes: vec![], ..b });
    // What this reader cannot do without: a section, a step of a kind that it does not know.
    newer.push((*b"KEYS", vec![]));
    let e = Bundle::from_bytes(&join(1, &newer)).expect_err("unknown section").to_string();
    assert_eq!(
        e,
        "written as format version 2.1, newer than 2.0: section `KEYS` is not known, and not to be skipped"
    );
    let mut newer = now;
    let prog = &mut newer[0].1;
    let at = prog.windows(5).rposition(|w| w == [2, 0, 0, 0, 0]).expect("two launches of program 0");
    prog[at + 1] = 9;
    let e = Bundle::from_bytes(&join(1, &newer)).expect_err("unknown step").to_string();
    assert_eq!(e, "written as format version 2.1, newer than 2.0: 9 is no HostStep");
}

/// Mutants get past checksum and directory; whatever they say is read or refused, then verified or refused, and printed.
#[test]
fn mutants_do_no_harm() {
    let seed = split(&Bundle { weights: vec![], ..bundle() }.to_bytes().expect("consistent"));
    let mut r = Rng(7);
    let (mut read, mut verified) = (0, 0);
    for _ in 0..20_000 {
        let mut sections = seed.clone();
        for _ in 0..1 + r.below(3) {
            let (_, bytes) = &mut sections[usize::from(r.below(8) == 0)];
            let at = r.below(bytes.len() as u64) as usize;
            match r.below(6) {
                0 => bytes[at] = r.next() as u8,
                1 => bytes[at] ^= 1 << r.below(8),
                2 => bytes[at] = r.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                3 => drop(bytes.splice(at..at, [r.next() as u8])),
                4 => drop(bytes.remove(at)),
                _ => {
                    let n = (bytes.len() - at).min(1 + r.below(9) as usize);
                    bytes[at..at + n].fill(r.pick(&[0, 0xff, 0x80]));
                }
            }
        }
        // A newer version, for which what follows is no mistake.
        let Ok(b) = Bundle::from_bytes(&join(r.below(2) as u16, &sections)) else { continue };
        read += 1;
        for p in b.programs {
            let text = dvm_bc::disasm(&p);
            assert_eq!(asm(&text).as_ref(), Ok(&p), "{text}");
            match Verified::new(p, &Limits::default()) {
                Ok(_) => verified += 1,
                Err(e) => assert!(!e.to_string().is_empty()),
            }
        }
    }
    assert!(
        read > 1000 && verified > 100,
        "only {read} of 20000 got past the reader, {verified} past the verifier"
    );
}

#[test]
fn noise_is_refused() {
    let mut r = Rng(8);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..r.below(200)).map(|_| r.next() as u8).collect();
        if r.below(2) == 0 && bytes.len() >= 28 {
            bytes[..8].copy_from_slice(b"DVMB\x02\0\0\0");
            bytes[20..24].copy_from_slice(&[r.below(3) as u8, 0, 0, 0]);
            seal(&mut bytes);
        }
        if let Ok(b) = Bundle::from_bytes(&bytes) {
            b.programs.iter().for_each(|p| drop(dvm_bc::disasm(p)));
        }
    }
}

#[test]
fn mutants_of_the_text_do_no_harm() {
    let text = bundle().to_text();
    let mut rng = Rng(5);
    let mut read = 0;
    for _ in 0..2000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] = rng.pick(b" \n;0123456789$%#@|{}[]().:,+-*\"\\lgsx\xc3"),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[at]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let Ok(mutant) = String::from_utf8(bytes) else { continue };
        match Bundle::from_text(&mutant) {
            Ok(b) => {
                read += 1;
                let text = b.to_text();
                let again = Bundle::from_text(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(again, b, "{mutant}");
            }
            Err(e) => assert!(!e.render("mutant", &mutant).is_empty()),
        }
    }
    assert!(read > 100, "{read} mutants are bundles");
}
