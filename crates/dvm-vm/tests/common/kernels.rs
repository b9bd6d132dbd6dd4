//! Random kernels.

use dvm_bc::*;

use super::*;

const F32: DType = DType::F32;

/// What a register holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Nothing,
    Tile,
    Mask,
    Half,
    Row,
    Col,
    One,
}

struct Gen {
    rng: Rng,
    rows: Size,
    cols: Size,
    regs: Vec<(Local, Kind)>,
    insts: Vec<Inst>,
    /// The register written last.
    last: usize,
    /// Instructions like to take what the one before them made.
    chains: bool,
}

impl Gen {
    fn pick(&mut self, kinds: &[Kind]) -> Option<usize> {
        let fit: Vec<usize> = (0..self.regs.len()).filter(|&i| kinds.contains(&self.regs[i].1)).collect();
        (!fit.is_empty()).then(|| fit[self.rng.below(fit.len())])
    }
    fn local(&mut self, kind: Kind) -> Option<Local> {
        self.pick(&[kind]).map(|r| self.regs[r].0)
    }
    fn any_reg(&mut self) -> usize {
        self.rng.below(self.regs.len())
    }
    /// A source for an f32 tile operation.
    fn source(&mut self) -> Option<(Src, usize)> {
        if self.rng.below(6) == 0 {
            let v = (self.rng.below(9) as f32 - 4.0) / 2.0;
            return Some((Src::Imm(v.to_bits().into()), usize::MAX));
        }
        let kinds = match self.rng.below(4) {
            0 => [Kind::Row, Kind::Col, Kind::One],
            _ => [Kind::Tile; 3],
        };
        let follow = self.chains && self.regs[self.last].1 == Kind::Tile && self.rng.below(3) > 0;
        let r = if follow { self.last } else { self.pick(&kinds)? };
        let mode = match self.regs[r].1 {
            Kind::Row => Mode::Row,
            Kind::Col => Mode::Col,
            Kind::One => Mode::One,
            _ if follow => Mode::Full,
            _ => [Mode::Full, Mode::Full, Mode::Full, Mode::Row, Mode::Col, Mode::One][self.rng.below(6)],
        };
        Some((Src::Local(self.regs[r].0, mode), r))
    }
    fn emit(&mut self, dst: usize, kind: Kind, inst: Inst) {
        self.regs[dst].1 = kind;
        self.last = dst;
        self.insts.push(inst);
    }
    fn step(&mut self) -> Option<()> {
        let (rows, cols) = (self.rows, self.cols);
        let dst = self.any_reg();
        let d = self.regs[dst].0;
        match self.rng.below(15) {
            0..=6 => {
                use Opcode::*;
                let ops = [VAdd, VSub, VMul, VMax, VMin, VDiv, VLt, VEq];
                let op = ops[self.rng.below(if self.chains { 6 } else { 8 })];
                let (a, b) = (self.source()?, self.source()?);
                let kind = if op.class() == Class::Compare { Kind::Mask } else { Kind::Tile };
                let inst = Inst::new(op, F32, Binary { dst: d, a: a.0, b: b.0, rows, cols });
                self.emit(dst, kind, inst);
            }
            7 | 8 => {
                use Opcode::*;
                let ops = [VAbs, VNeg, VExp, VTanh, VSigmoid, VErf, VSqrt, VRsqrt, VReciprocal, VSign, VCopy];
                let op = ops[self.rng.below(if self.chains { 9 } else { 11 })];
                let src = self.source()?.0;
                self.emit(dst, Kind::Tile, Inst::new(op, F32, Unary { dst: d, src, rows, cols }));
            }
            9 => {
                let a = full(self.local(Kind::Mask)?);
                let (b, c) = (self.source()?.0, self.source()?.0);
                self.emit(
                    dst,
                    Kind::Tile,
                    Inst::new(Opcode::VSelect, F32, Ternary { dst: d, a, b, c, rows, cols }),
                );
            }
            10 => {
                let src = full(self.local(Kind::Tile)?);
                let cast = Cast { dst: d, src, from: F32, rows, cols };
                self.emit(dst, Kind::Half, Inst::new(Opcode::VCast, DType::F16, cast));
            }
            11 => {
                let src = full(self.local(Kind::Half)?);
                let cast = Cast { dst: d, src, from: DType::F16, rows, cols };
                self.emit(dst, Kind::Tile, Inst::new(Opcode::VCast, F32, cast));
            }
            12 => {
                let src = self.local(Kind::Tile)?;
                let one = n(1);
                let reduce = match self.rng.below(2) {
                    0 => (
                        Kind::Col,
                        Reduce { dst: d, src, outer: rows, red: cols, inner: one, init: Init::Always },
                    ),
                    _ => (
                        Kind::Row,
                        Reduce { dst: d, src, outer: one, red: rows, inner: cols, init: Init::Always },
                    ),
                };
                let op = [Opcode::VRedMax, Opcode::VRedMin, Opcode::VSum][self.rng.below(3)];
                self.emit(dst, reduce.0, Inst::new(op, F32, reduce.1));
            }
            13 => {
                let op = [Opcode::VFma, Opcode::VClamp][self.rng.below(2)];
                let (a, b, c) = (self.source()?.0, self.source()?.0, self.source()?.0);
                self.emit(dst, Kind::Tile, Inst::new(op, F32, Ternary { dst: d, a, b, c, rows, cols }));
            }
            _ => {
                let value = u64::from((self.rng.below(5) as f32).to_bits());
                self.emit(
                    dst,
                    Kind::One,
                    Inst::new(Opcode::VFill, F32, Fill { dst: d, value, rows: n(1), cols: n(1) }),
                );
            }
        }
        Some(())
    }
}

/// A random kernel: two tile inputs, a row input, two outputs, tiles along rows or columns, perhaps a sequential walk over
/// planes of the inputs.
pub(crate) fn kernel(seed: u64) -> Option<Program> {
    let mut rng = Rng(seed);
    for _ in 0..4 {
        rng.next();
    }
    let (total_rows, total_cols) =
        [(1, 1500), (13, 700), (7, 33), (150, 64), (6, 1024), (9, 1), (260, 20), (3, 9000)][rng.below(8)];
    let split_cols = rng.below(2) == 0;
    let (extent, part) =
        if split_cols { (total_cols, total_cols / 2 + 1) } else { (total_rows, total_rows / 3 + 1) };
    let parts = usize::div_ceil(extent, part);
    let ragged = Size::ragged(part as u32, (extent - (parts - 1) * part) as u32, 0);
    let (rows, cols) = if split_cols { (n(total_rows), ragged) } else { (ragged, n(total_cols)) };
    let planes = [0, 2, 3][rng.below(3)];
    let pitch = total_cols as i64 * 4;
    let step = if split_cols { part as i64 * 4 } else { part as i64 * pitch };
    let plane = total_rows as i64 * pitch;
    let tile = |slot| mem(slot, 0, &[(0, step), (1, plane)][..1 + usize::from(planes > 0)]);
    let row = mem(2, 0, if split_cols { &[(0, 1)][..0] } else { &[] });
    let mut l = Locals::default();
    let bytes = rows.body as usize * cols.body as usize * 4;
    let regs = (0..7).map(|_| (l.ub(bytes), Kind::Nothing)).collect();
    let chains = rng.below(2) == 0;
    let mut g = Gen { rng, rows, cols, regs, insts: vec![], last: 0, chains };
    let count = 6 + g.rng.below(24);
    let mut stored = [false; 2];
    for slot in [0, 1] {
        let dst = g.any_reg();
        let d = g.regs[dst].0;
        g.emit(dst, Kind::Tile, load(F32, d, tile(slot), rows, cols, pitch));
    }
    if !split_cols {
        let dst = g.any_reg();
        let d = g.regs[dst].0;
        g.emit(dst, Kind::Row, load(F32, d, row, n(1), cols, 0));
    }
    for i in 0..count {
        let _ = g.step();
        let out = usize::from(i % 2 == 1);
        if (g.rng.below(12) == 0 || i + 2 >= count)
            && !stored[out]
            && let Some(r) = g.pick(&[Kind::Tile])
        {
            let local = g.regs[r].0;
            g.insts.push(store(F32, tile(3 + out as u16), local, rows, cols, pitch));
            stored[out] = true;
        }
    }
    if !stored[0] && !stored[1] {
        return None;
    }
    let len = total_rows * total_cols * planes.max(1);
    let args = [
        (Role::Input, F32, len),
        (Role::Input, F32, len),
        (Role::Input, F32, total_cols),
        (Role::Output, F32, len),
        (Role::Output, F32, len),
    ];
    let seq: Vec<u32> = if planes > 0 { vec![planes as u32] } else { vec![] };
    Some(program(&args, &[parts as u32], vec![phase(&seq, &[(Place::Body, &g.insts)])]))
}
