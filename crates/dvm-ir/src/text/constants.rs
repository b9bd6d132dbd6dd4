//! Constants: lists of numbers, bytes, and data that a short text stands for.

use super::ParseError;
use super::lex::Tok;
use super::parse::Parser;
use crate::{DType, Scalar, Tensor, TensorError};

/// Most bytes that `splat` and `uniform` constants of one text may expand to.
const MAX_EXPANDED: usize = 1 << 26;

impl Parser<'_> {
    pub(super) fn constant(&mut self) -> Result<(), ParseError> {
        let (key, span, name) = self.value_name()?;
        self.expect(":")?;
        let ty_span = self.span();
        let ty = self.ty()?;
        let extents: Option<Vec<usize>> = ty
            .shape
            .iter()
            .map(|&d| self.graph.dims.as_const(d).and_then(|n| usize::try_from(n).ok()))
            .collect();
        let Some(shape) = extents else {
            return Err(ParseError::new(ty_span.start..self.end(), "a constant needs a shape of numbers"));
        };
        self.expect("=")?;
        let start = self.start();
        let bytes = shape.iter().try_fold(ty.dtype.size(), |n, &d| n.checked_mul(d));
        let wrong = |p: &Self, got: String| {
            ParseError::new(start..p.end(), format!("{}{shape:?} needs {got}", ty.dtype))
        };
        let tensor = if self.text() == "[" {
            let data = self.list("[", "]", |p| p.element_bits(ty.dtype))?.concat();
            Tensor::from_bytes(ty.dtype, &shape, &data).map_err(|_| {
                wrong(self, format!("another number of elements than {}", data.len() / ty.dtype.size()))
            })?
        } else if self.eat("hex") {
            let data = self.hex()?;
            Tensor::from_bytes(ty.dtype, &shape, &data)
                .map_err(|_| wrong(self, format!("another number of bytes than {}", data.len())))?
        } else if self.eat("splat") {
            let bits = self.element_bits(ty.dtype)?;
            let n = self.expand(bytes, start)? / ty.dtype.size();
            Tensor::from_bytes(ty.dtype, &shape, &bits.repeat(n)).map_err(|e| wrong(self, e.to_string()))?
        } else if self.eat("uniform") {
            self.expect("(")?;
            let seed = self.integer("a seed")?;
            self.expect(")")?;
            self.expand(bytes, start)?;
            uniform(ty.dtype, &shape, seed as u64).map_err(|e| wrong(self, e.to_string()))?
        } else if self.eat("no_data") {
            Tensor::shape_only(ty.dtype, &shape).map_err(|e| wrong(self, e.to_string()))?
        } else if shape.is_empty() {
            let data = self.element_bits(ty.dtype)?;
            Tensor::from_bytes(ty.dtype, &shape, &data).map_err(|e| wrong(self, e.to_string()))?
        } else {
            let e = self.expected("`[..]`, `splat`, `hex`, `uniform` or `no_data`");
            let elided = self.text() == "...";
            return Err(if elided { e.help("this text was printed without its large constants") } else { e });
        };
        let v = self.graph.constant(name, tensor);
        self.define(key, span, v)
    }
    /// Accounts for bytes that the text does not hold.
    fn expand(&mut self, bytes: Option<usize>, start: usize) -> Result<usize, ParseError> {
        match bytes.and_then(|n| self.expanded.checked_add(n)) {
            Some(n) if n <= MAX_EXPANDED => {
                self.expanded = n;
                Ok(bytes.unwrap_or(0))
            }
            _ => {
                let message = format!("generated constants are limited to {MAX_EXPANDED} bytes a graph");
                Err(ParseError::new(start..self.end(), message))
            }
        }
    }
    fn hex(&mut self) -> Result<Vec<u8>, ParseError> {
        let span = self.span();
        let text = self.string()?;
        let digit = |c: u8| (c as char).to_digit(16);
        let pairs = text.as_bytes().chunks(2).map(|p| match p {
            [a, b] => Some((digit(*a)? * 16 + digit(*b)?) as u8),
            _ => None,
        });
        pairs
            .collect::<Option<_>>()
            .ok_or_else(|| ParseError::new(span, "expected pairs of hexadecimal digits"))
    }
    /// Little-endian bytes of one element.
    fn element_bits(&mut self, dtype: DType) -> Result<Vec<u8>, ParseError> {
        let start = self.start();
        let bits = match self.text() {
            "true" | "false" if dtype == DType::Bool => {
                let v = self.text() == "true";
                self.bump();
                Some(u64::from(v))
            }
            _ => match (self.number()?, dtype) {
                (_, DType::Bool) => None,
                // Parsed in its own precision, so that it is rounded once.
                (Number::Float(x, text), DType::F32) => {
                    Some(u64::from(text.parse::<f32>().unwrap_or(x as f32).to_bits()))
                }
                (n, d) if d.is_float() => Some(Scalar::Float(n.as_f64()).to_bits(d)),
                (Number::Float(..), _) => None,
                (Number::Int(i), d) => int_bits(i, d),
            },
        };
        match bits {
            Some(b) => Ok(b.to_le_bytes()[..dtype.size()].to_vec()),
            None => Err(ParseError::new(start..self.end(), format!("this is no {dtype}"))),
        }
    }
    /// `-1.5e3`, `7`, `inf`, `nan`.
    pub(super) fn number(&mut self) -> Result<Number, ParseError> {
        let start = self.start();
        let minus = if self.eat("-") { "-" } else { "" };
        let text = self.text().to_ascii_lowercase();
        let plain = self.peek() == Tok::Number
            || (self.peek() == Tok::Word && ["inf", "nan"].contains(&text.as_str()));
        if !plain {
            return Err(self.expected("a number"));
        }
        self.bump();
        let text = format!("{minus}{text}");
        if text.bytes().all(|c| c.is_ascii_digit() || c == b'-') {
            let out_of_range = |_| ParseError::new(start..self.end(), "out of range");
            return text.parse().map(Number::Int).map_err(out_of_range);
        }
        let x: f64 = text.parse().map_err(|_| ParseError::new(start..self.end(), "this is no number"))?;
        let x = if x.is_nan() { f64::NAN } else { x };
        Ok(Number::Float(x, if x.is_nan() { "nan".into() } else { text }))
    }
}

/// A number as written.
pub(super) enum Number {
    Int(i128),
    /// The value, and its text for another precision.
    Float(f64, String),
}
impl Number {
    pub(super) fn as_f64(&self) -> f64 {
        match self {
            Number::Int(i) => *i as f64,
            Number::Float(x, _) => *x,
        }
    }
}

fn int_bits(i: i128, dtype: DType) -> Option<u64> {
    let width = dtype.size() as u32 * 8;
    let (lo, hi) = if dtype.is_unsigned() {
        (0, (1i128 << width) - 1)
    } else {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    };
    (lo..=hi).contains(&i).then_some(i as u64)
}

/// Deterministic data: floats in -1..1, integers in 0..10, bools.
fn uniform(dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor, TensorError> {
    let mut t = Tensor::zeros(dtype, shape)?;
    let mut state = seed;
    for i in 0..t.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        let value = match dtype {
            d if d.is_float() => Scalar::Float(2.0 * unit - 1.0),
            DType::Bool => Scalar::Int(i64::from(unit < 0.5)),
            _ => Scalar::Int((unit * 10.0) as i64),
        };
        t.set(i, value);
    }
    Ok(t)
}
