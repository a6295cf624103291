//! MTTKRP-ELEM of the paper: parallel over the entries of X, one addition to G per entry and rank.
//!
//! Computes `G[i, r] += X[..] * prod_{m != n} A_m[i_m, r]`, an entry at a time, F ranks at a time, in vectors of ranks.
//! Where a GPU adds with atomics, each thread has its own G here, and these are added in order.
//! Order: entries of a row in row-major order within a thread, then the threads' sums. At most K = N / I_n additions.

use super::job::{Job, Ranks, Split, advance, by_ranks, in_parts};
use super::simd::{Element, Isa, lanes, vectors_of};
use crate::{Dtype, Real};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Leaves the MTTKRP in `g`, which is zero before.
pub(super) fn elem<T: Real>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => entries::<f32>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
        Dtype::F64 => entries::<f64>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
    }
}

fn entries<T: Element>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    in_parts(g, job.rank, job.x.len(), Split::Items, |_, entries, sum| isa.run(Entries { job, entries, sum }));
}

/// The entries of one thread.
struct Entries<'a, T> {
    job: &'a Job<'a, T>,
    entries: Range<usize>,
    sum: &'a mut [T],
}

impl<T: Element> WithSimd for Entries<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        by_ranks(s, self.job, &mut self);
    }
}

impl<T: Element> Ranks for Entries<'_, T> {
    #[inline(always)]
    fn ranks<S: Simd, const N: usize>(&mut self, s: S, columns: Range<usize>) {
        let Self { job, entries, sum } = self;
        let mut index = job.shape.index(entries.start);
        for &x in &job.x[entries.clone()] {
            let mut product = [T::splat(s, x); N];
            for (m, &i) in index.iter().enumerate() {
                if m != job.mode {
                    for (p, a) in product.iter_mut().zip(vectors_of::<T, S, N>(s, job.row(m, i, &columns))) {
                        *p = T::times(s, *p, a);
                    }
                }
            }
            let row = &mut sum[index[job.mode] * job.rank..][columns.clone()];
            for (to, p) in row.chunks_mut(lanes::<T, S>()).zip(product) {
                let sum = T::plus(s, T::load(s, to), p);
                T::store(s, to, sum);
            }
            advance(&mut index, job.shape);
        }
    }
}
