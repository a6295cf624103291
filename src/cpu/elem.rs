//! MTTKRP-ELEM of the paper: parallel over the entries of X, one addition to G per entry and rank.
//!
//! Computes `G[i, r] += X[..] * prod_{m != n} A_m[i_m, r]`, an entry at a time, F ranks at a time. Where a GPU adds
//! with atomics, each thread has its own G here, and these are added in order.
//! Order: entries of a row in row-major order within a thread, then the threads' sums. At most K = N / I_n additions.

use super::job::{Job, Split, add, advance, in_parts};
use crate::Real;

/// Leaves the MTTKRP in `g`, which is zero before.
pub(super) fn elem<T: Real>(job: &Job<'_, T>, g: &mut [T]) {
    in_parts(g, job.rank, job.x.len(), Split::Items, |_, entries, sum| {
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
    });
}
