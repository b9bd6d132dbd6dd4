//! What the checker found, for people and as JSON.

use std::fmt;

use dvm_bc::{InstAt, Pipe, Program};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Bytes that two instructions both touch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bytes {
    /// A space of local memory, or a slot of the template with its name.
    pub place: String,
    /// First byte; of a slot, relative to its base in the first tile.
    pub lo: i64,
    /// End.
    pub hi: i64,
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}..{}", self.place, self.lo, self.hi)
    }
}

/// The kind of a dependence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Dependence {
    /// Read after write.
    Raw,
    /// Write after read.
    War,
    /// Write after write.
    Waw,
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dependence::Raw => "RAW",
            Dependence::War => "WAR",
            Dependence::Waw => "WAW",
        })
    }
}

/// How far apart in time the two executions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// One execution of one section.
    Section,
    /// Within a tile: another section, or a later point of the walk.
    Tile,
    /// A later tile of the same run.
    NextTile,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distance::Section => "in one execution",
            Distance::Tile => "in one tile",
            Distance::NextTile => "in a later tile",
        })
    }
}

/// An instruction with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where it is.
    pub at: InstAt,
    /// Its pipe; `None` for barriers.
    pub pipe: Option<Pipe>,
    /// Its text, as in a listing.
    pub text: String,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

impl Serialize for Site {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Site", 7)?;
        out.serialize_field("template", &self.at.template)?;
        out.serialize_field("phase", &(self.at.phase + 1))?;
        out.serialize_field("place", &self.at.place.to_string())?;
        out.serialize_field("index", &self.at.index)?;
        out.serialize_field("number", &self.at.number)?;
        out.serialize_field("pipe", &self.pipe.map(Pipe::name))?;
        out.serialize_field("text", &self.text)?;
        out.end()
    }
}

/// One thing wrong with the synchronisation of a program.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "hazard", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Hazard {
    /// Nothing orders two instructions that touch common bytes.
    Unordered {
        /// What the second would see or destroy.
        dependence: Dependence,
        /// First in program order.
        first: Site,
        /// Second in program order.
        second: Site,
        /// The common bytes.
        bytes: Bytes,
        /// How far apart they are.
        distance: Distance,
        /// The edge that is missing, and how to make it.
        missing: String,
    },
    /// A wait whose flag nothing has set before it in program order.
    Deadlock {
        /// The waiting instruction.
        wait: Site,
        /// The slot of the head, and the flag.
        flag: String,
    },
    /// A flag may be set while it is set.
    DoubleSet {
        /// The setting instruction.
        set: Site,
        /// The slot of the head, and the flag.
        flag: String,
        /// The wait that is not proved to come before; `None` where there is none.
        wait: Option<Site>,
    },
    /// A flag is still set, or no longer free, when the run ends.
    Leftover {
        /// Who set it.
        set: Site,
        /// The slot of the head, and the flag.
        flag: String,
    },
    /// The comparison of a template's instructions is given up: nothing is proved about it.
    GaveUp {
        /// Index of the template.
        template: u32,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hazard::Unordered { dependence, first, second, bytes, distance, missing } => {
                let (a, b) = match dependence {
                    Dependence::Raw => ("writes", "reads"),
                    Dependence::War => ("reads", "writes"),
                    Dependence::Waw => ("writes", "writes"),
                };
                write!(f, "{dependence} on {bytes} {distance}: {missing}\n    {a} {first}\n    {b} {second}")
            }
            Hazard::Deadlock { wait, flag } => {
                write!(f, "deadlock: nothing sets the flag of `{flag}` before\n    {wait}")
            }
            Hazard::DoubleSet { set, flag, wait } => {
                write!(f, "double set: the flag of `{flag}` may be set still when it is set by\n    {set}")?;
                match wait {
                    Some(w) => write!(f, "\n    which does not follow the wait\n    {w}"),
                    None => Ok(()),
                }
            }
            Hazard::Leftover { set, flag } => {
                write!(
                    f,
                    "left over: the flag of `{flag}` is not as it was when the run ends, after\n    {set}"
                )
            }
            Hazard::GaveUp { template, why } => write!(f, "t{template}: given up, {why}"),
        }
    }
}

/// What is redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncPart {
    /// The forward event it waits for.
    Wait,
    /// The forward event it sets.
    Set,
    /// The backward event it waits for.
    WaitBack,
    /// The backward event it sets.
    SetBack,
    /// The bit that drains its own pipe.
    Bar,
    /// The whole instruction: `barrier`, `xset`, `xwait`.
    Inst,
}

impl SyncPart {
    /// Of the slots of [`dvm_bc::Sync::slots`].
    pub(crate) const SLOTS: [SyncPart; 4] =
        [SyncPart::Wait, SyncPart::Set, SyncPart::WaitBack, SyncPart::SetBack];
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A piece of synchronisation that can be removed alone without a proof failing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Redundant {
    /// All of it: both ends of an event, one bit, or one barrier.
    pub parts: Vec<(Site, SyncPart)>,
    /// For people: the flag, or what it is.
    pub what: String,
}

impl fmt::Display for Redundant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redundant {}", self.what)?;
        self.parts.iter().try_for_each(|(site, _)| write!(f, "\n    {site}"))
    }
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Proved {
    /// Templates.
    pub templates: u32,
    /// Instructions of them.
    pub instructions: u32,
    /// Executions in the windows.
    pub executions: u64,
    /// Conflicting pairs of instructions.
    pub pairs: u64,
    /// Conflicting pairs of executions, each with its nearest predecessor.
    pub conflicts: u64,
    /// Events: a set and its wait.
    pub events: u32,
    /// Bits that drain a pipe.
    pub bars: u32,
    /// `barrier`s.
    pub barriers: u32,
    /// Flags between cores.
    pub cross: u32,
}

impl Proved {
    /// Pieces of synchronisation.
    #[must_use]
    pub fn syncs(&self) -> u32 {
        self.events + self.bars + self.barriers + self.cross
    }
}

/// What [`check`](super::check) found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HazardReport {
    /// What is not proved; empty for a sound program.
    pub hazards: Vec<Hazard>,
    /// How many hazards there are beyond those listed.
    pub more: u64,
    /// What could be removed, each piece alone. Only looked for where there is no hazard.
    pub redundant: Vec<Redundant>,
    /// What was looked at.
    pub proved: Proved,
}

impl HazardReport {
    /// Whether everything is proved.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.hazards.is_empty() && self.more == 0
    }
}

impl fmt::Display for HazardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.proved;
        if self.is_sound() {
            write!(f, "synchronisation proved: ")?;
        } else {
            let n = self.hazards.len() as u64 + self.more;
            write!(f, "{n} hazard{}: ", if n == 1 { "" } else { "s" })?;
        }
        write!(
            f,
            "{} conflicting pairs of {} instructions, {} events, {} bars, {} barriers, {} cross flags, {} redundant",
            p.pairs,
            p.instructions,
            p.events,
            p.bars,
            p.barriers,
            p.cross,
            self.redundant.len()
        )?;
        for h in &self.hazards {
            write!(f, "\n  {h}")?;
        }
        if self.more > 0 {
            write!(f, "\n  and {} more", self.more)?;
        }
        self.redundant.iter().try_for_each(|r| write!(f, "\n  {r}"))
    }
}

/// The instruction at a place, with its text.
pub(super) fn site(program: &Program, at: InstAt) -> Site {
    let template = program.templates.get(at.template as usize);
    let phase = template.and_then(|t| t.phases.get(at.phase as usize));
    let section = phase.and_then(|p| p.sections.iter().find(|s| s.place == at.place));
    let inst = section.and_then(|s| s.code.iter().nth(at.index as usize)).and_then(Result::ok);
    let parallel = template.map_or(0, |t| t.parallel.len());
    let text = inst.as_ref().map_or_else(String::new, |i| dvm_bc::text::inst_text(i, parallel));
    Site { at, pipe: inst.and_then(|i| i.pipe()), text }
}
