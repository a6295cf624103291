//! MTTKRP-SLICE of the paper: parallel over the slices of the mode, entries of a slice one after the other.
//!
//! Computes `G[i, r] = sum_{slice i} X[..] * prod_{m != n} A_m[i_m, r]`, F ranks at a time in vectors of ranks, no partial
//! sums at all. A mode with fewer slices than threads leaves threads idle: that is the method, not a fault.
//! Order: entries of the slice in row-major order. K = N / I_n additions, the same bits for any number of threads.

use super::job::{Job, add, advance};
use super::simd::Isa;
use crate::Real;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Leaves the MTTKRP in `g`, which is zero before.
pub(super) fn slice<T: Real>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    let scratch = || (vec![T::zero(); job.block], vec![0; job.shape.order()]);
    g.par_chunks_mut(job.rank).enumerate().for_each_init(scratch, |(product, index), (i, sum)| {
        isa.run(OneSlice { job, i, product, index, sum });
    });
}

/// Slice `i` of the mode.
struct OneSlice<'a, T> {
    job: &'a Job<'a, T>,
    i: usize,
    product: &'a mut [T],
    index: &'a mut [usize],
    sum: &'a mut [T],
}

impl<T: Real> WithSimd for OneSlice<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { job, i, product, index, sum } = self;
        let (left, rows, right) = (job.shape.left(job.mode), job.shape.rows(job.mode), job.shape.right(job.mode));
        for columns in job.column_blocks() {
            let product = &mut product[..columns.len()];
            index.fill(0);
            for l in 0..left {
                for &x in &job.x[(l * rows + i) * right..][..right] {
                    job.entry(product, x, index, &columns);
                    add(&mut sum[columns.clone()], product);
                    advance(index, job.shape, Some(job.mode));
                }
            }
        }
    }
}
