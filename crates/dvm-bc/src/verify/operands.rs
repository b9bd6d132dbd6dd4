//! Whether the operands of one instruction are sound by themselves: counts, strides, extents, immediates, overlaps.

use smallvec::SmallVec;

use crate::layout::acc_dtype;
use crate::{
    Access, DType, Form, Hints, Init, Inst, Local, Loops, Mem, Opcode, Operand, Operands, Pipe, Size, Src,
    Strides, for_each_form,
};

/// What is wrong with an instruction.
pub(super) type Problems = SmallVec<[String; 2]>;

/// Bytes of vector memory that an operand takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Range {
    pub(super) name: &'static str,
    pub(super) lo: u64,
    pub(super) hi: u64,
    pub(super) elem: u32,
}

/// As many as an instruction has operands in local memory.
#[derive(Default)]
pub(super) struct Ranges {
    pub(super) len: usize,
    list: [Range; 4],
}

impl Ranges {
    #[inline]
    pub(super) fn push(&mut self, range: Range) {
        if let Some(free) = self.list.get_mut(self.len) {
            *free = range;
            self.len += 1;
        }
    }
}

impl std::ops::Deref for Ranges {
    type Target = [Range];
    #[inline]
    fn deref(&self) -> &[Range] {
        &self.list[..self.len.min(4)]
    }
}

// Or a range would be forgotten.
const _: () = assert!(most_operands() <= 4);

macro_rules! define_most {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        /// Memory operands of the form that has most of them.
        const fn most_operands() -> usize {
            let (mut most, mut i) = (0, 0);
            let all = [$(0 $(+ !matches!(Access::$acc, Access::Param) as usize)*,)*];
            while i < all.len() {
                if all[i] > most {
                    most = all[i];
                }
                i += 1;
            }
            most
        }
    };
}
for_each_form!(define_most);

pub(super) fn immediate(name: &str, bits: u64, dtype: DType, bad: &mut Problems) {
    let most = match dtype {
        DType::Bool => 1,
        d => u64::MAX >> (64 - 8 * d.size()),
    };
    if bits > most {
        bad.push(format!("immediate `{name}` = 0x{bits:x} is no {dtype}"));
    }
}

pub(super) fn pitch(pitch: u64, cols: Size, bad: &mut Problems) {
    if pitch < u64::from(cols.body) || pitch >= 1 << 28 {
        bad.push(format!("pitch {pitch} is not in {}..2^28", cols.body));
    }
}

pub(super) fn accumulator(from: DType, bad: &mut Problems) {
    if !DType::ALL.iter().any(|&d| acc_dtype(d) == Some(from)) {
        bad.push(format!("no accumulator holds {from}"));
    }
}

/// What [`operands`] looks for, seen at a glance.
trait Sound {
    #[inline]
    fn sound(&self, _extents: usize, _bits: u64) -> bool {
        true
    }
    /// The factor by which it multiplies the elements an instruction works on.
    #[inline]
    fn times(&self) -> u64 {
        1
    }
}

impl Sound for Size {
    #[inline]
    fn sound(&self, extents: usize, _: u64) -> bool {
        match self.extent {
            None => self.tail == self.body,
            Some(e) => self.tail <= self.body && usize::from(e) < extents,
        }
    }
    #[inline]
    fn times(&self) -> u64 {
        self.body.into()
    }
}

impl Sound for Strides {
    #[inline]
    fn sound(&self, extents: usize, _: u64) -> bool {
        let mut next = 0;
        self.iter().all(|&(e, s)| {
            let ok = s != 0 && e >= next && usize::from(e) < extents;
            next = e.saturating_add(1);
            ok
        })
    }
}

impl Sound for Mem {
    #[inline]
    fn sound(&self, extents: usize, bits: u64) -> bool {
        self.strides.sound(extents, bits)
    }
}

impl Sound for Loops {
    #[inline]
    fn sound(&self, extents: usize, bits: u64) -> bool {
        self.iter().all(|l| l.count.sound(extents, bits))
    }
    #[inline]
    fn times(&self) -> u64 {
        self.iter().fold(1, |n, l| n.saturating_mul(l.count.times()))
    }
}

/// An immediate that every dtype of `bits` has.
impl Sound for Src {
    #[inline]
    fn sound(&self, _: usize, bits: u64) -> bool {
        !matches!(*self, Src::Imm(v) if v > bits)
    }
}

macro_rules! always_sound {
    ($($ty:ty),*) => { $(impl Sound for $ty {})* };
}
always_sound!(Local, Hints, Init, DType, Pipe, u8, bool, i64, u64);

macro_rules! define_sound {
    ($($(#[$doc:meta])* $form:ident on $pipe:ident { $($field:ident: $acc:ident $ty:ty),* $(,)? })*) => {
        /// Whether counts, strides, extents and immediates are sound; if not, [`operands`] says why not, if they are not.
        #[inline]
        pub(super) fn sound(inst: &Inst, extents: usize) -> bool {
            // Those with sources of several dtypes are looked at closely.
            let bits = match inst.dtype {
                DType::Bool => 1,
                _ if matches!(inst.op, Opcode::VCast | Opcode::VSelect) => 0,
                d => u64::MAX >> (64 - 8 * d.size()),
            };
            match &inst.operands { $(
                Operands::$form(_o) => true $(&& _o.$field.sound(extents, bits))*,
            )* }
        }

        /// Elements that one execution works on, at most: the product of its counts.
        #[inline]
        pub(super) fn elements(inst: &Inst) -> u64 {
            let wide = match &inst.operands {
                Operands::ClearPad(o) => o.pitch,
                _ => 1,
            };
            match &inst.operands { $(
                Operands::$form(_o) => wide $(.saturating_mul(_o.$field.times()))*,
            )* }
        }
    };
}
for_each_form!(define_sound);

/// Counts, strides, extents and immediates of all operands.
#[cold]
pub(super) fn operands(inst: &Inst, extents: usize, bad: &mut Problems) {
    let sound_extent = |e: u8| usize::from(e) < extents;
    let sound_size = |s: Size| match s.extent {
        None => s.tail == s.body,
        Some(e) => s.tail <= s.body && sound_extent(e),
    };
    let sound_strides = |strides: &Strides| {
        let mut last = None;
        strides.iter().all(|&(e, s)| s != 0 && sound_extent(e) && last.replace(e).is_none_or(|l| l < e))
    };
    inst.visit(|name, _, operand| match operand {
        Operand::Size(s) if !sound_size(s) => bad_size(name, s, extents, bad),
        Operand::Strides(s) | Operand::Mem(Mem { strides: s, .. }) if !sound_strides(s) => {
            bad_strides(name, s, extents, bad);
        }
        Operand::Loops(l) => {
            for l in l.iter().filter(|l| !sound_size(l.count)) {
                bad_size(name, l.count, extents, bad);
            }
        }
        Operand::Imm(bits) => {
            let dtype = match &inst.operands {
                Operands::Cast(o) => o.from,
                Operands::Ternary(_) if inst.op == Opcode::VSelect && name == "a" => DType::Bool,
                _ => inst.dtype,
            };
            immediate(name, bits, dtype, bad);
        }
        _ => {}
    });
}

#[cold]
fn bad_size(name: &str, s: Size, extents: usize, bad: &mut Problems) {
    if s.tail > s.body {
        bad.push(format!("`{name}`: tail {} is above body {}", s.tail, s.body));
    }
    match s.extent {
        None => bad.push(format!("`{name}`: {}|{} without an extent", s.body, s.tail)),
        Some(e) if usize::from(e) >= extents => bad.push(format!("`{name}`: extent {e} has no index here")),
        Some(_) => {}
    }
}

#[cold]
fn bad_strides(name: &str, s: &Strides, extents: usize, bad: &mut Problems) {
    if s.windows(2).any(|w| w[0].0 >= w[1].0) || s.iter().any(|s| s.1 == 0) {
        bad.push(format!("`{name}`: strides are not sorted by extent or zero"));
    }
    if let Some(e) = s.iter().map(|s| s.0).find(|&e| usize::from(e) >= extents) {
        bad.push(format!("`{name}`: extent {e} has no index here"));
    }
}

/// An instruction may write over a source only element by element, and never write one range twice.
pub(super) fn overlaps(inst: &Inst, reads: &Ranges, writes: &Ranges, bad: &mut Problems) {
    let meet = |a: &Range, b: &Range| a.lo < b.hi && b.lo < a.hi;
    for (i, w) in writes.iter().enumerate() {
        for r in reads.iter().filter(|r| meet(r, w)) {
            // Equal ranges of equal elements are read in full, whatever the mode says.
            let same = (r.lo, r.hi, r.elem) == (w.lo, w.hi, w.elem);
            if !(same && elementwise(inst)) && r.name != w.name {
                bad.push(format!(
                    "`{}` at {}..{} overlaps `{}` at {}..{}",
                    w.name, w.lo, w.hi, r.name, r.lo, r.hi
                ));
            }
        }
        if let Some(o) = writes[i + 1..].iter().find(|o| meet(o, w)) {
            bad.push(format!("`{}` and `{}` overlap", w.name, o.name));
        }
    }
}

/// Whether it reads element by element what it writes.
fn elementwise(inst: &Inst) -> bool {
    matches!(inst.op.form(), Form::Unary | Form::Binary | Form::Ternary | Form::Cast | Form::CumSum)
}
