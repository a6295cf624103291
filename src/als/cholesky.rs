//! Cholesky factors, and their inverses, of systems so large that one thread is too slow. The blocks follow from the size,
//! and every one is done by one thread: the bits do not depend on the number of threads.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, Mat, MatMut, Par};
use rayon::prelude::*;

/// Largest system that one thread factors as a whole.
const ALONE: usize = 256;
/// Columns of a panel.
const PANEL: usize = 64;
/// Rows of a panel, or columns of what lies right of it, that one thread does at a time.
const STRIP: usize = 32;

/// Replaces the lower half of a symmetric matrix by L; whether it is positive definite. What is above the diagonal may be
/// overwritten with anything.
pub(super) fn factor(a: MatMut<'_, f64>) -> bool {
    // On a thread of the pool, which need not be woken for every panel.
    if a.nrows() <= ALONE { whole(a) } else { rayon::scope(|_| in_panels(a)) }
}

fn whole(a: MatMut<'_, f64>) -> bool {
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(a.nrows(), Par::Seq, Default::default()));
    cholesky_in_place(a, Default::default(), Par::Seq, MemStack::new(&mut memory), Default::default()).is_ok()
}

fn in_panels(mut a: MatMut<'_, f64>) -> bool {
    let size = a.nrows();
    for first in (0..size).step_by(PANEL) {
        let end = size.min(first + PANEL);
        let (left, right) = a.as_mut().split_at_col_mut(end);
        let (mut diagonal, mut below) = left.get_mut(first.., first..).split_at_row_mut(end - first);
        if !whole(diagonal.as_mut()) {
            return false;
        }
        let diagonal = diagonal.as_ref();
        below.as_mut().par_row_chunks_mut(STRIP).for_each(|rows| {
            solve_lower_triangular_in_place(diagonal, rows.transpose_mut(), Par::Seq);
        });
        let below = below.as_ref();
        right.get_mut(end.., ..).par_col_chunks_mut(STRIP).enumerate().for_each(|(strip, columns)| {
            let from = strip * STRIP;
            let own = below.get(from..from + columns.ncols(), ..).transpose();
            matmul(columns.get_mut(from.., ..), Accum::Add, below.get(from.., ..), own, -1.0, Par::Seq);
        });
    }
    true
}

/// `(L L^T)^-1 x` in place of x. Of one vector, where a blocked solve is several times slower.
pub(super) fn solve(l: &Mat<f64>, x: &mut [f64]) {
    const LANES: usize = 8;
    for j in 0..x.len() {
        let column = &l.col_as_slice(j)[j..];
        let (own, below) = x[j..].split_at_mut(1);
        own[0] /= column[0];
        below.iter_mut().zip(&column[1..]).for_each(|(x, l)| *x -= own[0] * l);
    }
    for j in (0..x.len()).rev() {
        let column = &l.col_as_slice(j)[j..];
        let (own, below) = x[j..].split_at_mut(1);
        let (mut sums, whole) = ([0.0; LANES], below.chunks_exact(LANES));
        let rest: f64 =
            whole.remainder().iter().zip(column[1..].chunks_exact(LANES).remainder()).map(|(x, l)| x * l).sum();
        for (x, l) in whole.zip(column[1..].chunks_exact(LANES)) {
            (0..LANES).for_each(|lane| sums[lane] += x[lane] * l[lane]);
        }
        own[0] = (own[0] - rest - sums.iter().sum::<f64>()) / column[0];
    }
}

/// The inverse of L into the lower half of a column-major matrix of zeros, its columns `stride` apart.
#[cfg(feature = "gpu")]
pub(super) fn invert(l: faer::MatRef<'_, f64>, out: &mut [f64], stride: usize) {
    let size = l.nrows();
    let work = |(strip, columns): (usize, &mut [f64])| {
        // What is above the diagonal stays zero.
        let first = strip * STRIP;
        let count = STRIP.min(size - first);
        let columns = &mut columns[first..];
        (0..count).for_each(|c| columns[c * (stride + 1)] = 1.0);
        let columns = MatMut::from_column_major_slice_with_stride_mut(columns, size - first, count, stride);
        solve_lower_triangular_in_place(l.get(first.., first..), columns, Par::Seq);
    };
    let strips = out.chunks_mut(STRIP * stride).enumerate();
    match size <= ALONE {
        true => strips.for_each(work),
        false => strips.collect::<Vec<_>>().into_par_iter().for_each(work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faer::MatRef;

    /// Positive definite, with a condition of about its size.
    fn matrix(size: usize) -> Mat<f64> {
        let a = Mat::from_fn(size, size, |i, j| ((i * 7919 + j * 104729) % 1009) as f64 / 1009.0 - 0.5);
        &a * a.transpose() + Mat::from_fn(size, size, |i, j| if i == j { size as f64 / 50.0 } else { 0.0 })
    }

    fn lower(l: MatRef<'_, f64>) -> Mat<f64> {
        Mat::from_fn(l.nrows(), l.nrows(), |i, j| if i < j { 0.0 } else { l[(i, j)] })
    }

    fn on<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }

    #[test]
    fn factors_and_inverses_are_right_and_the_same_for_any_threads() {
        for size in [1, 5, 64, 256, 257, 320, 401] {
            let v = matrix(size);
            let make = |threads| {
                let mut l = v.clone();
                assert!(on(threads, || factor(l.as_mut())));
                lower(l.as_ref())
            };
            let l = make(1);
            assert_eq!(l, make(3), "{size}");
            let error = (&l * l.transpose() - &v).norm_max();
            assert!(error <= 4.0 * size as f64 * f64::EPSILON * v.norm_max(), "{size}: {error:e}");
            let expected: Vec<f64> = (0..size).map(|i| 1.0 + (i % 7) as f64).collect();
            let mut x: Vec<f64> = (0..size).map(|i| (0..size).map(|j| v[(i, j)] * expected[j]).sum()).collect();
            solve(&l, &mut x);
            let error = x.iter().zip(&expected).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
            assert!(error <= 1e-9, "{size}: {error:e}");
            #[cfg(feature = "gpu")]
            {
                let stride = size + 3;
                let make = |threads| {
                    let mut out = vec![0.0; size * stride];
                    on(threads, || invert(l.as_ref(), &mut out, stride));
                    out
                };
                let inverse = make(1);
                assert_eq!(inverse, make(3), "{size}");
                let inverse = MatRef::from_column_major_slice_with_stride(&inverse, size, size, stride);
                let error = (&l * inverse - Mat::<f64>::identity(size, size)).norm_max();
                let bound = size as f64 * f64::EPSILON * l.norm_l2() * inverse.norm_l2();
                assert!(error <= bound && inverse == lower(inverse), "{size}: {error:e}, bound {bound:e}");
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_noticed() {
        for size in [3, 300] {
            for bad in [0, size / 2, size - 1] {
                let mut v = matrix(size);
                v[(bad, bad)] = -1.0;
                assert!(!factor(v.as_mut()), "{size}, {bad}");
            }
        }
    }
}
