//! The model of what the sweeps leave: the best start's, its components in order, its weights in range.

use super::normal_equations::{hadamard, keep_blocks};
use super::starts::{columns, entries};
use super::sweeps::Ended;
use super::{CpAlsOptions, CpAlsResult, Stop};
use crate::{CpTensor, Error, Method, Real, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::time::Instant;

/// Cosine of two components from which on they count as degenerate, as is usual (Krijnen, Dijkstra and Stegeman,
/// Psychometrika 73, 2008).
const DEGENERATE: f64 = -0.85;

/// The result of a run on data that were multiplied by `scale`. Of the start: its fixed factors, and the powers of two that
/// their columns were scaled by.
pub(super) fn result<T: Real>(
    ended: Ended<T>,
    options: &CpAlsOptions,
    scale: f64,
    (fixed, powers): (&[Option<Array2<T>>], &Array1<f64>),
    (stop, method, device): (Stop, Method, String),
    clock: &Instant,
) -> Result<CpAlsResult<T>> {
    let Ended { mut state, mut seconds, algebra, tree } = ended;
    let rank = options.rank;
    let best = state.trace.best();
    let fits = state.trace.of(best);
    let factors: Vec<_> = state.factors.iter().map(|f| columns(f, best, rank)).collect();
    let weights = entries(&state.weights, best, rank) / scale;
    let fit = fits.last().copied().or(state.initial_fit);
    let fit = fit.ok_or(Error::Overflow { what: "a weight of the start".into(), dtype: "f64", index: vec![] })?;
    let start_fits = state.trace.fits.pop().unwrap_or_else(|| vec![fit]);
    let h = keep_blocks(hadamard(&state.grams, rank * options.starts, None, Array2::zeros((0, 0))), rank);
    let h = h.slice(s![best * rank..(best + 1) * rank, best * rank..(best + 1) * rank]);
    let sorted = fixed.iter().all(Option::is_none);
    let order = if sorted { by_falling_weight(&weights) } else { (0..rank).collect() };
    state.warnings.extend(degenerate(&order, h));
    let model = if sorted {
        in_order(&order, weights, factors)?
    } else {
        let given = fixed.iter().map(|fixed| fixed.as_ref().map(|f| columns(f, best, rank)));
        let factors = factors.into_iter().zip(given).map(|(factor, given)| given.unwrap_or(factor));
        CpTensor::new(in_range(&(weights / entries(powers, best, rank)))?, factors.collect())?
    };
    seconds.total = clock.elapsed().as_secs_f64();
    Ok(CpAlsResult {
        model,
        fit,
        initial_fit: state.initial_fit,
        sweeps: fits.len(),
        fits,
        start_fits,
        best_start: best,
        stop,
        seconds,
        method,
        device,
        algebra,
        tree,
        passes: state.passes,
        warnings: state.warnings,
    })
}

/// A warning about the two components that cancel most, if they are almost opposite: their weights tend to grow without
/// bound while the fit creeps up, and no best model of this rank may exist. `h` has the products of components, which are
/// numbered in this order.
fn degenerate(order: &[usize], h: ArrayView2<'_, f64>) -> Option<String> {
    let pairs = (0..order.len()).flat_map(|s| (0..s).map(move |r| (r, s)));
    let cosine = |&(r, s): &(usize, usize)| {
        let (r, s) = (order[r], order[s]);
        // A component of zeros cancels nothing.
        if h[[r, r]] > 0.0 && h[[s, s]] > 0.0 { h[[r, s]] / (h[[r, r]] * h[[s, s]]).sqrt() } else { 0.0 }
    };
    let (r, s) = pairs.min_by(|a, b| cosine(a).total_cmp(&cosine(b)))?;
    let c = cosine(&(r, s));
    (c < DEGENERATE)
        .then(|| format!("degenerate components, congruence {c:.4}: components {r} and {s} almost cancel each other"))
}

fn by_falling_weight(weights: &Array1<f64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    order
}

/// The model with its components in this order. Columns stay as they were solved for: `CpTensor::arrange` would scale them
/// to unit norm a second time, in T.
fn in_order<T: Real>(order: &[usize], weights: Array1<f64>, factors: Vec<Array2<T>>) -> Result<CpTensor<T>> {
    let sorted = in_range(&weights.select(Axis(0), order))?;
    CpTensor::new(sorted, factors.iter().map(|f| f.select(Axis(1), order)).collect())
}

/// The weights in T, where they have to be finite.
fn in_range<T: Real>(weights: &Array1<f64>) -> Result<Array1<T>> {
    let weights: Array1<T> = weights.mapv(T::of);
    match weights.iter().position(|w| !w.is_finite()) {
        Some(r) => Err(Error::Overflow { what: "a weight".into(), dtype: T::DTYPE.name(), index: vec![r] }),
        None => Ok(weights),
    }
}
