//! What the f32 functions promise, as data: tests check it, the documentation prints it.

use dvm_bc::Opcode;

/// How far a function of f32 may be from the exact value.
///
/// Errors are in units in the last place of the exact value: 0.5 is what correct rounding gives. f16 and bf16 compute in
/// f32 and round once more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// The function.
    pub op: Opcode,
    /// No argument gives a larger error.
    pub bound: f64,
    /// The largest error found in a dense search over all f32 (40 million pairs for `vpow`).
    pub found: f64,
    /// Where it was found (`vpow`: base and exponent); of no meaning where nothing above 0.5 was.
    pub at: [f32; 2],
    /// How it is computed.
    pub method: &'static str,
}

macro_rules! accuracy {
    ($($op:ident $bound:literal $found:literal [$($at:literal),+] $method:literal;)*) => {
        &[$(Accuracy {
            op: Opcode::$op,
            bound: $bound,
            found: $found,
            at: at(&[$($at),+]),
            method: $method,
        }),*]
    };
}

const fn at(bits: &[u32]) -> [f32; 2] {
    [f32::from_bits(bits[0]), if bits.len() > 1 { f32::from_bits(bits[1]) } else { 0.0 }]
}

const FUNCTIONS: &[Accuracy] = accuracy! {
    VRsqrt 1.5 1.490 [0x0280_cab3] "1 / sqrt, both correctly rounded";
    VExp 1.25 1.031 [0x41d5_d730] "n ln 2 + r, degree 6";
    VExp2 1.0 0.868 [0xc2fc_f3d4] "n + r, degree 6";
    VExpm1 1.75 1.436 [0x4187_e11f] "n ln 2 + r, degree 7";
    VLn 1.25 0.934 [0x3f22_ba71] "2^e m with m in 2/3..4/3, degree 10";
    VLog2 2.0 1.593 [0x3faa_d10e] "as ln, the leading term in two floats";
    VLog1p 2.0 1.511 [0x3eab_0ce7] "as ln of 1 + x, reduced with one rounding";
    VSin 2.0 1.560 [0x450e_fe63] "n pi/2 + r, degree 9 (8 for cos); beyond 200000 in f64";
    VCos 2.0 1.553 [0x44e6_3730] "as sin";
    VTan 1.5 1.167 [0x41e8_4daf] "n pi/2 + r in two floats, degree 15; beyond 200000 in f64";
    VTanh 2.0 1.595 [0x3e59_f811] "expm1(2x) / (expm1(2x) + 2)";
    VErf 1.25 1.083 [0x3f50_040e] "degree 13 below 0.8, 1 - exp(polynomial) beyond";
    VSigmoid 2.0 1.497 [0xc0ba_d285] "1 / (1 + exp(-x)) through exp(-\\|x\\|)";
    VPow 1.5 0.927 [0x3f32_7b63, 0x4373_0845] "2^(y log2 x), the logarithm in two floats; x * x where y = 2";
    VAsin 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VAcos 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VAtan 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VSinh 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VCosh 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VAsinh 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VAcosh 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
    VAtanh 0.51 0.5 [0x3f00_0000] "in f64, rounded once";
};

/// The functions that are not exact in the sense of IEEE 754; those that are missing here are correctly rounded.
#[must_use]
pub fn accuracy() -> &'static [Accuracy] {
    FUNCTIONS
}

/// The table of [`accuracy`] in Markdown.
#[must_use]
pub fn accuracy_markdown() -> String {
    use std::fmt::Write as _;
    let mut s = String::from("| function | bound, ulp | largest found, ulp | at | method |\n");
    s.push_str("| --- | --- | --- | --- | --- |\n");
    for a in accuracy() {
        let place = match a.at {
            _ if a.found <= 0.5 => String::from("-"),
            [x, y] if y != 0.0 => format!("{x:e}, {y:e}"),
            [x, _] => format!("{x:e}"),
        };
        // Writing to a string cannot fail.
        let _ =
            writeln!(s, "| `{}` | {} | {:.3} | {place} | {} |", a.op.mnemonic(), a.bound, a.found, a.method);
    }
    s
}
