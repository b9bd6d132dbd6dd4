//! The properties that every input must keep, whatever it is. Each panics where one does not hold: tests, `cargo xtask fuzz` and
//! the cargo-fuzz targets call the same functions.

use super::dice::Dice;
use super::generate::{Generated, program, small_limits};
use super::mutate::{mutate, mutate_bytes};
use super::shadow::run_checked;
use crate::bundle::{Bundle, seal};
use crate::reference::{Failure, Fault, Math, TrapKind, run};
use crate::{Code, DType, Limits, Program, Role, Verified, asm, disasm};

/// Bytes of a bundle before its payload.
const HEADER: usize = 20;

/// How far an input came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It was read as a program.
    pub decoded: bool,
    /// No rule before the last rejected it.
    pub last_rule: bool,
    /// The verifier accepted it.
    pub accepted: bool,
    /// It ran, on the machine and on the reference.
    pub ran: bool,
    /// Both stopped at the same trap.
    pub trapped: bool,
}

/// A trap as a machine reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapAt {
    /// Step.
    pub step: u32,
    /// Unit of the step.
    pub unit: u32,
    /// Tile of the unit.
    pub tile: u64,
    /// Instruction of the template.
    pub instruction: u32,
    /// Element of the instruction.
    pub element: u64,
    /// The value.
    pub value: i64,
    /// What happened.
    pub kind: TrapKind,
}

/// What a machine under test does.
pub trait Machine {
    /// Its functions.
    fn math(&self) -> &dyn Math;
    /// Runs a program on `args`, in several ways that must give the same result: how each ended. None where the machine refuses
    /// the program.
    ///
    /// # Errors
    /// Something that no verified program may cause.
    fn run(&self, program: &Verified<Program>, args: &[Vec<u8>]) -> Result<Vec<Ran>, String>;
}

/// How a run ended: the contents of all arguments, or a trap.
pub type Ran = Result<Vec<Vec<u8>>, TrapAt>;

/// Reads bytes as a bundle and as code: an error or a value that reads back.
pub fn decode(bytes: &[u8]) -> Progress {
    let mut progress = Progress::default();
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&w| u64::from_le_bytes(w)).collect();
    let mut again = Code::default();
    for inst in Code::from_words(words.clone()).iter().map_while(Result::ok) {
        again.push(&inst).expect("what decodes can be encoded");
    }
    assert!(words.starts_with(again.words()), "what decodes has one encoding");
    match Bundle::from_bytes(bytes) {
        Ok(b) => {
            progress.decoded = true;
            // A bundle may be read that would not be written as it stands; but what is written reads back.
            if let Ok(bytes) = b.to_bytes() {
                assert_eq!(Bundle::from_bytes(&bytes).as_ref(), Ok(&b), "a bundle reads back");
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    progress
}

/// Reads bytes as text: an error with a place, or a program whose text reads back.
pub fn text(bytes: &[u8]) -> Progress {
    let mut progress = Progress::default();
    let Ok(text) = std::str::from_utf8(bytes) else { return progress };
    match asm(text) {
        Ok(p) => {
            progress.decoded = true;
            let printed = disasm(&p);
            assert_eq!(asm(&printed).as_ref(), Ok(&p), "{printed}");
            assert_eq!(disasm(&p), printed);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    progress
}

/// A random program as text and as bytes, both of which read back; then its text damaged.
pub fn asm_round_trip(dice: &mut Dice<'_>) -> Progress {
    let mut p = program(dice).program;
    for _ in 0..dice.below(3) {
        mutate(dice, &mut p);
    }
    let mut printed = disasm(&p).into_bytes();
    let progress = text(&printed);
    let bytes = Bundle { programs: vec![p.clone()], ..Bundle::default() }.to_bytes();
    if let Ok(bytes) = bytes {
        let b = Bundle::from_bytes(&bytes).expect("what is written reads back");
        assert_eq!(b.programs, [p]);
    }
    mutate_bytes(dice, &mut printed, 0);
    text(&printed);
    progress
}

/// A random program with some mutations, through bytes that are damaged sometimes and sealed again.
#[must_use]
pub fn input(dice: &mut Dice<'_>) -> Option<Generated> {
    let mut g = program(dice);
    let mutations = [0, 0, 1, 1, 1, 2, 2, 3, 4, 6][dice.below(10) as usize];
    for _ in 0..mutations {
        mutate(dice, &mut g.program);
    }
    if dice.chance(3, 4) {
        return Some(g);
    }
    let mut bytes = Bundle { programs: vec![g.program], ..Bundle::default() }.to_bytes().ok()?;
    if dice.chance(1, 2) {
        mutate_bytes(dice, &mut bytes, HEADER);
    }
    if dice.chance(15, 16) {
        seal(&mut bytes);
    }
    decode(&bytes);
    g.program = Bundle::from_bytes(&bytes).ok()?.programs.into_iter().next()?;
    Some(g)
}

/// Verifies a random program: an answer, in short time and little memory.
pub fn verify(dice: &mut Dice<'_>) -> Progress {
    let Some(g) = input(dice) else { return Progress::default() };
    checked(g.program, &small_limits()).0
}

fn checked(p: Program, limits: &Limits) -> (Progress, Option<Verified<Program>>) {
    let mut progress = Progress { decoded: true, ..Progress::default() };
    match Verified::new(p, limits) {
        Ok(v) => {
            (progress.last_rule, progress.accepted) = (true, true);
            (progress, Some(v))
        }
        Err(e) => {
            assert!(!e.violations.is_empty() && !e.to_string().is_empty());
            progress.last_rule = e.only_last_rule;
            (progress, None)
        }
    }
}

/// Verifies a random program and runs it where it is accepted: on the reference, which asserts every bound and that tiles do not
/// meet, and on `machine`, which must give the same bits.
pub fn verify_and_run(dice: &mut Dice<'_>, machine: &dyn Machine) -> Progress {
    let Some(g) = input(dice) else { return Progress::default() };
    let seed = dice.word();
    let (mut progress, verified) = checked(g.program.clone(), &small_limits());
    let Some(verified) = verified else { return progress };
    let data = g.data(seed);
    match compare(&verified, &data, machine) {
        Ok(None) => {}
        Ok(Some(trapped)) => (progress.ran, progress.trapped) = (true, trapped),
        Err(what) => panic!("{what}\n{}", disasm(&verified)),
    }
    progress
}

/// Runs a verified program on the reference and on a machine; `None` where the machine refuses it, else whether it trapped.
///
/// # Errors
/// A broken promise of the verifier, or a difference.
pub fn compare(
    program: &Verified<Program>,
    args: &[Vec<u8>],
    machine: &dyn Machine,
) -> Result<Option<bool>, String> {
    let mut want = args.to_vec();
    let expected = run_checked(program, &mut want, machine.math());
    let trap = match expected {
        Ok(()) => None,
        Err(Failure {
            step, unit, tile, instruction, fault: Fault::Trap { kind, element, value }, ..
        }) => Some(TrapAt { step, unit, tile, instruction, element, value, kind }),
        Err(e) => return Err(format!("verified, but {e}")),
    };
    let runs = machine.run(program, args)?;
    for got in &runs {
        match (trap, got) {
            (None, Ok(got)) => outputs(program, args, &want, got, machine)?,
            (Some(want), Err(got)) if want == *got => {}
            (want, got) => return Err(format!("expected trap {want:?}, got {:?}", got.as_ref().err())),
        }
    }
    Ok((!runs.is_empty()).then_some(trap.is_some()))
}

/// The functions of a machine, with a choice of NaN.
struct Nan<'a>(&'a dyn Math, bool);

impl Math for Nan<'_> {
    fn f32(&self, op: crate::Opcode, x: f32) -> f32 {
        self.0.f32(op, x)
    }
    fn f64(&self, op: crate::Opcode, x: f64) -> f64 {
        self.0.f64(op, x)
    }
    fn pow_f32(&self, x: f32, y: f32) -> f32 {
        self.0.pow_f32(x, y)
    }
    fn pow_f64(&self, x: f64, y: f64) -> f64 {
        self.0.pow_f64(x, y)
    }
    fn nan(&self, dtype: DType) -> Option<u64> {
        let all = u64::MAX >> (64 - 8 * dtype.size());
        let quiet = match dtype {
            DType::F16 => 0x7e00,
            DType::BF16 => 0x7fc0,
            DType::F32 => 0x7fc0_0000,
            _ => 0x7ff8 << 48,
        };
        Some(if self.1 { all } else { quiet })
    }
}

/// Compares all outputs. Where they differ, they may depend on the payload of a NaN, which is open.
fn outputs(
    program: &Program,
    args: &[Vec<u8>],
    want: &[Vec<u8>],
    got: &[Vec<u8>],
    machine: &dyn Machine,
) -> Result<(), String> {
    let Some(first) = difference(program, want, got) else { return Ok(()) };
    let other = |choice| {
        let mut out = args.to_vec();
        run(program, &mut out, &Nan(machine.math(), choice)).map(|()| out)
    };
    if let (Ok(a), Ok(b)) = (other(false), other(true))
        && difference(program, &a, &b).is_some()
    {
        return Ok(());
    }
    Err(first)
}

/// The first element of an output that differs, NaN being equal to NaN.
fn difference(program: &Program, want: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
    for ((arg, want), got) in program.args.iter().zip(want).zip(got) {
        if arg.role != Role::Output || want == got {
            continue;
        }
        let size = arg.dtype.size() as usize;
        for (i, (w, g)) in want.chunks(size).zip(got.chunks(size)).enumerate() {
            if w != g && !(is_nan(arg.dtype, w) && is_nan(arg.dtype, g)) {
                return Some(format!("element {i} of `{}`: {g:02x?}, expected {w:02x?}", arg.name));
            }
        }
    }
    None
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DType::F16 => bits & 0x7fff > 0x7c00,
        DType::BF16 => bits & 0x7fff > 0x7f80,
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}
