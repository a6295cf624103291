//! MTTKRP-TILE of the paper: slices cut into tiles of tau^(d-1) entries, tau along every mode but the job's.
//!
//! Computes `G[i, r] += sum_{tile} X[..] * prod_{m != n} A_m[i_m, r]`. The factor rows of a tile, F ranks wide, are
//! staged in a local buffer that stays in the first-level cache; a tile's sum is kept in registers, up to four vectors of
//! ranks at a time, and added to G once. Within a tile the sum is factored: first along the last of the other modes, then
//! times the rows of the rest. Rows of the mode that share a tile position are done one after the other, so one staging
//! serves all of them (on a GPU each has its own workgroup).
//! Order: tiles in row-major order within a thread, then the threads' sums. At most K = N / I_n additions.

use super::job::{Job, Split, advance, in_parts};
use super::simd::{Element, Isa, lanes, vectors_of, zero};
use crate::{Dtype, MAX_ORDER, Real};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Leaves the MTTKRP in `g`, which is zero before. The order is at least 2.
pub(super) fn tile<T: Real>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    match T::DTYPE {
        Dtype::F32 => tiles::<f32>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
        Dtype::F64 => tiles::<f64>(&job.cast(), isa, bytemuck::cast_slice_mut(g)),
    }
}

fn tiles<T: Element>(job: &Job<'_, T>, isa: Isa, g: &mut [T]) {
    let tiles = job.others().iter().map(|&m| job.shape[m].div_ceil(job.tile)).product();
    in_parts(g, job.rank, tiles, Split::RowsOrItems, |rows, tiles, sum| isa.run(Tiles { job, rows, tiles, sum }));
}

/// Rows and tiles of one thread.
struct Tiles<'a, T> {
    job: &'a Job<'a, T>,
    rows: Range<usize>,
    tiles: Range<usize>,
    sum: &'a mut [T],
}

impl<T: Element> WithSimd for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { job, rows, tiles, sum } = self;
        let mut staged = Staged::new(job, lanes::<T, S>());
        for columns in job.column_blocks() {
            for t in tiles.clone() {
                staged.load(job, t, &columns);
                for first in (0..columns.len()).step_by(4 * lanes::<T, S>()) {
                    let columns = columns.start + first..columns.end.min(columns.start + first + 4 * lanes::<T, S>());
                    for (row, i) in rows.clone().enumerate() {
                        let row = &mut sum[row * job.rank..][columns.clone()];
                        match columns.len().div_ceil(lanes::<T, S>()) {
                            1 => staged.sum::<S, 1>(s, job, i, first, row),
                            2 => staged.sum::<S, 2>(s, job, i, first, row),
                            3 => staged.sum::<S, 3>(s, job, i, first, row),
                            _ => staged.sum::<S, 4>(s, job, i, first, row),
                        }
                    }
                }
            }
        }
    }
}

/// The factor rows of one tile, and where the tile lies in X.
struct Staged<T> {
    /// The other modes.
    modes: Vec<usize>,
    /// Stride in X of each of them.
    strides: Vec<usize>,
    /// Row-major stride in X of the job's mode.
    row_stride: usize,
    /// Entries of the tile along each of them: tau, less at the edge.
    lens: Vec<usize>,
    /// Where the rows of each of them start in `rows`.
    starts: Vec<usize>,
    /// Width of a staged row: whole vectors, zeros behind the ranks.
    width: usize,
    /// Position in X of the tile's first entry, for row 0.
    base: usize,
    rows: Vec<T>,
}

impl<T: Element> Staged<T> {
    fn new(job: &Job<'_, T>, lanes: usize) -> Self {
        let modes = job.others();
        let width = job.block.next_multiple_of(lanes);
        let mut len = 0;
        let mut starts = Vec::with_capacity(modes.len());
        for &m in &modes {
            starts.push(len);
            len += job.tile.min(job.shape[m]) * width;
        }
        let strides = modes.iter().map(|&m| job.shape.right(m)).collect();
        let (row_stride, lens) = (job.shape.right(job.mode), vec![0; modes.len()]);
        Self { modes, strides, row_stride, lens, starts, width, base: 0, rows: vec![T::zero(); len] }
    }

    /// Stages tile `t` (in row-major order of tiles), these ranks of it.
    #[inline(always)]
    fn load(&mut self, job: &Job<'_, T>, t: usize, columns: &Range<usize>) {
        let mut rest = t;
        self.base = 0;
        for (k, &m) in self.modes.iter().enumerate().rev() {
            let count = job.shape[m].div_ceil(job.tile);
            let first = rest % count * job.tile;
            rest /= count;
            self.lens[k] = job.tile.min(job.shape[m] - first);
            self.base += first * self.strides[k];
            let rows = self.rows[self.starts[k]..].chunks_mut(self.width).take(self.lens[k]);
            for (i, row) in rows.enumerate() {
                let (used, padding) = row.split_at_mut(columns.len());
                used.copy_from_slice(job.row(m, first + i, columns));
                padding.fill(T::zero());
            }
        }
    }

    /// Adds the tile's sum for row `i` of the mode to `to`: N vectors of ranks from `first` on.
    #[inline(always)]
    fn sum<S: Simd, const N: usize>(&self, s: S, job: &Job<'_, T>, i: usize, first: usize, to: &mut [T]) {
        let last = self.modes.len() - 1;
        let vectors = first..first + N * lanes::<T, S>();
        let mut total = [zero::<T, S>(); N];
        let mut index = [0; MAX_ORDER];
        loop {
            let at: usize = index[..last].iter().zip(&self.strides).map(|(i, s)| i * s).sum();
            let x = &job.x[self.base + i * self.row_stride + at..];
            let entries = x.iter().step_by(self.strides[last]).take(self.lens[last]);
            let mut part = [zero::<T, S>(); N];
            for (&x, row) in entries.zip(self.rows[self.starts[last]..].chunks_exact(self.width)) {
                let x = T::splat(s, x);
                for (p, a) in part.iter_mut().zip(vectors_of::<T, S, N>(s, &row[vectors.clone()])) {
                    *p = T::fma(s, x, a, *p);
                }
            }
            for (k, &j) in index[..last].iter().enumerate() {
                let row = &self.rows[self.starts[k] + j * self.width..][vectors.clone()];
                for (p, a) in part.iter_mut().zip(vectors_of::<T, S, N>(s, row)) {
                    *p = T::times(s, *p, a);
                }
            }
            for (t, p) in total.iter_mut().zip(part) {
                *t = T::plus(s, *t, p);
            }
            if !advance(&mut index[..last], &self.lens[..last]) {
                break;
            }
        }
        for (to, t) in to.chunks_mut(lanes::<T, S>()).zip(total) {
            let sum = T::plus(s, T::load(s, to), t);
            T::store(s, to, sum);
        }
    }
}
