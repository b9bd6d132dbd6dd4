//! Which meaning an instruction has. The match names every opcode: a new row of the table does not compile without one.

use super::reduce::Fold;
use super::scalar::{self as s, Scalars, ZeroDivisor};
use super::tile::{Cx, encode};
use super::value::Value;
use super::{Fault, Math, TrapKind};
use crate::{DType, Mode, Opcode, Operands, Src};

/// How an instruction computes, by its form.
enum Meaning {
    /// Bits are moved as they are.
    Copy,
    Unary(s::Unary),
    Predicate(s::Predicate),
    Binary(s::Binary),
    Divide(s::Divide),
    Compare(s::Compare),
    Ternary(s::Ternary),
    Select,
    Cast,
    Fill,
    Iota,
    LocalView,
    Sum,
    PartSum,
    Fold(Fold),
    ArgReduce {
        largest: bool,
    },
    CumSum,
    Load,
    Store,
    ViewLoad,
    ViewStore,
    GatherLoad,
    GatherElems,
    FillStore,
    LoadA,
    LoadB,
    PackA,
    BindB,
    Mmad,
    AccToUb,
    AccStore,
    ScatterStore,
    ScatterElems,
    CompressStore,
    BroadcastX,
    BroadcastY,
    Transpose,
    ClearPad,
    RemovePad,
    Sort,
    /// Order and synchronisation: nothing, in program order.
    Nothing,
}

fn meaning(op: Opcode) -> Meaning {
    use Meaning::{Binary, Compare, Divide, Predicate, Ternary, Unary};
    match op {
        Opcode::End | Opcode::Nop | Opcode::Barrier | Opcode::XSet | Opcode::XWait => Meaning::Nothing,
        Opcode::ScatterStore => Meaning::ScatterStore,
        Opcode::ScatterElems => Meaning::ScatterElems,
        Opcode::CompressStore => Meaning::CompressStore,
        Opcode::Load => Meaning::Load,
        Opcode::Store => Meaning::Store,
        Opcode::ViewLoad => Meaning::ViewLoad,
        Opcode::ViewStore => Meaning::ViewStore,
        Opcode::GatherLoad => Meaning::GatherLoad,
        Opcode::GatherElems => Meaning::GatherElems,
        Opcode::FillStore => Meaning::FillStore,
        Opcode::VCopy => Meaning::Copy,
        Opcode::VAbs => Unary(s::abs),
        Opcode::VNeg => Unary(s::neg),
        Opcode::VSign => Unary(s::sign),
        Opcode::VSqrt => Unary(s::sqrt),
        Opcode::VRsqrt => Unary(s::rsqrt),
        Opcode::VReciprocal => Unary(s::reciprocal),
        Opcode::VRound => Unary(s::round),
        Opcode::VFloor => Unary(s::floor),
        Opcode::VCeil => Unary(s::ceil),
        Opcode::VTrunc => Unary(s::trunc),
        Opcode::VNot => Unary(s::not),
        Opcode::VExp
        | Opcode::VExp2
        | Opcode::VLn
        | Opcode::VLog2
        | Opcode::VLog1p
        | Opcode::VExpm1
        | Opcode::VSin
        | Opcode::VCos
        | Opcode::VTan
        | Opcode::VTanh
        | Opcode::VErf
        | Opcode::VSigmoid
        | Opcode::VAsin
        | Opcode::VAcos
        | Opcode::VAtan
        | Opcode::VSinh
        | Opcode::VCosh
        | Opcode::VAsinh
        | Opcode::VAcosh
        | Opcode::VAtanh => Unary(s::function),
        Opcode::VIsFinite => Predicate(s::is_finite),
        Opcode::VIsNan => Predicate(s::is_nan),
        Opcode::VIsInf => Predicate(s::is_inf),
        Opcode::VAdd => Binary(s::add),
        Opcode::VSub => Binary(s::sub),
        Opcode::VMul => Binary(s::mul),
        Opcode::VPow => Binary(s::pow),
        Opcode::VMax => Binary(s::max),
        Opcode::VMin => Binary(s::min),
        Opcode::VAnd => Binary(s::and),
        Opcode::VOr => Binary(s::or),
        Opcode::VXor => Binary(s::xor),
        Opcode::VShl => Binary(s::shl),
        Opcode::VShr => Binary(s::shr),
        Opcode::VDiv => Divide(s::div),
        Opcode::VRem => Divide(s::rem),
        Opcode::VFmod => Divide(s::fmod),
        Opcode::VFloorDiv => Divide(s::floordiv),
        Opcode::VEq => Compare(s::eq),
        Opcode::VNe => Compare(s::ne),
        Opcode::VLt => Compare(s::lt),
        Opcode::VLe => Compare(s::le),
        Opcode::VGt => Compare(s::gt),
        Opcode::VGe => Compare(s::ge),
        Opcode::VFma => Ternary(s::fma),
        Opcode::VClamp => Ternary(s::clamp),
        Opcode::VSelect => Meaning::Select,
        Opcode::VCast => Meaning::Cast,
        Opcode::VFill => Meaning::Fill,
        Opcode::VIota => Meaning::Iota,
        Opcode::VView => Meaning::LocalView,
        Opcode::VBroadcastX => Meaning::BroadcastX,
        Opcode::VBroadcastY => Meaning::BroadcastY,
        Opcode::VTranspose => Meaning::Transpose,
        Opcode::VClearPad => Meaning::ClearPad,
        Opcode::VRemovePad => Meaning::RemovePad,
        Opcode::VSortKv => Meaning::Sort,
        Opcode::VSum => Meaning::Sum,
        Opcode::VSumPart => Meaning::PartSum,
        Opcode::VRedMax => Meaning::Fold(Fold::Max),
        Opcode::VRedMin => Meaning::Fold(Fold::Min),
        Opcode::VProd => Meaning::Fold(Fold::Prod),
        Opcode::VAny => Meaning::Fold(Fold::Any),
        Opcode::VAll => Meaning::Fold(Fold::All),
        Opcode::VArgMax => Meaning::ArgReduce { largest: true },
        Opcode::VArgMin => Meaning::ArgReduce { largest: false },
        Opcode::VCumSum => Meaning::CumSum,
        Opcode::LoadA => Meaning::LoadA,
        Opcode::LoadB => Meaning::LoadB,
        Opcode::PackA => Meaning::PackA,
        Opcode::BindB => Meaning::BindB,
        Opcode::Mmad => Meaning::Mmad,
        Opcode::AccToUb => Meaning::AccToUb,
        Opcode::AccStore => Meaning::AccStore,
    }
}

/// Executes the instruction of `cx`.
pub(super) fn execute(cx: &mut Cx<'_>) -> Result<(), Fault> {
    let (inst, math) = (cx.inst, cx.math);
    let (dtype, op) = (inst.dtype, inst.op);
    let scalars = Scalars { math, op, dtype };
    let value = |bits| Value::of(dtype, bits);
    let bits = |v| encode(math, v, dtype);
    match (meaning(op), &inst.operands) {
        (Meaning::Nothing, Operands::Control(_) | Operands::OnPipe(_) | Operands::Cross(_)) => Ok(()),
        (Meaning::Copy, Operands::Unary(o)) => {
            cx.elementwise(o.dst, dtype, [(o.src, dtype)], (o.rows, o.cols), |_, [a]| Ok(a))
        }
        (Meaning::Unary(f), Operands::Unary(o)) => {
            let f = |_, [a]: [u64; 1]| Ok(bits(f(&scalars, value(a))));
            cx.elementwise(o.dst, dtype, [(o.src, dtype)], (o.rows, o.cols), f)
        }
        (Meaning::Predicate(f), Operands::Unary(o)) => {
            let f = |_, [a]: [u64; 1]| Ok(f(value(a)).into());
            cx.elementwise(o.dst, DType::Bool, [(o.src, dtype)], (o.rows, o.cols), f)
        }
        (Meaning::Binary(f), Operands::Binary(o)) => {
            let f = |_, [a, b]: [u64; 2]| Ok(bits(f(&scalars, value(a), value(b))));
            cx.elementwise(o.dst, dtype, [(o.a, dtype), (o.b, dtype)], (o.rows, o.cols), f)
        }
        (Meaning::Divide(f), Operands::Binary(o)) => {
            let f = |element, [a, b]: [u64; 2]| match f(value(a), value(b)) {
                Ok(v) => Ok(bits(v)),
                Err(ZeroDivisor) => {
                    Err(Fault::Trap { kind: TrapKind::DivideByZero, element, value: value(a).as_i64() })
                }
            };
            cx.elementwise(o.dst, dtype, [(o.a, dtype), (o.b, dtype)], (o.rows, o.cols), f)
        }
        (Meaning::Compare(f), Operands::Binary(o)) => {
            let f = |_, [a, b]: [u64; 2]| Ok(f(value(a), value(b)).into());
            cx.elementwise(o.dst, DType::Bool, [(o.a, dtype), (o.b, dtype)], (o.rows, o.cols), f)
        }
        (Meaning::Ternary(f), Operands::Ternary(o)) => {
            let f = |_, [a, b, c]: [u64; 3]| Ok(bits(f(value(a), value(b), value(c))));
            let sources = [(o.a, dtype), (o.b, dtype), (o.c, dtype)];
            cx.elementwise(o.dst, dtype, sources, (o.rows, o.cols), f)
        }
        (Meaning::Select, Operands::Ternary(o)) => {
            let f = |_, [a, b, c]: [u64; 3]| Ok(if a != 0 { b } else { c });
            let sources = [(o.a, DType::Bool), (o.b, dtype), (o.c, dtype)];
            cx.elementwise(o.dst, dtype, sources, (o.rows, o.cols), f)
        }
        (Meaning::Cast, Operands::Cast(o)) => {
            let f = |_, [a]: [u64; 1]| Ok(cast(math, a, o.from, dtype));
            cx.elementwise(o.dst, dtype, [(o.src, o.from)], (o.rows, o.cols), f)
        }
        (Meaning::AccToUb, Operands::AccToUb(o)) => {
            let acc = Src::Local(o.acc, Mode::Full);
            let f = |_, [a]: [u64; 1]| Ok(cast(math, a, o.from, dtype));
            cx.elementwise(o.dst, dtype, [(acc, o.from)], (o.m, o.n), f)
        }
        (Meaning::AccStore, Operands::AccStore(o)) => cx.exec_acc_store(o),
        (Meaning::Fill, Operands::Fill(o)) => {
            cx.elementwise(o.dst, dtype, [], (o.rows, o.cols), |_, []| Ok(o.value))
        }
        (Meaning::Iota, Operands::Iota(o)) => cx.exec_iota(o),
        (Meaning::LocalView, Operands::LocalView(o)) => cx.exec_local_view(o),
        (Meaning::BroadcastX, Operands::Shape(o)) => cx.exec_shape(o, (1, 0)),
        (Meaning::BroadcastY, Operands::Shape(o)) => cx.exec_shape(o, (0, 1)),
        (Meaning::Transpose, Operands::Shape(o)) => cx.exec_shape(o, (1, i64::from(o.rows.body))),
        (Meaning::ClearPad, Operands::ClearPad(o)) => cx.exec_clear_pad(o),
        (Meaning::RemovePad, Operands::RemovePad(o)) => cx.exec_remove_pad(o),
        (Meaning::Sort, Operands::SortKv(o)) => cx.exec_sort(o),
        (Meaning::Sum, Operands::Reduce(o)) => cx.exec_sum(o),
        (Meaning::PartSum, Operands::PartSum(o)) => cx.exec_part_sum(o),
        (Meaning::Fold(f), Operands::Reduce(o)) => cx.exec_fold(o, f),
        (Meaning::ArgReduce { largest }, Operands::ArgReduce(o)) => cx.exec_arg_reduce(o, largest),
        (Meaning::CumSum, Operands::CumSum(o)) => cx.exec_cum_sum(o),
        (Meaning::Load, Operands::Load(o)) => cx.exec_load(o),
        (Meaning::Store, Operands::Store(o)) => cx.exec_store(o),
        (Meaning::ViewLoad, Operands::ViewLoad(o)) => cx.exec_view_load(o),
        (Meaning::ViewStore, Operands::ViewStore(o)) => cx.exec_view_store(o),
        (Meaning::GatherLoad, Operands::GatherLoad(o)) => cx.exec_gather_load(o),
        (Meaning::GatherElems, Operands::GatherElems(o)) => cx.exec_gather_elems(o),
        (Meaning::FillStore, Operands::FillStore(o)) => cx.exec_fill_store(o),
        (Meaning::ScatterStore, Operands::ScatterStore(o)) => cx.exec_scatter_store(o),
        (Meaning::ScatterElems, Operands::ScatterElems(o)) => cx.exec_scatter_elems(o),
        (Meaning::CompressStore, Operands::CompressStore(o)) => cx.exec_compress_store(o),
        (Meaning::LoadA, Operands::LoadA(o)) => cx.exec_load_a(o),
        (Meaning::LoadB, Operands::LoadB(o)) => cx.exec_load_b(o),
        (Meaning::PackA, Operands::PackA(o)) => cx.exec_pack_a(o),
        (Meaning::BindB, Operands::BindB(o)) => cx.exec_bind_b(o),
        (Meaning::Mmad, Operands::Mmad(o)) => cx.exec_mmad(o),
        _ => Err(Fault::Form { mnemonic: op.mnemonic() }),
    }
}

/// The bits of `bits`, converted. Equal dtypes move bits, but a bool becomes 0 or 1.
pub(super) fn cast(math: &dyn Math, bits: u64, from: DType, to: DType) -> u64 {
    if from == to && to != DType::Bool {
        return bits;
    }
    encode(math, Value::of(from, bits).convert(to), to)
}
