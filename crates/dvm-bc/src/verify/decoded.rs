//! The instructions of a verified program, so that who runs it need not decode them a second time.

use std::cell::Cell;
use std::ops::Range;

use crate::decode::{Decoder, blank};
use crate::{DecodeError, Inst, Program, Template};

/// Instructions in the order of templates, phases and sections. Its memory is used again by the next program that this thread
/// decodes: instructions are written over, not made.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Those from `len` on are left over from other programs.
    insts: Vec<Inst>,
    len: usize,
    /// The program is so long that only one instruction at a time is held.
    long: bool,
    /// End of each section.
    ends: Vec<usize>,
    /// Number of the first section of each template.
    templates: Vec<usize>,
}

/// What [`Decoded`] knows of one template.
#[derive(Clone, Copy, Debug)]
pub struct DecodedTemplate<'a> {
    insts: &'a [Inst],
    ends: &'a [usize],
    from: usize,
}

/// Instructions that are worth keeping room for.
const KEEP: usize = 4096;
/// Code words of a program that is held decoded while it is verified: an instruction takes many times the bytes of its words.
const WORDS: u64 = 1 << 17;

thread_local! {
    static SPARE: Cell<Option<Decoded>> = const { Cell::new(None) };
}

impl Decoded {
    /// Room for a program.
    fn spare() -> Decoded {
        let mut d = SPARE.take().unwrap_or_default();
        (d.len, d.long) = (0, false);
        d.ends.clear();
        d.templates.clear();
        d
    }
    /// Room for a program of so many code words, or for one instruction at a time.
    pub(super) fn room(words: u64) -> Decoded {
        let mut d = Decoded::spare();
        d.long = words > WORDS;
        d
    }
    /// The instructions, unless there were too many to hold.
    pub(super) fn all(self) -> Option<Decoded> {
        (!self.long).then_some(self)
    }
    /// Decodes a program.
    ///
    /// # Errors
    /// Number of the template whose words are not instructions, and why.
    pub fn of(program: &Program) -> Result<Decoded, (usize, DecodeError)> {
        let mut d = Decoded::spare();
        for (i, t) in program.templates.iter().enumerate() {
            d.template(t).map_err(|e| (i, e))?;
        }
        Ok(d)
    }
    fn template(&mut self, template: &Template) -> Result<(), DecodeError> {
        self.begin();
        for section in template.phases.iter().flat_map(|p| &p.sections) {
            let mut decoder = Decoder::new(section.code.words());
            while let Some(result) = decoder.read(self.next()) {
                result?;
                self.keep();
            }
            self.end();
        }
        Ok(())
    }
    /// A template begins.
    pub(super) fn begin(&mut self) {
        self.templates.push(self.ends.len());
    }
    /// Where the next instruction is to be decoded.
    #[inline]
    pub(super) fn next(&mut self) -> &mut Inst {
        if self.insts.len() == self.len {
            self.insts.push(blank());
        }
        &mut self.insts[self.len]
    }
    /// The instruction there is one.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.len += usize::from(!self.long);
    }
    /// A section ends.
    pub(super) fn end(&mut self) {
        self.ends.push(self.len);
    }
    /// The instructions of a template, `None` where the program has none of this number.
    #[must_use]
    pub fn get(&self, template: usize) -> Option<DecodedTemplate<'_>> {
        let first = *self.templates.get(template)?;
        let last = self.templates.get(template + 1).copied().unwrap_or(self.ends.len());
        let from = first.checked_sub(1).map_or(0, |i| self.ends[i]);
        let ends = &self.ends[first..last];
        Some(DecodedTemplate { insts: &self.insts[from..ends.last().copied().unwrap_or(from)], ends, from })
    }
}

/// The instructions alone: what is left over is not worth a copy.
impl Clone for Decoded {
    fn clone(&self) -> Decoded {
        Decoded {
            insts: self.insts[..self.len].to_vec(),
            len: self.len,
            long: self.long,
            ends: self.ends.clone(),
            templates: self.templates.clone(),
        }
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        if self.insts.capacity() > KEEP || self.insts.is_empty() {
            return;
        }
        // Not while the thread ends: nothing is taken then.
        let _ = SPARE.try_with(|s| {
            let spare = Decoded {
                insts: std::mem::take(&mut self.insts),
                len: 0,
                long: false,
                ends: std::mem::take(&mut self.ends),
                templates: std::mem::take(&mut self.templates),
            };
            // What was there before has nothing to give back.
            if let Some(mut old) = s.replace(Some(spare)) {
                old.insts = Vec::new();
            }
        });
    }
}

impl<'a> DecodedTemplate<'a> {
    /// All instructions, in order.
    #[must_use]
    pub fn insts(&self) -> &'a [Inst] {
        self.insts
    }
    /// How many sections there are.
    #[must_use]
    pub fn sections(&self) -> usize {
        self.ends.len()
    }
    /// The instructions of a section, as a range of [`DecodedTemplate::insts`]; sections are numbered through all phases.
    #[must_use]
    pub fn section(&self, number: usize) -> Range<usize> {
        let at = |i: usize| self.ends[i] - self.from;
        number.checked_sub(1).map_or(0, at)..at(number)
    }
}
