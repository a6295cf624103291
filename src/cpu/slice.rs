//! MTTKRP-SLICE of the paper: parallel over the slices of the mode, entries of a slice one after the other.
//!
//! Computes `G[i, r] = sum_{slice i} X[..] * prod_{m != n} A_m[i_m, r]`, F ranks at a time, in vectors of ranks that stay
//! in registers, no partial sums at all. The innermost loop runs along the last of the other modes; the rows of the rest
//! are multiplied in behind it. A mode with fewer slices than threads leaves threads idle: that is the method, not a fault.
//! Order: along the last of the other modes (one chain), then over the rest of the slice in row-major order. At most
//! K = N / I_n additions, the same bits for any number of threads.

use super::job::{Job, Ranks, advance, by_ranks};
use super::simd::{Element, Isa, lanes, vectors_of, zero};
use crate::{Dtype, MAX_ORDER, Real};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Leaves the MTTKRP in `g`, which is zero before. The order is at least 2.
pub(super) fn slice<T: Real>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => slices::<f32>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
        Dtype::F64 => slices::<f64>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
    }
}

fn slices<T: Element>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    let rest: Vec<usize> = job.others();
    g.par_chunks_mut(job.rank).enumerate().for_each(|(i, sum)| isa.run(OneSlice { job, others: &rest, i, sum }));
}

/// Slice `i` of the mode.
struct OneSlice<'a, T> {
    job: &'a Job<'a, T>,
    others: &'a [usize],
    i: usize,
    sum: &'a mut [T],
}

impl<T: Element> WithSimd for OneSlice<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        by_ranks(s, self.job, &mut self);
    }
}

impl<T: Element> Ranks for OneSlice<'_, T> {
    #[inline(always)]
    fn ranks<S: Simd, const N: usize>(&mut self, s: S, columns: Range<usize>) {
        let Self { job, others, i, sum } = self;
        let Some((&last, rest)) = others.split_last() else { return };
        let stride = |m: usize| job.shape.right(m);
        let (inner, step, base) = (job.shape[last], stride(last), *i * stride(job.mode));
        let (mut dims, mut strides, mut index) = ([0; MAX_ORDER], [0; MAX_ORDER], [0; MAX_ORDER]);
        for (k, &m) in rest.iter().enumerate() {
            (dims[k], strides[k]) = (job.shape[m], stride(m));
        }
        let mut total = [zero::<T, S>(); N];
        loop {
            let at: usize = index[..rest.len()].iter().zip(&strides).map(|(i, s)| i * s).sum();
            let entries = job.x[base + at..].iter().step_by(step).take(inner);
            let mut part = [zero::<T, S>(); N];
            for (&x, row) in entries.zip(job.factors[last].chunks_exact(job.rank)) {
                let x = T::splat(s, x);
                for (p, a) in part.iter_mut().zip(vectors_of::<T, S, N>(s, &row[columns.clone()])) {
                    *p = T::fma(s, x, a, *p);
                }
            }
            for (&m, &j) in rest.iter().zip(&index) {
                for (p, a) in part.iter_mut().zip(vectors_of::<T, S, N>(s, job.row(m, j, &columns))) {
                    *p = T::times(s, *p, a);
                }
            }
            for (t, p) in total.iter_mut().zip(part) {
                *t = T::plus(s, *t, p);
            }
            if !advance(&mut index[..rest.len()], &dims[..rest.len()]) {
                break;
            }
        }
        for (to, t) in sum[columns].chunks_mut(lanes::<T, S>()).zip(total) {
            T::store(s, to, t);
        }
    }
}
