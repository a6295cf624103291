//! The micro-kernels: the product of a few rows of X and a block of KR, summed in registers. An entry of X is spread
//! over a vector and multiplied by vectors of ranks, so that X is read where it lies, in whatever order.

use super::simd::{Element, zero};
use pulp::Simd;

/// Sums of M rows and N vectors of ranks.
pub(super) type Sums<T, S, const M: usize, const N: usize> = [[<T as Element>::V<S>; N]; M];

/// No sums yet.
#[inline(always)]
pub(super) fn none<T: Element, S: Simd, const M: usize, const N: usize>() -> Sums<T, S, M, N> {
    [[zero::<T, S>(); N]; M]
}

/// `sums[m] += sum_k x[m][k] kr[k]`, X contiguous along k.
#[inline(always)]
pub(super) fn along_k<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    mut sums: Sums<T, S, M, N>,
    x: [&[T]; M],
    kr: &[[T::V<S>; N]],
) -> Sums<T, S, M, N> {
    // With lengths that are known to be equal, nothing is checked inside the loop.
    let x = x.map(|row| &row[..kr.len()]);
    for (k, kr) in kr.iter().enumerate() {
        for (sums, x) in sums.iter_mut().zip(&x) {
            let x = T::splat(s, x[k]);
            for (sum, &kr) in sums.iter_mut().zip(kr) {
                *sum = T::fma(s, x, kr, *sum);
            }
        }
    }
    sums
}

/// `sums[m] += sum_k x[k * stride + m] kr[k]`, X contiguous along the rows.
#[inline(always)]
pub(super) fn along_rows<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    mut sums: Sums<T, S, M, N>,
    x: &[T],
    stride: usize,
    kr: &[[T::V<S>; N]],
) -> Sums<T, S, M, N> {
    let mut at = 0;
    for kr in kr {
        for (sums, &x) in sums.iter_mut().zip(&x[at..at + M]) {
            let x = T::splat(s, x);
            for (sum, &kr) in sums.iter_mut().zip(kr) {
                *sum = T::fma(s, x, kr, *sum);
            }
        }
        at += stride;
    }
    sums
}
