//! Element types. The numbers are part of the encoding and never reused.

macro_rules! dtypes {
    ($($(#[$doc:meta])* $num:literal $name:literal $variant:ident $size:literal;)*) => {
        /// Element type of a tile or an argument.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $($(#[$doc])* $variant = $num,)* }

        impl DType {
            /// Every dtype, in encoding order.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];
            /// The dtype with this encoding number.
            #[must_use]
            #[inline]
            pub fn from_number(n: u8) -> Option<DType> { match n { $($num => Some(DType::$variant),)* _ => None } }
            /// Bytes per element.
            #[must_use]
            #[inline]
            pub const fn size(self) -> u32 { match self { $(DType::$variant => $size,)* } }
            /// The textual name, e.g. `f32`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(DType::$variant => $name,)* } }
            /// The dtype with this name.
            #[must_use]
            pub fn from_name(s: &str) -> Option<DType> { match s { $($name => Some(DType::$variant),)* _ => None } }
        }
    };
}

dtypes! {
    /// IEEE binary32.
    0 "f32" F32 4;
    /// IEEE binary64.
    1 "f64" F64 8;
    /// IEEE binary16.
    2 "f16" F16 2;
    /// bfloat16.
    3 "bf16" BF16 2;
    /// Signed 8-bit.
    4 "i8" I8 1;
    /// Unsigned 8-bit.
    5 "u8" U8 1;
    /// Signed 16-bit.
    6 "i16" I16 2;
    /// Unsigned 16-bit.
    7 "u16" U16 2;
    /// Signed 32-bit.
    8 "i32" I32 4;
    /// Unsigned 32-bit.
    9 "u32" U32 4;
    /// Signed 64-bit.
    10 "i64" I64 8;
    /// Unsigned 64-bit.
    11 "u64" U64 8;
    /// Boolean stored as one byte, 0 or 1.
    12 "bool" Bool 1;
}

impl DType {
    /// f32, f64, f16 or bf16.
    #[must_use]
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
