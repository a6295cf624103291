//! The eigenvectors of a gram's largest eigenvalues, for the start from singular vectors.

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::SelfAdjointEigen;
use faer::matrix_free::LinOp;
use faer::matrix_free::eigen::{
    PartialEigenParams, partial_self_adjoint_eigen, partial_self_adjoint_eigen_scratch as scratch,
};
use faer::{Accum, Col, Mat, MatMut, MatRef, Par, Side};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::sync::{Mutex, PoisonError};

/// Rows of a gram, for each eigenvector that is wanted and at least, from which on only those are computed.
const ROWS: (usize, usize) = (16, 256);
/// Norm of `A v - l v` beside that of A, up to which an eigenvector counts as found.
const TOLERANCE: f64 = 1e-13;
/// Restarts of 32 products each, after which all eigenvectors are computed instead.
const RESTARTS: usize = 60;

/// Eigenvectors as columns, the largest eigenvalue's first; `None` where they do not converge. The gram is symmetric and
/// positive semidefinite, `count` at most its rows.
pub(super) fn leading(gram: Mat<f64>, count: usize) -> Option<Mat<f64>> {
    let rows = gram.nrows();
    if rows >= (ROWS.0 * count).max(ROWS.1)
        && let Some(vectors) = partial(gram.as_ref(), count)
    {
        return Some(vectors);
    }
    let eigen = SelfAdjointEigen::new(gram.as_ref(), Side::Lower).ok()?;
    // Eigenvalues come in rising order.
    Some(Mat::from_fn(rows, count, |i, r| eigen.U()[(i, rows - 1 - r)]))
}

/// The same without the other eigenvectors, by faer's Krylov-Schur method; `None` where it may have missed one.
fn partial(gram: MatRef<'_, f64>, count: usize) -> Option<Mat<f64>> {
    let norm = gram.norm_l2();
    // Of zeros any vectors will do, but the method would not end.
    if norm == 0.0 {
        return None;
    }
    let (found, values) = largest(gram, None, count, TOLERANCE * norm)?;
    // A Krylov space from one vector holds one eigenvector of each eigenvalue: of a repeated one the others come in by
    // rounding alone, late, and smaller ones may have been taken for them. Nothing that is left may be larger.
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let (_, left) = largest(gram, Some((found.as_ref(), &values)), 1, 1e-6 * norm)?;
    (left[0] <= least + 1e-6 * norm).then_some(found)
}

/// Eigenvectors and eigenvalues, falling.
fn largest(
    gram: MatRef<'_, f64>,
    without: Option<(MatRef<'_, f64>, &[f64])>,
    count: usize,
    tolerance: f64,
) -> Option<(Mat<f64>, Vec<f64>)> {
    let rows = gram.nrows();
    let mut rng = ChaCha8Rng::seed_from_u64(rows as u64);
    let start = Col::from_fn(rows, |_| rng.random::<f64>() - 0.5);
    let noise = f64::EPSILON * gram.norm_l2() / (rows as f64).sqrt();
    let operator = Operator { gram, without, noise: Mutex::new((noise, rng)) };
    let params = PartialEigenParams { max_restarts: RESTARTS, ..Default::default() };
    let mut memory = MemBuffer::try_new(scratch(&operator, count, Par::Seq, params)).ok()?;
    let (mut vectors, mut values) = (Mat::zeros(rows, count), vec![0.0; count]);
    let stack = MemStack::new(&mut memory);
    let to = vectors.as_mut();
    let info =
        partial_self_adjoint_eigen(to, &mut values, &operator, start.as_ref(), tolerance, Par::Seq, stack, params);
    (info.n_converged_eigen == count).then_some((vectors, values))
}

/// A gram, less the components of some of its eigenvectors.
#[derive(Debug)]
struct Operator<'a> {
    gram: MatRef<'a, f64>,
    without: Option<(MatRef<'a, f64>, &'a [f64])>,
    /// Size, and where it comes from.
    noise: Mutex<(f64, ChaCha8Rng)>,
}

impl LinOp<f64> for Operator<'_> {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }

    fn nrows(&self) -> usize {
        self.gram.nrows()
    }

    fn ncols(&self) -> usize {
        self.gram.ncols()
    }

    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, _: &mut MemStack) {
        matmul(out.as_mut(), Accum::Replace, self.gram, rhs, 1.0, par);
        if let Some((vectors, values)) = self.without {
            let mut parts = vectors.transpose() * rhs;
            for (mut row, value) in parts.row_iter_mut().zip(values) {
                row *= *value;
            }
            matmul(out.as_mut(), Accum::Add, vectors, &parts, -1.0, par);
        }
        // As much as rounding would make of it. The method orthogonalizes until it holds, which for a product that lies in
        // the space so far to the last bit, as with a diagonal gram, is never.
        let (size, rng) = &mut *self.noise.lock().unwrap_or_else(PoisonError::into_inner);
        for column in out.col_iter_mut() {
            column.iter_mut().for_each(|v| *v += *size * (rng.random::<f64>() - 0.5));
        }
    }

    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Q diag(values) Q^T` with a random orthogonal Q.
    fn gram(values: &[f64]) -> Mat<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let n = values.len();
        let q = Mat::from_fn(n, n, |_, _| rng.random::<f64>() - 0.5).qr().compute_Q();
        let scaled = Mat::from_fn(n, n, |i, j| q[(i, j)] * values[j]);
        &scaled * q.transpose()
    }

    /// The largest error of `A v = l v` and of `v^T v = 1`, beside `|A|`.
    fn error(gram: &Mat<f64>, vectors: &Mat<f64>, values: &[f64]) -> f64 {
        let scaled = Mat::from_fn(vectors.nrows(), vectors.ncols(), |i, r| vectors[(i, r)] * values[r]);
        let product = (gram * vectors - scaled).norm_max() / gram.norm_max().max(1e-300);
        let unit = vectors.transpose() * vectors - Mat::<f64>::identity(vectors.ncols(), vectors.ncols());
        product.max(unit.norm_max())
    }

    /// Close, far apart, few that are not zero.
    #[test]
    fn partial_finds_what_the_whole_decomposition_finds() {
        let slow: Vec<f64> = (0..300).map(|i| 1.0 + 1.0 / (1.0 + i as f64)).collect();
        let fast: Vec<f64> = (0..300).map(|i| 0.5f64.powi(i)).collect();
        let few: Vec<f64> = (0..300).map(|i| if i < 3 { 3.0 - i as f64 } else { 0.0 }).collect();
        for values in [slow, fast, few] {
            let gram = gram(&values);
            let vectors = partial(gram.as_ref(), 5).expect("it converges");
            let off = error(&gram, &vectors, &values[..5]);
            assert!(off < 1e-10, "{:?}: {off}", &values[..5]);
            assert!(error(&gram, &vectors, &values[1..6]) > 1e-3 || values[0] < 1e-3);
        }
    }

    /// Repeated eigenvalues, products that stay in a space to the last bit, zeros.
    #[test]
    fn repeated_eigenvalues_are_not_missed() {
        let repeated: Vec<f64> = (0..300).map(|i| if i < 5 { 2.0 } else { 1.0 / (1.0 + i as f64) }).collect();
        let diagonal = Mat::from_fn(300, 300, |i, j| if i == j { repeated[i] } else { 0.0 });
        let grams = [gram(&repeated), diagonal];
        for gram in grams {
            let vectors = leading(gram.clone(), 5).expect("it converges");
            let off = error(&gram, &vectors, &repeated[..5]);
            assert!(off < 1e-10, "{off}");
        }
        for same in [1.0, 0.0] {
            let gram = Mat::from_fn(300, 300, |i, j| if i == j { same } else { 0.0 });
            let vectors = leading(gram.clone(), 3).expect("it converges");
            let off = error(&gram, &vectors, &[same; 3]);
            assert!(off < 1e-10, "{same}: {off}");
        }
    }
}
