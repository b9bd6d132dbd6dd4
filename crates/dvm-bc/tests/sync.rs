//! What a target with asynchronous pipes adds: events, cross flags, rings, illegal dtypes; as tables of small programs.

use dvm_bc::{Limits, Verified, asm};

/// Two vector cores for each cube core, exchange through memory.
const TARGET: &str = "target t cores 4 block 32 ub 65536 panel_a 65536 panel_b 65536 acc 65536 mr 16 nr 4:16 exchange memory async events 4 cube 2 legal arith f32+f16, exp f32
";

/// A walk: a forward chain in the body, backward links, a link to `finish`, a barrier.
const WALK: &str = "
arg %x: input f32[4096] align 32
arg %y: output f32[1024] align 32
template t vector parallel [g0: 4]
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1 seq [s0: 4]
    init(0)
      vfill.f32 l64, value #0.0, cols 256 {bar}
    body
      load.f32 l0, $0 + 4096*g0 + 1024*s0, cols 256 {set v.0, wait_back v.1}
      vexp.f32 l32, l0, cols 256 {wait mte2.0, set_back mte2.1}
      vadd.f32 l64, l64, l32, cols 256 {bar}
    finish(0)
      nop pipe v {set mte3.0}
      store.f32 $1 + 1024*g0, l64, cols 256 {wait v.0, set v.0}
      nop pipe v {wait mte3.0}
      barrier
step 0
  run t(%x, %y)
";

/// A cube tile through a ring: rows of a product and their absolute values.
const RING: &str = "
arg %a: input f32[1024] align 32
arg %b: input f32[1024] align 32
arg %r: ring u8[4096] align 32
arg %y: output f32[4096] align 32
template t mix parallel [g0: 4]
  slot $0 a: f32
  slot $1 b: f32
  slot $2 r: f32 write
  slot $3 y: f32 write
  phase 1
    body
      load_a.f32 a0, $0 + 1024*g0, m 16, k 16, row_stride 64, col_stride 4 {set m.0, wait_back m.1}
      load_b.f32 b0, $1 + 1024*g0, k 16, n 64, row_stride 16, col_stride 4 {bar}
      nop pipe cmte2 {set m.1}
      nop pipe m {wait cmte2.0, wait_back fix.2}
      mmad.f32 c0, a0, b0, m 16, n 64, k 16 {wait cmte2.1, set fix.3, set_back cmte2.1}
      xwait flag 0, pipe fix
      acc_store.f32 $2, c0, from f32, m 16, n 64, pitch 256, relu true {wait m.3, set_back m.2}
      xset flag 1, pipe fix
      xwait flag 1, pipe mte2
      load.f32 l0, $2, cols 1024 {set v.0, wait_back mte3.1}
      xset flag 0, pipe mte2
      vabs.f32 l0, l0, cols 1024 {wait mte2.0, set mte3.0}
      store.f32 $3 + 4096*g0, l0, cols 1024 {wait v.0, set_back mte2.1}
step 0
  run t(%a, %b, %r, %y)
";

fn verify(target: &str, text: &str) -> Result<Verified<dvm_bc::Program>, String> {
    let program = asm(&format!("program p\n{target}{text}")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let text = dvm_bc::disasm(&program);
    assert_eq!(asm(&text).as_ref(), Ok(&program), "{text}");
    Verified::new(program, &Limits::default()).map_err(|e| e.to_string())
}

#[test]
fn sound_programs() {
    let v = verify(TARGET, WALK).unwrap_or_else(|e| panic!("{e}"));
    assert!(!v.in_place(0));
    let v = verify(TARGET, RING).unwrap_or_else(|e| panic!("{e}"));
    assert!(v.in_place(0), "tiles load what they store to the ring");
}

/// Each row changes one place; an empty message says that the result is sound.
#[test]
fn broken_synchronisation() {
    let rows: &[(&str, &str, &str, &str)] = &[
        // events and their ends
        (
            WALK,
            "set v.0, wait_back",
            "set v.4, wait_back",
            "`set v.4`: the target has 4 events a pair of pipes",
        ),
        (WALK, "set v.0, wait_back", "set mte2.0, wait_back", "`set mte2.0`: both ends are on one pipe"),
        (WALK, "set v.0, wait_back", "set m.0, wait_back", "mte2 and m are of different cores"),
        (WALK, "barrier", "barrier {bar}", "barrier: has events, but no pipe of its own"),
        (
            WALK,
            "      barrier\n",
            "      barrier\n      end {set v.0}\n",
            "has events, but no pipe of its own",
        ),
        (WALK, " {bar}\n    body", "\n    body", ""),
        // balance of one execution
        (
            WALK,
            "{wait mte2.0, set_back",
            "{set_back",
            "t0 phase 1 body #0 load: event mte2->v.0: is left set after the section's only",
        ),
        (
            WALK,
            "{set v.0, wait_back",
            "{wait_back",
            "#1 vexp: event mte2->v.0: waits for it, but nothing has set it (the section's only",
        ),
        (
            WALK,
            "cols 256 {bar}\n    finish",
            "cols 256 {set mte2.1}\n    finish",
            "event v->mte2.1: is left set",
        ),
        (
            WALK,
            "      nop pipe v {set mte3.0}\n",
            "      nop pipe v {set mte3.0}\n      nop pipe v {set mte3.0}\n",
            "#1 nop: event v->mte3.0: sets it again",
        ),
        (WALK, "      nop pipe v {set mte3.0}\n", "", "#0 store: event v->mte3.0: waits for it, but nothing"),
        (
            WALK,
            "      nop pipe v {set mte3.0}\n",
            "      nop pipe v {set mte3.1}\n      nop pipe mte3 {wait v.1}\n      nop pipe v {set mte3.0}\n",
            "",
        ),
        // first, middle and last execution
        (
            WALK,
            ", set_back mte2.1}",
            "}",
            "#0 load: event v->mte2.1: waits for it, but nothing has set it (the section's middle",
        ),
        (WALK, ", wait_back v.1}", "}", "#1 vexp: event v->mte2.1: sets it again (the section's middle"),
        (
            WALK,
            "set_back mte2.1",
            "set_back mte2.2",
            "event v->mte2.1: waits for it, but nothing has set it (the section's middle",
        ),
        (
            WALK,
            "{bar}\n    finish",
            "{set_back mte2.1}\n    finish",
            "#2 vadd: event v->mte2.1: sets it again (the section's first",
        ),
        // links between executions are of one section
        (
            WALK,
            "      nop pipe v {set mte3.0}\n",
            "      nop pipe v {set mte2.1}\n      nop pipe mte2 {wait v.1}\n      nop pipe v {set mte3.0}\n",
            "finish(0) #0 nop: event v->mte2.1: a link between executions of one section",
        ),
        (
            WALK,
            "cols 256 {bar}\n    body",
            "cols 256 {set mte2.1}\n      nop pipe mte2 {wait v.1}\n    body",
            "body #0 load: event v->mte2.1: a link between executions",
        ),
        // cross flags
        (RING, "      xset flag 0, pipe mte2\n", "", "#5 xwait: flag 0 is waited for, but nothing sets it"),
        (RING, "      xwait flag 1, pipe mte2\n", "", "xset: flag 1 is set, but nothing waits for it"),
        (
            RING,
            "xset flag 0, pipe mte2",
            "xset flag 0, pipe m",
            "#5 xwait: flag 0: both ends are on cores of one kind",
        ),
        (RING, "xset flag 0, pipe mte2", "xset flag 1, pipe mte2", "flag 1 has another xset in the tile"),
        (
            RING,
            "  phase 1\n",
            "  phase 1 seq [s0: 2]\n",
            "a cross flag in a section that runs 2 times a tile, not once",
        ),
        (RING, "  phase 1\n", "  phase 1 seq [s0: 1]\n", ""),
        // the ring
        (RING, "$2, c0", "$2 + 4, c0", "touches bytes 0..4100 of `r`, which has 4096"),
        (
            RING,
            "acc_store.f32 $2, c0",
            "acc_store.f32 $2 + 1024*g0, c0",
            "moves in a ring with a parallel extent",
        ),
        (
            RING,
            "m 16, n 64, pitch 256",
            "m 15, n 64, pitch 256",
            "step 0 unit 0: t0 phase 1 body #9 load: loads bytes 0..4096 of `r` before they are stored",
        ),
        (
            RING,
            "%r: ring u8[4096] align 32",
            "%r: ring u8[4096] align 2",
            "workspace `r` is aligned to 2 bytes",
        ),
        (RING, "%r: ring u8[4096] align 32", "%r: ring u8[4096] align 32 zero", "is only read or of a group"),
        (
            RING,
            "load.f32 l0, $2, cols 1024",
            "load.f32 l0, $2, cols 1024, hints sticky",
            "a ring changes from tile to tile",
        ),
        (RING, "%r: ring", "%r: workspace", "tiles cannot be proved to store to different bytes"),
        (
            RING,
            "step 0\n",
            "step 0\n  run t(%a, %b, %y, %y)\n",
            "`y` is no ring, but another unit binds one here",
        ),
        (RING, "step 0\n", "arg %z: output f32[4096] align 32\nstep 0\n  run t(%a, %b, %r, %z)\n", ""),
        (
            RING,
            "step 0\n",
            "arg %z: output f32[4096] align 32\nstep 0\n  run t(%a, %b, %r, %z)\nstep 1\n",
            "",
        ),
        // units
        (RING, "template t mix", "template t cube", "load: is a vector instruction in a cube template"),
        (RING, "template t mix", "template t cube", "xset: is a vector instruction in a cube template"),
        (
            WALK,
            "nop pipe v {set mte3.0}",
            "nop pipe v {set mte3.0}\n      nop pipe m",
            "nop: is a cube instruction in a vector template",
        ),
        (
            RING,
            "acc_store.f32 $2, c0, from f32, m 16, n 64, pitch 256, relu true",
            "acc_to_ub.f32 l512, c0, from f32, m 16, n 64",
            "hands a tile to the vector core, but the target exchanges through memory",
        ),
        // dtypes
        (WALK, "vadd.f32 l64, l64, l32", "vadd.i32 l64, l64, l32", "vadd: the target has no arith of i32"),
        (WALK, "vexp.f32 l32, l0", "vexp.f16 l32, l0", "vexp: the target has no exp of f16"),
        (WALK, "vadd.f32 l64, l64, l32", "vadd.f16 l64, l64, l32", ""),
    ];
    check(TARGET, rows);
}

/// Where pipes are in order nothing synchronises, and what is there for it does nothing.
#[test]
fn in_order_pipes() {
    let target = "target t cores 2 block 32 ub 65536 panel_a 65536 panel_b 65536 acc 65536 mr 16 nr 4:16 exchange direct\n";
    let plain: String =
        WALK.lines().map(|l| format!("{}\n", l.split(" {").next().expect("a part"))).collect();
    let ring = RING.replace("exchange memory async events 4 cube 2", "exchange direct");
    check(
        target,
        &[
            (&plain, "barrier", "barrier", ""),
            (WALK, "barrier", "barrier", "load: has events, but the target's pipes are in order"),
            (
                &plain,
                "barrier",
                "xset flag 0, pipe v",
                "a cross flag, but the target has no separate cube cores",
            ),
            (&ring, "barrier", "barrier", "xset: a cross flag, but the target has no separate cube cores"),
        ],
    );
    // One core has all pipes: events go between any two, and a ring is a tile's scratch.
    let one = "target t cores 2 block 32 ub 65536 panel_a 65536 panel_b 65536 acc 65536 mr 16 nr 4:16 exchange direct async events 4\n";
    let across: String = RING
        .lines()
        .filter(|l| !l.contains("flag"))
        .map(|l| {
            let l = l.replace("{wait m.3, set_back m.2}", "{wait m.3, set mte2.0, set_back m.2}");
            format!(
                "{}\n",
                l.replace("{set v.0, wait_back mte3.1}", "{wait fix.0, set v.0, wait_back mte3.1}")
            )
        })
        .collect();
    check(
        one,
        &[
            (&across, "step 0", "step 0", ""),
            (&across, "wait fix.0", "wait fix.1", "event fix->mte2.1: waits"),
        ],
    );
}

fn check(target: &str, rows: &[(&str, &str, &str, &str)]) {
    let mut failures = String::new();
    for (base, old, new, expect) in rows {
        if !base.contains(old) {
            assert!(base.contains("step 0") && old == new, "{old}");
        }
        let found = verify(target, &base.replacen(old, new, 1)).map(|_| ());
        let right = match &found {
            Ok(()) => expect.is_empty(),
            Err(e) => !expect.is_empty() && e.contains(expect),
        };
        if !right {
            failures += &format!("{old}\n-> {new}\n  wants: {expect}\n  gives: {found:?}\n");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}
