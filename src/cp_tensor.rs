//! A CP model (ktensor elsewhere): weights and one factor matrix per mode.

mod core;
mod full;
mod normalize;
mod scaled;
mod score;

pub use score::{Score, ScoreOptions};

use crate::{Error, Real, Result, Shape};
use ndarray::{Array1, Array2};

/// A CP model of rank R: `X[i, j, ..] ~ sum_r weights[r] * factors[0][i, r] * factors[1][j, r] * ..`.
///
/// Invariant: at least one factor, every factor is `I_n x R`, weights have length R, all entries are finite.
///
/// ```
/// use ndarray::{array, Array1};
/// use polyad::CpTensor;
/// let model = CpTensor::new(Array1::ones(1), vec![array![[1.0], [2.0]], array![[3.0], [4.0]]]).unwrap();
/// assert_eq!((model.rank(), model.dims()), (1, vec![2, 2]));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CpTensor<T> {
    weights: Array1<T>,
    factors: Vec<Array2<T>>,
}

impl<T: Real> CpTensor<T> {
    /// Checks shapes and values. Weights have length R, factor `n` is `I_n x R`.
    ///
    /// # Errors
    /// [`Error::FactorShape`], [`Error::WeightsLength`], [`Error::NonFinite`] and what [`Shape::new`] says of the dims.
    ///
    /// ```
    /// use ndarray::{Array1, Array2};
    /// let wrong = polyad::CpTensor::<f64>::new(Array1::ones(2), vec![Array2::ones((3, 2)), Array2::ones((4, 1))]);
    /// assert!(wrong.is_err());
    /// ```
    pub fn new(weights: Array1<T>, factors: Vec<Array2<T>>) -> Result<Self> {
        let dims: Vec<usize> = factors.iter().map(|f| f.nrows()).collect();
        let sizes: Vec<(usize, usize)> = factors.iter().map(|f| f.dim()).collect();
        Shape::new(&dims)?.check_factors(&sizes, Some(weights.len()))?;
        if let Some((r, v)) = weights.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(Error::NonFinite { what: "the weights".into(), index: vec![r], value: v.f64() });
        }
        for (mode, factor) in factors.iter().enumerate() {
            if let Some(((i, r), v)) = factor.indexed_iter().find(|(_, v)| !v.is_finite()) {
                return Err(Error::NonFinite { what: format!("factor {mode}"), index: vec![i, r], value: v.f64() });
            }
        }
        Ok(Self { weights, factors })
    }
}

impl<T> CpTensor<T> {
    /// The weights, length R.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// assert_eq!(model.weights().len(), 2);
    /// ```
    pub fn weights(&self) -> &Array1<T> {
        &self.weights
    }

    /// The factor matrices, `I_n x R` each.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// assert_eq!(model.factors()[0].dim(), (3, 2));
    /// ```
    pub fn factors(&self) -> &[Array2<T>] {
        &self.factors
    }

    /// The number of components R.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// assert_eq!(model.rank(), 2);
    /// ```
    pub fn rank(&self) -> usize {
        self.weights.len()
    }

    /// Rows of each factor: the dims of the tensor that the model stands for.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// assert_eq!(model.dims(), [3]);
    /// ```
    pub fn dims(&self) -> Vec<usize> {
        self.factors.iter().map(|f| f.nrows()).collect()
    }

    /// The same model in f64, exactly.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// assert_eq!(model.to_f64().factors()[0][[2, 1]], 1.0f64);
    /// ```
    pub fn to_f64(&self) -> CpTensor<f64>
    where
        T: Real,
    {
        let factors = self.factors.iter().map(|f| f.mapv(Real::f64)).collect();
        CpTensor { weights: self.weights.mapv(Real::f64), factors }
    }

    /// The weights and the factors, without a copy.
    ///
    /// ```
    /// # use ndarray::{Array1, Array2};
    /// let model = polyad::CpTensor::new(Array1::ones(2), vec![Array2::<f32>::ones((3, 2))]).unwrap();
    /// let (weights, factors) = model.into_parts();
    /// assert_eq!((weights.len(), factors.len()), (2, 1));
    /// ```
    pub fn into_parts(self) -> (Array1<T>, Vec<Array2<T>>) {
        (self.weights, self.factors)
    }
}
