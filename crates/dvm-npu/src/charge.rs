//! What each instruction is charged as. The match is exhaustive: an instruction without a cost does not compile.

use dvm_bc::{Class, Inst, Opcode, Operand, Operands, Size};

use crate::Costs;

/// The coefficients of [`Costs`] that an instruction is charged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostKey {
    /// Nothing but its decoding.
    Free,
    /// [`DmaCosts`](crate::DmaCosts): contiguous rows.
    Rows,
    /// [`DmaCosts`](crate::DmaCosts): each element is a burst of its own.
    Elements,
    /// [`CubeCosts`](crate::CubeCosts): an operand is packed.
    Pack,
    /// [`CubeCosts`](crate::CubeCosts): a product.
    Product,
    /// [`VectorCosts`](crate::VectorCosts): the line of a class.
    Vector(Class),
}

impl CostKey {
    /// What an instruction is charged as.
    #[must_use]
    pub const fn of(op: Opcode) -> CostKey {
        use Opcode::{
            AccStore, AccToUb, Barrier, BindB, CompressStore, End, FillStore, GatherElems, GatherLoad, Load,
            LoadA, LoadB, Mmad, Nop, PackA, ScatterElems, ScatterStore, Store, VAbs, VAcos, VAcosh, VAdd,
            VAll, VAnd, VAny, VArgMax, VArgMin, VAsin, VAsinh, VAtan, VAtanh, VBroadcastX, VBroadcastY,
            VCast, VCeil, VClamp, VClearPad, VCopy, VCos, VCosh, VCumSum, VDiv, VEq, VErf, VExp, VExp2,
            VExpm1, VFill, VFloor, VFloorDiv, VFma, VFmod, VGe, VGt, VIota, VIsFinite, VIsInf, VIsNan, VLe,
            VLn, VLog1p, VLog2, VLt, VMax, VMin, VMul, VNe, VNeg, VNot, VOr, VPow, VProd, VReciprocal,
            VRedMax, VRedMin, VRem, VRemovePad, VRound, VRsqrt, VSelect, VShl, VShr, VSigmoid, VSign, VSin,
            VSinh, VSortKv, VSqrt, VSub, VSum, VSumPart, VTan, VTanh, VTranspose, VTrunc, VView, VXor,
            ViewLoad, ViewStore, XSet, XWait,
        };
        match op {
            End | Nop | Barrier | XSet | XWait | BindB => CostKey::Free,
            Load | Store | ViewLoad | ViewStore | GatherLoad | ScatterStore | FillStore | CompressStore
            | AccToUb | AccStore => CostKey::Rows,
            GatherElems | ScatterElems => CostKey::Elements,
            LoadA | LoadB | PackA => CostKey::Pack,
            Mmad => CostKey::Product,
            VCopy | VCast | VFill | VIota | VView | VBroadcastX | VBroadcastY | VTranspose | VClearPad
            | VRemovePad => CostKey::Vector(Class::Move),
            VAbs | VNeg | VSign | VRound | VFloor | VCeil | VTrunc | VNot | VAdd | VSub | VMul | VMax
            | VMin | VAnd | VOr | VXor | VShl | VShr | VFma | VSelect | VClamp => {
                CostKey::Vector(Class::Arith)
            }
            VIsFinite | VIsNan | VIsInf | VEq | VNe | VLt | VLe | VGt | VGe => {
                CostKey::Vector(Class::Compare)
            }
            VSqrt | VRsqrt | VReciprocal | VDiv | VRem | VFmod | VFloorDiv => CostKey::Vector(Class::Divide),
            VExp | VExp2 | VLn | VLog2 | VLog1p | VExpm1 | VTanh | VErf | VSigmoid => {
                CostKey::Vector(Class::Exp)
            }
            VSin | VCos | VTan | VAsin | VAcos | VAtan | VSinh | VCosh | VAsinh | VAcosh | VAtanh | VPow => {
                CostKey::Vector(Class::Special)
            }
            VSum | VSumPart | VRedMax | VRedMin | VProd | VAny | VAll => CostKey::Vector(Class::Reduce),
            VArgMax | VArgMin | VCumSum | VSortKv => CostKey::Vector(Class::Scan),
        }
    }
}

impl Costs {
    /// Nanoseconds of one execution at full counts, on a core that has everything to itself.
    #[must_use]
    pub fn ns(&self, inst: &Inst) -> f64 {
        let (mut count, mut inner) = (1.0, 1.0);
        inst.visit(|_, _, operand| {
            let mut dim = |s: Size| {
                inner = f64::from(s.body);
                count *= inner;
            };
            match operand {
                Operand::Size(s) => dim(s),
                Operand::Loops(l) => l.iter().for_each(|l| dim(l.count)),
                _ => {}
            }
        });
        let size = f64::from(inst.dtype.size());
        match CostKey::of(inst.op) {
            CostKey::Free => 0.0,
            CostKey::Rows => {
                let rows = if inner > 0.0 { count / inner } else { 0.0 };
                self.dma.ns(rows, inner * size)
            }
            CostKey::Elements => self.dma.ns(count, size),
            CostKey::Pack => self.dma.fixed_ns + count * size / self.cube.pack_rate,
            CostKey::Product => match &inst.operands {
                Operands::Mmad(o) => self.cube.ns(inst.dtype, o.m.body, o.n.body, o.k.body),
                _ => 0.0,
            },
            CostKey::Vector(class) => self.vector.ns(class, inst.dtype, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineSpec;

    #[test]
    fn keys_agree_with_classes_and_lines_exist() {
        let spec = MachineSpec::named("ascend-910b2").expect("shipped");
        for &op in Opcode::ALL {
            let key = CostKey::of(op);
            match (op.class(), key) {
                (Class::Control, CostKey::Free) | (Class::Cube, CostKey::Product) => {}
                (Class::Dma, CostKey::Free | CostKey::Rows | CostKey::Elements | CostKey::Pack) => {}
                // It moves a tile as a transfer does.
                (Class::Move, CostKey::Rows) if op == Opcode::AccToUb => {}
                // It packs as a load of an operand does.
                (Class::Move, CostKey::Pack) if op == Opcode::PackA => {}
                (class, CostKey::Vector(c)) if class == c => {
                    assert!(spec.costs.vector.line(c).is_some(), "{op:?}");
                }
                (class, key) => panic!("{op:?} of class {class:?} is charged as {key:?}"),
            }
        }
    }

    #[test]
    fn costs_grow_with_counts() {
        let spec = MachineSpec::named("ascend-910b2").expect("shipped");
        let ns = |text: &str| {
            let program = dvm_bc::asm(&format!(
                "program p\ntarget t cores 1 block 32 ub 4096 mr 1 nr 4:16 exchange direct\n\
                 template t mix\n  slot $0 x: f32 write\n  phase 1\n    body\n      {text}\n"
            ))
            .unwrap_or_else(|e| panic!("{text}: {e}"));
            let inst =
                program.templates[0].phases[0].sections[0].code.iter().next().expect("one").expect("decodes");
            spec.costs.ns(&inst)
        };
        assert_eq!(ns("nop pipe v"), 0.0);
        for (small, large) in [
            ("load.f32 l0, $0, cols 64", "load.f32 l0, $0, cols 128"),
            ("load.f32 l0, $0, cols 64", "load.f32 l0, $0, rows 4, cols 16"),
            (
                "view_load.f32 l0, $0, loops [4 by 4, 4 by 16]",
                "view_load.f32 l0, $0, loops [16 by 4, 4 by 16]",
            ),
            ("vadd.f32 l0, l8, l16, cols 64", "vadd.f32 l0, l8, l16, rows 2, cols 64"),
            ("vadd.f32 l0, l8, l16, cols 64", "vexp.f32 l0, l8, cols 64"),
            ("vadd.f16 l0, l8, l16, cols 64", "vadd.f32 l0, l8, l16, cols 64"),
            ("mmad.f16 c0, a0, b0, m 16, n 16, k 16", "mmad.f16 c0, a0, b0, m 16, n 16, k 32"),
            ("load_a.f32 a0, $0, m 8, k 8", "load_a.f32 a0, $0, m 8, k 16"),
        ] {
            assert!(0.0 < ns(small) && ns(small) < ns(large), "{small} < {large}");
        }
    }
}
