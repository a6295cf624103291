//! How far apart the magnitudes in an operand lie, which decides whether f16 matrix units can give the f32 answer.
//!
//! The kernels scale X and every column of the Khatri-Rao product by powers of two so that the largest magnitude is
//! just below 2^15, and split each number into two f16, `v = high + low`. A number keeps f32's digits down to about
//! 2^-1; below that the error is absolute, at most 2^-24, so 2^-38 of the largest. The bound that every kernel has to
//! keep is `(K + d + 1) 2^-23` of each product's magnitude, K the plan's chain. Half of it for each of the two
//! operands: the smallest magnitude may lie `2^14 K` below the largest. Zeros do not count, they are exact.

use crate::Real;
use crate::plan::MttkrpPlan;
use rayon::prelude::*;

/// Exponents (floor of log2) of the largest and the smallest nonzero magnitude; `None` if all are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range(Option<(i32, i32)>);

/// The scaled operands stay below 2 to this.
const TOP: i32 = 15;

/// Exponents that intermediate products may reach without leaving f32.
const SAFE: i32 = 100;

impl Range {
    pub fn of<'a, T: Real>(values: impl Iterator<Item = &'a T>) -> Self {
        values.fold(Self(None), |range, v| range.with(exponent(v.f64())))
    }

    /// The same of many entries, in parallel.
    pub fn of_slice<T: Real>(values: &[T]) -> Self {
        let parts = values.par_chunks(1 << 16).map(|part| {
            // Magnitudes order as they are; only two exponents a part are needed.
            let (mut least, mut most) = (T::infinity(), T::zero());
            for v in part {
                let v = num_traits::Float::abs(*v);
                most = if v > most { v } else { most };
                least = if v < least && v > T::zero() { v } else { least };
            }
            Self::of([least, most].iter().filter(|v| num_traits::Float::is_finite(**v)))
        });
        parts.reduce(|| Self(None), Self::join)
    }

    fn with(self, exponent: Option<i32>) -> Self {
        self.join(Self(exponent.map(|e| (e, e))))
    }

    fn join(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) => Self(Some((a.max(c), b.min(d)))),
            (one, None) | (None, one) => Self(one),
        }
    }

    /// Every magnitude is below 2 to this (0 where all are zero).
    fn top(self) -> i32 {
        self.0.map_or(0, |(most, _)| most + 1)
    }

    fn span(self) -> i32 {
        self.0.map_or(0, |(most, least)| most - least)
    }

    /// The power of two that X is multiplied by.
    pub fn x_scale(self) -> f32 {
        ((TOP - self.top()) as f32).exp2()
    }
}

fn exponent(v: f64) -> Option<i32> {
    (v != 0.0).then(|| v.abs().log2().floor() as i32)
}

/// Exponent of the power of two that a column of the Khatri-Rao product without mode `n` is multiplied by.
fn column_exponent(ranges: &[Vec<Range>], n: usize, r: usize) -> i32 {
    TOP - others(ranges, n).map(|mode| mode[r].top()).sum::<i32>()
}

fn others(ranges: &[Vec<Range>], n: usize) -> impl Iterator<Item = &Vec<Range>> {
    ranges.iter().enumerate().filter(move |&(m, _)| m != n).map(|(_, mode)| mode)
}

/// Two rows for each mode: the scales of the columns, and the weights over them, which undoes it.
pub(super) fn scale_rows<T: Real>(ranges: &[Vec<Range>], weights: &[T]) -> ndarray::Array2<T> {
    ndarray::Array2::from_shape_fn((2 * ranges.len(), weights.len()), |(row, r)| {
        let exponent = f64::from(column_exponent(ranges, row / 2, r).clamp(-SAFE - TOP, SAFE + TOP));
        if row % 2 == 0 { T::of(exponent.exp2()) } else { T::of(weights[r].f64() * (-exponent).exp2()) }
    })
}

/// Whether the plan's f16 kernels keep the bound with operands of these ranges.
pub(super) fn fits(plan: &MttkrpPlan, x: Range, factors: &[Vec<Range>]) -> bool {
    let span = TOP - 1 + plan.chain().max(1).ilog2() as i32;
    let columns = (0..plan.rank()).all(|r| {
        let modes = || others(factors, plan.mode()).map(|mode| mode[r]);
        modes().map(Range::span).sum::<i32>() <= span && modes().map(|m| m.top().abs()).sum::<i32>() <= SAFE
    });
    columns && x.span() <= span && x.top().abs() <= SAFE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DeviceCaps, PlanOptions};

    #[test]
    fn exponents_of_the_extremes() {
        let values = [0.0f32, -3.0, 0.25, 1.0];
        assert_eq!(Range::of(values.iter()), Range(Some((1, -2))));
        assert_eq!(Range::of_slice(&values), Range(Some((1, -2))));
        assert_eq!(Range::of_slice(&[0.0f32; 3]), Range(None));
        assert_eq!(Range::of(values.iter()).x_scale() * 3.0, 24576.0);
    }

    #[test]
    fn a_span_too_wide_does_not_fit() {
        let plan = MttkrpPlan::new(&[2, 4, 4], 0, 1, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
        let near = Range(Some((0, 0)));
        let factors = vec![vec![near]; 3];
        assert!(fits(&plan, Range(Some((0, -18))), &factors));
        assert!(!fits(&plan, Range(Some((0, -19))), &factors));
        assert!(!fits(&plan, Range(Some((120, 120))), &factors));
        let wide = vec![vec![near], vec![Range(Some((0, -10)))], vec![Range(Some((0, -9)))]];
        assert!(!fits(&plan, near, &wide));
    }
}
