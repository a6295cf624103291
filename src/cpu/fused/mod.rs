//! FUSED: the matrix product of GEMM without its Khatri-Rao matrix, of which only a block that fits a cache is made at
//! a time, where it is used. X is read where it lies: no unfolding, no packing.
//!
//! The modes are in three groups (`plan::Walk`): k, which the micro-kernel sums over, the result's mode i, and the rest.
//! `G[i, r] += W[rest, r] * sum_k X[rest, i, k] KR[k, r]`: the sum of a few rows and ranks is kept in registers, then
//! multiplied by the rest's factor rows and added to G. Parts of the work have results of their own where they share
//! rows, added in order; each is cut further between rows, as suits the threads.
//! Order: along k within a block, then blocks, then parts. None of it hangs on where rows are cut: the same bits for any
//! number of threads. At most K = N / I_n additions.

mod kr;
mod part;
#[cfg(test)]
mod tests;
mod tile;

use super::job::{Job, add};
use super::simd::{Element, Isa};
use crate::plan::Walk;
use crate::{Dtype, Real};
use part::{Part, Scratch};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Leaves the MTTKRP in `g`, which is zero before unless the walk writes it once. The order is at least 2.
pub(super) fn fused<T: Real>(job: &Job<'_, T>, walk: &Walk, isa: Isa, g: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => parts::<f32>(&job.cast(), walk, isa, bytemuck::cast_slice_mut(g)),
        Dtype::F64 => parts::<f64>(&job.cast(), walk, isa, bytemuck::cast_slice_mut(g)),
    }
}

fn parts<T: Element>(job: &Job<'_, T>, walk: &Walk, isa: Isa, g: &mut [T]) {
    if walk.alone() {
        let scratch = &mut Scratch::default();
        return isa.run(Part { job, walk, part: 0, rows: 0..walk.rows, g, scratch });
    }
    let threads = rayon::current_num_threads();
    let len = g.len();
    let mut partials = vec![T::zero(); (walk.parts - 1) * len];
    let pieces = walk.row_pieces(threads, job.rank, T::DTYPE);
    let mut tasks = Vec::new();
    for (part, mut sum) in std::iter::once(&mut *g).chain(partials.chunks_mut(len)).enumerate() {
        for rows in pieces.clone() {
            let (piece, behind) = sum.split_at_mut(rows.len() * job.rank);
            tasks.push((part, rows, piece));
            sum = behind;
        }
    }
    let scratch: Vec<_> = (0..threads).map(|_| Mutex::new(Scratch::default())).collect();
    tasks.into_par_iter().with_max_len(1).for_each(|(part, rows, g)| {
        // Every thread has its own.
        let thread = rayon::current_thread_index().unwrap_or(0);
        let scratch = &mut *scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
        isa.run(Part { job, walk, part, rows, g, scratch });
    });
    if walk.parts == 1 {
        return;
    }
    const BLOCK: usize = 4096;
    g.par_chunks_mut(BLOCK).enumerate().for_each(|(b, sum)| {
        for partial in partials.chunks(len) {
            add(sum, &partial[b * BLOCK..b * BLOCK + sum.len()]);
        }
    });
}
