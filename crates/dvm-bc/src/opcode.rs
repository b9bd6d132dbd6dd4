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
        /// `dst[o, i] = op over r of src[o, r, i]`. `vsum` with `init` other than `Always` keeps a state of two planes
        /// of `outer.body * inner.body` elements, (hi, lo); the value is hi + lo. State and sums of f16 and bf16 are f32:
        /// the planes hold f32; the result of `Always` is rounded to the dtype once.
        ///
        /// The order of a float sum is fixed by an element's index i in the *whole* reduced extent, so that no tiling and no
        /// machine changes a bit. Where `inner.body` is 1 ("x"), i belongs to block i / 4096 and lane i % 64: lanes
        /// accumulate sequentially within a block, then combine in a binary tree (strides 32, 16, 8, 4, 2, 1). Elsewhere
        /// ("y"), blocks are 64 consecutive r, summed sequentially. Block totals are added in index order by two-sum into
        /// (hi, lo). So the pieces of a sequential walk end on block borders, 4096 or 64, except the last.
        Reduce { dst: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init }
        /// Index of the extreme over r: `index` (i64) and `value` planes of `outer.body * inner.body` elements.
        /// Element r counts as `base + r + sum(index(extent) * stride)`. `last` keeps the last of equals.
        ArgReduce { index: Update Local, value: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, base: Param i64, strides: Param Strides, last: Param bool }
        /// Running sum along r, starting from and leaving its total in `carry` (`outer.body * inner.body` elements, f32 for f16
        /// and bf16).
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

/// Calls `$m!` with one row per instruction: `number "mnemonic" Name: Form, Dtypes, Class, "doc";`.
///
/// `Dtypes` is a variant of [`DTypes`](crate::DTypes), `Class` one of [`Class`](crate::Class); the doc is what the instruction
/// adds to its form's.
#[macro_export]
macro_rules! for_each_opcode {
    ($m:ident) => { $m! {
        // control: 0x00..0x0f. Reserved: 0x02 barrier, 0x03 xset, 0x04 xwait, 0x08..0x0f collectives.
        0x00 "end" End: Control, Any, Control, "Ends the section; legal as its last instruction only.";
        0x01 "nop" Nop: Control, Any, Control, "Does nothing.";
        // dma: 0x10..0x1f. Reserved: 0x17 scatter_store, 0x18 compress_store.
        0x10 "load" Load: Load, Any, Dma, "Row r of the tile is `cols` elements at `src + r * pitch`.";
        0x11 "store" Store: Store, Any, Dma, "Row r of the tile goes to `cols` elements at `dst + r * pitch`.";
        0x12 "view_load" ViewLoad: ViewLoad, Any, Dma, "Element (i0, i1, ..) of the tile is at `src + sum(i * stride)`.";
        0x13 "view_store" ViewStore: ViewStore, Any, Dma, "Element (i0, i1, ..) of the tile goes to `dst + sum(i * stride)`.";
        0x14 "gather_load" GatherLoad: GatherLoad, Any, Dma, "Rows of an argument picked by an index tile.";
        0x15 "gather_elems" GatherElems: GatherElems, Any, Dma, "Elements of an argument picked by an index tile.";
        0x16 "fill_store" FillStore: FillStore, Any, Dma, "`value` into `rows` rows of `cols` elements, `pitch` bytes apart.";
        // vector, unary: 0x20..0x4f
        0x20 "vcopy" VCopy: Unary, Any, Move, "`src`.";
        0x21 "vabs" VAbs: Unary, Numeric, Arith, "`|src|`; the least signed integer is its own absolute value.";
        0x22 "vneg" VNeg: Unary, Numeric, Arith, "`-src`; integers wrap.";
        0x23 "vsign" VSign: Unary, Numeric, Arith, "-1, 0 or 1; a zero keeps its sign, NaN gives NaN.";
        0x24 "vsqrt" VSqrt: Unary, Float, Divide, "Square root, correctly rounded.";
        0x25 "vrsqrt" VRsqrt: Unary, Float, Divide, "`1 / sqrt(src)`.";
        0x26 "vreciprocal" VReciprocal: Unary, Float, Divide, "`1 / src`, correctly rounded.";
        0x27 "vexp" VExp: Unary, Float, Exp, "`e^src`.";
        0x28 "vexp2" VExp2: Unary, Float, Exp, "`2^src`.";
        0x29 "vln" VLn: Unary, Float, Exp, "Natural logarithm.";
        0x2a "vlog2" VLog2: Unary, Float, Exp, "Logarithm to base 2.";
        0x2b "vlog1p" VLog1p: Unary, Float, Exp, "`ln(1 + src)`, accurate near 0.";
        0x2c "vexpm1" VExpm1: Unary, Float, Exp, "`e^src - 1`, accurate near 0.";
        0x2d "vsin" VSin: Unary, Float, Special, "Sine of radians.";
        0x2e "vcos" VCos: Unary, Float, Special, "Cosine of radians.";
        0x2f "vtan" VTan: Unary, Float, Special, "Tangent of radians.";
        0x30 "vtanh" VTanh: Unary, Float, Exp, "Hyperbolic tangent.";
        0x31 "verf" VErf: Unary, Float, Exp, "Error function.";
        0x32 "vsigmoid" VSigmoid: Unary, Float, Exp, "`1 / (1 + e^-src)`.";
        0x33 "vround" VRound: Unary, Float, Arith, "Nearest integer, half to even.";
        0x34 "vfloor" VFloor: Unary, Float, Arith, "Largest integer not above.";
        0x35 "vceil" VCeil: Unary, Float, Arith, "Smallest integer not below.";
        0x36 "vtrunc" VTrunc: Unary, Float, Arith, "Nearest integer towards zero.";
        0x37 "vis_finite" VIsFinite: Unary, Float, Compare, "Whether neither NaN nor infinite.";
        0x38 "vis_nan" VIsNan: Unary, Float, Compare, "Whether NaN.";
        0x39 "vis_inf" VIsInf: Unary, Float, Compare, "Whether infinite, of either sign.";
        0x3a "vnot" VNot: Unary, Bits, Arith, "Bitwise complement; of a bool, logical not.";
        0x3b "vasin" VAsin: Unary, Float, Special, "Arc sine.";
        0x3c "vacos" VAcos: Unary, Float, Special, "Arc cosine.";
        0x3d "vatan" VAtan: Unary, Float, Special, "Arc tangent.";
        0x3e "vsinh" VSinh: Unary, Float, Special, "Hyperbolic sine.";
        0x3f "vcosh" VCosh: Unary, Float, Special, "Hyperbolic cosine.";
        0x40 "vasinh" VAsinh: Unary, Float, Special, "Inverse hyperbolic sine.";
        0x41 "vacosh" VAcosh: Unary, Float, Special, "Inverse hyperbolic cosine.";
        0x42 "vatanh" VAtanh: Unary, Float, Special, "Inverse hyperbolic tangent.";
        // vector, binary: 0x50..0x7f
        0x50 "vadd" VAdd: Binary, Numeric, Arith, "`a + b`; integers wrap.";
        0x51 "vsub" VSub: Binary, Numeric, Arith, "`a - b`; integers wrap.";
        0x52 "vmul" VMul: Binary, Numeric, Arith, "`a * b`; integers wrap.";
        0x53 "vdiv" VDiv: Binary, Numeric, Divide, "`a / b`; integers truncate towards zero, the least signed integer by -1 wraps, by 0 traps.";
        0x54 "vrem" VRem: Binary, Numeric, Divide, "Remainder with the sign of the divisor, as NumPy `mod`; integers by 0 trap.";
        0x55 "vfmod" VFmod: Binary, Numeric, Divide, "Remainder with the sign of the dividend, as C `fmod`; integers by 0 trap.";
        0x56 "vpow" VPow: Binary, Numeric, Special, "`a^b`; integers wrap, a negative integer exponent gives the truncated quotient.";
        0x57 "vmax" VMax: Binary, Any, Arith, "Larger of two; NaN if either is NaN.";
        0x58 "vmin" VMin: Binary, Any, Arith, "Smaller of two; NaN if either is NaN.";
        0x59 "vand" VAnd: Binary, Bits, Arith, "Bitwise and.";
        0x5a "vor" VOr: Binary, Bits, Arith, "Bitwise or.";
        0x5b "vxor" VXor: Binary, Bits, Arith, "Bitwise exclusive or.";
        0x5c "vshl" VShl: Binary, Int, Arith, "`a << b`; 0 where b is negative or not less than the width.";
        0x5d "vshr" VShr: Binary, Int, Arith, "`a >> b`, arithmetic for signed dtypes; 0 where b is negative or not less than the width.";
        0x5e "veq" VEq: Binary, Any, Compare, "`a == b`.";
        0x5f "vne" VNe: Binary, Any, Compare, "`a != b`.";
        0x60 "vlt" VLt: Binary, Any, Compare, "`a < b`.";
        0x61 "vle" VLe: Binary, Any, Compare, "`a <= b`.";
        0x62 "vgt" VGt: Binary, Any, Compare, "`a > b`.";
        0x63 "vge" VGe: Binary, Any, Compare, "`a >= b`.";
        0x64 "vfloordiv" VFloorDiv: Binary, Numeric, Divide, "`floor(a / b)`, as NumPy `//`; integers by 0 trap.";
        // vector, ternary: 0x80..0x8f
        0x80 "vfma" VFma: Ternary, Numeric, Arith, "`a * b + c`, rounded once.";
        0x81 "vselect" VSelect: Ternary, Any, Arith, "`b` where the bool `a` is true, else `c`.";
        0x82 "vclamp" VClamp: Ternary, Any, Arith, "`min(max(a, b), c)`; NaN propagates.";
        // vector, shape: 0x90..0x9f
        0x90 "vcast" VCast: Cast, Any, Move, "Conversion: float to integer truncates and saturates, NaN gives 0; integers wrap; to bool is `!= 0`.";
        0x91 "vfill" VFill: Fill, Any, Move, "`value` in every element.";
        0x92 "viota" VIota: Iota, Int, Move, "An affine function of the element's place.";
        0x93 "vview" VView: LocalView, Any, Move, "Element (i0, i1, ..) of the tile is element `sum(i * stride)` of `src`.";
        // vector, reduce: 0xa0..0xaf
        0xa0 "vsum" VSum: Reduce, Numeric, Reduce, "Sum, in the order given below.";
        0xa1 "vredmax" VRedMax: Reduce, Any, Reduce, "Largest; NaN if any is NaN; the least value of the dtype over nothing.";
        0xa2 "vredmin" VRedMin: Reduce, Any, Reduce, "Smallest; NaN if any is NaN; the largest value of the dtype over nothing.";
        0xa3 "vprod" VProd: Reduce, Numeric, Reduce, "Product in index order; integers wrap; 1 over nothing.";
        0xa4 "vany" VAny: Reduce, Logical, Reduce, "Whether any is true.";
        0xa5 "vall" VAll: Reduce, Logical, Reduce, "Whether all are true.";
        0xa6 "vargmax" VArgMax: ArgReduce, Any, Scan, "Index of the largest; the first NaN counts as the largest.";
        0xa7 "vargmin" VArgMin: ArgReduce, Any, Scan, "Index of the smallest; the first NaN counts as the smallest.";
        0xa8 "vcumsum" VCumSum: CumSum, Numeric, Scan, "Running sum in index order.";
        // cube: 0xc0..0xcf. Reserved: 0xc5 acc_store.
        0xc0 "load_a" LoadA: LoadA, Numeric, Dma, "Packs a left operand.";
        0xc1 "load_b" LoadB: LoadB, Numeric, Dma, "Packs a right operand.";
        0xc2 "bind_b" BindB: BindB, Numeric, Dma, "Names a right operand that is packed already.";
        0xc3 "mmad" Mmad: Mmad, Numeric, Cube, "`acc + a * b`; each element is one chain of fused multiply-adds in increasing k.";
        0xc4 "acc_to_ub" AccToUb: AccToUb, Any, Move, "Hands an accumulator tile to the vector unit.";
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

/// Which element types an instruction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypes {
    /// Every dtype.
    Any,
    /// Every dtype but bool.
    Numeric,
    /// Floating point.
    Float,
    /// Integers.
    Int,
    /// Integers and bool.
    Bits,
    /// Bool.
    Logical,
}

impl DTypes {
    /// Whether `dtype` is one of them.
    #[must_use]
    pub const fn contains(self, dtype: DType) -> bool {
        let (float, bool) = (dtype.is_float(), matches!(dtype, DType::Bool));
        match self {
            DTypes::Any => true,
            DTypes::Numeric => !bool,
            DTypes::Float => float,
            DTypes::Int => !float && !bool,
            DTypes::Bits => !float,
            DTypes::Logical => bool,
        }
    }
}

/// What an instruction costs like, and which unit it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// No work.
    Control,
    /// Moves between an argument and local memory.
    Dma,
    /// Moves or fills local memory; conversions.
    Move,
    /// One cheap operation an element.
    Arith,
    /// As `Arith`, and the result is bool.
    Compare,
    /// A division or square root an element.
    Divide,
    /// A short polynomial an element: exp, ln, tanh, erf.
    Exp,
    /// A long computation an element: trigonometry, pow.
    Special,
    /// Reduction.
    Reduce,
    /// Reduction that carries an index or writes each partial result.
    Scan,
    /// Matrix product.
    Cube,
}

macro_rules! define_opcodes {
    ($($num:literal $mnemonic:literal $name:ident: $form:ident, $dtypes:ident, $class:ident, $doc:literal;)*) => {
        /// An instruction's number in the encoding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode { $(#[doc = $doc] $name = $num,)* }

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
            /// The element types it takes.
            #[must_use]
            pub const fn dtypes(self) -> DTypes { match self { $(Opcode::$name => DTypes::$dtypes,)* } }
            /// What it costs like.
            #[must_use]
            pub const fn class(self) -> Class { match self { $(Opcode::$name => Class::$class,)* } }
            /// What it computes, in a line.
            #[must_use]
            pub const fn doc(self) -> &'static str { match self { $(Opcode::$name => $doc,)* } }
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
