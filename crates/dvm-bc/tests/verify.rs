//! What the verifier accepts and what it rejects, as tables of small programs.

use dvm_bc::{Limits, Verified, asm};

const TARGET: &str = "program p
target test cores 2 block 64 ub 65536 panel_a 65536 panel_b 65536 acc 65536 mr 6 nr 4:16, 8:8 exchange direct
";

fn verify(text: &str) -> Result<Verified<dvm_bc::Program>, String> {
    let program = asm(&format!("{TARGET}{text}")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Verified::new(program, &Limits::default()).map_err(|e| e.to_string())
}

/// LayerNorm of rows that do not fit: three phases.
const LAYER_NORM: &str = "
arg %x: input f32[200000] align 64
arg %w: input f32[40000] align 64
arg %y: output f32[200000] align 64
template ln vector parallel [g0: 5]
  slot $0 x: f32
  slot $1 w: f32
  slot $2 y: f32 write
  phase 1 seq [s0: 10]
    init(0)
      vfill.f32 l256, value #0.0, cols 2
    body
      load.f32 l0, $0 + 160000*g0 + 16384*s0, cols 4096|3136@s0
      vsum.f32 l256, l0, red 4096|3136@s0, init accumulate
    finish(0)
      vadd.f32 l257, l256, l256:one
      vmul.f32 l257, l257, #2.5e-5
  phase 2 seq [s0: 10]
    body
      load.f32 l0, $0 + 160000*g0 + 16384*s0, cols 4096|3136@s0
      vsub.f32 l512, l0, l257:one, cols 4096|3136@s0
      vmul.f32 l512, l512, l512, cols 4096|3136@s0
      vsum.f32 l256, l512, red 4096|3136@s0, init first
    finish(0)
      vadd.f32 l258, l256, l256:one
      vrsqrt.f32 l258, l258
  phase 3 seq [s0: 10]
    body
      load.f32 l0, $0 + 160000*g0 + 16384*s0, cols 4096|3136@s0
      vsub.f32 l0, l0, l257:one, cols 4096|3136@s0
      vmul.f32 l0, l0, l258:one, cols 4096|3136@s0
      load.f32 l512, $1 + 16384*s0, cols 4096|3136@s0
      vmul.f32 l0, l0, l512, cols 4096|3136@s0
      store.f32 $2 + 160000*g0 + 16384*s0, l0, cols 4096|3136@s0, hints stream
step 0
  run ln(%x, %w, %y)
";

/// 100 x 50 x 70 in tiles of 48 x 32 x 32, bias.
const MATMUL: &str = "
arg %a: input f32[7000] align 64
arg %b: weight f32[4480] align 64 panels nr 16 k 70 n 50 batch 1
arg %bias: weight f32[50] align 64
arg %c: output f32[5000] align 64
template mm mix parallel [g0: 3, g1: 2]
  slot $0 a: f32
  slot $1 b: f32
  slot $2 bias: f32
  slot $3 c: f32 write
  phase 1 seq [s0: 3]
    body
      load_a.f32 a0, $0 + 13440*g0 + 128*s0, m 48|4@g0, k 32|6@s0, row_stride 280, col_stride 4
      bind_b.f32 b0, $1 + 8960*g1 + 2048*s0, k 32|6@s0, n 32|18@g1, panel_stride 4480
      mmad.f32 c0, a0, b0, m 48|4@g0, n 32|18@g1, k 32|6@s0, init first
    finish(0)
      acc_to_ub.f32 l0, c0, from f32, m 48|4@g0, n 32|18@g1
      load.f32 l256, $2 + 128*g1, cols 32|18@g1, hints sticky
      vadd.f32 l0, l0, l256:row, rows 48|4@g0, cols 32|18@g1
      store.f32 $3 + 9600*g0 + 128*g1, l0, rows 48|4@g0, cols 32|18@g1, pitch 200
step 0
  run mm(%a, %b, %bias, %c)
";

/// Two halves of the columns of one output, stacked; then in place on a workspace; an alias.
const STACK: &str = "
arg %x: input f32[60] align 4
arg %ws: workspace u8[512] align 64
arg %y: output f32[60] align 4
alias %x %y
template half vector parallel [g0: 5]
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1
    body
      load.f32 l0, $0 + 48*g0, cols 6
      vexp.f32 l0, l0, cols 6
      store.f32 $1 + 48*g0, l0, cols 6
template whole vector parallel [g0: 5]
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1
    body
      load.f32 l0, $0 + 48*g0, cols 12
      vabs.f32 l0, l0, cols 12
      store.f32 $1 + 48*g0, l0, cols 12
template sum vector
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1
    body
      view_load.f32 l0, $0 + 44, loops [5 by 48, 12 by -4]
      vredmax.f32 l32, l0, outer 5, red 12
      view_store.f32 $1, l0, loops [12 by 4, 5 by 48]
step 0
  run half(%x, %ws)
  run half(%x + 24, %ws + 24)
step 1
  run whole(%ws, %ws)
step 2
  run sum(%ws, %ws + 256)
step 3
  run whole(%ws + 256, %y)
";

/// In place through an alias, a walk of pieces.
const ALIAS: &str = "
arg %x: input f32[40] align 4
arg %y: output f32[40] align 4
alias %x %y
template t vector parallel [g0: 5]
  slot $0 x: f32
  slot $1 y: f32 write
  phase 1 seq [s0: 2]
    body
      load.f32 l0, $0 + 32*g0 + 16*s0, cols 4
      vabs.f32 l0, l0, cols 4
      store.f32 $1 + 32*g0 + 16*s0, l0, cols 4
step 0
  run t(%x, %y)
";

/// Gathers, integers, dtypes, empty walks.
const MIXED: &str = "
arg %table: weight f16[640] align 2
arg %ids: input i64[7] align 8
arg %mask: output bool[448] align 1
arg %rows: output f16[448] align 2
arg %empty: output f32[0] align 4
template take vector parallel [g0: 4]
  slot $0 table: f16
  slot $1 ids: i64
  slot $2 mask: bool write
  slot $3 rows: f16 write
  phase 1
    body
      load.i64 l0, $1 + 16*g0, cols 2|1@g0
      gather_load.f16 l1, $0, l0, rows 2|1@g0, cols 64, stride 128, limit 10, index_dtype i64
      store.f16 $3 + 256*g0, l1, rows 2|1@g0, cols 64, pitch 128
      vgt.f16 l8, l1, #0.5, rows 2|1@g0, cols 64
      vselect.f16 l16, l8, l1, #-0.0, rows 2|1@g0, cols 64
      vcast.f32 l24, l16, from f16, rows 2|1@g0, cols 64
      store.bool $2 + 128*g0, l8, cols 128|64@g0
      end
template none vector parallel [g0: 0]
  slot $0 y: f32 write
  phase 1
    body
      vfill.f32 l0, value #1.0, cols 64
      store.f32 $0 + 256*g0, l0, cols 64
step 0
  run take(%table, %ids, %mask, %rows)
  run none(%empty)
";

#[test]
fn sound_programs() {
    for (name, text, in_place) in [
        ("layer norm", LAYER_NORM, vec![false]),
        ("matmul", MATMUL, vec![false]),
        ("stack", STACK, vec![false, true, false]),
        ("mixed", MIXED, vec![false, false]),
        ("alias", ALIAS, vec![true]),
    ] {
        let v = verify(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found: Vec<bool> = (0..in_place.len() as u32).map(|t| v.in_place(t)).collect();
        assert_eq!(found, in_place, "{name}");
        let text = dvm_bc::disasm(&v);
        assert_eq!(dvm_bc::asm(&text).expect(name), *v, "{name}");
    }
}

/// Each row changes one place of a sound program; the message must name it.
#[test]
fn broken_programs() {
    let rows: &[(&str, &str, &str, &str)] = &[
        // arguments
        (
            LAYER_NORM,
            "%w: input f32[40000]",
            "%w: input f32[39999]",
            "slot $1 `w`: touches bytes 0..160000 of `w`, which has 159996",
        ),
        (
            LAYER_NORM,
            "%x: input f32[200000]",
            "%x: input f32[799999 bytes]",
            "argument 0: 799999 bytes are no whole number of f32",
        ),
        (
            LAYER_NORM,
            "%x: input f32[200000] align 64",
            "%x: input f32[200000] align 2",
            "alignment 2 is not a power of two of at least 4",
        ),
        (
            LAYER_NORM,
            "%x: input f32[200000] align 64",
            "%x: input f32[200000] zero",
            "is only read or of a group, so it cannot be cleared",
        ),
        (LAYER_NORM, "arg %y", "arg %x: input f32[1]\narg %y", "argument 2: has the name `x` of argument 0"),
        (
            LAYER_NORM,
            "%x: input f32[200000]",
            "%x: input f32[281474976710656]",
            "exceed the limit of 1099511627776",
        ),
        (
            MATMUL,
            "k 70 n 50 batch 1",
            "k 70 n 50 batch 2",
            "2 matrices of 70 x 50 in panels of 16 are not 17920 bytes",
        ),
        (MATMUL, "panels nr 16", "panels nr 0", "in panels of 0 are not"),
        // aliases
        (STACK, "alias %x %y", "alias %x %ws", "alias 0: is not of an input and an output"),
        (
            STACK,
            "alias %x %y",
            "alias %x %y\nalias %x %y",
            "alias 1: one of the arguments is in another alias",
        ),
        (
            STACK,
            "run whole(%ws + 256, %y)",
            "run whole(%ws + 256, %y)\nstep 4\n  run whole(%x, %ws)",
            "loads bytes 0..240 of `x` after its alias is stored to",
        ),
        (
            STACK,
            "template whole vector parallel [g0: 5]\n  slot $0 x: f32\n  slot $1 y: f32 write\n  phase 1\n",
            "template whole vector parallel [g0: 5]\n  slot $0 x: f32\n  slot $1 y: f32 write\n  phase 1 seq [s0: 2]\n",
            "",
        ),
        (
            ALIAS,
            "load.f32 l0, $0 + 32*g0 + 16*s0, cols 4",
            "load.f32 l0, $0 + 32*g0, cols 8",
            "step 0 unit 0: t0 phase 1 body #2 store: may meet t0 phase 1 body #0 load through an alias, and overwrite",
        ),
        (
            ALIAS,
            "+ 16*s0, cols 4\n      vabs.f32 l0, l0, cols 4\n      store.f32 $1 + 32*g0 + 16*s0, l0, cols 4",
            ", cols 8\n      vabs.f32 l0, l0, cols 8\n      store.f32 $1 + 32*g0, l0, cols 8",
            "step 0 unit 0: t0 phase 1 body #2 store: may meet t0 phase 1 body #0 load through an alias, and overwrite",
        ),
        // The same bytes altogether, but the second piece is loaded after the first store has changed it.
        (
            ALIAS,
            "store.f32 $1 + 32*g0 + 16*s0, l0",
            "store.f32 $1 + 16 + 32*g0 - 16*s0, l0",
            "step 0 unit 0: t0 phase 1 body #2 store: may meet t0 phase 1 body #0 load through an alias, and overwrite",
        ),
        (ALIAS, "step 0", "step 0\nstep 1", ""),
        (
            ALIAS,
            "run t(%x, %y)",
            "run t(%x, %y)\nstep 1\n  run t(%x, %y)",
            "loads bytes 0..160 of `x` after its alias is stored to",
        ),
        // units
        (LAYER_NORM, "run ln(%x, %w, %y)", "run ln(%x, %w)", "binds 2 slots, t0 has 3"),
        (LAYER_NORM, "run ln(%x, %w, %y)", "run ln(%x, %w, %9)", "argument 9 of 3"),
        (LAYER_NORM, "run ln(%x, %w, %y)", "run 7(%x, %w, %y)", "step 0 unit 0: template 7 of 1"),
        (LAYER_NORM, "run ln(%x, %w, %y)", "run ln(%x + 4, %w, %y)", "touches bytes 4..800004 of `x`"),
        (
            LAYER_NORM,
            "run ln(%x, %w, %y)",
            "run ln(%x + 2, %w, %y)",
            "offset 2 is not a multiple of the element's 4",
        ),
        (
            LAYER_NORM,
            "run ln(%x, %w, %y)",
            "run ln(%x + 18446744073709551615, %w, %y)",
            "is beyond `x` of 800000 bytes",
        ),
        (LAYER_NORM, "run ln(%x, %w, %y)", "run ln(%y, %w, %x)", "is stored to, but `x` is read only"),
        (LAYER_NORM, "%w: input f32[40000]", "%w: input i32[40000]", "holds f32, but `w` holds i32"),
        (STACK, "u8[512] align 64", "u8[512] align 2", "workspace `ws` is aligned to 2 bytes, f32 needs 4"),
        (MATMUL, "run mm(%a, %b,", "run mm(%a, %a,", "is bound as panels, but `a` is plain"),
        (MATMUL, "run mm(%a, %b,", "run mm(%b, %b,", "`b` is in panels: bind_b only"),
        // structure
        (
            LAYER_NORM,
            "phase 1 seq [s0: 10]",
            "phase 1 seq [s0: 10, s1: 1, s2: 1, s3: 1]",
            "4 sequential extents are more than 3",
        ),
        (
            LAYER_NORM,
            "parallel [g0: 5]",
            "parallel [g0: 5, g1: 1, g2: 1, g3: 1, g4: 1, g5: 1, g6: 1, g7: 1, g8: 1]",
            "9 parallel extents are more than 8",
        ),
        (LAYER_NORM, "    init(0)\n", "    finish(0)\n", "section body is out of order"),
        (LAYER_NORM, "    finish(0)\n", "    finish(1)\n", "section finish(1), but there are 1 sequential"),
        (MIXED, "      end\n", "      end\n      nop pipe v\n", "nop: follows `end`"),
        (MIXED, "  phase 1\n", "  phase 1 rotate\n", "rotates without a sequential extent"),
        (MIXED, "      end\n", "      .words 0xff\n", "opcode 0xff is not an instruction"),
        // sizes and strides
        (
            LAYER_NORM,
            "load.f32 l512, $1 + 16384*s0, cols 4096|3136@s0",
            "load.f32 l512, $1 + 16384*s0, cols 4096|4097@s0",
            "`cols`: tail 4097 is above body 4096",
        ),
        (
            LAYER_NORM,
            "load.f32 l512, $1 + 16384*s0, cols 4096|3136@s0",
            "load.f32 l512, $1 + 16384*s0, cols 4096|3136",
            "`cols`: 4096|3136 without an extent",
        ),
        (
            LAYER_NORM,
            "load.f32 l512, $1 + 16384*s0, cols 4096|3136@s0",
            "load.f32 l512, $1 + 16384*s1, cols 4096|3136@s0",
            "`src`: extent 2 has no index here",
        ),
        (
            LAYER_NORM,
            "vmul.f32 l257, l257, #2.5e-5",
            "vmul.f32 l257, l257, #2.5e-5, cols 2|1@s0",
            "`cols`: extent 1 has no index here",
        ),
        (
            LAYER_NORM,
            "$2 + 160000*g0 + 16384*s0",
            "$2 + 160000*g0 + 0*s0",
            "strides are not sorted by extent or zero",
        ),
        (
            LAYER_NORM,
            "$0 + 160000*g0 + 16384*s0",
            "$0 + 2 + 160000*g0 + 16384*s0",
            "offset or stride 2 is not a multiple of the element's 4",
        ),
        (STACK, "loops [5 by 48, 12 by -4]", "loops [5 by 48, 13 by -4]", "touches bytes -4..240 of `ws`"),
        // operands
        (LAYER_NORM, "slot $1 w: f32", "slot $1 w: i32", "slot $1 holds i32, not f32"),
        (LAYER_NORM, "slot $2 y: f32 write", "slot $2 y: f32", "stores to slot $2, which is not writable"),
        (LAYER_NORM, "load.f32 l512, $1", "load.f32 l512, $7", "slot $7, but the template has 3"),
        (LAYER_NORM, "load.f32 l512,", "load.f32 l1000,", "`dst`: 16384 bytes at 64000 exceed ub of 65536"),
        (LAYER_NORM, "load.f32 l512,", "load.f32 a0,", "`dst` is in panel_a, not in ub"),
        (LAYER_NORM, "vrsqrt.f32 l258, l258", "vrsqrt.i32 l258, l258", "vrsqrt: does not take i32"),
        (LAYER_NORM, "vrsqrt.f32 l258, l258", "vrsqrt.f32 l258, l258:one", ""),
        (
            LAYER_NORM,
            "vmul.f32 l257, l257, #2.5e-5",
            "vmul.f32 l257, l257, #0x100000000",
            "immediate `b` = 0x100000000 is no f32",
        ),
        (MIXED, "index_dtype i64", "index_dtype f64", "index dtype f64 is neither i32 nor i64"),
        (MIXED, "limit 10", "limit 11", "touches bytes 0..1408 of `table`"),
        (MATMUL, "from f32", "from f16", "no accumulator holds f16"),
        (MATMUL, "template mm mix", "template mm vector", "is a cube instruction in a vector template"),
        (MATMUL, "template mm mix", "template mm cube", "is a vector instruction in a cube template"),
        // local memory
        (
            LAYER_NORM,
            "      vfill.f32 l256, value #0.0, cols 2\n",
            "",
            "`dst` reads ub 16384..16392 before all of it is written",
        ),
        (
            LAYER_NORM,
            "vfill.f32 l256, value #0.0, cols 2",
            "vfill.f32 l256, value #0.0, cols 1",
            "`dst` reads ub 16384..16392 before",
        ),
        (
            LAYER_NORM,
            "vsub.f32 l512, l0, l257:one, cols 4096|3136@s0",
            "vsub.f32 l512, l0, l257:one, cols 4096",
            "`a` reads ub 0..16384 before",
        ),
        (
            LAYER_NORM,
            "vsub.f32 l512, l0, l257:one, cols 4096|3136@s0",
            "vsub.f32 l512, l0, l257:one, cols 4096|3137@s0",
            "`a` reads ub 0..16384 before",
        ),
        (
            LAYER_NORM,
            "vsub.f32 l512, l0, l257:one",
            "vsub.f32 l512, l0, l257:row",
            "`b` reads ub 16448..32832 before",
        ),
        (LAYER_NORM, "phase 1 seq [s0: 10]", "phase 1 seq [s0: 0]", ""),
        (LAYER_NORM, "phase 2 seq [s0: 10]", "phase 2 seq [s0: 0]", ""),
        (MATMUL, "phase 1 seq [s0: 3]", "phase 1 seq [s0: 0]", "acc_to_ub: `acc` reads acc 0..6144 before"),
        (
            LAYER_NORM,
            "vmul.f32 l512, l512, l512, cols",
            "vmul.f32 l513, l512, l512, cols",
            "`dst` at 32832..49216 overlaps `a` at 32768..49152",
        ),
        (LAYER_NORM, "vsub.f32 l0, l0, l257:one", "vsub.f32 l257, l0, l257:one", "overlaps `b`"),
        (
            MATMUL,
            "m 48|4@g0, n 32|18@g1, k 32|6@s0, init first",
            "m 48|4@g0, n 32|18@g1, k 32, init first",
            "`a`: no operand of this dtype and these sizes is packed at panel_a 0",
        ),
        (
            MATMUL,
            "bind_b.f32 b0,",
            "bind_b.f32 b1,",
            "`b`: no operand of this dtype and these sizes is packed at panel_b 0",
        ),
        (
            MATMUL,
            "vadd.f32 l0, l0, l256:row,",
            "vadd.f32 l256, l0, l256:row,",
            "sticky load, but instruction",
        ),
        (
            MATMUL,
            "$2 + 128*g1, cols 32|18@g1, hints sticky",
            "$2, cols 32|18@g1, hints sticky",
            "sticky, but `cols` changes with an extent of stride 0",
        ),
        (
            MIXED,
            "vgt.f16 l8, l1, #0.5, rows 2|1@g0, cols 64",
            "vgt.f16 l1, l1:row, #0.5, rows 2, cols 64",
            "`dst` at 64..192 overlaps `a` at 64..192",
        ),
        // accumulation
        (
            LAYER_NORM,
            "vfill.f32 l256, value #0.0, cols 2\n",
            "vfill.f32 l256, value #0.0, cols 2\n      vsum.f32 l256, l256, red 1, init first\n",
            "`first` has a meaning in the body only, not in init(0)",
        ),
        (
            LAYER_NORM,
            "seq [s0: 10]\n    init(0)",
            "seq [s0: 10] rotate\n    init(0)",
            "accumulates along a walk that rotates",
        ),
        (
            LAYER_NORM,
            "vsum.f32 l256, l0, red 4096|3136@s0",
            "vsum.f32 l256, l0, red 4000|3136@s0",
            "pieces of 4000 elements do not end on borders of 4096",
        ),
        // races
        (
            LAYER_NORM,
            "$2 + 160000*g0 + 16384*s0, l0",
            "$2 + 16384*s0, l0",
            "tiles cannot be proved to store to different bytes",
        ),
        (
            LAYER_NORM,
            "$2 + 160000*g0 + 16384*s0, l0",
            "$2 + 16384*g0 + 16384*s0, l0",
            "tiles cannot be proved to store to different bytes",
        ),
        (
            MATMUL,
            "$3 + 9600*g0 + 128*g1",
            "$3 + 9600*g0 + 124*g1",
            "tiles cannot be proved to store to different bytes",
        ),
        (
            STACK,
            "run half(%x + 24, %ws + 24)",
            "run half(%x + 24, %ws + 20)",
            "step 0 unit 1: t0 phase 1 body #2 store: may meet t0 phase 1 body #2 store of unit 0 at bytes 20..236 of `ws`",
        ),
        (
            STACK,
            "run half(%x + 24, %ws + 24)",
            "run half(%x + 24, %ws + 24)\n  run whole(%ws, %ws + 256)",
            "step 0 unit 2: t1 phase 1 body #0 load: may meet t0 phase 1 body #2 store of unit 0",
        ),
        (
            STACK,
            "run whole(%ws, %ws)",
            "run whole(%ws, %ws + 4)",
            "t1 phase 1 body #2 store: may meet t1 phase 1 body #0 load of another tile",
        ),
        (STACK, "run sum(%ws, %ws + 256)", "run whole(%ws, %ws + 256)", ""),
        (
            ALIAS,
            "load.f32 l0, $0 + 32*g0 + 16*s0, cols 4",
            "load.f32 l0, $0 + 32*g0 + 16*s0, cols 4, hints sticky",
            "#0 load: sticky, but t0 phase 1 body #2 store stores what it loads, through an alias",
        ),
        (
            ALIAS,
            "      load.f32 l0, $0",
            "      load.f32 l32, $1 + 32*g0 + 16*s0, cols 4, hints sticky\n      load.f32 l0, $0",
            "body #0 load: sticky, but t0 phase 1 body #3 store stores what it loads",
        ),
        // order and coverage
        (
            STACK,
            "run half(%x + 24, %ws + 24)",
            "run half(%x + 24, %ws + 256)",
            "loads bytes 0..240 of `ws` before they are stored",
        ),
        (STACK, "u8[512] align 64", "u8[512] align 64 zero", ""),
        (
            LAYER_NORM,
            "phase 3 seq [s0: 10]",
            "phase 3 seq [s0: 9]",
            "are proved stored, and it is not cleared",
        ),
        (
            LAYER_NORM,
            "%y: output f32[200000] align 64",
            "%y: output f32[200001] align 64",
            "`y`: 800000 of 800004 bytes are proved stored",
        ),
        (LAYER_NORM, "%y: output f32[200000] align 64", "%y: output f32[200001] align 64 zero", ""),
        (MIXED, "cols 128|64@g0", "cols 128|63@g0", "`mask`: 447 of 448 bytes are proved stored"),
        // limits
        (LAYER_NORM, "parallel [g0: 5]", "parallel [g0: 4000000000]", "4000000000 tiles exceed the limit"),
        (
            MIXED,
            "parallel [g0: 0]",
            "parallel [g0: 4000000000, g1: 4000000000, g2: 4000000000]",
            "18446744073709551615 tiles exceed",
        ),
    ];
    let mut failures = String::new();
    for (base, old, new, expect) in rows {
        assert!(base.contains(old), "{old}");
        let found = verify(&base.replacen(old, new, 1)).map(|_| ());
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

/// Each limit is met exactly, and exceeded by one.
#[test]
fn limits() {
    let program = asm(&format!("{TARGET}{LAYER_NORM}")).expect("sound");
    type Field = fn(&mut Limits) -> &mut u64;
    let rows: &[(Field, u64, &str)] = &[
        (|l| &mut l.arg_bytes, 800_000, "argument 0: 800000 bytes exceed the limit of 799999"),
        (
            |l| &mut l.bytes,
            1_760_000,
            "program: arguments of 1760000 bytes together exceed the limit of 1759999",
        ),
        (
            |l| &mut l.local_bytes,
            4 * 65_536,
            "target: 262144 bytes of local memory exceed the limit of 262143",
        ),
        (|l| &mut l.tiles, 5, "step 0: 5 tiles exceed the limit of 4"),
        (|l| &mut l.tile_instructions, 5 * 125, "program: executes 625 instructions, the limit is 624"),
    ];
    for (field, value, expect) in rows {
        let mut limits = Limits::default();
        *field(&mut limits) = *value;
        assert!(Verified::new(program.clone(), &limits).is_ok(), "{expect}");
        *field(&mut limits) -= 1;
        let e = Verified::new(program.clone(), &limits).expect_err(expect).to_string();
        assert!(e.contains(expect), "gives {e}\nwants {expect}");
    }
}
