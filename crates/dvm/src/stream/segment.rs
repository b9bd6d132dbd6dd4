//! The ops recorded since the last flush, as a graph with constant extents.

use std::sync::Arc;

use dvm_ir::{Dim, Graph, Op, Tensor as HostTensor, TensorType, ValueDef, ValueId, infer};
use smallvec::SmallVec;

use super::storage::{Cell, Current, Shape, Storage, lock};
use super::view::View;
use crate::Error;

/// Extents whose dims are remembered.
const MEMO: usize = 64;

/// A write to a part of a storage, made at the end of the segment's program.
pub(crate) struct Write {
    /// Nobody can see the write once only this is left.
    pub(crate) storage: Arc<Storage>,
    pub(crate) cell: Arc<Cell>,
    pub(crate) view: View,
    pub(crate) value: ValueId,
}

/// What has been recorded.
pub(crate) struct Segment {
    /// Number of the segment; 0 is never one.
    pub(crate) id: u32,
    pub(crate) graph: Graph,
    /// Per node, the storage whose version it is.
    pub(crate) owners: Vec<Option<Arc<Storage>>>,
    /// Per graph input, its memory.
    pub(crate) leaves: Vec<Arc<Cell>>,
    pub(crate) writes: Vec<Write>,
    /// Bytes that the values would take if all were stored, and the inputs.
    pub(crate) bytes: u64,
    memo: Vec<(usize, Dim)>,
}

/// Bytes of a tensor, `None` where no memory could hold it.
pub(crate) fn byte_size(dtype: dvm_ir::DType, shape: &[usize]) -> Option<u64> {
    let n = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d))?;
    (n <= isize::MAX as usize / 2).then_some(n as u64)
}

impl Segment {
    pub(crate) fn new(id: u32) -> Segment {
        Segment {
            id,
            graph: Graph::new("stream"),
            owners: vec![],
            leaves: vec![],
            writes: vec![],
            bytes: 0,
            memo: vec![(0, Dim::ZERO); MEMO],
        }
    }
    /// The dim of an extent.
    pub(crate) fn dim(&mut self, n: usize) -> Dim {
        let slot = &mut self.memo[n % MEMO];
        if slot.0 != n {
            *slot = (n, self.graph.dims.constant(n as i64));
        }
        slot.1
    }
    pub(crate) fn dims(&mut self, shape: &[usize]) -> Vec<Dim> {
        shape.iter().map(|&n| self.dim(n)).collect()
    }
    /// The input that stands for a cell.
    pub(crate) fn leaf(&mut self, cell: &Arc<Cell>, storage: &Storage) -> ValueId {
        if let Some(v) = cell.leaf(self.id) {
            return v;
        }
        let shape = self.dims(&storage.shape);
        let v = self.graph.input(format!("i{}", self.leaves.len()), storage.dtype, &shape);
        self.leaves.push(cell.clone());
        self.bytes = self.bytes.saturating_add(byte_size(storage.dtype, &storage.shape).unwrap_or(0));
        cell.set_leaf(self.id, v);
        v
    }
    /// The value of a storage, seen through a view.
    pub(crate) fn value(&mut self, storage: &Storage, view: Option<&View>) -> Result<ValueId, Error> {
        let current = lock(&storage.current).clone();
        let mut v = match current {
            Current::Node(v) => v,
            Current::Data(cell) => match cell.failure() {
                Some(e) => return Err(Error::Earlier(e)),
                None => self.leaf(&cell, storage),
            },
        };
        let mut shape = storage.shape.clone();
        for step in view.iter().flat_map(|v| &v.chain) {
            shape = step.shape(&shape);
            let op = step.to_op(&mut self.graph.dims);
            v = self.node(op, &[v], storage.dtype, &shape);
        }
        Ok(v)
    }
    /// Adds a node whose type is known.
    pub(crate) fn node(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        dtype: dvm_ir::DType,
        shape: &[usize],
    ) -> ValueId {
        let shape = self.dims(shape);
        self.owners.push(None);
        self.graph.push_typed(op, inputs, TensorType { dtype, shape }, None)
    }
    /// The type of an op's result by the rules of the IR, which also tell what is wrong.
    pub(crate) fn infer(&mut self, op: &Op, inputs: &[ValueId]) -> Result<(dvm_ir::DType, Shape), Error> {
        let operands: SmallVec<[&TensorType; 4]> =
            inputs.iter().map(|v| &self.graph.values[v.index()].ty).collect();
        let ty = infer(op, &operands, &mut self.graph.dims, &mut self.graph.checks)?;
        let dims = &self.graph.dims;
        let extent = |&d: &Dim| {
            let n = dims.as_const(d).and_then(|n| usize::try_from(n).ok());
            n.ok_or_else(|| Error::Stream(format!("{}: the result has no extents", op.mnemonic())))
        };
        let shape = ty.shape.iter().map(extent).collect::<Result<Shape, Error>>()?;
        Ok((ty.dtype, shape))
    }
    /// A constant of one element.
    pub(crate) fn scalar(&mut self, t: HostTensor) -> ValueId {
        self.graph.constant(None, t)
    }
    /// Makes a storage for a node.
    pub(crate) fn own(&mut self, v: ValueId, dtype: dvm_ir::DType, shape: Shape) -> Arc<Storage> {
        self.bytes = self.bytes.saturating_add(byte_size(dtype, &shape).unwrap_or(u64::MAX));
        let storage = Arc::new(Storage { dtype, shape, current: std::sync::Mutex::new(Current::Node(v)) });
        if let ValueDef::Node(n) = self.graph.value(v).def {
            self.owners[n.index()] = Some(storage.clone());
        }
        storage
    }
    /// Makes a node the newest version of a storage.
    pub(crate) fn set_owner(&mut self, v: ValueId, storage: &Arc<Storage>) {
        let mut current = lock(&storage.current);
        if let Current::Node(old) = *current {
            self.disown(old);
        }
        if let ValueDef::Node(n) = self.graph.value(v).def {
            self.owners[n.index()] = Some(storage.clone());
        }
        *current = Current::Node(v);
    }
    fn disown(&mut self, v: ValueId) {
        if let ValueDef::Node(n) = self.graph.value(v).def {
            self.owners[n.index()] = None;
        }
    }
    /// The storage of a node that somebody outside this segment can still read.
    pub(crate) fn alive(&self, node: usize) -> Option<&Arc<Storage>> {
        let storage = self.owners[node].as_ref()?;
        let writes = self.writes.iter().filter(|w| Arc::ptr_eq(&w.storage, storage)).count();
        (Arc::strong_count(storage) > 1 + writes).then_some(storage)
    }
}

impl Write {
    /// Whether somebody can see it.
    pub(crate) fn is_alive(&self) -> bool {
        let current = matches!(&*lock(&self.storage.current), Current::Data(c) if Arc::ptr_eq(c, &self.cell));
        current && Arc::strong_count(&self.storage) > 1
    }
}
