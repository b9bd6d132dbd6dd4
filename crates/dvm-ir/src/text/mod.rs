//! The textual form of graphs.
//!
//! ```text
//! graph mlp(%x: f32[b, 256]) -> (%y) {
//!   assume b <= 4096 "batch"                        // a condition checked when symbols are bound
//!   const %w: f32[256, 64] = uniform(7)             // or [1, 2, 3], splat 0.5, hex "0000803f"
//!   %h: f32[b, 64] = matmul %x, %w                  // the type is optional and checked
//!   %y = reduce %h {op = sum, axes = [1], keepdims = true} @"/mlp/sum"
//! }
//! ```
//!
//! Names start with `%`, those that are no plain identifiers stand in quotes (`%"enc/add:0"`), and `%v7` is a value without
//! a name. Dims are expressions over symbols: integers, `+ - *`, `floordiv ceildiv mod min max broadcast eq lt` as
//! functions. `%n: i64[2] = [h, w]` on an input names the *elements* of a small integer tensor for use as sizes. Lines
//! `symbol h in -5..=9` before the graph say that a symbol may be negative or is bounded. Omitted bool attributes are false.
//!
//! Controls ([`crate::Control`]) have results with types, operands by position, and bodies written like graphs:
//!
//! ```text
//! %r: f32[n] = if %p, %x, %y, %x then (%a: f32[n], %b: f32[n]) -> (%s) {
//!   %s = add %a, %b
//! } else (%a: f32[n]) -> (%a) {
//! }
//! %h: f32[b], %ys: f32[t, b] = loop %trips, %go, %h0, %xs {carried = 1, scanned = 1, backward = [0]} do (..) -> (..) {..}
//! %at: i64[2, n] = nonzero %mask
//! read %shape = [rows, cols]
//! ```

mod constants;
mod control;
mod dims;
mod lex;
mod parse;
mod print;

pub use parse::ParseError;
pub use print::TextOptions;

#[cfg(test)]
mod tests;
