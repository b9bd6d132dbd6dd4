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
        (|b| b.truncate(25), true, "says it has 8 bytes after its header, 5 are there"),
        (|b| b[20..28].fill(0xff), true, "says it has 18446744073709551615 bytes"),
        (|b| b[20] -= 1, true, "metadata does not decode"),
        (|b| b[20] += 1, true, "1 bytes follow it"),
        (|b| b[28..40].fill(0xff), true, "metadata does not decode"),
        (|b| b.truncate(b.len() - 1), true, "weight `u` of 13 bytes is not inside the data section"),
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

/// A newer minor version may append to the metadata.
#[test]
fn newer_minor_versions_are_read() {
    let b = Bundle { weights: vec![], ..bundle() };
    let mut bytes = b.to_bytes().expect("consistent");
    let end = 28 + u64::from_le_bytes(bytes[20..28].try_into().expect("eight")) as usize;
    bytes.splice(end..end, [1, 2, 3]);
    bytes[20..28].copy_from_slice(&(end as u64 - 28 + 3).to_le_bytes());
    seal(&mut bytes);
    assert!(Bundle::from_bytes(&bytes).is_err(), "the same version has nothing to append");
    bytes[6] = 1;
    assert_eq!(Bundle::from_bytes(&bytes).expect("newer"), b);
    // A step of a kind that this reader does not know.
    let at = bytes.windows(5).rposition(|w| w == [2, 0, 0, 0, 0]).expect("two launches of program 0");
    bytes[at + 1] = 9;
    seal(&mut bytes);
    let e = Bundle::from_bytes(&bytes).expect_err("unknown step").to_string();
    assert_eq!(e, "written as format version 2.1, newer than 2.0: 9 is no HostStep");
}

/// Mutants get past the checksum; whatever they say is read or refused, then verified or refused, and printed.
#[test]
fn mutants_do_no_harm() {
    let seed = Bundle { weights: vec![], ..bundle() }.to_bytes().expect("consistent");
    let mut r = Rng(7);
    let (mut read, mut verified) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..1 + r.below(3) {
            let at = 20 + r.below(bytes.len() as u64 - 20) as usize;
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
        if r.below(8) == 0 {
            // The length of the metadata as the edits left it.
            let n = (bytes.len() as u64).saturating_sub(28 + r.below(64));
            bytes[20..28].copy_from_slice(&n.to_le_bytes());
        }
        seal(&mut bytes);
        let Ok(b) = Bundle::from_bytes(&bytes) else { continue };
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
            let n = bytes.len() as u64 - 28;
            bytes[20..28].copy_from_slice(&n.to_le_bytes());
            seal(&mut bytes);
        }
        if let Ok(b) = Bundle::from_bytes(&bytes) {
            b.programs.iter().for_each(|p| drop(dvm_bc::disasm(p)));
        }
    }
}
