//! The first program: z = sqrt(x + y).

use dvm_bc::*;
use smallvec::smallvec;

fn add_sqrt(n: u32) -> Program {
    let target = Target {
        name: "test".into(),
        cores: 2,
        spaces: vec![SpaceSpec { space: Space::Ub, bytes: 1 << 18 }],
        block: 64,
        panel_nr: vec![(4, 16)],
        panel_mr: 6,
        exchange: Exchange::Direct,
        async_pipes: false,
        events: 0,
    };
    let tiles = n.div_ceil(1024);
    let cols = Size::ragged(1024, n - 1024 * (tiles - 1), 0);
    let mem = |slot| Mem { slot, offset: 0, strides: smallvec![(0, 4096)] };
    let ub = |i: u32| Local { space: Space::Ub, offset: 64 * i };
    let full = |i| Src::Local(ub(i), Mode::Full);
    let mut code = Code::default();
    let (rows, pitch, hints) = (Size::ONE, 0, Hints::default());
    for i in [0u16, 1] {
        let load = Load { dst: ub(i.into()), src: mem(i), rows, cols, pitch, hints };
        code.push(&Inst::new(Opcode::Load, DType::F32, load)).expect("fits");
    }
    let add = Binary { dst: ub(2), a: full(0), b: full(1), rows, cols };
    code.push(&Inst::new(Opcode::VAdd, DType::F32, add)).expect("fits");
    let sqrt = Unary { dst: ub(2), src: full(2), rows, cols };
    code.push(&Inst::new(Opcode::VSqrt, DType::F32, sqrt)).expect("fits");
    let store = Store { dst: mem(2), src: ub(2), rows, cols, pitch, hints };
    code.push(&Inst::new(Opcode::Store, DType::F32, store)).expect("fits");
    let arg = |name: &str, role| Arg {
        name: name.into(),
        role,
        dtype: DType::F32,
        bytes: 4 * u64::from(n),
        align: 64,
        layout: Layout::Plain,
        zero: false,
    };
    let slot = |name: &str, write| Slot { name: name.into(), dtype: DType::F32, write };
    Program {
        name: "add_sqrt".into(),
        target,
        args: vec![arg("x", Role::Input), arg("y", Role::Input), arg("z", Role::Output)],
        templates: vec![Template {
            name: "t".into(),
            kind: Kind::Vector,
            slots: vec![slot("x", false), slot("y", false), slot("z", true)],
            parallel: vec![tiles],
            phases: vec![Phase {
                seq: vec![],
                rotate: false,
                sections: vec![Section { place: Place::Body, code }],
            }],
        }],
        steps: vec![Step {
            units: vec![Unit { template: 0, slots: vec![(0, 0), (1, 0), (2, 0)], weight: 1 }],
        }],
        aliases: vec![],
    }
}

#[test]
fn verifies() {
    for n in [1, 1023, 1024, 1025, 4352] {
        Verified::new(add_sqrt(n), &Limits::default()).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    let mut short = add_sqrt(4352);
    short.args[1].bytes -= 4;
    let e = Verified::new(short, &Limits::default()).expect_err("out of bounds");
    assert!(
        e.to_string().contains("step 0 unit 0: slot $1 `y`: touches bytes 0..17408 of `y`, which has 17404"),
        "{e}"
    );
}
