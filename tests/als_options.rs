//! Options of CP-ALS on every device, in both dtypes: starts, fixed modes, stopping, ridge.

mod common;

use common::Numbers;
use common::devices::{devices, everywhere, true_fit};
use ndarray::{Array1, Array2, ArrayD, IxDyn};
use polyad::{Backend, CpAlsOptions, CpTensor, Device, Dtype, Init, Real, Stop, cp_als, cp_als_with};
use std::ops::ControlFlow;

fn model(dims: &[usize], rank: usize, seed: u64) -> CpTensor<f64> {
    let mut numbers = Numbers::new(seed);
    let factors = dims.iter().map(|&rows| numbers.matrix::<f64>(rows, rank)).collect();
    CpTensor::new(Array1::from_shape_fn(rank, |r| 2.0 - 3.0 * r as f64), factors).unwrap()
}

/// Numbers that f32 has too, so that a model of them is the same in both dtypes.
fn rounded(model: &CpTensor<f64>) -> CpTensor<f64> {
    let round = |v: f64| f64::from(v as f32);
    let factors = model.factors().iter().map(|f| f.mapv(round)).collect();
    CpTensor::new(model.weights().mapv(round), factors).unwrap()
}

fn close<T: Real>(a: f64, b: f64) -> bool {
    (a - b).abs() <= if T::DTYPE == Dtype::F32 { 2e-6 } else { 1e-12 } * (1.0 + b.abs())
}

fn given<T: Real>(model: &CpTensor<f64>) -> CpTensor<T> {
    let factors = model.factors().iter().map(|f| f.mapv(T::of)).collect();
    CpTensor::new(model.weights().mapv(T::of), factors).unwrap()
}

fn starts_at_its_own_fit<T: Real>(device: &Device) {
    let dims = [6, 5, 4];
    let start = rounded(&model(&dims, 3, 5));
    let noise = Numbers::new(6).tensor::<f64>(&dims);
    // Far from the start, near it, all but equal, and tiny.
    for (share, scale) in [(1.0, 1.0), (0.1, 1.0), (1e-3, 1.0), (0.0, 1.0), (0.1, 1e-30)] {
        let x = (start.to_full().unwrap() + &noise * share) * scale;
        let x: ArrayD<T> = x.mapv(T::of);
        let (weights, factors) = start.clone().into_parts();
        let init = CpTensor::new(weights * scale, factors).unwrap();
        let options = CpAlsOptions::new(3).max_sweeps(2).init(Init::Model(Box::new(init.clone())));
        let before = options.clone();
        let result = cp_als(device, x.view(), &options).unwrap();
        assert_eq!(options, before);
        let (own, expected) = (result.initial_fit.unwrap(), true_fit(&x, &init));
        let exact = if T::DTYPE == Dtype::F32 { 1e-5 } else { 1e-7 };
        let what = format!("{share} {scale:e} {} {}", T::DTYPE, device.name());
        assert!((own - expected).abs() < exact, "{what}: {own}, the model's is {expected}");
        assert!(result.fits[0] >= own - 1e-3, "{what}: {own} then {:?}", result.fits);
    }
    // A start of 1e200 in f64 has a fit, far below 0; one beyond f64 has none, and does no harm.
    let x: ArrayD<T> = noise.mapv(T::of);
    for (power, there) in [(200, true), (300, false)] {
        let (weights, mut factors) = start.clone().into_parts();
        factors[1] *= 10f64.powi(power);
        factors[2] *= 10f64.powi(power - 200);
        let init = CpTensor::new(weights, factors).unwrap();
        let result =
            cp_als(device, x.view(), &CpAlsOptions::new(3).max_sweeps(2).init(Init::Model(Box::new(init)))).unwrap();
        assert_eq!(result.initial_fit.is_some(), there);
        assert!(result.initial_fit.is_none_or(|fit| fit < -1e199 && fit.is_finite()), "{:?}", result.initial_fit);
    }
    let random = cp_als(device, x.view(), &CpAlsOptions::new(3).max_sweeps(2)).unwrap();
    assert_eq!(random.initial_fit, None);
}

#[test]
fn a_given_model_starts_at_its_own_fit() {
    everywhere(starts_at_its_own_fit::<f32>, starts_at_its_own_fit::<f64>);
}

fn fixed_modes<T: Real>(device: &Device) {
    let dims = [6, 5, 4];
    let x: ArrayD<T> = (model(&dims, 3, 1).to_full().unwrap() + Numbers::new(2).tensor::<f64>(&dims) * 0.3).mapv(T::of);
    // Columns of very different length; mode 1 has a zero column.
    let (weights, mut factors) = model(&dims, 3, 3).into_parts();
    factors[0].column_mut(1).mapv_inplace(|v| v * 1e8);
    factors[1].column_mut(2).fill(0.0);
    factors[2].column_mut(0).mapv_inplace(|v| v * 1e-7);
    let start = CpTensor::new(weights, factors).unwrap();
    let init = Init::Model(Box::new(start.clone()));
    for subset in 0..8usize {
        let fixed: Vec<usize> = (0..3).filter(|mode| subset >> mode & 1 == 1).collect();
        let options = CpAlsOptions::new(3).max_sweeps(15).fit_tolerance(0.0).init(init.clone()).fix(fixed.clone());
        let result = cp_als(device, x.view(), &options).unwrap();
        let what = format!("fixed {fixed:?} {} {}", T::DTYPE, device.name());
        for &mode in &fixed {
            assert_eq!(result.model.factors()[mode], given::<T>(&start).factors()[mode], "{what}: factor {mode}");
        }
        let expected = true_fit(&x, &result.model);
        let rounding = if T::DTYPE == Dtype::F32 { 1e-5 } else { 1e-10 };
        assert!((result.fit - expected).abs() < rounding * (1.0 + expected.abs()), "{what}: {} {expected}", result.fit);
        if fixed.len() == 3 {
            assert_eq!((result.stop, result.sweeps, result.fits.len()), (Stop::AllFixed, 0, 0), "{what}");
            assert_eq!((result.model, result.initial_fit), (given(&start), Some(result.fit)), "{what}");
        } else {
            assert_eq!((result.stop, result.sweeps, result.fits.len()), (Stop::MaxSweeps, 15, 15), "{what}");
            assert!(result.fits.windows(2).all(|f| f[1] >= f[0] - 1e-5), "{what}: {:?}", result.fits);
        }
    }
    // One free mode is a least-squares problem: from the true other factors the fit is perfect in one sweep.
    let truth = model(&dims, 2, 8);
    let x: ArrayD<T> = truth.to_full().unwrap().mapv(T::of);
    for free in 0..3 {
        let (weights, mut factors) = truth.clone().into_parts();
        factors[free] = Numbers::new(4).matrix(dims[free], 2);
        let init = Init::Model(Box::new(CpTensor::new(weights, factors).unwrap()));
        let options = CpAlsOptions::new(2).max_sweeps(1).init(init).fix((0..3).filter(|&mode| mode != free));
        let result = cp_als(device, x.view(), &options).unwrap();
        assert!(result.fit > 1.0 - 1e-5 && true_fit(&x, &result.model) > 1.0 - 1e-5, "free {free}: {}", result.fit);
    }
}

#[test]
fn fixed_factors_come_back_bit_by_bit() {
    everywhere(fixed_modes::<f32>, fixed_modes::<f64>);
}

/// All modes fixed returns the start: so it can be compared between devices.
#[test]
fn every_device_starts_from_the_same_bits() {
    fn compare<T: Real>(all: &[Device]) {
        let x: ArrayD<T> = Numbers::new(9).tensor(&[7, 6, 5]);
        for init in [Init::Random { seed: 4 }, Init::Nvecs { seed: 4 }] {
            let options = CpAlsOptions::new(6).init(init).fix(0..3);
            let starts: Vec<_> = all.iter().map(|d| cp_als(d, x.view(), &options).unwrap().model).collect();
            assert!(starts.iter().all(|start| *start == starts[0]));
        }
        let other = CpAlsOptions::new(6).init(Init::Random { seed: 5 }).fix(0..3);
        let first = CpAlsOptions::new(6).init(Init::Random { seed: 4 }).fix(0..3);
        assert_ne!(cp_als(&all[0], x.view(), &other).unwrap().model, cp_als(&all[0], x.view(), &first).unwrap().model);
    }
    compare::<f32>(&devices());
    let with_f64: Vec<_> = devices().into_iter().filter(|d| common::devices::has(d, Dtype::F64)).collect();
    compare::<f64>(&with_f64);
}

fn stopping<T: Real>(device: &Device) {
    let x: ArrayD<T> = Numbers::new(11).tensor(&[8, 7, 6]);
    let options = CpAlsOptions::new(3).max_sweeps(23).fit_tolerance(0.0);
    let all = cp_als(device, x.view(), &options).unwrap();
    assert_eq!((all.sweeps, all.fits.len(), all.stop), (23, 23, Stop::MaxSweeps));
    // A callback that looks at every sweep, or stops, changes no bit.
    let mut seen = Vec::new();
    let looked = cp_als_with(device, x.view(), &options, |sweep| {
        seen.push(sweep.fit);
        ControlFlow::Continue(())
    });
    let looked = looked.unwrap();
    assert_eq!((&looked.model, &looked.fits, seen.len()), (&all.model, &all.fits, 23));
    let stop =
        |sweep: &polyad::Sweep| if sweep.number == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let stopped = cp_als_with(device, x.view(), &options, stop).unwrap();
    let five = cp_als(device, x.view(), &options.clone().max_sweeps(5)).unwrap();
    assert_eq!((stopped.stop, stopped.sweeps, five.sweeps), (Stop::Callback, 5, 5));
    assert_eq!((&stopped.model, &stopped.fits), (&five.model, &five.fits));
    // At least one sweep, and none begun after the time is over.
    let none = cp_als(device, x.view(), &options.clone().max_seconds(0.0)).unwrap();
    assert_eq!((none.stop, none.sweeps, none.fits.len()), (Stop::MaxSeconds, 1, 1));
    let mut times = Vec::new();
    let limited = options.clone().max_sweeps(1_000_000).max_seconds(0.3);
    let timed = cp_als_with(device, x.view(), &limited, |sweep| {
        times.push(sweep.seconds);
        ControlFlow::Continue(())
    });
    let timed = timed.unwrap();
    assert_eq!((timed.stop, timed.sweeps, timed.fits.len()), (Stop::MaxSeconds, times.len(), times.len()));
    assert!(times[..times.len() - 1].iter().all(|&s| s < 0.3), "{times:?}");
}

#[test]
fn sweeps_are_counted_and_time_is_kept() {
    everywhere(stopping::<f32>, stopping::<f64>);
}

fn ridge<T: Real>(device: &Device) {
    // No best model of rank 2 exists: without a ridge the weights grow for ever.
    let mut x = ArrayD::<T>::zeros(IxDyn(&[2, 2, 2]));
    for index in [[0, 0, 1], [0, 1, 0], [1, 0, 0]] {
        x[index] = T::one();
    }
    let options = |ridge, sweeps| {
        let init = Init::Random { seed: 1 };
        CpAlsOptions::new(2).max_sweeps(sweeps).fit_tolerance(0.0).ridge(ridge).init(init)
    };
    let largest = |ridge, sweeps, x: &ArrayD<T>| {
        cp_als(device, x.view(), &options(ridge, sweeps)).unwrap().model.weights()[0].f64()
    };
    let weights = [0.0, 1e-3, 1e-2].map(|ridge| [300, 1200].map(|sweeps| largest(ridge, sweeps, &x)));
    println!("{} {}: {weights:?}", T::DTYPE, device.name());
    let [free, little, more] = weights;
    assert!(free[1] > 1.3 * free[0], "{weights:?}");
    assert!(free[0] > little[0] && little[0] > more[0], "{weights:?}");
    assert!([little, more].iter().all(|w| (w[1] / w[0] - 1.0).abs() < 1e-2), "{weights:?}");
    // The two weights are about equal, and their squares add up to less than |X|^2 / ridge.
    assert!(little[1] < (3.0f64 / 1e-3 / 2.0).sqrt() && more[1] < (3.0f64 / 1e-2 / 2.0).sqrt());
    // It goes with the data's scale.
    let huge = x.mapv(|v| T::of(v.f64() * 1e20));
    assert!((largest(1e-2, 300, &huge) / 1e20 / more[0] - 1.0).abs() < 1e-3);

    // Against the definition, for one mode: A = G (V + ridge I)^-1 with columns of unit norm, rank 1.
    let (a, b) = (Array2::from_elem((4, 1), 0.5), Array2::from_elem((9, 1), 1.0 / 3.0));
    let x: ArrayD<T> = Numbers::new(5).tensor(&[5, 4, 9]);
    let start = CpTensor::new(Array1::ones(1), vec![Array2::ones((5, 1)), a, b]).unwrap();
    let options = CpAlsOptions::new(1).max_sweeps(1).init(Init::Model(Box::new(start))).fix([1, 2]).ridge(0.25);
    let result = cp_als(device, x.view(), &options).unwrap();
    for i in 0..5 {
        let g: f64 = x.index_axis(ndarray::Axis(0), i).iter().map(|v| v.f64() / 6.0).sum();
        let found = result.model.weights()[0].f64() * result.model.factors()[0][[i, 0]].f64();
        assert!(close::<T>(found, g / 1.25), "{found} and {}", g / 1.25);
    }
}

#[test]
fn a_ridge_bounds_the_weights() {
    everywhere(ridge::<f32>, ridge::<f64>);
}

#[test]
fn bad_options_are_errors_with_numbers() {
    let x = Array2::<f64>::ones((3, 4));
    let error = |options: CpAlsOptions| cp_als(&polyad::Cpu::new(), x.view(), &options).unwrap_err().to_string();
    assert_eq!(
        error(CpAlsOptions::new(1).fix([0, 2])),
        "mode 2 is out of range for a tensor of order 2 (modes are 0 to 1)"
    );
    assert_eq!(error(CpAlsOptions::new(1).ridge(-0.5)), "ridge is -0.5: it must be a finite number of at least 0");
    assert!(error(CpAlsOptions::new(1).max_seconds(f64::NAN)).starts_with("max_seconds is NaN"));
    let zero = CpTensor::new(Array1::ones(1), vec![Array2::ones((3, 1)), Array2::zeros((4, 1))]).unwrap();
    let zero = CpAlsOptions::new(1).init(Init::Model(Box::new(zero)));
    assert!(error(zero.clone().fix([1])).contains("factor 1 is zero"));
    // Replaced first, or all fixed: no harm.
    for fixed in [vec![0], vec![0, 1]] {
        assert!(cp_als(&polyad::Cpu::new(), x.view(), &zero.clone().fix(fixed)).unwrap().fit.is_finite());
    }
    let huge = CpTensor::new(Array1::ones(1), vec![Array2::ones((3, 1)), Array2::from_elem((4, 1), 1e300)]).unwrap();
    let huge = CpAlsOptions::new(1).init(Init::Model(Box::new(huge))).fix([1]);
    let error = cp_als(&polyad::Cpu::new(), x.mapv(|v| v as f32).view(), &huge).unwrap_err();
    assert!(error.to_string().starts_with("factor 1 of the start overflowed f32 at index (0, 0)"), "{error}");
}
