//! CP-ALS on the CPU: recovery, degenerate inputs, stopping, starts, errors.

mod common;

use approx::assert_abs_diff_eq;
use common::Numbers;
use common::wrapped::Wrapped;
use ndarray::{Array1, Array2, Array3, ArrayD, Axis, IxDyn, array};
use polyad::plan::{Method, MttkrpPlan, PlanOptions, Precision};
use polyad::{CpAlsOptions, CpAlsResult, CpTensor, Cpu, Error, Init, MttkrpTime, Real, Stop, cp_als, cp_als_with};
use std::ops::ControlFlow;

/// Every entry by the definition of a CP model.
fn full<T: Real>(model: &CpTensor<T>) -> ArrayD<T> {
    ArrayD::from_shape_fn(IxDyn(&model.dims()), |index| {
        let component = |r: usize| {
            let factors = model.factors().iter().enumerate();
            model.weights()[r].f64() * factors.map(|(m, f)| f[[index[m], r]].f64()).product::<f64>()
        };
        T::of((0..model.rank()).map(component).sum())
    })
}

fn random_model(dims: &[usize], rank: usize, seed: u64) -> CpTensor<f64> {
    let mut numbers = Numbers::new(seed);
    let factors = dims.iter().map(|&i| numbers.matrix(i, rank)).collect();
    CpTensor::new(Array1::from_iter((1..=rank).map(|r| r as f64)), factors).unwrap()
}

/// What every result promises. The columns are rounded to T after they are normalised: an eps is allowed per entry.
fn check_result<T: Real>(x: &ArrayD<T>, result: &CpAlsResult<T>) {
    let (model, eps) = (&result.model, <T as num_traits::Float>::epsilon().f64());
    assert_eq!(model.dims(), x.shape());
    assert_eq!(result.fits.len(), result.sweeps);
    assert_eq!(result.fits.last(), Some(&result.fit));
    assert!(result.fits.iter().all(|f| f.is_finite() && *f <= 1.0));
    let weights: Vec<f64> = model.weights().iter().map(|w| w.f64()).collect();
    assert!(weights.windows(2).all(|w| w[0] >= w[1]) && weights.iter().all(|&w| w >= 0.0), "{weights:?}");
    for factor in model.factors() {
        for (column, &weight) in factor.axis_iter(Axis(1)).zip(&weights) {
            let norm = column.iter().map(|v| v.f64() * v.f64()).sum::<f64>().sqrt();
            assert!((norm - 1.0).abs() <= 4.0 * eps || (norm == 0.0 && weight == 0.0), "norm {norm}, weight {weight}");
        }
    }
    let s = result.seconds;
    assert!(s.mttkrp + s.gram + s.solve + s.fit + s.transfer <= s.total);
    // The fit is what the model itself says. Squares cancel, so half of the digits count.
    let error = (x.mapv(Real::f64) - full(model).mapv(Real::f64)).mapv(|v| v * v).sum().sqrt();
    let norm = x.mapv(|v| v.f64() * v.f64()).sum().sqrt();
    let fit = if norm == 0.0 { 1.0 } else { 1.0 - error / norm };
    let tolerance = 10.0 * (x.len() as f64 * eps).sqrt();
    assert!((fit - result.fit).abs() <= tolerance, "fit {} but the model's is {fit}", result.fit);
}

fn run<T: Real>(x: &ArrayD<T>, options: &CpAlsOptions) -> CpAlsResult<T> {
    let result = cp_als(&Cpu::new(), x.view(), options).unwrap();
    check_result(x, &result);
    result
}

#[test]
fn recovers_exact_low_rank() {
    for (dims, rank) in [(vec![9, 8, 7], 3), (vec![6, 5, 4, 7], 2), (vec![4, 5, 3, 4, 3], 2)] {
        let x = full(&random_model(&dims, rank, 3));
        // ALS may end in a local optimum: the best of five starts counts.
        let options = |seed| CpAlsOptions::new(rank).max_sweeps(500).fit_tolerance(1e-12).init(Init::Random { seed });
        let best = (0..5).map(|seed| run(&x, &options(seed)).fit).fold(0.0, f64::max);
        assert!(best > 0.99999, "{dims:?} in f64: {best}");
        let x = x.mapv(|v| v as f32);
        let best = (0..5).map(|seed| run(&x, &options(seed)).fit).fold(0.0, f64::max);
        assert!(best > 0.999, "{dims:?} in f32: {best}");
    }
}

#[test]
fn every_method_finds_the_same() {
    let x = full(&random_model(&[9, 8, 7], 2, 4));
    let fits = Method::PAPER.map(|method| {
        let options =
            CpAlsOptions::new(2).max_sweeps(20).fit_tolerance(0.0).plan(PlanOptions::default().method(method));
        let result = run(&x, &options);
        assert_eq!(result.method, method);
        result.fits
    });
    for other in &fits[1..] {
        assert!(fits[0].iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-6), "{fits:?}");
    }
}

/// The check of a result can fail: a fit that the model does not have is seen.
#[test]
#[should_panic(expected = "but the model's is")]
fn a_wrong_fit_is_noticed() {
    let x = full(&random_model(&[9, 8, 7], 2, 4));
    let mut result = run(&x, &CpAlsOptions::new(1).max_sweeps(3));
    result.fit -= 0.01;
    *result.fits.last_mut().unwrap() -= 0.01;
    check_result(&x, &result);
}

/// And so is a column that is not of unit norm.
#[test]
#[should_panic(expected = "norm 1.01")]
fn a_longer_column_is_noticed() {
    let x = full(&random_model(&[9, 8, 7], 2, 4));
    let mut result = run(&x, &CpAlsOptions::new(1).max_sweeps(3));
    let (weights, mut factors) = result.model.into_parts();
    factors[1].mapv_inplace(|v| v * 1.01);
    result.model = CpTensor::new(weights, factors).unwrap();
    check_result(&x, &result);
}

/// The comparison of methods can fail: another start takes another path.
#[test]
fn another_start_is_noticed() {
    let x = full(&random_model(&[9, 8, 7], 2, 4));
    let fits = [0, 1]
        .map(|seed| run(&x, &CpAlsOptions::new(2).max_sweeps(3).fit_tolerance(0.0).init(Init::Random { seed })).fits);
    assert!(fits[0].iter().zip(&fits[1]).any(|(a, b)| (a - b).abs() > 1e-6), "{fits:?}");
}

#[test]
fn ones_and_zeros() {
    let ones = ArrayD::<f32>::ones(IxDyn(&[4, 3, 5]));
    let result = run(&ones, &CpAlsOptions::new(1));
    assert!(result.fit > 0.999 && (result.model.weights()[0].f64() - 60f64.sqrt()).abs() < 1e-4);
    run(&ones, &CpAlsOptions::new(3));
    let result = run(&ArrayD::<f64>::zeros(IxDyn(&[4, 3, 5])), &CpAlsOptions::new(2));
    assert_eq!((result.fit, result.stop, result.sweeps), (1.0, Stop::Tolerance, 2));
    assert!(result.model.weights().iter().all(|&w| w == 0.0));
}

#[test]
fn rank_may_exceed_the_dims() {
    let x: ArrayD<f64> = Numbers::new(8).tensor(&[3, 2, 4]);
    for init in [Init::Random { seed: 1 }, Init::Nvecs { seed: 1 }] {
        let result = run(&x, &CpAlsOptions::new(9).max_sweeps(300).init(init));
        assert!(result.fit > 0.9, "{}", result.fit);
    }
    run(&x.mapv(|v| v as f32), &CpAlsOptions::new(40).max_sweeps(30).fit_tolerance(0.0));
}

#[test]
fn order_one_and_two() {
    let x: ArrayD<f64> = Numbers::new(9).tensor(&[6]);
    for rank in [1, 3] {
        let result = run(&x, &CpAlsOptions::new(rank));
        assert!(result.fit > 1.0 - 1e-7, "{}", result.fit);
        assert_eq!(result.warnings.iter().any(|w| w.starts_with("rank deficient")), rank > 1);
    }
    // Order 2: rank R is the R leading singular values, by Eckart and Young.
    let x = array![[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]].into_dyn();
    let result = run(&x, &CpAlsOptions::new(2).max_sweeps(500).fit_tolerance(1e-14));
    assert_abs_diff_eq!(result.fit, 1.0 - 1.0 / 14f64.sqrt(), epsilon = 1e-7);
    assert!(run(&x, &CpAlsOptions::new(5)).fit > 1.0 - 1e-6);
}

#[test]
fn nvecs_starts_at_the_singular_vectors() {
    // Each mode's unfolding is solved from the smaller side: 300 x 6 takes the other gram.
    let x: ArrayD<f64> = Numbers::new(10).tensor(&[300, 3, 2]);
    let result = run(&x, &CpAlsOptions::new(8).init(Init::Nvecs { seed: 3 }));
    assert!(result.fit > 0.2);
    // A superdiagonal tensor is its own decomposition in singular vectors: done in the first sweep.
    let mut x = ArrayD::<f32>::zeros(IxDyn(&[4, 5, 3]));
    for (i, v) in [5.0, 3.0, 2.0].into_iter().enumerate() {
        x[[i, i, i]] = v;
    }
    for x in [x.clone(), x.reversed_axes()] {
        let result = run(&x, &CpAlsOptions::new(3).init(Init::Nvecs { seed: 0 }));
        assert!(result.fits[0] > 0.999, "{:?}", result.fits);
        assert_eq!(result.model.weights().mapv(|w| w.round()), array![5.0, 3.0, 2.0]);
    }
}

#[test]
fn stops_when_told() {
    let x: ArrayD<f64> = Numbers::new(11).tensor(&[5, 6, 4]);
    let all = run(&x, &CpAlsOptions::new(2).max_sweeps(37).fit_tolerance(0.0));
    assert_eq!((all.sweeps, all.stop), (37, Stop::MaxSweeps));
    let early = run(&x, &CpAlsOptions::new(2).fit_tolerance(1e-3));
    assert_eq!(early.stop, Stop::Tolerance);
    let [.., before, last] = early.fits[..] else { panic!("one sweep only") };
    assert_abs_diff_eq!(last, before, epsilon = 1e-3);
    let mut seen = Vec::new();
    let result = cp_als_with(&Cpu::new(), x.view(), &CpAlsOptions::new(2).fit_tolerance(0.0), |sweep| {
        seen.push(*sweep);
        if sweep.number == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!((result.sweeps, result.stop), (3, Stop::Callback));
    assert_eq!(result.fits, all.fits[..3]);
    assert!(seen[0].fit_change.is_none() && seen[2].fit_change == Some(seen[2].fit - seen[1].fit));
    check_result(&x, &result);
}

#[test]
fn a_given_model_is_the_start_and_stays_as_it_is() {
    let truth = random_model(&[5, 6, 4], 2, 12);
    let x = full(&truth);
    let options = CpAlsOptions::new(2).init(Init::Model(Box::new(truth)));
    let before = options.clone();
    let result = run(&x, &options);
    assert_eq!(options, before);
    assert!(result.fits[0] > 1.0 - 1e-6, "{:?}", result.fits);
    // From a model that does not fit well the first sweep is at least as good as that model; huge scales do no harm.
    let (weights, mut factors) = random_model(&[5, 6, 4], 2, 13).into_parts();
    let own = {
        let model = CpTensor::new(weights.clone(), factors.clone()).unwrap();
        1.0 - (&x - &full(&model)).mapv(|v| v * v).sum().sqrt() / x.mapv(|v| v * v).sum().sqrt()
    };
    factors[1] *= 1e200;
    let model = CpTensor::new(weights, factors).unwrap();
    let result = run(&x.mapv(|v| v as f32), &CpAlsOptions::new(2).init(Init::Model(Box::new(model))));
    assert!(result.fits[0] >= own, "{} < {own}", result.fits[0]);
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let x: ArrayD<f32> = Numbers::new(14).tensor(&[15, 16, 14]);
    let run = |seed| {
        let options = CpAlsOptions::new(4).max_sweeps(10).init(Init::Random { seed });
        cp_als(&Cpu::with_threads(3).unwrap(), x.view(), &options).unwrap()
    };
    let (a, b, c) = (run(1), run(1), run(2));
    assert_eq!((&a.model, &a.fits), (&b.model, &b.fits));
    assert_ne!(a.model, c.model);
}

#[test]
fn the_error_never_grows() {
    for seed in 0..5 {
        let x: ArrayD<f64> = Numbers::new(20 + seed).tensor(&[6, 5, 7]);
        let result = run(&x, &CpAlsOptions::new(4).max_sweeps(60).fit_tolerance(0.0).init(Init::Random { seed }));
        assert!(result.fits.windows(2).all(|f| f[1] >= f[0] - 1e-9), "{:?}", result.fits);
    }
}

#[test]
fn any_scale_of_the_data_will_do() {
    let x = full(&random_model(&[5, 6, 4], 2, 15));
    let options = CpAlsOptions::new(2).max_sweeps(20);
    let plain = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    for scale in [1e-200, 1e200] {
        let scaled = cp_als(&Cpu::new(), x.mapv(|v| v * scale).view(), &options).unwrap();
        assert!((scaled.fit - plain.fit).abs() < 1e-6, "{scale}: {} and {}", scaled.fit, plain.fit);
    }
    // Weights beyond f32: an error, not infinity.
    let huge = Array2::from_elem((30, 30), 3e38f32);
    assert!(matches!(cp_als(&Cpu::new(), huge.view(), &options), Err(Error::Overflow { dtype: "f32", .. })));
}

#[test]
fn bad_data_is_named_by_index() {
    let mut x = Array3::<f32>::ones((3, 4, 5));
    x[[2, 1, 3]] = f32::NAN;
    x[[2, 3, 0]] = f32::INFINITY;
    let found = |x: ndarray::ArrayView3<'_, f32>| match cp_als(&Cpu::new(), x, &CpAlsOptions::new(1)) {
        Err(Error::NonFinite { what, index, value }) => (what, index, value),
        other => panic!("{other:?}"),
    };
    let (what, index, value) = found(x.view());
    assert!(what == "the tensor" && index == [2, 1, 3] && value.is_nan());
    assert_eq!(found(x.view().reversed_axes()).1, [0, 3, 2]);
}

#[test]
fn options_that_make_no_sense_are_errors() {
    for rank in [usize::MAX, 1 << 40, 1 << 62] {
        let error = cp_als(&Cpu::new(), array![[1.0f32, 2.0]].view(), &CpAlsOptions::new(rank)).unwrap_err();
        assert_eq!(error, Error::TooManyElements { what: "a factor or a gram", dims: vec![rank, rank] });
    }
    let x = Array2::<f64>::ones((3, 4));
    let error = |options: &CpAlsOptions| cp_als(&Cpu::new(), x.view(), options).unwrap_err();
    assert_eq!(error(&CpAlsOptions::new(0)), Error::RankZero);
    assert!(matches!(error(&CpAlsOptions::new(1).max_sweeps(0)), Error::Option { name: "max_sweeps", .. }));
    assert!(matches!(error(&CpAlsOptions::new(1).fit_tolerance(f64::NAN)), Error::Option { .. }));
    let model = |dims: &[usize], rank| CpAlsOptions::new(2).init(Init::Model(Box::new(random_model(dims, rank, 1))));
    assert_eq!(
        error(&model(&[3, 5], 2)),
        Error::DimsMismatch { what: "the initial model", expected: vec![3, 4], found: vec![3, 5] }
    );
    assert!(matches!(error(&model(&[3, 4], 3)), Error::Option { .. }));
    let empty = Array2::<f64>::ones((3, 0));
    assert!(matches!(cp_als(&Cpu::new(), empty.view(), &CpAlsOptions::new(1)), Err(Error::EmptyDim { mode: 1, .. })));
    let wide = Array2::<f32>::zeros((8193, 8193));
    let nvecs = cp_als(&Cpu::new(), wide.view(), &CpAlsOptions::new(1).init(Init::Nvecs { seed: 0 }));
    assert!(matches!(nvecs, Err(Error::Option { requirement, .. }) if requirement.contains("8193 x 8193")));
}

#[test]
fn fused_is_the_default_on_the_cpu() {
    let x = full(&random_model(&[9, 8, 7], 2, 4));
    let fused = CpAlsOptions::new(2).plan(PlanOptions::default().method(Method::Fused));
    let (default, fused) = (run(&x, &CpAlsOptions::new(2)), run(&x, &fused));
    assert_eq!((default.method, default.fits), (Method::Fused, fused.fits));
}

/// MTTKRPs, starts, grams, equations and norms: large enough that each of them is shared out, in a pool that all of it
/// runs in.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    fn check<T: Real>(dims: &[usize], rank: usize, init: Init) {
        let x: ArrayD<T> = Numbers::new(6).tensor(dims);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = CpAlsOptions::new(rank).max_sweeps(2).init(init.clone());
            pool.install(|| cp_als(&Cpu::new(), x.view(), &options).unwrap())
        };
        let one = run(1);
        for threads in [2, 3, 5, 24] {
            let other = run(threads);
            assert_eq!(other.fits, one.fits, "{dims:?} on {threads} threads");
            assert!(other.model == one.model, "{dims:?} on {threads} threads");
        }
    }
    check::<f32>(&[2100, 12, 10], 130, Init::Random { seed: 1 });
    check::<f64>(&[40, 30, 50], 12, Init::Random { seed: 1 });
    check::<f32>(&[300, 30, 20], 5, Init::Nvecs { seed: 1 });
}

#[test]
fn precision_changes_nothing_on_the_cpu() {
    let x = full(&random_model(&[9, 8, 7], 2, 4)).mapv(|v| v as f32);
    let fits = |precision| run(&x, &CpAlsOptions::new(2).plan(PlanOptions::default().precision(precision))).fits;
    assert_eq!(fits(Precision::Float32), fits(Precision::Fast));
}

#[test]
fn a_fallback_is_one_warning() {
    let x = full(&random_model(&[5, 4, 3], 2, 1));
    let options = CpAlsOptions::new(2).max_sweeps(3).fit_tolerance(0.0);
    // The CPU, as a device that has to use its fallback for every mode from 1 on.
    let cpu = Cpu::new();
    let falls_back = Wrapped(&cpu, |plan: &MttkrpPlan, time| MttkrpTime { fallback: plan.mode() > 0, ..time });
    let result = cp_als(&falls_back, x.view(), &options).unwrap();
    let expected = "the range of the numbers is too wide for f16 matrix units in mode 1: the f32 kernels were used";
    assert_eq!((result.sweeps, result.warnings), (3, vec![expected.to_string()]));
    assert!(run(&x, &options).warnings.is_empty());
}
