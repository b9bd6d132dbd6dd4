//! Encoded instructions: little-endian 64-bit words, range-checked on the way in, typed errors on the way out.

use crate::{Form, Inst};

/// An instruction that cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A field's value is too large.
    #[error("{mnemonic}: `{field}` = {value} does not fit {bits} bits")]
    Range {
        /// Instruction.
        mnemonic: &'static str,
        /// Field.
        field: &'static str,
        /// Offending value.
        value: i128,
        /// Field width.
        bits: u32,
    },
    /// A list has too many entries, or an extent's index is too large.
    #[error("{mnemonic}: `{field}`: {count} is more than {most}")]
    Count {
        /// Instruction.
        mnemonic: &'static str,
        /// Field.
        field: &'static str,
        /// Entries, or the index.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The operands are laid out for another instruction.
    #[error("{mnemonic}: takes {expected:?} operands, not {found:?}")]
    Form {
        /// Instruction.
        mnemonic: &'static str,
        /// What the opcode takes.
        expected: Form,
        /// What it was given.
        found: Form,
    },
}

/// Words that are not an instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {at}: {what}")]
pub struct DecodeError {
    /// Word offset in the section.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

/// A run of encoded instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    words: Vec<u64>,
}

impl Code {
    /// Wraps words that are decoded (and so checked) when they are iterated.
    #[must_use]
    pub fn from_words(words: Vec<u64>) -> Code {
        Code { words }
    }
    /// The encoded words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
    /// Appends an instruction.
    ///
    /// # Errors
    /// A field does not fit its encoding, or the operands' form is not the opcode's.
    pub fn push(&mut self, inst: &Inst) -> Result<(), EncodeError> {
        crate::encode::encode(inst, &mut self.words)
    }
    /// Appends a word as it is.
    pub(crate) fn push_word(&mut self, word: u64) {
        self.words.push(word);
    }
    /// As [`Code::iter`], without moving an instruction: for who decodes in microseconds.
    ///
    /// # Errors
    /// The words are not instructions.
    pub fn try_for_each<E: From<DecodeError>>(
        &self,
        mut f: impl FnMut(&Inst) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut decoder, mut inst) = (crate::decode::Decoder::new(&self.words), crate::decode::blank());
        while let Some(r) = decoder.read(&mut inst) {
            r?;
            f(&inst)?;
        }
        Ok(())
    }
    /// Decodes over the elements of `out` from `at` on, appending where there are no more: for who decodes again and again. Returns
    /// the end of what was decoded.
    ///
    /// # Errors
    /// The words are not instructions. The elements from `at` on are then some instructions.
    pub fn decode_over(&self, out: &mut Vec<Inst>, mut at: usize) -> Result<usize, DecodeError> {
        let mut decoder = crate::decode::Decoder::new(&self.words);
        loop {
            if out.len() <= at {
                out.push(crate::decode::blank());
            }
            match decoder.read(&mut out[at]) {
                None => return Ok(at),
                Some(result) => result?,
            }
            at += 1;
        }
    }
    /// Decodes the instructions in order; ends after the first error.
    pub fn iter(&self) -> impl Iterator<Item = Result<Inst, DecodeError>> + '_ {
        crate::decode::Decoder::new(&self.words)
    }
}
