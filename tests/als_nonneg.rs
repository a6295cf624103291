//! CP-ALS without negative entries, on every device and in both dtypes.

mod common;

use common::Numbers;
use common::devices::{everywhere, true_fit};
use ndarray::{Array1, Array2, ArrayD};
use polyad::{Backend, CpAlsOptions, CpTensor, Cpu, Device, Dtype, Init, Real, cp_als};

fn positive(dims: &[usize], rank: usize, seed: u64) -> CpTensor<f64> {
    let mut numbers = Numbers::new(seed);
    // Many zeros, as such data have them.
    let factors = dims.iter().map(|&rows| numbers.matrix::<f64>(rows, rank).mapv(|v| v.max(0.0))).collect();
    CpTensor::new(Array1::ones(rank), factors).unwrap()
}

fn check<T: Real>(x: &ArrayD<T>, result: &polyad::CpAlsResult<T>, modes: &[usize], what: &str) {
    for &mode in modes {
        assert!(result.model.factors()[mode].iter().all(|&v| v >= T::zero()), "{what}: factor {mode}");
    }
    assert!(result.model.weights().iter().all(|w| w.is_finite() && *w >= T::zero()), "{what}");
    let (fit, eps) = (true_fit(x, &result.model), <T as num_traits::Float>::epsilon().f64());
    assert!((fit - result.fit).abs() <= 4.0 * eps.sqrt(), "{what}: {} and {fit}", result.fit);
    // The square of the error is what is computed.
    let square = |fit: f64| (1.0 - fit) * (1.0 - fit);
    let grows = result.fits.windows(2).any(|f| square(f[1]) > square(f[0]) + 40.0 * eps);
    assert!(!grows, "{what}: {:?}", result.fits);
}

fn nonneg<T: Real>(device: &Device) {
    let dims = [9, 8, 7];
    let exact = positive(&dims, 3, 2).to_full().unwrap();
    let mixed = &exact + &(Numbers::new(3).tensor::<f64>(&dims) * 0.2);
    let options = CpAlsOptions::new(3).max_sweeps(60).fit_tolerance(0.0);
    for modes in [vec![0, 1, 2], vec![1], vec![0, 2], vec![2]] {
        for (name, data) in [("exact", &exact), ("mixed", &mixed)] {
            let mut fits = Vec::new();
            let scales: &[f64] = if T::DTYPE == Dtype::F32 { &[1.0, 1e-30, 1e30] } else { &[1.0, 1e-150, 1e150] };
            for &scale in scales {
                let x: ArrayD<T> = data.mapv(|v| T::of(v * scale));
                let what = format!("{name} {modes:?} {scale:e} {} {}", T::DTYPE, device.name());
                let result = cp_als(device, x.view(), &options.clone().nonneg(modes.clone())).unwrap();
                check(&x, &result, &modes, &what);
                assert!(result.algebra.contains("HALS on the host"), "{}", result.algebra);
                fits.push(result.fit);
            }
            println!("{name} {modes:?} {} {}: {fits:?}", T::DTYPE, device.name());
            assert!(name != "exact" || fits.iter().all(|&f| f > 0.98), "{modes:?}: {fits:?}");
            let close = if T::DTYPE == Dtype::F32 { 1e-3 } else { 1e-7 };
            assert!(fits.iter().all(|f| (f - fits[0]).abs() < close), "{name} {modes:?}: {fits:?}");
        }
    }
    // Nothing positive to find: the best model without negative entries is zero.
    let x: ArrayD<T> = exact.mapv(|v| T::of(-v - 0.1));
    let result = cp_als(device, x.view(), &CpAlsOptions::new(2).nonneg(0..3)).unwrap();
    assert_eq!((result.fit, result.sweeps), (0.0, 2));
    assert!(result.model.weights().iter().all(|&w| w == T::zero()));
    assert!(result.model.factors().iter().flatten().all(|v| v.is_finite()));
    // With one mode that may be negative, the same data are no trouble.
    let result = cp_als(device, x.view(), &options.clone().nonneg([0, 2])).unwrap();
    check(&x, &result, &[0, 2], "negative data");
    assert!(result.fit > 0.8, "{}", result.fit);
    // Beside fixed modes, a ridge and singular vectors.
    let x: ArrayD<T> = mixed.mapv(T::of);
    let start = positive(&dims, 3, 5);
    let held = options.clone().nonneg(0..3).init(Init::Model(Box::new(start.clone()))).fix([1]);
    let result = cp_als(device, x.view(), &held).unwrap();
    check(&x, &result, &[0, 1, 2], "fixed");
    assert_eq!(result.model.factors()[1], start.factors()[1].mapv(T::of));
    assert!(result.fit >= result.initial_fit.unwrap());
    let nvecs = cp_als(device, x.view(), &options.clone().nonneg(0..3).init(Init::Nvecs { seed: 1 })).unwrap();
    check(&x, &nvecs, &[0, 1, 2], "nvecs");
    let ridge = cp_als(device, x.view(), &options.nonneg(0..3).ridge(1e3)).unwrap();
    assert!(ridge.fit < 0.1 && ridge.model.weights()[0] > T::zero(), "{}", ridge.fit);
}

#[test]
fn no_entry_is_negative() {
    everywhere(nonneg::<f32>, nonneg::<f64>);
}

/// Unconstrained ALS finds a model of mixed signs for these data, so the test above can fail.
#[test]
fn without_the_option_entries_are_negative() {
    let x = positive(&[9, 8, 7], 3, 2).to_full().unwrap() + Numbers::new(3).tensor::<f64>(&[9, 8, 7]) * 0.2;
    let model = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(3)).unwrap().model;
    assert!(model.factors().iter().flatten().any(|&v| v < 0.0));
}

#[test]
fn a_start_with_negative_entries_is_told() {
    let mut factors = vec![Array2::<f64>::ones((3, 1)), Array2::ones((4, 1))];
    factors[1][[2, 0]] = -0.5;
    let init = Init::Model(Box::new(CpTensor::new(Array1::ones(1), factors).unwrap()));
    let x = Array2::<f64>::ones((3, 4));
    let error = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1).init(init).nonneg([1])).unwrap_err();
    let expected = "init is a model whose factor 1 has -0.5 at index (2, 0): that mode is to have no negative entry";
    assert_eq!(error.to_string(), expected);
}
