//! MTTKRPs whose results are known, for any backend.

use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayViewD, IxDyn};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, Real, Result};

/// One MTTKRP by a plan with these options. The output is NaN before, so that an entry left out shows.
pub fn mttkrp<B: Backend, T: Real>(
    backend: &B,
    x: ArrayViewD<'_, T>,
    weights: Option<ArrayView1<'_, T>>,
    factors: &[ArrayView2<'_, T>],
    mode: usize,
    options: &PlanOptions,
) -> Result<Array2<T>> {
    let rank = factors[0].ncols();
    let plan = MttkrpPlan::new(x.shape(), mode, rank, &options.clone().dtype(T::DTYPE), backend.caps())?;
    let mut g = Array2::from_elem((x.shape()[mode], rank), T::nan());
    let (xd, u) = (backend.upload_tensor(x)?, backend.upload_factors(weights, factors)?);
    backend.mttkrp_into(&plan, &xd, &u, g.view_mut())?;
    Ok(g)
}

/// Values worked out by hand or by summation formulas; whole numbers have to come out exactly.
pub fn known_values<T: Real>(backend: &impl Backend, method: Method) {
    let options = PlanOptions::default().method(method).tile(2);
    // Unit oracle: one entry, then the opposite corner too.
    let factor =
        |first: usize, rows: usize| Array2::from_shape_fn((rows, 5), |(i, j)| T::of(((first + i) * (j + 1)) as f64));
    let factors = [factor(10, 2), factor(12, 3), factor(15, 4)];
    let factors = factors.each_ref().map(|f| f.view());
    let mut x = Array3::<T>::zeros((2, 3, 4));
    x[[0, 0, 0]] = T::of(1.0);
    for (corner, values) in [([0, 0, 0], [180.0, 150.0, 120.0]), ([1, 2, 3], [252.0, 198.0, 154.0])] {
        x[corner] = T::of(1.0);
        for mode in 0..3 {
            let g = mttkrp(backend, x.view().into_dyn(), None, &factors, mode, &options).unwrap();
            for ((i, j), &v) in g.indexed_iter() {
                if i == corner[mode] {
                    assert_eq!(v.f64(), values[mode] * ((j + 1) * (j + 1)) as f64, "{method} mode {mode} {i} {j}");
                } else if corner == [0, 0, 0] || i != 0 {
                    assert_eq!(v.f64(), 0.0, "{method} mode {mode} {i} {j}");
                }
            }
        }
    }
    // Column sums of 0..105 with ramps.
    let x = Array1::from_iter((0..105).map(|v| T::of(f64::from(v)))).into_shape_with_order((5, 7, 3)).unwrap();
    let ramps = [5, 7, 3].map(|rows| Array2::from_shape_fn((rows, 4), |(i, r)| T::of((4 * i + r) as f64 / 10.0)));
    let ramps = ramps.each_ref().map(|f| f.view());
    let lambda = Array1::from_iter((1..5).map(|v| T::of(f64::from(v))));
    for (mode, weights, sums) in [
        (0, None, [2856.0, 3837.4, 4928.0, 6127.8]),
        (1, None, [2475.2, 3364.2, 4362.4, 5469.8]),
        (2, None, [7761.6, 9135.0, 10617.6, 12209.4]),
        (1, Some(lambda.view()), [2475.2, 6728.4, 13087.2, 21879.2]),
    ] {
        let g = mttkrp(backend, x.view().into_dyn(), weights, &ramps, mode, &options).unwrap();
        for (column, sum) in g.columns().into_iter().zip(sums) {
            let found: f64 = column.iter().map(|v| v.f64()).sum();
            // 105 terms of 3 factors, each itself rounded: (K + 2 d + 1) eps of a sum of positive numbers.
            let bound = (105.0 + 7.0) * T::epsilon().f64() * sum;
            assert!((found - sum).abs() <= bound, "{method} mode {mode}: {found} is not {sum}");
        }
    }
    // 1..720 in column-major order with ones: whole numbers, exact in f32 too.
    let x = Array1::from_iter((1..=720).map(|v| T::of(f64::from(v)))).into_dyn();
    let x = x.into_shape_with_order(IxDyn(&[6, 5, 4, 3, 2])).unwrap().reversed_axes();
    assert_eq!(x.shape(), [2, 3, 4, 5, 6]);
    let ones = [2, 3, 4, 5, 6].map(|rows| Array2::<T>::ones((rows, 2)));
    let ones = ones.each_ref().map(|f| f.view());
    let rows: [&[f64]; 5] = [
        &[129600.0, 129960.0],
        &[86040.0, 86520.0, 87000.0],
        &[63270.0, 64350.0, 65430.0, 66510.0],
        &[45000.0, 48456.0, 51912.0, 55368.0, 58824.0],
        &[7260.0, 21660.0, 36060.0, 50460.0, 64860.0, 79260.0],
    ];
    for (mode, rows) in rows.iter().enumerate() {
        let g = mttkrp(backend, x.view(), None, &ones, mode, &options).unwrap();
        for (found, &expected) in g.rows().into_iter().zip(*rows) {
            assert!(found.iter().all(|v| v.f64() == expected), "{method} mode {mode}: {found} is not {expected}");
        }
    }
}
