//! The sections of a bundle: a directory of tags and lengths, then each section's bytes at a multiple of 64 from the file's start.

use super::{ALIGN, BundleError, HEADER};

/// Four letters. A reader skips what it does not know if the first is small; it refuses if that is a capital.
pub(super) type Tag = [u8; 4];

/// Inputs and outputs, programs, steps, weights by name.
pub(super) const PROG: Tag = *b"PROG";
/// Debug information.
pub(super) const NOTE: Tag = *b"note";
/// Most cores for units; without it a program runs all the same.
pub(super) const CORE: Tag = *b"core";
/// Weights' bytes.
pub(super) const DATA: Tag = *b"DATA";

/// Bytes of a directory entry.
const ENTRY: usize = 12;

/// Writes the directory after the header.
pub(super) fn directory(out: &mut Vec<u8>, sections: &[(Tag, usize)]) {
    out.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    for (tag, length) in sections {
        out.extend_from_slice(tag);
        out.extend_from_slice(&(*length as u64).to_le_bytes());
    }
}

/// Zeros up to where a section may begin.
pub(super) fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// The sections that this reader knows; empty where there is none.
#[derive(Default)]
pub(super) struct Sections<'a> {
    pub(super) prog: &'a [u8],
    pub(super) note: &'a [u8],
    pub(super) core: &'a [u8],
    pub(super) data: &'a [u8],
}

/// Reads the directory of a file.
pub(super) fn read(file: &[u8]) -> Result<Sections<'_>, BundleError> {
    let found = file.len().saturating_sub(HEADER) as u64;
    let length = |end: u64| BundleError::Length { expected: end.saturating_sub(HEADER as u64), found };
    let field = |at: usize, n: usize| file.get(at..at + n).ok_or_else(|| length((at + n) as u64));
    let number = |at, n| Ok(field(at, n)?.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b)));
    let count = number(HEADER, 4)?;
    let first = HEADER + 4;
    let mut end = (first as u64).saturating_add(count.saturating_mul(ENTRY as u64));
    if end > file.len() as u64 {
        return Err(length(end));
    }
    let (mut sections, mut seen) = (Sections::default(), [false; 4]);
    for i in 0..count as usize {
        let at = first + i * ENTRY;
        let tag = field(at, 4)?;
        let name = || tag.escape_ascii().to_string();
        let start = end.next_multiple_of(ALIGN as u64);
        end = start.checked_add(number(at + 4, 8)?).ok_or_else(|| length(u64::MAX))?;
        let bytes = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let bytes = bytes.and_then(|(lo, hi)| file.get(lo..hi)).ok_or_else(|| length(end))?;
        let known = [
            (PROG, &mut sections.prog),
            (CORE, &mut sections.core),
            (NOTE, &mut sections.note),
            (DATA, &mut sections.data),
        ];
        match known.into_iter().enumerate().find(|(_, k)| k.0 == tag) {
            Some((k, (_, place))) => {
                if std::mem::replace(&mut seen[k], true) {
                    return Err(BundleError::Section { tag: name(), what: "is there twice" });
                }
                *place = bytes;
            }
            None if tag[0].is_ascii_lowercase() => {}
            None => {
                return Err(BundleError::Section {
                    tag: name(),
                    what: "is not known, and not to be skipped",
                });
            }
        }
    }
    if end != file.len() as u64 {
        return Err(length(end));
    }
    if !seen[0] {
        return Err(BundleError::Section { tag: "PROG".to_owned(), what: "is missing" });
    }
    Ok(sections)
}
