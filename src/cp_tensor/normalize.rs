//! Forms of a model that stand for the same tensor: unit columns, sorted components, settled signs.

use super::CpTensor;
use super::scaled::Scaled;
use crate::Real;
use ndarray::{Array2, Axis};

impl<T: Real> CpTensor<T> {
    /// Gives every column unit 2-norm and moves the norms into the weights.
    ///
    /// A zero column stays zero and its component gets weight 0. Squares are taken in f64 on scaled columns, so entries
    /// of 1e30 in f32 or 1e200 in f64 do no harm. A component whose weight would leave the normal range of `T` (an f32
    /// model with entries of 1e30 in three modes has a weight of 1e90) is left as it is.
    ///
    /// ```
    /// use ndarray::{array, Array1};
    /// let factors = vec![array![[3.0], [4.0]], array![[0.0], [2.0]]];
    /// let mut model = polyad::CpTensor::new(Array1::from_elem(1, 7.0), factors).unwrap();
    /// model.normalize();
    /// assert_eq!(model.weights(), &array![70.0]);
    /// assert_eq!(model.factors()[0], array![[0.6], [0.8]]);
    /// ```
    pub fn normalize(&mut self) {
        let unit = Scaled::new(self).into_unit();
        for (r, weight) in unit.weights.iter().enumerate() {
            let value = T::of(weight.value());
            let in_range = value.is_finite() && value.abs() >= T::min_positive_value();
            if !in_range && weight.exponent().is_some() {
                continue;
            }
            self.weights[r] = value;
            for (factor, columns) in self.factors.iter_mut().zip(&unit.columns) {
                factor.column_mut(r).zip_mut_with(&columns.column(r), |v, &u| *v = T::of(u));
            }
        }
    }

    /// [`normalize`](Self::normalize), then weights of at least 0 in falling order.
    ///
    /// The sign of a negative weight moves into the first factor. Components of equal weight keep their order.
    ///
    /// ```
    /// use ndarray::array;
    /// let factors = vec![array![[1.0, 1.0]], array![[1.0, 0.0], [0.0, 1.0]]];
    /// let mut model = polyad::CpTensor::new(array![2.0, -5.0], factors).unwrap();
    /// model.arrange();
    /// assert_eq!(model.weights(), &array![5.0, 2.0]);
    /// assert_eq!(model.factors()[0], array![[-1.0, 1.0]]);
    /// ```
    pub fn arrange(&mut self) {
        self.normalize();
        for (r, weight) in self.weights.iter_mut().enumerate() {
            if *weight < T::zero() {
                negate(&mut self.factors[0], r);
            }
            *weight = weight.abs();
        }
        // Whole magnitudes, not just weights: a component that could not be normalized has part of its in the columns.
        let magnitudes = Scaled::new(self).into_unit().weights;
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.sort_by(|&a, &b| magnitudes[b].cmp_abs(magnitudes[a]));
        self.weights = self.weights.select(Axis(0), &order);
        for factor in &mut self.factors {
            *factor = factor.select(Axis(1), &order);
        }
    }

    /// Makes the entry of largest magnitude of each column positive, as far as signs can be flipped in pairs.
    ///
    /// Two flips in one component leave the tensor as it was. Where an odd number of a component's columns have a
    /// negative largest entry, the last of them (by mode) stays negative. Weights keep their signs. Of entries of equal
    /// magnitude the first counts. These are the semantics of Tensor Toolbox's `fixsigns`.
    ///
    /// ```
    /// use ndarray::{array, Array1};
    /// let factors = vec![array![[1.0], [-2.0]], array![[-3.0]], array![[-1.0], [0.5]]];
    /// let mut model = polyad::CpTensor::new(Array1::ones(1), factors).unwrap();
    /// model.fix_signs();
    /// assert_eq!(model.factors(), [array![[-1.0], [2.0]], array![[3.0]], array![[-1.0], [0.5]]]);
    /// ```
    pub fn fix_signs(&mut self) {
        for r in 0..self.rank() {
            let negative: Vec<usize> =
                (0..self.factors.len()).filter(|&n| largest_is_negative(&self.factors[n], r)).collect();
            let pairs = negative.len() / 2 * 2;
            for &n in &negative[..pairs] {
                negate(&mut self.factors[n], r);
            }
        }
    }
}

fn negate<T: Real>(factor: &mut Array2<T>, column: usize) {
    factor.column_mut(column).mapv_inplace(|v| -v);
}

fn largest_is_negative<T: Real>(factor: &Array2<T>, column: usize) -> bool {
    let largest = factor.column(column).iter().fold(T::zero(), |m, &v| if v.abs() > m.abs() { v } else { m });
    largest < T::zero()
}
