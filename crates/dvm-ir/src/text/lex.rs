//! Tokens with their place in the source.

use std::ops::Range;

use super::ParseError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tok {
    /// An identifier, a keyword.
    Word,
    /// A value name after `%`: plain, or quoted.
    Value,
    /// Digits, maybe with a point or an exponent; no sign.
    Number,
    /// A quoted string.
    Str,
    /// One of the punctuation marks; its text says which.
    Punct,
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) tok: Tok,
    pub(super) span: Range<usize>,
}

const PUNCT: [&str; 24] = [
    "...", "..=", "->", "==", "<=", ">=", "(", ")", "[", "]", "{", "}", ",", ":", "=", "+", "-", "*", "<",
    ">", "~", "@", ";", "%",
];

pub(super) fn lex(src: &str) -> Result<Vec<Token>, ParseError> {
    let bytes = src.as_bytes();
    let mut out = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let rest = &src[at..];
        let c = bytes[at];
        let tok = if c.is_ascii_whitespace() {
            at += 1;
            continue;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if c == b'"' {
            at += string_len(rest, start)?;
            Tok::Str
        } else if c == b'%' && !rest[1..].starts_with(' ') {
            at += 1;
            let name = &src[at..];
            at += if name.starts_with('"') { string_len(name, at)? } else { word_len(name) };
            if at == start + 1 {
                return Err(ParseError::new(start..at, "a value name must follow `%`"));
            }
            Tok::Value
        } else if c.is_ascii_digit() {
            at += number_len(rest);
            Tok::Number
        } else if c.is_ascii_alphabetic() || c == b'_' {
            at += word_len(rest);
            Tok::Word
        } else if let Some(p) = PUNCT.iter().find(|p| rest.starts_with(**p)) {
            at += p.len();
            Tok::Punct
        } else {
            let n = rest.chars().next().map_or(1, char::len_utf8);
            return Err(ParseError::new(start..start + n, format!("unexpected character {:?}", &rest[..n])));
        };
        out.push(Token { tok, span: start..at });
    }
    out.push(Token { tok: Tok::End, span: src.len()..src.len() });
    Ok(out)
}

fn word_len(s: &str) -> usize {
    // A range `1..=5` must not swallow its dots.
    let n = s.bytes().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.')).count();
    s[..n].find("..").unwrap_or(n)
}

fn number_len(s: &str) -> usize {
    let b = s.as_bytes();
    let digits = |from: usize| b[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut n = digits(0);
    if b.get(n) == Some(&b'.') && b.get(n + 1) != Some(&b'.') {
        n += 1 + digits(n + 1);
    }
    if matches!(b.get(n), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(b.get(n + 1), Some(b'+' | b'-')));
        let exponent = digits(n + 1 + sign);
        if exponent > 0 {
            n += 1 + sign + exponent;
        }
    }
    n
}

fn string_len(s: &str, start: usize) -> Result<usize, ParseError> {
    let mut escaped = false;
    for (i, c) in s.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok(i + 1),
            '\n' => break,
            _ => {}
        }
    }
    let end = start + s.find('\n').unwrap_or(s.len());
    Err(ParseError::new(start..end, "this string does not end"))
}

/// The content of a quoted string, escapes as Rust's `{:?}` prints them.
pub(super) fn unquote(quoted: &str, span: &Range<usize>) -> Result<String, ParseError> {
    let inner = &quoted[1..quoted.len() - 1];
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('0') => out.push('\0'),
            Some(c @ ('\\' | '"' | '\'')) => out.push(c),
            Some('u') => {
                let hex: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                match u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32) {
                    Some(c) => out.push(c),
                    None => {
                        return Err(ParseError::new(span.clone(), format!("`\\u{{{hex}}}` is no character")));
                    }
                }
            }
            c => {
                let c = c.map_or(String::new(), String::from);
                return Err(ParseError::new(span.clone(), format!("unknown escape `\\{c}`")));
            }
        }
    }
    Ok(out)
}
