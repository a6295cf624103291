//! The norm of X and the fit of a model, in f64 and without overflow on the way.

use super::normal_equations::in_lanes;
use crate::{Error, Real, Result, Shape};
use ndarray::{Array1, ArrayView1, ArrayView2, ArrayViewD, Zip, s};
use rayon::prelude::*;

/// Entries summed by one task. Fixed, so that the sum does not depend on the number of threads.
const BLOCK: usize = 1 << 16;

/// The Frobenius norm and the largest magnitude, after a check that every entry is finite.
pub(super) fn norm<T: Real>(x: ArrayViewD<'_, T>) -> Result<(f64, f64)> {
    let largest = blocks(&x, |block| {
        block.fold(0.0, |largest: f64, v| if v.is_finite() { largest.max(v.abs()) } else { f64::INFINITY })
    });
    let largest = largest.into_iter().fold(0.0, f64::max);
    if largest.is_infinite() {
        let found = x.iter().enumerate().find(|(_, v)| !v.is_finite());
        let (position, value) = found.map_or((0, largest), |(p, v)| (p, v.f64()));
        let index = Shape::new(x.shape())?.index(position);
        return Err(Error::NonFinite { what: "the tensor".into(), index, value });
    }
    if largest == 0.0 {
        return Ok((0.0, 0.0));
    }
    // A power of two, so that scaling is exact, within what f64 can invert.
    let scale = (-largest.log2().floor().clamp(-1000.0, 1000.0)).exp2();
    let sum: f64 = blocks(&x, |block| block.map(|v| (v * scale) * (v * scale)).sum()).into_iter().sum();
    let norm = sum.sqrt() / scale;
    if !norm.is_finite() {
        return Err(Error::Overflow { what: "the norm of the tensor".into(), dtype: "f64", index: vec![] });
    }
    Ok((norm, largest))
}

/// `work` on blocks of the entries, in parallel where they are contiguous (in any order of the modes).
fn blocks<T: Real>(x: &ArrayViewD<'_, T>, work: impl Fn(&mut dyn Iterator<Item = f64>) -> f64 + Sync) -> Vec<f64> {
    match x.as_slice_memory_order() {
        Some(x) => x.par_chunks(BLOCK).map(|block| work(&mut block.iter().map(|v| v.f64()))).collect(),
        None => vec![work(&mut x.iter().map(|v| v.f64()))],
    }
}

/// `1 - |X - Xhat| / |X|` with `|X - Xhat|^2 = |X|^2 - 2 <X, Xhat> + |Xhat|^2`, where
/// `<X, Xhat> = sum_r inner[r] weights[r]` (inner: `sum_i g[i, r] a[i, r]`, g the MTTKRP with unit weights of the mode
/// whose factor is a) and `|Xhat|^2 = weights^T h weights` (h: Hadamard product of all grams, in two parts).
///
/// Everything is taken relative to `|X|`, so that nothing overflows that need not. Rounding may leave a square just
/// below 0, which counts as 0: near a perfect fit only about half of the digits of the inner product's type mean anything in
/// `1 - fit`. For X = 0
/// the fit is 1 if the model is zero too, else 0.
pub(super) fn fit(
    norm: f64,
    inner: ArrayView1<'_, f64>,
    weights: ArrayView1<'_, f64>,
    h: [ArrayView2<'_, f64>; 2],
) -> Result<f64> {
    if norm == 0.0 {
        return Ok(if weights.iter().all(|&w| w == 0.0) { 1.0 } else { 0.0 });
    }
    // A start may be far larger than the tensor, so much that squares overflow. A power of two changes no digit.
    let most = weights.iter().fold(0.0, |most: f64, w| most.max((w / norm).abs()));
    let unit = if most > 1e100 { (-most.log2().ceil().min(1000.0)).exp2() } else { 1.0 };
    let weights = weights.mapv(|w| w / norm * unit);
    let inner: f64 = inner.iter().zip(&weights).map(|(inner, w)| inner / norm * w).sum();
    let (mut model, mut products) = (0.0, Array1::zeros(weights.len()));
    for ((v, gram), w) in h[0].rows().into_iter().zip(h[1].rows()).zip(&weights) {
        Zip::from(&mut products).and(v).and(gram).and(&weights).for_each(|p, v, gram, w| *p = v * gram * w);
        model += w * in_lanes(products.as_slice().unwrap_or_default(), |p| p);
    }
    let square = unit * unit - 2.0 * unit * inner + model;
    if !square.is_finite() {
        let reason = format!("the model's norm relative to the tensor's is {}", model.sqrt());
        return Err(Error::Linalg { what: "the fit", reason });
    }
    Ok(1.0 - square.max(0.0).sqrt() / unit)
}

/// The fits of starts that run side by side, `rank` columns each; arguments as for [`fit`].
pub(super) fn fits(
    norm: f64,
    inner: ArrayView1<'_, f64>,
    weights: ArrayView1<'_, f64>,
    h: [ArrayView2<'_, f64>; 2],
    rank: usize,
) -> Result<Vec<f64>> {
    let one = |first: usize| {
        let block = s![first..first + rank];
        let square = s![first..first + rank, first..first + rank];
        fit(norm, inner.slice(block), weights.slice(block), [h[0].slice(square), h[1].slice(square)])
    };
    (0..weights.len()).step_by(rank).map(one).collect()
}
