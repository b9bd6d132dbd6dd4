//! Reading a line of text.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::DType;

/// Text that is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct AsmError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

impl AsmError {
    /// The message under the line it is about. `path` names the source.
    #[must_use]
    pub fn render(&self, path: &str, source: &str) -> String {
        let mut start = 0;
        let mut lines = source.split_inclusive('\n');
        for line in lines.by_ref().take(self.line.saturating_sub(1)) {
            start += line.len();
        }
        let line = lines.next().unwrap_or_default().trim_end_matches(['\n', '\r']);
        let offset = line.char_indices().nth(self.column.saturating_sub(1)).map_or(line.len(), |(i, _)| i);
        let rest = &line[offset..];
        // A word, or the one character that is not wanted.
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let word = word.max(rest.chars().next().map_or(0, char::len_utf8));
        let span = start + offset..start + offset + word;
        let snippet = Snippet::source(source).path(path).annotation(AnnotationKind::Primary.span(span));
        Renderer::plain().render(&[Level::ERROR.primary_title(&self.message).element(snippet)])
    }
}

pub(super) type Result<T> = std::result::Result<T, AsmError>;

/// One line, without its comment.
pub(super) struct Cursor<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// What follows the first `;`, once it is reached.
    pub(super) comment: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(line: usize, text: &'a str) -> Cursor<'a> {
        let mut c = Cursor { line, text, at: 0, comment: "" };
        c.space();
        c
    }
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    pub(super) fn space(&mut self) {
        let trimmed = self.rest().trim_start();
        self.at = self.text.len() - trimmed.len();
        if let Some(comment) = trimmed.strip_prefix(';') {
            self.comment = comment.trim();
            self.at = self.text.len();
        }
    }
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        self.error_at(self.at, message)
    }
    pub(super) fn error_at<T>(&self, at: usize, message: impl Into<String>) -> Result<T> {
        let column = self.text[..at].chars().count() + 1;
        Err(AsmError { line: self.line, column, message: message.into() })
    }
    pub(super) fn expected<T>(&self, what: &str) -> Result<T> {
        let found = match self.rest().chars().next() {
            None => "the end of the line".to_owned(),
            Some(c) => format!("`{c}`"),
        };
        self.error(format!("expected {what}, found {found}"))
    }
    pub(super) fn is_end(&self) -> bool {
        self.at == self.text.len()
    }
    pub(super) fn end(&self) -> Result<()> {
        if self.is_end() { Ok(()) } else { self.expected("the end of the line") }
    }
    pub(super) fn eat(&mut self, s: &str) -> bool {
        let yes = self.rest().starts_with(s);
        if yes {
            self.at += s.len();
            self.space();
        }
        yes
    }
    pub(super) fn take(&mut self, s: &str) -> Result<()> {
        if self.eat(s) { Ok(()) } else { self.expected(&format!("`{s}`")) }
    }
    /// The longest run of characters that `ok` accepts, and the spaces after it.
    pub(super) fn run(&mut self, ok: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let n = rest.find(|c| !ok(c)).unwrap_or(rest.len());
        self.at += n;
        self.space();
        &rest[..n]
    }
    pub(super) fn peek_word(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())]
    }
    pub(super) fn word(&mut self) -> &'a str {
        self.run(|c| c.is_ascii_alphanumeric() || c == '_')
    }
    /// A keyword, if it is next.
    pub(super) fn keyword(&mut self, k: &str) -> bool {
        self.peek_word() == k && self.eat(k)
    }
    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let at = self.at;
        let sign = if self.rest().starts_with('-') { 1 } else { 0 };
        let digits = self.rest()[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let text = &self.rest()[..sign + digits];
        if digits == 0 {
            return self.expected(what);
        }
        self.at += text.len();
        self.space();
        match text.parse() {
            Ok(v) => Ok(v),
            Err(_) => self.error_at(at, format!("{text} is no {what}")),
        }
    }
    /// A name, plain or in quotes.
    pub(super) fn name(&mut self) -> Result<String> {
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let s = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/'));
        if s.is_empty() { self.expected("a name") } else { Ok(s.to_owned()) }
    }
    pub(super) fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let body = &self.rest()[1..];
        let mut escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { return self.error_at(start, "the name does not end") };
        match unescape(&body[..end]) {
            Ok(name) => {
                self.at = start + 1 + end + 1;
                self.space();
                Ok(name)
            }
            Err((at, what)) => self.error_at(start + 1 + at, what),
        }
    }
    pub(super) fn choose<T: Copy>(&mut self, what: &str, of: &[(&str, T)]) -> Result<T> {
        let at = self.at;
        let word = self.word();
        match of.iter().find(|(k, _)| *k == word) {
            Some((_, v)) => Ok(*v),
            None => {
                let names: Vec<&str> = of.iter().map(|(k, _)| *k).collect();
                self.error_at(at, format!("expected {what}: {}", names.join(", ")))
            }
        }
    }
    pub(super) fn dtype(&mut self) -> Result<DType> {
        let at = self.at;
        let word = self.word();
        match DType::from_name(word) {
            Some(d) => Ok(d),
            None => self.error_at(at, format!("`{word}` is no dtype")),
        }
    }
}

/// What `char::escape_debug` made of a text, undone; or where and why it did not make this.
pub(super) fn unescape(text: &str) -> std::result::Result<String, (usize, &'static str)> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next().map(|c| c.1) {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('0') => out.push('\0'),
            Some(c @ ('\\' | '"' | '\'')) => out.push(c),
            Some('u') => {
                let hex: String =
                    chars.by_ref().map(|c| c.1).skip(1).take_while(|&c| c != '}').take(8).collect();
                match u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32) {
                    Some(c) => out.push(c),
                    None => return Err((at, "is no character")),
                }
            }
            _ => return Err((at, "is no escape")),
        }
    }
    Ok(out)
}
