//! The small dense part of CP-ALS, in f64: grams, their Hadamard product V, and A V = G.

use crate::{Error, Real, Result};
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::{Llt, SelfAdjointEigen, Solve};
use faer::{Accum, Mat, Par, Side};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// `A^T A`.
pub(super) fn gram<T: Real>(a: &Array2<T>) -> Array2<f64> {
    let (rows, rank) = a.dim();
    let a = Mat::from_fn(rows, rank, |i, r| a[[i, r]].f64());
    let mut gram = Mat::zeros(rank, rank);
    matmul(gram.as_mut(), Accum::Replace, a.transpose(), a.as_ref(), 1.0, Par::rayon(0));
    // The lower half decides, so that the result is symmetric to the last bit.
    Array2::from_shape_fn((rank, rank), |(i, j)| gram[(i.max(j), i.min(j))])
}

/// The Hadamard product of the grams of all modes but `without`.
pub(super) fn hadamard(grams: &[Array2<f64>], rank: usize, without: Option<usize>) -> Array2<f64> {
    let others = grams.iter().enumerate().filter(|&(m, _)| Some(m) != without);
    others.fold(Array2::ones((rank, rank)), |v, (_, gram)| v * gram)
}

/// A solution of A V = G.
pub(super) struct Solution {
    pub a: Array2<f64>,
    /// V was singular to the precision of G's dtype.
    pub deficient: bool,
}

/// Solves A V = G, V symmetric and positive semidefinite with a diagonal of about ones (or zeros: columns that became
/// zero). `mode` is for messages.
///
/// By Cholesky, V = L L^T, where all pivots are above the cutoff: `min L_rr^2 > R eps max L_rr^2`. Otherwise, or if
/// Cholesky fails, by the pseudo-inverse from the eigenvalues of V: those up to `R eps lambda_max` count as zero, which
/// gives the smallest of the least-squares solutions. eps is that of T and not of f64, because G is known to no more
/// than that: an error of eps |X| in G along an eigenvector with eigenvalue l becomes eps |X| / sqrt(l) in the model.
pub(super) fn solve<T: Real>(v: &Array2<f64>, g: ArrayView2<'_, T>, mode: usize) -> Result<Solution> {
    if let Some(((i, r), _)) = g.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let what = format!("MTTKRP of mode {mode}");
        return Err(Error::Overflow { what, dtype: T::DTYPE.name(), index: vec![i, r] });
    }
    let failed = |reason: &str| Error::Linalg {
        what: "the normal equations",
        reason: format!("mode {mode}, rank {}: {reason}", v.nrows()),
    };
    if v.iter().any(|v| !v.is_finite()) {
        return Err(failed("the product of the grams is not finite"));
    }
    let (rows, rank) = g.dim();
    let eps = <T as num_traits::Float>::epsilon().f64();
    let v = Mat::from_fn(rank, rank, |i, j| v[[i, j]]);
    let right = || Mat::from_fn(rank, rows, |r, i| g[[i, r]].f64());
    let array = |a: &Mat<f64>| Array2::from_shape_fn((rows, rank), |(i, r)| a[(r, i)]);

    if let Ok(llt) = Llt::new(v.as_ref(), Side::Lower) {
        let pivots = (0..rank).map(|r| llt.L()[(r, r)].powi(2));
        let (least, most) = pivots.fold((f64::INFINITY, 0.0), |(least, most), p| (p.min(least), p.max(most)));
        if least > rank as f64 * eps * most {
            let mut a = right();
            llt.solve_in_place(a.as_mut());
            let a = array(&a);
            if a.iter().all(|a| a.is_finite()) {
                return Ok(Solution { a, deficient: false });
            }
        }
    }

    let eigen = SelfAdjointEigen::new(v.as_ref(), Side::Lower);
    let eigen = eigen.map_err(|_| failed("the eigenvalues did not converge"))?;
    let lambda: Vec<f64> = (0..rank).map(|r| eigen.S().column_vector()[r]).collect();
    let cutoff = rank as f64 * eps * lambda.iter().copied().fold(0.0, f64::max);
    let mut a = eigen.U().transpose() * right();
    for (r, &l) in lambda.iter().enumerate() {
        a.row_mut(r).iter_mut().for_each(|a| *a = if l > cutoff { *a / l } else { 0.0 });
    }
    let a = array(&(eigen.U() * a));
    if a.iter().any(|a| !a.is_finite()) {
        return Err(failed("the solution is not finite"));
    }
    Ok(Solution { a, deficient: true })
}

/// The 2-norms of the columns, and the columns divided by them. Columns of zeros stay, with norm 0.
pub(super) fn normalize<T: Real>(mut a: Array2<f64>) -> Result<(Array1<f64>, Array2<T>)> {
    let mut norms = Array1::zeros(a.ncols());
    for (r, (mut column, norm)) in a.axis_iter_mut(Axis(1)).zip(&mut norms).enumerate() {
        // By the largest entry first: squares of tiny or huge numbers leave the range of f64.
        let largest = column.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        if largest == 0.0 {
            continue;
        }
        column.mapv_inplace(|v| v / largest);
        let length = column.iter().map(|v| v * v).sum::<f64>().sqrt();
        column.mapv_inplace(|v| v / length);
        *norm = largest * length;
        if !norm.is_finite() {
            return Err(Error::Overflow { what: "the norm of a column".into(), dtype: "f64", index: vec![r] });
        }
    }
    Ok((norms, a.mapv(T::of)))
}
