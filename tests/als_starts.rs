//! Starts of CP-ALS: several of them in one batch, normal numbers, singular vectors beyond a mode's rows.

mod common;

use common::Numbers;
use common::devices::{everywhere, true_fit};
use common::wrapped::Wrapped;
use ndarray::{Array2, ArrayD};
use polyad::plan::MttkrpPlan;
use polyad::{Backend, CpAlsOptions, Cpu, Device, Dtype, Error, Init, Real, cp_als};
use std::cell::Cell;

fn batches<T: Real>(device: &Device) {
    let dims = [9, 8, 7];
    let x: ArrayD<T> = Numbers::new(3).tensor::<T>(&dims).mapv(|v| v.abs());
    let close = if T::DTYPE == Dtype::F32 { 2e-4 } else { 1e-9 };
    for nonneg in [vec![], vec![0, 1, 2]] {
        let options = CpAlsOptions::new(3).max_sweeps(8).fit_tolerance(0.0).nonneg(nonneg.clone());
        let seeded = |seed| options.clone().init(Init::Random { seed });
        let batch = cp_als(device, x.view(), &seeded(5).starts(4)).unwrap();
        let alone: Vec<_> = (5..9).map(|seed| cp_als(device, x.view(), &seeded(seed)).unwrap()).collect();
        let what = format!("{nonneg:?} {} {}", T::DTYPE, device.name());
        assert_eq!(batch.start_fits.len(), 4, "{what}");
        for (fit, alone) in batch.start_fits.iter().zip(&alone) {
            assert!((fit - alone.fit).abs() < close, "{what}: {fit} and {}", alone.fit);
        }
        // The starts are different, so a mix-up would show.
        assert!(alone.windows(2).all(|a| (a[0].fit - a[1].fit).abs() > 1e-7), "{what}");
        let best = &alone[batch.best_start];
        assert!(alone.iter().all(|other| other.fit <= best.fit + close), "{what}");
        assert_eq!(batch.fit, batch.start_fits[batch.best_start], "{what}");
        assert_eq!((batch.fits.len(), batch.sweeps, batch.model.rank()), (8, 8, 3), "{what}");
        assert!((true_fit(&x, &batch.model) - batch.fit).abs() < close, "{what}");
        for (a, b) in batch.model.factors().iter().zip(best.model.factors()) {
            let far = a.iter().zip(b).map(|(a, b)| (a.f64() - b.f64()).abs()).fold(0.0, f64::max);
            assert!(far < 100.0 * close, "{what}: {far}");
        }
        let again = cp_als(device, x.view(), &seeded(5).starts(4)).unwrap();
        assert_eq!((again.model, again.start_fits), (batch.model, batch.start_fits), "{what}");
    }
    // A given model is the first of the starts, and what is fixed is the same for all.
    let model = cp_als(device, x.view(), &CpAlsOptions::new(3).max_sweeps(30)).unwrap().model.to_f64();
    let init = Init::Model(Box::new(model.clone()));
    let options = CpAlsOptions::new(3).max_sweeps(3).fit_tolerance(0.0).init(init).starts(3).fix([1]);
    let result = cp_als(device, x.view(), &options).unwrap();
    assert_eq!(result.best_start, 0, "{:?}", result.start_fits);
    assert!(result.start_fits[1..].iter().all(|fit| *fit < result.fit && *fit > 0.0), "{:?}", result.start_fits);
    assert!((result.initial_fit.unwrap() - true_fit(&x, &model)).abs() < 1e-5);
    assert_eq!(result.model.factors()[1], model.factors()[1].mapv(T::of));
}

#[test]
fn starts_in_a_batch_are_what_they_are_alone() {
    everywhere(batches::<f32>, batches::<f64>);
}

#[test]
fn x_is_read_once_for_all_starts() {
    let x: ArrayD<f64> = Numbers::new(3).tensor(&[6, 5, 4]);
    let model = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(2)).unwrap().model;
    let count = |options: CpAlsOptions| {
        let (cpu, mttkrps) = (Cpu::new(), Cell::new(0));
        let counting = Wrapped(&cpu, |_: &MttkrpPlan, time| {
            mttkrps.set(mttkrps.get() + 1);
            time
        });
        let result = cp_als(&counting, x.view(), &options.max_sweeps(5).fit_tolerance(0.0)).unwrap();
        (result.sweeps, mttkrps.get())
    };
    assert_eq!(count(CpAlsOptions::new(2)), (5, 15));
    assert_eq!(count(CpAlsOptions::new(2).starts(7)), (5, 15));
    // Nor does the fit of a given start, or a mode without negative entries, take a pass of its own.
    let given = CpAlsOptions::new(2).init(Init::Model(Box::new(model)));
    assert_eq!(count(given.clone()), (5, 15));
    assert_eq!(count(given.clone().fix([0])), (5, 10));
    assert_eq!(count(given.fix(0..3)), (0, 1));
    assert_eq!(count(CpAlsOptions::new(2).nonneg(0..3)), (5, 15));
}

#[test]
fn normal_starts_are_normal_and_seeded() {
    let x = Array2::<f64>::ones((4000, 2));
    let start = |init| cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(5).init(init).fix(0..2)).unwrap().model;
    let model = start(Init::Normal { seed: 3 });
    assert_eq!(model, start(Init::Normal { seed: 3 }));
    assert_ne!(model, start(Init::Normal { seed: 4 }));
    let numbers = &model.factors()[0];
    let (count, mean) = (numbers.len() as f64, numbers.mean().unwrap());
    let moment = |power: i32| numbers.iter().map(|v| (v - mean).powi(power)).sum::<f64>() / count;
    // Five standard deviations of each estimate.
    assert!(mean.abs() < 5.0 / count.sqrt(), "{mean}");
    assert!((moment(2) - 1.0).abs() < 5.0 * (2.0 / count).sqrt(), "{}", moment(2));
    assert!((moment(4) - 3.0).abs() < 5.0 * (96.0 / count).sqrt(), "{}", moment(4));
    let uniform = start(Init::Random { seed: 3 });
    assert!(uniform.factors().iter().flatten().all(|v| (0.0..1.0).contains(v)));
    // Without negative entries magnitudes are taken.
    let options = CpAlsOptions::new(5).init(Init::Normal { seed: 3 }).fix([0]).nonneg(0..2);
    let model = cp_als(&Cpu::new(), x.view(), &options).unwrap().model;
    assert!(model.factors()[0].iter().all(|v| *v >= 0.0));
}

#[test]
fn singular_vectors_are_followed_by_random_columns() {
    let x: ArrayD<f64> = Numbers::new(8).tensor(&[6, 3, 4]);
    let start =
        |seed| cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(5).init(Init::Nvecs { seed }).fix(0..3)).unwrap();
    let (a, b) = (start(1).model, start(2).model);
    for (mode, rows) in [6, 3, 4].into_iter().enumerate() {
        let (a, b) = (&a.factors()[mode], &b.factors()[mode]);
        // Orthonormal as far as there are singular vectors.
        let count = rows.min(5);
        let lead = a.slice(ndarray::s![.., ..count]);
        let gram = lead.t().dot(&lead);
        assert!((gram - Array2::<f64>::eye(count)).iter().all(|v| v.abs() < 1e-10), "mode {mode}");
        assert_eq!(lead, b.slice(ndarray::s![.., ..count]));
        assert!(rows >= 5 || a.column(4) != b.column(4), "mode {mode}");
    }
}

/// Without other modes, with singular equations, with nothing to find: starts do not get into each other's way.
#[test]
fn odd_tensors_have_several_starts_too() {
    for dims in [&[7][..], &[1, 1], &[1, 5, 1], &[3, 4, 2]] {
        let x: ArrayD<f64> = Numbers::new(7).tensor(dims);
        for x in [x.clone(), x * 0.0] {
            for options in
                [CpAlsOptions::new(3), CpAlsOptions::new(3).nonneg(0..dims.len()), CpAlsOptions::new(5).ridge(0.1)]
            {
                let result = cp_als(&Cpu::new(), x.view(), &options.starts(3)).unwrap();
                assert!(result.start_fits.iter().all(|fit| fit.is_finite() && *fit <= 1.0), "{dims:?}: {result:?}");
                let zero = x.iter().all(|v| *v == 0.0);
                assert!(!zero || (result.fit == 1.0 && result.sweeps == 2), "{dims:?}: {result:?}");
                let expected = true_fit(&x, &result.model);
                assert!(zero || (expected - result.fit).abs() < 1e-7, "{dims:?}: {} and {expected}", result.fit);
            }
        }
    }
}

#[test]
fn no_starts_are_an_error() {
    let x = Array2::<f64>::ones((3, 4));
    let error = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1).starts(0)).unwrap_err();
    assert!(matches!(error, Error::Option { name: "starts", .. }));
    let error = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1).starts(usize::MAX)).unwrap_err();
    assert!(matches!(error, Error::TooManyElements { .. }));
}
