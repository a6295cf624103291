//! What the CPU kernels share: the operands as slices, the walk over indices, and sums split between threads.

use super::simd::{Element, lanes};
use crate::plan::MttkrpPlan;
use crate::{Real, Shape};
use pulp::Simd;
use rayon::prelude::*;
use std::ops::Range;

/// Most elements of all partial sums together.
const MAX_PARTIALS: usize = 64 << 20;

/// The operands of one MTTKRP, checked: `x` row-major, factor `m` row-major `I_m x R`.
pub(super) struct Job<'a, T> {
    pub x: &'a [T],
    pub shape: &'a Shape,
    pub factors: Vec<&'a [T]>,
    pub mode: usize,
    pub rank: usize,
    /// TILE's tau.
    pub tile: usize,
    /// Column block F.
    pub block: usize,
}

impl<'a, T: Real> Job<'a, T> {
    pub fn new(plan: &'a MttkrpPlan, x: &'a [T], factors: Vec<&'a [T]>) -> Self {
        let (tile, block) = (plan.tile().max(1), plan.column_block().clamp(1, plan.rank().max(1)));
        Self { x, shape: plan.shape(), factors, mode: plan.mode(), rank: plan.rank(), tile, block }
    }

    /// The same with its element type named: `U` is `T`.
    pub fn cast<U: Real>(&self) -> Job<'a, U> {
        let Self { shape, mode, rank, tile, block, .. } = *self;
        let factors = self.factors.iter().map(|f| bytemuck::cast_slice(f)).collect();
        Job { x: bytemuck::cast_slice(self.x), shape, factors, mode, rank, tile, block }
    }

    /// The modes other than the job's, in order.
    pub fn others(&self) -> Vec<usize> {
        (0..self.shape.order()).filter(|&m| m != self.mode).collect()
    }

    /// The ranks in blocks of F.
    pub fn column_blocks(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (block, rank) = (self.block, self.rank);
        (0..rank).step_by(block).map(move |start| start..rank.min(start + block))
    }

    /// Columns of row `i` of factor `m`.
    #[inline(always)]
    pub fn row(&self, m: usize, i: usize, columns: &Range<usize>) -> &'a [T] {
        &self.factors[m][i * self.rank + columns.start..i * self.rank + columns.end]
    }
}

/// What is done for some ranks at a time.
pub(super) trait Ranks {
    /// These ranks, in N vectors.
    fn ranks<S: Simd, const N: usize>(&mut self, s: S, columns: Range<usize>);
}

/// All ranks, at most four vectors at a time within the blocks of F. Part of `with_simd`, so all of it has to be inlined.
#[inline(always)]
pub(super) fn by_ranks<T: Element, S: Simd>(s: S, job: &Job<'_, T>, work: &mut impl Ranks) {
    let lanes = lanes::<T, S>();
    for columns in job.column_blocks() {
        for first in columns.clone().step_by(4 * lanes) {
            let columns = first..columns.end.min(first + 4 * lanes);
            match columns.len().div_ceil(lanes) {
                1 => work.ranks::<S, 1>(s, columns),
                2 => work.ranks::<S, 2>(s, columns),
                3 => work.ranks::<S, 3>(s, columns),
                _ => work.ranks::<S, 4>(s, columns),
            }
        }
    }
}

/// `sum += terms`.
#[inline(always)]
pub(super) fn add<T: Real>(sum: &mut [T], terms: &[T]) {
    for (s, &t) in sum.iter_mut().zip(terms) {
        *s += t;
    }
}

/// The next index in row-major order. False after the last one, which wraps to zeros.
#[inline(always)]
pub(super) fn advance(index: &mut [usize], dims: &[usize]) -> bool {
    for m in (0..dims.len()).rev() {
        index[m] += 1;
        if index[m] < dims[m] {
            return true;
        }
        index[m] = 0;
    }
    false
}

/// How a sum may be split between threads.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Split {
    /// By items only: every part may touch every row.
    Items,
    /// By rows where there are enough of them (no partial sums), else by items.
    RowsOrItems,
}

/// Runs `work(rows, items, sum)` for every part of rows x items and leaves the total in `g` (rows x rank, zero before).
/// Parts of the items have partial sums of their own, added in order: the same bits for the same number of threads.
pub(super) fn in_parts<T: Real>(
    g: &mut [T],
    rank: usize,
    items: usize,
    split: Split,
    work: impl Fn(Range<usize>, Range<usize>, &mut [T]) + Sync,
) {
    let (threads, rows) = (rayon::current_num_threads(), g.len() / rank);
    let by_rows = split == Split::RowsOrItems && (rows >= 16 * threads || g.len() > MAX_PARTIALS);
    in_given_parts(g, rank, items, (!by_rows).then_some(threads), work);
}

/// The same with the items in so many parts, whatever the number of threads; `None` for parts of the rows.
pub(super) fn in_given_parts<T: Real>(
    g: &mut [T],
    rank: usize,
    items: usize,
    parts: Option<usize>,
    work: impl Fn(Range<usize>, Range<usize>, &mut [T]) + Sync,
) {
    let (rows, len) = (g.len() / rank, g.len());
    let Some(parts) = parts else {
        let per_part = rows.div_ceil(rayon::current_num_threads());
        g.par_chunks_mut(per_part * rank).enumerate().for_each(|(part, sum)| {
            let start = part * per_part;
            work(start..start + sum.len() / rank, 0..items, sum);
        });
        return;
    };
    let parts = parts.min(1 + MAX_PARTIALS / len).min(items).max(1);
    let per_part = items.div_ceil(parts);
    let mut partials = vec![T::zero(); (parts - 1) * len];
    let mut sums: Vec<&mut [T]> = std::iter::once(&mut *g).chain(partials.chunks_mut(len)).collect();
    sums.par_iter_mut().enumerate().for_each(|(part, sum)| {
        let start = items.min(part * per_part);
        work(0..rows, start..items.min(start + per_part), sum);
    });
    drop(sums);
    const BLOCK: usize = 4096;
    g.par_chunks_mut(BLOCK).enumerate().for_each(|(b, sum)| {
        for partial in partials.chunks(len) {
            add(sum, &partial[b * BLOCK..b * BLOCK + sum.len()]);
        }
    });
}
