//! Two products with rows between them in one kernel: attention.
//!
//! The product that comes second finds the rows that it multiplies in a region of elementwise ops and reductions, and the product
//! that these are computed from in the region before. All three become one; what the first two were is kept, because where the
//! whole does not fit local memory each makes a kernel again.

use dvm_ir::{Answer, NodeId, Op, ValueId};
use smallvec::SmallVec;

use super::{Class, Grow, Region};
use crate::bits::Bits;

impl Grow<'_> {
    /// Puts a product into one kernel with the rows that it multiplies and the product these are computed from: attention.
    pub(super) fn second_product(&mut self, n: NodeId) -> bool {
        let node = &self.p.g.nodes[n.index()];
        let Op::MatMul { trans_a: false, .. } = node.op else { return false };
        let rows: SmallVec<[u32; 2]> =
            self.leaves(node.inputs[0]).iter().filter_map(|&v| self.region_of(v)).collect();
        let &[rows] = &rows[..] else { return false };
        if self.has(rows, Class::MatMul) || !self.has(rows, Class::Reduce) {
            return false;
        }
        let mut first: Option<u32> = None;
        for m in &self.r.all[rows as usize].members {
            for &v in &self.p.g.nodes[m.index()].inputs {
                for r in self.leaves(v).iter().filter_map(|&v| self.region_of(v)) {
                    if r == rows || !self.has(r, Class::MatMul) {
                        continue;
                    }
                    if first.is_some_and(|f| f != r) {
                        return false;
                    }
                    first = Some(r);
                }
            }
        }
        let Some(first) = first else { return false };
        match self.try_products(n, first, rows) {
            Ok(()) => true,
            Err(reason) => {
                self.cut(n, rows, format!("a matmul needs its operands in memory ({reason})"));
                false
            }
        }
    }
    fn try_products(&mut self, n: NodeId, first: u32, rows: u32) -> Result<(), String> {
        let region = |r: u32| &self.r.all[r as usize];
        let (cube, vector) = (region(first), region(rows));
        if cube.closed || vector.closed || cube.forced || vector.forced || cube.parts.is_some() {
            return Err("its producer's kernel is closed".into());
        }
        let lone = [Class::Gather, Class::ArgReduce, Class::CumSum];
        if lone.iter().any(|&c| self.has(rows, c)) {
            return Err("only elementwise ops and reductions lie between two products".into());
        }
        let parts = [cube.members.clone(), vector.members.clone()];
        let mut members = parts.concat();
        members.push(n);
        members.sort_unstable();
        let node = &self.p.g.nodes[n.index()];
        // The rows run along what the first product has columns for: a row that is reduced to one element is multiplied once.
        let last = |v: ValueId| self.p.g.shape(v).last().copied();
        let product = cube.members.iter().find(|m| self.r.state.class[m.index()] == Class::MatMul);
        let columns = product.and_then(|m| last(self.p.g.nodes[m.index()].output));
        let (Some(columns), Some(k)) = (columns, last(node.inputs[0])) else {
            return Err("it has no rows".into());
        };
        let equal = self.t.is_equal(k, columns);
        if equal != Answer::Proven {
            return Err("its rows are not known to be as long as those of the product before".into());
        }
        let roots = self.roots(&members);
        if roots.iter().any(|&v| v != node.output) {
            return Err("others read it too".into());
        }
        // Whatever runs before any of the three must not need any of them.
        let mut memory = vec![];
        node.inputs.iter().skip(1).for_each(|&v| self.producers(v, &mut memory));
        let (_, reads) = self.deps(n);
        memory.extend(reads.iter().filter(|&&r| r != rows));
        let ours = |r: u32| r == first || r == rows;
        let before =
            |r: u32| region(first).before.has(r) || region(rows).before.has(r) || memory.contains(&r);
        let others: Vec<u32> = (0..self.r.all.len() as u32).filter(|&r| !ours(r) && before(r)).collect();
        let cycle = |&r: &u32| region(r).before.has(first) || region(r).before.has(rows);
        if memory.iter().any(|&r| ours(r)) || others.iter().any(cycle) {
            return Err("joining would make a cycle".into());
        }
        self.trial(&members)?;
        for m in &members {
            self.r.state.region[m.index()] = Some(rows);
        }
        self.r.all[first as usize] = Region::default();
        let all = &mut self.r.all[rows as usize];
        (all.members, all.plain, all.parts) = (members, None, Some(parts));
        // Nothing reads the first product but what is in the kernel now.
        all.before = Bits::default();
        self.depend(rows, &others);
        Ok(())
    }
}
