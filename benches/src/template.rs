//! A kernel of 40 instructions for `host-ref`: what a fused chain of elementwise operations and row reductions looks like
//! when it is as long as kernels get.

use dvm_bc::{
    Arg, Binary, Code, DType, EncodeError, Hints, Init, Inst, Layout, Load, Local, Mem, Mode, Opcode, Phase,
    Place, Program, Reduce, Role, Section, Size, Slot, Space, Src, Step, Store, Target, Template, Ternary,
    Unary, Unit,
};

const F32: DType = DType::F32;
/// Rows and columns of the tensors, and rows of a tile.
const ROWS: u32 = 1000;
const COLS: u32 = 256;
const TILE: u32 = 16;

/// The instructions, over slots `x, y: f32[1000, 256]`, `gain, bias: f32[256]` and the results `p, q: f32[1000, 256]`.
#[must_use]
pub fn instructions(target: &Target) -> Vec<Inst> {
    use Opcode::{
        VAbs, VAdd, VDiv, VExp, VFma, VMax, VMul, VNeg, VRedMax, VRsqrt, VSigmoid, VSqrt, VSub, VSum, VTanh,
    };
    let tiles = ROWS.div_ceil(TILE);
    let (rows, cols) = (Size::ragged(TILE, ROWS - (tiles - 1) * TILE, 0), Size::fixed(COLS));
    let row_bytes = i64::from(COLS) * 4;
    let tile_blocks = TILE * COLS * 4 / target.block;
    // Eight tiles, then rows and columns of a block or more each.
    let tile = |i: u32| Local { space: Space::Ub, offset: i * tile_blocks };
    let small = |i: u32| Local { space: Space::Ub, offset: 8 * tile_blocks + i * (COLS * 4 / target.block) };
    let mem = |slot, moves: bool| Mem {
        slot,
        offset: 0,
        strides: moves.then_some((0, row_bytes * i64::from(TILE))).into_iter().collect(),
    };
    let hints = Hints::default();
    let load = |dst, slot, moves: bool| {
        let (rows, pitch) = if moves { (rows, row_bytes) } else { (Size::ONE, 0) };
        Inst::new(Opcode::Load, F32, Load { dst, src: mem(slot, moves), rows, cols, pitch, hints })
    };
    let store = |slot, src| {
        let dst = mem(slot, true);
        Inst::new(Opcode::Store, F32, Store { dst, src, rows, cols, pitch: row_bytes, hints })
    };
    let full = |i| Src::Local(tile(i), Mode::Full);
    let row = |i| Src::Local(small(i), Mode::Row);
    let col = |i| Src::Local(small(i), Mode::Col);
    let imm = |v: f32| Src::Imm(v.to_bits().into());
    let unary = |op, dst, src| Inst::new(op, F32, Unary { dst: tile(dst), src: full(src), rows, cols });
    let binary = |op, dst, a, b| Inst::new(op, F32, Binary { dst: tile(dst), a, b, rows, cols });
    let fma = |dst, a, b, c| Inst::new(VFma, F32, Ternary { dst: tile(dst), a, b, c, rows, cols });
    let of_col = |op, dst, a, b| Inst::new(op, F32, Binary { dst: small(dst), a, b, rows, cols: Size::ONE });
    let reduce = |op, dst, src| {
        let (dst, src) = (small(dst), tile(src));
        Inst::new(op, F32, Reduce { dst, src, outer: rows, red: cols, inner: Size::ONE, init: Init::Always })
    };
    let whole = |i| Src::Local(small(i), Mode::Full);
    vec![
        load(tile(0), 0, true),
        load(tile(1), 1, true),
        load(small(0), 2, false),
        load(small(1), 3, false),
        // A residual, gated.
        binary(VAdd, 2, full(0), full(1)),
        unary(VSigmoid, 3, 2),
        binary(VMul, 3, full(3), full(2)),
        binary(VMul, 3, full(3), imm(1.702)),
        binary(VMax, 3, full(3), imm(-8.0)),
        // Its layer norm.
        reduce(VSum, 2, 3),
        of_col(VMul, 2, whole(2), imm(1.0 / COLS as f32)),
        binary(VSub, 4, full(3), col(2)),
        binary(VMul, 5, full(4), full(4)),
        reduce(VSum, 3, 5),
        of_col(VMul, 3, whole(3), imm(1.0 / COLS as f32)),
        of_col(VAdd, 3, whole(3), imm(1e-5)),
        Inst::new(VRsqrt, F32, Unary { dst: small(3), src: whole(3), rows, cols: Size::ONE }),
        binary(VMul, 4, full(4), col(3)),
        binary(VMul, 4, full(4), row(0)),
        binary(VAdd, 4, full(4), row(1)),
        store(4, tile(4)),
        // A softmax of what is left, mixed with the norm.
        unary(VTanh, 5, 4),
        fma(5, full(5), full(3), full(0)),
        unary(VAbs, 6, 5),
        unary(VSqrt, 6, 6),
        binary(VSub, 6, full(6), full(1)),
        reduce(VRedMax, 4, 6),
        binary(VSub, 6, full(6), col(4)),
        unary(VExp, 6, 6),
        reduce(VSum, 5, 6),
        binary(VDiv, 6, full(6), col(5)),
        unary(VNeg, 7, 5),
        fma(7, full(6), full(4), full(7)),
        binary(VMul, 7, full(7), row(0)),
        binary(VAdd, 7, full(7), row(1)),
        unary(VAbs, 2, 7),
        binary(VAdd, 2, full(2), imm(1.0)),
        binary(VDiv, 7, full(7), full(2)),
        binary(VMax, 7, full(7), imm(-1.0)),
        store(5, tile(7)),
    ]
}

/// The instructions as code.
///
/// # Errors
/// A field does not fit: a defect of the table above.
pub fn encode(instructions: &[Inst]) -> Result<Code, EncodeError> {
    let mut code = Code::default();
    instructions.iter().try_for_each(|i| code.push(i))?;
    Ok(code)
}

/// A program of one unit with this code.
#[must_use]
pub fn program(target: &Target, code: Code) -> Program {
    let names = ["x", "y", "gain", "bias", "p", "q"];
    let write = |i: usize| i >= 4;
    let elements = |i: usize| u64::from(if matches!(i, 2 | 3) { COLS } else { ROWS * COLS });
    let args = names.iter().enumerate().map(|(i, name)| Arg {
        name: (*name).to_owned(),
        role: if write(i) { Role::Output } else { Role::Input },
        dtype: F32,
        bytes: elements(i) * 4,
        align: 64,
        layout: Layout::Plain,
        zero: false,
    });
    let slots = names.iter().enumerate().map(|(i, name)| Slot {
        name: (*name).to_owned(),
        dtype: F32,
        write: write(i),
    });
    let sections = vec![Section { place: Place::Body, code }];
    let template = Template {
        name: "forty".to_owned(),
        kind: dvm_bc::Kind::Vector,
        slots: slots.collect(),
        parallel: vec![ROWS.div_ceil(TILE)],
        phases: vec![Phase { seq: vec![], rotate: false, sections }],
    };
    let unit = Unit { template: 0, slots: (0..names.len() as u32).map(|i| (i, 0)).collect(), weight: 1 };
    Program {
        name: "forty".to_owned(),
        target: target.clone(),
        args: args.collect(),
        templates: vec![template],
        steps: vec![Step { units: vec![unit], limits: vec![] }],
        aliases: vec![],
    }
}
