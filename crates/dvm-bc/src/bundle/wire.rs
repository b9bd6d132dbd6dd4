//! What is in a file, apart from the in-memory types: a change here is a change of format. Numbers of enums are explicit; new
//! fields go to the end of [`Meta`] and raise the minor version.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Bundle, BundleError, HostStep, Note, Port, Weight};
use crate::{
    Arg, Class, Code, CoreLimit, DType, DTypeSet, Exchange, Kind, Layout, Phase, Place, Program, Role,
    Section, Slot, Space, SpaceSpec, Step, Target, Template, Unit,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Meta {
    target: String,
    symbols: Vec<(String, i64)>,
    inputs: Vec<WirePort>,
    outputs: Vec<WirePort>,
    programs: Vec<WireProgram>,
    steps: Vec<(u8, u32)>,
    weights: Vec<WireWeight>,
}

#[derive(Serialize, Deserialize)]
struct WirePort {
    name: String,
    dtype: u8,
    shape: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct WireWeight {
    name: String,
    dtype: u8,
    layout: Option<WirePanels>,
    bytes: u64,
    hash: u64,
    /// Where the bytes are in the data section.
    at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct WirePanels {
    nr: u32,
    k: u64,
    n: u64,
    batch: u64,
}

#[derive(Serialize, Deserialize)]
struct WireProgram {
    name: String,
    target: WireTarget,
    args: Vec<WireArg>,
    templates: Vec<WireTemplate>,
    steps: Vec<Vec<WireUnit>>,
    aliases: Vec<(u32, u32)>,
}

#[derive(Serialize, Deserialize)]
struct WireTarget {
    name: String,
    cores: u32,
    spaces: Vec<(u8, u64)>,
    block: u32,
    panel_nr: Vec<(u32, u32)>,
    panel_mr: u32,
    exchange: u8,
    async_pipes: bool,
    events: u32,
    cube_cores: u32,
    /// Class, one bit a dtype.
    legal: Vec<(u8, u16)>,
}

#[derive(Serialize, Deserialize)]
struct WireArg {
    name: String,
    role: u8,
    dtype: u8,
    bytes: u64,
    align: u32,
    layout: Option<WirePanels>,
    zero: bool,
}

#[derive(Serialize, Deserialize)]
struct WireTemplate {
    name: String,
    kind: u8,
    slots: Vec<(String, u8, bool)>,
    parallel: Vec<u32>,
    phases: Vec<WirePhase>,
}

#[derive(Serialize, Deserialize)]
struct WirePhase {
    seq: Vec<u32>,
    rotate: bool,
    /// Place (0 init, 1 body, 2 finish), depth, code.
    sections: Vec<(u8, u8, Words)>,
}

#[derive(Serialize, Deserialize)]
struct WireUnit {
    template: u32,
    slots: Vec<(u32, u64)>,
    weight: u32,
}

/// Code words as little-endian bytes.
struct Words(Vec<u64>);

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>())
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Words, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Words;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("code words")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Words, E> {
                match bytes.as_chunks() {
                    (words, []) => Ok(Words(words.iter().map(|&w| u64::from_le_bytes(w)).collect())),
                    _ => Err(E::custom("not whole words")),
                }
            }
        }
        d.deserialize_bytes(Visitor)
    }
}

/// A two-way numbering of an enum.
macro_rules! numbering {
    ($to:ident, $from:ident, $ty:ident: $($n:literal $variant:ident),*) => {
        fn $to(v: $ty) -> u8 { match v { $($ty::$variant => $n,)* } }
        fn $from(n: u8) -> Result<$ty, BundleError> {
            match n { $($n => Ok($ty::$variant),)* _ => Err(BundleError::Number { what: stringify!($ty), number: n.into() }) }
        }
    };
}
numbering!(role_to, role_from, Role: 0 Input, 1 Output, 2 Weight, 3 Workspace, 4 Ring);
numbering!(kind_to, kind_from, Kind: 0 Vector, 1 Cube, 2 Mix);
numbering!(exchange_to, exchange_from, Exchange: 0 Direct, 1 Memory);
numbering!(space_to, space_from, Space: 0 Ub, 1 PanelA, 2 PanelB, 3 Acc);

fn dtype_from(n: u8) -> Result<DType, BundleError> {
    DType::from_number(n).ok_or(BundleError::Number { what: "DType", number: n.into() })
}

fn all<A, B>(items: Vec<A>, f: impl Fn(A) -> Result<B, BundleError>) -> Result<Vec<B>, BundleError> {
    items.into_iter().map(f).collect()
}

fn layout_to(l: Layout) -> Option<WirePanels> {
    match l {
        Layout::Plain => None,
        Layout::Panels { nr, k, n, batch } => Some(WirePanels { nr, k, n, batch }),
    }
}

fn layout_from(l: Option<WirePanels>) -> Layout {
    l.map_or(Layout::Plain, |WirePanels { nr, k, n, batch }| Layout::Panels { nr, k, n, batch })
}

fn port_to(p: &Port) -> WirePort {
    WirePort { name: p.name.clone(), dtype: p.dtype as u8, shape: p.shape.clone() }
}

fn port_from(p: WirePort) -> Result<Port, BundleError> {
    Ok(Port { name: p.name, dtype: dtype_from(p.dtype)?, shape: p.shape })
}

fn target_to(t: &Target) -> WireTarget {
    WireTarget {
        name: t.name.clone(),
        cores: t.cores,
        spaces: t.spaces.iter().map(|s| (space_to(s.space), s.bytes)).collect(),
        block: t.block,
        panel_nr: t.panel_nr.clone(),
        panel_mr: t.panel_mr,
        exchange: exchange_to(t.exchange),
        async_pipes: t.async_pipes,
        events: t.events,
        cube_cores: t.cube_cores,
        legal: t.legal.iter().map(|l| (l.0 as u8, l.1.bits())).collect(),
    }
}

fn target_from(t: WireTarget) -> Result<Target, BundleError> {
    Ok(Target {
        name: t.name,
        cores: t.cores,
        spaces: all(t.spaces, |(s, bytes)| Ok(SpaceSpec { space: space_from(s)?, bytes }))?,
        block: t.block,
        panel_nr: t.panel_nr,
        panel_mr: t.panel_mr,
        exchange: exchange_from(t.exchange)?,
        async_pipes: t.async_pipes,
        events: t.events,
        cube_cores: t.cube_cores,
        legal: all(t.legal, |(class, bits)| {
            let class = Class::from_number(class)
                .ok_or(BundleError::Number { what: "Class", number: class.into() })?;
            let set = DTypeSet::from_bits(bits)
                .ok_or(BundleError::Number { what: "DTypeSet", number: bits.into() })?;
            Ok((class, set))
        })?,
    })
}

fn section_to(s: &Section) -> (u8, u8, Words) {
    let (kind, depth) = match s.place {
        Place::Init(d) => (0, d),
        Place::Body => (1, 0),
        Place::Finish(d) => (2, d),
    };
    (kind, depth, Words(s.code.words().to_vec()))
}

fn section_from((kind, depth, words): (u8, u8, Words)) -> Result<Section, BundleError> {
    let place = match kind {
        0 => Place::Init(depth),
        1 => Place::Body,
        2 => Place::Finish(depth),
        number => return Err(BundleError::Number { what: "Place", number: number.into() }),
    };
    Ok(Section { place, code: Code::from_words(words.0) })
}

fn template_to(t: &Template) -> WireTemplate {
    let phase = |p: &Phase| WirePhase {
        seq: p.seq.clone(),
        rotate: p.rotate,
        sections: p.sections.iter().map(section_to).collect(),
    };
    WireTemplate {
        name: t.name.clone(),
        kind: kind_to(t.kind),
        slots: t.slots.iter().map(|s| (s.name.clone(), s.dtype as u8, s.write)).collect(),
        parallel: t.parallel.clone(),
        phases: t.phases.iter().map(phase).collect(),
    }
}

fn template_from(t: WireTemplate) -> Result<Template, BundleError> {
    let phase =
        |p: WirePhase| Ok(Phase { seq: p.seq, rotate: p.rotate, sections: all(p.sections, section_from)? });
    Ok(Template {
        name: t.name,
        kind: kind_from(t.kind)?,
        slots: all(t.slots, |(name, dtype, write)| Ok(Slot { name, dtype: dtype_from(dtype)?, write }))?,
        parallel: t.parallel,
        phases: all(t.phases, phase)?,
    })
}

fn program_to(p: &Program) -> WireProgram {
    let arg = |a: &Arg| WireArg {
        name: a.name.clone(),
        role: role_to(a.role),
        dtype: a.dtype as u8,
        bytes: a.bytes,
        align: a.align,
        layout: layout_to(a.layout),
        zero: a.zero,
    };
    let unit = |u: &Unit| WireUnit { template: u.template, slots: u.slots.clone(), weight: u.weight };
    WireProgram {
        name: p.name.clone(),
        target: target_to(&p.target),
        args: p.args.iter().map(arg).collect(),
        templates: p.templates.iter().map(template_to).collect(),
        steps: p.steps.iter().map(|s| s.units.iter().map(unit).collect()).collect(),
        aliases: p.aliases.clone(),
    }
}

fn program_from(p: WireProgram) -> Result<Program, BundleError> {
    let arg = |a: WireArg| {
        Ok(Arg {
            name: a.name,
            role: role_from(a.role)?,
            dtype: dtype_from(a.dtype)?,
            bytes: a.bytes,
            align: a.align,
            layout: layout_from(a.layout),
            zero: a.zero,
        })
    };
    let unit = |u: WireUnit| Unit { template: u.template, slots: u.slots, weight: u.weight };
    Ok(Program {
        name: p.name,
        target: target_from(p.target)?,
        args: all(p.args, arg)?,
        templates: all(p.templates, template_from)?,
        steps: (p.steps.into_iter())
            .map(|s| Step { units: s.into_iter().map(unit).collect(), limits: vec![] })
            .collect(),
        aliases: p.aliases,
    })
}

/// Program, template, instruction, text.
pub(super) type WireNotes<'a> = Vec<(u32, u32, u32, std::borrow::Cow<'a, str>)>;

pub(super) fn notes_to(notes: &[Note]) -> WireNotes<'_> {
    notes.iter().map(|n| (n.program, n.template, n.instruction, n.text.as_str().into())).collect()
}

pub(super) fn notes_from(notes: WireNotes<'_>) -> Vec<Note> {
    let note = |(program, template, instruction, text): (u32, u32, u32, std::borrow::Cow<'_, str>)| Note {
        program,
        template,
        instruction,
        text: text.into_owned(),
    };
    notes.into_iter().map(note).collect()
}

/// Program, step, first unit, units, cores.
pub(super) type WireLimits = Vec<(u32, u32, u32, u32, u32)>;

pub(super) fn limits_to(b: &Bundle) -> WireLimits {
    let mut out = WireLimits::new();
    for (p, program) in b.programs.iter().enumerate() {
        for (s, step) in program.steps.iter().enumerate() {
            out.extend(step.limits.iter().map(|l| (p as u32, s as u32, l.first, l.units, l.cores)));
        }
    }
    out
}

pub(super) fn limits_from(b: &mut Bundle, limits: WireLimits) -> Result<(), BundleError> {
    for (p, s, first, units, cores) in limits {
        let step = b.programs.get_mut(p as usize).and_then(|p| p.steps.get_mut(s as usize));
        let lost = || BundleError::Metadata {
            what: format!("cores of step {s} of program {p}, which do not exist"),
        };
        step.ok_or_else(lost)?.limits.push(CoreLimit { first, units, cores });
    }
    Ok(())
}

impl Meta {
    /// The metadata of a bundle whose weights' bytes are at the given places of the data section.
    pub(super) fn new(b: &Bundle, at: &[Option<u64>]) -> Meta {
        let weight = |(w, at): (&Weight, &Option<u64>)| WireWeight {
            name: w.name.clone(),
            dtype: w.dtype as u8,
            layout: layout_to(w.layout),
            bytes: w.bytes,
            hash: w.hash,
            at: *at,
        };
        Meta {
            target: b.target.clone(),
            symbols: b.symbols.clone(),
            inputs: b.inputs.iter().map(port_to).collect(),
            outputs: b.outputs.iter().map(port_to).collect(),
            programs: b.programs.iter().map(program_to).collect(),
            steps: b.steps.iter().map(|HostStep::Launch(p)| (0, *p)).collect(),
            weights: b.weights.iter().zip(at).map(weight).collect(),
        }
    }

    /// The bundle, with weights' bytes from the data section.
    pub(super) fn into_bundle(self, data: &[u8]) -> Result<Bundle, BundleError> {
        let weight = |w: WireWeight| {
            let outside =
                || BundleError::Data { name: w.name.clone(), bytes: w.bytes, section: data.len() as u64 };
            let bytes = match w.at {
                None => None,
                Some(at) => {
                    let end = at.checked_add(w.bytes).ok_or_else(outside)?;
                    let range =
                        usize::try_from(at).ok().zip(usize::try_from(end).ok()).ok_or_else(outside)?;
                    Some(data.get(range.0..range.1).ok_or_else(outside)?)
                }
            };
            let dtype = dtype_from(w.dtype)?;
            Ok((
                Weight {
                    dtype,
                    layout: layout_from(w.layout),
                    bytes: w.bytes,
                    hash: w.hash,
                    data: None,
                    name: w.name,
                },
                bytes,
            ))
        };
        let weights = all(self.weights, weight)?;
        // Weights may not share bytes, else few of them would become many.
        let total = weights.iter().filter_map(|w| w.1).fold(0usize, |n, b| n.saturating_add(b.len()));
        if total > data.len() {
            return Err(BundleError::Shared { bytes: total as u64, section: data.len() as u64 });
        }
        let host_step = |(kind, n): (u8, u32)| match kind {
            0 => Ok(HostStep::Launch(n)),
            number => Err(BundleError::Number { what: "HostStep", number: number.into() }),
        };
        Ok(Bundle {
            target: self.target,
            symbols: self.symbols,
            inputs: all(self.inputs, port_from)?,
            outputs: all(self.outputs, port_from)?,
            programs: all(self.programs, program_from)?,
            steps: all(self.steps, host_step)?,
            weights: weights.into_iter().map(|(w, b)| Weight { data: b.map(<[u8]>::to_vec), ..w }).collect(),
            notes: Vec::new(),
        })
    }
}
