//! Columns scaled by powers of two, so that squares and products of weights and norms neither overflow nor underflow.
//!
//! A power of two changes no digit: models of small integers keep exact norms and exact full tensors.

use super::CpTensor;
use crate::Real;
use ndarray::{Array2, Axis};
use std::cmp::Ordering;

/// `mantissa * 2^exponent` with `0.5 <= |mantissa| < 1`, or zero. Its range is far beyond that of f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wide {
    mantissa: f64,
    exponent: i32,
}

impl Wide {
    pub const ZERO: Self = Self { mantissa: 0.0, exponent: 0 };

    /// `value * 2^exponent`, for a finite value.
    pub fn new(value: f64, exponent: i32) -> Self {
        if value == 0.0 {
            return Self::ZERO;
        }
        let shift = exponent_of(value);
        Self { mantissa: times_power_of_two(value, -shift), exponent: exponent + shift }
    }

    pub fn times(self, other: Self) -> Self {
        Self::new(self.mantissa * other.mantissa, self.exponent + other.exponent)
    }

    /// 1 or -1; 1 for zero.
    pub fn sign(self) -> f64 {
        if self.mantissa < 0.0 { -1.0 } else { 1.0 }
    }

    /// The nearest f64: an infinity or zero where it is out of range.
    pub fn value(self) -> f64 {
        times_power_of_two(self.mantissa, self.exponent)
    }

    /// The n-th root of the magnitude; 0 for zero.
    pub fn root(self, n: u32) -> f64 {
        if self.mantissa == 0.0 {
            return 0.0;
        }
        ((self.mantissa.abs().log2() + f64::from(self.exponent)) / f64::from(n)).exp2()
    }

    /// `self / 2^exponent`.
    pub fn relative_to(self, exponent: i32) -> f64 {
        times_power_of_two(self.mantissa, self.exponent - exponent)
    }

    /// The smaller of two magnitudes over the larger: 1 where they are equal, also where both are zero.
    pub fn ratio(self, other: Self) -> f64 {
        let (small, large) = if self.cmp_abs(other).is_lt() { (self, other) } else { (other, self) };
        if large.mantissa == 0.0 {
            return 1.0;
        }
        times_power_of_two((small.mantissa / large.mantissa).abs(), small.exponent - large.exponent)
    }

    /// Compares magnitudes.
    pub fn cmp_abs(self, other: Self) -> Ordering {
        match (self.mantissa == 0.0, other.mantissa == 0.0) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => self.exponent.cmp(&other.exponent).then(self.mantissa.abs().total_cmp(&other.mantissa.abs())),
        }
    }

    /// The exponent, `None` for zero.
    pub fn exponent(self) -> Option<i32> {
        (self.mantissa != 0.0).then_some(self.exponent)
    }
}

/// A model in f64 with every column scaled into [-1, 1] by a power of two.
///
/// `Xhat = sum_r weights[r] * columns[0][.., r] o columns[1][.., r] o ..`
pub(super) struct Scaled {
    /// Weights with the scales of their columns, length R. Zero where a column is zero.
    pub weights: Vec<Wide>,
    /// `I_n x R` each; the largest magnitude in a column is in [0.5, 1), or the column is zero.
    pub columns: Vec<Array2<f64>>,
}

impl Scaled {
    pub fn new<T: Real>(model: &CpTensor<T>) -> Self {
        let mut weights: Vec<Wide> = model.weights.iter().map(|w| Wide::new(w.f64(), 0)).collect();
        let mut columns = Vec::with_capacity(model.factors.len());
        for factor in &model.factors {
            let mut scaled = factor.mapv(|v| v.f64());
            for (mut column, weight) in scaled.axis_iter_mut(Axis(1)).zip(&mut weights) {
                let largest = column.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                *weight = if largest == 0.0 {
                    Wide::ZERO
                } else {
                    let exponent = exponent_of(largest);
                    column.mapv_inplace(|v| times_power_of_two(v, -exponent));
                    weight.times(Wide::new(1.0, exponent))
                };
            }
            columns.push(scaled);
        }
        Self { weights, columns }
    }

    /// `(w, E)` with `w[r] * 2^E = weights[r]` and the largest `|w[r]|` in [0.5, 1).
    pub fn common_exponent(&self) -> (Vec<f64>, i32) {
        let exponent = self.weights.iter().filter_map(|w| w.exponent()).max().unwrap_or(0);
        (self.weights.iter().map(|w| w.relative_to(exponent)).collect(), exponent)
    }

    /// Makes the columns unit vectors; their norms go into the weights. Zero columns stay zero.
    pub fn into_unit(mut self) -> Self {
        for columns in &mut self.columns {
            for (mut column, weight) in columns.axis_iter_mut(Axis(1)).zip(&mut self.weights) {
                let norm = column.iter().map(|v| v * v).sum::<f64>().sqrt();
                if norm > 0.0 {
                    column.mapv_inplace(|v| v / norm);
                    *weight = weight.times(Wide::new(norm, 0));
                }
            }
        }
        self
    }
}

/// `e` with `0.5 <= |value| / 2^e < 1`, for finite non-zero values.
fn exponent_of(value: f64) -> i32 {
    let biased = |v: f64| ((v.to_bits() >> 52) & 0x7ff) as i32;
    match biased(value) {
        0 => biased(value * 2f64.powi(64)) - 1022 - 64, // a subnormal number
        b => b - 1022,
    }
}

/// `value * 2^exponent` without an intermediate that overflows or underflows.
pub(super) fn times_power_of_two(mut value: f64, mut exponent: i32) -> f64 {
    while exponent > 1000 && value != 0.0 && value.is_finite() {
        value *= 2f64.powi(1000);
        exponent -= 1000;
    }
    while exponent < -1000 && value != 0.0 {
        value *= 2f64.powi(-1000);
        exponent += 1000;
    }
    value * 2f64.powi(exponent.clamp(-1000, 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_numbers_come_back() {
        for v in [1.0, -3.5, 5e-324, f64::MAX, f64::MIN_POSITIVE, 1e-310, 0.0] {
            assert_eq!(Wide::new(v, 0).value(), v);
        }
        let huge = Wide::new(1e300, 0).times(Wide::new(1e300, 0));
        assert_eq!(huge.value(), f64::INFINITY);
        let back = huge.times(Wide::new(1e-300, 0)).value();
        assert!((back / 1e300 - 1.0).abs() < 1e-14, "{back}");
        assert_eq!(Wide::new(1.0, -5000).value(), 0.0);
    }

    #[test]
    fn ratios_and_order() {
        let (a, b) = (Wide::new(2.0, 3000), Wide::new(-3.0, 3000));
        assert!((a.ratio(b) - 2.0 / 3.0).abs() < 1e-15);
        assert_eq!(a.cmp_abs(b), Ordering::Less);
        assert_eq!(Wide::ZERO.ratio(Wide::ZERO), 1.0);
        assert_eq!(Wide::ZERO.ratio(a), 0.0);
        assert_eq!(Wide::ZERO.cmp_abs(Wide::new(1.0, -3000)), Ordering::Less);
    }
}
