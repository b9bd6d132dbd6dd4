//! The encoding, byte by byte: one line an instruction in `encoding.txt`. Programs are stored, so a line never changes and a new
//! instruction adds one. `DVM_ACCEPT=1 cargo test -p dvm-bc --test encoding` writes the file.

use arbitrary::Unstructured;
use dvm_bc::text::inst_text;
use dvm_bc::*;

/// The instruction of a line: every field has a value of its own, so that each is seen to have its place.
fn example(op: Opcode) -> Inst {
    let mut inst = Inst::arbitrary_of(op, &mut Unstructured::new(&[])).expect("zeros will do");
    let mut n = 0;
    let size = |n: u32| Size::ragged(100 + n, 50 + n, 1);
    inst.visit_mut(|name, _, operand| {
        n += 1;
        match operand {
            OperandMut::Local(l) => {
                let space = match name {
                    "acc" => Space::Acc,
                    "a" if op == Opcode::Mmad => Space::PanelA,
                    "b" if op == Opcode::Mmad => Space::PanelB,
                    _ => Space::Ub,
                };
                *l = Local { space, offset: n };
            }
            OperandMut::Src(s) if name == "c" => *s = Src::Imm(1),
            OperandMut::Src(s) => {
                let mode = if name == "b" { Mode::Row } else { Mode::Full };
                *s = Src::Local(Local { space: Space::Ub, offset: n }, mode);
            }
            OperandMut::Mem(m) => {
                let strides = Strides::from_slice(&[(0, 4096), (2, -8)]);
                *m = Mem { slot: n as u16, offset: -64, strides };
            }
            OperandMut::Size(s) => *s = size(n),
            OperandMut::Strides(s) => *s = Strides::from_slice(&[(1, 7), (3, -7)]),
            OperandMut::Loops(l) => {
                let two = [Loop { count: size(n), stride: 40 }, Loop { count: Size::fixed(5), stride: -4 }];
                *l = Loops::from_slice(&two);
            }
            OperandMut::Hints(h) => *h = Hints { sticky: false, stream: true },
            OperandMut::Init(i) => *i = Init::First,
            OperandMut::DType(d) => *d = DType::I64,
            OperandMut::Pipe(p) => *p = Pipe::Mte3,
            OperandMut::Flag(f) => *f = 5,
            OperandMut::Bool(b) => *b = true,
            OperandMut::Signed(v) => *v = -i64::from(n),
            OperandMut::Unsigned(v) => *v = u64::from(n),
        }
    });
    inst.dtype = if op.class() == Class::Control { DType::F32 } else { DType::F16 };
    let event = |peer, id| Some(Event { peer, id });
    // Those that belong to every pipe have no events.
    let sync = match inst.pipe() {
        None => Sync::NONE,
        Some(_) => Sync { wait: event(Pipe::V, 1), set_back: event(Pipe::Fix, 6), bar: true, ..Sync::NONE },
    };
    inst.with_sync(sync)
}

/// `mnemonic number form: words = text`.
fn line(op: Opcode) -> String {
    let inst = example(op);
    let mut code = Code::default();
    code.push(&inst).expect("the example fits");
    assert_eq!(code.iter().collect::<Vec<_>>(), [Ok(inst.clone())]);
    let words: Vec<String> = code.words().iter().map(|w| format!("{w:x}")).collect();
    format!("0x{:02x} {:?}: {} = {}\n", op as u8, op.form(), words.join(" "), inst_text(&inst, 2))
}

#[test]
fn every_encoding_is_as_it_was() {
    let found: String = Opcode::ALL.iter().map(|&op| line(op)).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/encoding.txt");
    if std::env::var_os("DVM_ACCEPT").is_some() {
        std::fs::write(path, &found).expect("the file can be written");
    }
    let known = std::fs::read_to_string(path).expect("encoding.txt");
    let (found, known): (Vec<_>, Vec<_>) = (found.lines().collect(), known.lines().collect());
    let gone = known.iter().filter(|l| !found.contains(l)).map(|l| format!("- {l}\n"));
    let new = found.iter().filter(|l| !known.contains(l)).map(|l| format!("+ {l}\n"));
    let diff: String = gone.chain(new).collect();
    assert!(diff.is_empty(), "the encoding changed:\n{diff}");
    assert_eq!(found, known, "the same lines in another order");
}
