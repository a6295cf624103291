//! MTTKRP-ELEM of the paper: parallel over the entries of X, one addition to G per entry and rank.
//!
//! Computes `G[i, r] += X[..] * prod_{m != n} A_m[i_m, r]`, an entry at a time, F ranks at a time, in vectors of ranks.
//! Where a GPU adds with atomics, each thread has its own G here, and these are added in order.
//! Order: entries of a row in row-major order within a thread, then the threads' sums. At most K = N / I_n additions.

use super::job::{Job, Split, add, advance, in_parts};
use super::simd::Isa;
use crate::Real;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Leaves the MTTKRP in `g`, which is zero before.
pub(super) fn elem<T: Real>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    in_parts(g, job.rank, job.x.len(), Split::Items, |_, entries, sum| isa.run(Entries { job, entries, sum }));
}

/// The entries of one thread.
struct Entries<'a, T> {
    job: &'a Job<'a, T>,
    entries: Range<usize>,
    sum: &'a mut [T],
}

impl<T: Real> WithSimd for Entries<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { job, entries, sum } = self;
        let mut product = vec![T::zero(); job.block];
        for columns in job.column_blocks() {
            let product = &mut product[..columns.len()];
            let mut index = job.shape.index(entries.start);
            for &x in &job.x[entries.clone()] {
                job.entry(product, x, &index, &columns);
                add(&mut sum[index[job.mode] * job.rank..][columns.clone()], product);
                advance(&mut index, job.shape, None);
            }
        }
    }
}
