//! MTTKRP-GEMM of the paper, the matrix-based baseline: the Khatri-Rao product formed explicitly, then faer's matrix
//! product.
//!
//! With X seen as L x I x M (dims left of the mode, its own, right of it) and never copied:
//! first mode `G = X KR(right)`, last mode `G = X^T KR(left)`, one product each. A middle mode takes a product with one
//! side, `Y = X KR(right)` (L I x R) or `Y = X^T KR(left)` (I M x R), whichever leaves the smaller Y, and then
//! multiplies Y with the other side's Khatri-Rao product and sums.
//! Memory: R prod of the dims of the contracted side, and for a middle mode R I min(L, M) more.
//! Order: faer's within a panel of a long sum, panels in order, then the threads' sums. At most K = N / I_n additions.

use super::job::{Job, advance, in_given_parts};
use crate::plan::{FIXED_PARTS, PANEL, in_panels};
use crate::{Error, Real, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;
use std::ops::Range;

/// Leaves the MTTKRP in `g`. The order is at least 2.
pub(super) fn gemm<T: Real>(job: &Job<'_, T>, g: &mut [T]) -> Result<()> {
    let (n, order, rank) = (job.mode, job.shape.order(), job.rank);
    let (left, rows, right) = (job.shape.left(n), job.shape.rows(n), job.shape.right(n));
    if n == 0 {
        let kr = khatri_rao(job, 1..order)?;
        product(g, MatRef::from_row_major_slice(job.x, rows, right), &kr, rank);
    } else if n + 1 == order {
        let kr = khatri_rao(job, 0..n)?;
        product(g, MatRef::from_row_major_slice(job.x, left, rows).transpose(), &kr, rank);
    } else if left <= right {
        let mut y = scratch("polyad.cpu.gemm.intermediate", &[left, rows, rank])?;
        let kr = khatri_rao(job, n + 1..order)?;
        product(&mut y, MatRef::from_row_major_slice(job.x, left * rows, right), &kr, rank);
        let other = khatri_rao(job, 0..n)?;
        multiply_and_sum(g, rank, left, |i, l| (&y[(l * rows + i) * rank..][..rank], &other[l * rank..][..rank]));
    } else {
        let mut y = scratch("polyad.cpu.gemm.intermediate", &[rows, right, rank])?;
        let kr = khatri_rao(job, 0..n)?;
        product(&mut y, MatRef::from_row_major_slice(job.x, left, rows * right).transpose(), &kr, rank);
        let other = khatri_rao(job, n + 1..order)?;
        multiply_and_sum(g, rank, right, |i, m| (&y[(i * right + m) * rank..][..rank], &other[m * rank..][..rank]));
    }
    Ok(())
}

/// `out = x kr`, all of them with R columns but x; `out` is zero before. A long sum (few rows in x) is cut into panels, which the threads
/// share and add up in order; faer alone would share the rows.
pub(super) fn product<T: Real>(out: &mut [T], x: MatRef<'_, T>, kr: &[T], rank: usize) {
    let kr = MatRef::from_row_major_slice(kr, x.ncols(), rank);
    let one = <T as num_traits::One>::one;
    if !in_panels(x.nrows(), x.ncols()) {
        let out = MatMut::from_row_major_slice_mut(out, x.nrows(), rank);
        return matmul(out, Accum::Replace, x, kr, one(), Par::rayon(0));
    }
    in_panels_of(out, x, kr, rank, rayon::current_num_threads());
}

/// The same with bits that no number of threads changes: rows in blocks, or panels in parts, that the sizes alone decide.
pub(super) fn repeatable_product<T: Real>(out: &mut [T], x: MatRef<'_, T>, kr: &[T], rank: usize) {
    let rows = x.nrows();
    let kr = MatRef::from_row_major_slice(kr, x.ncols(), rank);
    if in_panels(rows, x.ncols()) {
        return in_panels_of(out, x, kr, rank, FIXED_PARTS);
    }
    let one = <T as num_traits::One>::one;
    let block = rows.div_ceil(4 * FIXED_PARTS).max(64);
    out.par_chunks_mut(block * rank).enumerate().for_each(|(b, out)| {
        let count = out.len() / rank;
        let out = MatMut::from_row_major_slice_mut(out, count, rank);
        matmul(out, Accum::Replace, x.subrows(b * block, count), kr, one(), Par::Seq);
    });
}

fn in_panels_of<T: Real>(out: &mut [T], x: MatRef<'_, T>, kr: MatRef<'_, T>, rank: usize, parts: usize) {
    let one = <T as num_traits::One>::one;
    in_given_parts(out, rank, x.ncols().div_ceil(PANEL), Some(parts), |_, panels, sum| {
        for first in panels.map(|p| p * PANEL) {
            let len = PANEL.min(x.ncols() - first);
            let sum = MatMut::from_row_major_slice_mut(&mut *sum, x.nrows(), rank);
            matmul(sum, Accum::Add, x.subcols(first, len), kr.subrows(first, len), one(), Par::Seq);
        }
    });
}

/// `g[i, :] = sum over l < count of the Hadamard product of the two rows`.
fn multiply_and_sum<'a, T: Real>(
    g: &mut [T],
    rank: usize,
    count: usize,
    rows: impl Fn(usize, usize) -> (&'a [T], &'a [T]) + Sync,
) {
    g.par_chunks_mut(rank).enumerate().for_each(|(i, sum)| {
        sum.fill(T::zero());
        for l in 0..count {
            let (y, other) = rows(i, l);
            for ((s, &y), &o) in sum.iter_mut().zip(y).zip(other) {
                *s += y * o;
            }
        }
    });
}

/// Khatri-Rao product of the factors of these modes, row-major, the last mode running fastest.
pub(super) fn khatri_rao<T: Real>(job: &Job<'_, T>, modes: Range<usize>) -> Result<Vec<T>> {
    const ROWS: usize = 256;
    let dims = &job.shape[modes.clone()];
    let mut sizes = dims.to_vec();
    sizes.push(job.rank);
    let mut out = scratch("polyad.cpu.gemm.khatri_rao", &sizes)?;
    out.par_chunks_mut(ROWS * job.rank).enumerate().for_each(|(chunk, rows)| {
        let mut index = vec![0; dims.len()];
        let mut position = chunk * ROWS;
        for (i, &d) in index.iter_mut().zip(dims).rev() {
            *i = position % d;
            position /= d;
        }
        for row in rows.chunks_mut(job.rank) {
            row.fill(<T as num_traits::One>::one());
            for (m, &i) in modes.clone().zip(&index) {
                for (p, &a) in row.iter_mut().zip(job.row(m, i, &(0..job.rank))) {
                    *p *= a;
                }
            }
            advance(&mut index, dims);
        }
    });
    Ok(out)
}

/// Zeros, or an error where there is no memory for them.
pub(super) fn scratch<T: Real>(name: &str, sizes: &[usize]) -> Result<Vec<T>> {
    let len = sizes.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bytes = len.map_or(u64::MAX, |n| (n as u64).saturating_mul(T::DTYPE.bytes()));
    let refused = || Error::OutOfDeviceMemory { buffer: name.into(), bytes };
    let mut out = Vec::new();
    let len = len.ok_or_else(refused)?;
    out.try_reserve_exact(len).map_err(|_| refused())?;
    out.resize(len, T::zero());
    Ok(out)
}
