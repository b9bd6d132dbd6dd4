//! Every instruction of the table: encoding and text are exact both ways.

mod common;

use common::{Rng, inst};
use dvm_bc::*;

fn program(code: Code) -> Program {
    let body = Section { place: Place::Body, code };
    Program {
        name: "p".into(),
        target: target(),
        args: vec![],
        templates: vec![Template {
            name: "t".into(),
            kind: Kind::Mix,
            slots: vec![],
            parallel: vec![1, 2],
            phases: vec![Phase { seq: vec![3], rotate: false, sections: vec![body] }],
        }],
        steps: vec![],
        aliases: vec![],
    }
}

fn target() -> Target {
    Target {
        name: "t".into(),
        cores: 1,
        spaces: vec![],
        block: 64,
        panel_nr: vec![],
        panel_mr: 1,
        exchange: Exchange::Memory,
        async_pipes: true,
        events: 3,
        cube_cores: 1,
        legal: vec![
            (Class::Divide, DTypeSet::from_iter([DType::F32, DType::F16])),
            (Class::Scan, DTypeSet::default()),
        ],
    }
}

#[test]
fn encoding_and_text_round_trip() {
    let mut r = Rng(1);
    for &op in Opcode::ALL {
        for _ in 0..60 {
            let i = inst(op, &mut r);
            let mut code = Code::default();
            code.push(&i).unwrap_or_else(|e| panic!("{e}\n{i:?}"));
            let back: Vec<_> = code.iter().collect();
            assert_eq!(back, [Ok(i.clone())]);
            let text = disasm(&program(code.clone()));
            let read = asm(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let again = &read.templates[0].phases[0].sections[0].code;
            assert_eq!(*again, code, "{i:?}\n{text}\n{}", disasm(&read));
            assert_eq!(disasm(&read), text);
        }
    }
}

#[test]
fn any_words_decode_or_fail_and_print() {
    let mut r = Rng(2);
    for round in 0..20_000 {
        let words: Vec<u64> = if round % 2 == 0 {
            (0..r.below(6)).map(|_| r.next()).collect()
        } else {
            // One bit of a sound run flipped.
            let mut code = Code::default();
            for _ in 0..2 {
                let op = r.pick(Opcode::ALL);
                code.push(&inst(op, &mut r)).expect("samples fit");
            }
            let mut words = code.words().to_vec();
            let at = r.below(words.len() as u64) as usize;
            words[at] ^= 1 << r.below(64);
            words
        };
        let code = Code::from_words(words.clone());
        let insts: Vec<_> = code.iter().collect();
        assert!(insts.iter().rev().skip(1).all(Result::is_ok), "goes on after an error");
        if insts.iter().all(Result::is_ok) {
            let mut again = Code::default();
            insts.iter().for_each(|i| again.push(i.as_ref().expect("checked")).expect("decoded"));
            assert_eq!(again.words(), words, "an instruction has two encodings");
        }
        let text = disasm(&program(code.clone()));
        let read = asm(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(read.templates[0].phases[0].sections[0].code, code, "{text}");
    }
}

#[test]
fn fields_that_do_not_fit_are_errors() {
    let local = Local { space: Space::Ub, offset: 0 };
    let mem =
        |offset, strides: &[(u8, i64)]| Mem { slot: 0, offset, strides: strides.iter().copied().collect() };
    let load = |src, cols| Load { dst: local, src, rows: Size::ONE, cols, pitch: 0, hints: Hints::default() };
    let view = |n| {
        let loops = vec![Loop { count: Size::ONE, stride: 0 }; n].into();
        ViewLoad { dst: local, src: mem(0, &[]), loops, hints: Hints::default() }
    };
    for (op, operands, error) in [
        (
            Opcode::Load,
            load(mem(0, &[]), Size::fixed(1 << 28)).into(),
            "load: `cols` = 268435456 does not fit 28 bits",
        ),
        (
            Opcode::Load,
            load(mem(1 << 43, &[]), Size::ONE).into(),
            "load: `src` = 8796093022208 does not fit 44 bits",
        ),
        (Opcode::Load, load(mem(0, &[(0, 1 << 59)]), Size::ONE).into(), "does not fit 60 bits"),
        (Opcode::Load, load(mem(0, &[(11, 1)]), Size::ONE).into(), "load: `src`: 11 is more than 10"),
        (
            Opcode::Load,
            load(mem(0, &[]), Size { body: 2, tail: 1, extent: Some(15) }).into(),
            "15 is more than 10",
        ),
        (Opcode::ViewLoad, Operands::from(view(5)), "view_load: `loops`: 5 is more than 4"),
        (Opcode::Load, Operands::from(view(4)), "load: takes Load operands, not ViewLoad"),
    ] {
        let mut code = Code::default();
        let e = code.push(&Inst::new(op, DType::F32, operands)).expect_err(error);
        assert!(e.to_string().contains(error), "{e}\n{error}");
        assert!(code.words().is_empty());
    }
}

#[test]
fn dtype_numbers_are_stable() {
    let dtypes: String = DType::ALL.iter().map(|&d| format!("{} {d} ", d as u8)).collect();
    assert_eq!(dtypes, "0 f32 1 f64 2 f16 3 bf16 4 i8 5 u8 6 i16 7 u16 8 i32 9 u32 10 i64 11 u64 12 bool ");
}

/// Every value of every field of every instruction that has one too large for its bits.
#[test]
fn no_field_of_any_instruction_overflows() {
    let extent = (MAX_PARALLEL + MAX_SEQ) as u8;
    let sizes = [
        Size { body: 1 << 28, tail: 0, extent: None },
        Size { body: 1, tail: 1 << 28, extent: None },
        Size { body: 1, tail: 1, extent: Some(extent) },
    ];
    let strides = [
        vec![(0, 1 << 59)],
        vec![(0, -(1 << 59) - 1)],
        vec![(extent, 1)],
        vec![(0, 1); 1 + usize::from(extent)],
    ];
    // What a field of each type is set to, one after the other; whole words have no value that does not fit.
    let spoil = |operand: OperandMut<'_>, round: usize| -> bool {
        match operand {
            OperandMut::Size(s) => sizes.get(round).map(|bad| *s = *bad).is_some(),
            OperandMut::Strides(s) => strides.get(round).map(|bad| *s = bad.clone().into()).is_some(),
            OperandMut::Mem(m) => match round.checked_sub(2) {
                None => {
                    m.offset = [1 << 43, -(1 << 43) - 1][round];
                    true
                }
                Some(r) => strides.get(r).map(|bad| m.strides = bad.clone().into()).is_some(),
            },
            OperandMut::Loops(l) => {
                let of = |count| Loop { count, stride: 1 };
                match round {
                    0 => *l = vec![of(Size::ONE); MAX_LOOPS + 1].into(),
                    r => match sizes.get(r - 1) {
                        Some(bad) => *l = vec![of(Size::ONE), of(*bad)].into(),
                        None => return false,
                    },
                }
                true
            }
            OperandMut::Flag(f) => {
                *f = [8, 255][round % 2];
                round < 2
            }
            _ => false,
        }
    };
    let mut r = Rng(6);
    let mut rejected = 0;
    for &op in Opcode::ALL {
        let mut fields = Vec::new();
        inst(op, &mut r).visit(|name, _, _| fields.push(name));
        for field in &fields {
            for round in 0.. {
                let (mut i, mut spoiled) = (inst(op, &mut r), false);
                i.visit_mut(|name, _, operand| {
                    if name == *field {
                        spoiled = spoil(operand, round);
                    }
                });
                if !spoiled {
                    break;
                }
                let e = Code::default().push(&i).expect_err(op.mnemonic());
                assert!(e.to_string().starts_with(&format!("{}: `{field}`", op.mnemonic())), "{e}");
                rejected += 1;
            }
        }
        for slot in 0..Sync::NAMES.len() {
            let mut i = inst(op, &mut r);
            i.sync = Sync::NONE;
            *i.sync.slot_mut(slot).expect("four slots") = Some(Event { peer: Pipe::V, id: 8 });
            let e = Code::default().push(&i).expect_err(op.mnemonic());
            assert_eq!(
                e.to_string(),
                format!("{}: `{}` = 8 does not fit 3 bits", op.mnemonic(), Sync::NAMES[slot])
            );
        }
    }
    assert!(rejected > 500, "{rejected}");
}

/// A vector instruction is short.
#[test]
fn vector_instructions_are_at_most_64_bytes_on_average() {
    let mut r = Rng(3);
    let (mut words, mut n) = (0, 0);
    for &op in Opcode::ALL
        .iter()
        .filter(|o| matches!(o.form(), Form::Unary | Form::Binary | Form::Ternary | Form::Cast))
    {
        let mut code = Code::default();
        code.push(&inst(op, &mut r)).expect("fits");
        words += code.words().len();
        n += 1;
    }
    assert!(words * 8 <= 64 * n, "{} bytes", words * 8 / n);
}

/// Whatever instructions a program holds, it is verified or refused.
#[test]
fn any_instructions_verify_or_fail() {
    let mut r = Rng(4);
    let mut verified = 0;
    for _ in 0..20_000 {
        let mut p = program(Code::default());
        let dtype = r.pick(DType::ALL);
        let mut code = Code::default();
        for _ in 0..1 + r.below(3) {
            let op = r.pick(Opcode::ALL);
            let mut i = inst(op, &mut r);
            if r.below(4) > 0 {
                i.dtype = dtype;
            }
            if let Operands::Load(Load { src: mem, .. })
            | Operands::Store(Store { dst: mem, .. })
            | Operands::ViewLoad(ViewLoad { src: mem, .. })
            | Operands::ViewStore(ViewStore { dst: mem, .. })
            | Operands::GatherLoad(GatherLoad { src: mem, .. })
            | Operands::FillStore(FillStore { dst: mem, .. })
            | Operands::ScatterStore(ScatterStore { dst: mem, .. })
            | Operands::CompressStore(CompressStore { dst: mem, .. })
            | Operands::AccStore(AccStore { dst: mem, .. })
            | Operands::LoadA(LoadA { src: mem, .. })
            | Operands::LoadB(LoadB { src: mem, .. })
            | Operands::BindB(BindB { src: mem, .. }) = &mut i.operands
            {
                mem.slot %= 2;
            }
            code.push(&i).expect("samples fit");
        }
        let bytes = 1 << r.below(40);
        p.target.spaces = Space::ALL.map(|space| SpaceSpec { space, bytes: 1 << r.below(26) << 6 }).to_vec();
        p.args = ["a", "b"]
            .map(|name| Arg {
                name: name.into(),
                role: Role::Workspace,
                dtype: DType::U8,
                bytes,
                align: 64,
                layout: Layout::Plain,
                zero: r.below(2) == 0,
            })
            .to_vec();
        let t = &mut p.templates[0];
        t.slots = vec![Slot { name: "s".into(), dtype, write: true }; 2];
        t.parallel = (0..r.below(9)).map(|_| r.bits(32) as u32).collect();
        t.phases[0].seq = (0..r.below(4)).map(|_| r.bits(32) as u32).collect();
        t.phases[0].sections[0].code = code;
        let slot = |r: &mut Rng| (r.below(2) as u32, 8 * r.bits(30));
        let units =
            (0..r.below(3)).map(|_| Unit { template: 0, slots: vec![slot(&mut r), slot(&mut r)], weight: 1 });
        p.steps = vec![Step { units: units.collect(), limits: vec![] }];
        match Verified::new(p, &Limits::default()) {
            Ok(_) => verified += 1,
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    assert!(verified > 10, "{verified} verified");
}

struct Name;

macro_rules! name_each {
    ($($num:literal $mnemonic:ident $name:ident: $form:ident, $dtypes:ident, $class:ident, $doc:literal;)*) => {
        impl Visitor for Name {
            type Output = &'static str;
            $(fn $mnemonic(&mut self, _: &Inst, _: &$form) -> &'static str { stringify!($mnemonic) })*
            fn mismatch(&mut self, _: &Inst) -> &'static str { "mismatch" }
        }
    };
}
for_each_opcode!(name_each);

#[test]
fn each_instruction_has_its_visit() {
    let mut r = Rng(5);
    for &op in Opcode::ALL {
        let i = inst(op, &mut r);
        assert_eq!(i.accept(&mut Name), op.mnemonic());
        let other = if op.form() == Form::Mmad { Form::Unary } else { Form::Mmad };
        let other = Opcode::ALL.iter().find(|o| o.form() == other).expect("one of each form");
        let wrong = Inst { operands: inst(*other, &mut r).operands, ..i };
        assert_eq!(wrong.accept(&mut Name), "mismatch");
    }
}
