//! MTTKRP as its definition says it, in f64: what every kernel is tested against. Never optimised.

use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewD};

/// `g[i, r] = weights[r] * sum over entries with index i in mode of x * product over m != mode of factors[m][i_m, r]`,
/// term by term in row-major order. `None` means unit weights.
///
/// # Panics
/// Where shapes do not fit each other: this is a yardstick for tests, [`Backend::mttkrp`](crate::Backend::mttkrp) is
/// for use.
///
/// ```
/// use ndarray::array;
/// use polyad::reference::mttkrp_reference;
/// let x = array![[1.0, 2.0], [3.0, 4.0]].into_dyn();
/// let (a, b) = (array![[0.0], [0.0]], array![[1.0], [10.0]]);
/// let g = mttkrp_reference(x.view(), None, &[a.view(), b.view()], 0);
/// assert_eq!(g, array![[21.0], [43.0]]);
/// ```
pub fn mttkrp_reference(
    x: ArrayViewD<'_, f64>,
    weights: Option<ArrayView1<'_, f64>>,
    factors: &[ArrayView2<'_, f64>],
    mode: usize,
) -> Array2<f64> {
    let mut g = Array2::zeros(factors[mode].dim());
    for (index, &x) in x.indexed_iter() {
        for r in 0..g.ncols() {
            let weight = weights.map_or(1.0, |w| w[r]);
            let others = (0..factors.len()).filter(|&m| m != mode);
            g[[index[mode], r]] += others.fold(weight * x, |product, m| product * factors[m][[index[m], r]]);
        }
    }
    g
}

/// The same of absolute values: the scale S of the error bound `|g - reference| <= (K + d + 1) eps S`, where K is the
/// longest chain of additions, d the order and eps the spacing of the dtype at 1.
///
/// # Panics
/// As [`mttkrp_reference`].
///
/// ```
/// use ndarray::array;
/// use polyad::reference::mttkrp_scale;
/// let x = array![[1.0, -2.0]].into_dyn();
/// let (a, b) = (array![[0.0]], array![[2.0], [1.0]]);
/// assert_eq!(mttkrp_scale(x.view(), None, &[a.view(), b.view()], 0), array![[4.0]]);
/// ```
pub fn mttkrp_scale(
    x: ArrayViewD<'_, f64>,
    weights: Option<ArrayView1<'_, f64>>,
    factors: &[ArrayView2<'_, f64>],
    mode: usize,
) -> Array2<f64> {
    let factors: Vec<_> = factors.iter().map(|f| f.mapv(f64::abs)).collect();
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let weights = weights.map(|w| w.mapv(f64::abs));
    mttkrp_reference(x.mapv(f64::abs).view(), weights.as_ref().map(|w| w.view()), &views, mode)
}
