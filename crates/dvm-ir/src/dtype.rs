//! Element types and scalar values.

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:literal $variant:ident $size:literal $onnx:literal;)*) => {
        /// Element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every dtype.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];
            /// Bytes per element.
            #[must_use]
            pub const fn size(self) -> usize { match self { $(DType::$variant => $size,)* } }
            /// The textual name, e.g. `f32`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(DType::$variant => $name,)* } }
            /// The dtype with this name.
            #[must_use]
            pub fn from_name(s: &str) -> Option<DType> { match s { $($name => Some(DType::$variant),)* _ => None } }
            /// ONNX `TensorProto.DataType` number.
            #[must_use]
            pub const fn onnx(self) -> i32 { match self { $(DType::$variant => $onnx,)* } }
            /// The dtype with this ONNX number.
            #[must_use]
            pub fn from_onnx(n: i32) -> Option<DType> { match n { $($onnx => Some(DType::$variant),)* _ => None } }
        }
    };
}

dtypes! {
    /// IEEE binary32.
    "f32" F32 4 1;
    /// IEEE binary64.
    "f64" F64 8 11;
    /// IEEE binary16.
    "f16" F16 2 10;
    /// bfloat16.
    "bf16" BF16 2 16;
    /// Signed 8-bit.
    "i8" I8 1 3;
    /// Unsigned 8-bit.
    "u8" U8 1 2;
    /// Signed 16-bit.
    "i16" I16 2 5;
    /// Unsigned 16-bit.
    "u16" U16 2 4;
    /// Signed 32-bit.
    "i32" I32 4 6;
    /// Unsigned 32-bit.
    "u32" U32 4 12;
    /// Signed 64-bit.
    "i64" I64 8 7;
    /// Unsigned 64-bit.
    "u64" U64 8 13;
    /// Boolean stored as one byte, 0 or 1.
    "bool" Bool 1 9;
}

impl DType {
    /// f32, f64, f16 or bf16.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }
    /// f16 or bf16: computed in f32, rounded where a value is defined.
    #[must_use]
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }
    /// Signed or unsigned integer (not bool).
    #[must_use]
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }
    /// Unsigned integer.
    #[must_use]
    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One value, exact in its class: floats as f64, integers as i128-safe i64/u64 pairs.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A floating point value (any float dtype).
    Float(f64),
    /// An integer or bool value; u64 above `i64::MAX` wraps to negative and is read back by dtype.
    Int(i64),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            _ => false,
        }
    }
}
impl Eq for Scalar {}
impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        match self {
            Scalar::Float(x) => (0u8, x.to_bits()).hash(h),
            Scalar::Int(x) => (1u8, *x).hash(h),
        }
    }
}

impl Scalar {
    /// The value as f64.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(x) => x as f64,
        }
    }
    /// The value as i64 (floats truncate and saturate).
    #[must_use]
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(x) => x,
        }
    }
    /// Little-endian bits of the value in `dtype`, zero-extended to 64 bits. Float to integer saturates with NaN as
    /// 0, integers wrap, anything non-zero is `true`.
    #[must_use]
    pub fn to_bits(self, dtype: DType) -> u64 {
        let i = || match self {
            Scalar::Int(x) => x,
            Scalar::Float(_) => 0,
        };
        macro_rules! int {
            ($t:ty, $u:ty) => {
                match self {
                    Scalar::Float(x) => x as $t as $u as u64,
                    Scalar::Int(x) => x as $t as $u as u64,
                }
            };
        }
        match dtype {
            DType::F32 => u64::from((self.as_f64() as f32).to_bits()),
            DType::F64 => self.as_f64().to_bits(),
            DType::F16 => u64::from(half::f16::from_f32(round_to_odd(self.as_f64())).to_bits()),
            DType::BF16 => u64::from(half::bf16::from_f32(round_to_odd(self.as_f64())).to_bits()),
            DType::I8 => int!(i8, u8),
            DType::U8 => int!(u8, u8),
            DType::I16 => int!(i16, u16),
            DType::U16 => int!(u16, u16),
            DType::I32 => int!(i32, u32),
            DType::U32 => int!(u32, u32),
            DType::I64 => int!(i64, u64),
            DType::U64 => int!(u64, u64),
            DType::Bool => u64::from(match self {
                Scalar::Float(x) => x != 0.0,
                Scalar::Int(_) => i() != 0,
            }),
        }
    }
    /// The value whose little-endian bits in `dtype` these are.
    #[must_use]
    pub fn from_bits(bits: u64, dtype: DType) -> Scalar {
        match dtype {
            DType::F32 => Scalar::Float(f64::from(f32::from_bits(bits as u32))),
            DType::F64 => Scalar::Float(f64::from_bits(bits)),
            DType::F16 => Scalar::Float(half::f16::from_bits(bits as u16).to_f64()),
            DType::BF16 => Scalar::Float(half::bf16::from_bits(bits as u16).to_f64()),
            DType::I8 => Scalar::Int(i64::from(bits as u8 as i8)),
            DType::U8 => Scalar::Int(i64::from(bits as u8)),
            DType::I16 => Scalar::Int(i64::from(bits as u16 as i16)),
            DType::U16 => Scalar::Int(i64::from(bits as u16)),
            DType::I32 => Scalar::Int(i64::from(bits as u32 as i32)),
            DType::U32 => Scalar::Int(i64::from(bits as u32)),
            DType::I64 | DType::U64 => Scalar::Int(bits as i64),
            DType::Bool => Scalar::Int(i64::from(bits & 0xff != 0)),
        }
    }
}

/// `x` rounded to f32 toward zero, with the last bit set when inexact: rounding that to nearest in a narrower format is the
/// rounding of `x` itself, which going through the nearest f32 is not.
pub(crate) fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let toward_zero = if back.abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}
