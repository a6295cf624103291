//! Core consistency: whether a tensor has the components that a model says it has, and no fewer.

use super::CpTensor;
use super::scaled::Scaled;
use crate::{Error, Real, Result};
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::SelfAdjointEigen;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};
use ndarray::{Array2, ArrayView, Dimension};

/// Entries of the largest intermediate tensor.
const MAX_ENTRIES: usize = 1 << 27;

impl<T: Real> CpTensor<T> {
    /// Core consistency of this model of x, in percent: `100 (1 - |C - I|^2 / R)`.
    ///
    /// C, of dims R x R x .., is the core of the Tucker model with these factors that fits x best, and I the tensor of ones on
    /// the superdiagonal, which is what CP says the core is. Near 100 the components are there; near 0 or below they model
    /// each other, usually because there are too many of them. It depends on how a component's weight is spread over its
    /// columns: here evenly, so that all columns of a component have the same norm. R. Bro and H. A. L. Kiers, Journal of
    /// Chemometrics 17, 2003, DOI 10.1002/cem.801.
    ///
    /// It takes one pass over x and is computed in f64 on the host. The factors' pseudo-inverses leave out singular values that
    /// are nothing but rounding: up to `R eps` of the largest, eps being that of `T` and at least the root of f64's.
    ///
    /// # Errors
    /// [`Error::DimsMismatch`] where x has other dims, [`Error::NonFinite`] for a model and a tensor so far apart in scale that
    /// the core is beyond f64, [`Error::TooManyElements`] where the core, or what is on the way to it, is too large.
    ///
    /// ```
    /// use ndarray::{Array1, array};
    /// let factors = vec![array![[1.0, 0.0], [1.0, 1.0]], array![[2.0, 1.0], [0.0, 1.0]], array![[1.0, 1.0], [0.0, 3.0]]];
    /// let model = polyad::CpTensor::new(Array1::ones(2), factors).unwrap();
    /// let x = model.to_full().unwrap();
    /// assert!((model.core_consistency(x.view()).unwrap() - 100.0).abs() < 1e-9);
    /// ```
    pub fn core_consistency<D: Dimension>(&self, x: ArrayView<'_, T, D>) -> Result<f64> {
        let (dims, rank, order) = (self.dims(), self.rank(), self.dims().len());
        if x.shape() != dims {
            return Err(Error::DimsMismatch { what: "the tensor", expected: dims, found: x.shape().to_vec() });
        }
        // The inverse of a column is the inverse of its scale times that of the unit column; the scales come last.
        let unit = Scaled::new(self).into_unit();
        let eps = <T as num_traits::Float>::epsilon().f64();
        let cutoff = (rank as f64 * eps).powi(2).max(rank as f64 * f64::EPSILON);
        let inverses =
            unit.columns.iter().map(|columns| pseudo_inverse(columns, cutoff)).collect::<Result<Vec<_>>>()?;

        // One mode after the other from the last on: (.., I) times (I x R) moves the new mode to the front, so that after all
        // of them the modes are in order again.
        let entries = |left: usize| left.checked_mul(rank).filter(|&n| n <= MAX_ENTRIES);
        let too_large = || Error::TooManyElements { what: "the core of the model", dims: vec![rank; order] };
        let x = x.as_standard_layout();
        let scale = x.iter().fold(0.0, |m: f64, v| m.max(v.f64().abs()));
        let scale = if scale > 0.0 { scale } else { 1.0 };
        let mut core: Vec<f64> = Vec::new();
        let mut len = x.len();
        for (mode, inverse) in inverses.iter().enumerate().rev() {
            let rows = dims[mode];
            let left = len / rows;
            len = entries(left).ok_or_else(too_large)?;
            let mut next = vec![0.0; len];
            // Row-major next: R x left.
            let piece = ((1 << 20) / rows).max(1);
            let mut block = Vec::new();
            for first in (0..left).step_by(piece) {
                let count = piece.min(left - first);
                let range = first * rows..(first + count) * rows;
                block.clear();
                if mode == order - 1 {
                    let x = x.as_slice().unwrap_or_default();
                    block.extend(x[range].iter().map(|v| v.f64() / scale));
                } else {
                    block.extend_from_slice(&core[range]);
                }
                let fibres = MatRef::from_column_major_slice(&block, rows, count);
                let mut to = MatMut::from_row_major_slice_mut(&mut next, rank, left);
                let to = to.as_mut().subcols_mut(first, count);
                matmul(to, Accum::Replace, inverse.as_ref(), fibres, 1.0, Par::rayon(0));
            }
            core = next;
        }

        // What evenly spread weights make of it: a factor of |w|^(-1/d) for every index.
        let spread: Vec<f64> = unit.weights.iter().map(|w| w.root(order as u32)).collect();
        let shares = |position: usize| {
            let mut rest = position;
            let (mut product, mut diagonal, last) = (scale, true, position % rank);
            for _ in 0..order {
                let r = rest % rank;
                // Roots one by one: their product may leave the range that the quotient stays in.
                product = if spread[r] > 0.0 { product / spread[r] } else { 0.0 };
                diagonal &= r == last;
                rest /= rank;
            }
            (product * unit.weights[last].sign().powi(i32::from(diagonal)), diagonal)
        };
        let mut misfit = 0.0;
        for (position, value) in core.iter().enumerate() {
            let (share, diagonal) = shares(position);
            misfit += (value * share - f64::from(u8::from(diagonal))).powi(2);
        }
        if !misfit.is_finite() {
            return Err(Error::NonFinite { what: "the core consistency".into(), index: vec![], value: misfit });
        }
        Ok(100.0 * (1.0 - misfit / rank as f64))
    }
}

/// The pseudo-inverse of a factor, `R x I`, from the eigenvalues of its gram that are above `cutoff` times the largest.
fn pseudo_inverse(a: &Array2<f64>, cutoff: f64) -> Result<Mat<f64>> {
    let (rows, rank) = a.dim();
    let a = Mat::from_fn(rows, rank, |i, r| a[[i, r]]);
    let gram = a.transpose() * &a;
    let eigen = SelfAdjointEigen::new(gram.as_ref(), Side::Lower).map_err(|_| Error::Linalg {
        what: "the core consistency",
        reason: format!("the eigenvalues of a factor of {rows} x {rank} did not converge"),
    })?;
    let lambda: Vec<f64> = (0..rank).map(|r| eigen.S().column_vector()[r]).collect();
    let cutoff = cutoff * lambda.iter().copied().fold(0.0, f64::max);
    let inverse = Mat::from_fn(rank, rank, |i, r| if lambda[r] > cutoff { eigen.U()[(i, r)] / lambda[r] } else { 0.0 });
    Ok(inverse * eigen.U().transpose() * a.transpose())
}
