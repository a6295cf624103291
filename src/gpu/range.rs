//! How far apart the magnitudes in an operand lie, which decides whether f16 matrix units can give the f32 answer.
//!
//! The kernels scale X and every column of the Khatri-Rao product by powers of two so that the largest magnitude is
//! just below 2^15, and split each number into two f16, `v = high + low`. A number keeps f32's digits down to about
//! 2^-1; below that the error is absolute, at most 2^-24, so 2^-38 of the largest. Beside a sum of typical magnitudes
//! that is nothing: it matters where whole slices of X, or whole columns of a factor, are that much smaller than the
//! largest number. So the measure is the mean magnitude of the nonzeros, the smallest over parts of X (slices along the
//! first mode, stretches of 2^16 entries, slices along the last mode) and for every column of a factor. The kernels'
//! bound `(K + d + 1) 2^-23`, K the plan's chain, is kept by both operands when those means lie less than `2^14 K`
//! below the largest: then the absolute errors add up to less than the bound's share of the sum of magnitudes.

use crate::Real;
use crate::plan::MttkrpPlan;
use rayon::prelude::*;

/// Exponents (floor of log2) of the largest magnitude and of the smallest mean over parts; `None` if all are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range(Option<(i32, i32)>);

/// The scaled operands stay below 2 to this.
const TOP: i32 = 15;

/// Exponents that intermediate products may reach without leaving f32.
const SAFE: i32 = 100;

impl Range {
    /// Of one part.
    pub fn of<'a, T: Real>(values: impl Iterator<Item = &'a T>) -> Self {
        let (mut most, mut sum, mut count) = (0.0f64, 0.0, 0u64);
        for v in values {
            let v = v.f64().abs();
            most = most.max(v);
            sum += v;
            count += u64::from(v > 0.0);
        }
        Self::from_sums(most, sum, count)
    }

    /// From the largest and the mean magnitude of the nonzeros.
    pub fn from_magnitudes(largest: f64, mean: f64) -> Self {
        Self::from_sums(largest, mean, 1)
    }

    fn from_sums(most: f64, sum: f64, count: u64) -> Self {
        Self(exponent(most).zip(exponent(sum / count as f64)))
    }

    /// Of a row-major tensor, in parallel.
    pub fn of_tensor<T: Real>(values: &[T], dims: &[usize]) -> Self {
        let last = dims.last().copied().unwrap_or(1);
        let slice = values.len() / dims.first().copied().unwrap_or(1);
        let stretch = slice.min(1 << 16).next_multiple_of(last).max(1);
        // Slices along the last mode are columns of the matrix that has it as rows; sums of them where they fit a cache.
        let columns = if dims.len() > 1 && last <= 1 << 14 { last } else { 0 };
        let empty = || (Self(None), vec![(0.0f64, 0u32); columns]);
        let (range, sums) = values
            .par_chunks(stretch)
            .fold(empty, |(range, mut sums), part| {
                for row in part.chunks(last) {
                    for (sum, v) in sums.iter_mut().zip(row) {
                        *sum = (sum.0 + v.f64().abs(), sum.1.saturating_add(u32::from(*v != T::zero())));
                    }
                }
                (range.join(Self::of(part.iter())), sums)
            })
            .reduce(empty, |(a, mut sums), (b, others)| {
                sums.iter_mut().zip(others).for_each(|(s, o)| *s = (s.0 + o.0, s.1.saturating_add(o.1)));
                (a.join(b), sums)
            });
        sums.into_iter().fold(range, |range, (sum, count)| {
            let mean = sum / f64::from(count.max(1));
            range.join(Self::from_sums(mean, mean, 1))
        })
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

    /// A magnitude with the exponent of the largest; 0 where all are zero.
    pub fn largest(self) -> f64 {
        self.0.map_or(0.0, |(most, _)| f64::from(most).exp2())
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

/// Two rows for a group of modes, as `scale_rows` has them for each mode's others.
pub(super) fn group_scale_rows<T: Real>(ranges: &[Vec<Range>], group: std::ops::Range<usize>) -> ndarray::Array2<T> {
    let ranges = &ranges[group];
    ndarray::Array2::from_shape_fn((2, ranges[0].len()), |(row, r)| {
        let exponent = (TOP - ranges.iter().map(|mode| mode[r].top()).sum::<i32>()).clamp(-SAFE - TOP, SAFE + TOP);
        T::of(f64::from(if row == 0 { exponent } else { -exponent }).exp2())
    })
}

/// Whether the plan's f16 kernels keep the bound with operands of these ranges.
pub(super) fn fits(plan: &MttkrpPlan, x: Range, factors: &[Vec<Range>]) -> bool {
    fits_chain(plan.chain(), x, &others(factors, plan.mode()).collect::<Vec<_>>())
}

/// Whether f16 kernels keep the bound of a product with these factors whose longest chain of additions is `chain`.
pub(super) fn fits_chain(chain: u64, x: Range, factors: &[&Vec<Range>]) -> bool {
    let span = TOP - 1 + chain.max(1).ilog2() as i32;
    let columns = (0..factors.first().map_or(0, |mode| mode.len())).all(|r| {
        let modes = || factors.iter().map(|mode| mode[r]);
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
        let values = [0.0f32, -3.0, 0.5, 1.0];
        assert_eq!(Range::of(values.iter()), Range(Some((1, 0))));
        assert_eq!(Range::of_tensor(&values, &[2, 2]), Range(Some((1, -1))));
        assert_eq!(Range::of_tensor(&[0.0f32; 3], &[3]), Range(None));
        assert_eq!(Range::of(values.iter()).x_scale() * 3.0, 24576.0);
    }

    #[test]
    fn small_slices_are_seen_along_the_first_and_the_last_mode() {
        let spans = |dims: [usize; 3], small: &dyn Fn(usize) -> bool| {
            let values: Vec<f32> = (0..60).map(|at| if small(at) { 1e-6 } else { 1.0 }).collect();
            Range::of_tensor(&values, &dims).span()
        };
        assert_eq!(spans([3, 4, 5], &|at| at < 20), 20);
        assert_eq!(spans([3, 4, 5], &|at| at % 5 == 2), 20);
        assert!(spans([3, 4, 5], &|at| at % 7 == 2) <= 1);
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
