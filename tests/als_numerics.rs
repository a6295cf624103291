//! CP-ALS where others break: constant, zero, tiny, huge and degenerate tensors, on every device and in both dtypes.

mod common;

use common::Numbers;
use common::devices::{devices, everywhere, has, true_fit};
use ndarray::{Array1, Array2, ArrayD, Axis, IxDyn};
use polyad::{CpAlsOptions, CpAlsResult, CpTensor, Cpu, Device, Dtype, Error, Init, Real, Tree, cp_als};

/// What every result promises.
fn check<T: Real>(x: &ArrayD<T>, result: &CpAlsResult<T>, what: &str) {
    let finite = |v: &T| v.is_finite();
    assert!(result.model.weights().iter().all(finite), "{what}: {:?}", result.model.weights());
    assert!(result.model.factors().iter().all(|f| f.iter().all(finite)), "{what}");
    assert!(result.fits.iter().all(|f| f.is_finite() && *f <= 1.0), "{what}: {:?}", result.fits);
    assert_eq!(result.fits.len(), result.sweeps, "{what}");
    if x.iter().any(|&v| v != T::zero()) {
        let (fit, eps) = (true_fit(x, &result.model), <T as num_traits::Float>::epsilon().f64());
        // Squares cancel: half of the digits count.
        let tolerance = 4.0 * eps.sqrt();
        assert!((fit - result.fit).abs() <= tolerance, "{what}: fit {}, the model's is {fit}", result.fit);
    }
}

fn ones_and_vectors<T: Real>(device: &Device) {
    let mut numbers = Numbers::new(3);
    let mut cases = vec![(ArrayD::<T>::ones(IxDyn(&[2, 3, 4])), 2), (ArrayD::ones(IxDyn(&[12, 3, 12])), 12)];
    for (dims, rank) in [
        (&[1, 1, 5][..], 1),
        (&[1, 1, 5], 2),
        (&[5, 1], 1),
        (&[5, 1], 2),
        (&[1, 1, 1], 1),
        (&[1, 1, 1], 2),
        (&[7], 1),
        (&[7], 2),
        (&[1, 4, 5], 4),
        (&[4, 1, 5], 4),
        (&[4, 5, 1], 4),
    ] {
        cases.push((numbers.tensor(dims), rank));
    }
    for (x, rank) in cases {
        let what = format!("{:?} R {rank} {} {}", x.shape(), T::DTYPE, polyad::Backend::name(device));
        let result = cp_als(device, x.view(), &CpAlsOptions::new(rank).fit_tolerance(1e-9)).unwrap();
        check(&x, &result, &what);
        let least = if T::DTYPE == Dtype::F32 { 1.0 - 1e-3 } else { 1.0 - 1e-6 };
        assert!(result.fit > least, "{what}: {}", result.fit);
        // Components beyond what the other modes can tell apart.
        let smallest = x.len() / x.shape().iter().max().unwrap();
        if rank > smallest {
            assert!(result.warnings.iter().any(|w| w.starts_with("rank deficient")), "{what}: {:?}", result.warnings);
        }
    }
}

#[test]
fn constant_tensors_and_vectors_fit_exactly() {
    everywhere(ones_and_vectors::<f32>, ones_and_vectors::<f64>);
}

fn zeros<T: Real>(device: &Device) {
    let x = ArrayD::<T>::zeros(IxDyn(&[4, 3, 5]));
    let result = cp_als(device, x.view(), &CpAlsOptions::new(2)).unwrap();
    check(&x, &result, "zeros");
    assert!(result.fit == 1.0 && result.sweeps <= 2, "{} after {}", result.fit, result.sweeps);
    assert!(result.model.weights().iter().all(|&w| w == T::zero()));

    // A zero column in a given start is no harm; a zero factor is none in mode 0 only.
    let x: ArrayD<T> = Numbers::new(6).tensor(&[4, 3, 5]);
    let mut numbers = Numbers::new(7);
    let mut factors: Vec<Array2<f64>> = [4, 3, 5].map(|rows| numbers.matrix(rows, 2)).into();
    factors[1].column_mut(1).fill(0.0);
    factors[0].fill(0.0);
    let start = |factors: Vec<Array2<f64>>| {
        let model = CpTensor::new(Array1::ones(2), factors).unwrap();
        cp_als(device, x.view(), &CpAlsOptions::new(2).init(Init::Model(Box::new(model))))
    };
    check(&x, &start(factors.clone()).unwrap(), "zero column");
    factors[2].fill(0.0);
    let error = start(factors).unwrap_err();
    assert_eq!(
        error.to_string(),
        "init is a model whose factor 2 is zero: every update would be zero: start from something else"
    );
    assert!(matches!(error, Error::Option { name: "init", .. }));
}

#[test]
fn zeros_are_fitted_by_zeros_and_are_no_start() {
    everywhere(zeros::<f32>, zeros::<f64>);
}

fn scales<T: Real>(device: &Device, scales: &[f64]) {
    // Uniform numbers of at least 0.1: none of them leaves the range of T when it is scaled.
    let x: ArrayD<T> = Numbers::new(15).tensor::<T>(&[6, 5, 4]).mapv(|v| T::of(v.f64().abs() + 0.1));
    let options = CpAlsOptions::new(2).max_sweeps(10).fit_tolerance(0.0);
    let plain = cp_als(device, x.view(), &options).unwrap();
    for &scale in scales {
        let scaled: ArrayD<T> = x.mapv(|v| T::of(v.f64() * scale));
        let result = cp_als(device, scaled.view(), &options).unwrap();
        let what = format!("{scale:e} {} {}", T::DTYPE, polyad::Backend::name(device));
        check(&scaled, &result, &what);
        // The scaled numbers are rounded, each by half an eps.
        let close = 1e3 * <T as num_traits::Float>::epsilon().f64();
        assert!((result.fit - plain.fit).abs() < close, "{what}: {} and {}", result.fit, plain.fit);
        for (a, b) in result.model.weights().iter().zip(plain.model.weights()) {
            assert!((a.f64() / scale / b.f64() - 1.0).abs() < close, "{what}: weights {a:e} and {b:e}");
        }
        for (a, b) in result.model.factors().iter().zip(plain.model.factors()) {
            assert!(a.iter().zip(b).all(|(a, b)| (a.f64() - b.f64()).abs() < close), "{what}:\n{a}\n{b}");
        }
    }
}

#[test]
fn any_scale_gives_the_same_factors() {
    everywhere(
        |device| scales::<f32>(device, &[1e-36, 1e-30, 1e-20, 1e20, 1e30]),
        |device| scales::<f64>(device, &[1e-290, 1e-150, 1e150, 1e290]),
    );
}

/// The comparison above can fail: other data are seen.
#[test]
#[should_panic(expected = "the model's is")]
fn other_data_are_noticed() {
    let x: ArrayD<f64> = Numbers::new(15).tensor(&[6, 5, 4]);
    let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(2)).unwrap();
    let mut other = x;
    other.index_axis_mut(Axis(0), 2).mapv_inplace(|v| v * 1.1);
    check(&other, &result, "other data");
}

/// Sums in f32 leave about 3e-4 of `1 - fit` at a perfect fit; what is reported is right to 1e-5 all the same.
#[test]
fn the_fit_of_f32_data_is_right_near_one() {
    for device in devices() {
        for (rows, sweeps) in [(20, 200), (60, 60), (100, 30)] {
            let on_gpu = polyad::Backend::caps(&device).name != "CPU";
            if on_gpu && (rows > 60 || !has(&device, Dtype::F64)) {
                continue;
            }
            let mut numbers = Numbers::new(rows as u64);
            let factors = [rows; 3].map(|rows| numbers.matrix::<f64>(rows, 5)).into();
            let x = CpTensor::new(Array1::ones(5), factors).unwrap().to_full().unwrap().mapv(|v| v as f32);
            let init = Init::Nvecs { seed: 2 };
            let options = CpAlsOptions::new(5).max_sweeps(sweeps).fit_tolerance(0.0).init(init).tree(Tree::None);
            let result = cp_als(&device, x.view(), &options).unwrap();
            assert!(result.fit > 0.999, "{rows}^3: {}", result.fit);
            // The last fit took a pass more.
            let passes = 3 * result.sweeps + 1;
            assert!(on_gpu || result.passes == passes, "{rows}^3: {} passes, {}", result.passes, result.tree);
            let fit = true_fit(&x, &result.model);
            println!("{rows}^3 {}: reported {}, true {fit}", result.device, result.fit);
            assert!((result.fit - fit).abs() <= 1e-5 && result.fit <= 1.0, "{rows}^3: {} and {fit}", result.fit);
        }
    }
}

/// Rank 2, but three components: the normal equations become nearly singular, and f32 sums of G stall at 8e-3.
#[test]
fn ill_conditioned_f32_data_are_summed_in_f64() {
    let x = ArrayD::from_shape_vec(IxDyn(&[30, 40, 20]), (0..24000).map(|v| v as f32).collect()).unwrap();
    for device in devices() {
        let name = polyad::Backend::name(&device);
        let starts = if name == "CPU" { 12 } else { 4 };
        for seed in 0..starts {
            let options = CpAlsOptions::new(3).max_sweeps(50).fit_tolerance(0.0).init(Init::Random { seed });
            let result = cp_als(&device, x.view(), &options).unwrap();
            let error = 1.0 - true_fit(&x, &result.model);
            println!("seed {seed} {name}: error {error:.2e}, reported {:.2e}, {:?}", 1.0 - result.fit, result.warnings);
            if has(&device, Dtype::F64) {
                assert!(error <= 1e-4, "seed {seed} {name}: {error}");
            } else {
                assert!(error <= 1e-4 || result.warnings.iter().any(|w| w.starts_with("ill-conditioned")));
            }
        }
    }
}

/// No best model of rank 2 exists: two components run off to infinity in opposite directions.
#[test]
fn a_degenerate_tensor_is_told() {
    let mut x = ArrayD::<f64>::zeros(IxDyn(&[2, 2, 2]));
    for index in [[0, 0, 1], [0, 1, 0], [1, 0, 0]] {
        x[index] = 1.0;
    }
    let options = CpAlsOptions::new(2).max_sweeps(300).fit_tolerance(0.0).init(Init::Random { seed: 1 });
    let told = |warnings: &[String]| warnings.iter().any(|w| w.starts_with("degenerate components, congruence -0."));
    everywhere(
        |device| {
            let x = x.mapv(|v| v as f32);
            let result = cp_als(device, x.view(), &options).unwrap();
            assert!(told(&result.warnings), "{:?} {:?}", result.warnings, result.fit);
            assert!(result.model.weights().iter().all(|w| w.is_finite()));
        },
        |device| {
            let result = cp_als(device, x.view(), &options).unwrap();
            assert!(told(&result.warnings), "{:?} {:?}", result.warnings, result.fit);
            check(&x, &result, "degenerate");
        },
    );
}

/// Random shapes and ranks, data with collinear components among them: from sweep to sweep the error never grows beyond
/// rounding. Where components all but coincide the smallest solution is taken, which is the best to that precision.
#[test]
fn the_error_never_grows() {
    let mut numbers = Numbers::new(77);
    let cases: Vec<(ArrayD<f64>, usize)> = (0..12)
        .map(|case| {
            let mut pick = |from: usize, to: usize| from + (numbers.next().abs() * (to - from + 1) as f64) as usize;
            let dims: Vec<usize> = (0..pick(2, 4)).map(|_| pick(1, 9)).collect();
            let rank = pick(1, 6);
            let mut factors: Vec<Array2<f64>> = dims.iter().map(|&d| numbers.matrix(d, 4)).collect();
            if case % 2 == 0 {
                for factor in &mut factors {
                    for mut row in factor.rows_mut() {
                        (1..4).for_each(|r| row[r] = row[0] + 1e-3 * row[r]);
                    }
                }
            }
            let noise = numbers.tensor::<f64>(&dims) * 1e-3;
            (CpTensor::new(Array1::ones(4), factors).unwrap().to_full().unwrap() + noise, rank)
        })
        .collect();
    let run = |device: &Device, wide: bool| {
        for (x, rank) in &cases {
            let options = CpAlsOptions::new(*rank).max_sweeps(25).fit_tolerance(0.0);
            let (fits, rounding) = if wide {
                (cp_als(device, x.view(), &options).unwrap().fits, 1e-12)
            } else {
                (cp_als(device, x.mapv(|v| v as f32).view(), &options).unwrap().fits, 1e-5)
            };
            let what = format!("{:?} R {rank} {}", x.shape(), polyad::Backend::name(device));
            // The square of the error is what is computed, from sums of about 1: rounding is in that.
            let square = |fit: f64| (1.0 - fit) * (1.0 - fit);
            assert!(fits.windows(2).all(|f| square(f[1]) <= square(f[0]) + rounding), "{what}: {fits:?}");
        }
    };
    everywhere(|device| run(device, false), |device| run(device, true));
}
