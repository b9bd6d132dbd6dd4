//! The one instruction table.
//!
//! A row of [`for_each_opcode!`] is an instruction: number, mnemonic, name, *form*. A row of [`for_each_form!`] is an
//! operand layout shared by all instructions of that form. Numbers are explicit and never reused: stored programs
//! and snapshots outlive a build.

use crate::{DType, Hints, Init, Local, Loops, Mem, Pipe, Size, Src, Strides, Sync};

/// Calls `$m!` with one row per operand layout: `Form on Pipe { field: Access Type, .. }`.
///
/// Pipe is that of [`Pipe`](crate::Pipe) which runs such instructions, `Named` where the operand `pipe` says, `None` where it is
/// every pipe's. Access is `Write`, `Read`, `Update` (read and written) or `Param` (not an access).
#[macro_export]
macro_rules! for_each_form {
    ($m:ident) => { $m! {
        /// Contiguous rows from an argument to local memory; rows are `pitch` bytes apart in the argument.
        Load on Mte2 { dst: Write Local, src: Read Mem, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// Contiguous rows from local memory to an argument.
        Store on Mte3 { dst: Write Mem, src: Read Local, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// Strided loops over an argument into a dense local tile.
        ViewLoad on Mte2 { dst: Write Local, src: Read Mem, loops: Param Loops, hints: Param Hints }
        /// A dense local tile into strided loops over an argument.
        ViewStore on Mte3 { dst: Write Mem, src: Read Local, loops: Param Loops, hints: Param Hints }
        /// Rows by index: row r is `cols` elements at `src + wrap(index[r]) * stride` bytes, where a negative index
        /// counts from `limit`. An index outside `-limit..limit` traps. `index_dtype` is i32 or i64.
        GatherLoad on Mte2 { dst: Write Local, src: Read Mem, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Elements by index: element (r, c) is at `src + wrap(index[r, c]) * stride + r * row_stride + c * col_stride` bytes.
        GatherElems on Mte2 { dst: Write Local, src: Read Mem, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, row_stride: Param i64, col_stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Rows to places by index, the mirror of `GatherLoad`: row r is `cols` elements to `dst + wrap(index[r]) * stride`
        /// bytes. Of rows with one index the last stays. An index outside `-limit..limit` traps.
        ScatterStore on Mte3 { dst: Write Mem, src: Read Local, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Elements to places by index: element (r, c) to `dst + wrap(index[r, c]) * stride + r * row_stride + c * col_stride`
        /// bytes. Of elements with one place the last in row-major order stays.
        ScatterElems on Mte3 { dst: Write Mem, src: Read Local, index: Read Local, rows: Param Size, cols: Param Size, stride: Param i64, row_stride: Param i64, col_stride: Param i64, limit: Param u64, index_dtype: Param DType }
        /// Rows that a mask picks, one behind the other: for each r in order where the bool `mask[r]` is true, `cols` elements go
        /// to `dst + count * stride` bytes, and the i64 `count` (0 at first, as `init` says) rises by one. A row that would be
        /// number `limit` traps. Legal where one tile runs the template, because the order of tiles is not fixed.
        CompressStore on Mte3 { dst: Write Mem, src: Read Local, mask: Read Local, count: Update Local, rows: Param Size, cols: Param Size, stride: Param i64, limit: Param u64, init: Param Init }
        /// Rows of a constant into an argument.
        FillStore on Mte3 { dst: Write Mem, value: Param u64, rows: Param Size, cols: Param Size, pitch: Param i64, hints: Param Hints }
        /// `dst = op(src)`.
        Unary on V { dst: Write Local, src: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = op(a, b)`. Comparisons write bool.
        Binary on V { dst: Write Local, a: Read Src, b: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = op(a, b, c)`: `fma` a*b+c, `select` a ? b : c (a is bool), `clamp` min(max(a, b), c).
        Ternary on V { dst: Write Local, a: Read Src, b: Read Src, c: Read Src, rows: Param Size, cols: Param Size }
        /// `dst = src` converted from dtype `from` to the instruction's dtype.
        Cast on V { dst: Write Local, src: Read Src, from: Param DType, rows: Param Size, cols: Param Size }
        /// `dst = value`.
        Fill on V { dst: Write Local, value: Param u64, rows: Param Size, cols: Param Size }
        /// Integer `dst[r, c] = base + r * row_step + c * col_step + sum(index(extent) * stride)`, wrapping.
        Iota on V { dst: Write Local, base: Param i64, strides: Param Strides, row_step: Param i64, col_step: Param i64, rows: Param Size, cols: Param Size }
        /// Local strided view to a dense local tile (broadcast, transpose); strides in elements, from `src`.
        LocalView on V { dst: Write Local, src: Read Local, loops: Param Loops }
        /// A tile `rows x cols` from one of another shape.
        Shape on V { dst: Write Local, src: Read Local, rows: Param Size, cols: Param Size }
        /// Columns `cols..pitch` of each of `rows` rows, `pitch` elements apart, become `value`; the others stay.
        ClearPad on V { dst: Update Local, value: Param u64, rows: Param Size, cols: Param Size, pitch: Param u64 }
        /// Rows of `cols` elements, `pitch` elements apart in `src`, to a dense tile.
        RemovePad on V { dst: Write Local, src: Read Local, rows: Param Size, cols: Param Size, pitch: Param u64 }
        /// Sorts each row of `key` (of the dtype) and the row of `value` (i64) with it, in place. Equal keys keep their order; NaN
        /// counts as the largest, zeros of both signs as equal. Ascending, or `descending`.
        SortKv on V { key: Update Local, value: Update Local, rows: Param Size, cols: Param Size, descending: Param bool }
        /// `dst[o, i] = op over r of src[o, r, i]`. `vsum` with `init` other than `Always` keeps a state of two planes
        /// of `outer.body * inner.body` elements, (hi, lo); the value is hi + lo. State and sums of f16 and bf16 are f32:
        /// the planes hold f32; the result of `Always` is rounded to the dtype once.
        ///
        /// The order of a float sum is fixed by an element's index i in the *whole* reduced extent, so that no tiling and no
        /// machine changes a bit. Where `inner.body` is 1 ("x"), i belongs to block i / 4096 and lane i % 64: lanes
        /// accumulate sequentially within a block, then combine in a binary tree (strides 32, 16, 8, 4, 2, 1). Elsewhere
        /// ("y"), blocks are 64 consecutive r, summed sequentially. Block totals are added in index order by two-sum into
        /// (hi, lo). So the pieces of a sequential walk end on block borders, 4096 or 64, except the last.
        Reduce on V { dst: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init }
        /// A piece of a float sum that may end anywhere, or (`totals`) of totals of blocks. Element r has the index
        /// `base + r + sum(index(extent) * stride)` in the whole reduced extent, which says block and lane: as in `Reduce`, "y" where
        /// `across`, else "x". `dst` is a sum's state (hi, lo) of the blocks that are complete, `lanes` what the block at hand has in
        /// each of its lanes: 64 for each result, 1 where `across`. The value is (hi, lo) with the tree of the lanes added by two-sum.
        /// With `totals` each element is the total of a block, and the lanes stay empty. State and lanes of f16 and bf16 are f32.
        PartSum on V { dst: Update Local, lanes: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, base: Param i64, strides: Param Strides, across: Param bool, totals: Param bool }
        /// Index of the extreme over r: `index` (i64) and `value` planes of `outer.body * inner.body` elements.
        /// Element r counts as `base + r + sum(index(extent) * stride)`. `last` keeps the last of equals.
        ArgReduce on V { index: Update Local, value: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, base: Param i64, strides: Param Strides, last: Param bool }
        /// Running sum along r, starting from and leaving its total in `carry` (`outer.body * inner.body` elements, f32 for f16
        /// and bf16).
        CumSum on V { dst: Write Local, carry: Update Local, src: Read Local, outer: Param Size, red: Param Size, inner: Param Size, init: Param Init, exclusive: Param bool, reverse: Param bool }
        /// Left operand `m x k` to packed panels. Element (i, kk) is at `src + i * row_stride + kk * col_stride` bytes.
        LoadA on CMte2 { dst: Write Local, src: Read Mem, m: Param Size, k: Param Size, row_stride: Param i64, col_stride: Param i64, hints: Param Hints }
        /// Right operand `k x n` to packed panels. Element (kk, j) is at `src + kk * row_stride + j * col_stride` bytes.
        LoadB on CMte2 { dst: Write Local, src: Read Mem, k: Param Size, n: Param Size, row_stride: Param i64, col_stride: Param i64, hints: Param Hints }
        /// Left operand `m x k` from vector memory to packed panels. Element (i, kk) is element `i * pitch + kk` of `src`.
        PackA on V { dst: Write Local, src: Read Local, m: Param Size, k: Param Size, pitch: Param u64 }
        /// Right operand already in panels: panel p starts at `src + p * panel_stride` bytes. Bound, not copied.
        BindB on CMte2 { dst: Write Local, src: Read Mem, k: Param Size, n: Param Size, panel_stride: Param i64 }
        /// `acc = (acc or 0) + a * b`, `m x n`, pitch `n.body`; accumulates in f32 for f32/f16/bf16, in f64 for f64, in the
        /// wrapping dtype's 32- or 64-bit type for integers. Integer accumulators are i32 for 8-, 16- and 32-bit inputs.
        Mmad on M { acc: Update Local, a: Read Local, b: Read Local, m: Param Size, n: Param Size, k: Param Size, init: Param Init }
        /// Accumulator tile to local memory, converted to the instruction's dtype. `from` is the accumulator's dtype.
        AccToUb on Fix { dst: Write Local, acc: Read Local, from: Param DType, m: Param Size, n: Param Size }
        /// Accumulator tile to an argument: row i is `n` elements at `dst + i * pitch`, `max(acc, 0)` where `relu` (NaN stays),
        /// converted to the instruction's dtype. `from` is the accumulator's dtype.
        AccStore on Fix { dst: Write Mem, acc: Read Local, from: Param DType, m: Param Size, n: Param Size, pitch: Param i64, relu: Param bool, hints: Param Hints }
        /// Does no work; carries synchronisation for `pipe`.
        OnPipe on Named { pipe: Param Pipe }
        /// A flag (0..=7) between the cores of a group, at its turn in the order of `pipe`.
        Cross on Named { flag: Param u8, pipe: Param Pipe }
        /// No operands.
        Control on None { }
    } };
}

/// Calls `$m!` with one row per instruction: `number mnemonic Name: Form, Dtypes, Class, "doc";`.
///
/// `Dtypes` is a variant of [`DTypes`](crate::DTypes), `Class` one of [`Class`](crate::Class); the doc is what the instruction
/// adds to its form's.
#[macro_export]
macro_rules! for_each_opcode {
    ($m:ident) => { $m! {
        // control: 0x00..0x0f. Reserved: 0x08..0x0f collectives.
        0x00 end End: Control, Any, Control, "Ends the section; legal as its last instruction only.";
        0x01 nop Nop: OnPipe, Any, Control, "Waits and sets as its head says.";
        0x02 barrier Barrier: Control, Any, Control, "All pipes of the core drain before anything after it starts; cube and vector cores each drain their own.";
        0x03 xset XSet: Cross, Any, Control, "Sets the flag for the other kind of core when all earlier instructions of `pipe` have finished.";
        0x04 xwait XWait: Cross, Any, Control, "`pipe` goes on when the other kind of core has set the flag, which is cleared then.";
        // dma: 0x10..0x1f
        0x10 load Load: Load, Any, Dma, "Row r of the tile is `cols` elements at `src + r * pitch`.";
        0x11 store Store: Store, Any, Dma, "Row r of the tile goes to `cols` elements at `dst + r * pitch`.";
        0x12 view_load ViewLoad: ViewLoad, Any, Dma, "Element (i0, i1, ..) of the tile is at `src + sum(i * stride)`.";
        0x13 view_store ViewStore: ViewStore, Any, Dma, "Element (i0, i1, ..) of the tile goes to `dst + sum(i * stride)`.";
        0x14 gather_load GatherLoad: GatherLoad, Any, Dma, "Rows of an argument picked by an index tile.";
        0x15 gather_elems GatherElems: GatherElems, Any, Dma, "Elements of an argument picked by an index tile.";
        0x16 fill_store FillStore: FillStore, Any, Dma, "`value` into `rows` rows of `cols` elements, `pitch` bytes apart.";
        0x17 scatter_store ScatterStore: ScatterStore, Any, Dma, "Rows to places of an argument picked by an index tile.";
        0x18 compress_store CompressStore: CompressStore, Any, Dma, "Rows that a mask picks, one behind the other, counted.";
        0x19 scatter_elems ScatterElems: ScatterElems, Any, Dma, "Elements to places of an argument picked by an index tile.";
        // vector, unary: 0x20..0x4f
        0x20 vcopy VCopy: Unary, Any, Move, "`src`.";
        0x21 vabs VAbs: Unary, Numeric, Arith, "`|src|`; the least signed integer is its own absolute value.";
        0x22 vneg VNeg: Unary, Numeric, Arith, "`-src`; integers wrap.";
        0x23 vsign VSign: Unary, Numeric, Arith, "-1, 0 or 1; either zero gives +0, NaN gives NaN.";
        0x24 vsqrt VSqrt: Unary, Float, Divide, "Square root, correctly rounded.";
        0x25 vrsqrt VRsqrt: Unary, Float, Divide, "`1 / sqrt(src)`.";
        0x26 vreciprocal VReciprocal: Unary, Float, Divide, "`1 / src`, correctly rounded.";
        0x27 vexp VExp: Unary, Float, Exp, "`e^src`.";
        0x28 vexp2 VExp2: Unary, Float, Exp, "`2^src`.";
        0x29 vln VLn: Unary, Float, Exp, "Natural logarithm.";
        0x2a vlog2 VLog2: Unary, Float, Exp, "Logarithm to base 2.";
        0x2b vlog1p VLog1p: Unary, Float, Exp, "`ln(1 + src)`, accurate near 0.";
        0x2c vexpm1 VExpm1: Unary, Float, Exp, "`e^src - 1`, accurate near 0.";
        0x2d vsin VSin: Unary, Float, Special, "Sine of radians.";
        0x2e vcos VCos: Unary, Float, Special, "Cosine of radians.";
        0x2f vtan VTan: Unary, Float, Special, "Tangent of radians.";
        0x30 vtanh VTanh: Unary, Float, Exp, "Hyperbolic tangent.";
        0x31 verf VErf: Unary, Float, Exp, "Error function.";
        0x32 vsigmoid VSigmoid: Unary, Float, Exp, "`1 / (1 + e^-src)`.";
        0x33 vround VRound: Unary, Float, Arith, "Nearest integer, half to even.";
        0x34 vfloor VFloor: Unary, Float, Arith, "Largest integer not above.";
        0x35 vceil VCeil: Unary, Float, Arith, "Smallest integer not below.";
        0x36 vtrunc VTrunc: Unary, Float, Arith, "Nearest integer towards zero.";
        0x37 vis_finite VIsFinite: Unary, Float, Compare, "Whether neither NaN nor infinite.";
        0x38 vis_nan VIsNan: Unary, Float, Compare, "Whether NaN.";
        0x39 vis_inf VIsInf: Unary, Float, Compare, "Whether infinite, of either sign.";
        0x3a vnot VNot: Unary, Bits, Arith, "Bitwise complement; of a bool, logical not.";
        0x3b vasin VAsin: Unary, Float, Special, "Arc sine.";
        0x3c vacos VAcos: Unary, Float, Special, "Arc cosine.";
        0x3d vatan VAtan: Unary, Float, Special, "Arc tangent.";
        0x3e vsinh VSinh: Unary, Float, Special, "Hyperbolic sine.";
        0x3f vcosh VCosh: Unary, Float, Special, "Hyperbolic cosine.";
        0x40 vasinh VAsinh: Unary, Float, Special, "Inverse hyperbolic sine.";
        0x41 vacosh VAcosh: Unary, Float, Special, "Inverse hyperbolic cosine.";
        0x42 vatanh VAtanh: Unary, Float, Special, "Inverse hyperbolic tangent.";
        // vector, binary: 0x50..0x7f
        0x50 vadd VAdd: Binary, Numeric, Arith, "`a + b`; integers wrap.";
        0x51 vsub VSub: Binary, Numeric, Arith, "`a - b`; integers wrap.";
        0x52 vmul VMul: Binary, Numeric, Arith, "`a * b`; integers wrap.";
        0x53 vdiv VDiv: Binary, Numeric, Divide, "`a / b`; integers truncate towards zero, the least signed integer by -1 wraps, by 0 traps.";
        0x54 vrem VRem: Binary, Numeric, Divide, "Remainder with the sign of the divisor, as NumPy `mod`; integers by 0 trap.";
        0x55 vfmod VFmod: Binary, Numeric, Divide, "Remainder with the sign of the dividend, as C `fmod`; integers by 0 trap.";
        0x56 vpow VPow: Binary, Numeric, Special, "`a^b`; integers wrap, a negative integer exponent gives the truncated quotient.";
        0x57 vmax VMax: Binary, Any, Arith, "Larger of two; NaN if either is NaN.";
        0x58 vmin VMin: Binary, Any, Arith, "Smaller of two; NaN if either is NaN.";
        0x59 vand VAnd: Binary, Bits, Arith, "Bitwise and.";
        0x5a vor VOr: Binary, Bits, Arith, "Bitwise or.";
        0x5b vxor VXor: Binary, Bits, Arith, "Bitwise exclusive or.";
        0x5c vshl VShl: Binary, Int, Arith, "`a << b`; 0 where b is negative or not less than the width.";
        0x5d vshr VShr: Binary, Int, Arith, "`a >> b`, arithmetic for signed dtypes; 0 where b is negative or not less than the width.";
        0x5e veq VEq: Binary, Any, Compare, "`a == b`.";
        0x5f vne VNe: Binary, Any, Compare, "`a != b`.";
        0x60 vlt VLt: Binary, Any, Compare, "`a < b`.";
        0x61 vle VLe: Binary, Any, Compare, "`a <= b`.";
        0x62 vgt VGt: Binary, Any, Compare, "`a > b`.";
        0x63 vge VGe: Binary, Any, Compare, "`a >= b`.";
        0x64 vfloordiv VFloorDiv: Binary, Numeric, Divide, "`floor(a / b)`, as NumPy `//`; integers by 0 trap.";
        // vector, ternary: 0x80..0x8f
        0x80 vfma VFma: Ternary, Numeric, Arith, "`a * b + c`, rounded once.";
        0x81 vselect VSelect: Ternary, Any, Arith, "`b` where the bool `a` is true, else `c`.";
        0x82 vclamp VClamp: Ternary, Any, Arith, "`min(max(a, b), c)`; NaN propagates.";
        // vector, shape: 0x90..0x9f
        0x90 vcast VCast: Cast, Any, Move, "Conversion: float to integer truncates and saturates, NaN gives 0; integers wrap; to bool is `!= 0`.";
        0x91 vfill VFill: Fill, Any, Move, "`value` in every element.";
        0x92 viota VIota: Iota, Int, Move, "An affine function of the element's place.";
        0x93 vview VView: LocalView, Any, Move, "Element (i0, i1, ..) of the tile is element `sum(i * stride)` of `src`.";
        0x94 vbroadcast_x VBroadcastX: Shape, Any, Move, "`dst[r, c] = src[r]`: `src` is `rows` elements.";
        0x95 vbroadcast_y VBroadcastY: Shape, Any, Move, "`dst[r, c] = src[c]`: `src` is `cols` elements.";
        0x96 vtranspose VTranspose: Shape, Any, Move, "`dst[r, c] = src[c, r]`: `src` is `cols x rows`.";
        0x97 vclear_pad VClearPad: ClearPad, Any, Move, "`value` into what is right of `cols`.";
        0x98 vremove_pad VRemovePad: RemovePad, Any, Move, "Takes what is left of `cols`.";
        // vector, reduce: 0xa0..0xaf
        0xa0 vsum VSum: Reduce, Numeric, Reduce, "Sum, in the order given below.";
        0xa1 vredmax VRedMax: Reduce, Any, Reduce, "Largest; NaN if any is NaN; the least value of the dtype over nothing.";
        0xa2 vredmin VRedMin: Reduce, Any, Reduce, "Smallest; NaN if any is NaN; the largest value of the dtype over nothing.";
        0xa3 vprod VProd: Reduce, Numeric, Reduce, "Product in index order; integers wrap; 1 over nothing.";
        0xa4 vany VAny: Reduce, Logical, Reduce, "Whether any is true.";
        0xa5 vall VAll: Reduce, Logical, Reduce, "Whether all are true.";
        0xa6 vargmax VArgMax: ArgReduce, Any, Scan, "Index of the largest; the first NaN counts as the largest; index 0 and the least value over nothing.";
        0xa7 vargmin VArgMin: ArgReduce, Any, Scan, "Index of the smallest; the first NaN counts as the smallest; index 0 and the largest value over nothing.";
        0xa8 vcumsum VCumSum: CumSum, Numeric, Scan, "Running sum in index order.";
        0xa9 vsum_part VSumPart: PartSum, Float, Reduce, "Adds a piece of a sum to its state.";
        // vector, sort: 0xb0..0xbf
        0xb0 vsort_kv VSortKv: SortKv, Any, Scan, "Stable sort of rows of keys, each with an i64.";
        // cube: 0xc0..0xcf
        0xc0 load_a LoadA: LoadA, Numeric, Dma, "Packs a left operand.";
        0xc1 load_b LoadB: LoadB, Numeric, Dma, "Packs a right operand.";
        0xc2 bind_b BindB: BindB, Numeric, Dma, "Names a right operand that is packed already.";
        0xc3 mmad Mmad: Mmad, Numeric, Cube, "`acc + a * b`; each element is one chain of fused multiply-adds in increasing k.";
        0xc4 acc_to_ub AccToUb: AccToUb, Any, Move, "Hands an accumulator tile to the vector unit.";
        0xc5 acc_store AccStore: AccStore, Any, Dma, "An accumulator tile to an argument.";
        0xc6 pack_a PackA: PackA, Numeric, Move, "Packs a left operand that was computed; illegal where cube and vector cores are separate.";
    } };
}

/// The pipe of an operand struct.
macro_rules! pipe_of {
    (None, $o:ident) => {
        None
    };
    (Named, $o:ident) => {
        Some($o.pipe)
    };
    ($pipe:ident, $o:ident) => {
        Some(Pipe::$pipe)
    };
}

macro_rules! define_forms {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
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
            /// The pipe that an instruction with these operands runs on; `None` where it is every pipe's.
            #[must_use]
            #[inline]
            pub const fn pipe(&self) -> Option<Pipe> { match self { $(Operands::$form(_o) => pipe_of!($pipe, _o),)* } }
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
    #[inline]
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

macro_rules! define_classes {
    ($($(#[$doc:meta])* $number:literal $name:literal $class:ident;)*) => {
        /// What an instruction costs like, and what a target may not have for every dtype. The numbers are part of stored targets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class { $($(#[$doc])* $class = $number,)* }

        impl Class {
            /// All classes, by number.
            pub const ALL: &'static [Class] = &[$(Class::$class,)*];
            /// The class with this number.
            #[must_use]
            pub fn from_number(n: u8) -> Option<Class> { match n { $($number => Some(Class::$class),)* _ => None } }
            /// The textual name.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Class::$class => $name,)* } }
            /// The class with this name.
            #[must_use]
            pub fn from_name(s: &str) -> Option<Class> { match s { $($name => Some(Class::$class),)* _ => None } }
        }
    };
}
define_classes! {
    /// No work.
    0 "control" Control;
    /// Moves between an argument and local memory.
    1 "dma" Dma;
    /// Moves or fills local memory; conversions.
    2 "move" Move;
    /// One cheap operation an element.
    3 "arith" Arith;
    /// As `Arith`, and the result is bool.
    4 "compare" Compare;
    /// A division or square root an element.
    5 "divide" Divide;
    /// A short polynomial an element: exp, ln, tanh, erf.
    6 "exp" Exp;
    /// A long computation an element: trigonometry, pow.
    7 "special" Special;
    /// Reduction.
    8 "reduce" Reduce;
    /// Reduction that carries an index or writes each partial result; sorting.
    9 "scan" Scan;
    /// Matrix product.
    10 "cube" Cube;
}

macro_rules! define_opcodes {
    ($($num:literal $mnemonic:ident $name:ident: $form:ident, $dtypes:ident, $class:ident, $doc:literal;)*) => {
        /// An instruction's number in the encoding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode { $(#[doc = $doc] $name = $num,)* }

        impl Opcode {
            /// Every opcode in table order.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];
            /// The opcode with this number.
            #[must_use]
            #[inline]
            pub fn from_number(n: u8) -> Option<Opcode> { match n { $($num => Some(Opcode::$name),)* _ => None } }
            /// Its name in the text form.
            #[must_use]
            #[inline]
            pub const fn mnemonic(self) -> &'static str { match self { $(Opcode::$name => stringify!($mnemonic),)* } }
            /// The opcode with this name.
            #[must_use]
            pub fn from_mnemonic(s: &str) -> Option<Opcode> { match s { $(stringify!($mnemonic) => Some(Opcode::$name),)* _ => None } }
            /// Its operand layout.
            #[must_use]
            #[inline]
            pub const fn form(self) -> Form { match self { $(Opcode::$name => Form::$form,)* } }
            /// The element types it takes.
            #[must_use]
            #[inline]
            pub const fn dtypes(self) -> DTypes { match self { $(Opcode::$name => DTypes::$dtypes,)* } }
            /// What it costs like.
            #[must_use]
            #[inline]
            pub const fn class(self) -> Class { match self { $(Opcode::$name => Class::$class,)* } }
            /// What it computes, in a line.
            #[must_use]
            pub const fn doc(self) -> &'static str { match self { $(Opcode::$name => $doc,)* } }
        }
    };
}
for_each_opcode!(define_opcodes);

macro_rules! define_visitor {
    ($($num:literal $mnemonic:ident $name:ident: $form:ident, $dtypes:ident, $class:ident, $doc:literal;)*) => {
        /// One method an instruction, so that who handles all of them does not compile when a row is added.
        pub trait Visitor {
            /// What handling gives.
            type Output;
            $(#[doc = $doc] fn $mnemonic(&mut self, inst: &Inst, o: &$form) -> Self::Output;)*
            /// An instruction whose operands are laid out for another: the encoder and the verifier know none.
            fn mismatch(&mut self, inst: &Inst) -> Self::Output;
        }

        impl Inst {
            /// Calls the method of `visitor` for this instruction.
            #[inline]
            pub fn accept<V: Visitor>(&self, visitor: &mut V) -> V::Output {
                match (self.op, &self.operands) {
                    $((Opcode::$name, Operands::$form(o)) => visitor.$mnemonic(self, o),)*
                    _ => visitor.mismatch(self),
                }
            }
        }
    };
}
for_each_opcode!(define_visitor);

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
    /// What it waits for and sets; [`Sync::NONE`] where pipes are in order.
    pub sync: Sync,
}

impl Inst {
    /// An instruction. The operands' form must be the opcode's; a mismatch is caught by the encoder and the verifier.
    #[must_use]
    pub fn new(op: Opcode, dtype: DType, operands: impl Into<Operands>) -> Inst {
        Inst { op, dtype, operands: operands.into(), sync: Sync::NONE }
    }
    /// The same instruction with this synchronisation.
    #[must_use]
    pub fn with_sync(self, sync: Sync) -> Inst {
        Inst { sync, ..self }
    }
    /// A `nop` on a pipe, to carry synchronisation.
    #[must_use]
    pub fn nop(pipe: Pipe, sync: Sync) -> Inst {
        Inst::new(Opcode::Nop, DType::F32, OnPipe { pipe }).with_sync(sync)
    }
    /// The pipe it runs on; `None` for `barrier` and `end`, which are every pipe's.
    #[must_use]
    #[inline]
    pub const fn pipe(&self) -> Option<Pipe> {
        self.operands.pipe()
    }
}
