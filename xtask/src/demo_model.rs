//! The demo's model: a two-layer transformer encoder with random weights and dynamic batch and length.

use anyhow::Result;
use dvm::{BinaryOp, DType, Dim, Graph, Op, Tensor, ValueId};

const VOCAB: usize = 256;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const HIDDEN: usize = 128;
const LAYERS: usize = 2;

/// Builds the graph and serialises it. The same bytes every time.
pub(crate) fn bytes() -> Result<Vec<u8>> {
    let mut b = Builder { g: Graph::new("demo"), state: 0x5eed };
    let (batch, seq) = (b.g.dims.symbol("batch"), b.g.dims.symbol("seq"));
    let ids = b.g.input("ids", DType::I32, &[batch, seq]);
    let table = b.weight(&[VOCAB, WIDTH], 1.0)?;
    let mut x = b.g.push(Op::Gather { axis: 0 }, &[table, ids])?;
    for _ in 0..LAYERS {
        x = b.layer(x, batch, seq)?;
    }
    b.g.output("hidden", x);
    let pooled = b.g.push(Op::Reduce { op: dvm::ReduceOp::Mean, axes: vec![1], keepdims: false }, &[x])?;
    b.g.output("pooled", pooled);
    Ok(b.g.to_bytes())
}

struct Builder {
    g: Graph,
    state: u64,
}

impl Builder {
    /// Uniform in -1..1 (SplitMix64).
    fn random(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
    fn weight(&mut self, shape: &[usize], scale: f32) -> Result<ValueId> {
        let n = shape.iter().product();
        let data: Vec<f32> = (0..n).map(|_| self.random() * scale).collect();
        Ok(self.g.constant(None, Tensor::from_slice(shape, &data)?))
    }
    fn dense(&mut self, x: ValueId, from: usize, to: usize) -> Result<ValueId> {
        let w = self.weight(&[from, to], (3.0 / from as f32).sqrt())?;
        let b = self.weight(&[to], 0.1)?;
        let y = self.g.push(Op::MatMul { trans_a: false, trans_b: false }, &[x, w])?;
        Ok(self.g.push(Op::Binary(BinaryOp::Add), &[y, b])?)
    }
    fn norm(&mut self, x: ValueId) -> Result<ValueId> {
        let scale = self.g.constant(None, Tensor::from_slice(&[WIDTH], &[1f32; WIDTH])?);
        let bias = self.weight(&[WIDTH], 0.05)?;
        Ok(self.g.push(Op::LayerNorm { axis: 2, eps: 1e-5 }, &[x, scale, bias])?)
    }
    fn heads(&mut self, x: ValueId, batch: Dim, seq: Dim) -> Result<ValueId> {
        let (h, d) = (self.g.dims.constant(HEADS as i64), self.g.dims.constant((WIDTH / HEADS) as i64));
        let split = self.g.push(Op::Reshape { shape: vec![batch, seq, h, d] }, &[x])?;
        Ok(self.g.push(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[split])?)
    }
    fn layer(&mut self, x: ValueId, batch: Dim, seq: Dim) -> Result<ValueId> {
        let (q, k, v) =
            (self.dense(x, WIDTH, WIDTH)?, self.dense(x, WIDTH, WIDTH)?, self.dense(x, WIDTH, WIDTH)?);
        let (q, k, v) = (self.heads(q, batch, seq)?, self.heads(k, batch, seq)?, self.heads(v, batch, seq)?);
        let scores = self.g.push(Op::MatMul { trans_a: false, trans_b: true }, &[q, k])?;
        let scale = 1.0 / ((WIDTH / HEADS) as f32).sqrt();
        let scale = self.g.constant(None, Tensor::from_slice(&[], &[scale])?);
        let scores = self.g.push(Op::Binary(BinaryOp::Mul), &[scores, scale])?;
        let p = self.g.push(Op::Softmax { axis: 3 }, &[scores])?;
        let o = self.g.push(Op::MatMul { trans_a: false, trans_b: false }, &[p, v])?;
        let o = self.g.push(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[o])?;
        let w = self.g.dims.constant(WIDTH as i64);
        let o = self.g.push(Op::Reshape { shape: vec![batch, seq, w] }, &[o])?;
        let o = self.dense(o, WIDTH, WIDTH)?;
        let x = self.g.push(Op::Binary(BinaryOp::Add), &[x, o])?;
        let x = self.norm(x)?;
        let h = self.dense(x, WIDTH, HIDDEN)?;
        let h = self.g.push(Op::Gelu { tanh: false }, &[h])?;
        let h = self.dense(h, HIDDEN, WIDTH)?;
        let x = self.g.push(Op::Binary(BinaryOp::Add), &[x, h])?;
        self.norm(x)
    }
}
