//! An MTTKRP of f32 data summed in f64 on the host: where the normal equations are too ill-conditioned for sums in f32,
//! and for a fit near 1. Unit weights; not tuned, as both are rare.

use crate::Real;
use ndarray::{Array1, Array2, ArrayViewD, Axis, Slice, Zip};
use rayon::prelude::*;

/// Parts with sums of their own. Fixed, so that the bits do not depend on the number of threads.
const PARTS: usize = 16;

/// `G[i, r] = sum over entries with i_n = i of X * product over m != n of A_m[i_m, r]`, `I_n x R`.
pub(super) fn mttkrp<T: Real>(x: ArrayViewD<'_, T>, factors: &[Array2<T>], mode: usize) -> Array2<f64> {
    let factors: Vec<Array2<f64>> = factors.iter().map(|f| f.mapv(Real::f64)).collect();
    let shape = factors[mode].dim();
    // Cut along the longest mode.
    let cut = (0..x.ndim()).max_by_key(|&m| x.shape()[m]).unwrap_or(0);
    let parts = PARTS.min(x.shape()[cut]);
    let sums: Vec<Array2<f64>> = (0..parts)
        .into_par_iter()
        .map(|part| {
            let (from, to) = (part * x.shape()[cut] / parts, (part + 1) * x.shape()[cut] / parts);
            let mut sum = Array2::zeros(shape);
            let slab = x.slice_axis(Axis(cut), Slice::from(from..to));
            add(slab, &factors, mode, (cut, from), &mut sum);
            sum
        })
        .collect();
    sums.into_iter().fold(Array2::zeros(shape), |all, sum| all + sum)
}

/// Adds a slab's share; its indices along the mode `cut.0` begin at `cut.1`.
fn add<T: Real>(x: ArrayViewD<'_, T>, factors: &[Array2<f64>], mode: usize, cut: (usize, usize), g: &mut Array2<f64>) {
    let (last, rank) = (x.ndim() - 1, g.ncols());
    let first = |m: usize| if m == cut.0 { cut.1 } else { 0 };
    let mut product = Array1::<f64>::ones(rank);
    let mut sum = Array1::<f64>::zeros(rank);
    for (fibre, entries) in x.lanes(Axis(last)).into_iter().enumerate() {
        // What the other modes of this fibre contribute is the same for all its entries.
        let mut rest = fibre;
        let mut row = 0;
        product.fill(1.0);
        for m in (0..last).rev() {
            let i = first(m) + rest % x.shape()[m];
            rest /= x.shape()[m];
            if m == mode { row = i } else { product *= &factors[m].row(i) }
        }
        if mode == last {
            for (j, x) in entries.iter().enumerate() {
                g.row_mut(first(last) + j).scaled_add(x.f64(), &product);
            }
        } else {
            sum.fill(0.0);
            for (j, x) in entries.iter().enumerate() {
                sum.scaled_add(x.f64(), &factors[last].row(first(last) + j));
            }
            Zip::from(g.row_mut(row)).and(&sum).and(&product).for_each(|g, s, p| *g += s * p);
        }
    }
}

/// `sum_i g[i, r] a[i, r]` for every column.
pub(crate) fn inner<G: Real, T: Real>(g: &Array2<G>, a: &Array2<T>) -> Array1<f64> {
    let mut inner = Array1::zeros(g.ncols());
    for (g, a) in g.rows().into_iter().zip(a.rows()) {
        Zip::from(&mut inner).and(g).and(a).for_each(|inner, g, a| *inner += g.f64() * a.f64());
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::mttkrp_reference;
    use ndarray::{ArrayD, IxDyn};

    #[test]
    fn equals_the_definition() {
        for dims in [&[5][..], &[4, 7], &[20, 3, 5], &[2, 3, 18, 2]] {
            let mut at = 0;
            let mut next = || {
                at += 1;
                ((at * 37) % 101) as f32 / 50.0 - 1.0
            };
            let x = ArrayD::from_shape_simple_fn(IxDyn(dims), &mut next);
            let factors: Vec<Array2<f32>> =
                dims.iter().map(|&d| Array2::from_shape_simple_fn((d, 3), &mut next)).collect();
            let exact: Vec<Array2<f64>> = factors.iter().map(|f| f.mapv(f64::from)).collect();
            let views: Vec<_> = exact.iter().map(|f| f.view()).collect();
            for mode in 0..dims.len() {
                let expected = mttkrp_reference(x.mapv(f64::from).view(), None, &views, mode);
                let g = mttkrp(x.view(), &factors, mode);
                assert!((&g - &expected).iter().all(|d| d.abs() < 1e-13), "{dims:?} mode {mode}:\n{g}\n{expected}");
            }
        }
    }
}
