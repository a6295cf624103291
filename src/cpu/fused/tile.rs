//! The micro-kernels: the product of a few rows of X and a block of KR, summed in registers. An entry of X is spread
//! over a vector and multiplied by vectors of ranks, so that X is read where it lies, in whatever order.

use crate::cpu::simd::{Element, vectors_of, zero};
use pulp::Simd;
use std::ops::Range;

/// Sums of M rows and N vectors of ranks.
pub(super) type Sums<T, S, const M: usize, const N: usize> = [[<T as Element>::V<S>; N]; M];

/// No sums yet.
#[inline(always)]
pub(super) fn none<T: Element, S: Simd, const M: usize, const N: usize>() -> Sums<T, S, M, N> {
    [[zero::<T, S>(); N]; M]
}

/// Asks for the cache line of an entry of X that will be needed soon. Rows are short and far apart, or neighbours along k
/// are: what the processor fetches ahead by itself comes too late.
#[inline(always)]
fn prefetch<T>(at: &[T], ahead: usize) {
    let at = at.as_ptr().wrapping_add(ahead);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it reads nothing that the program sees and never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// `sums[m] += sum_k x[m][k] kr[k]`, X contiguous along k. The rows that come next are `ahead` entries further on.
#[inline(always)]
pub(super) fn along_k<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    mut sums: Sums<T, S, M, N>,
    mut x: [&[T]; M],
    ahead: usize,
    kr: &[[T::V<S>; N]],
) -> Sums<T, S, M, N> {
    for kr in kr.chunks(LINE / size_of::<T>()) {
        // With lengths that are known to be equal, nothing is checked inside the loop.
        let line = x.map(|row| &row[..kr.len()]);
        x.iter().for_each(|row| prefetch(row, ahead));
        for (k, kr) in kr.iter().enumerate() {
            for (sums, x) in sums.iter_mut().zip(&line) {
                let x = T::splat(s, x[k]);
                for (sum, &kr) in sums.iter_mut().zip(kr) {
                    *sum = T::fma(s, x, kr, *sum);
                }
            }
        }
        x = x.map(|row| &row[kr.len()..]);
    }
    sums
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// `sums[m] += sum_k x[k * stride + m] kr[k]`, X contiguous along the rows. What comes next is `ahead.0` entries further on
/// at first, and `ahead.1` more with every k.
#[inline(always)]
pub(super) fn along_rows<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    mut sums: Sums<T, S, M, N>,
    x: &[T],
    stride: usize,
    ahead: (usize, usize),
    kr: &[[T::V<S>; N]],
) -> Sums<T, S, M, N> {
    let (mut at, mut next) = (0, ahead.0);
    for kr in kr {
        prefetch(x, next);
        next = next.wrapping_add(ahead.1);
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

/// `sum_k x[k * strides.0 + m * strides.1] rows[k][columns]`, the rows of a factor of that rank taken where they lie.
#[inline(always)]
pub(super) fn along_factor<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    x: &[T],
    strides: (usize, usize),
    rows: &[T],
    rank: usize,
    columns: &Range<usize>,
) -> Sums<T, S, M, N> {
    let mut sums = none::<T, S, M, N>();
    let mut at = 0;
    for row in rows.chunks_exact(rank) {
        let factor = vectors_of::<T, S, N>(s, &row[columns.clone()]);
        for (m, sums) in sums.iter_mut().enumerate() {
            let x = T::splat(s, x[at + m * strides.1]);
            for (sum, &a) in sums.iter_mut().zip(&factor) {
                *sum = T::fma(s, x, a, *sum);
            }
        }
        at += strides.0;
    }
    sums
}
