//! MTTKRP-SLICE of the paper: parallel over the slices of the mode, entries of a slice one after the other.
//!
//! Computes `G[i, r] = sum_{slice i} X[..] * prod_{m != n} A_m[i_m, r]`, F ranks at a time, no partial sums at all.
//! A mode with fewer slices than threads leaves threads idle: that is the method, not a fault.
//! Order: entries of the slice in row-major order. K = N / I_n additions, the same bits for any number of threads.

use super::job::{Job, add, advance};
use crate::Real;
use rayon::prelude::*;

/// Leaves the MTTKRP in `g`, which is zero before.
pub(super) fn slice<T: Real>(job: &Job<'_, T>, g: &mut [T]) {
    let (left, rows, right) = (job.shape.left(job.mode), job.shape.rows(job.mode), job.shape.right(job.mode));
    let scratch = || (vec![T::zero(); job.block], vec![0; job.shape.order()]);
    g.par_chunks_mut(job.rank).enumerate().for_each_init(scratch, |(product, index), (i, sum)| {
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
    });
}
