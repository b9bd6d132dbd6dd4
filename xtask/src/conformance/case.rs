//! The cases: operator graphs as JSON lines, and their inputs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use dvm_ir::{DType, Scalar, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// One line.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) inputs: Vec<InputSpec>,
    pub(crate) ops: Vec<OpSpec>,
    pub(crate) outputs: Vec<OutputSpec>,
    pub(crate) tolerance: f64,
    pub(crate) kernel_type: String,
    #[serde(default)]
    pub(crate) group: Option<String>,
    #[serde(default)]
    pub(crate) step: usize,
    #[serde(default)]
    pub(crate) tile_hint: Vec<[usize; 3]>,
    #[serde(default)]
    pub(crate) codegen_expect: BTreeMap<String, Value>,
    pub(crate) elements: f64,
    pub(crate) matmul_flops: f64,
    pub(crate) heavy: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct InputSpec {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: String,
    pub(crate) value_range: Value,
    #[serde(default)]
    pub(crate) sym_shape: Option<Vec<Value>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OpSpec {
    pub(crate) op: String,
    #[serde(rename = "in")]
    pub(crate) inputs: Vec<Value>,
    pub(crate) out: Value,
    #[serde(default)]
    pub(crate) attrs: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OutputSpec {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) expect: Option<Value>,
    #[serde(default)]
    pub(crate) tolerance: Option<f64>,
    #[serde(default)]
    pub(crate) check_region: Option<Vec<usize>>,
    #[serde(default)]
    pub(crate) shape_is_the_check: bool,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: String,
}

pub(crate) fn load(path: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
        .map(|(i, l)| serde_json::from_str(l).with_context(|| format!("{}:{}", path.display(), i + 1)))
        .collect()
}

pub(crate) fn dtype(name: &str) -> Result<DType> {
    Ok(match name {
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "float64" => DType::F64,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "bool" => DType::Bool,
        other => bail!("dtype {other}"),
    })
}

/// A number of the file; NaN and infinities are words.
pub(crate) fn number(v: &Value) -> Result<f64> {
    match v {
        Value::Number(n) => n.as_f64().context("a number"),
        Value::Bool(b) => Ok(f64::from(u8::from(*b))),
        Value::String(s) => match s.as_str() {
            "nan" => Ok(f64::NAN),
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            _ => bail!("`{s}` is no number"),
        },
        other => bail!("`{other}` is no number"),
    }
}

/// All numbers of nested lists, in order.
pub(crate) fn numbers(v: &Value) -> Result<Vec<f64>> {
    match v {
        Value::Array(items) => Ok(items.iter().map(numbers).collect::<Result<Vec<_>>>()?.concat()),
        v => Ok(vec![number(v)?]),
    }
}

impl OpSpec {
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let v = self.attrs.get(name).with_context(|| format!("{}: no `{name}`", self.op))?;
        Ok(numbers(v)?.into_iter().map(|x| x as i64).collect())
    }
    pub(crate) fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        self.ints(name)?
            .into_iter()
            .map(|n| usize::try_from(n).with_context(|| format!("{}: {name} {n}", self.op)))
            .collect()
    }
    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        self.ints(name)?.first().copied().with_context(|| format!("{}: {name}", self.op))
    }
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.attrs.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
    pub(crate) fn text(&self, name: &str) -> Result<&str> {
        self.attrs.get(name).and_then(Value::as_str).with_context(|| format!("{}: no `{name}`", self.op))
    }
    pub(crate) fn outs(&self) -> Result<Vec<String>> {
        let name = |v: &Value| v.as_str().map(String::from).context("a name");
        match &self.out {
            Value::Array(all) => all.iter().map(name).collect(),
            v => Ok(vec![name(v)?]),
        }
    }
}

/// xorshift64*, so that inputs are the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// The inputs of a case; the same for every call.
pub(crate) fn inputs(case: &Case) -> Result<Vec<(String, Tensor)>> {
    let seed = case
        .id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut dice = Dice(seed | 1);
    case.inputs
        .iter()
        .map(|i| Ok((i.name.clone(), input(i, &mut dice).with_context(|| format!("input {}", i.name))?)))
        .collect()
}

fn input(spec: &InputSpec, dice: &mut Dice) -> Result<Tensor> {
    let (shape, range) = (&spec.shape, &spec.value_range);
    let n: usize = shape.iter().product();
    let get = |k: &str| range.get(k).map(number).transpose();
    let need = |k: &str| get(k)?.with_context(|| format!("value_range has no `{k}`"));
    let kind = range["kind"].as_str().context("value_range has no kind")?;
    let row = shape.last().copied().unwrap_or(1).max(1);
    let mut data: Vec<f64> = match kind {
        "normal" | "abs_normal" => {
            let (mean, std) = (get("mean")?.unwrap_or(0.0), get("std")?.unwrap_or(1.0));
            let plus = get("plus")?.unwrap_or(0.0);
            let abs = kind == "abs_normal";
            (0..n)
                .map(|_| {
                    let x = mean + std * dice.normal();
                    if abs { x.abs() + plus } else { x }
                })
                .collect()
        }
        "const" => vec![need("value")?; n],
        "uniform" => {
            let (lo, hi) = (need("lo")?, need("hi")?);
            (0..n).map(|_| lo + (hi - lo) * dice.unit()).collect()
        }
        "randint" => {
            let (lo, hi) = (need("lo")?, need("hi")?);
            (0..n).map(|_| lo + dice.below((hi - lo) as u64) as f64).collect()
        }
        "random_bool" => (0..n).map(|_| dice.below(2) as f64).collect(),
        "choice" => {
            let values = numbers(&range["values"])?;
            (0..n).map(|_| values[dice.below(values.len() as u64) as usize]).collect()
        }
        "values" => numbers(&range["values"])?,
        "one_at" => {
            let mut data = vec![0.0; n];
            let at = numbers(&range["index"])?;
            let flat = at.iter().zip(shape).fold(0, |f, (&i, &d)| f * d + i as usize);
            *data.get_mut(flat).context("one_at is outside")? = 1.0;
            data
        }
        "arange" => {
            let start = get("start")?.unwrap_or(0.0);
            (0..n).map(|i| start + i as f64).collect()
        }
        "row_ramp" => {
            let rows = if shape.len() > 1 { shape[shape.len() - 2] } else { 1 }.max(1);
            (0..n).map(|i| 0.001 * ((i / row % rows) as f64 + 1.0)).collect()
        }
        "row_col_ramp" => {
            (0..n).map(|i| (i / row % 251) as f64 * 0.01 + (i % row % 257) as f64 * 0.001).collect()
        }
        "mod97" => (0..n).map(|i| (i % 97) as f64 / 10.0).collect(),
        "normal_plus_special" => {
            let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            let mut data: Vec<f64> =
                (0..n).map(|i| if i % 4 == 0 { dice.normal() } else { special[i % 4 - 1] }).collect();
            for i in (1..n).rev() {
                data.swap(i, dice.below(i as u64 + 1) as usize);
            }
            data
        }
        other => bail!("value_range `{other}`"),
    };
    ensure!(data.len() == n, "{} values for shape {shape:?}", data.len());
    let dtype = dtype(&spec.dtype)?;
    if !dtype.is_float() {
        data.iter_mut().for_each(|x| *x = x.trunc());
    }
    tensor(dtype, shape, &data)
}

pub(crate) fn tensor(dtype: DType, shape: &[usize], data: &[f64]) -> Result<Tensor> {
    let mut t = Tensor::zeros(dtype, shape)?;
    for (i, &x) in data.iter().enumerate() {
        t.set(i, if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) });
    }
    Ok(t)
}
