//! The tensor that a model stands for, and its norm.

use super::CpTensor;
use super::scaled::{Scaled, Wide, times_power_of_two};
use crate::{Error, Real, Result, Shape};
use ndarray::{Array2, ArrayD, IxDyn};
use rayon::prelude::*;

impl<T: Real> CpTensor<T> {
    /// Frobenius norm of the tensor that the model stands for, without forming it: O(R^2 * sum of dims).
    ///
    /// `|Xhat|^2 = w' (U_0'U_0 * U_1'U_1 * ..) w` in f64 with columns and weights scaled by powers of two, so weights of
    /// 1e200 are fine; it is infinite only where the norm itself exceeds f64. Where components cancel, the absolute error
    /// is about the square root of f64's epsilon times the norm of the largest component.
    ///
    /// ```
    /// use ndarray::{array, Array1};
    /// let factors = vec![array![[3.0], [4.0]], array![[0.0], [2.0]]];
    /// let model = polyad::CpTensor::new(Array1::from_elem(1, 1e200), factors).unwrap();
    /// assert!((model.norm() / 1e201 - 1.0).abs() < 1e-15);
    /// ```
    pub fn norm(&self) -> f64 {
        let scaled = Scaled::new(self);
        let (w, exponent) = scaled.common_exponent();
        let mut products = Array2::from_shape_fn((w.len(), w.len()), |(r, s)| w[r] * w[s]);
        for columns in &scaled.columns {
            products *= &columns.t().dot(columns);
        }
        times_power_of_two(products.sum().max(0.0).sqrt(), exponent)
    }

    /// The full tensor, row-major, dims `I_0 x I_1 x ..`. Sums are taken in f64 and rounded once.
    ///
    /// # Errors
    /// [`Error::TooManyElements`] where the tensor cannot be addressed or allocated, [`Error::Overflow`] where an entry
    /// leaves the range of `T`.
    ///
    /// ```
    /// use ndarray::{array, Array1};
    /// let model = polyad::CpTensor::new(Array1::ones(1), vec![array![[1.0], [2.0]], array![[3.0], [4.0]]]).unwrap();
    /// assert_eq!(model.to_full().unwrap(), array![[3.0, 4.0], [6.0, 8.0]].into_dyn());
    /// ```
    pub fn to_full(&self) -> Result<ArrayD<T>> {
        let dims = self.dims();
        let shape = Shape::new(&dims)?;
        let too_large = || Error::TooManyElements { what: "the full tensor", dims: dims.clone() };
        let mut full: Vec<T> = Vec::new();
        full.try_reserve_exact(shape.len()).map_err(|_| too_large())?;
        full.resize(shape.len(), T::zero());

        let scaled = Scaled::new(self);
        let (w, exponent) = scaled.common_exponent();
        let last = shape.order() - 1;
        // One fibre along the last mode at a time: what its other indices contribute is the same for all its entries.
        full.par_chunks_mut(shape.rows(last)).enumerate().for_each_init(
            || vec![0.0; w.len()],
            |coefficients, (fibre, entries)| {
                coefficients.copy_from_slice(&w);
                let mut rest = fibre;
                for (columns, dim) in scaled.columns[..last].iter().zip(&dims).rev() {
                    coefficients.iter_mut().zip(columns.row(rest % dim)).for_each(|(c, a)| *c *= a);
                    rest /= dim;
                }
                for (entry, row) in entries.iter_mut().zip(scaled.columns[last].rows()) {
                    let sum: f64 = row.iter().zip(&*coefficients).map(|(a, c)| a * c).sum();
                    *entry = T::of(Wide::new(sum, exponent).value());
                }
            },
        );
        if let Some(position) = full.par_iter().position_first(|v| !v.is_finite()) {
            let what = "the full tensor".into();
            return Err(Error::Overflow { what, dtype: T::DTYPE.name(), index: shape.index(position) });
        }
        ArrayD::from_shape_vec(IxDyn(&dims), full).map_err(|_| too_large())
    }
}
