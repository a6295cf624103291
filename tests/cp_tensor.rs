//! CpTensor's operations: norms, normal forms, the full tensor and the factor match score.

use approx::{assert_abs_diff_eq, assert_relative_eq};
use ndarray::{Array1, Array2, ArrayD, Axis, array};
use polyad::{CpTensor, Error, Real, ScoreOptions};
use proptest::prelude::*;

/// A model with dims of 1 to 5, order 1 to 4, rank 1 to 4 and entries in [-1, 1], some of them zero.
fn models() -> impl Strategy<Value = CpTensor<f64>> {
    (prop::collection::vec(1usize..=5, 1..=4), 1usize..=4).prop_flat_map(|(dims, rank)| {
        let entry = prop_oneof![1 => Just(0.0), 9 => -1.0..1.0];
        let total = rank * (1 + dims.iter().sum::<usize>());
        prop::collection::vec(entry, total).prop_map(move |values| {
            let mut values = values.into_iter();
            let weights = values.by_ref().take(rank).collect();
            let factors = dims.iter().map(|&d| Array2::from_shape_simple_fn((d, rank), || values.next().unwrap()));
            CpTensor::new(weights, factors.collect()).unwrap()
        })
    })
}

/// The definition: a plain sum over components, entry by entry.
fn full_by_definition(model: &CpTensor<f64>) -> ArrayD<f64> {
    ArrayD::from_shape_fn(model.dims(), |index| {
        let term = |r: usize| (0..model.dims().len()).map(|n| model.factors()[n][[index[n], r]]).product::<f64>();
        (0..model.rank()).map(|r| model.weights()[r] * term(r)).sum()
    })
}

/// Rounding of a sum of `rank` products of `order + 1` numbers of at most 1, a few operations each.
fn tolerance(model: &CpTensor<f64>) -> f64 {
    let scale: f64 = model.weights().iter().map(|w| w.abs()).sum();
    let rows: f64 = model.dims().iter().map(|&d| d as f64).product();
    8.0 * (model.rank() + model.dims().len()) as f64 * f64::EPSILON * scale * rows.sqrt()
}

fn largest_difference(a: &ArrayD<f64>, b: &ArrayD<f64>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn close<T: Real>(a: T, b: f64) -> bool {
    (a.f64() - b).abs() <= 8.0 * T::epsilon().f64() * b.abs()
}

#[test]
fn largest_difference_sees_one_entry() {
    let a = full_by_definition(&CpTensor::new(array![1.0], vec![array![[1.0], [2.0]]]).unwrap());
    let mut b = a.clone();
    b[[1]] += 1e-12;
    assert!(largest_difference(&a, &b) > 1e-13);
    assert!(!close(1.0f32, 1.00001) && !close(1.0f64, 1.0 + 1e-14));
}

proptest! {
    #[test]
    fn full_is_the_definition(model in models()) {
        let difference = largest_difference(&model.to_full().unwrap(), &full_by_definition(&model));
        prop_assert!(difference <= tolerance(&model), "{difference:e}");
    }

    #[test]
    fn arrange_and_fix_signs_leave_the_tensor_as_it_was(model in models()) {
        let full = full_by_definition(&model);
        for form in [CpTensor::normalize, CpTensor::arrange, CpTensor::fix_signs] {
            let mut changed = model.clone();
            form(&mut changed);
            let difference = largest_difference(&changed.to_full().unwrap(), &full);
            prop_assert!(difference <= tolerance(&model), "{difference:e}");
        }
    }

    #[test]
    fn arranged_models_are_in_order(mut model in models()) {
        model.arrange();
        prop_assert!(model.weights().iter().all(|&w| w >= 0.0));
        prop_assert!(model.weights().windows(2).into_iter().all(|w| w[0] >= w[1]));
        for factor in model.factors() {
            for column in factor.axis_iter(Axis(1)) {
                let norm = column.dot(&column).sqrt();
                prop_assert!(norm == 0.0 || (norm - 1.0).abs() < 1e-14, "{norm}");
            }
        }
    }

    #[test]
    fn arrange_and_fix_signs_are_idempotent_to_rounding(mut model in models()) {
        model.arrange();
        model.fix_signs();
        let once = model.clone();
        model.fix_signs();
        prop_assert_eq!(&model, &once);
        model.arrange();
        let again = largest_difference(&model.to_full().unwrap(), &once.to_full().unwrap());
        prop_assert!(again <= tolerance(&once));
    }

    #[test]
    fn at_most_one_column_of_a_component_stays_negative(mut model in models()) {
        model.fix_signs();
        for r in 0..model.rank() {
            let largest = |f: &Array2<f64>| f.column(r).iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m });
            prop_assert!(model.factors().iter().filter(|f| largest(f) < 0.0).count() <= 1);
        }
    }

    #[test]
    fn norm_is_that_of_the_full_tensor(model in models()) {
        let full = full_by_definition(&model);
        let expected = full.iter().map(|v| v * v).sum::<f64>().sqrt();
        let scale: f64 = model.weights().iter().map(|w| w.abs()).sum::<f64>() * (full.len() as f64).sqrt();
        // The square loses the digits of a cancelling sum, so the bound is on the square.
        prop_assert!((model.norm().powi(2) - expected.powi(2)).abs() <= 1e-14 * scale * scale);
    }

    #[test]
    fn a_model_is_like_its_own_permutation(model in models(), rotation in 0usize..4) {
        let order: Vec<usize> = (0..model.rank()).map(|r| (r + rotation) % model.rank()).collect();
        let weights = model.weights().select(Axis(0), &order);
        let factors = model.factors().iter().map(|f| f.select(Axis(1), &order)).collect();
        let same = CpTensor::new(weights, factors).unwrap();
        let score = model.score(&same).unwrap();
        let live = |r: usize| model.factors().iter().all(|f| f.column(r).iter().any(|&v| v != 0.0));
        // A zero weight beside live columns is a component of weight zero: alike to itself.
        let expected = (0..model.rank()).filter(|&r| live(r)).count() as f64 / model.rank() as f64;
        prop_assert!(score.score >= expected - 1e-12, "{} {expected}", score.score);
        prop_assert!(score.score <= 1.0 + 1e-12);
    }
}

#[test]
fn extreme_entries_normalize() {
    let f32_large = vec![array![[3e30f32], [4e30]], array![[1e-30f32], [0.0]]];
    let mut model = CpTensor::new(array![2.0f32], f32_large).unwrap();
    model.normalize();
    assert!(close(model.weights()[0], 10.0), "{model:?}");
    assert!(close(model.factors()[0][[0, 0]], 0.6) && close(model.factors()[1][[0, 0]], 1.0));

    let f64_large = vec![array![[3e200], [4e200]], array![[3e-250], [4e-250]]];
    let mut model = CpTensor::new(array![1e-10], f64_large).unwrap();
    assert!(close(model.norm(), 2.5e-59));
    model.normalize();
    assert!(close(model.weights()[0], 2.5e-59), "{model:?}");
    assert!(close(model.factors()[1][[1, 0]], 0.8));
}

#[test]
fn subnormal_columns_normalize() {
    let mut model = CpTensor::<f64>::new(array![1e300], vec![array![[3e-320], [4e-320]]]).unwrap();
    model.normalize();
    assert_relative_eq!(model.weights()[0], 5e-20, max_relative = 1e-3);
    let column = model.factors()[0].column(0).to_owned();
    assert!((column.dot(&column) - 1.0).abs() < 1e-15);
}

#[test]
fn a_component_whose_weight_is_out_of_range_stays_but_is_sorted() {
    let factor = array![[1.0f32, 1e30]];
    let original = CpTensor::new(array![1.0f32, -1.0], vec![factor.clone(), factor.clone(), factor]).unwrap();
    let mut model = original.clone();
    model.arrange();
    assert_eq!(model.weights(), &array![1.0f32, 1.0]);
    assert_eq!(model.factors()[0], array![[-1e30f32, 1.0]]);
    assert_eq!(model.factors()[2], array![[1e30f32, 1.0]]);
    assert!(close(model.norm(), original.norm()) && (original.norm() / 1e90 - 1.0).abs() < 1e-6);
    let index = vec![0, 0, 0];
    assert_eq!(model.to_full().unwrap_err(), Error::Overflow { what: "the full tensor".into(), dtype: "f32", index });
}

#[test]
fn zero_columns_get_weight_zero() {
    let mut model = CpTensor::new(array![5.0, 1.0], vec![array![[1.0, 3.0], [2.0, 4.0]], array![[0.0, 2.0]]]).unwrap();
    assert_eq!(model.norm(), 10.0);
    model.arrange();
    assert_eq!(model.weights(), &array![10.0, 0.0]);
    assert_eq!(model.factors()[1], array![[1.0, 0.0]]);
    assert_eq!(model.to_full().unwrap(), array![[6.0], [8.0]].into_dyn());
}

#[test]
fn huge_weights_have_a_norm() {
    let factors = vec![array![[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]], array![[1.0, 1.0]]];
    let model = CpTensor::new(array![1e200, 12.0], factors).unwrap();
    assert!(close(model.norm(), 5e200));
    assert_eq!(CpTensor::new(array![0.0], vec![array![[1.0]]]).unwrap().norm(), 0.0);
}

#[test]
fn intermediate_products_do_not_overflow() {
    let factors = vec![array![[1e200]], array![[1e200]], array![[1e-200]], array![[1e-200]]];
    assert!(close(CpTensor::new(array![3.0], factors).unwrap().to_full().unwrap()[[0, 0, 0, 0]], 3.0));
}

#[test]
fn equal_weights_keep_their_order() {
    let mut model = CpTensor::<f64>::new(Array1::ones(3), vec![Array2::eye(3)]).unwrap();
    let before = model.clone();
    model.arrange();
    assert_eq!(model, before);
}

#[test]
fn a_full_tensor_beyond_the_address_space_is_an_error() {
    let factors = || vec![Array2::<f32>::ones((1 << 15, 1)); 4];
    let model = CpTensor::new(Array1::ones(1), factors());
    // 2^60 entries: either the dims are refused at once or the allocation is.
    match model {
        Ok(model) => assert!(matches!(model.to_full(), Err(Error::TooManyElements { .. }))),
        Err(error) => assert!(matches!(error, Error::TooManyElements { .. })),
    }
}

#[test]
fn score_resolves_order_and_pairs_of_signs() {
    let a = [array![[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], array![[1.0, 2.0, -1.0], [3.0, 4.0, 1.0]]];
    let model = CpTensor::new(array![1.0, 2.0, 3.0], a.to_vec()).unwrap();
    let order = [2, 0, 1];
    let mut factors: Vec<_> = a.iter().map(|f| f.select(Axis(1), &order)).collect();
    factors.iter_mut().for_each(|f| f.column_mut(0).mapv_inplace(|v| -v)); // a pair of flips
    factors[1].column_mut(1).mapv_inplace(|v| -v); // a flip alone
    let score = model.score(&CpTensor::new(array![3.0, 1.0, 2.0], factors).unwrap()).unwrap();
    assert_abs_diff_eq!(score.score, 1.0, epsilon = 1e-14);
    assert_eq!(score.permutation, [1, 2, 0]);
    let signs: Vec<f64> = score.congruences.iter().map(|c| c.round()).collect();
    assert_eq!(signs, [-1.0, 1.0, 1.0]);
}

#[test]
fn score_matches_better_than_greedily() {
    // Cosines 1 and 0.9 against 0.8 and 0.46: a greedy choice takes 1 + 0.46, the assignment 0.9 + 0.8.
    let unit = |c: f64| (c, (1.0 - c * c).sqrt());
    let ((c0, s0), (c1, s1)) = (unit(0.9), unit(0.8));
    let a = array![[1.0, c1], [0.0, -s1]];
    let b = array![[1.0, c0], [0.0, s0]];
    let model = |f: Array2<f64>| CpTensor::new(Array1::ones(2), vec![f]).unwrap();
    let score = model(a).score(&model(b)).unwrap();
    assert_eq!(score.permutation, [1, 0]);
    assert_abs_diff_eq!(score.score, 0.85, epsilon = 1e-14);
}

#[test]
fn scores_of_different_ranks() {
    let few = CpTensor::new(array![2.0], vec![array![[0.0], [1.0]], array![[1.0]]]).unwrap();
    let many = CpTensor::new(array![7.0, 1.0], vec![array![[1.0, 0.0], [0.0, 1.0]], array![[1.0, 1.0]]]).unwrap();
    let score = few.score(&many).unwrap();
    assert_eq!((score.score, &*score.permutation), (0.5, &[1][..]));
    assert_eq!(many.score(&few).unwrap(), score);
    let open = ScoreOptions::default().weight_penalty(false);
    assert_eq!(few.score_with(&many, &open).unwrap().score, 1.0);
}

#[test]
fn scores_of_different_dims_are_errors() {
    let a = CpTensor::new(array![1.0], vec![array![[1.0], [2.0]]]).unwrap();
    let b = CpTensor::new(array![1.0], vec![array![[1.0]], array![[1.0]]]).unwrap();
    let error = Error::DimsMismatch { what: "the other model", expected: vec![2], found: vec![1, 1] };
    assert_eq!(a.score(&b).unwrap_err(), error);
}

#[test]
fn zero_models_have_a_score() {
    let zero = CpTensor::new(array![0.0f32, 1.0], vec![array![[1.0, 0.0]]]).unwrap();
    let score = zero.score(&zero).unwrap();
    assert_eq!(score.score, 0.5);
    assert!(score.congruences.iter().chain(&score.penalties).all(|v| v.is_finite()));
}

#[test]
fn scores_do_not_mind_the_scale() {
    let model = |s: f64| CpTensor::new(array![1.0], vec![array![[3.0 * s], [4.0 * s]], array![[s], [s]]]).unwrap();
    let score = model(1e-200).score(&model(1e200)).unwrap();
    assert_abs_diff_eq!(score.congruences[0], 1.0, epsilon = 1e-14);
    assert_eq!(score.score, 0.0);
}

/// The least-squares core by its normal equations, every entry of the design written out.
fn core_by_definition(model: &CpTensor<f64>, x: &ArrayD<f64>) -> f64 {
    let (rank, order) = (model.rank(), model.dims().len());
    let mut spread = model.clone();
    spread.normalize();
    let (weights, mut factors) = spread.into_parts();
    for factor in &mut factors {
        for (r, mut column) in factor.columns_mut().into_iter().enumerate() {
            column.mapv_inplace(|v| v * weights[r].abs().powf(1.0 / order as f64));
        }
    }
    for r in (0..rank).filter(|&r| weights[r] < 0.0) {
        factors[0].column_mut(r).mapv_inplace(|v| -v);
    }
    let cores = rank.pow(order as u32);
    let index = |core: usize, mode: usize| core / rank.pow((order - 1 - mode) as u32) % rank;
    let row = |position: &[usize]| -> Vec<f64> {
        (0..cores).map(|c| (0..order).map(|m| factors[m][[position[m], index(c, m)]]).product()).collect()
    };
    let (mut normal, mut right) = (Array2::<f64>::zeros((cores, cores)), Array1::<f64>::zeros(cores));
    for (position, v) in x.indexed_iter() {
        let row = row(ndarray::Dimension::slice(&ndarray::Dimension::into_dyn(position)));
        for i in 0..cores {
            right[i] += row[i] * v;
            (0..cores).for_each(|j| normal[[i, j]] += row[i] * row[j]);
        }
    }
    // Gauss and Jordan, with pivots.
    for i in 0..cores {
        let pivot = (i..cores).max_by(|&a, &b| normal[[a, i]].abs().total_cmp(&normal[[b, i]].abs())).unwrap();
        for j in 0..cores {
            normal.swap([i, j], [pivot, j]);
        }
        right.swap(i, pivot);
        for k in (0..cores).filter(|&k| k != i) {
            let times = normal[[k, i]] / normal[[i, i]];
            (0..cores).for_each(|j| normal[[k, j]] -= times * normal[[i, j]]);
            right[k] -= times * right[i];
        }
    }
    let misfit: f64 = (0..cores)
        .map(|c| {
            let diagonal = (1..order).all(|m| index(c, m) == index(c, 0));
            (right[c] / normal[[c, c]] - f64::from(u8::from(diagonal))).powi(2)
        })
        .sum();
    100.0 * (1.0 - misfit / rank as f64)
}

#[test]
fn core_consistency_is_the_definition() {
    let mut state = 5u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.4
    };
    for (dims, rank) in [(vec![4, 5, 3], 2), (vec![4, 3, 5], 3), (vec![6, 4], 3), (vec![3, 4, 2, 3], 2), (vec![5], 1)] {
        let factors = dims.iter().map(|&d| Array2::from_shape_simple_fn((d, rank), &mut next)).collect();
        let weights = Array1::from_shape_fn(rank, |r| if r == 1 { -3.0 } else { 1.0 + r as f64 });
        let model = CpTensor::new(weights, factors).unwrap();
        let exact = model.to_full().unwrap();
        let found = model.core_consistency(exact.view()).unwrap();
        assert!((found - 100.0).abs() < 1e-7, "{dims:?}: {found}");
        let x = ArrayD::from_shape_simple_fn(dims.clone(), &mut next) * 0.3 + &exact;
        let expected = core_by_definition(&model, &x);
        for x in [x.view(), x.t().as_standard_layout().t()] {
            let found = model.core_consistency(x).unwrap();
            assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{dims:?}: {found} and {expected}");
        }
        // Neither the scale of the data nor how a component's scale is spread makes a difference.
        let (weights, mut factors) = model.clone().into_parts();
        factors[0] *= 1e-150;
        let scaled = CpTensor::new(weights * 1e200, factors).unwrap();
        let found = scaled.core_consistency((&x * 1e50).view()).unwrap();
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{dims:?}: {found} and {expected}");
    }
}

#[test]
fn core_consistency_of_other_dims_is_an_error() {
    let model = CpTensor::new(array![1.0], vec![array![[1.0], [2.0]]]).unwrap();
    let error = model.core_consistency(array![[1.0]].view()).unwrap_err();
    assert_eq!(error, Error::DimsMismatch { what: "the tensor", expected: vec![2], found: vec![1, 1] });
    // A core of 30^8 entries.
    let many = CpTensor::new(Array1::<f64>::ones(30), vec![Array2::ones((1, 30)); 8]).unwrap();
    let x = ArrayD::<f64>::ones(vec![1; 8]);
    assert!(matches!(many.core_consistency(x.view()), Err(Error::TooManyElements { .. })));
}
