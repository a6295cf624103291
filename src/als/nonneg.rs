//! Factors without negative entries: hierarchical alternating least squares (HALS). The device does the MTTKRP, the host
//! this.
//!
//! Each update minimises `|X - Xhat|^2` over one mode's factor A with its weights, entry by entry in turn:
//! `a_r = max(0, a_r + (g_r - (A V)_r) / V_rr)`, the exact minimum in that entry, so no step raises the error. Rows of A do
//! not depend on each other. A. Cichocki and A.-H. Phan, IEICE Trans. Fundamentals E92-A(3), 2009, DOI
//! 10.1587/transfun.E92.A.708. Passes are repeated while they still pay, as an MTTKRP costs far more than one: N. Gillis
//! and F. Glineur, Neural Computation 24(4), 2012, DOI 10.1162/NECO_a_00256.

use super::normal_equations::{gram, normalize};
use super::steps::{Product, Updated};
use super::wide::inner;
use super::{AlsSteps, timed};
use crate::{Real, Result};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis, Zip, s};

/// Most passes over the entries of a row.
const PASSES: usize = 50;

/// A pass whose steps are this much shorter than those of the first one is the last.
const SHORT: f64 = 1e-2;

/// Replaces the factor of a mode by one without negative entries. `v` is that of all starts, block by block of `rank`
/// columns, and `weights` are the model's. A component that ends at zero gets weight 0 and keeps its direction, so that
/// later updates can bring it back.
pub(super) fn update<T: Real>(
    steps: &mut dyn AlsSteps<T>,
    mode: usize,
    v: &Array2<f64>,
    weights: &Array1<f64>,
    factor: &mut Array2<T>,
    rank: usize,
    wide: bool,
) -> Result<Updated> {
    let mut product = steps.product(mode, wide)?;
    let seconds = &mut product.seconds;
    let (norms, mut new) = timed(&mut seconds.solve, || {
        // Row-major whatever the factor is, as sums depend on the order.
        let mut a = Array2::from_shape_fn(factor.dim(), |(i, r)| factor[[i, r]].f64() * weights[r]);
        for first in (0..a.ncols()).step_by(rank) {
            let block = first..first + rank;
            let (g, v) = (product.g.slice(s![.., block.clone()]), v.slice(s![block.clone(), block.clone()]));
            hals(g, v, a.slice_mut(s![.., block]));
        }
        normalize::<T>(a)
    })?;
    for (r, norm) in norms.iter().enumerate() {
        if *norm == 0.0 {
            new.column_mut(r).assign(&factor.column(r));
        }
    }
    *factor = new;
    let gram = timed(&mut seconds.gram, || gram(factor));
    let inner = timed(&mut seconds.fit, || inner(&product.g, factor));
    timed(&mut seconds.transfer, || steps.replace(mode, factor.view()))?;
    let Product { fallback, passes, seconds, .. } = product;
    Ok(Updated { gram, norms, inner, fallback, passes, seconds })
}

/// Makes A the better non-negative solution of `A V = G`, from A.
fn hals(g: ArrayView2<'_, f64>, v: ArrayView2<'_, f64>, mut a: ArrayViewMut2<'_, f64>) {
    a.mapv_inplace(|a| a.max(0.0));
    // The best multiple of A first: what follows is then the same for data of any scale.
    let (product, square) = ((&g * &a).sum(), (a.dot(&v) * &a).sum());
    let multiple = product / square;
    let multiple = if multiple.is_finite() { multiple.max(0.0) } else { 0.0 };
    a.mapv_inplace(|a| a * multiple);
    Zip::from(a.axis_iter_mut(Axis(0))).and(g.axis_iter(Axis(0))).par_for_each(|mut a, g| {
        // V a, kept up to date.
        let mut sums = v.dot(&a);
        let mut first = 0.0;
        for pass in 0..PASSES {
            let moved = one_pass(&mut a, &mut sums, g, &v);
            if pass == 0 {
                first = moved;
            }
            if moved <= SHORT * SHORT * first {
                break;
            }
        }
    });
}

/// One pass over the entries of a row; the squared length of all steps, in the norm of X.
fn one_pass(
    a: &mut ArrayViewMut1<'_, f64>,
    sums: &mut Array1<f64>,
    g: ArrayView1<'_, f64>,
    v: &ArrayView2<'_, f64>,
) -> f64 {
    let mut moved = 0.0;
    for r in 0..a.len() {
        let curvature = v[[r, r]];
        // A component that is zero in another mode.
        let to = if curvature > 0.0 { (a[r] + (g[r] - sums[r]) / curvature).max(0.0) } else { 0.0 };
        let step = to - a[r];
        if step != 0.0 {
            a[r] = to;
            sums.scaled_add(step, &v.row(r));
            moved += step * step * curvature;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// The conditions of Karush, Kuhn and Tucker: at an optimum the gradient `A V - G` is zero where A is positive, and not
    /// negative where A is zero.
    #[test]
    fn ends_at_the_optimum() {
        let v = array![[1.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 1.0]];
        let g = array![[1.0, 2.0, -1.0], [0.5, -0.5, 0.7], [-1.0, -2.0, -3.0], [3.0, 1.0, 2.0]];
        for scale in [1.0, 1e-90, 1e90] {
            let g = &g * scale;
            let mut a = array![[1.0, 0.2, 0.3], [0.1, -5.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]];
            for _ in 0..30 {
                hals(g.view(), v.view(), a.view_mut());
            }
            let gradient = a.dot(&v) - &g;
            for (a, gradient) in a.iter().zip(&gradient) {
                let ok = if *a > 0.0 { gradient.abs() <= 1e-12 * scale } else { *gradient >= -1e-12 * scale };
                assert!(*a >= 0.0 && ok, "{scale:e}: {a} with gradient {gradient}");
            }
        }
    }
}
