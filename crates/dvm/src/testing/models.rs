//! Models by their published shapes, with weights that are extents and no data: they are planned, compiled and timed at full size on any
//! machine. The same graphs with small random weights would run; nothing here depends on values.

use dvm_ir::{BinaryOp, DType, Dim, Graph, Op, ReduceOp, Tensor, UnaryOp, ValueId};

use crate::Error;

/// A model and the shapes it is usually asked for.
#[derive(Clone, Copy, Debug)]
pub struct ShapeModel {
    /// Name, also of its file.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Bindings worth looking at: a label, and values of all symbols.
    pub runs: &'static [(&'static str, &'static [(&'static str, i64)])],
    build: fn() -> Result<Graph, Error>,
}

impl ShapeModel {
    /// The graph.
    ///
    /// # Errors
    /// Never for the models of [`MODELS`]; a table of weights too large for the address space.
    pub fn graph(&self) -> Result<Graph, Error> {
        (self.build)()
    }
    /// A model of [`MODELS`] by name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static ShapeModel> {
        MODELS.iter().find(|m| m.name == name)
    }
}

/// The models.
pub const MODELS: &[ShapeModel] = &[
    ShapeModel {
        name: "mmoe",
        about: "multi-gate mixture of experts: 39 sparse features, 8 experts, 3 tasks, f16",
        runs: &[
            ("batch 512", &[("batch", 512)]),
            ("batch 4096", &[("batch", 4096)]),
            ("batch 32768", &[("batch", 32_768)]),
        ],
        build: mmoe,
    },
    ShapeModel {
        name: "bert-base",
        about: "12 layers of 768, 12 heads, f16",
        runs: &[
            ("1 x 32", &[("batch", 1), ("seq", 32)]),
            ("1 x 128", &[("batch", 1), ("seq", 128)]),
            ("4 x 256", &[("batch", 4), ("seq", 256)]),
            ("32 x 512", &[("batch", 32), ("seq", 512)]),
        ],
        build: bert,
    },
    ShapeModel {
        name: "qwen3-14b",
        about: "40 layers of 5120, 40 heads of 128 on 8 keys, bf16",
        runs: LLM_RUNS,
        build: || decoder("qwen3-14b", &QWEN3_14B),
    },
    ShapeModel {
        name: "llama-3.1-8b",
        about: "32 layers of 4096, 32 heads of 128 on 8 keys, bf16",
        runs: LLM_RUNS,
        build: || decoder("llama-3.1-8b", &LLAMA31_8B),
    },
];

const LLM_RUNS: &[(&str, &[(&str, i64)])] = &[
    ("prefill 1 x 512", &[("batch", 1), ("seq", 512), ("past", 0)]),
    ("prefill 1 x 2687", &[("batch", 1), ("seq", 2687), ("past", 0)]),
    ("decode 1, past 1024", &[("batch", 1), ("seq", 1), ("past", 1024)]),
    ("decode 16, past 1024", &[("batch", 16), ("seq", 1), ("past", 1024)]),
];

/// Sizes of a decoder with grouped heads, rotary positions and a gated feed-forward part.
struct Decoder {
    layers: usize,
    width: usize,
    heads: usize,
    groups: usize,
    head: usize,
    hidden: usize,
    vocab: usize,
    eps: f64,
    theta: f64,
    /// Queries and keys are normalised by head.
    qk_norm: bool,
}

const QWEN3_14B: Decoder = Decoder {
    layers: 40,
    width: 5120,
    heads: 40,
    groups: 8,
    head: 128,
    hidden: 17_408,
    vocab: 151_936,
    eps: 1e-6,
    theta: 1e6,
    qk_norm: true,
};
const LLAMA31_8B: Decoder = Decoder {
    layers: 32,
    width: 4096,
    heads: 32,
    groups: 8,
    head: 128,
    hidden: 14_336,
    vocab: 128_256,
    eps: 1e-5,
    theta: 5e5,
    qk_norm: false,
};

/// A graph under construction.
struct Net {
    g: Graph,
    dtype: DType,
}

impl Net {
    fn new(name: &str, dtype: DType) -> Net {
        Net { g: Graph::new(name), dtype }
    }
    fn dim(&mut self, n: usize) -> Dim {
        self.g.dims.constant(n as i64)
    }
    fn weight(&mut self, name: String, shape: &[usize]) -> Result<ValueId, Error> {
        let t = Tensor::shape_only(self.dtype, shape)?;
        Ok(self.g.constant(Some(name), t))
    }
    fn scalar(&mut self, x: f64) -> ValueId {
        self.g.scalar(self.dtype, x)
    }
    /// `x * weight`, and a bias where asked.
    fn dense(
        &mut self,
        x: ValueId,
        name: &str,
        from: usize,
        to: usize,
        bias: bool,
    ) -> Result<ValueId, Error> {
        let w = self.weight(format!("{name}.weight"), &[from, to])?;
        let y = self.g.matmul(x, w)?;
        if !bias {
            return Ok(y);
        }
        let b = self.weight(format!("{name}.bias"), &[to])?;
        Ok(self.g.add(y, b)?)
    }
    fn layer_norm(&mut self, x: ValueId, name: &str, width: usize, eps: f64) -> Result<ValueId, Error> {
        let scale = self.weight(format!("{name}.weight"), &[width])?;
        let bias = self.weight(format!("{name}.bias"), &[width])?;
        let axis = self.g.shape(x).len() - 1;
        Ok(self.g.layer_norm(x, scale, bias, axis, eps)?)
    }
    fn rms_norm(&mut self, x: ValueId, name: &str, width: usize, eps: f64) -> Result<ValueId, Error> {
        let scale = self.weight(format!("{name}.weight"), &[width])?;
        let axis = self.g.shape(x).len() - 1;
        Ok(self.g.push(Op::RmsNorm { axis, eps }, &[x, scale])?)
    }
    fn relu(&mut self, x: ValueId) -> Result<ValueId, Error> {
        let zero = self.scalar(0.0);
        Ok(self.g.binary(BinaryOp::Max, x, zero)?)
    }
    /// `[batch, seq, heads * head]` as `[batch, seq, heads, head]`.
    fn heads(&mut self, x: ValueId, heads: usize, head: usize) -> Result<ValueId, Error> {
        let (batch, seq) = (self.g.shape(x)[0], self.g.shape(x)[1]);
        let shape = [batch, seq, self.dim(heads), self.dim(head)];
        Ok(self.g.reshape(x, &shape)?)
    }
    /// Elements `from..from + len` of the last axis.
    fn columns(&mut self, x: ValueId, from: usize, len: usize) -> Result<ValueId, Error> {
        let mut extents = self.g.shape(x).to_vec();
        let rank = extents.len();
        let mut start = vec![Dim::ZERO; rank];
        (start[rank - 1], extents[rank - 1]) = (self.dim(from), self.dim(len));
        Ok(self.g.push(Op::Slice { start, len: extents, step: vec![1; rank] }, &[x])?)
    }
}

fn bert() -> Result<Graph, Error> {
    const WIDTH: usize = 768;
    const HEADS: usize = 12;
    const HIDDEN: usize = 3072;
    let mut n = Net::new("bert-base", DType::F16);
    let (batch, seq) = (n.g.dims.symbol("batch"), n.g.dims.symbol("seq"));
    let ids = n.g.input("input_ids", DType::I64, &[batch, seq]);
    let types = n.g.input("token_type_ids", DType::I64, &[batch, seq]);
    let mask = n.g.input("attention_mask", DType::I64, &[batch, seq]);
    let words = n.weight("embeddings.word".into(), &[30_522, WIDTH])?;
    let kinds = n.weight("embeddings.type".into(), &[2, WIDTH])?;
    let places = n.weight("embeddings.position".into(), &[512, WIDTH])?;
    let (w, k) = (n.g.gather(words, ids, 0)?, n.g.gather(kinds, types, 0)?);
    let width = n.dim(WIDTH);
    let slice = Op::Slice { start: vec![Dim::ZERO; 2], len: vec![seq, width], step: vec![1; 2] };
    let p = n.g.push(slice, &[places])?;
    let x = n.g.add(w, k)?;
    let x = n.g.add(x, p)?;
    let mut x = n.layer_norm(x, "embeddings.norm", WIDTH, 1e-12)?;
    // 0 where a token is looked at, and far below 0 where not.
    let m = n.g.cast(mask, DType::F16)?;
    let one = n.scalar(1.0);
    let m = n.g.sub(one, m)?;
    let low = n.scalar(-1e4);
    let m = n.g.mul(m, low)?;
    let m = n.g.reshape(m, &[batch, Dim::ONE, Dim::ONE, seq])?;
    for i in 0..12 {
        let mut qkv = [x; 3];
        for (v, name) in qkv.iter_mut().zip(["query", "key", "value"]) {
            let y = n.dense(x, &format!("layer.{i}.{name}"), WIDTH, WIDTH, true)?;
            let y = n.heads(y, HEADS, WIDTH / HEADS)?;
            *v = n.g.transpose(y, &[0, 2, 1, 3])?;
        }
        let [q, k, v] = qkv;
        let s = n.g.push(Op::MatMul { trans_a: false, trans_b: true }, &[q, k])?;
        let scale = n.scalar(1.0 / ((WIDTH / HEADS) as f64).sqrt());
        let s = n.g.mul(s, scale)?;
        let s = n.g.add(s, m)?;
        let s = n.g.softmax(s, 3)?;
        let o = n.g.matmul(s, v)?;
        let o = n.g.transpose(o, &[0, 2, 1, 3])?;
        let o = n.g.reshape(o, &[batch, seq, width])?;
        let o = n.dense(o, &format!("layer.{i}.output"), WIDTH, WIDTH, true)?;
        let y = n.g.add(x, o)?;
        let y = n.layer_norm(y, &format!("layer.{i}.norm1"), WIDTH, 1e-12)?;
        let h = n.dense(y, &format!("layer.{i}.up"), WIDTH, HIDDEN, true)?;
        let h = n.g.gelu(h)?;
        let h = n.dense(h, &format!("layer.{i}.down"), HIDDEN, WIDTH, true)?;
        let y = n.g.add(y, h)?;
        x = n.layer_norm(y, &format!("layer.{i}.norm2"), WIDTH, 1e-12)?;
    }
    n.g.output("last_hidden_state", x);
    let first = Op::Slice { start: vec![Dim::ZERO; 3], len: vec![batch, Dim::ONE, width], step: vec![1; 3] };
    let first = n.g.push(first, &[x])?;
    let first = n.g.reshape(first, &[batch, width])?;
    let pooled = n.dense(first, "pooler", WIDTH, WIDTH, true)?;
    let pooled = n.g.unary(UnaryOp::Tanh, pooled)?;
    n.g.output("pooler_output", pooled);
    Ok(n.g)
}

/// Prefill (`past` 0) and decoding (`seq` 1) are one graph: keys and values of the past come in, all of them go out.
fn decoder(name: &str, d: &Decoder) -> Result<Graph, Error> {
    let mut n = Net::new(name, DType::BF16);
    let (batch, seq, past) = (n.g.dims.symbol("batch"), n.g.dims.symbol("seq"), n.g.dims.symbol("past"));
    let total = n.g.dims.add(past, seq);
    let ids = n.g.input("input_ids", DType::I64, &[batch, seq]);
    let mask = n.g.input("mask", DType::BF16, &[batch, Dim::ONE, seq, total]);
    let mask = n.g.reshape(mask, &[batch, Dim::ONE, Dim::ONE, seq, total])?;
    let table = n.weight("embed_tokens".into(), &[d.vocab, d.width])?;
    let mut x = n.g.gather(table, ids, 0)?;
    let turn = rotation(&mut n, d, past, seq)?;
    for i in 0..d.layers {
        let y = n.rms_norm(x, &format!("layers.{i}.input_norm"), d.width, d.eps)?;
        let o = attention(&mut n, d, i, y, mask, turn)?;
        x = n.g.add(x, o)?;
        let y = n.rms_norm(x, &format!("layers.{i}.post_norm"), d.width, d.eps)?;
        let gate = n.dense(y, &format!("layers.{i}.gate"), d.width, d.hidden, false)?;
        let up = n.dense(y, &format!("layers.{i}.up"), d.width, d.hidden, false)?;
        let gate = n.g.push(Op::Silu {}, &[gate])?;
        let h = n.g.mul(gate, up)?;
        let h = n.dense(h, &format!("layers.{i}.down"), d.hidden, d.width, false)?;
        x = n.g.add(x, h)?;
    }
    // Only the last token's successor is asked for.
    let (width, last) = (n.dim(d.width), n.g.dims.sub(seq, Dim::ONE));
    let op = Op::Slice {
        start: vec![Dim::ZERO, last, Dim::ZERO],
        len: vec![batch, Dim::ONE, width],
        step: vec![1; 3],
    };
    let x = n.g.push(op, &[x])?;
    let x = n.rms_norm(x, "norm", d.width, d.eps)?;
    let logits = n.dense(x, "lm_head", d.width, d.vocab, false)?;
    n.g.output("logits", logits);
    Ok(n.g)
}

/// Cosine and sine of the rotary positions, `[seq, 1, head]`.
fn rotation(n: &mut Net, d: &Decoder, past: Dim, seq: Dim) -> Result<(ValueId, ValueId), Error> {
    let position = n.g.push(Op::Range { start: past, step: Dim::ONE, len: seq, dtype: DType::F32 }, &[])?;
    let position = n.g.reshape(position, &[seq, Dim::ONE, Dim::ONE])?;
    let half = d.head / 2;
    let rates: Vec<f32> =
        (0..d.head).map(|i| d.theta.powf(-((i % half) as f64) / half as f64) as f32).collect();
    let rates = n.g.constant(Some("rotary.rates".into()), Tensor::from_slice(&[d.head], &rates)?);
    let angle = n.g.mul(position, rates)?;
    let mut part = |op| -> Result<ValueId, Error> {
        let f = n.g.unary(op, angle)?;
        Ok(n.g.cast(f, DType::BF16)?)
    };
    Ok((part(UnaryOp::Cos)?, part(UnaryOp::Sin)?))
}

/// Turns `[batch, seq, heads, head]` by its positions.
fn rotate(n: &mut Net, x: ValueId, head: usize, turn: (ValueId, ValueId)) -> Result<ValueId, Error> {
    let (lo, hi) = (n.columns(x, 0, head / 2)?, n.columns(x, head / 2, head / 2)?);
    let hi = n.g.unary(UnaryOp::Neg, hi)?;
    let turned = n.g.concat(&[hi, lo], 3)?;
    let (a, b) = (n.g.mul(x, turn.0)?, n.g.mul(turned, turn.1)?);
    Ok(n.g.add(a, b)?)
}

fn attention(
    n: &mut Net,
    d: &Decoder,
    i: usize,
    x: ValueId,
    mask: ValueId,
    turn: (ValueId, ValueId),
) -> Result<ValueId, Error> {
    let (batch, seq) = (n.g.shape(x)[0], n.g.shape(x)[1]);
    let name = |part: &str| format!("layers.{i}.{part}");
    let q = n.dense(x, &name("q"), d.width, d.heads * d.head, false)?;
    let k = n.dense(x, &name("k"), d.width, d.groups * d.head, false)?;
    let v = n.dense(x, &name("v"), d.width, d.groups * d.head, false)?;
    let (mut q, mut k) = (n.heads(q, d.heads, d.head)?, n.heads(k, d.groups, d.head)?);
    if d.qk_norm {
        q = n.rms_norm(q, &name("q_norm"), d.head, d.eps)?;
        k = n.rms_norm(k, &name("k_norm"), d.head, d.eps)?;
    }
    let (q, k) = (rotate(n, q, d.head, turn)?, rotate(n, k, d.head, turn)?);
    let v = n.heads(v, d.groups, d.head)?;
    let [groups, share, head] = [d.groups, d.heads / d.groups, d.head].map(|e| n.dim(e));
    let (past, total) = (n.g.dims.symbol("past"), n.g.shape(mask)[4]);
    let mut all = [k, v];
    for (x, part) in all.iter_mut().zip(["key", "value"]) {
        let before = n.g.input(format!("past.{i}.{part}"), DType::BF16, &[batch, groups, past, head]);
        let now = n.g.transpose(*x, &[0, 2, 1, 3])?;
        let joined = n.g.concat(&[before, now], 2)?;
        n.g.output(format!("present.{i}.{part}"), joined);
        *x = n.g.reshape(joined, &[batch, groups, Dim::ONE, total, head])?;
    }
    let q = n.g.transpose(q, &[0, 2, 1, 3])?;
    let q = n.g.reshape(q, &[batch, groups, share, seq, head])?;
    let s = n.g.push(Op::MatMul { trans_a: false, trans_b: true }, &[q, all[0]])?;
    let scale = n.scalar(1.0 / (d.head as f64).sqrt());
    let s = n.g.mul(s, scale)?;
    let s = n.g.add(s, mask)?;
    let s = n.g.softmax(s, 4)?;
    let o = n.g.matmul(s, all[1])?;
    let o = n.g.transpose(o, &[0, 3, 1, 2, 4])?;
    let width = n.dim(d.heads * d.head);
    let o = n.g.reshape(o, &[batch, seq, width])?;
    n.dense(o, &name("o"), d.heads * d.head, d.width, false)
}

fn mmoe() -> Result<Graph, Error> {
    const FIELDS: usize = 39;
    const EMBED: usize = 16;
    const EXPERTS: usize = 8;
    const TASKS: usize = 3;
    const WIDTHS: [usize; 3] = [1024, 512, 256];
    let mut n = Net::new("mmoe", DType::F16);
    let batch = n.g.dims.symbol("batch");
    let fields = n.dim(FIELDS);
    let ids = n.g.input("ids", DType::I32, &[batch, fields]);
    let table = n.weight("embedding".into(), &[1 << 20, EMBED])?;
    let x = n.g.gather(table, ids, 0)?;
    let flat = n.dim(FIELDS * EMBED);
    let x = n.g.reshape(x, &[batch, flat])?;
    let top = n.dim(WIDTHS[2]);
    let mut experts = vec![];
    for e in 0..EXPERTS {
        let (mut y, mut from) = (x, FIELDS * EMBED);
        for (l, &to) in WIDTHS.iter().enumerate() {
            y = n.dense(y, &format!("expert.{e}.{l}"), from, to, true)?;
            y = n.relu(y)?;
            from = to;
        }
        experts.push(n.g.reshape(y, &[batch, Dim::ONE, top])?);
    }
    let experts = n.g.concat(&experts, 1)?;
    let count = n.dim(EXPERTS);
    for t in 0..TASKS {
        let gate = n.dense(x, &format!("gate.{t}"), FIELDS * EMBED, EXPERTS, true)?;
        let gate = n.g.softmax(gate, 1)?;
        let gate = n.g.reshape(gate, &[batch, count, Dim::ONE])?;
        let mixed = n.g.mul(experts, gate)?;
        let mixed = n.g.reduce(ReduceOp::Sum, mixed, &[1], false)?;
        let h = n.dense(mixed, &format!("tower.{t}.0"), WIDTHS[2], 128, true)?;
        let h = n.relu(h)?;
        let y = n.dense(h, &format!("tower.{t}.1"), 128, 1, true)?;
        let y = n.g.unary(UnaryOp::Sigmoid, y)?;
        n.g.output(format!("task.{t}"), y);
    }
    Ok(n.g)
}
