//! CP-ALS with everything on the GPU against the same sweeps with the dense part on the host, and against the CPU.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::{gpu, gpu_with_binding, minimal_gpu};
use common::compare::Numbers;
use common::compare::wrapped::Wrapped;
use ndarray::{Array2, ArrayD};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, CpAlsOptions, CpAlsResult, Cpu, Error, Gpu, Init, Real, cp_als, wgpu};

/// A GPU that does nothing but MTTKRPs: the trait's own steps are used.
fn mttkrp_only(gpu: &Gpu) -> impl Backend {
    Wrapped(gpu, |_: &MttkrpPlan, time| time)
}

/// An adapter with f64, or `None` after saying that there is none.
fn f64_gpu() -> Option<Gpu> {
    let gpu = gpu()?;
    if !gpu.caps().f64 {
        println!("skipped: {} lacks SHADER_F64", gpu.name());
        return None;
    }
    Some(gpu)
}

/// Uniform numbers, so that components are far from orthogonal, as in real data.
fn tensor<T: Real>(dims: &[usize]) -> ArrayD<T> {
    Numbers::new(dims.iter().product::<usize>() as u64).tensor::<T>(dims).mapv(|v| v.abs())
}

/// Largest difference of two models, relative to the largest weight; columns are of unit norm.
fn difference<T: Real>(a: &CpAlsResult<T>, b: &CpAlsResult<T>) -> f64 {
    let most = |mut values: Box<dyn Iterator<Item = f64> + '_>| values.by_ref().fold(0.0, f64::max);
    let largest = a.model.weights().iter().fold(0.0f64, |m, w| m.max(w.f64()));
    let weights = a.model.weights().iter().zip(b.model.weights()).map(|(a, b)| (a.f64() - b.f64()).abs() / largest);
    let factors = a.model.factors().iter().zip(b.model.factors());
    let entries = factors.flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a.f64() - b.f64()).abs()));
    most(Box::new(weights)).max(most(Box::new(entries)))
}

/// Three sweeps on the device, with the host's algebra, and on the CPU.
fn agree<T: Real>(gpu: &Gpu, dims: &[usize], rank: usize, fit: [f64; 2], model: [f64; 2]) {
    let x: ArrayD<T> = tensor(dims);
    let options = CpAlsOptions::new(rank).max_sweeps(3).fit_tolerance(0.0).init(Init::Random { seed: 3 });
    let device = cp_als(gpu, x.view(), &options).unwrap();
    let host = cp_als(&mttkrp_only(gpu), x.view(), &options).unwrap();
    let cpu = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    assert_eq!((&device.algebra[..], &host.algebra[..]), ("on the device, in f64", "on the host"));
    let what = format!("{dims:?} R {rank} {}", T::DTYPE);
    assert_eq!(device.warnings, host.warnings, "{what}");
    for ((other, fit), model) in [&host, &cpu].into_iter().zip(fit).zip(model) {
        let fits = device.fits.iter().zip(&other.fits).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let models = difference(&device, other);
        println!("{what}: fits differ by {fits:.1e}, models by {models:.1e}");
        assert!(fits <= fit && models <= model, "{what}: fits {:?} and {:?}", device.fits, other.fits);
    }
}

#[test]
fn the_device_finds_what_the_host_does() {
    let Some(gpu) = f64_gpu() else { return };
    for (dims, rank) in [
        (&[9, 8, 7][..], 3),
        (&[12, 5], 1),
        (&[6, 5, 4, 7], 5),
        (&[4, 5, 3, 4, 3], 2),
        (&[150, 20, 9], 17),
        (&[70, 40, 30], 33),
    ] {
        // MTTKRPs are the same bits on the device and with the host's algebra; those of the CPU differ by rounding.
        agree::<f64>(&gpu, dims, rank, [1e-13; 2], [1e-12; 2]);
        agree::<f32>(&gpu, dims, rank, [1e-8, 1e-5], [1e-5, 1e-3]);
    }
}

/// V is singular: a component more than a mode of the others has, order 1, more than all entries.
#[test]
fn rank_deficient_equations_agree() {
    let Some(gpu) = f64_gpu() else { return };
    for (dims, rank) in [(&[6][..], 3), (&[3, 4], 5), (&[3, 2, 4], 9)] {
        let x: ArrayD<f64> = tensor(dims);
        let options = CpAlsOptions::new(rank).max_sweeps(20).fit_tolerance(0.0);
        let device = cp_als(&gpu, x.view(), &options).unwrap();
        let host = cp_als(&mttkrp_only(&gpu), x.view(), &options).unwrap();
        assert!(device.warnings[0].starts_with("rank deficient"), "{:?}", device.warnings);
        assert!((device.fit - host.fit).abs() < 1e-7, "{dims:?}: {} and {}", device.fit, host.fit);
    }
    let zeros = ArrayD::<f32>::zeros(ndarray::IxDyn(&[4, 3, 5]));
    let result = cp_als(&gpu, zeros.view(), &CpAlsOptions::new(2)).unwrap();
    assert_eq!((result.fit, result.sweeps), (1.0, 2));
    assert!(result.model.weights().iter().all(|&w| w == 0.0));
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let Some(gpu) = f64_gpu() else { return };
    let x: ArrayD<f32> = tensor(&[40, 30, 20]);
    // A sweep that is started and not needed changes nothing.
    let run = |sweeps, tolerance| {
        cp_als(&gpu, x.view(), &CpAlsOptions::new(6).max_sweeps(sweeps).fit_tolerance(tolerance)).unwrap()
    };
    let (a, b, early) = (run(4, 0.0), run(4, 0.0), run(50, 1e-3));
    assert_eq!((&a.model, &a.fits), (&b.model, &b.fits));
    let all = run(early.sweeps, 0.0);
    assert_eq!((&early.model, &early.fits), (&all.model, &all.fits));
    assert!(early.sweeps < 50);
}

#[test]
fn every_method_can_be_followed_by_an_update() {
    let Some(gpu) = f64_gpu() else { return };
    let x: ArrayD<f32> = tensor(&[9, 8, 7]);
    let fits = Method::ALL.map(|method| {
        let plan = PlanOptions::default().method(method);
        cp_als(&gpu, x.view(), &CpAlsOptions::new(2).max_sweeps(5).fit_tolerance(0.0).plan(plan)).unwrap().fits
    });
    for other in &fits[1..] {
        assert!(fits[0].iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5), "{fits:?}");
    }
}

#[test]
fn slabs_make_no_difference_and_column_blocks_are_the_hosts() {
    let Some(gpu) = gpu_with_binding(64 << 10) else { return };
    if !gpu.caps().f64 {
        return;
    }
    let x: ArrayD<f32> = tensor(&[40, 30, 50]);
    let options = CpAlsOptions::new(4).max_sweeps(3).fit_tolerance(0.0);
    let plan = MttkrpPlan::new(x.shape(), 0, 4, &PlanOptions::default(), gpu.caps()).unwrap();
    assert!(plan.slabs().len() > 1);
    let result = cp_als(&gpu, x.view(), &options).unwrap();
    assert_eq!(result.algebra, "on the device, in f64");
    let cpu = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    assert!((result.fit - cpu.fit).abs() < 1e-5);
    let wide = cp_als(&gpu, x.view(), &CpAlsOptions::new(300).max_sweeps(1)).unwrap();
    assert!(wide.algebra.starts_with("on the host: ") && wide.algebra.contains("max_storage"), "{}", wide.algebra);
}

#[test]
fn without_f64_the_host_does_it_and_says_so() {
    let Some(gpu) = minimal_gpu(wgpu::Features::empty()) else { return };
    let x: ArrayD<f32> = tensor(&[9, 8, 7]);
    let options = CpAlsOptions::new(3).max_sweeps(3).fit_tolerance(0.0);
    let result = cp_als(&gpu, x.view(), &options).unwrap();
    assert!(result.algebra.contains("SHADER_F64") && result.algebra.starts_with("on the host"), "{}", result.algebra);
    let cpu = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    assert!((result.fit - cpu.fit).abs() < 1e-5);
}

#[test]
fn numbers_out_of_range_are_named() {
    let Some(gpu) = f64_gpu() else { return };
    let huge = Array2::from_elem((30, 30), 3e38f32);
    let error = cp_als(&gpu, huge.view(), &CpAlsOptions::new(1)).unwrap_err();
    let Error::Overflow { what, dtype: "f32", index } = error else { panic!("{error}") };
    assert_eq!((&what[..], index), ("a weight", vec![0]));
    // f64 far from 1, but not so far that the data are scaled: norms are taken relative to the largest entry.
    let x: ArrayD<f64> = tensor(&[6, 5, 4]);
    let options = CpAlsOptions::new(2).max_sweeps(5).fit_tolerance(0.0);
    let plain = cp_als(&gpu, x.view(), &options).unwrap();
    for scale in [1e-85, 1e85] {
        let scaled = cp_als(&gpu, x.mapv(|v| v * scale).view(), &options).unwrap();
        assert!((scaled.fit - plain.fit).abs() < 1e-9, "{scale}: {} and {}", scaled.fit, plain.fit);
    }
}

/// The comparison can fail: another start is seen.
#[test]
fn another_start_is_noticed() {
    let Some(gpu) = f64_gpu() else { return };
    let x: ArrayD<f64> = tensor(&[9, 8, 7]);
    let run = |seed| {
        let options = CpAlsOptions::new(3).max_sweeps(3).fit_tolerance(0.0).init(Init::Random { seed });
        cp_als(&gpu, x.view(), &options).unwrap()
    };
    assert!(difference(&run(1), &run(2)) > 1e-3);
}

/// f32 data summed in f64 on the device: the same as on the CPU, for every kernel that FUSED chooses by rank and layout.
#[test]
fn wide_sums_agree_with_the_cpu() {
    let Some(gpu) = f64_gpu() else { return };
    // Rank one and a little: V is nearly singular at once.
    for (dims, rank) in
        [(&[12, 8, 16][..], 3), (&[9, 7, 5], 3), (&[20, 9, 12], 12), (&[30, 25, 21], 20), (&[6, 5, 4, 4], 4)]
    {
        let mut numbers = Numbers::new(rank as u64);
        let x = tensor::<f32>(dims).mapv(|v| v * 1e-6) + ArrayD::<f32>::ones(ndarray::IxDyn(dims));
        let factors = dims.iter().map(|&d| numbers.matrix::<f64>(d, rank).mapv(|v| 1.0 + 1e-3 * v)).collect();
        let start = polyad::CpTensor::new(ndarray::Array1::ones(rank), factors).unwrap();
        let init = Init::Model(Box::new(start));
        let options = CpAlsOptions::new(rank).max_sweeps(1).fit_tolerance(0.0).init(init);
        let device = cp_als(&gpu, x.view(), &options).unwrap();
        let cpu = cp_als(&Cpu::new(), x.view(), &options).unwrap();
        assert!(device.warnings[0].starts_with("ill-conditioned, some sums are in f64"), "{:?}", device.warnings);
        assert_eq!(device.warnings, cpu.warnings);
        assert!((device.fit - cpu.fit).abs() < 1e-7, "{dims:?} R {rank}: {} and {}", device.fit, cpu.fit);
    }
}
