//! Bundles (`.dvmb`): programs and what it takes to run them, in a file.
//!
//! ```text
//! magic "DVMB" | major u16 | minor u16 | length u64 | crc32 u32     parsed by hand, so that a mismatch is a good error
//! sections u32 | tag, length u64 each                               length and crc are of all that follows the header
//! their bytes, each section at a multiple of 64 from the file's start
//!   PROG    ports, programs, steps, weights by name and hash (postcard)
//!   note    which graph op an instruction comes from (postcard); optional, as is every section with a small first letter
//!   DATA    weights' bytes, each at a multiple of 64
//! ```
//!
//! A reader takes files of its own major version. Minor versions only append to the metadata and add sections: what a reader does not
//! know is ignored where it may be, and what it cannot do without (a new kind of step) is an error that names the version.

mod sections;
mod wire;

use crate::{DType, Layout, Program, Role};

const MAGIC: [u8; 4] = *b"DVMB";
const MAJOR: u16 = 2;
const MINOR: u16 = 0;
const HEADER: usize = 20;
/// Weights start at multiples of this in the file.
const ALIGN: usize = 64;

/// A tensor that a bundle takes or gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name, that of an argument of the programs.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dims.
    pub shape: Vec<u64>,
}

/// What the host does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostStep {
    /// Runs the program with this index.
    Launch(u32),
}

/// A constant argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Name, that of an argument of the programs.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Arrangement of the bytes.
    pub layout: Layout,
    /// Size.
    pub bytes: u64,
    /// [`weight_hash`] of the bytes.
    pub hash: u64,
    /// The bytes, where the bundle holds them.
    pub data: Option<Vec<u8>>,
}

/// Where an instruction comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Index of the program.
    pub program: u32,
    /// Index of the template.
    pub template: u32,
    /// Number of the instruction in the template.
    pub instruction: u32,
    /// E.g. the graph op.
    pub text: String,
}

/// Programs for bound symbols, and what it takes to run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// Name of the machine specification.
    pub target: String,
    /// Bound symbols, by name.
    pub symbols: Vec<(String, i64)>,
    /// Inputs in order.
    pub inputs: Vec<Port>,
    /// Outputs in order.
    pub outputs: Vec<Port>,
    /// Programs.
    pub programs: Vec<Program>,
    /// What the host does.
    pub steps: Vec<HostStep>,
    /// Constants.
    pub weights: Vec<Weight>,
    /// Debug information; may be empty.
    pub notes: Vec<Note>,
}

/// Bytes that are not a bundle, or a bundle that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file is something else.
    #[error("not a bundle: it does not begin with DVMB")]
    Magic,
    /// Another format.
    #[error("the bundle has format version {major}.{minor}; this reader knows {MAJOR}.x")]
    Version {
        /// Found.
        major: u16,
        /// Found.
        minor: u16,
    },
    /// Truncated, or something is appended.
    #[error("the bundle says it has {expected} bytes after its header, {found} are there")]
    Length {
        /// As the header says.
        expected: u64,
        /// As there are.
        found: u64,
    },
    /// The bytes have changed.
    #[error("the bundle's checksum is {expected:08x}, that of its bytes {found:08x}")]
    Checksum {
        /// As the header says.
        expected: u32,
        /// As computed.
        found: u32,
    },
    /// The metadata is broken.
    #[error("the bundle's metadata does not decode: {what}")]
    Metadata {
        /// Why.
        what: String,
    },
    /// An enum's number is not known.
    #[error("{number} is no {what}")]
    Number {
        /// Which enum.
        what: &'static str,
        /// Found.
        number: u32,
    },
    /// A section is missing, there twice or not known.
    #[error("section `{tag}` {what}")]
    Section {
        /// Its four letters.
        tag: String,
        /// What about it.
        what: &'static str,
    },
    /// A newer minor version says something that this reader does not understand.
    #[error("written as format version {MAJOR}.{minor}, newer than {MAJOR}.{MINOR}: {source}")]
    Newer {
        /// The file's minor version.
        minor: u16,
        /// What is not understood.
        source: Box<BundleError>,
    },
    /// A weight's bytes are outside the data section.
    #[error("weight `{name}` of {bytes} bytes is not inside the data section of {section}")]
    Data {
        /// Weight.
        name: String,
        /// Its size.
        bytes: u64,
        /// Size of the section.
        section: u64,
    },
    /// Weights share bytes.
    #[error("the weights have {bytes} bytes, the data section only {section}")]
    Shared {
        /// All weights' bytes.
        bytes: u64,
        /// Size of the section.
        section: u64,
    },
    /// Parts that do not fit together.
    #[error("{what}")]
    Inconsistent {
        /// What, with the values.
        what: String,
    },
}

/// The hash that identifies a weight's bytes: FNV-1a over 64-bit little-endian words, the last one zero padded, then the
/// length. It finds mistakes, not attacks.
#[must_use]
pub fn weight_hash(bytes: &[u8]) -> u64 {
    let step = |h: u64, w: u64| (h ^ w).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks();
    let mut h = words.iter().fold(0xcbf2_9ce4_8422_2325, |h, &w| step(h, u64::from_le_bytes(w)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        h = step(h, u64::from_le_bytes(last));
    }
    step(h, bytes.len() as u64)
}

impl Bundle {
    /// The bundle as a file.
    ///
    /// # Errors
    /// The parts do not fit together.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        self.check()?;
        let (mut end, mut at) = (0usize, Vec::with_capacity(self.weights.len()));
        for w in &self.weights {
            at.push(w.data.as_ref().map(|d| {
                let start = end.next_multiple_of(ALIGN);
                end = start + d.len();
                start as u64
            }));
        }
        let meta = postcard::to_allocvec(&wire::Meta::new(self, &at)).map_err(metadata)?;
        let notes = match self.notes.as_slice() {
            [] => Vec::new(),
            notes => postcard::to_allocvec(&wire::notes_to(notes)).map_err(metadata)?,
        };
        let limits = match wire::limits_to(self) {
            none if none.is_empty() => Vec::new(),
            limits => postcard::to_allocvec(&limits).map_err(metadata)?,
        };
        let mut list = vec![(sections::PROG, meta.len())];
        if !limits.is_empty() {
            list.push((sections::CORE, limits.len()));
        }
        if !notes.is_empty() {
            list.push((sections::NOTE, notes.len()));
        }
        if end > 0 {
            list.push((sections::DATA, end));
        }
        let mut out = Vec::with_capacity(HEADER + meta.len() + limits.len() + notes.len() + end + 4 * ALIGN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&MAJOR.to_le_bytes());
        out.extend_from_slice(&MINOR.to_le_bytes());
        out.resize(HEADER, 0);
        sections::directory(&mut out, &list);
        for part in [&meta, &limits, &notes].into_iter().filter(|p| !p.is_empty()) {
            sections::align(&mut out);
            out.extend_from_slice(part);
        }
        if end > 0 {
            sections::align(&mut out);
        }
        let data = out.len();
        for (w, at) in self.weights.iter().zip(&at) {
            if let (Some(d), Some(at)) = (&w.data, at) {
                out.resize(data + *at as usize, 0);
                out.extend_from_slice(d);
            }
        }
        seal(&mut out);
        Ok(out)
    }

    /// Reads a bundle. The programs in it are not verified: that is [`Verified::new`](crate::Verified::new)'s work.
    ///
    /// # Errors
    /// The bytes are not a bundle of this format. No bytes make it panic, or allocate more than a small multiple of their
    /// number.
    pub fn from_bytes(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let field = |at: usize, n: usize| bytes.get(at..at + n);
        if field(0, 4) != Some(&MAGIC) {
            return Err(BundleError::Magic);
        }
        let length = |found: usize| BundleError::Length { expected: HEADER as u64, found: found as u64 };
        let Some((header, payload)) = bytes.split_at_checked(HEADER) else { return Err(length(bytes.len())) };
        let number =
            |at: usize, n: usize| header[at..at + n].iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
        let (major, minor) = (number(4, 2) as u16, number(6, 2) as u16);
        if major != MAJOR {
            return Err(BundleError::Version { major, minor });
        }
        if number(8, 8) != payload.len() as u64 {
            return Err(BundleError::Length { expected: number(8, 8), found: payload.len() as u64 });
        }
        let (expected, found) = (number(16, 4) as u32, crc32fast::hash(payload));
        if expected != found {
            return Err(BundleError::Checksum { expected, found });
        }
        Bundle::from_sections(bytes, minor).map_err(|source| match source {
            // The trouble may be what this reader is too old for.
            BundleError::Number { .. } | BundleError::Metadata { .. } | BundleError::Section { .. }
                if minor > MINOR =>
            {
                BundleError::Newer { minor, source: Box::new(source) }
            }
            e => e,
        })
    }

    fn from_sections(file: &[u8], minor: u16) -> Result<Bundle, BundleError> {
        let sections = sections::read(file)?;
        // A newer version may have appended to what this one knows.
        let all = |unknown: &[u8]| match unknown {
            [_, ..] if (0..=MINOR).contains(&minor) => {
                Err(BundleError::Metadata { what: format!("{} bytes follow it", unknown.len()) })
            }
            _ => Ok(()),
        };
        let (meta, unknown) = postcard::take_from_bytes::<wire::Meta>(sections.prog).map_err(metadata)?;
        all(unknown)?;
        let mut bundle = meta.into_bundle(sections.data)?;
        if !sections.core.is_empty() {
            let (limits, unknown) = postcard::take_from_bytes(sections.core).map_err(metadata)?;
            all(unknown)?;
            wire::limits_from(&mut bundle, limits)?;
        }
        if !sections.note.is_empty() {
            let (notes, unknown) = postcard::take_from_bytes(sections.note).map_err(metadata)?;
            all(unknown)?;
            bundle.notes = wire::notes_from(notes);
        }
        bundle.check()?;
        Ok(bundle)
    }

    /// A bundle that launches one program, whose inputs and outputs are flat: what the program itself says of them. Weights are inputs
    /// too, as nothing else knows them.
    #[must_use]
    pub fn of(program: Program) -> Bundle {
        let (inputs, outputs) = bare_ports(&program);
        Bundle {
            target: program.target.name.clone(),
            inputs,
            outputs,
            programs: vec![program],
            steps: vec![HostStep::Launch(0)],
            ..Bundle::default()
        }
    }

    /// Whether the bundle says nothing that its program does not: as [`Bundle::of`] made it, perhaps with notes.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let [program] = self.programs.as_slice() else { return false };
        self.target == program.target.name
            && self.symbols.is_empty()
            && self.weights.is_empty()
            && self.steps == [HostStep::Launch(0)]
            && (&self.inputs, &self.outputs) == (&bare_ports(program).0, &bare_ports(program).1)
    }

    /// What a reader may rely on, beyond types.
    pub(crate) fn check(&self) -> Result<(), BundleError> {
        let bad = |what: String| Err(BundleError::Inconsistent { what });
        for step in &self.steps {
            let HostStep::Launch(p) = *step;
            if p as usize >= self.programs.len() {
                return bad(format!("a step launches program {p} of {}", self.programs.len()));
            }
        }
        for w in &self.weights {
            if let Some(d) = &w.data {
                if d.len() as u64 != w.bytes {
                    return bad(format!("weight `{}` has {} bytes, not {}", w.name, d.len(), w.bytes));
                }
                let found = weight_hash(d);
                if found != w.hash {
                    return bad(format!("weight `{}` has hash {found:016x}, not {:016x}", w.name, w.hash));
                }
            }
        }
        for ports in [&self.inputs, &self.outputs] {
            let mut names: Vec<&str> = ports.iter().map(|p| p.name.as_str()).collect();
            names.sort_unstable();
            if let Some(w) = names.windows(2).find(|w| w[0] == w[1]) {
                return bad(format!("two inputs or two outputs are named `{}`", w[0]));
            }
        }
        Ok(())
    }
}

/// Arguments as flat inputs (or weights) and outputs.
fn bare_ports(program: &Program) -> (Vec<Port>, Vec<Port>) {
    let ports = |roles: &[Role]| {
        let args = program.args.iter().filter(|a| roles.contains(&a.role));
        let flat = |a: &crate::Arg| vec![a.bytes / u64::from(a.dtype.size())];
        args.map(|a| Port { name: a.name.clone(), dtype: a.dtype, shape: flat(a) }).collect()
    };
    (ports(&[Role::Input, Role::Weight]), ports(&[Role::Output]))
}

fn metadata(e: postcard::Error) -> BundleError {
    BundleError::Metadata { what: e.to_string() }
}

/// Sets length and checksum of a bundle whose other bytes are in place. For tools that edit bundles: the reader rejects one whose
/// seal does not fit.
pub fn seal(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_at_mut_checked(HEADER) else { return };
    header[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[16..20].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
}
