//! Ops of the kernel form -> instructions: the tables that join the two declarations.

use dvm_bc::{DType, Opcode};
use dvm_ir::kernel::KReduce;
use dvm_ir::{BinaryOp, UnaryOp};

/// The bytecode's name of a dtype.
pub(crate) const fn dtype(d: dvm_ir::DType) -> DType {
    use dvm_ir::DType as D;
    match d {
        D::F32 => DType::F32,
        D::F64 => DType::F64,
        D::F16 => DType::F16,
        D::BF16 => DType::BF16,
        D::I8 => DType::I8,
        D::U8 => DType::U8,
        D::I16 => DType::I16,
        D::U16 => DType::U16,
        D::I32 => DType::I32,
        D::U32 => DType::U32,
        D::I64 => DType::I64,
        D::U64 => DType::U64,
        D::Bool => DType::Bool,
    }
}

/// The evaluator's name of a dtype.
fn value_dtype(d: DType) -> dvm_ir::DType {
    dvm_ir::DType::ALL.iter().copied().find(|&x| dtype(x) == d).unwrap_or(dvm_ir::DType::F32)
}

/// i8, i16, i32 or i64.
pub(crate) const fn is_signed(d: DType) -> bool {
    matches!(d, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// Bits of a scalar in a dtype that holds its value.
pub(crate) fn immediate(bits: u64, from: DType, to: DType) -> u64 {
    if from == to {
        return bits;
    }
    dvm_ir::Scalar::from_bits(bits, value_dtype(from)).to_bits(value_dtype(to))
}

/// What a unary op becomes.
pub(crate) enum Lowered {
    /// An instruction.
    Op(Opcode),
    /// The operand itself.
    Same,
    /// A bool, the same for every operand.
    Bool(bool),
}

/// A unary op over a dtype. Rounding and tests of integers are decided here.
pub(crate) const fn unary(op: UnaryOp, dtype: DType) -> Lowered {
    use Opcode as O;
    let int = !dtype.is_float();
    Lowered::Op(match op {
        UnaryOp::Copy => return Lowered::Same,
        UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc if int => return Lowered::Same,
        UnaryOp::IsFinite if int => return Lowered::Bool(true),
        UnaryOp::IsNan | UnaryOp::IsInf if int => return Lowered::Bool(false),
        UnaryOp::Abs => O::VAbs,
        UnaryOp::Neg => O::VNeg,
        UnaryOp::Sign => O::VSign,
        UnaryOp::Sqrt => O::VSqrt,
        UnaryOp::Rsqrt => O::VRsqrt,
        UnaryOp::Reciprocal => O::VReciprocal,
        UnaryOp::Exp => O::VExp,
        UnaryOp::Exp2 => O::VExp2,
        UnaryOp::Ln => O::VLn,
        UnaryOp::Log2 => O::VLog2,
        UnaryOp::Log1p => O::VLog1p,
        UnaryOp::Expm1 => O::VExpm1,
        UnaryOp::Sin => O::VSin,
        UnaryOp::Cos => O::VCos,
        UnaryOp::Tan => O::VTan,
        UnaryOp::Tanh => O::VTanh,
        UnaryOp::Erf => O::VErf,
        UnaryOp::Sigmoid => O::VSigmoid,
        UnaryOp::Round => O::VRound,
        UnaryOp::Floor => O::VFloor,
        UnaryOp::Ceil => O::VCeil,
        UnaryOp::Trunc => O::VTrunc,
        UnaryOp::IsFinite => O::VIsFinite,
        UnaryOp::IsNan => O::VIsNan,
        UnaryOp::IsInf => O::VIsInf,
        UnaryOp::Not => O::VNot,
        UnaryOp::Asin => O::VAsin,
        UnaryOp::Acos => O::VAcos,
        UnaryOp::Atan => O::VAtan,
        UnaryOp::Sinh => O::VSinh,
        UnaryOp::Cosh => O::VCosh,
        UnaryOp::Asinh => O::VAsinh,
        UnaryOp::Acosh => O::VAcosh,
        UnaryOp::Atanh => O::VAtanh,
    })
}

/// The instruction of a binary op.
pub(crate) const fn binary(op: BinaryOp) -> Opcode {
    use Opcode as O;
    match op {
        BinaryOp::Add => O::VAdd,
        BinaryOp::Sub => O::VSub,
        BinaryOp::Mul => O::VMul,
        BinaryOp::Div => O::VDiv,
        BinaryOp::FloorDiv => O::VFloorDiv,
        BinaryOp::Rem => O::VRem,
        BinaryOp::Fmod => O::VFmod,
        BinaryOp::Pow => O::VPow,
        BinaryOp::Max => O::VMax,
        BinaryOp::Min => O::VMin,
        BinaryOp::And => O::VAnd,
        BinaryOp::Or => O::VOr,
        BinaryOp::Xor => O::VXor,
        BinaryOp::Shl => O::VShl,
        BinaryOp::Shr => O::VShr,
        BinaryOp::Eq => O::VEq,
        BinaryOp::Ne => O::VNe,
        BinaryOp::Lt => O::VLt,
        BinaryOp::Le => O::VLe,
        BinaryOp::Gt => O::VGt,
        BinaryOp::Ge => O::VGe,
    }
}

/// The instruction of a reduction.
pub(crate) const fn reduce(r: KReduce) -> Opcode {
    match r {
        KReduce::Sum => Opcode::VSum,
        KReduce::Max => Opcode::VRedMax,
        KReduce::Min => Opcode::VRedMin,
        KReduce::Prod => Opcode::VProd,
        KReduce::Any => Opcode::VAny,
        KReduce::All => Opcode::VAll,
    }
}

/// The elementwise instruction that joins two partial results of a reduction.
pub(crate) const fn combine(r: KReduce) -> Opcode {
    match r {
        KReduce::Sum => Opcode::VAdd,
        KReduce::Max => Opcode::VMax,
        KReduce::Min => Opcode::VMin,
        KReduce::Prod => Opcode::VMul,
        KReduce::Any => Opcode::VOr,
        KReduce::All => Opcode::VAnd,
    }
}

/// The neutral element of a reduction in the bytecode's dtype.
pub(crate) fn neutral(r: KReduce, d: DType) -> u64 {
    identity(r, value_dtype(d))
}

/// The result of a reduction over nothing, as bits of the dtype.
pub(crate) fn identity(r: KReduce, d: dvm_ir::DType) -> u64 {
    use dvm_ir::Scalar::{Float, Int};
    let signed = d.is_int() && !d.is_unsigned();
    let width = 8 * d.size() as u32;
    let (least, most) = if d.is_float() {
        (Float(f64::NEG_INFINITY), Float(f64::INFINITY))
    } else if signed {
        (Int(i64::MIN >> (64 - width)), Int(i64::MAX >> (64 - width)))
    } else if d.is_int() {
        (Int(0), Int(-1))
    } else {
        (Int(0), Int(1))
    };
    let one = if d.is_float() { Float(1.0) } else { Int(1) };
    match r {
        KReduce::Sum | KReduce::Any => Int(0).to_bits(d),
        KReduce::Prod | KReduce::All => one.to_bits(d),
        KReduce::Max => least.to_bits(d),
        KReduce::Min => most.to_bits(d),
    }
}
