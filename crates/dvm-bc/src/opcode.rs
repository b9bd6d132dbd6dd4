//! The one instruction table.
//!
//! A row of [`for_each_opcode!`] is an instruction: number, mnemonic, name, *form*. A row of [`for_each_form!`] is an
//! operand layout shared by all instructions of that form. Numbers are explicit and never reused: stored programs
//! and snapshots outlive a build.

use crate::{DType, Hints, Init, Local, Loops, Mem, Size, Src, Strides};

/// Calls `$m!` with one row per operand layout: `Form { field: Access Type, .. }`.
///
/// Access is `Write`, `Read`, `Update` (read and written) or `Param` (not an access).
#[macro_export]
macro_rules! for_each_form {
    ($m:ident) => { $m! {
        /// Contiguous rows from an argument to local memory; rows are `pitch` bytes apart in the argument.
        Load { dst: Write Local, src: Read Mem, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// Contiguous rows from local memory to an argument.
        Store { dst: Write Mem, src: Read Local, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// Strided loops over an argument into a dense local tile.
        ViewLoad { dst: Write Local, src: Read Mem, loops: Param Loops, hints: Param Hints }
        /// A dense local tile into strided loops over an argument.
        ViewStore { dst: Write Mem, src: Read Local, loops: Param Loops, hints: Param Hints }
        /// Rows by index: row r is `cols` elements at `src + wrap(index[r]) * stride` bytes, where a negative index
        /// counts from `limit`. An index outside `-limit..limit` traps. `index_dtype` is i32 or i64.
        GatherLoad { dst: Write Local, src: Read Mem, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Elements by index: element (r, c) is at `src + wrap(index[r, c]) * stride + r * row_stride + c * col_stride` bytes.
        GatherElems { dst: Write Local, src: Read Mem, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, row_stride: Param i64, col_stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Rows of a constant into an argument.
        FillStore { dst: Write Mem, value: Param u64, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// `dst = op(src)`.
        Unary { dst: Write Local, src: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = op(a, b)`. Comparisons write bool.
        Binary { dst: Write Local, a: Read Src, b: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = op(a, b, c)`: `fma` a*b+c, `select` a ? b : c (a is bool), `clamp` min(max(a, b), c).
        Ternary { dst: Write Local, a: Read Src, b: Read Src, c: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = src` converted from dtype `from` to the instruction's dtype.
        Cast { dst: Write Local, src: Read Src, from: Param DType, rows: Param Size, cols: Param Size }
        /// `dst = value`.
        Fill { dst: Write Local, value: Param u64, rows: Param Size, cols: Param Size }
        /// Integer `dst[r, c] = base + r * row_step + c * col_step + sum(index(extent) * stride)`, wrapping.
        Iota { dst: Write Local, base: Param i64, strides: Param Strides, row_step: Param i64, col_step: Param i64, rows: Param Size, cols: Param Size }
        /// Local strided view to a dense local tile (broadcast, transpose); strides in elements, from `src`.
        LocalView { dst: Write Local, src: Read Local, loops: Param Loops }
        /// `dst[o, i] = op over r of src[o, r, i]`. `sum` with `init` other than `Always` keeps a state of two planes
        /// of `outer.body * inner.body` elements, (hi, lo); the value is hi + lo. The order of a sum is fixed by
        /// the element's index in the whole reduced extent: see the ISA reference.
        Reduce { dst: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init }
        /// Index of the extreme over r: `index` (i64) and `value` planes of `outer.body * inner.body` elements.
        /// Element r counts as `base + r + sum(index(extent) * stride)`. `last` keeps the last of equals.
        ArgReduce { index: Update Local, value: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, base: Param i64, strides: Param Strides, last: Param bool }
        /// Running sum along r, starting from and leaving its total in `carry` (`outer.body * inner.body` elements).
        CumSum { dst: Write Local, carry: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, exclusive: Param bool, reverse: Param bool }
        /// Left operand `m x k` to packed panels. Element (i, kk) is at `src + i * row_stride + kk * col_stride` bytes.
        LoadA { dst: Write Local, src: Read Mem, m: Param Size, k: Param Size, row_stride: Param i64, col_stride: Param i64, hints: Param Hints }
        /// Right operand `k x n` to packed panels. Element (kk, j) is at `src + kk * row_stride + j * col_stride` bytes.
        LoadB { dst: Write Local, src: Read Mem, k: Param Size, n: Param Size, row_stride: Param i64, col_stride: Param i64, hints: Param Hints }
        /// Right operand already in panels: panel p starts at `src + p * panel_stride` bytes. Bound, not copied.
        BindB { dst: Write Local, src: Read Mem, k: Param Size, n: Param Size, panel_stride: Param i64 }
        /// `acc = (acc or 0) + a * b`, `m x n`, pitch `n.body`; accumulates in f32 for f32/f16/bf16, in f64 for f64, in the
        /// wrapping dtype's 32- or 64-bit type for integers. Integer accumulators are i32 for 8-, 16- and 32-bit inputs.
        Mmad { acc: Update Local, a: Read Local, b: Read Local, m: Param Size, n: Param Size, k: Param Size, init: Param Init }
        /// Accumulator tile to local memory, converted to the instruction's dtype. `from` is the accumulator's dtype.
        AccToUb { dst: Write Local, acc: Read Local, from: Param DType, m: Param Size, n: Param Size }
        /// No operands.
        Control { }
    } };
}

/// Calls `$m!` with one row per instruction: `number "mnemonic" Name: Form`.
#[macro_export]
macro_rules! for_each_opcode {
    ($m:ident) => { $m! {
        // control: 0x00..0x0f. Reserved: 0x02 barrier, 0x03 xset, 0x04 xwait, 0x08..0x0f collectives.
        0x00 "end" End: Control, 0x01 "nop" Nop: Control,
        // dma: 0x10..0x1f. Reserved: 0x17 scatter_store, 0x18 compress_store.
        0x10 "load" Load: Load, 0x11 "store" Store: Store, 0x12 "view_load" ViewLoad: ViewLoad,
        0x13 "view_store" ViewStore: ViewStore, 0x14 "gather_load" GatherLoad: GatherLoad,
        0x15 "gather_elems" GatherElems: GatherElems, 0x16 "fill_store" FillStore: FillStore,
        // vector, unary: 0x20..0x4f
        0x20 "vcopy" VCopy: Unary, 0x21 "vabs" VAbs: Unary, 0x22 "vneg" VNeg: Unary, 0x23 "vsign" VSign: Unary,
        0x24 "vsqrt" VSqrt: Unary, 0x25 "vrsqrt" VRsqrt: Unary, 0x26 "vreciprocal" VReciprocal: Unary,
        0x27 "vexp" VExp: Unary, 0x28 "vexp2" VExp2: Unary, 0x29 "vln" VLn: Unary, 0x2a "vlog2" VLog2: Unary,
        0x2b "vlog1p" VLog1p: Unary, 0x2c "vexpm1" VExpm1: Unary, 0x2d "vsin" VSin: Unary, 0x2e "vcos" VCos: Unary,
        0x2f "vtan" VTan: Unary, 0x30 "vtanh" VTanh: Unary, 0x31 "verf" VErf: Unary, 0x32 "vsigmoid" VSigmoid: Unary,
        0x33 "vround" VRound: Unary, 0x34 "vfloor" VFloor: Unary, 0x35 "vceil" VCeil: Unary, 0x36 "vtrunc" VTrunc: Unary,
        0x37 "vis_finite" VIsFinite: Unary, 0x38 "vis_nan" VIsNan: Unary, 0x39 "vis_inf" VIsInf: Unary,
        0x3a "vnot" VNot: Unary,
        0x3b "vasin" VAsin: Unary, 0x3c "vacos" VAcos: Unary, 0x3d "vatan" VAtan: Unary, 0x3e "vsinh" VSinh: Unary,
        0x3f "vcosh" VCosh: Unary, 0x40 "vasinh" VAsinh: Unary, 0x41 "vacosh" VAcosh: Unary, 0x42 "vatanh" VAtanh: Unary,
        // vector, binary: 0x50..0x7f. `rem` has floor semantics (sign of the divisor), `fmod` C semantics.
        0x50 "vadd" VAdd: Binary, 0x51 "vsub" VSub: Binary, 0x52 "vmul" VMul: Binary, 0x53 "vdiv" VDiv: Binary,
        0x54 "vrem" VRem: Binary, 0x55 "vfmod" VFmod: Binary, 0x56 "vpow" VPow: Binary, 0x57 "vmax" VMax: Binary,
        0x58 "vmin" VMin: Binary, 0x59 "vand" VAnd: Binary, 0x5a "vor" VOr: Binary, 0x5b "vxor" VXor: Binary,
        0x5c "vshl" VShl: Binary, 0x5d "vshr" VShr: Binary, 0x5e "veq" VEq: Binary, 0x5f "vne" VNe: Binary,
        0x60 "vlt" VLt: Binary, 0x61 "vle" VLe: Binary, 0x62 "vgt" VGt: Binary, 0x63 "vge" VGe: Binary,
        0x64 "vfloordiv" VFloorDiv: Binary,
        // vector, ternary: 0x80..0x8f
        0x80 "vfma" VFma: Ternary, 0x81 "vselect" VSelect: Ternary, 0x82 "vclamp" VClamp: Ternary,
        // vector, shape: 0x90..0x9f
        0x90 "vcast" VCast: Cast, 0x91 "vfill" VFill: Fill, 0x92 "viota" VIota: Iota, 0x93 "vview" VView: LocalView,
        // vector, reduce: 0xa0..0xaf
        0xa0 "vsum" VSum: Reduce, 0xa1 "vredmax" VRedMax: Reduce, 0xa2 "vredmin" VRedMin: Reduce,
        0xa3 "vprod" VProd: Reduce, 0xa4 "vany" VAny: Reduce, 0xa5 "vall" VAll: Reduce,
        0xa6 "vargmax" VArgMax: ArgReduce, 0xa7 "vargmin" VArgMin: ArgReduce, 0xa8 "vcumsum" VCumSum: CumSum,
        // cube: 0xc0..0xcf. Reserved: 0xc5 acc_store.
        0xc0 "load_a" LoadA: LoadA, 0xc1 "load_b" LoadB: LoadB, 0xc2 "bind_b" BindB: BindB, 0xc3 "mmad" Mmad: Mmad,
        0xc4 "acc_to_ub" AccToUb: AccToUb,
    } };
}

macro_rules! define_forms {
    ($($(#[$doc:meta])* $form:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Hash)]
            pub struct $form { $(
                #[allow(missing_docs, reason = "fields are documented by the form")]
                pub $field: $ty,
            )* }
        )*
        /// Operands of an instruction, by form.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "variants are documented by their struct")]
        pub enum Operands { $($form($form),)* }

        /// An operand layout.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "variants are documented by their struct")]
        pub enum Form { $($form,)* }

        impl Operands {
            /// The layout of these operands.
            #[must_use]
            pub fn form(&self) -> Form { match self { $(Operands::$form(_) => Form::$form,)* } }
        }
        $(impl From<$form> for Operands { fn from(o: $form) -> Operands { Operands::$form(o) } })*
    };
}
for_each_form!(define_forms);

macro_rules! define_opcodes {
    ($($num:literal $mnemonic:literal $name:ident: $form:ident,)*) => {
        /// An instruction's number in the encoding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "named by mnemonic; semantics are in the ISA reference")]
        pub enum Opcode { $($name = $num,)* }

        impl Opcode {
            /// Every opcode in table order.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];
            /// The opcode with this number.
            #[must_use]
            pub fn from_number(n: u8) -> Option<Opcode> { match n { $($num => Some(Opcode::$name),)* _ => None } }
            /// Its name in the text form.
            #[must_use]
            pub const fn mnemonic(self) -> &'static str { match self { $(Opcode::$name => $mnemonic,)* } }
            /// The opcode with this name.
            #[must_use]
            pub fn from_mnemonic(s: &str) -> Option<Opcode> { match s { $($mnemonic => Some(Opcode::$name),)* _ => None } }
            /// Its operand layout.
            #[must_use]
            pub const fn form(self) -> Form { match self { $(Opcode::$name => Form::$form,)* } }
        }
    };
}
for_each_opcode!(define_opcodes);

/// A decoded instruction. `dtype` is the dtype of the operation: of the sources for comparisons and `is_*`, of the result
/// for everything else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// Which instruction.
    pub op: Opcode,
    /// Element type.
    pub dtype: DType,
    /// Operands; their form is always `op.form()`.
    pub operands: Operands,
}

impl Inst {
    /// An instruction. The operands' form must be the opcode's; a mismatch is caught by the encoder and the verifier.
    #[must_use]
    pub fn new(op: Opcode, dtype: DType, operands: impl Into<Operands>) -> Inst {
        Inst { op, dtype, operands: operands.into() }
    }
}
