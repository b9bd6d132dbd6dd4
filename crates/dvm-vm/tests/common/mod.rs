//! Builds small programs, runs them, and models single elements.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod kernels;

use std::sync::Arc;

use dvm_bc::*;
use dvm_vm::{ArgRef, BuildOptions, Executable, LaunchError, Pool, Runtime, Stats};
use half::{bf16, f16};

/// An element of any dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum V {
    F(f64),
    I(i128),
}

impl V {
    pub(crate) fn f(self) -> f64 {
        match self {
            V::F(x) => x,
            V::I(x) => x as f64,
        }
    }
    pub(crate) fn i(self) -> i128 {
        match self {
            V::F(x) => x as i128,
            V::I(x) => x,
        }
    }
}

/// Bytes aligned for every dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    pub(crate) fn zeroed(len: usize) -> Bytes {
        Bytes { words: vec![0; len.div_ceil(8)], len }
    }
    pub(crate) fn get(&self) -> &[u8] {
        &bytemuck::cast_slice::<u64, u8>(&self.words)[..self.len]
    }
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut bytemuck::cast_slice_mut::<u64, u8>(&mut self.words)[..len]
    }
    pub(crate) fn of<T: bytemuck::Pod>(v: &[T]) -> Bytes {
        let mut b = Bytes::zeroed(size_of_val(v));
        b.get_mut().copy_from_slice(bytemuck::cast_slice(v));
        b
    }
    pub(crate) fn to<T: bytemuck::Pod>(&self) -> Vec<T> {
        self.get().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }
}

/// Reads element `i`.
pub(crate) fn read(dtype: DType, bytes: &[u8], i: usize) -> V {
    let s = dtype.size() as usize;
    let b = &bytes[i * s..(i + 1) * s];
    macro_rules! le {
        ($t:ty) => {
            <$t>::from_le_bytes(b.try_into().unwrap())
        };
    }
    match dtype {
        DType::F32 => V::F(f64::from(le!(f32))),
        DType::F64 => V::F(le!(f64)),
        DType::F16 => V::F(f16::from_bits(le!(u16)).to_f64()),
        DType::BF16 => V::F(bf16::from_bits(le!(u16)).to_f64()),
        DType::I8 => V::I(le!(i8).into()),
        DType::U8 => V::I(le!(u8).into()),
        DType::I16 => V::I(le!(i16).into()),
        DType::U16 => V::I(le!(u16).into()),
        DType::I32 => V::I(le!(i32).into()),
        DType::U32 => V::I(le!(u32).into()),
        DType::I64 => V::I(le!(i64).into()),
        DType::U64 => V::I(le!(u64).into()),
        DType::Bool => V::I(i128::from(b[0] != 0)),
    }
}

/// Writes element `i`: floats round, integers wrap, bool is `!= 0`.
pub(crate) fn write(dtype: DType, bytes: &mut [u8], i: usize, v: V) {
    let s = dtype.size() as usize;
    let b = &mut bytes[i * s..(i + 1) * s];
    match dtype {
        DType::F32 => b.copy_from_slice(&(v.f() as f32).to_le_bytes()),
        DType::F64 => b.copy_from_slice(&v.f().to_le_bytes()),
        DType::F16 => b.copy_from_slice(&f16::from_f64(v.f()).to_le_bytes()),
        DType::BF16 => b.copy_from_slice(&bf16::from_f64(v.f()).to_le_bytes()),
        DType::Bool => {
            b[0] = u8::from(match v {
                V::F(x) => x != 0.0,
                V::I(x) => x != 0,
            })
        }
        _ => b.copy_from_slice(&v.i().to_le_bytes()[..s]),
    }
}

/// The value after storing it in `dtype`.
pub(crate) fn stored(dtype: DType, v: V) -> V {
    let mut b = [0u8; 8];
    write(dtype, &mut b, 0, v);
    read(dtype, &b, 0)
}

/// The bits of an immediate.
pub(crate) fn bits(dtype: DType, v: V) -> u64 {
    let mut b = [0u8; 8];
    write(dtype, &mut b, 0, v);
    u64::from_le_bytes(b)
}

pub(crate) fn array(dtype: DType, n: usize, f: impl FnMut(usize) -> V) -> Bytes {
    let mut b = Bytes::zeroed(n * dtype.size() as usize);
    (0..n).map(f).enumerate().for_each(|(i, v)| write(dtype, b.get_mut(), i, v));
    b
}

pub(crate) fn values(dtype: DType, b: &Bytes) -> Vec<V> {
    (0..b.get().len() / dtype.size() as usize).map(|i| read(dtype, b.get(), i)).collect()
}

/// A small generator of test values.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) ^ self.0
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// A value of any kind that `dtype` has, special ones included.
    pub(crate) fn value(&mut self, dtype: DType) -> V {
        let r = self.next();
        let small = V::I(i128::from(r % 7) - 3);
        if dtype.is_float() {
            return match r >> 40 & 15 {
                0 => V::F(f64::NAN),
                1 => V::F(f64::INFINITY),
                2 => V::F(f64::NEG_INFINITY),
                3 => V::F(-0.0),
                4 => V::F(0.0),
                5 => stored(dtype, V::F(1e-7)),
                6 => stored(dtype, V::F(60000.0)),
                7 | 8 => V::F(small.f()),
                9 => V::F(small.f() + 0.5),
                _ => stored(dtype, V::F((r % 20011) as f64 / 1000.0 - 10.0)),
            };
        }
        match r >> 40 & 7 {
            0 => stored(dtype, V::I(i128::from(i64::MIN))),
            1 => stored(dtype, V::I(i128::from(i64::MAX))),
            2 => stored(dtype, V::I(i128::from(r))),
            3 => stored(dtype, V::I(-1)),
            4 => stored(dtype, V::I(0x80)),
            _ => stored(dtype, small),
        }
    }
    /// A finite value of moderate size.
    pub(crate) fn tame(&mut self, dtype: DType) -> V {
        let r = self.next() % 2001;
        if dtype.is_float() {
            stored(dtype, V::F(r as f64 / 100.0 - 10.0))
        } else {
            stored(dtype, V::I(i128::from(r) - 1000))
        }
    }
}

/// Equal, with NaN equal to NaN and zeros of different sign different.
pub(crate) fn same(a: V, b: V) -> bool {
    match (a, b) {
        (V::F(a), V::F(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        (a, b) => a == b,
    }
}

/// Difference in units in the last place of `dtype`.
pub(crate) fn ulps(dtype: DType, a: V, b: V) -> f64 {
    if same(a, b) {
        return 0.0;
    }
    let (a, b) = (a.f(), b.f());
    if !a.is_finite() || !b.is_finite() {
        return f64::INFINITY;
    }
    let (digits, least) = match dtype {
        DType::F16 => (11, -24),
        DType::BF16 => (8, -133),
        DType::F32 => (24, -149),
        _ => (53, -1074),
    };
    let e = b.abs().max(f64::MIN_POSITIVE).log2().floor() as i32;
    (a - b).abs() / 2f64.powi((e - digits + 1).max(least))
}

pub(crate) fn target() -> Target {
    Target {
        name: "test".into(),
        cores: 2,
        spaces: Space::ALL.iter().map(|&space| SpaceSpec { space, bytes: 1 << 20 }).collect(),
        block: 64,
        panel_nr: vec![(1, 16), (2, 16), (4, 16), (8, 8)],
        panel_mr: 6,
        exchange: Exchange::Direct,
        async_pipes: false,
        events: 0,
        cube_cores: 0,
        legal: vec![],
    }
}

/// Hands out local memory.
#[derive(Default)]
pub(crate) struct Locals {
    next: [u32; 4],
}

impl Locals {
    pub(crate) fn take(&mut self, space: Space, bytes: usize) -> Local {
        let at = &mut self.next[space as usize];
        let offset = *at;
        *at += bytes.max(1).div_ceil(64) as u32;
        Local { space, offset }
    }
    pub(crate) fn ub(&mut self, bytes: usize) -> Local {
        self.take(Space::Ub, bytes)
    }
}

pub(crate) fn n(v: usize) -> Size {
    Size::fixed(v as u32)
}

pub(crate) fn mem(slot: u16, offset: i64, strides: &[(u8, i64)]) -> Mem {
    Mem { slot, offset, strides: strides.iter().copied().collect() }
}

pub(crate) fn load(dtype: DType, dst: Local, src: Mem, rows: Size, cols: Size, pitch: i64) -> Inst {
    Inst::new(Opcode::Load, dtype, Load { dst, src, rows, cols, pitch, hints: Hints::default() })
}

pub(crate) fn store(dtype: DType, dst: Mem, src: Local, rows: Size, cols: Size, pitch: i64) -> Inst {
    Inst::new(Opcode::Store, dtype, Store { dst, src, rows, cols, pitch, hints: Hints::default() })
}

pub(crate) fn full(l: Local) -> Src {
    Src::Local(l, Mode::Full)
}

pub(crate) fn code(insts: &[Inst]) -> Code {
    let mut c = Code::default();
    for i in insts {
        c.push(i).unwrap();
    }
    c
}

pub(crate) fn phase(seq: &[u32], sections: &[(Place, &[Inst])]) -> Phase {
    Phase {
        seq: seq.to_vec(),
        rotate: false,
        sections: sections
            .iter()
            .map(|(place, insts)| Section { place: *place, code: code(insts) })
            .collect(),
    }
}

/// A program of one unit; argument i is slot i.
pub(crate) fn program(args: &[(Role, DType, usize)], parallel: &[u32], phases: Vec<Phase>) -> Program {
    let write = |role| matches!(role, Role::Output | Role::Workspace);
    let kind = Kind::Mix;
    Program {
        name: "test".into(),
        target: target(),
        args: args
            .iter()
            .enumerate()
            .map(|(i, &(role, dtype, elems))| Arg {
                name: format!("a{i}"),
                role,
                dtype,
                bytes: elems as u64 * u64::from(dtype.size()),
                align: dtype.size(),
                layout: Layout::Plain,
                zero: write(role),
            })
            .collect(),
        templates: vec![Template {
            name: "t0".into(),
            kind,
            slots: args
                .iter()
                .enumerate()
                .map(|(i, &(role, dtype, _))| Slot { name: format!("s{i}"), dtype, write: write(role) })
                .collect(),
            parallel: parallel.to_vec(),
            phases,
        }],
        steps: vec![Step {
            units: vec![Unit {
                template: 0,
                slots: (0..args.len() as u32).map(|i| (i, 0)).collect(),
                weight: 1,
            }],
            limits: vec![],
        }],
        aliases: vec![],
    }
}

/// A body without loops.
pub(crate) fn straight(args: &[(Role, DType, usize)], insts: &[Inst]) -> Program {
    program(args, &[], vec![phase(&[], &[(Place::Body, insts)])])
}

pub(crate) fn build(program: Program, options: &BuildOptions) -> Executable {
    let verified = Verified::new(program, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    Executable::with_options(verified, options).unwrap()
}

/// Runs a program on inputs (and weights) in order; returns the outputs (and workspaces) in order.
pub(crate) fn launch(
    rt: &Runtime,
    exe: &Executable,
    inputs: &[&Bytes],
) -> Result<(Vec<Bytes>, Stats), LaunchError> {
    let args = &exe.program().args;
    #[cfg(all(unix, feature = "testing"))]
    let given = inputs;
    let mut inputs = inputs.iter();
    let mut outs: Vec<Bytes> = args
        .iter()
        .filter(|a| matches!(a.role, Role::Output | Role::Workspace))
        .map(|a| {
            let mut b = Bytes::zeroed(a.bytes as usize);
            b.get_mut().fill(0xa5);
            b
        })
        .collect();
    let mut out = outs.iter_mut();
    let mut refs: Vec<ArgRef<'_>> = args
        .iter()
        .map(|a| match a.role {
            Role::Input | Role::Weight => ArgRef::In(inputs.next().unwrap().get()),
            _ => ArgRef::Out(out.next().unwrap().get_mut()),
        })
        .collect();
    let stats = rt.launch(exe, &mut refs)?;
    drop(refs);
    #[cfg(all(unix, feature = "testing"))]
    guarded(rt, exe, &outs, given);
    Ok((outs, stats))
}

/// Runs again with each argument between pages that fault: the same bytes come out.
#[cfg(all(unix, feature = "testing"))]
fn guarded(rt: &Runtime, exe: &Executable, outs: &[Bytes], inputs: &[&Bytes]) {
    use dvm_vm::testing::{Edge, GuardedArgs};
    for edge in [Edge::Start, Edge::End] {
        let mut args = GuardedArgs::new(exe.program(), edge).unwrap();
        let (mut inputs, mut outs) = (inputs.iter(), outs.iter());
        let roles: Vec<Role> = exe.program().args.iter().map(|a| a.role).collect();
        for (i, role) in roles.iter().enumerate() {
            match role {
                Role::Input | Role::Weight => args.bytes_mut(i).copy_from_slice(inputs.next().unwrap().get()),
                _ => args.bytes_mut(i).fill(0xa5),
            }
        }
        args.launch(rt, exe).unwrap();
        for (i, _) in roles.iter().enumerate().filter(|(_, r)| matches!(r, Role::Output | Role::Workspace)) {
            assert_eq!(args.bytes(i), outs.next().unwrap().get(), "argument {i}, {edge:?}");
        }
    }
}

/// Builds, runs alone, returns the outputs.
pub(crate) fn run(program: Program, options: &BuildOptions, inputs: &[&Bytes]) -> Vec<Bytes> {
    thread_local! {
        static ALONE: Runtime = Runtime::new(Arc::new(Pool::new(1)));
    }
    ALONE.with(|rt| launch(rt, &build(program, options), inputs).unwrap().0)
}
