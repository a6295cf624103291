//! Rows of the Khatri-Rao product in the cache block that a part works on.

use super::part::{Block, Line, groups};
use crate::MAX_ORDER;
use crate::cpu::job::{Job, advance};
use crate::cpu::simd::{Element, lanes, vectors_of, zero};
use crate::plan::{Side, Walk};
use pulp::{Simd, WithSimd};

/// Makes a block of KR, padded with zeros to whole vectors: the vectors of a group of N, entry by entry, then the next
/// group's.
pub(super) struct Make<'a, T, const N: usize> {
    pub job: &'a Job<'a, T>,
    pub walk: &'a Walk,
    pub block: &'a Block,
    pub kr: &'a mut [Line],
}

impl<T: Element, const N: usize> WithSimd for Make<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let modes: Vec<usize> = match self.walk.side {
            Side::Right => (self.walk.split..self.job.shape.order()).collect(),
            Side::Left => (0..self.walk.split).collect(),
            Side::Both => self.job.others(),
        };
        let vectors = self.block.columns.len().div_ceil(lanes::<T, S>());
        for group in groups(vectors, N) {
            match group.len() {
                1 => self.group::<S, 1>(s, &modes, group.start),
                2 => self.group::<S, 2>(s, &modes, group.start),
                _ => self.group::<S, 3>(s, &modes, group.start),
            }
        }
    }
}

impl<T: Element, const N: usize> Make<'_, T, N> {
    /// The G vectors from `vector` on, of all entries.
    #[inline(always)]
    fn group<S: Simd, const G: usize>(&mut self, s: S, modes: &[usize], vector: usize) {
        let (start, whole) = (self.block.columns.start + vector * lanes::<T, S>(), G * lanes::<T, S>());
        if self.block.columns.end - start >= whole {
            self.entries::<S, G, true>(s, modes, vector);
        } else {
            self.entries::<S, G, false>(s, modes, vector);
        }
    }

    /// WHOLE where the ranks fill the vectors, which the compiler then knows.
    #[inline(always)]
    fn entries<S: Simd, const G: usize, const WHOLE: bool>(&mut self, s: S, modes: &[usize], vector: usize) {
        let (walk, job, block) = (self.walk, self.job, self.block);
        let Some((&last, outer_modes)) = modes.split_last() else { return };
        let start = block.columns.start + vector * lanes::<T, S>();
        let width = if WHOLE { G * lanes::<T, S>() } else { block.columns.end - start };
        let kr: &mut [T::V<S>] = bytemuck::cast_slice_mut(self.kr);
        let mut to = kr[vector * block.len()..][..G * block.len()].as_chunks_mut::<G>().0;
        let (mut dims, mut index) = ([0; MAX_ORDER], [0; MAX_ORDER]);
        for (d, &m) in dims.iter_mut().zip(outer_modes) {
            *d = job.shape[m];
        }
        let (dims, index) = (&dims[..outer_modes.len()], &mut index[..outer_modes.len()]);
        for k in block.runs.clone() {
            let at = k * walk.run + block.entries.start;
            let (mut first, mut left, mut rest) = (at % walk.last, block.entries.len(), at / walk.last);
            for (i, &d) in index.iter_mut().zip(dims).rev() {
                *i = rest % d;
                rest /= d;
            }
            while left > 0 {
                // Within a run of the last mode only its factor row changes.
                let count = (walk.last - first).min(left);
                let (run, behind) = to.split_at_mut(count);
                let mut outer = [zero::<T, S>(); G];
                for (position, (&m, &i)) in outer_modes.iter().zip(&*index).rev().enumerate() {
                    let row = &job.factors[m][i * job.rank + start..][..width];
                    for (product, factor) in outer.iter_mut().zip(vectors_of::<T, S, G>(s, row)) {
                        *product = if position == 0 { factor } else { T::times(s, *product, factor) };
                    }
                }
                for (i, to) in (first..).zip(run) {
                    let row = &job.factors[last][i * job.rank + start..][..width];
                    for ((to, factor), &outer) in to.iter_mut().zip(vectors_of::<T, S, G>(s, row)).zip(&outer) {
                        *to = if outer_modes.is_empty() { factor } else { T::times(s, outer, factor) };
                    }
                }
                (to, first, left) = (behind, 0, left - count);
                advance(index, dims);
            }
        }
    }
}
