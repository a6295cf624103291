//! Several starts side by side: their factors are blocks of columns of one factor, so one MTTKRP reads X once for all of
//! them. Nothing else connects them.

use ndarray::{Array1, Array2, Axis, s};

/// The fits of every start after each sweep.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Trace {
    /// One entry a sweep, with one fit a start.
    pub fits: Vec<Vec<f64>>,
}

impl Trace {
    /// Sweeps done.
    pub fn sweeps(&self) -> usize {
        self.fits.len()
    }

    /// The start whose last fit is best, the first of equal ones; 0 before the first sweep.
    pub fn best(&self) -> usize {
        let last = self.fits.last().map_or(&[][..], Vec::as_slice);
        (0..last.len()).fold(0, |best, start| if last[start] > last[best] { start } else { best })
    }

    /// The best fit after the last sweep, and how it differs from the best one before it.
    pub fn best_fit(&self) -> (f64, Option<f64>) {
        let best = |fits: &Vec<f64>| fits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match &self.fits[..] {
            [] => (f64::NEG_INFINITY, None),
            [only] => (best(only), None),
            [.., before, last] => (best(last), Some(best(last) - best(before))),
        }
    }

    /// Whether no start's fit changed by as much as the tolerance in the last sweep.
    pub fn stands_still(&self, tolerance: f64) -> bool {
        let [.., before, last] = &self.fits[..] else { return false };
        before.iter().zip(last).all(|(before, last)| (last - before).abs() < tolerance)
    }

    /// The fits of one start.
    pub fn of(&self, start: usize) -> Vec<f64> {
        self.fits.iter().map(|fits| fits[start]).collect()
    }
}

/// The columns of one start.
pub(super) fn columns<T: Clone>(all: &Array2<T>, start: usize, rank: usize) -> Array2<T> {
    all.slice(s![.., start * rank..(start + 1) * rank]).to_owned()
}

/// The entries of one start.
pub(super) fn entries(all: &Array1<f64>, start: usize, rank: usize) -> Array1<f64> {
    all.slice(s![start * rank..(start + 1) * rank]).to_owned()
}

/// Starts side by side.
pub(super) fn side_by_side(parts: &[Array2<f64>]) -> Array2<f64> {
    let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
    // Parts have as many rows as each other.
    ndarray::concatenate(Axis(1), &views).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_and_the_slowest_start_count() {
        let mut trace = Trace::default();
        assert_eq!((trace.best(), trace.stands_still(1.0)), (0, false));
        trace.fits.push(vec![0.1, 0.5, 0.5]);
        assert_eq!((trace.best(), trace.best_fit(), trace.stands_still(1.0)), (1, (0.5, None), false));
        trace.fits.push(vec![0.7, 0.5, 0.5]);
        let (fit, change) = trace.best_fit();
        assert!(trace.best() == 0 && fit == 0.7 && (change.unwrap() - 0.2).abs() < 1e-12);
        assert!(trace.stands_still(0.7) && !trace.stands_still(0.5));
        assert_eq!(trace.of(2), [0.5, 0.5]);
    }
}
